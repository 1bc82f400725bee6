"""The keywords of a consensus module for type checkers: what ``launch()`` and its context take by name.

A test compares them with the table of settings.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import TypedDict

from container.archive.authentication import Authenticator, AuthorisationService
from container.error_handlers import ErrorHandler
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

type _Path = str | os.PathLike[str]


class ConsensusModuleSettingsArguments(TypedDict, total=False):
    """The settings of docs/settings.md that are settings alone; a number with a unit may be given as text."""

    cluster_id: int | None
    cluster_member_id: int | None
    cluster_members: str | None
    service_count: int | None
    app_version: int | str | None
    cluster_dir: _Path | None
    mark_file_dir: _Path | None
    services_dir: _Path | None
    aeron_dir: _Path | None
    aeron_library: _Path | None
    driver_timeout_ms: int | str | None
    ingress_channel: str | None
    ingress_stream_id: int | None
    ingress_fragment_limit: int | None
    is_ipc_ingress_allowed: bool | None
    egress_channel: str | None
    egress_term_length_max: int | str | None
    log_channel: str | None
    log_stream_id: int | None
    log_fragment_limit: int | None
    is_log_control_enabled: bool | None
    is_consensus_control_enabled: bool | None
    leader_archive_control_channel: str | None
    follower_catchup_channel: str | None
    control_channel: str | None
    service_stream_id: int | None
    consensus_module_stream_id: int | None
    consensus_channel: str | None
    consensus_stream_id: int | None
    replay_channel: str | None
    replay_stream_id: int | None
    snapshot_channel: str | None
    snapshot_stream_id: int | None
    archive_control_channel: str | None
    archive_control_stream_id: int | None
    archive_response_stream_id: int | None
    archive_message_timeout_ns: int | str | None
    replication_channel: str | None
    max_concurrent_sessions: int | None
    session_timeout_ns: int | str | None
    leader_heartbeat_interval_ns: int | str | None
    leader_heartbeat_timeout_ns: int | str | None
    startup_canvass_timeout_ns: int | str | None
    election_timeout_ns: int | str | None
    election_status_interval_ns: int | str | None
    appointed_leader_id: int | None
    termination_timeout_ns: int | str | None
    timer_service: str | None
    cluster_clock: str | None
    wheel_tick_resolution_ns: int | str | None
    ticks_per_wheel: int | None
    is_standby_snapshot_accepted: bool | None
    standby_snapshot_delay_ns: int | str | None
    snapshots_retained: int | None
    file_sync_level: int | None
    error_buffer_length: int | str | None
    cycle_threshold_ns: int | str | None
    snapshot_duration_threshold_ns: int | str | None


class ConsensusModuleArguments(ConsensusModuleSettingsArguments, total=False):
    """All that :class:`container.consensus.consensus_module_context.ConsensusModuleContext` takes by name."""

    client: Client | None
    clock: Clock | None
    storage: Storage | None
    idle_strategy: str | Callable[[], IdleStrategy] | None
    authenticator: str | Authenticator | None
    authorisation_service: str | AuthorisationService | None
    random_source: random.Random | None
    app_version_validator: Callable[[int, int], bool]
    use_agent_invoker: bool
    error_handler: ErrorHandler | None
    config_file: str | os.PathLike[str] | None
    environ: Mapping[str, str] | None
