# The types of container.archive.server.sessions.replication_session, which is compiled.
from typing import final

from container.archive.client.async_archive import AsyncArchive
from container.archive.server.sessions.control_session import ControlSession
from container.archive.server.sessions.replication_host import ReplicationHost
from container.archive.server.sessions.replication_request import ReplicationRequest
from container.errors import ArchiveError

STATES: tuple[str, ...]

@final
class ReplicationSession:
    def __init__(
        self,
        host: ReplicationHost,
        control_session: ControlSession,
        *,
        replication_id: int,
        request: ReplicationRequest,
    ) -> None: ...
    @property
    def replication_id(self) -> int: ...
    @property
    def request(self) -> ReplicationRequest: ...
    @property
    def control_session(self) -> ControlSession: ...
    @property
    def destination_recording_id(self) -> int: ...
    @property
    def error(self) -> ArchiveError | None: ...
    @property
    def source(self) -> AsyncArchive | None: ...
    @property
    def state(self) -> str: ...
    @property
    def is_done(self) -> bool: ...
    def do_work(self) -> int: ...
    def stop(self) -> int: ...
    def close(self) -> int: ...
