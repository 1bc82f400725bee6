"""The settings of a container: each with its name, default, unit and range, and the table made of them.

Names, defaults and meanings are those of upstream's ``ClusteredServiceContainer.Configuration`` and
``AeronArchive.Configuration``. Where values come from: :mod:`container.settings.sources`.
"""

from __future__ import annotations

from dataclasses import dataclass

from container.common import aeron_defaults
from container.settings import shared_fields as shared
from container.settings.archive_table import archive_settings_table
from container.settings.backup_table import backup_settings_table
from container.settings.callback_errors import HALT, SKIP
from container.settings.consensus_module_table import consensus_module_settings_table
from container.settings.driver_table import driver_settings_table
from container.settings.setting import (
    INT32,
    INT32_MAX,
    MAX_SERVICE_COUNT,
    Setting,
    channel_field,
    choice_field,
    duration_field,
    flag_field,
    is_ascii,
    number_field,
    object_path_field,
    path_field,
    table_of,
    table_rows,
    text_field,
)

MAX_CLIENT_NAME_LENGTH = 100


def _is_service_name(text: str) -> bool:
    return is_ascii(text) and len(text) <= MAX_CLIENT_NAME_LENGTH


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings with their defaults, validated by :func:`~container.settings.sources.load_settings`; read only."""

    cluster_id: int = number_field(
        "aeron.cluster.id",
        "Id of the cluster that the service belongs to; several clusters may share one driver.",
        0,
        *INT32,
    )
    service_id: int = number_field(
        "aeron.cluster.service.id",
        "Id of this service in its node; the ids begin at 0, without gaps.",
        0,
        0,
        MAX_SERVICE_COUNT - 1,
    )
    service_name: str | None = text_field(
        "aeron.cluster.service.name",
        "Name of the agent's thread and of the Aeron client.",
        None,
        _is_service_name,
        f"1 to {MAX_CLIENT_NAME_LENGTH} ASCII characters",
        shown="`clustered-service-<cluster_id>-<service_id>`",
    )
    service_class_name: str | None = object_path_field(
        "aeron.cluster.service.class.name", "The service's class, used when no service is given."
    )
    app_version: int = shared.APP_VERSION
    cluster_dir: str | None = path_field(
        "aeron.cluster.dir",
        "Directory of the member's mark files and recording log; must be given.",
        None,
        shown="must be given",
    )
    mark_file_dir: str | None = path_field(
        "aeron.cluster.mark.file.dir",
        "Directory of the mark files alone, such as one in memory.",
        None,
        shown="`cluster_dir`",
    )
    services_dir: str | None = path_field(
        "aeron.cluster.services.dir",
        "Directory in which the consensus module looks for the services' mark files. Only that module uses it: "
        "it is known here so that both can share their configuration.",
        None,
    )
    aeron_dir: str | None = shared.AERON_DIR
    aeron_library: str | None = shared.AERON_LIBRARY
    driver_timeout_ms: int = shared.DRIVER_TIMEOUT_MS
    control_channel: str = channel_field(
        "aeron.cluster.control.channel",
        "Channel between consensus module and services; must be the consensus module's.",
        aeron_defaults.CONTROL_CHANNEL,
    )
    service_stream_id: int = shared.SERVICE_STREAM_ID
    consensus_module_stream_id: int = shared.CONSENSUS_MODULE_STREAM_ID
    replay_channel: str = channel_field(
        "aeron.cluster.replay.channel", "Channel on which a snapshot is replayed.", aeron_defaults.REPLAY_CHANNEL
    )
    replay_stream_id: int = number_field(
        "aeron.cluster.replay.stream.id",
        "Stream on which a snapshot is replayed.",
        aeron_defaults.REPLAY_STREAM_ID,
        *INT32,
    )
    snapshot_channel: str = shared.SNAPSHOT_CHANNEL
    snapshot_stream_id: int = number_field(
        "aeron.cluster.snapshot.stream.id",
        "Stream on which a snapshot is recorded. The consensus module reads the same property for its own snapshots, "
        f"with default {aeron_defaults.CONSENSUS_MODULE_SNAPSHOT_STREAM_ID}.",
        aeron_defaults.SERVICE_SNAPSHOT_STREAM_ID,
        *INT32,
    )
    archive_control_channel: str = shared.local_control_channel_field(
        "Channel of the archive's requests and responses."
    )
    archive_control_stream_id: int = number_field(
        "aeron.archive.local.control.stream.id",
        "Stream of the requests to the archive.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *INT32,
    )
    archive_response_stream_id: int = number_field(
        "aeron.archive.control.response.stream.id",
        "Base of the stream of the archive's responses, which is cluster_id * 100 + 100 + archive_response_stream_id "
        "+ service_id + 1.",
        aeron_defaults.ARCHIVE_RESPONSE_STREAM_ID,
        *INT32,
    )
    archive_message_timeout_ns: int = shared.ARCHIVE_MESSAGE_TIMEOUT_NS
    archive_message_retry_attempts: int = number_field(
        "aeron.archive.message.retry.attempts",
        "Attempts to send a request to the archive.",
        aeron_defaults.ARCHIVE_MESSAGE_RETRY_ATTEMPTS,
        1,
        INT32_MAX,
    )
    error_buffer_length: int = shared.error_buffer_length_field("aeron.cluster.service.error.buffer.length")
    record_error_messages: bool = flag_field(
        "aeron.cluster.service.error.messages",
        "If true, the error log and the logger get the messages of exceptions, which may contain payloads. If false, "
        "they get only type and stack. Events of the container keep their texts.",
        True,
    )
    is_responding_service: bool = flag_field(
        "aeron.cluster.service.responder",
        "If true, the service can answer clients; if false, it creates no egress.",
        True,
    )
    log_fragment_limit: int | None = number_field(
        "aeron.cluster.log.fragment.limit",
        "Maximum number of the log's fragments handled in one duty cycle, which also ends after 100 ms.",
        None,
        1,
        INT32_MAX,
        shown="50; 512 on a thread that parts share",
    )
    delegating_error_handler: str | None = object_path_field(
        "aeron.cluster.service.delegating.error.handler",
        "Class whose instance receives each error first and may pass it on to the error log.",
    )
    cycle_threshold_ns: int = duration_field(
        "aeron.cluster.service.cycle.threshold", "Duty cycles longer than this are counted.", 100_000_000, least=0
    )
    snapshot_duration_threshold_ns: int = duration_field(
        "aeron.cluster.service.snapshot.threshold",
        "Snapshots that take longer than this are counted.",
        1_000_000_000,
        least=0,
    )
    idle_strategy: str = shared.idle_strategy_field(
        "aeron.cluster.idle.strategy", "Strategy of the agent's thread when there is no work."
    )
    callback_error_policy: str = choice_field(
        "aeron.cluster.service.callback.error.policy",
        "Effect of an exception of a callback for an event of the log. `halt` ends the member, which replays the "
        "event when it is started again. `skip` continues without the event, as upstream does.",
        HALT,
        (HALT, SKIP),
    )
    cpu_affinity: int | None = number_field(
        "aeron.cluster.service.cpu.affinity",
        "Processor to which the agent's thread is pinned (Linux).",
        None,
        0,
        1023,
        shown="any",
    )
    timer_slack_ns: int | None = duration_field(
        "aeron.cluster.service.timer.slack",
        "Longest delay with which the system may wake the agent's thread from an idle strategy's sleep (Linux).",
        None,
        shown="the system's: 50us",
    )
    print_configuration: bool = flag_field(
        "aeron.print.configuration", "Print the settings when the container starts.", False
    )
    fallback_logger: str = choice_field(
        "aeron.fallback.logger",
        "Output for errors that do not fit in the error log.",
        "stderr",
        ("stderr", "stdout", "no_op"),
    )

    @property
    def effective_service_name(self) -> str:
        """``service_name``, or the default made from the ids."""
        return self.service_name or f"clustered-service-{self.cluster_id}-{self.service_id}"


_TABLE = table_of(Settings)


def settings_table() -> dict[str, Setting]:
    """All settings by name, in the order in which they are documented."""
    return _TABLE


def settings_markdown() -> str:
    """The text of docs/settings.md."""
    tables = (
        (_MARKDOWN_HEAD, settings_table()),
        (_ARCHIVE_HEAD, archive_settings_table()),
        (_CONSENSUS_MODULE_HEAD, consensus_module_settings_table()),
        (_BACKUP_HEAD, backup_settings_table()),
        (_DRIVER_HEAD, driver_settings_table()),
    )
    lines = [line for head, table in tables for line in (head, *table_rows(table))]
    lines += [_NODE_HEAD, *(f"| {key} | {default} | {meaning} |" for key, default, meaning in _NODE_ROWS), ""]
    return "\n".join(lines)


_MARKDOWN_HEAD = """\
# Settings

