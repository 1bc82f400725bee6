"""The archive's mark file on real files and on the simulated disk: made, taken over, refused, and after each crash."""

from __future__ import annotations

import errno
import io
import os
import re
import struct
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from container.archive.archive_mark_file import LINK_FILE_NAME, MARK_FILE_NAME, ArchiveMarkFile, ensure_link_file
from container.errors import ClusterEvent, ConfigurationError, MarkFileError
from container.files.cluster_mark_file import ClusterMarkFile, mark_file_name
from container.files.cnc_file import read_mark_file
from container.files.error_log import DistinctErrorLog, read_error_log
from container.storage.file_storage import FileStorage
from container.storage.seam import CREATE, EXCLUSIVE, READ_ONLY, Storage
from container.testing.manual_time import ManualClock
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.virtual_time import Draws
from tests.test_cluster_mark_file import left_file as cluster_file

NOW_MS = 1_700_000_000_000
MS = 1_000_000
DEAD_MS = 11_000
MIB = 1024 * 1024
LENGTH = 1_056_768
ACTIVATING = 2**63 - 1
READY = 0x030100
PID = 4711
DIRECTORY = "/archive"

SBE_HEADER = bytes.fromhex("8000c80064000200")
# version, padding, activity and start timestamp, pid, control, local control and events stream id, header length, error
# buffer length, archive id, reserved
BLOCK = struct.Struct("<iiqqqiiiii4xq64s")
VERSION, TIMESTAMP, START, PROCESS_ID, ARCHIVE_ID, RESERVED = 0, 2, 3, 4, 10, 11

WRITTEN: dict[str, Any] = {
    "archive_id": 77,
    "control_stream_id": 10,
    "local_control_stream_id": 11,
    "events_stream_id": 30,
    "control_channel": "aeron:udp?endpoint=localhost:8010",
    "local_control_channel": "aeron:ipc?term-length=64k",
    "aeron_dir": "/dev/shm/aeron",
}
JAVA = (NOW_MS - 100_000, 12)
"""Start timestamp and process id of the owner of :func:`left_file`."""


class World(NamedTuple):
    """Where mark files are, and their time."""

    storage: Storage
    directory: str
    clock: ManualClock

    @property
    def path(self) -> str:
        return f"{self.directory}/{MARK_FILE_NAME}"

    def take(self, **changes: Any) -> ArchiveMarkFile:
        arguments: dict[str, Any] = {"storage": self.storage, "clock": self.clock, "process_id": PID, **WRITTEN}
        return ArchiveMarkFile(self.path, **arguments | changes)

    def put(self, content: bytes, name: str = MARK_FILE_NAME) -> None:
        file = self.storage.open_file(f"{self.directory}/{name}", CREATE | EXCLUSIVE)
        file.write(content, 0)
        file.force(with_metadata=True)
        file.close()
        self.storage.force_directory(self.directory)

    def content(self, name: str = MARK_FILE_NAME) -> bytes:
        file = self.storage.open_file(f"{self.directory}/{name}", READ_ONLY)
        try:
            return file.read(file.length(), 0)
        finally:
            file.close()

    def names(self) -> list[str]:
        return self.storage.list_directory(self.directory)

    def saved_errors(self) -> list[str]:
        return [name for name in self.names() if name.endswith("-error.log")]

    def header(self) -> tuple[Any, ...]:
        return BLOCK.unpack_from(self.content(), 8)

    def wait(self, milliseconds: int = DEAD_MS) -> None:
        self.clock.advance(milliseconds * MS)


def on_disk(disk: SimulatedDisk, now_ms: int = NOW_MS) -> World:
    """A new process on a simulated disk."""
    return World(disk.process(), DIRECTORY, ManualClock(epoch_ms=now_ms))


def new_disk(**arguments: Any) -> SimulatedDisk:
    disk = SimulatedDisk(**arguments)
    storage = disk.process()
    storage.make_directory(DIRECTORY)
    storage.force_directory("/")
    return disk


