# Reassembly of messages that were published as several frames.
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint8_t

from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription


cdef class FragmentAssembler(FragmentHandler):      # for the frames of one image
    cdef FragmentHandler _delegate
    cdef uint8_t* _buffer                           # the message so far
    cdef size_t _length
    cdef size_t _capacity
    cdef int32_t _next_term_offset                  # where the next frame must begin; -1 when no message is begun
    cdef FrameHeader _header                        # of the first frame
    cdef void reset(self) noexcept
    cdef int _append(self, const uint8_t* buffer, size_t length) except -1
    cdef bint _resize(self, size_t capacity) noexcept           # of the buffer; False: there is no memory
    cdef int _deliver(self, const FrameHeader* last) except -1


cdef class BytesAssembler(FragmentAssembler):       # has no delegate: bytes for a Python callable
    cdef public object callback                     # is given each message; what it returns does not matter
    cdef PyObject* _message                         # the bytes that own the buffer, with one reference; NULL: none yet
    cdef size_t _usual_length                       # of the message before
    cdef void _own(self, size_t capacity) noexcept


cdef class SessionFragmentAssembler(FragmentHandler):   # for a subscription with several images
    cdef FragmentHandler _delegate
    cdef dict _assemblers                           # session id -> FragmentAssembler
    cdef void reset(self) noexcept
    cdef void forget(self, int32_t session_id) noexcept
    cdef int forget_lost(self, Subscription subscription) except -1
