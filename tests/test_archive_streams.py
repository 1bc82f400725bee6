"""Recording and replay over a real driver, on files: what is published comes back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from container.aeron import AeronClient, MediaDriver
from container.testing.memory import transport_probe as probe
from container.testing.processes.endpoints import PortReservation
from tests.archive_streams import HEADER, PADDING, TERM, Streams, frames, on_files, payloads, with_ids

LONG_TERMS = "aeron:ipc?term-length=1m|mtu=1408"
MAX_MESSAGE_LENGTH = TERM // 8


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        publication_linger_timeout_ns=50_000_000,
        image_liveness_timeout_ns=500_000_000,
        timer_interval_ns=20_000_000,
    ) as driver:
        yield driver


@pytest.fixture
def streams(driver: MediaDriver, tmp_path: Path) -> Iterator[Streams]:
    client = AeronClient(driver.aeron_dir, use_invoker=True)
    yield on_files(client, str(tmp_path))
    client.close()


@pytest.mark.parametrize("frame_length", [1024, 1408])
def test_ten_megabytes_come_back(driver: MediaDriver, tmp_path: Path, frame_length: int) -> None:
    client = AeronClient(driver.aeron_dir, use_invoker=True)
    streams = on_files(client, str(tmp_path), segment_length=4 << 20)
    draws = random.Random(frame_length)
    recording = streams.start(LONG_TERMS)
    published = [draws.randbytes(frame_length - 32) for _ in range(10_000_000 // frame_length)]
    recording.offer(*published)
    recording.end()
    recording.stop()
    assert recording.session.error is None
    content = recording.content()
    assert content == recording.observer.content
    assert [payload[1:] for payload in payloads(content)] == published
    assert any(HEADER.unpack_from(frame)[3] == PADDING for _, frame in frames(content, 0)) == (frame_length == 1408)
    assert streams.store.segments() == [0, 4 << 20, 8 << 20]
    replay = streams.replay(0)
    replay.finish()
    assert replay.session.error is None
    assert replay.content() == with_ids(replay.content(), replay.publication.session_id, replay.stream_id)
    assert with_ids(replay.content()) == with_ids(content)
    assert replay.reader is not None
    assert (replay.reader.begin, replay.reader.position) == streams.store.range(0)
    client.close()


def test_a_replay_follows_a_recording_of_several_sessions_to_its_end(streams: Streams) -> None:
    streams.recorded(*[bytes([number]) * 900 for number in range(100)])
    recording = streams.start(streams.continued(0), extended=0)
    begin = recording.session.image.join_position
    assert begin == recording.session.recorded_position > TERM
    replay = streams.replay(0)
    published = [bytes([number]) * (number * 11) for number in range(200)]
    recording.offer(*published)
    streams.until(lambda: replay.session.position == probe.position(recording.publication))
    assert not replay.session.is_done
    recording.end()
    replay.finish()
    recording.stop()
    assert replay.session.error is None
    assert replay.session.position == streams.store.range(0)[1]
    assert with_ids(replay.content()) == with_ids(recording.content())
    assert replay.reader is not None
    assert replay.reader.is_at_end


def test_padding_longer_than_a_message_comes_back(streams: Streams) -> None:
    """The C client appends none that is so long: it becomes several frames, and all others are where they were."""
    recording = streams.start()
    recording.fill(MAX_MESSAGE_LENGTH + 1024)
    recording.offer(bytes(896), bytes(MAX_MESSAGE_LENGTH), b"behind")
    recording.end()
    recording.stop()
    content = recording.content()
    longest = max(HEADER.unpack_from(frame)[0] for _, frame in frames(content, 0))
    assert longest == MAX_MESSAGE_LENGTH + 1024 - 928 > MAX_MESSAGE_LENGTH + 32
    replay = streams.replay(0)
    replay.finish()
    assert replay.session.error is None
    assert replay.reader is not None
    assert replay.reader.position == streams.store.range(0)[1]
    assert payloads(replay.content()) == payloads(content)


def test_a_replay_that_is_stopped_takes_what_is_not_read_with_it(streams: Streams) -> None:
    streams.recorded(*[bytes(992)] * 200)
    replay = streams.replay(0)
    reader = replay.reader
    assert reader is not None
    streams.are_read = False

    def has_image() -> bool:
        reader.read(blocks=0)
        return reader.image is not None

    streams.until(lambda: has_image() and replay.session.position > 0)
    replay.session.abort()
    assert (replay.session.is_done, replay.session.error) == (True, None)
    streams.until(lambda: reader.is_closed)
    reader.read()
    assert reader.content == b""


def test_a_replay_ends_with_its_subscriber(streams: Streams) -> None:
    streams.recorded(*[bytes(992)] * 200)
    replay = streams.replay(0)
    reader = replay.reader
    assert reader is not None
    streams.are_read = False
    streams.until(lambda: replay.session.position > 0)
    reader.subscription.close()
    streams.until(lambda: replay.session.is_done)
    assert replay.session.error is None
    assert replay.session.position < streams.store.range(0)[1]
    assert probe.is_closed(replay.publication)


def test_a_replay_waits_for_its_subscriber(streams: Streams) -> None:
    streams.recorded(b"x")
    replay = streams.replay(0, is_subscribed=False)
    streams.until(replay.session.take_response)
    for _ in range(10):
        streams.turn()
    assert replay.session.position == 0
    replay.finish()
    assert payloads(replay.content()) == [b"\xc0x"]


def test_a_recording_of_a_revoked_stream_ends(streams: Streams) -> None:
    recording = streams.start()
    recording.offer(b"one")
    recording.record()
    recording.publication.revoke()
    streams.until(lambda: recording.session.is_done)
    assert (recording.session.error, recording.session.recorded_position) == (None, 64)
    recording.stop()
    assert streams.store.range(0) == (0, 64)


def test_a_replay_over_udp_comes_back(streams: Streams) -> None:
    streams.recorded(*[bytes([number]) * 1000 for number in range(200)])
    with closing(PortReservation()) as ports:
        replay = streams.replay(0, endpoint=f"localhost:{ports.take()}")
        replay.finish()
    assert replay.session.error is None
    assert with_ids(replay.content()) == with_ids(streams.store.frames(0))
