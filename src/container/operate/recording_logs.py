"""Reads and changes the recording log of a member that does not run, and plans its recovery."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from container.common.regular_files import open_regular
from container.common.values import counted
from container.errors import ClusterError, RecordingError
from container.files.names import RECORDING_LOG_NAME
from container.files.recording_log import (
    ENTRY_TYPE_NAMES,
    RecordingLogEntry,
    encode_entry,
    in_order,
    read_recording_log,
)
from container.operate.answers import Answer, NoFactsError, RefusedError, known
from container.operate.facts import (
    LogEntry,
    MarkFile,
    PlanLog,
    PlanSnapshot,
    RecordingLog,
    RecordingLogChange,
    RecoveryPlan,
)
from container.operate.marks import read_cluster_mark
from container.operate.places import find_cluster_dir

_TEMPORARY_PREFIX = ".recording-log-"


class PlainRecordingLog(NamedTuple):
    """The entries of a recording log, in the order in which they count."""

    path: str
    entries: tuple[RecordingLogEntry, ...]


def read_log(cluster_dir: Path) -> list[RecordingLogEntry]:
    """Return the entries of a recording log in the order of the file.

    Raises:
        NoFactsError: there is none, it cannot be read, or it is damaged.
    """
    try:
        return list(read_recording_log(cluster_dir))
    except FileNotFoundError as error:
        raise NoFactsError(f"{cluster_dir / RECORDING_LOG_NAME} does not exist") from error
    except RecordingError as error:
        raise NoFactsError(str(error)) from error


def facts_of(entry: RecordingLogEntry) -> LogEntry:
    """Return the facts of an entry."""
    return LogEntry(
        entry_index=entry.entry_index,
        type=ENTRY_TYPE_NAMES[entry.entry_type],
        is_valid=entry.is_valid,
        recording_id=entry.recording_id,
        leadership_term_id=entry.leadership_term_id,
        term_base_log_position=entry.term_base_log_position,
        log_position=known(entry.log_position),
        timestamp=entry.timestamp,
        service_id=known(entry.service_id),
        archive_endpoint=entry.archive_endpoint,
    )


def show(path: Path) -> Answer:
    """Answer the terms and snapshots of a member."""
    cluster_dir = find_cluster_dir(path)
    entries = read_log(cluster_dir)
    ordered = in_order(entries)
    return Answer(
        RecordingLog(
            path=str(cluster_dir / RECORDING_LOG_NAME),
            is_sorted=ordered == entries,
            entries=[facts_of(entry) for entry in ordered],
        )
    )


def latest_snapshot(entries: Iterable[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """Return the latest valid snapshot: that of the consensus module, then those of services 0, 1 and so on."""
    ordered = in_order(entries)
    for index in range(len(ordered) - 1, -1, -1):
        if ordered[index].is_valid_snapshot and ordered[index].is_of_consensus_module:
            return _set_before(ordered, index)
    return []


def _set_before(ordered: list[RecordingLogEntry], index: int) -> list[RecordingLogEntry]:
    """The snapshot that ends with the consensus module's at ``index``, of the same term and position."""
    last = ordered[index]
    found = [last]
    while index > 0:
        index -= 1
        entry = ordered[index]
        place = (entry.leadership_term_id, entry.log_position)
        if not entry.is_valid_snapshot or place != (last.leadership_term_id, last.log_position):
            break
        if entry.service_id == len(found) - 1:  # a crash may have left one of a service twice
            found.append(entry)
    return found


# A start's plan


def recovery_plan(path: Path, service_count: int | None) -> Answer:
    """Answer from where a start of a member would continue, by its present files."""
    from container.consensus.recovery_plan import create_recovery_plan, needed_recording_id
    from container.recordings.member import PERMISSIVE, open_member

    cluster_dir = find_cluster_dir(path)
    entries = read_log(cluster_dir)
    count = len(latest_snapshot(entries)) - 1 if service_count is None else service_count
    recording_log = PlainRecordingLog(str(cluster_dir / RECORDING_LOG_NAME), tuple(in_order(entries)))
    recording_id = needed_recording_id(recording_log)
    extent, recorded = None, None
    if recording_id is not None:
        try:
            member = open_member(path)
            extent = next((each for each in member.recordings(PERMISSIVE) if each.recording_id == recording_id), None)
            recorded = None if extent is None else member.recorded_position(extent)
        except RecordingError as error:
            raise NoFactsError(str(error)) from error
    try:
        plan = create_recovery_plan(recording_log, max(0, count), recording_extent=extent)
    except (ClusterError, RecordingError) as error:
        raise NoFactsError(f"a start would fail: {error}") from error
    log = plan.log
    return Answer(
        RecoveryPlan(
            service_count=max(0, count),
            last_leadership_term_id=known(plan.last_leadership_term_id),
            last_term_base_log_position=plan.last_term_base_log_position,
            appended_log_position=plan.appended_log_position if log is None or recorded is None else recorded,
            committed_log_position=plan.committed_log_position,
            snapshots=[
                PlanSnapshot(
                    recording_id=each.recording_id,
                    leadership_term_id=each.leadership_term_id,
                    term_base_log_position=each.term_base_log_position,
                    log_position=each.log_position,
                    timestamp=each.timestamp,
                    service_id=known(each.service_id),
                )
                for each in plan.snapshots
            ],
            log=None
            if log is None
            else PlanLog(
                recording_id=log.recording_id,
                leadership_term_id=log.leadership_term_id,
                term_base_log_position=log.term_base_log_position,
                log_position=known(log.log_position),
                start_position=log.start_position,
                stop_position=known(log.stop_position),
                initial_term_id=log.initial_term_id,
                term_buffer_length=log.term_buffer_length,
                mtu_length=log.mtu_length,
                session_id=log.session_id,
            ),
        )
    )


