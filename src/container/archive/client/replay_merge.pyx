"""A recording that is replayed until it has caught up with the live stream, which then follows without a gap.

Upstream: ReplayMerge.java, with its states and limits. Unlike upstream's it makes its own subscription, and its
requests are in flight beside those of the session. An error that the archive reports meanwhile ends it.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from collections import deque

from container.archive.channel_texts import parse_channel
from container.archive.client.archive_connection import failure
from container.archive.client.archive_connection cimport ArchiveConnection
from container.archive.client.archive_requests import replay_fields
from container.archive.client.archive_streams cimport new_messages
from container.common import channel_uri
from container.common.sealed cimport seal
from container.errors import ArchiveError, ConfigurationError, TimedOutError
from container.transport.frames cimport NULL_VALUE
from container.transport.streams cimport PendingAdd

cdef enum:
    LIVE_ADD_MAX_WINDOW = 32 * 1024 * 1024
    TRANSPORTS = 2                          # of the image, when both destinations feed it

cdef int64_t MS = 1_000_000
cdef int64_t FIRST_BACKOFF_NS = 8 * MS
cdef int64_t MAX_BACKOFF_NS = 500 * MS

STATES = ("ADD_SUBSCRIPTION", "RESOLVE_REPLAY_PORT", "GET_RECORDING_POSITION", "REPLAY", "CATCHUP",
          "ATTEMPT_LIVE_JOIN", "MERGED", "FAILED", "CLOSED")


cdef class ReplayMerge:
    """A recording and the live stream that it is of, as one; made by ``AeronArchive.replay_merge()``.

    Args:
        connection: a session with the archive (ArchiveConnection), connected.
        channel: the subscription's (str), UDP, with ``control-mode=manual`` and the ``session-id`` of the stream.
        stream_id: the stream's (int).
        replay_channel: the replay's (str), without an endpoint, and with that ``session-id``.
        replay_destination: where the replay arrives (str), such as ``aeron:udp?endpoint=localhost:0``.
        live_destination: where the live stream arrives (str).
        recording_id: the id of the recording (int), which is active.
        start_position: where to begin, in bytes (int).
        progress_timeout_ns: maximum time without progress, in nanoseconds (int).

    Attributes:
        recording_id: as given (int).
        start_position: as given (int).
        is_live_added: True once the subscription has the live stream's destination (bool).

    Raises ConfigurationError for channels of IPC, and one that is not ``control-mode=manual``.
    """

    def __init__(
        self, ArchiveConnection connection not None, *, str channel not None, int32_t stream_id,
        str replay_channel not None, str replay_destination not None, str live_destination not None,
        int64_t recording_id, int64_t start_position, int64_t progress_timeout_ns=5_000 * MS
    ):
        for text in (channel, replay_channel, replay_destination, live_destination):
            if text.startswith("aeron:ipc"):
                raise ConfigurationError(f"IPC merging is not supported: {text}")
            parse_channel(text)
        if "control-mode=manual" not in channel:
            raise ConfigurationError(f"the subscription's channel must be control-mode=manual: {channel}")
        self._replay_uri = parse_channel(replay_channel)
        self._replay_uri.put("linger", "0")
        self._replay_uri.put("eos", "false")
        endpoint = parse_channel(replay_destination).get(channel_uri.ENDPOINT)
        if endpoint is None:
            raise ConfigurationError(f"the replay's destination must have an endpoint: {replay_destination}")
        self._replay_uri.put(channel_uri.ENDPOINT, endpoint)
        self._connection = connection
        self._replay_destination = replay_destination
        self._live_destination = live_destination
        self.recording_id = recording_id
        self.start_position = start_position
        self._destinations = deque()
        self._messages = new_messages()
        self._replay_session_id = NULL_VALUE
        self._target_position = self._progress_position = NULL_VALUE
        self._progress_timeout_ns = progress_timeout_ns
        self._progress_ns = self._next_ask_ns = connection._clock.nano_time()
        self._backoff_ns = FIRST_BACKOFF_NS
        self._adding = connection._client.begin_add_subscription(channel, stream_id, False)
        self._state = ADD_SUBSCRIPTION

    @property
    def state(self):
        """How far it is (str), one of ``STATES``."""
        return STATES[<int> self._state]

    @property
    def is_merged(self):
        """Whether the live stream alone feeds it (bool)."""
        return self._state == MERGED

    @property
    def has_failed(self):
        """Whether it has raised; it does not continue then (bool)."""
        return self._state == FAILED

    @property
    def position(self):
        """Up to where it was read, in bytes (int); -1 before the replay has come."""
        return NULL_VALUE if self._image is None else self._image.position()

    def poll(self, on_message, int limit=10):
        """Take a turn, and call ``on_message(message: bytes, position: int)`` with what has come; never waits.

        Args:
            on_message: a callable; ``position`` is where the message ends in the stream, in bytes.
            limit: frames at most (int).

        The result is how many frames were read (int). Raises as :meth:`do_work`.
        """
        self.do_work()
        return self._messages.poll(self._image, on_message, limit)

    cpdef int do_work(self) except -1:
        """Take a turn; how much was done (int).

        Raises ArchiveError when the archive refuses, reports an error of the replay or is lost, and when the image is
        closed; TimedOutError when there is no progress. It has failed then.
        """
        cdef int work_count
        if self._state >= FAILED:
            return 0
        try:
            work_count = self._connection._client.invoke() + self._work(self._connection._clock.nano_time())
        except BaseException:
            self._state = FAILED
            raise
        return work_count

    cdef int _work(self, int64_t now_ns) except -1:
        cdef MergeState state = self._state
        cdef int work_count
        self._poll_destinations()
        if self._image is not None and self._image.is_closed():
            raise ArchiveError(
                f"the image of recording {self.recording_id} was closed at {self._image.position()}, in state "
                f"{self.state}")
        if self._state == MERGED:
            return 0
        work_count = self._connection.turn()
        if self._state == ADD_SUBSCRIPTION:
            self._add()
        elif self._state == RESOLVE_REPLAY_PORT:
            self._resolve(now_ns)
        elif self._state == GET_RECORDING_POSITION:
            if self._ask_position(now_ns) and self._target_position != NULL_VALUE:
                self._enter(REPLAY, now_ns)
        elif self._state == REPLAY:
            self._replay(now_ns)
        elif self._state == CATCHUP:
            self._catch_up(now_ns)
        elif self._state == ATTEMPT_LIVE_JOIN:
            self._join_live(now_ns)
        self._check(now_ns)
        return work_count + (self._state != state)

    cdef int _enter(self, MergeState state, int64_t now_ns) except -1:
        self._state = state
        self._progress_ns = now_ns
        return 0

    cdef bint _poll_destinations(self) except -1:
        """Whether the driver has done all that it was asked for."""
        while self._destinations:
            if (<PendingAdd> self._destinations[0]).poll() is None:
                return False
            self._destinations.popleft()
        return True

    cdef int _add(self) except -1:
        self._subscription = self._adding.poll()
        if self._subscription is None:
            return 0
        self._adding = None
        self._destinations.append(self._subscription.begin_add_destination(self._replay_destination))
        self._state = RESOLVE_REPLAY_PORT
        return 0

    cdef int _resolve(self, int64_t now_ns) except -1:
        cdef str resolved
        if not self._poll_destinations():
            return 0
        if str(self._replay_uri.get(channel_uri.ENDPOINT)).endswith(":0"):
            resolved = self._subscription.resolved_endpoint()
            if not resolved:
                return 0
            self._replay_uri.replace_wildcard_port(resolved)
        return self._enter(GET_RECORDING_POSITION, now_ns)

    cdef bint _ask_position(self, int64_t now_ns) except -1:
        """Whether the archive has said how far the recording is."""
        if self._request is None:
            if now_ns < self._next_ask_ns:
                return False
            self._request = self._connection.ask(
                "MaxRecordedPositionRequest", f"max recorded position of recording {self.recording_id}",
                {"recording_id": self.recording_id})
            self._backoff_ns = min(2 * self._backoff_ns, MAX_BACKOFF_NS)
            self._next_ask_ns = now_ns + self._backoff_ns
            self._progress_ns = now_ns
            return False
        if not self._answered():
            return False
        self._target_position = self._request.relevant_id
        self._request = None
        return True

    cdef int _answered(self) except -1:
        if not self._request.is_done:
            return False
        if self._request.error is not None:
            raise failure(self._request)
        return True

    cdef int _replay(self, int64_t now_ns) except -1:
        if self._request is None:
            self._request = self._connection.ask(
                "ReplayRequest", f"replay of recording {self.recording_id} to {self._replay_uri}",
                replay_fields(self.recording_id, self.start_position, INT64_MAX, str(self._replay_uri),
                              self._subscription.stream_id))
            return 0
        if not self._answered():
            return 0
        self._replay_session_id = self._request.relevant_id
        self._request = None
        self._backoff_ns = FIRST_BACKOFF_NS
        self._next_ask_ns = now_ns
        return self._enter(CATCHUP, now_ns)

    cdef int _catch_up(self, int64_t now_ns) except -1:
        cdef int64_t position
        if self._image is None:
            self._image = self._subscription.image_by_session_id(<int32_t> self._replay_session_id)
            if self._image is None:
                return 0
            self._progress_ns = now_ns
            self._progress_position = self._image.position()
        position = self._image.position()
        if position >= self._target_position:
            self._progress_position = position
            return self._enter(ATTEMPT_LIVE_JOIN, now_ns)
        if position > self._progress_position:
            self._progress_position = position
            self._progress_ns = now_ns
        return 0

    cdef int _join_live(self, int64_t now_ns) except -1:
        cdef int64_t position, left
        if not self._ask_position(now_ns) or self._target_position == NULL_VALUE:
            return 0
        position = self._image.position()
        left = self._target_position - position
        if not self.is_live_added and left <= min(self._image.term_buffer_length >> 2, LIVE_ADD_MAX_WINDOW):
            self._destinations.append(self._subscription.begin_add_destination(self._live_destination))
            self.is_live_added = True
            self._progress_ns = now_ns
        elif self.is_live_added and left <= 0 and self._image.active_transport_count() >= TRANSPORTS:
            self._destinations.append(self._subscription.begin_remove_destination(self._replay_destination))
            self._stop_replay()
            return self._enter(MERGED, now_ns)
        self._progress_position = position
        self._state = CATCHUP
        return 0

    cdef int _check(self, int64_t now_ns) except -1:
        """Check for errors of the archive, and for progress."""
        if self._state >= MERGED:
            return 0
        error = self._connection.take_error()
        if error is not None:
            raise error
        if now_ns - self._progress_ns > self._progress_timeout_ns:
            raise TimedOutError(
                f"ReplayMerge no progress: state={self.state}, activeTransportCount="
                f"{0 if self._image is None else self._image.active_transport_count()}")
        return 0

    cdef int _stop_replay(self) except -1:
        """Tell the archive, if there is room: it ends a replay that nobody reads by itself."""
        cdef int64_t replay_session_id = self._replay_session_id
        if replay_session_id != NULL_VALUE:
            self._replay_session_id = NULL_VALUE
            try:
                self._connection.tell("StopReplayRequest", {"replay_session_id": replay_session_id})
            except ArchiveError:
                self._replay_session_id = replay_session_id     # close() tries again
        return 0

    def close(self):
        """End the replay and the subscription. Raises nothing; may be called twice."""
        if self._state == CLOSED:
            return
        self._state = CLOSED
        if self._request is not None:
            self._connection.forget(self._request)
        self._stop_replay()
        for pending in (self._adding, *self._destinations):
            if pending is not None:
                (<PendingAdd> pending).close()
        self._destinations.clear()
        if self._subscription is not None:
            self._subscription.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def __repr__(self):
        return f"<ReplayMerge {self.state} of recording {self.recording_id} position={self.position}>"


seal((ReplayMerge,))
