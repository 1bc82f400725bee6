"""A node on one page, and the answers for probes."""

from __future__ import annotations

import time
from collections.abc import Sized
from pathlib import Path

from container.common.aeron_defaults import CounterType
from container.files.cnc_file import CounterRecord, FileFormatError
from container.operate.answers import Answer, NoFactsError
from container.operate.driver_counters import ClusterCounters, open_cnc, read_cluster_counters
from container.operate.facts import BackupStatus, Health, Leadership, LogEntry, MarkFile, ServiceStatus, Status
from container.operate.marks import now_ms, read_cluster_mark, read_service_marks, state_of
from container.operate.places import archive_dir_beside, find_cluster_dir
from container.operate.recording_logs import facts_of, latest_snapshot, read_log

_LOOK_AGAIN_S = 0.05
_QUERYING_STATES = ("BACKUP_QUERY", "SNAPSHOT_RETRIEVE", "UPDATE_RECORDING_LOG")
_READY_STATES = ("ACTIVE", "SUSPENDED", "SNAPSHOT")


def status(path: Path) -> Answer:
    """Answer how a node is; 1 when its consensus module does not run."""
    found = read_status(find_cluster_dir(path))
    return Answer(found, 0 if found.node == "running" else 1)


def read_status(cluster_dir: Path) -> Status:
    """Read all that `status` shows.

    Raises:
        NoFactsError: the mark file of the consensus module cannot be read.
    """
    return read_status_and_counters(cluster_dir)[0]


def read_status_and_counters(cluster_dir: Path) -> tuple[Status, list[CounterRecord]]:
    """Read all that `status` shows, and all counters of the media driver, none when it does not run: by one look.

    Raises:
        NoFactsError: as :func:`read_status`.
    """
    mark = read_cluster_mark(cluster_dir)
    problems: list[str] = []
    is_driver_alive = False
    records: list[CounterRecord] = []
    try:
        with open_cnc(Path(mark.aeron_directory)) as file:
            is_driver_alive = file.is_driver_alive(now_ms())
            if is_driver_alive:
                records = list(file.counters())
    except NoFactsError as error:
        problems.append(str(error))
    counters = ClusterCounters(records, mark.cluster_id)
    archive, archive_id, archive_activity_ms, log_start, recorded = _archive(cluster_dir, problems)
    found = Status(
        cluster_dir=str(cluster_dir),
        member_id=mark.member_id,
        cluster_id=mark.cluster_id,
        component=mark.component,
        node=mark.state,
        pid=mark.pid,
        activity_timestamp_ms=mark.activity_timestamp_ms,
        is_driver_alive=is_driver_alive,
        archive=archive,
        archive_activity_timestamp_ms=archive_activity_ms,
        archive_id=archive_id,
        module_state=counters.name(CounterType.CONSENSUS_MODULE_STATE),
        role=counters.name(CounterType.NODE_ROLE),
        election_state=counters.name(CounterType.ELECTION_STATE),
        election_count=counters.value(CounterType.ELECTION_COUNT),
        leadership_term_id=counters.value(CounterType.LEADERSHIP_TERM_ID),
        commit_position=counters.value(CounterType.COMMIT_POSITION),
        log_start_position=log_start,
        recorded_position=recorded,
        control_toggle=counters.name(CounterType.CONTROL_TOGGLE),
        snapshot_count=counters.value(CounterType.SNAPSHOT_COUNTER),
        snapshots_retained=_retained(counters, is_driver_alive=is_driver_alive),
        last_snapshot=_last_snapshot(cluster_dir, problems),
        consensus_module_errors=counters.value(CounterType.CONSENSUS_MODULE_ERROR_COUNT),
        timed_out_clients=counters.value(CounterType.CLIENT_TIMEOUT_COUNT),
        backup=_backup(mark, counters),
        services=[
            ServiceStatus(
                service_id=each.service_id,
                state=each.state,
                pid=each.pid,
                activity_timestamp_ms=each.activity_timestamp_ms,
                error_count=each.error_count,
            )
            for each in read_service_marks(mark, cluster_dir, problems)
        ],
        problems=problems,
    )
    return found, records


