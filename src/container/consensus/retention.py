"""Which snapshots and which part of its log a member needs no more, and how they go. Upstream has no such thing.

The newest snapshots are kept, and the log from the oldest of these on: a start continues from any of them. Everything
before that is deleted in an order in which a crash at any point leaves a member that starts: the recordings of
snapshots, then their entries in the recording log, which are no longer valid, and then whole segments of the log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from container.archive import error_codes
from container.archive.client.async_archive import AsyncArchive
from container.consensus.steps import answer
from container.errors import ArchiveError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import NULL_POSITION, NULL_VALUE, RecordingLog, RecordingLogEntry
from container.files.segments import segment_position


@dataclass(frozen=True, slots=True)
class Outdated:
    """Snapshots and log that a member no longer needs."""

    entries: tuple[RecordingLogEntry, ...]
    """Entries of older snapshots, in the order in which they count, invalid ones among them."""
    recording_ids: tuple[int, ...]
    """Theirs, without those that anything else in the recording log names; each once."""
    log_position: int
    """In front of which the log is needed no more; -1 where fewer snapshots than that are there."""


NOTHING_OUTDATED = Outdated((), (), NULL_POSITION)


def outdated(entries: Iterable[RecordingLogEntry], kept_count: int, service_count: int) -> Outdated:
    """Return what is older than the newest ``kept_count`` snapshots.

    Args:
        entries: of a recording log, in the order in which they count.
        kept_count: how many snapshots stay, 1 or more; one counts when it is valid and complete.
        service_count: how many services must have a part in a complete one, beside the consensus module.
    """
    entries = tuple(entries)
    parts: dict[tuple[int, int], set[int]] = {}
    for entry in entries:
        if entry.is_valid_snapshot:
            parts.setdefault((entry.leadership_term_id, entry.log_position), set()).add(entry.service_id)
    whole = set(range(NULL_VALUE, service_count))
    positions = sorted(position for (_, position), services in parts.items() if whole <= services)
    if len(positions) < kept_count:
        return NOTHING_OUTDATED
    oldest = positions[-kept_count]
    old = tuple(each for each in entries if each.is_snapshot and each.log_position < oldest)
    needed = {each.recording_id for each in entries if not (each.is_snapshot and each.log_position < oldest)}
    ids = dict.fromkeys(each.recording_id for each in old if each.recording_id not in needed)
    return Outdated(old, tuple(ids), oldest)


class OtherMember(Protocol):
    """Another member, as the leader knows it."""

    @property
    def id(self) -> int:
        """Its member id."""
        ...

    @property
    def leadership_term_id(self) -> int:
        """The last term of its log, when it said last how far that is."""
        ...

    @property
    def log_position(self) -> int:
        """How far its log was recorded then; -1 when it has not said so."""
        ...


def needed_log_position(
    log_position: int,
    *,
    is_leader: bool,
    leadership_term_id: int,
    others: Sequence[OtherMember],
    backup_position: int | None,
) -> tuple[int, str | None]:
    """Return in front of which position the log may go, and who keeps more of it than this member does, or None.

    Args:
        log_position: the position before which this member no longer needs it.
        is_leader: whether this member leads; members report their progress to the leader alone.
        leadership_term_id: the present term. A log of another term may still be cut.
        others: all members but this one.
        backup_position: the position from which a backup that has asked may continue; None without one.
    """
    if others and not is_leader:
        return 0, "only the leader knows how much of the log the other members have"
    holder = None
    for member in others:
        if member.leadership_term_id != leadership_term_id or member.log_position == NULL_POSITION:
            return 0, f"member {member.id} has not said how much of the log it has"
        if member.log_position < log_position:
            log_position = member.log_position
            holder = f"member {member.id} has the log up to {log_position} alone"
    if backup_position is not None and backup_position < log_position:
        return backup_position, f"a backup may need the log from {backup_position} on"
    return log_position, holder


def removable_before(descriptor: RecordingDescriptor, log_position: int) -> int:
    """Return where the recording of the log can begin so that all from ``log_position`` on stays: at a segment.

    It is the recording's start position where no whole segment lies in front of that.
    """
    base = segment_position(
        descriptor.start_position, log_position, descriptor.term_buffer_length, descriptor.segment_file_length
    )
    return max(base, descriptor.start_position)


def remove_snapshots(archive: AsyncArchive, recording_log: RecordingLog, found: Outdated) -> Generator[None, None, int]:
    """Delete the recordings of old snapshots that are still valid, then invalidate their entries; return how many.

    Raises:
        ArchiveError: the archive fails, or somebody replays one of them: those before it are gone.
        OSError: the disk fails.
    """
    valid = [entry for entry in found.entries if entry.is_valid]
    own = set(found.recording_ids)
    count = 0
    for recording_id in dict.fromkeys(entry.recording_id for entry in valid):
        if recording_id not in own:
            continue
        try:
            yield from answer(archive, archive.purge_recording(recording_id))
            count += 1
        except ArchiveError as error:
            if error.code != error_codes.UNKNOWN_RECORDING:  # an earlier attempt has deleted it
                raise
    # The consensus module's part first: a snapshot without it counts as one that was never whole, after any crash.
    for is_service in (False, True):
        entries = [entry for entry in valid if (entry.service_id != NULL_VALUE) is is_service]
        for entry in entries:
            recording_log.invalidate_entry(entry.entry_index)
        if entries:
            recording_log.force()
    return count


def remove_log(archive: AsyncArchive, recording_id: int, log_position: int) -> Generator[None, None, tuple[int, int]]:
    """Delete the segments of the log in front of a position; return how many, and where it begins then.

    Raises:
        ArchiveError: the archive fails, or somebody replays what would go: nothing has changed.
    """
    request = archive.list_recording(recording_id)
    yield from answer(archive, request)
    if not request.items:
        raise ArchiveError(f"unknown recording id: {recording_id}", code=error_codes.UNKNOWN_RECORDING)
    descriptor = request.items[0]
    base = removable_before(descriptor, log_position)
    if base <= descriptor.start_position:
        return 0, descriptor.start_position
    count = yield from answer(archive, archive.purge_segments(recording_id, base))
    return count, base
