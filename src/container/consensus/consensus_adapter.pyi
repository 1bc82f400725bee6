"""The consensus stream in: messages of the other members, and requests of backups and standbys."""

from typing import final

from container.consensus.cluster_member import ClusterMembers
from container.consensus.consensus_event_handler import ConsensusEventHandler
from container.transport.streams import FragmentHandler, Subscription

@final
class ConsensusAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with what comes on the consensus stream."""

    def __init__(self, subscription: Subscription, handler: ConsensusEventHandler, members: ClusterMembers) -> None: ...
    def poll(self) -> int: ...
    def close(self) -> int: ...
