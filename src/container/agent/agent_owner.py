"""The owner of an agent: runs it on a thread of its own or lets the caller drive it, and closes it in order.

Archive, consensus module, service container and node are such owners, for the program that launches one.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from container.agent.agent import Agent
from container.common import forks
from container.common.error_texts import type_name
from container.common.log_events import log_closing, log_ended, log_started
from container.common.loggers import report
from container.common.main_program import Ending, report_crashes
from container.common.process_end import Stage, close_at_end
from container.common.threads import check_threads
from container.common.values import shown
from container.errors import AgentTermination, ConfigurationError, ContainerError, ForkedError, TimedOutError
from container.transport.idle_strategy import IdleStrategy

_INTERRUPTION_INTERVAL_S = 5.0


class Context(Protocol):
    """The context from which an owner makes its agent, and which it asks about it."""

    is_starting: bool

    @property
    def runner_idle_strategy(self) -> IdleStrategy:
        """How the agent's thread idles."""

    @property
    def counted_error_handler(self) -> Callable[[BaseException], object]:
        """The handler of errors that end nothing."""

    @property
    def is_invoker(self) -> bool:
        """Whether the caller's thread drives the agent."""

    @property
    def name(self) -> str:
        """How threads and the log name it, once it is concluded."""

    def conclude(self) -> None:
        """Check everything, and open what the agent needs; once."""

    def abandon(self) -> None:
        """Undo a start that failed. Never raise."""

    def bounded_text(self, error: BaseException) -> str:
        """The part of an exception's text that may be logged."""


