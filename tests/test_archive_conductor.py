"""Requests of clients, done by an archive's conductor: what is answered, what is signalled, what is on the disk."""

from __future__ import annotations

from typing import Any

import pytest

from container.archive import error_codes
from container.archive.authentication import DenyAll
from container.errors import AeronError
from container.testing.memory import transport_probe as seam
from tests.archive_streams import TERM, payloads
from tests.archive_world import (
    ARCHIVE_ID,
    IPC,
    NETWORK_CHANNEL,
    SEGMENT_LENGTH,
    ArchiveRequests,
    ArchiveWorld,
    Subscriber,
)
from tests.control_world import ERROR, RECORDING_UNKNOWN
from tests.replication_world import replicate_fields

RECORDING_POSITION, CONTROL_SESSIONS, RECORDINGS, REPLAYS = 100, 102, 111, 112


@pytest.fixture
def world() -> ArchiveWorld:
    return ArchiveWorld()


def recorded(world: ArchiveWorld, stream_id: int = 1001, *messages: bytes, channel: str = IPC) -> int:
    """A recording that has stopped."""
    client = world.connect()
    stream = world.stream(stream_id, channel)
    client.start_recording(stream_id, channel)
    recording_id = client.signal("START")
    stream.send(*messages)
    stream.close()
    client.signal("STOP")
    client.send("CloseSessionRequest")
    world.work(3)
    return recording_id


def test_a_client_learns_the_archives_id(world: ArchiveWorld) -> None:
    client = world.connect()
    assert client.ok("ArchiveIdRequest") == ARCHIVE_ID
    assert world.counter_value(CONTROL_SESSIONS) == 1
    client.send("CloseSessionRequest")
    world.work(2)
    assert world.counter_value(CONTROL_SESSIONS) == 0
    assert world.texts() == []


def test_a_recording_begins_with_a_counter_that_can_be_found_when_the_signal_comes(world: ArchiveWorld) -> None:
    client = world.connect()
    stream = world.stream(1001, f"{IPC}|init-term-id=7|term-id=8|term-offset=128")
    assert client.start_recording(1001) > 0
    assert client.signal("START") == 0
    # A consensus module looks it up once, and takes its value for what is recorded.
    assert world.counter_value(RECORDING_POSITION) == 65_536 + 128
    stream.send(b"one")
    [record] = world.counter(RECORDING_POSITION)
    assert record["label"] == f"rec-pos: 0 {stream.publication.session_id} 1001 aeron:ipc - archiveId={ARCHIVE_ID}"
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    assert world.counter_value(RECORDINGS) == 1
    assert world.store.is_active(0)
    assert payloads(world.recorded(0)) == [b"\xc0one"]


def test_an_image_that_ends_is_recorded_to_its_end_and_all_that_belonged_to_it_goes(world: ArchiveWorld) -> None:
    client = world.connect()
    stream = world.stream(1001)
    subscription_id = client.start_recording(1001)
    recording_id = client.signal("START")
    stream.fill(200_000)
    end = stream.position
    stream.close()
    assert client.signal("STOP") == recording_id
    assert world.store.catalog.stop_position(recording_id) == end
    world.work(2)
    assert world.counter(RECORDING_POSITION) == []
    assert world.counter_value(RECORDINGS) == 0
    code, text = client.error("StopRecordingSubscriptionRequest", subscription_id=subscription_id)
    assert (code, str(subscription_id) in text) == (error_codes.UNKNOWN_SUBSCRIPTION, True)
    assert len(payloads(world.recorded(recording_id))) == len(range(0, end, 1024))


def test_a_subscription_without_auto_stop_records_every_image(world: ArchiveWorld) -> None:
    client = world.connect()
    subscription_id = client.start_recording(1001, "aeron:ipc", auto_stop=False)
    for number in range(3):
        stream = world.stream(1001, f"{IPC}|session-id={number}")
        assert client.signal("START") == number
        stream.send(b"%d" % number)
        stream.close()
        assert client.signal("STOP") == number
    assert client.ok("StopRecordingSubscriptionRequest", subscription_id=subscription_id) == 0
    stream = world.stream(1001)
    world.work(5)
    assert client.signals() == []
    assert not seam.is_connected(stream.publication)


@pytest.mark.parametrize("how", ["subscription", "channel", "identity"])
def test_a_stop_answers_before_it_signals_and_frees_the_key(world: ArchiveWorld, how: str) -> None:
    client = world.connect()
    stream = world.stream(1001)
    subscription_id = client.start_recording(1001)
    recording_id = client.signal("START")
    stream.send(b"one")
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    if how == "subscription":
        correlation_id = client.send("StopRecordingSubscriptionRequest", subscription_id=subscription_id)
    elif how == "channel":
        correlation_id = client.send("StopRecordingRequest", stream_id=1001, channel=IPC.encode())
    else:
        correlation_id = client.send("StopRecordingByIdentityRequest", recording_id=recording_id)
    world.work(3)
    [(_, response), (_, signal)] = client.take()
    assert (response["correlation_id"], response["code"], response["relevant_id"]) == (
        correlation_id,
        0,
        int(how == "identity"),
    )
    assert (signal["signal"], signal["position"], signal["subscription_id"]) == (1, stream.position, subscription_id)
    assert world.counter(RECORDING_POSITION) == []
    client.start_recording(1001)
    assert client.signal("START") == recording_id + 1
    if how == "identity":
        assert client.ok("StopRecordingByIdentityRequest", recording_id=recording_id) == 0
        assert client.error("StopRecordingByIdentityRequest", recording_id=99)[0] == error_codes.UNKNOWN_RECORDING


