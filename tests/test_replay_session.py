"""A replay session: what it sends and when, how far it follows a recording or a counter, how it ends."""

from __future__ import annotations

import errno
import random

import pytest

from container.archive import error_codes
from container.archive.server.sessions.recording_session import RecordingSession
from container.archive.server.sessions.replay_request import ReplayRange
from container.archive.server.sessions.replay_session import ReplaySession
from container.errors import AeronError, ArchiveError
from container.storage.storage_seam import Storage
from container.testing.memory import transport_probe as probe
from tests.archive_streams import (
    CONNECT_TIMEOUT_NS,
    CORRELATION_ID,
    COUNTER_TYPE_ID,
    HEADER,
    IPC,
    REPLAY_SESSION_ID,
    TERM,
    Replay,
    Simulated,
    Streams,
    frames,
    payloads,
    simulated,
    with_ids,
)

BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED = -2, -3, -4, -5
FOREVER = 2**63 - 1
CRC32 = 1


def messages(seed: int, count: int) -> list[bytes]:
    draws = random.Random(seed)
    lengths = [0, 1, 31, 32, 33, 992, 1375, 1376, 1377, 4000, 8000]
    return [bytes([number % 256]) * draws.choice(lengths) for number in range(count)]


def replayed(replay: Replay) -> bytes:
    """What a subscriber has read, which must have the ids of the replay's publication."""
    content = replay.content()
    assert content == with_ids(content, replay.publication.session_id, replay.stream_id)
    return with_ids(content)


def recorded(streams: Streams, recording_id: int, position: int | None = None) -> bytes:
    return with_ids(streams.store.frames(recording_id, position))


def boundaries(streams: Streams, recording_id: int) -> list[int]:
    """Where the frames of a recording begin, and where the last one ends."""
    begin, end = streams.store.range(recording_id)
    content = streams.store.frames(recording_id)
    return [position for position, _ in frames(content, begin)] + [
        end if end >= 0 else streams.store.store.recorded_position(recording_id)
    ]


def check_error(replay: Replay, code: int, *texts: str) -> ArchiveError:
    """The replay has ended with an error for the reply, and is revoked."""
    session = replay.session
    assert session.is_done
    error = session.error
    assert isinstance(error, ArchiveError)
    assert (error.code, error.correlation_id) == (code, CORRELATION_ID)
    assert str(error).endswith(f"recordingId={session.recording_id}, replaySessionId={REPLAY_SESSION_ID}") or (
        f"recordingId={session.recording_id}, replaySessionId={REPLAY_SESSION_ID}, segmentFile=" in str(error)
    )
    for text in texts:
        assert text in str(error)
    assert probe.is_closed(replay.publication)
    return error


def check_closed(world: Simulated) -> None:
    """Nothing of a replay is left open but what its subscriber has."""
    left = [each for each in world.driver.open_resources() if "Publication" in type(each).__name__]
    assert left == []


# All of a recording


@pytest.mark.parametrize("window", [0, 4096, TERM // 2])
@pytest.mark.parametrize("read_length", [0, 1, 5000])
@pytest.mark.parametrize("segment_length", [TERM, 2 * TERM])
@pytest.mark.parametrize("checksum", [0, CRC32])
def test_what_is_recorded_is_replayed(window: int, read_length: int, segment_length: int, checksum: int) -> None:
    world = simulated(window=window, segment_length=segment_length, checksum=checksum)
    streams = world.streams
    recording = streams.start()
    recording.offer(*messages(window, 250))
    recording.end()
    recording.stop()
    published = with_ids(recording.observer.content)
    assert recording.observer.position > 3 * TERM
    replay = streams.replay(0, read_length=read_length)
    replay.finish()
    assert replayed(replay) == published
    reader = replay.reader
    assert reader is not None
    assert (reader.begin, reader.position) == (0, recording.observer.position)
    assert (replay.session.error, replay.session.is_done) == (None, True)
    assert replay.session.position == recording.observer.position
    assert reader.is_at_end
    check_closed(world)
    assert replay.session.do_work() == 0


def test_what_is_read_is_not_read_again_where_it_is_sent_in_parts() -> None:
    world = simulated(window=2048)
    streams = world.streams
    streams.recorded(*[bytes(992)] * 200)
    replay = streams.replay(0)
    length = len(replay.finish())
    assert replay.session.read_bytes == length


def test_padding_is_counted_as_its_header() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(7000)] * 40)
    content = streams.store.frames(0)
    assert any(HEADER.unpack_from(frame)[3] == 0 for _, frame in frames(content, 0))
    replay = streams.replay(0)
    replay.finish()
    assert replay.session.read_bytes == len(content) < streams.store.range(0)[1]
    assert replayed(replay) == with_ids(content)


