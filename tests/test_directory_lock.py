"""A node's directory after a kill: free at once where the lock proves that its owner is dead, and only there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import container
from container.errors import AeronError, MarkFileError
from container.files.cluster_mark_file import ClusterMarkFile
from container.files.cnc_file import CncFile, read_mark_file
from container.files.directory_lock import NOTE_NAME, DirectoryLock
from container.node.cluster_node import aeron_dir_of
from container.node.java_node import JavaNode
from container.storage.file_storage import FileStorage
from container.testing.processes.endpoints import PortReservation
from container.transport.clocks import SystemClock
from tests.limits import LIMIT_S
from tests.services import Counter
from tests.test_cluster_node import COMMAND, HOST, ROOT, SERVICE, ask

ACTIVITY, START, PID = 16, 24, 32
"""Offsets in a mark file."""
CNC_PID = 40
CLAIMED = 2**63 - 1


def mark_file(directory: Path) -> ClusterMarkFile:
    """A mark file whose owner lives."""
    made = ClusterMarkFile(
        directory / "cluster-mark-service-0.dat", storage=FileStorage(), clock=SystemClock(), error_buffer_length=2**20
    )
    made.signal_ready()
    return made


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The mark file of a node that was killed a moment ago, in its directory."""
    lock = DirectoryLock(tmp_path)
    made = mark_file(tmp_path)
    lock.note(made.path)
    made.close()
    lock.disown()  # as the kernel does
    return Path(made.path)


def is_freed(path: Path) -> bool:
    """Whether the next node frees it."""
    lock = DirectoryLock(path.parent)
    lock.free_files_of_the_dead()
    lock.disown()
    return read_mark_file(path).activity_timestamp_ms == -1


def patch(path: Path, offset: int, value: int) -> None:
    """Write a number into a mark file, as another owner does."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<q", value))


def start_elsewhere(path: Path) -> None:
    """As Java's start does, which writes the time once it is ready."""
    patch(path, ACTIVITY, CLAIMED)
    patch(path, PID, 4711)


def test_what_a_dead_holder_of_the_lock_has_left_is_free(killed: Path) -> None:
    assert read_mark_file(killed).is_active
    assert is_freed(killed)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: patch(path, PID, 4711), id="another process"),
        pytest.param(lambda path: patch(path, START, 4711), id="another process with the same id"),
        pytest.param(start_elsewhere, id="another process that starts"),
        pytest.param(lambda path: path.write_bytes(b""), id="a file that is just made"),
        pytest.param(lambda path: path.with_name(NOTE_NAME).unlink(), id="no note"),
        pytest.param(lambda path: path.with_name(NOTE_NAME).write_text("[]"), id="a note of something else"),
        pytest.param(lambda path: path.with_name(NOTE_NAME).write_text('{"owners": {"a": [1]}}'), id="a damaged note"),
        pytest.param(lambda path: path.with_name(NOTE_NAME).write_bytes(b"\xff"), id="a note that is not text"),
    ],
)
def test_what_is_not_as_it_was_left_is_not_freed(killed: Path, change: Callable[[Path], object]) -> None:
    change(killed)
    before = killed.read_bytes()[:PID]
    lock = DirectoryLock(killed.parent)
    lock.free_files_of_the_dead()
    lock.disown()
    assert killed.read_bytes()[:PID] == before


def claim(path: Path) -> None:
    """As the next start does, before it writes its name; it is killed then, when it has noted its first file."""
    lock = DirectoryLock(path.parent)
    lock.free_files_of_the_dead()
    other = path.with_name("archive-mark.dat")
    other.write_bytes(path.read_bytes())
    lock.note(other)
    lock.disown()
    other.unlink()
    patch(path, ACTIVITY, CLAIMED)


