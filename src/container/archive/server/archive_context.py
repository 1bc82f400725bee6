"""The context of an archive: settings, what a program passes in as objects, and what ``conclude()`` makes of both.

You can pass in everything that it takes from the operating system (process id, random numbers, files, time). So a
simulation makes the same archive as a main program.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Unpack

from container.agent.context_base import ContextBase, check_flag, object_or_setting
from container.archive.authentication import (
    Authenticator,
    AuthorisationService,
    check_authenticator,
    check_authorisation_service,
    create_authenticator,
    create_authorisation_service,
)
from container.archive.server.archive_agent import ArchiveAgent, Heartbeat, await_former_archive, new_archive_id
from container.archive.server.archive_arguments import ArchiveSettingsArguments
from container.archive.server.archive_counters import ArchiveCounters
from container.archive.server.archive_mark_file import MARK_FILE_NAME, ArchiveMarkFile, ensure_link_file
from container.archive.server.store.facts import Recovered
from container.archive.server.store.recording_store import RecordingStore, StoreSettings
from container.common.callbacks import check_callable
from container.common.directories import check_is_there
from container.common.loggers import report
from container.common.values import shown
from container.error_handlers import ErrorHandler, LoggingErrorHandler, chain_error_handlers
from container.errors import ConfigurationError
from container.files.cnc_file import CncFile
from container.files.error_log import CountedErrorHandler, DistinctErrorLog
from container.settings.archive_table import (
    CRC_32,
    CRC_32C,
    INVOKER,
    ArchiveSettings,
    archive_settings_table,
    checksum_of,
)
from container.settings.sources import ARCHIVE_CONFIG_FILE_VARIABLE, Given, validate_archive_settings
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

_FILE_PAGE_SIZE_DEFAULT = 4096
_CLIENT_LIVENESS_TIMEOUT_NS = 10_000_000_000
_LIVENESS_MARGIN_NS = 5_000_000_000  # a driver looks for dead clients now and then
_CHECKSUM_KINDS = {None: 0, CRC_32: 1, CRC_32C: 2}
_RECOVERED_SHOWN = 20
_BASES = {"exact": "what it had announced", "bound": "its frames behind what was forced", "frames": "its frames"}
_SESSION_ID_MASK = 2**31 - 1
_OBJECTS = ("process_id", "first_session_id", "next_token", "cluster_stream_ids", "use_agent_invoker")

# Files that an archive, upstream's or this one, has in its directory beside the mark file and old errors.
_SEGMENTS = re.compile(r"\d+-\d+\.rec(?:\.del)?", re.ASCII)
_CATALOGS = re.compile(r"archive\.(?:catalog|positions|migration)(?:\.\w+)?", re.ASCII)


class ArchiveContext(ContextBase[ArchiveSettings]):
    """The parts and settings of one archive (upstream's ``Archive.Context``).

    Args:
        client: an open Aeron client of the caller's, which stays open; nobody else may use it while the archive runs.
            If None, the archive connects one of its own, whose conductor runs on the archive's thread.
        clock: source of the time; the client's by default.
        storage: holds the files; the file system by default.
        idle_strategy: the setting of this name, or a function that makes a strategy.
        authenticator: the setting of this name, or an object with the methods of an
            :class:`~container.archive.authentication.Authenticator`.
        authorisation_service: the setting of this name, or an
            :class:`~container.archive.authentication.AuthorisationService`.
        process_id: the process id in the mark file; this process's by default.
        first_session_id: the id of the first control session, from 0 to 2**31 - 1; random by default, so that a client
            of a former archive is not taken for one of this.
        next_token: called for each replay token, a random 64-bit number (int); the system's by default.
        cluster_stream_ids: streams of the log and the snapshots of the cluster whose archive it is, none by default:
            their recordings are changed by clients in shared memory alone, of which its consensus module is one.
        use_agent_invoker: True when the caller drives the archive by :meth:`Archive.invoke`, as with upstream's
            ``threading_mode="INVOKER"``.
        error_handler: called with each error (BaseException) after it was recorded. An error that it raises is recorded
            as well, and ends nothing.
        config_file: TOML file with settings.
        environ: the environment; the process's by default.
        settings: the settings of docs/settings.md, by name.

    Raises:
        ConfigurationError: unknown setting, or a config file that cannot be read. Values are checked by
            :meth:`conclude`.
    """

    kind = "archive"

    # Made by conclude().
    archive_id: int
    mark_file: ArchiveMarkFile
    counters: ArchiveCounters
    store: RecordingStore
    agent: ArchiveAgent

    def __init__(
        self,
        *,
        client: Client | None = None,
        clock: Clock | None = None,
        storage: Storage | None = None,
        idle_strategy: str | Callable[[], IdleStrategy] | None = None,
        authenticator: str | Authenticator | None = None,
        authorisation_service: str | AuthorisationService | None = None,
        process_id: int | None = None,
        first_session_id: int | None = None,
        next_token: Callable[[], int] | None = None,
        cluster_stream_ids: Collection[int] = (),
        use_agent_invoker: bool = False,
        error_handler: ErrorHandler | None = None,
        config_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Unpack[ArchiveSettingsArguments],
    ) -> None:
        check_flag("use_agent_invoker", use_agent_invoker)
        _check_number("process_id", process_id, 2**63 - 1)
        _check_number("first_session_id", first_session_id, _SESSION_ID_MASK)
        if next_token is not None:
            check_callable(f"next_token={shown(next_token)}", next_token, "")
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
            table=archive_settings_table(),
            config_file_variable=ARCHIVE_CONFIG_FILE_VARIABLE,
        )
        self.use_agent_invoker = use_agent_invoker
        self._given_process_id = process_id
        self._given_first_session_id = first_session_id
        self._next_token = next_token or _random_token
        self._cluster_stream_ids = frozenset(cluster_stream_ids)
        self._conductor: Any = None

    def _validate(self, given: Mapping[str, Given]) -> ArchiveSettings:
        return validate_archive_settings(given)

    @property
    def is_invoker(self) -> bool:
        """Whether the caller's thread drives the archive."""
        return self.use_agent_invoker or self.settings.threading_mode == INVOKER

    @property
    def archive_dir(self) -> str:
        """The directory of the recordings by its canonical path, once :meth:`conclude` has made it."""
        return self._archive_dir

    @property
    def mark_file_dir(self) -> str:
        """The directory of the mark file by its canonical path, once :meth:`conclude` has made it."""
        return self._mark_file_dir

    def check_directory(self) -> None:
        """Raise ConfigurationError unless ``archive_dir`` is there: a main program begins nothing by mistake."""
        check_is_there("archive_dir", self.settings.archive_dir)

    def conclude(self) -> None:
        """Check every setting, take the mark file, connect the client, repair what a crash has left, make the agent.

        No client is served yet: ``agent.start()`` begins that. The mark file is taken before any other file is read,
        and is shown as that of a live owner while files are repaired. After a failure call :meth:`abandon`.

        Raises:
            ConcurrentConcludeError: it was called before.
            ConfigurationError: a setting is out of range, with nothing opened yet.
            MarkFileError: the mark file cannot be taken; see
                :class:`~container.archive.server.archive_mark_file.ArchiveMarkFile`.
            DriverTimeoutError: there is no media driver within the driver timeout.
            ArchiveError: another archive of the driver has the same id.
            AeronError: the driver refuses a counter, or gave the client up meanwhile.
            RecordingError: files are damaged, or a frame that a crash may have cut is refused.
            OSError: the disk fails.
        """
        super().conclude()

    def _conclude(self, settings: ArchiveSettings) -> None:
        self._conclude_objects(settings)
        self._archive_dir, self._mark_file_dir = self._directories("archive_dir", settings.archive_dir)
        self._find_aeron_dir()
        page_size = self._file_page_size()
        self._conclude_archive_id(settings)
        self._conclude_mark_file(settings, page_size)
        self._conclude_error_handlers()
        self._conclude_client()
        self._heartbeat = Heartbeat(self.client, self.clock, self.mark_file, self._on_error)
        self._heartbeat.beat()
        self._conclude_counters(settings)
        if settings.delete_dir_on_start:
            self._delete_recordings()
        self._conclude_store(settings)
        self._heartbeat.watch(self.store.catalog)
        self.mark_file.signal_ready()
        self._conclude_agent(settings)

    def abandon(self) -> None:
        """Undo a start that failed: everything is closed, and the mark file is free for the next one. Never raise."""
        self.is_starting = False
        if self._conductor is not None and not self.client.is_closed():
            self._close_quietly(self._conductor)
        self._release("signal_failed_start")

    def _release_at_end(self, is_owner: bool) -> None:
        """Called by the agent at its end: sign off in the mark file, if it is still ours, and close everything."""
        self._release("signal_terminated", is_owner=is_owner)

    def _release(self, signing_off: str, *, is_owner: bool = True) -> None:
        """Close catalog, client or counters, and then the mark file: whoever may take it finds nothing in use. Once."""
        if self._is_closed:
            return
        self._is_closed = True
        store: RecordingStore | None = getattr(self, "store", None)
        if store is not None:
            self._quietly(store.close if is_owner else store.abandon)
        if self.owns_aeron_client:
            self._close_quietly(self.client)
        else:
            self._close_quietly(getattr(self, "counters", None))
        self._close_quietly(getattr(self, "_logging_error_handler", None))
        mark_file = getattr(self, "mark_file", None)
        if mark_file is not None:
            self._quietly(getattr(mark_file, signing_off))
        self._close_quietly(getattr(self, "error_log", None))
        self._close_quietly(mark_file)

    @property
    def name(self) -> str:
        """How threads, the Aeron client and the log name the archive, once :meth:`conclude` knows its id."""
        return f"archive archiveId={self.archive_id}"

    def summary(self) -> str:
        """Where it is and whom it serves, for one line of the log; once :meth:`conclude` knows it."""
        settings = self.settings
        network = f"{settings.control_channel} stream {settings.control_stream_id}"
        return (
            f"archive_dir={self._archive_dir} aeron_dir={self.aeron_dir} "
            f"control={network if settings.is_control_channel_enabled else 'local only'}"
        )

    def _conclude_objects(self, settings: ArchiveSettings) -> None:
        self.runner_idle_strategy = self.new_idle_strategy()
        self._authenticator = self._given_authenticator or create_authenticator(settings.authenticator)
        self._authorisation_service = self._given_authorisation_service or create_authorisation_service(
            settings.authorisation_service
        )
        given_id = self._given_process_id
        self._process_id = os.getpid() if given_id is None else given_id
        given_id = self._given_first_session_id
        if given_id is None:
            given_id = int.from_bytes(os.urandom(4), "little") & _SESSION_ID_MASK
        self._first_session_id = given_id

    def _conclude_archive_id(self, settings: ArchiveSettings) -> None:
        if settings.archive_id != -1:
            self.archive_id = settings.archive_id
        elif self._given_client is not None:
            self.archive_id = new_archive_id(self._given_client, is_given=True)
        else:
            # The mark file has the id, and the client's name has it as well: another client asks for it.
            asking = self._new_client("archive")
            try:
                self.archive_id = new_archive_id(asking, is_given=False)
            finally:
                asking.close()

    def _conclude_mark_file(self, settings: ArchiveSettings, page_size: int) -> None:
        self.mark_file = ArchiveMarkFile(
            f"{self._mark_file_dir}/{MARK_FILE_NAME}",
            storage=self._storage,
            clock=self.clock,
            process_id=self._process_id,
            archive_id=self.archive_id,
            control_stream_id=settings.control_stream_id,
            local_control_stream_id=settings.local_control_stream_id,
            events_stream_id=settings.recording_events_stream_id,
            control_channel=settings.control_channel,
            local_control_channel=settings.local_control_channel,
            events_channel=settings.recording_events_channel,
            aeron_dir=self.aeron_dir,
            error_buffer_length=settings.error_buffer_length,
            page_size=page_size,
            fallback=sys.stderr,
        )
        ensure_link_file(self._storage, self._archive_dir, self._mark_file_dir)

    def _conclude_error_handlers(self) -> None:
        self.error_log = DistinctErrorLog(self.mark_file, self.clock)
        self._logging_error_handler = LoggingErrorHandler(self.error_log, sys.stderr, source=self.name)
        self.error_handler = chain_error_handlers(self._logging_error_handler, self._user_error_handler, None)

    def _conclude_counters(self, settings: ArchiveSettings) -> None:
        limit_ns = self._client_liveness_timeout_ns() + _LIVENESS_MARGIN_NS
        idle_strategy = self.new_idle_strategy()
        await_former_archive(self.client, self.archive_id, self._heartbeat, idle_strategy, limit_ns)
        self.counters = ArchiveCounters(
            self.client,
            self.archive_id,
            threading_mode=settings.threading_mode,
            conductor_cycle_threshold_ns=settings.conductor_cycle_threshold_ns,
        )
        self.counted_error_handler = CountedErrorHandler(self.counters.error_counter, self.error_handler)

    def _client_liveness_timeout_ns(self) -> int:
        """For how long the driver keeps what a client had that is gone."""
        cnc_file = CncFile.open_ready(Path(self.aeron_dir)) if self.aeron_dir else None
        if cnc_file is None:
            return _CLIENT_LIVENESS_TIMEOUT_NS  # over another transport there is no driver's file
        try:
            timeout_ns: int = cnc_file.client_liveness_timeout_ns
            return timeout_ns
        finally:
            cnc_file.close()

    def _delete_recordings(self) -> None:
        """Delete every recording, and the catalog last: as long as it is there, the next start knows of the others.

        Upstream deletes the directory, with whatever else is in it, and before it has looked for a live owner.
        """
        names = self._storage.list_directory(self._archive_dir)
        for pattern in (_SEGMENTS, _CATALOGS):
            for name in names:
                if pattern.fullmatch(name):
                    self._storage.unlink(f"{self._archive_dir}/{name}")
                    self._heartbeat.beat()
            self._storage.force_directory(self._archive_dir)

    def _conclude_store(self, settings: ArchiveSettings) -> None:
        owner = self.mark_file.owner
        self.store = RecordingStore.open(
            self._storage,
            StoreSettings(
                archive_dir=self._archive_dir,
                segment_file_length=settings.segment_file_length,
                file_sync_level=settings.file_sync_level,
                catalog_file_sync_level=settings.catalog_file_sync_level,
                catalog_capacity=settings.catalog_capacity,
                low_storage_space_threshold=settings.low_storage_space_threshold,
                file_io_max_length=settings.file_io_max_length,
                record_checksum=_CHECKSUM_KINDS[checksum_of(settings.record_checksum)],
                replay_checksum=_CHECKSUM_KINDS[checksum_of(settings.replay_checksum)],
                torn_frame="cut" if settings.torn_frame == "cut" else "refuse",
            ),
            now_ms=owner[0],
            former_owner=self.mark_file.former_owner,
            owner=owner,
            write_owner=self._heartbeat.beat,  # the mark file names the owner, and the one before it until it is ready
            report_error=self.counted_error_handler,
            report_progress=self._heartbeat.beat,
        )
        self._report_recovered(self.store.recovered)

    def _report_recovered(self, recovered: list[Recovered]) -> None:
        for each in recovered[:_RECOVERED_SHOWN]:
            cut = f", a last frame of {each.torn_length} bytes was cut" if each.torn_length else ""
            if each.basis == "truncation":
                what = f"lost now what a truncation or a failure had left behind its stop position {each.stop_position}"
            else:
                what = f"had not ended: stop position {each.stop_position}, by {_BASES[each.basis]}{cut}"
            fields = {
                "source": self.name,
                "recording_id": each.recording_id,
                "stop_position": each.stop_position,
                "basis": each.basis,
                "torn_length": each.torn_length,
            }
            level = "warning" if cut else "info"
            text = "%s: recording %d %s"
            report(level, text, self.name, each.recording_id, what, event="recording_recovered", fields=fields)
        left_out = len(recovered) - _RECOVERED_SHOWN
        if left_out > 0:
            fields = {"source": self.name, "left_out": left_out}
            report(
                "info", "%s: and %d more recordings", self.name, left_out, event="recording_recovered", fields=fields
            )

    def _conclude_agent(self, settings: ArchiveSettings) -> None:
        self._conductor = self._new_conductor(settings)
        self.agent = ArchiveAgent(
            self._conductor,
            self._heartbeat,
            self.clock,
            self.counters.conductor_cycle,
            self.counted_error_handler,
            self._release_at_end,
        )

    def _new_conductor(self, settings: ArchiveSettings) -> Any:
        from container.archive.server.archive_conductor import ArchiveConductor

        return ArchiveConductor(
            self.client,
            self.store,
            settings,
            archive_id=self.archive_id,
            counters=self.counters,
            authenticator=self._authenticator,
            authorisation_service=self._authorisation_service,
            on_error=self.counted_error_handler,
            replay_linger_ns=settings.replay_linger_timeout_ns,
            first_session_id=self._first_session_id,
            next_token=self._next_token,
            cluster_stream_ids=self._cluster_stream_ids,
        )


def _check_number(name: str, given: object, most: int) -> None:
    if given is not None and (type(given) is not int or not 0 <= given <= most):
        raise ConfigurationError(f"{name}={shown(given)}: must be a whole number from 0 to {most}")


def _random_token() -> int:
    return int.from_bytes(os.urandom(8), "little", signed=True)
