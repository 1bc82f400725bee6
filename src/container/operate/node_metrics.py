"""The metrics of nodes of this machine: names, labels, and their values, read from counters and mark files.

An exporter for Prometheus and instruments of OpenTelemetry have the same names. Reading changes nothing and asks no
process, so it costs a node nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from container.common.aeron_defaults import MODULE_STATES, ROLES, CounterType
from container.errors import ContainerError
from container.files.cnc_file import CounterRecord
from container.operate.driver_counters import BACKUP_STATES, ELECTION_STATES, TOGGLES
from container.operate.driver_streams import backlogs_of
from container.operate.facts import Status
from container.operate.marks import now_ms
from container.operate.places import find_cluster_dir
from container.operate.status import check_ready, read_status_and_counters

_NS_PER_S = 1_000_000_000
_MS_PER_S = 1_000
_NODE = ("node", "cluster_id", "member_id")
_SYSTEM_COUNTER_TYPE = 0


class Metric(NamedTuple):
    """A metric: its name with the unit, whether it only grows, what it means, and its labels."""

    name: str
    is_counter: bool
    help: str
    labels: tuple[str, ...] = _NODE


class Sample(NamedTuple):
    """A value of a metric, for one set of its labels' values."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, False, text, (*_NODE, *labels))


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, True, text, (*_NODE, *labels))


UP = Metric("aeron_cluster_up", False, "1 while the node's consensus module or backup is running, else 0", ("node",))
DRIVER_UP = _gauge("aeron_cluster_driver_up", "1 while the node's media driver is running, else 0")
ARCHIVE_UP = _gauge("aeron_cluster_archive_up", "1 while the node's archive is running, else 0")
SERVICE_UP = _gauge("aeron_cluster_service_up", "1 while this service is running, else 0", "service_id")
READY = _gauge("aeron_cluster_ready", "1 while all parts of the node run and no election is in progress, else 0")
LEADER = _gauge("aeron_cluster_leader", "1 while the node leads its cluster and no election is in progress, else 0")
MODULE_STATE = _gauge(
    "aeron_cluster_module_state", "1 for the current state of the consensus module, 0 for all others", "state"
)
ROLE = _gauge("aeron_cluster_role", "1 for the current role of the node, 0 for all others", "role")
ELECTION_STATE = _gauge(
    "aeron_cluster_election_state",
    "1 for the current state of the election, 0 for all others; CLOSED means that none is in progress",
    "state",
)
CONTROL_TOGGLE = _gauge(
    "aeron_cluster_control_toggle",
    "1 for the operator's request in progress, 0 for all others; NEUTRAL means none",
    "toggle",
)
MARK_FILE_AGE = _gauge(
    "aeron_cluster_mark_file_age_seconds",
    "Seconds since a part last updated its mark file; absent after an orderly end",
    "component",
)
ELECTIONS = _counter("aeron_cluster_elections_total", "Elections since the node started")
TERM = _gauge("aeron_cluster_leadership_term_id", "Id of the current leadership term")
COMMIT_POSITION = _gauge(
    "aeron_cluster_commit_position_bytes", "Log position, in bytes, up to which the node knows the log is committed"
)
RECORDED_POSITION = _gauge(
    "aeron_cluster_recorded_position_bytes",
    "Log position, in bytes, up to which the node's archive has recorded the log",
)
SNAPSHOT_POSITION = _gauge(
    "aeron_cluster_last_snapshot_position_bytes", "Log position, in bytes, of the latest snapshot; 0 if there is none"
)
SNAPSHOTS = _counter("aeron_cluster_snapshots_total", "Snapshots taken since the node started")
SESSIONS = _gauge("aeron_cluster_sessions", "Open client sessions")
TIMED_OUT = _counter("aeron_cluster_timed_out_clients_total", "Client sessions that timed out since the node started")
ERRORS = _counter("aeron_cluster_errors_total", "Errors of a part since it started", "component")
MAX_CYCLE = _gauge(
    "aeron_cluster_max_cycle_time_seconds", "Longest duty cycle of a part since it started, in seconds", "component"
)
SLOW_CYCLES = _counter(
    "aeron_cluster_cycle_time_exceeded_total", "Duty cycles that exceeded the part's configured threshold", "component"
)
MAX_SNAPSHOT = _gauge(
    "aeron_cluster_max_snapshot_duration_seconds",
    "Longest time that a snapshot took since the part started, in seconds",
    "component",
)
SLOW_SNAPSHOTS = _counter(
    "aeron_cluster_snapshot_duration_exceeded_total",
    "Snapshots that took longer than the configured threshold",
    "component",
)
BACKUP_STATE = _gauge("aeron_cluster_backup_state", "1 for the current state of the backup, 0 for all others", "state")
BACKUP_POSITION = _gauge(
    "aeron_cluster_backup_position_bytes", "Log position, in bytes, up to which the backup has recorded the log"
)
BACKUP_QUERY = _gauge(
    "aeron_cluster_backup_next_query_timestamp_seconds", "Unix time, in seconds, of the backup's next query to a member"
)
BACKUP_SNAPSHOTS = _counter("aeron_cluster_backup_snapshots_total", "Snapshots that the backup has copied")
RECORDING_SESSIONS = _gauge("aeron_archive_recording_sessions", "Recordings that the archive is writing now")
REPLAY_SESSIONS = _gauge("aeron_archive_replay_sessions", "Replays that the archive is sending now")
CONTROL_SESSIONS = _gauge("aeron_archive_control_sessions", "Clients connected to the archive")
WRITTEN = _counter("aeron_archive_written_bytes_total", "Bytes that the archive has written to recordings")
WRITE_TIME = _counter("aeron_archive_write_time_seconds_total", "Seconds that the archive has spent writing recordings")
READ = _counter("aeron_archive_read_bytes_total", "Bytes that the archive has read for replays")
READ_TIME = _counter("aeron_archive_read_time_seconds_total", "Seconds that the archive has spent reading for replays")
SENDER_BACKLOG = _gauge(
    "aeron_driver_sender_backlog_bytes", "Bytes written but not yet sent, of the media driver's stream with the most"
)
RECEIVER_GAP = _gauge(
    "aeron_driver_receiver_gap_bytes",
    "Bytes between the first gap and the highest position received, of the media driver's stream with the most",
)
SUBSCRIBER_BACKLOG = _gauge(
    "aeron_driver_subscriber_backlog_bytes",
    "Bytes that a stream's slowest subscriber has not read, of the media driver's stream with the most",
)