def test_reads_are_timed() -> None:
    world = simulated()
    world.streams.recorded(*[bytes(992)] * 100)
    world.clock.auto_advance_ns = 1000
    replay = world.streams.replay(0)
    replay.finish()
    session = replay.session
    assert session.read_time_ns > session.longest_read_ns >= 1000


def test_frames_of_several_sessions_get_the_ids_of_the_replay() -> None:
    streams = simulated(segment_length=2 * TERM).streams
    streams.recorded(*messages(1, 50))
    for number in range(4):
        recording = streams.start(streams.continued(0), extended=0)
        recording.offer(*messages(number, 50))
        recording.end()
        recording.stop()
    content = streams.store.frames(0)
    assert len({HEADER.unpack_from(frame)[5] for _, frame in frames(content, 0)}) > 1
    replay = streams.replay(0)
    replay.finish()
    assert replayed(replay) == with_ids(content)


def test_a_cycle_sends_one_batch() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 10)
    replay = streams.replay(0, read_length=3000)
    session = replay.session
    assert session.do_work() == 1 + 1 + 2048, "a replay that may begin begins at once"
    sent = [session.do_work() for _ in range(6)]
    assert sent == [2048, 2048, 2048, 2048, 0, 0]
    assert session.is_done


# From where, and up to where


def test_a_replay_begins_at_any_frame_and_nowhere_else() -> None:
    world = simulated()
    streams = world.streams
    streams.recorded(*messages(5, 60))
    end = streams.store.range(0)[1]
    starts = set(boundaries(streams, 0))
    for position in sorted({*starts, *range(0, 5000, 32), *range(TERM - 4992, TERM + 2016, 32)} - {end}):
        replay = streams.replay(0, position)
        if position in starts:
            replay.finish()
            assert replayed(replay) == recorded(streams, 0, position)
            assert replay.reader is not None
            assert replay.reader.begin == position
        else:
            assert replay.session.do_work() == 1
            check_error(replay, error_codes.INVALID_POSITION, f"replayPosition={position} does not point to a valid")
            assert not replay.session.take_response()
        assert replay.reader is not None
        replay.reader.subscription.close()
        streams.replays.clear()
    check_closed(world)


def test_a_replay_ends_with_the_frame_that_reaches_its_limit() -> None:
    streams = simulated().streams
    streams.recorded(b"", b"x", bytes(200), bytes(3000), bytes(100))
    ends = boundaries(streams, 0)[1:]
    for length in [*range(1, ends[-1] + 1, 17), *range(32, ends[-1] + 1, 32)]:
        for read_length in (0, 1, 600):
            replay = streams.replay(0, 0, length, read_length=read_length)
            replay.finish()
            expected = min(end for end in ends if end >= length)
            assert (replay.session.position, replay.session.error) == (expected, None)
            assert replay.reader is not None
            assert replay.reader.position == expected
            replay.reader.subscription.close()
            streams.replays.clear()


def test_a_limit_in_padding_is_overshot_to_the_end_of_the_term() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.fill(1024)
    recording.offer(bytes(1376))
    recording.end()
    recording.stop()
    replay = streams.replay(0, 0, TERM - 500)
    replay.finish()
    assert replay.session.position == TERM
    replay = streams.replay(0, TERM - 1024, 1)
    replay.finish()
    assert replay.session.position == TERM
    replay = streams.replay(0, 0, TERM - 1024)
    replay.finish()
    assert replay.session.position == TERM - 1024


