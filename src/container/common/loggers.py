"""What the container reports to Python's `logging`: it never raises, and never waits for a reader of standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

from container.common.error_texts import stack_text
from container.common.line_printer import print_line

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Formatter(logging.Formatter):
    """Makes tracebacks of bounded length, from regular files alone."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        return stack_text(ei[1]) if ei[1] is not None else ""


class _Printer(logging.Handler):
    """Prints records without waiting for whoever should read them."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(_Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record; one whose arguments do not fit its message is named instead."""
        try:
            text = self.format(record)
        except Exception:
            text = f"a log record of {record.pathname}:{record.lineno} does not fit its arguments"
        print_line(text, self._stream)


def log_to_stderr(level: str) -> None:
    """Print all logging from this level on (``debug``, ``info``…) on standard error, unless it is set up already."""
    logging.basicConfig(level=level.upper(), handlers=[_Printer(sys.stderr)])


def report(level: str, message: str, *arguments: object, name: str = "container") -> None:
    """Log a message, whatever the handlers do. Never raise.

    A handler of the user's that raises, or a stream that is full or closed, costs the message and nothing else. Where
    nobody has set up `logging`, warnings and what is worse go to standard error, as `logging` does it, but without
    waiting for a reader.

    Args:
        level: name of a method of a logger.
        message: with ``%`` for each of the arguments.
        arguments: what the message is made of.
        name: of the logger.
    """
    try:
        found = logging.getLogger(name)
        if not _is_for_standard_error(found):
            getattr(found, level)(message, *arguments, stacklevel=2)
            return
        number = logging.getLevelNamesMapping()[level.upper()]
        if found.isEnabledFor(number):
            handle(found.makeRecord(name, number, __file__, 0, message, arguments, None))
    except BaseException:  # a handler that raises SystemExit must not end the agent past its orderly close
        return


def handle(record: logging.LogRecord) -> None:
    """Give a record to the handlers of its logger, or print it where there are none. May raise what they raise."""
    found = logging.getLogger(record.name)
    if not _is_for_standard_error(found):
        found.handle(record)
    elif record.levelno >= logging.WARNING and not found.disabled and found.filter(record):
        print_line(_Formatter("%(message)s").format(record), sys.stderr)


def _is_for_standard_error(found: logging.Logger) -> bool:
    """Whether `logging` itself would print on standard error, and so wait for whoever should read that."""
    return not found.hasHandlers() and logging.lastResort is getattr(logging, "_defaultLastResort", None)
