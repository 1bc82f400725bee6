# The types of container.archive.server.recorder, which is compiled.
from collections.abc import Callable
from typing import final

from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.recording_events import RecordingEvents
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.recording_subscription import RecordingSubscription
from container.archive.server.store.recording_store import RecordingStore
from container.transport.transport_seam import Client

@final
class PendingRecording: ...

@final
class Recorder:
    def __init__(
        self,
        client: Client,
        store: RecordingStore,
        counters: ArchiveCounters,
        on_error: Callable[[Exception], object],
        *,
        archive_id: int,
        max_concurrent_recordings: int,
        block_length_limit: int,
        events: RecordingEvents | None = None,
    ) -> None: ...
    @property
    def by_key(self) -> dict[str, RecordingSubscription]: ...
    def start(
        self,
        control_session: ControlSession,
        correlation_id: int,
        stream_id: int,
        is_local: bool,
        is_auto_stop: bool,
        channel: str,
    ) -> RecordingSubscription: ...
    def extend(
        self,
        control_session: ControlSession,
        correlation_id: int,
        recording_id: int,
        stream_id: int,
        is_local: bool,
        is_auto_stop: bool,
        channel: str,
    ) -> RecordingSubscription: ...
    def stop(self, subscription: RecordingSubscription) -> int: ...
    def stop_by_channel(self, stream_id: int, channel: str) -> int: ...
    def subscription_of(self, subscription_id: int) -> RecordingSubscription | None: ...
    def stop_by_subscription_id(self, subscription_id: int) -> int: ...
    def stop_by_recording_id(self, recording_id: int) -> bool: ...
    def close(self) -> int: ...
