"""The cluster clock: the time that a leader writes into the log. Upstream: MillisecondClusterClock.java,
NanosecondClusterClock.java, ClusterClock.java.

It is for timestamps alone. How long something takes is measured with the monotonic clock of the seam: a step of the
system's clock must not time a client or a leader out.
"""
from libc.stdint cimport int32_t, int64_t

from container.codecs.cluster cimport CLUSTER_TIME_UNIT_MICROS, CLUSTER_TIME_UNIT_MILLIS, CLUSTER_TIME_UNIT_NANOS
from container.common.sealed cimport seal
from container.transport.clocks cimport Clock

TIME_UNITS = ("millis", "micros", "nanos")      # in the order of ClusterTimeUnit


cdef inline int64_t _from_nanos(int32_t time_unit, int64_t duration_ns) noexcept nogil:
    if time_unit == CLUSTER_TIME_UNIT_NANOS:
        return duration_ns
    return duration_ns // 1_000 if time_unit == CLUSTER_TIME_UNIT_MICROS else duration_ns // 1_000_000


cdef class ClusterClock:
    """Time since 1970, as ``clock`` has it, in one of ``TIME_UNITS``: "millis", "micros" or "nanos"."""

    def __init__(self, Clock clock not None, str time_unit not None="millis"):
        self._clock = clock
        self.time_unit = TIME_UNITS.index(time_unit)

    cdef int64_t time(self) noexcept nogil:
        if self.time_unit == CLUSTER_TIME_UNIT_MILLIS:
            return self._clock.epoch_ms()
        return _from_nanos(self.time_unit, self._clock.epoch_ns())

    cpdef int64_t from_nanos(self, int64_t duration_ns) noexcept:
        """A duration in the cluster's unit, rounded down."""
        return _from_nanos(self.time_unit, duration_ns)


seal((ClusterClock,))
