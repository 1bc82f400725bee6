"""Timers of the consensus module: which expire in a poll, in what order, and what a handler may do meanwhile.

The tests of the heap stand for upstream's PriorityHeapTimerServiceTest, but for those of its lists of free objects;
most run with the wheel as well, as both have the same order here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from container.consensus.timer_service import (
    PriorityHeapTimerService,
    TimerHandler,
    TimerService,
    TimerSnapshot,
    WheelTimerService,
)
from container.errors import ClusterError, ConfigurationError
from tests.resources import used_mib

LIMIT = 20
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)
MAKERS: dict[str, Callable[[TimerHandler], TimerService]] = {
    "heap": PriorityHeapTimerService,
    "wheel": lambda handler: WheelTimerService(handler, 8),
    "small wheel": lambda handler: WheelTimerService(handler, 3, 2),
    "wheel of one tick": lambda handler: WheelTimerService(handler, 1, 1),
    "late wheel": lambda handler: WheelTimerService(handler, 8, 128, 1_000_000),
}


class Handler(TimerHandler):
    """Keeps which timers expired; ``act`` decides what to answer, True unless given."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.act: Callable[[int], bool] = lambda _: True

    def on_timer_event(self, correlation_id: int, deadline: int) -> bool:
        self.seen.append(correlation_id)
        return self.act(correlation_id)


class Taken(TimerSnapshot):
    """Keeps what a snapshot gives."""

    def __init__(self) -> None:
        self.timers: list[tuple[int, int]] = []

    def on_timer(self, correlation_id: int, deadline: int) -> int:
        self.timers.append((correlation_id, deadline))
        return 0


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture(params=MAKERS)
def service(request: pytest.FixtureRequest, handler: Handler) -> TimerService:
    return MAKERS[request.param](handler)


def schedule(service: TimerService, *timers: tuple[int, int]) -> None:
    for correlation_id, deadline in timers:
        service.schedule(correlation_id, deadline)


def snapshot(service: TimerService) -> list[tuple[int, int]]:
    taken = Taken()
    assert service.snapshot(taken) == len(taken.timers) == service.count()
    return taken.timers


@pytest.mark.parametrize("now", [LONG_MIN, -1, 0, LONG_MAX])
def test_without_timers_none_expires(service: TimerService, handler: Handler, now: int) -> None:
    assert service.poll(now) == 0
    assert not handler.seen


def test_a_timer_does_not_expire_before_its_deadline(service: TimerService, handler: Handler) -> None:
    service.schedule(1, 100)
    assert service.poll(7) == service.poll(99) == 0
    assert not handler.seen
    assert service.poll(100) == 1
    assert handler.seen == [1]


def test_a_timer_stays_when_the_handler_says_not_now(service: TimerService, handler: Handler) -> None:
    schedule(service, (1, 100), (2, 100))
    handler.act = lambda _: False
    assert service.poll(LONG_MAX) == 0
    assert handler.seen == [1], "the poll ends with the first that cannot be appended"
    handler.act = lambda _: True
    assert service.poll(LONG_MAX) == 2
    assert handler.seen == [1, 1, 2]


def test_a_timer_stays_when_the_handler_raises(service: TimerService, handler: Handler) -> None:
    def act(correlation_id: int) -> bool:
        if correlation_id == 2:
            raise ValueError("no")
        return True

    schedule(service, (1, 1), (2, 2), (3, 3))
    handler.act = act
    with pytest.raises(ValueError, match="no"):
        service.poll(10)
    assert snapshot(service) == [(2, 2), (3, 3)]
    handler.act = lambda _: True
    assert service.poll(10) == 2
    assert handler.seen == [1, 2, 2, 3]


def test_a_timer_expires_once(service: TimerService, handler: Handler) -> None:
    service.schedule(1, 100)
    assert service.poll(200) == 1
    assert service.poll(200) == 0
    assert handler.seen == [1]


