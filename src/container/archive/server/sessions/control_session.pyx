"""A client of an archive: its connect, who it is, what it may ask for, and what it is sent.

Upstream: ControlSession.java, ControlSessionProxy.java. A session begins with a connect request and ends with its
client: when that one closes it, no longer reads, or its request or response stream is gone. Recordings, replays and
replications live on; what they send to a session that has ended gets lost.

Better than upstream's: a session ends with its request image even where several share one; a failure of an
authenticator ends the session and nothing else; what waits to be sent is bounded; a session is served on its own image
only, as later versions of upstream do; and no request is done before the client is authenticated, whichever it is.
"""
from collections import deque

from libc.stdint cimport INT64_MAX, int32_t, int64_t

from container.archive import error_codes
from container.archive.authentication import is_authorised
from container.archive.server.sessions cimport responses
from container.codecs.archive cimport (
    ARCHIVE_SCHEMA_ID, CONTROL_RESPONSE_CODE_ERROR, CONTROL_RESPONSE_CODE_OK, CONTROL_RESPONSE_CODE_RECORDING_UNKNOWN,
    CONTROL_RESPONSE_CODE_SUBSCRIPTION_UNKNOWN, REPLAY_TOKEN_REQUEST_TEMPLATE_ID, UPDATE_CHANNEL_REQUEST_TEMPLATE_ID,
)
from container.common.aeron_defaults import IPC_SOURCE_IDENTITY, CounterType
from container.common.error_texts import message_of, shorten
from container.common.sealed cimport hide, seal
from container.common.semantic_version import format_version, major_version
from container.errors import ArchiveError, ArchiveEvent, RegistrationError
from container.transport.frames cimport CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.transport.transport_seam cimport Client
from container.transport.streams cimport Image, publication_result_name

cdef int32_t CONTROL_SESSION_TYPE_ID = CounterType.ARCHIVE_CONTROL_SESSION
cdef int32_t TEMPORARILY_UNAVAILABLE = RegistrationError.RESOURCE_TEMPORARILY_UNAVAILABLE

cdef enum:
    RESEND_INTERVAL_NS = 200 * 1_000_000
    MAX_WAITING = 65_536                # responses and signals of one session that wait to be sent
    MAX_LABEL_LENGTH = 380              # of a counter
    MAX_REASON_LENGTH = 500             # of an abort, in characters

cdef int64_t NO_DEADLINE = INT64_MAX

STATES = ("INIT", "CONNECTING", "CONNECTED", "CHALLENGED", "AUTHENTICATED", "ACTIVE", "REJECTED", "DONE")

SESSION_CLOSED = "session closed"
RESPONSE_NOT_CONNECTED = "control response publication is not connected"
REQUEST_IMAGE_NOT_AVAILABLE = "control request publication image unavailable"
_QUIET_REASONS = (SESSION_CLOSED, RESPONSE_NOT_CONNECTED, REQUEST_IMAGE_NOT_AVAILABLE)
_REJECTED = "authentication rejected"
_GONE = {
    NOT_CONNECTED: RESPONSE_NOT_CONNECTED,
    CLOSED: "control response publication is closed",
    MAX_POSITION_EXCEEDED: "control response publication is at max position",
}


cdef inline int64_t _after(int64_t now_ns, int64_t duration_ns) noexcept nogil:
    return now_ns + duration_ns if duration_ns < INT64_MAX - now_ns else NO_DEADLINE


cdef str _counter_label(str client_info, Image image, int64_t archive_id):
    # A client says of itself what it likes: that is what gives way when there is no room.
    cdef str rest = f"sourceIdentity={image.source_identity} sessionId={image.session_id} - archiveId={archive_id}"
    cdef str name = "control-session: "
    cdef Py_ssize_t room = max(0, MAX_LABEL_LENGTH - len(name) - len(rest) - 1)
    cdef str info = "".join([each if " " <= each <= "~" else "?" for each in client_info[:room]])
    return f"{name}{info} {rest}" if info else f"{name}{rest}"


