"""The writer of segment files: what is in them, in which order it gets there, and what a failure leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from container.archive.server.store.recording_positions import RecordingPosition, RecordingPositions
from container.archive.server.store.segment_reader import SegmentReader
from container.archive.server.store.segment_writer import SegmentWriter
from container.errors import ArchiveError
from container.files.catalog import RecordingDescriptor
from container.files.checksums import crc32, crc32c
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.simulation.disk import SimulatedDisk
from tests.recorded_frames import HEADER_LENGTH, TERM_LENGTH, Frames, descriptor

FRAMES = Frames()
OWNER = (1_000, 42)


class World:
    """A storage with an archive's directory, and the position of a recording in progress."""

    def __init__(self, storage: Storage, directory: str, *, sync_level: int = 0) -> None:
        self.storage = storage
        self.directory = directory
        self.sync_level = sync_level
        self.positions = RecordingPositions.open(storage, directory, sync_level=sync_level, owner=OWNER)
        self.positions.begin_recovery(OWNER)
        self.positions.begin_ownership(OWNER)

    def place(self, recording: RecordingDescriptor, position: int) -> RecordingPosition:
        return self.positions.begin(recording, position)

    def writer(
        self, recording: RecordingDescriptor | None = None, *, position: int | None = None, checksum: int = 0
    ) -> SegmentWriter:
        recording = recording or descriptor()
        position = recording.start_position if position is None else position
        return SegmentWriter(
            self.storage,
            self.directory,
            recording,
            self.place(recording, position),
            sync_level=self.sync_level,
            checksum=checksum,
            position=position,
        )

    def opened(
        self, recording: RecordingDescriptor | None = None, *, position: int | None = None, checksum: int = 0
    ) -> SegmentWriter:
        writer = self.writer(recording, position=position, checksum=checksum)
        writer.open()
        return writer

    def segments(self) -> list[str]:
        return [name for name in self.storage.list_directory(self.directory) if name.endswith(".rec")]

    def content(self, name: str) -> bytes:
        file = self.storage.open_file(f"{self.directory}/{name}", 0)
        return file.read(file.length(), 0)