class AgentOwner[AgentType: Agent, ContextType: Context](ABC):
    """Owns the agent of a context. It is a context manager that closes at the end."""

    kind: ClassVar[str]
    """The kind of agent as texts name it, such as "archive"."""

    Context: ClassVar[Any]
    """The class of its contexts."""

    @classmethod
    def _launch(cls, context: ContextType | None, settings: Mapping[str, Any]) -> Self:
        """Make one of a context, or of settings, and start it."""
        name = cls.Context.__name__
        if context is None:
            context = cls.Context(**settings)
        elif not isinstance(context, cls.Context):
            raise ConfigurationError(f"context={shown(context)}: must be {_with_article(name)}; give settings by name")
        elif settings:
            raise TypeError(f"give settings to the {name}, not beside it: {', '.join(settings)}")
        owner = cls(context)
        owner.start()
        return owner

    def __init__(self, context: ContextType, *, on_end: Callable[[], object] | None = None) -> None:
        """Conclude the context and subscribe to requests; nothing runs yet. See :meth:`launch`.

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
        self._claim = threading.Lock()  # whoever gets it runs or closes the agent; nobody waits for it
        self._parent_id = 0
        forks.own(self)
        try:
            if not context.is_invoker:
                check_threads(_with_article(self.kind))
            context.is_starting = True
            context.conclude()
            self._agent = self._begin_agent(context)
            context.is_starting = False
        except BaseException:
            context.abandon()
            raise

    @abstractmethod
    def _begin_agent(self, context: ContextType) -> AgentType:
        """Make the agent, and have it add what others may look for once :meth:`launch` has returned."""

    def _disown(self, process_id: int) -> None:
        self._parent_id = process_id
        self._is_ended = threading.Event()  # a thread that no longer exists may hold the lock of the other
        self._is_ended.set()

    def _refusal(self, what: str) -> ForkedError:
        return forks.refusal(what, f"the {self._name}", self._parent_id)

    @property
    def _name(self) -> str:
        return self._context.name

    @property
    def context(self) -> ContextType:
        """The context that was concluded."""
        return self._context

    @property
    def is_running(self) -> bool:
        """True until it has ended and everything is closed; False in a forked child."""
        return not self._is_ended.is_set()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended it, or None while it runs and after :meth:`close`.

        An :class:`~container.errors.AgentTermination` where the driver or the directory was lost.
        """
        return self._failure

    def invoke(self) -> int:
        """Do one duty cycle on the caller's thread, and return how much was done: idle when 0, and 0 once it has ended.

        The first one of a container starts the service, which waits for the consensus module. Errors are counted and
        recorded; only what ends the program (KeyboardInterrupt) is raised. The mark file of an archive or a consensus
        module counts as a dead owner's when nobody has invoked for 10 seconds.

        Raise ContainerError for one with a thread of its own, or from inside a callback, and ForkedError in a
        forked child.
        """
        if self._parent_id:
            raise self._refusal(f"invoke the {self.kind}")
        if not self._context.is_invoker:
            raise ContainerError(f"the {self.kind} has its own thread: launch with use_agent_invoker=True to invoke it")
        if not self.is_running:
            return 0
        if self._is_invoking or self._agent.is_busy:
            raise ContainerError(f"invoke() was called from inside a callback of the {self.kind}")
        self._is_invoking = True
        try:
            return self._duty_cycle()
        finally:
            self._is_invoking = False
            if self._is_closing:
                self._end()

    def _duty_cycle(self) -> int:
        is_starting = not self._is_started
        try:
            if is_starting:
                self._is_started = True
                self._agent.on_start()
            return self._agent.do_work()
        except BaseException as error:
            self._on_error_of_turn(error, is_starting)
        return 0

    def _on_error_of_turn(self, error: BaseException, is_starting: bool) -> None:
        if self._parent_id:
            self._failure = error
            raise error
        if is_starting or isinstance(error, AgentTermination | MemoryError):  # without memory there is no end
            self._terminate(error)
        elif isinstance(error, Exception):
            self._context.counted_error_handler(error)
        cause = error.__cause__ if isinstance(error, AgentTermination) else error
        if cause is not None and not isinstance(cause, Exception | AgentTermination):
            raise cause from None

    @property
    def agent(self) -> AgentType:
        """Its agent: what runs many takes the turns of each without :meth:`invoke`, and then calls :meth:`end_turn`."""
        return self._agent

    def end_turn(self, error: BaseException | None) -> None:
        """Do what :meth:`invoke` does after a turn of the agent: what that has raised is handled, and an end is made.

        Raise as it does.
        """
        self._is_invoking = True  # a handler of the error must not invoke again, and its close() ends it behind it
        try:
            if error is not None:
                self._on_error_of_turn(error, is_starting=False)
        finally:
            self._is_invoking = False
            if self._is_closing:
                self._end()

    def _terminate(self, error: BaseException) -> None:
        self._failure = error
        self._is_closing = True
        self._agent.terminate(error)

    def is_orderly(self, failure: BaseException, *, was_asked_for: bool) -> bool:
        """Whether an end by that failure is one in order for a program that runs it alone."""
        return bool(getattr(failure, "is_expected", False))

    def close(self, timeout: float | None = None) -> None:
        """Have it end in order, and wait until everything is closed. For any thread, also twice.

        A duty cycle in progress is finished. After 5 seconds, and every 5 seconds from then on, a service that idles in
        a callback is interrupted. From inside a callback the end is only asked for. One that is driven by
        :meth:`invoke` is closed on the thread that drives it. In a forked child nothing happens.

        Args:
            timeout: seconds to wait at most; None waits as long as disk and callbacks take, saying so in the log.

        Raises:
            TimedOutError: it has not ended in time; it will when its disk or its callback lets it.
        """
        if self._parent_id:
            return
        if self._thread is None:
            self._is_closing = True
            if self._agent.is_busy:
                self._agent.ask_for_end()
            elif not self._is_invoking:
                self._end()
            return
        self.ask_to_end()
        if not self.is_on_this_thread:
            self._join_thread(self._thread, timeout)

    def ask_to_end(self) -> None:
        """Have its thread end after the duty cycle in progress, and do not wait for that. For any thread."""
        self._agent.stop()

    @property
    def is_on_this_thread(self) -> bool:
        """Whether the caller is on its thread, in a callback."""
        return threading.current_thread() is self._thread

    def interrupt(self) -> None:
        """Have the next idling of a callback in progress raise AgentTermination, which ends the agent. For any
        thread."""
        self._agent.interrupt()

    def _join_thread(self, thread: threading.Thread, timeout: float | None) -> None:
        begin = time.monotonic()
        interruption = begin + _INTERRUPTION_INTERVAL_S
        while True:
            now = time.monotonic()
            left = interruption - now if timeout is None else min(interruption - now, begin + timeout - now)
            thread.join(max(0.0, left))
            if not thread.is_alive():
                return
            now = time.monotonic()
            what = f"{self._name} has not ended {now - begin:.0f} s after close(): a callback or its disk keeps it"
            if now >= interruption:
                report("warning", "%s", what)
                self.interrupt()
                interruption = now + _INTERRUPTION_INTERVAL_S
            if timeout is not None and now >= begin + timeout:
                raise TimedOutError(what)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; True when it has within ``timeout`` seconds (None: without a limit).

        One that is driven by :meth:`invoke` does not end while the thread that drives it waits here.

        Raise ContainerError from inside a callback on its thread without a limit, and ForkedError in a forked child.
        """
        if self._parent_id:
            raise self._refusal(f"wait for the end of the {self.kind}")
        if timeout is None and self.is_on_this_thread:
            raise ContainerError(f"join() was called from inside a callback of the {self.kind}, which ends behind it")
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
        return f"<{type(self).__name__} {self._name} {state}>"

    def start(self) -> None:
        """Start its thread, if it is to have one; :meth:`launch` has done so.

        Raise ContainerError when the system has none; everything is closed then.
        """
        if self._context.is_invoker:
            return
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        close_at_end(self, Stage.AGENT)
        try:
            self._thread.start()
        except BaseException as error:
            if self._claim.acquire(blocking=False):
                self._thread = None
                self._end()
            else:
                self.close()  # Ctrl-C: the thread is there, and closes what it uses
            if isinstance(error, RuntimeError):
                raise ContainerError(f"the thread of the {self.kind} cannot be started: {error}") from error
            raise

    def _run(self) -> None:
        """Its thread."""
        if not self._claim.acquire(blocking=False):
            return  # Its start was interrupted, and everything is closed.
        try:
            self.prepare_thread()
            self._agent.run(self._context.runner_idle_strategy)
            self._failure = self._agent.termination
        except BaseException as error:
            self._failure = error
            report("critical", "%s was not closed cleanly: %s", self._name, self._context.bounded_text(error))
        finally:
            if self._parent_id:
                forks.end_child(self._failure or self._refusal("return from a callback"))
            self._ended()

    def prepare_thread(self) -> None:
        """Set what the settings say of the caller's thread, which is to run the agent."""

    def _end(self) -> None:
        """Close one that has no thread."""
        if self.is_running:
            self._is_invoking = True  # a callback of the closing must not close or invoke again
            try:
                self._agent.close()
            finally:
                self._failure = self._failure or self._agent.termination
                self._ended()

    def _ended(self) -> None:
        self._is_ended.set()
        if self._on_end is not None:
            self._on_end()


