"""The messages between members: publisher and adapter against the reference encoders' bytes, and over the seam."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from container.aeron import AeronClient, MediaDriver
from container.codecs import messages as codecs
from container.common.aeron_defaults import CONSENSUS_STREAM_ID
from container.consensus import channels
from container.consensus.cluster_member import NATIVE_PROTOCOL_VERSION, ClusterMembers, parse_cluster_members
from container.consensus.consensus_adapter import ConsensusAdapter
from container.consensus.consensus_event_handler import ConsensusEventHandler
from container.errors import ClusterEvent, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.processes.endpoints import MemberEndpoints, PortReservation, members_string
from container.testing.processes.process import wait_until
from container.transport.streams import Publication
from tests.consensus_world import ConsensusWorld
from tests.fabric_world import FabricWorld
from tests.fuzz.mutations import MUTATIONS
from tests.golden.vectors import HEADER, Vector, derive, load
from tests.limits import LIMIT_S
from tests.scripted_peer import CHANNEL, Ear, Heard, ScriptedPeer

MEMBERS = "|".join(f"{each},h{each}:1,h{each}:2,h{each}:3,h{each}:4,h{each}:5" for each in range(3))
GOLDEN = load("cluster")
BACK_PRESSURED, ADMIN_ACTION, NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED = -2, -3, -1, -4, -5
TEMPORARILY_UNAVAILABLE = RegistrationError.RESOURCE_TEMPORARILY_UNAVAILABLE
NULL_INT32, NULL_INT64 = -(2**31), -(2**63)
S = 1_000_000_000

# By message: who sends it to whom in the vectors, and how ours does with the fields that it has left.
SENDERS: dict[str, tuple[int, int]] = {
    "CanvassPosition": (2, 1),
    "RequestVote": (1, 2),
    "Vote": (2, 1),
    "NewLeadershipTerm": (1, 2),
    "AppendPosition": (2, 1),
    "CommitPosition": (1, 2),
    "CatchupPosition": (2, 1),
    "StopCatchup": (1, 2),
    "TerminationPosition": (1, 2),
    "TerminationAck": (2, 1),
}
CALLS = {
    "CanvassPosition": "canvass_position",
    "RequestVote": "request_vote",
    "Vote": "place_vote",
    "NewLeadershipTerm": "new_leadership_term",
    "AppendPosition": "append_position",
    "CommitPosition": "commit_position",
    "CatchupPosition": "catchup_position",
    "StopCatchup": "stop_catchup",
    "TerminationPosition": "termination_position",
    "TerminationAck": "termination_ack",
}
NOT_SAID = {
    "CanvassPosition": ("follower_member_id", "protocol_version"),
    "RequestVote": ("candidate_member_id", "protocol_version"),
    "Vote": ("candidate_member_id", "follower_member_id"),
    "NewLeadershipTerm": ("leader_member_id",),
    "AppendPosition": ("follower_member_id",),
    "CommitPosition": ("leader_member_id",),
    "CatchupPosition": ("follower_member_id",),
    "StopCatchup": ("follower_member_id",),
    "TerminationPosition": (),
    "TerminationAck": ("member_id",),
}
REQUESTS = ("BackupQuery", "HeartbeatRequest", "StandbySnapshot", "ChallengeResponse")
BOOLEANS = ("vote", "is_startup")
VECTORS = [vector for vector in GOLDEN.vectors if vector.message in SENDERS]
# Ours has one protocol version, and no ids or texts but those of the cluster.
SAID = [
    vector
    for vector in VECTORS
    if None not in vector.fields.values()
    and vector.fields.get("protocol_version", NATIVE_PROTOCOL_VERSION) == NATIVE_PROTOCOL_VERSION
    and all(value in (1, 2) for name, value in vector.fields.items() if name.endswith("member_id"))
]


class World:
    """Three members over one driver in memory, of which tests use two or three."""

    def __init__(self, *ids: int) -> None:
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock)
        self.peers = {each: ScriptedPeer(self.driver.connect(f"member-{each}"), MEMBERS, each) for each in ids}
        self.work()

    def __getitem__(self, member_id: int) -> ScriptedPeer:
        return self.peers[member_id]

    def work(self, turns: int = 3) -> None:
        for _ in range(turns):
            for peer in self.peers.values():
                peer.work()

    def sent(self, sender: int, addressee: int) -> list[bytes]:
        """All that one member has sent to another on its present publication."""
        publication = self[sender].member(addressee).publication
        assert isinstance(publication, Publication)
        return list(self.driver.log(publication.channel, publication.stream_id, publication.session_id).messages())


def text(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in fields.items()}


def said(peer: ScriptedPeer, addressee: int, message: str, fields: dict[str, Any]) -> bool:
    """Have a member say a message, with the fields of the vector that it does not know itself."""
    given = {name: value for name, value in fields.items() if name not in NOT_SAID[message]}
    given |= {name: bool(given[name]) for name in BOOLEANS if name in given}
    call: Callable[..., bool] = getattr(peer.publisher, CALLS[message])
    return call(peer.member(addressee), **given)


def expected(message: str, fields: dict[str, Any]) -> Heard:
    """What a handler is given of the fields of a vector, by upstream's rules for null."""
    nulls: dict[str, Any] = {"commit_position": -1, "flags": 0, "protocol_version": 0, "app_version": 0}
    heard = {}
    for name, value in fields.items():
        if name in BOOLEANS:
            heard[name] = value == 1
        elif value is None:
            is_id = name.endswith(("member_id", "session_id"))
            heard[name] = nulls.get(name, NULL_INT32 if is_id else NULL_INT64)
        else:
            heard[name] = value
    if message == "StopCatchup":
        del heard["follower_member_id"]
    if message == "NewLeadershipTerm":
        heard["protocol_version"] = -1
    return Heard(message, heard)


