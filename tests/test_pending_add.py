"""Adds that do not wait for the driver: over a real driver and over memory."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator

import pytest

from container.aeron import AeronClient, MediaDriver
from container.errors import ClosedError, RegistrationError
from container.testing.memory import transport_probe as probe
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.transport.counters import Counter
from container.transport.streams import PendingAdd, Publication, Subscription
from container.transport.transport_seam import Client
from tests.limits import LIMIT_S

IPC = "aeron:ipc?term-length=64k"
STREAM_ID = 3001


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch_embedded(publication_linger_timeout_ns=50_000_000, timer_interval_ns=20_000_000) as driver:
        yield driver


@pytest.fixture(params=["invoker", "own thread", "memory"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    if request.param == "memory":
        yield MemoryDriver().connect("test")
        return
    driver: MediaDriver = request.getfixturevalue("driver")
    with AeronClient(driver.aeron_dir, use_invoker=request.param == "invoker") as client:
        yield client


def finish(client: Client, adding: PendingAdd) -> Publication | Subscription:
    deadline = time.monotonic() + LIMIT_S
    while (added := probe.poll_add(adding)) is None:
        assert time.monotonic() < deadline, f"the driver did not answer within {LIMIT_S:g} s"
        probe.invoke(client)
        os.sched_yield()
    assert not isinstance(added, Counter)
    return added


@pytest.mark.parametrize("exclusive", [False, True])
def test_what_was_added_works(client: Client, exclusive: bool) -> None:
    publication = finish(client, probe.begin_add_publication(client, IPC, STREAM_ID, exclusive))
    subscription = finish(client, probe.begin_add_subscription(client, IPC, STREAM_ID))
    assert isinstance(publication, Publication)
    assert isinstance(subscription, Subscription)
    assert (publication.channel, publication.stream_id) == (IPC, STREAM_ID)
    assert (subscription.channel, subscription.stream_id) == (IPC, STREAM_ID)
    received: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    offered = False
    while not received:
        assert time.monotonic() < deadline, "the message did not come"
        probe.invoke(client)
        offered = offered or probe.offer(publication, b"hello") > 0
        received += [data for data, _ in probe.poll(subscription)]
    assert received == [b"hello"]
    publication.close()
    subscription.close()


def test_an_add_is_over_once_it_returned(client: Client) -> None:
    adding = probe.begin_add_subscription(client, IPC, STREAM_ID)
    subscription = finish(client, adding)
    adding.close()
    adding.close()
    with pytest.raises(ClosedError, match="is over"):
        probe.poll_add(adding)
    subscription.close()


def test_an_add_can_be_given_up(client: Client) -> None:
    for exclusive in (False, True):
        adding = probe.begin_add_publication(client, IPC, STREAM_ID, exclusive)
        adding.close()
        with pytest.raises(ClosedError, match="is over"):
            probe.poll_add(adding)
    probe.begin_add_subscription(client, IPC, STREAM_ID).close()
    for _ in range(100):
        probe.invoke(client)


def test_an_add_that_is_forgotten_is_given_up(client: Client) -> None:
    for _ in range(10):
        probe.begin_add_subscription(client, IPC, STREAM_ID)
        probe.begin_add_publication(client, IPC, STREAM_ID)
    gc.collect()
    for _ in range(100):
        probe.invoke(client)
    finish(client, probe.begin_add_publication(client, IPC, STREAM_ID)).close()


def test_a_closed_client_ends_its_adds(client: Client) -> None:
    pending = [
        probe.begin_add_subscription(client, IPC, STREAM_ID),
        probe.begin_add_publication(client, IPC, STREAM_ID),
    ]
    client.close()
    for adding in pending:
        with pytest.raises(ClosedError):
            probe.poll_add(adding)
        adding.close()
    with pytest.raises(ClosedError):
        probe.begin_add_publication(client, IPC, STREAM_ID)


@pytest.mark.parametrize("use_invoker", [True, False])
def test_a_channel_that_the_driver_refuses_is_an_error(driver: MediaDriver, use_invoker: bool) -> None:
    with AeronClient(driver.aeron_dir, use_invoker=use_invoker) as client:
        adding = probe.begin_add_publication(client, "aeron:udp?endpoint=no.such.host.invalid:4000", STREAM_ID)
        with pytest.raises(RegistrationError, match=r"cannot add publication aeron:udp\?endpoint=no.such.host"):
            finish(client, adding)
        with pytest.raises(ClosedError, match="is over"):
            probe.poll_add(adding)


def test_memory_answers_after_the_delay_or_with_the_failure_that_a_test_sets() -> None:
    driver = MemoryDriver()
    client: MemoryClient = driver.connect("test")
    driver.delay_next_add("subscription", 3)
    driver.fail_next_add("publication", text="no room")
    adding = probe.begin_add_subscription(client, IPC, STREAM_ID)
    for _ in range(3):
        assert probe.poll_add(adding) is None
        probe.invoke(client)
    assert probe.poll_add(adding) is not None
    with pytest.raises(RegistrationError, match="no room"):
        probe.poll_add(probe.begin_add_publication(client, IPC, STREAM_ID))


@pytest.mark.parametrize(("events", "invokes"), [(80, 1), (250, 3)])
def test_an_answer_does_not_wait_behind_what_goes_on_at_other_clients(
    driver: MediaDriver, events: int, invokes: int
) -> None:
    """The driver sends to all clients what comes and goes at each; a flood of that is heard in several turns."""
    # It is not invoked for a while, and its thread lets it be.
    with AeronClient(driver.aeron_dir, keepalive_interval_ms=20_000) as client, AeronClient(driver.aeron_dir) as other:
        while probe.invoke(client):
            pass
        counters = [probe.add_counter(other, 1_101) for _ in range(events)]
        adding = probe.begin_add_publication(client, IPC, STREAM_ID)
        counters.append(probe.add_counter(other, 1_101))  # the driver has answered in the order of the requests
        heard = [probe.invoke(client) for _ in range(invokes)]
        assert probe.poll_add(adding) is not None
        assert all(work_count <= 110 for work_count in heard)
