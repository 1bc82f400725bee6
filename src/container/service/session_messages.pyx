"""The session messages of one part of the log, for services that take many at once: columns of owned copies.

They reach the service in the order of the log and before any other event. While the service iterates, the cluster is
at the message of the iteration: so an exception concerns that message alone, as it does without batches.
"""
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc

from container.common.references cimport is_uniquely_referenced
from container.common.sealed cimport seal
from container.service.event_handler cimport EventHandler
from container.transport.message_buffer cimport MessageBuffer

cdef enum:
    INITIAL_COUNT = 64
    FULL_COUNT = 4096
    FULL_LENGTH = 1024 * 1024

cdef char* INT64_FORMAT = b"q"


cdef class Int64Column:
    """A number of 64 bits with a sign for each message: a read-only buffer, as ``numpy.asarray(column)`` takes it.

    ``len(column)`` and ``column[3]`` (int) work as well. The numbers stay as they are while it, or a view of it, is
    referred to.
    """

    def __cinit__(self):
        self._data = NULL
        self._count = 0
        self._capacity = 0
        self._stride = sizeof(int64_t)

    def __init__(self):
        raise TypeError("an Int64Column is made by the container")

    def __dealloc__(self):
        free(self._data)

    cdef int _append(self, int64_t value) except -1:
        cdef Py_ssize_t capacity
        cdef void* grown
        if self._count == self._capacity:
            capacity = max(<Py_ssize_t> INITIAL_COUNT, 2 * self._capacity)
            grown = realloc(self._data, <size_t> capacity * sizeof(int64_t))
            if grown == NULL:
                raise MemoryError(f"no memory for the numbers of {capacity} messages")
            self._data = <int64_t*> grown
            self._capacity = capacity
        self._data[self._count] = value
        self._count += 1
        return 0

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("the numbers of a batch are read-only")
        view.buf = self._data
        view.obj = self
        view.len = self._count * <Py_ssize_t> sizeof(int64_t)
        view.readonly = 1
        view.itemsize = sizeof(int64_t)
        view.format = INT64_FORMAT if flags & PyBUF_FORMAT else NULL
        view.ndim = 1
        view.shape = &self._count
        view.strides = &self._stride
        view.suboffsets = NULL
        view.internal = NULL

    cdef bint _is_kept(self) noexcept:
        return not is_uniquely_referenced(self)

    def __len__(self):
        return self._count

    def __getitem__(self, Py_ssize_t index):
        cdef Py_ssize_t at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(f"index {index} is outside {self._count} messages")
        return self._data[at]

    def __repr__(self):
        return f"<Int64Column of {self._count}>"


cdef SessionMessages new_session_messages(EventHandler cluster):
    cdef SessionMessages messages = SessionMessages.__new__(SessionMessages)
    messages._cluster = cluster
    return messages


