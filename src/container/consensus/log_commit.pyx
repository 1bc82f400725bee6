"""The committed part of the log, and this member's effects beyond it: they are swept, or rolled back.

A leader commits what a quorum of members has recorded in its term. Its timers, sessions, messages of services and
states go ahead of that.
"""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport STATE_CLOSED, MemberStatus, ModuleState
from container.consensus.member_termination cimport MemberTermination
from container.consensus.pending_service_messages cimport PendingServiceMessageTracker
from container.consensus.position_queue cimport PositionQueue
from container.consensus.session_manager cimport SessionManager
from container.consensus.timer_service cimport TimerService
from container.consensus.uncommitted_timers cimport UncommittedTimers
from container.errors import ClusterEvent

cdef enum:
    NULL_POSITION = -1


cdef class LogCommit:
    """The commit position of this member, and the effects to undo where the log behind it is lost.

    Args:
        context: concluded (ConsensusModuleContext).
        members: of the cluster (ClusterMembers).
        publisher: says CommitPosition to the others (ConsensusPublisher).
        status, termination, recording, log_publisher, sessions, timers: of this member.
        trackers: PendingServiceMessageTracker of each service (list).
        uncommitted_timers: those whose events a leader has appended (UncommittedTimers).
    """

    def __init__(self, context, ClusterMembers members not None, ConsensusPublisher publisher not None,
                 MemberStatus status not None, MemberTermination termination not None, LogRecording recording not None,
                 LogPublisher log_publisher not None, SessionManager sessions not None, TimerService timers not None,
                 list trackers not None, UncommittedTimers uncommitted_timers not None):
        self._counters, self._members, self._status = context.counters, members, status
        self._on_error, self._backward_position = context.counted_error_handler, NULL_POSITION
        self._termination, self._recording, self._sessions = termination, recording, sessions
        self._timers, self._trackers, self._uncommitted_timers = timers, trackers, uncommitted_timers
        self._log_publisher = log_publisher
        self._publisher, self._others = publisher, members.others()
        self._uncommitted_states, self.said_position = PositionQueue(), NULL_POSITION
        self._end_of_term = recording.end_of_term
        self._heartbeat_interval_ns = context.settings.leader_heartbeat_interval_ns
        self._heartbeat_timeout_ns = context.settings.leader_heartbeat_timeout_ns

    cdef int begin_term(self, int64_t updated_ns) except -1:
        """A term begins; ``updated_ns``: when others heard of the commit position last."""
        self._backward_position = NULL_POSITION
        self._updated_ns = updated_ns
        return 0

    cdef int note_state(self, int64_t log_position) except -1:
        """The state of just now ends with what is in the log up to this position: it comes back if that is lost."""
        return self._uncommitted_states.push(log_position, <int64_t> self._status.state)

    cdef bint has_uncommitted_state(self) except -1:
        """Whether the state of just now is of something that is not committed."""
        return len(self._uncommitted_states) > 0

    cdef int update_as_leader(self, int64_t now_ns) except -1:
        """Commit what a quorum has recorded; how much was done."""
        cdef int64_t append_position = self._recording.position()
        # A counter that an archive has just made shows 0 for a moment, and none is NULL_POSITION.
        if append_position < self._counters.commit_position.get():
            return 0
        self._members.this_member.set_log(self._status.leadership_term_id, append_position, now_ns)
        return self.update(now_ns, min(
            append_position, self._members.quorum_position(
                self._status.leadership_term_id, self._end_of_term, now_ns, self._heartbeat_timeout_ns)))

    cdef int update(self, int64_t now_ns, int64_t quorum_position) except -1:
        """Commit the log up to a position; how much was done.

        Here whole messages alone, different from upstream: after a term that ends with the first half of a message
        committed, its former leader would not know the other half, as it has read nothing of its own log. The others
        hear of each frame, as from upstream's leaders: they may have the first frames of a message last, and leave an
        image that gets no more, or follow again after a start, only once all of their log is committed.
        """
        cdef int64_t commit_position = self._counters.commit_position.get()
        cdef int64_t whole_position
        if quorum_position > self.said_position or now_ns - self._updated_ns >= self._heartbeat_interval_ns:
            if quorum_position < commit_position and commit_position > self._backward_position:
                self._backward_position = commit_position
                self._on_error(ClusterEvent(
                    f"quorum position went backwards: leaderCommitPosition={commit_position} "
                    f"quorumPosition={quorum_position}"))
            whole_position = self._log_publisher.end_of_messages(quorum_position)
            self._counters.commit_position.propose_max(whole_position)
            self.said_position = max(self.said_position, quorum_position, commit_position)
            self.publish(self._status.leadership_term_id, self.said_position)
            self._updated_ns = now_ns
            self._sweep(whole_position)
            return 1
        return 0

    cdef int forget_timer(self, int64_t correlation_id) except -1:
        """A service has scheduled a timer, or cancelled it: an event of it that is lost brings none back."""
        return self._uncommitted_timers.forget(correlation_id)

    cdef int publish(self, int64_t leadership_term_id, int64_t commit_position) except -1:
        """Say to all other members up to where the log is committed."""
        cdef ClusterMember member
        for member in self._others:
            self._publisher.commit_position(member, leadership_term_id, commit_position)
        return 0

    cdef int _sweep(self, int64_t commit_position) except -1:
        cdef PendingServiceMessageTracker tracker
        for tracker in self._trackers:
            tracker.sweep_leader(commit_position)
        self._uncommitted_timers.sweep(commit_position)
        self._uncommitted_states.sweep(commit_position)
        return self._sessions.sweep_uncommitted(commit_position)

    cdef int restore(self, int64_t commit_position) except -1:
        """Undo what is not committed: the log ends there."""
        cdef PendingServiceMessageTracker tracker
        cdef list states = self._uncommitted_states.after(commit_position)
        # Upstream forgets the deadlines: another leader's clock may not have come to them, and snapshots would differ.
        for correlation_id, deadline in self._uncommitted_timers.take(commit_position):
            self._timers.schedule(correlation_id, deadline)
        for tracker in self._trackers:
            tracker.restore_uncommitted(commit_position)
        self._sessions.restore_uncommitted(commit_position)
        if states and self._status.state != STATE_CLOSED:
            self._status.set_state(<ModuleState> <int64_t> states[0], "rollback")
            self._termination.forget()          # of a shutdown that is not in the log
        self._uncommitted_states.clear()
        self.said_position = commit_position
        return 0


seal((LogCommit,))
