"""Snapshots of standbys from which a member starts: its archive copies them, where they are later than its own.

Upstream: StandbySnapshotReplicator.java. Unlike there

- a snapshot behind the end of the member's log is left: the log must continue from it;
- a set is entered into the recording log whole or not at all;
- the remains of a failed copy are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from container.archive.client.async_archive import AsyncArchive
from container.common.error_texts import message_of
from container.consensus.channels import destination
from container.consensus.snapshot_copy import SnapshotCopy
from container.consensus.steps import Deadline, answer
from container.errors import ArchiveError, ClusterError, ClusterEvent, TimedOutError
from container.files.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    ENTRY_TYPE_SNAPSHOT,
    NULL_VALUE,
    RecordingLog,
    RecordingLogEntry,
)

if TYPE_CHECKING:
    from container.consensus.consensus_module_context import ConsensusModuleContext


class StandbyCopies:
    """Those that a start makes.

    Args:
        context: concluded.
        archive: of the member, connected; the signals that it gives are for these copies as long as :meth:`run` runs.
        position: how far a recording of the archive is, by its id; None while that is not known.
        new_session_id: a session id that no other stream of the driver has.
    """

    def __init__(
        self,
        context: ConsensusModuleContext,
        archive: AsyncArchive,
        position: Callable[[int], int | None],
        new_session_id: Callable[[], int],
    ) -> None:
        self._settings, self._archive, self._new_session_id = context.settings, archive, new_session_id
        self._recording_log, self._orphans = context.recording_log, context.log_orphans
        self._on_error = context.counted_error_handler
        self._deadline = Deadline(context.client.clock, context.settings.leader_heartbeat_timeout_ns)
        self._copy = SnapshotCopy(
            archive,
            context.client,
            self._orphans,
            self._deadline,
            position,
            replay_channel=str(context.settings.replay_channel),
            replay_stream_id=context.settings.replay_stream_id,
        )

    def run(self, log_end: int) -> Generator[None, None, RecordingLogEntry | None]:
        """Copy the latest that is later than the member's own, in turns; the entry of its consensus module.

        An archive that does not have it, or cannot be reached, is reported, and the next one is asked.

        Args:
            log_end: where the log of the member ends, in bytes.

        Returns:
            None where nothing was copied: the member starts from its own.

        Raises:
            TimedOutError: the own archive does not answer.
            OSError: the disk fails.
        """
        found = later_sets(self._recording_log, self._settings.service_count, log_end)
        former_on_signal = self._archive.on_signal
        self._archive.on_signal = self._copy.on_signal
        try:
            for entries in found:
                try:
                    return (yield from self._copy_set(entries))
                except (ArchiveError, ClusterError, TimedOutError) as error:
                    self._on_error(
                        ClusterEvent(
                            f"the snapshot at {entries[0].log_position} of the standby with the archive "
                            f"{entries[0].archive_endpoint} was not copied: {message_of(error)}"
                        )
                    )
                    yield from self._remove_rest()
        finally:
            self._archive.on_signal = former_on_signal
        return None

    def _copy_set(self, entries: Sequence[RecordingLogEntry]) -> Generator[None, None, RecordingLogEntry]:
        settings, copies = self._settings, []
        for each in entries:
            copied = yield from self._copy.run(
                each,
                owner="it",
                source_channel=destination(settings.leader_archive_control_channel, str(each.archive_endpoint)),
                source_stream_id=settings.archive_control_stream_id,
                channel=str(settings.replication_channel),
                response_channel="",
                session_id=self._new_session_id(),
            )
            copies.append(
                replace(
                    each,
                    entry_index=NULL_VALUE,
                    recording_id=copied,
                    entry_type=ENTRY_TYPE_SNAPSHOT,
                    archive_endpoint=None,
                )
            )
        self._recording_log.append_together(copies)
        return copies[-1]

    def _remove_rest(self) -> Generator[None]:
        """Have the archive end a copy that has failed, and delete what it has left."""
        request, self._copy.request = self._copy.request, None
        if request is not None and request.is_done and request.error is None:
            try:
                yield from answer(self._archive, self._archive.stop_replication(request.relevant_id))
            except ArchiveError as error:
                self._on_error(error)
        yield from self._orphans.remove(self._archive, self._deadline)


def later_sets(recording_log: RecordingLog, service_count: int, log_end: int) -> list[list[RecordingLogEntry]]:
    """The snapshots of standbys that are later than the member's own, the latest first, one of each archive.

    Each is whole, with the consensus module's last. Equal ones come in the order of their archives' endpoints. None is
    taken at position 0: the log is not applied to a later state.

    Args:
        recording_log: of the member.
        service_count: how many services it has.
        log_end: where its log ends, in bytes.
    """
    own = recording_log.get_latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
    begin = 0 if own is None else own.log_position
    found = []
    for entries in recording_log.latest_standby_snapshots(service_count).values():
        entries.sort(key=lambda each: each.service_id, reverse=True)
        services = [each.service_id for each in entries]
        is_whole = services == list(range(service_count - 1, CONSENSUS_MODULE_SERVICE_ID - 1, -1))
        if is_whole and begin < entries[0].log_position <= log_end:
            found.append(entries)
    return sorted(found, key=lambda each: (-each[0].log_position, str(each[0].archive_endpoint)))
