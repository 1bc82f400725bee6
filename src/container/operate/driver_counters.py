"""Reads what a media driver and its clients count, and what the values stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from container.common.aeron_defaults import MODULE_STATES, ROLES, CounterType
from container.files.cnc_file import CncFile, CounterRecord, FileFormatError
from container.files.names import CNC_FILE_NAME
from container.operate.answers import Answer, NoFactsError, named
from container.operate.facts import Counter, Counters
from container.operate.marks import now_ms, read_cluster_mark
from container.operate.places import find_cluster_dir, unreadable

TOGGLES = ("INACTIVE", "NEUTRAL", "SUSPEND", "RESUME", "SNAPSHOT", "SHUTDOWN", "ABORT", "STANDBY_SNAPSHOT")
NODE_TOGGLES = ("INACTIVE", "NEUTRAL", "REPLICATE_STANDBY_SNAPSHOT", "VALIDATE_RECORDING_LOG")
ELECTION_STATES = (
    *("INIT", "CANVASS", "NOMINATE", "CANDIDATE_BALLOT", "FOLLOWER_BALLOT", "LEADER_LOG_REPLICATION"),
    *("LEADER_REPLAY", "LEADER_INIT", "LEADER_READY", "FOLLOWER_LOG_REPLICATION", "FOLLOWER_REPLAY"),
    *("FOLLOWER_CATCHUP_INIT", "FOLLOWER_CATCHUP_AWAIT", "FOLLOWER_CATCHUP", "FOLLOWER_LOG_INIT"),
    *("FOLLOWER_LOG_AWAIT", "FOLLOWER_READY", "CLOSED"),
)
BACKUP_STATES = (
    *("BACKUP_QUERY", "SNAPSHOT_RETRIEVE", "LIVE_LOG_RECORD", "LIVE_LOG_REPLAY", "UPDATE_RECORDING_LOG"),
    *("BACKING_UP", "RESET_BACKUP", "CLOSED"),
)
_MEANINGS: dict[int, tuple[str, ...]] = {
    CounterType.CONSENSUS_MODULE_STATE: MODULE_STATES,
    CounterType.NODE_ROLE: ROLES,
    CounterType.CONTROL_TOGGLE: TOGGLES,
    CounterType.NODE_CONTROL_TOGGLE: NODE_TOGGLES,
    CounterType.ELECTION_STATE: ELECTION_STATES,
    CounterType.BACKUP_STATE: BACKUP_STATES,
}


def find_aeron_dir(path: Path) -> Path:
    """Return the directory of the media driver at a path, or of the node or archive whose directory that is.

    Raises:
        NoFactsError: the files do not say.
    """
    try:
        if (path / CNC_FILE_NAME).exists():
            return path
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        directory = find_cluster_dir(path)
    except NoFactsError:
        found = _aeron_dir_of_archive(path)
        if found is None:
            raise
        return found
    return Path(read_cluster_mark(directory).aeron_directory)


def _aeron_dir_of_archive(path: Path) -> Path | None:
    from container.recordings.live import read_archive_mark

    mark = read_archive_mark(path)
    return Path(mark.aeron_dir) if mark is not None and mark.aeron_dir else None


@contextmanager
def open_cnc(aeron_dir: Path) -> Iterator[CncFile]:
    """Open the CnC file of a media driver for a ``with`` block.

    Raises:
        NoFactsError: there is none, it cannot be read, or it is damaged; also when the block finds that.
    """
    path = aeron_dir / CNC_FILE_NAME
    try:
        file = CncFile(path)
        try:
            yield file
        finally:
            file.close()
    except FileNotFoundError as error:
        raise NoFactsError(f"{path} does not exist: no media driver runs there") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except FileFormatError as error:
        raise NoFactsError(str(error)) from error


def meaning_of(type_id: int, value: int) -> str | None:
    """Return what the value of a counter stands for; None for a plain number."""
    names = _MEANINGS.get(type_id)
    return None if names is None else named(names, value)


class ClusterCounters:
    """The counters of one cluster's consensus module, as they were at one moment."""

    def __init__(self, records: list[CounterRecord], cluster_id: int) -> None:
        self._records = {record.type_id: record for record in records if record.key_int32(0) == cluster_id}

    def record(self, type_id: int) -> CounterRecord | None:
        """Return the counter of a type."""
        return self._records.get(type_id)

    def value(self, type_id: int) -> int | None:
        """Return the value of a type's counter; None without one."""
        found = self._records.get(type_id)
        return None if found is None else found.value

    def name(self, type_id: int) -> str | None:
        """Return what the value of a type's counter stands for; None without one."""
        found = self._records.get(type_id)
        return None if found is None else meaning_of(type_id, found.value)


def read_cluster_counters(aeron_dir: Path, cluster_id: int) -> ClusterCounters:
    """Read the counters of a cluster's consensus module; none while its media driver does not run.

    Raises:
        NoFactsError: the driver's file is not there, or cannot be read.
    """
    with open_cnc(aeron_dir) as file:
        return ClusterCounters(list(file.counters()) if file.is_driver_alive(now_ms()) else [], cluster_id)


def counters(path: Path, types: list[int] | None, text: str | None) -> Answer:
    """Answer what the parts of a node count: all of it, or some types, or what has a text in its label."""
    aeron_dir = find_aeron_dir(path)
    with open_cnc(aeron_dir) as file:
        is_alive = file.is_driver_alive(now_ms())
        found = [
            _counter(record)
            for record in file.counters()
            if (not types or record.type_id in types) and (text is None or text.lower() in record.label.lower())
        ]
        return Answer(
            Counters(aeron_dir=str(aeron_dir), driver_pid=file.pid, is_driver_alive=is_alive, counters=found),
            0 if is_alive else 1,
        )


def _counter(record: CounterRecord) -> Counter:
    return Counter(
        counter_id=record.counter_id,
        type_id=record.type_id,
        value=record.value,
        meaning=meaning_of(record.type_id, record.value),
        label=record.label,
        registration_id=record.registration_id,
        owner_id=record.owner_id,
    )
