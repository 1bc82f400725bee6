"""A request for a replay, and upstream's checks of it before a publication is made.

The checks, their order, codes and texts are those of ``ArchiveConductor.startReplay``, except for one: upstream reports
an empty recording and then replays it nevertheless.
"""

from __future__ import annotations

from typing import NamedTuple

from container.archive.error_codes import (
    EMPTY_RECORDING,
    GENERIC,
    INVALID_POSITION,
    MAX_REPLAYS,
    UNKNOWN_RECORDING,
)
from container.common.aeron_defaults import FRAME_ALIGNMENT
from container.errors import ArchiveError

__all__ = [
    "NULL_POSITION",
    "REPLAY_ALL_AND_FOLLOW",
    "REPLAY_ALL_AND_STOP",
    "RecordedRange",
    "ReplayLimits",
    "ReplayRange",
    "ReplayRequest",
    "check_replay_request",
]

NULL_POSITION = -1
"""In a request: from the start. In a recording: not known."""
REPLAY_ALL_AND_FOLLOW = -1
"""A length: all that is recorded, and what will be."""
REPLAY_ALL_AND_STOP = -2
"""A length: all that is recorded when the request comes."""

_INT64_MAX = 2**63 - 1


class ReplayRequest(NamedTuple):
    """A client's request; positions and lengths are in bytes."""

    recording_id: int
    position: int = NULL_POSITION
    length: int = REPLAY_ALL_AND_FOLLOW
    file_io_max_length: int = -1
    """Bytes to read at once; 0 or less lets the archive choose."""


class RecordedRange(NamedTuple):
    """The extent of a recording.

    ``stop_position`` is the catalog's. ``limit_position`` is the value of the counter that bounds the replay, if there
    is one; else how far the recording is written, if it is active; else -1.
    """

    start_position: int
    stop_position: int
    mtu_length: int
    limit_position: int = NULL_POSITION


class ReplayLimits(NamedTuple):
    """The limits of the archive."""

    replay_count: int
    """Replays that there are already."""
    max_concurrent_replays: int
    buffer_length: int
    """Length of the buffer for replays, in bytes."""


class ReplayRange(NamedTuple):
    """The range to replay: ``length`` bytes from ``position``, for now only up to ``end_position``.

    The length may be longer than what is recorded: the replay follows the recording.
    """

    position: int
    length: int
    end_position: int


def check_replay_request(request: ReplayRequest, recorded: RecordedRange | None, limits: ReplayLimits) -> ReplayRange:
    """The range to replay for a request; ``recorded`` is None when there is no such recording.

    Raises ArchiveError, with the code and the text for the client.
    """
    if limits.replay_count >= limits.max_concurrent_replays:
        raise ArchiveError(f"max concurrent replays reached {limits.max_concurrent_replays}", code=MAX_REPLAYS)
    if recorded is None:
        raise ArchiveError(f"unknown recording id: {request.recording_id}", code=UNKNOWN_RECORDING)
    position = recorded.start_position
    if request.position != NULL_POSITION:
        position = request.position
        _check_position(request, recorded)
    _check_buffer(request, recorded.mtu_length, limits.buffer_length)
    end_position, max_length = recorded.stop_position, recorded.stop_position - position
    if recorded.limit_position != NULL_POSITION:
        if position > recorded.limit_position:
            raise _beyond(request.recording_id, position, recorded.limit_position)
        end_position, max_length = recorded.limit_position, _INT64_MAX - position
    length = _length(request, end_position - position, max_length)
    if length < 0:
        raise ArchiveError(
            f"replay length must be positive: replayLength={length}, length={request.length}, "
            f"stopPosition={end_position}, replayPosition={position} for recording {request.recording_id}",
            code=GENERIC,
        )
    return ReplayRange(position, length, end_position)


def _check_position(request: ReplayRequest, recorded: RecordedRange) -> None:
    """Check a position that was asked for against what the catalog says."""
    recording_id, position = request.recording_id, request.position
    if position % FRAME_ALIGNMENT:
        raise ArchiveError(
            f"requested replay start position={position} is not a multiple of FRAME_ALIGNMENT ({FRAME_ALIGNMENT}) "
            f"for recording {recording_id}",
            code=GENERIC,
        )
    if position < recorded.start_position:
        raise ArchiveError(
            f"requested replay start position={position} is less than recording start position="
            f"{recorded.start_position} for recording {recording_id}",
            code=INVALID_POSITION,
        )
    if recorded.stop_position != NULL_POSITION and position >= recorded.stop_position:
        raise _beyond(recording_id, position, recorded.stop_position)


def _check_buffer(request: ReplayRequest, mtu_length: int, buffer_length: int) -> None:
    """Check that the longest frame of the recording can be read at once."""
    if 0 < request.file_io_max_length < mtu_length:
        raise ArchiveError(f"fileIoMaxLength={request.file_io_max_length} < mtuLength={mtu_length}", code=GENERIC)
    if buffer_length < mtu_length:
        raise ArchiveError(f"replayBufferCapacity={buffer_length} < mtuLength={mtu_length}", code=GENERIC)


def _length(request: ReplayRequest, recorded_length: int, max_length: int) -> int:
    if request.length == REPLAY_ALL_AND_FOLLOW:
        return max_length
    if request.length != REPLAY_ALL_AND_STOP:
        return min(request.length, max_length)
    if recorded_length == 0:
        raise ArchiveError(
            f"When replaying and stopping the replay length must be non-zero, recordingId={request.recording_id}",
            code=EMPTY_RECORDING,
        )
    return recorded_length


def _beyond(recording_id: int, position: int, limit_position: int) -> ArchiveError:
    return ArchiveError(
        f"requested replay start position={position} must be less than the limit position={limit_position} "
        f"for recording {recording_id}",
        code=INVALID_POSITION,
    )
