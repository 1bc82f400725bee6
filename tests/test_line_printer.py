"""Lines for standard error, whatever it is: a pipe that nobody reads, a stopped terminal, a file, nothing at all."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from container.aeron import MediaDriver
from container.common.line_printer import non_blocking_copy, print_line
from container.files.cnc_file import FileFormatError, read_mark_file
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[1]
NOTICE = "lines lost or cut here: nobody read them in time\n"


class Pipe:
    """A pipe with a text stream at its end, as a supervisor gives its child for standard error."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stream = os.fdopen(writer, "w", encoding="ascii", buffering=1)

    def fill(self) -> int:
        """Fills the pipe to its last byte; how many there are in it."""
        writer = self.stream.fileno()
        os.set_blocking(writer, False)
        count = 0
        try:
            while True:
                count += os.write(writer, b"x" * 512)
        except BlockingIOError:
            os.set_blocking(writer, True)
        return count

    def read(self, count: int = 2**20) -> str:
        """What is in the pipe, at most that many bytes."""
        parts = []
        while count > 0 and select.select([self.reader], [], [], 0)[0]:
            parts.append(os.read(self.reader, count))
            count -= len(parts[-1])
        return b"".join(parts).decode()

    def close(self) -> None:
        os.close(self.reader)
        self.stream.close()


LINES = 200


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def print_in_time(text: str, stream: TextIO) -> None:
    """Print a line on a thread of its own; fails when it does not end in time."""
    thread = threading.Thread(target=print_line, args=(text, stream), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), f"print_line() still waits after {LIMIT_S} s"


def test_a_line_is_written_at_once(pipe: Pipe) -> None:
    print_line("größe", pipe.stream)
    assert pipe.read() == "gr\\xf6\\xdfe\n"


def test_a_long_line_is_written_whole_while_somebody_reads(pipe: Pipe) -> None:
    text = "".join(f"{number:07}\n" for number in range(50_000))
    parts: list[bytes] = []

    def read() -> None:
        length = 0
        while length < len(text) + 1:
            parts.append(os.read(pipe.reader, 2**16))
            length += len(parts[-1])

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    print_line(text, pipe.stream)
    thread.join(LIMIT_S)
    assert b"".join(parts).decode() == text + "\n"


def test_a_process_without_room_for_another_file_prints_all_the_same(pipe: Pipe) -> None:
    lowest = os.dup(pipe.reader)
    os.close(lowest)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(pipe.reader)
        print_line("heard", pipe.stream)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert pipe.read() == "heard\n"


def test_a_pipe_that_nobody_reads_holds_nobody_up_and_what_is_lost_is_counted(pipe: Pipe) -> None:
    filled = pipe.fill()
    print_in_time("lost", pipe.stream)
    begin = time.monotonic()
    for _ in range(LINES):
        print_line("lost", pipe.stream)
    assert time.monotonic() - begin < 0.5 * LINES, "it does not wait for the same reader again and again"
    assert pipe.read(filled) == "x" * filled
    print_line("heard", pipe.stream)
    assert pipe.read() == f"{LINES + 1:,} {NOTICE}heard\n"
    print_line("again", pipe.stream)
    assert pipe.read() == "again\n"


def test_a_line_that_was_cut_is_told_from_the_next_one(pipe: Pipe) -> None:
    capacity = fcntl.fcntl(pipe.stream.fileno(), 1032)  # F_GETPIPE_SZ
    print_in_time("y" * (2 * capacity), pipe.stream)
    print_line("lost", pipe.stream)
    assert set(pipe.read()) == {"y"}
    print_line("heard", pipe.stream)
    assert pipe.read() == f"\n2 {NOTICE}heard\n"


def test_the_flags_of_the_descriptor_stay_as_they_are(pipe: Pipe) -> None:
    descriptor = pipe.stream.fileno()
    before = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    print_line("x", pipe.stream)
    assert fcntl.fcntl(descriptor, fcntl.F_GETFL) == before
    assert os.get_blocking(descriptor)


