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
import gc
import hashlib
import io
import itertools
import os
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from container.common.error_texts import message_of
from container.common.object_path import load_object
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError, SnapshotError
from container.snapshots import decode_states
from container.testing.memory_member import (
    MemoryMember,
    MemorySession,
    MemorySnapshot,
    Service,
    ServiceFactory,
    state_in,
)
from container.testing.scripted_consensus_module import ServiceAck

type Life = Callable[[MemoryMember], object]

_NULL_VALUE = -1
_FIELDS_LENGTH = 200
# Stands before what a process found, behind whatever the service printed.
_RESULT = b"\0states:"
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


class HostilePayloadError(ContainerError):
    """A payload made a callback raise, or ended snapshots. ``payload`` (bytes) is the last one that was sent."""

    def __init__(self, text: str, payload: bytes) -> None:
        super().__init__(text)
        self.payload = payload


class MemoryGrowthError(ContainerError):
    """The service keeps what it should not; ``growth`` is in bytes."""

    def __init__(self, text: str, growth: int) -> None:
        super().__init__(text)
        self.growth = growth


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
                f"replaying {self._begin}, the state at log position {position} is not that of another run.\n"
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
    _check_positive(every=every, restarts=restarts)
    with _SnapshottingMember(service, every) as member:
        life(member)
        member.take_snapshot()
        snapshots = member.snapshots[:]
        for snapshot in (None, *_some(snapshots, restarts)):
            member.restart(snapshot)
        return member.compared


class _RestartingMember(MemoryMember):
    """Logs a new term after every so many messages, with a restart before or without; keeps what clients received."""

    def __init__(self, service: ServiceFactory, every: int, *, takes_snapshots: bool, restarts: bool) -> None:
        self._every = every
        self._takes_snapshots = takes_snapshots
        self._restarts = restarts
        self._since = 0
        self._is_between = False
        self.received: list[tuple[int, bytes]] = []
        super().__init__(service)

    def _log(self, log: Callable[[Any], object]) -> None:
        super()._log(log)
        if self._is_between:
            return
        self._since += 1
        if self._since >= self._every > 0:
            self._since = 0
            self._is_between = True
            snapshot = self.take_snapshot() if self._takes_snapshots else None
            if self._restarts:
                self.restart(snapshot)
            else:
                self.new_term()
            self._is_between = False

    def _receive(self, session: MemorySession, payload: bytes) -> None:
        super()._receive(session, payload)
        self.received.append((session.id, payload))

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """What the log has, with the answers at its end."""
        answers = [("answer", {"session": session_id, "payload": payload}) for session_id, payload in self.received]
        logged = [entry.decode() for entry in self.log]
        return [(name, fields) for name, fields in logged if name != _NEW_TERM] + answers


