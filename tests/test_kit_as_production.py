"""The kit does what production does: for each callback and each call of a cluster, with arguments at their extremes."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from container import BufferClaim
from container.api import Cluster, ClusteredService, Role, SnapshotImage, TimeUnit
from container.consensus.timer_service import PriorityHeapTimerService, TimerHandler, WheelTimerService
from container.context import Context
from container.errors import ClusterError, ConcurrentConcludeError, MessageTooLongError, SnapshotError
from container.testing import MemoryMember
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_consensus_module import CancelTimer, CloseSession, ScheduleTimer, ScriptError
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.memory.scripted_messages import decode, decode_service_message, encode
from container.testing.simulation import Crash, OpenSession, Plan, Send, SimulationFailure, simulate
from container.transport.idle_strategy import IdleStrategy
from tests.services import Adding

LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = (LEAST, LEAST + 1, -1, 0, 1, MOST - 1, MOST)


class Timing(Adding):
    """Schedules the timers that it was made for with its first message, and notes what fires."""

    timers: tuple[tuple[int, int], ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.fired: list[int] = []

    def add(self, payload: bytes) -> None:
        for correlation_id, deadline in self.timers:
            while not self.cluster.schedule_timer(correlation_id, deadline):
                self.cluster.idle()

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.fired.append(correlation_id)


class Fired(TimerHandler):
    """Notes the timers of a consensus module that expire."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def on_timer_event(self, correlation_id: int, deadline: int) -> bool:
        self.ids.append(correlation_id)
        return True


TIMERS = {
    "at once": ((1, LEAST),),
    "never": ((1, MOST - 1),),
    "least id": ((LEAST, 5),),
    "most id": ((MOST - 1, 5),),
    "all deadlines": tuple((number, deadline) for number, deadline in enumerate(NUMBERS[:-1])),
    "all ids": tuple((number, 7) for number in NUMBERS[:-1]),
    "past ones by deadline": ((1, 900), (2, 800), (3, 900), (4, LEAST), (5, 0)),
    "one again": ((1, 5), (2, 5), (1, 5)),
    "moved away": ((1, LEAST), (1, MOST - 1)),
}


@pytest.mark.parametrize("timers", TIMERS.values(), ids=TIMERS)
def test_timers_fire_as_with_the_consensus_modules_timer_services(timers: tuple[tuple[int, int], ...]) -> None:
    now = 1_000
    expected = []
    for make in (PriorityHeapTimerService, lambda handler: WheelTimerService(handler, 8)):
        handler = Fired()
        service = make(handler)
        service.set_current_time(now)
        for correlation_id, deadline in timers:
            service.schedule(correlation_id, deadline)
        while service.poll(now):
            pass
        expected.append(handler.ids)
    assert expected[0] == expected[1]
    made = type("Made", (Timing,), {"timers": timers})
    with MemoryMember(made, time=now) as member:
        member.open_session().send(b"x")
        assert member.service.fired == expected[0]
        assert list(member.timers) == [name for name in dict(timers) if name not in expected[0]]
        member.restart()  # the replay fires them again, and leaves none
        assert member.service.fired == expected[0]
        assert list(member.timers) == [name for name in dict(timers) if name not in expected[0]]
    plan = Plan(members=1, events=(OpenSession(at=0, client=0), Send(at=100, client=0, payload=b"x")))
    fired: list[list[int]] = []

    class Telling(made):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            fired.append(self.fired)

    simulate(Telling, plan=plan)
    assert fired
    for each in fired:
        assert each == expected[0]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_of_a_request_is_read_as_it_was_written(number: int) -> None:
    for name, kind, fields in (
        ("ScheduleTimer", ScheduleTimer, {"correlation_id": number, "deadline": number}),
        ("CancelTimer", CancelTimer, {"correlation_id": number}),
        ("CloseSession", CloseSession, {"cluster_session_id": number}),
    ):
        assert decode_service_message(encode(name, **fields)) == kind(**fields)
    event = {"leadership_term_id": number, "correlation_id": number, "timestamp": number}
    assert decode(encode("TimerEvent", **event)) == ("TimerEvent", event)


