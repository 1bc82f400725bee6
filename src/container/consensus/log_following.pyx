"""A follower's reading of the leader's log, and its reports: it reads up to the position committed and recorded here.

Upstream: ConsensusModuleAgent.java (consensusWork, catchupPoll, updateFollowerPosition).
"""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.election_host import APPEND_POSITION_FLAG_CATCHUP, APPEND_POSITION_FLAG_NONE
from container.consensus.follower_log cimport FollowerLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport STATE_ACTIVE, STATE_SUSPENDED, MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.errors import ClusterEvent

cdef enum:
    NULL_POSITION = -1

cdef int FLAG_NONE = APPEND_POSITION_FLAG_NONE
cdef int FLAG_CATCHUP = APPEND_POSITION_FLAG_CATCHUP


cdef class LogFollowing:
    """Follows the leader of a term.

    Args:
        context: concluded (ConsensusModuleContext).
        publisher: says AppendPosition (ConsensusPublisher).
        status, log_adapter, recording, follower_log, termination: of this member.
    """

    def __init__(self, context, ConsensusPublisher publisher not None, MemberStatus status not None,
                 LogAdapter log_adapter not None, LogRecording recording not None, FollowerLog follower_log not None,
                 MemberTermination termination not None):
        self._counters, self._publisher, self._status = context.counters, publisher, status
        self._log_adapter, self._recording, self._follower_log = log_adapter, recording, follower_log
        self._termination = termination
        self._heartbeat_interval_ns = context.settings.leader_heartbeat_interval_ns
        self._heartbeat_timeout_ns = context.settings.leader_heartbeat_timeout_ns

    cdef int begin(self, int64_t now_ns, int64_t log_position, int64_t commit_position) except -1:
        """Follow from a position on, that this member has recorded; the leader has said a commit position."""
        self._commit_position = commit_position
        self._append_position = log_position
        self._leader_heard_ns = self._recorded_ns = self._said_ns = now_ns
        self.end = None
        return 0

    cdef int on_leader(self, int64_t commit_position, int64_t now_ns) except -1:
        """The leader of the term has said up to where the log is committed."""
        self._commit_position = max(self._commit_position, commit_position)
        self._leader_heard_ns = now_ns
        return 0

    cdef int hear_leader(self, int64_t now_ns) except -1:
        """The leader of the term has said something else."""
        self._leader_heard_ns = now_ns
        return 0

    cdef bint is_leader_silent(self, int64_t now_ns) noexcept:
        """Whether the leader has said nothing for a heartbeat timeout."""
        return now_ns - self._leader_heard_ns >= self._heartbeat_timeout_ns

    cdef int poll(self, int64_t now_ns) except -1:
        """Take a turn; how much was done. ``end`` says whether it was the last one."""
        cdef int work_count = 0
        self._note_recorded(now_ns)
        if self._status.state == STATE_ACTIVE or self._status.state == STATE_SUSPENDED:
            if self._termination.is_reached(self._log_adapter.position()):
                self._termination.follow()
                return 1
            work_count = self._read(min(self._commit_position, self._append_position))
            if work_count == 0 and self._log_adapter.is_image_closed():
                self.end = "log disconnected from leader"
                return 1
        return work_count + self._say(
            self._status.leader, self._status.leadership_term_id, FLAG_NONE, now_ns)

    cdef int poll_catchup(
            self, ClusterMember leader, int64_t leadership_term_id, int64_t limit_position, int64_t now_ns) except -1:
        """Take a turn of catching up with a leader in an election; how much was done. ClusterEvent where it cannot."""
        cdef int work_count = self._follower_log.poll()
        self._note_recorded(now_ns)
        if self._status.state == STATE_ACTIVE or self._status.state == STATE_SUSPENDED:
            if self._recording.position() == NULL_POSITION:
                raise ClusterEvent(
                    f"unexpected recording stop during catchup: position={self._log_adapter.position()}")
            work_count += self._read(min(limit_position, self._append_position))
            if work_count == 0 and self._log_adapter.is_image_closed():
                raise ClusterEvent(f"unexpected image close during catchup: position={self._log_adapter.position()}")
        # Services may take a snapshot for long: the leader hears of this member, and it has as long again after that.
        work_count += self._say(leader, leadership_term_id, FLAG_CATCHUP, now_ns)
        if self._status.state != STATE_ACTIVE:
            self._recorded_ns = now_ns
        elif now_ns - self._recorded_ns > self._heartbeat_timeout_ns:
            raise ClusterEvent(
                f"no catchup progress: commitPosition={self._counters.commit_position.get()} "
                f"limitPosition={limit_position} appendPosition={self._append_position} "
                f"logPosition={self._log_adapter.position()}")
        return work_count

    cdef int _read(self, int64_t limit_position) except -1:
        """Apply the log up to a position; whether it was read on, over padding alone as well."""
        cdef int64_t before = self._log_adapter.position()
        cdef int64_t position
        self._log_adapter.poll(limit_position)
        position = self._log_adapter.position()
        self._counters.commit_position.propose_max(position)
        return position > before

    cdef int _note_recorded(self, int64_t now_ns) except -1:
        cdef int64_t position = self._recording.position()
        if position > self._append_position:
            self._append_position = position
            self._recorded_ns = now_ns
            self._said_ns = now_ns - self._heartbeat_interval_ns
        return 0

    cdef int _say(self, ClusterMember leader, int64_t leadership_term_id, int flags, int64_t now_ns) except -1:
        """Say how far the log is recorded, where that has grown or is due; whether it was said."""
        if now_ns - self._said_ns < self._heartbeat_interval_ns or not self._publisher.append_position(
                leader, leadership_term_id, self._append_position, flags):
            return 0
        self._said_ns = now_ns
        return 1


seal((LogFollowing,))
