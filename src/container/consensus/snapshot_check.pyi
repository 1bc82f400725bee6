"""A copied snapshot, read up to its end marker: whether it is the one that its owner has named."""

from collections.abc import Generator

from container.archive.client.async_archive import AsyncArchive
from container.consensus.snapshot_copy import NamedSnapshot
from container.consensus.steps import Deadline
from container.transport.transport_seam import Client

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
