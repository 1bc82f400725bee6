# The types of container.service.snapshot_loader, which is compiled.
from collections.abc import Callable, Iterator
from typing import final

from container.service.event_handler import EventHandler
from container.transport.clocks import Clock
from container.transport.streams import FragmentHandler
from container.transport.transport_seam import SnapshotReader

@final
class SnapshotStream(FragmentHandler):
    def __init__(self, reader: SnapshotReader, clock: Clock) -> None: ...

@final
class SnapshotLoader(FragmentHandler):
    is_done: bool
    app_version: int
    time_unit: int
    def __init__(self, reader: SnapshotReader, handler: EventHandler, clock: Clock) -> None: ...

@final
class SnapshotImage:
    def __init__(self, reader: SnapshotReader, cluster: EventHandler) -> None: ...
    @property
    def is_end_of_stream(self) -> bool: ...
    @property
    def position(self) -> int: ...
    def poll(self, handler: Callable[[bytes], object], fragment_limit: int = 10) -> int: ...
    def peek(self) -> bytes | None: ...
    def __iter__(self) -> Iterator[bytes]: ...
