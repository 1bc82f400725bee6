# Requests of a service to its cluster, which the agent carries out. Names without an underscore are for services in
# Cython.
from libc.stdint cimport int64_t, uint8_t

from container.transport.message_buffer cimport BufferClaim
from container.transport.frames cimport BufferVector
from container.transport.wait_reporter cimport WaitReporter


cdef class Cluster:
    # FailedSends of the event in progress; None when neither a send failed nor anything was claimed.
    cdef list _loose_ends
    # The result of an offer of payload, or of a claim (None) of length. A failure counts as lost unless the same event
    # has a message with these bytes, or a claim of this length, accepted after it.
    cdef int64_t _tracked(self, int64_t result, str name, object payload, Py_ssize_t length, str consequence) except? -6
    cdef int _sent(self, object what, Py_ssize_t length) except -1      # call it while there are loose ends
    cdef int _keep(self, object what, Py_ssize_t length, str text) except -1
    cdef WaitReporter _wait_for(self, str what)             # to be ticked each turn of a wait

    cdef int idle_once(self, int work_count) except -1      # raises AgentTermination and nothing else
    cdef bint close_session_by_id(self, int64_t cluster_session_id) except -1
    cdef bint send_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1
    cdef bint send_cancel_timer(self, int64_t correlation_id) except -1
    # vectors[0] is overwritten with the session header. A message to the cluster, tried once, or until it is accepted.
    # Raise where the result is not a position, BACK_PRESSURED or ADMIN_ACTION.
    cdef int64_t offer_vectors(self, BufferVector* vectors, size_t count) except? -6
    cdef int64_t send_vectors(self, BufferVector* vectors, size_t count) except? -6
    cdef int64_t offer_bytes(self, const uint8_t* data, size_t length) except? -6
    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6
    cdef int64_t claim(self, Py_ssize_t length, BufferClaim buffer_claim) except? -6
    cdef object find_session(self, int64_t cluster_session_id)
    cdef list list_sessions(self)
    cdef int64_t get_log_position(self) noexcept
    cdef int64_t get_cluster_time(self) noexcept
    cdef int get_member_id(self) noexcept
    cdef int get_role(self) noexcept
    cdef int get_time_unit(self) noexcept   # -1: not known yet
    cdef object get_context(self)
    cdef object get_aeron(self)


cdef class FailedSend:
    # To know a retry by: payload (bytes) of an offer, None of a claim, (is_timer, id) of a request.
    cdef object what
    cdef Py_ssize_t length      # bytes; -1: a request
    cdef str text
