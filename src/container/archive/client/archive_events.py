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
    """A signal of a recording; ids and position are -1 if there are none."""

    correlation_id: int
    """The id of the request that caused the signal."""
    recording_id: int
    """The id of the recording."""
    subscription_id: int
    """The id of the archive's subscription."""
    position: int
    """The position of the signal, in bytes."""
    signal: RecordingSignal | int
    """The signal; a plain int for one of a later version."""


class RecordingSubscriptionDescriptor(NamedTuple):
    """Subscription of an archive for recording."""

    control_session_id: int
    """The id of the session that asked for the recording."""
    correlation_id: int
    """The id of its request."""
    subscription_id: int
    """The id of the subscription."""
    stream_id: int
    """The id of the stream."""
    stripped_channel: str
    """The channel as the catalog keeps it."""