@pytest.mark.parametrize("number", NUMBERS)
def test_callbacks_get_the_numbers_of_the_log(number: int) -> None:
    with MemoryMember(RecordingService, time=number) as member:
        client = member.open_session(b"")
        client.send(b"")
        member.fire_timer(number)
        client.close()
        service = member.service
        assert [timestamp for _, timestamp in service.of("on_session_open")] == [number]
        assert [message[1] for message in service.of("on_session_message")] == [number]
        assert service.of("on_timer_event") == [(number, number)]
        assert [closed[1] for closed in service.of("on_session_close")] == [number]
        assert service.of("on_new_leadership_term_event")[0][2] == number
        assert member.log[-2].decode()[1]["correlation_id"] == number
        assert member.take_snapshot().timestamp == number
        member.restart(member.take_snapshot())
        assert member.cluster_time == number


class Asking(RecordingService):
    """Calls what it was given with each message, and keeps the results, or what was raised."""

    def __init__(self, *asks: Callable[[Any], object]) -> None:
        super().__init__()
        self.results: list[object] = []
        self.asks = asks

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def on_session_message(self, *_arguments: Any) -> None:
        asks, self.asks = self.asks, ()  # what is sent to the cluster comes back
        for ask in asks:
            try:
                self.results.append(ask(self.cluster))
            except Exception as error:
                self.results.append((type(error), str(error)))


def claimed(stream: Any, length: int) -> bool:
    """Whether a stream takes a claim, which is committed."""
    claim = BufferClaim()
    result = stream.try_claim(length, claim)
    if result > 0:
        claim.commit()
    return bool(result > 0)


