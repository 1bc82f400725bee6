"""A member's answer to a backup, and the snapshots and the part of the log that are missing according to it.

Upstream: ClusterBackupAgent.java (onBackupResponse, replayStartPosition), LogSourceValidator.java. Different from it:

- a set of snapshots counts whole or not at all, and an older one than the copy has is left where it is;
- a member whose log is not the one that was copied so far is refused, and what to do then is said;
- so is an answer with ids, terms or positions that no member can have: a copy of it would be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.consensus.cluster_member import ClusterMember, parse_cluster_members
from container.errors import ClusterError, CodecError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import CONSENSUS_MODULE_SERVICE_ID, NULL_VALUE, RecordingLog
from container.settings.backup_table import ANY, FOLLOWER, LATEST_SNAPSHOT, LEADER
from container.settings.setting import MAX_SERVICE_COUNT

BEGIN_ANEW = (
    "keep the directories of the backup's cluster and archive, which are the copy of what was, and start the backup "
    "with empty ones"
)


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A snapshot in a member's archive: that of the consensus module (service id -1), or of a service."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """Where a member has the log and its latest snapshots (BackupResponse, 78)."""

    log_recording_id: int
    leadership_term_id: int
    """The last term, of which the log's is the same."""
    term_base_log_position: int
    commit_position_counter_id: int
    leader_member_id: int
    member: ClusterMember
    snapshots: tuple[MemberSnapshot, ...]
    """The services', and the consensus module's last; empty where the member has none."""


def read_answer(fields: dict[str, Any]) -> MemberAnswer:
    """The answer of which these are the decoded fields.

    Raises:
        ClusterError: the member does not say which one it is (upstream before 1.44).
        CodecError: its snapshots are not a set, or a value in it is impossible.
        ConfigurationError: its list of members is invalid.
    """
    member_id, text = fields["member_id"], fields["cluster_members"].decode("ascii", "replace")
    members = [each for each in parse_cluster_members(text) if each.id == member_id]
    if not members:
        raise ClusterError(f"it answers as member {member_id}, and the members are {text}")
    snapshots = [MemberSnapshot(**each) for each in fields["snapshots"]]
    answer = MemberAnswer(
        fields["log_recording_id"],
        fields["last_leadership_term_id"],
        fields["last_term_base_log_position"],
        fields["commit_position_counter_id"],
        fields["leader_member_id"],
        members[0],
        tuple(snapshots),
    )
    _check_numbers(answer)
    return replace(answer, snapshots=_set_of(snapshots))


def _check_numbers(answer: MemberAnswer) -> None:
    """Raise CodecError for ids, terms and positions that no member can have; a field that is null is None."""
    term_id, base = answer.leadership_term_id, answer.term_base_log_position
    can_be = _are_numbers(answer.log_recording_id, term_id, answer.commit_position_counter_id) and _is_position(base)
    if not can_be:
        raise CodecError(f"it names a log that cannot be: {answer}")
    recording_ids = {answer.log_recording_id}
    for each in answer.snapshots:
        can_be = (
            _are_numbers(each.recording_id, each.leadership_term_id)
            and None not in (each.timestamp, each.service_id)
            and _is_position(each.term_base_log_position)
            and _is_position(each.log_position)
            and each.recording_id not in recording_ids
            and each.term_base_log_position <= each.log_position
        )
        if can_be and each.leadership_term_id == term_id:
            can_be = each.term_base_log_position == base
        elif can_be:
            can_be = each.leadership_term_id < term_id and each.log_position <= base
        if not can_be:
            raise CodecError(
                f"it names a snapshot that cannot be, of a log whose term {term_id} is from {base}: {each}"
            )
        recording_ids.add(each.recording_id)


def _are_numbers(*values: int | None) -> bool:
    return all(each is not None and each >= 0 for each in values)


def _is_position(value: int | None) -> bool:
    return value is not None and value >= 0 and value % FRAME_ALIGNMENT == 0


def _set_of(snapshots: Sequence[MemberSnapshot]) -> tuple[MemberSnapshot, ...]:
    """The snapshots in the order in which they are appended: the consensus module's closes the set."""
    found = tuple(sorted(snapshots, key=lambda each: each.service_id, reverse=True))
    if not found:
        return ()
    is_whole = [each.service_id for each in found] == list(range(len(found) - 2, CONSENSUS_MODULE_SERVICE_ID - 1, -1))
    if (
        not is_whole
        or len(found) > MAX_SERVICE_COUNT + 1
        or len({(each.leadership_term_id, each.term_base_log_position, each.log_position) for each in found}) != 1
    ):
        raise CodecError(f"its snapshots are not one of the consensus module and of each service: {list(found)}")
    return found


def is_acceptable(source_type: str, answer: MemberAnswer) -> bool:
    """Whether a backup with that setting copies from the member."""
    is_leader = answer.leader_member_id == answer.member.id
    return {ANY: True, LEADER: is_leader, FOLLOWER: not is_leader}[source_type]


