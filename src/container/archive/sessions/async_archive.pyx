"""A client of another archive, as a state machine that never waits: what a replication asks of its source.

Upstream: AeronArchive.AsyncConnect, ArchiveProxy.java, ControlResponsePoller.java, RecordingDescriptorPoller.java. The
requests are encoded and their answers read here, so that nothing is kept of messages that nobody asked for. Unlike
upstream's client it asks the driver for no session id, for which it would have to wait: it takes that of its
publication.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from container.archive.channel_texts import parse_channel
from container.archive.sessions cimport responses
from container.codecs.archive cimport (
    ARCHIVE_ID_REQUEST_ENCODED_LENGTH, ARCHIVE_SCHEMA_ID, CHALLENGE_TEMPLATE_ID, CLOSE_SESSION_REQUEST_ENCODED_LENGTH,
    CONTROL_RESPONSE_CODE_ERROR, CONTROL_RESPONSE_CODE_OK, CONTROL_RESPONSE_CODE_RECORDING_UNKNOWN,
    BOOLEAN_FALSE, BOOLEAN_TRUE, CONTROL_RESPONSE_TEMPLATE_ID, KEEP_ALIVE_REQUEST_ENCODED_LENGTH,
    LIST_RECORDING_REQUEST_ENCODED_LENGTH, RECORDING_DESCRIPTOR_TEMPLATE_ID, RECORDING_POSITION_REQUEST_ENCODED_LENGTH,
    PURGE_RECORDING_REQUEST_ENCODED_LENGTH, PURGE_SEGMENTS_REQUEST_ENCODED_LENGTH, RECORDING_SIGNAL_EVENT_TEMPLATE_ID,
    REPLAY_TOKEN_REQUEST_ENCODED_LENGTH, SOURCE_LOCATION_LOCAL, SOURCE_LOCATION_REMOTE,
    STOP_POSITION_REQUEST_ENCODED_LENGTH, STOP_RECORDING_BY_IDENTITY_REQUEST_ENCODED_LENGTH,
    STOP_RECORDING_SUBSCRIPTION_REQUEST_ENCODED_LENGTH, STOP_REPLAY_REQUEST_ENCODED_LENGTH, Challenge, ControlResponse,
    RecordingDescriptor, RecordingSignalEvent, archive_id_request_encode,
    auth_connect_request_encode, auth_connect_request_encoded_length, challenge_control_session_id,
    challenge_correlation_id, challenge_wrap, close_session_request_encode, control_response_code,
    control_response_control_session_id, control_response_correlation_id, control_response_relevant_id,
    control_response_version, control_response_wrap, extend_recording_request2_encode,
    extend_recording_request2_encoded_length, keep_alive_request_encode, list_recording_request_encode,
    purge_recording_request_encode, purge_segments_request_encode,
    recording_descriptor_control_session_id, recording_descriptor_correlation_id, recording_descriptor_initial_term_id,
    recording_descriptor_mtu_length, recording_descriptor_recording_id, recording_descriptor_segment_file_length,
    recording_descriptor_session_id, recording_descriptor_start_position, recording_descriptor_start_timestamp,
    recording_descriptor_stop_position, recording_descriptor_stop_timestamp, recording_descriptor_stream_id,
    recording_descriptor_term_buffer_length, recording_descriptor_wrap, recording_position_request_encode,
    recording_signal_event_control_session_id, recording_signal_event_correlation_id, recording_signal_event_position,
    recording_signal_event_recording_id, recording_signal_event_signal, recording_signal_event_wrap,
    replay_request_encode, replay_request_encoded_length, replay_token_request_encode, start_recording_request2_encode,
    start_recording_request2_encoded_length, stop_position_request_encode, stop_recording_by_identity_request_encode,
    stop_recording_subscription_request_encode, stop_replay_request_encode,
)
from container.codecs.sbe cimport MessageHeader, VarData, sbe_error_text, sbe_read_header
from container.common import channel_uri
from container.common.loggers import report
from container.common.sealed cimport seal
from container.errors import ArchiveError, CodecError, TimedOutError
from container.files.catalog import RecordingDescriptor as _RecordingDescriptor
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_BREAK, ACTION_CONTINUE, ADMIN_ACTION, BACK_PRESSURED, NULL_VALUE, FrameHeader,
)
from container.transport.seam cimport Client
from container.transport.streams cimport FragmentHandler, PendingAdd, Publication, publication_result_name
from container.version import client_info

cdef enum:
    VERSION_WITH_ARCHIVE_ID = 1 << 16 | 11 << 8
    FRAGMENT_LIMIT = 10
    ATTEMPTS = 3                            # of sending what is not answered

cdef int64_t NO_DEADLINE = INT64_MAX

STEPS = ("ADD_STREAMS", "AWAIT_PUBLICATION_CONNECTED", "RESOLVE_RESPONSE_CHANNEL", "AWAIT_CONNECT_RESPONSE",
         "AWAIT_ARCHIVE_ID_RESPONSE", "SEND_KEEP_ALIVE", "CONNECTED", "CLOSED")

_RESPONSE_CORRELATION_ID = "response-correlation-id"


cdef inline uint8_t* _data(bytearray request) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(request)


cdef inline str _text(const VarData* data):
    return (<const char*> data.data)[:data.length].decode("ascii", "replace") if data.length > 0 else ""


cdef int _check(int result, str message) except -1:
    if result < 0:
        raise CodecError(f"{message} from the archive: {sbe_error_text(result).decode('ascii')}")
    return 0


cdef class SignalListener:
    """Is given the signals of an archive, as they come."""

    cdef int on_signal(self, int64_t correlation_id, int64_t recording_id, int64_t position, int32_t signal) except -1:
        return 0


cdef class AsyncArchive(FragmentHandler):
    """A session with another archive; :meth:`poll` connects it, and then answers one request at a time.

    Args:
        client: what its streams are added to, and what somebody invokes (Client).
        control_channel, control_stream_id: what that archive listens to (str, int).
        response_channel, response_stream_id: what it answers on (str, int).
        term_buffer_length, mtu_length: in bytes; and is_sparse (bool): of both channels where they do not say.
        client_name: what that archive shows of this client (str).
        encoded_credentials: for that archive (bytes).
        message_timeout_ns: limit of the connect, and of each request (int).

    Raises ConfigurationError for a channel that is none.
    """

    def __init__(
        self, Client client not None, *, str control_channel not None, int32_t control_stream_id,
        str response_channel not None, int32_t response_stream_id, int64_t term_buffer_length, int64_t mtu_length,
        bint is_sparse, str client_name not None, bytes encoded_credentials not None, int64_t message_timeout_ns
    ):
        control_uri = parse_channel(control_channel)
        response_uri = parse_channel(response_channel)
        for uri in (control_uri, response_uri):
            uri.put_if_absent("term-length", str(term_buffer_length))
            uri.put_if_absent("mtu", str(mtu_length))
            uri.put_if_absent("sparse", "true" if is_sparse else "false")
        self._is_response_mode = response_uri.get("control-mode") == "response"
        if not self._is_response_mode:      # it may be that of the client that gave the channel away
            control_uri.remove(channel_uri.SESSION_ID)
        self.control_channel = str(control_uri)
        self.control_stream_id = control_stream_id
        self.control_session_id = self.archive_id = self.request_id = self.relevant_id = NULL_VALUE
        self._client = client
        self._clock = client.clock
        self._response_uri = response_uri
        self._response_stream_id = response_stream_id
        self._client_name = client_name
        self._credentials = encoded_credentials
        self._message_timeout_ns = message_timeout_ns
        self._assembler = SessionFragmentAssembler(self)
        self._correlation_id = NULL_VALUE
        self._step = ADD_STREAMS
        self._what = f"the driver to add streams to an archive on {self.control_channel}"
        self._deadline_ns = self._clock.nano_time() + message_timeout_ns

    @property
    def step(self):
        """How far the connect is (str), one of ``STEPS``."""
        return STEPS[<int> self._step]

    cdef bint is_connected(self) noexcept:
        return self._step == CONNECTED

    cdef bint is_waiting(self) noexcept:
        """Whether a request waits for its answer: no other can be made."""
        return self._correlation_id != NULL_VALUE

    cdef bint is_alive(self) noexcept:
        """Whether both streams of the session are connected."""
        return (self._step == CONNECTED and self._publication.is_connected() and self._subscription.is_connected())

    cdef int listen(self, SignalListener listener) except -1:
        """Give signals to a listener from now on, while :meth:`poll` is called."""
        self._listener = listener
        return 0

    cpdef bint poll(self) except -1:
        """Take a turn; whether it is connected and no request waits for its answer any more (bool).

        The answer is in :attr:`relevant_id` and :attr:`descriptor`. Raises ArchiveError when the archive reports an
        error, whatever that is about, and when it is lost; TimedOutError when it does not answer in time, and the
        request is forgotten then; RegistrationError when the driver refuses a stream; CodecError.
        """
        if self._step == CLOSED:
            raise ArchiveError("client is closed")
        if self._clock.nano_time() >= self._deadline_ns:
            self._time_out()
        if self._step != CONNECTED:
            return self._connect()
        if self._correlation_id != NULL_VALUE:
            if not self._exchange():
                return False
            self._deadline_ns = NO_DEADLINE
            return True
        self._read()
        self._on_message()
        return True

    cdef int _time_out(self) except -1:
        cdef str step = "" if self._step == CONNECTED else f" (archive connect, step {self.step})"
        self._deadline_ns = NO_DEADLINE
        self._correlation_id = NULL_VALUE
        self._request = None
        raise TimedOutError(f"waited {self._message_timeout_ns / 1e9:g} s for {self._what}{step}")

    # The connect

    cdef bint _connect(self) except -1:
        if self._step == ADD_STREAMS and self._add_streams():
            self._step = AWAIT_PUBLICATION_CONNECTED
            self._what = f"an archive to listen on {self.control_channel} stream {self.control_stream_id}"
        if self._step == AWAIT_PUBLICATION_CONNECTED and self._publication.is_connected():
            self._step = RESOLVE_RESPONSE_CHANNEL
            self._what = f"the driver to bind {self._subscription.channel}"
        if self._step == RESOLVE_RESPONSE_CHANNEL:
            self._begin_connect()
        elif self._step in (AWAIT_CONNECT_RESPONSE, AWAIT_ARCHIVE_ID_RESPONSE) and self._exchange():
            self._on_connect_response()
        if self._step == SEND_KEEP_ALIVE and self._try_send(self._publication, self._request):
            self._request = None
            self._step = CONNECTED
            self._deadline_ns = NO_DEADLINE
        return self._step == CONNECTED

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
        if self._is_pending_subscription:
            if not self._is_response_mode:      # keeps other clients' responses out
                self._response_uri.put(channel_uri.SESSION_ID, str(self._publication.session_id))
            return self._client.begin_add_subscription(str(self._response_uri), self._response_stream_id, False)
        if self._is_response_mode:
            uri = parse_channel(self.control_channel)
            uri.put(_RESPONSE_CORRELATION_ID, str(self._subscription.registration_id))
            return self._client.begin_add_publication(str(uri), self.control_stream_id, True)
        return self._client.begin_add_publication(self.control_channel, self.control_stream_id, True)

    cdef bint _begin_connect(self) except -1:
        cdef str endpoint = self._response_uri.get(channel_uri.ENDPOINT)
        cdef str resolved
        cdef bytes channel, info
        cdef bytearray request
        cdef int64_t correlation_id
        if endpoint is not None and endpoint.endswith(":0"):
            resolved = self._subscription.resolved_endpoint()
            if not resolved:
                return False
            self._response_uri.replace_wildcard_port(resolved)
        channel = str(self._response_uri).encode("ascii")
        info = client_info(self._client_name).encode("ascii", "replace")
        correlation_id = self._client.next_correlation_id()
        request = bytearray(auth_connect_request_encoded_length(
            <uint32_t> len(channel), <uint32_t> len(self._credentials), <uint32_t> len(info)))
        auth_connect_request_encode(
            _data(request), len(request), correlation_id, self._response_stream_id, responses.PROTOCOL_VERSION,
            channel, <uint32_t> len(channel), self._credentials, <uint32_t> len(self._credentials),
            info, <uint32_t> len(info))
        self._request = request
        self._correlation_id = correlation_id
        self._what = f"the answer to the connect request on {self._response_uri}"
        self._step = AWAIT_CONNECT_RESPONSE
        return True

    cdef bint _on_connect_response(self) except -1:
        self._correlation_id = NULL_VALUE
        self.control_session_id = self._message_session_id
        if self._is_challenge:
            raise ArchiveError("replication does not support challenge/response authentication")
        if self._step == AWAIT_CONNECT_RESPONSE and self._message_version >= VERSION_WITH_ARCHIVE_ID:
            self._correlation_id = self._client.next_correlation_id()
            self._request = bytearray(ARCHIVE_ID_REQUEST_ENCODED_LENGTH)
            archive_id_request_encode(
                _data(self._request), len(self._request), self.control_session_id, self._correlation_id)
            self._what = f"the archive's id on {self._response_uri}"
            self._step = AWAIT_ARCHIVE_ID_RESPONSE
            return True
        if self._step == AWAIT_ARCHIVE_ID_RESPONSE:
            self.archive_id = self._message_relevant_id
        self._request = bytearray(KEEP_ALIVE_REQUEST_ENCODED_LENGTH)
        keep_alive_request_encode(_data(self._request), len(self._request), self.control_session_id, NULL_VALUE)
        self._what = f"room on {self.control_channel}"
        self._step = SEND_KEEP_ALIVE
        return True

    # Requests

    cpdef int list_recording(self, int64_t recording_id) except -1:
        """Ask what is known of a recording (10): :attr:`descriptor`."""
        cdef int64_t correlation_id = self._begin(f"the descriptor of recording {recording_id}")
        self._request = bytearray(LIST_RECORDING_REQUEST_ENCODED_LENGTH)
        list_recording_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id)
        return 0

    cpdef int recording_position(self, int64_t recording_id) except -1:
        """Ask how far a recording is recorded, in bytes (12): :attr:`relevant_id`, -1 unless it is active."""
        cdef int64_t correlation_id = self._begin(f"the position of recording {recording_id}")
        self._request = bytearray(RECORDING_POSITION_REQUEST_ENCODED_LENGTH)
        recording_position_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id)
        return 0

    cpdef int replay_token(self, int64_t recording_id) except -1:
        """Ask for a token, with which another publication may ask for a replay (105): :attr:`relevant_id`."""
        cdef int64_t correlation_id = self._begin(f"a token for a replay of recording {recording_id}")
        self._request = bytearray(REPLAY_TOKEN_REQUEST_ENCODED_LENGTH)
        replay_token_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id)
        return 0

    cpdef int replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id,
        int32_t file_io_max_length, int64_t replay_token=NULL_VALUE, Publication publication=None
    ) except -1:
        """Ask for a replay (6): :attr:`relevant_id` is its id.

        Args:
            recording_id: of the recording.
            position, length: which part of it, in bytes; a length of -1 follows it to its end.
            channel, stream_id: on which it is replayed.
            file_io_max_length: how much is read at once, in bytes; -1: as that archive likes.
            replay_token: -1: none.
            publication: on which the request is sent in place of the session's own.
        """
        cdef bytes encoded = channel.encode("ascii")
        cdef int64_t correlation_id = self._begin(f"the replay of recording {recording_id} to {channel}")
        self._request_publication = publication
        self._request = bytearray(replay_request_encoded_length(<uint32_t> len(encoded)))
        replay_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id, position,
            length, stream_id, file_io_max_length, replay_token, encoded, <uint32_t> len(encoded))
        return 0

    cpdef int start_recording(self, str channel, int32_t stream_id, bint is_local, bint is_auto_stop) except -1:
        """Ask that a stream be recorded (63): :attr:`relevant_id` is the id of the subscription.

        Args:
            channel, stream_id: what is recorded.
            is_local: whether it is published on this driver.
            is_auto_stop: whether the recording stops for good with its first image.
        """
        cdef bytes encoded = channel.encode("ascii")
        cdef int64_t correlation_id = self._begin(f"the start of a recording of {channel}")
        self._request = bytearray(start_recording_request2_encoded_length(<uint32_t> len(encoded)))
        start_recording_request2_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, stream_id,
            SOURCE_LOCATION_LOCAL if is_local else SOURCE_LOCATION_REMOTE,
            BOOLEAN_TRUE if is_auto_stop else BOOLEAN_FALSE, encoded, <uint32_t> len(encoded))
        return 0

    cpdef int extend_recording(
        self, int64_t recording_id, str channel, int32_t stream_id, bint is_local, bint is_auto_stop
    ) except -1:
        """Ask that a recording go on (64), with the stream and the answer of :meth:`start_recording`."""
        cdef bytes encoded = channel.encode("ascii")
        cdef int64_t correlation_id = self._begin(f"recording {recording_id} to go on with {channel}")
        self._request = bytearray(extend_recording_request2_encoded_length(<uint32_t> len(encoded)))
        extend_recording_request2_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id, stream_id,
            SOURCE_LOCATION_LOCAL if is_local else SOURCE_LOCATION_REMOTE,
            BOOLEAN_TRUE if is_auto_stop else BOOLEAN_FALSE, encoded, <uint32_t> len(encoded))
        return 0

    cpdef int stop_recording(self, int64_t subscription_id) except -1:
        """Ask that a stream be recorded no longer (14); ArchiveError with UNKNOWN_SUBSCRIPTION where it is not."""
        cdef int64_t correlation_id = self._begin(f"the end of the recording of subscription {subscription_id}")
        self._request = bytearray(STOP_RECORDING_SUBSCRIPTION_REQUEST_ENCODED_LENGTH)
        stop_recording_subscription_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, subscription_id)
        return 0

    cpdef int stop_recording_by_identity(self, int64_t recording_id) except -1:
        """Ask that a recording be stopped (65): :attr:`relevant_id` is 1 where it was active, else 0."""
        cdef int64_t correlation_id = self._begin(f"the end of recording {recording_id}")
        self._request = bytearray(STOP_RECORDING_BY_IDENTITY_REQUEST_ENCODED_LENGTH)
        stop_recording_by_identity_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id)
        return 0

    cpdef int stop_position(self, int64_t recording_id) except -1:
        """Ask where a recording ends, in bytes (15): :attr:`relevant_id`, -1 while it is active."""
        cdef int64_t correlation_id = self._begin(f"the stop position of recording {recording_id}")
        self._request = bytearray(STOP_POSITION_REQUEST_ENCODED_LENGTH)
        stop_position_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id)
        return 0

    cpdef int purge_recording(self, int64_t recording_id) except -1:
        """Ask that a stopped recording be deleted with all its files (104), which goes on after the answer."""
        cdef int64_t correlation_id = self._begin(f"the deletion of recording {recording_id}")
        self._request = bytearray(PURGE_RECORDING_REQUEST_ENCODED_LENGTH)
        purge_recording_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id)
        return 0

    cpdef int purge_segments(self, int64_t recording_id, int64_t new_start_position) except -1:
        """Ask that a recording begin at a later segment (55): :attr:`relevant_id` is how many are deleted."""
        cdef int64_t correlation_id = self._begin(f"recording {recording_id} to begin at {new_start_position}")
        self._request = bytearray(PURGE_SEGMENTS_REQUEST_ENCODED_LENGTH)
        purge_segments_request_encode(
            _data(self._request), len(self._request), self.control_session_id, correlation_id, recording_id,
            new_start_position)
        return 0

    cpdef int stop_replay(self, int64_t replay_session_id) except -1:
        """Ask that a replay be stopped (7), without waiting for the answer. Raises ArchiveError when it cannot."""
        cdef bytearray request = bytearray(STOP_REPLAY_REQUEST_ENCODED_LENGTH)
        stop_replay_request_encode(
            _data(request), len(request), self.control_session_id, self._client.next_correlation_id(),
            replay_session_id)
        return self._send_unanswered(request)

    cdef int64_t _begin(self, str what) except? -1:
        if self._step != CONNECTED:
            raise ArchiveError(f"no connection to the archive to ask for {what}")
        self._correlation_id = self.request_id = self._client.next_correlation_id()
        self._deadline_ns = self._clock.nano_time() + self._message_timeout_ns
        self._what = what
        self._request_publication = None
        self.descriptor = None
        self.relevant_id = NULL_VALUE
        return self._correlation_id

    cdef bint _exchange(self) except -1:
        """Send what is to be sent, read at most one message, and say whether it is the answer."""
        cdef Publication publication = self._request_publication
        if self._request is not None:
            if not self._try_send(self._publication if publication is None else publication, self._request):
                return False
            self._request = None
        self._read()
        return self._on_message()

    cdef bint _on_message(self) except -1:
        cdef bint is_answer = self._has_message and self._message_correlation_id == self._correlation_id
        if not self._has_message:
            if self._step == CONNECTED and not self._subscription.is_connected():
                raise self._lost(f"response channel {self._subscription.channel} stream "
                                 f"{self._subscription.stream_id} is not connected")
            return False
        if self._step == CONNECTED and self._message_session_id != self.control_session_id:
            return False
        if self._message_code == CONTROL_RESPONSE_CODE_ERROR and (is_answer or self._step == CONNECTED):
            if is_answer:
                self._correlation_id = NULL_VALUE
                self._deadline_ns = NO_DEADLINE
            self.control_session_id = self._message_session_id      # so that it is closed
            raise ArchiveError(
                self._message_text, code=<int32_t> self._message_relevant_id,
                correlation_id=self._message_correlation_id)
        if not is_answer or self._correlation_id == NULL_VALUE:
            return False
        if self._message_descriptor is None and not self._is_challenge and not (
                self._message_code == CONTROL_RESPONSE_CODE_OK
                or self._message_code == CONTROL_RESPONSE_CODE_RECORDING_UNKNOWN):
            raise ArchiveError(f"unexpected response code {self._message_code} while waiting for {self._what}",
                               correlation_id=self._message_correlation_id)
        self.descriptor = self._message_descriptor
        self.relevant_id = self._message_relevant_id
        self._correlation_id = NULL_VALUE
        return True

    cdef bint _try_send(self, Publication publication, bytearray request) except -1:
        cdef int64_t result = publication.offer(_data(request), len(request))
        if result > 0:
            return True
        if result in (BACK_PRESSURED, ADMIN_ACTION):
            return False
        raise self._lost(f"{publication_result_name(result)} on control channel {publication.channel} stream "
                         f"{publication.stream_id}")

    cdef object _lost(self, str what):
        """The error that says so. What was asked for is not answered any more, so nobody waits for it."""
        if self._step == CONNECTED:
            self._correlation_id = NULL_VALUE
            self._deadline_ns = NO_DEADLINE
            self._request = None
        return ArchiveError(f"connection to the archive is lost: {what}")

    cdef int _send_unanswered(self, bytearray request) except -1:
        cdef int _attempt
        for _attempt in range(ATTEMPTS):
            if self._try_send(self._publication, request):
                return 0
        raise ArchiveError(
            f"no room after {ATTEMPTS} attempts on control channel {self._publication.channel} stream "
            f"{self._publication.stream_id}")

    cpdef int close(self) except -1:
        """End the session, close its streams and give up what was begun. Raises nothing; may be called twice."""
        cdef object publication = self._publication, subscription = self._subscription, pending = self._pending
        cdef bytearray request
        if self._step == CLOSED:
            return 0
        self._step = CLOSED
        self._pending = None
        self._request = None
        try:
            if self.control_session_id != NULL_VALUE and self._publication.is_connected():
                request = bytearray(CLOSE_SESSION_REQUEST_ENCODED_LENGTH)
                close_session_request_encode(_data(request), len(request), self.control_session_id)
                self._send_unanswered(request)
        except Exception as error:
            report("info", "archive session was not closed, the archive will time it out: %s", error)
        for closable in (pending, publication, subscription):
            try:
                if closable is not None:
                    closable.close()
            except Exception as error:
                report("warning", "cannot close a stream to an archive: %s", error)
        return 0

    # Messages

    cdef int _read(self) except -1:
        self._has_message = False
        self._is_challenge = False
        self._message_code = NULL_VALUE
        self._message_relevant_id = NULL_VALUE
        self._message_descriptor = None
        return self._subscription.controlled_poll(self._assembler, FRAGMENT_LIMIT)

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef MessageHeader message
        if self._has_message:
            return ACTION_ABORT     # another image's message; the next poll gets it
        if sbe_read_header(buffer, length, &message) < 0:
            raise CodecError(f"message of {length} bytes from the archive: too short for a message header")
        if message.schema_id != ARCHIVE_SCHEMA_ID:
            raise ArchiveError(f"expected schemaId={ARCHIVE_SCHEMA_ID}, actual={message.schema_id}")
        if message.template_id == CONTROL_RESPONSE_TEMPLATE_ID:
            self._on_control_response(buffer, length)
        elif message.template_id == CHALLENGE_TEMPLATE_ID:
            self._on_challenge(buffer, length)
        elif message.template_id == RECORDING_DESCRIPTOR_TEMPLATE_ID:
            self._on_descriptor(buffer, length)
        else:
            if message.template_id == RECORDING_SIGNAL_EVENT_TEMPLATE_ID and self._listener is not None:
                self._on_signal(buffer, length)
            return ACTION_CONTINUE
        self._has_message = True
        return ACTION_BREAK

    cdef int _on_control_response(self, const uint8_t* buffer, size_t length) except -1:
        cdef ControlResponse response
        _check(control_response_wrap(&response, buffer, length), "ControlResponse")
        self._message_session_id = control_response_control_session_id(&response)
        self._message_correlation_id = control_response_correlation_id(&response)
        self._message_relevant_id = control_response_relevant_id(&response)
        self._message_code = control_response_code(&response)
        self._message_version = control_response_version(&response)
        self._message_text = _text(&response.error_message)
        return 0

    cdef int _on_challenge(self, const uint8_t* buffer, size_t length) except -1:
        cdef Challenge challenge
        _check(challenge_wrap(&challenge, buffer, length), "Challenge")
        self._message_session_id = challenge_control_session_id(&challenge)
        self._message_correlation_id = challenge_correlation_id(&challenge)
        self._is_challenge = True
        return 0

    cdef int _on_descriptor(self, const uint8_t* buffer, size_t length) except -1:
        cdef RecordingDescriptor descriptor
        _check(recording_descriptor_wrap(&descriptor, buffer, length), "RecordingDescriptor")
        self._message_session_id = recording_descriptor_control_session_id(&descriptor)
        self._message_correlation_id = recording_descriptor_correlation_id(&descriptor)
        self._message_descriptor = _RecordingDescriptor(
            control_session_id=self._message_session_id,
            correlation_id=self._message_correlation_id,
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
        return 0

    cdef int _on_signal(self, const uint8_t* buffer, size_t length) except -1:
        cdef RecordingSignalEvent event
        _check(recording_signal_event_wrap(&event, buffer, length), "RecordingSignalEvent")
        if recording_signal_event_control_session_id(&event) == self.control_session_id:
            self._listener.on_signal(
                recording_signal_event_correlation_id(&event), recording_signal_event_recording_id(&event),
                recording_signal_event_position(&event), recording_signal_event_signal(&event))
        return 0

    def __repr__(self):
        return f"<AsyncArchive {self.step} on {self.control_channel} stream {self.control_stream_id}>"


seal((AsyncArchive,))
