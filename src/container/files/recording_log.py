"""A member's recording log: its leadership terms and snapshots. Upstream: RecordingLog.java.

The file is a row of entries of 64 bytes, or more where a snapshot lies in another archive. An entry of 64 bytes and
each change of an entry lie in one sector, which is on the disk whole or not at all. Where one sector must not be on the
disk before another one, the log forces in between, if its file sync level is 1 or 2. So a crash leaves at most the last
entry torn, and that one is cut off at the next start; upstream reads what is left of it, or does not start. With level
0 a power cut may leave anything, as upstream.

Upstream enters each term that a member has missed. Here a long run of them leaves a gap (:func:`missing_terms`), so
what follows a term is the next one that has an entry.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import Path

from container.common.loggers import report
from container.common.regular_files import checked_length, read_at
from container.errors import ClusterError, ConfigurationError, RecordingError
from container.files.directories import Directory, RemoteDirectory, open_in, path_in
from container.files.names import RECORDING_LOG_NAME
from container.files.open_errors import unreadable
from container.storage.storage_seam import CREATE, EXCLUSIVE, NO_FOLLOW, Storage, StorageFile

CONSENSUS_MODULE_SERVICE_ID = -1
NULL_POSITION = -1
NULL_VALUE = -1

ENTRY_TYPE_TERM = 0
ENTRY_TYPE_SNAPSHOT = 1
ENTRY_TYPE_STANDBY_SNAPSHOT = 2
ENTRY_TYPE_NAMES = {
    ENTRY_TYPE_TERM: "TERM",
    ENTRY_TYPE_SNAPSHOT: "SNAPSHOT",
    ENTRY_TYPE_STANDBY_SNAPSHOT: "STANDBY_SNAPSHOT",
}

MOST_MISSING_TERMS = 128
"""So many terms that a member has missed get an entry each time, half of them at either end of the run."""

_LENGTH_MAX = 256 * 1024 * 1024  # four million entries: a term or a snapshot each
LOG_ENTRY = struct.Struct("<qqqqqiI")
LOG_ENTRY_ALIGNMENT = 64
_ENDPOINT_LENGTH = struct.Struct("<i")
INVALID_FLAG = 1 << 31
_TYPE_REMOVED = 0xFFFF_FFFF
ENDPOINT_LENGTH_MAX = 4096 - LOG_ENTRY.size - _ENDPOINT_LENGTH.size

_NEW_NAME = f"{RECORDING_LOG_NAME}.new"
_SECTOR = 512
_BASE_OFFSET = 16  # in an entry
_LOG_POSITION_OFFSET = 24
_TYPE_OFFSET = 44
_TYPE = struct.Struct("<I")
_POSITION = struct.Struct("<q")
_REMOVED = (bytes(_TYPE_OFFSET) + _TYPE.pack(_TYPE_REMOVED)).ljust(LOG_ENTRY_ALIGNMENT, b"\0")
"""An entry that was removed: to a reader, also upstream's, it has 64 bytes."""
_EXTENT = struct.Struct("<qq")  # the base of a term, and its end behind it
_ORDER_OF_TYPES = {ENTRY_TYPE_TERM: 0, ENTRY_TYPE_STANDBY_SNAPSHOT: 1, ENTRY_TYPE_SNAPSHOT: 2}
_ADVICE = "take the file from a backup of this member, or let the member start again with empty directories"


@dataclass(frozen=True, slots=True)
class RecordingLogEntry:
    """An entry of the recording log; positions are log positions, -1 for none."""

    entry_index: int
    """Its place in the file, counted with removed ones."""
    recording_id: int
    """The id of the log's or the snapshot's recording."""
    leadership_term_id: int
    """The id of the leadership term."""
    term_base_log_position: int
    """The position at which the term begins."""
    log_position: int
    """The end of a term, -1 while it is open; the position that a snapshot represents."""
    timestamp: int
    """The cluster time of the entry, in the cluster's time unit."""
    service_id: int
    """The service of a snapshot; -1 for the consensus module and for a term."""
    entry_type: int
    """The type: 0 a term, 1 a snapshot, 2 a standby's snapshot."""
    is_valid: bool
    """False for an invalidated entry, which recovery ignores."""
    archive_endpoint: str | None = None
    """The endpoint of the archive of a standby's snapshot; ``None`` for other entries."""

    @property
    def is_term(self) -> bool:
        """True for a term of any validity."""
        return self.entry_type == ENTRY_TYPE_TERM

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a snapshot in this member's own archive."""
        return self.entry_type == ENTRY_TYPE_SNAPSHOT

    @property
    def is_valid_term(self) -> bool:
        """Whether it is a term that counts."""
        return self.is_valid and self.is_term

    @property
    def is_empty_term(self) -> bool:
        """Whether it is a term that ends where it begins."""
        return self.is_term and self.log_position == self.term_base_log_position

    @property
    def is_valid_snapshot(self) -> bool:
        """Whether it is a snapshot in this member's own archive that counts."""
        return self.is_valid and self.is_snapshot

    @property
    def is_of_consensus_module(self) -> bool:
        """Whether a snapshot is the consensus module's, which is the last one of its set."""
        return self.service_id == CONSENSUS_MODULE_SERVICE_ID