# The bytes


def test_there_are_vectors_of_each_message() -> None:
    assert {vector.message for vector in SAID} == {vector.message for vector in VECTORS} == SENDERS.keys()


@pytest.mark.parametrize("vector", SAID, ids=lambda vector: vector.id)
def test_cm46_the_publisher_writes_what_the_reference_encoders_write(vector: Vector) -> None:
    world = World(1, 2)
    sender, addressee = SENDERS[vector.message]
    assert said(world[sender], addressee, vector.message, text(vector.fields))
    heard = expected(vector.message, text(vector.fields))
    encoded = vector.encoded
    if vector.message == "NewLeadershipTerm":  # ours says its protocol version behind what upstream reads
        heard.fields["protocol_version"] = NATIVE_PROTOCOL_VERSION
        encoded = HEADER.pack(100, 53, 111, 16) + encoded[HEADER.size :] + struct.pack("<i", NATIVE_PROTOCOL_VERSION)
    elif vector.message == "CanvassPosition":  # and its list of members behind that
        encoded += world[sender].members.encode().encode()
    assert world.sent(sender, addressee) == [encoded]
    world.work()
    assert world[addressee].heard == [heard]
    assert not world[addressee].errors


@pytest.mark.parametrize("version", [18, 99])
def test_what_upstream_may_say_behind_a_term_one_day_is_no_protocol_version(version: int) -> None:
    vector = next(each for each in VECTORS if each.message == "NewLeadershipTerm")
    data = HEADER.pack(104, 53, 111, version) + vector.encoded[HEADER.size :] + bytes(8)
    later = Vector(vector.schema, vector.message, "later", vector.fields, data)
    assert received(later).heard == [expected(vector.message, text(vector.fields))]


@pytest.mark.parametrize("version", [18, 99])
def test_what_a_later_version_says_behind_the_known_fields_is_passed_over(version: int) -> None:
    for vector in filter(is_from_a_member, VECTORS):
        layout = GOLDEN.layouts[vector.message]
        end = HEADER.size + layout.block_length
        header = HEADER.pack(layout.block_length + 8, layout.template_id, GOLDEN.schema_id, version)
        data = header + vector.encoded[HEADER.size : end] + bytes(8) + vector.encoded[end:]
        peer = received(Vector(vector.schema, vector.message, "later", vector.fields, data))
        assert peer.heard == [expected(vector.message, text(vector.fields))], vector.id
        assert not peer.errors


