"""The snapshots and the part of its log from which a member continues. Upstream: RecordingLog.java, createRecoveryPlan.

Upstream asks the archive and waits for the answer. Here the caller asks: :func:`needed_recording_id` says for which
recording, and :func:`create_recovery_plan` takes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from container.errors import ClusterError, RecordingError
from container.files.catalog import RecordingDescriptor
from container.files.recording_log import NULL_POSITION, NULL_VALUE, RecordingLogEntry


class Entries(Protocol):
    """A recording log as the plan uses it, open or read."""

    @property
    def path(self) -> str:
        """Where the file is."""
        ...

    @property
    def entries(self) -> tuple[RecordingLogEntry, ...]:
        """All entries, in the order in which they count."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot to begin with: that of the consensus module (service id -1), or of a service."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int


@dataclass(frozen=True, slots=True)
class Log:
    """The recording of the log as it is appended, and its last term."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    """Where the last term ends, -1 while it is open."""
    start_position: int
    """Where the replay begins: the snapshot's log position, or the recording's start without one."""
    stop_position: int
    initial_term_id: int
    term_buffer_length: int
    mtu_length: int
    session_id: int


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The snapshots and the log in a member's recording log and archive."""

    last_leadership_term_id: int
    last_term_base_log_position: int
    appended_log_position: int
    committed_log_position: int
    snapshots: tuple[Snapshot, ...]
    """The consensus module's, then those of the services 0, 1 and so on; empty without a snapshot."""
    log: Log | None


def needed_recording_id(recording_log: Entries, replicated_recording_id: int | None = None) -> int | None:
    """Return the recording that the archive has to be asked for before a plan can be made, or None for none.

    Args:
        recording_log: of the member.
        replicated_recording_id: a recording of the leader's log that was replicated here, None or -1 for none; it
            counts while the recording log is empty.
    """
    if not recording_log.entries:
        return None if replicated_recording_id in (None, NULL_VALUE) else replicated_recording_id
    last = _last_recorded_term(recording_log)
    return None if last is None else last.recording_id


def create_recovery_plan(
    recording_log: Entries,
    service_count: int,
    replicated_recording_id: int | None = None,
    recording_extent: RecordingDescriptor | None = None,
) -> RecoveryPlan:
    """Return the plan from the latest valid snapshots, and the log from there on.

    Args:
        recording_log: of the member.
        service_count: number of services that must have a snapshot where the consensus module has one.
        replicated_recording_id: as given to :func:`needed_recording_id`.
        recording_extent: what the archive has of the recording that :func:`needed_recording_id` names; None when it
            knows no such recording, or none was asked for.

    Raises:
        ClusterError: the archive does not know the recording, or the extent is of another one; or the log
            begins behind the latest snapshot, or behind 0 without one.
        RecordingError: a service has no snapshot beside the consensus module's.
    """
    snapshots = _latest_snapshots(recording_log, service_count)
    recording_id = needed_recording_id(recording_log, replicated_recording_id)
    log = None
    if recording_id is not None:
        log = _log_of(_last_recorded_term(recording_log), snapshots, _checked(recording_id, recording_extent))
    term_id, base, appended, committed = NULL_VALUE, 0, 0, 0
    if snapshots:
        term_id, base = snapshots[0].leadership_term_id, snapshots[0].term_base_log_position
        appended = committed = snapshots[0].log_position
    if log is not None:
        term_id, base, appended = log.leadership_term_id, log.term_base_log_position, log.stop_position
        committed = committed if log.log_position == NULL_POSITION else log.log_position
    return RecoveryPlan(term_id, base, appended, committed, snapshots, log)


def _last_recorded_term(recording_log: Entries) -> RecordingLogEntry | None:
    """The last valid term that has a recording."""
    for entry in reversed(recording_log.entries):
        if entry.is_valid_term and entry.recording_id != NULL_VALUE:
            return entry
    return None


def _checked(recording_id: int, extent: RecordingDescriptor | None) -> RecordingDescriptor:
    if extent is None:
        raise ClusterError(
            f"unknown recording id: {recording_id} is the member's log in its recording log, and its archive does not "
            "have it: start it with the archive directory that belongs to this cluster directory"
        )
    if extent.recording_id != recording_id:
        raise ClusterError(f"the extent is of recording {extent.recording_id}, needed is that of {recording_id}")
    return extent


def _log_of(term: RecordingLogEntry | None, snapshots: tuple[Snapshot, ...], extent: RecordingDescriptor) -> Log:
    """Return the log from its last term on; without a term it is one that was replicated."""
    if not snapshots and extent.start_position > 0:
        raise ClusterError(
            f"the log begins at {extent.start_position}, and there is no snapshot to begin with: the services would "
            "begin empty in the middle of it; take the archive's and the cluster's directories from a backup, or, "
            "beside members that have the log from 0 on, let this one begin with empty directories"
        )
    if snapshots and extent.start_position > snapshots[0].log_position:
        raise ClusterError(
            f"the log begins at {extent.start_position}, behind the latest snapshot that counts, at "
            f"{snapshots[0].log_position}: what lies between is gone; if a later snapshot was invalidated, put "
            "recording.log.bak back, the recording log from before that; else take the archive's and the cluster's "
            "directories from a backup, or, beside members that have the log from 0 on, let this one begin with empty "
            "directories"
        )
    return Log(
        extent.recording_id,
        NULL_VALUE if term is None else term.leadership_term_id,
        0 if term is None else term.term_base_log_position,
        0 if term is None else term.log_position,
        snapshots[0].log_position if snapshots else extent.start_position,
        extent.stop_position,
        extent.initial_term_id,
        extent.term_buffer_length,
        extent.mtu_length,
        extent.session_id,
    )


def _latest_snapshots(recording_log: Entries, service_count: int) -> tuple[Snapshot, ...]:
    """The latest valid snapshot of the consensus module, and those of its services, which stand in front of it."""
    entries = recording_log.entries
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.is_valid_snapshot and entry.is_of_consensus_module:
            found = [entry]
            for service_id in range(service_count):
                found.append(_service_snapshot(recording_log, index, service_id))
            return tuple(_snapshot_of(each) for each in found)
    return ()


def _service_snapshot(recording_log: Entries, index: int, service_id: int) -> RecordingLogEntry:
    """The last snapshot of a service with the consensus module's at ``index``: a crash may have left an earlier one."""
    entries, last = recording_log.entries, recording_log.entries[index]
    for entry in reversed(entries[:index]):
        if entry.leadership_term_id != last.leadership_term_id or entry.log_position != last.log_position:
            break
        if entry.is_valid_snapshot and entry.service_id == service_id:
            return entry
    beside = [
        f"entry {each.entry_index} of service {each.service_id}{'' if each.is_valid else ' (invalid)'}"
        for each in entries
        if each.is_snapshot and each.log_position == last.log_position
    ]
    raise RecordingError(
        f"snapshot missing for service {service_id} at log position {last.log_position} of term "
        f"{last.leadership_term_id}: found {', '.join(beside)}; start with as many services as took the snapshot, or "
        "invalidate it, so that the one before it counts",
        file=recording_log.path,
    )


def _snapshot_of(entry: RecordingLogEntry) -> Snapshot:
    return Snapshot(
        entry.recording_id,
        entry.leadership_term_id,
        entry.term_base_log_position,
        entry.log_position,
        entry.timestamp,
        entry.service_id,
    )
