"""Threats of docs/security.md, tried over memory: a stranger's messages to a member's consensus port and an archive."""

from __future__ import annotations

from typing import Any

import pytest

from container.archive import error_codes
from container.archive.authentication import Authenticator, SessionProxy
from container.codecs import messages as codecs
from container.common.aeron_defaults import CONSENSUS_STREAM_ID, LOG_STREAM_ID
from container.testing.memory import transport_probe as seam
from examples.roles import Origin, Roles
from tests.archive_world import NETWORK_CHANNEL, SEGMENT_LENGTH, ArchiveWorld, Subscriber
from tests.members_world import CLIENT_HOST, MembersWorld, MemberWorld, payloads
from tests.test_archive_conductor import STRANGER, cluster_world
from tests.test_native_edges import others, scene, stalled_archive

TERM = 239
"""Counter type of a member's leadership term."""


class Stranger:
    """A program on a host of its own. It is not a member, and reaches the consensus ports of members."""

    def __init__(self, world: MembersWorld) -> None:
        self.world = world
        self.client = world.driver.connect("stranger")

    def say(self, member: MemberWorld, name: str, **fields: Any) -> None:
        """Send a message of the consensus stream to a member."""
        publication = seam.add_publication(
            self.client, f"aeron:udp?endpoint={member.host}:9020", CONSENSUS_STREAM_ID, exclusive=True
        )
        self.world.until(lambda: seam.is_connected(publication))
        assert seam.offer(publication, codecs.encode("cluster", name, **fields)) > 0


def test_a_stranger_who_asks_for_votes_deposes_the_leader() -> None:
    world, leader, [one, _] = scene()
    term_id = leader.counter_value(TERM)
    Stranger(world).say(
        leader,
        "RequestVote",
        log_leadership_term_id=term_id,
        log_position=0,
        candidate_term_id=term_id + 1,
        candidate_member_id=one.member_id,
        protocol_version=1 << 16,
    )
    world.until(lambda: not leader.agent.has_leader)
    assert any(f"unexpected vote request: member {one.member_id}" in text for text in leader.texts())
    leader = world.await_leader()
    assert leader.counter_value(TERM) > term_id
    world.client(leader).message(b"two")
    world.await_read(b"two")


def test_a_stranger_who_speaks_as_a_follower_has_the_leader_commit_what_no_other_member_has() -> None:
    world, leader, [one, other] = scene()
    client = world.client(leader)
    with stalled_archive(one), stalled_archive(other):
        client.message(b"two")
        world.until(lambda: len(leader.logged("SessionMessageHeader")) == 2)
        end = leader.published_position
        assert leader.commit_position < end
        Stranger(world).say(
            leader,
            "AppendPosition",
            leadership_term_id=leader.counter_value(TERM),
            log_position=end,
            follower_member_id=one.member_id,
            flags=0,
        )
        world.until(lambda: leader.commit_position == end)


def test_a_stranger_who_speaks_as_the_leader_ends_a_follower() -> None:
    world, leader, [one, other] = scene()
    Stranger(world).say(
        one, "TerminationPosition", leadership_term_id=leader.counter_value(TERM), log_position=one.commit_position
    )
    world.until(lambda: one.failure is not None or one.state == "TERMINATING")
    assert other.state == leader.state == "ACTIVE"


def test_a_stranger_who_speaks_as_a_follower_has_the_log_replayed_to_himself() -> None:
    world, leader, [one, _] = scene()
    stranger = Stranger(world)
    received = seam.add_subscription(stranger.client, f"aeron:udp?endpoint={CLIENT_HOST}:7001", LOG_STREAM_ID)
    stranger.say(
        leader,
        "CatchupPosition",
        leadership_term_id=leader.counter_value(TERM),
        log_position=0,
        follower_member_id=one.member_id,
        catchup_endpoint=f"{CLIENT_HOST}:7001",
    )
    found: list[bytes] = []

    def has_message() -> bool:
        found.extend(data for data, _ in seam.poll(received, 10))
        return any(data.endswith(b"one") for data in found)

    world.until(has_message)


