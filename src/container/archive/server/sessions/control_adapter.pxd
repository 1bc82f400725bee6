# Reads the requests of an archive's clients from one subscription.
from libc.stdint cimport uint8_t

from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.streams cimport FragmentHandler, Image, Subscription


cdef class RequestStream:                   # one image, and what it has sent of a message so far
    cdef Image image
    cdef FragmentAssembler assembler


cdef class ControlAdapter(FragmentHandler):
    cdef readonly Subscription subscription
    cdef object _handler                    # ControlHandler
    cdef object _on_error
    cdef dict _streams                      # correlation id of an image -> RequestStream
    cdef int _next_image                    # with which the next poll begins
    cdef Image _image                       # of the message that is being handled
    cpdef int poll(self) except -1
    cpdef int close(self) except -1
    cdef FragmentAssembler _assembler(self, Image image)
    cdef int _forget_images(self) except -1
    cdef int _decode(self, const uint8_t* buffer, size_t length) except -1
    cdef int _call(self, int template_id, dict fields) except -1
    cdef str _sender(self)
