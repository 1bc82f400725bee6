"""All benchmarks of the container, one after the other, and at the end every goal with its ratio in one table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import codecs, echo, replay, sessions_and_timers, snapshot, start
from benchmarks._harness import say
from benchmarks._peers import add_peer_options

BENCHMARKS: dict[str, Callable[[Sequence[str]], dict[str, Any]]] = {
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
    "echo": ["--rounds=1", "--messages=2000", "--warm-up=1000"],
    "replay": ["--rounds=1", "--memory-messages=10000", "--messages=5000"],
    "snapshot": ["--rounds=1", "--mib=4"],
}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench all", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few messages each: says that all runs, not how fast")
    parser.add_argument("--rounds", type=int, help="of each benchmark; each has its own default")
    add_peer_options(parser)
    options = parser.parse_args(arguments)
    found = {}
    for name, run in BENCHMARKS.items():
        say(f"== {name}")
        chosen = list(SHORT[name]) if options.short else []
        if options.rounds:
            chosen.append(f"--rounds={options.rounds}")
        if name in ("echo", "replay", "start"):
            chosen += [f"--peer={peer}" for peer in options.peer]
            chosen += [f"--aeron-go={options.aeron_go}"] if options.aeron_go else []
        found[name] = run(chosen)
    print()
    for name, result in found.items():
        for goal, reached in result["goals"].items():
            print(f"{'met   ' if reached['met'] else 'MISSED'} {reached['ratio']:14,.3f}  {name}: {goal}")
    print(json.dumps({"benchmark": "all", "goals": {name: result["goals"] for name, result in found.items()}}))
    return found


if __name__ == "__main__":
    main()
