"""What a snapshot of a consensus module consists of: written as messages, and read back."""

from typing import final

from container.consensus.event_handler import ConsensusEventHandler
from container.transport.seam import FragmentHandler, Image

@final
class SnapshotAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with the snapshot that is replayed on an image."""

    is_done: bool
    time_unit: int
    app_version: int

    def __init__(self, image: Image, handler: ConsensusEventHandler) -> None: ...
