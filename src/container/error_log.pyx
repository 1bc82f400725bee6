"""The distinct error log of a mark file: each error once, with how often and when it was observed.

A record, at a multiple of 8 bytes, is (upstream's DistinctErrorLog): int32 length of the record, stored last; int32
number of observations; int64 last and int64 first observation (epoch ms); then the text, US-ASCII.
"""
import threading
from collections import namedtuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.transport cimport Clock, Counter

from container import forks
from container.errors import AgentInterrupted, AgentTermination, ClusterTermination, Event, log_text
from container.transport import SystemClock

cdef extern from *:
    """
    #include <stdint.h>
    static inline int32_t error_log_get_acquire(const void* p)
    { return __atomic_load_n((const int32_t*)p, __ATOMIC_ACQUIRE); }
    static inline void error_log_set_release(void* p, int32_t v)
    { __atomic_store_n((int32_t*)p, v, __ATOMIC_RELEASE); }
    static inline void error_log_set64_release(void* p, int64_t v)
    { __atomic_store_n((int64_t*)p, v, __ATOMIC_RELEASE); }
    static inline int32_t error_log_increment(void* p)
    { return __atomic_add_fetch((int32_t*)p, 1, __ATOMIC_ACQ_REL); }
    """
    int32_t error_log_get_acquire(const void* p) noexcept nogil
    void error_log_set_release(void* p, int32_t value) noexcept nogil
    void error_log_set64_release(void* p, int64_t value) noexcept nogil
    int32_t error_log_increment(void* p) noexcept nogil

cdef enum:
    OBSERVATION_COUNT_OFFSET = 4
    LAST_OBSERVATION_OFFSET = 8
    FIRST_OBSERVATION_OFFSET = 16
    TEXT_OFFSET = 24
    RECORD_ALIGNMENT = 8


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


def error_text(error):
    """The text (str) under which an exception is recorded, and by which it is told from others.

    The first line is its type, category and message; Python's own traceback with the chain of causes follows, unless
    the exception is an :class:`~container.errors.Event` or was never raised.
    """
    try:
        headline = log_text(error)
    except Exception as unprintable:
        headline = f"{type(error).__qualname__}: <its text could not be made: {type(unprintable).__qualname__}>"
    if isinstance(error, Event):
        return headline
    if error.__traceback__ is None and error.__cause__ is None and error.__context__ is None:
        return headline
    import traceback  # slow to import, and a healthy container has no errors
    return headline + "\n" + "".join(traceback.format_exception(error)).rstrip("\n")


cdef class DistinctErrorLog:
    """Writes errors to a region of memory, which other processes may read at any time.

    Args:
        region: an object with a writable buffer that begins at a multiple of 8 bytes, such as
            ``mark_file.error_buffer``; it is held until :meth:`close`.
        clock: where the times of the observations come from; the system's by default.

    May be used by several threads.
    """
    cdef Py_buffer _view
    cdef uint8_t* _region           # NULL once closed
    cdef size_t _capacity
    cdef size_t _next_offset
    cdef dict _offsets              # text of each distinct error: offset of its record
    cdef Clock _clock
    cdef object _lock
    cdef object __weakref__

    def __cinit__(self):
        self._region = NULL

    def __init__(self, region, Clock clock=None):
        if self._region != NULL:
            raise TypeError("an error log can not be initialised twice")
        PyObject_GetBuffer(region, &self._view, PyBUF_WRITABLE)
        if self._view.len > 0 and <size_t> self._view.buf % RECORD_ALIGNMENT != 0:
            PyBuffer_Release(&self._view)
            raise ValueError("the region of an error log must begin at a multiple of 8 bytes")
        self._region = <uint8_t*> self._view.buf
        self._capacity = <size_t> self._view.len
        self._next_offset = 0
        self._offsets = {}
        self._clock = clock if clock is not None else SystemClock()
        self._lock = threading.Lock()
        forks.own(self)

    def _disown(self, long process_id):
        """In a forked child: closed. The region is the parent's; a thread that is not there may hold the lock."""
        self._lock = threading.Lock()
        self.close()

    def __dealloc__(self):
        if self._region != NULL:
            PyBuffer_Release(&self._view)

    def record(self, error):
        """Records an observation of an exception (BaseException).

        Errors are the same when their texts are (see :func:`error_text`): type, message, stack and causes.

        Returns how often it was observed so far (int, at least 1), or 0 when it is not recorded because the log is
        full or closed.
        """
        cdef str text = error_text(error)
        cdef int64_t now_ms = self._clock.epoch_ms()
        with self._lock:
            if self._region == NULL:
                return 0
            offset = self._offsets.get(text)
            if offset is not None:
                return self._observe(<size_t> offset, now_ms)
            return self._append(text, now_ms)

    cdef int32_t _observe(self, size_t offset, int64_t now_ms) noexcept:
        error_log_set64_release(self._region + offset + LAST_OBSERVATION_OFFSET, now_ms)
        return error_log_increment(self._region + offset + OBSERVATION_COUNT_OFFSET)

    cdef int32_t _append(self, str text, int64_t now_ms) except -1:
        cdef bytes encoded = text.encode("ascii", "backslashreplace")
        cdef size_t length = TEXT_OFFSET + <size_t> len(encoded)
        cdef uint8_t* record = self._region + self._next_offset
        if self._next_offset > self._capacity or length > self._capacity - self._next_offset or length > INT32_MAX:
            return 0
        memcpy(record + TEXT_OFFSET, <const char*> encoded, len(encoded))
        memcpy(record + FIRST_OBSERVATION_OFFSET, &now_ms, sizeof(now_ms))
        memcpy(record + LAST_OBSERVATION_OFFSET, &now_ms, sizeof(now_ms))
        error_log_set_release(record + OBSERVATION_COUNT_OFFSET, 1)
        error_log_set_release(record, <int32_t> length)     # last: a reader takes the record once it has a length
        self._offsets[text] = self._next_offset
        self._next_offset += _align(length)
        return 1

    @property
    def is_closed(self):
        """True once :meth:`close` was called, and in a forked child."""
        return self._region == NULL

    def close(self):
        """Gives the region back; nothing is recorded from now on. May be called twice."""
        with self._lock:
            if self._region != NULL:
                self._region = NULL
                PyBuffer_Release(&self._view)


cdef class CountedErrorHandler:
    """Counts an error, then hands it on (upstream's ``CountedErrorHandler``).

    What ends the agent is no error of the service: an AgentTermination is handed on and not counted, and one that the
    consensus module or a caller of ``close()`` asked for is not even handed on.

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
        if isinstance(error, AgentInterrupted) or isinstance(error, ClusterTermination) and error.is_expected:
            return
        if not isinstance(error, AgentTermination):
            self.error_counter.increment()
        self.error_handler(error)


def read_error_log(region, int64_t since_ms=0):
    """The records of an error log as a list of :class:`ErrorRecord`, in the order of their first observation.

    Args:
        region: an object with a buffer: the error log, as a live or dead process left it.
        since_ms: only errors that were last observed at this time (epoch ms) or later.

    A record that can not be one (it is shorter than its head, or longer than the region) ends the list.
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
    from datetime import datetime   # most starts find no error to tell of
    try:
        time = datetime.fromtimestamp(epoch_ms // 1000).astimezone()
    except (OverflowError, OSError, ValueError):
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
                (<const char*> region + offset + TEXT_OFFSET)[:length - TEXT_OFFSET].decode("ascii", "replace")))
        offset += _align(<size_t> length)
    return records
