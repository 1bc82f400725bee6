"""A replication: a recording of another archive is copied into one of this archive, which then continues it.

Upstream: ReplicationSession.java. A replication is a client of the source, which it asks for a replay, and a recording
of that replay. It outlives the control session that asked for it; all it sends has the replication's id as the
correlation id, and the last of it, once and whatever happens, is REPLICATE_END.

Better than upstream's: what is recorded counts, not what was read, so that SYNC is not sent when a write has failed; no
step waits without a limit until the replay has begun; and nothing is taken from the source's description of a recording
that this archive could not open again.
"""
from libc.stdint cimport INT64_MAX, int64_t

from container.archive import error_codes
from container.archive.channel_texts import parse_channel
from container.archive.client.async_archive cimport AsyncArchive
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.sessions.replication_request import is_response_channel
from container.codecs.archive cimport (
    RECORDING_SIGNAL_MERGE, RECORDING_SIGNAL_REPLICATE, RECORDING_SIGNAL_REPLICATE_END, RECORDING_SIGNAL_SYNC,
)
from container.common import channel_uri
from container.common.aeron_defaults import FRAME_ALIGNMENT as _FRAME_ALIGNMENT
from container.common.channel_uri import ChannelUri
from container.common.error_texts import message_of, shorten, type_name
from container.common.loggers import report
from container.common.sealed cimport seal
from container.errors import ArchiveError, ConfigurationError, TimedOutError
from container.files.catalog import POSITION_MAX as _POSITION_MAX
from container.transport.frames cimport NULL_VALUE
from container.transport.streams cimport Image

cdef enum:
    ATTEMPTS = 3                                    # of asking how far the source is, for a merge
    LIVE_ADD_MAX_WINDOW = 32 * 1024 * 1024          # bytes; upstream's ReplayMerge
    RESPONSE_TERM_LENGTH = 64 * 1024                # bytes
    MAX_TEXT_LENGTH = 500                           # of an error, in characters

cdef int64_t NO_DEADLINE = INT64_MAX

STATES = (
    "CONNECT", "REPLICATE_DESCRIPTOR", "SRC_RECORDING_POSITION", "EXTEND", "AWAIT_SUBSCRIPTION", "AWAIT_DESTINATION",
    "REPLAY_TOKEN", "GET_ARCHIVE_PROXY", "REPLAY", "AWAIT_IMAGE", "REPLICATE", "CATCHUP", "ATTEMPT_LIVE_JOIN",
    "REMOVE_REPLAY", "DONE")

_MTU_RANGE = (32, 65_504)
_LENGTH_RANGE = (64 * 1024, 1024**3)                # of terms and of segments
_RESPONSE_CORRELATION_ID = "response-correlation-id"
_TERM_PARAMETERS = ("init-term-id", "term-id", "term-offset")


class _Refusal(Exception):
    """The reason why a replication cannot continue, with the error code for its client."""

    def __init__(self, text, code=error_codes.GENERIC):
        super().__init__(text)
        self.code = code


