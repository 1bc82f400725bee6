"""A small share of the fuzzer of recordings, and proof that it notices what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from container.recordings import member, partition_reader
from tests.fuzz.__main__ import LENGTHS, RECORDINGS, run_episode
from tests.fuzz.recording_damage import MUTATIONS
from tests.limits import LIMIT_S

ROOT = Path(__file__).parent.parent
EPISODES = 4


def fuzz(seed: int, episodes: int = EPISODES) -> tuple[str, Counter[str]]:
    """What went wrong first, and what was counted."""
    counts: Counter[str] = Counter()
    for number in range(episodes):
        failure = run_episode(seed, number, counts, part=RECORDINGS)
        if failure:
            return failure, counts
    return "", counts


def test_damaged_recordings_are_told_once_and_all_else_is_read() -> None:
    failure, counts = fuzz(1)
    assert failure == ""
    kinds = ("segment", "snapshot", "catalog", "recording log")
    assert sum(counts[f"{kind}: {name}"] for kind in kinds for name in MUTATIONS) == EPISODES * LENGTHS[RECORDINGS]
    assert all(counts[f"segment: {name}"] for name in MUTATIONS)
    assert counts["reads in two ranges"] > 10


def test_a_seed_gives_the_same_cases_again() -> None:
    assert fuzz(2, 1) == fuzz(2, 1)


def raise_value_error(*arguments: Any) -> None:
    raise ValueError("sabotage")


# What is broken, and what the fuzzer must say of it.
SABOTAGES: dict[str, tuple[Any, str, Any, str]] = {
    "reading does not go on": (partition_reader, "_after_damage", lambda *_: 2**61, "are not the right ones"),
    "damage is taken for an election's": (partition_reader, "_was_truncated", lambda *_: True, "is not told"),
    "another error": (member, "committed_position", raise_value_error, "ValueError: sabotage"),
    "the log's end": (
        member,
        "recorded_end",
        lambda _, descriptor, *__: (descriptor.start_position, None, None),
        "what lies between is lost here",
    ),
}


@pytest.mark.parametrize(("module", "name", "broken", "text"), SABOTAGES.values(), ids=SABOTAGES.keys())
def test_the_fuzzer_notices_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, text: str
) -> None:
    monkeypatch.setattr(module, name, broken)
    failure, _ = fuzz(3)
    assert text in failure
    assert "\nin: " in failure


def test_the_command_prints_the_seed_and_what_it_counted() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--part", RECORDINGS, "--cases", "60", "--seed", "5"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    *_, seed, verdict = result.stdout.splitlines()
    assert seed.startswith("seed 5: 100 cases in ")
    assert verdict == "no disagreement, no crash, no hang"