# Changes.

type Confirm = Callable[[str], None]
"""Asks whether to continue with what a sentence says; raises RefusedError for a no."""


def sort(path: Path, confirm: Confirm) -> Answer:
    """Sort the file of a stopped member; what is invalid stays so, which upstream's tool makes valid again."""
    cluster_dir = find_cluster_dir(path)
    entries = read_log(cluster_dir)
    ordered = in_order(entries)
    if ordered == entries:
        return unchanged(cluster_dir, len(entries))
    check_stopped(cluster_dir)
    confirm(f"sort the {counted(len(entries), 'entry', 'entries')} of {cluster_dir / RECORDING_LOG_NAME}")
    return _changed(cluster_dir, entries, [], lambda path: _write_entries(path, ordered))


def seed(path: Path, confirm: Confirm) -> Answer:
    """Let a stopped member begin with its latest snapshot at log position 0, and without its log.

    Upstream's tool removes the file of a member that has no snapshot; this refuses that.
    """
    cluster_dir = find_cluster_dir(path)
    entries = read_log(cluster_dir)
    snapshot = latest_snapshot(entries)
    if not snapshot:
        raise RefusedError(f"{cluster_dir / RECORDING_LOG_NAME} has no valid snapshot to begin with")
    check_stopped(cluster_dir)
    confirm(
        f"keep the snapshot at log position {snapshot[0].log_position} alone, as position 0, and drop the other "
        f"{counted(len(entries) - len(snapshot), 'entry', 'entries')} of {cluster_dir / RECORDING_LOG_NAME}"
    )
    kept = [replace(entry, term_base_log_position=0, log_position=0) for entry in reversed(snapshot)]
    return _changed(cluster_dir, entries, [], lambda path: _write_entries(path, kept))


def invalidate_latest_snapshot(path: Path, confirm: Confirm) -> Answer:
    """Invalidate the latest snapshot of a stopped member, so that it starts from the one before it.

    The answer is 1 when there is none.
    """
    cluster_dir = find_cluster_dir(path)
    entries = read_log(cluster_dir)
    check_stopped(cluster_dir)
    with _CopyOf(_real_path(cluster_dir)) as copy:
        _invalidate_latest(copy)
        after = {entry.entry_index: entry for entry in read_log(copy.parent)}
    invalidated = [entry for entry in entries if entry.is_valid and not after.get(entry.entry_index, entry).is_valid]
    if not invalidated:
        return unchanged(cluster_dir, len(entries), exit_code=1)
    confirm(
        f"invalidate the snapshot at log position {invalidated[0].log_position} "
        f"({counted(len(invalidated), 'entry', 'entries')})"
    )
    return _changed(cluster_dir, entries, invalidated, _invalidate_latest)


def _invalidate_latest(path: Path) -> None:
    from container.files.recording_log import RecordingLog as RecordingLogFile
    from container.storage.file_storage import FileStorage

    log = RecordingLogFile.open(FileStorage(), str(path.parent), create=False, file_sync_level=2)
    try:
        log.invalidate_latest_snapshot()
        log.force()
    except ClusterError as error:
        raise RefusedError(str(error)) from error
    finally:
        log.close()


def validate(path: Path, confirm: Confirm) -> Answer:
    """Invalidate the snapshots of a stopped member whose recordings its archive does not have."""
    cluster_dir = find_cluster_dir(path)
    entries = read_log(cluster_dir)
    check_stopped(cluster_dir)
    lost = lost_snapshots(path, entries)
    if not lost:
        return unchanged(cluster_dir, len(entries))
    confirm(f"invalidate {counted(len(lost), 'entry', 'entries')} of snapshots that the archive does not have")
    kept = [replace(entry, is_valid=entry.is_valid and entry not in lost) for entry in entries]
    return _changed(cluster_dir, entries, lost, lambda path: _write_entries(path, kept))


