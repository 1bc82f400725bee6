"""Read and write what a member's archive and consensus module store: recording log, catalog, recordings.

For tests. Recordings are read from their files, which may still be written to; what is written has the true format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from container.common.regular_files import read_regular
from container.errors import ContainerError
from container.files.catalog import (
    CATALOG_ALIGNMENT,
    CATALOG_HEADER,
    CATALOG_VERSION,
    DESCRIPTOR,
    ENTRY_HEADER,
    NULL_POSITION,
    STATE_VALID,
    RecordingDescriptor,
)
from container.files.names import CATALOG_NAME, RECORDING_LOG_NAME
from container.files.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    ENTRY_TYPE_SNAPSHOT,
    INVALID_FLAG,
    LOG_ENTRY,
    LOG_ENTRY_ALIGNMENT,
    RecordingLogEntry,
    read_recording_log,
)
from container.testing.processes.recording_writer import RecordingWriter

__all__ = [
    "CONSENSUS_MODULE_SERVICE_ID",
    "RECORDING_LOG_NAME",
    "RecordingWriter",
    "SnapshotEntry",
    "descriptor_of",
    "latest_snapshot",
    "read_snapshot_entries",
    "recorded_messages",
    "write_catalog",
    "write_recording_log",
]

# Frames as in a log buffer (upstream: DataHeaderFlyweight.java).
_FRAME = struct.Struct("<iBBH")
_FRAME_HEADER_LENGTH = 32
_SEGMENT_LENGTH_MAX = 1024**3
_FRAME_TYPE_DATA = 1
_FLAG_BEGIN, _FLAG_END = 0x80, 0x40

_CATALOG_LENGTH_MIN = 1024 * 1024


class SnapshotEntry(NamedTuple):
    """One valid snapshot in the recording log; the consensus module's own has service id -1."""

    recording_id: int
    leadership_term_id: int
    log_position: int
    service_id: int


def read_snapshot_entries(cluster_dir: Path) -> list[SnapshotEntry]:
    """Return the valid snapshots in a cluster directory's recording log, in the order of the file.

    Raises:
        FileNotFoundError: there is no recording log.
    """
    return [
        SnapshotEntry(entry.recording_id, entry.leadership_term_id, entry.log_position, entry.service_id)
        for entry in read_recording_log(cluster_dir)
        if entry.entry_type == ENTRY_TYPE_SNAPSHOT and entry.is_valid
    ]


def latest_snapshot(cluster_dir: Path, service_id: int = 0) -> SnapshotEntry:
    """Return the snapshot of a service with the greatest log position.

    Raises:
        FileNotFoundError: there is no recording log.
        ContainerError: there is no snapshot of that service in it.
    """
    of_service = [entry for entry in read_snapshot_entries(cluster_dir) if entry.service_id == service_id]
    if not of_service:
        raise ContainerError(f"{cluster_dir / RECORDING_LOG_NAME} has no snapshot of service_id={service_id}")
    return max(of_service, key=lambda entry: entry.log_position)


def recorded_messages(archive_dir: Path, recording_id: int) -> list[bytes]:
    """Return the whole messages of a recording, from its first segment file on.

    Raises:
        ContainerError: the recording has no segment file.
    """
    segments = sorted(archive_dir.glob(f"{recording_id}-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))
    if not segments:
        raise ContainerError(f"{archive_dir} has no segment of recording_id={recording_id}")
    messages, parts = [], bytearray()
    for segment in segments:
        for flags, payload in _frames(read_regular(segment, _SEGMENT_LENGTH_MAX)):
            if flags & _FLAG_BEGIN:
                parts.clear()
            parts += payload
            if flags & _FLAG_END:
                messages.append(bytes(parts))
    return messages


def _frames(content: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _FRAME_HEADER_LENGTH <= len(content):
        length, _version, flags, kind = _FRAME.unpack_from(content, offset)
        if length <= 0:
            return
        if kind == _FRAME_TYPE_DATA:
            yield flags, content[offset + _FRAME_HEADER_LENGTH : offset + length]
        offset += (length + _FRAME_HEADER_LENGTH - 1) & -_FRAME_HEADER_LENGTH


def descriptor_of(
    writer: RecordingWriter, *, stop: bool = True, channel: str = "aeron:udp?alias=log", timestamp_ms: int = 1
) -> RecordingDescriptor:
    """Return the catalog's entry for a recording that was written: stopped, or as a crash leaves it."""
    return RecordingDescriptor(
        control_session_id=0,
        correlation_id=0,
        recording_id=writer.recording_id,
        start_timestamp=timestamp_ms,
        stop_timestamp=timestamp_ms if stop else NULL_POSITION,
        start_position=writer.start_position,
        stop_position=writer.position if stop else NULL_POSITION,
        initial_term_id=writer.initial_term_id,
        segment_file_length=writer.segment_length,
        term_buffer_length=writer.term_length,
        mtu_length=writer.mtu_length,
        session_id=writer.session_id,
        stream_id=writer.stream_id,
        stripped_channel=channel,
        original_channel=channel,
        source_identity="aeron:ipc",
    )


def write_catalog(archive_dir: Path, descriptors: Iterable[RecordingDescriptor], *, checksum: bool = False) -> Path:
    """Write an archive's catalog with these recordings, in ascending order of their ids, and return its path.

    With ``checksum`` its entries have a CRC-32, as those of an archive that records checksums.
    """
    entries, next_recording_id = b"", 0
    for descriptor in descriptors:
        values = [getattr(descriptor, name) for name in RecordingDescriptor.__slots__]
        body = DESCRIPTOR.pack(*values[:-3])
        for text in values[-3:]:
            body += struct.pack("<I", len(text)) + text.encode("ascii")
        length = _aligned(ENTRY_HEADER.size + len(body), CATALOG_ALIGNMENT) - ENTRY_HEADER.size
        body = body.ljust(length, b"\0")
        entries += ENTRY_HEADER.pack(length, STATE_VALID, zlib.crc32(body) if checksum else 0) + body
        next_recording_id = descriptor.recording_id + 1
    header = CATALOG_HEADER.pack(CATALOG_VERSION, CATALOG_HEADER.size, next_recording_id, CATALOG_ALIGNMENT)
    path = archive_dir / CATALOG_NAME
    path.write_bytes((header + entries).ljust(_CATALOG_LENGTH_MIN, b"\0"))
    return path


def write_recording_log(cluster_dir: Path, entries: Iterable[RecordingLogEntry]) -> Path:
    """Write a recording log with these entries, whose indices must count from 0, and return its path."""
    content = b""
    for entry in entries:
        values = [getattr(entry, name) for name in RecordingLogEntry.__slots__[1:7]]
        fixed = LOG_ENTRY.pack(*values, entry.entry_type | (0 if entry.is_valid else INVALID_FLAG))
        if entry.archive_endpoint is not None:
            fixed += struct.pack("<i", len(entry.archive_endpoint)) + entry.archive_endpoint.encode("ascii")
        content += fixed.ljust(_aligned(len(fixed), LOG_ENTRY_ALIGNMENT), b"\0")
    path = cluster_dir / RECORDING_LOG_NAME
    path.write_bytes(content)
    return path


def _aligned(length: int, alignment: int) -> int:
    return (length + alignment - 1) // alignment * alignment
