# A stream's bytes in memory: terms of raw Aeron data frames, and the image that polls them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.frames cimport BufferVector
from container.transport.streams cimport BlockHandler, FragmentHandler, Image


cdef class MemoryTerm:                                      # one term's bytes; lives while somebody polls it
    cdef uint8_t* data
    cdef int32_t length


cdef class MemoryLog:
    cdef readonly int32_t session_id
    cdef readonly int32_t stream_id
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t term_length
    cdef readonly int32_t mtu_length
    cdef readonly int32_t position_bits_to_shift
    cdef readonly int32_t max_payload_length                # of one frame
    cdef readonly int32_t max_message_length
    cdef readonly int64_t start_position                    # where the first frame began
    cdef readonly int64_t end_of_stream_position            # INT64_MAX while the stream may grow
    cdef readonly int64_t max_possible_position
    cdef bint retained                                      # True: no term is ever released
    cdef list _terms                                        # of MemoryTerm, in order, without gaps
    cdef int64_t _first_term_count                          # of _terms[0]
    cdef MemoryTerm _active
    cdef int64_t _active_term_count
    cdef int32_t _tail_offset                               # in the active term; may be its length
    cdef int64_t position(self) noexcept nogil              # of the tail
    cdef MemoryTerm term_at(self, int64_t position)         # None when it is not there
    # Position after the frame, ADMIN_ACTION once per end of term, or MAX_POSITION_EXCEEDED. The frame of a
    # claim is readable once its length has been made positive.
    cdef int64_t claim(self, size_t length, uint8_t** frame) except? -6
    cdef int64_t append_message(self, const BufferVector* vectors, size_t length) except? -6
    # These fit the rest of the term, or begin the next one where it is full.
    cdef int64_t append_block(self, const uint8_t* block, size_t length) except? -6
    cdef int64_t append_padding(self, size_t length) except? -6
    cdef void end_stream(self) noexcept nogil
    cdef int release_before(self, int64_t position) except -1
    cdef int64_t sendable_position(self, int64_t begin, int64_t limit) except -1
    cdef bint unblock(self, int64_t position) except -1
    cdef int64_t first_position(self) noexcept nogil        # of what is still held
    cdef int32_t _length_at(self, int64_t position) except? -1          # negative where a claim is open
    cdef const uint8_t* _frame_at(self, int64_t position) except? NULL
    cdef int64_t _framed_length(self, size_t length) noexcept nogil
    cdef int64_t _reserve(self, int64_t framed_length, uint8_t** start) except? -6
    cdef int64_t _end_term(self, int64_t position) except? -6
    cdef void _write_header(self, uint8_t* frame, int32_t frame_length, uint8_t flags) noexcept nogil


cdef class ReaderListener:                                  # what an image's driver knows of it, and hears from it
    cdef int on_read(self) except -1                        # the image has been read
    cdef int on_reject(self) except -1                      # the image must be released
    cdef int transport_count(self) noexcept


cdef class MemoryImage(Image):
    cdef readonly MemoryLog log
    cdef ReaderListener listener                            # None where nobody asks
    cdef int64_t _position
    cdef int64_t _end_of_stream_position                    # as it was when the image was closed
    cdef bint _closed
    cdef MemoryTerm _term                                   # the one polled last
    cdef int64_t _term_count
    cdef void close(self) noexcept
    cdef int _move(self, int64_t position) except -1
    cdef MemoryTerm _polled_term(self)                      # None where nothing is
    cdef int _poll(self, FragmentHandler handler, int64_t limit_position, int fragment_limit) except -1
    cdef int _refuse_frame(self, int32_t frame_length, int64_t position) except -1