cdef class SessionMessages:
    """Messages of clients and services in the order of the log; see :class:`container.api.SessionMessages`."""

    def __cinit__(self):
        self._session_ids = Int64Column.__new__(Int64Column)
        self._positions = Int64Column.__new__(Int64Column)
        self._timestamps = Int64Column.__new__(Int64Column)
        self._offsets = Int64Column.__new__(Int64Column)
        self._payloads = MessageBuffer.__new__(MessageBuffer)
        self._sessions = []
        self._offsets._append(0)
        self._count = 0
        self._current = -1

    def __init__(self):
        raise TypeError("SessionMessages are made by the container")

    cdef int _append(self, object session, int64_t session_id, int64_t log_position, int64_t timestamp,
                     const uint8_t* data, size_t length) except -1:
        self._payloads._append(data, length)
        self._session_ids._append(session_id)
        self._positions._append(log_position)
        self._timestamps._append(timestamp)
        self._offsets._append(self._payloads._length)
        self._sessions.append(session)
        self._count += 1
        return 0

    cdef bint _is_full(self) noexcept:
        return self._count >= FULL_COUNT or self._payloads._length >= FULL_LENGTH

    cdef int _begin(self) except -1:
        self._current = -1
        self._thread = PyThread_get_thread_ident()
        self._cluster.set_event(
            self._positions._data[self._count - 1], self._timestamps._data[self._count - 1])
        return 0

    cdef bint _is_left_early(self) noexcept:
        return 0 <= self._current < self._count - 1

    cdef bint _is_at_a_message(self) noexcept:
        return 0 <= self._current < self._count

    cdef int64_t _current_session_id(self) noexcept:
        return self._session_ids._data[self._current]

    cdef size_t _current_length(self) noexcept:
        return <size_t> (self._offsets._data[self._current + 1] - self._offsets._data[self._current])

    cdef void _end(self) noexcept:
        self._thread = 0

    cdef SessionMessages _rest(self):
        cdef SessionMessages rest = new_session_messages(self._cluster)
        cdef Py_ssize_t index
        cdef int64_t* offsets = self._offsets._data
        for index in range(self._current + 1, self._count):
            rest._append(
                self._sessions[index], self._session_ids._data[index], self._positions._data[index],
                self._timestamps._data[index], self._payloads._data + offsets[index],
                <size_t> (offsets[index + 1] - offsets[index]))
        return rest

    cdef SessionMessages _emptied(self):
        if not is_uniquely_referenced(self):
            return new_session_messages(self._cluster)
        if self._session_ids._is_kept():
            self._session_ids = Int64Column.__new__(Int64Column)
        if self._positions._is_kept():
            self._positions = Int64Column.__new__(Int64Column)
        if self._timestamps._is_kept():
            self._timestamps = Int64Column.__new__(Int64Column)
        if self._offsets._is_kept():
            self._offsets = Int64Column.__new__(Int64Column)
        self._session_ids._count = self._positions._count = self._timestamps._count = self._offsets._count = 0
        self._offsets._append(0)
        if self._payloads._is_kept():
            self._payloads = MessageBuffer.__new__(MessageBuffer)
        self._payloads._length = 0
        self._sessions.clear()
        self._count = 0
        self._current = -1
        return self

    @property
    def session_ids(self):
        """The cluster session id of each message (Int64Column); negative for a message of a service."""
        return self._session_ids

    @property
    def positions(self):
        """The log position just after each message (Int64Column, bytes)."""
        return self._positions

    @property
    def timestamps(self):
        """The cluster time of each message (Int64Column, in the cluster's time unit)."""
        return self._timestamps

    @property
    def offsets(self):
        """Where each message begins in :attr:`payloads`, and at the end their length (Int64Column, bytes)."""
        return self._offsets

    @property
    def payloads(self):
        """The bytes of all messages, one after the other (MessageBuffer)."""
        return self._payloads

    cdef Py_ssize_t _at(self, Py_ssize_t index) except -1:
        if not 0 <= index < self._count:
            raise IndexError(f"index {index} is outside {self._count} messages")
        return index

    def session(self, Py_ssize_t index):
        """The session of a message, None for one of a service. Raises IndexError outside the batch."""
        return self._sessions[self._at(index)]

    def payload(self, Py_ssize_t index):
        """The bytes of one message. Raises IndexError outside the batch."""
        cdef int64_t* offsets = self._offsets._data + self._at(index)
        return PyBytes_FromStringAndSize(
            <const char*> self._payloads._data + offsets[0], <Py_ssize_t> (offsets[1] - offsets[0]))

    def __len__(self):
        return self._count

    def __iter__(self):
        cdef SessionMessagesIterator iterator = SessionMessagesIterator.__new__(SessionMessagesIterator)
        iterator._messages = self
        iterator._at = -1
        return iterator

    def __repr__(self):
        return f"<SessionMessages of {self._count} messages, {self._payloads._length} bytes>"


cdef class SessionMessagesIterator:
    """The indexes of a batch. On the thread that the batch is delivered on, until the callback returns, the cluster
    follows."""

    def __init__(self):
        raise TypeError("a SessionMessagesIterator is made by the container")

    def __iter__(self):
        return self

    def __next__(self):
        cdef SessionMessages messages = self._messages
        cdef bint is_live
        if messages is None:
            raise StopIteration
        is_live = messages._thread != 0 and messages._thread == PyThread_get_thread_ident()
        if is_live and messages._cluster._loose_ends is not None:
            messages._cluster.report_loose_ends()           # the turn before ends as a callback of its own would
        if self._at + 1 >= messages._count:
            self._messages = None
            if is_live:
                messages._current = messages._count
            raise StopIteration
        self._at += 1
        if is_live:
            messages._current = self._at
            messages._cluster.set_event(messages._positions._data[self._at], messages._timestamps._data[self._at])
        return self._at


seal((Int64Column, SessionMessages, SessionMessagesIterator))
