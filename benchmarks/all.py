"""All benchmarks of the container, one after the other, and at the end the verdict on every goal in one table.

A goal is ahead, level or behind by the interval of its ratio over the rounds (benchmarks/_verdicts.py).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence

from benchmarks import archive, codecs, echo, replay, sessions_and_timers, snapshot, start
from benchmarks._harness import Report, interpreter, say, tally
from benchmarks._peers import add_peer_options
from benchmarks._verdicts import Word

BENCHMARKS: dict[str, Callable[[Sequence[str]], Report]] = {
    "codecs": codecs.main,
    "sessions_and_timers": sessions_and_timers.main,
    "start": start.main,
    "echo": echo.main,
    "replay": replay.main,
    "snapshot": snapshot.main,
    "archive": archive.main,
}
# Tiny: to see that everything runs, not to learn how fast.
SHORT = {
    "codecs": ["--rounds=1", "--messages=10000"],
    "sessions_and_timers": ["--rounds=1", "--messages=2000", "--most-sessions=100", "--most-timers=1000"],
    "start": ["--rounds=1"],
    "echo": ["--rounds=1", "--messages=2000", "--warm-up=1000", "--repeats=1"],
    "replay": ["--rounds=1", "--memory-messages=10000", "--messages=5000"],
    "snapshot": ["--rounds=1", "--mib=4"],
    "archive": archive.SHORT,
}


def show(reports: Mapping[str, Report]) -> dict[str, int]:
    """Print the verdicts on all goals as one table, with the count of each word; return the counts."""
    judged = [
        (name, row, verdict) for name, report in reports.items() for row in report.rows for verdict in row.verdicts()
    ]
    print()
    for name, row, verdict in judged:
        print(f"{verdict}  [{name}: {row.name}]")
    print(tally([verdict for _, _, verdict in judged]))
    return {word.value: sum(verdict.word is word for _, _, verdict in judged) for word in Word}


def main(arguments: Sequence[str] | None = None) -> dict[str, Report]:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench all", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few messages each: says that all runs, not how fast")
    parser.add_argument("--rounds", type=int, help="of each benchmark; each has its own default")
    add_peer_options(parser)
    options = parser.parse_args(arguments)
    reports = {}
    for name, run in BENCHMARKS.items():
        say(f"== {name}")
        chosen = list(SHORT[name]) if options.short else []
        if options.rounds:
            chosen.append(f"--rounds={options.rounds}")
        if name in ("echo", "replay", "start"):
            chosen += [f"--peer={peer}" for peer in options.peer]
            chosen += [f"--aeron-go={options.aeron_go}"] if options.aeron_go else []
        reports[name] = run(chosen)
    counts = show(reports)
    print(f"interpreter: {interpreter()}")
    goals = {name: report.as_json()["goals"] for name, report in reports.items()}
    print(json.dumps({"benchmark": "all", "goals": goals, "counts": counts}))
    return reports


if __name__ == "__main__":
    main()
