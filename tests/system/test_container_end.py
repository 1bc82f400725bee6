"""How a Python container starts before its node, and how it ends: by signals, and when node or driver go away."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from container.aeron import AeronClient
from container.common.aeron_defaults import SERVICE_STREAM_ID
from container.files.cnc_file import MARK_FILE_TERMINATED, read_mark_file
from container.testing.memory import transport_probe as probe
from container.testing.memory.scripted_messages import encode
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import Process
from tests.aeron_session import until
from tests.limits import LIMIT_S
from tests.system.harness import (
    QUICK_DRIVER,
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    callback_names,
    end_by,
    error_texts,
    module_errors,
    reports,
    start,
    status_after_a_loss,
)

pytestmark = pytest.mark.nodes("native", "java")

QUICK_CONTAINER = {"AERON_DRIVER_TIMEOUT": "4000"}
# An orderly end takes milliseconds; this is for a busy machine.
END_LIMIT_S = 15.0
LOG_IMAGE_LIMIT_S = 30.0 + END_LIMIT_S


def mark_path(member: Node) -> Path:
    return member.cluster_dir / "cluster-mark-service-0.dat"


def mark_timestamp(member: Node) -> int:
    return read_mark_file(mark_path(member)).activity_timestamp_ms


def start_quick(member: Node) -> Process:
    """Start a node and a container that gives up a silent driver after 4 s, once the driver is there."""
    member.start().await_started()
    service = member.start_service(REPORTING_SERVICE, environment=QUICK_CONTAINER)
    member.await_leader()
    return service


def await_ready(member: Node, service: Process) -> None:
    """Wait until a container has everything that it can have without a consensus module."""
    service.wait_until(lambda: 768 in [found.version for found in member.mark_files()], LIMIT_S, "a ready mark file")


# Before the node


def test_s12_a_container_started_before_the_consensus_module_waits_then_proceeds(node: NodeFactory) -> None:
    member = node(separate_processes=True)
    member.driver.start()
    service = member.start_service(REPORTING_SERVICE)
    await_ready(member, service)
    assert reports(service) == []
    member.archive.start()
    member.process.start()
    member.await_leader()
    assert callback_names(service)[:2] == ["on_start", "on_role_change"]
    assert error_texts(member) == []


def test_a_container_started_before_the_driver_waits_for_it(node: NodeFactory) -> None:
    member = node()
    service = member.start_service(REPORTING_SERVICE)
    member.start()
    member.await_leader()
    assert callback_names(service)[0] == "on_start"


def test_a_container_that_waits_for_the_consensus_module_ends_by_a_signal(node: NodeFactory) -> None:
    member = node(separate_processes=True)
    member.driver.start()
    service = member.start_service(REPORTING_SERVICE)
    await_ready(member, service)
    assert end_by(service, signal.SIGTERM, END_LIMIT_S) == 0
    assert reports(service) == []
    assert mark_timestamp(member) == MARK_FILE_TERMINATED


# By a signal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_s54_a_signal_ends_the_container_in_order_and_the_node_follows(
    node: NodeFactory, number: signal.Signals
) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.do("echo", text="x")
        assert end_by(service, number, END_LIMIT_S) == 0
        assert callback_names(service)[-1] == "on_terminate"
        assert callback_names(service).count("on_terminate") == 1
        # No agent terminated: the hook is not for an end that the container's owner wants.
        assert "termination_hook" not in callback_names(service)
        assert mark_timestamp(member) == MARK_FILE_TERMINATED
        assert member.process.wait(LIMIT_S) == status_after_a_loss(member)
    assert any("Aeron client in service closed unexpectedly: serviceId=0" in text for text in module_errors(member))
    assert error_texts(member) == []
    assert "Traceback" not in service.errors()


def test_s54_a_signal_ends_a_container_whose_callback_idles(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.send("idle", seconds=600)
        await_report(service, "on_session_message")
        # After five seconds the agent is interrupted, and the idling in the callback ends.
        assert end_by(service, signal.SIGTERM, 5 + END_LIMIT_S) == 0
    assert callback_names(service).count("on_terminate") == 1
    assert mark_timestamp(member) == MARK_FILE_TERMINATED


def test_a_second_signal_ends_a_container_at_once(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        client.send("idle", seconds=600)
        await_report(service, "on_session_message")
        service.send_signal(signal.SIGTERM)
        service.wait_until(lambda: "SIGTERM: closing" in service.errors(), LIMIT_S, "the first signal to be seen")
        assert end_by(service, signal.SIGTERM, 4) == -signal.SIGTERM


def test_s54_the_node_notices_a_killed_container_and_ends(node: NodeFactory) -> None:
    member = node(properties=QUICK_DRIVER)
    service = start(member, REPORTING_SERVICE)
    service.kill()
    assert member.process.wait(LIMIT_S) == status_after_a_loss(member)
    assert any("Aeron client in service closed unexpectedly: serviceId=0" in text for text in module_errors(member))
    # Nobody could sign off.
    assert mark_timestamp(member) > 0


@pytest.mark.slow
def test_a_log_image_that_never_comes_ends_the_container_and_the_node_follows(node: NodeFactory) -> None:
    """As where the driver has the log and gives the service no image of it; the JoinLog is a forged one."""
    member = node(properties=QUICK_DRIVER)
    service = start(member, REPORTING_SERVICE)
    joined = service.wait_until(lambda: re.search(r"logSessionId=(-?\d+)", service.errors()), LIMIT_S, "the first log")
    join_log = encode(
        "JoinLog",
        log_position=member.commit_position,
        max_log_position=2**63 - 1,
        member_id=0,
        log_session_id=int(joined[1]),
        log_stream_id=100,
        is_startup=0,
        role=0,
        is_standby=0,
        log_channel="aeron:udp?endpoint=127.0.0.1:1",
    )
    with AeronClient(member.aeron_dir) as client:
        control = probe.add_publication(client, "aeron:ipc?term-length=128k", SERVICE_STREAM_ID)
        until(client, lambda: probe.offer(control, join_log) > 0, "the control stream to take a JoinLog")
        assert service.wait(LOG_IMAGE_LIMIT_S) == 1, service.tail()
    assert callback_names(service)[-3:] == ["on_role_change", "termination_hook", "on_terminate"]
    assert any(
        f"log image session-id={joined[1]}" in text and "did not appear within 30 s" in text
        for text in error_texts(member)
    )
    assert member.process.wait(LIMIT_S) == status_after_a_loss(member)


# When the consensus module goes


def assert_ended_with_the_consensus_module(member: Node, service: Process) -> None:
    """The container ended as upstream's does when the commit position counter goes away."""
    assert service.wait(LIMIT_S) == 0, service.tail()
    names = callback_names(service)
    assert names[-2:] == ["termination_hook", "on_terminate"]
    # It may see first that the log has ended, or that the counter has gone, as the driver says so at the same time.
    assert names[-3] == "on_new_leadership_term_event" or (
        names[-3] == "on_role_change" and reports(service, "on_role_change")[-1]["new_role"] == "FOLLOWER"
    )
    assert names.count("on_terminate") == 1
    (text,) = error_texts(member)
    assert "WARN - commit-pos counter unexpectedly closed, terminating" in text
    assert mark_timestamp(member) == MARK_FILE_TERMINATED