def received(vector: Vector) -> ScriptedPeer:
    """The addressee of a vector that is sent as it stands."""
    world = World(1, 2)
    sender, addressee = SENDERS[vector.message]
    publication = world[sender].member(addressee).publication
    assert isinstance(publication, Publication)
    assert seam.offer(publication, vector.encoded) > 0
    world.work()
    return world[addressee]


def is_from_a_member(vector: Vector) -> bool:
    ids = [value for name, value in vector.fields.items() if name.endswith("member_id")]
    return set(ids) <= {1, 2} and vector.fields.get("catchup_endpoint") not in (b"", b"!", b"xxxxxxxxx~")


@pytest.mark.parametrize("version", [0, 7, 8, 9, 14, 15, 16, 17])
def test_cm46_messages_of_any_version_are_taken_and_what_they_lack_counts_as_upstream_has_it(version: int) -> None:
    for vector in filter(is_from_a_member, VECTORS):
        derived = derive(GOLDEN, vector, version)
        peer = received(derived)
        assert peer.heard == [expected(vector.message, text(derived.fields))], derived.id
        assert not peer.errors


def test_a_field_beyond_a_short_block_counts_as_null() -> None:
    for vector in filter(is_from_a_member, VECTORS):
        layout = GOLDEN.layouts[vector.message]
        later = [slot.offset for slot in layout.fields.values() if slot.since]
        if not later:
            continue
        length = min(later)
        header = HEADER.pack(length, layout.template_id, GOLDEN.schema_id, GOLDEN.version)
        cut = Vector(vector.schema, vector.message, "cut", vector.fields, header + vector.encoded[8 : 8 + length])
        fields = {name: value for name, value in vector.fields.items() if layout.fields[name].offset < length}
        absent = dict.fromkeys(vector.fields.keys() - fields.keys())
        assert received(cut).heard[0] == expected(vector.message, {**vector.fields, **absent}), vector.id


# Lists of members that differ


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ("|1,", "|7,", "member 1 is in this list alone; member 7 is in its list alone"),
        ("{endpoint}", "node9:9001", "consensus of member 1 is node9:9001 there and {endpoint} here"),
        ("|", ",response:1|", "archive response of member {first} is response:1 there and not given here"),
        ("{endpoint}", "a\n2026 ERROR b:1", "consensus of member 1 is 'a\\n2026 ERROR b:1' there and {endpoint} here"),
    ],
)
def test_a_native_member_whose_list_differs_is_reported_once(before: str, after: str, difference: str) -> None:
    world = World(2)
    members = world[2].members
    first, member = members.members[0], members.find(1)
    assert member is not None
    names = {"endpoint": member.consensus_endpoint, "first": first.id}
    theirs = members.encode().replace(before.format(**names), after, 1)
    peer = ScriptedPeer(world.driver.connect("member-1"), MEMBERS, 1)
    world.peers[1] = peer
    world.work()
    publication = peer.member(2).publication
    assert isinstance(publication, Publication)
    canvass = codecs.encode(
        "cluster",
        "CanvassPosition",
        log_leadership_term_id=0,
        log_position=96,
        leadership_term_id=0,
        follower_member_id=1,
        protocol_version=NATIVE_PROTOCOL_VERSION,
    )
    for _ in range(3):
        assert seam.offer(publication, canvass + theirs.encode()) > 0
        world.work()
    (error,) = world[2].errors
    assert str(error) == (
        "member 1 has another list of members than this one, member 2: "
        f"{difference.format(**names)}: give all members the same list"
    )
    assert len(world[2].heard) == 3


