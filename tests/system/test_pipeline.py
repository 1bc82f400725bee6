"""The pipeline's commands over what real clusters recorded: what they find, and what must not be missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from container.pipeline.audit import CHECKS, AuditReport
from container.pipeline.manifest import read_manifest
from container.recordings import open_member
from container.testing.processes.local_cluster import LocalMember, Node
from container.testing.processes.process import wait_until
from tests.plain_decoder import Frame, frames
from tests.recordings_world import rows_of
from tests.soak.scenario import RECOVERY_LIMIT_S, Scenario
from tests.system.harness import ECHO_SERVICE, CommandClient, NodeFactory, Scenarios, release, start

PIPELINE = [sys.executable, "-m", "container", "pipeline", "--master", "local[2]"]
COMMAND_LIMIT_S = 600
MIB = 1024 * 1024
SMALL_SEGMENTS = {
    "aeron.archive.segment.file.length": "1m",
    "aeron.cluster.leader.heartbeat.timeout": "5s",
    "aeron.cluster.startup.canvass.timeout": "10s",
    "aeron.cluster.election.timeout": "2s",
}
LONG_MESSAGES = range(4_000, 12_000)
MESSAGES = 1_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def pipeline(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command of the pipeline to its end."""
    done = subprocess.run(
        [*PIPELINE, *words], capture_output=True, text=True, timeout=COMMAND_LIMIT_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def append(scenario: Scenario, length: int) -> None:
    """Let the clients send long messages until the log is so much longer."""
    leader = scenario.leader()
    begin = leader.node.commit_position or 0
    for client in scenario.clients:
        client.padding = LONG_MESSAGES
    what = f"the log to grow from {begin} by {length}"
    wait_until(lambda: (leader.node.commit_position or 0) > begin + length, RECOVERY_LIMIT_S, what)
    for client in scenario.clients:
        client.padding = None


def frames_of(member: LocalMember) -> list[Frame]:
    """All frames of a member's log, by the plain decoder."""
    opened = open_member(member.node.base_dir)
    descriptor, end = opened.log_descriptor(), opened.log_range().recorded_position
    return list(frames(Path(opened.archive_dir), descriptor.recording_id, 0, end, descriptor.segment_file_length))


def flip(member: LocalMember, position: int) -> None:
    """Flip the bits of one byte of a member's log."""
    opened = open_member(member.node.base_dir)
    descriptor = opened.log_descriptor()
    base = position // descriptor.segment_file_length * descriptor.segment_file_length
    with Path(opened.archive_dir, f"{descriptor.recording_id}-{base}.rec").open("r+b") as file:
        file.seek(position - base)
        (byte,) = file.read(1)
        file.seek(position - base)
        file.write(bytes([byte ^ 0xFF]))


def audit(members: list[LocalMember], report: Path, *, code: int = 0) -> AuditReport:
    """The report of the command's audit of all members, in blocks of 64 KiB."""
    paths = [str(member.node.base_dir) for member in members]
    pipeline("audit", *paths, "--block", "64k", "--report", str(report), code=code)
    return msgspec.json.decode(report.with_suffix(".json").read_bytes(), type=AuditReport)


def test_the_audit_passes_members_that_caught_up_and_finds_a_byte_behind(scenarios: Scenarios, tmp_path: Path) -> None:
    with scenarios(properties=SMALL_SEGMENTS) as scenario:
        late = scenario.let_ours_lead()
        late.kill()
        second = scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=late)
        append(scenario, 5 * MIB)
        # Another leader's term, so that the first one is replicated from its archive and not recorded as it was sent.
        second.kill()
        scenario.revive(second)
        scenario.cluster.await_leader(RECOVERY_LIMIT_S)
        append(scenario, 2 * MIB)
        scenario.recover(late)
        append(scenario, MIB)
        scenario.finish()
        scenario.cluster.shut_down()
        members = scenario.cluster.members

        theirs = {frame.position: frame.session_id for frame in frames_of(second)}
        differing = [one for one in frames_of(late) if theirs.get(one.position, one.session_id) != one.session_id]
        assert len({frame.position // MIB for frame in differing}) > 4, "other session ids in several segments"
        passed = audit(members, tmp_path / "passed.html")
        assert (passed.verdict, [one.findings for one in passed.checks]) == ("pass", [[]] * len(CHECKS))
        assert "and 0 of these differ" in passed.find("log").summary

        last = next(one for one in reversed(frames_of(late)) if one.payload is not None and len(one.payload) > 100)
        assert last.position > differing[-1].position
        flipped = last.position + 32 + 80
        flip(late, flipped)
        failed = audit(members, tmp_path / "failed.html", code=1)
        found = [
            (check.name, one.state, one.member_id, one.log_position)
            for check in failed.checks
            for one in check.findings
        ]
        assert failed.verdict == "fail"
        assert found == [("log", "fail", late.member_id, flipped)]


def echo(node: Node, count: int) -> None:
    """Let a client send messages of 100 bytes and get each of them back."""
    with CommandClient(node) as client:
        for number in range(count):
            client.cluster.send(b"%100d" % number)
            client.cluster.poll_egress()
        client.poll_until(lambda: len(client.messages) == count, f"{count} echoes")


def ingested(table: Path) -> int:
    """How many rows a table has by its manifest."""
    manifest = read_manifest(table)
    assert manifest is not None
    return manifest.row_count


def test_all_messages_of_a_member_that_was_stopped_are_everywhere(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    service = start(member, ECHO_SERVICE)
    echo(member, MESSAGES)
    service.stop()
    member.stop()  # SIGTERM: no snapshot, and the term stays open
    log = open_member(member.base_dir).log()
    assert log.known_position < MESSAGES * 100 < log.log_range.committed_position
    assert log.log_range.committed_position == log.log_range.recorded_position

    rows = rows_of(member.base_dir, "session_messages", committed=None)
    assert [row["committed"] for row in rows] == [True] * MESSAGES

    path, view = str(member.base_dir), ("--view", "session_messages")
    done = pipeline("ingest", path, "--table", str(tmp_path / "table"), *view)
    assert ingested(tmp_path / "table") == MESSAGES
    recorded = log.log_range.recorded_position
    assert f"is recorded to {recorded} and known to be committed to {log.known_position}" in done.stderr
    pipeline("ingest", path, "--table", str(tmp_path / "known"), *view, "--committed", "known")
    assert ingested(tmp_path / "known") == 0

    service_name = ("--service", "examples.echo_service:EchoService")
    done = pipeline("replay", path, *service_name, "--out", str(tmp_path / "replay"))
    assert f"EGRESS: {MESSAGES}\n" in done.stdout
    assert f"is recorded to {recorded} and known to be committed to {log.known_position}" in done.stderr

    done = pipeline("analytics", path, "--out", str(tmp_path / "analytics"))
    sessions = pq.read_table(tmp_path / "analytics" / "per_session").to_pylist()
    assert sum(row["messages"] for row in sessions) == MESSAGES
    assert f"is recorded to {recorded} and known to be committed to {log.known_position}" in done.stderr


def test_an_ingest_does_not_go_on_in_the_log_of_a_cluster_that_was_wiped(node: NodeFactory, tmp_path: Path) -> None:
    member = node()
    service = start(member, ECHO_SERVICE)
    echo(member, 50)
    release(member, service)
    words = ("ingest", str(member.base_dir), "--table", str(tmp_path / "table"), "--view", "session_messages")
    pipeline(*words)
    assert ingested(tmp_path / "table") == 50
    for directory in (member.aeron_dir, member.archive_dir, member.cluster_dir):
        shutil.rmtree(directory, ignore_errors=True)
    member.start()
    service.start()
    member.await_leader()
    echo(member, 200)
    done = pipeline(*words, code=1)
    assert "that was another log: recording 0 of 20" in done.stderr
    assert "The cluster was wiped and started again" in done.stderr
    assert ingested(tmp_path / "table") == 50
    pipeline(*words[:3], str(tmp_path / "new"), *words[4:])
    assert ingested(tmp_path / "new") == 200
