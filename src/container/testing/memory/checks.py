"""Checks that find what would let replicas diverge: a service against its replays, environments and forbidden calls.

A check runs a *life*: a function that gets a :class:`~container.testing.MemoryMember` and does with it
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

import gc
import itertools
import logging
import os
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from container.api import BACK_PRESSURED, NOT_CONNECTED
from container.common.differences import shown_apart
from container.common.error_texts import message_of
from container.common.values import shown
from container.errors import ConfigurationError, ContainerError, SnapshotError
from container.service.state_difference import state_difference
from container.testing.memory.check_findings import (
    DivergenceError,
    ForbiddenCallError,
    HostilePayloadError,
    Life,
    MemoryGrowthError,
    check_positive,
)
from container.testing.memory.environments import ENVIRONMENTS, Environment, check_environments
from container.testing.memory.forbidden_calls import check_calls
from container.testing.memory.memory_member import MemoryMember, MemorySession, MemorySnapshot, ServiceFactory
from container.testing.memory.snapshotting_member import SnapshottingMember, states_of

__all__ = [
    "ENVIRONMENTS",
    "DivergenceError",
    "Environment",
    "ForbiddenCallError",
    "HostilePayloadError",
    "Life",
    "MemoryGrowthError",
    "check_calls",
    "check_environments",
    "check_golden_snapshots",
    "check_memory",
    "check_payloads",
    "check_replays",
    "check_restarts",
    "check_upgrade",
    "compare_golden_snapshot",
    "count_states",
    "hostile_payload",
    "write_golden_snapshot",
]

_NEW_TERM = "NewLeadershipTermEvent"
_MOST_RESTARTS = 20


def check_replays(service: ServiceFactory, life: Life, *, every: int = 10, restarts: int = 10) -> int:
    """Compare a run of ``service`` with its replays; return how many states were compared.

    The run takes a snapshot after each ``every`` messages of the log. Then the service replays the log from nothing,
    and from ``restarts`` of these snapshots. At each snapshot its state must be that of the run.

    Raises:
        DivergenceError: a state differs. The text has the log position, the last events before it, and the first
            message of the snapshot that differs.
        ConfigurationError: ``every`` or ``restarts`` is not positive.
    """
    check_positive(every=every, restarts=restarts)
    with SnapshottingMember(service, every) as member:
        life(member)
        member.take_snapshot()
        snapshots = member.snapshots[:]
        for snapshot in (None, *_some(snapshots, restarts)):
            member.restart(snapshot)
        return member.compared


class _RestartingMember(MemoryMember):
    """Logs a new term after a number of messages each, with or without a restart before it; keeps the clients'
    answers."""

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
        """The events of the log, with the answers at its end."""
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
    check_positive(every=every)
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
            raise DivergenceError(text.format(number, *_events_apart(found, wanted)), position)


def _lived(
    service: ServiceFactory, life: Life, every: int, takes_snapshots: bool, *, restarts: bool
) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    with _RestartingMember(service, every, takes_snapshots=takes_snapshots, restarts=restarts) as member:
        life(member)
        timers = [("timer", {"correlation_id": name, "deadline": deadline}) for name, deadline in member.timers.items()]
        return member.events() + timers, member.log_position


def _events_apart(
    found: tuple[str, dict[str, Any]] | None, wanted: tuple[str, dict[str, Any]] | None
) -> tuple[str, str]:
    if found is None or wanted is None or found[0] != wanted[0]:
        return _event(found), _event(wanted)
    left, right = shown_apart(found[1], wanted[1])
    return f"{found[0]} {left}", f"{wanted[0]} {right}"


def _event(event: tuple[str, dict[str, Any]] | None) -> str:
    return "nothing" if event is None else f"{event[0]} {shown(event[1])}"


def check_payloads(
    service: ServiceFactory, payloads: Sequence[bytes] = (), *, count: int = 1_000, every: int = 100, seed: int = 1
) -> int:
    """Send ``count`` hostile messages, and take a snapshot and restart from it after each ``every``; return ``count``.

    Messages are random bytes, and those of ``payloads`` (valid ones of your clients) with bytes changed, cut off,
    repeated or replaced by extreme numbers. Some come from clients that take no answers any more. No action of a client
    may make a callback raise or offer without an end, and snapshots must work.

    Raises:
        HostilePayloadError: a callback raised, or made 9,000 offers to a client that takes none; the text has the
            payload, and the cause is what was raised.
        ConfigurationError: ``count`` or ``every`` is not positive.
    """
    check_positive(every=every, count=count)
    draws = random.Random(seed)
    with MemoryMember(service) as member:
        payload, what = b"", "the start"
        try:
            for number in range(1, count + 1):
                payload = hostile_payload(draws, payloads)
                what = f"message {number} of seed {seed}"
                while len(member.sessions) < 2:  # the service may close sessions that send nonsense
                    member.open_session(b"ada")
                if number % _DEAF_EVERY == 0:
                    result = BACK_PRESSURED if number % (2 * _DEAF_EVERY) == 0 else NOT_CONNECTED
                    member._script_offers([*[result] * _MOST_OFFERS, ContainerError(_ENDLESS_OFFERS)])
                draws.choice(member.sessions).send(payload)
                member._script_offers(())
                member.advance(draws.choice((0, 0, 1, 1_000)))
                if number % every == 0:
                    what = f"the snapshot after message {number} of seed {seed}, which"
                    member.restart(member.take_snapshot())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a payload that ends the process is as bad
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
        match draws.randrange(6):
            case 0 if payload:
                payload[at % len(payload)] = draws.choice((0, 1, 0x7F, 0x80, 0xFF, draws.randrange(256)))
            case 1:
                del payload[at:]
            case 2:
                payload[at:at] = payload[at : at + 16]
            case 3:
                payload[at : at + 8] = draws.choice(_EXTREME_NUMBERS)
            case 4:
                payload[at:at] = draws.choice(_BAD_TEXTS)
            case _:
                payload[at:at] = draws.randbytes(draws.choice((1, 4, 200)))
    return bytes(payload[:_LONGEST_PAYLOAD])


_EXTREME_NUMBERS = tuple(
    number.to_bytes(8, "little", signed=True) for number in (0, -1, 1, 2**63 - 1, -(2**63), 2**31, 2**53)
)
# Payloads for texts and JSON: digits that int() refuses, a lone surrogate, no number, a long number, no UTF-8.
_BAD_TEXTS = ("\u00b2".encode(), b"\\ud800", b"NaN", b"1e999", b"9" * 30, b"\xed\xa0\x80", b"[" * 2_000, b"\0")
# Below the limit of the log, which is 128 KiB with the header of a session message.
_LONGEST_PAYLOAD = 100_000
# One message in this many comes from a client that takes no answers; this many offers count as endless.
_DEAF_EVERY = 25
_MOST_OFFERS = 9_000
_ENDLESS_OFFERS = (
    f"a callback made {_MOST_OFFERS:,} offers to a client that takes none: session.send() repeats for as long as is "
    "good"
)


def check_memory(
    service: ServiceFactory, life: Life, *, times: int = 100, messages: int | None = None, limit: int = 100_000
) -> int:
    """Run ``life`` many times over on one member; return by how many bytes Python's memory grew in the second half.

    The life must end as it began: with its sessions closed, and nothing more for the service to keep. Memory that grows
    then is kept by mistake. With ``messages``, lives repeat until the log has had that many messages, instead of
    ``times`` lives: a million messages reveal a leak of one byte each. Other threads should rest meanwhile. Nothing is
    logged in the whole process: a handler that keeps records, as pytest's does, would grow.

    Raises:
        MemoryGrowthError: memory grew by more than ``limit`` bytes; the text has the lines that allocated most of it.
        ConfigurationError: ``times`` or ``messages`` is less than 2, or the life logs no message.
    """
    name, count = ("times", times) if messages is None else ("messages", messages)
    if count < 2:
        raise ConfigurationError(f"{name}={count}: must be at least 2")
    tracer_ran, logged_above = tracemalloc.is_tracing(), logging.root.manager.disable
    logging.disable()
    tracemalloc.start()  # before the first life: memory that is freed later must have been counted
    try:
        with _ForgetfulMember(service) as member:
            first = _live_on(member, life, messages, times // 2)
            before = _allocations()
            second = _live_on(member, life, messages, times - times // 2)
            after = _allocations()
    finally:
        logging.disable(logged_above)
        if not tracer_ran:
            tracemalloc.stop()
    differences = after.compare_to(before, "lineno")
    growth = sum(entry.size_diff for entry in differences)
    if growth > limit:
        lines = "\n  ".join(str(entry) for entry in differences[:5])
        raise MemoryGrowthError(
            f"after {first} lives, {second} more left {growth} bytes more, and the limit is {limit} (a bounded store "
            f"that is not full yet grows as well: check more messages, or make it smaller); most of it from\n  {lines}",
            growth,
        )
    return growth


def _live_on(member: _ForgetfulMember, life: Life, messages: int | None, times: int) -> int:
    """Run a life ``times`` times, or until the log has had half of the messages; return how often it ran."""
    begin = member.count
    lives = 0
    while lives < times if messages is None else member.count - begin < messages / 2:
        life(member)
        lives += 1
        if messages is not None and member.count == begin:
            raise ConfigurationError(f"messages={messages}: the life logs no message")
    return lives


def _allocations() -> tracemalloc.Snapshot:
    gc.collect()
    return tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(False, __file__), tracemalloc.Filter(False, tracemalloc.__file__)]
    )


class _ForgetfulMember(MemoryMember):
    """Keeps neither the log, nor the mark file, nor closed sessions; counts logged messages."""

    def __init__(self, service: ServiceFactory) -> None:
        self.count = 0
        super().__init__(service)

    def _log(self, log: Callable[[Any], object]) -> None:
        super()._log(log)
        self.count += len(self._entries)
        self._entries.clear()
        self._scripted.mark_file.activity_timestamps.clear()
        self._scripted.mark_file.member_ids.clear()
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
    check_positive(every=every, restarts=restarts)
    expected, _ = _lived(old, life, 0, False, restarts=False)
    events, position = _lived(new, life, 0, False, restarts=False)
    _compare_events(expected, events, "with the new release, event {} is {}; with the old one it is {}", position)
    with SnapshottingMember(old, every) as member:
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

    The directory is made when it is missing. Raise FileExistsError: a golden snapshot is never written again, as a
    release may have taken it.
    """
    with MemoryMember(service) as member:
        life(member)
        data = msgspec.msgpack.encode(member.take_snapshot())
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("xb") as file:
        file.write(data)


