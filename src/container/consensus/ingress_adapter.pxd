# Clients' requests and messages in.
from libc.stdint cimport int32_t, uint8_t

from container.codecs.sbe cimport MessageHeader
from container.consensus.consensus_event_handler cimport ConsensusEventHandler
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.transport_seam cimport Client
from container.transport.streams cimport FragmentHandler, Image, Subscription


cdef class IngressStream(FragmentHandler):      # one subscription
    cdef Subscription _subscription
    cdef ConsensusEventHandler _handler
    cdef SessionFragmentAssembler _assembler
    cdef dict _images                           # session id -> Image: of clients that connected or were heard of
    cdef int poll(self, int fragment_limit) except -1
    cdef list take_lost_images(self)
    cdef Image _image_of(self, const FrameHeader* header)
    cdef int _on_other(self, const MessageHeader* message, const uint8_t* buffer, size_t length,
                       const FrameHeader* header) except -1
    cdef int _on_connect(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except -1


cdef class IngressAdapter:
    cdef ConsensusEventHandler _handler
    cdef int _fragment_limit
    cdef Client _client
    cdef int32_t _stream_id
    cdef object _on_error
    cdef list _streams                          # of IngressStream
    cdef list _pending                          # of (channel, PendingAdd)
    cdef list _refused                          # channels that the driver refused
    cdef int poll(self) except -1
    cdef int connect(self, list wanted) except -1
    cdef int poll_adds(self) except -1
    cdef int try_again(self) except -1
    cdef int _add(self, Subscription subscription) except -1
    cdef int forget_lost(self) except -1        # what clients began to send that are gone
    cdef list take_lost_images(self)            # images from which clients came that are closed now, each once
    cpdef int close(self) except -1
