"""The transport over memory: a driver, its clients, what they add and what they hear."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from container.errors import (
    AeronError,
    ClosedError,
    ConfigurationError,
    DriverTimeoutError,
    RegistrationError,
    TimedOutError,
)
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver, MemoryPublication
from container.transport.counters import Counter
from container.transport.streams import Image, PendingAdd, Publication, Subscription
from container.transport.transport_seam import Client

IPC = "aeron:ipc"
STREAM = 10
NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED = range(-1, -6, -1)
TERM_LENGTH = 64 * 1024


def connected(client: Client, channel: str = IPC, *, exclusive: bool = False) -> tuple[Publication, Subscription]:
    subscription = seam.add_subscription(client, channel, STREAM)
    return seam.add_publication(client, channel, STREAM, exclusive), subscription


def received(source: Subscription | Image) -> list[bytes]:
    """All payloads. A poll that passes over padding alone delivers nothing: the next one goes on."""
    messages: list[bytes] = []
    empty_polls = 0
    while empty_polls < 2:
        news = [payload for payload, _header in seam.poll(source, 100)]
        empty_polls = 0 if news else empty_polls + 1
        messages += news
    return messages


def all_closed(*resources: Image | Subscription | Publication) -> bool:
    return all(seam.is_closed(resource) for resource in resources)


def only_image(subscription: Subscription) -> Image:
    image = seam.image(subscription)
    assert image is not None
    return image


# Publications and subscriptions


def test_what_is_offered_is_polled_as_it_was_sent(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    assert seam.is_connected(publication)
    assert seam.is_connected(subscription)
    assert seam.offer(publication, b"hello") == 64
    assert seam.offer_vectors(publication, [b"a", b"", b"bc"]) == 128
    assert seam.try_claim(publication, b"claimed") == 192
    assert received(subscription) == [b"hello", b"abc", b"claimed"]
    assert seam.position(publication) == seam.position(only_image(subscription)) == 192


def test_header_fields_are_those_of_the_publication(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    seam.offer(publication, b"x")
    [(_, header)] = seam.poll(subscription)
    assert (header["session_id"], header["stream_id"]) == (publication.session_id, STREAM)
    assert (header["term_id"], header["initial_term_id"]) == (11, 11)


def test_limits_come_from_term_length_and_mtu(driver: MemoryDriver, client: MemoryClient) -> None:
    publication = seam.add_publication(client, IPC, STREAM)
    assert (publication.max_payload_length, publication.max_message_length) == (1376, TERM_LENGTH // 8)
    other = seam.add_publication(client, "aeron:ipc?term-length=128k|mtu=8k", STREAM + 1)
    assert (other.max_payload_length, other.max_message_length) == (8 * 1024 - 32, 16 * 1024)
    assert other.term_buffer_length == 128 * 1024
    greatest = MemoryDriver(term_length=1 << 30, initial_term_id=1, mtu_length=64)
    assert greatest.term_length == 1 << 30


def test_the_longest_message_of_the_control_channel_is_16384_bytes(client: MemoryClient) -> None:
    publication, subscription = connected(client, "aeron:ipc?term-length=128k")
    assert seam.offer(publication, bytes(16_384)) > 0
    with pytest.raises(AeronError, match="16385 bytes: max_message_length is 16384"):
        seam.offer(publication, bytes(16_385))
    assert seam.try_claim(publication, bytes(1376)) > 0
    with pytest.raises(AeronError, match="1377 bytes: max_payload_length is 1376"):
        seam.try_claim(publication, bytes(1377))
    assert sum(len(payload) for payload in received(subscription)) == 16_384 + 1376


@pytest.mark.parametrize("parts", [[1], [0, 5, 0], [1376], [1000, 1000], [1, 1375, 1, 1376, 5], [0, 0], []])
def test_gathered_parts_make_one_message(client: MemoryClient, parts: list[int]) -> None:
    publication, subscription = connected(client)
    whole = b"".join(bytes([65 + index]) * length for index, length in enumerate(parts))
    assert seam.offer_vectors(publication, [bytes([65 + i]) * length for i, length in enumerate(parts)]) > 0
    frames = seam.poll(subscription, 100)
    assert b"".join(payload for payload, _ in frames) == whole
    assert frames[0][1]["flags"] & 0x80
    assert frames[-1][1]["flags"] & 0x40


def test_a_claim_is_invisible_until_committed_and_hides_what_follows(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    claim = seam.claim(publication, 3)
    assert isinstance(claim, seam.OpenClaim)
    seam.offer(publication, b"later")
    assert received(subscription) == []
    claim.write(b"abc")
    claim.commit()
    assert received(subscription) == [b"abc", b"later"]


def test_an_aborted_claim_becomes_padding(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    seam.try_claim(publication, b"never", abort=True)
    seam.offer(publication, b"after")
    assert received(subscription) == [b"after"]
    assert seam.position(only_image(subscription)) == 128


def test_a_full_term_asks_to_offer_again(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    results = [seam.offer(publication, bytes(1000)) for _ in range(70)]
    assert results.count(ADMIN_ACTION) == 1
    assert results.index(ADMIN_ACTION) == TERM_LENGTH // 1056
    assert len(received(subscription)) == 69


def test_a_publication_ends_at_its_greatest_position(client: MemoryClient) -> None:
    at_the_end = "init-term-id=0|term-id=2147483647|term-offset=65472"
    publication, _ = connected(client, f"{IPC}?{at_the_end}", exclusive=True)
    assert seam.offer(publication, b"x") == TERM_LENGTH << 31
    assert [seam.offer(publication, b"x"), seam.try_claim(publication, b"x")] == [MAX_POSITION_EXCEEDED] * 2


def test_without_a_subscriber_a_publication_is_not_connected(client: MemoryClient) -> None:
    publication = seam.add_publication(client, IPC, STREAM)
    assert not seam.is_connected(publication)
    assert seam.offer(publication, b"x") == NOT_CONNECTED
    assert seam.try_claim(publication, b"x") == NOT_CONNECTED
    seam.add_subscription(client, IPC, STREAM + 1)
    assert seam.offer(publication, b"x") == NOT_CONNECTED
    subscription = seam.add_subscription(client, IPC, STREAM)
    assert seam.offer(publication, b"x") == 64
    subscription.close()
    assert seam.offer(publication, b"x") == NOT_CONNECTED


def test_shared_publications_are_one_stream(driver: MemoryDriver, client: MemoryClient) -> None:
    other = driver.connect("other")
    first, subscription = connected(client)
    second = seam.add_publication(other, f"{IPC}?alias=x", STREAM)
    assert first.session_id == second.session_id
    assert first.registration_id != second.registration_id
    seam.offer(first, b"1")
    seam.offer(second, b"2")
    assert seam.image_count(subscription) == 1
    assert received(subscription) == [b"1", b"2"]
    first.close()
    assert seam.offer(second, b"3") == 192
    assert received(subscription) == [b"3"]


def test_exclusive_publications_have_a_stream_each(client: MemoryClient) -> None:
    first, subscription = connected(client, exclusive=True)
    second = seam.add_publication(client, IPC, STREAM, exclusive=True)
    shared = seam.add_publication(client, IPC, STREAM)
    assert len({first.session_id, second.session_id, shared.session_id}) == 3
    assert seam.image_count(subscription) == 3
    seam.offer(second, b"2")
    image = seam.image(subscription, second.session_id)
    assert image is not None
    assert received(image) == [b"2"]
    assert seam.image(subscription, 12345) is None
    assert seam.image_at_index(subscription, 3) is None
    assert seam.image_at_index(subscription, -1) is None


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ("term-length=128k", "term-length"),
        ("mtu=64", "mtu"),
        ("session-id=5", "session-id"),
        ("init-term-id=3|term-id=3|term-offset=0", "init-term-id"),
    ],
)
def test_a_shared_publication_must_not_contradict_the_first(client: MemoryClient, params: str, named: str) -> None:
    seam.add_publication(client, IPC, STREAM)
    with pytest.raises(RegistrationError, match=f"different '{named}'"):
        seam.add_publication(client, f"{IPC}?{params}", STREAM)
    seam.add_publication(client, f"{IPC}?term-length=64k|mtu=1408|init-term-id=11", STREAM)


def test_a_session_id_that_is_taken_clashes(client: MemoryClient) -> None:
    seam.add_publication(client, f"{IPC}?session-id=5", STREAM, exclusive=True)
    with pytest.raises(RegistrationError, match="clashing sessionId=5"):
        seam.add_publication(client, f"{IPC}?session-id=5", STREAM, exclusive=True)
    assert seam.add_publication(client, f"{IPC}?session-id=5", STREAM + 1, exclusive=True).session_id == 5


@pytest.mark.parametrize("channel", ["", "aeron:tcp", "aeron:ipc?term-length=5", "aeron:ipc?mtu=33"])
def test_a_bad_channel_is_refused_as_by_a_driver(client: MemoryClient, channel: str) -> None:
    with pytest.raises(RegistrationError):
        seam.add_publication(client, channel, STREAM)
    assert client.open_resources == []


def test_a_publication_cannot_spy(client: MemoryClient) -> None:
    with pytest.raises(RegistrationError, match="spy"):
        seam.add_publication(client, "aeron-spy:aeron:udp?endpoint=a:1", STREAM)


def test_a_subscription_with_a_session_id_gets_that_session_alone(client: MemoryClient) -> None:
    first, _ = connected(client, exclusive=True)
    second = seam.add_publication(client, IPC, STREAM, exclusive=True)
    subscription = seam.add_subscription(client, f"{IPC}?session-id={second.session_id}", STREAM)
    seam.offer(first, b"1")
    seam.offer(second, b"2")
    assert received(subscription) == [b"2"]


def test_a_spy_and_a_subscriber_attach_by_tag(client: MemoryClient) -> None:
    published = "aeron:udp?control-mode=manual|tags=7|session-id=-3|alias=log"
    spy = seam.add_subscription(client, "aeron-spy:aeron:udp?tags=7|session-id=-3|alias=log-sc-0", 100)
    publication = seam.add_publication(client, published, 100, exclusive=True)
    follower = seam.add_subscription(client, "aeron:udp?control-mode=manual|tags=7,8|session-id=-3", 100)
    seam.offer(publication, b"x")
    assert received(spy) == received(follower) == [b"x"]


def test_wildcard_ports_are_given_out_in_sequence(client: MemoryClient) -> None:
    first = seam.add_subscription(client, "aeron:udp?endpoint=localhost:0", STREAM)
    second = seam.add_subscription(client, "aeron:udp?endpoint=localhost:0", STREAM)
    endpoints = [seam.resolved_endpoint(first), seam.resolved_endpoint(second)]
    assert endpoints == ["127.0.0.1:40000", "127.0.0.1:40001"]
    publication = seam.add_publication(client, f"aeron:udp?endpoint={endpoints[1]}", STREAM)
    seam.offer(publication, b"x")
    assert received(first) == []
    assert received(second) == [b"x"]
    assert first.channel == "aeron:udp?endpoint=localhost:0"
    assert seam.resolved_endpoint(seam.add_subscription(client, IPC, STREAM)) == ""


def test_a_publication_starts_where_its_channel_says(client: MemoryClient) -> None:
    start = "init-term-id=2147483647|term-id=-2147483647|term-offset=64"
    publication, subscription = connected(client, f"{IPC}?{start}", exclusive=True)
    assert seam.position(publication) == 2 * TERM_LENGTH + 64
    assert only_image(subscription).join_position == 2 * TERM_LENGTH + 64
    seam.offer(publication, b"x")
    [(_, header)] = seam.poll(subscription)
    assert header["position"] == 2 * TERM_LENGTH + 128
    assert (header["term_id"], header["initial_term_id"]) == (-(2**31) + 1, 2**31 - 1)


def test_a_subscriber_joins_where_the_slowest_other_is(client: MemoryClient) -> None:
    publication, slow = connected(client)
    fast = seam.add_subscription(client, IPC, STREAM)
    for _ in range(3):
        seam.offer(publication, b"x")
    assert len(received(fast)) == 3
    assert len(seam.poll(slow, 1)) == 1
    assert only_image(seam.add_subscription(client, IPC, STREAM)).join_position == 64
    slow.close()
    for subscription in [resource for resource in client.open_resources if isinstance(resource, Subscription)]:
        subscription.close()
    late = seam.add_subscription(client, IPC, STREAM)
    assert only_image(late).join_position == 192


def test_a_subscription_polls_its_images_in_turn(client: MemoryClient) -> None:
    first, subscription = connected(client, exclusive=True)
    second = seam.add_publication(client, IPC, STREAM, exclusive=True)
    third = seam.add_publication(client, IPC, STREAM, exclusive=True)
    for publication, name in ((first, b"a"), (second, b"b"), (third, b"c")):
        for number in range(3):
            seam.offer(publication, name + bytes([48 + number]))
    polls = [[payload for payload, _ in seam.poll(subscription, 2)] for _ in range(5)]
    assert polls == [[b"a0", b"a1"], [b"b0", b"b1"], [b"c0", b"c1"], [b"a2", b"b2"], [b"c2"]]


@pytest.mark.parametrize("how", ["offer", "claim"])
def test_back_pressure_begins_a_window_ahead_of_the_slowest(how: str) -> None:
    client = MemoryDriver(publication_window=4096).connect()
    publication, slow = connected(client)
    fast = seam.add_subscription(client, IPC, STREAM)
    send: Callable[[], int] = (
        (lambda: seam.offer(publication, bytes(992)))
        if how == "offer"
        else (lambda: seam.try_claim(publication, bytes(992)))
    )
    assert [send() for _ in range(6)] == [1024, 2048, 3072, 4096, BACK_PRESSURED, BACK_PRESSURED]
    received(fast)
    assert send() == BACK_PRESSURED
    assert len(seam.poll(slow, 1)) == 1
    assert [send(), send()] == [5120, BACK_PRESSURED]
    slow.close()
    assert send() == 6144


def test_without_a_window_memory_is_given_back_behind_the_slowest(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    assert isinstance(publication, MemoryPublication)
    for _ in range(1_000):
        while seam.offer(publication, bytes(1_000)) < 0:
            pass
        assert len(received(subscription)) == 1
    assert len(publication.log.frames()) < 130


def test_a_closed_publication_refuses(client: MemoryClient) -> None:
    publication, _ = connected(client)
    publication.close()
    publication.close()
    assert seam.is_closed(publication)
    assert not seam.is_connected(publication)
    assert [seam.offer(publication, b"x"), seam.try_claim(publication, b"x"), seam.position(publication)] == [
        CLOSED
    ] * 3


def test_the_end_of_a_publication_is_seen_when_its_image_is_drained(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    seam.offer(publication, b"x")
    image = only_image(subscription)
    publication.close()
    assert seam.end_of_stream_position(image) == 64
    assert not seam.is_end_of_stream(image)
    seam.invoke(client)
    assert received(subscription) == [b"x"]
    assert seam.is_end_of_stream(image)
    assert not seam.is_closed(image)
    assert seam.invoke(client) == 1
    assert seam.is_closed(image)
    assert seam.is_end_of_stream(image)
    assert (seam.position(image), seam.end_of_stream_position(image)) == (64, 64)
    assert not seam.is_connected(subscription)
    assert seam.image_count(subscription) == 0
    assert client.driver.publications() == []


def test_a_new_shared_publication_is_another_stream_after_the_first_ended(client: MemoryClient) -> None:
    first, subscription = connected(client)
    seam.offer(first, b"1")
    first.close()
    second = seam.add_publication(client, IPC, STREAM)
    assert second.session_id != first.session_id
    assert seam.image_count(subscription) == 2


def test_closing_a_subscription_closes_its_images_where_they_are(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    seam.offer(publication, b"1")
    seam.offer(publication, b"2")
    image = only_image(subscription)
    seam.poll(image, 1)
    subscription.close()
    subscription.close()
    assert seam.is_closed(subscription)
    assert seam.is_closed(image)
    assert (seam.position(image), seam.is_end_of_stream(image), seam.poll(image)) == (64, False, [])
    assert seam.image_count(subscription) == 0


def test_an_image_closed_by_its_handler_stays_where_the_poll_began(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    for message in (b"1", b"2", b"3"):
        seam.offer(publication, message)
    image = only_image(subscription)

    def action(payload: bytes, _header: seam.HeaderFields) -> int:
        if payload == b"2":
            subscription.close()
        return 4

    assert len(seam.poll(image, action=action)) == 2
    assert seam.position(image) == 0


def test_bytes_outlive_the_stream_while_they_are_polled(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    seam.offer(publication, b"kept")
    image = only_image(subscription)

    def action(_payload: bytes, _header: seam.HeaderFields) -> int:
        client.close()
        gc.collect()
        return 4

    assert [payload for payload, _ in seam.poll(image, action=action)] == [b"kept"]


def test_a_log_is_published_with_what_it_has(driver: MemoryDriver, client: MemoryClient) -> None:
    log = MemoryLog(session_id=-9, stream_id=STREAM, start_position=96)
    log.append(b"before")
    publication = client.publish_log(log, f"{IPC}?session-id=-9")
    subscription = seam.add_subscription(client, f"{IPC}?session-id=-9", STREAM)
    log.append(b"after")
    assert only_image(subscription).join_position == 96
    assert received(subscription) == [b"before", b"after"]
    assert driver.log(IPC, STREAM) is log
    publication.close()
    assert seam.is_end_of_stream(only_image(subscription))


# Scripted trouble


def test_results_of_offers_can_be_scripted(driver: MemoryDriver, client: MemoryClient) -> None:
    publication, subscription = connected(client)
    driver.publication_results(IPC, STREAM, [BACK_PRESSURED, ADMIN_ACTION, None, CLOSED])
    results = [
        seam.offer(publication, b"1"),
        seam.try_claim(publication, b"2"),
        seam.offer(publication, b"3"),
    ]
    assert results == [BACK_PRESSURED, ADMIN_ACTION, 64]
    assert [seam.offer(publication, b"4"), seam.offer(publication, b"5")] == [CLOSED, 128]
    assert received(subscription) == [b"3", b"5"]


def test_scripted_results_wait_for_a_publication_and_add_up(driver: MemoryDriver, client: MemoryClient) -> None:
    driver.publication_results("aeron:udp?endpoint=localhost:1", STREAM, [BACK_PRESSURED])
    driver.publication_results("aeron:udp?endpoint=127.0.0.1:1|alias=x", STREAM, [NOT_CONNECTED])
    other, _ = connected(client)
    assert seam.offer(other, b"x") == 64
    publication, _ = connected(client, "aeron:udp?endpoint=localhost:1", exclusive=True)
    assert [seam.offer(publication, b"x") for _ in range(3)] == [BACK_PRESSURED, NOT_CONNECTED, 64]


def test_an_offer_can_be_scripted_to_raise(driver: MemoryDriver, client: MemoryClient) -> None:
    publication, _ = connected(client)
    driver.publication_results(IPC, STREAM, [AeronError("scripted")])
    with pytest.raises(AeronError, match="scripted"):
        seam.offer(publication, b"x")
    assert seam.offer(publication, b"x") == 64


@pytest.mark.parametrize("result", [0, 1, -6, -100])
def test_only_negative_results_can_be_scripted(driver: MemoryDriver, result: int) -> None:
    with pytest.raises(ConfigurationError, match=f"not {result}"):
        driver.publication_results(IPC, STREAM, [result])


def add(client: Client, kind: str) -> Publication | Subscription | Counter:
    if kind == "counter":
        return seam.add_counter(client, 1000)
    if kind == "subscription":
        return seam.add_subscription(client, IPC, STREAM)
    return seam.add_publication(client, IPC, STREAM, kind == "exclusive_publication")


KINDS = ["publication", "exclusive_publication", "subscription", "counter"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_add_of_a_kind_can_fail(driver: MemoryDriver, client: MemoryClient, kind: str) -> None:
    driver.fail_next_add(kind, 4, "no such endpoint")  # type: ignore[arg-type]
    driver.fail_next_add(kind, error=TimedOutError("no answer"))  # type: ignore[arg-type]
    for other in KINDS:
        if other != kind:
            add(client, other)
    with pytest.raises(RegistrationError, match="no such endpoint") as failure:
        add(client, kind)
    assert failure.value.code == 4
    with pytest.raises(TimedOutError, match="no answer"):
        add(client, kind)
    add(client, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_add_of_a_kind_can_take_time(driver: MemoryDriver, client: MemoryClient, kind: str) -> None:
    driver.delay_next_add(kind, 3)  # type: ignore[arg-type]
    add(client, kind)
    assert client.invoke_count == 3
    add(client, kind)
    assert client.invoke_count == 3


def test_a_driver_that_dies_while_something_is_added_is_noticed(driver: MemoryDriver, client: MemoryClient) -> None:
    driver.delay_next_add("publication", 5)
    turns = iter(range(10))
    driver.add_task(lambda: driver.kill(at_next_invoke=True) if next(turns) == 2 else None)
    with pytest.raises(DriverTimeoutError, match="killed"):
        seam.add_publication(client, IPC, STREAM)


def test_an_unknown_kind_is_refused(driver: MemoryDriver) -> None:
    with pytest.raises(ConfigurationError, match=r"'image'.*publication, exclusive_publication"):
        driver.fail_next_add("image")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="'image'"):
        driver.delay_next_add("image", 1)  # type: ignore[arg-type]


def test_an_image_can_come_late(driver: MemoryDriver) -> None:
    client = driver.connect(image_delay=2)
    publication, subscription = connected(client)
    assert seam.offer(publication, b"x") == 64
    assert seam.invoke(client) == 0
    assert seam.image(subscription, publication.session_id) is None
    assert not seam.is_connected(subscription)
    assert seam.invoke(client) == 1
    assert received(subscription) == [b"x"]


def test_an_image_that_comes_late_to_a_closed_subscription_is_forgotten(driver: MemoryDriver) -> None:
    client = driver.connect(image_delay=1)
    publication, subscription = connected(client)
    subscription.close()
    assert seam.invoke(client) == 0
    assert seam.image_count(subscription) == 0
    assert not seam.is_connected(publication)


def test_an_image_that_goes_before_it_is_seen_is_still_taken(driver: MemoryDriver) -> None:
    client = driver.connect(image_delay=2)
    taken, seen = [
        added(client, seam.begin_add_subscription(client, IPC, STREAM, queues_images=queues))
        for queues in (True, False)
    ]
    assert isinstance(taken, Subscription)
    assert isinstance(seen, Subscription)
    publication = seam.add_publication(client, IPC, STREAM, exclusive=True)
    assert isinstance(publication, MemoryPublication)
    publication.close()
    assert seam.take_new_image(taken) is None
    for _ in range(3):
        seam.invoke(client)
    assert seam.image_count(taken) == seam.image_count(seen) == 0
    image = seam.take_new_image(taken)
    assert image is not None
    assert (image.session_id, seam.is_closed(image)) == (publication.session_id, True)
    assert seam.take_new_image(taken) is seam.take_new_image(seen) is None


def added(client: MemoryClient, adding: PendingAdd) -> Publication | Subscription | Counter:
    result = seam.poll_add(adding)
    while result is None:
        seam.invoke(client)
        result = seam.poll_add(adding)
    return result


def test_a_rejected_stream_has_subscribers_again_after_the_image_liveness_timeout(
    driver: MemoryDriver, client: MemoryClient, clock: ManualClock
) -> None:
    publication, subscription = connected(client)
    seam.offer(publication, b"1")
    image = only_image(subscription)
    image.reject("no reason")
    image.reject("no other reason")
    assert not seam.is_closed(image)
    seam.invoke(client)
    assert seam.is_closed(image)
    late = seam.add_subscription(client, IPC, STREAM)
    clock.advance(9_999_000_000)
    seam.invoke(client)
    assert seam.image_count(subscription) == seam.image_count(late) == 0
    clock.advance(1_000_000)
    seam.invoke(client)
    again = only_image(subscription)
    assert (again.session_id, again.join_position) == (publication.session_id, 0)
    assert seam.is_connected(publication)
    assert received(late) == received(subscription) == [b"1"]


def test_a_rejected_stream_that_ends_is_forgotten(driver: MemoryDriver, client: MemoryClient) -> None:
    publication, subscription = connected(client)
    only_image(subscription).reject("no reason")
    seam.invoke(client)
    publication.close()
    seam.invoke(client)
    assert driver.publications() == []


def test_a_spy_cannot_reject(client: MemoryClient) -> None:
    spy = seam.add_subscription(client, "aeron-spy:aeron:udp?endpoint=localhost:1", STREAM)
    publication = seam.add_publication(client, "aeron:udp?endpoint=localhost:1", STREAM)
    subscription = seam.add_subscription(client, "aeron:udp?endpoint=localhost:1", STREAM)
    only_image(spy).reject("no reason")
    seam.invoke(client)
    assert not all_closed(only_image(spy))
    assert only_image(spy).source_identity == "aeron:ipc"
    assert seam.active_transport_count(only_image(spy)) == 0
    image = only_image(subscription)
    assert (image.source_identity, seam.active_transport_count(image)) == ("127.0.0.1:50000", 1)
    image.reject("no reason")
    seam.invoke(client)
    assert seam.is_closed(image)
    assert seam.offer(publication, b"x") == 64
    assert received(spy) == [b"x"]


def test_changes_of_destinations_can_fail_and_take_time(driver: MemoryDriver, client: MemoryClient) -> None:
    subscription = seam.add_subscription(client, "aeron:udp?control-mode=manual", STREAM)
    driver.fail_next_add("destination", 11, "no such place")
    driver.delay_next_add("destination", 2)
    adding = seam.begin_add_destination(subscription, "aeron:udp?endpoint=localhost:1")
    assert seam.poll_add(adding) is None
    with pytest.raises(RegistrationError, match="no such place"):
        added(client, adding)
    assert client.invoke_count == 2
    pending = seam.begin_remove_destination(subscription, "aeron:udp?endpoint=localhost:1")
    subscription.close()
    assert added(client, pending) is subscription


def test_a_driver_refuses_impossible_settings() -> None:
    with pytest.raises(ConfigurationError, match="term_length.*5"):
        MemoryDriver(term_length=5)
    with pytest.raises(ConfigurationError, match="publication_window.*-1"):
        MemoryDriver(publication_window=-1)
    with pytest.raises(ConfigurationError, match="counters_capacity.*0"):
        MemoryDriver(counters_capacity=0)


# Listeners


def test_listeners_hear_of_gone_counters_when_their_client_is_invoked(
    driver: MemoryDriver, client: MemoryClient
) -> None:
    other = driver.connect("other")
    listener, second = seam.RecordingListener(), seam.RecordingListener()
    seam.add_listener(client, listener)
    seam.add_listener(client, second)
    counter = seam.add_counter(other, 203)
    gone = (counter.registration_id, counter.counter_id)
    counter.close()
    assert listener.unavailable == []
    assert seam.invoke(client) == 1
    seam.remove_listener(client, second)
    other.close()
    assert seam.invoke(client) == 1
    assert listener.unavailable == [gone, (seam.client_id(other), 1)]
    assert second.unavailable == [gone]


def test_listeners_of_a_client_with_a_thread_of_its_own_hear_at_once(driver: MemoryDriver) -> None:
    client = driver.connect(is_invoker=False)
    listener = seam.RecordingListener()
    seam.add_listener(client, listener)
    counter = seam.add_counter(client, 203)
    counter.close()
    assert listener.unavailable == [(counter.registration_id, counter.counter_id)]
    assert not seam.is_invoker(client)
    assert seam.invoke(client) == client.invoke_count == 0


# Clients


def test_ids_are_sequences(driver: MemoryDriver) -> None:
    def ids(world: MemoryDriver) -> list[int]:
        client = world.connect()
        publication, subscription = connected(client)
        return [
            seam.client_id(client),
            publication.registration_id,
            subscription.registration_id,
            publication.session_id,
            seam.next_correlation_id(client),
            seam.next_session_id(client, STREAM),
            seam.next_session_id(client, STREAM),
        ]

    first = ids(driver)
    assert first == ids(MemoryDriver())
    assert first[-1] == first[-2] + 1
    assert len(set(first)) == len(first)


def test_closing_a_client_closes_what_it_added_and_nothing_else(driver: MemoryDriver, client: MemoryClient) -> None:
    listener = seam.RecordingListener()
    seam.add_listener(client, listener)
    publication, subscription = connected(client)
    counter = seam.add_counter(client, 1000)
    other = driver.connect("other")
    others = connected(other)
    image = only_image(subscription)
    counters = seam.counters(client)
    assert client.open_resources == [subscription, publication, counter]
    client.close()
    client.close()
    assert client.is_closed()
    assert listener.close_count == 1
    assert all_closed(publication, subscription, image)
    assert counter.value == -1
    assert (seam.counter_capacity(counters), counters.read()) == (0, [])
    assert [label for _, _, label, _ in driver.counters.read()] == [
        f"client-heartbeat: id={seam.client_id(other)} name=other"
    ]
    assert driver.open_resources() == [others[1], others[0]]
    assert seam.offer(others[0], b"x") == 64


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_can_be_added_to_a_closed_client(client: MemoryClient, kind: str) -> None:
    client.close()
    with pytest.raises(ClosedError, match="'test' is closed"):
        add(client, kind)


def test_a_closed_client_has_no_ids_and_does_no_work(client: MemoryClient) -> None:
    client.close()
    with pytest.raises(ClosedError):
        seam.next_correlation_id(client)
    with pytest.raises(ClosedError):
        seam.next_session_id(client, STREAM)
    assert seam.invoke(client) == 0


def test_a_dying_driver_takes_everything_with_it(driver: MemoryDriver) -> None:
    clients = [driver.connect("invoker"), driver.connect("threaded", is_invoker=False)]
    listeners = [seam.RecordingListener() for _ in clients]
    resources: list[Image | Subscription | Publication] = []
    for client, listener in zip(clients, listeners, strict=True):
        seam.add_listener(client, listener)
        publication, subscription = connected(client)
        resources += [publication, subscription, only_image(subscription)]
    driver.kill()
    assert not driver.is_alive
    assert [client.is_closed() for client in clients] == [True, True]
    assert [listener.close_count for listener in listeners] == [1, 1]
    assert all_closed(*resources)
    assert driver.open_resources() == []
    assert driver.publications() == []
    with pytest.raises(DriverTimeoutError):
        driver.connect()


def test_an_invoked_client_can_notice_the_drivers_death_late(driver: MemoryDriver, client: MemoryClient) -> None:
    listener = seam.RecordingListener()
    seam.add_listener(client, listener)
    publication, _ = connected(client)
    driver.kill(at_next_invoke=True)
    assert not client.is_closed()
    assert seam.offer(publication, b"x") == 64
    with pytest.raises(DriverTimeoutError, match="killed"):
        seam.add_counter(client, 1)
    assert seam.invoke(client) == 1
    assert client.is_closed()
    assert listener.close_count == 1
    assert seam.offer(publication, b"x") == CLOSED


def test_resources_can_be_closed_before_the_client(client: MemoryClient) -> None:
    publication, subscription = connected(client)
    image = only_image(subscription)
    client.force_close_resources()
    assert all_closed(publication, subscription, image)
    assert not client.is_closed()
    assert client.open_resources == []


def test_a_task_runs_each_time_that_the_driver_conducts(driver: MemoryDriver, client: MemoryClient) -> None:
    calls: list[int] = []

    def task() -> None:
        calls.append(1)

    driver.add_task(task)
    driver.conduct()
    seam.invoke(client)
    driver.remove_task(task)
    seam.invoke(client)
    assert len(calls) == 2


def test_publications_and_logs_can_be_looked_up(driver: MemoryDriver, client: MemoryClient) -> None:
    publication, _ = connected(client)
    assert isinstance(publication, MemoryPublication)
    seam.offer(publication, b"x")
    [info] = driver.publications()
    assert info[:3] == (IPC, STREAM, publication.session_id)
    assert (info.is_exclusive, info.position, info.subscriber_count) == (False, 64, 1)
    assert driver.log(IPC, STREAM) is driver.log(IPC, STREAM, publication.session_id) is publication.log
    assert publication.log.messages() == [b"x"]
    with pytest.raises(KeyError, match="stream 11"):
        driver.log(IPC, STREAM + 1)


def test_a_forgotten_world_is_collected() -> None:
    clock = ManualClock()
    driver = MemoryDriver(clock)
    publication, subscription = connected(driver.connect())
    seam.offer(publication, b"x")
    collected: list[bool] = []
    weakref.finalize(_Canary.hang_on(driver), collected.append, True)
    del driver, publication, subscription
    gc.collect()
    assert collected == [True]


class _Canary:
    @classmethod
    def hang_on(cls, driver: MemoryDriver) -> _Canary:
        canary = cls()
        driver.add_task(canary)
        return canary

    def __call__(self) -> None:
        raise AssertionError("nobody conducts this driver")


def test_objects_say_what_they_are(driver: MemoryDriver, client: MemoryClient) -> None:
    publication, subscription = connected(client)
    assert repr(publication) == f"<MemoryPublication {IPC} stream_id=10 session_id=-1000>"
    assert repr(subscription) == f"<MemorySubscription {IPC} stream_id=10>"
    assert "position=0 closed=False" in repr(only_image(subscription))
    assert repr(client) == "<MemoryClient 1 'test' closed=False>"
    assert repr(driver) == "<MemoryDriver clients=1 publications=1 subscriptions=1 alive=True>"


# A process that dies


def test_a_severed_client_does_nothing_and_keeps_its_resources_until_it_expires(driver: MemoryDriver) -> None:
    client, other = driver.connect(), driver.connect()
    publication, subscription = connected(client)
    kept = seam.add_subscription(other, IPC, STREAM)
    counter = seam.add_counter(client, 1000)
    seam.set_counter(counter, 5)
    client.sever()
    client.sever()
    for resource in (publication, subscription, counter, client):
        resource.close()
    seam.set_counter(counter, 6)
    assert seam.offer(publication, b"x") == CLOSED
    assert received(subscription) == []
    with pytest.raises(ClosedError):
        seam.add_subscription(client, IPC, STREAM)
    assert len(driver.open_resources()) == 4
    assert driver.publications()[0].subscriber_count == 2
    assert seam.counter_record(driver.counters, counter.counter_id)["value"] == 5
    client.expire()
    assert driver.open_resources() == [kept]
    assert seam.is_end_of_stream(only_image(kept))
    assert seam.counter_record(driver.counters, counter.counter_id)["state"] == -1


def test_the_open_claim_of_a_client_that_expires_becomes_padding(driver: MemoryDriver) -> None:
    client = driver.connect()
    publication, _subscription = connected(client, exclusive=True)
    subscription = seam.add_subscription(driver.connect(), IPC, STREAM)
    claim = seam.claim(publication, 4)
    assert isinstance(claim, seam.OpenClaim)
    assert isinstance(publication, MemoryPublication)
    assert publication.log.open_claims() == [0]
    client.sever()
    claim.commit()
    claim.abort()
    assert publication.log.open_claims() == [0]
    client.expire()
    assert publication.log.open_claims() == []
    assert received(subscription) == []
    assert seam.is_end_of_stream(only_image(subscription))


def test_destinations_need_a_network(client: MemoryClient) -> None:
    publication, subscription = connected(client, "aeron:udp?control-mode=manual|tags=1")
    for resource in (publication, subscription):
        for change in ("add_destination", "remove_destination"):
            with pytest.raises(RegistrationError, match="simulated network"):
                getattr(resource, change)("aeron:udp?endpoint=localhost:20000")
