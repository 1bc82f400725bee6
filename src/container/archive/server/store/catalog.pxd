# The catalog of an archive, open for writing. Upstream: Catalog.java; files/catalog.py reads it.
from libc.stdint cimport int32_t, int64_t

from container.storage.storage_seam cimport Storage, StorageFile


cdef class Catalog:
    cdef readonly str path
    cdef readonly int64_t next_recording_id
    cdef readonly int32_t alignment
    cdef readonly int64_t capacity              # the file's length in bytes
    cdef readonly int sync_level
    cdef readonly int checksum                  # kind of the entries' checksums: CHECKSUM_NONE and so on
    cdef Storage _storage
    cdef str _directory
    cdef StorageFile _file                      # None once closed
    cdef dict _entries                          # of VALID ones: recording id -> (offset of the entry, its length word)
    cdef list _deleted                          # recording ids of DELETED entries
    cdef int64_t _end                           # of the last entry: where the next one begins
    cdef int64_t _written_end                   # behind it the file is zero
    cdef object _failure                        # what makes any further change unsafe, else None
    cdef bint _has_lost                         # a force of the file failed: another one would tell nothing
    # All raise ArchiveError for an unknown recording and once closed, OSError when the disk fails.
    cpdef int64_t add(self, object descriptor) except -1
    cpdef int pass_over(self, int64_t recording_id) except -1
    cpdef object descriptor(self, int64_t recording_id)         # RecordingDescriptor, or None
    cpdef bytes entry_bytes(self, int64_t recording_id)         # the descriptor as stored, with padding
    cpdef int64_t entry_offset(self, int64_t recording_id) except -1    # in the file, for errors
    cpdef bint has(self, int64_t recording_id) except -1
    cpdef list recording_ids(self)              # of VALID entries, ascending
    cpdef list deleted_ids(self)                # of DELETED entries, ascending
    cpdef int64_t start_position(self, int64_t recording_id) except? -2
    cpdef int64_t stop_position(self, int64_t recording_id) except? -2
    cpdef int set_stop(self, int64_t recording_id, int64_t position, int64_t timestamp_ms) except -1
    cpdef int set_start_position(self, int64_t recording_id, int64_t position) except -1
    cpdef int extend(
        self, int64_t recording_id, int64_t control_session_id, int64_t correlation_id, int32_t session_id) except -1
    cpdef int replace(self, object descriptor) except -1        # all but control session and correlation id
    cpdef int delete(self, int64_t recording_id) except -1
    cpdef int force(self) except -1
    cpdef bint is_in_place(self) except -1
    cpdef int close(self) except -1             # forces; may be called twice
    cpdef int abandon(self) except -1           # does not force; may be called twice
    cdef int _check_open(self) except -1
    cdef int _begin_change(self) except -1
    cdef tuple _entry(self, int64_t recording_id)
    cdef bytes _read(self, int64_t offset, int64_t length)
    cdef int64_t _field(self, int64_t recording_id, int64_t field_offset) except? -2
    cdef int _load(self) except -1
    cdef int64_t _scan(self, int64_t length) except -2
    cdef int _clear_behind_end(self, int64_t length) except -1
    cdef int _cut_behind_end(self) except -1
    cdef int _change(self, int64_t recording_id, list fields, bint is_renewed) except -1
    cdef int _store(self, int64_t offset, bytes content) except -1
    cdef int _rewrite(self, int64_t offset, int64_t old_length, bytes content) except -1
    cdef int _grow(self, int64_t needed) except -1
    cdef int _force(self, bint always) except -1
    cdef int64_t _total(self, int64_t length) noexcept
    cdef bytes _framed(self, bytes body, int64_t total)
    cdef int _make_file(self, list parts, int64_t capacity) except -1
    cdef int64_t _larger_capacity(self, int64_t needed) except -1
