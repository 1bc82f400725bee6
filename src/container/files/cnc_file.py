"""Read what Aeron's processes publish in mapped files: a driver's counters and errors, and mark files.

The files are read and not mapped, so that one which is cut short meanwhile cannot end the process.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from container.common.regular_files import checked_length, open_regular, read_at, write_at
from container.errors import ContainerError
from container.files.error_log import ErrorRecord, read_error_log
from container.files.names import CNC_FILE_NAME
from container.transport.counters import (
    COUNTER_KEY,
    COUNTER_LABEL_LENGTH_OFFSET,
    COUNTER_LABEL_OFFSET,
    COUNTER_MAX_LABEL_LENGTH,
    COUNTER_METADATA_LENGTH,
    COUNTER_VALUE_LENGTH,
)

MARK_FILE_LIVENESS_TIMEOUT_MS = 10_000
"""A mark file younger than this has a live owner (upstream: ClusteredServiceContainer.java, Archive.java)."""
MARK_FILE_TERMINATED = -1
"""The activity timestamp that an orderly end leaves."""
MARK_FILE_ACTIVATING = 2**63 - 1
"""The activity timestamp while an owner starts; it stays when that owner is killed."""
COMPONENT_BACKUP = 3
"""The component type of a backup's mark file."""

# Metadata, then the five buffers whose lengths it holds (upstream: CncFileDescriptor.java).
_CNC_METADATA = struct.Struct("<6iqqqi")
_CNC_METADATA_LENGTH = 128
_CNC_MAJOR_VERSION = 0

# In the ring buffer of requests, counted from its end (upstream: Agrona's RingBufferDescriptor.java).
_HEARTBEAT_OFFSET_FROM_END = 128
_DRIVER_LIVENESS_TIMEOUT_MS = 10_000

_COUNTER_VALUES = struct.Struct("<qqqq")
_COUNTER_UNUSED = 0
_COUNTER_ALLOCATED = 1

# Offsets from the end of the SBE header (upstream: aeron-cluster-mark-codecs.xml and the archive's).
_SBE_HEADER = struct.Struct("<HHHH")
_MARK_FILE_TEMPLATE_ID = 200
_MARK_FILE_HEADER_LENGTH_MIN = 136
_MARK_FILE_LENGTH_MAX = 2**31
_MARK_FILE_HEADER_LENGTH_MAX = 64 * 1024
_ERROR_LOG_LENGTH_MAX = 64 * 1024 * 1024  # of longer ones, which nobody fills, that much is read
_ARCHIVE_SCHEMA_ID = 100
_MARK_FILE_ERROR_LENGTHS_OFFSETS = {_ARCHIVE_SCHEMA_ID: 44, 110: 64}
_ARCHIVE_TEXTS_BEFORE_LOCAL_CONTROL = 1  # the control channel
_ARCHIVE_TEXTS_BEFORE_AERON_DIR = 3  # control, local control and events channel
_MARK_FILE_ACTIVITY_TIMESTAMP_OFFSET = 8
_MARK_FILE_START = struct.Struct("<i4xqqq")
_MARK_FILE_ARCHIVE_ID = struct.Struct("<56xq")
_MARK_FILE_LOCAL_CONTROL = struct.Struct("<36xi")  # the stream
_MARK_FILE_MEMBER = struct.Struct("<56xi12xi")  # member id, cluster id
_MARK_FILE_COMPONENT_TYPE = struct.Struct("<4xi")


class FileFormatError(ContainerError):
    """A mapped file is not what its name says; the text names the file and the value."""


@dataclass(frozen=True)
class CounterRecord:
    """One allocated counter, as it was when it was read."""

    counter_id: int
    type_id: int
    key: bytes
    label: str
    value: int
    registration_id: int
    owner_id: int
    reference_id: int

    def key_int32(self, offset: int) -> int:
        """Return the int32 at ``offset`` of the key, such as a cluster's or a service's id."""
        return int.from_bytes(self.key[offset : offset + 4], "little", signed=True)

    def key_int64(self, offset: int) -> int:
        """Return the int64 at ``offset`` of the key, such as a recording's id."""
        return int.from_bytes(self.key[offset : offset + 8], "little", signed=True)


