"""A mark file: who owns a directory, whether the owner lives, and its error log.

Each kind of mark file has a header at offset 0 (an SBE header, a block of 128 bytes, texts) and a distinct error log
from byte 8192 on. Upstream: Agrona's MarkFile.java.

Ownership is a timestamp and no lock: the owner stores the time once per second, and a file whose timestamp is older
than 10 seconds may be claimed, by a compare-and-swap of that timestamp to 2^63-1. An owner that stood still for that
long finds another one's start timestamp and process id in the file, and writes nothing more into it.

The file is read and written by calls and not mapped, so that one that is cut short, or a disk that fails, is an error
and never a SIGBUS. Only the compare-and-swap needs memory: it maps one page, for itself alone, of a file whose length
was looked at right before. All space is reserved on the disk before a file is claimed, so that a full disk is an error
at the start.
"""
import os
import struct
import threading
from collections import namedtuple
from datetime import datetime

from libc.errno cimport EINVAL, ELOOP, ENOSYS, EOPNOTSUPP
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from container.common.sealed cimport hide
from container.storage.storage_seam cimport (
    OPEN_CREATE, OPEN_EXCLUSIVE, OPEN_NO_FOLLOW, Storage, StorageFile, StorageMap,
)
from container.transport.clocks cimport Clock
from container.transport.frames cimport NULL_VALUE
from container.transport.transport_seam cimport MarkFile

from container.common import forks
from container.common.loggers import print_notice, report
from container.errors import ConfigurationError, MarkFileError
from container.files.error_log import format_error_log, read_error_log

cdef extern from *:
    """
    #include <stdint.h>
    static inline int mark_compare_and_set64(void* p, int64_t expected, int64_t v)
    { return __atomic_compare_exchange_n((int64_t*)p, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
    """
    int mark_compare_and_set64(void* p, int64_t expected, int64_t value) noexcept nogil

cdef enum:
    PAGE_LENGTH = 4096
    PAGE_MAX_LENGTH = 1024 * 1024 * 1024
    OTHERS_MAY_WRITE = 0o002
    FILE_NAME_ATTEMPTS = 100
    CLEARED_LENGTH = 1024 * 1024
    START_LENGTH = SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET + 8     # up to the time

LIVENESS_TIMEOUT_MS = 10_000
ERROR_BUFFER_MIN_LENGTH = 1024 * 1024
ERROR_BUFFER_MAX_LENGTH = 2**31 - 1 - MARK_HEADER_LENGTH
ACTIVATION_IN_PROGRESS = INT64_MAX

_START = struct.Struct("<8siiqqq")      # SBE header, version, component type, activity and start timestamp, pid
_FILE_MAX_LENGTH = (MARK_HEADER_LENGTH + ERROR_BUFFER_MAX_LENGTH + PAGE_MAX_LENGTH - 1) & -PAGE_MAX_LENGTH
_FILE_MODE = 0o640      # what FileStorage gives: others may not write, as a mark file decides who may start


class MarkFileKind(namedtuple("MarkFileKind", (
        "sbe_header", "begin", "version", "failed_version", "lengths_offset", "holder", "own_place", "error_file"))):
    """The properties of a kind of mark file.

    SBE header and begin of the block, up to the activity timestamp, of a new file (bytes); the version when ready and
    after a failed start (int); where the block has the lengths of header and error log; and words for texts: what owns
    such a file, the setting that gives it another one, and how names of files of saved errors begin.
    """

    __slots__ = ()


