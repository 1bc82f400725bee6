"""Recordings that a copy of log or snapshot has begun, and that a crash has left before the recording log knew them.

Nothing names them any more, and they keep the disk of the archive. So a file in the cluster directory says with which
sessions something was copied: :meth:`LogOrphans.note`, before the archive is asked. A recording of such a session that
the recording log does not name is neither log nor snapshot, and is deleted. Upstream leaves it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator
from contextlib import suppress

from container.archive.client.async_archive import AsyncArchive
from container.common.error_texts import message_of
from container.consensus.steps import Deadline, answer, stopped, without_replays
from container.error_handlers import ErrorHandler
from container.errors import ArchiveError, ClusterEvent
from container.files.names import LOG_REPLICATION_NAME
from container.files.recording_log import NULL_VALUE, RecordingLog
from container.storage.storage_seam import CREATE, NO_FOLLOW, Storage

_SESSION_ID = struct.Struct("<i")
_MOST = 16
"""So many sessions are noted. An archive that has begun nothing for the ones before them does not do so any more."""


class LogOrphans:
    """Those of one member, or of one backup.

    Args:
        storage: where the cluster directory is.
        cluster_dir: its path.
        recording_log: of the member.
        stream_ids: of what is copied.
        on_error: gets what keeps one from being deleted.
    """

    def __init__(
        self,
        storage: Storage,
        cluster_dir: str,
        recording_log: RecordingLog,
        stream_ids: Collection[int],
        on_error: ErrorHandler,
    ) -> None:
        self._storage, self._cluster_dir, self._path = storage, cluster_dir, f"{cluster_dir}/{LOG_REPLICATION_NAME}"
        self._recording_log, self._stream_ids, self._on_error = recording_log, stream_ids, on_error

    def note_log(self, session_id: int) -> None:
        """Note that the log is about to be copied with a session, as :meth:`note` does.

        Nothing while the recording log has a term: that names the recording. Raises OSError when the disk fails.
        """
        if self._recording_log.find_last_term() is None:
            self.note(session_id)

    def note(self, session_id: int) -> None:
        """Note that something is about to be copied with a session: that is on the disk then.

        Raises OSError when the disk fails.
        """
        is_new = not self._storage.exists(self._path)
        if is_new:
            self._storage.retry_directory(self._cluster_dir)
        file = self._storage.open_file(self._path, CREATE if is_new else NO_FOLLOW)
        try:
            noted = _whole(file.read(_SESSION_ID.size * _MOST, 0)) + _SESSION_ID.pack(session_id)
            kept = noted[-_SESSION_ID.size * _MOST :]
            # Where none goes the others are not written again; else all of them lie in one sector of the disk.
            begin = len(noted) - _SESSION_ID.size if kept == noted else 0
            file.write(kept[begin:], begin)
            file.force(True)
            if is_new:
                self._storage.force_directory(self._cluster_dir)
        except BaseException:
            if is_new:
                # The next one makes a new file, and does not count on what a force has lost.
                with suppress(OSError):
                    self._storage.unlink(self._path)
            raise
        finally:
            file.close()

    def remove(self, archive: AsyncArchive, deadline: Deadline, kept: int = NULL_VALUE) -> Generator[None]:
        """Delete the recordings of noted sessions that the recording log does not name, and forget those sessions.

        A session without a recording stays noted, and so do all with it: an archive may be about to begin with it. A
        deletion that the archive refuses is reported, and tried again the next time.

        Args:
            archive: the member's archive.
            deadline: the time by which each must stop, and replays of it end.
            kept: an active recording, which stays noted.

        Raises OSError when the disk fails, TimedOutError when the archive does not answer.
        """
        session_ids = self._noted()
        is_known = bool(session_ids)
        try:
            for session_id in session_ids:
                is_known &= yield from self._is_removed(archive, deadline, session_id, kept)
        except ArchiveError as error:
            self._on_error(
                ClusterEvent(f"the recording of a copy of the log that was cut short stays: {message_of(error)}")
            )
            return
        if is_known:
            self._storage.unlink(self._path)
            self._storage.force_directory(self._cluster_dir)

    def _noted(self) -> list[int]:
        with suppress(FileNotFoundError):
            file = self._storage.open_file(self._path, NO_FOLLOW)
            try:
                content = file.read(_SESSION_ID.size * _MOST, 0)
            finally:
                file.close()
            return [each[0] for each in _SESSION_ID.iter_unpack(_whole(content))]
        return []

    def _is_removed(
        self, archive: AsyncArchive, deadline: Deadline, session_id: int, kept: int
    ) -> Generator[None, None, bool]:
        recording_id = NULL_VALUE
        for stream_id in self._stream_ids:
            request = archive.find_last_matching_recording(0, "aeron:", stream_id, session_id)
            recording_id = yield from answer(archive, request)
            if recording_id != NULL_VALUE:
                break
        if recording_id in (NULL_VALUE, kept):
            return False
        # The recordings of standbys are in other archives.
        if any(each.recording_id == recording_id for each in self._recording_log.entries if not each.archive_endpoint):
            return True
        yield from answer(archive, archive.stop_recording_by_identity(recording_id))
        yield from stopped(archive, deadline, recording_id)
        # One that was copied whole may still be read: for this process, or for one that has died since.
        yield from without_replays(archive, deadline, recording_id, lambda: archive.purge_recording(recording_id))
        return True


def _whole(content: bytes) -> bytes:
    """The complete notes: a crash may have torn the last one."""
    return content[: len(content) // _SESSION_ID.size * _SESSION_ID.size]
