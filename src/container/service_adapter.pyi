# What type checkers see of container.service_adapter, which is compiled.
from typing import final

from container.event_handler import EventHandler
from container.transport import FragmentHandler, Subscription

@final
class ServiceAdapter(FragmentHandler):
    def __init__(self, subscription: Subscription, handler: EventHandler) -> None: ...
    def close(self) -> int: ...
