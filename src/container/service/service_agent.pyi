# The types of container.service.service_agent, which is compiled.
from typing import final

from container.agent.agent import Agent
from container.service.agent_context import AgentContext
from container.service.cluster import Cluster

@final
class ServiceAgent(Agent):
    def __new__(cls, context: AgentContext) -> ServiceAgent: ...
    @property
    def cluster(self) -> Cluster: ...
