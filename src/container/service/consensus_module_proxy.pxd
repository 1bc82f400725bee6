# Control out: what the service asks of the consensus module.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.frames cimport BufferVector, Claim
from container.transport.streams cimport Publication


cdef class ConsensusModuleProxy:
    cdef Publication _publication
    # One attempt each: True when sent, False under back pressure; ClusterError when the publication is of no more use.
    cdef bint schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1
    cdef bint cancel_timer(self, int64_t correlation_id) except -1
    cdef bint close_session(self, int64_t cluster_session_id) except -1
    cdef bint ack(self, int64_t log_position, int64_t timestamp, int64_t ack_id, int64_t relevant_id,
                  int32_t service_id) except -1
    # A position, BACK_PRESSURED or ADMIN_ACTION.
    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6
    cdef int64_t try_claim(self, size_t length, Claim* claim) except? -6
    cdef Publication publication(self)
    cpdef int close(self) except -1
    cdef bint _send(self, const uint8_t* message, size_t length) except -1
