# The counters of a consensus module.
from libc.stdint cimport int32_t, int64_t

from container.transport.duration_tracker cimport DurationTracker
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client

cdef enum Toggle:                                   # of control_toggle: what a tool wants of the cluster
    TOGGLE_INACTIVE
    TOGGLE_NEUTRAL
    TOGGLE_SUSPEND
    TOGGLE_RESUME
    TOGGLE_SNAPSHOT
    TOGGLE_SHUTDOWN
    TOGGLE_ABORT
    TOGGLE_STANDBY_SNAPSHOT

cdef enum:                                          # of node_control_toggle, beside INACTIVE and NEUTRAL
    NODE_TOGGLE_VALIDATE_RECORDING_LOG = 3


cdef class ConsensusModuleCounters:
    cdef Client _client
    cdef bytes _key
    cdef str _suffix
    cdef list _added
    cdef readonly Counter error_counter
    cdef readonly Counter module_state
    cdef readonly Counter election_state
    cdef readonly Counter election_count
    cdef readonly Counter leadership_term_id
    cdef readonly Counter node_role
    cdef readonly Counter commit_position
    cdef readonly Counter control_toggle
    cdef readonly Counter node_control_toggle
    cdef readonly Counter snapshot_count
    cdef readonly Counter timed_out_clients
    cdef readonly Counter standby_snapshots         # None: they are not accepted
    cdef readonly Counter retained_log_position     # None: all snapshots are kept
    cdef readonly DurationTracker cycle
    cdef readonly DurationTracker snapshot_duration
    cdef Counter _add(self, int32_t type_id, str name, str end=*, bytes key_end=*)
    cpdef int close(self) except -1


cdef bytes recovery_state_key(
    int64_t leadership_term_id, int64_t log_position, int64_t timestamp, int32_t cluster_id, list recording_ids)
cdef str recovery_state_label(int64_t leadership_term_id, int64_t log_position, int32_t cluster_id)
