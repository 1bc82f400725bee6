"""How an agent ends, over memory: termination positions, requested acks, a dead consensus module, a dead driver."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from container.api import Role
from container.errors import (
    AeronEvent,
    AgentTermination,
    ClusterEvent,
    ClusterTermination,
)
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from tests.limits import LIMIT_S

NULL_VALUE = -1
BACK_PRESSURED = -2


def test_s48_abort_calls_on_terminate_once_acks_at_the_position_and_runs_the_hook_once() -> None:
    member = ScriptedMember().lead()
    member.deliver(b"x")
    position = member.service.cluster.log_position
    member.cm.termination_position(position)
    termination = member.terminated()
    assert isinstance(termination, ClusterTermination)
    assert termination.is_expected
    assert member.service.of("on_terminate") == [()]
    assert member.cm.acks[-1] == (position, 1_000, 2, NULL_VALUE, 0)
    assert member.hooks == 1
    member.agent.close()
    assert member.service.of("on_terminate") == [()]
    assert member.mark_file.is_terminated
    assert member.is_context_closed


def test_s48_nothing_happens_before_the_position_is_reached() -> None:
    member = ScriptedMember().lead()
    end = member.cm.session_message(1, b"x")
    member.cm.termination_position(end)
    member.work(5)
    assert member.service.of("on_terminate") == []
    member.cm.commit()
    assert member.terminated().is_expected  # type: ignore[attr-defined]
    assert member.service.messages == [b"x"]


def test_s49_shutdown_acks_the_snapshot_and_the_termination_with_consecutive_ids() -> None:
    member = ScriptedMember().lead()
    position = member.cm.snapshot()
    member.cm.termination_position(position)
    member.cm.commit()
    member.terminated()
    snapshot, termination = member.cm.acks[-2:]
    assert (snapshot.ack_id, termination.ack_id) == (2, 3)
    assert snapshot.log_position == termination.log_position == position
    assert snapshot.relevant_id != NULL_VALUE


@pytest.mark.parametrize(
    ("version", "ack_required", "is_acked"),
    [(16, None, True), (12, None, True), (17, False, False), (17, True, True), (17, None, True)],
)
def test_s50_only_an_explicit_false_suppresses_the_ack(version: int, ack_required: bool | None, is_acked: bool) -> None:
    member = ScriptedMember().lead()
    member.cm.termination_position(ack_required=ack_required, version=version)
    member.terminated()
    assert len(member.cm.acks) == (3 if is_acked else 2)
    assert member.service.of("on_terminate") == [()]


def test_s51_a_position_that_has_passed_is_an_event_an_unexpected_end_and_acked_all_the_same() -> None:
    member = ScriptedMember().lead()
    position = member.service.cluster.log_position
    member.cm.termination_position(position - 32)
    termination = member.terminated()
    assert isinstance(termination, ClusterTermination)
    assert not termination.is_expected
    (event,) = member.errors
    assert isinstance(event, ClusterEvent)
    assert str(event) == f"service terminate: logPosition={position} > terminationPosition={position - 32}"
    assert member.cm.acks[-1].log_position == position


def test_the_end_of_a_consensus_module_that_failed_is_named_as_that() -> None:
    member = ScriptedMember().lead()
    position = member.service.cluster.log_position
    member.cm.termination_position(0)
    assert not member.terminated().is_expected  # type: ignore[attr-defined]
    (event,) = member.errors
    assert str(event) == (
        f"service terminate: logPosition={position}, and the consensus module ends by itself: its error log says why"
    )
    assert member.cm.acks[-1].log_position == position


def test_the_termination_ack_is_tried_five_times() -> None:
    member = ScriptedMember().lead()
    member.results(*[BACK_PRESSURED] * 5)
    before = member.idle_strategy.idle_count
    member.cm.termination_position()
    assert member.terminated().is_expected  # type: ignore[attr-defined]
    assert member.idle_strategy.idle_count - before == 4
    assert len(member.cm.acks) == 2
    member = ScriptedMember().lead()
    member.results(*[BACK_PRESSURED] * 4)
    member.cm.termination_position()
    member.terminated()
    assert len(member.cm.acks) == 3


def test_an_exception_in_on_terminate_is_logged_and_the_end_goes_on() -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda _cluster: 1 // 0, "on_terminate")
    member.cm.termination_position()
    assert member.terminated().is_expected  # type: ignore[attr-defined]
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert len(member.cm.acks) == 3


def test_an_exception_in_the_termination_hook_is_logged() -> None:
    member = ScriptedMember().lead()
    member.context.termination_hook = lambda: 1 // 0
    member.cm.termination_position()
    member.terminated()
    assert [type(error) for error in member.errors] == [ZeroDivisionError]


def test_s52_a_closed_commit_counter_is_an_event_and_an_expected_end() -> None:
    member = ScriptedMember().lead()
    member.cm.remove_commit_counter()
    termination = member.terminated()
    assert isinstance(termination, ClusterTermination)
    assert termination.is_expected
    (event,) = member.events
    assert isinstance(event, AeronEvent)
    assert str(event) == "commit-pos counter unexpectedly closed, terminating"
    assert member.errors == [], "the event is not counted"
    assert member.hooks == 1
    assert member.service.of("on_terminate") == []
    member.agent.close()
    assert member.service.of("on_terminate") == [()]


def test_s52_a_commit_counter_that_was_seen_half_made_is_missed_when_it_goes() -> None:
    member = ScriptedMember()
    counter = member.cm.add_commit_counter()
    # A driver writes the registration id, by which it tells of the counter's end, after it has shown the counter.
    member.driver.set_counter_registration_id(counter.counter_id, 0)
    member.after_idles(
        5, lambda: member.driver.set_counter_registration_id(counter.counter_id, counter.registration_id)
    )
    member.cm.add_recovery_counter()
    member.agent.on_start()
    assert member.idle_strategy.idle_count > 5
    member.cm.remove_commit_counter()
    assert isinstance(member.terminated(), ClusterTermination)


def test_another_counter_in_the_place_of_the_commit_position_s_commits_nothing() -> None:
    """The driver gives an id away after a second; an agent that stood still has not heard yet of the counter's end."""
    member = ScriptedMember().lead()
    member.deliver(b"committed")
    member.cm.session_message(1, b"never committed")
    other = member.driver.connect("other")
    assert member.cm.commit_counter is not None
    place = member.cm.commit_counter.counter_id
    member.cm.remove_commit_counter()
    member.clock.set_epoch_ms(member.clock.now_ms + 1_001)
    counters = [seam.add_counter(other, 1_001)]
    while counters[-1].counter_id != place:
        counters.append(seam.add_counter(other, 1_001))
    seam.set_counter(counters[-1], 1 << 40)
    member.agent.do_work()
    assert member.service.messages == [b"committed"]
    assert isinstance(member.terminated(), ClusterTermination)