@pytest.fixture(params=["files", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "files":
        return World(FileStorage(), str(tmp_path), ManualClock(epoch_ms=NOW_MS))
    return on_disk(new_disk())


@pytest.fixture
def files(tmp_path: Path) -> World:
    return World(FileStorage(), str(tmp_path), ManualClock(epoch_ms=NOW_MS))


def texts(*values: str) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value.encode() for value in values)


def left_file(
    *,
    version: int = READY,
    activity_timestamp: int = -1,
    owner: tuple[int, int] = JAVA,
    header_length: int = 8192,
    error_buffer_length: int = MIB,
    errors: tuple[str, ...] = (),
    is_legacy: bool = False,
) -> bytes:
    """The file that Java's archive left."""
    block = BLOCK.pack(
        version, 0, activity_timestamp, *owner, 10, 10, 30, header_length, error_buffer_length, 5, bytes(64)
    )
    header = (b"" if is_legacy else SBE_HEADER) + block + texts("", "aeron:ipc", "", "/old/aeron")
    log = bytearray(MIB)
    offset = 0
    for number, text in enumerate(errors):
        record = struct.pack("<iiqq", 24 + len(text), number + 1, NOW_MS - 50_000, NOW_MS - 90_000) + text.encode()
        log[offset : offset + len(record)] = record
        offset += -(-len(record) // 8) * 8
    return header.ljust(8192, b"\0") + bytes(log)


def refused(world: World, match: str) -> None:
    """A start is refused with this text, which names the file, and changes nothing."""
    content, names = world.content(), world.names()
    with pytest.raises(MarkFileError, match=match) as raised:
        world.take()
    assert world.path in str(raised.value)
    assert world.content() == content
    assert world.names() == names


# --- a new file


def test_43_a_ready_file_has_the_bytes_of_the_reference(world: World) -> None:
    mark_file = world.take()
    world.wait(3)
    mark_file.signal_ready()
    block = BLOCK.pack(READY, 0, NOW_MS + 3, NOW_MS, PID, 10, 11, 30, 8192, MIB, 77, bytes(64))
    header = (
        SBE_HEADER
        + block
        + texts("aeron:udp?endpoint=localhost:8010", "aeron:ipc?term-length=64k", "", "/dev/shm/aeron")
    )
    assert world.content() == header.ljust(LENGTH, b"\0")


def test_43_channels_that_are_not_there_are_empty_texts(world: World) -> None:
    world.take(control_channel=None, events_channel="aeron:ipc", aeron_dir="/dev/shm/äron", archive_id=-1)
    content = world.content()
    expected = texts("", "aeron:ipc?term-length=64k", "aeron:ipc", "/dev/shm/?ron")
    assert content[136 : 136 + len(expected)] == expected
    assert not any(content[136 + len(expected) :])
    assert world.header()[ARCHIVE_ID] == -1


@pytest.mark.parametrize(("page_size", "length"), [(4096, LENGTH), (16 * 1024, 1_064_960), (2 * MIB, 2 * MIB)])
def test_43_the_length_is_a_multiple_of_the_page_size(world: World, page_size: int, length: int) -> None:
    world.take(page_size=page_size)
    assert world.storage.length_of(world.path) == length


@pytest.mark.parametrize("wrong", [{"error_buffer_length": MIB - 1}, {"page_size": 5000}])
def test_lengths_out_of_range_are_refused(world: World, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=str(*wrong.values())):
        world.take(**wrong)
    assert world.names() == []


@pytest.mark.parametrize(("length", "fits"), [(7_982, True), (7_983, False)])
def test_the_texts_must_fit_before_a_file_is_touched(world: World, length: int, fits: bool) -> None:
    arguments = {"control_channel": None, "local_control_channel": "x" * length, "aeron_dir": "/" * 58}
    if fits:
        world.take(**arguments)
        assert world.content()[8188:8193] == b"////\0"
    else:
        with pytest.raises(MarkFileError, match="headerLength=8193 > headerLengthCapacity=8192: shorten"):
            world.take(**arguments)
        assert world.names() == []


def test_numbers_that_the_file_has_no_place_for_are_refused(world: World) -> None:
    for wrong in ({"archive_id": 2**63}, {"control_stream_id": 2**31}, {"process_id": 2**63}):
        with pytest.raises(OverflowError):
            world.take(**wrong)
    assert world.names() == []


def test_the_version_comes_last(world: World) -> None:
    mark_file = world.take()
    assert world.header()[VERSION] == mark_file.version == 0
    mark_file.signal_ready()
    assert world.header()[VERSION] == mark_file.version == READY


def test_t20_a_new_file_shows_a_live_owner_from_its_first_bytes_on() -> None:
    seen = []
    disk = new_disk()

    def look(_kind: str, _length: int) -> None:
        content = disk.contents().get(f"{DIRECTORY}/{MARK_FILE_NAME}")
        if content:
            seen.append(struct.unpack_from("<q", content, 16)[0])

    disk.on_latency = look
    world = on_disk(disk)
    world.take()
    assert len(seen) >= 5
    assert set(seen) == {NOW_MS}


def test_46_it_is_refreshed_once_per_second_also_before_it_is_ready(world: World) -> None:
    world.put(left_file())
    mark_file = world.take()
    assert world.header()[TIMESTAMP] == NOW_MS, "no claim that would stay if the process were killed now"
    assert not mark_file.refresh(NOW_MS + 999)
    assert world.header()[TIMESTAMP] == NOW_MS
    assert mark_file.refresh(NOW_MS + 1_000)
    assert mark_file.activity_timestamp == world.header()[TIMESTAMP] == NOW_MS + 1_000
    assert not mark_file.refresh(NOW_MS + 1_999)
    mark_file.signal_ready()
    assert mark_file.refresh(NOW_MS + 3_500)
    assert mark_file.refresh(NOW_MS + 100), "a clock that was set back"
    assert world.header()[TIMESTAMP] == NOW_MS + 100


def test_a_full_disk_leaves_no_new_file() -> None:
    disk = new_disk(capacity=64 * 1024)
    world = on_disk(disk)
    with pytest.raises(MarkFileError, match=f"cannot be created with {LENGTH} bytes: No space left on device"):
        world.take()
    assert world.names() == []


@pytest.mark.parametrize("kind", ["force", "force_directory"])
def test_a_file_that_cannot_be_forced_is_an_error_and_free(kind: str) -> None:
    disk = new_disk()
    world = on_disk(disk)
    disk.fail(kind, errno.EIO)
    with pytest.raises(MarkFileError, match=f"{MARK_FILE_NAME} cannot be written to its disk: Input/output error"):
        world.take()
    assert world.header()[TIMESTAMP] == -1
    on_disk(disk).take()


# --- whether a file may be taken


@pytest.mark.parametrize("age_ms", [0, 9_999, -60_000])
def test_44_a_live_file_is_refused(world: World, age_ms: int) -> None:
    world.put(left_file(activity_timestamp=NOW_MS - age_ms, errors=("boom",)))
    refused(world, rf"active mark file detected: {world.path}: its owner, pid 12, was alive at .* another archive is")


def test_44_it_is_accepted_10_s_later(world: World) -> None:
    world.put(left_file(activity_timestamp=NOW_MS))
    world.wait(9_999)
    refused(world, "active mark file detected")
    world.wait(1)
    world.take().signal_ready()
    assert world.header()[TIMESTAMP] == NOW_MS + 10_000


def test_44_a_clean_end_is_seen_at_once(world: World) -> None:
    mark_file = world.take()
    mark_file.signal_ready()
    refused(world, "active mark file detected")
    mark_file.signal_terminated()
    mark_file.close()
    assert world.header()[:3] == (READY, 0, -1)
    assert world.take().version == READY


def test_a_claim_that_is_in_progress_is_refused_with_what_to_do(world: World) -> None:
    world.put(left_file(activity_timestamp=ACTIVATING))
    refused(world, "active mark file detected: .*a start is in progress, or was killed .*delete the file if no such")


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (0x020001, "run Aeron's ArchiveTool .* migrate"),
        (0x000200, "run Aeron's ArchiveTool .* migrate"),
        (0x040000, "start the software that wrote it"),
        (0x01030100, "start the software that wrote it"),
        (-1, "start the software that wrote it"),
    ],
)
def test_42_another_major_version_is_refused(world: World, version: int, advice: str) -> None:
    world.put(left_file(version=version))
    refused(world, f"major version {version >> 16} does not match software: 3: {world.path}; {advice}")


