"""What an archive asks of the seam, over a real driver and over memory: blocks, ends, new images, counters."""

from __future__ import annotations

import gc
import itertools
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from container.aeron import AeronClient, MediaDriver
from container.errors import AeronError, ClosedError, RegistrationError
from container.testing.memory import transport_probe as probe
from container.testing.memory.memory_transport import MemoryDriver
from container.transport.counters import Counter
from container.transport.streams import Image, PendingAdd, Publication, Subscription
from container.transport.transport_seam import Client
from tests.limits import LIMIT_S

TERM = 64 * 1024
IPC = "aeron:ipc?term-length=64k|mtu=1408"
LONGEST = TERM // 8
NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED = range(-1, -6, -1)
DATA, PADDING = 1, 0
HEADER = struct.Struct("<iBBHiiiiq")
_STREAMS = itertools.count(4001)


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(
        publication_linger_timeout_ns=50_000_000,
        image_liveness_timeout_ns=500_000_000,
        timer_interval_ns=20_000_000,
    ) as driver:
        yield driver


@dataclass
class World:
    """A client, and others of its driver."""

    client: Client
    connect: Callable[[], Client]

    def until[T](self, predicate: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + LIMIT_S
        while True:
            probe.invoke(self.client)
            result = predicate()
            if result:
                return result
            assert time.monotonic() < deadline, f"did not happen within {LIMIT_S:g} s"
            os.sched_yield()

    def finish(self, adding: PendingAdd) -> Publication | Subscription | Counter:
        answers: list[Publication | Subscription | Counter] = []

        def is_answered() -> bool:
            answer = probe.poll_add(adding)
            answers.extend([] if answer is None else [answer])
            return bool(answers)

        self.until(is_answered)
        return answers[0]

    def subscribe(self, channel: str, stream_id: int, *, queues_images: bool = True) -> Subscription:
        added = self.finish(probe.begin_add_subscription(self.client, channel, stream_id, queues_images))
        assert isinstance(added, Subscription)
        return added

    def image_of(self, subscription: Subscription, publication: Publication) -> Image:
        return self.until(lambda: probe.image(subscription, publication.session_id))

    def publish(self, channel: str, stream_id: int) -> Publication:
        return probe.add_publication(self.client, channel, stream_id, exclusive=True)

    def stream(self, channel: str = IPC, *, exclusive: bool = True) -> Stream:
        """A publication, and the image of it that a subscription has."""
        stream_id = next(_STREAMS)
        subscription = self.subscribe(IPC, stream_id)
        publication = probe.add_publication(self.client, channel, stream_id, exclusive)
        image = self.image_of(subscription, publication)
        self.until(lambda: probe.is_connected(publication) and probe.available_window(publication) > 0)
        return Stream(self, publication, subscription, image)


@dataclass
class Stream:
    world: World
    publication: Publication
    subscription: Subscription
    image: Image

    def offer(self, *messages: bytes) -> None:
        for message in messages:
            self.world.until(lambda message=message: probe.offer(self.publication, message) > 0)  # type: ignore[misc]

    def blocks(self, limit: int = 1 << 20) -> list[bytes]:
        """What block polls deliver until there is no more."""
        return list(iter(lambda: probe.poll_blocks(self.image, limit), b""))

    def fill(self, left: int) -> None:
        """Send, and read, until the term has so many bytes left, a multiple of 1024."""
        for _ in range((TERM - left) // 1024):
            self.offer(bytes(992))
            self.blocks()
        assert probe.position(self.publication) == TERM - left


@pytest.fixture(params=["invoker", "own thread", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        driver = MemoryDriver(publication_window=TERM // 2)
        yield World(driver.connect("test"), driver.connect)
        return
    clients: list[AeronClient] = []
    media_driver: MediaDriver = request.getfixturevalue("driver")

    def connect() -> AeronClient:
        clients.append(AeronClient(media_driver.aeron_dir, use_invoker=request.param == "invoker"))
        return clients[-1]

    yield World(connect(), connect)
    for client in clients:
        client.close()


@dataclass(frozen=True)
class Frame:
    length: int
    flags: int
    type: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    payload: bytes


def frames(block: bytes) -> list[Frame]:
    """The frames of a block, which must be whole."""
    found = []
    offset = 0
    while offset < len(block):
        length, _, flags, kind, term_offset, session_id, stream_id, term_id, _ = HEADER.unpack_from(block, offset)
        assert length >= 32
        assert kind == DATA or offset == 0
        payload = block[offset + 32 : offset + length]
        found.append(Frame(length, flags, kind, term_offset, session_id, stream_id, term_id, payload))
        offset += (length + 31) // 32 * 32
    assert offset == len(block)
    return found


def frame(publication: Publication, payload: bytes, term_offset: int, term_id: int, /, **changes: int) -> bytes:
    """A frame as it would lie in a publication's log; changes are fields that are wrong."""
    fields = {
        "length": 32 + len(payload),
        "version": 0,
        "flags": 0xC0,
        "type": DATA,
        "term_offset": term_offset,
        "session_id": publication.session_id,
        "stream_id": publication.stream_id,
        "term_id": term_id,
        "reserved_value": 0,
    } | changes
    return HEADER.pack(*fields.values()) + payload + bytes(-len(payload) % 32)


def copied(block: bytes, publication: Publication) -> bytes:
    """A block of another stream, with the ids of this publication, as a replay sends it."""
    result = bytearray(block)
    offset = 0
    while offset < len(block):
        struct.pack_into("<ii", result, offset + 12, publication.session_id, publication.stream_id)
        offset += (HEADER.unpack_from(block, offset)[0] + 31) // 32 * 32
    return bytes(result)


# Block polls


def test_a_block_is_the_frames_that_there_are_up_to_the_limit(world: World) -> None:
    stream = world.stream()
    stream.offer(b"a" * 100, b"", bytes(3000), b"z")
    whole = probe.poll_blocks(stream.image, 160 + 32 + 1408)
    assert [each.length for each in frames(whole)] == [132, 32, 1408]
    ids = (stream.image.session_id, stream.publication.stream_id, stream.image.initial_term_id)
    assert frames(whole)[0] == Frame(132, 0xC0, DATA, 0, *ids, b"a" * 100)
    assert probe.position(stream.image) == len(whole) == 160 + 32 + 1408
    # One byte less than two frames is one frame.
    assert [each.length for each in frames(probe.poll_blocks(stream.image, 1408 + 288 - 1))] == [1408]
    assert [each.payload for each in frames(probe.poll_blocks(stream.image))] == [bytes(3000 - 2 * 1376), b"z"]
    assert probe.poll_blocks(stream.image) == b""
    assert probe.position(stream.image) == probe.position(stream.publication)


def test_a_frame_longer_than_the_limit_does_not_come(world: World) -> None:
    stream = world.stream()
    stream.offer(bytes(100))
    for limit in (-1, 0, 1, 159):
        assert probe.poll_blocks(stream.image, limit) == b""
    assert probe.position(stream.image) == 0
    assert len(probe.poll_blocks(stream.image, 160)) == 160


def test_a_block_ends_before_padding_which_comes_alone_whatever_its_length(world: World) -> None:
    stream = world.stream()
    stream.fill(2048)
    stream.offer(bytes(992), bytes(1376))
    first, padding, *others = stream.blocks(1100)
    assert [(each.term_offset, each.length) for each in frames(first)] == [(TERM - 2048, 1024)]
    length, _, _, kind, term_offset, *_ = HEADER.unpack_from(padding)
    assert (kind, length, len(padding), term_offset) == (PADDING, 1024, 1024, TERM - 1024)
    assert others == []
    assert probe.position(stream.image) == TERM
    [message] = frames(probe.poll_blocks(stream.image))
    assert (message.term_offset, message.length) == (0, 1408)
    assert message.term_id == stream.image.initial_term_id + 1


def test_a_block_ends_with_its_term(world: World) -> None:
    stream = world.stream()
    stream.fill(1024)
    stream.offer(bytes(992), b"next")
    assert [len(block) for block in stream.blocks()] == [1024, 64]


def test_a_handler_is_given_the_session_and_the_term(world: World) -> None:
    stream = world.stream()
    stream.offer(b"x")
    handler = probe.CollectingBlocks()
    assert probe.poll_blocks(stream.image, 1000, handler) == 64
    [(_, session_id, term_id)] = handler.blocks
    assert (session_id, term_id) == (stream.publication.session_id, stream.image.initial_term_id)


@pytest.mark.parametrize("error", [ValueError("from the handler"), KeyboardInterrupt()])
def test_a_block_whose_handler_raises_is_consumed(world: World, error: BaseException) -> None:
    stream = world.stream()

    def refuse(block: bytes) -> None:
        raise error

    stream.offer(b"1")
    with pytest.raises(type(error)) as raised:
        probe.poll_blocks(stream.image, 1000, probe.CollectingBlocks(refuse))
    assert raised.value is error
    assert probe.position(stream.image) == 64
    stream.offer(b"2")
    assert [each.payload for each in frames(probe.poll_blocks(stream.image))] == [b"2"]


def test_a_handler_may_close_what_it_reads(world: World) -> None:
    stream = world.stream()
    stream.offer(b"x" * 1000)
    handler = probe.CollectingBlocks(lambda block: stream.subscription.close())
    assert probe.poll_blocks(stream.image, 5000, handler) == 1056
    assert handler.blocks[0][0][32:1032] == b"x" * 1000
    assert probe.is_closed(stream.image)
    assert probe.position(stream.image) == 0
    assert probe.poll_blocks(stream.image) == b""


def test_a_handler_may_drop_all_that_there_is(world: World) -> None:
    stream = world.stream()
    stream.offer(b"x")
    held = [stream.image, stream.subscription]
    image = stream.image
    stream.image = stream.subscription = None  # type: ignore[assignment]

    def drop(block: bytes) -> None:
        held.clear()
        gc.collect()

    assert probe.poll_blocks(image, 1000, probe.CollectingBlocks(drop)) == 64


def test_a_closed_image_delivers_nothing(world: World) -> None:
    stream = world.stream()
    stream.offer(b"x")
    stream.subscription.close()
    handler = probe.CollectingBlocks(lambda block: pytest.fail("a closed image has delivered a block"))
    assert probe.poll_blocks(stream.image, 1000, handler) == 0
    assert stream.image.reject("it is closed") == 0
    assert probe.active_transport_count(stream.image) == 0
    assert stream.image.source_identity == "aeron:ipc"
    world.client.close()
    assert probe.poll_blocks(stream.image, 1000, handler) == 0
    assert stream.image.reject("it is closed") == 0


def test_an_image_says_what_its_stream_is(world: World) -> None:
    stream = world.stream()
    image, publication = stream.image, stream.publication
    assert (image.term_buffer_length, image.mtu_length) == (publication.term_buffer_length, 1408)
    assert image.initial_term_id == publication.initial_term_id
    assert image.source_identity == "aeron:ipc"
    assert image.correlation_id > 0
    assert probe.active_transport_count(image) == 0
    other = world.stream().image
    assert other.correlation_id != image.correlation_id


# Blocks that are sent


def positioned(initial_term_id: int, term_id: int, term_offset: int) -> str:
    return f"{IPC}|init-term-id={initial_term_id}|term-id={term_id}|term-offset={term_offset}"


def test_a_stream_that_is_copied_by_blocks_is_the_same(world: World) -> None:
    source = world.stream()
    recorded: list[bytes] = []
    for number in range(200):
        source.offer(bytes([number]) * (number * 37 % 2900))
        recorded += source.blocks()
    assert probe.position(source.publication) > 2 * TERM
    copy = world.stream(positioned(source.image.initial_term_id, source.image.initial_term_id, 0))
    received: list[bytes] = []
    for block in recorded:
        is_padding = HEADER.unpack_from(block)[3] == PADDING
        result = ADMIN_ACTION
        while result in (ADMIN_ACTION, BACK_PRESSURED):
            if is_padding:
                result = probe.append_padding(copy.publication, len(block) - 32)
            else:
                result = probe.offer_block(copy.publication, copied(block, copy.publication))
            received += copy.blocks()
            probe.invoke(world.client)
        assert result > 0
    received += copy.blocks()
    assert probe.position(copy.publication) == probe.position(source.publication)
    assert messages(received) == messages(recorded)
    assert sum(map(len, received)) == sum(map(len, recorded))


def messages(blocks: list[bytes]) -> list[tuple[int, int, int, bytes]]:
    """Term id, term offset, flags and payload of all data frames."""
    return [
        (each.term_id, each.term_offset, each.flags, each.payload)
        for block in blocks
        if HEADER.unpack_from(block)[3] == DATA
        for each in frames(block)
    ]


def test_a_publication_begins_where_its_channel_says(world: World) -> None:
    stream = world.stream(positioned(7, 9, 1024))
    assert probe.position(stream.publication) == 2 * TERM + 1024
    assert stream.publication.initial_term_id == stream.image.initial_term_id == 7
    assert stream.image.join_position == 2 * TERM + 1024
    block = frame(stream.publication, b"first", 1024, 9) + frame(stream.publication, b"second", 1088, 9)
    assert probe.offer_block(stream.publication, block) == 2 * TERM + 1024 + 128
    assert probe.poll_blocks(stream.image) == block
    stream.offer(b"x")


def test_term_ids_of_blocks_wrap_around(world: World) -> None:
    stream = world.stream(positioned(2**31 - 1, -(2**31), 0))
    assert probe.position(stream.publication) == TERM
    block = frame(stream.publication, b"x", 0, -(2**31))
    assert probe.offer_block(stream.publication, block) == TERM + 64
    assert probe.poll_blocks(stream.image) == block


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"length": 31}, r"length 31 \(at most 1408\)"),
        ({"length": 0}, r"length 0 \(at"),
        ({"length": -33}, r"length -33 \(at"),
        ({"length": 65}, r"wrong frame at (64|96) of 128 bytes: length (65|0) \("),
        ({"length": 1409}, r"length 1409 \(at most 1408\)"),
        ({"type": PADDING}, r"type 0 \(1\)"),
        ({"term_offset": 0}, r"term offset 0 \(64\)"),
        ({"term_id": 12}, r"term id 12 \(11\)"),
        ({"session_id": 5}, r"session id 5 \(-?\d+\)"),
        ({"stream_id": 5}, r"stream id 5 \(\d+\)"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_block_with_a_wrong_header_is_refused(
    world: World, changes: dict[str, int], text: str, is_first: bool
) -> None:
    stream = world.stream(positioned(11, 11, 64 if is_first else 0))
    good = b"" if is_first else frame(stream.publication, b"good", 0, 11)
    bad = frame(stream.publication, b"bad", 64, 11, **changes) + (bytes(64) if is_first else b"")
    with pytest.raises(AeronError, match=text):
        probe.offer_block(stream.publication, good + bad)
    assert probe.position(stream.publication) == (64 if is_first else 0)
    assert probe.poll_blocks(stream.image) == b""


@pytest.mark.parametrize("length", [0, 1, 31, 33, 100, 1088])
def test_a_block_that_is_not_whole_or_too_long_for_the_term_is_refused(world: World, length: int) -> None:
    stream = world.stream(positioned(11, 11, TERM - 1024))
    block = frame(stream.publication, bytes(1056), TERM - 1024, 11)[:length]
    with pytest.raises(
        AeronError, match=f"{length} bytes cannot follow position {TERM - 1024} .* the 1024 bytes to the"
    ):
        probe.offer_block(stream.publication, block)
    assert probe.position(stream.publication) == TERM - 1024


def test_a_block_may_fill_a_term_and_the_next_one_begins_another(world: World) -> None:
    stream = world.stream(positioned(11, 11, TERM - 64))
    publication = stream.publication
    assert probe.offer_block(publication, frame(publication, b"last", TERM - 64, 11)) == TERM
    with pytest.raises(AeronError, match=r"term offset 65536 \(0\)"):
        probe.offer_block(publication, frame(publication, b"late", TERM, 11))
    assert probe.offer_block(publication, frame(publication, b"first", 0, 12)) == TERM + 64
    assert [frames(block)[0].payload for block in stream.blocks()] == [b"last", b"first"]


def test_a_block_may_go_beyond_the_window_and_the_next_has_to_wait(world: World) -> None:
    stream = world.stream()
    publication = stream.publication
    term_id = publication.initial_term_id
    window = stream.world.until(lambda: probe.available_window(publication))
    assert window == TERM // 2
    count = TERM // 1024
    block = b"".join(frame(publication, bytes(992), 1024 * index, term_id) for index in range(count))
    assert probe.offer_block(publication, block) == TERM
    assert probe.available_window(publication) == window - TERM
    following = frame(publication, b"next", 0, term_id + 1)
    assert probe.offer_block(publication, following) == BACK_PRESSURED
    assert probe.append_padding(publication, 0) == BACK_PRESSURED
    assert b"".join(stream.blocks(4096)) == block
    world.until(lambda: probe.offer_block(publication, following) > 0)
    assert stream.blocks() == [following]


def test_without_a_subscriber_nothing_is_sent(world: World) -> None:
    publication = world.publish(IPC, next(_STREAMS))
    assert probe.available_window(publication) <= 0
    block = frame(publication, b"x", 0, publication.initial_term_id)
    assert probe.offer_block(publication, block) == NOT_CONNECTED
    assert probe.append_padding(publication, 0) == NOT_CONNECTED
    assert probe.append_padding(publication, LONGEST + 64) == NOT_CONNECTED


def test_a_stream_ends_at_its_greatest_position(world: World) -> None:
    stream = world.stream(positioned(0, 2**31 - 1, TERM - 64))
    publication = stream.publication
    assert probe.offer_block(publication, frame(publication, b"end", TERM - 64, 2**31 - 1)) == TERM << 31
    assert len(probe.poll_blocks(stream.image)) == 64
    block = frame(publication, b"x", 0, -(2**31))
    world.until(lambda: probe.available_window(publication) > 0)
    assert probe.offer_block(publication, block) == MAX_POSITION_EXCEEDED
    assert probe.append_padding(publication, 0) == MAX_POSITION_EXCEEDED


def test_closed_publications_answer_closed(world: World) -> None:
    stream = world.stream()
    publication = stream.publication
    block = frame(publication, b"x", 0, publication.initial_term_id)
    publication.close()
    assert [
        probe.offer_block(publication, block),
        probe.offer_block(publication, b""),
        probe.append_padding(publication, 1 << 40),
        probe.available_window(publication),
    ] == [CLOSED] * 4
    assert [publication.revoke(), publication.close()] == [0, 0]
    with pytest.raises(ClosedError, match="cannot add destination"):
        probe.begin_add_destination(publication, "aeron:udp?endpoint=localhost:1")
    other = world.stream().publication
    world.client.close()
    assert [probe.offer_block(other, block), probe.available_window(other), other.revoke()] == [CLOSED, CLOSED, 0]


def test_shared_publications_take_no_blocks(world: World) -> None:
    stream = world.stream(exclusive=False)
    publication = stream.publication
    calls: list[Callable[[], object]] = [
        lambda: probe.offer_block(publication, frame(publication, b"x", 0, publication.initial_term_id)),
        lambda: probe.append_padding(publication, 0),
        publication.revoke,
    ]
    for call in calls:
        with pytest.raises(TypeError, match="does not implement"):
            call()
    assert probe.available_window(publication) > 0


# Padding


@pytest.mark.parametrize("length", [0, 1, 32, 1376, LONGEST, LONGEST + 1, LONGEST + 128, 3 * LONGEST + 64])
def test_padding_is_passed_over_and_moves_the_stream(world: World, length: int) -> None:
    stream = world.stream()
    end = (32 + length + 31) // 32 * 32
    assert probe.append_padding(stream.publication, length) == end
    stream.offer(b"behind")
    blocks = stream.blocks()
    assert all(HEADER.unpack_from(block)[3] == PADDING for block in blocks[:-1])
    assert sum(map(len, blocks)) == end + 64
    assert frames(blocks[-1])[0].payload == b"behind"


def test_padding_may_end_a_term_and_a_full_term_asks_again(world: World) -> None:
    stream = world.stream(positioned(11, 11, TERM - 1024))
    publication = stream.publication
    for length in (1024 - 32 + 1, TERM - 32, 1 << 40):
        with pytest.raises(AeronError, match=f"padding frame of {length} bytes .* the rest of the term is 1024 bytes"):
            probe.append_padding(publication, length)
    assert probe.position(publication) == TERM - 1024
    assert probe.append_padding(publication, 1024 - 32) == TERM
    assert [probe.append_padding(publication, length) for length in (LONGEST + 64, 0)] == [ADMIN_ACTION, TERM + 32]
    world.until(lambda: probe.offer(publication, b"x") > 0)
    assert probe.position(publication) == TERM + 32 + 64
    assert [(HEADER.unpack_from(block)[3], len(block)) for block in stream.blocks()] == [
        (PADDING, 1024),
        (PADDING, 32),
        (DATA, 64),
    ]


def test_long_padding_is_sent_whole_or_not_at_all(world: World) -> None:
    stream = world.stream()
    while probe.available_window(stream.publication) > 64:
        stream.offer(bytes(1))
    length = 3 * LONGEST
    assert probe.available_window(stream.publication) == 64
    position = probe.position(stream.publication)
    result = probe.append_padding(stream.publication, length)
    assert result in (BACK_PRESSURED, position + 32 + length)
    assert probe.position(stream.publication) in (position, position + 32 + length)


# Ends


def test_what_is_not_read_of_a_revoked_stream_is_gone(world: World) -> None:
    stream = world.stream()
    stream.offer(b"read", b"never read")
    assert len(probe.poll_blocks(stream.image, 64)) == 64
    assert stream.publication.revoke() == 0
    assert probe.is_closed(stream.publication)
    world.until(lambda: probe.is_closed(stream.image))
    assert probe.poll_blocks(stream.image) == b""
    assert probe.position(stream.image) == 64
    assert probe.end_of_stream_position(stream.image) == 64 + 64
    assert not probe.is_end_of_stream(stream.image)
    assert probe.image_count(stream.subscription) == 0
    stream.publication.close()
    assert stream.publication.revoke() == 0


def test_a_rejected_image_goes_from_all_its_subscribers(world: World) -> None:
    stream = world.stream()
    other = world.subscribe(IPC, stream.publication.stream_id)
    others = world.until(lambda: probe.image(other))
    stream.offer(b"x")
    stream.image.reject("a reason \N{SNOWMAN} " + "x" * 2000)
    world.until(lambda: probe.is_closed(stream.image) and probe.is_closed(others))
    world.until(lambda: not probe.is_connected(stream.publication))
    assert probe.offer(stream.publication, b"y") == NOT_CONNECTED
    assert stream.image.reject("again") == 0
    assert probe.poll_blocks(stream.image) == b""
    assert not probe.is_closed(stream.publication)


# New images


def test_each_new_image_is_taken_once_and_in_order(world: World) -> None:
    stream_id = next(_STREAMS)
    subscription = world.subscribe(IPC, stream_id)
    assert probe.take_new_image(subscription) is None
    sessions = []
    for _ in range(3):
        publication = world.publish(IPC, stream_id)
        sessions.append(publication.session_id)
        world.image_of(subscription, publication)
        publication.close()
    images = taken(world, subscription, 3)
    assert [image.session_id for image in images] == sessions
    assert len({image.correlation_id for image in images}) == 3
    assert probe.take_new_image(subscription) is None


def taken(world: World, subscription: Subscription, count: int) -> list[Image]:
    """The new images, once there are so many."""
    images: list[Image] = []

    def take() -> bool:
        images.extend(iter(lambda: probe.take_new_image(subscription), None))
        return len(images) >= count

    world.until(take)
    return images


def test_a_new_image_is_the_one_that_the_subscription_has(world: World) -> None:
    stream = world.stream()
    [image] = taken(world, stream.subscription, 1)
    assert image is stream.image
    stream.offer(b"x")
    assert len(probe.poll_blocks(image)) == 64


def test_an_image_that_came_and_went_is_not_missed(world: World) -> None:
    """Its stream was empty, or revoked: nothing holds such an image."""
    stream_id = next(_STREAMS)
    subscription = world.subscribe(IPC, stream_id)
    publications = []
    for end in ("close", "revoke"):
        publication = world.publish(f"{IPC}|init-term-id=5|term-id=6|term-offset=64", stream_id)
        publications.append(publication)
        world.image_of(subscription, publication)
        getattr(publication, end)()
        world.until(lambda: probe.image_count(subscription) == 0)
    images = taken(world, subscription, 2)
    assert [image.session_id for image in images] == [publication.session_id for publication in publications]
    for image in images:
        assert probe.is_closed(image)
        assert probe.poll_blocks(image) == b""
        assert (image.join_position, probe.position(image)) == (TERM + 64, TERM + 64)
        assert (image.initial_term_id, image.term_buffer_length, image.mtu_length) == (5, TERM, 1408)
        assert image.source_identity == "aeron:ipc"
        assert probe.active_transport_count(image) == 0
        assert image.reject("it is closed") == 0


def test_images_wait_for_their_own_subscription_alone(world: World) -> None:
    stream_id = next(_STREAMS)
    first, second = world.subscribe(IPC, stream_id), world.subscribe(IPC, stream_id)
    silent = world.subscribe(IPC, stream_id, queues_images=False)
    publication = world.publish(IPC, stream_id)
    world.until(lambda: all(probe.image(each, publication.session_id) for each in (first, second, silent)))
    assert probe.take_new_image(silent) is None
    for subscription in (second, first):
        [image] = taken(world, subscription, 1)
        assert image is probe.image(subscription, publication.session_id)
        assert probe.take_new_image(subscription) is None
    assert probe.take_new_image(silent) is None


def test_a_closed_subscription_has_no_new_images(world: World) -> None:
    for _ in range(20):
        stream = world.stream()
        stream.subscription.close()
        assert probe.take_new_image(stream.subscription) is None
        stream.publication.close()
    stream = world.stream()
    world.client.close()
    assert probe.take_new_image(stream.subscription) is None


# Counters and destinations


def test_a_counter_is_added_without_waiting(world: World) -> None:
    adding = probe.begin_add_counter(world.client, 100, b"\x01\x02key", "rec-pos: 1")
    counter = world.finish(adding)
    assert isinstance(counter, Counter)
    record = probe.counter_record(probe.counters(world.client), counter.counter_id)
    assert (record["state"], record["type_id"], record["label"]) == (1, 100, "rec-pos: 1")
    assert record["key"] == b"\x01\x02key" + bytes(107)
    assert (record["registration_id"], record["owner_id"]) == (counter.registration_id, probe.client_id(world.client))
    assert counter.label == "rec-pos: 1"
    probe.set_counter(counter, 5)
    assert counter.value == 5
    with pytest.raises(ClosedError, match="is over"):
        probe.poll_add(adding)
    counter.close()


def test_an_add_of_a_counter_can_be_given_up(world: World) -> None:
    for _ in range(10):
        adding = probe.begin_add_counter(world.client, 100, b"", "given up")
        adding.close()
        with pytest.raises(ClosedError, match="is over"):
            probe.poll_add(adding)
        probe.begin_add_counter(world.client, 100, b"", "forgotten")
    gc.collect()
    world.finish(probe.begin_add_counter(world.client, 100, b"", "kept")).close()
    adding = probe.begin_add_counter(world.client, 100, b"", "late")
    world.client.close()
    with pytest.raises(ClosedError):
        probe.poll_add(adding)
    with pytest.raises(ClosedError):
        probe.begin_add_counter(world.client, 100)


def test_a_counter_refers_to_what_it_belongs_to(world: World) -> None:
    counter = probe.add_counter(world.client, 113, b"key", "control-session")
    counters = probe.counters(world.client)
    assert probe.reference_id(counters, counter.counter_id) == 0
    probe.set_reference_id(counter, 1 << 40)
    assert probe.reference_id(counters, counter.counter_id) == 1 << 40
    assert (counter.value, probe.counter_record(counters, counter.counter_id)["label"]) == (0, "control-session")
    assert probe.reference_id(counters, -1) == probe.reference_id(counters, 1 << 30) == -1
    counter.close()
    probe.set_reference_id(counter, 5)
    world.client.close()
    assert probe.reference_id(counters, counter.counter_id) == -1


def test_destinations_are_refused_where_the_channel_has_none(world: World) -> None:
    stream = world.stream()
    for owner in (stream.subscription, stream.publication):
        adding = probe.begin_add_destination(owner, "aeron:udp?endpoint=localhost:20123")
        with pytest.raises(RegistrationError):
            world.finish(adding)
        with pytest.raises(ClosedError, match="is over"):
            probe.poll_add(adding)


def test_a_destination_can_be_given_up_and_ends_with_the_client(world: World) -> None:
    stream = world.stream()
    for owner in (stream.subscription, stream.publication):
        for begin in (probe.begin_add_destination, probe.begin_remove_destination):
            begin(owner, "aeron:udp?endpoint=localhost:20123").close()
            begin(owner, "aeron:udp?endpoint=localhost:20123")
    gc.collect()
    pending = probe.begin_add_destination(stream.subscription, "aeron:udp?endpoint=localhost:20123")
    stream.subscription.close()
    with pytest.raises(ClosedError, match="destination"):
        probe.begin_add_destination(stream.subscription, "aeron:udp?endpoint=localhost:20123")
    world.client.close()
    with pytest.raises(ClosedError):
        probe.poll_add(pending)
    pending.close()
