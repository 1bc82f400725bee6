# Virtual time, and numbers that are drawn from a seed: what a simulation has in place of clocks and chance.
from libc.stdint cimport int64_t, uint64_t

from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock


cdef class VirtualTime:
    cdef public int64_t now_ns


cdef class NodeClock(Clock):
    cdef readonly VirtualTime time
    cdef readonly int64_t epoch_ms_at_zero
    cdef int64_t _boot_ns                   # the monotonic clock when that was 0
    cdef int64_t _readings                  # since the last turn
    cdef int64_t _ahead_ns                  # how far a loop that never idles has pushed it
    cdef int64_t _drift_ppm
    cdef int64_t _passed_ns(self) noexcept nogil
    cdef int64_t _drifted_ns(self, int64_t time_ns) noexcept nogil


cdef class Draws:
    cdef readonly uint64_t seed
    cdef uint64_t _draw(self, uint64_t stream, uint64_t key) noexcept nogil


cdef class Trace:
    cdef uint64_t _digest
    cdef readonly uint64_t count


cdef class ParkingIdleStrategy(IdleStrategy):
    cdef object _park
