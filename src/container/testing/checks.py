"""Checks that find what would let replicas diverge: a service against its replays, environments and forbidden calls.

A check runs a *life*: a function that gets a :class:`~container.testing.memory_member.MemoryMember` and does with it
what clients and time could do. It must not use randomness without a seed of its own::

    def life(member):
        client = member.open_session()
        for number in range(100):
            client.send(b"one+%d" % number)


    check_replays(Counter, life)
    check_calls(Counter, life)
    check_environments("my_service:Counter", "test_my_service:life")
"""

from __future__ import annotations

import _socket
import _thread
import builtins
import datetime
import hashlib
import io
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import msgspec

from container.common.object_path import load_object
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError
from container.testing.memory_member import MemoryMember, MemorySnapshot, Service, ServiceFactory, state_in
from container.testing.scripted_consensus_module import ServiceAck

type Life = Callable[[MemoryMember], object]

_NULL_VALUE = -1
# What a check in another process may take, in seconds.
_LIMIT_S = 300.0
# Places outside the event on which Python's own behaviour may depend: order of sets and hashes, time zone, language.
_ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8"},
    {"PYTHONHASHSEED": "4294967295", "TZ": "America/St_Johns", "LC_ALL": "C"},
)


class DivergenceError(ContainerError):
    """Two runs of a service over the same log came to other states; ``log_position`` is the first where they did."""

    def __init__(self, text: str, log_position: int) -> None:
        super().__init__(text)
        self.log_position = log_position


class ForbiddenCallError(ContainerError):
    """A callback called what may answer differently on another member. ``calls`` names each function, file and line."""

    def __init__(self, text: str, calls: Sequence[str]) -> None:
        super().__init__(text)
        self.calls = tuple(calls)


class _SnapshottingMember(MemoryMember):
    """Takes a snapshot after every so many messages of the log, and compares states that come again in a replay."""

    def __init__(self, service: Service | ServiceFactory, every: int) -> None:
        self._every = every
        self._since = 0
        self._begin = "the whole log"
        self.snapshots: list[MemorySnapshot] = []
        self.states: dict[int, tuple[bytes, ...]] = {}
        self.compared = 0
        super().__init__(service)

    def restart(
        self, snapshot: MemorySnapshot | None = None, *, service: Service | ServiceFactory | None = None
    ) -> None:
        self._begin = "the whole log" if snapshot is None else f"the log from the snapshot at {snapshot.log_position}"
        super().restart(snapshot, service=service)

    def take_snapshot(self) -> MemorySnapshot:
        self._since = 0
        self.snapshots.append(snapshot := super().take_snapshot())
        return snapshot

    def _log(self, log: Callable[[Any], object]) -> None:
        super()._log(log)
        self._since += 1
        if self._since > self._every:
            self.take_snapshot()

    def _take(self, message: object) -> None:
        super()._take(message)
        # The first ack of a start is for the start; later ones without a recording are for the end of a log.
        if isinstance(message, ServiceAck) and message.ack_id > 0 and message.relevant_id != _NULL_VALUE:
            self._compare(message.log_position, state_in(self._store.messages(message.relevant_id)))

    def _compare(self, position: int, state: tuple[bytes, ...]) -> None:
        if position not in self.states:
            self.states[position] = state
            return
        self.compared += 1
        if state != self.states[position]:
            raise DivergenceError(
                f"replaying {self._begin}, the state at log position {position} is not that of the run.\n"
                f"{_events_before(self, position, self._every)}\n{_difference(self.states[position], state)}",
                position,
            )