def lost_snapshots(path: Path, entries: Iterable[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """Return the entries of valid snapshots whose recordings the archive of a member does not have.

    Raises:
        NoFactsError: the archive is not there, or its catalog cannot be read.
    """
    from container.recordings.member import open_member

    try:
        recordings = {each.recording_id for each in open_member(path).recordings()}
    except RecordingError as error:
        raise NoFactsError(str(error)) from error
    return [entry for entry in entries if entry.is_valid_snapshot and entry.recording_id not in recordings]


def mark_of(cluster_dir: Path) -> MarkFile | None:
    """Return the mark file of a member; None without one: a copy, a restored member, or one that was never started.

    Raises:
        NoFactsError: there is one, and it does not say whether the node runs.
    """
    try:
        return read_cluster_mark(cluster_dir)
    except NoFactsError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise NoFactsError(
            f"{error}; so it is not known whether the node runs: if it does not, move that file away"
        ) from error


def check_stopped(cluster_dir: Path) -> None:
    """Raise RefusedError where a member may run: it does not read its recording log again."""
    mark = mark_of(cluster_dir)
    if mark is None:
        return
    if mark.state == "running" or (mark.state == "starting" and mark.process in ("alive", "unknown")):
        raise RefusedError(
            f"the node of {cluster_dir} is {mark.state} (pid {mark.pid}): stop it first, as it does not read the file "
            "again while it runs; one that was killed looks so for 10 s"
        )
    if mark.state == "dead" and mark.process == "alive":  # it stands still, and would continue with the old file
        raise RefusedError(
            f"the node of {cluster_dir} shows no sign of life, but its process (pid {mark.pid}) is there: end it "
            f"first; if that is another program, remove {mark.path}"
        )


def unchanged(cluster_dir: Path, entry_count: int, exit_code: int = 0) -> Answer:
    """Return the answer of a word that has found nothing to change."""
    return Answer(
        RecordingLogChange(
            path=str(cluster_dir / RECORDING_LOG_NAME),
            has_changed=False,
            backup=None,
            invalidated=[],
            entry_count=entry_count,
        ),
        exit_code,
    )


def _changed(
    cluster_dir: Path,
    entries: list[RecordingLogEntry],
    invalidated: list[RecordingLogEntry],
    change: Callable[[Path], None],
) -> Answer:
    """Make a backup, change a copy, and put that in the place of the file: a crash leaves the one or the other.

    The operator may have thought about the question for an hour: the change is refused if the node was started since,
    or if the file no longer has the same entries.
    """
    path = _real_path(cluster_dir)
    with _CopyOf(path) as copy:
        if read_log(cluster_dir) != entries:
            raise RefusedError(
                f"{cluster_dir / RECORDING_LOG_NAME} has changed meanwhile: look at it again; nothing was changed here"
            )
        try:
            change(copy)
            check_stopped(cluster_dir)
            backup = back_up(path)
            _force(copy)
            copy.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from error
    with suppress(OSError):  # what a power failure may undo now is the change as a whole
        _force(path.parent)
    return Answer(
        RecordingLogChange(
            path=str(cluster_dir / RECORDING_LOG_NAME),
            has_changed=True,
            backup=str(backup),
            invalidated=[facts_of(entry) for entry in invalidated],
            entry_count=len(read_log(cluster_dir)),
        )
    )


def _real_path(cluster_dir: Path) -> Path:
    """Where the recording log is, which may be a link."""
    return (cluster_dir / RECORDING_LOG_NAME).resolve()


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(f"{path} cannot be changed: {error.strerror or error}; nothing has changed")


class _CopyOf:
    """A copy of a recording log, for a ``with`` block; in a directory of its own in the same file system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Path:
        try:
            self._directory = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=self._path.parent))
            try:
                return _copy(self._path, self._directory / RECORDING_LOG_NAME)
            except BaseException:
                self.__exit__()
                raise
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def _copy(source: Path, target: Path) -> Path:
    """Copy a file with its rights and its owner: the node must be able to write what takes its place."""
    shutil.copy2(source, target)
    found, made = source.stat(), target.stat()
    if (found.st_uid, found.st_gid) != (made.st_uid, made.st_gid):
        try:
            os.chown(target, found.st_uid, found.st_gid)
        except PermissionError as error:
            text = f"it belongs to user {found.st_uid} and group {found.st_gid}: work as that user, or as root"
            raise OSError(error.errno, text, str(source)) from error
        target.chmod(stat.S_IMODE(found.st_mode))
    return target


def _write_entries(path: Path, entries: Iterable[RecordingLogEntry]) -> None:
    path.write_bytes(b"".join(encode_entry(entry) for entry in entries))


def back_up(path: Path) -> Path:
    """Copy the file to a name that is free, and wait until the copy is on the disk: a crash leaves all of it or none.

    Raises:
        OSError: it cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY_PREFIX, dir=path.parent) as directory:
        copy = _copy(path, Path(directory, RECORDING_LOG_NAME))
        _force(copy)
        for number in range(1, 10_000):
            backup = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak{number}")
            with suppress(FileExistsError):
                backup.hardlink_to(copy)
                _force(path.parent)
                return backup
    raise OSError(errno.EEXIST, "there are too many backups", str(path))


def _force(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.is_dir() else open_regular(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
