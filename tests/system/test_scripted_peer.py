"""Elections of two members of the real jar and a third that a test plays, over UDP, without a log of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.aeron import AeronClient, MediaDriver
from container.codecs import messages as codecs
from container.common.aeron_defaults import LOG_STREAM_ID
from container.consensus.election_host import ElectionState
from container.testing.memory import transport_probe as seam
from container.testing.processes.process import wait_until
from container.transport.streams import Publication
from tests.limits import LIMIT_S
from tests.system.harness import NodeFactory, module_errors
from tests.system.trio import (
    APP_VERSION,
    HEARTBEAT_TIMEOUT_S,
    JAVA,
    NULL_VALUE,
    PEER,
    UPSTREAMS_PROTOCOL_VERSION,
    Trio,
    started_trio,
)

CATCHING_UP = 1


@pytest.fixture
def trio(node: NodeFactory, tmp_path: Path) -> Iterator[Trio]:
    with (
        MediaDriver.launch_embedded(tmp_path / "driver") as driver,
        AeronClient(driver.aeron_dir) as client,
        started_trio(node, client) as found,
    ):
        yield found
        assert not found.peer.errors
        found.peer.close()


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


@pytest.mark.slow  # 15 s
def test_what_is_not_for_them_leaves_members_of_upstreams_as_they_are(trio: Trio) -> None:
    """Ours are to go on as well, and report all of it; upstream's leader reports an ack that nobody waits for."""
    peer = trio.peer
    trio.canvass(NULL_VALUE, 0)
    term = trio.follow()
    peer.habit = None
    leader_id, term_id = term["leader_member_id"], term["leadership_term_id"]
    leader = trio.members[leader_id].node
    (follower,) = [each.node for each in trio.members if each.member_id != leader_id]
    committed = trio.await_commit(leader_id)
    peer.until(lambda: leader.is_leader and follower.election_is_closed, LIMIT_S, "the elected member to lead")

    unknown_id, beyond = 7, committed + 4096
    position = {"leadership_term_id": term_id, "log_position": beyond}
    of_an_unknown_member: list[tuple[str, dict[str, int]]] = [
        (
            "CanvassPosition",
            {
                "log_leadership_term_id": NULL_VALUE,
                "log_position": 0,
                "leadership_term_id": NULL_VALUE,
                "follower_member_id": unknown_id,
                "protocol_version": UPSTREAMS_PROTOCOL_VERSION,
            },
        ),
        (
            "Vote",
            {
                "candidate_term_id": term_id + 1,
                "log_leadership_term_id": term_id,
                "log_position": beyond,
                "candidate_member_id": leader_id,
                "follower_member_id": unknown_id,
                "vote": 1,
            },
        ),
        ("AppendPosition", {**position, "follower_member_id": unknown_id, "flags": 0}),
        ("CommitPosition", {**position, "leader_member_id": unknown_id}),
        ("TerminationAck", {**position, "member_id": unknown_id}),
    ]
    for_another_one = [("StopCatchup", {"leadership_term_id": term_id, "follower_member_id": PEER})]
    for member in peer.members.others():
        for message, fields in of_an_unknown_member + for_another_one:
            assert isinstance(member.publication, Publication)
            assert seam.offer(member.publication, codecs.encode("cluster", message, **fields)) > 0
        assert peer.publisher.termination_ack(member, term_id, beyond)
    ack_error = "NullPointerException"
    wait_until(
        lambda: any(ack_error in each for each in module_errors(leader)), LIMIT_S, "the leader to report the ack"
    )
    trio.await_commit(leader_id)
    assert [trio.state(each) for each in JAVA] == [ElectionState.CLOSED] * len(JAVA)
    assert leader.is_leader
    assert leader.commit_position == follower.commit_position == committed
    assert not any(ack_error in each for each in module_errors(follower))
    # A vote request is not such a message: whoever asks, upstream's leader begins an election.
    fields = {
        "log_leadership_term_id": term_id,
        "log_position": committed,
        "candidate_term_id": term_id + 1,
        "candidate_member_id": unknown_id,
        "protocol_version": UPSTREAMS_PROTOCOL_VERSION,
    }
    publication = peer.member(leader_id).publication
    assert isinstance(publication, Publication)
    assert seam.offer(publication, codecs.encode("cluster", "RequestVote", **fields)) > 0
    peer.hear("CanvassPosition", LIMIT_S, follower_member_id=leader_id)


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
