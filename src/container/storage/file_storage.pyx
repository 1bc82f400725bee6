"""The storage seam over the operating system's files. The GIL is released in each call that may wait."""
import fcntl
import os
import uuid

from libc.errno cimport EBADF, EINTR, EINVAL, EIO, ENOSYS, EOPNOTSUPP
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE, mmap, msync, munmap,
)
from posix.unistd cimport close as close_descriptor
from posix.unistd cimport ftruncate
from posix.unistd cimport pread as read_at
from posix.unistd cimport pwrite as write_at

from container.common.sealed cimport hide, seal
from container.storage.storage_seam cimport (
    OPEN_CREATE, OPEN_EXCLUSIVE, OPEN_NO_FOLLOW, OPEN_READ_ONLY, Storage, StorageFile, StorageMap, check_flags,
    check_rename, storage_error,
)

from container.common import forks
from container.common.regular_files import open_regular

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <unistd.h>
    #if defined(__linux__) && defined(FALLOC_FL_KEEP_SIZE)
    static inline int storage_allocate(int file, long long offset, long long length)
    { return fallocate(file, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length); }
    #else
    static inline int storage_allocate(int file, long long offset, long long length)
    { (void)file; (void)offset; (void)length; errno = ENOSYS; return -1; }
    #endif
    #ifdef __APPLE__
    #include <sys/sysctl.h>
    static inline int storage_boot_text(char* text, size_t length)
    { return sysctlbyname("kern.bootsessionuuid", text, &length, NULL, 0); }
    #else
    static inline int storage_boot_text(char* text, size_t length)
    {
        ssize_t count = -1;
        int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        if (file >= 0)
        {
            count = read(file, text, length - 1);
            close(file);
        }
        text[count > 0 ? count : 0] = 0;
        return count > 0 ? 0 : -1;
    }
    #endif
    """
    int storage_allocate(int file, long long offset, long long length) noexcept nogil   # keeps the file's length
    int storage_boot_text(char* text, size_t length) noexcept nogil         # -1 where the system has none

cdef enum:
    ACCESS_RIGHTS = 0o777
    BLOCK_LENGTH = 4096         # at most what a file system gives a place at a time
    MAX_BOOT_TEXT_LENGTH = 64

cdef size_t PAGE_LENGTH = os.sysconf("SC_PAGE_SIZE")
_FORCE_OF_MACOS = getattr(fcntl, "F_FULLFSYNC", None)   # there fsync leaves the data in the disk's own cache
_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750


cdef class FileMap(StorageMap):
    """A range of a file, mapped."""
    cdef OpenFile _file
    cdef size_t _lead                           # bytes between the page's beginning, which is mapped, and the range's
    cdef uint8_t* _mapped
    cdef object __weakref__

    cpdef int force(self, size_t offset, size_t length) except -1:
        self._check_range(offset, length, self._file.path)
        self._file._check_trusted()
        cdef size_t begin = (self._lead + offset) // PAGE_LENGTH * PAGE_LENGTH
        cdef size_t end = self._lead + offset + length
        cdef int result = 0, error = 0
        with nogil:
            result = msync(self._mapped + begin, end - begin, MS_SYNC)
            while result != 0 and c_errno == EINTR:
                result = msync(self._mapped + begin, end - begin, MS_SYNC)
            error = c_errno
        if result != 0:
            self._file._failed_force = error
            raise storage_error(error, f"cannot force {length} bytes at {offset} of a map", self._file.path)
        return 0

    cpdef int close(self) except -1:
        self._check_unused()
        if self.data != NULL:
            self.data = NULL
            self._file._map_count -= 1
            self._unmap()
        return 0

    cdef void _unmap(self) noexcept:
        if self._mapped != NULL:
            munmap(self._mapped, self._lead + self.length)
            self._mapped = NULL

    def _disown(self, process_id):
        # Buffers that the child holds become memory of its own.
        if self._mapped != NULL:
            mmap(self._mapped, self._lead + self.length, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
            self.data = NULL

    def __dealloc__(self):
        self._unmap()


cdef class OpenFile(StorageFile):
    """A file that is open; ``descriptor`` (int) is its number in this process, -1 once closed."""
    cdef readonly int descriptor
    cdef long _parent_id                        # of the process of which this one is a fork; 0 where it was opened
    cdef object __weakref__

    def __cinit__(self):
        self.descriptor = -1

    cdef int _check_open(self, str action) except -1:
        if self.descriptor >= 0:
            return 0
        if self._parent_id != 0:
            raise forks.refusal(f"{action} {self.path}", "the file", self._parent_id)
        raise storage_error(EBADF, f"cannot {action} a file that is closed: open it again", self.path)

    cpdef int64_t length(self) except -1:
        self._check_open("take the length of")
        try:
            return os.fstat(self.descriptor).st_size
        except OSError as error:
            raise storage_error(error.errno, "cannot take the length of the file", self.path) from None

    cdef int64_t pread(self, uint8_t* buffer, size_t length, int64_t offset) except -1:
        self._check_open("read")
        cdef size_t done = 0
        cdef ssize_t count = 0
        cdef int error = 0
        with nogil:
            while done < length:
                count = read_at(self.descriptor, buffer + done, length - done, offset + <int64_t> done)
                if count > 0:
                    done += <size_t> count
                elif count == 0:
                    break
                elif c_errno != EINTR:
                    error = c_errno
                    break
        if error != 0:
            raise storage_error(error, f"cannot read {length} bytes at {offset}", self.path)
        return <int64_t> done

    cdef int pwrite(self, const uint8_t* buffer, size_t length, int64_t offset) except -1:
        self._check_open("write")
        self._check_writable("cannot write")
        cdef size_t done = 0
        cdef ssize_t count = 0
        cdef int error = 0
        with nogil:
            while done < length:
                count = write_at(self.descriptor, buffer + done, length - done, offset + <int64_t> done)
                if count > 0:
                    done += <size_t> count
                elif count == 0 or c_errno != EINTR:
                    error = EIO if count == 0 else c_errno
                    break
        if error != 0:
            raise storage_error(error, f"cannot write {length} bytes at {offset}, {done} of them are written",
                                self.path)
        return 0

    cpdef int set_length(self, int64_t length) except -1:
        self._check_writable("cannot set the length of")
        self._check_cut(length, self.length())
        cdef int result = 0, error = 0
        with nogil:
            result = ftruncate(self.descriptor, length)
            while result != 0 and c_errno == EINTR:
                result = ftruncate(self.descriptor, length)
            error = c_errno
        if result != 0:
            raise storage_error(error, f"cannot set the length to {length} bytes", self.path)
        return 0

    cpdef int reserve(self, int64_t length) except -1:
        self._check_open("reserve")
        self._check_writable("cannot reserve")
        if length < 0:
            raise storage_error(EINVAL, f"cannot reserve {length} bytes: give a length of at least 0", self.path)
        return self._allocate(0, length) if length > 0 else 0

    cpdef bint prepare(self, int64_t offset, int64_t length) except -1:
        self._check_open("prepare")
        self._check_writable("cannot prepare")
        cdef int result = 0
        with nogil:
            result = storage_allocate(self.descriptor, offset, length)
        return result == 0

    cdef int _allocate(self, int64_t offset, int64_t length) except -1:
        cdef uint8_t value = 0
        cdef int64_t place = offset
        try:
            os.posix_fallocate(self.descriptor, offset, length)
            return 0
        except AttributeError:      # macOS has no such call
            pass
        except OSError as error:    # nor have some file systems
            if error.errno != EOPNOTSUPP and error.errno != ENOSYS and error.errno != EINVAL:
                raise storage_error(error.errno, f"cannot reserve {length} bytes at {offset}", self.path) from None
        if self.length() < offset + length:
            self.set_length(offset + length)
        while place < offset + length:
            self.pread(&value, 1, place)
            self.pwrite(&value, 1, place)
            place = (place // BLOCK_LENGTH + 1) * BLOCK_LENGTH
        return 0

    cpdef int force(self, bint with_metadata) except -1:
        self._check_open("force")
        self._check_trusted()
        try:
            if _FORCE_OF_MACOS is not None:
                fcntl.fcntl(self.descriptor, _FORCE_OF_MACOS)
            elif with_metadata:
                os.fsync(self.descriptor)
            else:
                os.fdatasync(self.descriptor)
        except OSError as error:
            self._failed_force = error.errno
            raise storage_error(error.errno, "cannot force the file", self.path) from None
        return 0

    cpdef StorageMap map_range(self, int64_t offset, size_t length):
        self._check_open("map")
        self._check_map(offset, length, self.length())
        if not self.is_read_only:
            self._allocate(offset, <int64_t> length)
        cdef size_t lead = <size_t> offset % PAGE_LENGTH
        cdef int protection = PROT_READ if self.is_read_only else PROT_READ | PROT_WRITE
        cdef void* memory
        cdef int error
        with nogil:
            memory = mmap(NULL, lead + length, protection, MAP_SHARED, self.descriptor, offset - <int64_t> lead)
            error = c_errno
        if memory == MAP_FAILED:
            raise storage_error(error, f"cannot map {length} bytes at {offset}", self.path)
        cdef FileMap made = FileMap.__new__(FileMap)
        made._file, made._lead, made.length, made.is_read_only = self, lead, length, self.is_read_only
        made._mapped = <uint8_t*> memory
        made.data = made._mapped + lead
        self._map_count += 1
        forks.own(made)
        return made

    cpdef int access_rights(self) except -1:
        self._check_open("take the access rights of")
        return _call("take the access rights", self.path, os.fstat, self.descriptor).st_mode & ACCESS_RIGHTS

    cpdef bint is_replaced(self) except -1:
        found = self._found()
        return found is not None and not os.path.samestat(found, self._status())

    cpdef bint is_in_place(self) except -1:
        found = self._found()
        return found is not None and os.path.samestat(found, self._status())

    cdef object _found(self):
        """The file that now has its name; None: no file."""
        self._check_open("look for")
        found = None
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise storage_error(error.errno, "cannot look for", self.path) from None
        return found

    cdef object _status(self):
        return _call("look at", self.path, os.fstat, self.descriptor)

    cpdef int close(self) except -1:
        cdef int descriptor = self.descriptor
        cdef int result = 0, error = 0
        self.descriptor = -1
        if descriptor >= 0:
            with nogil:
                result = close_descriptor(descriptor)       # not repeated: the descriptor is free even if interrupted
                error = c_errno
            if result != 0 and error != EINTR:
                raise storage_error(error, "cannot close the file", self.path)
        return 0

    def _disown(self, process_id):
        if self.descriptor >= 0:
            close_descriptor(self.descriptor)
            self.descriptor = -1
            self._parent_id = process_id

    def __dealloc__(self):
        if self.descriptor >= 0:
            close_descriptor(self.descriptor)


cdef class FileStorage(Storage):
    """The files of this machine."""
    cdef dict _failed_directories                           # path -> errno of the first force that failed

    def __init__(self):
        self._failed_directories = {}

    cpdef StorageFile open_file(self, str path, int flags):
        check_flags(flags, path)
        mode = os.O_RDONLY if flags & OPEN_READ_ONLY else os.O_RDWR
        if flags & OPEN_CREATE:
            mode |= os.O_CREAT
        if flags & OPEN_EXCLUSIVE:
            mode |= os.O_EXCL
        if flags & OPEN_NO_FOLLOW:
            mode |= os.O_NOFOLLOW
        cdef OpenFile made = OpenFile.__new__(OpenFile)
        made.path, made.is_read_only = path, flags & OPEN_READ_ONLY
        try:
            made.descriptor = open_regular(path, mode, _FILE_MODE)
        except OSError as error:
            raise OSError(error.errno, f"cannot open the file: {error.strerror}", path) from None
        forks.own(made)
        return made

    cpdef list list_directory(self, str path):
        return sorted(_call("list the directory", path, os.listdir, path))

    cpdef bint exists(self, str path) except -1:
        try:
            os.stat(path)
            found = True
        except (FileNotFoundError, NotADirectoryError):
            found = False
        except OSError as error:
            raise storage_error(error.errno, "cannot look for", path) from None
        return found

    cpdef int64_t length_of(self, str path) except -1:
        return _call("take the length", path, os.stat, path).st_size

    cpdef int make_directory(self, str path) except -1:
        _call("make the directory", path, os.mkdir, path, _DIRECTORY_MODE)
        return 0

    cpdef int rename(self, str path, str new_path) except -1:
        check_rename(path, new_path)
        _call(f"rename to {new_path}", path, os.rename, path, new_path)
        return 0

    cpdef int unlink(self, str path) except -1:
        _call("unlink", path, os.unlink, path)
        return 0

    cpdef int force_directory(self, str path) except -1:
        if path in self._failed_directories:
            raise storage_error(self._failed_directories[path], "a force of this directory failed before and what it "
                                "lost may count as written: use a new directory", path)
        directory = _call("open the directory", path, os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _call("force the directory", path, os.fsync, directory)
        except OSError as error:
            self._failed_directories[path] = error.errno
            raise
        finally:
            os.close(directory)
        return 0

    def retry_directory(self, str path not None):
        self._failed_directories.pop(path, None)

    cpdef int64_t usable_space(self, str path) except -1:
        space = _call("take the usable space", path, os.statvfs, path)
        return space.f_bavail * space.f_frsize

    cpdef bytes boot_id(self):
        return _boot_id

    def __repr__(self):
        return "<FileStorage>"


cdef bytes _read_boot_id():
    cdef char text[MAX_BOOT_TEXT_LENGTH]
    if storage_boot_text(text, MAX_BOOT_TEXT_LENGTH) == 0:
        try:
            return uuid.UUID((<bytes> text).decode("ascii", "replace").strip()).bytes
        except ValueError:
            pass
    return os.urandom(16)


cdef bytes _boot_id = _read_boot_id()


cdef object _call(str action, str path, object function, object first, object second=None):
    # These repeat what a signal interrupted.
    try:
        return function(first) if second is None else function(first, second)
    except OSError as error:
        raise storage_error(error.errno, f"cannot {action}", path) from None


seal((FileStorage,))
hide((FileMap, OpenFile))
