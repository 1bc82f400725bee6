"""The seam over the embedded C media driver: publications, subscriptions, images, counters, ids and errors."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from container.aeron import AeronClient, MediaDriver
from container.errors import (
    AeronError,
    ClosedError,
    ConfigurationError,
    ContainerError,
    DriverTimeoutError,
    RegistrationError,
)
from container.testing.memory import transport_probe as probe
from container.testing.processes.endpoints import PortReservation
from container.transport.fragment_assembler import FragmentAssembler
from container.transport.streams import Image
from tests.aeron_session import IPC, Stream, connect, until, until_open
from tests.limits import LIMIT_S

TERM_LENGTH = 64 * 1024
MTU_PAYLOAD = 1376
HEADER = 32
ABORT, BREAK, COMMIT = 1, 2, 3


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        term_buffer_length=TERM_LENGTH,
        ipc_term_buffer_length=TERM_LENGTH,
        publication_linger_timeout_ns=50_000_000,
        timer_interval_ns=20_000_000,
    ) as driver:
        yield driver


@pytest.fixture
def udp() -> Iterator[str]:
    ports = PortReservation()
    yield f"aeron:udp?endpoint=localhost:{ports.take()}"
    ports.close()


@pytest.fixture(params=["invoker", "own thread"])
def client(driver: MediaDriver, request: pytest.FixtureRequest) -> Iterator[AeronClient]:
    with AeronClient(driver.aeron_dir, "test", use_invoker=request.param == "invoker") as client:
        yield client


@pytest.fixture
def invoker(driver: MediaDriver) -> Iterator[AeronClient]:
    with AeronClient(driver.aeron_dir) as client:
        yield client


@pytest.fixture
def stream(invoker: AeronClient) -> Stream:
    return connect(invoker)


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
@pytest.mark.parametrize("media", ["ipc", "udp"])
def test_messages_arrive_in_order(client: AeronClient, udp: str, media: str, exclusive: bool) -> None:
    stream = connect(client, udp if media == "udp" else IPC, exclusive=exclusive)
    messages = [b"", b"x", bytes(range(256)), b"y" * MTU_PAYLOAD]
    for message in messages:
        stream.offer(message)
    assert stream.receive(len(messages)) == messages


def test_the_frame_header_is_that_of_the_frame(stream: Stream) -> None:
    assert stream.offer(b"a" * 33) == 96
    assert stream.offer(b"b") == 160
    (_, first), (_, second) = probe.poll(stream.image)
    assert (first["position"], second["position"]) == (96, 160)
    assert (first["frame_length"], second["frame_length"]) == (HEADER + 33, HEADER + 1)
    assert (first["term_offset"], second["term_offset"]) == (0, 96)
    assert first["session_id"] == stream.publication.session_id == stream.image.session_id
    assert first["stream_id"] == stream.publication.stream_id
    assert first["term_id"] == first["initial_term_id"]
    assert first["position_bits_to_shift"] == 16
    assert first["flags"] == 0xC0
    assert first["reserved_value"] == 0


def test_a_publication_tells_its_constants(stream: Stream) -> None:
    publication = stream.publication
    assert publication.channel == IPC
    assert publication.registration_id > 0
    assert publication.max_payload_length == MTU_PAYLOAD
    assert publication.term_buffer_length == TERM_LENGTH
    assert publication.max_message_length == TERM_LENGTH // 8
    assert probe.position(publication) == 0
    assert repr(publication) == (
        f"<AeronPublication aeron:ipc stream_id={publication.stream_id} session_id={publication.session_id}>"
    )


def test_two_shared_publications_are_one_session_and_two_exclusive_ones_are_not(client: AeronClient) -> None:
    first = probe.add_publication(client, IPC, 1002)
    second = probe.add_publication(client, IPC, 1002)
    assert first.session_id == second.session_id
    assert first.registration_id != second.registration_id
    third = probe.add_publication(client, IPC, 1002, exclusive=True)
    fourth = probe.add_publication(client, IPC, 1002, exclusive=True)
    assert len({first.session_id, third.session_id, fourth.session_id}) == 3


def test_a_long_message_arrives_in_frames_and_is_reassembled(stream: Stream) -> None:
    message = os.urandom(5000)
    stream.offer(message)
    collector = probe.CollectingHandler()
    assembler = FragmentAssembler(collector)
    assert probe.poll_with(stream.image, assembler, 2) == 2
    assert collector.messages == []
    assert probe.poll_with(stream.image, assembler, 10) == 2
    ((data, header),) = collector.messages
    assert data == message
    assert header["frame_length"] == HEADER + 5000
    assert header["position"] == probe.position(stream.image) == probe.position(stream.publication)


def test_offered_vectors_are_one_message(stream: Stream) -> None:
    position = probe.offer_vectors(stream.publication, [b"head", b"", b"body" * 500])
    assert position > 0
    collector = probe.CollectingHandler()
    probe.poll_with(stream.image, FragmentAssembler(collector))
    assert [data for data, _ in collector.messages] == [b"head" + b"body" * 500]
    assert probe.offer_vectors(stream.publication, []) == position + HEADER
    assert stream.receive(1) == [b""]


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_a_claim_is_seen_once_committed_and_never_when_aborted(invoker: AeronClient, exclusive: bool) -> None:
    stream = connect(invoker, exclusive=exclusive)
    claim = probe.claim(stream.publication, 5)
    assert isinstance(claim, probe.OpenClaim)
    claim.write(b"hello")
    assert probe.poll(stream.image) == []
    claim.commit()
    assert stream.receive(1) == [b"hello"]
    assert probe.try_claim(stream.publication, b"never", abort=True) > 0
    assert probe.try_claim(stream.publication, b"after") > 0
    assert stream.receive(1) == [b"after"]
    with pytest.raises(AeronError, match="cannot commit a claim that .* is committed or aborted already"):
        claim.commit()
    with pytest.raises(AeronError, match="cannot abort a claim"):
        claim.abort()


def test_a_claim_of_a_closed_publication_cannot_be_committed(stream: Stream) -> None:
    claim = probe.claim(stream.publication, 5)
    assert isinstance(claim, probe.OpenClaim)
    stream.publication.close()
    with pytest.raises(ClosedError, match="cannot commit a claim: publication aeron:ipc stream .* is closed"):
        claim.commit()
    with pytest.raises(ClosedError, match="cannot abort a claim"):
        claim.abort()


def test_a_message_that_is_too_long_is_refused_with_its_length_and_the_limit(stream: Stream) -> None:
    limit = stream.publication.max_message_length
    with pytest.raises(AeronError, match=rf"{limit + 1} bytes is longer than the max_message_length of {limit}"):
        probe.offer(stream.publication, bytes(limit + 1))
    with pytest.raises(AeronError, match=rf"{limit + 2} bytes is longer than the max_message_length of {limit}"):
        probe.offer_vectors(stream.publication, [bytes(limit), b"ab"])
    with pytest.raises(AeronError, match=r"1377 bytes is longer than the max_payload_length of 1376") as raised:
        probe.try_claim(stream.publication, bytes(MTU_PAYLOAD + 1))
    assert not isinstance(raised.value, RegistrationError)
    assert stream.offer(bytes(limit)) > 0


def test_offers_without_a_subscriber_are_not_connected(client: AeronClient) -> None:
    publication = probe.add_publication(client, IPC, 1003)
    assert not probe.is_connected(publication)
    assert probe.result_name(probe.offer(publication, b"x")) == "NOT_CONNECTED"
    assert probe.result_name(probe.offer_vectors(publication, [b"x"])) == "NOT_CONNECTED"
    assert probe.result_name(probe.try_claim(publication, b"x")) == "NOT_CONNECTED"


def test_offers_beyond_the_window_are_back_pressured_until_they_are_consumed(stream: Stream) -> None:
    sent = 0

    def is_refused() -> bool:
        nonlocal sent
        result = probe.offer(stream.publication, bytes(1000))
        sent += result > 0
        return probe.result_name(result) == "BACK_PRESSURED"

    until(stream.client, is_refused, "back pressure")
    assert sent > 10
    stream.receive(sent)
    stream.offer(b"there is room again")
    assert stream.receive(1) == [b"there is room again"]


# Polls


def test_a_poll_delivers_at_most_its_limit(stream: Stream) -> None:
    for number in range(5):
        stream.offer(b"%d" % number)
    assert [data for data, _ in probe.poll(stream.image, 2)] == [b"0", b"1"]
    for source in (stream.image, stream.subscription):
        assert probe.poll(source, 0) == probe.poll(source, -1) == []
    assert [data for data, _ in probe.poll(stream.image, 10)] == [b"2", b"3", b"4"]
    assert probe.poll(stream.image) == []


def test_a_bounded_poll_delivers_whole_frames_that_begin_below_the_limit(stream: Stream) -> None:
    for number in range(3):
        stream.offer(b"%d" % number)  # 64 bytes each
    assert probe.poll(stream.image, limit_position=0) == []
    assert len(probe.poll(stream.image, limit_position=64)) == 1
    assert probe.poll(stream.image, limit_position=64) == []
    assert len(probe.poll(stream.image, limit_position=65)) == 1
    assert probe.position(stream.image) == 128
    assert len(probe.poll(stream.image, limit_position=1 << 40)) == 1


def test_a_message_that_spans_the_limit_is_delivered_frame_by_frame(stream: Stream) -> None:
    stream.offer(bytes(2 * MTU_PAYLOAD))
    collector = probe.CollectingHandler()
    assembler = FragmentAssembler(collector)
    frame = HEADER + MTU_PAYLOAD
    assert probe.poll_with(stream.image, assembler, 10, frame) == 1
    assert probe.position(stream.image) == frame
    assert collector.messages == []
    assert probe.poll_with(stream.image, assembler, 10, 2 * frame) == 1
    assert [len(data) for data, _ in collector.messages] == [2 * MTU_PAYLOAD]


def test_a_poll_stops_at_the_end_of_a_term_and_the_next_goes_on(stream: Stream) -> None:
    message = bytes(992)  # frames of 1024 bytes, 64 to a term
    for _ in range(4):
        for _ in range(16):
            stream.offer(message)
        if probe.position(stream.publication) < TERM_LENGTH:
            assert len(stream.receive(16)) == 16
    stream.offer(b"in the next term")
    polls = [probe.poll(stream.image, 100, 1 << 40), probe.poll(stream.image, 100, 1 << 40)]
    assert [len(messages) for messages in polls] == [16, 1]
    ((data, header),) = polls[1]
    assert data == b"in the next term"
    assert header["term_id"] == header["initial_term_id"] + 1
    assert header["term_offset"] == 0
    assert header["position"] == TERM_LENGTH + 64


def test_a_padded_end_of_a_term_is_passed_over(stream: Stream) -> None:
    for _ in range(63):
        stream.offer(bytes(992))
        stream.receive(1)
    stream.offer(bytes(1200))  # does not fit the 1024 bytes that are left
    assert stream.receive(1) == [bytes(1200)]
    assert probe.position(stream.image) == TERM_LENGTH + HEADER + 1216


@pytest.mark.parametrize("source", ["image", "subscription"])
@pytest.mark.parametrize("error", [ValueError("from the handler"), KeyboardInterrupt()])
def test_what_a_handler_raises_comes_out_of_the_poll_and_the_frame_is_consumed(
    stream: Stream, source: str, error: BaseException
) -> None:
    def refuse_two(data: bytes, header: probe.HeaderFields) -> None:
        if data == b"2":
            raise error

    for number in range(1, 4):
        stream.offer(b"%d" % number)
    polled = stream.image if source == "image" else stream.subscription
    handler = probe.CollectingHandler(refuse_two)
    with pytest.raises(type(error)) as raised:
        probe.poll_with(polled, handler)
    assert raised.value is error
    assert [data for data, _ in handler.messages] == [b"1"]
    assert probe.position(stream.image) == 128
    assert probe.poll_with(polled, handler) == 1
    assert [data for data, _ in handler.messages] == [b"1", b"3"]


def test_an_error_in_a_subscriptions_poll_leaves_the_other_images_frames(invoker: AeronClient) -> None:
    first = connect(invoker, exclusive=True)
    second = probe.add_publication(invoker, IPC, first.publication.stream_id, exclusive=True)
    until(invoker, lambda: probe.image(first.subscription, second.session_id), "the second image")
    until_open(invoker, second)
    assert probe.offer(first.publication, b"first") > 0
    assert probe.offer(second, b"second") > 0
    seen: list[bytes] = []

    def refuse(data: bytes, header: probe.HeaderFields) -> None:
        seen.append(data)
        raise ValueError(data)

    for _ in range(2):
        with pytest.raises(ValueError, match="first|second"):
            probe.poll_with(first.subscription, probe.CollectingHandler(refuse))
    assert sorted(seen) == [b"first", b"second"]
    assert probe.poll(first.subscription) == []


def test_the_images_of_a_subscription_take_turns(invoker: AeronClient) -> None:
    subscription = probe.add_subscription(invoker, IPC, 1006)
    publications = [probe.add_publication(invoker, IPC, 1006, exclusive=True) for _ in range(3)]
    until(invoker, lambda: probe.image_count(subscription) == 3, "three images")
    for publication in publications:
        until_open(invoker, publication)
        for _ in range(2):
            assert probe.offer(publication, b"%d" % publication.session_id) > 0
    firsts = {probe.poll(subscription, 1)[0][1]["session_id"] for _ in range(3)}
    assert firsts == {publication.session_id for publication in publications}
    assert len(probe.poll(subscription, 10)) == 3


def test_abort_delivers_the_frame_again(stream: Stream) -> None:
    stream.offer(b"1")
    stream.offer(b"2")
    handler = probe.CollectingHandler(lambda data, header: ABORT if data == b"2" else None)
    assert probe.poll_with(stream.image, handler) == 1
    assert probe.position(stream.image) == 64
    assert [data for data, _ in probe.poll(stream.image)] == [b"2"]


def test_break_and_commit_consume_the_frame(stream: Stream) -> None:
    for number in range(3):
        stream.offer(b"%d" % number)
    assert [data for data, _ in probe.poll(stream.image, action=BREAK)] == [b"0"]
    positions: list[int] = []

    def commit(data: bytes, header: probe.HeaderFields) -> int:
        positions.append(probe.position(stream.image))
        return COMMIT

    assert len(probe.poll(stream.image, action=commit)) == 2
    assert positions == [64, 128]


# Subscriptions and images


def test_a_subscription_for_a_session_sees_only_that_session(invoker: AeronClient) -> None:
    first = probe.add_publication(invoker, IPC, 1004, exclusive=True)
    second = probe.add_publication(invoker, IPC, 1004, exclusive=True)
    subscription = probe.add_subscription(invoker, f"{IPC}?session-id={second.session_id}", 1004)
    until(invoker, lambda: probe.image(subscription), "an image")
    assert probe.image_count(subscription) == 1
    assert probe.image(subscription, first.session_id) is None
    image = probe.image(subscription, second.session_id)
    assert image is probe.image(subscription)
    assert probe.image_at_index(subscription, 1) is None
    assert probe.image_at_index(subscription, -1) is None
    assert not probe.is_connected(first)


def test_a_known_image_is_found_again_without_a_call_in_python(invoker: AeronClient) -> None:
    stream = connect(invoker, IPC, 1014)
    names: list[str] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        found = probe.image_at_index(stream.subscription, 0)
    finally:
        sys.setprofile(None)
    assert found is stream.image
    assert names == []


def test_a_spy_sees_what_a_network_publication_sends(invoker: AeronClient, udp: str) -> None:
    stream = connect(invoker, udp)
    spy = probe.add_subscription(invoker, f"aeron-spy:{udp}", stream.publication.stream_id)
    image = until(invoker, lambda: probe.image(spy), "an image of the spy")
    stream.offer(b"seen by both")
    spied = until(invoker, lambda: probe.poll(image), "the spy's message")
    assert [data for data, _ in spied] == [b"seen by both"] == stream.receive(1)


def test_the_endpoint_of_a_wildcard_port_is_resolved(client: AeronClient) -> None:
    subscription = probe.add_subscription(client, "aeron:udp?endpoint=localhost:0", 1001)
    endpoint = until(client, lambda: probe.resolved_endpoint(subscription), "the endpoint")
    host, _, port = endpoint.rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert probe.resolved_endpoint(probe.add_subscription(client, IPC, 1001)) == ""


def test_a_late_image_joins_where_the_stream_is(stream: Stream) -> None:
    stream.offer(b"before")
    stream.receive(1)

    def join() -> Image | None:
        # The driver looks at the position of the first subscriber now and then.
        late = probe.add_subscription(stream.client, IPC, stream.publication.stream_id)
        image = until(stream.client, lambda: probe.image(late), "an image")
        return image if image.join_position > 0 else None

    image = until(stream.client, join, "an image that joins late")
    assert image.join_position == probe.position(image) == 64
    assert stream.image.join_position == 0
    assert f"session_id={image.session_id} join_position=64 position=64" in repr(image)


def test_the_end_of_a_stream_is_known_before_it_is_reached(stream: Stream) -> None:
    stream.offer(b"1")
    stream.offer(b"2")
    assert probe.end_of_stream_position(stream.image) == (1 << 63) - 1
    stream.publication.close()
    until(stream.client, lambda: probe.end_of_stream_position(stream.image) == 128, "the end of the stream")
    assert not probe.is_end_of_stream(stream.image)
    assert len(probe.poll(stream.image)) == 2
    assert probe.is_end_of_stream(stream.image)
    until(stream.client, lambda: probe.is_closed(stream.image), "the image to be closed")
    assert probe.is_end_of_stream(stream.image)
    assert probe.position(stream.image) == probe.end_of_stream_position(stream.image) == 128
    assert not probe.is_connected(stream.subscription)


@pytest.mark.parametrize("media", ["ipc", "udp"])
def test_a_driver_has_a_stream_as_long_as_a_publication_or_an_image_of_it(
    client: AeronClient, udp: str, media: str
) -> None:
    stream = connect(client, udp if media == "udp" else IPC)
    stream_id, session_id = stream.publication.stream_id, stream.publication.session_id
    assert probe.has_stream(client, stream_id, session_id)
    assert not probe.has_stream(client, stream_id + 1, session_id)
    assert not probe.has_stream(client, stream_id, session_id + 1)
    stream.publication.close()
    label = f"pub-lmt: {stream.publication.registration_id} "
    counters = probe.counters(client)
    until(client, lambda: not any(text.startswith(label) for _, _, text, _ in counters.read()), "its counter to go")
    if media == "udp":
        assert probe.has_stream(client, stream_id, session_id), "the image is still there"
    else:
        assert not probe.has_stream(client, stream_id, session_id)


# Ids, counters, listeners


def test_ids_are_unique_and_clocks_run(client: AeronClient) -> None:
    assert probe.client_id(client) >= 0
    ids = [probe.next_correlation_id(client) for _ in range(10)]
    assert len(set(ids)) == 10
    sessions = {probe.next_session_id(client, 1001) for _ in range(10)}
    assert len(sessions) == 10
    assert probe.epoch_ms(client) > 1_700_000_000_000
    for read in (probe.nano_time, probe.epoch_ms):
        begin = read(client)
        until(client, lambda read=read, begin=begin: read(client) > begin, "a clock to run")  # type: ignore[misc]


def test_the_client_shows_its_name_in_its_heartbeat_counter(driver: MediaDriver) -> None:
    with AeronClient(driver.aeron_dir, "a name of its own", keepalive_interval_ms=20) as client:
        probe.add_counter(client, 1101)
        counters = probe.counters(client)
        label = until(
            client,
            lambda: next((text for _, _, text, _ in counters.read() if "a name of its own" in text), None),
            "the heartbeat counter",
        )
        assert label.startswith(f"client-heartbeat: id={probe.client_id(client)}")
        assert client.client_name == "a name of its own"
        assert "a name of its own" in repr(client)


def test_a_counter_is_allocated_written_and_read(client: AeronClient) -> None:
    counter = probe.add_counter(client, 1101, b"\x01\x02key", "a label \N{SNOWMAN}")
    counters = probe.counters(client)
    record = probe.counter_record(counters, counter.counter_id)
    assert record == {
        "state": 1,
        "type_id": 1101,
        "key": b"\x01\x02key" + bytes(112 - 5),
        "value": 0,
        "registration_id": counter.registration_id,
        "owner_id": probe.client_id(client),
        "label": "a label ?",
    }
    probe.set_counter(counter, 41)
    probe.increment_counter(counter)
    probe.propose_max_counter(counter, 7)
    assert counter.value == probe.counter_record(counters, counter.counter_id)["value"] == 42
    probe.propose_max_counter(counter, 100)
    assert counter.value == 100
    assert (counter.counter_id, 1101, "a label ?", 100) in counters.read()
    assert probe.counter_record(counters, -1)["key"] is None
    assert probe.counter_record(counters, probe.counter_capacity(counters))["state"] == 0


def test_a_counters_key_and_label_have_limits(client: AeronClient) -> None:
    counter = probe.add_counter(client, 1101, bytes(range(112)), "l" * 380)
    record = probe.counter_record(probe.counters(client), counter.counter_id)
    assert (record["key"], record["label"]) == (bytes(range(112)), "l" * 380)
    with pytest.raises(AeronError, match="its key is 113 bytes long; at most 112 are allowed"):
        probe.add_counter(client, 1101, bytes(113), "x")
    with pytest.raises(AeronError, match="its label is 381 bytes long; at most 380 are allowed"):
        probe.add_counter(client, 1101, b"", "x" * 381)


def test_listeners_hear_of_counters_that_went_away(client: AeronClient, driver: MediaDriver) -> None:
    listener, removed = probe.RecordingListener(), probe.RecordingListener()
    for each in (listener, listener, removed):
        probe.add_listener(client, each)
    probe.remove_listener(client, removed)
    probe.remove_listener(client, removed)
    counter = probe.add_counter(client, 1101, b"", "of its own")
    with AeronClient(driver.aeron_dir) as other:
        foreign = probe.add_counter(other, 1101, b"", "of another")
        counter.close()
        gone = [(counter.registration_id, counter.counter_id), (foreign.registration_id, foreign.counter_id)]
        until(client, lambda: gone[0] in listener.unavailable, "its own counter to be unavailable")
        assert gone[1] not in listener.unavailable
    until(client, lambda: gone[1] in listener.unavailable, "the other's counter to be unavailable")
    assert [listener.unavailable.count(each) for each in gone] == [1, 1]
    assert not set(gone) & set(removed.unavailable)
    assert counter.value == -1
    assert listener.close_count == 0
    client.close()
    assert (listener.close_count, removed.close_count) == (1, 0)


# Errors


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (
            lambda client: probe.add_publication(client, "aeron:carrier-pigeon", 1001),
            "cannot add publication aeron:carrier-pigeon stream 1001: invalid URI scheme",
        ),
        (
            lambda client: probe.add_publication(client, "aeron:ipc?term-length=100", 1001, exclusive=True),
            "cannot add exclusive publication aeron:ipc.term-length=100 stream 1001: .*100",
        ),
        (
            lambda client: probe.add_subscription(client, "aeron:udp?endpoint=localhost:99999", 1001),
            "cannot add subscription aeron:udp.endpoint=localhost:99999 stream 1001: .*99999",
        ),
    ],
)
def test_what_the_driver_refuses_is_named(client: AeronClient, add: Callable[[AeronClient], object], text: str) -> None:
    with pytest.raises(RegistrationError, match=text) as raised:
        add(client)
    assert raised.value.code > 0
    assert "[aeron_" not in str(raised.value)


def test_a_clash_of_term_lengths_is_refused_with_both(client: AeronClient) -> None:
    publication = probe.add_publication(client, "aeron:ipc?term-length=128k", 1005)
    assert publication.term_buffer_length == 128 * 1024
    with pytest.raises(RegistrationError, match=r"term-length=64k stream 1005: .*existing=131072 requested=65536"):
        probe.add_publication(client, "aeron:ipc?term-length=64k", 1005)


def test_an_endpoint_that_is_being_closed_is_asked_for_again(udp: str) -> None:
    with (
        MediaDriver.launch_embedded(threading="DEDICATED", term_buffer_length=TERM_LENGTH) as dedicated,
        AeronClient(dedicated.aeron_dir) as client,
    ):
        for _ in range(50):
            # With three threads, the driver finds the endpoint that it is about to close.
            subscription = probe.add_subscription(client, udp, 1001)
            assert probe.resolved_endpoint(subscription)
            subscription.close()


@pytest.mark.parametrize("channel", ["aeron:ipc\0?term-length=64k", "aeron:ipc?alias=" + "x" * 5000])
def test_a_channel_that_c_would_cut_is_refused(invoker: AeronClient, channel: str) -> None:
    with pytest.raises(ConfigurationError, match="channel 'aeron:ipc.* (NUL|5016 bytes)"):
        probe.add_subscription(invoker, channel, 1001)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"client_name": "n" * 101}, "client_name .* is 101 bytes long; at most 100 are allowed"),
        ({"driver_timeout_ms": 0}, "driver_timeout_ms must be from 1 to 86400000 ms, not 0"),
        ({"keepalive_interval_ms": -1}, "keepalive_interval_ms must be from 1 to 86400000 ms, not -1"),
    ],
)
def test_settings_out_of_range_are_refused(driver: MediaDriver, settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        AeronClient(driver.aeron_dir, **settings)  # type: ignore[arg-type]


def test_an_error_handler_must_be_callable(driver: MediaDriver) -> None:
    with pytest.raises(TypeError, match="error_handler must be callable or None, not 5"):
        AeronClient(driver.aeron_dir, error_handler=5)  # type: ignore[arg-type]


def test_a_client_without_a_driver_says_what_it_waited_for(tmp_path: Path) -> None:
    with pytest.raises(DriverTimeoutError, match=rf"within 50 ms: {tmp_path}/cnc.dat does not exist; start a"):
        AeronClient(tmp_path, driver_timeout_ms=50)


def test_a_client_waits_for_a_driver_that_starts_later(tmp_path: Path) -> None:
    started: list[MediaDriver] = []
    timer = threading.Timer(0.05, lambda: started.append(MediaDriver.launch_embedded(tmp_path / "driver")))
    timer.start()
    try:
        with AeronClient(tmp_path / "driver", driver_timeout_ms=int(LIMIT_S * 1000)) as client:
            assert not client.is_closed()
    finally:
        timer.join(LIMIT_S)
        for driver in started:
            driver.close()


def test_the_directory_comes_from_the_environment(driver: MediaDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AERON_DIR", driver.aeron_dir)
    with AeronClient() as client:
        assert client.aeron_dir == driver.aeron_dir
        assert client.driver_timeout_ms == 10_000


@pytest.fixture
def deaf_client() -> Iterator[AeronClient]:
    """A client whose driver is gone, which it does not notice because it looks once in an hour."""
    with MediaDriver.launch_embedded() as driver:
        client = AeronClient(driver.aeron_dir, driver_timeout_ms=300, keepalive_interval_ms=3_600_000)
    with client:
        yield client


@pytest.mark.parametrize(
    "add",
    [
        lambda client: probe.add_publication(client, IPC, 1001),
        lambda client: probe.add_publication(client, IPC, 1001, exclusive=True),
        lambda client: probe.add_subscription(client, IPC, 1001),
        lambda client: probe.add_counter(client, 1101, b"", "counter"),
        lambda client: probe.next_session_id(client, 1001),
    ],
    ids=["publication", "exclusive publication", "subscription", "counter", "session id"],
)
def test_an_add_that_is_not_answered_ends_after_the_driver_timeout(
    deaf_client: AeronClient, add: Callable[[AeronClient], object]
) -> None:
    with pytest.raises(DriverTimeoutError, match=r"cannot (add|get) .*no response .*within 300 ms") as raised:
        add(deaf_client)
    assert raised.value.code == 1000
    assert isinstance(raised.value, TimeoutError)


def test_a_signal_interrupts_an_add(deaf_client: AeronClient) -> None:
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    timer.daemon = True

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            probe.add_subscription(deaf_client, IPC, 1001)
    finally:
        timer.join(LIMIT_S)
        signal.signal(signal.SIGINT, previous)


def test_errors_of_the_conductor_go_to_the_handler(driver: MediaDriver) -> None:
    errors: list[ContainerError] = []
    with MediaDriver.launch_embedded() as mortal:
        client = AeronClient(mortal.aeron_dir, keepalive_interval_ms=10, error_handler=errors.append)
    with client:
        until(client, client.is_closed, "the client to find that the driver is gone")
        assert [type(error) for error in errors] == [DriverTimeoutError]
        assert "MediaDriver has been shutdown" in str(errors[0])
        assert errors[0].code == 1000  # type: ignore[attr-defined]


def test_without_a_handler_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with MediaDriver.launch_embedded() as mortal:
        client = AeronClient(mortal.aeron_dir, keepalive_interval_ms=10)
    with client:
        until(client, client.is_closed, "the client to find that the driver is gone")
    assert [(record.name, record.levelname) for record in caplog.records] == [("container.aeron", "ERROR")]
    assert "MediaDriver has been shutdown" in caplog.text


def test_what_an_error_handler_raises_comes_out_of_invoke() -> None:
    def refuse(error: ContainerError) -> None:
        raise OSError(errno.EPIPE, str(error))

    with MediaDriver.launch_embedded() as mortal:
        client = AeronClient(mortal.aeron_dir, keepalive_interval_ms=10, error_handler=refuse)
    with client, pytest.raises(BrokenPipeError, match="MediaDriver has been shutdown"):
        until(client, client.is_closed, "the client to find that the driver is gone")
