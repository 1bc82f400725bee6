"""A member's node state: the highest term that it has voted in or stood for. Upstream: NodeStateFile.java.

A member that forgets this may vote twice in one term, and the term may get two leaders. So the term never goes back
once a force of it has returned: term, time and position lie in one sector, which is on the disk whole or not at all,
and a new file gets its name once its content is on the disk. Upstream writes the three one after the other into a map
of a file that has its name already; a crash leaves a file that it refuses.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from container.common.regular_files import open_regular, read_at
from container.common.semantic_version import format_version
from container.errors import ClusterError, RecordingError
from container.files.names import NODE_STATE_NAME
from container.storage.storage_seam import CREATE, EXCLUSIVE, NO_FOLLOW, Storage, StorageFile

NULL_VALUE = -1

_NEW_NAME = f"{NODE_STATE_NAME}.new"
_LENGTH = 1 << 20  # what upstream gives a new file, and all of an old one that is looked at
_VERSION = 3 << 8  # 0.3.0, that of the mark file
_SCHEMA_ID = 112
_SCHEMA_VERSION = 10
_CANDIDATE_TERM = 301
_FOOTER = 304
_ALIGNMENT = 8

_FILE_HEADER = struct.Struct("<i4x")
_RECORD_HEADER = struct.Struct("<HHHHi4x")
"""Length of the block, template, schema, version, length of the record with this header."""
_CANDIDATE = struct.Struct("<qqq")
"""Term, timestamp, log position."""
_ADVICE = (
    "take it from a backup of this member, or stop the member until the others have a leader, delete the file and "
    "start it again: without the file it does not know in which terms it has voted"
)


class NodeState(NamedTuple):
    """The highest term that a member has voted in or stood for, when, and how far its log went; -1 for none."""

    candidate_term_id: int
    timestamp: int
    log_position: int


def read_node_state(cluster_dir: Path) -> NodeState:
    """Read the node state of a cluster directory, also of a running member.

    Raises:
        FileNotFoundError: there is none.
        RecordingError: it is damaged, foreign or of another version.
        OSError: it cannot be read.
    """
    path = cluster_dir / NODE_STATE_NAME
    descriptor = open_regular(path)
    try:
        content = read_at(descriptor, 0, _LENGTH)
    finally:
        os.close(descriptor)
    return NodeState(*_CANDIDATE.unpack_from(content, _find_candidate_term(str(path), content)))


class NodeStateFile:
    """The node state of one member, open for writing; :meth:`open` makes it. One thread uses it."""

    def __init__(self, storage: Storage, cluster_dir: str, file: StorageFile, offset: int) -> None:
        self._storage = storage
        self._cluster_dir = cluster_dir
        self._file = file
        self._offset = offset
        # After a force that has failed nobody knows what of the file is on the disk, and a later one says nothing.
        self._is_doubtful = False
        self._load()

    @classmethod
    def open(cls, storage: Storage, cluster_dir: str, *, create: bool) -> NodeStateFile:
        """Open the file of a cluster directory.

        Each change is on the disk when it returns, whatever the file sync level: there is one in a ballot. Upstream
        forces from level 1 on alone.

        Args:
            storage: where the directory is.
            cluster_dir: its path.
            create: make a new file if there is none.

        Raises:
            FileNotFoundError: there is none, and ``create`` is False.
            RecordingError: it is damaged, foreign or of another version.
            OSError: the disk fails.
        """
        path = f"{cluster_dir}/{NODE_STATE_NAME}"
        if create and not storage.exists(path):
            _make_file(storage, cluster_dir, _NEW_CONTENT)
        file = storage.open_file(path, NO_FOLLOW)
        try:
            content = file.read(_LENGTH, 0)
            made = cls(storage, cluster_dir, file, _find_candidate_term(path, content))
            # A process that was killed, or one of upstream's, may have written what is read here, and not forced it.
            # Where a force has failed, the system takes it for written, though it may be lost: so it is written again.
            file.write(content, 0)
            file.force(True)
            storage.force_directory(cluster_dir)
        except BaseException:
            file.close()
            raise
        return made

    def _load(self) -> None:
        content = self._file.read(_CANDIDATE.size, self._offset)
        term_id: int
        term_id, timestamp, log_position = _CANDIDATE.unpack(content)
        if term_id < NULL_VALUE:
            raise RecordingError(
                f"candidate term {term_id}: must be {NULL_VALUE} or more: {_ADVICE}",
                file=self._file.path,
                offset=self._offset,
            )
        self._candidate_term_id = term_id
        self._log_position: int = log_position
        self._timestamp: int = timestamp

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._file.path

    @property
    def candidate_term_id(self) -> int:
        """The highest term that the member has voted in or stood for, -1 for none."""
        return self._candidate_term_id

    @property
    def log_position(self) -> int:
        """The log position at which it came to that term, -1 for none."""
        return self._log_position

    @property
    def timestamp(self) -> int:
        """When it came to that term, in epoch milliseconds, -1 for never."""
        return self._timestamp

    def update_candidate_term_id(self, candidate_term_id: int, log_position: int, timestamp_ms: int) -> None:
        """Store a term, with the log position and the time (epoch ms) at which the member came to it.

        It is on the disk when this returns. After an error the earlier term counts, and nothing may be sent for the new
        one. Where a force has failed, the next term goes into a new file.

        Raises:
            ClusterError: the term is lower than the one that is stored.
            OSError: the disk fails.
        """
        if candidate_term_id < self._candidate_term_id:
            raise ClusterError(
                f"the candidate term cannot go back from {self._candidate_term_id} to {candidate_term_id}: the member "
                "may have voted in the higher one; propose a higher term"
            )
        candidate = _CANDIDATE.pack(candidate_term_id, timestamp_ms, log_position)
        if self._is_doubtful:
            self._replace(candidate)
        else:
            self._file.write(candidate, self._offset)
            self._is_doubtful = True
            self._file.force(False)
        self._is_doubtful = False
        self._candidate_term_id, self._log_position, self._timestamp = candidate_term_id, log_position, timestamp_ms

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int, timestamp_ms: int) -> int:
        """Store a term if it is higher than the one that is stored; return the one that is stored then.

        Raises OSError when the disk fails.
        """
        if candidate_term_id > self._candidate_term_id:
            self.update_candidate_term_id(candidate_term_id, log_position, timestamp_ms)
        return self._candidate_term_id

    def _replace(self, candidate: bytes) -> None:
        """Have a new file take the place of this one, with another term, and all else that this one has."""
        content = self._file.read(_LENGTH, 0)
        end = self._offset + _CANDIDATE.size
        _make_file(self._storage, self._cluster_dir, content[: self._offset] + candidate + content[end:])
        file = self._storage.open_file(self._file.path, NO_FOLLOW)
        self._file, old = file, self._file
        old.close()

    def close(self) -> None:
        """Close the file; may be called twice. Raises OSError."""
        self._file.close()

    def __repr__(self) -> str:
        return f"<NodeStateFile {self.path} candidate_term_id={self._candidate_term_id}>"


def _make_file(storage: Storage, cluster_dir: str, content: bytes) -> None:
    """Make a file, or replace it. It has its name once all of it is on the disk."""
    path = f"{cluster_dir}/{_NEW_NAME}"
    with suppress(FileNotFoundError):
        storage.unlink(path)  # a crash has left it
    file = storage.open_file(path, CREATE | EXCLUSIVE)
    try:
        file.reserve(_LENGTH)
        file.write(content, 0)
        file.force(True)
    finally:
        file.close()
    storage.retry_directory(cluster_dir)
    storage.rename(path, f"{cluster_dir}/{NODE_STATE_NAME}")
    storage.force_directory(cluster_dir)


def _record_header(template_id: int, block_length: int) -> bytes:
    length = _RECORD_HEADER.size + block_length
    return _RECORD_HEADER.pack(block_length, template_id, _SCHEMA_ID, _SCHEMA_VERSION, length)


_NEW_CONTENT = (
    _FILE_HEADER.pack(_VERSION)
    + _record_header(_CANDIDATE_TERM, _CANDIDATE.size)
    + _CANDIDATE.pack(NULL_VALUE, NULL_VALUE, NULL_VALUE)
    + _record_header(_FOOTER, 0)
)


def _find_candidate_term(path: str, content: bytes) -> int:
    """Return the offset of the term in a file; raise RecordingError unless it is whole up to its footer."""
    if content == bytes(len(content)):
        text = f"the node state has {len(content)} bytes, and all are zero: a crash came while upstream made it"
        raise RecordingError(f"{text}; {_ADVICE}", file=path)
    version = _FILE_HEADER.unpack_from(content)[0] if len(content) >= _FILE_HEADER.size else 0
    if version >> 16 != 0:
        text = (
            f"the node state has version {format_version(version)}, only 0.x is known: start the software that wrote it"
        )
        raise RecordingError(text, file=path, offset=0)
    offset, found = _FILE_HEADER.size, None
    while offset + _RECORD_HEADER.size <= len(content):
        block_length, template_id, schema_id, _version, length = _RECORD_HEADER.unpack_from(content, offset)
        if schema_id != _SCHEMA_ID:
            text = f"a record of schema {schema_id} where {_SCHEMA_ID} is expected: this is not a node state; {_ADVICE}"
            raise RecordingError(text, file=path, offset=offset)
        if template_id == _FOOTER:
            if found is None:
                raise RecordingError(f"the node state has no candidate term: {_ADVICE}", file=path, offset=offset)
            return found
        if length < _RECORD_HEADER.size + block_length or offset + length > len(content):
            text = f"a record of {length} bytes with a block of {block_length} is impossible: {_ADVICE}"
            raise RecordingError(text, file=path, offset=offset)
        if template_id == _CANDIDATE_TERM and found is None:
            if block_length < _CANDIDATE.size:
                text = f"a candidate term of {block_length} bytes, at least {_CANDIDATE.size} are needed: {_ADVICE}"
                raise RecordingError(text, file=path, offset=offset)
            found = offset + _RECORD_HEADER.size
        offset += (length + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    raise RecordingError(
        f"the node state ends at {len(content)} without its footer: {_ADVICE}", file=path, offset=offset
    )
