"""The log in: what a follower reads, and what a start replays, up to a position."""

from typing import final

from container.consensus.event_handler import ConsensusEventHandler
from container.transport.seam import FragmentHandler, Image

@final
class LogAdapter(FragmentHandler):
    """Feeds a :class:`ConsensusEventHandler` with the messages of a log, ``fragment_limit`` frames at a poll."""

    image: Image | None

    def __init__(self, handler: ConsensusEventHandler, fragment_limit: int) -> None: ...
