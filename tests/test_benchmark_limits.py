"""Verdicts of the benchmarks: when the limit of a missed goal counts as shown; and how perf's samples become parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import container
from benchmarks import _harness, profile, snapshot
from benchmarks import all as all_benchmarks
from benchmarks._harness import Goal, Report, Result, RoundFailed, Row, busy_seconds, interpreter, interpreter_mib
from benchmarks._limits import PYTHON_ALONE, Evidence, Verdict, Word, chance_of, judge, needs_profile, needs_rounds

FASTER = Goal("python", "per_second", ("java", "go"), at_least=1.0)
SHORTER = Goal("python", "p50_us", ("java",), at_most=1.0)
LATER = Goal("python", "p99_us", ("java",), at_most=1.0)
CHEAPER = Goal("python", "cpu_s_per_million", ("java",), at_most=0.6)
SMALLER = Goal("python", "resident_mib", ("java",), at_most=1 / 3)
LOADED = Goal("python", "loaded_mb_s", ("java",), at_least=1.0)
STALLED = Goal("python", "stall_s", ("java",), at_most=1.0)
NOTHING_ELSE = Evidence(cores=2)


def row(metric: str, name: str = "a row", **rounds: list[float]) -> Row:
    """A row with one metric, whose rounds are given by peer."""
    return Row(name, {peer.replace("_", " "): [{metric: value} for value in of] for peer, of in rounds.items()})


def verdict(goal: Goal, of: Row, evidence: Evidence = NOTHING_ELSE) -> Verdict:
    """The verdict, where the goal's peers ran."""
    found = judge(goal, of, evidence)
    assert found is not None
    return found


def test_a_goal_that_is_met_needs_no_limit_and_one_without_peers_has_no_verdict() -> None:
    assert verdict(FASTER, row("per_second", python=[2.0], java=[1.0])).word is Word.MET
    assert judge(FASTER, row("per_second", python=[2.0]), NOTHING_ELSE) is None


@pytest.mark.parametrize(
    ("goal", "of", "word"),
    [
        (FASTER, row("per_second", python=[90.0], java=[80.0, 100.0, 120.0]), Word.LIMIT_SHOWN),
        (FASTER, row("per_second", python=[79.0], java=[80.0, 100.0, 120.0]), Word.MISSED),
        # The rounds of the better peer count, and not the worse one's.
        (FASTER, row("per_second", python=[79.0], java=[50.0, 90.0], go=[80.0, 100.0]), Word.MISSED),
        (FASTER, row("per_second", python=[81.0], java=[50.0, 70.0], go=[80.0, 100.0]), Word.LIMIT_SHOWN),
        (SHORTER, row("p50_us", python=[11.0], java=[9.0, 10.0, 12.0]), Word.LIMIT_SHOWN),
        (SHORTER, row("p50_us", python=[13.0], java=[9.0, 10.0, 12.0]), Word.MISSED),
        # One round has no range, and a goal that is not to be as good has nothing to do with it.
        (SHORTER, row("p50_us", python=[11.0], java=[10.0]), Word.MISSED),
        (
            Goal("python", "per_second", ("java",), at_least=2.0),
            row("per_second", python=[9.0], java=[8.0, 9.0]),
            Word.MISSED,
        ),
        (Goal("python", "ns", ("java",), at_most=1.0), row("ns", python=[9.0], java=[8.0, 8.0, 10.0]), Word.MISSED),
    ],
)
def test_the_rounds_of_the_better_peer_are_a_limit(goal: Goal, of: Row, word: Word) -> None:
    assert verdict(goal, of).word is word


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([70.0, 75.0, 78.0, 120.0, 130.0], Word.LIMIT_SHOWN),  # behind all rounds by the median, but not by the rest
        ([70.0, 75.0, 78.0, 79.0, 79.5], Word.MISSED),
        ([70.0, 75.0, 81.0, 82.0, 83.0], Word.MISSED),  # within the rounds by the median, but not by the rest
        ([70.0, 75.0, 78.0, 130.0], Word.MISSED),  # too few to say
    ],
)
def test_rounds_that_do_not_tell_two_peers_apart_are_a_limit(ours: list[float], word: Word) -> None:
    theirs = [80.0, 90.0, 100.0, 110.0, 120.0]
    assert verdict(FASTER, row("per_second", python=ours, java=theirs)).word is word


