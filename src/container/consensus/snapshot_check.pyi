"""A copied snapshot, read up to its end marker: whether it is the one that its owner has named."""

from collections.abc import Generator
from typing import Protocol

from container.archive.client.async_archive import AsyncArchive
from container.consensus.steps import Deadline
from container.transport.transport_seam import Client

class NamedSnapshot(Protocol):
    """A snapshot as its owner names it."""

    @property
    def recording_id(self) -> int: ...
    @property
    def leadership_term_id(self) -> int: ...
    @property
    def log_position(self) -> int: ...
    @property
    def service_id(self) -> int: ...

def check_snapshot(
    archive: AsyncArchive,
    client: Client,
    deadline: Deadline,
    *,
    recording_id: int,
    stop_position: int,
    channel: str,
    stream_id: int,
    snapshot: NamedSnapshot,
    named: str,
) -> Generator[None]: ...
