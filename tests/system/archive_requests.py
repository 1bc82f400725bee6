"""Runs ``tests/java/ArchiveRequests.java`` against an archive of Java's or ours, beside a media driver in C."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from container.testing.processes.endpoints import PortReservation
from container.testing.processes.java_tools import java_command, resolve_jar
from container.testing.processes.local_archive import ArchiveKind, LocalArchive
from container.testing.processes.process import Process
from tests.limits import LIMIT_S

EVENTS_CHANNEL = "aeron:ipc?term-length=64k"
PORT_COUNT = 4
_RUN_LIMIT_S = 180.0
_TEXT = "    text "

ARCHIVE_PROPERTIES = {
    # Several segments in little data, and short waits for what never comes.
    "aeron.archive.segment.file.length": "64k",
    "aeron.archive.connect.timeout": "2s",
    "aeron.archive.message.timeout": "2s",
    "aeron.archive.recording.events.enabled": "true",
    "aeron.archive.recording.events.channel": EVENTS_CHANNEL,
}
SOURCE_PROPERTIES = {
    "aeron.archive.segment.file.length": "64k",
    # Another stream than the archive's on the same local channel.
    "aeron.archive.local.control.stream.id": "11",
}


def start_driver(directory: Path) -> Process:
    """Start a media driver in C, whose directory is ``driver`` there, and wait until it is ready."""
    command = [sys.executable, "-m", "container.testing.processes.client_driver", str(directory / "driver")]
    process = Process("driver", command, directory=directory).start()
    try:
        assert process.read_line(LIMIT_S) == "ready"
    except BaseException:
        process.close()
        raise
    return process


def run_archive_requests(
    kind: ArchiveKind,
    directory: Path,
    java_classes: Path,
    *,
    only: Sequence[str] = (),
    is_remote: bool = False,
    source_kind: ArchiveKind = "java",
) -> list[str]:
    """Run the scenarios against a new archive and return the lines that they print.

    Args:
        kind: whose archive answers.
        directory: where driver, archives and outputs go.
        java_classes: the compiled programs of ``tests/java``.
        only: names of scenarios; all when it is empty.
        is_remote: whether requests go over the network instead of shared memory.
        source_kind: whose archive is the source of replications.
    """
    ports = PortReservation()
    aeron_dir = directory / "driver"
    directory.mkdir(exist_ok=True)
    try:
        arguments = [f"ports={','.join(str(ports.take()) for _port in range(PORT_COUNT))}", f"events={EVENTS_CHANNEL}"]
        if only:
            arguments.append(f"only={','.join(only)}")
        with (
            start_driver(directory),
            LocalArchive(kind, directory, aeron_dir, archive_id=42, properties=ARCHIVE_PROPERTIES) as archive,
            LocalArchive(
                source_kind, directory, aeron_dir, name="source", archive_id=43, properties=SOURCE_PROPERTIES
            ) as source,
        ):
            archive.start()
            source.start()
            archive.await_ready()
            source.await_ready()
            command = java_command(
                "container.tests.ArchiveRequests",
                [resolve_jar(), java_classes],
                properties={
                    "aeron.dir": str(aeron_dir),
                    "aeron.archive.control.channel": archive.control_channel if is_remote else "aeron:ipc",
                    "aeron.archive.control.response.channel": "aeron:udp?endpoint=127.0.0.1:0"
                    if is_remote
                    else "aeron:ipc",
                },
                arguments=[*arguments, f"source={source.control_channel}"],
            )
            with Process("requests", command, directory=directory) as requests:
                return_code = requests.start().wait(_RUN_LIMIT_S)
                lines = requests.output().splitlines()
                said = "\n".join([requests.tail(), archive.report(), source.report()])
                assert return_code == 0, said
                assert lines[-1:] == ["== end"], said
                assert archive.is_running, said
                return lines
    finally:
        ports.close()


def without_texts(lines: Sequence[str]) -> list[str]:
    """Lines of a run without the texts of errors: what came, in which order, with which codes."""
    return [line for line in lines if not line.startswith(_TEXT)]


def scenario(lines: Sequence[str], name: str) -> list[str]:
    """The lines of one scenario."""
    start = lines.index(f"== {name}") + 1
    end = next(index for index in range(start, len(lines)) if lines[index].startswith("== "))
    return list(lines[start:end])


def scenario_names(lines: Sequence[str]) -> list[str]:
    """The names of the scenarios of a run."""
    return [line.removeprefix("== ") for line in lines if line.startswith("== ")][:-1]
