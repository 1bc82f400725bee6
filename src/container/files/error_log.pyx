"""The distinct error log of a mark file: each error once, with how often and when it was observed.

A record, at a multiple of 8 bytes, is (upstream's DistinctErrorLog): int32 length of the record, stored last; int32
number of observations; int64 last and int64 first observation (epoch ms); then the text, US-ASCII.
"""
import struct
import threading
from collections import namedtuple
from datetime import datetime

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.common.sealed cimport seal
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counter

from container.common import forks, interruptions
from container.common.error_texts import error_text, identify, message_of
from container.errors import AgentInterrupted, AgentTermination, ClusterTermination, MarkFileError
from container.transport.clocks import SystemClock

cdef extern from *:
    """
    #include <stdint.h>
    static inline int32_t error_log_get_acquire(const void* p)
    { return __atomic_load_n((const int32_t*)p, __ATOMIC_ACQUIRE); }
    static inline void error_log_set_release(void* p, int32_t v)
    { __atomic_store_n((int32_t*)p, v, __ATOMIC_RELEASE); }
    """
    int32_t error_log_get_acquire(const void* p) noexcept nogil
    void error_log_set_release(void* p, int32_t value) noexcept nogil

cdef enum:
    OBSERVATION_COUNT_OFFSET = 4
    LAST_OBSERVATION_OFFSET = 8
    FIRST_OBSERVATION_OFFSET = 16
    TEXT_OFFSET = 24
    RECORD_ALIGNMENT = 8
    MESSAGES_PER_PLACE = 20
    RETRY_INTERVAL_MS = 1_000

_FURTHER = f"another than the {MESSAGES_PER_PLACE} recorded messages of "
_LENGTH = struct.Struct("<i")
_OBSERVATIONS = struct.Struct("<iq")
_TIME = struct.Struct("<q")


class ErrorRecord(namedtuple(
        "ErrorRecord", ("observation_count", "first_observation_ms", "last_observation_ms", "text"))):
    """One distinct error of an error log: three numbers (int) and the text (str)."""

    __slots__ = ()


cdef inline size_t _align(size_t length) noexcept nogil:
    return (length + (RECORD_ALIGNMENT - 1)) & ~(<size_t> RECORD_ALIGNMENT - 1)


cdef inline int64_t _get_int64(const uint8_t* source) noexcept nogil:
    cdef int64_t value
    memcpy(&value, source, sizeof(value))
    return value