def test_all_and_stop_ends_where_the_recording_was_at_the_request() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(*messages(2, 30))
    recording.record()
    position = recording.session.recorded_position
    replay = streams.replay(0, -1, -2)
    recording.offer(*messages(3, 30))
    replay.finish()
    assert replay.session.position == position
    assert replay.session.error is None


def test_an_empty_replay_ends_at_once() -> None:
    streams = simulated().streams
    recording = streams.start()
    streams.turn()
    recording.end()
    recording.stop()
    assert streams.store.range(0) == (0, 0)
    replay = streams.replay(0)
    assert replay.session.do_work() == 3
    assert replay.session.take_response()
    assert (replay.session.is_done, replay.session.error) == (True, None)
    assert probe.is_closed(replay.publication)


# The answer, the subscriber, the segment


def test_the_answer_is_due_before_there_is_a_subscriber() -> None:
    streams = simulated().streams
    streams.recorded(b"x")
    replay = streams.replay(0, is_subscribed=False)
    session = replay.session
    assert not session.take_response()
    assert session.do_work() == 1
    assert session.take_response()
    assert not session.take_response(), "once"
    for _ in range(5):
        assert session.do_work() == 0
    replay.finish()
    assert payloads(replay.content()) == [b"\xc0x"]
    assert not session.take_response()


def test_a_replay_that_nobody_joins_ends_with_an_error() -> None:
    world = simulated()
    world.streams.recorded(b"x")
    replay = world.streams.replay(0, is_subscribed=False)
    session = replay.session
    session.do_work()
    assert session.take_response()
    world.clock.advance(CONNECT_TIMEOUT_NS)
    assert session.do_work() == 0
    world.clock.advance(1)
    assert session.do_work() == 1
    check_error(
        replay,
        error_codes.GENERIC,
        f"no connection established for replayChannel={replay.channel}, replayStreamId={replay.stream_id}",
    )
    check_closed(world)
    assert session.do_work() == 0


def test_texts_of_errors_are_bounded() -> None:
    world = simulated()
    world.streams.recorded(b"x")
    place = f"{world.streams.place(0, 0)}|alias={'a' * 4000}"
    replay = world.streams.replay(0, is_subscribed=False, place=place)
    replay.session.do_work()
    world.clock.advance(CONNECT_TIMEOUT_NS + 1)
    replay.session.do_work()
    assert len(str(check_error(replay, error_codes.GENERIC, "characters left out"))) < 2000


def test_a_subscriber_that_goes_ends_the_replay() -> None:
    world = simulated(window=4096)
    world.streams.recorded(*[bytes(992)] * 50)
    replay = world.streams.replay(0, read_length=4096)
    world.streams.turn()
    assert replay.session.do_work() > 0
    assert replay.reader is not None
    replay.reader.subscription.close()
    assert replay.session.do_work() == 1
    assert (replay.session.is_done, replay.session.error) == (True, None)
    check_closed(world)


def test_a_segment_that_is_not_there_yet_is_waited_for() -> None:
    streams = simulated().streams
    recording = streams.start()
    replay = streams.replay(0)
    for _ in range(3):
        assert replay.session.do_work() == 0
    assert not replay.session.take_response()
    recording.offer(b"first")
    recording.end()
    replay.finish()
    assert payloads(replay.content()) == [b"\xc0first"]


def test_a_segment_that_does_not_come_ends_the_replay() -> None:
    world = simulated()
    world.streams.recorded(b"x")
    world.streams.store.storage.unlink("/0-0.rec")
    replay = world.streams.replay(0)
    assert replay.session.do_work() == 0
    world.clock.advance(CONNECT_TIMEOUT_NS + 1)
    assert replay.session.do_work() == 1
    error = check_error(replay, error_codes.GENERIC, "recording segment file not created", "segmentFile=0-0.rec")
    assert "/0-0.rec" not in str(error), "the client does not see where the archive's files are"
    assert not replay.session.take_response()


