"""The settings of a backup, each with its name, default, unit and range, and what must hold between them.

Names, defaults and meanings are those of upstream's ``ClusterBackup.Configuration``.
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
    Setting,
    channel_field,
    choice_field,
    duration_field,
    number_field,
    object_path_field,
    path_field,
    table_of,
    text_field,
)

ANY = "ANY"
LEADER = "LEADER"
FOLLOWER = "FOLLOWER"
BEGINNING = "BEGINNING"
LATEST_SNAPSHOT = "LATEST_SNAPSHOT"

_MS = 1_000_000
_S = 1_000 * _MS


@dataclass(frozen=True, kw_only=True)
class BackupSettings:
    """All settings of a backup with their defaults; read only.

    :func:`~container.settings.sources.load_backup_settings` validates them.
    """

    cluster_id: int = number_field(
        "aeron.cluster.id", "Cluster id under which the backup's counters appear in its driver.", 0, *INT32
    )
    cluster_consensus_endpoints: str | None = text_field(
        "aeron.cluster.consensus.endpoints",
        "Consensus endpoints of the cluster's members, separated by `,`; must be given.",
        None,
        allowed_text="host:port,host:port…",
        shown="must be given",
    )
    source_type: str = choice_field(
        "aeron.cluster.backup.source.type", "Type of the member to copy from.", ANY, (ANY, LEADER, FOLLOWER)
    )
    cluster_dir: str | None = path_field(
        "aeron.cluster.dir",
        "Directory of the copy's recording log and of the mark file; must be given.",
        None,
        shown="must be given",
    )
    mark_file_dir: str | None = path_field(
        "aeron.cluster.mark.file.dir",
        "Directory of the mark file alone, such as one in memory.",
        None,
        shown="`cluster_dir`",
    )
    aeron_dir: str | None = shared.AERON_DIR
    aeron_library: str | None = shared.AERON_LIBRARY
    driver_timeout_ms: int = shared.DRIVER_TIMEOUT_MS
    consensus_channel: str | None = channel_field(
        "aeron.cluster.consensus.channel",
        "Channel on which members answer the backup, with an endpoint of this machine they can reach; must be given.",
        None,
        shown="must be given",
    )
    consensus_stream_id: int = number_field(
        "aeron.cluster.consensus.stream.id",
        "Stream of backups' requests.",
        aeron_defaults.CONSENSUS_STREAM_ID,
        *INT32,
    )
    log_stream_id: int = number_field(
        "aeron.cluster.log.stream.id", "Stream of the log.", aeron_defaults.LOG_STREAM_ID, *INT32
    )
    catchup_endpoint: str | None = text_field(
        "aeron.cluster.backup.catchup.endpoint",
        "Address of this machine, as members reach it, to which a member's archive replays log and snapshots. The "
        "port may be 0; must be given.",
        None,
        allowed_text="host:port",
        shown="must be given",
    )
    catchup_channel: str = channel_field(
        "aeron.cluster.backup.catchup.channel",
        "Channel for that replay; `catchup_endpoint` completes it.",
        "aeron:udp?alias=backup|cc=cubic|so-sndbuf=512k|so-rcvbuf=512k|rcv-wnd=512k",
    )
    backup_interval_ns: int = duration_field(
        "aeron.cluster.backup.interval",
        "Interval between two queries for new snapshots and terms.",
        3600 * _S,
        least=_MS,
    )
    response_timeout_ns: int = duration_field(
        "aeron.cluster.backup.response.timeout", "Time to wait for a member's answer.", 5 * _S, least=_MS
    )
    progress_timeout_ns: int = duration_field(
        "aeron.cluster.backup.progress.timeout",
        "Time without progress after which a copy starts again.",
        10 * _S,
        least=_MS,
    )
    cool_down_interval_ns: int = duration_field(
        "aeron.cluster.backup.cool.down.interval",
        "Time to wait after a failure before asking another member.",
        30 * _S,
        least=0,
    )
    initial_replay_start: str = choice_field(
        "cluster.backup.initial.replay.start",
        "Start of the first copy of the log: its beginning, or the latest snapshot.",
        BEGINNING,
        (BEGINNING, LATEST_SNAPSHOT),
    )
    archive_control_channel: str = shared.local_control_channel_field("Channel of the backup's own archive.")
    archive_control_stream_id: int = number_field(
        "aeron.archive.local.control.stream.id",
        "Stream of requests to the backup's own archive.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *INT32,
    )
    archive_response_stream_id: int = number_field(
        "aeron.archive.control.response.stream.id",
        "Stream of both archives' answers; the backup's own adds `cluster_id * 100 + 100`.",
        aeron_defaults.ARCHIVE_RESPONSE_STREAM_ID,
        *INT32,
    )
    archive_message_timeout_ns: int = shared.ARCHIVE_MESSAGE_TIMEOUT_NS
    member_archive_control_channel: str = channel_field(
        "aeron.archive.control.channel",
        "Channel of requests to a member's archive; its archive endpoint completes it.",
        "aeron:udp?term-length=64k",
    )
    member_archive_control_stream_id: int = number_field(
        "aeron.archive.control.stream.id",
        "Stream of requests to a member's archive.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *INT32,
    )
    member_archive_response_channel: str = channel_field(
        "aeron.archive.control.response.channel",
        "Channel on which a member's archive answers, with an endpoint of this machine that it reaches.",
        "aeron:udp?endpoint=localhost:0",
    )
    error_buffer_length: int = shared.error_buffer_length_field("aeron.cluster.error.buffer.length")
    idle_strategy: str = shared.idle_strategy_field(
        "aeron.cluster.idle.strategy", "Strategy of the backup's thread when there is no work."
    )
    credentials_supplier: str | None = object_path_field(
        "aeron.cluster.backup.credentials.supplier",
        "Class that supplies the backup's credentials: `encoded_credentials()` and `on_challenge(challenge)`.",
        shown="no credentials",
    )

    def check(self) -> None:
        """Check what must hold between settings; raises ConfigurationError that names all that does not."""
        problems = list(self._problems())
        if problems:
            raise ConfigurationError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        if self.cluster_consensus_endpoints is None:
            yield "cluster_consensus_endpoints must be given, such as host1:9011,host2:9011,host3:9011"
        else:
            for each in self.cluster_consensus_endpoints.split(","):
                if not _is_address(each.strip()) or each.strip().endswith(":0"):
                    yield (
                        f"cluster_consensus_endpoints={self.cluster_consensus_endpoints!r}: {each.strip()!r} is not "
                        "an address: give host:port of each member, such as host1:9011,host2:9011"
                    )
        if self.consensus_channel is None:
            yield "consensus_channel must be given, such as aeron:udp?endpoint=backup-host:9111"
        elif ChannelUri.parse(self.consensus_channel).get("endpoint") is None:
            yield (
                f"consensus_channel={self.consensus_channel!r} needs an endpoint, such as "
                "aeron:udp?endpoint=backup-host:9111"
            )
        if self.catchup_endpoint is None:
            yield "catchup_endpoint must be given, such as backup-host:0"
        elif not _is_address(self.catchup_endpoint):
            yield f"catchup_endpoint={self.catchup_endpoint!r} is not an address: give host:port, such as backup-host:0"
        stream_id = self.cluster_id * 100 + 100 + self.archive_response_stream_id
        if not INT32[0] <= stream_id <= INT32[1]:
            yield (
                f"archive_response_stream_id={self.archive_response_stream_id} with cluster_id={self.cluster_id}: "
                f"cluster_id * 100 + 100 + archive_response_stream_id must be from {INT32[0]} to {INT32[1]}"
            )


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and int(port) < 1 << 16


_TABLE = table_of(BackupSettings)


def backup_settings_table() -> dict[str, Setting]:
    """All settings of a backup by name, in the order in which they are documented."""
    return _TABLE
