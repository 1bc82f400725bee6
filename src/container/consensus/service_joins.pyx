"""JoinLog to the services of a member, and their acks: all read a replay or a term's log from one position on."""
from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport seal
from container.consensus.member_services cimport MemberServices
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.steps cimport Deadline
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

    def join(self, int64_t log_position, int64_t max_log_position, int32_t session_id, int32_t stream_id,
             bint is_startup, int role, str channel not None):
        """Have the services join a log, and wait until each has acked its first position, however long that takes."""
        # The acks of two joins may be equal: there is no second one before that of an election that failed is acked.
        yield from self.await_joined()
        self._deadline.begin("room on the control channel to the services")
        while not self._services.proxy.join_log(
                log_position, max_log_position, self._member_id, session_id, stream_id, is_startup, role, channel):
            self._deadline.check()
            yield
        self._log_position = log_position
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


seal((ServiceJoins,))
