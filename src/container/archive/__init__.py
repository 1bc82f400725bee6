"""An archive: a native one, what it is made of, and the client of one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.archive.client.aeron_archive import AeronArchive
    from container.archive.client.archive_client_context import ArchiveClientContext
    from container.archive.client.archive_events import (
        NULL_POSITION,
        NULL_TIMESTAMP,
        REPLAY_ALL_AND_FOLLOW,
        REPLAY_ALL_AND_STOP,
        RecordingSignal,
        RecordingSignalEvent,
        RecordingSubscriptionDescriptor,
        SourceLocation,
    )
    from container.archive.client.archive_streams import RecordedPublication, Replay
    from container.archive.client.async_aeron_archive import AsyncAeronArchive
    from container.archive.client.replay_merge import ReplayMerge
    from container.archive.server.archive_context import ArchiveContext
    from container.archive.server.native_archive import Archive
    from container.files.catalog import RecordingDescriptor

__all__ = [
    "NULL_POSITION",
    "NULL_TIMESTAMP",
    "REPLAY_ALL_AND_FOLLOW",
    "REPLAY_ALL_AND_STOP",
    "AeronArchive",
    "Archive",
    "ArchiveClientContext",
    "ArchiveContext",
    "AsyncAeronArchive",
    "RecordedPublication",
    "RecordingDescriptor",
    "RecordingSignal",
    "RecordingSignalEvent",
    "RecordingSubscriptionDescriptor",
    "Replay",
    "ReplayMerge",
    "SourceLocation",
]

_CLIENT = "container.archive.client"
_EVENTS = f"{_CLIENT}.archive_events"
_LAZY = {
    "AeronArchive": f"{_CLIENT}.aeron_archive",
    "Archive": "container.archive.server.native_archive",
    "ArchiveClientContext": f"{_CLIENT}.archive_client_context",
    "ArchiveContext": "container.archive.server.archive_context",
    "AsyncAeronArchive": f"{_CLIENT}.async_aeron_archive",
    "RecordedPublication": f"{_CLIENT}.archive_streams",
    "RecordingDescriptor": "container.files.catalog",
    "Replay": f"{_CLIENT}.archive_streams",
    "ReplayMerge": f"{_CLIENT}.replay_merge",
} | dict.fromkeys(
    (
        "NULL_POSITION",
        "NULL_TIMESTAMP",
        "REPLAY_ALL_AND_FOLLOW",
        "REPLAY_ALL_AND_STOP",
        "RecordingSignal",
        "RecordingSignalEvent",
        "RecordingSubscriptionDescriptor",
        "SourceLocation",
    ),
    _EVENTS,
)


def __getattr__(name: str) -> Any:
    """Load the module of a public name when the name is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names for completion, with those that are not loaded yet."""
    return sorted({*globals(), *__all__})
