"""The member's mark file: who owns it, whether the owner lives, and its error log.

It is upstream's ``cluster-mark-service-<N>.dat``: a MarkFileHeader (schema 110, template 200) at offset 0, and a
distinct error log from byte 8192 on. Upstream: ClusterMarkFile.java, Agrona's MarkFile.java.

Ownership is a timestamp and no lock: the owner stores the time once per second, and a file whose timestamp is older
than 10 seconds may be claimed, by a compare-and-swap of that timestamp to 2^63-1. All space is reserved on the disk
before a file is claimed, so that a full disk is an error here and never a SIGBUS later.
"""
import errno
import os
import stat
import struct

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE, mmap, msync, munmap,
)

from container.transport cimport NULL_VALUE, Clock, MarkFile

from container import forks
from container.errors import ConfigurationError, MarkFileError
from container.error_log import format_error_log, read_error_log
from container.loggers import logger
from container.transport import SystemClock

cdef extern from *:
    """
    #include <stdint.h>
    static inline int64_t mark_get64(const void* p)
    { return __atomic_load_n((const int64_t*)p, __ATOMIC_ACQUIRE); }
    static inline int32_t mark_get32(const void* p)
    { return __atomic_load_n((const int32_t*)p, __ATOMIC_ACQUIRE); }
    static inline void mark_set64(void* p, int64_t v)
    { __atomic_store_n((int64_t*)p, v, __ATOMIC_RELEASE); }
    static inline void mark_set32(void* p, int32_t v)
    { __atomic_store_n((int32_t*)p, v, __ATOMIC_RELEASE); }
    static inline int mark_compare_and_set64(void* p, int64_t expected, int64_t v)
    { return __atomic_compare_exchange_n((int64_t*)p, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
    """
    int64_t mark_get64(const void* p) noexcept nogil
    int32_t mark_get32(const void* p) noexcept nogil
    void mark_set64(void* p, int64_t value) noexcept nogil
    void mark_set32(void* p, int32_t value) noexcept nogil
    int mark_compare_and_set64(void* p, int64_t expected, int64_t value) noexcept nogil

# MarkFileHeader: the SBE header, then a block of fixed fields, then text. Offsets are of the block; in the layout
# before schema 110 had a header, the block began at offset 0 of the file.
cdef enum:
    SBE_HEADER_LENGTH = 8
    BLOCK_LENGTH = 128
    TEMPLATE_ID = 200
    SCHEMA_ID = 110
    SCHEMA_VERSION = 2
    VERSION_OFFSET = 0
    COMPONENT_TYPE_OFFSET = 4
    ACTIVITY_TIMESTAMP_OFFSET = 8
    START_TIMESTAMP_OFFSET = 16
    PID_OFFSET = 24
    CANDIDATE_TERM_ID_OFFSET = 32
    ARCHIVE_STREAM_ID_OFFSET = 40
    SERVICE_STREAM_ID_OFFSET = 44
    CONSENSUS_MODULE_STREAM_ID_OFFSET = 48
    INGRESS_STREAM_ID_OFFSET = 52
    MEMBER_ID_OFFSET = 56
    SERVICE_ID_OFFSET = 60
    HEADER_LENGTH_OFFSET = 64
    ERROR_BUFFER_LENGTH_OFFSET = 68
    CLUSTER_ID_OFFSET = 72

cdef enum:
    C_HEADER_LENGTH = 8192
    C_SEMANTIC_VERSION = 0x000300       # 0.3.0
    C_VERSION_FAILED = -1
    C_COMPONENT_CONTAINER = 2

HEADER_LENGTH = C_HEADER_LENGTH
SEMANTIC_VERSION = C_SEMANTIC_VERSION
VERSION_FAILED = C_VERSION_FAILED
LIVENESS_TIMEOUT_MS = 10_000
ERROR_BUFFER_MIN_LENGTH = 1024 * 1024
ERROR_BUFFER_MAX_LENGTH = 2**31 - 1 - C_HEADER_LENGTH
ACTIVATION_IN_PROGRESS = INT64_MAX
TERMINATED = NULL_VALUE

