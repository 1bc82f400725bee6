"""The streams that a client of an archive works with: publications that are recorded, and replays."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive.client.archive_connection cimport ArchiveConnection, Wait, deadline_after
from container.common.channel_uri import add_session_id
from container.common.sealed cimport hide
from container.errors import ArchiveError, TimedOutError
from container.transport.fragment_assembler cimport BytesAssembler
from container.transport.frames cimport ACTION_CONTINUE, FrameHeader
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.streams cimport FragmentHandler, Image


cdef class RecordedPublication:
    """A publication whose messages an archive records; ``with`` closes it, which ends the recording."""

    def offer(self, message):
        """Try once to publish a message (bytes or another buffer); never waits.

        The result is the new position in bytes (int), or one of :mod:`container.api`'s: BACK_PRESSURED or ADMIN_ACTION,
        so try again; NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED. Raises AeronError for a message that is too long.
        """
        cdef Py_buffer view
        cdef int64_t result
        self._client.invoke()
        PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
        try:
            result = self._publication.offer(<const uint8_t*> view.buf, <size_t> view.len)
        finally:
            PyBuffer_Release(&view)
        return result

    @property
    def channel(self):
        """On which it publishes (str)."""
        return self._publication.channel

    @property
    def stream_id(self):
        """On which it publishes (int)."""
        return self._publication.stream_id

    @property
    def session_id(self):
        """The session id of the publication, and of its recording (int)."""
        return self._publication.session_id

    @property
    def position(self):
        """Up to where it has published, in bytes (int); negative once it is closed."""
        return self._publication.position()

    @property
    def max_message_length(self):
        """The longest message that it takes, in bytes (int)."""
        return self._publication.max_message_length

    @property
    def is_connected(self):
        """Whether somebody, such as the archive, subscribes to it (bool)."""
        self._client.invoke()
        return self._publication.is_connected()

    def close(self):
        """Publish no more; may be called twice."""
        self._publication.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def __repr__(self):
        return f"<RecordedPublication session {self.session_id} on {self.channel} stream {self.stream_id}>"


cdef Messages new_messages():
    cdef Messages messages = Messages.__new__(Messages)
    messages._assembler = BytesAssembler(messages._deliver)
    return messages


cdef class Messages(FragmentHandler):
    """Gives whole messages, as bytes, to a callable."""

    cdef int poll(self, Image image, object on_message, int limit) except -1:
        """Read frames of an image, if it has come (None: not yet); how many."""
        if image is None:
            return 0
        self._on_message = on_message
        try:
            return image.controlled_poll(self, limit)
        finally:
            self._on_message = None

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        self._position = header.position
        self._assembler.on_fragment(buffer, length, header)
        return ACTION_CONTINUE

    def _deliver(self, message):
        self._on_message(message, self._position)


cdef class Replay:
    """A replay of a recording that is subscribed to; ``with`` closes it.

    Attributes:
        replay_session_id: the id of the replay in its archive (int).
        session_id: the session id of the replay's stream (int): the low 32 bits of that.
    """

    def poll(self, on_message, int limit=10):
        """Call ``on_message(message: bytes, position: int)`` with what has come; never waits.

        Args:
            on_message: a callable; ``position`` is where the message ends in the recording, in bytes.
            limit: frames at most (int).

        The result is how many frames were read (int). Raises TimedOutError when the replay has not come within the
        message timeout.
        """
        self._client.invoke()
        self._find()
        if self._image is None and self._client.clock.nano_time() >= self._deadline_ns:
            raise TimedOutError(
                f"waited {self._limit_ns / 1e9:g} s for the image of replay {self.replay_session_id} on "
                f"{self._subscription.channel}: it came too late, or came and went")
        return self._messages.poll(self._image, on_message, limit)

    cdef int _find(self) except -1:
        if self._image is None:
            self._image = self._subscription.image_by_session_id(self.session_id)
        return 0

    @property
    def position(self):
        """Up to where it was read, in bytes (int); -1 before it has come."""
        self._find()
        return -1 if self._image is None else self._image.position()

    @property
    def has_ended(self):
        """Whether all of it was read, or no more comes (bool)."""
        self._client.invoke()
        self._find()
        return self._image is not None and (self._image.is_end_of_stream() or self._image.is_closed())

    def check_end(self):
        """Raise ArchiveError when the image has gone before all that was published was read."""
        if self._image is not None and self._image.is_closed() and not self._image.is_end_of_stream():
            raise ArchiveError(
                f"replay {self.replay_session_id} has ended at {self._image.position()}, before its end: it was "
                "stopped, or was not read in time")

    def close(self):
        """Read no more; the archive ends the replay then. May be called twice."""
        self._subscription.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def __repr__(self):
        return f"<Replay {self.replay_session_id} on {self._subscription.channel}>"


cdef class StreamAdd:
    """A stream that a driver was asked to add."""

    @staticmethod
    def publication(ArchiveConnection connection not None, str channel not None, int32_t stream_id, bint is_exclusive):
        """A publication to come, a RecordedPublication."""
        cdef StreamAdd adding = StreamAdd.__new__(StreamAdd)
        adding._connection = connection
        adding._pending = connection._client.begin_add_publication(channel, stream_id, is_exclusive)
        return adding

    @staticmethod
    def replay(ArchiveConnection connection not None, str channel not None, int32_t stream_id, int64_t session_id):
        """A subscription to come, a Replay."""
        cdef StreamAdd adding = StreamAdd.__new__(StreamAdd)
        adding._connection = connection
        adding._is_replay = True
        adding._replay_session_id = session_id
        adding._pending = connection._client.begin_add_subscription(
            add_session_id(channel, <int32_t> session_id), stream_id, False)
        return adding

    cpdef object poll(self):
        """The resource added; None until the driver has answered. Raises RegistrationError when it refuses."""
        cdef RecordedPublication published
        cdef Replay replay
        cdef object added
        self._connection._client.invoke()
        added = self._pending.poll()
        if added is None:
            return None
        if self._is_replay:
            replay = Replay.__new__(Replay)
            replay._client = self._connection._client
            replay._subscription = added
            replay.replay_session_id = self._replay_session_id
            replay.session_id = <int32_t> self._replay_session_id
            replay._messages = new_messages()
            replay._limit_ns = self._connection.context.message_timeout_ns
            replay._deadline_ns = deadline_after(replay._client.clock.nano_time(), replay._limit_ns)
            return replay
        published = RecordedPublication.__new__(RecordedPublication)
        published._client = self._connection._client
        published._publication = added
        return published

    def wait(self, IdleStrategy idle not None, str what not None):
        """The resource added; waits up to the message timeout. Raises TimedOutError too."""
        cdef Wait wait = Wait(self._connection._client, idle, self._connection.context.message_timeout_ns, what)
        cdef object added
        try:
            while True:
                added = self.poll()
                if added is not None:
                    return added
                wait.turn(0)
        except BaseException:
            self._pending.close()
            raise

    def close(self):
        """Give it up."""
        self._pending.close()


hide((RecordedPublication, Messages, Replay, StreamAdd))
