"""Frames and messages of a recording, checked while they are read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from container.archive.server.store.segment_reader import SegmentReader
from container.files.catalog import RecordingDescriptor
from container.storage.file_storage import FileStorage

_HEADER = struct.Struct("<iBBHiiiiq")
_ALIGNMENT = 32
_BUFFER_LENGTH = 1 << 20
_DATA = 1
_BEGIN, _END = 0x80, 0x40


class RawFrame(NamedTuple):
    """A frame; its payload is None for padding."""

    position: int
    end: int
    length: int
    flags: int
    is_data: bool
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    reserved_value: int
    payload: bytes | None


class RawMessage(NamedTuple):
    """A message that was put together from its frames."""

    begin_position: int
    log_position: int
    data: bytes


def read_frames(
    archive_dir: Path, descriptor: RecordingDescriptor, begin: int, end: int, checksum: int = 0
) -> Iterator[RawFrame]:
    """Yield the frames from a position where one begins up to another one.

    Raises:
        RecordingError: what is there is no frame of the recording, or its checksum is wrong; those before it have been
            yielded.
    """
    reader = SegmentReader(FileStorage(), str(archive_dir), descriptor, begin, checksum=checksum)
    with closing(reader):
        while True:
            position = reader.position
            length, content = reader.read_frames(end, _BUFFER_LENGTH)
            if length == 0:
                return
            offset = 0
            while offset < len(content):
                frame = _frame(content, offset, position + offset)
                yield frame
                offset += frame.end - frame.position
            reader.skip(length)


def _frame(content: bytes, offset: int, position: int) -> RawFrame:
    length, _, flags, kind, term_offset, session_id, stream_id, term_id, reserved = _HEADER.unpack_from(content, offset)
    is_data = kind == _DATA
    payload = content[offset + _HEADER.size : offset + length] if is_data else None
    aligned = (length + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    end = position + aligned
    return RawFrame(
        position, end, length, flags, is_data, term_offset, session_id, stream_id, term_id, reserved, payload
    )


def frame_border(descriptor: RecordingDescriptor, position: int) -> int:
    """Return a position where a frame begins for certain, not behind the given one: the beginning of its Aeron term."""
    return max(descriptor.start_position, position // descriptor.term_buffer_length * descriptor.term_buffer_length)


def read_messages(archive_dir: Path, descriptor: RecordingDescriptor, begin: int, end: int) -> Iterator[RawMessage]:
    """Yield the messages from a position where a frame begins up to another one; one that is cut off is left out.

    Raises:
        RecordingError: as :func:`read_frames`.
    """
    parts: list[bytes] = []
    first = -1
    for frame in read_frames(archive_dir, descriptor, begin, end):
        if frame.payload is None:
            continue
        if frame.flags & _BEGIN:
            parts, first = [], frame.position
        if first < 0:
            continue  # the middle of a message that began before
        parts.append(frame.payload)
        if frame.flags & _END:
            yield RawMessage(first, frame.end, b"".join(parts))
            parts, first = [], -1
