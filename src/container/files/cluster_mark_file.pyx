"""The member's mark file: who owns it, whether the owner lives, and its error log.

It is upstream's ``cluster-mark-service-<N>.dat``: a MarkFileHeader (schema 110, template 200) at offset 0, and a
distinct error log from byte 8192 on. Upstream: ClusterMarkFile.java, Agrona's MarkFile.java.

Ownership is a timestamp and no lock: the owner stores the time once per second, and a file whose timestamp is older
than 10 seconds may be claimed, by a compare-and-swap of that timestamp to 2^63-1. An owner that stood still for that
long finds another one's start timestamp and process id in the file, and writes nothing more into it.

The file is read and written by calls and not mapped, so that one that is cut short, or a disk that fails, is an error
and never a SIGBUS. Only the compare-and-swap needs memory: it maps one page, for itself alone, of a file whose length
was looked at right before. All space is reserved on the disk before a file is claimed, so that a full disk is an error
at the start.
"""
import errno
import os
import stat
import struct
import threading
from datetime import datetime, timedelta

from libc.errno cimport errno as c_errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport close as close_file

from container.common.sealed cimport seal
from container.transport.seam cimport NULL_VALUE, Clock, MarkFile

from container.common import forks
from container.common.line_printer import print_line
from container.common.loggers import report
from container.common.regular_files import open_regular, read_at, write_at
from container.errors import ConfigurationError, MarkFileError
from container.files.error_log import format_error_log, read_error_log
from container.transport.seam import SystemClock

cdef extern from *:
    """
    #include <stdint.h>
    static inline int mark_compare_and_set64(void* p, int64_t expected, int64_t v)
    { return __atomic_compare_exchange_n((int64_t*)p, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
    """
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
    C_PAGE_LENGTH = 4096
    C_SEMANTIC_VERSION = 0x000300       # 0.3.0
    C_VERSION_FAILED = -1
    C_COMPONENT_CONTAINER = 2

HEADER_LENGTH = C_HEADER_LENGTH
LIVENESS_TIMEOUT_MS = 10_000
ERROR_BUFFER_MIN_LENGTH = 1024 * 1024
ERROR_BUFFER_MAX_LENGTH = 2**31 - 1 - C_HEADER_LENGTH
ACTIVATION_IN_PROGRESS = INT64_MAX
TERMINATED = NULL_VALUE

