# The agent of one service, as its owner sees it.
cimport cython

from container.agent.agent cimport Agent
from container.service.clustered_service_agent cimport ClusteredServiceAgent


@cython.final
cdef class ServiceAgent(Agent):
    cdef ClusteredServiceAgent _agent
