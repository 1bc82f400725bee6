# What type checkers see of container.service.bounded_log_adapter, which is compiled.

from typing import final

from container.service.event_handler import EventHandler
from container.transport.seam import Clock, FragmentHandler

@final
class BoundedLogAdapter(FragmentHandler):
    def __init__(self, handler: EventHandler, fragment_limit: int, clock: Clock) -> None: ...
