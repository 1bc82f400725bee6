"""The audit: whether the members of a cluster have the same history, and whether it is possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from container.errors import ConfigurationError, RecordingError
from container.pipeline.cluster_time import ticks_per_second, time_unit
from container.pipeline.event_checks import (
    check_sessions,
    check_timers,
    find_holes,
    module_items,
    read_events,
    sessions_before,
    sessions_over_time,
    snapshot_positions,
)
from container.pipeline.findings import Check, Finding, State, check, worst
from container.pipeline.history import (
    SnapshotRow,
    TermRow,
    check_positions,
    check_snapshots,
    check_terms,
    snapshot_contents,
    snapshots_of,
    terms_of,
)
from container.pipeline.log_bytes import BLOCK_LENGTH, AuditedMember, Comparison, compare_bytes, member_name
from container.pipeline.members import check_members
from container.recordings import Member, live
from container.recordings.commit import end_texts
from container.recordings.member import AUDIT
from container.spark.options import ALL, SourceOptions
from container.spark.source import open_source_members


class MemberSummary(msgspec.Struct):
    """One member as the audit found it."""

    name: str
    """The member's name in the report."""
    member_id: int | None
    """The member's id; ``None`` if its files do not have one."""
    path: str
    """The path with which the member was named."""
    archive_dir: str
    """The directory of its archive."""
    recording_id: int
    """The id of the log's recording."""
    start_position: int
    """The log position at which the recording begins."""
    recorded_position: int
    """The log position at which the recording ends."""
    committed_position: int
    """The end of the committed part of its log."""
    snapshot_positions: list[int]
    """The log positions of its valid snapshots."""


class TermSummary(msgspec.Struct):
    """A leadership term of the log."""

    leadership_term_id: int
    """The id of the term."""
    term_base_log_position: int
    """The log position at which the term begins."""
    leader_member_id: int | None
    """The id of the leader; ``None`` if the log does not have it."""
    timestamp: int | None
    """The cluster time of its beginning; ``None`` if the log does not have it."""


class AuditReport(msgspec.Struct, kw_only=True):
    """The result of an audit, as it is written as JSON."""

    version: int = 1
    """The version of the report's format."""
    verdict: State
    """The worst state of all checks: ``pass``, ``warn`` or ``fail``."""
    members: list[MemberSummary]
    """The members that were compared."""
    ticks_per_second: int
    """The units of cluster time in a second."""
    checks: list[Check]
    """The checks, in the order of :data:`CHECKS`."""
    terms: list[TermSummary]
    """The leadership terms of the log."""
    open_sessions: list[tuple[int, int]]
    """Log positions, and how many sessions were open from there on."""
    timer_lateness: list[int]
    """The delay in cluster time of timers whose deadline a snapshot has; only the first thousands."""

    def find(self, name: str) -> Check:
        """The check with a name of :data:`CHECKS`."""
        return next(one for one in self.checks if one.name == name)


CHECKS = ("members", "log", "positions", "terms", "snapshots", "sessions", "timers")
"""The names of the checks, in the order of the report."""

_END_STATES: dict[str, State] = {"lost": "fail", "torn": "warn"}
"""The state of a check by the fault at the end of a log."""


def audit(spark: SparkSession, options: SourceOptions, *, block_length: int = BLOCK_LENGTH) -> AuditReport:
    """Compare members, and check the history that they share.

    The executors must see the directories of all members. Only digests, counts and findings come to the driver.

    Args:
        spark: a session with the source.
        options: where the members are, and what counts as committed; nothing else in it matters. Damage is a finding
            and never ends an audit.
        block_length: bytes of log that get one hash.

    Raises:
        ConfigurationError: a block is not a multiple of 32 bytes.
        RecordingError: no member has a log that can be found.
    """
    if block_length <= 0 or block_length % 32:
        raise ConfigurationError(f"block_length={block_length}: must be a positive multiple of 32 bytes")
    options = SourceOptions(
        options.paths, options.archive_dirs, ALL, options.storage, mode=AUDIT, committed=options.committed
    )
    members, failures = _audited(open_source_members(options))
    losses = {member.loss for member in members} - {None}  # The comparison of bytes reports these.
    terms = [row for row in terms_of(spark, options) if row.error not in losses]
    with (
        _whole_history(spark, options, members) as (reference, history, events, holes),
        _cached(snapshot_contents(spark, options)) as contents,
    ):
        snapshots = snapshots_of(contents)
        # A snapshot may lie behind the committed end, such as one taken meanwhile. Then not all events before it are
        # known.
        is_known = f.col("log_position") <= reference.log_range.committed_position
        is_own = f.col("member_id").eqNullSafe(f.lit(reference.member.member_id))
        items = module_items(contents.where(is_own & is_known))
        positions = snapshot_positions(items)
        timers, lateness = check_timers(events, items, positions, holes)
        start = reference.begin_now()  # The events are read: purged ones are not among them.
        sessions = check_sessions(spark, history, start, events, items, positions, holes)
        for one in (sessions, timers):
            one.summary += f"; by the log of {reference.name}, up to {reference.log_range.committed_position:,}"
        checks = [
            check_members(members, snapshots),
            check_bytes(members, compare_bytes(spark, members, block_length), failures),
            check_positions(spark, options, members),
            check_terms(terms, members, snapshots),
            check_snapshots(spark, options, contents, snapshots, members),
            sessions,
            timers,
        ]
        open_before = sessions_before(events, items, start) if start > 0 else 0
        open_sessions = sessions_over_time(events, reference.log_range.committed_position, open_before)
    return AuditReport(
        verdict=worst(one.state for one in checks),
        members=[_summary(member, snapshots) for member in members],
        ticks_per_second=ticks_per_second(time_unit([member.member for member in members])),
        checks=checks,
        terms=_terms(terms),
        open_sessions=open_sessions,
        timer_lateness=lateness,
    )


