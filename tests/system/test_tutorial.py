"""The tutorial does what it says: its code is saved and its commands run, in order, in an empty directory.

A page is read from top to bottom. A block of Python becomes the file that its first line names. The lines of a block
``sh`` run in a shell; a block ``text`` behind them is what they print, with ``…`` for what differs. A command that
serves is awaited until it has printed that, and ends where the page says **Press Ctrl-C**.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from container.testing.processes.endpoints import HOST, PortReservation
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorial").glob("[1-9]-*.md"))
PROGRAMS = {
    "python": "",
    "pytest": "-m pytest -p no:cacheprovider",
    "aeron-cluster": "-m container",
}
"""The programs of the reader's environment, and the arguments of Python that do the same."""
SERVERS = ("aeron-cluster dev ", "python gateway.py")
SETUP = ("python -m venv ", ". .venv/", "pip install ")
"""The reader's environment is that of this test."""
CTRL_C = "**Press Ctrl-C**"
FULL_SCREEN = "aeron-cluster top "
"""It is left with ``q``."""


@dataclass(frozen=True)
class Step:
    """A block of a page, or a Ctrl-C: then the language is empty."""

    place: str
    language: str
    text: str = ""

    @property
    def commands(self) -> list[str]:
        """The commands of a block ``sh``."""
        joined = self.text.replace("\\\n", " ")
        return [line.partition("  #")[0] for line in joined.splitlines() if not line.startswith(SETUP)]


def steps(page: Path) -> list[Step]:
    """The steps of a page, in order."""
    found: list[Step] = []
    block: list[str] | None = None
    language = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        place = f"{page.name}:{number}"
        if line.startswith("```") and block is None:
            block, language = [], line[3:]
            assert language in ("python", "sh", "text"), place
        elif line.startswith("```"):
            assert block is not None
            found.append(Step(place, language, "\n".join(block) + "\n"))
            block = None
        elif block is not None:
            block.append(line)
        elif CTRL_C in line:
            found.append(Step(place, ""))
    return found


def find_lines(expected: str, printed: str) -> str:
    """The first line of ``expected`` that does not follow the others in what was printed; empty when all do."""
    lines = iter(printed.splitlines())
    for wanted in expected.splitlines():
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        if wanted != "…" and not any(pattern.fullmatch(line.rstrip()) for line in lines):
            return wanted
    return ""