def test_a_stop_by_identity_leaves_the_other_recordings_of_its_subscription(world: ArchiveWorld) -> None:
    """As upstream: the subscription goes on, also with new images, until its last recording ends."""
    client = world.connect()
    first, second = world.stream(1001), world.stream(1001)
    client.start_recording(1001, auto_stop=False)
    one, other = client.signal("START"), client.signal("START")
    assert client.ok("StopRecordingByIdentityRequest", recording_id=one) == 1
    assert client.signal("STOP") == one
    third = world.stream(1001)
    assert client.signal("START") == other + 1
    assert client.ok("StopRecordingByIdentityRequest", recording_id=other) == 0
    assert client.signal("STOP") == other
    third.send(b"three")
    world.until(lambda: world.counter_value(RECORDING_POSITION) == third.position)
    third.publication.close()
    assert client.signal("STOP") == other + 1
    world.work(3)
    assert not any(seam.is_connected(each.publication) for each in (first, second))
    fourth = world.stream(1001)
    world.work(3)
    assert client.signals() == []
    assert not seam.is_connected(fourth.publication)


def test_one_key_can_be_recorded_once_at_a_time(world: ArchiveWorld) -> None:
    client = world.connect()
    client.start_recording(1001, IPC)
    for channel in (IPC, "aeron:ipc?alias=other"):
        response = client.ask(
            "StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=1, channel=channel.encode()
        )
        assert (response["code"], response["relevant_id"]) == (1, error_codes.ACTIVE_SUBSCRIPTION)
    client.start_recording(1001, "aeron:ipc?session-id=5")


def test_too_many_recordings_are_refused() -> None:
    world = ArchiveWorld(max_concurrent_recordings=2)
    client = world.connect()
    for stream_id in (1, 2):
        world.stream(stream_id)
        client.start_recording(stream_id)
        client.signal("START")
    code, text = client.error(
        "StartRecordingRequest2", stream_id=3, source_location=0, auto_stop=1, channel=IPC.encode()
    )
    assert (code, text) == (error_codes.MAX_RECORDINGS, "max concurrent recordings reached 2")


def test_low_storage_refuses_what_would_begin() -> None:
    world = ArchiveWorld(low_storage_space_threshold=1 << 41)
    code, text = world.connect().error(
        "StartRecordingRequest2", stream_id=3, source_location=0, auto_stop=1, channel=IPC.encode()
    )
    assert (code, text.startswith("low storage threshold=")) == (error_codes.STORAGE_SPACE, True)


def test_little_space_refuses_extensions_too_and_what_is_recorded_goes_on(world: ArchiveWorld) -> None:
    client = world.connect()
    stopped = recorded(world, 1001, b"first")
    stream = world.stream(1002)
    client.start_recording(1002)
    active = client.signal("START")
    world.disk.capacity = 0  # files have the pages of their whole length already
    request = {"stream_id": 1001, "source_location": 0, "auto_stop": 1, "channel": IPC.encode()}
    code, text = client.error("ExtendRecordingRequest2", recording_id=stopped, **request)
    assert (code, text.startswith("low storage threshold=0 <= usableSpace=0")) == (error_codes.STORAGE_SPACE, True)
    assert client.error("StartRecordingRequest2", **request)[0] == error_codes.STORAGE_SPACE
    world.disk.capacity = 1 << 40
    stream.send(b"one")
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    assert world.store.is_active(active)
    assert payloads(world.recorded(active)) == [b"\xc0one"]


def test_a_full_disk_ends_a_recording_with_code_11_and_the_archive_goes_on() -> None:
    world = ArchiveWorld()
    client = world.connect()
    stream = world.stream(1001)
    client.start_recording(1001)
    recording_id = client.signal("START")
    stream.fill(20_000)
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    before = stream.position
    world.disk.fail("write", 28)
    stream.send(b"too much")
    assert client.signal("STOP") == recording_id
    [(_, error)] = client.take()
    assert (error["code"], error["relevant_id"]) == (1, error_codes.STORAGE_SPACE)
    assert world.store.catalog.stop_position(recording_id) == before
    assert recorded(world, 1002, b"there is room again") == recording_id + 1


def test_a_recording_is_extended_where_it_stopped(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"first", channel=f"{IPC}|alias=first")
    stop = world.store.catalog.stop_position(recording_id)
    fields: dict[str, Any] = {"recording_id": recording_id, "source_location": 0, "auto_stop": 1}
    stopped = world.store.catalog.descriptor(recording_id)
    assert stopped is not None
    channel = f"{IPC}|init-term-id={stopped.initial_term_id}|term-id={stopped.initial_term_id}|term-offset={stop}"
    stream = world.stream(1001, channel)
    client.ok("ExtendRecordingRequest2", stream_id=1001, channel=b"aeron:ipc?alias=second", **fields)
    assert client.signal("EXTEND") == recording_id
    assert world.counter_value(RECORDING_POSITION) == stop
    stream.send(b"second")
    stream.close()
    assert client.signal("STOP") == recording_id
    assert payloads(world.recorded(recording_id)) == [b"\xc0first", b"\xc0second"]
    descriptor = world.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    assert "alias=first" in descriptor.original_channel
    assert descriptor.session_id == stream.publication.session_id


