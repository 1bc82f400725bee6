"""The data source ``aeron.cluster``: what a cluster recorded, as rows of Spark, in batches and streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
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
from container.spark.filters import narrow
from container.spark.options import SourceOptions, parse_options
from container.spark.payloads import PAYLOAD_COLUMN, PayloadDecoder

FORMAT = "aeron.cluster"
ERROR_COLUMN = "error"


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


def payload_decoder(options: SourceOptions) -> PayloadDecoder | None:
    """The decoder of the payloads, if the options name one."""
    if options.decoder is None:
        return None
    names = schema(options.view, member_column=True).names
    if PAYLOAD_COLUMN not in names:
        raise ConfigurationError(f"decoder: the view {options.view!r} has no column {PAYLOAD_COLUMN!r} to decode")
    return PayloadDecoder(options.decoder, names)


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
    """The members that the options name. Of several, one whose files have no id gets its place in the path for one.

    Raises:
        ConfigurationError: two directories belong to the same member.
        RecordingError: a directory is none of a member's.
    """
    archive_dirs = options.archive_dirs or (None,) * len(options.paths)
    members = [
        open_member(path, archive_dir=archive_dir, mode=options.mode)
        for path, archive_dir in zip(options.paths, archive_dirs, strict=True)
    ]
    if len(members) > 1:
        members = [
            replace(member, member_id=place) if member.member_id is None else member
            for place, member in enumerate(members)
        ]
    keys: dict[str, Member] = {}
    for member in members:
        other = keys.setdefault(member_key(member), member)
        if other is not member:
            raise ConfigurationError(
                f"path names member {member_key(member)} twice: {other.path} and {member.path}; name each member once"
            )
    return members


def member_key(member: Member) -> str:
    """What a member is called in the offsets of streams: its id, or its archive's directory where no file has an id."""
    return member.archive_dir if member.member_id is None else str(member.member_id)


