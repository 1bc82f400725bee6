"""Reassembly of messages that were published as several frames.

Rules of upstream's ImageControlledFragmentAssembler and BufferBuilder: an unfragmented frame goes straight through; a
begin frame starts afresh; a middle or end frame counts only where it continues the message in the same term, else the
partial message is dropped, as is one that is longer than a publication may send. The delivered header keeps the first
frame's fields, but its position is the end of the last frame and its length and flags describe the whole message.
"""
from cpython.ref cimport Py_DECREF, Py_XDECREF, PyObject
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from container.common.sealed cimport seal
from container.transport.frames cimport (
    ACTION_ABORT, ACTION_CONTINUE, FRAME_FLAGS_UNFRAGMENTED, FRAME_FLAG_BEGIN, FRAME_FLAG_END, FRAME_HEADER_LENGTH,
    MAX_MESSAGE_LENGTH, FrameHeader, align_frame,
)
from container.transport.streams cimport FragmentHandler, Subscription

cdef extern from "Python.h":
    char* PyBytes_AS_STRING(PyObject* message) noexcept
    PyObject* PyBytes_FromStringAndSize(const char* buffer, Py_ssize_t length) except NULL
    int _PyBytes_Resize(PyObject** message, Py_ssize_t length) except -1    # at a failure there is no message any more

cdef enum:
    NOT_BEGUN = -1
    INITIAL_CAPACITY = 4096


cdef class FragmentAssembler(FragmentHandler):
    """Reassembles the messages of one image and hands them to ``delegate``, which borrows the bytes for the call."""

    def __cinit__(self):
        self._buffer = NULL
        self._capacity = 0
        self._next_term_offset = NOT_BEGUN

    def __init__(self, FragmentHandler delegate not None):
        self._delegate = delegate

    def __dealloc__(self):
        free(self._buffer)

    cdef void reset(self) noexcept:
        self._length = 0
        self._next_term_offset = NOT_BEGUN

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef int action
        if (header.flags & FRAME_FLAGS_UNFRAGMENTED) == FRAME_FLAGS_UNFRAGMENTED:
            return self._delegate.on_fragment(buffer, length, header)
        if header.flags & FRAME_FLAG_BEGIN:
            self.reset()
            self._header = header[0]
        elif (header.term_offset != self._next_term_offset or header.term_id != self._header.term_id
                or self._length + length > MAX_MESSAGE_LENGTH):
            self.reset()
            return ACTION_CONTINUE
        self._append(buffer, length)
        if not header.flags & FRAME_FLAG_END:
            self._next_term_offset = header.term_offset + align_frame(header.frame_length)
            return ACTION_CONTINUE
        action = self._deliver(header)
        if action == ACTION_ABORT:
            self._length -= length
        else:
            self.reset()
        return action

    cdef int _append(self, const uint8_t* buffer, size_t length) except -1:
        cdef size_t capacity = self._capacity
        if self._length + length > capacity:
            capacity = max(<size_t> INITIAL_CAPACITY, capacity)
            while capacity < self._length + length:
                capacity += capacity >> 1
            if not self._resize(capacity):
                self.reset()
                raise MemoryError(f"no memory to reassemble a message of more than {capacity} bytes")
        memcpy(self._buffer + self._length, buffer, length)
        self._length += length
        return 0

    cdef bint _resize(self, size_t capacity) noexcept:
        cdef void* grown = realloc(self._buffer, capacity)
        if grown == NULL:
            return False
        self._buffer = <uint8_t*> grown
        self._capacity = capacity
        return True

    cdef int _deliver(self, const FrameHeader* last) except -1:
        cdef FrameHeader header = self._header
        header.position = last.position
        header.flags = self._header.flags | last.flags
        header.frame_length = <int32_t> (FRAME_HEADER_LENGTH + self._length)
        try:
            return self._delegate.on_fragment(self._buffer, self._length, &header)
        except BaseException:
            self.reset()
            raise


cdef class BytesAssembler(FragmentAssembler):
    """Reassembles the messages of one image straight into the ``bytes`` that ``callback`` is given, which it may keep.

    A message of many frames is copied once: its bytes begin as long as the message before, and are cut to its length.
    """

    def __cinit__(self):
        self._message = NULL
        self._usual_length = 0

    def __init__(self, callback=None):
        self.callback = callback

    def __dealloc__(self):
        self._buffer = NULL
        Py_XDECREF(self._message)

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        if (header.flags & FRAME_FLAGS_UNFRAGMENTED) == FRAME_FLAGS_UNFRAGMENTED:
            self.callback((<const char*> buffer)[:length])
            return ACTION_CONTINUE
        return FragmentAssembler.on_fragment(self, buffer, length, header)

    cdef bint _resize(self, size_t capacity) noexcept:
        cdef bint is_resized = True
        try:
            if self._message == NULL:
                capacity = max(capacity, self._usual_length)
                self._message = PyBytes_FromStringAndSize(NULL, capacity)
            else:
                _PyBytes_Resize(&self._message, capacity)
        except MemoryError:
            is_resized = False
        self._own(capacity if is_resized else 0)
        return is_resized

    cdef void _own(self, size_t capacity) noexcept:
        self._buffer = NULL if self._message == NULL else <uint8_t*> PyBytes_AS_STRING(self._message)
        self._capacity = capacity

    cdef int _deliver(self, const FrameHeader* last) except -1:
        cdef bytes message = b""
        cdef size_t length = self._length
        self.reset()
        if length:
            if not self._resize(length):
                raise MemoryError(f"no memory for a message of {length} bytes")
            message = <bytes> self._message
            Py_DECREF(message)
            self._message = NULL
            self._own(0)
            self._usual_length = length
        self.callback(message)
        return ACTION_CONTINUE


cdef class SessionFragmentAssembler(FragmentHandler):
    """Reassembles messages per session id, for a subscription that several publishers feed."""

    def __init__(self, FragmentHandler delegate not None):
        self._delegate = delegate
        self._assemblers = {}

    cdef void reset(self) noexcept:
        self._assemblers.clear()

    cdef void forget(self, int32_t session_id) noexcept:
        self._assemblers.pop(session_id, None)

    cdef int forget_lost(self, Subscription subscription) except -1:
        """Forget what publishers began to send that have no image on the subscription any more."""
        cdef int32_t session_id
        if self._assemblers:
            for session_id in list(self._assemblers):
                if subscription.image_by_session_id(session_id) is None:
                    self.forget(session_id)
        return 0

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        cdef FragmentAssembler assembler
        if (header.flags & FRAME_FLAGS_UNFRAGMENTED) == FRAME_FLAGS_UNFRAGMENTED:
            return self._delegate.on_fragment(buffer, length, header)
        assembler = self._assemblers.get(header.session_id)
        if assembler is None:
            if not header.flags & FRAME_FLAG_BEGIN:
                return ACTION_CONTINUE
            assembler = FragmentAssembler(self._delegate)
            self._assemblers[header.session_id] = assembler
        return assembler.on_fragment(buffer, length, header)


seal((FragmentAssembler, BytesAssembler, SessionFragmentAssembler))
