"""The archive client and the snapshot store against a real archive."""

from __future__ import annotations

import random
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from container.aeron import AeronClient
from container.api import ADMIN_ACTION, BACK_PRESSURED
from container.archive.client.aeron_archive import AeronArchive
from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_snapshot_store import ArchiveSnapshotStore, ArchiveSnapshotWriter
from container.errors import ArchiveError, ClusterError, SnapshotError
from container.testing.memory import transport_probe as seam
from container.testing.processes.local_cluster import Node
from container.testing.processes.process import wait_until
from container.transport.fragment_assembler import FragmentAssembler
from container.transport.idle_strategy import BackoffIdleStrategy
from container.transport.streams import Image
from tests.limits import LIMIT_S

type NodeFactory = Callable[..., Node]

RECORDING_POSITION_TYPE_ID = 100
CONTEXT = ArchiveClientContext.for_service(0, 0, client_name="archive-test")


@pytest.fixture
def archive(node: NodeFactory) -> Node:
    """A node whose consensus module waits for its service; its archive works."""
    started = node().start()
    started.await_started()
    return started


@pytest.fixture
def client(archive: Node) -> Iterator[AeronClient]:
    with AeronClient(archive.aeron_dir, "archive-test") as opened:
        yield opened


def send(writer: ArchiveSnapshotWriter, client: AeronClient, message: bytes) -> None:
    def offered() -> bool:
        seam.invoke(client)
        result = seam.offer(writer.publication, message)
        assert result > 0 or result in (BACK_PRESSURED, ADMIN_ACTION), seam.result_name(result)
        return result > 0

    wait_until(offered, LIMIT_S, "room in the snapshot publication")


def await_complete(writer: ArchiveSnapshotWriter, client: AeronClient) -> None:
    def complete() -> bool:
        seam.invoke(client)
        writer.check()
        return writer.is_complete()

    wait_until(complete, LIMIT_S, "the archive to record all that was published")


def read_all(image: Image, client: AeronClient, check: Callable[[], object]) -> list[bytes]:
    collecting = seam.CollectingHandler()
    assembler = FragmentAssembler(collecting)

    def at_end() -> bool:
        seam.invoke(client)
        while seam.poll_with(image, assembler, 10) > 0:
            pass
        check()
        return seam.is_end_of_stream(image)

    wait_until(at_end, LIMIT_S, "the end of the replay")
    return [data for data, _ in collecting.messages]


def test_a_snapshot_is_recorded_and_replayed(archive: Node, client: AeronClient) -> None:
    idle = BackoffIdleStrategy()
    store = ArchiveSnapshotStore(client, CONTEXT)
    # Frames of all kinds, and more than a term of 1 MiB.
    messages = [b"begin", b"", bytes(range(256)) * 16, *(bytes([n]) * 100_000 for n in range(20)), b"end"]
    writer = store.create(idle)
    for message in messages:
        send(writer, client, message)
    await_complete(writer, client)
    writer.close()
    archive.wait_until(lambda: archive.counter(RECORDING_POSITION_TYPE_ID) is None, LIMIT_S, "the recording to stop")

    reader = store.open(writer.recording_id, idle)
    assert reader.image.join_position == 0
    assert read_all(reader.image, client, reader.check) == messages
    reader.close()

    second = store.create(idle)
    assert second.recording_id != writer.recording_id
    second.close()


def recorded(archive: Node, client: AeronClient, messages: Iterable[bytes]) -> int:
    """A recording of these messages, which has stopped."""
    writer = ArchiveSnapshotStore(client, CONTEXT).create(BackoffIdleStrategy())
    for message in messages:
        send(writer, client, message)
    await_complete(writer, client)
    writer.close()
    archive.wait_until(lambda: archive.counter(RECORDING_POSITION_TYPE_ID) is None, LIMIT_S, "the recording to stop")
    return writer.recording_id


def numbered(count: int) -> list[bytes]:
    """Messages of one frame each, of 64 bytes: all begin at a multiple of 96."""
    return [b"%064d" % number for number in range(count)]


