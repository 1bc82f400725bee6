"""The client of an archive beside Java's AeronArchive, against one archive: requests one at a time, and many at once.

Each peer asks where a recording begins, which an archive answers from its catalog: so the time is the client's, and the
archive's turn. Idle strategies are the clients' own defaults, backing off to 1 ms. The asyncio client has so many
requests in flight; Java's client and our blocking one have one.

Goals: one at a time our blocking client is not behind Java's; with many in flight ours answers more in a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks._harness import Report, run_rounds
from benchmarks._peers import java_classes
from benchmarks._verdicts import Goal, Result
from container.aeron import MediaDriver
from container.archive import AeronArchive, AsyncAeronArchive
from container.testing.processes.java_tools import java_command, resolve_jar
from container.testing.processes.local_archive import ARCHIVE_KINDS, LocalArchive
from container.testing.processes.process import Process

CHANNEL, STREAM_ID = "aeron:ipc?term-length=64k", 1001
LIMIT_S = 60.0
METRICS = {"p50_us": "9,.1f", "p99_us": "9,.1f", "requests_per_s": "9,.0f"}
SHORT = ["--rounds=1", "--requests=50", "--in-flight=10"]
"""Tiny: to see that everything runs, not to learn how fast."""


def recording(archive: AeronArchive) -> int:
    """The id of a recording."""
    with archive.add_recorded_publication(CHANNEL, STREAM_ID) as publication:
        while publication.offer(b"x") < 0:
            pass
        while not (found := archive.list_recordings_for_uri(0, 1, "aeron:ipc", STREAM_ID)):
            pass
    return found[0].recording_id


def result(durations_ns: list[int], seconds: float) -> Result:
    """The figures of durations."""
    durations_ns.sort()
    count = len(durations_ns)
    return {
        "p50_us": durations_ns[count // 2] / 1e3,
        "p99_us": durations_ns[int(count * 0.99)] / 1e3,
        "requests_per_s": count / seconds,
    }


def one_at_a_time(archive: AeronArchive, recording_id: int, requests: int) -> Result:
    """Our blocking client."""
    durations_ns = []
    begin = time.perf_counter()
    for _ in range(requests):
        start_ns = time.perf_counter_ns()
        archive.get_start_position(recording_id)
        durations_ns.append(time.perf_counter_ns() - start_ns)
    return result(durations_ns, time.perf_counter() - begin)


async def _many(aeron_dir: str, recording_id: int, requests: int, in_flight: int) -> Result:
    durations_ns: list[int] = []
    async with AsyncAeronArchive.connect(aeron_dir=aeron_dir, response_stream_id=22) as archive:

        async def ask() -> None:
            while len(durations_ns) < requests:
                start_ns = time.perf_counter_ns()
                await archive.get_start_position(recording_id)
                durations_ns.append(time.perf_counter_ns() - start_ns)

        begin = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(in_flight)))
        return result(durations_ns, time.perf_counter() - begin)


def java(process: Process, recording_id: int, requests: int) -> Result:
    """Java's client, in a process of its own."""
    process.write_line(f"{recording_id} {requests}")
    found: Result = json.loads(process.read_line(LIMIT_S))
    return found


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench archive_client", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=5_000, help="of each client in each round")
    parser.add_argument("--in-flight", type=int, default=100, help="of the asyncio client")
    parser.add_argument("--archive", choices=ARCHIVE_KINDS, default="native")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        driver = stack.enter_context(MediaDriver.launch_embedded(threading="SHARED"))
        archive = LocalArchive(options.archive, directory, Path(driver.aeron_dir))
        stack.enter_context(archive).start().await_ready()
        blocking = stack.enter_context(AeronArchive.connect(aeron_dir=driver.aeron_dir))
        recording_id = recording(blocking)
        properties = {
            "aeron.dir": driver.aeron_dir,
            "aeron.archive.control.channel": "aeron:ipc",
            "aeron.archive.control.response.channel": "aeron:ipc",
            "aeron.archive.control.response.stream.id": "21",
        }
        command = java_command(
            "container.benchmarks.ArchiveClient", [java_classes(), resolve_jar()], properties=properties
        )
        process = stack.enter_context(Process("java-client", command, directory=directory))
        process.start()
        if process.read_line(LIMIT_S) != "READY":
            raise RuntimeError(process.tail())
        java(process, recording_id, options.requests)  # warms up
        many = many_at_once(driver.aeron_dir, recording_id, options.requests, options.in_flight)
        results, failures = run_rounds(
            {
                "java": lambda: java(process, recording_id, options.requests),
                "blocking": lambda: one_at_a_time(blocking, recording_id, options.requests),
                "asyncio": many,
            },
            options.rounds,
        )
    report = Report("archive_client", METRICS, failures=failures)
    report.add(
        f"requests to an archive ({options.archive}), asyncio {options.in_flight} at once",
        results,
        [
            Goal("blocking", "p50_us", ("java",), at_most=1.0),
            Goal("asyncio", "requests_per_s", ("java",), at_least=1.0),
        ],
    )
    return report.finish()


def many_at_once(aeron_dir: str, recording_id: int, requests: int, in_flight: int) -> Callable[[], Result]:
    """Our asyncio client, with a loop for each round."""
    return lambda: asyncio.run(_many(aeron_dir, recording_id, requests, in_flight))


if __name__ == "__main__":
    main()
