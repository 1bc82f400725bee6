"""From archives to a table as the log grows: each committed message once, also over restarts, with a manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from container.errors import ConfigurationError, ContainerError
from container.pipeline.checkpoint import remove_unfinished
from container.pipeline.cluster_time import as_date, as_hour
from container.pipeline.manifest import (
    HOUR_COLUMN,
    MANIFEST_NAME,
    NULL_DIRECTORY,
    PARQUET,
    PARTITION_COLUMNS,
    Gap,
    Manifest,
    MemberPositions,
    TableColumn,
    read_manifest,
)
from container.pipeline.parquet_table import CHECKPOINT_NAME, TableWriter, locked, merged_columns
from container.pipeline.rows import source_options
from container.pipeline.spark_errors import plain_error
from container.recordings import LOG_VIEWS, Member
from container.recordings.commit import all_end_texts, member_key
from container.spark.cluster_log import read_logs
from container.spark.options import ANY, SourceOptions
from container.spark.session import is_connected
from container.spark.source import FORMAT, open_source_members, payload_decoder
from container.spark.table_formats import DELTA, ICEBERG, require_name, require_pair

ATTEMPTS = 10
"""Starts of a query whose Python worker is not up within Spark's time limit."""

_POLL_S = 1
_TOO_SLOW = "Python worker failed to connect back"
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException"
"""An error that Spark treats as an interruption by a stop."""
_FULL = "No space left on device"
_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from container.pipeline.iceberg_table import IcebergWriter

type Writer = TableWriter | IcebergWriter


class IngestStopped(Exception):
    """Raised by a caller's ``on_progress`` to end a continuous ingest after the finished batches."""


def ingest(
    spark: SparkSession,
    options: SourceOptions,
    table: Path | str,
    *,
    table_format: str = PARQUET,
    partition_by: Sequence[str] | None = None,
    state_dir: Path | None = None,
    cluster: str | None = None,
    interval_s: float | None = None,
    on_progress: Callable[[Manifest, StreamingQuery], None] = lambda _manifest, _query: None,
) -> Manifest:
    """Read a view of the log into a table of Parquet files, of Delta Lake or of Iceberg; return the manifest.

    The table has the columns of the view, and ``cluster``, ``date`` (of the timestamp, UTC; null where there is none)
    and ``term`` (the leadership term), by which its directories are made as Hive's are: any reader of Parquet can read
    it, here or where it was copied to. Its directory also has the checkpoint of the query, the manifest and the schema,
    under names that readers do not take for data. However an ingest ended, the next one continues where it stopped:
    each row is in the table once.

    A decoder may change between two runs. A field that it has no more is null from then on, a new one is null in
    earlier rows. A field that has the name of a column of the view or of the directories gets ``payload_`` in front.

    Args:
        spark: a session with the source.
        options: of the source; the view is messages, sessions, session_messages or timers.
        table: the directory of the table, in a file system that is mounted here and where the executors run; of
            Iceberg the name with its catalog, such as ``local.logs.messages``.
        table_format: parquet, delta or iceberg.
        partition_by: of cluster, date, hour and term, those by which the table is divided; cluster, date and term by
            default.
        state_dir: of Iceberg only: the directory of the checkpoint and the manifest.
        cluster: the cluster's name in the table; the cluster id of the mark file by default.
        interval_s: seconds between two looks for new messages, forever; None ends at what is committed now.
        on_progress: called with the manifest after each finished batch, and each time nothing has come; it may raise
            IngestStopped.

    Raises:
        ConfigurationError: the view is not one of these, the format has no jar for this Spark, the table was made with
            other options or with a decoder that gave a column another type, its checkpoint is gone, another ingest
            writes into it, or the cluster has no name. Or the session is one of Spark Connect.
        ContainerError: the query failed; the text says why.
    """
    if is_connected(spark):
        raise ConfigurationError(
            "an ingest over Spark Connect is not possible: the server writes the batches, and the manifest is written "
            "here. Run it where the driver is, with a session of another master"
        )
    if options.view not in LOG_VIEWS or options.view == "frames":
        raise ConfigurationError(
            f"view={options.view!r} cannot be partitioned by date, as not every row has a time; ingest messages, "
            "sessions, session_messages or timers"
        )
    if options.columns:
        raise ConfigurationError("columns: an ingest has all columns of the view; choose some when you read the table")
    if options.starting is not None:
        raise ConfigurationError(
            f"{options.starting.name}: an ingest has the log from its beginning, as its manifest says; choose rows "
            "when you read the table"
        )
    members = open_source_members(options)
    for text in all_end_texts(members, options.mode):
        _log.warning("%s", text)
    cluster = cluster or _cluster_name(members)
    if cluster == NULL_DIRECTORY:
        raise ConfigurationError(f"cluster={cluster!r}: in a directory's name this stands for null; give another name")
    name = str(table) if table_format == ICEBERG else None
    table = _directory(table, table_format, state_dir)
    names = [path.name for path in table.iterdir()] if table.exists() else []
    if MANIFEST_NAME not in names and any(not name.startswith("_") or name == "_delta_log" for name in names):
        raise ConfigurationError(f"table={table} is not empty and has no {MANIFEST_NAME}: give a new directory")
    table.mkdir(parents=True, exist_ok=True)
    try:
        with locked(table):
            remove_unfinished(table / CHECKPOINT_NAME)
            manifest = _manifest(options, table, members, cluster, table_format, name, partition_by)
            writer = _writer(spark, table, manifest)
            _go_on(spark, options, table, writer, interval_s, on_progress)
    except (ContainerError, OSError) as error:
        if _FULL not in str(error):
            raise
        raise ContainerError(
            f"table={name or table}: no space is left on the disk of the table, of its checkpoint in {table}, or of "
            "Spark's own files (spark.local.dir): make room and start again, which continues where this stopped"
        ) from error
    return writer.manifest


