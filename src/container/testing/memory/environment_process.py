"""The process in which an environment's life runs: it prints the digests of the states by log position."""

from __future__ import annotations

import _socket
import contextlib
import datetime
import hashlib
import os
import pickle
import socket
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from container.common.error_texts import message_of, user_stack_text
from container.common.object_path import load_object
from container.testing.memory.check_findings import user_line
from container.testing.memory.snapshotting_member import behaviour_of

RESULT = b"\0states:"
"""Stands before what the process found, behind whatever the service printed."""
_NS_PER_S = 1_000_000_000
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH120, PTH100 - texts
_MAPPING_FILES = frozenset({os.__file__, "<frozen os>", "<frozen _collections_abc>"})


class Result(msgspec.Struct, frozen=True):
    """The result of a process."""

    digests: dict[int, str]
    """Digests of the states, by log position."""
    variables: list[str]
    """Names of the environment variables that the service's code, no library's, has asked for."""
    error: str = ""
    """The exception of the service or the life, and its place, on one line; empty when neither raised."""
    stack: str = ""
    """The traceback of that from the user's first frame on, where it says more."""


class Surroundings(msgspec.Struct, frozen=True):
    """Changes that a process makes to itself, as :class:`container.testing.memory.environments.Environment` describes
    it."""

    wall_clock: str | None = None
    seconds_per_event: float = 0.0
    switch_interval: float | None = None
    busy_threads: int = 0
    member: str | None = None


def main() -> None:
    """Run the life of standard input, a pickled service and life, in the surroundings of the argument."""
    given = msgspec.json.decode(sys.argv[1], type=Surroundings)
    _play(given.member)
    variables = _note_variables()
    with _wall_clock(given) as pass_time, _threads(given):
        states: dict[int, tuple[bytes, ...]] = {}
        error = stack = ""
        try:
            service, life = (
                load_object(given, name) if isinstance(given, str) else given
                for given, name in zip(pickle.load(sys.stdin.buffer), ("service", "life"), strict=True)
            )
            states = behaviour_of(service, life, pass_time)
        except Exception as raised:
            error = _plain(f"{type(raised).__name__}: {message_of(raised)}{user_line(raised)}")
            stack = _plain(user_stack_text(raised))
    digests = {
        position: hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in state)).hexdigest()
        for position, state in states.items()
    }
    sys.stdout.flush()
    sys.stdout.buffer.write(RESULT + msgspec.json.encode(Result(digests, sorted(variables), error, stack)))
    sys.stdout.flush()


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _play(member: str | None) -> None:
    """Have what this process knows of itself be of another member's: its arguments, and its host's name."""
    sys.argv[1:] = sys.orig_argv[1:] = []
    if member is None:
        return
    sys.argv[:] = sys.orig_argv[:] = [f"/opt/{member}/run", "--member", member]
    system = os.uname()
    vars(os)["uname"] = lambda: os.uname_result((system[0], member, *system[2:]))
    vars(socket)["gethostname"] = vars(_socket)["gethostname"] = lambda: member
    processors = (os.cpu_count() or 1) + len(member)
    vars(os)["cpu_count"] = vars(os)["process_cpu_count"] = lambda: processors


def _note_variables() -> set[str]:
    """Have the names noted that code asks the environment for, if it is of no library.

    A copy of the whole environment asks for each name in the order of its iteration, and counts for none.
    """
    names: set[str] = set()
    copied: deque[str] = deque()
    environ: Any = type(os.environ)
    get, iterate = environ.__getitem__, environ.__iter__
    libraries = tuple({f"{path}{os.sep}" for path in sysconfig.get_paths().values()} | {_OWN, "<frozen "})

    def noted(self: Any, name: Any) -> Any:
        if copied and copied[0] == name:
            copied.popleft()
            return get(self, name)
        frame = sys._getframe(1)
        while frame.f_code.co_filename in _MAPPING_FILES and frame.f_back is not None:
            frame = frame.f_back
        if isinstance(name, str) and not frame.f_code.co_filename.startswith(libraries):
            names.add(name)
        return get(self, name)

    def iterated(self: Any) -> Iterator[str]:
        copied.clear()
        for name in iterate(self):
            copied.append(name)
            yield name

    environ.__getitem__, environ.__iter__ = noted, iterated
    return names


class _Ahead:
    """A clock that is ahead of another one."""

    def __init__(self, real: Callable[[], Any], passed: Callable[[], Any]) -> None:
        self._real = real
        self._passed = passed

    def __call__(self) -> Any:
        return self._real() + self._passed()


@contextlib.contextmanager
def _wall_clock(given: Surroundings) -> Iterator[Callable[[], object] | None]:
    """Set the clocks; the yielded function advances them by one event."""
    if given.wall_clock is None:
        yield None
        return
    import time_machine

    passed = 0.0
    # The clocks that measure durations go along; a library that imported them before keeps the real ones.
    for name in ("monotonic", "perf_counter"):
        vars(time)[name] = _Ahead(vars(time)[name], lambda: passed)
        vars(time)[f"{name}_ns"] = _Ahead(vars(time)[f"{name}_ns"], lambda: int(passed * _NS_PER_S))
    # As a number: with the offset of a datetime the process would have another time zone as well.
    with time_machine.travel(datetime.datetime.fromisoformat(given.wall_clock).timestamp(), tick=False) as traveller:

        def pass_time() -> None:
            nonlocal passed
            passed += given.seconds_per_event
            traveller.shift(given.seconds_per_event)

        yield pass_time


@contextlib.contextmanager
def _threads(given: Surroundings) -> Iterator[None]:
    """Compute on other threads meanwhile, and switch between threads as often as was asked for."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            pass

    before = sys.getswitchinterval()
    if given.switch_interval is not None:
        sys.setswitchinterval(given.switch_interval)
    threads: list[Any] = [threading.Thread(target=compute, daemon=True) for _ in range(given.busy_threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)


if __name__ == "__main__":
    main()
