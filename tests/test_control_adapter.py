"""What the control adapter makes of requests: Java's, of all versions, whole, in pieces and damaged."""

from __future__ import annotations

import gc
import inspect
import random
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from container.api import ADMIN_ACTION
from container.archive.server.archive_conductor import ArchiveConductor
from container.archive.server.sessions.control_adapter import ControlAdapter, RequestStream
from container.archive.server.sessions.control_handler import ControlHandler, ControlRequest
from container.codecs import messages as codecs
from container.errors import AgentTermination, ArchiveError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryDriver
from container.transport.streams import Image, Publication
from tests.golden.vectors import HEADER, Vector, derive, load

CHANNEL, STREAM_ID = "aeron:ipc?term-length=64k", 10
GOLDEN = load("archive")
VERSIONS = range(15)
UNKNOWN_LOCATION = "unknown sourceLocation"

CALLS = {
    "StartRecordingRequest": "on_start_recording",
    "StartRecordingRequest2": "on_start_recording",
    "ExtendRecordingRequest": "on_extend_recording",
    "ExtendRecordingRequest2": "on_extend_recording",
    "StopRecordingRequest": "on_stop_recording",
    "StopRecordingSubscriptionRequest": "on_stop_recording_subscription",
    "StopRecordingByIdentityRequest": "on_stop_recording_by_identity",
    "ReplayRequest": "on_replay",
    "BoundedReplayRequest": "on_bounded_replay",
    "StopReplayRequest": "on_stop_replay",
    "StopAllReplaysRequest": "on_stop_all_replays",
    "ReplayTokenRequest": "on_replay_token",
    "ListRecordingRequest": "on_list_recording",
    "ListRecordingsRequest": "on_list_recordings",
    "ListRecordingsForUriRequest": "on_list_recordings_for_uri",
    "FindLastMatchingRecordingRequest": "on_find_last_matching_recording",
    "ListRecordingSubscriptionsRequest": "on_list_recording_subscriptions",
    "StartPositionRequest": "on_get_start_position",
    "RecordingPositionRequest": "on_get_recording_position",
    "StopPositionRequest": "on_get_stop_position",
    "MaxRecordedPositionRequest": "on_get_max_recorded_position",
    "TruncateRecordingRequest": "on_truncate_recording",
    "PurgeRecordingRequest": "on_purge_recording",
    "DetachSegmentsRequest": "on_detach_segments",
    "DeleteDetachedSegmentsRequest": "on_delete_detached_segments",
    "PurgeSegmentsRequest": "on_purge_segments",
    "AttachSegmentsRequest": "on_attach_segments",
    "MigrateSegmentsRequest": "on_migrate_segments",
    "UpdateChannelRequest": "on_update_channel",
    "ReplicateRequest": "on_replicate",
    "TaggedReplicateRequest": "on_replicate",
    "ReplicateRequest2": "on_replicate",
    "StopReplicationRequest": "on_stop_replication",
    "ChallengeResponse": "on_challenge_response",
    "KeepAliveRequest": "on_keep_alive",
    "ArchiveIdRequest": "on_archive_id",
    "CloseSessionRequest": "on_close_session",
}
NO_REQUESTS = {
    *("ControlResponse", "Challenge", "Ping", "RecordingDescriptor", "RecordingSubscriptionDescriptor"),
    *("RecordingSignalEvent", "RecordingStarted", "RecordingProgress", "RecordingStopped"),
}
FRAGMENTS = {"ListRecordingsForUriRequest", "FindLastMatchingRecordingRequest", "ListRecordingSubscriptionsRequest"}
CONNECTS = {"ConnectRequest", "AuthConnectRequest"}

type Call = tuple[str, Any, dict[str, Any]]
"""A method, its first argument, and those that it is given by name."""


