# Reads a recording back, frame by frame, across terms and segments.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.archive.server.store.layout cimport Layout
from container.storage.storage_seam cimport Storage, StorageFile


cdef class SegmentReader:
    cdef readonly int64_t recording_id
    cdef readonly int64_t position          # of the frame that is read next
    cdef uint8_t* data                      # frames of the last read, until the next one; the caller may change them
    cdef size_t capacity                    # bytes there: no data frame can be longer
    cdef Layout _layout
    cdef int64_t _start_position
    cdef Storage _storage
    cdef str _directory
    cdef StorageFile _file                  # of the open segment, None when closed
    cdef int64_t _segment_position          # where that begins
    cdef int _checksum
    cdef int64_t _ready                     # bytes of the last read that are not consumed

    # Bytes of whole frames that begin at `position` and end at `limit_position` or before it; 0: there are none. All
    # are of one term. Padding comes alone: of it `data` has the header, and the result is the whole length. About
    # `max_length` bytes, but at least one frame.
    cdef int64_t read(self, int64_t limit_position, size_t max_length) except -1
    # Is there a header with the right term offset, term id and stream id?
    cdef bint is_at_frame(self, int64_t position) except -1
    cdef int consume(self, int64_t length) except -1        # the caller is done with this many bytes
    cpdef int open(self) except -1
    cpdef int close(self) except -1
    cdef int _open_segment(self, int64_t position) except -1
    cdef int64_t _fetch(self, uint8_t* target, size_t length, int64_t position) except -1
    cdef int64_t _whole_frames(self, int64_t length, int64_t room, int* wrong) noexcept nogil
    cdef int32_t _computed(self, const uint8_t* frame, int64_t length) noexcept nogil
    cdef object _damage(self, int wrong)
    cdef object _end_of_file(self, int64_t count)
    cdef str _path(self, int64_t segment_position)
