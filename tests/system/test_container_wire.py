"""What a Python container really sends to a Java consensus module: the control stream, listened to."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

from container.aeron import AeronClient
from container.codecs.messages import decode
from container.testing.memory import transport_probe as probe
from container.testing.processes.local_cluster import CounterType, Node
from container.testing.processes.process import wait_until
from tests.aeron_session import until
from tests.limits import LIMIT_S
from tests.system.harness import (
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    release,
    reports,
    snapshot_recordings,
)

pytestmark = pytest.mark.nodes("native", "java")

CONTROL_CHANNEL = "aeron:ipc?term-length=128k"
CONSENSUS_MODULE_STREAM_ID = 105
NULL_VALUE = -1


class Heard(NamedTuple):
    """One message of a service to the consensus module."""

    name: str
    fields: dict[str, Any]


class Listener:
    """Hears everything that services send to the consensus module, from before they start."""

    def __init__(self, member: Node) -> None:
        self._client = AeronClient(member.aeron_dir, client_name="listener")
        self._subscription = probe.add_subscription(self._client, CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID)
        self._heard: list[Heard] = []

    def messages(self, name: str) -> list[dict[str, Any]]:
        """The fields of all messages of a name so far."""
        while messages := probe.poll(self._subscription):
            self._heard += [Heard(*decode("cluster", payload)) for payload, _ in messages]
        return [heard.fields for heard in self._heard if heard.name == name]

    def await_messages(self, name: str, count: int) -> list[dict[str, Any]]:
        """Wait for a number of messages of a name, and return them."""
        what = f"{count} messages {name}"
        return until(self._client, lambda: self.messages(name)[count - 1 :] and self.messages(name), what)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()


def start_and_listen(member: Node) -> Listener:
    """Start a node without its service, and listen; the service is to be started then."""
    member.start()
    member.await_started()
    return Listener(member)


def ack(position: int, ack_id: int, relevant_id: int) -> dict[str, int]:
    return {"log_position": position, "ack_id": ack_id, "relevant_id": relevant_id, "service_id": 0}


def without_time(acks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in fields.items() if name != "timestamp"} for fields in acks]


def test_s13_s21_s49_acks_have_consecutive_ids_from_start_to_termination(node: NodeFactory) -> None:
    # The driver outlives the rest, so that all can be heard to the end.
    member = node(separate_processes=True)
    with start_and_listen(member) as listener:
        service = member.start_service(REPORTING_SERVICE)
        member.await_leader()
        started, joined = listener.await_messages("ServiceAck", 2)
        errors = member.counter(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0)
        assert errors is not None
        client_id = errors.owner_id
        assert without_time([started, joined]) == [ack(0, 0, client_id), ack(0, 1, NULL_VALUE)]
        assert member.cluster_tool("snapshot").return_code == 0
        snapshot = listener.await_messages("ServiceAck", 3)[2]
        position = await_report(service, "on_take_snapshot")["log_position"]
        recording_id = snapshot_recordings(member)[0]
        assert without_time([snapshot]) == [ack(position, 2, recording_id)]
        assert snapshot["timestamp"] == reports(service, "on_take_snapshot")[0]["time"]

        assert member.cluster_tool("shutdown").return_code == 0
        assert service.wait(LIMIT_S) == 0
        position = reports(service, "on_terminate")[0]["log_position"]
        second_snapshot, terminated = listener.await_messages("ServiceAck", 5)[3:]
        assert without_time([second_snapshot, terminated]) == [
            ack(position, 3, second_snapshot["relevant_id"]),
            ack(position, 4, NULL_VALUE),
        ]
        assert second_snapshot["relevant_id"] > recording_id


def test_s14_s21_acks_after_a_restart_begin_at_the_snapshot(node: NodeFactory) -> None:
    member = node()
    member.start()
    service = member.start_service(REPORTING_SERVICE)
    member.await_leader()
    assert member.cluster_tool("snapshot").return_code == 0
    taken = await_report(service, "on_take_snapshot")
    with CommandClient(member) as client:
        client.do("echo", text="x")
        release(member, service)
    with start_and_listen(member) as listener:
        service = member.start_service(REPORTING_SERVICE)
        member.await_leader()
        started, replaying, leading = listener.await_messages("ServiceAck", 3)
        end = await_report(service, "on_role_change")["log_position"]
        assert [started["log_position"], replaying["log_position"], leading["log_position"]] == [
            taken["log_position"],
            taken["log_position"],
            end,
        ]
        assert [started["ack_id"], replaying["ack_id"], leading["ack_id"]] == [0, 1, 2]
        assert started["timestamp"] == taken["time"]
        assert started["relevant_id"] > 0
        assert (replaying["relevant_id"], leading["relevant_id"]) == (NULL_VALUE, NULL_VALUE)
        assert end > taken["log_position"]


@pytest.mark.slow  # shown by an agent in memory, and by a node that goes on
def test_s44_a_failed_snapshot_is_acked_with_minus_one_and_the_next_id_follows(node: NodeFactory) -> None:
    member = node()
    with start_and_listen(member) as listener:
        service = member.start_service(REPORTING_SERVICE, environment={"TEST_FAILING_SNAPSHOTS": "1"})
        member.await_leader()
        member.cluster_tool("snapshot")
        failed = listener.await_messages("ServiceAck", 3)[2]
        position = await_report(service, "on_take_snapshot")["log_position"]
        assert without_time([failed]) == [ack(position, 2, NULL_VALUE)]
        assert member.cluster_tool("snapshot").return_code == 0
        taken = listener.await_messages("ServiceAck", 4)[3]
        assert (taken["ack_id"], taken["relevant_id"]) == (3, snapshot_recordings(member)[0])


def test_s31_s37_s38_requests_of_a_replayed_log_are_sent_again(node: NodeFactory) -> None:
    member = node()
    with start_and_listen(member) as listener:
        service = member.start_service(REPORTING_SERVICE)
        member.await_leader()
        with CommandClient(member) as client, CommandClient(member) as victim:
            client.do("schedule", correlation_id=77, delay_ms=600_000)
            client.do("cancel", correlation_id=77)
            client.do("offer", length=3)
            client.do("close", session_id=victim.session_id)
            requested = sent(listener)
            assert [fields["correlation_id"] for fields in requested["ScheduleTimer"]] == [77]
            assert [fields["correlation_id"] for fields in requested["CancelTimer"]] == [77]
            assert [fields["cluster_session_id"] for fields in requested["CloseSession"]] == [victim.session_id]
            # Its session id is not compared: the consensus module writes a number over it where it lies.
            assert len(requested["SessionMessageHeader"]) == 1
            release(member, service)
    with start_and_listen(member) as listener:
        service = member.start_service(REPORTING_SERVICE)
        member.await_leader()
        replayed = sent(listener)
        assert replayed["ScheduleTimer"] == requested["ScheduleTimer"]
        assert replayed["CancelTimer"] == requested["CancelTimer"]
        assert len(replayed["SessionMessageHeader"]) == 1
        assert len(replayed["CloseSession"]) == 1
        # The consensus module knows that message from the log, and does not log it twice.
        wait_until(lambda: len(reports(service, "on_new_leadership_term_event")) == 2, LIMIT_S, "the new term")
        own = [report for report in reports(service, "on_session_message") if report["session_id"] is None]
        assert len(own) == 1


def sent(listener: Listener) -> dict[str, list[dict[str, Any]]]:
    """What was sent by the time that the last of these requests was."""
    listener.await_messages("CloseSession", 1)
    return {
        name: listener.messages(name)
        for name in ("ScheduleTimer", "CancelTimer", "CloseSession", "SessionMessageHeader")
    }