def check_restarts(service: ServiceFactory, life: Life, *, every: int = 10) -> int:
    """Compare runs of ``service`` that restart with runs that do not; return how many events were compared.

    A run is compared with one more of the same; then one that restarts from a new snapshot after each ``every``
    messages of the log, and one that restarts from the beginning of the log, each with one that logs the same and does
    not restart. They must answer the same, in the same order, and log the same timers, messages of the service, and
    closes of sessions: nothing is missing and nothing comes twice. In long lives ``every`` grows: a run has up to 20
    restarts.

    Raises:
        DivergenceError: an event is another one, is missing, or came twice; ``log_position`` is where the log of the
            run with restarts ended.
        ConfigurationError: ``every`` is not positive.
    """
    _check_positive(every=every)
    compared = 0
    expected, _ = _lived(service, life, 0, False, restarts=False)
    every = max(every, len(expected) // _MOST_RESTARTS)
    for way, interval, takes_snapshots in (
        ("run again", 0, False),
        ("restarted from snapshots", every, True),
        ("restarted from the whole log", every, False),
    ):
        if interval:
            expected, _ = _lived(service, life, interval, takes_snapshots, restarts=False)
        events, position = _lived(service, life, interval, takes_snapshots, restarts=True)
        _compare_events(expected, events, way + ", event {} is {}; without a restart it is {}", position)
        compared += len(events)
    return compared


def _compare_events(
    expected: Sequence[tuple[str, dict[str, Any]]],
    events: Sequence[tuple[str, dict[str, Any]]],
    text: str,
    position: int,
) -> None:
    for number, (wanted, found) in enumerate(itertools.zip_longest(expected, events)):
        if wanted != found:
            raise DivergenceError(text.format(number, _event(found), _event(wanted)), position)


def _lived(
    service: ServiceFactory, life: Life, every: int, takes_snapshots: bool, *, restarts: bool
) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    with _RestartingMember(service, every, takes_snapshots=takes_snapshots, restarts=restarts) as member:
        life(member)
        timers = [("timer", {"correlation_id": name, "deadline": deadline}) for name, deadline in member.timers.items()]
        return member.events() + timers, member.log_position


def _event(event: tuple[str, dict[str, Any]] | None) -> str:
    return "nothing" if event is None else f"{event[0]} {shown(event[1])}"


def check_payloads(
    service: ServiceFactory, payloads: Sequence[bytes] = (), *, count: int = 1_000, every: int = 100, seed: int = 1
) -> int:
    """Send ``count`` hostile messages, and take a snapshot and restart from it after each ``every``; return ``count``.

    Messages are random bytes, and those of ``payloads`` (valid ones of your clients) with bytes changed, cut off,
    repeated or replaced by extreme numbers. Whatever a client sends, no callback may raise, and snapshots must work.

    Raises:
        HostilePayloadError: a callback raised; the text has the payload, and the cause is what it raised.
        ConfigurationError: ``count`` or ``every`` is not positive.
    """
    _check_positive(every=every, count=count)
    draws = random.Random(seed)
    with MemoryMember(service) as member:
        payload, what = b"", "the start"
        try:
            for number in range(1, count + 1):
                payload = hostile_payload(draws, payloads)
                what = f"message {number} of seed {seed}"
                while len(member.sessions) < 2:  # the service may close those that send nonsense
                    member.open_session(b"ada")
                draws.choice(member.sessions).send(payload)
                member.advance(draws.choice((0, 0, 1, 1_000)))
                if number % every == 0:
                    what = f"the snapshot after message {number} of seed {seed}, which"
                    member.restart(member.take_snapshot())
        except Exception as error:
            raise HostilePayloadError(
                f"{what} is {shown(payload)}: {type(error).__name__}: {message_of(error)}", payload
            ) from error
    return count


def hostile_payload(draws: random.Random, payloads: Sequence[bytes]) -> bytes:
    """Random bytes, or one of ``payloads`` with bytes changed, cut off, repeated or replaced by extreme numbers."""
    if not payloads or draws.random() < 0.2:
        return draws.randbytes(draws.choice((0, 1, 8, 40, 1_000)))
    payload = bytearray(draws.choice(payloads))
    for _ in range(draws.choice((1, 1, 2, 5))):
        at = draws.randrange(len(payload) + 1)
        match draws.randrange(5):
            case 0 if payload:
                payload[at % len(payload)] = draws.choice((0, 1, 0x7F, 0x80, 0xFF, draws.randrange(256)))
            case 1:
                del payload[at:]
            case 2:
                payload[at:at] = payload[at : at + 16]
            case 3:
                payload[at : at + 8] = draws.choice(_EXTREME_NUMBERS)
            case _:
                payload[at:at] = draws.randbytes(draws.choice((1, 4, 200)))
    return bytes(payload[:_LONGEST_PAYLOAD])


_EXTREME_NUMBERS = tuple(
    number.to_bytes(8, "little", signed=True) for number in (0, -1, 1, 2**63 - 1, -(2**63), 2**31, 2**53)
)
_NEW_TERM = "NewLeadershipTermEvent"
_MOST_RESTARTS = 20
# Less than the log takes: 128 KiB with the header of a session message.
_LONGEST_PAYLOAD = 100_000


def check_memory(service: ServiceFactory, life: Life, *, times: int = 100, limit: int = 100_000) -> int:
    """Run ``life`` many times over on one member; return by how many bytes Python's memory grew in the second half.

    The life must end as it began: with its sessions closed, and nothing more for the service to keep. What grows then
    is kept by mistake. Other threads should rest meanwhile.

    Raises:
        MemoryGrowthError: memory grew by more than ``limit`` bytes; the text has the lines that allocated most of it.
        ConfigurationError: ``times`` is less than 2.
    """
    if times < 2:
        raise ConfigurationError(f"times={times}: must be at least 2")
    tracer_ran = tracemalloc.is_tracing()
    tracemalloc.start()  # before the first life: what is freed later must have been counted
    try:
        with _ForgetfulMember(service) as member:
            for _ in range(times // 2):
                life(member)
            before = _allocations()
            for _ in range(times - times // 2):
                life(member)
            after = _allocations()
    finally:
        if not tracer_ran:
            tracemalloc.stop()
    differences = after.compare_to(before, "lineno")
    growth = sum(entry.size_diff for entry in differences)
    if growth > limit:
        lines = "\n  ".join(str(entry) for entry in differences[:5])
        raise MemoryGrowthError(
            f"{times - times // 2} lives left {growth} bytes more, and the limit is {limit}; most of it from\n"
            f"  {lines}",
            growth,
        )
    return growth


def _allocations() -> tracemalloc.Snapshot:
    gc.collect()
    return tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(False, __file__), tracemalloc.Filter(False, tracemalloc.__file__)]
    )


class _ForgetfulMember(MemoryMember):
    """Keeps no log, and no session that is closed."""

    def _log(self, log: Callable[[Any], object]) -> None:
        super()._log(log)
        self._entries.clear()
        self._all_sessions = {session.id: session for session in self.sessions}


def check_upgrade(old: ServiceFactory, new: ServiceFactory, life: Life, *, every: int = 10, restarts: int = 10) -> int:
    """Compare starts of ``new`` from snapshots of ``old``; return how many states were compared.

    Both run through ``life``: they must answer the same, and log the same timers, messages of the service, and closes
    of sessions. Then ``old`` takes a snapshot after each ``every`` messages of the log. ``new`` starts from
    ``restarts`` of these, and from nothing, and replays the log behind it, as members do in a rolling upgrade. All must
    come to the same states.

    Raises:
        DivergenceError: an event differs, or two states do; as in :func:`check_restarts` and :func:`check_replays`.
        SnapshotError: ``new`` cannot read a snapshot.
        ConfigurationError: ``every`` or ``restarts`` is not positive.
    """
    _check_positive(every=every, restarts=restarts)
    expected, _ = _lived(old, life, 0, False, restarts=False)
    events, position = _lived(new, life, 0, False, restarts=False)
    _compare_events(expected, events, "with the new release, event {} is {}; with the old one it is {}", position)
    with _SnapshottingMember(old, every) as member:
        life(member)
        member.take_snapshot()
        snapshots = member.snapshots[:]
        member.states.clear()
        member.compared = 0
        for snapshot in (None, *_some(snapshots, restarts)):
            member.restart(snapshot, service=new)
            member.take_snapshot()  # the others replay it
        return member.compared


def write_golden_snapshot(service: ServiceFactory, life: Life, path: str | Path) -> None:
    """Write the snapshot that ``service`` takes after ``life`` to a file, for :func:`check_golden_snapshots`.

    Raises FileExistsError: a golden snapshot is never written again, as a release may have taken it.
    """
    with MemoryMember(service) as member:
        life(member)
        data = msgspec.msgpack.encode(member.take_snapshot())
    with Path(path).open("xb") as file:
        file.write(data)


def check_golden_snapshots(service: ServiceFactory, directory: str | Path) -> int:
    """Start ``service`` from each ``*.snapshot`` of a directory; return how many there are.

    Each start must come to a state from which another snapshot can be taken and loaded, with the same state again.

    Raises:
        DivergenceError: a state is another one after that.
        SnapshotError: ``service`` cannot read a snapshot, or a file is no golden snapshot; a note names the file.
        ConfigurationError: the directory has none.
    """
    paths = sorted(Path(directory).glob("*.snapshot"))
    if not paths:
        raise ConfigurationError(f"directory={shown(str(directory))}: has no golden snapshot (*.snapshot)")
    for path in paths:
        try:
            _check_golden(service, path.read_bytes())
        except Exception as error:
            error.add_note(f"golden snapshot: {path}")
            raise
    return len(paths)


def _check_golden(service: ServiceFactory, data: bytes) -> None:
    try:
        golden = msgspec.msgpack.decode(data, type=MemorySnapshot)
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"not written by write_golden_snapshot: {error}") from error
    with MemoryMember(service, snapshot=golden) as member:
        first = member.take_snapshot()
        member.restart(first)
        second = member.take_snapshot()
        if second.state != first.state:
            raise DivergenceError(
                f"a restart changes the state: {_difference(first.state, second.state)}", second.log_position
            )


