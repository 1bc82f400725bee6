"""Checks of what happened in the log: sessions open and close in pairs, timers expire as they were scheduled."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from container.pipeline.findings import FINDING_LIMIT, Check, Finding, State, check
from container.pipeline.rows import read_view
from container.spark.options import SourceOptions

LATENESS_LIMIT = 5_000
"""How many timers' lateness a report has."""
POINT_COUNT = 400
"""How many points the curve of open sessions has at most."""

# What is wrong with a session, in the order in which it is looked for: the condition, the text, which is formatted with
# the row, and the column that says where.
_SESSION_FAULTS: tuple[tuple[str, str, str], ...] = (
    ("opens > 1", "is opened {opens} times", "opened"),
    ("closes > 1", "is closed {closes} times", "closed"),
    ("closed <= opened", "is closed at {closed}, before it is opened at {opened}", "closed"),
    ("not known and opens = 0 and closes > 0", "is closed at {closed} and was never opened", "closed"),
    (
        "not known and opens = 0 and messages > 0",
        "sends a message at {first_message} and was never opened",
        "first_message",
    ),
    ("first_message <= opened", "sends a message at {first_message}, before it is opened at {opened}", "first_message"),
    ("last_message > closed", "sends a message at {last_message}, after it is closed at {closed}", "last_message"),
)


def check_sessions(spark: SparkSession, history: SourceOptions, start_position: int) -> Check:
    """Whether each session is opened once, closed at most once, and sends only meanwhile, and snapshots agree.

    ``start_position`` is where the log begins: sessions that were opened before are known by snapshots.
    """
    positions = snapshot_positions(spark, history)
    snapshots = snapshot_items(spark, history, "CLUSTER_SESSION")
    sessions = _sessions(spark, history, snapshots, start_position).cache()
    try:
        conditions = [condition for condition, _, _ in _SESSION_FAULTS]
        fault = f.coalesce(*(f.when(f.expr(text), f.lit(place)) for place, text in enumerate(conditions)))
        faulty = sessions.withColumn("fault", fault).where("fault is not null").cache()
        findings = [
            Finding(
                state="fail",
                text=f"session {row.cluster_session_id} {_SESSION_FAULTS[row.fault][1].format(**row.asDict())}",
                log_position=row[_SESSION_FAULTS[row.fault][2]],
            )
            for row in faulty.orderBy("cluster_session_id").limit(FINDING_LIMIT).collect()
        ]
        count = len(findings) if len(findings) < FINDING_LIMIT else faulty.count()
        findings += _snapshot_differences(sessions, snapshots, positions)
        totals = sessions.agg(f.sum("opens"), f.sum("closes"), f.sum("messages")).collect()[0]
    finally:
        sessions.unpersist()
    opens, closes, messages = (int(value or 0) for value in totals)
    summary = f"{opens:,} sessions were opened and {closes:,} closed; {messages:,} messages came from clients"
    return check("sessions", summary, findings, max(count, len(findings)))


def snapshot_positions(spark: SparkSession, history: SourceOptions) -> DataFrame:
    """Where the consensus module has snapshots that count: the column ``snapshot_position``."""
    rows = _module_snapshots(spark, history)
    return rows.select("snapshot_position").distinct()


def snapshot_items(spark: SparkSession, history: SourceOptions, item: str) -> DataFrame:
    """The items of a kind in these snapshots, with ``snapshot_position`` in place of ``log_position``."""
    return _module_snapshots(spark, history).where(f.col("item") == item)


def _module_snapshots(spark: SparkSession, history: SourceOptions) -> DataFrame:
    rows = read_view(spark, history, "snapshots").where("is_valid is not false and service_id = -1")
    return rows.withColumnRenamed("log_position", "snapshot_position")


def _sessions(spark: SparkSession, history: SourceOptions, snapshots: DataFrame, start: int) -> DataFrame:
    """Each session of clients once: how often it was opened and closed, where, and what it sent."""
    events = read_view(spark, history, "sessions", ["log_position", "cluster_session_id", "event"])
    opened, closed = f.when(f.col("event") == "OPEN", 1), f.when(f.col("event") == "CLOSE", 1)
    by_session = (
        events.where("event is not null")
        .groupBy("cluster_session_id")
        .agg(
            f.count(opened).alias("opens"),
            f.count(closed).alias("closes"),
            f.min(opened * f.col("log_position")).alias("opened"),
            f.max(closed * f.col("log_position")).alias("closed"),
        )
    )
    sent = read_view(spark, history, "session_messages", ["log_position", "cluster_session_id"])
    by_sender = (
        sent.where("cluster_session_id >= 0")
        .groupBy("cluster_session_id")
        .agg(
            f.count("*").alias("messages"),
            f.min("log_position").alias("first_message"),
            f.max("log_position").alias("last_message"),
        )
    )
    known = snapshots.where(f.col("opened_log_position") <= start).select("cluster_session_id").distinct()
    joined = by_session.join(by_sender, "cluster_session_id", "full").join(
        known.withColumn("known", f.lit(True)), "cluster_session_id", "left"
    )
    return joined.fillna(0, ["opens", "closes", "messages"]).fillna(False, ["known"])


