"""Every request of Java's archive client to Java's archive and to ours: the same comes of it, but what differs by
intention."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from container.testing.processes.local_archive import ArchiveKind
from tests.system.archive_requests import run_archive_requests, scenario, scenario_names, without_texts

SIGNALS = ("START", "STOP", "EXTEND", "REPLICATE", "MERGE", "SYNC", "DELETE", "REPLICATE_END")
SOURCE_KINDS: tuple[ArchiveKind, ...] = ("native", "java")
CODES = ("OK", "ERROR", "RECORDING_UNKNOWN", "SUBSCRIPTION_UNKNOWN")


@pytest.fixture(scope="module")
def lines(java_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What Java's archive answers."""
    return run_archive_requests("java", tmp_path_factory.mktemp("first"), java_classes)


def test_every_signal_and_every_code_is_seen(lines: list[str]) -> None:
    words = {line.split()[0] for line in lines if line.startswith("  ") and line.strip()}
    assert words.issuperset((*SIGNALS, *CODES))


def test_everything_that_is_asked_for_comes(lines: list[str]) -> None:
    same = lines[: lines.index("== differences")]
    assert [line for line in same if " messages came)" in line or "late: " in line or line.startswith("  (")] == []
    assert len(scenario_names(lines)) == 22


def test_a_new_replication_says_what_it_does_in_order(lines: list[str]) -> None:
    assert scenario(lines, "replicate")[:8] == [
        "> replicate new",
        "  OK replication",
        "  REPLICATE recording=26 position=0 subscription=-1 of replication",
        "  OK inner of replication",
        "  EXTEND recording=26 position=0 subscription=inner of replication",
        "  SYNC recording=26 position=128000 subscription=inner of replication",
        "  REPLICATE_END recording=26 position=-1 subscription=-1 of replication",
        "  STOP recording=26 position=128000 subscription=inner of replication",
    ]


def test_our_archive_does_the_same(lines: list[str], java_classes: Path, tmp_path: Path) -> None:
    ours = without_error_count(without_texts(run_archive_requests("native", tmp_path, java_classes)))
    theirs = without_error_count(without_texts(lines))
    assert scenario_names(ours) == scenario_names(theirs)
    for name in scenario_names(ours):
        if name != "differences":
            assert scenario(ours, name) == scenario(theirs, name), name
    assert [line.strip() for line in differences(lines)] == [
        "OK token",
        "OK replication",
        "REPLICATE recording=37 position=0 subscription=-1 of replication",
        "ERROR 0 of replication",
        "REPLICATE_END recording=37 position=-1 subscription=-1 of replication",
        "ERROR 0",
        "(1 of 2 messages came)",
    ]
    assert [line.strip() for line in differences(ours)] == [
        "ERROR 5",
        "OK replication",
        "ERROR 0 of replication",
        "REPLICATE_END recording=-1 position=-1 subscription=-1 of replication",
        "(3 of 4 messages came)",
        "OK replay",
        "ERROR 0",
    ]


def test_over_the_network_ours_does_the_same(java_classes: Path, tmp_path: Path, lines: list[str]) -> None:
    only = ["sessions", "start and stop", "old requests", "auto stop"]
    remote = without_texts(run_archive_requests("native", tmp_path, java_classes, only=only, is_remote=True))
    for name in only:
        assert scenario(remote, name) == scenario(without_texts(lines), name)


def test_ours_is_the_source_of_replications(java_classes: Path, tmp_path: Path) -> None:
    only = ["replicate", "replicate and merge", "replicate refused"]
    ours, theirs = (
        without_texts(
            run_archive_requests("java", tmp_path / kind, java_classes, only=only, source_kind=kind),
        )
        for kind in SOURCE_KINDS
    )
    assert ours == theirs


def without_error_count(lines: list[str]) -> list[str]:
    """Lines without the value of the counter of errors: what counts as one is each archive's own."""
    return [re.sub(r"(counter 101 .*): \d+$", r"\1", line) for line in lines]


def differences(lines: list[str]) -> list[str]:
    """What came of the questions of the last scenario that are answered differently."""
    answers = scenario(without_texts(lines), "differences")
    return [line for line in answers[answers.index("> requestReplayToken(unknown)") :] if line.startswith("  ")]


@pytest.mark.slow
def test_another_run_is_the_same(lines: list[str], java_classes: Path, tmp_path: Path) -> None:
    assert run_archive_requests("java", tmp_path, java_classes) == lines


@pytest.mark.slow
def test_over_the_network_it_is_the_same(java_classes: Path, tmp_path: Path, lines: list[str]) -> None:
    only = ["sessions", "start and stop", "old requests", "auto stop"]
    remote = run_archive_requests("java", tmp_path, java_classes, only=only, is_remote=True)
    for name in only:
        assert scenario(remote, name) == scenario(lines, name)
