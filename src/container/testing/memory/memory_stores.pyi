# The types of container.testing.memory.memory_stores, which is compiled.

from collections.abc import Iterable
from typing import Literal, final

from container.testing.memory.memory_log import Frame, MemoryLog
from container.testing.memory.memory_transport import MemoryClient
from container.transport.transport_seam import MarkFile, SnapshotReader, SnapshotStore, SnapshotWriter

@final
class MemoryRecording:
    @property
    def log(self) -> MemoryLog: ...
    recorded_position: int
    def __call__(self) -> None: ...

@final
class MemorySnapshotWriter(SnapshotWriter): ...

@final
class MemorySnapshotReader(SnapshotReader): ...

@final
class MemorySnapshotStore(SnapshotStore):
    def __init__(
        self,
        client: MemoryClient,
        *,
        snapshot_channel: str = "aeron:ipc?alias=snapshot",
        snapshot_stream_id: int = 106,
        replay_channel: str = "aeron:ipc",
        replay_stream_id: int = 103,
        first_recording_id: int = 7,
    ) -> None: ...
    @property
    def snapshot_channel(self) -> str: ...
    @property
    def snapshot_stream_id(self) -> int: ...
    @property
    def replay_channel(self) -> str: ...
    @property
    def replay_stream_id(self) -> int: ...
    def record_log(self, log: MemoryLog) -> None: ...
    @property
    def recording_ids(self) -> list[int]: ...
    def script(
        self,
        operation: Literal["create", "open", "open_log", "check", "complete", "close"],
        steps: Iterable[BaseException | int | None],
    ) -> None: ...
    def add_recording(
        self,
        messages: Iterable[bytes | tuple[bytes, int]],
        *,
        term_length: int = 65_536,
        mtu_length: int = 1408,
        recording_id: int | None = None,
    ) -> int: ...
    def recording(self, recording_id: int) -> MemoryRecording: ...
    def delete_recording(self, recording_id: int) -> None: ...
    def messages(self, recording_id: int) -> list[bytes]: ...
    def frames(self, recording_id: int) -> list[Frame]: ...

@final
class MemoryMarkFile(MarkFile):
    error: BaseException | None
    @property
    def activity_timestamps(self) -> list[int]: ...
    @property
    def member_ids(self) -> list[int]: ...
    @property
    def member_id(self) -> int: ...
    @property
    def is_terminated(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