def test_a_native_member_whose_list_changes_with_each_message_is_reported_four_times() -> None:
    """Else one that alternates fills the error log; and of a list that differs everywhere the first eight are shown."""
    world = World(1, 2)
    publication = world[1].member(2).publication
    assert isinstance(publication, Publication)
    vector = next(each for each in SAID if each.message == "CanvassPosition")
    canvass = codecs.encode(
        "cluster",
        "CanvassPosition",
        **{**vector.fields, "follower_member_id": 1, "protocol_version": NATIVE_PROTOCOL_VERSION},
    )
    for count in range(20):
        others = "|".join(f"{each},h{count}:1,h:2,h:3,h:4,h:5" for each in range(40))
        assert seam.offer(publication, canvass + others.encode()) > 0
        world.work()
    assert len(world[2].errors) == 4
    assert all(str(each).count(";") == 8 for each in world[2].errors)
    assert len(world[2].heard) == 20


@pytest.mark.parametrize("behind", [b"\xff" * 40, b"x" * 5_000, b"\x00"])
def test_what_is_no_list_of_members_is_passed_over(behind: bytes) -> None:
    world = World(1, 2)
    sender, addressee = SENDERS["CanvassPosition"]
    publication = world[sender].member(addressee).publication
    assert isinstance(publication, Publication)
    vector = next(each for each in SAID if each.message == "CanvassPosition")
    assert seam.offer(publication, vector.encoded + behind) > 0
    world.work()
    assert world[addressee].heard == [expected(vector.message, text(vector.fields))]
    assert not world[addressee].errors


def test_a_list_of_members_that_is_long_is_not_sent() -> None:
    world = World()
    members = MEMBERS.replace("h", "h" * 500)
    for each in (1, 2):
        world.peers[each] = ScriptedPeer(world.driver.connect(f"member-{each}"), members, each)
    world.work()
    assert world[1].publisher.canvass_position(world[1].member(2), 0, 96, 0)
    assert [len(message) for message in world.sent(1, 2)] == [GOLDEN.layouts["CanvassPosition"].block_length + 8]


# Messages of nobody, of another version or cluster, and for somebody else


@pytest.mark.parametrize("member_id", [None, 2, 3, -1, 2**31 - 1])
@pytest.mark.parametrize("message", [each for each in SENDERS if each not in ("StopCatchup", "TerminationPosition")])
def test_a_message_of_no_other_member_is_reported(message: str, member_id: int | None) -> None:
    world = World(1, 2)
    publication = world[1].member(2).publication
    assert isinstance(publication, Publication)
    fields = dict(next(vector.fields for vector in VECTORS if vector.message == message))
    sender = {"Vote": "follower_member_id"}.get(message) or next(name for name in fields if name.endswith("member_id"))
    assert seam.offer(publication, codecs.encode("cluster", message, **(fields | {sender: member_id}))) > 0
    world.work()
    assert not world[2].heard
    shown = NULL_INT32 if member_id is None else member_id
    assert [str(each) for each in world[2].errors] == [
        f"{message} of member {shown}: the others of this cluster are [0, 1]"
    ]
    assert isinstance(world[2].errors[0], ClusterEvent)


