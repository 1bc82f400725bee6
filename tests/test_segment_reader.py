"""The reader of segment files: whole frames across terms and segments, and nothing that is not a frame."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from container.archive.server.store.segment_reader import SegmentReader
from container.errors import RecordingError, RecordingUnavailableError
from container.files.catalog import RecordingDescriptor
from container.files.checksums import crc32
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import CREATE, Storage
from container.testing.simulation.disk import SimulatedDisk
from tests.recorded_frames import TERM_LENGTH, Frames, descriptor

FRAMES = Frames()
FAR = 1 << 40


class World:
    """Segment files of recordings, written as bytes."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self.storage = storage
        self.directory = directory

    def put(self, name: str, content: bytes, offset: int = 0, length: int = TERM_LENGTH) -> None:
        file = self.storage.open_file(f"{self.directory}/{name}", CREATE)
        if length > file.length():
            file.set_length(length)
        file.write(content, offset)

    def reader(
        self,
        recording: RecordingDescriptor | None = None,
        position: int | None = None,
        *,
        buffer_length: int = 1 << 20,
        checksum: int = 0,
    ) -> SegmentReader:
        recording = recording or descriptor()
        return SegmentReader(
            self.storage,
            self.directory,
            recording,
            recording.start_position if position is None else position,
            buffer_length=buffer_length,
            checksum=checksum,
        )


