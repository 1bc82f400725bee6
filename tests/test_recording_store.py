"""The store of an archive: recordings are made, continued, cut, moved and deleted, by upstream's rules and texts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from container.archive import error_codes
from container.archive.server.store.recording_store import RecordingStore, _Migration
from container.errors import ArchiveError, RecordingError
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE
from container.testing.simulation.disk import SimulatedDisk
from tests.recorded_frames import TERM_LENGTH, descriptor
from tests.store_world import FRAMES, NOW_MS, StoreWorld

FULL = bytes(TERM_LENGTH - 32)
"""The payload of a frame as long as a segment."""


@pytest.fixture(params=["files", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> StoreWorld:
    if request.param == "files":
        return StoreWorld(FileStorage(), str(tmp_path))
    return StoreWorld(SimulatedDisk().process(), "/")


def simulated(level: int = 0) -> tuple[SimulatedDisk, StoreWorld]:
    disk = SimulatedDisk()
    return disk, StoreWorld(disk.process(), "/", level=level)


def refuses(code: int, match: str, call: Callable[..., object], *arguments: object, **options: object) -> ArchiveError:
    with pytest.raises(ArchiveError, match=match) as raised:
        call(*arguments, **options)
    assert raised.value.code == code
    return raised.value


def test_a_recording_is_made_stopped_and_continued(world: StoreWorld) -> None:
    writer = world.start(4096)
    assert writer.recording_id == 0
    assert world.store.is_active(0)
    world.write(writer, b"one", b"two")
    assert world.store.recorded_position(0) == writer.position == 4096 + 128
    assert world.range(0) == (4096, -1)
    world.store.stop(writer, NOW_MS + 5)
    world.store.stop(writer, NOW_MS + 6)
    assert not world.store.is_active(0)
    assert world.range(0) == (4096, 4096 + 128)
    world.reopen()
    stopped = world.store.catalog.descriptor(0)
    assert stopped is not None
    assert (stopped.start_timestamp, stopped.stop_timestamp) == (NOW_MS, NOW_MS + 5)
    assert (stopped.segment_file_length, stopped.session_id) == (TERM_LENGTH, FRAMES.session_id)
    again = world.extend(0)
    extended = world.store.catalog.descriptor(0)
    assert extended is not None
    assert (extended.control_session_id, extended.correlation_id, extended.session_id) == (11, 12, FRAMES.session_id)
    assert (extended.stop_position, extended.stop_timestamp) == (-1, -1)
    world.write(again, b"three")
    world.store.stop(again, NOW_MS + 7)
    position = 4096
    expected = b""
    for payload in (b"one", b"two", b"three"):
        expected += FRAMES.data(position + len(expected), payload)
    assert world.frames(0) == expected
    assert world.record(b"x") == 1, "ids go on"
    assert "active=0" in repr(world.store)


def test_a_segment_is_at_least_as_long_as_a_term() -> None:
    world = StoreWorld(SimulatedDisk().process(), "/", segment_length=1 << 17)
    world.record(b"x")
    recorded = world.store.catalog.descriptor(0)
    assert recorded is not None
    assert recorded.segment_file_length == 1 << 17
    assert len(world.content(0)) == 1 << 17


def test_what_a_killed_process_wrote_is_found(world: StoreWorld) -> None:
    writer = world.start()
    world.write(writer, b"one", None, b"two")
    world.open()
    assert world.range(0) == (0, TERM_LENGTH + 64)
    assert [each.stop_position for each in world.store.recovered] == [TERM_LENGTH + 64]


def test_an_extension_must_fit(world: StoreWorld) -> None:
    writer = world.start()
    extend = world.store.extend_recording
    names = {"control_session_id": 1, "correlation_id": 2, "session_id": 3}
    refuses(error_codes.UNKNOWN_RECORDING, "unknown recording id: 7", extend, 7, 0, **names)
    refuses(error_codes.ACTIVE_RECORDING, "cannot extend active recording 0", extend, 0, 0, **names)
    world.store.stop(writer, NOW_MS)
    refuses(error_codes.INVALID_EXTENSION, r"image.joinPosition=64 != rec.stopPosition=0", extend, 0, 64, **names)
    assert world.range(0) == (0, 0)


def test_an_extension_waits_for_the_deletion_that_reaches_its_begin(world: StoreWorld) -> None:
    world.record(FULL, FULL, b"x" * 100)
    deletion = world.store.truncate(0, TERM_LENGTH)
    refuses(error_codes.GENERIC, "due to an outstanding delete operation", world.extend, 0)
    calls: list[tuple[Callable[..., object], list[int]]] = [
        (world.store.truncate, [0, TERM_LENGTH]),
        (world.store.purge_segments, [0, TERM_LENGTH]),
        (world.store.purge, [0]),
        (world.store.delete_detached, [0]),
        (world.store.attach, [0]),
    ]
    for call, arguments in calls:
        text = "another delete operation in progress for recording id: 0"
        refuses(error_codes.GENERIC, text, call, *arguments)
    assert world.store.is_deleting(0)
    assert world.delete(deletion) == 2
    assert not world.store.is_deleting(0)
    world.extend(0)
    assert world.segments() == [0, TERM_LENGTH]


def test_an_extension_does_not_wait_for_the_deletion_of_early_segments(world: StoreWorld) -> None:
    world.record(FULL, FULL, b"x" * 100)
    deletion = world.store.purge_segments(0, TERM_LENGTH)
    world.write(world.extend(0), b"y")
    assert world.delete(deletion) == 1


def test_bytes_behind_the_end_are_gone_before_a_recording_goes_on(world: StoreWorld) -> None:
    world.record(b"x")
    world.put("0-0.rec", FRAMES.data(64, b"of another archive's failed write"), 64)
    writer = world.extend(0)
    assert world.content(0) == FRAMES.data(0, b"x").ljust(TERM_LENGTH, b"\0")
    world.write(writer, b"y")
    world.open()
    assert world.frames(0) == FRAMES.block(0, b"x", b"y")


def test_low_space_is_refused() -> None:
    disk, world = simulated()
    world.store.check_space()
    disk.capacity = 0
    refuses(error_codes.STORAGE_SPACE, "low storage threshold=0 <= usableSpace=0", world.store.check_space)
    disk.fail("look", errno.EIO)
    refuses(error_codes.GENERIC, "Input/output error", world.store.check_space)


def test_a_writer_that_does_not_open_leaves_a_recording_that_can_be_stopped() -> None:
    disk, world = simulated(1)
    disk.fail("open", errno.EACCES)
    with pytest.raises(ArchiveError):
        world.start()
    (writer,) = world.store._writers.values()
    world.store.stop(writer, NOW_MS)
    assert world.range(0) == (0, 0)
    world.write(world.extend(0), b"now")
    world.reopen()
    assert world.frames(0) == FRAMES.data(0, b"now")


def test_a_start_that_fails_leaves_no_recording_without_a_stop_position() -> None:
    for kind in ("write", "force", "open", "extend", "map"):
        for after in range(4):
            disk, world = simulated(1)
            disk.fail(kind, errno.EIO, after=after)
            try:
                world.start()
            except ArchiveError:
                for writer in list(world.store._writers.values()):
                    world.store.stop(writer, NOW_MS)
                assert [world.range(each) for each in world.store.catalog.recording_ids()] in ([], [(0, 0)])


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("kind", ["write", "force"])
def test_a_recording_whose_write_failed_ends_where_it_was(level: int, kind: str) -> None:
    if (level, kind) == (0, "force"):
        return
    disk, world = simulated(level)
    writer = world.start()
    world.write(writer, b"one")
    disk.fail(kind, errno.EIO, written=200)
    refuses(error_codes.GENERIC, "cannot continue at 64", world.write, writer, b"x" * 1000)
    world.store.stop(writer, NOW_MS)
    assert world.range(0) == (0, 64)
    assert world.content(0) == FRAMES.data(0, b"one").ljust(TERM_LENGTH, b"\0")
    assert not world.errors
    world.write(world.extend(0), b"two")
    world.open()
    assert world.frames(0) == FRAMES.block(0, b"one", b"two")


def test_a_tail_that_cannot_be_cleared_is_cleared_before_the_recording_goes_on() -> None:
    for is_extended in (False, True):
        disk, world = simulated(1)
        writer = world.start()
        world.write(writer, b"one")
        disk.fail("write", errno.ENOSPC, written=200)
        refuses(error_codes.STORAGE_SPACE, "cannot continue", world.write, writer, b"x" * 1000)
        disk.fail("extend", errno.EIO)
        world.store.stop(writer, NOW_MS)
        assert len(world.errors) == 1
        assert world.range(0) == (0, 64)
        assert world.content(0)[64:].strip(b"\0")
        if is_extended:
            world.write(world.extend(0), b"two")
            world.open()
            assert world.frames(0) == FRAMES.block(0, b"one", b"two"), "it is not cut again"
        else:
            world.reopen()
            assert not world.content(0)[64:].strip(b"\0")
            assert world.frames(0) == FRAMES.data(0, b"one")


def test_replicas_are_empty_and_take_the_sources_parameters(world: StoreWorld) -> None:
    source = descriptor(99, start_position=640, stop_position=9600, stream_id=33)
    assert world.store.add_replica(source) == 0
    added = world.store.catalog.descriptor(0)
    assert added is not None
    assert (added.start_position, added.stop_position) == (640, 640)
    assert (added.start_timestamp, added.stop_timestamp) == (1_000, 1_000)
    assert (added.stream_id, added.original_channel) == (33, source.original_channel)
    world.store.replace_by_replica(0, descriptor(5, start_position=128, stream_id=34))
    replaced = world.store.catalog.descriptor(0)
    assert replaced is not None
    assert (replaced.recording_id, replaced.start_position, replaced.stop_position) == (0, 128, 128)
    assert replaced.stream_id == 34
    world.record(b"x")
    refuses(error_codes.GENERIC, "it is not empty", world.store.replace_by_replica, 1, source)
    refuses(error_codes.UNKNOWN_RECORDING, "unknown recording id: 9", world.store.replace_by_replica, 9, source)


@pytest.mark.parametrize("former_start", [0, TERM_LENGTH, 5 * TERM_LENGTH])
@pytest.mark.parametrize(("start", "segment_length"), [(0, TERM_LENGTH), (3 * TERM_LENGTH, 2 * TERM_LENGTH)])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_an_empty_recording_was_is_nothing_to_the_replica_in_its_place(
    world: StoreWorld, former_start: int, start: int, segment_length: int, is_known: bool
) -> None:
    world.record(start_position=former_start)
    assert world.segments() == [former_start]
    source = descriptor(
        99, start_position=start, segment_file_length=segment_length, mtu_length=TERM_LENGTH,
        stream_id=FRAMES.stream_id, initial_term_id=FRAMES.initial_term_id,
    )  # fmt: skip
    world.store.replace_by_replica(0, source)
    assert world.segments() == []
    writer = world.extend(0)
    world.write(writer, FULL, b"x")
    if not is_known:
        world.owner = (7, 7)  # another archive ran in between
    world.open()
    assert world.range(0) == (start, writer.position)
    world.write(world.extend(0), None, *[FULL] * 5)


def test_the_segment_of_an_empty_recording_does_not_come_back_without_power() -> None:
    disk, world = simulated(1)
    world.record(start_position=5 * TERM_LENGTH)
    world.store.replace_by_replica(0, descriptor(99))
    for state in disk.crash_states():
        assert [name for name in state.contents() if name.endswith(".rec")] == []


def test_what_a_stop_cleared_does_not_come_back_without_power() -> None:
    disk, world = simulated(1)
    writer = world.start()
    world.write(writer, b"one")
    disk.fail("force", errno.EIO)
    refuses(error_codes.GENERIC, "cannot continue at 64", world.write, writer, b"x" * 1000)
    world.store.stop(writer, NOW_MS)
    for state in disk.crash_states():
        content = state.contents()["/0-0.rec"]
        assert content is not None
        assert content.rstrip(b"\0") == FRAMES.data(0, b"one").rstrip(b"\0")


def test_an_extension_that_fails_keeps_the_end_known() -> None:
    for kind in ("write", "force"):
        disk, world = simulated(1)
        world.record(b"x" * 100 + bytes(9000))
        stop = world.range(0)[1]
        disk.fail(kind, errno.EIO, written=1 << 20, after={"write": 0, "force": 2}[kind])
        with pytest.raises(ArchiveError):
            world.extend(0)
        assert not world.store.is_active(0)
        world.storage = disk.process()
        world.open()
        assert world.range(0) == (0, stop), "a last frame of zeros is not torn"


def test_a_stop_whose_catalog_fails_leaves_the_end_to_the_next_open() -> None:
    disk, world = simulated(1)
    writer = world.start()
    world.write(writer, b"x" * 100 + bytes(9000))
    disk.fail("write", errno.EIO)
    refuses(error_codes.GENERIC, "archive.catalog", world.store.stop, writer, NOW_MS)
    assert not world.store.is_active(0)
    world.storage = disk.process()
    world.open()
    assert world.range(0) == (0, writer.position)


@pytest.mark.parametrize("kind", ["write", "force", "rename", "force_directory", "map", "unlink"])
@pytest.mark.parametrize("after", range(3))
def test_a_start_that_fails_leaves_the_end_known_to_the_next_one(kind: str, after: int) -> None:
    disk, world = simulated(0)
    writer = world.start()
    world.write(writer, b"x" * 100 + bytes(9000))
    disk.fail(kind, errno.EIO, after=after)
    for _ in range(3):
        world.storage = disk.process()
        with suppress(OSError):
            world.open()
            assert world.range(0) == (0, writer.position)


def test_segments_that_outlive_their_catalog_are_not_overwritten(world: StoreWorld) -> None:
    recorded = [world.record(b"old", b"older"), world.record(b"another")]
    contents = [world.content(each) for each in recorded]
    world.store.close()
    world.storage.unlink(f"{world.directory}/archive.catalog")
    for name in (f"{2**62 + 1}-0.rec", f"{2**63 - 2}-0.rec", "notes-0.rec"):  # few ids would be left
        world.put(name, b"strange")
    world.open()
    assert [str(each) for each in world.errors] == [
        f"the catalog does not know segment files that are there, such as {world.directory}/1-0.rec: the next "
        "recording is 2, not 0, so that none is overwritten; put back the catalog that knows them, or move them away"
    ]
    world.errors.clear()
    assert world.record(b"new") == 2
    assert [world.content(each) for each in recorded] == contents
    world.reopen()
    assert world.errors == []
    assert world.record(b"newer") == 3


def test_a_recording_that_cannot_be_is_only_purged(world: StoreWorld) -> None:
    good = descriptor(0, stop_position=0)
    for recording_id, impossible in enumerate(
        [
            descriptor(term_buffer_length=0),
            descriptor(term_buffer_length=1 << 15),
            descriptor(term_buffer_length=3 << 16, segment_file_length=3 << 16),
            descriptor(segment_file_length=-(1 << 31)),
            descriptor(segment_file_length=1 << 15),
            descriptor(start_position=-64),
            descriptor(start_position=31),
            descriptor(start_position=2**62),
            descriptor(mtu_length=0),
            descriptor(mtu_length=2**31 - 1),
        ]
    ):
        assert world.store.add_replica(impossible) == recording_id
        calls: dict[Callable[..., object], list[int]] = {
            world.store.truncate: [0],
            world.store.detach: [0],
            world.store.purge_segments: [0],
            world.store.delete_detached: [],
            world.store.attach: [],
            world.store.open_reader: [0],
            world.extend: [0],
            world.store.migrate: [recording_id],
        }
        for call, arguments in calls.items():
            refuses(error_codes.GENERIC, f"recording {recording_id} cannot have", call, recording_id, *arguments)
        world.store.replace_by_replica(recording_id, good)
        assert world.store.truncate(recording_id, 0).is_done
        world.store.replace_by_replica(recording_id, impossible)
        assert world.store.purge(recording_id).is_done


def test_a_full_disk_has_its_own_code_for_recordings_alone() -> None:
    disk, world = simulated()
    world.record(b"x")
    for kind in ("write", "extend", "map"):
        disk.fail(kind, errno.ENOSPC)
    refuses(error_codes.GENERIC, "No space left", world.store.truncate, 0, 0)
    refuses(error_codes.STORAGE_SPACE, "No space left", world.start)


# Truncation.


def test_a_truncation_cuts_where_a_frame_begins(world: StoreWorld) -> None:
    world.record(b"one", b"two" * 100, b"three")
    deletion = world.store.truncate(0, 64)
    assert (deletion.file_count, deletion.is_done) == (0, True)
    assert world.range(0) == (0, 64)
    assert world.content(0) == FRAMES.data(0, b"one").ljust(TERM_LENGTH, b"\0")
    stopped = world.store.catalog.descriptor(0)
    assert stopped is not None
    assert stopped.stop_timestamp == NOW_MS + 1
    world.write(world.extend(0), b"other")
    world.open()
    assert world.frames(0) == FRAMES.block(0, b"one", b"other")


@pytest.mark.parametrize(
    ("position", "files", "left"),
    [
        (0, [0, 1, 2], []),
        (TERM_LENGTH, [1, 2], [0]),
        (2 * TERM_LENGTH, [2], [0, 1]),
        (2 * TERM_LENGTH + 64, [], [0, 1, 2]),
        (2 * TERM_LENGTH + 128, [], [0, 1, 2]),
    ],
)
def test_a_truncation_deletes_segments_one_by_one(
    world: StoreWorld, position: int, files: list[int], left: list[int]
) -> None:
    world.record(FULL, FULL, b"one", b"two")
    deletion = world.store.truncate(0, position)
    assert deletion.file_count == len(files)
    assert deletion.last_position == (2 * TERM_LENGTH if files else -1)
    assert world.range(0) == (0, position)
    assert world.delete(deletion) == len(files)
    assert world.segments() == [each * TERM_LENGTH for each in left]
    world.store.delete_next_file(deletion)
    world.reopen()
    world.write(world.extend(0), b"more")
    world.store.close()
    world.open()
    assert world.range(0) == (0, position + 64)
    assert world.frames(0).endswith(FRAMES.data(position, b"more"))


def test_a_truncation_to_the_start_within_a_term_deletes_all(world: StoreWorld) -> None:
    world.record(b"one", start_position=4096)
    world.put("0-0.rec.del", b"")
    assert world.delete(world.store.truncate(0, 4096)) == 2
    assert world.segments() == []
    world.write(world.extend(0), b"again")
    world.open()
    assert world.frames(0) == FRAMES.data(4096, b"again")


def test_files_that_a_truncation_deleted_do_not_come_back_without_power() -> None:
    disk, world = simulated(1)
    world.record(FULL, FULL, b"one")
    world.delete(world.store.truncate(0, TERM_LENGTH))
    for state in disk.crash_states():
        assert [name for name in state.contents() if name.endswith(".rec")] == ["/0-0.rec"]


def test_a_truncation_that_is_refused_changes_nothing(world: StoreWorld) -> None:
    world.record(b"one", b"two" * 100, start_position=64)
    active = world.start()
    before = world.content(0)
    truncate = world.store.truncate
    refuses(error_codes.UNKNOWN_RECORDING, "unknown recording id: 5", truncate, 5, 0)
    refuses(error_codes.ACTIVE_RECORDING, "cannot truncate active recording", truncate, active.recording_id, 0)
    text = "cannot truncate recording with active replay 0"
    refuses(error_codes.ACTIVE_RECORDING, text, truncate, 0, 128, lowest_replay_position=64)
    for position in (32, 0, 480 + 32, 129):
        text = f"invalid position {position}: start=64 stop=480 alignment=32"
        refuses(error_codes.INVALID_POSITION, text, truncate, 0, position)
    refuses(error_codes.GENERIC, "160 position not aligned to a data header", truncate, 0, 160)
    assert world.range(0) == (64, 480)
    assert world.content(0) == before
    world.storage.unlink(f"{world.directory}/0-0.rec")
    refuses(error_codes.GENERIC, r"0-0\.rec.*recording segment not found", truncate, 0, 128)
    assert world.range(0) == (64, 480)
    world.reopen()
    assert world.range(0) == (64, 480)


def test_a_truncation_that_fails_is_finished_before_the_recording_goes_on() -> None:
    for kind in ("extend", "open", "unlink", "force"):
        for is_extended in (False, True):
            disk, world = simulated(1)
            world.record(b"one", None, b"two")
            disk.fail(kind, errno.EIO, after={"open": 1, "force": 2}.get(kind, 0))
            with suppress(ArchiveError):
                world.delete(world.store.truncate(0, 64))
            if world.store.catalog.stop_position(0) != 64:
                continue
            if is_extended:
                world.write(world.extend(0), b"more")
                world.open()
                assert world.frames(0) == FRAMES.block(0, b"one", b"more"), kind
            else:
                world.open()
                assert world.frames(0) == FRAMES.data(0, b"one"), kind
                assert world.content(0) == FRAMES.data(0, b"one").ljust(TERM_LENGTH, b"\0")
                assert world.segments() == [0]


# Purging, detaching, attaching.


def test_a_purge_deletes_all_files_and_never_gives_the_id_again(world: StoreWorld) -> None:
    world.record(FULL, b"x")
    assert world.record(b"kept") == 1
    deletion = world.store.purge(0)
    assert deletion.file_count == 2
    assert world.store.catalog.descriptor(0) is None
    refuses(error_codes.UNKNOWN_RECORDING, "unknown recording id: 0", world.store.purge, 0)
    assert world.delete(deletion) == 2
    assert (world.segments(0), world.segments(1)) == ([], [0])
    world.reopen()
    assert world.record(b"y") == 2


def test_a_purge_is_refused_while_somebody_needs_the_recording(world: StoreWorld) -> None:
    writer = world.start()
    refuses(error_codes.ACTIVE_RECORDING, "cannot purge active recording 0", world.store.purge, 0)
    world.store.stop(writer, NOW_MS)
    text = "cannot purge recording with active replay 0"
    refuses(error_codes.ACTIVE_RECORDING, text, world.store.purge, 0, lowest_replay_position=0)
    assert world.store.catalog.has(0)


def test_files_that_a_purge_did_not_come_to_are_deleted_at_the_next_open(world: StoreWorld) -> None:
    world.record(FULL, FULL, b"x")
    world.record(b"kept")
    world.store.delete_next_file(world.store.purge(0))
    world.progress = 0
    world.reopen()
    assert (world.segments(0), world.segments(1)) == ([], [0])
    assert world.progress > 0


def test_one_file_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    disk, world = simulated()
    world.record(FULL, b"x")
    deletion = world.store.purge(0)
    disk.fail("unlink", errno.EACCES)
    refuses(error_codes.GENERIC, r"unable to delete segment file: .*0-0\.rec", world.store.delete_next_file, deletion)
    world.store.delete_next_file(deletion)
    assert deletion.is_done
    assert world.segments() == [0]
    world.reopen()
    assert world.segments() == []


def test_a_file_that_is_gone_counts_as_deleted(world: StoreWorld) -> None:
    world.record(b"x")
    deletion = world.store.purge(0)
    world.storage.unlink(f"{world.directory}/0-0.rec")
    assert world.delete(deletion) == 1
    assert "files=0 of 1" in repr(deletion)


def test_segments_are_detached_and_attached_again(world: StoreWorld) -> None:
    world.record(b"late", None, FULL, b"x", start_position=64)
    frames = world.frames(0)
    world.store.detach(0, 2 * TERM_LENGTH)
    assert world.range(0)[0] == 2 * TERM_LENGTH
    assert world.segments() == [0, TERM_LENGTH, 2 * TERM_LENGTH]
    assert world.store.attach(0) == 2
    assert world.range(0)[0] == 64
    assert world.frames(0) == frames
    assert world.store.attach(0) == 0


def test_detached_segments_are_deleted(world: StoreWorld) -> None:
    world.record(FULL, FULL, b"x")
    assert world.store.delete_detached(0).file_count == 0
    world.store.detach(0, TERM_LENGTH)
    deletion = world.store.delete_detached(0)
    assert deletion.file_count == world.delete(deletion) == 1
    world.store.detach(0, 2 * TERM_LENGTH)
    world.reopen()
    assert world.delete(world.store.delete_detached(0)) == 1
    assert world.segments() == [2 * TERM_LENGTH]
    assert world.frames(0) == FRAMES.data(2 * TERM_LENGTH, b"x")
    assert world.store.attach(0) == 0


def test_early_segments_are_purged_from_an_active_recording(world: StoreWorld) -> None:
    writer = world.start(4096)
    world.write(writer, None, FULL, FULL, b"x")
    deletion = world.store.purge_segments(0, 2 * TERM_LENGTH)
    assert deletion.file_count == world.delete(deletion) == 2
    world.write(writer, b"y")
    world.open()
    assert world.range(0) == (2 * TERM_LENGTH, 3 * TERM_LENGTH + 128)
    assert world.segments() == [2 * TERM_LENGTH, 3 * TERM_LENGTH]
    world.frames(0)


def test_segments_that_are_in_use_stay(world: StoreWorld) -> None:
    writer = world.start(4096)
    world.write(writer, None, FULL, b"x")
    for call in (world.store.detach, world.store.purge_segments):
        refuses(error_codes.UNKNOWN_RECORDING, "unknown recording id: 1", call, 1, 0)
        refuses(error_codes.GENERIC, "invalid segment start: newStartPosition=64", call, 0, 64)
        refuses(error_codes.GENERIC, "invalid detach: newStartPosition=0 lowerBound=65536", call, 0, 0)
        text = "invalid detach: in use, newStartPosition=196608 upperBound=131072"
        refuses(error_codes.GENERIC, text, call, 0, 3 * TERM_LENGTH)
        text = "invalid detach: replay in progress - newStartPosition=131072 upperBound=65536"
        refuses(error_codes.GENERIC, text, call, 0, 2 * TERM_LENGTH, lowest_replay_position=TERM_LENGTH + 96)
    assert world.range(0)[0] == 4096
    world.store.detach(0, TERM_LENGTH, lowest_replay_position=TERM_LENGTH + 96)
    assert world.range(0)[0] == TERM_LENGTH


def test_what_is_no_segment_of_the_recording_is_not_attached(world: StoreWorld) -> None:
    world.record(FULL, FULL, FULL, b"x")
    world.store.detach(0, 3 * TERM_LENGTH)
    name = f"{world.directory}/0-{TERM_LENGTH}.rec"
    file = world.storage.open_file(name, 0)
    attach = world.store.attach
    for content, text in [
        (FRAMES.data(0, b""), "term id does not match: actual=7 expected=8"),
        (
            FRAMES.data(TERM_LENGTH, b"").replace(b"\xe9\x03", b"\x05\x00"),
            "stream id does not match: actual=5 expected=1001",
        ),
        (FRAMES.data(TERM_LENGTH + 64, b""), "term offset does not match: actual=64 expected=0"),
        (bytes(32), "fragment not found in first term of segment"),
        (None, "fileLength=7 not equal to segmentLength=65536"),
    ]:
        file.set_length(0)
        file.set_length(TERM_LENGTH)
        if content is None:
            file.set_length(7)
        else:
            file.write(content, 0)
        refuses(error_codes.GENERIC, text, attach, 0)
        assert world.range(0)[0] == 2 * TERM_LENGTH, "the one behind it is attached"
    file.set_length(0)
    file.set_length(TERM_LENGTH)
    file.write(FRAMES.data(TERM_LENGTH + 40_000 // 32 * 32, b"x"), 40_000 // 32 * 32)
    assert attach(0) == 1, "a first frame far behind the begin of the term"
    assert world.range(0)[0] == TERM_LENGTH + 40_000 // 32 * 32


# Migration.


def two_recordings(world: StoreWorld, *, is_in_front: bool) -> tuple[int, int, bytes]:
    """Source, target, and all that both have, in order."""
    front = world.record(FULL, FULL, start_position=0)
    world.delete(world.store.truncate(front, 2 * TERM_LENGTH))
    behind = world.record(FULL, b"end", start_position=2 * TERM_LENGTH)
    frames = world.frames(front) + world.frames(behind)
    return (front, behind, frames) if is_in_front else (behind, front, frames)


@pytest.mark.parametrize("is_in_front", [True, False])
def test_segments_move_to_the_recording_that_continues(world: StoreWorld, is_in_front: bool) -> None:
    source, target, frames = two_recordings(world, is_in_front=is_in_front)
    assert world.store.migrate(source, target) == 2
    assert world.range(target) == (0, 3 * TERM_LENGTH + 64)
    start, stop = world.range(source)
    assert start == stop == (0 if is_in_front else 2 * TERM_LENGTH)
    assert world.frames(target) == frames
    assert world.segments(source) == []
    world.reopen()
    assert world.frames(target) == frames
    assert world.storage.exists(f"{world.directory}/archive.migration") is False


def test_an_empty_last_segment_of_the_source_is_deleted(world: StoreWorld) -> None:
    source = world.record(FULL)
    target = world.record(b"end", start_position=TERM_LENGTH)
    assert world.store.migrate(source, target) == 1
    assert world.segments(source) == []
    assert world.segments(target) == [0, TERM_LENGTH]


def test_a_migration_that_is_refused_moves_nothing(world: StoreWorld) -> None:
    source = world.record(FULL)
    target = world.record(b"end", start_position=TERM_LENGTH)
    apart = world.record(b"x", start_position=5 * TERM_LENGTH)
    unaligned = world.record(b"x", start_position=TERM_LENGTH + 64)
    writer = world.start(TERM_LENGTH, stream_id=5)
    other = writer.recording_id
    migrate = world.store.migrate
    refuses(error_codes.UNKNOWN_RECORDING, "unknown recording id: 77", migrate, source, 77)
    refuses(error_codes.GENERIC, f"recording {other} is still active", migrate, other, target)
    refuses(error_codes.GENERIC, "invalid migrate: srcStreamId=1001 dstStreamId=5", migrate, source, other)
    refuses(
        error_codes.GENERIC,
        "invalid migrate: src and dst are not contiguous srcStartPosition=0",
        migrate,
        source,
        apart,
    )
    text = "invalid migrate: join position is not on segment boundary of src recording seamPosition=65600"
    refuses(error_codes.GENERIC, text, migrate, target, unaligned)
    world.put(f"{target}-0.rec", b"")
    refuses(error_codes.GENERIC, r"preexisting dst segment file .*1-0\.rec", migrate, source, target)
    world.storage.unlink(f"{world.directory}/{target}-0.rec")
    world.storage.rename(f"{world.directory}/{source}-0.rec", f"{world.directory}/away")
    refuses(error_codes.GENERIC, r"missing src segment file .*0-0\.rec", migrate, source, target)
    assert world.range(source) == (0, TERM_LENGTH)
    assert world.range(target) == (TERM_LENGTH, TERM_LENGTH + 64)


def test_a_migration_that_fails_is_finished_at_the_next_open() -> None:
    for kind in ("rename", "force_directory", "force", "write", "unlink", "open"):
        for after in range(4):
            disk, world = simulated(1)
            source, target, frames = two_recordings(world, is_in_front=True)
            disk.fail(kind, errno.EIO, after=after)
            with suppress(ArchiveError):
                world.store.migrate(source, target)
            world.storage = disk.process()
            try:
                world.open()
            except OSError:  # what was to fail and was not reached
                world.storage = disk.process()
                world.open()
            assert world.frames(source) + world.frames(target) == frames, (kind, after)


def test_a_note_of_a_migration_that_is_out_of_date_is_dropped(world: StoreWorld) -> None:
    source, target, _ = two_recordings(world, is_in_front=True)
    note = f"{world.directory}/archive.migration"
    world.store.migrate(source, target)
    world.store.close()
    migration = _Migration(source, target, 1 << 20, 1 << 21, 1 << 21, 1 << 22)
    world.storage.open_file(note, CREATE).write(migration.encoded(), 0)
    world.open()
    assert not world.storage.exists(note)
    assert world.range(target) == (0, 3 * TERM_LENGTH + 64)
    world.store.close()
    world.storage.open_file(note, CREATE).write(b"damaged", 0)
    with pytest.raises(RecordingError, match="the note of a migration that a crash ended is damaged"):
        world.open()


@pytest.mark.parametrize(
    "note",
    [
        (1, 1, 0, 1 << 61, 0, 0),  # of one recording
        (1, 0, 0, 1 << 62, 0, 0),  # with positions that no recording has
        (1, 0, 64, 0, 0, 0),
    ],
)
def test_a_note_of_a_migration_that_cannot_be_is_dropped(world: StoreWorld, note: tuple[int, ...]) -> None:
    for recording_id in range(2):
        world.store.add_replica(descriptor(recording_id, stop_position=0))
    world.store.close()
    path = f"{world.directory}/archive.migration"
    world.storage.open_file(path, CREATE).write(_Migration(*note).encoded(), 0)
    world.open()
    assert not world.storage.exists(path)
    assert [world.range(recording_id) for recording_id in range(2)] == [(0, 0), (0, 0)]


def test_a_migration_over_more_segments_than_there_can_be_ends(world: StoreWorld) -> None:
    for recording_id in range(2):
        world.store.add_replica(descriptor(recording_id, stop_position=0))
    world.store.close()
    path = f"{world.directory}/archive.migration"
    world.storage.open_file(path, CREATE).write(_Migration(1, 0, 0, 1 << 61, 0, 0).encoded(), 0)
    world.open()
    assert not world.storage.exists(path)
    with pytest.raises(ArchiveError, match="missing src segment file"):
        world.store.migrate(0, 1)


def test_a_migration_of_a_recording_that_cannot_be_is_refused(world: StoreWorld) -> None:
    world.store.add_replica(descriptor(0, stop_position=0, segment_file_length=0))
    world.store.add_replica(descriptor(1, stop_position=0))
    world.store.close()
    path = f"{world.directory}/archive.migration"
    world.storage.open_file(path, CREATE).write(_Migration(0, 1, 0, 0, 0, 0).encoded(), 0)
    with pytest.raises(RecordingError, match="recording 0 cannot have start position 0, .* segment length 0"):
        world.open()


def test_abandoning_closes_all_files_and_changes_and_forces_nothing() -> None:
    disk, world = simulated(level=1)
    writer = world.start()
    world.write(writer, b"one")
    before = disk.contents()
    kinds: list[str] = []
    disk.on_latency = lambda kind, _length: kinds.append(kind)
    world.store.abandon()
    world.store.abandon()
    assert (disk.contents(), kinds) == (before, [])
    with pytest.raises(ArchiveError, match="is closed"):
        world.store.catalog.descriptor(0)
    world.open()
    assert world.range(0) == (0, writer.position)


def test_closing_leaves_active_recordings_to_the_next_open(world: StoreWorld) -> None:
    writer = world.start()
    world.write(writer, b"one")
    world.store.close()
    world.store.close()
    world.open()
    assert world.frames(0) == FRAMES.data(0, b"one")
    assert isinstance(world.store, RecordingStore)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    world = StoreWorld(FileStorage(), str(tmp_path / "archive"))
    world.record(b"one")
    segment, elsewhere = tmp_path / "archive" / "0-0.rec", tmp_path / "elsewhere"
    segment.rename(elsewhere)
    before = elsewhere.read_bytes()
    segment.symlink_to(elsewhere)
    for act in (world.extend, world.frames):
        with pytest.raises((ArchiveError, RecordingError, OSError), match="symbolic link"):
            act(0)
    assert elsewhere.read_bytes() == before
    world.store.close()
    catalog = tmp_path / "archive" / "archive.catalog"
    catalog.rename(tmp_path / "catalog")
    before = (tmp_path / "catalog").read_bytes()
    catalog.symlink_to(tmp_path / "catalog")
    with pytest.raises((ArchiveError, RecordingError, OSError), match="symbolic link"):
        world.open()
    assert (tmp_path / "catalog").read_bytes() == before
