"""Checks of what members have of the same history: positions without gaps, the bounds of terms, and snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from container.common.values import counted, shown
from container.errors import RecordingError
from container.pipeline.event_checks import ITEM_COLUMNS
from container.pipeline.findings import FINDING_LIMIT, Check, Finding, State, check
from container.pipeline.log_bytes import AuditedMember
from container.pipeline.rows import fold_view, read_view, task_count, total_of
from container.recordings.member import AUDIT
from container.spark.options import SourceOptions

# Columns of a snapshot that differ between members: place and time of the write, and the length of the ring of pending
# messages, in which Java's consensus module counts the padding (ExpandableRingBuffer.java).
_OWN_SNAPSHOT_COLUMNS = (
    "member_id",
    "recording_id",
    "entry_index",
    "timestamp",
    "event_time",
    "pending_message_capacity",
    "error",
)
_SNAPSHOT_KEY = ["log_position", "service_id"]
_ITEM_KEY = [*_SNAPSHOT_KEY, "item", "place"]
_ROW_KEY = [*_SNAPSHOT_KEY, "member_key", "recording_id", "item_index"]
_UNCOMPARED_COLUMNS = {*_OWN_SNAPSHOT_COLUMNS, *_SNAPSHOT_KEY, "is_valid", "is_complete", "item_index", "member_key"}
# The column that says which of its kind something in a snapshot is. Where there is none, its number among them says it.
_IDENTIFIERS = {
    "CLUSTER_SESSION": "cluster_session_id",
    "CLIENT_SESSION": "cluster_session_id",
    "PENDING_MESSAGE": "cluster_session_id",
    "PENDING_MESSAGE_TRACKER": "pending_service_id",
    "TIMER": "correlation_id",
}

_FAULT_TYPE = pa.struct([("begin_position", pa.int64()), ("end_position", pa.int64()), ("error", pa.string())])
_RUN_SCHEMA = pa.schema(
    [
        ("member_id", pa.int32()),
        ("begin_position", pa.int64()),
        ("end_position", pa.int64()),
        ("frame_count", pa.int64()),
        ("faults", pa.list_(_FAULT_TYPE)),
        ("fault_count", pa.int64()),
    ]
)


def check_positions(spark: SparkSession, options: SourceOptions, members: Sequence[AuditedMember]) -> Check:
    """Whether each member has frames one after the other, from the beginning of its log to its end.

    Each task that reads a part of the log yields one row, with the first faults only, so the data at the driver grows
    with the parts and not with the damage. Recordings and purges of a running member since the audit began do not
    matter, and the comparison of bytes reports a lost end.
    """
    columns = ["member_id", "begin_position", "log_position", "error"]
    runs = fold_view(spark, options, "frames", columns, _run, _RUN_SCHEMA).collect()
    findings, frame_count, unlisted = [], 0, 0
    for member in members:
        own = [run for run in runs if run.member_id == member.member.member_id]
        frame_count += sum(run.frame_count for run in own)
        unlisted += sum(run.fault_count - len(run.faults) for run in own)
        read = sorted((run.begin_position, run.end_position) for run in own if run.begin_position is not None)
        ends = [member.log_range.start_position, *(end for _, end in read)]
        begins = [*(begin for begin, _ in read), max(ends[-1], member.log_range.recorded_position)]
        faults: list[tuple[Any, ...]] = [tuple(fault) for run in own for fault in run.faults]
        faults += [(*hole, None) for hole in zip(ends, begins, strict=True) if hole[0] != hole[1]]
        begin_now = member.begin_now() if faults else 0
        findings += [_finding(member, *kept) for fault in faults if (kept := _not_purged(fault, begin_now)) is not None]
    recorded = {member.member.member_id: member.log_range.recorded_position for member in members}
    findings = [one for one in findings if one.log_position is None or one.log_position < recorded[one.member_id]]
    summary = f"{frame_count:,} frames were followed from one to the next"
    return check("positions", summary, findings, len(findings) + unlisted)


def _run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Follow the frames of a part of the log, which come in order: where they begin and end, and what is wrong."""
    run: dict[str, Any] = {"frame_count": 0, "fault_count": 0, "faults": []}
    for batch in batches:
        run["member_id"] = batch.column("member_id")[0].as_py() if len(batch) else run.get("member_id")
        good = batch.filter(batch.column("error").is_null())
        begins, ends = (good.column(name).to_numpy() for name in ("begin_position", "log_position"))
        if len(begins):
            expected = np.concatenate([[run.setdefault("begin_position", int(begins[0]))], ends[:-1]])
            expected[0] = run.get("end_position", expected[0])
            holes = np.flatnonzero(begins != expected)
            run["end_position"] = int(ends[-1])
            run["frame_count"] += len(begins)
            run["fault_count"] += len(holes)
            run["faults"] += [(int(expected[hole]), int(begins[hole]), None) for hole in holes[:FINDING_LIMIT]]
        bad = batch.filter(batch.column("error").is_valid())
        run["fault_count"] += len(bad)
        run["faults"] += [(row["log_position"], None, row["error"]) for row in bad.slice(0, FINDING_LIMIT).to_pylist()]
        run["faults"] = run["faults"][:FINDING_LIMIT]
    if "member_id" in run:
        names = _FAULT_TYPE.names
        run["faults"] = [dict(zip(names, fault, strict=True)) for fault in run["faults"]]
        yield pa.RecordBatch.from_pylist([run], schema=_RUN_SCHEMA)