def test_a_member_of_another_cluster_with_an_id_of_ours_is_heard_as_ours_is() -> None:
    """No message names its cluster: ids and addresses alone keep clusters apart, as they do upstream's."""
    world = World(1, 2)
    others = "|".join(
        f"{each},k{each}:1,{host}:2,k{each}:3,k{each}:4,k{each}:5" for each, host in ((1, "k1"), (2, "h2"), (3, "k3"))
    )
    stranger = ScriptedPeer(world.driver.connect("stranger"), others, 1)
    unknown = ScriptedPeer(world.driver.connect("unknown"), others, 3)
    for _ in range(3):
        stranger.work()
        unknown.work()
    assert stranger.publisher.commit_position(stranger.member(2), 3, 96)
    assert unknown.publisher.commit_position(unknown.member(2), 3, 96)
    world.work()
    assert world[2].heard == [
        Heard("CommitPosition", {"leadership_term_id": 3, "log_position": 96, "leader_member_id": 1})
    ]
    assert [str(each) for each in world[2].errors] == [
        "CommitPosition of member 3: the others of this cluster are [0, 1]"
    ]


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            "Vote",
            {
                "candidate_term_id": 4,
                "log_leadership_term_id": 2,
                "log_position": 0,
                "candidate_member_id": 0,
                "follower_member_id": 1,
                "vote": 1,
            },
        ),
        ("StopCatchup", {"leadership_term_id": 3, "follower_member_id": 0}),
    ],
)
def test_a_message_for_another_member_is_reported(message: str, fields: dict[str, Any]) -> None:
    world = World(1, 2)
    publication = world[1].member(2).publication
    assert isinstance(publication, Publication)
    seam.offer(publication, codecs.encode("cluster", message, **fields))
    world.work()
    assert not world[2].heard
    assert [str(each) for each in world[2].errors] == [f"{message} for member 0 has come to member 2"]


@pytest.mark.parametrize("endpoint", ["", "h1", "h1:", ":4", "h1:0", "h1:65536", "h1:x", "h1|alias=x:4", "h1:-4"])
def test_a_catch_up_to_nowhere_is_neither_asked_for_nor_given(endpoint: str) -> None:
    world = World(1, 2)
    assert not world[2].publisher.catchup_position(world[2].member(1), 3, 96, endpoint)
    assert not world.sent(2, 1)
    publication = world[2].member(1).publication
    assert isinstance(publication, Publication)
    fields = {"leadership_term_id": 3, "log_position": 96, "follower_member_id": 2}
    seam.offer(publication, codecs.encode("cluster", "CatchupPosition", **fields, catchup_endpoint=endpoint))
    world.work()
    assert not world[1].heard
    (error,) = world[1].errors
    assert str(error) == (f"CatchupPosition of member 2: no log can be sent to {endpoint!r}: it takes host:port")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x01\x02", "message header"),
        (HEADER.pack(32, 50, 111, 16) + bytes(20), "CanvassPosition"),
        (HEADER.pack(4, 55, 111, 16) + bytes(20), "CommitPosition"),
        (HEADER.pack(20, 56, 111, 16) + struct.pack("<qqiI", 1, 1, 2, 99), "CatchupPosition"),
        (HEADER.pack(20, 55, 7, 16) + bytes(20), "expected schemaId=111, actual=7"),
        (HEADER.pack(8, 70, 111, 16) + bytes(8), "unknown template: id=70"),
    ],
)
def test_what_is_no_message_is_reported_and_the_next_one_is_taken(data: bytes, why: str) -> None:
    world = World(1, 2)
    publication = world[1].member(2).publication
    assert isinstance(publication, Publication)
    seam.offer(publication, data)
    world[1].publisher.commit_position(world[1].member(2), 3, 96)
    world.work()
    (error,) = world[2].errors
    assert why in str(error)
    assert [each.name for each in world[2].heard] == ["CommitPosition"]


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_nothing_that_a_member_says_is_dropped_in_silence(mutation: str) -> None:
    """Whatever is done to a message of a member, it is heard or reported, once, and neither raises."""
    rng = random.Random(1)
    world = World(1, 2)
    requests = {GOLDEN.layouts[each].template_id for each in REQUESTS}
    for vector in VECTORS * 20:
        for payload, _flags in MUTATIONS[mutation](rng, vector.encoded):
            if len(payload) >= HEADER.size and HEADER.unpack_from(payload)[1] in requests:
                continue
            peer = world[SENDERS[vector.message][1]]
            before = len(peer.heard) + len(peer.errors)
            seam.on_fragment(peer.adapter, payload)
            assert len(peer.heard) + len(peer.errors) == before + 1, (vector.id, payload.hex())
            assert not peer.errors or isinstance(peer.errors[-1], ClusterEvent), (vector.id, payload.hex())