cdef bytes _SBE_HEADER = struct.pack("<HHHH", BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION)
_COMPONENT_TYPES = ("UNKNOWN", "CONSENSUS_MODULE", "CONTAINER", "BACKUP", "STANDBY")
_START = struct.Struct("<8siiqqq")      # SBE header, version, component type, activity and start timestamp, pid
_CLEARED = bytes(1024 * 1024)
_PAGE_MIN_SIZE = C_PAGE_LENGTH
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
        clock: the source of time; the system's by default.
        fallback: text stream for the notice that old errors were saved; None for no notice.

    After this the start is in progress; :meth:`signal_ready` or :meth:`signal_failed_start` ends it.

    Raises:
        ConfigurationError: a length or a page size out of range.
        MarkFileError: the file is held by a live owner, or by one that starts right now; it is another component's,
            of another major version, too short, or can't be created, reserved or opened. The file is left as it was.

    May be used by several threads.
    """
    cdef readonly str path
    cdef readonly int32_t error_buffer_length
    cdef int _file                      # -1 once closed
    cdef int64_t _length
    cdef object _owner                  # start timestamp and process id, as the file has them
    cdef bint _is_activating            # the timestamp in the file is 2^63-1 because this owner put it there
    cdef object _guard                  # held while the file is written, so that it is not closed meanwhile
    cdef Clock _clock
    cdef long _parent_id                # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__

    def __cinit__(self):
        self._file = -1
        self._guard = threading.RLock()

    def __init__(self, path, *, error_buffer_length=ERROR_BUFFER_MIN_LENGTH, page_size=_PAGE_MIN_SIZE,
                 Clock clock=None, fallback=None):
        length = _file_length(error_buffer_length, page_size)
        self.path = os.fspath(path)
        self.error_buffer_length = error_buffer_length
        self._clock = clock if clock is not None else SystemClock()
        forks.own(self)
        try:
            self._file = os.open(self.path, os.O_RDWR | _CREATE, _FILE_MODE)
        except FileExistsError:
            self._take_over(length, fallback)
        except OSError as error:
            raise MarkFileError(f"mark file {self.path} cannot be created: {error.strerror}") from error
        else:
            self._create(length)

    def __dealloc__(self):
        if self._file >= 0:
            close_file(self._file)

    def _create(self, length):
        """Fill a file that was not there before; if that fails, it is gone again."""
        # A start in a new file shows the time: so it goes stale, and frees the file, if this process is killed now.
        start = _SBE_HEADER + struct.pack("<iiq", 0, C_COMPONENT_CONTAINER, self._clock.epoch_ms())
        try:
            self._write(0, start)
            _reserve(self._file, length)
            self._write_identity(NULL_VALUE)
        except BaseException as error:
            _remove(self.path)
            self.close()
            if isinstance(error, OSError):
                raise MarkFileError(f"mark file {self.path} cannot be created with {length} bytes: "
                                    f"{error.strerror}") from error
            raise
        self._length = length

    def _take_over(self, length, fallback):
        """Claim the file of a dead owner. Until the claim, and if anything fails after it, the owner's data stay."""
        try:
            self._open()
            length = max(length, self._check_file())
            block, found_timestamp = self._check_takeable()
            _reserve(self._file, length)
            self._length = length
            self._claim(block, found_timestamp)
            try:
                self._check_component_type(block)
                self._save_errors(block, fallback)
            except BaseException:
                self._write(block + ACTIVITY_TIMESTAMP_OFFSET, struct.pack("<q", found_timestamp))
                raise
            self._adopt(block)
        except OSError as error:
            self.close()
            reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise MarkFileError(f"mark file {self.path} cannot be opened with {length} bytes: {reason}") from error
        except BaseException:
            self.close()
            raise

    def _open(self):
        try:
            self._file = open_regular(self.path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise MarkFileError(f"mark file {self.path} cannot be opened: {error.strerror}") from error
            raise

    def _check_file(self):
        """Length of a file that may be taken, which is not more than any owner can have asked for."""
        status = os.fstat(self._file)
        if status.st_size > _FILE_MAX_LENGTH:
            raise MarkFileError(f"mark file {self.path} is damaged, delete it: it has {status.st_size} bytes, at most "
                                f"{_FILE_MAX_LENGTH} are possible")
        if status.st_mode & stat.S_IWOTH:
            report("warning", "mark file %s may be written by every user of this machine (mode %o): chmod it to %o",
                   self.path, stat.S_IMODE(status.st_mode), _FILE_MODE)
        return status.st_size

    def _check_takeable(self):
        """Offset of the block, and the timestamp, of a file that may be claimed."""
        head = read_at(self._file, 0, SBE_HEADER_LENGTH + BLOCK_LENGTH)
        if len(head) < SBE_HEADER_LENGTH + BLOCK_LENGTH:
            raise MarkFileError(f"mark file too short: {self.path} has {len(head)} bytes; unless another process is "
                                "just creating it, delete it and start again")
        block = SBE_HEADER_LENGTH if head[2:6] == _SBE_HEADER[2:6] else 0
        version, _type, timestamp, _start_timestamp, pid = struct.unpack_from("<iiqqq", head, block)
        if version == C_VERSION_FAILED:
            report("warning", "mark file %s has version -1: the start before this one failed", self.path)
        elif (version >> 16) & 0xFF != 0:
            raise MarkFileError(f"mark file major version {(version >> 16) & 0xFF} does not match software: 0: "
                                f"{self.path}; start with an empty directory, or with the software that wrote it")
        if self._clock.epoch_ms() - timestamp < LIVENESS_TIMEOUT_MS:
            activity = _activity(timestamp, pid, self._clock.epoch_ms())
            raise MarkFileError(f"active mark file detected: {self.path}: {activity}")
        return block, timestamp

    def _claim(self, block, found_timestamp):
        if not _compare_and_set(self._file, block + ACTIVITY_TIMESTAMP_OFFSET, found_timestamp, INT64_MAX):
            raise MarkFileError(f"concurrent mark file activation: another process has just claimed {self.path}")
        self._is_activating = True

    def _check_component_type(self, block):
        component_type = self._get32(block + COMPONENT_TYPE_OFFSET)
        if component_type != 0 and component_type != C_COMPONENT_CONTAINER:
            name = _COMPONENT_TYPES[component_type] if 0 < component_type < len(_COMPONENT_TYPES) else component_type
            raise MarkFileError(
                f"existing mark file type {name} not same as required type CONTAINER: {self.path}")

    def _save_errors(self, block, fallback):
        """Write the errors of the last owner to a file of their own, then clear them."""
        header_length = self._get32(block + HEADER_LENGTH_OFFSET)
        error_length = self._get32(block + ERROR_BUFFER_LENGTH_OFFSET)
        if error_length == 0:
            return
        if header_length < BLOCK_LENGTH or error_length < 0 or header_length + error_length > self._length:
            raise MarkFileError(f"mark file {self.path} is damaged, delete it: headerLength={header_length} "
                                f"errorBufferLength={error_length} fileLength={self._length}")
        _save_error_log(os.path.dirname(self.path), read_error_log(self._read(header_length, error_length)), fallback)
        for offset in range(header_length, header_length + error_length, len(_CLEARED)):
            self._write(offset, _CLEARED[:header_length + error_length - offset])

    def _adopt(self, block):
        """Make the claimed file ours: the header in today's layout; in today's layout the version stays as it was."""
        candidate_term_id = self._get64(block + CANDIDATE_TERM_ID_OFFSET)
        if block == 0:
            # The old layout's timestamp lies where today's version and component type do. It goes only when today's
            # timestamp and SBE header are there: at no moment may another process see a file that is free.
            self._put64(ACTIVITY_TIMESTAMP_OFFSET, INT64_MAX)
            self._write(0, _SBE_HEADER)
            self._put32(VERSION_OFFSET, 0)
            self._write(SBE_HEADER_LENGTH + START_TIMESTAMP_OFFSET,
                        bytes(C_HEADER_LENGTH - SBE_HEADER_LENGTH - START_TIMESTAMP_OFFSET))
        self._write_identity(candidate_term_id)

    def _write_identity(self, candidate_term_id):
        """The fields that are known before the container is configured; neither version nor timestamp."""
        self._owner = self._clock.epoch_ms(), os.getpid()
        self._write(0, _SBE_HEADER)
        self._put32(COMPONENT_TYPE_OFFSET, C_COMPONENT_CONTAINER)
        self._write(SBE_HEADER_LENGTH + START_TIMESTAMP_OFFSET, struct.pack("<qqq", *self._owner, candidate_term_id))
        self._put32(HEADER_LENGTH_OFFSET, C_HEADER_LENGTH)
        self._put32(ERROR_BUFFER_LENGTH_OFFSET, self.error_buffer_length)

    def write_header(self, *, archive_stream_id, service_stream_id, consensus_module_stream_id, service_id, cluster_id,
                     aeron_dir, control_channel, service_name):
        """Writes what readers of the file want to know of the container, before it is ready.

        The member id becomes -1, until the log is joined. Raises MarkFileError when the texts do not fit.
        """
        texts = b"".join(struct.pack("<I", len(text)) + text for text in (
            aeron_dir.encode("ascii", "replace"), control_channel.encode("ascii"), b"",
            service_name.encode("ascii"), b""))
        end = SBE_HEADER_LENGTH + BLOCK_LENGTH + len(texts)
        if end > C_HEADER_LENGTH:
            raise MarkFileError(f"ClusterMarkFile headerLength={end} > headerLengthCapacity={C_HEADER_LENGTH}: shorten "
                                "aeron_dir, control_channel or service_name")
        with self._guard:
            self._require_ours()
            self._write_or_fail(SBE_HEADER_LENGTH + ARCHIVE_STREAM_ID_OFFSET, struct.pack(
                "<iiiiii", archive_stream_id, service_stream_id, consensus_module_stream_id, NULL_VALUE, NULL_VALUE,
                service_id))
            self._write_or_fail(SBE_HEADER_LENGTH + CLUSTER_ID_OFFSET, struct.pack("<i", cluster_id))
            self._write_or_fail(SBE_HEADER_LENGTH + BLOCK_LENGTH,
                                texts.ljust(C_HEADER_LENGTH - SBE_HEADER_LENGTH - BLOCK_LENGTH, b"\0"))

    def signal_ready(self):
        """The start succeeded: the time of activity, then the version, and both to the disk.

        Raises MarkFileError when the disk refuses, or the file is another owner's by now.
        """
        with self._guard:
            self._require_ours()
            self._write_activity_timestamp(self._clock.epoch_ms())
            self._write_or_fail(SBE_HEADER_LENGTH + VERSION_OFFSET, struct.pack("<i", C_SEMANTIC_VERSION))
            self._force()

    def signal_failed_start(self):
        """The start failed: frees the file for the next one, with version -1 and timestamp -1. Never raises."""
        with self._guard:
            if self._file < 0:
                return
            try:
                self._require_ours()
                self._write_activity_timestamp(NULL_VALUE)
                self._write_or_fail(SBE_HEADER_LENGTH + VERSION_OFFSET, struct.pack("<i", C_VERSION_FAILED))
                self._force()
            except (MarkFileError, OSError) as error:
                report("warning", "%s", error)

    cpdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        """Shows that the owner lives (epoch ms). Nothing happens when the file is closed, here and below.

        Raises MarkFileError, and writes nothing, when the file is another owner's by now or was cut short; OSError when
        the disk refuses.
        """
        with self._guard:
            if self._file >= 0:
                self._require_ours()
                self._put64(ACTIVITY_TIMESTAMP_OFFSET, now_ms)
                self._is_activating = False
        return 0

    cpdef int set_member_id(self, int32_t member_id) except -1:
        """Writes the member id from the joined log. Only readers need it, so what prevents the write is logged."""
        with self._guard:
            if self._file >= 0:
                try:
                    self._require_ours()
                    self._write_or_fail(SBE_HEADER_LENGTH + MEMBER_ID_OFFSET, struct.pack("<i", member_id))
                except (MarkFileError, OSError) as error:
                    report("warning", "%s", error)
        return 0

    cpdef int signal_terminated(self) except -1:
        """The owner has ended: frees the file immediately; the file of another owner is left alone, with a warning.

        Raises MarkFileError when the disk refuses.
        """
        with self._guard:
            if self._file < 0:
                return 0
            reason = self._lost_reason()
            if reason is not None:
                report("warning", "%s", reason)
                return 0
            self._write_activity_timestamp(NULL_VALUE)
            self._force()
        return 0

    def write_errors(self, Py_ssize_t offset, bytes data):
        """Writes into the error log, ``offset`` bytes (int) from its begin.

        Raises MarkFileError when the file is closed, or another owner's by now; ValueError when the data do not fit,
        OSError when the disk refuses.
        """
        if offset < 0 or offset + len(data) > self.error_buffer_length:
            raise ValueError(f"{len(data)} bytes at {offset} are not within the error log's {self.error_buffer_length}")
        with self._guard:
            self._require_ours()
            self._write(C_HEADER_LENGTH + offset, data)

    cpdef int close(self) except -1:
        """Closes the file. May be called twice."""
        with self._guard:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
        return 0

    @property
    def is_closed(self):
        """True once :meth:`close` was called."""
        return self._file < 0

    @property
    def error_buffer(self):
        """What is in the error log now (bytes). Raises MarkFileError when the file is closed."""
        with self._guard:
            self._require_open()
            return self._read(C_HEADER_LENGTH, self.error_buffer_length)

    @property
    def activity_timestamp(self):
        """When the owner last showed that it lives (int, epoch ms); -1 once terminated or closed."""
        return self._field("_get64", ACTIVITY_TIMESTAMP_OFFSET)

    @property
    def version(self):
        """0 in a new file, 768 (0.3.0) when ready, -1 after a failed start or once closed."""
        return self._field("_get32", VERSION_OFFSET)

    @property
    def member_id(self):
        """The member id (int); -1 before the log is joined, or once closed."""
        return self._field("_get32", MEMBER_ID_OFFSET)

    @property
    def candidate_term_id(self):
        """The term for which the member stood (int), carried over from the file's last owner; -1 when there is none."""
        return self._field("_get64", CANDIDATE_TERM_ID_OFFSET)

    def __repr__(self):
        return f"<ClusterMarkFile {self.path}{' closed' if self._file < 0 else ''}>"

    def _field(self, get, offset):
        with self._guard:
            return NULL_VALUE if self._file < 0 else getattr(self, get)(SBE_HEADER_LENGTH + offset)

    def _disown(self, long process_id):
        """In a forked child: closed. A thread that no longer exists may hold the lock."""
        self._parent_id = process_id
        self._guard = threading.RLock()
        if self._file >= 0:
            close_file(self._file)
            self._file = -1

    def _require_open(self):
        if self._parent_id != 0:
            raise forks.refusal("write to a mark file", f"mark file {self.path}", self._parent_id)
        if self._file < 0:
            raise MarkFileError(f"mark file {self.path} is closed")

    def _require_ours(self):
        self._require_open()
        reason = self._lost_reason()
        if reason is not None:
            raise MarkFileError(reason)

    def _lost_reason(self):
        """Why the file is not this owner's any more, or None.

        A file that was deleted is still its own, until there is another in its place.
        """
        status = os.fstat(self._file)
        head = read_at(self._file, 0, _START.size)
        if len(head) < _START.size or status.st_size < self._length:
            return (f"mark file {self.path} was cut short by another process: it has {status.st_size} bytes of "
                    f"{self._length}; delete it and start again")
        _header, _version, _type, timestamp, start_timestamp, pid = _START.unpack(head)
        taker = None
        if (start_timestamp, pid) != self._owner:
            taker = f"pid {pid} has taken it over"
        elif timestamp == INT64_MAX and not self._is_activating:
            taker = "another process takes it over right now"
        else:
            found = None
            try:
                found = os.stat(self.path, follow_symlinks=False)
            except OSError:
                pass
            if found is None:
                return None
            if (found.st_dev, found.st_ino) != (status.st_dev, status.st_ino):
                taker = "another file is in its place"
        if taker is None:
            return None
        return (f"mark file {self.path} is not this container's any more: {taker}; a process that stands still for "
                f"longer than {LIVENESS_TIMEOUT_MS} ms counts as dead")

    def _force(self):
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error):
        return MarkFileError(f"mark file {self.path} cannot be written to its disk: {error.strerror}")

    def _write(self, offset, data):
        write_at(self._file, offset, data)

    def _write_or_fail(self, offset, data):
        try:
            write_at(self._file, offset, data)
        except OSError as error:
            raise self._not_written(error) from error

    def _write_activity_timestamp(self, now_ms):
        self._write_or_fail(SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET, struct.pack("<q", now_ms))
        self._is_activating = False

    def _read(self, offset, length):
        data = read_at(self._file, offset, length)
        if len(data) < length:
            raise MarkFileError(f"mark file {self.path} was cut short by another process; delete it and start again")
        return data

    def _put32(self, offset, value):
        self._write(SBE_HEADER_LENGTH + offset, struct.pack("<i", value))

    def _put64(self, offset, value):
        self._write(SBE_HEADER_LENGTH + offset, struct.pack("<q", value))

    def _get32(self, offset):
        return struct.unpack("<i", self._read(offset, 4))[0]

    def _get64(self, offset):
        return struct.unpack("<q", self._read(offset, 8))[0]


