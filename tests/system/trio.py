"""Two members of the real jar, and a third one of their cluster that a test plays, over UDP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from container.aeron import AeronClient
from container.testing.processes.endpoints import MemberEndpoints, PortReservation, members_string
from container.testing.processes.local_cluster import QUICK_FAILOVER, SMALL_JVM_FLAGS, CounterType, LocalMember, Service
from tests.limits import LIMIT_S
from tests.scripted_peer import ScriptedPeer
from tests.system.harness import ECHO_SERVICE, NodeFactory

PEER = 2
JAVA = (0, 1)
HEARTBEAT_TIMEOUT_S = 2.0
ELECTION_TIMEOUT_S = 1.0
UPSTREAMS_PROTOCOL_VERSION = 1 << 16
APP_VERSION = 1
RECORDING_ID, SESSION_ID = 600, 777
NULL_VALUE = -1
PROPERTIES = {
    **QUICK_FAILOVER,
    "aeron.cluster.termination.timeout": f"{2 * LIMIT_S:.0f}s",
    # A machine that stands still for seconds ends no member.
    "aeron.client.liveness.timeout": "60s",
    "aeron.publication.unblock.timeout": "90s",
    "aeron.driver.timeout": "60000",
}


class Trio:
    """Two members of Java's, which are started, and a peer."""

    def __init__(
        self,
        node: NodeFactory,
        client: AeronClient,
        endpoints: Sequence[MemberEndpoints],
        properties: Mapping[str, str],
    ) -> None:
        self.members = [
            LocalMember(
                node(member_id=each, members=endpoints, properties=properties, jvm_flags=SMALL_JVM_FLAGS),
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


@contextmanager
def started_trio(node: NodeFactory, client: AeronClient, **properties: str) -> Iterator[Trio]:
    """Both members of Java's, started, and a peer over a client; names of properties have ``_`` in place of dots."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    ports = PortReservation()
    try:
        endpoints = [MemberEndpoints.take(each, ports) for each in (*JAVA, PEER)]
        yield Trio(node, client, endpoints, {**PROPERTIES, **given})
    finally:
        ports.close()