CALLS: dict[str, tuple[Callable[[Any], object], object]] = {
    "schedule_timer(2**63 - 1)": (lambda cluster: cluster.schedule_timer(1, MOST), ValueError),
    "schedule_timer(text)": (lambda cluster: cluster.schedule_timer("1", 2), TypeError),
    "schedule_timer(2**63)": (lambda cluster: cluster.schedule_timer(1, 2**63), OverflowError),
    "schedule_timer(-2**63 - 1)": (lambda cluster: cluster.schedule_timer(-(2**63) - 1, 1), OverflowError),
    "cancel_timer(unknown)": (lambda cluster: cluster.cancel_timer(LEAST), True),
    "cancel_timer(2**63)": (lambda cluster: cluster.cancel_timer(2**63), OverflowError),
    "close_client_session(unknown)": (lambda cluster: cluster.close_client_session(LEAST), ClusterError),
    "close_client_session(known)": (lambda cluster: cluster.close_client_session(1), True),
    "get_client_session(unknown)": (lambda cluster: cluster.get_client_session(LEAST), None),
    "offer(nothing)": (lambda cluster: cluster.offer() > 0, True),
    "offer(most)": (lambda cluster: cluster.offer(bytes(16_352)) > 0, True),
    "offer(too long)": (lambda cluster: cluster.offer(bytes(1 << 24)), MessageTooLongError),
    "offer(one byte more)": (lambda cluster: cluster.offer(bytes(16_353)), MessageTooLongError),
    "try_claim(most)": (lambda cluster: claimed(cluster, 1_344), True),
    "try_claim(one byte more)": (lambda cluster: claimed(cluster, 1_345), MessageTooLongError),
    "try_claim(-1)": (lambda cluster: claimed(cluster, -1), ValueError),
    "session.offer(too long)": (lambda cluster: cluster.client_sessions[0].offer(bytes(1 << 25)), MessageTooLongError),
    "session.try_claim(-1)": (lambda cluster: claimed(cluster.client_sessions[0], -1), ValueError),
    "send(too long)": (lambda cluster: cluster.send(bytes(1 << 24)), MessageTooLongError),
    "time": (lambda cluster: cluster.time, None),
    "time_unit": (lambda cluster: cluster.time_unit, TimeUnit.MILLIS),
    "role": (lambda cluster: cluster.role, Role.LEADER),
    "member_id": (lambda cluster: cluster.member_id, 0),
    "idle": (lambda cluster: cluster.idle(), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_the_cluster_comes_to_the_same_in_the_agent_and_in_the_member(name: str) -> None:
    ask, wanted = CALLS[name]
    scripted = ScriptedMember(Asking(ask))
    scripted.lead()
    scripted.open_session()
    scripted.deliver(b"x")
    with MemoryMember(Asking(ask)) as member:
        member.open_session().send(b"x")
        assert member.service.results == scripted.service.results
    [found] = scripted.service.results
    if isinstance(wanted, type):
        assert isinstance(found, tuple)
        assert found[0] is wanted
    elif wanted is not None:
        assert found == wanted


def test_the_context_of_a_service_has_what_that_of_a_container_has() -> None:
    kinds = Context.__mro__[: Context.__mro__.index(abc.ABC)]
    known = [name for kind in kinds for name in (*vars(kind), *vars(kind).get("__annotations__", ()))]
    names = sorted({name for name in known if not name.startswith("_")})
    kept: list[Any] = []

    class Keeping(Adding):
        def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
            super().on_start(cluster, snapshot_image)
            kept.append(cluster.context)

    with MemoryMember(Keeping, service_id=3) as member:
        member.restart()
    simulate(Keeping, plan=Plan(members=3, events=()))
    for context in kept:
        assert [name for name in names if not hasattr(context, name)] == []
        assert context.is_concluded
        assert isinstance(context.service, Keeping)
        assert isinstance(context.new_idle_strategy(), IdleStrategy)
        assert context.summary() in str(context)
        assert context.summary() in context.started_text()
        assert context.message_of(ValueError("why")) == "why"
        context.check_directory()
        assert context.bounded_text(Odd()).endswith("<its text could not be made: RuntimeError>")
        with pytest.raises(ConcurrentConcludeError):
            context.conclude()
        context.close()
    assert [context.settings.service_id for context in kept[:2]] == [3, 3]
    for fact in ("cluster_dir", "mark_file_dir", "aeron_dir"):
        for contexts in (kept[:2], kept[2:]):  # two lives; three members and the reference
            assert len({str(getattr(context, fact)) for context in contexts}) == len(contexts)
            assert len({getattr(context.settings, fact) for context in contexts}) == len(contexts)
    assert len(kept) == 6


def test_each_member_and_each_life_has_a_monotonic_clock_of_its_own() -> None:
    times: list[int] = []

    class Hearing(Adding):
        heard = False

        def do_background_work(self, now_ns: int) -> int:
            if not self.heard:
                times.append(now_ns // 86_400_000_000_000)
            self.heard = True
            return 0

    with MemoryMember(Hearing) as member:
        member.restart()
        member.restart()
    assert len(set(times)) == 3
    times.clear()
    simulate(Hearing, plan=Plan(members=3, events=(Crash(at=100, member=1, down=50), Crash(at=500, member=1, down=50))))
    assert len(times) == len(set(times)) == 3 + 2 + 1  # starts, and the reference


@pytest.mark.parametrize(("unit", "passed_ns"), [(TimeUnit.MILLIS, 5_000_000_000), (TimeUnit.MICROS, 5_000_000)])
def test_the_hosts_clock_goes_on_with_cluster_time(unit: TimeUnit, passed_ns: int) -> None:
    times: list[int] = []

    class Hearing(Adding):
        def do_background_work(self, now_ns: int) -> int:
            times.append(now_ns)
            return 0

    with MemoryMember(Hearing, time_unit=unit) as member:
        client = member.open_session()
        before = times[-1]
        member.advance(5_000)
        client.send(b"x")
        assert passed_ns <= times[-1] - before < passed_ns + 100_000_000
        member.advance(MOST - member.cluster_time)  # more than a clock can show
        client.send(b"x")


class Odd(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ENDS = (GeneratorExit(), SystemExit(3), BaseExceptionGroup("several", [SystemExit(1)]), BaseException("other"))
RAISED = (*ENDS, ValueError("of the service"), ExceptionGroup("several", [ValueError("one")]), Odd())
CALLBACKS = (
    "on_session_open",
    "on_session_message",
    "on_session_close",
    "on_timer_event",
    "on_new_leadership_term_event",
    "on_take_snapshot",
    "on_role_change",
    "do_background_work",
)


class Raising(RecordingService):
    """Raises in one of its callbacks, once it shall."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.error: BaseException = ValueError()
        self.called: list[str] = []

    def look(self, name: str) -> None:
        """One of the callbacks is called."""
        if self.name:
            self.called.append(name)
        if name == self.name:
            raise self.error


for callback in CALLBACKS:
    setattr(Raising, callback, lambda self, *_arguments, _name=callback: self.look(_name))


def happen(member: MemoryMember) -> None:
    """Everything that leads to a callback, until the member ends."""
    client = member.sessions[0]
    for step in (
        lambda: client.send(b"x"),
        lambda: member.fire_timer(1),
        lambda: member.take_snapshot(),
        lambda: member.open_session(),
        lambda: client.close(),
        lambda: member.change_role(Role.FOLLOWER),
    ):
        if not member.has_ended:
            step()


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", CALLBACKS)
def test_what_a_callback_raises_ends_the_member_where_it_ends_an_agent(name: str, error: BaseException) -> None:
    lives_on = isinstance(error, Exception) and name in ("on_take_snapshot", "on_role_change", "do_background_work")
    with MemoryMember(Raising, raises=False) as member:
        member.open_session()
        member.service.name, member.service.error = name, error
        refusal = pytest.raises(SnapshotError, match="took no snapshot at log position")
        with refusal if name == "on_take_snapshot" else contextlib.nullcontext():
            happen(member)
        assert member.errors[0] is error
        assert member.has_ended == (not lives_on)
        if member.has_ended:  # nothing is called any more, whatever is in the log
            assert member.service.called[-1] == name
            with pytest.raises(ScriptError, match="the member has ended: "):
                member.fire_timer(1)
    with MemoryMember(Raising) as member:
        member.open_session()
        member.service.name, member.service.error = name, error
        with pytest.raises(type(error)) as caught:
            happen(member)
        assert caught.value is error
        assert member.has_ended == (not lives_on)


def test_timers_that_are_due_do_not_fire_once_the_member_has_ended() -> None:
    class Last(Timing):
        timers = ((1, LEAST), (2, LEAST))

        def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
            super().on_timer_event(correlation_id, timestamp)
            raise ValueError("of the service")

    with MemoryMember(Last, raises=False) as member:
        member.open_session().send(b"x")
        assert member.service.fired == [1]
        assert len(member.errors) == 1
        member.restart()
        assert member.service.fired == [1]
        assert member.has_ended


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("name", ["on_session_message", "on_role_change", "do_background_work"])
def test_an_interrupt_of_the_user_comes_out_always(name: str, raises: bool) -> None:
    with MemoryMember(Raising, raises=raises) as member:
        member.open_session()
        member.service.name, member.service.error = name, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            happen(member)
        assert member.has_ended


@pytest.mark.parametrize("error", [ValueError("of the service"), *ENDS], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["on_session_message", "do_background_work"])
def test_what_the_reference_alone_raises_is_a_finding(name: str, error: BaseException) -> None:
    made: list[ClusteredService] = []

    class Last(RecordingService):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def look(self) -> None:
            if len(made) > 1:
                raise error

    setattr(Last, name, lambda self, *_arguments: self.look())
    plan = Plan(members=1, events=(OpenSession(at=0, client=0), Send(at=100, client=0, payload=b"x")))
    with pytest.raises(SimulationFailure, match=type(error).__name__):
        simulate(Last, plan=plan)
