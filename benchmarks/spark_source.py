"""The Spark source: rows/s beside the best that a Python source can reach, one that yields ready-made Arrow batches.

All sources have the same schema, rows and partitions, in one session with local[2]; Spark throws the rows away (its
``noop`` sink). The ready-made batch is one that the decoder made, and is yielded again and again, in batches of the
source's length and shorter ones. Processor time is that of the JVM and of all Python workers, memory the greatest that
any worker had. The log is that of ``./run bench recordings``.
"""

from __future__ import annotations

import argparse
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks._harness import ROOT, Report, RoundFailed, peak_mib, run_rounds
from benchmarks._logs import GIB, MIB, Log, written_log
from benchmarks._verdicts import Goal, Result
from container.recordings import open_members, plan
from container.recordings.partitions import read_partition
from container.sbe.decoder import SbeDecoder
from container.sbe.schema import read_schema
from container.spark import FORMAT, open_session
from container.spark.options import DEFAULT_BATCH_ROWS, SourceOptions
from container.spark.payloads import PayloadDecoder, RowDecoder
from container.spark.source import arrow_schema, spark_schema

VIEWS = ("session_messages", "messages")
GOAL = 0.70
PEAK_MIB = 512
READY = "ready"
READY_ROWS = (DEFAULT_BATCH_ROWS, 16_384)
WORKER = b"pyspark.daemon"
SBE_SCHEMA = ROOT / "tests" / "schemas" / "orders.xml"
SBE_BATCHES = 10
SBE_GOAL = 3.0
"""Million rows a second of one core."""


PAYLOADS_GOAL = 2.0
"""Times as many rows a second as row by row."""


class Order(msgspec.Struct):
    """A payload of ten fields."""

    order_id: int
    account: str
    price: float
    symbol: str
    quantity: int
    open: bool
    venue: str
    sequence: int
    note: str | None
    limit: float | None


class ReadySource(DataSource):
    """The batch in the file of the option ``batch``, so often that each partition has its rows."""

    @classmethod
    def name(cls) -> str:
        return READY

    def schema(self) -> StructType:
        return spark_schema(arrow_schema(SourceOptions(("unused",), view=self.options["view"])))

    def reader(self, schema: StructType) -> ReadyReader:
        rows = [int(count) for count in self.options["rows"].split(",")]
        return ReadyReader(self.options["batch"], rows)


class ReadyReader(DataSourceReader):
    """Reads the file once in each partition, and decodes nothing."""

    def __init__(self, path: str, rows: Sequence[int]) -> None:
        self._path = path
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(count) for count in self._rows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self._path) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def make_ready(log: Log, view: str, batch_rows: int) -> dict[str, str]:
    """Write the first batch of a view to a file; returns the options that the source needs."""
    partitions = plan(open_members(log.base_dir), view)
    batch = next(read_partition(partitions[0], batch_rows=batch_rows, member_column=True))
    path = log.base_dir / f"{view}-{batch_rows}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)
    rows = [sum(one.num_rows for one in read_partition(part, columns=["log_position"])) for part in partitions]
    return {"batch": str(path), "rows": ",".join(map(str, rows)), "view": view}


def measure(spark: SparkSession, source: str, options: dict[str, str], rows: int, length: int) -> Result:
    """One query over all rows."""
    begin, begin_cpu = time.perf_counter(), descendants_cpu_s()
    spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()
    seconds, cpu_s = time.perf_counter() - begin, descendants_cpu_s() - begin_cpu
    return {
        "m_rows_s": rows / seconds / 1e6,
        "mb_s": length / seconds / 1e6,
        "cpu_us_per_row": cpu_s / rows * 1e6,
        "peak_mib": workers_peak_mib(),
    }


