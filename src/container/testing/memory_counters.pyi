# What type checkers see of container.testing.memory_counters, which is compiled.

from typing import Self

from container.transport import Clock, Counters

class CounterBuffers:
    def __new__(cls, clock: Clock, capacity: int) -> Self: ...
    @property
    def capacity(self) -> int: ...

class MemoryCounters(Counters): ...
