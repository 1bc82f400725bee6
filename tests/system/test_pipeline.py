"""The pipeline's commands over what real clusters recorded: what they find, and what must not be missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from container.pipeline.audit import AuditReport
from container.recordings import open_member
from container.testing.cluster import Member
from container.testing.process import wait_until
from tests.plain_decoder import Frame, frames
from tests.soak.scenario import RECOVERY_LIMIT_S, Scenario
from tests.system.harness import Scenarios

PIPELINE = [sys.executable, "-m", "container", "pipeline", "--master", "local[2]"]
COMMAND_LIMIT_S = 300
MIB = 1024 * 1024
SMALL_SEGMENTS = {
    "aeron.archive.segment.file.length": "1m",
    "aeron.cluster.leader.heartbeat.timeout": "5s",
    "aeron.cluster.startup.canvass.timeout": "10s",
    "aeron.cluster.election.timeout": "2s",
}
LONG_MESSAGES = range(4_000, 12_000)

pytestmark = pytest.mark.timeout(900)


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


def frames_of(member: Member) -> list[Frame]:
    """All frames of a member's log, by the plain decoder."""
    opened = open_member(member.node.base_dir)
    descriptor, end = opened.log_descriptor(), opened.log_range().recorded_position
    return list(frames(Path(opened.archive_dir), descriptor.recording_id, 0, end, descriptor.segment_file_length))


def flip(member: Member, position: int) -> None:
    """Flip the bits of one byte of a member's log."""
    opened = open_member(member.node.base_dir)
    descriptor = opened.log_descriptor()
    base = position // descriptor.segment_file_length * descriptor.segment_file_length
    with Path(opened.archive_dir, f"{descriptor.recording_id}-{base}.rec").open("r+b") as file:
        file.seek(position - base)
        (byte,) = file.read(1)
        file.seek(position - base)
        file.write(bytes([byte ^ 0xFF]))


def audit(members: list[Member], report: Path, *, code: int = 0) -> AuditReport:
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
        assert (passed.verdict, [one.findings for one in passed.checks]) == ("pass", [[]] * 6)
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
