"""All benchmarks of the container, one after the other, and at the end the verdict on every goal in one table.

A goal is met, or its limit is shown by measurements of the same run (benchmarks/_limits.py), or it is missed. A row
that is behind another peer is measured again with as many rounds, and all of them count; loads of echo that miss a goal
of processor time, or another one whose limit only a profile could show, are profiled.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import codecs, echo, profile, replay, sessions_and_timers, snapshot, start
from benchmarks._harness import Report, Result, Row, interpreter, interpreter_mib, say
from benchmarks._limits import Evidence, Verdict, Word, judge, needs_profile, needs_rounds
from benchmarks._peers import add_peer_options

BENCHMARKS: dict[str, Callable[[Sequence[str]], Report]] = {
    "codecs": codecs.main,
    "sessions_and_timers": sessions_and_timers.main,
    "start": start.main,
    "echo": echo.main,
    "replay": replay.main,
    "snapshot": snapshot.main,
}
# Tiny: to see that everything runs, not to learn how fast.
SHORT = {
    "codecs": ["--rounds=1", "--messages=10000"],
    "sessions_and_timers": ["--rounds=1", "--messages=2000", "--most-sessions=100", "--most-timers=1000"],
    "start": ["--rounds=1"],
    "echo": ["--rounds=1", "--messages=2000", "--warm-up=1000", "--repeats=1"],
    "replay": ["--rounds=1", "--memory-messages=10000", "--messages=5000"],
    "snapshot": ["--rounds=1", "--mib=4"],
    "profile": ["--messages=2000", "--warm-up=1000"],
}


def verdicts(rows: Sequence[Row], evidence: Evidence) -> list[tuple[Row, Verdict]]:
    """The verdict on each goal of these rows whose peers ran."""
    judged = [(row, judge(goal, row, evidence)) for row in rows for goal in row.goals]
    return [(row, verdict) for row, verdict in judged if verdict is not None]


def measure_again(reports: Mapping[str, Report], evidence: Evidence, arguments: Mapping[str, Sequence[str]]) -> None:
    """Add as many rounds to each row that is behind a peer: whether it really is, or by chance, more of them tell."""
    for name, report in reports.items():
        missed = dict.fromkeys(row.name for row, verdict in verdicts(report.rows, evidence) if needs_rounds(verdict))
        rows = {row.name: row for row in report.rows}
        for row_name in missed:
            say(f"== {name} again: {row_name}")
            again = BENCHMARKS[name]([*arguments[name], f"--only={row_name}", "--seed=2"])
            for more in again.rows:
                if more.name == row_name:
                    for peer, results in more.results.items():
                        rows[row_name].results[peer].extend(results)


def to_profile(judged: Sequence[tuple[Row, Verdict]]) -> dict[str, list[str]]:
    """The rows whose limits a profile could show, by peer; Java's container, which ours is compared with, has all."""
    found: dict[str, list[str]] = {}
    for row, verdict in judged:
        if needs_profile(verdict):
            for peer in ("java", verdict.goal.peer):
                if row.name not in found.setdefault(peer, []):
                    found[peer].append(row.name)
    return found


def profiles(chosen: Mapping[str, Sequence[str]], arguments: Sequence[str]) -> dict[str, dict[str, Result]]:
    """The profiles of these rows by row and peer; none, and a word about it, where perf cannot be had."""
    try:
        report = profile.of_rows(chosen, profile.parse(arguments))
    except profile.PerfMissing as missing:
        say(f"the limits of processor time and throughput are not shown: {missing}")
        return {}
    return {row.name: row.medians for row in report.rows}


def show(found: Mapping[str, Sequence[tuple[Row, Verdict]]]) -> dict[str, Any]:
    """Print the table of all goals and how many have which verdict; what the line of JSON says."""
    goals: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter({word.value: 0 for word in Word})
    width = max(len(word) for word in Word)
    print()
    for name, judged in found.items():
        goals[name] = {}
        for row, verdict in judged:
            goal = f"{row.name}: {verdict.goal}"
            print(f"{verdict.word.value:{width}} {verdict.ratio:14,.3f}  {name}: {goal}")
            if verdict.text:
                print(f"{'':{width + 17}}{verdict.text}")
            counts[verdict.word.value] += 1
            goals[name][goal] = {
                "ratio": round(verdict.ratio, 4),
                "verdict": verdict.word.value,
                "text": verdict.text,
            }
    print(f"{counts.total()} goals: " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    return {"goals": goals, "counts": dict(counts)}


def main(arguments: Sequence[str] | None = None) -> dict[str, Report]:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench all", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few messages each: says that all runs, not how fast")
    parser.add_argument("--rounds", type=int, help="of each benchmark; each has its own default")
    add_peer_options(parser)
    options = parser.parse_args(arguments)
    reports, arguments_of = {}, {}
    for name, run in BENCHMARKS.items():
        say(f"== {name}")
        chosen = list(SHORT[name]) if options.short else []
        if options.rounds:
            chosen.append(f"--rounds={options.rounds}")
        if name in ("echo", "replay", "start"):
            chosen += [f"--peer={peer}" for peer in options.peer]
            chosen += [f"--aeron-go={options.aeron_go}"] if options.aeron_go else []
        reports[name], arguments_of[name] = run(chosen), chosen
    from_memory = reports["replay"].rows[0].medians
    interpreter_ns = None
    if {"python", "cython"} <= from_memory.keys():
        interpreter_ns = from_memory["python"]["ns"] - from_memory["cython"]["ns"]
    evidence = Evidence(os.cpu_count() or 1, interpreter_mib(), interpreter_ns)
    if not options.short:
        measure_again(reports, evidence, arguments_of)
    if chosen_rows := to_profile(verdicts(reports["echo"].rows, evidence)):
        say("== profile")
        found = profiles(chosen_rows, SHORT["profile"] if options.short else [])
        evidence = replace(evidence, profiles=found)
    shown = show({name: verdicts(report.rows, evidence) for name, report in reports.items()})
    print(f"interpreter: {interpreter()}; bare it has {evidence.interpreter_mib:.1f} MiB of resident memory")
    print(json.dumps({"benchmark": "all", "interpreter_mib": evidence.interpreter_mib, **shown}))
    return reports


if __name__ == "__main__":
    main()
