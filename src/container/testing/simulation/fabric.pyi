# Types of container.testing.simulation.fabric, which is compiled.

from collections.abc import Callable, Iterable
from typing import final

from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.virtual_time import Draws, Trace, VirtualTime
from container.transport.clocks import Clock

__all__ = ["Fabric"]

@final
class Fabric:
    def __init__(
        self,
        scheduler: Scheduler,
        draws: Draws,
        *,
        trace: Trace | None = None,
        latency_ns: int = 50_000,
        mean_latency_ns: int = 200_000,
        receiver_window: int = 0,
        heartbeat_ns: int = 100_000_000,
        status_ns: int = 200_000_000,
        image_liveness_ns: int = 10_000_000_000,
        connection_timeout_ns: int = 5_000_000_000,
        linger_ns: int = 5_000_000_000,
        client_liveness_ns: int = 10_000_000_000,
        unblock_timeout_ns: int = 15_000_000_000,
    ) -> None: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def time(self) -> VirtualTime: ...
    @property
    def draws(self) -> Draws: ...
    @property
    def trace(self) -> Trace | None: ...
    @property
    def latency_ns(self) -> int: ...
    @property
    def mean_latency_ns(self) -> int: ...
    @property
    def receiver_window(self) -> int: ...
    @property
    def heartbeat_ns(self) -> int: ...
    @property
    def status_ns(self) -> int: ...
    @property
    def image_liveness_ns(self) -> int: ...
    @property
    def connection_timeout_ns(self) -> int: ...
    @property
    def linger_ns(self) -> int: ...
    @property
    def client_liveness_ns(self) -> int: ...
    @property
    def unblock_timeout_ns(self) -> int: ...
    @property
    def lost_images(self) -> int: ...
    @property
    def rejoined_images(self) -> int: ...
    @property
    def repaired_gaps(self) -> int: ...
    def host(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        wake: Callable[[], object] | None = None,
        term_length: int = 65_536,
        mtu_length: int = 1408,
        initial_term_id: int = 11,
        publication_window: int = ...,
        counters_capacity: int = 1024,
        first_session_id: int = ...,
    ) -> MemoryDriver: ...
    def link(
        self, a: str, b: str, *, latency_ns: int, mean_latency_ns: int, loss: float = 0.0, both_ways: bool = True
    ) -> None: ...
    def cut(self, a: str, b: str, both_ways: bool = True) -> None: ...
    def heal(self, a: str, b: str, both_ways: bool = True) -> None: ...
    def clog(self, a: str, b: str, until_ns: int, both_ways: bool = False) -> None: ...
    def partition(self, groups: Iterable[Iterable[str]]) -> None: ...
    def sever(self, client: MemoryClient) -> None: ...
