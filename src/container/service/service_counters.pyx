"""Allocates the container's own counters; their keys and labels are upstream's (ClusterCounters.java).

The key is the cluster id and the service id, both int32.
"""
import struct

from libc.stdint cimport int32_t

from container.common.sealed cimport seal
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client

from container.common.aeron_defaults import CounterType
from container.common.quantities import format_duration
from container.version import version_info


cdef class ServiceCounters:
    """The counters of one service of one cluster, each allocated when it is asked for.

    Each call blocks until the driver has answered, and raises as the client does: RegistrationError when there is no
    room for a counter, DriverTimeoutError when the driver is gone.
    """
    cdef Client _client
    cdef bytes _key
    cdef str _suffix
    cdef list _added

    def __init__(self, Client client not None, int32_t cluster_id, int32_t service_id):
        self._client = client
        self._key = struct.pack("<ii", cluster_id, service_id)
        self._added = []
        self._suffix = f" - clusterId={cluster_id} serviceId={service_id}"

    def add_error_counter(self):
        """The counter of errors; its label has the version of this package."""
        return self._add(
            CounterType.CLUSTERED_SERVICE_ERROR_COUNT, f"Cluster Container Errors{self._suffix} {version_info()}")

    def add_max_cycle_time(self):
        """The longest duty cycle, in nanoseconds."""
        return self._add(CounterType.SERVICE_MAX_CYCLE_TIME, f"Cluster container max cycle time in ns{self._suffix}")

    def add_cycle_time_exceeded(self, threshold_ns):
        """The counter of duty cycles that took longer than the threshold (int, nanoseconds)."""
        return self._add(
            CounterType.SERVICE_CYCLE_TIME_THRESHOLD_EXCEEDED,
            f"Cluster container work cycle time exceeded count: threshold={format_duration(threshold_ns)}"
            f"{self._suffix}")

    def add_max_snapshot_duration(self):
        """The longest snapshot, in nanoseconds."""
        return self._add(
            CounterType.SERVICE_MAX_SNAPSHOT_DURATION, f"Clustered service max snapshot duration in ns{self._suffix}")

    def add_snapshot_duration_exceeded(self, threshold_ns):
        """The counter of snapshots that took longer than the threshold (int, nanoseconds)."""
        return self._add(
            CounterType.SERVICE_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED,
            f"Clustered service max snapshot duration exceeded count: threshold={format_duration(threshold_ns)}"
            f"{self._suffix}")

    def close(self):
        """Give all counters back; those of a client that is closed are gone already. May be called twice."""
        while self._added:
            self._added.pop().close()

    cdef Counter _add(self, int32_t type_id, str label):
        cdef Counter counter = self._client.add_counter(type_id, self._key, label)
        self._added.append(counter)
        return counter


seal((ServiceCounters,))
