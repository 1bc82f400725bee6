"""Files of a start on a hostile or broken disk: who may write them, what lies in their place, what is in them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from container.aeron.media_driver import wait_for_driver
from container.clustered_service_container import ClusteredServiceContainer
from container.context import Context
from container.errors import (
    AeronError,
    AgentTermination,
    ClusterEvent,
    ConfigurationError,
    ContainerError,
    DriverTimeoutError,
    MarkFileError,
    RecordingError,
)
from container.files.catalog import DESCRIPTOR, read_catalog
from container.files.cluster_mark_file import ClusterMarkFile, ensure_link_file, link_file_name, mark_file_name
from container.files.cnc_file import CncFile, FileFormatError, mark_terminated, read_mark_file
from container.files.error_log import DistinctErrorLog, read_error_log
from container.files.recording_log import read_recording_log
from container.recordings.live import read_archive_mark, read_cluster_mark
from container.storage.file_storage import FileStorage
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryClient
from container.testing.memory.recording_service import RecordingService
from container.transport.clocks import SystemClock
from tests.file_rights import mode
from tests.limits import LIMIT_S
from tests.soak.disk import SmallDisk, unavailable_reason
from tests.test_cluster_mark_file import (
    DEFAULT_LENGTH,
    MIB,
    NOW_MS,
    file_size_limit,
    left_file,
    read_only_directory,
    saved_errors,
)

MS = 1_000_000
GROUP_MAY_WRITE_OR_OTHERS_MAY_DO_ANYTHING = 0o027
FILE_MAX_LENGTH = 2**31


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / mark_file_name(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(epoch_ms=NOW_MS)


@pytest.fixture
def context(tmp_path: Path, client: MemoryClient) -> Iterator[Context]:
    """A context with directories that are not there yet."""
    context = Context(
        RecordingService(),
        client=client,
        snapshot_store=MemorySnapshotStore(client),
        environ={},
        cluster_dir=tmp_path / "a" / "b" / "cluster",
        mark_file_dir=tmp_path / "c" / "marks",
    )
    yield context
    context.close()


# --- what a start creates


@pytest.mark.usefixtures("open_umask")
def test_other_users_can_neither_write_nor_read_what_a_start_creates(context: Context, tmp_path: Path) -> None:
    context.conclude()
    created = sorted(tmp_path.rglob("*"))
    assert [str(each.relative_to(tmp_path)) for each in created] == [
        "a",
        "a/b",
        "a/b/cluster",
        "a/b/cluster/cluster-mark-service-0.lnk",
        "c",
        "c/marks",
        "c/marks/cluster-mark-service-0.dat",
    ]
    assert {str(each): mode(each) for each in created if mode(each) & GROUP_MAY_WRITE_OR_OTHERS_MAY_DO_ANYTHING} == {}


@pytest.mark.usefixtures("open_umask")
def test_other_users_can_neither_write_nor_read_saved_errors(path: Path, clock: ManualClock) -> None:
    path.write_bytes(left_file(errors=("boom",)))
    ClusterMarkFile(path, clock=clock).close()
    (saved,) = saved_errors(path)
    assert mode(saved) & GROUP_MAY_WRITE_OR_OTHERS_MAY_DO_ANYTHING == 0


def test_a_strict_umask_is_kept_to(context: Context, tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        context.conclude()
    finally:
        os.umask(previous)
    assert {mode(each) & 0o077 for each in tmp_path.rglob("*")} == {0}


def test_directories_that_are_there_keep_their_mode(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)
    context.conclude()
    assert mode(tmp_path / "a") == 0o777


@pytest.mark.parametrize(("found", "is_warned"), [(0o666, True), (0o602, True), (0o660, False), (0o600, False)])
def test_a_mark_file_that_everybody_may_write_is_taken_with_a_warning(
    path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, found: int, is_warned: bool
) -> None:
    path.write_bytes(left_file())
    path.chmod(found)
    ClusterMarkFile(path, clock=clock).close()
    assert (
        f"{path} may be written by every user of this machine (mode {found:o}): chmod it" in caplog.text
    ) is is_warned
    assert mode(path) == found


# --- what lies in the place of a file


def test_a_symbolic_link_in_place_of_the_mark_file_is_not_followed(path: Path, clock: ManualClock) -> None:
    target = path.with_name("precious")
    target.write_bytes(bytes(DEFAULT_LENGTH))
    path.symlink_to(target)
    with pytest.raises(MarkFileError, match=f"mark file {path} cannot be opened with .* bytes: it is a symbolic link"):
        ClusterMarkFile(path, clock=clock)
    assert target.read_bytes() == bytes(DEFAULT_LENGTH)


def test_a_symbolic_link_to_nothing_creates_nothing(path: Path, clock: ManualClock) -> None:
    target = path.with_name("nothing")
    path.symlink_to(target)
    with pytest.raises(MarkFileError, match="it is a symbolic link"):
        ClusterMarkFile(path, clock=clock)
    assert not target.exists()


def test_a_pipe_in_place_of_the_mark_file_is_an_error_and_no_wait(path: Path, clock: ManualClock) -> None:
    os.mkfifo(path)
    with pytest.raises(MarkFileError, match=f"mark file {path} cannot be opened: it is not a regular file"):
        ClusterMarkFile(path, clock=clock)


def error_file(path: Path, milliseconds: int) -> Path:
    time = datetime.fromtimestamp(NOW_MS // 1000).astimezone()
    return path.with_name(f"CONTAINER-{time:%Y-%m-%d-%H-%M-%S}-{milliseconds:03}{time:%z}-error.log")


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_symbolic_link_in_place_of_the_error_file_is_not_followed(
    path: Path, clock: ManualClock, is_dangling: bool
) -> None:
    target = path.with_name("precious")
    if not is_dangling:
        target.write_bytes(b"precious")
    error_file(path, 0).symlink_to(target)
    path.write_bytes(left_file(errors=("boom",)))
    ClusterMarkFile(path, clock=clock).close()
    assert target.exists() is not is_dangling
    assert is_dangling or target.read_bytes() == b"precious"
    assert "boom" in error_file(path, 1).read_text()


def test_errors_that_another_service_saved_in_the_same_millisecond_stay(path: Path, clock: ManualClock) -> None:
    for service_id in range(3):
        other = path.with_name(mark_file_name(service_id))
        other.write_bytes(left_file(errors=(f"of service {service_id}",)))
        ClusterMarkFile(other, clock=clock).close()
    for service_id in range(3):
        assert f"of service {service_id}" in error_file(path, service_id).read_text()


def test_a_place_for_saved_errors_is_not_looked_for_without_end(path: Path, clock: ManualClock) -> None:
    for milliseconds in range(100):
        error_file(path, milliseconds).touch()
    content = left_file(errors=("boom",))
    path.write_bytes(content)
    with pytest.raises(MarkFileError, match=r"errors of the last run cannot be saved to .*-099.*: File exists"):
        ClusterMarkFile(path, clock=clock)
    assert path.read_bytes() == content


def test_a_symbolic_link_in_place_of_the_link_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    for name in (link_file_name(0), link_file_name(0) + ".tmp"):
        (tmp_path / name).symlink_to(target)
    ensure_link_file(FileStorage(), tmp_path, tmp_path / "marks", 0)
    assert (tmp_path / link_file_name(0)).read_text() == str(tmp_path / "marks")
    assert not (tmp_path / link_file_name(0)).is_symlink()
    assert target.read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == [link_file_name(0), "precious"]


def test_a_directory_in_place_of_the_link_file_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / link_file_name(0)).mkdir()
    with pytest.raises(MarkFileError, match="link file .* cannot be written: Is a directory"):
        ensure_link_file(FileStorage(), tmp_path, tmp_path / "marks", 0)
    assert [each.name for each in tmp_path.iterdir()] == [link_file_name(0)]


@pytest.mark.parametrize("old", [None, "/old/place"])
def test_a_full_disk_leaves_the_old_link_file_and_no_other(tmp_path: Path, old: str | None) -> None:
    link = tmp_path / link_file_name(0)
    if old is not None:
        link.write_text(old)
    with file_size_limit(0), pytest.raises(MarkFileError, match="link file .* cannot be written: File too large"):
        ensure_link_file(FileStorage(), tmp_path, tmp_path / "marks", 0)
    assert [each.read_text() for each in tmp_path.iterdir()] == ([] if old is None else [old])


# --- what this user may not do


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may do anything, so root becomes nobody."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@pytest.mark.parametrize("unreadable", [0o000, 0o200, 0o400, 0o440])
def test_a_mark_file_that_may_not_be_read_and_written_is_an_error(clock: ManualClock, unreadable: int) -> None:
    content = left_file()
    with read_only_directory(content) as path:
        os.seteuid(os.getuid())
        path.chmod(unreadable)
        with (
            as_nobody(),
            pytest.raises(MarkFileError, match=f"mark file {path} cannot be opened with .*: Permission denied"),
        ):
            ClusterMarkFile(path, clock=clock)
        path.chmod(0o600)
        assert path.read_bytes() == content


def test_a_cluster_directory_that_may_not_be_written_is_an_error_that_frees_the_mark_file(
    tmp_path: Path, client: MemoryClient, clock: ManualClock
) -> None:
    with read_only_directory(left_file()) as path:
        marks = Path(f"{path.parent}-marks")
        os.seteuid(os.getuid())
        marks.mkdir()
        marks.chmod(0o777)
        context = Context(
            RecordingService(),
            client=client,
            clock=clock,
            environ={},
            cluster_dir=path.parent,
            mark_file_dir=marks,
        )
        with as_nobody():
            with pytest.raises(MarkFileError, match="link file .* cannot be written: Permission denied"):
                context.conclude()
            context.abandon()
        (mark_file,) = marks.iterdir()
        assert struct.unpack_from("<iiq", mark_file.read_bytes(), 8)[::2] == (-1, -1), "version and timestamp"
        mark_file.unlink()
        marks.rmdir()


@pytest.mark.parametrize("setting", ["cluster_dir", "mark_file_dir"])
def test_a_directory_that_may_not_be_made_is_an_error(client: MemoryClient, tmp_path: Path, setting: str) -> None:
    with read_only_directory() as path:
        settings: dict[str, Any] = {"cluster_dir": path.parent, setting: path.parent / "new" / "cluster"}
        context = Context(RecordingService(), client=client, environ={}, **settings)
        with pytest.raises(ConfigurationError, match=f"{setting}='.*/new/cluster': cannot be created: Permission"):
            context.conclude()


# --- what is in a mark file


@pytest.mark.parametrize("length", [FILE_MAX_LENGTH + 1, 2**40])
def test_a_mark_file_of_an_impossible_length_does_not_fill_the_disk(
    path: Path, clock: ManualClock, length: int
) -> None:
    with path.open("wb") as file:
        file.write(left_file()[:8192])
        file.truncate(length)
    with pytest.raises(MarkFileError, match=f"damaged, delete it: it has {length} bytes, at most {FILE_MAX_LENGTH}"):
        ClusterMarkFile(path, clock=clock)
    assert path.stat().st_blocks * 512 < MIB


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_header_is_taken_or_refused_and_then_left_as_it_is(path: Path, clock: ManualClock, seed: int) -> None:
    rng = random.Random(seed)
    refusals = []
    for _ in range(60):
        content = bytearray(left_file(errors=("boom",)))
        for _flip in range(rng.randint(1, 4)):
            content[rng.randrange(84)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(content)
        try:
            taken = ClusterMarkFile(path, clock=clock)
        except MarkFileError as error:
            refusals.append(str(error))
            assert path.read_bytes() == content
        else:
            taken.signal_ready()
            taken.signal_terminated()
            taken.close()
            assert path.read_bytes()[8:20] == struct.pack("<iiI", 768, 2, 2**32 - 1)
    assert 0 < len(refusals) < 60
    assert all(str(path) in text for text in refusals)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_error_log_is_read_as_far_as_it_goes_and_cleared(path: Path, clock: ManualClock, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        content = bytearray(left_file(errors=("first", "second", "third")))
        for _flip in range(rng.randint(1, 8)):
            content[8192 + rng.randrange(120)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path.write_bytes(content)
        taken = ClusterMarkFile(path, clock=clock)
        assert read_error_log(taken.error_buffer) == []
        taken.close()


# --- a live owner


OWNER = """
import sys
from pathlib import Path
from container.clustered_service_container import ClusteredServiceContainer
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.transport.clocks import SystemClock
from container.testing.memory.recording_service import RecordingService
client = MemoryDriver(SystemClock()).connect("owner")
with ClusteredServiceContainer.launch(
    RecordingService(), client=client, snapshot_store=MemorySnapshotStore(client), cluster_dir=sys.argv[1], environ={}
):
    print("alive", flush=True)
    sys.stdin.readline()
