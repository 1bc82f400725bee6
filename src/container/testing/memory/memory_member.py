"""One member in memory: a service under the real agent, which a test drives step by step.

There is no driver, no JVM, no thread and no sleep: a step takes microseconds, and time passes when the test says so.
The agent, its codecs and its adapters are those of production. This module plays the consensus module, the archive and
the clients::

    with MemoryMember(Counter) as member:
        client = member.open_session()
        client.send(b"one+40")
        assert client.egress == [b"one=40"]
        member.restart(member.take_snapshot())
        client.send(b"two+2")
        assert client.egress[-1] == b"two=42"
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

import msgspec

from container.api import MAX_POSITION_EXCEEDED, NOT_CONNECTED, CloseReason, ClusteredService, Role, TimeUnit
from container.common.aeron_defaults import CONSENSUS_MODULE_STREAM_ID, CONTROL_CHANNEL, EGRESS_STREAM_ID
from container.common.error_texts import headline, message_of, remark_on
from container.common.values import shown
from container.errors import AgentTermination, ConfigurationError, SnapshotError
from container.service.given_service import made_by
from container.service.service_handler import ServiceHandler
from container.settings.callback_errors import HALT, SKIP
from container.settings.setting import MAX_SERVICE_COUNT
from container.testing.memory.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory.member_context import MemberContext, boot_time_ns, place
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.scripted_consensus_module import (
    CancelTimer,
    CloseSession,
    ScheduleTimer,
    ScriptedConsensusModule,
    ScriptError,
    ServiceAck,
    SessionMessage,
)
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from container.testing.memory.scripted_messages import decode

type Service = ClusteredService | ServiceHandler
type ServiceFactory = Callable[[], Service]

# Before Python 3.13 only type checkers know defaults of type variables: a bare ``MemoryMember`` has any service.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ServiceT = TypeVar("ServiceT", bound=Service, default=Any)
else:
    from typing import TypeVar

    ServiceT = TypeVar("ServiceT")

# Steps in a row after which the member counts as one that never rests.
_ROUND_LIMIT = 10_000
# The term length of the log, of egress and of snapshots: messages of up to 128 KiB, as with the 1 MiB terms of a node.
_TERM_LENGTH = 1024 * 1024
_EGRESS_CHANNEL = "aeron:udp?endpoint=localhost:20000"
_NULL_VALUE = -1
_TIME_MAX = 2**63 - 1
_SNAPSHOT_END = 2
_NS_PER_UNIT = {TimeUnit.MILLIS: 1_000_000, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1}
# Largest step of the host's own clock beside cluster time, whose range is larger.
_LONGEST_PAUSE_NS = 3_600_000_000_000


class LogEntry(NamedTuple):
    """A message of the log."""

    position: int
    """Where it ends, in bytes."""
    message: bytes
    """The message with its SBE header, as the consensus module logged it."""

    def decode(self) -> tuple[str, dict[str, Any]]:
        """Return the message's name in the schema, and its fields; a payload is the field ``payload``."""
        return decode(self.message)


class MemorySnapshot(msgspec.Struct, frozen=True):
    """A snapshot of a cluster: the service's messages, and the consensus module's state.

    ``msgspec.msgpack.encode(snapshot)`` makes bytes of it, and ``msgspec.msgpack.decode(data, type=MemorySnapshot)``
    makes the snapshot again: keep one of an old version beside a test.
    """

    log_position: int
    """The log position that it represents."""
    leadership_term_id: int
    """The id of the leadership term at that position."""
    timestamp: int
    """Cluster time, in ``time_unit``."""
    time_unit: TimeUnit
    """The unit of cluster time."""
    messages: tuple[bytes, ...]
    """Markers, sessions and the service's own messages, as they are recorded."""
    timers: dict[int, int]
    """Deadlines by correlation id."""
    sessions: dict[int, bytes]
    """Encoded principals of the open sessions, by id."""
    next_session_id: int
    """The id that the next session gets."""
    service_message_count: int
    """Messages that the service had sent to the cluster."""

    @property
    def state(self) -> tuple[bytes, ...]:
        """The service's own messages: equal for services in the same state, if their snapshots are deterministic."""
        return state_in(self.messages)


