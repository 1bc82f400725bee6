# Whole messages of a recording, put together from fragments.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.recordings.frame_reader cimport FrameReader


cdef class MessageReader(FrameReader):
    """Reads messages; one begun within the range is read to its end, also when that lies behind the range."""
    cdef const uint8_t* message     # lies in the reader's memory until the next read
    cdef int64_t message_length
    cdef int64_t begin_position     # where its first frame begins
    cdef int64_t log_position       # where its last frame ends, which is how services see it
    cdef const uint8_t* template_bits   # NULL, or a bit for each wanted template id; others are skipped
    cdef uint8_t* _parts
    cdef int64_t _parts_length
    cdef int64_t _parts_capacity
    cdef int64_t _message_length_max
    cdef int64_t _expected_position     # where the open message continues
    cdef int32_t _last_frame_length     # of the fragment before
    cdef bint is_doubtful               # of the last failure: whether what follows is rather a fragment
    cdef bint _is_open
    cdef bint _is_wanted
    cdef bint _is_in_tail               # fragments of a message that began earlier are skipped

    cdef int next_message(self, int64_t limit, int64_t read_limit) noexcept nogil
    cdef int64_t skip_fragments(self, int64_t limit) noexcept nogil
    cdef bint _goes_on(self, int64_t limit) noexcept nogil
    cdef int _refuse_incomplete(self) noexcept nogil
    cdef int _begin(self) noexcept nogil
    cdef int _append(self) noexcept nogil
