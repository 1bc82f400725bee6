"""The settings of a consensus module, each with its name, default, unit and range, and what must hold between them.

Names, defaults and meanings are those of upstream's ``ConsensusModule.Configuration``. A service reads some of the same
properties, of which the stream of snapshots has another default there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from container.common import aeron_defaults
from container.common.channel_uri import ChannelUri
from container.errors import ConfigurationError
from container.settings import shared_fields as shared
from container.settings.setting import (
    INT32,
    INT32_MAX,
    MAX_SERVICE_COUNT,
    Setting,
    channel_field,
    duration_field,
    flag_field,
    is_udp_channel,
    number_field,
    path_field,
    setting_field,
    table_of,
    text_field,
)

WHEEL = "wheel"
PRIORITY_HEAP = "priority_heap"

_SUPPLIERS = {
    "io.aeron.cluster.WheelTimerServiceSupplier": WHEEL,
    "io.aeron.cluster.PriorityHeapTimerServiceSupplier": PRIORITY_HEAP,
}
_CLOCKS = {
    "io.aeron.cluster.MillisecondClusterClock": "millis",
    "io.aeron.cluster.NanosecondClusterClock": "nanos",
}
_MS = 1_000_000
_S = 1_000 * _MS
_LOG_PARAMETERS = ("init-term-id", "term-id", "term-offset")


def timer_service_of(name: str) -> str:
    """Which timer service a setting means: :data:`WHEEL` or :data:`PRIORITY_HEAP`."""
    return _SUPPLIERS.get(name, name)


def cluster_time_unit_of(clock: str) -> str:
    """Which unit of time a setting of the cluster clock means: ``millis``, ``micros`` or ``nanos``."""
    return _CLOCKS.get(clock, clock)


@dataclass(frozen=True, kw_only=True)
class ConsensusModuleSettings:
    """All settings of a consensus module with their defaults; read only.

    :func:`~container.settings.sources.load_consensus_module_settings` validates them.
    """

    cluster_id: int = number_field(
        "aeron.cluster.id", "Id of the cluster; several clusters may share one driver.", 0, *INT32
    )
    cluster_member_id: int = number_field(
        "aeron.cluster.member.id", "Id of this member in `cluster_members`.", 0, 0, INT32_MAX
    )
    cluster_members: str | None = text_field(
        "aeron.cluster.members",
        "All members, separated by `|`: id and endpoints for ingress, consensus, log, catch-up and archive; must be "
        "given.",
        None,
        allowed_text="id,host:port,host:port,host:port,host:port,host:port|…",
        shown="must be given",
    )
    service_count: int = number_field(
        "aeron.cluster.service.count", "Number of services of the member.", 1, 1, MAX_SERVICE_COUNT
    )
    app_version: int = shared.APP_VERSION
    cluster_dir: str | None = path_field(
        "aeron.cluster.dir",
        "Directory of the member's recording log, node state and mark files; must be given.",
        None,
        shown="must be given",
    )
    mark_file_dir: str | None = path_field(
        "aeron.cluster.mark.file.dir",
        "Directory of the mark file alone, such as one in memory.",
        None,
        shown="`cluster_dir`",
    )
    services_dir: str | None = path_field(
        "aeron.cluster.services.dir",
        "Directory in which tools look for the services' mark files.",
        None,
        shown="`cluster_dir`",
    )
    aeron_dir: str | None = shared.AERON_DIR
    aeron_library: str | None = shared.AERON_LIBRARY
    driver_timeout_ms: int = shared.DRIVER_TIMEOUT_MS
    ingress_channel: str | None = channel_field(
        "aeron.cluster.ingress.channel",
        "Channel on which clients reach the cluster, such as `aeron:udp`; must be given. A member's own endpoint "
        "completes it.",
        None,
        shown="must be given",
    )
    ingress_stream_id: int = number_field(
        "aeron.cluster.ingress.stream.id", "Stream of clients' messages.", aeron_defaults.INGRESS_STREAM_ID, *INT32
    )
    ingress_fragment_limit: int | None = number_field(
        "aeron.cluster.ingress.fragment.limit",
        "Maximum number of clients' frames read in one turn, or the number of clients' streams if that is larger. On "
        "a thread that parts share, timers and services' messages and requests keep upstream's proportion to it.",
        None,
        1,
        INT32_MAX,
        shown="50; 512 on a thread that parts share",
    )
    is_ipc_ingress_allowed: bool = flag_field(
        "aeron.cluster.ingress.ipc.allowed", "If true, clients on the leader's machine may use `aeron:ipc`.", False
    )
    egress_channel: str | None = channel_field(
        "aeron.cluster.egress.channel",
        "Parameters set on every client's egress channel; they override the client's own.",
        None,
    )
    egress_term_length_max: int = number_field(
        "aeron.cluster.egress.term.length.max",
        "Maximum term length of a client's egress channel; a longer one is cut to this. An egress takes three times "
        "as much memory, and its longest message is an eighth of a term. A client that sets none gets the driver's "
        "default.",
        1024**2,
        64 * 1024,
        1024**3,
        unit="bytes",
        is_power_of_two=True,
    )
    log_channel: str = channel_field("aeron.cluster.log.channel", "Channel of the log.", "aeron:udp?term-length=64m")
    log_stream_id: int = number_field(
        "aeron.cluster.log.stream.id", "Stream of the log.", aeron_defaults.LOG_STREAM_ID, *INT32
    )
    log_fragment_limit: int | None = number_field(
        "aeron.cluster.log.fragment.limit",
        "Maximum number of frames of the log read in one turn.",
        None,
        1,
        INT32_MAX,
        shown="50; 512 on a thread that parts share",
    )
    is_log_control_enabled: bool = flag_field(
        "aeron.cluster.log.control.enable",
        "If true, bind the log's control address to the host of the member's log endpoint.",
        True,
    )
    control_channel: str = channel_field(
        "aeron.cluster.control.channel",
        "Channel between consensus module and services; must be the services'.",
        aeron_defaults.CONTROL_CHANNEL,
    )
    service_stream_id: int = shared.SERVICE_STREAM_ID
    consensus_module_stream_id: int = shared.CONSENSUS_MODULE_STREAM_ID
    consensus_channel: str = channel_field(
        "aeron.cluster.consensus.channel",
        "Channel on which members, backups and standbys reach the member; its own consensus endpoint completes it.",
        "aeron:udp",
    )
    is_consensus_control_enabled: bool = flag_field(
        "aeron.cluster.consensus.control.enable",
        "If true, bind the control address of the consensus publications to the host of the member's consensus "
        "endpoint.",
        True,
    )
    consensus_stream_id: int = number_field(
        "aeron.cluster.consensus.stream.id",
        "Stream of backups' and standbys' requests.",
        aeron_defaults.CONSENSUS_STREAM_ID,
        *INT32,
    )
    replay_channel: str = channel_field(
        "aeron.cluster.replay.channel",
        "Channel on which the log and snapshots are replayed.",
        aeron_defaults.REPLAY_CHANNEL,
    )
    replay_stream_id: int = number_field(
        "aeron.cluster.replay.stream.id",
        "Stream on which the log and snapshots are replayed.",
        aeron_defaults.REPLAY_STREAM_ID,
        *INT32,
    )
    snapshot_channel: str = shared.SNAPSHOT_CHANNEL
    snapshot_stream_id: int = number_field(
        "aeron.cluster.snapshot.stream.id",
        "Stream on which a snapshot is recorded.",
        aeron_defaults.CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
        *INT32,
    )
    archive_control_channel: str = shared.local_control_channel_field("Channel of the member's archive.")
    archive_control_stream_id: int = number_field(
        "aeron.archive.local.control.stream.id",
        "Stream of requests to the archive.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *INT32,
    )
    archive_response_stream_id: int = number_field(
        "aeron.archive.control.response.stream.id",
        "Base of the stream of the archive's answers; `cluster_id * 100 + 100` is added.",
        aeron_defaults.ARCHIVE_RESPONSE_STREAM_ID,
        *INT32,
    )
    archive_message_timeout_ns: int = shared.ARCHIVE_MESSAGE_TIMEOUT_NS
    replication_channel: str | None = text_field(
        "aeron.cluster.replication.channel",
        "Channel on which another member's archive replays to this one; must be given, such as "
        "`aeron:udp?endpoint=localhost:0`.",
        None,
        is_udp_channel,
        "a UDP channel",
        shown="must be given",
    )
    leader_archive_control_channel: str = channel_field(
        "aeron.cluster.leader.archive.control.channel",
        "Channel of requests to a leader's archive. Only medium and `interface` count; the leader's archive endpoint "
        "completes it.",
        "aeron:udp?term-length=64k",
    )
    follower_catchup_channel: str = channel_field(
        "aeron.cluster.follower.catchup.channel",
        "Channel on which a leader replays its log to a member that is behind; that member's catch-up endpoint "
        "completes it.",
        "aeron:udp",
    )
    max_concurrent_sessions: int = number_field(
        "aeron.cluster.max.sessions", "Maximum number of clients.", 10, 1, INT32_MAX
    )
    session_timeout_ns: int = duration_field(
        "aeron.cluster.session.timeout", "Silence after which a client's session is closed.", 10 * _S, least=_MS
    )
    leader_heartbeat_interval_ns: int = duration_field(
        "aeron.cluster.leader.heartbeat.interval",
        "Interval between two heartbeats of a leader.",
        200 * _MS,
        least=_MS,
    )
    leader_heartbeat_timeout_ns: int = duration_field(
        "aeron.cluster.leader.heartbeat.timeout", "Silence after which a leader is considered gone.", 10 * _S, least=_MS
    )
    startup_canvass_timeout_ns: int = duration_field(
        "aeron.cluster.startup.canvass.timeout",
        "Time that a starting member waits for all the others; at least twice `leader_heartbeat_timeout_ns`.",
        60 * _S,
        least=_MS,
    )
    election_timeout_ns: int = duration_field(
        "aeron.cluster.election.timeout", "Maximum duration of a ballot.", _S, least=_MS
    )
    election_status_interval_ns: int = duration_field(
        "aeron.cluster.election.status.interval",
        "Interval at which members report the end of their log in an election.",
        100 * _MS,
        least=_MS,
    )
    appointed_leader_id: int = number_field(
        "aeron.cluster.appointed.leader.id", "The only member that may lead; -1: any.", -1, -1, INT32_MAX
    )
    termination_timeout_ns: int = duration_field(
        "aeron.cluster.termination.timeout",
        "Time that a terminating leader waits for the other members.",
        10 * _S,
        least=_MS,
    )
    timer_service: str = setting_field(
        "aeron.cluster.timer.service.supplier",
        "Data structure that keeps the timers.",
        WHEEL,
        allowed_text="wheel or priority_heap, or the name of upstream's class for it",
        choices=(WHEEL, PRIORITY_HEAP, *_SUPPLIERS),
    )
    cluster_clock: str = setting_field(
        "aeron.cluster.clock",
        "Unit of time of the log, timers and snapshots; it cannot change once the cluster has started.",
        "millis",
        allowed_text="millis, micros or nanos, or the name of upstream's class for it",
        choices=("millis", "micros", "nanos", *_CLOCKS),
    )
    wheel_tick_resolution_ns: int = duration_field(
        "aeron.cluster.wheel.tick.resolution",
        "Resolution of the timer wheel, rounded up to a power of two.",
        8 * _MS,
        least=_MS,
    )
    ticks_per_wheel: int = number_field(
        "aeron.cluster.ticks.per.wheel",
        "Number of ticks of the timer wheel.",
        128,
        2,
        1 << 20,
        is_power_of_two=True,
    )
    is_standby_snapshot_accepted: bool = flag_field(
        "aeron.cluster.accept.standby.snapshots",
        "If true, add the snapshots that standbys take to the recording log.",
        False,
    )
    standby_snapshot_delay_ns: int = duration_field(
        "aeron.cluster.standby.snapshot.notification.processing.delay",
        "Delay before a standby's snapshot is added to the recording log.",
        0,
        least=0,
    )
    snapshots_retained: int = number_field(
        "aeron.cluster.snapshots.retained",
        "Number of snapshots that the member keeps; 0 keeps all. Older ones are deleted after each snapshot, and whole "
        "segments of the log in front of the oldest that is kept. The log that another member or a backup needs stays.",
        0,
        0,
        1_000,
    )
    file_sync_level: int = number_field(
        "aeron.cluster.file.sync.level",
        "Parts forced to the disk after a change of the recording log: 0 nothing, 1 the data, 2 its metadata as "
        "well. A vote is forced at any level.",
        0,
        0,
        2,
    )
    error_buffer_length: int = shared.error_buffer_length_field("aeron.cluster.error.buffer.length")
    cycle_threshold_ns: int = duration_field(
        "aeron.cluster.cycle.threshold", "Duty cycles longer than this are counted.", 100 * _MS, least=0
    )
    snapshot_duration_threshold_ns: int = duration_field(
        "aeron.cluster.total.snapshot.threshold", "Snapshots that take longer than this are counted.", _S, least=0
    )
    idle_strategy: str = shared.idle_strategy_field(
        "aeron.cluster.idle.strategy", "Strategy of the module's thread when there is no work."
    )
    authenticator: str | None = shared.authenticator_field("aeron.cluster.authenticator.supplier")
    authorisation_service: str | None = shared.authorisation_service_field(
        "aeron.cluster.authorisation.service.supplier", shown="allows what backups ask for, and no admin request"
    )

    def check(self) -> None:
        """Check what must hold between settings; raises ConfigurationError that names all that does not."""
        problems = list(self._problems())
        if problems:
            raise ConfigurationError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        if self.cluster_members is None:
            yield "cluster_members must be given, such as 0,host:9010,host:9020,host:9030,host:9040,host:8010"
        if self.ingress_channel is None:
            yield "ingress_channel must be given, such as aeron:udp"
        if self.replication_channel is None:
            yield "replication_channel must be given, such as aeron:udp?endpoint=localhost:0"
        if self.startup_canvass_timeout_ns // self.leader_heartbeat_timeout_ns < 2:
            yield (
                f"startup_canvass_timeout_ns={self.startup_canvass_timeout_ns}: must be at least twice "
                f"leader_heartbeat_timeout_ns={self.leader_heartbeat_timeout_ns}"
            )
        given = [name for name in _LOG_PARAMETERS if ChannelUri.parse(self.log_channel).get(name) is not None]
        if given:
            yield f"log_channel={self.log_channel!r}: leave out {', '.join(given)}, which the consensus module sets"
        stream_id = self.cluster_id * 100 + 100 + self.archive_response_stream_id
        if not INT32[0] <= stream_id <= INT32[1]:
            yield (
                f"archive_response_stream_id={self.archive_response_stream_id} with cluster_id={self.cluster_id}: "
                f"cluster_id * 100 + 100 + archive_response_stream_id must be from {INT32[0]} to {INT32[1]}"
            )


_TABLE = table_of(ConsensusModuleSettings)


def consensus_module_settings_table() -> dict[str, Setting]:
    """All settings of a consensus module by name, in the order in which they are documented."""
    return _TABLE
