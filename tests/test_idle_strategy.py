"""Idle strategies: names, aliases and parameters, what each does, and what is refused."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.errors import ConfigurationError
from container.testing.memory import transport_probe as seam
from container.transport.idle_strategy import (
    BackoffIdleStrategy,
    BusySpinIdleStrategy,
    IdleStrategy,
    NoOpIdleStrategy,
    SleepingIdleStrategy,
    YieldingIdleStrategy,
    parse_duration_ns,
    parse_idle_strategy,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("noop", "noop"),
        ("no-op", "noop"),
        ("no_op", "noop"),
        ("NOOP", "noop"),
        ("busy_spin", "busy_spin"),
        ("busy-spin", "busy_spin"),
        ("spin", "busy_spin"),
        ("spinning", "busy_spin"),
        ("yield", "yield"),
        ("yielding", "yield"),
        ("sleep", "sleep(1000ns)"),
        ("sleep-ns", "sleep(1000ns)"),
        ("sleep_ns", "sleep(1000ns)"),
        ("sleep-ms", "sleep(1000000ns)"),
        ("sleep(100us)", "sleep(100000ns)"),
        ("sleep-ms(2ms)", "sleep(2000000ns)"),
        ("sleep(1)", "sleep(1ns)"),
        ("sleep(1s)", "sleep(1000000000ns)"),
        (" Sleep ( 5 us ) ", "sleep(5000ns)"),
        ("backoff", "backoff(10,20,1000ns,1000000ns)"),
        ("BackOff", "backoff(10,20,1000ns,1000000ns)"),
        ("backoff(10,20,1us,50us)", "backoff(10,20,1000ns,50000ns)"),
        ("backoff( 0 , 0 , 1 , 1 )", "backoff(0,0,1ns,1ns)"),
        ("noop()", "noop"),
    ],
)
def test_names_and_parameters(text: str, shown: str) -> None:
    strategy = parse_idle_strategy(text)
    assert repr(strategy) == shown
    assert repr(parse_idle_strategy(repr(strategy))) == shown


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("noop", NoOpIdleStrategy),
        ("spin", BusySpinIdleStrategy),
        ("yield", YieldingIdleStrategy),
        ("sleep", SleepingIdleStrategy),
        ("backoff", BackoffIdleStrategy),
    ],
)
def test_each_name_makes_a_new_strategy(text: str, kind: type[IdleStrategy]) -> None:
    first, second = parse_idle_strategy(text), parse_idle_strategy(text)
    assert type(first) is type(second) is kind
    assert first is not second


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "controllable",
        "org.agrona.concurrent.BusySpinIdleStrategy",
        "noop(1)",
        "spin(1us)",
        "yield(1)",
        "sleep(1us,2us)",
        "sleep(us)",
        "sleep(-1us)",
        "sleep(0)",
        "sleep(1.5us)",
        "sleep(1h)",
        "sleep(1us",
        "sleep 1us)",
        "sleep(1us) x",
        "sleep((1us))",
        "sleep(99999999999999999999s)",
        "sleep(10000000000s)",
        "backoff(1)",
        "backoff(1,2,3us)",
        "backoff(1,2,3us,4us,5us)",
        "backoff(x,2,1us,2us)",
        "backoff(1,-2,1us,2us)",
        "backoff(1us,2,1us,2us)",
        "backoff(1,2,0,2us)",
        "backoff(1,2,2us,1us)",
        "backoff(99999999999999999999,2,1us,2us)",
        "backoff(,,,)",
    ],
)
def test_what_is_not_understood_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_idle_strategy(text)
    assert repr(text) in str(error.value)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("text", ["controllable", "sleep(1us,2us)"])
def test_the_refusal_names_what_there_is(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"noop, busy_spin .*yield, sleep\(100us\).*backoff"):
        parse_idle_strategy(text)


@given(st.text(max_size=30))
def test_any_text_is_either_understood_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        assert isinstance(parse_idle_strategy(text), IdleStrategy)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("500", 500),
        ("1ns", 1),
        ("100us", 100_000),
        ("2ms", 2_000_000),
        ("3s", 3_000_000_000),
        (" 7 MS ", 7_000_000),
        ("007us", 7_000),
    ],
)
def test_durations_have_units(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize("text", ["", "us", "-1us", "1.5s", "1 h", "1m", "0x1s", "1us 2us", "\u00b2s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="such as 100us"):
        parse_duration_ns(text)


@pytest.mark.parametrize("period_ns", [0, -1])
def test_a_sleep_lasts_at_least_a_nanosecond(period_ns: int) -> None:
    with pytest.raises(ConfigurationError, match=f"not {period_ns}ns"):
        SleepingIdleStrategy(period_ns)


def test_settings_of_a_strategy_can_be_read() -> None:
    assert SleepingIdleStrategy(5).period_ns == 5
    backoff = BackoffIdleStrategy(1, 2, 3, 4)
    assert (backoff.max_spins, backoff.max_yields) == (1, 2)
    assert (backoff.min_park_period_ns, backoff.max_park_period_ns) == (3, 4)


HOUR_NS = 3_600 * 10**9


def elapsed_ns(strategy: IdleStrategy, work_count: int = 0) -> int:
    before = time.monotonic_ns()
    seam.idle(strategy, work_count)
    return time.monotonic_ns() - before


def test_sleeping_waits_only_when_there_was_no_work() -> None:
    strategy = SleepingIdleStrategy(20_000_000)
    assert elapsed_ns(strategy, 0) >= 20_000_000
    seam.idle(SleepingIdleStrategy(HOUR_NS), 1)  # a test that sleeps is ended


def test_backoff_parks_longer_and_longer_up_to_its_maximum() -> None:
    strategy = BackoffIdleStrategy(0, 0, 2_000_000, 8_000_000)
    assert elapsed_ns(strategy) >= 2_000_000
    assert elapsed_ns(strategy) >= 4_000_000
    assert elapsed_ns(strategy) >= 8_000_000
    assert elapsed_ns(strategy) >= 8_000_000


@pytest.mark.parametrize("by_work", [True, False])
def test_backoff_begins_anew_after_work_or_a_reset(by_work: bool) -> None:
    def first_park_ns() -> int:
        strategy = BackoffIdleStrategy(0, 0, 1_000, 50_000_000)
        for _ in range(12):
            seam.idle(strategy)
        if by_work:
            seam.idle(strategy, 1)
        else:
            seam.reset_idle(strategy)
        return elapsed_ns(strategy)

    # The machine may be busy; parking for the 4 ms that had been reached each time would be no accident.
    assert any(first_park_ns() < 4_000_000 for _ in range(100))


@pytest.mark.parametrize("text", ["noop", "spin", "yield", "sleep(3600s)", "backoff(0,0,3600s,3600s)"])
def test_no_strategy_waits_when_there_was_work(text: str) -> None:
    strategy = parse_idle_strategy(text)
    for _ in range(40):
        seam.idle(strategy, 1)  # a test that sleeps is ended
    seam.reset_idle(strategy)
    seam.idle(strategy, 2**31 - 1)


@pytest.mark.parametrize("text", ["sleep(20ms)", "backoff(0,0,20ms,20ms)"])
def test_a_negative_count_of_work_is_none(text: str) -> None:
    assert elapsed_ns(parse_idle_strategy(text), -1) >= 20_000_000


@pytest.mark.parametrize("strategy", [IdleStrategy(), NoOpIdleStrategy(), BusySpinIdleStrategy()])
def test_strategies_that_spin_never_wait(strategy: IdleStrategy) -> None:
    assert any(elapsed_ns(strategy) < 1_000_000 for _ in range(1_000))