def compare_golden_snapshot(service: ServiceFactory, life: Life, path: str | Path, *, update: bool = False) -> bool:
    """Compare the state of ``service`` after ``life`` with a golden snapshot; return whether the file was written.

    With ``update`` it is written when it is missing, unreadable or has another state. Do that only with the snapshot
    of a version that is not released: a member may have taken that of a release.

    Raises:
        DivergenceError: the state differs.
        SnapshotError: the file is not a golden snapshot; a note names it.
        ConfigurationError: the file is missing.
    """
    with MemoryMember(service) as member:
        life(member)
        present = member.take_snapshot()
    file = Path(path)
    try:
        golden = _golden(file.read_bytes())
        if golden.state == present.state:
            return False
        error: ContainerError = DivergenceError(
            f"{file}: the state after this life is not that of the golden snapshot: "
            f"{state_difference(golden.state, present.state, run='in the snapshot')} {_UPDATE_ADVICE}",
            present.log_position,
        )
    except FileNotFoundError:
        error = ConfigurationError(f"{file}: there is no such golden snapshot. {_UPDATE_ADVICE}")
    except SnapshotError as damage:
        damage.add_note(f"golden snapshot: {file}")
        error = damage
    if not update:
        raise error
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.write_bytes(msgspec.msgpack.encode(present))
    fresh.replace(file)
    return True