class World:
    """An adapter, publications to it, and what came of both."""

    def __init__(self) -> None:
        self.driver = MemoryDriver()
        self.archive = self.driver.connect("archive")
        self.client = self.driver.connect("client")
        self.calls: list[Call] = []
        self.errors: list[Exception] = []
        self.action: Callable[[], object] = lambda: None
        subscription = seam.add_subscription(self.archive, CHANNEL, STREAM_ID)
        self.adapter = ControlAdapter(subscription, cast(ControlHandler, self), self.errors.append)
        self.publication = self.publish()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)

        def called(request: Any, **fields: Any) -> None:
            self.calls.append((name, request, fields))
            self.action()

        return called

    def publish(self) -> Publication:
        publication = seam.add_publication(self.client, CHANNEL, STREAM_ID, exclusive=True)
        seam.invoke(self.archive)
        return publication

    def poll(self) -> int:
        seam.invoke(self.archive)
        return self.adapter.poll()

    def offer(self, data: bytes, publication: Publication | None = None) -> None:
        while (result := seam.offer(publication or self.publication, data)) == ADMIN_ACTION:
            pass
        assert result > 0

    def give(self, data: bytes, publication: Publication | None = None) -> list[Call]:
        """What is called for a message."""
        before = len(self.calls)
        self.offer(data, publication)
        self.drain()
        return self.calls[before:]

    def drain(self) -> None:
        """Read all there is; a poll that comes to the end of a term reads nothing."""
        while self.poll() or self.poll():
            pass

    def error(self) -> str:
        """The text of the only error, which must be of the archive."""
        [error] = self.errors
        assert isinstance(error, ArchiveError)
        self.errors.clear()
        return str(error)


@pytest.fixture
def world() -> World:
    return World()


def list_recording(correlation_id: int = 1, **fields: int) -> bytes:
    return codecs.encode(
        "archive",
        "ListRecordingRequest",
        **{"control_session_id": 5, "correlation_id": correlation_id, "recording_id": 3} | fields,
    )


def replay(channel: str, correlation_id: int = 1) -> bytes:
    return codecs.encode(
        "archive",
        "ReplayRequest",
        control_session_id=5,
        correlation_id=correlation_id,
        recording_id=3,
        position=0,
        length=-1,
        replay_stream_id=4,
        file_io_max_length=-1,
        replay_token=-1,
        replay_channel=channel,
    )


# Messages of Java's encoders


def expected_call(vector: Vector, image: Image) -> Call:
    """What the adapter has to call for a message: with the fields that Java says its sender has."""
    layout = GOLDEN.layouts[vector.message]
    is_connect = vector.message in CONNECTS
    fields: dict[str, Any] = {}
    for name, known in vector.fields.items():
        if name in layout.var:
            is_text = name != "encoded_credentials" and vector.message not in FRAGMENTS
            value: Any = bytes(cast(bytes, known)).decode() if is_text and known is not None else known
        else:
            slot = layout.fields[name]
            value = slot.null if known is None and slot.since == 0 else known
        if name == "source_location":
            name, value = "is_local", value == 0
        elif name in ("auto_stop", "apply_stream_id"):
            value = value == 1
        if value is not None:
            fields[name] = value
    if is_connect:
        return "on_connect", image, fields
    request = ControlRequest(
        layout.template_id, fields.pop("control_session_id"), fields.pop("correlation_id", -1), image.correlation_id
    )
    return CALLS[vector.message], request, fields


def test_the_table_has_every_message_of_the_schema() -> None:
    assert {*CALLS, *CONNECTS, *NO_REQUESTS} == set(GOLDEN.layouts)


def test_the_handlers_interface_has_the_methods_that_are_called() -> None:
    named = {name for name in vars(ControlHandler) if name.startswith("on_")}
    assert named == {*CALLS.values(), "on_connect"}


@pytest.mark.parametrize("handler", [ControlHandler, ArchiveConductor])
@pytest.mark.parametrize("message", [*CALLS, *sorted(CONNECTS)])
def test_a_handler_takes_the_fields_of_every_version(handler: type[object], message: str, world: World) -> None:
    image = seam.image(world.adapter.subscription)
    assert image is not None
    vector = next(vector for vector in GOLDEN.vectors if vector.message == message)
    for version in VERSIONS:
        method, request, fields = expected_call(derive(GOLDEN, vector, version), image)
        called = getattr(handler, method)
        # What is answered is given the request as its session and its correlation id.
        given = (request, None) if hasattr(called, "__wrapped__") else (request,)
        inspect.signature(called).bind(None, *given, **fields)