@pytest.fixture(params=["files", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "files":
        return World(FileStorage(), str(tmp_path))
    return World(SimulatedDisk().process(), "/")


def simulated(level: int = 0, on_latency: Callable[[str, int], object] | None = None) -> tuple[SimulatedDisk, World]:
    disk = SimulatedDisk(on_latency=on_latency)
    return disk, World(disk.process(), "/", sync_level=level)


def fails(code: int, match: str, call: Callable[..., object], *arguments: object) -> ArchiveError:
    with pytest.raises(ArchiveError, match=match) as raised:
        call(*arguments)
    assert raised.value.code == code
    return raised.value


def test_a_block_is_written_as_it_is(world: World) -> None:
    writer = world.opened()
    block = FRAMES.block(0, b"first", b"second" * 40, b"")
    writer.write(block)
    assert writer.position == len(block)
    assert world.content("0-0.rec") == block.ljust(TERM_LENGTH, b"\0")
    more = FRAMES.block(writer.position, b"third")
    writer.write(more)
    writer.close()
    writer.close()
    assert world.content("0-0.rec") == (block + more).ljust(TERM_LENGTH, b"\0")


def test_a_segment_has_its_whole_length_from_the_beginning(world: World) -> None:
    world.opened(descriptor(3, segment_file_length=1 << 20))
    assert world.segments() == ["3-0.rec"]
    assert len(world.content("3-0.rec")) == 1 << 20


def test_of_padding_only_the_header_is_written(world: World) -> None:
    writer = world.opened(descriptor(segment_file_length=2 * TERM_LENGTH))
    block = FRAMES.block(0, b"x" * 1000)
    writer.write(block)
    writer.write(FRAMES.padding(len(block)))
    assert writer.position == TERM_LENGTH
    following = FRAMES.block(TERM_LENGTH, b"next term")
    writer.write(following)
    content = world.content("0-0.rec")
    assert content[:TERM_LENGTH].rstrip(b"\0") == (block + FRAMES.padding(len(block))).rstrip(b"\0")
    assert content[TERM_LENGTH:] == following.ljust(TERM_LENGTH, b"\0")


MIB = 1 << 20
PREPARED = 1 << 18
LONG = descriptor(segment_file_length=8 * MIB)


def write_terms(writer: SegmentWriter, end: int) -> None:
    while writer.position < end:
        rest = TERM_LENGTH - HEADER_LENGTH
        writer.write(FRAMES.block(writer.position, b"x" * rest))


def test_a_long_recording_has_its_next_places_on_the_disk_and_a_short_one_no_more_than_it_takes() -> None:
    _, world = simulated()
    writer = world.opened(LONG)
    space = world.storage.usable_space("/")
    taken = []
    for end in (MIB, MIB + TERM_LENGTH, 5 * MIB, 5 * MIB + TERM_LENGTH, 8 * MIB, 8 * MIB + TERM_LENGTH):
        write_terms(writer, end)
        taken.append(space - world.storage.usable_space("/"))
    assert taken == [MIB, MIB + PREPARED, 5 * MIB, 5 * MIB + PREPARED, 8 * MIB, 8 * MIB + PREPARED]
    assert len(world.content("0-0.rec")) == len(world.content(f"0-{8 * MIB}.rec")) == 8 * MIB


def test_padding_gets_no_places() -> None:
    _, world = simulated()
    writer = world.opened(descriptor(segment_file_length=8 * MIB, term_buffer_length=8 * MIB))
    frames = Frames(8 * MIB)
    while writer.position < MIB:
        writer.write(frames.block(writer.position, b"x" * (TERM_LENGTH - HEADER_LENGTH)))
    space = world.storage.usable_space("/")
    writer.write(frames.padding(writer.position))
    assert space - world.storage.usable_space("/") == 4096
    assert writer.position == 8 * MIB


@pytest.mark.parametrize("free", [MIB // 2, 3 * MIB])
def test_a_recording_goes_on_until_the_disk_is_full(free: int) -> None:
    disk, world = simulated()
    writer = world.opened(LONG)
    write_terms(writer, MIB)
    disk.capacity -= world.storage.usable_space("/") - free
    write_terms(writer, MIB + free)
    with pytest.raises(ArchiveError, match="No space left") as raised:
        write_terms(writer, 8 * MIB)
    assert raised.value.code == ArchiveError.STORAGE_SPACE
    assert writer.position == MIB + free


@pytest.mark.parametrize("checksum", [0, 1])
def test_a_long_recording_over_files_has_all_its_frames(tmp_path: Path, checksum: int) -> None:
    world = World(FileStorage(), str(tmp_path))
    writer = world.opened(LONG, checksum=checksum)
    write_terms(writer, 9 * MIB)
    reader = SegmentReader(world.storage, world.directory, LONG, 0, checksum=checksum)
    while reader.position < writer.position:
        length, frames = reader.read_frames(writer.position)
        assert frames[HEADER_LENGTH:] == b"x" * (TERM_LENGTH - HEADER_LENGTH)
        reader.skip(length)
    assert len(world.content("0-0.rec")) == 8 * MIB


def test_a_full_segment_is_followed_by_the_next_one(world: World) -> None:
    writer = world.opened()
    block = FRAMES.block(0, bytes(TERM_LENGTH - 32))
    writer.write(block)
    assert writer.position == TERM_LENGTH
    assert world.segments() == [f"0-{TERM_LENGTH}.rec", "0-0.rec"] or world.segments() == [
        "0-0.rec",
        f"0-{TERM_LENGTH}.rec",
    ]
    assert world.content(f"0-{TERM_LENGTH}.rec") == bytes(TERM_LENGTH)
    writer.write(FRAMES.padding(TERM_LENGTH))
    following = FRAMES.block(2 * TERM_LENGTH, b"third segment")
    writer.write(following)
    assert world.content(f"0-{2 * TERM_LENGTH}.rec") == following.ljust(TERM_LENGTH, b"\0")


def test_a_recording_that_starts_within_a_term_has_that_terms_base(world: World) -> None:
    start = 5 * TERM_LENGTH + 4096
    recording = descriptor(start_position=start, segment_file_length=2 * TERM_LENGTH)
    writer = world.opened(recording)
    block = FRAMES.block(start, b"late")
    writer.write(block)
    assert world.segments() == [f"0-{5 * TERM_LENGTH}.rec"]
    assert world.content(f"0-{5 * TERM_LENGTH}.rec")[4096 : 4096 + len(block)] == block
    writer.write(FRAMES.padding(writer.position))
    writer.write(FRAMES.padding(writer.position))
    assert f"0-{7 * TERM_LENGTH}.rec" in world.segments()


def test_a_recording_goes_on_in_the_segment_that_is_there(world: World) -> None:
    first = world.opened()
    block = FRAMES.block(0, b"before")
    first.write(block)
    first.close()
    first.place.close()
    writer = world.opened(position=first.position)
    more = FRAMES.block(len(block), b"behind")
    writer.write(more)
    assert world.content("0-0.rec") == (block + more).ljust(TERM_LENGTH, b"\0")


def test_a_segment_of_another_length_gets_its_own(world: World) -> None:
    world.storage.open_file(f"{world.directory}/0-0.rec", CREATE).write(b"\0" * 3 * TERM_LENGTH, 0)
    world.opened()
    assert len(world.content("0-0.rec")) == TERM_LENGTH


@pytest.mark.parametrize(("kind", "compute"), [(1, crc32), (2, crc32c)])
def test_checksums_take_the_place_of_session_ids(world: World, kind: int, compute: Callable[[bytes], int]) -> None:
    writer = world.opened(checksum=kind)
    payloads = [b"one", b"two" * 100, b""]
    block = bytearray(FRAMES.block(0, *payloads))
    given = bytes(block)
    writer.write(block)
    assert bytes(block) == given, "the block is not changed"
    writer.write(FRAMES.padding(writer.position))
    offset = 0
    for payload in payloads:
        length = -(-len(payload) // 32) * 32
        block[offset + 12 : offset + 16] = compute(payload.ljust(length, b"\0")).to_bytes(4, "little")
        offset += HEADER_LENGTH + length
    assert world.content("0-0.rec") == (bytes(block) + FRAMES.padding(len(block))).ljust(TERM_LENGTH, b"\0")


def test_a_block_longer_than_the_buffer_gets_its_checksums(world: World) -> None:
    frames = Frames(term_length=1 << 22)
    recording = descriptor(term_buffer_length=1 << 22, segment_file_length=1 << 22)
    writer = world.opened(recording, checksum=1)
    writer.write(frames.block(0, b"small"))
    block = frames.block(writer.position, *([b"x" * 60_000] * 30))
    writer.write(block)
    content = world.content("0-0.rec")
    end = content[64 + 60_032 + 12 : 64 + 60_032 + 16]
    assert end == crc32(b"x" * 60_000).to_bytes(4, "little")


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"short",
        bytes(32),
        FRAMES.data(32, b"another term offset"),
        FRAMES.data(TERM_LENGTH, b"another term"),
        Frames(stream_id=5).data(0, b"another stream"),
        FRAMES.header(0, TERM_LENGTH + 32, 0),
        FRAMES.data(0, b"x")[:32],
        FRAMES.data(0, b"x") + bytes(32),
    ],
    ids=range(9),
)
def test_what_is_not_whole_frames_of_the_position_is_refused(block: bytes) -> None:
    _, world = simulated(level=1)
    writer = world.opened()
    if not block:
        writer.write(block)
    else:
        fails(ArchiveError.GENERIC, "is not whole frames of recording 0 at 0", writer.write, block)
    assert writer.position == 0
    assert not writer.has_failed
    writer.write(FRAMES.data(0, b"goes on"))


def test_a_block_does_not_cross_the_end_of_a_term() -> None:
    _, world = simulated()
    writer = world.opened(descriptor(segment_file_length=2 * TERM_LENGTH, start_position=TERM_LENGTH - 64))
    block = FRAMES.block(TERM_LENGTH - 64, b"x" * 20, b"y")
    fails(ArchiveError.GENERIC, "is not whole frames", writer.write, block)


def test_what_no_recording_can_have_is_refused() -> None:
    _, world = simulated()
    for recording, position in [
        (descriptor(term_buffer_length=1 << 15), 0),
        (descriptor(term_buffer_length=3 << 15), 0),
        (descriptor(segment_file_length=1 << 15), 0),
        (descriptor(segment_file_length=3 << 16), 0),
        (descriptor(start_position=-32), 0),
        (descriptor(start_position=16), 16),
        (descriptor(), 5),
        (descriptor(start_position=64), 32),
    ]:
        place = world.place(descriptor(), 0)
        with pytest.raises(ValueError, match="must be"):
            SegmentWriter(world.storage, "/", recording, place, sync_level=0, position=position)
        place.close()


def test_a_following_segment_that_is_there_ends_the_recording(world: World) -> None:
    writer = world.opened()
    block = FRAMES.block(0, b"x" * 1000)
    writer.write(block)
    stray = f"{world.directory}/0-{TERM_LENGTH}.rec"
    world.storage.open_file(stray, CREATE).write(b"what is this?", 0)
    fails(
        ArchiveError.GENERIC,
        f"segment file already exists: .*0-{TERM_LENGTH}.rec",
        writer.write,
        FRAMES.padding(len(block)),
    )
    assert writer.position == len(block)
    assert writer.has_failed
    fails(ArchiveError.GENERIC, "has failed", writer.write, FRAMES.data(len(block), b"no more"))
    writer.clear_tail()
    writer.close()
    assert world.content("0-0.rec") == block.ljust(TERM_LENGTH, b"\0")
    assert world.content(f"0-{TERM_LENGTH}.rec") == b"what is this?"


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "error", "code", "written"),
    [
        ("write", errno.ENOSPC, ArchiveError.STORAGE_SPACE, 100),
        ("write", errno.EIO, ArchiveError.GENERIC, 0),
        ("write", errno.EIO, ArchiveError.GENERIC, 700),
        ("force", errno.EIO, ArchiveError.GENERIC, 0),
        ("extend", errno.ENOSPC, ArchiveError.STORAGE_SPACE, 0),
        ("open", errno.EMFILE, ArchiveError.GENERIC, 0),
        ("force_directory", errno.EIO, ArchiveError.GENERIC, 0),
    ],
)
def test_what_fails_leaves_the_position_and_its_tail_is_cleared(
    level: int, kind: str, error: int, code: int, written: int
) -> None:
    if level == 0 and kind in ("force", "force_directory"):
        return
    disk, world = simulated(level)
    writer = world.opened()
    block = FRAMES.block(0, b"x" * 1000)
    writer.write(block)
    disk.fail(kind, error, written=written)
    failure = fails(
        code, "recording 0 cannot continue at 1056", writer.write, FRAMES.data(1056, b"y" * (TERM_LENGTH - 1088))
    )
    assert isinstance(failure.__cause__, OSError)
    assert writer.position == len(block)
    for _ in range(2):
        try:
            writer.clear_tail()
        except OSError:
            assert kind == "force_directory"
    writer.close()
    assert disk.contents()["/0-0.rec"] == block.ljust(TERM_LENGTH, b"\0")
    assert world.segments() == ["0-0.rec"]


def test_little_usable_space_counts_as_a_full_disk() -> None:
    disk, world = simulated()
    writer = world.opened()
    disk.fail("write", errno.EIO)
    disk.capacity = 0
    fails(ArchiveError.STORAGE_SPACE, "cannot continue", writer.write, FRAMES.data(0, b"x"))


def test_a_position_that_cannot_be_kept_ends_the_recording_behind_a_new_segment() -> None:
    _, world = simulated()
    writer = world.opened()
    writer.place.close()
    with pytest.raises(Exception, match=r".+"):
        writer.write(FRAMES.padding(0))
    assert writer.position == 0
    assert len(world.segments()) == 2
    writer.clear_tail()
    assert world.segments() == ["0-0.rec"]
    assert world.content("0-0.rec") == bytes(TERM_LENGTH)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("kind", ["look", "open", "extend", "force_directory"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_writer_that_cannot_be_opened_leaves_nothing(level: int, kind: str, is_there: bool) -> None:
    if level == 0 and kind == "force_directory":
        return
    disk, world = simulated(level)
    if is_there:
        world.storage.open_file("/0-0.rec", CREATE).set_length(1)
    before = world.segments()
    writer = world.writer()
    disk.fail(kind, errno.ENOSPC)
    fails(ArchiveError.STORAGE_SPACE, "cannot continue at 0", writer.open)
    assert world.segments() == before
    assert writer.position == 0
    fails(ArchiveError.GENERIC, "is not open", writer.write, FRAMES.data(0, b"x"))
    writer.clear_tail()
    writer.close()


def test_a_writer_is_opened_once() -> None:
    _, world = simulated()
    writer = world.opened()
    fails(ArchiveError.GENERIC, "a second time", writer.open)
    assert "position=0" in repr(writer)


def calls_of(level: int, payload: bytes) -> list[str]:
    """The calls that one block causes."""
    calls: list[str] = []
    _, world = simulated(level, lambda kind, _length: calls.append(kind))
    writer = world.opened()
    writer.write(FRAMES.data(0, b"x" * 450))
    calls.clear()
    writer.write(FRAMES.data(512, payload))
    return calls


def test_forces_follow_the_level_and_the_position_only_what_is_ambiguous() -> None:
    assert calls_of(0, bytes(1000)) == ["write"]
    assert calls_of(1, b"x" * 1000) == ["write", "force"]
    assert calls_of(2, b"x" * 1000) == ["write", "force"]
    assert calls_of(1, bytes(1000)) == ["write", "force", "force"]
    assert calls_of(1, b"x" * 600 + bytes(900)) == ["write", "force", "force"]
    assert calls_of(1, bytes(480)) == ["write", "force"], "all of it is in the sector of its header"
    assert calls_of(1, b"x" * 480 + bytes(32)) == ["write", "force", "force"]
    assert calls_of(1, bytes(511) + b"x") == ["write", "force"]
    assert calls_of(1, bytes(600) + b"x") == ["write", "force"]


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_announced_is_on_the_disk(level: int) -> None:
    disk, world = simulated(level)
    writer = world.opened()
    content = b""
    for size in (1000, 5000, 60, 40_000):
        payload = b"p" * size
        writer.write(FRAMES.data(writer.position, payload))
        content += FRAMES.data(len(content), payload)
        for state in disk.crash_states():
            on_disk = state.contents()["/0-0.rec"]
            assert on_disk is not None
            assert on_disk[: writer.position] == content
    writer.write(FRAMES.padding(writer.position))
    for state in disk.crash_states():
        assert f"/0-{TERM_LENGTH}.rec" in state.contents()
