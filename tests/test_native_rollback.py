"""A leader was cut off, another one leads, and the first comes back: all that it did without a quorum is undone."""

from __future__ import annotations

import pytest

from container.consensus.election_host import ElectionState
from container.testing.memory import transport_probe as seam
from tests.consensus_world import ABORT, SHUTDOWN, SNAPSHOT, SUSPEND, Client
from tests.members_world import CLIENT_HOST, HEARTBEAT_TIMEOUT_MS, MembersWorld, MemberWorld, payloads


class CutOffLeader:
    """A leader with a client on its side of a cut, and two followers on the other."""

    def __init__(self, *, services: int = 1) -> None:
        self.world = MembersWorld(services=services)
        self.leader = self.world.await_leader()
        self.client = self.world.client(self.leader)
        self.client.message(b"before")
        self.world.await_read(b"before")

    def cut(self) -> None:
        """Let nothing pass between the leader, with its client, and the others."""
        others = [each.host for each in self.world.members if each is not self.leader]
        self.world.fabric.partition([[self.leader.host, CLIENT_HOST], others])

    def append(self, name: str, count: int = 1) -> None:
        """Let time pass until the leader has appended more messages of a name."""
        wanted = len(self.leader.logged(name)) + count
        self.world.until(lambda: len(self.leader.logged(name)) >= wanted)

    def heal(self) -> MemberWorld:
        """Let time pass until the others have a leader, heal the cut, and return the leader once all follow it."""
        others = [each for each in self.world.members if each is not self.leader]
        self.world.until(lambda: any(each.agent.has_leader and each.is_leading_now for each in others))
        hosts = [each.host for each in self.world.members] + [CLIENT_HOST]
        for index, host in enumerate(hosts):
            for other in hosts[index + 1 :]:
                self.world.fabric.heal(host, other)
        new = self.world.await_leader()
        assert new is not self.leader
        self.world.settle()
        return new

    def check(self) -> None:
        """All services have read the same, in the same terms, and the recordings are equal up to the shortest."""
        reads = [member.services[0].messages for member in self.world.members]
        assert reads[0] == reads[1] == reads[2]
        logs = [member.recorded(member.log_recording_id) for member in self.world.members]
        length = min(map(len, logs))
        assert length > 0
        assert logs[0][:length] == logs[1][:length] == logs[2][:length]
        terms = [
            [(each.leadership_term_id, each.term_base_log_position) for each in member.entries() if each.is_term]
            for member in self.world.members
        ]
        assert terms[0] == terms[1] == terms[2]


def test_messages_of_a_leader_that_was_cut_off_are_taken_back() -> None:
    scene = CutOffLeader()
    scene.cut()
    scene.client.message(b"lost")
    scene.append("SessionMessageHeader")
    new = scene.heal()
    client = scene.world.client(new)
    client.message(b"after")
    scene.world.await_read(b"after")
    scene.check()
    assert payloads(scene.leader) == [b"before", b"after"]


def test_a_session_that_no_quorum_has_is_taken_back_and_its_id_is_given_again() -> None:
    scene = CutOffLeader()
    scene.cut()
    lost = Client(scene.world, f"aeron:udp?endpoint={scene.leader.host}:9010", CLIENT_HOST)  # type: ignore[arg-type]
    lost.connect()
    scene.append("SessionOpenEvent")
    lost_id = scene.leader.logged("SessionOpenEvent")[-1]["cluster_session_id"]
    new = scene.heal()
    client = scene.world.client(new)
    assert client.session_id == lost_id
    client.message(b"after")
    scene.world.await_read(b"after")
    scene.check()


def test_a_session_whose_close_no_quorum_has_goes_on() -> None:
    scene = CutOffLeader()
    scene.cut()
    scene.client.close()
    scene.append("SessionCloseEvent")
    new = scene.heal()
    event = scene.client.wait_for("NewLeaderEvent")
    assert event["leader_member_id"] == new.member_id
    scene.client.follow(f"aeron:udp?endpoint={new.host}:9010", event["leadership_term_id"])
    scene.client.message(b"after")
    scene.world.await_read(b"after")
    scene.check()


