# What type checkers see of container.service.service_adapter, which is compiled.
from typing import final

from container.service.event_handler import EventHandler
from container.transport.seam import FragmentHandler, Subscription

@final
class ServiceAdapter(FragmentHandler):
    def __init__(self, subscription: Subscription, handler: EventHandler) -> None: ...
    def close(self) -> int: ...