@pytest.mark.parametrize("version", [0x030000, 0x03FFFF])
def test_a_taken_file_keeps_its_version_until_it_is_ready(world: World, version: int) -> None:
    world.put(left_file(version=version))
    mark_file = world.take()
    assert mark_file.version == version
    mark_file.signal_ready()
    assert mark_file.version == READY


@pytest.mark.parametrize("version", [0x030100, 0x020001])
def test_the_layout_without_a_header_is_refused(world: World, version: int) -> None:
    world.put(left_file(version=version, is_legacy=True, errors=("boom",)))
    refused(world, f"older layout, without a message header: run Aeron's ArchiveTool {world.directory} migrate, and th")


@pytest.mark.parametrize(
    "begin",
    [
        struct.pack("<HHHH", 128, 200, 110, 2),
        b"\xff" * 8,
        b"#!/bin/sh\n",
        struct.pack("<ii", 0x030100, 1),
        b"\0" * 23 + b"\1",
    ],
    ids=["cluster's", "ones", "text", "no padding", "nearly zeros"],
)
def test_what_is_no_mark_file_of_an_archive_is_refused(world: World, begin: bytes) -> None:
    world.put(begin + left_file()[len(begin) :] if any(begin[:8]) else begin + bytes(LENGTH))
    refused(
        world, f"damaged, or not an archive's: it begins with {begin[:8].hex()}, .*; delete it, or give the archive"
    )