def test_expired_timers_are_gone(service: TimerService, handler: Handler) -> None:
    schedule(service, (1, 100), (2, 200), (3, 300), (4, 400), (5, 500))
    assert service.poll(200) == 2
    assert service.poll(500) == 3
    assert handler.seen == [1, 2, 3, 4, 5]
    assert not service.cancel(1)
    assert service.count() == 0


def test_timers_expire_by_deadline_and_those_of_one_deadline_as_they_were_scheduled(
    service: TimerService, handler: Handler
) -> None:
    schedule(service, (1, 10), (4, 3), (2, 0), (3, 3), (5, 0), (6, 11))
    assert service.poll(10) == 5
    assert handler.seen == [2, 5, 4, 3, 1]


def test_many_timers_of_one_deadline_expire_as_they_were_scheduled(service: TimerService, handler: Handler) -> None:
    ids = [(number * 7919) % 1000 for number in range(1000)]
    schedule(service, *((correlation_id, 64) for correlation_id in ids))
    while service.poll(64):
        pass
    assert handler.seen == ids


def test_nothing_to_cancel(service: TimerService) -> None:
    assert not service.cancel(100)
    schedule(service, (1, 100), (7, 50))
    assert not service.cancel(3)


@pytest.mark.parametrize(("cancelled", "left"), [(7, [2, 1]), (1, [7, 2]), (2, [7, 1])])
def test_a_cancelled_timer_does_not_expire(
    service: TimerService, handler: Handler, cancelled: int, left: list[int]
) -> None:
    schedule(service, (1, 100), (7, 50), (2, 90))
    assert service.cancel(cancelled)
    assert not service.cancel(cancelled)
    assert service.poll(111) == 2
    assert handler.seen == left


def test_a_timer_that_expired_elsewhere_goes_and_one_that_cannot_have_stays(service: TimerService) -> None:
    schedule(service, (1, 100), (2, 200))
    assert [service.expire(each, 100) for each in (1, 2, 3)] == [True, True, False]
    assert snapshot(service) == [(2, 200)]
    assert not service.expire(1, 100)


def test_timers_are_cancelled_after_others_expired(service: TimerService, handler: Handler) -> None:
    schedule(service, (1, 30), (5, 15), (2, 20), (4, 40))
    assert service.poll(19) == 1
    assert service.cancel(1)
    assert service.poll(40) == 2
    assert handler.seen == [5, 2, 4]


@pytest.mark.parametrize(
    ("timers", "cancelled", "polls", "seen"),
    [
        ([(3, 30), (5, 50), (7, 70), (5, 50)], None, [(70, 3)], [3, 5, 7]),
        ([(1, 10), (2, 10), (3, 30), (4, 30), (5, 50), (5, 10)], None, [(10, 3)], [1, 2, 5]),
        ([(1, 10), (2, 10), (3, 30), (4, 30), (5, 50), (1, 30)], None, [(30, 4)], [2, 3, 4, 1]),
        ([(1, 1), (2, 1), (3, 3), (4, 4), (5, 5), (5, 1)], 3, [(5, 4)], [1, 2, 5, 4]),
        ([(1, 1), (2, 1), (3, 3), (4, 4), (5, 5), (1, 5)], 3, [(5, 4)], [2, 4, 5, 1]),
        ([(3, 3), (4, 4), (5, 5), (6, 0)], None, [(5, 4)], [6, 3, 4, 5]),
        # Upstream's: a client's open event schedules one timer twice, and the later one counts.
        ([(1, 1_000_000), (1, 20), (2, 30)], None, [(30, 2)], [1, 2]),
    ],
)
def test_a_timer_that_is_scheduled_again_counts_once_and_is_behind_its_equals(
    service: TimerService,
    handler: Handler,
    timers: list[tuple[int, int]],
    cancelled: int | None,
    polls: list[tuple[int, int]],
    seen: list[int],
) -> None:
    schedule(service, *timers)
    if cancelled is not None:
        assert service.cancel(cancelled)
    for now, expired in polls:
        assert service.poll(now) == expired
    assert handler.seen == seen


