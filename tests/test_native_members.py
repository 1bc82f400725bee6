"""Native members of a cluster of three and five: elections, the log on all of them, the loss of a leader."""

from __future__ import annotations

import pytest

from container.testing.memory import transport_probe as seam
from tests.consensus_world import ABORT, REDIRECT, SHUTDOWN, SNAPSHOT, Client
from tests.members_world import CLIENT_HOST, HEARTBEAT_TIMEOUT_MS, MembersWorld, payloads


@pytest.mark.parametrize("count", [3, 5])
def test_members_elect_a_leader_and_all_read_what_clients_send(count: int) -> None:
    world = MembersWorld(count)
    leader = world.await_leader()
    client = world.client(leader)
    for index in range(20):
        client.message(b"%d" % index)
    world.await_read(b"19")
    assert [payloads(each) for each in world.members] == [[b"%d" % index for index in range(20)]] * count


def test_a_follower_sends_clients_to_the_leader() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    follower = next(each for each in world.members if each is not leader)
    client = Client(world, f"aeron:udp?endpoint={follower.host}:9010", CLIENT_HOST)  # type: ignore[arg-type]
    client.connect()
    event = client.event()
    assert (event["code"], event["leader_member_id"]) == (REDIRECT, leader.member_id)
    assert event["detail"].decode() == "0=m0:9010,1=m1:9010,2=m2:9010"


def test_another_member_leads_after_a_leader_has_died_and_sessions_go_on() -> None:
    world = MembersWorld()
    first = world.await_leader()
    client = world.client(first)
    client.message(b"before")
    world.await_read(b"before")
    first.die()
    second = world.await_leader()
    assert second is not first
    event = client.wait_for("NewLeaderEvent")
    assert (event["leader_member_id"], event["cluster_session_id"]) == (second.member_id, client.session_id)
    client.follow(f"aeron:udp?endpoint={second.host}:9010", event["leadership_term_id"])
    client.message(b"after")
    world.await_read(b"after")
    assert [payloads(each) for each in world.up()] == [[b"before", b"after"]] * 2


def test_a_leader_without_followers_stands_back() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    for member in world.members:
        if member is not leader:
            member.die()
    world.until(lambda: not leader.agent.has_leader)
    assert leader.report_of("inactive follower quorum")
    world.run(5_000)
    assert world.leaders == []


@pytest.mark.parametrize("toggle", [SHUTDOWN, ABORT])
def test_members_terminate_in_step(toggle: int) -> None:
    world = MembersWorld()
    leader = world.await_leader()
    world.client(leader).message(b"one")
    world.settle()
    leader.set_toggle(toggle)
    world.until(lambda: all(each.failure is not None for each in world.members))
    assert [each.failure.is_expected for each in world.members] == [True] * 3  # type: ignore[union-attr]
    ends = {each.entries()[0].log_position for each in world.members}
    assert len(ends) == 1
    assert [len([each for each in member.entries() if each.is_snapshot]) for member in world.members] == (
        [2] * 3 if toggle == SHUTDOWN else [0] * 3
    )


def test_each_member_takes_the_snapshot_that_the_log_asks_for() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    world.client(leader)
    world.settle()
    leader.set_toggle(SNAPSHOT)
    world.until(lambda: all(len(each.entries()) == 3 for each in world.members))
    snapshots = [[(each.log_position, each.service_id) for each in member.entries()[1:]] for member in world.members]
    assert snapshots[0] == snapshots[1] == snapshots[2]
    world.settle()


def test_timers_of_a_leader_that_died_expire_at_the_next() -> None:
    world = MembersWorld()
    first = world.await_leader()
    client = world.client(first)
    client.message(b"one")
    world.await_read(b"one")
    deadline = seam.epoch_ms(first.member) + 10_000
    for member in world.members:
        member.services[0].schedule(7, deadline)
    world.run(100)
    first.die()
    second = world.await_leader()
    world.until(lambda: "TimerEvent" in second.services[0].names())
    world.settle()
    assert [each.services[0].names().count("TimerEvent") for each in world.up()] == [1, 1]


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_member_that_died_comes_back_and_reads_what_it_has_missed(is_leader: bool) -> None:
    world = MembersWorld()
    leader = world.await_leader()
    client = world.client(leader)
    client.message(b"before")
    world.await_read(b"before")
    died = leader if is_leader else next(each for each in world.members if each is not leader)
    died.die()
    leader = world.await_leader()
    if is_leader:
        event = client.wait_for("NewLeaderEvent")
        client.follow(f"aeron:udp?endpoint={leader.host}:9010", event["leadership_term_id"])
    client.message(b"missed")
    world.await_read(b"missed")
    died.come_back()
    world.await_leader()
    client.message(b"after")
    world.await_read(b"after")
    assert [payloads(each) for each in world.members] == [[b"before", b"missed", b"after"]] * 3


def test_a_leader_that_closes_in_order_has_a_successor_without_a_time_out() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    world.client(leader).message(b"one")
    world.await_read(b"one")
    leader.leave()
    others = [each for each in world.members if each is not leader]
    assert world.until(lambda: any(each.is_leading_now for each in others)) < HEARTBEAT_TIMEOUT_MS + 500
    assert any(each.report_of("log disconnected from leader: eos=True") for each in others)


def test_members_that_restart_together_go_on_with_their_log() -> None:
    world = MembersWorld()
    client = world.client(world.await_leader())
    for index in range(5):
        client.message(b"%d" % index)
    world.await_read(b"4")
    for member in world.members:
        member.die()
    for member in world.members:
        member.come_back()
    world.client(world.await_leader()).message(b"after")
    world.await_read(b"after")
    assert [payloads(each) for each in world.members] == [[b"0", b"1", b"2", b"3", b"4", b"after"]] * 3


def test_two_of_three_that_start_alone_have_a_leader() -> None:
    world = MembersWorld()
    world.members[1].die()
    leader = world.await_leader()
    world.client(leader).message(b"one")
    world.await_read(b"one")


def test_a_member_that_was_wiped_is_given_the_log_again() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    client = world.client(leader)
    for index in range(5):
        client.message(b"%d" % index)
    world.await_read(b"4")
    wiped = next(each for each in world.members if each is not leader)
    wiped.die()
    wiped.wipe()
    wiped.come_back()
    client.message(b"after")
    world.await_read(b"after")
    assert payloads(wiped) == [b"0", b"1", b"2", b"3", b"4", b"after"]
