"""The data pipeline, end to end: a cluster under load, ingested live, a kill, an audit, a replay, a report.

Three members run the auction service, each over this package's archive or, with ``--java``, over Java's; the consensus
modules are Java's. Three traders bid all the time. Spark, in this process, reads the members' archives into Parquet
while they are written. All of that lies in one temporary directory, which is removed at the end; the report stays.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from container.errors import ContainerError
from container.files.segments import segment_file_name, segment_position
from container.recordings import open_member, read
from container.testing import wait_until
from container.testing.archive import ArchiveKind
from container.testing.cluster import LocalCluster, Service
from examples.auction_client import AuctionClient
from examples.auction_service import AuctionService, PlaceBid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from container.pipeline.analytics import Analytics
    from container.pipeline.audit import AuditReport
    from container.pipeline.manifest import Manifest
    from container.pipeline.replay import DiffSummary, ReplaySummary
    from container.pipeline.timeline import RoundTrip
    from container.spark.options import SourceOptions

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "pipeline-demo"
MEMBER_COUNT = 3
TRADERS = ("ada", "grace", "edsger")
DECODER = "examples.auction_service:Request"
SERVICE, NEXT_SERVICE = "examples.auction_service:AuctionService", "examples.pipeline_demo:NextAuctionService"
LEAST_RAISE = 5
LIMIT_S = 180.0
"""How long anything may take here."""
REPLY_LIMIT_S = 5.0
INTERVAL_S = 1.0
BLOCK_LENGTH = 64 * 1024
"""Bytes of log with one hash in the audits."""
STEP = 800
"""How many requests are answered between two events."""
THINK_S = 0.005
"""The pause of a trader between two requests: the members, the services and Spark share a machine."""

# Spark takes both processors now and then: leave the members more time than tests do.
CALM = {
    "aeron.cluster.leader.heartbeat.timeout": "4s",
    "aeron.cluster.startup.canvass.timeout": "8s",
    "aeron.client.liveness.timeout": "10s",
    "aeron.driver.timeout": "10000",
    "aeron.image.liveness.timeout": "5s",
    "aeron.publication.connection.timeout": "5s",
}

FRAME_HEADER_LENGTH = SESSION_MESSAGE_HEADER_LENGTH = 32

_BEGIN = time.monotonic()
_events: list[tuple[str, str, str]] = []


class NextAuctionService(AuctionService):
    """The next version of the service, before it has run anywhere: a replay shows what it would have answered.

    A bid must raise the price by no less than ``LEAST_RAISE``. The state, and so the snapshot, is the same.
    """

    def _bid(self, request: PlaceBid) -> str:
        auction = self.house.auctions.get(request.auction_id)
        if auction is not None and auction.is_open and 0 < request.price - auction.highest_price < LEAST_RAISE:
            return f"{request.price} raises the highest bid by less than {LEAST_RAISE}"
        return super()._bid(request)


def say(text: str) -> None:
    """Print one line with the seconds since the start, and keep it for the report."""
    _events.append((f"{datetime.now(UTC):%H:%M:%S}", f"{time.monotonic() - _BEGIN:.1f} s", text))
    print(f"[{time.monotonic() - _BEGIN:5.1f} s] {text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run demo pipeline", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="where report.html is left (%(default)s)")
    parser.add_argument("--java", action="store_true", help="the archives are Java's as well")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(options.out, "java" if options.java else "native")
    except KeyboardInterrupt:
        print("interrupted: every process was ended and the temporary directory removed", flush=True)
        return 130
    print("pipeline demo ok", flush=True)
    return 0


def run(out: Path, archive: ArchiveKind) -> None:
    """All steps."""
    os.chdir(ROOT)  # the workers of Spark and the services find the examples from here
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "container", "run", "examples.auction_service:AuctionService"]
    with LocalCluster([Service(command)], properties=CALM, archives=[archive] * MEMBER_COUNT) as cluster:
        say(f"all files lie in {cluster.base_dir}, which is removed at the end; the report will be in {out}")
        cluster.start()
        pids = [(member.node.pid, member.service.pid) for member in cluster.members]
        say(f"started three members, each Java's consensus module, {archive} archive, Python container, pids {pids}")
        with spark_session() as spark:
            options, table, trips = live(spark, cluster)
            manifest = finish_ingest(spark, options, table)
            check_table(spark, options, table, manifest)
            page = examine(spark, cluster, options, manifest, out, trips)
    say(f"the report: {page}")


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session that is stopped at the end; Ctrl-C stays as Python has it."""
    from container.spark import open_session

    settings = {
        "spark.log.level": "FATAL",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = open_session("pipeline demo", master="local[2]", settings=settings)
    # Spark's own handler would first cancel jobs, and wait for that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gateway: Any = spark.sparkContext._gateway
    say(f"started Spark {spark.version}, pids {[gateway.proc.pid]}")
    try:
        yield spark
    except BaseException:
        # A client interrupted in the middle of a call cannot be asked any more; the JVM ends with this process.
        with suppress(Exception):
            spark.stop()
        raise
    spark.stop()


# The cluster, its clients, and the ingest meanwhile


def live(spark: SparkSession, cluster: LocalCluster) -> tuple[SourceOptions, Path, list[RoundTrip]]:
    """Traders and ingest over a snapshot, the leader's death, and the cluster's end; returns all round trips."""
    from container.spark.options import SourceOptions

    leader = cluster.await_ready()
    say(f"member {leader.member_id} leads")
    paths = tuple(str(member.node.base_dir) for member in cluster.members)
    options, table = SourceOptions(paths, decoder=DECODER), cluster.base_dir / "table"
    cluster.start_client_driver()
    with trading(cluster) as traders, ingesting(spark, options, table) as ingest:
        say("the traders bid, and a streaming query reads the log into Parquet, from one of three archives at a time")
        traders.await_answers(STEP)
        ingest.await_rows(1)
        cluster.take_snapshot()
        say("took a snapshot on all members")
        traders.await_answers(STEP)
        leader.kill()
        say(f"killed member {leader.member_id}, the leader (SIGKILL)")
        successor = cluster.await_leader(LIMIT_S, other_than=leader)
        say(f"member {successor.member_id} leads now")
        traders.await_answers(STEP)
        leader.restart()
        say(f"started member {leader.member_id} again, pids {[(leader.node.pid, leader.service.pid)]}")
        cluster.await_ready()
        say("it has caught up")
        traders.await_answers(STEP)
        ingest.await_rows(ingest.row_count + 1)
    say(f"the traders had {traders.answered:,} answers, and {traders.lost} requests that nobody answered")
    cluster.shut_down()
    say("the cluster took its last snapshot and ended")
    return options, table, traders.round_trips


class Traders:
    """Clients in threads, each with a session of its own, which bid until they are stopped."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.answered = 0
        self.lost = 0
        self.round_trips: list[RoundTrip] = []
        """One for each answered bid."""
        self._settings = settings
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, args=(name,), name=name) for name in TRADERS]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all; raises what ended one before."""
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        if self._failure is not None:
            raise self._failure

    def await_answers(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = self.answered + count

        def is_there() -> bool:
            if self._failure is not None:
                raise self._failure
            return self.answered >= wanted

        wait_until(is_there, LIMIT_S, f"{count} more answers to the traders, {self.answered} came before")

    def _run(self, name: str) -> None:
        chance = random.Random(name)
        while not self._stop.is_set():
            try:
                with AuctionClient(name, reply_timeout=REPLY_LIMIT_S, **self._settings) as client:
                    self._trade(client, chance)
            except (TimeoutError, ContainerError):
                # Nobody leads, or the leader died with the request: at most once, so it is not sent again.
                with self._lock:
                    self.lost += 1
            except BaseException as failure:
                self._failure = failure
                return

    def _trade(self, client: AuctionClient, chance: random.Random) -> None:
        """Open auctions and bid in them, a few at a time."""
        from container.pipeline.timeline import RoundTrip

        for number in itertools.count():
            duration_ms = chance.choice((200, 1_000, 30_000))
            item = f"{client.name}'s lot {number}"
            auction = client.open_auction(item, reserve_price=chance.randrange(100), duration_ms=duration_ms)
            for _ in range(chance.randrange(20, 60)):
                if self._stop.is_set():
                    return
                at, begin_ns = time.time_ns() // 1000, time.perf_counter_ns()
                client.bid(chance.randrange(max(1, auction - 5), auction + 1), chance.randrange(1_000))
                micros = (time.perf_counter_ns() - begin_ns) // 1000
                with self._lock:
                    self.answered += 1
                    self.round_trips.append(RoundTrip(at, micros))
                self._stop.wait(THINK_S)


@contextmanager
def trading(cluster: LocalCluster) -> Iterator[Traders]:
    """Traders that have stopped when the block has ended."""
    traders = Traders(cluster.client_settings())
    try:
        traders.start()
        yield traders
    finally:
        traders.stop()


class Ingest:
    """The ingest in a thread, because it follows the log until it is stopped."""

    def __init__(self, spark: SparkSession, options: SourceOptions, table: Path) -> None:
        self.row_count = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(spark, options, table), name="ingest")
        self._batch_id = -1

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the query after what is finished; raises what ended it before."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        if self._failure is not None:
            raise self._failure

    def await_rows(self, count: int) -> None:
        """Wait until the table has so many rows."""

        def is_there() -> bool:
            if self._failure is not None:
                raise self._failure
            return self.row_count >= count

        wait_until(is_there, LIMIT_S, f"{count} rows in the table, it has {self.row_count}")

    def _run(self, spark: SparkSession, options: SourceOptions, table: Path) -> None:
        from container.pipeline.ingest import ingest

        try:
            ingest(spark, options, table, interval_s=INTERVAL_S, on_progress=self._on_progress)
        except BaseException as failure:
            self._failure = failure

    def _on_progress(self, manifest: Manifest, _query: object) -> None:
        from container.pipeline.ingest import IngestStopped

        if manifest.batch_id > self._batch_id:
            self._batch_id = manifest.batch_id
            self.row_count = manifest.row_count
            positions = ", ".join(f"{key}: {one.end_position}" for key, one in sorted(manifest.members.items()))
            say(f"  ingest: batch {manifest.batch_id}, {manifest.row_count:,} rows, log positions {positions}")
        if self._stop.is_set():
            raise IngestStopped


@contextmanager
def ingesting(spark: SparkSession, options: SourceOptions, table: Path) -> Iterator[Ingest]:
    """An ingest that has stopped when the block has ended."""
    ingest = Ingest(spark, options, table)
    try:
        ingest.start()
        yield ingest
    finally:
        ingest.stop()


# Continuing after the kill


def finish_ingest(spark: SparkSession, options: SourceOptions, table: Path) -> Manifest:
    """Start the query again where it was stopped, up to the logs' ends."""
    from container.pipeline.ingest import ingest

    manifest = ingest(spark, options, table)
    say(f"restarted the ingest from its checkpoint, up to the end: {manifest.row_count:,} rows")
    return manifest


def check_table(spark: SparkSession, options: SourceOptions, table: Path, manifest: Manifest) -> None:
    """Each message of the cluster is in the table once, though its leader was killed."""
    from pyspark.sql import functions as f

    from container.pipeline.ingest import read_table
    from container.spark.source import furthest_log

    rows = read_table(spark, table)
    stored = rows.agg(f.count("*"), f.count_distinct("log_position")).collect()[0]
    path = furthest_log(options).member.path
    count = sum(batch.num_rows for batch in read(path, "messages", columns=["log_position"]))
    if tuple(stored) != (count, count) or any(one.gaps for one in manifest.members.values()):
        raise RuntimeError(f"the log has {count} messages, the table's rows and distinct positions: {stored}")
    read_from = sorted(row[0] for row in rows.select("member_id").distinct().collect())
    names = ", ".join(f"member {member_id}" for member_id in read_from)
    say(f"each message is in the table exactly once; they were read from {names}")


def examine(
    spark: SparkSession,
    cluster: LocalCluster,
    options: SourceOptions,
    manifest: Manifest,
    out: Path,
    trips: Sequence[RoundTrip],
) -> Path:
    """Audits, analytics, and the report about all of it; returns its path."""
    from container.pipeline.analytics import analyse, store_analytics
    from container.pipeline.audit import audit
    from container.pipeline.audit_report import write_audit
    from container.spark.options import SourceOptions

    copy = cluster.base_dir / "copy"
    shutil.copytree(options.paths[1], copy)
    # Without it the files do not say whose they are, and the copy is called by its place in the list: member 3.
    (copy / "cluster" / "cluster-mark.dat").unlink()
    position, place = flip_a_byte(copy)
    say(f"flipped one byte at log position {position} in a copy of member 1: {place}")
    audited = audit(spark, SourceOptions((*options.paths, str(copy))), block_length=BLOCK_LENGTH)
    findings = [found for one in audited.checks for found in one.findings]
    for found in findings:
        say(f"audit of the members and the copy: {found.state}: {found.text}")
    if [(found.member_id, found.log_position) for found in findings] != [(3, position)] or place not in findings[
        0
    ].text:
        raise RuntimeError(
            "the audit should have found the flipped byte in the copy, called member 3, and nothing else"
        )
    say("that is the flipped byte, and there is nothing else: the three members have the same history")
    write_audit(audited, out / "audit.html")
    replayed, compared = run_again(spark, options, out / "tables")
    analytics = store_analytics(analyse(spark, options), out / "tables")
    return write_report(manifest, audited, replayed, compared, analytics, out, trips)


def run_again(spark: SparkSession, options: SourceOptions, tables: Path) -> tuple[ReplaySummary, DiffSummary]:
    """The service over its own history, which must come to the recorded state, and the next version beside it."""
    from container.pipeline.replay import diff, replay, summarise_diff, summarise_replay

    def stored(rows: DataFrame, name: str) -> DataFrame:
        rows.write.mode("overwrite").parquet(str(tables / name))
        return spark.read.parquet(str(tables / name))

    replayed = summarise_replay(stored(replay(spark, options, SERVICE), "replay"))
    say(f"replay of the service: {', '.join(f'{count} {kind}' for kind, count in replayed.row_counts.items())}")
    if not replayed.compared_count or replayed.first_difference is not None or replayed.first_error is not None:
        raise RuntimeError(f"the replay should have come to the state of the recorded snapshots: {replayed}")
    say(f"its state is that of the recorded snapshots at all {replayed.compared_count} of their log positions")
    compared = summarise_diff(stored(diff(spark, options, SERVICE, NEXT_SERVICE), "diff"))
    if compared.first_answer is None:
        raise RuntimeError("the next version should have answered some bids differently")
    say(f"the next version of the service would have answered differently from log position {compared.first_answer} on")
    return replayed, compared


def write_report(
    manifest: Manifest,
    audited: AuditReport,
    replayed: ReplaySummary,
    compared: DiffSummary,
    analytics: Analytics,
    out: Path,
    trips: Sequence[RoundTrip],
) -> Path:
    """One page: timeline, what happened, what the table holds, audit, replay and comparison, and the tables."""
    from container.pipeline.analytics import add_tables
    from container.pipeline.audit_report import add_audit
    from container.pipeline.pictures import standalone
    from container.pipeline.report import Report
    from container.pipeline.timeline import add_timeline
    from container.spark.options import ANY

    page = Report("Pipeline demo")
    picture = add_timeline(page, analytics, trips)
    page.heading("Events")
    page.table(("time (UTC)", "after", "event"), _events)
    page.heading("Ingested table")
    page.text(
        f"The table has {manifest.row_count:,} rows in {manifest.file_count} files, of {manifest.batch_id + 1} batches."
    )
    page.table(
        ("log of", "log positions covered", "gaps"),
        [
            (
                "the cluster" if key == ANY else f"member {key}",
                ", ".join(f"{one.begin_position} to {one.end_position}" for one in member.covered),
                len(member.gaps),
            )
            for key, member in sorted(manifest.members.items())
        ],
    )
    page.table(
        ("date", "leadership term", "rows", "first log position", "last"),
        [
            (one.date, one.term, one.row_count, one.first_log_position, one.last_log_position)
            for one in manifest.partitions
        ],
    )
    page.heading("Audit")
    page.text("Member 3 is a copy of member 1 in which one byte was flipped.")
    add_audit(page, audited)
    page.heading("Replay")
    page.table(("kind", "rows"), list(replayed.row_counts.items()))
    page.text(f"The replayed state equals the recorded one at all {replayed.compared_count} snapshots.")
    page.heading("Next version")
    page.table(("kind", "change", "rows"), [(kind, change, count) for (kind, change), count in compared.counts.items()])
    page.text(f"The next version answers differently from log position {compared.first_answer} on.")
    add_tables(page, analytics)
    if picture is not None:
        (out / "timeline.svg").write_text(standalone(picture), encoding="utf-8")
    return page.write(out / "report.html")


def flip_a_byte(base_dir: Path) -> tuple[int, str]:
    """Flip a byte of a payload in the middle of a member's log; returns its log position and where it is."""
    member = open_member(base_dir)
    descriptor = member.log_descriptor()
    begins = [
        position
        for batch in read(base_dir, "session_messages", columns=["begin_position"])
        for position in batch.column(0).to_pylist()
    ]
    position = begins[len(begins) // 2] + FRAME_HEADER_LENGTH + SESSION_MESSAGE_HEADER_LENGTH + 4
    base = segment_position(
        descriptor.start_position, position, descriptor.term_buffer_length, descriptor.segment_file_length
    )
    path = Path(member.archive_dir, segment_file_name(descriptor.recording_id, base))
    with path.open("r+b") as file:
        file.seek(position - base)
        (byte,) = file.read(1)
        file.seek(position - base)
        file.write(bytes([byte ^ 0xFF]))
    return position, f"{path}, offset {position - base}"


if __name__ == "__main__":
    sys.exit(main())
