"""Native members at the edges of a term: what an election finds, what an end leaves, and what one of them says late."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from container.codecs import messages as codecs
from container.common.aeron_defaults import LOG_STREAM_ID
from container.consensus import channels
from container.consensus.cluster_member import ClusterMember
from container.consensus.election_host import APPEND_POSITION_FLAG_CATCHUP, APPEND_POSITION_FLAG_NONE, ElectionState
from container.errors import AgentTermination, ClusterError
from container.files.recording_log import RecordingLog
from container.storage.storage_seam import CREATE
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import PublicationInfo
from container.testing.simulation.disk import SimulatedDisk
from container.transport.streams import Publication, Subscription
from tests.consensus_world import ABORT, LOG_RECORDING, SNAPSHOT, TERM_LENGTH, ConsensusWorld
from tests.control_world import MS
from tests.members_world import (
    CLIENT_LIVENESS_MS,
    HEARTBEAT_TIMEOUT_MS,
    MARK_FILE_LIVENESS_MS,
    MembersWorld,
    MemberWorld,
    payloads,
)
from tests.scripted_peer import ScriptedPeer


class StalledArchive:
    """In place of an archive's conductor, while the archive does not work."""

    def do_work(self) -> int:
        return 0


@contextmanager
def stalled_archive(member: MemberWorld) -> Iterator[None]:
    """Have the archive of a member answer nothing, and record nothing."""
    conductor, member.conductor = member.conductor, StalledArchive()  # type: ignore[assignment]
    try:
        yield
    finally:
        member.conductor = conductor


def others(world: MembersWorld, member: MemberWorld) -> list[MemberWorld]:
    return [each for each in world.members if each is not member]


def play(world: MembersWorld, member: MemberWorld) -> ScriptedPeer:
    """Kill a member, and have a test say what it says."""
    member.die()
    world.run(CLIENT_LIVENESS_MS + 500)
    peer = ScriptedPeer(world.drivers[member.member_id].connect("peer"), world.members_text, member.member_id)

    def work() -> None:
        peer.work()

    world.on_step.append(work)
    world.until(lambda: peer.take("CommitPosition"))
    return peer


def canvass(peer: ScriptedPeer, to: ClusterMember, term_id: int, log_position: int, *, is_upstream: bool) -> None:
    """Have a peer say that it has no leader, as a member of ours or as one of upstream's."""
    if not is_upstream:
        assert peer.publisher.canvass_position(to, term_id, log_position, term_id)
        return
    assert isinstance(to.publication, Publication)
    message = codecs.encode(
        "cluster",
        "CanvassPosition",
        log_leadership_term_id=term_id,
        log_position=log_position,
        leadership_term_id=term_id,
        follower_member_id=peer.members.this_member.id,
        protocol_version=1 << 16,
    )
    assert seam.offer(to.publication, message) > 0


def scene(**settings: Any) -> tuple[MembersWorld, MemberWorld, list[MemberWorld]]:
    """A cluster whose members have all read a message, its leader, and its followers."""
    world = MembersWorld(**settings)
    leader = world.await_leader()
    world.client(leader).message(b"one")
    world.await_read(b"one")
    return world, leader, others(world, leader)


def test_a_member_whose_recording_has_stopped_votes_for_no_log_behind_its_own() -> None:
    world, leader, [absent, _] = scene()
    peer = play(world, absent)
    recorded, term_id = leader.published_position, leader.counter_value(239)
    leader.stop_log_recording()
    with stalled_archive(leader):
        world.until(lambda: not leader.agent.has_leader)
        assert peer.publisher.request_vote(peer.member(leader.member_id), term_id, recorded - 32, term_id + 5)
        world.until(lambda: any(each.name == "Vote" for each in peer.heard))
    vote = peer.take("Vote")
    assert vote is not None
    assert (vote["vote"], vote["log_position"]) == (False, recorded)


def test_the_archive_of_a_follower_that_ends_does_not_go_on_recording() -> None:
    world, leader, [follower, other] = scene()
    assert follower.counter(LOG_RECORDING)
    follower.agent.close()
    for service in follower.services:
        service.client.close()
    follower.services = []
    follower.member.close()
    follower.failure = AgentTermination("closed")
    world.run(100)
    assert leader.is_leading_now
    assert not follower.counter(LOG_RECORDING)
    assert other.counter(LOG_RECORDING)


def test_members_do_not_end_where_a_leader_of_an_earlier_term_wanted_them_to() -> None:
    world, leader, followers = scene()
    client = world.client(leader)
    with stalled_archive(followers[0]), stalled_archive(followers[1]):
        client.message(b"two")
        count = len(leader.logged("SessionMessageHeader"))
        world.until(lambda: len(leader.logged("SessionMessageHeader")) > count)
        leader.set_toggle(ABORT)
        world.until(lambda: leader.state == "TERMINATING")
        world.run(50)
        leader.die()
    leader = world.await_leader()
    world.client(leader).message(b"three")
    world.await_read(b"three")
    world.run(1_000)
    assert [(each.failure, each.state) for each in followers] == [(None, "ACTIVE")] * 2


