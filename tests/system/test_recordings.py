"""Recordings of real clusters as rows: beside what the services saw, and beside Java's ArchiveTool and ClusterTool."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from container.client import AeronCluster
from container.recordings import open_member
from container.testing.processes.java_tools import JVM_FLAGS, java_command, resolve_jar
from container.testing.processes.local_cluster import LocalCluster, Node
from container.testing.processes.process import Process, wait_until
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog
from tests.client_world import Counting
from tests.limits import LIMIT_S
from tests.plain_decoder import message_row, messages
from tests.recordings_world import archive_mark, rows_of
from tests.soak.scenario import PYTHON_LEDGER
from tests.system.harness import (
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    Parts,
    await_report,
    recordings,
    release,
    reports,
    start,
)

pytestmark = pytest.mark.nodes("native", "java")

CHECKSUM_PROPERTIES = {
    "aeron.archive.record.checksum": "io.aeron.archive.checksum.Crc32",
    "aeron.archive.replay.checksum": "io.aeron.archive.checksum.Crc32",
}
COMMANDS = 200
CRC32 = "io.aeron.archive.checksum.Crc32"
# Its class reaches into the Java library.
CHECKSUM_JVM_FLAGS = (*JVM_FLAGS, "--add-opens=java.base/java.util.zip=ALL-UNNAMED")


# What Java's tools say


def archive_tool(archive_dir: Path, *arguments: str, code: int = 0) -> str:
    """Run Java's ArchiveTool on an archive and return what it prints."""
    command = java_command(
        "io.aeron.archive.ArchiveTool",
        [resolve_jar()],
        arguments=[str(archive_dir), *arguments],
        flags=CHECKSUM_JVM_FLAGS,
    )
    result = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S, stdin=subprocess.DEVNULL)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def dumped_frames(archive_dir: Path, recording_id: int) -> list[tuple[int, int, bytes | None]]:
    """Position, length and payload (none for padding) of each frame of a recording, by ArchiveTool's dump."""
    text = archive_tool(archive_dir, "dump", str(2**40))
    recording = text.split(f"\nRecording {recording_id}\n")[1].split("\nRecording ")[0]
    found = []
    for part in recording.split("\nFrame at position [")[1:]:
        position, _, rest = part.partition("]")
        length = re.search(r"data at offset \[\d+\] with length = (\d+)", rest)
        if length is None:
            continue
        rows = re.findall(r"^\|[0-9a-f]{8}\| ((?:[0-9a-f]{2} )+)", rest, re.M)
        payload = None if "PADDING FRAME" in rest else bytes.fromhex("".join(rows))
        found.append((int(position), int(length[1]), payload))
    return found


def fields_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=([^ ,}]*)", text))


def logged_entries(node: Node) -> list[dict[str, Any]]:
    """The entries of the recording log by ClusterTool, in the order of the file."""
    result = node.cluster_tool("recording-log")
    assert result.return_code == 0, result.output
    entries = [fields_of(text) for text in re.findall(r"Entry\{[^}]*\}", result.output)]
    rows = [
        {
            "entry_index": int(entry["entryIndex"]),
            "recording_id": int(entry["recordingId"]),
            "leadership_term_id": int(entry["leadershipTermId"]),
            "term_base_log_position": int(entry["termBaseLogPosition"]),
            **({} if entry["logPosition"] == "-1" else {"log_position": int(entry["logPosition"])}),
            "timestamp": int(entry["timestamp"]),
            "service_id": int(entry["serviceId"]),
            "entry_type": entry["type"],
            "is_valid": entry["isValid"] == "true",
        }
        for entry in entries
    ]
    return sorted(rows, key=lambda row: int(row["entry_index"]))


def described_snapshot(node: Node) -> list[dict[str, str]]:
    """The latest snapshot of the consensus module as ClusterTool describes it: a dict for each thing in it."""
    result = node.cluster_tool("describe-latest-cm-snapshot")
    assert result.return_code == 0, result.output
    kinds = "Consensus Module State|Cluster Session|Timer|Pending Message Tracker|Pending Message"
    found = re.findall(rf"^({kinds}):(.*)$", result.output, re.M)
    return [{"item": kind, **fields_of(text)} for kind, text in found]


# What a member's service saw


