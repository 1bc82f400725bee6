"""A forked child in a test: what it does is told to the parent, it never outlives the test, and is always reaped."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from container.errors import ForkedError
from tests.limits import LIMIT_S


class Child:
    """One child, from :meth:`fork` to the end of the ``with`` block, which it does not leave.

    In the child an exception that comes to the end of the block is told, as is what :meth:`tell` was given.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._gate_reader, self._gate_writer = os.pipe()
        self._is_child = False
        self._pid = 0
        self._exit_code: int | None = None

    def fork(self) -> bool:
        """Fork; True in the child."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            pid = os.fork()
        if pid == 0:
            self._is_child = True
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(LIMIT_S))
        else:
            self._pid = pid
        return self._is_child

    def tell(self, text: str) -> None:
        """In the child: what the parent gets from :meth:`outcome`."""
        os.write(self._writer, f"{text}\n".encode())

    def end(self, *lines: str) -> None:
        """In the child: tell the lines and end."""
        for line in lines:
            self.tell(line)
        os._exit(0)

    def await_gate(self) -> None:
        """In the child: wait until the parent opens the gate."""
        if not select.select([self._gate_reader], [], [], LIMIT_S)[0]:
            self.end("the gate was not opened")

    def open_gate(self) -> None:
        """Let the child continue."""
        os.write(self._gate_writer, b".")

    def outcome(self) -> tuple[int, list[str]]:
        """Wait for the child's end: its exit code (negative for a signal), and the lines that it told."""
        code = self._reap()
        os.set_blocking(self._reader, False)
        try:
            told = os.read(self._reader, 1 << 16)
        except BlockingIOError:
            told = b""
        return code, told.decode().splitlines()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around what a child comes back from: it ends with the block, and tells what it raised there."""
        try:
            yield
        except BaseException as error:
            if self._is_child:
                self.end(f"raised {error!r}")
            raise
        if self._is_child:
            self.end("came back")

    def kill(self, number: signal.Signals) -> None:
        """Send the child a signal."""
        os.kill(self._pid, number)

    def _reap(self) -> int:
        deadline = time.monotonic() + LIMIT_S
        while self._exit_code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._exit_code = -signal.SIGKILL
                raise TimeoutError(f"the child did not end within {LIMIT_S:g} s")
            else:
                threading.Event().wait(0.001)
        return self._exit_code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_child:
            if error is not None:
                self.tell("".join(traceback.format_exception(error)))
            os._exit(99 if error is not None else 0)
        if self._pid and self._exit_code is None:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()
        for descriptor in (self._reader, self._writer, self._gate_reader, self._gate_writer):
            os.close(descriptor)


def not_refused(attempts: Mapping[str, Callable[[], object]], owner_id: int) -> list[str]:
    """In a child: those of the calls that did not raise ForkedError with the owner's id, and what they did instead."""
    wrong = []
    for name, attempt in attempts.items():
        try:
            wrong.append(f"{name} returned {attempt()!r}")
        except ForkedError as error:
            text = (
                f"was made in process {owner_id} and cannot be used in its forked child, process {os.getpid()}. Make a"
            )
            if text not in str(error) or "spawn" not in str(error):
                wrong.append(f"{name}: {error}")
        except BaseException as error:
            wrong.append(f"{name} raised {error!r}")
    return wrong
