# The clock whose time is in the log.
from libc.stdint cimport int32_t, int64_t

from container.transport.clocks cimport Clock


cdef class ClusterClock:
    cdef Clock _clock
    cdef readonly int32_t time_unit         # ClusterTimeUnit
    cdef int64_t time(self) noexcept nogil  # since 1970, in that unit
    cpdef int64_t from_nanos(self, int64_t duration_ns) noexcept
