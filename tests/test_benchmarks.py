"""What the benchmarks share: goals, medians, the order of rounds, the report; and those that need no node, tiny."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from benchmarks import _harness, codecs, echo, instructions, sessions_and_timers, start
from benchmarks._harness import Report, RoundFailed, cpu_seconds, medians_of, resident_mib, run_rounds
from benchmarks._verdicts import Goal, Result, Word, judge
from tests.limits import LIMIT_S


def rounds(*values: float, metric: str = "per_second") -> list[Result]:
    """The results of one peer, one value a round."""
    return [{metric: value} for value in values]


RATE = Goal("ours", "per_second", ("java", "go"), at_least=1.0)
TIME = Goal("ours", "p50_us", ("java", "go"), at_most=0.5)


@pytest.mark.parametrize(
    ("goal", "results", "word", "ratio"),
    [
        (RATE, {"ours": rounds(105, 106, 104), "java": rounds(100, 101, 99)}, Word.AHEAD, 1.05),
        (RATE, {"ours": rounds(95, 96, 94), "java": rounds(100, 101, 99)}, Word.BEHIND, 0.95),
        (RATE, {"ours": rounds(120, 90, 95), "java": rounds(100, 101, 99)}, Word.LEVEL, 1.009),
        # The same machine was slow for both in one round: pairs show the difference, medians hide it.
        (RATE, {"ours": rounds(106, 53, 212), "java": rounds(100, 50, 200)}, Word.AHEAD, 1.06),
        (RATE, {"ours": rounds(100, 100, 100), "java": rounds(100, 100, 100)}, Word.LEVEL, 1.0),
        # The better peer counts.
        (
            RATE,
            {"ours": rounds(105, 106, 104), "java": rounds(100, 101, 99), "go": rounds(200, 201)},
            Word.BEHIND,
            0.52,
        ),
        (RATE, {"ours": rounds(300), "java": rounds(100)}, Word.LEVEL, 3.0),
    ],
)
def test_a_verdict_follows_from_the_interval_of_the_rounds(
    goal: Goal, results: dict[str, list[Result]], word: Word, ratio: float
) -> None:
    found = judge(goal, results)
    assert found is not None
    assert found.word is word
    assert found.ratio == pytest.approx(ratio, rel=0.01)
    assert found.low <= found.ratio <= found.high


@pytest.mark.parametrize(("ours", "word"), [(40.0, Word.AHEAD), (50.0, Word.LEVEL), (60.0, Word.BEHIND)])
def test_the_word_is_about_the_goal_and_not_about_the_peer(ours: float, word: Word) -> None:
    java = rounds(100, 101, 99, metric="p50_us")
    found = judge(TIME, {"ours": rounds(ours, ours * 1.01, ours * 0.99, metric="p50_us"), "java": java})
    assert found is not None
    assert found.word is word
    assert "p50_us ours / java or go <= 0.5" in str(found)


def test_ahead_and_behind_are_symmetric() -> None:
    generator = random.Random(5)
    opposite = {Word.AHEAD: Word.BEHIND, Word.LEVEL: Word.LEVEL, Word.BEHIND: Word.AHEAD}
    seen = set()
    for _ in range(300):
        one, other = (rounds(*(generator.lognormvariate(centre, 0.05) for _ in range(5))) for centre in (0.0, 0.06))
        at_least = judge(Goal("a", "per_second", ("b",), at_least=1.0), {"a": one, "b": other})
        at_most = judge(Goal("a", "per_second", ("b",), at_most=1.0), {"a": one, "b": other})
        swapped = judge(Goal("b", "per_second", ("a",), at_least=1.0), {"a": one, "b": other})
        assert at_least is not None
        assert at_most is not None
        assert swapped is not None
        assert opposite[at_least.word] is at_most.word is swapped.word
        seen.add(at_least.word)
    assert {Word.BEHIND, Word.LEVEL} <= seen


def test_peers_that_are_level_are_called_so_in_19_of_20_runs() -> None:
    generator = random.Random(7)
    words = Counter(
        verdict.word
        for _ in range(2_000)
        if (
            verdict := judge(
                Goal("a", "per_second", ("b",), at_least=1.0),
                {name: rounds(*(generator.lognormvariate(0, 0.1) for _ in range(5))) for name in "ab"},
            )
        )
    )
    assert 0.93 < words[Word.LEVEL] / words.total() < 0.97


def test_a_goal_without_a_peer_that_ran_has_no_verdict() -> None:
    assert judge(RATE, {"ours": rounds(1.0)}) is None
    assert judge(RATE, {"java": rounds(1.0)}) is None
    assert judge(RATE, {"ours": [], "java": rounds(1.0)}) is None
    assert judge(TIME, {"ours": rounds(1.0), "java": rounds(1.0)}) is None


def test_an_absolute_goal_and_rounds_that_failed_have_verdicts() -> None:
    absolute = judge(Goal("ours", "per_second", at_least=100.0), {"ours": rounds(200, 201, 199)})
    assert absolute is not None
    assert absolute.word is Word.AHEAD
    unpaired = judge(RATE, {"ours": rounds(300, 301, 299), "java": rounds(100, 101)})
    assert unpaired is not None
    assert unpaired.ratio == pytest.approx(2.985, rel=0.01)


def test_rounds_shuffle_the_peers_by_the_seed_and_count_failures() -> None:
    def order(seed: int) -> list[str]:
        called: list[str] = []

        def peer(name: str) -> Result:
            called.append(name)
            if name == "c" and len(called) > 3:
                raise RoundFailed("it died")
            return {"value": float(len(called))}

        results, failures = run_rounds({name: partial(peer, name) for name in "abc"}, 4, seed)
        assert [len(results[name]) for name in "abc"] == [4, 4, 1]
        assert failures["c"] == ["it died"] * 3
        return called

    assert order(1) == order(1)
    assert sorted(order(1)[:3]) == ["a", "b", "c"]
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_medians_leave_out_who_has_no_results() -> None:
    assert medians_of({"a": [{"x": 1.0}, {"x": 5.0}, {"x": 2.0}], "b": []}) == {"a": {"x": 2.0}}


def test_a_report_ends_with_json_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_harness, "CACHE", tmp_path)
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    report = Report("sample", {"per_second": ".1f"}, failures={"java": ["it died\nhere"]})
    report.histograms["a row"] = {"java": [(1.0, 3), (10.0, 1)]}
    report.add(
        "a row",
        {"java": [{"per_second": 2.0}], "python": [{"per_second": 1.0}]},
        [Goal("python", "per_second", ("java",), at_least=1.0)],
    )
    found = report.finish().as_json()
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1]) == found
    verdict = {"ratio": 0.5, "interval": None, "verdict": "level"}
    assert found["goals"] == {"a row: per_second python / java >= 1": verdict}
    assert found["failures"] == {"java": 1}
    assert any("java failed 1 times, for example: it died" in line for line in lines)
    assert "1 goals: 0 ahead, 1 level, 0 behind" in lines
    kept = json.loads((tmp_path / "history.jsonl").read_text())
    assert kept["rounds"]["a row"]["java"] == [{"per_second": 2.0}]
    assert len(list(tmp_path.glob("sample-*.png"))) == 1


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux tells a process's times in /proc")
def test_a_process_is_seen_to_work() -> None:
    import os

    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) - before < 0.01:
        sum(range(10_000))
    assert 5 < resident_mib(os.getpid()) < 10_000


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    for module in (_harness, codecs):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(_harness, "HISTORY", tmp_path / "history.jsonl")
    return tmp_path


def test_sessions_and_timers_run(cache: Path) -> None:
    found = sessions_and_timers.main(
        ["--rounds=1", "--messages=500", "--most-sessions=100", "--most-timers=1000"],
    ).as_json()
    assert found["rows"]["sessions"]["100 sessions"]["ns_per_message"] > 0
    assert found["rows"]["timers"]["1,000 timers"]["ns_per_timer"] > 0
    assert set(found["failures"].values()) == {0}


@pytest.mark.slow
def test_codecs_run(cache: Path) -> None:
    found = codecs.main(["--rounds=1", "--messages=1000"]).as_json()
    [row] = found["rows"].values()
    assert {"SessionMessageHeader", "JoinLog", "SnapshotMarker"} <= set(row)
    assert set(found["failures"].values()) == {0}


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("???:__pyx_f_x [/a/src/container/service/service_handler.cpython-313-x86_64-linux-gnu.so]", "service_handler"),
        ("???:__pyx_f_x [/a/container/testing/memory/memory_log.cpython-313-x86_64-linux-gnu.so]", "memory transport"),
        ("/b/Python-3.13.0/Python/ceval.c:_PyEval_Vector [/b/lib/libpython3.13.so.1.0]", "CPython"),
        ("./string/memset-vec-unaligned-erms.S:__memset [/usr/lib/libc.so.6]", "libc and loader"),
    ],
)
def test_instructions_belong_to_the_part_whose_file_has_them(line: str, part: str) -> None:
    assert instructions.part_of(line) == part


def test_a_round_of_an_echo_is_the_median_of_its_repeats() -> None:
    repeats = [
        {"per_second": rate, "p50_us": 1 / rate, "histogram": [[1.0, count]]}
        for rate, count in ((3.0, 5), (1.0, 6), (2.0, 7))
    ]
    assert echo.middle_of(repeats) == {
        "per_second": 2.0,
        "p50_us": 0.5,
        "histogram": [[1.0, 5], [1.0, 6], [1.0, 7]],
    }


def test_each_load_of_an_echo_has_messages() -> None:
    found = echo.loads(200_000)
    assert len({str(load) for load in found}) == len(found) == 16
    assert {load.medium for load in found} == {"udp", "ipc"}
    assert max(load.messages * (load.length + 64) for load in found) < 110e6
    assert min(load.messages for load in echo.loads(1)) == 100


@pytest.mark.parametrize(
    ("program", "limit_s", "refusal"),
    [
        ("print('it is ready', flush=True); input()", LIMIT_S, None),
        ("pass", LIMIT_S, "ended before it was ready"),
        ("input()", 0.2, "waited 0.2 s for aeron-cluster dev to say that it is ready"),
    ],
)
def test_a_node_that_does_not_say_that_it_is_ready_fails_its_round(
    program: str, limit_s: float, refusal: str | None
) -> None:
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        try:
            with pytest.raises(RoundFailed, match=refusal) if refusal is not None else nullcontext():
                start.await_line(node, "ready", limit_s)
        finally:
            node.kill()