def _directory(table: Path | str, table_format: str, state_dir: Path | None) -> Path:
    """The directory of checkpoint and manifest: the table's, unless a catalog has the table."""
    if table_format not in (PARQUET, DELTA, ICEBERG):
        raise ConfigurationError(f"table_format={table_format!r}: must be parquet, delta or iceberg")
    if table_format == ICEBERG:
        require_pair(ICEBERG)
        require_name(str(table))
        if state_dir is None:
            raise ConfigurationError("state_dir: an ingest into iceberg needs a directory for its checkpoint")
        return state_dir
    if state_dir is not None:
        raise ConfigurationError(f"state_dir is of iceberg; a table of {table_format} has its checkpoint in itself")
    return Path(table)


def _writer(spark: SparkSession, table: Path, manifest: Manifest) -> Writer:
    if manifest.table_format == ICEBERG:
        from container.pipeline.iceberg_table import IcebergWriter

        return IcebergWriter(spark, table, manifest)
    if manifest.table_format == DELTA:
        from container.pipeline.delta_table import DeltaWriter

        return DeltaWriter(table, manifest)
    return TableWriter(table, manifest)


def _go_on(
    spark: SparkSession,
    options: SourceOptions,
    table: Path,
    writer: Writer,
    interval_s: float | None,
    on_progress: Callable[[Manifest, StreamingQuery], None],
) -> None:
    rows = _rows(spark, options, writer.manifest)
    columns = _columns(options, rows, writer.manifest.own_columns)
    writer.manifest.columns = merged_columns(table, writer.manifest.columns, columns)
    writer.manifest.write(table)
    attempts = 0
    while True:
        batch_id = writer.manifest.batch_id
        try:
            store = _Store(writer)
            _follow(_start(options, rows, table, store, interval_s), store, on_progress)
        except IngestStopped:
            return
        except PySparkException as error:
            attempts = 1 if writer.manifest.batch_id > batch_id else attempts + 1
            if _TOO_SLOW not in str(error) or attempts == ATTEMPTS:
                raise plain_error(error) from error
            _log.warning("Spark gave up on its Python worker after 10 s, as on a busy machine; starting again")
        else:
            return