# By counter type of the archive (upstream: AeronCounters.java): the metric, and the divisor of its value.
_ARCHIVE: dict[int, tuple[Metric, int]] = {
    CounterType.ARCHIVE_RECORDING_SESSIONS: (RECORDING_SESSIONS, 1),
    CounterType.ARCHIVE_REPLAY_SESSIONS: (REPLAY_SESSIONS, 1),
    CounterType.ARCHIVE_CONTROL_SESSIONS: (CONTROL_SESSIONS, 1),
    CounterType.ARCHIVE_RECORDER_TOTAL_WRITE_BYTES: (WRITTEN, 1),
    CounterType.ARCHIVE_RECORDER_TOTAL_WRITE_TIME: (WRITE_TIME, _NS_PER_S),
    CounterType.ARCHIVE_REPLAYER_TOTAL_READ_BYTES: (READ, 1),
    CounterType.ARCHIVE_REPLAYER_TOTAL_READ_TIME: (READ_TIME, _NS_PER_S),
}

# By counter type of each part: the metric, the component or the beginning of its name, and the divisor of its value.
_PARTS: dict[int, tuple[Metric, str, int]] = {
    CounterType.ARCHIVE_ERROR_COUNT: (ERRORS, "archive", 1),
    CounterType.ARCHIVE_MAX_CYCLE_TIME: (MAX_CYCLE, "archive", _NS_PER_S),
    CounterType.ARCHIVE_CYCLE_TIME_THRESHOLD_EXCEEDED: (SLOW_CYCLES, "archive", 1),
    CounterType.BACKUP_ERROR_COUNT: (ERRORS, "backup", 1),
    CounterType.BACKUP_LIVE_LOG_POSITION: (BACKUP_POSITION, "", 1),
    CounterType.BACKUP_QUERY_DEADLINE: (BACKUP_QUERY, "", _MS_PER_S),
    CounterType.BACKUP_SNAPSHOT_COUNTER: (BACKUP_SNAPSHOTS, "", 1),
    CounterType.CONSENSUS_MODULE_ERROR_COUNT: (ERRORS, "consensus-module", 1),
    CounterType.CONSENSUS_MODULE_MAX_CYCLE_TIME: (MAX_CYCLE, "consensus-module", _NS_PER_S),
    CounterType.CONSENSUS_MODULE_CYCLE_TIME_THRESHOLD_EXCEEDED: (SLOW_CYCLES, "consensus-module", 1),
    CounterType.TOTAL_MAX_SNAPSHOT_DURATION: (MAX_SNAPSHOT, "consensus-module", _NS_PER_S),
    CounterType.TOTAL_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED: (SLOW_SNAPSHOTS, "consensus-module", 1),
    CounterType.CLUSTERED_SERVICE_ERROR_COUNT: (ERRORS, "service-", 1),
    CounterType.SERVICE_MAX_CYCLE_TIME: (MAX_CYCLE, "service-", _NS_PER_S),
    CounterType.SERVICE_CYCLE_TIME_THRESHOLD_EXCEEDED: (SLOW_CYCLES, "service-", 1),
    CounterType.SERVICE_MAX_SNAPSHOT_DURATION: (MAX_SNAPSHOT, "service-", _NS_PER_S),
    CounterType.SERVICE_SNAPSHOT_DURATION_THRESHOLD_EXCEEDED: (SLOW_SNAPSHOTS, "service-", 1),
}