@pytest.fixture(params=["files", "simulated"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(FileStorage(), str(tmp_path)) if request.param == "files" else World(SimulatedDisk().process(), "/")


def read_all(reader: SegmentReader, limit: int, max_length: int = 1 << 20) -> list[tuple[int, bytes]]:
    """All that is read, each as the length and the bytes."""
    found: list[tuple[int, bytes]] = []
    while True:
        length, content = reader.read_frames(limit, max_length)
        if length == 0:
            return found
        found.append((length, content))
        reader.skip(length)


def damage(reader: SegmentReader, limit: int = FAR) -> RecordingError:
    with pytest.raises(RecordingError) as raised:
        reader.read_frames(limit)
    assert not isinstance(raised.value, RecordingUnavailableError)
    return raised.value


def test_frames_are_read_up_to_the_limit(world: World) -> None:
    block = FRAMES.block(0, b"one", b"two" * 300, b"", b"four")
    world.put("0-0.rec", block)
    assert read_all(world.reader(), len(block)) == [(len(block), block)]
    reader = world.reader()
    assert reader.read_frames(64) == (64, block[:64])
    assert reader.read_frames(len(block) - 1) == (len(block) - 64, block[:-64]), (
        "the same frames, until they are consumed"
    )
    reader.skip(64)
    assert reader.position == 64
    assert reader.read_frames(65) == (0, b"")
    assert reader.read_frames(64) == (0, b"")
    assert reader.read_frames(0) == (0, b"")
    reader.close()
    reader.close()
    assert reader.read_frames(len(block)) == (len(block) - 64, block[64:])
    assert "position=64" in repr(reader)


def test_frames_are_read_about_as_long_as_wanted(world: World) -> None:
    block = FRAMES.block(0, *([b"x" * 68] * 10))
    world.put("0-0.rec", block)
    lengths = [length for length, _ in read_all(world.reader(), len(block), 300)]
    assert lengths == [256] * 5
    lengths = [length for length, _ in read_all(world.reader(), len(block), 1)]
    assert lengths == [128] * 10, "a frame is read whole"
    lengths = [length for length, _ in read_all(world.reader(buffer_length=400), len(block))]
    assert lengths == [384, 384, 384, 128]


def test_reading_goes_on_across_terms_padding_and_segments(world: World) -> None:
    recording = descriptor(start_position=TERM_LENGTH - 4096, segment_file_length=2 * TERM_LENGTH)
    position, expected = recording.start_position, []
    for payload in (b"a" * 1000, None, b"b" * (TERM_LENGTH - 32), b"c", None, b"d"):
        content = FRAMES.padding(position) if payload is None else FRAMES.data(position, payload)
        length = FRAMES.rest(position) if payload is None else len(content)
        base = position // (2 * TERM_LENGTH) * 2 * TERM_LENGTH
        world.put(f"0-{base}.rec", content, position - base, 2 * TERM_LENGTH)
        expected.append((length, content))
        position += length
    reader = world.reader(recording)
    assert read_all(reader, position) == expected
    assert reader.position == position
    for length, content in expected:
        start = recording.start_position + sum(each for each, _ in expected[: expected.index((length, content))])
        assert read_all(world.reader(recording, start), start + length) == [(length, content)]


def test_padding_beyond_the_limit_is_not_read(world: World) -> None:
    block = FRAMES.block(0, b"x") + FRAMES.padding(64)
    world.put("0-0.rec", block)
    reader = world.reader()
    assert read_all(reader, TERM_LENGTH - 32) == [(64, block[:64])]
    assert reader.read_frames(TERM_LENGTH) == (TERM_LENGTH - 64, block[64:])


def test_the_end_of_a_recording_at_a_segments_end_needs_no_next_file(world: World) -> None:
    world.put("0-0.rec", FRAMES.data(0, bytes(TERM_LENGTH - 32)))
    reader = world.reader()
    assert [length for length, _ in read_all(reader, TERM_LENGTH)] == [TERM_LENGTH]
    with pytest.raises(RecordingUnavailableError, match="recording segment not found") as raised:
        reader.read_frames(TERM_LENGTH + 32)
    assert raised.value.file == f"{world.directory}/0-{TERM_LENGTH}.rec"
    assert raised.value.log_position == TERM_LENGTH


def test_a_missing_file_is_found_missing(world: World) -> None:
    reader = world.reader()
    for call in (reader.open, lambda: reader.is_frame(0), lambda: reader.read_frames(FAR)):
        with pytest.raises(RecordingUnavailableError, match=r"0-0\.rec.*recording segment not found"):
            call()
    world.put("0-0.rec", FRAMES.data(0, b"there now"))
    reader.open()
    assert reader.is_frame(0)


def test_a_file_that_cannot_be_read_is_unavailable() -> None:
    disk = SimulatedDisk()
    world = World(disk.process(), "/")
    world.put("0-0.rec", FRAMES.data(0, b"x"))
    for kind in ("open", "read"):
        disk.fail(kind, errno.EIO)
        with pytest.raises(RecordingUnavailableError, match=r"0-0\.rec.*Input/output error"):
            world.reader().read_frames(64)
    assert world.reader().read_frames(64)[0] == 64


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (bytes(32), "unexpected end of recording: frame length is 0"),
        (FRAMES.header(64, -64), "unexpected end of recording: frame length is -64"),
        (FRAMES.header(64, 31), "frame length 31 is impossible"),
        (FRAMES.header(64, TERM_LENGTH), "frame length 65536 is impossible"),
        (FRAMES.header(64, 1408).replace(b"\x00\xc0", b"\x01\xc0", 1), "frame version is 1"),
        (FRAMES.header(64, 1408, 2), "frame type is 2"),
        (FRAMES.header(96, 1408), "term offset of the frame is 96, expected 64"),
        (FRAMES.header(64 + TERM_LENGTH, 1408), "term id of the frame is 8, expected 7"),
        (Frames(stream_id=5).header(64, 1408), "stream id of the frame is 5, expected 1001"),
    ],
    ids=range(9),
)
def test_what_is_no_frame_is_damage(world: World, header: bytes, text: str) -> None:
    world.put("0-0.rec", FRAMES.data(0, b"fine") + header + b"x" * 1376)
    reader = world.reader()
    assert reader.read_frames(FAR)[0] == 64, "what is in front of it is read"
    reader.skip(64)
    error = damage(reader)
    assert text in str(error)
    assert error.file == f"{world.directory}/0-0.rec"
    assert (error.offset, error.log_position) == (64, 64)
    assert not reader.is_frame(64)


def test_a_frame_longer_than_the_buffer_is_damage(world: World) -> None:
    world.put("0-0.rec", FRAMES.data(0, b"x" * 2000))
    assert "a data frame at most 1408" in str(damage(world.reader(buffer_length=1408)))


