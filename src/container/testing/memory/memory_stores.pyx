"""An agent's stores in memory: snapshots, recorded and replayed as an archive would, and the mark file."""
import itertools

from libc.stdint cimport int32_t, int64_t, uint8_t

from container.common.aeron_defaults import (
    REPLAY_CHANNEL, REPLAY_STREAM_ID, SERVICE_SNAPSHOT_STREAM_ID, SNAPSHOT_CHANNEL,
)
from container.common.channel_uri import add_session_id
from container.common.sealed cimport hide, seal
from container.errors import ArchiveError, ClusterError, ConfigurationError, TimedOutError
from container.testing.memory.memory_log cimport MemoryImage, MemoryLog
from container.testing.memory.memory_transport cimport MemoryClient, MemoryPublication
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.frames cimport ACTION_CONTINUE, NULL_VALUE, FrameHeader
from container.transport.transport_seam cimport MarkFile, SnapshotReader, SnapshotStore, SnapshotWriter
from container.transport.streams cimport FragmentHandler, Publication, Subscription

cdef enum:
    UNKNOWN_RECORDING = 5                                   # the archive's error codes
    EMPTY_RECORDING = 15
    INVALID_POSITION = 16
    MAX_IDLES = 10_000                                      # while waiting for an image

_OPERATIONS = ("create", "open", "open_log", "check", "complete", "close")


cdef class _Discard(FragmentHandler):
    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        return ACTION_CONTINUE


cdef _Discard _discard = _Discard()


cdef class MemoryRecording:
    """A recording: ``log`` (:class:`MemoryLog`), recorded up to ``recorded_position`` (int)."""

    cdef int record(self) except -1:
        cdef int64_t position
        if self._image is not None:
            while True:                                     # a poll of padding alone delivers nothing and moves on
                position = self._image.position()
                self._image.controlled_poll(_discard, 1_000)
                if self._image.position() == position:
                    break
            self.recorded_position = position
        return 0

    def __call__(self):
        """Record what has been published, as the archive's own agent does."""
        self.record()

    def __repr__(self):
        return f"<MemoryRecording recorded_position={self.recorded_position} {self.log!r}>"


cdef class MemorySnapshotWriter(SnapshotWriter):
    """A snapshot being recorded by a :class:`MemorySnapshotStore`."""

    cdef int check(self) except -1:
        self._store._script("check", None)
        return 0

    cdef int64_t recorded_position(self) except? -1:
        return self._recording.recorded_position

    cdef bint is_complete(self) except -1:
        if not self._store._script("complete", None):
            return False
        if self.publication.is_closed():
            raise ClusterError(f"recording stopped unexpectedly: recordingId={self.recording_id}")
        self._recording.record()
        return self._recording.recorded_position >= self.publication.position()

    cpdef int close(self) except -1:
        if self._subscription is not None:
            self.publication.close()
            self._store._archive.driver.remove_task(self._recording)
            self._recording.record()
            self._recording._image = None
            self._subscription.close()
            self._subscription = None
            self._store._script("close", None)
        return 0


cdef class MemorySnapshotReader(SnapshotReader):
    """A snapshot being replayed by a :class:`MemorySnapshotStore`."""

    cdef int check(self) except -1:
        self._store._script("check", None)
        return 0

    cpdef int close(self) except -1:
        self._subscription.close()
        self._store._script("close", None)
        return 0


