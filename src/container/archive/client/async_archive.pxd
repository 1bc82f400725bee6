# A client of an archive that answers one request at a time, and never waits.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveConnection, ArchiveRequest
from container.transport.streams cimport Publication


cdef class AsyncArchive(ArchiveConnection):
    cdef readonly int64_t request_id        # correlation id of the last request; errors that come later have it too
    cdef readonly int64_t relevant_id       # of the last answer
    cdef readonly object descriptor         # of the last answer: RecordingDescriptor; None: there is none
    cdef ArchiveRequest _asked              # None: its answer was taken

    cpdef bint poll(self) except -1
    cpdef int list_recording(self, int64_t recording_id) except -1
    cpdef int recording_position(self, int64_t recording_id) except -1
    cpdef int replay_token(self, int64_t recording_id) except -1
    cpdef int replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id,
        int32_t file_io_max_length, int64_t replay_token=*, Publication publication=*) except -1
    cpdef int start_recording(self, str channel, int32_t stream_id, bint is_local, bint is_auto_stop) except -1
    cpdef int extend_recording(
        self, int64_t recording_id, str channel, int32_t stream_id, bint is_local, bint is_auto_stop) except -1
    cpdef int stop_recording(self, int64_t subscription_id) except -1
    cpdef int stop_recording_by_identity(self, int64_t recording_id) except -1
    cpdef int stop_position(self, int64_t recording_id) except -1
    cpdef int purge_recording(self, int64_t recording_id) except -1
    cpdef int purge_segments(self, int64_t recording_id, int64_t new_start_position) except -1
    cpdef int stop_replay(self, int64_t replay_session_id) except -1
    cdef bint is_waiting(self) noexcept
    cdef int _begin_request(
        self, str name, str what, dict fields, int32_t wanted=*, Publication publication=*) except -1