def descendants_cpu_s() -> float:
    """Processor time of Spark's processes so far, those and threads that have ended among them: it never decreases."""
    ticks = sum(_ticks(os.getpid())[2:])
    for pid in descendants():
        with suppress(OSError):  # it has ended
            ticks += sum(_ticks(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> list[int]:
    """Time of a process, its user's and the system's, and of its children that have ended (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return [int(text) for text in fields[11:15]]


def workers_peak_mib() -> float:
    """The greatest memory of any Python worker of this process's Spark."""
    return max(peak_mib(pid) for pid in descendants() if WORKER in Path(f"/proc/{pid}/cmdline").read_bytes())


def descendants() -> list[int]:
    """Spark's processes: the JVM and the workers, which live as long as the session."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parents[int(path.parent.name)] = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def compare(spark: SparkSession, log: Log, view: str, options: argparse.Namespace, report: Report) -> None:
    """One row of the report."""
    ours = {"path": str(log.base_dir), "view": view}
    ready = {f"ready {rows}": make_ready(log, view, rows) for rows in READY_ROWS}
    rows = [int(count) for count in ready[f"ready {READY_ROWS[0]}"]["rows"].split(",")]
    total = sum(rows)
    if spark.read.format(FORMAT).options(**ours).load().count() != total:
        raise RoundFailed(f"view {view} has not the {total} rows that were read without Spark")
    peers = {"source": partial(measure, spark, FORMAT, ours, total, log.length)}
    peers |= {name: partial(measure, spark, READY, chosen, total, log.length) for name, chosen in ready.items()}
    for peer in peers.values():  # the JVM and the workers warm up
        peer()
    results, report.failures = run_rounds(peers, options.rounds, options.seed)
    goals = [
        Goal("source", "m_rows_s", tuple(ready), at_least=GOAL),
        Goal("source", "cpu_us_per_row", tuple(ready), at_most=1 / GOAL),
        Goal("source", "peak_mib", at_most=PEAK_MIB),
    ]
    text = f"{view}, {log.length / GIB:.2f} GiB, {total:,} rows, {len(rows)} partitions"
    report.add(text, results, goals)


def decode_sbe(decoder: SbeDecoder, payloads: pa.Array) -> Result:
    """Decode a batch a few times; the rate is of processor time of one core."""
    begin = time.process_time()
    for _ in range(SBE_BATCHES):
        decoder.decode(payloads)
    seconds = time.process_time() - begin
    rows = SBE_BATCHES * len(payloads)
    return {"m_rows_s": rows / seconds / 1e6, "mb_s": SBE_BATCHES * payloads.nbytes / seconds / 1e6}


def compare_sbe(options: argparse.Namespace, report: Report) -> None:
    """The row of the report for SBE payloads: twelve fields, and the same with two entries of a group with texts."""
    schema = read_schema(str(SBE_SCHEMA))
    decoder = SbeDecoder(schema, "NewOrder")
    order = struct.Struct("<HHHHQ8scBqq3HdI")
    head = order.pack(order.size - 8, 1, schema.schema_id, 2, 7, b"EURUSD", b"B", 1, 10_850, 10_800, 1, 2, 3, 0.5, 9)
    leg = struct.pack("<iHHH", 5, 1, 0, 3) + b"leg"
    tail = struct.pack("<H", 4) + b"note" + struct.pack("<I", 0)
    payloads = {
        "12 fields": head + struct.pack("<HH", 4, 0) + tail,
        "with 2 legs": head + struct.pack("<HH", 4, 2) + leg * 2 + tail,
    }
    peers = {}
    for name, payload in payloads.items():
        batch = pa.array([payload] * DEFAULT_BATCH_ROWS, pa.binary())
        if decoder.decode(batch)[1]:
            raise RoundFailed(f"the payloads {name!r} do not decode")
        peers[name] = partial(decode_sbe, decoder, batch)
    results, report.failures = run_rounds(peers, options.rounds, options.seed)
    goals = [Goal("12 fields", "m_rows_s", at_least=SBE_GOAL)]
    report.add(f"SBE decoding without Spark, batches of {DEFAULT_BATCH_ROWS:,}", results, goals)


def decode_payloads(decode: Callable[[pa.Array], object], payloads: pa.Array) -> Result:
    """Decode a batch; the rate is of processor time of one core."""
    begin = time.process_time()
    decode(payloads)
    seconds = time.process_time() - begin
    return {"m_rows_s": len(payloads) / seconds / 1e6, "mb_s": payloads.nbytes / seconds / 1e6}


def compare_payloads(options: argparse.Namespace, report: Report) -> None:
    """The row of the report for payloads of a Struct: a batch by one call, and row by row."""
    decoder = PayloadDecoder("benchmarks.spark_source:Order", ())
    peers = {}
    for name, encode in (("JSON", msgspec.json.encode), ("MessagePack", msgspec.msgpack.encode)):
        orders = (
            Order(row, "account-7", row / 8, "EURUSD", 100, row % 2 == 0, "XLON", row * 3, None, 1.5)
            for row in range(DEFAULT_BATCH_ROWS)
        )
        batch = pa.array(map(encode, orders), pa.binary())
        if decoder.decode(batch)[-1].null_count != len(batch):
            raise RoundFailed(f"the payloads {name!r} do not decode")
        peers[name] = partial(decode_payloads, decoder.decode, batch)
        peers[f"{name}, row by row"] = partial(decode_payloads, partial(RowDecoder.decode, decoder), batch)
    results, report.failures = run_rounds(peers, options.rounds, options.seed)
    goals = [
        Goal(name, "m_rows_s", (f"{name}, row by row",), at_least=PAYLOADS_GOAL) for name in ("JSON", "MessagePack")
    ]
    report.add(f"payloads of 10 fields without Spark, batches of {DEFAULT_BATCH_ROWS:,}", results, goals)


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench spark_source", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, default=1.0, help="length of the log")
    parser.add_argument("--payload", type=int, default=96, help="bytes of a message")
    parser.add_argument("--segment-mib", type=int, default=128, help="length of a segment file")
    parser.add_argument("--views", nargs="*", default=list(VIEWS))
    parser.add_argument("--dir", type=Path, help="where the log is written (the system's temporary directory)")
    options = parser.parse_args(arguments)
    report = Report("spark_source", {"m_rows_s": "7.2f", "mb_s": "7.0f", "cpu_us_per_row": "7.3f", "peak_mib": "6.0f"})
    compare_sbe(options, report)
    compare_payloads(options, report)
    settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    spark = open_session("benchmark", master="local[2]", settings=settings)
    spark.dataSource.register(ReadySource)
    length = int(options.gib * GIB) & -32
    segment_length = options.segment_mib * MIB
    with written_log(
        length, payload_length=options.payload, segment_length=segment_length, directory=options.dir
    ) as log:
        for view in options.views:
            compare(spark, log, view, options, report)
    spark.stop()
    return report.finish()


if __name__ == "__main__":
    main()
