"""Requests for replays: each check of upstream with its code and text, their order, and the range that results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.archive import error_codes
from container.archive.error_codes import (
    EMPTY_RECORDING,
    GENERIC,
    INVALID_POSITION,
    MAX_REPLAYS,
    UNKNOWN_RECORDING,
)
from container.archive.server.sessions.replay_request import (
    NULL_POSITION,
    REPLAY_ALL_AND_FOLLOW,
    REPLAY_ALL_AND_STOP,
    RecordedRange,
    ReplayLimits,
    ReplayRange,
    ReplayRequest,
    check_replay_request,
)
from container.errors import ArchiveError

INT64_MAX = 2**63 - 1
LIMITS = ReplayLimits(replay_count=0, max_concurrent_replays=20, buffer_length=1024**2)
MTU = 1408

STOPPED = RecordedRange(start_position=128, stop_position=1024, mtu_length=MTU)
ACTIVE = RecordedRange(start_position=128, stop_position=-1, mtu_length=MTU, limit_position=1024)
BOUNDED = RecordedRange(start_position=128, stop_position=1024, mtu_length=MTU, limit_position=512)
EMPTY = RecordedRange(start_position=128, stop_position=128, mtu_length=MTU)
EMPTY_ACTIVE = RecordedRange(start_position=128, stop_position=-1, mtu_length=MTU, limit_position=128)
LEFT_OPEN = RecordedRange(start_position=128, stop_position=-1, mtu_length=MTU)  # its recorder is gone


def asked(position: int = -1, length: int = -1, file_io_max_length: int = -1) -> ReplayRequest:
    return ReplayRequest(7, position, length, file_io_max_length)


FOLLOW, STOP = REPLAY_ALL_AND_FOLLOW, REPLAY_ALL_AND_STOP
ACCEPTED = {
    "all of a stopped one": (STOPPED, asked(), (128, 896, 1024)),
    "from its start": (STOPPED, asked(128), (128, 896, 1024)),
    "from within": (STOPPED, asked(512), (512, 512, 1024)),
    "from its last frame": (STOPPED, asked(992), (992, 32, 1024)),
    "a part": (STOPPED, asked(512, 64), (512, 64, 1024)),
    "a part that ends within a frame": (STOPPED, asked(512, 7), (512, 7, 1024)),
    "more than there is": (STOPPED, asked(512, 1024), (512, 512, 1024)),
    "as much as can be": (STOPPED, asked(512, INT64_MAX), (512, 512, 1024)),
    "nothing": (STOPPED, asked(512, 0), (512, 0, 1024)),
    "all of a stopped one, then stop": (STOPPED, asked(length=STOP), (128, 896, 1024)),
    "an active one": (ACTIVE, asked(), (128, INT64_MAX - 128, 1024)),
    "an active one from where it is recorded": (ACTIVE, asked(1024), (1024, INT64_MAX - 1024, 1024)),
    "an active one, more than recorded": (ACTIVE, asked(512, 8192), (512, 8192, 1024)),
    "an active one, as much as can be": (ACTIVE, asked(512, INT64_MAX), (512, INT64_MAX - 512, 1024)),
    "an active one, then stop": (ACTIVE, asked(512, STOP), (512, 512, 1024)),
    "an empty active one": (EMPTY_ACTIVE, asked(), (128, INT64_MAX - 128, 128)),
    "a bounded one": (BOUNDED, asked(), (128, INT64_MAX - 128, 512)),
    "a bounded one from its bound": (BOUNDED, asked(512), (512, INT64_MAX - 512, 512)),
    "a bounded one, then stop": (BOUNDED, asked(256, STOP), (256, 256, 512)),
    "a bounded one, a part": (BOUNDED, asked(256, 1024), (256, 1024, 512)),
    "an empty one": (EMPTY, asked(), (128, 0, 128)),
    "an empty one, a part": (EMPTY, asked(length=64), (128, 0, 128)),
    "reads as long as a packet": (STOPPED, asked(file_io_max_length=MTU), (128, 896, 1024)),
    "reads as the archive likes": (STOPPED, asked(file_io_max_length=0), (128, 896, 1024)),
    "reads of an old client": (STOPPED, asked(file_io_max_length=-(2**31)), (128, 896, 1024)),
}

ALIGNMENT = "is not a multiple of FRAME_ALIGNMENT (32) for recording 7"
AHEAD = "requested replay start position={} must be less than the limit position={} for recording 7"
NEGATIVE = (
    "replay length must be positive: replayLength={}, length={}, stopPosition={}, replayPosition={} for recording 7"
)
NOTHING = "When replaying and stopping the replay length must be non-zero, recordingId=7"
REFUSED = {
    "within an alignment": (STOPPED, asked(130), GENERIC, f"requested replay start position=130 {ALIGNMENT}"),
    "a negative position within an alignment": (
        STOPPED,
        asked(-2),
        GENERIC,
        f"requested replay start position=-2 {ALIGNMENT}",
    ),
    "before the start": (
        STOPPED,
        asked(96),
        INVALID_POSITION,
        "requested replay start position=96 is less than recording start position=128 for recording 7",
    ),
    "before everything": (
        ACTIVE,
        asked(-(2**63)),
        INVALID_POSITION,
        f"requested replay start position={-(2**63)} is less than recording start position=128 for recording 7",
    ),
    "at the end of a stopped one": (STOPPED, asked(1024), INVALID_POSITION, AHEAD.format(1024, 1024)),
    "beyond the end of a stopped one": (STOPPED, asked(1056), INVALID_POSITION, AHEAD.format(1056, 1024)),
    "at the end of an empty one": (EMPTY, asked(128), INVALID_POSITION, AHEAD.format(128, 128)),
    "beyond what an active one has": (ACTIVE, asked(1056), INVALID_POSITION, AHEAD.format(1056, 1024)),
    "beyond the bound": (BOUNDED, asked(544), INVALID_POSITION, AHEAD.format(544, 512)),
    "a bound before the start": (
        BOUNDED._replace(limit_position=0),
        asked(),
        INVALID_POSITION,
        AHEAD.format(128, 0),
    ),
    "reads shorter than a packet": (
        STOPPED,
        asked(file_io_max_length=MTU - 1),
        GENERIC,
        "fileIoMaxLength=1407 < mtuLength=1408",
    ),
    "an empty one, then stop": (EMPTY, asked(length=STOP), EMPTY_RECORDING, NOTHING),
    "an empty active one, then stop": (EMPTY_ACTIVE, asked(length=STOP), EMPTY_RECORDING, NOTHING),
    "a bounded one at its bound, then stop": (BOUNDED, asked(512, STOP), EMPTY_RECORDING, NOTHING),
    "a negative length": (STOPPED, asked(length=-3), GENERIC, NEGATIVE.format(-3, -3, 1024, 128)),
    "one left open": (LEFT_OPEN, asked(), GENERIC, NEGATIVE.format(-129, -1, -1, 128)),
    "one left open, then stop": (LEFT_OPEN, asked(length=STOP), GENERIC, NEGATIVE.format(-129, -2, -1, 128)),
    "one left open, a part": (LEFT_OPEN, asked(256, 64), GENERIC, NEGATIVE.format(-257, 64, -1, 256)),
}


def refusal(request: ReplayRequest, recorded: RecordedRange | None, limits: ReplayLimits = LIMITS) -> tuple[int, str]:
    with pytest.raises(ArchiveError) as refused:
        check_replay_request(request, recorded, limits)
    return refused.value.code, str(refused.value)


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_request_that_upstream_accepts(case: str) -> None:
    recorded, request, expected = ACCEPTED[case]
    assert check_replay_request(request, recorded, LIMITS) == ReplayRange(*expected)


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_upstream_refuses_with_its_code_and_text(case: str) -> None:
    recorded, request, code, text = REFUSED[case]
    assert refusal(request, recorded) == (code, text)


def test_as_many_replays_as_there_may_be() -> None:
    limits = LIMITS._replace(replay_count=20)
    assert refusal(asked(), STOPPED, limits) == (MAX_REPLAYS, "max concurrent replays reached 20")
    check_replay_request(asked(), STOPPED, LIMITS._replace(replay_count=19))


def test_a_recording_that_is_not_there() -> None:
    assert refusal(asked(), None) == (UNKNOWN_RECORDING, "unknown recording id: 7")


def test_a_buffer_shorter_than_a_packet() -> None:
    limits = LIMITS._replace(buffer_length=MTU - 1)
    assert refusal(asked(), STOPPED, limits) == (GENERIC, "replayBufferCapacity=1407 < mtuLength=1408")
    check_replay_request(asked(), STOPPED, LIMITS._replace(buffer_length=MTU))


def test_checks_come_in_upstreams_order() -> None:
    """The first request fails all checks; each of the next puts the one right that failed."""
    full, small = ReplayLimits(20, 20, 1), ReplayLimits(0, 20, 1)
    recorded = RecordedRange(128, 96, MTU, limit_position=64)
    steps = [
        (asked(130, -3, 1), None, full, "max concurrent replays reached 20"),
        (asked(130, -3, 1), None, small, "unknown recording id: 7"),
        (asked(130, -3, 1), recorded, small, "requested replay start position=130 is not a multiple of"),
        (asked(96, -3, 1), recorded, small, "requested replay start position=96 is less than recording start position"),
        (
            asked(128, -3, 1),
            recorded,
            small,
            "requested replay start position=128 must be less than the limit position=96",
        ),
        (asked(-1, -3, 1), recorded, small, "fileIoMaxLength=1 < mtuLength=1408"),
        (asked(-1, -3), recorded, small, "replayBufferCapacity=1 < mtuLength=1408"),
        (
            asked(-1, -3),
            recorded,
            LIMITS,
            "requested replay start position=128 must be less than the limit position=64",
        ),
        (asked(-1, -3), recorded._replace(limit_position=128), LIMITS, "replay length must be positive"),
    ]
    for request, recording, limits, text in steps:
        assert refusal(request, recording, limits)[1].startswith(text)


@given(
    st.integers(-(2**63), INT64_MAX),
    st.integers(-(2**63), INT64_MAX),
    st.integers(0, 2**57).map(lambda number: number * 32),
    st.integers(0, 2**20).map(lambda number: number * 32),
    st.sampled_from(["stopped", "active"]),
)
def test_a_range_is_never_outside_of_the_recording(
    position: int, length: int, start: int, size: int, kind: str
) -> None:
    end = start + size
    is_active = kind == "active"
    recorded = RecordedRange(start, -1 if is_active else end, MTU, end if is_active else NULL_POSITION)
    try:
        found = check_replay_request(asked(position, length), recorded, LIMITS)
    except ArchiveError:
        return
    assert start <= found.position <= end
    assert found.position in (position, start)
    assert found.end_position == end
    assert 0 <= found.length <= (INT64_MAX if is_active else end) - found.position


def test_error_codes_are_upstreams() -> None:
    codes = {name: value for name, value in vars(error_codes).items() if name.isupper()}
    assert sorted(codes.values()) == list(range(17))
    assert (codes["GENERIC"], codes["STORAGE_SPACE"]) == (ArchiveError.GENERIC, ArchiveError.STORAGE_SPACE)
