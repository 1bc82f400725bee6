"""What the consensus stream brings to a member: requests of backups and standbys."""

from typing import final

from container.consensus.event_handler import ConsensusEventHandler
from container.transport.seam import FragmentHandler, Subscription

@final
class ConsensusAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with what comes on the consensus stream."""

    def __init__(self, subscription: Subscription, handler: ConsensusEventHandler) -> None: ...
    def close(self) -> int: ...