def test_timers_expire_then_one_is_cancelled_then_the_others_expire(service: TimerService, handler: Handler) -> None:
    schedule(service, (1, 100), (2, 2), (3, 30), (4, 4), (5, 50))
    assert service.poll(5) == 2
    assert service.cancel(1)
    assert service.poll(1000) == 2
    assert handler.seen == [2, 4, 3, 5]


def test_a_poll_lets_no_more_than_its_limit_expire(service: TimerService, handler: Handler) -> None:
    schedule(service, *((number, number) for number in range(2 * LIMIT + 1)))
    assert [service.poll(LONG_MAX) for _ in range(4)] == [LIMIT, LIMIT, 1, 0]
    assert handler.seen == list(range(2 * LIMIT + 1))


def test_a_snapshot_has_the_timers_by_deadline_and_then_as_they_were_scheduled(service: TimerService) -> None:
    schedule(service, (1, 10), (2, 14), (3, 30), (9, 29), (5, 15), (4, 29), (6, 100_000), (3, 15))
    assert service.poll(14) == 2
    assert snapshot(service) == [(5, 15), (3, 15), (9, 29), (4, 29), (6, 100_000)]


def test_a_snapshot_ends_with_an_exception_and_changes_nothing(service: TimerService) -> None:
    class Failing(TimerSnapshot):
        def on_timer(self, correlation_id: int, deadline: int) -> int:
            raise ValueError(f"{correlation_id} {deadline}")

    schedule(service, (1, 10), (2, 14))
    with pytest.raises(ValueError, match="1 10"):
        service.snapshot(Failing())
    assert snapshot(service) == [(1, 10), (2, 14)]


def test_what_a_snapshot_is_given_to_may_schedule_and_cancel(service: TimerService) -> None:
    class Changing(Taken):
        def on_timer(self, correlation_id: int, deadline: int) -> int:
            service.cancel(2)
            for number in range(100, 200):
                service.schedule(number, deadline)
            return super().on_timer(correlation_id, deadline)

    schedule(service, (1, 10), (2, 14))
    taken = Changing()
    assert service.snapshot(taken) == 2
    assert taken.timers == [(1, 10), (2, 14)]
    assert service.count() == 101


@pytest.mark.parametrize("restored", MAKERS)
def test_timers_from_a_snapshot_expire_as_before(service: TimerService, handler: Handler, restored: str) -> None:
    schedule(service, *((number, (number * 31) % 17) for number in range(60)))
    assert service.poll(3) > 0
    handler.seen.clear()
    other = Handler()
    loaded = MAKERS[restored](other)
    loaded.set_current_time(10_000)
    schedule(loaded, *snapshot(service))
    while service.poll(20_000) + loaded.poll(20_000):
        pass
    assert other.seen == handler.seen != []


@pytest.mark.parametrize("deadline", [LONG_MIN, LONG_MIN + 1, -1, 0, LONG_MAX - 1, LONG_MAX])
def test_any_deadline_is_possible(service: TimerService, handler: Handler, deadline: int) -> None:
    schedule(service, (LONG_MAX, deadline), (LONG_MIN, deadline))
    if deadline > LONG_MIN:
        assert service.poll(deadline - 1) == 0
    assert service.poll(deadline) == 2
    assert handler.seen == [LONG_MAX, LONG_MIN]


def test_a_time_that_goes_back_lets_nothing_expire_early(service: TimerService, handler: Handler) -> None:
    schedule(service, (1, 5_000), (2, 90_000))
    assert service.poll(50_000) == 1
    schedule(service, (3, 4_000), (4, 6_000))
    service.set_current_time(100)
    assert service.poll(3_999) == 0
    assert service.poll(4_000) == 1
    assert service.poll(90_000) == 2
    assert handler.seen == [1, 3, 4, 2]


def test_timers_that_a_jump_passes_over_expire_with_the_next_poll_by_deadline(
    service: TimerService, handler: Handler
) -> None:
    """Upstream: a member that becomes leader, or has loaded a snapshot, sets the time."""
    schedule(service, (1, 900), (2, 5), (3, 2_000), (4, 5), (5, 1_700_000_000_000), (6, 1_700_000_000_001))
    service.set_current_time(1_700_000_000_000)
    assert not handler.seen
    assert service.poll(1_700_000_000_000) == 5
    assert handler.seen == [2, 4, 1, 3, 5]
    assert service.poll(1_700_000_000_001) == 1


