"""Services of Java's containers that are busy while a leader comes and goes: their member comes back.

A service that is to join a log waits for its image, and Java's for nothing else. Upstream's consensus module asks it at
once: an image in which nothing came goes with its leader, and then service and member wait for each other for ever.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from container.client import AeronCluster
from container.common.aeron_defaults import CounterType
from container.consensus.election_host import ElectionState
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import JavaService, LocalCluster, LocalMember
from container.testing.processes.process import wait_until
from tests.limits import LIMIT_S

pytestmark = pytest.mark.slow

JOINING = (ElectionState.FOLLOWER_LOG_AWAIT, ElectionState.FOLLOWER_READY)
GIVEN_UP_S = 5.0  # a driver gives an image up after 2 s, as QUICK_FAILOVER has it


def state_of(member: LocalMember) -> int | None:
    return member.node.counter_value(CounterType.ELECTION_STATE)


@pytest.mark.parametrize("kind", ["native"])
def test_a_member_comes_back_whose_service_was_busy_while_the_next_leader_died(
    kind: ArchiveKind, java_classes: Path, tmp_path: Path
) -> None:
    files = [tmp_path / f"busy-{member_id}" for member_id in range(3)]
    services = {
        member_id: [JavaService("container.tests.BusyService", {"test.busy.file": str(file)})]
        for member_id, file in enumerate(files)
    }
    with LocalCluster(
        services, class_path=[java_classes], drivers=kind, archives=kind, consensus_modules=kind
    ) as cluster:
        cluster.start_client_driver()
        leader = cluster.start().await_ready()
        left = [each for each in cluster.members if each is not leader]
        for each in left:
            files[each.member_id].touch()
        with AeronCluster.connect(**cluster.client_settings(), message_timeout=LIMIT_S) as client:
            client.send(b"one")
            wait_until(
                lambda: all(files[each.member_id].with_suffix(".in").exists() for each in left),
                LIMIT_S,
                "both followers' services to be busy",
            )
        leader.kill()

        def pair() -> tuple[LocalMember, LocalMember] | None:
            for one, other in (left, left[::-1]):
                if state_of(one) == ElectionState.LEADER_INIT and state_of(other) in JOINING:
                    return one, other
            return None

        leading, following = wait_until(pair, LIMIT_S, "one of them to begin to lead, and the other to follow it")
        leading.kill()
        died = time.monotonic()
        wait_until(lambda: time.monotonic() - died > GIVEN_UP_S, LIMIT_S, "the driver to give the image up")
        files[following.member_id].unlink()
        for each in (leader, leading):
            files[each.member_id].unlink(missing_ok=True)
            each.node.release_mark_files()
            each.start()
        cluster.await_ready(LIMIT_S)
