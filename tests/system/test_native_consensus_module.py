"""Our consensus module for a cluster of one: with Java's services, clients and tools, both archives, killed, and on
directories that Java's wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.files.recording_log import CONSENSUS_MODULE_SERVICE_ID, read_recording_log
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.recordings_world import rows_of
from tests.system.conftest import NodeFactory
from tests.system.harness import (
    REPORTING_SERVICE,
    CommandClient,
    release,
    reports,
    run_ledger_client,
    snapshot_recordings,
)
from tests.system.test_native_archive import PUTS, SESSION_MESSAGE, back_up, start_ledger


def native(node: NodeFactory, archive: ArchiveKind = "native", **settings: object) -> Node:
    """A node with our consensus module, not started."""
    return node(archive=archive, consensus_module="native", **settings)


def terms_of(cluster_dir: Path) -> list[int]:
    """The terms in a recording log."""
    return [entry.leadership_term_id for entry in read_recording_log(cluster_dir) if entry.is_term]


@pytest.mark.slow  # test_native_node.py shows it in one process
@pytest.mark.parametrize("archive", ["native", "java"])
@pytest.mark.parametrize("service", ["python", "java"])
def test_a_cluster_of_one_lives_through_a_kill_and_a_shutdown(
    node: NodeFactory, archive: ArchiveKind, service: str
) -> None:
    member = native(node, archive)
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
    assert member.process.wait(LIMIT_S) == 0
    member.archive.stop()
    member.driver.stop()
    release(member, started)
    start_ledger(member, service)
    assert run_ledger_client(member, "hash") == [after]
    rows = [row for row in rows_of(member.base_dir, "messages") if row["template_id"] == SESSION_MESSAGE]
    assert len(rows) == len(PUTS) + 5
    assert terms_of(member.cluster_dir) == [0, 1, 2]


@pytest.mark.parametrize("clock", ["Millisecond", pytest.param("Nanosecond", marks=pytest.mark.slow)])
def test_java_s_node_takes_the_directory_over_and_gives_it_back(node: NodeFactory, clock: str) -> None:
    """In the middle of a cluster's life, with a snapshot and without, after a kill -9 of all."""
    properties = {"aeron.cluster.clock": f"io.aeron.cluster.{clock}ClusterClock"}
    first = native(node, properties=properties)
    expected: list[str] = []
    for number in range(4):
        kind: ArchiveKind = "java" if number % 2 else "native"
        member = (
            node(
                archive="native",
                consensus_module=kind,
                base_dir=first.base_dir,
                members=first.members,
                properties=properties,
            )
            if number
            else first
        )
        started = start_ledger(member, "python")
        assert run_ledger_client(member, "hash") == expected or not number
        expected = [run_ledger_client(member, *PUTS[number : number + 40], f"put 1 {number}", "hash")[-1]]
        if number < 2:
            assert member.cluster_tool("snapshot").return_code == 0
        release(member, started)  # kill -9 of all
    assert terms_of(first.cluster_dir) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["micros", "nanos"])
def test_java_s_service_takes_the_cluster_s_unit_of_time(node: NodeFactory, clock: str) -> None:
    member = native(node, properties={"aeron.cluster.clock": clock})
    started = start_ledger(member, "java")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("snapshot").return_code == 0
    expected = run_ledger_client(member, "put 7 8", "hash")[-1]
    release(member, started)  # kill -9 of all
    start_ledger(member, "java")
    assert run_ledger_client(member, "hash") == [expected]
    units = {row.get("time_unit") for row in rows_of(member.base_dir, "messages")}
    assert units - {None} == {clock.upper()}


@pytest.mark.slow
@pytest.mark.parametrize("restored", ["native", "java"])
def test_java_s_backup_takes_everything_and_a_node_starts_from_it(
    node: NodeFactory, tmp_path: Path, java_classes: Path, restored: ArchiveKind
) -> None:
    member = native(node)
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS)
    assert member.cluster_tool("snapshot").return_code == 0
    expected = run_ledger_client(member, "put 7 8", "hash")[-1]
    backup_dir = back_up(member, tmp_path, java_classes)
    release(member, started)
    assert len([each for each in read_recording_log(backup_dir / "cluster") if each.is_valid_snapshot]) == 2
    copy = node(archive=restored, consensus_module=restored, base_dir=backup_dir, members=member.members)
    copy.release_mark_files()
    start_ledger(copy, "python")
    assert run_ledger_client(copy, "hash")[-1] == expected


@pytest.mark.parametrize("word", ["suspend", "abort"])
def test_java_s_tool_says_what_the_cluster_is_to_do(node: NodeFactory, word: str) -> None:
    member = native(node)
    started = start_ledger(member, "python")
    expected = run_ledger_client(member, *PUTS, "hash")[-1]
    assert member.cluster_tool(word).return_code == 0
    if word == "suspend":
        assert member.cluster_tool("resume").return_code == 0
        assert run_ledger_client(member, "hash") == [expected]
        return
    started.wait(LIMIT_S)
    assert member.process.wait(LIMIT_S) == 0
    assert snapshot_recordings(member) == {}
    release(member, started)
    start_ledger(member, "python")
    assert run_ledger_client(member, "hash") == [expected]


def test_java_s_tool_reads_what_the_node_says_of_itself(node: NodeFactory) -> None:
    member = native(node)
    start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:3])
    for word, expected in (
        ("describe", "CONSENSUS_MODULE"),
        ("pid", str(member.process.pid)),
        ("list-members", member.endpoints.ingress),
        ("is-leader", ""),
        ("recording-log", "leadershipTermId=0"),
        ("errors", "distinct errors observed"),
        ("validate-recording-log", "VALIDATE_RECORDING_LOG applied successfully"),
    ):
        answer = member.cluster_tool(word)
        assert answer.return_code == 0, f"{word}: {answer.output}"
        assert expected in answer.output, f"{word}: {answer.output}"


@pytest.mark.slow  # the two services of test_container_two_services.py show the same with this consensus module
@pytest.mark.parametrize("archive", ["native", "java"])
def test_two_services_have_snapshots_of_their_own(node: NodeFactory, archive: ArchiveKind) -> None:
    member = native(node, archive, service_count=2)
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
    assert sorted(snapshot_recordings(member)) == [CONSENSUS_MODULE_SERVICE_ID, 0, 1]
    release(member, *services)  # kill -9 of all
    for service in start_both():
        assert reports(service, "on_start")[0]["state"] == [1, 0, 20]


@pytest.mark.parametrize("archive", ["native", pytest.param("java", marks=pytest.mark.slow)])
def test_the_node_ends_with_its_archive_and_with_a_service(node: NodeFactory, archive: ArchiveKind) -> None:
    member = native(node, archive)
    started = start_ledger(member, "python")
    run_ledger_client(member, *PUTS[:5])
    member.archive.kill()
    assert member.process.wait(LIMIT_S) == 1
    started.wait(LIMIT_S)
    release(member, started)
    started = start_ledger(member, "python")
    assert run_ledger_client(member, "get 3")[0].split()[:3] == ["GET", "3", str(3 * 1_000_003)]
    started.kill()
    assert member.process.wait(LIMIT_S) == 1
    assert "Aeron client in service closed unexpectedly: serviceId=0" in member.process.tail()
