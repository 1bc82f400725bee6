# What type checkers see of container.service.clustered_service_agent, which is compiled.

from typing import final

from container.service.cluster import Cluster
from container.transport.idle_strategy import IdleStrategy

@final
class ClusterIdleStrategy(IdleStrategy):
    def __init__(self, agent: ClusteredServiceAgent) -> None: ...

@final
class ClusteredServiceAgent(Cluster):
    def __init__(self) -> None: ...
