# The types of container.archive.server.sessions.recording_subscription, which is compiled.
from typing import final

from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.recording_session import RecordingSession
from container.errors import ArchiveError
from container.transport.streams import Subscription
from container.transport.transport_seam import Client

@final
class RecordingSubscription:
    def __init__(
        self,
        client: Client,
        control_session: ControlSession,
        correlation_id: int,
        *,
        key: str,
        channel: str,
        stream_id: int,
        stripped_channel: str,
        original_channel: str,
        is_auto_stop: bool,
        extended_recording_id: int = -1,
    ) -> None: ...
    @property
    def key(self) -> str: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def stripped_channel(self) -> str: ...
    @property
    def original_channel(self) -> str: ...
    @property
    def is_auto_stop(self) -> bool: ...
    @property
    def extended_recording_id(self) -> int: ...
    @property
    def control_session(self) -> ControlSession: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def subscription(self) -> Subscription | None: ...
    @property
    def recording(self) -> RecordingSession | None: ...
    @property
    def error(self) -> ArchiveError | None: ...
    @property
    def recording_count(self) -> int: ...
    @property
    def is_ended(self) -> bool: ...
    @property
    def subscription_id(self) -> int: ...
    def close(self) -> int: ...
