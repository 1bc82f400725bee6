"""Waits of a consensus module, as generators that never block."""

from collections.abc import Callable, Generator
from typing import Any, final

from container.archive.client.archive_connection import ArchiveRequest
from container.archive.client.async_archive import AsyncArchive
from container.transport.clocks import Clock
from container.transport.counters import Counters
from container.transport.streams import Image, PendingAdd, Subscription
from container.transport.transport_seam import Client

@final
class Deadline:
    """How long something may take: ``limit_ns`` from each ``begin`` on."""

    def __init__(self, clock: Clock, limit_ns: int) -> None: ...
    def begin(self, what: str) -> int: ...
    def check(self) -> int: ...

@final
class ActiveRecording:
    """A recording in progress, and the counter that shows how far it is."""

    request: ArchiveRequest
    subscription_id: int
    recording_id: int
    counter_id: int
    registration_id: int

@final
class ReplayImage:
    """A replay in progress, from its start position on."""

    request: ArchiveRequest
    replay_session_id: int
    image: Image
    subscription: Subscription

def connected(archive: AsyncArchive) -> Generator[None]: ...
def answer(archive: AsyncArchive, request: ArchiveRequest) -> Generator[None, None, int]: ...
def added(pending: PendingAdd) -> Generator[None, None, Any]: ...
def start_recording(
    archive: AsyncArchive,
    counters: Counters,
    deadline: Deadline,
    *,
    channel: str,
    stream_id: int,
    session_id: int,
    extended_recording_id: int,
    is_local: bool,
) -> Generator[None, None, ActiveRecording]: ...
def stopped(archive: AsyncArchive, deadline: Deadline, recording_id: int) -> Generator[None, None, int]: ...
def try_recording(archive: AsyncArchive, *, channel: str, stream_id: int) -> Generator[None]: ...
def begin_replay(
    archive: AsyncArchive,
    client: Client,
    deadline: Deadline,
    *,
    recording_id: int,
    position: int,
    length: int,
    channel: str,
    stream_id: int,
) -> Generator[None, None, ReplayImage]: ...
def without_replays(
    archive: AsyncArchive, deadline: Deadline, recording_id: int, ask: Callable[[], ArchiveRequest]
) -> Generator[None, None, int]: ...
def record_snapshot(
    archive: AsyncArchive, client: Client, deadline: Deadline, *, channel: str, stream_id: int, messages: list[bytes]
) -> Generator[None, None, tuple[int, int]]: ...
