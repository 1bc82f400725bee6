"""What must be on the disk of an archive, told from what was published, announced and answered, and read without any of
the archive's own code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from container.files.checksums import crc32, crc32c
from container.testing.simulation.nodes.recorded import TERM_LENGTH, Entry, Violation, read_catalog

HEADER_LENGTH = 32
_FRAME = struct.Struct("<iBBHiiiiq")
_PADDING = 0
_CHECKSUMS = {"CRC-32": crc32, "CRC-32C": crc32c}


def frames_of(block: bytes) -> Iterator[tuple[int, bytes]]:
    """The length in the stream and the stored bytes of each frame of a block; of padding the header is stored."""
    offset = 0
    while offset < len(block):
        frame_length, _, _, kind, *_ = _FRAME.unpack_from(block, offset)
        length = -(-frame_length // 32) * 32
        yield length, block[offset : offset + (HEADER_LENGTH if kind == _PADDING else length)]
        offset += length


def without_ids(frame: bytes) -> bytes:
    """A frame without session id and stream id, which a replay writes anew."""
    return frame[:12] + bytes(8) + frame[20:]


def with_checksum(frame: bytes, checksum: str | None) -> bytes:
    """A frame as an archive stores it that records checksums in place of session ids."""
    if checksum is None or (len(frame) == HEADER_LENGTH and _FRAME.unpack_from(frame)[3] == _PADDING):
        return frame
    return frame[:12] + _CHECKSUMS[checksum](frame[HEADER_LENGTH:]).to_bytes(4, "little") + frame[16:]


@dataclass
class Recording:
    """One stream, and what a recording of it must have. Nobody else records the stream."""

    stream_id: int
    start: int
    recording_id: int = -1
    """-1 until it is known."""
    frames: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """End and stored bytes by begin: what is recorded, or is published and may come to be."""
    ever: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """The same for all that was ever published, the last at each place."""
    announced: int = -1
    """How far it must be there."""
    stop: int | None = None
    """Where a client was told that it has stopped, None while that is not known."""
    cuts: set[int] = field(default_factory=set)
    """Where it may end instead: truncations without an answer."""
    starts: set[int] = field(default_factory=set)
    """Where it may begin instead."""
    is_certain: bool = False
    """A client was told that it is there."""
    may_be_gone: bool = False
    is_gone: bool = False
    is_busy: bool = False
    """Something was asked for that is not answered yet, or has failed: nothing else is asked for."""
    is_active: bool = False
    detached: int | None = None
    """Where it began before segments were detached that are there yet."""

    @property
    def end(self) -> int:
        """Where what was published ends."""
        return max((end for end, _ in self.frames.values()), default=self.start)

    def add(self, position: int, block: bytes, checksum: str | None) -> None:
        """Frames that were published."""
        for length, frame in frames_of(block):
            self.frames[position] = self.ever[position] = (position + length, with_checksum(frame, checksum))
            position += length

    def cut(self, position: int) -> None:
        """Forget what lies behind a position. Who holds the former frames keeps them."""
        self.frames = {begin: each for begin, each in self.frames.items() if each[0] <= position}

    def begin_at(self, start: int) -> None:
        """Let it begin elsewhere; where that is earlier, it has the frames again that were published there."""
        frames = {begin: each for begin, each in self.frames.items() if begin >= start}
        position = start
        while position < self.start and position in self.ever:
            frames[position] = self.ever[position]
            position = self.ever[position][0]
        self.start, self.frames = start, frames

    def is_boundary(self, position: int) -> bool:
        """Whether a frame begins or ends there, or the recording does."""
        return position == self.start or position in self.frames or position == self.end

    def boundaries(self, stop: int) -> list[int]:
        """Where frames begin, and the end."""
        return sorted({self.start, *(each for each in self.frames if self.start <= each <= stop), stop})


def files_of(contents: dict[str, bytes | None], directory: str) -> dict[str, bytes]:
    """The files of a directory but for mark files, by name."""
    prefix = directory.rstrip("/") + "/"
    return {
        path[len(prefix) :]: content
        for path, content in contents.items()
        if content is not None and path.startswith(prefix) and not path.endswith(".dat")
    }


class Disk:
    """The files of an archive's directory, by name."""

    def __init__(self, contents: dict[str, bytes | None], directory: str) -> None:
        self.files = files_of(contents, directory)
        self.next_id, self.entries, self.deleted = read_catalog(self.files["archive.catalog"])

    def segments(self, recording_id: int) -> dict[int, bytes]:
        """The segment files of a recording, by their base."""
        begin = f"{recording_id}-"
        return {
            int(name[len(begin) : -4]): content
            for name, content in self.files.items()
            if name.startswith(begin) and name.endswith(".rec")
        }

    def digest(self) -> int:
        """A number for what is there."""
        digest = 0
        for name, content in sorted(self.files.items()):
            digest = zlib.crc32(name.encode(), zlib.crc32(content, digest))
        return digest


