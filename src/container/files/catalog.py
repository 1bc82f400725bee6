"""The archive's catalog: which recordings there are, and how they lie in segment files.

Upstream: Catalog.java and aeron-archive-codecs.xml. The catalog is one file of entries at a fixed alignment; a running
archive writes to it, so what is read is what was true a moment ago.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from container.common.regular_files import checked_length, read_at
from container.common.semantic_version import format_version
from container.errors import RecordingError
from container.files.directories import Directory, open_in, path_in
from container.files.names import CATALOG_NAME
from container.files.open_errors import unreadable

NULL_POSITION = -1
POSITION_MAX = 1 << 61
"""No log position is greater: of 1 GiB, the longest, there are 2^31 terms at most."""

_MAJOR_VERSION = 3
_LENGTH_MAX = 2**31 - 1  # to an archive the catalog is one buffer of Java's
_PIECE_LENGTH = 64 * 1024
_ENTRY_LENGTH_MAX = 64 * 1024 * 1024  # more than the texts of the longest request to an archive
CATALOG_VERSION = 0x030100
CATALOG_HEADER = struct.Struct("<iiqi12x")
"""Version, length, next recording id, alignment."""
_OLD_ALIGNMENT = 1024  # of catalogs whose header has none; their first entry lies there too
_ALIGNMENT_MAX = 1 << 20
CATALOG_ALIGNMENT = 64
ENTRY_HEADER = struct.Struct("<iiI20x")
"""Length of the descriptor, state, checksum."""
STATE_INVALID, STATE_VALID, STATE_DELETED = 0, 1, 2
DESCRIPTOR = struct.Struct("<7q6i")
"""The fixed fields of :class:`RecordingDescriptor`; three texts follow."""
_TEXT_LENGTH = struct.Struct("<I")
_RECORDING_ID = struct.Struct("<q")
_RECORDING_ID_OFFSET = 16  # in the descriptor


@dataclass(frozen=True, slots=True)
class RecordingDescriptor:
    """A recording as the catalog has it; positions are log positions, times epoch milliseconds, -1 for none."""

    control_session_id: int
    """The id of the session with the archive that asked for the recording."""
    correlation_id: int
    """The correlation id of that request."""
    recording_id: int
    """The id of the recording, unique in its archive."""
    start_timestamp: int
    """The time of the start, in epoch milliseconds."""
    stop_timestamp: int
    """The time of the stop, in epoch milliseconds; -1 while the recording is active, and after a crash."""
    start_position: int
    """The position of the first byte."""
    stop_position: int
    """The position behind the last byte; -1 while the recording is active, and after a crash."""
    initial_term_id: int
    """The id of the stream's first term."""
    segment_file_length: int
    """The length of each segment file, in bytes."""
    term_buffer_length: int
    """The length of a term, in bytes."""
    mtu_length: int
    """The maximum length of a packet, in bytes."""
    session_id: int
    """The id of the publication's session."""
    stream_id: int
    """The id of the stream."""
    stripped_channel: str
    """The channel without parameters that do not identify the stream."""
    original_channel: str
    """The channel as it was requested."""
    source_identity: str
    """The address of the sender, or ``aeron:ipc``."""

    def layout(self) -> dict[str, int]:
        """Return what a reader of its frames needs to know."""
        return {
            "recording_id": self.recording_id,
            "start_position": self.start_position,
            "term_length": self.term_buffer_length,
            "segment_length": self.segment_file_length,
            "initial_term_id": self.initial_term_id,
            "mtu_length": self.mtu_length,
            "stream_id": self.stream_id,
        }


def read_catalog(archive_dir: Directory, recording_ids: Collection[int] | None = None) -> Iterator[RecordingDescriptor]:
    """Yield the valid recordings of an archive, or those of some ids alone, in the order of its catalog.

    Raises:
        RecordingError: there is no catalog, it cannot be read, its version is unknown, or an entry is damaged: then
            those before it have been yielded.
    """
    for _state, descriptor in read_entries(archive_dir, recording_ids, (STATE_VALID,)):
        yield descriptor


def read_entries(
    archive_dir: Directory,
    recording_ids: Collection[int] | None = None,
    states: Collection[int] = (STATE_INVALID, STATE_VALID, STATE_DELETED),
) -> Iterator[tuple[int, RecordingDescriptor]]:
    """Yield state and descriptor of the recordings in some states, or of some ids among them.

    Raises:
        RecordingError: as :func:`read_catalog`.
    """
    path = path_in(archive_dir, CATALOG_NAME)
    try:
        descriptor = open_in(archive_dir, CATALOG_NAME)
        try:
            yield from _read_pieces(descriptor, path, recording_ids, states)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable("the catalog", path, error) from error


