# Writes one recording into its segment files; its position is what the archive announces.
from libc.stdint cimport int64_t, uint8_t

from container.archive.server.store.layout cimport Layout
from container.archive.server.store.recording_positions cimport RecordingPosition
from container.storage.storage_seam cimport Storage, StorageFile


cdef class SegmentWriter:
    cdef readonly int64_t recording_id
    cdef readonly int64_t position          # end of what is written, and forced by level
    cdef readonly bint has_failed           # a write did: bytes may lie behind the position, and no more are written
    cdef readonly RecordingPosition place
    cdef Layout _layout
    cdef Storage _storage
    cdef str _directory
    cdef StorageFile _file                  # of the open segment, None when closed
    cdef int64_t _segment_position          # where that begins
    cdef int64_t _first_position            # where it began to write
    cdef int64_t _prepared_end              # of the bytes of the segment that have their places on the disk
    cdef int _sync_level
    cdef int _checksum
    cdef uint8_t* _copy                     # of a block, when checksums go into it
    cdef size_t _copy_capacity

    cpdef int open(self) except -1
    # Whole frames of one term, which no padding follows; or padding alone, of which the header is written.
    cdef int write_block(self, const uint8_t* block, size_t length) except -1
    cpdef int clear_tail(self) except -1
    cpdef int close(self) except -1
    cdef int _check_block(self, const uint8_t* block, int64_t length) except -1
    cdef int _store(self, const uint8_t* block, int64_t length) except -1
    cdef const uint8_t* _with_checksums(self, const uint8_t* block, int64_t length) except NULL
    cdef int _prepare(self, int64_t offset, int64_t length) except -1
    cdef int _roll_over(self) except -1
    cdef int _close_file(self) except -1
    cdef str _path(self, int64_t segment_position)
    cdef StorageFile _created(self, int64_t segment_position)
    cdef object _failure(self, object error, int64_t length)