_term_of = attrgetter("leadership_term_id")
_what = attrgetter(
    "entry_type", "leadership_term_id", "term_base_log_position", "log_position", "service_id", "archive_endpoint"
)
"""The fields that tell two snapshots apart, valid or not."""


def read_recording_log(cluster_dir: Directory) -> Iterator[RecordingLogEntry]:
    """Yield the entries of a cluster directory's recording log in the order of the file, without removed ones.

    Raises:
        FileNotFoundError: there is no recording log in that directory.
        RecordingUnavailableError: the directory is missing, or the file cannot be read.
        RecordingError: an entry is damaged: then those before it have been yielded.
    """
    path = path_in(cluster_dir, RECORDING_LOG_NAME)
    try:
        file = open_in(cluster_dir, RECORDING_LOG_NAME)
        try:
            content = read_at(file, 0, checked_length(file, path, _LENGTH_MAX))
        finally:
            os.close(file)
    except FileNotFoundError as error:
        if isinstance(cluster_dir, RemoteDirectory) or Path(cluster_dir).is_dir():
            raise
        raise unreadable("the cluster directory", str(cluster_dir), error) from error
    except OSError as error:
        raise unreadable("the recording log", path, error) from error
    offset, index = 0, 0
    while offset < len(content):
        if offset + LOG_ENTRY.size > len(content):
            raise RecordingError(
                f"the last entry has {len(content) - offset} bytes of {LOG_ENTRY.size}", file=path, offset=offset
            )
        entry, length = _read_entry(path, content, offset, index)
        if entry is not None:
            yield entry
        offset += length
        index += 1


def _read_entry(path: str, content: bytes, offset: int, index: int) -> tuple[RecordingLogEntry | None, int]:
    """Return an entry, or None for a removed one, and its length in the file; raise RecordingError if it is damaged."""
    recording_id, term_id, base, position, timestamp, service_id, entry_type = LOG_ENTRY.unpack_from(content, offset)
    if entry_type == _TYPE_REMOVED:
        return None, LOG_ENTRY_ALIGNMENT
    kind, endpoint = entry_type & ~INVALID_FLAG, None
    if kind not in ENTRY_TYPE_NAMES:
        raise RecordingError(f"entry {index} has unknown type {kind}", file=path, offset=offset)
    if kind == ENTRY_TYPE_STANDBY_SNAPSHOT:
        endpoint = _read_endpoint(path, content, offset)
    is_valid = entry_type == kind
    entry = RecordingLogEntry(
        index, recording_id, term_id, base, position, timestamp, service_id, kind, is_valid, endpoint
    )
    return entry, _length(endpoint)


def _length(endpoint: str | None) -> int:
    """Length of an entry in the file."""
    length = LOG_ENTRY.size if endpoint is None else LOG_ENTRY.size + _ENDPOINT_LENGTH.size + len(endpoint)
    return (length + LOG_ENTRY_ALIGNMENT - 1) // LOG_ENTRY_ALIGNMENT * LOG_ENTRY_ALIGNMENT


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