def count_states(service: ServiceFactory, life: Life) -> int:
    """Return how many different states the snapshots of ``service`` show over ``life``, one after each event."""
    return len(set(_states(service, life).values()))


def _states(service: ServiceFactory, life: Life) -> dict[int, tuple[bytes, ...]]:
    """The state after each event, by log position."""
    with _SnapshottingMember(service, 1) as member:
        life(member)
        member.take_snapshot()
        return member.states


def _some(snapshots: Sequence[MemorySnapshot], count: int) -> Sequence[MemorySnapshot]:
    return snapshots[:: -(-len(snapshots) // count)]


def _check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigurationError(f"{name}={shown(count)}: must be at least 1")


def check_calls(service: ServiceFactory, life: Life) -> None:
    """Run ``life`` and look at each call that callbacks make.

    Python's ``logging``, ``traceback`` and ``warnings`` and the import of modules may do what they like. What was made
    before the first callback, such as random numbers without a seed, is not seen here: :func:`check_restarts` finds it.

    Raises:
        ForbiddenCallError: a callback called a clock, ``sleep``, random numbers without a seed of their own, files,
            the network or threads. The text names each function with the file and line that called it.
    """
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, function: Any) -> None:
        name = _forbidden(frame, function) if event == "c_call" else None
        if name is not None and (line := _line_of(frame)):
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


def check_environments(
    service: str | ServiceFactory, life: str | Life, *, environments: Sequence[Mapping[str, str]] = _ENVIRONMENTS
) -> int:
    """Run ``life`` in a process for each of several environments; return how many states were compared.

    ``service`` and ``life`` are ``package.module:name``, found from the current directory, or what a module has, which
    the processes import again. By default the environments differ in the order of sets and hashes (``PYTHONHASHSEED``),
    the time zone and the language.

    Raises:
        DivergenceError: two processes came to other states; the text has the position and both environments.
        ConfigurationError: service or life cannot be imported by another process.
        ContainerError: a process failed; the text has the end of what it printed.
    """
    for name, given in (("service", service), ("life", life)):
        if isinstance(given, str):
            load_object(given, name)  # a mistake is reported here, and not by a process
        elif getattr(given, "__module__", None) == "__main__":
            raise ConfigurationError(f"{name}={shown(given)}: is of __main__, which another process cannot import")
    try:
        task = pickle.dumps((service, life))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"service={shown(service)}, life={shown(life)}: another process cannot import them: {error}"
        ) from error
    outcomes = [_outcome(task, environment) for environment in environments]
    first = outcomes[0]
    for environment, outcome in zip(environments[1:], outcomes[1:], strict=True):
        for position in sorted(first.keys() | outcome.keys()):
            if first.get(position) != outcome.get(position):
                raise DivergenceError(
                    f"the state at log position {position} differs between processes with "
                    f"{shown(dict(environments[0]))} and {shown(dict(environment))}: "
                    f"{_cause(task, environments[0], environment, first)}",
                    position,
                )
    return len(first) * len(outcomes)


