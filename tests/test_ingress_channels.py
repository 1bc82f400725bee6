"""Clients reach a real node over IPC alone or as a multicast group, and a channel that is none disturbs nobody."""

from __future__ import annotations

from functools import partial
from typing import Any

import container
from container.aeron.client import AeronClient
from container.client import AeronCluster
from container.codecs import messages as codecs
from container.common.aeron_defaults import INGRESS_STREAM_ID
from container.node.cluster_node import ClusterNode
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import PortReservation
from container.testing.processes.process import wait_until
from container.transport.streams import Publication
from tests.limits import LIMIT_S
from tests.services import Counter
from tests.system.test_client_channels import needs_multicast
from tests.test_cluster_node import Answers, ask


def launch(ports: PortReservation, **settings: Any) -> ClusterNode:
    return container.launch_node(Counter(), host=ports.host, port=ports.take_row(5), consensus_module=settings)


def test_a_message_over_ipc_alone_comes_once() -> None:
    ports = PortReservation()
    with launch(ports, ingress_channel="aeron:ipc") as node:
        for expected in (b"1", b"2", b"3"):
            assert ask(node, b"1", is_ipc=True) == expected
    ports.close()


@needs_multicast
def test_ingress_and_egress_may_be_multicast_groups() -> None:
    ports = PortReservation()
    ingress, egress = (f"aeron:udp?endpoint=224.20.30.{host}:{ports.take()}|interface=127.0.0.1" for host in (39, 41))
    answers = Answers()
    with (
        launch(ports, ingress_channel=ingress) as node,
        AeronCluster.connect(
            aeron_dir=node.aeron_dir,
            ingress_channel=ingress,
            egress_channel=egress,
            listener=answers,
            message_timeout=LIMIT_S,
        ) as client,
    ):
        client.send(b"7")

        def is_answered() -> bool:
            client.poll_egress()
            return answers.found == [b"7"]

        wait_until(is_answered, LIMIT_S, "an answer on the group")
    ports.close()


def is_sent(publication: Publication, response_channel: str) -> bool:
    """Whether the request of a client that wants to hear the cluster there can be sent now."""
    request = codecs.encode(
        "cluster",
        "SessionConnectRequest",
        correlation_id=1,
        response_stream_id=5,
        version=768,
        response_channel=response_channel,
        encoded_credentials=b"",
        client_info="",
    )
    return seam.offer(publication, request) > 0


def test_a_response_channel_that_is_none_disturbs_nobody() -> None:
    ports = PortReservation()
    with launch(ports, egress_channel="aeron:udp?mtu=4k") as node:
        with AeronClient(node.aeron_dir) as other:
            publication = seam.add_publication(other, "aeron:ipc", INGRESS_STREAM_ID, exclusive=True)
            for channel in ("", "nonsense", "aeron:udp?=|", "x" * 2_000):
                wait_until(partial(is_sent, publication, channel), LIMIT_S, "the node to read its ingress")
            assert ask(node, b"1") == b"1"
        assert node.is_running
    ports.close()
