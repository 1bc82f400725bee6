"""The parts of a node in one duty cycle on one thread: media driver, archive, consensus module, services.

A message then passes from ingress to log, archive, service and egress in one turn, and no thread hands it to another:
the consensus module appends it, the archive and the module are asked again, to record and to commit it, and then the
services have their turns. (Upstream: Agrona's CompositeAgent, and ClusteredMediaDriver with its parts in invoker mode.)

Driver, archive and consensus module never wait in a turn. A service may: it idles, and that runs the others.
"""
from libc.stdint cimport int64_t

from container.aeron.media_driver cimport MediaDriver
from container.agent.agent cimport Agent
from container.common.sealed cimport hide, seal
from container.transport.idle_strategy cimport IdleStrategy
from container.transport.clocks cimport SystemClock

from container.errors import AeronError

cdef enum:
    DRIVER_TURNS_MAX = 16           # one takes a few packets from each socket, and the others work on what there is
    DRIVER_TURN_NS = 100_000        # after one that took longer, as with a thousand sessions, the others are next
    DRIVER_PAUSE_NS = 20_000        # of one without work: a turn asks the system for packets on each socket


cdef class PartTurns:
    """Gives a part its turns: straight to its agent while that works, and through its owner at start and end."""
    cdef object part                    # has invoke(), end_turn() and close()
    cdef Agent agent                    # of the part; None: it is always invoked

    cdef int take(self) except? -1:
        return self._take(False) if self._is_working() else self.part.invoke()

    cdef int take_again(self) except? -1:
        """Do what another part has made possible since its turn."""
        return self._take(True) if self._is_working() and not self.agent._is_end_asked else 0

    cdef bint _is_working(self) noexcept:
        cdef Agent agent = self.agent
        return agent is not None and agent._is_started and not agent._is_stopping and not agent._is_closed

    cdef int _take(self, bint is_again) except? -1:
        cdef Agent agent = self.agent
        cdef int work_count = 0
        cdef object failure = None
        try:
            work_count = agent._cycle_again() if is_again else agent._cycle()
        except BaseException as error:
            failure = error
        if failure is not None or agent._is_end_asked:
            self.part.end_turn(failure)
        return work_count


cdef PartTurns new_turns(object part, Agent agent):
    cdef PartTurns turns = PartTurns.__new__(PartTurns)
    turns.part, turns.agent = part, agent
    return turns


cdef class CompositeAgent(Agent):
    """Runs the parts of a node: :meth:`add` and :meth:`add_service`, then it is an agent as others are.

    Services, consensus module and archive are closed in this order. Parts have terminations of their own.

    Args:
        driver: a :class:`~container.aeron.media_driver.MediaDriver` in invoker mode, or None for one with threads.
        on_error: called with an error (BaseException) of a turn, such as the driver's.
        prepare: called once, on the thread that runs the agent, before its first turn.
        before_end: called once, before the services are closed, while the other parts still have turns.
    """
    cdef MediaDriver _driver
    cdef object _prepare
    cdef object _before_end
    cdef list _parts                    # PartTurns
    cdef list _services                 # the same; their parts have interrupt() as well
    cdef SystemClock _clock
    cdef bint _is_driver_busy           # it had work when it was invoked last
    cdef int64_t _driver_deadline_ns    # when one without work is invoked next

    def __init__(self, MediaDriver driver, on_error not None, prepare not None, before_end not None):
        self._driver, self._on_error, self._prepare, self._before_end = driver, on_error, prepare, before_end
        self._parts, self._services = [], []
        self._clock = SystemClock()
        self._is_driver_busy = True

    def add(self, part not None, Agent agent=None):
        """Add an archive or a consensus module in invoker mode, and its agent, which then has its turns directly."""
        self._parts.append(new_turns(part, agent))

    def add_service(self, container not None, Agent agent=None):
        """Add a service's container in invoker mode, whose idle strategy is one of :meth:`new_idle_strategy`."""
        self._services.append(new_turns(container, agent))

    def new_idle_strategy(self, IdleStrategy inner not None):
        """An idle strategy for callbacks of a service: it runs the other parts, and idles as another one when they have
        nothing to do.
        """
        cdef OthersIdleStrategy made = OthersIdleStrategy.__new__(OthersIdleStrategy)
        made._agent, made._inner = self, inner
        return made

    def interrupt(self):
        """Have it stop, and end a callback that idles: its next idling raises AgentTermination. For any thread."""
        cdef PartTurns service
        self.stop()
        for service in self._services:
            service.part.interrupt()

    cdef int _begin(self) except -1:
        self._prepare()
        return 0

    cdef int _work(self) except? -1:
        cdef int work_count = self._invoke_others()
        cdef PartTurns service
        for service in self._services:
            work_count += service.take()
        return work_count

    cdef int _invoke_others(self) except? -1:
        cdef int driver_work_count = self._invoke_driver() if self._driver is not None else 0
        cdef int work_count = 0
        cdef PartTurns part
        for part in self._parts:
            work_count += part.take()
        if work_count > 0:
            for part in self._parts:
                work_count += part.take_again()
        return driver_work_count + work_count

    cdef int _make_room(self) except -1:
        # The parts read what a service has sent, and the driver lets it send as much again.
        self._invoke_others()
        self._is_driver_busy = True
        self._invoke_driver()
        return 0

    cdef int _invoke_driver(self) except? -1:
        cdef int64_t now_ns = self._clock.nano_time(), begin_ns
        cdef int work_count = 0, done, _turn
        if not self._is_driver_busy:
            if now_ns < self._driver_deadline_ns:
                return 0
            self._driver_deadline_ns = now_ns + DRIVER_PAUSE_NS
        try:
            for _turn in range(DRIVER_TURNS_MAX):
                begin_ns = now_ns
                done = self._driver.invoke()
                work_count += done
                if done == 0:
                    break
                now_ns = self._clock.nano_time()
                if now_ns - begin_ns > DRIVER_TURN_NS:
                    break
        except AeronError as error:
            self._on_error(error)
        self._is_driver_busy = work_count > 0
        return work_count

    cdef int64_t _tick(self) noexcept:
        return self._clock.coarse_nano_time()

    cdef int _report_end(self, object error) except -1:
        return 0                        # the parts say what has ended them

    cdef int _end(self) except -1:
        cdef PartTurns turns
        self._before_end()
        for turns in [*self._services, *reversed(self._parts)]:
            try:
                turns.part.close()
            except BaseException as error:
                self.terminate(error)
        return 0

    cdef str _kind(self):
        return "node"


cdef class OthersIdleStrategy(IdleStrategy):
    """How a callback idles on the thread of all parts; :meth:`CompositeAgent.new_idle_strategy` makes it."""
    cdef CompositeAgent _agent
    cdef IdleStrategy _inner

    cdef int idle(self, int work_count) except? -1:
        return self._inner.idle(work_count + self._agent._invoke_others())

    cdef void reset(self) noexcept:
        self._inner.reset()

    cdef bint run_others(self) except -1:
        self._agent._make_room()
        return True

    def __repr__(self):
        return f"{self._inner!r}, after the other parts of the node"


hide((OthersIdleStrategy, PartTurns))
seal((CompositeAgent,))
