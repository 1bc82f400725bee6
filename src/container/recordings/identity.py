"""Identifies a log: a wiped cluster has another one under the same path, and its members have the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from container.files.catalog import RecordingDescriptor
from container.files.directories import Directory
from container.files.recording_log import RecordingLogEntry
from container.recordings.term_message import TermMessage, read_term_message


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
        None if first is None else _text(first),
    )


@dataclass(frozen=True, slots=True)
class LogTerm:
    """The leadership term to which a log belongs up to some position.

    Two logs that have the same term there are the same up to there, on whichever members: a term has one leader, and a
    follower takes an entry only upon the entries that the leader has before it (Raft's log matching).
    """

    leadership_term_id: int
    base_position: int
    """The log position where it begins."""
    message: str | None = None
    """The message with which its leader began it; ``None`` where that was purged."""

    def is_that_of(self, other: LogTerm) -> bool:
        """Whether both are one term of one cluster."""
        if (self.leadership_term_id, self.base_position) != (other.leadership_term_id, other.base_position):
            return False
        return self.message == other.message or None in (self.message, other.message)

    def __str__(self) -> str:
        return self.message or f"leadership term {self.leadership_term_id} from {self.base_position} on"


def term_from(
    archive_dir: Directory, descriptor: RecordingDescriptor, terms: Sequence[RecordingLogEntry], base: int
) -> LogTerm:
    """Return the term that begins at a log position, which is that of an entry of a member's recording log."""
    message = read_term_message(archive_dir, descriptor, base)
    if message is not None:
        return LogTerm(message.leadership_term_id, base, _text(message))
    return LogTerm(max(entry.leadership_term_id for entry in terms if entry.term_base_log_position == base), base)


def _text(message: TermMessage) -> str:
    return (
        f"leadership term {message.leadership_term_id} of member {message.leader_member_id} at {message.timestamp}, "
        f"session {message.log_session_id}"
    )


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"time {timestamp_ms}"
