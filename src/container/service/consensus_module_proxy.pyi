# What type checkers see of container.service.consensus_module_proxy, which is compiled.
from typing import final

from container.transport.seam import Publication

@final
class ConsensusModuleProxy:
    def __init__(self, publication: Publication) -> None: ...
    def close(self) -> int: ...
