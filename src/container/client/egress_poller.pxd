# Reads the answers to a client's connect request.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription


cdef class EgressPoller(FragmentHandler):
    cdef Subscription subscription
    cdef bint is_complete                       # the last poll read a message, whose fields follow
    cdef int64_t correlation_id
    cdef int64_t cluster_session_id
    cdef int64_t leadership_term_id             # from here to detail of a session event alone
    cdef int32_t leader_member_id
    cdef int32_t code                           # EVENT_CODE_*
    cdef int64_t leader_heartbeat_timeout_ns    # SBE_NULL_INT64 of a cluster before schema version 13
    cdef int32_t session_id                     # of the stream that the message came on
    cdef str detail
    cdef bytes encoded_challenge                # None unless the message is a Challenge
    cdef SessionFragmentAssembler _assembler
    cdef int poll(self) except -1               # fragments read; at most one message becomes complete
    cdef int _on_session_event(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1
