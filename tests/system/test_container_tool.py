"""Java's ClusterTool on a node with a Python service: it reads its files and directs it."""

from __future__ import annotations

import re

import pytest

from container.files.cnc_file import MARK_FILE_TERMINATED, read_mark_file
from container.testing.processes.local_cluster import CounterType, ModuleState, Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.harness import (
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    callback_names,
    error_texts,
    module_errors,
    reports,
    start,
    start_tool,
)

pytestmark = pytest.mark.nodes("native", "java")


def run_tool(member: Node, *arguments: str) -> str:
    """Run ClusterTool, which must succeed, and return what it printed."""
    result = member.cluster_tool(*arguments)
    assert result.return_code == 0, result.output
    return result.output


def test_s9_describe_errors_and_pid_read_the_mark_file_of_the_service(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.send("raise", text="a bad day")
        client.poll_until(lambda: error_texts(member), "the error in the mark file")
    described = run_tool(member, "describe")
    (container_line,) = [line for line in described.splitlines() if "componentType=CONTAINER" in line]
    assert "version=768" in container_line
    assert f"pid={service.pid}|" in container_line
    assert "memberId=0|serviceId=0|headerLength=8192|errorBufferLength=1048576|clusterId=0" in container_line
    assert f"aeronDirectory='{member.aeron_dir}'" in container_line
    assert "controlChannel='aeron:ipc?term-length=128k'|ingressChannel=''" in container_line
    assert "serviceName='clustered-service-0-0'|authenticator=''|servicesClusterDir=''" in container_line
    assert re.search(r"Type: CONTAINER \d\d:\d\d:\d\d \(start: \d{4}-", described)

    errors = run_tool(member, "errors")
    of_the_service = errors.partition("Type: CONTAINER")[2]
    assert "1 observations from " in of_the_service
    assert "RuntimeError: a bad day" in of_the_service
    assert "1 distinct errors observed" in of_the_service
    # The tool's pid is the consensus module's.
    assert run_tool(member, "pid").strip() == str(member.pid)


def test_suspend_and_resume_hold_messages_up_and_let_them_go(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        assert client.do("echo", text="before") == "before"
        run_tool(member, "suspend")
        member.await_state(ModuleState.SUSPENDED)
        client.messages.clear()
        client.send("echo", text="during")
        assert member.module_state is ModuleState.SUSPENDED
        assert len(reports(service, "on_session_message")) == 1
        run_tool(member, "resume")
        member.await_state(ModuleState.ACTIVE)
        client.poll_until(lambda: client.messages == [b'{"result": "during"}'], "the answer to what was held up")
    assert error_texts(member) == []


def test_snapshot_list_members_and_plans_show_the_service(node: NodeFactory) -> None:
    member = node()
    start(member, REPORTING_SERVICE)
    assert "SNAPSHOT applied successfully" in run_tool(member, "snapshot")
    assert member.snapshot_count == 1
    assert "leaderMemberId=0, memberId=0" in run_tool(member, "list-members")
    assert "serviceId=0, type=SNAPSHOT, isValid=true" in run_tool(member, "recording-log")
    run_tool(member, "is-leader")
    # The plan is made with the archive's help, which the tool finds by these properties.
    tool = start_tool(
        member,
        "recovery-plan",
        "1",
        aeron_archive_control_channel=f"aeron:udp?endpoint={member.endpoints.archive}",
        aeron_archive_control_response_channel="aeron:udp?endpoint=127.0.0.1:0",
    )
    assert tool.wait(LIMIT_S) == 0, tool.tail()
    snapshots = tool.output().partition("snapshots=[")[2].partition("]], ")[0]
    assert [int(found) for found in re.findall(r"serviceId=(-?\d+)", snapshots)] == [-1, 0]


def await_both_ends(member: Node, service: Process) -> None:
    """Both processes end by themselves, say that it was asked for, and leave nothing behind."""
    assert service.wait(LIMIT_S) == 0, service.tail()
    assert member.process.wait(LIMIT_S) == 0, member.process.tail()
    mark_file = read_mark_file(member.cluster_dir / "cluster-mark-service-0.dat")
    assert mark_file.activity_timestamp_ms == MARK_FILE_TERMINATED
    assert mark_file.version == 768
    assert mark_file.errors == ()
    # Java's consensus module reports even an end that was asked for, and nothing else: no ack out of sequence.
    expected = "io.aeron.cluster.service.ClusterTerminationException: expected termination"
    is_java = member.consensus_module_kind == "java"
    assert [text.split("\n")[0] for text in module_errors(member)] == ([expected] if is_java else [])


@pytest.mark.slow  # shown by a container in memory as well
def test_s48_abort_ends_the_service_once_and_in_order(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.do("echo", text="x")
        position = member.commit_position
        # The client is told nothing more; its session ends with the node.
        assert "ABORT applied successfully" in run_tool(member, "abort")
        await_both_ends(member, service)
    assert callback_names(service)[-2:] == ["on_terminate", "termination_hook"]
    assert callback_names(service).count("on_terminate") == 1
    assert "on_take_snapshot" not in callback_names(service)
    assert reports(service, "on_terminate")[0]["log_position"] >= (position or 0)


def test_s49_shutdown_takes_a_snapshot_and_ends_the_service_in_order(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.do("pad", length=10)
    assert "SHUTDOWN applied successfully" in run_tool(member, "shutdown")
    await_both_ends(member, service)
    assert callback_names(service)[-3:] == ["on_take_snapshot", "on_terminate", "termination_hook"]
    # At the termination position both acks were sent: else the consensus module would wait, or complain.
    snapshot, end, hook = reports(service)[-3:]
    assert snapshot["log_position"] == end["log_position"] == hook["log_position"]
    member.stop()  # what is a process of its own: archive and driver
    member.start()
    service = member.start_service(REPORTING_SERVICE)
    member.await_leader()
    started = await_report(service, "on_start")
    assert started["has_snapshot"]
    assert started["state"] == [1, 0, 10]
    assert member.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0) == 0
    assert list(member.cluster_dir.glob("CONTAINER-*")) == []


@pytest.mark.parametrize("word", ["abort", "shutdown"])
def test_s50_the_termination_is_acked_though_version_16_does_not_ask_for_it(node: NodeFactory, word: str) -> None:
    member = node(properties={"aeron.cluster.termination.timeout": "600s"})
    service = start(member, REPORTING_SERVICE)
    run_tool(member, word)
    # Without the ack the consensus module would wait for it until the timeout.
    assert member.process.wait(LIMIT_S) == 0
    assert service.wait(LIMIT_S) == 0
