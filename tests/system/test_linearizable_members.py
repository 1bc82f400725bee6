"""What real clients see of native members is linearizable, also while leaders are killed; a stale service is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.linearizable import checker, real
from tests.linearizable.soak_history import SoakHistory
from tests.soak.scenario import Scenario


@pytest.fixture(scope="module", autouse=True)
def porcupine() -> None:
    """Skip where the checker cannot be built."""
    try:
        checker.build()
    except checker.NoCheckerError as error:
        pytest.skip(str(error))


def test_a_node_that_is_killed_is_linearizable(tmp_path: Path) -> None:
    history = real.record(1, kills=1)
    history.write(tmp_path / "history.jsonl")
    found = checker.check(tmp_path / "history.jsonl")
    assert found.outcome == "ok", found.text
    assert len(history) > 400


def test_a_node_with_a_stale_service_is_not(tmp_path: Path) -> None:
    real.record(1, kills=0, service="tests.linearizable.registers:StaleRegisters").write(tmp_path / "history.jsonl")
    found = checker.check(tmp_path / "history.jsonl")
    assert found.outcome == "illegal"
    assert "<- has no place" in found.text


@pytest.mark.parametrize("kind", ["N", "J"])
def test_accounts_of_a_soak_are_linearizable(java_classes: Path, tmp_path: Path, kind: str) -> None:
    history = SoakHistory(tmp_path / "history.jsonl")
    said: list[str] = []
    with Scenario(java_classes, kinds=kind, rate=100.0, history=history, say=said.append) as scenario:
        scenario.check()
        first = history.checked
        scenario.resume()
        scenario.await_progress()
        scenario.check()
    checks = [text for text in said if text.startswith("histories of accounts: ok: ")]
    assert len(checks) == 2
    assert history.checked > first + 200 > 400
    # Most reads were told a value: the GET of either ledger has an answer.
    operations = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    reads = [each for each in operations if each["op"] == "read"]
    assert sum(each["result"] is not None for each in reads) > 0.9 * len(reads) > 50


@pytest.mark.slow
def test_three_members_whose_leader_is_killed_are_linearizable(tmp_path: Path) -> None:
    history = real.record(3, kills=2)
    history.write(tmp_path / "history.jsonl")
    found = checker.check(tmp_path / "history.jsonl")
    assert found.outcome == "ok", found.text
    assert len(history) > 1_000
