"""Two Python containers on one node: files, streams and counters of their own, the same log."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.files.cnc_file import read_mark_file
from container.testing.processes.local_cluster import CounterType, ModuleState, Node
from container.testing.processes.process import Process
from tests.limits import LIMIT_S
from tests.system.harness import (
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    error_texts,
    module_errors,
    release,
    reports,
    snapshot_recordings,
    start_tool,
)

pytestmark = pytest.mark.nodes("native", "java")

SUBSCRIBER_POSITION = 4


def start_two(
    member: Node, first: dict[str, str] | None = None, second: dict[str, str] | None = None
) -> tuple[Process, Process]:
    """Start a node with services 0 and 1; only service 0 answers clients."""
    member.start()
    environment = {"AERON_CLUSTER_SERVICE_RESPONDER": "false", **(second or {})}
    services = (
        member.start_service(REPORTING_SERVICE, service_id=0, environment=first),
        member.start_service(REPORTING_SERVICE, service_id=1, environment=environment),
    )
    member.await_leader()
    return services


def without_place(report: dict[str, object]) -> dict[str, object]:
    """What must be equal in both services."""
    return {name: value for name, value in report.items() if name != "back_pressured"}


def test_s57_two_services_have_their_own_files_and_see_the_same_log(node: NodeFactory) -> None:
    member = node(service_count=2)
    services = start_two(member)
    with CommandClient(member) as client:
        client.do("schedule", correlation_id=3, delay_ms=10)
        for service in services:
            await_report(service, "on_timer_event")
        # Both schedule it: what the second asks for may come after the timer has fired, and is then one more timer.
        messages, timers, _replies = client.do("state")
        assert messages == 2
        assert timers in (1, 2)
    for service in services:
        await_report(service, "on_session_close", session_id=client.session_id)

    def have_seen_the_same() -> bool:
        first, second = ([without_place(report) for report in reports(service)] for service in services)
        return first == second

    services[0].wait_until(have_seen_the_same, LIMIT_S, "both services to report the same callbacks")
    for service_id, service in enumerate(services):
        mark_file = read_mark_file(member.cluster_dir / f"cluster-mark-service-{service_id}.dat")
        assert mark_file.pid == service.pid
        assert error_texts(member, service_id) == []
    assert module_errors(member) == []


def test_s57_each_service_talks_to_the_archive_on_a_stream_of_its_own(node: NodeFactory, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiting = {"TEST_SNAPSHOT_GATE": str(gate)}
    member = node(service_count=2)
    services = start_two(member, waiting, waiting)
    tool = start_tool(member, "snapshot")
    for service in services:
        await_report(service, "on_take_snapshot")
    # Both are in the middle of their snapshots, and so connected to the archive.
    labels = [counter.label for counter in member.counters() if counter.type_id == SUBSCRIBER_POSITION]
    for service_id, stream_id in enumerate((121, 122)):
        (label,) = [label for label in labels if f" {stream_id} aeron:ipc?" in label]
        assert f"alias=sc-{service_id}-archive-ctrl-resp-cluster-0" in label
    gate.touch()
    assert tool.wait(LIMIT_S) == 0
    assert member.snapshot_count == 1
    assert sorted(snapshot_recordings(member)) == [-1, 0, 1]


def test_s57_a_failing_snapshot_of_one_keeps_both_running(node: NodeFactory) -> None:
    member = node(service_count=2)
    services = start_two(member, second={"TEST_FAILING_SNAPSHOTS": "1"})
    member.cluster_tool("snapshot")
    for service in services:
        await_report(service, "on_take_snapshot")
    member.await_state(ModuleState.ACTIVE)
    assert member.snapshot_count == 0
    assert member.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0) == 0
    assert member.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=1) == 1
    with CommandClient(member) as client:
        assert client.do("pad", length=20) == 20
        assert member.cluster_tool("snapshot").return_code == 0
        assert member.snapshot_count == 1
        release(member, *services)
    services = start_two(member)
    for service in services:
        assert reports(service, "on_start")[0]["state"] == [1, 0, 20]
    # Their acks were never out of step.
    assert not [text for text in module_errors(member) if "sequence" in text]


def test_s40_a_message_to_the_cluster_comes_back_to_each_service(node: NodeFactory) -> None:
    member = node(service_count=2)
    services = start_two(member)
    with CommandClient(member) as client:
        # Each service sends it, and each gets both.
        assert client.do("offer", length=100) > 0
        for service in services:
            await_report(service, "on_session_message", count=3)
            messages = reports(service, "on_session_message")
            assert [message["session_id"] for message in messages] == [client.session_id, None, None]
            assert [message["length"] for message in messages[1:]] == [100, 100]
