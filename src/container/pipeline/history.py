"""Checks of what members have of the same history: positions without gaps, the bounds of terms, and snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from container.common.values import shown
from container.pipeline.event_checks import ITEM_COLUMNS
from container.pipeline.findings import FINDING_LIMIT, Check, Finding, check
from container.pipeline.log_bytes import AuditedMember
from container.pipeline.rows import fold_view, read_view, total_of
from container.spark.options import SourceOptions

# What a member has of its own in a snapshot: where and when it wrote it, and the length of its ring of pending
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
_PLACE_COLUMNS = ["is_timer", "place"]
_ITEM_KEY = ["log_position", "service_id", *_PLACE_COLUMNS]
_UNCOMPARED_COLUMNS = {*_OWN_SNAPSHOT_COLUMNS, *_ITEM_KEY, "is_valid", "is_complete", "item_index"}

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

    Whoever reads a part of the log yields one row for it, with its first faults only, so what comes to the driver grows
    with the parts and not with the damage. What a running member has recorded or purged since the audit began does not
    matter, and the comparison of bytes reports an end that is lost.
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
    """What remains of a fault when the log begins at a later position by now; None if nothing does."""
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


def _state(member: AuditedMember, position: int | None) -> Any:
    """What is wrong behind the commit position may still be removed by an election; without a position it is not."""
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


def check_terms(rows: Sequence[TermRow]) -> Check:
    """Whether members agree where each term begins and who led it, and each one's recording log with its log."""
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
    findings += _ends(by_term, rows)
    return check(
        "terms", f"{len(by_term)} leadership terms were compared: where they begin and end, and who led them", findings
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


def _ends(by_term: Mapping[int, Sequence[TermRow]], rows: Sequence[TermRow]) -> Iterator[Finding]:
    """A term ends where the next one begins."""
    bases = {
        term: min(row.term_base_log_position for row in found if row.term_base_log_position is not None)
        for term, found in by_term.items()
    }
    following = dict(pairwise(sorted(bases)))
    for row in rows:
        if row.end_log_position is None or row.leadership_term_id is None or row.is_valid is False:
            continue
        successor = following.get(row.leadership_term_id)
        if successor is not None and row.end_log_position != bases[successor]:
            yield Finding(
                state="fail",
                text=f"member {row.member_id}: term {row.leadership_term_id} ends at {row.end_log_position}, and term "
                f"{successor} begins at {bases[successor]}",
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

    It is read each time that it is used: cache it, and every snapshot is read once.
    """
    rows = _keyed_items(spark, options)
    return rows.select(
        *SnapshotRow._fields,
        *ITEM_COLUMNS,
        *_PLACE_COLUMNS,
        "item_index",
        "error",
        _digest(rows).alias("digest"),
    )


def _keyed_items(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """The view, with what says which items of several members are to be equal."""
    is_timer = f.coalesce(f.col("item") == "TIMER", f.lit(False))
    place = f.when(is_timer, f.col("correlation_id")).otherwise(f.col("item_index"))
    return read_view(spark, options, "snapshots").withColumns({"is_timer": is_timer, "place": place})


def snapshots_of(contents: DataFrame) -> list[SnapshotRow]:
    """The snapshots of all members' recording logs."""
    entries = contents.where("item = 'ENTRY'").select(*SnapshotRow._fields).collect()
    return sorted(SnapshotRow(*row) for row in entries)


def check_snapshots(
    spark: SparkSession,
    options: SourceOptions,
    contents: DataFrame,
    entries: Sequence[SnapshotRow],
    members: Sequence[AuditedMember],
) -> Check:
    """Whether snapshots of the same log position hold the same on all members that have them, item by item.

    Timers are compared by their ids: upstream writes them in the order of a hash map (WheelTimerService.java), which
    depends on what else was in it since the member's start. All else is written in one order.
    """
    findings = [
        Finding(
            state="fail",
            text=f"member {entry.member_id}: the snapshot of {_service(entry.service_id)} at {entry.log_position} has "
            "no begin and end marker, or no recording",
            member_id=entry.member_id,
            log_position=entry.log_position,
        )
        for entry in entries
        if entry.is_valid and not entry.is_complete
    ]
    findings += _missing(entries, members)
    items = contents.where("(item is null or item != 'ENTRY') and is_valid is not false")
    items = items.withColumn("member_key", f.coalesce("member_id", f.lit(-1)))
    by_item = items.groupBy(*_ITEM_KEY).agg(
        f.countDistinct("digest").alias("kinds"),
        f.count("digest").alias("copies"),
        f.min("item_index").alias("item_index"),
    )
    # Members that have the snapshot at all must have each of its items.
    holders = items.groupBy("log_position", "service_id").agg(f.countDistinct("member_key").alias("holders"))
    unequal = by_item.join(holders, ["log_position", "service_id"]).where("kinds > 1 or copies != holders")
    # A row that says what is damaged is no item, and null is less than all others.
    place = f.struct(f.isnull("item_index").alias("is_damage"), "item_index", "is_timer", "place")
    first = unequal.groupBy("log_position", "service_id").agg(f.min(place).alias("first"), f.count("*").alias("count"))
    differing = first.orderBy("log_position", "service_id").limit(FINDING_LIMIT).collect()
    details = _details(
        spark, options, [(row.log_position, row.service_id, row.first.is_timer, row.first.place) for row in differing]
    )
    for row in differing:
        detail = details.get((row.log_position, row.service_id))
        findings.append(
            Finding(
                state="fail",
                text=f"the snapshot of {_service(row.service_id)} at {row.log_position} differs between members in "
                f"{row['count']} items, first in item {row.first.item_index}{'' if detail is None else f': {detail}'}",
                log_position=row.log_position,
            )
        )
    damage = items.where("error is not null").select("member_id", "log_position", "error")
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
    ]
    count = len({(entry.log_position, entry.service_id) for entry in entries})
    summary = f"{count} snapshots were compared by all that they hold"
    return check("snapshots", summary, findings, len(findings) + unlisted)


def _digest(rows: DataFrame) -> Column:
    """A digest of all that an item must have in common on all members."""
    texts = [
        f.coalesce(f.hex(name) if kind == "binary" else f.col(name).cast("string"), f.lit("null"))
        for name, kind in rows.dtypes
        if name not in _UNCOMPARED_COLUMNS
    ]
    return f.sha2(f.concat_ws("|", *texts), 256)


def _details(
    spark: SparkSession, options: SourceOptions, items: Sequence[tuple[int, int, bool, int]]
) -> dict[tuple[int, int], str]:
    """The first field in which members have other values in an item, for each snapshot; the snapshots are read anew."""
    if not items:
        return {}
    rows = _keyed_items(spark, options).where("item != 'ENTRY' and is_valid is not false")
    wanted = spark.createDataFrame(items, "log_position long, service_id int, is_timer boolean, place long")
    compared = [(name, kind) for name, kind in rows.dtypes if name not in _UNCOMPARED_COLUMNS]
    texts = [
        f.concat(f.length(name), f.lit(" bytes, SHA-256 "), f.substring(f.sha2(f.col(name), 256), 1, 16)).alias(name)
        if kind == "binary"
        else f.col(name)
        for name, kind in compared
    ]
    held: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in (
        rows.join(f.broadcast(wanted), _ITEM_KEY).select("log_position", "service_id", "member_id", *texts).collect()
    ):
        held[row.log_position, row.service_id].append(row)
    return {key: _difference(found, [name for name, _ in compared]) for key, found in held.items()}


def _difference(rows: Sequence[Any], names: Sequence[str]) -> str:
    for name in names:
        holders: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            holders[shown(row[name])].append(str(row.member_id))
        if len(holders) > 1:
            return f"{name} is " + " and ".join(
                f"{value} on member {', '.join(sorted(found))}" for value, found in sorted(holders.items())
            )
    return "only member " + ", ".join(sorted(str(row.member_id) for row in rows)) + " has it"


def _service(service_id: int) -> str:
    return "the consensus module" if service_id < 0 else f"service {service_id}"


def _missing(entries: Sequence[SnapshotRow], members: Sequence[AuditedMember]) -> Iterator[Finding]:
    """A member whose log reaches a snapshot of others may have been away when it was taken: worth to know."""
    holders: dict[tuple[int, int], set[int | None]] = defaultdict(set)
    for entry in entries:
        if entry.is_valid:
            holders[entry.log_position, entry.service_id].add(entry.member_id)
    for (position, service_id), found in sorted(holders.items()):
        for member in members:
            has_log = member.log_range.start_position <= position <= member.log_range.committed_position
            if has_log and member.member.cluster_dir is not None and member.member.member_id not in found:
                yield Finding(
                    state="warn",
                    text=f"{member.name} has no snapshot of {_service(service_id)} at {position}, others have",
                    member_id=member.member.member_id,
                    log_position=position,
                )
