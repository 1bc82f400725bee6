"""Snapshots recorded and replayed in memory, scripted failures of the archive, and the mark file in memory."""

from __future__ import annotations

import itertools

import pytest

from container.errors import (
    ArchiveError,
    ClusterError,
    ConfigurationError,
    MarkFileError,
    RegistrationError,
    TimedOutError,
)
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_stores import MemoryMarkFile, MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.transport_seam import SnapshotReader

BACK_PRESSURED, ADMIN_ACTION = -2, -3
MESSAGES = [b"begin", b"", b"x" * 5_000, b"end"]


@pytest.fixture
def store(client: MemoryClient) -> MemorySnapshotStore:
    return MemorySnapshotStore(client)


@pytest.fixture
def idle(client: MemoryClient) -> SteppingIdleStrategy:
    """Idles as the cluster does: the client is kept going."""
    return SteppingIdleStrategy(lambda: seam.invoke(client), max_idles=100)


def take(store: MemorySnapshotStore, idle: SteppingIdleStrategy, messages: list[bytes]) -> int:
    """The recording id of a snapshot with these messages."""
    writer = seam.create_snapshot(store, idle)
    for message in messages:
        while seam.offer(writer.publication, message) < 0:
            seam.idle(idle)
        seam.reset_idle(idle)
    while not seam.is_complete(writer):
        seam.idle(idle)
    writer.close()
    return writer.recording_id


def replayed(reader: SnapshotReader) -> list[bytes]:
    """The payloads of all frames of a replay."""
    frames: list[bytes] = []
    while not seam.is_end_of_stream(reader.image):
        frames += [payload for payload, _ in seam.poll(reader.image, 10)]
    return frames


