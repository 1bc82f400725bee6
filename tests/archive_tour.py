"""Every request of the public archive client and what comes of it: for an archive in memory, and for real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from container.archive import (
    REPLAY_ALL_AND_STOP,
    AeronArchive,
    RecordedPublication,
    RecordingSignal,
    RecordingSignalEvent,
    Replay,
    SourceLocation,
    error_codes,
)
from container.archive.client.archive_session import continued_channel
from container.errors import ArchiveError

CHANNEL = "aeron:ipc?term-length=64k|mtu=1408"
STREAM_ID = 1001
REPLAY_CHANNEL = "aeron:ipc?term-length=64k"
REPLAY_STREAM_ID = 2001
SEGMENT_LENGTH = 128 * 1024
MESSAGE_LENGTH = 992
NO_RECORDING = 999_999

type Until = Callable[[Callable[[], object]], None]


@dataclass
class Tour:
    """A session with an archive of which each request is made."""

    archive: AeronArchive
    until: Until
    """Waits, and lets the archive work, until something is true."""
    counter_of: Callable[[int], int]
    """The id of a recording's position counter."""
    signals: list[RecordingSignalEvent]
    control_channel: str
    """On which the archive can ask itself for a replication."""
    control_stream_id: int = 10

    def publish(self, publication: RecordedPublication, count: int, first: int = 0) -> int:
        """Send messages with their numbers; where they end."""
        for number in range(first, first + count):
            message = number.to_bytes(4, "little") * (MESSAGE_LENGTH // 4)
            self.until(lambda message=message: publication.offer(message) > 0)  # type: ignore[misc]
        return publication.position

    def signal(self, signal: RecordingSignal) -> RecordingSignalEvent:
        """The next signal of a kind; those before it are forgotten."""
        found: list[RecordingSignalEvent] = []

        def came() -> bool:
            self.archive.poll_for_recording_signals()
            while self.signals and not found:
                event = self.signals.pop(0)
                found.extend([event] if event.signal == signal else [])
            return bool(found)

        self.until(came)
        return found[0]

    def read(self, replay: Replay, end: int) -> list[int]:
        """The numbers of the messages up to a position."""
        numbers: list[int] = []

        def on_message(message: bytes, position: int) -> None:
            assert message == message[:4] * (MESSAGE_LENGTH // 4)
            assert position == (len(numbers) + 1) * 1024 + start
            numbers.append(int.from_bytes(message[:4], "little"))

        self.until(lambda: replay.position >= 0)
        start = replay.position
        self.until(lambda: replay.poll(on_message) < 0 or replay.position >= end)
        replay.close()
        return numbers

    def code(self, ask: Callable[[], object]) -> int:
        """The error code of a request that is refused."""
        with pytest.raises(ArchiveError) as refused:
            ask()
        return refused.value.code

    def error(self) -> ArchiveError:
        """The next error that answers no request."""
        found: list[ArchiveError] = []

        def came() -> bool:
            try:
                self.archive.check_for_error_response()
            except ArchiveError as error:
                found.append(error)
            return bool(found)

        self.until(came)
        return found[0]

    def recording(self, count: int, stream_id: int = STREAM_ID) -> tuple[int, int]:
        """A new recording that has stopped: its id, and where it ends."""
        publication = self.archive.add_recorded_publication(CHANNEL, stream_id)
        recording_id = self.signal(RecordingSignal.START).recording_id
        end = self.publish(publication, count)
        publication.close()
        self.until(lambda: self.archive.get_stop_position(recording_id) == end)
        return recording_id, end


def record_and_replay(tour: Tour) -> None:
    """A recording from its start to its extension."""
    archive = tour.archive
    publication = archive.add_recorded_publication(CHANNEL, STREAM_ID)
    started = tour.signal(RecordingSignal.START)
    recording_id = started.recording_id
    assert (started.position, archive.get_start_position(recording_id)) == (0, 0)
    end = tour.publish(publication, 300)
    tour.until(lambda: archive.get_recording_position(recording_id) == end)
    assert archive.get_max_recorded_position(recording_id) == end
    assert archive.get_stop_position(recording_id) == -1
    [subscription] = archive.list_recording_subscriptions(0, 10, "aeron:ipc", STREAM_ID, apply_stream_id=True)
    assert (subscription.stream_id, subscription.subscription_id) == (STREAM_ID, started.subscription_id)
    assert archive.list_recording_subscriptions(0, 10, "no such", 1, apply_stream_id=False) == []

    replay = archive.replay(recording_id, 1024, end - 1024, REPLAY_CHANNEL, REPLAY_STREAM_ID)
    assert tour.read(replay, end) == list(range(1, 300))
    bounded = archive.replay(
        recording_id,
        -1,
        end,
        REPLAY_CHANNEL,
        REPLAY_STREAM_ID,
        bounding_limit_counter_id=tour.counter_of(recording_id),
        file_io_max_length=64 * 1024,
    )
    assert tour.read(bounded, end) == list(range(300))

    publication.close()
    assert tour.signal(RecordingSignal.STOP).position == end
    tour.until(lambda: archive.get_stop_position(recording_id) == end)
    assert archive.get_recording_position(recording_id) == -1

    again = archive.extend_recorded_publication(recording_id, CHANNEL, STREAM_ID)
    assert tour.signal(RecordingSignal.EXTEND).position == end
    extended = tour.publish(again, 10, 300)
    again.close()
    tour.until(lambda: archive.get_stop_position(recording_id) == extended)
    stopped = archive.replay(recording_id, 0, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, REPLAY_STREAM_ID)
    assert tour.read(stopped, extended) == list(range(310))


def list_recordings(tour: Tour) -> None:
    """The recordings."""
    archive = tour.archive
    first, end = tour.recording(1, 1100)
    second, _ = tour.recording(2, 1101)
    assert [each.recording_id for each in archive.list_recordings(first, 10)] == [first, second]
    assert [each.recording_id for each in archive.list_recordings(first, 1)] == [first]
    assert archive.list_recordings(NO_RECORDING, 10) == []
    [found] = archive.list_recordings_for_uri(first, 10, "aeron:ipc", 1101)
    assert found.recording_id == second
    assert archive.list_recordings_for_uri(first, 10, "udp", 1101) == []
    described = archive.list_recording(first)
    assert described is not None
    assert (described.stream_id, described.start_position, described.stop_position) == (1100, 0, end)
    assert (described.term_buffer_length, described.mtu_length) == (64 * 1024, 1408)
    assert described.segment_file_length == SEGMENT_LENGTH
    assert archive.list_recording(NO_RECORDING) is None
    assert archive.find_last_matching_recording(0, "aeron:ipc", 1100, described.session_id) == first
    assert archive.find_last_matching_recording(0, "udp", 1100, described.session_id) == -1
    archive.update_channel(first, "aeron:ipc?alias=renamed")
    renamed = archive.list_recording(first)
    assert renamed is not None
    assert "alias=renamed" in renamed.original_channel


def stop_recordings(tour: Tour) -> None:
    """The ways to end what is recorded."""
    archive = tour.archive
    subscription_id = archive.start_recording(CHANNEL, 1200)
    assert tour.code(lambda: archive.start_recording(CHANNEL, 1200)) == error_codes.ACTIVE_SUBSCRIPTION
    archive.stop_recording(subscription_id)
    assert not archive.try_stop_recording(subscription_id)
    archive.start_recording(CHANNEL, 1200, SourceLocation.REMOTE)
    archive.stop_recording_of_channel(CHANNEL, 1200)
    assert not archive.try_stop_recording_of_channel(CHANNEL, 1200)
    archive.start_recording(CHANNEL, 1200)
    assert archive.try_stop_recording_of_channel(CHANNEL, 1200)
    publication = archive.add_recorded_publication(CHANNEL, 1200)
    recording_id = tour.signal(RecordingSignal.START).recording_id
    tour.publish(publication, 1)
    assert archive.try_stop_recording_by_identity(recording_id)
    assert tour.signal(RecordingSignal.STOP).recording_id == recording_id
    assert not archive.try_stop_recording_by_identity(recording_id)
    publication.close()


def change_files(tour: Tour) -> None:
    """The parts that can be cut off and put back."""
    archive = tour.archive
    recording_id, end = tour.recording(400, 1300)
    archive.detach_segments(recording_id, SEGMENT_LENGTH)
    assert archive.get_start_position(recording_id) == SEGMENT_LENGTH
    assert archive.attach_segments(recording_id) == 1
    assert archive.get_start_position(recording_id) == 0
    archive.detach_segments(recording_id, SEGMENT_LENGTH)
    assert archive.delete_detached_segments(recording_id) == 1
    tour.signal(RecordingSignal.DELETE)
    assert archive.purge_segments(recording_id, 2 * SEGMENT_LENGTH) == 1
    tour.signal(RecordingSignal.DELETE)
    archive.truncate_recording(recording_id, end - 1024)
    tour.signal(RecordingSignal.DELETE)
    assert archive.get_stop_position(recording_id) == end - 1024
    assert archive.purge_recording(recording_id) >= 1
    tour.signal(RecordingSignal.DELETE)
    assert archive.list_recording(recording_id) is None


def move_segments(tour: Tour) -> None:
    """The segments of a recording, put in front of the one that continues where it ends."""
    archive = tour.archive
    count = SEGMENT_LENGTH // 1024
    source, end = tour.recording(count, 1650)
    assert end == SEGMENT_LENGTH
    channel = continued_channel(CHANNEL, source, archive.list_recording(source))
    publication = archive.add_recorded_publication(channel, 1650)
    target = tour.signal(RecordingSignal.START).recording_id
    last = tour.publish(publication, 5, count)
    publication.close()
    tour.until(lambda: archive.get_stop_position(target) == last)
    assert archive.get_start_position(target) == end
    assert archive.migrate_segments(source, target) == 1
    assert tour.signal(RecordingSignal.DELETE).recording_id == source
    assert (archive.get_start_position(target), archive.get_stop_position(target)) == (0, last)
    assert (archive.get_start_position(source), archive.get_stop_position(source)) == (0, 0)
    replay = archive.replay(target, 0, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, REPLAY_STREAM_ID)
    assert tour.read(replay, last) == list(range(count + 5))


def replicate(tour: Tour) -> None:
    """A copy of a recording, from the archive to itself, and one that fails."""
    archive = tour.archive
    recording_id, end = tour.recording(5, 1400)
    replication_id = archive.replicate(recording_id, tour.control_stream_id, tour.control_channel)
    assert replication_id != -1
    copied = tour.signal(RecordingSignal.REPLICATE).recording_id
    assert copied > recording_id
    tour.signal(RecordingSignal.REPLICATE_END)
    tour.until(lambda: archive.get_stop_position(copied) == end)
    assert not archive.try_stop_replication(replication_id)
    assert tour.code(lambda: archive.stop_replication(replication_id)) == error_codes.UNKNOWN_REPLICATION
    archive.tagged_replicate(recording_id, copied, 77, 78, tour.control_stream_id, tour.control_channel)
    tour.signal(RecordingSignal.REPLICATE_END)
    failed_id = archive.replicate(NO_RECORDING, tour.control_stream_id, tour.control_channel)
    assert failed_id != replication_id
    failure = tour.error()
    assert (failure.code, failure.correlation_id) == (error_codes.UNKNOWN_RECORDING, failed_id)
    assert "unknown src recording id" in str(failure)
    lonely_id = archive.replicate(recording_id, NO_RECORDING, tour.control_channel)
    failure = tour.error()
    assert (failure.code, failure.correlation_id) == (error_codes.REPLICATION_CONNECTION_FAILURE, lonely_id)


def be_refused(tour: Tour) -> None:
    """Requests that are refused at once, each with its code."""
    archive = tour.archive
    recording_id, end = tour.recording(2, 1500)
    empty, _ = tour.recording(0, 1501)
    active = archive.add_recorded_publication(CHANNEL, 1502)
    active_id = tour.signal(RecordingSignal.START).recording_id
    asks: list[tuple[int, Callable[[], object]]] = [
        (error_codes.UNKNOWN_SUBSCRIPTION, lambda: archive.stop_recording(NO_RECORDING)),
        (error_codes.UNKNOWN_SUBSCRIPTION, lambda: archive.stop_recording_of_channel(CHANNEL, 1599)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.try_stop_recording_by_identity(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.extend_recording(NO_RECORDING, CHANNEL, 1500)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.start_replay(NO_RECORDING, 0, -1, REPLAY_CHANNEL, 1)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.start_bounded_replay(NO_RECORDING, 0, -1, 0, "aeron:ipc", 1)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.get_start_position(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.get_stop_position(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.get_recording_position(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.get_max_recorded_position(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.truncate_recording(NO_RECORDING, 0)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.purge_recording(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.purge_segments(NO_RECORDING, 0)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.detach_segments(NO_RECORDING, 0)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.delete_detached_segments(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.attach_segments(NO_RECORDING)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.migrate_segments(NO_RECORDING, recording_id)),
        (error_codes.UNKNOWN_REPLICATION, lambda: archive.stop_replication(NO_RECORDING)),
        (error_codes.ACTIVE_RECORDING, lambda: archive.extend_recording(active_id, CHANNEL, 1502)),
        (error_codes.ACTIVE_RECORDING, lambda: archive.extend_recorded_publication(active_id, CHANNEL, 1502)),
        (error_codes.ACTIVE_RECORDING, lambda: archive.truncate_recording(active_id, 0)),
        (error_codes.ACTIVE_RECORDING, lambda: archive.purge_recording(active_id)),
        (error_codes.UNKNOWN_RECORDING, lambda: archive.extend_recording(recording_id, CHANNEL, 1503)),
        (error_codes.INVALID_POSITION, lambda: archive.start_replay(recording_id, end, -1, REPLAY_CHANNEL, 1)),
        (error_codes.GENERIC, lambda: archive.start_replay(recording_id, 1, -1, REPLAY_CHANNEL, 1)),
        (
            error_codes.GENERIC,
            lambda: archive.start_replay(recording_id, 0, -1, REPLAY_CHANNEL, 1, file_io_max_length=32),
        ),
        (error_codes.GENERIC, lambda: archive.migrate_segments(recording_id, empty)),
        (error_codes.EMPTY_RECORDING, lambda: archive.start_replay(empty, -1, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, 1)),
    ]
    found = [(code, tour.code(ask)) for code, ask in asks]
    assert [each for each in found if each[0] != each[1]] == []
    active.close()
    archive.stop_all_replays()  # upstream's replays an empty recording although it has said that it cannot
    tour.signal(RecordingSignal.STOP)


def stop_replays(tour: Tour) -> None:
    """The most replays that there may be, and the ways to end them."""
    archive = tour.archive
    recording_id, _ = tour.recording(2, 1600)
    assert archive.request_replay_token(recording_id) != -1
    replays: list[int] = []
    tour.until(lambda: not _has_begun(archive, recording_id, replays))
    assert len(set(replays)) == len(replays) > 0
    archive.stop_replay(replays[0])
    archive.stop_replay(replays[0])
    archive.stop_all_replays(recording_id)
    archive.stop_all_replays()
    tour.until(lambda: _has_begun(archive, recording_id, replays))
    archive.stop_all_replays()


def _has_begun(archive: AeronArchive, recording_id: int, replays: list[int]) -> bool:
    """Whether another replay has begun: no more than 20 are there at once."""
    try:
        replays.append(archive.start_replay(recording_id, 0, -1, REPLAY_CHANNEL, 1601))
    except ArchiveError as error:
        if error.code != error_codes.MAX_REPLAYS:
            raise
        return False
    return True


TOURS = (
    record_and_replay,
    list_recordings,
    stop_recordings,
    change_files,
    move_segments,
    replicate,
    be_refused,
    stop_replays,
)