def _backup(mark: MarkFile, counters: ClusterCounters) -> BackupStatus | None:
    state = counters.name(CounterType.BACKUP_STATE)
    if mark.component != "BACKUP" or state is None:
        return None
    position = counters.value(CounterType.BACKUP_LIVE_LOG_POSITION)
    return BackupStatus(
        state=state,
        live_log_position=position,
        next_query_ms=counters.value(CounterType.BACKUP_QUERY_DEADLINE),
        snapshot_count=counters.value(CounterType.BACKUP_SNAPSHOT_COUNTER),
        error_count=counters.value(CounterType.BACKUP_ERROR_COUNT),
    )


def _archive(cluster_dir: Path, problems: list[str]) -> tuple[str, int | None, int | None, int | None, int | None]:
    """The state of the archive, its id, its last sign of life, and from where up to where it has the log."""
    from container.errors import RecordingError
    from container.recordings.live import archive_id_of, read_archive_mark
    from container.recordings.member import PERMISSIVE, open_member

    try:
        archive_dir = archive_dir_beside(cluster_dir)
    except NoFactsError:
        return "unknown", None, None, None, None
    mark = read_archive_mark(archive_dir)
    state = "unknown" if mark is None else state_of(mark.activity_timestamp_ms)
    archive_id = archive_id_of(mark)
    activity_ms = mark.activity_timestamp_ms if mark is not None and mark.is_active else None
    begin = recorded = None
    try:
        member = open_member(cluster_dir, archive_dir=archive_dir)
        descriptor = member.log_descriptor(PERMISSIVE)
        begin = descriptor.start_position
        recorded = member.recorded_position(descriptor)
    except (RecordingError, FileFormatError) as error:
        problems.append(str(error))
    return state, archive_id, activity_ms, begin, recorded


def _retained(counters: ClusterCounters, *, is_driver_alive: bool) -> int | None:
    """How many snapshots a running node keeps: 0 all, as Java's does; None of one that does not run."""
    record = counters.record(CounterType.RETAINED_LOG_POSITION)
    if record is not None:
        return record.key_int32(4)
    is_known = is_driver_alive and counters.record(CounterType.CONSENSUS_MODULE_STATE) is not None
    return 0 if is_known else None


def _last_snapshot(cluster_dir: Path, problems: list[str]) -> LogEntry | None:
    try:
        found = latest_snapshot(read_log(cluster_dir))
    except NoFactsError as error:
        problems.append(str(error))
        return None
    return facts_of(found[0]) if found else None


def is_leader(path: Path) -> Answer:
    """Answer whether a node leads its cluster, 1 when it does not; upstream looks at the counters of any cluster."""
    mark = read_cluster_mark(find_cluster_dir(path))
    counters = _counters_of(mark)
    role, election = counters.name(CounterType.NODE_ROLE), counters.name(CounterType.ELECTION_STATE)
    leads = mark.state == "running" and role == "LEADER" and election == "CLOSED"
    facts = Leadership(is_leader=leads, member_id=mark.member_id, role=role, election_state=election)
    return Answer(facts, 0 if leads else 1)


def _counters_of(mark: MarkFile) -> ClusterCounters:
    try:
        return read_cluster_counters(Path(mark.aeron_directory), mark.cluster_id)
    except NoFactsError:
        return ClusterCounters([], mark.cluster_id)  # its driver has gone


