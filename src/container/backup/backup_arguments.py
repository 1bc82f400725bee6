"""The keywords of a backup for type checkers: what ``launch()`` and its context take by name.

A test compares them with the table of settings.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import TypedDict

from container.backup.backup_machine import CredentialsSupplier
from container.error_handlers import ErrorHandler
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

type _Path = str | os.PathLike[str]


class BackupSettingsArguments(TypedDict, total=False):
    """The settings of docs/settings.md that are settings alone; a number with a unit may be given as text."""

    cluster_id: int | None
    cluster_consensus_endpoints: str | None
    source_type: str | None
    cluster_dir: _Path | None
    mark_file_dir: _Path | None
    aeron_dir: _Path | None
    aeron_library: _Path | None
    driver_timeout_ms: int | str | None
    consensus_channel: str | None
    consensus_stream_id: int | None
    log_stream_id: int | None
    catchup_endpoint: str | None
    catchup_channel: str | None
    backup_interval_ns: int | str | None
    response_timeout_ns: int | str | None
    progress_timeout_ns: int | str | None
    cool_down_interval_ns: int | str | None
    initial_replay_start: str | None
    archive_control_channel: str | None
    archive_control_stream_id: int | None
    archive_response_stream_id: int | None
    archive_message_timeout_ns: int | str | None
    member_archive_control_channel: str | None
    member_archive_control_stream_id: int | None
    member_archive_response_channel: str | None
    error_buffer_length: int | str | None


class BackupArguments(BackupSettingsArguments, total=False):
    """All that :class:`container.backup.backup_context.ClusterBackupContext` takes by name."""

    client: Client | None
    clock: Clock | None
    storage: Storage | None
    idle_strategy: str | Callable[[], IdleStrategy] | None
    credentials_supplier: str | CredentialsSupplier | None
    random_source: random.Random | None
    use_agent_invoker: bool
    error_handler: ErrorHandler | None
    config_file: str | os.PathLike[str] | None
    environ: Mapping[str, str] | None
