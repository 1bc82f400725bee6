# The duty cycle of an archive, as type checkers see it.
from collections.abc import Callable
from typing import final

from container.agent.agent import Agent
from container.archive.server.archive_conductor import Conductor
from container.archive.server.archive_mark_file import ArchiveMarkFile
from container.archive.server.store.catalog import Catalog
from container.transport.clocks import Clock
from container.transport.duration_tracker import DurationTracker
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client

def new_archive_id(client: Client, *, is_given: bool) -> int: ...

@final
class Heartbeat:
    def __init__(
        self, client: Client, clock: Clock, mark_file: ArchiveMarkFile, on_error: Callable[[BaseException], object]
    ) -> None: ...
    @property
    def mark_file(self) -> ArchiveMarkFile: ...
    def watch(self, catalog: Catalog) -> None: ...
    def beat(self) -> int: ...

def await_former_archive(
    client: Client, archive_id: int, heartbeat: Heartbeat, idle_strategy: IdleStrategy, limit_ns: int
) -> None: ...

@final
class ArchiveAgent(Agent):
    def __init__(
        self,
        conductor: Conductor,
        heartbeat: Heartbeat,
        clock: Clock,
        cycle_tracker: DurationTracker,
        on_error: Callable[[BaseException], object],
        release: Callable[[bool], object],
    ) -> None: ...
    def start(self) -> None: ...