class _Rows:
    """Reads partitions as batches of the schema that Spark was told."""

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        self._options = options
        self._columns = columns
        decoder = payload_decoder(options)
        decoded = [] if decoder is None else [field.name for field in decoder.fields]
        known = {*arrow_schema(options).names}
        unknown = [name for name in columns.fieldNames() if name not in known]
        if unknown:
            raise ConfigurationError(f"the view {options.view!r} has no column {', '.join(map(repr, unknown))}")
        #: Whether payloads are decoded at all: not for a query that asks for other columns only.
        self._decodes = any(name in decoded for name in columns.fieldNames())
        self._read = [name for name in columns.fieldNames() if name not in decoded]
        if self._decodes and PAYLOAD_COLUMN not in self._read:
            self._read.append(PAYLOAD_COLUMN)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition; none for the partition that Spark makes where there is none to read."""
        wanted = to_arrow_schema(self._columns, timezone="UTC")
        if isinstance(partition, GapPartition):
            row = {"member_id": partition.member_id, "log_position": partition.value, ERROR_COLUMN: partition.text}
            yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in wanted.names}], schema=wanted)
        if not isinstance(partition, ClusterPartition):
            return
        decoder = payload_decoder(self._options) if self._decodes else None
        batches = read_partition(
            partition.value, filters=partition.filters, batch_rows=self._options.batch_rows, columns=self._read
        )
        for batch in batches:
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            if decoder is not None:
                decoded = decoder.decode(arrays[PAYLOAD_COLUMN])
                arrays.update(zip((field.name for field in decoder.fields), decoded, strict=True))
            columns = [_as(arrays[field.name], field.type) for field in wanted]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _as(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)


class ClusterReader(DataSourceReader):
    """Reads a view once: all that is recorded when the query is planned."""

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        self._options = options
        self._rows = _Rows(options, columns)
        self._filters: Filters | None = Filters()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Leave out what no filter lets through; Spark evaluates the filters again on what is left."""
        self._filters = narrow(self._options.view, filters)
        yield from filters

    def partitions(self) -> list[InputPartition]:
        """One for each term and segment of each member, as far as the filters let rows through."""
        if self._filters is None:
            return []
        found: list[InputPartition] = []
        for member in open_source_members(self._options):
            filters = self._filters
            if self._options.committed_only:
                filters = self._up_to_commit(member, filters)
            planned = plan([member], self._options.view, filters=filters, mode=self._options.mode)
            found += [ClusterPartition(partition, filters) for partition in planned]
        return found

    def _up_to_commit(self, member: Member, filters: Filters) -> Filters:
        try:
            committed = member.log_range(self._options.mode).committed_position
        except RecordingError:
            if self._options.mode == "strict":
                raise
            return filters  # The plan has a row that says why nothing is read.
        end = committed if filters.end_position is None else min(committed, filters.end_position)
        return replace(filters, end_position=end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return self._rows.read(partition)


class ClusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a view of the log as it grows, up to the commit position.

    An offset is a log position for each member, by its id: all messages that end at or before it have been read. A log
    never changes up to its commit position, so a batch that is read again has the same rows.
    """

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        if options.view not in LOG_VIEWS:
            raise ConfigurationError(
                f"the view {options.view!r} is not of the log and can only be read as a batch, with spark.read; "
                f"streams can be made of {', '.join(LOG_VIEWS)}"
            )
        self._options = options
        self._rows = _Rows(options, columns)
        self._members = {member_key(member): member for member in open_source_members(options)}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Where the members' recordings begin."""
        return {key: member.log_range().start_position for key, member in self._members.items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The members' commit positions, or so much less that the batch stays within the limit."""
        start = self._known(start)
        latest = self._committed(start)
        if self._target is not None:
            latest = {key: min(latest[key], max(self._target[key], start[key])) for key in latest}
        if not isinstance(limit, ReadMaxBytes):
            return latest
        behind = [key for key in latest if latest[key] > start[key]]
        share = max(1, limit.max_bytes // max(1, len(behind)))
        return {
            key: self._limited(key, start[key], latest[key], share) if key in behind else latest[key] for key in latest
        }

    def _limited(self, key: str, start: int, latest: int, share: int) -> int:
        """Where to end within ``share`` bytes: where a buffer's term ends if one does, as no message goes over that."""
        end = start + share
        if end >= latest:
            return latest
        term_length = self._members[key].log_descriptor().term_buffer_length
        boundary = end - end % term_length
        return boundary if boundary > start else end

    def _committed(self, start: dict[str, int]) -> dict[str, int]:
        # A crashed member knows less for certain than it did while it lived; what was committed stays so.
        return {key: max(start[key], member.log_range().committed_position) for key, member in self._members.items()}

    def _known(self, offset: dict[str, int]) -> dict[str, int]:
        """The offset with this query's members: one that is new is read from its beginning."""
        gone = sorted(offset.keys() - self._members.keys())
        if gone:
            raise ConfigurationError(
                f"the checkpoint has positions of member {', '.join(gone)}, which path does not name; it names "
                f"{', '.join(sorted(self._members))}: add the missing directory, or begin with a new checkpoint"
            )
        return {
            key: offset[key] if key in offset else member.log_range().start_position
            for key, member in sorted(self._members.items())
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the option ``max_bytes_per_batch`` says."""
        limit = self._options.max_bytes_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The commit positions, for the query's status."""
        return {key: member.log_range().committed_position for key, member in sorted(self._members.items())}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the commit positions of now as the end."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The partitions with messages that end after ``start`` and not after ``end``."""
        known = self._known(start)
        found: list[InputPartition] = []
        for key, last in sorted(end.items()):
            member, first = self._members[key], known[key]
            if first == last:
                continue
            gone = member.log_range().start_position
            if first < gone:
                found.append(self._gap(member, first, gone))
            filters = Filters(begin_position=first, end_position=last)
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
