"""Ingress by one channel for the whole cluster, without its members' endpoints: unicast to the leader, multicast."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.client import AeronCluster
from container.errors import TimedOutError
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.local_cluster import JavaService, LocalCluster
from tests.limits import LIMIT_S
from tests.system.harness import JAVA_ECHO_SERVICE, NodeFactory, Parts, run_echo_client
from tests.system.test_client import Collecting, poll_until, settings, start_echo

pytestmark = pytest.mark.nodes("native", "java")

GROUP = "224.0.1.1"
LOOPBACK = "127.0.0.1"


def loopback_carries_multicast() -> bool:
    """Whether this machine hears on its loopback interface what it sends to a group there."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        try:
            receiver.bind(("", 0))
            membership = socket.inet_aton(GROUP) + socket.inet_aton(LOOPBACK)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            receiver.settimeout(5.0)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
            sender.sendto(b"anybody?", (GROUP, receiver.getsockname()[1]))
            return receiver.recv(100) == b"anybody?"
        except OSError:
            return False


needs_multicast = pytest.mark.skipif(
    not loopback_carries_multicast(), reason="the loopback interface of this machine carries no multicast"
)


@pytest.fixture
def multicast() -> Iterator[str]:
    """A multicast channel that nobody else uses."""
    ports = PortReservation()
    yield f"aeron:udp?endpoint={GROUP}:{ports.take()}|interface=localhost|term-length=1m"
    ports.close()


@needs_multicast
def test_ingress_is_multicast(node: NodeFactory, multicast: str) -> None:
    echo = start_echo(node(properties={"aeron.cluster.ingress.channel": multicast}))
    listener = Collecting()
    by_multicast = settings(echo, listener) | {"ingress_channel": multicast, "ingress_endpoints": None}
    messages = [bytes(number % 251 for number in range(size)) for size in (0, 1, 1500, 40_000)] * 10
    with AeronCluster.connect(**by_multicast) as client:
        assert client.ingress_publication is not None
        assert client.ingress_publication.channel == multicast
        for message in messages:
            client.send(message)
        poll_until(client, lambda: len(listener.messages) == len(messages), "all echoes")
    assert listener.messages == messages


@needs_multicast
def test_a_java_client_s_ingress_and_egress_are_multicast(node: NodeFactory, multicast: str) -> None:
    egress_ports = PortReservation()
    egress = f"aeron:udp?endpoint={GROUP}:{egress_ports.take()}|interface=localhost|term-length=1m"
    echo = start_echo(node(properties={"aeron.cluster.ingress.channel": multicast}))
    channels = {"aeron_cluster_ingress_channel": multicast, "aeron_cluster_egress_channel": egress}
    # The settings of a client over IPC name no endpoints of members.
    result = run_echo_client(echo, "messages=1000", ipc=True, **channels)
    assert (result["sent"], result["received"], result["mismatches"]) == (1_000, 1_000, 0)
    egress_ports.close()


@needs_multicast
def test_a_group_in_which_nobody_listens_is_told(node: NodeFactory, multicast: str) -> None:
    echo = start_echo(node())
    silent = settings(echo, Collecting()) | {"ingress_channel": multicast, "ingress_endpoints": None}
    with pytest.raises(TimedOutError, match=f"a member that listens on ingress .*ingress_channel=aeron:udp.*{GROUP}"):
        AeronCluster.connect(**silent | {"message_timeout": 1.0})


def test_ingress_is_one_channel_to_the_leader(node: NodeFactory) -> None:
    echo = start_echo(node())
    listener = Collecting()
    channel = f"aeron:udp?endpoint={echo.endpoints.ingress}"
    with AeronCluster.connect(
        **settings(echo, listener) | {"ingress_channel": channel, "ingress_endpoints": None}
    ) as client:
        assert client.ingress_publication is not None
        assert client.ingress_publication.channel == channel
        client.send(b"straight to you")
        poll_until(client, lambda: listener.messages == [b"straight to you"], "the echo")


@pytest.mark.slow
@needs_multicast
def test_a_new_leader_is_followed_over_multicast(multicast: str, java_classes: Path, parts: Parts) -> None:
    listener = Collecting()
    with LocalCluster(
        [JavaService(JAVA_ECHO_SERVICE)],
        class_path=[java_classes],
        properties={"aeron.cluster.ingress.channel": multicast},
        **parts,
    ) as cluster:
        cluster.start_client_driver()
        cluster.start().await_ready()
        options = cluster.client_settings() | {"ingress_channel": multicast, "ingress_endpoints": None}
        with AeronCluster.connect(
            **options, listener=listener, message_timeout=LIMIT_S, new_leader_timeout=LIMIT_S
        ) as client:
            client.send(b"before")
            poll_until(client, lambda: listener.messages == [b"before"], "the echo of the first leader")
            first = client.leader_member_id
            cluster.members[first].kill()
            poll_until(client, lambda: client.leader_member_id != first, "the news of another leader")
            client.send(b"after")
            poll_until(client, lambda: listener.messages == [b"before", b"after"], "the echo of the second leader")
            assert client.ingress_publication is not None
            assert client.ingress_publication.channel == multicast