def test_another_commit_counter_may_go() -> None:
    member = ScriptedMember()
    other = member.cm.add_commit_counter(cluster_id=9)
    member.lead()
    other.close()
    member.work(5)
    member.deliver(b"x")
    assert member.service.messages == [b"x"]


def test_a_log_that_ends_with_the_consensus_module_makes_a_follower_first() -> None:
    member = ScriptedMember().lead()
    member.cm.end_log()
    member.work(1)
    member.cm.remove_commit_counter()
    member.terminated()
    member.agent.close()
    assert member.service.names()[-2:] == ["on_role_change", "on_terminate"]
    assert member.service.of("on_role_change")[-1] == (Role.FOLLOWER,)


@pytest.mark.parametrize("is_invoker", [True, False])
def test_s53_a_dead_driver_ends_the_agent_without_on_terminate(is_invoker: bool) -> None:
    member = ScriptedMember(is_invoker=is_invoker).lead()
    member.open_session()
    member.driver.kill()
    termination = member.terminated()
    assert str(termination) == "unexpected Aeron close"
    assert not isinstance(termination, ClusterTermination)
    assert member.hooks == 1
    member.agent.close()
    assert member.service.of("on_terminate") == []
    assert member.mark_file.is_terminated
    assert member.is_context_closed


def test_s53_a_driver_that_closes_images_first_is_survived() -> None:
    member = ScriptedMember().lead()
    member.client.force_close_resources()
    member.work(2)
    member.driver.kill()
    assert str(member.terminated()) == "unexpected Aeron close"


