"""Hypothesis strategies for services: lives that shrink, and a state machine that finds what a restart forgets.

It needs Hypothesis: ``pip install "aeron-cluster-container[testing]"``. Lives go into the checks::

    @given(lives(payloads=st.sampled_from([b"one+1", b"two+x"])))
    def test_replays(life):
        check_replays(Counter, life)

A machine drives a member itself, step by step, with restarts and faults::

    class CounterMachine(ServiceMachine):
        service = Counter
        payloads = st.sampled_from([b"one+1", b"two+x"])

        @invariant()
        def is_never_negative(self):
            assert self.member.service.total >= 0


    TestCounter = CounterMachine.TestCase
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import (
        Bundle,
        MultipleResults,
        RuleBasedStateMachine,
        consumes,
        multiple,
        precondition,
        rule,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{__name__} needs Hypothesis, and there is no module {error.name}: "
        'pip install "aeron-cluster-container[testing]"',
        name=error.name,
    ) from error

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, NOT_CONNECTED, CloseReason, Role
from container.common.differences import shown_apart
from container.common.values import shown
from container.errors import ConfigurationError
from container.testing.memory.check_findings import DivergenceError
from container.testing.memory.memory_member import MemoryMember, MemorySession, MemorySnapshot, ServiceFactory
from container.testing.memory.reference_member import ComparedMember
from container.testing.memory.scripted_life import (
    Advance,
    ChangeRole,
    CloseSession,
    FireNextTimer,
    InjectServiceMessage,
    NewTerm,
    OpenSession,
    ScriptedLife,
    Send,
)

__all__ = ["ServiceMachine", "lives"]

_PRINCIPALS = st.binary(max_size=8)
_ROLES = (Role.FOLLOWER, Role.LEADER)
_REASONS = (CloseReason.CLIENT_ACTION, CloseReason.TIMEOUT)
# A timer that comes every millisecond fires less often than a member lets callbacks lead to one another.
_DURATIONS = st.integers(1, 5_000)
_MOST_SESSIONS = 5
_RESULTS = {
    "BACK_PRESSURED": BACK_PRESSURED,
    "ADMIN_ACTION": ADMIN_ACTION,
    "NOT_CONNECTED": NOT_CONNECTED,
    "CLOSED": CLOSED,
}
# Other results would end the member: the consensus module's side never gives them to a service that continues.
_REQUEST_RESULTS = ("BACK_PRESSURED", "ADMIN_ACTION")
# A request is tried three times before the service hears of it.
_MOST_FAILURES = 7
_NEVER = 2**62


def lives(
    payloads: st.SearchStrategy[bytes] = st.binary(),  # noqa: B008 - it never changes
    *,
    max_events: int = 50,
    service_messages: bool = True,
) -> st.SearchStrategy[ScriptedLife]:
    """Lives of up to ``max_events`` events: sessions, messages, time, timers, elections, messages of other services.

    ``payloads`` makes the messages, as bytes: map the encoder of your messages over a strategy of them. A life prints
    as the Python that makes it again. Without ``service_messages`` no other service of the cluster sends anything.

    Raises ConfigurationError for wrong arguments, and, when it is drawn, for a payload that is not bytes.
    """
    if type(max_events) is not int or max_events < 1:
        raise ConfigurationError(f"max_events={shown(max_events)}: must be a number from 1 on")
    messages = _checked(payloads, "payloads")
    sessions = st.integers(0, _MOST_SESSIONS - 1)
    events: list[st.SearchStrategy[Any]] = [
        # More than once: most of what happens in a life are messages.
        *(st.builds(Send, messages, sessions) for _ in range(4)),
        st.builds(OpenSession, _PRINCIPALS),
        st.builds(Advance, _DURATIONS),
        st.just(FireNextTimer()),
        st.builds(CloseSession, sessions, st.sampled_from(_REASONS)),
        st.sampled_from((NewTerm(), *map(ChangeRole, _ROLES))),
    ]
    if service_messages:
        events.append(st.builds(InjectServiceMessage, messages))
    event = st.one_of(events)

    def some(least: int) -> st.SearchStrategy[ScriptedLife]:
        # Without a least length most lists are short, whatever the longest.
        return st.lists(event, min_size=least, max_size=max_events).map(_life)

    return st.integers(0, max_events).flatmap(some)


def _life(events: list[Any]) -> ScriptedLife:
    return ScriptedLife(tuple(events))


def _checked(payloads: Any, name: str) -> st.SearchStrategy[bytes]:
    if not isinstance(payloads, st.SearchStrategy):
        raise ConfigurationError(f"{name}={shown(payloads)}: must be a Hypothesis strategy of bytes, as st.binary() is")

    def checked(payload: Any) -> bytes:
        if not isinstance(payload, bytes):
            raise ConfigurationError(
                f"{name} made {shown(payload)}: must make bytes; map your encoder: {name}.map(encode)"
            )
        return payload

    return payloads.map(checked)


class _Member(ComparedMember):
    """Remembers which timers a replay came to."""

    def _replay(self, entries: list[Any]) -> None:
        super()._replay(entries)
        self.replayed_timers = self.timers


@st.composite
def _payloads(draw: st.DrawFn, name: str) -> bytes:
    machine = draw(st.runner())
    if getattr(machine, name) is None:
        name = "payloads"
    return draw(_checked(getattr(machine, name), name))


@st.composite
def _durations(draw: st.DrawFn) -> int:
    duration: int = draw(draw(st.runner()).durations)
    return duration


def _faults(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=most)


class ServiceMachine(RuleBasedStateMachine):
    """Does to a member whatever can happen to it, and finds what goes wrong; derive from it and set ``service``.

    Its rules open and close sessions, send messages, let time pass, fire timers, take snapshots, restart the service
    from the last snapshot or from the whole log, hold elections, begin terms, and let offers and requests fail. Nothing
    may raise, and a restart must come to the state and the timers that the service had before it. From the first
    restart on, clients must receive what a service that is never restarted answers, and its timers, messages to the
    cluster and closes must be the same. Answers may be missing after offers failed, and while the member follows.

    Rules and invariants of your own find the member in :attr:`member`, its service in ``self.member.service``.
    """

    service: ClassVar[ServiceFactory | None] = None
    """The class of the service, or a function that makes one."""
    payloads: ClassVar[st.SearchStrategy[bytes]] = st.binary()
    """The messages of clients, as bytes."""
    service_payloads: ClassVar[st.SearchStrategy[bytes] | None] = None
    """The messages of other services; by default :attr:`payloads`."""
    durations: ClassVar[st.SearchStrategy[int]] = _DURATIONS
    """How long time may pass in one step, in the member's time unit."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Arguments of :class:`~container.testing.memory.memory_member.MemoryMember`, such as ``time_unit``."""
    offer_faults: ClassVar[bool] = True
    """Whether offers to clients fail now and then."""
    request_faults: ClassVar[bool] = True
    """Whether requests to the cluster fail: timers, messages, sessions to close. A service must repeat them."""
    elections: ClassVar[bool] = True
    """Whether the role changes and new terms begin."""
    service_messages: ClassVar[bool] = True
    """Whether other services of the cluster send messages."""
    restarts: ClassVar[bool] = True
    """Whether the service is restarted."""

    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        kind = type(self)
        if kind.service is None:
            raise ConfigurationError(f"{kind.__name__}.service is None: set the class of the service to test")
        self._member = _Member(kind.service, _NEVER, **kind.options)
        self._snapshot: MemorySnapshot | None = None

    @property
    def member(self) -> MemoryMember:
        """The member that runs the service."""
        return self._member

    def teardown(self) -> None:
        """Close the member."""
        self._member.close()

    # Clients

    @rule(target=sessions, principal=_PRINCIPALS)
    def open_session(self, principal: bytes) -> MemorySession | MultipleResults[MemorySession]:
        """A client opens a session."""
        session = self.member.open_session(principal)
        return session if session.is_open else multiple()

    @rule(session=sessions, payload=_payloads("payloads"))
    def send(self, session: MemorySession, payload: bytes) -> None:
        """A client sends a message, if the service has not closed its session."""
        if session.is_open:
            session.send(payload)

    @rule(session=consumes(sessions), reason=st.sampled_from([reason.name for reason in _REASONS]))
    def close_session(self, session: MemorySession, reason: str) -> None:
        """A session ends."""
        if session.is_open:
            session.close(CloseReason[reason])

    # Time

    @rule(duration=_durations())
    def advance(self, duration: int) -> None:
        """Cluster time passes."""
        self.member.advance(duration)

    @precondition(lambda self: bool(self.member.timers))
    @rule()
    def fire_next_timer(self) -> None:
        """Cluster time passes until the next timer is due."""
        FireNextTimer()(self.member)

    # The cluster

    @precondition(lambda self: self.service_messages)
    @rule(payload=_payloads("service_payloads"))
    def inject_service_message(self, payload: bytes) -> None:
        """Another service of the cluster sends a message."""
        self.member.inject_service_message(payload)

    @precondition(lambda self: self.elections)
    @rule()
    def new_term(self) -> None:
        """A new leadership term begins."""
        self.member.new_term()

    @precondition(lambda self: self.elections)
    @rule(role=st.sampled_from([role.name for role in _ROLES]))
    def change_role(self, role: str) -> None:
        """An election ends with this role of the member."""
        self.member.change_role(Role[role])

    @rule()
    def take_snapshot(self) -> None:
        """The service takes a snapshot."""
        self._snapshot = self.member.take_snapshot()

    @precondition(lambda self: self.restarts and self._snapshot is not None)
    @rule()
    def restart_from_snapshot(self) -> None:
        """The service starts again, from the last snapshot and the log behind it."""
        self._restart(self._snapshot, "the last snapshot")

    @precondition(lambda self: self.restarts)
    @rule()
    def restart_from_log(self) -> None:
        """The service starts again, from the whole log."""
        self._restart(None, "the whole log")

    def _restart(self, snapshot: MemorySnapshot | None, begin: str) -> None:
        member = self._member
        member.take_snapshot()  # the replay takes it again, and the member compares both
        position, timers = member.log_position, member.timers
        member.restart(snapshot)
        if member.replayed_timers != timers:
            replayed, before = shown_apart(member.replayed_timers, timers)
            raise DivergenceError(
                f"after a restart from {begin} the timers are {replayed}, by correlation id with their deadlines; "
                f"before it they were {before}",
                position,
            )

    # Faults

    @precondition(lambda self: self.offer_faults)
    @rule(results=_faults(tuple(_RESULTS), 3))
    def fail_offers(self, results: list[str]) -> None:
        """The next offers to clients fail."""
        self.member.fail_offers(*(_RESULTS[name] for name in results))

    @precondition(lambda self: self.request_faults)
    @rule(results=_faults(_REQUEST_RESULTS, _MOST_FAILURES))
    def fail_requests(self, results: list[str]) -> None:
        """The next requests to the cluster fail."""
        self.member.fail_requests(*(_RESULTS[name] for name in results))
