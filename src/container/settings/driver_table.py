"""The settings of a node's media driver, each with its name, unit and range; the names are those of ``MediaDriver``."""

from __future__ import annotations

from dataclasses import dataclass

from container.settings.setting import (
    INT32_MAX,
    Setting,
    choice_field,
    duration_field,
    flag_field,
    number_field,
    path_field,
    table_of,
)

_MIN_TERM_LENGTH = 64 * 1024
_MAX_TERM_LENGTH = 1024**3
_UPSTREAM = "upstream's"


def _term_length_field(prop: str, doc: str) -> int:
    field: int = number_field(
        prop, doc, 1024**2, _MIN_TERM_LENGTH, _MAX_TERM_LENGTH, unit="bytes", is_power_of_two=True
    )
    return field


def _mtu_field(prop: str, doc: str) -> int | None:
    field: int | None = number_field(prop, doc, None, 32, 65_504, unit="bytes", multiple_of=32, shown=_UPSTREAM)
    return field


def _vector_field(prop: str, doc: str) -> int | None:
    field: int | None = number_field(prop, f"{doc} Not for Java's node.", None, 1, 16, shown=_UPSTREAM)
    return field


@dataclass(frozen=True)
class DriverSettings:
    """Settings in the table ``driver`` of a node, for our node and for Java's."""

    threading: str = choice_field(
        "aeron.threading.mode",
        "Number of the driver's threads: one, two, three or none. With none the node's thread runs it. A node with "
        '`threading_mode = "DEDICATED"`, and Java\'s, take no `INVOKER`: their default is `SHARED`.',
        "INVOKER",
        ("SHARED", "SHARED_NETWORK", "DEDICATED", "INVOKER"),
    )
    term_buffer_length: int = _term_length_field(
        "aeron.term.buffer.length", "Term length of UDP channels that set none."
    )
    ipc_term_buffer_length: int = _term_length_field(
        "aeron.ipc.term.buffer.length", "Term length of IPC channels that set none."
    )
    term_buffer_sparse_file: bool = flag_field(
        "aeron.term.buffer.sparse.file",
        "If true, a log buffer takes memory only as it is used. `aeron-cluster node` uses false: it reserves the whole "
        "buffer, three times the term length, on creation.",
        True,
    )
    counters_buffer_length: int | None = number_field(
        "aeron.counters.buffer.length",
        "Length of the buffer of counters, 128 bytes for each.",
        None,
        1,
        INT32_MAX,
        unit="bytes",
        shown=_UPSTREAM,
    )
    mtu_length: int | None = _mtu_field(
        "aeron.mtu.length", "Longest packet of UDP channels that set none. Each host on the way must carry it."
    )
    ipc_mtu_length: int | None = _mtu_field("aeron.ipc.mtu.length", "Longest frame of IPC channels that set none.")
    receiver_io_vector_capacity: int | None = _vector_field(
        "aeron.receiver.io.vector.capacity", "Maximum number of packets that the driver receives in one system call."
    )
    network_publication_max_messages_per_send: int | None = _vector_field(
        "aeron.network.publication.max.messages.per.send",
        "Maximum number of packets that a publication sends in one turn.",
    )
    client_liveness_timeout_ns: int | None = duration_field(
        "aeron.client.liveness.timeout", "Silence after which a client is considered dead.", None, shown=_UPSTREAM
    )
    image_liveness_timeout_ns: int | None = duration_field(
        "aeron.image.liveness.timeout", "Silence after which an image is closed.", None, shown=_UPSTREAM
    )
    publication_linger_timeout_ns: int | None = duration_field(
        "aeron.publication.linger.timeout",
        "Time for which a closed publication can still be read.",
        None,
        shown=_UPSTREAM,
    )
    timer_interval_ns: int | None = duration_field(
        "aeron.timer.interval", "Interval at which the driver looks at its timers.", None, shown=_UPSTREAM
    )
    library: str | None = path_field(
        "aeron.library",
        "Path of the library with the C driver; not for Java's node.",
        None,
        shown="the wheel's own, else that of the package pyaeron",
    )


_TABLE = table_of(DriverSettings)


def driver_settings_table() -> dict[str, Setting]:
    """All settings of a node's media driver by name, in the order in which they are documented."""
    return _TABLE
