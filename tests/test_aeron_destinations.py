"""Destinations of the real driver, as a follower's subscriptions to the log use them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from container.aeron import AeronClient, MediaDriver
from container.consensus.channels import destination, follower_log_channel
from container.testing.memory import transport_probe as probe
from container.transport.streams import Publication, Subscription
from tests.aeron_session import until

TEMPLATE = "aeron:udp?term-length=64k"
STREAM_ID = 100
LOCAL_SOCKET_ADDRESS_TYPE_ID = 14
KEPT, NEXT, THIRD = 1001, 1002, 1003


@pytest.fixture
def client() -> Iterator[AeronClient]:
    with (
        MediaDriver.launch_embedded(publication_linger_timeout_ns=50_000_000, timer_interval_ns=20_000_000) as driver,
        AeronClient(driver.aeron_dir, use_invoker=True) as client,
    ):
        yield client


def subscribe(client: AeronClient, tag: int, session_id: int) -> Subscription:
    channel = follower_log_channel(TEMPLATE, tag, probe.next_correlation_id(client), session_id)
    return probe.add_subscription(client, channel, STREAM_ID)


def publish(client: AeronClient, endpoint: str, session_id: int) -> Publication:
    channel = f"aeron:udp?endpoint={endpoint}|session-id={session_id}|term-length=64k"
    return probe.add_publication(client, channel, STREAM_ID, exclusive=True)


def change_destination(client: AeronClient, subscription: Subscription, channel: str, *, is_added: bool) -> None:
    change = (probe.begin_add_destination if is_added else probe.begin_remove_destination)(subscription, channel)
    until(client, partial(probe.poll_add, change), channel)


def await_image(client: AeronClient, subscription: Subscription, session_id: int) -> None:
    until(client, partial(probe.image, subscription, session_id), f"an image of session {session_id}")


def has_sockets(client: AeronClient, registration_id: int) -> bool:
    counters = probe.counters(client)
    records = [probe.counter_record(counters, each) for each in range(probe.counter_capacity(counters))]
    return any(
        (each["state"], each["type_id"], each["registration_id"]) == (1, LOCAL_SOCKET_ADDRESS_TYPE_ID, registration_id)
        for each in records
    )


def test_a_subscription_shares_the_destination_of_one_with_its_tag_and_has_it_when_that_closes(
    client: AeronClient,
) -> None:
    """The next log of a follower comes to the port at which services are still to join the one before."""
    tag = probe.next_correlation_id(client)
    kept = subscribe(client, tag, KEPT)
    change_destination(client, kept, destination(TEMPLATE, "localhost:0"), is_added=True)
    endpoint = until(client, partial(probe.resolved_endpoint, kept), "the port of the destination")
    live = destination(TEMPLATE, endpoint)
    change_destination(client, kept, destination(TEMPLATE, "localhost:0"), is_added=False)
    until(client, lambda: not has_sockets(client, kept.registration_id), "the end of a port that nobody shares")
    change_destination(client, kept, live, is_added=True)
    publications = [publish(client, endpoint, KEPT)]
    await_image(client, kept, KEPT)

    following = subscribe(client, tag, NEXT)
    publications.append(publish(client, endpoint, NEXT))
    await_image(client, following, NEXT)
    service = subscribe(client, tag, KEPT)
    await_image(client, service, KEPT)
    service.close()
    kept.close()

    until(client, lambda: probe.offer(publications[1], b"data") > 0, "room for a message")
    assert until(client, partial(probe.poll, following, 10), "the message")[0][0] == b"data"
    assert has_sockets(client, kept.registration_id)
    assert not has_sockets(client, following.registration_id)
    change_destination(client, following, live, is_added=False)
    following.close()
    until(client, lambda: not has_sockets(client, kept.registration_id), "the end of the shared port")
    third = subscribe(client, probe.next_correlation_id(client), THIRD)
    change_destination(client, third, live, is_added=True)
    publications.append(publish(client, endpoint, THIRD))
    await_image(client, third, THIRD)
