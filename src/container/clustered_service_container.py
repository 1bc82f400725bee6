"""Turns a context into a running agent: on a thread of its own, or driven by the caller; closes in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, Unpack

from container.api import ClusteredService
from container.common import forks
from container.common.loggers import report
from container.common.process_end import Stage, close_at_end
from container.common.threads import check_threads
from container.context import Context as _Context
from container.errors import AgentTermination, ConfigurationError, ContainerError, ForkedError, TimedOutError
from container.service.agent_runner import AgentRunner
from container.service.agent_thread import pin_to_cpu, set_timer_slack
from container.service.service_handler import ServiceHandler
from container.setting_types import ContainerArguments

_CLOSE_RETRY_TIMEOUT_S = 5.0


class ClusteredServiceContainer:
    """A service of a member of a cluster, beside the member's consensus module (upstream's class of this name).

    :meth:`launch` makes one. It runs until the consensus module terminates it, the driver goes away, or :meth:`close`.
    It is a context manager that closes at the end. A container restart is a restart of the whole node: the consensus
    module ends when one of its services goes away.
    """

    Context = _Context

    def __init__(self, context: _Context, *, on_end: Callable[[], object] | None = None) -> None:
        """Conclude the context and add the agent's streams; nothing runs yet. See :meth:`launch`.

        If that fails, everything is closed again and the mark file is free for the next start.
        """
        self._context = context
        self._on_end = on_end
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_started = False
        self._is_invoking = False
        self._is_closing = False
        self._is_ended = threading.Event()
        self._parent_id = 0
        forks.own(self)
        try:
            if not context.use_agent_invoker:
                check_threads("a container")
            context.is_starting = True
            context.conclude()
            self._runner_idle_strategy = context.new_idle_strategy()
            self._agent = AgentRunner(context.agent_context)
            context.is_starting = False
        except BaseException:
            context.abandon()
            raise

    def _disown(self, process_id: int) -> None:
        self._parent_id = process_id
        self._is_ended = threading.Event()  # a thread that no longer exists may hold the lock of the other
        self._is_ended.set()

    def _refusal(self, what: str) -> ForkedError:
        return forks.refusal(what, f"the container of service {self._context.service_name}", self._parent_id)

    @classmethod
    def launch(
        cls,
        service: ClusteredService | ServiceHandler | _Context | None = None,
        **settings: Unpack[ContainerArguments],
    ) -> Self:
        """Start a container and return it immediately; it then waits for the consensus module on its own thread.

        Args:
            service: the service, or a :class:`Context` with everything.
            settings: what :class:`Context` takes: settings (docs/settings.md) and objects. With
                ``use_agent_invoker=True`` there is no thread: call :meth:`invoke` again and again.

        Raises:
            ConfigurationError: a bad setting or service.
            MarkFileError: the mark file is held by a live owner, or cannot be written.
            DriverTimeoutError: there is no media driver.
            AeronError: the driver refuses a counter or one of the control streams.
            ContainerError: the system has no thread for the agent.
        """
        if isinstance(service, _Context):
            if settings:
                raise TypeError(f"give settings to the Context, not beside it: {', '.join(settings)}")
            context = service
        else:
            context = _Context(service, **settings)
        member = cls(context)
        member.start()
        return member

    @property
    def context(self) -> _Context:
        """The context that was concluded."""
        return self._context

    @property
    def is_running(self) -> bool:
        """True until the agent has ended and everything is closed; False in a forked child."""
        return not self._is_ended.is_set()

    @property
    def failure(self) -> BaseException | None:
        """What ended the agent, or None while it runs and when :meth:`close` did.

        A :class:`~container.errors.ClusterTermination` with ``is_expected`` is the orderly end that the consensus
        module asked for.
        """
        return self._failure

    def invoke(self) -> int:
        """Do one duty cycle on the caller's thread; the first call starts the service and waits for the consensus
        module.

        Errors go where they go on a thread of the agent's own; only what ends the program (KeyboardInterrupt) is
        raised.

        Return how much was done (idle when 0), and 0 once the agent has ended.
        Raise ContainerError for a container with a thread of its own, or from inside a callback, and ForkedError in a
        forked child.
        """
        if self._parent_id:
            raise self._refusal("invoke a container")
        if not self._context.use_agent_invoker:
            raise ContainerError("the agent runs on its own thread: launch with use_agent_invoker=True to invoke it")
        if not self.is_running:
            return 0
        if self._is_invoking:
            raise ContainerError("invoke() was called from inside a callback of the service")
        self._is_invoking = True
        try:
            return self._duty_cycle() if self._is_started else self._start_service()
        finally:
            self._is_invoking = False
            if self._is_closing:
                self._end()

    def _start_service(self) -> int:
        self._is_started = True
        try:
            self._agent.on_start()
        except BaseException as error:
            self._terminate(error)
            if not isinstance(error, Exception | AgentTermination):
                raise
        return 0

    def _duty_cycle(self) -> int:
        try:
            return self._agent.do_work()
        except AgentTermination as error:
            self._terminate(error)
            if error.__cause__ is not None and not isinstance(error.__cause__, Exception | AgentTermination):
                raise error.__cause__ from None
        except Exception as error:
            if self._parent_id:
                raise
            if isinstance(error, MemoryError):  # not even the end could be made
                self._terminate(error)
            else:
                self._context.counted_error_handler(error)
        return 0

    def _terminate(self, error: BaseException) -> None:
        self._failure = error
        if self._parent_id:
            raise error
        self._is_closing = True
        self._context.counted_error_handler(error)

    def close(self, timeout: float | None = None) -> None:
        """End the agent and wait until it has closed everything; may be called twice, and from any thread.

        A duty cycle in progress is finished; after 5 seconds the agent is interrupted, so that a service that idles
        ends, and again every 5 seconds. From inside a callback the end is only asked for. A container that is driven
        by :meth:`invoke` is closed on the thread that drives it. In a forked child nothing happens.

        Args:
            timeout: seconds to wait at most; None waits as long as a callback takes, saying so in the log.

        Raises:
            TimedOutError: the agent has not ended in time; it will when its callback returns.
        """
        if self._parent_id:
            return
        if self._thread is None:
            self._is_closing = True
            if not self._is_invoking:
                self._end()
            return
        self.ask_to_end()
        if not self.is_on_this_thread:
            self._join_thread(self._thread, timeout)

    def ask_to_end(self) -> None:
        """Have the agent's thread end after the duty cycle in progress, and do not wait for that. For any thread."""
        self._agent.stop()

    @property
    def is_on_this_thread(self) -> bool:
        """Whether the caller is on the agent's thread, in a callback."""
        return threading.current_thread() is self._thread

    def interrupt(self) -> None:
        """Have the next idling of a callback in progress raise AgentTermination, which ends the agent.

        For any thread.
        """
        self._agent.interrupt()

    def _join_thread(self, thread: threading.Thread, timeout: float | None) -> None:
        begin = time.monotonic()
        while True:
            elapsed = time.monotonic() - begin
            left = _CLOSE_RETRY_TIMEOUT_S if timeout is None else timeout - elapsed
            thread.join(max(0.0, min(_CLOSE_RETRY_TIMEOUT_S, left)))
            if not thread.is_alive():
                return
            self.interrupt()
            elapsed = time.monotonic() - begin
            what = f"agent {self._context.service_name} has not ended {elapsed:.0f} s after close(): a callback runs on"
            if timeout is not None and elapsed >= timeout:
                raise TimedOutError(what)
            report("warning", "%s", what)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the agent has ended; True when it has within ``timeout`` seconds (None: without a limit).

        Raise ForkedError in a forked child.
        """
        if self._parent_id:
            raise self._refusal("wait for the end of a container")
        return self._is_ended.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else f"ended: {self._failure!r}"
        if self._parent_id:
            state = f"of process {self._parent_id}"
        return f"<ClusteredServiceContainer {self._context.service_name} {state}>"

    def start(self) -> None:
        """Start the agent's thread, if it is to have one; :meth:`launch` has done so."""
        if self._context.use_agent_invoker:
            return
        self._thread = threading.Thread(target=self._run, name=self._context.service_name, daemon=True)
        close_at_end(self, Stage.AGENT)
        try:
            self._thread.start()
        except BaseException as error:
            self._thread = None
            self._end()
            if isinstance(error, RuntimeError):
                raise ContainerError(f"the agent's thread cannot be started: {error}") from error
            raise

    def _run(self) -> None:
        """The agent's thread."""
        try:
            self.prepare_thread()
            self._agent.run(self._runner_idle_strategy)
            self._failure = self._agent.termination
        except BaseException as error:
            self._failure = error
            what = self._context.bounded_text(error)
            report("critical", "agent %s was not closed in order: %s", self._context.service_name, what)
        finally:
            if self._parent_id:
                forks.end_child(self._failure or self._refusal("return from a callback"))
            self._ended()

    def prepare_thread(self) -> None:
        """Set processor and timer slack of the caller's thread, which is to run the agent, as the settings say.

        This concerns only how fast the agent is: an error goes to the error handler, and the service runs anyway.
        """
        settings = self._context.settings
        for value, prepare in ((settings.cpu_affinity, pin_to_cpu), (settings.timer_slack_ns, set_timer_slack)):
            if value is not None:
                try:
                    prepare(value)
                except (ConfigurationError, OSError) as error:
                    self._context.counted_error_handler(error)

    def _end(self) -> None:
        """Close an agent that has no thread."""
        if self.is_running:
            self._is_invoking = True  # a callback of the closing must not close or invoke again
            try:
                self._agent.on_close()
            finally:
                self._ended()

    def _ended(self) -> None:
        self._is_ended.set()
        if self._on_end is not None:
            self._on_end()
