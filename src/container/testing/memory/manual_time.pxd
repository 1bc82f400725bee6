# Time that passes by hand, and waiting that lets the world continue.
from libc.stdint cimport int64_t

from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport Clock


cdef class ManualClock(Clock):
    cdef int64_t _now_ns
    cdef int64_t _epoch_ms_at_zero                          # the time of day when _now_ns was 0
    cdef public int64_t auto_advance_ns


cdef class SteppingIdleStrategy(IdleStrategy):
    cdef readonly object step
    cdef readonly int max_idles
    cdef readonly int idle_count
    cdef int _idles_in_a_row