def test_a_member_that_catches_up_while_services_take_a_snapshot_counts_as_there() -> None:
    world, leader, [back, other] = scene()
    client = world.client(leader)
    back.die()
    leader.set_toggle(SNAPSHOT)
    world.until(lambda: all(len(each.entries()) == 3 for each in (leader, other)))
    client.message(b"two")
    world.await_read(b"two")
    back.come_back()
    back.services[0].stops_at_snapshots = True
    world.until(lambda: back.services[0].is_quiet)
    other.die()
    counts = leader.counter_value(238), back.counter_value(238)
    world.run(3 * HEARTBEAT_TIMEOUT_MS)
    assert leader.is_leading_now
    back.services[0].is_quiet = False
    client.message(b"three")
    world.await_read(b"three")
    assert (leader.counter_value(238), back.counter_value(238)) == counts
    assert not back.report_of("no catchup progress")
    assert payloads(back) == [b"one", b"two", b"three"]


def test_a_quorum_that_is_behind_what_is_committed_is_reported_once() -> None:
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    committed, term_id = leader.commit_position, leader.counter_value(239)
    peer.habit = lambda: peer.publisher.append_position(peer.member(leader.member_id), term_id, 96, 0)
    world.run(100)
    other.die()
    world.run(2 * HEARTBEAT_TIMEOUT_MS)
    text = f"quorum position went backwards: leaderCommitPosition={committed} quorumPosition=96"
    assert [str(each) for each in leader.errors].count(text) == 1
    assert leader.commit_position == committed
    assert {each.fields["log_position"] for each in peer.heard if each.name == "CommitPosition"} == {committed}


def test_a_member_that_catches_up_again_in_an_election_is_replayed_to_where_it_is_now() -> None:
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    to = peer.member(leader.member_id)
    log_term_id, recorded = leader.counter_value(239), leader.published_position
    other.is_stalled = True
    world.until(lambda: not leader.agent.has_leader)
    peer.habit = lambda: peer.publisher.canvass_position(to, log_term_id, recorded, log_term_id)
    world.until(lambda: any(each.name == "RequestVote" for each in peer.heard))
    request = peer.take("RequestVote")
    assert request is not None
    term_id = request["candidate_term_id"]
    peer.habit = lambda: peer.publisher.append_position(to, term_id, recorded, 0)
    assert peer.publisher.place_vote(to, term_id, log_term_id, recorded, True)
    leader.services[0].is_quiet = True
    world.until(lambda: (leader.counter_value(207), leader.counter_value(239)) == (ElectionState.LEADER_INIT, term_id))
    peer.habit = None
    assert peer.publisher.catchup_position(to, term_id, 0, f"{absent.host}:7001")
    world.until(lambda: replays(leader) == ["7001"])
    assert peer.publisher.canvass_position(to, log_term_id, recorded, term_id)
    assert peer.publisher.catchup_position(to, term_id, 0, f"{absent.host}:7002")
    world.until(lambda: replays(leader) == ["7002"])
    assert leader.counter_value(207) == ElectionState.LEADER_INIT


@pytest.mark.parametrize(
    ("is_upstream", "flags", "is_committed"),
    [
        (True, APPEND_POSITION_FLAG_CATCHUP, True),
        (True, APPEND_POSITION_FLAG_NONE, False),
        (False, APPEND_POSITION_FLAG_CATCHUP, False),
    ],
)
def test_what_a_member_of_upstreams_records_while_it_catches_up_counts_for_its_leader(
    is_upstream: bool, flags: int, is_committed: bool
) -> None:
    """It says that in the term that it has read, which is an older one until what it records is committed."""
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    to = peer.member(leader.member_id)
    term_id, committed = leader.counter_value(239), leader.commit_position
    canvass(peer, to, term_id - 1, committed, is_upstream=is_upstream)
    world.until(lambda: peer.take("NewLeadershipTerm"))
    with stalled_archive(other):
        world.client(leader).message(b"two")
        world.until(lambda: leader.published_position > committed)
        assert peer.publisher.catchup_position(to, term_id, committed, f"{absent.host}:7001")
        world.until(lambda: replays(leader) == ["7001"])
        position = leader.published_position
        peer.habit = lambda: peer.publisher.append_position(to, term_id - 1, position, flags)
        world.run(200)
        assert leader.commit_position == (position if is_committed else committed)


@pytest.mark.parametrize(("terms_ago", "committed"), [(1, 0), (0, 96)])
def test_a_leader_that_has_committed_nothing_answers_a_member_of_upstreams_with_a_log_of_an_older_term(
    terms_ago: int, committed: int
) -> None:
    """That truncates it, and asks again; what it has of this term counts before it hears of a commit position of 0."""
    world = MembersWorld()
    world.until(lambda: world.leaders)
    [leader] = world.leaders
    absent, other = others(world, leader)
    with stalled_archive(other):
        peer = play(world, absent)
        assert leader.commit_position == 0
        to, term_id = peer.member(leader.member_id), leader.counter_value(239)
        peer.habit = lambda: canvass(peer, to, term_id - terms_ago, 96, is_upstream=True)
        world.until(lambda: any(each.name == "NewLeadershipTerm" for each in peer.heard))
    [heard, *_] = [each.fields for each in peer.heard if each.name == "NewLeadershipTerm"]
    assert heard["commit_position"] == committed
    assert heard["next_term_base_log_position"] == (0 if terms_ago else -1)