cdef class DistinctErrorLog:
    """Writes errors to a region of memory or to a mark file, which other processes may read at any time.

    Args:
        region: an :class:`~container.files.mark_file.OwnedMarkFile`, or an object with a writable buffer
            at a multiple of 8 bytes, which is held until :meth:`close`.
        clock: where the times of the observations come from; the system's by default.
        has_messages: False leaves the messages of exceptions out.

    May be used by several threads. It is bounded: each text has at most about 16 KiB, and of one place (type and stack)
    20 messages are recorded; further ones count as one more error, whose text has no message.
    """
    cdef Py_buffer _view
    cdef uint8_t* _region           # NULL for a mark file, and once closed
    cdef object _mark_file          # None for memory, and once closed
    cdef size_t _capacity
    cdef size_t _next_offset
    cdef bint _is_full
    cdef int64_t _retry_ms          # after a write that failed
    cdef str _failure               # of the last write, or None
    cdef bint _has_messages
    cdef dict _records              # by what makes an error distinct: its _Record
    cdef dict _places               # type and stack: number of records
    cdef Clock _clock
    cdef object _lock
    cdef object __weakref__

    def __cinit__(self):
        self._region = NULL

    def __init__(self, region, Clock clock=None, *, bint has_messages=True):
        if hasattr(region, "write_errors"):
            self._mark_file = region
            self._capacity = <size_t> region.error_buffer_length
        else:
            PyObject_GetBuffer(region, &self._view, PyBUF_WRITABLE)
            if self._view.len > 0 and <size_t> self._view.buf % RECORD_ALIGNMENT != 0:
                PyBuffer_Release(&self._view)
                raise ValueError("the region of an error log must begin at a multiple of 8 bytes")
            self._region = <uint8_t*> self._view.buf
            self._capacity = <size_t> self._view.len
        self._next_offset = 0
        self._is_full = False
        self._has_messages = has_messages
        self._records = {}
        self._places = {}
        self._clock = clock if clock is not None else SystemClock()
        self._lock = threading.RLock()      # a signal handler may record an error as well
        forks.own(self)

    def _disown(self, long process_id):
        """In a forked child: closed. The region is the parent's; a thread that no longer exists may hold the lock."""
        self._lock = threading.RLock()
        self.close()

    def __dealloc__(self):
        if self._region != NULL:
            PyBuffer_Release(&self._view)

    def record(self, error):
        """Record an observation of an exception (BaseException). Never raise.

        Errors are the same when type, message, stack and causes are, see :func:`container.common.error_texts.identify`.

        Return how often it was observed so far (int, at least 1), or 0 when it is not recorded: :attr:`refusal` says
        why.
        """
        cdef int32_t count = 0
        # No return in the except clause: as Cython compiles it, that crashes where a traceback found no memory.
        try:
            count = self._record(error)
        except BaseException as failure:    # no memory, or no disk behind the mark file
            interruptions.keep(failure)
        return count

    cdef int32_t _record(self, error) except -1:
        cdef int64_t now_ms = self._clock.epoch_ms()
        cdef _Record record
        if self.is_closed:
            return 0
        place, identity = identify(error, has_message=self._has_messages)
        record = self._find(place, identity)
        if record is not None:
            with self._lock:
                return self._observe(record, now_ms)
        if self._is_full or 0 < self._retry_ms - now_ms <= RETRY_INTERVAL_MS:
            return 0
        # Without the lock: a traceback may take long, and asks objects of the service's.
        cdef bint is_further = self._places.get(place, 0) >= MESSAGES_PER_PLACE
        text = error_text(error, has_message=self._has_messages and not is_further)
        if is_further:
            text = f"{_FURTHER}{text}"
            identity = None, place
        cdef bytes encoded = text.encode("ascii", "backslashreplace")
        with self._lock:
            record = self._find(place, identity)    # another thread may have been first
            if record is not None:
                return self._observe(record, now_ms)
            return self._append(place, identity, encoded, now_ms)

    cdef _Record _find(self, place, identity):
        record = self._records.get(identity)
        if record is None and self._places.get(place, 0) >= MESSAGES_PER_PLACE:
            record = self._records.get((None, place))
        return record

    cdef int32_t _observe(self, _Record record, int64_t now_ms) except -1:
        if self.is_closed:
            return 0
        cdef int32_t count = record.count if record.count == INT32_MAX else record.count + 1
        self._write(record.offset + OBSERVATION_COUNT_OFFSET, _OBSERVATIONS.pack(count, now_ms))
        record.count = count
        return count

    cdef int32_t _append(self, place, identity, bytes text, int64_t now_ms) except -1:
        cdef size_t length = TEXT_OFFSET + <size_t> len(text)
        cdef size_t offset = self._next_offset
        if self.is_closed:
            return 0
        if offset > self._capacity or length > self._capacity - offset or length > INT32_MAX:
            self._is_full = True    # for good: no further text is made that is not recorded
            return 0
        try:
            self._write(offset + OBSERVATION_COUNT_OFFSET, _OBSERVATIONS.pack(1, now_ms) + _TIME.pack(now_ms) + text)
            self._write(offset, _LENGTH.pack(length))   # last: a reader takes the record once it has a length
        except MarkFileError:
            self._is_full = True    # another owner's by now, or cut short
            raise
        except BaseException:
            self._retry_ms = now_ms + RETRY_INTERVAL_MS     # until then no text is made that cannot be written
            raise
        self._next_offset += _align(length)
        self._records[identity] = _Record(offset)
        self._places[place] = self._places.get(place, 0) + 1
        return 1

    cdef int _write(self, size_t offset, bytes data) except -1:
        try:
            self._write_region(offset, data)
        except BaseException as error:
            self._failure = message_of(error)
            raise
        self._failure = None
        return 0

    cdef int _write_region(self, size_t offset, bytes data) except -1:
        cdef int32_t value
        if self._region == NULL:
            self._mark_file.write_errors(<Py_ssize_t> offset, data)
        elif len(data) == sizeof(value):
            memcpy(&value, <const char*> data, sizeof(value))
            error_log_set_release(self._region + offset, value)
        else:
            memcpy(self._region + offset, <const char*> data, <size_t> len(data))
        return 0

    @property
    def is_closed(self):
        """True once :meth:`close` was called, and in a forked child."""
        return self._region == NULL and self._mark_file is None

    @property
    def refusal(self):
        """Why a new error is not recorded (str, what follows "error log"); None when nothing is known to prevent it."""
        if self.is_closed:
            return "is closed"
        if self._failure is not None:
            return f"cannot be written: {self._failure}"
        return "is full" if self._is_full else None

    def close(self):
        """Give the region back; nothing is recorded from now on. May be called twice."""
        with self._lock:
            self._mark_file = None
            if self._region != NULL:
                self._region = NULL
                PyBuffer_Release(&self._view)


