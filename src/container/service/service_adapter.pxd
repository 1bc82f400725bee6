# Control in: what the consensus module sends to its services.
from libc.stdint cimport uint8_t

from container.service.event_handler cimport EventHandler
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription


cdef class ServiceAdapter(FragmentHandler):
    cdef EventHandler _handler
    cdef Subscription _subscription
    cdef SessionFragmentAssembler _assembler
    cdef int poll(self) except -1
    cdef int _on_join_log(self, const uint8_t* buffer, size_t length) except -1
    cpdef int close(self) except -1
