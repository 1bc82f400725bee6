"""The settings of a container: each with its name, default, unit and range, and the table made of them.

Names, defaults and meanings are those of upstream's ``ClusteredServiceContainer.Configuration`` and
``AeronArchive.Configuration``. Where values come from: :mod:`container.settings.sources`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from container.common import aeron_defaults
from container.common.semantic_version import format_version
from container.common.values import is_path
from container.settings.callback_errors import HALT, SKIP

MAX_SERVICE_COUNT = 10
MAX_CLIENT_NAME_LENGTH = 100

_INT32 = (-(2**31), 2**31 - 1)
_INT32_MAX = 2**31 - 1
_MAX_DURATION_NS = 2**62  # 146 years: a time of day in nanoseconds may be added


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is known of one setting; the class :class:`Settings` has one for each attribute."""

    property: str
    """Upstream's system property."""
    doc: str
    default_value: Any
    allowed: str
    unit: str = ""
    """"ns", "ms", "bytes", "version" or "": what the number counts."""
    least: int = 0
    most: int = 0
    accepts: Callable[[str], bool] | None = None
    choices: tuple[object, ...] = ()
    shown: str = ""
    """What stands for a default that is None."""
    name: str = ""

    @cached_property
    def variable(self) -> str:
        """The environment variable."""
        return self.property.upper().replace(".", "_")

    @cached_property
    def default(self) -> str:
        """The default as the table of settings shows it."""
        return self.shown or _format_value(self.default_value, self.unit)

    @cached_property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return self.choices == (True, False)

    @cached_property
    def is_number(self) -> bool:
        """Whether it is a whole number."""
        return not self.choices and self.accepts is None

    def allows(self, value: object) -> bool:
        """Whether a value has the setting's type and is in its range."""
        if self.is_flag:
            return isinstance(value, bool)
        if self.is_number:
            return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most
        if self.choices:
            return isinstance(value, str) and value in self.choices
        return isinstance(value, str) and self.accepts is not None and self.accepts(value)


def _setting(prop: str, doc: str, default: Any, **details: Any) -> Any:
    """An attribute of :class:`Settings`, with what is known of it."""
    setting = Setting(property=prop, doc=doc, default_value=default, **details)
    return field(default=default, metadata={"setting": setting})


def _number(prop: str, doc: str, default: int | None, least: int, most: int, *, unit: str = "", shown: str = "") -> Any:
    """A setting that is a whole number; ``shown`` stands for a default that is None."""
    allowed = _format_range(least, most, unit)
    return _setting(prop, doc, default, allowed=allowed, least=least, most=most, unit=unit, shown=shown)


def _duration(prop: str, doc: str, default_ns: int | None, *, least: int = 1, shown: str = "") -> Any:
    """A setting that is a time in nanoseconds."""
    return _number(prop, doc, default_ns, least, _MAX_DURATION_NS, unit="ns", shown=shown)


def _text(
    prop: str,
    doc: str,
    default: str | None,
    accepts: Callable[[str], bool] = bool,
    allowed: str = "a non-empty string",
    *,
    shown: str = "",
) -> Any:
    """A setting that is a text which the function accepts."""
    return _setting(prop, doc, default, allowed=allowed, accepts=accepts, shown=shown)


def _path(prop: str, doc: str, default: str | None, *, shown: str = "") -> Any:
    """A setting that is the path of a file or directory."""
    return _text(prop, doc, default, is_path, "a path in UTF-8, not empty and without NUL", shown=shown)


def _channel(prop: str, doc: str, default: str) -> Any:
    """A setting that is a channel of any medium."""
    return _text(prop, doc, default, _is_channel, "an Aeron channel in ASCII")


def _object_path(prop: str, doc: str) -> Any:
    """A setting that names something in a module."""
    return _text(prop, doc, None, _is_object_path, "package.module:Name")


def _is_ascii(text: str) -> bool:
    """Whether a text is all printable ASCII, with at least one character."""
    return bool(text) and text.isascii() and text.isprintable()


def _is_service_name(text: str) -> bool:
    return _is_ascii(text) and len(text) <= MAX_CLIENT_NAME_LENGTH


def _is_channel(text: str) -> bool:
    prefix, _, rest = text.partition(":")
    return prefix in ("aeron", "aeron-spy") and _is_ascii(rest) and " " not in rest


