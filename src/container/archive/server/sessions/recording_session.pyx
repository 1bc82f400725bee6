"""An active recording: what an image receives goes to segment files, and a counter says how far.

Upstream: RecordingSession.java. A session neither knows the catalog nor closes anything. Once it is done, its owner
calls ``RecordingStore.stop`` with the writer, and closes the counter after that.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive.server.store.layout cimport FRAME_HEADER_LENGTH, is_padding
from container.archive.server.store.segment_writer cimport SegmentWriter
from container.common.error_texts import message_of, type_name
from container.common.sealed cimport seal
from container.errors import ArchiveError
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter
from container.transport.streams cimport BlockHandler, Image

cdef enum:
    INIT
    RECORDING
    DONE

_STATES = ("INIT", "RECORDING", "DONE")


cdef class RecordingSession(BlockHandler):
    """The recording of one image.

    Args:
        recording_id: of the recording (int).
        subscription_id: registration id of the subscription that the image is of (int).
        correlation_id: of the request for the recording, for replies and signals (int).
        image: at the position where the writer begins (Image).
        counter: its value is where the writer begins (Counter).
        writer: the session opens it (SegmentWriter).
        block_length_limit: bytes that are written at most at a time; a whole frame at least is written.
        is_auto_stop: whether the subscription ends with the recording (bool); for the owner.
        owner: anything, kept for whoever made the session.
        clock: times the writes where one is given (Clock).
    """

    def __init__(
        self, int64_t recording_id, int64_t subscription_id, int64_t correlation_id, Image image not None,
        Counter counter not None, SegmentWriter writer not None, *, int64_t block_length_limit, bint is_auto_stop=False,
        owner=None, Clock clock=None
    ):
        self.recording_id, self.subscription_id, self.correlation_id = recording_id, subscription_id, correlation_id
        self.image, self.counter, self.writer = image, counter, writer
        self.is_auto_stop, self.owner, self._clock = is_auto_stop, owner, clock
        # A frame longer than the limit of a poll never comes.
        self._block_length_limit = <int> min(
            <int64_t> image.term_buffer_length, max(block_length_limit, <int64_t> image.mtu_length))
        self.announced_position = image.join_position
        self._state = INIT

    @property
    def is_done(self):
        """Whether nothing more is recorded (bool): :attr:`recorded_position` is where the recording ends."""
        return self._state == DONE

    @property
    def recorded_position(self):
        """How far the recording is written, and forced by level (int). Its stop position, once it is done."""
        return self.writer.position

    cdef bint has_ended(self) noexcept:
        return self._state == DONE

    cpdef int do_work(self) except -1:
        """Record one block, and return its length in bytes, or how much else was done.

        The recording ends when the image has ended or is closed, and all that it delivered is written; and with the
        first failure, which is :attr:`error` then. Nothing of it is raised.
        """
        cdef int work_count = 0
        try:
            if self._state == INIT:
                self.writer.open()
                self._state = RECORDING
                work_count = 1
            if self._state == RECORDING:
                work_count += self._record()
        except Exception as error:
            self._fail(error)
            work_count += 1
        return work_count

    cdef int _record(self) except -1:
        cdef int length = self.image.block_poll(self, self._block_length_limit)
        if length == 0 and (self.image.is_end_of_stream() or self.image.is_closed()):
            self._state = DONE
            return 1
        return length

    cpdef int abort(self) except -1:
        """End the recording where it is: what the image has still to deliver is not recorded. May be called twice."""
        self._state = DONE
        return 0

    cdef int on_block(self, const uint8_t* block, size_t length, int32_t session_id, int32_t term_id) except -1:
        self._write(block, length)
        # Others take this for the commit position: by now the block is in the file, and on the disk by level.
        assert self.counter.get() <= self.writer.position, "what was announced is not taken back"
        self.counter.set(self.writer.position)
        return 0

    cdef int _write(self, const uint8_t* block, size_t length) except -1:
        cdef int64_t begin_ns = 0 if self._clock is None else self._clock.nano_time()
        cdef int64_t duration_ns
        cdef size_t written = FRAME_HEADER_LENGTH if is_padding(block) else length
        self.writer.write_block(block, length)
        self.written_bytes += <int64_t> written
        if self._clock is not None:
            duration_ns = self._clock.nano_time() - begin_ns
            self.write_time_ns += duration_ns
            self.longest_write_ns = max(self.longest_write_ns, duration_ns)
        return 0

    cdef int _fail(self, object error) except -1:
        self._state = DONE
        cdef str text = message_of(error)
        if isinstance(error, ArchiveError):
            self.error = ArchiveError(text, code=error.code, correlation_id=self.correlation_id)
        else:
            self.error = ArchiveError(
                f"recording {self.recording_id} cannot continue at {self.writer.position}: {type_name(error)}: {text}",
                correlation_id=self.correlation_id)
        self.error.__cause__ = error
        return 0

    def __repr__(self):
        return (f"<RecordingSession recording_id={self.recording_id} {_STATES[self._state]} "
                f"recorded_position={self.writer.position}>")


seal((RecordingSession,))
