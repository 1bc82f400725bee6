# Common part of the mark files of a member's container and of an archive.
from libc.stdint cimport int32_t, int64_t

from container.storage.storage_seam cimport Storage, StorageFile
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport MarkFile

# The header of a mark file: the SBE header, then a block of fixed fields, then text. Offsets are of the block.
cdef enum:
    SBE_HEADER_LENGTH = 8
    BLOCK_LENGTH = 128
    MARK_HEADER_LENGTH = 8192
    VERSION_OFFSET = 0
    ACTIVITY_TIMESTAMP_OFFSET = 8
    START_TIMESTAMP_OFFSET = 16
    PID_OFFSET = 24


cdef class OwnedMarkFile(MarkFile):
    cdef readonly str path
    cdef readonly int32_t error_buffer_length
    cdef object _kind                   # MarkFileKind
    cdef Storage _storage
    cdef StorageFile _file              # None once closed
    cdef object _new                    # header of a new file that is not written yet (bytearray), else None
    cdef int64_t _length
    cdef int64_t _process_id
    cdef tuple _owner                   # start timestamp and process id, as the file has them
    cdef bint _is_activating            # the timestamp in the file is 2^63-1 because this owner put it there
    cdef object _guard                  # held while the file is used, so that it is not closed meanwhile
    cdef Clock _clock
    cdef long _parent_id                # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__

    # Added by each kind of mark file. `block` is where the block begins in a file that is taken over.
    cdef int _check_version(self, int32_t version) except -1        # raises MarkFileError for one that is not ours
    cdef int64_t _block_offset(self, bytes head) except -1          # likewise
    cdef int _check_claimed(self, int64_t block) except -1          # likewise; the file is given back then
    cdef int _adopt(self, int64_t block) except -1                  # header in today's layout, with the new owner
    cdef int _write_new(self) except -1                             # header of a new file, except its beginning

    # For its constructor: creates the file, or takes it over.
    cdef int _begin(self, object kind, object path, Storage storage, Clock clock, int64_t process_id,
                    object error_buffer_length, object page_size, object fallback) except -1
    cdef int _fail(self, object error) except -1                    # raises
    cdef int _become_owner(self) except -1                          # sets _owner; nothing is written
    cdef int _write(self, int64_t offset, bytes content) except -1
    cdef int _write_or_fail(self, int64_t offset, bytes content) except -1
    cdef int _write_activity_timestamp(self, int64_t now_ms) except -1
    cdef int _before_ready(self) except -1                          # nothing, or what is written right before
    cdef int _put32(self, int64_t offset, int32_t value) except -1  # offsets of today's block
    cdef int _put64(self, int64_t offset, int64_t value) except -1
    cdef bytes _read(self, int64_t offset, int64_t length)
    cdef int64_t _get32(self, int64_t offset) except? -2            # offsets of the file
    cdef int64_t _get64(self, int64_t offset) except? -2
    cdef int64_t _field32(self, int64_t offset) except? -2          # of today's block; -1 once closed
    cdef int64_t _field64(self, int64_t offset) except? -2
    cdef int _force(self) except -1
    cdef int _require_open(self) except -1
    cdef int _require_ours(self) except -1
    cdef str _lost_reason(self)

    cpdef int update_activity_timestamp(self, int64_t now_ms) except -1
    cpdef int signal_terminated(self) except -1
    cpdef int close(self) except -1
