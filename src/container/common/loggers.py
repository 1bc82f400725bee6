"""The container's reports to Python's `logging`: they never raise, and never wait for a reader of standard error."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from typing import Any, TextIO

from container.common import interruptions
from container.common.error_texts import stack_text
from container.common.line_printer import print_line
from container.errors import ConfigurationError

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("text", "json")
LEVEL_VARIABLE = "AERON_CLUSTER_LOG_LEVEL"
FORMAT_VARIABLE = "AERON_CLUSTER_LOG_FORMAT"

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_VALUE_LENGTH_MAX = 4 * 1024
_root = logging.getLogger()


class _Formatter(logging.Formatter):
    """Makes tracebacks of bounded length, from regular files alone."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        return stack_text(ei[1]) if ei[1] is not None else ""


class JsonFormatter(_Formatter):
    """Makes one line of JSON of a record: time, level, logger, message; event and its fields; stack.

    Give it to a handler of your own to have what ``log_format="json"`` prints. The time is UTC, by ISO 8601, with
    milliseconds.
    """

    def __init__(self) -> None:
        super().__init__()

    def __repr__(self) -> str:
        return "JsonFormatter()"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Raise TypeError or ValueError when the arguments of the record do not fit its message."""
        import json  # not needed by what logs text

        seconds, milliseconds = divmod(int(record.created * 1_000), 1_000)
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event: object = getattr(record, "event", None)
        fields: object = getattr(record, "fields", None)
        if isinstance(event, str):
            line["event"] = event
        if isinstance(fields, dict):
            line.update({name: _plain(value) for name, value in fields.items() if name not in line})
        stack = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        if stack:
            line["stack"] = stack
        return json.dumps(line)


def _plain(value: object) -> object:
    if isinstance(value, bool | int) or value is None or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:_VALUE_LENGTH_MAX]


class _Printer(logging.Handler):
    """Prints records without waiting for whoever should read them."""

    def __init__(self, stream: TextIO | None, log_format: str) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(JsonFormatter() if log_format == "json" else _Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record; one whose arguments do not fit its message is named instead."""
        try:
            text = self.format(record)
        except Exception:
            text = f"a log record of {record.pathname}:{record.lineno} does not fit its arguments"
        print_line(text, self._stream)


def log_to_stderr(level: str, log_format: str = "text") -> None:
    """Print all logging from this level on on standard error, unless it is set up already.

    Args:
        level: one of :data:`LOG_LEVELS`.
        log_format: one of :data:`LOG_FORMATS`.
    """
    logging.basicConfig(level=level.upper(), handlers=[_Printer(sys.stderr, log_format)])


def prints_json() -> bool:
    """Whether standard error has lines of JSON, by :func:`log_to_stderr`."""
    for handler in _root.handlers:
        if isinstance(handler, _Printer) and isinstance(handler.formatter, JsonFormatter):
            return True
    return False


def print_notice(
    text: str,
    stream: TextIO | None,
    *,
    level: str = "warning",
    event: str | None = None,
    fields: dict[str, Any] | None = None,
) -> None:
    """Print a text; where the log is lines of JSON, log it. Never raise.

    That goes for standard output as well: whoever collects the lines of a program often reads both.

    Args:
        text: what is printed.
        stream: None prints nothing.
        level: it is logged at, as for :func:`report`.
        event: as for :func:`report`.
        fields: what belongs to the event.
    """
    if stream is not None and stream in (sys.stderr, sys.stdout) and prints_json():
        report(level, "%s", text.removeprefix("WARNING: "), event=event, fields=fields)
    else:
        print_line(text, stream)


def log_as_the_environment_says() -> None:
    """The same with the level of ``AERON_CLUSTER_LOG_LEVEL`` (info) and the format of ``AERON_CLUSTER_LOG_FORMAT``.

    Raises:
        ConfigurationError: a variable has a value that is not one of its choices.
    """
    log_to_stderr(choice(LEVEL_VARIABLE, LOG_LEVELS, "info"), choice(FORMAT_VARIABLE, LOG_FORMATS, "text"))


def choice(variable: str, choices: tuple[str, ...], default: str) -> str:
    """Return the value of an environment variable, or the default. Raise ConfigurationError for none of the choices."""
    value = os.environ.get(variable, "").lower() or default
    if value not in choices:
        raise ConfigurationError(f"{variable}={value!r}: must be one of {', '.join(choices)}")
    return value


def report(
    level: str,
    message: str,
    *arguments: object,
    name: str = "container",
    event: str | None = None,
    fields: dict[str, Any] | None = None,
) -> None:
    """Log a message, whatever the handlers do. Never raise.

    A handler of the user's that raises, or a stream that is full or closed, costs the message and nothing else. Where
    nobody has set up `logging`, warnings and what is worse go to standard error, as `logging` does it, but without
    waiting for a reader.

    Args:
        level: name of a method of a logger.
        message: with ``%`` for each of the arguments.
        arguments: what the message is made of.
        name: of the logger.
        event: name of the event that it reports, for programs that read the log.
        fields: what belongs to the event.
    """
    try:
        found = logging.getLogger(name)
        more = None if event is None else {"event": event, "fields": fields or {}}
        if not _is_for_standard_error(found):
            getattr(found, level)(message, *arguments, stacklevel=2, extra=more)
            return
        number = logging.getLevelNamesMapping()[level.upper()]
        if found.isEnabledFor(number):
            handle(found.makeRecord(name, number, __file__, 0, message, arguments, None, extra=more))
    except BaseException as error:  # a handler that raises SystemExit must not end the agent past its orderly close
        interruptions.keep(error)


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