"""


def test_a_container_in_another_process_keeps_its_mark_file_and_gives_it_back(
    client: MemoryClient, tmp_path: Path
) -> None:
    def start() -> Context:
        return Context(
            RecordingService(),
            client=client,
            snapshot_store=MemorySnapshotStore(client),
            clock=SystemClock(),
            environ={},
            cluster_dir=tmp_path,
        )

    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == "alive\n"
        content = (tmp_path / mark_file_name(0)).read_bytes()
        context = start()
        with pytest.raises(
            MarkFileError, match=f"active mark file detected: .*: its owner, pid {owner.pid}, was alive"
        ):
            context.conclude()
        context.abandon()
        assert (tmp_path / mark_file_name(0)).read_bytes()[24:] == content[24:], "untouched but for the owner's time"
        owner.communicate("\n", timeout=LIMIT_S)
        assert owner.returncode == 0
    context = start()
    context.conclude()
    context.close()


# --- an owner that lost its file


def taken_over(path: Path, clock: ManualClock) -> ClusterMarkFile:
    """The file of an owner that showed no life for as long as makes it count as dead, in the hands of another one."""
    clock.advance(11_000 * MS)
    return ClusterMarkFile(path, clock=clock)


@pytest.mark.parametrize("is_ready", [False, True])
def test_an_owner_whose_file_was_taken_over_writes_nothing_more_into_it(
    path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, is_ready: bool
) -> None:
    old = ClusterMarkFile(path, clock=clock)
    old.signal_ready()
    log = DistinctErrorLog(old)
    new = taken_over(path, clock)
    if is_ready:
        new.signal_ready()
    content = path.read_bytes()
    reason = f"mark file {path} is not this container's any more: pid {os.getpid()} has taken it over"
    for use in (lambda: old.update_activity_timestamp(7), old.signal_ready, lambda: old.write_errors(0, b"x")):
        with pytest.raises(MarkFileError, match=reason):
            use()
    assert log.record(ClusterEvent("lost")) == 0
    old.set_member_id(7)
    old.signal_failed_start()
    old.signal_terminated()
    old.close()
    assert path.read_bytes() == content
    assert reason in caplog.text
    new.update_activity_timestamp(8)
    new.close()


def test_a_file_that_is_being_claimed_is_not_the_old_owners_any_more(path: Path, clock: ManualClock) -> None:
    old = ClusterMarkFile(path, clock=clock)
    old.signal_ready()
    with path.open("r+b") as file:
        file.seek(16)
        file.write(struct.pack("<q", 2**63 - 1))
    with pytest.raises(MarkFileError, match="another process takes it over right now"):
        old.update_activity_timestamp(7)
    old.signal_terminated()
    assert struct.unpack_from("<q", path.read_bytes(), 16) == (2**63 - 1,)
    old.close()


def test_another_file_in_its_place_is_noticed_and_left_alone(path: Path, clock: ManualClock) -> None:
    old = ClusterMarkFile(path, clock=clock)
    path.unlink()
    old.update_activity_timestamp(6)  # nobody else has a file there
    new = ClusterMarkFile(path, clock=clock)
    content = path.read_bytes()
    with pytest.raises(MarkFileError, match="another file is in its place"):
        old.update_activity_timestamp(7)
    old.signal_terminated()
    old.close()
    assert path.read_bytes() == content
    new.close()


@pytest.mark.parametrize("length", [0, 20, 8192, DEFAULT_LENGTH - 1])
def test_a_mark_file_that_is_cut_short_is_an_error_and_no_crash(path: Path, clock: ManualClock, length: int) -> None:
    mark_file = ClusterMarkFile(path, clock=clock)
    log = DistinctErrorLog(mark_file)
    os.truncate(path, length)
    with pytest.raises(MarkFileError, match=f"was cut short by another process: it has {length} bytes of"):
        mark_file.update_activity_timestamp(7)
    assert log.record(ClusterEvent("lost")) == 0
    mark_file.set_member_id(1)
    mark_file.signal_terminated()
    mark_file.close()
    assert path.stat().st_size == length


def test_a_container_whose_mark_file_was_taken_over_ends_with_a_clear_error(
    client: MemoryClient, tmp_path: Path
) -> None:
    ended: list[str] = []
    container = ClusteredServiceContainer.launch(
        RecordingService(),
        client=client,
        snapshot_store=MemorySnapshotStore(client),
        clock=client.clock,
        environ={},
        cluster_dir=tmp_path,
        use_agent_invoker=True,
        termination_hook=lambda: ended.append("hook"),
    )
    path = tmp_path / mark_file_name(0)
    with path.open("r+b") as file:
        file.seek(32)
        file.write(struct.pack("<q", 4711))  # another owner's process id
    content = path.read_bytes()
    container.invoke()
    assert not container.is_running
    assert type(container.failure) is AgentTermination
    assert "is not this container's any more: pid 4711 has taken it over" in str(container.failure)
    assert path.read_bytes() == content


STOPPED_OWNER = """
import sys
from container.files.cluster_mark_file import ClusterMarkFile
from container.errors import MarkFileError
mark_file = ClusterMarkFile(sys.argv[1])
mark_file.signal_ready()
print("owner", flush=True)
sys.stdin.readline()
try:
    mark_file.update_activity_timestamp(7)
