# Messages of the consensus module to its services, over IPC.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.consensus.cluster_member cimport ClusterMembers
from container.transport.streams cimport Publication


cdef class ServiceProxy:
    cdef Publication _publication
    # Each is one attempt; False: no room now.
    cdef bint join_log(
        self, int64_t log_position, int64_t max_log_position, int32_t member_id, int32_t log_session_id,
        int32_t log_stream_id, bint is_startup, int32_t role, str log_channel) except -1
    cdef bint termination_position(self, int64_t log_position, bint ack_required) except -1
    cdef bint request_service_ack(self, int64_t log_position) except -1
    cdef bint cluster_members_response(self, int64_t correlation_id, int32_t leader_member_id, str members) except -1
    cdef bint cluster_members_extended_response(
        self, int64_t correlation_id, int32_t leader_member_id, ClusterMembers members, int64_t epoch_ns, int64_t now_ns
    ) except -1
    cdef bint is_closed(self) noexcept
    cdef bint _offer(self, const uint8_t* message, size_t length) except -1
    cpdef int close(self) except -1
