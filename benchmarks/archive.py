"""Archive: what recording and replaying takes, of our archive and of Java's, each a process of its own on one thread.

One driver serves both; publishers and readers are this process. The third peer of recordings does no more than poll
blocks, write them and set a counter; beside it stands what ``pwrite`` of such blocks takes alone, which no publisher
holds up: with it the processor time is compared. Rates are of log: frames with their headers. Processor time is that of
the archive's process, in which other load counts little.

A round trip is the time from an offer until the counter of the recording has its position. Start is from the process
to an answered request, with a catalog of so many recordings that have ended.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._archives import (
    BLOCK_LENGTH,
    HEADER_LENGTH,
    MIB,
    MTU,
    SEGMENT_LENGTH,
    TERM_LENGTH,
    ArchivePeer,
    BarePeer,
    Peer,
    Stopwatch,
    closing_ports,
    load,
    recorded,
    replayed,
)
from benchmarks._harness import Report, RoundFailed, cpu_seconds, resident_mib, run_rounds
from benchmarks._verdicts import Goal, Result
from benchmarks.start import await_program
from container.aeron import AeronClient, MediaDriver
from container.errors import ContainerError
from container.files.catalog import RecordingDescriptor
from container.testing.processes.recordings import write_catalog

LENGTHS = (32, 1024, MTU - HEADER_LENGTH)
METRICS = {
    "mib_per_s": "8,.0f",
    "cpu_s_per_gib": "7.3f",
    "resident_mib": "6.1f",
    "p50_us": "8.1f",
    "p99_us": "9.1f",
    "ready_s": "6.3f",
    "cpu_s": "6.3f",
}
SHORT = ["--rounds=1", "--mib=4", "--trips=100", "--idle-s=0.1", "--most-recordings=100"]
"""Tiny: to see that everything runs, not to learn how fast."""
PEERS = ("java", "native", "bare", "pwrite")
_UDP_SHARE = 4
"""Streams over UDP are slower and get one byte of this many."""
_SOCKETS = {"AERON_SOCKET_SO_RCVBUF": "2m", "AERON_SOCKET_SO_SNDBUF": "2m"}
"""Room for the windows of all streams: with less the driver loses datagrams, and rates say nothing of the archive."""
_TRIP_INTERVAL_NS = 100_000
_TRIP_LENGTH = 64
_DAY_MS = 86_400_000
_archive_ids = itertools.count(101)
"""For each start its own, and its own streams: for a while the driver keeps those of an archive that was killed."""


def record(client: AeronClient, peer: Peer, *, is_udp: bool, length: int, count: int, total: int) -> Result:
    """Rates of so many recordings at once, of ``total`` bytes together; as much is recorded before, to warm up."""
    try:
        with recorded(client, peer, is_udp=is_udp, count=count) as streams:
            streams.send(length, total)
            watch = Stopwatch(peer.pid)
            streams.send(length, total)
            return watch.rates(total)
    except (ContainerError, TimeoutError) as error:
        raise RoundFailed(str(error)) from error


def write(directory: Path, total: int) -> Result:
    """Rates of ``pwrite`` of the same bytes from memory, in the longest blocks."""
    seconds, cpu_s = load().write_blocks(
        str(directory / "pwrite"), total, BLOCK_LENGTH, SEGMENT_LENGTH, 3 * TERM_LENGTH
    )
    for path in directory.glob("pwrite-*"):
        path.unlink()
    return {"mib_per_s": total / MIB / seconds, "cpu_s_per_gib": cpu_s / total * 1024 * MIB}


def replay(client: AeronClient, peer: ArchivePeer, *, is_udp: bool, length: int, total: int) -> Result:
    """Rates of a replay of so many bytes that were recorded over IPC."""
    try:
        with recorded(client, peer) as streams, closing_ports() as ports:
            streams.send(length, total)
            channel = f"aeron:udp?endpoint=localhost:{ports.take()}" if is_udp else "aeron:ipc"
            return replayed(client, peer, streams.streams[0], channel, total)
    except (ContainerError, TimeoutError) as error:
        raise RoundFailed(str(error)) from error


def round_trips(client: AeronClient, peer: Peer, *, count: int) -> Result:
    """Microseconds until a message is recorded, one at a time; the first tenth is left out."""
    from container.testing.memory import transport_probe as seam

    with recorded(client, peer) as streams:
        stream = streams.streams[0]
        found = load().round_trips(
            stream.publication,
            seam.counters(client),
            stream.counter_id,
            _TRIP_LENGTH,
            count,
            _TRIP_INTERVAL_NS,
        )[count // 10 :]
    cuts = statistics.quantiles(found, n=100)
    return {"p50_us": statistics.median(found) / 1e3, "p99_us": cuts[98] / 1e3}


def idle(peer: Peer, seconds: float) -> Result:
    """Processor time of an archive that has nothing to do, for each second."""
    begin, begin_cpu = time.perf_counter(), cpu_seconds(peer.pid)
    time.sleep(seconds)
    return {
        "cpu_s": (cpu_seconds(peer.pid) - begin_cpu) / (time.perf_counter() - begin),
        "resident_mib": resident_mib(peer.pid),
    }


def descriptors(count: int) -> Iterator[RecordingDescriptor]:
    """Recordings that have ended, and whose segments are detached."""
    now_ms = int(time.time() * 1000) - _DAY_MS
    for recording_id in range(count):
        position = recording_id * 32
        yield RecordingDescriptor(
            control_session_id=1,
            correlation_id=recording_id,
            recording_id=recording_id,
            start_timestamp=now_ms,
            stop_timestamp=now_ms + 1000,
            start_position=position,
            stop_position=position,
            initial_term_id=7,
            segment_file_length=SEGMENT_LENGTH,
            term_buffer_length=TERM_LENGTH,
            mtu_length=MTU,
            session_id=recording_id,
            stream_id=1001,
            stripped_channel="aeron:udp?endpoint=localhost:20121",
            original_channel="aeron:udp?endpoint=localhost:20121|term-length=16m",
            source_identity="127.0.0.1:54321",
        )


def start(client: AeronClient, kind: Any, directory: Path, recordings: int) -> Result:
    """Seconds from the process until it has answered a request, and what it takes by then."""
    with tempfile.TemporaryDirectory(prefix=f"start-{kind}-", dir=directory) as path:
        peer = ArchivePeer(kind, Path(path), client, next(_archive_ids))
        try:
            peer.archive.archive_dir.mkdir()
            write_catalog(peer.archive.archive_dir, descriptors(recordings))
            peer.archive.start()
            launched_s = await_program(peer.archive.process)
            begin = time.perf_counter()
            peer.connect()
            ready_s = time.perf_counter() - begin
            if peer.ask("ArchiveIdRequest") != peer.archive_id:
                raise RoundFailed("another archive answers")
            return {
                "ready_s": ready_s,
                "cpu_s": cpu_seconds(peer.pid) - launched_s,
                "resident_mib": resident_mib(peer.pid),
            }
        except (ContainerError, TimeoutError, OSError) as error:
            raise RoundFailed(f"{error}\n{peer.archive.report()}") from error
        finally:
            peer.close()


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables, which a driver reads when it starts."""
    former = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def world(directory: Path, names: Sequence[str]) -> Iterator[tuple[AeronClient, dict[str, Peer]]]:
    """A driver, a client, and the peers by name."""
    with ExitStack() as stack:
        with _variables(_SOCKETS):
            driver = stack.enter_context(
                MediaDriver.launch_embedded(
                    term_buffer_length=TERM_LENGTH, ipc_term_buffer_length=TERM_LENGTH, threading="SHARED"
                )
            )
        client = stack.enter_context(AeronClient(driver=driver, use_invoker=False))
        peers: dict[str, Peer] = {}
        kinds: dict[str, Any] = {"java": "java", "native": "native"}
        for name in [name for name in names if name in kinds]:
            archive = ArchivePeer(kinds[name], directory, client, next(_archive_ids))
            stack.callback(archive.close)
            peers[name] = archive.start()
        if "bare" in names:
            bare = BarePeer(directory / "bare", client)
            stack.callback(bare.close)
            peers["bare"] = bare
        yield client, peers


