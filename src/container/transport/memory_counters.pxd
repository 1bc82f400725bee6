# The counters of a driver in memory, in the layout of a driver's counters file.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.clocks cimport Clock
from container.transport.counters cimport Counters


cdef class CounterBuffers:
    cdef uint8_t* metadata
    cdef uint8_t* values
    cdef readonly int32_t capacity
    cdef Clock _clock
    cdef int32_t _allocated_count                           # ids that have ever been in use: 0 to this
    cdef list _free                                         # ids that may be used again, longest free first
    cdef int32_t allocate(
        self, int32_t type_id, bytes key, str label, int64_t registration_id, int64_t owner_id) except -1
    cdef int release(self, int32_t counter_id) except -1
    cdef int64_t* value(self, int32_t counter_id) noexcept nogil
    cdef int32_t _take_id(self) except -1


cdef class MemoryCounters(Counters):
    cdef CounterBuffers _buffers                            # keeps the memory alive
    cdef void open(self, CounterBuffers buffers) noexcept
    cdef void close(self) noexcept
