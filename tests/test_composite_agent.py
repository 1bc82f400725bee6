"""The parts of a node on one thread: who has a turn when, what idles, what ends it, and how it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from container.aeron import MediaDriver
from container.agent.composite_agent import CompositeAgent
from container.testing.memory import transport_probe as probe
from container.transport.idle_strategy import NoOpIdleStrategy, YieldingIdleStrategy
from tests.limits import LIMIT_S


class Part:
    """Counts its turns, and notes what it is asked."""

    def __init__(self, name: str, told: list[str], turn: Callable[[], int] = lambda: 0) -> None:
        self._name, self._told, self._turn = name, told, turn

    def invoke(self) -> int:
        self._told.append(self._name)
        return self._turn()

    def end_turn(self, error: BaseException | None) -> None:
        self._told.append(f"{self._name} ended a turn: {error!r}")

    def interrupt(self) -> None:
        self._told.append(f"{self._name} interrupted")

    def close(self) -> None:
        self._told.append(f"{self._name} closed")


def agent(told: list[str], driver: MediaDriver | None = None) -> CompositeAgent:
    return CompositeAgent(
        driver,
        told.append,  # type: ignore[arg-type]
        lambda: told.append("prepared"),
        lambda: told.append("the end"),
    )


def test_a_turn_is_one_of_each_part_in_order_and_adds_up_what_they_did() -> None:
    told: list[str] = []
    made = agent(told)
    made.add(Part("archive", told, lambda: 1))
    made.add(Part("consensus module", told, lambda: 2))
    made.add_service(Part("service", told, lambda: 4))
    assert made.do_work() == 7
    assert told == ["archive", "consensus module", "service"]


def test_a_service_that_idles_runs_the_others_and_not_itself() -> None:
    told: list[str] = []
    made = agent(told)
    made.add(Part("archive", told))
    made.add_service(Part("service", told))
    idle = made.new_idle_strategy(NoOpIdleStrategy())
    assert "noop, after the other parts" in repr(idle)
    probe.idle(idle)
    assert told == ["archive"]


def test_a_part_s_agent_has_its_turns_without_its_owner_but_for_start_errors_and_end() -> None:
    told: list[str] = []
    turns: list[Callable[[], int]] = []
    inner = agent(told)
    inner.add(Part("inside", told, lambda: turns.pop()()))
    made = agent(told)
    made.add(Part("owner", told, lambda: 1), inner)

    def fail() -> int:
        raise OSError("disk")

    def ask_for_end() -> int:
        assert inner.is_busy
        inner.ask_for_end()
        return 3

    assert made.do_work() == 1
    inner.on_start()
    turns += [ask_for_end, fail, lambda: 5]
    assert [made.do_work() for _ in range(3)] == [5, 0, 3]
    inner.stop()
    assert made.do_work() == 1
    inner.close()
    assert made.do_work() == 1
    assert told == [
        *("owner", "prepared", "inside", "inside", "owner ended a turn: OSError('disk')"),
        *("inside", "owner ended a turn: None", "owner", "the end", "inside closed", "owner"),
    ]


def test_it_closes_services_first_and_the_archive_last_whatever_they_raise() -> None:
    told: list[str] = []

    class Failing(Part):
        def close(self) -> None:
            super().close()
            raise OSError("disk")

    made = agent(told)
    made.add(Part("archive", told))
    made.add(Part("consensus module", told))
    made.add_service(Failing("service", told))
    made.close()
    made.close()
    assert told == ["the end", "service closed", "consensus module closed", "archive closed"]
    assert isinstance(made.termination, OSError)


def test_stop_ends_a_run_and_interrupt_ends_what_idles() -> None:
    told: list[str] = []
    made = agent(told)
    entered, release = threading.Event(), threading.Event()

    def callback() -> int:
        entered.set()
        assert release.wait(LIMIT_S)
        return 0

    made.add_service(Part("service", told, callback))
    thread = threading.Thread(target=made.run, args=(YieldingIdleStrategy(),))
    thread.start()
    assert entered.wait(LIMIT_S)
    made.stop()
    made.stop()
    assert told == ["prepared", "service"]
    made.interrupt()
    release.set()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert told == ["prepared", "service", "service interrupted", "the end", "service closed"]
    assert made.termination is None


def test_what_ends_the_program_ends_the_run() -> None:
    told: list[str] = []

    def callback() -> int:
        raise SystemExit(3)

    made = agent(told)
    made.add_service(Part("service", told, callback))
    made.run(NoOpIdleStrategy())
    assert isinstance(made.termination, SystemExit)
    assert told == ["prepared", "service", "the end", "service closed"]


def test_a_driver_with_work_has_more_turns_than_one_but_no_more_than_it_may() -> None:
    told: list[str] = []
    with MediaDriver.launch_embedded(threading="INVOKER") as driver:
        made = agent(told, driver)
        made.add(Part("archive", told))
        for _ in range(100):
            made.do_work()
    assert told == ["archive"] * 100


def test_without_what_it_needs_it_is_refused() -> None:
    with pytest.raises(TypeError):
        CompositeAgent(None, None, print, print)  # type: ignore[arg-type]