def _cause(task: bytes, environment: Mapping[str, str], other: Mapping[str, str], expected: Mapping[int, str]) -> str:
    """Which of the variables makes the difference, by more processes."""
    if _outcome(task, environment) != expected:
        return "it differs in the same environment too; look for clocks, random numbers and addresses of objects"
    alone = [
        name
        for name in other
        if other[name] != environment.get(name) and _outcome(task, {**environment, name: other[name]}) != expected
    ]
    hints = "; ".join(_HINTS[name] for name in alone if name in _HINTS)
    return f"it differs with {' or '.join(alone) or 'several of them together'}{'; ' * bool(hints)}{hints}"


_HINTS = {
    "PYTHONHASHSEED": "look for sets of texts or bytes, and hash()",
    "TZ": "look for local time",
    "LC_ALL": "look for sorting or formatting by language",
}


def _outcome(task: bytes, environment: Mapping[str, str]) -> dict[int, str]:
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "container.testing.checks"],
            input=task,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ContainerError(
            f"the life did not end within {_LIMIT_S:g} s in a process with {shown(dict(environment))}"
        ) from None
    _, is_there, last = ended.stdout.rpartition(_RESULT)
    if ended.returncode != 0 or not is_there:
        raise ContainerError(
            f"the service failed in a process with {shown(dict(environment))}, code {ended.returncode}: "
            f"{ended.stderr.decode(errors='replace')[-2000:]}"
        )
    return msgspec.json.decode(last, type=dict[int, str])


