"""The command ``aeron-cluster replay``: what it prints, where it says that a state went wrong, and its debugger."""

from __future__ import annotations

import io
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from container.__main__ import main
from container.replay.replay_command import stopping
from container.testing import MemoryMember
from container.testing.lives import RecordedLife
from tests.replay_services import FAILING, STATE
from tests.replay_world import GENEROUS, TALLY, Tally, write_tally
from tests.services import Adding
from tests.test_check_command import check

FORGETFUL = "tests.replay_services:ForgetfulTallyService"


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    return write_tally(tmp_path_factory.mktemp("tally") / "member")


def replay(tally: Tally, *arguments: str) -> int:
    """The exit status."""
    try:
        return main(["replay", str(tally.base_dir), *arguments])
    except SystemExit as end:
        return int(end.code or 0)


def test_a_service_that_comes_to_the_recorded_states(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tally, TALLY) == 0
    lines = capsys.readouterr().out.splitlines()
    states = [line for line in lines if line.startswith("state at log position ")]
    assert [line.rpartition(", ")[2] for line in states] == ["as recorded", "as recorded", "no snapshot is recorded"]
    assert f"EGRESS: {len(tally.answers)}" in lines


def test_a_state_that_is_not_the_recorded_one_is_located(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tally, FORGETFUL) == 1
    first = tally.snapshots[0]
    assert f"the service's state at log position {first} differs from the recorded state" in capsys.readouterr().err


def test_a_divergence_that_was_recorded_is_located_between_two_snapshots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(5)
    good = tally.take_snapshot()
    tally.number(6)
    bad = tally.take_snapshot(STATE.pack(tally.count, tally.sum + 1))
    tally.finish()
    assert replay(tally, TALLY, "--begin", "0") == 1
    error = capsys.readouterr().err
    assert (
        f"state at log position {bad} differs from the recorded state; it diverged after log position {good}" in error
    )


def test_the_first_difference_of_two_services_is_located(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tally, TALLY, "--other", TALLY, "--begin", "0") == 0
    assert f"{TALLY} does what {TALLY} does" in capsys.readouterr().out
    assert replay(tally, TALLY, "--other", GENEROUS, "--begin", "0") == 1
    counted = [(at, int(answer.split()[2])) for at, _, _, answer in tally.answers if b" after " in answer]
    tenth = next(at for at, count in counted if count >= 10)
    assert f"{GENEROUS} differs from {TALLY} from log position {tenth} on: EGRESS CHANGED" in capsys.readouterr().err