cdef class OwnedMarkFile(MarkFile):
    """The base of all mark files: creates one, or takes over one of a dead owner; then shows that the owner lives.

    After its construction the start is in progress; :meth:`signal_ready` or :meth:`signal_failed_start` ends it.

    May be used by several threads.
    """

    def __cinit__(self):
        self._guard = threading.RLock()

    cdef int _begin(self, object kind, object path, Storage storage, Clock clock, int64_t process_id,
                    object error_buffer_length, object page_size, object fallback) except -1:
        cdef int64_t length = _file_length(error_buffer_length, page_size)
        self._kind, self.path, self.error_buffer_length = kind, os.fspath(path), error_buffer_length
        self._storage, self._clock, self._process_id = storage, clock, process_id
        forks.own(self)
        try:
            self._file = storage.open_file(self.path, OPEN_CREATE | OPEN_EXCLUSIVE)
        except FileExistsError:
            self._take_over(length, fallback)
        except OSError as error:
            raise MarkFileError(f"mark file {self.path} cannot be created: {_reason(error)}") from error
        else:
            self._create(length)
        return 0

    def _create(self, int64_t length):
        """Fill a file that was not there before; if that fails, it is gone again."""
        # A start in a new file shows the time: so it goes stale, and frees the file, if this process is killed now. The
        # owner goes with it, in one write: a start that stands still here must not write over who has come since.
        try:
            self._new = bytearray(MARK_HEADER_LENGTH)
            self._write(0, self._kind.sbe_header + self._kind.begin)
            self._become_owner()
            self._write_new()
            header, self._new = bytes(self._new), None
            self._write(0, header)
            self._file.reserve(length)
        except BaseException as error:
            try:
                self._storage.unlink(self.path)
            except OSError:     # it is gone, or stays, and goes stale; what matters is the first error
                pass
            self.close()
            if isinstance(error, OSError):
                raise MarkFileError(f"mark file {self.path} cannot be created with {length} bytes: "
                                    f"{_reason(error)}") from error
            raise
        self._length = length

    def _take_over(self, int64_t length, fallback):
        """Claim the file of a dead owner. Until the claim, and if anything fails after it, the owner's data stay."""
        cdef int64_t block, found_timestamp
        try:
            self._open()
            length = max(length, self._check_file())
            block, found_timestamp = self._check_takeable()
            self._file.reserve(length)
            self._length = length
            self._claim(block, found_timestamp)
            try:
                self._check_claimed(block)
                self._save_errors(block, fallback)
            except BaseException:
                self._write(block + ACTIVITY_TIMESTAMP_OFFSET, struct.pack("<q", found_timestamp))
                raise
            self._become_owner()
            self._adopt(block)
            self._is_activating = False
        except OSError as error:
            self.close()
            reason = "it is a symbolic link" if error.errno == ELOOP else _reason(error)
            raise MarkFileError(f"mark file {self.path} cannot be opened with {length} bytes: {reason}") from error
        except BaseException:
            self.close()
            raise

    def _open(self):
        try:
            self._file = self._storage.open_file(self.path, OPEN_NO_FOLLOW)
        except OSError as error:
            if error.errno == EINVAL:
                raise MarkFileError(f"mark file {self.path} cannot be opened: it is not a regular file") from error
            raise

    def _check_file(self):
        """Length of a file that may be taken, which is not more than any owner can have asked for."""
        cdef int64_t length = self._file.length()
        cdef int access_rights = self._file.access_rights()
        if length > _FILE_MAX_LENGTH:
            raise MarkFileError(f"mark file {self.path} is damaged, delete it: it has {length} bytes, at most "
                                f"{_FILE_MAX_LENGTH} are possible")
        if access_rights & OTHERS_MAY_WRITE:
            report("warning", "mark file %s may be written by every user of this machine (mode %o): chmod it to %o",
                   self.path, access_rights, _FILE_MODE)
        return length

    def _check_takeable(self):
        """Offset of the block, and the timestamp, of a file that may be claimed."""
        cdef bytes head = self._file.read(SBE_HEADER_LENGTH + BLOCK_LENGTH, 0)
        cdef int64_t now_ms = self._clock.epoch_ms()
        if len(head) < SBE_HEADER_LENGTH + BLOCK_LENGTH and len(head) != START_LENGTH:
            raise MarkFileError(f"mark file too short: {self.path} has {len(head)} bytes; unless another process is "
                                "just creating it, delete it and start again")
        # A file that ends behind the time shows when its owner lived, and that is enough.
        head = head.ljust(SBE_HEADER_LENGTH + BLOCK_LENGTH, b"\0")
        cdef int64_t block = self._block_offset(head)
        version, _type, timestamp, _start_timestamp, pid = struct.unpack_from("<iiqqq", head, block)
        self._check_version(version)
        if now_ms - timestamp < LIVENESS_TIMEOUT_MS:
            raise MarkFileError(f"active mark file detected: {self.path}: {self._activity(timestamp, pid, now_ms)}")
        return block, timestamp

    def _activity(self, timestamp, pid, now_ms):
        """Why a file with this timestamp cannot be taken, and what to do about it."""
        if timestamp == ACTIVATION_IN_PROGRESS:
            return (f"a start is in progress, or was killed (pid {pid} wrote the file last); delete the file if no "
                    "such process is starting")
        return (f"its owner, pid {pid}, was alive at {timestamp} (epoch ms), {now_ms - timestamp} ms ago. If this "
                f"{self._kind.holder} runs, stop it, or give the new one {self._kind.own_place}; if it was killed, "
                f"start again in {timestamp + LIVENESS_TIMEOUT_MS - now_ms} ms")

    def _claim(self, int64_t block, int64_t found_timestamp):
        # Another process that starts at the same moment, Java's or ours, does the same.
        if self._file.length() < PAGE_LENGTH:
            raise MarkFileError(f"mark file {self.path} cannot be opened with {self._length} bytes: it was cut short "
                                "by another process")
        cdef StorageMap page = self._file.map_range(0, PAGE_LENGTH)
        cdef int is_set = mark_compare_and_set64(
            page.data + block + ACTIVITY_TIMESTAMP_OFFSET, found_timestamp, INT64_MAX)
        page.close()
        if not is_set:
            raise MarkFileError(f"concurrent mark file activation: another process has just claimed {self.path}")
        self._is_activating = True

    def _save_errors(self, int64_t block, fallback):
        """Write the errors of the last owner to a file of their own, then clear them."""
        cdef int64_t header_length = self._get32(block + <int64_t> self._kind.lengths_offset)
        cdef int64_t error_length = self._get32(block + <int64_t> self._kind.lengths_offset + 4)
        cdef int64_t end = header_length + error_length, offset
        if error_length == 0:
            return
        if header_length < BLOCK_LENGTH or error_length < 0 or end > self._length:
            raise MarkFileError(f"mark file {self.path} is damaged, delete it: headerLength={header_length} "
                                f"errorBufferLength={error_length} fileLength={self._length}")
        records = read_error_log(self._read(header_length, error_length))
        if records:
            path = self._write_error_file(format_error_log(records))
            print_notice(
                f"WARNING: existing errors saved to: {path}", fallback, event="errors_saved", fields={"path": path})
        for offset in range(header_length, end, CLEARED_LENGTH):
            self._write(offset, bytes(min(CLEARED_LENGTH, end - offset)))

    def _write_error_file(self, str text):
        """Write what upstream names <kind>-<time>-error.log, beside the mark file; return its path."""
        cdef int64_t now_ms = self._clock.epoch_ms()
        cdef str directory = os.path.dirname(self.path), path = ""
        cdef int attempt = 0
        while True:
            # Another owner of a mark file here saved its errors in the same millisecond: what it wrote stays.
            path = os.path.join(directory, _error_file(self._kind.error_file, now_ms + attempt))
            attempt += 1
            try:
                _write_new_file(self._storage, path, text)
                return path
            except OSError as error:
                if not isinstance(error, FileExistsError) or attempt == FILE_NAME_ATTEMPTS:
                    raise MarkFileError(
                        f"errors of the last run cannot be saved to {path}: {_reason(error)}") from error

    cdef int _check_version(self, int32_t version) except -1:
        return 0

    cdef int64_t _block_offset(self, bytes head) except -1:
        return SBE_HEADER_LENGTH

    cdef int _check_claimed(self, int64_t block) except -1:
        return 0

    cdef int _adopt(self, int64_t block) except -1:
        return 0

    cdef int _write_new(self) except -1:
        return 0

    cdef int _before_ready(self) except -1:
        return 0

    cdef int _become_owner(self) except -1:
        self._owner = self._clock.epoch_ms(), self._process_id
        return 0

    def signal_ready(self):
        """The start succeeded: the time of activity, then the version, and both to the disk.

        Raises MarkFileError when the disk refuses, or the file is another owner's by now.
        """
        with self._guard:
            self._require_ours()
            self._before_ready()
            self._write_activity_timestamp(self._clock.epoch_ms())
            self._write_or_fail(SBE_HEADER_LENGTH + VERSION_OFFSET, struct.pack("<i", self._kind.version))
            self._force()

    def signal_failed_start(self):
        """The start failed: frees the file for the next one, with timestamp -1 and the version for that. Never raises.
        """
        with self._guard:
            if self._file is None:
                return
            try:
                self._require_ours()
                self._write_activity_timestamp(NULL_VALUE)
                self._write_or_fail(SBE_HEADER_LENGTH + VERSION_OFFSET, struct.pack("<i", self._kind.failed_version))
                self._force()
            except (MarkFileError, OSError) as error:
                report("warning", "%s", error)

    cpdef int update_activity_timestamp(self, int64_t now_ms) except -1:
        """Shows that the owner lives (epoch ms). Nothing happens when the file is closed, here and below.

        Raises MarkFileError, and writes nothing, when the file is another owner's by now or was cut short; OSError when
        the disk refuses.
        """
        with self._guard:
            if self._file is not None:
                self._require_ours()
                self._put64(ACTIVITY_TIMESTAMP_OFFSET, now_ms)
                self._is_activating = False
        return 0

    cpdef int signal_terminated(self) except -1:
        """The owner has ended: frees the file immediately; the file of another owner is left alone, with a warning.

        Raises MarkFileError when the disk refuses.
        """
        with self._guard:
            if self._file is None:
                return 0
            reason = self._lost_reason()
            if reason is not None:
                report("warning", "%s", reason)
                return 0
            self._write_activity_timestamp(NULL_VALUE)
            self._force()
        return 0

    def write_errors(self, Py_ssize_t offset, bytes data):
        """Write into the error log, ``offset`` bytes (int) from its beginning.

        Raise MarkFileError when the file is closed, or another owner's by now; ValueError when the data do not fit,
        OSError when the disk refuses.
        """
        if offset < 0 or offset + len(data) > self.error_buffer_length:
            raise ValueError(f"{len(data)} bytes at {offset} are not within the error log's {self.error_buffer_length}")
        with self._guard:
            self._require_ours()
            self._write(MARK_HEADER_LENGTH + offset, data)

    cpdef int close(self) except -1:
        """Close the file. May be called twice."""
        cdef StorageFile file
        with self._guard:
            file, self._file = self._file, None
            if file is not None:
                file.close()
        return 0

    @property
    def is_closed(self):
        """True once :meth:`close` was called."""
        return self._file is None

    @property
    def error_buffer(self):
        """The present content of the error log (bytes). Raises MarkFileError when the file is closed."""
        with self._guard:
            self._require_open()
            return self._read(MARK_HEADER_LENGTH, self.error_buffer_length)

    @property
    def activity_timestamp(self):
        """When the owner last showed that it lives (int, epoch ms); -1 once terminated or closed."""
        return self._field64(ACTIVITY_TIMESTAMP_OFFSET)

    @property
    def version(self):
        """0 in a new file until it is ready (int); -1 once closed."""
        return self._field32(VERSION_OFFSET)

    def __repr__(self):
        return f"<{type(self).__name__} {self.path}{' closed' if self._file is None else ''}>"

    def _disown(self, long process_id):
        """In a forked child: closed. A thread that no longer exists may hold the lock."""
        self._parent_id = process_id
        self._guard = threading.RLock()
        self._file = None       # which the child has closed, or closes now

    cdef int _require_open(self) except -1:
        if self._parent_id != 0:
            raise forks.refusal("write to a mark file", f"mark file {self.path}", self._parent_id)
        if self._file is None:
            raise MarkFileError(f"mark file {self.path} is closed")
        return 0

    cdef int _require_ours(self) except -1:
        self._require_open()
        reason = self._lost_reason()
        if reason is not None:
            raise MarkFileError(reason)
        return 0

    cdef str _lost_reason(self):
        """Why the file is not this owner's any more, or None.

        A file that was deleted is still its own, until there is another in its place.
        """
        cdef int64_t length = self._file.length()
        cdef bytes head = self._file.read(_START.size, 0)
        if len(head) < _START.size or length < self._length:
            return (f"mark file {self.path} was cut short by another process: it has {length} bytes of "
                    f"{self._length}; delete it and start again")
        _header, _version, _type, timestamp, start_timestamp, pid = _START.unpack(head)
        taker = None
        if (start_timestamp, pid) != self._owner:
            taker = f"pid {pid} has taken it over"
        elif timestamp == INT64_MAX and not self._is_activating:
            taker = "another process takes it over right now"
        else:
            try:
                if self._file.is_replaced():
                    taker = "another file is in its place"
            except OSError:     # who cannot look into the directory any more cannot know
                pass
        if taker is None:
            return None
        return (f"mark file {self.path} is not this {self._kind.holder}'s any more: {taker}; a process that stands "
                f"still for longer than {LIVENESS_TIMEOUT_MS} ms counts as dead")

    cdef int _force(self) except -1:
        try:
            self._file.force(True)
        except OSError as error:
            self._fail(error)
        return 0

    cdef int _fail(self, object error) except -1:
        raise MarkFileError(f"mark file {self.path} cannot be written to its disk: {_reason(error)}") from error

    cdef int _write(self, int64_t offset, bytes content) except -1:
        if self._new is not None:
            self._new[offset : offset + len(content)] = content
            return 0
        return self._file.pwrite(<const uint8_t*> <const char*> content, <size_t> len(content), offset)

    cdef int _write_or_fail(self, int64_t offset, bytes content) except -1:
        try:
            self._write(offset, content)
        except OSError as error:
            self._fail(error)
        return 0

    cdef int _write_activity_timestamp(self, int64_t now_ms) except -1:
        self._write_or_fail(SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET, struct.pack("<q", now_ms))
        self._is_activating = False
        return 0

    cdef bytes _read(self, int64_t offset, int64_t length):
        cdef bytes content = self._file.read(length, offset)
        if len(content) < length:
            raise MarkFileError(f"mark file {self.path} was cut short by another process; delete it and start again")
        return content

    cdef int _put32(self, int64_t offset, int32_t value) except -1:
        return self._write(SBE_HEADER_LENGTH + offset, struct.pack("<i", value))

    cdef int _put64(self, int64_t offset, int64_t value) except -1:
        return self._write(SBE_HEADER_LENGTH + offset, struct.pack("<q", value))

    cdef int64_t _get32(self, int64_t offset) except? -2:
        return struct.unpack("<i", self._read(offset, 4))[0]

    cdef int64_t _get64(self, int64_t offset) except? -2:
        return struct.unpack("<q", self._read(offset, 8))[0]

    cdef int64_t _field32(self, int64_t offset) except? -2:
        with self._guard:
            return NULL_VALUE if self._file is None else self._get32(SBE_HEADER_LENGTH + offset)

    cdef int64_t _field64(self, int64_t offset) except? -2:
        with self._guard:
            return NULL_VALUE if self._file is None else self._get64(SBE_HEADER_LENGTH + offset)


