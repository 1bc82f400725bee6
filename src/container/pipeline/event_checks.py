"""Checks of what happened in the log: sessions open and close in pairs, timers expire as they were scheduled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from container.common.values import counted
from container.pipeline.findings import FINDING_LIMIT, Check, Finding, State, check
from container.pipeline.log_bytes import AuditedMember
from container.pipeline.rows import core_count, fold_view, read_view, task_count, total_of
from container.spark.options import SourceOptions

LATENESS_LIMIT = 5_000
"""How many timers' lateness a report has."""
POINT_COUNT = 400
"""How many points the curve of open sessions has at most."""
ITEM_COLUMNS = ("item", "cluster_session_id", "opened_log_position", "correlation_id", "deadline")
"""Columns of the items of the consensus module's snapshots that the checks use."""

_TIMER_EVENT, _SESSION_OPEN, _SESSION_CLOSE = 20, 21, 22  # template ids
_MODULE_COLUMNS = ("log_position", "service_id", "is_valid", "is_complete", "error", *ITEM_COLUMNS)
_POSITION_MAX = 2**63 - 1
_SESSIONS_AT_ONCE = 64
_SENDER_SCHEMA = pa.schema(
    [
        ("cluster_session_id", pa.int64()),
        ("messages", pa.int64()),
        ("first_message", pa.int64()),
        ("last_message", pa.int64()),
    ]
)

# Faults of a session, in the order of the checks: the condition, the text, which is formatted with the row, and the
# column of the place.
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