def record_goals(*, is_ipc: bool) -> list[Goal]:
    """The goals for recordings."""
    goals = [
        Goal("native", "mib_per_s", ("java",), at_least=1.0),
        Goal("native", "cpu_s_per_gib", ("java",), at_most=0.5),
        Goal("native", "resident_mib", ("java",), at_most=0.25),
    ]
    if is_ipc:
        goals += [
            Goal("native", "mib_per_s", ("bare",), at_least=0.8),
            Goal("native", "cpu_s_per_gib", ("pwrite",), at_most=1 / 0.8),
        ]
    return goals


def versus_java(*metrics: str, at_most: float = 1.0) -> list[Goal]:
    """Goals in which less is better."""
    return [Goal("native", metric, ("java",), at_most=at_most) for metric in metrics]


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench archive", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mib", type=int, default=256, help="of log for each measurement; a quarter of it over UDP")
    parser.add_argument("--trips", type=int, default=20_000, help="round trips")
    parser.add_argument("--idle-s", type=float, default=2.0, help="seconds of idling")
    parser.add_argument("--most-recordings", type=int, default=10_000, help="in the catalog of a start")
    parser.add_argument("--only", default="", help="rows whose name has this regular expression")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of these, with commas")
    parser.add_argument("--dir", type=Path, help="where recordings go; needs a few GiB")
    options = parser.parse_args(arguments)
    names = options.peers.split(",")
    if unknown := set(names) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    report = Report("archive", METRICS)
    load()

    def measure(name: str, runs: Mapping[str, Callable[[], Result]], goals: Sequence[Goal]) -> None:
        if runs and re.search(options.only, name):
            results, failures = run_rounds(runs, options.rounds, options.seed)
            report.add(name, results, goals)
            for peer, texts in failures.items():
                report.failures.setdefault(peer, []).extend(texts)

    with tempfile.TemporaryDirectory(prefix="archive-", dir=options.dir) as path:
        directory = Path(path)
        with world(directory, names) as (client, peers):
            archives = {name: peer for name, peer in peers.items() if isinstance(peer, ArchivePeer)}
            for medium, length, count in [(m, n, c) for m in ("ipc", "udp") for n in LENGTHS for c in (1, 8)]:
                is_udp = medium == "udp"
                total = options.mib * MIB // (_UDP_SHARE if is_udp else 1)
                runs: dict[str, Callable[[], Result]] = {
                    name: partial(record, client, peer, is_udp=is_udp, length=length, count=count, total=total)
                    for name, peer in peers.items()
                }
                if "pwrite" in names and not is_udp:
                    runs["pwrite"] = partial(write, directory, total)
                measure(f"record, {medium}, {length} B, {count}", runs, record_goals(is_ipc=not is_udp))
            for medium, length in [("ipc", 32), ("ipc", 1024), ("ipc", LENGTHS[-1]), ("udp", LENGTHS[-1])]:
                is_udp = medium == "udp"
                total = options.mib * MIB // (_UDP_SHARE if is_udp else 1)
                measure(
                    f"replay, {medium}, {length} B",
                    {
                        name: partial(replay, client, peer, is_udp=is_udp, length=length, total=total)
                        for name, peer in archives.items()
                    },
                    record_goals(is_ipc=False),
                )
            measure(
                "round trip",
                {name: partial(round_trips, client, peer, count=options.trips) for name, peer in peers.items()},
                versus_java("p50_us", "p99_us"),
            )
            measure(
                "idle",
                {name: partial(idle, peer, options.idle_s) for name, peer in archives.items()},
                [*versus_java("cpu_s", at_most=0.5), *versus_java("resident_mib", at_most=0.25)],
            )
        with MediaDriver.launch_embedded() as driver, AeronClient(driver=driver, use_invoker=False) as client:
            for recordings in (1, options.most_recordings):
                measure(
                    f"start, {recordings:,} recordings",
                    {name: partial(start, client, name, directory, recordings) for name in names if name in archives},
                    [
                        *versus_java("ready_s"),
                        *versus_java("cpu_s", at_most=0.5),
                        *versus_java("resident_mib", at_most=0.25),
                    ],
                )
    return report.finish()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
