# What type checkers see of container.transport.wait_reporter, which is compiled.
from typing import final

from container.transport.seam import Clock

@final
class WaitReporter:
    def __init__(self, clock: Clock, source: str, what: str) -> None: ...
