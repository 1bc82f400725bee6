# The longest duration seen, and how often a threshold was exceeded, in two counters.
from libc.stdint cimport int64_t

from container.transport.counters cimport Counter


cdef class DurationTracker:
    cdef readonly Counter max_counter
    cdef readonly Counter exceeded_counter
    cdef readonly int64_t threshold_ns
    cdef int64_t _begin_ns
    cdef void begin(self, int64_t now_ns) noexcept nogil
    cdef void end(self, int64_t now_ns) noexcept nogil
    cdef void measure_and_begin(self, int64_t now_ns) noexcept nogil
