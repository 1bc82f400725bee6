# The types of container.archive.server.replayer, which is compiled.
from collections.abc import Callable
from typing import final

from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.recorder import Recorder
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.replay_request import ReplayRequest
from container.archive.server.sessions.replay_session import ReplaySession
from container.archive.server.store.recording_store import RecordingStore
from container.transport.transport_seam import Client

@final
class PendingReplay: ...

@final
class Replayer:
    def __init__(
        self,
        client: Client,
        store: RecordingStore,
        recorder: Recorder,
        counters: ArchiveCounters,
        on_error: Callable[[Exception], object],
        *,
        max_concurrent_replays: int,
        buffer_length: int,
        linger_ns: int,
        connect_timeout_ns: int,
    ) -> None: ...
    def start(
        self,
        control_session: ControlSession,
        correlation_id: int,
        request: ReplayRequest,
        stream_id: int,
        channel: str,
        image_correlation_id: int | None = None,
        limit_counter_id: int | None = None,
    ) -> int: ...
    def stop(self, replay_session_id: int) -> int: ...
    def session_of(self, replay_session_id: int) -> ReplaySession | None: ...
    def stop_all(self, recording_id: int) -> int: ...
    def lowest_position(self, recording_id: int) -> int | None: ...
    def close(self) -> int: ...
