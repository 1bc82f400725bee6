"""A stream's bytes in memory: terms of raw Aeron data frames, and the image that polls them.

The frames are those of upstream's log buffers (``aeron_logbuffer_descriptor.h``, ``aeron_data_header_t``): a
32-byte little-endian header, then the payload, aligned to 32 bytes; a padding frame fills the end of a term
that a message did not fit. Unlike a driver's three rotating buffers, terms are kept until every reader has
passed them.
"""
from collections import namedtuple

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from container.common.sealed cimport hide, seal
from container.errors import AeronError, ConfigurationError
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_BREAK, ACTION_COMMIT, ACTION_CONTINUE, ADMIN_ACTION, FRAME_FLAGS_UNFRAGMENTED,
    FRAME_FLAG_BEGIN, FRAME_FLAG_END, FRAME_HEADER_LENGTH, MAX_MESSAGE_LENGTH, MAX_POSITION_EXCEEDED, MTU_LENGTH_MAX,
    NULL_VALUE, TERM_LENGTH_MAX, TERM_LENGTH_MIN, BufferVector, FrameHeader, align_frame,
)
from container.transport.streams cimport BlockHandler, FragmentHandler

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "frames are read and written as they lie in memory: a little-endian machine is needed"
    #endif
    """

cdef enum:
    VERSION_OFFSET = 4
    FLAGS_OFFSET = 5
    TYPE_OFFSET = 6
    TERM_OFFSET_OFFSET = 8
    SESSION_ID_OFFSET = 12
    STREAM_ID_OFFSET = 16
    TERM_ID_OFFSET = 20
    RESERVED_VALUE_OFFSET = 24

    FRAME_TYPE_PADDING = 0
    FRAME_TYPE_DATA = 1

Frame = namedtuple(
    "Frame", "position term_id term_offset flags type session_id stream_id reserved_value payload")
Frame.__doc__ = "One frame of a log; ``position`` is where it begins, ``type`` 1 for data and 0 for padding."


cdef class MemoryTerm:
    """The bytes of one term, zero where nothing has been written."""

    def __cinit__(self, int32_t length):
        self.data = <uint8_t*> calloc(1, length)
        if self.data == NULL:
            raise MemoryError(f"no memory for a term of {length} bytes")
        self.length = length

    def __dealloc__(self):
        free(self.data)


cdef class MemoryLog:
    """The frames of one stream and session.

    ``term_length`` is a power of two from 64 KiB to 1 GiB, ``mtu_length`` the greatest length of a frame with
    its header, ``start_position`` a multiple of 32 (positions of a log need not begin at 0). Raises
    ConfigurationError for other values.
    """

    def __init__(self, int32_t session_id=0, *, int32_t stream_id=0, int32_t initial_term_id=0,
                 int32_t term_length=TERM_LENGTH_MIN, int32_t mtu_length=1408, int64_t start_position=0):
        if not TERM_LENGTH_MIN <= term_length <= TERM_LENGTH_MAX or term_length & (term_length - 1):
            raise ConfigurationError(
                f"term_length must be a power of two from 64 KiB to 1 GiB, not {term_length}")
        if not FRAME_HEADER_LENGTH < mtu_length <= MTU_LENGTH_MAX or mtu_length % FRAME_HEADER_LENGTH:
            raise ConfigurationError(
                f"mtu_length must be a multiple of 32 from 64 to {<int> MTU_LENGTH_MAX}, not {mtu_length}")
        self.max_possible_position = <int64_t> term_length << 31
        if not 0 <= start_position < self.max_possible_position or start_position % FRAME_HEADER_LENGTH:
            raise ConfigurationError(
                f"start_position must be a multiple of 32 from 0 to below {self.max_possible_position}, "
                f"not {start_position}")
        self.session_id = session_id
        self.stream_id = stream_id
        self.initial_term_id = initial_term_id
        self.term_length = term_length
        self.mtu_length = mtu_length
        self.position_bits_to_shift = term_length.bit_length() - 1
        self.max_payload_length = mtu_length - FRAME_HEADER_LENGTH
        self.max_message_length = min(term_length // 8, <int32_t> MAX_MESSAGE_LENGTH)
        self.start_position = start_position
        self.end_of_stream_position = INT64_MAX
        self._active_term_count = self._first_term_count = start_position >> self.position_bits_to_shift
        self._tail_offset = <int32_t> (start_position & (term_length - 1))
        self._active = MemoryTerm(term_length)
        self._terms = [self._active]

    @property
    def tail_position(self):
        """Where the next frame will begin (int), if it fits the term."""
        return self.position()

    def position_after(self, size_t length):
        """The position (int) after a message of ``length`` bytes, if it is appended next."""
        cdef int64_t framed_length = self._framed_length(length)
        if self._tail_offset + framed_length > self.term_length:
            return ((self._active_term_count + 1) << self.position_bits_to_shift) + framed_length
        return self.position() + framed_length

    def append(self, bytes message not None):
        """Append a message, in several frames if it is longer than ``max_payload_length``; its end position.

        Raises AeronError when it is longer than ``max_message_length``, or the log is at its greatest
        position.
        """
        cdef BufferVector vector
        cdef int64_t position = ADMIN_ACTION
        vector.data = <uint8_t*> <char*> message
        vector.length = len(message)
        if len(message) > self.max_message_length:
            raise AeronError(
                f"message of {len(message)} bytes: longer than max_message_length={self.max_message_length}")
        while position == ADMIN_ACTION:
            position = self.append_message(&vector, vector.length)
        if position == MAX_POSITION_EXCEEDED:
            raise AeronError(f"the log is at its greatest position {self.max_possible_position}")
        return position

    def append_frame(self, bytes payload not None, *, uint8_t flags=FRAME_FLAGS_UNFRAGMENTED,
                     int64_t reserved_value=0, padding=False, frame_length=None):
        """Append one frame as it is given, whatever its flags; its end position (int).

        A ``padding`` frame has the length of the payload, and zeros. ``frame_length`` is written in place of
        the right one, as damage does. Raises AeronError as :meth:`append` does.
        """
        cdef uint8_t* frame = NULL
        cdef int64_t position = ADMIN_ACTION
        if len(payload) > self.max_payload_length:
            raise AeronError(
                f"payload of {len(payload)} bytes: longer than max_payload_length={self.max_payload_length}")
        while position == ADMIN_ACTION:
            position = self.claim(len(payload), &frame)
        if position == MAX_POSITION_EXCEEDED:
            raise AeronError(f"the log is at its greatest position {self.max_possible_position}")
        frame[FLAGS_OFFSET] = flags
        (<int64_t*> (frame + RESERVED_VALUE_OFFSET))[0] = reserved_value
        if padding:
            (<uint16_t*> (frame + TYPE_OFFSET))[0] = FRAME_TYPE_PADDING
        else:
            memcpy(frame + FRAME_HEADER_LENGTH, <const char*> payload, len(payload))
        (<int32_t*> frame)[0] = FRAME_HEADER_LENGTH + len(payload) if frame_length is None else frame_length
        return position

    def overwrite(self, int64_t position, bytes data not None):
        """Write ``data`` over what is at ``position``, as damage does; it must lie in one term."""
        cdef MemoryTerm term = self.term_at(position)
        cdef int32_t offset = <int32_t> (position & (self.term_length - 1))
        if term is None or len(data) > self.term_length - offset:
            raise ConfigurationError(f"{len(data)} bytes at position {position} are not in one term of {self!r}")
        memcpy(term.data + offset, <const char*> data, len(data))

    def fill_term(self):
        """Pad to the end of the present term, so that the next frame begins a term."""
        if self._tail_offset > 0:
            self._end_term(self.position())

    def end(self):
        """No more frames will come: the end-of-stream position becomes known to images."""
        self.end_stream()

    def frames(self, int64_t end_position=INT64_MAX):
        """All frames still held that begin before ``end_position``, padding too (list of :class:`Frame`)."""
        cdef list result = []
        cdef int64_t position = self.first_position()
        cdef const uint8_t* frame = self._frame_at(position)
        while frame != NULL and position < end_position:
            result.append(_frame(frame, position))
            position += align_frame((<const int32_t*> frame)[0])
            frame = self._frame_at(position)
        return result

    def messages(self, int64_t end_position=INT64_MAX):
        """All whole messages still held that end by ``end_position``, put together again (list of bytes)."""
        cdef list result = []
        cdef list parts = []
        for frame in self.frames(end_position):
            if frame.type == FRAME_TYPE_PADDING:
                continue
            if frame.flags & FRAME_FLAG_BEGIN:
                parts.clear()
            parts.append(frame.payload)
            if frame.flags & FRAME_FLAG_END:
                result.append(b"".join(parts))
        return result

    def copy(self, *, int32_t session_id, int32_t stream_id, begin_position=None, int64_t end_position=INT64_MAX):
        """A copy with other ids and the same positions, as an archive replays a recording.

        It begins with the frame at ``begin_position``, the first held when not given; frames that begin at
        ``end_position`` or later are left out. The copy's stream has ended.
        """
        cdef int64_t position = self.first_position() if begin_position is None else begin_position
        cdef MemoryLog other = MemoryLog(
            session_id=session_id, stream_id=stream_id, initial_term_id=self.initial_term_id,
            term_length=self.term_length, mtu_length=self.mtu_length, start_position=position)
        other.extend(self, end_position)
        other.end_stream()
        return other

    def extend(self, MemoryLog source not None, int64_t end_position):
        """Append the frames of ``source`` that begin between this log's tail and ``end_position``, as replication does.

        Both logs must have the same initial term id, term length and MTU. The frames get this log's session and stream.
        """
        cdef int64_t position = self.position()
        cdef const uint8_t* frame = source._frame_at(position)
        cdef uint8_t* copied = NULL
        cdef int32_t length
        while frame != NULL and position < end_position:
            length = (<const int32_t*> frame)[0]
            while self._reserve(align_frame(length), &copied) == ADMIN_ACTION:
                pass
            memcpy(copied, frame, length)
            (<int32_t*> (copied + SESSION_ID_OFFSET))[0] = self.session_id
            (<int32_t*> (copied + STREAM_ID_OFFSET))[0] = self.stream_id
            position += align_frame(length)
            frame = source._frame_at(position)

    cdef int64_t position(self) noexcept nogil:
        return (self._active_term_count << self.position_bits_to_shift) + self._tail_offset

    cdef MemoryTerm term_at(self, int64_t position):
        cdef int64_t index = (position >> self.position_bits_to_shift) - self._first_term_count
        if not 0 <= index < len(self._terms):
            return None
        return <MemoryTerm> self._terms[index]

    cdef int64_t first_position(self) noexcept nogil:
        return max(self.start_position, self._first_term_count << self.position_bits_to_shift)

    cdef const uint8_t* _frame_at(self, int64_t position) except? NULL:
        # NULL behind the last frame, where a claim is not committed yet, and where the length is impossible.
        cdef MemoryTerm term = self.term_at(position)
        cdef int32_t offset = <int32_t> (position & (self.term_length - 1))
        cdef int32_t length
        if term is None:
            return NULL
        length = (<const int32_t*> (term.data + offset))[0]
        return term.data + offset if FRAME_HEADER_LENGTH <= length <= self.term_length - offset else NULL

    cdef int64_t claim(self, size_t length, uint8_t** frame) except? -6:
        cdef int32_t frame_length = <int32_t> (FRAME_HEADER_LENGTH + length)
        cdef int64_t position = self._reserve(align_frame(frame_length), frame)
        if position >= 0:
            self._write_header(frame[0], -frame_length, FRAME_FLAGS_UNFRAGMENTED)
        return position

    cdef int64_t append_message(self, const BufferVector* vectors, size_t length) except? -6:
        cdef size_t max_payload = self.max_payload_length
        cdef uint8_t* frame = NULL
        cdef uint8_t flags = FRAME_FLAG_BEGIN
        cdef size_t index = 0
        cdef size_t consumed = 0                            # of the vector at index
        cdef size_t size, part, done
        cdef int64_t position = self._reserve(self._framed_length(length), &frame)
        if position < 0:
            return position
        while True:
            size = min(length, max_payload)
            if size == length:
                flags |= FRAME_FLAG_END
            self._write_header(frame, <int32_t> (FRAME_HEADER_LENGTH + size), flags)
            done = 0
            while done < size:
                part = min(size - done, vectors[index].length - consumed)
                if part:
                    memcpy(frame + FRAME_HEADER_LENGTH + done, vectors[index].data + consumed, part)
                done += part
                consumed += part
                if consumed == vectors[index].length:
                    index += 1
                    consumed = 0
            if flags & FRAME_FLAG_END:
                return position
            length -= size
            frame += align_frame(<int32_t> (FRAME_HEADER_LENGTH + size))
            flags = 0

    cdef int64_t append_block(self, const uint8_t* block, size_t length) except? -6:
        cdef uint8_t* frames = NULL
        cdef int64_t position = self._reserve(<int64_t> length, &frames)
        if position == ADMIN_ACTION:
            position = self._reserve(<int64_t> length, &frames)
        if position >= 0:
            memcpy(frames, block, length)
        return position

    cdef int64_t append_padding(self, size_t length) except? -6:
        cdef uint8_t* frame = NULL
        cdef int32_t frame_length = <int32_t> (FRAME_HEADER_LENGTH + length)
        cdef int64_t position = self._reserve(align_frame(frame_length), &frame)
        if position >= 0:
            self._write_header(frame, frame_length, FRAME_FLAGS_UNFRAGMENTED)
            (<uint16_t*> (frame + TYPE_OFFSET))[0] = FRAME_TYPE_PADDING
        return position

    cdef void end_stream(self) noexcept nogil:
        if self.end_of_stream_position == INT64_MAX:
            self.end_of_stream_position = self.position()

    cdef int release_before(self, int64_t position) except -1:
        cdef int64_t count = min(position >> self.position_bits_to_shift, self._active_term_count)
        if not self.retained and count > self._first_term_count:
            del self._terms[:count - self._first_term_count]
            self._first_term_count = count
        return 0

    def open_claims(self):
        """Where the claims begin that are neither committed nor aborted (list of int)."""
        cdef list result = []
        cdef int64_t position = self.first_position()
        cdef int64_t end = self.position()
        cdef int32_t length
        while position < end:
            length = self._length_at(position)
            if length == 0:                                 # damage: there is no frame to step over
                break
            if length < 0:
                result.append(position)
            position += align_frame(abs(length))
        return result

    cdef int32_t _length_at(self, int64_t position) except? -1:
        cdef MemoryTerm term = self.term_at(position)
        return 0 if term is None else (<const int32_t*> (term.data + (position & (self.term_length - 1))))[0]

    cdef bint unblock(self, int64_t position) except -1:
        # An open claim becomes padding: what a driver does to one that holds up its stream. False when it is not open.
        cdef int32_t length = self._length_at(position)
        cdef MemoryTerm term = self.term_at(position)
        cdef uint8_t* frame
        if length >= 0:
            return False
        frame = term.data + (position & (self.term_length - 1))
        (<uint16_t*> (frame + TYPE_OFFSET))[0] = FRAME_TYPE_PADDING
        (<int32_t*> frame)[0] = -length
        return True

    cdef int64_t sendable_position(self, int64_t begin, int64_t limit) except -1:
        # The end of the whole frames between these. Padding counts as its header, which is all that is sent.
        cdef const uint8_t* frame = self._frame_at(begin)
        cdef int32_t length, sent_length
        while frame != NULL:
            length = sent_length = align_frame((<const int32_t*> frame)[0])
            if (<const uint16_t*> (frame + TYPE_OFFSET))[0] == FRAME_TYPE_PADDING:
                sent_length = FRAME_HEADER_LENGTH
            if begin + sent_length > limit:
                break
            begin += length
            frame = self._frame_at(begin)
        return begin

    cdef int64_t _framed_length(self, size_t length) noexcept nogil:
        # The length of all frames of a message.
        cdef size_t rest = length % <size_t> self.max_payload_length
        cdef int64_t framed_length = <int64_t> (length // <size_t> self.max_payload_length) * self.mtu_length
        if rest > 0 or length == 0:
            framed_length += align_frame(<int32_t> (FRAME_HEADER_LENGTH + rest))
        return framed_length

    cdef int64_t _reserve(self, int64_t framed_length, uint8_t** start) except? -6:
        cdef int64_t position = self.position() + framed_length
        if self._tail_offset + framed_length > self.term_length:
            return self._end_term(position)
        start[0] = self._active.data + self._tail_offset
        self._tail_offset += <int32_t> framed_length
        return position

    cdef int64_t _end_term(self, int64_t position) except? -6:
        # As upstream: the offer that does not fit pads the term and opens the next, and has to be made again.
        cdef uint8_t* frame = self._active.data + self._tail_offset
        if self._tail_offset < self.term_length:
            self._write_header(frame, self.term_length - self._tail_offset, FRAME_FLAGS_UNFRAGMENTED)
            (<uint16_t*> (frame + TYPE_OFFSET))[0] = FRAME_TYPE_PADDING
            self._tail_offset = self.term_length
        if position >= self.max_possible_position:
            return MAX_POSITION_EXCEEDED
        self._active = MemoryTerm(self.term_length)
        self._terms.append(self._active)
        self._active_term_count += 1
        self._tail_offset = 0
        return ADMIN_ACTION

    cdef void _write_header(self, uint8_t* frame, int32_t frame_length, uint8_t flags) noexcept nogil:
        cdef uint32_t term_id = <uint32_t> self.initial_term_id + <uint32_t> self._active_term_count
        frame[VERSION_OFFSET] = 0
        frame[FLAGS_OFFSET] = flags
        (<uint16_t*> (frame + TYPE_OFFSET))[0] = FRAME_TYPE_DATA
        (<int32_t*> (frame + TERM_OFFSET_OFFSET))[0] = <int32_t> (frame - self._active.data)
        (<int32_t*> (frame + SESSION_ID_OFFSET))[0] = self.session_id
        (<int32_t*> (frame + STREAM_ID_OFFSET))[0] = self.stream_id
        (<int32_t*> (frame + TERM_ID_OFFSET))[0] = <int32_t> term_id
        (<int64_t*> (frame + RESERVED_VALUE_OFFSET))[0] = 0
        (<int32_t*> frame)[0] = frame_length

    def __repr__(self):
        return (f"<MemoryLog stream_id={self.stream_id} session_id={self.session_id} "
                f"start_position={self.start_position} tail_position={self.position()}>")


cdef object _frame(const uint8_t* frame, int64_t position):
    cdef int32_t length = (<const int32_t*> frame)[0]
    return Frame(
        position,
        (<const int32_t*> (frame + TERM_ID_OFFSET))[0],
        (<const int32_t*> (frame + TERM_OFFSET_OFFSET))[0],
        frame[FLAGS_OFFSET],
        (<const uint16_t*> (frame + TYPE_OFFSET))[0],
        (<const int32_t*> (frame + SESSION_ID_OFFSET))[0],
        (<const int32_t*> (frame + STREAM_ID_OFFSET))[0],
        (<const int64_t*> (frame + RESERVED_VALUE_OFFSET))[0],
        frame[FRAME_HEADER_LENGTH:length])


cdef class ReaderListener:
    """The driver's part of an image, as its ``listener``; called after each poll that moved its position."""

    cdef int on_read(self) except -1:
        return 0

    cdef int on_reject(self) except -1:
        return 0

    cdef int transport_count(self) noexcept:
        return 0


