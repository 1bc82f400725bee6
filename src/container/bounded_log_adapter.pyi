# What type checkers see of container.bounded_log_adapter, which is compiled.

from typing import final

from container.event_handler import EventHandler
from container.transport import Clock, FragmentHandler

@final
class BoundedLogAdapter(FragmentHandler):
    def __init__(self, handler: EventHandler, fragment_limit: int, clock: Clock) -> None: ...
