"""Runs a container as a main program: waits for its end, and ends it in order on Ctrl-C and SIGTERM."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Self, Unpack

from container.api import ClusteredService
from container.cli.failures import EXPECTED, print_failure
from container.clustered_service_container import ClusteredServiceContainer
from container.common import forks
from container.common.error_texts import message_of, type_name
from container.common.line_printer import non_blocking_copy
from container.common.loggers import report
from container.context import Context
from container.errors import AgentTermination
from container.service.service_handler import ServiceHandler
from container.setting_types import ContainerArguments

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_masks: dict[int, set[Any]] = {}  # of threads that are about to fork


def _hold_signals() -> None:
    """A signal that comes to a child before it has its handlers back would be lost there."""
    if _End.is_catching:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_signals_go() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# Imported after forks, whose function is therefore called before this one in a child.
os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_go, after_in_child=_let_signals_go)


def run(
    service: ClusteredService | ServiceHandler | Context | None = None, **settings: Unpack[ContainerArguments]
) -> None:
    """Run a service until the consensus module ends it, or Ctrl-C or SIGTERM does. The whole of a main program.

    An end that was asked for returns: by the consensus module (shutdown, abort) or by a signal. Then ``on_terminate``
    has run, and the mark file is free for the next start. On another thread than the main one, signals are left alone.

    A crash (SIGBUS, SIGSEGV…) prints on standard error where it came: `faulthandler` is enabled, unless it is already.

    Args:
        service: the service, or a :class:`~container.context.Context` with everything.
        settings: what :class:`~container.context.Context` takes, but for ``use_agent_invoker``.

    Raises:
        SystemExit: with code 1 when the agent ended otherwise; the reason is in the log. When the container could not
            be made, with code 2 for a wrong setting or service, else 1; standard error says why in one line, and the
            exception's ``__cause__`` is what :meth:`ClusteredServiceContainer.launch` raises.
    """
    if isinstance(service, Context) and settings:
        raise TypeError(f"give settings to the Context, not beside it: {', '.join(settings)}")
    try:
        run_context(service if isinstance(service, Context) else Context(service, **settings))
    except EXPECTED as error:
        raise SystemExit(print_failure("container.run", error)) from error


def run_context(context: Context) -> None:
    """The same for a context, for a program that says itself why it could not start.

    Raises:
        SystemExit: with code 1 when the agent ended otherwise.
        ContainerError: the container could not be made; see :meth:`ClusteredServiceContainer.launch`.
    """
    if context.use_agent_invoker:
        raise TypeError("run() waits for a container with a thread of its own: leave out use_agent_invoker")
    _report_crashes()
    with _End(context) as end:
        try:
            member = ClusteredServiceContainer(context, on_end=lambda: end.tell(None))
        except KeyboardInterrupt:
            report("info", "interrupted while starting")
            return
        member.start()
        report("info", "%s: running until the consensus module ends it, Ctrl-C or SIGTERM", context.summary())
        caught = end.wait()
    # From here on a second signal has its usual effect, so that a callback which never returns can be got rid of.
    if caught is not None:
        report("info", "%s: closing %s", caught.name, context.service_name)
    member.close()
    _conclude(member, was_asked_for=caught is not None)


def _report_crashes() -> None:
    """Have a fatal signal, such as SIGBUS when the disk behind a log buffer is full, print where it came.

    A set-up of the user's stays. The descriptor is a copy: if the stream were closed later, its number could become
    another file's. A pipe that nobody reads must not keep a crash from ending the process.
    """
    if faulthandler.is_enabled() or sys.stderr is None:
        return
    try:
        descriptor = non_blocking_copy(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return
    faulthandler.enable(descriptor)


def _conclude(member: ClusteredServiceContainer, *, was_asked_for: bool) -> None:
    failure = member.failure
    if isinstance(failure, AgentTermination) and (was_asked_for or getattr(failure, "is_expected", False)):
        failure = None
    if failure is not None:
        context = member.context
        message = message_of(failure, is_shown=context.settings.record_error_messages)
        report("error", "%s: ended by %s: %s", context.service_name, type_name(failure).rpartition(".")[2], message)
        raise SystemExit(1)
    report("info", "%s: ended", member.context.service_name)


class _End:
    """Waits for the first reason to end; as a context manager it catches signals, which interrupt a start as well."""

    is_catching = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reasons: SimpleQueue[signal.Signals | None] = SimpleQueue()
        self._previous: dict[signal.Signals, Any] = {}

    def tell(self, reason: signal.Signals | None) -> None:
        """A signal came, or the agent has ended by itself (None). For any thread, and for a signal handler."""
        self._reasons.put(reason)

    def wait(self) -> signal.Signals | None:
        """The first reason, once there is one."""
        return self._reasons.get()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.tell(signal.Signals(number))
        if self._context.is_starting:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
            forks.own(self)
            _End.is_catching = True
        return self

    def _disown(self, _process_id: int) -> None:
        """In a forked child, which is to end by these signals as a child of any other program does."""
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
        _End.is_catching = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _End.is_catching = False
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