def test_a_handler_that_raises_is_reported_and_the_next_message_is_taken() -> None:
    class Raising(Ear):
        def on_commit_position(self, leadership_term_id: int, log_position: int, leader_member_id: int) -> int:
            raise ValueError(f"as asked for {log_position}")

    world = World(1, 2)
    client = world.driver.connect("raising")
    ear = Raising()
    adapter = ConsensusAdapter(
        seam.add_subscription(client, channels.consensus_subscription_channel(CHANNEL, "h0:2"), CONSENSUS_STREAM_ID),
        ear,
        ClusterMembers(parse_cluster_members(MEMBERS), 0),
    )
    world.work()
    world[1].publisher.commit_position(world[1].member(0), 3, 96)
    world[1].publisher.stop_catchup(world[1].member(0), 3)
    seam.invoke(client)
    assert adapter.poll() == 2
    assert [str(each) for each in ear.errors] == ["as asked for 96"]
    assert [each.name for each in ear.heard] == ["StopCatchup"]


def test_a_message_that_nobody_handles_is_reported() -> None:
    errors: list[BaseException] = []

    class Deaf(ConsensusEventHandler):
        def report(self, error: BaseException) -> int:
            errors.append(error)
            return 0

    world = World(1, 2)
    client = world.driver.connect("deaf")
    adapter = ConsensusAdapter(
        seam.add_subscription(client, channels.consensus_subscription_channel(CHANNEL, "h0:2"), CONSENSUS_STREAM_ID),
        Deaf(),
        ClusterMembers(parse_cluster_members(MEMBERS), 0),
    )
    world.work()
    for vector in SAID[::-1]:
        fields = {**text(vector.fields)}
        said(world[SENDERS[vector.message][0]], 0, vector.message, fields)
    seam.invoke(client)
    while adapter.poll():
        pass
    names = {str(each).removeprefix("unexpected ").partition(" of ")[0] for each in errors}
    assert names == SENDERS.keys()
    assert len(errors) == len(SAID)


def test_a_cluster_of_one_reports_what_others_say_and_goes_on() -> None:
    world = ConsensusWorld().lead()
    client = world.driver.connect("stranger")
    publication = seam.add_publication(client, "aeron:udp?endpoint=localhost:9020", CONSENSUS_STREAM_ID, exclusive=True)
    world.work(3)
    for name in ("RequestVote", "TerminationPosition", "TerminationAck"):
        vector = next(each for each in SAID if each.message == name)
        assert seam.offer(publication, vector.encoded) > 0
    world.work(3)
    assert [str(each) for each in world.errors] == [
        "RequestVote of member 1: the others of this cluster are []",
        "unexpected TerminationPosition",
        "TerminationAck of member 2: the others of this cluster are []",
    ]
    assert world.is_leading
    assert world.state == "ACTIVE"


@pytest.mark.parametrize(("count", "limit"), [(2_000, "65536 bytes"), (65, "64 snapshots")])
def test_a_standby_snapshot_of_too_many_is_refused_and_not_kept(count: int, limit: str) -> None:
    world = ConsensusWorld(is_standby_snapshot_accepted=True).lead()
    client = world.driver.connect("stranger")
    channel = "aeron:udp?endpoint=localhost:9020|term-length=1m"
    publication = seam.add_publication(client, channel, CONSENSUS_STREAM_ID, exclusive=True)
    world.work(3)
    snapshot = {
        "recording_id": 1,
        "leadership_term_id": 0,
        "term_base_log_position": 0,
        "log_position": 2**62,
        "timestamp": 0,
        "service_id": 0,
        "archive_endpoint": b"h:1",
    }
    message = codecs.encode(
        "cluster",
        "StandbySnapshot",
        correlation_id=1,
        version=3 << 8,
        response_stream_id=9,
        snapshots=[snapshot] * count,
        response_channel=b"aeron:udp?endpoint=h:7",
        encoded_credentials=b"",
    )
    assert seam.offer(publication, message) > 0
    world.work(30)
    [error] = world.errors
    assert str(error).startswith(f"consensus message of {len(message)} bytes from sessionId=")
    assert str(error).endswith(f"StandbySnapshot: it may have {limit}")
    assert world.is_leading