def _of_driver(name: str, text: str) -> tuple[Metric, str, int]:
    return _counter(f"aeron_driver_{name}_total", text), "", 1


# By the ids of a driver's system counters (upstream: SystemCounterDescriptor.java).
_DRIVER: dict[int, tuple[Metric, str, int]] = {
    0: _of_driver("sent_bytes", "Bytes that the media driver has sent"),
    1: _of_driver("received_bytes", "Bytes that the media driver has received"),
    5: _of_driver("naks_sent", "NAKs sent: requests to a sender to repeat data lost on its way to this driver"),
    6: _of_driver("naks_received", "NAKs received: requests from receivers to repeat data lost on its way to them"),
    11: _of_driver("retransmits", "Times that the media driver sent data again"),
    12: _of_driver(
        "flow_control_under_runs", "Packets received behind their stream's receive window, so already consumed"
    ),
    13: _of_driver("flow_control_over_runs", "Packets received beyond their stream's receive window, and dropped"),
    14: _of_driver("invalid_packets", "Packets received that are not valid Aeron frames"),
    15: (ERRORS, "media-driver", 1),
    16: _of_driver("short_sends", "Sends of which the socket accepted only a part"),
    18: _of_driver("sender_flow_control_limits", "Times that a sender had to wait for its receivers, by flow control"),
    19: _of_driver(
        "unblocked_publications", "Publications unblocked after their writer stopped in the middle of a message"
    ),
    23: _of_driver("loss_gap_fills", "Gaps filled with padding instead of a retransmission"),
    24: _of_driver("client_timeouts", "Clients of the media driver that timed out"),
    26: (MAX_CYCLE, "media-driver-conductor", _NS_PER_S),
    27: (SLOW_CYCLES, "media-driver-conductor", 1),
    28: (MAX_CYCLE, "media-driver-sender", _NS_PER_S),
    29: (SLOW_CYCLES, "media-driver-sender", 1),
    30: (MAX_CYCLE, "media-driver-receiver", _NS_PER_S),
    31: (SLOW_CYCLES, "media-driver-receiver", 1),
}

METRICS: tuple[Metric, ...] = tuple(
    dict.fromkeys(
        [
            *(
                UP,
                DRIVER_UP,
                ARCHIVE_UP,
                SERVICE_UP,
                READY,
                LEADER,
                MODULE_STATE,
                ROLE,
                ELECTION_STATE,
                CONTROL_TOGGLE,
                MARK_FILE_AGE,
                ELECTIONS,
                TERM,
            ),
            *(COMMIT_POSITION, RECORDED_POSITION, SNAPSHOT_POSITION, SNAPSHOTS, SESSIONS, TIMED_OUT, ERRORS, MAX_CYCLE),
            *(SLOW_CYCLES, MAX_SNAPSHOT, SLOW_SNAPSHOTS),
            *(BACKUP_STATE, BACKUP_POSITION, BACKUP_QUERY, BACKUP_SNAPSHOTS),
            *[metric for metric, _ in _ARCHIVE.values()],
            *(SENDER_BACKLOG, RECEIVER_GAP, SUBSCRIBER_BACKLOG),
            *[metric for metric, _, _ in _DRIVER.values()],
        ]
    )
)
"""All that there are, in the order in which they are shown."""


class NodeSample(NamedTuple):
    """A sample of one node: its values, and its status or why that is not known."""

    path: Path
    samples: list[Sample]
    status: Status | None
    problem: str


def sample_node(path: Path) -> NodeSample:
    """Read all metrics of the node whose cluster directory is at a path or right below it. Raise nothing it meets."""
    try:
        cluster_dir = find_cluster_dir(path)
        status, records = read_status_and_counters(cluster_dir)
        samples = _joined(_samples(path, status, records))
    except (ContainerError, OSError, MemoryError) as error:
        return NodeSample(path, [Sample(UP, (str(path),), 0)], None, str(error))
    return NodeSample(path, samples, status, "; ".join(status.problems))


def _joined(found: Iterable[Sample]) -> list[Sample]:
    """One sample for each set of labels: a part with several agents counts each, as Java's archive with three threads.

    Counters are added; the greatest value of a gauge is the part's.
    """
    joined: dict[tuple[Metric, tuple[str, ...]], Sample] = {}
    for sample in found:
        key = sample.metric, sample.labels
        other = joined.get(key)
        if other is not None:
            value = sample.value + other.value if sample.metric.is_counter else max(sample.value, other.value)
            sample = sample._replace(value=value)
        joined[key] = sample
    return list(joined.values())


