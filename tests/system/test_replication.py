"""Replications between an archive of Java's and ours, both ways, over the driver of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_snapshot_store import ArchiveSnapshotStore
from container.files.catalog import RecordingDescriptor, read_catalog
from container.files.segments import segment_file_name
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from container.testing.processes.local_cluster import Node
from tests.archive_streams import HEADER, HEADER_LENGTH, PADDING, aligned, with_ids
from tests.replication_world import Archive, DriverWorld, Requests, Stream, recorded

type NodeFactory = Callable[..., Node]

CONTEXT = ArchiveClientContext.for_service(0, 0, client_name="replication-test")


class JavaWorld(DriverWorld):
    """The driver of a node, whose archive is Java's; archives that are made here are ours."""

    def __init__(self, node: Node) -> None:
        super().__init__(cast(Any, node))
        self.node = node
        self.java_channel = f"aeron:udp?endpoint={node.endpoints.archive}"

    def requests_to_java(self) -> Requests:
        settings = SimpleNamespace(local_control_stream_id=10)
        requests = Requests(self, cast(Archive, SimpleNamespace(settings=settings, host_number=0)))
        requests.open()
        return requests

    def java_descriptor(self, recording_id: int) -> RecordingDescriptor:
        [found] = [each for each in read_catalog(self.node.archive_dir) if each.recording_id == recording_id]
        return found

    def java_content(self, recording_id: int) -> bytes:
        """The frames of a stopped recording of Java's, as Archive.content() has them."""
        descriptor = self.java_descriptor(recording_id)
        assert descriptor.start_position == 0
        assert descriptor.stop_position < descriptor.segment_file_length
        segment = (Path(self.node.archive_dir) / segment_file_name(recording_id, 0)).read_bytes()
        content = bytearray()
        position = 0
        while position < descriptor.stop_position:
            length, _, _, kind, *_ = HEADER.unpack_from(segment, position)
            content += segment[position : position + (HEADER_LENGTH if kind == PADDING else aligned(length))]
            position += aligned(length)
        return with_ids(content)

    def recorded_by_java(self, length: int, *, is_stopped: bool = True) -> tuple[int, Any]:
        """A recording of Java's archive, which is 1 MiB per term, and its writer."""
        client = self.connect(0)
        writer: Any = ArchiveSnapshotStore(client, CONTEXT).create(SteppingIdleStrategy(self.turn, max_idles=10**9))
        self.send(client, writer, length)
        if is_stopped:
            writer.close()
            self.until(lambda: self.java_descriptor(writer.recording_id).stop_position >= length)
        return writer.recording_id, writer

    def send(self, client: Any, writer: Any, length: int) -> None:
        end = seam.position(writer.publication) + length
        while seam.position(writer.publication) < end:
            message = bytes([1 + seam.position(writer.publication) // 32 % 250]) * 3000
            self.until(lambda message=message: seam.offer(writer.publication, message) > 0)  # type: ignore[misc]
        self.until(lambda: seam.is_complete(writer))


@pytest.fixture
def world(node: NodeFactory) -> Iterator[JavaWorld]:
    started = node().start()
    started.await_started()
    world = JavaWorld(started)
    yield world
    world.close()


def test_a_recording_of_javas_is_copied_and_goes_on(world: JavaWorld) -> None:
    source_id, _ = world.recorded_by_java(2_500_000)
    target = world.archive(1, segment_file_length=1 << 20)
    requests = target.requests()
    part = requests.replicate(world.java_channel, source_id, stop_position=1_200_000)
    assert part.names()[:1] in ([], ["REPLICATE"])
    assert [event[0] for event in part.finish()] == ["REPLICATE", "OK", "EXTEND", "REPLICATE_END", "STOP"]
    copied = target.range(0)[1]
    assert 1_200_000 <= copied < 1_205_000
    stop = world.java_descriptor(source_id).stop_position
    rest = requests.replicate(world.java_channel, source_id, dst_recording_id=0)
    assert rest.finish() == [
        ("OK",),
        ("EXTEND", 0, copied, True),
        ("SYNC", 0, stop, True),
        ("REPLICATE_END", 0, -1, False),
        ("STOP", 0, stop, True),
    ]
    assert target.content(0) == world.java_content(source_id)
    of_source, copy = world.java_descriptor(source_id), target.descriptor(0)
    for name in (
        *("start_position", "start_timestamp", "initial_term_id", "term_buffer_length", "mtu_length"),
        *("segment_file_length", "stream_id", "stripped_channel", "original_channel", "source_identity"),
    ):
        assert getattr(copy, name) == getattr(of_source, name), name
    again = requests.replicate(world.java_channel, source_id, dst_recording_id=0)
    assert again.finish(stops=False) == [("SYNC", 0, stop, False), ("REPLICATE_END", 0, -1, False)]
    assert world.texts() == []


def test_java_reports_what_it_does_not_have(world: JavaWorld) -> None:
    replication = world.archive(1).requests().replicate(world.java_channel, 1000)
    assert replication.finish(stops=False) == [
        ("ERROR", 5, "unknown src recording id 1000"),
        ("REPLICATE_END", -1, -1, False),
    ]


def test_a_recording_that_java_writes_is_followed_until_it_is_stopped(world: JavaWorld) -> None:
    source_id, writer = world.recorded_by_java(100_000, is_stopped=False)
    target = world.archive(1)
    requests = target.requests()
    replication = requests.replicate(world.java_channel, source_id)
    replication.until("EXTEND")
    world.send(world.clients[0], writer, 400_000)
    end = seam.position(writer.publication)
    world.until(lambda: target.store.recorded_position(0) == end)
    requests.ok("StopReplicationRequest", replication_id=replication.replication_id)
    assert [event[0] for event in replication.finish()] == ["REPLICATE", "OK", "EXTEND", "REPLICATE_END", "STOP"]
    writer.close()
    world.until(lambda: world.java_descriptor(source_id).stop_position == end)
    assert target.content(0) == world.java_content(source_id)


def test_java_copies_a_recording_of_ours(world: JavaWorld) -> None:
    source = world.archive(0, segment_file_length=1 << 20)
    source_id = recorded(source, 1_500_000)
    requests = world.requests_to_java()
    replication = requests.replicate(source, source_id)
    events = replication.finish()
    assert [event[0] for event in events] == ["REPLICATE", "OK", "EXTEND", "SYNC", "REPLICATE_END", "STOP"]
    copy = world.java_descriptor(replication.recording_id)
    assert copy.stop_position == source.range(source_id)[1]
    assert copy.segment_file_length == 1 << 20
    assert world.texts() == []


def test_java_follows_a_recording_of_ours(world: JavaWorld) -> None:
    source = world.archive(0)
    stream = Stream(source)
    ours = source.requests()
    ours.start_recording()
    stream.fill(50_000)
    requests = world.requests_to_java()
    replication = requests.replicate(source, 0)
    replication.until("EXTEND")
    stream.fill(300_000)
    end = stream.position
    stream.close()
    replication.finish()
    copy = world.java_descriptor(replication.recording_id)
    assert copy.stop_position == end
