"""The protocol between an archive and one of its clients, as a state machine that never waits: every front is over it.

Upstream: AeronArchive.AsyncConnect, ArchiveProxy.java, ControlResponsePoller.java, RecordingDescriptorPoller.java,
RecordingSubscriptionDescriptorPoller.java, RecordingSignalPoller.java. Unlike upstream's client

- it may have many requests in flight: each answer, and each error, goes to the request whose correlation id it has;
- it asks the driver for no session id, for which it would have to wait: it takes that of its publication;
- an error that answers no request is kept, and raised by whoever looks after the session.

Messages are of schema 101. Nothing is kept of those that nobody asked for.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from collections import deque
from heapq import heapify, heappop, heappush

from container.archive.channel_texts import parse_channel
from container.archive.client.archive_events import (
    RecordingSignal, RecordingSignalEvent, RecordingSubscriptionDescriptor,
)
from container.codecs.archive cimport (
    ARCHIVE_SCHEMA_ID, CHALLENGE_TEMPLATE_ID, CONTROL_RESPONSE_CODE_ERROR, CONTROL_RESPONSE_CODE_OK,
    CONTROL_RESPONSE_CODE_RECORDING_UNKNOWN, CONTROL_RESPONSE_CODE_SUBSCRIPTION_UNKNOWN, CONTROL_RESPONSE_TEMPLATE_ID,
    RECORDING_DESCRIPTOR_TEMPLATE_ID, RECORDING_SIGNAL_EVENT_TEMPLATE_ID,
    RECORDING_SUBSCRIPTION_DESCRIPTOR_TEMPLATE_ID, Challenge, ControlResponse, RecordingDescriptor,
    RecordingSignalEvent as _SignalEvent, RecordingSubscriptionDescriptor as _SubscriptionDescriptor,
    challenge_control_session_id, challenge_correlation_id, challenge_wrap, control_response_code,
    control_response_control_session_id, control_response_correlation_id, control_response_relevant_id,
    control_response_version, control_response_wrap, recording_descriptor_control_session_id,
    recording_descriptor_correlation_id, recording_descriptor_initial_term_id, recording_descriptor_mtu_length,
    recording_descriptor_recording_id, recording_descriptor_segment_file_length, recording_descriptor_session_id,
    recording_descriptor_start_position, recording_descriptor_start_timestamp, recording_descriptor_stop_position,
    recording_descriptor_stop_timestamp, recording_descriptor_stream_id, recording_descriptor_term_buffer_length,
    recording_descriptor_wrap, recording_signal_event_control_session_id, recording_signal_event_correlation_id,
    recording_signal_event_position, recording_signal_event_recording_id, recording_signal_event_signal,
    recording_signal_event_subscription_id, recording_signal_event_wrap,
    recording_subscription_descriptor_control_session_id, recording_subscription_descriptor_correlation_id,
    recording_subscription_descriptor_stream_id, recording_subscription_descriptor_subscription_id,
    recording_subscription_descriptor_wrap,
)
from container.codecs.messages import encode
from container.codecs.sbe cimport MessageHeader, VarData, sbe_error_text, sbe_read_header
from container.common import channel_uri
from container.common.loggers import report
from container.common.sealed cimport hide, seal
from container.errors import ArchiveError, CodecError, TimedOutError
from container.files.catalog import RecordingDescriptor as CatalogDescriptor
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport (
    ACTION_BREAK, ACTION_CONTINUE, ADMIN_ACTION, BACK_PRESSURED, NULL_VALUE, FrameHeader,
)
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.transport_seam cimport Client
from container.transport.streams cimport FragmentHandler, PendingAdd, Publication, publication_result_name
from container.transport.wait_reporter cimport WaitReporter
from container.version import client_info

cdef enum:
    PROTOCOL_VERSION = 1 << 16 | 12 << 8            # 1.12.0
    VERSION_WITH_ARCHIVE_ID = 1 << 16 | 11 << 8
    FRAGMENT_LIMIT = 10
    ATTEMPTS = 3                                    # of sending what is not answered
    REQUESTS_MAX = 4096                             # that wait for their answers
    ERRORS_MAX = 64                                 # that answer no request, and are not taken
    DEADLINES_SPARE = 64                            # of requests that are done

STEPS = ("ADD_STREAMS", "AWAIT_PUBLICATION_CONNECTED", "RESOLVE_RESPONSE_CHANNEL", "SEND_CONNECT_REQUEST",
         "AWAIT_SUBSCRIPTION_CONNECTED", "AWAIT_CONNECT_RESPONSE", "AWAIT_ARCHIVE_ID_RESPONSE", "SEND_KEEP_ALIVE",
         "CONNECTED", "CLOSED")

_RESPONSE_CORRELATION_ID = "response-correlation-id"


cdef inline str _text(const VarData* data):
    return (<const char*> data.data)[:data.length].decode("ascii", "replace") if data.length > 0 else ""


cdef int _check(int result, str message) except -1:
    if result < 0:
        raise CodecError(f"{message} from the archive: {sbe_error_text(result).decode('ascii')}")
    return 0


cdef class ArchiveRequest:
    """A request to an archive, and what came of it."""

    def __repr__(self):
        return f"<ArchiveRequest {self.correlation_id} for {self.what} is_done={self.is_done}>"


cdef class ArchiveConnection(FragmentHandler):
    """A session with an archive: :meth:`turn` connects it, sends requests and gives each its answer.

    Args:
        client: what its streams are added to, and what somebody invokes (Client).
        context: where the archive is (ArchiveClientContext).

    Raises ConfigurationError for an invalid channel.
    """

    def __init__(self, Client client not None, context not None):
        control_uri = parse_channel(context.control_channel)
        response_uri = parse_channel(context.response_channel)
        for uri in (control_uri, response_uri):
            uri.put_if_absent("term-length", str(context.term_buffer_length))
            uri.put_if_absent("mtu", str(context.mtu_length))
            uri.put_if_absent("sparse", "true" if context.term_buffer_sparse else "false")
        self._is_response_mode = response_uri.get("control-mode") == "response"
        if not self._is_response_mode:      # it may be that of the client that gave the channel away
            control_uri.remove(channel_uri.SESSION_ID)
        self.context = context
        self.control_channel = str(control_uri)
        self.control_stream_id = context.control_stream_id
        self._client = client
        self._clock = client.clock
        self._response_uri = response_uri
        self._assembler = SessionFragmentAssembler(self)
        self._requests = {}
        self._unsent = deque()
        self._deadlines = []
        self._errors = deque(maxlen=ERRORS_MAX)
        self._given_up = deque(maxlen=REQUESTS_MAX)
        self._followed = {}
        self._begin_connect()

    @property
    def step(self):
        """How far the connect is (str), one of ``STEPS``."""
        return STEPS[<int> self._step]

    @property
    def waiting(self):
        """How many requests wait for their answers (int)."""
        return len(self._requests)

    @property
    def is_connected(self):
        """Whether both streams of the session are connected (bool)."""
        return self.is_alive()

    cdef bint is_alive(self) noexcept:
        return self._step == CONNECTED and self._publication.is_connected() and self._subscription.is_connected()

    cpdef int turn(self) except -1:
        """Take a turn: connect, or send and read what there is; how much that was (int).

        Raises ArchiveError when the archive refuses the connect or is lost, and every request has that error then, and
        when it is called while another turn reads, by :attr:`on_signal` or another thread; TimedOutError when the
        connect takes too long; RegistrationError when the driver refuses a stream; CodecError.
        """
        cdef int work_count
        self._check_not_reading()
        if self._step == CLOSED:
            raise ArchiveError("client is closed")
        if self._step != CONNECTED:
            return self._connect()
        self._expire()
        work_count = self._send()
        return work_count + self._read()

    # The connect

    cdef int _begin_connect(self) except -1:
        self.control_session_id = self.archive_id = NULL_VALUE
        self._step = ADD_STREAMS
        self._what = f"the driver to add streams to an archive on {self.control_channel}"
        self._connect_deadline_ns = deadline_after(self._clock.nano_time(), self.context.message_timeout_ns)
        return 0

    cdef int _connect(self) except -1:
        cdef Step step = self._step
        if self._clock.nano_time() >= self._connect_deadline_ns:
            raise TimedOutError(
                f"waited {self.context.message_timeout_ns / 1e9:g} s for {self._what} (archive connect, step "
                f"{self.step})")
        if self._step == ADD_STREAMS and self._add_streams():
            self._step = AWAIT_PUBLICATION_CONNECTED
            self._what = f"an archive to listen on control channel {self.control_channel} stream " \
                         f"{self.control_stream_id}"
        if self._step == AWAIT_PUBLICATION_CONNECTED and self._publication.is_connected():
            self._step = RESOLVE_RESPONSE_CHANNEL
            self._what = f"the driver to bind {self._subscription.channel}"
        if self._step == RESOLVE_RESPONSE_CHANNEL and self._resolve():
            self._request_session()
            self._step = SEND_CONNECT_REQUEST
            self._what = f"room on control channel {self.control_channel} stream {self.control_stream_id}"
        if SEND_CONNECT_REQUEST <= self._step < SEND_KEEP_ALIVE:
            self._send()
        if self._step == SEND_CONNECT_REQUEST and self._connecting._message is None:
            self._step = AWAIT_SUBSCRIPTION_CONNECTED
            self._what = f"the archive to connect to response channel {self._response_uri} stream " \
                         f"{self.context.response_stream_id}"
        if self._step == AWAIT_SUBSCRIPTION_CONNECTED and self._subscription.is_connected():
            self._step = AWAIT_CONNECT_RESPONSE
            self._what = f"the answer to the connect request on response channel {self._response_uri} stream " \
                         f"{self.context.response_stream_id}"
        if self._step == AWAIT_CONNECT_RESPONSE or self._step == AWAIT_ARCHIVE_ID_RESPONSE:
            self._read()
            if self._connecting.is_done:
                self._on_connect_response()
        if self._step == SEND_KEEP_ALIVE and self._try_send(self._publication, encode(
                "archive", "KeepAliveRequest", control_session_id=self.control_session_id, correlation_id=NULL_VALUE)):
            self._step = CONNECTED
        return self._step != step

    cdef bint _add_streams(self) except -1:
        """Whether both streams are there: the second has an id of the first."""
        cdef object added
        if self._pending is None:
            self._is_pending_subscription = (self._publication is not None or self._is_response_mode) and (
                self._subscription is None)
            self._pending = self._begin_add()
        try:
            added = self._pending.poll()
        except BaseException:
            self._pending = None
            raise
        if added is None:
            return False
        self._pending = None
        if self._is_pending_subscription:
            self._subscription = added
        else:
            self._publication = added
        return self._publication is not None and self._subscription is not None

    cdef PendingAdd _begin_add(self):
        cdef int32_t stream_id = self.context.response_stream_id
        if self._is_pending_subscription:
            if not self._is_response_mode:      # keeps other clients' responses out
                self._response_uri.put(channel_uri.SESSION_ID, str(self._publication.session_id))
            return self._client.begin_add_subscription(str(self._response_uri), stream_id, False)
        if self._is_response_mode:
            uri = parse_channel(self.control_channel)
            uri.put(_RESPONSE_CORRELATION_ID, str(self._subscription.registration_id))
            return self._client.begin_add_publication(str(uri), self.control_stream_id, True)
        return self._client.begin_add_publication(self.control_channel, self.control_stream_id, True)

    cdef bint _resolve(self) except -1:
        """Whether the port of the response channel is known."""
        cdef str endpoint = self._response_uri.get(channel_uri.ENDPOINT)
        cdef str resolved
        if endpoint is None or not endpoint.endswith(":0"):
            return True
        resolved = self._subscription.resolved_endpoint()
        if not resolved:
            return False
        self._response_uri.replace_wildcard_port(resolved)
        return True

    cdef int _request_session(self) except -1:
        supplier = self.context.credentials_supplier
        self._connecting = self._begin("AuthConnectRequest", "archive connect", {
            "response_stream_id": self.context.response_stream_id,
            "version": PROTOCOL_VERSION,
            "response_channel": str(self._response_uri).encode("ascii"),
            "encoded_credentials": b"" if supplier is None else bytes(supplier.encoded_credentials()),
            "client_info": client_info(self.context.client_name).encode("ascii", "replace"),
        }, 0, INT64_MAX, None)
        return 0

    cdef int _on_connect_response(self) except -1:
        cdef ArchiveRequest answered = self._connecting
        cdef bytes challenge = self._challenge
        if answered.error is not None:
            raise answered.error
        fields = {"control_session_id": self.control_session_id}
        if challenge is not None:
            supplier = self.context.credentials_supplier
            self._challenge = None
            fields["encoded_credentials"] = b"" if supplier is None else bytes(supplier.on_challenge(challenge))
            self._connecting = self._begin("ChallengeResponse", "archive connect", fields, 0, INT64_MAX, None)
            return 0
        if self._step == AWAIT_CONNECT_RESPONSE and self._archive_version >= VERSION_WITH_ARCHIVE_ID:
            self._connecting = self._begin("ArchiveIdRequest", "archive connect", fields, 0, INT64_MAX, None)
            self._what = f"the archive's id on response channel {self._response_uri} stream " \
                         f"{self.context.response_stream_id}"
            self._step = AWAIT_ARCHIVE_ID_RESPONSE
            return 0
        if self._step == AWAIT_ARCHIVE_ID_RESPONSE:
            self.archive_id = answered.relevant_id
        self._what = f"room on control channel {self.control_channel} stream {self.control_stream_id}"
        self._step = SEND_KEEP_ALIVE
        return 0

    # Requests

    cpdef ArchiveRequest ask(
        self, str name, str what, dict fields, int32_t wanted=0, int64_t timeout_ns=NULL_VALUE,
        Publication publication=None
    ):
        """Make a request, which the next turns send and see answered.

        Args:
            name: the name of the message, such as "ReplayRequest" (str).
            what: the purpose of the request, for an error's text (str).
            fields: the fields of the message, without the ids of session and request (dict).
            wanted: maximum number of descriptors that answer it (int); 0: a single response answers it.
            timeout_ns: how long it may wait for its answer, or for the next descriptor (int); -1: as long as the
                context says.
            publication: sends it, in place of the session's own (Publication).

        Raises ArchiveError when there is no session, or too many requests wait; CodecError for fields that do not fit.
        """
        if self._step != CONNECTED:
            raise ArchiveError(
                "client is closed" if self._step == CLOSED else f"no connection to the archive to ask for {what}")
        if len(self._requests) >= REQUESTS_MAX:
            raise ArchiveError(f"{REQUESTS_MAX} requests wait for their answers already, no room for {what}")
        fields["control_session_id"] = self.control_session_id
        return self._begin(name, what, fields, wanted,
                           self.context.message_timeout_ns if timeout_ns < 0 else timeout_ns, publication)

    cdef ArchiveRequest _begin(
        self, str name, str what, dict fields, int32_t wanted, int64_t timeout_ns, Publication publication
    ):
        cdef ArchiveRequest request = ArchiveRequest.__new__(ArchiveRequest)
        cdef int64_t correlation_id = self._client.next_correlation_id()
        request.correlation_id = correlation_id
        request.what = what
        request.relevant_id = request.code = NULL_VALUE
        request.items = []
        request._message = encode("archive", name, correlation_id=correlation_id, **fields)
        request._publication = self._publication if publication is None else publication
        request._wanted = wanted
        request._end_code = (
            CONTROL_RESPONSE_CODE_SUBSCRIPTION_UNKNOWN if name == "ListRecordingSubscriptionsRequest"
            else CONTROL_RESPONSE_CODE_RECORDING_UNKNOWN)
        request._is_replication = name == "ReplicateRequest2"
        request._timeout_ns = timeout_ns
        request._deadline_ns = deadline_after(self._clock.nano_time(), timeout_ns)
        self._requests[correlation_id] = request
        self._unsent.append(request)
        if request._deadline_ns < INT64_MAX:
            if len(self._deadlines) > 2 * len(self._requests) + DEADLINES_SPARE:
                self._deadlines = [
                    (each._deadline_ns, each.correlation_id) for each in (<dict> self._requests).values()]
                heapify(self._deadlines)
            else:
                heappush(self._deadlines, (request._deadline_ns, correlation_id))
        return request

    cpdef int tell(self, str name, dict fields) except -1:
        """Send a request at once; nobody waits for its answer, but an error is kept for :meth:`take_error`.

        Raises ArchiveError when there is no room, no session, or the archive is lost.
        """
        cdef bytes message
        cdef int _attempt
        if self._step != CONNECTED:
            raise ArchiveError(f"no connection to the archive to send {name}")
        message = encode("archive", name, control_session_id=self.control_session_id,
                         correlation_id=self._client.next_correlation_id(), **fields)
        for _attempt in range(ATTEMPTS):
            if self._try_send(self._publication, message):
                return 0
        raise ArchiveError(
            f"no room after {ATTEMPTS} attempts on control channel {self._publication.channel} stream "
            f"{self._publication.stream_id}")

    cpdef int follow(self, ArchiveRequest request) except -1:
        """Have an error that comes after the answer be the request's as well, until :meth:`forget`.

        A recording, a replay or a replication reports its end with an error like that.
        """
        if request.error is None:
            self._followed[request.correlation_id] = request
        return 0

    cpdef int forget(self, ArchiveRequest request) except -1:
        """Wait for the answer to a request no longer: it is done, with no error; it may have been sent.

        After the answer: follow it no longer.
        """
        self._followed.pop(request.correlation_id, None)
        if not request.is_done:
            request.on_done = None
            self._give_up(request, None)
        return 0

    cpdef object take_error(self):
        """The oldest error of the archive that answers no request (ArchiveError), which is forgotten; None: none."""
        return self._errors.popleft() if self._errors else None

    cpdef int check(self) except -1:
        """Take a turn, and raise the oldest error that answers no request (ArchiveError); and as :meth:`turn`."""
        self.turn()
        error = self.take_error()
        if error is not None:
            raise ArchiveError(f"archive error: {error}", code=error.code, correlation_id=error.correlation_id)
        return 0

    cdef int _give_up(self, ArchiveRequest request, object error) except -1:
        """End a request; its answer is ignored if it still comes."""
        if request._message is None:
            self._given_up.append(request.correlation_id)
        return self._finish(request, error)

    cdef int _finish(self, ArchiveRequest request, object error) except -1:
        del self._requests[request.correlation_id]
        request.is_done = True
        request.error = error
        request._message = None
        if error is not None:
            self._followed.pop(request.correlation_id, None)
        if request.on_done is not None:
            request.on_done(request)
        return 0

    cdef int _expire(self) except -1:
        cdef int64_t now_ns
        cdef int64_t deadline_ns
        cdef ArchiveRequest request
        if not self._deadlines:
            return 0
        now_ns = self._clock.nano_time()
        while self._deadlines:
            deadline_ns, correlation_id = self._deadlines[0]
            request = self._requests.get(correlation_id)
            if request is not None and deadline_ns > now_ns:
                return 0
            heappop(self._deadlines)
            if request is None:
                continue
            if request._deadline_ns > now_ns:       # descriptors came, and it waits for more
                heappush(self._deadlines, (request._deadline_ns, correlation_id))
                continue
            self._give_up(request, TimedOutError(
                f"waited {request._timeout_ns / 1e9:g} s for the archive's answer to {request.what}, correlation id "
                f"{correlation_id}"))
        return 0

    cdef int _send(self) except -1:
        cdef int sent = 0
        cdef ArchiveRequest request
        while self._unsent:
            request = self._unsent[0]
            if not request.is_done:
                if not self._try_send(request._publication, request._message):
                    return sent
                request._message = None
                sent += 1
            self._unsent.popleft()
        return sent

    cdef bint _try_send(self, Publication publication, bytes message) except -1:
        cdef int64_t result = publication.offer(<const uint8_t*> PyBytes_AS_STRING(message), len(message))
        if result > 0:
            return True
        if result in (BACK_PRESSURED, ADMIN_ACTION):
            return False
        raise self._lost(f"{publication_result_name(result)} on control channel {publication.channel} stream "
                         f"{publication.stream_id}")

    cdef object _lost(self, str what):
        """The error that says so. Requests are not answered any more, so nobody waits for them."""
        error = ArchiveError(f"connection to the archive is lost: {what}")
        self.fail(error)
        return error

    def fail(self, error):
        """End each request that waits with this error (Exception), which is that of those followed as well."""
        cdef ArchiveRequest request
        for request in list(self._requests.values()):
            self._finish(request, error)
        for request in self._followed.values():
            request.error = error
        self._followed.clear()
        self._unsent.clear()
        self._deadlines.clear()

    cpdef int reconnect(self) except -1:
        """Give the session up, with an error for each request that waits, and begin a connect, with new streams."""
        if self._step == CLOSED:
            raise ArchiveError("client is closed")
        self._check_not_reading()
        self._leave(ArchiveError("the connection to the archive was given up for a new one"))
        return self._begin_connect()

    cpdef int close(self) except -1:
        """End the session, close its streams and give up what was begun. Raises nothing; may be called twice."""
        if self._step == CLOSED:
            return 0
        self._leave(ArchiveError("client is closed"))
        self._step = CLOSED
        return 0

    cdef int _leave(self, object reason) except -1:
        cdef int _attempt
        cdef bytes message
        publication, subscription, pending = self._publication, self._subscription, self._pending
        try:
            if self.control_session_id != NULL_VALUE and self._publication.is_connected():
                message = encode("archive", "CloseSessionRequest", control_session_id=self.control_session_id)
                for _attempt in range(ATTEMPTS):
                    if self._try_send(self._publication, message):
                        break
                else:
                    raise ArchiveError(
                        f"failed to send close session: no room after {ATTEMPTS} attempts on control channel "
                        f"{self._publication.channel} stream {self._publication.stream_id}")
        except Exception as error:
            report("info", "archive session was not closed, the archive will time it out: %s", error)
        self._pending = None
        self._publication = None
        self._subscription = None
        self._connecting = None
        self._challenge = None
        self._assembler.reset()
        self._errors.clear()
        self._given_up.clear()
        self._step = ADD_STREAMS
        for closable in (pending, publication, subscription):
            try:
                if closable is not None:
                    closable.close()
            except Exception as error:
                report("warning", "cannot close a stream to an archive: %s", error)
        self.fail(reason)
        return 0

    # Waiting

    cpdef int invoke(self) except -1:
        """Let the client conduct, if no thread does; how much that was (int)."""
        return self._client.invoke()

    cpdef int idle(self, IdleStrategy idle, int work_count) except -1:
        """Let the client conduct, and idle with ``idle`` (IdleStrategy) after so much work (int) and that."""
        PyErr_CheckSignals()
        idle.idle(work_count + self._client.invoke())
        return 0

    cpdef int connect(self, IdleStrategy idle) except -1:
        """Take turns until it is connected, idling with ``idle`` (IdleStrategy). Raises as :meth:`turn`."""
        cdef Wait wait
        cdef Step step
        cdef int work_count
        if self._step == CONNECTED:
            return 0
        wait = Wait(self._client, idle, self.context.message_timeout_ns, self._what)
        while True:
            step = self._step
            work_count = self.turn()
            if self._step == CONNECTED:
                return 0
            if self._step != step:
                wait.begin(f"{self._what} (archive connect, step {self.step})")
            wait.turn(work_count)

    cpdef ArchiveRequest wait_for(self, ArchiveRequest request, IdleStrategy idle):
        """Take turns until a request is done, idling with ``idle`` (IdleStrategy); return it.

        Raises the request's error, ArchiveError too when it finds no room in the context's number of attempts, and as
        :meth:`turn`. Errors that answer no request are logged when they come before its answer.
        """
        cdef Wait wait = Wait(      # without a limit: the request has its own
            self._client, idle, INT64_MAX,
            f"the archive's answer to {request.what}, correlation id {request.correlation_id}")
        cdef int work_count
        cdef int attempts = self.context.message_retry_attempts
        try:
            while True:
                work_count = self.turn()
                if request.is_done:
                    break
                if request._message is not None:
                    attempts -= 1
                    if attempts <= 0:
                        raise ArchiveError(
                            f"failed to send {request.what}: no room after {self.context.message_retry_attempts} "
                            f"attempts on control channel {self.control_channel} stream {self.control_stream_id}")
                self._report_errors(request)
                wait.turn(work_count)
        finally:
            self.forget(request)
        if request.error is not None:
            raise failure(request)
        return request

    def _report_errors(self, ArchiveRequest request):
        while self._errors:
            error = self._errors.popleft()
            report(
                "warning", "archive error, code %d correlation id %d, while waiting for the answer to %s: %s",
                error.code, error.correlation_id, request.what, error)

    # Messages

    cdef int _read(self) except -1:
        cdef int fragments
        self._is_reading = True
        try:
            fragments = self._subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)
        finally:
            self._is_reading = False
        if fragments == 0 and not self._subscription.is_connected():
            raise self._lost(f"response channel {self._subscription.channel} stream "
                             f"{self._subscription.stream_id} is not connected")
        return fragments

    cdef int _check_not_reading(self) except -1:
        if self._is_reading:                # what it reads would come again, and again to on_signal
            raise ArchiveError("the archive's messages are being read: on_signal may not wait, nor another thread")
        return 0

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if sbe_read_header(buffer, length, &message) < 0:
            raise CodecError(f"message of {length} bytes from the archive: too short for a message header")
        if message.schema_id != ARCHIVE_SCHEMA_ID:
            raise ArchiveError(f"expected schemaId={ARCHIVE_SCHEMA_ID}, actual={message.schema_id}")
        if message.template_id == CONTROL_RESPONSE_TEMPLATE_ID:
            return self._on_control_response(buffer, length)
        if message.template_id == RECORDING_DESCRIPTOR_TEMPLATE_ID:
            descriptor = _recording_descriptor(buffer, length)
            self._on_item(descriptor.control_session_id, descriptor.correlation_id, descriptor)
        elif message.template_id == RECORDING_SUBSCRIPTION_DESCRIPTOR_TEMPLATE_ID:
            descriptor = _subscription_descriptor(buffer, length)
            self._on_item(descriptor.control_session_id, descriptor.correlation_id, descriptor)
        elif message.template_id == CHALLENGE_TEMPLATE_ID:
            self._on_challenge(buffer, length)
        elif message.template_id == RECORDING_SIGNAL_EVENT_TEMPLATE_ID and self.on_signal is not None:
            self._on_signal(buffer, length)
        return ACTION_CONTINUE

    cdef int _on_control_response(self, const uint8_t* buffer, size_t length) except -1:
        cdef ControlResponse response
        cdef ArchiveRequest request
        cdef int64_t control_session_id, correlation_id, relevant_id
        cdef int32_t code
        _check(control_response_wrap(&response, buffer, length), "ControlResponse")
        control_session_id = control_response_control_session_id(&response)
        correlation_id = control_response_correlation_id(&response)
        relevant_id = control_response_relevant_id(&response)
        code = control_response_code(&response)
        if self._step == CONNECTED and control_session_id != self.control_session_id:
            return ACTION_CONTINUE
        request = self._requests.get(correlation_id)
        if request is None:
            if correlation_id in self._given_up:
                self._given_up.remove(correlation_id)
                return ACTION_CONTINUE
            if code == CONTROL_RESPONSE_CODE_ERROR and self._step == CONNECTED:
                error = ArchiveError(
                    _text(&response.error_message), code=<int32_t> relevant_id, correlation_id=correlation_id)
                for request in self._followed.values():
                    if correlation_id == request.correlation_id or (
                            request._is_replication and correlation_id == request.relevant_id):
                        del self._followed[request.correlation_id]
                        request.error = error
                        return ACTION_CONTINUE
                self._errors.append(error)
                return ACTION_BREAK         # so that what follows is read later
            return ACTION_CONTINUE          # the archive repeats its answer to the connect
        self.control_session_id = control_session_id    # so that it is closed, also when it is refused
        if self._step != CONNECTED:
            self._archive_version = control_response_version(&response)
        request.code = code
        request.relevant_id = relevant_id
        error = None
        if code == CONTROL_RESPONSE_CODE_ERROR:
            error = ArchiveError(
                _text(&response.error_message), code=<int32_t> relevant_id, correlation_id=correlation_id)
        elif code != CONTROL_RESPONSE_CODE_OK and (request._wanted == 0 or code != request._end_code):
            error = ArchiveError(f"unexpected response code {code} while waiting for {request.what}",
                                 correlation_id=correlation_id)
        self._finish(request, error)
        return ACTION_CONTINUE

    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1:
        cdef Challenge challenge
        _check(challenge_wrap(&challenge, buffer, length), "Challenge")
        if self._step == AWAIT_CONNECT_RESPONSE and not self._connecting.is_done and (
                challenge_correlation_id(&challenge) == self._connecting.correlation_id):
            self.control_session_id = challenge_control_session_id(&challenge)
            self._challenge = (<const char*> challenge.encoded_challenge.data)[:challenge.encoded_challenge.length] \
                if challenge.encoded_challenge.length > 0 else b""
            self._finish(self._connecting, None)
        return 0

    cdef int _on_item(self, int64_t control_session_id, int64_t correlation_id, object item) except -1:
        cdef ArchiveRequest request = self._requests.get(correlation_id)
        if request is None or request._wanted == 0 or control_session_id != self.control_session_id:
            return 0
        request.items.append(item)
        if len(request.items) >= request._wanted:
            request.code = CONTROL_RESPONSE_CODE_OK
            return self._finish(request, None)
        request._deadline_ns = deadline_after(self._clock.nano_time(), request._timeout_ns)
        return 0

    cdef int _on_signal(self, const uint8_t* buffer, size_t length) except -1:
        cdef _SignalEvent event
        cdef int32_t signal
        _check(recording_signal_event_wrap(&event, buffer, length), "RecordingSignalEvent")
        if recording_signal_event_control_session_id(&event) != self.control_session_id:
            return 0
        signal = recording_signal_event_signal(&event)
        self.on_signal(RecordingSignalEvent(
            recording_signal_event_correlation_id(&event), recording_signal_event_recording_id(&event),
            recording_signal_event_subscription_id(&event), recording_signal_event_position(&event),
            RecordingSignal(signal) if signal in RecordingSignal else signal))
        return 0

    def __repr__(self):
        return f"<{type(self).__name__} {self.step} on {self.control_channel} stream {self.control_stream_id}>"


def failure(ArchiveRequest request not None):
    """The error of a request (Exception), whose text says what was asked for where the archive has refused it."""
    if request.code != CONTROL_RESPONSE_CODE_ERROR:
        return request.error
    return ArchiveError(
        f"{request.what}: {request.error}", code=request.error.code, correlation_id=request.correlation_id)


cdef object _recording_descriptor(const uint8_t* buffer, size_t length):
    cdef RecordingDescriptor descriptor
    _check(recording_descriptor_wrap(&descriptor, buffer, length), "RecordingDescriptor")
    return CatalogDescriptor(
        control_session_id=recording_descriptor_control_session_id(&descriptor),
        correlation_id=recording_descriptor_correlation_id(&descriptor),
        recording_id=recording_descriptor_recording_id(&descriptor),
        start_timestamp=recording_descriptor_start_timestamp(&descriptor),
        stop_timestamp=recording_descriptor_stop_timestamp(&descriptor),
        start_position=recording_descriptor_start_position(&descriptor),
        stop_position=recording_descriptor_stop_position(&descriptor),
        initial_term_id=recording_descriptor_initial_term_id(&descriptor),
        segment_file_length=recording_descriptor_segment_file_length(&descriptor),
        term_buffer_length=recording_descriptor_term_buffer_length(&descriptor),
        mtu_length=recording_descriptor_mtu_length(&descriptor),
        session_id=recording_descriptor_session_id(&descriptor),
        stream_id=recording_descriptor_stream_id(&descriptor),
        stripped_channel=_text(&descriptor.stripped_channel),
        original_channel=_text(&descriptor.original_channel),
        source_identity=_text(&descriptor.source_identity),
    )


cdef object _subscription_descriptor(const uint8_t* buffer, size_t length):
    cdef _SubscriptionDescriptor descriptor
    _check(recording_subscription_descriptor_wrap(&descriptor, buffer, length), "RecordingSubscriptionDescriptor")
    return RecordingSubscriptionDescriptor(
        recording_subscription_descriptor_control_session_id(&descriptor),
        recording_subscription_descriptor_correlation_id(&descriptor),
        recording_subscription_descriptor_subscription_id(&descriptor),
        recording_subscription_descriptor_stream_id(&descriptor),
        _text(&descriptor.stripped_channel))


cdef class Wait:
    """A wait of one or several steps with one limit, done turn by turn: it keeps the client's conductor
    going, idles, reports what lasts long, and ends with TimedOutError."""

    def __init__(self, Client client not None, IdleStrategy idle not None, int64_t limit_ns, str what):
        self._client = client
        self._idle = idle
        self._limit_ns = limit_ns
        self._deadline_ns = deadline_after(client.clock.nano_time(), limit_ns)
        idle.reset()
        self.begin(what)

    cdef int begin(self, str what) except -1:
        self._what = what
        self._reporter = WaitReporter(self._client.clock, self._client.client_name, what)
        return 0

    cdef int turn(self, int work_count) except -1:
        if self._client.clock.nano_time() >= self._deadline_ns:
            raise TimedOutError(f"waited {self._limit_ns / 1e9:g} s for {self._what}")
        PyErr_CheckSignals()
        self._reporter.tick()
        self._idle.idle(work_count + self._client.invoke())
        return 0


hide((ArchiveRequest,))
seal((ArchiveConnection, Wait))
