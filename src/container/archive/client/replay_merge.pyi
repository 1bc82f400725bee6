# The types of container.archive.client.replay_merge, which is compiled.
from collections.abc import Callable
from types import TracebackType
from typing import Self, final

from container.archive.client.archive_connection import ArchiveConnection

STATES: tuple[str, ...]

@final
class ReplayMerge:
    def __init__(
        self,
        connection: ArchiveConnection,
        *,
        channel: str,
        stream_id: int,
        replay_channel: str,
        replay_destination: str,
        live_destination: str,
        recording_id: int,
        start_position: int,
        progress_timeout_ns: int = 5_000_000_000,
    ) -> None: ...
    @property
    def recording_id(self) -> int: ...
    @property
    def start_position(self) -> int: ...
    @property
    def is_live_added(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def is_merged(self) -> bool: ...
    @property
    def has_failed(self) -> bool: ...
    @property
    def position(self) -> int: ...
    def poll(self, on_message: Callable[[bytes, int], object], limit: int = 10) -> int: ...
    def do_work(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