def test_a_session_whose_time_out_no_quorum_has_goes_on_also_where_the_former_leader_leads_again() -> None:
    scene = CutOffLeader()
    world, first = scene.world, scene.leader
    for host in (each.host for each in world.members):
        world.fabric.cut(CLIENT_HOST, host)
    world.run(HEARTBEAT_TIMEOUT_MS // 2)
    others = [each for each in world.members if each is not first]
    for other in others:
        world.fabric.cut(first.host, other.host)
    scene.append("SessionCloseEvent")
    new = scene.heal()
    event = scene.client.wait_for("NewLeaderEvent")
    assert event["leader_member_id"] == new.member_id
    while new is not first:
        new.die()
        left = world.await_leader()
        if left is not first:
            new.come_back()
        new = world.await_leader()
    world.until(
        lambda: (
            ("NewLeaderEvent", first.member_id)
            in [(name, fields.get("leader_member_id")) for name, fields in scene.client.received()]
        )
    )
    assert first.logged("SessionCloseEvent") == []


def test_a_timer_that_expired_where_no_quorum_has_it_expires_once() -> None:
    scene = CutOffLeader()
    deadline = seam.epoch_ms(scene.leader.member) + 300
    for member in scene.world.members:
        member.services[0].schedule(7, deadline)
    scene.world.run(50)
    scene.cut()
    scene.append("TimerEvent")
    scene.heal()
    scene.world.until(lambda: all("TimerEvent" in each.services[0].names() for each in scene.world.members))
    scene.world.run(1_000)
    scene.world.settle()
    assert [each.services[0].names().count("TimerEvent") for each in scene.world.members] == [1] * 3
    scene.check()


def test_a_timer_that_expired_where_no_quorum_has_it_and_is_scheduled_again_keeps_its_new_deadline() -> None:
    """As by a service that is behind: all members have the deadline that it gave last, whatever one has appended."""
    scene = CutOffLeader()
    begin = seam.epoch_ms(scene.leader.member)
    for member in scene.world.members:
        member.services[0].schedule(7, begin + 300)
    scene.world.run(50)
    scene.cut()
    scene.append("TimerEvent")
    for member in scene.world.members:
        member.services[0].schedule(7, begin + 600_000)
    new = scene.heal()
    new.set_toggle(SNAPSHOT)
    members = scene.world.members
    scene.world.until(lambda: all(any(each.is_snapshot for each in member.entries()) for member in members))
    timers = [[fields for name, fields in member.snapshot() if name == "Timer"] for member in members]
    assert timers == [[{"correlation_id": 7, "deadline": begin + 600_000}]] * 3


def test_a_timer_that_expired_where_no_quorum_has_it_and_is_cancelled_does_not_come_back() -> None:
    """As by a service that is behind: no other member has it, and this one may lead again."""
    scene = CutOffLeader()
    begin = seam.epoch_ms(scene.leader.member)
    members = scene.world.members
    for member in members:
        member.services[0].schedule(7, begin + 300)
        member.services[0].schedule(8, begin + 600_000)
    scene.world.run(50)
    scene.cut()
    scene.append("TimerEvent")
    for member in members:
        member.services[0].cancel(7)
    new = scene.heal()
    new.set_toggle(SNAPSHOT)
    scene.world.until(lambda: all(any(each.is_snapshot for each in member.entries()) for member in members))
    timers = [[fields for name, fields in member.snapshot() if name == "Timer"] for member in members]
    assert timers == [[{"correlation_id": 8, "deadline": begin + 600_000}]] * 3


@pytest.mark.parametrize("length", [10, 5_000])
def test_messages_of_services_that_no_quorum_has_come_once(length: int) -> None:
    scene = CutOffLeader()
    scene.cut()
    for member in scene.world.members:
        for index in range(3):
            member.services[0].offer(b"%d" % index + bytes(length))
    scene.append("SessionMessageHeader", 3)
    scene.heal()
    scene.world.until(lambda: all(len(payloads(each)) == 4 for each in scene.world.members))
    scene.world.run(1_000)
    scene.world.settle()
    assert [[each[:1] for each in payloads(member)] for member in scene.world.members] == [[b"b", b"0", b"1", b"2"]] * 3
    scene.check()


@pytest.mark.parametrize("toggle", [SNAPSHOT, SUSPEND, SHUTDOWN])
def test_a_state_that_no_quorum_has_is_taken_back(toggle: int) -> None:
    scene = CutOffLeader()
    scene.cut()
    scene.leader.set_toggle(toggle)
    scene.append("ClusterActionRequest")
    new = scene.heal()
    assert [each.state for each in scene.world.members] == ["ACTIVE"] * 3
    scene.world.client(new).message(b"after")
    scene.world.await_read(b"after")
    scene.check()
    assert not any(each.is_snapshot for each in scene.leader.entries())


@pytest.mark.parametrize("toggle", [SNAPSHOT, SUSPEND])
def test_a_follower_of_a_term_that_was_never_opened_takes_part_in_what_the_term_before_it_asks_for(toggle: int) -> None:
    """A leader was cut off. The next one died when it had one follower, and the first one leads again."""
    world = MembersWorld(5)
    first = world.await_leader()
    world.client(first).message(b"one")
    world.await_read(b"one")
    cut_off(first)
    first.set_toggle(toggle)
    world.until(lambda: first.logged("ClusterActionRequest"))
    others = [each for each in world.members if each is not first]

    def elected() -> list[MemberWorld]:
        return [each for each in others if each.counter_value(207) == ElectionState.LEADER_LOG_REPLICATION]

    world.until(elected)
    [second] = elected()
    follower = next(each for each in others if each is not second)
    cut_off(second, follower)
    world.until(lambda: any(each.leadership_term_id == 1 for each in follower.entries()))
    cut_off(follower)
    second.die()
    members = [each for each in world.members if each is not second]
    for other in members:
        if other not in (first, follower):
            world.fabric.heal(first.host, other.host)
    world.until(lambda: first.is_leading_now and first.counter_value(239) > 1)
    for other in members:
        if other is not follower:
            world.fabric.heal(follower.host, other.host)
    world.settle()
    if toggle == SUSPEND:
        assert [each.state for each in members] == ["SUSPENDED"] * 4
    else:
        assert [len([entry for entry in each.entries() if entry.is_snapshot]) for each in members] == [2] * 4
        first.die()
        world.client(world.await_leader()).message(b"two")
        world.await_read(b"two")
        assert not any(each.report_of("ack out of sequence") for each in members)


def cut_off(member: MemberWorld, but: MemberWorld | None = None) -> None:
    """Let nothing pass between a member and all others, or all but one."""
    for other in member.cluster.members:
        if other is not member and other is not but:
            member.cluster.fabric.cut(member.host, other.host)


def test_an_abort_of_a_leader_that_is_cut_off_ends_that_member_alone() -> None:
    scene = CutOffLeader()
    scene.cut()
    scene.leader.set_toggle(ABORT)
    scene.world.until(lambda: scene.leader.failure is not None)
    scene.world.until(lambda: len(scene.world.leaders) == 1)
