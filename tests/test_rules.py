"""Each rule of docs/service.md has checks that find who breaks it: a rule without a check is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from container.errors import ClusterError, ConfigurationError, ContainerError
from container.testing.memory import environments
from container.testing.memory.checks import (
    DivergenceError,
    ForbiddenCallError,
    HostilePayloadError,
    MemoryGrowthError,
    check_calls,
    check_environments,
    check_memory,
    check_payloads,
    check_replays,
    check_restarts,
)
from container.testing.simulation import SimulationFailure, simulate
from tests.rule_breakers import RULES, SENTENCES, TABLE, Planted
from tests.services import Adding, coming_and_going, life
from tests.test_check_environments import ALL, PLAIN

TEXT = (Path(__file__).parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
RULES_TEXT = TEXT[TEXT.index("\n## Rules\n") :].split("\n## ")[1]
SNAPSHOT_TEXT = TEXT[TEXT.index("\n## What a snapshot can hold\n") :].split("\n## ")[1]


def simulations(service: type[Adding]) -> None:
    """A few of them, with messages that are numbers."""
    for seed in range(1, 21):
        simulate(service, seed=seed, payloads=[b"a", b"12"])


CHECKS: dict[str, tuple[Callable[[type[Adding]], object], tuple[type[BaseException], ...]]] = {
    "calls": (lambda service: check_calls(service, life), (ForbiddenCallError,)),
    "environments": (
        lambda service: check_environments(service, life, environments=[PLAIN, ALL]),
        (DivergenceError,),
    ),
    "memory": (lambda service: check_memory(service, coming_and_going, messages=6_000), (MemoryGrowthError,)),
    "payloads": (lambda service: check_payloads(service, [b"12"]), (HostilePayloadError,)),
    "replays": (
        lambda service: check_replays(service, life),
        (DivergenceError, ClusterError, ConfigurationError),  # the last of a state that no snapshot can hold
    ),
    "restarts": (lambda service: check_restarts(service, life), (DivergenceError, ClusterError)),
    "simulations": (simulations, (SimulationFailure,)),
}


def rows() -> dict[str, set[str]]:
    """The table: checks by mistake."""
    found = re.findall(r"^\| (.+?) \| (`.+?`) \|$", RULES_TEXT, re.M)
    return {mistake: set(re.findall(r"`(\w+)`", checks)) for mistake, checks in found}


def test_each_rule_of_the_document_has_rows_and_each_row_belongs_to_a_rule() -> None:
    bullets = [" ".join(text.split()) for text in re.findall(r"^\* \*\*(.+?)\*\*", RULES_TEXT, re.M | re.S)]
    assert len(bullets) == RULES_TEXT.count("\n* ")
    assert [*bullets, "What a snapshot can hold"] == list(RULES)
    assert [row for given in RULES.values() for row in given] == list(rows())


def test_each_sentence_of_the_document_that_demands_or_forbids_stands_for_a_row() -> None:
    prose = " ".join(re.sub(r"^\|.*$|\*\*|^\* |^#.*$", "", RULES_TEXT + SNAPSHOT_TEXT, flags=re.M).split())
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", prose)
    found = [sentence for sentence in sentences if re.search(r"(?i)\b(do not|must|never|not the|refused)\b", sentence)]
    assert found == list(SENTENCES)
    assert set(SENTENCES.values()) <= rows().keys()


def test_each_row_of_the_document_has_services_that_break_the_rule_and_are_found() -> None:
    assert list(rows()) == list(TABLE)
    for mistake, checks in rows().items():
        found = {check for planted in TABLE[mistake] for check in planted.checks.split()}
        assert checks <= found, f"{mistake}: no service that is planted is found by {checks - found}"
        assert all(checks & set(planted.checks.split()) for planted in TABLE[mistake]), mistake
    assert {check for checks in rows().values() for check in checks} == set(CHECKS)


@pytest.mark.parametrize(
    ("planted", "check"),
    [
        pytest.param(planted, check, id=f"{planted.service.__name__}-{check}")
        for services in TABLE.values()
        for planted in services
        for check in planted.checks.split()
    ],
)
def test_a_service_that_breaks_a_rule_is_found(planted: Planted, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its cause would take more processes: tests/test_check_environments.py.
    monkeypatch.setattr(environments, "_cause", lambda *_arguments: "")
    getattr(planted.service, "seen", []).clear()
    run, findings = CHECKS[check]
    with pytest.raises(ContainerError) as caught:
        run(planted.service)
    assert isinstance(caught.value, findings), caught.value


@pytest.mark.parametrize("check", CHECKS)
def test_a_service_that_keeps_the_rules_is_not_blamed(check: str) -> None:
    CHECKS[check][0](Adding)