except MarkFileError as error:
    print(error, flush=True)
mark_file.signal_terminated()
mark_file.close()
"""


def test_a_process_that_was_stopped_leaves_the_file_to_its_new_owner(path: Path) -> None:
    command = [sys.executable, "-c", STOPPED_OWNER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owner\n"
        owner.send_signal(signal.SIGSTOP)
        new = ClusterMarkFile(path, clock=ManualClock(epoch_ms=time.time_ns() // MS + 11_000))
        new.signal_ready()
        content = path.read_bytes()
        owner.send_signal(signal.SIGCONT)
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert f"not this container's any more: pid {os.getpid()} has taken it over" in owner.stdout.readline()
        assert owner.wait(LIMIT_S) == 0
    assert path.read_bytes() == content
    new.close()


# --- a disk without space


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of 64 MiB."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    try:
        disk = SmallDisk(tmp_path / "disk", 64)
    except OSError as error:
        pytest.skip(f"no small disk can be mounted here: {error}")
    yield disk
    disk.close()


def test_a_mark_file_lives_on_a_disk_that_is_full(small_disk: SmallDisk, clock: ManualClock) -> None:
    path = small_disk.path / mark_file_name(0)
    mark_file = ClusterMarkFile(path, clock=clock)
    log = DistinctErrorLog(mark_file)
    small_disk.fill()
    recorded = 0
    for number in range(5_000):
        recorded += log.record(type(f"Error{number}", (Exception,), {})("x" * 1_000)) == 1
    assert recorded > 800
    assert len(read_error_log(mark_file.error_buffer)) == recorded
    mark_file.update_activity_timestamp(NOW_MS + 1)
    mark_file.signal_terminated()
    mark_file.close()


# In a process of its own, which a log buffer without space behind it would end.
WRITER = """
import sys
from pathlib import Path
from container.aeron import AeronClient, MediaDriver
from container.errors import RegistrationError
from container.testing.memory.transport_probe import add_publication, add_subscription, offer
disk = Path(sys.argv[1])
with MediaDriver.launch_embedded(disk / "driver") as driver, AeronClient(driver.aeron_dir, use_invoker=False) as client:
    subscription = add_subscription(client, "aeron:ipc", 1)
    publication = add_publication(client, "aeron:ipc", 1)
    try:
        with (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError as error:
        print(error.strerror)
    try:
        add_publication(client, "aeron:ipc", 2)
    except RegistrationError:
        print("refused")
    while offer(publication, bytes(10_000)) > 0:
        pass
    print("written")
    (disk / "ballast").unlink()
    add_publication(client, "aeron:ipc", 2)
    print("added")
"""


def test_a_driver_without_space_for_a_log_buffer_refuses_it_and_lives(small_disk: SmallDisk) -> None:
    command = [sys.executable, "-c", WRITER, str(small_disk.path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert result.stdout.splitlines() == ["No space left on device", "refused", "written", "added"], result.stderr
    assert result.returncode == 0


CRASHING = """
import os, sys
from container.common.main_program import report_crashes
report_crashes()
sys.stderr.close()
os.kill(os.getpid(), {signal})
"""


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV])
def test_a_crash_says_where_it_came_from(number: signal.Signals) -> None:
    code = CRASHING.format(signal=int(number))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert result.returncode == -number
    assert "Fatal Python error" in result.stderr
    assert 'File "<string>", line 6' in result.stderr


@pytest.mark.parametrize(
    "setup", ["sys.stderr = None", "sys.stderr.close()", "faulthandler.enable(open(sys.argv[1], 'w'))"]
)
def test_crashes_are_reported_where_the_user_wants_them_or_nowhere(tmp_path: Path, setup: str) -> None:
    code = f"import faulthandler, os, sys\n{setup}\nfrom container.common.main_program import report_crashes\n"
    code += f"report_crashes()\nos.kill(os.getpid(), {int(signal.SIGBUS)})\n"
    path = tmp_path / "crash"
    path.touch()
    command = [sys.executable, "-c", code, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (result.returncode, result.stderr) == (-signal.SIGBUS, "")
    assert ("Fatal Python error" in path.read_text()) is ("faulthandler" in setup)


# --- files that others write


def read_cnc(path: Path) -> object:
    return CncFile(path)


def await_driver(path: Path) -> None:
    wait_for_driver(str(path.parent), 1)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "catalog": ("archive.catalog", lambda path: list(read_catalog(path.parent))),
    "recording log": ("recording.log", lambda path: list(read_recording_log(path.parent))),
    "mark file": (mark_file_name(0), read_mark_file),
    "mark file's end": (mark_file_name(0), mark_terminated),
    "own mark file": (mark_file_name(0), ClusterMarkFile),
    "cnc file": ("cnc.dat", read_cnc),
    "driver": ("cnc.dat", await_driver),
}


def place_pipe(path: Path) -> None:
    os.mkfifo(path)


def place_device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))


def place_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", [place_pipe, place_device, place_link_to_device])
def test_what_is_no_regular_file_is_an_error_and_neither_blocks_nor_is_read(
    tmp_path: Path, reader: str, place: Callable[[Path], None]
) -> None:
    name, read = READERS[reader]
    try:
        place(tmp_path / name)
    except PermissionError as error:
        pytest.skip(f"no device can be made here: {error}")
    with pytest.raises(
        (ContainerError, OSError),
        match=f"{tmp_path}.*(not a regular file|symbolic link)|not a regular file.*{tmp_path}",
    ):
        read(tmp_path / name)


@pytest.mark.parametrize("reader", ["catalog", "recording log", "mark file", "own mark file"])
def test_a_sparse_file_of_4_tib_is_an_error_and_not_read(tmp_path: Path, reader: str) -> None:
    name, read = READERS[reader]
    with (tmp_path / name).open("wb") as file:
        file.truncate(4 * 1024**4)
    with pytest.raises((ContainerError, OSError), match=f"it has {4 * 1024**4} bytes, at most .* are possible"):
        read(tmp_path / name)


@pytest.mark.parametrize("reader", ["catalog", "mark file", "driver's file"])
def test_a_sparse_file_that_may_be_so_long_is_read_in_pieces(tmp_path: Path, reader: str) -> None:
    length = 512 * MIB
    if reader == "catalog":
        name, content = "archive.catalog", struct.pack("<iiqi12x", 0x030100, length, 1, 64) + bytes(4096)
    elif reader == "mark file":
        name, content = mark_file_name(0), left_file()[:8192]
        content = content[:72] + struct.pack("<ii", 8192, length) + content[80:]
    else:
        lengths = [1024 + 768, 1024, 1024, 1024, length]
        name, content = "cnc.dat", struct.pack("<6iqqqi", 2 << 8, *lengths, 10**10, 1, 1, 4096)
    with (tmp_path / name).open("wb") as file:
        file.write(content)
        file.truncate(length + 64 * 1024)
    tracemalloc.start()
    try:
        if reader == "catalog":
            assert list(read_catalog(tmp_path)) == []
        elif reader == "mark file":
            assert read_mark_file(tmp_path / name).errors == ()
        else:
            with closing(CncFile(tmp_path / name)) as file:
                assert file.errors() == []
        assert tracemalloc.get_traced_memory()[1] < 150 * MIB
    finally:
        tracemalloc.stop()


def test_entries_of_a_catalog_longer_than_a_piece_are_read(tmp_path: Path) -> None:
    channel = "aeron:udp?alias=" + "x" * 200_000
    texts = b"".join(struct.pack("<I", len(each)) + each.encode() for each in (channel, channel, "here"))
    content = struct.pack("<iiqi12x", 0x030100, 2**31 - 1, 40, 64)
    for recording_id in range(40):
        length = DESCRIPTOR.size + len(texts) if recording_id % 13 == 0 else DESCRIPTOR.size + 12
        fixed = DESCRIPTOR.pack(0, 0, recording_id, 0, -1, 0, -1, 0, 1 << 20, 1 << 16, 1408, 1, 1)
        entry = struct.pack("<iiI20x", length, 1, 0) + fixed + (texts if recording_id % 13 == 0 else bytes(12))
        content += entry + bytes(-len(entry) % 64)
    (tmp_path / "archive.catalog").write_bytes(content)
    found = list(read_catalog(tmp_path))
    assert [each.recording_id for each in found] == list(range(40))
    assert [each.recording_id for each in found if each.original_channel == channel] == [0, 13, 26, 39]
    (tmp_path / "archive.catalog").write_bytes(content[:32] + struct.pack("<i", 100 * MIB) + content[36:])
    os.truncate(tmp_path / "archive.catalog", 200 * MIB)
    with pytest.raises(RecordingError, match=f"an entry of {100 * MIB + 32} bytes is impossible"):
        list(read_catalog(tmp_path))


def test_a_live_mark_file_is_looked_for_through_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cluster-mark.lnk")
    assert read_cluster_mark(tmp_path) is None
    os.mkfifo(tmp_path / "archive-mark.dat")
    assert read_archive_mark(tmp_path) is None


@pytest.mark.parametrize("index", range(1, 6))
@pytest.mark.parametrize("length", [-1, -(2**31), -640])
def test_a_cnc_file_with_negative_lengths_is_an_error(tmp_path: Path, index: int, length: int) -> None:
    lengths = [1024 + 768, 1024, 1024, 1024, 1024]
    lengths[index - 1] = length
    path = tmp_path / "cnc.dat"
    path.write_bytes(struct.pack("<6iqqqi", 2 << 8, *lengths, 10**10, 1, 1, 4096).ljust(64 * 1024, b"\0"))
    with pytest.raises(FileFormatError, match=f"is damaged: its metadata has the buffer lengths .*{length}"):
        CncFile(path)
    with pytest.raises(
        AeronError, match=f"is damaged: its metadata has the buffer lengths .*{length}.*; end the media"
    ):
        wait_for_driver(str(tmp_path), 1)


def test_a_cnc_file_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cnc.dat"
    lengths = [1024 + 768, 1024, 1024, 1024, 1024]
    path.write_bytes(struct.pack("<6iqqqi", 2 << 8, *lengths, 10**10, 1, 1, 4096).ljust(64 * 1024, b"\0"))
    file = CncFile(path)
    os.truncate(path, 2_000)
    with pytest.raises(FileFormatError, match="ends at byte 2000, before its metadata says"):
        file.errors()
    file.close()
    with pytest.raises(DriverTimeoutError, match="is not complete"):
        wait_for_driver(str(tmp_path), 1)
