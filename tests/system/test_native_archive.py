"""Our archive in real clusters: under Java's consensus module, killed, handed over to Java's and taken back, read by
Java's tools and by our own readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from container.files.catalog import read_catalog
from container.files.recording_log import read_recording_log
from container.spark import FORMAT, open_session
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.java_tools import java_command, resolve_jar
from container.testing.processes.local_archive import ArchiveKind, LocalArchive, run_archive_tool
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.recordings_world import rows_of
from tests.soak.checks import compare_snapshots, snapshots_of
from tests.soak.scenario import RECOVERY_LIMIT_S
from tests.system.archive_requests import start_driver
from tests.system.harness import (
    JAVA_LEDGER_SERVICE,
    LEDGER_SERVICE,
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    Scenarios,
    module_errors,
    release,
    reports,
    run_ledger_client,
    snapshot_recordings,
    start_tool,
)

SESSION_MESSAGE, LOG_STREAM_ID = 1, 100
PUTS = [f"put {key} {key * 1_000_003}" for key in range(100)]


def start_ledger(member: Node, service: str) -> Process:
    """Start a node with the ledger service in Java or in Python."""
    member.start()
    started = (
        member.start_java_service(JAVA_LEDGER_SERVICE) if service == "java" else member.start_service(LEDGER_SERVICE)
    )
    member.await_leader()
    return started


def messages_in(base_dir: Path) -> list[dict[str, Any]]:
    """The messages of a log; how much of it is known to be committed is another thing."""
    return [
        {name: value for name, value in row.items() if name != "committed"} for row in rows_of(base_dir, "messages")
    ]


@pytest.mark.slow  # the directory is taken over by Java in a shorter one below
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
    started.wait(LIMIT_S)
    member.process.wait(LIMIT_S)
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


@pytest.mark.nodes("native", "java")
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
    started.wait(LIMIT_S)
    member.process.wait(LIMIT_S)
    assert member.archive.stop() == 0
    assert tool("verify", "-a").count("OK") >= 3
    tool("compact", answer="y")
    tool("delete-orphaned-segments", answer="y")
    member.driver.stop()
    release(member, started)
    started = start_ledger(member, "python")
    assert run_ledger_client(member, "get 7")[0].split()[:3] == ["GET", "7", str(7 * 1_000_003)]


@pytest.mark.parametrize("how", ["killed", pytest.param("closed", marks=pytest.mark.slow)])
def test_a_consensus_module_ends_with_its_archive(node: NodeFactory, how: str) -> None:
    member = node(archive="native")
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:5])
    if how == "killed":
        member.archive.kill()
    else:
        assert member.archive.stop() == 0
    member.process.wait(LIMIT_S)
    started.wait(LIMIT_S)
    assert "local archive is not connected" in "\n".join(module_errors(member))
    release(member, started)
    start_ledger(member, "python")
    assert run_ledger_client(member, "get 3")[0].split()[:3] == ["GET", "3", str(3 * 1_000_003)]


@pytest.mark.slow
def test_two_services_of_ours_have_snapshots_of_their_own(node: NodeFactory) -> None:
    member = node(archive="native", service_count=2)
    silent = {"AERON_CLUSTER_SERVICE_RESPONDER": "false"}

    def start_both() -> list[Process]:
        member.start()
        services = [
            member.start_service(REPORTING_SERVICE, service_id=number, environment=silent if number else None)
            for number in range(2)
        ]
        member.await_leader()
        return services

    services = start_both()
    with CommandClient(member) as client:
        assert client.do("pad", length=20) == 20
        assert member.cluster_tool("snapshot").return_code == 0
    assert sorted(snapshot_recordings(member)) == [-1, 0, 1]
    release(member, *services)  # kill -9 of all
    for service in start_both():
        assert reports(service, "on_start")[0]["state"] == [1, 0, 20]


@pytest.mark.slow
def test_java_s_backup_takes_everything_and_a_node_starts_from_it(
    node: NodeFactory, tmp_path: Path, java_classes: Path
) -> None:
    member = node(archive="native")
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("snapshot").return_code == 0
    expected = run_ledger_client(member, "put 7 8", "hash")[-1]
    backup_dir = back_up(member, tmp_path, java_classes)
    release(member, started)
    restored = node(archive="native", base_dir=backup_dir, members=member.members)
    restored.release_mark_files()
    start_ledger(restored, "python")
    assert run_ledger_client(restored, "hash")[-1] == expected


def back_up(member: Node, tmp_path: Path, java_classes: Path) -> Path:
    """Have Java's ClusterBackup copy a member into an archive of ours; return the directory of the copy."""
    with running_backup(member, tmp_path, java_classes) as backup_dir:
        return backup_dir


