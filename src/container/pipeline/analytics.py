"""The activity of a cluster: its timeline, messages per minute and per session, sizes, timers' lateness, leaders."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from msgspec import structs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from container.api import TimeUnit
from container.pipeline.cluster_time import as_time, ticks_per_second, time_unit
from container.pipeline.event_checks import (
    lateness_of_pairs,
    open_by_snapshots,
    read_module_items,
    snapshot_positions,
    timer_pairs,
)
from container.pipeline.pictures import as_datetime
from container.pipeline.report import ROW_LIMIT, Report
from container.pipeline.rows import read_view
from container.pipeline.timeline import KINDS, add_timeline, timeline
from container.recordings.commit import all_end_texts
from container.recordings.member import STRICT
from container.spark.options import SourceOptions
from container.spark.source import furthest_log, open_source_members

SIZE_BUCKETS = (32, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 1_048_576)
"""Bounds of the table of payload sizes, in bytes."""

_log = logging.getLogger(__name__)
_DAMAGE = "log_position bigint, error string"
_COLUMNS = ("log_position", "leadership_term_id", "template_id", "timestamp", "cluster_session_id", "payload_length")


class Analytics(NamedTuple):
    """The tables; none is computed yet, and only the positions of snapshots have been read."""

    per_minute: DataFrame
    """``minute``, a count for each kind of message, ``payload_bytes``, ``open_sessions`` at its end."""
    per_session: DataFrame
    """``cluster_session_id``, ``messages``, ``payload_bytes``, times and log positions of open, close and messages,
    ``close_reason``, ``duration_s``, ``messages_per_s``."""
    sizes: DataFrame
    """``bytes_up_to``, ``client_messages``, ``service_messages``."""
    timers: DataFrame
    """Timers that a snapshot has: ``correlation_id``, ``deadline``, ``expired_at``, ``event_time`` (of the expiry),
    ``late_ms``."""
    leadership: DataFrame
    """``leadership_term_id``, ``leader_member_id``, ``began``, ``messages``, ``duration_s``."""
    timeline: DataFrame
    """``begin`` and ``end`` of about a hundred intervals, the counts of ``per_minute`` for each, ``open_sessions`` at
    its end, times of its first and last message, and where the first one ends in the log."""
    snapshots: DataFrame
    """``log_position`` and ``taken`` (the cluster's time) of each valid snapshot in the member's recording log."""
    damage: DataFrame
    """``log_position`` and ``error`` of each place that is left out; in mode strict there is none."""
    members: DataFrame
    """``member_id`` and ``path`` of each member that was given."""


def analyse(spark: SparkSession, options: SourceOptions) -> Analytics:
    """The tables of one member's committed log.

    Args:
        spark: a session with the source.
        options: where the member is; of several members, the one with the most is taken, because their logs are equal.
            In mode permissive a warning says how much damage is left out.

    Raises:
        RecordingError: the member has no log that can be found.
    """
    members = open_source_members(options)
    log = furthest_log(options)
    member, committed = log.member, log.committed_position
    for text in all_end_texts([member], options.mode):
        _log.warning("%s", text)
    options = structs.replace(
        options,
        paths=(member.path,),
        archive_dirs=(member.archive_dir,),
        committed_only=True,
        committed=committed,
        decoder=None,
    )
    damage = spark.createDataFrame([], _DAMAGE) if options.mode == STRICT else _damage(spark, options)
    unit = time_unit([member])
    rows = read_view(spark, options, "messages", [*_COLUMNS, "close_reason", "leader_member_id"])
    rows = rows.where("template_id is not null").withColumn("time", as_time(f.col("timestamp"), unit))
    sessions, terms = per_session(rows), leadership(rows)
    open_before = 0
    if log.start_position > 0:
        items = read_module_items(spark, options).where(f.col("snapshot_position") <= committed)
        of_log = sessions.where("opened_log_position is null").select("cluster_session_id")
        open_before = of_log.union(open_by_snapshots(items, log.start_position)).distinct().count()
    return Analytics(
        per_minute(rows, open_before),
        sessions,
        sizes(rows),
        timer_lateness(spark, options, unit),
        terms,
        timeline(rows, terms, open_before),
        _snapshots(spark, options, unit),
        damage,
        spark.createDataFrame([(one.member_id, one.path) for one in members], "member_id int, path string"),
    )


def _damage(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """Damaged places, which are in no other table; a warning gives their number."""
    damage = read_view(spark, options, "messages", ["log_position", "error"]).where("error is not null")
    found = damage.agg(f.count("*").alias("count"), f.min_by("error", "log_position").alias("first")).collect()[0]
    if found["count"]:
        _log.warning("the log is damaged in %d places, which are left out; first: %s", found["count"], found["first"])
    return damage


def _snapshots(spark: SparkSession, options: SourceOptions, unit: TimeUnit) -> DataFrame:
    """The snapshots of the recording log, once for all services."""
    rows = read_view(spark, options, "recording_log", ["log_position", "timestamp", "entry_type", "is_valid"])
    valid = rows.where("entry_type = 'SNAPSHOT' and is_valid")
    taken = f.max(as_time(f.col("timestamp"), unit)).alias("taken")
    return valid.groupBy("log_position").agg(taken).orderBy("log_position")


def per_minute(rows: DataFrame, open_before: int = 0) -> DataFrame:
    """Counts and bytes for each minute of cluster time in which there was a message.

    Args:
        rows: the view ``messages`` with ``time``.
        open_before: how many sessions are open where the log begins.
    """
    counts = [f.count_if(f.expr(condition)).alias(name) for name, condition in KINDS.items()]
    by_minute = (
        rows.where("time is not null")
        .groupBy(f.date_trunc("minute", "time").alias("minute"))
        .agg(*counts, f.coalesce(f.sum("payload_length"), f.lit(0)).alias("payload_bytes"))
    )
    # The running total is over minutes. A year has half a million, which one partition holds.
    total = f.expr(
        "sum(sessions_opened - sessions_closed) over (order by minute rows between unbounded preceding and current row)"
    )
    return by_minute.withColumn("open_sessions", total + open_before).orderBy("minute")


def per_session(rows: DataFrame) -> DataFrame:
    """The activity of each client's session."""
    is_open, is_close, is_message = (f.col("template_id") == template_id for template_id in (21, 22, 1))
    by_session = rows.where("cluster_session_id >= 0").groupBy("cluster_session_id")
    sessions = by_session.agg(
        f.count_if(is_message).alias("messages"),
        f.coalesce(f.sum("payload_length"), f.lit(0)).alias("payload_bytes"),
        f.min(f.when(is_open, f.col("time"))).alias("opened"),
        f.max(f.when(is_close, f.col("time"))).alias("closed"),
        f.min(f.when(is_open, f.col("log_position"))).alias("opened_log_position"),
        f.max(f.when(is_close, f.col("log_position"))).alias("closed_log_position"),
        f.min(f.when(is_message, f.col("time"))).alias("first_message"),
        f.max(f.when(is_message, f.col("time"))).alias("last_message"),
        f.max("close_reason").alias("close_reason"),
    )
    begin, end = f.coalesce("opened", "first_message"), f.coalesce("closed", "last_message")
    return (
        sessions.withColumn("duration_s", _seconds_between(begin, end))
        .withColumn("messages_per_s", f.when(f.col("duration_s") > 0, f.col("messages") / f.col("duration_s")))
        .orderBy("cluster_session_id")
    )


def sizes(rows: DataFrame) -> DataFrame:
    """The number of messages by size of payload."""
    bucket = f.lit(None).cast("int")
    for bound in reversed(SIZE_BUCKETS):
        bucket = f.when(f.col("payload_length") <= bound, bound).otherwise(bucket)
    return (
        rows.where("template_id = 1")
        .groupBy(bucket.alias("bytes_up_to"))
        .agg(
            f.count_if(f.expr(KINDS["client_messages"])).alias("client_messages"),
            f.count_if(f.expr(KINDS["service_messages"])).alias("service_messages"),
        )
        .orderBy(f.col("bytes_up_to").asc_nulls_last())
    )


def timer_lateness(spark: SparkSession, options: SourceOptions, unit: TimeUnit) -> DataFrame:
    """The delay of timers whose deadline a snapshot has: no other recording of a cluster has deadlines."""
    expired = read_view(spark, options, "timers", ["log_position", "timestamp", "correlation_id"])
    items = read_module_items(spark, options)
    # More than a hundred days in nanoseconds, times 1000, exceed 64 bits.
    late = lateness_of_pairs() / (ticks_per_second(unit) // 1000)
    return (
        timer_pairs(expired, items, snapshot_positions(items))
        .where("expired_at is not null")
        .select(
            "snapshot_position",
            "correlation_id",
            "deadline",
            "expired_at",
            as_time(f.col("expired_at"), unit).alias("event_time"),
            "expired_position",
            late.alias("late_ms"),
        )
        .orderBy("expired_position")
    )


def leadership(rows: DataFrame) -> DataFrame:
    """The leadership terms, how long each was, and how many messages it had."""
    is_begin = f.col("template_id") == 24
    by_term = rows.where("leadership_term_id is not null").groupBy("leadership_term_id")
    terms = by_term.agg(
        f.max(f.when(is_begin, f.col("leader_member_id"))).alias("leader_member_id"),
        f.min("time").alias("began"),
        f.max("time").alias("ended"),
        f.min("log_position").alias("first_log_position"),
        f.count_if(~is_begin).alias("messages"),
    )
    duration = _seconds_between(f.col("began"), f.col("ended"))
    return terms.withColumn("duration_s", duration).orderBy("leadership_term_id")


def _seconds_between(begin: Column, end: Column) -> Column:
    return (f.unix_micros(end) - f.unix_micros(begin)) / 1_000_000


def write_analytics(found: Analytics, directory: Path) -> Path:
    """Write each table as Parquet into a directory, and a report with a timeline; return the report's path."""
    page = Report("Cluster activity")
    stored = store_analytics(found, directory)
    add_timeline(page, stored)
    add_tables(page, stored)
    return page.write(directory / "report.html")


def store_analytics(found: Analytics, directory: Path) -> Analytics:
    """Write each table as Parquet into a directory; return them as read from there, which computes nothing again."""
    for name, table in found._asdict().items():
        table.write.mode("overwrite").parquet(str(directory / name))
    session = found.per_minute.sparkSession
    return Analytics(*(session.read.parquet(str(directory / name)) for name in Analytics._fields))


def add_tables(page: Report, found: Analytics) -> None:
    """Add the tables that have rows to a page; for long ones the first rows."""
    for title, table, order in (
        ("Minutes", found.per_minute, "minute"),
        ("Sessions", found.per_session, "cluster_session_id"),
        ("Payload sizes", found.sizes, "bytes_up_to"),
        ("Timer lateness", found.timers, "expired_position"),
        ("Leadership terms", found.leadership, "leadership_term_id"),
        ("Damage", found.damage, "log_position"),
    ):
        total = table.count()
        if total:
            page.heading(title)
            page.table(*_shown(table.orderBy(f.col(order).asc_nulls_last()).limit(ROW_LIMIT)), total=total)


def _shown(table: DataFrame) -> tuple[list[str], list[list[object]]]:
    """Names and rows of a table, with its times in UTC whatever the session's time zone is."""
    is_time = [kind == "timestamp" for _, kind in table.dtypes]
    names = [f"{name} (UTC)" if is_one else name for name, is_one in zip(table.columns, is_time, strict=True)]
    columns = [
        f.unix_micros(name) if is_one else f.col(name) for name, is_one in zip(table.columns, is_time, strict=True)
    ]
    rows = [
        [
            as_datetime(value) if is_one and value is not None else value
            for value, is_one in zip(row, is_time, strict=True)
        ]
        for row in table.select(*columns).collect()
    ]
    return names, rows
