"""The longest duration seen, and how often a threshold was exceeded, in two counters: duty cycles and snapshots."""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.transport.counters cimport Counter


cdef class DurationTracker:
    """Measures durations in nanoseconds; one of exactly the threshold does not exceed it."""

    def __init__(self, Counter max_counter not None, Counter exceeded_counter not None, int64_t threshold_ns):
        self.max_counter = max_counter
        self.exceeded_counter = exceeded_counter
        self.threshold_ns = threshold_ns
        self._begin_ns = 0

    cdef void begin(self, int64_t now_ns) noexcept nogil:
        self._begin_ns = now_ns

    cdef void end(self, int64_t now_ns) noexcept nogil:
        cdef int64_t duration_ns = now_ns - self._begin_ns
        self.max_counter.propose_max(duration_ns)
        if duration_ns > self.threshold_ns:
            self.exceeded_counter.increment()

    cdef void measure_and_begin(self, int64_t now_ns) noexcept nogil:
        self.end(now_ns)
        self._begin_ns = now_ns


seal((DurationTracker,))