def test_a_segment_that_cannot_be_opened_ends_the_replay_at_once() -> None:
    world = simulated()
    world.streams.recorded(b"x")
    replay = world.streams.replay(0)
    world.disk.fail("open", errno.EACCES)
    assert replay.session.do_work() == 1
    check_error(replay, error_codes.GENERIC, "cannot be opened", "segmentFile=0-0.rec")


def test_a_missing_segment_ends_the_replay_that_comes_to_it() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 200)
    streams.store.storage.unlink(f"/0-{TERM}.rec")
    replay = streams.replay(0)
    streams.until(lambda: replay.session.is_done)
    check_error(replay, error_codes.GENERIC, "recording segment not found", f"segmentFile=0-{TERM}.rec")
    assert replay.session.position == TERM


# Following a recording


@pytest.mark.parametrize("window", [0, 4096])
@pytest.mark.parametrize("ending", ["publisher closes", "abort", "image lost", "no space"])
def test_a_replay_follows_a_recording_to_its_end(ending: str, window: int) -> None:
    world = simulated(window=window)
    streams = world.streams
    recording = streams.start()
    session = recording.session
    recording.offer(*messages(1, 20))
    recording.record()
    replay = streams.replay(0)
    for number in range(30):
        recording.offer(*messages(number, 5))
        streams.turn()
    streams.until(lambda: replay.session.position == session.recorded_position == probe.position(recording.publication))
    for _ in range(5):
        assert replay.session.do_work() == 0
    assert not replay.session.is_done
    assert session.recorded_position > 2 * TERM
    late = streams.replay(0, session.recorded_position)
    if ending == "abort":
        session.abort()
    elif ending == "image lost":
        world.driver.give_up_images(recording.publication.session_id)
    elif ending == "no space":
        world.disk.fail("write", errno.ENOSPC)
        assert probe.offer(recording.publication, b"lost") > 0
    recording.end()
    final = session.recorded_position
    replay.finish()
    late.finish()
    recording.stop()
    assert replay.session.error is None
    assert replay.session.position == final == streams.store.range(0)[1]
    assert replayed(replay) == recorded(streams, 0)
    assert (late.session.error, late.session.position, late.content()) == (None, final, b"")
    assert replay.reader is not None
    assert replay.reader.is_at_end
    check_closed(world)


def test_a_replay_does_not_pass_what_is_recorded() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(b"one")
    recording.record()
    replay = streams.replay(0)
    replay.session.do_work()
    assert probe.offer(recording.publication, b"two") > 0
    assert replay.session.do_work() == 0
    assert probe.position(replay.publication) == 64
    assert recording.session.do_work() == 64
    assert replay.session.do_work() == 64
    assert probe.position(replay.publication) == 128


def test_a_live_replay_with_a_limit_ends_there() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(bytes(992))
    recording.record()
    replay = streams.replay(0, 0, 5000)
    for _ in range(4):
        recording.offer(bytes(992))
        recording.record()
    replay.finish()
    assert replay.session.position == 5 * 1024
    assert not recording.session.is_done


