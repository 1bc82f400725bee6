"""From archives to Parquet as the log grows: each committed message once, also over restarts, with a manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from container.errors import ConfigurationError, ContainerError
from container.pipeline.cluster_time import as_time, time_unit
from container.pipeline.errors import plain_error
from container.pipeline.manifest import MANIFEST_NAME, PARTITION_COLUMNS, Gap, Manifest, MemberPositions, read_manifest
from container.pipeline.rows import source_options
from container.pipeline.sink_log import finished_batch
from container.recordings import Member, schema
from container.recordings.commit import tail_texts
from container.recordings.live import read_cluster_mark
from container.spark.options import SourceOptions
from container.spark.source import FORMAT, member_key, open_source_members

CHECKPOINT_NAME = "_checkpoint"
GAP_LIMIT = 1_000
"""How many gaps of a member are looked at in detail; a log with more is beyond a manifest."""

ATTEMPTS = 10
"""How often a query is started whose Python worker does not come up in the time that Spark leaves it."""

_POLL_S = 1
_TOO_SLOW = "Python worker failed to connect back"
_log = logging.getLogger(__name__)


class IngestStopped(Exception):
    """Raised by a caller's ``on_progress`` to end a continuous ingest after what is finished."""


def ingest(
    spark: SparkSession,
    options: SourceOptions,
    table: Path,
    *,
    cluster: str | None = None,
    interval_s: float | None = None,
    on_progress: Callable[[Manifest, StreamingQuery], None] = lambda _manifest, _query: None,
) -> Manifest:
    """Read a view of the log into a table of Parquet files; returns the manifest.

    The table has the columns of the view, and ``cluster``, ``date`` (of the timestamp, UTC; null where there is none)
    and ``term`` (the leadership term), by which its directories are made. Its directory also has the checkpoint of the
    query and the manifest, under names that Spark does not read as data. An ingest that was ended in any way goes on
    where it stopped: each row is in the table once.

    Args:
        spark: a session with the source.
        options: of the source; the view must be one of the log that has times.
        table: the directory of the table, in a file system that is mounted here and where the executors run.
        cluster: the cluster's name in the table; the cluster id of the mark file by default.
        interval_s: go on for ever and look for new messages so often, in seconds; None ends at what is committed now.
        on_progress: called with the manifest after each finished batch, and each time nothing has come; it may raise
            IngestStopped.

    Raises:
        ConfigurationError: the view has no times, the table was made with other options, or the cluster has no name.
        ContainerError: the query failed; the text says why.
    """
    if "timestamp" not in schema(options.view).names:
        raise ConfigurationError(
            f"view={options.view!r} has no timestamps to partition by; ingest messages, sessions, session_messages or "
            "timers"
        )
    members = open_source_members(options)
    for text in tail_texts(members, options.mode):
        _log.warning("%s", text)
    manifest = _manifest(options, table, members, cluster or _cluster_name(members))
    manifest.write(table)
    start = partial(_start, spark, options, table, manifest.cluster, members, interval_s)
    attempts = 0
    while True:
        batch_id = manifest.batch_id
        try:
            _follow(spark, start(), table, manifest, on_progress)
        except IngestStopped:
            return manifest
        except PySparkException as error:
            attempts = 1 if manifest.batch_id > batch_id else attempts + 1
            if _TOO_SLOW not in str(error) or attempts == ATTEMPTS:
                raise plain_error(error) from error
            _log.warning("Spark gave up on its Python worker after 10 s, as on a busy machine; starting again")
        else:
            return manifest


def _follow(
    spark: SparkSession, query: StreamingQuery, table: Path, manifest: Manifest, on_progress: Callable[..., None]
) -> None:
    """Keep the manifest up to date while a query runs."""
    try:
        while not query.awaitTermination(_POLL_S):
            _update(spark, table, manifest)
            on_progress(manifest, query)
    finally:
        query.stop()
        _update(spark, table, manifest)
    on_progress(manifest, query)


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """The rows of a table that :func:`ingest` made, with ``cluster`` as text.

    Raises:
        ContainerError: it is no such table, or nothing is finished yet.
    """
    manifest = read_manifest(table)
    if manifest is None:
        raise ContainerError(f"{table} has no {MANIFEST_NAME}: it is no table of an ingest")
    if manifest.batch_id < 0:
        raise ContainerError(f"{table} is empty: no batch of its ingest is finished yet")
    return spark.read.parquet(str(table)).withColumn("cluster", f.col("cluster").cast("string"))


