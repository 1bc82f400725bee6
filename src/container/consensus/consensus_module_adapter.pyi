"""What services and tools ask of the consensus module, over IPC (stream 105)."""

from typing import final

from container.consensus.event_handler import ConsensusEventHandler
from container.transport.seam import FragmentHandler, Subscription

@final
class ConsensusModuleAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with what comes on the control stream."""

    def __init__(self, subscription: Subscription, handler: ConsensusEventHandler) -> None: ...
    def close(self) -> int: ...
