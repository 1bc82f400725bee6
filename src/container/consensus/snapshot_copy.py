"""A copy of a snapshot, which the own archive makes of another one's recording: to its last byte, or there is none.

It is read as far as its markers show that it is the one that was asked for (snapshot_check.pyx).

Upstream: SnapshotReplication.java, MultipleRecordingReplication.java. Unlike upstream's, an error of the archive ends
the copy immediately, and what it has left is deleted later (log_orphans.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from container.archive.client.archive_connection import ArchiveRequest
from container.archive.client.archive_events import RecordingSignal, RecordingSignalEvent
from container.archive.client.async_archive import AsyncArchive
from container.consensus.log_orphans import LogOrphans
from container.consensus.snapshot_check import check_snapshot
from container.consensus.steps import Deadline, answer, stopped
from container.errors import ClusterError
from container.files.recording_log import NULL_POSITION, NULL_VALUE
from container.transport.transport_seam import Client


class NamedSnapshot(Protocol):
    """A snapshot as its owner names it."""

    @property
    def recording_id(self) -> int:
        """The recording in its archive."""

    @property
    def leadership_term_id(self) -> int:
        """The term in which it was taken."""

    @property
    def log_position(self) -> int:
        """The log position that it represents."""

    @property
    def service_id(self) -> int:
        """Whose it is; -1 for the consensus module's."""


def snapshot_name(snapshot: NamedSnapshot) -> str:
    """A snapshot, for errors."""
    return f"the snapshot of service {snapshot.service_id} at {snapshot.log_position}"


class SnapshotCopy:
    """Copies snapshots one after the other, for a backup or a member.

    Args:
        archive: which copies; it gives its signals to :meth:`on_signal`.
        client: what subscriptions are added to.
        orphans: notes what is being copied.
        deadline: for progress.
        position: how far a recording of the archive is, by its id; None while that is not known.
        replay_channel, replay_stream_id: on which the archive replays what it has copied.
    """

    def __init__(
        self,
        archive: AsyncArchive,
        client: Client,
        orphans: LogOrphans,
        deadline: Deadline,
        position: Callable[[int], int | None],
        *,
        replay_channel: str,
        replay_stream_id: int,
    ) -> None:
        self._client, self._replay_channel, self._replay_stream_id = client, replay_channel, replay_stream_id
        self._archive, self._orphans, self._deadline, self._position = archive, orphans, deadline, position
        self._signals: list[RecordingSignalEvent] = []
        self.request: ArchiveRequest | None = None
        """That of the copy that is in progress, or was when it failed."""

    def on_signal(self, event: RecordingSignalEvent) -> None:
        """Note a signal of the archive for a recording."""
        self._signals.append(event)

    def run(
        self,
        snapshot: NamedSnapshot,
        *,
        owner: str,
        source_channel: str,
        source_stream_id: int,
        channel: str,
        response_channel: str,
        session_id: int,
    ) -> Generator[None, None, int]:
        """Copy a snapshot whose recording has ended, in turns; the id of its recording in the own archive.

        Args:
            snapshot: which one, with the id of its recording in the other archive.
            owner: who has named it, for errors.
            source_channel, source_stream_id: where that takes requests.
            channel: on which it replays.
            response_channel: where it answers, "" for anywhere.
            session_id: of the replay.

        Raises:
            ArchiveError: an archive refuses.
            ClusterError: the copy has ended before it was whole, or what was copied is not that snapshot.
            TimedOutError: it makes no progress.
            OSError: the disk fails.
        """
        archive, what = self._archive, snapshot_name(snapshot)
        self._orphans.note(session_id)
        self._signals.clear()
        request = self.request = archive.replicate(
            snapshot.recording_id,
            NULL_VALUE,
            source_channel,
            source_stream_id,
            NULL_POSITION,
            channel,
            session_id,
            response_channel,
        )
        archive.follow(request)
        try:
            yield from answer(archive, request)
            copied = yield from self._until_whole(request, what)
        finally:
            archive.forget(request)
        self.request = None
        yield from check_snapshot(
            archive,
            self._client,
            self._deadline,
            recording_id=copied,
            stop_position=(yield from stopped(archive, self._deadline, copied)),
            channel=self._replay_channel,
            stream_id=self._replay_stream_id,
            snapshot=snapshot,
            named=f"recording {snapshot.recording_id}, which {owner} names as {what},",
        )
        return copied

    def _until_whole(self, request: ArchiveRequest, what: str) -> Generator[None, None, int]:
        """Wait for a replication to end as it should; the recording's id."""
        copied, has_synced, position = NULL_VALUE, False, None
        self._deadline.begin(f"{what} to be copied: nothing is copied yet")
        while True:
            for signal in self._taken_signals(request.relevant_id):
                if signal.recording_id != NULL_VALUE:
                    copied = signal.recording_id
                if signal.signal == RecordingSignal.SYNC:
                    has_synced = True
                elif signal.signal == RecordingSignal.REPLICATE_END:
                    if has_synced and copied != NULL_VALUE:
                        return copied
                    if request.error is None:
                        raise ClusterError(f"the copy of {what} has ended before it was whole")
            if request.error is not None:
                raise request.error
            current = None if copied == NULL_VALUE else self._position(copied)
            if current != position:
                position = current
                self._deadline.begin(f"{what} to be copied: the copy is at {position}")
            self._deadline.check()
            self._archive.poll()
            yield

    def _taken_signals(self, replication_id: int) -> list[RecordingSignalEvent]:
        found = [each for each in self._signals if each.correlation_id == replication_id]
        self._signals.clear()
        return found