def test_each_timer_expires_at_the_first_poll_that_is_not_before_it(service: TimerService, handler: Handler) -> None:
    schedule(service, *((deadline, deadline) for deadline in range(0, 3000, 3)))
    for now in range(3000):
        service.poll(now)
        assert handler.seen == ([now] if now % 3 == 0 else [])
        handler.seen.clear()


# What a handler may do while it is called.


def test_a_handler_schedules_its_own_timer_again(service: TimerService, handler: Handler) -> None:
    def act(correlation_id: int) -> bool:
        service.schedule(correlation_id, 50)
        return True

    schedule(service, (1, 10))
    handler.act = act
    assert service.poll(10) == 1
    assert snapshot(service) == [(1, 50)]


def test_a_handler_that_schedules_its_own_timer_at_once_is_called_to_the_limit(
    service: TimerService, handler: Handler
) -> None:
    def act(correlation_id: int) -> bool:
        service.schedule(correlation_id, 10)
        return True

    schedule(service, (1, 10))
    handler.act = act
    assert service.poll(10) == LIMIT
    assert snapshot(service) == [(1, 10)]


def test_a_handler_cancels_its_own_timer(service: TimerService, handler: Handler) -> None:
    def act(correlation_id: int) -> bool:
        assert service.cancel(correlation_id)
        service.schedule(99, 1_000)  # takes the place in memory of the cancelled one
        return True

    schedule(service, (1, 10))
    handler.act = act
    assert service.poll(10) == 1
    assert snapshot(service) == [(99, 1_000)]


def test_a_handler_cancels_others_and_schedules_earlier_ones(service: TimerService, handler: Handler) -> None:
    def act(correlation_id: int) -> bool:
        if correlation_id == 1:
            service.cancel(2)
            service.schedule(4, 0)
            for number in range(100, 400):  # memory moves
                service.schedule(number, 100_000 + number)
        return True

    schedule(service, (1, 10), (2, 11), (3, 12))
    handler.act = act
    assert service.poll(12) == 3
    assert handler.seen == [1, 4, 3]
    assert service.count() == 300


def test_a_handler_changes_timers_and_says_not_now(service: TimerService, handler: Handler) -> None:
    def act(correlation_id: int) -> bool:
        service.schedule(correlation_id, 20)
        service.cancel(2)
        return False

    schedule(service, (1, 10), (2, 11), (3, 12))
    handler.act = act
    assert service.poll(12) == 0
    assert snapshot(service) == [(3, 12), (1, 20)]


def test_a_handler_sets_the_time_and_takes_a_snapshot(service: TimerService, handler: Handler) -> None:
    taken: list[list[tuple[int, int]]] = []

    def act(_: int) -> bool:
        service.set_current_time(1_000_000)
        taken.append(snapshot(service))
        return True

    schedule(service, (1, 10), (2, 500), (3, 2_000_000))
    handler.act = act
    assert service.poll(10) == 1
    assert taken == [[(1, 10), (2, 500), (3, 2_000_000)]]
    assert service.poll(499) == 0
    assert service.poll(500) == 1


def test_a_handler_must_not_poll(service: TimerService, handler: Handler) -> None:
    schedule(service, (1, 10))
    handler.act = lambda _: bool(service.poll(10))
    with pytest.raises(ClusterError, match="the handler of a timer polled"):
        service.poll(10)
    handler.act = lambda _: True
    assert service.poll(10) == 1


# The wheel.


@pytest.mark.parametrize(
    ("wanted", "taken"), [(1, 1), (2, 2), (3, 4), (8, 8), (8_000, 8_192), (8_000_000, 8_388_608), (2**62, 2**62)]
)
def test_a_tick_is_a_power_of_two_of_the_clusters_unit(handler: Handler, wanted: int, taken: int) -> None:
    assert WheelTimerService(handler, wanted).tick_resolution == taken


