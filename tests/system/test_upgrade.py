"""A rolling upgrade: three members get the second release of a service one by one, while a client goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from container.api import Header, MessageBuffer
from container.client import AeronCluster, EgressListener
from container.errors import ContainerError
from container.testing.processes.local_cluster import LocalCluster, LocalMember, Service
from tests.limits import LIMIT_S
from tests.system.harness import COMMAND, ROOT, Parts

# The client is not polled while a member starts again, and that may take its time.
PATIENT_SESSIONS = {"aeron.cluster.session.timeout": "180s"}


def release(name: str) -> Service:
    """A release of the counter as a program."""
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return Service([*COMMAND, "run", f"examples.upgraded_counter:{name}"], environment)


@pytest.fixture
def cluster(parts: Parts) -> Iterator[LocalCluster]:
    with LocalCluster([release("CounterV1")], properties=PATIENT_SESSIONS, **parts) as cluster:
        cluster.start_client_driver()
        cluster.start().await_ready()
        yield cluster


class Passing(EgressListener):
    """Drops all but answers to requests: messages that the new rules hold."""

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        assert buffer == b"rules 2"


def key_of(payload: bytes) -> bytes | None:
    name, is_total, _ = payload.partition(b"=")
    return name if is_total else None


def ask(client: AeronCluster, *names: bytes) -> list[int]:
    """Add one for each name, and return the totals in the answers."""
    requests = [client.begin_request(name + b"+1", key=name, timeout=LIMIT_S, idempotent=True) for name in names]
    return [int(request.wait().rpartition(b"=")[2]) for request in requests]


def test_members_are_upgraded_one_by_one(cluster: LocalCluster) -> None:
    with AeronCluster.connect(
        **cluster.client_settings(),
        listener=Passing(),
        correlate=key_of,
        message_timeout=LIMIT_S,
        new_leader_timeout=LIMIT_S,
    ) as client:
        assert ask(client, b"ada", b"bob") == [1, 2]
        cluster.take_snapshot()
        assert ask(client, b"ada") == [3]
        leader = cluster.leader
        assert leader is not None
        for number, member in enumerate([*cluster.followers, leader]):
            upgrade(client, member)
            cluster.await_ready()
            assert ask(client, b"eve%d" % number) >= [4 + number]  # a message sent again counts again
        total = ask(client, b"ada")[0]
        client.send(b"use rules 2")
        assert ask(client, b"ada", b"bob", b"ada2") == [1, 1, 1]
        assert ask(client, b"ada") == [2]
    cluster.take_snapshot()
    first, *others = [member.node.snapshot_messages() for member in cluster.members]
    assert all(other == first for other in others)
    assert any(b"\xa5total" in message and b"\xa3ada\x02" in message for message in first), (total, first)


def upgrade(client: AeronCluster, member: LocalMember) -> None:
    """Stop a member and start it with the new release; the client goes on meanwhile."""
    member.stop()
    ask(client, b"meanwhile%d" % member.member_id)
    member.restart(services=[release("Counter")])


def test_a_member_keeps_its_number_of_services(cluster: LocalCluster) -> None:
    with pytest.raises(ContainerError, match="2 services: the node expects 1"):
        cluster.members[0].restart(services=[release("Counter")] * 2)
