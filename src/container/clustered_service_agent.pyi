# What type checkers see of container.clustered_service_agent, which is compiled.

from typing import final

from container.cluster import Cluster
from container.idle_strategy import IdleStrategy

@final
class ClusterIdleStrategy(IdleStrategy):
    def __init__(self, agent: ClusteredServiceAgent) -> None: ...

@final
class ClusteredServiceAgent(Cluster):
    def __init__(self) -> None: ...
