# The types of container.transport.memory_counters, which is compiled.

from typing import Self, final

from container.transport.clocks import Clock
from container.transport.counters import Counters

@final
class CounterBuffers:
    def __new__(cls, clock: Clock, capacity: int) -> Self: ...
    @property
    def capacity(self) -> int: ...

@final
class MemoryCounters(Counters): ...
