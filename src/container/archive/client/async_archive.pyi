# The types of container.archive.client.async_archive, which is compiled.
from typing import final

from container.archive.client.archive_connection import ArchiveConnection, ArchiveRequest
from container.transport.streams import Publication
from container.transport.transport_seam import Client

@final
class AsyncArchive(ArchiveConnection):
    def __init__(
        self,
        client: Client,
        *,
        control_channel: str,
        control_stream_id: int,
        response_channel: str,
        response_stream_id: int,
        term_buffer_length: int,
        mtu_length: int,
        is_sparse: bool,
        client_name: str,
        encoded_credentials: bytes,
        message_timeout_ns: int,
    ) -> None: ...
    def poll(self) -> bool: ...
    def list_recording(self, recording_id: int) -> ArchiveRequest: ...
    def find_last_matching_recording(
        self, min_recording_id: int, channel_fragment: str, stream_id: int, session_id: int
    ) -> ArchiveRequest: ...
    def recording_position(self, recording_id: int) -> ArchiveRequest: ...
    def replay_token(self, recording_id: int) -> ArchiveRequest: ...
    def replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        channel: str,
        stream_id: int,
        file_io_max_length: int,
        replay_token: int = -1,
        publication: Publication | None = None,
    ) -> ArchiveRequest: ...
    def bounded_replay(
        self, recording_id: int, position: int, length: int, limit_counter_id: int, channel: str, stream_id: int
    ) -> ArchiveRequest: ...
    def start_recording(self, channel: str, stream_id: int, is_local: bool, is_auto_stop: bool) -> ArchiveRequest: ...
    def extend_recording(
        self, recording_id: int, channel: str, stream_id: int, is_local: bool, is_auto_stop: bool
    ) -> ArchiveRequest: ...
    def stop_recording(self, subscription_id: int) -> ArchiveRequest: ...
    def stop_recording_of_channel(self, channel: str, stream_id: int) -> ArchiveRequest: ...
    def stop_recording_by_identity(self, recording_id: int) -> ArchiveRequest: ...
    def stop_position(self, recording_id: int) -> ArchiveRequest: ...
    def truncate_recording(self, recording_id: int, position: int) -> ArchiveRequest: ...
    def purge_recording(self, recording_id: int) -> ArchiveRequest: ...
    def purge_segments(self, recording_id: int, new_start_position: int) -> ArchiveRequest: ...
    def replicate(
        self,
        source_recording_id: int,
        recording_id: int,
        source_channel: str,
        source_stream_id: int,
        stop_position: int,
        replication_channel: str,
        replication_session_id: int,
        source_response_channel: str = "",
        encoded_credentials: bytes = b"",
    ) -> ArchiveRequest: ...
    def stop_replication(self, replication_id: int) -> ArchiveRequest: ...
    def stop_all_replays(self, recording_id: int) -> ArchiveRequest: ...
    def stop_replay(self, replay_session_id: int) -> int: ...
