# Types of container.aeron.conductor_events: what the C client's conductor reports.
from collections.abc import Callable
from typing import final

from container.errors import ContainerError

@final
class ConductorEvents:
    def __init__(self, error_handler: Callable[[ContainerError], object] | None, raises: bool) -> None: ...
