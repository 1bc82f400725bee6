"""Hosts on a simulated network, for tests: a client on each, and time that passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient, MemoryPublication, MemorySubscription
from container.testing.simulation.fabric import Fabric
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.virtual_time import Draws, Trace, VirtualTime
from container.transport.streams import Image, Publication, Subscription

MS = 1_000_000
S = 1_000 * MS
LATENCY = 1 * MS


class FabricWorld:
    """Hosts ``a``, ``b`` and so on, all messages of one latency unless the options say otherwise."""

    def __init__(self, names: str = "ab", seed: int = 1, **options: Any) -> None:
        self.time = VirtualTime()
        self.draws = Draws(seed)
        self.trace = Trace()
        self.scheduler = Scheduler(self.time, self.draws)
        latency = {"latency_ns": LATENCY, "mean_latency_ns": LATENCY}
        self.fabric = Fabric(self.scheduler, self.draws, trace=self.trace, **(latency | options))
        self.drivers = {name: self.fabric.host(name) for name in names}
        self.clients: dict[str, MemoryClient] = {name: driver.connect(name) for name, driver in self.drivers.items()}

    def run(self, duration_ns: int) -> None:
        """Let time pass."""
        over: list[bool] = []
        self.scheduler.after(duration_ns, over.append, True)
        while not over:
            self.scheduler.step()

    def run_until(self, condition: Callable[[], object], limit_ns: int = 60 * S) -> int:
        """Let time pass until the condition holds; how long that took in ns."""
        begin_ns = self.time.now_ns
        while not condition():
            assert self.time.now_ns - begin_ns < limit_ns, f"did not happen within {limit_ns / S} s"
            self.run(MS // 10)
        return self.time.now_ns - begin_ns

    def publish(self, host: str, channel: str, stream_id: int = 1) -> MemoryPublication:
        publication = seam.add_publication(self.clients[host], channel, stream_id, exclusive=True)
        assert isinstance(publication, MemoryPublication)
        return publication

    def subscribe(self, host: str, channel: str, stream_id: int = 1) -> MemorySubscription:
        subscription = seam.add_subscription(self.clients[host], channel, stream_id)
        assert isinstance(subscription, MemorySubscription)
        return subscription

    def connected(self, channel: str = "aeron:udp?endpoint=b:1") -> tuple[MemoryPublication, MemorySubscription]:
        """A publication on ``a`` and its subscription on ``b``."""
        subscription = self.subscribe("b", channel)
        publication = self.publish("a", channel)
        self.run_until(lambda: seam.is_connected(publication))
        return publication, subscription


def offer(publication: Publication, data: bytes) -> str:
    """Offer once, twice at the end of a term; the name of the result, ``ok`` for a position."""
    result = seam.offer(publication, data)
    if seam.result_name(result) == "ADMIN_ACTION":
        result = seam.offer(publication, data)
    return "ok" if result > 0 else seam.result_name(result)


def read(source: Subscription | Image, limit: int = 1_000_000) -> list[bytes]:
    """All payloads that there are, up to a limit of frames."""
    found: list[bytes] = []
    polls_without = 0
    while len(found) < limit and polls_without < 2:  # a poll ends with its term
        more = seam.poll(source, limit - len(found))
        polls_without = 0 if more else polls_without + 1
        found += [data for data, _ in more]
    return found


def image_of(subscription: MemorySubscription) -> Image:
    image = seam.image(subscription)
    assert image is not None
    return image