def test_members_that_have_the_first_half_of_a_message_follow_their_leader_again() -> None:
    """They can join its log only where theirs ends. They hear of each frame; the leader commits whole messages."""
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    to, term_id = peer.member(leader.member_id), leader.counter_value(239)
    with stalled_archive(other):
        client = world.client(leader)
        begin = leader.published_position
        client.message(bytes(3_000))
        world.until(lambda: leader.published_position > begin + 3_000)
        half = begin + 1408
        peer.habit = lambda: canvass(peer, to, term_id, half, is_upstream=False)
        world.until(lambda: any(each.fields.get("commit_position") == half for each in peer.heard))
    assert leader.commit_position == begin


def test_a_replay_waits_until_the_one_before_has_let_its_session_go() -> None:
    world, leader, [absent, _] = scene()
    peer = play(world, absent)
    to, endpoint = peer.member(leader.member_id), f"{absent.host}:7001"
    term_id = leader.counter_value(239)
    assert peer.publisher.catchup_position(to, term_id, 0, endpoint)
    world.until(lambda: replays(leader) == ["7001"])
    [first] = [each.registration_id for each in catchups(leader)]
    assert peer.publisher.canvass_position(to, term_id, 0, term_id)
    assert peer.publisher.catchup_position(to, term_id, 0, endpoint)
    world.until(lambda: [each.registration_id for each in catchups(leader)] not in ([], [first]))
    assert not leader.report_of("catchup replay of member")


