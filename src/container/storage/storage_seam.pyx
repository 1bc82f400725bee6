"""The storage seam: abstract storage, file and map, for what must survive a crash.

The effect of a call survives the end of the process. It survives a power cut only once it is forced: the content and
the length of a file by :meth:`StorageFile.force`, its name by :meth:`Storage.force_directory`.

Errors are OSError with errno, path and what was attempted. One thread at a time uses a file or a map.
"""
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EBADF, EBUSY, EINVAL, EXDEV
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strerror

READ_ONLY = <int> OPEN_READ_ONLY
CREATE = <int> OPEN_CREATE
EXCLUSIVE = <int> OPEN_EXCLUSIVE
NO_FOLLOW = <int> OPEN_NO_FOLLOW


cdef object storage_error(int error, str action, str path):
    return OSError(error, f"{action}: {strerror(error).decode()}", path)


cdef int check_flags(int flags, str path) except -1:
    """Flags that make sense together."""
    if (flags & ~(OPEN_READ_ONLY | OPEN_CREATE | OPEN_EXCLUSIVE | OPEN_NO_FOLLOW)
            or flags & (OPEN_READ_ONLY | OPEN_CREATE) == 3
            or flags & (OPEN_CREATE | OPEN_EXCLUSIVE) == OPEN_EXCLUSIVE):
        raise storage_error(
            EINVAL, f"cannot open with flags {flags}: give 0, READ_ONLY, CREATE or CREATE | EXCLUSIVE, each with or "
                    "without NO_FOLLOW", path)
    return 0


cdef int check_rename(str path, str new_path) except -1:
    """One directory: a rename across two is whole on the disk only when both are forced."""
    if path.rpartition("/")[0] != new_path.rpartition("/")[0]:
        raise storage_error(EXDEV, f"cannot rename to {new_path}: give it a name in the same directory", path)
    return 0


cdef object _abstract(object self, str method):
    return TypeError(f"{type(self).__name__} does not implement {method}()")


