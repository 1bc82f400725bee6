"""Processes with other wall clocks, thread timing and interpreters find the services that depend on them."""

from __future__ import annotations

import datetime
import importlib.util
import shutil
import subprocess
import sys
import zoneinfo
from pathlib import Path

import pytest

from container.errors import ConfigurationError, ContainerError
from container.testing.memory import environments
from container.testing.memory.checks import ENVIRONMENTS, DivergenceError, Environment, check_environments
from container.testing.memory.environment_process import Result
from tests.services import (
    Adding,
    Exiting,
    Hour,
    Joining,
    Limited,
    LocalTime,
    Logging,
    Patient,
    ProcessorsOnce,
    Racing,
    SystemToday,
    Today,
    Versioned,
)

ROOT = Path(__file__).resolve().parent.parent
LIFE = "tests.services:life"
PLAIN, CLOCK, THREADS = ENVIRONMENTS[0], ENVIRONMENTS[3], ENVIRONMENTS[4]
# What environments differ in, all at once: two processes find it.
ALL = ENVIRONMENTS[1].with_aspect("wall clock", CLOCK).with_aspect("threads", THREADS)
ZONES = [environment.variables["TZ"] for environment in ENVIRONMENTS[:3]]


def check(service: type[Adding], *chosen: Environment, pythons: list[str] | None = None) -> int:
    return check_environments(service, LIFE, environments=chosen, pythons=pythons or [])


