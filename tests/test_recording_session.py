"""A recording session: what it writes, when its counter moves, how it ends and what is left then."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from container.archive import error_codes
from container.archive.server.sessions.recording_session import RecordingSession
from container.errors import AeronError, ArchiveError
from container.testing.memory import transport_probe as probe
from container.testing.memory.memory_transport import ManualClock
from container.transport.streams import Publication
from tests.archive_streams import (
    CORRELATION_ID,
    IPC,
    SUBSCRIPTION_ID,
    TERM,
    Reader,
    Recording,
    Simulated,
    Streams,
    frames,
    payloads,
    simulated,
)


def messages(seed: int, count: int) -> list[bytes]:
    """Empty, short, as long as a frame, and longer, which takes several frames."""
    draws = random.Random(seed)
    lengths = [0, 1, 31, 32, 33, 992, 1375, 1376, 1377, 4000, 8000]
    return [bytes([number % 256]) * draws.choice(lengths) for number in range(count)]


def check_recorded(recording: Recording, *, stop_position: int | None = None) -> None:
    """The recording is what another subscriber has read, and ends where it should."""
    streams, observer = recording.streams, recording.observer
    descriptor = streams.descriptor(recording.recording_id)
    assert descriptor.start_position == observer.begin
    assert descriptor.stop_position == (observer.position if stop_position is None else stop_position)
    assert recording.content() == observer.content


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("segment_length", [TERM, 4 * TERM])
@pytest.mark.parametrize("limit", [1 << 20, 5000, 1])
def test_what_is_published_is_recorded(level: int, segment_length: int, limit: int) -> None:
    world = simulated(level=level, segment_length=segment_length, window=TERM // 2)
    recording = world.streams.start(block_length_limit=limit)
    session = recording.session
    recording.offer(*messages(limit, 250))
    recording.end()
    assert (session.is_done, session.error) == (True, None)
    assert recording.observer.position > 3 * TERM
    assert recording.counter.value == session.recorded_position == recording.observer.position
    recording.stop()
    assert world.streams.store.segments()[-1] == recording.observer.position // segment_length * segment_length
    check_recorded(recording)
    world.streams.store.reopen()
    assert recording.content() == recording.observer.content
    assert world.driver.open_resources() == []


def test_a_cycle_records_one_block() -> None:
    recording = simulated().streams.start(block_length_limit=2000)
    session = recording.session
    assert session.do_work() == 1, "the segment is opened"
    assert session.do_work() == 0
    for payload in (b"a" * 992, b"b" * 992, b"c"):
        assert probe.offer(recording.publication, payload) > 0
    assert session.do_work() == 1024
    assert (session.recorded_position, recording.counter.value) == (1024, 1024)
    assert session.do_work() == 1024 + 64
    assert session.do_work() == 0
    assert (session.recorded_position, session.is_done) == (2112, False)
    assert payloads(recording.content()) == [b"\xc0" + payload for payload in (b"a" * 992, b"b" * 992, b"c")]


def test_a_frame_is_recorded_however_low_the_limit() -> None:
    recording = simulated().streams.start(block_length_limit=-5)
    recording.offer(bytes(1376))
    recording.record()
    assert recording.session.recorded_position == 1408


def test_padding_is_a_block_of_its_own_and_its_header_is_stored() -> None:
    clock = ManualClock()
    recording = simulated(segment_length=2 * TERM).streams.start(clock=clock)
    recording.fill(1024)
    recording.record()
    session = recording.session
    written = session.written_bytes
    assert written == TERM - 1024
    probe.offer(recording.publication, bytes(1376))
    probe.offer(recording.publication, bytes(1376))
    assert session.do_work() == 1024
    assert session.written_bytes == written + 32
    assert recording.counter.value == TERM
    assert session.do_work() == 1408
    assert session.written_bytes == written + 32 + 1408
    recording.end()
    recording.stop()
    check_recorded(recording)


def test_writes_are_counted_and_timed() -> None:
    clock = ManualClock(auto_advance_ns=1000)
    recording = simulated().streams.start(clock=clock)
    recording.offer(bytes(100))
    recording.record()
    recording.offer(bytes(10))
    recording.record()
    session = recording.session
    assert session.written_bytes == 160 + 64
    assert (session.write_time_ns, session.longest_write_ns) == (2000, 1000)
    untimed = simulated().streams.start()
    untimed.offer(bytes(100))
    untimed.record()
    assert (untimed.session.written_bytes, untimed.session.write_time_ns) == (160, 0)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_counter_moves_when_the_block_is_written(level: int) -> None:
    """Seen from the disk: while a block is written, forced, and its position noted, the counter says the one before."""
    seen: list[tuple[str, int]] = []
    recording: Recording | None = None

    def look(kind: str, _length: int) -> None:
        if recording is not None:
            seen.append((kind, recording.counter.value))

    world = simulated(level=level, on_latency=look)
    recording = world.streams.start()
    world.streams.turn()
    for number in range(20):
        seen.clear()
        before = recording.counter.value
        assert probe.offer(recording.publication, bytes(1376 + 17 * number)) > 0
        probe.invoke(world.streams.client)
        recording.observer.read()
        assert recording.session.do_work() > 0
        assert {value for _, value in seen} == {before}
        kinds = [kind for kind, _ in seen]
        assert "write" in kinds
        if level > 0:
            assert kinds.index("write") < kinds.index("force")
        assert recording.counter.value == recording.session.recorded_position > before


def test_a_recording_begins_where_its_image_joins() -> None:
    world = simulated()

    def publish(publication: Publication, observer: Reader) -> None:
        while probe.position(publication) < TERM + 4096:
            probe.offer(publication, bytes(3000))
            observer.read()

    recording = world.streams.start(before=publish)
    observer = recording.observer
    begin = recording.session.image.join_position
    assert begin == observer.position > TERM
    recording.offer(b"late")
    recording.end()
    recording.stop()
    assert world.streams.store.segments() == [TERM]
    assert world.streams.store.range(0) == (begin, begin + 64)
    assert payloads(recording.content()) == [b"\xc0late"]


# How it ends


def test_a_recording_ends_with_its_stream_when_all_is_recorded() -> None:
    recording = simulated().streams.start(block_length_limit=1500)
    recording.offer(*messages(3, 30))
    recording.publication.close()
    session = recording.session
    while not session.is_done:
        assert session.do_work() > 0
        recording.observer.read()
    assert session.recorded_position == recording.observer.position
    assert session.do_work() == 0
    recording.stop()
    check_recorded(recording)


def test_a_recording_whose_image_is_lost_ends_with_what_was_consumed() -> None:
    world = simulated()
    recording = world.streams.start()
    recording.offer(b"one")
    recording.record()
    assert probe.offer(recording.publication, b"two") > 0
    world.driver.give_up_images(recording.publication.session_id)
    assert recording.session.do_work() == 1
    assert (recording.session.is_done, recording.session.error) == (True, None)
    recording.stop()
    assert world.streams.store.range(0) == (0, 64)
    assert payloads(recording.content()) == [b"\xc0one"]


def test_a_recording_of_a_revoked_stream_ends_with_what_was_consumed() -> None:
    recording = simulated().streams.start()
    recording.offer(b"one")
    recording.record()
    assert probe.offer(recording.publication, b"two") > 0
    recording.publication.revoke()
    probe.invoke(recording.streams.client)
    assert recording.session.do_work() == 1
    assert recording.session.is_done
    assert recording.session.recorded_position == 64


def test_an_abort_does_not_drain() -> None:
    recording = simulated().streams.start()
    recording.offer(b"one")
    recording.record()
    assert probe.offer(recording.publication, b"two") > 0
    session = recording.session
    session.abort()
    session.abort()
    assert session.do_work() == 0
    assert (session.is_done, session.error, session.recorded_position) == (True, None, 64)
    recording.stop()
    assert recording.streams.store.range(0) == (0, 64)


def test_an_abort_before_the_first_cycle_leaves_an_empty_recording() -> None:
    recording = simulated().streams.start()
    recording.session.abort()
    assert recording.session.do_work() == 0
    recording.stop()
    assert recording.streams.store.range(0) == (0, 0)
    assert recording.streams.store.segments() == []
    recording.streams.store.reopen()
    again = recording.streams.start(recording.streams.continued(0), extended=0)
    again.offer(b"now")
    again.end()
    again.stop()
    assert payloads(again.content()) == [b"\xc0now"]


def fail_write(world: Simulated, error: int) -> None:
    world.disk.fail("write", error, written=100)


def fail_force(world: Simulated, error: int) -> None:
    world.disk.fail("force", error)


def fail_extension(world: Simulated, error: int) -> None:
    world.disk.fail("open", error)


@pytest.mark.parametrize("fail", [fail_write, fail_force])
@pytest.mark.parametrize(
    ("error", "code"), [(errno.ENOSPC, error_codes.STORAGE_SPACE), (errno.EIO, error_codes.GENERIC)]
)
def test_a_recording_that_cannot_be_written_ends_where_it_was(
    fail: Callable[[Simulated, int], None], error: int, code: int
) -> None:
    world = simulated(level=1)
    recording = world.streams.start()
    recording.offer(b"one")
    recording.record()
    assert probe.offer(recording.publication, b"x" * 1000) > 0
    fail(world, error)
    session = recording.session
    assert session.do_work() == 1
    assert (session.is_done, session.recorded_position, recording.counter.value) == (True, 64, 64)
    assert probe.position(session.image) == 64 + 1056, "the block is consumed"
    check_error(session, code, "recording 0 cannot continue at 64")
    assert session.do_work() == 0
    recording.stop()
    assert world.streams.store.range(0) == (0, 64)
    assert world.streams.store.content(0)[64:] == bytes(TERM - 64), "the tail is cleared"
    assert payloads(recording.content()) == [b"\xc0one"]


def check_error(session: RecordingSession, code: int, text: str) -> None:
    error = session.error
    assert isinstance(error, ArchiveError)
    assert (error.code, error.correlation_id) == (code, CORRELATION_ID)
    assert text in str(error)
    assert len(str(error)) < 5000
    assert error.__cause__ is not None


def test_a_full_disk_ends_a_recording() -> None:
    world = simulated()
    recording = world.streams.start()
    recording.offer(*messages(1, 20))
    recording.record()
    position = recording.session.recorded_position
    world.disk.capacity = 0
    assert probe.offer(recording.publication, b"x" * 8000) > 0
    assert probe.offer(recording.publication, b"x" * 8000) > 0
    recording.streams.until(lambda: recording.session.is_done)
    check_error(recording.session, error_codes.STORAGE_SPACE, "cannot continue")
    assert recording.counter.value == recording.session.recorded_position >= position
    recording.stop()
    assert recording.content() == recording.observer.content[: len(recording.content())]


def test_a_segment_that_does_not_open_ends_the_recording_before_it_begins() -> None:
    world = simulated()
    recording = world.streams.start()
    world.disk.fail("open", errno.EACCES)
    assert recording.session.do_work() == 1
    assert recording.session.is_done
    check_error(recording.session, error_codes.GENERIC, "cannot continue at 0")
    recording.stop()
    assert world.streams.store.range(0) == (0, 0)


def test_a_next_segment_that_is_there_already_ends_the_recording() -> None:
    world = simulated()
    recording = world.streams.start()
    world.streams.turn()
    world.streams.store.put(f"0-{TERM}.rec", b"unknown")
    recording.fill(1024)
    recording.record()
    assert probe.offer(recording.publication, bytes(992)) > 0
    recording.streams.until(lambda: recording.session.is_done)
    check_error(recording.session, error_codes.GENERIC, "segment file already exists")
    recording.stop()
    assert world.streams.store.range(0) == (0, TERM - 1024)
    assert world.streams.store.content(0, TERM).startswith(b"unknown")


def test_any_failure_of_a_poll_ends_the_recording() -> None:
    world = simulated()
    recording = world.streams.start()
    recording.offer(b"one")
    recording.record()
    log = world.driver.log(IPC, recording.publication.stream_id)
    assert probe.offer(recording.publication, b"two") > 0
    log.overwrite(64, (TERM + 1).to_bytes(4, "little"))
    recording.session.do_work()
    assert recording.session.is_done
    check_error(recording.session, error_codes.GENERIC, "AeronError: impossible frame length")
    error = recording.session.error
    assert error is not None
    assert isinstance(error.__cause__, AeronError)


def test_a_stream_that_is_not_contiguous_is_not_recorded() -> None:
    """The image of another position than the writer's: nothing of it comes to be in the recording."""
    world = simulated()
    recording = world.streams.start()
    recording.offer(b"one", b"two")
    assert len(probe.poll_blocks(recording.session.image, 64)) == 64
    recording.streams.until(lambda: recording.session.is_done)
    check_error(recording.session, error_codes.GENERIC, "is not whole frames of recording 0 at 0")
    recording.stop()
    assert world.streams.store.range(0) == (0, 0)