@pytest.mark.parametrize("message", [*CALLS, *sorted(CONNECTS)])
def test_a_request_of_any_version_is_one_call_with_plain_arguments(world: World, message: str) -> None:
    image = seam.image(world.adapter.subscription)
    assert image is not None
    for vector in (vector for vector in GOLDEN.vectors if vector.message == message):
        for version in VERSIONS:
            derived = derive(GOLDEN, vector, version)
            if "source_location" in derived.fields and derived.fields["source_location"] not in (0, 1):
                assert world.give(derived.encoded) == []
                assert UNKNOWN_LOCATION in world.error()
            else:
                assert world.give(derived.encoded) == [expected_call(derived, image)], derived.label
    assert world.errors == []


@pytest.mark.parametrize("message", sorted(NO_REQUESTS))
def test_a_message_that_is_no_request_is_passed_over(world: World, message: str) -> None:
    for vector in (vector for vector in GOLDEN.vectors if vector.message == message):
        assert world.give(vector.encoded) == []
    assert world.errors == []


def test_a_flag_is_set_by_1_alone(world: World) -> None:
    for value, expected in ((0, False), (1, True), (2, False), (-1, False), (-(2**31), False)):
        [(_, _, fields)] = world.give(
            codecs.encode(
                "archive",
                "StartRecordingRequest2",
                control_session_id=1,
                correlation_id=2,
                stream_id=3,
                source_location=1,
                auto_stop=value,
                channel="aeron:ipc",
            )
        )
        assert fields == {"stream_id": 3, "is_local": False, "auto_stop": expected, "channel": "aeron:ipc"}


def test_a_channel_that_is_not_ascii_reaches_the_handler_that_can_refuse_it(world: World) -> None:
    data = replay("aeron:ipc?alias=x").replace(b"alias=x", b"alias=\xff")
    [(_, _, fields)] = world.give(data)
    assert fields["replay_channel"] == "aeron:ipc?alias=\ufffd"


# Statement 7: foreign schemas, unknown templates, damage


def test_conformance_7_a_foreign_schema_is_counted_and_the_next_request_served(world: World) -> None:
    foreign = bytearray(list_recording())
    struct.pack_into("<H", foreign, 4, 111)
    assert world.give(bytes(foreign)) == []
    assert world.error().startswith("expected schemaId=101, actual=111 from aeron:ipc sessionId=")
    assert [name for name, *_ in world.give(list_recording())] == ["on_list_recording"]
    assert world.errors == []


@pytest.mark.parametrize("template_id", [0, 59, 69, 106, 108, 999, 65_535])
def test_conformance_7_an_unknown_template_is_ignored(world: World, template_id: int) -> None:
    unknown = bytearray(list_recording())
    struct.pack_into("<H", unknown, 2, template_id)
    assert world.give(bytes(unknown)) == []
    assert world.errors == []
    assert len(world.give(list_recording())) == 1


@pytest.mark.parametrize("message", [*CALLS, *sorted(CONNECTS)])
def test_what_is_cut_off_anywhere_is_counted_and_passed_over(world: World, message: str) -> None:
    vector = next(vector for vector in GOLDEN.vectors if vector.message == message)
    for length in range(len(vector.encoded)):
        assert world.give(vector.encoded[:length]) == [], length
        assert f"got {length} from aeron:ipc sessionId=" in world.error()
    assert len(world.give(vector.encoded)) == 1


@pytest.mark.parametrize("message", [*CALLS, *sorted(CONNECTS)])
def test_a_block_shorter_than_in_any_version_is_counted(world: World, message: str) -> None:
    vector = next(vector for vector in GOLDEN.vectors if vector.message == message)
    least = derive(GOLDEN, vector, 0).encoded
    shorter = bytearray(least)
    struct.pack_into("<H", shorter, 0, HEADER.unpack_from(least)[0] - 1)
    assert world.give(bytes(shorter)) == []
    assert "block is shorter than in any version" in world.error()


