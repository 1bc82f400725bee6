"""What an archive must do by the checklist of its protocol, as its clients see it; numbers are those of the table."""

from __future__ import annotations

from typing import Any

import pytest

from container.archive import error_codes
from container.archive.server.archive_counters import recording_position_key
from container.archive.server.store.segment_writer import SegmentWriter
from container.testing.memory import transport_probe as seam
from container.testing.simulation.disk import SimulatedDisk
from tests.archive_streams import payloads
from tests.archive_world import ARCHIVE_ID, IPC, SEGMENT_LENGTH, ArchiveRequests, ArchiveWorld, Subscriber
from tests.control_world import MS

RECORDING_POSITION, CONTROL_SESSIONS, RECORDINGS, REPLAYS = 100, 102, 111, 112
UDP = "aeron:udp?endpoint=localhost:9001|term-length=64k|mtu=1408"


@pytest.fixture
def world() -> ArchiveWorld:
    return ArchiveWorld()


def active(world: ArchiveWorld, client: ArchiveRequests, *messages: bytes) -> tuple[int, Any]:
    """A recording in progress that has these messages, and its stream."""
    stream = world.stream(1001)
    client.start_recording(1001)
    recording_id = client.signal("START")
    stream.send(*messages)
    world.until(lambda: world.store.recorded_position(recording_id) == stream.position)
    return recording_id, stream


def stopped(world: ArchiveWorld, client: ArchiveRequests, *messages: bytes) -> int:
    recording_id, stream = active(world, client, *messages)
    stream.close()
    client.signal("STOP")
    return recording_id


def extend(client: ArchiveRequests, recording_id: int, **fields: Any) -> int:
    given: dict[str, Any] = {
        "recording_id": recording_id,
        "stream_id": 1001,
        "source_location": 0,
        "auto_stop": 1,
        "channel": b"aeron:ipc",
    }
    return client.send("ExtendRecordingRequest2", **given | fields)


def continued(world: ArchiveWorld, recording_id: int) -> Any:
    """A stream that goes on where a recording has stopped."""
    descriptor = world.store.catalog.descriptor(recording_id)
    assert descriptor is not None
    term_id = descriptor.initial_term_id + descriptor.stop_position // 65_536
    offset = descriptor.stop_position % 65_536
    return world.stream(1001, f"{IPC}|init-term-id={descriptor.initial_term_id}|term-id={term_id}|term-offset={offset}")


def open_count(world: ArchiveWorld) -> int:
    return len(world.client.open_resources)


# Recording


@pytest.mark.parametrize(
    ("channel", "is_local", "expected"),
    [
        (UDP, True, "aeron-spy:aeron:udp?endpoint=localhost:9001"),
        (UDP, False, "aeron:udp?endpoint=localhost:9001"),
        (IPC, True, "aeron:ipc"),
        (IPC, False, "aeron:ipc"),
    ],
)
def test_14_a_local_start_over_udp_spies_and_no_other(
    world: ArchiveWorld, channel: str, expected: str, *, is_local: bool
) -> None:
    client = world.connect()
    subscription_id = client.start_recording(1001, channel, local=is_local)
    [subscription] = [each for each in world.client.open_resources if each.registration_id == subscription_id]
    assert (subscription.channel, subscription.stream_id) == (expected, 1001)  # type: ignore[union-attr]
    if not is_local:
        stream = world.stream(1001, channel)
        assert client.signal("START") == 0
        [record] = world.counter(RECORDING_POSITION)
        assert record["value"] == 0
        stream.close()


def test_15_the_counter_of_a_recording_names_it_its_session_its_source_and_the_archive(world: ArchiveWorld) -> None:
    client = world.connect()
    stopped(world, client, b"another")
    recording_id, stream = active(world, client, b"one")
    [record] = world.counter(RECORDING_POSITION)
    key = recording_position_key(recording_id, stream.publication.session_id, "aeron:ipc", ARCHIVE_ID)
    assert record["key"][: len(key)] == key
    assert not any(record["key"][len(key) :])
    assert record["owner_id"] == seam.client_id(world.client)
    assert record["value"] == stream.position


