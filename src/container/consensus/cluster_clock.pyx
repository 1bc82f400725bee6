"""The cluster clock: the time that a leader writes into the log. Upstream: MillisecondClusterClock.java.

It is for timestamps alone. How long something takes is measured with the monotonic clock of the seam: a step of the
system's clock must not time a client or a leader out.
"""
from libc.stdint cimport int64_t

from container.codecs.cluster cimport CLUSTER_TIME_UNIT_MILLIS
from container.common.sealed cimport seal
from container.transport.seam cimport Clock


cdef class ClusterClock:
    """Milliseconds since 1970, as ``clock`` has them."""

    def __init__(self, Clock clock not None):
        self._clock = clock
        self.time_unit = CLUSTER_TIME_UNIT_MILLIS

    cdef int64_t time(self) noexcept nogil:
        return self._clock.epoch_ms()


seal((ClusterClock,))
