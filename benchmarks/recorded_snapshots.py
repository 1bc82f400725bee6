"""Reading many snapshots: time per snapshot of the view, of a replay's plan, and in Spark of view, replay and audit.

A snapshot is one of the consensus module and one of a service, each a recording with a segment file of 64 KiB. Beside
them Spark's own scan of the same files (``binaryFile``). Time per snapshot must not grow with their number, nor
memory beyond its limit. In Spark it is local[2]; rows are thrown away (``noop``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks._harness import ROOT, Report, RoundFailed, peak_mib, run_rounds, say
from benchmarks._verdicts import Goal, Result
from benchmarks.spark_source import descendants_cpu_s, workers_peak_mib
from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)
from container.codecs.messages import encode
from container.pipeline.audit import audit
from container.pipeline.replay import replay
from container.recordings import RecordingDescriptor, RecordingLogEntry, open_member
from container.replay.execution import plan_replay
from container.spark import FORMAT, open_session
from container.spark.options import SourceOptions
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog, write_recording_log
from tests.recordings_world import entry, marker, new_term

STATE = [bytes(index % 251 for index in range(2048))] * 20
LENGTH = 64 * 1024
PEAK_MIB = 512
GROWTH = 1.3
"""How much more processor time a snapshot of the most may take than one of the fewest."""
METRICS = {"seconds": "8.2f", "us_per_snapshot": "8.0f", "cpu_us_per_snapshot": "8.0f", "peak_mib": "6.0f"}
SERVICE = "benchmarks.recorded_snapshots:Keeper"


class Keeper(ClusteredService):
    """Has the state that is recorded, and keeps it."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.state = STATE if snapshot_image is None else [bytes(message) for message in snapshot_image]

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Nothing."""

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        for message in self.state:
            snapshot_publication.send(message)


def write_member(base_dir: Path, count: int) -> None:
    """A member with an expired timer between snapshots; all are closed and committed."""
    archive_dir, cluster_dir = base_dir / "archive", base_dir / "cluster"
    archive_dir.mkdir(parents=True)
    cluster_dir.mkdir()
    log = RecordingWriter(archive_dir, term_length=1024 * LENGTH, segment_length=1024 * LENGTH)
    log.append(new_term(0, 0))
    snapshots: list[RecordingDescriptor] = []
    entries: list[RecordingLogEntry] = []
    for number in range(count):
        log.append(encode("cluster", "TimerEvent", leadership_term_id=0, correlation_id=number, timestamp=number))
        for service_id in (0, -1):
            recording_id = len(snapshots) + 1
            writer = RecordingWriter(
                archive_dir,
                recording_id=recording_id,
                stream_id=106 + (service_id < 0),
                term_length=LENGTH,
                segment_length=LENGTH,
            )
            for mark in (0, 2):
                writer.append(marker(mark, type_id=2 - (service_id < 0), position=log.position))
            for message in STATE if service_id == 0 else []:
                writer.append(message)
            writer.flush()
            writer.close()
            snapshots.append(descriptor_of(writer))
            place = {"log_position": log.position, "service_id": service_id, "entry_type": 1, "timestamp": number}
            entries.append(entry(recording_id, recording_id, **place))
    log.flush()
    log.close()
    write_catalog(archive_dir, [descriptor_of(log), *snapshots])
    write_recording_log(cluster_dir, [replace(entry(0, 0), log_position=log.position), *entries])


def timed(count: int, run: Callable[[], float]) -> Result:
    """Time in all and per snapshot, and the greatest memory, which the function returns in MiB."""
    begin, begin_cpu = time.perf_counter(), cpu_s()
    peak = run()
    return result(time.perf_counter() - begin, cpu_s() - begin_cpu, count, peak)


def result(seconds: float, cpu: float, count: int, peak: float) -> Result:
    """Time in all, and processor time of a snapshot, in which other load counts little."""
    return {
        "seconds": seconds,
        "us_per_snapshot": seconds / count * 1e6,
        "cpu_us_per_snapshot": cpu / count * 1e6,
        "peak_mib": peak,
    }


def cpu_s() -> float:
    """Processor time of this process, the JVM and the workers."""
    return time.process_time() + descendants_cpu_s()


def view(base_dir: Path, count: int) -> Result:
    """The view ``snapshots`` in a process of its own, without Spark; the time is that of reading."""
    command = [sys.executable, "-m", "benchmarks._logs", str(base_dir), "snapshots"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RoundFailed(done.stderr)
    found: Result = json.loads(done.stdout)
    expected = count * (len(STATE) + 2 * 3)
    if found["rows"] != expected:
        raise RoundFailed(f"{found['rows']} rows instead of {expected}")
    return result(found["seconds"], found["cpu_s"], count, found["peak_mib"])


def planned(base_dir: Path, count: int) -> Result:
    """The plan of a replay, which the driver makes."""

    def run() -> float:
        if len(plan_replay(open_member(base_dir))) != count:
            raise RoundFailed("not a segment for each snapshot")
        return peak_mib(os.getpid())

    return timed(count, run)


def scan(spark: SparkSession, base_dir: Path) -> DataFrame:
    """The bytes of all segment files, as Spark itself reads them."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.rec").load(str(base_dir / "archive"))
    return files.select(f.crc32("content"))