def _as_reference(member: AuditedMember) -> tuple[int, int, int]:
    """The order of members by how much of the history each has."""
    return member.log_range.committed_position, -member.log_range.start_position, -member.index


@contextmanager
def _whole_history(
    spark: SparkSession, options: SourceOptions, members: Sequence[AuditedMember]
) -> Iterator[tuple[AuditedMember, SourceOptions, DataFrame, list[Finding]]]:
    """The member with the most of the history and no holes in it, how it is read, its events, and the holes if each
    member has some."""
    ordered = sorted(members, key=_as_reference, reverse=True)
    candidates = [*ordered, ordered[0]] if len(ordered) > 1 else ordered
    for number, member in enumerate(candidates, 1):
        history = structs.replace(
            options,
            paths=(member.member.path,),
            archive_dirs=(member.member.archive_dir,),
            committed_only=True,
            committed=member.log_range.committed_position,
        )
        with _cached(read_events(spark, history)) as events:
            holes = find_holes(events, member)
            if not holes or number == len(candidates):
                yield member, history, events, holes
                return


@contextmanager
def _cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep a table, in memory or on disk, for as long as it is used."""
    rows.cache()
    try:
        yield rows
    finally:
        rows.unpersist()


def _audited(members: Sequence[Member]) -> tuple[list[AuditedMember], list[Finding]]:
    """The members whose log can be found, and findings for the others and for a last frame that is left out.

    Raises:
        RecordingError: there is none.
    """
    found: list[AuditedMember] = []
    failures: list[Finding] = []
    for member in members:
        try:
            log, is_backup = member.log(AUDIT), live.is_backup(member.cluster)
        except RecordingError as error:
            failures.append(Finding(state="fail", text=f"{member_name(member)}: {error}", member_id=member.member_id))
            if member is members[-1] and not found:
                raise
            continue
        texts = end_texts(member, log)
        for topic, state in _END_STATES.items():
            if topic in texts:
                position = log.log_range.recorded_position
                failures.append(
                    Finding(state=state, text=texts[topic], member_id=member.member_id, log_position=position)
                )
        loss = log.loss(member.archive_dir)
        found.append(
            AuditedMember(
                len(found),
                member,
                log.descriptor,
                log.log_range,
                None if loss is None else str(loss),
                is_running=log.is_running,
                is_backup=is_backup,
                has_recording_log=member.cluster_dir is not None and log.failure is None,
            )
        )
    return found, failures


def _summary(member: AuditedMember, snapshots: Sequence[SnapshotRow]) -> MemberSummary:
    own = {entry.log_position for entry in snapshots if entry.member_id == member.member.member_id and entry.is_valid}
    return MemberSummary(
        name=member.name,
        member_id=member.member.member_id,
        path=member.member.path,
        archive_dir=member.member.archive_dir,
        recording_id=member.descriptor.recording_id,
        start_position=member.log_range.start_position,
        recorded_position=member.log_range.recorded_position,
        committed_position=member.log_range.committed_position,
        snapshot_positions=sorted(own),
    )


def _terms(rows: Sequence[TermRow]) -> list[TermSummary]:
    """Each term once, as a log has it, in preference to a recording log."""
    found: dict[int, TermSummary] = {}
    for row in sorted(rows, key=lambda row: row.source == "log"):
        if row.leadership_term_id is not None and row.term_base_log_position is not None:
            found[row.leadership_term_id] = TermSummary(
                row.leadership_term_id, row.term_base_log_position, row.leader_member_id, row.timestamp
            )
    return [found[term] for term in sorted(found)]


def check_bytes(members: Sequence[AuditedMember], found: Comparison, failures: Sequence[Finding] = ()) -> Check:
    """The verdict on the members from the comparison of their logs' bytes; ``failures`` are of those without a log."""
    findings = [
        *failures,
        *(
            Finding(
                state=_state(members[failure.member_index], failure.begin_position),
                text=f"{members[failure.member_index].name}: {failure.error}",
                member_id=members[failure.member_index].member.member_id,
                log_position=failure.begin_position,
            )
            for failure in found.failures
        ),
    ]
    for one in found.differences:
        member, other = members[one.member_index], members[one.other_index]
        findings.append(
            Finding(
                state=_state(member, one.log_position, other),
                text=f"{member.name} differs from {other.name} first at log position {one.log_position} "
                f"({one.place}): 0x{one.byte:02x}, not 0x{one.other_byte:02x}; {one.file}, offset {one.offset}; "
                f"{one.byte_count} bytes of the block {one.begin_position} to {one.end_position} differ",
                member_id=member.member.member_id,
                log_position=one.log_position,
            )
        )
    count = found.differing_count + found.failure_count + len(failures)
    if len(members) > 1 and found.compared_count == 0:
        findings.append(Finding(state="warn", text="no part of the log is recorded by more than one member"))
        count += 1
    summary = (
        f"{found.byte_count:,} bytes in {found.block_count:,} blocks; {found.compared_count:,} blocks are recorded by "
        f"more than one member, and {found.differing_count:,} of these differ in what must be equal: all but session "
        "ids, reserved values and what lies between frames"
    )
    return check("log", summary, findings, count)


def _state(member: AuditedMember, position: int, other: AuditedMember | None = None) -> State:
    """A fault behind the commit position of either member may still be removed by an election."""
    committed = [one.log_range.committed_position for one in (member, other) if one is not None]
    return "fail" if position < min(committed) else "warn"