class RecordingLog:
    """The recording log of one member, open for writing; :meth:`open` makes it. One thread uses it.

    Changes are in the file immediately, and on the disk after :meth:`force`. After an OSError the log is as it was
    before, except the file, which the next call writes again; where a force has failed, into a new file.
    """

    def __init__(self, storage: Storage, cluster_dir: str, file: StorageFile, file_sync_level: int) -> None:
        self._storage = storage
        self._directory = cluster_dir
        self._file = file
        self._file_sync_level = file_sync_level
        self._entries: list[RecordingLogEntry] = []
        self._terms: dict[int, RecordingLogEntry] = {}
        self._places: dict[int, int] = {}  # entry index -> offset in the file
        self._term_recording_id = NULL_VALUE
        self._next_entry_index = 0
        self._end = 0
        self._is_unforced = False
        # After a force that has failed nobody knows what of the file is on the disk, and a later one says nothing.
        self._is_doubtful = False

    @classmethod
    def open(cls, storage: Storage, cluster_dir: str, *, create: bool, file_sync_level: int) -> RecordingLog:
        """Open the recording log of a cluster directory; cut off a last entry that a crash has torn, with a warning.

        Args:
            storage: where the directory is.
            cluster_dir: its path.
            create: make a new file if there is none.
            file_sync_level: 0 leaves changes to the system; with 1 they are forced where their order matters, with 2
                the file's metadata as well.

        Raises:
            FileNotFoundError: there is no file, and ``create`` is False.
            RecordingError: it is damaged.
            ConfigurationError: a level out of range.
            OSError: the disk fails.
        """
        _check_level(file_sync_level)
        path = f"{cluster_dir}/{RECORDING_LOG_NAME}"
        if create and not storage.exists(path):
            storage.open_file(path, CREATE).close()
            storage.force_directory(cluster_dir)
        made = cls(storage, cluster_dir, storage.open_file(path, NO_FOLLOW), file_sync_level)
        try:
            made.reload()
            if file_sync_level > 0:
                # A process that was killed may have written what is read here, and not forced it. Where a force has
                # failed, the system takes it for written, though it may be lost: so it is written again.
                made._write_again()
                made.force()
                storage.force_directory(cluster_dir)
        except BaseException:
            made.close()
            raise
        return made

    # Contents

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._file.path

    @property
    def entries(self) -> tuple[RecordingLogEntry, ...]:
        """All entries, by term, base position and type; a set of snapshots ends with the consensus module's."""
        return tuple(self._entries)

    @property
    def next_entry_index(self) -> int:
        """The place in the file of the entry that is appended next, counted with removed ones."""
        return self._next_entry_index

    def find_last_term(self) -> RecordingLogEntry | None:
        """Return the last term that is valid."""
        return next((entry for entry in reversed(self._entries) if entry.is_valid_term), None)

    def find_last_term_recording_id(self) -> int:
        """Return the recording of the last valid term, -1 for none."""
        last = self.find_last_term()
        return NULL_VALUE if last is None else last.recording_id

    def find_term_entry(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """Return the valid entry of a term."""
        return self._terms.get(leadership_term_id)

    def find_term_after(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """Return the valid entry of the next term that is not empty, else of the last one; None: there is none."""
        found = None
        for entry in self._terms_after(leadership_term_id):
            found = entry
            if not entry.is_empty_term:
                break
        return found

    def find_term_before(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """Return the valid entry of the last term before one."""
        return next(self._terms_before(leadership_term_id), None)

    def find_empty_term(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """Return the entry of a term that is empty here, also of one in a gap; None: it is not, or nobody knows.

        Nobody knows where a backup has left a term out. Empty terms are at either end of a gap.
        """
        entry = self._terms.get(leadership_term_id)
        if entry is None:
            before = self.find_term_before(leadership_term_id)
            after = next(self._terms_after(leadership_term_id), None)
            if before is not None and after is not None and after.term_base_log_position == before.log_position:
                entry = replace(before, leadership_term_id=leadership_term_id)
        return None if entry is None or not entry.is_empty_term else entry

    def find_first_empty_term(self, leadership_term_id: int) -> int:
        """Return the first of the terms up to a known one that begin all at the same position."""
        first = self.get_term_entry(leadership_term_id)
        for entry in self._terms_before(leadership_term_id):
            if entry.term_base_log_position != first.term_base_log_position:
                break
            first = entry
        return first.leadership_term_id

    def find_last_filled_term(self, leadership_term_id: int, log_position: int) -> RecordingLogEntry | None:
        """Return the last term before one that begins before a position, and ends there; None: there is none."""
        for entry in self._terms_before(leadership_term_id):
            if entry.term_base_log_position < log_position:
                return entry if entry.log_position == log_position else None
        return None

    def is_left_out(self, leadership_term_id: int, log_position: int) -> bool:
        """Whether the term is not there that precedes one and those before it that begin at a position, as it does.

        A backup leaves it out, of which the end of its log may be.
        """
        following = leadership_term_id
        for entry in self._terms_before(leadership_term_id):
            if entry.term_base_log_position < log_position:
                return entry.leadership_term_id + 1 != following
            following = entry.leadership_term_id
        return log_position > 0

    def _terms_after(self, leadership_term_id: int) -> Iterator[RecordingLogEntry]:
        """Yield the valid entries of later terms, the next one first."""
        for index in range(bisect_right(self._entries, leadership_term_id, key=_term_of), len(self._entries)):
            if self._entries[index].is_valid_term:
                yield self._entries[index]

    def _terms_before(self, leadership_term_id: int) -> Iterator[RecordingLogEntry]:
        """Yield the valid entries of earlier terms, the last one first."""
        for index in range(bisect_left(self._entries, leadership_term_id, key=_term_of) - 1, -1, -1):
            if self._entries[index].is_valid_term:
                yield self._entries[index]

    def get_term_entry(self, leadership_term_id: int) -> RecordingLogEntry:
        """Return the valid entry of a term; raise ClusterError if there is none."""
        entry = self._terms.get(leadership_term_id)
        if entry is None:
            raise ClusterError(f"unknown leadershipTermId={leadership_term_id}: {_known_terms(self._terms)}")
        return entry

    def is_unknown(self, leadership_term_id: int) -> bool:
        """Whether a term has no valid entry."""
        return leadership_term_id not in self._terms

    def term_timestamp(self, leadership_term_id: int) -> int:
        """Return the timestamp of a term, in the cluster's time unit, -1 for a term that is unknown."""
        entry = self._terms.get(leadership_term_id)
        return NULL_VALUE if entry is None else entry.timestamp

    def get_latest_snapshot(self, service_id: int) -> RecordingLogEntry | None:
        """Return the latest valid snapshot of a service, or of the consensus module (-1)."""
        for index in self._snapshot_indexes():
            place = index - (service_id - CONSENSUS_MODULE_SERVICE_ID)
            if place >= 0:
                entry = self._entries[place]
                if entry.is_valid_snapshot and entry.service_id == service_id:
                    return entry
        return None

    def find_snapshot_at_or_before_or_lowest(
        self, log_position: int, service_count: int
    ) -> list[RecordingLogEntry] | None:
        """Return the latest complete set of snapshots up to a log position, else the first one of all, else None.

        The services' come first, from the highest id on, and the consensus module's last.
        """
        found = [index for index in self._snapshot_indexes() if self._is_complete(index, service_count)]
        for index in found:
            if self._entries[index].log_position <= log_position:
                return self._entries[index - service_count : index + 1]
        return self._entries[found[-1] - service_count : found[-1] + 1] if found else None

    def latest_standby_snapshots(self, service_count: int) -> dict[str, list[RecordingLogEntry]]:
        """Return the latest complete set of valid standby snapshots by the endpoint of the archive that has them.

        The consensus module's comes first in each set.
        """
        found: dict[str, dict[int, list[RecordingLogEntry]]] = {}
        for entry in reversed(self._entries):
            if entry.is_valid and entry.archive_endpoint is not None:
                positions = found.setdefault(entry.archive_endpoint, {})
                positions.setdefault(entry.log_position, []).append(entry)
        latest = {}
        for endpoint, positions in found.items():
            complete = [position for position, entries in positions.items() if len(entries) == service_count + 1]
            if complete:
                latest[endpoint] = positions[max(complete)]
        return latest

    def _snapshot_indexes(self) -> Iterator[int]:
        """Where the consensus module's valid snapshots are, the last one first."""
        for index in range(len(self._entries) - 1, -1, -1):
            if self._entries[index].is_valid_snapshot and self._entries[index].is_of_consensus_module:
                yield index

    def _is_complete(self, index: int, service_count: int) -> bool:
        """Whether the services' snapshots stand in front of the consensus module's at ``index``."""
        last = self._entries[index]
        return index >= service_count and all(
            entry.is_valid_snapshot
            and entry.leadership_term_id == last.leadership_term_id
            and entry.log_position == last.log_position
            for entry in self._entries[index - service_count : index]
        )

    # Terms.

    def append_term(
        self, recording_id: int, leadership_term_id: int, term_base_log_position: int, timestamp: int
    ) -> None:
        """Append a term that begins at a log position; it closes the term before it, and the next one closes it.

        Raises:
            ClusterError: another recording than that of the other terms, or a term that is known.
            OSError: the disk fails.
        """
        self._check_term(recording_id, leadership_term_id)
        if leadership_term_id - 1 in self._terms:
            self.commit_log_position(leadership_term_id - 1, term_base_log_position)
            self._force_before_next()
        following = self._terms.get(leadership_term_id + 1)
        end = NULL_POSITION if following is None else following.term_base_log_position
        self._append_term(recording_id, leadership_term_id, term_base_log_position, end, timestamp)

    def commit_log_position(self, leadership_term_id: int, log_position: int) -> None:
        """Store the log position at which a term ends.

        Raises:
            ClusterError: the term is unknown.
            OSError: the disk fails.
        """
        entry = self.get_term_entry(leadership_term_id)
        if entry.log_position != log_position:
            self._write(_POSITION.pack(log_position), self._places[entry.entry_index] + _LOG_POSITION_OFFSET)
            self._replace(entry, replace(entry, log_position=log_position))

    def end_terms(self, leadership_term_id: int, log_position: int) -> None:
        """Have the log end at a position, behind which it was cut off: force it.

        A term that ended behind there ends there, and one that began behind there begins there, and is empty.

        Args:
            leadership_term_id: the last term, which ends there if it was open as well; one that is unknown, such as -1,
                does not count.
            log_position: where.

        Raises OSError when the disk fails.
        """
        for entry in list(self._terms.values()):
            base, end = min(entry.term_base_log_position, log_position), entry.log_position
            if entry.leadership_term_id == leadership_term_id or end > log_position:
                end = log_position
            if (base, end) != (entry.term_base_log_position, entry.log_position):
                self._write(_EXTENT.pack(base, end), self._places[entry.entry_index] + _BASE_OFFSET)
                self._replace(entry, replace(entry, term_base_log_position=base, log_position=end))
        self._entries.sort(key=_order)
        self.force()

    def drop_last_terms(self, first_term_id: int) -> int:
        """Take the last terms out, which are empty, from one on, and open the one before them again; force it.

        A crash in the middle leaves the first ones of them, and the one before open, which :meth:`mend` ends.

        Returns:
            The term before them, -1 without one.

        Raises:
            ClusterError: one of them is not empty.
            OSError: the disk fails.
        """
        dropped = list(self._terms_after(first_term_id - 1))
        for entry in dropped:
            if entry.log_position != NULL_POSITION and not entry.is_empty_term:
                raise ClusterError(f"term {entry.leadership_term_id} is not empty: {entry}")
        before = self.find_term_before(first_term_id)
        if before is not None:
            self.commit_log_position(before.leadership_term_id, NULL_POSITION)
            self._force_before_next()
        try:
            sector = NULL_VALUE
            for entry in reversed(dropped):
                place = self._places[entry.entry_index]
                if place // _SECTOR != sector:
                    sector = place // _SECTOR
                    self._force_before_next()
                self._write(_TYPE.pack(_TYPE_REMOVED), place + _TYPE_OFFSET)
        finally:
            self.reload()
        self.force()
        return NULL_VALUE if before is None else before.leadership_term_id

    def mend(self, log_position: int) -> bool:
        """Undo what a crash has left between two changes, when the log's recording ends at a position.

        The recording was cut off, and no term says so yet; or an empty term was about to be dropped.

        Returns:
            Whether there was something, which is forced then.

        Raises OSError when the disk fails.
        """
        before = self.entries
        self.end_terms(NULL_VALUE, log_position)
        terms = [entry for entry in self._entries if entry.is_valid_term]
        for term, following in pairwise(terms):
            if term.log_position == NULL_POSITION:
                self.commit_log_position(term.leadership_term_id, following.term_base_log_position)
        has_changed = self.entries != before
        if has_changed:
            self.force()
        return has_changed

    def ensure_coherent(
        self,
        *,
        recording_id: int,
        initial_log_leadership_term_id: int,
        initial_term_base_log_position: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        timestamp: int,
    ) -> None:
        """See to it that a term is there, with terms missing before it, and has its end if that is known; force it.

        Args:
            recording_id: of the log.
            initial_log_leadership_term_id: the first term, where the log has none yet.
            initial_term_base_log_position: where that one begins.
            leadership_term_id: the term; those between it and the last one that is there were empty.
            term_base_log_position: where it begins; -1 if that is unknown.
            log_position: where it ends; -1 while it is open.
            timestamp: of what is appended.

        Raises:
            ClusterError: the last term is open and it is unknown where the next one begins; or as of
                :meth:`append_term` and :meth:`commit_log_position`.
            OSError: the disk fails.
        """
        last = self.find_last_term()
        if last is None:
            first, base = max(0, initial_log_leadership_term_id), initial_term_base_log_position
            self._append_terms(
                recording_id, first, leadership_term_id, base, term_base_log_position, log_position, timestamp
            )
        elif last.leadership_term_id < leadership_term_id:
            base = max(last.log_position, term_base_log_position)
            if base == NULL_POSITION:
                raise ClusterError(
                    f"the term before {leadership_term_id} is open, and it is unknown where the next one begins: "
                    f"{last}, log_position={log_position}"
                )
            if base != last.log_position:
                # Open, or it had ended before a crash cut a copy of more of it short.
                self.commit_log_position(last.leadership_term_id, base)
                self._force_before_next()
            first = last.leadership_term_id + 1
            self._append_terms(recording_id, first, leadership_term_id, base, base, log_position, timestamp)
        elif log_position != NULL_POSITION:
            self.commit_log_position(leadership_term_id, log_position)
        self.force()

    def _append_terms(
        self,
        recording_id: int,
        first: int,
        leadership_term_id: int,
        empty_base: int,
        base: int,
        log_position: int,
        timestamp: int,
    ) -> None:
        """Append a term, with empty ones from ``first`` on; the last of these ends where it begins."""
        for term_id in missing_terms(first, leadership_term_id):
            self._check_term(recording_id, term_id)
            end = base if term_id == leadership_term_id - 1 else empty_base
            self._append_term(recording_id, term_id, empty_base, end, timestamp)
        self._check_term(recording_id, leadership_term_id)
        self._append_term(recording_id, leadership_term_id, base, log_position, timestamp)

    def _check_term(self, recording_id: int, leadership_term_id: int) -> None:
        _check_recording_id(recording_id)
        if self._term_recording_id not in (NULL_VALUE, recording_id):
            raise ClusterError(
                f"invalid TERM recordingId={recording_id}, expected recordingId={self._term_recording_id}: all terms "
                "of a member are one recording"
            )
        if leadership_term_id in self._terms:
            raise ClusterError(
                f"duplicate TERM entry for leadershipTermId={leadership_term_id}: {_known_terms(self._terms)}"
            )

    def _append_term(self, recording_id: int, term_id: int, base: int, log_position: int, timestamp: int) -> None:
        fields = (recording_id, term_id, base, log_position, timestamp, NULL_VALUE, ENTRY_TYPE_TERM, True)
        self._append(RecordingLogEntry(self._next_entry_index, *fields))
        self._term_recording_id = recording_id

    # Snapshots.

    def append_snapshot(
        self,
        recording_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        timestamp: int,
        service_id: int,
    ) -> None:
        """Append a snapshot; one of the same service, term and position is replaced in its place.

        It is an invalid one, or of a set that a crash has cut short: a member that replays the log takes all of it
        again, and twice the same service in front of the consensus module is not readable as a set, here or upstream.
        Append those of the services first, from the highest id on, and the consensus module's (-1) last: the set counts
        once that one is there.

        Raises:
            ClusterError: the recording is -1.
            OSError: the disk fails.
        """
        fields = (recording_id, leadership_term_id, term_base_log_position, log_position, timestamp, service_id)
        self._append_any_snapshot(RecordingLogEntry(self._next_entry_index, *fields, ENTRY_TYPE_SNAPSHOT, True))

    def append_standby_snapshot(
        self,
        recording_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        timestamp: int,
        service_id: int,
        archive_endpoint: str,
    ) -> None:
        """Append a snapshot in the archive of another machine, as :meth:`append_snapshot` does.

        Raises:
            ClusterError: the recording is -1; the endpoint is empty, no ASCII or longer than 4044 characters.
            OSError: the disk fails.
        """
        if not _is_endpoint(archive_endpoint):
            raise ClusterError(f"a standby snapshot needs an endpoint in printable ASCII, got {archive_endpoint!r}")
        if len(archive_endpoint) > ENDPOINT_LENGTH_MAX:
            raise ClusterError(f"Endpoint is too long: {len(archive_endpoint)} vs {ENDPOINT_LENGTH_MAX}")
        fields = (recording_id, leadership_term_id, term_base_log_position, log_position, timestamp, service_id)
        self._append_any_snapshot(
            RecordingLogEntry(self._next_entry_index, *fields, ENTRY_TYPE_STANDBY_SNAPSHOT, True, archive_endpoint)
        )

    def _append_any_snapshot(self, new: RecordingLogEntry) -> None:
        _check_recording_id(new.recording_id)
        if new.is_of_consensus_module:
            self._force_before_next()
        wanted = _what(new)
        for entry in reversed(self._entries):
            if _what(entry) == wanted:
                restored = replace(new, entry_index=entry.entry_index)
                self._write(encode_entry(restored)[: LOG_ENTRY.size], self._places[entry.entry_index])
                self._replace(entry, restored)
                return
        self._append(new)

    def invalidate_latest_snapshot(self) -> bool:
        """Invalidate the latest snapshot of either kind, that of the consensus module and those of its services.

        Whether there was one; a start recovers from the one before it then. Not forced.

        Raises:
            ClusterError: its term is unknown.
            OSError: the disk fails.
        """
        chosen: list[int] = []
        high = NULL_POSITION
        for index in range(len(self._entries) - 1, -1, -1):  # from the end on, up to the first of an earlier position
            entry = self._entries[index]
            if entry.is_term or not entry.is_valid or not entry.is_of_consensus_module:
                continue
            if entry.log_position < high:
                break
            if entry.leadership_term_id not in self._terms:
                raise ClusterError(f"no matching term for snapshot: leadershipTermId={entry.leadership_term_id}")
            if entry.log_position > high:
                chosen, high = [], entry.log_position
            chosen.append(index)
        sets = [self._set_at(index) for index in chosen]
        for entries in sets:  # without the consensus module's a set does not count
            self._invalidate(entries[0])
        if sets:
            self._force_before_next()
        for entries in sets:
            for entry in entries[1:]:
                self._invalidate(entry)
        return bool(sets)

    def _set_at(self, index: int) -> list[RecordingLogEntry]:
        """The valid snapshots of the consensus module, at ``index``, and of the services in front of it."""
        found: list[RecordingLogEntry] = []
        for service_id in range(CONSENSUS_MODULE_SERVICE_ID, index):
            entry = self._entries[index - len(found)]
            if entry.is_term or not entry.is_valid or entry.service_id != service_id:
                break
            found.append(entry)
        return found

    def append_together(self, entries: Iterable[RecordingLogEntry]) -> None:
        """Append terms and snapshots so that a crash leaves all of them or none; they are on the disk then.

        Each is as by :meth:`append_term`, with its end, and by :meth:`append_snapshot`; ``entry_index`` does not count.
        It writes a new file, which replaces the old one.

        Raises:
            ClusterError: as :meth:`append_term` and :meth:`append_snapshot`.
            OSError: the disk fails: then it is as before, but that a term may have its end.
        """
        content = bytearray(self._content())
        for entry in entries:
            place = None
            if entry.is_term:
                self._check_term(entry.recording_id, entry.leadership_term_id)
                if entry.leadership_term_id - 1 in self._terms:
                    self.commit_log_position(entry.leadership_term_id - 1, entry.term_base_log_position)
                    before = self._places[self._terms[entry.leadership_term_id - 1].entry_index]
                    content[before : before + LOG_ENTRY_ALIGNMENT] = self._file.read(LOG_ENTRY_ALIGNMENT, before)
            else:
                _check_recording_id(entry.recording_id)
                wanted = _what(entry)
                place = next((self._places[each.entry_index] for each in self._entries if _what(each) == wanted), None)
            encoded = encode_entry(entry)
            if place is None:
                content += encoded
            else:
                content[place : place + len(encoded)] = encoded
        try:
            self._write_anew(bytes(content))
        finally:
            self.reload()

    # Any entries.

    def invalidate_entry(self, entry_index: int) -> None:
        """Invalidate an entry by its place in the file. Not forced.

        Upstream takes the place in its sorted list, but is given that in the file.

        Raises:
            ClusterError: there is no such entry.
            OSError: the disk fails.
        """
        self._invalidate(self._find(entry_index))

    def _invalidate(self, entry: RecordingLogEntry) -> None:
        self._write(_TYPE.pack(entry.entry_type | INVALID_FLAG), self._places[entry.entry_index] + _TYPE_OFFSET)
        self._replace(entry, replace(entry, is_valid=False))

    def remove_entry(self, leadership_term_id: int, entry_index: int) -> None:
        """Remove an entry by its place in the file, if it is of this term; its place stays empty. Not forced.

        Raises:
            ClusterError: there is no such entry.
            OSError: the disk fails.
        """
        entry = self._find(entry_index)
        if entry.leadership_term_id != leadership_term_id:
            raise ClusterError(f"unknown entry index: {entry_index} is of leadershipTermId={entry.leadership_term_id}")
        begin, length = self._places[entry_index], _length(entry.archive_endpoint)
        try:
            if length == LOG_ENTRY_ALIGNMENT:
                self._write(_TYPE.pack(_TYPE_REMOVED), begin + _TYPE_OFFSET)
            else:
                content = self._content()
                self._write_anew(content[:begin] + _REMOVED + content[begin + length :])
        finally:
            self.reload()

    def _find(self, entry_index: int) -> RecordingLogEntry:
        for entry in self._entries:
            if entry.entry_index == entry_index:
                return entry
        raise ClusterError(f"unknown entry index: {entry_index}, the next one is {self._next_entry_index}")

    # The file.

    def force(self, file_sync_level: int | None = None) -> None:
        """Wait until all of it is on the disk, if the level (that of the log, unless it is given) is 1 or 2.

        Where a force has failed, all of it goes into a new file.

        Raises:
            ConfigurationError: a level out of range.
            OSError: the disk fails.
        """
        level = self._file_sync_level if file_sync_level is None else file_sync_level
        _check_level(level)
        if level > 0 and not self._is_renewed():
            self._is_doubtful = True
            self._file.force(level > 1)
            self._is_doubtful = self._is_unforced = False

    def reload(self) -> None:
        """Read the file again, and cut off a last entry that a crash has torn.

        Raises:
            RecordingError: it is damaged.
            OSError: the disk fails.
        """
        length = self._file.length()
        if length > _LENGTH_MAX:
            raise RecordingError(
                f"it has {length} bytes, at most {_LENGTH_MAX} are possible: {_ADVICE}", file=self.path
            )
        content = self._file.read(length, 0)
        entries, places, end, next_index = self._load(content)
        terms: dict[int, RecordingLogEntry] = {}
        recording_id = NULL_VALUE
        for entry in entries:
            if entry.is_term:
                self._check_loaded_term(entry, places[entry.entry_index], terms, recording_id)
                recording_id = entry.recording_id
            if entry.is_valid_term:
                terms[entry.leadership_term_id] = entry
        if end < length:
            self._file.set_length(end)
            self._is_unforced = True
            report(
                "warning",
                "%s: cut off the last %d bytes from offset %d on, an entry that a crash has torn",
                self.path,
                length - end,
                end,
            )
        self._entries = in_order(entries)
        self._terms, self._places, self._end, self._next_entry_index = terms, places, end, next_index
        self._term_recording_id = recording_id

    def _load(self, content: bytes) -> tuple[list[RecordingLogEntry], dict[int, int], int, int]:
        """Return the entries as in the file, their places, the end of the last whole one, and the next index."""
        entries, places = [], {}
        offset, index, used = 0, 0, len(content.rstrip(b"\0"))
        while offset < used and not _is_torn(content, offset):
            if not content[offset : offset + LOG_ENTRY_ALIGNMENT].strip(b"\0"):
                behind = used - offset - LOG_ENTRY_ALIGNMENT
                raise self._damage(f"entry {index} is empty, and {behind} bytes behind it are not", offset)
            try:
                entry, length = _read_entry(self.path, content, offset, index)
            except RecordingError as error:
                raise self._damage(error.detail, offset) from None
            if entry is not None:
                if entry.archive_endpoint is not None and not _is_endpoint(entry.archive_endpoint):
                    raise self._damage(f"entry {index} has an impossible endpoint {entry.archive_endpoint!r}", offset)
                entries.append(entry)
                places[index] = offset
            offset += length
            index += 1
        return entries, places, offset, index

    def _check_loaded_term(
        self, entry: RecordingLogEntry, offset: int, terms: dict[int, RecordingLogEntry], recording_id: int
    ) -> None:
        if recording_id not in (NULL_VALUE, entry.recording_id):
            raise self._damage(f"invalid TERM recordingId={entry.recording_id}, expected {recording_id}", offset)
        if entry.is_valid and entry.leadership_term_id in terms:
            raise self._damage(f"duplicate TERM entry for leadershipTermId={entry.leadership_term_id}", offset)

    def _damage(self, text: str, offset: int) -> RecordingError:
        return RecordingError(f"{text}: {_ADVICE}", file=self.path, offset=offset)

    def _append(self, entry: RecordingLogEntry) -> None:
        content, place = encode_entry(entry), self._end
        if self._file.length() > place:  # what is left of an append that failed
            self._file.set_length(place)
            self._is_unforced = True
            self._force_before_next()
        if place % _SECTOR == 0:
            self._force_before_next()
        first = _SECTOR - place % _SECTOR
        self._write(content[:first], place)
        if len(content) > first:  # only an entry that is begun may be torn
            self._force_before_next()
            self._write(content[first:], place + first)
        self._end += len(content)
        self._next_entry_index += 1
        self._places[entry.entry_index] = place
        insort_right(self._entries, entry, key=_order)
        if entry.is_term:
            self._terms[entry.leadership_term_id] = entry

    def _replace(self, entry: RecordingLogEntry, changed: RecordingLogEntry) -> None:
        """Put an entry that has another position, recording or validity in its place."""
        self._entries[self._entries.index(entry)] = changed
        if entry.is_valid_term:
            del self._terms[entry.leadership_term_id]
        if changed.is_valid_term:
            self._terms[changed.leadership_term_id] = changed

    def _write(self, content: bytes, offset: int) -> None:
        self._is_renewed()
        self._is_unforced = True
        self._file.write(content, offset)

    def _force_before_next(self) -> None:
        """Force earlier writes to the disk before the next one."""
        if self._is_unforced:
            self.force()

    def _is_renewed(self) -> bool:
        """Whether the file was in doubt, and a new one with all entries is on the disk now."""
        is_doubtful = self._is_doubtful
        if is_doubtful:
            self._write_anew(self._content())
        return is_doubtful

    def _write_again(self) -> None:
        """Write what the file has over itself, its length too, so that the next force has to bring it to the disk."""
        self._file.set_length(self._end + LOG_ENTRY_ALIGNMENT)  # zeros are not an entry
        self._file.set_length(self._end)
        self._write(self._file.read(self._end, 0), 0)

    def _content(self) -> bytes:
        """All of the file, as it counts."""
        content = bytearray(_REMOVED * (self._end // LOG_ENTRY_ALIGNMENT))
        for entry in self._entries:
            place, encoded = self._places[entry.entry_index], encode_entry(entry)
            content[place : place + len(encoded)] = encoded
        return bytes(content)

    def _write_anew(self, content: bytes) -> None:
        """Put a new file in the place of this one. If the disk fails, the next change or force does it again."""
        self._is_doubtful = True
        path = f"{self._directory}/{_NEW_NAME}"
        with suppress(FileNotFoundError):
            self._storage.unlink(path)  # a crash has left it
        made = self._storage.open_file(path, CREATE | EXCLUSIVE)
        try:
            made.write(content, 0)
            made.force(True)
        finally:
            made.close()
        self._storage.retry_directory(self._directory)
        self._storage.rename(path, self.path)
        old, self._file = self._file, self._storage.open_file(self.path, NO_FOLLOW)
        self._is_unforced = False
        old.close()
        self._storage.force_directory(self._directory)
        self._is_doubtful = False

    def is_in_place(self) -> bool:
        """Whether its path leads to it; not once the directory was removed or moved.

        Raises OSError when that cannot be known.
        """
        return self._file.is_in_place()

    def close(self) -> None:
        """Close the file; nothing is forced. May be called twice. Raises OSError."""
        self._file.close()

    def __repr__(self) -> str:
        return f"<RecordingLog {self.path} entries={len(self._entries)}>"


def missing_terms(first: int, leadership_term_id: int) -> Iterable[int]:
    """Which of the terms that were missed get an entry, from ``first`` up to before a term: all, unless they are many.

    One message may say that millions of elections were lost. Each member would enter them all, and die of that. Those
    at both ends are where somebody may have led, unknown here: upstream's leaders look for the entry after such a term.
    """
    end = leadership_term_id
    if end - first <= MOST_MISSING_TERMS:
        return range(first, end)
    half = MOST_MISSING_TERMS // 2
    return chain(range(first, first + half), range(end - half, end))


def in_order(entries: Iterable[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """Return entries in the order in which they count; a set of snapshots ends with the consensus module's."""
    return sorted(entries, key=_order)


def _order(entry: RecordingLogEntry) -> tuple[int, ...]:
    """By term, base and type; then terms as in the file, and snapshots by position, the highest service first."""
    place = (entry.entry_index, 0) if entry.is_term else (entry.log_position, -entry.service_id)
    return (entry.leadership_term_id, entry.term_base_log_position, _ORDER_OF_TYPES[entry.entry_type], *place)


def _is_endpoint(text: str) -> bool:
    return text != "" and text.isascii() and text.isprintable()


def encode_entry(entry: RecordingLogEntry) -> bytes:
    """Return an entry as it lies in the file, with its bit when it is invalid, and zeros up to its length there."""
    content = LOG_ENTRY.pack(
        entry.recording_id,
        entry.leadership_term_id,
        entry.term_base_log_position,
        entry.log_position,
        entry.timestamp,
        entry.service_id,
        entry.entry_type if entry.is_valid else entry.entry_type | INVALID_FLAG,
    )
    if entry.archive_endpoint is not None:
        endpoint = entry.archive_endpoint.encode("ascii")
        content += _ENDPOINT_LENGTH.pack(len(endpoint)) + endpoint
    return content.ljust(_length(entry.archive_endpoint), b"\0")


def _is_torn(content: bytes, offset: int) -> bool:
    """Whether a crash came while the entry at ``offset``, the last one, was written."""
    left = len(content) - offset
    if left < LOG_ENTRY_ALIGNMENT:
        return True
    (entry_type,) = _TYPE.unpack_from(content, offset + _TYPE_OFFSET)
    if entry_type == _TYPE_REMOVED or entry_type & ~INVALID_FLAG != ENTRY_TYPE_STANDBY_SNAPSHOT:
        return False
    begin = offset + LOG_ENTRY.size + _ENDPOINT_LENGTH.size
    (length,) = _ENDPOINT_LENGTH.unpack_from(content, begin - _ENDPOINT_LENGTH.size)
    if not 0 < length <= ENDPOINT_LENGTH_MAX:
        return False
    text = content[begin : begin + length]
    is_text = all(byte == 0 or 0x20 <= byte < 0x7F for byte in text)
    is_last = not content[offset + _length("x" * length) :].strip(b"\0")
    return is_last and is_text and (len(text) < length or 0 in text or left < _length(text.decode("ascii")))


def _check_level(file_sync_level: int) -> None:
    if not 0 <= file_sync_level <= 2:
        raise ConfigurationError(f"file_sync_level={file_sync_level} of the recording log: must be 0, 1 or 2")


def _check_recording_id(recording_id: int) -> None:
    if recording_id == NULL_VALUE:
        raise ClusterError(f"invalid recordingId={recording_id}: give the id that the archive has given")


def _known_terms(terms: dict[int, RecordingLogEntry]) -> str:
    return f"the recording log has terms {min(terms)} to {max(terms)}" if terms else "the recording log has no terms"
