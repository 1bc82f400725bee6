"""The command ``aeron-cluster check``: its report, its exit status, and where its traffic comes from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from container.__main__ import main
from container.testing import MemoryMember
from container.testing.lives import GeneratedLife
from tests.test_checks import Adding


def check(*arguments: str) -> int:
    """The exit status."""
    try:
        return main(["check", *arguments])
    except SystemExit as end:
        return int(end.code or 0)


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The verdicts by check."""
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    return {name: verdict for name, verdict, *_ in lines}


def test_a_good_service_passes_all_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("examples.upgraded_counter:Counter", "--seeds", "2", "--events", "60") == 0
    verdicts = report(capsys)
    assert set(verdicts) == {"traffic", "replays", "restarts", "calls", "environments", "payloads", "memory"}
    assert set(verdicts.values()) == {"ok"}


def test_the_messages_of_a_file_are_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "payloads"
    path.write_text(f"{b'ada+1'.hex()}\n{b'bob+2'.hex()}\n")
    assert check("examples.upgraded_counter:Counter", "--seeds", "1", "--events", "40", "--payloads", str(path)) == 0
    assert report(capsys)["payloads"] == "ok"


@pytest.mark.parametrize(
    ("service", "failed"),
    [("Lucky", {"restarts", "calls"}), ("Chatty", {"restarts"}), ("Trusting", {"payloads"})],
)
def test_a_wrong_service_fails_its_checks(service: str, failed: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"tests.test_checks:{service}", "--life", "tests.test_checks:numbers") == 1
    verdicts = report(capsys)
    assert {name for name, verdict in verdicts.items() if verdict == "FAILED"} == failed
    assert verdicts["memory"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no_such_module:Service"], "module no_such_module cannot be imported"),
        (["tests.test_checks:Adding", "--life", "tests.test_checks:no_life"], "tests.test_checks has no no_life"),
        (["tests.test_checks:Adding", "--payloads", "/no/such/file"], "cannot be read: No such file or directory"),
        (["tests.test_checks:Adding", "--payloads", __file__], "line 1 must be a message in hexadecimal"),
        (["tests.test_checks:Adding", "--life", "tests.test_checks:os"], "must be a function that takes a member"),
        (["tests.test_checks:Adding", "--seeds", "0"], "must be a number from 1 on"),
        (["tests.test_checks:Adding", "--life", "a:b", "--recording", "c"], "not allowed with"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*arguments) == 2
    assert text in capsys.readouterr().err


def test_a_recording_that_is_none_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.test_checks:Adding", "--recording", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(tmp_path) in captured.err


@pytest.mark.parametrize("name", ["Counter", "Timing"])
def test_services_of_the_documents_pass_with_no_payloads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"tests.test_check_command:{name}", "--seeds", "1") == 0, capsys.readouterr().out
    found = "NOTHING CHANGED THE STATE" in capsys.readouterr().out
    assert found == (name == "Counter")


class Counter(Adding):
    """As README's: it takes nothing but name+digits."""

    def add(self, payload: bytes) -> None:
        name, plus, digits = payload.partition(b"+")
        if plus and name.isalnum() and digits.isdigit():
            self.state.total += int(digits) % 1_000


class Timing(Adding):
    """Schedules a timer for each message."""

    def add(self, payload: bytes) -> None:
        super().add(payload)
        while not self.cluster.schedule_timer(self.state.total, self.cluster.time + 50):
            self.cluster.idle()


@pytest.mark.parametrize(
    ("service", "text"),
    [
        ("Leaving", "restarts       FAILED  SystemExit: 0"),
        ("Misspelt", r"FAILED  ValueError: \\ud800 in "),
    ],
)
def test_a_service_that_exits_or_raises_is_a_finding(
    service: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(f"tests.test_check_command:{service}", "--seeds", "1") == 1
    output = capsys.readouterr().out
    assert re.search(text, output), output
    assert "memory " in output


class Leaving(Adding):
    """Exits where it is made."""

    def __init__(self) -> None:
        raise SystemExit(0)


class Misspelt(Adding):
    """Raises what cannot be printed."""

    def add(self, payload: bytes) -> None:
        raise ValueError("\ud800")


def test_a_generated_life_is_the_same_for_a_seed_and_ends_with_no_session() -> None:
    logs = []
    for seed in (1, 1, 2):
        with MemoryMember(Adding) as member:
            GeneratedLife(seed, 100)(member)
            assert member.sessions == []
            logs.append([entry.message for entry in member.log])
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]