def view_in_spark(spark: SparkSession, base_dir: Path) -> DataFrame:
    """The view ``snapshots``."""
    return spark.read.format(FORMAT).option("view", "snapshots").load(str(base_dir))


def in_spark(table: Callable[[], DataFrame], count: int) -> Result:
    """All rows of a table."""

    def run() -> float:
        table().write.format("noop").mode("overwrite").save()
        return workers_peak_mib()

    return timed(count, run)


def audited(spark: SparkSession, options: SourceOptions, count: int) -> Result:
    """An audit of the member alone."""

    def run() -> float:
        report = audit(spark, options)
        if report.verdict == "fail":
            raise RoundFailed("; ".join(f"{check.name}: {check.state}" for check in report.checks))
        return workers_peak_mib()

    return timed(count, run)


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench recorded_snapshots", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, nargs="+", default=[1000, 3000, 10_000], help="how many snapshots")
    parser.add_argument("--dir", type=Path, help="where they are written (the system's temporary directory)")
    options = parser.parse_args(arguments)
    settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    spark = open_session("benchmark", master="local[2]", settings=settings)
    with tempfile.TemporaryDirectory(prefix="snapshots-", dir=options.dir) as path:
        report = compare(spark, Path(path), sorted(options.count), options.rounds, options.seed)
    spark.stop()
    return report.finish()


def compare(spark: SparkSession, directory: Path, counts: Sequence[int], rounds: int, seed: int) -> Report:
    """A row of the report for each way to read, with a peer for each number of snapshots."""
    report = Report("recorded_snapshots", METRICS)
    kinds: dict[str, dict[str, Callable[[], Result]]] = {}
    for count in counts:
        base_dir = directory / str(count)
        write_member(base_dir, count)
        say(f"wrote {count:,} snapshots")
        source = SourceOptions((str(base_dir),))
        ways: dict[str, Callable[[], Result]] = {
            "view": partial(view, base_dir, count),
            "plan of a replay": partial(planned, base_dir, count),
            "Spark's own scan": partial(in_spark, partial(scan, spark, base_dir), count),
            "view in Spark": partial(in_spark, partial(view_in_spark, spark, base_dir), count),
            "replay in Spark": partial(in_spark, partial(replay, spark, source, SERVICE), count),
            "audit in Spark": partial(audited, spark, source, count),
        }
        for name, way in ways.items():
            kinds.setdefault(name, {})[f"{count:,}"] = way
    for name, peers in kinds.items():
        next(iter(peers.values()))()  # the JVM, the workers and the page cache warm up
        results, failures = run_rounds(peers, rounds, seed)
        report.failures |= {f"{name} {peer}": texts for peer, texts in failures.items()}
        first, *_, last = peers
        goals = [Goal(last, "peak_mib", at_most=PEAK_MIB)]
        if name != "Spark's own scan":
            goals.append(Goal(last, "cpu_us_per_snapshot", (first,), at_most=GROWTH))
        report.add(name, results, goals)
    return report


if __name__ == "__main__":
    main()