def test_a_stranger_with_an_id_that_no_member_has_is_reported_and_ignored() -> None:
    world, leader, followers = scene()
    term_id = leader.counter_value(TERM)
    Stranger(world).say(
        leader,
        "RequestVote",
        log_leadership_term_id=term_id,
        log_position=0,
        candidate_term_id=term_id + 1,
        candidate_member_id=7,
        protocol_version=1 << 16,
    )
    world.until(lambda: any("RequestVote of member 7" in text for text in leader.texts()))
    world.run(1_000)
    assert world.leaders == [leader]
    assert leader.counter_value(TERM) == term_id
    assert others(world, leader) == followers


def test_a_stranger_reads_the_log_of_a_node_from_its_archive() -> None:
    world, _, stranger = cluster_world()
    channel = "aeron:udp?endpoint=localhost:7001"
    received = Subscriber(world, channel=channel)
    stranger.replay(0, 0, SEGMENT_LENGTH, replay_channel=channel.encode())
    world.until(received.has_ended)
    assert len(received.content) == SEGMENT_LENGTH


def test_a_stranger_makes_and_deletes_recordings_of_his_own_in_the_archive_of_a_node() -> None:
    world, _, stranger = cluster_world()
    stranger.ok(
        "StartRecordingRequest2", stream_id=2001, source_location=0, auto_stop=0, channel=NETWORK_CHANNEL.encode()
    )
    assert stranger.ok("PurgeRecordingRequest", recording_id=2) >= 0
    assert world.store.catalog.descriptor(2) is None


def test_a_stranger_stops_and_deletes_any_recording_of_an_archive_that_knows_no_cluster() -> None:
    world = ArchiveWorld()
    own, stranger = world.connect(), world.connect(**STRANGER)
    stream = world.stream(LOG_STREAM_ID)
    own.start_recording(LOG_STREAM_ID)
    assert own.signal("START") == 0
    stream.fill(SEGMENT_LENGTH)
    assert stranger.ok("StopRecordingByIdentityRequest", recording_id=0) == 1
    assert own.signal("STOP") == 0
    assert stranger.ok("PurgeRecordingRequest", recording_id=0) >= 0
    assert world.store.catalog.descriptor(0) is None


class SharedMemoryOnly(Authenticator):
    """Refuses every client of the network."""

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        if session.is_local:
            session.authenticate(b"local")
        else:
            session.reject()


@pytest.mark.parametrize(
    "archive",
    [{"authenticator": SharedMemoryOnly()}, {"authenticator": Origin(), "authorisation_service": Roles("")}],
    ids=["refused", "read-only"],
)
def test_members_bring_no_credentials_to_each_other_s_archives(archive: dict[str, Any]) -> None:
    world = MembersWorld(archive=archive)
    lost = world.await_leader()
    world.client(lost).message(b"one")
    world.await_read(b"one")
    lost.die()
    world.client(world.await_leader()).message(b"two")
    lost.wipe()
    lost.come_back()
    if len(archive) == 1:
        world.until(
            lambda: any("cannot be copied" in text and "authentication rejected" in text for text in lost.texts())
        )
        assert payloads(lost) == []
    else:
        world.await_read(b"two")
        assert payloads(lost) == [b"one", b"two"]


def test_a_stranger_who_may_only_read_makes_no_recording_and_fills_no_disk() -> None:
    world = ArchiveWorld(authenticator=Origin(), authorisation_service=Roles(""))
    own, stranger = world.connect(), world.connect(**STRANGER)
    world.stream(1001)
    own.start_recording(1001)
    assert own.signal("START") == 0
    fields = {"stream_id": 2001, "source_location": 0, "auto_stop": 0, "channel": NETWORK_CHANNEL.encode()}
    assert stranger.error("StartRecordingRequest2", **fields)[0] == error_codes.UNAUTHORISED_ACTION
    assert stranger.error("StopRecordingByIdentityRequest", recording_id=0)[0] == error_codes.UNAUTHORISED_ACTION
    assert stranger.ok("StartPositionRequest", recording_id=0) == 0
    assert world.store.is_active(0)