def test_20_an_extension_sets_session_request_and_stop_and_keeps_the_rest(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, b"first")
    before = world.store.catalog.descriptor(recording_id)
    assert before is not None
    stream = continued(world, recording_id)
    correlation_id = extend(client, recording_id, channel=b"aeron:ipc?alias=later")
    assert client.signal("EXTEND") == recording_id
    after = world.store.catalog.descriptor(recording_id)
    assert after is not None
    changed = {
        "control_session_id": client.control_session_id,
        "correlation_id": correlation_id,
        "session_id": stream.publication.session_id,
        "stop_timestamp": -1,
        "stop_position": -1,
    }
    for name in (each for each in dir(before) if not each.startswith("_") and not callable(getattr(before, each))):
        assert getattr(after, name) == changed.get(name, getattr(before, name)), name


def test_21_what_is_not_recorded_cannot_be_stopped(world: ArchiveWorld) -> None:
    client = world.connect()
    assert client.error("StopRecordingSubscriptionRequest", subscription_id=99)[0] == error_codes.UNKNOWN_SUBSCRIPTION
    assert client.error("StopRecordingSubscriptionRequest", subscription_id=-1)[0] == error_codes.UNKNOWN_SUBSCRIPTION
    code, text = client.error("StopRecordingRequest", stream_id=1001, channel=IPC.encode())
    assert (code, "streamId=1001" in text) == (error_codes.UNKNOWN_SUBSCRIPTION, True)
    assert client.error("StopRecordingByIdentityRequest", recording_id=0)[0] == error_codes.UNKNOWN_RECORDING


