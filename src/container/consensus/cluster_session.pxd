# A client's session, or that of somebody who asks for a backup, as this member knows it.
from libc.stdint cimport int32_t, int64_t

from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication


cdef enum SessionState:                     # the order of their names in cluster_session.pyx
    INIT
    CONNECTING
    CONNECTED
    CHALLENGED
    AUTHENTICATED
    REJECTED
    OPEN
    CLOSING
    INVALID
    CLOSED


cdef class ClusterSession:
    cdef readonly int64_t id
    cdef readonly int64_t correlation_id
    cdef readonly int32_t response_stream_id
    cdef readonly str response_channel
    cdef readonly bytes encoded_principal
    cdef readonly object action             # what is done once it is authenticated; None: it is opened
    cdef readonly object refusal            # (EventCode, detail) to send to it, or None
    cdef readonly int64_t opened_log_position
    cdef readonly int64_t closed_log_position
    cdef readonly int32_t close_reason      # NULL_CLOSE_REASON: none
    cdef readonly int64_t ingress_image_correlation_id
    cdef readonly Publication publication   # its egress; None until the driver has it, or where this member has none
    cdef readonly bint is_open_event_pending
    cdef readonly bint is_new_leader_event_pending
    cdef bint is_local                      # its client asked in shared memory
    cdef SessionState state
    cdef int64_t time_of_last_activity_ns
    cdef str _egress_channel
    cdef bint _is_egress_exclusive          # else shared with the services, which send to the channel in the log
    cdef str _label
    cdef object _on_error
    cdef Client _client                     # None: it is not to be answered
    cdef PendingAdd _pending_publication
    cdef PendingAdd _pending_counter
    cdef Counter _counter

    cdef bint is_open(self) noexcept
    cdef int expect_one_answer(self, int64_t term_length) except -1
    cdef bint is_connecting(self) noexcept
    cdef int begin_connect(self, Client client, int32_t cluster_id) except -1
    cdef int _begin_publication(self) except -1
    cdef bint poll_connected(self, int64_t now_ns) except -1
    cdef int _poll_publication(self, int64_t now_ns) except -1
    cdef int _poll_counter(self) except -1
    cdef int open(self, int64_t opened_log_position) except -1
    cdef int closing(self, int32_t close_reason) except -1
    cdef int closed_at(self, int64_t log_position) except -1
    cdef int restore(self) except -1
    cdef int reopen(self) except -1
    cdef int load(self, int64_t correlation_id, int64_t opened_log_position, int32_t close_reason) except -1
    cdef int answer_to(self, int64_t correlation_id, int64_t now_ns) except -1
    cdef int refuse(self, int32_t code, str detail) except -1
    cdef int authenticate(self, bytes encoded_principal) except -1
    cdef int link(self, int64_t image_correlation_id) except -1
    cdef int lose_ingress(self) except -1
    cdef int expect_new_leader_event(self) except -1
    cdef int new_leader_event_sent(self) except -1
    cdef int open_event_sent(self) except -1
    cdef bint has_timed_out(self, int64_t now_ns, int64_t session_timeout_ns) noexcept
    cdef int disconnect(self) except -1
    cdef int close(self) except -1
