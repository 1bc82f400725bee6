"""Frames as an archive records them, and descriptors of recordings, for the tests of its store."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from container.files.catalog import RecordingDescriptor

TERM_LENGTH = 1 << 16
HEADER_LENGTH = 32
DATA, PADDING = 1, 0
_HEADER = struct.Struct("<iBBHiiiiq")


@dataclass(frozen=True)
class Frames:
    """Makes the frames of one stream, by position."""

    term_length: int = TERM_LENGTH
    initial_term_id: int = 7
    session_id: int = -77
    stream_id: int = 1001

    def header(self, position: int, length: int, kind: int = DATA) -> bytes:
        term_id = (position // self.term_length + self.initial_term_id + 2**31) % 2**32 - 2**31
        term_offset = position % self.term_length
        return _HEADER.pack(length, 0, 0xC0, kind, term_offset, self.session_id, self.stream_id, term_id, 0)

    def data(self, position: int, payload: bytes) -> bytes:
        """A data frame, up to where the next one begins."""
        frame = self.header(position, HEADER_LENGTH + len(payload)) + payload
        return frame + bytes(-len(frame) % HEADER_LENGTH)

    def block(self, position: int, *payloads: bytes) -> bytes:
        """Data frames, one behind the other."""
        content = b""
        for payload in payloads:
            content += self.data(position + len(content), payload)
        return content

    def padding(self, position: int) -> bytes:
        """The header of a frame of padding up to the end of the term."""
        return self.header(position, self.rest(position), PADDING)

    def rest(self, position: int) -> int:
        return self.term_length - position % self.term_length


def descriptor(
    recording_id: int = 0,
    *,
    start_position: int = 0,
    stop_position: int = -1,
    segment_file_length: int = TERM_LENGTH,
    term_buffer_length: int = TERM_LENGTH,
    initial_term_id: int = 7,
    mtu_length: int = 1408,
    session_id: int = -77,
    stream_id: int = 1001,
) -> RecordingDescriptor:
    """A recording as the catalog has it."""
    return RecordingDescriptor(
        control_session_id=0,
        correlation_id=0,
        recording_id=recording_id,
        start_timestamp=1_000,
        stop_timestamp=-1,
        start_position=start_position,
        stop_position=stop_position,
        initial_term_id=initial_term_id,
        segment_file_length=segment_file_length,
        term_buffer_length=term_buffer_length,
        mtu_length=mtu_length,
        session_id=session_id,
        stream_id=stream_id,
        stripped_channel="aeron:ipc?alias=log",
        original_channel="aeron:ipc?alias=log|term-length=64k",
        source_identity="aeron:ipc",
    )
