"""The counters by which a consensus module shows what it does; tools and services look for their types and keys.

Upstream: ConsensusModule.java (Context.conclude), ClusterCounters.java, RecoveryState.java. The key of each is the
cluster id (int32), except for the recovery state.
"""
import struct

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.common.aeron_defaults import CounterType
from container.common.quantities import format_duration
from container.common.sealed cimport seal
from container.errors import ClusterError
from container.transport.duration_tracker cimport DurationTracker
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counter, Counters
from container.transport.transport_seam cimport Client
from container.version import version_info

cdef int32_t MODULE_STATE_TYPE_ID = CounterType.CONSENSUS_MODULE_STATE


cdef bint _is_running(Counters counters, int32_t cluster_id) noexcept nogil:
    cdef int32_t counter_id, state, value
    cdef const uint8_t* key
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if state != COUNTER_ALLOCATED or counters.type_id(counter_id) != MODULE_STATE_TYPE_ID:
            continue
        key = counters.key(counter_id)
        memcpy(&value, key, sizeof(value))
        if value == cluster_id:
            return True
    return False


cdef class ConsensusModuleCounters:
    """The counters of the consensus module of a cluster; each is an attribute, and all are 0 at first.

    Args:
        client: whose driver is asked for each counter (Client); each call blocks until it has answered.
        cluster_id: which cluster of the driver it is (int).
        cycle_threshold_ns: a duty cycle that takes longer is counted (int).
        snapshot_duration_threshold_ns: so is a snapshot (int).
        is_standby_snapshot_accepted: whether there is a counter of what standbys tell (bool).
        snapshots_retained: how many snapshots are kept (int); unless that is 0, a counter shows where the log begins,
            and has the number in its key behind the cluster id (int32).

    Raises ClusterError when a consensus module of that cluster is there already, also one that was killed, until the
    driver's client liveness timeout is over; and what the client raises: RegistrationError when there is no room for a
    counter, DriverTimeoutError when the driver is gone. There is nothing to close then.
    """

    def __init__(self, Client client not None, int32_t cluster_id, *, int64_t cycle_threshold_ns,
                 int64_t snapshot_duration_threshold_ns, bint is_standby_snapshot_accepted=False,
                 int snapshots_retained=0):
        if _is_running(client.counters(), cluster_id):
            raise ClusterError(f"existing consensus module detected for clusterId={cluster_id}")
        self._client, self._added = client, []
        self._key, self._suffix = struct.pack("<i", cluster_id), f" - clusterId={cluster_id}"
        try:
            self.error_counter = self._add(
                CounterType.CONSENSUS_MODULE_ERROR_COUNT, "Cluster Errors", f" {version_info()}")
            self.module_state = self._add(MODULE_STATE_TYPE_ID, "Consensus Module state")
            self.election_state = self._add(CounterType.ELECTION_STATE, "Cluster election state")
            self.election_count = self._add(CounterType.ELECTION_COUNT, "Cluster election count")
            self.leadership_term_id = self._add(CounterType.LEADERSHIP_TERM_ID, "Cluster leadership term id")
            self.node_role = self._add(CounterType.NODE_ROLE, "Cluster node role")
            self.commit_position = self._add(CounterType.COMMIT_POSITION, "Cluster commit-pos:")
            self.control_toggle = self._add(CounterType.CONTROL_TOGGLE, "Cluster control toggle")
            self.node_control_toggle = self._add(CounterType.NODE_CONTROL_TOGGLE, "Node control toggle")
            self.snapshot_count = self._add(CounterType.SNAPSHOT_COUNTER, "Cluster snapshot count")
            self.timed_out_clients = self._add(CounterType.CLIENT_TIMEOUT_COUNT, "Cluster timed out client count")
            if is_standby_snapshot_accepted:
                self.standby_snapshots = self._add(
                    CounterType.STANDBY_SNAPSHOT_COUNTER, "Cluster standby snapshots received")
            if snapshots_retained > 0:
                self.retained_log_position = self._add(
                    CounterType.RETAINED_LOG_POSITION, "Cluster log start position",
                    f" snapshotsRetained={snapshots_retained}", struct.pack("<i", snapshots_retained))
            self.cycle = DurationTracker(
                self._add(CounterType.CONSENSUS_MODULE_MAX_CYCLE_TIME, "Cluster max cycle time in ns"),
                self._add(
                    CounterType.CONSENSUS_MODULE_CYCLE_TIME_THRESHOLD_EXCEEDED,
                    f"Cluster work cycle time exceeded count: threshold={format_duration(cycle_threshold_ns)}"),
                cycle_threshold_ns)
            self.snapshot_duration = DurationTracker(
                self._add(CounterType.TOTAL_MAX_SNAPSHOT_DURATION, "Total max snapshot duration in ns"),
                self._add(
                    CounterType.TOTAL_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED,
                    "Total max snapshot duration exceeded count: "
                    f"threshold={format_duration(snapshot_duration_threshold_ns)}"),
                snapshot_duration_threshold_ns)
        except BaseException:
            self.close()
            raise

    cdef Counter _add(self, int32_t type_id, str name, str end="", bytes key_end=b""):
        cdef Counter counter = self._client.add_counter(type_id, self._key + key_end, f"{name}{self._suffix}{end}")
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
        return f"<ConsensusModuleCounters{self._suffix} counters={len(self._added)}>"


cdef bytes recovery_state_key(
        int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t cluster_id, list recording_ids):
    """The key of the recovery state (type 204), which services wait for; recording ids are of their snapshots."""
    return struct.pack(
        f"<qqqii{len(recording_ids)}q", leadership_term_id, log_position, timestamp, cluster_id, len(recording_ids),
        *recording_ids)


cdef str recovery_state_label(int64_t leadership_term_id, int64_t log_position, int32_t cluster_id):
    return f"Cluster recovery: leadershipTermId={leadership_term_id} logPosition={log_position} clusterId={cluster_id}"


seal((ConsensusModuleCounters,))