def test_what_cannot_be_extended_is_refused(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"first")
    world.stream(1002)
    client.start_recording(1002)
    active = client.signal("START")

    def refusal(recording_id: int, stream_id: int = 1001) -> int:
        return client.error(
            "ExtendRecordingRequest2",
            recording_id=recording_id,
            stream_id=stream_id,
            source_location=0,
            auto_stop=1,
            channel=b"aeron:ipc?alias=x",
        )[0]

    assert refusal(99) == error_codes.UNKNOWN_RECORDING
    assert refusal(recording_id, 1003) == error_codes.UNKNOWN_RECORDING
    assert refusal(active, 1002) == error_codes.ACTIVE_RECORDING


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("term-offset=0", "joinPosition=0 != rec.stopPosition="),
        ("init-term-id=OTHER", "initialTermId"),
        ("term-length=128k", "termBufferLength"),
        ("mtu=2048", "mtuLength"),
    ],
)
def test_an_image_that_does_not_continue_gets_an_error_after_the_ok(world: ArchiveWorld, query: str, text: str) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"first")
    descriptor = world.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    params = {
        "term-length": "64k",
        "mtu": "1408",
        "init-term-id": str(descriptor.initial_term_id),
        "term-id": str(descriptor.initial_term_id),
        "term-offset": str(descriptor.stop_position),
    }
    name, _, value = query.partition("=")
    if value == "OTHER":
        params["init-term-id"] = params["term-id"] = str(descriptor.initial_term_id + 5)
    else:
        params[name] = value
    stream = world.stream(1001, "aeron:ipc?" + "|".join(f"{key}={each}" for key, each in params.items()))
    correlation_id = client.send(
        "ExtendRecordingRequest2",
        recording_id=recording_id,
        stream_id=1001,
        source_location=0,
        auto_stop=1,
        channel=b"aeron:ipc",
    )
    world.work(6)
    [(_, ok), (_, error)] = client.take()
    assert (ok["code"], error["code"], error["relevant_id"]) == (0, 1, error_codes.INVALID_EXTENSION)
    assert error["correlation_id"] == correlation_id
    assert text in error["error_message"].decode()
    assert not seam.is_connected(stream.publication)  # the subscription has gone
    assert world.store.catalog.stop_position(recording_id) == descriptor.stop_position


def test_a_replay_is_answered_before_it_is_subscribed_to_and_is_all_that_was_recorded(world: ArchiveWorld) -> None:
    client = world.connect()
    messages = [bytes([each]) * 900 for each in range(200)]
    recording_id = recorded(world, 1001, *messages)
    replay_id = client.replay(recording_id)
    subscriber = Subscriber(world, channel=f"aeron:ipc?session-id={_int32(replay_id)}")
    world.until(subscriber.has_ended)
    assert subscriber.content == world.recorded(recording_id)
    assert world.counter_value(REPLAYS) == 0
    assert client.take() == []


def test_a_replay_follows_a_recording_to_its_end(world: ArchiveWorld) -> None:
    client = world.connect()
    stream = world.stream(1001)
    client.start_recording(1001)
    recording_id = client.signal("START")
    stream.send(b"one")
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    client.replay(recording_id)
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() or payloads(subscriber.content) == [b"\xc0one"])
    stream.send(b"two")
    world.until(lambda: subscriber.read() or payloads(subscriber.content) == [b"\xc0one", b"\xc0two"])
    stream.close()
    world.until(subscriber.has_ended)


def test_a_replay_that_nobody_joins_ends_after_the_time_limit(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"one")
    client.replay(recording_id)
    assert world.counter_value(REPLAYS) == 1
    world.wait(5_200, 100)
    [(_, error)] = client.take()
    assert "no connection established" in error["error_message"].decode()
    assert world.counter_value(REPLAYS) == 0


def test_a_replay_is_gone_when_its_stop_is_answered(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, *[bytes(900)] * 300)
    replay_id = client.replay(recording_id)
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() > 0)
    assert client.ok("StopReplayRequest", replay_session_id=replay_id) == 0
    assert client.ok("StopReplayRequest", replay_session_id=12345) == 0
    assert world.counter_value(REPLAYS) == 0
    world.until(subscriber.is_closed)


def test_a_replay_is_stopped_and_a_truncation_that_follows_at_once_is_done(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, *[bytes(900)] * 300)
    client.send("StopReplayRequest", replay_session_id=client.replay(recording_id))
    truncate_id = client.send("TruncateRecordingRequest", recording_id=recording_id, position=0)
    response = client.response_to(truncate_id)
    assert (response["code"], response["relevant_id"]) == (0, 3)


def test_all_replays_are_stopped_and_a_truncation_that_follows_at_once_is_done(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, *[bytes(900)] * 300)
    client.replay(recording_id)
    client.send("ReplayRequest", **client.replay_fields(recording_id))  # perhaps not begun yet
    stop_id = client.send("StopAllReplaysRequest", recording_id=recording_id)
    truncate_id = client.send("TruncateRecordingRequest", recording_id=recording_id, position=0)
    assert client.response_to(stop_id)["code"] == 0
    response = client.response_to(truncate_id)
    assert (response["code"], response["relevant_id"]) == (0, 3)
    assert client.signal("DELETE") == recording_id
    assert world.store.catalog.stop_position(recording_id) == 0


