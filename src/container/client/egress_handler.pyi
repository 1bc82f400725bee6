"""Types of `egress_handler`."""

from container.client.egress_listener import EgressListener

class EgressHandler:
    """Base of listeners written in Cython; its callbacks are declared in ``egress_handler.pxd``."""

class MessageCopy:
    """A message as Python sees it."""

class PythonEgressHandler(EgressHandler):
    """Calls a listener in Python."""

    def __init__(self, listener: EgressListener, message: MessageCopy | None = None) -> None: ...
    @property
    def listener(self) -> EgressListener: ...

def check_listener(listener: object) -> None: ...
