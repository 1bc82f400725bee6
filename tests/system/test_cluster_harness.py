"""The harness for clusters itself: members of one and of three, their parts, roles, snapshots and ends."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from container.api import Role
from container.client import AeronCluster
from container.errors import ClusterError, ContainerError
from container.testing.processes.endpoints import HOST
from container.testing.processes.local_cluster import CounterType, JavaService, LocalCluster, ModuleState, Service
from container.testing.processes.process import ProcessEndedError, is_alive
from tests.limits import LIMIT_S
from tests.soak.scenario import PYTHON_LEDGER
from tests.system.harness import Parts

JAVA_ECHO = JavaService("container.tests.EchoService")
JAVA_LEDGER = JavaService("container.tests.SequencedLedgerService")
ENDED = Service([sys.executable, "-c", "import sys; print('no state', flush=True); sys.exit(3)"])


type ClusterFactory = Callable[..., LocalCluster]


@pytest.fixture
def cluster(java_classes: Path) -> Iterator[ClusterFactory]:
    """A factory of clusters that see our Java classes; all end with the test."""
    clusters: list[LocalCluster] = []

    def make(*arguments: Any, **settings: Any) -> LocalCluster:
        clusters.append(LocalCluster(*arguments, class_path=[java_classes], **settings))
        return clusters[-1]

    yield make
    for made in clusters:
        made.close()


def test_a_cluster_of_one_takes_a_client_and_shuts_down(cluster: ClusterFactory) -> None:
    alone = cluster([JAVA_ECHO], member_count=1).start()
    leader = alone.await_ready()
    assert (leader.member_id, alone.leader, alone.followers) == (0, leader, [])
    assert (leader.node.append_position or 0) >= (leader.node.commit_position or 0) > 0
    alone.start_client_driver()
    with AeronCluster.connect(message_timeout=LIMIT_S, **alone.client_settings()) as client:
        assert client.leader_member_id == 0
    alone.shut_down()
    assert leader.has_ended
    assert leader.service.return_code == 0
    pids = [process.pid for process in leader.node.processes]
    alone.close()
    alone.close()
    assert not any(map(is_alive, pids))
    assert not alone.base_dir.exists()


def test_members_elect_another_leader_and_snapshots_of_a_mixed_cluster_are_equal(
    cluster: ClusterFactory, parts: Parts
) -> None:
    mixed = cluster({0: [JAVA_LEDGER], 1: [PYTHON_LEDGER], 2: [PYTHON_LEDGER]}, **parts).start()
    leader = mixed.await_ready()
    assert len(mixed.followers) == 2
    leader.kill()
    assert not leader.is_running
    successor = mixed.await_leader(other_than=leader)
    assert successor is not leader
    leader.restart()
    assert mixed.await_ready() is mixed.leader
    leader.node.await_role(Role.FOLLOWER)
    leader.node.await_commit_position(successor.node.commit_position or 0)
    mixed.take_snapshot()
    snapshots = [member.node.snapshot_messages() for member in mixed.members]
    assert snapshots[0]
    assert snapshots[1:] == snapshots[:1] * 2


def test_a_wiped_member_gets_everything_from_the_others(cluster: ClusterFactory, parts: Parts) -> None:
    three = cluster([PYTHON_LEDGER], **parts).start()
    three.await_ready()
    follower = three.followers[0]
    with pytest.raises(ContainerError, match=f"member {follower.member_id} still runs; kill it before wiping"):
        follower.wipe()
    follower.kill()
    follower.wipe()
    assert not follower.node.cluster_dir.exists()
    follower.start()
    three.await_ready()
    assert follower.node.module_state is ModuleState.ACTIVE


def test_parts_of_a_member_can_be_processes_of_their_own(cluster: ClusterFactory) -> None:
    alone = cluster([JAVA_ECHO], member_count=1, separate_processes=[0]).start()
    node = alone.members[0].node
    assert node.archive.pid in [status.pid for status in node.mark_files()], "each part starts when the last is ready"
    alone.await_ready()
    assert len({node.driver.pid, node.archive.pid, node.process.pid}) == 3
    node.process.kill()
    assert node.driver.is_running
    assert not node.is_running
    assert not node.has_ended
    node.kill()
    assert node.has_ended


def test_what_a_failure_says_holds_the_outputs_of_all_members(cluster: ClusterFactory) -> None:
    code = "print('nothing to serve', flush=True); import sys; sys.stdin.read()"
    deaf = cluster([Service([sys.executable, "-c", code])], member_count=1).start()
    deaf.members[0].service.read_line(LIMIT_S)
    with pytest.raises(
        TimeoutError, match="waited 0.1 s for a member to lead(.|\n)*=== member 0(.|\n)*nothing to serve"
    ):
        deaf.await_leader(0.1)
    with pytest.raises(TimeoutError, match=r"still running: node-0 \(pid \d+\), service-0 \(pid \d+\)"):
        deaf.members[0].await_end(0.1)
    with pytest.raises(ContainerError, match="no member leads"):
        deaf.abort()
    node = deaf.members[0].node
    with pytest.raises(TimeoutError, match="waited 0.1 s for member 0 to be LEADER"):
        node.await_role(Role.LEADER, 0.1)
    node.await_counter(CounterType.CONSENSUS_MODULE_STATE, 0, LIMIT_S)
    with pytest.raises(
        TimeoutError, match="its last value is 0: .*CONSENSUS_MODULE_STATE of member 0 to be at least 9"
    ):
        node.await_counter(CounterType.CONSENSUS_MODULE_STATE, 9, 0.1)


def test_a_wait_for_a_service_that_has_ended_ends_at_once(cluster: ClusterFactory) -> None:
    alone = cluster([ENDED], member_count=1).start()
    alone.members[0].service.wait(LIMIT_S)
    begin = time.monotonic()
    ended = "but service-0 of member 0 ended with 3(.|\n)*=== member 0(.|\n)*no state"
    with pytest.raises(ProcessEndedError, match=f"waited for a member to lead, {ended}"):
        alone.await_leader(LIMIT_S)
    with pytest.raises(ProcessEndedError, match=f"waited for a member to lead, {ended}"):
        alone.await_ready(LIMIT_S)
    with pytest.raises(ProcessEndedError, match="SNAPSHOT_COUNTER of member 0 .*but service-0 ended with 3"):
        alone.members[0].node.await_counter(CounterType.SNAPSHOT_COUNTER, 1, LIMIT_S)
    assert time.monotonic() - begin < LIMIT_S / 2


def test_a_wait_for_a_leader_goes_on_while_a_majority_runs_and_one_for_all_members_does_not(
    cluster: ClusterFactory, parts: Parts
) -> None:
    three = cluster({0: [PYTHON_LEDGER], 1: [PYTHON_LEDGER], 2: [ENDED]}, **parts).start()
    three.members[2].service.wait(LIMIT_S)
    leader = three.await_leader()
    begin = time.monotonic()
    with pytest.raises(
        ProcessEndedError, match="but ((node|consensus-module)-2 of member 2 .*)?service-0 of member 2 ended with 3"
    ):
        three.await_ready(LIMIT_S)
    leader.kill()
    with pytest.raises(ProcessEndedError, match=f"other than {leader.member_id} to lead, but .* ended with -9"):
        three.await_leader(LIMIT_S, other_than=leader)
    assert time.monotonic() - begin < LIMIT_S / 2


def test_what_a_failure_says_holds_the_errors_of_client_drivers(cluster: ClusterFactory) -> None:
    made = cluster([JAVA_ECHO], member_count=1)
    made.start_client_driver()
    made.start_client_driver("another").kill()
    settings = {**made.client_settings(), "ingress_channel": "aeron:udp?mtu=99999999"}
    with pytest.raises(ClusterError, match="refused by the driver"):
        AeronCluster.connect(message_timeout=LIMIT_S, **settings)
    report = made.report()
    assert re.search(r"--- client-driver: 1 x (.|\n)*mtuLength=99999999", report), report
    assert "--- another: pid" in report


def test_a_driver_that_does_not_start_is_told_with_what_it_said(cluster: ClusterFactory) -> None:
    broken = cluster([JAVA_ECHO], member_count=1, jvm_flags=["-XX:+NoSuchOption"])
    with pytest.raises(ProcessEndedError, match="driver of member 0 to be ready, but node-0 ended with 1(.|\n)*NoSuch"):
        broken.start()
    assert not broken.members[0].services


def test_members_listen_on_addresses_of_their_own(cluster: ClusterFactory) -> None:
    five = cluster([JAVA_ECHO], member_count=5)
    addresses = [endpoints.host for endpoints in five.endpoints]
    assert len(set(addresses)) == (5 if sys.platform.startswith("linux") else 1)
    assert addresses[0] == HOST
    with pytest.raises(ContainerError, match="member 3 has no service yet"):
        _ = five.members[3].service


def test_what_cannot_be_is_refused(cluster: ClusterFactory) -> None:
    with pytest.raises(ContainerError, match=r"member_count must be one of \(1, 3, 5, 7\), not 2"):
        cluster([JAVA_ECHO], member_count=2)
    alone = cluster([JAVA_ECHO], member_count=1)
    with pytest.raises(ContainerError, match="give the cluster a network"):
        alone.cut_off(alone.members[0])