def test_many_replays_follow_one_recording() -> None:
    streams = simulated(window=TERM // 2).streams
    recording = streams.start()
    replays = []
    for number in range(10):
        recording.offer(*messages(number, 10))
        recording.record()
        replays.append(streams.replay(0, boundaries(streams, 0)[number * 3]))
    recording.end()
    for number, replay in enumerate(replays):
        replay.finish()
        assert replayed(replay) == recorded(streams, 0, boundaries(streams, 0)[number * 3])


# The counter that bounds a replay


@pytest.mark.parametrize("is_active", [True, False])
def test_a_replay_never_passes_the_counter(is_active: bool) -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(*messages(9, 40))
    recording.record()
    if not is_active:
        recording.end()
        recording.stop()
    ends = boundaries(streams, 0)
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, 0)
    replay = streams.replay(0, bound=counter)
    for value in [*range(0, 3000, 16), *range(3000, ends[-1], 1000), ends[-1] - 1]:
        probe.set_counter(counter, value)
        for _ in range(4):
            streams.turn()
        assert replay.session.position == max(end for end in ends if end <= value)
        assert probe.position(replay.publication) == replay.session.position
    assert not replay.session.is_done
    probe.set_counter(counter, ends[-1])
    for _ in range(4):
        streams.turn()
    assert (replay.session.position, replay.session.is_done) == (ends[-1], not is_active)
    counter.close()
    replay.finish()
    assert replay.session.error is None
    assert replayed(replay) == recorded(streams, 0)


def test_a_counter_that_goes_back_is_not_passed_by_what_is_read_already() -> None:
    world = simulated(window=2048)
    streams = world.streams
    streams.recorded(*[bytes(992)] * 20)
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, 20 * 1024)
    replay = streams.replay(0, bound=counter)
    world.driver.publication_results(IPC, replay.stream_id, [BACK_PRESSURED])
    streams.turn()
    assert (replay.session.position, replay.session.read_bytes) == (0, 20 * 1024), "read and refused"
    probe.set_counter(counter, 4 * 1024 + 100)
    for _ in range(10):
        streams.turn()
    assert replay.session.position == 4 * 1024
    probe.set_counter(counter, 1024)
    for _ in range(10):
        streams.turn()
    assert (replay.session.position, replay.session.is_done) == (4 * 1024, False)
    probe.set_counter(counter, 20 * 1024)
    replay.finish()
    assert replayed(replay) == recorded(streams, 0)


def test_a_replay_ends_at_the_last_value_of_a_counter_that_is_gone() -> None:
    for value in (0, 1000, 1024, 3000, 5 * 1024):
        for is_seen in (False, True):
            streams = simulated().streams
            recording = streams.start()
            recording.offer(*[bytes(992)] * 5)
            recording.record()
            counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
            probe.set_counter(counter, 0)
            replay = streams.replay(0, bound=counter)
            if is_seen:
                streams.turn()
            probe.set_counter(counter, value)
            counter.close()
            replay.finish()
            assert (replay.session.position, replay.session.error) == (value // 1024 * 1024, None)
            assert not recording.session.is_done


def test_a_counter_whose_place_is_taken_bounds_as_it_was_seen_last() -> None:
    world = simulated()
    streams = world.streams
    recording = streams.start()
    recording.offer(*[bytes(992)] * 5)
    recording.record()
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, 2048)
    replay = streams.replay(0, bound=counter)
    streams.turn()
    counter.close()
    world.clock.advance(1_100_000_000)
    other = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "other")
    assert other.counter_id == counter.counter_id
    probe.set_counter(other, 5 * 1024)
    replay.finish()
    assert replay.session.position == 2048


def test_a_counter_that_is_gone_beyond_what_is_recorded_is_followed_to_its_last_value() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(bytes(992))
    recording.record()
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, 3 * 1024)
    replay = streams.replay(0, bound=counter)
    streams.turn()
    counter.close()
    for _ in range(5):
        streams.turn()
    assert (replay.session.position, replay.session.is_done) == (1024, False)
    recording.offer(*[bytes(992)] * 4)
    replay.finish()
    assert replay.session.position == 3 * 1024


def test_a_bounded_replay_ends_with_the_recording() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(*[bytes(992)] * 3)
    recording.record()
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, FOREVER)
    replay = streams.replay(0, bound=counter)
    streams.until(lambda: replay.session.position == 3 * 1024)
    assert not replay.session.is_done
    recording.end()
    replay.finish()
    assert (replay.session.position, replay.session.error) == (3 * 1024, None)