# Other things


def test_an_extended_recording_neither_lacks_a_frame_nor_has_one_twice() -> None:
    streams = simulated(segment_length=2 * TERM, window=TERM // 2).streams
    published: list[bytes] = []
    for number in range(8):
        recording = streams.start() if number == 0 else streams.start(streams.continued(0), extended=0)
        recording.offer(*messages(number, 40))
        recording.end()
        recording.stop()
        published.append(bytes(recording.observer.content))
        assert streams.store.range(0) == (0, recording.observer.position)
        if number % 3 == 2:
            streams.store.reopen()
    assert recording.content() == b"".join(published)
    positions = [position for position, _ in frames(recording.content(), 0)]
    assert positions == sorted(set(positions))


def test_recordings_beside_each_other_have_their_own_frames() -> None:
    streams = simulated(window=TERM // 2).streams
    recordings = [streams.start() for _ in range(5)]
    for number in range(60):
        for index, recording in enumerate(recordings):
            recording.offer(bytes([index]) * (number * 41 % 3000))
    for recording in recordings:
        recording.end()
        recording.stop()
        check_recorded(recording)


def test_a_session_has_what_its_owner_needs() -> None:
    streams = simulated().streams
    recording = streams.start()
    session = recording.session
    assert (session.recording_id, session.subscription_id, session.correlation_id) == (
        0,
        SUBSCRIPTION_ID,
        CORRELATION_ID,
    )
    assert session.owner is streams
    assert session.counter is recording.counter
    assert session.image.session_id == recording.publication.session_id
    assert session.writer.recording_id == 0
    assert not session.is_auto_stop
    assert repr(session) == "<RecordingSession recording_id=0 INIT recorded_position=0>"
    session.do_work()
    assert "RECORDING" in repr(session)
    auto = RecordingSession(
        0, 1, 2, session.image, session.counter, session.writer, block_length_limit=1, is_auto_stop=True
    )
    assert auto.is_auto_stop
    assert auto.owner is None


def test_a_client_that_is_closed_ends_the_recording() -> None:
    recording = simulated().streams.start()
    recording.offer(b"one")
    recording.record()
    recording.streams.client.close()
    assert recording.session.do_work() == 1
    assert (recording.session.is_done, recording.session.recorded_position) == (True, 64)


@pytest.mark.parametrize("seed", range(60))
def test_any_course_of_things_leaves_what_the_counter_said(seed: int) -> None:
    """Messages, faults of the disk and ends by chance: the recording is whole up to its last position."""
    draws = random.Random(seed)
    world = simulated(level=draws.choice([0, 1, 2]), segment_length=draws.choice([TERM, 2 * TERM]), window=TERM // 2)
    recording = world.streams.start(block_length_limit=draws.choice([1, 3000, 1 << 20]))
    session = recording.session
    has_fault = draws.random() < 0.5
    if has_fault:
        kind = draws.choice(["write", "force", "open", "extend", "force_directory"])
        error = draws.choice([errno.EIO, errno.ENOSPC])
        world.disk.fail(kind, error, after=draws.randrange(60), written=draws.randrange(200))
    for message in messages(seed, draws.randrange(150)):
        recording.offer(message)
        assert recording.counter.value <= session.recorded_position
        if draws.random() < 0.02:
            session.abort()
    if draws.random() < 0.5:
        session.abort()
    recording.end()
    position = session.recorded_position
    assert recording.counter.value <= position
    assert session.error is not None or recording.counter.value == position
    recording.stop()
    assert world.streams.store.range(0)[1] == position
    content = recording.content()
    assert recording.observer.content.startswith(content)
    if session.error is not None or not has_fault:  # else the fault is still to come
        world.streams.store.reopen()
        assert recording.content() == content
    assert world.driver.open_resources() == []


def test_streams_are_not_mixed_up() -> None:
    """The helpers of these tests do see a difference."""
    streams: Streams = simulated().streams
    recording = streams.start()
    recording.offer(b"one")
    recording.end()
    recording.stop()
    recording.observer.content = recording.observer.content[:-1] + b"x"
    with pytest.raises(AssertionError):
        check_recorded(recording)