class CncFile:
    """A driver's ``cnc.dat``, opened for reading: its counters and its error log.

    The file changes while it is read: values are read one by one, and counters come and go meanwhile. Those of a dead
    driver stay in it.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            FileNotFoundError: the driver has not made it yet.
            FileFormatError: the driver has not filled it yet, it has another major version, or is damaged or no regular
            file.
        """
        self.path = path
        try:
            # An object of C closes it when it is dropped: in a `__del__` of Python a Ctrl-C would be lost.
            self._file = FileIO(open_regular(path))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise FileFormatError(f"{path} cannot be read: {error.strerror}") from error
        try:
            self._read_metadata()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open_ready(cls, directory: Path) -> CncFile | None:
        """Open the file of an Aeron directory; ``None`` while the driver has not made and filled it."""
        try:
            return cls(directory / CNC_FILE_NAME)
        except (FileNotFoundError, FileFormatError):
            return None

    def _read(self, offset: int, length: int) -> bytes:
        content = read_at(self._file.fileno(), offset, length)
        if len(content) < length:
            raise FileFormatError(
                f"{self.path} ends at byte {os.fstat(self._file.fileno()).st_size}, before its metadata says"
            )
        return content

    def _read_metadata(self) -> None:
        length = os.fstat(self._file.fileno()).st_size
        if length < _CNC_METADATA_LENGTH:
            raise FileFormatError(f"{self.path} has {length} bytes; its driver may still be starting")
        values = _CNC_METADATA.unpack(self._read(0, _CNC_METADATA.size))
        self.version, to_driver, to_clients, counters_metadata, counters_values, error_log = values[:6]
        if self.version == 0:
            raise FileFormatError(f"{self.path} has version 0; its driver may still be starting")
        if min(values[1:6]) < 0:
            raise FileFormatError(f"{self.path} is damaged: its metadata has the buffer lengths {values[1:6]}")
        major = self.version >> 16
        if major != _CNC_MAJOR_VERSION:
            raise FileFormatError(f"{self.path} has major version {major}, expected {_CNC_MAJOR_VERSION}")
        self.client_liveness_timeout_ns, self.start_timestamp_ms, self.pid, self.file_page_size = values[6:]
        self._heartbeat_offset = _CNC_METADATA_LENGTH + to_driver - _HEARTBEAT_OFFSET_FROM_END
        self._metadata_offset = _CNC_METADATA_LENGTH + to_driver + to_clients
        self._values_offset = self._metadata_offset + counters_metadata
        self._error_log_offset = self._values_offset + counters_values
        self._error_log_length = error_log
        self._counters_max = counters_values // COUNTER_VALUE_LENGTH
        if self._error_log_offset + error_log > length:
            raise FileFormatError(f"{self.path} has {length} bytes, fewer than its metadata says")

    def counters(self) -> Iterator[CounterRecord]:
        """Yield the allocated counters in the order of their ids.

        Raises:
            FileFormatError: the file was cut short meanwhile.
        """
        for counter_id in range(self._counters_max):
            metadata = self._read(self._metadata_offset + counter_id * COUNTER_METADATA_LENGTH, COUNTER_METADATA_LENGTH)
            state, type_id = struct.unpack_from("<ii", metadata)
            if state == _COUNTER_UNUSED:
                return
            if state == _COUNTER_ALLOCATED:
                yield self._counter(counter_id, type_id, metadata)

    def _counter(self, counter_id: int, type_id: int, metadata: bytes) -> CounterRecord:
        (label_length,) = struct.unpack_from("<i", metadata, COUNTER_LABEL_LENGTH_OFFSET)
        label_end = COUNTER_LABEL_OFFSET + max(0, min(label_length, COUNTER_MAX_LABEL_LENGTH))
        values = self._read(self._values_offset + counter_id * COUNTER_VALUE_LENGTH, _COUNTER_VALUES.size)
        return CounterRecord(
            counter_id,
            type_id,
            metadata[COUNTER_KEY],
            metadata[COUNTER_LABEL_OFFSET:label_end].decode("ascii", "replace"),
            *_COUNTER_VALUES.unpack(values),
        )

    def is_driver_alive(self, now_ms: int) -> bool:
        """Whether the driver has shown a sign of life within the last 10 s (epoch milliseconds)."""
        (heartbeat_ms,) = struct.unpack("<q", self._read(max(0, self._heartbeat_offset), 8))
        return bool(heartbeat_ms + _DRIVER_LIVENESS_TIMEOUT_MS > now_ms)

    def errors(self) -> list[ErrorRecord]:
        """Return the driver's distinct errors.

        Raises:
            FileFormatError: the file was cut short meanwhile.
        """
        return read_error_log(self._read(self._error_log_offset, min(self._error_log_length, _ERROR_LOG_LENGTH_MAX)))

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()


@dataclass(frozen=True)
class MarkFileStatus:
    """Facts in a mark file (of the archive, the consensus module or a service) about its owner."""

    path: Path
    version: int
    activity_timestamp_ms: int
    start_timestamp_ms: int
    pid: int
    errors: tuple[ErrorRecord, ...]
    aeron_dir: str
    """The directory of the owner's media driver; empty where the file does not say."""
    owner_id: int
    """The archive id of an archive, the member id of a consensus module or a service; -1 where it is not known."""
    cluster_id: int
    """0 for an archive."""
    component_type: int = 0
    """The kind of owner: 1 a consensus module, 2 a service, 3 a backup, 4 a standby; 0 an archive."""
    local_control_channel: str = ""
    """The channel on which an archive listens to this machine, with :attr:`local_control_stream_id`."""
    local_control_stream_id: int = 0

    def is_alive(self, now_ms: int) -> bool:
        """Whether the owner has updated its file within the last 10 s (epoch milliseconds)."""
        return (
            self.activity_timestamp_ms != MARK_FILE_ACTIVATING
            and self.activity_timestamp_ms + MARK_FILE_LIVENESS_TIMEOUT_MS > now_ms
        )

    @property
    def is_active(self) -> bool:
        """Whether its owner has started and has not ended in order; a dead one may be active as well."""
        return 0 < self.activity_timestamp_ms < MARK_FILE_ACTIVATING

    def takeable_in_ms(self, now_ms: int) -> int:
        """Return the milliseconds until another owner may take the file over, not below 0.

        Raises:
            FileFormatError: never, because its owner is starting, or was killed while it started.
        """
        if self.activity_timestamp_ms == MARK_FILE_ACTIVATING:
            raise FileFormatError(
                f"{self.path} is being activated by pid {self.pid}; if that process is dead, delete the file"
            )
        return max(0, self.activity_timestamp_ms + MARK_FILE_LIVENESS_TIMEOUT_MS - now_ms)