cdef class ReplicationSession:
    """The replication ``replication_id``, which begins with the first :meth:`do_work`.

    Args:
        host: the archive (ReplicationHost).
        control_session: of the request; it gets errors and signals (ControlSession).
        replication_id: the correlation id of all that is sent (int).
        request: what was asked for; ``check_replication_request`` has allowed it (ReplicationRequest).

    Raises nothing for what a client may have sent: that is an error which ends the replication.
    """

    def __init__(self, host not None, ControlSession control_session not None, *, int64_t replication_id,
                 request not None):
        self._host, self._store, self._settings = host, host.store, host.settings
        self._client = host.client
        self._clock = self._client.clock
        self.control_session, self.replication_id, self.request = control_session, replication_id, request
        self.destination_recording_id = request.dst_recording_id
        self._replication_channel = request.replication_channel or self._settings.replication_channel or ""
        self._is_tagged = request.channel_tag_id != NULL_VALUE or request.subscription_tag_id != NULL_VALUE
        self._has_destinations = self._is_tagged or bool(request.live_destination)
        self._replay_position = self._source_stop_position = self._source_position = NULL_VALUE
        self._source_replay_id = self._replay_token = NULL_VALUE
        self._attempts_left = ATTEMPTS
        self._state = CONNECT
        self._deadline_ns = NO_DEADLINE

    @property
    def state(self):
        """The name of the state (str), one of ``STATES``."""
        return STATES[<int> self._state]

    @property
    def is_done(self):
        """Whether it has ended and is closed (bool): forget it then."""
        return self._is_finished

    cpdef int do_work(self) except -1:
        """One turn of the duty cycle; how much was done (int). A failure ends the replication and is :attr:`error`.

        The turn in which it ends closes what it has and sends REPLICATE_END.
        """
        cdef int work_count = 0
        if self._is_finished:
            return 0
        if not self._is_stopped and self._state != DONE:
            try:
                work_count = self._work()
            except Exception as error:
                self._fail(error)
                work_count = 1
        if self._is_stopped or self._state == DONE:
            self._finish()
            work_count += 1
        return work_count

    cpdef int stop(self) except -1:
        """End it with the next turn (request 51), so that what is sent about that comes after the reply."""
        self._is_stopped = True
        return 0

    cpdef int close(self) except -1:
        """End it now, with REPLICATE_END if that was not sent. Raises nothing; may be called twice."""
        return 0 if self._is_finished else self._finish()

    # The states

    cdef int _work(self) except -1:
        cdef State state = self._state
        cdef int work_count
        if self._subscription is not None and self._subscription.is_ended:
            return self._on_recording_ended()
        if state != CONNECT and self._clock.nano_time() >= self._deadline_ns:
            raise TimedOutError(f"waited {self._settings.message_timeout_ns / 1e9:g} s for {self._awaited()}")
        if state == CONNECT:
            work_count = self._connect()
        elif state == REPLICATE_DESCRIPTOR:
            work_count = self._replicate_descriptor()
        elif state == SRC_RECORDING_POSITION:
            work_count = self._ask_source_position()
        elif state == EXTEND:
            work_count = self._extend()
        elif state == AWAIT_SUBSCRIPTION:
            work_count = self._await_subscription()
        elif state == AWAIT_DESTINATION:
            work_count = self._await_destination()
        elif state == REPLAY_TOKEN:
            work_count = self._ask_replay_token()
        elif state == GET_ARCHIVE_PROXY:
            work_count = self._get_archive_proxy()
        elif state == REPLAY:
            work_count = self._replay()
        elif state == AWAIT_IMAGE:
            work_count = self._await_image()
        elif state == REPLICATE:
            work_count = self._replicate()
        elif state == CATCHUP:
            work_count = self._catch_up()
        elif state == ATTEMPT_LIVE_JOIN:
            work_count = self._attempt_live_join()
        else:
            work_count = self._remove_replay()
        # A request polls the source itself.
        if state != CONNECT and self._state == state and self._asked is None:
            self._poll_source()
        return work_count

    cdef bint _poll_source(self) except -1:
        """Take a turn of the source's client, whose errors end the replication; whether it is connected."""
        cdef bint is_connected = self.source.poll()
        cdef object error = self.source.take_error()
        if error is not None:
            raise error
        return is_connected

    cdef bint _is_answered(self) except -1:
        """Take such a turn; whether the source has answered what the state has asked."""
        self._poll_source()
        if self._asked.error is not None:
            raise self._asked.error
        return self._asked.is_done

    cdef int _enter(self, State state) except -1:
        self._state = state
        self._asked = None
        self._deadline_ns = NO_DEADLINE
        # Requests have the limit of the source's client, and what follows the first image has none.
        if state in (AWAIT_SUBSCRIPTION, AWAIT_DESTINATION, GET_ARCHIVE_PROXY, REPLAY, AWAIT_IMAGE, REMOVE_REPLAY):
            self._deadline_ns = self._clock.nano_time() + <int64_t> self._settings.message_timeout_ns
        return 1

    cdef str _awaited(self):
        if self._state == AWAIT_IMAGE:
            return (f"the image of replay {self._source_replay_id} on "
                    f"{shorten(self._replication_channel, MAX_TEXT_LENGTH)}")
        if self._state == GET_ARCHIVE_PROXY:
            return "a connection for the request for a replay"
        return f"the driver to bind {shorten(self._replication_channel, MAX_TEXT_LENGTH)} (step {self.state})"

    cdef int _connect(self) except -1:
        try:
            if self.source is None:
                self.source = self._new_source()
                return 1
            if not self._poll_source():
                return 0
        except Exception as error:
            raise _Refusal(
                f"Replication connection failed={message_of(error)}",
                error_codes.GENERIC if isinstance(error, ConfigurationError)
                else error_codes.REPLICATION_CONNECTION_FAILURE) from error
        return self._enter(REPLICATE_DESCRIPTOR)

    cdef AsyncArchive _new_source(self):
        settings, request = self._settings, self.request
        self._is_response_mode = is_response_channel(self._replication_channel)
        return AsyncArchive(
            self._client,
            control_channel=request.src_control_channel,
            control_stream_id=request.src_control_stream_id,
            response_channel=request.src_response_channel or _own_response_channel(
                settings.control_channel, self._replication_channel),
            response_stream_id=settings.control_response_stream_id,
            term_buffer_length=settings.control_term_buffer_length,
            mtu_length=settings.control_mtu_length,
            is_sparse=settings.control_term_buffer_sparse,
            client_name=f"{self._client.client_name} replicationSessionId={self.replication_id}",
            encoded_credentials=request.encoded_credentials,
            message_timeout_ns=settings.message_timeout_ns,
        )

    cdef int _replicate_descriptor(self) except -1:
        if self._asked is None:
            self._asked = self.source.list_recording(self.request.src_recording_id)
        if not self._is_answered():
            return 0
        if not self._asked.items:
            raise _Refusal(f"unknown src recording id {self.request.src_recording_id}", error_codes.UNKNOWN_RECORDING)
        return self._on_descriptor(self._asked.items[0])

    cdef int _on_descriptor(self, object source) except -1:
        cdef int64_t stop_position
        cdef bint is_new
        _check_descriptor(source, self.request)
        if self.request.live_destination and source.stop_position != NULL_VALUE:
            raise _Refusal("cannot live merge without active source recording")
        stop_position = self._source_stop_position = source.stop_position
        self._replay_stream_id = source.stream_id
        self._replay_session_id = source.session_id
        if self.request.replication_session_id != NULL_VALUE and not self.request.live_destination:
            self._replay_session_id = self.request.replication_session_id
        is_new = self.destination_recording_id == NULL_VALUE
        if is_new:
            self._replay_position = source.start_position
            self.destination_recording_id = self._store.add_replica(source)
            self._signal(NULL_VALUE, source.start_position, RECORDING_SIGNAL_REPLICATE)
        else:
            self._prepare_destination(source)
        if source.start_position == stop_position or (not is_new and stop_position == self._replay_position):
            self._signal(NULL_VALUE, stop_position, RECORDING_SIGNAL_SYNC)
            return self._enter(DONE)
        return self._enter(SRC_RECORDING_POSITION if self.request.live_destination else EXTEND)

    cdef int _prepare_destination(self, object source) except -1:
        """Find out from where on the local recording needs the source's; it may have changed since the request."""
        cdef int64_t recording_id = self.destination_recording_id
        catalog = self._store.catalog
        if not catalog.has(recording_id):
            raise _Refusal(f"unknown destination recording id {recording_id}", error_codes.UNKNOWN_RECORDING)
        self._replay_position = catalog.stop_position(recording_id)
        if self._replay_position == NULL_VALUE:
            # It would look like the source's, where that is active too: upstream sends SYNC then.
            raise _Refusal(f"cannot replicate to active recording {recording_id}", error_codes.ACTIVE_RECORDING)
        if self._replay_position == catalog.start_position(recording_id):
            self._replay_position = source.start_position
            self._store.replace_by_replica(recording_id, source)
        return 0

    cdef bint _is_position_answered(self) except -1:
        if self._asked is None:
            self._asked = self.source.recording_position(self.request.src_recording_id)
        if not self._is_answered():
            return False
        self._source_position = self._asked.relevant_id
        self._asked = None
        if self._source_position == NULL_VALUE:
            raise _Refusal("cannot live merge without active source recording")
        return True

    cdef int _ask_source_position(self) except -1:
        return self._enter(EXTEND) if self._is_position_answered() else 0

    cdef int _extend(self) except -1:
        cdef str channel
        uri = parse_channel(self._replication_channel)
        endpoint = uri.get(channel_uri.ENDPOINT)
        uri.put("rejoin", "false")
        if not self._is_response_mode:
            uri.put(channel_uri.SESSION_ID, str(self._replay_session_id))
        if self._has_destinations:
            if endpoint is None:
                raise _Refusal("replication with tags or a live destination needs a channel with an endpoint, not "
                               f"{shorten(self._replication_channel, MAX_TEXT_LENGTH)}")
            self._replay_destination = _destination(uri)
            uri.remove(channel_uri.ENDPOINT)
            uri.put("tags", f"{self._tag(self.request.channel_tag_id)},{self._tag(self.request.subscription_tag_id)}")
            uri.put("control-mode", "manual")
        channel = str(uri)
        try:
            self._subscription = self._host.extend_for_replication(
                self.control_session, self.replication_id, self.destination_recording_id, self._replay_stream_id,
                channel, channel)
        except ArchiveError as error:
            raise _Refusal(message_of(error), error.code) from error
        return self._enter(AWAIT_SUBSCRIPTION)

    cdef int64_t _tag(self, int64_t tag_id) noexcept:
        return self.replication_id if tag_id == NULL_VALUE else tag_id

    cdef int _await_subscription(self) except -1:
        if self._subscription.subscription is None:
            return 0
        if not self._has_destinations:
            return self._enter(REPLAY_TOKEN)
        self._pending = self._subscription.subscription.begin_add_destination(self._replay_destination)
        return self._enter(AWAIT_DESTINATION)

    cdef bint _is_pending_done(self) except -1:
        cdef object added
        try:
            added = self._pending.poll()
        except BaseException:
            self._pending = None
            raise
        if added is None:
            return False
        self._pending = None
        return True

    cdef int _await_destination(self) except -1:
        return self._enter(REPLAY_TOKEN) if self._is_pending_done() else 0

    cdef int _ask_replay_token(self) except -1:
        if not self._is_response_mode:
            return self._enter(REPLAY)
        if self._asked is None:
            self._asked = self.source.replay_token(self.request.src_recording_id)
        if not self._is_answered():
            return 0
        self._replay_token = self._asked.relevant_id
        uri = parse_channel(self.request.src_control_channel)
        for name in _TERM_PARAMETERS:
            uri.remove(name)
        uri.put("term-length", str(RESPONSE_TERM_LENGTH))
        uri.put(_RESPONSE_CORRELATION_ID, str(self._subscription.subscription_id))
        self._pending = self._client.begin_add_publication(str(uri), self.request.src_control_stream_id, True)
        return self._enter(GET_ARCHIVE_PROXY)

    cdef int _get_archive_proxy(self) except -1:
        if self._pending is not None:
            try:
                self._response_publication = self._pending.poll()
            except BaseException:
                self._pending = None
                raise
            if self._response_publication is None:
                return 0
            self._pending = None
        if not self._response_publication.is_connected() or self._response_publication.available_window() <= 0:
            return 0
        return self._enter(REPLAY)

    cdef int _replay(self) except -1:
        if self._asked is None:
            if not self._begin_replay():
                return 0
            self._deadline_ns = NO_DEADLINE
        if not self._is_answered():
            return 0
        self._source_replay_id = self._asked.relevant_id
        return self._enter(AWAIT_IMAGE)

    cdef bint _begin_replay(self) except -1:
        """Ask for the replay; False while the driver has not bound the port that it leads to."""
        cdef int64_t length = NULL_VALUE
        cdef str resolved
        request = self.request
        uri = parse_channel(self._replication_channel)
        if uri.get(channel_uri.ENDPOINT, "").endswith(":0"):
            resolved = self._subscription.subscription.resolved_endpoint()
            if not resolved:
                return False
            uri.replace_wildcard_port(resolved)
        if request.live_destination:
            uri.put("linger", "0")
            uri.put("eos", "false")
        if self._is_response_mode:
            uri.put(_RESPONSE_CORRELATION_ID, str(self._subscription.subscription_id))
        else:
            uri.put(channel_uri.SESSION_ID, str(self._replay_session_id))
        if request.stop_position != NULL_VALUE:
            # A negative length has a meaning of its own.
            length = max(0, request.stop_position - self._replay_position)
        self._asked = self.source.replay(
            request.src_recording_id, self._replay_position, length, str(uri), self._replay_stream_id,
            request.file_io_max_length, self._replay_token, self._response_publication)
        return True

    cdef RecordingSession _recording(self):
        """The session that records the replay; None before its image has come."""
        cdef RecordingSession recording = self._subscription.recording
        if recording is None or recording.image.session_id != <int> self._source_replay_id:
            return None
        return recording

    cdef int _await_image(self) except -1:
        if self._recording() is None:
            return 0
        return self._enter(CATCHUP if self.request.live_destination else REPLICATE)

    cdef bint _is_synced(self, RecordingSession recording) noexcept:
        return self._source_stop_position != NULL_VALUE and recording.writer.position >= self._source_stop_position

    cdef int _replicate(self) except -1:
        cdef RecordingSession recording = self._recording()
        cdef bint is_synced, is_at_stop
        if recording is None:
            raise _Refusal("another stream than that of the replay is recorded")
        is_synced = self._is_synced(recording)
        is_at_stop = (
            self.request.stop_position != NULL_VALUE and recording.writer.position >= self.request.stop_position)
        if not is_synced and not is_at_stop and not recording.has_ended():
            return 0
        if is_synced or is_at_stop or recording.image.is_end_of_stream() or recording.image.is_closed():
            self._source_replay_id = NULL_VALUE     # it has ended by itself, or is about to
        if is_synced:
            self._signal(self._subscription.subscription_id, recording.writer.position, RECORDING_SIGNAL_SYNC)
        return self._enter(DONE)

    cdef int _on_recording_ended(self) except -1:
        """Count everything recorded, also when this host ended the recording before it was looked at."""
        cdef RecordingSession recording = self._subscription.recording
        if self._state < REMOVE_REPLAY and recording is not None and self._is_synced(recording):
            self._source_replay_id = NULL_VALUE
            self._signal(self._subscription.subscription_id, recording.writer.position, RECORDING_SIGNAL_SYNC)
        return self._enter(DONE)

    # The merge with a live stream

    cdef RecordingSession _live_recording(self):
        cdef RecordingSession recording = self._recording()
        if recording is None or recording.has_ended() or recording.image.is_closed():
            raise _Refusal("replication image closed unexpectedly")
        return recording

    cdef int _catch_up(self) except -1:
        if self._live_recording().writer.position < self._source_position:
            return 0
        return self._enter(ATTEMPT_LIVE_JOIN)

    cdef int _attempt_live_join(self) except -1:
        cdef RecordingSession recording = self._live_recording()
        cdef Image image = recording.image
        cdef int64_t missing
        cdef bint is_answered = False, is_late = False
        if self._pending is not None:
            return 1 if self._is_pending_done() else 0
        try:
            is_answered = self._is_position_answered()
        except TimedOutError:
            is_late = True
            self._asked = None
            self._attempts_left -= 1
            if self._attempts_left == 0:
                raise
        if not is_answered:
            return is_late
        self._attempts_left = ATTEMPTS
        missing = self._source_position - recording.writer.position
        if not self._is_live_added:
            if missing <= min(<int64_t> image.term_buffer_length // 4, <int64_t> LIVE_ADD_MAX_WINDOW):
                self._is_live_added = True
                self._pending = self._subscription.subscription.begin_add_destination(self.request.live_destination)
        elif missing <= 0 and image.active_transport_count() >= 2:
            self._pending = self._subscription.subscription.begin_remove_destination(self._replay_destination)
            return self._enter(REMOVE_REPLAY)
        return 1

    cdef int _remove_replay(self) except -1:
        cdef RecordingSession recording = self._live_recording()
        if not self._is_pending_done():
            return 0
        self._subscription = None                   # the recording continues without this
        self._signal(NULL_VALUE, recording.writer.position, RECORDING_SIGNAL_MERGE)
        return self._enter(DONE)

    # The end

    cdef int _signal(self, int64_t subscription_id, int64_t position, int signal) except -1:
        return self.control_session.send_signal(
            self.replication_id, self.destination_recording_id, subscription_id, position, signal)

    cdef int _fail(self, object error) except -1:
        cdef str text = shorten(message_of(error), MAX_TEXT_LENGTH)
        cdef int64_t code = error.code if isinstance(error, _Refusal) else error_codes.GENERIC
        self._enter(DONE)
        if not isinstance(error, (_Refusal, ArchiveError, ConfigurationError, TimedOutError)):
            text = f"{type_name(error)}: {text}"
        self.error = ArchiveError(text, code=code, correlation_id=self.replication_id)
        self.error.__cause__ = error
        return self.control_session.send_error(self.replication_id, text, code)

    cdef int _finish(self) except -1:
        cdef object subscription = self._subscription, pending = self._pending, source = self.source
        cdef object publication = self._response_publication, control_session = self.control_session
        cdef int64_t replay_id = self._source_replay_id
        self._is_finished = True
        self._state = DONE
        self._subscription = self._pending = self.source = self._response_publication = None
        self._source_replay_id = NULL_VALUE
        if subscription is not None:
            self._attempt(self._host.stop_recording, subscription)
        if pending is not None:
            self._attempt(pending.close)
        if source is not None:
            if replay_id != NULL_VALUE:
                self._attempt(source.stop_replay, replay_id)
            self._attempt(source.close)
        if publication is not None:
            self._attempt(publication.close)
        self._attempt(
            control_session.send_signal, self.replication_id, self.destination_recording_id, NULL_VALUE, NULL_VALUE,
            <int> RECORDING_SIGNAL_REPLICATE_END)
        return 1

    def _attempt(self, call, *arguments):
        try:
            call(*arguments)
        except Exception as error:
            report("warning", "at the end of replication %d: %s: %s", self.replication_id, type_name(error),
                   message_of(error))

    def __repr__(self):
        return (f"<ReplicationSession {self.replication_id} {self.state} recording {self.request.src_recording_id} to "
                f"{self.destination_recording_id}>")


def _own_response_channel(control_channel, replication_channel):
    """Where another archive answers: a port of the host on which this archive listens, or receives replays."""
    for channel in (control_channel, replication_channel):
        uri = None if channel is None else parse_channel(channel)
        endpoint = None if uri is None else uri.get(channel_uri.ENDPOINT)
        if endpoint is not None and ":" in endpoint:
            return str(ChannelUri("udp", {channel_uri.ENDPOINT: f"{endpoint.rpartition(':')[0]}:0"}))
    raise ConfigurationError(
        "there is no endpoint from which to derive where the source answers: give a response channel for it")


def _destination(uri):
    """The channel of a destination: where its endpoint is."""
    params = {name: uri.get(name) for name in (channel_uri.ENDPOINT, "interface") if uri.get(name) is not None}
    return str(ChannelUri(uri.media, params))


def _check_descriptor(source, request):
    """Check what the source says of its recording: it goes into the catalog, which must be readable again."""
    least, most = _LENGTH_RANGE
    term_length, segment_length, mtu = source.term_buffer_length, source.segment_file_length, source.mtu_length
    problems = []
    if source.recording_id != request.src_recording_id:
        problems.append(f"recordingId={source.recording_id}")
    if not least <= term_length <= most or term_length & (term_length - 1):
        problems.append(f"termBufferLength={term_length}")
    if not term_length <= segment_length <= most or segment_length & (segment_length - 1):
        problems.append(f"segmentFileLength={segment_length}")
    if not _MTU_RANGE[0] <= mtu <= _MTU_RANGE[1] or mtu % _FRAME_ALIGNMENT:
        problems.append(f"mtuLength={mtu}")
    if not 0 <= source.start_position <= _POSITION_MAX or source.start_position % _FRAME_ALIGNMENT:
        problems.append(f"startPosition={source.start_position}")
    if source.stop_position != NULL_VALUE and (
            source.stop_position < source.start_position or source.stop_position % _FRAME_ALIGNMENT):
        problems.append(f"stopPosition={source.stop_position}")
    if problems:
        raise _Refusal(
            f"the source cannot have recording {request.src_recording_id} with {', '.join(problems)}")
    if request.file_io_max_length != NULL_VALUE and request.file_io_max_length < mtu:
        raise _Refusal(f"Replication fileIoMaxLength ({request.file_io_max_length}) is less than than the recording "
                       f"mtuLength ({mtu})")


seal((ReplicationSession,))