cdef class MemorySnapshotStore(SnapshotStore):
    """Records snapshots that ``client`` publishes, and replays them to it, through the driver of the client.

    An archive client of its own stands for the archive's process. Recording ids begin at
    ``first_recording_id``.
    """

    def __init__(self, MemoryClient client not None, *, str snapshot_channel=SNAPSHOT_CHANNEL,
                 int32_t snapshot_stream_id=SERVICE_SNAPSHOT_STREAM_ID, str replay_channel=REPLAY_CHANNEL,
                 int32_t replay_stream_id=REPLAY_STREAM_ID,
                 int64_t first_recording_id=7):
        self._client = client
        self._archive = client.driver.connect("archive", is_invoker=False)
        self.snapshot_channel = snapshot_channel
        self.snapshot_stream_id = snapshot_stream_id
        self.replay_channel = replay_channel
        self.replay_stream_id = replay_stream_id
        self._next_recording_id = first_recording_id
        self._recordings = {}
        self._logs = []
        self._scripts = {operation: iter(()) for operation in _OPERATIONS}

    def script(self, str operation not None, steps):
        """Script the next calls of an operation, one step of the iterable ``steps`` for each.

        Operations are ``create``, ``open``, ``open_log``, ``check`` (of a writer or reader), ``complete`` and ``close``
        (of a writer or reader, which raises when its streams are closed). A step is None (as usual), an exception that
        is raised, or an int: how many times create and open idle before they continue, while ``complete`` answers "not
        yet" to any int. Steps of several calls add up; an endless iterable is welcome.
        """
        if operation not in self._scripts:
            raise ConfigurationError(f"unknown operation {operation!r}: known are {', '.join(_OPERATIONS)}")
        self._scripts[operation] = itertools.chain(self._scripts[operation], steps)

    def add_recording(
            self, messages, *, int32_t term_length=64 * 1024, int32_t mtu_length=1408, recording_id=None):
        """A finished recording of ``messages``, such as a snapshot that Java took; its id.

        Each is bytes, or ``(payload, flags)`` for one frame with just these flags, whatever they make of it.
        """
        cdef MemoryRecording recording = MemoryRecording.__new__(MemoryRecording)
        recording.log = MemoryLog(
            session_id=self._archive.driver.take_session_id(), stream_id=self.snapshot_stream_id,
            term_length=term_length, mtu_length=mtu_length)
        recording.log.retained = True
        for message in messages:
            if isinstance(message, tuple):
                recording.log.append_frame(message[0], flags=message[1])
            else:
                recording.log.append(message)
        recording.recorded_position = recording.log.position()
        return self._keep(recording, recording_id)

    def record_log(self, MemoryLog log not None):
        """Have the archive record this log of the member, which continues where the one before ended."""
        log.retained = True
        self._logs.append(log)

    @property
    def recording_ids(self):
        """The ids of all recordings, in the order in which they were begun (list of int)."""
        return list(self._recordings)

    def recording(self, int64_t recording_id):
        """The :class:`MemoryRecording` with that id; raises ArchiveError when there is none."""
        if recording_id not in self._recordings:
            raise ArchiveError(f"unknown recording id: {recording_id}", code=UNKNOWN_RECORDING)
        return self._recordings[recording_id]

    def delete_recording(self, int64_t recording_id):
        """Forget a recording, as an archive purges it; raises ArchiveError when there is none."""
        self.recording(recording_id)
        del self._recordings[recording_id]

    def messages(self, int64_t recording_id):
        """The messages of a recording, put together again (list of bytes)."""
        cdef MemoryRecording recording = self.recording(recording_id)
        return recording.log.messages(recording.recorded_position)

    def frames(self, int64_t recording_id):
        """The raw frames of a recording (list of Frame)."""
        cdef MemoryRecording recording = self.recording(recording_id)
        return recording.log.frames(recording.recorded_position)

    cdef SnapshotWriter create(self, IdleStrategy idle):
        cdef MemorySnapshotWriter writer = MemorySnapshotWriter.__new__(MemorySnapshotWriter)
        cdef MemoryRecording recording = MemoryRecording.__new__(MemoryRecording)
        cdef MemoryPublication publication
        self._script("create", idle)
        publication = self._client.add_exclusive_publication(self.snapshot_channel, self.snapshot_stream_id)
        writer._subscription = self._archive.add_subscription(
            add_session_id(self.snapshot_channel, publication.session_id), self.snapshot_stream_id)
        recording.log = publication.log
        recording.log.retained = True
        recording._image = writer._subscription.image_at_index(0)
        self._archive.driver.add_task(recording)
        writer.publication = publication
        writer.recording_id = self._keep(recording, None)
        writer._recording = recording
        writer._store = self
        return writer

    cdef SnapshotReader open(self, int64_t recording_id, IdleStrategy idle):
        cdef MemoryRecording recording
        self._script("open", idle)
        recording = self.recording(recording_id)
        if recording.recorded_position == recording.log.start_position:
            raise ArchiveError(f"cannot replay empty recording {recording_id}", code=EMPTY_RECORDING)
        return self._replay(recording.log, recording.log.first_position(), recording.recorded_position, idle)

    cdef SnapshotReader open_log(
            self, int64_t position, int64_t end_position, int32_t session_id, IdleStrategy idle):
        cdef MemoryLog log
        self._script("open_log", idle)
        for log in reversed(self._logs):        # what was not committed of a log is overwritten by the next
            if log.first_position() <= position < end_position <= log.position():
                return self._replay(log, position, end_position, idle)
        raise ArchiveError(f"no recording has the positions {position} to {end_position}", code=INVALID_POSITION)

    cdef SnapshotReader _replay(self, MemoryLog log, int64_t position, int64_t end_position, IdleStrategy idle):
        cdef MemorySnapshotReader reader = MemorySnapshotReader.__new__(MemorySnapshotReader)
        cdef Publication replay
        cdef int32_t session_id = self._archive.driver.take_session_id()
        cdef str channel = add_session_id(self.replay_channel, session_id)
        replay = self._archive.publish_log(
            log.copy(session_id=session_id, stream_id=self.replay_stream_id, begin_position=position,
                     end_position=end_position), channel)
        reader._store = self
        reader.stop_position = end_position
        reader._subscription = self._client.add_subscription(channel, self.replay_stream_id)
        replay.close()
        reader.image = self._await_image(reader._subscription, session_id, idle)
        return reader

    cdef MemoryImage _await_image(self, Subscription subscription, int32_t session_id, IdleStrategy idle):
        cdef MemoryImage image = subscription.image_by_session_id(session_id)
        cdef int idles = 0
        try:
            while image is None:
                if idles == MAX_IDLES:
                    raise TimedOutError(f"no image of replay session {session_id} after {idles} idles")
                idles += 1
                idle.idle(0)
                self._client.invoke()
                image = subscription.image_by_session_id(session_id)
        except BaseException:
            subscription.close()
            raise
        return image

    cdef int64_t _keep(self, MemoryRecording recording, object recording_id) except? -1:
        if recording_id is None:
            recording_id = self._next_recording_id
        self._next_recording_id = max(self._next_recording_id, recording_id + 1)
        self._recordings[recording_id] = recording
        return recording_id

    cdef int _script(self, str operation, IdleStrategy idle) except -1:
        # 1: continue; 0: not yet.
        cdef int _index
        step = next(self._scripts[operation], None)
        if step is None:
            return 1
        if isinstance(step, BaseException):
            raise step
        if idle is None:
            return 0
        for _index in range(step):
            idle.idle(0)
        return 1


cdef class MemoryMarkFile(MarkFile):
    """Records an agent's writes to its mark file: ``activity_timestamps`` and ``member_ids`` (lists, oldest first),
    ``is_terminated`` and ``is_closed``. ``error``, when set, is raised by the next activity timestamp or the end."""

    def __cinit__(self):
        self.activity_timestamps = []
        self.member_ids = []
        self.error = None

    @property
    def member_id(self):
        """The member id written last (int), -1 when none was."""
        return self.member_ids[len(self.member_ids) - 1] if self.member_ids else NULL_VALUE

    cdef int _fail(self) except -1:
        error = self.error
        self.error = None
        if error is not None:
            raise error
        return 0

    cdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        self._fail()
        self.activity_timestamps.append(now_ms)
        return 0

    cdef int set_member_id(self, int32_t member_id) except -1:
        self.member_ids.append(member_id)
        return 0

    cdef int signal_terminated(self) except -1:
        self._fail()
        self.is_terminated = True
        return 0

    cpdef int close(self) except -1:
        self.is_closed = True
        return 0


hide((MemoryRecording, MemorySnapshotWriter, MemorySnapshotReader))
seal((_Discard, MemorySnapshotStore, MemoryMarkFile))
