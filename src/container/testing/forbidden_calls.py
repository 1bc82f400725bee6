"""Finds calls of callbacks that may answer differently on another member, and uses of sets by their order."""

from __future__ import annotations

import _socket
import _thread
import builtins
import datetime
import importlib
import io
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from container.testing.findings import ForbiddenCallError, Life
from container.testing.memory_member import MemoryMember, Service, ServiceFactory
from container.testing.set_uses import SetWatch


def check_calls(service: ServiceFactory, life: Life) -> None:
    """Run ``life`` and look at each call that callbacks make.

    Python's ``logging``, ``traceback`` and ``warnings`` and the import of modules may do what they like. What was made
    before the first callback, such as random numbers without a seed, is not seen here: ``check_restarts`` finds it.

    Loops, lists and all else that gets the elements of a set in their order are found as well, but not what comes to
    the same in any order: ``sorted``, ``len``, ``sum`` of whole numbers, ``min``, ``max``, ``any``, ``all``, and what
    makes sets of sets.

    Raises:
        ForbiddenCallError: a callback called a clock, ``sleep``, random numbers without a seed of their own, files,
            the network, processes or threads, or used the order of a set. The text names each function with the file
            and line that called it.
    """
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, function: Any) -> None:
        name = _forbidden(frame, function) if event == "c_call" else None
        if name is not None and (line := _line_of(frame)):
            found[f"{name} in {line}"] = None

    def use(frame: FrameType, kind: type) -> None:
        if line := _line_of(frame):
            found[f"order of a {kind.__name__} in {line}"] = None

    with SetWatch(use) as watch, _WatchedMember(service, look, watch) as member:
        life(member)
    if found:
        raise ForbiddenCallError(
            "callbacks called what may answer differently on another member:\n  " + "\n  ".join(found), list(found)
        )


class _WatchedMember(MemoryMember):
    """Has a profile function called in callbacks."""

    def __init__(
        self, service: Service | ServiceFactory, look: Callable[[FrameType, str, Any], None], watch: SetWatch
    ) -> None:
        self._look = look
        self._watch = watch
        super().__init__(service)

    def _run(self, action: Callable[[], Any]) -> Any:
        before = sys.getprofile()
        sys.setprofile(self._look)
        self._watch.is_on = True
        try:
            return super()._run(action)
        finally:
            self._watch.is_on = False
            sys.setprofile(before)


# Modules that may do what they like: it does not come back to the service.
_PARDONED = frozenset(
    {"container.common.log_events", "importlib", "linecache", "logging", "tokenize", "traceback", "warnings"}
)


def _module(name: str) -> ModuleType | None:
    """A module that a Python may lack."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_CLOCKS = (
    "asctime clock_gettime clock_gettime_ns ctime gmtime localtime monotonic monotonic_ns perf_counter perf_counter_ns "
    "process_time process_time_ns sleep strftime thread_time thread_time_ns time time_ns"
)
_OF_THE_SYSTEM = (
    "access chmod cpu_count fork getcwd getloadavg getpid getppid getrandom link listdir lstat mkdir open posix_spawn "
    "posix_spawnp readlink remove rename replace rmdir scandir stat statvfs symlink system times truncate unlink "
    "urandom utime"
)
_FUNCTIONS: dict[Any, str] = {
    getattr(module, name): f"{module.__name__}.{name}"
    for module, names in (
        (time, _CLOCKS),
        (os, _OF_THE_SYSTEM),
        (uuid, "_generate_time_safe"),
        (_socket, "getaddrinfo gethostname gethostbyname"),
        (_thread, "start_new_thread start_joinable_thread"),
        (builtins, "input"),
        (io, "open"),
        (_module("_posixsubprocess"), "fork_exec"),
        (_module("_sqlite3"), "connect"),
    )
    for name in names.split()
    if module is not None and hasattr(module, name)
}
_SHARED_RANDOM = getattr(random.random, "__self__", None)


def _forbidden(frame: FrameType, function: Any) -> str | None:
    """The name of a function of C that callbacks must not call; None for others."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    try:
        if function in _FUNCTIONS:
            return _FUNCTIONS[function]
    except TypeError:
        return None  # cannot be hashed
    if isinstance(owner, type) and issubclass(owner, datetime.date) and name in ("now", "utcnow", "today"):
        return f"{owner.__name__}.{name}"
    if owner is not None and (owner is _SHARED_RANDOM or isinstance(owner, random.SystemRandom)):
        return f"random.{name}"
    if isinstance(owner, random.Random) and name == "seed" and frame.f_locals.get("a", owner) is None:
        return "random.Random.seed without a seed"
    if isinstance(owner, _socket.socket):
        return f"socket.{name}"
    return None


def _line_of(frame: FrameType | None) -> str | None:
    """The user's line that led to a call; None for what a pardoned module does."""
    line = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        room = module.partition(".")[0]
        if room in _PARDONED or module in _PARDONED:
            return None
        if line is None and room not in sys.stdlib_module_names:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return line
