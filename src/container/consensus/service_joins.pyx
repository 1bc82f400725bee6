"""JoinLog to the services of a member, and their acks: all read a replay or a term's log from one position on."""
from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport seal
from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.steps cimport Deadline
from container.errors import ClusterEvent
from container.transport.streams cimport Image
from container.transport.transport_seam cimport Client

cdef enum:
    NULL_POSITION = -1


cdef class ServiceJoins:
    """The joins of this member's services, one after the other.

    Args:
        context: concluded (ConsensusModuleContext).
        services, snapshots: of this member.
    """

    def __init__(self, context, MemberServices services not None, MemberSnapshots snapshots not None):
        cdef Client client = context.client
        self._member_id = context.settings.cluster_member_id
        self._services, self._snapshots = services, snapshots
        self._deadline = Deadline(client.clock, context.settings.leader_heartbeat_timeout_ns)
        self._log_position = NULL_POSITION

    cdef bint is_awaited(self, int32_t session_id) noexcept:
        """Whether services are to find the log of a session by what is left now, as they have not all joined it.

        Not where something is kept for them: a member that follows the same log again has a second subscription of it.
        """
        return self._log_position != NULL_POSITION and self._session_id == session_id and self._kept is None

    cdef int keep(self, object close, bint is_replay) except -1:
        """Have ``close`` called once the services have joined the log that they are asked to: it stays until then.

        A service that is to join a log waits for its image, and for nothing else; it ends where that does not come.
        ``is_replay``: that log is a replay of the member's own recording.
        """
        self._kept, self._is_replay = close, is_replay
        return 0

    cpdef int close(self) except -1:
        """Close what is kept for services, where this member ends."""
        cdef object kept = self._kept
        self._kept = None
        if kept is not None:
            kept()
        return 0

    def join(self, int64_t log_position, int64_t max_log_position, int32_t session_id, int32_t stream_id,
             bint is_startup, int role, str channel not None, Image image):
        """Have the services join a log, and wait until each has acked its first position, however long that takes.

        ``image`` is this member's own of the log; None for a publication of its own. Raises ClusterEvent where that has
        gone by the time that the services can be asked: they would wait for theirs for ever.
        """
        # The acks of two joins may be equal: there is no second one before that of an election that failed is acked.
        yield from self.await_joined()
        if image is not None and image.is_closed():
            raise ClusterEvent(f"the log has gone that services were to join: sessionId={session_id}")
        self._deadline.begin("room on the control channel to the services")
        while not self._services.proxy.join_log(
                log_position, max_log_position, self._member_id, session_id, stream_id, is_startup, role, channel):
            self._deadline.check()
            yield
        self._log_position, self._session_id = log_position, session_id
        yield from self.await_joined()

    def await_replay_joined(self):
        """Wait until the services have joined a replay that is kept for them, where one is: nothing may end it."""
        if self._kept is not None and self._is_replay:
            yield from self.await_joined()

    def await_joined(self):
        """Wait until each service has acked the log that it was to join last."""
        while self._log_position != NULL_POSITION:
            # Services that are to take a snapshot ack it before they join the next log.
            if self._snapshots.is_awaiting_services() or not self._services.has_reached(self._log_position):
                yield
            else:
                self._services.remove_acks()
                self._log_position = NULL_POSITION
                self.close()


seal((ServiceJoins,))
