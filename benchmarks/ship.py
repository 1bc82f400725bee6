"""Shipping a member's log: MiB/s beside a plain copy of the same files, and beside one that is read back and compared.

To a directory, and to an S3 server (moto, in Python, in a process of its own, so it is what limits both). A plain copy
to S3 is fsspec's ``put``. Each round begins with an empty place; source and copies lie in the page cache.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks._harness import Report, RoundFailed, run_rounds
from benchmarks._logs import GIB, MIB, Log, written_log
from benchmarks._verdicts import Goal, Result
from container.pipeline.ship import Shipper
from container.pipeline.ship_place import open_place
from container.recordings import open_member

GOAL = 0.7
_BLOCK = 16 * MIB


def timed(log: Log, run: Callable[[], None]) -> Result:
    """The rate of a copy, and its processor time; that of the server is not in it."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    run()
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {"mib_s": log.length / MIB / seconds, "cpu_s_per_gib": cpu_s / (log.length / GIB)}


def ship(log: Log, url: str, storage: dict[str, Any]) -> None:
    """One pass."""
    done = Shipper(open_member(log.base_dir), open_place(url, storage)).run()
    if done.end_position != log.length:
        raise RoundFailed(f"shipped to {done.end_position}, not to {log.length}")


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def in_directory(log: Log, directory: Path, run: Callable[[Path], None]) -> Result:
    """Copy into a new directory, which is removed."""
    place = directory / f"place-{uuid.uuid4().hex}"
    try:
        return timed(log, lambda: run(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def copy(log: Log, place: Path, *, is_read_back: bool) -> None:
    """A plain copy."""
    shutil.copytree(log.archive_dir, place)
    if is_read_back and any(digest(file) != digest(log.archive_dir / file.name) for file in place.iterdir()):
        raise RoundFailed("the copy differs")


def serve(connection: Connection) -> None:
    """Run an S3 server until the other side closes."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    connection.send(f"http://{host}:{port}")
    try:
        connection.recv()
    except EOFError:
        server.stop()


@contextmanager
def s3_server() -> Iterator[dict[str, Any]]:
    """The storage options of a server with an empty bucket ``bench``."""
    import fsspec

    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(60):
            raise SystemExit("the S3 server did not start within 60 s")
        storage = {"key": "bench", "secret": "bench", "endpoint_url": ours.recv()}
        fsspec.filesystem("s3", **storage).mkdir("bench")
        yield storage
    finally:
        ours.close()
        process.join(30)


def in_bucket(log: Log, storage: dict[str, Any], run: Callable[[str], None]) -> Result:
    """Copy under a new prefix, which is removed."""
    import fsspec

    url = f"s3://bench/{uuid.uuid4().hex}"
    try:
        return timed(log, lambda: run(url))
    finally:
        fsspec.filesystem("s3", **storage).rm(url, recursive=True)


def put(log: Log, storage: dict[str, Any], url: str) -> None:
    """A plain copy by fsspec."""
    import fsspec

    fsspec.filesystem("s3", **storage).put(f"{log.archive_dir}/", f"{url}/", recursive=True)


def main(arguments: Sequence[str] | None = None) -> Report:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="./run bench ship", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, default=1.0, help="length of the log")
    parser.add_argument("--segment-mib", type=int, default=128, help="length of a segment file")
    parser.add_argument("--dir", type=Path, help="where all lies (the system's temporary directory)")
    options = parser.parse_args(arguments)
    report = Report("ship", {"mib_s": "7.0f", "cpu_s_per_gib": "7.2f"})
    length = int(options.gib * GIB) & -32
    segment_length = options.segment_mib * MIB
    with (
        s3_server() as storage,
        written_log(length, payload_length=96, segment_length=segment_length, directory=options.dir) as log,
    ):
        directory = log.base_dir
        peers = {
            "ship": partial(in_directory, log, directory, lambda place: ship(log, str(place), {})),
            "copy": partial(in_directory, log, directory, partial(copy, log, is_read_back=False)),
            "copy and compare": partial(in_directory, log, directory, partial(copy, log, is_read_back=True)),
        }
        results, report.failures = run_rounds(peers, options.rounds, options.seed)
        goals = [Goal("ship", "mib_s", ("copy and compare",), at_least=GOAL)]
        report.add(f"to a directory, {log.length / GIB:.2f} GiB", results, goals)
        peers = {
            "ship": partial(in_bucket, log, storage, lambda url: ship(log, url, storage)),
            "fsspec's put": partial(in_bucket, log, storage, partial(put, log, storage)),
        }
        results, failures = run_rounds(peers, options.rounds, options.seed)
        report.failures |= {f"s3 {name}": texts for name, texts in failures.items()}
        report.add(
            f"to S3, {log.length / GIB:.2f} GiB",
            results,
            [Goal("ship", "mib_s", ("fsspec's put",), at_least=GOAL)],
        )
    return report.finish()


if __name__ == "__main__":
    main()
