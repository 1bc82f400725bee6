"""From a seed to a plan. Each seed first decides which kinds of faults it has at all, then how often they come."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from operator import attrgetter

from container.api import ADMIN_ACTION, BACK_PRESSURED, NOT_CONNECTED, TimeUnit
from container.common.values import shown
from container.errors import ConfigurationError
from container.testing.memory.checks import hostile_payload
from container.testing.simulation import plan as plans
from container.testing.simulation.plan import LEADER, Fault, Operation, Plan, SnapshotFault, Start

_MOST_CLIENTS = 6
_MOST_TERM_LENGTH = 128 * 1024 * 1024
_HEADERS_LENGTH = 64
_PLAIN_SHARE = 0.1
"""The share of seeds without any fault: a failure there is a plain bug."""


type Payloads = Sequence[bytes] | Callable[[random.Random], bytes]


def expand(
    seed: int,
    *,
    payloads: Payloads = (),
    members: int | None = None,
    operations: int = 80,
    time_unit: TimeUnit | None = None,
) -> Plan:
    """Draw a plan from ``seed``; the arguments are those of :func:`~container.testing.simulation.simulate`."""
    plans.check_size(seed, 1 if members is None else members)
    plans.check_number("operations", operations, 0, 1_000_000)
    draws = random.Random(seed)
    count = members if members is not None else draws.choices((1, 3, 5), (10, 86, 4))[0]
    duration = draws.choice((300, 1_000, 3_000))
    events: list[Operation | Fault] = [*_operations(draws, payloads, duration, operations)]
    if draws.random() >= _PLAIN_SHARE:
        events += _faults(draws, count, duration)
    is_slow = draws.random() < 0.1
    longest = max((len(getattr(event, "payload", b"")) for event in events), default=0)
    return Plan(
        seed=seed,
        members=count,
        events=tuple(sorted(events, key=attrgetter("at"))),
        latency_us=draws.choice(((10, 20), (50, 200), (200, 2_000), (1_000, 40_000) if is_slow else (100, 500))),
        turn_us=draws.choice(((2, 2), (2, 5), (5, 50))),
        module_us=draws.choice(((5, 20), (20, 500), (1_000, 5_000))),
        cut_rate=draws.choice((0.0, 0.1, 0.5)),
        clock_offsets_ms=tuple(draws.choice((0, draws.randint(-5_000, 5_000))) for _ in range(count)),
        time_unit=_time_unit(draws, time_unit),
        term_length=_term_length(draws.choice((64 * 1024, 64 * 1024, 1024 * 1024)), longest),
        mtu_length=draws.choice((1408, 1408, 96, 256, 8192)),
        log_fragment_limit=draws.choice((50, 50, 1, 7)),
    )


def _time_unit(draws: random.Random, given: TimeUnit | None) -> TimeUnit:
    drawn = draws.choices(list(TimeUnit), (8, 1, 1))[0]  # also when one is given: the other draws stay as they are
    return drawn if given is None else given


def _term_length(drawn: int, longest: int) -> int:
    """One that carries the longest message."""
    while drawn < _MOST_TERM_LENGTH and drawn // 8 < longest + _HEADERS_LENGTH:
        drawn *= 2
    return drawn


def _operations(draws: random.Random, payloads: Payloads, duration: int, count: int) -> list[Operation]:
    clients = draws.randint(1, _MOST_CLIENTS)
    open_at_first = draws.randint(1, clients)
    found: list[Operation] = [plans.OpenSession(at=0, client=client) for client in range(open_at_first)]
    churn = draws.choice((0.02, 0.1, 0.3))
    snapshots = draws.choice((0.0, 0.02, 0.05))
    from_services = draws.choice((0.0, 0.0, 0.05))
    at = 0.0
    for _ in range(count):
        if draws.random() < 0.5:  # the others come in bursts
            at += draws.expovariate(count / 2 / duration)
        roll = draws.random()
        client = draws.randrange(clients)
        if roll < churn:
            if draws.random() < 0.5:
                found.append(plans.OpenSession(at=int(at), client=client))
            else:
                found.append(plans.CloseSession(at=int(at), client=client, times_out=draws.random() < 0.3))
        elif roll < churn + snapshots:
            found.append(plans.TakeSnapshot(at=int(at)))
        elif roll < churn + snapshots + from_services:
            found.append(plans.SendFromService(at=int(at), payload=payload_of(draws, payloads)))
        else:
            found.append(plans.Send(at=int(at), client=client, payload=payload_of(draws, payloads)))
    return found


def payload_of(draws: random.Random, payloads: Payloads) -> bytes:
    """A message of a client: mostly one of ``payloads``, or a damaged one; random bytes without any."""
    if payloads and draws.random() < 0.95:
        return _drawn(draws, payloads)
    if draws.random() < 0.1:
        return draws.randbytes(draws.choice((1_500, 6_000)))
    return hostile_payload(draws, (_drawn(draws, payloads),) if callable(payloads) else payloads)[:2_000]


def _drawn(draws: random.Random, payloads: Payloads) -> bytes:
    payload = payloads(draws) if callable(payloads) else draws.choice(payloads)
    if not isinstance(payload, bytes):
        raise ConfigurationError(f"payloads: {shown(payload)} must be bytes")
    return payload


def _faults(draws: random.Random, members: int, duration: int) -> list[Fault]:
    found: list[Fault] = []
    for make in _KINDS:
        if draws.random() < 0.5:
            continue
        for _ in range(draws.choice((1, 1, 2, 4))):
            found.append(make(draws, int(draws.random() * duration), _member(draws, members), duration))
    return found


def _member(draws: random.Random, members: int) -> int:
    return LEADER if draws.random() < 0.4 else draws.randrange(members)


def _crash(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    down = draws.choice((1, 50, duration // 2))
    start = draws.choices(list(Start), (5, 2, 3, 2))[0]
    return plans.Crash(at=at, member=member, down=down, start=start)


def _cut_message(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.CutMessage(at=at, down=draws.choice((1, 50, duration // 2)))


def _stop(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.Stop(at=at, member=member, down=draws.choice((1, 50)), start=draws.choice((Start.SNAPSHOT, Start.LOG)))


def _cut_off(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.CutOff(at=at, member=member, duration=draws.choice((5, 100, duration)))


def _elect(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.Elect(at=at)


def _pause(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.Pause(at=at, member=member, duration=draws.choice((5, 50, duration)))


def _slow_module(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.SlowModule(at=at, member=member, duration=draws.choice((5, 50, 200)))


def _ask_for_ack(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.AskForAck(at=at, member=member)


def _fail_offers(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    results = (BACK_PRESSURED, ADMIN_ACTION, NOT_CONNECTED)
    return plans.FailOffers(
        at=at, member=member, results=tuple(draws.choice(results) for _ in range(draws.choice((1, 3, 20))))
    )


def _fail_requests(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    results = (BACK_PRESSURED, ADMIN_ACTION)
    return plans.FailRequests(
        at=at, member=member, results=tuple(draws.choice(results) for _ in range(draws.choice((1, 3, 6))))
    )


def _fail_snapshot(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.FailSnapshot(at=at, member=member, fault=draws.choice(list(SnapshotFault)))


def _lose_images(draws: random.Random, at: int, member: int, duration: int) -> Fault:
    return plans.LoseImages(at=at, member=member)


_KINDS: tuple[Callable[[random.Random, int, int, int], Fault], ...] = (
    _crash,
    _cut_message,
    _stop,
    _cut_off,
    _elect,
    _pause,
    _slow_module,
    _ask_for_ack,
    _fail_offers,
    _fail_requests,
    _fail_snapshot,
    _lose_images,
)