def main() -> None:
    """Print the digests of a service's states by log position, as JSON; standard input has service and life."""
    service, life = (
        load_object(given, name) if isinstance(given, str) else given
        for given, name in zip(pickle.load(sys.stdin.buffer), ("service", "life"), strict=True)
    )
    digests = {
        position: hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in state)).hexdigest()
        for position, state in _states(service, life).items()
    }
    sys.stdout.flush()
    sys.stdout.buffer.write(_RESULT + msgspec.json.encode(digests))
    sys.stdout.flush()


# Modules whose frames stand between a user's line and a forbidden call.
_LIBRARY = frozenset(
    [
        "datetime",
        "genericpath",
        "glob",
        "io",
        "os",
        "pathlib",
        "posixpath",
        "random",
        "secrets",
        "shutil",
        "socket",
        "tempfile",
        "threading",
        "uuid",
    ]
)
# Modules that may do what they like: it does not come back to the service.
_PARDONED = frozenset({"importlib", "linecache", "logging", "tokenize", "traceback", "warnings"})
_CLOCKS = (
    "clock_gettime clock_gettime_ns ctime gmtime localtime monotonic monotonic_ns perf_counter perf_counter_ns "
    "process_time process_time_ns sleep thread_time thread_time_ns time time_ns"
)
_OF_THE_SYSTEM = (
    "access chmod cpu_count getcwd getloadavg getpid getppid getrandom link listdir lstat mkdir open readlink remove "
    "rename replace rmdir scandir stat statvfs symlink system times truncate unlink urandom utime"
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
    )
    for name in names.split()
    if hasattr(module, name)
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
        room = frame.f_globals.get("__name__", "").partition(".")[0]
        if room in _PARDONED:
            return None
        if line is None and room not in _LIBRARY:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return line


def _events_before(member: MemoryMember, position: int, count: int) -> str:
    entries = [entry for entry in member.log if entry.position <= position][-count - 1 :]
    lines = []
    for entry in entries:
        name, fields = entry.decode()
        payload = f" {shown(fields.pop('payload'))}" if "payload" in fields else ""
        lines.append(f"  {entry.position}: {name}{payload} {shown(fields, _FIELDS_LENGTH)}")
    return "The last events before it:\n" + "\n".join(lines)


def _difference(one: Sequence[bytes], other: Sequence[bytes]) -> str:
    try:
        states, other_states = decode_states(one), decode_states(other)
    except SnapshotError:
        states = other_states = {}  # in a format of the service's own
    if found := _first_difference(states, other_states, ""):
        path, left, right = found
        return f"{path}: {left} in the other run, {right} now."
    for index, (message, other_message) in enumerate(zip(one, other, strict=False)):
        if message != other_message:
            pairs = enumerate(zip(message, other_message, strict=False))
            at = next(
                (at for at, (byte, other_byte) in pairs if byte != other_byte), min(len(message), len(other_message))
            )
            begin = max(at - 16, 0)
            return (
                f"Message {index} of the snapshot differs from byte {at} on: {shown(message[begin:])} in the other "
                f"run, {shown(other_message[begin:])} now, both from byte {begin} on."
            )
    return f"The snapshot has {len(one)} messages in the other run, {len(other)} now."


def _first_difference(one: Any, other: Any, path: str) -> tuple[str, str, str] | None:
    """The place of the first value that differs, and both values as text; None when there is none."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one:
            if key in other and (found := _first_difference(one[key], other[key], f"{path}.{key}".lstrip("."))):
                return found
        if list(one) != list(other):
            return f"the keys of {path}, or their order", shown(list(one)), shown(list(other))
        return None
    if isinstance(one, list) and isinstance(other, list):
        for index, (value, other_value) in enumerate(zip(one, other, strict=False)):
            if found := _first_difference(value, other_value, f"{path}[{index}]"):
                return found
        return None if len(one) == len(other) else (f"the length of {path}", str(len(one)), str(len(other)))
    return None if one == other and type(one) is type(other) else (path, shown(one), shown(other))


if __name__ == "__main__":
    main()