def _read_pieces(
    descriptor: int, path: str, recording_ids: Collection[int] | None, states: Collection[int]
) -> Iterator[tuple[int, RecordingDescriptor]]:
    """The entries of an open catalog, of which a piece at a time is in memory: a sparse file may be long."""
    file_length = checked_length(descriptor, path, _LENGTH_MAX)
    offset, alignment = _read_header(path, read_at(descriptor, 0, CATALOG_HEADER.size))
    piece, piece_offset = b"", offset
    while offset + ENTRY_HEADER.size <= file_length:
        if offset + ENTRY_HEADER.size > piece_offset + len(piece):
            piece, piece_offset = read_at(descriptor, offset, _PIECE_LENGTH), offset
            if len(piece) < ENTRY_HEADER.size:
                return  # it was cut short meanwhile
        length, state, _checksum = ENTRY_HEADER.unpack_from(piece, offset - piece_offset)
        if length <= 0:
            return
        entry_length = ENTRY_HEADER.size + length
        is_beyond = offset + entry_length > file_length
        if not is_beyond and entry_length > _ENTRY_LENGTH_MAX:
            raise RecordingError(f"an entry of {entry_length} bytes is impossible", file=path, offset=offset)
        if not is_beyond and offset + entry_length > piece_offset + len(piece):
            piece, piece_offset = read_at(descriptor, offset, max(_PIECE_LENGTH, entry_length)), offset
            is_beyond = len(piece) < entry_length
        if is_beyond:
            raise RecordingError(
                f"an entry of {entry_length} bytes reaches beyond the {file_length} bytes of the catalog",
                file=path,
                offset=offset,
            )
        begin = offset - piece_offset
        if state in states and _is_wanted(piece, begin, length, recording_ids):
            yield (
                state,
                parse_descriptor(
                    path, piece, begin + ENTRY_HEADER.size, begin + entry_length, content_offset=piece_offset
                ),
            )
        offset += (entry_length + alignment - 1) // alignment * alignment


def _is_wanted(content: bytes, offset: int, length: int, recording_ids: Collection[int] | None) -> bool:
    """Whether an entry is asked for; one too short to have an id is, as whoever reads it finds the damage."""
    if recording_ids is None or length < _RECORDING_ID_OFFSET + _RECORDING_ID.size:
        return True
    return _RECORDING_ID.unpack_from(content, offset + ENTRY_HEADER.size + _RECORDING_ID_OFFSET)[0] in recording_ids


def _read_header(path: str, content: bytes) -> tuple[int, int]:
    """Check the version; return the offset of the first entry, and the alignment of entries."""
    if len(content) < CATALOG_HEADER.size:
        raise RecordingError(f"the catalog has {len(content)} bytes, fewer than its header", file=path)
    version, _length, _next_recording_id, alignment = CATALOG_HEADER.unpack_from(content)
    if version >> 16 != _MAJOR_VERSION:
        raise RecordingError(
            f"the catalog has version {format_version(version)}, only {_MAJOR_VERSION}.x is known", file=path, offset=0
        )
    if alignment == 0:
        return _OLD_ALIGNMENT, _OLD_ALIGNMENT
    if not 0 < alignment <= _ALIGNMENT_MAX:
        raise RecordingError(f"alignment {alignment} of the catalog is impossible", file=path, offset=16)
    return CATALOG_HEADER.size, alignment


def parse_descriptor(
    path: str, content: bytes, begin: int, end: int, *, content_offset: int = 0
) -> RecordingDescriptor:
    """Return the descriptor that lies from ``begin`` to ``end`` in bytes of the catalog ``path``.

    ``content_offset`` is where the bytes lie in the file. Raises RecordingError when it is damaged.
    """
    if end - begin < DESCRIPTOR.size:
        text = f"a descriptor has {end - begin} bytes, at least {DESCRIPTOR.size} are needed"
        raise RecordingError(text, file=path, offset=content_offset + begin)
    offset, texts = begin + DESCRIPTOR.size, []
    for _ in range(3):
        length = _TEXT_LENGTH.unpack_from(content, offset)[0] if offset + _TEXT_LENGTH.size <= end else end
        text_begin = offset + _TEXT_LENGTH.size
        offset = text_begin + length
        if offset > end:
            text = "a text reaches beyond its descriptor"
            raise RecordingError(text, file=path, offset=content_offset + text_begin)
        texts.append(content[text_begin:offset].decode("ascii", "replace"))
    return RecordingDescriptor(*DESCRIPTOR.unpack_from(content, begin), *texts)
