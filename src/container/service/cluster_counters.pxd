# Finds and reads the counters through which the consensus module publishes its state.
from libc.stdint cimport int32_t, int64_t

from container.transport.counters cimport Counters

cdef enum:
    NULL_COUNTER_ID = -1


cdef struct RecoveryState:
    int64_t leadership_term_id
    int64_t log_position
    int64_t timestamp
    int32_t service_count


cdef int32_t find_commit_position(Counters counters, int32_t cluster_id) noexcept nogil
cdef int32_t find_recovery_state(Counters counters, int32_t cluster_id) noexcept nogil
cdef int read_recovery_state(Counters counters, int32_t counter_id, RecoveryState* state) except -1
cdef int64_t snapshot_recording_id(Counters counters, int32_t counter_id, int32_t service_id) except? -1