def test_what_a_start_had_claimed_when_it_was_killed_is_free_after_10_s(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container.files.directory_lock.LIVENESS_TIMEOUT_MS", 300)
    claim(killed)
    begin = time.monotonic()
    assert is_freed(killed)
    assert time.monotonic() - begin >= 0.3


def test_what_somebody_claims_who_lives_is_not_freed(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's start, say: it writes its name right after its claim, and the time only when it is ready."""
    monkeypatch.setattr("container.files.directory_lock.LIVENESS_TIMEOUT_MS", LIMIT_S * 1000)
    claim(killed)
    waits: list[float] = []

    def go_on(seconds: float) -> None:
        waits.append(seconds)
        patch(killed, PID, 4711)

    monkeypatch.setattr(time, "sleep", go_on)
    lock = DirectoryLock(killed.parent)
    lock.free_files_of_the_dead()
    lock.disown()
    assert len(waits) == 1
    assert read_mark_file(killed).activity_timestamp_ms == CLAIMED


@pytest.mark.parametrize("index", range(3), ids=["another kernel", "another device", "another directory"])
def test_a_note_of_another_place_proves_nothing(killed: Path, index: int) -> None:
    note = killed.with_name(NOTE_NAME)
    content = json.loads(note.read_text())
    content["place"][index] = "another" if index == 0 else content["place"][index] + 1
    note.write_text(json.dumps(content))
    assert not is_freed(killed)


def test_one_file_of_another_owner_keeps_all_from_being_freed(tmp_path: Path, killed: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.note(killed)
    copy = tmp_path / "cluster-mark.dat"
    copy.write_bytes(killed.read_bytes())
    lock.note(copy)
    lock.disown()
    patch(copy, PID, 4711)
    assert not is_freed(killed)


def test_a_file_that_is_gone_does_not_matter(tmp_path: Path, killed: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.note(killed)
    copy = tmp_path / "cluster-mark.dat"
    copy.write_bytes(killed.read_bytes())
    lock.note(copy)
    lock.disown()
    copy.unlink()
    assert is_freed(killed)


def test_a_child_that_has_the_lock_keeps_others_out(tmp_path: Path) -> None:
    """One that was forked past Python, and shares what its parent has open."""
    lock = DirectoryLock(tmp_path)
    assert lock._file is not None
    shared = os.dup(lock._file)
    lock.disown()
    with pytest.raises(MarkFileError, match=f"another node runs on {tmp_path}, or a process that it has forked"):
        DirectoryLock(tmp_path)
    os.close(shared)
    DirectoryLock(tmp_path).close()


def test_a_forked_child_lets_go_of_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    for_parent, for_child = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(for_parent[1], b"1")
        os.read(for_child[0], 1)
        os._exit(0)
    try:
        os.read(for_parent[0], 1)
        lock.close()
        DirectoryLock(tmp_path).close()
    finally:
        os.write(for_child[1], b"1")
        os.waitpid(child, 0)
        for each in (*for_parent, *for_child):
            os.close(each)


def test_java_s_node_is_kept_out_as_well(tmp_path: Path, port: int) -> None:
    """After 10 s in a callback, or stopped by SIGSTOP, a node's mark files do not keep it out."""
    lock = DirectoryLock(tmp_path)
    with pytest.raises(MarkFileError, match=f"another node runs on {tmp_path}"):
        JavaNode.launch(
            Counter(), directory=str(tmp_path), host=HOST, port=port, on_ready=lambda: None, on_end=lambda: None
        )
    lock.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_process_has_taken_meanwhile_is_not_noted(tmp_path: Path) -> None:
    """Such as the CnC file of another driver that started in the same directory at the same moment, and lives on."""
    made = mark_file(tmp_path)
    path = Path(made.path)
    patch(path, PID, 4711)
    lock = DirectoryLock(tmp_path)
    lock.note(path)
    lock.disown()
    made.close()
    assert not is_freed(path)


def test_a_pipe_in_place_of_the_note_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NOTE_NAME)
    made = mark_file(tmp_path)
    lock = DirectoryLock(tmp_path)
    lock.free_files_of_the_dead()
    lock.note(made.path)
    lock.close()
    made.close()
    assert not (tmp_path / NOTE_NAME).exists()


def test_who_ends_in_order_leaves_no_note(killed: Path) -> None:
    lock = DirectoryLock(killed.parent)
    lock.note(killed)
    lock.close()
    assert not killed.with_name(NOTE_NAME).exists()
    assert not is_freed(killed)


def test_a_file_system_without_locks_proves_nothing(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not is_freed(killed)


def start(directory: Path, port: int) -> subprocess.Popen[str]:
    """A node in a process of its own."""
    return subprocess.Popen(
        [*COMMAND, "dev", SERVICE, "--dir", str(directory), "--host", HOST, "--port", str(port)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_ready(node: subprocess.Popen[str]) -> bool:
    assert node.stdout is not None
    return node.stdout.readline() == "A cluster of one member is ready.\n"


def kill(node: subprocess.Popen[str]) -> None:
    node.send_signal(signal.SIGKILL)
    node.communicate(timeout=LIMIT_S)


@pytest.fixture
def dead(tmp_path: Path, port: int) -> Iterator[Path]:
    """The directory of a node that has acknowledged a message, and was killed a moment ago."""
    client = [*COMMAND, "client", "--ingress", f"0={HOST}:{port}", "--embedded-driver", "send", "7"]
    node = start(tmp_path, port)
    try:
        assert is_ready(node)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        sent = subprocess.run(client, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
        assert sent.stdout == "7\n", sent.stderr
    finally:
        kill(node)
    yield tmp_path
    shutil.rmtree(aeron_dir_of(tmp_path), ignore_errors=True)


def test_a_node_starts_at_once_after_a_kill_and_has_all_that_was_acknowledged(dead: Path, port: int) -> None:
    with closing(CncFile(Path(aeron_dir_of(dead), "cnc.dat"))) as file:
        assert file.pid == read_mark_file(dead / "cluster" / "cluster-mark.dat").pid
    with container.launch_node(Counter(), directory=dead, host=HOST, port=port) as node:
        assert ask(node, b"5") == b"12"
    assert not (dead / NOTE_NAME).exists()


@pytest.mark.parametrize("name", ["archive/archive-mark.dat", "cluster/cluster-mark.dat", "cnc.dat"])
def test_after_a_kill_a_part_of_another_owner_keeps_the_node_out(dead: Path, port: int, name: str) -> None:
    """Such as Java's, which knows nothing of the lock."""
    if name == "cnc.dat":
        patch(Path(aeron_dir_of(dead), name), CNC_PID, 4711)
    else:
        patch(dead / name, PID, 4711)
    with pytest.raises((AeronError, MarkFileError), match=r"if it was killed, start again in \d+ ms"):
        container.launch_node(Counter(), directory=dead, host=HOST, port=port)


def test_of_two_nodes_that_start_after_a_kill_one_does(dead: Path, port: int) -> None:
    ports = PortReservation(HOST)
    nodes = [start(dead, each) for each in (port, ports.take_row(5))]
    try:
        found = {is_ready(each): each for each in nodes}
        assert sorted(found) == [False, True]
        assert "another node runs on" in found[False].communicate(timeout=LIMIT_S)[1]
    finally:
        for each in nodes:
            kill(each)
        ports.close()
