# Reads a file at any offset through a block of memory.
from libc.stdint cimport int64_t, uint8_t

from container.storage.storage_seam cimport StorageFile

cdef enum:
    CHUNK_LENGTH = 1024 * 1024                  # read at once


cdef class FileWindow:
    cdef StorageFile _file
    cdef object _report_progress                # called with nothing when a block is read; or None
    cdef bytes _block
    cdef int64_t _begin
    # The bytes there, valid until the next call. Raises RecordingError where the file is shorter, OSError.
    cdef const uint8_t* at(self, int64_t offset, int64_t length) except NULL
    # The offset behind the last byte that is not zero, from `offset` to `end`; -1 when all are.
    cdef int64_t used_end(self, int64_t offset, int64_t end) except -2


cdef FileWindow window_of(StorageFile file, object report_progress)
