"""The context of a container: settings, what a program passes in as objects, and what ``conclude()`` makes of both."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

from container.agent.context_base import ContextBase, check_flag, check_kind, object_or_setting
from container.api import ClusteredService
from container.common import interruptions
from container.common.aeron_defaults import fragment_limit
from container.common.callbacks import check_callable
from container.common.directories import await_directory
from container.common.error_texts import error_text, message_of
from container.common.loggers import print_notice
from container.common.object_path import create_object
from container.common.semantic_version import is_version_compatible
from container.common.values import shown
from container.error_handlers import (
    DelegatingErrorHandler,
    ErrorHandler,
    LoggingErrorHandler,
    chain_error_handlers,
    fallback_stream,
)
from container.errors import ConfigurationError
from container.files.cluster_mark_file import ClusterMarkFile, ensure_link_file, mark_file_name
from container.files.error_log import CountedErrorHandler, DistinctErrorLog
from container.service.agent_context import AgentContext
from container.service.given_service import check_given, service_at
from container.service.service_counters import ServiceCounters
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.setting_types import ContainerSettings
from container.settings.container_table import Settings, settings_table
from container.settings.sources import CONFIG_FILE_VARIABLE, Given, validate_settings
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock
from container.transport.duration_tracker import DurationTracker
from container.transport.idle_strategy import IdleStrategy, parse_idle_strategy
from container.transport.transport_seam import Client, MarkFile, SnapshotStore

_OBJECTS = (
    "service",
    "snapshot_store",
    "mark_file",
    "app_version_validator",
    "termination_hook",
    "use_agent_invoker",
)


class Context(ContextBase[Settings]):
    """The parts and settings of a container (upstream's ``ClusteredServiceContainer.Context``); for one container.

    Args:
        service: the service: a :class:`container.api.ClusteredService`, or a ``container.service.service_handler.
            ServiceHandler`` written in Cython. If None, the setting ``service_class_name`` names it.
        client: an open Aeron client of the caller's; it stays open. If None, the container connects one of its own,
            whose conductor runs on the agent's thread.
        clock: source of the time; the client's by default.
        storage: holds the mark file; the file system by default.
        idle_strategy: the setting of this name, or a function that makes a strategy at each call.
        snapshot_store: keeps snapshots; the archive by default.
        mark_file: a mark file of the caller's, which the container closes.
        error_handler: called with each error (BaseException) after it was recorded. An error that it raises is recorded
            as well, and ends nothing, not even SystemExit; to end the container, close it from another thread or raise
            in a callback of the service an :class:`~container.errors.AgentTermination`.
        delegating_error_handler: the setting of this name, or an object with ``next`` and ``on_error``.
        app_version_validator: ``validator(own_version, other_version) -> bool``; equal majors by default.
        termination_hook: called on the agent's thread when the agent terminates.
        use_agent_invoker: True when the caller drives the agent by the container's ``invoke()``.
        config_file: TOML file with settings.
        environ: the environment; the process's by default.
        settings: the settings of docs/settings.md, by name.

    Raises:
        ConfigurationError: unknown setting, or a config file that cannot be read. Values are checked by
            :meth:`conclude`.
    """

    kind = "container"

    # Made by conclude().
    service_name: str
    mark_file: MarkFile
    agent_context: AgentContext

    def __init__(
        self,
        service: ClusteredService | ServiceHandler | None = None,
        *,
        client: Client | None = None,
        clock: Clock | None = None,
        storage: Storage | None = None,
        idle_strategy: str | Callable[[], IdleStrategy] | None = None,
        snapshot_store: SnapshotStore | None = None,
        mark_file: MarkFile | None = None,
        error_handler: ErrorHandler | None = None,
        delegating_error_handler: str | DelegatingErrorHandler | None = None,
        app_version_validator: Callable[[int, int], bool] = is_version_compatible,
        termination_hook: Callable[[], object] | None = None,
        use_agent_invoker: bool = False,
        config_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        **settings: Unpack[ContainerSettings],
    ) -> None:
        for name, callback, parameters in (
            ("app_version_validator", app_version_validator, "own_version, other_version"),
            ("termination_hook", termination_hook, ""),
        ):
            if callback is not None:
                check_callable(f"{name}={shown(callback)}", callback, parameters)
        for name, given, kind in (
            ("snapshot_store", snapshot_store, SnapshotStore),
            ("mark_file", mark_file, MarkFile),
        ):
            check_kind(name, given, kind)
        self.service = service
        self._app_version_validator = app_version_validator
        self._termination_hook = termination_hook or _do_nothing
        self.use_agent_invoker = use_agent_invoker
        self._given_snapshot_store = snapshot_store
        self._given_mark_file = mark_file
        check_flag("use_agent_invoker", use_agent_invoker)
        keywords: dict[str, object] = {**settings}
        self._given_delegating_error_handler = object_or_setting(
            keywords,
            "delegating_error_handler",
            delegating_error_handler,
            lambda given, what: _check_delegating(what, given),
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
            table=settings_table(),
            config_file_variable=CONFIG_FILE_VARIABLE,
        )
        self._counters: ServiceCounters | None = None

    def _validate(self, given: Mapping[str, Given]) -> Settings:
        return validate_settings(given)

    @property
    def is_invoker(self) -> bool:
        """Whether the caller's thread drives the agent."""
        return self.use_agent_invoker

    @property
    def name(self) -> str:
        """How threads and the log name the container, once :meth:`conclude` knows it: the service's name."""
        return self.service_name

    @property
    def cluster_dir(self) -> Path:
        """The directory of the member's files by its canonical path, once :meth:`conclude` has made it."""
        return Path(self._cluster_dir)

    @property
    def mark_file_dir(self) -> Path:
        """The directory of the mark file by its canonical path, once :meth:`conclude` has made it."""
        return Path(self._mark_file_dir)

    def conclude(self) -> None:
        """Check every setting, take the mark file, connect the client and allocate the counters.

        In the order of upstream; after a failure call :meth:`abandon`.

        Raises:
            ConcurrentConcludeError: it was called before.
            ConfigurationError: a setting is out of range, with nothing opened yet; or there is no service.
            MarkFileError: the mark file cannot be taken;
                see :class:`~container.files.cluster_mark_file.ClusterMarkFile`.
            DriverTimeoutError: there is no media driver within the driver timeout.
            AeronError: the driver refuses a counter.
        """
        super().conclude()

    def _conclude(self, settings: Settings) -> None:
        self.service_name = settings.effective_service_name
        self._idle_strategy = self.new_idle_strategy()
        delegating = self._delegating_error_handler(settings)
        self._cluster_dir, self._mark_file_dir = self._directories("cluster_dir", settings.cluster_dir)
        self._find_aeron_dir()
        self._conclude_mark_file(settings)
        self._conclude_error_handlers(settings, delegating)
        self._conclude_client()
        self._conclude_counters(settings)
        self._conclude_agent_context(settings)
        self._write_mark_file(settings)
        if settings.print_configuration:
            source = {"source": self.service_name}
            print_notice(str(self), sys.stdout, level="info", event="configuration", fields=source)
        self.runner_idle_strategy = self.new_idle_strategy()

    def abandon(self) -> None:
        """Undo a start that failed: the mark file becomes free immediately, then everything is closed. Never raise."""
        self.is_starting = False
        mark_file = getattr(self, "mark_file", None)
        if isinstance(mark_file, ClusterMarkFile):
            mark_file.signal_failed_start()
        self.close()

    def close(self) -> None:
        """Close the client, if it is the container's own, or else what was added to it; then the error log and the mark
        file. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.owns_aeron_client:
            self._close_quietly(self.client)
        else:
            self._close_quietly(self._counters)
        self._close_quietly(getattr(self, "_logging_error_handler", None))
        self._close_quietly(getattr(self, "error_log", None))
        self._close_quietly(getattr(self, "mark_file", None))

    def bounded_text(self, error: BaseException) -> str:
        """Loggable text of an exception (see :func:`container.common.error_texts.error_text`). Never raises."""
        try:
            return error_text(error, has_message=self.settings.record_error_messages)
        except BaseException as unprintable:  # no memory, or a bad setting
            interruptions.keep(unprintable)
            return "an exception whose text could not be made"

    def wrap_idle_strategy(self, wrap: Callable[[IdleStrategy], IdleStrategy]) -> None:
        """Have each idle strategy that is made from now on be what ``wrap`` makes of it. Before the conclusion."""
        supplier = self._idle_strategy_supplier
        self._idle_strategy_supplier = lambda: wrap(
            parse_idle_strategy(self.settings.idle_strategy) if supplier is None else supplier()
        )

    def create_service(self) -> Any:
        """A service made from the class that the setting ``service_class_name`` names.

        Raises ConfigurationError when it is not set, or the class cannot be found or instantiated, or is not a service.
        """
        path = self.settings.service_class_name
        if path is None:
            raise ConfigurationError(
                "no service: pass an instance of a ClusteredService, or set service_class_name "
                "(AERON_CLUSTER_SERVICE_CLASS_NAME) to package.module:ServiceClass"
            )
        return service_at(path, "service_class_name")

    def check_directory(self) -> None:
        """Wait for ``cluster_dir``, which the node makes. Raises ConfigurationError, also for what is not a service,
        and ClusterError after ``driver_timeout_ms``."""
        self._concluded_service()  # a mistake is reported before the wait
        await_directory("cluster_dir", self.settings.cluster_dir, self.settings.driver_timeout_ms)

    def started_text(self) -> str:
        """The fields logged once it runs."""
        return f"{self.summary()}: running until the consensus module ends it, Ctrl-C or SIGTERM"

    def message_of(self, error: BaseException) -> str:
        """The message of an error, for the log; hidden where ``record_error_messages`` says so."""
        return message_of(error, is_shown=self.settings.record_error_messages)

    def summary(self) -> str:
        """One line for the log: which service of which cluster this is, and where; once :meth:`conclude` knows it."""
        return (
            f"{self.service_name}: cluster_id={self.settings.cluster_id} service_id={self.settings.service_id} "
            f"aeron_dir={self.aeron_dir} cluster_dir={self._cluster_dir}"
        )

    def __str__(self) -> str:
        found = {"service_name": self.settings.effective_service_name}
        if self.is_concluded:
            found |= {name: str(getattr(self, name, None)) for name in ("aeron_dir", "cluster_dir", "mark_file_dir")}
        lines = [f"    {name}={value!r}" for name, value in (vars(self.settings) | found).items()]
        return "\n".join(["ClusteredServiceContainer.Context", "{", *lines, "}"])

    def _conclude_mark_file(self, settings: Settings) -> None:
        if self._given_mark_file is not None:
            self.mark_file = self._given_mark_file
            return
        self.mark_file = ClusterMarkFile(
            Path(self._mark_file_dir, mark_file_name(settings.service_id)),
            error_buffer_length=settings.error_buffer_length,
            page_size=self._file_page_size(),
            clock=self.clock,
            storage=self._storage,
            fallback=fallback_stream(settings.fallback_logger),
        )
        ensure_link_file(self._storage, self._cluster_dir, self._mark_file_dir, settings.service_id)

    def _delegating_error_handler(self, settings: Settings) -> DelegatingErrorHandler | None:
        path = settings.delegating_error_handler
        if self._given_delegating_error_handler is not None or not path:
            return self._given_delegating_error_handler
        made: DelegatingErrorHandler = create_object(path, "delegating_error_handler")
        _check_delegating(f"delegating_error_handler={shown(path)}", made)
        return made

    def _conclude_error_handlers(self, settings: Settings, delegating: DelegatingErrorHandler | None) -> None:
        file = self.mark_file
        region = file if isinstance(file, ClusterMarkFile) else bytearray(settings.error_buffer_length)
        has_messages = settings.record_error_messages
        self.error_log = DistinctErrorLog(region, self.clock, has_messages=has_messages)
        fallback = fallback_stream(settings.fallback_logger)
        log = self._logging_error_handler = LoggingErrorHandler(
            self.error_log, fallback, has_messages=has_messages, source=self.service_name
        )
        try:
            self.error_handler = chain_error_handlers(log, self._user_error_handler, delegating)
        except Exception as error:  # of its next()
            raise ConfigurationError(f"delegating_error_handler: next() failed: {self.bounded_text(error)}") from error

    def _conclude_counters(self, settings: Settings) -> None:
        counters = self._counters = ServiceCounters(self.client, settings.cluster_id, settings.service_id)
        self.counted_error_handler = CountedErrorHandler(counters.add_error_counter(), self.error_handler)
        self._duty_cycle_tracker = DurationTracker(
            counters.add_max_cycle_time(),
            counters.add_cycle_time_exceeded(settings.cycle_threshold_ns),
            settings.cycle_threshold_ns,
        )
        self._snapshot_duration_tracker = DurationTracker(
            counters.add_max_snapshot_duration(),
            counters.add_snapshot_duration_exceeded(settings.snapshot_duration_threshold_ns),
            settings.snapshot_duration_threshold_ns,
        )

    def _snapshot_store(self, settings: Settings) -> SnapshotStore:
        if self._given_snapshot_store is not None:
            return self._given_snapshot_store
        from container.archive.client.archive_client_context import ArchiveClientContext
        from container.archive.client.archive_snapshot_store import ArchiveSnapshotStore

        archive_context = ArchiveClientContext.for_service(
            settings.cluster_id,
            settings.service_id,
            control_channel=settings.archive_control_channel,
            control_stream_id=settings.archive_control_stream_id,
            response_stream_id=settings.archive_response_stream_id,
            message_timeout_ns=settings.archive_message_timeout_ns,
            message_retry_attempts=settings.archive_message_retry_attempts,
            client_name=self.service_name,
        )
        return ArchiveSnapshotStore(
            self.client,
            archive_context,
            snapshot_channel=settings.snapshot_channel,
            snapshot_stream_id=settings.snapshot_stream_id,
            replay_channel=settings.replay_channel,
            replay_stream_id=settings.replay_stream_id,
            cluster_dir=self._cluster_dir,
        )

    def _concluded_service(self) -> Any:
        if self.service is None:
            self.service = self.create_service()
        check_given(self.service, "service")
        return self.service

    def _conclude_agent_context(self, settings: Settings) -> None:
        snapshot_store = self._snapshot_store(settings)
        service = self._concluded_service()
        self.agent_context = AgentContext(
            service_handler=service if isinstance(service, ServiceHandler) else PythonServiceHandler(service),
            client=self.client,
            clock=self.clock,
            idle_strategy=self._idle_strategy,
            mark_file=self.mark_file,
            snapshot_store=snapshot_store,
            duty_cycle_tracker=self._duty_cycle_tracker,
            snapshot_duration_tracker=self._snapshot_duration_tracker,
            on_error=self.counted_error_handler,
            record_event=self.error_log.record,
            service_name=self.service_name,
            log_fragment_limit=fragment_limit(settings.log_fragment_limit, self.use_agent_invoker),
            callback_error_policy=settings.callback_error_policy,
            cluster_id=settings.cluster_id,
            service_id=settings.service_id,
            control_channel=settings.control_channel,
            service_stream_id=settings.service_stream_id,
            consensus_module_stream_id=settings.consensus_module_stream_id,
            is_responding_service=settings.is_responding_service,
            app_version=settings.app_version,
            app_version_validator=self._app_version_validator,
            termination_hook=self._termination_hook,
            owns_client=self.owns_aeron_client,
            close=self.close,
            service_context=self,
        )

    def _write_mark_file(self, settings: Settings) -> None:
        if not isinstance(self.mark_file, ClusterMarkFile):
            return
        self.mark_file.write_header(
            archive_stream_id=settings.archive_control_stream_id,
            service_stream_id=settings.service_stream_id,
            consensus_module_stream_id=settings.consensus_module_stream_id,
            service_id=settings.service_id,
            cluster_id=settings.cluster_id,
            aeron_dir=self.aeron_dir,
            control_channel=settings.control_channel,
            service_name=self.service_name,
        )
        self.mark_file.signal_ready()


def _check_delegating(what: str, handler: Any) -> None:
    """Refuse what cannot be a :class:`~container.error_handlers.DelegatingErrorHandler`."""
    if isinstance(handler, type):
        raise ConfigurationError(f"{what}: must be an instance, not the class {handler.__name__}")
    for name, parameter in (("next", "error_handler"), ("on_error", "error")):
        method = getattr(handler, name, None)
        if not callable(method):
            raise ConfigurationError(f"{what}: must have {name}()")
        check_callable(f"{what}: its {name}()", method, parameter)


def _do_nothing() -> None:
    """The termination hook of a context that has none."""