def test_a_replay_that_does_not_begin_is_given_up_with_the_wait_of_its_member() -> None:
    world, leader, [absent, _] = scene()
    peer = play(world, absent)
    to, term_id = peer.member(leader.member_id), leader.counter_value(239)
    driver = world.drivers[leader.member_id]
    for _failure in range(100):
        driver.fail_next_add("exclusive_publication")
    assert peer.publisher.catchup_position(to, term_id, 0, f"{absent.host}:7001")
    world.run(HEARTBEAT_TIMEOUT_MS // 2)
    assert not leader.report_of("catchup replay of member")
    world.until(lambda: leader.report_of(f"catchup replay of member {absent.member_id} failed"))
    assert not catchups(leader)


def test_a_new_leader_commits_with_a_follower_whose_service_is_busy() -> None:
    world, leader, [other, busy] = scene()
    leader.die()
    busy.services[0].is_quiet = True
    world.until(lambda: other.is_leading_now)
    world.client(other).message(b"two")
    world.until(lambda: payloads(other) == [b"one", b"two"])
    assert payloads(busy) == [b"one"]
    busy.services[0].is_quiet = False
    world.await_read(b"two")


def test_the_log_stays_until_services_that_are_busy_for_several_time_outs_have_joined_it() -> None:
    """A service that is to join a log waits for its image, and upstream's for nothing else, for ever."""
    world, left, work = busy_scene()
    world.run(4 * HEARTBEAT_TIMEOUT_MS)
    assert not any(each.report_of("INIT: waited too long for the recording of the log to end") for each in left)
    assert all(len(each.counter(LOG_RECORDING)) <= 1 for each in left)
    for member, turn in zip(left, work, strict=True):
        member.services[0].work = turn  # type: ignore[method-assign]
    world.client(world.await_leader()).message(b"two")
    world.await_read(b"two")
    assert [payloads(each) for each in left] == [[b"one", b"two"]] * 2
    world.run(2 * HEARTBEAT_TIMEOUT_MS)
    assert [len(logs(each)) for each in left] == [each.is_leading_now for each in left]


def test_a_member_whose_services_were_busy_when_it_was_to_lead_follows_another_meanwhile() -> None:
    world, left, work = busy_scene()
    [busy] = [each for each in left if each.report_of("LEADER_INIT: waited too long")]
    [other] = [each for each in left if each is not busy]
    other.services[0].work = work[left.index(other)]  # type: ignore[method-assign]
    world.until(lambda: other.is_leading_now)
    world.client(other).message(b"two")
    world.until(lambda: payloads(other) == [b"one", b"two"])
    world.run(4 * HEARTBEAT_TIMEOUT_MS)
    assert payloads(busy) == [b"one"]
    assert len(logs(busy)) == 1
    busy.services[0].work = work[left.index(busy)]  # type: ignore[method-assign]
    world.await_read(b"two")
    assert not logs(busy)


def test_services_of_a_follower_find_the_log_of_a_leader_that_closed_it_before_its_term_began() -> None:
    """The leader's own services had joined it by then; those of the follower were busy."""
    world, left, work = busy_scene()
    [led] = [each for each in left if each.report_of("LEADER_INIT: waited too long")]
    [other] = [each for each in left if each is not led]
    led.services[0].work = work[left.index(led)]  # type: ignore[method-assign]
    world.until(lambda: led.is_leading_now)
    world.client(led).message(b"two")
    world.until(lambda: payloads(led) == [b"one", b"two"])
    world.run(4 * HEARTBEAT_TIMEOUT_MS)
    other.services[0].work = work[left.index(other)]  # type: ignore[method-assign]
    world.await_read(b"two")


def test_a_member_that_comes_back_into_a_term_in_which_nothing_more_comes_follows_its_leader() -> None:
    """It has the whole log, and only what a client says next would make that longer."""
    world, leader, [away, _] = scene()
    world.run(HEARTBEAT_TIMEOUT_MS)
    end = leader.published_position
    for other in others(world, away):
        world.fabric.cut(away.host, other.host)
    world.until(lambda: not away.agent.has_leader)
    for other in others(world, away):
        world.fabric.heal(away.host, other.host)
    world.until(lambda: away.agent.has_leader)
    assert (leader.published_position, leader.is_leading_now) == (end, True)


def test_a_follower_keeps_one_subscription_of_a_log_that_it_leaves_and_follows_again_and_again() -> None:
    """Its services were asked to join by the first; they are busy until after the last."""
    world, leader, [away, _] = scene()
    away.services[0].busy_until_ns = world.time.now_ns + 60 * HEARTBEAT_TIMEOUT_MS * MS

    def change(*, is_cut: bool, state: ElectionState) -> None:
        for other in others(world, away):
            (world.fabric.cut if is_cut else world.fabric.heal)(away.host, other.host)
        world.until(lambda: away.counter_value(207) == state)
        world.run(HEARTBEAT_TIMEOUT_MS // 2)

    def kept() -> list[Subscription]:
        streams = [each for each in away.member.open_resources if isinstance(each, Subscription)]
        return [each for each in streams if each.stream_id == LOG_STREAM_ID]

    change(is_cut=True, state=ElectionState.CANVASS)
    change(is_cut=False, state=ElectionState.FOLLOWER_LOG_AWAIT)
    [asked] = kept()
    for _ in range(3):
        change(is_cut=True, state=ElectionState.CANVASS)
        assert kept() == [asked]
        change(is_cut=False, state=ElectionState.FOLLOWER_LOG_AWAIT)
    assert leader.is_leading_now


def test_a_leader_keeps_its_quorum_while_the_services_of_the_only_follower_are_slow_to_join_a_catch_up() -> None:
    """That follower says where its log ends meanwhile: it hears its leader, and would vote for it again."""
    world, leader, [back, third] = scene()
    back.die()
    world.client(leader).message(b"two")
    world.until(lambda: payloads(leader) == [b"one", b"two"])
    back.come_back()
    world.until(lambda: back.counter_value(207) == ElectionState.FOLLOWER_CATCHUP_AWAIT)
    back.services[0].busy_until_ns = world.time.now_ns + 6 * HEARTBEAT_TIMEOUT_MS * MS
    world.run(HEARTBEAT_TIMEOUT_MS // 2)
    third.die()
    world.run(4 * HEARTBEAT_TIMEOUT_MS)
    assert leader.is_leading_now
    world.await_read(b"two")
    assert payloads(back) == [b"one", b"two"]


@pytest.mark.parametrize("has_died", [False, True])
def test_services_of_a_follower_join_a_log_that_is_replayed_no_more(has_died: bool) -> None:
    """A leader that steps back ends what it replays to members that are behind; its archive does so at once."""
    world, leader, [back, _] = scene()
    back.die()
    world.client(leader).message(b"two")
    world.until(lambda: payloads(leader) == [b"one", b"two"])
    back.come_back()
    world.until(lambda: back.counter_value(207) == ElectionState.FOLLOWER_CATCHUP_AWAIT)
    back.services[0].busy_until_ns = world.time.now_ns + 10 * HEARTBEAT_TIMEOUT_MS * MS
    joins = len(back.services[0].joins)
    world.run(HEARTBEAT_TIMEOUT_MS // 2)
    if has_died:
        leader.die()
    else:
        leader.stop_log_recording()
    world.run(3 * HEARTBEAT_TIMEOUT_MS)
    assert (len(back.services[0].joins), payloads(back)) == (joins, [b"one"])
    world.client(world.await_leader()).message(b"three")
    world.await_read(b"three")
    assert payloads(back) == [b"one", b"two", b"three"]


def test_services_that_have_joined_a_replay_read_what_came_of_it_though_another_member_leads_by_then() -> None:
    """Their member counts as applied all that it has read: the next log begins there."""
    world, leader, [back, _] = scene()
    client = world.client(leader)
    for _ in range(2 * TERM_LENGTH // 3_000):
        client.message(bytes(3_000))
        world.run(10)
    world.settle()
    back.die()
    back.come_back()
    [service] = back.services
    world.until(lambda: len(service.acks) == 2 and back.commit_position > 0)
    service.busy_until_ns = world.time.now_ns + 4 * HEARTBEAT_TIMEOUT_MS * MS
    assert back.counter_value(207) == ElectionState.FOLLOWER_REPLAY
    leader.stop_log_recording()
    world.until(lambda: back.report_of("a newer term than 0, in which this member is in FOLLOWER_REPLAY"))
    assert back.commit_position > service.position
    world.client(world.await_leader()).message(b"two")
    world.await_read(b"two")


def busy_scene() -> tuple[MembersWorld, list[MemberWorld], list[Callable[[], None]]]:
    """As :func:`scene` without its leader: one of the others could not lead, as its services are busy.

    All of those are; what they do in a turn is for the test to give back to them.
    """
    world, leader, left = scene()
    leader.die()
    work = [each.services[0].work for each in left]
    for member in left:
        member.services[0].work = lambda: None  # type: ignore[method-assign]
    world.until(lambda: any(each.report_of("LEADER_INIT: waited too long") for each in left))
    return world, left, work


def logs(member: MemberWorld) -> list[PublicationInfo]:
    """The publications of the log that a member has."""
    publications = member.cluster.drivers[member.member_id].publications()
    return [each for each in publications if "alias=log|" in each.channel or each.channel.endswith("alias=log")]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_timer_that_is_scheduled_again_while_its_event_is_on_its_way_is_there_on_all_members(
    is_cancelled: bool,
) -> None:
    """Its services have not read the event yet. To the leader they speak after it, and to the followers before it."""
    world, leader, followers = scene()
    begin = seam.epoch_ms(leader.member)
    again = {"correlation_id": 7, "deadline": begin + 600_000}
    for member in world.members:
        member.services[0].schedule(7, begin + 300)
    world.run(50)
    with stalled_archive(followers[0]), stalled_archive(followers[1]):
        world.until(lambda: len(leader.logged("TimerEvent")) == 1)
        for member in world.members:
            if is_cancelled:
                member.services[0].cancel(7)
            else:
                member.services[0].schedule(**again)
        world.run(20)
    world.until(lambda: all("TimerEvent" in each.services[0].names() for each in world.members))
    if is_cancelled:
        for member in world.members:
            member.services[0].schedule(**again)
        world.run(20)
    leader.set_toggle(SNAPSHOT)
    world.until(lambda: all(any(each.is_snapshot for each in member.entries()) for member in world.members))
    timers = [[fields for name, fields in member.snapshot() if name == "Timer"] for member in world.members]
    assert timers == [[again]] * 3


@pytest.mark.parametrize("is_early", [False, True])
def test_no_member_gives_an_id_to_a_message_of_a_service_that_the_log_does_not_take(is_early: bool) -> None:
    world = MembersWorld()
    if not is_early:
        world.await_leader()
    world.until(lambda: all(each.services[0].recovery_key for each in world.members))
    for member in world.members:
        member.services[0].offer(bytes(TERM_LENGTH // 8))
        member.services[0].offer(b"one")
    first = world.await_leader()
    world.await_read(b"one")
    first.die()
    second = world.await_leader()
    for member in world.up():
        member.services[0].offer(b"two")
    world.await_read(b"two")
    assert [payloads(each) for each in world.up()] == [[b"one", b"two"]] * 2
    assert all(each.report_of(f"message of {TERM_LENGTH // 8} bytes from serviceId=0") for each in world.members)
    assert second.is_leading_now


def test_a_message_that_no_log_takes_ends_a_new_member_and_is_refused_after_its_restart() -> None:
    world = ConsensusWorld(log_channel="aeron:udp")

    def offer() -> None:
        world.until(lambda: world.services[0].recovery_key)
        for payload in (bytes(TERM_LENGTH // 8), b"one"):
            world.services[0].offer(payload)

    offer()
    world.until(lambda: world.failure is not None)
    assert f"a message of {TERM_LENGTH // 8} bytes came from a service before there was a log" in str(world.failure)
    world.restart()
    offer()
    world.lead()
    assert world.report_of(f"message of {TERM_LENGTH // 8} bytes from serviceId=0: the log takes 8160 at most")
    assert [each["payload"] for each in world.logged("SessionMessageHeader")] == [b"one"]


def test_another_member_leads_where_the_services_of_the_one_that_was_elected_do_not_replay_the_log() -> None:
    world, _, _ = scene()
    for member in world.members:
        member.die()
    world.run(MARK_FILE_LIVENESS_MS + CLIENT_LIVENESS_MS)
    for member in world.members:
        member.start_again()
    stuck: list[MemberWorld] = []

    def is_stuck() -> bool:
        stuck[:] = [each for each in world.members if each.counter_value(207) == ElectionState.LEADER_REPLAY]
        for member in stuck:
            member.services[0].is_quiet = True
        return bool(stuck)

    world.until(is_stuck)
    world.until(lambda: any(each not in stuck for each in world.leaders))
    assert stuck[0].report_of("waited too long for services and archive to continue the replay of the log")
    stuck[0].services[0].is_quiet = False
    world.client(world.await_leader()).message(b"two")
    world.await_read(b"two")
    assert [payloads(each) for each in world.members] == [[b"one", b"two"]] * 3


def test_a_follower_that_cannot_apply_the_log_ends_and_does_not_go_on_without_that_message() -> None:
    world, leader, followers = scene()
    channel = b"aeron:udp?endpoint=\xff:1"
    fields = dict.fromkeys(("leadership_term_id", "correlation_id", "timestamp", "response_stream_id"), 1)
    message = codecs.encode(
        "cluster", "SessionOpenEvent", cluster_session_id=99, response_channel=channel, encoded_principal=b"", **fields
    )
    assert seam.offer(leader.publication, message) > 0
    world.until(lambda: all(each.failure is not None for each in followers))
    assert ["the log cannot be applied: text field is not ASCII" in str(each.failure) for each in followers] == [
        True
    ] * 2


def test_a_leader_asks_again_for_a_destination_that_could_not_even_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MembersWorld()
    failures = [ClusterError("no memory for a request")]
    add = channels.destination

    def destination(channel: str, endpoint: str) -> str:
        if failures and endpoint.endswith(":9030"):
            raise failures.pop()
        return add(channel, endpoint)

    monkeypatch.setattr(channels, "destination", destination)
    leader = world.await_leader()
    assert any(each.report_of("yet: no memory for a request") for each in world.members)
    world.client(leader).message(b"one")
    world.await_read(b"one")
    assert [each.counter_value(238) for each in world.members] == [1] * 3


def test_a_member_that_was_wiped_says_what_keeps_it_where_the_leader_has_deleted_the_front_of_the_log() -> None:
    world = MembersWorld(snapshots_retained=1)
    leader = world.await_leader()
    client = world.client(leader)
    for _ in range(200):
        client.message(bytes(1000))
        world.run(4)
    world.settle()
    leader.set_toggle(SNAPSHOT)

    def begin_of_log() -> int:
        descriptor = leader.store.catalog.descriptor(leader.log_recording_id)
        assert descriptor is not None
        return descriptor.start_position

    world.until(begin_of_log)
    wiped = others(world, leader)[0]
    wiped.die()
    wiped.wipe()
    wiped.come_back()
    world.until(lambda: wiped.report_of(f"an image of the log to catch up with, from member {leader.member_id}"))
    assert leader.report_of(f"catchup replay of member {wiped.member_id} failed - requested replay start position=0")
    assert leader.report_of("start that one with the archive's and the cluster's directories of a backup")


def backup_of(disk: SimulatedDisk) -> SimulatedDisk:
    """The files of a stopped member, without its mark files."""
    made = SimulatedDisk()
    storage = made.process()
    for path, content in sorted(disk.contents().items()):
        if content is None:
            if not storage.exists(path):
                storage.make_directory(path)
        elif "mark" not in path.rpartition("/")[2]:
            file = storage.open_file(path, CREATE)
            file.write(content, 0)
            file.close()
    return made


def test_a_member_that_was_wiped_goes_on_with_a_backup_of_another_where_the_front_of_the_log_is_deleted() -> None:
    world = MembersWorld(snapshots_retained=1)
    leader = world.await_leader()
    client = world.client(leader)
    for _ in range(200):
        client.message(bytes(1000))
        world.run(4)
    world.settle()
    leader.set_toggle(SNAPSHOT)

    def begin_of_log() -> int:
        descriptor = leader.store.catalog.descriptor(leader.log_recording_id)
        assert descriptor is not None
        return descriptor.start_position

    world.until(begin_of_log)
    stopped, wiped = others(world, leader)
    stopped.leave()
    archive, cluster = backup_of(stopped.disk), backup_of(stopped.cluster_disk)
    stopped.come_back()
    client.message(b"later")
    world.await_read(b"later")
    wiped.die()
    wiped.wipe()
    wiped.disk, wiped.cluster_disk = archive, cluster
    wiped.come_back()
    client.message(b"after")
    world.await_read(b"after")
    assert payloads(wiped) == [b"later", b"after"]


@pytest.mark.parametrize("has_other_leader", [False, True])
def test_a_member_that_is_restored_from_a_backup_takes_back_nothing_of_it(has_other_leader: bool) -> None:
    """The backup's recording log has its snapshot's term and its leader's, and its log ends before that one."""
    world, _, _ = scene()

    def lead_anew(payload: bytes) -> MemberWorld:
        """Have another one lead, with the one that did as a follower."""
        [former] = world.leaders
        former.die()
        world.await_leader()
        former.come_back()
        newer = world.await_leader()
        world.client(newer).message(payload)
        world.await_read(payload)
        return newer

    lead_anew(b"two")
    copied = others(world, lead_anew(b"three"))[0]
    copied.leave()
    archive, cluster = backup_of(copied.disk), backup_of(copied.cluster_disk)
    copied.come_back()
    leader = lead_anew(b"four")
    last = leader.context.recording_log.find_last_term()
    assert last is not None
    log = RecordingLog.open(cluster.process(), "/cluster", create=False, file_sync_level=1)
    for entry in log.entries[1:]:
        log.remove_entry(entry.leadership_term_id, entry.entry_index)
    log.commit_log_position(log.entries[0].leadership_term_id, -1)
    log.append_term(last.recording_id, last.leadership_term_id, last.term_base_log_position, last.timestamp)
    log.force()
    log.close()
    if has_other_leader:
        leader = lead_anew(b"five")
    restored = others(world, leader)[0]
    restored.die()
    restored.wipe()
    restored.disk, restored.cluster_disk = archive, cluster
    restored.errors.clear()
    restored.come_back()
    world.client(leader).message(b"last")
    world.await_read(b"last")
    assert payloads(restored) == [b"one", b"two", b"three", b"four", *([b"five"] * has_other_leader), b"last"]
    assert not restored.report_of("truncating the log")


@pytest.mark.parametrize("is_to_leader", [True, False])
@pytest.mark.parametrize("name", ["CanvassPosition", "RequestVote", "NewLeadershipTerm", "CommitPosition"])
def test_a_term_that_no_cluster_can_reach_ends_no_term_and_is_reported(name: str, is_to_leader: bool) -> None:
    """Else one message without a sender that exists begins an election, again and again."""
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    member = leader if is_to_leader else other
    to, term_id = peer.member(member.member_id), leader.counter_value(239)
    unreachable = term_id + (1 << 32) + 1
    say = {
        "CanvassPosition": lambda: peer.publisher.canvass_position(to, term_id, 0, unreachable),
        "RequestVote": lambda: peer.publisher.request_vote(to, term_id, 0, unreachable),
        "NewLeadershipTerm": lambda: peer.publisher.new_leadership_term(
            to, term_id, -1, -1, -1, unreachable, 96, 96, 96, 7, 0, 4, 0, False
        ),
        "CommitPosition": lambda: peer.publisher.commit_position(to, unreachable, 96),
    }
    assert say[name]()
    is_ignored = name == "CanvassPosition" and not is_to_leader  # only leaders answer it
    if not is_ignored:
        text = f"{name} of member {absent.member_id} is ignored: its term {unreachable} is more than 4294967296 beyond"
        world.until(lambda: member.report_of(text))
    world.run(HEARTBEAT_TIMEOUT_MS // 2)
    assert leader.is_leading_now
    assert [each.counter_value(239) for each in (leader, other)] == [term_id] * 2
    assert not any(each.report_of("unexpected") or each.report_of("a newer term") for each in (leader, other))


@pytest.mark.parametrize("name", ["NewLeadershipTerm", "CommitPosition"])
def test_a_leader_of_a_term_that_no_cluster_can_reach_keeps_nobody_from_a_nomination(name: str) -> None:
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    to, term_id, committed = peer.member(other.member_id), leader.counter_value(239), other.commit_position
    unreachable = 1 << 62

    def say() -> None:
        peer.publisher.canvass_position(to, term_id, committed - 32, term_id)
        if name == "CommitPosition":
            peer.publisher.commit_position(to, unreachable, 96)
        else:
            peer.publisher.new_leadership_term(to, term_id, -1, -1, -1, unreachable, 96, 96, 96, 7, 0, 4, 0, False)

    leader.die()
    peer.habit = say
    world.until(lambda: peer.take("RequestVote"), 10 * HEARTBEAT_TIMEOUT_MS)


@pytest.mark.parametrize(("terms_behind", "is_followed"), [(1, False), (0, True)])
def test_a_leader_of_an_older_term_ends_no_member_by_its_version(terms_behind: int, is_followed: bool) -> None:
    """One that stood still while the others were upgraded says what it ran then."""
    world, leader, [absent, other] = scene()
    leader.die()
    world.until(lambda: absent.is_leading_now or other.is_leading_now)
    leader = world.await_leader()
    [follower] = [each for each in (absent, other) if each is not leader]
    [gone] = [each for each in world.members if not each.is_up]
    peer = ScriptedPeer(world.drivers[gone.member_id].connect("peer"), world.members_text, gone.member_id)
    world.on_step.append(peer.work)
    world.run(200)
    term_id = follower.counter_value(239) - terms_behind
    version = 200 << 16
    assert peer.publisher.new_leadership_term(
        peer.member(follower.member_id), term_id, -1, -1, -1, term_id, 96, 96, 96, 7, 0, 4, version, False
    )
    world.run(200)
    assert (follower.failure is not None or follower.report_of("incompatible version")) == is_followed
    assert follower.commit_position > 96


def test_a_member_takes_back_nothing_that_was_committed_whoever_asks_for_it() -> None:
    """One message, in the name of a native member, that says that the term ends where it begins."""
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    term_id, committed = leader.counter_value(239), other.commit_position
    assert committed > 96
    leader.die()
    world.until(lambda: other.counter_value(207) == ElectionState.CANVASS)
    assert peer.publisher.new_leadership_term(
        peer.member(other.member_id), term_id, term_id + 1, 96, -1, term_id + 1, 96, 96, committed, 7, 0, 4, 0, False
    )
    world.until(lambda: other.report_of("the log is not truncated: this member has recorded up to"))
    world.run(1_000)
    descriptor = other.store.catalog.descriptor(other.log_recording_id)
    assert descriptor is not None
    assert descriptor.stop_position == -1 or descriptor.stop_position >= committed
    leader.come_back()
    leader = world.await_leader()
    assert leader.commit_position >= committed


def test_a_term_far_ahead_does_not_fill_the_recording_logs() -> None:
    """One message names it: each member entered each term that it had missed then, until it died of that."""
    world, leader, [absent, other] = scene()
    peer = play(world, absent)
    term_id = leader.counter_value(239)
    to = peer.member(leader.member_id)
    peer.habit = lambda: peer.publisher.request_vote(to, term_id, 1 << 40, term_id + (1 << 31))
    world.until(lambda: min(each.counter_value(239) for each in (leader, other)) > 1 << 31, 10 * HEARTBEAT_TIMEOUT_MS)
    for each in (leader, other):
        assert each.cluster_disk.process().open_file("/cluster/recording.log", 0).length() < 256 * 64
    # The log of a member that led in between is of no term of theirs: that ends where it begins.
    peer.habit = lambda: None
    leader = world.await_leader()
    in_gap = 1 << 20

    # However long that log is. And where its last term with something in it ends, which that member would ask for next.
    for position in (64, 1 << 20):
        peer.heard.clear()
        assert peer.publisher.canvass_position(peer.member(leader.member_id), in_gap, position, in_gap)
        for own, following in ((term_id, leader.counter_value(239)), (in_gap, in_gap)):
            is_said = {"log_leadership_term_id": own, "next_leadership_term_id": following}
            world.until(lambda is_said=is_said: peer.take("NewLeadershipTerm", **is_said))  # type: ignore[misc]


def test_a_leader_gives_way_to_a_log_of_a_newer_term() -> None:
    """Else its member stayed alone for ever: it follows nobody who does not know the term of its log."""
    world, leader, [absent, _] = scene()
    peer = play(world, absent)
    to, term_id = peer.member(leader.member_id), leader.counter_value(239)
    assert peer.publisher.canvass_position(to, term_id + (1 << 40), 1 << 40, term_id)
    world.until(lambda: leader.report_of(f"is ignored: its term {term_id + (1 << 40)} is more than"))
    assert leader.is_leading_now
    assert peer.publisher.canvass_position(to, term_id + 1, 1 << 40, term_id)
    text = f"a newer term than {term_id}, which this member leads: the log of member {absent.member_id} is of"
    world.until(lambda: leader.report_of(text))


@pytest.mark.parametrize("name", ["CanvassPosition", "RequestVote"])
def test_a_term_out_of_reach_that_a_member_names_again_begins_an_election(name: str) -> None:
    """It follows nobody of a term before that in which it voted, whoever has brought it there."""
    world, leader, [absent, _] = scene()
    peer = play(world, absent)
    to, term_id = peer.member(leader.member_id), leader.counter_value(239)
    far = term_id + (1 << 32) + 1

    def say() -> None:
        if name == "CanvassPosition":
            peer.publisher.canvass_position(to, term_id, 0, far)
        else:
            peer.publisher.request_vote(to, term_id, 0, far)

    peer.habit = say
    world.until(lambda: leader.report_of("unexpected vote request") or leader.report_of("a newer term than"))
    world.until(lambda: peer.take("RequestVote"), 10 * HEARTBEAT_TIMEOUT_MS)


def test_members_whose_node_state_could_not_be_forced_once_elect_a_leader() -> None:
    """Else a moment without a disk leaves a cluster without a leader until somebody starts its members again."""
    world, leader, followers = scene()
    for each in followers:
        each.cluster_disk.fail("force", errno.EIO)
    leader.die()
    world.await_leader()
    assert all(each.report_of("cannot force: Input/output error: '/cluster/node-state.dat'") for each in followers)


@pytest.mark.parametrize("kind", ["force", "force_directory"])
def test_members_whose_recording_log_could_not_be_forced_once_elect_a_leader(kind: str) -> None:
    world, leader, followers = scene(file_sync_level=1)
    for each in followers:
        each.cluster_disk.fail("force", errno.EIO, after=1)  # behind that of the vote
        each.cluster_disk.fail(kind, errno.EIO, after=2 if kind == "force" else 0)
    leader.die()
    leader = world.await_leader()
    assert any(each.report_of("cannot force: Input/output error: '/cluster/recording.log'") for each in followers)
    world.until(lambda: leader.commit_position > 0)


def catchups(member: MemberWorld) -> list[PublicationInfo]:
    """The publications by which the archive of a member replays the log to others."""
    publications = member.cluster.drivers[member.member_id].publications()
    return [each for each in publications if "catchup-followerId" in each.channel]


def replays(member: MemberWorld) -> list[str]:
    """The ports to which the archive of a member replays the log."""
    return [each.channel.partition("endpoint=")[2].partition("|")[0].rpartition(":")[2] for each in catchups(member)]
