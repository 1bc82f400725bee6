"""The base of all contexts: the objects and settings passed in, the driver, idle strategies, errors, the end.

Time, files and the Aeron client can be given: so a simulation makes the same agents as a main program.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Protocol

from container.common.callbacks import check_callable
from container.common.error_texts import error_text, message_of
from container.common.loggers import report
from container.common.values import shown
from container.error_handlers import ErrorHandler
from container.errors import ConcurrentConcludeError, ConfigurationError
from container.files.error_log import CountedErrorHandler, DistinctErrorLog
from container.settings.setting import Setting
from container.settings.sources import Given, collect_settings
from container.storage.directories import concluded_directory
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import Storage
from container.transport.clocks import Clock, SystemClock
from container.transport.idle_strategy import IdleStrategy, parse_idle_strategy
from container.transport.transport_seam import Client

OBJECTS = ("client", "clock", "storage", "error_handler", "config_file", "environ")
"""The arguments that every context takes besides settings."""

_FILE_PAGE_SIZE_DEFAULT = 4096
_NS_PER_MS = 1_000_000


class CommonSettings(Protocol):
    """The settings that every context has."""

    @property
    def aeron_dir(self) -> str | None:
        """The driver's directory; None: the default."""

    @property
    def aeron_library(self) -> str | None:
        """The file of Aeron's C library; None: where it usually is."""

    @property
    def driver_timeout_ms(self) -> int:
        """How long the driver is waited for."""

    @property
    def idle_strategy(self) -> str:
        """The name of one, with its arguments."""

    @property
    def mark_file_dir(self) -> str | None:
        """Where the mark file is; None: in the directory that it marks."""