cdef class ControlSession:
    """The session ``session_id`` of the client whose requests come on ``image``; it asks the driver for what it needs.

    Args:
        client: what its response publication and its counter are added to.
        image: of the connect request.
        authenticator: container.archive.authentication.Authenticator.
        authorisation_service: container.archive.authentication.AuthorisationService.
        on_error: is given each error and ArchiveEvent; it must not raise.
        session_id: the session's, which no other has.
        archive_id: the archive's, for the counter.
        correlation_id: of the connect request.
        version: of the client's protocol, packed.
        response_channel, response_stream_id: on which it is answered, as container.archive.channel_texts derives it.
        encoded_credentials, client_info: of the connect request.
        connect_timeout_ns: how long a connect may take, and how long a client may not read.
        liveness_check_interval_ns: between two pings.

    Raises what the authenticator raises about the connect request; there is nothing to close then.
    """

    def __init__(
            self, Client client not None, Image image not None, authenticator, authorisation_service, on_error, *,
            int64_t session_id, int64_t archive_id, int64_t correlation_id, int32_t version,
            str response_channel not None, int32_t response_stream_id, bytes encoded_credentials not None,
            str client_info not None, int64_t connect_timeout_ns, int64_t liveness_check_interval_ns):
        cdef int64_t now_ns = client.clock.coarse_nano_time()
        self._client = client
        self._clock = client.clock
        self._authenticator = authenticator
        self._authorisation_service = authorisation_service
        self._on_error = on_error
        self.image = image
        self.session_id = session_id
        self.correlation_id = correlation_id
        self.response_channel = response_channel
        self.response_stream_id = response_stream_id
        self._connect_timeout_ns = connect_timeout_ns
        self._liveness_check_interval_ns = liveness_check_interval_ns
        self._deadline_ns = _after(now_ns, connect_timeout_ns)
        self._ping_ns = _after(now_ns, liveness_check_interval_ns)
        self._resend_ns = now_ns - 1
        self._state = INIT
        if major_version(version) != responses.PROTOCOL_MAJOR_VERSION:
            self._version_error = (f"invalid client version {format_version(version)}, "
                                   f"archive is {format_version(responses.PROTOCOL_VERSION)}")
        self._counter_key = (
            archive_id.to_bytes(8, "little", signed=True) + session_id.to_bytes(8, "little", signed=True))
        self._counter_label = _counter_label(client_info, image, archive_id)
        self._queue = deque()
        authenticator.on_connect_request(session_id, encoded_credentials, self._clock.epoch_ms())

    @property
    def state(self):
        """The name of the state (str), one of ``STATES``."""
        return STATES[<int> self._state]

    @property
    def is_done(self):
        """Whether the session has ended (bool): close and forget it then."""
        return self._state == DONE

    cdef bint has_ended(self) noexcept:
        return self._state == DONE

    cpdef int do_work(self) except -1:
        """One turn of the duty cycle; how much was done (int). A failure ends the session and is reported."""
        cdef int64_t now_ns = self._clock.coarse_nano_time()
        cdef int work_count = 1
        if self._state == DONE:
            return 0
        if self.image.is_closed():
            return self.abort(
                f"{REQUEST_IMAGE_NOT_AVAILABLE}: controlSessionId={self.session_id} "
                f"image.correlationId={self.image.correlation_id} sessionId={self.image.session_id} "
                f"sourceIdentity={self.image.source_identity}")
        if now_ns > self._deadline_ns:
            return self.abort(
                f"failed to send response for more than connectTimeoutMs={self._connect_timeout_ns // 1_000_000}"
                if self._state == ACTIVE else f"failed to establish initial connection: state={self.state}")
        try:
            work_count = self._work(now_ns)
        except Exception as error:
            self._fail(error)
        return work_count

    cpdef int abort(self, str reason) except -1:
        """End the session, and its listing. The first reason counts, but that the client closed it counts most.

        Return 1. :meth:`close` closes its resources.
        """
        listing = self.active_listing
        if self._state != DONE or reason == SESSION_CLOSED:
            self.abort_reason = shorten(reason, MAX_REASON_LENGTH)
            self._state = DONE
            self.active_listing = None
            if listing is not None:
                self._attempt(listing.abort, self.abort_reason)
        return 1

    cpdef int close(self) except -1:
        """Revoke the response publication, close the counter, and reject the request image where the reason says so.

        An abort because the client closed the session, or is gone, is quiet; any other is reported, and takes the
        client's request publication away with all sessions that share it. May be called twice.
        """
        cdef object publication, pending_publication, counter, pending_counter, image
        cdef str reason = self.abort_reason
        if self._is_closed:
            return 0
        self._is_closed = True
        self._state = DONE
        self._queue.clear()
        # As objects: a C method is not a callable.
        publication, pending_publication = <object> self._publication, <object> self._pending_publication
        counter, pending_counter, image = <object> self._counter, <object> self._pending_counter, <object> self.image
        if publication is not None:
            self._attempt(publication.revoke)
        elif pending_publication is not None:
            self._attempt(pending_publication.close)
        if counter is not None:
            self._attempt(counter.close)
        elif pending_counter is not None:
            self._attempt(pending_counter.close)
        if reason is not None and not reason.startswith(_QUIET_REASONS):
            self._attempt(image.reject, reason)
            self._on_error(ArchiveEvent(
                f"controlSessionId={self.session_id} (controlResponseStreamId={self.response_stream_id} "
                f"controlResponseChannel={self.response_channel}) terminated: {reason}"))
        return 0

    def _attempt(self, call, *arguments):
        try:
            call(*arguments)
        except Exception as error:
            self._on_error(error)

    # Requests

    cpdef bint accept_request(self, object request) except -1:
        """Whether to carry out a request (ControlRequest) that names this session.

        It must have come on the session's image, of a client that is authenticated, and be authorised, else it gets an
        error in reply. The first request makes the session active, unless it is message 105 or 107. Not for messages 3
        and 60.
        """
        cdef bint is_allowed = False
        if not self.is_of_session(request) or not (self._state == AUTHENTICATED or self._state == ACTIVE):
            return False
        try:
            is_allowed = is_authorised(
                self._authorisation_service, ARCHIVE_SCHEMA_ID, request.template_id, self.encoded_principal)
        except Exception as error:
            self._on_error(error)
        if not is_allowed:
            self._on_error(ArchiveEvent(
                f"unauthorised archive action={request.template_id} controlSessionId={self.session_id} "
                f"source={self.image.source_identity}"))
            self.send_error(request.correlation_id, "unauthorised action", error_codes.UNAUTHORISED_ACTION)
            return False
        if request.template_id in (REPLAY_TOKEN_REQUEST_TEMPLATE_ID, UPDATE_CHANNEL_REQUEST_TEMPLATE_ID):
            return True
        return self.activate()

    cpdef bint activate(self) except -1:
        """Make a session active whose client is authenticated; whether it is active now (bool)."""
        if self._state == AUTHENTICATED:
            self._state = ACTIVE
        return self._state == ACTIVE

    cpdef int on_challenge_response(self, object request, bytes encoded_credentials) except -1:
        """The client answers a challenge (message 60): replies have the id of this request from now on."""
        if self._state == CHALLENGED and self.is_of_session(request):
            self.correlation_id = request.correlation_id
            try:
                self._authenticator.on_challenge_response(
                    self.session_id, encoded_credentials, self._clock.epoch_ms())
            except Exception as error:
                self._fail(error)
        return 0

    cpdef bint is_of_session(self, object request) except -1:
        """Whether a request (ControlRequest) came on the session's image (bool); another's is reported."""
        if request.image_correlation_id == self.image.correlation_id:
            return True
        self._on_error(ArchiveEvent(
            f"unauthorised archive action={request.template_id} controlSessionId={self.session_id}: it came on image "
            f"{request.image_correlation_id}, not on {self.image.correlation_id}, the session's"))
        return False

    # Responses

    cpdef int send_ok(self, int64_t correlation_id, int64_t relevant_id=0) except -1:
        """A request was done; ``relevant_id`` is what it asked for. Sent later when there is no room."""
        return self._respond(self._response(correlation_id, relevant_id, CONTROL_RESPONSE_CODE_OK, ""), False)

    cpdef int send_error(self, int64_t correlation_id, str text, int64_t code=0) except -1:
        """A request was not done, with one of container.archive.error_codes. Sent later when there is no room."""
        return self._respond(self._response(correlation_id, code, CONTROL_RESPONSE_CODE_ERROR, text), False)

    cpdef int send_recording_unknown(self, int64_t correlation_id, int64_t recording_id) except -1:
        """There is no such recording. Sent later when there is no room."""
        return self._respond(
            self._response(correlation_id, recording_id, CONTROL_RESPONSE_CODE_RECORDING_UNKNOWN, ""), False)

    cpdef int send_subscription_unknown(self, int64_t correlation_id) except -1:
        """There are no more subscriptions. Sent later when there is no room."""
        return self._respond(self._response(correlation_id, 0, CONTROL_RESPONSE_CODE_SUBSCRIPTION_UNKNOWN, ""), False)

    cpdef int send_signal(
            self, int64_t correlation_id, int64_t recording_id, int64_t subscription_id, int64_t position,
            int32_t signal) except -1:
        """A recording has changed; ``position`` is in bytes. Sent later, in the order of all, when there is no room."""
        return self._respond(responses.recording_signal(
            self.session_id, correlation_id, recording_id, subscription_id, position, signal), True)

    cpdef bint send_descriptor(self, int64_t correlation_id, bytes entry) except -1:
        """Send a descriptor as the catalog has it (Catalog.entry_bytes); whether it was sent (bool): else try again.

        False for ever once the session is done. Raises ArchiveError when it can never be sent.
        """
        if self._publication is None or self._state == DONE:
            return False
        return self._note(self._is_sent(
            responses.send_descriptor(self._publication, self.session_id, correlation_id, entry), False))

    cpdef bint send_subscription_descriptor(
            self, int64_t correlation_id, int64_t subscription_id, int32_t stream_id, str stripped_channel
    ) except -1:
        """Send what is known of a subscription; whether it was sent (bool), as :meth:`send_descriptor`."""
        if self._publication is None or self._state == DONE:
            return False
        return self._deliver(responses.subscription_descriptor(
            self.session_id, correlation_id, subscription_id, stream_id, stripped_channel), False)

    cdef bint is_local(self) noexcept:
        """Whether its requests come in shared memory, which only the driver's own user reaches."""
        return self.image.source_identity == IPC_SOURCE_IDENTITY

    cdef bytes _response(self, int64_t correlation_id, int64_t relevant_id, int32_t code, str text):
        cdef int64_t max_length = 0 if self._publication is None else self._publication.max_message_length
        return responses.control_response(self.session_id, correlation_id, relevant_id, code, text, max_length)

    cdef int _respond(self, bytes message, bint is_signal) except -1:
        cdef bint is_sent = False
        if self._publication is None or self._state == DONE:
            return 0
        if not self._queue:
            # An error of the client library ends this session, and nothing of the caller.
            try:
                is_sent = self._deliver(message, is_signal)
            except Exception as error:
                self._fail(error)
        if not is_sent and self._state != DONE:
            self._note(False)
            self._keep(message, is_signal)
        return 0

    cdef int _keep(self, bytes message, bint is_signal) except -1:
        if len(self._queue) >= MAX_WAITING:
            return self.abort(f"failed to send responses: more than {MAX_WAITING} wait")
        self._queue.append((message, is_signal))
        return 0

    cdef bint _deliver(self, bytes message, bint is_signal) except -1:
        return self._note(self._try_send(message, is_signal))

    cdef bint _try_send(self, bytes message, bint is_signal) except -1:
        return self._is_sent(responses.send(self._publication, message), is_signal)

    cdef bint _is_sent(self, int result, bint is_signal) except -1:
        # Signals and pings do not say that the client is gone: they may be the last of a recording that outlives it.
        if result < 0 and not is_signal:
            self.abort(_GONE.get(result, publication_result_name(result)))
        return result == responses.SENT

    cdef bint _note(self, bint is_sent) except -1:
        # From the first send that fails on the client has some time to read, until one succeeds.
        if is_sent:
            self._deadline_ns = NO_DEADLINE
        elif self._deadline_ns == NO_DEADLINE:
            self._deadline_ns = _after(self._clock.coarse_nano_time(), self._connect_timeout_ns)
        return is_sent

    cdef int _fail(self, object error) except -1:
        self._on_error(error)
        return self.abort(f"failed with exception: {message_of(error)}")

    # States

    cdef int _work(self, int64_t now_ns) except -1:
        if self._state == ACTIVE:
            return self._live(now_ns)
        if self._state == INIT:
            return self._init(now_ns)
        if self._state == CONNECTING:
            if not self._publication.is_connected():
                return 0
            self._state = CONNECTED
            return 1
        if self._state == CHALLENGED:
            return self._decide()
        if now_ns <= self._resend_ns:
            return 0
        self._resend_ns = _after(now_ns, RESEND_INTERVAL_NS)
        if self._state == CONNECTED and self._version_error is None:
            return self._decide()
        return self._resend()

    cdef int _init(self, int64_t now_ns) except -1:
        cdef int work_count = 0
        if self._publication is None:
            if self._pending_publication is None:
                self._pending_publication = self._client.begin_add_publication(
                    self.response_channel, self.response_stream_id, True)
                work_count += 1
            work_count += self._poll_publication()
        if self._counter is None:
            if self._pending_counter is None:
                self._pending_counter = self._client.begin_add_counter(
                    CONTROL_SESSION_TYPE_ID, self._counter_key, self._counter_label)
                work_count += 1
            self._counter = self._pending_counter.poll()
        if self._publication is not None and self._counter is not None:
            self._counter.set_reference_id(self._publication.registration_id)
            self._counter.set(self.session_id)
            self._deadline_ns = _after(now_ns, self._connect_timeout_ns)
            self._state = CONNECTING
            work_count += 1
        return work_count

    cdef bint _poll_publication(self) except -1:
        try:
            self._publication = self._pending_publication.poll()
        except RegistrationError as error:
            self._pending_publication = None
            if error.code != TEMPORARILY_UNAVAILABLE:
                raise
        return self._publication is not None

    cdef int _decide(self) except -1:
        cdef SessionDecision decision = SessionDecision.__new__(SessionDecision)
        decision._session = self
        try:
            if self._state == CHALLENGED:
                self._authenticator.on_challenged_session(decision, self._clock.epoch_ms())
            else:
                self._authenticator.on_connected_session(decision, self._clock.epoch_ms())
        finally:
            decision._session = None
        return 1

    cdef int _resend(self) except -1:
        # A response that the client does not read in these states begins no time limit: there is one, or none is due.
        cdef int32_t code = CONTROL_RESPONSE_CODE_ERROR
        cdef int64_t relevant_id = self.session_id
        cdef str text = self._version_error
        cdef bint is_sent
        if self._state == AUTHENTICATED:
            code, text = CONTROL_RESPONSE_CODE_OK, ""
        elif self._state == REJECTED:
            relevant_id, text = error_codes.AUTHENTICATION_REJECTED, _REJECTED
        is_sent = self._try_send(self._response(self.correlation_id, relevant_id, code, text), False)
        if is_sent and self._state == AUTHENTICATED:
            self._note(True)
        return 1

    cdef int _live(self, int64_t now_ns) except -1:
        cdef int work_count = 0
        if not self._publication.is_connected():
            return self.abort(RESPONSE_NOT_CONNECTED)
        if now_ns > self._ping_ns:
            self._ping_ns = _after(now_ns, self._liveness_check_interval_ns)
            self._deliver(responses.ping(self.session_id), True)
            work_count += 1
        return work_count + self._send_queued()

    cdef int _send_queued(self) except -1:
        cdef bytes message
        cdef bint is_signal
        if not self._queue:
            return 0
        message, is_signal = self._queue[0]
        if not self._deliver(message, is_signal):
            return 0
        self._queue.popleft()
        return 1

    cdef bint _challenge(self, bytes encoded_challenge) except -1:
        if not (self._state == CONNECTED or self._state == CHALLENGED) or not self._try_send(
                responses.challenge(self.session_id, self.correlation_id, encoded_challenge), False):
            return False
        self._state = CHALLENGED
        return True

    cdef bint _authenticate(self, bytes encoded_principal) except -1:
        if not (self._state == CONNECTED or self._state == CHALLENGED) or not self._try_send(
                self._response(self.correlation_id, self.session_id, CONTROL_RESPONSE_CODE_OK, ""), False):
            return False
        self.encoded_principal = encoded_principal
        self._deadline_ns = NO_DEADLINE
        self._resend_ns = _after(self._clock.coarse_nano_time(), RESEND_INTERVAL_NS)
        self._state = AUTHENTICATED
        return True

    cdef int _reject(self) except -1:
        if self._state == CONNECTED or self._state == CHALLENGED:
            self._resend_ns = self._clock.coarse_nano_time() - 1
            self._state = REJECTED
        return 0

    def __repr__(self):
        return (f"<ControlSession {self.session_id} {self.state} on {self.response_channel} "
                f"stream {self.response_stream_id}>")


cdef class SessionDecision:
    """A client that is being connected, as an authenticator decides about it, during its call and no longer.

    The first decision counts: once a client is authenticated or rejected, nothing changes that.
    """

    @property
    def session_id(self):
        """The id of the session (int). Raises ArchiveError when the call is over, as all that is here."""
        return self._open().session_id

    @property
    def is_local(self):
        """Whether the client asks in shared memory (bool)."""
        return self._open().is_local()

    def challenge(self, bytes encoded_challenge not None):
        """Ask the client for more; False when it could not be sent now: decide again when asked again."""
        return self._open()._challenge(encoded_challenge)

    def authenticate(self, bytes encoded_principal not None):
        """Accept the client, as this principal; False when that could not be sent now, as for a challenge."""
        return self._open()._authenticate(encoded_principal)

    def reject(self):
        """Refuse the client."""
        self._open()._reject()

    cdef ControlSession _open(self):
        if self._session is None:
            raise ArchiveError("an authenticator decides about a client during its call, which is over")
        return self._session


hide((SessionDecision,))
seal((ControlSession,))
