# What a service can ask of its cluster: the Python calls here, what they do in the agent.
from libc.stdint cimport int64_t, uint8_t

from container.service.event_handler cimport EventHandler
from container.transport.message_buffer cimport BufferClaim
from container.transport.seam cimport BufferVector, Clock, Publication


cdef class Cluster(EventHandler):
    # FailedSends of the event in progress; None when neither a send failed nor anything was claimed.
    cdef list _loose_ends
    cdef BufferClaim _claims                # the last one made in the event, then the one before
    # The result of an offer of payload, or of a claim (None) of length. A failure counts as lost unless the same event
    # has a message with these bytes, or a claim of this length, accepted after it.
    cdef int64_t _tracked(self, int64_t result, str name, object payload, Py_ssize_t length, str consequence) except? -6
    cdef int _sent(self, object what, Py_ssize_t length) except -1      # call it while there are loose ends
    cdef int _keep(self, object what, Py_ssize_t length, str text) except -1
    # A request that was not sent, by name and id. It counts as lost unless one for the same thing is sent after it.
    cdef bint request_failed(self, str name, int64_t request_id) except -1      # always False
    cdef int request_sent(self, str name, int64_t request_id) except -1         # call it while there are loose ends
    # When an event ends: aborts the claims that are open. The texts say what was lost; forgets all. An event is handled
    # by a callback, or by one turn of a batch's iteration.
    cdef list take_loose_ends(self)
    cdef int report_loose_ends(self) except -1
    cdef int keep_claim(self, BufferClaim claim, int64_t cluster_session_id) except -1      # < 0: to the cluster

    cdef Clock clock(self)
    cdef int64_t now_ns(self) noexcept
    cdef void set_event(self, int64_t log_position, int64_t timestamp) noexcept     # where a batch is in the log
    cdef int check_interrupted(self) except -1              # raises AgentTermination when the agent is to end
    cdef int report(self, object error) except -1           # counts and logs what goes no further
    # Reports the error of a message that is skipped; raises AgentTermination from it when it must not be skipped.
    cdef int skip_message(self, str name, int64_t cluster_session_id, object error) except -1
    cdef int idle_once(self, int work_count) except -1      # raises AgentTermination and nothing else
    # vectors[0] is overwritten with the session header. Results as Publication.offer.
    cdef int64_t session_offer(self, object session, BufferVector* vectors, size_t count) except? -6
    cdef int64_t session_try_claim(
        self, object session, Publication publication, Py_ssize_t length, BufferClaim buffer_claim) except? -6
    cdef int close_session(self, object session) except -1
    cdef bint close_session_by_id(self, int64_t cluster_session_id) except -1
    cdef bint send_schedule_timer(self, int64_t correlation_id, int64_t deadline) except -1
    cdef bint send_cancel_timer(self, int64_t correlation_id) except -1
    # Raise where the result is not a position, BACK_PRESSURED or ADMIN_ACTION.
    cdef int64_t offer_vectors(self, BufferVector* vectors, size_t count) except? -6
    # For services in Cython: a message to the cluster, tried once, or until it is accepted. Raise as offer_vectors.
    cdef int64_t offer_bytes(self, const uint8_t* data, size_t length) except? -6
    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6
    cdef int64_t send_vectors(self, BufferVector* vectors, size_t count) except? -6
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