def needed_snapshots(recording_log: RecordingLog, answer: MemberAnswer) -> tuple[MemberSnapshot, ...]:
    """The member's snapshots, unless the copy has them or later ones."""
    latest = recording_log.get_latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
    if answer.snapshots and latest is not None and latest.log_position >= answer.snapshots[-1].log_position:
        return ()
    return answer.snapshots


def check_same_log(
    recording_log: RecordingLog, answer: MemberAnswer, own: RecordingDescriptor, source: RecordingDescriptor
) -> None:
    """Raise ClusterError where the member's log cannot continue the copy.

    A term of the member that the copy does not know may begin within the copy: so it does where a round was cut short
    that had copied the log into that term. The bytes show whether it is the same log (:func:`compared_from`).

    Args:
        recording_log: of the copy.
        answer: of the member.
        own: the copy's recording of the log, stopped.
        source: the member's.
    """
    member, end = f"member {answer.member.id}", own.stop_position
    where = f"the copy ends at {end}"
    parts = ("initial_term_id", "term_buffer_length")
    different = [
        f"{name}={getattr(source, name)}, the copy's {getattr(own, name)}"
        for name in parts
        if getattr(source, name) != getattr(own, name)
    ]
    if different:
        raise ClusterError(f"the log of {member} is another one than was copied: {', '.join(different)}: {BEGIN_ANEW}")
    if source.start_position > end or source.start_position == end > own.start_position:
        raise ClusterError(
            f"the log of {member} begins at {source.start_position} and {where}: what lies between, or shows that both "
            f"are of one log, is gone, unless another member has it; else {BEGIN_ANEW}"
        )
    check_terms(recording_log, answer)


def check_start(
    recording_log: RecordingLog,
    answer: MemberAnswer,
    own: RecordingDescriptor,
    snapshots: Sequence[MemberSnapshot],
) -> None:
    """Raise ClusterError where the copy's log begins behind the snapshot from which a node would start.

    Args:
        recording_log: of the copy.
        answer: of the member.
        own: the copy's recording of the log.
        snapshots: those that the copy needs of the member.
    """
    known = recording_log.get_latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
    latest = snapshots[-1].log_position if snapshots else 0 if known is None else known.log_position
    if own.start_position > latest:
        raise ClusterError(
            f"the copy of the log begins at {own.start_position}, and member {answer.member.id} has no snapshot from "
            "there on: have the cluster take one: aeron-cluster snapshot"
        )


def check_terms(recording_log: RecordingLog, answer: MemberAnswer) -> None:
    """Raise ClusterError where the last term of the member cannot follow those of the copy."""
    last = recording_log.find_last_term()
    if last is None:
        return
    member, term_id, base = f"member {answer.member.id}", answer.leadership_term_id, answer.term_base_log_position
    if term_id < last.leadership_term_id:
        raise ClusterError(
            f"{member} is in term {term_id} and the copy in term {last.leadership_term_id}: it is behind; if all "
            f"members are, the cluster began again from an older state: {BEGIN_ANEW}"
        )
    known = recording_log.find_term_entry(term_id)
    if (known is not None and known.term_base_log_position != base) or base < last.term_base_log_position:
        former = last if known is None else known
        raise ClusterError(
            f"term {term_id} of {member} begins at {base}, term {former.leadership_term_id} of the copy at "
            f"{former.term_base_log_position}: the cluster began again from an older state: {BEGIN_ANEW}"
        )


def compared_from(recording_log: RecordingLog, own: RecordingDescriptor, source: RecordingDescriptor) -> int:
    """From which position on the end of the copy is compared with the member's log: a frame begins there in both.

    It is the last one before the end of the copy that is known: of a term or a snapshot, or a multiple of the length of
    the log's term buffers, over which no frame goes. The end itself where nothing was copied yet.

    Args:
        recording_log: of the copy.
        own: the copy's recording of the log, stopped.
        source: the member's.
    """
    first, end = max(own.start_position, source.start_position), own.stop_position
    places = [first, (end - 1) // own.term_buffer_length * own.term_buffer_length]
    for each in recording_log.entries:
        places += (each.term_base_log_position, each.log_position)
    return max((each for each in places if first <= each < end), default=end)


def first_position(
    initial_replay_start: str, answer: MemberAnswer, source: RecordingDescriptor, snapshots: Sequence[MemberSnapshot]
) -> int:
    """From where the log is copied that the copy has nothing of yet.

    Raises ClusterError where a start from there would have no snapshot to begin with.
    """
    start = source.start_position
    latest = snapshots[-1].log_position if snapshots else NULL_VALUE
    if latest >= start and initial_replay_start == LATEST_SNAPSHOT:
        return latest
    if start > max(latest, 0):
        raise ClusterError(
            f"the log of member {answer.member.id} begins at {start}, and it has no snapshot from there on: have the "
            "cluster take one: aeron-cluster snapshot"
        )
    return start