def _not_purged(fault: tuple[Any, ...], begin_now: int) -> tuple[Any, ...] | None:
    """The rest of a fault when the log begins at a later position by now; None if nothing is left."""
    begin, end, error = fault
    if begin is None or begin >= begin_now:
        return fault
    return (begin_now, end, None) if error is None and end is not None and end > begin_now else None


def _finding(member: AuditedMember, begin: int | None, end: int | None, error: str | None) -> Finding:
    text = error
    if error is None:
        assert begin is not None
        assert end is not None
        first, last = min(begin, end), max(begin, end)
        text = f"the log from {first} to {last} is {'not there' if begin < end else 'there twice'}"
        begin = first
    return Finding(
        state=_state(member, begin),
        text=f"{member.name}: {text}",
        member_id=member.member.member_id,
        log_position=begin,
    )


def _state(member: AuditedMember, position: int | None) -> State:
    """An election may still remove a fault behind the commit position; without a position the fault stays."""
    return "fail" if position is None or position < member.log_range.committed_position else "warn"


class TermRow(NamedTuple):
    """A leadership term, as one source of one member has it."""

    member_id: int | None
    source: str | None
    leadership_term_id: int | None
    term_base_log_position: int | None
    end_log_position: int | None
    begin_position: int | None
    timestamp: int | None
    leader_member_id: int | None
    is_valid: bool | None
    error: str | None


def terms_of(spark: SparkSession, options: SourceOptions) -> list[TermRow]:
    """The terms of all members, from their logs and recording logs."""
    rows = read_view(spark, options, "terms", list(TermRow._fields)).collect()
    return [TermRow(*row) for row in rows]