def state_in(messages: Sequence[bytes]) -> tuple[bytes, ...]:
    """The service's own messages of a snapshot: those after the end marker."""
    for index, message in enumerate(messages):
        name, fields = decode(message)
        if name == "SnapshotMarker" and fields["mark"] == _SNAPSHOT_END:
            return tuple(messages[index + 1 :])
    raise SnapshotError(f"none of the {len(messages)} messages is the marker before the service's own")


def _bytes_of(name: str, value: object) -> bytes:
    """The bytes of a bytes-like argument. Raise TypeError, which names the argument, for anything else."""
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        advice = ": encode a string, as in 'text'.encode()" if isinstance(value, str) else ""
        raise TypeError(f"{name}={shown(value)}: must be a bytes-like object, such as bytes{advice}") from None


def _checked(name: str, value: object, kind: type, expected: str) -> None:
    """Raise TypeError, which names the argument, unless the value is of this type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}={shown(value)}: must be {expected}")


def _checked_int(name: str, value: object, least: int, most: int, expected: str) -> int:
    """The integer that a value is, as production takes it.

    Raise TypeError for another value, ConfigurationError outside of the range; both name the argument.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={shown(value)}: must be an int") from None
    if not least <= number <= most:
        raise ConfigurationError(f"{name}={shown(value)}: must {expected}")
    return number


def _checked_int32(name: str, value: object) -> int:
    return _checked_int(name, value, -(2**31), 2**31 - 1, "fit into 32 bits, with its sign")


def _checked_int64(name: str, value: object) -> int:
    return _checked_int(name, value, -(2**63), _TIME_MAX, "fit into 64 bits, with its sign")


def _checked_service_id(value: object) -> int:
    most = MAX_SERVICE_COUNT - 1
    return _checked_int("service_id", value, 0, most, f"be a whole number from 0 to {most}")


def _check_role(role: object) -> None:
    _checked("role", role, Role, "Role.LEADER or Role.FOLLOWER")
    if role not in (Role.LEADER, Role.FOLLOWER):
        raise ConfigurationError(f"role={shown(role)}: must be Role.LEADER or Role.FOLLOWER")


def _check_snapshot(snapshot: object) -> None:
    if snapshot is not None:
        _checked("snapshot", snapshot, MemorySnapshot, "a MemorySnapshot, as take_snapshot() returns")


def _checked_results(results: tuple[object, ...]) -> list[int]:
    expected = f"be from {MAX_POSITION_EXCEEDED} to {NOT_CONNECTED}, such as BACK_PRESSURED"
    return [
        _checked_int(f"results[{number}]", result, MAX_POSITION_EXCEEDED, NOT_CONNECTED, expected)
        for number, result in enumerate(results)
    ]


class MemorySession:
    """A client's session; made by :meth:`MemoryMember.open_session`."""

    def __init__(self, member: MemoryMember, session_id: int, principal: bytes) -> None:
        self._member = member
        self.id = session_id
        """The cluster session id (int)."""
        self.principal = principal
        """The client's encoded principal."""
        self.egress: list[bytes] = []
        """The payloads that the client received, oldest first; the test may clear it."""
        self.is_open = True
        """False once the session's close is logged."""

    def __repr__(self) -> str:
        return f"<MemorySession {self.id} {'open' if self.is_open else 'closed'}>"

    def send(self, payload: bytes) -> list[bytes]:
        """Log a message of this client and deliver it to the service; return the payloads that the client received
        meanwhile.

        Raises TypeError if ``payload`` is not bytes-like, ScriptError when the session is closed, and what the
        callback raised.
        """
        message = _bytes_of("payload", payload)
        self._check_open()
        before = len(self.egress)
        self._member._log(lambda module: module.session_message(self.id, message))
        return self.egress[before:]

    def close(self, reason: CloseReason = CloseReason.CLIENT_ACTION) -> None:
        """Close the session, for the client or, with ``CloseReason.TIMEOUT``, because it was silent.

        Raises TypeError if ``reason`` is not a CloseReason, ScriptError when the session is closed, and what
        ``on_session_close`` raises.
        """
        _checked("reason", reason, CloseReason, "a CloseReason, such as CloseReason.TIMEOUT")
        self._check_open()
        self._member._close_session(self, reason)
        self._member._settle()

    def _check_open(self) -> None:
        self._member._check_running()
        if not self.is_open:
            raise ScriptError(f"session {self.id} is closed")


