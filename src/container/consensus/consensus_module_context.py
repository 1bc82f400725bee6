"""The context of a consensus module: settings, what a program passes in, and what ``conclude()`` makes of both.

You can pass in everything that it takes from the operating system (files, time, random numbers). So a simulation makes
the same consensus module as a main program.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from typing import Unpack

from container.agent.context_base import ContextBase, check_flag, object_or_setting
from container.archive.authentication import (
    Authenticator,
    AuthorisationService,
    check_authenticator,
    check_authorisation_service,
    create_authenticator,
    create_authorisation_service,
)
from container.archive.client.async_archive import AsyncArchive
from container.common.aeron_defaults import SERVICE_SNAPSHOT_STREAM_ID
from container.common.callbacks import check_callable
from container.common.channel_uri import ChannelUri, add_alias_if_absent
from container.common.directories import check_is_there
from container.common.semantic_version import is_version_compatible
from container.common.values import shown
from container.consensus.backup_requests import BACKUP_QUERY, HEARTBEAT_REQUEST, STANDBY_SNAPSHOT
from container.consensus.channels import check_endpoints
from container.consensus.cluster_clock import ClusterClock
from container.consensus.cluster_member import ClusterMember, parse_cluster_members
from container.consensus.consensus_counters import ConsensusModuleCounters
from container.consensus.consensus_module_agent import ConsensusModuleAgent
from container.consensus.consensus_module_arguments import ConsensusModuleSettingsArguments
from container.consensus.log_orphans import LogOrphans
from container.consensus.timer_service import (
    PriorityHeapTimerService,
    TimerHandler,
    TimerService,
    WheelTimerService,
)
from container.error_handlers import ErrorHandler, LoggingErrorHandler, chain_error_handlers
from container.errors import ConfigurationError
from container.files.cluster_mark_file import LINK_FILE_NAME, MARK_FILE_NAME, ClusterMarkFile
from container.files.error_log import CountedErrorHandler, DistinctErrorLog
from container.files.mark_file import write_link_file
from container.files.node_state_file import NodeStateFile
from container.files.recording_log import RecordingLog
from container.settings.consensus_module_table import (
    PRIORITY_HEAP,
    ConsensusModuleSettings,
    cluster_time_unit_of,
    consensus_module_settings_table,
    timer_service_of,
)
from container.settings.sources import (
    CONSENSUS_MODULE_CONFIG_FILE_VARIABLE,
    Given,
    validate_consensus_module_settings,
)
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

_FILE_PAGE_SIZE_DEFAULT = 4096
_ARCHIVE_TERM_LENGTH = 64 * 1024
_ARCHIVE_MTU_LENGTH = 1408
_NS_PER_MS = 1_000_000
_SERVICE_ID = -1
_OBJECTS = ("random_source", "app_version_validator", "use_agent_invoker")
_ALLOWED = (BACKUP_QUERY, HEARTBEAT_REQUEST, STANDBY_SNAPSHOT)


class BackupRequests:
    """The default authorisation service: allows what backups and standbys ask for, and no admin request (upstream)."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        """Whether it is BackupQuery, HeartbeatRequest or StandbySnapshot."""
        return action_id in _ALLOWED


class ConsensusModuleContext(ContextBase[ConsensusModuleSettings]):
    """The parts and settings of one consensus module (upstream's ``ConsensusModule.Context``).

    Args:
        client: an open Aeron client of the caller's, in invoker mode, which stays open; nobody else may use it while
            the consensus module runs. If None, it connects one of its own.
        clock: where the time comes from; the client's by default.
        storage: where the files are; the file system by default.
        idle_strategy: the setting of this name, or a function that makes a strategy.
        authenticator: the setting of this name, or an object with the methods of an
            :class:`~container.archive.authentication.Authenticator`.
        authorisation_service: the setting of this name, or an
            :class:`~container.archive.authentication.AuthorisationService`.
        random_source: of the delays of elections; the system's by default.
        app_version_validator: called with this member's version and the log's (int, int), returns whether they fit
            (bool).
        use_agent_invoker: True when the caller drives the agent by :meth:`ConsensusModule.invoke`.
        error_handler: called with each error (BaseException) after it was recorded.
        config_file: TOML file with settings.
        environ: the environment; the process's by default.
        settings: the settings by name.

    Raises:
        ConfigurationError: unknown setting, or a config file that cannot be read. Values are checked by
            :meth:`conclude`.
    """

    kind = "consensus module"

    # Made by conclude().
    mark_file: ClusterMarkFile
    counters: ConsensusModuleCounters
    cluster_clock: ClusterClock
    recording_log: RecordingLog
    node_state_file: NodeStateFile
    log_orphans: LogOrphans
    members: list[ClusterMember]
    authenticator: Authenticator
    authorisation_service: AuthorisationService
    agent: ConsensusModuleAgent

    def __init__(
        self,
        *,
        client: Client | None = None,
        clock: Clock | None = None,
        storage: Storage | None = None,
        idle_strategy: str | Callable[[], IdleStrategy] | None = None,
        authenticator: str | Authenticator | None = None,
        authorisation_service: str | AuthorisationService | None = None,
        random_source: random.Random | None = None,
        app_version_validator: Callable[[int, int], bool] = is_version_compatible,
        use_agent_invoker: bool = False,
        error_handler: ErrorHandler | None = None,
        config_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Unpack[ConsensusModuleSettingsArguments],
    ) -> None:
        check_callable(
            f"app_version_validator={shown(app_version_validator)}",
            app_version_validator,
            "context_version, other_version",
        )
        check_flag("use_agent_invoker", use_agent_invoker)
        keywords: dict[str, object] = {**settings}
        self._given_authenticator = object_or_setting(keywords, "authenticator", authenticator, check_authenticator)
        self._given_authorisation_service = object_or_setting(
            keywords, "authorisation_service", authorisation_service, check_authorisation_service
        )
        super().__init__(
            keywords,
            client=client,
            clock=clock,
            storage=storage,
            idle_strategy=idle_strategy,
            error_handler=error_handler,
            config_file=config_file,
            environ=environ,
            objects=_OBJECTS,
            table=consensus_module_settings_table(),
            config_file_variable=CONSENSUS_MODULE_CONFIG_FILE_VARIABLE,
        )
        self.app_version_validator = app_version_validator
        self.use_agent_invoker = use_agent_invoker
        self.random = random.SystemRandom() if random_source is None else random_source

    def _validate(self, given: Mapping[str, Given]) -> ConsensusModuleSettings:
        return validate_consensus_module_settings(given)

    @property
    def is_invoker(self) -> bool:
        """Whether the caller's thread drives the consensus module."""
        return self.use_agent_invoker

    @property
    def name(self) -> str:
        """How threads, the Aeron client and the log name the consensus module."""
        return f"consensus-module-{self.settings.cluster_id}-{self.settings.cluster_member_id}"

    @property
    def cluster_dir(self) -> str:
        """The cluster's directory by its canonical path, once :meth:`conclude` has made it."""
        return self._cluster_dir

    def check_directory(self) -> None:
        """Raise ConfigurationError unless ``cluster_dir`` is there: a main program begins nothing by mistake."""
        check_is_there("cluster_dir", self.settings.cluster_dir)

    def conclude(self) -> None:
        """Check every setting, take the mark file, open the files, connect the client, make the agent.

        The mark file is taken before any other file is read. After a failure call :meth:`abandon`.

        Raises:
            ConcurrentConcludeError: it was called before.
            ConfigurationError: a setting is out of range, with nothing opened yet.
            MarkFileError: the mark file is held by a live owner, or cannot be written.
            DriverTimeoutError: there is no media driver within the driver timeout.
            ClusterError: another consensus module of the driver has the same cluster id.
            AeronError: the driver refuses a counter or a stream.
            RecordingError: the recording log or the node state is damaged.
            OSError: the disk fails.
        """
        super().conclude()

    def _conclude(self, settings: ConsensusModuleSettings) -> None:
        self._conclude_objects(settings)
        self._cluster_dir, self._mark_file_dir = self._directories("cluster_dir", settings.cluster_dir)
        self._find_aeron_dir()
        page_size = self._file_page_size()
        self._conclude_mark_file(settings, page_size)
        self._conclude_files(settings)
        self._conclude_client()
        self.counters = ConsensusModuleCounters(
            self.client,
            settings.cluster_id,
            cycle_threshold_ns=settings.cycle_threshold_ns,
            snapshot_duration_threshold_ns=settings.snapshot_duration_threshold_ns,
            is_standby_snapshot_accepted=settings.is_standby_snapshot_accepted,
            snapshots_retained=settings.snapshots_retained,
        )
        self.counted_error_handler = CountedErrorHandler(self.counters.error_counter, self.error_handler)
        copied_streams = (settings.log_stream_id, SERVICE_SNAPSHOT_STREAM_ID, settings.snapshot_stream_id)
        self.log_orphans = LogOrphans(
            self._storage, self._cluster_dir, self.recording_log, copied_streams, self.counted_error_handler
        )
        self.mark_file.signal_ready()
        self.agent = ConsensusModuleAgent(self)

    def abandon(self) -> None:
        """Undo a start that failed: everything is closed, and the mark file is free for the next one. Never raise."""
        self.is_starting = False
        self._close_quietly(getattr(self, "agent", None))
        self.release("signal_failed_start")

    def release(self, signing_off: str = "signal_terminated") -> None:
        """Close files, client or counters, and then the mark file: whoever may take it finds nothing in use. Once.

        The agent calls it at its end. Never raise.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for name in ("recording_log", "node_state_file"):
            self._close_quietly(getattr(self, name, None))
        self._close_quietly(self.client if self.owns_aeron_client else getattr(self, "counters", None))
        self._close_quietly(getattr(self, "_logging_error_handler", None))
        mark_file = getattr(self, "mark_file", None)
        if mark_file is not None:
            self._quietly(getattr(mark_file, signing_off))
        self._close_quietly(getattr(self, "error_log", None))
        self._close_quietly(mark_file)

    def new_timer_service(self, handler: TimerHandler) -> TimerService:
        """Make the timer service for the agent."""
        settings = self.settings
        if timer_service_of(settings.timer_service) == PRIORITY_HEAP:
            return PriorityHeapTimerService(handler)
        tick = max(1, self.cluster_clock.from_nanos(settings.wheel_tick_resolution_ns))
        return WheelTimerService(handler, tick, settings.ticks_per_wheel)

    def new_archive_client(self) -> AsyncArchive:
        """A client of the member's archive, for the agent."""
        settings = self.settings
        member = f"cluster-{settings.cluster_id}-member-{settings.cluster_member_id}"
        return AsyncArchive(
            self.client,
            control_channel=add_alias_if_absent(settings.archive_control_channel, f"cm-archive-ctrl-req-{member}"),
            control_stream_id=settings.archive_control_stream_id,
            response_channel=add_alias_if_absent(settings.archive_control_channel, f"cm-archive-ctrl-resp-{member}"),
            response_stream_id=settings.cluster_id * 100 + 100 + settings.archive_response_stream_id,
            term_buffer_length=_ARCHIVE_TERM_LENGTH,
            mtu_length=_ARCHIVE_MTU_LENGTH,
            is_sparse=True,
            client_name=self.name,
            encoded_credentials=b"",
            message_timeout_ns=settings.archive_message_timeout_ns,
        )

    def summary(self) -> str:
        """Where it is, for one line of the log; once :meth:`conclude` knows it."""
        return f"cluster_dir={self._cluster_dir} aeron_dir={self.aeron_dir} members={self.settings.cluster_members}"

    def _conclude_objects(self, settings: ConsensusModuleSettings) -> None:
        self.runner_idle_strategy = self.new_idle_strategy()
        self.cluster_clock = ClusterClock(self.clock, cluster_time_unit_of(settings.cluster_clock))
        self.members = parse_cluster_members(str(settings.cluster_members))
        if all(member.id != settings.cluster_member_id for member in self.members):
            raise ConfigurationError(
                f"cluster_member_id={settings.cluster_member_id} is not in cluster_members: the members are "
                f"{', '.join(str(member.id) for member in self.members)}"
            )
        if len(self.members) > 1 and not ChannelUri.parse(settings.log_channel).is_udp:
            raise ConfigurationError(
                f"log_channel={shown(settings.log_channel)}: with {len(self.members)} members it must be of UDP, such "
                "as aeron:udp?term-length=64m"
            )
        if len(self.members) > 1:
            check_endpoints(self.members, str(settings.log_channel))
        self.authenticator = self._given_authenticator or create_authenticator(settings.authenticator)
        if self._given_authorisation_service is not None:
            self.authorisation_service = self._given_authorisation_service
        elif settings.authorisation_service is None:
            self.authorisation_service = BackupRequests()
        else:
            self.authorisation_service = create_authorisation_service(settings.authorisation_service)

    def _conclude_mark_file(self, settings: ConsensusModuleSettings, page_size: int) -> None:
        self.mark_file = ClusterMarkFile(
            f"{self._mark_file_dir}/{MARK_FILE_NAME}",
            is_of_consensus_module=True,
            error_buffer_length=settings.error_buffer_length,
            page_size=page_size,
            clock=self.clock,
            storage=self._storage,
            fallback=sys.stderr,
        )
        write_link_file(self._storage, self._cluster_dir, LINK_FILE_NAME, self._mark_file_dir)
        self.mark_file.write_header(
            archive_stream_id=settings.archive_control_stream_id,
            service_stream_id=settings.service_stream_id,
            consensus_module_stream_id=settings.consensus_module_stream_id,
            ingress_stream_id=settings.ingress_stream_id,
            member_id=settings.cluster_member_id,
            service_id=_SERVICE_ID,
            cluster_id=settings.cluster_id,
            aeron_dir=self.aeron_dir,
            control_channel=settings.control_channel,
            ingress_channel=str(settings.ingress_channel),
            service_name="",
            authenticator=type(self.authenticator).__name__,
        )

    def _conclude_files(self, settings: ConsensusModuleSettings) -> None:
        self.error_log = DistinctErrorLog(self.mark_file, self.clock)
        self._logging_error_handler = LoggingErrorHandler(self.error_log, sys.stderr, source=self.name)
        self.error_handler = chain_error_handlers(self._logging_error_handler, self._user_error_handler, None)
        level = settings.file_sync_level
        self.node_state_file = NodeStateFile.open(self._storage, self._cluster_dir, create=True)
        carried = self.mark_file.candidate_term_id  # where members of old kept it
        if self.node_state_file.candidate_term_id == -1 and carried != -1:
            self.node_state_file.update_candidate_term_id(carried, -1, -1)
        self.recording_log = RecordingLog.open(self._storage, self._cluster_dir, create=True, file_sync_level=level)
