"""Rows of a view: how the work is divided into partitions, and how one of them is read."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.common.aeron_defaults import CONSENSUS_MODULE_SNAPSHOT_STREAM_ID
from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.directories import Directory, path_in
from container.files.names import CATALOG_NAME
from container.files.open_errors import is_there
from container.files.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    ENTRY_TYPE_NAMES,
    RecordingLogEntry,
)
from container.recordings.arrow import arrow_type, as_times, import_pyarrow
from container.recordings.commit import end_texts, name_of, names_newest_term
from container.recordings.first_message import FirstMessage, clock_change, first_message
from container.recordings.frame_reader import MESSAGE_FAILURES
from container.recordings.log_decoder import COLUMNS as LOG_COLUMNS
from container.recordings.log_decoder import LogDecoder
from container.recordings.member import (
    MODES,
    SNAPSHOT_STREAM_IDS,
    STRICT,
    Log,
    Member,
    open_members,
    tolerates,
)
from container.recordings.message_reader import MessageReader
from container.recordings.recording_ends import RecordingEnds
from container.recordings.remote import check_objects, checked, in_parallel, is_url, local_path
from container.recordings.snapshot_decoder import COLUMNS as SNAPSHOT_COLUMNS
from container.recordings.snapshot_decoder import SnapshotDecoder
from container.recordings.views import EVENT_TIME, LOG_VIEWS, MEMBER_ID, Column, columns_of, schema_of, view_of

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

BATCH_ROWS = 65536
BATCH_BYTES = 16 * 1024 * 1024
SNAPSHOT_PARTITIONS_MAX = 32
_FRAME_ALIGNMENT = 32
_LEAST_DATE = 10**8  # what is less is of a clock that counts from its own begin; as seconds it is a day of 1973
_NULL_VALUE = -1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_READ_OK, _READ_END = 0, 1

# What each view of the log shows (templates of schema 111); messages shows all.
_TEMPLATES = {
    "sessions": frozenset([21, 22]),
    "session_messages": frozenset([1]),
    "timers": frozenset([20]),
    "terms": frozenset([24]),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows of a view of the log are wanted; ``None`` for no limit.

    Positions are those where messages (or frames) end: what lies between ``begin_position`` and ``end_position``. A row
    that reports damage passes whatever its time, template and term would be, and has the position where the damage
    begins: at ``begin_position`` or behind it, and before ``end_position``. Of parts of a log that have no wanted time,
    by the messages that they begin with, nothing is read.

    A time chooses each message by its own timestamp, also where a new leader's clock is behind the old one's. What has
    no timestamp, such as a message of an extension, is in no range of times; a warning counts what was left out so.
    """

    begin_position: int | None = None
    """Only rows with ``log_position > begin_position``."""
    end_position: int | None = None
    """Only rows with ``log_position <= end_position``."""
    is_border: bool = False
    """Whether ``begin_position``, if it is a multiple of 32, is known to be a place where a frame begins, so that
    nothing before it need be read. At other places a message's bytes might look like a frame."""
    begin_timestamp: int | None = None
    """Only rows with ``timestamp >= begin_timestamp``, in the cluster's unit; not for frames."""
    end_timestamp: int | None = None
    """Only rows with ``timestamp < end_timestamp``, in the cluster's unit; not for frames."""
    template_ids: frozenset[int] | None = None
    """Only rows with one of these template ids; not for frames."""
    leadership_term_ids: frozenset[int] | None = None
    """Only rows with one of these leadership terms."""

    def check(self, view: str) -> None:
        """Raise ConfigurationError when the view cannot apply a filter, or a bound is no whole number."""
        for name in ("begin_position", "end_position", "begin_timestamp", "end_timestamp"):
            value = getattr(self, name)
            if value is None or (isinstance(value, Integral) and _INT64_MIN <= int(value) <= _INT64_MAX):
                continue
            unit = ", of a time in the cluster's unit, by default milliseconds" if "timestamp" in name else ""
            raise ConfigurationError(f"{name}={value!r}: must be a whole number of 64 bits{unit}")
        if view not in LOG_VIEWS and self != Filters():
            raise ConfigurationError(f"view={view!r} takes no filters, got {self}")
        message_filters = (self.begin_timestamp, self.end_timestamp, self.template_ids)
        if view == "frames" and any(value is not None for value in message_filters):
            raise ConfigurationError(f"frames can be chosen by position and leadership term only, got {self}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a service or of the consensus module, as the recording log or, without one, the catalog has it."""

    entry: RecordingLogEntry | None
    descriptor: RecordingDescriptor | None
    """Of its recording; ``None`` where this archive has none."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a view that can be read by itself, anywhere where the member's files can be read."""

    member: Member
    view: str
    mode: str
    source: str
    """Where its rows come from: ``log``, ``recording_log``, ``catalog``, ``snapshot``, or ``failure`` for none."""
    descriptor: RecordingDescriptor | None = None
    begin_position: int = 0
    """Of the log: messages that begin from here …"""
    end_position: int = 0
    """… up to here are its rows; both are places where a frame begins."""
    recorded_position: int = 0
    """Where the recording ended when the plan was made."""
    committed_position: int = 0
    leadership_term_id: int | None = None
    """The term by the recording log; ``None`` where that is not known."""
    snapshots: tuple[Snapshot, ...] = ()
    """Those that are its rows, one after the other."""
    failure: RecordingError | None = None
    """What kept the plan from finding rows, or what is missing: it is the only row."""


def plan(
    members: Member | Sequence[Member],
    view: str,
    *,
    filters: Filters = Filters(),
    mode: str = STRICT,
    log: Log | None = None,
) -> list[Partition]:
    """Divide a view of one or several members into partitions, in the order of the log.

    Views of the log have a partition for each leadership term and segment file, so that they can be read in parallel;
    snapshots have at most 32 for each member, however many there are. On a running member the plan ends where its log
    was recorded when the plan was made. Each file is read once.

    Args:
        members: whose view it is.
        view: its name.
        filters: which rows are wanted.
        mode: what is done about damage.
        log: of one member what :meth:`~container.recordings.Member.log` gave, if the plan is to be of that moment.

    Raises:
        ConfigurationError: the view or mode is unknown, or the view cannot apply a filter.
        RecordingError: in mode strict: a catalog or recording log is damaged or cannot be read, or a log is not known.
            In mode permissive a partition takes the place of what could not be found; its row has the error.
    """
    view_of(view)
    filters.check(view)
    if mode not in MODES:
        raise ConfigurationError(f"mode={mode!r} is unknown, use one of {', '.join(MODES)}")
    several = [members] if isinstance(members, Member) else members
    if isinstance(several, str | Path) or not all(isinstance(one, Member) for one in several):
        raise ConfigurationError(f"members={members!r}: must be a Member or several, which open_member makes of a path")
    partitions = []
    for member in several:
        if view == "recordings":
            partitions.append(Partition(member, view, mode, "catalog"))
            continue
        if view in ("recording_log", "terms"):
            partitions.append(Partition(member, view, mode, "recording_log"))
        try:
            if view in LOG_VIEWS or view == "terms":
                partitions += _plan_log(member, member.log(mode) if log is None else log, view, filters, mode)
            elif view == "snapshots":
                partitions += _plan_snapshots(member, view, mode)
        except RecordingError as error:
            if not tolerates(mode, error):
                raise
            partitions.append(_failed(member, view, error, mode))
    return partitions


def _failed(member: Member, view: str, error: RecordingError, mode: str) -> Partition:
    return Partition(member, view, mode, "failure", failure=error)


def _plan_log(member: Member, log: Log, view: str, filters: Filters, mode: str) -> list[Partition]:
    descriptor, log_range = log.descriptor, log.log_range
    begin, end = log_range.start_position, log_range.recorded_position
    cuts = {begin: _NULL_VALUE, **_terms_of(member, log)}
    # Where files begin and end that are there: so what is missing between two of them is one partition.
    files = [place for first in log.segment_positions for place in (first, first + descriptor.segment_file_length)]
    borders = sorted({*cuts, *(place for place in files if begin < place < end), end})
    # The view of terms has the recording log's failure as a row already.
    partitions = [] if log.failure is None or view == "terms" else [_failed(member, view, log.failure, mode)]
    parts, term = [], None
    for lower, upper in pairwise(borders):
        term = cuts.get(lower, term)
        if _may_match(filters, lower, upper, term, max(cuts.values())):
            parts.append((lower, upper, term))
    is_timely = _timely(member, log, filters, [part[:2] for part in parts])
    for lower, upper, term in parts:
        if not is_timely(lower, upper):
            continue
        partitions.append(
            Partition(
                member,
                view,
                mode,
                "log",
                descriptor,
                lower,
                upper,
                end,
                log_range.committed_position,
                None if term == _NULL_VALUE else term,
            )
        )
    partitions += _end_of(member, log, view, filters, mode)
    return partitions


def _end_of(member: Member, log: Log, view: str, filters: Filters, mode: str) -> list[Partition]:
    """What takes the place of the end of a log that is missing, where that is asked for."""
    end = log.log_range.recorded_position
    if filters.end_position is not None and filters.end_position <= end:
        return []
    if (torn := end_texts(member, log).get("torn")) is not None:
        _log.warning("%s", torn)
    loss, begin = log.loss(member.archive), filters.begin_position
    if loss is None or log.lost_position is None or (begin is not None and begin >= log.lost_position):
        return []
    return [_failed(member, view, loss, mode)]


def _plan_snapshots(member: Member, view: str, mode: str) -> list[Partition]:
    """The entries of the recording log; without one, the recordings that look like snapshots."""
    descriptors = {descriptor.recording_id: descriptor for descriptor in member.recordings(mode)}
    failed = []
    try:
        entries = [entry for entry in member.recording_log(mode) if not entry.is_term]
    except RecordingError as error:
        if not tolerates(mode, error):
            raise
        entries, failed = [], [_failed(member, view, error, mode)]
    if not failed and (entries or member.cluster_dir is not None):
        found = [
            Snapshot(entry, descriptors.get(entry.recording_id) if entry.is_snapshot else None) for entry in entries
        ]
    else:
        found = [
            Snapshot(None, descriptor)
            for descriptor in descriptors.values()
            if descriptor.stream_id in SNAPSHOT_STREAM_IDS
        ]
    # Each partition reads the whole catalog, so their number is bounded: time stays in proportion to the snapshots.
    size = -(-len(found) // SNAPSHOT_PARTITIONS_MAX)
    return failed + [
        Partition(member, view, mode, "snapshot", snapshots=tuple(found[first : first + size]))
        for first in range(0, len(found), size or 1)
    ]


def _may_match(filters: Filters, lower: int, upper: int, term: int | None, newest: int) -> bool:
    """Whether a message that begins from ``lower`` up to ``upper`` can pass; it may end behind ``upper``.

    Behind the newest term of a recording log there may be later ones, which it has lost.
    """
    if filters.end_position is not None and lower >= filters.end_position:
        return False
    if filters.begin_position is not None and upper <= filters.begin_position:
        return False
    terms = filters.leadership_term_ids
    if terms is None or term is None or term == _NULL_VALUE or term in terms:
        return True
    return term == newest and any(wanted > newest for wanted in terms)


def _timely(member: Member, log: Log, filters: Filters, parts: Sequence[tuple[int, int]]) -> Callable[[int, int], bool]:
    """Whether a message of one of the parts, by their borders, can have one of the wanted times.

    The first messages of a part and of the next one say it, with room for clocks that are set. Another leader's clock
    says nothing: of the last part of a leadership term it is not known what it ends with. Read are also parts in which
    a term begins that the recording log does not have there, and those that a message without a time begins or ends.
    """
    first, last = filters.begin_timestamp, filters.end_timestamp
    if first is None and last is None:
        return lambda lower, upper: True
    archive, end_position = member.archive, log.log_range.recorded_position
    places = sorted({place for part in parts for place in part} - {end_position})
    found = in_parallel(archive, lambda place: first_message(archive, log.descriptor, place), places)
    firsts = dict(zip(places, found, strict=True))
    for name in ("begin_timestamp", "end_timestamp"):
        _doubt_unit(name, getattr(filters, name), [*firsts.values()])
    terms = {entry.term_base_log_position: entry.leadership_term_id for entry in log.terms}

    def ends_term(upper: int, term: int) -> bool:
        """Whether it is known that up to a border no term began, and that the one behind it is this one."""
        if upper != end_position:
            return terms.get(upper) == term
        return term == max(terms.values(), default=None) and (log.has_counter or names_newest_term(member, log))

    def is_timely(lower: int, upper: int) -> bool:
        begin = firsts[lower]
        behind = begin if upper == end_position else firsts[upper]
        if begin is None or behind is None:
            return True
        goes_on = upper != end_position and behind.leadership_term_id == begin.leadership_term_id
        if not goes_on and not ends_term(upper, behind.leadership_term_id):
            return True
        times = [begin.timestamp, behind.timestamp] if goes_on else [begin.timestamp]
        if last is not None and min(times) - clock_change(min(times)) >= last:
            return False
        return first is None or not goes_on or max(times) + clock_change(max(times)) >= first

    return is_timely


def _doubt_unit(name: str, bound: int | None, firsts: Sequence[FirstMessage | None]) -> None:
    """Say when a bound looks like a time of the log in another unit; a unit is a thousand of the next one."""
    time = next((first.timestamp for first in firsts if first is not None), 0)
    if bound is None or min(bound, time) < _LEAST_DATE:
        return
    for factor in (10**3, 10**6, 10**9):
        for meant in (bound * factor, bound // factor):
            if time // 2 < meant < time * 2:
                _log.warning(
                    "%s=%d looks like a time in another unit than the log's, which has timestamps such as %d: "
                    "did you mean %d?",
                    name,
                    bound,
                    time,
                    meant,
                )


def _terms_of(member: Member, log: Log) -> dict[int, int]:
    """Leadership terms by where they begin, as the recording log has them, where the log has a frame there.

    Where it has none, the term is known from the next Aeron term or file on that begins with one: what lies between
    cannot be read if that is damage, and the log is not divided where no frame begins.
    """
    begin, end = log.log_range.start_position, log.log_range.recorded_position
    term_length = log.descriptor.term_buffer_length
    bases: dict[int, int] = {}
    with closing(MessageReader(member.archive, **log.descriptor.layout())) as reader:
        for entry in sorted(log.terms, key=lambda entry: entry.leadership_term_id):
            base = max(entry.term_base_log_position, begin)
            files = (position for position in log.segment_positions if position > base)
            places = (base, (base // term_length + 1) * term_length, next(files, end))
            found = (place for place in places if place < end and (place == begin or reader.has_frame(place, end)))
            if (first := next(found, None)) is not None:
                bases = {place: term for place, term in bases.items() if place < first}
                bases[first] = entry.leadership_term_id
    return bases


def read(path: str | Path | Sequence[str | Path], view: str, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a view of one member or several, in the order of the log, member by member.

    Options are those of :func:`~container.recordings.open_members` (``archive_dir``, ``recording_id``, ``committed``,
    ``storage_options``), :func:`plan` (``filters``, ``mode``) and :func:`read_partition` (``batch_rows``, ``columns``,
    ``member_column``).

    Raises:
        as those do.
    """
    names = ("archive_dir", "recording_id", "committed", "storage_options")
    places = {name: options.pop(name) for name in names if name in options}
    mode = options.pop("mode", STRICT)
    filters = options.pop("filters", Filters())
    for partition in plan(open_members(path, **places), view, filters=filters, mode=mode):
        yield from read_partition(partition, filters=filters, **options)


def open_reader(path: str | Path | Sequence[str | Path], view: str, **options: Any) -> pa.RecordBatchReader:
    """Return the rows of :func:`read` as a stream that DuckDB, Polars and others of Arrow take, with its schema.

    It is read as they ask for batches, once; what is read fails there with the errors of :func:`read`.

    Raises:
        ConfigurationError: the view has no such column.
        ImportError: pyarrow is not installed.
    """
    columns = _wanted_columns(view, options.get("columns"), bool(options.get("member_column")))
    return import_pyarrow().RecordBatchReader.from_batches(schema_of(columns), read(path, view, **options))


def read_partition(
    partition: Partition,
    *,
    filters: Filters = Filters(),
    batch_rows: int = BATCH_ROWS,
    columns: Sequence[str] | None = None,
    member_column: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition as Arrow record batches, which own their memory.

    A batch has at most ``batch_rows`` rows and ends at 16 MiB of payload, so memory is bounded whatever the length
    of a segment; the GIL is released while a batch is decoded. Only the named columns are made, in that order; by
    default all of the view, and before them ``member_id`` with ``member_column``.

    Raises:
        ConfigurationError: the view has no such column, or cannot apply a filter.
        RecordingUnavailableError: a file that must be there is missing, or cannot be opened or read, in either mode.
        RecordingError: the files are damaged, in mode strict; the rows before the damage have been yielded. In mode
            permissive a row with the column ``error`` takes the place of what is damaged and says how many bytes were
            skipped, a warning is logged for the partition, and reading goes on at the next frame that agrees with its
            place; where a file ends too early, in the next segment.
    """
    filters.check(partition.view)
    _check_sight(partition)
    wanted = _wanted_columns(partition.view, columns, member_column)
    if partition.source == "snapshot":
        yield from _joined(_read_snapshots(partition, batch_rows, wanted), batch_rows)
        return
    make = _batch_maker(partition, wanted)
    yield from _damage_as_row(partition, make, _read(partition, filters, batch_rows, make))


def _check_sight(partition: Partition) -> None:
    """Raise RecordingUnavailableError on a host that does not see the local directories that the plan was made of."""
    member = partition.member
    for name in (member.archive_dir, member.cluster_dir):
        directory = None if name is None else local_path(name) if is_url(name) else name
        if partition.failure is None and directory is not None and not _is_seen(Path(directory)):
            raise RecordingUnavailableError(
                f"host {socket.gethostname()} does not see this directory of {name_of(member)}: mount it there under "
                "the same path, or ship the member to a place that all hosts see: aeron-cluster pipeline ship",
                file=directory,
            )


def _is_seen(directory: Path) -> bool:
    try:
        return is_there(directory)
    except OSError:
        return True  # Who opens its files says why that cannot be done.


def _damage_as_row(
    partition: Partition, make: _BatchMaker, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches, and in mode permissive a row for the error that ends them."""
    try:
        yield from batches
    except RecordingError as error:
        if not tolerates(partition.mode, error):
            raise
        yield make.from_rows([{"error": str(error), "log_position": error.log_position}])


def _read(partition: Partition, filters: Filters, batch_rows: int, make: _BatchMaker) -> Iterator[pa.RecordBatch]:
    if partition.failure is not None:
        raise partition.failure
    if partition.source == "log":
        yield from _read_log(partition, filters, batch_rows, make)
    elif partition.source == "catalog":
        yield from _read_entries(partition, _recordings(partition), batch_rows, make)
    elif partition.view == "terms":
        yield from _read_entries(partition, _logged_terms(partition), batch_rows, make)
    elif partition.source == "recording_log":
        yield from _read_entries(partition, _log_entries(partition), batch_rows, make)


def _wanted_columns(view: str, names: Sequence[str] | None, member_column: bool) -> list[Column]:
    known = {column.name: column for column in columns_of(view, member_column=True)}
    if names is None:
        names = [name for name in known if name != MEMBER_ID.name or member_column]
    if isinstance(names, str):
        raise ConfigurationError(f"columns={names!r} is one text, give a list of names such as [{names!r}]")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigurationError(f"view {view!r} has no column {unknown[0]!r}, it has {', '.join(known)}")
    return [known[name] for name in names]


class _BatchMaker:
    """Makes record batches of the wanted columns in their order; some have one value throughout."""

    def __init__(self, columns: Sequence[Column], constants: dict[str, Any], partition: Partition) -> None:
        self._arrow = import_pyarrow()
        self._names = [column.name for column in columns]
        self.columns = {column.name: column.type for column in columns if column.name != EVENT_TIME.name}
        self.constants = constants
        self._schema = schema_of(columns)
        #: The column of which times are made; None when they are not wanted.
        self._timestamp = None
        if EVENT_TIME.name in self._names:
            self._timestamp, self._time_unit = _times_of(partition)
            self.columns.setdefault(self._timestamp, "int64")

    def varying(self) -> dict[str, str]:
        """The columns that are read, without those that have one value throughout."""
        return {name: kind for name, kind in self.columns.items() if name not in self.constants}

    def decoded(self, known: Collection[str]) -> dict[str, str]:
        """Those of them that a decoder knows; from now on the others are null throughout."""
        self.constants |= {name: None for name in self.varying() if name not in known}
        return self.varying()

    def from_arrays(self, arrays: dict[str, Any], rows: int) -> pa.RecordBatch:
        for name, value in self.constants.items():
            if name in self.columns:
                scalar = self._arrow.scalar(value, arrow_type(self.columns[name]))
                arrays[name] = self._arrow.repeat(scalar, rows)
        if self._timestamp is not None:
            arrays[EVENT_TIME.name] = as_times(arrays[self._timestamp], self._time_unit)
        if not self._names:
            # Rows without columns: only their number matters.
            return self._arrow.RecordBatch.from_struct_array(self._arrow.array([{}] * rows, self._arrow.struct([])))
        return self._arrow.RecordBatch.from_arrays([arrays[name] for name in self._names], schema=self._schema)

    def from_rows(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        arrays = {
            name: self._arrow.array([row.get(name) for row in rows], arrow_type(kind))
            for name, kind in self.varying().items()
        }
        return self.from_arrays(arrays, len(rows))


def _batch_maker(partition: Partition, wanted: Sequence[Column]) -> _BatchMaker:
    return _BatchMaker(wanted, {MEMBER_ID.name: partition.member.member_id}, partition)


def _times_of(partition: Partition) -> tuple[str, str]:
    """The column that has the timestamps of a view, and their unit."""
    if partition.source == "catalog":
        return "start_timestamp", "MILLIS"
    from container.recordings.cluster_time import time_unit

    return "timestamp", time_unit(partition.member)


def _read_log(partition: Partition, filters: Filters, batch_rows: int, make: _BatchMaker) -> Iterator[pa.RecordBatch]:
    decoder = _decoder(partition, filters, batch_rows, make)
    if decoder is None:
        return
    term = _NULL_VALUE if partition.leadership_term_id is None else partition.leadership_term_id
    is_frames = partition.view == "frames"
    may_be_truncated = True
    is_checked = False
    damage = _Damage()
    try:
        while True:
            result = decoder.decode_frames(term) if is_frames else decoder.decode_messages()
            error = None
            if not is_checked:
                _check_same_log(partition)  # Its file is open now, and stays the one that it is.
                is_checked = True
            if result < 0:
                error = decoder.failure_error()
                _check_what_was_read(partition, filters)
                # Where one thing is damaged, what follows is no election's work: looking again would take long.
                may_be_truncated = may_be_truncated and _was_truncated(partition, error)
                if may_be_truncated:
                    result, error = _READ_END, None
                elif tolerates(partition.mode, error):
                    position = _after_damage(decoder, is_frames)
                    damage.add(decoder, error, position)
                    result = _READ_END if position >= partition.end_position else _READ_OK
                    error = None
            if result == _READ_END:
                _check_what_was_read(partition, filters)
            if decoder.rows and (error is not None or result == _READ_END or decoder.is_full):
                rows = decoder.rows
                yield make.from_arrays(decoder.take(), rows)
            if error is not None:
                raise error
            if result == _READ_END:
                return
    finally:
        damage.warn()
        if decoder.untimed_count:
            _log.warning(
                "%d messages from log position %d on have no time: bounds of time leave them out, positions do not",
                decoder.untimed_count,
                partition.begin_position,
            )
        decoder.close()


def _check_same_log(partition: Partition) -> None:
    """Raise RecordingUnavailableError when another log was begun since the plan was made: its files have the names of
    those that were wiped."""
    descriptor, archive = partition.descriptor, partition.member.archive
    assert descriptor is not None
    try:
        # No further than to the log's own entry: the catalog of an old cluster has thousands of snapshots behind it.
        now = next(read_catalog(archive, {descriptor.recording_id}), None)
    except RecordingError:
        return
    if now is not None and now.start_timestamp != descriptor.start_timestamp:
        raise RecordingUnavailableError(
            f"recording {descriptor.recording_id} is another one than when the query was planned: the cluster was "
            "wiped and started again",
            file=path_in(archive, CATALOG_NAME),
        )


class _Damage:
    """What a permissive read has passed over, for the rows and for one warning at its end."""

    def __init__(self) -> None:
        self._count = self._skipped = 0
        self._first = ""

    def add(self, decoder: LogDecoder, error: RecordingError, position: int) -> None:
        """Put the row for damage behind which reading goes on at a log position."""
        assert error.log_position is not None
        skipped = position - error.log_position
        text = f"{error}; {skipped} bytes skipped, up to log position {position}"
        if decoder.put_error(error, text):
            self._count, self._skipped = self._count + 1, self._skipped + skipped
            self._first = self._first or text

    def warn(self) -> None:
        if self._count:
            _log.warning("damage in %d places, %d bytes skipped; first: %s", self._count, self._skipped, self._first)


def _decoder(partition: Partition, filters: Filters, batch_rows: int, make: _BatchMaker) -> LogDecoder | None:
    descriptor = partition.descriptor
    assert descriptor is not None
    make.constants["recording_id"] = descriptor.recording_id
    begin = partition.begin_position
    if filters.begin_position is not None:
        begin = max(begin, _first_to_read(partition, descriptor, filters))
    templates = _TEMPLATES.get(partition.view)
    if filters.template_ids is not None:
        templates = filters.template_ids if templates is None else templates & filters.template_ids
    terms = filters.leadership_term_ids
    if partition.view == "frames" and terms is not None:
        if partition.leadership_term_id not in terms:
            return None
        terms = None
    limits = {
        name: value
        for name, value in (("begin_position", filters.begin_position), ("end_position", filters.end_position))
        if value is not None
    }
    return LogDecoder(
        _likely_read(partition, filters),
        descriptor.layout(),
        make.decoded(LOG_COLUMNS),
        batch_rows=batch_rows,
        begin=begin,
        end=partition.end_position,
        read_end=partition.recorded_position,
        committed_position=partition.committed_position,
        begin_timestamp=filters.begin_timestamp,
        end_timestamp=filters.end_timestamp,
        template_ids=templates,
        is_cluster_only=partition.view in _TEMPLATES,
        leadership_term_ids=terms,
        likely_term_id=_NULL_VALUE if partition.leadership_term_id is None else partition.leadership_term_id,
        **limits,
    )


def _likely_read(partition: Partition, filters: Filters) -> Directory:
    """The partition's archive, of which nothing is fetched in advance behind the last row that is wanted."""
    return checked(partition.member.archive, _last_position(partition, filters))


def _last_position(partition: Partition, filters: Filters) -> int:
    end = partition.end_position
    return end if filters.end_position is None else min(end, filters.end_position)


def _check_what_was_read(partition: Partition, filters: Filters) -> None:
    """Raise RecordingUnavailableError when an object of a shipped place is not what was shipped."""
    assert partition.descriptor is not None
    end = _last_position(partition, filters)
    check_objects(partition.member.archive, partition.descriptor.recording_id, partition.begin_position, end)


def check_partition(partition: Partition, filters: Filters) -> None:
    """Compare all that a partition of the log reads of a shipped place with what was shipped, before any row is given.

    :func:`read_partition` compares it as it is read: its error comes behind rows, which nobody may keep then.

    Raises:
        RecordingUnavailableError: an object has other bytes, or cannot be fetched.
    """
    if partition.source != "log" or partition.descriptor is None:
        return
    begin = max(partition.begin_position, filters.begin_position or 0)
    end, recording_id = _last_position(partition, filters), partition.descriptor.recording_id
    check_objects(partition.member.archive, recording_id, begin, end, is_read=False)


def _first_to_read(partition: Partition, descriptor: RecordingDescriptor, filters: Filters) -> int:
    """The last place where a frame is known to begin, and of which no wanted message began before."""
    assert filters.begin_position is not None
    first = min(filters.begin_position, partition.end_position)
    if filters.is_border and first % _FRAME_ALIGNMENT == 0 and partition.begin_position < first:
        with closing(MessageReader(partition.member.archive, **descriptor.layout())) as reader:
            if reader.begins_message(first, partition.recorded_position):
                return first
    # A message has its frames in one Aeron term, at the start of which one begins.
    return first & -descriptor.term_buffer_length


def _after_damage(decoder: LogDecoder, is_frames: bool) -> int:
    """Move the decoder to where reading can be trusted again; return that log position."""
    return decoder.skip_damage(is_frames)


def _was_truncated(partition: Partition, error: RecordingError) -> bool:
    """Whether what is missing was removed by an election since the plan was made; committed messages never are."""
    position, descriptor = error.log_position, partition.descriptor
    if isinstance(error, RecordingUnavailableError):
        return False  # Without its files nothing can be said of a log.
    if position is None or position < partition.committed_position or descriptor is None:
        return False
    try:
        return partition.member.recorded_position(descriptor) <= position
    except RecordingError:
        return False


def _read_snapshots(partition: Partition, batch_rows: int, wanted: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    descriptors = [snapshot.descriptor for snapshot in partition.snapshots]
    ends = RecordingEnds(partition.member, {one.recording_id for one in descriptors if one is not None})
    for snapshot in partition.snapshots:
        make = _batch_maker(partition, wanted)
        yield from _damage_as_row(partition, make, _read_snapshot(partition, snapshot, ends, batch_rows, make))


def _joined(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: small ones cost whoever takes them more than their rows do."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if pending and (rows + batch.num_rows > batch_rows or size + batch.nbytes > BATCH_BYTES):
                yield _one_batch(pending)
                pending, rows, size = [], 0, 0
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    except RecordingError:
        if pending:
            yield _one_batch(pending)
        raise
    if pending:
        yield _one_batch(pending)


def _one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    arrow = import_pyarrow()
    first = batches[0]
    if len(batches) == 1:
        return first
    if not first.schema.names:
        rows = sum(batch.num_rows for batch in batches)
        return arrow.RecordBatch.from_struct_array(arrow.array([{}] * rows, arrow.struct([])))
    arrays = [arrow.concat_arrays([batch.column(index) for batch in batches]) for index in range(first.num_columns)]
    return arrow.RecordBatch.from_arrays(arrays, schema=first.schema)


def _read_snapshot(
    partition: Partition, snapshot: Snapshot, ends: RecordingEnds, batch_rows: int, make: _BatchMaker
) -> Iterator[pa.RecordBatch]:
    """The row of a snapshot's entry, and then what its recording holds."""
    entry, descriptor = snapshot.entry, snapshot.descriptor
    make.constants |= _snapshot_constants(entry, descriptor)
    row: dict[str, Any] = {"item": "ENTRY"}
    if descriptor is None:
        # Of a standby snapshot the recording is in another archive; others may have been removed as old.
        row["is_complete"] = False if entry is not None and entry.is_snapshot else None
        yield make.from_rows([row])
        return
    is_module = descriptor.stream_id == CONSENSUS_MODULE_SNAPSHOT_STREAM_ID
    if entry is not None:
        is_module = entry.service_id == CONSENSUS_MODULE_SERVICE_ID
    archive_dir = checked(partition.member.archive)
    try:
        end = ends.of(descriptor)
        arguments: dict[str, Any] = {
            # A batch takes memory for all rows that it may have, and an item has a frame at least.
            "batch_rows": min(batch_rows, max(1, (end - descriptor.start_position) // _FRAME_ALIGNMENT)),
            "end": end,
            "is_consensus_module": is_module,
            "log_position": _NULL_VALUE if entry is None else entry.log_position,
        }
        try:
            row["is_complete"] = _find_end_marker(archive_dir, descriptor, make, arguments)
        finally:
            check_objects(partition.member.archive, descriptor.recording_id, descriptor.start_position, end)
    except RecordingError:
        row["is_complete"] = False
        yield make.from_rows([row])
        raise
    yield make.from_rows([row])
    columns = make.decoded(SNAPSHOT_COLUMNS)
    decoder = SnapshotDecoder(archive_dir, descriptor.layout(), columns, **arguments)
    try:
        while True:
            result = decoder.decode_items()
            error = decoder.failure_error() if result < 0 else None
            if error is not None and tolerates(partition.mode, error):
                decoder.put_error(error)
                error = None
                result = _READ_OK if decoder.last_failure in MESSAGE_FAILURES else _READ_END
            if decoder.rows and (error is not None or result == _READ_END or decoder.is_full):
                rows = decoder.rows
                yield make.from_arrays(decoder.take(), rows)
            if error is not None:
                raise error
            if result == _READ_END:
                return
    finally:
        decoder.close()


def _snapshot_constants(entry: RecordingLogEntry | None, descriptor: RecordingDescriptor | None) -> dict[str, Any]:
    """What is the same for all rows of a snapshot."""
    if entry is None:
        assert descriptor is not None
        is_module = descriptor.stream_id == CONSENSUS_MODULE_SNAPSHOT_STREAM_ID
        return {
            "recording_id": descriptor.recording_id,
            "service_id": CONSENSUS_MODULE_SERVICE_ID if is_module else None,
        }
    names = (
        "recording_id",
        "service_id",
        "leadership_term_id",
        "term_base_log_position",
        "log_position",
        "timestamp",
        "entry_index",
        "is_valid",
    )
    return {name: getattr(entry, name) for name in names}


def _find_end_marker(
    archive_dir: Directory, descriptor: RecordingDescriptor, make: _BatchMaker, arguments: dict[str, Any]
) -> bool:
    """Whether a snapshot has begin and end marker; without a recording log its position and term come from them."""
    decoder = SnapshotDecoder(archive_dir, descriptor.layout(), {}, **arguments)
    result = _READ_OK
    while result == _READ_OK:
        result = decoder.decode_items(until_end_marker=True)
        decoder.take()
    if "log_position" not in make.constants:
        make.constants["log_position"] = _known(decoder.snapshot_position)
        make.constants["leadership_term_id"] = _known(decoder.leadership_term_id)
    decoder.close()
    return decoder.is_complete


def _read_entries(
    partition: Partition, rows: Iterator[dict[str, Any]], batch_rows: int, make: _BatchMaker
) -> Iterator[pa.RecordBatch]:
    """Batches of few rows that come as dicts; damage ends them as the partition's mode says."""
    pending: list[dict[str, Any]] = []
    failure = None
    while True:
        try:
            row = next(rows, None)
        except RecordingError as error:
            failure, row = error, None
            if tolerates(partition.mode, error):
                pending.append({"error": str(error)})
        if row is not None:
            pending.append(row)
        if pending and (row is None or len(pending) >= batch_rows):
            yield make.from_rows(pending)
            pending = []
        if row is None:
            break
    if failure is not None and not tolerates(partition.mode, failure):
        raise failure


def _known(value: int) -> int | None:
    """None for what upstream writes as -1."""
    return None if value == _NULL_VALUE else value


def _recordings(partition: Partition) -> Iterator[dict[str, Any]]:
    partition.member.shipped()
    for descriptor in read_catalog(partition.member.archive):
        row = {name: getattr(descriptor, name) for name in RecordingDescriptor.__slots__}
        row["stop_timestamp"] = _known(descriptor.stop_timestamp)
        row["stop_position"] = _known(descriptor.stop_position)
        yield row


def _log_entries(partition: Partition) -> Iterator[dict[str, Any]]:
    member = partition.member
    if member.cluster_dir is None:
        return
    member.shipped()
    try:
        for entry in member.logged_entries():
            yield {
                **{name: getattr(entry, name) for name in RecordingLogEntry.__slots__},
                "log_position": _known(entry.log_position),
                "entry_type": ENTRY_TYPE_NAMES[entry.entry_type],
            }
    except FileNotFoundError:
        return


def _logged_terms(partition: Partition) -> Iterator[dict[str, Any]]:
    for row in _log_entries(partition):
        if row["entry_type"] == "TERM":
            end = row.pop("log_position")
            yield {"source": "recording_log", "end_log_position": end, **row}