# The publications


def test_a_publication_leads_to_each_other_member_bound_to_this_ones_host() -> None:
    world = World(0, 1, 2)
    found = sorted(each.channel for each in world.driver.publications())
    assert found == sorted(
        f"aeron:udp?endpoint=h{other}:2|control=h{each}:0" for each in range(3) for other in range(3) if each != other
    )
    assert all(each.is_exclusive for each in world.driver.publications())
    world[0].close()
    world[0].close()
    world.work()
    assert len(world.driver.publications()) == 4
    assert not world[0].publisher.commit_position(world[0].member(1), 1, 1)


def test_members_hear_each_other_over_a_simulated_network() -> None:
    world = FabricWorld("abc")
    text_of_members = "|".join(
        f"{each},{name}:1,{name}:2,{name}:3,{name}:4,{name}:5" for each, name in enumerate("abc")
    )
    peers = [
        ScriptedPeer(client, text_of_members, member_id) for member_id, client in enumerate(world.clients.values())
    ]

    def all_have_heard_all() -> bool:
        for peer in peers:
            peer.work()
            for other in peer.members.others():
                peer.publisher.canvass_position(other, 2, 96, 3)
        heard = [{each.fields["follower_member_id"] for each in peer.heard} for peer in peers]
        return heard == [{1, 2}, {0, 2}, {0, 1}]

    world.run_until(all_have_heard_all)
    assert not any(peer.errors for peer in peers)


def test_nothing_is_sent_to_a_member_that_is_not_there_and_nothing_is_reported() -> None:
    world = World(1)
    assert not world[1].publisher.commit_position(world[1].member(0), 3, 96)
    assert not world[1].errors
    peer = ScriptedPeer(world.driver.connect("member-2"), MEMBERS, 2)
    assert not peer.publisher.commit_position(peer.member(1), 3, 96)
    assert not peer.errors


def test_nothing_is_sent_to_no_member() -> None:
    publisher = World(1)[1].publisher
    for message, call in CALLS.items():
        layout = GOLDEN.layouts[message]
        names = [name for name in (*layout.fields, *layout.var) if name not in NOT_SAID[message]]
        values = {name: "h:1" if name in layout.var else 1 for name in names}
        assert getattr(publisher, call)(None, **values) is False


@pytest.mark.parametrize(
    ("results", "is_sent"),
    [
        ([BACK_PRESSURED], True),
        ([ADMIN_ACTION, BACK_PRESSURED], True),
        ([BACK_PRESSURED] * 3, False),
        ([NOT_CONNECTED] * 3, False),
    ],
)
def test_a_send_tries_three_times(results: list[int], is_sent: bool) -> None:
    world = World(1, 2)
    publication = world[1].member(2).publication
    assert isinstance(publication, Publication)
    world.driver.publication_results(publication.channel, CONSENSUS_STREAM_ID, results)
    assert world[1].publisher.append_position(world[1].member(2), 3, 96, 1) is is_sent
    assert len(world.sent(1, 2)) == is_sent
    assert world[1].publisher.append_position(world[1].member(2), 3, 128, 1)
    assert not world[1].errors


@pytest.mark.parametrize(("result", "name"), [(CLOSED, "CLOSED"), (MAX_POSITION_EXCEEDED, "MAX_POSITION_EXCEEDED")])
def test_a_closed_publication_is_reported_and_added_again(result: int, name: str) -> None:
    world = World(1, 2)
    first = world[1].member(2).publication
    assert isinstance(first, Publication)
    world.driver.publication_results(first.channel, CONSENSUS_STREAM_ID, [result])
    assert not world[1].publisher.commit_position(world[1].member(2), 3, 96)
    assert not world[1].publisher.commit_position(world[1].member(2), 3, 96)
    assert [str(each) for each in world[1].errors] == [f"consensus publication to member 2: {name}: adding another"]
    assert seam.is_closed(first)
    world.work()
    assert world[1].publisher.commit_position(world[1].member(2), 3, 128)
    world.work()
    assert [each.fields["log_position"] for each in world[2].heard] == [128]
    assert len(world.driver.publications()) == 4


