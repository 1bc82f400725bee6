"""Java's ClusterTool says of our node, word by word, what it says of Java's, and changes its files in the same way."""

from __future__ import annotations

import re

import pytest

from container.files.recording_log import read_recording_log
from container.testing.processes.local_archive import run_archive_tool
from container.testing.processes.local_cluster import Node
from tests.limits import LIMIT_S
from tests.system.conftest import NATIVE
from tests.system.harness import LEDGER_CLIENT, NodeFactory, release, run_ledger_client, start_tool
from tests.system.test_native_archive import PUTS, start_ledger

pytestmark = pytest.mark.slow

ENTRY_LENGTH = 64
COMMANDS = ("schedule 7 3600000", *PUTS[:5])
# What differs from run to run, and what our mark file says in its own words.
VARYING = (
    (r"\d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b\d{13,19}\b", "N"),
    (r"((?:\bpid|correlationId|sessionId)=)-?\d+", r"\1N"),
    (r"127\.0\.0\.\d+:\d+", "ENDPOINT"),
    (r"(authenticator|servicesClusterDir)='.*?'", r"\1"),
)


def said(member: Node, line: str) -> str:
    """Return what comes of one word: its status and its output, without what differs from run to run."""
    tool = start_tool(
        member,
        *line.split(),
        aeron_dir=str(member.aeron_dir),
        aeron_archive_control_channel=f"aeron:udp?endpoint={member.endpoints.archive}",
        aeron_archive_control_response_channel="aeron:udp?endpoint=127.0.0.1:0",
    )
    code = tool.wait(LIMIT_S)
    text = tool.output().replace(str(member.base_dir), "BASE").replace(str(member.pid), "PID")
    for varying, instead in VARYING:
        text = re.sub(varying, instead, text)
    return f"{line}: {code}\n{text}{tool.errors()}"


def life(member: Node) -> list[str]:
    """Return what the tool says in the life of a node: new, with snapshots, killed, aborted, sorted and seeded."""
    story: list[str] = []

    def say(*lines: str) -> None:
        story.extend(said(member, line) for line in lines)

    service = start_ledger(member, "python")
    client = member.start_java_client(LEDGER_CLIENT)
    client.read_line(LIMIT_S)
    say("describe", "pid", "list-members", "is-leader", "recording-log", "errors", "backup-query", "backup-query 1s")
    say("describe-latest-cm-snapshot", "invalidate-latest-snapshot", "sort-recording-log")
    for command in COMMANDS:
        client.write_line(command)
        client.read_line(LIMIT_S)
    say("snapshot", "recovery-plan 1", "recording-log", "describe-latest-cm-snapshot", "validate-recording-log")
    say("suspend", "suspend", "snapshot", "resume", "resume")
    say("snapshot", "invalidate-latest-snapshot", "recording-log", "snapshot")
    client.close_input()
    assert client.wait(LIMIT_S) == 0, client.tail()

    release(member, service)  # kill -9 of all
    first_snapshot = ("mark-invalid", "1")
    assert run_archive_tool(member.archive_dir, *first_snapshot, output_directory=member.base_dir).return_code == 0
    service = start_ledger(member, "python")
    say("validate-recording-log")  # which is answered when it begins
    member.wait_until(
        lambda: not all(entry.is_valid for entry in read_recording_log(member.cluster_dir) if entry.recording_id == 1),
        LIMIT_S,
        "the snapshot without a recording to be invalidated",
    )
    say("recording-log", "recovery-plan 1")
    story += run_ledger_client(member, "hash")
    say("abort")
    assert service.wait(LIMIT_S) == member.process.wait(LIMIT_S) == 0
    say("is-leader", "list-members", "snapshot")

    member.archive.stop()
    member.driver.stop()
    path = member.cluster_dir / "recording.log"
    content = path.read_bytes()
    entries = [content[offset : offset + ENTRY_LENGTH] for offset in range(0, len(content), ENTRY_LENGTH)]
    path.write_bytes(b"".join(reversed(entries)))
    say("recording-log", "sort-recording-log", "sort-recording-log", "recording-log")
    service = start_ledger(member, "python")
    story += run_ledger_client(member, "hash")
    say("shutdown")
    assert service.wait(LIMIT_S) == member.process.wait(LIMIT_S) == 0
    member.archive.stop()
    member.driver.stop()
    say("seed-recording-log-from-snapshot", "recording-log", "describe")
    start_ledger(member, "python")
    story += run_ledger_client(member, "hash")
    say("recording-log")
    return story


def test_the_tool_says_the_same_of_both_nodes(node: NodeFactory) -> None:
    ours = life(node(**NATIVE))
    assert len(ours) > 40
    assert sum(": 0\n" in said_of_it for said_of_it in ours) > 25
    assert ours == life(node(separate_processes=True))