def check_terms(
    rows: Sequence[TermRow], members: Sequence[AuditedMember] = (), snapshots: Sequence[SnapshotRow] = ()
) -> Check:
    """Whether members agree where each term begins and who led it, and each one's recording log with its log.

    Each of the ``members`` must have each term that its log has a part of: its message in the log, and its entry in the
    recording log. ``snapshots`` are those of all members.
    """
    findings = [
        Finding(state="fail", text=f"terms of member {row.member_id}: {row.error}", member_id=row.member_id)
        for row in rows
        if row.error is not None
    ]
    by_term: dict[int, list[TermRow]] = defaultdict(list)
    for row in rows:
        if row.leadership_term_id is not None and row.is_valid is not False:
            by_term[row.leadership_term_id].append(row)
    for term, of_term in sorted(by_term.items()):
        for column in ("term_base_log_position", "leader_member_id"):
            values = _values(of_term, column)
            if len(values) > 1:
                said = "; ".join(f"{value} by {_who(found)}" for value, found in sorted(values.items()))
                findings.append(
                    Finding(
                        state="fail",
                        text=f"term {term} has different values of {column}: {said}",
                        log_position=min(row.term_base_log_position or 0 for row in of_term),
                    )
                )
        findings += _misplaced(term, of_term)
    bases = _bases(by_term)
    findings += _ends(bases, rows, {each.member.member_id: each for each in members})
    damaged = {row.member_id for row in rows if row.error is not None}  # Nobody knows what else it has.
    for member in members:
        if member.member.member_id not in damaged:
            newest = [
                one.leadership_term_id
                for one in snapshots
                if one.is_valid and one.service_id == -1 and one.member_id == member.member.member_id
            ]
            findings += _absent_terms(member, by_term, bases, max(newest, default=None))
    return check(
        "terms",
        f"{len(by_term)} leadership terms were compared: where they begin and end, who led them, and who has them",
        findings,
    )


def _bases(by_term: Mapping[int, Sequence[TermRow]]) -> dict[int, int]:
    """Where each term begins, as far as anything says it."""
    known = {
        term: [row.term_base_log_position for row in found if row.term_base_log_position is not None]
        for term, found in by_term.items()
    }
    return {term: min(places) for term, places in known.items() if places}


def _absent_terms(
    member: AuditedMember,
    by_term: Mapping[int, Sequence[TermRow]],
    bases: Mapping[int, int],
    snapshot_term: int | None,
) -> Iterator[Finding]:
    """Terms that a member's log has a part of, without the message that opens them, or without an entry.

    ``snapshot_term`` is that of its newest snapshot.
    """
    terms = sorted(bases)
    logged, entered = (
        {term for term in terms if any(row[:2] == (member.member.member_id, source) for row in by_term[term])}
        for source in ("log", "recording_log")
    )
    begin, end = member.begin_now(), member.log_range.committed_position
    for term, following in zip_longest(terms, terms[1:]):
        base, until = bases[term], end if following is None else bases[following]
        others = [row for row in by_term[term] if row.member_id != member.member.member_id]
        who = f"; {_who(others)} has it" if others else ""
        is_in_log = max(base, begin) < min(until, end)
        if is_in_log and begin <= base and term not in logged:
            yield Finding(
                state="fail",
                text=f"{member.name}: its log has no message that opens term {term} at {base}{who}",
                member_id=member.member.member_id,
                log_position=base,
            )
        if term in entered or not (is_in_log or term in logged) or not member.has_recording_log or member.is_backup:
            continue
        is_newest = term == max(logged, default=None) and bool(entered) and term > max(entered)
        if is_newest and member.is_running:
            continue  # It enters the term when its election ends.
        state: State = "fail"
        why = "it was lost there; let the member fetch its log again from another one"
        if snapshot_term is not None and term < snapshot_term:
            state, why = "warn", "no start needs it, as a later snapshot counts; a backup of a member lacks such terms"
        elif is_newest:
            state, why = "warn", "a member that is killed while it gets a term from another one has not entered it yet"
        yield Finding(
            state=state,
            text=f"{member.name}: its recording log has no entry of term {term}, which begins at {base}{who}: {why}",
            member_id=member.member.member_id,
            log_position=base,
        )


def _values(rows: Sequence[TermRow], column: str) -> dict[int, list[TermRow]]:
    values: dict[int, list[TermRow]] = defaultdict(list)
    for row in rows:
        if getattr(row, column) is not None:
            values[getattr(row, column)].append(row)
    return values


def _who(rows: Sequence[TermRow]) -> str:
    return ", ".join(f"member {row.member_id} ({(row.source or '').replace('_', ' ')})" for row in rows)


