"""The data source ``aeron.cluster``: what a cluster recorded, as rows of Spark, in batches and streams."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import structs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.errors import ConfigurationError, RecordingError, RecordingUnavailableError
from container.recordings import (
    LOG_VIEWS,
    Filters,
    Member,
    open_member,
    plan,
    read_partition,
    schema,
)
from container.recordings.arrow import TICKS_PER_SECOND
from container.recordings.cluster_time import time_unit
from container.recordings.commit import end_texts, member_key, with_others
from container.recordings.member import AUDIT, STRICT, tolerates
from container.recordings.message_reader import MessageReader
from container.recordings.remote import expand
from container.spark.cluster_log import (
    ClusterPartition,
    MemberLog,
    divided,
    plan_partitions,
    read_logs,
    read_rows,
    refuse_two_logs,
)
from container.spark.decoders import Decoder, make_decoder
from container.spark.filters import narrow
from container.spark.offsets import MemberOffset, format_offset, parse_offset
from container.spark.options import ALL, ANY, EARLIEST, LATEST, Bound, SourceOptions, parse_options
from container.spark.payloads import PAYLOAD_COLUMN
from container.spark.tables import carry, query_options, statement_options
from container.spark.versions import (
    IS_4_1,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_columns,
)

FORMAT = "aeron.cluster"
"""The name of the data source in Spark."""
ERROR_COLUMN = "error"
KEEPS_FILTERS_APART = hasattr(DataSourceReader, "pushLimit")
"""Whether this Spark keeps what was planned for a query's filters with that query. Those before it, 4.1 to 4.3, keep it
with the DataFrame: the next query of the same DataFrame, if it has no filters, reads only what they let through."""
_IS_READ_ONLY = (
    f"{FORMAT} only reads what a cluster recorded, and writes nothing to it: write to another format, such as parquet; "
    "messages come into a cluster by its clients"
)
_LATEST_POSITION = -1
_log = logging.getLogger(__name__)


class ClusterDataSource(DataSource):
    """The data source of ``format("aeron.cluster")``; :mod:`container.spark.options` has the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the view, of the decoder and of nothing else; each has a comment in its metadata.

        Raises:
            ConfigurationError: an option or the decoder is wrong, or a column is not one of the view.
        """
        statement = statement_options(self.options)
        options = parse_options(dict(self.options) if statement is None else statement)
        fields = {field.name: field for field in arrow_schema(options)}
        unknown = [name for name in options.columns if name not in fields]
        if unknown:
            raise ConfigurationError(
                f"columns: the view {options.view!r} has no {', '.join(map(repr, unknown))}; it has {', '.join(fields)}"
            )
        chosen = pa.schema([fields[name] for name in options.columns or fields])
        columns = spark_schema(chosen)
        return columns if statement is None else carry(columns, statement)

    def reader(self, schema: StructType) -> ClusterReader:
        """A reader of a batch; a schema that the user gives chooses among the view's columns."""
        return ClusterReader(parse_options(query_options(self.options, schema)), schema)

    def streamReader(self, schema: StructType) -> ClusterStreamReader:  # noqa: N802
        """A reader of a stream.

        Raises:
            ConfigurationError: the view is not one of the log.
        """
        return ClusterStreamReader(parse_options(query_options(self.options, schema)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse to write: INSERT INTO a table, CREATE TABLE … AS SELECT, or a DataFrame's ``write``.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(_IS_READ_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Refuse to write a stream.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(_IS_READ_ONLY)


def arrow_schema(options: SourceOptions) -> pa.Schema:
    """All columns that a query with these options can have."""
    view = schema(options.view, member_column=True)
    decoder = payload_decoder(options)
    return view if decoder is None else pa.schema([*view, *decoder.fields])


def spark_schema(columns: pa.Schema) -> StructType:
    """Spark's schema of Arrow's, with the comments."""
    converted = from_arrow_schema(columns)
    for field, column in zip(converted.fields, columns, strict=True):
        comment = (column.metadata or {}).get(b"comment")
        if comment:
            field.metadata = {"comment": comment.decode()}
    return converted


def payload_decoder(options: SourceOptions) -> Decoder | None:
    """The decoder of the payloads, if the options name one."""
    if options.decoder is None:
        return None
    names = schema(options.view, member_column=True).names
    if PAYLOAD_COLUMN not in names:
        raise ConfigurationError(f"decoder: the view {options.view!r} has no column {PAYLOAD_COLUMN!r} to decode")
    return make_decoder(options.decoder, names)


class GapPartition(InputPartition):
    """Stands for what a stream can no longer read; gives the row that says so."""

    def __init__(self, member_id: int | None, log_position: int, text: str) -> None:
        super().__init__(log_position)
        self.member_id = member_id
        self.text = text


def open_source_members(options: SourceOptions) -> list[Member]:
    """The members that the options name and that exist. Where there are several, one whose files have no id gets its
    index in the path as its id, or the next free number.

    Raises:
        ConfigurationError: two directories belong to the same member, or no directory to the one that ``member`` names.
        RecordingError: a directory is not a member's; with ``member=any``, no directory is.
    """
    return [member for member in _chosen(options, named(_opened(options), {})) if not member.is_missing]


def furthest_log(options: SourceOptions) -> MemberLog:
    """The log that is committed furthest, of the members that the options name.

    Raises:
        as :func:`open_source_members`; RecordingError: no member has a log that can be read.
    """
    members = open_source_members(options)
    logs = read_logs(members, _log.warning) if len(members) > 1 else []
    return logs[0] if logs else MemberLog(members[0], members[0].log())


def _opened(options: SourceOptions) -> list[Member]:
    """The members in the order of the path; without an id where no file has one.

    If one is enough, those that are not there are marked as missing.
    """
    paths = [path for pattern in options.paths for path in expand(pattern, options.storage)]
    archive_dirs = options.archive_dirs or (None,) * len(paths)
    if len(archive_dirs) != len(paths):
        raise ConfigurationError(
            f"archive_dir names {len(archive_dirs)} directories and path matches {len(paths)}: {', '.join(paths)}; "
            "name these, each with its archive"
        )
    members, failures = [], list[RecordingError]()
    for path, archive_dir in zip(paths, archive_dirs, strict=True):
        try:
            members.append(
                open_member(path, archive_dir=archive_dir, committed=options.committed, storage_options=options.storage)
            )
        except RecordingError as error:
            failures.append(error)
            if options.member == ALL or len(failures) == len(paths):
                raise failures[0] from None
            members.append(Member(path, None, archive_dir or path, None, is_missing=True, storage=options.storage))
    return with_others(members)


def _chosen(options: SourceOptions, members: Sequence[Member]) -> list[Member]:
    """Those of the members that the option ``member`` asks for."""
    if isinstance(options.member, str):
        return list(members)
    found = [member for member in members if member.member_id == options.member]
    if not found:
        ids = ", ".join(str(member.member_id) for member in members if member.member_id is not None) or "none"
        missing = "".join(f"; nothing was found in {member.path}" for member in members if member.is_missing)
        raise ConfigurationError(
            f"member={options.member}: path names no such member; the ids of its members: {ids}{missing}"
        )
    return found


def named(members: Iterable[Member], ids: Mapping[str, int | None]) -> list[Member]:
    """The members with the ids that rows say: of ``ids``, by key, where these have one; else see above."""
    listed = list(members)
    taken = {member.member_id for member in listed if member.member_id is not None}
    known = {key: ids[key] for member in listed if (key := member_key(member)) in ids and ids[key] not in taken}
    taken |= {member_id for member_id in known.values() if member_id is not None}
    found = []
    for place, member in enumerate(listed):
        key = member_key(member)
        if member.member_id is None and key in known:
            member = replace(member, member_id=known[key], is_unnamed=True)
        elif member.member_id is None and len(listed) > 1:
            free = next(number for number in (place, *range(len(taken) + 1)) if number not in taken)
            taken.add(free)
            member = replace(member, member_id=free, is_unnamed=True)
        found.append(member)
    return found


class Place(NamedTuple):
    """Where to begin or to end in the log of one member; no field is set where that is its own begin or end."""

    position: int | None = None
    timestamp_ns: int | None = None
    is_end: bool = False
    """Whether it is the commit position of now."""


def _places(bound: Bound | None, keys: Sequence[str], *, is_one_log: bool) -> dict[str, Place]:
    """The place that an option names, by the keys of logs.

    Raises:
        ConfigurationError: it names other members than ``path``.
    """
    if bound is None:
        return {}
    if bound.positions is None:
        place = Place(bound.position, bound.timestamp_ns, bound.word == LATEST)
        return dict.fromkeys(keys, place)
    if is_one_log:
        raise ConfigurationError(
            f"{bound.name}: has positions of members, and with member=any one log is read, whichever member has it: "
            "give earliest, latest or one position for all, or set member=all"
        )
    if bound.positions.keys() != set(keys):
        raise ConfigurationError(
            f"{bound.name}: names the members {', '.join(sorted(bound.positions)) or '(none)'}, and path "
            f"{', '.join(sorted(keys))}; give a position for each"
        )
    return {
        key: Place(None if position < 0 else position, None, position == _LATEST_POSITION)
        for key, position in bound.positions.items()
    }


def bounded(filters: Filters, member: Member, start: Place, end: Place) -> Filters:
    """The filters, and between two places of a member's log."""
    begins = [value for value in (filters.begin_position, start.position) if value is not None]
    ends = [value for value in (filters.end_position, end.position) if value is not None]
    first, last = filters.begin_timestamp, filters.end_timestamp
    if start.timestamp_ns is not None:
        first = max(ticks_from(member, start.timestamp_ns), -(2**63) if first is None else first)
    if end.timestamp_ns is not None:
        last = min(ticks_from(member, end.timestamp_ns), 2**63 - 1 if last is None else last)
    return replace(
        filters,
        begin_position=max(begins, default=None),
        end_position=min(ends, default=None),
        begin_timestamp=first,
        end_timestamp=last,
    )


def ticks_from(member: Member, timestamp_ns: int) -> int:
    """The first timestamp of the cluster, in its unit, that is not before a time."""
    return -(-timestamp_ns * TICKS_PER_SECOND[time_unit(member)] // 1_000_000_000)


class _Rows:
    """Reads partitions as batches of the schema that Spark knows."""

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        self._options = options
        self._columns = columns
        decoder = payload_decoder(options)
        decoded = [] if decoder is None else [field.name for field in decoder.fields]
        known = {*arrow_schema(options).names}
        unknown = [name for name in columns.fieldNames() if name not in known]
        if unknown:
            raise ConfigurationError(f"the view {options.view!r} has no column {', '.join(map(repr, unknown))}")
        _check_types(options.view, columns)
        #: None for a query that asks for other columns only.
        self._decoder = decoder if any(name in decoded for name in columns.fieldNames()) else None
        self._read = [name for name in columns.fieldNames() if name not in decoded]
        if self._decoder is not None and PAYLOAD_COLUMN not in self._read:
            self._read.append(PAYLOAD_COLUMN)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition; none for the partition that Spark makes where there is none to read."""
        wanted = arrow_columns(self._columns)
        if isinstance(partition, GapPartition):
            row = {"member_id": partition.member_id, "log_position": partition.value, ERROR_COLUMN: partition.text}
            yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in wanted.names}], schema=wanted)
        if not isinstance(partition, ClusterPartition):
            return
        decoder = self._decoder
        failures = _Failures()
        for batch in read_rows(partition, self._read, self._options.batch_rows):
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            if decoder is not None:
                decoded = decoder.decode(arrays[PAYLOAD_COLUMN])
                failures.add(decoded[-1])
                arrays.update(zip((field.name for field in decoder.fields), decoded, strict=True))
            columns = [_as(arrays[field.name], field.type) for field in wanted]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        failures.warn()


def _check_types(view: str, columns: StructType) -> None:
    """Refuse another type of a view's column: as a number of milliseconds read as TIMESTAMP, it would be wrong.

    Raises:
        ConfigurationError: a schema that the user gave has one.
    """
    own = {field.name: field.dataType for field in spark_schema(schema(view, member_column=True))}
    for field in columns:
        wanted = own.get(field.name, field.dataType)
        if field.dataType != wanted:
            raise ConfigurationError(
                f"the column {field.name!r} of the view {view!r} is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}: give no schema, or this type, and cast in the query"
            )


class _Failures:
    """Counts the payloads of a task that did not decode."""

    def __init__(self) -> None:
        self._count = 0
        self._first = ""

    def add(self, errors: pa.Array) -> None:
        """Count those of a batch by its column of errors."""
        count = len(errors) - errors.null_count
        if count and not self._count:
            self._first = errors.drop_null()[0].as_py()
        self._count += count

    def warn(self) -> None:
        """Log how many there were."""
        if self._count:
            _log.warning("%d payloads did not decode; the first: %s", self._count, self._first)


def _as(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)


class ClusterReader(DataSourceReader):
    """Reads a view once: all that is recorded when the query is planned."""

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        for bound, word in ((options.starting, LATEST), (options.ending, EARLIEST)):
            if bound is not None and bound.word == word:
                raise ConfigurationError(f"{bound.name}={word}: a batch would have no rows; give a place in the log")
        self._options = options
        self._rows = _Rows(options, columns)
        self._filters: Filters | None = Filters()

    def narrow(self, filters: list[Filter]) -> None:
        """Leave out what no filter lets through, as far as that can be known before it is read."""
        self._filters = narrow(self._options.view, filters)

    if KEEPS_FILTERS_APART:

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
            """Narrow to the filters; Spark evaluates them again on what is left."""
            self.narrow(filters)
            yield from filters

    def partitions(self) -> list[InputPartition]:
        """One for each term and segment of each member that is read, as far as the filters let rows through."""
        if self._filters is None:
            return []
        opened = _chosen(self._options, named(_opened(self._options), {}))
        members = [member for member in opened if not member.is_missing]
        logs: list[MemberLog] = []
        is_one_log = self._options.is_one_log
        if is_one_log:
            members, logs = self._one_log(members)
        known = {log.member.path for log in logs}
        absent = [member.path for member in opened if member.path not in known] if is_one_log else []
        keys = [member_key(member) for member in members]
        starts = _places(self._options.starting, keys, is_one_log=is_one_log)
        ends = _places(self._options.ending, keys, is_one_log=is_one_log)
        found: list[InputPartition] = []
        for member in members:
            key = member_key(member)
            filters = bounded(self._filters, member, starts.get(key, Place()), ends.get(key, Place()))
            if self._options.committed_only:
                filters = self._up_to_commit(member, filters)
            parts = divided(logs, logs) if logs and self._options.view in LOG_VIEWS else [(None, logs)]
            for end, having in parts:
                limits = [one for one in (end, filters.end_position) if one is not None]
                wanted = replace(filters, end_position=min(limits, default=None))
                first = having[0].member if having else member
                found += plan_partitions(first, self._options.view, wanted, self._options.mode, having, absent)
                if end is not None and end >= (filters.begin_position or 0):
                    # A successor of the next one may hold what the ones before it give.
                    filters = replace(filters, begin_position=end, is_border=True)
        return found

    def _one_log(self, members: Sequence[Member]) -> tuple[list[Member], list[MemberLog]]:
        """The one of several members that is read, and the logs of all that have one, its own first."""
        logs = read_logs(members, _log.warning)
        refuse_two_logs(logs)
        return [logs[0].member if logs else members[0]], logs

    def _up_to_commit(self, member: Member, filters: Filters) -> Filters:
        try:
            log = member.log(self._options.mode)
        except RecordingError as error:
            if not tolerates(self._options.mode, error):
                raise
            return filters  # The plan has a row that says why nothing is read.
        for topic, text in end_texts(member, log).items():
            if topic != "lost":  # The plan has a row for that, or an error.
                _log.warning("%s", text)
        committed = log.log_range.committed_position
        if log.lost_position is not None and committed == log.log_range.recorded_position:
            committed = log.lost_position  # So that the plan has that row.
        end = committed if filters.end_position is None else min(committed, filters.end_position)
        return replace(filters, end_position=end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return self._rows.read(partition)


class _StreamedLog:
    """A log that a stream reads as one, at one moment: of a member, or of whichever of several has it."""

    def __init__(
        self,
        key: str,
        logs: Sequence[MemberLog],
        absent: Sequence[str],
        offset: MemberOffset | None,
        last: str | None,
    ) -> None:
        """Take the logs of the members that have one, the paths of the others, the place up to which it was read, and
        the path that was read last."""
        self.absent = absent
        self.key = key
        self.every, self._last = logs, last
        start = min(log.start_position for log in logs)
        self.begun = MemberOffset(start) if offset is None else offset
        ready = [log for log in logs if len(logs) + len(absent) == 1 or log.is_behind(self.begun)]
        self.is_ready = bool(ready)
        place = self.begun.position
        # A member that has purged the next part has its turn when the others have no more.
        self._logs = sorted(
            ready or logs,
            key=lambda log: (
                not log.start_position <= place < log.committed_position,
                -log.committed_position,
                log.member.path != last,
            ),
        )

    @property
    def first(self) -> MemberLog:
        """The one that is read next: of those that have what comes next the one that is committed furthest."""
        return self._logs[0]

    def at(self, position: int) -> MemberOffset:
        """An offset at a position, which says what distinguishes the log there; the same one where nothing is new."""
        log, known = self.first, self.begun
        if position == known.position and known.recording:
            return known
        return MemberOffset(
            position,
            log.identity.recording,
            known.first_term if log.identity.first_term is None else log.identity.first_term,
            None if self.key == ANY else log.member.member_id,
            log.term_before(position),
            known.starting_ns,
        )

    def steps(self) -> Iterator[_StreamedLog]:
        """This log, and as it is behind what is committed of the one that is read next, until none has any more."""
        log = self
        while True:
            yield log
            end = log.first.committed_position
            if not log.is_ready or end <= log.begun.position:
                return
            log = _StreamedLog(log.key, log.every, log.absent, log.at(end), log._last)

    def with_same(self, end: int) -> list[MemberLog]:
        """The members that have what the first one has up to a position, itself among them."""
        term = self.first.term_before(end)
        return [log for log in self._logs if log is self.first or log.has_to(end, term)]

    def reading(self, begin: int) -> list[MemberLog]:
        """The members that have all up to the offset, the one to read first: none purged, then as above."""
        whole = [log for log in self._logs if self.is_ready and log.recorded_position >= self.begun.position]
        return sorted(whole, key=lambda log: max(0, log.start_position - begin))

    def waits_for(self) -> str:
        """The missing part, in words."""
        ends = ", ".join(f"{log.member.archive_dir} to {log.recorded_position}" for log in self._logs)
        return f"no member has the log that was read up to {self.begun.position} ({ends})"


def _following(member: Member, log: _StreamedLog, begin: int, end: int) -> Filters:
    """The rows that a stream reads between two positions of a log: from its starting time on."""
    return bounded(Filters(begin, end, is_border=True), member, Place(timestamp_ns=log.begun.starting_ns), Place())


class ClusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a view of the log as it grows, up to the commit position.

    An offset (:mod:`container.spark.offsets`) is a log position for each member, by its id: all messages that end at or
    before it have been read. It says which log that was as well, and another one under the same path is refused; and
    the time with which the query began, as each message is left out that has an earlier one. A log never changes up to
    its commit position, so a batch that is read again has the same rows.
    """

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        if options.view not in LOG_VIEWS:
            raise ConfigurationError(
                f"the view {options.view!r} is not of the log and can only be read as a batch, with spark.read; "
                f"streams can be made of {', '.join(LOG_VIEWS)}"
            )
        if options.ending is not None:
            raise ConfigurationError(
                f"{options.ending.name} is for batches: a stream has no end; trigger(availableNow=True) ends at what "
                "is committed now"
            )
        if options.mode == AUDIT:
            raise ConfigurationError(
                "mode=audit is for batches: a stream would permanently skip a file that is missing for a moment; use "
                "strict or permissive"
            )
        for limit in ("max_rows_per_batch", "max_bytes_per_batch"):
            if IS_4_1 and getattr(options, limit) is not None:
                raise ConfigurationError(f"{limit} needs Spark 4.2 or later: 4.1 lets a source limit no batch")
        self._options = options
        self._rows = _Rows(options, columns)
        self._members = _opened(options)
        self._target: dict[str, int] | None = None
        self._said: set[tuple[str, str]] = set()
        #: The member of each log that was read last, by its path.
        self._last: dict[str, str] = {}
        #: How far Spark 4.1 has come, which does not say so when it asks for the latest offset.
        self._come: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the members' recordings begin, or where the options say."""
        logs = self._logs({})
        starts = _places(self._options.starting, list(logs), is_one_log=self._options.is_one_log)
        self._come = format_offset({key: self._start(one, starts.get(key, Place())) for key, one in logs.items()})
        return self._come

    def _start(self, log: _StreamedLog, place: Place) -> MemberOffset:
        """Up to where messages count as read."""
        if place == Place() or (place.position is not None and place.position <= log.begun.position):
            return log.at(log.begun.position)
        for step in log.steps():
            log, committed = step, step.first.committed_position
            if place.timestamp_ns is not None:
                found = self._first_part(log, committed, place)
                if found is not None:
                    return structs.replace(log.at(found), starting_ns=place.timestamp_ns)
            elif place.position == committed:
                return log.at(committed)
            elif place.position is not None and place.position < committed:
                # Whether a frame begins there nobody knows: a place that is not a multiple of 32 is not taken for one.
                return log.at(place.position + (place.position % FRAME_ALIGNMENT == 0))
        if place.position is not None:
            assert self._options.starting is not None
            raise ConfigurationError(
                f"{self._options.starting.name}: position {place.position} is behind the end of the log of member "
                f"{log.key}, which is committed to {log.begun.position}"
            )
        return structs.replace(log.at(log.begun.position), starting_ns=place.timestamp_ns)

    def _first_part(self, log: _StreamedLog, committed: int, start: Place) -> int | None:
        """Where the first part of the log begins that may have a message of a time or of a later one."""
        begin = log.begun.position

        def find(member: Member, mode: str) -> int | None:
            wanted = bounded(Filters(begin, committed, is_border=True), member, start, Place())
            parts = plan([member], self._options.view, filters=wanted, mode=mode)
            return next((max(begin, part.begin_position) for part in parts if part.source == "log"), None)

        return self._by_any(log, committed, find)

    def _by_any[T](self, log: _StreamedLog, end: int, look: Callable[[Member, str], T]) -> T:
        """The result of a look at a log up to a position; another member's log serves when one fails."""
        several = log.with_same(end)
        for one in several if len(several) > 1 else ():
            try:
                return look(one.member, STRICT)
            except RecordingError as error:
                self._say((log.key, one.member.path), f"{one.member.path} is not read, and another member is: {error}")
        return look(log.first.member, self._options.mode)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The members' commit positions, or so much less that the batch stays within the limit.

        Args:
            start: where the stream is; Spark 4.1 does not say it.
            limit: what it wants of the batch; 4.1 has none.
        """
        logs = self._logs(parse_offset(self._come if start is None else start))
        read = {key: log.begun.position for key, log in logs.items()}
        latest = {key: self._committed(log, read[key]) for key, log in logs.items()}
        if self._target is not None:
            latest = {key: min(latest[key], max(self._target.get(key, 0), read[key])) for key in latest}
        if isinstance(limit, ReadMaxRows):
            behind = [key for key in latest if latest[key] > read[key]]
            share = max(1, limit.max_rows // max(1, len(behind)))
            latest |= {key: self._limited_rows(logs[key], read[key], latest[key], share) for key in behind}
        if isinstance(limit, ReadMaxBytes):
            behind = [key for key in latest if latest[key] > read[key]]
            share = max(1, limit.max_bytes // max(1, len(behind)))
            latest |= {key: self._limited(logs[key], read[key], latest[key], share) for key in behind}
        self._come = format_offset({key: log.at(latest[key]) for key, log in logs.items()})
        return self._come

    def _limited(self, log: _StreamedLog, start: int, latest: int, share: int) -> int:
        """Where to end within ``share`` bytes: where a buffer's term ends if one does, as no message goes over that;
        else where a message ends, so that the next batch begins to read there.

        With less than a message it is a place that is not a multiple of 32, which is not the beginning of a frame.
        """
        end = start + share
        if end >= latest:
            return latest
        boundary = end - end % log.first.log.descriptor.term_buffer_length
        if boundary > start:
            return boundary
        if start % FRAME_ALIGNMENT == 0:

            def find(member: Member, mode: str) -> int:
                with closing(MessageReader(member.archive, **member.log_descriptor(mode).layout())) as reader:
                    return int(reader.last_border(start, end, latest))

            if (border := self._by_any(log, latest, find)) > start:
                return border
        return end if end % FRAME_ALIGNMENT else end + 1

    def _limited_rows(self, log: _StreamedLog, start: int, latest: int, share: int) -> int:
        """Where the message ends that is the last one of ``share`` rows."""

        def find(member: Member, mode: str) -> int:
            filters, left = _following(member, log, start, latest), share
            for partition in plan([member], self._options.view, filters=filters, mode=mode):
                rows = min(left, self._options.batch_rows)
                for batch in read_partition(partition, filters=filters, batch_rows=rows, columns=["log_position"]):
                    if batch.num_rows >= left:
                        position = batch.column(0)[left - 1].as_py()
                        return latest if position is None or position <= start else int(position)
                    left -= batch.num_rows
            return latest

        return self._by_any(log, latest, find)

    def _committed(self, log: _StreamedLog, read: int) -> int:
        """The commit position of a log; if it has been read further, what was read."""
        first = log.first
        for topic, text in end_texts(first.member, first.log).items():
            self._say((log.key, topic), text)
        if not log.is_ready:
            self._say((log.key, "ready"), f"{log.waits_for()}: nothing is read until one of them has come so far")
            return read
        # A crashed member knows less for certain than it did while it lived; what was committed stays so.
        if read > first.recorded_position:
            self._say(
                (log.key, "shorter"),
                f"the log in {first.member.archive_dir} is recorded to {first.recorded_position}, and the query "
                f"has read it to {read}: nothing is read of it until it has come so far again",
            )
        return max(read, first.committed_position)

    def _say(self, topic: tuple[str, str], text: str) -> None:
        """Log a warning, the first one of a topic; positions grow with each look."""
        if topic not in self._said:
            self._said.add(topic)
            _log.warning("%s", text)

    def _logs(self, offset: Mapping[str, MemberOffset]) -> dict[str, _StreamedLog]:
        """The logs of this query as they are now, behind an offset: one that is new is read from its beginning.

        Raises:
            ConfigurationError: the offset has a member that path does not name, or was made of another log.
            RecordingError: a log cannot be read, with ``member=any`` of no member.
        """
        if any(member.is_missing for member in self._members):
            self._members = _opened(self._options)
        offset = self._migrated(offset)
        ids = {key: one.member_id for key, one in offset.items() if one.recording and key != ANY}
        members = _chosen(self._options, named(self._members, ids))
        several = {ANY: members} if self._options.is_one_log else {member_key(member): [member] for member in members}
        if self._options.member == ANY and len(offset) == 1:
            (key, one), *_ = offset.items()
            if one.recording or key in map(member_key, members):
                # Read from one member, or from any that had the log: a member that has the same one now continues with
                # it.
                offset = dict.fromkeys(several, one)
        gone = sorted(offset.keys() - several.keys())
        if gone and self._options.is_one_log:
            raise ConfigurationError(
                f"the checkpoint has positions of the members {', '.join(gone)}: it was made with member=all. Set "
                "that, or begin with a new checkpoint"
            )
        if gone:
            raise ConfigurationError(
                f"the checkpoint has positions of member {', '.join(gone)}, which path does not name; it names "
                f"{', '.join(sorted(several))}: add the missing directory, or begin with a new checkpoint"
            )
        return {key: self._log(key, several[key], offset.get(key)) for key in sorted(several)}

    def _log(self, key: str, members: Sequence[Member], offset: MemberOffset | None) -> _StreamedLog:
        """The facts of one log, from those of its members that have it."""
        found, failures = [], list[RecordingError | ConfigurationError]()
        for member in members:
            try:
                log = MemberLog(member, member.log())
                self._check(key, log, offset)
                found.append(log)
            except (RecordingError, ConfigurationError) as error:
                failures.append(error)
                if len(members) > 1:
                    self._say((key, member.path), f"{member.path} is not read, and another member is: {error}")
        if not found:
            raise failures[0]
        if offset is None:
            refuse_two_logs(found)
        known = {log.member.path for log in found}
        absent = [member.path for member in members if member.path not in known]
        return _StreamedLog(key, found, absent, offset, self._last.get(key))

    def _check(self, key: str, log: MemberLog, offset: MemberOffset | None) -> None:
        """See that a member's log is the one of an offset."""
        if offset is None:
            return
        name = "the cluster" if key == ANY else f"member {key}"
        then, now, archive_dir = offset.identity, log.identity, log.member.archive_dir
        is_same = then is None or now.is_that_of(then)
        if then is not None and None in (now.first_term, then.first_term):
            is_same |= log.has_to(offset.position, offset.term)
        if offset.position > 0 and not is_same:
            raise ConfigurationError(
                f"the checkpoint has read the log of {name} to {offset.position}, and that was another log: {then}. "
                f"Now there is {now} in {archive_dir}. The cluster was wiped and started again, or this is "
                "another one: begin with a new checkpoint, an ingest with a new table"
            )
        if then is None and offset.position > log.recorded_position:
            raise ConfigurationError(
                f"the checkpoint has read the log of {name} to {offset.position}, and the one in {archive_dir} "
                f"is recorded to {log.recorded_position}: it is another one. Begin with a new "
                "checkpoint, an ingest with a new table"
            )

    def _migrated(self, offset: Mapping[str, MemberOffset]) -> Mapping[str, MemberOffset]:
        """An offset of version 1, which called members without an id by their places, with the keys of today."""
        if not offset or any(one.recording for one in offset.values()):
            return offset
        self._say(
            ("", "version"),
            "the checkpoint has offsets of version 1, which do not say of which log they are: the logs that path names "
            "are taken for those that were read",
        )
        members = {member_key(member): member for member in self._members}
        places = {
            str(place): key
            for place, (key, member) in enumerate(members.items())
            if member.member_id is None and key not in offset
        }
        return {key if key in members else places.get(key, key): one for key, one in offset.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of ``max_bytes_per_batch`` and ``max_rows_per_batch``."""
        if self._options.max_rows_per_batch is not None:
            return ReadMaxRows(self._options.max_rows_per_batch)
        limit = self._options.max_bytes_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The commit positions, for the query's status."""
        return format_offset({key: log.at(log.begun.position) for key, log in self._ends().items()})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the commit positions of now as the end."""
        self._target = {key: log.begun.position for key, log in self._ends().items()}

    def _ends(self) -> dict[str, _StreamedLog]:
        """The logs of this query as they will be where all that is committed was read."""
        return {key: [*log.steps()][-1] for key, log in self._logs({}).items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions with messages that end after ``start`` and not after ``end``.

        Raises:
            RecordingUnavailableError: no member has the log up to ``end`` any more, or again; or ``end`` is before
                ``start``, as Spark 4.1 may ask when it was started again.
        """
        ends = self._logs(parse_offset(end))
        begun = self._logs(parse_offset(start))
        self._come = end
        found: list[InputPartition] = []
        for key, last in ends.items():
            first, end_position = begun[key].begun.position, last.begun.position
            if end_position < first:
                raise RecordingUnavailableError(
                    f"the query has read the log of {key} to {first}, and of that only {end_position} is known to be "
                    "committed now. Spark 4.1 would read the rest twice: start the query when the member runs again, "
                    "after you removed the newest file in the checkpoint's directory offsets; or use Spark 4.2"
                )
            if first == end_position:
                continue
            # The range of the query was committed, even if the members that knew it run no more.
            logs = [log.known_to(end_position) for log in last.reading(first)]
            if not logs:
                raise RecordingUnavailableError(f"{last.waits_for()}: the batch from {first} on cannot be read now")
            self._last[key] = logs[0].member.path
            parts = divided(logs, last.every)
            chosen = parts[0][1][0]
            gone = chosen.start_position
            if first < gone and last.absent:
                raise RecordingUnavailableError(
                    f"the log begins at {gone}, and what was recorded from {first} on may be where it cannot be read "
                    f"now: {', '.join(last.absent)}. Bring that back, or leave it out of path",
                    file=chosen.member.archive_dir,
                )
            if first < gone:
                found.append(self._gap(chosen.member, first, gone))

            def say(text: str, key: str = key) -> None:
                self._say((key, text), text)

            for limit, having in parts:
                to = end_position if limit is None else min(limit, end_position)
                member, mode = having[0].member, self._options.mode
                filters = _following(member, last, first, to)
                if limit is None or limit > first:
                    found += plan_partitions(member, self._options.view, filters, mode, having, last.absent, say)
        return found

    def _gap(self, member: Member, begin: int, end: int) -> GapPartition:
        text = (
            f"the log of member {member_key(member)} in {member.archive_dir} begins at {end}: what was recorded from "
            f"{begin} on has been purged since the query read up to there"
        )
        if self._options.mode == "strict":
            raise RecordingError(f"{text}; continue behind it with mode permissive", log_position=begin)
        return GapPartition(member.member_id, begin, text)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return self._rows.read(partition)
