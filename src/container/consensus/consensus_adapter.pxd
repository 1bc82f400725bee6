# What the consensus stream brings to a member.
from libc.stdint cimport uint8_t

from container.codecs.sbe cimport MessageHeader
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription


cdef class ConsensusAdapter(FragmentHandler):
    cdef Subscription _subscription
    cdef ConsensusEventHandler _handler
    cdef SessionFragmentAssembler _assembler
    cdef int poll(self) except -1
    cdef int forget_lost(self) except -1        # what publishers began to send that are gone
    cpdef int close(self) except -1
    cdef int _dispatch(self, const MessageHeader* message, const uint8_t* buffer, size_t length, Image image) except -1
    cdef int _on_standby_snapshot(self, const uint8_t* buffer, size_t length, Image image) except -1
