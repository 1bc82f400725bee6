"""The chain through which a container's errors go: [delegating handler →] error log → user's handler.

Nothing here raises, whatever the error, a handler or a stream does: an error that left the chain would end the agent
past its orderly close.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from container.common import interruptions
from container.common.error_texts import (
    LINE_LENGTH_MAX,
    category_of,
    error_text,
    facts_on,
    has_stack,
    is_plain_end,
    kind_of,
    line_of,
    message_of,
    remark_on,
    stack_text,
    type_name,
)
from container.common.loggers import handle, print_notice
from container.common.values import counted
from container.errors import AgentTermination, Category, Event
from container.files.error_log import DistinctErrorLog

type ErrorHandler = Callable[[BaseException], object]

_BURST_LENGTH = 64 * 1024
_LENGTH_PER_S = 8 * 1024
_LENGTH_MIN = 256
_LINES_BURST_LENGTH = 56 * 1024
_LINES_LENGTH_PER_S = 4 * 1024
_KINDS_MAX = 1_000
_NS_PER_S = 1_000_000_000
_LEVELS = {Category.WARN: logging.WARNING, Category.ERROR: logging.ERROR, Category.FATAL: logging.CRITICAL}


class DelegatingErrorHandler(Protocol):
    """Gets each error first, and decides whether the error log and the user's handler get it as well."""

    def next(self, error_handler: ErrorHandler) -> None:
        """Called once, with the handler to which errors may be handed on."""

    def on_error(self, error: BaseException) -> None:
        """An error occurred, on the agent's thread."""


def fallback_stream(name: str) -> TextIO | None:
    """The stream that the setting ``fallback_logger`` names: ``stderr``, ``stdout``, or None for ``no_op``."""
    return {"stderr": sys.stderr, "stdout": sys.stdout}.get(name)


class Throttle:
    """Lets through 64 KiB of text, then 8 KiB per second, and counts what it does not let through.

    A text is let through while there is room, and may take more than that: the next ones wait the longer. For one
    thread at a time; two that meet may let through one text too many.

    Args:
        nano_time: a monotonic clock, in nanoseconds.
        burst_length: characters that are let through at once.
        length_per_s: characters that are let through per second from then on.
    """

    def __init__(
        self,
        nano_time: Callable[[], int] = time.monotonic_ns,
        *,
        burst_length: int = _BURST_LENGTH,
        length_per_s: int = _LENGTH_PER_S,
    ) -> None:
        self.left_out_count = 0
        self._nano_time = nano_time
        self._burst_length = self._room = burst_length
        self._length_per_s = length_per_s
        self._filled_ns = nano_time()

    def is_open(self) -> bool:
        """Whether a text may be written now."""
        now_ns = self._nano_time()
        gained = (now_ns - self._filled_ns) * self._length_per_s // _NS_PER_S
        if gained > 0:
            self._room = min(self._burst_length, self._room + gained)
            self._filled_ns = now_ns
        return self._room > 0

    def has_room(self) -> bool:
        """Whether a text may be written now; otherwise it counts as left out."""
        if self.is_open():
            return True
        self.left_out_count += 1
        return False

    def take(self, length: int, least: int = _LENGTH_MIN) -> None:
        """A text of this length (characters), which counts as ``least`` at least, is going to be written."""
        self._room -= max(least, length)

    def take_left_out(self) -> int:
        """How many were not let through since the last call."""
        count, self.left_out_count = self.left_out_count, 0
        return count


