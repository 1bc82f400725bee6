# The types of container.archive.server.sessions.replay_session, which is compiled.

from typing import final

from container.archive.server.sessions.recording_session import RecordingSession
from container.archive.server.sessions.replay_request import ReplayRange
from container.archive.server.store.segment_reader import SegmentReader
from container.errors import ArchiveError
from container.transport.clocks import Clock
from container.transport.counters import Counters
from container.transport.streams import Publication

@final
class ReplaySession:
    def __init__(
        self,
        replay_session_id: int,
        correlation_id: int,
        reader: SegmentReader,
        publication: Publication,
        *,
        replay_range: ReplayRange,
        recording: RecordingSession | None = None,
        stop_position: int = -1,
        counters: Counters | None = None,
        counter_id: int = -1,
        counter_registration_id: int = -1,
        connect_deadline_ns: int,
        clock: Clock,
        read_length: int = 0,
        owner: object = None,
    ) -> None: ...
    @property
    def replay_session_id(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def recording_id(self) -> int: ...
    @property
    def owner(self) -> object: ...
    @property
    def publication(self) -> Publication: ...
    @property
    def error(self) -> ArchiveError | None: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def read_time_ns(self) -> int: ...
    @property
    def longest_read_ns(self) -> int: ...
    @property
    def is_done(self) -> bool: ...
    @property
    def position(self) -> int: ...
    def take_response(self) -> bool: ...
    def do_work(self) -> int: ...
    def abort(self) -> int: ...
