"""The context of a backup: settings, what a program passes in, and what ``conclude()`` makes of both."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from container.agent.context_base import ContextBase, check_flag, object_or_setting
from container.archive.client.async_archive import AsyncArchive
from container.backup.backup_agent import ClusterBackupAgent
from container.backup.backup_arguments import BackupSettingsArguments
from container.backup.backup_counters import BackupCounters, has_backup
from container.backup.backup_machine import ClusterBackupMachine, CredentialsSupplier
from container.backup.backup_transport import BackupTransport
from container.common.aeron_defaults import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    CONSENSUS_MODULE_STREAM_ID,
    INGRESS_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
    SERVICE_STREAM_ID,
)
from container.common.callbacks import check_callable
from container.common.channel_uri import ENDPOINT, ChannelUri, add_alias_if_absent
from container.common.directories import check_is_there
from container.common.log_events import log_event
from container.common.object_path import create_object
from container.common.values import shown
from container.consensus.channels import replication_channels
from container.consensus.cluster_member import ClusterMember
from container.consensus.log_orphans import LogOrphans
from container.error_handlers import ErrorHandler, LoggingErrorHandler, chain_error_handlers
from container.files.cluster_mark_file import LINK_FILE_NAME, MARK_FILE_NAME, ClusterMarkFile
from container.files.error_log import CountedErrorHandler, DistinctErrorLog
from container.files.mark_file import write_link_file
from container.files.recording_log import RecordingLog
from container.settings.backup_table import BackupSettings, backup_settings_table
from container.settings.sources import BACKUP_CONFIG_FILE_VARIABLE, Given, validate_backup_settings
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

_ARCHIVE_TERM_LENGTH = 64 * 1024
_ARCHIVE_MTU_LENGTH = 1408
_END_OF_ANOTHER_S = 3.0
_FILE_SYNC_LEVEL = 2
_NULL_VALUE = -1
_POLL_S = 0.01
_OBJECTS = ("random_source", "use_agent_invoker")


class NoCredentials:
    """Those of a backup that a cluster without an authenticator has."""

    def encoded_credentials(self) -> bytes:
        return b""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return b""


class ClusterBackupContext(ContextBase[BackupSettings]):
    """The parts and settings of one backup (upstream's ``ClusterBackup.Context``).

    Args:
        client: an open Aeron client of the caller's, in invoker mode, which stays open; nobody else may use it while
            the backup runs. If None, it connects one of its own.
        clock: where the time comes from; the client's by default.
        storage: where the files are; the file system by default.
        idle_strategy: the setting of this name, or a function that makes a strategy.
        credentials_supplier: the setting of this name, or an object with the methods of a
            :class:`~container.backup.backup_machine.CredentialsSupplier`.
        random_source: of session ids and of the order in which members are asked; the system's by default.
        use_agent_invoker: True when the caller drives the agent by :meth:`ClusterBackup.invoke`.
        error_handler: called with each error (BaseException) after it was recorded.
        config_file: TOML file with settings.
        environ: the environment; the process's by default.
        settings: the settings by name.

    Raises:
        ConfigurationError: unknown setting, or a config file that cannot be read. Values are checked by
            :meth:`conclude`.
    """

    kind = "backup"

    # Made by conclude().
    mark_file: ClusterMarkFile
    counters: BackupCounters
    recording_log: RecordingLog
    credentials_supplier: CredentialsSupplier
    machine: ClusterBackupMachine
    agent: ClusterBackupAgent

    def __init__(
        self,
        *,
        client: Client | None = None,
        clock: Clock | None = None,
        storage: Storage | None = None,
        idle_strategy: str | Callable[[], IdleStrategy] | None = None,
        credentials_supplier: str | CredentialsSupplier | None = None,
        random_source: random.Random | None = None,
        use_agent_invoker: bool = False,
        error_handler: ErrorHandler | None = None,
        config_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Unpack[BackupSettingsArguments],
    ) -> None:
        check_flag("use_agent_invoker", use_agent_invoker)
        keywords: dict[str, object] = {**settings}
        self._given_credentials = object_or_setting(
            keywords, "credentials_supplier", credentials_supplier, _check_credentials
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
            table=backup_settings_table(),
            config_file_variable=BACKUP_CONFIG_FILE_VARIABLE,
        )
        self.use_agent_invoker = use_agent_invoker
        self.random = random.SystemRandom() if random_source is None else random_source

    def _validate(self, given: Mapping[str, Given]) -> BackupSettings:
        return validate_backup_settings(given)

    @property
    def is_invoker(self) -> bool:
        """Whether the caller's thread drives the backup."""
        return self.use_agent_invoker

    @property
    def name(self) -> str:
        """How threads, the Aeron client and the log name the backup."""
        return f"cluster-backup clusterId={self.settings.cluster_id}"

    @property
    def cluster_dir(self) -> str:
        """The copy's directory by its canonical path, once :meth:`conclude` has made it."""
        return self._cluster_dir

    def check_directory(self) -> None:
        """Raise ConfigurationError unless ``cluster_dir`` is there: a main program begins nothing by mistake."""
        check_is_there("cluster_dir", self.settings.cluster_dir)

    def conclude(self) -> None:
        """Check every setting, take the mark file, open the recording log, connect the client, make the agent.

        The mark file is taken before any other file is read: that of a member is refused. After a failure call
        :meth:`abandon`.

        Raises:
            ConcurrentConcludeError: it was called before.
            ConfigurationError: a setting is out of range, with nothing opened yet.
            MarkFileError: the mark file is held by a live owner, is a member's, or cannot be written.
            DriverTimeoutError: there is no media driver within the driver timeout.
            ClusterError: another backup of the driver has the same cluster id.
            AeronError: the driver refuses a counter.
            RecordingError: the recording log is damaged.
            OSError: the disk fails.
        """
        super().conclude()

    def _conclude(self, settings: BackupSettings) -> None:
        self.runner_idle_strategy = self.new_idle_strategy()
        self.credentials_supplier = self._given_credentials or _created_credentials(settings.credentials_supplier)
        self._cluster_dir, self._mark_file_dir = self._directories("cluster_dir", settings.cluster_dir)
        self._find_aeron_dir()
        page_size = self._file_page_size()
        self._conclude_mark_file(settings, page_size)
        self.error_log = DistinctErrorLog(self.mark_file, self.clock)
        self._logging_error_handler = LoggingErrorHandler(self.error_log, sys.stderr, source=self.name)
        self.error_handler = chain_error_handlers(self._logging_error_handler, self._user_error_handler, None)
        self.recording_log = RecordingLog.open(
            self._storage, self._cluster_dir, create=True, file_sync_level=_FILE_SYNC_LEVEL
        )
        self._conclude_client()
        self._await_end_of_another(settings.cluster_id)
        self.counters = BackupCounters(self.client, settings.cluster_id)
        self.counted_error_handler = CountedErrorHandler(self.counters.error_counter, self.error_handler)
        self.machine = self._new_machine(settings)
        self.mark_file.signal_ready()
        self.agent = ClusterBackupAgent(self)

    def _await_end_of_another(self, cluster_id: int) -> None:
        """Wait a little for a busy driver to free the counters of a backup that was closed just now."""
        end = time.monotonic() + _END_OF_ANOTHER_S
        while has_backup(self.client, cluster_id) and time.monotonic() < end:
            time.sleep(_POLL_S)

    def _conclude_mark_file(self, settings: BackupSettings, page_size: int) -> None:
        self.mark_file = ClusterMarkFile(
            f"{self._mark_file_dir}/{MARK_FILE_NAME}",
            is_of_backup=True,
            error_buffer_length=settings.error_buffer_length,
            page_size=page_size,
            clock=self.clock,
            storage=self._storage,
            fallback=sys.stderr,
        )
        write_link_file(self._storage, self._cluster_dir, LINK_FILE_NAME, self._mark_file_dir)
        self.mark_file.write_header(
            archive_stream_id=settings.archive_control_stream_id,
            # These are the streams of a node that starts from the copy, as upstream has them: a backup has none.
            service_stream_id=SERVICE_STREAM_ID,
            consensus_module_stream_id=CONSENSUS_MODULE_STREAM_ID,
            ingress_stream_id=INGRESS_STREAM_ID,
            member_id=_NULL_VALUE,
            service_id=_NULL_VALUE,
            cluster_id=settings.cluster_id,
            aeron_dir=self.aeron_dir,
            control_channel="",
            ingress_channel="",
            service_name="",
            authenticator="",
        )

    def _new_machine(self, settings: BackupSettings) -> ClusterBackupMachine:
        streams = (settings.log_stream_id, SERVICE_SNAPSHOT_STREAM_ID, CONSENSUS_MODULE_SNAPSHOT_STREAM_ID)
        return ClusterBackupMachine(
            BackupTransport(self.client, str(settings.consensus_channel), settings.consensus_stream_id),
            settings,
            self.recording_log,
            LogOrphans(self._storage, self._cluster_dir, self.recording_log, streams, self.counted_error_handler),
            new_archive=self._new_archive,
            new_member_archive=self._new_member_archive,
            credentials_supplier=self.credentials_supplier,
            random_source=self.random,
            display=self.counters,
            on_failure=CountedErrorHandler(self.counters.error_counter, self._on_failure),
            on_error=self.counted_error_handler,
            on_event=self._on_event,
        )

    def _on_failure(self, error: BaseException) -> None:
        """Record what has ended a round. Its event is in the log already."""
        self.error_log.record(error)
        if self._user_error_handler is not None:
            self._user_error_handler(error)

    def _on_event(self, event: str, **fields: Any) -> None:
        log_event(self.name, event, **fields)

    def _new_archive(self) -> AsyncArchive:
        """A client of the backup's own archive."""
        settings = self.settings
        return self._archive_client(
            add_alias_if_absent(settings.archive_control_channel, f"backup-archive-ctrl-req-{settings.cluster_id}"),
            settings.archive_control_stream_id,
            add_alias_if_absent(settings.archive_control_channel, f"backup-archive-ctrl-resp-{settings.cluster_id}"),
            settings.cluster_id * 100 + 100 + settings.archive_response_stream_id,
        )

    def _new_member_archive(self, member: ClusterMember) -> AsyncArchive:
        """A client of a member's archive."""
        settings = self.settings
        channel = ChannelUri.parse(settings.member_archive_control_channel)
        channel.put(ENDPOINT, member.archive_endpoint)
        _, response_channel = replication_channels(
            settings.member_archive_response_channel, member.archive_response_endpoint
        )
        return self._archive_client(
            str(channel),
            settings.member_archive_control_stream_id,
            response_channel or settings.member_archive_response_channel,
            settings.archive_response_stream_id,
        )

    def _archive_client(
        self, channel: str, stream_id: int, response_channel: str, response_stream_id: int
    ) -> AsyncArchive:
        return AsyncArchive(
            self.client,
            control_channel=channel,
            control_stream_id=stream_id,
            response_channel=response_channel,
            response_stream_id=response_stream_id,
            term_buffer_length=_ARCHIVE_TERM_LENGTH,
            mtu_length=_ARCHIVE_MTU_LENGTH,
            is_sparse=True,
            client_name=self.name,
            encoded_credentials=b"",
            message_timeout_ns=self.settings.archive_message_timeout_ns,
        )

    def abandon(self) -> None:
        """Undo a start that failed: everything is closed, and the mark file is free for the next one. Never raise."""
        self.is_starting = False
        self._close_quietly(getattr(self, "agent", None))
        self.release("signal_failed_start")

    def release(self, signing_off: str = "signal_terminated") -> None:
        """Close the recording log, client or counters, and then the mark file. Once.

        The agent calls it at its end. Never raise.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._close_quietly(getattr(self, "recording_log", None))
        self._close_quietly(self.client if self.owns_aeron_client else getattr(self, "counters", None))
        self._close_quietly(getattr(self, "_logging_error_handler", None))
        mark_file = getattr(self, "mark_file", None)
        if mark_file is not None:
            self._quietly(getattr(mark_file, signing_off))
        self._close_quietly(getattr(self, "error_log", None))
        self._close_quietly(mark_file)

    def summary(self) -> str:
        """Where it is, for one line of the log; once :meth:`conclude` knows it."""
        return (
            f"cluster_dir={self._cluster_dir} aeron_dir={self.aeron_dir} "
            f"members={self.settings.cluster_consensus_endpoints}"
        )


def _check_credentials(given: object, what: str) -> None:
    for name, parameters in (("encoded_credentials", ""), ("on_challenge", "encoded_challenge")):
        check_callable(f"{what}: its {name}", getattr(given, name, None), parameters)


def _created_credentials(path: str | None) -> CredentialsSupplier:
    if path is None:
        return NoCredentials()
    created: CredentialsSupplier = create_object(path, "credentials_supplier")
    _check_credentials(created, f"credentials_supplier={shown(path)}")
    return created
