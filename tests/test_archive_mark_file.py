"""The archive's mark file, on real files and on the simulated disk: made, taken over, refused, and given back."""

from __future__ import annotations

import gc
import io
import os
import re
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from container.archive.server.archive_mark_file import LINK_FILE_NAME, MARK_FILE_NAME, ArchiveMarkFile, ensure_link_file
from container.errors import ClusterEvent, ConfigurationError, MarkFileError
from container.files.cnc_file import read_mark_file
from container.files.error_log import DistinctErrorLog, read_error_log
from container.storage.file_storage import FileStorage
from container.testing.memory.manual_time import ManualClock
from tests.mark_file_world import (
    ACTIVATING,
    ARCHIVE_ID,
    BLOCK,
    DEAD_MS,
    JAVA,
    LENGTH,
    MIB,
    NOW_MS,
    PID,
    READY,
    RESERVED,
    SBE_HEADER,
    TIMESTAMP,
    VERSION,
    WRITTEN,
    World,
    left_file,
    new_disk,
    on_disk,
    texts,
)


@pytest.fixture(params=["files", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "files":
        yield World(FileStorage(), str(tmp_path), ManualClock(epoch_ms=NOW_MS))
        return
    yield on_disk(new_disk())
    gc.collect()  # each file has 2 GiB of address space, which a process may have little of


@pytest.fixture
def files(tmp_path: Path) -> World:
    return World(FileStorage(), str(tmp_path), ManualClock(epoch_ms=NOW_MS))


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


def test_46_it_is_refreshed_once_per_second_also_before_it_is_ready(world: World) -> None:
    world.put(left_file())
    mark_file = world.take()
    assert world.header()[TIMESTAMP] == NOW_MS, "no claim that would stay if the process were killed now"
    assert not mark_file.refresh(NOW_MS)
    assert not mark_file.refresh(NOW_MS + 999)
    assert world.header()[TIMESTAMP] == NOW_MS
    assert mark_file.refresh(NOW_MS + 1_000)
    assert mark_file.activity_timestamp == world.header()[TIMESTAMP] == NOW_MS + 1_000
    assert not mark_file.refresh(NOW_MS + 1_999)
    mark_file.signal_ready()
    assert mark_file.refresh(NOW_MS + 3_500)
    assert mark_file.refresh(NOW_MS + 100), "a clock that was set back"
    assert world.header()[TIMESTAMP] == NOW_MS + 100


# --- whether a file may be taken


@pytest.mark.parametrize("age_ms", [0, 9_999, -60_000])
def test_44_a_live_file_is_refused(world: World, age_ms: int) -> None:
    world.put(left_file(activity_timestamp=NOW_MS - age_ms, errors=("boom",)))
    refused(world, rf"active mark file detected: {world.path}: its owner, pid 12, was alive at .* If this archive runs")


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
        (0x020001, "run Aeron's `ArchiveTool ARCHIVE_DIR migrate`"),
        (0x000200, "run Aeron's `ArchiveTool ARCHIVE_DIR migrate`"),
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


def test_42_a_version_alone_is_one(world: World) -> None:
    world.put(left_file(version=1, activity_timestamp=0))
    refused(world, "major version 0 does not match software: 3")


@pytest.mark.parametrize("version", [0x010000, 0x020001, 0x030100])
def test_the_layout_without_a_header_is_refused(world: World, version: int) -> None:
    world.put(left_file(version=version, is_legacy=True, errors=("boom",)))
    refused(
        world, "older layout, without a message header: run Aeron's `ArchiveTool ARCHIVE_DIR migrate`, and then Java"
    )


@pytest.mark.parametrize(
    "begin",
    [
        struct.pack("<HHHH", 128, 200, 110, 2),
        b"\xff" * 8,
        b"#!/bin/sh\n",
        struct.pack("<ii", 0x030100, 1),
        struct.pack("<ii", 0x040000, 0),
        b"\0" * 23 + b"\1",
    ],
    ids=["cluster's", "ones", "text", "no padding", "version 4", "nearly zeros"],
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


@pytest.mark.parametrize("length", [0, 1, 23, 25, 135])
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


def test_what_lies_in_its_place_is_not_followed_or_waited_for(files: World, tmp_path: Path) -> None:
    path, target = Path(files.path), tmp_path / "precious"
    target.write_bytes(bytes(LENGTH))
    path.symlink_to(target)
    with pytest.raises(MarkFileError, match=f"{path} cannot be opened with {LENGTH} bytes: it is a symbolic link"):
        files.take()
    assert target.read_bytes() == bytes(LENGTH)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MarkFileError, match=f"{path} cannot be opened: it is not a regular file"):
        files.take()


def test_a_start_is_forced_with_the_name_of_its_file(files: World, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: forced.append(os.fstat(descriptor).st_ino))
    files.take()
    assert forced == [Path(each).stat().st_ino for each in (files.path, files.directory)]


def test_a_closed_file_gives_its_descriptor_back(files: World) -> None:
    def free_descriptor() -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    free = free_descriptor()
    mark_file = files.take()
    assert free_descriptor() > free
    mark_file.close()
    assert free_descriptor() == free


@pytest.mark.parametrize("failing", [MARK_FILE_NAME, ""])
def test_a_start_that_cannot_be_forced_ends_and_frees_the_file(
    files: World, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == Path(files.directory, failing).stat().st_ino:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(MarkFileError, match=f"mark file {files.path} cannot be written to its disk: Input/output"):
            files.take()
    assert files.header()[TIMESTAMP] == -1
    files._replace(storage=FileStorage()).take()


def test_a_file_that_is_cut_short_right_before_the_claim_is_an_error(
    files: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put(left_file())
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: os.truncate(files.path, 4095))
    with pytest.raises(
        MarkFileError, match=f"{files.path} cannot be opened with .* bytes: it was cut short by another"
    ):
        files.take()


def test_a_path_without_a_directory_is_in_the_current_one(files: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files.directory)
    files.put(left_file(errors=("boom",)))
    here = files._replace(directory=".")
    arguments: dict[str, Any] = {"storage": files.storage, "clock": files.clock, "process_id": PID, **WRITTEN}
    ArchiveMarkFile(MARK_FILE_NAME, **arguments).signal_ready()
    assert here.header()[VERSION] == READY
    assert len(here.saved_errors()) == 1


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
    Path(files.path).chmod(0o605)
    files.take().signal_terminated()
    assert not caplog.text
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


def test_45_only_the_old_errors_are_cleared(world: World) -> None:
    content = bytearray(left_file(error_buffer_length=2 * MIB + 96, errors=("boom",)).ljust(3 * MIB + 8192, b"x"))
    content[8192 + 2 * MIB : 8192 + 2 * MIB + 96] = b"y" * 96
    world.put(bytes(content))
    world.take()
    assert world.content()[8192:] == bytes(2 * MIB + 96).ljust(3 * MIB, b"x")


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


def test_errors_are_written_up_to_the_end_of_their_region(world: World) -> None:
    mark_file = world.take()
    mark_file.write_errors(MIB - 4, b"text")
    assert world.content()[-4:] == b"text"
    with pytest.raises(ValueError, match=f"5 bytes at {MIB - 4} are not within the error log's {MIB}"):
        mark_file.write_errors(MIB - 4, b"text!")


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


def test_an_owner_that_took_a_file_over_sees_that_it_is_claimed(world: World) -> None:
    world.put(left_file())
    mark_file = world.take()
    world.storage.open_file(world.path, 0).write(struct.pack("<q", ACTIVATING), 16)
    with pytest.raises(MarkFileError, match="another process takes it over right now"):
        mark_file.refresh(NOW_MS + 1_000)


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
    mark_file = world.take()
    assert mark_file.former_owner is None
    assert world.header()[RESERVED] == struct.pack("<qqqq", 0, 0, *mark_file.owner).ljust(64, b"\0")


def test_a_taken_file_gets_the_header_of_today(world: World) -> None:
    world.put(struct.pack("<HHHH", 72, 200, 100, 1) + left_file()[8:])
    mark_file = world.take()
    assert world.content()[:8] == SBE_HEADER
    assert world.header()[RESERVED] == struct.pack("<qqqq", *JAVA, *mark_file.owner).ljust(64, b"\0")


@pytest.mark.parametrize("version", [READY, 0])
@pytest.mark.parametrize(
    ("owner", "expected"),
    [(JAVA, JAVA), ((1, 1), (1, 1)), ((0, 0), None), ((0, 5), None), ((5, 0), None), ((-7, 5), None)],
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
