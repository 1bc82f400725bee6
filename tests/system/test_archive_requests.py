"""Every request of an archive's client to Java's archive: what other archives are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.archive_requests import run_archive_requests, scenario, scenario_names

SIGNALS = ("START", "STOP", "EXTEND", "REPLICATE", "MERGE", "SYNC", "DELETE", "REPLICATE_END")
CODES = ("OK", "ERROR", "RECORDING_UNKNOWN", "SUBSCRIPTION_UNKNOWN")


@pytest.fixture(scope="module")
def lines(java_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What Java's archive answers."""
    return run_archive_requests("java", tmp_path_factory.mktemp("first"), java_classes)


def test_every_signal_and_every_code_is_seen(lines: list[str]) -> None:
    words = {line.split()[0] for line in lines if line.startswith("  ") and line.strip()}
    assert words.issuperset((*SIGNALS, *CODES))


def test_everything_that_is_asked_for_comes(lines: list[str]) -> None:
    assert [line for line in lines if " messages came)" in line or "late: " in line or line.startswith("  (")] == []
    assert len(scenario_names(lines)) == 21


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


def test_another_run_is_the_same(lines: list[str], java_classes: Path, tmp_path: Path) -> None:
    assert run_archive_requests("java", tmp_path, java_classes) == lines


def test_over_the_network_it_is_the_same(java_classes: Path, tmp_path: Path, lines: list[str]) -> None:
    only = ["sessions", "start and stop", "old requests", "auto stop"]
    remote = run_archive_requests("java", tmp_path, java_classes, only=only, is_remote=True)
    for name in only:
        assert scenario(remote, name) == scenario(lines, name)
