"""Audit, replay and diff of long logs in Spark: processor time per GiB of log, and memory, beside Spark's own scan.

The longest log is written by the test kit in the true format and verified by Java's ArchiveTool; the shorter ones are
its first segments. Sessions are opened, and a snapshot of a service that counts is recorded again and again, so that
replays begin there and compare their state. The audit has two members; the second one's files are links to those of
the first. The service answers each message; the one that it is compared with answers one in a million otherwise. In
Spark it is local[2]; rows are thrown away (``noop``). Spark's own scan (``binaryFile``) computes a CRC-32 of each
segment of one member; it takes a file at once, for which its usual heap of 1 GiB is too small.

Processor time is that of the JVM, the driver and all Python workers, in which other load counts little. Time per GiB
must not grow with the log, nor memory beyond its limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks._harness import Report, RoundFailed, peak_mib, run_rounds, say
from benchmarks._logs import GIB, MIB, TERM_LENGTH, Log, verify
from benchmarks._verdicts import Goal, Result
from benchmarks.spark_source import WORKER, descendants
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
from container.pipeline.replay import diff, replay
from container.recordings import RecordingDescriptor
from container.spark import FORMAT, open_session
from container.spark.options import SourceOptions
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog, write_recording_log
from tests.recordings_world import CHANNEL, archive_mark, entry, marker, new_term

SESSIONS = range(1, 101)
_CLIENT: dict[str, Any] = {"response_stream_id": 102, "response_channel": CHANNEL, "encoded_principal": b"client"}
REQUEST_LENGTH = 96
"""Bytes of log of a request for a snapshot."""
CHUNK = 10_000
SNAPSHOT_LENGTH = 64 * 1024
STATE = struct.Struct("<q")
ROOM = 2 * GIB
"""Bytes that must stay free on the disk."""
HEAP = "3g"
PEAK_MIB = 512
GROWTH = 1.15
"""How much more processor time a GiB of the longest log may take than one of the shortest."""
METRICS = {
    "seconds": "8.1f",
    "cpu_s": "8.1f",
    "cpu_s_per_gib": "7.2f",
    "driver_mib": "6.0f",
    "jvm_mib": "6.0f",
    "worker_mib": "6.0f",
}
MEMBERS = 2
_INTERVAL_S = 0.2
_HERTZ = os.sysconf("SC_CLK_TCK")


class Counter(ClusteredService):
    """Counts messages, and answers each with the count."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.count = 0
        if snapshot_image is not None:
            (state,) = snapshot_image
            (self.count,) = STATE.unpack(state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.count += 1
        if session is not None:
            session.send(self.answer())

    def answer(self) -> bytes:
        """The answer to a client."""
        return STATE.pack(self.count)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(STATE.pack(self.count))


class OtherCounter(Counter):
    """Answers one message in a million otherwise."""

    def answer(self) -> bytes:
        return STATE.pack(-self.count if self.count % 1_000_000 == 0 else self.count)


SERVICE, OTHER_SERVICE = (f"benchmarks.recorded_logs:{one.__name__}" for one in (Counter, OtherCounter))


class Snapshot(NamedTuple):
    """Where a snapshot is in the log, and its recordings: of the consensus module and of the service."""

    position: int
    timestamp: int
    recordings: tuple[RecordingDescriptor, RecordingDescriptor]


class LogWriter:
    """Writes a log with snapshots into an archive; parts of it can then be had as members of their own."""

    def __init__(self, archive_dir: Path, payload_length: int, segment_length: int) -> None:
        archive_dir.mkdir(parents=True)
        self.archive_dir = archive_dir
        self.payload_length = payload_length
        term_length = min(TERM_LENGTH, segment_length)
        self.log = RecordingWriter(archive_dir, term_length=term_length, segment_length=segment_length)
        self.snapshots: list[Snapshot] = []
        self.opened: dict[int, int] = {}
        self.count = 0
        self.now = 0

    def write(self, length: int, snapshot_interval: int) -> None:
        """Write a log that ends where a segment does, with a snapshot each time that it has grown so much."""
        self.log.append(new_term(0, 0))
        for session_id in SESSIONS:
            self._log("SessionOpenEvent", cluster_session_id=session_id, correlation_id=session_id, **_CLIENT)
            self.opened[session_id] = self.log.position
        message_length = self.payload_length + 128
        while self.log.position < length - CHUNK * message_length:
            self._append(CHUNK)
            if self.log.position >= snapshot_interval * (len(self.snapshots) + 1):
                self._take_snapshot()
        while self.log.position < length - message_length:
            self._append(1)
        self.log.append_padding()
        self.log.flush()
        self.log.close()

    def _append(self, count: int) -> None:
        self.log.append_session_messages(
            count,
            payload_length=self.payload_length,
            session_count=min(count, len(SESSIONS)),
            timestamp=self.now + 1,
            seed=self.count + 1,
        )
        self.count += count
        self.now += count

    def _log(self, name: str, **fields: Any) -> None:
        self.now += 1
        self.log.append(encode("cluster", name, leadership_term_id=0, timestamp=self.now, **fields))

    def _take_snapshot(self) -> None:
        """A request in the log, if there is room for it in the buffer's term, and what was recorded then."""
        position = self.log.position + REQUEST_LENGTH
        if (self.log.position & (self.log.term_length - 1)) + REQUEST_LENGTH > self.log.term_length:
            return
        self._log("ClusterActionRequest", log_position=position, action=2, flags=0)
        module = [
            encode(
                "cluster",
                "ClusterSession",
                cluster_session_id=session_id,
                correlation_id=session_id,
                opened_log_position=opened,
                time_of_last_activity=self.now,
                close_reason=None,
                response_stream_id=_CLIENT["response_stream_id"],
                response_channel=_CLIENT["response_channel"],
            )
            for session_id, opened in self.opened.items()
        ]
        clients = [encode("cluster", "ClientSession", cluster_session_id=one, **_CLIENT) for one in SESSIONS]
        recordings = (
            self._record(position, 1, module, []),
            self._record(position, 2, clients, [STATE.pack(self.count)]),
        )
        self.snapshots.append(Snapshot(position, self.now, recordings))

    def _record(
        self, position: int, type_id: int, items: Sequence[bytes], state: Sequence[bytes]
    ) -> RecordingDescriptor:
        writer = RecordingWriter(
            self.archive_dir,
            recording_id=2 * len(self.snapshots) + type_id,
            stream_id=108 - type_id,
            term_length=SNAPSHOT_LENGTH,
            segment_length=SNAPSHOT_LENGTH,
        )
        begin, end = (marker(mark, type_id=type_id, position=position) for mark in (0, 2))
        for message in (begin, *items, end, *state):
            writer.append(message)
        writer.flush()
        writer.close()
        return descriptor_of(writer)

    def as_member(self, base_dir: Path, length: int) -> Path:
        """A member with the first segments of the log, as links, and the snapshots that lie in them; its path."""
        archive_dir, cluster_dir = base_dir / "archive", base_dir / "cluster"
        archive_dir.mkdir(parents=True)
        cluster_dir.mkdir()
        found = [one for one in self.snapshots if one.position <= length]
        recordings = [recording for one in found for recording in one.recordings]
        names = [f"0-{begin}.rec" for begin in range(0, length, self.log.segment_length)]
        names += [f"{one.recording_id}-0.rec" for one in recordings]
        for name in names:
            os.link(self.archive_dir / name, archive_dir / name)
        with (archive_dir / f"0-{length}.rec").open("wb") as following:  # an archive makes it when one is full
            following.truncate(self.log.segment_length)
        log = replace(descriptor_of(self.log), stop_position=length)
        write_catalog(archive_dir, [log, *recordings])
        (archive_dir / "archive-mark.dat").write_bytes(archive_mark())
        entries = [entry(0, 0, log_position=length)]
        for one in found:
            for service_id, recording in zip((-1, 0), one.recordings, strict=True):
                place = {"log_position": one.position, "service_id": service_id, "timestamp": one.timestamp}
                entries.append(entry(len(entries), recording.recording_id, entry_type=1, **place))
        write_recording_log(cluster_dir, entries)
        return base_dir


class Watch(threading.Thread):
    """Watches this process and Spark's: processor time that they have taken, and the greatest memory of each kind.

    It looks again and again, so that workers that end meanwhile count, too.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._begin: dict[int, float] = {}
        self._taken: dict[int, float] = {}
        self.peaks = {"driver_mib": 0.0, "jvm_mib": 0.0, "worker_mib": 0.0}

    def __enter__(self) -> Watch:
        for pid in (os.getpid(), *descendants()):
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # its peak is reset
                self._begin[pid] = _cpu_s(pid)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self._look()

    def run(self) -> None:
        """Look until the end."""
        while not self._ended.wait(_INTERVAL_S):
            self._look()

    def _look(self) -> None:
        for pid in (os.getpid(), *descendants()):
            with suppress(OSError, StopIteration):
                self._taken[pid] = _cpu_s(pid)
                kind = _kind(pid)
                self.peaks[kind] = max(self.peaks[kind], peak_mib(pid))

    @property
    def cpu_s(self) -> float:
        """Processor time of all."""
        return sum(taken - self._begin.get(pid, 0.0) for pid, taken in self._taken.items())


def _cpu_s(pid: int) -> float:
    """Processor time of a process, with that of its threads that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "driver_mib"
    return "worker_mib" if WORKER in Path(f"/proc/{pid}/cmdline").read_bytes() else "jvm_mib"


def measure(length: int, run: Callable[[], None]) -> Result:
    """The figures of a run over that many bytes of log."""
    begin = time.perf_counter()
    with Watch() as watch:
        run()
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "cpu_s": watch.cpu_s, "cpu_s_per_gib": watch.cpu_s / length * GIB, **watch.peaks}


