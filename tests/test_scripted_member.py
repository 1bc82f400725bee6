"""ScriptedMember's parameters: another clock, another idle strategy, errors that go elsewhere; and what ends a wait."""

from __future__ import annotations

import pytest

from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.scripted_consensus_module import ScriptError
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from container.transport.clocks import SystemClock
from container.transport.idle_strategy import NoOpIdleStrategy


def test_a_clock_and_an_idle_strategy_that_are_given_are_the_agents() -> None:
    clock, idle_strategy = SystemClock(), NoOpIdleStrategy()
    member = ScriptedMember(clock=clock, idle_strategy=idle_strategy).lead()
    assert member.context.clock is member.clock is member.driver.clock is clock
    assert member.context.idle_strategy is member.idle_strategy is idle_strategy
    member.cm.open_session(1)
    member.deliver(b"hello")
    assert member.service.messages == [b"hello"]
    assert abs(member.mark_file.activity_timestamps[-1] - 1_700_000_000_000) > 1_000_000


def test_the_agent_may_have_another_clock_than_its_driver() -> None:
    driver, clock = MemoryDriver(), SystemClock()
    member = ScriptedMember(driver=driver, clock=clock)
    assert member.context.clock is clock
    assert member.driver is driver


def test_work_and_idling_advance_the_clock() -> None:
    member = ScriptedMember().lead()
    before = member.clock.now_ns
    member.work(2)
    assert member.clock.now_ns == before + 2 * TICK_NS
    member.in_callback(lambda *_: member.service.cluster.idle())
    member.idle_ns = 5
    member.cm.session_message(1, b"x")
    member.cm.commit()
    member.work(1)
    assert member.clock.now_ns == before + 3 * TICK_NS + 5


def test_errors_go_to_on_error_alone() -> None:
    errors: list[BaseException] = []
    member = ScriptedMember(on_error=errors.append).lead()
    error = ValueError("of the service")

    def fail(*_args: object) -> None:
        raise error

    member.in_callback(fail)
    member.deliver(b"x")
    assert (errors, member.errors, member.remarks) == ([error], [], [])


def test_snapshots_start_another_member() -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda publication: publication.send(b"state"), "on_take_snapshot")
    messages = member.take_snapshot()
    assert messages[-1] == b"state"
    other = ScriptedMember(log_position=member.cm.log_position).start(messages)
    assert other.service.snapshot == [b"state"]


def test_an_agent_that_lives_on_is_reported() -> None:
    with pytest.raises(ScriptError, match="the agent did not terminate within 4 duty cycles"):
        ScriptedMember().lead().terminated(4)


def test_an_event_behind_the_padding_of_a_log_term_is_delivered() -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(1)
    while member.cm.log_position < 64 * 1024 - 1408:
        member.deliver(b"x" * 1_000)
    member.deliver(b"behind" * 200)
    assert member.service.messages[-1] == b"behind" * 200
    assert member.cm.log_position > 64 * 1024
    assert not member.is_behind
