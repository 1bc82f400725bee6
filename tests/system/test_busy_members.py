"""Callbacks of 15 s in members of three: in Python they cost no lead; with the GIL held, nothing that is committed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import container
from container.aeron import MediaDriver
from container.client import AeronCluster
from container.common.aeron_defaults import CounterType
from container.node.launched_cluster import LaunchedCluster
from container.testing.processes.endpoints import HOST
from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S
from tests.system.test_launched_cluster import Answers, await_leader, count_to

pytestmark = pytest.mark.slow

SECONDS = 15
MODULE = {"leader_heartbeat_timeout_ns": "10s", "startup_canvass_timeout_ns": "20s", "session_timeout_ns": "120s"}


@contextmanager
def cluster_and_client() -> Iterator[tuple[LaunchedCluster, AeronCluster, Answers]]:
    """Three members with upstream's heartbeat timeout, which is shorter than the callbacks, and a client."""
    answers = Answers()
    with (
        container.launch_cluster(
            "tests.system.busy_service:Busy", port=0, consensus_module=MODULE, timeout=LIMIT_S
        ) as cluster,
        MediaDriver.launch_embedded() as driver,
        AeronCluster.connect(
            listener=answers,
            message_timeout=LIMIT_S,
            aeron_dir=driver.aeron_dir,
            ingress_channel="aeron:udp",
            ingress_endpoints=cluster.ingress_endpoints,
            egress_channel=f"aeron:udp?endpoint={HOST}:0",
        ) as client,
    ):
        yield cluster, client, answers


def leader_of(cluster: LaunchedCluster) -> LocalMember:
    leader = cluster.leader
    assert leader is not None
    return leader


def grow_log(cluster: LaunchedCluster, client: AeronCluster, members: list[LocalMember], seconds: float) -> None:
    """Send for some seconds, and wait until these members have committed it while another one is busy."""
    end = time.monotonic() + seconds

    def is_over() -> bool:
        client.send(b"0")
        client.poll_egress()
        return time.monotonic() >= end

    wait_until(is_over, seconds + LIMIT_S, "the messages to be sent")
    before = {member: member.node.commit_position or 0 for member in members}
    client.send(b"0")
    for member, position in before.items():
        member.node.await_commit_position(position + 1, LIMIT_S)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_busy_callback_in_python_costs_neither_the_lead_nor_a_commit(role: str) -> None:
    with cluster_and_client() as (cluster, client, answers):
        leader = leader_of(cluster)
        busy = leader if role == "leader" else cluster.followers[0]
        elections = [member.node.counter_value(CounterType.ELECTION_COUNT) for member in cluster.members]
        count_to(client, answers, 5)
        begin = time.monotonic()
        client.send(b"python %d %d" % (SECONDS, busy.member_id))
        grow_log(cluster, client, cluster.members, SECONDS / 3)
        assert time.monotonic() - begin < SECONDS, "all members have committed while one of them was busy"
        count_to(client, answers, 7)
        wait_until(lambda: time.monotonic() - begin > SECONDS + 2, LIMIT_S, "the callback to end")
        assert leader_of(cluster) is leader
        assert [member.node.counter_value(CounterType.ELECTION_COUNT) for member in cluster.members] == elections


def test_a_follower_that_holds_the_gil_costs_nothing_and_comes_back() -> None:
    with cluster_and_client() as (cluster, client, answers):
        leader = leader_of(cluster)
        busy, other = cluster.followers
        count_to(client, answers, 5)
        begin = time.monotonic()
        client.send(b"c %d %d" % (SECONDS, busy.member_id))
        grow_log(cluster, client, [leader, other], SECONDS / 3)
        count_to(client, answers, 7)
        assert time.monotonic() - begin < SECONDS, "a majority has committed and served while a follower stood still"
        wait_until(lambda: time.monotonic() - begin > SECONDS, LIMIT_S, "the callback to end")
        cluster.await_ready(LIMIT_S)
        assert leader_of(cluster) is leader
        assert busy.is_running


def test_a_leader_that_holds_the_gil_loses_its_lead_and_nothing_that_was_acknowledged() -> None:
    with cluster_and_client() as (cluster, client, answers):
        leader = leader_of(cluster)
        count_to(client, answers, 5)
        client.send(b"c %d %d" % (SECONDS, leader.member_id))
        successor = wait_until(
            lambda: next((each for each in cluster.members if each is not leader and each.is_leader), None),
            LIMIT_S,
            "another member to lead",
        )
        await_leader(client, successor.member_id)
        count_to(client, answers, 7)
        cluster.await_ready(LIMIT_S)
        assert leader.is_running
        assert leader_of(cluster) is not leader