@pytest.mark.parametrize("begin", [b"", SBE_HEADER], ids=["zeros", "header"])
def test_t20_a_first_start_of_javas_is_refused_although_it_shows_no_life(world: World, begin: bytes) -> None:
    world.put(begin.ljust(24, b"\0") + left_file()[24:])
    refused(world, "has neither version nor time: .* or a start was killed: delete the file if no archive is starting")


@pytest.mark.parametrize("length", [0, 1, 135])
def test_a_file_that_is_too_short_is_refused(world: World, length: int) -> None:
    world.put(left_file()[:length])
    refused(world, f"mark file too short: .* has {length} bytes; .*delete it")


@pytest.mark.parametrize(
    ("header_length", "error_buffer_length"), [(8192, -1), (8192, 2**31 - 1), (-8192, 100), (0, 100)]
)
def test_lengths_that_reach_out_of_the_file_are_refused(
    world: World, header_length: int, error_buffer_length: int
) -> None:
    world.put(left_file(header_length=header_length, error_buffer_length=error_buffer_length).ljust(LENGTH, b"\0"))
    refused(world, f"damaged, delete it: headerLength={header_length} errorBufferLength={error_buffer_length}")


def test_a_full_disk_leaves_the_file_of_the_last_owner_as_it_was() -> None:
    disk = new_disk(capacity=64 * 1024)
    world = on_disk(disk)
    world.put(left_file()[:9_000])
    with pytest.raises(MarkFileError, match=f"cannot be opened with {LENGTH} bytes: No space left on device"):
        world.take()
    assert world.content() == left_file()[:9_000]


def test_what_lies_in_its_place_is_not_followed_or_waited_for(files: World, tmp_path: Path) -> None:
    path, target = Path(files.path), tmp_path / "precious"
    target.write_bytes(bytes(LENGTH))
    path.symlink_to(target)
    with pytest.raises(MarkFileError, match=f"{path} cannot be opened with {LENGTH} bytes: it is a symbolic link"):
        files.take()
    assert target.read_bytes() == bytes(LENGTH)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MarkFileError, match=f"{path} cannot be opened: it is no regular file"):
        files.take()