def test_without_a_descriptor_of_its_own_it_looks_before_it_writes(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("container.common.line_printer.non_blocking_copy", os.dup)
    print_line("heard", pipe.stream)
    assert pipe.read() == "heard\n"
    filled = pipe.fill()
    print_in_time("lost", pipe.stream)
    print_in_time("lost" * 100_000, pipe.stream)
    assert pipe.read(filled) == "x" * filled
    print_line("heard", pipe.stream)
    assert pipe.read() == f"2 {NOTICE}heard\n"


def test_a_terminal_that_is_stopped_holds_nobody_up() -> None:
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        print_in_time("z" * 200_000, stream)
        while select.select([controller], [], [], 0)[0]:
            os.read(controller, 2**16)
        print_line("heard", stream)
        assert os.read(controller, 2**16).decode().endswith("heard\r\n")
    os.close(controller)


def test_descriptors_are_not_left_open(pipe: Pipe) -> None:
    before = sorted(Path("/dev/fd").iterdir())
    pipe.fill()
    for _ in range(10):
        print_line("x", pipe.stream)
    assert sorted(Path("/dev/fd").iterdir()) == before


def test_a_copy_of_what_is_no_pipe_is_a_plain_one(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        file.write("one\n")
        file.flush()
        copy = non_blocking_copy(file.fileno())
        os.write(copy, b"two\n")
        os.close(copy)
        print_line("three", file)
    assert (tmp_path / "log").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("stream", [None, io.StringIO(), io.TextIOWrapper(io.BytesIO())])
def test_streams_without_a_descriptor_are_printed_to(stream: TextIO | None) -> None:
    print_line("x", stream)
    if stream is not None:
        stream.seek(0)
        assert stream.read() == "x\n"


# --- whoever prints

# What must not wait, and how the error gets there. Each runs with a standard error that is full, and that nobody reads.
PRINTERS = {
    "error log full": """
log = LoggingErrorHandler(DistinctErrorLog(bytearray(0)), fallback_stream("stderr"))
for number in range(300):
    log(ClusterEvent("x" * number))
log.close()
""",
    "no logging set up": """
log = LoggingErrorHandler(DistinctErrorLog(bytearray(2**20)), None)
for number in range(300):
    log(ClusterEvent("x" * number))
log.close()
report("warning", "a wait that lasts")
""",
    "logging of the command": """
log_to_stderr("debug")
report("info", "running")
import logging
log = LoggingErrorHandler(DistinctErrorLog(bytearray(2**20)), None)
for number in range(300):
    log(ClusterEvent("x" * number))
log.close()
report("error", "ended")
report("info", "ended")
logging.getLogger("service").error("of the service's own")
""",
    "a child that comes back": """
import os
child = os.fork()
if child == 0:
    forks.end_child(ValueError("x"))
os.waitpid(child, 0)
child = os.fork()
if child == 0:
    forks.end_child(SystemExit("x"))
os.waitpid(child, 0)
""",
    "a command that fails": """
from container.__main__ import main
assert main(["run", "no.such.module:Name"]) == 2
""",
    "a crash": """
import ctypes
from container.common.main_program import report_crashes
report_crashes()
done.write("done")
done.flush()
ctypes.string_at(0)
""",
}
HEAD = """
import os, sys
from container.common import forks
from container.error_handlers import LoggingErrorHandler, fallback_stream
from container.files.error_log import DistinctErrorLog
from container.errors import ClusterEvent
from container.common.loggers import log_to_stderr, report
done = open(int(sys.argv[1]), "w")
"""


@pytest.mark.parametrize("name", PRINTERS)
def test_nobody_waits_for_a_standard_error_that_nobody_reads(pipe: Pipe, name: str) -> None:
    pipe.fill()
    reader, writer = os.pipe()
    code = f"{HEAD}{PRINTERS[name]}\ndone.write('done')\ndone.flush()\nos._exit(0)"
    command = [sys.executable, "-c", code, str(writer)]
    with subprocess.Popen(command, pass_fds=(writer,), stderr=pipe.stream, cwd=ROOT) as process:
        os.close(writer)
        try:
            code_of_exit = process.wait(LIMIT_S)
        finally:
            process.kill()
    said = os.read(reader, 100)
    os.close(reader)
    assert said == b"done"
    assert code_of_exit == (-11 if name == "a crash" else 0)


def is_ready(mark: Path) -> bool:
    """Is there a mark file that says so? It may be half made."""
    try:
        return read_mark_file(mark).version == 768
    except (FileNotFoundError, FileFormatError):
        return False


def test_a_container_runs_and_ends_beside_a_standard_error_that_nobody_reads(pipe: Pipe, tmp_path: Path) -> None:
    pipe.fill()
    mark = tmp_path / "cluster" / "cluster-mark-service-0.dat"
    mark.parent.mkdir()
    service = "examples.echo_service:EchoService"
    command = [sys.executable, "-m", "container", "run", service, "--cluster-dir", str(mark.parent)]
    with MediaDriver.launch_embedded() as driver:
        environment = {**os.environ, "AERON_DIR": driver.aeron_dir}
        with subprocess.Popen(command, env=environment, stderr=pipe.stream, cwd=ROOT) as process:
            try:
                wait_until(lambda: is_ready(mark), LIMIT_S, "a container that is ready")
                threading.Event().wait(0.3)  # in which it comes to wait for its end
                process.terminate()
                assert process.wait(LIMIT_S) == 0
            finally:
                process.kill()
    assert read_mark_file(mark).activity_timestamp_ms == -1