def test_a_file_that_ends_too_early_is_damage(world: World) -> None:
    block = FRAMES.block(0, b"whole", b"x" * 200)
    world.put("0-0.rec", block[:-64], length=0)
    reader = world.reader()
    assert reader.read_frames(FAR) == (64, block[:64])
    reader.skip(64)
    assert "the file ends 192 bytes behind" in str(damage(reader))
    assert "the file ends 192 bytes behind" in str(damage(reader, len(block)))
    with pytest.raises(RecordingError, match="the file ends 192 bytes behind"):
        reader.read_frames(len(block), 1)
    world.put("0-65536.rec", b"", length=20)
    assert "the file ends 20 bytes behind" in str(damage(world.reader(position=TERM_LENGTH)))
    assert not world.reader().is_frame(TERM_LENGTH)


def test_frames_are_recognised_by_their_headers(world: World) -> None:
    recording = descriptor(start_position=64)
    world.put("0-0.rec", FRAMES.block(64, b"one", b"two" * 20) + FRAMES.padding(224), 64)
    world.put(f"0-{TERM_LENGTH}.rec", FRAMES.data(TERM_LENGTH, b""))
    reader = world.reader(recording)
    found = [position for position in range(0, 2 * TERM_LENGTH, 16) if reader.is_frame(position)]
    assert found == [64, 128, 224, TERM_LENGTH]
    assert reader.position == 64
    assert reader.read_frames(FAR)[0] == 160


def test_checksums_are_verified_where_they_are_recorded(world: World) -> None:
    frames = []
    for position, payload in ((0, b"one"), (64, b"two")):
        frame = bytearray(FRAMES.data(position, payload))
        struct.pack_into("<I", frame, 12, crc32(frame[32:]))
        frames.append(bytes(frame))
    world.put("0-0.rec", b"".join(frames) + FRAMES.padding(128))
    reader = world.reader(checksum=1)
    assert read_all(reader, TERM_LENGTH) == [(128, b"".join(frames)), (TERM_LENGTH - 128, FRAMES.padding(128))]
    world.put("0-0.rec", b"T", 64 + 32)
    reader = world.reader(checksum=1)
    assert reader.read_frames(TERM_LENGTH) == (64, frames[0])
    reader.skip(64)
    error = damage(reader)
    assert "CRC checksum mismatch" in str(error)
    assert error.offset == 64
    assert read_all(world.reader(), 128)[0][0] == 128, "nobody asked for it"


def test_no_more_is_consumed_than_was_read(world: World) -> None:
    world.put("0-0.rec", FRAMES.block(0, b"one", b"two"))
    reader = world.reader()
    for length in (1, 32, 64, -32):
        with pytest.raises(ValueError, match="cannot continue behind"):
            reader.skip(length)
    reader.read_frames(128)
    with pytest.raises(ValueError, match="128 are read"):
        reader.skip(160)
    reader.skip(64)
    reader.skip(0)
    reader.skip(64)
    assert reader.position == 128


def test_what_no_recording_can_have_is_refused(world: World) -> None:
    for recording, position in [
        (descriptor(term_buffer_length=1 << 15), 0),
        (descriptor(start_position=64), 32),
        (descriptor(), 31),
    ]:
        with pytest.raises(ValueError, match="must be"):
            world.reader(recording, position)
    with pytest.raises(ValueError, match="no room for a frame"):
        world.reader(buffer_length=31)


def test_term_ids_wrap_around(world: World) -> None:
    frames = Frames(initial_term_id=2**31 - 1)
    recording = descriptor(initial_term_id=2**31 - 1, segment_file_length=2 * TERM_LENGTH)
    second = frames.data(TERM_LENGTH, b"negative")
    assert struct.unpack_from("<i", second, 20) == (-(2**31),)
    world.put("0-0.rec", frames.padding(0), length=2 * TERM_LENGTH)
    world.put("0-0.rec", second, TERM_LENGTH)
    assert [length for length, _ in read_all(world.reader(recording), TERM_LENGTH + 64)] == [TERM_LENGTH, 64]
