# Events that reach the agent between two steps of its duty cycle, and wait for it.
from libc.stdint cimport int32_t, int64_t

from container.transport.transport_seam cimport ClientListener
from container.transport.streams cimport Image, Subscription


cdef class AgentListener(ClientListener):       # flags that the client's conductor sets, maybe on another thread
    cdef int64_t commit_registration_id
    cdef int32_t commit_counter_id
    cdef bint is_commit_position_closed
    cdef bint is_client_closed


cdef class ActiveLogEvent:                      # a JoinLog that waits for the current image to be drained
    cdef int64_t log_position
    cdef int64_t max_log_position
    cdef int32_t member_id
    cdef int32_t session_id
    cdef int32_t stream_id
    cdef bint is_startup
    cdef int32_t role
    cdef bint is_standby
    cdef str channel
    cdef Subscription subscription              # None until the log is subscribed to
    cdef Image image