def release_mark_file(Storage storage not None, path, int64_t timestamp):
    """Free the file of an owner that is known to be dead, if this (epoch ms) still is what it has shown last.

    A process that starts there in the same moment has it already, or finds it free. Raises OSError.
    """
    cdef StorageFile file = storage.open_file(os.fspath(path), OPEN_NO_FOLLOW)
    cdef StorageMap page
    try:
        if file.length() >= PAGE_LENGTH:
            page = file.map_range(0, PAGE_LENGTH)
            mark_compare_and_set64(page.data + SBE_HEADER_LENGTH + ACTIVITY_TIMESTAMP_OFFSET, timestamp, NULL_VALUE)
            page.close()
    finally:
        file.close()


def _file_length(error_buffer_length, page_size):
    if not ERROR_BUFFER_MIN_LENGTH <= error_buffer_length <= ERROR_BUFFER_MAX_LENGTH:
        raise ConfigurationError(
            f"error_buffer_length={error_buffer_length}: must be from {ERROR_BUFFER_MIN_LENGTH} to "
            f"{ERROR_BUFFER_MAX_LENGTH} bytes")
    if not PAGE_LENGTH <= page_size <= PAGE_MAX_LENGTH or page_size & (page_size - 1):
        raise ConfigurationError(f"file page size {page_size}: must be a power of two from {PAGE_LENGTH} to "
                                 f"{PAGE_MAX_LENGTH} bytes")
    return (MARK_HEADER_LENGTH + error_buffer_length + page_size - 1) & -page_size