@pytest.mark.parametrize("resolution", [0, -1, 2**62 + 1])
def test_a_tick_of_no_length_is_refused(handler: Handler, resolution: int) -> None:
    with pytest.raises(ConfigurationError, match=f"tick resolution {resolution} of a timer wheel: give one of 1"):
        WheelTimerService(handler, resolution)


@pytest.mark.parametrize("ticks", [0, -1, 3, 127, 2**21, LONG_MAX])
def test_a_wheel_has_a_power_of_two_of_ticks(handler: Handler, ticks: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{ticks} ticks per timer wheel: give a power of two"):
        WheelTimerService(handler, 8, ticks)


@pytest.mark.parametrize("now", [LONG_MIN, LONG_MAX])
def test_a_wheel_goes_from_one_end_of_time_to_the_other(handler: Handler, now: int) -> None:
    service = WheelTimerService(handler, 1, 128, LONG_MIN)
    schedule(service, (1, LONG_MIN + 1), (2, LONG_MIN + 128), (3, LONG_MIN + 129), (4, 0), (5, LONG_MAX))
    service.set_current_time(now)
    assert service.poll(LONG_MIN) == 0
    assert service.poll(LONG_MAX) == 5
    assert handler.seen == [1, 2, 3, 4, 5]


# Against a dict.


class Timers(RuleBasedStateMachine):
    """Calls a service as a member does, and a dict of deadlines and orders of scheduling beside it."""

    make: Callable[[TimerHandler], TimerService]
    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.handler = Handler()
        self.handler.act = self.expire
        self.service = type(self).make(self.handler)
        self.timers: dict[int, tuple[int, int]] = {}
        self.order = 0
        self.now = 0
        self.refusals = 0
        self.scheduled_by_handler: list[tuple[int, int]] = []
        self.cancelled_by_handler: list[int] = []

    def schedule_both(self, correlation_id: int, deadline: int) -> None:
        self.service.schedule(correlation_id, deadline)
        self.order += 1
        self.timers[correlation_id] = (deadline, self.order)

    def cancel_both(self, correlation_id: int) -> None:
        assert self.service.cancel(correlation_id) == (self.timers.pop(correlation_id, None) is not None)

    def expire(self, correlation_id: int) -> bool:
        timer = min(self.timers.items(), key=lambda item: item[1])
        assert timer[0] == correlation_id
        assert timer[1][0] <= self.now
        if self.refusals:
            self.refusals -= 1
            return False
        while self.scheduled_by_handler:
            self.schedule_both(*self.scheduled_by_handler.pop())
        while self.cancelled_by_handler:
            self.cancel_both(self.cancelled_by_handler.pop())
        if self.timers.get(correlation_id) == timer[1]:
            del self.timers[correlation_id]
        return True

    @rule(target=ids, correlation_id=st.integers(LONG_MIN, LONG_MAX) | st.integers(0, 9), after=st.integers(-50, 3000))
    def schedule(self, correlation_id: int, after: int) -> int:
        self.schedule_both(correlation_id, self.now + after)
        return correlation_id

    @rule(correlation_id=ids, after=st.integers(-50, 3000))
    def schedule_again(self, correlation_id: int, after: int) -> None:
        self.schedule_both(correlation_id, self.now + after)

    @rule(first=st.integers(0, 1000), count=st.integers(1, 60), after=st.integers(-50, 3000), step=st.integers(0, 9))
    def schedule_many(self, first: int, count: int, after: int, step: int) -> None:
        for number in range(count):
            self.schedule_both(first + number, self.now + after + number * step)

    @rule(correlation_id=ids)
    def cancel(self, correlation_id: int) -> None:
        self.cancel_both(correlation_id)

    @rule(later=st.integers(0, 40) | st.integers(-500, 10**13))
    def poll(self, later: int) -> None:
        self.now += later
        before = len(self.handler.seen)
        expired = self.service.poll(self.now)
        assert expired <= len(self.handler.seen) - before <= LIMIT
        due = [timer for timer in self.timers.values() if timer[0] <= self.now]
        assert expired == LIMIT or not due or len(self.handler.seen) - before > expired

    @rule(later=st.integers(-500, 10**13) | st.integers(0, 2000))
    def set_current_time(self, later: int) -> None:
        self.service.set_current_time(self.now + later)

    @rule()
    def refuse_next(self) -> None:
        self.refusals += 1

    @rule(correlation_id=ids, after=st.integers(-50, 3000))
    def handler_schedules(self, correlation_id: int, after: int) -> None:
        self.scheduled_by_handler.append((correlation_id, self.now + after))

    @rule(correlation_id=ids)
    def handler_cancels(self, correlation_id: int) -> None:
        self.cancelled_by_handler.append(correlation_id)

    @invariant()
    def all_is_there(self) -> None:
        wanted = sorted((deadline, order, correlation_id) for correlation_id, (deadline, order) in self.timers.items())
        assert snapshot(self.service) == [(correlation_id, deadline) for deadline, _, correlation_id in wanted]


@pytest.mark.parametrize("name", MAKERS)
def test_a_service_is_as_a_dict(name: str) -> None:
    machine = type("TimersOfOne", (Timers,), {"make": staticmethod(MAKERS[name])})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5000)), max_size=400),
    st.lists(st.integers(0, 300), max_size=20),
    st.lists(st.integers(0, 500), max_size=20),
)
def test_heap_and_wheel_let_the_same_timers_expire_in_the_same_order(
    timers: list[tuple[int, int]], cancelled: list[int], steps: list[int]
) -> None:
    seen = []
    for make in MAKERS.values():
        handler = Handler()
        service = make(handler)
        schedule(service, *timers)
        cancels = [service.cancel(correlation_id) for correlation_id in cancelled]
        now, polls = 0, []
        for step in steps:
            now += step
            polls.append(service.poll(now))
        seen.append((handler.seen, cancels, polls, snapshot(service)))
    assert all(each == seen[0] for each in seen)


