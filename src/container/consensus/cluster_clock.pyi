"""The cluster clock: the time that a leader writes into the log."""

from typing import final

from container.transport.seam import Clock

@final
class ClusterClock:
    """Milliseconds since 1970, as ``clock`` has them."""

    @property
    def time_unit(self) -> int: ...
    def __init__(self, clock: Clock) -> None: ...
