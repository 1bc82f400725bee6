# The counters by which an archive shows what it does. Upstream: ArchiveCounters.java, RecordingPos.java.
from libc.stdint cimport int32_t, int64_t

from container.transport.duration_tracker cimport DurationTracker
from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client


cdef class ArchiveCounters:
    cdef readonly int64_t archive_id
    cdef readonly Counter error_counter
    cdef readonly Counter control_sessions
    cdef readonly Counter recording_sessions
    cdef readonly Counter replay_sessions
    cdef readonly Counter recorder_max_write_time       # nanoseconds, as all times
    cdef readonly Counter recorder_total_write_bytes
    cdef readonly Counter recorder_total_write_time
    cdef readonly Counter replayer_max_read_time
    cdef readonly Counter replayer_total_read_bytes
    cdef readonly Counter replayer_total_read_time
    cdef readonly DurationTracker conductor_cycle
    cdef Client _client
    cdef list _added                                    # Counter
    cpdef int close(self) except -1
    cdef Counter _add(self, int32_t type_id, str name, str end=*)


cpdef bytes recording_position_key(
    int64_t recording_id, int32_t session_id, str source_identity, int64_t archive_id)
cpdef str recording_position_label(
    int64_t recording_id, int32_t session_id, int32_t stream_id, str stripped_channel, int64_t archive_id)
