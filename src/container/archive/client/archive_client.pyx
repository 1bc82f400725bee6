"""The few archive calls that a service needs: record a publication, replay a recording, and the store of its snapshots
made of these two, which also replays what a service has missed of the log.

Messages are of schema 101 (upstream's aeron-archive-codecs.xml). The rules are those of upstream's
AeronArchive, but for four things that make a container live better:

- every wait idles with the caller's idle strategy, so that a mark file stays alive during a wait of seconds;
- an error that the archive reports asynchronously always raises (upstream's rule from 1.53 on);
- waiting for the replay has a limit and looks at the archive's errors;
- every wait says in the log, after a while, what it waits for.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from container.archive.client cimport recording_counters
from container.archive.client.control_response_poller cimport ControlResponsePoller
from container.codecs.archive cimport (
    ARCHIVE_ID_REQUEST_ENCODED_LENGTH, BOOLEAN_TRUE, CLOSE_SESSION_REQUEST_ENCODED_LENGTH,
    CONTROL_RESPONSE_CODE_ERROR, CONTROL_RESPONSE_CODE_OK, KEEP_ALIVE_REQUEST_ENCODED_LENGTH,
    SOURCE_LOCATION_LOCAL, STOP_POSITION_REQUEST_ENCODED_LENGTH, archive_id_request_encode, auth_connect_request_encode,
    auth_connect_request_encoded_length, challenge_response_encode, challenge_response_encoded_length,
    close_session_request_encode, keep_alive_request_encode, replay_request_encode,
    replay_request_encoded_length, start_recording_request2_encode, start_recording_request2_encoded_length,
    stop_position_request_encode,
)
from container.common.aeron_defaults import (
    ARCHIVE_CONTROL_STREAM_ID, ARCHIVE_LOCAL_CONTROL_CHANNEL, ARCHIVE_MESSAGE_RETRY_ATTEMPTS,
    ARCHIVE_MESSAGE_TIMEOUT_NS, ARCHIVE_RESPONSE_STREAM_ID, REPLAY_CHANNEL, REPLAY_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID, SNAPSHOT_CHANNEL,
)
from container.common.channel_uri import ChannelUri, add_alias_if_absent, add_session_id
from container.common.loggers import report
from container.common.sealed cimport seal
from container.errors import ArchiveError, ClusterError, ConfigurationError, TimedOutError
from container.transport.idle_strategy cimport IdleStrategy, YieldingIdleStrategy
from container.transport.counters cimport Counters
from container.transport.frames cimport ADMIN_ACTION, BACK_PRESSURED, NULL_VALUE
from container.transport.seam cimport Client, SnapshotReader, SnapshotStore, SnapshotWriter
from container.transport.streams cimport publication_result_name
from container.transport.wait_reporter cimport WaitReporter
from container.version import client_info

cdef enum:
    PROTOCOL_VERSION = 1 << 16 | 12 << 8                # 1.12.0
    PROTOCOL_VERSION_WITH_ARCHIVE_ID = 1 << 16 | 11 << 8

    FROM_START = 0
    TO_THE_END = -1                                     # as a replay's length


cdef class ArchiveClientContext:
    """Where an archive is and how to talk to it (upstream's ``AeronArchive.Context``); checked when it is
    made.

    ``control_channel`` and ``control_stream_id`` are what the archive listens to; ``response_channel`` and
    ``response_stream_id`` are what it answers on, and the latter must be this client's alone.
    ``term_buffer_length`` (bytes), ``term_buffer_sparse`` and ``mtu_length`` (bytes) are added to both
    channels where they do not say. Sparse log buffers, upstream's default here whatever the driver's is, turn a full
    ``/dev/shm`` into a SIGBUS of whoever writes. ``message_timeout_ns`` is the limit of a whole connect and of each
    request. ``client_name`` is what the archive shows of this client. ``credentials_supplier`` has
    ``encoded_credentials() -> bytes`` and ``on_challenge(bytes) -> bytes``, or is None.
    """

    cdef readonly str control_channel
    cdef readonly int32_t control_stream_id
    cdef readonly str response_channel
    cdef readonly int32_t response_stream_id
    cdef readonly int64_t message_timeout_ns
    cdef readonly int32_t message_retry_attempts
    cdef readonly int32_t term_buffer_length
    cdef readonly bint term_buffer_sparse
    cdef readonly int32_t mtu_length
    cdef readonly str client_name
    cdef readonly object credentials_supplier

    def __init__(
            self, *, str control_channel not None=ARCHIVE_LOCAL_CONTROL_CHANNEL,
            int32_t control_stream_id=ARCHIVE_CONTROL_STREAM_ID,
            str response_channel not None=ARCHIVE_LOCAL_CONTROL_CHANNEL,
            int32_t response_stream_id=ARCHIVE_RESPONSE_STREAM_ID,
            int64_t message_timeout_ns=ARCHIVE_MESSAGE_TIMEOUT_NS,
            int32_t message_retry_attempts=ARCHIVE_MESSAGE_RETRY_ATTEMPTS,
            int32_t term_buffer_length=64 * 1024, bint term_buffer_sparse=False, int32_t mtu_length=1408,
            str client_name not None="", credentials_supplier=None):
        ChannelUri.parse(control_channel)
        ChannelUri.parse(response_channel)
        for name, value in (
                ("message_timeout_ns", message_timeout_ns), ("message_retry_attempts", message_retry_attempts)):
            if value < 1:
                raise ConfigurationError(f"archive {name} must be at least 1, not {value}")
        self.control_channel = control_channel
        self.control_stream_id = control_stream_id
        self.response_channel = response_channel
        self.response_stream_id = response_stream_id
        self.message_timeout_ns = message_timeout_ns
        self.message_retry_attempts = message_retry_attempts
        self.term_buffer_length = term_buffer_length
        self.term_buffer_sparse = term_buffer_sparse
        self.mtu_length = mtu_length
        self.client_name = client_name
        self.credentials_supplier = credentials_supplier

    @classmethod
    def for_service(
            cls, cluster_id, service_id, *, str control_channel not None=ARCHIVE_LOCAL_CONTROL_CHANNEL, **settings):
        """The context of a service's container: IPC channels with aliases that name cluster and service, and
        the response stream that upstream's container would use.

        ``settings`` are fields of the context. ``response_channel`` is ``control_channel`` if not given;
        ``response_stream_id`` is the base (20) to which the ids are added.
        """
        base = settings.pop("response_stream_id", ARCHIVE_RESPONSE_STREAM_ID)
        response_channel = settings.pop("response_channel", control_channel)
        for channel in (control_channel, response_channel):
            if not channel.startswith("aeron:ipc"):
                raise ConfigurationError(f"local archive control must be IPC, not {channel!r}")
        return cls(
            control_channel=add_alias_if_absent(
                control_channel, f"sc-{service_id}-archive-ctrl-req-cluster-{cluster_id}"),
            response_channel=add_alias_if_absent(
                response_channel, f"sc-{service_id}-archive-ctrl-resp-cluster-{cluster_id}"),
            response_stream_id=cluster_id * 100 + 100 + base + service_id + 1,
            **settings)

    def stream_channels(self, session_id):
        """Control and response channel as used by one connection, with this ``session-id`` on both."""
        channels = []
        for channel in (self.control_channel, self.response_channel):
            uri = ChannelUri.parse(channel)
            uri.put_if_absent("term-length", str(self.term_buffer_length))
            uri.put_if_absent("mtu", str(self.mtu_length))
            uri.put_if_absent("sparse", "true" if self.term_buffer_sparse else "false")
            uri.put("session-id", str(session_id))
            channels.append(str(uri))
        return channels


cdef class _Wait:
    """A wait of one or several steps with one limit, done turn by turn: it keeps the client's conductor
    going, idles, reports what lasts long, and ends with TimedOutError."""

    def __init__(self, Client client not None, IdleStrategy idle not None, int64_t limit_ns, str what):
        self._client = client
        self._idle = idle
        self._limit_ns = limit_ns
        self._deadline_ns = client.clock.nano_time() + limit_ns
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


cdef inline uint8_t* _data(bytearray request) noexcept:
    return <uint8_t*> PyByteArray_AS_STRING(request)


cdef bytearray _connect_request(
        int64_t correlation_id, str response_channel, int32_t response_stream_id, bytes credentials,
        str info_text):
    cdef bytes channel = response_channel.encode("ascii")
    cdef bytes info = info_text.encode("ascii", "replace")
    cdef bytearray request = bytearray(auth_connect_request_encoded_length(
        <uint32_t> len(channel), <uint32_t> len(credentials), <uint32_t> len(info)))
    auth_connect_request_encode(
        _data(request), len(request), correlation_id, response_stream_id, PROTOCOL_VERSION,
        channel, <uint32_t> len(channel), credentials, <uint32_t> len(credentials),
        info, <uint32_t> len(info))
    return request


cdef bytearray _challenge_response(int64_t control_session_id, int64_t correlation_id, bytes credentials):
    cdef bytearray request = bytearray(challenge_response_encoded_length(<uint32_t> len(credentials)))
    challenge_response_encode(
        _data(request), len(request), control_session_id, correlation_id,
        credentials, <uint32_t> len(credentials))
    return request


cdef bytearray _archive_id_request(int64_t control_session_id, int64_t correlation_id):
    cdef bytearray request = bytearray(ARCHIVE_ID_REQUEST_ENCODED_LENGTH)
    archive_id_request_encode(_data(request), len(request), control_session_id, correlation_id)
    return request


cdef bytearray _keep_alive_request(int64_t control_session_id):
    cdef bytearray request = bytearray(KEEP_ALIVE_REQUEST_ENCODED_LENGTH)
    keep_alive_request_encode(_data(request), len(request), control_session_id, NULL_VALUE)
    return request


cdef bytearray _close_session_request(int64_t control_session_id):
    cdef bytearray request = bytearray(CLOSE_SESSION_REQUEST_ENCODED_LENGTH)
    close_session_request_encode(_data(request), len(request), control_session_id)
    return request


cdef bytearray _start_recording_request(
        int64_t control_session_id, int64_t correlation_id, str recorded_channel, int32_t stream_id):
    cdef bytes channel = recorded_channel.encode("ascii")
    cdef bytearray request = bytearray(start_recording_request2_encoded_length(<uint32_t> len(channel)))
    start_recording_request2_encode(
        _data(request), len(request), control_session_id, correlation_id, stream_id, SOURCE_LOCATION_LOCAL,
        BOOLEAN_TRUE, channel, <uint32_t> len(channel))
    return request


cdef bytearray _replay_request(
        int64_t control_session_id, int64_t correlation_id, int64_t recording_id, int64_t position,
        int64_t length, str replay_channel, int32_t stream_id):
    cdef bytes channel = replay_channel.encode("ascii")
    cdef bytearray request = bytearray(replay_request_encoded_length(<uint32_t> len(channel)))
    replay_request_encode(
        _data(request), len(request), control_session_id, correlation_id, recording_id, position, length,
        stream_id, NULL_VALUE, NULL_VALUE, channel, <uint32_t> len(channel))
    return request


cdef bytearray _stop_position_request(int64_t control_session_id, int64_t correlation_id, int64_t recording_id):
    cdef bytearray request = bytearray(STOP_POSITION_REQUEST_ENCODED_LENGTH)
    stop_position_request_encode(_data(request), len(request), control_session_id, correlation_id, recording_id)
    return request


cdef ArchiveClient _connect_archive(Client client, object context, IdleStrategy idle):
    cdef ArchiveClient archive = ArchiveClient.__new__(ArchiveClient)
    archive.context = context
    archive._client = client
    archive._idle = idle
    archive.control_session_id = NULL_VALUE
    archive.archive_id = NULL_VALUE
    try:
        archive._connect()
    except BaseException:
        archive.close()
        raise
    return archive


cdef class ArchiveClient:
    """A control session with an archive, made by :meth:`connect` and ended by :meth:`close`; for one
    thread."""

    def __init__(self):
        raise TypeError("use ArchiveClient.connect(client, context, idle)")

    @staticmethod
    def connect(Client client not None, context not None, IdleStrategy idle not None):
        """A new session with the archive of ``context`` (ArchiveClientContext), over ``client``.

        Block, idling with ``idle``, for at most the context's message timeout. Raises TimedOutError, whose
        text says which step did not happen, and ArchiveError when the archive refuses; whatever was opened is
        closed then.
        """
        return _connect_archive(client, context, idle)

    cdef int _connect(self) except -1:
        cdef int64_t correlation_id
        cdef _Wait wait = _Wait(self._client, self._idle, self.context.message_timeout_ns, "an archive")
        self._add_streams()
        control = f"control channel {self._publication.channel} stream {self._publication.stream_id}"
        response = f"response channel {self._subscription.channel} stream {self._subscription.stream_id}"
        self._begin(wait, "AWAIT_PUBLICATION_CONNECTED", f"an archive to listen on {control}")
        while not self._publication.is_connected():
            wait.turn(0)

        self._begin(wait, "SEND_CONNECT_REQUEST", f"room on {control}")
        correlation_id = self._client.next_correlation_id()
        self._send_within(wait, _connect_request(
            correlation_id, self._subscription.channel, self._subscription.stream_id, self._credentials(None),
            client_info(self.context.client_name)))

        self._begin(wait, "AWAIT_SUBSCRIPTION_CONNECTED", f"the archive to connect to {response}")
        while not self._subscription.is_connected():
            wait.turn(0)

        self._begin(wait, "AWAIT_CONNECT_RESPONSE", f"the answer to the connect request on {response}")
        self._await_connect_response(wait, correlation_id)
        if self._poller.version >= PROTOCOL_VERSION_WITH_ARCHIVE_ID:
            self._begin(wait, "AWAIT_ARCHIVE_ID_RESPONSE", f"the archive's id on {response}")
            correlation_id = self._client.next_correlation_id()
            self._send_within(wait, _archive_id_request(self.control_session_id, correlation_id))
            self._await_connect_response(wait, correlation_id)
            self.archive_id = self._poller.relevant_id
        return self._send(_keep_alive_request(self.control_session_id), "keep alive after the connect")

    cdef int _begin(self, _Wait wait, str step, str what) except -1:
        return wait.begin(f"{what} (archive connect, step {step})")

    cdef int _add_streams(self) except -1:
        # The same session id on both keeps other clients' requests and responses out of this pair of streams.
        cdef int32_t session_id = self._client.next_session_id(self.context.control_stream_id)
        control_channel, response_channel = self.context.stream_channels(session_id)
        self._subscription = self._client.add_subscription(response_channel, self.context.response_stream_id)
        self._poller = ControlResponsePoller(self._subscription)
        self._publication = self._client.add_exclusive_publication(
            control_channel, self.context.control_stream_id)
        return 0

    cdef bytes _credentials(self, bytes challenge):
        supplier = self.context.credentials_supplier
        if supplier is None:
            return b""
        if challenge is None:
            return bytes(supplier.encoded_credentials())
        return bytes(supplier.on_challenge(challenge))

    cdef int _await_connect_response(self, _Wait wait, int64_t correlation_id) except -1:
        # The archive repeats its answer to the connect until the first request: look at the correlation id.
        cdef int fragments
        while True:
            fragments = self._poller.poll()
            if not self._poller.is_complete or self._poller.correlation_id != correlation_id:
                if fragments == 0:
                    self._check_subscription()
                wait.turn(fragments)
                continue
            self.control_session_id = self._poller.control_session_id
            if self._poller.encoded_challenge is None:
                return self._check_response("archive connect")
            correlation_id = self._client.next_correlation_id()
            self._send_within(wait, _challenge_response(
                self.control_session_id, correlation_id, self._credentials(self._poller.encoded_challenge)))

    cdef int _check_response(self, str name) except -1:
        if self._poller.code == CONTROL_RESPONSE_CODE_ERROR:
            raise ArchiveError(f"{name}: {self._poller.error_message}", code=self._poller.relevant_id,
                               correlation_id=self._poller.correlation_id)
        if self._poller.code != CONTROL_RESPONSE_CODE_OK:
            raise ArchiveError(f"{name}: unexpected response code {self._poller.code}",
                               correlation_id=self._poller.correlation_id)
        return 0

    cdef int _check_open(self) except -1:
        if self._is_closed:
            raise ArchiveError("client is closed")
        return 0

    cdef int _check_subscription(self) except -1:
        if not self._subscription.is_connected():
            raise ArchiveError(
                f"connection to the archive is lost: response channel {self._subscription.channel} stream "
                f"{self._subscription.stream_id} is not connected")
        return 0

    cdef bint _try_send(self, bytearray request) except -1:
        cdef int64_t result = self._publication.offer(_data(request), len(request))
        if result > 0:
            return True
        if result in (BACK_PRESSURED, ADMIN_ACTION):
            return False
        raise ArchiveError(
            f"connection to the archive is lost: {publication_result_name(result)} on control channel "
            f"{self._publication.channel} stream {self._publication.stream_id}")

    cdef int _send_within(self, _Wait wait, bytearray request) except -1:
        while not self._try_send(request):
            wait.turn(0)
        return 0

    cdef int _send(self, bytearray request, str name) except -1:
        cdef int attempt
        cdef int attempts = self.context.message_retry_attempts
        self._idle.reset()
        for attempt in range(attempts):
            if attempt > 0:
                self._idle.idle(self._client.invoke())
            if self._try_send(request):
                return 0
        raise ArchiveError(
            f"failed to send {name}: no room after {attempts} attempts on control channel "
            f"{self._publication.channel} stream {self._publication.stream_id}")

    cdef int64_t _await_response(self, int64_t correlation_id, str name) except? -1:
        cdef int fragments
        cdef _Wait wait = _Wait(
            self._client, self._idle, self.context.message_timeout_ns,
            f"the archive's answer to {name}, correlation id {correlation_id}")
        while True:
            fragments = self._poller.poll()
            if self._poller.is_complete and self._poller.control_session_id == self.control_session_id:
                if self._poller.correlation_id == correlation_id:
                    self._check_response(name)
                    return self._poller.relevant_id
                self._report_other_response(name)
            elif fragments == 0:
                self._check_subscription()
            wait.turn(fragments)

    cdef int _report_other_response(self, str name) except -1:
        if self._poller.code == CONTROL_RESPONSE_CODE_ERROR:
            report(
                "warning", "archive error, code %d correlation id %d, while waiting for the answer to %s: %s",
                self._poller.relevant_id, self._poller.correlation_id, name, self._poller.error_message)
        return 0

    cpdef int64_t start_recording(self, str channel, int32_t stream_id) except? -1:
        """Record a publication of this driver until it ends: StartRecordingRequest2 (63), local, auto stop.

        ``channel`` should have the publication's session id. Return the recording's subscription id; the
        recording id is in the key of the recording position counter. Blocks; raises ArchiveError when the
        archive refuses or is lost, TimedOutError when it does not answer.
        """
        cdef int64_t correlation_id
        cdef str name = f"start recording of {channel} stream {stream_id}"
        self._check_open()
        correlation_id = self._client.next_correlation_id()
        self._send(
            _start_recording_request(self.control_session_id, correlation_id, channel, stream_id), name)
        return self._await_response(correlation_id, name)

    cpdef int64_t start_replay(
            self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id
    ) except? -1:
        """Replay ``length`` bytes (-1: all) of a recording from ``position`` (bytes): ReplayRequest (6).

        Return the replay session id, whose low 32 bits are the session id of the replay's publication.
        Block and raise as :meth:`start_recording`.
        """
        cdef int64_t correlation_id
        cdef str name = f"replay of recording {recording_id} to {channel} stream {stream_id}"
        self._check_open()
        correlation_id = self._client.next_correlation_id()
        self._send(_replay_request(
            self.control_session_id, correlation_id, recording_id, position, length, channel, stream_id
        ), name)
        return self._await_response(correlation_id, name)

    cpdef int64_t stop_position(self, int64_t recording_id) except? -1:
        """Where a recording ends (int, bytes), -1 while it is being recorded: StopPositionRequest (15).

        Block and raise as :meth:`start_recording`.
        """
        cdef int64_t correlation_id
        cdef str name = f"stop position of recording {recording_id}"
        self._check_open()
        correlation_id = self._client.next_correlation_id()
        self._send(_stop_position_request(self.control_session_id, correlation_id, recording_id), name)
        return self._await_response(correlation_id, name)

    cpdef int check_for_error_response(self) except -1:
        """Read at most one message; never block. Raise ArchiveError when it is an error of this session,
        or when the connection is lost."""
        self._check_open()
        self._poller.poll()
        if not self._poller.is_complete:
            self._check_subscription()
        elif (self._poller.control_session_id == self.control_session_id
                and self._poller.code == CONTROL_RESPONSE_CODE_ERROR):
            self._check_response("archive error")
        return 0

    cpdef int close(self) except -1:
        """End the session and close its two streams; the client stays open. May be called twice."""
        if self._is_closed:
            return 0
        self._is_closed = True
        self._idle = YieldingIdleStrategy()     # the caller's may end the agent a second time
        try:
            if self.control_session_id != NULL_VALUE and self._publication.is_connected():
                self._send(_close_session_request(self.control_session_id), "close session")
        except Exception as error:
            report("info", "archive session was not closed, the archive will time it out: %s", error)
        finally:
            self._close_streams()
        return 0

    cdef int _close_streams(self) except -1:
        try:
            if self._publication is not None:
                self._publication.close()
        finally:
            if self._subscription is not None:
                self._subscription.close()
        return 0


cdef class ArchiveSnapshotWriter(SnapshotWriter):
    """A snapshot that an archive records while it is published; closing the publication ends the
    recording."""

    def __init__(self):
        raise TypeError("made by ArchiveSnapshotStore.create()")

    cpdef int check(self) except -1:
        """Raise ArchiveError when the archive reported an error or is lost."""
        return self._archive.check_for_error_response()

    cpdef int64_t recorded_position(self) except? -1:
        """Up to where the publication is recorded, in bytes. Raises ClusterError when the recording stopped."""
        # The counter is this recording's only if it still is after its value was read: ids are reused.
        cdef int64_t recorded_position = self._counters.value(self.counter_id)
        if recording_counters.recording_id_of(self._counters, self.counter_id) != self.recording_id:
            raise ClusterError(f"recording stopped unexpectedly: {self.recording_id}")
        return recorded_position

    cpdef bint is_complete(self) except -1:
        """Whether all that was published is recorded. Raises ClusterError when the recording stopped before
        that."""
        return self.recorded_position() >= self.publication.position() >= 0

    cpdef int close(self) except -1:
        """End the recording and the archive session. May be called twice."""
        try:
            self.publication.close()
        finally:
            self._archive.close()
        return 0


cdef class ArchiveSnapshotReader(SnapshotReader):
    """A snapshot that an archive replays."""

    def __init__(self):
        raise TypeError("made by ArchiveSnapshotStore.open()")

    cpdef int check(self) except -1:
        """Raise ArchiveError when the archive reported an error or is lost."""
        return self._archive.check_for_error_response()

    cpdef int close(self) except -1:
        """End the replay and the archive session. May be called twice."""
        try:
            self._subscription.close()
        finally:
            self._archive.close()
        return 0


cdef class ArchiveSnapshotStore(SnapshotStore):
    """Snapshots as recordings of the archive beside the consensus module; each operation has its own
    connection.

    ``snapshot_channel`` and ``snapshot_stream_id`` are where a snapshot is published to be recorded,
    ``replay_channel`` and ``replay_stream_id`` where it is replayed; the defaults are upstream's. ``cluster_dir`` is
    the consensus module's directory, whose recording log says which recording the log is.
    """

    def __init__(self, Client client not None, context not None, *,
                 str snapshot_channel not None=SNAPSHOT_CHANNEL,
                 int32_t snapshot_stream_id=SERVICE_SNAPSHOT_STREAM_ID,
                 str replay_channel not None=REPLAY_CHANNEL, int32_t replay_stream_id=REPLAY_STREAM_ID,
                 cluster_dir=None):
        self._client = client
        self.context = context
        self.snapshot_channel = snapshot_channel
        self.snapshot_stream_id = snapshot_stream_id
        self.replay_channel = replay_channel
        self.replay_stream_id = replay_stream_id
        self.cluster_dir = cluster_dir

    cpdef SnapshotWriter create(self, IdleStrategy idle):
        """Connect to the archive, add the publication and wait until it is being recorded.

        Block, idling with ``idle``. Raise ArchiveError when the archive refuses (``code`` STORAGE_SPACE:
        its disk is full) or is lost, TimedOutError, and whatever ``idle`` raises; everything is closed then.
        """
        cdef ArchiveSnapshotWriter writer = ArchiveSnapshotWriter.__new__(ArchiveSnapshotWriter)
        writer._archive = _connect_archive(self._client, self.context, idle)
        try:
            writer.publication = self._client.add_exclusive_publication(
                self.snapshot_channel, self.snapshot_stream_id)
            self._start_recording(writer, idle)
        except BaseException:
            if writer.publication is not None:
                writer.publication.close()
            writer._archive.close()
            raise
        return writer

    cdef int _start_recording(self, ArchiveSnapshotWriter writer, IdleStrategy idle) except -1:
        cdef int32_t session_id = writer.publication.session_id
        cdef int64_t archive_id = writer._archive.archive_id
        cdef int64_t recording_id
        cdef _Wait wait
        writer._archive.start_recording(
            add_session_id(self.snapshot_channel, session_id), self.snapshot_stream_id)
        wait = _Wait(
            self._client, idle, self.context.message_timeout_ns,
            f"the recording position counter of session id {session_id}, archive id {archive_id}")
        writer._counters = self._client.counters()
        while True:
            writer.counter_id = recording_counters.find_by_session(writer._counters, session_id, archive_id)
            recording_id = recording_counters.recording_id_of(writer._counters, writer.counter_id)
            if recording_id != NULL_VALUE:
                writer.recording_id = recording_id
                return 0
            wait.turn(0)
            writer.check()

    cpdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle):
        """Connect to the archive, ask where the recording ends, start its replay from its start and wait
        until the replay arrives.

        Block and raise as :meth:`create`; TimedOutError also when the recording does not stop.
        """
        cdef ArchiveSnapshotReader reader = ArchiveSnapshotReader.__new__(ArchiveSnapshotReader)
        reader._archive = _connect_archive(self._client, self.context, idle)
        try:
            self._await_stop_position(reader, recording_id, idle)
        except BaseException:
            reader._archive.close()
            raise
        return self._open(reader, recording_id, FROM_START, TO_THE_END, idle)

    cpdef SnapshotReader open_log(
            self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle):
        """Connect to the archive, start the replay of the log from ``position`` up to ``end_position`` (bytes) and
        waits until it arrives.

        The recording is the one of the log with ``session_id`` while that is recorded, else the one of the last
        leadership term in the recording log. Block and raise as :meth:`create`, and ClusterError when neither says
        the recording.
        """
        cdef ArchiveSnapshotReader reader = ArchiveSnapshotReader.__new__(ArchiveSnapshotReader)
        cdef int64_t recording_id
        reader._archive = _connect_archive(self._client, self.context, idle)
        try:
            recording_id = self._log_recording_id(session_id, reader._archive.archive_id)
            reader.stop_position = end_position
        except BaseException:
            reader._archive.close()
            raise
        return self._open(reader, recording_id, position, end_position - position, idle)

    cdef int64_t _log_recording_id(self, int32_t session_id, int64_t archive_id) except? -1:
        cdef Counters counters = self._client.counters()
        cdef int64_t recording_id = recording_counters.recording_id_of(
            counters, recording_counters.find_by_session(counters, session_id, archive_id))
        if recording_id != NULL_VALUE:
            return recording_id
        recording_ids = []
        if self.cluster_dir is not None:
            from container.files.recording_log import read_recording_log
            try:
                recording_ids = [
                    entry.recording_id for entry in read_recording_log(self.cluster_dir)
                    if entry.is_term and entry.is_valid and entry.recording_id != NULL_VALUE]
            except FileNotFoundError:
                pass                            # as if it named none
        if not recording_ids:
            raise ClusterError(
                f"which recording the log is, is not known: the archive does not record session id {session_id}, and "
                f"{self.cluster_dir} has no recording.log with a leadership term; cluster_dir must be the consensus "
                "module's")
        return recording_ids[len(recording_ids) - 1]

    cdef SnapshotReader _open(
            self, ArchiveSnapshotReader reader, int64_t recording_id, int64_t position, int64_t length,
            IdleStrategy idle):
        try:
            self._start_replay(reader, recording_id, position, length, idle)
        except BaseException:
            if reader._subscription is not None:
                reader._subscription.close()
            reader._archive.close()
            raise
        return reader

    cdef int _await_stop_position(
            self, ArchiveSnapshotReader reader, int64_t recording_id, IdleStrategy idle) except -1:
        # A recording ends a moment after its snapshot was acknowledged. Only a stopped one has an end to be proven.
        cdef _Wait wait = _Wait(
            self._client, idle, self.context.message_timeout_ns,
            f"recording {recording_id} to stop: the archive is still recording it, and a snapshot without an end "
            "cannot be loaded")
        reader.stop_position = reader._archive.stop_position(recording_id)
        while reader.stop_position == NULL_VALUE:
            wait.turn(0)
            reader.stop_position = reader._archive.stop_position(recording_id)
        return 0

    cdef int _start_replay(
            self, ArchiveSnapshotReader reader, int64_t recording_id, int64_t position, int64_t length,
            IdleStrategy idle) except -1:
        # A subscription without the session id could be fed by another replay on this stream.
        cdef int32_t session_id = <int32_t> reader._archive.start_replay(
            recording_id, position, length, self.replay_channel, self.replay_stream_id)
        cdef str channel = add_session_id(self.replay_channel, session_id)
        cdef _Wait wait = _Wait(
            self._client, idle, self.context.message_timeout_ns,
            f"the replay of recording {recording_id} on {channel} stream {self.replay_stream_id}")
        reader._subscription = self._client.add_subscription(channel, self.replay_stream_id)
        while True:
            reader.image = reader._subscription.image_by_session_id(session_id)
            if reader.image is not None:
                return 0
            wait.turn(0)
            reader.check()


seal((ArchiveClientContext, _Wait, ArchiveClient, ArchiveSnapshotWriter, ArchiveSnapshotReader, ArchiveSnapshotStore))
