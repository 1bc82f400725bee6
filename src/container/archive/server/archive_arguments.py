"""The keywords of an archive for type checkers: what ``Archive.launch()`` and ``ArchiveContext`` take by name.

A test compares them with the table of settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TypedDict

from container.archive.authentication import Authenticator, AuthorisationService
from container.error_handlers import ErrorHandler
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

type _Path = str | os.PathLike[str]


class ArchiveSettingsArguments(TypedDict, total=False):
    """The settings of docs/settings.md that are settings alone; a number with a unit may be given as text."""

    archive_dir: _Path | None
    mark_file_dir: _Path | None
    delete_dir_on_start: bool | None
    archive_id: int | None
    aeron_dir: _Path | None
    aeron_library: _Path | None
    driver_timeout_ms: int | str | None
    is_control_channel_enabled: bool | None
    control_channel: str | None
    control_stream_id: int | None
    local_control_channel: str | None
    local_control_stream_id: int | None
    control_term_buffer_length: int | str | None
    control_term_buffer_sparse: bool | None
    control_mtu_length: int | str | None
    is_recording_events_enabled: bool | None
    recording_events_channel: str | None
    recording_events_stream_id: int | None
    replication_channel: str | None
    message_timeout_ns: int | str | None
    message_retry_attempts: int | None
    control_response_stream_id: int | None
    segment_file_length: int | str | None
    file_io_max_length: int | str | None
    low_storage_space_threshold: int | str | None
    file_sync_level: int | None
    catalog_file_sync_level: int | None
    catalog_capacity: int | str | None
    torn_frame: str | None
    record_checksum: str | None
    replay_checksum: str | None
    max_concurrent_recordings: int | None
    max_concurrent_replays: int | None
    connect_timeout_ns: int | str | None
    session_liveness_check_interval_ns: int | str | None
    replay_linger_timeout_ns: int | str | None
    error_buffer_length: int | str | None
    threading_mode: str | None
    conductor_cycle_threshold_ns: int | str | None


class ArchiveArguments(ArchiveSettingsArguments, total=False):
    """All that :class:`container.archive.server.archive_context.ArchiveContext` takes by name."""

    client: Client | None
    clock: Clock | None
    storage: Storage | None
    idle_strategy: str | Callable[[], IdleStrategy] | None
    authenticator: str | Authenticator | None
    authorisation_service: str | AuthorisationService | None
    process_id: int | None
    first_session_id: int | None
    next_token: Callable[[], int] | None
    cluster_stream_ids: Collection[int]
    use_agent_invoker: bool
    error_handler: ErrorHandler | None
    config_file: str | os.PathLike[str] | None
    environ: Mapping[str, str] | None
