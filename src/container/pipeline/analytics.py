"""What a cluster did: messages per minute and per session, sizes, timers' lateness, changes of the leader."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from container.api import TimeUnit
from container.pipeline.cluster_time import as_time, ticks_per_second, time_unit
from container.pipeline.event_checks import read_module_items, snapshot_positions, timer_pairs
from container.pipeline.report import ROW_LIMIT, Report
from container.pipeline.rows import read_view
from container.recordings.commit import all_end_texts
from container.recordings.member import STRICT
from container.spark.options import SourceOptions
from container.spark.source import furthest_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_BUCKETS = (32, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 1_048_576)
"""Bounds of the table of payload sizes, in bytes."""
POINT_COUNT = 5_000
"""How many minutes a plot has at most."""

_log = logging.getLogger(__name__)
_COLUMNS = ("log_position", "leadership_term_id", "template_id", "timestamp", "cluster_session_id", "payload_length")
_KINDS = {
    "client_messages": "template_id = 1 and cluster_session_id >= 0",
    "service_messages": "template_id = 1 and cluster_session_id < 0",
    "timers": "template_id = 20",
    "sessions_opened": "template_id = 21",
    "sessions_closed": "template_id = 22",
    "leadership_changes": "template_id = 24",
}


class Analytics(NamedTuple):
    """The tables, none of them computed yet; only where snapshots are has been read."""

    per_minute: DataFrame
    """``minute``, a count for each kind of message, ``payload_bytes``, ``open_sessions`` at its end."""
    per_session: DataFrame
    """``cluster_session_id``, ``messages``, ``payload_bytes``, times and log positions of open, close and messages,
    ``close_reason``, ``duration_s``, ``messages_per_s``."""
    sizes: DataFrame
    """``bytes_up_to``, ``client_messages``, ``service_messages``."""
    timers: DataFrame
    """Timers that a snapshot has: ``correlation_id``, ``deadline``, ``expired_at``, ``late_ms``."""
    leadership: DataFrame
    """``leadership_term_id``, ``leader_member_id``, ``began``, ``messages``, ``duration_s``."""


def analyse(spark: SparkSession, options: SourceOptions) -> Analytics:
    """The tables of one member's committed log.

    Args:
        spark: a session with the source.
        options: where the member is; of several members, the one with the most is taken, because their logs are equal.
            In mode permissive a warning says how much damage is left out.

    Raises:
        RecordingError: the member has no log that can be found.
    """
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
    if options.mode != STRICT:
        _warn_of_damage(spark, options)
    unit = time_unit([member])
    rows = read_view(spark, options, "messages", [*_COLUMNS, "close_reason", "leader_member_id"])
    rows = rows.where("template_id is not null").withColumn("time", as_time(f.col("timestamp"), unit))
    return Analytics(
        per_minute(rows),
        per_session(rows),
        sizes(rows),
        timer_lateness(spark, options, unit),
        leadership(rows),
    )


def _warn_of_damage(spark: SparkSession, options: SourceOptions) -> None:
    """Damage is in no table here: a warning says how much of it there is."""
    damage = read_view(spark, options, "messages", ["log_position", "error"]).where("error is not null")
    found = damage.agg(f.count("*").alias("count"), f.min_by("error", "log_position").alias("first")).collect()[0]
    if found["count"]:
        _log.warning("the log is damaged in %d places, which are left out; first: %s", found["count"], found["first"])


def per_minute(rows: DataFrame) -> DataFrame:
    """Counts and bytes for each minute of cluster time in which there was a message."""
    counts = [f.count_if(f.expr(condition)).alias(name) for name, condition in _KINDS.items()]
    by_minute = (
        rows.where("time is not null")
        .groupBy(f.date_trunc("minute", "time").alias("minute"))
        .agg(*counts, f.coalesce(f.sum("payload_length"), f.lit(0)).alias("payload_bytes"))
    )
    # The running total is over minutes, of which a year has half a million: one partition holds them.
    total = f.expr(
        "sum(sessions_opened - sessions_closed) over (order by minute rows between unbounded preceding and current row)"
    )
    return by_minute.withColumn("open_sessions", total).orderBy("minute")


def per_session(rows: DataFrame) -> DataFrame:
    """What each session of a client did."""
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
    """How many messages have payloads of which sizes."""
    bucket = f.lit(None).cast("int")
    for bound in reversed(SIZE_BUCKETS):
        bucket = f.when(f.col("payload_length") <= bound, bound).otherwise(bucket)
    return (
        rows.where("template_id = 1")
        .groupBy(bucket.alias("bytes_up_to"))
        .agg(
            f.count_if(f.expr(_KINDS["client_messages"])).alias("client_messages"),
            f.count_if(f.expr(_KINDS["service_messages"])).alias("service_messages"),
        )
        .orderBy(f.col("bytes_up_to").asc_nulls_last())
    )


def timer_lateness(spark: SparkSession, options: SourceOptions, unit: TimeUnit) -> DataFrame:
    """How late timers expired whose deadline a snapshot has: no other recording of a cluster has deadlines."""
    expired = read_view(spark, options, "timers", ["log_position", "timestamp", "correlation_id"])
    items = read_module_items(spark, options)
    late = (f.col("expired_at") - f.col("deadline")) * 1000 / ticks_per_second(unit)
    return (
        timer_pairs(expired, items, snapshot_positions(items))
        .where("expired_at is not null")
        .select(
            "snapshot_position", "correlation_id", "deadline", "expired_at", "expired_position", late.alias("late_ms")
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
    """Write each table as Parquet into a directory, and a report with plots; return the report's path."""
    page = Report("What a cluster did")
    add_analytics(page, store_analytics(found, directory))
    return page.write(directory / "report.html")


