# The types of container.archive.server.sessions.control_adapter, which is compiled.
from collections.abc import Callable
from typing import final

from container.archive.server.sessions.control_handler import ControlHandler
from container.transport.streams import FragmentHandler, Subscription

@final
class RequestStream: ...

@final
class ControlAdapter(FragmentHandler):
    def __init__(
        self, subscription: Subscription, handler: ControlHandler, on_error: Callable[[Exception], object]
    ) -> None: ...
    @property
    def subscription(self) -> Subscription: ...
    def poll(self) -> int: ...
    def close(self) -> int: ...