def test_what_the_driver_refuses_is_reported_and_asked_for_again_after_a_second() -> None:
    world = World(1)
    client = world.driver.connect("member-2")
    world.driver.fail_next_add("exclusive_publication", 4, "no such host")
    peer = ScriptedPeer(client, MEMBERS, 2)
    world.peers[2] = peer
    world.work()
    assert [str(each) for each in peer.errors] == ["no consensus publication to member 0: no such host"]
    world.clock.advance(S - 1)
    world.work()
    missing = [each.id for each in peer.members.others() if each.publication is None]
    assert missing == [0]
    world.clock.advance(1)
    world.work()
    assert all(each.publication is not None for each in peer.members.others())
    assert len(peer.errors) == 1


def test_a_member_whose_port_is_0_is_reported_and_holds_up_no_other(tmp_path: Path) -> None:
    """A driver refuses to send to port 0. Upstream reports that too, and asks again with each CanvassPosition."""
    ports = PortReservation()
    endpoints = [MemberEndpoints.take(each, ports) for each in range(3)]
    text_of_members = members_string([replace(endpoints[0], consensus="localhost:0"), *endpoints[1:]])
    with MediaDriver.launch_embedded(tmp_path / "driver") as driver, AeronClient(driver.aeron_dir) as client:
        peers = [ScriptedPeer(client, text_of_members, each) for each in (1, 2)]

        def is_heard() -> bool:
            for peer in peers:
                peer.work()
            peers[0].publisher.commit_position(peers[0].member(2), 3, 96)
            return bool(peers[1].heard and peers[0].errors)

        wait_until(is_heard, LIMIT_S, "member 2 to hear member 1, which reports member 0")
        assert not peers[0].publisher.commit_position(peers[0].member(0), 3, 96)
        assert str(peers[0].errors[0]).startswith("no consensus publication to member 0: ")
        assert "port=0" in str(peers[0].errors[0])
        assert isinstance(peers[0].errors[0], ClusterEvent)
        for peer in peers:
            peer.close()
    ports.close()


def test_what_the_driver_refuses_for_one_member_holds_up_no_other() -> None:
    world = World(1)
    client = world.driver.connect("member-2")
    world.driver.fail_next_add("exclusive_publication", 4, "no such host")
    peer = ScriptedPeer(client, MEMBERS, 2)
    world.peers[2] = peer
    world.work()
    publication = peer.member(1).publication
    assert isinstance(publication, Publication)
    world.driver.publication_results(publication.channel, CONSENSUS_STREAM_ID, [CLOSED])
    assert not peer.publisher.commit_position(peer.member(1), 3, 96)
    world.work()
    assert peer.publisher.commit_position(peer.member(1), 3, 128)
    assert peer.member(0).publication is None


def test_what_is_taken_for_a_moment_is_asked_for_again_at_once_and_not_reported() -> None:
    world = World(1)
    for _ in range(3):
        world.driver.fail_next_add("exclusive_publication", TEMPORARILY_UNAVAILABLE, "in use")
    world.peers[2] = ScriptedPeer(world.driver.connect("member-2"), MEMBERS, 2)
    world.work(8)
    assert all(each.publication is not None for each in world[2].members.others())
    assert not world[2].errors


def test_a_request_for_a_publication_is_given_up_at_the_end() -> None:
    world = World(1)
    client = world.driver.connect("member-2")
    world.driver.delay_next_add("exclusive_publication", 10)
    peer = ScriptedPeer(client, MEMBERS, 2)
    peer.work()
    peer.close()
    for _ in range(20):
        peer.work()
        seam.invoke(client)
    assert not client.open_resources
