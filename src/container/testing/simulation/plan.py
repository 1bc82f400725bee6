"""A plan: everything that a simulated run depends on, as plain data; drawn from a seed, or written by hand."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from container.api import ADMIN_ACTION, BACK_PRESSURED, NOT_CONNECTED, TimeUnit
from container.common.values import shown
from container.errors import ConfigurationError

_MOST_MEMBERS = 100
_LONGEST_MS = 3_600_000
_LONGEST_DELAY_US = 1_000_000
_LARGEST_SEED = 2**64 - 1
_SESSION_MESSAGE_HEADER_LENGTH = 32

LEADER = -1
"""In place of a member's id: the one that leads when the event is due."""


class Start(StrEnum):
    """The state from which a member starts after a crash."""

    SNAPSHOT = "snapshot"
    """Its latest snapshot, and the log behind it."""
    OLDER_SNAPSHOT = "older snapshot"
    """The one before the latest."""
    LOG = "log"
    """The whole log."""
    CUT_SNAPSHOT = "cut snapshot"
    """Its latest snapshot without its last frame. The member must refuse it, and starts from the one before."""


class SnapshotFault(StrEnum):
    """How the archive fails a snapshot."""

    REFUSED = "refused"
    """It does not begin."""
    FAILED = "failed"
    """It is given up after it began."""
    SLOW = "slow"
    """It is complete only after a while."""


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, repr_omit_defaults=True):
    at: int
    """When it is due, in milliseconds of virtual time."""


class OpenSession(_Event, frozen=True, kw_only=True):
    """A client opens its session; a number may open again once its session is closed."""

    client: int
    """The number of the client, from 0."""


class Send(_Event, frozen=True, kw_only=True):
    """A client sends a message."""

    client: int
    """The number of the client, from 0."""
    payload: bytes
    """The message."""


class CloseSession(_Event, frozen=True, kw_only=True):
    """A client closes its session, or falls silent and is timed out."""

    client: int
    """The number of the client, from 0."""
    times_out: bool = False
    """True if the client falls silent instead of closing its session."""


class SendFromService(_Event, frozen=True, kw_only=True):
    """Another service of the cluster sends a message."""

    payload: bytes
    """The message."""


class TakeSnapshot(_Event, frozen=True, kw_only=True):
    """An operator asks for a snapshot."""


class Elect(_Event, frozen=True, kw_only=True):
    """The leader is deposed, and an election gives the cluster another one."""


class Crash(_Event, frozen=True, kw_only=True):
    """A node is killed, and starts again ``down`` milliseconds later."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    down: int
    start: Start = Start.SNAPSHOT
    """The state from which the node starts again."""


class CutMessage(_Event, frozen=True, kw_only=True):
    """The leader is killed while it sends its next long message: the others have the first frames of it.

    It starts again ``down`` milliseconds later.
    """

    down: int


class Stop(_Event, frozen=True, kw_only=True):
    """A node is stopped in order, and starts again ``down`` milliseconds later."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    down: int
    start: Start = Start.SNAPSHOT
    """The state from which the node starts again."""


class CutOff(_Event, frozen=True, kw_only=True):
    """A node loses its network for so many milliseconds."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    duration: int
    """The duration, in milliseconds of virtual time."""


class Pause(_Event, frozen=True, kw_only=True):
    """A container does nothing for so many milliseconds, as one that is stopped or swapped out."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    duration: int
    """The duration, in milliseconds of virtual time."""


class SlowModule(_Event, frozen=True, kw_only=True):
    """A consensus module looks at acks and requests ``duration`` milliseconds later than it could."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    duration: int


class AskForAck(_Event, frozen=True, kw_only=True):
    """A consensus module asks for an ack that it has already."""

    member: int
    """The id of the member, or :data:`LEADER`."""


class FailOffers(_Event, frozen=True, kw_only=True):
    """The next offers to clients return these results, such as -2 for back pressure."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    results: tuple[int, ...]


class FailRequests(_Event, frozen=True, kw_only=True):
    """The next acks and requests of the service return these results."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    results: tuple[int, ...]


class FailSnapshot(_Event, frozen=True, kw_only=True):
    """The archive fails the next snapshot of a member."""

    member: int
    """The id of the member, or :data:`LEADER`."""
    fault: SnapshotFault
    """The failure of the archive."""


class LoseImages(_Event, frozen=True, kw_only=True):
    """At its next change of logs a member loses the old one's image, read to its end or not."""

    member: int


type Operation = OpenSession | Send | CloseSession | SendFromService | TakeSnapshot
"""An action of a client or an operator."""