def test_a_replay_is_bounded_by_a_counter(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"one", b"two", b"three")
    limit = seam.add_counter(client.client, 203, b"", "commit-pos")
    seam.set_counter(limit, 64)
    client.ok("BoundedReplayRequest", limit_counter_id=limit.counter_id, **client.replay_fields(recording_id))
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() or payloads(subscriber.content) == [b"\xc0one"])
    world.work(20)
    assert subscriber.read() == 0
    seam.set_counter(limit, 64 * 3)
    world.until(subscriber.has_ended)
    assert payloads(subscriber.content) == [b"\xc0one", b"\xc0two", b"\xc0three"]
    code, text = client.error("BoundedReplayRequest", limit_counter_id=77_777, **client.replay_fields(recording_id))
    assert (code, "unable to create replay limit counter" in text) == (0, True)


def test_the_id_of_a_replay_has_that_of_its_image_and_a_number_of_its_own(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"one")
    ids = [client.replay(recording_id, replay_stream_id=3000 + number) for number in range(5)]
    for number, replay_id in enumerate(ids):
        subscriber = Subscriber(world, stream_id=3000 + number)
        world.until(subscriber.has_ended)
        assert subscriber.image is not None
        assert subscriber.image.session_id == _int32(replay_id)
    assert [replay_id >> 32 for replay_id in ids] == [1, 2, 3, 4, 5]


def test_the_image_of_a_replay_joins_at_the_position_with_the_recordings_numbers(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, *[bytes(992)] * 100, channel=f"{IPC}|init-term-id=7|term-id=9|term-offset=64")
    descriptor = world.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    position = 3 * TERM + 6 * 1024  # there is padding before
    assert (descriptor.start_position, descriptor.initial_term_id) == (2 * TERM + 64, 7)
    client.replay(recording_id, position, 10 * 1024)
    subscriber = Subscriber(world)
    world.until(subscriber.has_ended)
    image = subscriber.image
    assert image is not None
    assert image.join_position == position
    assert (image.initial_term_id, image.term_buffer_length, image.mtu_length) == (7, TERM, 1408)
    assert seam.position(image) == position + 10 * 1024
    assert len(payloads(subscriber.content)) == 10


def test_lengths_of_replays(world: ArchiveWorld) -> None:
    client = world.connect()
    stopped = recorded(world, 1001, *[bytes(992)] * 20)
    stream = world.stream(1002)
    client.start_recording(1002)
    active = client.signal("START")
    stream.send(*[bytes(992)] * 20)
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    end = 20 * 1024
    replays = [
        (stopped, -1, end), (stopped, -2, end), (stopped, 3 * 1024, 3 * 1024), (stopped, 2**63 - 1, end),
        (active, -2, end), (active, 3 * 1024, 3 * 1024),
    ]  # fmt: skip
    for recording_id, length, expected in replays:
        client.replay(recording_id, length=length)
        subscriber = Subscriber(world)
        world.until(subscriber.has_ended)
        assert len(subscriber.content) == expected, length
        subscriber.client.close()
        world.work(2)
    assert world.counter_value(REPLAYS) == 0


def test_nothing_to_replay_and_stop_is_one_error_and_no_more(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001)
    for _ in range(2):
        code, _ = client.error("ReplayRequest", **client.replay_fields(recording_id, length=-2))
        assert code == error_codes.EMPTY_RECORDING
    world.wait(6_000, 100)
    assert client.take() == []
    assert world.counter_value(REPLAYS) == 0


def test_a_slow_reader_of_a_replay_delays_no_recording_and_no_reply() -> None:
    world = ArchiveWorld(window=16 * 1024)
    client = world.connect()
    old = recorded(world, 1001, *[bytes(992)] * 400)
    client.replay(old)
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() > 0)  # and no more for now
    world.work(20)
    stream = world.stream(1002)
    client.start_recording(1002)
    assert client.signal("START") == old + 1
    for number in range(100):
        stream.send(b"%d" % number)
        world.work(2)
        assert world.counter_value(RECORDING_POSITION) == stream.position
        correlation_id = client.send("ArchiveIdRequest")
        world.work()
        assert [each["correlation_id"] for _, each in client.take()] == [correlation_id]
    assert world.counter_value(REPLAYS) == 1
    world.until(subscriber.has_ended)
    assert subscriber.content == world.recorded(old)


def test_replays_that_are_not_possible_are_refused(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"one", b"two")

    def refusal(recording_id: int = recording_id, **fields: Any) -> int:
        return client.error("ReplayRequest", **client.replay_fields(recording_id, **fields))[0]

    assert refusal(99) == error_codes.UNKNOWN_RECORDING
    assert refusal(position=128) == error_codes.INVALID_POSITION
    assert refusal(position=33) == error_codes.GENERIC
    assert refusal(position=32) == error_codes.INVALID_POSITION  # inside a frame
    assert refusal(replay_channel=b"aeron:nonsense") == error_codes.GENERIC
    assert refusal(file_io_max_length=100) == error_codes.GENERIC
    assert world.counter_value(REPLAYS) == 0


def test_too_many_replays_are_refused() -> None:
    world = ArchiveWorld(max_concurrent_replays=1)
    client = world.connect()
    recording_id = recorded(world, 1001, b"one")
    client.send("ReplayRequest", **client.replay_fields(recording_id))
    code, _ = client.error("ReplayRequest", **client.replay_fields(recording_id))
    assert code == error_codes.MAX_REPLAYS


