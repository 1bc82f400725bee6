"""Our archive in real clusters: under Java's consensus module, killed, handed over to Java's and taken back, read by
Java's tools and by our own readers."""

from __future__ import annotations

import pytest

from container.testing.archive import ArchiveKind, run_archive_tool
from container.testing.cluster import Node
from container.testing.process import Process
from tests.recordings_world import rows_of
from tests.soak.checks import compare_snapshots, snapshots_of
from tests.soak.scenario import RECOVERY_LIMIT_S
from tests.system.harness import (
    JAVA_LEDGER_SERVICE,
    LEDGER_SERVICE,
    LIMIT_S,
    NodeFactory,
    Scenarios,
    release,
    run_ledger_client,
    start_tool,
)

pytestmark = pytest.mark.timeout(240)

SESSION_MESSAGE = 1
PUTS = [f"put {key} {key * 1_000_003}" for key in range(100)]


def start_ledger(member: Node, service: str) -> Process:
    """Start a node with the ledger service in Java or in Python."""
    member.start()
    started = (
        member.start_java_service(JAVA_LEDGER_SERVICE) if service == "java" else member.start_service(LEDGER_SERVICE)
    )
    member.await_leader()
    return started


@pytest.mark.parametrize("service", ["java", "python"])
def test_a_cluster_of_one_lives_through_a_kill_and_a_shutdown(node: NodeFactory, service: str) -> None:
    member = node(archive="native")
    started = start_ledger(member, service)
    before = run_ledger_client(member, *PUTS, "hash")[-1]
    assert member.cluster_tool("snapshot").return_code == 0
    after = run_ledger_client(member, "put 7 8", "hash")[-1]
    assert after != before
    release(member, started)  # kill -9 of all
    started = start_ledger(member, service)
    assert run_ledger_client(member, "hash") == [after]
    assert member.cluster_tool("shutdown").return_code == 0
    started.wait(40)
    member.process.wait(40)
    assert member.archive.stop() == 0
    member.driver.stop()
    release(member, started)
    start_ledger(member, service)
    assert run_ledger_client(member, "hash") == [after]
    rows = [row for row in rows_of(member.base_dir, "messages") if row["template_id"] == SESSION_MESSAGE]
    assert len(rows) == len(PUTS) + 5


def test_java_takes_the_directory_over_and_gives_it_back_in_the_middle_of_a_cluster_s_life(node: NodeFactory) -> None:
    first = node(archive="java")
    kinds: list[ArchiveKind] = ["java", "native", "java", "native"]
    expected: list[str] = []
    for number, kind in enumerate(kinds):
        member = node(archive=kind, base_dir=first.base_dir, members=first.members) if number else first
        started = start_ledger(member, "python")
        assert run_ledger_client(member, "hash") == expected or not number
        expected = [run_ledger_client(member, *PUTS[number : number + 40], f"put 1 {number}", "hash")[-1]]
        if number % 2 == 0:
            assert member.cluster_tool("snapshot").return_code == 0
        release(member, started)  # kill -9 of all


def test_java_s_tools_accept_the_directory_live_stopped_and_killed(node: NodeFactory) -> None:
    member = node(archive="native")
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("snapshot").return_code == 0

    def tool(*arguments: str, answer: str | None = None) -> str:
        code, output = run_archive_tool(member.archive_dir, *arguments, output_directory=member.base_dir, answer=answer)
        assert code == 0, f"{arguments}: {output}"
        assert "ERR" not in output, output
        return output

    for arguments in (["describe"], ["describe-all"], ["dump"], ["count-entries"], ["errors"]):
        tool(*arguments)
    assert tool("pid").strip() == str(member.archive.pid)
    assert tool("count-entries").strip() == "3"
    for tool_name in ("recovery-plan 1", "describe-latest-cm-snapshot", "validate-recording-log"):
        started_tool = start_tool(
            member,
            *tool_name.split(),
            aeron_archive_control_channel=f"aeron:udp?endpoint={member.endpoints.archive}",
            aeron_archive_control_response_channel="aeron:udp?endpoint=127.0.0.1:0",
        )
        assert started_tool.wait(LIMIT_S) == 0, started_tool.tail()
    release(member, started)  # kill -9 of all
    verified = tool("verify", "-a")
    assert verified.count("OK") == 3, verified
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("shutdown").return_code == 0
    started.wait(40)
    member.process.wait(40)
    assert member.archive.stop() == 0
    assert tool("verify", "-a").count("OK") >= 3
    tool("compact", answer="y")
    tool("delete-orphaned-segments", answer="y")
    member.driver.stop()
    release(member, started)
    started = start_ledger(member, "python")
    assert run_ledger_client(member, "get 7")[0].split()[:3] == ["GET", "7", str(7 * 1_000_003)]


@pytest.mark.slow
def test_three_members_have_archives_of_both_kinds(scenarios: Scenarios) -> None:
    kinds: list[ArchiveKind] = ["java", "native", "native"]
    with scenarios(archives=kinds) as scenario:
        leader = scenario.leader()
        scenario.await_progress()
        leader.kill()
        second = scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
        scenario.await_progress()
        scenario.revive(leader)
        scenario.recover(leader)
        wiped = next(member for member in scenario.cluster.members if member not in (second, scenario.leader()))
        wiped.kill()
        scenario.await_progress()
        scenario.cluster.take_snapshot()
        scenario.revive(wiped, wiped=True)
        scenario.recover(wiped)
        compare_snapshots(scenario.cluster.members, max(snapshots_of(scenario.leader())))
        scenario.finish()
