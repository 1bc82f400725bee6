# A client of an archive for those who take turns anyway, which never waits.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveConnection, ArchiveRequest
from container.transport.streams cimport Publication


cdef class AsyncArchive(ArchiveConnection):
    cpdef bint poll(self) except -1
    cpdef ArchiveRequest list_recording(self, int64_t recording_id)
    cpdef ArchiveRequest find_last_matching_recording(
        self, int64_t min_recording_id, str channel_fragment, int32_t stream_id, int32_t session_id)
    cpdef ArchiveRequest recording_position(self, int64_t recording_id)
    cpdef ArchiveRequest replay_token(self, int64_t recording_id)
    cpdef ArchiveRequest replay(
        self, int64_t recording_id, int64_t position, int64_t length, str channel, int32_t stream_id,
        int32_t file_io_max_length, int64_t replay_token=*, Publication publication=*)
    cpdef ArchiveRequest bounded_replay(
        self, int64_t recording_id, int64_t position, int64_t length, int32_t limit_counter_id, str channel,
        int32_t stream_id)
    cpdef ArchiveRequest start_recording(self, str channel, int32_t stream_id, bint is_local, bint is_auto_stop)
    cpdef ArchiveRequest extend_recording(
        self, int64_t recording_id, str channel, int32_t stream_id, bint is_local, bint is_auto_stop)
    cpdef ArchiveRequest stop_recording(self, int64_t subscription_id)
    cpdef ArchiveRequest stop_recording_by_identity(self, int64_t recording_id)
    cpdef ArchiveRequest stop_position(self, int64_t recording_id)
    cpdef ArchiveRequest truncate_recording(self, int64_t recording_id, int64_t position)
    cpdef ArchiveRequest purge_recording(self, int64_t recording_id)
    cpdef ArchiveRequest purge_segments(self, int64_t recording_id, int64_t new_start_position)
    cpdef ArchiveRequest replicate(
        self, int64_t source_recording_id, int64_t recording_id, str source_channel, int32_t source_stream_id,
        int64_t stop_position, str replication_channel, int32_t replication_session_id,
        str source_response_channel=*, bytes encoded_credentials=*)
    cpdef ArchiveRequest stop_replication(self, int64_t replication_id)
    cpdef ArchiveRequest stop_all_replays(self, int64_t recording_id)
    cpdef int stop_replay(self, int64_t replay_session_id) except -1
