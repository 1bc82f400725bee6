# The seam, clocks: the machine's, or one that a test moves on.
from libc.stdint cimport int64_t


cdef class Clock:
    cdef int64_t nano_time(self) noexcept nogil             # monotonic
    cdef int64_t coarse_nano_time(self) noexcept nogil      # the same, milliseconds behind, for a third of the cost
    cdef int64_t epoch_ms(self) noexcept nogil
    cdef int64_t epoch_ns(self) noexcept nogil


cdef class SystemClock(Clock):
    pass
