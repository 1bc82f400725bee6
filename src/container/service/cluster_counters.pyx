"""Finds and reads the counters through which the consensus module publishes its state.

Keys as in upstream's ClusterCounters and RecoveryState: the commit position (type 203) has its cluster id at offset 0;
the recovery state (204) has leadership term id, log position, timestamp (int64), cluster id, service count (int32), and
one snapshot recording id (int64) per service.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.common.aeron_defaults import CounterType
from container.errors import ClusterError
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counters

cdef enum:
    CLUSTER_ID_OFFSET = 24
    SERVICE_COUNT_OFFSET = 28
    RECORDING_IDS_OFFSET = 32
    MAX_SERVICE_COUNT = 10          # (112 - 32) / 8 recording ids fit in a counter's key
    NOT_YET_REGISTERED = 0          # upstream: CountersReader.DEFAULT_REGISTRATION_ID


cdef int32_t COMMIT_POSITION_TYPE_ID = CounterType.COMMIT_POSITION
cdef int32_t RECOVERY_STATE_TYPE_ID = CounterType.RECOVERY_STATE


cdef inline int64_t _get_int64(const uint8_t* key, int offset) noexcept nogil:
    cdef int64_t value
    memcpy(&value, key + offset, 8)
    return value


cdef inline int32_t _get_int32(const uint8_t* key, int offset) noexcept nogil:
    cdef int32_t value
    memcpy(&value, key + offset, 4)
    return value


cdef int32_t _find(Counters counters, int32_t type_id, int cluster_id_offset, int32_t cluster_id) noexcept nogil:
    cdef int32_t counter_id, state
    for counter_id in range(counters.capacity()):
        state = counters.state(counter_id)
        if state == COUNTER_UNUSED:
            break
        if (state == COUNTER_ALLOCATED and counters.type_id(counter_id) == type_id
                and _get_int32(counters.key(counter_id), cluster_id_offset) == cluster_id):
            return counter_id
    return NULL_COUNTER_ID


cdef int32_t find_commit_position(Counters counters, int32_t cluster_id) noexcept nogil:
    """Counter id of the commit position of a cluster, with a registration id, or NULL_COUNTER_ID."""
    cdef int32_t counter_id = _find(counters, COMMIT_POSITION_TYPE_ID, 0, cluster_id)
    # A driver shows a counter a moment before it writes the registration id, without which its end is not recognised.
    if counter_id != NULL_COUNTER_ID and counters.registration_id(counter_id) == NOT_YET_REGISTERED:
        return NULL_COUNTER_ID
    return counter_id


cdef int32_t find_recovery_state(Counters counters, int32_t cluster_id) noexcept nogil:
    """Counter id of the recovery state of a cluster, or NULL_COUNTER_ID."""
    return _find(counters, RECOVERY_STATE_TYPE_ID, CLUSTER_ID_OFFSET, cluster_id)


cdef const uint8_t* _recovery_key(Counters counters, int32_t counter_id) except NULL:
    cdef const uint8_t* key = counters.key(counter_id)
    if (key == NULL or counters.state(counter_id) != COUNTER_ALLOCATED
            or counters.type_id(counter_id) != RECOVERY_STATE_TYPE_ID):
        raise ClusterError(f"active counter not found {counter_id}: the recovery state went away while it was read; "
                           "was the consensus module restarted?")
    return key


cdef int read_recovery_state(Counters counters, int32_t counter_id, RecoveryState* state) except -1:
    """Read a recovery counter. Raise ClusterError when it is gone."""
    cdef const uint8_t* key = _recovery_key(counters, counter_id)
    state.leadership_term_id = _get_int64(key, 0)
    state.log_position = _get_int64(key, 8)
    state.timestamp = _get_int64(key, 16)
    state.service_count = _get_int32(key, SERVICE_COUNT_OFFSET)
    return 0


cdef int64_t snapshot_recording_id(Counters counters, int32_t counter_id, int32_t service_id) except? -1:
    """Recording id of a service's snapshot. Raises ClusterError for a service that the counter does not know."""
    cdef const uint8_t* key = _recovery_key(counters, counter_id)
    cdef int32_t service_count = _get_int32(key, SERVICE_COUNT_OFFSET)
    if not 0 <= service_id < min(service_count, <int32_t> MAX_SERVICE_COUNT):
        raise ClusterError(f"invalid serviceId {service_id} for serviceCount {service_count}: the consensus module's "
                           "service count and the services' ids must fit")
    return _get_int64(key, RECORDING_IDS_OFFSET + 8 * service_id)