def test_a_replay_token_lets_another_connection_ask(world: ArchiveWorld) -> None:
    client, other = world.connect(), world.connect()
    recording_id = recorded(world, 1001, b"one")
    token = client.ok("ReplayTokenRequest", recording_id=recording_id)

    def ask(token: int, channel: bytes = b"aeron:udp?control-mode=response|control=localhost:9500") -> int:
        fields = other.replay_fields(recording_id, replay_token=token, replay_channel=channel)
        return other.send("ReplayRequest", **fields)

    assert client.response_to(ask(token))["code"] == 0
    assert other.take() == []
    ask(token + 1)
    world.wait(6_000, 100)
    assert any("unknown replayToken" in text for text in world.texts())
    ask(token)
    world.work(5)
    assert any("unknown replayToken" in text for text in world.texts())
    assert other.take() == []
    # With another channel the token does not matter.
    assert other.response_to(ask(token, b"aeron:ipc"))["code"] == 0
    assert other.response_to(ask(token, b"aeron:nonsense"))["code"] == ERROR


def test_lists_and_positions(world: ArchiveWorld) -> None:
    client = world.connect()
    first = recorded(world, 1001, b"one", channel=f"{IPC}|alias=a")
    second = recorded(world, 1002, b"one", b"two", channel=f"{IPC}|alias=b")
    client.send("ListRecordingRequest", recording_id=second)
    world.work(3)
    [(name, descriptor)] = client.take()
    assert (name, descriptor["recording_id"], descriptor["stop_position"]) == ("RecordingDescriptor", second, 128)
    client.send("ListRecordingsRequest", from_recording_id=0, record_count=10)
    world.work(5)
    taken = client.take()
    assert [name for name, _ in taken] == ["RecordingDescriptor", "RecordingDescriptor", "ControlResponse"]
    assert taken[-1][1]["code"] == RECORDING_UNKNOWN
    client.send("ListRecordingsForUriRequest", from_recording_id=0, record_count=1, stream_id=1002, channel=b"alias=b")
    world.work(5)
    assert [each["recording_id"] for _, each in client.take()] == [second]
    found = client.ok(
        "FindLastMatchingRecordingRequest",
        min_recording_id=0,
        session_id=world.store.catalog.descriptor(first).session_id,  # type: ignore[union-attr]
        stream_id=1001,
        channel=b"alias",
    )
    assert found == first
    assert client.ok("StartPositionRequest", recording_id=second) == 0
    assert client.ok("StopPositionRequest", recording_id=second) == 128
    assert client.ok("MaxRecordedPositionRequest", recording_id=second) == 128
    assert client.ok("RecordingPositionRequest", recording_id=second) == -1
    for name in ("StartPosition", "StopPosition", "MaxRecordedPosition", "RecordingPosition"):
        assert client.error(f"{name}Request", recording_id=99)[0] == error_codes.UNKNOWN_RECORDING


def test_positions_of_a_recording_that_is_active(world: ArchiveWorld) -> None:
    client = world.connect()
    stream = world.stream(1001, f"{IPC}|init-term-id=0|term-id=0|term-offset=128")
    client.start_recording(1001)
    recording_id = client.signal("START")
    stream.send(b"one", b"two")
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)

    def positions() -> list[int]:
        names = ("StartPosition", "RecordingPosition", "StopPosition", "MaxRecordedPosition")
        return [client.ok(f"{name}Request", recording_id=recording_id) for name in names]

    assert positions() == [128, 256, -1, 256]
    stream.close()
    assert client.signal("STOP") == recording_id
    assert positions() == [128, -1, 256, 256]


def test_subscriptions_are_listed(world: ArchiveWorld) -> None:
    client = world.connect()
    subscription_id = client.start_recording(1001, "aeron:ipc?alias=x")
    client.send(
        "ListRecordingSubscriptionsRequest",
        pseudo_index=0,
        subscription_count=5,
        apply_stream_id=1,
        stream_id=1001,
        channel=b"ipc",
    )
    world.work(4)
    [(name, each), (end, response)] = client.take()
    assert (name, each["subscription_id"], each["stream_id"]) == (
        "RecordingSubscriptionDescriptor",
        subscription_id,
        1001,
    )
    assert (end, response["code"]) == ("ControlResponse", 3)


def test_a_second_list_at_a_time_is_refused(world: ArchiveWorld) -> None:
    client = world.connect()
    recorded(world, 1001, b"one")
    client.send("ListRecordingsRequest", from_recording_id=0, record_count=10)
    assert client.error("ListRecordingsRequest", from_recording_id=0, record_count=1)[0] == error_codes.ACTIVE_LISTING


def test_a_recording_is_purged_and_its_id_is_not_given_again(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, *[bytes(900)] * 300)
    assert client.ok("PurgeRecordingRequest", recording_id=recording_id) == 3
    assert client.signal("DELETE") == recording_id
    assert [name for name in world.storage.list_directory("/archive") if name.endswith(".rec")] == []
    assert client.error("StartPositionRequest", recording_id=recording_id)[0] == error_codes.UNKNOWN_RECORDING
    world.reopen()
    assert recorded(world, 1001, b"next") == recording_id + 1


