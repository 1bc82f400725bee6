"""A member copies the leader's log and cuts its own off: its archive is Java's or ours, and so is the leader's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from container.testing.memory import transport_probe as seam
from container.testing.processes.local_cluster import Node
from tests.log_copy_world import LogMember, member_of, terms
from tests.replication_world import Requests, recorded
from tests.system.test_replication import JavaWorld

type NodeFactory = Callable[..., Node]

SECOND = 1_000_000_000
MESSAGE = 2 * 1408 + 288  # the frames of one that is recorded by Java's archive


@pytest.fixture
def world(node: NodeFactory) -> Iterator[JavaWorld]:
    started = node().start()
    started.await_started()
    world = JavaWorld(started)
    yield world
    world.close()


def replay_to_nobody(world: JavaWorld, requests: Requests, recording_id: int) -> None:
    """A replay that goes on for as long as nobody ends it."""
    client = world.connect(0)
    channel = f"aeron:udp?endpoint=localhost:{world.port(0)}"
    subscription = seam.add_subscription(client, channel, 9)
    requests.ok(
        "ReplayRequest", recording_id=recording_id, position=0, length=-1, replay_stream_id=9, file_io_max_length=-1,
        replay_token=-1, replay_channel=channel.encode(),
    )  # fmt: skip

    def is_replayed() -> bool:
        seam.invoke(client)
        return seam.image(subscription) is not None

    world.until(is_replayed)


def test_our_archive_copies_the_log_of_a_leader_with_javas(world: JavaWorld) -> None:
    source_id, _ = world.recorded_by_java(1_500_000)
    end = world.java_descriptor(source_id).stop_position
    target = world.archive(1, segment_file_length=1 << 20)
    member = member_of(target, timeout_ns=10 * SECOND)
    address = world.node.endpoints.archive
    part = 300 * MESSAGE
    assert member.copy(address, source_id, part).position == target.range(0)[1] == part
    assert member.copy(address, source_id, end).position == end
    assert target.content(0) == world.java_content(source_id)
    member.recording_log.append_term(0, 0, 0, 1)
    replay_to_nobody(world, target.requests(), 0)
    member.truncate(0, 0, part)
    assert (target.range(0), terms(member.recording_log)) == ((0, part), [(0, 0, part)])
    assert member.copy(address, source_id, end).position == end
    assert target.content(0) == world.java_content(source_id)
    assert member.errors == []
    assert world.texts() == []


def test_javas_archive_copies_the_log_of_a_leader_with_ours(world: JavaWorld) -> None:
    source = world.archive(0, segment_file_length=1 << 20)
    source_id = recorded(source, 600 * 1024)
    end, part = source.range(source_id)[1], 300 * 1024
    member = LogMember(
        world, 0, control_stream_id=10, replication_channel=f"aeron:udp?endpoint=localhost:{world.port(0)}",
        timeout_ns=10 * SECOND,
    )  # fmt: skip
    copy = member.copy(source, source_id, part)
    recording_id = copy.recording_id
    assert copy.position == world.java_descriptor(recording_id).stop_position == part
    assert member.copy(source, source_id, end).position == end
    assert world.java_descriptor(recording_id).stop_position == end
    assert world.java_content(recording_id) == source.content(source_id)
    member.recording_log.append_term(recording_id, 0, 0, 1)
    replay_to_nobody(world, world.requests_to_java(), recording_id)
    member.truncate(recording_id, 0, part)
    assert world.java_descriptor(recording_id).stop_position == part
    assert terms(member.recording_log) == [(0, 0, part)]
    assert member.copy(source, source_id, end).position == end
    assert world.java_content(recording_id) == source.content(source_id)
    assert member.errors == []


def test_what_a_crash_has_left_in_javas_archive_is_deleted(world: JavaWorld) -> None:
    source = world.archive(0, segment_file_length=1 << 20)
    source_id = recorded(source, 600 * 1024)
    end = source.range(source_id)[1]
    channel = f"aeron:udp?endpoint=localhost:{world.port(0)}"
    dead = LogMember(world, 0, control_stream_id=10, replication_channel=channel, timeout_ns=10 * SECOND)
    recording_id = dead.copy(source, source_id, end).recording_id
    assert world.java_content(recording_id) == source.content(source_id)
    dead.crash()
    life = LogMember(
        world, 0, control_stream_id=10, replication_channel=channel, timeout_ns=10 * SECOND, disk=dead.disk
    )
    assert life.start() == -1
    assert world.requests_to_java().error("StopPositionRequest", recording_id=recording_id)[0] == 5
    assert life.errors == []