_UPDATE_ADVICE = (
    "If this version is not released yet, write the snapshot with `pytest --update-golden` or update=True; "
    "after a release raise the version"
)


def check_golden_snapshots(service: ServiceFactory, directory: str | Path) -> int:
    """Start ``service`` from each ``*.snapshot`` of a directory; return how many there are.

    Each start must come to a state from which another snapshot can be taken and loaded, with the same state again.

    Raises:
        DivergenceError: a state is another one after that.
        SnapshotError: ``service`` cannot read a snapshot, or a file is not a golden snapshot; a note names the file.
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


def _golden(data: bytes) -> MemorySnapshot:
    try:
        return msgspec.msgpack.decode(data, type=MemorySnapshot)
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"not written by write_golden_snapshot: {error}") from error


def _check_golden(service: ServiceFactory, data: bytes) -> None:
    with MemoryMember(service, snapshot=_golden(data)) as member:
        first = member.take_snapshot()
        member.restart(first)
        second = member.take_snapshot()
        if second.state != first.state:
            raise DivergenceError(
                f"a restart changes the state: {state_difference(first.state, second.state)}", second.log_position
            )


def count_states(service: ServiceFactory, life: Life) -> int:
    """Return how many different states the snapshots of ``service`` show over ``life``, one after each event."""
    return len(set(states_of(service, life).values()))


def _some(snapshots: Sequence[MemorySnapshot], count: int) -> Sequence[MemorySnapshot]:
    return snapshots[:: -(-len(snapshots) // count)]