def test_segments_are_purged_detached_deleted_and_attached(world: ArchiveWorld) -> None:
    client = world.connect()
    segment = 128 * 1024
    recording_id = recorded(world, 1001, *[bytes(992)] * 600)
    assert client.ok("DetachSegmentsRequest", recording_id=recording_id, new_start_position=segment) == 0
    assert client.ok("StartPositionRequest", recording_id=recording_id) == segment
    assert client.ok("AttachSegmentsRequest", recording_id=recording_id) == 1
    assert client.ok("StartPositionRequest", recording_id=recording_id) == 0
    assert client.ok("PurgeSegmentsRequest", recording_id=recording_id, new_start_position=segment) == 1
    assert client.signal("DELETE") == recording_id
    assert client.ok("DetachSegmentsRequest", recording_id=recording_id, new_start_position=2 * segment) == 0
    assert client.ok("DeleteDetachedSegmentsRequest", recording_id=recording_id) == 1
    assert client.signal("DELETE") == recording_id
    replay_id = client.replay(recording_id)
    assert client.error("TruncateRecordingRequest", recording_id=recording_id, position=2 * segment)[0] == 2
    assert client.error("PurgeRecordingRequest", recording_id=recording_id)[0] == 2
    client.ok("StopReplayRequest", replay_session_id=replay_id)


def test_a_recording_is_truncated_within_a_segment_at_its_base_and_not_at_all_within_a_frame(
    world: ArchiveWorld,
) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, *[bytes([7]) * 992] * 400)
    end = 400 * 1024
    whole = world.recorded(recording_id)

    def truncate(position: int) -> int:
        count = client.ok("TruncateRecordingRequest", recording_id=recording_id, position=position)
        assert client.signal("DELETE") == recording_id
        assert client.ok("StopPositionRequest", recording_id=recording_id) == position
        assert world.recorded(recording_id) == whole[:position]
        return count

    assert truncate(end) == 0
    for position in (end - 32, 1024 + 32):
        code, text = client.error("TruncateRecordingRequest", recording_id=recording_id, position=position)
        assert (code, "not aligned to a data header" in text) == (error_codes.GENERIC, True)
    assert client.ok("StopPositionRequest", recording_id=recording_id) == end
    assert world.recorded(recording_id) == whole
    assert truncate(2 * SEGMENT_LENGTH + 64 * 1024) == 1
    content = world.content(f"{recording_id}-{2 * SEGMENT_LENGTH}.rec")
    assert content[64 * 1024 :] == bytes(SEGMENT_LENGTH - 64 * 1024)
    assert truncate(SEGMENT_LENGTH) == 2
    assert truncate(0) == 1


def test_segments_are_migrated(world: ArchiveWorld) -> None:
    client = world.connect()
    source = recorded(world, 1001, *[bytes([1]) * 992] * 128, channel=f"{IPC}|init-term-id=0|term-id=0|term-offset=0")
    target = recorded(world, 1001, *[bytes([2]) * 992] * 30, channel=f"{IPC}|init-term-id=0|term-id=2|term-offset=0")
    frames = world.recorded(source) + world.recorded(target)
    assert client.ok("MigrateSegmentsRequest", src_recording_id=source, dst_recording_id=target) > 0
    assert client.signal("DELETE") == source
    assert client.ok("StartPositionRequest", recording_id=target) == 0
    assert world.recorded(target) == frames
    client.replay(target)
    subscriber = Subscriber(world)
    world.until(subscriber.has_ended)
    assert subscriber.content == frames
    assert client.error("MigrateSegmentsRequest", src_recording_id=99, dst_recording_id=target)[0] != 0


def test_a_channel_is_updated(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = recorded(world, 1001, b"one")
    channel = b"aeron:udp?endpoint=localhost:9999|alias=renamed|mtu=1408"
    assert client.ok("UpdateChannelRequest", recording_id=recording_id, channel=channel) == 0
    descriptor = world.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    assert descriptor.original_channel == channel.decode()
    assert descriptor.stripped_channel == "aeron:udp?endpoint=localhost:9999|alias=renamed"
    response = client.ask("UpdateChannelRequest", recording_id=99, channel=channel)
    assert (response["code"], response["relevant_id"]) == (RECORDING_UNKNOWN, 99)


def test_who_may_not_is_refused() -> None:
    world = ArchiveWorld(authorisation_service=DenyAll())
    client = world.connect()
    assert client.error("StartPositionRequest", recording_id=0)[0] == error_codes.UNAUTHORISED_ACTION


LOG, SNAPSHOT, OTHER = 100, 107, 1001
STRANGER = {"channel": NETWORK_CHANNEL, "response_channel": "aeron:udp?endpoint=localhost:7000"}


def cluster_world() -> tuple[ArchiveWorld, ArchiveRequests, ArchiveRequests]:
    """An archive that records a log, has a snapshot and another recording, its node's client, and a stranger."""
    world = ArchiveWorld(cluster_stream_ids=(LOG, SNAPSHOT))
    own, stranger = world.connect(), world.connect(**STRANGER)
    for recording_id, stream_id in enumerate((LOG, SNAPSHOT, OTHER)):
        stream = world.stream(stream_id)
        own.start_recording(stream_id)
        assert own.signal("START") == recording_id
        stream.fill(3 * SEGMENT_LENGTH)
        if stream_id != LOG:
            stream.close()
            assert own.signal("STOP") == recording_id
    return world, own, stranger


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("StopRecordingRequest", {"stream_id": LOG, "channel": IPC}),
        ("StopRecordingByIdentityRequest", {"recording_id": 0}),
        ("StopRecordingSubscriptionRequest", {"subscription_id": None}),
        ("StopAllReplaysRequest", {"recording_id": 0}),
        ("StopAllReplaysRequest", {"recording_id": -1}),
        *(
            (name, {"recording_id": recording_id, **position})
            for recording_id in (0, 1)
            for name, position in (
                ("TruncateRecordingRequest", {"position": 0}),
                ("PurgeRecordingRequest", {}),
                ("DetachSegmentsRequest", {"new_start_position": SEGMENT_LENGTH}),
                ("DeleteDetachedSegmentsRequest", {}),
                ("PurgeSegmentsRequest", {"new_start_position": SEGMENT_LENGTH}),
                ("AttachSegmentsRequest", {}),
                ("UpdateChannelRequest", {"channel": "aeron:ipc"}),
            )
        ),
        ("MigrateSegmentsRequest", {"src_recording_id": 2, "dst_recording_id": 1}),
        ("MigrateSegmentsRequest", {"src_recording_id": 1, "dst_recording_id": 2}),
        *(
            (
                "ExtendRecordingRequest2",
                {"recording_id": 1, "stream_id": each, "source_location": 0, "auto_stop": 0, "channel": IPC},
            )
            for each in (SNAPSHOT, OTHER)
        ),
        (
            "StartRecordingRequest2",
            {"stream_id": LOG, "source_location": 0, "auto_stop": 0, "channel": "aeron:udp?endpoint=localhost:1"},
        ),
    ],
)
def test_a_stranger_changes_nothing_of_a_cluster_s_recordings(name: str, fields: dict[str, Any]) -> None:
    world, own, stranger = cluster_world()
    if "subscription_id" in fields:
        [subscription] = world.conductor.recorder.by_key.values()
        fields = {"subscription_id": subscription.subscription_id}
    given = {each: value.encode() if isinstance(value, str) else value for each, value in fields.items()}
    before = world.disk.contents()
    code, text = stranger.error(name, **given)
    assert code == error_codes.UNAUTHORISED_ACTION
    assert "only clients in shared memory" in text
    assert world.disk.contents() == before
    assert world.store.is_active(0)
    assert own.ok("StartPositionRequest", recording_id=0) == 0