def check_disk(disk: Disk, recordings: dict[int, Recording], *, is_uncertain: bool) -> None:
    """Compare a disk, on which no recording is active, with the recordings by stream id, which become what is there.

    ``is_uncertain``: nothing was forced and power was cut. Then what is there was published once, and no more.
    """
    by_stream: dict[int, Entry] = {}
    for entry in disk.entries:
        name = f"recording {entry.recording_id} of stream {entry.stream_id}"
        if entry.stream_id not in recordings:
            raise Violation("catalog", f"{name}: nobody asked for it")
        if entry.stream_id in by_stream:
            raise Violation("catalog", f"{name} is there beside {by_stream[entry.stream_id].recording_id}")
        by_stream[entry.stream_id] = entry
    used: dict[int, int] = {}
    for recording in recordings.values():
        if recording.recording_id >= 0:
            other = used.setdefault(recording.recording_id, recording.stream_id)
            if other != recording.stream_id:
                raise Violation(
                    "ids", f"streams {other} and {recording.stream_id} had recording {recording.recording_id}"
                )
    for recording in recordings.values():
        found = by_stream.get(recording.stream_id)
        name = f"recording {recording.recording_id} of stream {recording.stream_id}"
        if found is None:
            if not (is_uncertain or recording.may_be_gone or recording.is_gone or not recording.is_certain):
                raise Violation("lost", f"{name} is not in the catalog")
            if recording.is_certain:
                recording.is_gone = True
            continue
        if recording.is_gone and not is_uncertain:
            raise Violation("purge", f"{name} was purged, and is there again")
        if recording.recording_id >= 0 and recording.recording_id != found.recording_id:
            raise Violation("ids", f"{name} has id {found.recording_id} now")
        taken = used.setdefault(found.recording_id, recording.stream_id)
        if taken != recording.stream_id and not is_uncertain:
            raise Violation("ids", f"{name} has an id that stream {taken} had")
        recording.recording_id = found.recording_id
        check_recording(disk, recording, found, is_uncertain=is_uncertain)
        recording.is_certain = True
    if not is_uncertain:
        known = {each.recording_id for each in disk.entries}
        for file_name in disk.files:
            if file_name.endswith(".rec") and int(file_name.split("-")[0]) not in known:
                raise Violation("files", f"{file_name} is of no recording")


def check_recording(disk: Disk, recording: Recording, entry: Entry, *, is_uncertain: bool) -> None:
    """Compare one recording, of which the expectation becomes what is there."""
    name = f"recording {entry.recording_id}"
    start, stop = entry.start, entry.stop
    if stop < start:
        raise Violation("range", f"{name} is from {start} to {stop} after a start")
    if not is_uncertain:
        starts = {recording.start, *recording.starts}
        if start not in starts:
            raise Violation("start", f"{name} begins at {start}, expected one of {sorted(starts)}")
        if stop not in recording.cuts:
            if recording.stop is not None and stop != recording.stop:
                raise Violation("stop", f"{name} ends at {stop}, a client was told {recording.stop}")
            if stop < recording.announced:
                raise Violation("announced", f"{name} ends at {stop}, {recording.announced} was announced")
            if not recording.is_boundary(stop):
                raise Violation("boundary", f"{name} ends at {stop}, where no frame does; published {recording.end}")
    if not is_uncertain:
        recording.begin_at(start)
    check_frames(disk, recording, entry, is_uncertain=is_uncertain)
    if is_uncertain:
        return
    check_tail(disk, entry)
    recording.stop = recording.announced = stop
    recording.cuts, recording.starts = set(), set()
    recording.may_be_gone = recording.is_busy = recording.is_active = False
    recording.cut(stop)


def check_frames(disk: Disk, recording: Recording, entry: Entry, *, is_uncertain: bool) -> None:
    """Each frame of a recording is what was published there."""
    name = f"recording {entry.recording_id}, {entry.start} to {entry.stop}"
    segments = disk.segments(entry.recording_id)
    first = entry.start // TERM_LENGTH * TERM_LENGTH
    position = entry.start
    while position < entry.stop:
        base = first + (position - first) // entry.segment_length * entry.segment_length
        content = segments.get(base)
        if content is None:
            if is_uncertain:
                return
            raise Violation("segment", f"{name}: no segment {base}")
        if position not in recording.frames:
            if is_uncertain:
                return
            raise Violation("frames", f"{name}: nothing was published at {position}")
        end, expected = recording.frames[position]
        stored = content[position - base : position - base + len(expected)]
        if stored != expected:
            if is_uncertain:
                return
            raise Violation(
                "frames", f"{name}: another frame at {position}: {stored[:48].hex()}… {expected[:48].hex()}…"
            )
        position = end


def check_tail(disk: Disk, entry: Entry) -> None:
    """Behind the end of a recording all is zero, and no segment is."""
    first = entry.start // TERM_LENGTH * TERM_LENGTH
    base = first + (entry.stop - first) // entry.segment_length * entry.segment_length
    for begin, content in disk.segments(entry.recording_id).items():
        name = f"{entry.recording_id}-{begin}.rec"
        if begin > base:
            raise Violation("tail", f"{name} lies behind the end at {entry.stop}")
        if begin == base and content[entry.stop - base :].strip(b"\0"):
            raise Violation("tail", f"{name} is not zero behind the end at {entry.stop}")
        is_short = len(content) < entry.segment_length and (
            begin < base or (len(content) < entry.stop - base and entry.stop > entry.start)
        )
        if len(content) > entry.segment_length or is_short:
            raise Violation("tail", f"{name} has {len(content)} bytes of {entry.segment_length}")