type Fault = (
    Elect
    | Crash
    | CutMessage
    | Stop
    | CutOff
    | Pause
    | SlowModule
    | AskForAck
    | FailOffers
    | FailRequests
    | FailSnapshot
    | LoseImages
)
"""A fault of a node, its network, its archive or its consensus module."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The events in a simulated cluster. ``msgspec.json`` writes and reads it."""

    seed: int = 0
    """The seed of delays."""
    members: int = 3
    """The number of members."""
    events: tuple[Operation | Fault, ...] = ()
    """Operations of clients and operators, and faults, in the order of their times."""
    latency_us: tuple[int, int] = (50, 200)
    """One way between two members: the least, and the mean, in microseconds."""
    turn_us: tuple[int, int] = (2, 5)
    """The duration of a container's turn: the least, and the mean, in microseconds."""
    module_us: tuple[int, int] = (5, 20)
    """How long a consensus module takes to see what its service sent."""
    cut_rate: float = 0.0
    """How often replication stops for a while at a frame inside of what was sent."""
    clock_offsets_ms: tuple[int, ...] = (0, 0, 0)
    """How far each member's time of day is off."""
    time_unit: TimeUnit = TimeUnit.MILLIS
    """The unit of cluster time."""
    term_length: int = 64 * 1024
    """The length of a term of the log, in bytes."""
    mtu_length: int = 1408
    """The maximum length of a packet of the log, in bytes."""
    log_fragment_limit: int = 50
    """The maximum number of fragments that a container reads from the log in one turn."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The actions of clients and operators."""
        return tuple(event for event in self.events if isinstance(event, OPERATIONS))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults."""
        return tuple(event for event in self.events if not isinstance(event, OPERATIONS))


OPERATIONS = (OpenSession, Send, CloseSession, SendFromService, TakeSnapshot)
FAULTS = (
    Elect,
    Crash,
    CutMessage,
    Stop,
    CutOff,
    Pause,
    SlowModule,
    AskForAck,
    FailOffers,
    FailRequests,
    FailSnapshot,
    LoseImages,
)


_RESULTS: dict[type, tuple[int, ...]] = {
    FailOffers: (NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION),
    FailRequests: (BACK_PRESSURED, ADMIN_ACTION),
}


def check(plan: object) -> None:
    """Refuse a plan that cannot be run, or would take days; raise ConfigurationError."""
    if not isinstance(plan, Plan):
        raise ConfigurationError(f"plan={shown(plan)}: must be a Plan")
    check_size(plan.seed, plan.members)
    check_number("log_fragment_limit", plan.log_fragment_limit, 1, 2**31 - 1)
    for name in ("latency_us", "turn_us", "module_us"):
        for part in getattr(plan, name):
            check_number(name, part, 0, _LONGEST_DELAY_US)
    longest = min(plan.term_length // 8, 16 * 1024 * 1024) - _SESSION_MESSAGE_HEADER_LENGTH
    for number, event in enumerate(plan.events):
        where = f"events[{number}]"
        if not isinstance(event, _Event):
            raise ConfigurationError(f"{where}={shown(event)}: must be an operation or a fault")
        where = f"{where} {type(event).__name__}"
        for name in ("at", "down", "duration"):
            check_number(f"{where}.{name}", getattr(event, name, 0), 0, _LONGEST_MS)
        check_number(f"{where}.member", getattr(event, "member", LEADER), LEADER, plan.members - 1)
        for name, kind in (("start", Start), ("fault", SnapshotFault)):
            if not isinstance(value := getattr(event, name, next(iter(kind))), kind):
                raise ConfigurationError(f"{where}.{name}={shown(value)}: must be a {kind.__name__}")
        allowed = _RESULTS.get(type(event), ())
        results = getattr(event, "results", ())
        if any(result not in allowed for result in results):
            raise ConfigurationError(f"{where}.results={shown(results)}: must be of {shown(allowed)}")
        payload = getattr(event, "payload", b"")
        if not isinstance(payload, bytes) or len(payload) > longest:
            raise ConfigurationError(
                f"{where}.payload={shown(payload, 60)}: must be bytes, {longest} at most in a log of "
                f"term_length={plan.term_length}"
            )


def check_size(seed: int, members: int) -> None:
    """Refuse a seed or a number of members that no plan has; raise ConfigurationError."""
    check_number("seed", seed, 0, _LARGEST_SEED)
    check_number("members", members, 1, _MOST_MEMBERS)


def check_number(name: str, value: object, least: int, most: int) -> None:
    """Refuse what is not a whole number from ``least`` to ``most``; raise ConfigurationError."""
    if type(value) is not int or not least <= value <= most:
        raise ConfigurationError(f"{name}={shown(value)}: must be a whole number from {least} to {most}")
