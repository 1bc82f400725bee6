# Types of container.testing.simulation.taps, which is compiled.

from collections.abc import Sequence
from typing import final

from container.testing.memory.memory_transport import MemoryClient

@final
class Fragments: ...

@final
class Taps:
    def __init__(self, clients: Sequence[MemoryClient], stream_ids: Sequence[int]) -> None: ...
    def read(self) -> list[tuple[int, bytes]]: ...