def _error_file(str begin, int64_t epoch_ms):
    time = datetime.fromtimestamp(epoch_ms // 1000).astimezone()
    return f"{begin}-{time:%Y-%m-%d-%H-%M-%S}-{epoch_ms % 1000:03}{time:%z}-error.log"


cdef str _reason(object error):
    # The system's words for it alone: what a storage adds names the file once more.
    return os.strerror(error.errno)


cdef int _write_new_file(Storage storage, str path, str text) except -1:
    """Write an ASCII file that was not there before, and force it; if that fails, it is not there afterwards.

    Raises OSError.
    """
    cdef StorageFile file = storage.open_file(path, OPEN_CREATE | OPEN_EXCLUSIVE)
    try:
        try:
            file.write(text.encode("ascii", "backslashreplace"), 0)
            file.force(False)
            _force_names(storage, os.path.dirname(path))
        finally:
            file.close()
    except OSError:
        _remove(storage, path)
        raise
    return 0


cdef int _force_names(Storage storage, str directory) except -1:
    try:
        storage.force_directory(directory or ".")
    except OSError as error:    # some file systems have no such call
        if error.errno not in (EINVAL, ENOSYS, EOPNOTSUPP):
            raise
    return 0


cdef int _remove(Storage storage, str path) except -1:
    """Remove a file, if it is there."""
    try:
        storage.unlink(path)
    except FileNotFoundError:
        pass
    return 0


def write_link_file(Storage storage not None, directory, str name not None, mark_file_dir):
    """Write the link file, from which readers of a directory learn where its mark file is.

    Both directories (str or path-like) must be resolved. When they are equal there must be no link, so an old one
    is deleted. Raises ConfigurationError for a directory that the link file, which is ASCII, can't name, and
    MarkFileError when it can't be written.
    """
    cdef str link = os.path.join(directory, name), written = f"{link}.tmp"
    cdef str target = os.fspath(mark_file_dir)
    cdef bint is_elsewhere = target != os.fspath(directory)
    if is_elsewhere and not target.isascii():
        raise ConfigurationError(f"mark_file_dir={target!r}: must be ASCII, as {name} names it in ASCII")
    try:
        if not is_elsewhere:
            _remove(storage, link)
        else:
            _remove(storage, written)       # of a start that was killed
            _write_new_file(storage, written, target)
            try:
                storage.rename(written, link)
            except OSError:
                _remove(storage, written)
                raise
            _force_names(storage, os.path.dirname(link))
    except OSError as error:
        raise MarkFileError(f"link file {link} cannot be written: {_reason(error)}") from error


hide((OwnedMarkFile,))
