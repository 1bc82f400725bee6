"""The counters by which a backup shows what it does; tools look for their types. Upstream: ClusterBackup.java.

The key of each is the cluster id (int32). An operator may set the deadline of the next query.
"""
import struct

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from container.common.aeron_defaults import CounterType
from container.common.sealed cimport seal
from container.errors import ClusterError
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counter, Counters
from container.transport.transport_seam cimport Client
from container.version import version_info

cdef int32_t STATE_TYPE_ID = CounterType.BACKUP_STATE


def has_backup(Client client not None, int32_t cluster_id):
    """Return whether the client's driver has the counters of a backup with that cluster id (int) (bool)."""
    return _has_backup(client.counters(), cluster_id)


cdef bint _has_backup(Counters counters, int32_t cluster_id) noexcept nogil:
    cdef int32_t counter_id, state, value
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if state == COUNTER_ALLOCATED and counters.type_id(counter_id) == STATE_TYPE_ID:
            memcpy(&value, counters.key(counter_id), sizeof(value))
            if value == cluster_id:
                return True
    return False


cdef class BackupCounters:
    """The counters of a backup: container.backup.backup_machine.BackupDisplay.

    Args:
        client: whose driver is asked for each counter (Client); each call blocks until it has answered.
        cluster_id: which cluster of the driver it is (int).

    Raises ClusterError when a backup of that cluster id is there already, also one that was killed, until the driver's
    client liveness timeout is over; and what the client raises. There is nothing to close then.
    """

    def __init__(self, Client client not None, int32_t cluster_id):
        if _has_backup(client.counters(), cluster_id):
            raise ClusterError(
                f"this media driver has a backup with clusterId={cluster_id}, or one that was killed a moment ago: "
                "give each backup of a driver its own cluster_id")
        self._client, self._added = client, []
        self._key, self._suffix = struct.pack("<i", cluster_id), f" - clusterId={cluster_id}"
        try:
            self.error_counter = self._add(
                CounterType.BACKUP_ERROR_COUNT, "ClusterBackup Errors", f" {version_info()}")
            self.state = self._add(STATE_TYPE_ID, "ClusterBackup State")
            self.live_log_position = self._add(
                CounterType.BACKUP_LIVE_LOG_POSITION, "ClusterBackup live log position")
            self.next_query_deadline = self._add(
                CounterType.BACKUP_QUERY_DEADLINE, "ClusterBackup next query deadline in ms")
            self.snapshots = self._add(CounterType.BACKUP_SNAPSHOT_COUNTER, "ClusterBackup snapshots retrieved")
        except BaseException:
            self.close()
            raise

    def show_state(self, int64_t state):
        """The state that begins."""
        self.state.set(state)

    def show_position(self, int64_t position):
        """How far the log is recorded, in bytes."""
        self.live_log_position.set(position)

    def show_next_query(self, int64_t epoch_ms):
        """When a member is asked next."""
        self.next_query_deadline.set(epoch_ms)

    def next_query_ms(self):
        """When a member is asked next (int, epoch milliseconds): as it was shown, or as an operator has set it."""
        return self.next_query_deadline.get()

    def show_snapshots(self):
        """Snapshots were copied, and are in the recording log."""
        self.snapshots.increment()

    cdef Counter _add(self, int32_t type_id, str name, str end=""):
        cdef Counter counter = self._client.add_counter(type_id, self._key, f"{name}{self._suffix}{end}")
        self._added.append(counter)
        return counter

    cpdef int close(self) except -1:
        """Give all counters back; those of a client that is closed are gone already. May be called twice."""
        cdef Counter counter
        while self._added:
            counter = self._added.pop()
            counter.close()
        return 0

    def __repr__(self):
        return f"<BackupCounters{self._suffix} counters={len(self._added)}>"


seal((BackupCounters,))
