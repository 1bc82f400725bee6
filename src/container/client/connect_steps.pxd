# The steps of a connect, and what it shares with a client and with a pool of sessions.
from libc.stdint cimport int32_t, int64_t

from container.client.egress_poller cimport EgressPoller
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication, Subscription

cdef enum:
    PROTOCOL_VERSION = 3 << 8                           # 0.3.0
    LATE_ANSWER_NS = 1_000_000_000                      # for answers after all, to requests that are given up


cdef str response_channel_of(Subscription subscription)
cdef object session_refusal(str what, int code, str detail, str where)     # the exception for a session that is refused
cdef PendingAdd begin_add_ingress_publication(Client client, object context, str channel)


cdef class ConnectSteps:
    cdef readonly object context                        # ClientContext
    cdef Client _client                                 # None while there is no driver
    cdef bint _owns_client
    cdef Clock _clock
    cdef object _choice                                 # DriverChoice, of an Aeron client of its own
    cdef int64_t _begin_ns
    cdef int64_t _look_ns                               # when to look for a driver again
    cdef int _step
    cdef int64_t _deadline_ns
    cdef int64_t _patience_ns                           # for a step that somebody answers; 0: as for the whole
    cdef int64_t _step_ns                               # when the step began
    cdef PendingAdd _adding                             # of the step, while the driver has not answered
    cdef dict _tried                                    # what became of members that redirected, by "id=endpoint"
    cdef Subscription _subscription
    cdef EgressPoller _poller
    cdef dict _members                                  # _MemberIngress by member id
    cdef bint _is_redirected                            # the one of _members is whom another calls the leader
    cdef int64_t _leader_patience_ns                    # how long that one may take to listen
    cdef Publication _publication                       # the chosen one
    cdef int64_t _correlation_id
    cdef dict _unanswered                               # correlation ids (value: None) of requests that were sent
    cdef object _failure                                # raised as soon as no late answer is awaited any more, or None
    cdef int64_t _end_ns                                # of that wait; 0 before
    cdef bytearray _request
    cdef object _result                                 # AeronCluster; None until the connect is done
    cdef int _begin(self, object context) except -1
    cdef object _new_client(self)                       # of what the steps have led to: an AeronCluster
    cdef int _poll_step(self) except -1
    cdef int _look_for_driver(self) except -1
    cdef object _timeout(self)
    cdef bint _read_answer(self) except -1
    cdef int _close_session(self) except -1
    cdef str _members_tried(self)
    cdef int _create_egress_subscription(self) except -1
    cdef int _create_ingress_publication(self) except -1
    cdef int _await_publication_connected(self) except -1
    cdef int _set_members(self) except -1
    cdef int _try_all_again(self) except -1
    cdef int _choose_member(self) except -1
    cdef object _no_member(self)
    cdef int _prepare_connect_request(self, str response_channel) except -1
    cdef int _prepare_challenge_response(self) except -1
    cdef int _send_message(self) except -1
    cdef int _poll_response(self) except -1
    cdef int _redirect(self) except -1
    cdef int _conclude_connect(self) except -1
    cdef int _close_members(self, Publication kept) except -1
