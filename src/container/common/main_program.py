"""The frame around a main program's work: the first reason to end it, signals among them, and the place of a crash."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from container.common import forks
from container.common.line_printer import non_blocking_copy

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ROUND_S = 0.5

_masks: dict[int, set[Any]] = {}  # of threads that are about to fork


def _hold_signals() -> None:
    """A signal that comes to a child before it has its handlers back would be lost there."""
    if Ending.is_catching:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_signals_go() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# Imported after forks, whose function is therefore called before this one in a child.
os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_go, after_in_child=_let_signals_go)


def _is_ignored(number: signal.Signals) -> bool:
    """Whether the program was started to ignore the signal, as ``nohup`` does for SIGHUP."""
    return signal.getsignal(number) is signal.SIG_IGN


class Starting(Protocol):
    """A part under construction, which a signal may interrupt."""

    is_starting: bool
    """True while whoever catches a signal may raise."""


def report_crashes() -> None:
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


class Ending:
    """Waits for the first reason to end; as a context manager it catches signals, which interrupt a start as well."""

    is_catching = False

    def __init__(self, starting: Starting) -> None:
        self._starting = starting
        self._reasons: SimpleQueue[signal.Signals | None] = SimpleQueue()
        self._previous: dict[signal.Signals, Any] = {}

    def tell(self, reason: signal.Signals | None) -> None:
        """A signal came, or the agent has ended by itself (None). For any thread, and for a signal handler."""
        self._reasons.put(reason)

    def wait(self) -> signal.Signals | None:
        """The first reason, once there is one.

        A signal that comes just as this thread falls asleep, or to another thread, does not wake it: its handler runs
        at the end of a round.
        """
        while True:
            with contextlib.suppress(Empty):
                return self._reasons.get(timeout=_ROUND_S)

    def wait_for(self, seconds: float) -> signal.Signals | None:
        """The first reason that comes within ``seconds``; None when none does, or an end without a signal."""
        with contextlib.suppress(Empty):
            return self._reasons.get(timeout=seconds)
        return None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.tell(signal.Signals(number))
        if self._starting.is_starting:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            caught = [each for each in _SIGNALS if each != signal.SIGHUP or not _is_ignored(each)]
            self._previous = {number: signal.signal(number, self._on_signal) for number in caught}
            forks.own(self)
            Ending.is_catching = True
        return self

    def _disown(self, _process_id: int) -> None:
        """In a forked child, which is to end by these signals as a child of any other program does."""
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
        Ending.is_catching = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        Ending.is_catching = False
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
