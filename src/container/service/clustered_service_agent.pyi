# What type checkers see of container.service.clustered_service_agent, which is compiled.

from typing import final

from container.service.event_handler import EventHandler
from container.transport.idle_strategy import IdleStrategy

@final
class ClusterIdleStrategy(IdleStrategy):
    def __init__(self, agent: ClusteredServiceAgent) -> None: ...

@final
class ClusteredServiceAgent(EventHandler):
    def __init__(self) -> None: ...
