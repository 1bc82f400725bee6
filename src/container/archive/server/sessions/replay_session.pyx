"""A replay: frames of a recording go into a publication, batch by batch, with the publication's ids.

Upstream: ReplaySession.java. The answer to the request is due before there is a subscriber: clients wait for it, and
subscribe only then. A replay whose limit is reached closes its publication, so that subscribers read all of it. After
anything else the publication is revoked, unless its channel asks for no end of stream (``eos=false``): upstream revokes
that, too, and takes from a follower's services the log that they are to join.

Better than upstream's: where an active recording ends is known from its session, not from a counter that may be gone;
no frame beyond the bounding counter is sent, whatever is requested or recorded; what is read is sent in parts where
the window is small, and not read again; an empty replay ends at once, wherever it is.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from container.archive import error_codes
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.store.layout cimport (
    FRAME_HEADER_LENGTH, FRAME_SESSION_ID_OFFSET, FRAME_STREAM_ID_OFFSET, align_frame, is_padding,
)
from container.archive.server.store.segment_reader cimport SegmentReader
from container.codecs cimport sbe
from container.common.channel_uri import ChannelUri
from container.common.error_texts import message_of, shorten, type_name
from container.common.sealed cimport seal
from container.errors import ArchiveError, RecordingError, RecordingUnavailableError
from container.transport.clocks cimport Clock
from container.transport.counters cimport COUNTER_ALLOCATED, Counters
from container.transport.frames cimport ADMIN_ACTION, BACK_PRESSURED, CLOSED, NOT_CONNECTED, NULL_VALUE
from container.transport.streams cimport Publication, publication_result_name

cdef enum:
    INIT
    CONNECTING
    REPLAYING
    DONE

_STATES = ("INIT", "CONNECTING", "REPLAYING", "DONE")
_MAX_TEXT_LENGTH = 1024


cdef int64_t readdress(
        uint8_t* frames, int64_t length, int64_t room, int64_t wanted, int32_t session_id,
        int32_t stream_id) noexcept nogil:
    """Give whole data frames the ids of a publication, and return the number of bytes to send.

    No frame ends behind ``room``; the last of them is the one that reaches ``wanted``.
    """
    cdef int64_t begin = 0, end
    while begin < length and begin < wanted:
        end = begin + align_frame(sbe.sbe_get_int32(frames + begin))
        if end > room:
            break
        sbe.sbe_put_int32(frames + begin + FRAME_SESSION_ID_OFFSET, session_id)
        sbe.sbe_put_int32(frames + begin + FRAME_STREAM_ID_OFFSET, stream_id)
        begin = end
    return begin


cdef class ReplaySession:
    """One replay; it closes the reader and the publication when it ends.

    Args:
        replay_session_id: the id for the answer to the request (int).
        correlation_id: the request's (int).
        reader: at the position where the replay begins (SegmentReader).
        publication: an exclusive one, at that position, with the recording's term length and ids (Publication).
        replay_range: the range to replay (container.archive.server.sessions.replay_request.ReplayRange).
        recording: the recording while it is active (RecordingSession); else None.
        stop_position: where the recording ends, unless it is active (int).
        counters: has the counter that bounds the replay (Counters); None for a replay without bounds.
        counter_id, counter_registration_id: ids of that counter (int).
        connect_deadline_ns: until when the segment and a subscriber must be there (int), by the clock's nano time.
        clock: for the deadline, and to measure reads (Clock).
        read_length: maximum bytes of one read (int); 0: as many as the reader can.
        owner: anything, kept for whoever made the session.

    Raises ValueError for arguments that contradict each other; nothing is closed then.
    """

    def __init__(
        self, int64_t replay_session_id, int64_t correlation_id, SegmentReader reader not None,
        Publication publication not None, *, replay_range, RecordingSession recording=None,
        int64_t stop_position=NULL_VALUE, Counters counters=None, int32_t counter_id=NULL_VALUE,
        int64_t counter_registration_id=NULL_VALUE, int64_t connect_deadline_ns, Clock clock not None,
        int64_t read_length=0, owner=None
    ):
        cdef int64_t position = replay_range.position, length = replay_range.length
        if position != reader.position or not 0 <= length <= INT64_MAX - position:
            raise ValueError(f"{length} bytes from {position} cannot be replayed by a reader at {reader.position}")
        if recording is None and stop_position < 0:
            raise ValueError(f"recording {reader.recording_id} has neither a session nor a stop position")
        if recording is not None and recording.recording_id != reader.recording_id:
            raise ValueError(f"the session of recording {recording.recording_id} is not that of {reader.recording_id}")
        self.replay_session_id, self.correlation_id = replay_session_id, correlation_id
        self.recording_id, self.owner, self.publication = reader.recording_id, owner, publication
        self._reader, self._recording, self._clock = reader, recording, clock
        self._counters, self._counter_id = counters, counter_id
        self._counter_registration_id = counter_registration_id
        self._connect_deadline_ns = connect_deadline_ns
        self._limit = position + length
        self._recorded = stop_position
        if recording is None:
            self._limit = min(self._limit, stop_position)
        self._bound = INT64_MAX if counters is None else NULL_VALUE
        self._read_length = min(<size_t> read_length, reader.capacity) if read_length > 0 else reader.capacity
        self._state = INIT

    @property
    def is_done(self):
        """Whether the replay has ended (bool), and its publication is closed or revoked."""
        return self._state == DONE

    @property
    def position(self):
        """Up to where the recording is replayed (int)."""
        return self._reader.position

    cpdef bint take_response(self) except -1:
        """Whether to answer the request now (bool): True once, when the replay is found to be possible.

        Send an :attr:`error` of the same call of :meth:`do_work` after the answer.
        """
        cdef bint is_due = self._is_response_due
        self._is_response_due = False
        return is_due

    cpdef int do_work(self) except -1:
        """Do the next step, or send one batch; return the bytes sent, or how much else was done.

        A failure ends the replay and is :attr:`error` then; nothing of it is raised.
        """
        cdef int work_count = 0
        try:
            if self._state == INIT:
                work_count += self._init()
            if self._state == CONNECTING:
                work_count += self._connect()
            if self._state == REPLAYING:
                work_count += self._replay()
        except Exception as error:
            self._fail(error)
            work_count += 1
        return work_count

    cpdef int abort(self) except -1:
        """End the replay at once, and its publication as above. May be called twice.

        Where the request is not answered yet, :attr:`error` says so.
        """
        if self._state == INIT:
            self._fail(ArchiveError("replay aborted"))
        elif self._state != DONE:
            self._finish(True)
        return 0

    cdef int _init(self) except -1:
        if self.publication.is_closed():
            raise ArchiveError("replay publication is closed")
        if not self._open_segment():
            return 0
        self._check_position()
        self._is_response_due = True
        self._state = CONNECTING
        return 1

    cdef bint _open_segment(self) except -1:
        """Open the segment of the position. That of a recording which is about to begin may not be there yet."""
        cdef object missing = None
        try:
            self._reader.open()
        except RecordingUnavailableError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            missing = error
        if missing is not None and self._clock.coarse_nano_time() > self._connect_deadline_ns:
            raise RecordingUnavailableError("recording segment file not created", file=missing.file) from missing
        return missing is None

    cdef int _check_position(self) except -1:
        cdef int64_t position = self._reader.position
        self._follow()
        if position > self._recorded or (position < self._recorded and not self._reader.is_at_frame(position)):
            raise ArchiveError(
                f"replayPosition={position} does not point to a valid frame", code=error_codes.INVALID_POSITION)
        if self.publication.position() != position:
            raise ArchiveError(f"replay publication is at {self.publication.position()}, not at {position}")
        return 0

    cdef int _connect(self) except -1:
        if self.publication.is_connected():
            self._state = REPLAYING
            return 1
        if self.publication.is_closed() or self._clock.coarse_nano_time() > self._connect_deadline_ns:
            raise ArchiveError(
                f"no connection established for replayChannel={shorten(self.publication.channel, _MAX_TEXT_LENGTH)}, "
                f"replayStreamId={self.publication.stream_id}")
        return 0

    cdef int _replay(self) except -1:
        cdef int64_t position = self._reader.position
        cdef int64_t end
        if not self.publication.is_connected():
            return self._finish(True)
        end = self._follow()
        if position >= self._limit:
            return self._finish(False)
        if position < end:
            # A batch goes as a whole, past the window, as upstream's: a few frames at each wake would cost more.
            if self.publication.available_window() <= 0:
                return 0
            if self._batch_begin == self._batch_end:
                self._read(end)
            if self._batch_begin < self._batch_end and self._first_frame_end() <= end:
                return self._send(end)
        if self._is_bound_final and self._bound <= self._recorded:
            return self._finish(False)
        return 0

    cdef int64_t _first_frame_end(self) noexcept:
        """Where the first frame ends that is read and not sent."""
        return self._reader.position + align_frame(sbe.sbe_get_int32(self._reader.data + self._batch_begin))

    cdef int64_t _follow(self) noexcept:
        if self._recording is not None:
            self._recorded = self._recording.writer.position
            if self._recording.has_ended():
                self._recording = None
                self._limit = min(self._limit, self._recorded)
        if self._counters is not None:
            self._follow_counter()
        return min(self._recorded, self._bound)

    cdef int _follow_counter(self) noexcept:
        cdef int64_t value = self._counters.value(self._counter_id)
        cdef bint is_same = self._counters.registration_id(self._counter_id) == self._counter_registration_id
        if is_same and self._counters.state(self._counter_id) == COUNTER_ALLOCATED:
            self._bound = value
            return 0
        # Its last value stays until its place is taken, which may just be happening.
        if is_same:
            self._bound = max(self._bound, value)
        self._is_bound_final = True
        self._counters = None
        return 0

    cdef int _read(self, int64_t end) except -1:
        cdef int64_t begin_ns = self._clock.nano_time()
        cdef int64_t length = self._reader.read(
            end, <size_t> min(<int64_t> self._read_length, self._limit - self._reader.position))
        cdef int64_t duration_ns = self._clock.nano_time() - begin_ns
        if length == 0 and end == self._recorded:
            raise ArchiveError(f"unexpected end of recording at position={self._reader.position}: no frame ends before "
                               f"{end}")
        self._batch_begin, self._batch_end = 0, length
        if length > 0:
            self.read_bytes += FRAME_HEADER_LENGTH if is_padding(self._reader.data) else length
        self.read_time_ns += duration_ns
        self.longest_read_ns = max(self.longest_read_ns, duration_ns)
        return 0

    cdef int _send(self, int64_t end) except -1:
        """Send what can be sent now of the frames that are read, the first of which ends before ``end``."""
        cdef uint8_t* frames = self._reader.data + self._batch_begin
        cdef int64_t position = self._reader.position, length = self._batch_end - self._batch_begin, result
        if is_padding(frames):
            result = self.publication.append_padding(<size_t> (sbe.sbe_get_int32(frames) - FRAME_HEADER_LENGTH))
        else:
            with nogil:
                length = readdress(
                    frames, length, end - position, self._limit - position, self.publication.session_id,
                    self.publication.stream_id)
            result = self.publication.offer_block(frames, <size_t> length)
        return self._advance(result, length)

    cdef int _advance(self, int64_t result, int64_t length) except -1:
        if result > 0:
            if result != self._reader.position + length:
                raise ArchiveError(f"replay publication is at {result}, not at {self._reader.position + length}")
            self._reader.consume(length)
            self._batch_begin += length
            assert self._recording is None or self._reader.position <= self._recording.writer.position, (
                "nothing is replayed before it is recorded")
            if self._reader.position >= self._limit:
                self._finish(False)
            return <int> length
        if result == CLOSED or result == NOT_CONNECTED:
            return self._finish(True)
        if result != BACK_PRESSURED and result != ADMIN_ACTION:
            raise ArchiveError(f"replay publication accepts no more: {publication_result_name(result)}")
        return 0

    cdef int _finish(self, bint is_revoked) except -1:
        """End the replay, and return 1; what fails in it is the error, unless there is one already."""
        self._state = DONE
        self._recording, self._counters = None, None
        try:
            try:
                self._reader.close()
            finally:
                if is_revoked and ChannelUri.parse(self.publication.channel).get("eos") != "false":
                    self.publication.revoke()
                else:
                    self.publication.close()
        except Exception as error:
            self._note(error)
        return 1

    cdef int _fail(self, object error) except -1:
        try:
            self._note(error)
        finally:
            self._finish(True)
        return 0

    cdef int _note(self, object error) except -1:
        """Keep an error for the reply, with upstream's text, unless there is one already."""
        cdef str text
        cdef int code = error_codes.GENERIC
        if self.error is not None:
            return 0
        if isinstance(error, RecordingError):
            text = shorten(error.detail, _MAX_TEXT_LENGTH)
            if error.log_position is not None:
                text = f"{text}, position={error.log_position}"
        elif isinstance(error, ArchiveError):
            text, code = message_of(error), error.code
        else:
            text = f"{type_name(error)}: {message_of(error)}"
        text = f"{text}, recordingId={self.recording_id}, replaySessionId={self.replay_session_id}"
        if isinstance(error, RecordingError) and error.file is not None:
            text = f"{text}, segmentFile={error.file.rpartition('/')[2]}"
        self.error = ArchiveError(text, code=code, correlation_id=self.correlation_id)
        self.error.__cause__ = error
        return 0

    def __repr__(self):
        return (f"<ReplaySession {self.replay_session_id} recording_id={self.recording_id} {_STATES[self._state]} "
                f"position={self._reader.position}>")


seal((ReplaySession,))