def test_a_stranger_stops_no_replay_of_the_cluster_but_its_own() -> None:
    world, own, stranger = cluster_world()
    replay_id = own.replay(1)
    code, text = stranger.error("StopReplayRequest", replay_session_id=replay_id)
    assert (code, "recording 1 is of the cluster's stream 107" in text) == (error_codes.UNAUTHORISED_ACTION, True)
    other_id = stranger.replay(1, replay_channel=b"aeron:udp?endpoint=localhost:7001")
    assert stranger.ok("StopReplayRequest", replay_session_id=other_id) == 0
    assert own.ok("StopReplayRequest", replay_session_id=replay_id) == 0
    assert world.texts() == []


def test_a_stranger_does_with_its_own_recordings_what_it_likes_and_the_node_s_client_with_all() -> None:
    _world, own, stranger = cluster_world()
    assert stranger.ok("PurgeRecordingRequest", recording_id=2) > 0
    assert own.ok("PurgeSegmentsRequest", recording_id=1, new_start_position=SEGMENT_LENGTH) == 1
    assert own.ok("StopRecordingByIdentityRequest", recording_id=0) == 1
    assert own.ok("PurgeRecordingRequest", recording_id=1) > 0


def test_a_stranger_cannot_have_the_archive_publish_in_shared_memory_where_it_could_pass_for_another() -> None:
    world, _own, stranger = cluster_world()
    fields = stranger.replay_fields(2, replay_channel=b"aeron:ipc", replay_stream_id=10)
    assert "replayed over the network, not on 'aeron:ipc'" in stranger.error("ReplayRequest", **fields)[1]
    for channels in (("aeron:ipc", ""), ("aeron:udp?endpoint=localhost:1", "aeron:ipc")):
        replicated = replicate_fields(channels[0], 2, replication_channel=channels[1].encode())
        assert "replicated over the network" in stranger.error("ReplicateRequest2", **replicated)[1]
    late = ArchiveRequests(world, **STRANGER)
    late.request_session(response_channel="aeron:ipc", response_stream_id=10)
    world.work(5)
    [text] = world.texts()
    assert "is answered over the network, not on 'aeron:ipc'" in text


def test_an_archive_of_no_cluster_lets_everybody_do_everything() -> None:
    world = ArchiveWorld()
    stranger = world.connect(**STRANGER)
    stream = world.stream(LOG)
    stranger.start_recording(LOG)
    assert stranger.signal("START") == 0
    stream.send(b"one")
    assert stranger.ok("StopRecordingByIdentityRequest", recording_id=0) == 1


def test_a_request_of_no_session_is_reported_and_nobody_is_answered(world: ArchiveWorld) -> None:
    client = world.connect()
    client.send("StartPositionRequest", recording_id=0, control_session_id=12345)
    world.work(3)
    assert client.take() == []
    [text] = world.texts()
    assert "unknown controlSessionId=12345" in text


def test_a_bad_channel_is_an_error_reply(world: ArchiveWorld) -> None:
    client = world.connect()
    code, text = client.error(
        "StartRecordingRequest2", stream_id=1, source_location=0, auto_stop=1, channel=b"aeron:nonsense"
    )
    assert (code, "nonsense" in text) == (error_codes.GENERIC, True)