def _is_ipc_channel(text: str) -> bool:
    medium, question_mark, parameters = text.partition("?")
    return medium == "aeron:ipc" and _is_channel(text) and bool(parameters) == bool(question_mark)


def _is_object_path(text: str) -> bool:
    names = text.split(":")
    return len(names) == 2 and all(names) and not any(character.isspace() for character in text)


def _flag(prop: str, doc: str, default: bool) -> Any:
    """A setting that is true or false."""
    return _setting(prop, doc, default, allowed="true or false", choices=(True, False))


def _choice(prop: str, doc: str, default: str, choices: tuple[str, ...]) -> Any:
    """A setting that is one of a few texts."""
    return _setting(prop, doc, default, allowed="one of " + ", ".join(choices), choices=choices)


def _format_range(least: int, most: int, unit: str) -> str:
    if unit == "version":
        return f"{format_version(least)} to {format_version(most)}"
    if unit == "bytes":
        return f"{least} to {most} bytes, or a string such as 1m, 16m"
    if unit:
        examples = "100us, 2ms, 1s" if unit == "ns" and least < 1_000_000 else "500ms, 2s"
        return f"{least} to {most} {unit}, or a string such as {examples}"
    return f"a whole number from {least} to {most}"


def _format_value(value: Any, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{value}`".lower()
    if unit == "version":
        text = format_version(value)
    elif unit == "bytes":
        text = format_size(value)
    elif unit:
        text = format_duration(value * 1_000_000 if unit == "ms" else value)
    else:
        text = str(value)
    return f"`{text}`"


def format_duration(duration_ns: int) -> str:
    """A duration in the largest unit in which it is a whole number, such as ``100ms``."""
    return _in_largest_unit(duration_ns, {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1})


def format_size(size: int) -> str:
    """A size in bytes in the largest unit in which it is a whole number, such as ``1m``."""
    return _in_largest_unit(size, {"g": 1024**3, "m": 1024**2, "k": 1024, "": 1})


def _in_largest_unit(value: int, units: dict[str, int]) -> str:
    unit, factor = next(item for item in units.items() if item[1] == 1 or (value and value % item[1] == 0))
    return f"{value // factor}{unit}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings with their defaults, validated by :func:`~container.settings.sources.load_settings`; read only."""

    cluster_id: int = _number(
        "aeron.cluster.id", "Which cluster the service belongs to; several clusters may share one driver.", 0, *_INT32
    )
    service_id: int = _number(
        "aeron.cluster.service.id",
        "Which of the node's services this is; the ids begin at 0, without gaps.",
        0,
        0,
        MAX_SERVICE_COUNT - 1,
    )
    service_name: str | None = _text(
        "aeron.cluster.service.name",
        "Name of the agent's thread and of the Aeron client.",
        None,
        _is_service_name,
        f"1 to {MAX_CLIENT_NAME_LENGTH} ASCII characters",
        shown="`clustered-service-<cluster_id>-<service_id>`",
    )
    service_class_name: str | None = _object_path(
        "aeron.cluster.service.class.name", "The service's class, used when no service is given."
    )
    app_version: int = _number(
        "aeron.cluster.app.version",
        "Version of the application, checked against the log's and the snapshot's: the majors must be equal.",
        1,
        1,
        0xFFFFFF,
        unit="version",
    )
    cluster_dir: str = _path(
        "aeron.cluster.dir", "Directory of the member's mark files and recording log.", "aeron-cluster"
    )
    mark_file_dir: str | None = _path(
        "aeron.cluster.mark.file.dir",
        "Directory of the mark files alone, such as one in memory.",
        None,
        shown="`cluster_dir`",
    )
    services_dir: str | None = _path(
        "aeron.cluster.services.dir",
        "Where the consensus module looks for the services' mark files. Only the consensus module uses it; it is "
        "known here so that both can share their configuration.",
        None,
    )
    aeron_dir: str | None = _path(
        "aeron.dir", "Directory of the media driver.", None, shown="the driver's own default for this user"
    )
    aeron_library: str | None = _path(
        "aeron.library", "Path of the Aeron C client's library.", None, shown="the one inside the package pyaeron"
    )
    driver_timeout_ms: int = _number(
        "aeron.driver.timeout",
        "How long to wait for the media driver. In the environment a plain number of milliseconds, as Aeron's C "
        "client reads the variable as well.",
        10_000,
        1,
        24 * 3_600_000,
        unit="ms",
    )
    control_channel: str = _channel(
        "aeron.cluster.control.channel",
        "Channel between consensus module and services; must be the consensus module's.",
        aeron_defaults.CONTROL_CHANNEL,
    )
    service_stream_id: int = _number(
        "aeron.cluster.service.stream.id",
        "Stream from the consensus module to the services.",
        aeron_defaults.SERVICE_STREAM_ID,
        *_INT32,
    )
    consensus_module_stream_id: int = _number(
        "aeron.cluster.consensus.module.stream.id",
        "Stream from the services to the consensus module.",
        aeron_defaults.CONSENSUS_MODULE_STREAM_ID,
        *_INT32,
    )
    replay_channel: str = _channel(
        "aeron.cluster.replay.channel", "Channel on which a snapshot is replayed.", aeron_defaults.REPLAY_CHANNEL
    )
    replay_stream_id: int = _number(
        "aeron.cluster.replay.stream.id",
        "Stream on which a snapshot is replayed.",
        aeron_defaults.REPLAY_STREAM_ID,
        *_INT32,
    )
    snapshot_channel: str = _channel(
        "aeron.cluster.snapshot.channel", "Channel on which a snapshot is recorded.", aeron_defaults.SNAPSHOT_CHANNEL
    )
    snapshot_stream_id: int = _number(
        "aeron.cluster.snapshot.stream.id",
        "Stream on which a snapshot is recorded. The consensus module reads the same property for its own snapshots, "
        f"with default {aeron_defaults.CONSENSUS_MODULE_SNAPSHOT_STREAM_ID}.",
        aeron_defaults.SERVICE_SNAPSHOT_STREAM_ID,
        *_INT32,
    )
    archive_control_channel: str = _text(
        "aeron.archive.local.control.channel",
        "Channel of the archive's requests and responses.",
        aeron_defaults.ARCHIVE_LOCAL_CONTROL_CHANNEL,
        _is_ipc_channel,
        "an IPC channel: local archive control must be IPC",
    )
    archive_control_stream_id: int = _number(
        "aeron.archive.local.control.stream.id",
        "Stream of the requests to the archive.",
        aeron_defaults.ARCHIVE_CONTROL_STREAM_ID,
        *_INT32,
    )
    archive_response_stream_id: int = _number(
        "aeron.archive.control.response.stream.id",
        "Base of the stream of the archive's responses, which is cluster_id * 100 + 100 + archive_response_stream_id "
        "+ service_id + 1.",
        aeron_defaults.ARCHIVE_RESPONSE_STREAM_ID,
        *_INT32,
    )
    archive_message_timeout_ns: int = _duration(
        "aeron.archive.message.timeout",
        "How long to wait for an answer of the archive.",
        aeron_defaults.ARCHIVE_MESSAGE_TIMEOUT_NS,
        least=1_000_000,
    )
    archive_message_retry_attempts: int = _number(
        "aeron.archive.message.retry.attempts",
        "Attempts to send a request to the archive.",
        aeron_defaults.ARCHIVE_MESSAGE_RETRY_ATTEMPTS,
        1,
        _INT32_MAX,
    )
    error_buffer_length: int = _number(
        "aeron.cluster.service.error.buffer.length",
        "Length of the error log in the mark file.",
        1024**2,
        1024**2,
        _INT32_MAX - 8192,
        unit="bytes",
    )
    record_error_messages: bool = _flag(
        "aeron.cluster.service.error.messages",
        "Whether error log and logger get the messages of exceptions, in which a service may put payloads. With false "
        "they get type and stack: where it was raised. Events of the container keep their texts.",
        True,
    )
    is_responding_service: bool = _flag(
        "aeron.cluster.service.responder", "Whether the service answers clients: false makes no egress.", True
    )
    log_fragment_limit: int = _number(
        "aeron.cluster.log.fragment.limit",
        "Fragments of the log that one duty cycle handles at most; after 100 ms it takes no more.",
        50,
        1,
        _INT32_MAX,
    )
    delegating_error_handler: str | None = _object_path(
        "aeron.cluster.service.delegating.error.handler",
        "Class whose instance gets each error first, and may pass it on to the error log.",
    )
    cycle_threshold_ns: int = _duration(
        "aeron.cluster.service.cycle.threshold", "Duty cycles that take longer are counted.", 100_000_000, least=0
    )
    snapshot_duration_threshold_ns: int = _duration(
        "aeron.cluster.service.snapshot.threshold", "Snapshots that take longer are counted.", 1_000_000_000, least=0
    )
    idle_strategy: str = _text(
        "aeron.cluster.idle.strategy",
        "What the agent does when there is nothing to do.",
        "backoff",
        allowed="noop, busy_spin, yield, sleep(100us), backoff or backoff(10,20,1us,50us)",
    )
    callback_error_policy: str = _choice(
        "aeron.cluster.service.callback.error.policy",
        "What an exception of a callback for an event of the log means: `halt` ends the member, which replays the "
        "event when it is started again; `skip` goes on without the event, as upstream does.",
        HALT,
        (HALT, SKIP),
    )
    cpu_affinity: int | None = _number(
        "aeron.cluster.service.cpu.affinity",
        "Number of the processor on which the agent's thread runs, and no other (Linux).",
        None,
        0,
        1023,
        shown="any",
    )
    timer_slack_ns: int | None = _duration(
        "aeron.cluster.service.timer.slack",
        "How late the system may wake the agent's thread when the idle strategy sleeps (Linux).",
        None,
        shown="the system's: 50us",
    )
    print_configuration: bool = _flag(
        "aeron.print.configuration", "Print the settings when the container starts.", False
    )
    fallback_logger: str = _choice(
        "aeron.fallback.logger",
        "Where to print errors that do not fit in the error log.",
        "stderr",
        ("stderr", "stdout", "no_op"),
    )

    @property
    def effective_service_name(self) -> str:
        """``service_name``, or the default made from the ids."""
        return self.service_name or f"clustered-service-{self.cluster_id}-{self.service_id}"


_TABLE = {each.name: replace(each.metadata["setting"], name=each.name) for each in fields(Settings)}


def settings_table() -> dict[str, Setting]:
    """All settings by name, in the order in which they are documented."""
    return _TABLE


def settings_markdown() -> str:
    """The text of docs/settings.md."""
    rows = [
        f"| `{setting.name}` | `{setting.variable}` | {setting.default} | {setting.allowed} | {setting.doc} |"
        for setting in settings_table().values()
    ]
    return "\n".join([_MARKDOWN_HEAD, *rows, ""])


_MARKDOWN_HEAD = """\
# Settings

Look up here every setting: its name, what it does, its default. The function
`container.settings.table.settings_markdown()` generates this page; a test compares them.

Each setting is a keyword of `ClusteredServiceContainer.launch()`, `container.run()` and
`ClusteredServiceContainer.Context`, an environment variable, a key of a TOML file, and an option of
`aeron-cluster run`: `service_id`, `AERON_CLUSTER_SERVICE_ID`, `service_id = 1`, `--service-id 1`. When several
are given, the keyword or option counts first, then the variable, then the file. The name of the TOML file is
given by `config_file=`, `--config` or `AERON_CLUSTER_CONFIG_FILE`; it holds the settings at its top level, and no
other keys. A variable that is empty counts as not given. Such a file:

```toml
cluster_dir = "/var/lib/auction"
service_id = 1
cycle_threshold_ns = "50ms"
idle_strategy = "backoff(10,20,1us,50us)"
```

Variables mirror Aeron's system properties: `aeron.cluster.service.id` is `AERON_CLUSTER_SERVICE_ID`.

Durations are whole numbers, or text with a unit: `500ns`, `100us`, `2ms`, `1s`. Sizes are bytes, or text with
`k`, `m` or `g`. Idle strategies are `noop`, `busy_spin` (also `spin`), `yield`, `sleep` and `backoff`, the last two
with parameters if you like: `sleep(100us)`, `backoff(10,20,1us,50us)` (spins, yields, shortest and longest park);
`sleep-ns` and `sleep-ms` are accepted as well.

| setting | variable | default | allowed | meaning |
| --- | --- | --- | --- | --- |"""
