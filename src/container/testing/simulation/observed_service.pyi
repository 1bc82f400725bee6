# Types of container.testing.simulation.observed_service, which is compiled.

from collections.abc import Callable
from typing import final

from container.service.service_handler import ServiceHandler
from container.transport.streams import Publication
from container.transport.transport_seam import SnapshotWriter

@final
class ObservedService(ServiceHandler):
    def __init__(
        self,
        inner: ServiceHandler,
        expected: list[tuple[int, int, int, int, bytes]],
        *,
        on_finding: Callable[[str], object],
        on_state: Callable[[int], object],
        on_behind: Callable[[], object] | None = None,
        index: int = 0,
        position: int = 0,
        probe_every: int = 0,
    ) -> None: ...
    @property
    def inner(self) -> ServiceHandler: ...
    @property
    def expected(self) -> list[tuple[int, int, int, int, bytes]]: ...
    @property
    def index(self) -> int: ...
    @property
    def position(self) -> int: ...
    limit: int
    probe_every: int
    @property
    def role(self) -> int: ...
    @property
    def has_terminated(self) -> bool: ...
    def switch_off(self) -> None: ...
    def state(self) -> tuple[bytes, ...]: ...

@final
class StatePublication(Publication): ...

@final
class StateWriter(SnapshotWriter): ...
