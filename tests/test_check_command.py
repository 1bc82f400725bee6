"""The command ``aeron-cluster check``: its report, its exit status, and where its traffic comes from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from container.__main__ import main
from container.testing import MemoryMember, check_command
from container.testing.lives import GeneratedLife
from container.testing.memory import checks
from tests import services
from tests.services import Adding
from tests.test_check_environments import wrapper

FEW = ("--seeds", "1", "--events", "50", "--memory-messages", "1000")
two_environments = pytest.mark.usefixtures("two_environments")


@pytest.fixture(name="two_environments")
def _two_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of environments compares two, and not five; that all are found is in test_check_environments.py."""
    monkeypatch.setattr(checks, "ENVIRONMENTS", checks.ENVIRONMENTS[:2])


def check(*arguments: str) -> int:
    """The exit status."""
    try:
        return main(["check", "--simulations", "10", *arguments])
    except SystemExit as end:
        return int(end.code or 0)


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The verdicts by check."""
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    return {name: verdict for name, verdict, *_ in lines}


def test_a_good_service_passes_all_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("examples.upgraded_counter:Counter", "--seeds", "2", "--events", "60") == 0
    verdicts = report(capsys)
    names = {"traffic", "replays", "restarts", "calls", "environments", "payloads", "memory", "simulations"}
    assert set(verdicts) == names
    assert set(verdicts.values()) == {"ok"}


@two_environments
def test_the_messages_of_a_file_are_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "payloads"
    path.write_text(f"{b'ada+1'.hex()}\n{b'bob+2'.hex()}\n")
    assert check("examples.upgraded_counter:Counter", *FEW, "--payloads", str(path)) == 0
    assert report(capsys)["payloads"] == "ok"


@two_environments
@pytest.mark.parametrize(
    ("service", "failed"),
    [
        ("Lucky", {"restarts", "calls", "environments", "simulations"}),
        ("Chatty", {"restarts", "simulations"}),
        ("Trusting", {"payloads", "simulations"}),
    ],
)
def test_a_wrong_service_fails_its_checks(service: str, failed: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"tests.services:{service}", "--life", "tests.services:numbers") == 1
    verdicts = report(capsys)
    assert {name for name, verdict in verdicts.items() if verdict == "FAILED"} == failed
    assert verdicts["memory"] == "skipped"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no_such_module:Service"], "module no_such_module cannot be imported"),
        (["tests.services:Adding", "--life", "tests.services:no_life"], "tests.services has no no_life"),
        (["tests.services:Adding", "--payloads", "/no/such/file"], "cannot be read: No such file or directory"),
        (["tests.services:Adding", "--payloads", __file__], "line 1 must be a message in hexadecimal"),
        (["tests.services:Adding", "--life", "tests.services:__doc__"], "must be a function that takes a member"),
        (["tests.services:Adding", "--life", "tests.services:os"], "is a module: name a class or a function in it"),
        (["os:getcwd"], "it must make a ClusteredService"),
        (["tests.services:Adding", "--seeds", "0"], "must be a number from 1 on"),
        (["tests.services:Adding", "--life", "a:b", "--recording", "c"], "not allowed with"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*arguments) == 2
    assert text in capsys.readouterr().err


def test_a_recording_that_is_none_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.services:Adding", "--recording", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(tmp_path) in captured.err


@two_environments
@pytest.mark.parametrize("name", ["Named", "Scheduling"])
def test_services_of_the_documents_pass_with_no_payloads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(f"tests.services:{name}", *FEW) == 0, capsys.readouterr().out
    found = "NOTHING CHANGED THE STATE" in capsys.readouterr().out
    assert found == (name == "Named")


@two_environments
def test_the_service_of_the_readme_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    code = next(block for block in blocks if "class Counter(ClusteredService)" in block)
    (tmp_path / "counter_of_the_readme.py").write_text(code)
    (tmp_path / "payloads").write_text(f"{b'one+40'.hex()}\n{b'two+2'.hex()}\n")
    monkeypatch.syspath_prepend(tmp_path)
    payloads = str(tmp_path / "payloads")
    assert check("counter_of_the_readme:Counter", "--payloads", payloads, *FEW) == 0
    assert "NOTHING CHANGED" not in capsys.readouterr().out


@two_environments
@pytest.mark.slow
def test_the_memory_of_so_many_messages_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.services:Adding", *FEW, "--memory-messages", "20000") == 0
    assert re.search(r"memory +ok +\d+ bytes more in the second half of 20,000 messages", capsys.readouterr().out)
    life = ["--life", "tests.services:coming_and_going", "--memory-messages", "20000"]
    assert check("tests.services:Counting", *life) == 1
    assert re.search(r"memory +FAILED +MemoryGrowthError: after \d+ lives", capsys.readouterr().out)


@pytest.mark.slow
def test_other_interpreters_run_the_life_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = wrapper(tmp_path, "import sys; sys.hexversion = 0x036300F0")
    few = ["--life", "tests.services:numbers", "--python", other, "--python", sys.executable]
    assert check("tests.services:Versioned", *few) == 1
    assert "environments   FAILED  DivergenceError: " in (output := capsys.readouterr().out)
    assert "it differs with Python; look for what changed between the versions" in output
    assert check("tests.services:Adding", *few) == 0
    capsys.readouterr()
    assert check("tests.services:Adding", "--life", "tests.services:numbers", "--python", "/no/python") == 1
    assert "python='/no/python': cannot be run: No such file or directory" in capsys.readouterr().out


def test_without_its_extra_the_wall_clock_is_left_out_and_that_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_command, "has_time_machine", lambda: False)
    assert check("tests.services:Year", "--life", "tests.services:numbers") == 1  # of its calls
    output = capsys.readouterr().out
    assert re.search(r'environments +ok .*the wall clock was left out: pip install "aeron.*\[testing\]"', output)
    assert "calls          FAILED  ForbiddenCallError" in output


@two_environments
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
    assert check(f"tests.services:{service}", "--seeds", "1") == 1
    output = capsys.readouterr().out
    assert re.search(text, output), output
    assert "memory " in output


@two_environments
def test_an_exception_in_another_process_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.services:Misspelt", "--seeds", "1", "--simulations", "1") == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("environments")]
    place = re.escape(str(Path(services.__file__)))
    assert re.fullmatch(
        rf"environments +FAILED +ContainerError: in a process with .*: ValueError: .* in {place}:\d+", line
    )


@two_environments
@pytest.mark.parametrize("more", [[], ["--life", "tests.services:numbers"]])
def test_a_service_without_on_take_snapshot_is_named(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.services:Stateless", "--seeds", "1", "--simulations", "1", *more) == 0
    line = "traffic        ok      Stateless has no on_take_snapshot, so the checks see no state: define it"
    assert line in capsys.readouterr().out.splitlines()


@two_environments
def test_a_life_that_changes_nothing_is_to_send_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--life", "tests.services:opening", "--simulations", "1")
    assert check("tests.services:Adding", *options) == 0
    assert "so little was tested: have the life send what changes it" in capsys.readouterr().out


def test_a_callback_with_a_misspelt_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.services:Unheard") == 2
    text = "Unheard.on_timer_evnt is never called: did you mean on_timer_event?"
    assert text in capsys.readouterr().err


@two_environments
def test_a_check_that_is_not_made_is_no_ok_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("tests.services:Adding", "--life", "tests.services:coming_and_going", "--simulations", "1") == 0
    output = capsys.readouterr().out
    assert "memory         skipped a --life is repeated only for as many messages as --memory-messages N says" in output
    assert "ok      skipped" not in output


def test_a_generated_life_is_the_same_for_a_seed_and_ends_with_no_session() -> None:
    logs = []
    for seed in (1, 1, 2):
        with MemoryMember(Adding) as member:
            GeneratedLife(seed, 100)(member)
            assert member.sessions == []
            logs.append([entry.message for entry in member.log])
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]