def test_22_whoever_reads_of_the_stop_finds_it_in_the_catalog_and_the_counter_goes_after_it(
    world: ArchiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.connect()
    recording_id, stream = active(world, client, b"one")
    stop = world.store.stop
    is_counter_there: list[bool] = []

    def observed_stop(writer: SegmentWriter, now_ms: int) -> None:
        is_counter_there.append(bool(world.counter(RECORDING_POSITION)))
        stop(writer, now_ms)
        is_counter_there.append(bool(world.counter(RECORDING_POSITION)))

    monkeypatch.setattr(world.store, "stop", observed_stop)
    stream.close()
    stop_position = -1
    while stop_position == -1:
        was_there = bool(world.counter(RECORDING_POSITION))
        world.work()
        stop_position = world.store.catalog.stop_position(recording_id)
        assert was_there
    assert stop_position == 64
    assert is_counter_there == [True, True]
    assert world.counter(RECORDING_POSITION) == []
    assert client.signals() == [("STOP", recording_id, 64)]


def test_23_a_lost_image_ends_a_recording_where_it_was_read_to(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id, stream = active(world, client, b"one")
    world.driver.give_up_images(stream.publication.session_id)
    assert client.signal("STOP") == recording_id
    assert world.store.catalog.stop_position(recording_id) == 64


def test_24_two_publications_at_once_are_two_recordings(world: ArchiveWorld) -> None:
    client = world.connect()
    subscription_id = client.start_recording(1001, "aeron:ipc", auto_stop=False)
    streams = [world.stream(1001, f"{IPC}|session-id={number}") for number in range(2)]
    assert [client.signal("START") for _ in streams] == [0, 1]
    for number, stream in enumerate(streams):
        stream.send(b"%d" % number)
    world.until(lambda: [world.store.recorded_position(each) for each in (0, 1)] == [64, 64])
    streams[0].close()
    assert client.signal("STOP") == 0
    assert world.store.is_active(1)
    assert client.ok("StopRecordingSubscriptionRequest", subscription_id=subscription_id) == 0
    assert client.signal("STOP") == 1
    assert [payloads(world.recorded(each)) for each in (0, 1)] == [[b"\xc00"], [b"\xc01"]]


def test_29_low_space_refuses_starts_and_extensions_and_recordings_go_on() -> None:
    threshold = 1 << 20
    world = ArchiveWorld(disk=SimulatedDisk(capacity=threshold + 200_000), low_storage_space_threshold=threshold)
    client = world.connect()
    first = stopped(world, client, b"first")
    second, stream = active(world, client, b"second")
    stream.fill(300_000)
    code, text = client.error(
        "StartRecordingRequest2", stream_id=1, source_location=0, auto_stop=1, channel=b"aeron:ipc"
    )
    assert (code, text.partition(" <= ")[0]) == (error_codes.STORAGE_SPACE, f"low storage threshold={threshold}")
    response = client.response_to(extend(client, first, channel=b"aeron:ipc?session-id=1"))
    assert (response["code"], response["relevant_id"]) == (1, error_codes.STORAGE_SPACE)
    stream.send(b"goes on")
    world.until(lambda: world.store.recorded_position(second) == stream.position)


# Replay


def test_48_the_answer_comes_first_and_the_replay_waits_for_its_subscriber(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, b"one")
    client.replay(recording_id)
    world.wait(4_000, 100)
    assert client.take() == []
    subscriber = Subscriber(world)
    world.until(subscriber.has_ended)
    assert payloads(subscriber.content) == [b"\xc0one"]
    subscriber.client.close()
    client.replay(recording_id)
    world.wait(5_200, 100)
    [(_, error)] = client.take()
    assert (error["code"], error["relevant_id"]) == (1, error_codes.GENERIC)
    assert world.counter_value(REPLAYS) == 0


def test_49_a_replay_session_has_the_session_of_its_image_and_a_number_of_its_own(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, b"one")
    known = {each.session_id for each in world.driver.publications()}
    found = [client.replay(recording_id) for _ in range(5)]
    made = [each.session_id for each in world.driver.publications() if each.session_id not in known]
    assert [each & 0xFFFFFFFF for each in found] == [each & 0xFFFFFFFF for each in made]
    assert len({each >> 32 for each in found}) == 5
    assert all(each >> 32 > 0 for each in found)


def test_53_a_replay_of_what_is_recorded_ends_with_the_recording(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id, stream = active(world, client, b"one")
    client.replay(recording_id, position=stream.position, length=2**63 - 1)  # from its end on: as a catch-up asks
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() or subscriber.image is not None)
    stream.send(b"two")
    world.until(lambda: subscriber.read() or payloads(subscriber.content) == [b"\xc0two"])
    assert client.ok("StopRecordingByIdentityRequest", recording_id=recording_id) == 1
    world.until(subscriber.has_ended)
    assert payloads(subscriber.content) == [b"\xc0two"]


def test_54_a_bounded_replay_ends_where_its_counter_was_when_that_goes(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id, _stream = active(world, client, b"one", b"two", b"three")
    limit = seam.add_counter(client.client, 203, b"", "commit-pos")
    seam.set_counter(limit, 128)
    client.ok("BoundedReplayRequest", limit_counter_id=limit.counter_id, **client.replay_fields(recording_id))
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() or len(payloads(subscriber.content)) == 2)
    limit.close()
    world.until(subscriber.has_ended)
    assert payloads(subscriber.content) == [b"\xc0one", b"\xc0two"]


def test_55_all_that_there_is_of_nothing_is_one_error_and_no_replay(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id, stream = active(world, client)
    before = open_count(world)
    assert client.error("ReplayRequest", **client.replay_fields(recording_id, length=-2))[0] == (
        error_codes.EMPTY_RECORDING
    )
    world.wait(6_000, 100)
    assert (client.take(), open_count(world), world.counter_value(REPLAYS)) == ([], before, 0)
    stream.close()


def test_56_a_stopped_replay_is_gone_from_its_subscriber_and_an_unknown_one_is_no_error(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, *[bytes(900)] * 300)
    replays = [client.replay(recording_id, replay_stream_id=3000 + each) for each in range(3)]
    subscribers = [Subscriber(world, 3000 + each) for each in range(3)]
    world.until(lambda: all(each.read() > 0 for each in subscribers) or all(each.blocks for each in subscribers))
    assert client.ok("StopReplayRequest", replay_session_id=replays[0]) == 0
    world.until(subscribers[0].is_closed)
    assert not subscribers[1].is_closed()
    assert client.ok("StopAllReplaysRequest", recording_id=recording_id + 1) == 0
    assert not subscribers[1].is_closed()
    assert client.ok("StopAllReplaysRequest", recording_id=-1) == 0
    world.until(lambda: all(each.is_closed() for each in subscribers))
    for each in replays:
        assert client.ok("StopReplayRequest", replay_session_id=each) == 0
    assert client.ok("PurgeRecordingRequest", recording_id=recording_id) == 3


def test_a_stopped_replay_without_an_end_of_stream_leaves_what_was_sent_to_be_read(world: ArchiveWorld) -> None:
    """A leader that steps back stops its replays: services of a follower are still to join the log that came so."""
    client = world.connect()
    recording_id = stopped(world, client, *[bytes(900)] * 300)
    replay = client.replay(recording_id, replay_stream_id=3000, replay_channel=b"aeron:ipc?eos=false")
    subscriber = Subscriber(world, 3000)
    world.until(subscriber.read)
    before = len(subscriber.blocks)
    world.work(10)
    assert client.ok("StopReplayRequest", replay_session_id=replay) == 0
    world.work(10)
    assert subscriber.image is not None
    assert not seam.is_closed(subscriber.image)
    world.until(subscriber.has_ended)
    assert len(subscriber.blocks) > before
    assert client.ok("PurgeRecordingRequest", recording_id=recording_id) == 3


def test_58_the_request_says_what_the_publication_of_a_replay_is_like(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, b"one")

    def channel_of(stream_id: int, channel: bytes) -> set[str]:
        client.replay(recording_id, replay_stream_id=stream_id, replay_channel=channel)
        [found] = [each.channel for each in world.driver.publications() if each.stream_id == stream_id]
        return set(found.removeprefix("aeron:udp?").removeprefix("aeron:ipc?").split("|"))

    asked = {"endpoint=localhost:9002", "session-id=77", "alias=catch-up", "eos=false", "sparse=true", "linger=0"}
    assert asked - {"linger=0"} <= channel_of(3001, b"aeron:udp?" + "|".join(sorted(asked)).encode())
    assert {"linger=0", "linger=0ns"} & channel_of(3002, b"aeron:ipc?linger=0")
    assert {"linger=5s", "mtu=1408", "term-length=64k", "term-offset=0"} <= channel_of(3003, b"aeron:ipc")


def test_59_a_slow_subscriber_of_a_replay_delays_nobody() -> None:
    world = ArchiveWorld(window=8192)
    client = world.connect()
    recording_id = stopped(world, client, *[bytes(900)] * 100)
    client.replay(recording_id, file_io_max_length=8192)
    subscriber = Subscriber(world)
    world.until(lambda: subscriber.read() > 0)
    world.work(20)
    other = world.connect(response_stream_id=21)
    stream = world.stream(1002)
    other.start_recording(1002)
    second = other.signal("START")
    for _ in range(200):
        stream.send(bytes(500))
        world.work()
    world.until(lambda: world.store.recorded_position(second) == stream.position)
    for _ in range(20):
        correlation_id = other.send("StartPositionRequest", recording_id=recording_id)
        world.work(2)
        [(_, response)] = other.take()
        assert response["correlation_id"] == correlation_id
    assert world.counter_value(REPLAYS) == 1
    world.until(subscriber.has_ended)
    assert subscriber.content == world.recorded(recording_id)


def test_60_segments_that_are_replayed_stay_and_one_that_is_missing_is_an_error(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, *[bytes(992)] * 600)
    replay_id = client.replay(recording_id)
    for name in ("PurgeSegmentsRequest", "DetachSegmentsRequest"):
        client.error(name, recording_id=recording_id, new_start_position=SEGMENT_LENGTH)
    assert client.ok("StartPositionRequest", recording_id=recording_id) == 0
    client.ok("StopReplayRequest", replay_session_id=replay_id)
    world.storage.unlink(f"/archive/{recording_id}-{SEGMENT_LENGTH}.rec")
    correlation_id = client.send("ReplayRequest", **client.replay_fields(recording_id))
    assert client.response_to(correlation_id)["code"] == 0
    subscriber = Subscriber(world)
    world.until(subscriber.is_closed)
    response = client.response_to(correlation_id)
    assert (response["code"], response["relevant_id"]) == (1, error_codes.GENERIC)
    assert client.ok("ArchiveIdRequest") == ARCHIVE_ID


# Other requests


def test_63_positions_of_an_active_recording(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id, stream = active(world, client, b"one", b"two")
    assert client.ok("StartPositionRequest", recording_id=recording_id) == 0
    assert client.ok("StopPositionRequest", recording_id=recording_id) == -1
    assert client.ok("RecordingPositionRequest", recording_id=recording_id) == stream.position == 128
    assert client.ok("MaxRecordedPositionRequest", recording_id=recording_id) == 128
    assert client.error("TruncateRecordingRequest", recording_id=recording_id, position=0)[0] == 2
    assert client.error("PurgeRecordingRequest", recording_id=recording_id)[0] == 2


def test_64_a_truncation_answers_then_signals_and_one_within_a_frame_changes_nothing(world: ArchiveWorld) -> None:
    client = world.connect()
    recording_id = stopped(world, client, *[bytes([each]) * 992 for each in range(200)])
    whole, end = world.recorded(recording_id), 200 * 1024

    def truncate(position: int) -> list[tuple[str, Any]]:
        client.send("TruncateRecordingRequest", recording_id=recording_id, position=position)
        world.work(6)
        return [(name, each.get("relevant_id", each.get("signal"))) for name, each in client.take()]

    assert client.error("TruncateRecordingRequest", recording_id=recording_id, position=1024 + 32)[0] == 0
    assert client.error("TruncateRecordingRequest", recording_id=recording_id, position=end + 1024)[0] == 16
    assert client.error("TruncateRecordingRequest", recording_id=recording_id, position=5)[0] == 16
    assert world.recorded(recording_id) == whole
    ok, delete = "ControlResponse", "RecordingSignalEvent"
    assert truncate(end) == [(ok, 0), (delete, 6)]
    assert truncate(SEGMENT_LENGTH + 1024) == [(ok, 0), (delete, 6)]
    assert world.recorded(recording_id) == whole[: SEGMENT_LENGTH + 1024]
    assert truncate(SEGMENT_LENGTH) == [(ok, 1), (delete, 6)]
    assert truncate(1024) == [(ok, 0), (delete, 6)]
    content = world.disk.contents()[f"/archive/{recording_id}-0.rec"]
    assert content is not None
    assert not any(content[1024:])
    assert truncate(0) == [(ok, 1), (delete, 6)]
    assert client.ok("StopPositionRequest", recording_id=recording_id) == 0


def test_66_segments_move_to_the_recording_that_continues(world: ArchiveWorld) -> None:
    client = world.connect()
    source = stopped(world, client, *[bytes(992)] * (SEGMENT_LENGTH // 1024))
    stream = continued(world, source)
    client.start_recording(1001)
    target = client.signal("START")
    stream.send(b"goes on")
    stream.close()
    client.signal("STOP")
    count = client.ok("MigrateSegmentsRequest", src_recording_id=source, dst_recording_id=target)
    assert (count, client.signal("DELETE")) == (1, source)
    assert client.ok("StartPositionRequest", recording_id=target) == 0
    assert client.ok("StopPositionRequest", recording_id=source) == 0
    assert len(payloads(world.recorded(target))) == SEGMENT_LENGTH // 1024 + 1


# Nothing is left


def test_78_many_recordings_replays_and_sessions_leave_nothing_open(world: ArchiveWorld) -> None:
    world.connect()
    before, counters = open_count(world), len(seam_counters(world))
    for number in range(300):
        client = world.connect(response_stream_id=21)
        recording_id, stream = active(world, client, b"%d" % number)
        replay_id = client.replay(recording_id, length=64 if number % 3 else -1)
        subscriber = Subscriber(world)
        world.until(lambda subscriber=subscriber: subscriber.read() > 0)  # type: ignore[misc]
        if number % 3 == 0:
            client.ok("StopReplayRequest", replay_session_id=replay_id)
        client.send("ListRecordingRequest", recording_id=recording_id)
        stream.close()
        client.signal("STOP")
        client.send("CloseSessionRequest")
        subscriber.client.close()
        world.work(3)
        client.client.close()
        stream.client.close()
        world.clock.advance(2_000 * MS)  # the places of counters can be used again
    world.clock.advance(10_000 * MS)
    world.work(3)
    assert (open_count(world), len(seam_counters(world))) == (before, counters)
    assert [world.counter_value(each) for each in (CONTROL_SESSIONS, RECORDINGS, REPLAYS)] == [1, 0, 0]
    assert world.texts() == []
    assert len(world.conductor.recorder.by_key) == 0


def seam_counters(world: ArchiveWorld) -> list[int]:
    return [each["type_id"] for type_id in range(100, 114) for each in world.counter(type_id)]
