# A client of an archive: its connect, who it is, what it may ask for, and what it is sent.
from libc.stdint cimport int32_t, int64_t

from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image, PendingAdd, Publication


cdef enum State:                            # the order of their names in control_session.pyx
    INIT
    CONNECTING
    CONNECTED
    CHALLENGED
    AUTHENTICATED
    ACTIVE
    REJECTED
    DONE


cdef class ControlSession:
    cdef readonly int64_t session_id
    cdef readonly int64_t correlation_id    # of the connect request, or of the last answer to a challenge
    cdef readonly Image image               # of the client's requests
    cdef readonly str response_channel
    cdef readonly int32_t response_stream_id
    cdef readonly bytes encoded_principal   # None until the client is authenticated
    cdef readonly str abort_reason          # None unless the session was aborted
    cdef public object active_listing       # the one that may run at a time, with abort(reason); None
    cdef Client _client
    cdef Clock _clock
    cdef object _authenticator
    cdef object _authorisation_service
    cdef object _on_error
    cdef int64_t _connect_timeout_ns
    cdef int64_t _liveness_check_interval_ns
    cdef int64_t _deadline_ns               # of the connect, or of a send; NO_DEADLINE
    cdef int64_t _resend_ns                 # when to send again what a client that is not active waits for
    cdef int64_t _ping_ns                   # when to send the next ping
    cdef State _state
    cdef bint _is_closed
    cdef str _version_error                 # None: the client's version is compatible
    cdef bytes _counter_key
    cdef str _counter_label
    cdef PendingAdd _pending_publication
    cdef PendingAdd _pending_counter
    cdef Publication _publication
    cdef Counter _counter
    cdef object _queue                      # deque of (message, is a signal): what could not be sent, in order

    cdef bint has_ended(self) noexcept
    cdef bint is_local(self) noexcept
    cpdef int do_work(self) except -1
    cpdef int abort(self, str reason) except -1
    cpdef int close(self) except -1
    cpdef bint accept_request(self, object request) except -1
    cpdef bint is_of_session(self, object request) except -1
    cpdef bint activate(self) except -1
    cpdef int on_challenge_response(self, object request, bytes encoded_credentials) except -1
    cpdef int send_ok(self, int64_t correlation_id, int64_t relevant_id=*) except -1
    cpdef int send_error(self, int64_t correlation_id, str text, int64_t code=*) except -1
    cpdef int send_recording_unknown(self, int64_t correlation_id, int64_t recording_id) except -1
    cpdef int send_subscription_unknown(self, int64_t correlation_id) except -1
    cpdef int send_signal(
        self, int64_t correlation_id, int64_t recording_id, int64_t subscription_id, int64_t position,
        int32_t signal) except -1
    cpdef bint send_descriptor(self, int64_t correlation_id, bytes entry) except -1
    cpdef bint send_subscription_descriptor(
        self, int64_t correlation_id, int64_t subscription_id, int32_t stream_id, str stripped_channel) except -1
    cdef int _work(self, int64_t now_ns) except -1
    cdef int _init(self, int64_t now_ns) except -1
    cdef bint _poll_publication(self) except -1
    cdef int _decide(self) except -1
    cdef int _resend(self) except -1
    cdef int _live(self, int64_t now_ns) except -1
    cdef int _send_queued(self) except -1
    cdef bytes _response(self, int64_t correlation_id, int64_t relevant_id, int32_t code, str text)
    cdef int _respond(self, bytes message, bint is_signal) except -1
    cdef int _keep(self, bytes message, bint is_signal) except -1
    cdef bint _deliver(self, bytes message, bint is_signal) except -1
    cdef bint _try_send(self, bytes message, bint is_signal) except -1
    cdef bint _is_sent(self, int result, bint is_signal) except -1
    cdef bint _note(self, bint is_sent) except -1
    cdef int _fail(self, object error) except -1
    # Decisions of an authenticator.
    cdef bint _challenge(self, bytes encoded_challenge) except -1
    cdef bint _authenticate(self, bytes encoded_principal) except -1
    cdef int _reject(self) except -1


cdef class SessionDecision:                 # upstream's SessionProxy
    cdef ControlSession _session            # None once the authenticator's call is over
    cdef ControlSession _open(self)
