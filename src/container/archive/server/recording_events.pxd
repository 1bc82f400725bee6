# The archive's published events about its recordings. Upstream: RecordingEventsProxy.java.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.streams cimport Publication


cdef class RecordingEvents:
    cdef readonly Publication publication
    # Nothing of these is raised: an event that is not sent at once is dropped.
    cpdef int started(
        self, int64_t recording_id, int64_t start_position, int32_t session_id, int32_t stream_id, str channel,
        str source_identity) except -1
    cpdef bint progress(self, int64_t recording_id, int64_t start_position, int64_t position) except -1
    cpdef int stopped(self, int64_t recording_id, int64_t start_position, int64_t stop_position) except -1
    cpdef int close(self) except -1
    cdef bint _send(self, const uint8_t* message, size_t length, int attempts) noexcept
