# The storage seam: everything that an archive and a consensus module ask of the file system.
#
# Each class here is abstract. `file_storage.pyx` implements them over the operating system, and
# `testing/simulation/disk.pyx` over memory. Every call may wait: it releases the GIL, or parks a simulated fiber.
from libc.stdint cimport int64_t, uint8_t


# How a file is opened; 0 opens a file that is there, for reading and writing.
cdef enum:
    OPEN_READ_ONLY = 1
    OPEN_CREATE = 2             # create the file unless it is there
    OPEN_EXCLUSIVE = 4          # with OPEN_CREATE: fail when it is there
    OPEN_NO_FOLLOW = 8          # fail when its name is a symbolic link


cdef class StorageMap:                                      # part of a file as memory, shared by all who map it
    cdef uint8_t* data                                      # NULL once closed; it may move in a call that raises
    cdef readonly size_t length
    cdef readonly bint is_read_only
    cdef Py_ssize_t _exports                                # buffers that Python holds
    cpdef int force(self, size_t offset, size_t length) except -1
    cpdef int close(self) except -1                         # may be called twice
    cdef int _check_range(self, size_t offset, size_t length, str path) except -1
    cdef int _check_unused(self) except -1


cdef class StorageFile:
    cdef readonly str path
    cdef readonly bint is_read_only
    cdef int _failed_force                                  # errno of the first force that failed, else 0
    cdef int _map_count                                     # maps that are open
    cpdef int64_t length(self) except -1
    # Bytes read: fewer than length only where the file ends.
    cdef int64_t pread(self, uint8_t* buffer, size_t length, int64_t offset) except -1
    # Write all, or raise.
    cdef int pwrite(self, const uint8_t* buffer, size_t length, int64_t offset) except -1
    cpdef int set_length(self, int64_t length) except -1    # cuts, or extends by zeros without a place on the disk
    cpdef int reserve(self, int64_t length) except -1       # each byte gets its place; extends, never cuts
    # A hint: bytes that are written soon get their places at once. Whether they have; the length stays.
    cpdef bint prepare(self, int64_t offset, int64_t length) except -1
    cpdef int force(self, bint with_metadata) except -1     # data and length; with_metadata: times and modes as well
    cpdef StorageMap map_range(self, int64_t offset, size_t length)
    cpdef int access_rights(self) except -1                 # as of chmod
    cpdef bint is_replaced(self) except -1                  # something else has its name
    cpdef bint is_in_place(self) except -1                  # its name is there, and its own
    cpdef int close(self) except -1                         # may be called twice; maps stay
    cdef int _check_writable(self, str action) except -1
    cdef int _check_trusted(self) except -1
    cdef int _check_cut(self, int64_t length, int64_t old_length) except -1
    cdef int _check_map(self, int64_t offset, size_t length, int64_t file_length) except -1


cdef class Storage:
    cpdef StorageFile open_file(self, str path, int flags)
    cpdef list list_directory(self, str path)               # names, sorted
    cpdef bint exists(self, str path) except -1
    cpdef int64_t length_of(self, str path) except -1
    cpdef int make_directory(self, str path) except -1
    cpdef int rename(self, str path, str new_path) except -1     # a file, in its directory; replaces what is there
    cpdef int unlink(self, str path) except -1
    cpdef int force_directory(self, str path) except -1     # creations, renames and unlinks in it
    cpdef int64_t usable_space(self, str path) except -1    # bytes
    cpdef bytes boot_id(self)                               # 16, the same until the machine reboots


cdef object storage_error(int error, str action, str path)  # the OSError for the caller to raise


cdef int check_flags(int flags, str path) except -1


cdef int check_rename(str path, str new_path) except -1