@pytest.mark.parametrize("pause_s", [0.0, 0.000_2], ids=["fast", "slow"])
@pytest.mark.parametrize(
    "damage",
    [
        "header zeroed",
        "length zeroed",
        "file cut",
        # The archive fails at it again and again, and neither goes on nor gives up.
        pytest.param("length too long", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_snapshot_never_ends_normally(
    archive: Node, client: AeronClient, damage: str, pause_s: float
) -> None:
    messages = numbered(30_000)
    recording_id = recorded(archive, client, messages)
    path = archive.archive_dir / f"{recording_id}-0.rec"
    offset = path.read_bytes().index(messages[14_001]) - 32
    with path.open("r+b") as file:
        file.seek(offset)
        if damage == "file cut":
            file.truncate(offset)
        else:
            file.write({"header zeroed": bytes(32), "length zeroed": bytes(4)}.get(damage, b"\xff\xff\xff\x7f"))

    reader = ArchiveSnapshotStore(client, CONTEXT).open(recording_id, BackoffIdleStrategy())
    image = seam.snapshot_image(reader, client, BackoffIdleStrategy())
    received: list[bytes] = []
    begin = time.monotonic()

    def read() -> None:
        for message in image:
            received.append(message)
            if pause_s and len(received) % 20 == 0:
                threading.Event().wait(pause_s)

    with pytest.raises((SnapshotError, ArchiveError)):
        read()
    assert time.monotonic() - begin < (90 if damage == "length too long" else LIMIT_S)
    assert received == messages[: len(received)]
    assert len(received) <= 14_001
    assert not image.is_end_of_stream
    with pytest.raises((SnapshotError, ArchiveError)):
        list(image)
    reader.close()


def test_a_snapshot_is_whole_where_its_recording_stopped(archive: Node, client: AeronClient) -> None:
    messages = numbered(30_000)
    reader = ArchiveSnapshotStore(client, CONTEXT).open(recorded(archive, client, messages), BackoffIdleStrategy())
    image = seam.snapshot_image(reader, client, BackoffIdleStrategy())
    assert reader.stop_position > 30_000 * 96
    assert list(image) == messages
    assert image.is_end_of_stream
    assert image.position == reader.stop_position
    reader.close()


@pytest.mark.slow
def test_a_snapshot_of_1_gib_is_written_and_read_back(archive: Node, client: AeronClient) -> None:
    length, count = 131_072, 8192
    block = random.Random(1).randbytes(length - 8)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.monotonic()
    recording_id = recorded(archive, client, (number.to_bytes(8, "little") + block for number in range(count)))
    written = time.monotonic()
    reader = ArchiveSnapshotStore(client, CONTEXT).open(recording_id, BackoffIdleStrategy())
    image = seam.snapshot_image(reader, client, BackoffIdleStrategy())
    number = -1
    for number, message in enumerate(image):
        assert message[:8] == number.to_bytes(8, "little")
        assert message[8:] == block
    assert number == count - 1
    assert image.position == reader.stop_position > 1 << 30
    reader.close()
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib) / 1024
    print(f"written in {written - begin:.1f} s, read in {time.monotonic() - written:.1f} s, {grown_mib:.0f} MiB more")
    assert grown_mib < 128, "neither side holds the snapshot in memory"


def test_an_unknown_recording_is_told_by_its_code(client: AeronClient) -> None:
    with pytest.raises(ArchiveError, match="unknown recording id: 4711") as refused:
        ArchiveSnapshotStore(client, CONTEXT).open(4711, BackoffIdleStrategy())
    assert refused.value.code == 5


def test_several_connections_do_not_disturb_each_other(archive: Node, client: AeronClient) -> None:
    idle = BackoffIdleStrategy()
    contexts = [ArchiveClientContext.for_service(0, service_id) for service_id in (0, 1, 0)]
    clients = [AeronArchive.connect(context, client=client, idle_strategy=idle) for context in contexts]
    assert len({c.control_session_id for c in clients}) == 3
    assert len({c.archive_id for c in clients}) == 1
    for connected in clients:
        with pytest.raises(ArchiveError, match="unknown recording id: 9"):
            connected.start_replay(9, 0, -1, "aeron:ipc", 103)
        connected.check_for_error_response()
    for connected in clients:
        connected.close()


def test_the_archive_shows_who_connects(archive: Node, client: AeronClient) -> None:
    connected = AeronArchive.connect(CONTEXT, client=client, idle_strategy=BackoffIdleStrategy())
    labels = [label for _, _, label, _ in seam.counters(client).read()]
    assert any("control-session" in label and "name=archive-test version=" in label for label in labels), labels
    connected.close()


def test_a_full_disk_is_told_by_its_code(node: NodeFactory) -> None:
    # An archive that wants more free space than there is calls its disk full.
    full = node(properties={"aeron.archive.low.storage.space.threshold": str(1 << 62)}).start()
    full.await_started()
    with AeronClient(full.aeron_dir, "archive-test") as client:
        with pytest.raises(ArchiveError, match="start recording of .*low storage threshold") as refused:
            ArchiveSnapshotStore(client, CONTEXT).create(BackoffIdleStrategy())
        assert refused.value.code == ArchiveError.STORAGE_SPACE


# What a service has missed of its log


def write_term(directory: Path, recording_id: int) -> None:
    """A recording log whose last leadership term is recorded as ``recording_id``."""
    entries = b"".join(
        struct.pack("<qqqqqiI", number, term, 0, -1, 0, -1, 0).ljust(64, b"\0")
        for term, number in enumerate((recording_id + 9, recording_id))
    )
    (directory / "recording.log").write_bytes(entries)


def test_a_part_of_a_log_is_replayed_while_it_is_recorded_and_when_it_was(
    archive: Node, client: AeronClient, tmp_path: Path
) -> None:
    idle = BackoffIdleStrategy()
    store = ArchiveSnapshotStore(client, CONTEXT, cluster_dir=tmp_path)
    messages = [b"message %d" % number for number in range(100)] + [bytes(3_000)]
    writer = store.create(idle)  # An archive records a log as it does a snapshot.
    positions = []
    for message in messages:
        send(writer, client, message)
        positions.append(seam.position(writer.publication))
    await_complete(writer, client)
    session_id = writer.publication.session_id
    for begin, end in [(0, 10), (49, 100), (99, 100), (50, 51)]:
        reader = store.open_log(positions[begin], positions[end], session_id, idle)
        assert reader.image.join_position == positions[begin]
        assert read_all(reader.image, client, reader.check) == messages[begin + 1 : end + 1]
        assert seam.position(reader.image) == positions[end]
        reader.close()
    writer.close()
    archive.wait_until(lambda: archive.counter(RECORDING_POSITION_TYPE_ID) is None, LIMIT_S, "the recording to stop")

    with pytest.raises(ClusterError, match=f"the archive does not record session id {session_id}, and .* has no rec"):
        store.open_log(positions[0], positions[9], session_id, idle)
    write_term(tmp_path, writer.recording_id)
    reader = store.open_log(positions[0], positions[9], session_id, idle)
    assert read_all(reader.image, client, reader.check) == messages[1:10]
    reader.close()
    with pytest.raises(ArchiveError, match="position"):
        store.open_log(positions[-1] + 4_096, positions[-1] + 8_192, session_id, idle)
