"""Reading the last hour of a long log: bytes that are really read, beside all of it and the same rows by position.

The log is 20 hours of cluster time long. Bytes are those of this process's reads by ``/proc/self/io`` (``rchar``), from
the page cache or not, with the plan's look at the first message of each segment file. The rows are read without Spark,
by the code that its tasks run.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks._harness import Report, RoundFailed, run_rounds
from benchmarks._logs import GIB, MIB, Log, written_log
from benchmarks._verdicts import Goal, Result
from container.recordings import Filters, read

HOUR_MS = 3_600_000
GOAL = 1.35
"""Share of the bytes by position: a segment file more, and two minutes of room for clocks."""


def bytes_read() -> int:
    """How many bytes this process has read."""
    found = re.search(r"rchar: ([0-9]+)", Path("/proc/self/io").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


def measure(log: Log, filters: Filters, expected: int | None) -> Result:
    """Read the rows that pass."""
    begin, before, rows = time.perf_counter(), bytes_read(), 0
    for batch in read(log.base_dir, "session_messages", filters=filters, columns=["timestamp", "payload"]):
        rows += batch.num_rows
    if expected is not None and rows != expected:
        raise RoundFailed(f"{rows} rows instead of {expected}")
    length = bytes_read() - before
    return {"seconds": time.perf_counter() - begin, "mib_read": length / MIB, "m_rows": rows / 1e6}


def place_of(log: Log, timestamp: int) -> tuple[int, int]:
    """Where the first message of a time begins, and how many there are from there on."""
    position, rows = None, 0
    wanted = Filters(begin_timestamp=timestamp)
    for batch in read(log.base_dir, "session_messages", filters=wanted, columns=["begin_position"]):
        position = batch.column(0)[0].as_py() if position is None else position
        rows += batch.num_rows
    if position is None:
        raise SystemExit(f"the log has no message from {timestamp} on: make it longer with --gib")
    return position, rows


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench time_pruning", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, default=10.0, help="length of the log")
    parser.add_argument("--payload", type=int, default=96, help="bytes of a message")
    parser.add_argument("--segment-mib", type=int, default=128, help="length of a segment file")
    parser.add_argument("--dir", type=Path, help="where the log is written (the system's temporary directory)")
    options = parser.parse_args(arguments)
    report = Report("time_pruning", {"seconds": "7.2f", "mib_read": "8.1f", "m_rows": "7.2f"})
    with written_log(
        int(options.gib * GIB) & -32,
        payload_length=options.payload,
        segment_length=options.segment_mib * MIB,
        directory=options.dir,
    ) as log:
        last = int(log.rows / 20 * 19)
        position, rows = place_of(log, last)
        peers = {
            "the last hour": partial(measure, log, Filters(begin_timestamp=last), rows),
            "the same by position": partial(measure, log, Filters(begin_position=position, is_border=True), rows),
            "all": partial(measure, log, Filters(), log.rows),
        }
        results, report.failures = run_rounds(peers, options.rounds, options.seed)
        goals = [
            Goal("the last hour", "mib_read", ("the same by position",), at_most=GOAL),
            Goal("the last hour", "seconds", ("all",), at_most=0.1),
        ]
        report.add(f"{log.length / GIB:.1f} GiB, {log.rows:,} messages", results, goals)
    return report.finish()


if __name__ == "__main__":
    main()