def _misplaced(term: int, rows: Sequence[TermRow]) -> Iterator[Finding]:
    """The message that opens a term is the first behind the term's base."""
    for row in rows:
        if row.source == "log" and row.begin_position != row.term_base_log_position:
            yield Finding(
                state="fail",
                text=f"member {row.member_id}: term {term} is opened at {row.begin_position}, and its message says "
                f"that it begins at {row.term_base_log_position}",
                member_id=row.member_id,
                log_position=row.begin_position,
            )


def _ends(
    bases: Mapping[int, int], rows: Sequence[TermRow], members: Mapping[int | None, AuditedMember]
) -> Iterator[Finding]:
    """A term ends where the next one begins; the newest one, if it has, where what is committed of the log ends."""
    following = dict(pairwise(sorted(bases)))
    for row in rows:
        if row.end_log_position is None or row.leadership_term_id is None or row.is_valid is False:
            continue
        successor, member = following.get(row.leadership_term_id), members.get(row.member_id)
        what = ""
        if successor is not None and row.end_log_position != bases[successor]:
            what = f"term {successor} begins at {bases[successor]}"
        elif successor is None and member is not None and row.end_log_position < member.log_range.committed_position:
            what = f"its log continues in it to {member.log_range.committed_position}"
        if what:
            yield Finding(
                state="fail",
                text=f"member {row.member_id}: term {row.leadership_term_id} ends at {row.end_log_position}, "
                f"and {what}",
                member_id=row.member_id,
                log_position=row.end_log_position,
            )


class SnapshotRow(NamedTuple):
    """One service's part of a snapshot on one member, or the consensus module's, whose service id is -1."""

    member_id: int | None
    log_position: int
    service_id: int
    leadership_term_id: int
    is_valid: bool
    is_complete: bool


