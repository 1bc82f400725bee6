# Idle strategies: what a duty cycle does when it found no work.
from libc.stdint cimport int64_t


cdef class IdleStrategy:
    # Idle once when work_count <= 0, else reset. May raise when the idling also runs a duty (the cluster's own idle).
    cdef int idle(self, int work_count) except? -1
    cdef void reset(self) noexcept
    # Give what else has its turns on this thread one, where there is such; was there any? May raise as idle() does.
    cdef bint run_others(self) except -1


cdef class NoOpIdleStrategy(IdleStrategy):
    pass


cdef class BusySpinIdleStrategy(IdleStrategy):
    pass


cdef class YieldingIdleStrategy(IdleStrategy):
    pass


cdef class SleepingIdleStrategy(IdleStrategy):
    cdef readonly int64_t period_ns


cdef class BackoffIdleStrategy(IdleStrategy):
    cdef readonly int64_t max_spins
    cdef readonly int64_t max_yields
    cdef readonly int64_t min_park_period_ns
    cdef readonly int64_t max_park_period_ns
    cdef int _state
    cdef int64_t _count
    cdef int64_t _park_period_ns


cpdef IdleStrategy parse_idle_strategy(text)
