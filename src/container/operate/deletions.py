"""Deletes what a node needs no more, by its archive: old snapshots, and recordings in front of a position.

An archive that runs is asked over its media driver, Java's or native. One that does not is run for that, on a media
driver of its own: it takes the archive's mark file, so that no other can start meanwhile.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from container.common import aeron_defaults
from container.common.values import counted
from container.errors import ArchiveError, ContainerError, RecordingError
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.recording_log import NULL_POSITION, NULL_VALUE, RecordingLogEntry, in_order
from container.operate.answers import Answer, NoFactsError, RefusedError
from container.operate.driver_counters import open_cnc
from container.operate.facts import Deletion, LogEntry, RecordingLogChange
from container.operate.marks import now_ms
from container.operate.places import archive_dir_beside, find_archive_dir, find_cluster_dir
from container.operate.processes import process_state
from container.operate.recording_logs import Confirm, check_stopped, mark_of, read_log, validate
from container.recordings.live import read_archive_mark, recorded_positions
from container.recordings.member import file_names, recorded_position, segment_positions

if TYPE_CHECKING:
    from container.archive.server.native_archive import Archive
    from container.files.cnc_file import MarkFileStatus
    from container.operate.cluster_control import ArchiveControl

_PAUSE_S = 0.001
_BLOCK_LENGTH = 512  # of st_blocks, whatever the file system's own is
_COUNTERS_BUFFER_LENGTH = 1024 * 1024


def delete_snapshots(path: Path, kept_count: int, limit_s: float, confirm: Confirm) -> Answer:
    """Delete the recordings of all snapshots of a member but the newest, and invalidate their entries.

    A snapshot of which the archive lacks a part does not count as kept: a start cannot begin with it.

    Raises:
        NoFactsError: the files do not say what is there.
        RefusedError: the answer to the question was no, the archive cannot be run, or the consensus module runs and
            cannot invalidate entries now.
        ArchiveError: the archive refuses or fails: what came before is done.
    """
    from container.consensus.retention import outdated

    cluster_dir = find_cluster_dir(path)
    archive_dir = archive_dir_beside(cluster_dir)
    entries = in_order(read_log(cluster_dir))
    there = {each.recording_id for each in _catalog(archive_dir)}
    found = outdated(_of_archive(entries, there), kept_count, _service_count(entries))
    recording_ids = [each for each in found.recording_ids if each in there]
    indexes = {entry.entry_index for entry in found.entries}
    if not recording_ids and not any(entry.is_valid and entry.entry_index in indexes for entry in entries):
        return Answer(_deletion(archive_dir, [], []))
    is_running = _runs(path, cluster_dir)
    _check_same_node(cluster_dir, archive_dir)
    confirm(
        f"delete {counted(len(recording_ids), 'recording')} of snapshots in front of {found.log_position} from the "
        f"archive of {archive_dir}, and keep the newest {kept_count}"
    )
    before = _length_of_files(archive_dir)
    with _archive(archive_dir, limit_s) as control:
        deleted = [each for each in recording_ids if control.delete_recording(each)]
        _await_files_gone(archive_dir, deleted, limit_s)
    try:
        invalidated = _invalidate(path, limit_s, is_running=is_running)
    except ContainerError as error:
        raise ArchiveError(
            f"deleted {counted(len(deleted), 'recording')}, but the recording log still has entries of them: {error}; "
            "mend that, then run `recording-log validate`"
        ) from error
    return Answer(_deletion(archive_dir, deleted, invalidated, freed_bytes=before - _length_of_files(archive_dir)))


def _of_archive(entries: list[RecordingLogEntry], there: set[int]) -> list[RecordingLogEntry]:
    """The entries, of which those of snapshots count whose recordings are there."""
    return [
        replace(entry, is_valid=False) if entry.is_valid_snapshot and entry.recording_id not in there else entry
        for entry in entries
    ]


def _service_count(entries: list[RecordingLogEntry]) -> int:
    """How many services have a part in the newest snapshot, whether it counts or not."""
    found = [entry for entry in entries if entry.is_snapshot]
    places = [(entry.leadership_term_id, entry.log_position) for entry in found]
    return 1 + max(
        (entry.service_id for entry, place in zip(found, places, strict=True) if place == places[-1]), default=-1
    )


def _newest_position(entries: list[RecordingLogEntry], there: set[int]) -> int:
    """The log position of the newest snapshot that a start can begin with; -1 without one."""
    from container.consensus.retention import outdated

    return outdated(_of_archive(entries, there), 1, _service_count(entries)).log_position


def _runs(path: Path, cluster_dir: Path) -> bool:
    """Whether the member runs. Raises RefusedError when neither it nor this can invalidate entries now."""
    mark = mark_of(cluster_dir)
    if mark is None or mark.state != "running":
        check_stopped(cluster_dir)
        return False
    from container.operate.control import validatable

    validatable(path)
    return True


def _invalidate(path: Path, limit_s: float, *, is_running: bool) -> list[LogEntry]:
    """Have the entries of snapshots whose recordings are gone count no more; return them as they were."""

    def agree(_what: str) -> None:
        """It was asked for already."""

    if is_running:
        from container.operate.control import validate_running

        changed = validate_running(path, limit_s, agree).facts
    else:
        changed = validate(path, agree).facts
    assert isinstance(changed, RecordingLogChange)
    return changed.invalidated


def purge(path: Path, position: int, recording_id: int | None, limit_s: float, confirm: Confirm) -> Answer:
    """Delete the whole segments of a recording in front of a position: of the log unless another one is named.

    It deletes nothing of the log that a start from the latest snapshot needs, and nothing of a valid snapshot.

    Raises:
        NoFactsError: the files do not say what is there.
        RefusedError: a start may need what is to go, the answer to the question was no, or the archive cannot be run.
        ArchiveError: the archive refuses, as while somebody replays what is to go: nothing has changed.
    """
    from container.consensus.retention import removable_before

    cluster_dir, archive_dir = _directories(path, is_cluster_needed=recording_id is None)
    descriptors = {each.recording_id: each for each in _catalog(archive_dir)}
    log_recording_id = NULL_VALUE
    if cluster_dir is not None:
        entries = in_order(read_log(cluster_dir))
        terms = [entry for entry in entries if entry.is_valid_term]
        log_recording_id = terms[-1].recording_id if terms else NULL_VALUE
        if recording_id in (None, log_recording_id):
            _check_start(cluster_dir, _newest_position(entries, set(descriptors)), position)
        else:
            _check_snapshots(entries, recording_id)
    wanted = log_recording_id if recording_id is None else recording_id
    descriptor = descriptors.get(wanted)
    if descriptor is None:
        raise NoFactsError(f"the archive of {archive_dir} has no recording {wanted}")
    begin = removable_before(descriptor, position)
    if begin <= descriptor.start_position:
        return Answer(_deletion(archive_dir, [], [], descriptor, descriptor.start_position))
    _check_end(archive_dir, descriptor, begin)
    if cluster_dir is not None:
        _check_same_node(cluster_dir, archive_dir)
    confirm(
        f"delete recording {wanted} of {archive_dir} from {descriptor.start_position} to {begin}; another "
        "member or a backup that has less of it cannot continue from it"
    )
    before = _length_of_files(archive_dir)
    with _archive(archive_dir, limit_s) as control:
        count = control.delete_segments(wanted, begin)
        _await_segments_gone(archive_dir, descriptor, begin, limit_s)
    freed = before - _length_of_files(archive_dir)
    return Answer(_deletion(archive_dir, [], [], descriptor, begin, deleted_segments=count, freed_bytes=freed))


def _directories(path: Path, *, is_cluster_needed: bool) -> tuple[Path | None, Path]:
    """The cluster's and the archive's directory; an archive may be alone.

    By the archive's own directory the cluster beside it is found as well: what its start needs stays.
    """
    try:
        cluster_dir = find_cluster_dir(path)
    except NoFactsError:
        if is_cluster_needed:
            raise
        archive_dir = find_archive_dir(path)
        return _cluster_dir_beside(archive_dir), archive_dir
    return cluster_dir, archive_dir_beside(cluster_dir)


def _cluster_dir_beside(archive_dir: Path) -> Path | None:
    with suppress(NoFactsError):
        cluster_dir = find_cluster_dir(archive_dir.resolve().parent)
        if archive_dir_beside(cluster_dir).samefile(archive_dir):
            return cluster_dir
    return None


def _check_same_node(cluster_dir: Path, archive_dir: Path) -> None:
    """Refuse an archive that runs on another media driver than the member: where several nodes share a directory, what
    lies beside a member whose archive is elsewhere may be another's. If neither runs, nobody can know."""
    mark, archive = mark_of(cluster_dir), read_archive_mark(archive_dir)
    if mark is None or archive is None:
        return
    where = f"the archive of {archive_dir} is not that of the node of {cluster_dir}"
    fix = "link the node's own archive directory into its cluster directory"
    if not archive.is_alive(now_ms()):
        if mark.state == "running":
            raise RefusedError(f"{where}, which runs while the archive does not: {fix}")
        return
    if Path(archive.aeron_dir).resolve() != Path(mark.aeron_directory).resolve():
        raise RefusedError(
            f"{where}: one runs on the media driver of {archive.aeron_dir}, the other on that of "
            f"{mark.aeron_directory}: {fix}"
        )


