"""The agent of one service, as its owner sees it.

A service is given the cluster, and so has none of these methods: a duty cycle inside a callback would deliver messages
twice.
"""
from libc.stdint cimport int64_t

from container.agent.agent cimport Agent
from container.common.sealed cimport seal
from container.service.clustered_service_agent cimport new_agent


cdef class ServiceAgent(Agent):
    """The agent of one service, made of an :class:`~container.service.agent_context.AgentContext`; it adds its two
    control streams immediately.

    :meth:`on_start` waits for the consensus module, recovers the state and acknowledges it; when it raises, the
    consensus module knows by then that the service could not start.
    """

    def __cinit__(self, context):
        self._on_error = context.on_error
        self._agent = new_agent(context)

    def _disown(self, long process_id):
        Agent._disown(self, process_id)
        if self._agent is not None:
            self._agent._disown(process_id)
            self._on_error = self._agent._on_error

    @property
    def cluster(self):
        """The service's cluster (Cluster)."""
        return self._agent

    @property
    def termination(self):
        """The error that ended the agent (BaseException), or None."""
        if self._ended_by is None and self._agent._child_failures:
            return self._agent._child_failures[0]
        return self._ended_by

    def stop(self):
        """End :meth:`run` after the duty cycle in progress; immediately while it waits for a consensus module."""
        Agent.stop(self)
        if self._agent.get_log_position() < 0:
            self._agent._is_interrupted = True

    def interrupt(self):
        """End an idle loop in progress as well: the next idling raises AgentTermination."""
        self._agent._is_interrupted = True
        Agent.stop(self)

    cdef int _begin(self) except -1:
        return self._agent._start()

    cdef int _work(self) except? -1:
        return self._agent._do_work()

    cdef int64_t _tick(self) noexcept:
        return self._agent._last_tick_ns

    cdef int _report_end(self, object error) except -1:
        return self._agent._report_at_end(error)

    cdef int _end(self) except -1:
        return self._agent._close()

    cdef str _kind(self):
        return "service"


seal((ServiceAgent,))