def test_recordings_and_replays_outlive_the_session_that_asked_for_them(world: ArchiveWorld) -> None:
    replayed_id = recorded(world, 1002, *[bytes(900)] * 300)
    client = world.connect()
    stream = world.stream(1001)
    client.start_recording(1001)
    recording_id = client.signal("START")
    client.replay(replayed_id)
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() > 0)
    client.send("CloseSessionRequest")
    world.until(lambda: world.counter_value(CONTROL_SESSIONS) == 0)
    stream.send(b"later")
    stream.close()
    world.until(lambda: not world.store.is_active(recording_id))
    assert payloads(world.recorded(recording_id)) == [b"\xc0later"]
    world.until(subscriber.has_ended)
    assert subscriber.content == world.recorded(replayed_id)
    assert world.texts() == []


def test_a_close_stops_recordings_in_the_catalog_and_signals(world: ArchiveWorld) -> None:
    client = world.connect()
    stream = world.stream(1001)
    client.start_recording(1001)
    recording_id = client.signal("START")
    stream.send(b"one")
    world.until(lambda: world.counter_value(RECORDING_POSITION) == stream.position)
    world.conductor.close()
    assert world.store.catalog.stop_position(recording_id) == stream.position
    assert client.signals() in ([("STOP", recording_id, stream.position)], [])
    assert world.texts() == []


def test_clients_of_the_network_are_served(world: ArchiveWorld) -> None:
    publication = seam.add_publication(world.driver.connect("remote"), NETWORK_CHANNEL, 10)
    world.work()
    assert seam.is_connected(publication)


def _int32(replay_session_id: int) -> int:
    return (replay_session_id + 2**31) % 2**32 - 2**31


# What goes wrong leaves nothing behind.


def test_a_channel_that_the_driver_refuses_can_be_asked_for_again(world: ArchiveWorld) -> None:
    client = world.connect()
    open_resources = len(world.client.open_resources)
    for _ in range(3):
        world.driver.fail_next_add("subscription", 11, "no such interface")
        code, text = client.error(
            "StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=0, channel=IPC.encode()
        )
        assert (code, "no such interface" in text) == (error_codes.GENERIC, True)
        world.work(2)
        assert len(world.client.open_resources) == open_resources
    world.stream(1001)
    client.start_recording(1001)
    assert client.signal("START") == 0


def test_a_start_that_is_stopped_before_the_driver_has_answered_gets_its_reply(world: ArchiveWorld) -> None:
    client = world.connect()
    open_resources = len(world.client.open_resources)
    world.driver.delay_next_add("subscription", 5)
    world.stream(1001)
    start_id = client.send(
        "StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=1, channel=IPC.encode()
    )
    stop_id = client.send("StopRecordingRequest", stream_id=1001, channel=IPC.encode())
    assert client.response_to(stop_id)["code"] == 0
    response = client.response_to(start_id)
    assert (response["code"], response["relevant_id"] > 0) == (0, True)
    world.work(5)
    assert (client.take(), len(world.client.open_resources)) == ([], open_resources)
    assert world.store.catalog.next_recording_id == 0


def test_an_archive_that_closes_before_the_driver_has_answered_leaves_nothing(world: ArchiveWorld) -> None:
    client = world.connect()
    world.driver.delay_next_add("subscription", 100)
    client.send("StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=1, channel=IPC.encode())
    world.work(2)
    world.conductor.close()
    world.counters.close()
    assert (world.client.open_resources, world.texts()) == ([], [])


def test_the_driver_refuses_the_counter_of_a_recording(world: ArchiveWorld) -> None:
    client = world.connect()
    open_resources = len(world.client.open_resources)
    world.stream(1001)
    world.driver.fail_next_add("counter", 11, "no more counters")
    correlation_id = client.send(
        "StartRecordingRequest2", stream_id=1001, source_location=0, auto_stop=1, channel=IPC.encode()
    )
    world.work(8)
    [(_, ok), (_, error)] = client.take()
    assert (ok["code"], error["code"], error["correlation_id"]) == (0, 1, correlation_id)
    assert b"no more counters" in error["error_message"]
    assert len(world.client.open_resources) == open_resources
    assert not world.store.is_active(0)
    assert world.store.catalog.stop_position(0) == 0
    client.start_recording(1001)
    assert client.signal("START") == 1


def test_a_client_library_that_fails_to_send_ends_the_session_and_nothing_of_a_recording_stays(
    world: ArchiveWorld,
) -> None:
    client, other = world.connect(), world.connect(response_stream_id=21)
    open_resources = len(world.client.open_resources)
    streams = [world.stream(stream_id) for stream_id in (1001, 1002)]
    client.start_recording(1001)
    other.start_recording(1002)
    assert (client.signal("START"), other.signal("START")) == (0, 1)
    for stream in streams:
        stream.send(b"one")
    world.until(lambda: all(world.store.recorded_position(each) == 64 for each in (0, 1)))
    [channel] = [each.channel for each in world.driver.publications() if each.stream_id == 20]
    world.driver.publication_results(channel, 20, [AeronError("refused")])
    for stream in streams:
        stream.close()
    assert other.signal("STOP") == 1
    world.work(3)
    assert any("refused" in text for text in world.texts())
    assert [world.store.catalog.stop_position(each) for each in (0, 1)] == [64, 64]
    assert (world.counter(RECORDING_POSITION), world.counter_value(RECORDINGS)) == ([], 0)
    assert world.counter_value(CONTROL_SESSIONS) == 1
    assert len(world.client.open_resources) == open_resources - 2  # the session's publication and counter