def test_a_bounded_replay_may_have_a_limit_below_the_counter() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 10)
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, 2 * 1024 + 512)
    replay = streams.replay(0, 0, 2 * 1024 + 100, bound=counter)
    for _ in range(5):
        streams.turn()
    assert (replay.session.position, replay.session.is_done) == (2 * 1024, False), "the frame ends beyond the counter"
    probe.set_counter(counter, 8 * 1024)
    replay.finish()
    assert replay.session.position == 3 * 1024


def test_a_position_beyond_what_is_recorded_is_refused_whatever_the_counter_says() -> None:
    streams = simulated().streams
    recording = streams.start()
    recording.offer(bytes(992))
    recording.record()
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    probe.set_counter(counter, 4096)
    replay = streams.replay(0, 2048, bound=counter)
    replay.session.do_work()
    check_error(replay, error_codes.INVALID_POSITION, "replayPosition=2048 does not point to a valid frame")


# Stops and failures


@pytest.mark.parametrize("state", ["INIT", "CONNECTING", "REPLAYING", "DONE"])
def test_a_replay_can_be_stopped_in_each_state(state: str) -> None:
    world = simulated(window=2048)
    streams = world.streams
    streams.recorded(*[bytes(992)] * 10)
    replay = streams.replay(0, is_subscribed=state != "CONNECTING", read_length=2048)
    session = replay.session
    if state != "INIT":
        session.do_work()
        assert session.take_response()
    if state == "DONE":
        replay.finish()
    assert f" {state} " in repr(session)
    session.abort()
    session.abort()
    assert session.is_done
    assert session.do_work() == 0
    if state == "INIT":
        check_error(replay, error_codes.GENERIC, "replay aborted")
    else:
        assert session.error is None
    assert probe.is_closed(replay.publication)
    check_closed(world)


def test_what_is_not_read_when_a_replay_is_stopped_is_never_read() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 10)
    replay = streams.replay(0, read_length=4096)
    streams.are_read = False
    streams.turn()
    assert replay.session.position == 4096
    replay.session.abort()
    probe.invoke(streams.client)
    assert replay.reader is not None
    replay.reader.read()
    assert replay.content() == b""


def test_what_is_not_read_when_the_limit_is_reached_is_read_later() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 10)
    replay = streams.replay(0)
    streams.are_read = False
    streams.until(lambda: replay.session.is_done)
    for _ in range(10):
        probe.invoke(streams.client)
    assert replay.reader is not None
    replay.reader.read()
    assert len(replay.content()) == 10 * 1024
    assert replay.reader.is_at_end


@pytest.mark.parametrize(
    ("result", "is_error"),
    [(CLOSED, False), (MAX_POSITION_EXCEEDED, True), (AeronError("scripted"), True), (-1, False)],
)
def test_a_publication_that_fails_ends_the_replay(result: int | BaseException, is_error: bool) -> None:
    world = simulated()
    streams = world.streams
    streams.recorded(*[bytes(992)] * 10)
    replay = streams.replay(0, read_length=4096)
    world.driver.publication_results(IPC, replay.stream_id, [None, result])
    assert replay.session.do_work() == 2 + 4096
    assert replay.session.do_work() == 1
    assert replay.session.position == 4096
    if is_error:
        check_error(replay, error_codes.GENERIC, "MAX_POSITION_EXCEEDED" if result == -5 else "AeronError: scripted")
    else:
        assert (replay.session.is_done, replay.session.error) == (True, None)
    check_closed(world)


def test_under_back_pressure_a_batch_is_sent_later() -> None:
    world = simulated()
    streams = world.streams
    streams.recorded(*messages(7, 100))
    replay = streams.replay(0, read_length=4096)
    draws = random.Random(1)
    results = [draws.choice([None, BACK_PRESSURED, ADMIN_ACTION]) for _ in range(200)]
    world.driver.publication_results(IPC, replay.stream_id, results)
    replay.finish()
    assert replayed(replay) == recorded(streams, 0)
    assert replay.session.read_bytes == len(replay.content())