Configure every part: each table lists the settings with their default and effect. The function
`container.settings.container_table.settings_markdown()` generates this page; a test compares them.

You can give a service container's settings in these ways. The first in this list wins:

1. a keyword of `ClusteredServiceContainer.launch()`, `container.run()` or `ClusteredServiceContainer.Context`, or an
   option of `aeron-cluster run`: `service_id`, `--service-id 1`;
2. an environment variable: `AERON_CLUSTER_SERVICE_ID`;
3. a key of a TOML file: `service_id = 1`.

Name the TOML file with `config_file=`, `--config` or `AERON_CLUSTER_CONFIG_FILE`. It has the settings at its top level,
and no other keys except Aeron's properties. The limits are 64 KiB for the file and 16 parts for a key. An empty
variable counts as not given. An unknown variable that looks like the cluster's or the archive's is logged with the
nearest name. An example:

```toml
cluster_dir = "/var/lib/auction"
service_id = 1
cycle_threshold_ns = "50ms"
idle_strategy = "backoff(10,20,1us,50us)"
```

Variables mirror Aeron's system properties: `aeron.cluster.service.id` is `AERON_CLUSTER_SERVICE_ID`. The file may use
the properties themselves: as quoted keys, `"aeron.cluster.service.id" = 1`, or as nested tables, `service.id = 1` in
`[aeron.cluster]`. A file whose name ends with `.properties` is read as Java reads it; `--properties` is an alias of
`--config`. A property without effect is logged; an unknown property is an error ([from Java](from-java.md)).

