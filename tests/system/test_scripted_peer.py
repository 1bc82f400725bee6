"""Elections of two members of the real jar and a third that a test plays, over UDP, without a log of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from container.aeron import AeronClient, MediaDriver
from container.common.aeron_defaults import LOG_STREAM_ID
from container.consensus.election_host import ElectionState
from container.testing.memory import transport_probe as seam
from container.testing.processes.endpoints import MemberEndpoints, PortReservation, members_string
from container.testing.processes.local_cluster import QUICK_FAILOVER, SMALL_JVM_FLAGS, CounterType, LocalMember, Service
from tests.limits import LIMIT_S
from tests.scripted_peer import ScriptedPeer
from tests.system.harness import ECHO_SERVICE, NodeFactory

PEER = 2
JAVA = (0, 1)
HEARTBEAT_TIMEOUT_S = 2.0
UPSTREAMS_PROTOCOL_VERSION = 1 << 16
APP_VERSION = 1
RECORDING_ID, SESSION_ID = 600, 777
NULL_VALUE = -1
CATCHING_UP = 1
PROPERTIES = {**QUICK_FAILOVER, "aeron.cluster.termination.timeout": f"{2 * LIMIT_S:.0f}s"}


class Trio:
    """Two members of Java's, which are started, and a peer."""

    def __init__(self, node: NodeFactory, client: AeronClient, endpoints: Sequence[MemberEndpoints]) -> None:
        self.members = [
            LocalMember(
                node(member_id=each, members=endpoints, properties=PROPERTIES, jvm_flags=SMALL_JVM_FLAGS),
                [Service(ECHO_SERVICE)],
            )
            for each in JAVA
        ]
        self.peer = ScriptedPeer(client, members_string(endpoints), PEER)
        for member in self.members:
            member.start()

    def state(self, member_id: int) -> int | None:
        """Of a member's election."""
        return self.members[member_id].node.counter_value(CounterType.ELECTION_STATE)

    def canvass(self, log_leadership_term_id: int, log_position: int) -> None:
        """Have the peer look for a leader, with a log that it pretends to have."""
        self.peer.habit = lambda: [
            self.peer.publisher.canvass_position(each, log_leadership_term_id, log_position, log_leadership_term_id)
            for each in self.peer.members.others()
        ]

    def hear_canvass(self) -> dict[int, tuple[int, int]]:
        """Wait until both members look for a leader; term and position of the end of their logs."""
        self.peer.heard.clear()
        found = {}
        for each in JAVA:
            said = self.peer.hear("CanvassPosition", LIMIT_S, follower_member_id=each)
            assert said["protocol_version"] == UPSTREAMS_PROTOCOL_VERSION
            found[each] = said["log_leadership_term_id"], said["log_position"]
        return found

    def follow(self, newer_than: int = NULL_VALUE) -> dict[str, Any]:
        """Vote for who asks first in each term, until one leads, and follow it; its NewLeadershipTerm."""
        voted = newer_than
        while True:
            self.peer.until(
                lambda: any(each.name in ("RequestVote", "NewLeadershipTerm") for each in self.peer.heard),
                LIMIT_S,
                f"a candidate or a leader of a term after {newer_than}",
            )
            request = self.peer.take("RequestVote")
            if request is not None:
                term_id = request["candidate_term_id"]
                candidate = self.peer.member(request["candidate_member_id"])
                self.peer.publisher.place_vote(candidate, term_id, NULL_VALUE, 0, term_id > voted)
                voted = max(voted, term_id)
            term = self.peer.take("NewLeadershipTerm")
            if term is not None and term["leadership_term_id"] > newer_than:
                leader = self.peer.member(term["leader_member_id"])
                assert self.peer.publisher.append_position(leader, term["leadership_term_id"], 0, 0)
                return term

    def win(
        self, term_id: int, log_leadership_term_id: int, log_position: int, commit_positions: Sequence[int]
    ) -> None:
        """Have the peer be elected by both, and say NewLeadershipTerm to each, with that commit position, once."""
        missing = set(JAVA)

        def ask() -> None:
            for each in missing:
                self.peer.publisher.request_vote(self.peer.member(each), log_leadership_term_id, log_position, term_id)

        self.peer.habit = ask
        while missing:
            vote = self.peer.hear("Vote", LIMIT_S, candidate_term_id=term_id, candidate_member_id=PEER, vote=True)
            voter_id = vote["follower_member_id"]
            assert (vote["log_leadership_term_id"], vote["log_position"]) == (log_leadership_term_id, log_position)
            missing.discard(voter_id)
            assert self.peer.publisher.new_leadership_term(
                self.peer.member(voter_id),
                log_leadership_term_id,
                term_id,
                log_position,
                NULL_VALUE,
                term_id,
                log_position,
                log_position,
                commit_positions[voter_id],
                RECORDING_ID,
                0,
                SESSION_ID,
                APP_VERSION,
                False,
            )
        self.peer.habit = None

    def await_commit(self, leader_member_id: int, beyond: int = 0) -> int:
        """Wait until a leader says that something beyond a position is committed; up to where."""
        while True:
            said = self.peer.hear("CommitPosition", LIMIT_S, leader_member_id=leader_member_id)
            if said["log_position"] > beyond:
                return int(said["log_position"])