def test_a_slow_subscriber_gets_all_of_it() -> None:
    world = simulated(window=1500)
    streams = world.streams
    streams.recorded(*messages(11, 100))
    replay = streams.replay(0, read_length=4096)
    streams.are_read = False
    reader = replay.reader
    assert reader is not None
    for number in range(100_000):
        streams.turn()
        if number % 3 == 0:
            reader.read(1408, blocks=1)
        ahead = replay.session.position - max(reader.position, 0)
        assert ahead < 1500 + 4096 or replay.session.position % TERM == 0, "one batch beyond the window"
        if reader.is_at_end:
            break
    assert replayed(replay) == recorded(streams, 0)


def damage(storage: Storage, offset: int, content: bytes) -> None:
    storage.open_file("/0-0.rec", 0).write(content, offset)


@pytest.mark.parametrize(
    ("offset", "content", "text"),
    [
        (0, bytes(4), "unexpected end of recording: frame length is 0"),
        (0, b"\xff\xff\xff\x7f", "frame length 2147483647 is impossible"),
        (6, b"\x07", "frame type is 7"),
        (8, b"\x08", "term offset of the frame"),
        (16, b"\xff", "stream id of the frame"),
        (20, b"\xff", "term id of the frame"),
    ],
)
def test_what_is_no_frame_is_not_sent(offset: int, content: bytes, text: str) -> None:
    world = simulated()
    world.streams.recorded(*[bytes(992)] * 5)
    damage(world.streams.store.storage, 2048 + offset, content)
    replay = world.streams.replay(0)
    world.streams.until(lambda: replay.session.is_done)
    check_error(replay, error_codes.GENERIC, text, "position=2048", "segmentFile=0-0.rec")
    assert replay.session.position == 2048
    check_closed(world)


def test_a_frame_with_a_wrong_checksum_is_not_sent() -> None:
    world = simulated(checksum=CRC32)
    world.streams.recorded(*[bytes(992)] * 5)
    damage(world.streams.store.storage, 1024 + 100, b"x")
    replay = world.streams.replay(0)
    world.streams.until(lambda: replay.session.is_done)
    check_error(replay, error_codes.GENERIC, "CRC checksum mismatch", "position=1024")


def test_a_recording_that_ends_within_a_frame_is_an_error() -> None:
    streams = simulated().streams
    streams.recorded(bytes(992), bytes(992))
    streams.store.store.catalog.set_stop(0, 1024 + 512, 0)
    replay = streams.replay(0)
    streams.until(lambda: replay.session.is_done)
    check_error(replay, error_codes.GENERIC, "unexpected end of recording at position=1024")


def test_a_disk_that_fails_ends_the_replay() -> None:
    world = simulated()
    world.streams.recorded(*[bytes(992)] * 5)
    replay = world.streams.replay(0, read_length=1024)
    world.streams.turn()
    world.disk.fail("read", errno.EIO)
    world.streams.turn()
    check_error(replay, error_codes.GENERIC, "cannot read", "segmentFile=0-0.rec")


@pytest.mark.parametrize(
    "place", ["init-term-id=11|term-id=11|term-offset=64", "init-term-id=12|term-id=12|term-offset=0"]
)
def test_a_publication_that_does_not_fit_the_recording_is_refused(place: str) -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 5)
    replay = streams.replay(0, place=place)
    streams.until(lambda: replay.session.is_done)
    check_error(replay, error_codes.GENERIC)
    assert replay.session.position == 0


def test_a_publication_that_is_closed_ends_the_replay() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 5)
    for turns in range(3):
        replay = streams.replay(0, is_subscribed=turns == 2, read_length=1024)
        for _ in range(turns):
            replay.session.do_work()
        replay.publication.close()
        assert replay.session.do_work() == 1
        assert replay.session.is_done
        text = ["replay publication is closed", "no connection established", None][turns]
        if text is None:
            assert replay.session.error is None
        else:
            check_error(replay, error_codes.GENERIC, text)


