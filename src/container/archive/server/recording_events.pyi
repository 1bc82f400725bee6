# The types of container.archive.server.recording_events, which is compiled.
from typing import final

from container.transport.streams import Publication
from container.transport.transport_seam import Client

@final
class RecordingEvents:
    def __init__(self, client: Client, channel: str, stream_id: int) -> None: ...
    @property
    def publication(self) -> Publication: ...
    def started(
        self,
        recording_id: int,
        start_position: int,
        session_id: int,
        stream_id: int,
        channel: str,
        source_identity: str,
    ) -> int: ...
    def progress(self, recording_id: int, start_position: int, position: int) -> bool: ...
    def stopped(self, recording_id: int, start_position: int, stop_position: int) -> int: ...
    def close(self) -> int: ...
