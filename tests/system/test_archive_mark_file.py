"""The archive's mark file beside that of Java's archive, and before the eyes of Java's archive and its tool."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from container.archive.server.archive_mark_file import MARK_FILE_NAME, ArchiveMarkFile, ensure_link_file
from container.errors import ClusterEvent, MarkFileError
from container.files.cnc_file import MarkFileStatus, read_mark_file
from container.files.error_log import DistinctErrorLog
from container.storage.file_storage import FileStorage
from container.testing.memory.manual_time import ManualClock
from container.testing.processes.local_cluster import Node
from container.transport.clocks import SystemClock
from tests.limits import LIMIT_S
from tests.system.harness import NodeFactory

ACTIVITY_TIMESTAMP = slice(16, 24)
LENGTH = 1_056_768
READY = 0x030100


def status(directory: Path) -> MarkFileStatus:
    return read_mark_file(directory / MARK_FILE_NAME)


def start_driver(node: Node) -> None:
    node.driver.start()
    node.await_driver()


def start_java(node: Node) -> None:
    """Start Java's archive and wait until its mark file shows it."""
    node.archive.start()

    def is_ready() -> bool:
        return any(found.pid == node.archive.pid and found.is_active for found in node.mark_files())

    node.archive.wait_until(is_ready, LIMIT_S, "Java's archive to be ready")


def fields(node: Node, **changes: Any) -> dict[str, Any]:
    """What the header of an archive with the node's settings has."""
    return {
        "archive_id": 0,
        "control_stream_id": 10,
        "local_control_stream_id": 10,
        "events_stream_id": 30,
        "control_channel": node.properties["aeron.archive.control.channel"],
        "local_control_channel": "aeron:ipc?term-length=64k",
        "aeron_dir": str(node.aeron_dir),
        **changes,
    }


def take(node: Node, directory: Path | None = None) -> ArchiveMarkFile:
    """Our mark file in the place of the node's archive's."""
    path = (directory or node.archive_dir) / MARK_FILE_NAME
    return ArchiveMarkFile(path, storage=FileStorage(), clock=SystemClock(), process_id=os.getpid(), **fields(node))


def tool(node: Node, command: str) -> str:
    """What Java's ArchiveTool prints for the node's archive directory."""
    arguments = [str(node.archive_dir), command]
    process = node.start_java_client("io.aeron.archive.ArchiveTool", arguments, name="archive-tool")
    assert process.wait(LIMIT_S) == 0, process.tail()
    return process.output()


def test_43_the_mark_file_is_the_one_that_java_writes(node: NodeFactory, tmp_path: Path) -> None:
    member = node(separate_processes=True)
    start_driver(member)
    start_java(member)
    by_java = bytearray((member.archive_dir / MARK_FILE_NAME).read_bytes())
    found = status(member.archive_dir)
    mark_file = ArchiveMarkFile(
        tmp_path / MARK_FILE_NAME,
        storage=FileStorage(),
        clock=ManualClock(epoch_ms=found.start_timestamp_ms),
        process_id=found.pid,
        **fields(member, archive_id=found.owner_id),
    )
    mark_file.signal_ready()
    ours = bytearray((tmp_path / MARK_FILE_NAME).read_bytes())
    assert len(ours) == LENGTH
    ours[ACTIVITY_TIMESTAMP] = by_java[ACTIVITY_TIMESTAMP] = bytes(8)
    assert ours[:8192].hex(" ") == by_java[:8192].hex(" ")
    assert ours == by_java


def test_44_java_and_we_hand_the_directory_over_in_both_directions(node: NodeFactory) -> None:
    member = node(separate_processes=True)
    start_driver(member)
    member.archive_dir.mkdir()
    failed = take(member)
    failed.signal_failed_start()
    failed.close()

    start_java(member)
    java = status(member.archive_dir)
    content = (member.archive_dir / MARK_FILE_NAME).read_bytes()
    with pytest.raises(MarkFileError, match=f"active mark file detected: .*its owner, pid {java.pid}, was alive at"):
        take(member)
    assert (member.archive_dir / MARK_FILE_NAME).read_bytes()[24:] == content[24:]
    member.archive.stop(LIMIT_S)

    ours = take(member)
    assert ours.former_owner == (java.start_timestamp_ms, java.pid)
    ours.signal_ready()
    assert DistinctErrorLog(ours).record(ClusterEvent("written by us")) == 1
    assert tool(member, "pid").split() == [str(os.getpid())]
    described = tool(member, "describe")
    for expected in (f"pid={os.getpid()}|", f"version={READY}|", f"aeronDirectory='{member.aeron_dir}'"):
        assert expected in described
    assert "written by us" in tool(member, "errors")

    ours.refresh(time.time_ns() // 1_000_000)
    member.archive.start()
    member.archive.wait(LIMIT_S)
    assert "active mark file detected" in member.archive.output() + member.archive.errors()
    ours.refresh(time.time_ns() // 1_000_000 + 1_000)

    ours.signal_terminated()
    ours.close()
    start_java(member)
    (saved,) = member.archive_dir.glob("archive-*-error.log")
    assert "written by us" in saved.read_text()


def test_43_java_follows_our_link(node: NodeFactory, tmp_path: Path) -> None:
    member = node(separate_processes=True)
    start_driver(member)
    member.archive_dir.mkdir()
    ours = take(member, tmp_path)
    ensure_link_file(FileStorage(), member.archive_dir, tmp_path)
    ours.signal_ready()
    assert tool(member, "pid").split() == [str(os.getpid())]
    ours.close()
    assert struct.unpack_from("<i", (tmp_path / MARK_FILE_NAME).read_bytes(), 8) == (READY,)