cdef class StorageMap:
    """Part of a file as memory, also a buffer: what is stored there is written, and not forced."""

    cpdef int force(self, size_t offset, size_t length) except -1:
        """Force the pages of ``length`` bytes from ``offset`` of the map on; the file's length is not forced.

        Raises OSError when the disk fails, or a force of the file failed before.
        """
        raise _abstract(self, "force")

    cpdef int close(self) except -1:
        """Give the memory back; BufferError while a buffer of it is in use."""
        raise _abstract(self, "close")

    cdef int _check_range(self, size_t offset, size_t length, str path) except -1:
        if self.data == NULL:
            raise storage_error(EBADF, "cannot force a map that is closed: map the range again", path)
        if offset > self.length or length > self.length - offset:
            raise storage_error(EINVAL, f"cannot force {length} bytes at {offset} of a map of {self.length} bytes: "
                                        "stay within it", path)
        return 0

    cdef int _check_unused(self) except -1:
        if self._exports > 0:
            raise BufferError(f"cannot close a map of {self.length} bytes: release its {self._exports} buffers first")
        return 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.data == NULL:
            raise BufferError("cannot use a map that is closed: map the range again")
        PyBuffer_FillInfo(buffer, self, self.data, <Py_ssize_t> self.length, self.is_read_only, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports -= 1

    def __repr__(self):
        return f"<{type(self).__name__} length={self.length}{' closed' if self.data == NULL else ''}>"


cdef class StorageFile:
    """An open file. Offsets and lengths are bytes. A force that failed once fails from then on."""

    cpdef int64_t length(self) except -1:
        """The file's length now."""
        raise _abstract(self, "length")

    cdef int64_t pread(self, uint8_t* buffer, size_t length, int64_t offset) except -1:
        raise _abstract(self, "pread")

    cdef int pwrite(self, const uint8_t* buffer, size_t length, int64_t offset) except -1:
        raise _abstract(self, "pwrite")

    cpdef int set_length(self, int64_t length) except -1:
        """Cut the file, or extend it by zeros that take no place on the disk yet.

        Raises OSError; EBUSY for a cut while a map of this file is open, as the memory behind the end would be gone.
        """
        raise _abstract(self, "set_length")

    cpdef int reserve(self, int64_t length) except -1:
        """Give each of the first ``length`` bytes its place on the disk, and extend a file that is shorter.

        Raises OSError; ENOSPC when the disk is full.
        """
        raise _abstract(self, "reserve")

    cpdef bint prepare(self, int64_t offset, int64_t length) except -1:
        """Give a range that is written soon its places on the disk, as writes of many parts then take less time.

        Whether all of it has them (bool); where not, writing may work or not, as without this call. The file's length
        stays. Raises OSError for a file that is closed or opened for reading only, and for no failure of the disk.
        """
        return False

    cpdef int force(self, bint with_metadata) except -1:
        """Wait until content and length are on the disk; with metadata, times and access rights as well.

        The file's name is forced by :meth:`Storage.force_directory` alone. Raises OSError when the disk fails, and
        whenever a force failed before: the system may take lost bytes for written. Write them again into a new file.
        """
        raise _abstract(self, "force")

    cpdef StorageMap map_range(self, int64_t offset, size_t length):
        """The range as memory. It must be in the file, and is reserved, so that no store meets a full disk.

        Raises OSError.
        """
        raise _abstract(self, "map_range")

    cpdef int access_rights(self) except -1:
        """The file's access rights: the lowest 9 bits of its mode."""
        raise _abstract(self, "access_rights")

    cpdef bint is_replaced(self) except -1:
        """Is another file, or anything else, where this one was opened? False when nothing has its name any more.

        Raises OSError when that cannot be known.
        """
        raise _abstract(self, "is_replaced")

    cpdef bint is_in_place(self) except -1:
        """Whether the path by which it was opened leads to it; not once it, or a directory on the way, has gone.

        Raises OSError when that cannot be known.
        """
        raise _abstract(self, "is_in_place")

    cpdef int close(self) except -1:
        """Close the file; nothing is forced. Its maps stay."""
        raise _abstract(self, "close")

    def read(self, int64_t length, int64_t offset):
        """Up to ``length`` bytes from ``offset`` on, fewer where the file ends (bytes). Raises OSError."""
        if length < 0 or offset < 0:
            raise storage_error(EINVAL, f"cannot read {length} bytes at {offset}: give no negative number", self.path)
        length = max(0, min(length, self.length() - offset))
        cdef bytes content = PyBytes_FromStringAndSize(NULL, length)
        cdef int64_t count = self.pread(<uint8_t*> PyBytes_AS_STRING(content), <size_t> length, offset)
        return content if count == length else content[:count]

    def write(self, const uint8_t[::1] content not None, int64_t offset):
        """Write all of a bytes-like object at ``offset``.

        Raises OSError: then any of it may be written, and the text counts the bytes that are.
        """
        if content.shape[0] > 0:
            self.pwrite(&content[0], <size_t> content.shape[0], offset)

    cdef int _check_writable(self, str action) except -1:
        if self.is_read_only:
            raise storage_error(EBADF, f"{action} a file that is open for reading only: open it without READ_ONLY",
                                self.path)
        return 0

    cdef int _check_trusted(self) except -1:
        if self._failed_force != 0:
            raise storage_error(
                self._failed_force, "a force of this file failed before and what it lost may count as written: "
                "write the content into a new file", self.path)
        return 0

    cdef int _check_cut(self, int64_t length, int64_t old_length) except -1:
        if length < old_length and self._map_count > 0:
            raise storage_error(EBUSY, f"cannot cut the file to {length} bytes: close its {self._map_count} maps first",
                                self.path)
        return 0

    cdef int _check_map(self, int64_t offset, size_t length, int64_t file_length) except -1:
        if offset < 0 or length == 0 or offset > file_length or <int64_t> length > file_length - offset:
            raise storage_error(EINVAL, f"cannot map {length} bytes at {offset} of a file of {file_length} bytes: "
                                        "extend it first", self.path)
        return 0

    def __repr__(self):
        return f"<{type(self).__name__} {self.path}>"


cdef class Storage:
    """Files and directories by path (str). All raise OSError."""

    cpdef StorageFile open_file(self, str path, int flags):
        """Open a regular file: READ_ONLY, CREATE, CREATE | EXCLUSIVE, or 0 for one that is there.

        With NO_FOLLOW a symbolic link in the place of the file is an error, ELOOP; one in the place of a directory is
        followed.
        """
        raise _abstract(self, "open_file")

    cpdef list list_directory(self, str path):
        """Names of what is in a directory, sorted (list of str)."""
        raise _abstract(self, "list_directory")

    cpdef bint exists(self, str path) except -1:
        """Is there a file or a directory of this name? Raises OSError when that cannot be known."""
        raise _abstract(self, "exists")

    cpdef int64_t length_of(self, str path) except -1:
        """Length of a file in bytes."""
        raise _abstract(self, "length_of")

    cpdef int make_directory(self, str path) except -1:
        """Make one directory; FileExistsError when something is there."""
        raise _abstract(self, "make_directory")

    cpdef int rename(self, str path, str new_path) except -1:
        """Rename a file within its directory; a file of the new name is replaced."""
        raise _abstract(self, "rename")

    cpdef int unlink(self, str path) except -1:
        """Remove a file. A process that has it open keeps it."""
        raise _abstract(self, "unlink")

    cpdef int force_directory(self, str path) except -1:
        """Wait until creations, renames and unlinks in this directory are on the disk.

        Raises OSError when the disk fails, and whenever a force of this directory failed before.
        """
        raise _abstract(self, "force_directory")

    def retry_directory(self, str path not None):
        """Have forces of a directory count again, of what is done in it from now on.

        For who then renames a file onto the name that is in doubt: the directory is written again for that, where the
        force that failed may have lost it.
        """
        raise _abstract(self, "retry_directory")

    cpdef int64_t usable_space(self, str path) except -1:
        """Bytes that can still be written to the disk of a directory."""
        raise _abstract(self, "usable_space")

    cpdef bytes boot_id(self):
        """16 bytes that are the same for all processes until the machine restarts, and never again.

        Unforced writes survive while they are the same. A machine that does not say when it started has another id for
        each process.
        """
        raise _abstract(self, "boot_id")