def test_others_may_not_write_what_a_start_makes(files: World, tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        files.put(left_file(errors=("boom",)))
        files.take()
        ensure_link_file(files.storage, tmp_path, tmp_path / "marks")
    finally:
        os.umask(previous)
    assert len(files.names()) == 3
    assert [name for name in files.names() if (tmp_path / name).stat().st_mode & 0o027] == []


def test_a_file_that_everybody_may_write_is_taken_with_a_warning(
    files: World, caplog: pytest.LogCaptureFixture
) -> None:
    files.put(left_file())
    Path(files.path).chmod(0o666)
    files.take()
    assert f"{files.path} may be written by every user of this machine (mode 666): chmod it to 640" in caplog.text


# --- errors of the last run


def test_45_old_errors_are_saved_and_cleared(world: World) -> None:
    world.put(left_file(errors=("java.lang.Error: first", "second\n  at line 2")))
    notices = io.StringIO()
    mark_file = world.take(fallback=notices)
    time = datetime.fromtimestamp(NOW_MS // 1000).astimezone()
    (name,) = world.saved_errors()
    assert name == f"archive-{time:%Y-%m-%d-%H-%M-%S}-000{time:%z}-error.log"
    text = world.content(name).decode()
    assert re.search(r"2 observations from .*\nsecond\n  at line 2\n", text)
    assert text.endswith("\n2 distinct errors observed.\n")
    assert notices.getvalue() == f"WARNING: existing errors saved to: {world.directory}/{name}\n"
    assert world.content()[8192:] == bytes(MIB)
    assert read_error_log(mark_file.error_buffer) == []


def test_nothing_is_saved_when_there_were_no_errors(world: World) -> None:
    world.put(left_file())
    world.take()
    assert world.names() == [MARK_FILE_NAME]


def test_an_error_log_writes_into_it(world: World) -> None:
    mark_file = world.take()
    log = DistinctErrorLog(mark_file)
    assert log.record(ClusterEvent("seen from outside")) == 1
    (record,) = read_error_log(world.content()[8192:])
    assert record.text == "container.errors.ClusterEvent: WARN - seen from outside"


# --- a failed start, an owner that lost its file


@pytest.mark.parametrize("is_new", [True, False])
def test_45_a_failed_start_frees_the_file_at_once_for_java_as_well(world: World, is_new: bool) -> None:
    if not is_new:
        world.put(left_file())
    mark_file = world.take()
    mark_file.signal_failed_start()
    mark_file.close()
    assert world.header()[:3] == (READY, 0, -1)
    assert world.take().former_owner == (None if is_new else JAVA)


def test_an_owner_that_lost_its_file_writes_nothing_more(world: World) -> None:
    old = world.take()
    old.signal_ready()
    world.wait()
    new = world.take(process_id=PID + 1)
    assert new.former_owner == old.owner == (NOW_MS, PID)
    assert new.owner == (NOW_MS + DEAD_MS, PID + 1)
    content = world.content()
    reason = f"is not this archive's any more: pid {PID + 1} has taken it over"
    for use in (lambda: old.refresh(NOW_MS + 20_000), old.signal_ready, lambda: old.write_errors(0, b"x")):
        with pytest.raises(MarkFileError, match=reason):
            use()
    old.signal_failed_start()
    old.signal_terminated()
    old.close()
    assert world.content() == content


def test_an_owner_whose_file_is_claimed_or_replaced_writes_nothing_more(world: World) -> None:
    mark_file = world.take()
    file = world.storage.open_file(world.path, 0)
    file.write(struct.pack("<q", ACTIVATING), 16)
    with pytest.raises(MarkFileError, match="another process takes it over right now"):
        mark_file.refresh(NOW_MS + 1_000)
    file.write(struct.pack("<q", NOW_MS), 16)
    world.storage.unlink(world.path)
    mark_file.refresh(NOW_MS + 2_000)
    world.put(b"another")
    with pytest.raises(MarkFileError, match="another file is in its place"):
        mark_file.refresh(NOW_MS + 3_000)


def test_a_closed_file_is_left_alone(world: World) -> None:
    mark_file = world.take()
    mark_file.close()
    mark_file.close()
    content = world.content()
    mark_file.refresh(NOW_MS + 5_000)
    mark_file.signal_failed_start()
    mark_file.signal_terminated()
    assert world.content() == content
    assert mark_file.is_closed
    assert (mark_file.version, mark_file.activity_timestamp) == (-1, -1)
    with pytest.raises(MarkFileError, match="is closed"):
        mark_file.signal_ready()
    assert repr(mark_file) == f"<ArchiveMarkFile {world.path} closed>"


# --- who owned it before


def test_a_new_file_has_no_former_owner(world: World) -> None:
    assert world.take().former_owner is None


@pytest.mark.parametrize("version", [READY, 0])
@pytest.mark.parametrize(
    ("owner", "expected"), [(JAVA, JAVA), ((0, 0), None), ((0, 5), None), ((5, 0), None), ((-7, 5), None)]
)
def test_the_former_owner_is_the_one_that_the_file_names(
    world: World, version: int, owner: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    world.put(left_file(version=version, owner=owner))
    assert world.take().former_owner == expected


@pytest.mark.parametrize("is_new", [True, False])
def test_starts_that_never_were_ready_hide_nothing(world: World, is_new: bool) -> None:
    expected = None if is_new else JAVA
    if not is_new:
        world.put(left_file())
    for number in range(4):
        mark_file = world.take(process_id=PID + number)
        assert mark_file.former_owner == expected
        if number % 2:
            mark_file.signal_failed_start()
        mark_file.refresh(world.clock.now_ms)
        world.wait()
    ready = world.take()
    assert ready.former_owner == expected
    ready.signal_ready()
    assert world.header()[RESERVED] == bytes(64)
    world.wait()
    assert world.take().former_owner == ready.owner


def test_java_that_ran_after_a_start_that_never_was_ready_is_the_former_owner(world: World) -> None:
    world.take()
    file = world.storage.open_file(world.path, 0)
    java = (NOW_MS + 20_000, 99)
    file.write(struct.pack("<qq", *java), 24)
    world.wait(60_000)
    assert world.take().former_owner == java


# --- the link file


def test_43_a_link_names_another_directory(world: World) -> None:
    ensure_link_file(world.storage, world.directory, "/marks/of/old")
    ensure_link_file(world.storage, world.directory, "/marks")
    assert world.names() == [LINK_FILE_NAME]
    assert world.content(LINK_FILE_NAME) == b"/marks"
    ensure_link_file(world.storage, world.directory, world.directory)
    assert world.names() == []


@pytest.mark.parametrize("old", [None, b"/old"])
def test_a_power_cut_leaves_the_old_link_or_the_new_one(old: bytes | None) -> None:
    disk = new_disk()
    world = on_disk(disk)
    if old is not None:
        world.put(old, LINK_FILE_NAME)
    left: list[SimulatedDisk] = []
    disk.on_latency = lambda _kind, _length: left.extend(disk.crash_states())
    ensure_link_file(world.storage, DIRECTORY, "/marks")
    found = {each.contents().get(f"{DIRECTORY}/{LINK_FILE_NAME}") for each in left}
    assert found == {old, b"/marks"}
    for each in left:
        ensure_link_file(each.process(), DIRECTORY, "/marks")
    disk.on_latency = None
    assert [each.contents()[f"{DIRECTORY}/{LINK_FILE_NAME}"] for each in disk.crash_states()] == [b"/marks"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_links_and_saved_errors_do_with_a_file_system_that_forces_no_directories(code: int) -> None:
    disk = new_disk()
    on_disk(disk).put(cluster_file(errors=("boom",)), mark_file_name(0))

    def link() -> None:
        ensure_link_file(disk.process(), DIRECTORY, "/marks")

    def save() -> None:
        world = on_disk(disk)
        ClusterMarkFile(f"{DIRECTORY}/{mark_file_name(0)}", clock=world.clock, storage=world.storage)

    for use, text in (
        (link, "cannot be written: Input/output error"),
        (save, "cannot be saved to .*: Input/output error"),
    ):
        disk.fail("force_directory", code)
        if code == errno.EIO:
            with pytest.raises(MarkFileError, match=text):
                use()
        else:
            use()
    assert len(on_disk(disk).names()) == (1 if code == errno.EIO else 3)


def test_a_link_that_cannot_be_written_is_an_error(world: World) -> None:
    with pytest.raises(ConfigurationError, match="mark_file_dir='/größe': must be ASCII, as archive-mark.lnk names it"):
        ensure_link_file(world.storage, world.directory, "/größe")
    with pytest.raises(MarkFileError, match=r"link file .*archive-mark.lnk cannot be written: No such file"):
        ensure_link_file(world.storage, f"{world.directory}/none", "/marks")


def test_readers_of_this_project_read_it(files: World) -> None:
    files.take().signal_ready()
    status = read_mark_file(Path(files.path))
    assert (status.version, status.pid, status.start_timestamp_ms, status.owner_id) == (READY, PID, NOW_MS, 77)
    assert status.aeron_dir == "/dev/shm/aeron"


# --- two starts at once, and crashes, at every call


def calls_of(disk: SimulatedDisk, run: Callable[[], object]) -> int:
    """How many calls of the disk it makes."""
    count = 0

    def note(_kind: str, _length: int) -> None:
        nonlocal count
        count += 1

    disk.on_latency = note
    run()
    disk.on_latency = None
    return count


def at_call(disk: SimulatedDisk, number: int, act: Callable[[], object]) -> None:
    """Act once, right before the call of this number has its effect."""
    left = number

    def note(_kind: str, _length: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            disk.on_latency = None
            act()

    disk.on_latency = note


def prepared(content: bytes | None) -> SimulatedDisk:
    disk = new_disk()
    if content is not None:
        on_disk(disk).put(content)
    return disk


FOUND: dict[str, bytes | None] = {
    "new": None,
    "taken": left_file(errors=("an old error",)),
}


def start(world: World, process_id: int, taken: list[ArchiveMarkFile]) -> None:
    """Take the file, unless another start is in the way."""
    try:
        taken.append(world.take(process_id=process_id))
    except MarkFileError as error:
        if not re.search("active mark file|concurrent|too short", str(error)):
            raise


@pytest.mark.parametrize("found", FOUND)
def test_of_two_starts_at_once_one_gets_the_file(found: str) -> None:
    disk = prepared(FOUND[found])
    count = calls_of(disk, on_disk(disk).take)
    assert count >= 7
    for number in range(count):
        disk = prepared(FOUND[found])
        first, second = on_disk(disk), on_disk(disk)
        taken: list[ArchiveMarkFile] = []

        at_call(disk, number, partial(start, second, 2, taken))
        start(first, 1, taken)
        assert len(taken) == 1
        taken[0].signal_ready()
        assert first.header()[START : PROCESS_ID + 1] == taken[0].owner


def after_crash(disk: SimulatedDisk, now_ms: int = NOW_MS + DEAD_MS) -> ArchiveMarkFile | None:
    """The next start, once the file is stale; None when it must be deleted by hand, which the error says."""
    world = on_disk(disk, now_ms)
    try:
        return world.take()
    except MarkFileError as error:
        if not re.search("(too short|was killed).*delete (it|the file)", str(error)):
            raise
    return None


def kills(content: bytes | None, run: Callable[[World], object]) -> Iterator[SimulatedDisk]:
    """The disk after a kill right before each call."""
    disk = prepared(content)
    count = calls_of(disk, lambda: run(on_disk(disk)))
    for number in range(count):
        disk = prepared(content)
        world = on_disk(disk)
        storage: Any = world.storage
        at_call(disk, number, partial(storage.kill, Draws(number)))
        with pytest.raises((MarkFileError, OSError)):
            run(world)
        yield disk


def cuts(content: bytes | None, run: Callable[[World], object]) -> Iterator[SimulatedDisk]:
    """Each disk that a cut of the power at any call can leave."""
    disk = prepared(content)
    left: list[SimulatedDisk] = []
    disk.on_latency = lambda _kind, _length: left.extend(disk.crash_states())
    run(on_disk(disk))
    yield from left


CRASHES = {"kill": kills, "power": cuts}


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_in_a_first_start_is_over_after_10_s_or_named(crash: str) -> None:
    taken = [after_crash(disk) for disk in CRASHES[crash](None, lambda world: world.take())]
    assert {mark_file.former_owner for mark_file in taken if mark_file is not None} == {None}
    # Deleted by hand: an empty file that was just created, or whose length or content the power cut has lost.
    assert sum(mark_file is not None for mark_file in taken) > len(taken) // 3
    disk = prepared(None)
    on_disk(disk).take()
    assert [after_crash(left) is not None for left in disk.crash_states()] == [True]


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_in_a_start_hides_neither_the_former_owner_nor_its_errors(crash: str) -> None:
    states = 0
    for disk in CRASHES[crash](FOUND["taken"], lambda world: world.take().refresh(NOW_MS + 1_000)):
        states += 1
        mark_file = after_crash(disk)
        world = on_disk(disk)
        if mark_file is not None:
            assert mark_file.former_owner == JAVA
        kept = [name for name in world.names() if b"an old error" in world.content(name)]
        assert kept, "saved, or still in the mark file"
    assert states > 10


@pytest.mark.parametrize("crash", CRASHES)
def test_a_start_that_was_ready_is_the_former_owner_after_any_crash(crash: str) -> None:
    disk = prepared(FOUND["taken"])
    on_disk(disk).take().signal_ready()
    content = on_disk(disk).content()
    former = set()
    for left in CRASHES[crash](content, lambda world: take_later(world).signal_ready()):
        mark_file = after_crash(left, NOW_MS + 10 * DEAD_MS)
        if mark_file is not None:
            former.add(mark_file.former_owner)
    assert former == {(NOW_MS, PID), (NOW_MS + 2 * DEAD_MS, 2)}


def take_later(world: World) -> ArchiveMarkFile:
    world.wait(2 * DEAD_MS)
    return world.take(process_id=2)


def test_once_it_is_ready_a_power_cut_leaves_it_so() -> None:
    disk = prepared(None)
    mark_file = on_disk(disk).take()
    mark_file.signal_ready()
    states = list(disk.crash_states())
    assert len(states) == 1
    assert on_disk(states[0]).header()[:5] == (READY, 0, NOW_MS, NOW_MS, PID)


# --- the cluster's mark file does the same


def test_the_clusters_mark_file_lives_on_a_simulated_disk() -> None:
    disk = new_disk()
    world = on_disk(disk)
    path = f"{DIRECTORY}/{mark_file_name(0)}"
    mark_file = ClusterMarkFile(path, clock=world.clock, storage=world.storage)
    mark_file.signal_ready()
    mark_file.update_activity_timestamp(NOW_MS + 1)
    with pytest.raises(MarkFileError, match="active mark file detected"):
        ClusterMarkFile(path, clock=world.clock, storage=disk.process())
    assert DistinctErrorLog(mark_file).record(ClusterEvent("boom")) == 1
    disk.cut_power(Draws(3))
    world = on_disk(disk, NOW_MS + 20_000)
    again = ClusterMarkFile(path, clock=world.clock, storage=world.storage)
    assert again.version == 768
    again.signal_failed_start()
    assert struct.unpack_from("<iiq", world.content(mark_file_name(0)), 8) == (-1, 2, -1)