cdef class MemoryImage(Image):
    """A reader of a :class:`MemoryLog`, at ``join_position`` at first (its start when not given).

    Polls as ``aeron_image.c`` does: the position is stored once, at the end of the poll, also when the handler raises;
    padding is skipped; no poll crosses the end of a term. Raises AeronError when a frame's length is impossible.
    """

    def __init__(self, MemoryLog log not None, join_position=None):
        cdef int64_t position = log.start_position if join_position is None else join_position
        if not log.start_position <= position <= log.position() or position % FRAME_HEADER_LENGTH:
            raise ConfigurationError(
                f"join_position must be a multiple of 32 from {log.start_position} to {log.position()}, "
                f"not {position}")
        self.log = log
        self.session_id = log.session_id
        self.initial_term_id = log.initial_term_id
        self.term_buffer_length = log.term_length
        self.mtu_length = log.mtu_length
        self.correlation_id = NULL_VALUE
        self.source_identity = "aeron:ipc"
        self.join_position = self._position = position
        self._term_count = -1

    cdef int64_t position(self) noexcept:
        return self._position

    cdef int64_t end_of_stream_position(self) noexcept:
        return self._end_of_stream_position if self._closed else self.log.end_of_stream_position

    cdef bint is_end_of_stream(self) noexcept:
        return self._position >= self.end_of_stream_position()

    cdef bint is_closed(self) noexcept:
        return self._closed

    cdef void close(self) noexcept:
        if not self._closed:
            self._end_of_stream_position = self.log.end_of_stream_position
            self._closed = True
            self._term = None
            self._term_count = -1

    cdef int active_transport_count(self) noexcept:
        return 0 if self._closed or self.listener is None else self.listener.transport_count()

    cpdef int reject(self, str reason) except -1:
        return 0 if self._closed or self.listener is None else self.listener.on_reject()

    cdef int block_poll(self, BlockHandler handler, int block_length_limit) except -1:
        cdef int64_t position = self._position
        cdef int32_t capacity = self.log.term_length
        cdef int32_t begin = <int32_t> (position & (capacity - 1))
        cdef int32_t limit = <int32_t> min(<int64_t> capacity, <int64_t> begin + block_length_limit)
        cdef int32_t end = begin
        cdef int32_t frame_length
        cdef const uint8_t* frame
        cdef MemoryTerm term
        if self._closed or block_length_limit <= 0:
            return 0
        term = self._polled_term()                          # a handler may close the image: keep the bytes
        while term is not None and end < limit:
            frame = term.data + end
            frame_length = (<const int32_t*> frame)[0]
            if frame_length <= 0:
                break
            if frame_length < FRAME_HEADER_LENGTH or frame_length > capacity - end:
                self._refuse_frame(frame_length, position - begin + end)
            if (<const uint16_t*> (frame + TYPE_OFFSET))[0] == FRAME_TYPE_PADDING:
                if end == begin:
                    end += align_frame(frame_length)
                break
            if end + align_frame(frame_length) > limit:
                break
            end += align_frame(frame_length)
        if end == begin:
            return 0
        frame = term.data + begin
        try:
            handler.on_block(
                frame, <size_t> (end - begin), self.session_id, (<const int32_t*> (frame + TERM_ID_OFFSET))[0])
        finally:
            self._move(position - begin + end)
        return end - begin

    cdef int _move(self, int64_t position) except -1:
        # After a poll, unless its handler has closed the image.
        if not self._closed and position > self._position:
            self._position = position
            if self.listener is not None:
                self.listener.on_read()
        return 0

    cdef MemoryTerm _polled_term(self):
        cdef int64_t term_count = self._position >> self.log.position_bits_to_shift
        cdef MemoryTerm term
        if self._term_count != term_count:
            term = self.log.term_at(self._position)
            if term is None:
                return None
            self._term = term
            self._term_count = term_count
        return self._term

    cdef int controlled_poll(self, FragmentHandler handler, int fragment_limit) except -1:
        return self._poll(handler, INT64_MAX, fragment_limit)

    cdef int bounded_controlled_poll(
            self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        return self._poll(handler, limit_position, fragment_limit)

    cdef int _poll(self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1:
        cdef int64_t position = self._position
        cdef int32_t capacity = self.log.term_length
        cdef int32_t offset = <int32_t> (position & (capacity - 1))
        cdef int64_t term_start = position - offset
        cdef int32_t limit_offset = <int32_t> min(<int64_t> capacity, limit_position - term_start)
        cdef MemoryTerm term
        cdef const uint8_t* frame
        cdef int32_t frame_length
        cdef int fragments = 0
        cdef int action
        cdef FrameHeader header
        if self._closed or position >= limit_position:
            return 0
        term = self._polled_term()                          # a handler may close the image: keep the bytes
        if term is None:
            return 0
        header.initial_term_id = self.log.initial_term_id
        header.position_bits_to_shift = self.log.position_bits_to_shift
        try:
            while fragments < fragment_limit and offset < limit_offset and not self._closed:
                frame = term.data + offset
                frame_length = (<const int32_t*> frame)[0]
                if frame_length <= 0:
                    break
                if frame_length < FRAME_HEADER_LENGTH or frame_length > capacity - offset:
                    self._refuse_frame(frame_length, term_start + offset)
                offset += align_frame(frame_length)
                if (<const uint16_t*> (frame + TYPE_OFFSET))[0] == FRAME_TYPE_PADDING:
                    continue
                header.position = term_start + offset
                header.frame_length = frame_length
                header.flags = frame[FLAGS_OFFSET]
                header.term_offset = (<const int32_t*> (frame + TERM_OFFSET_OFFSET))[0]
                header.session_id = (<const int32_t*> (frame + SESSION_ID_OFFSET))[0]
                header.stream_id = (<const int32_t*> (frame + STREAM_ID_OFFSET))[0]
                header.term_id = (<const int32_t*> (frame + TERM_ID_OFFSET))[0]
                header.reserved_value = (<const int64_t*> (frame + RESERVED_VALUE_OFFSET))[0]
                fragments += 1
                action = handler.on_fragment(
                    frame + FRAME_HEADER_LENGTH, <size_t> (frame_length - FRAME_HEADER_LENGTH), &header)
                if action == ACTION_CONTINUE:
                    continue
                if action == ACTION_ABORT:
                    fragments -= 1
                    offset -= align_frame(frame_length)
                    break
                if action == ACTION_BREAK:
                    break
                if action == ACTION_COMMIT and not self._closed:
                    self._position = term_start + offset
        finally:
            if not self._closed and term_start + offset > position:
                self._position = term_start + offset
                if self.listener is not None:
                    self.listener.on_read()
        return fragments

    cdef int _refuse_frame(self, int32_t frame_length, int64_t position) except -1:
        raise AeronError(
            f"impossible frame length {frame_length} at position {position}: session {self.log.session_id}, "
            f"stream {self.log.stream_id}")


hide((ReaderListener,))
seal((MemoryTerm, MemoryLog, MemoryImage))
