"""What the benchmarks share: goals, medians, the order of rounds, the report; and those that need no node, tiny."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import _harness, codecs, echo, instructions, sessions_and_timers
from benchmarks._harness import Goal, Report, Result, RoundFailed, cpu_seconds, medians_of, resident_mib, run_rounds

MEDIANS: dict[str, Result] = {
    "python": {"per_second": 90.0, "p50_us": 10.0},
    "java": {"per_second": 80.0, "p50_us": 12.0},
    "go": {"per_second": 100.0, "p50_us": 8.0},
}


@pytest.mark.parametrize(
    ("goal", "ratio", "is_met"),
    [
        (Goal("python", "per_second", ("java",), at_least=1.0), 1.125, True),
        (Goal("python", "per_second", ("java", "go"), at_least=1.0), 0.9, False),
        (Goal("python", "p50_us", ("java", "go"), at_most=1.0), 1.25, False),
        (Goal("python", "p50_us", ("java",), at_most=1.0), 10 / 12, True),
        (Goal("python", "per_second", at_least=90.0), 90.0, True),
        (Goal("python", "per_second", ("java", "none"), at_least=1.0), 1.125, True),
    ],
)
def test_a_goal_compares_with_the_better_peer(goal: Goal, ratio: float, is_met: bool) -> None:
    found = goal.ratio(MEDIANS)
    assert found == pytest.approx(ratio)
    assert found is not None
    assert goal.is_met(found) is is_met


def test_a_goal_without_a_peer_that_ran_has_no_ratio() -> None:
    assert Goal("python", "per_second", ("none",), at_least=1.0).ratio(MEDIANS) is None
    assert Goal("none", "per_second", ("java",), at_least=1.0).ratio(MEDIANS) is None
    assert Goal("python", "none", at_least=1.0).ratio(MEDIANS) is None


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
    assert found["goals"] == {"a row: per_second python / java >= 1": {"ratio": 0.5, "met": False}}
    assert found["failures"] == {"java": 1}
    assert any("java failed 1 times, for example: it died" in line for line in lines)
    assert "0 of 1 goals met" in lines
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
@pytest.mark.timeout(300)
def test_codecs_run(cache: Path) -> None:
    found = codecs.main(["--rounds=1", "--messages=1000"]).as_json()
    [row] = found["rows"].values()
    assert {"SessionMessageHeader", "JoinLog", "SnapshotMarker"} <= set(row)
    assert set(found["failures"].values()) == {0}


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("???:__pyx_f_x [/a/src/container/service_handler.cpython-313-x86_64-linux-gnu.so]", "service_handler"),
        ("???:__pyx_f_x [/a/container/testing/memory_log.cpython-313-x86_64-linux-gnu.so]", "memory transport"),
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
