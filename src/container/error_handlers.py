"""The chain through which a container's errors go: [delegating handler →] error log → user's handler."""

from __future__ import annotations

import sys
from collections.abc import Callable

from container.error_log import DistinctErrorLog, error_text
from container.errors import AgentTermination, Category, Event
from container.type_names import Protocol, TextIO

type ErrorHandler = Callable[[BaseException], object]


class DelegatingErrorHandler(Protocol):
    """Gets each error first, and decides whether the error log and the user's handler get it, too."""

    def next(self, error_handler: ErrorHandler) -> None:
        """Called once, with the handler to which errors may be handed on."""

    def on_error(self, error: BaseException) -> None:
        """An error occurred, on the agent's thread."""


def fallback_stream(name: str) -> TextIO | None:
    """The stream that the setting ``fallback_logger`` names: ``stderr``, ``stdout``, or None for ``no_op``."""
    return {"stderr": sys.stderr, "stdout": sys.stdout}.get(name)


class LoggingErrorHandler:
    """Records each error in the error log and tells Python's logging of the first, tenth, hundredth… observation.

    When the error log has no room, or is closed, the whole text goes to the fallback stream.
    """

    def __init__(self, error_log: DistinctErrorLog, fallback: TextIO | None) -> None:
        self._error_log = error_log
        self._fallback = fallback

    def __call__(self, error: BaseException) -> None:
        count = self._error_log.record(error)
        if count == 0:
            self._print(error)
        elif _is_power_of_ten(count):
            _log(error, count)

    def _print(self, error: BaseException) -> None:
        if self._fallback is not None:
            reason = "closed" if self._error_log.is_closed else "full"
            print(f"error log is {reason}\n{error_text(error)}", file=self._fallback, flush=True)


def _log(error: BaseException, count: int) -> None:
    import logging  # slow to import, and a healthy container has no errors

    levels = {Category.WARN: logging.WARNING, Category.FATAL: logging.CRITICAL}
    category = getattr(error, "category", Category.ERROR)
    times = f" (observed {count} times)" if count > 1 else ""
    # An event has no stack worth showing, nor has the plain end of an agent.
    has_stack = not isinstance(error, Event) and not (isinstance(error, AgentTermination) and error.__cause__ is None)
    level = levels.get(category, logging.ERROR)
    logging.getLogger("container").log(level, "%s%s", error, times, exc_info=error if has_stack else None)


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
    except Exception as failure:
        log(failure)  # with the error itself, in whose handling it was raised, as its context
