# A client of the cluster: connects to it, sends to the leader and receives the service's answers.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.client.egress_handler cimport EgressHandler
from container.transport.buffer_vectors cimport BufferVectors
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.frames cimport Claim, FrameHeader
from container.transport.transport_seam cimport Client
from container.transport.streams cimport FragmentHandler, Image, PendingAdd, Publication, Subscription


cdef class AeronCluster(FragmentHandler):
    cdef readonly object context                    # ClientContext
    cdef readonly int64_t cluster_session_id        # -1 of a pool's whose first session is lost
    cdef readonly int64_t leadership_term_id
    cdef readonly int32_t leader_member_id
    cdef readonly int64_t new_leader_timeout_ns
    cdef readonly str close_reason                  # why it is closed or about to be; None before
    cdef Client _client
    cdef bint _owns_client
    cdef Subscription _subscription
    cdef SessionFragmentAssembler _assembler
    cdef Publication _publication                   # None while there is no leader to send to
    cdef Image _egress_image                        # the leader's
    cdef IdleStrategy _idle
    cdef EgressHandler _handler                     # calls the listener
    cdef int _state
    cdef int64_t _deadline_ns                       # of the state
    cdef int64_t _last_send_ns
    cdef int64_t _keep_alive_interval_ns
    cdef bint _is_polling
    cdef bint _is_close_requested
    cdef dict _unanswered                           # correlation ids (value: None) of earlier requests of its connect
    cdef tuple _new_leader                          # the event that ended the last poll, until it is handled, or None
    cdef PendingAdd _adding                         # the new leader's publication, while the driver has not answered
    cdef str _refusal                               # why that could not be added; None before
    cdef object _agent_invoker
    cdef uint8_t _session_header[32]
    cdef object _requests                           # RequestTable of those in flight; None if it is not used
    cdef dict _in_flight                            # those: what most polls look at. None if it is not used
    cdef bint _is_correlating                       # messages are looked at: they may be replies
    cdef int64_t _settle_ns                         # when that is seen to at the latest
    cdef bint _is_settling                          # a new leader is there, and what the old one was asked is in flight
    cdef object _owner                              # the thread that uses the client
    cdef long _owner_id
    cdef readonly bint _is_guarded                  # several threads use it, one at a time: their owner sees to that
    cdef long _parent_id                            # of the process of which this one is a fork; 0 where it was made
    cdef int64_t _sent, _received, _back_pressured, _leader_changes      # for metrics()
    cdef int64_t _told                              # events and admin responses of this session that came
    cdef object __weakref__
    # For listeners and loops in Cython. offer_message: as offer(); borrows the bytes for the call.
    cdef int64_t offer_message(self, const uint8_t* buffer, size_t length) except? -6
    cpdef int poll_egress(self, fragment_limit=*) except -1
    cpdef int idle(self, work_count=*) except -1
    cdef int _open(self, object context) except -1
    cdef int _adopt_session(self, int64_t cluster_session_id) except -1
    cdef int64_t _offer_vectors(self, BufferVectors* vectors) except? -6
    cdef int64_t _claim_message(self, size_t length, Claim* claim) except? -6
    cdef int64_t _offer_request_vectors(self, BufferVectors* vectors, object request) except? -6
    cdef int64_t _send_vectors(self, BufferVectors* vectors, object timeout, object request) except? -6
    cdef bint _send_request(self, const uint8_t* request, size_t length) except -1
    cdef int _offer_keep_alive(self) except -1
    cdef int _track_result(self, int64_t result) except -1
    cdef int _poll(self, int fragment_limit) except -1
    cdef int _poll_state(self, bint is_drained) except -1
    cdef int _use_requests(self, object requests) except -1
    cdef int _settle_requests(self) except -1
    cdef bint _is_reply(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except -1
    cdef object _new_request(self, int64_t cluster_session_id, tuple buffers, object key, object timeout,
                             object idempotent, object poll)
    cdef int _check_egress_image(self) except -1
    cdef bint _is_heard(self) noexcept
    cdef int _check_state(self) except -1
    cdef bint _check_client(self) except -1
    cdef str _leader_awaited(self)
    cdef int _check_keep_alive(self) except -1
    cdef int _on_disconnected(self) except -1
    cdef int _close_publication(self) except -1
    cdef int _on_message(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1
    cdef int _on_session_event(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_admin_response(self, const uint8_t* buffer, size_t length) except -1
    cdef int _on_new_leader_event(
        self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1
    cdef int _on_new_leader(self) except -1
    cdef int _begin_new_leader(self) except -1
    cdef int _forget_new_leader(self) except -1
    cdef str _leader_channel(self, str ingress_endpoints)
    cdef int _invoke(self) except -1
    cdef int _send_close_request(self, int64_t cluster_session_id) except -1
    cdef int _close_soon(self, str reason) except -1
    cdef int _close(self, str reason) except -1
    cdef int _check_open(self) except -1
    cdef int _check_thread(self) except -1


# These raise MessageTooLongError, in lengths without the session header, which is vector 0.
cdef int check_message_length(const BufferVectors* vectors, Publication publication) except -1
cdef int64_t claim_message(
    Publication publication, const uint8_t* session_header, size_t length, Claim* claim) except? -6