@pytest.fixture
def no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding does not look for its cause, with more processes."""
    monkeypatch.setattr(environments, "_cause", lambda *_arguments: "")


@pytest.mark.parametrize("service", [Today, Hour])
@pytest.mark.usefixtures("no_cause")
def test_a_service_that_reads_a_clock_is_found_by_another_clock(service: type[Adding]) -> None:
    with pytest.raises(DivergenceError, match="differs between processes with .*'wall clock': '2041-"):
        check(service, PLAIN, CLOCK)


def test_the_clocks_of_a_life_go_as_they_are_told() -> None:
    standing = Environment(PLAIN.variables, wall_clock="2041-07-09T03:30:00+00:00")
    assert check(Hour, CLOCK, CLOCK) > 100
    assert check(Patient, PLAIN, standing) > 100
    with pytest.raises(DivergenceError, match="wall clock; look for the clock: use the timestamp of the event"):
        check(Hour, standing, CLOCK)


@pytest.mark.usefixtures("no_cause")
def test_a_service_whose_threads_race_is_found() -> None:
    with pytest.raises(DivergenceError, match="differs between processes with .*'threads': '2 busy, switch interval"):
        check(Racing, PLAIN, THREADS)


def test_good_services_do_not_depend_on_clocks_and_threads() -> None:
    assert check_environments(Adding, LIFE) > 500
    assert check(Joining, PLAIN, ALL) > 200


@pytest.mark.parametrize(
    ("service", "life"),
    [("auction_service:AuctionService", "bids"), ("ledger_service:LedgerService", "transfers")],
)
def test_the_examples_are_the_same_in_all_environments(service: str, life: str) -> None:
    compared = check_environments(f"examples.{service}", f"tests.services:{life}", environments=[PLAIN, ALL])
    assert compared > 80


def test_local_time_of_the_clock_differs_with_the_time_zone_and_with_the_clock() -> None:
    def at(clock: str, zone: str) -> Environment:
        return Environment({**PLAIN.variables, "TZ": zone}, wall_clock=clock)

    now, later = "2041-07-09T01:30:00+00:00", "2042-07-09T01:30:00+00:00"
    chosen = at(now, "UTC"), at(now, "America/St_Johns"), at(later, "UTC")
    with pytest.raises(
        DivergenceError, match="it differs with TZ, and also with wall clock; look for local time, of a "
    ):
        check(Today, *chosen)
    with pytest.raises(
        DivergenceError, match="it differs with TZ; look for local time, of a timestamp or of the clock$"
    ):
        check(LocalTime, PLAIN, Environment({**PLAIN.variables, "TZ": "America/St_Johns"}))


def test_at_every_time_a_time_zone_has_another_date() -> None:
    zones = [zoneinfo.ZoneInfo(zone) for zone in ZONES]
    for minute in range(0, 366 * 24 * 60, 15):
        now = datetime.datetime(2028, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=minute)
        assert len({now.astimezone(zone).date() for zone in zones}) > 1, now


def test_a_clock_that_the_kit_cannot_set_is_found_by_the_date_of_a_time_zone() -> None:
    pytest.importorskip("numpy")
    with pytest.raises(
        DivergenceError, match="it differs with TZ; look for local time, of a timestamp or of the clock$"
    ):
        check(SystemToday, *(Environment({**PLAIN.variables, "TZ": zone}) for zone in ZONES))


@pytest.mark.parametrize(
    ("differing", "cause"),
    [
        # By process: the first, the other, the first again, and then one thing after another is changed.
        ("0111111111", "it differs in the same environment too"),
        ("0101111111", "it differs in the same environment too"),
        ("0100000000", "it differs in the same environment too"),
        ("010000100", "it differs with several of PYTHONHASHSEED, TZ, LC_ALL together, and with none of them alone"),
        ("01000011", "it differs in the same environment too"),
        ("0101010000", "it differs with PYTHONHASHSEED; look for sets"),
        ("0101000000", "it differs in the same environment too"),
    ],
)
def test_what_differs_by_chance_or_by_the_time_is_blamed_on_nothing_else(
    differing: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(differing)
    monkeypatch.setattr(environments, "_result", lambda *_arguments: Result({1: next(states)}, []))
    with pytest.raises(DivergenceError) as e:
        check(Adding, *(Environment(one.variables) for one in ENVIRONMENTS[:2]))
    assert cause in str(e.value)


@pytest.mark.parametrize("more", [[], [Environment({**PLAIN.variables, "PYTHONHASHSEED": "1"})]])
def test_a_process_that_fails_while_a_cause_is_looked_for_is_a_difference(
    more: list[Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(_task: bytes, environment: Environment) -> Result:
        seed, zone = (environment.variables[name] for name in ("PYTHONHASHSEED", "TZ"))
        if (seed, zone) == ("1", "UTC"):
            raise ContainerError("ended")
        return Result({1: zone}, [])

    monkeypatch.setattr(environments, "_result", result)
    with pytest.raises(DivergenceError, match="it differs with PYTHONHASHSEED, and also with TZ"):
        check(Adding, *ENVIRONMENTS[:2], *more)


@pytest.mark.parametrize("value", [None, "50"])
def test_a_variable_of_the_services_own_gets_another_value(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("ORDER_LIMIT", value)
    with pytest.raises(DivergenceError, match="it differs with ORDER_LIMIT; look for environment variables"):
        check(Limited, PLAIN)


def test_a_variable_that_must_be_right_and_changes_no_state_is_no_difference() -> None:
    assert check(Logging, PLAIN) > 100


def test_the_number_of_processors_differs_between_members() -> None:
    hint = "look for arguments, the names of host and user, and the number of processors"
    with pytest.raises(DivergenceError, match=f"it differs with member; {hint}"):
        check(ProcessorsOnce, PLAIN, Environment(PLAIN.variables, member="ada"))


def test_a_wall_clock_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "has_time_machine", lambda: False)
    with pytest.raises(ConfigurationError, match=r"needs time-machine, .*aeron-cluster-container\[testing\]"):
        check(Adding, PLAIN, CLOCK)
    monkeypatch.undo()
    assert environments.has_time_machine() == (importlib.util.find_spec("time_machine") is not None)


def test_a_wall_clock_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="wall_clock='noon': must be a date and time as in 2041-"):
        check(Adding, PLAIN, Environment(wall_clock="noon"))


def test_a_process_that_fails_is_shown_with_its_environment() -> None:
    with pytest.raises(ContainerError, match=r"(?s)in a process with .*'wall clock'.*code 3: .*the end"):
        check(Exiting, PLAIN, CLOCK)


def wrapper(directory: Path, code: str) -> str:
    """An interpreter that is this one, and runs some code first."""
    (directory / "sitecustomize.py").write_text(code)
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{directory}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_service_that_depends_on_the_version_is_found_by_another_interpreter(tmp_path: Path) -> None:
    other = wrapper(tmp_path, "import sys; sys.hexversion = 0x036300F0")
    assert check(Adding, PLAIN, pythons=[other]) > 100
    with pytest.raises(DivergenceError, match="it differs with Python; look for what changed between the versions"):
        check(Versioned, PLAIN, pythons=[other])


def test_an_interpreter_that_cannot_run_the_life_is_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-python")
    with pytest.raises(ConfigurationError, match=f"python='{missing}': cannot be run: No such file"):
        check(Adding, PLAIN, pythons=[missing])
    other = wrapper(tmp_path, "import sys; sys.modules['container'] = None")
    with pytest.raises(
        ConfigurationError, match="python='.*': cannot import container: ModuleNotFoundError.*-m pip install aeron-"
    ):
        check(Adding, PLAIN, pythons=[other])


def other_interpreter() -> str | None:
    """An interpreter of another version that can import this package."""
    for minor in range(12, 20):
        if minor == sys.version_info.minor:
            continue
        for place in (str(ROOT / f".venv-3.{minor}" / "bin" / "python"), shutil.which(f"python3.{minor}")):
            if place is None or not Path(place).exists():
                continue
            variables = environments._variables(Environment(python=place))
            ended = subprocess.run(
                [place, "-c", f"import {environments._PROCESS}"], env=variables, capture_output=True, check=False
            )
            if ended.returncode == 0:
                return place
    return None


def test_a_real_interpreter_of_another_version_agrees_about_good_services_and_finds_the_wrong_one() -> None:
    other = other_interpreter()
    if other is None:
        pytest.skip("no Python of another version can import this package: build it in .venv-3.12, say")
    assert check(Adding, PLAIN, pythons=[other]) > 100
    assert check_environments("examples.auction_service:AuctionService", "tests.services:bids", pythons=[other])
    with pytest.raises(DivergenceError, match="it differs with Python"):
        check(Versioned, PLAIN, pythons=[other])