def _snapshot_differences(sessions: DataFrame, snapshots: DataFrame, positions: DataFrame) -> list[Finding]:
    """Sessions that a snapshot has and the log has not open there, and the other way round."""
    position = f.col("snapshot_position")
    is_open = (f.col("opened") <= position) & (f.col("closed").isNull() | (f.col("closed") > position))
    by_log = (
        sessions.where("opens = 1")
        .join(f.broadcast(positions), is_open)
        .select("snapshot_position", "cluster_session_id", f.lit(True).alias("in_log"))
    )
    of_log = sessions.where("opens = 1").select("cluster_session_id", f.lit(True).alias("is_logged"))
    by_snapshot = snapshots.select("snapshot_position", "cluster_session_id", f.lit(True).alias("in_snapshot"))
    joined = (
        by_snapshot.join(by_log, ["snapshot_position", "cluster_session_id"], "full")
        .join(of_log, "cluster_session_id", "left")
        .where("is_logged and (in_log is null or in_snapshot is null)")
    )
    return [
        Finding(
            state="fail",
            text=f"session {row.cluster_session_id} is {'open' if row.in_snapshot else 'missing'} in the snapshot at "
            f"{row.snapshot_position}, and {'open' if row.in_log else 'not open'} there by the log",
            log_position=row.snapshot_position,
        )
        for row in joined.orderBy("snapshot_position", "cluster_session_id").limit(FINDING_LIMIT).collect()
    ]


def sessions_over_time(spark: SparkSession, history: SourceOptions, end: int) -> list[tuple[int, int]]:
    """Log positions, and how many sessions were open there, at :data:`POINT_COUNT` places at most."""
    events = read_view(spark, history, "sessions", ["log_position", "event"]).where("event is not null")
    width = max(1, -(-end // POINT_COUNT))
    change = f.when(f.col("event") == "OPEN", 1).otherwise(-1)
    rows = (
        events.groupBy(f.floor(f.col("log_position") / width).alias("place"))
        .agg(f.max("log_position").alias("log_position"), f.sum(change).alias("change"))
        .orderBy("place")
        .collect()
    )
    points, count = [], 0
    for row in rows:
        count += row.change
        points.append((int(row.log_position), int(count)))
    return points


def check_timers(spark: SparkSession, history: SourceOptions) -> tuple[Check, list[int]]:
    """Whether timers that a snapshot has expire after it, not before their deadline, and their lateness.

    The log says when a timer expired, and only snapshots say what was scheduled: a service may cancel a timer or
    schedule it anew, which no recording has. So what does not fit is a warning, but for a timer that a later snapshot
    still has and that the log says expired.
    """
    expired = read_view(spark, history, "timers", ["log_position", "timestamp", "correlation_id"])
    expired = expired.where("correlation_id is not null")
    items = snapshot_items(spark, history, "TIMER")
    pairs = timer_pairs(expired, items, snapshot_positions(spark, history)).cache()
    try:
        early = pairs.where("expired_at < deadline")
        overdue = pairs.where("expired_at is null and next_deadline = deadline and deadline < last_timestamp")
        findings = _timer_findings(early, "warn", "expired at {expired_at}, before its deadline {deadline}")
        findings += _timer_findings(overdue, "warn", "was due at {deadline} and had not expired by {last_timestamp}")
        late = pairs.where("expired_at >= deadline").select((f.col("expired_at") - f.col("deadline")).alias("late"))
        lateness = [int(row.late) for row in late.orderBy("late").limit(LATENESS_LIMIT).collect()]
        gone = pairs.where("expired_at is null and next_deadline is null and has_next").count()
        counts = (expired.count(), pairs.count(), gone)
    finally:
        pairs.unpersist()
    summary = (
        f"{counts[0]:,} timers expired; of {counts[1]:,} that snapshots have, {len(lateness):,} expired in time order "
        f"and {counts[2]:,} were cancelled or scheduled anew"
    )
    return check("timers", summary, findings), lateness


def timer_pairs(expired: DataFrame, items: DataFrame, positions: DataFrame) -> DataFrame:
    """Each timer of each snapshot, with its expiry before the next snapshot, or its deadline in that, if there is one.

    Columns: ``snapshot_position``, ``correlation_id``, ``deadline``, ``expired_position`` and ``expired_at``,
    ``next_position`` of the snapshot that follows, ``next_deadline`` in it, and ``last_timestamp``, of the last timer.
    """
    following = positions.withColumn(
        "next_position", f.lead("snapshot_position").over(Window.orderBy("snapshot_position"))
    )
    timers = items.select("snapshot_position", "correlation_id", "deadline").join(
        f.broadcast(following), "snapshot_position"
    )
    later = items.select(
        f.col("snapshot_position").alias("next_position"), "correlation_id", f.col("deadline").alias("next_deadline")
    )
    timers = timers.join(later, ["next_position", "correlation_id"], "left")
    after = expired.select(
        f.col("correlation_id").alias("expired_id"),
        f.col("log_position").alias("expired_position"),
        f.col("timestamp").alias("expired_at"),
    )
    is_between: Column = (
        (f.col("correlation_id") == f.col("expired_id"))
        & (f.col("expired_position") > f.col("snapshot_position"))
        & (f.col("next_position").isNull() | (f.col("expired_position") <= f.col("next_position")))
    )
    paired = (
        timers.join(after, is_between, "left")
        .groupBy("snapshot_position", "next_position", "correlation_id", "deadline", "next_deadline")
        .agg(
            f.min_by("expired_at", "expired_position").alias("expired_at"),
            f.min("expired_position").alias("expired_position"),
        )
    )
    last = expired.agg(f.max("timestamp").alias("last_timestamp"))
    return paired.crossJoin(f.broadcast(last)).withColumn("has_next", f.col("next_position").isNotNull())


def _timer_findings(rows: DataFrame, state: State, text: str) -> list[Finding]:
    return [
        Finding(
            state=state,
            text=f"timer {row.correlation_id} of the snapshot at {row.snapshot_position} {text.format(**row.asDict())}",
            log_position=row.expired_position or row.snapshot_position,
        )
        for row in rows.orderBy("snapshot_position", "correlation_id").limit(FINDING_LIMIT).collect()
    ]
