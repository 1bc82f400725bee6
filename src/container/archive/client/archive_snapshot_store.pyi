# The types of container.archive.client.archive_snapshot_store, which is compiled.
import os
from typing import final

from container.archive.client.archive_client_context import ArchiveClientContext
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client, SnapshotReader, SnapshotStore, SnapshotWriter

@final
class ArchiveSnapshotWriter(SnapshotWriter):
    """A snapshot that an archive records while it is published."""

    def __init__(self) -> None: ...
    @property
    def counter_id(self) -> int: ...
    def check(self) -> int: ...
    def recorded_position(self) -> int: ...
    def is_complete(self) -> bool: ...

@final
class ArchiveSnapshotReader(SnapshotReader):
    """A snapshot that an archive replays."""

    def __init__(self) -> None: ...
    def check(self) -> int: ...

@final
class ArchiveSnapshotStore(SnapshotStore):
    """Snapshots as recordings of the archive beside the consensus module."""

    def __init__(
        self,
        client: Client,
        context: ArchiveClientContext,
        *,
        snapshot_channel: str = ...,
        snapshot_stream_id: int = ...,
        replay_channel: str = ...,
        replay_stream_id: int = ...,
        cluster_dir: str | os.PathLike[str] | None = None,
    ) -> None: ...
    @property
    def context(self) -> ArchiveClientContext: ...
    @property
    def snapshot_channel(self) -> str: ...
    @property
    def snapshot_stream_id(self) -> int: ...
    @property
    def replay_channel(self) -> str: ...
    @property
    def replay_stream_id(self) -> int: ...
    def create(self, idle: IdleStrategy) -> ArchiveSnapshotWriter: ...
    @property
    def cluster_dir(self) -> str | os.PathLike[str] | None: ...
    def open(self, recording_id: int, idle: IdleStrategy) -> ArchiveSnapshotReader: ...
    def open_log(
        self, position: int, end_position: int, session_id: int, idle: IdleStrategy
    ) -> ArchiveSnapshotReader: ...
