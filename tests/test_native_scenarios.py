"""Native members in the scenes of upstream's tests: appointed leaders, leaders in turn, catching up under load."""

from __future__ import annotations

from tests.consensus_world import Client
from tests.members_world import CLIENT_HOST, MembersWorld, MemberWorld, payloads

APPOINTED = 1


def follow(client: Client, leader: MemberWorld) -> None:
    """Have a client go on with a leader that has told it so."""
    event = client.wait_for("NewLeaderEvent")
    while event["leader_member_id"] != leader.member_id:
        event = client.wait_for("NewLeaderEvent")
    client.follow(f"aeron:udp?endpoint={leader.host}:9010", event["leadership_term_id"])


def send(world: MembersWorld, client: Client, payload: bytes) -> None:
    client.message(payload)
    world.await_read(payload)


def test_the_appointed_leader_leads_whoever_starts() -> None:
    world = MembersWorld(appointed_leader_id=APPOINTED)
    leader = world.await_leader()
    assert leader.member_id == APPOINTED
    send(world, world.client(leader), b"one")


def test_the_appointed_leader_leads_again_after_a_restart_of_all() -> None:
    world = MembersWorld(appointed_leader_id=APPOINTED)
    send(world, world.client(world.await_leader()), b"one")
    for member in world.members:
        member.die()
    for member in world.members:
        member.come_back()
    leader = world.await_leader()
    assert leader.member_id == APPOINTED
    send(world, world.client(leader), b"two")
    assert [payloads(each) for each in world.members] == [[b"one", b"two"]] * 3


def test_nobody_leads_while_the_appointed_leader_is_away() -> None:
    world = MembersWorld(appointed_leader_id=APPOINTED)
    client = world.client(world.await_leader())
    send(world, client, b"one")
    world.members[APPOINTED].die()
    world.run(10_000)
    assert world.leaders == []
    world.members[APPOINTED].come_back()
    leader = world.await_leader()
    assert leader.member_id == APPOINTED
    send(world, world.client(leader), b"two")


def test_leaders_die_one_after_the_other_and_come_back() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    client = world.client(leader)
    sent = []
    for index in range(4):
        sent.append(b"%d" % index)
        send(world, client, sent[-1])
        leader.die()
        dead, leader = leader, world.await_leader()
        follow(client, leader)
        dead.come_back()
        world.settle()
    assert [payloads(each) for each in world.members] == [sent] * 3


def test_the_only_follower_catches_up_while_messages_go_on() -> None:
    world = MembersWorld()
    leader = world.await_leader()
    client = world.client(leader)
    send(world, client, b"first")
    back, other = [each for each in world.members if each is not leader]
    back.die()
    sent = [b"first"]

    def say() -> None:
        sent.append(b"%d" % len(sent) + bytes(200))
        client.message(sent[-1])

    for _ in range(20):
        say()
        world.run(20)
    back.come_back()
    other.die()
    for _ in range(100):
        say()
        world.step()
    leader = world.await_leader()
    if leader.counter_value(239) > 0:
        follow(client, leader)
        say()
    world.await_read(sent[-1])
    assert payloads(back) == payloads(leader)
    assert set(payloads(leader)) <= set(sent)


def test_a_client_over_ipc_is_served_by_the_leader_on_its_host() -> None:
    world = MembersWorld(is_ipc_ingress_allowed=True)
    leader = world.await_leader()
    driver, world.driver = world.driver, world.drivers[leader.member_id]
    client = Client(world, "aeron:ipc", leader.host)  # type: ignore[arg-type]
    world.driver = driver
    client.open()
    send(world, client, b"one")
    assert CLIENT_HOST not in client.egress_channel