def health(path: Path, check: str, limit_s: float) -> Answer:
    """Answer whether a node is live, ready or the leader; wait for it until the time limit, 1 when it is not then."""
    begin = time.monotonic()
    while True:
        found, reasons = _look(path, check)
        waited_s = time.monotonic() - begin
        if not reasons or waited_s >= limit_s:
            break
        time.sleep(min(_LOOK_AGAIN_S, limit_s - waited_s))
    facts = Health(
        check=check,
        is_healthy=not reasons,
        reasons=reasons,
        member_id=None if found is None else found[0].member_id,
        module_state=None if found is None else found[1].name(CounterType.CONSENSUS_MODULE_STATE),
        role=None if found is None else found[1].name(CounterType.NODE_ROLE),
        waited_ms=round(waited_s * 1000),
    )
    return Answer(facts, 1 if reasons else 0)


def _look(path: Path, check: str) -> tuple[tuple[MarkFile, ClusterCounters] | None, list[str]]:
    try:
        cluster_dir = find_cluster_dir(path)
        mark = read_cluster_mark(cluster_dir)
    except NoFactsError as error:
        return None, [str(error)]
    reasons: list[str] = []
    records: list[CounterRecord] = []
    try:
        with open_cnc(Path(mark.aeron_directory)) as file:
            if file.is_driver_alive(now_ms()):
                records = list(file.counters())
            else:
                reasons.append("the media driver shows no sign of life")
    except NoFactsError as error:
        reasons.append(str(error))
    counters = ClusterCounters(records, mark.cluster_id)
    if mark.component == "BACKUP":
        is_followed = _is_followed(counters, records, cluster_dir)
        _check_backup(mark, counters, check, reasons, is_followed=is_followed)
        return (mark, counters), reasons
    if mark.component != "CONSENSUS_MODULE":
        reasons.append(f"this is the directory of a {mark.component}, not of a consensus module")
    _check_process("the consensus module", mark, reasons)
    if counters.record(CounterType.CONSENSUS_MODULE_STATE) is None:
        reasons.append("the consensus module has no counters in its media driver")
    services = read_service_marks(mark, cluster_dir, reasons)
    for service in services:
        _check_process(f"service {service.service_id}", service, reasons)
    if check != "live":
        state, election = (
            counters.name(each) for each in (CounterType.CONSENSUS_MODULE_STATE, CounterType.ELECTION_STATE)
        )
        check_ready(state, election, services, reasons)
    role = counters.name(CounterType.NODE_ROLE)
    if check == "leader" and role != "LEADER":
        reasons.append(f"its role is {role or 'unknown'}")
    return (mark, counters), reasons


def _is_followed(counters: ClusterCounters, records: list[CounterRecord], cluster_dir: Path) -> bool:
    """Whether a backup follows a member: the log is recorded as well while that is asked again."""
    state = counters.name(CounterType.BACKUP_STATE)
    if state not in _QUERYING_STATES:
        return state == "BACKING_UP"
    try:
        recording_ids = [entry.recording_id for entry in read_log(cluster_dir) if entry.is_term][-1:]
    except NoFactsError:
        return False
    return any(
        record.type_id == CounterType.RECORDING_POSITION and record.key_int64(0) in recording_ids for record in records
    )


def _check_backup(
    mark: MarkFile, counters: ClusterCounters, check: str, reasons: list[str], *, is_followed: bool
) -> None:
    _check_process("the backup", mark, reasons)
    state = counters.name(CounterType.BACKUP_STATE)
    if state is None:
        reasons.append("the backup has no counters in its media driver")
    elif check == "ready" and not is_followed:
        reasons.append(f"its state is {state}: there is no member that it follows")
    if check == "leader":
        reasons.append("a backup leads no cluster")


def _check_process(name: str, mark: MarkFile, reasons: list[str]) -> None:
    if mark.state != "running":
        reasons.append(f"{name} is {mark.state} (pid {mark.pid})")


def check_ready(state: str | None, election: str | None, services: Sized, reasons: list[str]) -> None:
    """Append why a node whose processes run takes no part in its cluster; nothing when it does."""
    if state not in _READY_STATES:
        reasons.append(f"the consensus module's state is {state or 'unknown'}")
    if election != "CLOSED":
        reasons.append(f"the state of its election is {election or 'unknown'}")
    if not services:
        reasons.append("no service has been started")