def test_arguments_that_contradict_each_other_are_refused() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 5)
    recording = streams.start()
    good = streams.replay(0)

    def make(
        position: int, length: int, *, recording: RecordingSession | None = None, stop_position: int = -1
    ) -> ReplaySession:
        return ReplaySession(
            1,
            2,
            streams.store.store.open_reader(0, 1024),
            good.publication,
            replay_range=ReplayRange(position, length, 5 * 1024),
            recording=recording,
            stop_position=stop_position,
            connect_deadline_ns=0,
            clock=streams.clock,
        )

    for position, length in ((0, 1024), (1024, -1), (1024, FOREVER)):
        with pytest.raises(ValueError, match="cannot be replayed by a reader at 1024"):
            make(position, length, stop_position=5 * 1024)
    with pytest.raises(ValueError, match="neither a session nor a stop position"):
        make(1024, 1024)
    with pytest.raises(ValueError, match="the session of recording 1 is not that of 0"):
        make(1024, 1024, recording=recording.session)
    session = make(1024, FOREVER - 1024, stop_position=5 * 1024)
    assert (session.replay_session_id, session.correlation_id, session.recording_id) == (1, 2, 0)
    assert (session.owner, session.error, session.position) == (None, None, 1024)
    assert good.session.owner is streams
    assert repr(session) == "<ReplaySession 1 recording_id=0 INIT position=1024>"


def test_a_client_that_is_closed_ends_its_replays() -> None:
    streams = simulated().streams
    streams.recorded(*[bytes(992)] * 5)
    replay = streams.replay(0, read_length=1024)
    streams.turn()
    streams.client.close()
    assert replay.session.do_work() == 1
    assert replay.session.is_done


# By chance


@pytest.mark.parametrize("seed", range(80))
def test_any_course_of_recording_and_replay_gives_the_same_frames(seed: int) -> None:
    draws = random.Random(seed)
    world = simulated(
        level=draws.choice([0, 1]),
        window=draws.choice([0, 1500, 5000, TERM // 2]),
        segment_length=draws.choice([TERM, 2 * TERM, 4 * TERM]),
        checksum=draws.choice([0, CRC32]),
    )
    streams = world.streams
    recording = streams.start(block_length_limit=draws.choice([1, 4000, 1 << 20]))
    counter = probe.add_counter(streams.client, COUNTER_TYPE_ID, b"", "bound")
    asked: list[tuple[int, bool]] = []
    for number in range(draws.randrange(20, 60)):
        recording.offer(*messages(seed * 100 + number, draws.randrange(6)))
        if draws.random() < 0.3:
            recording.record()
            begins = boundaries(streams, 0) or [0]
            position = draws.choice(begins)
            is_bounded = draws.random() < 0.4
            probe.set_counter(counter, max(counter.value, position))
            streams.replay(
                0,
                position,
                bound=counter if is_bounded else None,
                read_length=draws.choice([0, 1, 3000]),
            )
            asked.append((position, is_bounded))
        for replay, (position, is_bounded) in zip(streams.replays, asked, strict=True):
            if is_bounded:
                assert position <= replay.session.position <= max(counter.value, position)
        if draws.random() < 0.3:
            probe.set_counter(counter, max(counter.value, draws.randrange(recording.session.recorded_position + 1)))
        streams.are_read = draws.random() < 0.7
        for replay in streams.replays:
            if draws.random() < 0.01:
                replay.session.abort()
    streams.are_read = True
    if draws.random() < 0.3:
        recording.session.abort()
    recording.end()
    recording.stop()
    probe.set_counter(counter, FOREVER)
    whole = recorded(streams, 0)
    for replay, (position, _) in zip(streams.replays, asked, strict=True):
        replay.finish()
        assert replay.session.error is None or "replay aborted" in str(replay.session.error)
        expected = recorded(streams, 0, position)
        if replay.session.position == streams.store.range(0)[1]:
            assert replayed(replay) == expected
        else:
            assert expected.startswith(replayed(replay))
    assert whole == with_ids(recording.observer.content)[: len(whole)]
    check_closed(world)
