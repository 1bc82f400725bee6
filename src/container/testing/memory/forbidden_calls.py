"""Finds calls of callbacks that may answer differently on another member, and uses of sets by their order."""

from __future__ import annotations

import _socket
import _thread
import builtins
import datetime
import dis
import functools
import importlib
import io
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from container.testing.memory.check_findings import ForbiddenCallError, Life
from container.testing.memory.memory_member import MemoryMember, Service, ServiceFactory
from container.testing.memory.set_uses import SetWatch


def check_calls(service: ServiceFactory, life: Life) -> None:
    """Run ``life`` and look at each call that callbacks make.

    Python's ``logging``, ``traceback`` and ``warnings`` and the import of modules may do what they like. Objects made
    before the first callback, such as random numbers without a seed, are not seen here: ``check_restarts`` finds it.

    Loops, lists and all else that gets the elements of a set in their order are found as well, but not what comes to
    the same in any order: ``sorted``, ``len``, ``sum`` of whole numbers, ``min``, ``max``, ``any``, ``all``, and what
    makes sets of sets.

    Raises:
        ForbiddenCallError: a callback called a clock, ``sleep``, random numbers without a seed of their own, the
            environment, the language or other facts of the machine, files, the network, processes or threads, or used
            the order of a set. The text names each function with the file and line that called it.
    """
    found: dict[str, None] = {}
    lines: set[str] = set()

    def add(name: str, line: str) -> None:
        found[f"{name} in {line}"] = None
        lines.add(line)

    def look(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            name = _forbidden(frame, function)
        else:
            name = _forbidden_in_python(frame) if event == "call" else None
        # A function in Python calls others, which say no more.
        if name is not None and (line := _line_of(frame)) and (event == "c_call" or line not in lines):
            add(name, line)

    def hear(frame: FrameType, event: str) -> None:
        if (line := _line_of(frame)) and line not in lines:
            add(event, line)

    def use(frame: FrameType, kind: type) -> None:
        if line := _line_of(frame):
            found[f"order of a {kind.__name__} in {line}"] = None

    def see(function: Any, argument: Any) -> None:
        if (name := _forbidden_by_argument(function, argument)) and (line := _line_of(sys._getframe(2))):
            add(name, line)

    with SetWatch(use, see) as watch, _WatchedMember(service, look, hear, watch) as member:
        life(member)
    if found:
        raise ForbiddenCallError(
            "callbacks called what may answer differently on another member:\n  " + "\n  ".join(found), list(found)
        )


class _WatchedMember(MemoryMember):
    """Has a profile function called in callbacks, and hears the audit events that Python raises there."""

    def __init__(
        self,
        service: Service | ServiceFactory,
        look: Callable[[FrameType, str, Any], None],
        hear: Callable[[FrameType, str], None],
        watch: SetWatch,
    ) -> None:
        self._look = look
        self._hear = hear
        self._watch = watch
        super().__init__(service)

    def _run(self, action: Callable[[], Any]) -> Any:
        before, heard_before = sys.getprofile(), getattr(_AUDIT, "hear", None)
        _hook()
        _AUDIT.hear = self._hear
        sys.setprofile(self._look)
        self._watch.is_on = True
        try:
            return super()._run(action)
        finally:
            self._watch.is_on = False
            sys.setprofile(before)
            _AUDIT.hear = heard_before


_AUDIT = threading.local()
"""``hear`` is called with what this thread does, while a check watches it."""


@functools.cache
def _hook() -> None:
    """Add the audit hook, which cannot be removed: once, and only in a process that has a check."""
    sys.addaudithook(_on_audit)


def _on_audit(event: str, _arguments: object) -> None:
    if event in _AUDITED or event.partition(".")[0] in _AUDITED_MODULES:
        hear = getattr(_AUDIT, "hear", None)
        if hear is not None:
            hear(sys._getframe(1), event)


# Modules that may do what they like: it does not come back to the service. Dates are parsed by the language of the
# process, which check_environments changes.
_PARDONED = frozenset(
    {
        "_strptime",
        "container.common.log_events",
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "importlib.util",
        "linecache",
        "logging",
        "logging.config",
        "logging.handlers",
        "tokenize",
        "traceback",
        "warnings",
        "zipimport",
    }
)


def _module(name: str) -> ModuleType | None:
    """A module that a Python may lack."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Each C function of these modules may answer differently, except those whose answer follows from the arguments.
_HARMLESS = {
    os.name: (
        "WCOREDUMP WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG WTERMSIG _exit "
        "_inputhook _is_inputhook_installed _path_normpath _path_splitroot _path_splitroot_ex abort close closerange "
        "fspath major makedev minor register_at_fork strerror waitstatus_to_exitcode"
    ),
    "_locale": "",
    "_posixshmem": "",
    "_socket": (
        "CMSG_LEN CMSG_SPACE close getdefaulttimeout htonl htons inet_aton inet_ntoa inet_ntop inet_pton ntohl ntohs "
        "setdefaulttimeout"
    ),
    "fcntl": "",
    "grp": "",
    "pwd": "",
    "resource": "",
    "select": "",
    "time": "asctime gmtime strptime",  # the first two are clocks without an argument, see _forbidden_by_argument
}
_NOTHING = ModuleType("nothing")
_FUNCTIONS: dict[Any, str] = {
    function: f"{'os' if name == os.name else name}.{function.__name__}"
    for name, harmless in _HARMLESS.items()
    for function in vars(_module(name) or _NOTHING).values()
    if isinstance(function, BuiltinFunctionType) and function.__name__ not in harmless.split()
} | {
    getattr(module, name): f"{module.__name__}.{name}"
    for module, names in (
        (uuid, "_generate_time_safe"),
        (_thread, "get_native_id start_new_thread start_joinable_thread"),
        (builtins, "input"),
        (io, "open open_code"),
        (signal, "alarm getitimer pause setitimer sigtimedwait sigwait sigwaitinfo"),
        (_module("_posixsubprocess"), "fork_exec"),
        (_module("_sqlite3"), "connect"),
        (_module("_ssl"), "RAND_bytes"),
    )
    for name in names.split()
    if module is not None and hasattr(module, name)
}
# With so many arguments the answer of these follows from them, with fewer from the clock.
_BY_ARGUMENTS = {time.asctime: 1, time.gmtime: 1, time.strftime: 2}
_CALL = dis.opmap["CALL"]
# Functions in Python that remember an answer, or find it without a call: all of a module, or those whose names begin
# so.
_FUNCTIONS_OF_PYTHON = {
    "getpass": ("getuser",),
    "os": ("_Environ.", "getenv"),
    "platform": ("",),
    "posixpath": ("expanduser", "expandvars"),
    "sysconfig": ("",),
    "tempfile": ("",),
    "threading": ("active_count", "enumerate"),
    "uuid": ("getnode",),
}
# Audit events: Python raises them also for C code that opens a file, say.
_AUDITED = frozenset(
    {"_thread.start_joinable_thread", "_thread.start_new_thread", "mmap.__new__", "open", "time.sleep"}
)
_AUDITED_MODULES = frozenset(
    (
        "fcntl",
        "ftplib",
        "glob",
        "http",
        "imaplib",
        "os",
        "poplib",
        "pty",
        "resource",
        "shutil",
        "smtplib",
        "socket",
        "sqlite3",
        "subprocess",
        "tempfile",
        "urllib",
        "webbrowser",
    )
)
_CLOCKS_OF_DATES = ("now", "utcnow", "today")
_SHARED_RANDOM = getattr(random.random, "__self__", None)


def _forbidden(frame: FrameType, function: Any) -> str | None:
    """The name of a function of C that callbacks must not call; None for others."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    try:
        if function in _FUNCTIONS:
            return None if _argument_count(frame) >= _BY_ARGUMENTS.get(function, sys.maxsize) else _FUNCTIONS[function]
    except TypeError:
        return None  # cannot be hashed
    if isinstance(owner, type) and issubclass(owner, datetime.date) and name in _CLOCKS_OF_DATES:
        return f"{owner.__name__}.{name}"
    if owner is not None and (owner is _SHARED_RANDOM or isinstance(owner, random.SystemRandom)):
        return f"random.{name}"
    if isinstance(owner, random.Random) and name == "seed" and frame.f_locals.get("a", owner) is None:
        return "random.Random.seed without a seed"
    if isinstance(owner, _socket.socket):
        return f"socket.{name}"
    return None


def _argument_count(frame: FrameType) -> int:
    """With how many arguments a frame calls; 0 where they have names, or a list has them."""
    operation, count = frame.f_code.co_code[frame.f_lasti :][:2]
    return count if operation == _CALL else 0


def _forbidden_in_python(frame: FrameType) -> str | None:
    """The name of a function in Python that callbacks must not call; None for others."""
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
    if module in _FUNCTIONS_OF_PYTHON and name.startswith(_FUNCTIONS_OF_PYTHON[module]):
        return "os.environ" if name.startswith("_Environ.") else f"{module}.{name}".replace("posixpath", "os.path")
    return None


def _forbidden_by_argument(function: Any, argument: Any) -> str | None:
    """The name of a clock of a compiled library, or by what it is called with, or of a call of the generator that all
    users of numpy share; None for others."""
    if isinstance(argument, str) and argument in ("now", "today"):
        return (
            f"datetime64({argument!r})" if function is getattr(sys.modules.get("numpy"), "datetime64", None) else None
        )
    if function is time.gmtime or function is time.asctime:
        return f"time.{function.__name__}" if argument is None or argument is sys.monitoring.MISSING else None
    shared = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    called, owner = (function.__func__, function.__self__) if type(function) is MethodType else (function, argument)
    if owner is shared is not None:
        return f"numpy.random.{function.__name__}"
    if isinstance(owner, type) and issubclass(owner, datetime.date) and not isinstance(called, FunctionType):
        name = getattr(called, "__name__", "")
        return f"{owner.__name__}.{name}" if name in _CLOCKS_OF_DATES else None
    return None


def _line_of(frame: FrameType | None) -> str | None:
    """The user's line that led to a call; None for what a pardoned module does."""
    line = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        room = module.partition(".")[0]
        if module in _PARDONED:
            return None
        if line is None and room not in sys.stdlib_module_names:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return line
