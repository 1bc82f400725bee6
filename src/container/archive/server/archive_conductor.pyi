# The types of container.archive.server.archive_conductor, which is compiled.
from collections.abc import Callable, Collection
from typing import final

from container.archive.authentication import Authenticator, AuthorisationService
from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.recorder import Recorder
from container.archive.server.replayer import Replayer
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.recording_subscription import RecordingSubscription
from container.archive.server.store.recording_store import RecordingStore
from container.settings.archive_table import ArchiveSettings
from container.transport.transport_seam import Client

class Conductor:
    def do_work(self) -> int: ...
    def record(self) -> int: ...

@final
class ArchiveConductor(Conductor):
    # The methods of ControlHandler, which the adapter alone calls, are left out.
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
    def record(self) -> int: ...
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
