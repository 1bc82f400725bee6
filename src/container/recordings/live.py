"""Reads a running member's recorded and committed positions from the counters of its media driver.

The mark files tell whether archive and consensus module live, and where their driver keeps its counters. Upstream:
RecordingPos.java, ClusterCounters.java.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from container.common.aeron_defaults import FRAME_ALIGNMENT, CounterType
from container.common.regular_files import read_regular
from container.files.catalog import POSITION_MAX
from container.files.cnc_file import (
    COMPONENT_BACKUP,
    CncFile,
    CounterRecord,
    FileFormatError,
    MarkFileStatus,
    read_mark_file,
)
from container.files.directories import Directory, RemoteDirectory

ARCHIVE_MARK_FILE_NAME = "archive-mark.dat"
_ARCHIVE_LINK_FILE_NAME = "archive-mark.lnk"
_CLUSTER_MARK_FILE_NAME = "cluster-mark.dat"
_CLUSTER_LINK_FILE_NAME = "cluster-mark.lnk"

_LINK_LENGTH_MAX = 16 * 1024
_RECORDING_SOURCE_LENGTH_OFFSET = 12
_NULL_ARCHIVE_IDS = (-1, 0)  # of mark files from before archives had ids


def read_archive_mark(archive_dir: Directory) -> MarkFileStatus | None:
    """Return what the archive's mark file says; ``None`` when there is none that can be read."""
    return _read_mark(archive_dir, ARCHIVE_MARK_FILE_NAME, _ARCHIVE_LINK_FILE_NAME)


def read_cluster_mark(cluster_dir: Directory) -> MarkFileStatus | None:
    """Return what the consensus module's mark file says; ``None`` when there is none that can be read."""
    return _read_mark(cluster_dir, _CLUSTER_MARK_FILE_NAME, _CLUSTER_LINK_FILE_NAME)


def archive_id_of(mark: MarkFileStatus | None) -> int | None:
    """Return the id of the archive whose mark file it is; ``None`` where that is not known."""
    return None if mark is None or mark.owner_id in _NULL_ARCHIVE_IDS else mark.owner_id


def _mark_path(directory: Path, name: str, link_name: str) -> Path:
    link = directory / link_name
    if link.exists():
        directory = Path(read_regular(link, _LINK_LENGTH_MAX).decode("ascii").strip())
    return directory / name


def _read_mark(directory: Directory, name: str, link_name: str) -> MarkFileStatus | None:
    try:
        if isinstance(directory, RemoteDirectory):
            with tempfile.NamedTemporaryFile() as copy:
                copy.write(directory.content(name))
                copy.flush()
                return read_mark_file(Path(copy.name))
        return read_mark_file(_mark_path(Path(directory), name, link_name))
    except (OSError, ValueError, FileFormatError):
        return None


def recorded_positions(archive_dir: Directory) -> dict[int, int]:
    """Return up to where a running archive has recorded, by recording id; none when it does not run.

    Counters are on the host of their driver: a remote directory has none, here as below.
    """
    if isinstance(archive_dir, RemoteDirectory):
        return {}
    mark = read_archive_mark(archive_dir)
    if mark is None:
        return {}

    def recording_id(counter: CounterRecord) -> int | None:
        archive_id_offset = _RECORDING_SOURCE_LENGTH_OFFSET + 4 + counter.key_int32(_RECORDING_SOURCE_LENGTH_OFFSET)
        archive_id = counter.key_int64(archive_id_offset)
        return counter.key_int64(0) if mark.owner_id in (archive_id, *_NULL_ARCHIVE_IDS) else None

    return _positions(mark, CounterType.RECORDING_POSITION, recording_id)


def committed_position(cluster_dir: Directory | None, archive_dir: Directory) -> int | None:
    """Return the commit position of a running consensus module; ``None`` when none is known to run.

    Without a cluster directory it is the one that shares the archive's media driver, if there is only one.
    """
    if isinstance(archive_dir, RemoteDirectory):
        return None
    mark = read_archive_mark(archive_dir) if cluster_dir is None else read_cluster_mark(cluster_dir)
    if mark is None:
        return None
    cluster_id = mark.cluster_id

    def wanted(counter: CounterRecord) -> int | None:
        return 0 if cluster_dir is None or counter.key_int32(0) == cluster_id else None

    return _positions(mark, CounterType.COMMIT_POSITION, wanted).get(0)


def is_running(cluster_dir: Directory | None, archive_dir: Directory) -> bool:
    """Whether the consensus module has kept its mark file up to date, or without a cluster directory the archive."""
    if isinstance(archive_dir, RemoteDirectory):
        return False
    mark = read_archive_mark(archive_dir) if cluster_dir is None else read_cluster_mark(cluster_dir)
    return mark is not None and mark.is_alive(time.time_ns() // 1_000_000)


def is_backup(cluster_dir: Directory | None) -> bool:
    """Whether the cluster directory is that of a backup (upstream: ClusterBackup), running or not."""
    mark = None if cluster_dir is None else read_cluster_mark(cluster_dir)
    return mark is not None and mark.component_type == COMPONENT_BACKUP


def _positions(mark: MarkFileStatus, type_id: int, key_of: Callable[[CounterRecord], int | None]) -> dict[int, int]:
    """The positions in counters of a type by their key, where it has one counter only.

    It takes the smaller of two readings, in case one falls into a change. Impossible positions are left out.
    """
    if not mark.is_alive(time.time_ns() // 1_000_000) or not mark.aeron_dir:
        return {}
    try:
        cnc_file = CncFile.open_ready(Path(mark.aeron_dir))
        if cnc_file is None:
            return {}
        try:
            first, second = (
                {(key_of(c), c.counter_id): c.value for c in cnc_file.counters() if c.type_id == type_id}
                for _ in range(2)
            )
        finally:
            cnc_file.close()
    except (OSError, FileFormatError):
        return {}
    counts = Counter(key for key, _ in first.keys() | second.keys())
    return {
        key: position
        for key, counter_id in first.keys() & second.keys()
        if key is not None and counts[key] == 1
        if (position := min(first[key, counter_id], second[key, counter_id])) % FRAME_ALIGNMENT == 0
        and 0 <= position <= POSITION_MAX
    }