@pytest.mark.parametrize("name", ["heap", "wheel"])
def test_a_million_timers(name: str) -> None:
    handler = Handler()
    service = MAKERS[name](handler)
    number = 1_000_000
    for correlation_id in range(number):
        service.schedule(correlation_id, (correlation_id * 7919) % 100_003)
    for correlation_id in range(0, number, 2):
        service.cancel(correlation_id)
    assert service.count() == number // 2
    while service.poll(100):
        pass
    assert handler.seen == sorted(
        (each for each in range(1, number, 2) if (each * 7919) % 100_003 <= 100),
        key=lambda each: ((each * 7919) % 100_003, each),
    )


def test_a_service_that_goes_gives_its_memory_back(handler: Handler) -> None:
    def live() -> None:
        for service in (PriorityHeapTimerService(handler), WheelTimerService(handler, 8, 1 << 18)):
            for correlation_id in range(10_000):
                service.schedule(correlation_id, correlation_id)
            service.snapshot(Taken())

    for _ in range(3):
        live()
    before = used_mib()
    for _ in range(100):
        live()
    assert used_mib() < before + 20


# What is abstract says so.


def test_an_abstract_class_names_the_method_that_is_missing(service: TimerService) -> None:
    bare = TimerService()
    calls: list[Callable[[], object]] = [
        lambda: TimerHandler().on_timer_event(1, 2),
        lambda: TimerSnapshot().on_timer(1, 2),
        lambda: bare.poll(1),
        lambda: bare.schedule(1, 2),
        lambda: bare.cancel(1),
        lambda: bare.snapshot(Taken()),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="does not implement"):
            call()
    bare.set_current_time(1)
    assert bare.count() == 0
    schedule(service, (1, 1))
    with pytest.raises(TypeError, match="TimerSnapshot does not implement on_timer"):
        service.snapshot(TimerSnapshot())


def test_a_service_needs_a_handler() -> None:
    for make in (PriorityHeapTimerService, lambda handler: WheelTimerService(handler, 8)):
        with pytest.raises(TypeError):
            make(None)  # type: ignore[arg-type]
