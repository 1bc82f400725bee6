"""The client of the cluster against a real node with a Java service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from container.aeron import AeronClient
from container.client import (
    AdminRequestType,
    AdminResponseCode,
    AeronCluster,
    AsyncConnect,
    ClientContext,
    ConnectStep,
    EgressListener,
    EventCode,
)
from container.errors import SessionError, TimedOutError
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S

pytestmark = pytest.mark.nodes("native", "java")

type NodeFactory = Callable[..., Node]

ECHO_SERVICE = "container.tests.EchoService"


class Collecting(EgressListener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.events: list[tuple[EventCode | int, str]] = []
        self.admin_responses: list[tuple[Any, ...]] = []

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: Any, header: Any) -> None:
        assert timestamp > 0
        self.messages.append(bytes(buffer))

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode | int,
        detail: str,
    ) -> None:
        self.events.append((code, detail))

    def on_admin_response(self, *response: Any) -> None:
        self.admin_responses.append(response)


def start_echo(node: Node) -> Node:
    node.start().await_started()
    node.start_java_service(ECHO_SERVICE)
    node.await_leader()
    return node


def settings(node: Node, listener: EgressListener, *, ipc: bool = False) -> dict[str, Any]:
    properties = node.client_properties(ipc=ipc)
    return {
        "aeron_dir": properties["aeron.dir"],
        "ingress_channel": properties["aeron.cluster.ingress.channel"],
        "ingress_endpoints": properties.get("aeron.cluster.ingress.endpoints"),
        "egress_channel": properties["aeron.cluster.egress.channel"],
        "message_timeout": LIMIT_S,
        "listener": listener,
        "client_name": "system-test",
    }


def poll_until(client: AeronCluster, predicate: Callable[[], object], what: str) -> None:
    def polled() -> object:
        client.idle(client.poll_egress())
        return predicate()

    wait_until(polled, LIMIT_S, what)


@pytest.mark.parametrize("ipc", [False, True], ids=["udp", "ipc"])
def test_messages_of_all_sizes_are_echoed_in_order(node: NodeFactory, ipc: bool) -> None:
    echo = start_echo(node())
    listener = Collecting()
    messages = [bytes(n % 251 for n in range(size)) for size in (0, 1, 31, 32, 1343, 1344, 1345, 5000, 100 * 1024)]
    with AeronCluster.connect(**settings(echo, listener, ipc=ipc)) as client:
        assert client.leader_member_id == 0
        assert client.max_message_length > 100 * 1024
        for message in messages * 20:
            client.send(message)
        poll_until(client, lambda: len(listener.messages) == len(messages) * 20, "all echoes")
    assert listener.messages == messages * 20
    assert client.close_reason == "closed by this client"


def test_the_cluster_notices_the_end_of_a_client_at_once(node: NodeFactory) -> None:
    echo = start_echo(node(properties={"aeron.cluster.max.sessions": "1"}))
    first = AeronCluster.connect(**settings(echo, Collecting()))
    with pytest.raises(SessionError, match="concurrent session limit") as refused:
        AeronCluster.connect(**settings(echo, Collecting()))
    assert refused.value.code == EventCode.ERROR
    first.close()

    def connected() -> bool:
        try:
            AeronCluster.connect(**settings(echo, Collecting())).close()
        except SessionError:
            return False
        return True

    wait_until(connected, LIMIT_S, "the cluster to have room for a session again")


def test_polls_keep_a_session_alive_and_silence_ends_it(node: NodeFactory) -> None:
    echo = start_echo(node(properties={"aeron.cluster.session.timeout": "2s"}))
    alive, silent = Collecting(), Collecting()
    with (
        AeronCluster.connect(**settings(echo, alive), keep_alive_interval=0.2) as kept,
        AeronCluster.connect(**settings(echo, silent), keep_alive_interval=0) as timed_out,
    ):

        def closed() -> bool:
            kept.idle(kept.poll_egress())
            timed_out.poll_egress()
            return timed_out.is_closed

        wait_until(closed, LIMIT_S, "the cluster to close the silent session")
        assert timed_out.close_reason == "closed by the cluster: TIMEOUT"
        assert silent.events == [(EventCode.CLOSED, "TIMEOUT")]
        kept.send(b"still here")
        poll_until(kept, lambda: alive.messages, "the echo to the session that was kept alive")
        assert alive.events == []


def test_a_snapshot_request_is_refused_by_default(node: NodeFactory) -> None:
    echo = start_echo(node())
    listener = Collecting()
    with AeronCluster.connect(**settings(echo, listener)) as client:
        correlation_id = client.next_correlation_id()
        wait_until(
            lambda: client.send_admin_request_to_take_a_snapshot(correlation_id),
            LIMIT_S,
            "room for the request",
        )
        poll_until(client, lambda: listener.admin_responses, "the answer to the admin request")
        ((session_id, answered, kind, code, message, payload),) = listener.admin_responses
        assert (session_id, answered) == (client.cluster_session_id, correlation_id)
        assert (kind, code) == (AdminRequestType.SNAPSHOT, AdminResponseCode.UNAUTHORISED_ACCESS)
        assert message
        assert payload == b""


def test_an_async_connect_shares_a_client(node: NodeFactory) -> None:
    echo = start_echo(node())
    listener = Collecting()
    with AeronClient(echo.aeron_dir, "shared") as shared:
        connecting = AsyncConnect(ClientContext(**settings(echo, listener), client=shared))
        wait_until(lambda: connecting.poll() is not None, LIMIT_S, "the connect")
        assert connecting.step == ConnectStep.DONE
        client = connecting.poll()
        assert client is not None
        client.send(b"shared")
        poll_until(client, lambda: listener.messages == [b"shared"], "the echo")
        client.close()
        assert not shared.is_closed()


def test_a_node_without_a_service_times_the_connect_out(node: NodeFactory) -> None:
    lonely = node().start()
    lonely.await_started()
    limited = settings(lonely, Collecting()) | {"message_timeout": 1.0}
    with pytest.raises(TimedOutError, match="cluster connect: waited 1 s for a member that listens"):
        AeronCluster.connect(**limited)
