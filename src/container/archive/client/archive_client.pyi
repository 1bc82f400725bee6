"""Types of `archive`."""

import os
from typing import Any, Final, Protocol, Self, final

from container.transport.idle_strategy import IdleStrategy
from container.transport.seam import Client, SnapshotReader, SnapshotStore, SnapshotWriter

class _CredentialsSupplier(Protocol):
    def encoded_credentials(self) -> bytes: ...
    def on_challenge(self, encoded_challenge: bytes, /) -> bytes: ...

@final
class ArchiveClientContext:
    """Where an archive is and how to talk to it (upstream's ``AeronArchive.Context``)."""

    control_channel: Final[str]
    control_stream_id: Final[int]
    response_channel: Final[str]
    response_stream_id: Final[int]
    message_timeout_ns: Final[int]
    message_retry_attempts: Final[int]
    term_buffer_length: Final[int]
    term_buffer_sparse: Final[bool]
    mtu_length: Final[int]
    client_name: Final[str]
    credentials_supplier: Final[_CredentialsSupplier | None]

    def __init__(
        self,
        *,
        control_channel: str = ...,
        control_stream_id: int = ...,
        response_channel: str = ...,
        response_stream_id: int = ...,
        message_timeout_ns: int = ...,
        message_retry_attempts: int = ...,
        term_buffer_length: int = ...,
        term_buffer_sparse: bool = ...,
        mtu_length: int = ...,
        client_name: str = ...,
        credentials_supplier: _CredentialsSupplier | None = ...,
    ) -> None: ...
    @classmethod
    def for_service(cls, cluster_id: int, service_id: int, *, control_channel: str = ..., **settings: Any) -> Self: ...
    def stream_channels(self, session_id: int) -> list[str]: ...

@final
class ArchiveClient:
    """A control session with an archive, made by :meth:`connect` and ended by :meth:`close`."""

    def __init__(self) -> None: ...
    @staticmethod
    def connect(client: Client, context: ArchiveClientContext, idle: IdleStrategy) -> ArchiveClient: ...
    @property
    def context(self) -> ArchiveClientContext: ...
    @property
    def control_session_id(self) -> int: ...
    @property
    def archive_id(self) -> int: ...
    def start_recording(self, channel: str, stream_id: int) -> int: ...
    def start_replay(self, recording_id: int, position: int, length: int, channel: str, stream_id: int) -> int: ...
    def stop_position(self, recording_id: int) -> int: ...
    def check_for_error_response(self) -> int: ...
    def close(self) -> int: ...

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