@pytest.mark.parametrize(
    "error", [ValueError("handler"), SystemExit("handler")], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("is_closed_before", [True, False])
def test_s53_an_error_handler_of_the_client_that_raises_does_not_hide_the_drivers_end(
    error: BaseException, is_closed_before: bool
) -> None:
    member = ScriptedMember().lead()
    member.deliver(b"before")
    if is_closed_before:
        member.driver.kill()
    else:
        member.driver.kill(at_next_invoke=True)
    member.driver.fail_next_invoke(error)
    member.clock.advance(TICK_NS)
    with pytest.raises(AgentTermination, match="^unexpected Aeron close$"):
        member.agent.do_work()
    assert member.errors == [error]
    member.agent.close()
    assert member.service.of("on_terminate") == []


def test_s53_nor_does_it_while_the_agent_idles() -> None:
    member = ScriptedMember().lead()
    error = ValueError("handler")

    def idles(*_: object) -> None:
        member.driver.kill(at_next_invoke=True)
        member.driver.fail_next_invoke(error)
        member.service.cluster.idle()

    member.in_callback(idles)
    member.cm.session_message(1, b"x")
    member.cm.commit()
    assert str(member.terminated()) == "unexpected Aeron close"
    assert error in member.errors


def test_an_error_handler_of_the_client_that_raises_leaves_the_duty_cycle_whole() -> None:
    member = ScriptedMember().lead()
    error = ValueError("handler")
    member.cm.session_message(1, b"x")
    member.cm.commit()
    marks = len(member.mark_file.activity_timestamps)
    member.driver.fail_next_invoke(error)
    member.clock.advance(1_000_000_000)
    member.agent.do_work()
    assert member.errors == [error]
    assert member.service.messages == [b"x"]
    assert len(member.mark_file.activity_timestamps) == marks + 1


def test_s54_a_close_calls_on_terminate_once_and_closes_what_the_agent_opened() -> None:
    member = ScriptedMember().lead()
    member.open_session()
    member.agent.close()
    member.agent.close()
    assert member.service.of("on_terminate") == [()]
    assert [resource for resource in member.client.open_resources if hasattr(resource, "channel")] == [], (
        "streams are closed, the client is not the agent's"
    )
    assert not member.client.is_closed()
    assert member.mark_file.is_terminated


def test_the_close_of_an_agent_that_did_not_start_calls_nothing() -> None:
    member = ScriptedMember()
    member.agent.close()
    assert member.service.names() == []
    assert member.mark_file.is_terminated


def test_an_exception_in_on_terminate_does_not_stop_the_close() -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda _cluster: 1 // 0, "on_terminate")
    member.agent.close()
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert member.is_context_closed


def test_s55_a_requested_ack_is_sent_when_the_position_is_reached() -> None:
    member = ScriptedMember().lead()
    end = member.cm.session_message(1, b"x")
    member.cm.request_service_ack(end)
    member.work(5)
    assert len(member.cm.acks) == 2
    member.commit()
    assert member.cm.acks[-1] == (end, 1_000, 2, NULL_VALUE, 0)
    member.work(5)
    assert len(member.cm.acks) == 3, "once"


def test_s55_a_requested_position_that_has_passed_is_an_event_and_acked() -> None:
    member = ScriptedMember().lead()
    position = member.service.cluster.log_position
    member.cm.request_service_ack(0)
    member.work()
    (event,) = member.errors
    assert str(event) == f"invalid ack request: logPosition={position} > requestedAckPosition=0"
    assert member.cm.acks[-1].log_position == position


def test_s58_an_ack_under_back_pressure_is_tried_until_sent_and_ticks_go_on() -> None:
    member = ScriptedMember().lead()
    member.results(*[BACK_PRESSURED] * 50)
    member.idle_ns = 100_000_000
    marks = len(member.mark_file.activity_timestamps)
    member.cm.request_service_ack()
    member.work()
    assert len(member.cm.acks) == 3
    assert len(member.mark_file.activity_timestamps) - marks >= 4


def test_s11_the_activity_timestamp_advances_once_per_second() -> None:
    member = ScriptedMember().lead()
    begin = len(member.mark_file.activity_timestamps)
    for _ in range(10_000):
        member.clock.advance(TICK_NS)
        member.agent.do_work()
    stamps = member.mark_file.activity_timestamps[begin:]
    assert 10 <= len(stamps) <= 12
    assert all(1_000 <= after - before <= 1_002 for before, after in itertools.pairwise(stamps))


@pytest.mark.parametrize("jump_ms", [-3_600_000, -5_000, 3_600_000])
def test_s11_it_follows_a_time_of_day_that_jumps_with_the_next_tick(jump_ms: int) -> None:
    member = ScriptedMember().lead()
    member.clock.set_epoch_ms(member.clock.now_ms + jump_ms)
    begin = len(member.mark_file.activity_timestamps)
    member.work(1)
    assert member.mark_file.activity_timestamps[begin:] == [member.clock.now_ms]
    member.clock.advance(1_000_000_000)
    member.work(1)
    assert member.mark_file.activity_timestamps[begin + 1 :] == [member.clock.now_ms]


def test_s11_it_advances_during_long_idles_of_the_user() -> None:
    member = ScriptedMember().lead()
    begin = len(member.mark_file.activity_timestamps)

    def idles(*_: object) -> None:
        for _idle in range(10):
            member.service.cluster.idle()

    member.idle_ns = 1_000_000_001
    member.in_callback(idles)
    member.deliver(b"x")
    assert len(member.mark_file.activity_timestamps) - begin >= 10


@pytest.mark.parametrize("count", [1, 5])
def test_the_duty_cycle_is_measured(count: int) -> None:
    member = ScriptedMember().lead()
    tracker = member.context.duty_cycle_tracker
    for _ in range(count):
        member.clock.advance(2_000_000_000)
        member.agent.do_work()
    assert tracker.max_counter.value == 2_000_000_000
    assert tracker.exceeded_counter.value == count


# the runner


def running(member: ScriptedMember, step: Callable[[], object]) -> threading.Thread:
    """Runs the agent's whole life on a thread, calling ``step`` whenever it idles."""
    thread = threading.Thread(target=lambda: member.agent.run(SteppingIdleStrategy(step, max_idles=100_000)))
    thread.start()
    return thread


def test_run_is_the_whole_life_and_counts_errors() -> None:
    member = ScriptedMember()
    member.cm.start()
    member.service.actions["on_role_change"] = lambda _role: 1 // 0
    steps = iter(
        [
            member.cm.join_as_leader,
            lambda: None,
            lambda: None,
            lambda: member.cm.session_message(1, b"x"),
            member.cm.commit,
            lambda: None,
            lambda: None,
            member.agent.stop,
        ]
    )

    def step() -> None:
        member.clock.advance(TICK_NS)
        next(steps, lambda: None)()

    thread = running(member, step)
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert member.agent.termination is None
    assert member.service.names() == ["on_start", "on_role_change", "on_session_message", "on_terminate"]
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert member.is_context_closed


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, AgentTermination("why")])
def test_run_ends_with_what_is_no_exception(error: BaseException | type[BaseException]) -> None:
    member = ScriptedMember()
    member.cm.start()

    def raises(_now: int) -> int:
        raise error

    member.service.actions["do_background_work"] = raises
    thread = running(member, lambda: member.clock.advance(TICK_NS))
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert type(member.agent.termination) is (error if isinstance(error, type) else type(error))
    assert member.is_context_closed
    assert member.mark_file.is_terminated


def test_run_that_can_not_start_closes_in_order() -> None:
    member = ScriptedMember()
    member.cm.start()
    member.service.actions["on_start"] = lambda *_: 1 // 0
    member.agent.run(SteppingIdleStrategy())
    assert "failed to start service" in str(member.agent.termination)
    assert member.errors == [member.agent.termination]
    assert member.is_context_closed
    assert member.service.names() == ["on_start"]