def _check_snapshots(entries: list[RecordingLogEntry], recording_id: int) -> None:
    for entry in entries:
        if entry.is_valid_snapshot and entry.recording_id == recording_id:
            raise RefusedError(
                f"recording {recording_id} is of the snapshot at {entry.log_position}, which counts: "
                "archive delete-snapshots deletes old ones whole"
            )


def _check_start(cluster_dir: Path, newest: int, position: int) -> None:
    if newest == NULL_POSITION:
        raise RefusedError(
            f"a start of the node of {cluster_dir} replays the log from its begin: take a snapshot first"
        )
    if position > newest:
        raise RefusedError(
            f"a start of the node of {cluster_dir} replays the log from its latest snapshot on, at "
            f"{newest}: give a position up to that, or take a snapshot first"
        )


def _check_end(archive_dir: Path, descriptor: RecordingDescriptor, begin: int) -> None:
    try:
        segments = segment_positions(archive_dir, descriptor, file_names(archive_dir))
        end = recorded_position(archive_dir, descriptor, recorded_positions(archive_dir), segments)
    except RecordingError as error:
        raise NoFactsError(str(error)) from error
    if begin > end:
        raise RefusedError(f"recording {descriptor.recording_id} ends at {end}: give a position up to that")


def _catalog(archive_dir: Path) -> list[RecordingDescriptor]:
    try:
        return list(read_catalog(archive_dir))
    except RecordingError as error:
        raise NoFactsError(str(error)) from error


