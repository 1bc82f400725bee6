"""The bytes and the header of a message as Python sees them: owned copies that are safe to keep.

A copy costs less than making a memoryview, and nothing that a user keeps can point into a log buffer that is unmapped.
The container reuses an object only when nobody else refers to it; a view of it does as well.
"""
cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from container.common.references cimport is_uniquely_referenced
from container.common.sealed cimport seal
from container.errors import ClosedError, ClusterError, ForkedError
from container.transport.frames cimport Claim, is_claim_open
from container.transport.streams cimport Publication

cdef enum:
    INITIAL_CAPACITY = 2048

# Address of a view of an empty message: a NULL would be no buffer.
cdef uint8_t NO_BYTES = 0


# Not bound: CPython calls such a method without a detour.
@cython.binding(False)
cdef class MessageBuffer:
    """A read-only buffer with the payload of one message.

    ``bytes(buffer)``, ``buffer[3]`` (int), ``buffer[2:10]`` (bytes), ``len(buffer)``, ``struct.unpack_from`` and
    ``memoryview(buffer)`` work, and the ``get_…`` methods read little-endian numbers. The bytes stay as they are for as
    long as the object, or a view of it, is referred to.
    """

    def __cinit__(self):
        self._data = NULL
        self._length = 0
        self._capacity = 0

    def __init__(self):
        raise TypeError("a MessageBuffer is made by the container; use bytes for your own data")

    def __dealloc__(self):
        free(self._data)

    cdef int _reserve(self, size_t length) except -1:
        cdef Py_ssize_t capacity = max(<Py_ssize_t> INITIAL_CAPACITY, self._capacity)
        cdef void* grown
        while capacity < <Py_ssize_t> length:
            capacity *= 2
        grown = realloc(self._data, <size_t> capacity)
        if grown == NULL:
            raise MemoryError(f"no memory for a message of {length} bytes")
        self._data = <uint8_t*> grown
        self._capacity = capacity
        return 0

    cdef int _fill(self, const uint8_t* data, size_t length) except -1:
        self._length = 0
        return self._append(data, length)

    cdef int _append(self, const uint8_t* data, size_t length) except -1:
        if self._length + <Py_ssize_t> length > self._capacity:
            self._reserve(<size_t> self._length + length)
        if length > 0:
            memcpy(self._data + self._length, data, length)
        self._length += <Py_ssize_t> length
        return 0

    cdef bint _is_kept(self) noexcept:
        return not is_uniquely_referenced(self)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef uint8_t* data = self._data if self._data != NULL else &NO_BYTES
        PyBuffer_FillInfo(view, self, data, self._length, True, flags)

    def __len__(self):
        return self._length

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char*> self._data, self._length)

    def __getitem__(self, index):
        cdef Py_ssize_t start, stop, step
        cdef Py_ssize_t at
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step != 1:
                return bytes(self)[index]
            return PyBytes_FromStringAndSize(<const char*> self._data + start, max(<Py_ssize_t> 0, stop - start))
        at = index
        if at < 0:
            at += self._length
        if not 0 <= at < self._length:
            raise IndexError(f"index {index} is outside a message of {self._length} bytes")
        return self._data[at]

    def __eq__(self, other):
        cdef Py_buffer view
        if type(other) is bytes:                        # without the detour over a view, which costs a microsecond
            return self._equals(PyBytes_AS_STRING(other), PyBytes_GET_SIZE(other))
        if not PyObject_CheckBuffer(other):
            return NotImplemented
        cdef bint is_contiguous = True
        try:
            PyObject_GetBuffer(other, &view, PyBUF_SIMPLE)
        except BufferError:
            is_contiguous = False
        if not is_contiguous:
            return bytes(self) == bytes(memoryview(other))
        try:
            return self._equals(<const char*> view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef bint _equals(self, const char* data, Py_ssize_t length) noexcept:
        return length == self._length and (length == 0 or memcmp(data, self._data, <size_t> length) == 0)

    def __hash__(self):
        return hash(bytes(self))

    def __repr__(self):
        return f"<MessageBuffer of {self._length} bytes>"

    cdef const uint8_t* _at(self, Py_ssize_t offset, Py_ssize_t length) except NULL:
        if offset < 0 or offset > self._length - length:
            raise IndexError(
                f"{length} bytes at offset {offset} are outside a message of {self._length} bytes")
        return self._data + offset

    def get_int8(self, Py_ssize_t offset=0):
        """The signed byte at ``offset``; IndexError outside the message."""
        return (<const int8_t*> self._at(offset, 1))[0]

    def get_uint8(self, Py_ssize_t offset=0):
        """The unsigned byte at ``offset``; IndexError outside the message."""
        return self._at(offset, 1)[0]

    def get_int16(self, Py_ssize_t offset=0):
        """The little-endian signed 16-bit number at ``offset``; IndexError outside the message."""
        cdef int16_t value
        memcpy(&value, self._at(offset, 2), 2)
        return value

    def get_uint16(self, Py_ssize_t offset=0):
        """The little-endian unsigned 16-bit number at ``offset``; IndexError outside the message."""
        cdef uint16_t value
        memcpy(&value, self._at(offset, 2), 2)
        return value

    def get_int32(self, Py_ssize_t offset=0):
        """The little-endian signed 32-bit number at ``offset``; IndexError outside the message."""
        cdef int32_t value
        memcpy(&value, self._at(offset, 4), 4)
        return value

    def get_uint32(self, Py_ssize_t offset=0):
        """The little-endian unsigned 32-bit number at ``offset``; IndexError outside the message."""
        cdef uint32_t value
        memcpy(&value, self._at(offset, 4), 4)
        return value

    def get_int64(self, Py_ssize_t offset=0):
        """The little-endian signed 64-bit number at ``offset``; IndexError outside the message."""
        cdef int64_t value
        memcpy(&value, self._at(offset, 8), 8)
        return value

    def get_uint64(self, Py_ssize_t offset=0):
        """The little-endian unsigned 64-bit number at ``offset``; IndexError outside the message."""
        cdef uint64_t value
        memcpy(&value, self._at(offset, 8), 8)
        return value

    def get_float64(self, Py_ssize_t offset=0):
        """The little-endian 64-bit floating point number at ``offset``; IndexError outside the message."""
        cdef double value
        memcpy(&value, self._at(offset, 8), 8)
        return value


cdef class Header:
    """Where a message stands in its stream; a copy, which does not change while it is referred to."""

    def __init__(self):
        raise TypeError("a Header is made by the container")

    cdef bint _is_kept(self) noexcept:
        return not is_uniquely_referenced(self)

    @property
    def position(self):
        """Position in the stream just after the message (int, bytes)."""
        return self._frame.position

    @property
    def frame_length(self):
        """Bytes of the frame header and everything behind it (int)."""
        return self._frame.frame_length

    @property
    def session_id(self):
        """Aeron session id of the stream (int)."""
        return self._frame.session_id

    @property
    def stream_id(self):
        """Aeron stream id (int)."""
        return self._frame.stream_id

    @property
    def term_id(self):
        """Term id of the first frame (int)."""
        return self._frame.term_id

    @property
    def initial_term_id(self):
        """The first term id of the stream (int)."""
        return self._frame.initial_term_id

    @property
    def term_offset(self):
        """Offset of the first frame in its term (int, bytes)."""
        return self._frame.term_offset

    @property
    def flags(self):
        """Flags of the frame (int); 0xC0 for a whole message."""
        return self._frame.flags

    @property
    def reserved_value(self):
        """The frame's reserved value (int)."""
        return self._frame.reserved_value

    def __repr__(self):
        return f"<Header position={self._frame.position} session_id={self._frame.session_id}>"


# Its publication is needed when it is deallocated, whatever cycle of garbage it is part of.
@cython.no_gc_clear
cdef class BufferClaim:
    """A claimed range of a stream: write :attr:`buffer`, then :meth:`commit` or :meth:`abort`.

    Used as ``with``, it commits at the end, and aborts when there was an exception. A claim holds up everything that
    is sent after it, so commit soon. A claim of a service that is open when its event ends is aborted and reported; a
    client's claim is aborted when the object is collected. The bytes are written to the claim's own memory and copied
    into the stream by the commit, so that a view that is kept cannot change what was sent.
    """

    def __cinit__(self):
        self._data = bytearray()
        self._length = 0
        self._is_claimed = False
        self._is_forgotten = False

    def __repr__(self):
        return f"<BufferClaim {f'of {self._length} bytes' if self._is_claimed else 'without a claim'}>"

    cdef int _check_free(self) except -1:
        if self._is_claimed:
            raise ClusterError("this BufferClaim holds a claim already; commit or abort it first")
        return 0

    cdef int _wrap(self, Publication publication, Claim* claim, size_t offset, size_t length) except -1:
        self._publication = publication
        if claim != NULL:
            self._claim = claim[0]
        try:
            self._data = bytearray(length)
        except BaseException:
            self._give_up(is_quiet=True)
            raise
        self._offset = offset
        self._length = length
        self._is_claimed = True
        self._is_forgotten = False
        return 0

    cdef bint _abort_forgotten(self) except -1:
        if not self._is_claimed:
            return False
        self._is_claimed = False
        self._is_forgotten = True
        self._give_up(is_quiet=True)
        return True

    cdef object _nothing_claimed(self, str fix):
        if self._is_forgotten:
            return ClusterError("this claim was aborted when the event that made it ended; commit it before that")
        return ClusterError(f"nothing is claimed: {fix}")

    @property
    def buffer(self):
        """A writable view of the claimed bytes (memoryview), as long as was asked for, all zero at first."""
        if not self._is_claimed:
            raise self._nothing_claimed("buffer is there after a successful try_claim until the commit")
        return memoryview(self._data)

    @property
    def length(self):
        """How many bytes are claimed for the user (int)."""
        return self._length if self._is_claimed else 0

    def commit(self):
        """Send the claimed bytes.

        Raise ClusterError when nothing is claimed, ClosedError when the stream is closed, ClaimLostError when the
        claim was open for so long that the media driver gave it up. Then nothing is sent.
        """
        cdef Publication publication = self._publication
        cdef char* source
        if not self._is_claimed:
            raise self._nothing_claimed("commit needs a successful try_claim")
        self._is_claimed = False
        if publication is not None:
            if publication.is_closed():
                self._give_up(is_quiet=False)
                raise ClosedError("the publication was closed before the claim was committed; nothing is sent")
            self._publication = None
            if is_claim_open(&self._claim):
                source = self._data
                memcpy(self._claim.data + self._offset, source, self._length)
            publication.commit(&self._claim)    # says so when it is not

    def abort(self):
        """Give the claim up; nothing is sent. Nothing happens when nothing is claimed."""
        if self._is_claimed:
            self._is_claimed = False
            self._give_up(is_quiet=True)

    cdef int _give_up(self, bint is_quiet) except -1:
        cdef Publication publication = self._publication
        self._publication = None
        if publication is not None:
            try:
                publication.abort(&self._claim)
            except ClosedError:
                pass                            # and the claim with it
            except ForkedError:
                if not is_quiet:
                    raise                       # the claim is the parent's
        return 0

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            if self._is_claimed:
                self.commit()
        else:
            self.abort()

    def __dealloc__(self):
        if self._is_claimed:
            try:
                self._give_up(is_quiet=True)
            except Exception:
                pass


seal((MessageBuffer, Header))
