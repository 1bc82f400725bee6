# What type checkers see of container.testing.memory_transport, which is compiled.

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, final

from container.testing.manual_time import ManualClock as ManualClock
from container.testing.manual_time import SteppingIdleStrategy as SteppingIdleStrategy
from container.testing.memory_log import MemoryLog
from container.transport.memory_counters import MemoryCounters
from container.transport.seam import Client, Clock, Counter, PendingAdd, Publication, Subscription

__all__ = [
    "ManualClock",
    "MemoryClient",
    "MemoryCounter",
    "MemoryDriver",
    "MemoryPendingAdd",
    "MemoryPublication",
    "MemorySubscription",
    "PublicationInfo",
    "SteppingIdleStrategy",
]

type _Kind = Literal["publication", "exclusive_publication", "subscription", "counter"]

@final
class MemoryPendingAdd(PendingAdd): ...

class PublicationInfo(NamedTuple):
    channel: str
    stream_id: int
    session_id: int
    registration_id: int
    is_exclusive: bool
    position: int
    subscriber_count: int

@final
class MemoryPublication(Publication):
    @property
    def log(self) -> MemoryLog: ...

@final
class MemorySubscription(Subscription): ...

@final
class MemoryCounter(Counter): ...

@final
class MemoryClient(Client):
    @property
    def driver(self) -> MemoryDriver: ...
    @property
    def invoke_count(self) -> int: ...
    @property
    def open_resources(self) -> list[Publication | Subscription | Counter]: ...
    def publish_log(self, log: MemoryLog, channel: str) -> MemoryPublication: ...
    def force_close_resources(self) -> None: ...

@final
class MemoryDriver:
    def __init__(
        self,
        clock: Clock | None = None,
        *,
        term_length: int = 65_536,
        mtu_length: int = 1408,
        initial_term_id: int = 11,
        publication_window: int = 0,
        counters_capacity: int = 1024,
        first_session_id: int = -1000,
    ) -> None: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def term_length(self) -> int: ...
    @property
    def mtu_length(self) -> int: ...
    @property
    def initial_term_id(self) -> int: ...
    @property
    def publication_window(self) -> int: ...
    @property
    def counters(self) -> MemoryCounters: ...
    @property
    def is_alive(self) -> bool: ...
    def connect(self, client_name: str = "", *, is_invoker: bool = True, image_delay: int = 0) -> MemoryClient: ...
    def kill(self, *, at_next_invoke: bool = False) -> None: ...
    def publication_results(
        self, channel: str, stream_id: int, results: Iterable[int | BaseException | None]
    ) -> None: ...
    def fail_next_add(
        self,
        kind: _Kind,
        code: int = 11,
        text: str = "scripted failure",
        *,
        error: BaseException | None = None,
    ) -> None: ...
    def fail_next_invoke(self, error: BaseException) -> None: ...
    def delay_next_add(self, kind: _Kind, invokes: int) -> None: ...
    def set_counter_registration_id(self, counter_id: int, registration_id: int) -> None: ...
    def add_task(self, task: Callable[[], object]) -> None: ...
    def remove_task(self, task: Callable[[], object]) -> None: ...
    def conduct(self) -> int: ...
    def give_up_images(self, session_id: int) -> None: ...
    def publications(self) -> list[PublicationInfo]: ...
    def log(self, channel: str, stream_id: int, session_id: int | None = None) -> MemoryLog: ...
    def open_resources(self) -> list[Publication | Subscription | Counter]: ...
