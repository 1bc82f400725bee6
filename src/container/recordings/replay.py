"""The public name of what :mod:`container.replay.execution` offers."""

from container.replay.execution import (
    RecordedSnapshot,
    ReplaySegment,
    find_service,
    make_service,
    plan_replay,
    recorded_snapshots,
    replay,
    replay_schema,
    replay_segment,
)

__all__ = [
    "RecordedSnapshot",
    "ReplaySegment",
    "find_service",
    "make_service",
    "plan_replay",
    "recorded_snapshots",
    "replay",
    "replay_schema",
    "replay_segment",
]