class Server:
    """A command that serves until Ctrl-C."""

    def __init__(self, command: str, directory: Path, environment: dict[str, str], number: int) -> None:
        self.command = command
        self._output = directory.parent / f"server-{number}.out"
        with self._output.open("w", encoding="utf-8") as output:
            self._process = subprocess.Popen(
                f"exec env {command}",
                shell=True,
                cwd=directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def printed(self) -> str:
        """Everything so far."""
        return self._output.read_text(encoding="utf-8")

    def await_lines(self, expected: str) -> None:
        """Wait until it has printed these lines."""

        def has_come() -> bool:
            assert self._process.poll() is None, f"{self.command} ended\n{self.printed}"
            return not find_lines(expected, self.printed)

        try:
            wait_until(has_come, LIMIT_S, f"{self.command} to print\n{expected}")
        except TimeoutError as error:
            error.add_note(f"it printed:\n{self.printed}")
            raise

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(LIMIT_S) == 0, f"{self.command}\n{self.printed}"

    def kill(self) -> None:
        """End it after a failed test."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(LIMIT_S)
            finally:
                self._process.kill()


class Reader:
    """A reader with two terminals, who has come to some chapter."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory / "exchange"
        self.directory.mkdir()
        self.servers: list[Server] = []
        self.read = 0
        self._started = 0
        programs = directory / "bin"
        programs.mkdir()
        for name, arguments in PROGRAMS.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n', encoding="utf-8")
            program.chmod(0o755)
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("AERON_")} | {
            "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(self.directory))),
            "AERON_CLUSTER_MESSAGE_TIMEOUT": "30s",  # a test machine may be slower than a reader's
            "PYTHONUNBUFFERED": "1",
        }
        # A member has a row of five ports, ten apart: there is room in between.
        self._ports = {f"{9010 + 10 * member}": f"{port + 10 * member}" for member in range(3)}
        self._ports |= {"8080": f"{port + 5}", "9100": f"{port + 6}", "aeron-cluster dev ": ""}
        self._ports["aeron-cluster dev "] = f"aeron-cluster dev --port {port} "

    def read_to(self, chapter: int) -> None:
        """Do all chapters to this one that are not done yet."""
        while self.read < chapter:
            self.do(PAGES[self.read])
            self.read += 1

    def leave(self) -> None:
        """End what a failed chapter has left."""
        for server in self.servers:
            server.kill()

    def do(self, page: Path) -> None:
        """Do what a page says."""
        printed = ""
        server: Server | None = None  # of the last commands
        for step in steps(page):
            text = self._here(step.text)
            if step.language == "":
                self.servers[-1].interrupt()
                self.servers.pop()
            elif step.language == "python":
                name = re.match(r"# (\w+\.py)\n", text)
                assert name is not None, f"{step.place}: no name of a file"
                (self.directory / name[1]).write_text(text, encoding="utf-8")
            elif step.language == "text" and server is not None:
                server.await_lines(text)
            elif step.language == "text":
                missing = find_lines(text, printed)
                assert not missing, f"{step.place}: no {missing!r} in\n{printed}"
            else:
                printed, server = "", None
                for command in step.commands:
                    assert server is None, f"{step.place}: nothing runs in a terminal that serves"
                    if any(each in command for each in SERVERS):
                        self._started += 1
                        server = Server(self._here(command), self.directory, self._environment, self._started)
                        self.servers.append(server)
                    elif command.startswith(FULL_SCREEN):
                        self._look_at(command)
                    else:
                        printed += self._output_of(self._here(command), step.place)

    def _here(self, text: str) -> str:
        """The text with free ports of this machine."""
        return re.sub("|".join(self._ports), lambda found: self._ports[found[0]], text)

    def _look_at(self, command: str) -> None:
        """Run a full screen in a terminal until it shows who leads, and leave it."""
        controller, terminal = pty.openpty()
        process = subprocess.Popen(
            command.split(),
            cwd=self.directory,
            env=self._environment | {"TERM": "xterm", "LINES": "40", "COLUMNS": "150"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        try:
            shown = b""
            while b"LEADER" not in shown:
                assert select.select([controller], [], [], LIMIT_S)[0], shown
                shown += os.read(controller, 65_536)
            os.write(controller, b"q")
            with suppress(OSError):  # its terminal is closed
                while select.select([controller], [], [], LIMIT_S)[0]:
                    os.read(controller, 65_536)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
            process.wait(LIMIT_S)
            os.close(controller)

    def _output_of(self, command: str, place: str) -> str:
        run = subprocess.run(
            command,
            shell=True,
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        served = "\n".join(f"{server.command}:\n{server.printed}" for server in self.servers)
        assert run.returncode == 0, f"{place}: {command}\n{run.stdout}\n{served}"
        return run.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    directory = tmp_path_factory.mktemp("tutorial")
    with ExitStack() as stack:
        ports = PortReservation(HOST)
        port = ports.take_row(25)
        ports.close()  # the gateway listens on one of them over TCP
        reader = Reader(directory, port)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.callback(reader.leave)
        yield reader


def test_what_a_reader_sees_is_compared_line_by_line() -> None:
    printed = "one\ntwo 2\nthree \n"
    assert find_lines("one\n…\nthree\n", printed) == ""
    assert find_lines("two …\n", printed) == ""
    assert find_lines("three\none\n", printed) == "one"
    assert find_lines("two\n", printed) == "two"


@pytest.mark.parametrize("chapter", range(1, 7))
def test_the_chapters_work_in_order(chapter: int, reader: Reader) -> None:
    reader.read_to(chapter)


@pytest.mark.slow
def test_three_members_survive_a_killed_leader(reader: Reader) -> None:
    reader.read_to(7)


@pytest.mark.slow
def test_spark_reads_the_log(reader: Reader) -> None:
    pytest.importorskip("pyspark")
    reader.read_to(8)


def test_each_chapter_is_in_the_table_and_leads_to_the_next() -> None:
    assert [page.name[:2] for page in PAGES] == [f"{number}-" for number in range(1, 9)]
    table = (ROOT / "docs" / "tutorial" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\((\d-[\w-]+\.md)\)", table) == [page.name for page in PAGES]
    for page, following in pairwise(PAGES):
        assert "\nNext: [" in page.read_text(encoding="utf-8")
        assert f"({following.name})" in page.read_text(encoding="utf-8")
