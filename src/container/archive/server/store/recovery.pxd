# Shared by recovery and the segment writer: whether a torn write of a frame could look like the frame.
from libc.stdint cimport int64_t, uint8_t

# Whether in one 512-byte sector of the file the part of `length` bytes that begin at `file_offset` is zero.
cdef bint has_zero_sector(const uint8_t* content, int64_t length, int64_t file_offset) noexcept nogil