def _deletion(
    archive_dir: Path,
    deleted: list[int],
    invalidated: list[LogEntry],
    descriptor: RecordingDescriptor | None = None,
    start_position: int | None = None,
    *,
    deleted_segments: int = 0,
    freed_bytes: int = 0,
) -> Deletion:
    return Deletion(
        archive_dir=str(archive_dir),
        has_changed=bool(deleted or invalidated or deleted_segments),
        deleted_recordings=deleted,
        invalidated=invalidated,
        recording_id=None if descriptor is None else descriptor.recording_id,
        start_position=start_position,
        deleted_segments=deleted_segments,
        freed_bytes=freed_bytes,
    )


# Files. An archive answers before it has deleted them.


def _length_of_files(archive_dir: Path) -> int:
    """Bytes that recordings take of the disk: their files may have holes."""
    blocks = 0
    for path in archive_dir.glob("*.rec*"):
        with suppress(FileNotFoundError):  # it goes meanwhile
            blocks += path.stat().st_blocks
    return blocks * _BLOCK_LENGTH


def _await(is_done: Callable[[], bool], what: str, limit_s: float) -> None:
    deadline_s = time.monotonic() + limit_s
    while not is_done():
        if time.monotonic() > deadline_s:
            raise ArchiveError(f"the archive has not deleted {what} within {limit_s:g} s: see its errors")
        time.sleep(_PAUSE_S)