def check_replays(service: ServiceFactory, life: Life, *, every: int = 10, restarts: int = 10) -> int:
    """Compare a run of ``service`` with its replays; return how many states were compared.

    The run takes a snapshot after each ``every`` messages of the log. Then the service replays the log from nothing,
    and from ``restarts`` of these snapshots. At each snapshot its state must be that of the run.

    Raises:
        DivergenceError: a state differs. The text has the log position, the last events before it, and the first
            message of the snapshot that differs.
        ConfigurationError: ``every`` or ``restarts`` is not positive.
    """
    if every < 1 or restarts < 1:
        raise ConfigurationError(f"every={every}, restarts={restarts}: both must be at least 1")
    with _SnapshottingMember(service, every) as member:
        life(member)
        member.take_snapshot()
        snapshots = member.snapshots[:]
        step = max(1, len(snapshots) // restarts)
        for snapshot in (None, *snapshots[::step]):
            member.restart(snapshot)
        return member.compared


def check_calls(service: ServiceFactory, life: Life) -> None:
    """Run ``life`` and look at each call that callbacks make.

    Python's ``logging`` and the import of modules may do what they like.

    Raises:
        ForbiddenCallError: a callback called a clock, ``sleep``, random numbers without a seed of their own, files,
            the network or threads. The text names each function with the file and line that called it.
    """
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and (name := _forbidden(function)) is not None and (line := _line_of(frame)):
            found[f"{name} in {line}"] = None

    with _WatchedMember(service, look) as member:
        life(member)
    if found:
        raise ForbiddenCallError(
            "callbacks called what may answer differently on another member:\n  " + "\n  ".join(found), list(found)
        )


class _WatchedMember(MemoryMember):
    """Has a profile function called in callbacks."""

    def __init__(self, service: Service | ServiceFactory, look: Callable[[FrameType, str, Any], None]) -> None:
        self._look = look
        super().__init__(service)

    def _run(self, action: Callable[[], Any]) -> Any:
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return super()._run(action)
        finally:
            sys.setprofile(before)


def check_environments(service: str, life: str, *, environments: Sequence[Mapping[str, str]] = _ENVIRONMENTS) -> int:
    """Run ``life`` in a process for each of several environments; return how many states were compared.

    ``service`` and ``life`` are given as ``package.module:name``, found from the current directory. By default the
    environments differ in the order of sets and hashes (``PYTHONHASHSEED``), the time zone and the language.

    Raises:
        DivergenceError: two processes came to other states; the text has the position and both environments.
        ContainerError: a process failed; the text has the end of what it printed.
    """
    outcomes = [_outcome(service, life, environment) for environment in environments]
    first = outcomes[0]
    for environment, outcome in zip(environments[1:], outcomes[1:], strict=True):
        for position in sorted(first.keys() | outcome.keys()):
            if first.get(position) != outcome.get(position):
                raise DivergenceError(
                    f"the state at log position {position} differs between processes with "
                    f"{shown(dict(environments[0]))} and {shown(dict(environment))}",
                    position,
                )
    return len(first) * len(outcomes)


def _outcome(service: str, life: str, environment: Mapping[str, str]) -> dict[int, str]:
    command = [sys.executable, "-m", "container.testing.checks", service, life]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if ended.returncode != 0:
        raise ContainerError(
            f"the service failed in a process with {shown(dict(environment))}, code {ended.returncode}: "
            f"{ended.stderr[-2000:]}"
        )
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=dict[int, str])


def main(arguments: Sequence[str]) -> None:
    """Print the digests of a service's states by log position, as JSON."""
    service, life = (load_object(path, setting) for path, setting in zip(arguments, ("service", "life"), strict=True))
    with _SnapshottingMember(service, 1) as member:
        life(member)
        member.take_snapshot()
        digests = {
            position: hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in state)).hexdigest()
            for position, state in member.states.items()
        }
    print(msgspec.json.encode(digests).decode())


# Modules whose frames stand between a user's line and a forbidden call.
_LIBRARY = frozenset({"datetime", "random", "secrets", "socket", "tempfile", "threading", "uuid", "pathlib", "io"})
# Modules that may do what they like: it does not come back to the service.
_PARDONED = frozenset({"logging", "importlib"})
_FUNCTIONS: dict[Any, str] = {
    getattr(module, name): f"{module.__name__}.{name}"
    for module, names in (
        (time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time localtime gmtime sleep"),
        (os, "urandom getpid open stat listdir scandir system"),
        (_socket, "getaddrinfo gethostname gethostbyname"),
        (_thread, "start_new_thread start_joinable_thread"),
        (builtins, "input"),
        (io, "open"),
    )
    for name in names.split()
    if hasattr(module, name)
}
_SHARED_RANDOM = getattr(random.random, "__self__", None)


def _forbidden(function: Any) -> str | None:
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
    if isinstance(owner, _socket.socket):
        return f"socket.{name}"
    return None


def _line_of(frame: FrameType | None) -> str | None:
    """The user's line that led to a call; None for what a pardoned module does."""
    line = None
    while frame is not None:
        room = frame.f_globals.get("__name__", "").partition(".")[0]
        if room in _PARDONED:
            return None
        if line is None and room not in _LIBRARY:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return line


def _events_before(member: MemoryMember, position: int, count: int) -> str:
    entries = [entry for entry in member.log if entry.position <= position][-count - 1 :]
    lines = [f"  {entry.position}: {entry.decode()[0]} {shown(entry.decode()[1])}" for entry in entries]
    return "The last events before it:\n" + "\n".join(lines)


def _difference(one: Sequence[bytes], other: Sequence[bytes]) -> str:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"Message {index} of the snapshot: {_readable(left)} in the run, {_readable(right)} in the replay."
    return f"The snapshot has {len(one)} messages in the run, {len(other)} in the replay."


def _readable(message: bytes) -> str:
    try:
        return shown(msgspec.msgpack.decode(message))
    except msgspec.MsgspecError:
        return shown(message)


if __name__ == "__main__":
    main(sys.argv[1:])
