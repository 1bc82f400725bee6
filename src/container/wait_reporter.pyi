# What type checkers see of container.wait_reporter, which is compiled.
from typing import final

from container.transport import Clock

@final
class WaitReporter:
    def __init__(self, clock: Clock, what: str) -> None: ...