def _await_files_gone(archive_dir: Path, recording_ids: list[int], limit_s: float) -> None:
    prefixes = tuple(f"{each}-" for each in recording_ids)
    _await(
        lambda: not any(name.startswith(prefixes) for name in file_names(archive_dir)),
        "the files of the snapshots",
        limit_s,
    )


def _await_segments_gone(archive_dir: Path, descriptor: RecordingDescriptor, begin: int, limit_s: float) -> None:
    _await(
        lambda: min(segment_positions(archive_dir, descriptor, file_names(archive_dir)), default=begin) >= begin,
        f"the segments of recording {descriptor.recording_id}",
        limit_s,
    )


# The archive.


@contextmanager
def _archive(archive_dir: Path, limit_s: float) -> Iterator[ArchiveControl]:
    mark = read_archive_mark(archive_dir)
    if mark is not None and mark.is_alive(now_ms()):
        with open_cnc(Path(mark.aeron_dir)) as file:
            if not file.is_driver_alive(now_ms()):
                raise RefusedError(f"the media driver of {mark.aeron_dir} shows no sign of life")
        place = mark.aeron_dir, mark.local_control_channel, mark.local_control_stream_id
        with _connected(*place, limit_s) as control:
            yield control
        return
    if mark is not None and mark.is_active and process_state(mark.pid, mark.start_timestamp_ms) == "alive":
        raise RefusedError(
            f"the archive of {archive_dir} shows no sign of life, but its process (pid {mark.pid}) is there, and "
            f"would end when it continues and finds it taken over: end it first; if that is another program, remove "
            f"{mark.path}"
        )
    with _running_for_this(archive_dir, mark) as aeron_dir:
        channel, stream_id = aeron_defaults.ARCHIVE_LOCAL_CONTROL_CHANNEL, aeron_defaults.ARCHIVE_CONTROL_STREAM_ID
        with _connected(aeron_dir, channel, stream_id, limit_s) as control:
            yield control


@contextmanager
def _running_for_this(archive_dir: Path, mark: MarkFileStatus | None) -> Iterator[str]:
    """Run the archive of a directory; yield the directory of its media driver."""
    from container.aeron.media_driver import MediaDriver

    with ExitStack() as stack:
        driver = stack.enter_context(MediaDriver.launch_embedded(counters_buffer_length=_COUNTERS_BUFFER_LENGTH))
        stack.enter_context(_launched(archive_dir, driver.aeron_dir, mark))
        yield driver.aeron_dir


def _launched(archive_dir: Path, aeron_dir: str, mark: MarkFileStatus | None) -> Archive:
    from container.archive.server.native_archive import Archive

    try:
        return Archive.launch(
            archive_dir=str(archive_dir),
            aeron_dir=aeron_dir,
            archive_id=NULL_VALUE if mark is None else mark.owner_id,
            is_control_channel_enabled=False,
            replication_channel="aeron:udp?endpoint=localhost:0",
            file_sync_level=1,
            catalog_file_sync_level=1,
        )
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RefusedError(
            f"the disk of {archive_dir} has no byte left, and the archive needs some KiB to start: move another file "
            "away from that disk, or make it larger, and try again"
        ) from error


def _connected(aeron_dir: str, channel: str, stream_id: int, limit_s: float) -> AbstractContextManager[ArchiveControl]:
    from container.operate.cluster_control import ArchiveControl

    return closing(ArchiveControl(aeron_dir, channel, stream_id, limit_s))