def snapshot_contents(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """All entries and items of the snapshots of all members: what the checks need of each, and a digest of the rest.

    ``place`` says which of its kind an item is, whatever else a snapshot has before it. It is read each time that it is
    used: cache it, and every snapshot is read once.
    """
    rows = _items(spark, options)
    own_id = f.lit(None).cast("bigint")
    for item, column in _IDENTIFIERS.items():
        own_id = f.when(f.col("item") == item, f.col(column).cast("bigint")).otherwise(own_id)
    found = rows.select(
        *SnapshotRow._fields,
        *ITEM_COLUMNS,
        "member_key",
        "recording_id",
        "item_index",
        "error",
        own_id.alias("own_id"),
        _digest(rows).alias("digest"),
    )
    of_kind = Window.partitionBy("member_key", "recording_id", *_SNAPSHOT_KEY, "item").orderBy("item_index")
    placed = found.withColumn("place", f.coalesce("own_id", f.row_number().over(of_kind).cast("bigint")))
    # A table that is cached keeps all partitions of its shuffle.
    return placed.coalesce(task_count(spark))


def _items(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """The view, with a key of the member that is never null."""
    return read_view(spark, options, "snapshots").withColumn("member_key", f.coalesce("member_id", f.lit(-1)))


def snapshots_of(contents: DataFrame) -> list[SnapshotRow]:
    """The snapshots of all members' recording logs; those that only a catalog has say neither service nor validity."""
    entries = contents.where("item = 'ENTRY' and is_valid is not null").select(*SnapshotRow._fields).collect()
    return sorted(SnapshotRow(*row) for row in entries)


def check_snapshots(
    spark: SparkSession,
    options: SourceOptions,
    contents: DataFrame,
    entries: Sequence[SnapshotRow],
    members: Sequence[AuditedMember],
) -> Check:
    """Whether snapshots of the same log position hold the same on all members that have them, item by item.

    Items are compared by what identifies them, and not by where they are: a timer more or less moves no other one, and
    upstream writes timers in the order of a hash map (WheelTimerService.java), which depends on what else was in it
    since the member's start.
    """
    is_invalid_now = _InvalidNow(members)
    findings = [
        Finding(
            state="fail",
            text=f"member {entry.member_id}: the snapshot of {_service(entry.service_id)} at {entry.log_position} has "
            "no begin and end marker, or no recording",
            member_id=entry.member_id,
            log_position=entry.log_position,
        )
        for entry in entries
        if entry.is_valid and not entry.is_complete and not is_invalid_now(entry.member_id, entry.log_position)
    ]
    findings += _missing(entries, members)
    rows = contents.where("(item is null or item != 'ENTRY') and is_valid is not false")
    # Damaged rows are not items; they are reported below. A row of a catalog alone belongs to an unnamed service.
    items = rows.where("item is not null and is_valid is not null")
    # Members that have the snapshot at all must have each of its items.
    holders = items.groupBy(*_SNAPSHOT_KEY).agg(f.collect_set("member_key").alias("holders"))
    by_digest = items.groupBy(*_ITEM_KEY, "digest").agg(
        f.countDistinct("member_key").alias("copies"), f.min("item_index").alias("item_index")
    )
    unequal = by_digest.join(holders, _SNAPSHOT_KEY).where("copies != size(holders)")
    first = unequal.groupBy(*_SNAPSHOT_KEY).agg(
        f.min(f.struct("item_index", "item", "place")).alias("first"),
        f.countDistinct("item", "place").alias("count"),
        f.first("holders").alias("holders"),
    )
    differing = first.orderBy(*_SNAPSHOT_KEY).limit(FINDING_LIMIT).collect()
    details = _details(spark, options, items, differing)
    for row in differing:
        detail = details.get((row.log_position, row.service_id))
        findings.append(
            Finding(
                state="fail",
                text=f"the snapshot of {_service(row.service_id)} at {row.log_position} differs between members in "
                f"{row['count']} items, first in item {row.first.item_index}, {row.first.item} {row.first.place}"
                f"{'' if detail is None else f': {detail}'}",
                log_position=row.log_position,
            )
        )
    damage = rows.where("error is not null").select("member_id", "log_position", "error")
    damaged = damage.limit(FINDING_LIMIT).collect()
    unlisted = total_of(first, differing, FINDING_LIMIT) - len(differing)
    unlisted += total_of(damage, damaged, FINDING_LIMIT) - len(damaged)
    findings += [
        Finding(
            state="fail",
            text=f"member {row.member_id}: {row.error}",
            member_id=row.member_id,
            log_position=row.log_position,
        )
        for row in damaged
        if not is_invalid_now(row.member_id, row.log_position)
    ]
    count = len({(entry.log_position, entry.service_id) for entry in entries})
    summary = f"compared {counted(count, 'snapshot')} by their whole content"
    return check("snapshots", summary, findings, len(findings) + unlisted)


class _InvalidNow:
    """Whether no entry of a member's snapshot counts any more: it may have deleted one while it was read."""

    def __init__(self, members: Sequence[AuditedMember]) -> None:
        self._members = {member.member.member_id: member for member in members}
        self._valid: dict[int | None, set[int]] = {}

    def __call__(self, member_id: int | None, log_position: int | None) -> bool:
        member = self._members.get(member_id)
        if member is None or not member.is_running or log_position is None:
            return False
        if member_id not in self._valid:
            try:
                entries = member.member.recording_log(AUDIT)
            except RecordingError:
                return False
            self._valid[member_id] = {entry.log_position for entry in entries if entry.is_valid_snapshot}
        return log_position not in self._valid[member_id]


def _digest(rows: DataFrame) -> Column:
    """A digest of all that an item must have in common on all members."""
    texts = [
        f.coalesce(f.hex(name) if kind == "binary" else f.col(name).cast("string"), f.lit("null"))
        for name, kind in rows.dtypes
        if name not in _UNCOMPARED_COLUMNS
    ]
    return f.sha2(f.concat_ws("|", *texts), 256)


def _details(
    spark: SparkSession, options: SourceOptions, items: DataFrame, differing: Sequence[Any]
) -> dict[tuple[int, int], str]:
    """For each differing snapshot, the first field of its first item in which members differ, or the members that lack
    that item. Reads the snapshots again."""
    if not differing:
        return {}
    keys = [(row.log_position, row.service_id, row.first.item, row.first.place) for row in differing]
    wanted = spark.createDataFrame(keys, "log_position long, service_id int, item string, place long")
    places = items.join(f.broadcast(wanted), _ITEM_KEY).select(*_ROW_KEY).collect()
    schema = "log_position long, service_id int, member_key int, recording_id long, item_index long"
    rows = _items(spark, options).where("is_valid is not false")
    compared = [(name, kind) for name, kind in rows.dtypes if name not in _UNCOMPARED_COLUMNS]
    texts = [
        f.concat(f.length(name), f.lit(" bytes, SHA-256 "), f.substring(f.sha2(f.col(name), 256), 1, 16)).alias(name)
        if kind == "binary"
        else f.col(name)
        for name, kind in compared
    ]
    chosen = rows.join(f.broadcast(spark.createDataFrame(places, schema)), _ROW_KEY)
    held: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in chosen.select(*_SNAPSHOT_KEY, "member_key", *texts).collect():
        held[row.log_position, row.service_id].append(row)
    holders = {(row.log_position, row.service_id): set(row.holders) for row in differing}
    return {key: _difference(found, [name for name, _ in compared], holders[key]) for key, found in held.items()}


def _difference(rows: Sequence[Any], names: Sequence[str], holders: set[int]) -> str:
    """Which members lack an item, or the first field in which they have other values."""
    lacking = holders - {row.member_key for row in rows}
    if lacking:
        return f"member {', '.join(map(str, sorted(lacking)))} lacks it"
    for name in names:
        having: dict[str, set[int]] = defaultdict(set)
        for row in rows:
            having[shown(row[name])].add(row.member_key)
        if len(having) > 1:
            return f"{name} is " + " and ".join(
                f"{value} on member {', '.join(map(str, sorted(found)))}" for value, found in sorted(having.items())
            )
    return "it is not there as often on all members"


def _service(service_id: int) -> str:
    return "the consensus module" if service_id < 0 else f"service {service_id}"


def _missing(entries: Sequence[SnapshotRow], members: Sequence[AuditedMember]) -> Iterator[Finding]:
    """Parts of snapshots that others have, or that other parts of the same one show.

    A member whose log reaches a snapshot may have been away when it was taken: worth to know. One that it has
    invalidated it has deleted on purpose.
    """
    known: dict[int, set[int]] = defaultdict(set)
    own: dict[int | None, set[tuple[int, int]]] = defaultdict(set)
    newest: dict[int | None, int] = {}
    for entry in entries:
        own[entry.member_id].add((entry.log_position, entry.service_id))
        if entry.is_valid:
            known[entry.log_position].add(entry.service_id)
            newest[entry.member_id] = max(entry.log_position, newest.get(entry.member_id, -1))
    for position, found in sorted(known.items()):
        # Services are numbered from 0 on, and the consensus module has its part in each snapshot.
        for service_id in range(-1, max(found) + 1):
            for member in members:
                member_id = member.member.member_id
                has_log = member.log_range.start_position <= position <= member.log_range.committed_position
                is_due = not member.is_running or position <= newest.get(member_id, -1)
                if (
                    has_log
                    and is_due
                    and member.has_recording_log
                    and not member.is_backup
                    and (position, service_id) not in own[member_id]
                ):
                    yield Finding(
                        state="warn",
                        text=f"{member.name} has no snapshot of {_service(service_id)} at {position}, "
                        f"{'others have' if service_id in found else 'although one was taken there'}",
                        member_id=member_id,
                        log_position=position,
                    )
