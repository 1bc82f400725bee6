"""Types of `egress_handler`."""

from typing import final

from container.client.egress_listener import ControlledEgressListener, EgressListener

LISTENER_RULE: str

class EgressHandler:
    """Base of listeners written in Cython; its callbacks are declared in ``egress_handler.pxd``."""

@final
class MessageCopy:
    """A message as Python sees it."""

@final
class PythonEgressHandler(EgressHandler):
    """Calls a listener in Python."""

    def __init__(
        self, listener: EgressListener | ControlledEgressListener, message: MessageCopy | None = None
    ) -> None: ...
    @property
    def listener(self) -> EgressListener | ControlledEgressListener: ...

def check_listener(listener: object) -> None: ...