def store_analytics(found: Analytics, directory: Path) -> Analytics:
    """Write each table as Parquet into a directory; return them as read from there, which computes nothing again."""
    for name, table in found._asdict().items():
        table.write.mode("overwrite").parquet(str(directory / name))
    session = found.per_minute.sparkSession
    return Analytics(*(session.read.parquet(str(directory / name)) for name in Analytics._fields))


def add_analytics(page: Report, found: Analytics) -> None:
    """Add tables and plots to a page; of long tables the first rows."""
    minutes = found.per_minute.orderBy("minute").limit(POINT_COUNT).toPandas()
    if len(minutes):
        page.heading("Per minute")
        with page.plots(3) as plots:
            _plot_rates(plots[0], minutes)
            _plot_lines(plots[1], minutes, ["open_sessions"], "Open sessions at the end of each minute")
            _plot_lines(plots[2], minutes, ["timers", "leadership_changes"], "Timers and changes of the leader")
    orders = ("minute", "cluster_session_id", "bytes_up_to", "expired_position", "leadership_term_id")
    titles = ("Minutes", "Sessions", "Payload sizes", "Lateness of timers that a snapshot has", "Leadership terms")
    for title, table, order in zip(titles, found, orders, strict=True):
        page.heading(title)
        rows = table.orderBy(f.col(order).asc_nulls_last()).limit(ROW_LIMIT).collect()
        page.table(table.columns, rows, total=table.count())
    late = [row.late_ms for row in found.timers.select("late_ms").limit(POINT_COUNT).collect()]
    if late:
        with page.plots(1) as (axes,):
            axes.hist(late, bins=min(50, max(5, len(late) // 4)), color="#4878a8")
            axes.set_xlabel("milliseconds of cluster time after the deadline")
            axes.set_title("Lateness of timers")


def _plot_rates(axes: Axes, minutes: Any) -> None:
    for name in ("client_messages", "service_messages"):
        axes.plot(minutes["minute"], minutes[name] / 60, label=name.replace("_", " "), marker=".")
    axes.set_ylabel("per second")
    axes.legend()
    axes.set_title("Messages")


def _plot_lines(axes: Axes, minutes: Any, names: list[str], title: str) -> None:
    for name in names:
        axes.plot(minutes["minute"], minutes[name], label=name.replace("_", " "), marker=".", drawstyle="steps-post")
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.set_title(title)
