"""Requests of backups and standbys to a member, and its answers. Upstream: SessionManager.java,
ConsensusPublisher.java.

A request is the ``action`` of a session that never comes into the log: once its client is authenticated and the
authorisation service allows its ``template_id``, it is answered, and the session ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from container.codecs.messages import encode
from container.consensus.cluster_member import ClusterMembers
from container.consensus.member_status import MemberStatus
from container.errors import ClusterError
from container.files.recording_log import RecordingLog, RecordingLogEntry

BACKUP_QUERY = 77  # the template ids
HEARTBEAT_REQUEST = 79
STANDBY_SNAPSHOT = 81

_MAX_NOTIFICATIONS = 1_000


class BackupHost(Protocol):
    """The member, as a request sees it."""

    def backup_response(self, correlation_id: int, log_position: int) -> bytes | None:
        """The BackupResponse with the snapshots at or before a position; None while there is no term."""


class BackupQuery:
    """A backup asks for the log and the snapshots."""

    name, title, template_id, is_accepted = "BACKUP", "BackupQuery", BACKUP_QUERY, True

    def __init__(self, host: BackupHost, log_position: int) -> None:
        self._host = host
        self._log_position = log_position

    def answer(self, correlation_id: int) -> bytes | None:
        """The message that answers; None: later."""
        return self._host.backup_response(correlation_id, self._log_position)


class HeartbeatRequest:
    """A standby asks whether the member is there."""

    name, title, template_id, is_accepted = "HEARTBEAT", "Heartbeat", HEARTBEAT_REQUEST, True

    def answer(self, correlation_id: int) -> bytes | None:
        """The message that answers."""
        return encode("cluster", "HeartbeatResponse", correlation_id=correlation_id)


class StandbySnapshotEntry(NamedTuple):
    """One snapshot of a set that a standby has taken, in its own archive."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int
    archive_endpoint: str


class StandbySnapshot:
    """A standby says that it has taken a snapshot. It hears nothing of what becomes of that."""

    name, title, template_id = "STANDBY_SNAPSHOT", "StandbySnapshot", STANDBY_SNAPSHOT

    def __init__(self, notifications: StandbySnapshots | None, entries: Sequence[StandbySnapshotEntry]) -> None:
        self._notifications = notifications
        self._entries = entries
        self.is_accepted = notifications is not None

    def answer(self, correlation_id: int) -> bytes | None:
        """No message: the notification is taken."""
        assert self._notifications is not None
        self._notifications.add(self._entries)
        return b""


class StandbySnapshots:
    """Snapshots of standbys, until they may be in this member's recording log: when the log is committed so far.

    Args:
        recording_log: where they go.
        on_recorded: is called once for each set.
        delay_ns: how much later they go there.
        on_error: is given what is wrong with one of them.
    """

    def __init__(
        self,
        recording_log: RecordingLog,
        on_recorded: Callable[[], object],
        delay_ns: int,
        on_error: Callable[[Exception], object],
    ) -> None:
        self._recording_log = recording_log
        self._on_recorded = on_recorded
        self._delay_ns = delay_ns
        self._on_error = on_error
        self._waiting: list[Sequence[StandbySnapshotEntry]] = []
        self._delayed: deque[tuple[int, Sequence[StandbySnapshotEntry]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._delayed)

    def add(self, entries: Sequence[StandbySnapshotEntry]) -> None:
        """Take a set; of too many the oldest that waits for its position is dropped."""
        if not entries:
            return
        if len(self) >= _MAX_NOTIFICATIONS:
            dropped = self._waiting.pop(0) if self._waiting else self._delayed.popleft()[1]
            self._on_error(ClusterError(f"{_MAX_NOTIFICATIONS} standby snapshots wait: dropped {dropped[0]}"))
        self._waiting.append(entries)

    def poll(self, commit_position: int, now_ns: int) -> int:
        """Record those whose time has come; how much was done."""
        committed = [each for each in self._waiting if each[0].log_position <= commit_position]
        if committed:
            self._waiting = [each for each in self._waiting if each[0].log_position > commit_position]
            self._delayed.extend((now_ns + self._delay_ns, each) for each in committed)
        work_count = len(committed)
        while self._delayed and now_ns >= self._delayed[0][0]:
            self._record(self._delayed.popleft()[1])
            work_count += 1
        return work_count

    def _record(self, entries: Sequence[StandbySnapshotEntry]) -> None:
        try:
            for entry in entries:
                self._recording_log.append_standby_snapshot(*entry)
            self._recording_log.force()
        except (ClusterError, OSError) as error:
            self._on_error(error)
        else:
            self._on_recorded()


class BackupAnswers:
    """Answers to backups, and from where the last one that has asked needs the log.

    Args:
        recording_log: with the terms and the snapshots of this member.
        service_count: how many services it has.
        commit_position_counter_id: of the counter by which a backup follows the log.
        members: of the cluster.
        status: of this member.
    """

    def __init__(
        self,
        recording_log: RecordingLog,
        *,
        service_count: int,
        commit_position_counter_id: int,
        members: ClusterMembers,
        status: MemberStatus,
    ) -> None:
        self._recording_log = recording_log
        self._service_count = service_count
        self._commit_position_counter_id = commit_position_counter_id
        self._members = members
        self._status = status
        #: From where a backup needs the log, in bytes; None: none has asked.
        self.log_position: int | None = None

    def backup_response(self, correlation_id: int, log_position: int) -> bytes | None:
        """The answer to a backup's query; None while there is no term."""
        last_term = self._recording_log.find_last_term()
        if last_term is None:
            return None
        snapshots = self._recording_log.find_snapshot_at_or_before_or_lowest(log_position, self._service_count) or ()
        self.log_position = snapshots[0].log_position if snapshots else 0
        return backup_response(
            correlation_id,
            last_term=last_term,
            snapshots=snapshots,
            commit_position_counter_id=self._commit_position_counter_id,
            leader_member_id=self._status.leader.id,
            member_id=self._members.this_member.id,
            cluster_members=self._members.encode(),
        )


def backup_response(
    correlation_id: int,
    *,
    last_term: RecordingLogEntry,
    snapshots: Sequence[RecordingLogEntry],
    commit_position_counter_id: int,
    leader_member_id: int,
    member_id: int,
    cluster_members: str,
) -> bytes:
    """The BackupResponse (78): where a backup finds the log and these snapshots in the member's archive."""
    return encode(
        "cluster",
        "BackupResponse",
        correlation_id=correlation_id,
        log_recording_id=last_term.recording_id,
        log_leadership_term_id=last_term.leadership_term_id,
        log_term_base_log_position=last_term.term_base_log_position,
        last_leadership_term_id=last_term.leadership_term_id,
        last_term_base_log_position=last_term.term_base_log_position,
        commit_position_counter_id=commit_position_counter_id,
        leader_member_id=leader_member_id,
        member_id=member_id,
        snapshots=[
            {
                "recording_id": each.recording_id,
                "leadership_term_id": each.leadership_term_id,
                "term_base_log_position": each.term_base_log_position,
                "log_position": each.log_position,
                "timestamp": each.timestamp,
                "service_id": each.service_id,
            }
            for each in snapshots
        ],
        cluster_members=cluster_members,
    )
