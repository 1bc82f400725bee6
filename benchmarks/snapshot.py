"""Snapshots: a state of 1 GiB in messages of 1 KiB and of 1 MiB, taken by and loaded from a real node's archive.

MB/s (10**6 bytes of state in a second) as the service sees it, and the longest stall: how long the container was busy
with the snapshot, the archive's recording included, as its own counter says. The services do the same: they make each
message as it is taken, check its length and its number when it is loaded, and keep none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from benchmarks._harness import ROOT, Report, RoundFailed, run_rounds
from benchmarks._peers import (
    IDLES,
    LIMIT_S,
    STANDARD_IDLE,
    Start,
    cython_service,
    java_service,
    python_service,
    running,
)
from benchmarks._verdicts import Goal, Result
from container.common.aeron_defaults import CounterType
from container.testing.processes.node import Node
from container.testing.processes.process import Process

LENGTHS = (1024, 1024 * 1024)
# The container's counter of the longest snapshot, in nanoseconds.
MAX_SNAPSHOT_DURATION = 236


def peers(length: int, count: int) -> dict[str, Start]:
    """The same service three times."""
    variables = {"SNAPSHOT_LENGTH": str(length), "SNAPSHOT_COUNT": str(count)}
    java = java_service("container.benchmarks.SnapshotService", variables)
    return {
        "java": java,
        "python": python_service("benchmarks._snapshot_service:SnapshotService", variables),
        "cython": cython_service(ROOT / "benchmarks" / "cython_snapshot.pyx", "SnapshotHandler", variables),
    }


def said(service: Process, word: str) -> float:
    """The seconds that the service printed behind a word."""
    for line in service.output().splitlines():
        if line.startswith(f"{word} "):
            return float(line.split()[1])
    raise RoundFailed(f"the service did not say how long it had {word}\n{service.tail()}")


def take_and_load(start: Start, size: int) -> Result:
    """One snapshot, then a restart with it."""
    with running(start, STANDARD_IDLE, {"aeron.archive.segment.file.length": "128m"}) as (node, service):
        node.take_snapshot(limit_s=5 * LIMIT_S)
        stall_s = _stall_ns(node) / 1e9
        taken_s = said(service, "taken")
        service.kill()
        node.kill()
        node.release_mark_files()
        node.start().await_started(LIMIT_S)
        node.wait_until(lambda: node.counter(CounterType.RECOVERY_STATE), LIMIT_S, "the recovery state counter")
        service = start(node, IDLES[STANDARD_IDLE])
        node.await_leader(5 * LIMIT_S)
        loaded_s = said(service, "loaded")
    return {"taken_mb_s": size / taken_s / 1e6, "loaded_mb_s": size / loaded_s / 1e6, "stall_s": stall_s}


def _stall_ns(node: Node) -> int:
    found = [counter.value for counter in node.counters() if counter.type_id == MAX_SNAPSHOT_DURATION]
    if not found:
        raise RoundFailed("the container has no counter of its longest snapshot")
    return max(found)


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench snapshot", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mib", type=int, default=1024, help="length of the state")
    parser.add_argument("--only", default="", help="rows whose name contains this, such as '1024 B'")
    options = parser.parse_args(arguments)
    report = Report("snapshot", {"taken_mb_s": "9,.1f", "loaded_mb_s": "9,.1f", "stall_s": "7.3f"})
    size = options.mib * 2**20
    for length in LENGTHS:
        # A message of 1 MiB with its frame header would be longer than an eighth of a term of 8 MiB.
        length -= 64 if length == LENGTHS[-1] else 0
        name_of_row = f"{options.mib} MiB in messages of {length} B"
        if options.only not in name_of_row:
            continue
        results, failures = run_rounds(
            {
                name: partial(take_and_load, start, size // length * length)
                for name, start in peers(length, size // length).items()
            },
            options.rounds,
            options.seed,
        )
        for name, texts in failures.items():
            report.failures.setdefault(name, []).extend(texts)
        goals = [
            goal
            for name in ("python", "cython")
            for goal in (
                Goal(name, "taken_mb_s", ("java",), at_least=1.0),
                Goal(name, "loaded_mb_s", ("java",), at_least=1.0),
                Goal(name, "stall_s", ("java",), at_most=1.0),
            )
        ]
        report.add(name_of_row, results, goals)
    return report.finish()


if __name__ == "__main__":
    main()