def test_var_data_longer_than_the_message_is_counted(world: World) -> None:
    data = bytearray(replay("aeron:ipc"))
    for length in (10, 2**31 - 1, 2**31, 2**32 - 1):
        struct.pack_into("<I", data, 64, length)
        assert world.give(bytes(data)) == []
        assert world.error().startswith(
            "request 6: ReplayRequest (version 13, block length 56): message is truncated: "
        )


def test_a_longer_block_and_bytes_behind_the_message_are_of_a_later_version(world: World) -> None:
    data = bytearray(list_recording())
    struct.pack_into("<H", data, 0, 24 + 16)
    struct.pack_into("<H", data, 6, 99)
    [(_, _, fields)] = world.give(bytes(data) + bytes(16) + b"more")
    assert fields == {"recording_id": 3}


# Fragments, images, failures


def test_a_message_in_pieces_is_put_together(world: World) -> None:
    channel = "aeron:ipc?alias=" + "x" * 7000
    [(_, _, fields)] = world.give(replay(channel))
    assert fields["replay_channel"] == channel


def test_messages_of_several_images_do_not_mix(world: World) -> None:
    publications = [world.publication, *(world.publish() for _ in range(4))]
    channels = [f"aeron:ipc?alias={index}" + str(index) * (1000 + 1200 * index) for index in range(5)]
    for index, publication in enumerate(publications):
        for number in range(3):
            world.offer(replay(channels[index], 10 * index + number), publication)
    polls = 0
    while world.poll():
        polls += 1
    assert polls > 3
    assert sorted((call[1].correlation_id, call[2]["replay_channel"]) for call in world.calls) == [
        (10 * index + number, channels[index]) for index in range(5) for number in range(3)
    ]
    images = {call[1].correlation_id // 10: call[1].image_correlation_id for call in world.calls}
    assert len(set(images.values())) == 5


def test_a_poll_reads_at_most_ten_fragments(world: World) -> None:
    for correlation_id in range(25):
        world.offer(list_recording(correlation_id))
    seam.invoke(world.archive)
    assert [world.adapter.poll() for _ in range(4)] == [10, 10, 5, 0]
    assert [call[1].correlation_id for call in world.calls] == list(range(25))


def test_no_image_keeps_the_others_waiting(world: World) -> None:
    other = world.publish()
    for _ in range(100):
        world.offer(list_recording(1))
        world.offer(list_recording(2), other)
    seam.invoke(world.archive)
    for _ in range(4):
        assert world.adapter.poll() == 10
    ids = [call[1].correlation_id for call in world.calls]
    assert ids.count(1) == ids.count(2) == 20


def test_half_a_message_is_not_completed_by_the_next_publication(world: World) -> None:
    client = world.driver.connect("dies")
    first = seam.add_publication(client, f"{CHANNEL}|session-id=77", STREAM_ID, exclusive=True)
    seam.offer(first, replay("aeron:ipc?alias=" + "a" * 20_000)[:8000])
    for _ in range(9):
        world.offer(list_recording())
    seam.invoke(world.archive)
    world.adapter.poll()
    client.sever()
    client.expire()
    for _ in range(3):
        world.poll()
    world.calls.clear()
    world.errors.clear()
    second = seam.add_publication(world.client, f"{CHANNEL}|session-id=77", STREAM_ID, exclusive=True)
    [(_, _, fields)] = world.give(replay("aeron:ipc?alias=" + "b" * 6000), second)
    assert fields["replay_channel"] == "aeron:ipc?alias=" + "b" * 6000
    assert world.errors == []


def test_many_images_that_come_and_go(world: World) -> None:
    gc.collect()
    before = sum(type(each) is RequestStream for each in gc.get_objects())
    for number in range(50):
        client = world.driver.connect("comes and goes")
        publication = seam.add_publication(client, CHANNEL, STREAM_ID, exclusive=True)
        assert len(world.give(list_recording(number), publication)) == 1
        client.close()
        world.poll()
    assert len(world.calls) == 50
    assert world.errors == []
    gc.collect()
    assert sum(type(each) is RequestStream for each in gc.get_objects()) <= before + 1


def test_what_the_handler_raises_is_reported_and_the_next_request_served(world: World) -> None:
    def fail() -> None:
        world.action = lambda: None
        raise ValueError("a conductor's")

    world.action = fail
    world.offer(list_recording(1))
    world.offer(list_recording(2))
    assert world.poll() == 2
    assert [call[1].correlation_id for call in world.calls] == [1, 2]
    assert [str(error) for error in world.errors] == ["a conductor's"]


@pytest.mark.parametrize("error", [AgentTermination("ends"), KeyboardInterrupt()])
def test_what_ends_an_agent_ends_the_poll_and_the_request_is_not_done_again(world: World, error: BaseException) -> None:
    def end() -> None:
        world.action = lambda: None
        raise error

    world.action = end
    world.offer(list_recording(1))
    world.offer(list_recording(2))
    with pytest.raises(type(error)):
        world.poll()
    assert world.errors == []
    assert world.poll() == 1
    assert [call[1].correlation_id for call in world.calls] == [1, 2]


def test_a_handler_may_reject_the_image_of_its_request(world: World) -> None:
    image = seam.image(world.adapter.subscription)
    assert image is not None
    world.action = lambda: image.reject("enough")
    for correlation_id in range(3):
        world.offer(list_recording(correlation_id))
    assert world.poll() == 3
    assert not seam.is_closed(image)
    assert world.poll() == 0
    assert seam.is_closed(image)


def test_a_handler_may_close_the_adapter(world: World) -> None:
    world.action = world.adapter.close
    world.publish()
    world.offer(list_recording(1))
    world.poll()
    assert world.poll() == 0
    assert world.adapter.close() == 0


# Hostile bytes


def damaged(chance: random.Random, valid: bytes) -> bytes:
    """A request with a fault, or bytes that never were one."""
    data = bytearray(valid)
    kind = chance.randrange(9)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 7, 8, 9, 31, 33, 100, 1400, 3000)))
    if kind == 1:
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 2:
        del data[chance.randrange(len(data) + 1) :]
    elif kind == 3:
        begin = chance.randrange(len(data) + 1)
        data[begin:begin] = chance.randbytes(chance.choice((1, 4, 500)))
    elif kind == 4:
        struct.pack_into("<H", data, 4, chance.choice((0, 1, 100, 102, 111, 65_535)))
    elif kind == 5:
        struct.pack_into("<H", data, 6, chance.randrange(65_536))
    elif kind == 6:
        struct.pack_into("<H", data, 0, chance.choice((0, 1, 7, 8, 15, 16, 100, 32_767, 65_535)))
    elif kind == 7:
        struct.pack_into("<H", data, 2, chance.randrange(130))
    elif len(data) > 28:
        struct.pack_into("<I", data, chance.randrange(8, len(data) - 4), chance.choice((0, 2**31, 2**32 - 1, 5000)))
    return bytes(data)


@pytest.mark.parametrize("seed", range(8))
def test_hostile_bytes_never_get_out_of_the_adapter(world: World, seed: int) -> None:
    chance = random.Random(seed)
    requests = [vector.encoded for vector in GOLDEN.vectors if vector.message in CALLS or vector.message in CONNECTS]
    for sent in range(1000):
        data = damaged(chance, chance.choice(requests))
        before = len(world.calls), len(world.errors)
        world.offer(data)
        world.drain()
        calls, errors = len(world.calls) - before[0], len(world.errors) - before[1]
        assert calls + errors <= 1, "a message is one call, one error or nothing"
        if sent % 50 == 0:
            assert len(world.give(list_recording(sent))) == 1
    assert all(isinstance(error, ArchiveError) and len(str(error)) < 300 for error in world.errors)
    assert len(world.errors) > 100
    assert len(world.calls) > 100
