"""Processes with other wall clocks, thread timing and interpreters find the services that depend on them."""

from __future__ import annotations

import datetime
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import zoneinfo
from pathlib import Path

import pytest

from container.errors import ConfigurationError, ContainerError
from container.testing.memory import environments
from container.testing.memory.checks import ENVIRONMENTS, DivergenceError, Environment, check_environments
from tests.rule_breakers import Arguments, HostOnce, VariableOnce
from tests.services import Adding, Exiting, Hour, Joining, LocalTime, Patient, Racing, Today, Versioned, Year

ROOT = Path(__file__).resolve().parent.parent
LIFE = "tests.services:life"
PLAIN, CLOCK, THREADS = ENVIRONMENTS[0], ENVIRONMENTS[3], ENVIRONMENTS[4]


def check(service: type[Adding], *chosen: Environment, pythons: list[str] | None = None) -> int:
    return check_environments(f"{__name__}:{service.__name__}", LIFE, environments=chosen, pythons=pythons or [])


@pytest.mark.parametrize("service", [Year, Today, Hour, Patient])
def test_a_service_that_reads_a_clock_is_found_by_another_clock(service: type[Adding]) -> None:
    with pytest.raises(DivergenceError, match="differs between processes with .*'wall clock': '2041-") as e:
        check(service, PLAIN, CLOCK)
    assert "it differs with wall clock; look for the clock: use the timestamp of the event" in str(e.value)


def test_the_clocks_of_a_life_go_as_they_are_told() -> None:
    standing = Environment(PLAIN.variables, wall_clock="2041-07-09T03:30:00+00:00")
    assert check(Hour, standing, standing) == check(Hour, CLOCK, CLOCK)
    assert check(Patient, PLAIN, standing) > 100
    with pytest.raises(DivergenceError, match="it differs with wall clock"):
        check(Hour, standing, CLOCK)


def test_a_service_whose_threads_race_is_found() -> None:
    with pytest.raises(DivergenceError, match="differs between processes with .*'threads': '2 busy, switch interval"):
        check(Racing, PLAIN, THREADS)


@pytest.mark.parametrize("service", [Adding, Joining])
def test_good_services_do_not_depend_on_clocks_and_threads(service: type[Adding]) -> None:
    assert check_environments(service, LIFE) > 200


@pytest.mark.parametrize(
    ("service", "life"),
    [("auction_service:AuctionService", "bids"), ("ledger_service:LedgerService", "transfers")],
)
def test_the_examples_are_the_same_in_all_environments(service: str, life: str) -> None:
    assert check_environments(f"examples.{service}", f"tests.services:{life}") > 100


def test_which_of_several_aspects_makes_the_difference_is_named() -> None:
    other = Environment(
        {"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham"}, wall_clock=CLOCK.wall_clock, seconds_per_event=1.0
    )
    with pytest.raises(DivergenceError, match=r"it differs with wall clock; look for the clock"):
        check(Year, PLAIN, other)


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
        check(LocalTime, *chosen)


def test_at_every_time_a_time_zone_has_another_date() -> None:
    zones = [zoneinfo.ZoneInfo(environment.variables["TZ"]) for environment in ENVIRONMENTS[:3]]
    for minute in range(0, 366 * 24 * 60, 15):
        now = datetime.datetime(2028, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=minute)
        assert len({now.astimezone(zone).date() for zone in zones}) > 1, now


class SystemToday(Adding):
    """Wrong: depends on the day, by the system's clock, which the kit cannot set."""

    def add(self, payload: bytes) -> None:
        import numpy as np

        self.state.names = [str(np.datetime64("today"))]


def test_a_clock_that_the_kit_cannot_set_is_found_by_the_date_of_a_time_zone() -> None:
    pytest.importorskip("numpy")
    with pytest.raises(
        DivergenceError, match="it differs with TZ; look for local time, of a timestamp or of the clock$"
    ):
        check(SystemToday, *ENVIRONMENTS[:4])


