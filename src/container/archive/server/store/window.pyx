"""Reads a file at any offset through a block of memory, which is read when what is asked for is not in it."""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from container.common.sealed cimport hide
from container.storage.storage_seam cimport StorageFile

from container.errors import RecordingError

cdef bytes _ZEROS = bytes(CHUNK_LENGTH)


cdef class FileWindow:
    """A file, of which a block is in memory; only its module makes it."""

    cdef const uint8_t* at(self, int64_t offset, int64_t length) except NULL:
        if offset < self._begin or offset + length > self._begin + len(self._block):
            if self._report_progress is not None:
                self._report_progress()
            self._block = self._file.read(max(length, <int64_t> CHUNK_LENGTH), offset)
            self._begin = offset
            if len(self._block) < length:
                raise RecordingError(f"the file ends at {offset + len(self._block)} bytes, in the middle of what is "
                                     f"read from it", file=self._file.path, offset=offset)
        return <const uint8_t*> <const char*> self._block + (offset - self._begin)

    cdef int64_t used_end(self, int64_t offset, int64_t end) except -2:
        cdef int64_t found = -1, length
        cdef const uint8_t* chunk
        while offset < end:
            length = min(<int64_t> CHUNK_LENGTH, end - offset)
            chunk = self.at(offset, length)
            if memcmp(chunk, <const char*> _ZEROS, <size_t> length) != 0:
                while chunk[length - 1] == 0:
                    length -= 1
                found = offset + length
                length = min(<int64_t> CHUNK_LENGTH, end - offset)
            offset += length
        return found


cdef FileWindow window_of(StorageFile file, object report_progress):
    cdef FileWindow made = FileWindow.__new__(FileWindow)
    made._file, made._report_progress, made._block = file, report_progress, b""
    return made


hide((FileWindow,))
