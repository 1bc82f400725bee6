"""The agent as its owner sees it: :meth:`AgentRunner.run` on a thread of its own, or its steps for a caller to drive.

A service is given the cluster, and so has none of these methods: a duty cycle inside a callback would deliver messages
twice. (Upstream: Agrona's AgentRunner and AgentInvoker.)
"""
from libc.stdint cimport int64_t

from container.service.clustered_service_agent cimport new_agent
from container.transport.idle_strategy cimport IdleStrategy

from container.common import forks
from container.common.sealed cimport seal
from container.errors import ContainerError


cdef class AgentRunner:
    """Runs the agent of one service, made of an :class:`~container.service.agent_context.AgentContext`; it adds its two
    control streams immediately.

    :meth:`run` is the whole life of an agent on its thread; :meth:`on_start`, :meth:`do_work` and :meth:`on_close` are
    its parts. :meth:`stop` and :meth:`interrupt` may be called from any thread.
    """

    def __cinit__(self, context):
        self._agent = new_agent(context)
        self._is_running = True
        forks.own(self)

    def _disown(self, long process_id):
        self._agent._disown(process_id)

    @property
    def cluster(self):
        """What the service is given (Cluster)."""
        return self._agent

    @property
    def termination(self):
        """What ended the agent (BaseException), or None."""
        if self._termination is None and self._agent._child_failures:
            return self._agent._child_failures[0]
        return self._termination

    def run(self, IdleStrategy idle_strategy not None):
        """Run the agent until it is stopped or terminated: start, duty cycles, close. Raise nothing.

        ``idle_strategy`` must be another instance than the context's, which callbacks idle with.
        """
        cdef int work_count
        cdef int64_t yielded_ns = 0
        try:
            try:
                self._start()
            except BaseException as error:
                self._ended(error)
            while self._is_running and self._agent._parent_id == 0:
                try:
                    work_count = self._work()
                    idle_strategy.idle(work_count)
                    if self._agent._last_tick_ns != yielded_ns:
                        # A service in C that always has work must not keep other Python threads from running.
                        yielded_ns = self._agent._last_tick_ns
                        with nogil:
                            pass
                except MemoryError as error:        # not even the end could be made
                    self._ended(error)
                except Exception as error:
                    self._agent.report(error)
                except BaseException as error:
                    self._ended(error)
        finally:
            self._agent._close()

    def stop(self):
        """End :meth:`run` after the duty cycle in progress; immediately while it waits for a consensus module."""
        self._is_running = False
        if self._agent.get_log_position() < 0:
            self._agent._is_interrupted = True

    def interrupt(self):
        """End an idle loop in progress as well: the next idling raises AgentTermination."""
        self._agent._is_interrupted = True
        self._is_running = False

    cdef int _ended(self, object error) except -1:
        self._is_running = False
        self._termination = error
        return self._agent._report_at_end(error)

    def on_start(self):
        """Wait for the consensus module, recover the state and acknowledge it.

        Raise AgentTermination when the service could not start; the consensus module knows it by then.
        """
        self._start()

    def do_work(self):
        """One duty cycle; how much was done (int). Raises AgentTermination at the end, and what callbacks raise."""
        return self._work()

    def on_close(self):
        """End the service, close what the agent opened, sign off in the mark file, close the context; once.

        Raise nothing.
        """
        self._agent._close()

    cdef int _start(self) except -1:
        self._is_busy = True
        try:
            return self._agent._start()
        finally:
            self._is_busy = False

    cdef int _work(self) except? -1:
        self._agent._check_process()
        if self._is_busy:
            raise ContainerError("a duty cycle is in progress: a callback of the service must not run another one")
        self._is_busy = True
        try:
            return self._agent._do_work()
        finally:
            self._is_busy = False


seal((AgentRunner,))