cdef bytes _SBE_HEADER = struct.pack("<HHHH", BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION)
_COMPONENT_TYPES = ("UNKNOWN", "CONSENSUS_MODULE", "CONTAINER", "BACKUP", "STANDBY")
_PAGE_MIN_SIZE = 4096
_PAGE_MAX_SIZE = 1024 * 1024 * 1024
_FILE_MAX_LENGTH = (C_HEADER_LENGTH + ERROR_BUFFER_MAX_LENGTH + _PAGE_MAX_SIZE - 1) & -_PAGE_MAX_SIZE
_FILE_MODE = 0o640      # others may not write: a mark file decides who may start
_CREATE = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC     # and follow no symbolic link, wherever one may have been laid
_FILE_NAME_ATTEMPTS = 100


def mark_file_name(service_id):
    """Name of the mark file of a service."""
    return f"cluster-mark-service-{service_id}.dat"


def link_file_name(service_id):
    """Name of the file that says where the mark file of a service is."""
    return f"cluster-mark-service-{service_id}.lnk"


cdef class ClusterMarkFile(MarkFile):
    """Creates the mark file of a service, or takes over the one that a dead owner left.

    Args:
        path: of the file; its directory must be there.
        error_buffer_length: bytes of the error log, from 1 MiB to 2,147,475,455.
        page_size: the file's length becomes a multiple of it: the driver's file page size, in bytes.
        clock: tells the time; the system's by default.
        fallback: text stream for the notice that old errors were saved; None for no notice.

    After this the start is in progress; :meth:`signal_ready` or :meth:`signal_failed_start` ends it.

    Raises:
        ConfigurationError: a length or a page size out of range.
        MarkFileError: the file is held by a live owner, or by one that starts right now; it is another component's,
            of another major version, too short, or can't be created, reserved or opened. The file is left as it was.

    While views of the file's memory are held (:attr:`error_buffer`), closing leaves it mapped until they are released.
    """
    cdef readonly str path
    cdef readonly int32_t error_buffer_length
    cdef uint8_t* _memory               # NULL once unmapped
    cdef size_t _length
    cdef Py_ssize_t _exports            # buffers that were given out and not yet released
    cdef bint _is_closed
    cdef Clock _clock
    cdef long _parent_id                # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__

    def __cinit__(self):
        self._memory = NULL
        self._is_closed = True

    def __init__(self, path, *, error_buffer_length=ERROR_BUFFER_MIN_LENGTH, page_size=_PAGE_MIN_SIZE,
                 Clock clock=None, fallback=None):
        if self._memory != NULL:
            raise TypeError("a mark file can not be initialised twice")
        length = _file_length(error_buffer_length, page_size)
        self.path = os.fspath(path)
        self.error_buffer_length = error_buffer_length
        self._clock = clock if clock is not None else SystemClock()
        try:
            fd = os.open(self.path, os.O_RDWR | _CREATE, _FILE_MODE)
        except FileExistsError:
            self._take_over(length, fallback)
        except OSError as error:
            raise MarkFileError(f"mark file {self.path} can not be created: {error.strerror}") from error
        else:
            try:
                self._create(fd, length)
            finally:
                os.close(fd)

    def __dealloc__(self):
        self._unmap()

    def _create(self, fd, length):
        """Fill a file that was not there before; if that fails, it is gone again."""
        # A start in a new file shows the time: so it goes stale, and frees the file, if this process is killed now.
        start = _SBE_HEADER + struct.pack("<iiq", 0, C_COMPONENT_CONTAINER, self._clock.epoch_ms())
        try:
            os.pwrite(fd, start, 0)
            _reserve(fd, length)
            self._map(fd, length)
        except BaseException as error:
            _remove(self.path)
            if isinstance(error, OSError):
                raise MarkFileError(f"mark file {self.path} can not be created with {length} bytes: "
                                    f"{error.strerror}") from error
            raise
        self._write_identity(NULL_VALUE)

    def _take_over(self, length, fallback):
        """Claim the file of a dead owner. Until the claim, and if anything fails after it, the owner's data stay."""
        cdef size_t block
        cdef int64_t found_timestamp
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                length = max(length, self._check_file(fd))
                block, found_timestamp = self._check_takeable(fd)
                _reserve(fd, length)
                self._map(fd, length)
            finally:
                os.close(fd)
        except OSError as error:
            reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise MarkFileError(f"mark file {self.path} can not be opened with {length} bytes: {reason}") from error
        try:
            self._claim(block, found_timestamp)
            try:
                self._check_component_type(block)
                self._save_errors(block, fallback)
            except BaseException:
                mark_set64(self._memory + block + ACTIVITY_TIMESTAMP_OFFSET, found_timestamp)
                raise
        except BaseException:
            self.close()
            raise
        self._adopt(block)

    def _check_file(self, fd):
        """Length of a file that may be mapped, which is not more than any owner can have asked for."""
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise MarkFileError(f"mark file {self.path} can not be opened: it is no regular file")
        if status.st_size > _FILE_MAX_LENGTH:
            raise MarkFileError(f"mark file {self.path} is damaged, delete it: it has {status.st_size} bytes, at most "
                                f"{_FILE_MAX_LENGTH} are possible")
        if status.st_mode & stat.S_IWOTH:
            logger().warning("mark file %s may be written by every user of this machine (mode %o): chmod it to %o",
                             self.path, stat.S_IMODE(status.st_mode), _FILE_MODE)
        return status.st_size

    def _check_takeable(self, fd):
        """Offset of the block, and the timestamp, of a file that may be claimed."""
        head = os.pread(fd, SBE_HEADER_LENGTH + BLOCK_LENGTH, 0)
        if len(head) < SBE_HEADER_LENGTH + BLOCK_LENGTH:
            raise MarkFileError(f"mark file too short: {self.path} has {len(head)} bytes; unless another process is "
                                "just creating it, delete it and start again")
        block = SBE_HEADER_LENGTH if head[2:6] == _SBE_HEADER[2:6] else 0
        version, _type, timestamp, _start_timestamp, pid = struct.unpack_from("<iiqqq", head, block)
        if version == C_VERSION_FAILED:
            logger().warning("mark file %s has version -1: the start before this one failed", self.path)
        elif (version >> 16) & 0xFF != 0:
            raise MarkFileError(f"mark file major version {(version >> 16) & 0xFF} does not match software: 0: "
                                f"{self.path}; start with an empty directory, or with the software that wrote it")
        if self._clock.epoch_ms() - timestamp < LIVENESS_TIMEOUT_MS:
            raise MarkFileError(f"active mark file detected: {self.path}: {_activity(timestamp, pid)}")
        return block, timestamp

    cdef int _claim(self, size_t block, int64_t found_timestamp) except -1:
        if not mark_compare_and_set64(
                self._memory + block + ACTIVITY_TIMESTAMP_OFFSET, found_timestamp, INT64_MAX):
            raise MarkFileError(f"concurrent mark file activation: another process has just claimed {self.path}")
        return 0

    cdef int _check_component_type(self, size_t block) except -1:
        cdef int32_t component_type = mark_get32(self._memory + block + COMPONENT_TYPE_OFFSET)
        if component_type != 0 and component_type != C_COMPONENT_CONTAINER:
            name = _COMPONENT_TYPES[component_type] if 0 < component_type < len(_COMPONENT_TYPES) else component_type
            raise MarkFileError(
                f"existing mark file type {name} not same as required type CONTAINER: {self.path}")
        return 0

    def _save_errors(self, size_t block, fallback):
        """Write the errors of the last owner to a file of their own, then clear them."""
        cdef int64_t header_length = mark_get32(self._memory + block + HEADER_LENGTH_OFFSET)
        cdef int64_t error_length = mark_get32(self._memory + block + ERROR_BUFFER_LENGTH_OFFSET)
        if error_length == 0:
            return
        if header_length < BLOCK_LENGTH or error_length < 0 or header_length + error_length > <int64_t> self._length:
            raise MarkFileError(f"mark file {self.path} is damaged, delete it: headerLength={header_length} "
                                f"errorBufferLength={error_length} fileLength={self._length}")
        with memoryview(self)[header_length:header_length + error_length] as region:
            _save_error_log(os.path.dirname(self.path), read_error_log(region), fallback)
        memset(self._memory + header_length, 0, <size_t> error_length)

    cdef int _adopt(self, size_t block) except -1:
        """Make the claimed file ours: the header in today's layout; in today's layout the version stays as it was."""
        cdef int64_t candidate_term_id = mark_get64(self._memory + block + CANDIDATE_TERM_ID_OFFSET)
        cdef int64_t sbe_header
        if block == 0:
            # The old layout's timestamp lies where today's version and component type do. It goes only when today's
            # timestamp and SBE header are there: at no moment may another process see a file that is free.
            memcpy(&sbe_header, <const char*> _SBE_HEADER, sizeof(sbe_header))
            mark_set64(self._memory + SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET, INT64_MAX)
            mark_set64(self._memory, sbe_header)
            mark_set32(self._memory + SBE_HEADER_LENGTH + VERSION_OFFSET, 0)
            memset(self._memory + SBE_HEADER_LENGTH + START_TIMESTAMP_OFFSET, 0,
                   C_HEADER_LENGTH - SBE_HEADER_LENGTH - START_TIMESTAMP_OFFSET)
        return self._write_identity(candidate_term_id)

    cdef int _write_identity(self, int64_t candidate_term_id) except -1:
        """The fields that are known before the container is configured; neither version nor timestamp."""
        memcpy(self._memory, <const char*> _SBE_HEADER, SBE_HEADER_LENGTH)
        self._put32(COMPONENT_TYPE_OFFSET, C_COMPONENT_CONTAINER)
        self._put64(START_TIMESTAMP_OFFSET, self._clock.epoch_ms())
        self._put64(PID_OFFSET, os.getpid())
        self._put64(CANDIDATE_TERM_ID_OFFSET, candidate_term_id)
        self._put32(HEADER_LENGTH_OFFSET, C_HEADER_LENGTH)
        self._put32(ERROR_BUFFER_LENGTH_OFFSET, self.error_buffer_length)
        return 0

    def write_header(self, *, archive_stream_id, service_stream_id, consensus_module_stream_id, service_id, cluster_id,
                     aeron_dir, control_channel, service_name):
        """Writes what readers of the file want to know of the container, before it is ready.

        The member id becomes -1, until the log is joined. Raises MarkFileError when the texts do not fit.
        """
        self._require_open()
        texts = b"".join(struct.pack("<I", len(text)) + text for text in (
            aeron_dir.encode("ascii", "replace"), control_channel.encode("ascii"), b"",
            service_name.encode("ascii"), b""))
        cdef size_t end = SBE_HEADER_LENGTH + BLOCK_LENGTH + <size_t> len(texts)
        if end > C_HEADER_LENGTH:
            raise MarkFileError(f"ClusterMarkFile headerLength={end} > headerLengthCapacity={C_HEADER_LENGTH}: shorten "
                                "aeron_dir, control_channel or service_name")
        self._put32(ARCHIVE_STREAM_ID_OFFSET, archive_stream_id)
        self._put32(SERVICE_STREAM_ID_OFFSET, service_stream_id)
        self._put32(CONSENSUS_MODULE_STREAM_ID_OFFSET, consensus_module_stream_id)
        self._put32(INGRESS_STREAM_ID_OFFSET, NULL_VALUE)
        self._put32(MEMBER_ID_OFFSET, NULL_VALUE)
        self._put32(SERVICE_ID_OFFSET, service_id)
        self._put32(CLUSTER_ID_OFFSET, cluster_id)
        memcpy(self._memory + SBE_HEADER_LENGTH + BLOCK_LENGTH, <const char*> texts, <size_t> len(texts))
        memset(self._memory + end, 0, C_HEADER_LENGTH - end)

    def signal_ready(self):
        """The start succeeded: the time of activity, then the version, and both to the disk.

        Raises MarkFileError when the disk refuses.
        """
        self._require_open()
        self._set_activity_timestamp(self._clock.epoch_ms())
        mark_set32(self._memory + SBE_HEADER_LENGTH + VERSION_OFFSET, C_SEMANTIC_VERSION)
        self._force()

    def signal_failed_start(self):
        """The start failed: frees the file for the next one, with version -1 and timestamp -1. Never raises."""
        if self._is_closed:
            return
        self._set_activity_timestamp(NULL_VALUE)
        mark_set32(self._memory + SBE_HEADER_LENGTH + VERSION_OFFSET, C_VERSION_FAILED)
        try:
            self._force()
        except MarkFileError as error:
            logger().warning("%s", error)

    cpdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        """Shows that the owner lives (epoch ms). Nothing happens when the file is closed, here and below."""
        if not self._is_closed:
            self._set_activity_timestamp(now_ms)
        return 0

    cpdef int set_member_id(self, int32_t member_id) except -1:
        """Writes the member id that a joined log told."""
        if not self._is_closed:
            self._put32(MEMBER_ID_OFFSET, member_id)
        return 0

    cpdef int signal_terminated(self) except -1:
        """The owner has ended: frees the file at once. Raises MarkFileError when the disk refuses."""
        if not self._is_closed:
            self._set_activity_timestamp(NULL_VALUE)
            self._force()
        return 0

    cpdef int close(self) except -1:
        """Unmaps the file, or leaves that to the last view of it. May be called twice."""
        with cython.critical_section(self):
            self._is_closed = True
            if self._exports == 0:
                self._unmap()
        return 0

    @property
    def is_closed(self):
        """True once :meth:`close` was called."""
        return self._is_closed

    @property
    def error_buffer(self):
        """The memory of the error log (memoryview, writable)."""
        return memoryview(self)[C_HEADER_LENGTH:C_HEADER_LENGTH + self.error_buffer_length]

    @property
    def activity_timestamp(self):
        """When the owner last showed that it lives (int, epoch ms); -1 once terminated or closed."""
        if self._is_closed:
            return NULL_VALUE
        return mark_get64(self._memory + SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET)

    @property
    def version(self):
        """0 in a new file, 768 (0.3.0) when ready, -1 after a failed start or once closed."""
        return NULL_VALUE if self._is_closed else self._get32(VERSION_OFFSET)

    @property
    def member_id(self):
        """The member id (int); -1 before the log is joined, or once closed."""
        return NULL_VALUE if self._is_closed else self._get32(MEMBER_ID_OFFSET)

    @property
    def candidate_term_id(self):
        """The term for which the member stood (int), carried over from the file's last owner; -1 when there is none."""
        if self._is_closed:
            return NULL_VALUE
        return mark_get64(self._memory + SBE_HEADER_LENGTH + CANDIDATE_TERM_ID_OFFSET)

    def __getbuffer__(self, Py_buffer* view, int flags):
        with cython.critical_section(self):
            if self._is_closed:
                raise BufferError(f"mark file {self.path} is closed")
            PyBuffer_FillInfo(view, self, self._memory, <Py_ssize_t> self._length, 0, flags)
            self._exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        # The last view may be released by another thread than the one that closes.
        with cython.critical_section(self):
            self._exports -= 1
            if self._is_closed and self._exports == 0:
                self._unmap()

    def __repr__(self):
        return f"<ClusterMarkFile {self.path}{' closed' if self._is_closed else ''}>"

    def _disown(self, long process_id):
        """In a forked child: closed, and what views are left see memory of the child's own."""
        self._parent_id = process_id
        self._is_closed = True
        if self._memory != NULL and mmap(self._memory, self._length, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED:
            raise MemoryError(f"no memory in place of mark file {self.path}")

    cdef int _require_open(self) except -1:
        if self._parent_id != 0:
            raise forks.refusal("write to it", f"mark file {self.path}", self._parent_id)
        if self._is_closed:
            raise MarkFileError(f"mark file {self.path} is closed")
        return 0

    cdef int _map(self, int fd, size_t length) except -1:
        cdef void* memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        cdef int error = c_errno
        if memory == MAP_FAILED:
            raise OSError(error, os.strerror(error))
        self._memory = <uint8_t*> memory
        self._length = length
        self._is_closed = False
        forks.own(self)
        return 0

    cdef void _unmap(self) noexcept:
        if self._memory != NULL:
            munmap(self._memory, self._length)
            self._memory = NULL

    cdef int _force(self) except -1:
        cdef int error = 0
        with nogil:
            if msync(self._memory, self._length, MS_SYNC) != 0:
                error = c_errno
        if error != 0:
            raise MarkFileError(f"mark file {self.path} can not be written to its disk: {os.strerror(error)}")
        return 0

    cdef void _set_activity_timestamp(self, int64_t now_ms) noexcept:
        mark_set64(self._memory + SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET, now_ms)

    cdef void _put32(self, size_t offset, int32_t value) noexcept:
        memcpy(self._memory + SBE_HEADER_LENGTH + offset, &value, sizeof(value))

    cdef void _put64(self, size_t offset, int64_t value) noexcept:
        memcpy(self._memory + SBE_HEADER_LENGTH + offset, &value, sizeof(value))

    cdef int32_t _get32(self, size_t offset) noexcept:
        return mark_get32(self._memory + SBE_HEADER_LENGTH + offset)


def _file_length(error_buffer_length, page_size):
    if not ERROR_BUFFER_MIN_LENGTH <= error_buffer_length <= ERROR_BUFFER_MAX_LENGTH:
        raise ConfigurationError(
            f"error_buffer_length={error_buffer_length}: must be from {ERROR_BUFFER_MIN_LENGTH} to "
            f"{ERROR_BUFFER_MAX_LENGTH} bytes")
    if not _PAGE_MIN_SIZE <= page_size <= _PAGE_MAX_SIZE or page_size & (page_size - 1):
        raise ConfigurationError(f"file page size {page_size}: must be a power of two from {_PAGE_MIN_SIZE} to "
                                 f"{_PAGE_MAX_SIZE} bytes")
    return (C_HEADER_LENGTH + error_buffer_length + page_size - 1) & -page_size


def _activity(timestamp, pid):
    """Why a file with this timestamp can not be taken, and what to do about it."""
    if timestamp == ACTIVATION_IN_PROGRESS:
        return (f"a start is in progress, or was killed (pid {pid} wrote the file last); delete the file if no such "
                "process is starting")
    return (f"its owner, pid {pid}, was alive at {timestamp} (epoch ms); stop it, or wait until "
            f"{LIVENESS_TIMEOUT_MS} ms have passed since")


def _reserve(fd, length):
    """Make sure that each byte of the file has its place on the disk. Raises OSError when it has not."""
    try:
        os.posix_fallocate(fd, 0, length)
        return
    except AttributeError:      # macOS has no such call
        pass
    except OSError as error:    # nor have some file systems
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    if os.fstat(fd).st_size < length:
        os.ftruncate(fd, length)
    for offset in range(0, length, _PAGE_MIN_SIZE):
        os.pwrite(fd, os.pread(fd, 1, offset), offset)


def _save_error_log(directory, records, fallback):
    """Write the records as upstream does, to CONTAINER-<time>-error.log; raises MarkFileError if that fails."""
    if not records:
        return
    path = _error_file(directory, 0)
    for attempt in range(1, _FILE_NAME_ATTEMPTS + 1):
        try:
            _write_new_file(path, format_error_log(records))
            break
        except OSError as error:
            if not isinstance(error, FileExistsError) or attempt == _FILE_NAME_ATTEMPTS:
                raise MarkFileError(f"errors of the last run can not be saved to {path}: {error.strerror}") from error
            # Another service of the node saved its errors in the same millisecond: what it wrote stays.
            path = _error_file(directory, attempt)
    if fallback is not None:
        print(f"WARNING: existing errors saved to: {path}", file=fallback, flush=True)


def _error_file(directory, attempt):
    from datetime import datetime, timedelta    # most starts have no error to save
    time = datetime.now().astimezone() + timedelta(milliseconds=attempt)
    name = f"CONTAINER-{time:%Y-%m-%d-%H-%M-%S}-{time.microsecond // 1000:03}{time:%z}-error.log"
    return os.path.join(directory, name)


def _write_new_file(path, text):
    """Write an ASCII file that was not there before; if that fails, it is not there afterwards. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | _CREATE, _FILE_MODE)
    try:
        with open(descriptor, "w", encoding="ascii", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        _remove(path)
        raise


def _remove(path):
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def ensure_link_file(cluster_dir, mark_file_dir, service_id):
    """Writes the link file, from which readers of the cluster directory learn where the mark file is.

    Both directories (str or path-like) must be resolved. When they are equal there must be no link, so an old one
    is deleted. Raises ConfigurationError for a directory that the link file, which is ASCII, can't name, and
    MarkFileError when it can't be written.
    """
    cdef str name = link_file_name(service_id)
    cdef str link = os.path.join(cluster_dir, name)
    cdef str target = os.fspath(mark_file_dir)
    cdef bint is_elsewhere = target != os.fspath(cluster_dir)
    if is_elsewhere and not target.isascii():
        raise ConfigurationError(f"mark_file_dir={target!r}: must be ASCII, as {name} names it in ASCII")
    try:
        if not is_elsewhere:
            _remove(link)
        else:
            written = f"{link}.tmp"
            _remove(written)        # of a start that was killed
            _write_new_file(written, target)
            try:
                os.replace(written, link)
            except OSError:
                _remove(written)
                raise
    except OSError as error:
        raise MarkFileError(f"link file {link} can not be written: {error.strerror}") from error
