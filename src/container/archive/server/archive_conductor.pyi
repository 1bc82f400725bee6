# What type checkers see of container.archive.server.archive_conductor, which is compiled.
from collections.abc import Callable, Collection
from typing import final

from container.archive.authentication import Authenticator, AuthorisationService
from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.recorder import Recorder
from container.archive.server.replayer import Replayer
from container.archive.server.sessions.control_handler import ControlRequest
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.recording_subscription import RecordingSubscription
from container.archive.server.store.recording_store import RecordingStore
from container.settings.archive_table import ArchiveSettings
from container.transport.streams import Image
from container.transport.transport_seam import Client

@final
class ArchiveConductor:
    def __init__(
        self,
        client: Client,
        store: RecordingStore,
        settings: ArchiveSettings,
        *,
        archive_id: int,
        counters: ArchiveCounters,
        authenticator: Authenticator,
        authorisation_service: AuthorisationService,
        on_error: Callable[[Exception], object],
        replay_linger_ns: int,
        first_session_id: int,
        next_token: Callable[[], int],
        cluster_stream_ids: Collection[int] = (),
    ) -> None: ...
    @property
    def client(self) -> Client: ...
    @property
    def store(self) -> RecordingStore: ...
    @property
    def settings(self) -> ArchiveSettings: ...
    @property
    def recorder(self) -> Recorder: ...
    @property
    def replayer(self) -> Replayer: ...
    def start(self) -> None: ...
    def do_work(self) -> int: ...
    def close(self) -> None: ...
    def extend_for_replication(
        self,
        control_session: ControlSession,
        replication_id: int,
        recording_id: int,
        stream_id: int,
        channel: str,
        original_channel: str,
    ) -> RecordingSubscription: ...
    def stop_recording(self, subscription: RecordingSubscription) -> None: ...
    def on_connect(
        self,
        image: Image,
        *,
        correlation_id: int,
        response_stream_id: int,
        version: int = 0,
        response_channel: str,
        encoded_credentials: bytes = b"",
        client_info: str = "",
    ) -> None: ...
    def on_close_session(self, request: ControlRequest) -> None: ...
    def on_challenge_response(self, request: ControlRequest, encoded_credentials: bytes) -> None: ...
    def on_keep_alive(self, request: ControlRequest) -> None: ...
    def on_archive_id(self, request: ControlRequest) -> None: ...
    def on_start_recording(
        self, request: ControlRequest, *, stream_id: int, is_local: bool, auto_stop: bool = False, channel: str
    ) -> None: ...
    def on_extend_recording(
        self,
        request: ControlRequest,
        *,
        recording_id: int,
        stream_id: int,
        is_local: bool,
        auto_stop: bool = False,
        channel: str,
    ) -> None: ...
    def on_stop_recording(self, request: ControlRequest, stream_id: int, channel: str) -> None: ...
    def on_stop_recording_subscription(self, request: ControlRequest, subscription_id: int) -> None: ...
    def on_stop_recording_by_identity(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_replay(
        self,
        request: ControlRequest,
        *,
        recording_id: int,
        position: int,
        length: int,
        replay_stream_id: int,
        file_io_max_length: int = -1,
        replay_token: int = -1,
        replay_channel: str,
    ) -> None: ...
    def on_bounded_replay(
        self,
        request: ControlRequest,
        *,
        recording_id: int,
        position: int,
        length: int,
        limit_counter_id: int,
        replay_stream_id: int,
        file_io_max_length: int = -1,
        replay_token: int = -1,
        replay_channel: str,
    ) -> None: ...
    def on_stop_replay(self, request: ControlRequest, replay_session_id: int) -> None: ...
    def on_stop_all_replays(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_replay_token(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_list_recording(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_list_recordings(self, request: ControlRequest, from_recording_id: int, record_count: int) -> None: ...
    def on_list_recordings_for_uri(
        self,
        request: ControlRequest,
        from_recording_id: int,
        record_count: int,
        stream_id: int,
        channel: bytes,
    ) -> None: ...
    def on_find_last_matching_recording(
        self,
        request: ControlRequest,
        min_recording_id: int,
        session_id: int,
        stream_id: int,
        channel: bytes,
    ) -> None: ...
    def on_list_recording_subscriptions(
        self,
        request: ControlRequest,
        pseudo_index: int,
        subscription_count: int,
        apply_stream_id: bool,
        stream_id: int,
        channel: bytes,
    ) -> None: ...
    def on_get_start_position(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_get_recording_position(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_get_stop_position(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_get_max_recorded_position(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_truncate_recording(self, request: ControlRequest, recording_id: int, position: int) -> None: ...
    def on_purge_recording(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_detach_segments(self, request: ControlRequest, recording_id: int, new_start_position: int) -> None: ...
    def on_delete_detached_segments(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_purge_segments(self, request: ControlRequest, recording_id: int, new_start_position: int) -> None: ...
    def on_attach_segments(self, request: ControlRequest, recording_id: int) -> None: ...
    def on_migrate_segments(self, request: ControlRequest, src_recording_id: int, dst_recording_id: int) -> None: ...
    def on_update_channel(self, request: ControlRequest, recording_id: int, channel: str) -> None: ...
    def on_replicate(
        self,
        request: ControlRequest,
        *,
        src_recording_id: int,
        dst_recording_id: int,
        stop_position: int = -1,
        channel_tag_id: int = -1,
        subscription_tag_id: int = -1,
        src_control_stream_id: int,
        file_io_max_length: int = -1,
        replication_session_id: int = -1,
        src_control_channel: str,
        live_destination: str,
        replication_channel: str = "",
        encoded_credentials: bytes = b"",
        src_response_channel: str = "",
    ) -> None: ...
    def on_stop_replication(self, request: ControlRequest, replication_id: int) -> None: ...
