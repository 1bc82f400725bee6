"""A small share of the fuzzer of an archive, and proof that it notices what goes wrong."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from container.archive import channel_texts
from container.archive.server.archive_mark_file import MARK_FILE_NAME
from container.archive.server.sessions.listing_session import ListingSession
from container.archive.server.store import recording_store
from container.archive.server.store.recording_store import RecordingStore
from container.storage.storage_seam import CREATE
from tests.fuzz.__main__ import ARCHIVE_FILES, ARCHIVE_REQUESTS, LENGTHS, main, run_episode
from tests.fuzz.archive_file_cases import CATALOG, DAMAGES, POSITIONS
from tests.fuzz.archive_request_cases import MUTATIONS, STRANGE
from tests.fuzz.archive_wire import NAMES
from tests.limits import LIMIT_S
from tests.resources import memory_directory

ROOT = Path(__file__).parent.parent
REQUEST_EPISODES, FILE_EPISODES = 10, 4


@pytest.fixture(autouse=True)
def files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of an episode are in memory, if they can be."""
    monkeypatch.setattr(tempfile, "tempdir", memory_directory() or tempfile.gettempdir())


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


def test_hostile_files_are_refused_or_harmless() -> None:
    failure, counts = fuzz(ARCHIVE_FILES, 1, FILE_EPISODES)
    assert failure == ""
    for name in ("a segment", CATALOG, POSITIONS, MARK_FILE_NAME, "beside"):
        assert sum(counts[f"{name}: {each.__name__}"] for each in set(DAMAGES)) > FILE_EPISODES
    assert counts["archive.migration: forged"] > FILE_EPISODES
    assert counts["starts"] > 10 * FILE_EPISODES
    assert counts["starts that were refused"] > 2 * FILE_EPISODES


@pytest.mark.parametrize("part", [ARCHIVE_REQUESTS, ARCHIVE_FILES])
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


def write_for_everybody(store: RecordingStore) -> None:
    directory = Path(store._directory)
    (directory / f"stray-{len(list(directory.iterdir()))}").touch(0o666)


def losing_a_segment() -> Callable[..., None]:
    """Removes one at each start but the first two, in which an episode makes its archive."""
    starts = itertools.count()

    def remove(store: RecordingStore, *_: Any) -> None:
        if next(starts) > 1:
            with suppress(OSError):
                store._storage.unlink(f"{store._directory}/0-0.rec")

    return remove


FILE_SABOTAGES: dict[str, tuple[Any, str, Any, str]] = {
    "links are followed": (recording_store, "NO_FOLLOW", 0, "something outside has changed"),
    "an error of another kind": (recording_store, "_finish_migration", raise_value_error, "ValueError: sabotage"),
    "a file for everybody": (RecordingStore, "check_space", write_for_everybody, "was created with mode 100666"),
    "a recording is lost": (RecordingStore, "_delete_purged", losing_a_segment(), "recording 0 is not as it was"),
}
SEEDS = {"links are followed": 19}
"""Seeds that come to it soon; 3 for all others."""

SABOTAGES = [
    *[(ARCHIVE_REQUESTS, name, *each) for name, each in REQUEST_SABOTAGES.items()],
    *[(ARCHIVE_FILES, name, *each) for name, each in FILE_SABOTAGES.items()],
]


@pytest.mark.parametrize(
    ("part", "seed", "owner", "name", "broken", "text"),
    [(part, SEEDS.get(name, 3), *rest) for part, name, *rest in SABOTAGES],
    ids=[f"{part}: {name}" for part, name, *_ in SABOTAGES],
)
def test_the_fuzzer_notices_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, part: str, seed: int, owner: Any, name: str, broken: Any, text: str
) -> None:
    monkeypatch.setattr(owner, name, broken)
    failure, _ = fuzz(part, seed, 20)
    assert text in failure
    assert "\nin: " in failure


@pytest.mark.parametrize("part", [ARCHIVE_REQUESTS, ARCHIVE_FILES])
def test_the_command_prints_the_seed_and_what_it_counted(part: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--part", part, "--cases", "1", "--seed", "5"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr
    *_, seed, verdict = result.stdout.splitlines()
    assert seed.startswith(f"seed 5: {LENGTHS[part]} cases in ")
    assert verdict == "no disagreement, no crash, no hang"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (f"--part {ARCHIVE_FILES} --cases 0", "--cases 0: must be at least 1"),
        (f"--part {ARCHIVE_FILES} --sabotage lose", f"--part {ARCHIVE_FILES} has none"),
    ],
)
def test_arguments_that_would_do_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, text: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", *arguments.split()])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert text in capsys.readouterr().err
