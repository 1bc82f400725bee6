"""Checks whether what clients saw is linearizable, with Porcupine::

./run linearizable                         # three native members with clients, whose leaders are killed
./run linearizable --members 1 --kills 10  # a node that is killed ten times and started again
./run linearizable --simulated 500         # clients of so many simulated nodes
./run linearizable --clusters 100          # clients of so many simulated clusters of such nodes
./run linearizable history.jsonl           # files, by the format of tests/linearizable/history.py

The exit status is 0 for linearizable, 1 for illegal, 3 where there was no verdict in time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.linearizable import checker, real, simulated
from tests.linearizable.history import History

_SEVERITY: dict[str, int] = {"ok": 0, "unknown": 3, "illegal": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Record a history, or take files; check, and print what came of it; the exit status."""
    parser = argparse.ArgumentParser(
        prog="./run linearizable", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="histories to check")
    parser.add_argument("--members", type=int, choices=(1, 3, 5), default=3, help="of a real cluster (default 3)")
    parser.add_argument("--kills", type=int, default=3, help="of its leaders (default 3)")
    parser.add_argument("--simulated", type=int, metavar="N", help="record N simulated nodes instead")
    parser.add_argument("--clusters", type=int, metavar="N", help="record N simulated clusters of nodes instead")
    parser.add_argument("--seed", type=int, default=1, help="of clients, or of the first simulated node (default 1)")
    parser.add_argument("--limit", type=float, default=checker.LIMIT_S, help="seconds for a verdict (default 60)")
    parser.add_argument("--lines", type=int, default=40, help="most operations to show of an illegal history")
    options = parser.parse_args(arguments)
    try:
        checker.build()
        files = options.files or [record(options)]
        verdicts = [checker.check(path, limit_s=options.limit, lines=options.lines) for path in files]
    except (checker.NoCheckerError, ValueError) as error:
        print(f"linearizable: {error}", file=sys.stderr)
        return 2
    for path, verdict in zip(files, verdicts, strict=True):
        print(f"{path}: {verdict.text}")
    outcomes = {verdict.outcome for verdict in verdicts}
    return next(_SEVERITY[outcome] for outcome in ("illegal", "unknown", "ok") if outcome in outcomes)


def record(options: argparse.Namespace) -> Path:
    """Record a history, and return its file."""
    if options.simulated is not None or options.clusters is not None:
        word, run, count = "simulated", simulated.record, options.simulated
        if options.clusters is not None:
            word, run, count = "clusters", simulated.record_cluster, options.clusters
        history, path = History(), checker.BUILD / f"{word}-{options.seed}.jsonl"
        for seed in range(options.seed, options.seed + count):
            recorded = run(seed)
            if recorded is not None:
                history.extend(recorded)
    else:
        begin, path = time.monotonic(), checker.BUILD / f"members-{options.members}-{options.seed}.jsonl"

        def say(text: str) -> None:
            print(f"[{time.monotonic() - begin:6.1f} s] {text}", flush=True)

        history = real.record(options.members, kills=options.kills, seed=options.seed, say=say)
    history.write(path)
    return path


if __name__ == "__main__":
    sys.exit(main())
