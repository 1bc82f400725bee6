"""What keeps members of three busy: callbacks of 15 s, a snapshot of 1 GiB, replays of ten million messages.

A callback in Python costs no lead, and one that holds the GIL nothing that is committed. Beside snapshot and replays
heartbeats, commits and votes go on.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import container
from container.aeron import MediaDriver
from container.archive.client.aeron_archive import AeronArchive
from container.client import AeronCluster
from container.common.aeron_defaults import CounterType
from container.node.launched_cluster import LaunchedCluster
from container.testing.processes.endpoints import HOST
from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.node import make_directory
from container.testing.processes.process import wait_until
from container.testing.processes.recordings import RecordingWriter, descriptor_of, write_catalog
from tests.limits import LIMIT_S
from tests.system.test_launched_cluster import Answers, await_leader, count_to

pytestmark = pytest.mark.slow

SECONDS = 15
MESSAGES = 10_000_000
REPLAYED_STREAM_ID = 777  # not one of the cluster's
READ_LIMIT = 1000
HEARTBEAT_TIMEOUT_NS = 10_000_000_000
MODULE = {
    "leader_heartbeat_timeout_ns": HEARTBEAT_TIMEOUT_NS,
    "startup_canvass_timeout_ns": "20s",
    "session_timeout_ns": "120s",
}


@contextmanager
def cluster_and_client(
    service: str = "Busy", directory: Path | None = None
) -> Iterator[tuple[LaunchedCluster, AeronCluster, Answers]]:
    """Three members with upstream's heartbeat timeout, which is shorter than the callbacks, and a client."""
    answers = Answers()
    with (
        container.launch_cluster(
            f"tests.system.busy_service:{service}",
            port=0,
            directory=directory,
            consensus_module=MODULE,
            timeout=LIMIT_S,
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


def elections_of(cluster: LaunchedCluster) -> list[int | None]:
    """How many elections each member has had since its start."""
    return [member.node.counter_value(CounterType.ELECTION_COUNT) for member in cluster.members]


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
        elections = elections_of(cluster)
        count_to(client, answers, 5)
        begin = time.monotonic()
        client.send(b"python %d %d" % (SECONDS, busy.member_id))
        grow_log(cluster, client, cluster.members, SECONDS / 3)
        assert time.monotonic() - begin < SECONDS, "all members have committed while one of them was busy"
        count_to(client, answers, 7)
        wait_until(lambda: time.monotonic() - begin > SECONDS + 2, LIMIT_S, "the callback to end")
        assert leader_of(cluster) is leader
        assert elections_of(cluster) == elections


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


def test_heartbeats_go_on_beside_a_snapshot_of_a_gib() -> None:
    with cluster_and_client("Large") as (cluster, client, answers):
        leader = leader_of(cluster)
        count_to(client, answers, 5)
        elections = elections_of(cluster)
        cluster.take_snapshot(LIMIT_S)
        assert leader_of(cluster) is leader
        assert elections_of(cluster) == elections
        for member in cluster.members:
            longest_ns = member.node.counter_value(CounterType.CONSENSUS_MODULE_MAX_CYCLE_TIME)
            assert longest_ns is not None
            assert longest_ns < HEARTBEAT_TIMEOUT_NS, "the consensus module had its turns"
        count_to(client, answers, 7)


class Reader(threading.Thread):
    """Replays the recording of a member's archive again and again, on the member's own driver, until it is stopped."""

    def __init__(self, member: LocalMember) -> None:
        super().__init__(name=f"reader-{member.member_id}")
        self._aeron_dir = str(member.node.aeron_dir)
        self._is_stopping = threading.Event()
        self.count = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with AeronArchive.connect(
                aeron_dir=self._aeron_dir, control_channel="aeron:ipc", response_channel="aeron:ipc"
            ) as archive:
                while not self._is_stopping.is_set():
                    with archive.replay(0, 0, -1, "aeron:ipc?term-length=1m", REPLAYED_STREAM_ID) as replay:
                        while not (replay.has_ended or self._is_stopping.is_set()):
                            replay.poll(self._on_message, READ_LIMIT)
        except Exception as error:
            self.failure = error

    def _on_message(self, _message: bytes, _position: int) -> None:
        self.count += 1

    def stop(self) -> None:
        self._is_stopping.set()
        self.join()


def write_recordings(directory: Path) -> None:
    """Give each member's archive the same recording of ten million messages; the files are one."""
    first, *others = [directory / f"member-{member_id}" / "archive" for member_id in range(3)]
    for each in (first, *others):
        each.mkdir(parents=True)
    writer = RecordingWriter(first, stream_id=REPLAYED_STREAM_ID)
    writer.append_session_messages(MESSAGES, payload_length=16)
    writer.flush()
    writer.close()
    for other in others:
        for file in first.iterdir():
            os.link(file, other / file.name)
    for each in (first, *others):
        write_catalog(each, [descriptor_of(writer)])


def test_heartbeats_commits_and_votes_go_on_beside_replays_of_ten_million_messages() -> None:
    directory = make_directory("busy-members-")
    write_recordings(directory)
    readers: list[Reader] = []
    try:
        with cluster_and_client(directory=directory) as (cluster, client, answers):
            leader = leader_of(cluster)
            count_to(client, answers, 5)
            elections = elections_of(cluster)
            readers = [Reader(member) for member in cluster.members]
            for reader in readers:
                reader.start()

            def all_have_read() -> bool:
                count_to(client, answers, answers.total + 1)
                assert [reader.failure for reader in readers] == [None] * 3
                return all(reader.count >= MESSAGES for reader in readers)

            wait_until(all_have_read, 10 * LIMIT_S, "ten million messages of each member")
            assert leader_of(cluster) is leader
            assert elections_of(cluster) == elections

            others = [reader for reader, member in zip(readers, cluster.members, strict=True) if member is not leader]
            before = [reader.count for reader in others]
            leader.kill()
            successor = cluster.await_leader(LIMIT_S, other_than=leader)
            await_leader(client, successor.member_id)
            count_to(client, answers, answers.total + 2)
            for reader in others:
                reader.stop()
            assert [reader.failure for reader in others] == [None] * 2
            assert all(reader.count > earlier for reader, earlier in zip(others, before, strict=True))
    finally:
        for reader in readers:
            reader.stop()
        shutil.rmtree(directory, ignore_errors=True)