def run_until_ended(make: type[AgentOwner[Any, Any]], context: Any) -> None:
    """Run what a context is of until it is asked to end by Ctrl-C or SIGTERM: the whole of a main program.

    An end that was asked for returns: then everything is closed in order, and the mark file is free for the next start.

    Args:
        make: the class that owns the agent of the context.
        context: not concluded yet.

    Raises:
        SystemExit: with code 1 when it ended otherwise; the reason is in the log.
        ContainerError: it could not be made; see ``launch()`` of the class.
        OSError: likewise.
    """
    if context.is_invoker:
        raise ConfigurationError(
            f"the caller is to drive it: this waits for {_with_article(make.kind)} with a thread of its own: leave out "
            "use_agent_invoker=True and threading_mode=INVOKER"
        )
    context.check_directory()
    report_crashes()
    with Ending(context) as end:
        try:
            owner = make(context, on_end=lambda: end.tell(None))
        except KeyboardInterrupt:
            report("info", "interrupted while starting")
            return
        owner.start()
        log_started(context.name, context.started_text())
        caught = end.wait()
    # From here on a second signal has its usual effect, so that a disk or a callback that never ends can be got rid of.
    was_asked_for = caught is not None
    if caught is not None:
        log_closing(context.name, caught.name)
    owner.close()
    failure = owner.failure
    if failure is None or owner.is_orderly(failure, was_asked_for=was_asked_for):
        log_ended(context.name, was_asked_for=was_asked_for)
        return
    found = type_name(failure).rpartition(".")[2], context.message_of(failure)
    log_ended(context.name, was_asked_for=was_asked_for, failure=found)
    raise SystemExit(1)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"
