"""Snapshots whose recordings are gone from the archive are no longer valid. Upstream: RecordingLogValidator.java.

Upstream connects another client to the archive for it. Here it is the member's own.
"""

from __future__ import annotations

from collections.abc import Generator

from container.archive.client.async_archive import AsyncArchive
from container.consensus.steps import answer
from container.files.recording_log import RecordingLog


def validate_recording_log(archive: AsyncArchive, recording_log: RecordingLog) -> Generator[None, None, None]:
    """Ask the archive for the recordings of all valid snapshots, and invalidate those that it does not know.

    Raises:
        ArchiveError: the archive fails; nothing is changed then.
        OSError: the disk fails.
    """
    unknown: set[int] = set()
    for recording_id in sorted({each.recording_id for each in recording_log.entries if each.is_valid_snapshot}):
        request = archive.list_recording(recording_id)
        yield from answer(archive, request)
        if not request.items:
            unknown.add(recording_id)
    for entry in recording_log.entries:
        if entry.is_valid_snapshot and entry.recording_id in unknown:
            recording_log.invalidate_entry(entry.entry_index)
    recording_log.force()
