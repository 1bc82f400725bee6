"""Decoding recorded logs: GB/s and M rows/s beside memcpy, reading the files, and a decoder in plain Python.

Rates are those of one processor: per second of CPU time of this process, so that other load counts little; files are in
the page cache. Then the time and the greatest memory of a process of its own that reads 0.5 to 5 GiB (``--gib``).
The log is written by the test kit in the true format, or with ``--real`` recorded by a node under load, and in both
cases verified by Java's ArchiveTool.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks._harness import Report, RoundFailed, run_rounds
from benchmarks._logs import GIB, MIB, Log, read_all, read_in_process, recorded_log, written_log
from benchmarks._verdicts import Goal, Result
from tests.plain_decoder import session_message_rows

VIEWS = ("frames", "messages", "session_messages")
BLOCK_LENGTH = 256 * 1024
"""Bytes that the decoder reads at once."""
COPY_LENGTH = 64 * MIB
PEAK_MIB = 512
GROWTH = 1.15
"""How much more a byte of the longest log may take than one of the shortest."""


def rates(length: int, rows: int, cpu_s: float, seconds: float) -> Result:
    """The rates of a peer."""
    return {"gb_s": length / cpu_s / 1e9, "m_rows_s": rows / cpu_s / 1e6, "wall_gb_s": length / seconds / 1e9}


def timed(length: int, rows: int, run: Callable[[], int]) -> Result:
    """Rates of a function that returns its rows."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    found = run()
    cpu_s, seconds = time.process_time() - begin_cpu, time.perf_counter() - begin
    if found != rows:
        raise RoundFailed(f"{found} rows instead of {rows}")
    return rates(length, rows, cpu_s, seconds)


def copy_memory(length: int) -> Result:
    """memcpy between buffers that no cache holds."""
    source = np.ones(COPY_LENGTH, np.uint8)
    target = np.ones_like(source)  # its pages are there when the clock starts
    count = max(1, length // COPY_LENGTH)

    def copy() -> int:
        for _ in range(count):
            np.copyto(target, source)
        return 0

    return timed(count * COPY_LENGTH, 0, copy)


def read_files(log: Log) -> int:
    """Read all segments in blocks."""
    block = bytearray(BLOCK_LENGTH)
    for path in log.archive_dir.glob("*.rec"):
        file = os.open(path, os.O_RDONLY)
        try:
            offset = 0
            while count := os.preadv(file, [block], offset):
                offset += count
        finally:
            os.close(file)
    return 0


def decode(log: Log, view: str) -> Result:
    """The native decoder, all columns."""
    found = read_all(log.base_dir, view)
    expected = {"session_messages": log.rows, "messages": log.rows + log.others}.get(view, found["rows"])
    if found["rows"] != expected:
        raise RoundFailed(f"{found['rows']} rows instead of {expected}")
    return rates(log.length, int(found["rows"]), found["cpu_s"], found["seconds"])


def decode_in_python(log: Log) -> Result:
    """The first segment with the plain decoder of the tests: tuples, no columns."""
    length = min(log.segment_length, log.length, 64 * MIB)
    begin, begin_cpu, rows = time.perf_counter(), time.process_time(), 0
    for _row in session_message_rows(log.archive_dir, 0, 0, length, log.segment_length):
        rows += 1
    return rates(length, rows, time.process_time() - begin_cpu, time.perf_counter() - begin)


def grown(log: Log, length: int) -> Result:
    """One read of so many bytes in a process of its own."""
    found = read_in_process(log, "session_messages", length)
    return {
        "seconds": found["seconds"],
        "cpu_s": found["cpu_s"],
        "cpu_s_per_gib": found["cpu_s"] / length * GIB,
        "peak_mib": found["peak_mib"],
    }


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench recordings", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, nargs="+", default=[1.0], help="lengths of log, such as 0.5 1 2.5 5")
    parser.add_argument("--payload", type=int, default=96, help="bytes of a message")
    parser.add_argument("--segment-mib", type=int, default=128, help="length of a segment file")
    parser.add_argument("--dir", type=Path, help="where the log is written (the system's temporary directory)")
    parser.add_argument("--real", action="store_true", help="a log that a node recorded, instead of a written one")
    options = parser.parse_args(arguments)
    made_log = recorded_log if options.real else written_log
    names = {f"{gib:g} GiB": int(gib * GIB) for gib in sorted(options.gib)}
    lengths = list(names.values())
    report = Report(
        "recordings",
        {
            "gb_s": "7.2f",
            "m_rows_s": "7.2f",
            "wall_gb_s": "7.2f",
            "seconds": "7.2f",
            "cpu_s_per_gib": "7.2f",
            "peak_mib": "6.0f",
        },
    )
    with made_log(
        lengths[0], payload_length=options.payload, segment_length=options.segment_mib * MIB, directory=options.dir
    ) as log:
        peers: dict[str, Callable[[], Result]] = {
            "memcpy": partial(copy_memory, log.length),
            "files": partial(timed, log.length, 0, partial(read_files, log)),
            "python": partial(decode_in_python, log),
        }
        peers |= {view: partial(decode, log, view) for view in VIEWS}
        results, report.failures = run_rounds(peers, options.rounds, options.seed)
        goals = [Goal("session_messages", "m_rows_s", ("python",), at_least=1.0)]
        report.add(f"{log.length / GIB:.2f} GiB, {log.rows:,} messages of {options.payload} B", results, goals)
    with made_log(
        lengths[-1], payload_length=options.payload, segment_length=options.segment_mib * MIB, directory=options.dir
    ) as log:
        peers = {name: partial(grown, log, length) for name, length in names.items()}
        results, failures = run_rounds(peers, max(1, options.rounds // 2), options.seed)
        report.failures |= failures
        goals = [Goal(name, "peak_mib", at_most=PEAK_MIB) for name in names]
        if len(names) > 1:
            goals.append(Goal(list(names)[-1], "cpu_s_per_gib", (next(iter(names)),), at_most=GROWTH))
        report.add("a process of its own", results, goals)
    return report.finish()


if __name__ == "__main__":
    main()
