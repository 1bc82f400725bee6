"""Term and timestamp of the message that begins at a log position, from 72 bytes: plans leave out whole files by it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from container.files.catalog import RecordingDescriptor
from container.files.directories import Directory
from container.files.segments import segment_position
from container.recordings.remote import read_segment

_CLOCK_CHANGE_MIN = 120_000
_CLOCK_CHANGE_BITS = 24

_FRAME = struct.Struct("<iBBH")
_FRAME_LENGTH = 32
_DATA, _BEGIN_FLAG = 1, 0x80
_HEADER = struct.Struct("<HHHH")
_SCHEMA_ID = 111
# Where a message of the log has its timestamp, by template id (cluster schema: 1, 20 to 25), behind its header; all
# have their leadership term first.
_TIMESTAMP_OFFSETS = {1: 16, 20: 16, 21: 24, 22: 16, 23: 16, 24: 16, 25: 16}
_FIELD = struct.Struct("<q")
_NULL = -(2**63)
_READ_LENGTH = _FRAME_LENGTH + _HEADER.size + 32


class FirstMessage(NamedTuple):
    """The time of a part, as its first message gives it."""

    leadership_term_id: int
    timestamp: int


def clock_change(timestamp: int) -> int:
    """How much clocks are set, in the unit of a timestamp: some two minutes in milliseconds, and more in finer units.

    It is twice what the decoder takes for no damage (log_decoder.pyx).
    """
    return _CLOCK_CHANGE_MIN + (max(timestamp, 0) >> _CLOCK_CHANGE_BITS)


def first_message(archive_dir: Directory, descriptor: RecordingDescriptor, position: int) -> FirstMessage | None:
    """Return term and timestamp of the message that begins at a log position.

    None where none begins there, it has none of them, or it cannot be read.

    Raises:
        RecordingUnavailableError: it cannot be fetched from a remote directory.
    """
    base = segment_position(
        descriptor.start_position, position, descriptor.term_buffer_length, descriptor.segment_file_length
    )
    content = read_segment(archive_dir, descriptor.recording_id, base, position - base, _READ_LENGTH)
    if content is None or len(content) < _READ_LENGTH:
        return None
    length, _version, flags, kind = _FRAME.unpack_from(content)
    _block_length, template_id, schema_id, _schema_version = _HEADER.unpack_from(content, _FRAME_LENGTH)
    offset = _TIMESTAMP_OFFSETS.get(template_id)
    if kind != _DATA or not flags & _BEGIN_FLAG or schema_id != _SCHEMA_ID or offset is None:
        return None
    block = _FRAME_LENGTH + _HEADER.size
    if length < block + offset + _FIELD.size:
        return None
    term, timestamp = (_FIELD.unpack_from(content, block + place)[0] for place in (0, offset))
    return None if _NULL in (term, timestamp) else FirstMessage(term, timestamp)