def test_what_is_recorded_is_replayed(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    recording_id = take(store, idle, MESSAGES)
    assert store.messages(recording_id) == MESSAGES
    reader = seam.open_snapshot(store, recording_id, idle)
    assert b"".join(replayed(reader)) == b"".join(MESSAGES)
    reader.close()
    reader.close()


def test_a_replay_has_the_recorded_positions_and_ids_of_its_own(
    store: MemorySnapshotStore, idle: SteppingIdleStrategy
) -> None:
    recording_id = take(store, idle, MESSAGES)
    recorded = store.frames(recording_id)
    reader = seam.open_snapshot(store, recording_id, idle)
    headers = [header for _, header in seam.poll(reader.image, 100)]
    assert [header["position"] for header in headers][:-1] == [frame.position for frame in recorded][1:]
    assert {header["session_id"] for header in headers} == {reader.image.session_id}
    assert {header["stream_id"] for header in headers} == {103}
    assert {frame.stream_id for frame in recorded} == {106}
    assert reader.image.session_id != recorded[0].session_id


def test_a_replay_knows_its_end_and_closes_when_drained(
    store: MemorySnapshotStore, idle: SteppingIdleStrategy, client: MemoryClient
) -> None:
    recording_id = take(store, idle, MESSAGES)
    reader = seam.open_snapshot(store, recording_id, idle)
    assert seam.end_of_stream_position(reader.image) == store.recording(recording_id).recorded_position
    seam.invoke(client)
    assert not seam.is_closed(reader.image)
    replayed(reader)
    seam.invoke(client)
    assert seam.is_closed(reader.image)


def test_a_snapshot_of_many_terms(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    messages = [bytes([index % 256]) * 4_000 for index in range(100)]
    recording_id = take(store, idle, messages)
    assert store.messages(recording_id) == messages
    assert store.recording(recording_id).recorded_position > 6 * 65_536
    assert b"".join(replayed(seam.open_snapshot(store, recording_id, idle))) == b"".join(messages)


def test_the_archive_reads_while_the_service_is_back_pressured() -> None:
    client = MemoryDriver(publication_window=4_096).connect()
    store = MemorySnapshotStore(client)
    idle = SteppingIdleStrategy(lambda: seam.invoke(client), max_idles=10)
    recording_id = take(store, idle, [bytes(1_000)] * 50)
    assert idle.idle_count > 10
    assert store.messages(recording_id) == [bytes(1_000)] * 50


def test_recordings_have_ids_in_sequence(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    first = take(store, idle, [b"1"])
    second = store.add_recording([b"2"])
    third = store.add_recording([b"3"], recording_id=40)
    fourth = take(store, idle, [b"4"])
    assert [first, second, third, fourth] == [7, 8, 40, 41] == store.recording_ids
    assert [store.messages(recording_id) for recording_id in store.recording_ids] == [[b"1"], [b"2"], [b"3"], [b"4"]]


def test_a_recording_can_come_from_elsewhere(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    recording_id = store.add_recording(MESSAGES, mtu_length=64)
    assert store.messages(recording_id) == MESSAGES
    assert max(map(len, replayed(seam.open_snapshot(store, recording_id, idle)))) == 32


@pytest.mark.parametrize(("messages", "code"), [(None, 5), ([], 15)])
def test_what_cannot_be_replayed_is_refused_with_the_archives_code(
    store: MemorySnapshotStore, idle: SteppingIdleStrategy, messages: list[bytes] | None, code: int
) -> None:
    recording_id = 99 if messages is None else store.add_recording(messages)
    with pytest.raises(ArchiveError, match=str(recording_id)) as error:
        seam.open_snapshot(store, recording_id, idle)
    assert error.value.code == code


def test_nothing_is_left_open(driver: MemoryDriver, store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    seam.open_snapshot(store, take(store, idle, MESSAGES), idle).close()
    seam.create_snapshot(store, idle).close()
    seam.idle(idle)
    assert driver.open_resources() == []
    assert driver.publications() == []


def test_a_snapshot_is_complete_when_all_is_recorded(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    writer = seam.create_snapshot(store, idle)
    assert seam.is_complete(writer)
    seam.offer(writer.publication, b"x")
    recording = store.recording(writer.recording_id)
    assert recording.recorded_position == 0
    assert seam.is_complete(writer)
    assert recording.recorded_position == 64
    writer.close()
    writer.close()


# Scripted trouble


def test_create_can_fail_and_leaves_nothing_open(
    driver: MemoryDriver, store: MemorySnapshotStore, idle: SteppingIdleStrategy
) -> None:
    store.script("create", [ArchiveError("disk full", code=ArchiveError.STORAGE_SPACE)])
    with pytest.raises(ArchiveError, match="disk full") as error:
        seam.create_snapshot(store, idle)
    assert error.value.code == 11
    assert driver.open_resources() == []
    assert store.recording_ids == []
    take(store, idle, MESSAGES)


def test_open_can_fail(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    recording_id = store.add_recording(MESSAGES)
    store.script("open", [TimedOutError("no answer")])
    with pytest.raises(TimedOutError, match="no answer"):
        seam.open_snapshot(store, recording_id, idle)
    seam.open_snapshot(store, recording_id, idle)


def test_a_publication_that_cannot_be_added_fails_the_snapshot(
    driver: MemoryDriver, store: MemorySnapshotStore, idle: SteppingIdleStrategy
) -> None:
    driver.fail_next_add("exclusive_publication", 4, "no space left")
    with pytest.raises(RegistrationError, match="no space left"):
        seam.create_snapshot(store, idle)
    assert driver.open_resources() == []


def test_create_and_open_can_take_their_time(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    recording_id = store.add_recording(MESSAGES)
    store.script("create", [4])
    store.script("open", [None, 3])
    seam.create_snapshot(store, idle)
    assert idle.idle_count == 4
    seam.open_snapshot(store, recording_id, idle)
    assert idle.idle_count == 4
    seam.open_snapshot(store, recording_id, idle)
    assert idle.idle_count == 7


def test_what_idling_raises_comes_out_of_create(store: MemorySnapshotStore) -> None:
    store.script("create", itertools.repeat(100))
    with pytest.raises(TimedOutError, match="idled 5 times"):
        seam.create_snapshot(store, SteppingIdleStrategy(max_idles=5))


def test_checks_can_be_scripted(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    store.script("check", [None, ArchiveError("lost")])
    writer = seam.create_snapshot(store, idle)
    seam.check(writer)
    with pytest.raises(ArchiveError, match="lost"):
        seam.check(writer)
    seam.check(writer)
    store.script("check", [ArchiveError("lost again")])
    with pytest.raises(ArchiveError, match="lost again"):
        seam.check(seam.open_snapshot(store, store.add_recording([b"x"]), idle))


def test_completion_can_be_late_or_never(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    writer = seam.create_snapshot(store, idle)
    store.script("complete", [0, 0])
    assert [seam.is_complete(writer) for _ in range(3)] == [False, False, True]
    store.script("complete", itertools.repeat(0))
    assert not any(seam.is_complete(writer) for _ in range(100))


def test_a_recording_can_stop(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    writer = seam.create_snapshot(store, idle)
    store.script("complete", [ClusterError("recording stopped unexpectedly")])
    with pytest.raises(ClusterError, match="stopped unexpectedly"):
        seam.is_complete(writer)


def test_a_recording_stops_with_its_client(
    client: MemoryClient, store: MemorySnapshotStore, idle: SteppingIdleStrategy
) -> None:
    writer = seam.create_snapshot(store, idle)
    seam.offer(writer.publication, b"x")
    client.close()
    with pytest.raises(ClusterError, match="recordingId=7"):
        seam.is_complete(writer)
    writer.close()


def test_the_end_of_the_driver_ends_a_replay(
    driver: MemoryDriver, store: MemorySnapshotStore, idle: SteppingIdleStrategy
) -> None:
    reader = seam.open_snapshot(store, store.add_recording(MESSAGES), idle)
    driver.kill()
    assert seam.is_closed(reader.image)
    assert not seam.is_end_of_stream(reader.image)
    reader.close()


def test_a_late_image_is_waited_for(driver: MemoryDriver) -> None:
    client = driver.connect("late", image_delay=3)
    store = MemorySnapshotStore(client)
    idle = SteppingIdleStrategy(max_idles=10)
    reader = seam.open_snapshot(store, store.add_recording(MESSAGES), idle)
    assert idle.idle_count == 3
    assert b"".join(replayed(reader)) == b"".join(MESSAGES)


def test_a_replay_given_up_leaves_nothing_open(driver: MemoryDriver) -> None:
    client = driver.connect("late", image_delay=20)
    store = MemorySnapshotStore(client)
    with pytest.raises(TimedOutError):
        seam.open_snapshot(store, store.add_recording(MESSAGES), SteppingIdleStrategy(max_idles=5))
    assert driver.open_resources() == []


def test_a_close_that_fails_leaves_nothing_open(driver: MemoryDriver, store: MemorySnapshotStore) -> None:
    writer = seam.create_snapshot(store, SteppingIdleStrategy())
    assert seam.offer(writer.publication, b"state") > 0
    store.script("close", [ArchiveError("the session is gone")] * 2)
    with pytest.raises(ArchiveError, match="the session is gone"):
        writer.close()
    reader = seam.open_snapshot(store, writer.recording_id, SteppingIdleStrategy())
    assert [data for data, _ in seam.poll(reader.image)] == [b"state"]
    with pytest.raises(ArchiveError, match="the session is gone"):
        reader.close()
    assert driver.open_resources() == []


def test_an_unknown_operation_is_refused(store: MemorySnapshotStore) -> None:
    with pytest.raises(ConfigurationError, match="'delete'.*create, open, open_log, check, complete, close"):
        store.script("delete", [])  # type: ignore[arg-type]


# Mark file


def test_a_mark_file_remembers_what_was_written() -> None:
    mark_file = MemoryMarkFile()
    assert (mark_file.member_id, mark_file.is_terminated, mark_file.is_closed) == (-1, False, False)
    for now_ms in (5, 1_005):
        seam.update_activity_timestamp(mark_file, now_ms)
    for member_id in (2, 1):
        seam.set_member_id(mark_file, member_id)
    seam.signal_terminated(mark_file)
    mark_file.close()
    assert mark_file.activity_timestamps == [5, 1_005]
    assert (mark_file.member_ids, mark_file.member_id) == ([2, 1], 1)
    assert (mark_file.is_terminated, mark_file.is_closed) == (True, True)


def test_a_mark_file_can_fail_once() -> None:
    mark_file = MemoryMarkFile()
    mark_file.error = MarkFileError("disk gone")
    with pytest.raises(MarkFileError, match="disk gone"):
        seam.update_activity_timestamp(mark_file, 1)
    seam.update_activity_timestamp(mark_file, 2)
    assert mark_file.activity_timestamps == [2]


def test_frames_are_recorded_with_the_flags_that_are_given(
    store: MemorySnapshotStore, idle: SteppingIdleStrategy
) -> None:
    recording_id = store.add_recording([b"whole", (b"begin", 0x80), (b"", 0x00), (b"end", 0x40)])
    assert [(frame.payload, frame.flags) for frame in store.frames(recording_id)] == [
        (b"whole", 0xC0),
        (b"begin", 0x80),
        (b"", 0x00),
        (b"end", 0x40),
    ]
    assert replayed(seam.open_snapshot(store, recording_id, idle)) == [b"whole", b"begin", b"", b"end"]


def test_a_deleted_recording_is_unknown(store: MemorySnapshotStore, idle: SteppingIdleStrategy) -> None:
    kept, deleted = store.add_recording([b"x"]), store.add_recording([b"y"])
    store.delete_recording(deleted)
    assert store.recording_ids == [kept]
    for use in (lambda: seam.open_snapshot(store, deleted, idle), lambda: store.delete_recording(deleted)):
        with pytest.raises(ArchiveError, match=f"unknown recording id: {deleted}"):
            use()
