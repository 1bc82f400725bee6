"""A member's recording log: its leadership terms and snapshots. Upstream: RecordingLog.java."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from container.common.regular_files import read_regular
from container.errors import RecordingError
from container.files.open_errors import unreadable

RECORDING_LOG_NAME = "recording.log"
CONSENSUS_MODULE_SERVICE_ID = -1
NULL_POSITION = -1

ENTRY_TYPE_TERM = 0
ENTRY_TYPE_SNAPSHOT = 1
ENTRY_TYPE_STANDBY_SNAPSHOT = 2
ENTRY_TYPE_NAMES = {
    ENTRY_TYPE_TERM: "TERM",
    ENTRY_TYPE_SNAPSHOT: "SNAPSHOT",
    ENTRY_TYPE_STANDBY_SNAPSHOT: "STANDBY_SNAPSHOT",
}

_LENGTH_MAX = 256 * 1024 * 1024  # four million entries: a term or a snapshot each
LOG_ENTRY = struct.Struct("<qqqqqiI")
LOG_ENTRY_ALIGNMENT = 64
_ENDPOINT_LENGTH = struct.Struct("<i")
INVALID_FLAG = 1 << 31
_TYPE_REMOVED = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class RecordingLogEntry:
    """An entry of the recording log; positions are log positions, -1 for none."""

    entry_index: int
    """Its place in the file, counted with removed ones."""
    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    """Of a term its end, -1 while it is open; of a snapshot the position that it represents."""
    timestamp: int
    service_id: int
    entry_type: int
    is_valid: bool
    archive_endpoint: str | None = None

    @property
    def is_term(self) -> bool:
        return self.entry_type == ENTRY_TYPE_TERM

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a snapshot in this member's own archive."""
        return self.entry_type == ENTRY_TYPE_SNAPSHOT


def read_recording_log(cluster_dir: str | Path) -> Iterator[RecordingLogEntry]:
    """Yield the entries of a cluster directory's recording log in the order of the file, without removed ones.

    Raises:
        FileNotFoundError: there is no recording log in that directory.
        RecordingUnavailableError: the directory is missing, or the file cannot be read.
        RecordingError: an entry is damaged: then those before it have been yielded.
    """
    path = Path(cluster_dir, RECORDING_LOG_NAME)
    try:
        content = read_regular(path, _LENGTH_MAX)
    except FileNotFoundError as error:
        if path.parent.is_dir():
            raise
        raise unreadable("the cluster directory", path.parent, error) from error
    except OSError as error:
        raise unreadable("the recording log", path, error) from error
    offset, index = 0, 0
    while offset < len(content):
        if offset + LOG_ENTRY.size > len(content):
            raise RecordingError(
                f"the last entry has {len(content) - offset} bytes of {LOG_ENTRY.size}", file=str(path), offset=offset
            )
        recording_id, term_id, base, position, timestamp, service_id, entry_type = LOG_ENTRY.unpack_from(
            content, offset
        )
        length, endpoint = LOG_ENTRY.size, None
        if entry_type != _TYPE_REMOVED:
            kind = entry_type & ~INVALID_FLAG
            if kind not in ENTRY_TYPE_NAMES:
                raise RecordingError(f"entry {index} has unknown type {kind}", file=str(path), offset=offset)
            if kind == ENTRY_TYPE_STANDBY_SNAPSHOT:
                endpoint = _read_endpoint(str(path), content, offset)
                length += _ENDPOINT_LENGTH.size + len(endpoint)
            is_valid = entry_type == kind
            yield RecordingLogEntry(
                index, recording_id, term_id, base, position, timestamp, service_id, kind, is_valid, endpoint
            )
        offset += (length + LOG_ENTRY_ALIGNMENT - 1) // LOG_ENTRY_ALIGNMENT * LOG_ENTRY_ALIGNMENT
        index += 1


def _read_endpoint(path: str, content: bytes, entry_offset: int) -> str:
    begin = entry_offset + LOG_ENTRY.size + _ENDPOINT_LENGTH.size
    length = int.from_bytes(content[begin - _ENDPOINT_LENGTH.size : begin], "little", signed=True)
    if begin > len(content) or not 0 < length <= len(content) - begin:
        raise RecordingError(
            f"the archive endpoint of a standby snapshot has an impossible length of {length}",
            file=path,
            offset=entry_offset,
        )
    return content[begin : begin + length].decode("ascii", "replace")


def committed_position(entries: Iterable[RecordingLogEntry]) -> int:
    """Return the log position up to which the recording log shows that the log is committed, or -1.

    A term is entered when a majority has everything before it, its end is entered when it is closed, and a snapshot is
    taken of committed messages only.
    """
    position = NULL_POSITION
    for entry in entries:
        if entry.is_valid:
            position = max(position, entry.log_position, entry.term_base_log_position)
    return position
