# The bytes and the header of a message as Python sees them: owned copies that are safe to keep.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.frames cimport Claim, FrameHeader
from container.transport.streams cimport Publication


cdef class MessageBuffer:
    cdef uint8_t* _data                 # owned
    cdef Py_ssize_t _length
    cdef Py_ssize_t _capacity
    cdef int _fill(self, const uint8_t* data, size_t length) except -1
    cdef bint _equals(self, const char* data, Py_ssize_t length) noexcept
    cdef int _append(self, const uint8_t* data, size_t length) except -1
    cdef int _reserve(self, size_t length) except -1
    cdef bint _is_kept(self) noexcept   # somebody beside the one owner refers to it; a view of it does
    cdef const uint8_t* _at(self, Py_ssize_t offset, Py_ssize_t length) except NULL


cdef class Header:
    cdef FrameHeader _frame
    cdef bint _is_kept(self) noexcept


cdef class BufferClaim:
    cdef Publication _publication       # None when nothing is claimed, or the claim is mocked
    cdef Claim _claim
    cdef bytearray _data
    cdef size_t _length
    cdef size_t _offset                 # of the user's bytes in the claimed range
    cdef bint _is_claimed
    cdef bint _is_forgotten             # aborted because the callback ended
    cdef bint _is_kept                  # by the cluster until the callback ends
    cdef BufferClaim _next              # the one kept before
    cdef int64_t _cluster_session_id    # who made it and where
    cdef int64_t _log_position
    cdef int _wrap(self, Publication publication, Claim* claim, size_t offset, size_t length) except -1
    cdef int _check_free(self) except -1
    cdef bint _abort_forgotten(self) except -1      # False when nothing is claimed
    cdef object _nothing_claimed(self, str fix)
    cdef int _give_up(self, bint is_quiet) except -1
