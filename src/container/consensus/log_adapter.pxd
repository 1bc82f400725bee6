# The log in: what a follower reads, and what is replayed at a start.
from libc.stdint cimport int64_t, uint8_t

from container.codecs.sbe cimport MessageHeader
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.fragment_assembler cimport FragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Image, Subscription


cdef class LogAdapter(FragmentHandler):
    cdef readonly Image image                   # None: no log is read
    cdef Subscription subscription              # of the image
    cdef ConsensusEventHandler _handler
    cdef FragmentAssembler _assembler
    cdef int _fragment_limit
    cdef int64_t _position                      # where the last image was left
    cdef int64_t position(self) noexcept
    cdef int join(self, Image image, Subscription subscription) except -1
    cdef int poll(self, int64_t limit_position) except -1
    cdef bint is_image_closed(self) noexcept
    cdef bint is_end_of_stream_known(self) noexcept
    cdef int leave(self) except -1
    cdef int _dispatch(self, const MessageHeader* message, const uint8_t* buffer, size_t length,
                       const FrameHeader* header) except -1
