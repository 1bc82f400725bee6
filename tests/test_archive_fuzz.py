"""A small share of the fuzzer of an archive, and proof that it notices what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from container.archive import channel_texts
from container.archive.sessions.listing_session import ListingSession
from container.archive.store.recording_store import RecordingStore
from container.storage.seam import CREATE
from tests.fuzz.__main__ import ARCHIVE_REQUESTS, LENGTHS, run_episode
from tests.fuzz.archive_request_cases import MUTATIONS, STRANGE
from tests.fuzz.archive_wire import NAMES

ROOT = Path(__file__).parent.parent
REQUEST_EPISODES = 10


def fuzz(part: str, seed: int, episodes: int) -> tuple[str, Counter[str]]:
    """What went wrong first, and what was counted."""
    counts: Counter[str] = Counter()
    for number in range(episodes):
        failure = run_episode(seed, number, counts, part=part)
        if failure:
            return failure, counts
    return "", counts


def test_bad_requests_are_answered_or_reported_and_other_clients_go_on() -> None:
    failure, counts = fuzz(ARCHIVE_REQUESTS, 1, REQUEST_EPISODES)
    assert failure == ""
    assert sum(counts[name] for name in (*MUTATIONS, STRANGE)) == REQUEST_EPISODES * LENGTHS[ARCHIVE_REQUESTS]
    assert all(counts[name] for name in MUTATIONS)
    assert all(counts[name] for name in NAMES.values())
    assert all(counts[f"refused: {kind}"] for kind in ("short", "schema", "block", "text"))
    assert counts["replays of the good client"] > REQUEST_EPISODES


@pytest.mark.parametrize("part", [ARCHIVE_REQUESTS])
def test_a_seed_gives_the_same_cases_again(part: str) -> None:
    assert fuzz(part, 2, 1) == fuzz(part, 2, 1)


def raise_value_error(*arguments: Any) -> None:
    raise ValueError("sabotage")


def write_elsewhere(store: RecordingStore) -> None:
    store._storage.open_file("/stray", CREATE).close()


# What is broken, and what the fuzzer must say of it.
REQUEST_SABOTAGES: dict[str, tuple[Any, str, Any, str]] = {
    "a list that never comes": (ListingSession, "do_work", lambda _: 0, "not answered: "),
    "an error of another kind": (channel_texts, "_stripped", raise_value_error, "ValueError"),
    "a file outside": (RecordingStore, "check_space", write_elsewhere, "files outside: "),
    "a position": (RecordingStore, "recorded_position", lambda *_: 32, "recorded up to "),
}


@pytest.mark.parametrize(("owner", "name", "broken", "text"), REQUEST_SABOTAGES.values(), ids=REQUEST_SABOTAGES.keys())
def test_the_fuzzer_notices_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any, text: str
) -> None:
    monkeypatch.setattr(owner, name, broken)
    failure, _ = fuzz(ARCHIVE_REQUESTS, 3, 20)
    assert text in failure
    assert "\nin: " in failure


def test_the_command_prints_the_seed_and_what_it_counted() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--part", ARCHIVE_REQUESTS, "--cases", "60", "--seed", "5"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert result.returncode == 0, result.stdout + result.stderr
    *_, seed, verdict = result.stdout.splitlines()
    assert seed.startswith("seed 5: 100 cases in ")
    assert verdict == "no disagreement, no crash, no hang"