def read_mark_file(path: Path) -> MarkFileStatus:
    """Read a mark file of the archive (schema 100) or of the cluster (schema 110).

    Raises:
        FileNotFoundError: there is none.
        FileFormatError: it is not a mark file with an SBE header, or is just being created.
        OSError: it cannot be read, is not a regular file, or is longer than any mark file.
    """
    file = open_regular(path)
    try:
        checked_length(file, path, _MARK_FILE_LENGTH_MAX)
        content = read_at(file, 0, _MARK_FILE_HEADER_LENGTH_MAX)
        schema_id = _mark_file_schema_id(path, content)
        if len(content) < _MARK_FILE_HEADER_LENGTH_MIN:
            raise FileFormatError(f"{path} has {len(content)} bytes, fewer than the header of a mark file")
        lengths_offset = _SBE_HEADER.size + _MARK_FILE_ERROR_LENGTHS_OFFSETS[schema_id]
        header_length, error_buffer_length = struct.unpack_from("<ii", content, lengths_offset)
        errors_length = min(max(0, error_buffer_length), _ERROR_LOG_LENGTH_MAX)
        errors = read_error_log(read_at(file, header_length, errors_length)) if header_length > 0 else []
    finally:
        os.close(file)
    version, activity_timestamp_ms, start_timestamp_ms, pid = _MARK_FILE_START.unpack_from(content, _SBE_HEADER.size)
    is_archive = schema_id == _ARCHIVE_SCHEMA_ID
    owner_id, cluster_id, component_type = _MARK_FILE_ARCHIVE_ID.unpack_from(content, _SBE_HEADER.size)[0], 0, 0
    if not is_archive:
        owner_id, cluster_id = _MARK_FILE_MEMBER.unpack_from(content, _SBE_HEADER.size)
        (component_type,) = _MARK_FILE_COMPONENT_TYPE.unpack_from(content, _SBE_HEADER.size)
    return MarkFileStatus(
        path,
        version,
        activity_timestamp_ms,
        start_timestamp_ms,
        pid,
        tuple(errors),
        _mark_file_text(content, _ARCHIVE_TEXTS_BEFORE_AERON_DIR if is_archive else 0),
        owner_id,
        cluster_id,
        component_type,
        _mark_file_text(content, _ARCHIVE_TEXTS_BEFORE_LOCAL_CONTROL) if is_archive else "",
        _MARK_FILE_LOCAL_CONTROL.unpack_from(content, _SBE_HEADER.size)[0] if is_archive else 0,
    )


def _mark_file_text(content: bytes, index: int) -> str:
    """The text at ``index`` of those behind the fixed fields; empty when they end before it."""
    offset = _SBE_HEADER.size + _SBE_HEADER.unpack_from(content)[0]
    for _ in range(index + 1):
        text = content[offset + 4 : offset + 4 + int.from_bytes(content[offset : offset + 4], "little")]
        offset += 4 + len(text)
    return text.decode("ascii", "replace")


def mark_terminated(path: Path) -> None:
    """Write into a mark file that its owner has ended, so that it may be taken over immediately.

    Only for an owner that is known to be dead: a live one would lose its file.

    Raises:
        FileNotFoundError, FileFormatError: as for :func:`read_mark_file`.
    """
    file = open_regular(path, os.O_RDWR)
    try:
        _mark_file_schema_id(path, read_at(file, 0, _SBE_HEADER.size))
        offset = _SBE_HEADER.size + _MARK_FILE_ACTIVITY_TIMESTAMP_OFFSET
        write_at(file, offset, struct.pack("<q", MARK_FILE_TERMINATED))
    finally:
        os.close(file)


def _mark_file_schema_id(path: Path, content: bytes) -> int:
    if len(content) < _SBE_HEADER.size:
        raise FileFormatError(f"{path} has {len(content)} bytes; it is not a mark file, or is just being created")
    _block_length, template_id, schema_id, _version = _SBE_HEADER.unpack_from(content)
    if template_id != _MARK_FILE_TEMPLATE_ID or schema_id not in _MARK_FILE_ERROR_LENGTHS_OFFSETS:
        raise FileFormatError(
            f"{path} has template {template_id} of schema {schema_id}, "
            f"expected {_MARK_FILE_TEMPLATE_ID} of 100 (archive) or 110 (cluster)"
        )
    return int(schema_id)
