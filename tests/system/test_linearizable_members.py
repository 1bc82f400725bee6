"""What real clients see of native members is linearizable, also while leaders are killed; a stale service is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.linearizable import checker, real


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


@pytest.mark.slow
def test_three_members_whose_leader_is_killed_are_linearizable(tmp_path: Path) -> None:
    history = real.record(3, kills=2)
    history.write(tmp_path / "history.jsonl")
    found = checker.check(tmp_path / "history.jsonl")
    assert found.outcome == "ok", found.text
    assert len(history) > 1_000
