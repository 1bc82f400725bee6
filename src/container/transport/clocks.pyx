"""The seam, clocks: an abstract one, and the machine's."""
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef extern from *:
    """
    #include <time.h>
    #ifdef CLOCK_MONOTONIC_COARSE
    #define CONTAINER_COARSE_CLOCK CLOCK_MONOTONIC_COARSE
    #else
    #define CONTAINER_COARSE_CLOCK CLOCK_MONOTONIC
    #endif
    """
    const int CONTAINER_COARSE_CLOCK


cdef class Clock:
    """Two clocks: a monotonic one in nanoseconds, and the time since 1970 in milliseconds or nanoseconds."""

    cdef int64_t nano_time(self) noexcept nogil:
        return 0

    cdef int64_t coarse_nano_time(self) noexcept nogil:
        return self.nano_time()

    cdef int64_t epoch_ms(self) noexcept nogil:
        return 0

    cdef int64_t epoch_ns(self) noexcept nogil:
        return self.epoch_ms() * 1_000_000


cdef class SystemClock(Clock):
    """The machine's clocks."""

    cdef int64_t nano_time(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec

    cdef int64_t coarse_nano_time(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CONTAINER_COARSE_CLOCK, &now)
        return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec

    cdef int64_t epoch_ms(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t> now.tv_sec * 1_000 + now.tv_nsec // 1_000_000

    cdef int64_t epoch_ns(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec
