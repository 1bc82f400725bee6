"""The data source ``aeron.cluster``: what a cluster recorded, as rows of Spark, in batches and streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from container.errors import ConfigurationError, RecordingError
from container.recordings import (
    LOG_VIEWS,
    Filters,
    Member,
    Partition,
    open_member,
    plan,
    read_partition,
    schema,
)
from container.recordings.arrow import TICKS_PER_SECOND
from container.recordings.cluster_time import time_unit
from container.recordings.commit import end_texts, with_others
from container.recordings.identity import log_identity
from container.recordings.member import AUDIT, tolerates
from container.recordings.message_reader import MessageReader
from container.recordings.remote import expand
from container.spark.decoders import Decoder, make_decoder
from container.spark.filters import narrow
from container.spark.offsets import MemberOffset, format_offset, parse_offset
from container.spark.options import EARLIEST, LATEST, Bound, SourceOptions, parse_options
from container.spark.payloads import PAYLOAD_COLUMN

FORMAT = "aeron.cluster"
ERROR_COLUMN = "error"
KEEPS_FILTERS_APART = hasattr(DataSourceReader, "pushLimit")
"""Whether this Spark keeps what was planned for a query's filters with that query. Those before it, 4.1 to 4.3, keep it
with the DataFrame: the next query of the same DataFrame, if it has no filters, reads only what they let through."""
_FRAME_ALIGNMENT = 32
_LATEST_POSITION = -1
_log = logging.getLogger(__name__)


class ClusterDataSource(DataSource):
    """What Spark makes for ``format("aeron.cluster")``; :mod:`container.spark.options` has the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the view, of the decoder and of nothing else; each has a comment in its metadata.

        Raises:
            ConfigurationError: an option or the decoder is wrong, or a column is not one of the view.
        """
        options = parse_options(dict(self.options))
        fields = {field.name: field for field in arrow_schema(options)}
        unknown = [name for name in options.columns if name not in fields]
        if unknown:
            raise ConfigurationError(
                f"columns: the view {options.view!r} has no {', '.join(map(repr, unknown))}; it has {', '.join(fields)}"
            )
        chosen = pa.schema([fields[name] for name in options.columns or fields])
        return spark_schema(chosen)

    def reader(self, schema: StructType) -> ClusterReader:
        """A reader of a batch; a schema that the user gives chooses among the view's columns."""
        return ClusterReader(parse_options(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> ClusterStreamReader:  # noqa: N802
        """A reader of a stream.

        Raises:
            ConfigurationError: the view is not one of the log.
        """
        return ClusterStreamReader(parse_options(dict(self.options)), schema)


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


class ClusterPartition(InputPartition):
    """What one task reads: a partition of the recordings, and the rows of it that are wanted."""

    def __init__(self, partition: Partition, filters: Filters) -> None:
        super().__init__(partition)
        self.filters = filters


class GapPartition(InputPartition):
    """Stands for what a stream can no longer read; gives the row that says so."""

    def __init__(self, member_id: int | None, log_position: int, text: str) -> None:
        super().__init__(log_position)
        self.member_id = member_id
        self.text = text


def open_source_members(options: SourceOptions) -> list[Member]:
    """The members that the options name. Of several, one whose files have no id gets its place in the path for one, or
    the next number that is free.

    Raises:
        ConfigurationError: two directories belong to the same member.
        RecordingError: a directory is none of a member's.
    """
    return named(_members_by_key(options).values(), {})


def _members_by_key(options: SourceOptions) -> dict[str, Member]:
    """The members by their keys, in the order of the path; without an id where no file has one."""
    paths = [path for pattern in options.paths for path in expand(pattern, options.storage)]
    archive_dirs = options.archive_dirs or (None,) * len(paths)
    if len(archive_dirs) != len(paths):
        raise ConfigurationError(
            f"archive_dir names {len(archive_dirs)} directories and path matches {len(paths)}: {', '.join(paths)}; "
            "name these, each with its archive"
        )
    members = [
        open_member(path, archive_dir=archive_dir, committed=options.committed, storage_options=options.storage)
        for path, archive_dir in zip(paths, archive_dirs, strict=True)
    ]
    keys: dict[str, Member] = {}
    for member in with_others(members):
        key = member_key(member)
        other = keys.setdefault(key, member)
        if other is not member:
            raise ConfigurationError(
                f"path names member {key} twice: {other.path} and {member.path}; name each member once"
            )
    return keys


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


def member_key(member: Member) -> str:
    """What a member is called in the offsets of streams: its id, or its archive's directory where no file has an id.

    It does not depend on the order or the number of the directories that a query names.
    """
    return member.archive_dir if member.member_id is None or member.is_unnamed else str(member.member_id)


class Place(NamedTuple):
    """Where to begin or to end in the log of one member; no field is set where that is its own begin or end."""

    position: int | None = None
    timestamp_ms: int | None = None
    is_end: bool = False
    """Whether it is the commit position of now."""


def _places(bound: Bound | None, members: Sequence[Member]) -> dict[str, Place]:
    """The place that an option names, by member.

    Raises:
        ConfigurationError: it names other members than ``path``.
    """
    keys = [member_key(member) for member in members]
    if bound is None:
        return {}
    if bound.positions is None:
        place = Place(bound.position, bound.timestamp_ms, bound.word == LATEST)
        return dict.fromkeys(keys, place)
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
    if start.timestamp_ms is not None:
        first = max(ticks_of(member, start.timestamp_ms), -(2**63) if first is None else first)
    if end.timestamp_ms is not None:
        last = min(ticks_of(member, end.timestamp_ms), 2**63 - 1 if last is None else last)
    return replace(
        filters,
        begin_position=max(begins, default=None),
        end_position=min(ends, default=None),
        begin_timestamp=first,
        end_timestamp=last,
    )


def ticks_of(member: Member, timestamp_ms: int) -> int:
    """A time as a timestamp of the cluster, in its unit."""
    return timestamp_ms * TICKS_PER_SECOND[time_unit(member)] // 1_000


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
        #: None for a query that asks for other columns only.
        self._decoder = decoder if any(name in decoded for name in columns.fieldNames()) else None
        self._read = [name for name in columns.fieldNames() if name not in decoded]
        if self._decoder is not None and PAYLOAD_COLUMN not in self._read:
            self._read.append(PAYLOAD_COLUMN)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition; none for the partition that Spark makes where there is none to read."""
        wanted = to_arrow_schema(self._columns, timezone="UTC")
        if isinstance(partition, GapPartition):
            row = {"member_id": partition.member_id, "log_position": partition.value, ERROR_COLUMN: partition.text}
            yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in wanted.names}], schema=wanted)
        if not isinstance(partition, ClusterPartition):
            return
        decoder = self._decoder
        failures = _Failures()
        batches = read_partition(
            partition.value, filters=partition.filters, batch_rows=self._options.batch_rows, columns=self._read
        )
        for batch in batches:
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            if decoder is not None:
                decoded = decoder.decode(arrays[PAYLOAD_COLUMN])
                failures.add(decoded[-1])
                arrays.update(zip((field.name for field in decoder.fields), decoded, strict=True))
            columns = [_as(arrays[field.name], field.type) for field in wanted]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        failures.warn()


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
        """One for each term and segment of each member, as far as the filters let rows through."""
        if self._filters is None:
            return []
        found: list[InputPartition] = []
        members = open_source_members(self._options)
        starts, ends = (_places(bound, members) for bound in (self._options.starting, self._options.ending))
        for member in members:
            key = member_key(member)
            filters = bounded(self._filters, member, starts.get(key, Place()), ends.get(key, Place()))
            if self._options.committed_only:
                filters = self._up_to_commit(member, filters)
            planned = plan([member], self._options.view, filters=filters, mode=self._options.mode)
            found += [ClusterPartition(partition, filters) for partition in planned]
        return found

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


class ClusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a view of the log as it grows, up to the commit position.

    An offset (:mod:`container.spark.offsets`) is a log position for each member, by its id: all messages that end at or
    before it have been read. It says which log that was as well, and another one under the same path is refused. A log
    never changes up to its commit position, so a batch that is read again has the same rows.
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
                "mode=audit is for batches: a stream would pass over a file that is away for a moment, forever; use "
                "strict or permissive"
            )
        self._options = options
        self._rows = _Rows(options, columns)
        self._members = _members_by_key(options)
        self._target: dict[str, int] | None = None
        self._said: set[tuple[str, str]] = set()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the members' recordings begin, or where the options say."""
        starts = _places(self._options.starting, list(self._members.values()))
        return format_offset(
            {
                key: msgspec.structs.replace(one, position=self._start(key, starts.get(key, Place()), one.position))
                for key, one in self._known({}).items()
            }
        )

    def _start(self, key: str, place: Place, begin: int) -> int:
        """A position up to which messages count as read."""
        member = self._members[key]
        committed = member.log_range().committed_position
        if place.is_end:
            return max(begin, committed)
        if place.timestamp_ms is not None:
            wanted = Filters(end_position=committed, begin_timestamp=ticks_of(member, place.timestamp_ms))
            for partition in plan([member], "messages", filters=wanted, mode=self._options.mode):
                rows = read_partition(partition, filters=wanted, batch_rows=1, columns=["begin_position", "timestamp"])
                for batch in rows:
                    for row in batch.to_pylist():
                        if row["timestamp"] is not None:
                            return int(row["begin_position"])
            return max(begin, committed)
        if place.position is None or place.position <= begin:
            return begin
        if place.position > committed:
            assert self._options.starting is not None
            raise ConfigurationError(
                f"{self._options.starting.name}: position {place.position} is behind the end of the log of member "
                f"{key}, which is committed to {committed}"
            )
        # Whether a frame begins there nobody knows: a place that is no multiple of 32 is not taken for one.
        return place.position + (place.position % _FRAME_ALIGNMENT == 0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The members' commit positions, or so much less that the batch stays within the limit."""
        begun = self._known(parse_offset(start))
        read = {key: one.position for key, one in begun.items()}
        latest = self._committed(read)
        if self._target is not None:
            latest = {key: min(latest[key], max(self._target[key], read[key])) for key in latest}
        if isinstance(limit, ReadMaxRows):
            behind = [key for key in latest if latest[key] > read[key]]
            share = max(1, limit.max_rows // max(1, len(behind)))
            latest |= {key: self._limited_rows(key, read[key], latest[key], share) for key in behind}
        if isinstance(limit, ReadMaxBytes):
            behind = [key for key in latest if latest[key] > read[key]]
            share = max(1, limit.max_bytes // max(1, len(behind)))
            latest |= {key: self._limited(key, read[key], latest[key], share) for key in behind}
        return format_offset({key: msgspec.structs.replace(begun[key], position=latest[key]) for key in begun})

    def _limited(self, key: str, start: int, latest: int, share: int) -> int:
        """Where to end within ``share`` bytes: where a buffer's term ends if one does, as no message goes over that;
        else where a message ends, so that the next batch begins to read there.

        With less than a message it is a place that is no multiple of 32, which nobody takes for the begin of a frame.
        """
        end = start + share
        if end >= latest:
            return latest
        member = self._members[key]
        descriptor = member.log_descriptor()
        boundary = end - end % descriptor.term_buffer_length
        if boundary > start:
            return boundary
        if start % _FRAME_ALIGNMENT == 0:
            with closing(MessageReader(member.archive, **descriptor.layout())) as reader:
                border = reader.last_border(start, end, latest)
            if border > start:
                return border
        return end if end % _FRAME_ALIGNMENT else end + 1

    def _limited_rows(self, key: str, start: int, latest: int, share: int) -> int:
        """Where the message ends that is the last one of ``share`` rows."""
        filters = Filters(begin_position=start, end_position=latest, is_border=True)
        left = share
        for partition in plan([self._members[key]], self._options.view, filters=filters, mode=self._options.mode):
            rows = min(left, self._options.batch_rows)
            for batch in read_partition(partition, filters=filters, batch_rows=rows, columns=["log_position"]):
                if batch.num_rows >= left:
                    position = batch.column(0)[left - 1].as_py()
                    return latest if position is None or position <= start else int(position)
                left -= batch.num_rows
        return latest

    def _committed(self, read: Mapping[str, int]) -> dict[str, int]:
        """The members' commit positions; of those that have been read further, what was read."""
        found = {}
        for key, member in sorted(self._members.items()):
            log = member.log()
            # A crashed member knows less for certain than it did while it lived; what was committed stays so.
            found[key] = max(read[key], log.log_range.committed_position)
            for topic, text in end_texts(member, log).items():
                self._say((key, topic), text)
            if read[key] > log.log_range.recorded_position:
                self._say(
                    (key, "shorter"),
                    f"the log in {member.archive_dir} is recorded to {log.log_range.recorded_position}, and the query "
                    f"has read it to {read[key]}: nothing is read of it until it has come so far again",
                )
        return found

    def _say(self, topic: tuple[str, str], text: str) -> None:
        """Log a warning, the first one of a topic; positions grow with each look."""
        if topic not in self._said:
            self._said.add(topic)
            _log.warning("%s", text)

    def _known(self, offset: Mapping[str, MemberOffset]) -> dict[str, MemberOffset]:
        """The offset with this query's members and their logs: one that is new is read from its beginning.

        Raises:
            ConfigurationError: it has a member that path does not name, or was made of another log of a member.
        """
        offset = self._migrated(offset)
        gone = sorted(offset.keys() - self._members.keys())
        if gone:
            raise ConfigurationError(
                f"the checkpoint has positions of member {', '.join(gone)}, which path does not name; it names "
                f"{', '.join(sorted(self._members))}: add the missing directory, or begin with a new checkpoint"
            )
        ids = {key: one.member_id for key, one in offset.items() if one.recording}
        members = named(self._members.values(), ids)
        return {
            key: self._checked(key, member, offset.get(key))
            for key, member in sorted(zip(self._members, members, strict=True), key=lambda pair: pair[0])
        }

    def _checked(self, key: str, member: Member, offset: MemberOffset | None) -> MemberOffset:
        descriptor = member.log_descriptor()
        now = log_identity(member.archive, descriptor)
        position = descriptor.start_position if offset is None else offset.position
        then = None if offset is None else offset.identity
        if then is not None and position > 0 and not now.is_that_of(then):
            raise ConfigurationError(
                f"the checkpoint has read the log of member {key} to {position}, and that was another log: {then}. "
                f"Now there is {now} in {member.archive_dir}. The cluster was wiped and started again, or this is "
                "another one: begin with a new checkpoint, an ingest with a new table"
            )
        if then is None and position > member.log_range().recorded_position:
            raise ConfigurationError(
                f"the checkpoint has read the log of member {key} to {position}, and the one in {member.archive_dir} "
                f"is recorded to {member.log_range().recorded_position}: it is another one. Begin with a new "
                "checkpoint, an ingest with a new table"
            )
        first_term = then.first_term if then is not None and now.first_term is None else now.first_term
        return MemberOffset(position, now.recording, first_term, member.member_id)

    def _migrated(self, offset: Mapping[str, MemberOffset]) -> Mapping[str, MemberOffset]:
        """An offset of version 1, which called members without an id by their places, with the keys of today."""
        if not offset or any(one.recording for one in offset.values()):
            return offset
        self._say(
            ("", "version"),
            "the checkpoint has offsets of version 1, which do not say of which log they are: the logs that path names "
            "are taken for those that were read",
        )
        places = {
            str(place): key
            for place, (key, member) in enumerate(self._members.items())
            if member.member_id is None and key not in offset
        }
        return {key if key in self._members else places.get(key, key): one for key, one in offset.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options ``max_bytes_per_batch`` and ``max_rows_per_batch`` say."""
        if self._options.max_rows_per_batch is not None:
            return ReadMaxRows(self._options.max_rows_per_batch)
        limit = self._options.max_bytes_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The commit positions, for the query's status."""
        latest = self._committed(dict.fromkeys(self._members, 0))
        begun = self._known({})
        return format_offset({key: msgspec.structs.replace(begun[key], position=latest[key]) for key in begun})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the commit positions of now as the end."""
        self._target = self._committed(dict.fromkeys(self._members, 0))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions with messages that end after ``start`` and not after ``end``."""
        ends = self._known(parse_offset(end))
        begun = self._known(parse_offset(start))
        found: list[InputPartition] = []
        for key, last in ends.items():
            first = begun[key].position
            if first == last.position:
                continue
            member = replace(self._members[key], member_id=last.member_id)
            gone = member.log_range().start_position
            if first < gone:
                found.append(self._gap(member, first, gone))
            filters = Filters(begin_position=first, end_position=last.position, is_border=True)
            planned = plan([member], self._options.view, filters=filters, mode=self._options.mode)
            found += [ClusterPartition(partition, filters) for partition in planned]
        return found

    def _gap(self, member: Member, begin: int, end: int) -> GapPartition:
        text = (
            f"the log of member {member_key(member)} in {member.archive_dir} begins at {end}: what was recorded from "
            f"{begin} on has been purged since the query read up to there"
        )
        if self._options.mode == "strict":
            raise RecordingError(f"{text}; go on behind it with mode permissive", log_position=begin)
        return GapPartition(member.member_id, begin, text)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return self._rows.read(partition)
