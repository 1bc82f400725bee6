# The counters by which archives show how far their recordings are.
from libc.stdint cimport int32_t, int64_t

from container.transport.counters cimport Counters

cdef enum:
    NULL_COUNTER_ID = -1

cdef int32_t find_by_session(Counters counters, int32_t session_id, int64_t archive_id) noexcept nogil
cdef int32_t find_by_recording(Counters counters, int64_t recording_id, int64_t archive_id) noexcept nogil
cdef int64_t recording_id_of(Counters counters, int32_t counter_id) noexcept nogil      # -1: there is none