cdef int _compare_and_set(int file, int64_t offset, int64_t expected, int64_t value) except -1:
    """Whether the number at ``offset`` of the file's first page was ``expected`` and is ``value`` now, in one step.

    Java's container and ours, which may start in the same moment, do the same.
    """
    if os.fstat(file).st_size < _PAGE_MIN_SIZE:
        raise OSError(errno.EIO, "it was cut short by another process")
    cdef void* memory = mmap(NULL, C_PAGE_LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
    cdef int error = c_errno
    if memory == MAP_FAILED:
        raise OSError(error, os.strerror(error))
    cdef int is_set = mark_compare_and_set64(<uint8_t*> memory + offset, expected, value)
    munmap(memory, C_PAGE_LENGTH)
    return is_set


def _file_length(error_buffer_length, page_size):
    if not ERROR_BUFFER_MIN_LENGTH <= error_buffer_length <= ERROR_BUFFER_MAX_LENGTH:
        raise ConfigurationError(
            f"error_buffer_length={error_buffer_length}: must be from {ERROR_BUFFER_MIN_LENGTH} to "
            f"{ERROR_BUFFER_MAX_LENGTH} bytes")
    if not _PAGE_MIN_SIZE <= page_size <= _PAGE_MAX_SIZE or page_size & (page_size - 1):
        raise ConfigurationError(f"file page size {page_size}: must be a power of two from {_PAGE_MIN_SIZE} to "
                                 f"{_PAGE_MAX_SIZE} bytes")
    return (C_HEADER_LENGTH + error_buffer_length + page_size - 1) & -page_size


def _activity(timestamp, pid, now_ms):
    """Why a file with this timestamp cannot be taken, and what to do about it."""
    if timestamp == ACTIVATION_IN_PROGRESS:
        return (f"a start is in progress, or was killed (pid {pid} wrote the file last); delete the file if no such "
                "process is starting")
    return (f"its owner, pid {pid}, was alive at {timestamp} (epoch ms), {now_ms - timestamp} ms ago: another "
            "container is running here. Stop it, or give this one a cluster_dir or a service_id of its own; the file "
            f"of an owner that is dead is free {LIVENESS_TIMEOUT_MS} ms after that time")


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
                raise MarkFileError(f"errors of the last run cannot be saved to {path}: {error.strerror}") from error
            # Another service of the node saved its errors in the same millisecond: what it wrote stays.
            path = _error_file(directory, attempt)
    print_line(f"WARNING: existing errors saved to: {path}", fallback)


def _error_file(directory, attempt):
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
        raise MarkFileError(f"link file {link} cannot be written: {error.strerror}") from error


seal((ClusterMarkFile,))