class _Store:
    """Stores batches. One that a stop interrupts ends with a short error.

    Spark looks for an interruption in the text of the error by a pattern that recurses for each character of it. A
    Java trace is so long that this is a StackOverflowError, of which Java prints a thousand lines.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.is_stopping = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self.writer.store(batch, batch_id)
        except Exception:
            if not self.is_stopping:
                raise
            raise RuntimeError(_INTERRUPTED) from None


def _follow(query: StreamingQuery, store: _Store, on_progress: Callable[..., None]) -> None:
    """Report progress while a query runs; at its end wait for a batch that is on its way into the table."""
    writer = store.writer
    try:
        while not query.awaitTermination(_POLL_S):
            on_progress(writer.manifest, query)
    finally:
        store.is_stopping = True
        query.stop()
        writer.finish()
    on_progress(writer.manifest, query)


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """The rows of a table that :func:`ingest` made, with ``cluster`` as text.

    Raises:
        ContainerError: it is not such a table, or it has no rows yet.
    """
    manifest = read_manifest(table)
    if manifest is None:
        raise ContainerError(f"{table} has no {MANIFEST_NAME}: it is not the table of an ingest")
    if not manifest.file_count:
        raise ContainerError(f"{table} is empty: no batch with rows of its ingest is finished yet")
    if manifest.table_format != PARQUET:
        raise ContainerError(f"{table} is of {manifest.table_format}: read it with that format's reader")
    # Spark takes 007 in a directory's name for a number.
    return spark.read.parquet(str(table)).withColumn("cluster", f.lit(manifest.cluster))


def _cluster_name(members: Sequence[Member]) -> str:
    found = {cluster_id for member in members if (cluster_id := member.cluster_id()) is not None}
    if len(found) != 1:
        names = ", ".join(map(str, sorted(found)))
        what = f"the members' files name clusters {names}" if found else "no file of a member names it"
        raise ConfigurationError(f"cluster: give the name of the cluster, as {what}")
    return str(found.pop())


def _partition_by(names: Sequence[str]) -> tuple[str, ...]:
    known = (*PARTITION_COLUMNS, HOUR_COLUMN)
    if not names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise ConfigurationError(
            f"partition_by={','.join(names)!r}: must be one or more of {', '.join(sorted(known))}, each once"
        )
    return tuple(names)


def _manifest(
    options: SourceOptions,
    table: Path,
    members: Sequence[Member],
    cluster: str,
    table_format: str,
    name_in_catalog: str | None,
    given: Sequence[str] | None,
) -> Manifest:
    known = read_manifest(table)
    partition_by = _partition_by(given or (PARTITION_COLUMNS if known is None else known.partition_by))
    if known is None:
        known = Manifest(
            cluster=cluster,
            view=options.view,
            decoder=options.decoder,
            members={},
            table_format=table_format,
            table=name_in_catalog,
            partition_by=partition_by,
        )
    for name, then, now in (
        ("table_format", known.table_format, table_format),
        ("table", known.table, name_in_catalog),
        ("partition_by", known.partition_by, partition_by),
        ("cluster", known.cluster, cluster),
        ("view", known.view, options.view),
        ("decoder", known.decoder, options.decoder),
    ):
        if then != now:
            raise ConfigurationError(
                f"table={table} was made with {name}={then!r}, not {now!r}: give another directory"
            )
    begins = [(member.log_range().start_position, member) for member in _with_log(options, members)]
    if options.is_one_log:
        logs = {ANY: min(begins, key=lambda pair: pair[0])}
    else:
        logs = {member_key(member): (start, member) for start, member in begins}
    if options.member == ANY and len(known.members) == 1:
        # Known by one member or by any that had the log: the stream sees that it is the same log.
        known.members = dict(zip(logs, known.members.values(), strict=True))
    for key, (start, member) in logs.items():
        added = known.members.setdefault(key, MemberPositions(start, start))
        if start > 0 and added.end_position == start and not added.gaps:
            added.gaps.append(Gap(0, start, f"the recording in {member.archive_dir} begins at {start}"))
    return known


def _with_log(options: SourceOptions, members: Sequence[Member]) -> Sequence[Member]:
    """The members whose log can be read; one of them is enough."""
    found = [one.member for one in read_logs(members, _log.warning)] if options.is_one_log else []
    return found or members


def _rows(spark: SparkSession, options: SourceOptions, manifest: Manifest) -> DataFrame:
    """The stream with the columns of the table; the partition columns come last."""
    rows = spark.readStream.format(FORMAT).options(**source_options(options)).load()
    names = {name.lower(): name for name in rows.columns}
    for name in manifest.own_columns:
        if name in names:
            renamed = f"payload_{name}"
            if renamed in names:
                raise ConfigurationError(
                    f"decoder={options.decoder!r}: two columns would be named {renamed!r}; rename a field"
                )
            rows = rows.withColumnRenamed(names[name], renamed)
    time = f.col("event_time")  # An ingest may begin before the log states its unit of time.
    own = {
        "cluster": f.lit(manifest.cluster),
        "date": as_date(time),
        "term": f.col("leadership_term_id"),
        HOUR_COLUMN: as_hour(time),
    }
    return rows.withColumns({name: own[name] for name in manifest.own_columns})


def _columns(options: SourceOptions, rows: DataFrame, own: Sequence[str]) -> list[TableColumn]:
    decoder = payload_decoder(options)
    decoded = 0 if decoder is None else len(decoder.fields)
    fields = [(name, kind) for name, kind in rows.dtypes if name not in own]
    return [TableColumn(name, kind, place >= len(fields) - decoded) for place, (name, kind) in enumerate(fields)]


def _start(
    options: SourceOptions, rows: DataFrame, table: Path, store: _Store, interval_s: float | None
) -> StreamingQuery:
    query = (
        rows.writeStream.queryName(f"ingest {options.view} of cluster {store.writer.manifest.cluster}")
        .foreachBatch(store)
        .option("checkpointLocation", str(table / CHECKPOINT_NAME))
    )
    if interval_s is None:
        return query.trigger(availableNow=True).start()
    return query.trigger(processingTime=f"{interval_s} seconds").start()
