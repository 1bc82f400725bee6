"""Python's loggers, for modules that every start imports: `logging` itself is loaded when there is something to say.

With what it needs it would take a healthy start some milliseconds and more than a MiB.
"""

from __future__ import annotations

import sys
import time
from importlib.machinery import ModuleSpec, PathFinder

from container.type_names import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import logging
    from types import ModuleType

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def logger(name: str = "container") -> logging.Logger:
    """The logger of this name."""
    import logging

    return logging.getLogger(name)


def info(message: str, *arguments: object) -> None:
    """Tell the logger ``container``, at level INFO, what every run has to say; `logging` is not loaded for that."""
    if "logging" in sys.modules:
        logger().info(message, *arguments, stacklevel=2)
    elif _set_up is not None:
        _set_up.print_info(message % arguments)


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

        logging.basicConfig(level=self._level.upper(), format=_FORMAT, stream=self._stream)

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
        try:
            print(f"{when},{now_ns // 10**6 % 1000:03d} INFO container: {text}", file=self._stream, flush=True)
        except (OSError, ValueError):
            return  # a service whose standard error is closed runs all the same


_set_up: _SetUp | None = None
