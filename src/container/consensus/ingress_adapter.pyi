"""Clients' requests and messages in, over the network and over IPC."""

from collections.abc import Callable
from typing import final

from container.consensus.event_handler import ConsensusEventHandler
from container.transport.seam import Client, FragmentHandler

@final
class IngressStream(FragmentHandler):
    """One subscription of the ingress."""

@final
class IngressAdapter:
    """Feeds a :class:`ConsensusEventHandler` with what clients send, at most ``fragment_limit`` messages at a poll."""

    def __init__(
        self,
        handler: ConsensusEventHandler,
        client: Client,
        stream_id: int,
        fragment_limit: int,
        on_error: Callable[[Exception], object],
    ) -> None: ...
    def close(self) -> int: ...
