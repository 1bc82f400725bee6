"""Catalogs, recordings and recording logs on nodes' disks, read without the code that wrote them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from container.storage.storage_seam import READ_ONLY, Storage

ARCHIVE_DIR, CLUSTER_DIR = "/node/archive", "/node/cluster"
LOG_STREAM_ID = 100
TERM_LENGTH = 1 << 16
PADDING = 0
"""The type of frames that have no data."""
CANDIDATE_TERM = 301
"""The template of the record in the node state file."""
_CATALOG_HEADER = struct.Struct("<iiqi12x")
_ENTRY_HEADER = struct.Struct("<iiI20x")
_DESCRIPTOR = struct.Struct("<7q6i")
_VALID, _DELETED = 1, 2
_FRAME = struct.Struct("<iBBHiiiiq")
FRAME_HEADER_LENGTH = _FRAME.size
_DATA = 1
_BEGIN, _END = 0x80, 0x40
_ENTRY = struct.Struct("<qqqqqiI12x4x")
_TERM, _SNAPSHOT = 0, 1


class Violation(AssertionError):
    """The archive broke a promise.

    Args:
        oracle: which check found it, in a word (str); a plan is shrunk as long as the same one does.
        text: what is wrong (str).
    """

    def __init__(self, oracle: str, text: str) -> None:
        super().__init__(f"{oracle}: {text}")
        self.oracle = oracle


@dataclass(frozen=True)
class Entry:
    """A recording in the catalog."""

    recording_id: int
    start: int
    stop: int
    segment_length: int
    session_id: int
    stream_id: int


def read_catalog(content: bytes) -> tuple[int, list[Entry], set[int]]:
    """The next recording id, the recordings, and the ids of those that were purged."""
    if len(content) < _CATALOG_HEADER.size:
        raise Violation("catalog", f"it has {len(content)} bytes")
    version, length, next_id, alignment = _CATALOG_HEADER.unpack_from(content)
    if (version >> 16, length) != (3, 32) or alignment < 32 or alignment & (alignment - 1):
        raise Violation("catalog", f"version {version:#x}, header of {length} bytes, alignment {alignment}")
    offset = 32
    entries: list[Entry] = []
    deleted: set[int] = set()
    while offset + _ENTRY_HEADER.size <= len(content):
        length, state, _ = _ENTRY_HEADER.unpack_from(content, offset)
        if length <= 0:
            break
        fields = _DESCRIPTOR.unpack_from(content, offset + _ENTRY_HEADER.size)
        recording_id, start, stop, segment_length = fields[2], fields[5], fields[6], fields[8]
        if state == _VALID:
            entries.append(Entry(recording_id, start, stop, segment_length, fields[11], fields[12]))
        elif state == _DELETED:
            deleted.add(recording_id)
        else:
            raise Violation("catalog", f"an entry at {offset} has state {state}")
        offset += -(-(_ENTRY_HEADER.size + length) // alignment) * alignment
    if content[offset:].strip(b"\0"):
        raise Violation("catalog", f"it is not zero behind its last entry, which ends at {offset}")
    ids = [each.recording_id for each in entries]
    if ids != sorted(set(ids)) or any(each >= next_id for each in (*ids, *deleted)):
        raise Violation("catalog", f"ids {ids}, purged {sorted(deleted)}, the next one is {next_id}")
    return next_id, entries, deleted


def read_file(storage: Storage, path: str) -> bytes:
    """All of a file; nothing when it is not there."""
    if not storage.exists(path):
        return b""
    file = storage.open_file(path, READ_ONLY)
    try:
        return file.read(file.length(), 0)
    finally:
        file.close()


def read_recording(storage: Storage, entry: Entry, known: bytes) -> bytes:
    """The bytes of a recording from 0 up to the end of its last segment; those of segments that are gone are known."""
    prefix, found = f"{entry.recording_id}-", {}
    for name in storage.list_directory(ARCHIVE_DIR):
        if name.startswith(prefix) and name.endswith(".rec"):
            found[int(name[len(prefix) : -4])] = name
    begin = min(found, default=0)
    if begin > len(known):
        raise Violation("retention", f"the log begins at {begin}, and was final up to {len(known)} alone")
    content = known[:begin]
    while len(content) in found:
        content += read_file(storage, f"{ARCHIVE_DIR}/{found[len(content)]}").ljust(entry.segment_length, b"\0")
    return content if entry.stop < 0 else content[: entry.stop]


def frames(content: bytes, position: int = 0) -> Iterator[tuple[int, int, int, int, int]]:
    """Begin, end, length, flags and type of each frame from a position on, up to where none is."""
    while position + _FRAME.size <= len(content):
        length, _, flags, kind, *_ = _FRAME.unpack_from(content, position)
        if length <= 0:
            return
        begin, position = position, position + -(-length // 32) * 32
        yield begin, position, length, flags, kind


def messages_of(content: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    """The end and the bytes of each message from a position on, none for padding, up to where no frame is."""
    part = b""
    for begin, end, length, flags, kind in frames(content, position):
        if end > len(content):
            return
        if kind != _DATA:
            yield end, b""
            continue
        part = (b"" if flags & _BEGIN else part) + content[begin + FRAME_HEADER_LENGTH : begin + length]
        if flags & _END:
            yield end, part


@dataclass(frozen=True)
class LogEntry:
    """A term or a snapshot in the recording log."""

    recording_id: int
    term_id: int
    base: int
    position: int
    service_id: int
    is_snapshot: bool


def read_recording_log(content: bytes) -> list[LogEntry]:
    """The valid entries of a recording log without standby snapshots."""
    entries = []
    for offset in range(0, len(content) - 63, 64):
        recording_id, term_id, base, position, _, service_id, kind = _ENTRY.unpack_from(content, offset)
        if not content[offset : offset + 64].strip(b"\0"):
            break
        if kind in (_TERM, _SNAPSHOT):
            entries.append(LogEntry(recording_id, term_id, base, position, service_id, kind == _SNAPSHOT))
    return entries


def check_retention(snapshots: list[LogEntry], start: int, services: int, retained: int) -> int:
    """Nothing in front of the snapshots that are kept is missing of them; from which position on all must be there."""
    sets: dict[int, set[int]] = {}
    for each in snapshots:
        sets.setdefault(each.position, set()).add(each.service_id)
    whole = sorted(position for position, found in sets.items() if len(found) == services + 1)
    kept_from = whole[-retained] if 0 < retained <= len(whole) else 0
    if start > kept_from:
        raise Violation("retention", f"the log begins at {start}, and the snapshots that count are at {whole}")
    return kept_from


def frames_of(content: bytes) -> bytes:
    """The part of frames that members have in common: lengths, flags, types, payloads of data; not the sender."""
    same = bytearray(content)
    for begin, end, _, _, kind in frames(content):
        same[begin + 12 : begin + FRAME_HEADER_LENGTH] = bytes(FRAME_HEADER_LENGTH - 12)
        if kind == PADDING:
            last = min(end, len(content))
            same[begin + FRAME_HEADER_LENGTH : last] = bytes(max(0, last - begin - FRAME_HEADER_LENGTH))
    return bytes(same)


def voted_term_of(content: bytes) -> int:
    """The last term that a member has voted in, of the beginning of its node state; -1 for none."""
    position = 8
    while position + 40 <= len(content):
        _, template_id, _, _, length = struct.unpack_from("<HHHHi", content, position)
        if template_id == CANDIDATE_TERM:
            return int(struct.unpack_from("<q", content, position + 16)[0])
        position += -(-length // 8) * 8 or len(content)
    return -1