def test_chance_is_that_of_the_rank_sum() -> None:
    assert chance_of([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == 1 / 252
    assert chance_of([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == 1.0
    assert chance_of([1, 1], [1, 1]) == 1.0
    assert chance_of([1, 3], [2, 4]) == 2 / 6


@pytest.mark.parametrize(
    ("interpreter_ns", "cython", "word"),
    [
        (40.0, 15e6, Word.LIMIT_SHOWN),
        (30.0, 15e6, Word.MISSED),
        (None, 15e6, Word.MISSED),
        # The container itself recovers more slowly than Java's.
        (40.0, 8e6, Word.MISSED),
    ],
)
def test_the_interpreter_is_a_limit_of_recovery(interpreter_ns: float | None, cython: float, word: Word) -> None:
    of = row("per_second", "from the archive", python=[5e6], cython=[cython], java=[10e6])
    goal = Goal("python", "per_second", ("java",), at_least=1.0)
    assert verdict(goal, of, Evidence(cores=2, interpreter_ns=interpreter_ns)).word is word


@pytest.mark.parametrize(("others", "word"), [(0.1, Word.LIMIT_SHOWN), (0.2, Word.MISSED)])
@pytest.mark.parametrize("disturbed", ["python", "java"])
def test_rounds_that_other_programs_disturbed_are_no_limit(disturbed: str, others: float, word: Word) -> None:
    of = row("per_second", python=[90.0], java=[80.0, 100.0, 120.0])
    for result in of.results[disturbed]:
        result["others"] = others
    found = verdict(FASTER, of)
    assert found.word is word
    assert ("but other programs take up to 20% of the cores" in found.text) is (word is Word.MISSED)


@pytest.mark.parametrize(("most", "word"), [(190.0, Word.MET), (480.0, Word.LIMIT_SHOWN), (520.0, Word.MISSED)])
def test_memory_that_is_in_no_cache_is_a_limit(most: float, word: Word) -> None:
    goal = Goal("9 sessions", "ns", ("1 sessions",), at_most=2.0)
    peers = {"1 sessions": 100.0, "9 sessions": most, "1 lists in a chain": 20.0, "9 lists in a chain": 320.0}
    assert verdict(goal, Row("sessions", {peer: [{"ns": value}] for peer, value in peers.items()})).word is word


def echo_row(machine: float, busy: float, name: str = "a row", others: float = 0.0) -> Row:
    """A row of echo where Python is behind Java."""
    ours = {"per_second": 500_000.0, "cpu_s_per_million": 2.0, "machine": machine, "busy": busy, "others": others}
    return Row(name, {"python": [ours], "java": [{"per_second": 1_000_000.0}]})


def profiled(name: str = "a row", samples: float = 1e6, **parts: float) -> Evidence:
    """A profile of ours with these parts of a second per million messages, whose rest is the kernel's; and Java's."""
    ours = {
        "cpu_s_per_million": 1.0,
        "samples": samples,
        "container": 0.0,
        **parts,
        "kernel": 1.0 - sum(parts.values()),
    }
    return Evidence(2, profiles={name: {"python": ours, "java": {"cpu_s_per_million": 1.0, "kernel": 0.6}}})


def test_busy_cores_are_a_limit_where_the_service_has_time_to_spare() -> None:
    found = verdict(FASTER, echo_row(0.97, 0.25), profiled(interpreter=0.5, container=0.25))
    assert found.word is Word.LIMIT_SHOWN
    assert "the 2 cores are 97% busy, 13% of that is the service's" in found.text
    assert "outside of the kernel it takes 0.19 of a core" in found.text


@pytest.mark.parametrize(
    ("of", "evidence"),
    [
        (echo_row(0.97, 0.25), NOTHING_ELSE),
        (echo_row(0.89, 0.25), profiled(container=0.6)),
        (echo_row(0.97, 1.0), profiled(container=0.6)),
        (echo_row(0.97, 0.25, others=0.11), profiled(container=0.6)),
        (echo_row(1.0, 0.25, "udp, yield"), profiled("udp, yield", container=0.6)),
    ],
    ids=["no profile", "idle cores", "the service needs half a core", "other programs", "agents that never park"],
)
def test_busy_cores_are_no_limit_otherwise(of: Row, evidence: Evidence) -> None:
    found = verdict(FASTER, of, evidence)
    assert found.word is Word.MISSED
    assert "cores are" in found.text


@pytest.mark.parametrize(
    ("own", "samples", "word"),
    [(0.3, 1e6, Word.LIMIT_SHOWN), (0.4, 1e6, Word.MISSED), (0.3, 1_000, Word.LIMIT_SHOWN), (0.3, 100, Word.MISSED)],
)
def test_processor_time_is_limited_by_all_but_the_container(own: float, samples: float, word: Word) -> None:
    found = verdict(
        CHEAPER, row("cpu_s_per_million", python=[0.9], java=[1.0]), profiled(samples=samples, container=own)
    )
    assert found.word is word
    assert f"the kernel takes {1 - own:.0%} of python's, 60% of java's" in found.text
    assert f"without one instruction of the container it would be {0.9 * (1 - own):.2f} +- " in found.text


@pytest.mark.parametrize(
    ("interpreter_mib", "word"), [(17.0, Word.LIMIT_SHOWN), (9.0, Word.MISSED), (None, Word.MISSED)]
)
def test_memory_is_limited_by_the_bare_interpreter(interpreter_mib: float | None, word: Word) -> None:
    found = verdict(SMALLER, row("resident_mib", python=[18.0], java=[48.0]), Evidence(2, interpreter_mib))
    assert found.word is word
    if interpreter_mib == 9.0:
        assert found.text.endswith("the bare interpreter 9.0 and all else 9.0; the goal leaves 7.0 for all else")


@pytest.mark.parametrize(
    ("goal", "python", "alone", "cython", "word"),
    [
        (LOADED, 80.0, 400.0, 110.0, Word.LIMIT_SHOWN),
        (LOADED, 80.0, 2_000.0, 110.0, Word.MISSED),
        # The container itself is slower than Java's.
        (LOADED, 80.0, 400.0, 90.0, Word.MISSED),
        (STALLED, 120.0, 30.0, 80.0, Word.LIMIT_SHOWN),
        (STALLED, 120.0, 10.0, 80.0, Word.MISSED),
        (STALLED, 120.0, 30.0, 110.0, Word.MISSED),
    ],
)
def test_a_snapshot_is_limited_by_what_python_alone_takes(
    goal: Goal, python: float, alone: float, cython: float, word: Word
) -> None:
    of = row(goal.metric, python=[python], java=[100.0], cython=[cython], python_alone=[alone])
    assert verdict(goal, of).word is word
    assert PYTHON_ALONE in of.medians


def test_only_what_a_profile_could_show_is_profiled() -> None:
    costly = row("cpu_s_per_million", "costly", python=[0.9], java=[1.0])
    slow, met = row("per_second", "slow", python=[0.9], java=[1.0]), row("per_second", "met", python=[1.0], java=[1.0])
    late, large = row("p99_us", "late", python=[11.0], java=[10.0]), row("resident_mib", "l", python=[9.0], java=[9.0])
    judged = [
        (of, verdict(goal, of))
        for of, goal in ((costly, CHEAPER), (slow, FASTER), (met, FASTER), (late, LATER), (large, SMALLER))
    ]
    assert [needs_profile(found) for _, found in judged] == [True, True, False, False, False]
    assert all_benchmarks.to_profile(judged) == {"java": ["costly", "slow"], "python": ["costly", "slow"]}
    # A limit of processor time that the row itself shows is to be seen in a profile, too; one of throughput is not.
    bare = row("cpu_s_per_million", python=[0.9], java=[1.0], bare=[0.7])
    assert needs_profile(verdict(CHEAPER, bare))
    assert not needs_profile(verdict(FASTER, row("per_second", python=[0.9], java=[1.0], bare=[0.9])))


def test_only_a_row_that_is_behind_a_peer_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = Row("behind", row("p99_us", python=[11.0] * 5, java=[10.0] * 5).results, [LATER])
    level = Row("level", row("p99_us", python=[11.0, 9.0], java=[10.0, 12.0]).results, [LATER])
    costly = Row("costly", row("cpu_s_per_million", python=[0.9], java=[1.0]).results, [CHEAPER])
    asked: list[list[str]] = []

    def measure(arguments: Sequence[str]) -> Report:
        asked.append(list(arguments))
        more = row("p99_us", python=[9.0] * 5, java=[10.0] * 5).results
        return Report("echo", {}, [Row("behind", more, [LATER]), Row("behind, 100 sessions", more, [LATER])])

    monkeypatch.setitem(all_benchmarks.BENCHMARKS, "echo", measure)
    reports = {"echo": Report("echo", {}, [behind, level, costly])}
    assert [needs_rounds(found) for _, found in all_benchmarks.verdicts(reports["echo"].rows, NOTHING_ELSE)] == [
        True,
        False,
        False,
    ]
    all_benchmarks.measure_again(reports, NOTHING_ELSE, {"echo": ["--rounds=5"]})
    assert asked == [["--rounds=5", "--only=behind", "--seed=2"]]
    assert [len(level.results[peer]) for peer in ("python", "java")] == [2, 2]
    assert [len(behind.results[peer]) for peer in ("python", "java")] == [10, 10]
    found = verdict(LATER, behind)
    assert found.word is Word.MET
    behind.results["python"][5:] = [{"p99_us": 11.0}] * 5
    assert verdict(LATER, behind).word is Word.MISSED


@pytest.mark.parametrize(
    ("bare", "others", "word"),
    [(0.7, 0.0, Word.LIMIT_SHOWN), (0.7, 0.2, Word.MISSED), (0.5, 0.0, Word.MISSED)],
)
def test_processor_time_is_limited_by_echoes_past_the_container(bare: float, others: float, word: Word) -> None:
    of = row("cpu_s_per_million", python=[0.9], java=[1.0], bare=[bare])
    of.results["bare"][0]["others"] = others
    found = verdict(CHEAPER, of)
    assert found.word is word
    assert f"echoes that go past the container's code have {bare:.2f}" in found.text


def test_all_limits_of_a_goal_are_told_and_what_is_none_is_not() -> None:
    of = row("cpu_s_per_million", python=[0.9], java=[1.0], bare=[0.7])
    both = verdict(CHEAPER, of, profiled(container=0.3)).text.split("; ")
    assert [text.partition(" ")[0] for text in both] == ["echoes", "without", "the"]
    assert verdict(CHEAPER, of, profiled(container=0.4)).text == "echoes that go past the container's code have 0.70"


@pytest.mark.parametrize(
    ("bare", "others", "word"),
    [(70.0, 0.0, Word.LIMIT_SHOWN), (70.0, 0.2, Word.MISSED), (110.0, 0.0, Word.MISSED)],
)
def test_throughput_is_limited_by_echoes_past_the_container(bare: float, others: float, word: Word) -> None:
    of = row("per_second", python=[60.0], java=[100.0], bare=[bare])
    of.results["java"][0]["others"] = others
    assert verdict(FASTER, of).word is word


@pytest.mark.parametrize(
    ("own", "samples", "word"),
    [(0.2, 1e6, Word.LIMIT_SHOWN), (0.4, 1e6, Word.MISSED), (0.3, 1e6, Word.LIMIT_SHOWN), (0.3, 1_000, Word.MISSED)],
)
def test_throughput_is_limited_by_all_but_the_container(own: float, samples: float, word: Word) -> None:
    # A message takes 1.25 us in place of 1 us; of that 0.8 us are processor time, of which the container has a share.
    of = row("per_second", python=[800_000.0], java=[1_000_000.0])
    of.results["python"][0]["cpu_s_per_million"] = 0.8
    found = verdict(FASTER, of, profiled(samples=samples, container=own))
    assert found.word is word
    assert "of the 1.25 us of a message" in found.text


@pytest.mark.parametrize(("own", "word"), [(0.2, Word.LIMIT_SHOWN), (0.8, Word.MISSED)])
def test_a_round_trip_is_limited_by_all_but_the_container(own: float, word: Word) -> None:
    of = row("p50_us", python=[12.0], java=[10.0])
    of.results["python"][0]["cpu_s_per_million"] = 3.0
    assert verdict(SHORTER, of, profiled(container=own)).word is word


def test_the_table_counts_the_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    of = Row("a row", row("p50_us", python=[11.0], java=[9.0, 10.0, 12.0]).results, [SHORTER])
    missed = Row("b row", row("p50_us", python=[11.0], java=[10.0]).results, [SHORTER])
    shown = all_benchmarks.show({"echo": all_benchmarks.verdicts([of, missed], NOTHING_ELSE)})
    assert shown["counts"] == {"met": 0, "limit shown": 1, "MISSED": 1}
    entry = shown["goals"]["echo"]["a row: p50_us python / java <= 1"]
    assert (entry["ratio"], entry["verdict"]) == (1.1, "limit shown")
    assert "from 9 to 12" in entry["text"]
    assert json.loads(json.dumps(shown)) == shown
    printed = capsys.readouterr().out
    assert "MISSED               1.100  echo: b row: p50_us python / java <= 1" in printed
    assert "2 goals: 0 met, 1 limit shown, 1 MISSED" in printed


OURS = Path(container.__file__).parent


@pytest.mark.parametrize(
    ("path", "peer", "part"),
    [
        ("[kernel.kallsyms]", "python", "kernel"),
        ("[kvm]", "java", "kernel"),
        ("[vdso]", "cython", "libc"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "java", "libc"),
        ("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "python", "interpreter"),
        ("/a/lib/libpython3.13.so.1.0", "python", "interpreter"),
        ("/usr/bin/python3.13", "python", "interpreter"),
        ("/a/python3.13/lib-dynload/_struct.cpython-313-x86_64-linux-gnu.so", "python", "interpreter"),
        ("/a/site-packages/pyaeron/_pyaeron.cpython-313-x86_64-linux-gnu.so", "python", "aeron"),
        ("/a/lib/libaeron.so", "cython", "aeron"),
        (f"{OURS}/service_handler.cpython-313-x86_64-linux-gnu.so", "python", "container"),
        (f"{OURS}/aeron/resources.cpython-313-x86_64-linux-gnu.so", "python", "container"),
        (f"{_harness.CACHE}/cython_echo.cpython-313-x86_64-linux-gnu.so", "cython", "container"),
        ("/tmp/perf-4711.map", "java", "jvm"),
        ("[unknown]", "java", "jvm"),
        ("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", "java", "jvm"),
    ],
)
def test_code_belongs_to_the_part_whose_file_has_it(path: str, peer: str, part: str) -> None:
    assert profile.part_of(path, peer) == part


def test_samples_have_a_part_each() -> None:
    script = f"""
 ffffffff821f5127 ([kernel.kallsyms])
     7f8042069ee2 (/a/lib/libpython3.13.so.1.0 (deleted))
     7f8042069ee2 ({OURS}/transport.cpython-313-x86_64-linux-gnu.so)
     7f8042069ee4 ({OURS}/transport.cpython-313-x86_64-linux-gnu.so)
"""
    assert profile.samples_of(script, "cython") == {
        "kernel": 1,
        "interpreter": 1,
        "aeron": 0,
        "container": 2,
        "libc": 0,
    }
    with pytest.raises(RoundFailed, match="perf saw nothing"):
        profile.samples_of("", "cython")


def test_without_perf_the_fix_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt install linux-perf"):
        profile.main(["--only=ipc"])
    assert all_benchmarks.profiles({"java": ["a row"]}, []) == {}
    assert "are not shown" in capsys.readouterr().err


def test_the_report_names_the_interpreter_and_how_it_was_built() -> None:
    plain = interpreter({"CONFIG_ARGS": "'--enable-shared'", "PY_CFLAGS": "-O3"})
    assert (plain.has_pgo, plain.has_lto) == (False, False)
    assert str(plain).endswith("built without --enable-optimizations and --with-lto: a build with both is quicker")
    half = interpreter({"CONFIG_ARGS": "'--enable-optimizations'"})
    assert str(half).endswith("built without --with-lto: a build with both is quicker")
    best = interpreter({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=full'"})
    assert str(best).endswith("built with --enable-optimizations and --with-lto")
    assert interpreter({"CONFIG_ARGS": None, "PY_CFLAGS_NODIST": "-flto"}).has_lto
    assert _harness.machine()["interpreter"]["version"] == interpreter().version


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells in /proc how busy its cores are")
def test_linux_tells_what_is_busy() -> None:
    busy, there = busy_seconds()
    assert 0 < busy < there
    assert 3 < interpreter_mib() < 100


@pytest.mark.parametrize(("length", "count"), [(1024, 40_000), (1024, 100), (1024 * 1024 - 64, 16)])
def test_python_alone_checks_what_it_makes(length: int, count: int) -> None:
    found: Result = snapshot.python_alone(length, count)
    assert set(found) == {"taken_mb_s", "loaded_mb_s", "stall_s"}
    assert min(found.values()) > 0