def _cluster_name(members: Sequence[Member]) -> str:
    marks = [read_cluster_mark(Path(member.cluster_dir)) for member in members if member.cluster_dir is not None]
    found = {mark.cluster_id for mark in marks if mark is not None}
    if len(found) != 1:
        what = (
            f"the mark files name clusters {', '.join(map(str, sorted(found)))}" if found else "no mark file names it"
        )
        raise ConfigurationError(f"cluster: give the name of the cluster, as {what}")
    return str(found.pop())


def _manifest(options: SourceOptions, table: Path, members: Sequence[Member], cluster: str) -> Manifest:
    known = read_manifest(table)
    if known is None:
        if table.exists() and any(table.iterdir()):
            raise ConfigurationError(f"table={table} is not empty and has no {MANIFEST_NAME}: give a new directory")
        table.mkdir(parents=True, exist_ok=True)
        known = Manifest(cluster=cluster, view=options.view, decoder=options.decoder, members={})
    for name, then, now in (
        ("cluster", known.cluster, cluster),
        ("view", known.view, options.view),
        ("decoder", known.decoder, options.decoder),
    ):
        if then != now:
            raise ConfigurationError(
                f"table={table} was made with {name}={then!r}, not {now!r}: give another directory"
            )
    for member in members:
        start = member.log_range().start_position
        added = known.members.setdefault(member_key(member), MemberPositions(start, start))
        if start > 0 and added.end_position == start and not added.gaps:
            added.gaps.append(Gap(0, start, f"the recording in {member.archive_dir} begins at {start}"))
    return known


def _start(
    spark: SparkSession,
    options: SourceOptions,
    table: Path,
    cluster: str,
    members: Sequence[Member],
    interval_s: float | None,
) -> StreamingQuery:
    rows = spark.readStream.format(FORMAT).options(**source_options(options)).load()
    time = as_time(f.col("timestamp"), time_unit(members))
    rows = rows.withColumns({"cluster": f.lit(cluster), "date": f.to_date(time), "term": f.col("leadership_term_id")})
    writer = (
        rows.writeStream.queryName(f"ingest {options.view} of cluster {cluster}")
        .format("parquet")
        .partitionBy(*PARTITION_COLUMNS)
        .option("path", str(table))
        .option("checkpointLocation", str(table / CHECKPOINT_NAME))
    )
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


def _update(spark: SparkSession, table: Path, manifest: Manifest) -> bool:
    """Take finished batches into the manifest, and find where gaps end; returns whether there were any."""
    batch = finished_batch(table / CHECKPOINT_NAME)
    if batch is None or batch.batch_id <= manifest.batch_id:
        return False
    for row in manifest.add_files(table, batch):
        member = manifest.members[batch.keys[row["member_id"]]]
        if len(member.gaps) < GAP_LIMIT:
            member.gaps.append(Gap(row["log_position"], None, row["error"]))
    ids = {key: member_id for member_id, key in batch.keys.items()}
    for key, member in manifest.members.items():
        for gap in member.gaps:
            if gap.end_position is None:
                gap.end_position = _position_after(spark, table, ids[key], gap.begin_position)
    manifest.write(table)
    return True


def _position_after(spark: SparkSession, table: Path, member_id: int | None, position: int) -> int | None:
    """Where the first message behind a log position begins that the table has of a member."""
    rows = spark.read.parquet(str(table)).where(f.col("error").isNull() & (f.col("begin_position") >= position))
    rows = rows.where(f.col("member_id").eqNullSafe(f.lit(member_id)))
    found: int | None = rows.agg(f.min("begin_position")).collect()[0][0]
    return found
