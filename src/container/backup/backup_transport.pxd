# The Aeron client of a backup, for plain Python.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.counters cimport Counters
from container.transport.fragment_assembler cimport SessionFragmentAssembler
from container.transport.frames cimport FrameHeader
from container.transport.streams cimport FragmentHandler, Publication, Subscription
from container.transport.transport_seam cimport Client


cdef class BackupTransport(FragmentHandler):
    cdef readonly Client client
    cdef readonly int32_t stream_id         # of the consensus stream
    cdef object _messages                   # deque of bytes that came
    cdef str _channel                       # on which members answer
    cdef Counters _counters
    cdef Subscription _subscription         # None until it is there
    cdef Publication _publication           # to one member; None: to none
    cdef SessionFragmentAssembler _assembler
    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1


cdef class ReplayHash(FragmentHandler):
    cdef object _hash
    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1
