"""What the consensus module sends to its services, and in answer to tools, over IPC (stream 104)."""

from typing import final

from container.transport.seam import Publication

@final
class ServiceProxy:
    """Sends on the publication of the control channel that it is given."""

    def __init__(self, publication: Publication) -> None: ...
    def close(self) -> int: ...