@contextmanager
def running_backup(member: Node, tmp_path: Path, java_classes: Path) -> Iterator[Path]:
    """Run Java's ClusterBackup for a ``with`` block, which begins when it has copied a member into this directory."""
    backup_dir = tmp_path / "backup"
    with (
        closing(PortReservation()) as ports,
        start_driver(tmp_path),
        LocalArchive("native", backup_dir, tmp_path / "driver") as archive,
    ):
        archive.start().await_ready()
        command = java_command(
            "container.tests.Backup",
            [resolve_jar(), java_classes],
            properties={
                "aeron.dir": str(tmp_path / "driver"),
                "aeron.cluster.dir": str(backup_dir / "cluster"),
                "aeron.cluster.consensus.endpoints": member.endpoints.consensus,
                "aeron.cluster.consensus.channel": f"aeron:udp?endpoint=localhost:{ports.take()}",
                "aeron.cluster.backup.catchup.endpoint": "localhost:0",
                "aeron.archive.local.control.channel": "aeron:ipc",
                "aeron.archive.control.channel": "aeron:udp",
                "aeron.archive.control.response.channel": "aeron:udp?endpoint=localhost:0",
            },
        )
        with Process("backup", command, directory=tmp_path) as backup:
            backup.start()

            def has_everything() -> bool:
                recordings = [each for each in read_catalog(archive.archive_dir) if each.stream_id == LOG_STREAM_ID]
                if not recordings or not (backup_dir / "cluster" / "recording.log").stat().st_size:
                    return False
                return messages_in(backup_dir) == messages_in(member.base_dir)

            backup.wait_until(has_everything, LIMIT_S, "the backup to have the log")
            yield backup_dir
        archive.stop()


@pytest.mark.slow
def test_spark_s_source_reads_the_log_of_a_cluster_that_runs(node: NodeFactory) -> None:
    member = node(archive="native")
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    expected = [row for row in rows_of(member.base_dir, "messages") if row["template_id"] == SESSION_MESSAGE]
    assert len(expected) == len(PUTS)
    with closing_session() as spark:
        frame = spark.read.format(FORMAT).options(path=str(member.base_dir), view="messages", committed="known").load()
        rows = frame.where(f"template_id = {SESSION_MESSAGE}").orderBy("log_position").collect()
    assert [(row.log_position, bytes(row.payload)) for row in rows] == [
        (row["log_position"], row["payload"]) for row in expected
    ]


@contextmanager
def closing_session() -> Iterator[SparkSession]:
    """A session of Spark in this process, which ends with the block."""
    session = open_session("native archive", master="local[1]", settings={"spark.log.level": "ERROR"})
    try:
        yield session
    finally:
        session.stop()


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


@pytest.mark.slow
def test_a_log_that_diverged_is_truncated(scenarios: Scenarios) -> None:
    kinds: list[ArchiveKind] = ["native", "native", "native"]
    with scenarios(archives=kinds) as scenario:
        leader = scenario.leader()
        scenario.await_progress()
        followers = [member for member in scenario.cluster.members if member is not leader]
        for member in followers:
            member.kill()
        scenario.pass_time(0.5)  # what the leader appends now nobody else has
        leader.kill()
        appended = messages_in(leader.node.base_dir)[-1]["log_position"]
        for member in followers:
            scenario.revive(member)
        second = scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
        terms = [entry for entry in read_recording_log(second.node.cluster_dir) if entry.is_term]
        assert terms[-1].term_base_log_position < appended
        scenario.await_progress()
        scenario.revive(leader)
        scenario.recover(leader)
        ours, theirs = messages_in(leader.node.base_dir), messages_in(second.node.base_dir)
        count = min(len(ours), len(theirs))  # they go on
        assert ours[:count] == theirs[:count]
        assert ours[count - 1]["log_position"] > appended
        scenario.finish()
