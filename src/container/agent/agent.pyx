"""The base of all agents: the loop on their thread, their end, and the check that no forked child drives them.

An agent derives from :class:`Agent` and says what a turn is. (Upstream: Agrona's Agent, AgentRunner and AgentInvoker.)
"""
from libc.stdint cimport int64_t

from container.transport.abstract cimport abstract
from container.transport.idle_strategy cimport IdleStrategy

from container.common import forks
from container.errors import ContainerError


cdef class Agent:
    """Work in turns: :meth:`run` is its whole life on a thread; :meth:`on_start`, :meth:`do_work` and :meth:`close` are
    the parts of that, for a caller that drives it.

    All but :meth:`stop`, :meth:`interrupt` and :attr:`termination` belong on one thread at a time.
    """

    def __cinit__(self):
        forks.own(self)

    # For an agent to define.

    cdef int _begin(self) except -1:
        """Do what comes before the first turn, on the agent's thread; whatever it raises ends the agent."""
        return 0

    cdef int _work(self) except? -1:
        """Take a turn; return how much was done. An AgentTermination ends the agent."""
        raise abstract(self, "do_work")

    cdef int _work_again(self) except? -1:
        """Where agents share a thread: take on, after its turn, what another one has done since; return how much."""
        return 0

    cdef int64_t _tick(self) noexcept:
        """A number that changes at least once a millisecond while the agent works."""
        return 0

    cdef int _report_end(self, object error) except -1:
        """Say what has ended the agent."""
        self._on_error(error)
        return 0

    cdef int _end(self) except -1:
        """Close everything, once; take each step whatever the others raise."""
        return 0

    cdef str _kind(self):
        """The kind of agent as texts name it, such as "archive"."""
        return "agent"

    # For its owner.

    @property
    def termination(self):
        """The error that ended it (BaseException), or None while it runs and after :meth:`stop`."""
        return self._ended_by

    @property
    def is_busy(self):
        """Whether its start or a duty cycle is in progress (bool)."""
        return self._is_busy

    def ask_for_end(self):
        """Have whoever runs the duty cycle in progress hand it to its owner next, who ends it."""
        self._is_end_asked = True

    def on_start(self):
        """Do what comes before the first duty cycle. It is over when that raises; what it raises is raised."""
        self._check_process()
        self._is_busy = True
        try:
            self._begin()
            self._is_started = True
        finally:
            self._is_busy = False

    def do_work(self):
        """One duty cycle; how much was done (int), 0 once it is closed.

        Raise AgentTermination when it cannot continue: its driver then calls :meth:`terminate` and :meth:`close`. Any
        other error ends only this turn. Raise ContainerError from inside a callback of it, and ForkedError in a forked
        child.
        """
        return self._cycle()

    cdef int _cycle(self) except? -1:
        if not self._begin_cycle():
            return 0
        try:
            return self._work()
        finally:
            self._is_busy = False

    cdef int _cycle_again(self) except? -1:
        if not self._begin_cycle():
            return 0
        try:
            return self._work_again()
        finally:
            self._is_busy = False

    cdef bint _begin_cycle(self) except -1:
        self._check_process()
        if self._is_busy:
            raise ContainerError(
                f"a duty cycle is in progress: a callback of the {self._kind()} must not run another one")
        if self._is_closed:
            return False
        self._is_busy = True
        return True

    def run(self, IdleStrategy idle_strategy not None):
        """Work until :meth:`stop` is called or the agent is terminated; then close. Raise nothing.

        An error of a duty cycle is reported, and the next one follows. ``idle_strategy`` must be another instance than
        the one that callbacks idle with.
        """
        cdef int work_count
        cdef int64_t tick, yielded_tick = 0
        try:
            try:
                self.on_start()
            except BaseException as error:
                self.terminate(error)
            while not self._is_stopping and self._parent_id == 0:
                try:
                    work_count = self._cycle()
                    idle_strategy.idle(work_count)
                    tick = self._tick()
                    if tick != yielded_tick:
                        # One that always has work must not keep other Python threads from running.
                        yielded_tick = tick
                        with nogil:
                            pass
                except MemoryError as error:        # not even the end could be made
                    self.terminate(error)
                except Exception as error:
                    if self._parent_id != 0:
                        self.terminate(error)
                    else:
                        self._on_error(error)
                except BaseException as error:
                    self.terminate(error)
        finally:
            self.close()

    def stop(self):
        """Have :meth:`run` end after the duty cycle in progress. For any thread."""
        self._is_stopping = True

    def interrupt(self):
        """The same, and end a callback that idles: its next idling raises AgentTermination. For any thread."""
        self.stop()

    def terminate(self, error not None):
        """End it because of an error (BaseException), which is reported."""
        self._is_stopping = True
        if self._ended_by is None:
            self._ended_by = error
        if self._parent_id == 0:
            self._report_end(error)

    def close(self):
        """Close in order what the agent has; once, and not in a forked child. Raise nothing."""
        if self._is_closed or self._parent_id != 0:
            return
        self._is_closed = self._is_stopping = True
        self._end()

    def _disown(self, long process_id):
        self._parent_id = process_id

    cdef int _check_process(self) except -1:
        if self._parent_id != 0:
            raise forks.refusal(f"drive the {self._kind()}", f"the {self._kind()}", self._parent_id)
        return 0