`cluster_dir` and `archive_dir` are required. The commands, and `container.run()`, refuse a missing directory: a
mistyped path, or an unmounted disk, would start an empty member. Run `mkdir` before the first start. `launch()` creates
the directory.

Durations are whole numbers, or strings with a unit: `500ns`, `100us`, `2ms`, `1s`. Sizes are bytes, or strings with
`k`, `m` or `g`. Idle strategies are `noop`, `busy_spin` (also `spin`), `yield`, `sleep` and `backoff`. The last two
take parameters: `sleep(100us)`, `backoff(10,20,1us,50us)` (spins, yields, shortest and longest park). `sleep-ns` and
`sleep-ms` are accepted as well.

| setting | variable | default | allowed | meaning |
| --- | --- | --- | --- | --- |"""

_ARCHIVE_HEAD = """
## An archive

Give an archive's settings to `Archive.launch()` and `aeron-cluster archive` ([an archive without Java](archive.md)) in
the same ways. `AERON_ARCHIVE_CONFIG_FILE` names the file. Names and defaults are upstream's, except for
`threading_mode`, whose default is `DEDICATED` there.

| setting | variable | default | allowed | meaning |
| --- | --- | --- | --- | --- |"""

_CONSENSUS_MODULE_HEAD = """
## A consensus module

Give a consensus module's settings to `ConsensusModule.launch()` and `aeron-cluster consensus-module`
([a consensus module without Java](consensus-module.md)) in the same ways. `AERON_CLUSTER_CONSENSUS_MODULE_CONFIG_FILE`
names the file. Names and defaults are upstream's. If a service reads the same variable, one value serves both. The
defaults of `AERON_CLUSTER_SNAPSHOT_STREAM_ID` differ: set it for neither, or by option.

| setting | variable | default | allowed | meaning |
| --- | --- | --- | --- | --- |"""

_BACKUP_HEAD = """
## A backup

`ClusterBackup.launch()` and `aeron-cluster backup` ([disaster recovery](operations.md#disaster-recovery)) take a
backup's settings in the same way; `AERON_CLUSTER_BACKUP_CONFIG_FILE` names the file. Names and defaults are upstream's,
except the response channel of a member's archive, which upstream requires, and the class of the credentials.

| setting | variable | default | allowed | meaning |
| --- | --- | --- | --- | --- |"""

_NODE_HEAD = """
## A node

These are the keys of `node.toml` for `aeron-cluster node --config node.toml`, and keywords of `container.launch_node()`
except where noted. [Three machines](deployment.md) shows a complete file.

| key | default | meaning |
| --- | --- | --- |"""

# A row for each key: its name, its default, and what it means.
_NODE_ROWS = (
    (
        "`services`",
        "must be given",
        "List of `package.module:Class`; their ids are 0, 1, … in this order. `launch_node()` takes the "
        "services themselves.",
    ),
    (
        "`directory`",
        "must be given",
        "Directory of the member: cluster, archive and notes of the node. For the command it must be "
        "there; `launch_node()` takes a temporary one by default.",
    ),
    ("`host`", "`localhost`", "Name or address by which clients reach the only member."),
    ("`port`", "`9010`", "UDP port for clients; the four ports after it are used as well."),
    (
        "`members`",
        "one member, by `host` and `port`",
        "All members, the same list on each, in place of `host` and `port`. A table for each, with `id`, "
        "`host` and `port`, or with `id`, `ingress`, `consensus`, `log`, `catchup` and `archive` as "
        "`host:port`.",
    ),
    ("`member_id`", "the only member", "Id of this member; must be given where there are several."),
    ("`aeron_dir`", "one in memory that belongs to `directory`", "Directory of the media driver."),
    (
        "`threading_mode`",
        "`SHARED`",
        "`SHARED`: all parts take turns on one thread; with several members the services have another. `DEDICATED`: "
        "each part has a thread of its own.",
    ),
    (
        "`service_processes`",
        "`false`",
        "Run each service as a process of its own, for code that holds the GIL. Command only.",
    ),
    ("`metrics_port`", "none", "Port, or `host:port`, of Prometheus metrics ([metrics](metrics.md)). Command only."),
    ("`driver`, `archive`, `consensus_module`, `container`", "", "Tables of the settings of each part."),
)

_DRIVER_HEAD = """
## A node's media driver

Give these in the table `driver` of `aeron-cluster node`, or to `container.launch_node(driver=...)`
([a whole cluster in one process](consensus-module.md#a-whole-cluster-in-one-process)). Only the last ten are read from
their variables when they are not given here.

| setting | variable | default | allowed | meaning |
| --- | --- | --- | --- | --- |"""