def sample_nodes(paths: Sequence[Path]) -> list[Sample]:
    """Read all metrics of several nodes: of one that cannot be read, that it is not up."""
    return [sample for path in paths for sample in sample_node(path).samples]


def _samples(path: Path, status: Status, records: list[CounterRecord]) -> Iterator[Sample]:
    labels = (str(path), str(status.cluster_id), "" if status.member_id is None else str(status.member_id))
    is_up = status.node == "running"
    is_quiet = status.election_state == "CLOSED"
    yield Sample(UP, (str(path),), is_up)
    yield Sample(DRIVER_UP, labels, status.is_driver_alive)
    yield Sample(ARCHIVE_UP, labels, status.archive == "running")
    for service in status.services:
        yield Sample(SERVICE_UP, (*labels, str(service.service_id)), service.state == "running")
    reasons: list[str] = []
    check_ready(status.module_state, status.election_state, status.services, reasons)
    is_ready = is_up and not reasons and all(service.state == "running" for service in status.services)
    if status.component == "CONSENSUS_MODULE":  # a backup is not a member, and so never ready
        yield Sample(READY, labels, is_ready)
        yield Sample(LEADER, labels, is_up and is_quiet and status.role == "LEADER")
    for metric, names, found in (
        (BACKUP_STATE, BACKUP_STATES, None if status.backup is None else status.backup.state),
        (MODULE_STATE, MODULE_STATES, status.module_state),
        (ROLE, ROLES, status.role),
        (ELECTION_STATE, ELECTION_STATES, status.election_state),
        (CONTROL_TOGGLE, TOGGLES, status.control_toggle),
    ):
        for name in names if found is not None else ():
            yield Sample(metric, (*labels, name), name == found)
    first = "backup" if status.component == "BACKUP" else "consensus-module"
    signs = [(first, status.activity_timestamp_ms), ("archive", status.archive_activity_timestamp_ms)]
    signs += [(f"service-{each.service_id}", each.activity_timestamp_ms) for each in status.services]
    for component, activity_ms in signs:
        if activity_ms is not None:
            yield Sample(MARK_FILE_AGE, (*labels, component), max(0, now_ms() - activity_ms) / _MS_PER_S)
    for metric, value in (
        (ELECTIONS, status.election_count),
        (TERM, status.leadership_term_id),
        (COMMIT_POSITION, status.commit_position),
        (RECORDED_POSITION, status.recorded_position),
        (SNAPSHOT_POSITION, 0 if status.last_snapshot is None else status.last_snapshot.log_position),
        (SNAPSHOTS, status.snapshot_count),
        (TIMED_OUT, status.timed_out_clients),
    ):
        if value is not None:
            yield Sample(metric, labels, value)
    if status.is_driver_alive:
        yield from _counted(labels, status, records)


def _counted(labels: tuple[str, ...], status: Status, records: list[CounterRecord]) -> Iterator[Sample]:
    session_count = 0
    for record in records:
        if record.type_id == CounterType.CLUSTER_SESSION:
            session_count += record.key_int32(0) == status.cluster_id
        elif record.type_id in _ARCHIVE:
            if _is_of(record, status):
                metric, divisor = _ARCHIVE[record.type_id]
                yield Sample(metric, labels, record.value / divisor)
        else:
            part = _DRIVER.get(record.key_int32(0)) if record.type_id == _SYSTEM_COUNTER_TYPE else None
            part = part or _PARTS.get(record.type_id)
            if part is not None and _is_of(record, status):
                metric, component, divisor = part
                if component == "service-":
                    component += str(record.key_int32(4))
                more = (component,) if "component" in metric.labels else ()
                yield Sample(metric, (*labels, *more), record.value / divisor)
    yield Sample(SESSIONS, labels, session_count)
    backlogs = backlogs_of(records)
    for metric, values in (
        (SENDER_BACKLOG, [each.sender_backlog for each in backlogs]),
        (RECEIVER_GAP, [each.receiver_gap for each in backlogs]),
        (SUBSCRIBER_BACKLOG, [each.subscriber_backlog for each in backlogs]),
    ):
        yield Sample(metric, labels, max((value for value in values if value is not None), default=0))


def _is_of(record: CounterRecord, status: Status) -> bool:
    """Whether it is of this node's cluster, archive or media driver: several may have one media driver."""
    if record.type_id >= CounterType.CONSENSUS_MODULE_STATE:
        return record.key_int32(0) == status.cluster_id
    is_driver_s = record.type_id == _SYSTEM_COUNTER_TYPE
    return is_driver_s or status.archive_id is None or record.key_int64(0) == status.archive_id
