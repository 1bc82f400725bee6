# The services of a member, as its consensus module knows them: who they are, and what they have acknowledged.
from libc.stdint cimport int32_t, int64_t

from container.consensus.service_proxy cimport ServiceProxy
from container.transport.transport_seam cimport ClientListener


cdef class ServiceListener(ClientListener):     # flags that the client's conductor sets, maybe on another thread
    cdef int64_t* _client_ids                   # of services that acked their start; NULL_VALUE: not yet
    cdef bint* _are_lost
    cdef int _count
    cdef bint is_any_lost
    cdef bint is_watched(self, int service_id) noexcept
    cdef int watch(self, int service_id, int64_t client_id) except -1


cdef class MemberServices:
    cdef readonly ServiceProxy proxy
    cdef readonly int count
    cdef object _on_error
    cdef object _acks                           # ServiceAckQueues
    cdef int64_t _ack_id                        # of the next acks
    cdef ServiceListener _listener
    cdef public bint is_end_expected            # it is in order that one goes away
    cdef bint take_ack(
        self, int64_t log_position, int64_t ack_id, int64_t relevant_id, int32_t service_id) except -1
    cdef bint has_reached(self, int64_t log_position) except -1
    cdef list poll_acks(self)
    cdef int remove_acks(self) except -1
    cdef int lost_service_id(self, bint is_ending) except? -2  # NULL_VALUE: none
