"""The keywords of a container for type checkers: what ``container.run()``, ``launch()`` and ``Context`` take by name.

A test compares them with the table of settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypedDict

from container.error_handlers import DelegatingErrorHandler, ErrorHandler
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client, MarkFile, SnapshotStore

type _Path = str | os.PathLike[str]


class ContainerSettings(TypedDict, total=False):
    """The settings of docs/settings.md that are settings alone; a number with a unit may be given as text."""

    cluster_id: int | None
    service_id: int | None
    service_name: str | None
    service_class_name: str | None
    app_version: int | str | None
    cluster_dir: _Path | None
    mark_file_dir: _Path | None
    services_dir: _Path | None
    aeron_dir: _Path | None
    aeron_library: _Path | None
    driver_timeout_ms: int | str | None
    control_channel: str | None
    service_stream_id: int | None
    consensus_module_stream_id: int | None
    replay_channel: str | None
    replay_stream_id: int | None
    snapshot_channel: str | None
    snapshot_stream_id: int | None
    archive_control_channel: str | None
    archive_control_stream_id: int | None
    archive_response_stream_id: int | None
    archive_message_timeout_ns: int | str | None
    archive_message_retry_attempts: int | None
    error_buffer_length: int | str | None
    record_error_messages: bool | None
    is_responding_service: bool | None
    log_fragment_limit: int | None
    cycle_threshold_ns: int | str | None
    snapshot_duration_threshold_ns: int | str | None
    callback_error_policy: str | None
    cpu_affinity: int | None
    timer_slack_ns: int | str | None
    print_configuration: bool | None
    fallback_logger: str | None


class ContainerArguments(ContainerSettings, total=False):
    """All that :class:`container.Context` takes by name."""

    client: Client | None
    clock: Clock | None
    storage: Storage | None
    idle_strategy: str | Callable[[], IdleStrategy] | None
    snapshot_store: SnapshotStore | None
    mark_file: MarkFile | None
    error_handler: ErrorHandler | None
    delegating_error_handler: str | DelegatingErrorHandler | None
    app_version_validator: Callable[[int, int], bool]
    termination_hook: Callable[[], object] | None
    use_agent_invoker: bool
    config_file: str | os.PathLike[str] | None
    environ: Mapping[str, str] | None
