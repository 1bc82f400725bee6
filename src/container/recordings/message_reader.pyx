"""Whole messages of a recording, put together from fragments as upstream's fragment assembler does.

A message that is followed by anything but its next fragment was never seen by a service. After the death of a leader
this is right: its last message has no end, and the next term begins behind it. Anywhere else it is damage.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from container.codecs cimport cluster as codec
from container.codecs cimport sbe
from container.common.sealed cimport initialise, seal
from container.recordings.frame_reader cimport (
    FAILED_INCOMPLETE, FAILED_NO_MEMORY, FAILED_ORPHAN, FAILED_TOO_LONG, FRAME_TYPE_PAD, READ_END, READ_OK, FrameReader,
)
from container.transport.frames cimport (
    FRAME_FLAGS_UNFRAGMENTED, FRAME_FLAG_BEGIN, FRAME_FLAG_END, FRAME_HEADER_LENGTH, align_frame,
)

cdef enum:
    FRAME_FLAGS_OFFSET = 5
    SCHEMA_ID_OFFSET = 4
    PARTS_CAPACITY_MIN = 64 * 1024
    MESSAGE_LENGTH_LIMIT = 16 * 1024 * 1024     # upstream: FrameDescriptor.computeMaxMessageLength
    TERM_SHARE_BITS = 3                         # a message has at most an eighth of a term
    PART_LENGTH_MIN = 64                        # bytes that a skipped message must have at least


cdef inline bint is_new_term(const uint8_t* message, int64_t length) noexcept nogil:
    """Whether a message, or its first fragment, is a NewLeadershipTermEvent."""
    cdef sbe.MessageHeader header
    return (sbe.sbe_read_header(message, <size_t> length, &header) == sbe.SBE_OK
            and header.schema_id == codec.CLUSTER_SCHEMA_ID
            and header.template_id == codec.NEW_LEADERSHIP_TERM_EVENT_TEMPLATE_ID)


cdef class MessageReader(FrameReader):
    """Messages of one recording from a log position on. Arguments and errors are those of :class:`FrameReader`."""

    def __cinit__(self):
        self._parts = NULL

    def __init__(self, archive_dir, **layout):
        initialise(FrameReader, self, (archive_dir,), layout)
        self._message_length_max = min(<int64_t> self.term_length >> TERM_SHARE_BITS, <int64_t> MESSAGE_LENGTH_LIMIT)
        self._is_open = False
        self._is_in_tail = False    # a recording begins with a message

    def __dealloc__(self):
        free(self._parts)

    cdef int next_message(self, int64_t limit, int64_t read_limit) noexcept nogil:
        """Read the next message that begins before `limit`: READ_OK, READ_END, or a failure.

        A message begun before `limit` is read beyond it, up to `read_limit`. If reading ends within a message, that is
        not a failure: its end may not have been recorded yet. A message that `template_bits` does not want has only the
        bytes of its first frame.
        """
        cdef int result
        while True:
            result = self.next_frame(read_limit if self._is_open else limit)
            if result != READ_OK:
                self._is_open = False
                self._is_in_tail = result < 0
                return result
            if self.frame_type == FRAME_TYPE_PAD:
                continue
            if self._is_open and (self.frame_flags & FRAME_FLAG_BEGIN or self.position != self._expected_position):
                self._is_open = False
                if not (self.frame_flags & FRAME_FLAG_BEGIN
                        and is_new_term(self.frame + FRAME_HEADER_LENGTH, self.frame_length - FRAME_HEADER_LENGTH)):
                    self._is_in_tail = True
                    self.next_position = self.position
                    # A fragment as long as these are that others follow: rather its successor says that it begins one.
                    self.is_doubtful = self._last_frame_length == self.mtu_length
                    return self.fail(FAILED_INCOMPLETE, self.begin_position, 0, 0)
            if self.position >= limit and not self._is_open:
                self.next_position = self.position
                return READ_END
            if (self.frame_flags & FRAME_FLAGS_UNFRAGMENTED) == FRAME_FLAGS_UNFRAGMENTED:
                self._is_in_tail = False
                self.begin_position = self.position
                if self.frame_length == self.mtu_length and self._goes_on(read_limit):
                    return self._refuse_incomplete()
                self.log_position = self.next_position
                self.message = self.frame + FRAME_HEADER_LENGTH
                self.message_length = self.frame_length - FRAME_HEADER_LENGTH
                return READ_OK
            if self.frame_flags & FRAME_FLAG_BEGIN:
                result = self._begin()
            elif self._is_open:
                result = self._append()
            elif self._is_in_tail and not is_new_term(
                    self.frame + FRAME_HEADER_LENGTH, self.frame_length - FRAME_HEADER_LENGTH):
                continue
            else:
                self._is_in_tail = True
                return self.fail(FAILED_ORPHAN, self.position, 0, 0)
            if result < 0:
                self._is_open = False
                self._is_in_tail = True
                return result
            if self._is_open and self.frame_flags & FRAME_FLAG_END:
                self._is_open = False
                if self.frame_length == self.mtu_length and self._goes_on(read_limit):
                    return self._refuse_incomplete()
                self.message = self._parts
                self.message_length = self._parts_length
                self.log_position = self.next_position
                return READ_OK

    cdef bint _goes_on(self, int64_t limit) noexcept nogil:
        """Whether a fragment follows the last one of a message, which is as long as those are that others follow.

        A frame that begins like a message of the cluster is not a fragment: its flags are damaged instead.
        """
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        cdef uint8_t[sbe.SBE_HEADER_LENGTH] start
        if (self.peek_data_frame(self.next_position, limit, header) != self.next_position
                or header[FRAME_FLAGS_OFFSET] & FRAME_FLAG_BEGIN):
            return False
        return not (self.peek(self.next_position + FRAME_HEADER_LENGTH, sizeof(start), start)
                    and sbe.sbe_get_uint16(start + SCHEMA_ID_OFFSET) == codec.CLUSTER_SCHEMA_ID)

    cdef int _refuse_incomplete(self) noexcept nogil:
        self._is_in_tail = True
        self.is_doubtful = False
        return self.fail(FAILED_INCOMPLETE, self.begin_position, 0, 0)

    cdef int _begin(self) noexcept nogil:
        cdef sbe.MessageHeader header
        self._is_open = True
        self._is_in_tail = False
        self._parts_length = 0
        self.begin_position = self.position
        self._is_wanted = True
        if self.template_bits != NULL and self.frame_length >= FRAME_HEADER_LENGTH + PART_LENGTH_MIN:
            sbe.sbe_read_header(
                self.frame + FRAME_HEADER_LENGTH, <size_t> self.frame_length - FRAME_HEADER_LENGTH, &header)
            self._is_wanted = (self.template_bits[header.template_id >> 3] >> (header.template_id & 7)) & 1
        return self._append()

    cdef int _append(self) noexcept nogil:
        cdef int64_t length = self.frame_length - FRAME_HEADER_LENGTH
        cdef int64_t capacity = max(self._parts_capacity, <int64_t> PARTS_CAPACITY_MIN)
        cdef void* grown
        self._expected_position = self.next_position
        self._last_frame_length = self.frame_length
        if self._parts_length + length > self._message_length_max:
            return self.fail(
                FAILED_TOO_LONG, self.begin_position, self._parts_length + length, self._message_length_max)
        if self._is_wanted or self._parts_length == 0:
            if self._parts_length + length > self._parts_capacity:
                while capacity < self._parts_length + length:
                    capacity *= 2
                grown = realloc(self._parts, <size_t> capacity)
                if grown == NULL:
                    return self.fail(FAILED_NO_MEMORY, self.begin_position, capacity, 0)
                self._parts = <uint8_t*> grown
                self._parts_capacity = capacity
            memcpy(self._parts + self._parts_length, self.frame + FRAME_HEADER_LENGTH, <size_t> length)
        self._parts_length += length
        return READ_OK

    def seek(self, int64_t position):
        """Continue at a log position (int) where a frame begins, be it in the middle of a message."""
        FrameReader.seek(self, position)
        self._is_open = False
        # No message crosses an Aeron term.
        self._is_in_tail = position != self.start_position and (position & (self.term_length - 1)) != 0

    cdef int64_t skip_fragments(self, int64_t limit) noexcept nogil:
        """Skip the fragments of a message that began before; return the log position (int) where it ends."""
        cdef uint8_t[FRAME_HEADER_LENGTH] header
        cdef int64_t position = self.next_position
        while (self.peek_data_frame(position, limit, header) == position
                and not header[FRAME_FLAGS_OFFSET] & FRAME_FLAG_BEGIN):
            position += align_frame(sbe.sbe_get_int32(header))
        self.next_position = position
        return position


seal((MessageReader,))