def seen(service: Process) -> dict[str, list[dict[str, Any]]]:
    """What the reporting service was called with, in the form of rows."""
    everything = reports(service)
    by_name: dict[str, list[dict[str, Any]]] = {}
    for report in everything:
        by_name.setdefault(report["callback"], []).append(report)
    return {
        "session_messages": [
            {
                "log_position": report["header_position"],
                "session": report["session_id"],
                "timestamp": report["timestamp"],
                "payload_length": report["length"],
            }
            for report in by_name.get("on_session_message", [])
        ],
        "timers": [
            {name: report[name] for name in ("log_position", "correlation_id", "timestamp")}
            for report in by_name.get("on_timer_event", [])
        ],
        "opened": [
            {name: report[name] for name in ("log_position", "session_id", "timestamp")}
            for report in by_name.get("on_session_open", [])
        ],
        "closed": [
            {name: report[name] for name in ("log_position", "session_id", "reason")}
            for report in by_name.get("on_session_close", [])
        ],
        "terms": [
            {name: report[name] for name in ("log_position", "leadership_term_id", "leader_member_id", "time_unit")}
            for report in by_name.get("on_new_leadership_term_event", [])
        ],
    }


def recorded(path: Path, begin: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The same from the recordings, of what is committed, from a log position on."""

    def committed(view: str) -> list[dict[str, Any]]:
        return [row for row in rows_of(path, view) if row["committed"] and row["log_position"] > begin]

    sessions = committed("sessions")
    return {
        "session_messages": [
            {
                "log_position": row["log_position"],
                "session": row["cluster_session_id"] if "service_id" not in row else None,
                "timestamp": row["timestamp"],
                "payload_length": len(row["payload"]),
            }
            for row in committed("session_messages")
        ],
        "timers": [
            {name: row[name] for name in ("log_position", "correlation_id", "timestamp")} for row in committed("timers")
        ],
        "opened": [
            {name: row[name] for name in ("log_position", "timestamp")} | {"session_id": row["cluster_session_id"]}
            for row in sessions
            if row["event"] == "OPEN"
        ],
        "closed": [
            {
                "log_position": row["log_position"],
                "session_id": row["cluster_session_id"],
                "reason": row["close_reason"],
            }
            for row in sessions
            if row["event"] == "CLOSE"
        ],
        "terms": [
            {name: row[name] for name in ("log_position", "leadership_term_id", "leader_member_id", "time_unit")}
            for row in committed("messages")
            if row["template_id"] == 24
        ],
    }


def await_applied(node: Node, service: Process) -> int:
    """Wait until the service has seen all that is committed, and return that log position."""

    def last_position() -> int:
        position = node.commit_position
        all_reports = reports(service)
        return position if position and all_reports and all_reports[-1]["log_position"] == position else 0

    return service.wait_until(lambda: last_position() or None, LIMIT_S, "the service to see all that is committed")


def exercise(node: Node, service: Process) -> None:
    """Messages of many lengths, from clients and the service; timers; sessions that end in different ways."""
    with CommandClient(node) as client:
        for length in (0, 1, 1000, 1312, 1313, 5000, 60_000):
            assert client.do("length", text="x" * length) == length
        for correlation_id in (3, -4):
            client.do("schedule", correlation_id=correlation_id, delay_ms=1)
        for length in (0, 10, 3000):
            assert client.do("offer", length=length) > 0
        with CommandClient(node) as victim:
            client.do("close", session_id=victim.session_id)
            await_report(service, "on_session_close", session_id=victim.session_id)
    await_report(service, "on_timer_event", count=2)
    await_report(service, "on_session_close", session_id=client.session_id)


def test_a_members_recordings_are_what_its_service_saw_and_what_javas_tools_say(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    exercise(member, service)

    # While it runs: recorded and committed position come from its counters.
    position = await_applied(member, service)
    log_range = open_member(member.base_dir).log_range()
    assert (log_range.start_position, log_range.committed_position) == (0, position)
    assert log_range.recorded_position >= position
    assert recorded(member.base_dir) == seen(service)
    assert open_member(member.base_dir).member_id == 0

    with CommandClient(member) as client:
        deadline = client.do("schedule", correlation_id=77, delay_ms=3_600_000)
        client.do("pad", length=200_000)
        member.take_snapshot()
        snapshot_rows = rows_of(member.base_dir, "snapshots")
        compare_snapshot(member, snapshot_rows, client.session_id, deadline)
        assert rows_of(member.base_dir, "recording_log") == logged_entries(member)
    await_report(service, "on_session_close", session_id=client.session_id)
    last_position = await_applied(member, service)
    before = seen(service)

    # Killed: how far it was committed is now known up to the snapshot only. It was alone, so all of it is.
    release(member, service)
    assert open_member(member.base_dir).log_range().committed_position == last_position
    crashed = open_member(member.base_dir, committed="known").log_range()
    snapshot_position = snapshot_rows[0]["log_position"]
    assert (crashed.recorded_position, crashed.committed_position) == (last_position, snapshot_position)
    rows = rows_of(member.base_dir, "messages")
    assert {row["committed"] for row in rows if row["log_position"] > snapshot_position} == {False}
    assert [row["log_position"] for row in rows if row["template_id"] == 1] == [
        row["log_position"] for row in before["session_messages"]
    ]

    # Started again: a second term in the same recording, extended.
    member.start()
    service.start()
    member.await_leader()
    exercise(member, service)
    await_applied(member, service)
    assert recorded(member.base_dir, snapshot_position) == seen(service)
    service_entries = [row for row in rows_of(member.base_dir, "terms") if row["source"] == "recording_log"]
    log_terms = [row for row in rows_of(member.base_dir, "terms") if row["source"] == "log"]
    assert [row["leadership_term_id"] for row in log_terms] == [0, 1]
    for name in ("leadership_term_id", "term_base_log_position", "recording_id"):
        assert [row[name] for row in log_terms] == [row[name] for row in service_entries]
    service.kill()
    member.kill()
    compare_with_archive_tool(member)


def test_recordings_with_checksums_are_read_like_others(node: NodeFactory) -> None:
    member = node(properties=CHECKSUM_PROPERTIES, jvm_flags=CHECKSUM_JVM_FLAGS)
    service = start(member, REPORTING_SERVICE)
    exercise(member, service)
    await_applied(member, service)
    assert recorded(member.base_dir) == seen(service)
    service.kill()
    member.kill()
    frames = [row for row in rows_of(member.base_dir, "frames") if row["type"] == "DATA"]
    # The archive records the sum of a frame, up to where the next one begins, in place of its session id.
    sums = [zlib.crc32(row["payload"].ljust(-(-len(row["payload"]) // 32) * 32, b"\0")) for row in frames]
    assert [row["session_id"] & 0xFFFF_FFFF for row in frames] == sums
    assert len(set(sums)) > 10
    archive_tool(member.archive_dir, "verify", "-a", "-checksum", CRC32)


def compare_snapshot(member: Node, rows: list[dict[str, Any]], session_id: int, deadline: int) -> None:
    """The snapshots' rows beside ClusterTool's description and beside what is known of the service."""
    entries = [row for row in rows if row["item"] == "ENTRY"]
    assert [(row["service_id"], row["is_complete"], row["is_valid"]) for row in entries] == [
        (0, True, True),
        (-1, True, True),
    ]
    of_module = [row for row in rows if row["service_id"] == -1 and row["item"] not in ("ENTRY", "MARKER")]
    names = {
        "CONSENSUS_MODULE": ("Consensus Module State", "nextSessionId", "next_session_id"),
        "CLUSTER_SESSION": ("Cluster Session", "clusterSessionId", "cluster_session_id"),
        "TIMER": ("Timer", "deadline", "deadline"),
        "PENDING_MESSAGE_TRACKER": ("Pending Message Tracker", "nextServiceSessionId", "next_service_session_id"),
    }
    described = described_snapshot(member)
    assert [(names[row["item"]][0], str(row[names[row["item"]][2]])) for row in of_module] == [
        (thing["item"], thing[next(n[1] for n in names.values() if n[0] == thing["item"])]) for thing in described
    ]
    (session,) = [row for row in of_module if row["item"] == "CLUSTER_SESSION"]
    (described_session,) = [thing for thing in described if thing["item"] == "Cluster Session"]
    assert session["cluster_session_id"] == session_id
    for name, java_name in (
        ("correlation_id", "correlationId"),
        ("opened_log_position", "openedLogPosition"),
        ("response_stream_id", "responseStreamId"),
        ("response_channel", "responseChannel"),
    ):
        assert str(session[name]) == described_session[java_name]
    assert "close_reason" not in session
    (timer,) = [row for row in of_module if row["item"] == "TIMER"]
    assert (timer["correlation_id"], timer["deadline"]) == (77, deadline)
    of_service = [row for row in rows if row["service_id"] == 0]
    (client_session,) = [row for row in of_service if row["item"] == "CLIENT_SESSION"]
    assert client_session["cluster_session_id"] == session_id
    assert client_session["response_channel"] == session["response_channel"]
    data = [row["payload"] for row in of_service if row["item"] == "SERVICE_DATA"]
    assert data == member.snapshot_messages()[-len(data) :]
    assert sum(map(len, data)) > 200_000


def compare_with_archive_tool(member: Node) -> None:
    """The log and the catalog beside ArchiveTool's dump, describe and verify."""
    path = member.base_dir
    log_id = open_member(path).log_recording_id()
    frames = [(row["begin_position"], row["frame_length"] - 32, row.get("payload")) for row in rows_of(path, "frames")]
    assert dumped_frames(member.archive_dir, log_id) == frames
    recorded_to = open_member(path).log_range().recorded_position
    archive_tool(member.archive_dir, "verify", "-a")
    # Verify has written where the killed archive's recordings end: where we found it.
    rows = rows_of(path, "recordings")
    assert rows[log_id]["stop_position"] == recorded_to
    assert recordings(member) == [
        (row["recording_id"], row["start_position"], row["stop_position"], row["stream_id"], row["original_channel"])
        for row in rows
    ]


type ClusterFactory = Callable[..., LocalCluster]


@pytest.fixture
def cluster() -> Iterator[ClusterFactory]:
    """A factory of clusters; all end with the test."""
    clusters: list[LocalCluster] = []

    def make(*arguments: Any, **settings: Any) -> LocalCluster:
        clusters.append(LocalCluster(*arguments, **settings))
        return clusters[-1]

    yield make
    for made in clusters:
        made.close()


def test_members_logs_agree_over_the_death_of_a_leader(cluster: ClusterFactory, parts: Parts) -> None:
    three = cluster([PYTHON_LEDGER], **parts).start()
    leader = three.await_ready()
    three.start_client_driver()
    answers = Counting()
    settings = three.client_settings()
    with AeronCluster.connect(listener=answers, message_timeout=2 * LIMIT_S, **settings) as client:
        for index in range(COMMANDS):
            client.send(struct.pack("<Bqqqq", 4, 1, 0, 0, 0) + bytes(index * 20))
            client.poll_egress()

        def all_are_answered() -> bool:
            client.poll_egress()
            return answers.count >= COMMANDS

        wait_until(all_are_answered, LIMIT_S, f"{COMMANDS} answers of the leader")
        leader.kill()
        three.await_leader(other_than=leader)
        leader.restart()
        three.await_ready()
        three.take_snapshot()
    three.shut_down()
    paths = [member.node.base_dir for member in three.members]
    members = [open_member(path) for path in paths]
    assert [member.member_id for member in members] == [0, 1, 2]
    logs = []
    for member, path in zip(members, paths, strict=True):
        log_range = member.log_range()
        assert log_range.committed_position == log_range.recorded_position
        rows = rows_of(path, "messages")
        assert {row["committed"] for row in rows} == {True}
        descriptor = member.log_descriptor()
        plain = messages(
            Path(member.archive_dir),
            descriptor.recording_id,
            0,
            log_range.recorded_position,
            descriptor.segment_file_length,
        )
        assert [{n: v for n, v in row.items() if n != "committed"} for row in rows] == [
            message_row(*message) for message in plain
        ]
        logs.append([{n: v for n, v in row.items() if n != "committed"} for row in rows])
    shortest = min(log[-1]["log_position"] for log in logs)
    common = [[row for row in log if row["log_position"] <= shortest] for log in logs]
    assert common[0] == common[1] == common[2]
    terms = [row["leadership_term_id"] for row in common[0] if row["template_id"] == 24]
    assert terms == sorted(set(terms))
    assert len(terms) >= 2
    assert sum(row["template_id"] == 1 for row in common[0]) >= COMMANDS


@pytest.mark.parametrize("checksum", [False, True])
def test_what_the_generator_writes_is_verified_and_dumped_by_java(tmp_path: Path, checksum: bool) -> None:
    writer = RecordingWriter(tmp_path, checksum=checksum, initial_term_id=2**31 - 3, segment_length=256 * 1024)
    writer.append_session_messages(700, payload_length=0, payload_length_max=4000, session_count=5)
    writer.append_padding(96)
    writer.append_session_messages(3, payload_length=100)
    writer.flush()
    write_catalog(tmp_path, [descriptor_of(writer)], checksum=checksum)
    (tmp_path / "archive-mark.dat").write_bytes(archive_mark())
    assert writer.position > 4 * writer.segment_length
    arguments = ["-a", "-checksum", CRC32] if checksum else ["-a"]
    assert "(recordingId=0) OK" in archive_tool(tmp_path, "verify", *arguments)
    rows = rows_of(tmp_path, "frames")
    assert dumped_frames(tmp_path, 0) == [
        (row["begin_position"], row["frame_length"] - 32, row.get("payload")) for row in rows
    ]
    # A flipped bit is found by both.
    with (tmp_path / "0-262144.rec").open("r+b") as file:
        file.seek(32 * 1024)
        file.write(b"\xff" * 32)
    if checksum:
        archive_tool(tmp_path, "verify", *arguments, code=255)
