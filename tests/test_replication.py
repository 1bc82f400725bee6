"""Replications between two archives, over memory, a simulated network and a real driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from container.aeron import MediaDriver
from tests.replication_world import IPC, MS, DriverWorld, MemoryWorld, NetworkWorld, Stream, World, recorded, recording


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        publication_linger_timeout_ns=50_000_000,
        image_liveness_timeout_ns=500_000_000,
        timer_interval_ns=20_000_000,
        term_buffer_length=64 * 1024,
    ) as driver:
        yield driver


WORLDS = ["memory", "network", "driver"]


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world: World
    if request.param == "driver":
        world = DriverWorld(request.getfixturevalue("driver"))
    else:
        world = MemoryWorld() if request.param == "memory" else NetworkWorld()
    yield world
    world.close()


def test_a_recording_that_has_stopped_is_copied(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, 200_000)
    requests = target.requests()
    replication = requests.replicate(source, source_id)
    events = replication.finish()
    stop = source.range(source_id)[1]
    assert events == [
        ("REPLICATE", 0, 0, False),
        ("OK",),
        ("EXTEND", 0, 0, True),
        ("SYNC", 0, stop, True),
        ("REPLICATE_END", 0, -1, False),
        ("STOP", 0, stop, True),
    ]
    assert target.range(0) == (0, stop)
    assert target.content(0) == source.content(source_id)
    assert world.texts() == []


def test_the_copy_takes_the_parameters_and_texts_of_the_source(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, channel="aeron:ipc?term-length=128k|mtu=1408|init-term-id=7|term-id=9|term-offset=64")
    replication = target.requests().replicate(source, source_id)
    replication.finish()
    of_source, copy = source.descriptor(source_id), target.descriptor(replication.recording_id)
    assert (copy.start_position, copy.initial_term_id, copy.term_buffer_length) == (2 * 131_072 + 64, 7, 131_072)
    assert copy == replace(
        of_source,
        recording_id=0,
        control_session_id=replication.requests.control_session_id,
        correlation_id=replication.replication_id,
        stop_timestamp=copy.stop_timestamp,
    )


def test_a_copy_goes_on_where_it_ends(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, 200_000)
    stop = source.range(source_id)[1]
    requests = target.requests()
    part = requests.replicate(source, source_id, stop_position=100 * 1024)
    events = part.finish()
    assert [event[0] for event in events] == ["REPLICATE", "OK", "EXTEND", "REPLICATE_END", "STOP"]
    copied = target.range(0)[1]
    assert 100 * 1024 <= copied < 102 * 1024
    rest = requests.replicate(source, source_id, dst_recording_id=0, replication_session_id=4711)
    assert rest.finish() == [
        ("OK",),
        ("EXTEND", 0, copied, True),
        ("SYNC", 0, stop, True),
        ("REPLICATE_END", 0, -1, False),
        ("STOP", 0, stop, True),
    ]
    assert target.content(0) == source.content(source_id)
    assert target.descriptor(0).session_id == 4711


def test_nothing_is_copied_that_is_there(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source)
    stop = source.range(source_id)[1]
    requests = target.requests()
    requests.replicate(source, source_id).finish()
    again = requests.replicate(source, source_id, dst_recording_id=0)
    assert again.finish(stops=False) == [("SYNC", 0, stop, False), ("REPLICATE_END", 0, -1, False)]


def test_an_empty_recording_is_copied_as_its_entry(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, 0)
    replication = target.requests().replicate(source, source_id)
    assert replication.finish(stops=False) == [
        ("REPLICATE", 0, 0, False),
        ("SYNC", 0, 0, False),
        ("REPLICATE_END", 0, -1, False),
    ]
    assert target.range(0) == (0, 0)


def test_an_empty_recording_is_replaced(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    first, second = recorded(source, 0), recorded(source, 5_000, stream_id=77)
    requests = target.requests()
    requests.replicate(source, first).finish(stops=False)
    replication = requests.replicate(source, second, dst_recording_id=0)
    stop = source.range(second)[1]
    assert replication.names()[:1] != ["REPLICATE"]
    # Where nothing takes time, the end of the stream is there as soon as its last byte.
    assert sorted(event[0] for event in replication.finish()) == ["EXTEND", "OK", "REPLICATE_END", "STOP", "SYNC"]
    assert (target.descriptor(0).stream_id, target.range(0)) == (77, (0, stop))
    assert target.content(0) == source.content(second)


def test_an_empty_recording_is_replaced_by_one_that_begins_elsewhere(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    first = recorded(source, 0)
    later = recorded(source, 5_000, channel=f"{IPC}|init-term-id=7|term-id=9|term-offset=64", stream_id=77)
    requests = target.requests()
    requests.replicate(source, first).finish(stops=False)
    replication = requests.replicate(source, later, dst_recording_id=0)
    assert ("EXTEND", 0, 2 * 65_536 + 64, True) in replication.finish()
    assert target.range(0) == source.range(later)
    assert target.content(0) == source.content(later)


def test_a_recording_that_is_active_is_followed_to_its_end(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source)
    replication = target.requests().replicate(source, source_id)
    world.until(lambda: target.store.catalog.has(0) and target.store.recorded_position(0) == stream.position)
    stream.fill(150_000)
    world.until(lambda: target.store.recorded_position(0) == stream.position)
    end = stream.position
    stream.close()
    # Without a stop position of the source at the beginning there is no SYNC.
    assert [event[0] for event in replication.finish()] == ["REPLICATE", "OK", "EXTEND", "STOP", "REPLICATE_END"]
    assert target.range(0) == (0, end)
    assert target.content(0) == source.content(source_id)


def test_a_replication_is_stopped(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id, stream = recording(source)
    requests = target.requests()
    replication = requests.replicate(source, source_id)
    world.until(lambda: target.store.catalog.has(0) and target.store.recorded_position(0) == stream.position)
    assert requests.ok("StopReplicationRequest", replication_id=replication.replication_id) == 0
    assert [event[0] for event in replication.finish()] == ["REPLICATE", "OK", "EXTEND", "REPLICATE_END", "STOP"]
    assert requests.error("StopReplicationRequest", replication_id=replication.replication_id)[0] == 12
    assert target.range(0) == (0, stream.position)


def test_a_recording_that_goes_on_meanwhile_is_not_taken_for_a_copy(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id, local_id = recording(source)[0], recorded(target)
    replication = target.requests().replicate(source, source_id, dst_recording_id=local_id)
    writer = target.store.extend_recording(
        local_id, target.range(local_id)[1], control_session_id=1, correlation_id=2, session_id=3
    )
    # Neither has a stop position: they are not the same for that.
    assert replication.finish(stops=False) == [
        ("ERROR", 2, f"cannot replicate to active recording {local_id}"),
        ("REPLICATE_END", local_id, -1, False),
    ]
    target.store.stop(writer, 0)


def test_an_unknown_recording_is_reported(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    requests = target.requests()
    replication = requests.replicate(source, 12)
    assert replication.finish(stops=False) == [
        ("ERROR", 5, "unknown src recording id 12"),
        ("REPLICATE_END", -1, -1, False),
    ]
    assert target.store.catalog.recording_ids() == []


def test_a_source_that_is_not_there_is_reported(world: World) -> None:
    target = world.archive(1, message_timeout_ns=300 * MS)
    channel = f"aeron:udp?endpoint={world.hosts[0]}:{world.port(0)}"
    replication = target.requests().replicate(channel, 0)
    [error, end] = replication.finish(stops=False)
    assert error[:2] == ("ERROR", 14)
    assert error[2].startswith(
        "Replication connection failed=waited 0.3 s for an archive to listen on control channel "
    )
    assert end == ("REPLICATE_END", -1, -1, False)


def test_several_recordings_are_copied_at_once(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    ids = [recorded(source, 20_000 * (1 + number), stream_id=100 + number) for number in range(4)]
    replications = [target.requests().replicate(source, source_id) for source_id in ids]
    for source_id, replication in zip(ids, replications, strict=True):
        assert "SYNC" in [event[0] for event in replication.finish()]
        assert target.content(replication.recording_id) == source.content(source_id)


def test_a_replication_outlives_its_control_session(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, 300_000)
    requests = target.requests()
    requests.replicate(source, source_id)
    requests.client.close()
    world.until(lambda: target.store.catalog.has(0) and target.range(0) == source.range(source_id))
    assert target.content(0) == source.content(source_id)


@pytest.mark.parametrize("world", WORLDS[1:], indirect=True)
def test_tags_name_the_subscription(world: World) -> None:
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, 100_000)
    replication = target.requests().replicate(source, source_id, channel_tag_id=501, subscription_tag_id=502)
    assert "SYNC" in [event[0] for event in replication.finish()]
    assert target.content(0) == source.content(source_id)


def test_a_live_stream_is_merged_into(driver: MediaDriver) -> None:
    world = DriverWorld(driver)
    source, target = world.archive(0), world.archive(1)
    control = f"control={world.hosts[0]}:{world.port(0)}|control-mode=dynamic"
    channel = f"aeron:udp?{control}|term-length=64k|mtu=1408|fc=min"
    spied = f"aeron:udp?{control}"
    stream = Stream(source, channel=f"{channel}|ssc=true")
    source.requests().start_recording(channel=spied)
    stream.fill(150_000)
    replication = target.requests().replicate(
        source, 0, live_destination=f"aeron:udp?endpoint={world.hosts[1]}:{world.port(1)}|{control}".encode()
    )
    world.until(lambda: stream.offer(b"x" * 100) and "REPLICATE_END" in replication.names())
    events = replication.events()
    assert [event[0] for event in events] == ["REPLICATE", "OK", "EXTEND", "MERGE", "REPLICATE_END"]
    stream.fill(100_000)
    world.until(lambda: target.store.recorded_position(0) == stream.position)
    assert "STOP" not in replication.names(), "the recording goes on"
    stream.close()
    world.until(lambda: "STOP" in replication.names())
    world.until(lambda: not source.store.is_active(0))
    assert target.content(0) == source.content(0)
    world.close()


def test_the_source_answers_on_the_connection_of_the_one_who_asks(driver: MediaDriver) -> None:
    world = DriverWorld(driver)
    source, target = world.archive(0), world.archive(1)
    source_id = recorded(source, 100_000)
    response = f"aeron:udp?control-mode=response|control=localhost:{world.port(0)}".encode()
    requests = target.requests()
    for fields in ({"replication_channel": response}, {"src_response_channel": response}):
        replication = requests.replicate(source, source_id, **fields)
        assert "SYNC" in [event[0] for event in replication.finish()]
        assert target.content(replication.recording_id) == source.content(source_id)
    assert world.texts() == []
    world.close()