def test_s52_an_orderly_end_of_the_consensus_module_ends_the_container(node: NodeFactory) -> None:
    member = node(separate_processes=True)
    service = start(member, REPORTING_SERVICE)
    await_report(service, "on_new_leadership_term_event")  # else it has not come to the end of the log
    member.process.stop()
    assert_ended_with_the_consensus_module(member, service)


def test_s52_a_killed_consensus_module_ends_the_container_once_the_driver_has_noticed(node: NodeFactory) -> None:
    member = node(separate_processes=True, properties=QUICK_DRIVER)
    service = start(member, REPORTING_SERVICE)
    await_report(service, "on_new_leadership_term_event")  # else it has not come to the end of the log
    member.process.kill()
    assert_ended_with_the_consensus_module(member, service)


def test_an_orderly_end_of_the_whole_node_ends_the_container_at_once(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    member.stop()
    # The driver goes a moment after the consensus module: the container may see either first.
    code = service.wait(END_LIMIT_S)
    assert "termination_hook" in callback_names(service)
    first_error = error_texts(member)[0]
    if code == 0:
        assert "commit-pos counter unexpectedly closed" in first_error
    else:
        assert code == 1
        assert "MediaDriver has been shutdown" in first_error
        assert "on_terminate" not in callback_names(service)
    assert mark_timestamp(member) == MARK_FILE_TERMINATED


# When the driver goes


def assert_ended_with_the_driver(member: Node, service: Process) -> None:
    """The container ended by itself, told why, and called no on_terminate."""
    assert service.wait(END_LIMIT_S) == 1, service.tail()
    assert "on_terminate" not in callback_names(service)
    assert callback_names(service).count("termination_hook") == 1
    assert "unexpected Aeron close" in service.errors()
    assert any("unexpected Aeron close" in text for text in error_texts(member))
    assert mark_timestamp(member) == MARK_FILE_TERMINATED
    assert "Fatal Python error" not in service.errors()


def test_s53_a_killed_node_ends_the_container_with_unexpected_aeron_close(node: NodeFactory) -> None:
    member = node(properties=QUICK_DRIVER)
    service = start_quick(member)
    with CommandClient(member) as client:
        client.do("echo", text="x")
        member.kill()
        assert_ended_with_the_driver(member, service)
        client.cluster.close()


def test_s53_a_killed_driver_ends_the_container_in_a_callback_as_well(node: NodeFactory) -> None:
    member = node(properties=QUICK_DRIVER)
    service = start_quick(member)
    client = CommandClient(member)
    try:
        client.send("idle", seconds=600)
        await_report(service, "on_session_message")
        member.kill()
        assert_ended_with_the_driver(member, service)
    finally:
        client.close()


def test_s53_a_container_that_was_paused_too_long_ends_by_itself(node: NodeFactory) -> None:
    member = node(properties=QUICK_DRIVER)
    service = start_quick(member)
    service.pause()
    # The driver drops the client, and the consensus module ends the node as its service is gone.
    assert member.process.wait(LIMIT_S) == status_after_a_loss(member)
    service.resume()
    assert service.wait(LIMIT_S) in (0, 1)
    assert "termination_hook" in callback_names(service)
    assert "Fatal Python error" not in service.errors()
