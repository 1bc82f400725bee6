"""Python's loggers, for modules that every start imports: `logging` itself is loaded when there is something to say.

With what it needs it would take a healthy start some milliseconds and more than a MiB.
"""

from __future__ import annotations

import sys
import time
from importlib.machinery import ModuleSpec, PathFinder

from container.line_printer import print_line
from container.type_names import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import logging
    from types import ModuleType

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def logger(name: str = "container") -> logging.Logger:
    """The logger of this name."""
    import logging

    return logging.getLogger(name)


def info(message: str, *arguments: object) -> None:
    """Tell the logger ``container``, at level INFO, what every run has to say; `logging` is not loaded for that.

    Never raises, and neither does :func:`report`.
    """
    if "logging" in sys.modules:
        _tell("container", "info", message, arguments)
    elif _set_up is not None:
        _set_up.print_info(message % arguments)


def report(level: str, message: str, *arguments: object, name: str = "container") -> None:
    """Tell a logger at a level (``info``, ``warning``…), whatever its handlers do.

    A handler of the user's that raises, or a stream that is full or closed, costs the message and nothing else. Where
    nobody has set up `logging`, warnings and what is worse go to standard error, as `logging` does it, but without
    waiting for a reader.

    Args:
        level: name of a method of a logger.
        message: with ``%`` for each of the arguments.
        arguments: what the message is made of.
        name: of the logger.
    """
    _tell(name, level, message, arguments)


def handle(record: logging.LogRecord) -> None:
    """Give a record to the handlers of its logger, or print it where there are none. May raise what they raise."""
    import logging

    found = logging.getLogger(record.name)
    if not _is_for_standard_error(found):
        found.handle(record)
    elif record.levelno >= logging.WARNING and not found.disabled and found.filter(record):
        print_line(_formatter("%(message)s").format(record), sys.stderr)


def _tell(name: str, level: str, message: str, arguments: tuple[object, ...]) -> None:
    try:
        found = logger(name)
        if not _is_for_standard_error(found):
            getattr(found, level)(message, *arguments, stacklevel=3)
            return
        import logging

        number = logging.getLevelNamesMapping()[level.upper()]
        if found.isEnabledFor(number):
            handle(found.makeRecord(name, number, __file__, 0, message, arguments, None))
    except BaseException:  # a handler that raises SystemExit must not end the agent past its orderly close
        return


def _is_for_standard_error(found: logging.Logger) -> bool:
    """Whether `logging` would print on standard error by itself, and so wait for whoever should read that."""
    import logging

    return not found.hasHandlers() and logging.lastResort is getattr(logging, "_defaultLastResort", None)


def _formatter(text: str) -> logging.Formatter:
    import logging

    from container.error_texts import stack_text

    class Formatter(logging.Formatter):
        """Makes tracebacks of bounded length, from regular files alone."""

        def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
            return stack_text(ei[1]) if ei[1] is not None else ""

    return Formatter(text)


def log_to_stderr(level: str) -> None:
    """Have all logging from this level on (``debug``, ``info``…) on standard error, unless it is set up already."""
    global _set_up
    _set_up = _SetUp(level, sys.stderr)
    if "logging" in sys.modules:
        _set_up.apply()
    else:
        sys.meta_path.insert(0, _set_up)


class _SetUp:
    """Waits for the import of `logging`, by whomever, to set it up; until then prints as it would."""

    def __init__(self, level: str, stream: TextIO | None) -> None:
        self._level = level
        self._stream = stream

    def apply(self) -> None:
        import logging

        formatter, stream = _formatter(_FORMAT), self._stream

        class Printer(logging.Handler):
            """Prints records without waiting for whoever should read them."""

            def emit(self, record: logging.LogRecord) -> None:
                try:
                    text = formatter.format(record)
                except Exception:
                    text = f"a log record of {record.pathname}:{record.lineno} does not fit its arguments"
                print_line(text, stream)

        logging.basicConfig(level=self._level.upper(), handlers=[Printer()])

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """As a finder of ``sys.meta_path``: what the usual one finds, with the set-up after the module's own code."""
        spec = PathFinder.find_spec(name) if name == "logging" else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_apply(module: ModuleType) -> None:
            execute(module)
            self.apply()
            sys.meta_path.remove(self)

        spec.loader.exec_module = execute_and_apply  # type: ignore[method-assign]
        return spec

    def print_info(self, text: str) -> None:
        if self._stream is None or self._level not in ("debug", "info"):
            return
        now_ns = time.time_ns()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ns // 10**9))
        print_line(f"{when},{now_ns // 10**6 % 1000:03d} INFO container: {text}", self._stream)


_set_up: _SetUp | None = None
