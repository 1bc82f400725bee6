"""The message with which a leadership term begins in a log, read by its position alone: upstream's template 24.

All members have the same one, whatever their archives called the recording, so it says whether two logs are one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from container.files.catalog import RecordingDescriptor
from container.files.directories import Directory
from container.files.segments import segment_position
from container.recordings.remote import read_segment

# A frame's header, then the message's (DataHeaderFlyweight.java, aeron-cluster-codecs.xml).
_FRAME = struct.Struct("<iBBHiiiiq")
_MESSAGE = struct.Struct("<HHHH")
_TERM = struct.Struct("<qqqqii")
_DATA_FRAME, _UNFRAGMENTED, _BEGIN = 1, 0xC0, 0x80
TERM_TEMPLATE_ID, _SCHEMA_ID = 24, 111


@dataclass(frozen=True, slots=True)
class TermMessage:
    """The message of a leader at the beginning of its term."""

    leadership_term_id: int
    log_position: int
    timestamp: int
    term_base_log_position: int
    leader_member_id: int
    log_session_id: int


def read_leadership_term_id(archive_dir: Directory, descriptor: RecordingDescriptor, position: int) -> int | None:
    """Return the leadership term of the message that begins at a log position; ``None`` where none begins.

    All messages of the log have it as their first field (aeron-cluster-codecs.xml).
    """
    content = _content(archive_dir, descriptor, position, _FRAME.size + _MESSAGE.size + 8)
    if content is None:
        return None
    _, _, flags, kind, *_ = _FRAME.unpack_from(content)
    block_length, _, schema_id, _ = _MESSAGE.unpack_from(content, _FRAME.size)
    if kind != _DATA_FRAME or not flags & _BEGIN or schema_id != _SCHEMA_ID or block_length < 8:
        return None
    return int.from_bytes(content[-8:], "little", signed=True)


def read_term_message(archive_dir: Directory, descriptor: RecordingDescriptor, position: int) -> TermMessage | None:
    """Return the message that begins a leadership term at a log position; ``None`` when there is none or no file."""
    content = _content(archive_dir, descriptor, position, _FRAME.size + _MESSAGE.size + _TERM.size)
    if content is None:
        return None
    length, _version, flags, kind, *_ = _FRAME.unpack_from(content)
    block_length, template_id, schema_id, _ = _MESSAGE.unpack_from(content, _FRAME.size)
    if (kind, flags, template_id, schema_id) != (_DATA_FRAME, _UNFRAGMENTED, TERM_TEMPLATE_ID, _SCHEMA_ID):
        return None
    if block_length < _TERM.size or length < len(content):
        return None
    return TermMessage(*_TERM.unpack_from(content, _FRAME.size + _MESSAGE.size))


def _content(archive_dir: Directory, descriptor: RecordingDescriptor, position: int, length: int) -> bytes | None:
    """So many bytes of the recording at a log position; ``None`` where they cannot be had."""
    base = segment_position(
        descriptor.start_position, position, descriptor.term_buffer_length, descriptor.segment_file_length
    )
    content = read_segment(archive_dir, descriptor.recording_id, base, position - base, length)
    return content if content is not None and len(content) == length else None