class Numbered(Adding):
    """Wrong: does something else in some processes, by their number."""

    def __init__(self) -> None:
        super().__init__()
        with Path(os.environ["PROCESSES"]).open("ab") as file:
            file.write(b".")
            self.number = file.tell()

    def add(self, payload: bytes) -> None:
        self.state.total += os.environ["DIFFERING"][self.number - 1] == "1"


@pytest.mark.parametrize(
    ("differing", "cause"),
    [
        # By process: the first, the other, the first again, and then one thing after another is changed.
        ("0111111111", "it differs in the same environment too"),
        ("0101111111", "it differs in the same environment too"),
        ("0100000000", "it differs in the same environment too"),
        ("010000100", "it differs with several of PYTHONHASHSEED, TZ, LC_ALL together, and with none of them alone"),
        ("0101010000", "it differs with PYTHONHASHSEED; look for sets"),
        ("0101000000", "it differs in the same environment too"),
    ],
)
def test_what_differs_by_chance_or_by_the_time_is_blamed_on_nothing_else(
    differing: str, cause: str, tmp_path: Path
) -> None:
    numbered = {"PROCESSES": str(tmp_path / "processes"), "DIFFERING": differing}
    (tmp_path / "processes").touch()
    first, other = (Environment({**one.variables, **numbered}) for one in ENVIRONMENTS[:2])
    with pytest.raises(DivergenceError) as e:
        check(Numbered, first, other)
    assert cause in str(e.value)


class Dying(Adding):
    """Wrong: ends its process where the hash seed is another, and has another state where the time zone is."""

    def add(self, payload: bytes) -> None:
        self.state.total += len(os.environ["TZ"])
        if os.environ["PYTHONHASHSEED"] == "1" and os.environ["TZ"] == "UTC":
            os._exit(3)


def test_a_process_that_fails_while_a_cause_is_looked_for_is_a_difference() -> None:
    with pytest.raises(DivergenceError, match="it differs with PYTHONHASHSEED, and also with TZ"):
        check(Dying, *ENVIRONMENTS[:2])
    fails = Environment({**PLAIN.variables, "PYTHONHASHSEED": "1"})
    with pytest.raises(DivergenceError, match="it differs with PYTHONHASHSEED, and also with TZ"):
        check(Dying, *ENVIRONMENTS[:2], fails)


def test_a_service_that_has_looked_at_its_process_on_import_is_found_by_another_member() -> None:
    for service in (Arguments, HostOnce, VariableOnce):
        with pytest.raises(DivergenceError, match="it differs with member; look for arguments, the names of"):
            check_environments(service, LIFE, environments=[PLAIN, Environment(PLAIN.variables, member="ada")])
    assert check(Adding, PLAIN, Environment(PLAIN.variables, member="ada")) > 100


class Limited(Adding):
    """Wrong: reads a setting of its own from the environment where it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = int(os.environ.get("ORDER_LIMIT", "100"))

    def add(self, payload: bytes) -> None:
        self.state.total = min(self.state.total + len(payload), self.limit)


class Logging(Adding):
    """Reads a level of logging where it is made, which must be one that there is."""

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("orders").setLevel(os.getenv("ORDER_LOG_LEVEL", "WARNING"))


class Processors(Adding):
    """Wrong: goes by the number of processors."""

    def __init__(self) -> None:
        super().__init__()
        self.processors = os.cpu_count() or 1

    def add(self, payload: bytes) -> None:
        self.state.total += self.processors


@pytest.mark.parametrize("value", [None, "50"])
def test_a_variable_of_the_services_own_gets_another_value(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("ORDER_LIMIT", value)
    with pytest.raises(DivergenceError, match="it differs with ORDER_LIMIT; look for environment variables"):
        check(Limited, PLAIN, PLAIN)


def test_a_variable_that_must_be_right_and_changes_no_state_is_no_difference() -> None:
    assert check(Logging, PLAIN, PLAIN) > 100


def test_the_number_of_processors_differs_between_members() -> None:
    with pytest.raises(DivergenceError, match="it differs with member; look for .* the number of processors"):
        check(Processors, PLAIN, Environment(PLAIN.variables, member="ada"))


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