@cython.final
cdef class _Record:
    cdef size_t offset
    cdef int32_t count

    def __cinit__(self, size_t offset):
        self.offset = offset
        self.count = 1


cdef class CountedErrorHandler:
    """Counts an error, then hands it on (upstream's ``CountedErrorHandler``).

    The end of the agent is not an error of the service: an AgentTermination is handed on and not counted, and one that
    the consensus module or a caller of ``close()`` asked for is not even handed on.

    Args:
        error_counter: the container's error counter, type 215.
        error_handler: ``error_handler(error)``, called after counting.
    """
    cdef readonly Counter error_counter
    cdef readonly object error_handler

    def __init__(self, Counter error_counter not None, error_handler not None):
        self.error_counter = error_counter
        self.error_handler = error_handler

    def __call__(self, error):
        """Never raise, whatever the error or the handler does."""
        try:
            kind = type(error)      # isinstance() would ask the error for its class
            if issubclass(kind, AgentInterrupted) or issubclass(kind, ClusterTermination) and error.is_expected:
                return
            if not issubclass(kind, AgentTermination):
                self.error_counter.increment()
        except BaseException as failure:    # the counter is closed: the error is handed on anyway
            interruptions.keep(failure)
        try:
            self.error_handler(error)
        except BaseException as failure:    # past an orderly close an error must not end the agent
            interruptions.keep(failure)


def read_error_log(region, int64_t since_ms=0):
    """The records of an error log as a list of :class:`ErrorRecord`, in the order of their first observation.

    Args:
        region: an object with a buffer: the error log, as a live or dead process left it.
        since_ms: only errors that were last observed at this time (epoch ms) or later.

    A record that cannot be one (it is shorter than its head, or longer than the region) ends the list.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
    try:
        if <size_t> view.buf % RECORD_ALIGNMENT == 0:
            return _read_records(<const uint8_t*> view.buf, <size_t> view.len, since_ms)
    finally:
        PyBuffer_Release(&view)
    return read_error_log(bytes(region), since_ms)      # a copy begins at a multiple of 8


def format_error_log(records):
    """The text (str) that upstream's tools print for error records (a list of :class:`ErrorRecord`)."""
    lines = [
        f"\n{record.observation_count} observations from {_date(record.first_observation_ms)} to "
        f"{_date(record.last_observation_ms)} for:\n{record.text}\n"
        for record in records]
    return "".join(lines) + f"\n{len(records)} distinct errors observed.\n"


def _date(epoch_ms):
    time = None
    try:
        time = datetime.fromtimestamp(epoch_ms // 1000).astimezone()
    except (OverflowError, OSError, ValueError):
        pass
    if time is None:
        return f"{epoch_ms} ms"     # no time at all: damaged, but the text may still help
    return f"{time:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03}{time:%z}"


cdef list _read_records(const uint8_t* region, size_t capacity, int64_t since_ms):
    cdef list records = []
    cdef size_t offset = 0
    cdef int32_t length
    cdef int64_t last_observation_ms
    while capacity >= TEXT_OFFSET and offset <= capacity - TEXT_OFFSET:
        length = error_log_get_acquire(region + offset)
        if length < TEXT_OFFSET or <size_t> length > capacity - offset:
            break
        last_observation_ms = _get_int64(region + offset + LAST_OBSERVATION_OFFSET)
        if last_observation_ms >= since_ms:
            records.append(ErrorRecord(
                error_log_get_acquire(region + offset + OBSERVATION_COUNT_OFFSET),
                _get_int64(region + offset + FIRST_OBSERVATION_OFFSET),
                last_observation_ms,
                (<const char*> region + offset + TEXT_OFFSET)[:length - TEXT_OFFSET].decode("utf-8", "replace")))
        offset += _align(<size_t> length)
    return records


seal((DistinctErrorLog, _Record, CountedErrorHandler))