class ContextBase[SettingsType: CommonSettings](ABC):
    """A context, for one agent: :meth:`conclude` checks everything and opens what the agent needs."""

    kind: ClassVar[str]
    """The kind of part it configures as texts name it, such as "archive"."""

    # Made by conclude().
    aeron_dir: str
    clock: Clock
    client: Client
    error_log: DistinctErrorLog
    error_handler: ErrorHandler
    counted_error_handler: CountedErrorHandler
    runner_idle_strategy: IdleStrategy

    def __init__(
        self,
        settings: dict[str, object],
        *,
        client: Client | None,
        clock: Clock | None,
        storage: Storage | None,
        idle_strategy: str | Callable[[], IdleStrategy] | None,
        error_handler: ErrorHandler | None,
        config_file: str | os.PathLike[str] | None,
        environ: Mapping[str, str] | None,
        objects: Collection[str],
        table: Mapping[str, Setting],
        config_file_variable: str,
    ) -> None:
        """Take what :class:`~container.context.Context` describes; ``objects`` are the names of the subclass's own."""
        for name, given, kind in (("client", client, Client), ("clock", clock, Clock), ("storage", storage, Storage)):
            check_kind(name, given, kind)
        if error_handler is not None:
            check_callable(f"error_handler={shown(error_handler)}", error_handler, "error")
        self.is_starting = False
        """True while an agent is being made from it, when whoever catches a signal may still raise."""
        self.owns_aeron_client = False
        self._given_client = client
        self._given_clock = clock
        self._storage = FileStorage() if storage is None else storage
        self._user_error_handler = error_handler
        self._idle_strategy_supplier: Callable[[], IdleStrategy] | None = None
        if callable(idle_strategy):
            self._idle_strategy_supplier = idle_strategy
        elif isinstance(idle_strategy, IdleStrategy):
            raise ConfigurationError(
                f"idle_strategy={shown(idle_strategy)}: give its text, or a function that makes one at each call"
            )
        else:
            settings["idle_strategy"] = idle_strategy
        self._given_settings = collect_settings(
            settings,
            config_file=config_file,
            environ=environ,
            objects=(*OBJECTS, *objects),
            table=table,
            config_file_variable=config_file_variable,
        )
        self._settings: SettingsType | None = None
        self._conclude_guard = threading.Lock()  # held from conclude() on; nobody waits for it
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "concluded" if self.is_concluded else "not concluded"
        return f"<{type(self).__name__} of {self.kind}: {state}>"

    # For a subclass.

    @abstractmethod
    def _validate(self, given: Mapping[str, Given]) -> SettingsType: ...

    @abstractmethod
    def _conclude(self, settings: SettingsType) -> None: ...

    @property
    @abstractmethod
    def name(self) -> str:
        """How threads, the Aeron client and the log name it, once :meth:`conclude` knows it."""

    @abstractmethod
    def check_directory(self) -> None:
        """Raise ConfigurationError or ClusterError unless its directory is there: a program begins none by mistake."""

    @abstractmethod
    def summary(self) -> str:
        """Where it is, for one line of the log; once :meth:`conclude` knows it."""

    # For everybody.

    def started_text(self) -> str:
        """The line logged once it runs."""
        return f"{self.name} is ready: {self.summary()}"

    def message_of(self, error: BaseException) -> str:
        """The message of an error, for the log."""
        return message_of(error)

    @property
    def settings(self) -> SettingsType:
        """The validated settings. Raises ConfigurationError as :meth:`conclude` does."""
        if self._settings is None:
            self._settings = self._validate(self._given_settings)
        return self._settings

    @property
    def is_concluded(self) -> bool:
        """True once :meth:`conclude` was called."""
        return self._conclude_guard.locked()

    @property
    def is_closed(self) -> bool:
        """True once everything was released, at the end of the agent or of a start that failed."""
        return self._is_closed

    def conclude(self) -> None:
        """Check every setting, take the mark file, and open or make all that the agent needs.

        After a failure call :meth:`abandon`. The class says what it raises beside ConfigurationError, and
        ConcurrentConcludeError when it was called before.
        """
        if not self._conclude_guard.acquire(blocking=False):
            raise ConcurrentConcludeError(f"a context can be concluded once; make a new one for each {self.kind}")
        settings = self.settings
        given = self._given_client
        self.clock = self._given_clock or (given.clock if given is not None else SystemClock())
        self._conclude(settings)

    def new_idle_strategy(self) -> IdleStrategy:
        """A new instance of the configured idle strategy: callbacks and the agent's thread must not share one."""
        if self._idle_strategy_supplier is not None:
            strategy = self._idle_strategy_supplier()
            if not isinstance(strategy, IdleStrategy):
                raise ConfigurationError(f"idle_strategy made {shown(strategy)}: it must make an IdleStrategy")
            if any("idle" in vars(kind) for kind in type(strategy).__mro__):
                raise ConfigurationError(
                    f"idle_strategy made {shown(strategy)}: its idle() is in Python, and only one in Cython is called"
                )
            return strategy
        return parse_idle_strategy(self.settings.idle_strategy)

    def bounded_text(self, error: BaseException) -> str:
        """The part of an exception's text that may be logged (see :func:`container.common.error_texts.error_text`).
        Never raises."""
        return error_text(error, has_message=True)

    def _directories(self, name: str, directory: str | None) -> tuple[str, str]:
        """Make the directory of that setting, and the one of the mark file; return both by their canonical paths."""
        made = mark_file_dir = concluded_directory(self._storage, name, directory)
        if self.settings.mark_file_dir:
            mark_file_dir = concluded_directory(self._storage, "mark_file_dir", self.settings.mark_file_dir)
        return made, mark_file_dir

    def _find_aeron_dir(self) -> None:
        given = self._given_client
        found = getattr(given, "aeron_dir", None) or self.settings.aeron_dir
        if given is None:
            from container.aeron import default_aeron_dir, load_library

            load_library(self.settings.aeron_library)
            found = found or default_aeron_dir()
        self.aeron_dir = found or ""

    def _file_page_size(self) -> int:
        """Wait for the driver, and return its file page size (bytes).

        Before the mark file is claimed: nobody keeps that live meanwhile, and a start that is killed would leave it.
        """
        if self._given_client is not None and not hasattr(self._given_client, "aeron_dir"):
            return _FILE_PAGE_SIZE_DEFAULT  # over another transport there is no driver's file to tell
        from container.aeron.media_driver import read_cnc_file_page_size, wait_for_driver

        timeout_ns = self.settings.driver_timeout_ms * _NS_PER_MS
        wait_for_driver(self.aeron_dir, timeout_ns)
        return read_cnc_file_page_size(self.aeron_dir, timeout_ns)

    def _conclude_client(self) -> None:
        if self._given_client is not None:
            self.client = self._given_client
            return
        self.client = self._new_client(self.name)
        self.owns_aeron_client = True

    def _new_client(self, name: str) -> Client:
        from container.aeron import AeronClient

        return AeronClient(
            aeron_dir=self.aeron_dir,
            client_name=name,
            use_invoker=True,
            driver_timeout_ms=self.settings.driver_timeout_ms,
            error_handler=self._on_error,
            library=self.settings.aeron_library,
        )

    def _on_error(self, error: BaseException) -> None:
        """Hand an error on: it is counted once there is a counter, and recorded once there is an error log."""
        handler = getattr(self, "counted_error_handler", None) or getattr(self, "error_handler", None)
        if handler is not None:
            handler(error)
        else:
            report("error", "%s", self.bounded_text(error))

    def _close_quietly(self, resource: Any) -> None:
        if resource is not None:
            self._quietly(resource.close)

    def _quietly(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            what = getattr(call, "__qualname__", "a call")
            report("warning", "%s: %s failed: %s", self.kind, what, self.bounded_text(error))


def check_kind(name: str, given: object, kind: type) -> None:
    """Raise ConfigurationError for an object that is given and of another type."""
    if given is not None and not issubclass(type(given), kind):
        raise ConfigurationError(f"{name}={shown(given)}: must be a {kind.__name__} of {kind.__module__}")


def check_flag(name: str, given: object) -> None:
    """Raise ConfigurationError for what is neither True nor False."""
    if not isinstance(given, bool):
        raise ConfigurationError(f"{name}={shown(given)}: must be True or False")


def object_or_setting[T](
    settings: dict[str, object], name: str, given: str | T | None, check: Callable[[object, str], object]
) -> T | None:
    """The object passed in place of the setting of that name, once ``check`` accepts it; a string is the setting
    itself."""
    if given is None or isinstance(given, str):
        settings[name] = given
        return None
    check(given, f"{name}={shown(given)}")
    return given
