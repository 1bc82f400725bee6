"""Logs for the benchmarks of what reads recordings: written or really recorded, and verified by Java's ArchiveTool.

As a program it reads a view once and prints what that took, so that time and memory are those of a process of its own::

    python -m benchmarks._logs DIRECTORY VIEW [END_POSITION]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks._harness import ROOT, RoundFailed, peak_mib, say
from benchmarks._verdicts import Result
from container.api import ClientSession, ClusteredService, Header, MessageBuffer
from container.client import AeronCluster
from container.recordings import Filters, open_member, read
from container.testing.processes.java_tools import JVM_FLAGS, java_command, resolve_jar
from container.testing.processes.node import Node
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog, write_recording_log
from tests.recordings_world import archive_mark, entry, new_term

GIB, MIB = 2**30, 2**20
TERM_LENGTH = 64 * MIB
"""Term length of the log's buffers: Aeron's default."""
_CHUNK = 100_000
_ROOM = 2 * GIB
"""Bytes that must stay free on the disk."""
_VERIFY_LIMIT_S = 600
_END_LIMIT_S = 60.0


class Log(NamedTuple):
    """A member's directory with nothing but a log."""

    base_dir: Path
    length: int
    """Bytes of log."""
    rows: int
    """Session messages."""
    others: int
    """All other messages."""
    segment_length: int

    @property
    def archive_dir(self) -> Path:
        """Where the segment files are."""
        return self.base_dir / "archive"


@contextmanager
def written_log(
    length: int, *, payload_length: int, segment_length: int = 128 * MIB, directory: Path | None = None
) -> Iterator[Log]:
    """A log of session messages, verified by Java; it is removed at the end.

    Raises:
        SystemExit: there is no room on the disk.
        RuntimeError: ArchiveTool finds a fault.
    """
    with _directory(length, directory) as path:
        log = _write(path, length, payload_length, segment_length)
        verify(log)
        yield log


class Silent(ClusteredService):
    """Hears every message, and keeps nothing."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Nothing."""


@contextmanager
def recorded_log(
    length: int, *, payload_length: int, segment_length: int = 128 * MIB, directory: Path | None = None
) -> Iterator[Log]:
    """The same of a real run: a node of Java's, our container, and a client that sends as fast as it can.

    Raises:
        as :func:`written_log`.
    """
    with _directory(length, directory) as path:
        properties = {
            "aeron.archive.segment.file.length": str(segment_length),
            "aeron.cluster.log.channel": f"aeron:udp?term-length={min(TERM_LENGTH, segment_length)}",
        }
        begin = time.perf_counter()
        with Node(base_dir=path, properties=properties) as node:
            node.start().await_started()
            node.start_service(
                [sys.executable, "-m", "container", "run", f"{__name__}:{Silent.__name__}"],
                environment={"PYTHONPATH": str(ROOT)},
            )
            node.await_leader()
            rows = _send(node, length, payload_length)
            node.cluster_tool("shutdown")
            node.wait_until(lambda: not node.is_running, _END_LIMIT_S, "the node to end after its shutdown")
        columns = ["template_id"]
        messages = sum(batch.num_rows for batch in read(path, "messages", columns=columns))
        log = Log(path, _length(path), rows, messages - rows, segment_length)
        say(f"recorded {log.length / GIB:.2f} GiB, {rows:,} messages, in {time.perf_counter() - begin:.1f} s")
        verify(log)
        yield log


def _send(node: Node, length: int, payload_length: int) -> int:
    """Send messages until the log is that long; how many."""
    properties = node.client_properties(ipc=True)
    payload, rows = bytes(index % 256 for index in range(payload_length)), 0
    with AeronCluster.connect(
        aeron_dir=properties["aeron.dir"],
        ingress_channel=properties["aeron.cluster.ingress.channel"],
        egress_channel=properties["aeron.cluster.egress.channel"],
    ) as client:
        while (node.append_position or 0) < length:
            for _ in range(_CHUNK):
                client.send(payload)
            rows += _CHUNK
            client.poll_egress()
        node.wait_until(lambda: node.commit_position == node.append_position, _END_LIMIT_S, "all to be committed")
    return rows


def _length(base_dir: Path) -> int:
    return open_member(base_dir).log_range().recorded_position


@contextmanager
def _directory(length: int, directory: Path | None) -> Iterator[Path]:
    """A directory with room for a log, for as long as it is used."""
    with tempfile.TemporaryDirectory(prefix="log-", dir=directory) as path:
        free = shutil.disk_usage(path).free
        if free < length + _ROOM:
            raise SystemExit(
                f"{path} has {free / GIB:.1f} GiB free, {(length + _ROOM) / GIB:.1f} are needed: use --dir"
            )
        yield Path(path)


def _write(base_dir: Path, length: int, payload_length: int, segment_length: int) -> Log:
    archive_dir, cluster_dir = base_dir / "archive", base_dir / "cluster"
    archive_dir.mkdir()
    cluster_dir.mkdir()
    begin, rows = time.perf_counter(), 0
    term_length = min(TERM_LENGTH, segment_length)
    writer = RecordingWriter(archive_dir, term_length=term_length, segment_length=segment_length)
    writer.append(new_term(0, 0))
    while writer.position < length:
        writer.append_session_messages(
            _CHUNK, payload_length=payload_length, session_count=100, timestamp=rows, seed=rows + 1
        )
        rows += _CHUNK
    writer.flush()
    writer.close()
    write_catalog(archive_dir, [descriptor_of(writer)])
    (archive_dir / "archive-mark.dat").write_bytes(archive_mark())
    write_recording_log(cluster_dir, [entry(0, 0, log_position=writer.position)])
    say(f"wrote {writer.position / GIB:.2f} GiB, {rows:,} messages, in {time.perf_counter() - begin:.1f} s")
    return Log(base_dir, writer.position, rows, 1, segment_length)


def verify(log: Log) -> None:
    """Let Java's ArchiveTool verify all segments."""
    begin = time.perf_counter()
    command = java_command(
        "io.aeron.archive.ArchiveTool",
        [resolve_jar()],
        arguments=[str(log.archive_dir), "verify", "-a"],
        flags=JVM_FLAGS,
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_VERIFY_LIMIT_S, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0 or "(recordingId=0) OK" not in done.stdout:
        raise RuntimeError(f"ArchiveTool verify: {done.stdout}{done.stderr}")
    say(f"verified by ArchiveTool in {time.perf_counter() - begin:.1f} s")


def read_all(base_dir: Path, view: str, end_position: int | None = None) -> Result:
    """Read a view, all columns, and drop it: seconds, seconds of processor time, rows."""
    begin, begin_cpu, rows = time.perf_counter(), time.process_time(), 0
    for batch in read(base_dir, view, filters=Filters(end_position=end_position)):
        rows += batch.num_rows
    return {"rows": rows, "seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - begin_cpu}


def read_in_process(log: Log, view: str, end_position: int) -> Result:
    """The same in a new process, with its greatest memory (MiB, resident)."""
    command = [sys.executable, "-m", "benchmarks._logs", str(log.base_dir), view, str(end_position)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RoundFailed(done.stderr)
    found: Result = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    measured = read_all(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
    measured["peak_mib"] = peak_mib(os.getpid())
    print(json.dumps(measured))
