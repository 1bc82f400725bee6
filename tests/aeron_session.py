"""Helpers of tests over a media driver: waiting while the client's conductor runs, and connected streams."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from container.aeron import AeronClient
from container.testing.memory import transport_probe as probe
from container.transport.streams import Image, Publication, Subscription
from tests.limits import LIMIT_S

IPC = "aeron:ipc"
_PUBLISHER_LIMIT = 1  # type of the counter that a driver has for it
_STREAM_IDS = itertools.count(2001)


def until[T](client: AeronClient, predicate: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
    """Invoke the client and ask ``predicate`` until it returns something true, and return that."""
    deadline = time.monotonic() + limit_s
    while True:
        probe.invoke(client)
        result = predicate()
        if result:
            return result
        if time.monotonic() >= deadline:
            raise TimeoutError(f"waited {limit_s:g} s for {what}")
        os.sched_yield()


@dataclass(frozen=True)
class Stream:
    """A publication, and the image of it that a subscription has."""

    client: AeronClient
    publication: Publication
    subscription: Subscription
    image: Image

    def offer(self, data: bytes) -> int:
        """Offer until the message is taken; return the new position."""
        return until(self.client, lambda: max(0, probe.offer(self.publication, data)), "an offer to be taken")

    def receive(self, count: int) -> list[bytes]:
        """Poll the image until ``count`` fragments came, and return their payloads."""
        received: list[bytes] = []

        def poll() -> bool:
            received.extend(data for data, _ in probe.poll(self.image, count - len(received)))
            return len(received) >= count

        until(self.client, poll, f"{count} fragments")
        return received


def connect(
    client: AeronClient, channel: str = IPC, stream_id: int | None = None, *, exclusive: bool = False
) -> Stream:
    """Add a subscription and a publication and wait until each sees the other.

    Without a stream id the stream is a new one: the driver keeps a log for a while after its last user.
    """
    if stream_id is None:
        stream_id = next(_STREAM_IDS)
    subscription = probe.add_subscription(client, channel, stream_id)
    publication = probe.add_publication(client, channel, stream_id, exclusive)
    image = until(client, lambda: probe.image(subscription, publication.session_id), "an image")
    until_open(client, publication)
    return Stream(client, publication, subscription, image)


def until_open(client: AeronClient, publication: Publication) -> None:
    """Wait until the publication is connected and the driver, a moment later on its own thread, lets it send."""
    until(client, lambda: probe.is_connected(publication), "the publication to be connected")
    until(client, lambda: _limit(client, publication) > probe.position(publication), "the publication to have a window")


def _limit(client: AeronClient, publication: Publication) -> int:
    """Up to where a publication may send, from the driver's counter (upstream: PublisherLimit.java); -1 without one."""
    end = f" {publication.session_id} {publication.stream_id} {publication.channel}"
    limits = (
        value
        for _, type_id, label, value in probe.counters(client).read()
        if type_id == _PUBLISHER_LIMIT and label.endswith(end)
    )
    return max(limits, default=-1)
