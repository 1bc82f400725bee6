"""The settings that several tables have: the same fields, or fields that differ in the property alone."""

from __future__ import annotations

from typing import Any

from container.common import aeron_defaults
from container.settings.setting import (
    INT32,
    INT32_MAX,
    channel_field,
    duration_field,
    is_ipc_channel,
    is_object_path,
    number_field,
    path_field,
    text_field,
)

# Each is a field of all dataclasses that name it so; a dataclass writes nothing else into it than name and type.
AERON_DIR: Any = path_field(
    "aeron.dir", "Directory of the media driver.", None, shown="the driver's own default for this user"
)
AERON_LIBRARY: Any = path_field(
    "aeron.library",
    "Path of the Aeron C client's library.",
    None,
    shown="the wheel's own, else that of the package pyaeron",
)
DRIVER_TIMEOUT_MS: Any = number_field(
    "aeron.driver.timeout",
    "Time to wait for the media driver. In the environment, a plain number of milliseconds: Aeron's C "
    "client reads the variable as well.",
    10_000,
    1,
    24 * 3_600_000,
    unit="ms",
)
APP_VERSION: Any = number_field(
    "aeron.cluster.app.version",
    "Version of the application, checked against the log's and the snapshot's: the majors must be equal.",
    1,
    1,
    0xFFFFFF,
    unit="version",
)
SERVICE_STREAM_ID: Any = number_field(
    "aeron.cluster.service.stream.id",
    "Stream from the consensus module to the services.",
    aeron_defaults.SERVICE_STREAM_ID,
    *INT32,
)
CONSENSUS_MODULE_STREAM_ID: Any = number_field(
    "aeron.cluster.consensus.module.stream.id",
    "Stream from the services to the consensus module.",
    aeron_defaults.CONSENSUS_MODULE_STREAM_ID,
    *INT32,
)
SNAPSHOT_CHANNEL: Any = channel_field(
    "aeron.cluster.snapshot.channel", "Channel on which a snapshot is recorded.", aeron_defaults.SNAPSHOT_CHANNEL
)
ARCHIVE_MESSAGE_TIMEOUT_NS: Any = duration_field(
    "aeron.archive.message.timeout",
    "Time to wait for an answer of the archive.",
    aeron_defaults.ARCHIVE_MESSAGE_TIMEOUT_NS,
    least=1_000_000,
)


def error_buffer_length_field(prop: str) -> Any:
    """The setting ``error_buffer_length``."""
    return number_field(
        prop, "Length of the error log in the mark file.", 1024**2, 1024**2, INT32_MAX - 8192, unit="bytes"
    )


def idle_strategy_field(prop: str, doc: str) -> Any:
    """The setting ``idle_strategy``."""
    allowed = "noop, busy_spin, yield, sleep(100us), backoff or backoff(10,20,1us,50us)"
    return text_field(prop, doc, "backoff", allowed_text=allowed)


def local_control_channel_field(doc: str) -> Any:
    """The channel of the archive of this machine."""
    return text_field(
        "aeron.archive.local.control.channel",
        doc,
        aeron_defaults.ARCHIVE_LOCAL_CONTROL_CHANNEL,
        is_ipc_channel,
        "an IPC channel: local archive control must be IPC",
    )


def authenticator_field(prop: str) -> Any:
    """The setting ``authenticator``."""
    doc, allowed = "Class that decides which clients may connect.", "package.module:Class"
    return text_field(prop, doc, None, _is_authenticator, allowed, shown="accepts every client")


def authorisation_service_field(prop: str, *, shown: str) -> Any:
    """The setting ``authorisation_service``."""
    doc, allowed = "Class that decides what a client may ask for.", "ALLOW_ALL, DENY_ALL or package.module:Class"
    return text_field(prop, doc, None, _is_authorisation_service, allowed, shown=shown)


def _is_authenticator(text: str) -> bool:
    return text == aeron_defaults.DEFAULT_AUTHENTICATOR or is_object_path(text)


def _is_authorisation_service(text: str) -> bool:
    return text in (aeron_defaults.ALLOW_ALL, aeron_defaults.DENY_ALL) or is_object_path(text)
