"""The timeline of a log: what came in each of about a hundred intervals of event time, and its picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from container.common.values import counted
from container.pipeline.pictures import (
    TIME_STEPS,
    Axis,
    Bar,
    Chart,
    Lane,
    Mark,
    Picture,
    Ranges,
    Span,
    Steps,
    Style,
    as_datetime,
    duration_text,
    span_text,
    time_text,
)
from container.pipeline.report import Report

if TYPE_CHECKING:
    from container.pipeline.analytics import Analytics

KINDS = {
    "client_messages": "template_id = 1 and cluster_session_id >= 0",
    "service_messages": "template_id = 1 and cluster_session_id < 0",
    "timers": "template_id = 20",
    "sessions_opened": "template_id = 21",
    "sessions_closed": "template_id = 22",
    "leadership_changes": "template_id = 24",
}
"""The counts, with the condition for each, over the view ``messages``."""
BIN_COUNT = 120
"""How many intervals a timeline has, at most one more."""
PLACE_COUNT = 2_000
"""How many terms, snapshots and damaged places a picture has at most; a note says how many there are beyond."""


_SECOND = 1_000_000
_TABLE_NAMES = (
    "begin (UTC)",
    "client messages",
    "service messages",
    "timers",
    "open sessions",
    "timer lateness: median (ms)",
    "maximum (ms)",
    "round trip: median (ms)",
    "maximum (ms)",
)


class Bin(NamedTuple):
    """An interval of the timeline; times in microseconds since 1970."""

    begin: int
    end: int
    first: int
    last: int
    first_log_position: int
    client_messages: int
    service_messages: int
    timers: int
    open_sessions: int


class Term(NamedTuple):
    """A leadership term; times in microseconds since 1970."""

    leadership_term_id: int
    leader_member_id: int | None
    began: int
    ended: int
    messages: int


class Place(NamedTuple):
    """Something at a log position and, where it is known, at a time."""

    log_position: int
    at: int | None
    text: str


class RoundTrip(NamedTuple):
    """A request that a client measured: when it was sent, in microseconds since 1970, and how long the answer took."""

    at: int
    """The time when the request was sent, in microseconds since 1970."""
    micros: int
    """The time until the answer, in microseconds."""


def timeline(rows: DataFrame, terms: DataFrame, open_before: int = 0) -> DataFrame:
    """Counts for each interval of event time in which there was a message, of a round length that suits the log.

    Args:
        rows: the view ``messages`` with ``time``.
        terms: the terms of :func:`~container.pipeline.analytics.leadership`, which say how long the log is.
        open_before: how many sessions are open where the log begins.
    """
    span = terms.agg(f.max(f.unix_micros("ended")).alias("last"), f.min(f.unix_micros("began")).alias("first"))
    steps = f.array(*(f.lit(step).cast("bigint") for step in TIME_STEPS))
    suiting = f.filter(steps, lambda step: step * BIN_COUNT > f.col("last") - f.col("first"))
    # For one message, or several at one time, a rate in an interval below one second means nothing.
    chosen = f.when(f.col("first") == f.col("last"), _SECOND).otherwise(f.try_element_at(suiting, f.lit(1)))
    width = span.select(chosen.cast("bigint").alias("width"))
    micros = f.unix_micros("time")
    begin = (micros - f.pmod(micros, "width")).alias("begin")
    counts = [f.count_if(f.expr(condition)).alias(name) for name, condition in KINDS.items()]
    by_begin = (
        rows.where("time is not null")
        .crossJoin(f.broadcast(width))
        .groupBy(begin, "width")
        .agg(
            *counts,
            f.coalesce(f.sum("payload_length"), f.lit(0)).alias("payload_bytes"),
            f.min("time").alias("first_message"),
            f.max("time").alias("last_message"),
            f.min("log_position").alias("first_log_position"),
        )
    )
    total = f.expr(
        "sum(sessions_opened - sessions_closed) over (order by begin rows between unbounded preceding and current row)"
    )
    end = f.timestamp_micros(f.col("begin") + f.col("width")).alias("end")
    return by_begin.select(
        f.timestamp_micros("begin").alias("begin"),
        end,
        *KINDS,
        "payload_bytes",
        "first_message",
        "last_message",
        "first_log_position",
        (total + open_before).alias("open_sessions"),
    ).orderBy("begin")


def add_timeline(page: Report, found: Analytics, round_trips: Sequence[RoundTrip] = ()) -> Picture | None:
    """Add the picture of a log, sentences that say what it shows, and a table of the same data; return the picture.

    Args:
        page: the report.
        found: tables as :func:`~container.pipeline.analytics.store_analytics` returns them.
        round_trips: what clients measured, if anybody did: a log has no times of requests and answers.
    """
    bins = _bins(found.timeline)
    page.heading("Timeline")
    if not bins:
        page.text("The log has no message with a time.", "note")
        return None
    all_terms, terms = found.leadership.count(), _terms(found.leadership)
    snapshots, damage = _snapshots(found.snapshots), _damage(found.damage, bins)
    width = bins[0].end - bins[0].begin
    lateness = _lateness(found.timers, width)
    trips = _binned(round_trips, width)
    gaps = find_gaps(bins)
    sentences = [
        _activity(bins),
        _leaders(terms, all_terms),
        _pauses(gaps, width),
        _lateness_text(found.timers),
        _round_trip_text(round_trips),
    ]
    for sentence in sentences:
        page.text(sentence)
    if damage:
        count = found.damage.count()
        page.text(f"{counted(count, 'place')} of the log {'is' if count == 1 else 'are'} damaged and left out.", "fail")
    members = sorted({row.member_id for row in found.members.collect() if row.member_id is not None})
    picture = picture_of(
        bins,
        terms,
        members,
        snapshots=snapshots,
        damage=damage,
        gaps=gaps,
        lateness=lateness,
        round_trips=trips,
        description=" ".join(sentences),
    )
    page.picture(picture)
    if all_terms > len(terms):
        page.text(f"{all_terms - len(terms):,} more terms are not in the picture.", "note")
    page.details(
        f"The same as a table, for each interval of {duration_text(width)} that has something",
        _TABLE_NAMES,
        _table_rows(bins, lateness, trips),
    )
    return picture


def picture_of(
    bins: Sequence[Bin],
    terms: Sequence[Term],
    members: Iterable[int],
    *,
    snapshots: Sequence[Place] = (),
    damage: Sequence[Place] = (),
    gaps: Sequence[Span] = (),
    lateness: Sequence[tuple[float, float, float]] = (),
    round_trips: Sequence[tuple[float, float, float]] = (),
    description: str = "",
) -> Picture:
    """Lanes of members with the terms that they led, and charts of rates, sessions and latencies below.

    Args:
        bins: the intervals, at least one.
        terms: in their order.
        members: ids of members that have a lane even if they never led.
        snapshots: with their times; one without is not drawn.
        damage: places of the log that are left out.
        gaps: as :func:`find_gaps` returns them.
        lateness: time, median and maximum in milliseconds for each interval with a timer.
        round_trips: the same of requests.
        description: the picture in words.
    """
    width = bins[0].end - bins[0].begin
    ends = [at + width / 2 for at, _, _ in (*lateness, *round_trips)]
    axis = Axis("time", bins[0].begin, max([bins[-1].end, *ends]))
    leaders = sorted({*members, *(term.leader_member_id for term in terms if term.leader_member_id is not None)})
    lanes = [Lane(f"Member {leader}", _bars(terms, leader)) for leader in leaders]
    if unknown := _bars(terms, None):
        lanes.append(Lane("Leader not known", unknown))
    legend: list[tuple[Style, str]] = [("first", "leads, with its term")]
    if gaps:
        legend.append(("gap", "no message"))
    marks = [Mark(one.at, one.text, "snapshot") for one in snapshots if one.at is not None]
    marks += [Mark(one.at, one.text, "damage") for one in damage if one.at is not None]
    if marks:
        lanes.append(Lane("Snapshots and damage" if damage else "Snapshots", (), marks))
        legend.append(("snapshot", "snapshot"))
    if damage:
        legend.append(("damage", "damaged place"))
    charts = [
        Chart(
            "Messages per second",
            [Steps("from clients", _rates(bins, "client_messages", width))]
            + ([Steps("from services", _rates(bins, "service_messages", width))] if _has_service(bins) else []),
        ),
        Chart("Open sessions", [Steps("open", _held(bins))]),
    ]
    if lateness:
        charts.append(Chart("Timer lateness (ms)", Ranges(lateness)))
    if round_trips:
        charts.append(Chart("Round trip (ms)", Ranges(round_trips)))
    texts = [Span(one.begin, one.end, "", _bin_text(one, width)) for one in bins]
    return Picture("Timeline of the log", description, axis, lanes, charts, legend, gaps, texts)


def find_gaps(bins: Sequence[Bin]) -> list[Span]:
    """The stretches without a message that are longer than two intervals."""
    width = bins[0].end - bins[0].begin if bins else 0
    found = [(one.last, other.first) for one, other in pairwise(bins) if other.first - one.last > 2 * width]
    return [
        Span(
            begin,
            end,
            duration_text(end - begin),
            f"no message for {duration_text(end - begin)}: {span_text(begin, end)}",
        )
        for begin, end in found
    ]


def _bins(table: DataFrame) -> list[Bin]:
    rows = table.select(
        f.unix_micros("begin"),
        f.unix_micros("end"),
        f.unix_micros("first_message"),
        f.unix_micros("last_message"),
        "first_log_position",
        "client_messages",
        "service_messages",
        "timers",
        "open_sessions",
    )
    return sorted(Bin(*row) for row in rows.collect())


def _terms(table: DataFrame) -> list[Term]:
    rows = table.where("began is not null").select(
        "leadership_term_id", "leader_member_id", f.unix_micros("began"), f.unix_micros("ended"), "messages"
    )
    return [Term(*row) for row in rows.orderBy("leadership_term_id").limit(PLACE_COUNT).collect()]


def _snapshots(table: DataFrame) -> list[Place]:
    rows = table.select("log_position", f.unix_micros("taken").alias("at")).orderBy("log_position").limit(PLACE_COUNT)
    return [
        Place(row.log_position, row["at"], f"snapshot at log position {row.log_position:,}") for row in rows.collect()
    ]


def _damage(table: DataFrame, bins: Sequence[Bin]) -> list[Place]:
    """Damaged places, each at the time of the interval whose messages come before it in the log."""
    places = []
    for row in table.orderBy("log_position").limit(PLACE_COUNT).collect():
        before = [one for one in bins if row.log_position is not None and one.first_log_position <= row.log_position]
        at = max(before, key=lambda one: one.first_log_position).last if before else bins[0].begin
        places.append(Place(row.log_position, at, row.error))
    return places


def _lateness(timers: DataFrame, width: int) -> list[tuple[float, float, float]]:
    micros = f.unix_micros("event_time")
    rows = (
        timers.where("event_time is not null")
        .groupBy((micros - f.pmod(micros, f.lit(width).cast("bigint")) + width // 2).alias("at"))
        .agg(f.percentile_approx("late_ms", 0.5).alias("median"), f.max("late_ms").alias("max"))
        .orderBy("at")
    )
    return [(row["at"], float(row["median"]), float(row["max"])) for row in rows.collect()]


def _binned(round_trips: Iterable[RoundTrip], width: int) -> list[tuple[float, float, float]]:
    by_bin: dict[int, list[int]] = {}
    for one in round_trips:
        by_bin.setdefault(one.at - one.at % width + width // 2, []).append(one.micros)
    return [(at, median(values) / 1000, max(values) / 1000) for at, values in sorted(by_bin.items())]


def _table_rows(
    bins: Sequence[Bin], lateness: Sequence[tuple[float, float, float]], trips: Sequence[tuple[float, float, float]]
) -> list[tuple[object, ...]]:
    """The rows of a picture, for each interval with a message, a timer or a request."""
    middle = (bins[0].end - bins[0].begin) // 2
    by_begin = {one.begin: one for one in bins}
    late, trip = ({int(at) - middle: (low, high) for at, low, high in points} for points in (lateness, trips))
    rows: list[tuple[object, ...]] = []
    for begin in sorted({*by_begin, *late, *trip}):
        one = by_begin.get(begin)
        counts = (
            (0, 0, 0, None)
            if one is None
            else (one.client_messages, one.service_messages, one.timers, one.open_sessions)
        )
        rows.append((as_datetime(begin), *counts, *late.get(begin, (None, None)), *trip.get(begin, (None, None))))
    return rows


def _bars(terms: Sequence[Term], leader: int | None) -> list[Bar]:
    return [
        Bar(
            one.began,
            one.ended,
            f"term {one.leadership_term_id}",
            f"term {one.leadership_term_id}, {counted(one.messages, 'message')}, {span_text(one.began, one.ended)}",
        )
        for one in terms
        if one.leader_member_id == leader
    ]


def _rates(bins: Sequence[Bin], name: str, width: int) -> list[tuple[float, float, float]]:
    return [(one.begin, one.end, getattr(one, name) * _SECOND / width) for one in bins]


def _held(bins: Sequence[Bin]) -> list[tuple[float, float, float]]:
    """Sessions stay open while there is no message."""
    ends = [*(one.begin for one in bins[1:]), bins[-1].end]
    return [(one.begin, end, one.open_sessions) for one, end in zip(bins, ends, strict=True)]


def _has_service(bins: Sequence[Bin]) -> bool:
    return any(one.service_messages for one in bins)


def _bin_text(one: Bin, width: int) -> str:
    return (
        f"{time_text(one.begin)} UTC, {duration_text(width)}: {counted(one.client_messages, 'message')} from clients, "
        f"{one.service_messages:,} from services, {counted(one.timers, 'timer')}, "
        f"{counted(one.open_sessions, 'open session')}"
    )


def _activity(bins: Sequence[Bin]) -> str:
    count = sum(one.client_messages + one.service_messages for one in bins)
    micros, width = bins[-1].last - bins[0].first, bins[0].end - bins[0].begin
    begin = f"from {span_text(bins[0].first, bins[-1].last)}"
    if not micros:
        return f"The log has {counted(count, 'message')}, at {time_text(bins[0].first)} UTC."
    most = max(bins, key=lambda one: one.client_messages + one.service_messages)
    rate = (most.client_messages + most.service_messages) * _SECOND / width
    return (
        f"The log has {counted(count, 'message')} in {duration_text(micros)}, {begin}: "
        f"{count * _SECOND / micros:,.3g} per second on average, at most {rate:,.3g} over {duration_text(width)}."
    )


def _leaders(terms: Sequence[Term], all_terms: int) -> str:
    changes = [(one, other) for one, other in pairwise(terms) if one.leader_member_id != other.leader_member_id]
    leaders = sorted({one.leader_member_id for one in terms if one.leader_member_id is not None})
    *most, last = leaders[:8] + (["others"] if len(leaders) > 8 else []) or ["a member that the log does not name"]
    who = f"members {', '.join(map(str, most))} and {last}" if most else f"member {last}" if leaders else last
    some = f"{len(terms):,} of " if len(terms) < all_terms else ""
    text = f"{some}{counted(all_terms, 'term')}, led by {who}"
    if not changes:
        return f"{text}: the leader did not change."
    one, other = max(changes, key=lambda pair: pair[1].began - pair[0].ended)
    times = "once" if len(changes) == 1 else f"{len(changes):,} times"
    return (
        f"{text}: the leader changed {times}, and the longest wait from one leader's last message to the next one was "
        f"{duration_text(other.began - one.ended)} (term {one.leadership_term_id} to {other.leadership_term_id})."
    )


def _pauses(gaps: Sequence[Span], width: int) -> str:
    if not gaps:
        return f"No gap between two messages is longer than {duration_text(2 * width)}."
    longest = max(gaps, key=lambda gap: gap.end - gap.begin)
    return (
        f"The longest gap without a message is {longest.label}, {span_text(longest.begin, longest.end)}; "
        f"those below {duration_text(2 * width)} are not shown."
    )


def _lateness_text(timers: DataFrame) -> str:
    (row,) = timers.agg(
        f.count("late_ms").alias("count"),
        f.percentile_approx("late_ms", 0.5).alias("median"),
        f.max("late_ms").alias("max"),
        f.count_if(f.col("late_ms") < 0).alias("early"),
    ).collect()
    if not row["count"]:
        return "Timer lateness is not known: no snapshot has the deadline of a timer that expired."
    early = f" {row.early:,} expired before their deadline." if row.early else ""
    return (
        f"Timer lateness: median {duration_text(1000 * row['median'])}, at most {duration_text(1000 * row['max'])}, of "
        f"{counted(row['count'], 'timer')} whose deadline a snapshot has; no other deadlines are recorded.{early}"
    )


def _round_trip_text(round_trips: Sequence[RoundTrip]) -> str:
    if not round_trips:
        return "The waiting times of clients are not known: a log has no times of requests and answers."
    micros = sorted(one.micros for one in round_trips)
    late = micros[min(len(micros) - 1, len(micros) * 99 // 100)]
    return (
        f"Round trip, as the clients measured it: median {duration_text(median(micros))}, 99 % within "
        f"{duration_text(late)}, at most {duration_text(micros[-1])}, of {counted(len(micros), 'answered request')}."
    )