def test_the_debugger_stops_in_the_callback_at_a_position(
    tally: Tally, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    position = tally.answers[5][0]
    monkeypatch.setattr("sys.stdin", io.StringIO("p header.position, self.count\ncontinue\n"))
    assert replay(tally, TALLY, "--begin", "0", "--break-at", str(position)) == 0
    output = capsys.readouterr().out
    assert "on_session_message" in output
    assert f"({position}, " in output
    assert output.count("(Pdb)") == 2


def test_quitting_the_debugger_ends_the_replay_without_a_verdict(
    tally: Tally, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    with pytest.raises(SystemExit, match="the replay was ended in the debugger"):
        main(["replay", str(tally.base_dir), TALLY, "--begin", "0", "--break-at", str(tally.answers[5][0])])
    captured = capsys.readouterr()
    assert "differs from the recorded state" not in captured.err
    assert "the service failed" not in captured.out


def test_permissive_goes_on_behind_an_exception(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(1)
    tally.number(FAILING)
    tally.number(FAILING)
    tally.finish()
    assert replay(tally, TALLY, "--mode", "permissive") == 1
    captured = capsys.readouterr()
    assert captured.out.count("the service failed at log position") == 2
    assert "ERROR: 2" in captured.out
    assert "ValueError: no number -1" in captured.err


def test_an_exception_of_the_service_is_the_error(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tally, "tests.replay_services:BrokenTallyService", "--begin", str(tally.snapshots[0])) == 1
    assert "the service failed at log position" in capsys.readouterr().err


def test_a_service_that_cannot_be_stopped_is_refused() -> None:
    with pytest.raises(Exception, match=r"break-at=5: object is not a ClusteredService in Python"):
        stopping(object, 5, [])()


SERVICES = "tests.replay_services:"


def test_two_releases_with_states_of_different_forms_are_compared(
    tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    upgraded = f"{SERVICES}UpgradedTallyService"
    assert replay(tally, TALLY, "--other", upgraded) == 0
    assert f"{upgraded} does what {TALLY} does" in capsys.readouterr().out
    assert replay(tally, upgraded, "--other", TALLY, "--begin", str(tally.snapshots[0])) == 0


def test_a_state_that_differs_behind_its_form_is_found(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tally, TALLY, "--other", f"{SERVICES}MiscountingTallyService") == 1
    text = capsys.readouterr().err
    assert f"from log position {tally.snapshots[0]} on: STATE_HASH CHANGED: Message 0 of the snapshot: " in text
    assert "' in the other as it loads the snapshot of the first, b'" in text
    assert "' in its own." in text
    assert replay(tally, TALLY, "--other", f"{SERVICES}MiscountingTallyService", "--ignore-state") == 0
    assert "their states were not compared" in capsys.readouterr().out
    assert replay(tally, TALLY, "--other", FORGETFUL) == 1  # of one form, and both can load it


def test_states_that_cannot_be_compared_end_no_comparison_of_answers(
    tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = ("--begin", "0")
    assert replay(tally, TALLY, "--other", f"{SERVICES}ForeignTallyService", *begin) == 1
    text = capsys.readouterr().err
    assert f"their states cannot be compared, first at log position {tally.snapshots[0]}: the other cannot load" in text
    assert "ValueError: this snapshot is of the old release" in text
    assert "; the first cannot load the snapshot of the other: " in text
    assert "(--ignore-state leaves states out)" in text
    assert replay(tally, TALLY, "--other", f"{SERVICES}ForeignTallyService", "--ignore-state", *begin) == 0
    for options in ((), ("--ignore-state",)):
        assert replay(tally, TALLY, "--other", f"{SERVICES}ForeignGenerousTallyService", *options, *begin) == 1
        assert ": EGRESS CHANGED of session " in capsys.readouterr().err


def test_without_pyarrow_the_error_names_the_extra_that_brings_it(
    tally: Tally, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert replay(tally, TALLY) == 1
    text = capsys.readouterr().err
    assert text.endswith('needs pyarrow: pip install "aeron-cluster-container[recordings]"\n')
    extras = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert [Requirement(text).name for text in extras["optional-dependencies"]["recordings"]] == ["pyarrow"]


def test_what_differs_is_shown_of_both(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    answer = next(answer for answer in tally.answers if b" after " in answer[3] and int(answer[3].split()[-1]) >= 10)
    assert replay(tally, TALLY, "--other", GENEROUS) == 1
    other = answer[3].split()[0] + b"!"
    assert f"EGRESS CHANGED of session {answer[2]}; payload: {answer[3]!r} of {TALLY}, {other!r} of {GENEROUS}" in (
        capsys.readouterr().err
    )


def test_a_release_whose_state_has_another_form_comes_to_the_recorded_states(
    tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tally, f"{SERVICES}UpgradedTallyService") == 0
    assert capsys.readouterr().out.count(", as recorded, in another form") == len(tally.snapshots)
    assert replay(tally, f"{SERVICES}MiscountingTallyService") == 1
    assert "' in the recorded snapshot, as the service loads it, b'" in capsys.readouterr().err
    assert replay(tally, f"{SERVICES}ForeignTallyService", "--begin", "0") == 1
    assert ": the service cannot load a snapshot of that position: ValueError: this sna" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([TALLY, "--ignore-state"], "--ignore-state: compares two services, so give --other as well"),
        ([TALLY, "--until", "-1"], "must be a number from 0 on"),
        ([TALLY, "--begin", "3"], "begin_position=3: a replay can begin at"),
        (["no_such_module:Service"], "module no_such_module cannot be imported"),
        ([TALLY, "--other", "tests.replay_services:Missing"], "tests.replay_services has no Missing"),
    ],
)
def test_what_is_wrong_is_named(
    arguments: list[str], text: str, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tally, *arguments) == 2
    assert text in capsys.readouterr().err


def test_a_recorded_life_is_that_of_its_clients(tally: Tally) -> None:
    with MemoryMember(Adding) as member:
        RecordedLife(str(tally.base_dir))(member)
        assert [session.id for session in member.sessions] == [1]
        names = [entry.decode()[0] for entry in member.log]
        assert names.count("SessionOpenEvent") == 2
        assert names.count("SessionCloseEvent") == 1
        assert names.count("SessionMessageHeader") == sum(b" after " in answer for *_, answer in tally.answers)
        assert member.cluster_time > 1_000
        RecordedLife(str(tally.base_dir), most_messages=3)(member)
        assert [entry.decode()[0] for entry in member.log][len(names) :].count("SessionMessageHeader") == 1


@pytest.mark.slow
def test_the_checks_take_a_recorded_log(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    status = check("tests.services:Adding", "--recording", str(tally.base_dir))
    output = capsys.readouterr().out
    assert status == 0, output
    assert "restarts       ok" in output


def test_a_replay_without_rows_shows_its_progress(
    tally: Tally, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container.replay.replay_command._PROGRESS_S", 0.0)
    replay(tally, "tests.services:Adding", "--begin", "0")
    assert re.search(r"^log position \d+ of \d+$", capsys.readouterr().err, re.M)


def test_a_position_that_no_callback_reaches_is_an_error(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tally, TALLY, "--begin", "0", "--break-at", "99999999") == 1
    assert "--break-at 99999999: no callback ended there or later" in capsys.readouterr().err
