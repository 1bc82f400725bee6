"""The end of the last term before an election: streams and recording end, and lost entries are restored."""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.consensus_counters cimport TOGGLE_INACTIVE
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.follower_log cimport FollowerLog
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.leader_log cimport LeaderLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport FOLLOWER, MemberStatus
from container.consensus.session_manager cimport SessionManager
from container.transport.frames cimport NULL_VALUE

cdef enum:
    NULL_POSITION = -1


cdef class TermPreparation:
    """Leaves a member as one without a leader that has the log up to a position.

    Args:
        context: concluded (ConsensusModuleContext).
        status, sessions, ingress, log_adapter, recording, commit, leader_log, follower_log, catchups, snapshots,
            upkeep: of this member.
    """

    def __init__(self, context, MemberStatus status not None, SessionManager sessions not None,
                 IngressAdapter ingress not None, LogAdapter log_adapter not None, LogRecording recording not None,
                 LogCommit commit not None, LeaderLog leader_log not None, FollowerLog follower_log not None,
                 FollowerCatchups catchups not None, MemberSnapshots snapshots not None,
                 ArchiveUpkeep upkeep not None):
        self._counters, self._status = context.counters, status
        self._sessions, self._ingress, self._log_adapter = sessions, ingress, log_adapter
        self._recording, self._commit = recording, commit
        self._follower_log, self._catchups = follower_log, catchups
        self._leader_log, self._snapshots, self._upkeep = leader_log, snapshots, upkeep

    cdef int begin(self, int64_t log_position) except -1:
        """Begin, and give up what had begun; :meth:`poll` looks after it."""
        self.close()
        self._work = self._prepare(log_position)
        return 0

    cdef object poll(self):
        """The append position (int) once it is done, -1 without a log; None: not yet."""
        append_position = None
        try:
            next(self._work)
        except StopIteration as done:
            self._work = None
            append_position = done.value
        return append_position

    cpdef int close(self) except -1:
        """Give it up."""
        if self._work is not None:
            self._work.close()
            self._work = None
        return 0

    def _prepare(self, int64_t log_position):
        cdef int64_t append_position = NULL_POSITION
        self._status.set_role(FOLLOWER)
        self._ingress.close()
        self._catchups.stop_all()
        self._leader_log.close_join()
        self._follower_log.close_join()
        self._snapshots.give_up()
        self._log_adapter.leave()
        yield from self._follower_log.leave()
        self._leader_log.leave()
        self._counters.control_toggle.set(TOGGLE_INACTIVE)
        self._recording.reset()
        self._upkeep.close()
        self._snapshots.give_up_space()
        if self._recording.recording_id == NULL_VALUE:
            yield from self._follower_log.await_sockets_closed()
            return append_position
        append_position = yield from self._recording.stop(self._recording.recording_id)
        yield from self._recording.make_plan(self._recording.recording_id)
        self._sessions.clear_after(log_position, self._status.leadership_term_id)
        self._sessions.disconnect()
        self._counters.commit_position.set(log_position)
        self._commit.restore(log_position)
        yield from self._recording.await_stopped()
        yield from self._follower_log.await_sockets_closed()
        return append_position


seal((TermPreparation,))
