"""The check of what each member has at all: files of the same cluster, and a log with its beginning and its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from container.common.values import counted
from container.errors import RecordingError
from container.pipeline.findings import Check, Finding, check
from container.pipeline.history import SnapshotRow
from container.pipeline.log_bytes import AuditedMember


def check_members(members: Sequence[AuditedMember], snapshots: Sequence[SnapshotRow]) -> Check:
    """Whether members are of one cluster, and what each lacks of the log: at its end, and at its beginning.

    ``snapshots`` are those of all members.
    """
    committed = max(member.log_range.committed_position for member in members)
    findings = [*_clusters(members), *_ends(members, committed)]
    for member in members:
        findings += _begin(member, snapshots)
    summary = f"{counted(len(members), 'member')}, whose log is committed to {committed:,}: what each of them has of it"
    return check("members", summary, findings)


def _clusters(members: Sequence[AuditedMember]) -> Iterator[Finding]:
    """A copy without a mark file is of no cluster that is known."""
    by_cluster: dict[int, list[str]] = defaultdict(list)
    for member in members:
        try:
            cluster_id = member.member.cluster_id()
        except RecordingError:
            continue  # Reading its log has said why.
        if cluster_id is not None:
            by_cluster[cluster_id].append(member.name)
    if len(by_cluster) > 1:
        said = "; ".join(f"{cluster_id} by {', '.join(names)}" for cluster_id, names in sorted(by_cluster.items()))
        yield Finding(state="fail", text=f"the members' files name different cluster ids: {said}")


def _ends(members: Sequence[AuditedMember], committed: int) -> Iterator[Finding]:
    """A member that runs is behind for a moment, and backups and shipped places are behind by design."""
    furthest = max(members, key=lambda member: member.log_range.recorded_position)
    for member in members:
        end, most = member.log_range.recorded_position, furthest.log_range.recorded_position
        is_late = member.is_running or member.is_backup or member.member.seen_manifest() is not None
        if is_late or member.loss is not None or end == most:
            continue
        if end < committed:
            holders = ", ".join(one.name for one in members if one.log_range.recorded_position >= committed)
            text = (
                f"lacks the log from {end} to {committed}, which is committed and which {holders} has: it ended before "
                "the others, or its files are of an earlier time, as from a backup"
            )
        elif not furthest.is_running:
            text = (
                f"lacks the log from {end} to {most}, which {furthest.name} has recorded; nothing shows that it is "
                "committed, and an election may remove it"
            )
        else:
            continue
        yield Finding(state="warn", text=f"{member.name} {text}", member_id=member.member.member_id, log_position=end)


def _begin(member: AuditedMember, snapshots: Sequence[SnapshotRow]) -> Iterator[Finding]:
    """A log is purged only before a snapshot from which a start continues."""
    begin = member.begin_now()
    if begin == 0 or not member.has_recording_log or member.is_backup:
        return
    own = (one for one in snapshots if one.member_id == member.member.member_id and one.service_id == -1)
    if not any(one.is_valid and one.is_complete and one.log_position >= begin for one in own):
        yield Finding(
            state="fail",
            text=f"{member.name}: its log begins at {begin}, and it has no whole snapshot there or behind: what was "
            "before is lost here",
            member_id=member.member.member_id,
            log_position=begin,
        )
