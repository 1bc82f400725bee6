"""Signals of recordings and descriptors of recording subscriptions, and the constants of requests."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NULL_POSITION = -1
"""No position: a recording that is active has no stop position, one that is not has no recorded position."""
NULL_TIMESTAMP = -1
"""No time: a recording that is active has no stop timestamp."""
REPLAY_ALL_AND_FOLLOW = -1
"""A replay's length: all there is, and what is recorded later."""
REPLAY_ALL_AND_STOP = -2
"""A replay's length: all there is when it starts."""


class SourceLocation(IntEnum):
    """Where a stream that is recorded is published: on the archive's media driver, or elsewhere."""

    LOCAL = 0
    REMOTE = 1


class RecordingSignal(IntEnum):
    """Event of a recording (upstream: ``RecordingSignal``)."""

    START = 0
    STOP = 1
    EXTEND = 2
    REPLICATE = 3
    MERGE = 4
    SYNC = 5
    DELETE = 6
    REPLICATE_END = 7


class RecordingSignalEvent(NamedTuple):
    """A signal of a recording; ids and position (bytes) are -1 where there is none.

    ``correlation_id`` is that of the request that it comes of. ``signal`` is a plain int when it is a later version's.
    """

    correlation_id: int
    recording_id: int
    subscription_id: int
    position: int
    signal: RecordingSignal | int


class RecordingSubscriptionDescriptor(NamedTuple):
    """Subscription of an archive for recording; ``stripped_channel`` is what the catalog keeps of it."""

    control_session_id: int
    correlation_id: int
    subscription_id: int
    stream_id: int
    stripped_channel: str
