"""The parts of a node in one duty cycle on one thread: media driver, archive, consensus module, services.

A message then passes from ingress to log, archive, service and egress in one turn, and no thread hands it to another.
(Upstream: Agrona's CompositeAgent, and ClusteredMediaDriver with its parts in invoker mode.)

Driver, archive and consensus module never wait in a turn. A service may: it idles, and that runs the others.
"""
from libc.stdint cimport int64_t

from container.aeron.media_driver cimport MediaDriver
from container.common.sealed cimport hide, seal
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport SystemClock

from container.common import forks
from container.errors import AeronError

cdef enum:
    YIELD_INTERVAL_NS = 1_000_000
    DRIVER_TURNS_MAX = 16           # one takes a few packets from each socket, and the others work on what there is


cdef class CompositeAgent:
    """Runs the parts of a node: :meth:`add` and :meth:`add_service`, then :meth:`run`, or :meth:`do_work` and
    :meth:`close`.

    All but :meth:`stop` belong on one thread at a time.

    Args:
        driver: a :class:`~container.aeron.media_driver.MediaDriver` in invoker mode, or None for one with threads.
        on_error: called with an error (AeronError) of the driver's turn.
        prepare: called once, on the thread that runs the agent, before its first turn.
        before_end: called once, before the services are closed, while the other parts still have turns.
    """
    cdef MediaDriver _driver
    cdef object _on_error
    cdef object _prepare
    cdef object _before_end
    cdef list _parts                    # have invoke() and close()
    cdef list _services                 # have interrupt() as well
    cdef object _termination
    cdef bint _is_stopping
    cdef bint _is_closed
    cdef long _parent_id                # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__

    def __init__(self, MediaDriver driver, on_error not None, prepare not None, before_end not None):
        self._driver, self._on_error, self._prepare, self._before_end = driver, on_error, prepare, before_end
        self._parts, self._services = [], []
        forks.own(self)

    def _disown(self, long process_id):
        self._parent_id = process_id

    def add(self, part not None):
        """Add an archive or a consensus module in invoker mode."""
        self._parts.append(part)

    def add_service(self, container not None):
        """Add a service's container in invoker mode, whose idle strategy is one of :meth:`new_idle_strategy`."""
        self._services.append(container)

    def new_idle_strategy(self, IdleStrategy inner not None):
        """An idle strategy for callbacks of a service: it runs the other parts, and idles as another one when they have
        nothing to do.
        """
        cdef OthersIdleStrategy made = OthersIdleStrategy.__new__(OthersIdleStrategy)
        made._agent, made._inner = self, inner
        return made

    @property
    def termination(self):
        """What ended the agent (BaseException); None while it runs, and after :meth:`stop`. Parts have their own."""
        return self._termination

    def start(self):
        """Do nothing: parts that are added have started."""

    cpdef int do_work(self) except? -1:
        """One turn of each part; how much was done (int). Raise what ends the program, such as KeyboardInterrupt."""
        cdef int work_count = self._invoke_others()
        for service in self._services:
            work_count += <int> service.invoke()
        return work_count

    cdef int _invoke_others(self) except? -1:
        cdef int work_count = 0, done, _turn
        if self._driver is not None:
            try:
                for _turn in range(DRIVER_TURNS_MAX):
                    done = self._driver.invoke()
                    work_count += done
                    if done == 0:
                        break
            except AeronError as error:
                self._on_error(error)
        for part in self._parts:
            work_count += <int> part.invoke()
        return work_count

    def run(self, IdleStrategy idle_strategy not None):
        """Run the parts until :meth:`stop`; then close them. Raise nothing."""
        cdef SystemClock clock = SystemClock()
        cdef int64_t now_ns, yielded_ns = 0
        cdef int work_count
        try:
            self._prepare()
            while not self._is_stopping and self._parent_id == 0:
                work_count = self.do_work()
                idle_strategy.idle(work_count)
                now_ns = clock.coarse_nano_time()
                if now_ns - yielded_ns > YIELD_INTERVAL_NS:
                    # A node that always has work must not keep other Python threads from running.
                    yielded_ns = now_ns
                    with nogil:
                        pass
        except BaseException as error:
            self.terminate(error)
        finally:
            self.close()

    def stop(self):
        """Have :meth:`run` end after the turn in progress. For any thread."""
        self._is_stopping = True

    def interrupt(self):
        """The same, and end a callback that idles: its next idling raises AgentTermination. For any thread."""
        self._is_stopping = True
        for service in self._services:
            service.interrupt()

    def terminate(self, error not None):
        """End it because of an error (BaseException)."""
        self._is_stopping = True
        if self._termination is None:
            self._termination = error

    def close(self):
        """Close services, consensus module and archive, in this order; once. Raise nothing."""
        if self._is_closed or self._parent_id != 0:
            return
        self._is_closed = self._is_stopping = True
        self._before_end()
        for part in [*self._services, *reversed(self._parts)]:
            try:
                part.close()
            except BaseException as error:
                self.terminate(error)


cdef class OthersIdleStrategy(IdleStrategy):
    """How a callback idles on the thread of all parts; :meth:`CompositeAgent.new_idle_strategy` makes it."""
    cdef CompositeAgent _agent
    cdef IdleStrategy _inner

    cdef int idle(self, int work_count) except? -1:
        return self._inner.idle(work_count + self._agent._invoke_others())

    cdef void reset(self) noexcept:
        self._inner.reset()

    def __repr__(self):
        return f"{self._inner!r}, after the other parts of the node"


hide((OthersIdleStrategy,))
seal((CompositeAgent,))