@pytest.fixture
def trio(node: NodeFactory, tmp_path: Path) -> Iterator[Trio]:
    ports = PortReservation()
    endpoints = [MemberEndpoints.take(each, ports) for each in (*JAVA, PEER)]
    with MediaDriver.launch_embedded(tmp_path / "driver") as driver, AeronClient(driver.aeron_dir) as client:
        found = Trio(node, client, endpoints)
        yield found
        assert not found.peer.errors
        found.peer.close()
    ports.close()


@pytest.mark.slow  # 20 s
def test_cm46_a_peer_refuses_votes_follows_and_leads(trio: Trio) -> None:
    peer = trio.peer

    # Without its vote nobody leads; who was refused asks again, in a newer term.
    assert trio.hear_canvass() == dict.fromkeys(JAVA, (NULL_VALUE, 0))
    trio.canvass(NULL_VALUE, 0)
    request = peer.hear("RequestVote", LIMIT_S)
    assert (request["log_leadership_term_id"], request["log_position"]) == (NULL_VALUE, 0)
    assert request["protocol_version"] == UPSTREAMS_PROTOCOL_VERSION
    first_term_id = request["candidate_term_id"]
    refused = peer.member(request["candidate_member_id"])
    assert peer.publisher.place_vote(refused, first_term_id, NULL_VALUE, 0, False)
    peer.heard.clear()
    peer.hear("CanvassPosition", LIMIT_S, follower_member_id=refused.id)
    assert not any(member.node.is_leader for member in trio.members)

    # With its vote one does, and says so.
    term = trio.follow(newer_than=first_term_id)
    peer.habit = None
    term_id, leader_id = term["leadership_term_id"], term["leader_member_id"]
    assert (term["log_leadership_term_id"], term["term_base_log_position"], term["log_position"]) == (NULL_VALUE, 0, 0)
    assert (term["commit_position"], term["app_version"], term["protocol_version"]) == (0, APP_VERSION, NULL_VALUE)
    committed = trio.await_commit(leader_id)
    peer.until(lambda: trio.members[leader_id].node.is_leader, LIMIT_S, "the elected member to lead")

    # Who looks for a leader, while there is one, hears what comes next in its log.
    peer.heard.clear()
    trio.canvass(NULL_VALUE, 0)
    answer = peer.hear("NewLeadershipTerm", LIMIT_S)
    assert (answer["log_leadership_term_id"], answer["leadership_term_id"]) == (NULL_VALUE, term_id)
    assert (answer["next_leadership_term_id"], answer["next_term_base_log_position"]) == (0, 0)
    assert (answer["log_position"], answer["leader_member_id"]) == (committed, leader_id)
    assert answer["commit_position"] == committed
    assert not answer["is_startup"]
    trio.canvass(term_id, committed)
    answer = peer.hear("NewLeadershipTerm", LIMIT_S, log_leadership_term_id=term_id)
    next_names = ("next_leadership_term_id", "next_term_base_log_position", "next_log_position")
    assert [answer[name] for name in next_names] == [NULL_VALUE] * 3
    peer.habit = None

    # A candidate of a newer term deposes the leader, and is refused where its log is the worse one.
    deposing_term_id = term_id + 1
    assert peer.publisher.request_vote(peer.member(leader_id), NULL_VALUE, 0, deposing_term_id)
    assert set(trio.hear_canvass().values()) == {(term_id, committed)}
    assert peer.publisher.request_vote(peer.member(leader_id), NULL_VALUE, 0, deposing_term_id + 1)
    vote = peer.hear("Vote", LIMIT_S, candidate_term_id=deposing_term_id + 1)
    assert (vote["follower_member_id"], vote["candidate_member_id"], vote["vote"]) == (leader_id, PEER, False)
    assert (vote["log_leadership_term_id"], vote["log_position"]) == (term_id, committed)

    # It votes for who is better.
    trio.canvass(NULL_VALUE, 0)
    term = trio.follow(newer_than=deposing_term_id + 1)
    peer.habit = None
    term_id, leader_id = term["leadership_term_id"], term["leader_member_id"]
    assert term_id > deposing_term_id + 1
    committed = trio.await_commit(leader_id, beyond=committed)
    peer.until(lambda: trio.members[leader_id].node.is_leader, LIMIT_S, "the elected member to lead")

    # With a log as good as theirs it is elected, and both wait for its log.
    assert peer.publisher.request_vote(peer.member(leader_id), NULL_VALUE, 0, term_id + 1)
    ((log_term_id, log_position),) = set(trio.hear_canvass().values())
    assert (log_term_id, log_position) == (term_id, committed)
    own_term_id = term_id + 2
    trio.win(own_term_id, log_term_id, log_position, [log_position] * 2)
    waiting = {ElectionState.FOLLOWER_LOG_INIT, ElectionState.FOLLOWER_LOG_AWAIT}
    peer.until(lambda: {trio.state(each) for each in JAVA} <= waiting, LIMIT_S, "both to wait for the peer's log")
    for each in peer.members.others():
        assert peer.publisher.commit_position(each, own_term_id, log_position)

    # It says no more: they look for another leader, which it follows.
    assert trio.hear_canvass() == dict.fromkeys(JAVA, (log_term_id, log_position))
    trio.canvass(log_term_id, log_position)
    term = trio.follow(newer_than=own_term_id)
    assert term["leader_member_id"] in JAVA


