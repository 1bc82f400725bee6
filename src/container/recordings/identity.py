"""Identifies a log: a cluster that was wiped and started again has another one under the same path."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from container.files.catalog import RecordingDescriptor
from container.files.directories import Directory
from container.recordings.term_message import read_term_message


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Distinguishes a log from any other recorded in its place, before or after."""

    recording: str
    """Its recording in this archive: id, and when it was started in epoch milliseconds."""
    first_term: str | None
    """The message with which the cluster began the log, the same on all members; ``None`` where the log begins later,
    or is still empty."""

    def is_that_of(self, other: LogIdentity) -> bool:
        """Whether both are of one log. A member that was wiped and got it again has it in another recording."""
        if self.first_term is not None and other.first_term is not None:
            return self.first_term == other.first_term
        return self.recording == other.recording

    def __str__(self) -> str:
        recording_id, _, timestamp_ms = self.recording.partition("@")
        begun = "" if self.first_term is None else f", which begins with {self.first_term}"
        return f"recording {recording_id} of {_time(int(timestamp_ms))}{begun}"


def log_identity(archive_dir: Directory, descriptor: RecordingDescriptor) -> LogIdentity:
    """Return which log a recording is."""
    first = read_term_message(archive_dir, descriptor, 0) if descriptor.start_position == 0 else None
    return LogIdentity(
        f"{descriptor.recording_id}@{descriptor.start_timestamp}",
        None
        if first is None
        else f"leadership term {first.leadership_term_id} of member {first.leader_member_id} at {first.timestamp}, "
        f"session {first.log_session_id}",
    )


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"time {timestamp_ms}"