class LoggingErrorHandler:
    """Records each error in the error log and reports to Python's logging the first, tenth, hundredth… observation.

    When the error log does not take an error, its text goes to the fallback stream. Both ways are bounded, see
    :class:`Throttle`; how many errors were left out is said once there is room again, and by :meth:`close`.

    A flood of errors must not hide the first one of another kind, by type and by the line that raised it. Without
    room for its text it gets a line, from room that the first ones of kinds have for themselves: 573 lines, then
    40 per second. Clients cannot use that up, as code alone makes kinds.

    Args:
        error_log: where errors are recorded.
        fallback: where they go for which it has no room, or None.
        has_messages: False leaves the messages of exceptions out.
        source: of whom the errors are, for programs that read the log.
        nano_time: a monotonic clock, in nanoseconds.
    """

    def __init__(
        self,
        error_log: DistinctErrorLog,
        fallback: TextIO | None,
        *,
        has_messages: bool = True,
        source: str = "",
        nano_time: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._error_log = error_log
        self._fallback = fallback
        self._has_messages = has_messages
        self._source = source
        self._logged = Throttle(nano_time)
        self._printed = Throttle(nano_time)
        self._lines = Throttle(nano_time, burst_length=_LINES_BURST_LENGTH, length_per_s=_LINES_LENGTH_PER_S)
        self._kinds: set[int] = set()

    def __call__(self, error: BaseException) -> None:
        try:
            count = self._error_log.record(error)
            if count == 0:
                self._print(error)
            elif _is_power_of_ten(count):
                self._log(error, count)
        except BaseException as failure:  # no memory, or a handler of logging that raises: it is counted
            self._logged.left_out_count += 1
            interruptions.keep(failure)

    def close(self) -> None:
        """Say what was left out and not said yet. Never raise."""
        try:
            self._log_left_out()
            self._print_left_out()
        except BaseException as failure:  # as above
            interruptions.keep(failure)

    def _print(self, error: BaseException) -> None:
        if self._fallback is None:
            return
        line = self._line_for_want_of_room(error, self._printed)
        if line is not None:
            if line:
                print_notice(line, self._fallback, event="error", fields=self._fields_of(error))
            return
        self._print_left_out()
        reason = self._error_log.refusal or "could not record it"
        text = f"error log {reason}\n{error_text(error, has_message=self._has_messages)}"
        self._printed.take(len(text))
        print_notice(text, self._fallback, event="error", fields=self._fields_of(error))

    def _line_for_want_of_room(self, error: BaseException, texts: Throttle) -> str | None:
        """None when there is room for the whole text; else the line for a kind's first error, or nothing at all."""
        is_new = self._is_new(error)
        if issubclass(type(error), AgentTermination) or texts.is_open():  # the end is always reported
            return None
        if not is_new or not self._lines.is_open():
            texts.left_out_count += 1
            return ""
        line = line_of(error, has_message=self._has_messages)
        self._lines.take(LINE_LENGTH_MAX, 0)
        return line

    def _is_new(self, error: BaseException) -> bool:
        kind = kind_of(error)
        if kind in self._kinds:
            return False
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        self._kinds.add(kind)
        return True

    def _print_left_out(self) -> None:
        count = self._printed.take_left_out()
        if count > 0 and self._fallback is not None:
            text = f"{counted(count, 'error')} left out: too many in too short a time"
            print_notice(text, self._fallback, event="error", fields={"source": self._source, "left_out": count})

    def _log(self, error: BaseException, count: int) -> None:
        category = category_of(error)
        level = logging.ERROR if category is None else _LEVELS[category]
        line = self._line_for_want_of_room(error, self._logged)
        if line is not None:
            if line:
                _log_record(level, line, None, self._fields_of(error))
            return
        self._log_left_out()
        message = message_of(error, is_shown=self._has_messages)
        stack = None
        # The plain end of an agent has no stack worth showing, nor has an event.
        if has_stack(error) and not is_plain_end(error):
            stack = stack_text(error, has_message=self._has_messages)
        if not issubclass(
            type(error), (AgentTermination, Event)
        ):  # the text of a KeyError is the key, of others nothing
            message = f"{type_name(error)}: {message}" if message else type_name(error)
        if count > 1:
            message += f" (observed {count} times)"
        remark = remark_on(error)
        if remark:
            message += f"; {remark}"
        self._logged.take(len(message) + len(stack or ""))
        _log_record(level, message, stack, {**self._fields_of(error), "count": count})

    def _fields_of(self, error: BaseException) -> dict[str, Any]:
        return {"source": self._source, "error": type_name(error), **facts_on(error)}

    def _log_left_out(self) -> None:
        count = self._logged.take_left_out()
        if count > 0:
            text = f"{counted(count, 'error')} left out here: too many in too short a time"
            _log_record(logging.WARNING, text, None, {"source": self._source, "left_out": count})


def _log_record(level: int, message: str, stack: str | None, fields: dict[str, Any] | None = None) -> None:
    logger = logging.getLogger("container")
    if not logger.isEnabledFor(level):
        return
    more = {"event": "error", "fields": fields} if fields is not None else None
    record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (message,), None, extra=more)
    record.exc_text = stack  # made already: a formatter would make it without any bound
    handle(record)


def _is_power_of_ten(count: int) -> bool:
    while count % 10 == 0:
        count //= 10
    return count == 1


def chain_error_handlers(
    log: LoggingErrorHandler, user: ErrorHandler | None, delegating: DelegatingErrorHandler | None
) -> ErrorHandler:
    """One handler out of three; a handler of the user's that fails does not keep the others from being called."""

    def log_then_user(error: BaseException) -> None:
        log(error)
        if user is not None:
            _guarded(log, user, error)

    if delegating is None:
        return log_then_user
    delegating.next(log_then_user)

    def delegate(error: BaseException) -> None:
        _guarded(log, delegating.on_error, error)

    return delegate


def _guarded(log: LoggingErrorHandler, handler: ErrorHandler, error: BaseException) -> None:
    try:
        handler(error)
    except BaseException as failure:  # SystemExit as well: the agent's end would be none in order
        log(failure)  # with the error itself, in whose handling it was raised, as its context
