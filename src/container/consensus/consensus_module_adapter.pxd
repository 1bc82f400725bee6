# Decodes requests of services and tools to the consensus module, over IPC.
from libc.stdint cimport uint8_t

from container.codecs.sbe cimport MessageHeader
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Subscription


cdef class ConsensusModuleAdapter(FragmentHandler):
    cdef Subscription _subscription
    cdef ConsensusEventHandler _handler
    cdef SessionFragmentAssembler _assembler
    cdef int _fragment_limit
    cdef int poll(self) except -1
    cdef int _dispatch(self, const MessageHeader* message, const uint8_t* buffer, size_t length) except -1
    cpdef int close(self) except -1