class MemoryMember(Generic[ServiceT]):  # noqa: UP046 - its parameter has a default
    """One member of a cluster, in memory. Use it as a context manager, or call :meth:`close`.

    ``service`` is a class, or a function that creates a service, so that :meth:`restart` can create a new one. A
    service object works as long as you do not restart. The member leads unless ``role`` says otherwise, and only a
    leader's answers reach the clients. ``time`` is the cluster time at the beginning, in ``time_unit``; a ``snapshot``
    has its own.

    An exception of a callback comes out of the call that led to it, with a note of the callback and the log position.
    With ``raises=False`` it only goes to :attr:`errors`, and the member does what ``callback_error_policy`` (``"halt"``
    or ``"skip"``) says, as in production.

    A callback must not call the member or its sessions: each call raises ScriptError there.

    Raises TypeError for an argument of a wrong type, ConfigurationError for a wrong value or an object that is not a
    service, and what ``on_start`` raises.
    """

    def __init__(
        self,
        service: ServiceT | Callable[[], ServiceT],
        *,
        snapshot: MemorySnapshot | None = None,
        role: Role = Role.LEADER,
        time: int = 1_000,
        time_unit: TimeUnit = TimeUnit.MILLIS,
        member_id: int = 0,
        service_id: int = 0,
        callback_error_policy: str = HALT,
        raises: bool = True,
    ) -> None:
        _checked("callback_error_policy", callback_error_policy, str, f"{HALT} or {SKIP}")
        if callback_error_policy not in (HALT, SKIP):
            raise ConfigurationError(f"callback_error_policy={shown(callback_error_policy)}: must be {HALT} or {SKIP}")
        _check_role(role)
        _check_snapshot(snapshot)
        _checked("time_unit", time_unit, TimeUnit, "a TimeUnit, such as TimeUnit.MILLIS")
        self._factory: ServiceFactory | None = None
        self._role = role
        self._time_unit = time_unit
        self._member_id = _checked_int32("member_id", member_id)
        self._service_id = _checked_service_id(service_id)
        self._policy = callback_error_policy
        self._raises = raises
        self._module: _Module
        self._scripted: ScriptedMember
        self._entries: list[LogEntry] = []
        self._all_sessions: dict[int, MemorySession] = {}
        self._timers: dict[int, int] = {}
        self._next_session_id = 1
        self._sent_to_cluster = 0  # messages of the service, in this run and those before it
        self._logged_of_service = 0
        self._injected = 0
        self._waiting: list[Any] = []  # messages that the service sent, and that were not looked at yet
        self._gone: list[int] = []  # closed sessions, which still take messages until the end of the turn
        self._is_replaying = False
        self._base = snapshot
        self._end: BaseException | None = None
        self._is_running = False  # the agent, and with it perhaps a callback
        self._is_closed = False
        self._lives = 0
        self.errors: list[BaseException] = []
        """Exceptions of callbacks and errors that the container recorded, oldest first, over all restarts."""
        self.service: ServiceT
        """The service that runs now; for type checkers one of the class that the member was made with."""
        self.cluster_time = _checked_int64("time", time)
        """Cluster time, in the member's time unit."""
        if snapshot is not None:
            self.cluster_time = snapshot.timestamp
            self._time_unit = snapshot.time_unit
            self._next_session_id = snapshot.next_session_id
            self._logged_of_service = snapshot.service_message_count
            for session_id, principal in snapshot.sessions.items():
                self._all_sessions[session_id] = MemorySession(self, session_id, principal)
        self._start(self._made(service), snapshot)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "ended" if self._end is not None else self._role.name
        return f"<MemoryMember {self._member_id} {state} log_position={self.log_position} time={self.cluster_time}>"

    # Observing the member

    @property
    def sessions(self) -> list[MemorySession]:
        """The open sessions, in the order in which they were opened."""
        return [session for session in self._all_sessions.values() if session.is_open]

    @property
    def timers(self) -> dict[int, int]:
        """The timers that have not fired: deadlines by correlation id, earliest first."""
        return dict(sorted(self._timers.items(), key=lambda timer: timer[1]))

    @property
    def log(self) -> list[LogEntry]:
        """The log's messages, from the first, or from the snapshot that the member was made from."""
        return list(self._entries)

    @property
    def log_position(self) -> int:
        """Where the log ends, in bytes."""
        return self._module.log_position

    @property
    def role(self) -> Role:
        """The member's role."""
        return self._role

    @property
    def has_ended(self) -> bool:
        """True once the member has ended, as an exception of a callback ends it; :meth:`restart` starts it again."""
        return self._end is not None

    # Events

    def open_session(self, principal: bytes = b"") -> MemorySession:
        """Open a session for a client with this encoded principal, and return it.

        Raises TypeError if ``principal`` is not bytes-like, and what ``on_session_open`` raises.
        """
        encoded = _bytes_of("principal", principal)
        self._check_running()
        session = MemorySession(self, self._next_session_id, encoded)
        self._next_session_id += 1
        self._all_sessions[session.id] = session
        self._log(
            lambda module: module.open_session(
                session.id, response_channel=_EGRESS_CHANNEL, encoded_principal=session.principal
            )
        )
        return session

    def advance(self, duration: int) -> None:
        """Let cluster time pass, in the member's time unit; timers that become due fire at their deadlines, in order.

        A timer that a callback schedules meanwhile fires as well when it is due.

        Raises TypeError if ``duration`` is not an integer, ConfigurationError if it is negative or cluster time would
        need more than 64 bits, ScriptError when 10,000 timers fired and more are due, and what the callback raises.
        """
        self._check_running()
        most = _TIME_MAX - self.cluster_time
        expected = f"be a whole number from 0 to {most}: cluster time never goes back, and has 64 bits"
        end = self.cluster_time + _checked_int("duration", duration, 0, most, expected)
        for _ in range(_ROUND_LIMIT):
            due = [(deadline, name) for name, deadline in self._timers.items() if deadline <= end]
            if not due:
                break
            deadline, correlation_id = min(due, key=operator.itemgetter(0))
            self._set_time(deadline)
            self.fire_timer(correlation_id)
            if self._end is not None:
                return
        else:
            raise ScriptError(f"{_ROUND_LIMIT} timers fired up to cluster time {end}, and more are due: {self.timers}")
        self._set_time(end)

    def fire_timer(self, correlation_id: int) -> None:
        """Fire a timer now, whatever its deadline, or one that was never scheduled, as a late cancel can cause.

        Raises TypeError if ``correlation_id`` is not an integer, ConfigurationError if it has more than 64 bits, and
        what ``on_timer_event`` raises.
        """
        timer = _checked_int64("correlation_id", correlation_id)
        self._check_running()
        self._timers.pop(timer, None)
        self._log(lambda module: module.timer_event(timer))

    def inject_service_message(self, payload: bytes, *, service_id: int = 1) -> None:
        """Log a message that another service of the cluster sent, with this service id.

        Raises TypeError if ``payload`` is not bytes-like or ``service_id`` not an integer, ConfigurationError for a
        ``service_id`` outside of 0 to 9, and what the callback raises.
        """
        message = _bytes_of("payload", payload)
        sender = _checked_service_id(service_id)
        self._check_running()
        self._injected += 1
        self._log(lambda module: module.service_message(sender, self._injected, message))

    def new_term(self, *, leader_member_id: int | None = None, app_version: int = 1) -> None:
        """Log the beginning of a new leadership term, with the member's own id as leader or another one.

        Raises TypeError if an argument is not an integer, ConfigurationError if it has more than 32 bits, and what
        ``on_new_leadership_term_event`` raises.
        """
        if leader_member_id is None:
            leader = self._member_id if self._role is Role.LEADER else 1
        else:
            leader = _checked_int32("leader_member_id", leader_member_id)
        version = _checked_int32("app_version", app_version)
        self._log(
            lambda module: module.new_leadership_term(
                leader_member_id=leader, time_unit=self._time_unit, app_version=version
            )
        )

    def change_role(self, role: Role) -> None:
        """Let an election end with this role: the member joins the new leader's log, and a new term begins.

        Raises TypeError if ``role`` is not a Role, ConfigurationError if it is neither leader nor follower, and what
        the callbacks raise.
        """
        _check_role(role)
        self._check_running()
        self._role = role
        self._join()

    def take_snapshot(self) -> MemorySnapshot:
        """Have the service take a snapshot, and return it.

        Raises what ``on_take_snapshot`` raises; SnapshotError when the service gave the snapshot up without that.
        """
        self._check_running()
        self._module.take_last_ack()
        self._log(lambda module: module.snapshot())
        ack = self._module.take_last_ack()
        if ack is None or ack.relevant_id == _NULL_VALUE:
            reason = f": {headline(self.errors[-1])}" if self.errors else ""
            raise SnapshotError(f"the service took no snapshot at log position {self.log_position}{reason}")
        return MemorySnapshot(
            log_position=ack.log_position,
            leadership_term_id=self._module.leadership_term_id,
            timestamp=self.cluster_time,
            time_unit=self._time_unit,
            messages=tuple(self._scripted.store.messages(ack.relevant_id)),
            timers=dict(self._timers),
            sessions={session.id: session.principal for session in self.sessions},
            next_session_id=self._next_session_id,
            service_message_count=self._sent_to_cluster,
        )

    def restart(
        self, snapshot: MemorySnapshot | None = None, *, service: Service | ServiceFactory | None = None
    ) -> None:
        """End the service as kill -9 does, and start a new one from a snapshot and the log after it.

        Without ``snapshot`` it replays the log from the beginning. ``service`` is another version of it, or a new
        instance; by default the class or function makes one that made the last one. Messages of a replay to clients go
        nowhere, as on a real member.

        Raises TypeError if ``snapshot`` has a wrong type, ConfigurationError if the object is not a service, or if
        ``service`` is missing and cannot be made, ScriptError if the log does not reach to the snapshot, and what
        callbacks raise.
        """
        self._check_open()
        _check_snapshot(snapshot)
        if service is None and self._factory is None:
            raise ConfigurationError("restart() needs a new service: give the member a class, or pass service=")
        snapshot = self._base if snapshot is None else snapshot
        begin = 0 if self._base is None else self._base.log_position
        if snapshot is not None and not begin <= snapshot.log_position <= self.log_position:
            raise ScriptError(
                f"the snapshot is of log position {snapshot.log_position}: the log goes from {begin} to "
                f"{self.log_position}"
            )
        given = self._factory if service is None else service
        assert given is not None
        made = self._made(given)
        self._module.close()
        self._start(made, snapshot)

    def fail_offers(self, *results: int) -> None:
        """Let the service's next offers and claims to clients return these results, such as ``BACK_PRESSURED``.

        Raises TypeError if a result is not an integer, ConfigurationError if it is not from -5 to -1.
        """
        failures = _checked_results(results)
        self._check_running()
        self._module.driver.publication_results(_EGRESS_CHANNEL, EGRESS_STREAM_ID, failures)

    def fail_requests(self, *results: int) -> None:
        """Let the next requests to the cluster return these results: timers, sessions to close, messages.

        Raises as :meth:`fail_offers` does.
        """
        failures = _checked_results(results)
        self._check_running()
        self._module.driver.publication_results(CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID, failures)

    def _script_offers(self, results: Sequence[int | BaseException]) -> None:
        """Script what the next offers to clients return or raise, in place of an earlier script."""
        self._module.driver.publication_results(_EGRESS_CHANNEL, EGRESS_STREAM_ID, results, replace=True)

    def close(self) -> None:
        """End the member. Nothing happens the second time; no callback is called."""
        if not self._is_closed:
            self._is_closed = True
            self._module.close()

    # How it works

    def _set_time(self, time: int) -> None:
        passed_ns = (time - self.cluster_time) * _NS_PER_UNIT[self._time_unit]
        self._scripted.clock.advance(min(passed_ns, _LONGEST_PAUSE_NS))
        self.cluster_time = self._module.timestamp = time

    def _start(self, service: Any, snapshot: MemorySnapshot | None) -> None:
        self.service = service
        begin = 0 if snapshot is None else snapshot.log_position
        # Each life runs as if on another host: the state must not depend on the host.
        driver = MemoryDriver(ManualClock(boot_time_ns(self._lives)), term_length=_TERM_LENGTH)
        self._module = module = _Module(driver, begin, self._member_id, self._entries)
        self._scripted = ScriptedMember(
            self.service,
            service_id=self._service_id,
            cm=module,
            idle_strategy=SteppingIdleStrategy(self._on_idle),
            on_error=self.errors.append,
            callback_error_policy=self._policy,
        )
        agent_context = self._scripted.context
        agent_context.service_context = MemberContext(self.service, agent_context, place(self._lives))
        self._lives += 1
        self._end = None
        self._timers = {} if snapshot is None else dict(snapshot.timers)
        self._sent_to_cluster = 0 if snapshot is None else snapshot.service_message_count
        self._waiting.clear()
        self._gone.clear()
        if snapshot is None:
            module.start()
        else:
            module.leadership_term_id = snapshot.leadership_term_id
            module.start(
                recording_ids=[self._scripted.store.add_recording(snapshot.messages, term_length=_TERM_LENGTH)],
                leadership_term_id=snapshot.leadership_term_id,
                timestamp=snapshot.timestamp,
            )
        self._run(self._scripted.agent.on_start)
        self._replay([entry for entry in self._entries if entry.position > begin])
        if self.has_ended:
            return
        module.timestamp = self.cluster_time
        for session in self.sessions:
            module.connect_egress(session.id, _EGRESS_CHANNEL)
        self._join()

    def _made(self, given: Service | ServiceFactory) -> Service:
        if isinstance(given, ClusteredService | ServiceHandler):
            return given
        if not callable(given):
            raise ConfigurationError(
                f"service={shown(given)}: must be a ClusteredService, or a function that makes one: derive its class "
                "from container.ClusteredService"
            )
        service: Service = made_by(given, f"service={shown(given)}")
        self._factory = given
        return service

    def _on_idle(self) -> None:
        # A callback waits: for the consensus module to take the messages, or for time to pass.
        self._scripted.clock.advance(TICK_NS)
        self._waiting += self._module.poll()

    def _join(self) -> None:
        if self._role is Role.LEADER:
            self._module.join_as_leader()
        else:
            self._module.join_as_follower()
        self._settle()
        if self._end is None:
            self.new_term()

    def _log(self, log: Callable[[_Module], object]) -> None:
        self._check_running()
        log(self._module)
        self._settle()

    def _settle(self) -> None:
        """Run agent and consensus module until neither has anything to do."""
        for _ in range(_ROUND_LIMIT):
            self._module.commit()
            if self._end is not None or (not self._turn() and not self._fire_due()):
                return
        raise ScriptError(
            f"the member did not come to rest in {_ROUND_LIMIT} rounds: each callback leads to another, last "
            f"{self._entries[-1].decode()[0]} at log position {self.log_position}"
        )

    def _turn(self) -> bool:
        is_done = bool(self._run(self._scripted.cycle))
        news = self._waiting + self._module.poll()
        self._module.forget_received()
        self._waiting = []
        for message in news:
            self._take(message)
        for answer in self._module.take_egress():
            self._receive(self._all_sessions[answer.cluster_session_id], answer.payload)
        while self._gone:
            self._module.disconnect_egress(self._gone.pop())
        return is_done or bool(news)

    def _receive(self, session: MemorySession, payload: bytes) -> None:
        session.egress.append(payload)

    def _fire_due(self) -> bool:
        if self._end is not None:
            return False
        due = [(deadline, name) for name, deadline in self._timers.items() if deadline <= self.cluster_time]
        if due:
            _, correlation_id = min(due, key=operator.itemgetter(0))  # of equal deadlines the timer scheduled first
            del self._timers[correlation_id]
            self._module.timer_event(correlation_id)
        return bool(due)

    def _take(self, message: object) -> None:
        if isinstance(message, ScheduleTimer):
            self._timers.pop(message.correlation_id, None)
            self._timers[message.correlation_id] = message.deadline
        elif isinstance(message, CancelTimer):
            self._timers.pop(message.correlation_id, None)
        elif isinstance(message, ServiceAck):
            self._module.last_ack = message
        elif self._is_replaying:
            self._waiting.append(message)  # in the log already, or new in this version of the service
        elif isinstance(message, CloseSession):
            session = self._all_sessions.get(message.cluster_session_id)
            if session is not None and session.is_open:
                self._close_session(session, CloseReason.SERVICE_ACTION)
        elif isinstance(message, SessionMessage):
            self._sent_to_cluster += 1
            if self._sent_to_cluster > self._logged_of_service:
                self._logged_of_service = self._sent_to_cluster
                self._module.service_message(self._service_id, self._sent_to_cluster, message.payload)

    def _close_session(self, session: MemorySession, reason: CloseReason) -> None:
        session.is_open = False
        self._gone.append(session.id)
        self._module.close_session(session.id, reason)

    def _replay(self, entries: list[LogEntry]) -> None:
        """Deliver the log after its snapshot to the service, message by message."""
        if not entries or self.has_ended:
            return
        module = self._module
        module.begin_replay()
        for entry in entries:
            module.append_replayed(entry)
        module.join_replay()
        requests: list[Any] = []
        self._is_replaying = True
        try:
            for entry in entries:
                if self._end is not None:
                    break
                name, fields = entry.decode()
                if name == "TimerEvent":
                    self._timers.pop(fields["correlation_id"], None)
                if name == "NewLeadershipTermEvent":
                    module.leadership_term_id = fields["leadership_term_id"]
                module.commit(entry.position)
                for _ in range(_ROUND_LIMIT):
                    is_done = self._turn()
                    requests += self._waiting
                    self._waiting = []
                    if not is_done:
                        break
        finally:
            self._is_replaying = False
        self._waiting = requests

    def _run(self, action: Callable[[], Any]) -> Any:
        before = len(self.errors)
        result = None
        self._is_running = True
        try:
            result = action()
        except AgentTermination as end:
            self._end = end
            if isinstance(end.__cause__, KeyboardInterrupt):  # the user's, and no fault of the service
                raise end.__cause__ from None
            if not self._raises:
                self.errors.append(end.__cause__ or end)
        except Exception as error:
            self.errors.append(error)
        except BaseException as error:  # SystemExit of background work, say, which ends the agent
            self._end = error
            if isinstance(error, KeyboardInterrupt):
                raise
            self.errors.append(error)
        finally:
            self._is_running = False
        if self._raises and len(self.errors) > before:
            first = self.errors[before]
            if remark := remark_on(first):
                first.add_note(remark)
            raise first
        if self._raises and self._end is not None:
            cause = self._end.__cause__
            if cause is None:
                raise self._end
            cause.add_note(message_of(self._end))
            raise cause
        return result

    def _check_open(self) -> None:
        if self._is_closed:
            raise ScriptError("the member is closed")
        if self._is_running:
            raise ScriptError("a callback of the service is running: only the test may call the member, between events")

    def _check_running(self) -> None:
        self._check_open()
        if self._end is not None:
            why = message_of(self._end) if isinstance(self._end, AgentTermination) else headline(self._end)
            raise ScriptError(f"the member has ended: {why}; restart() starts it again")


class _Module(ScriptedConsensusModule):
    """A consensus module that keeps what it logs."""

    def __init__(self, driver: MemoryDriver, log_position: int, member_id: int, entries: list[LogEntry]) -> None:
        super().__init__(driver, member_id=member_id, log_position=log_position, log_term_length=_TERM_LENGTH)
        self._entries = entries
        self.last_ack: ServiceAck | None = None

    def log_message(self, message: bytes) -> int:
        position = super().log_message(message)
        self._entries.append(LogEntry(position, message))
        return position

    def take_last_ack(self) -> ServiceAck | None:
        """The latest ack, if one came since the last look."""
        ack, self.last_ack = self.last_ack, None
        return ack

    def append_replayed(self, entry: LogEntry) -> None:
        """Append a message that was logged before."""
        position = super().log_message(entry.message)
        assert position == entry.position, f"logged at {entry.position}, replayed at {position}"
