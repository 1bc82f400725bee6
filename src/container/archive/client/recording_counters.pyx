"""Finds the counters by which an archive shows how far its recordings are (type 100). Upstream: RecordingPos.java.

The key has the recording id (int64), the session id and the length of the source identity (int32), that text, and the
archive's id behind it, not aligned.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container.common.aeron_defaults import CounterType
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_UNUSED, Counters
from container.transport.frames cimport NULL_VALUE

cdef int32_t RECORDING_POSITION_TYPE_ID = CounterType.RECORDING_POSITION

cdef enum:
    RECORDING_ID_OFFSET = 0
    SESSION_ID_OFFSET = 8
    SOURCE_IDENTITY_LENGTH_OFFSET = 12
    SOURCE_IDENTITY_OFFSET = 16
    KEY_LENGTH = 112


cdef inline int32_t _int32(const uint8_t* key, int offset) noexcept nogil:
    cdef int32_t value
    memcpy(&value, key + offset, sizeof(value))
    return value


cdef inline int64_t _int64(const uint8_t* key, int offset) noexcept nogil:
    cdef int64_t value
    memcpy(&value, key + offset, sizeof(value))
    return value


cdef bint _is_of_archive(const uint8_t* key, int64_t archive_id) noexcept nogil:
    cdef int32_t length = _int32(key, SOURCE_IDENTITY_LENGTH_OFFSET)
    return archive_id == NULL_VALUE or (
        0 <= length <= KEY_LENGTH - SOURCE_IDENTITY_OFFSET - 8
        and _int64(key, SOURCE_IDENTITY_OFFSET + length) == archive_id)


cdef const uint8_t* _key_of(Counters counters, int32_t counter_id) noexcept nogil:
    # NULL for a counter that is not a recording's.
    if counters.state(counter_id) != COUNTER_ALLOCATED or counters.type_id(counter_id) != RECORDING_POSITION_TYPE_ID:
        return NULL
    return counters.key(counter_id)


cdef int32_t find_by_session(Counters counters, int32_t session_id, int64_t archive_id) noexcept nogil:
    """The counter of the recording of a session by an archive, -1 for any archive; NULL_COUNTER_ID: there is none."""
    cdef const uint8_t* key
    cdef int32_t counter_id
    for counter_id in range(counters.capacity()):
        if counters.state(counter_id) == COUNTER_UNUSED:
            break
        key = _key_of(counters, counter_id)
        if key != NULL and _int32(key, SESSION_ID_OFFSET) == session_id and _is_of_archive(key, archive_id):
            return counter_id
    return NULL_COUNTER_ID


cdef int32_t find_by_recording(Counters counters, int64_t recording_id, int64_t archive_id) noexcept nogil:
    """The counter of an archive's recording, while that is active; NULL_COUNTER_ID: there is none."""
    cdef const uint8_t* key
    cdef int32_t counter_id
    for counter_id in range(counters.capacity()):
        if counters.state(counter_id) == COUNTER_UNUSED:
            break
        key = _key_of(counters, counter_id)
        if key != NULL and _int64(key, RECORDING_ID_OFFSET) == recording_id and _is_of_archive(key, archive_id):
            return counter_id
    return NULL_COUNTER_ID


cdef int64_t recording_id_of(Counters counters, int32_t counter_id) noexcept nogil:
    cdef const uint8_t* key = _key_of(counters, counter_id)
    return NULL_VALUE if key == NULL else _int64(key, RECORDING_ID_OFFSET)
