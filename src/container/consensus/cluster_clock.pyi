"""The cluster clock: the time that a leader writes into the log."""

from typing import final

from container.transport.clocks import Clock

TIME_UNITS: tuple[str, ...]

@final
class ClusterClock:
    """Time since 1970, as ``clock`` has it, in one of ``TIME_UNITS``: "millis", "micros" or "nanos"."""

    @property
    def time_unit(self) -> int: ...
    def __init__(self, clock: Clock, time_unit: str = "millis") -> None: ...
    def from_nanos(self, duration_ns: int) -> int: ...