def read_events(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """Where sessions are opened and closed and timers expire, and what is damaged, so that nobody knows what was there.

    Cache it, and the log is read once for all of them.
    """
    columns = ["log_position", "timestamp", "template_id", "cluster_session_id", "correlation_id", "error"]
    rows = read_view(spark, options, "messages", columns)
    is_event = f.col("template_id").isin(_TIMER_EVENT, _SESSION_OPEN, _SESSION_CLOSE)
    return rows.where(is_event | f.col("error").isNotNull())


def find_holes(events: DataFrame, member: AuditedMember) -> list[Finding]:
    """The parts of a member's log that cannot be read, as one finding: checks of events prove nothing then.

    ``events`` are its own, those of :func:`read_events`; what was purged before it is asked for does not count.
    """
    is_damage = f.col("error").isNotNull()
    if not events.where(is_damage).limit(1).collect():
        return []
    start = member.begin_now()
    damaged = events.where(is_damage & (f.coalesce("log_position", f.lit(start)) >= start))
    columns = f.count("*"), f.min("log_position"), f.min_by("error", "log_position")
    count, first, error = damaged.agg(*columns).collect()[0]
    if not count:
        return []
    text = (
        f"{member.name}: its log is not whole in {count:,} places, so what happened there is not known, and what "
        f"else is said here may come of that; the first: {error}"
    )
    return [Finding(state="fail", text=text, member_id=member.member.member_id, log_position=first)]


def read_module_items(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """The items of the consensus module's snapshots, as :func:`module_items` has them."""
    return module_items(read_view(spark, options, "snapshots", _MODULE_COLUMNS))


def module_items(contents: DataFrame) -> DataFrame:
    """Entries and items of the consensus module's snapshots that count, with ``snapshot_position``."""
    rows = contents.where("is_valid is not false and service_id = -1")
    return rows.select(f.col("log_position").alias("snapshot_position"), "is_complete", "error", *ITEM_COLUMNS)


def snapshot_positions(items: DataFrame) -> list[int]:
    """Where the consensus module has snapshots that count and are whole, in the order of the log.

    One whose recording is gone or damaged may have had what cannot be read of it.
    """
    by_position = items.groupBy("snapshot_position").agg(
        f.min("is_complete").alias("is_complete"), f.count("error").alias("faults")
    )
    return sorted(row.snapshot_position for row in by_position.where("is_complete and faults = 0").collect())


def check_sessions(
    spark: SparkSession,
    history: SourceOptions,
    start_position: int,
    events: DataFrame,
    items: DataFrame,
    positions: Sequence[int],
    holes: Sequence[Finding] = (),
) -> Check:
    """Whether each session is opened once, closed at most once, and sends only meanwhile, and snapshots agree.

    ``start_position`` is where the log begins: sessions that were opened before are known by snapshots. ``items`` are
    those of :func:`module_items`, and ``positions`` those of :func:`snapshot_positions`. With ``holes``, those of
    :func:`find_holes`, nothing is certain: a session may have been opened or closed there.
    """
    state: State = "warn" if holes else "fail"
    snapshots = items.where("item = 'CLUSTER_SESSION'")
    sessions = _sessions(spark, history, events, snapshots, start_position, positions).cache()
    try:
        conditions = [condition for condition, _, _ in _SESSION_FAULTS]
        fault = f.coalesce(*(f.when(f.expr(text), f.lit(place)) for place, text in enumerate(conditions)))
        faulty = sessions.withColumn("fault", fault).where("fault is not null")
        findings = [
            Finding(
                state=state,
                text=f"session {row.cluster_session_id} {_SESSION_FAULTS[row.fault][1].format(**row.asDict())}",
                log_position=row[_SESSION_FAULTS[row.fault][2]],
            )
            for row in faulty.orderBy("cluster_session_id").limit(FINDING_LIMIT).collect()
        ]
        count = total_of(faulty, findings, FINDING_LIMIT)
        differences, difference_count = _snapshot_differences(sessions, snapshots, positions, start_position, state)
        totals = sessions.agg(f.sum("opens"), f.sum("closes"), f.sum("messages")).collect()[0]
    finally:
        sessions.unpersist()
    opens, closes, messages = (int(value or 0) for value in totals)
    summary = f"{counted(opens, 'session')} opened, {closes:,} closed; {counted(messages, 'message')} from clients"
    found = [*holes, *findings, *differences]
    return check("sessions", summary, found, len(holes) + count + difference_count)


def _sessions(
    spark: SparkSession,
    history: SourceOptions,
    events: DataFrame,
    snapshots: DataFrame,
    start: int,
    positions: Sequence[int],
) -> DataFrame:
    """Each session of clients once: how often it was opened and closed, where, and what it sent.

    Where a log was purged, one that does nothing behind the first snapshot of the rest may have been opened in what is
    gone, and be in no snapshot: it counts as known.
    """
    opened = f.when(f.col("template_id") == _SESSION_OPEN, 1)
    closed = f.when(f.col("template_id") == _SESSION_CLOSE, 1)
    by_session = (
        events.where(f.col("template_id") != _TIMER_EVENT)
        .groupBy("cluster_session_id")
        .agg(
            f.count(opened).alias("opens"),
            f.count(closed).alias("closes"),
            f.min(opened * f.col("log_position")).alias("opened"),
            f.max(closed * f.col("log_position")).alias("closed"),
        )
    )
    columns = ["log_position", "cluster_session_id"]
    sent = fold_view(spark, history, "session_messages", columns, _senders, _SENDER_SCHEMA)
    by_sender = sent.groupBy("cluster_session_id").agg(
        f.sum("messages").alias("messages"),
        f.min("first_message").alias("first_message"),
        f.max("last_message").alias("last_message"),
    )
    known = snapshots.where(f.col("opened_log_position") <= start).select("cluster_session_id").distinct()
    joined = by_session.join(by_sender, "cluster_session_id", "full").join(
        known.withColumn("known", f.lit(True)), "cluster_session_id", "left"
    )
    filled = joined.fillna(0, ["opens", "closes", "messages"]).fillna(False, ["known"])
    if start > 0:
        said_from = min((position for position in positions if position >= start), default=_POSITION_MAX)
        filled = filled.withColumn("known", f.expr(f"known or greatest(last_message, closed) <= {said_from}L"))
    # A table that is cached keeps all partitions of its shuffle, 200 by default, most of them empty.
    return filled.coalesce(task_count(spark))


def _senders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the messages of each client's session, batch by batch."""
    for batch in batches:
        of_clients = pa.Table.from_batches([batch.filter(pc.greater_equal(batch.column("cluster_session_id"), 0))])
        found = of_clients.group_by("cluster_session_id").aggregate(
            [("log_position", "count"), ("log_position", "min"), ("log_position", "max")]
        )
        names = ["cluster_session_id", "log_position_count", "log_position_min", "log_position_max"]
        yield from found.select(names).rename_columns(_SENDER_SCHEMA.names).to_batches()


def _snapshot_differences(
    sessions: DataFrame, snapshots: DataFrame, positions: Sequence[int], start: int, state: State
) -> tuple[list[Finding], int]:
    """Sessions that a snapshot has and the log has not open there, and the other way round; and how many there are.

    One that the log never opens must have been opened before the log begins.
    """
    by_log = _open_at_snapshots(sessions, positions).withColumn("in_log", f.lit(True))
    of_log = sessions.select("cluster_session_id", "opens")
    compared = _positions_of(snapshots.sparkSession, positions)
    by_snapshot = snapshots.join(f.broadcast(compared), "snapshot_position").select(
        "snapshot_position",
        "cluster_session_id",
        f.lit(True).alias("in_snapshot"),
        ((f.col("opened_log_position") > start) | f.lit(start == 0)).alias("is_of_log"),
    )
    joined = (
        by_snapshot.join(by_log, ["snapshot_position", "cluster_session_id"], "full")
        .join(of_log, "cluster_session_id", "left")
        .where("if(coalesce(opens, 0) = 0, is_of_log, opens = 1 and (in_log is null or in_snapshot is null))")
    )
    findings = [
        Finding(
            state=state,
            text=f"session {row.cluster_session_id} is {'open' if row.in_snapshot else 'missing'} in the snapshot at "
            f"{row.snapshot_position}, and {'open' if row.in_log else 'not open'} there by the log",
            log_position=row.snapshot_position,
        )
        for row in joined.orderBy("snapshot_position", "cluster_session_id").limit(FINDING_LIMIT).collect()
    ]
    return findings, total_of(joined, findings, FINDING_LIMIT)


def _open_at_snapshots(sessions: DataFrame, positions: Sequence[int]) -> DataFrame:
    """A row for each session and each snapshot at which it is open by the log.

    A search in the sorted positions: to compare each session with each snapshot takes the square of a long history.
    """
    places = np.array(positions, np.int64)

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for begin in range(0, batch.num_rows, _SESSIONS_AT_ONCE):
                part = batch.slice(begin, _SESSIONS_AT_ONCE)
                firsts = np.searchsorted(places, part.column("opened").to_numpy())
                ends = np.searchsorted(places, part.column("closed").to_numpy())
                counts = np.maximum(ends - firsts, 0)
                ids = np.repeat(part.column("cluster_session_id").to_numpy(), counts)
                found = [places[first:end] for first, end in zip(firsts, ends, strict=True)]
                columns = [pa.array(ids), pa.array(np.concatenate(found))]
                yield pa.RecordBatch.from_arrays(columns, ["cluster_session_id", "snapshot_position"])

    once = sessions.where("opens = 1").select(
        "cluster_session_id", "opened", f.coalesce("closed", f.lit(_POSITION_MAX)).alias("closed")
    )
    few = once.coalesce(core_count(once.sparkSession))
    return few.mapInArrow(find, "cluster_session_id bigint, snapshot_position bigint")


def open_by_snapshots(items: DataFrame, start: int) -> DataFrame:
    """The ``cluster_session_id`` of sessions that are open where a log begins, as its snapshots have them."""
    is_open = (f.col("opened_log_position") <= start) & (f.col("snapshot_position") >= start)
    return items.where("item = 'CLUSTER_SESSION'").where(is_open).select("cluster_session_id")


def sessions_before(events: DataFrame, items: DataFrame, start: int) -> int:
    """How many sessions are open where a log begins, as snapshots of the log have them, or as their ends say."""
    ids = ["cluster_session_id"]
    opened, closed = (events.where(f.col("template_id") == one).select(ids) for one in (_SESSION_OPEN, _SESSION_CLOSE))
    return open_by_snapshots(items, start).union(closed).distinct().join(opened, ids, "left_anti").count()


def sessions_over_time(events: DataFrame, end: int, open_before: int) -> list[tuple[int, int]]:
    """Log positions, and how many sessions were open there, at :data:`POINT_COUNT` places at most."""
    width = max(1, -(-end // POINT_COUNT))
    change = f.when(f.col("template_id") == _SESSION_OPEN, 1).otherwise(-1)
    rows = (
        events.where(f.col("template_id") != _TIMER_EVENT)
        .groupBy(f.floor(f.col("log_position") / width).alias("place"))
        .agg(f.max("log_position").alias("log_position"), f.sum(change).alias("change"))
        .orderBy("place")
        .collect()
    )
    points, count = [], open_before
    for row in rows:
        count += row.change
        points.append((int(row.log_position), int(count)))
    return points


def check_timers(
    events: DataFrame, items: DataFrame, positions: Sequence[int], holes: Sequence[Finding] = ()
) -> tuple[Check, list[int]]:
    """Whether timers that a snapshot has expire after it, not before their deadline, and their lateness.

    The log says when a timer expired, and only snapshots say what was scheduled: a service may cancel or reschedule a
    timer, and no recording shows that. So a contradiction is a warning. A timer is forgotten when the next snapshot
    still has it, although one that was due later expired before that, and the log never says that it expired. ``holes``
    are those of :func:`find_holes`.
    """
    expired = events.where((f.col("template_id") == _TIMER_EVENT) & f.col("correlation_id").isNotNull())
    pairs = timer_pairs(expired, items, positions).cache()
    try:
        early = pairs.where("expired_at < deadline")
        overdue = _forgotten(pairs, expired, positions)
        too_early = _timer_findings(early, "warn", "expired at {expired_at}, before its deadline {deadline}")
        forgotten = _timer_findings(overdue, "warn", "was due at {deadline} and had not expired by {last_timestamp}")
        finding_count = total_of(early, too_early, FINDING_LIMIT) + total_of(overdue, forgotten, FINDING_LIMIT)
        late = pairs.where("expired_at >= deadline").select(lateness_of_pairs().alias("late"))
        lateness = [int(row.late) for row in late.orderBy("late").limit(LATENESS_LIMIT).collect()]
        late_count = total_of(late, lateness, LATENESS_LIMIT)
        gone = pairs.where("expired_at is null and next_deadline is null and has_next").count()
        counts = (expired.count(), pairs.count(), gone)
    finally:
        pairs.unpersist()
    summary = (
        f"{counted(counts[0], 'timer')} expired; of {counts[1]:,} that snapshots have, {late_count:,} expired in time "
        f"order and {counts[2]:,} were cancelled or rescheduled"
    )
    return check("timers", summary, [*holes, *too_early, *forgotten], len(holes) + finding_count), lateness


def _forgotten(pairs: DataFrame, expired: DataFrame, positions: Sequence[int]) -> DataFrame:
    """Timers that should have expired and never did, each once, with the first snapshot behind which it was due."""
    kept = pairs.where("expired_at is null and next_deadline = deadline")
    expiries = _expiries(expired, positions)
    last = expiries.groupBy("snapshot_position").agg(f.max("expired_at").alias("last_timestamp"))
    later = expiries.groupBy("correlation_id").agg(f.max("expired_position").alias("last_position"))
    never = (
        kept.join(last, "snapshot_position")
        .join(later, "correlation_id", "left")
        .where("deadline < last_timestamp and coalesce(last_position <= snapshot_position, true)")
    )
    return never.groupBy("correlation_id", "deadline").agg(
        f.min("snapshot_position").alias("snapshot_position"),
        f.min_by("last_timestamp", "snapshot_position").alias("last_timestamp"),
        f.min("expired_position").alias("expired_position"),
    )


def timer_pairs(expired: DataFrame, items: DataFrame, positions: Sequence[int]) -> DataFrame:
    """Each timer of each snapshot, with its expiry before the next snapshot, or its deadline in that, if there is one.

    Columns: ``snapshot_position``, ``correlation_id``, ``deadline``, ``expired_position`` and ``expired_at``,
    ``next_position`` of the snapshot that follows and ``next_deadline`` in it.
    """
    following = expired.sparkSession.createDataFrame(
        list(zip_longest(positions, positions[1:])), "snapshot_position bigint, next_position bigint"
    )
    items = items.where("item = 'TIMER'")
    timers = items.select("snapshot_position", "correlation_id", "deadline").join(
        f.broadcast(following), "snapshot_position"
    )
    later = items.select(
        f.col("snapshot_position").alias("next_position"), "correlation_id", f.col("deadline").alias("next_deadline")
    )
    by_timer = _expiries(expired, positions).groupBy("snapshot_position", "correlation_id")
    first = by_timer.agg(
        f.min_by("expired_at", "expired_position").alias("expired_at"),
        f.min("expired_position").alias("expired_position"),
    )
    paired = (
        timers.join(later, ["next_position", "correlation_id"], "left")
        .join(first, ["snapshot_position", "correlation_id"], "left")
        .dropDuplicates(["snapshot_position", "correlation_id", "deadline", "next_deadline"])
    )
    found = paired.withColumn("has_next", f.col("next_position").isNotNull())
    return found.coalesce(task_count(found.sparkSession))


def lateness_of_pairs() -> Column:
    """How late a timer of :func:`timer_pairs` expired, in cluster time: a deadline may be any number of 64 bits."""
    most = f.when(f.col("expired_at") < f.col("deadline"), -_POSITION_MAX).otherwise(_POSITION_MAX)
    return f.coalesce(f.try_subtract(f.col("expired_at"), f.col("deadline")), most)


def _expiries(expired: DataFrame, positions: Sequence[int]) -> DataFrame:
    """Where and when timers expired, each with the last snapshot before it; not those before the first snapshot."""
    places = np.array(positions, np.int64)

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            indices = np.searchsorted(places, batch.column("expired_position").to_numpy()) - 1
            behind = batch.filter(pa.array(indices >= 0))
            columns = [*behind.columns, pa.array(places[indices[indices >= 0]])]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, "snapshot_position"])

    rows = expired.select(
        "correlation_id", f.col("log_position").alias("expired_position"), f.col("timestamp").alias("expired_at")
    )
    schema = "correlation_id bigint, expired_position bigint, expired_at bigint, snapshot_position bigint"
    return rows.mapInArrow(find, schema)


def _positions_of(spark: SparkSession, positions: Sequence[int]) -> DataFrame:
    return spark.createDataFrame([(position,) for position in positions], "snapshot_position bigint")


def _timer_findings(rows: DataFrame, state: State, text: str) -> list[Finding]:
    return [
        Finding(
            state=state,
            text=f"timer {row.correlation_id} of the snapshot at {row.snapshot_position} {text.format(**row.asDict())}",
            log_position=row.expired_position or row.snapshot_position,
        )
        for row in rows.orderBy("snapshot_position", "correlation_id").limit(FINDING_LIMIT).collect()
    ]