def store_nothing(table: Callable[[], DataFrame]) -> None:
    """Compute all rows of a table."""
    table().write.format("noop").mode("overwrite").save()


def scan(spark: SparkSession, base_dir: Path) -> DataFrame:
    """The bytes of all segments of the log, as Spark itself reads them."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "0-*.rec").load(str(base_dir / "archive"))
    return files.select(f.crc32("content"))


def view(spark: SparkSession, base_dir: Path) -> DataFrame:
    """All session messages."""
    return spark.read.format(FORMAT).option("view", "session_messages").load(str(base_dir))


def audited(spark: SparkSession, members: Sequence[Path]) -> None:
    """An audit, which must pass."""
    report = audit(spark, SourceOptions(tuple(map(str, members))))
    if report.verdict != "pass":
        raise RoundFailed("; ".join(found.text for check in report.checks for found in check.findings))


def compared(spark: SparkSession, base_dir: Path) -> None:
    """A comparison of the two services."""
    options = SourceOptions((str(base_dir),))
    store_nothing(partial(diff, spark, options, SERVICE, OTHER_SERVICE))


def ways(spark: SparkSession, members: Sequence[Path]) -> dict[str, Callable[[], None]]:
    """The measurements of a log."""
    first = members[0]
    return {
        "Spark's own scan": partial(store_nothing, partial(scan, spark, first)),
        "session_messages": partial(store_nothing, partial(view, spark, first)),
        f"audit of {len(members)} members": partial(audited, spark, members),
        "replay": partial(store_nothing, partial(replay, spark, SourceOptions((str(first),)), SERVICE)),
        "diff": partial(compared, spark, first),
    }


def compare(spark: SparkSession, directory: Path, options: argparse.Namespace) -> Report:
    """A row of the report for each way to read, with a peer for each length of log."""
    report = Report("recorded_logs", METRICS)
    segment_length = options.segment_mib * MIB
    lengths = {f"{gib:g} GiB": -(-int(gib * GIB) // segment_length) * segment_length for gib in sorted(options.gib)}
    longest = max(lengths.values())
    if shutil.disk_usage(directory).free < longest + ROOM:
        raise SystemExit(f"{directory} has no room for {longest / GIB:.1f} GiB and {ROOM / GIB:.0f} more: use --dir")
    writer = LogWriter(directory / "written" / "archive", options.payload, segment_length)
    writer.write(longest, options.snapshot_mib * MIB)
    say(f"wrote {longest / GIB:.2f} GiB, {writer.count:,} messages, {len(writer.snapshots)} snapshots")
    kinds: dict[str, dict[str, Callable[[], Result]]] = {}
    first_runs: dict[str, Callable[[], None]] = {}
    for name, length in {"first segment": segment_length, **lengths}.items():
        members = [writer.as_member(directory / name / str(number), length) for number in range(MEMBERS)]
        for way, run in ways(spark, members).items():
            if first_runs.setdefault(way, run) is not run:
                kinds.setdefault(way, {})[name] = partial(measure, length, run)
    verify(Log(members[0], longest, writer.count, len(SESSIONS), segment_length))
    for way, peers in kinds.items():
        first_runs[way]()  # the JVM and the workers warm up
        results, failures = run_rounds(peers, options.rounds, options.seed)
        report.failures |= {f"{way}, {peer}": texts for peer, texts in failures.items()}
        first, *_, last = [*peers, *peers]
        goals = [] if way == "Spark's own scan" else [Goal(last, "cpu_s_per_gib", (first,), at_most=GROWTH)]
        goals += [Goal(last, metric, at_most=PEAK_MIB) for metric in ("driver_mib", "worker_mib")]
        report.add(way, results, goals)
    return report


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench recorded_logs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="lengths of log")
    parser.add_argument("--payload", type=int, default=96, help="bytes of a message, up to 1,300")
    parser.add_argument("--segment-mib", type=int, default=64, help="length of a segment file")
    parser.add_argument("--snapshot-mib", type=int, default=256, help="bytes of log between two snapshots")
    parser.add_argument("--dir", type=Path, help="where the log is written (the system's temporary directory)")
    options = parser.parse_args(arguments)
    settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", "spark.driver.memory": HEAP}
    spark = open_session("benchmark", master="local[2]", settings=settings)
    with tempfile.TemporaryDirectory(prefix="logs-", dir=options.dir) as path:
        report = compare(spark, Path(path), options)
    spark.stop()
    return report.finish()


if __name__ == "__main__":
    main()