@pytest.mark.slow  # 20 s
def test_cm46_a_peer_is_sent_the_log_and_ends_with_its_leader(trio: Trio) -> None:
    peer = trio.peer
    trio.canvass(NULL_VALUE, 0)
    term = trio.follow()
    peer.habit = None
    leader, term_id = peer.member(term["leader_member_id"]), term["leadership_term_id"]
    committed = trio.await_commit(leader.id)
    peer.until(lambda: trio.members[leader.id].node.is_leader, LIMIT_S, "the elected member to lead")

    # The leader's archive sends its log to where the peer says, until the peer says that it has it.
    endpoint = peer.members.this_member.catchup_endpoint
    log = seam.add_subscription(peer.client, f"aeron:udp?endpoint={endpoint}", LOG_STREAM_ID)
    assert peer.publisher.catchup_position(leader, term_id, 0, endpoint)
    peer.until(lambda: seam.image(log, term["log_session_id"]) is not None, LIMIT_S, "the leader's log to come")
    assert peer.take("StopCatchup") is None
    assert peer.publisher.append_position(leader, term_id, committed, CATCHING_UP)
    assert peer.hear("StopCatchup", LIMIT_S) == {"leadership_term_id": term_id}
    log.close()

    # The leader waits for the peer to end, for longer than this test does.
    peer.heard.clear()
    assert trio.members[leader.id].node.cluster_tool("abort").return_code == 0
    position = peer.hear("TerminationPosition", LIMIT_S)
    assert position == {"leadership_term_id": term_id, "log_position": committed}
    (other,) = [each for each in trio.members if each.member_id != leader.id]
    peer.until(lambda: other.has_ended, LIMIT_S, "the other follower to end")
    assert trio.members[leader.id].node.process.is_running
    assert peer.publisher.termination_ack(leader, term_id, committed)
    peer.until(lambda: trio.members[leader.id].has_ended, LIMIT_S, "the leader to end")


@pytest.mark.slow  # 25 s
def test_a_leader_that_falls_silent_without_a_commit_position_holds_a_follower_of_upstreams_for_ever(
    trio: Trio,
) -> None:
    peer = trio.peer
    trio.canvass(NULL_VALUE, 0)
    term = trio.follow()
    peer.habit = None
    trio.await_commit(term["leader_member_id"])
    for member in trio.members:
        member.restart()
    ((log_term_id, log_position),) = set(trio.hear_canvass().values())
    stuck, control = JAVA
    own_term_id = log_term_id + 1
    trio.win(own_term_id, log_term_id, log_position, [0, log_position])
    peer.until(
        lambda: trio.state(stuck) == ElectionState.FOLLOWER_REPLAY, LIMIT_S, "the follower to wait for its replay"
    )
    begin = time.monotonic()
    peer.heard.clear()

    # The one that knows the quorum's position looks for a leader again after about a heartbeat timeout.
    peer.hear("CanvassPosition", LIMIT_S, follower_member_id=control)
    control_s = time.monotonic() - begin

    # The other one goes on to say how far its log goes, to a leader that is gone.
    silence_s = max(4 * HEARTBEAT_TIMEOUT_S, 2 * control_s)
    peer.until(lambda: time.monotonic() - begin > silence_s, LIMIT_S, "some heartbeat timeouts to pass")
    assert trio.state(stuck) == ElectionState.FOLLOWER_REPLAY
    assert peer.take("CanvassPosition", follower_member_id=stuck) is None
    peer.heard.clear()
    said = peer.hear("AppendPosition", LIMIT_S, follower_member_id=stuck)
    assert (said["leadership_term_id"], said["log_position"]) == (own_term_id, log_position)

    # A commit position of that leader frees it.
    assert peer.publisher.commit_position(peer.member(stuck), own_term_id, log_position)
    peer.hear("CanvassPosition", LIMIT_S, follower_member_id=stuck)
