"""The turns of a simulated node's parts: archive, consensus module and services, on one thread and in any order.

A service may wait inside its turn: it runs on a stack of its own, a :class:`Strand`.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

from container.agent.agent cimport Agent
from container.common.sealed cimport hide, seal
from container.testing.simulation.scheduler cimport Scheduler
from container.testing.simulation.virtual_time cimport Draws, NodeClock
from container.transport.counters cimport Counters

import greenlet

cdef enum:
    UNWINDINGS_MAX = 100
    WAKE_NS = 20_000                        # from what wakes a node to its turn
    PARK_NS = 32_000_000                    # from a turn without work to the next: what comes wakes a node before
    # A turn of a node that works without a pause takes the first at least, twice that after so many turns, and so on.
    STREAK_NS = 1_000
    STREAK_TURNS = 4
    STREAK_DOUBLINGS_MAX = 16
    STREAK_NS_MAX = 16_000_000

cdef object _current = greenlet.getcurrent


class Killed(BaseException):
    """Unwinds the stack of a strand that was killed."""


cdef class Strand:
    """Runs turns on a stack of their own, for whoever takes them may wait inside one.

    Args:
        take_turn: called for each turn; returns how much was done (int).
    """
    cdef object _take_turn
    cdef object _greenlet
    cdef object _switch
    cdef object _caller                     # the greenlet whose turn it is
    cdef bint _is_killed

    def __init__(self, take_turn not None):
        self._take_turn = take_turn
        self._greenlet = greenlet.greenlet(self._run)
        self._switch = self._greenlet.switch

    def turn(self):
        """Run it until it waits or ends its turn; return how much it did (int). Raise what the turn raises."""
        return self._turn()

    cdef int _turn(self) except? -1:
        cdef object caller
        if self._greenlet.dead:
            return 0
        caller = _current()
        if caller is not self._caller:
            self._greenlet.parent = self._caller = caller
        return self._switch() or 0

    def wait(self):
        """Let others run; called inside its turn. Raise :class:`Killed` once it was killed."""
        self._caller.switch(0)
        if self._is_killed:
            raise Killed

    def kill(self):
        """Unwind it: whatever it held has no effect by now. Raise RuntimeError if it waits again and again."""
        cdef int _count
        self._is_killed = True
        for _count in range(UNWINDINGS_MAX):
            if not self._greenlet or self._greenlet.dead:
                return
            self._turn()
        raise RuntimeError("who was killed waits again and again")

    def _run(self):
        try:
            while not self._is_killed:
                self._caller.switch(self._take_turn())
        except Killed:
            pass
        except BaseException:
            if not self._is_killed:
                raise


cdef class Part:
    """A part of a node: its owner, the agent of that, and its strand if it may wait inside a turn."""
    cdef object owner                       # has invoke(), end_turn() and close()
    cdef Agent agent
    cdef Strand strand
    cdef bint is_lost
    cdef bint is_closing

    cdef int take(self) except? -1:
        # Straight to the agent while that works, and through its owner at start and end, as a node in one process does.
        cdef Agent agent = self.agent
        cdef object failure = None
        cdef int work_count = 0
        if not agent._is_started or agent._is_stopping or agent._is_closed:
            return self.owner.invoke()
        try:
            work_count = agent._cycle()
        except BaseException as error:
            failure = error
        if failure is not None or agent._is_end_asked:
            self.owner.end_turn(failure)
        return work_count

    def _turn(self):
        if self.is_closing:
            self.owner.close()
        return self.take()


cdef class NodeTurns:
    """Gives the parts of one life of a node their turns, and sees what has changed since.

    Args:
        owners: of archive and consensus module, which never wait, and of the services, which may.
        orders: all orders in which they may take turns (list of tuples of indices of ``owners``).
        clock: of the node.
        storage: of the node: nothing is done once it is dead.
        counters: of the node's driver.
        counter_ids: of the counters whose values make news (sequence of int).
    """
    cdef list _parts
    cdef list _orders
    cdef NodeClock _clock
    cdef object _storage
    cdef Counters _counters
    cdef list _counter_ids
    cdef list _values
    cdef bint _had_leader

    def __init__(self, owners not None, orders not None, NodeClock clock not None, storage not None,
                 Counters counters not None, counter_ids not None):
        cdef Part part
        self._parts = []
        for index, owner in enumerate(owners):
            part = Part.__new__(Part)
            part.owner, part.agent = owner, owner.agent
            part.strand = Strand(part._turn) if index > 1 else None
            self._parts.append(part)
        self._orders = list(orders)
        self._clock, self._storage, self._counters = clock, storage, counters
        self._counter_ids = list(counter_ids)
        self._values = [None] * len(self._counter_ids)

    cdef int take(self, uint64_t order) except? -1:
        # Give each part a turn, in the order of that number; how much was done. Raise what a part raises while the
        # storage lives.
        cdef int work_count = 0, index
        cdef Part part
        for index in <tuple> self._orders[<Py_ssize_t> (order % <uint64_t> len(self._orders))]:
            if self._storage.is_dead:
                break
            part = <Part> self._parts[index]
            self._clock.begin_turn()
            if part.is_lost:
                continue
            try:
                work_count += part.take() if part.strand is None else part.strand._turn()
            except Exception:
                if not self._storage.is_dead:
                    raise
        return work_count

    cdef bint has_news(self) except -1:
        # Has a counter changed since the last call, or whether the consensus module has a leader?
        cdef Part module = <Part> self._parts[1]
        cdef bint has_leader = module.agent.has_leader
        cdef bint is_new = has_leader != self._had_leader
        cdef Py_ssize_t index
        cdef int64_t value
        self._had_leader = has_leader
        for index in range(len(self._counter_ids)):
            value = self._counters.value(<int32_t> self._counter_ids[index])
            if self._values[index] != value:
                self._values[index] = value
                is_new = True
        return is_new

    cpdef bint has_ended(self) noexcept:
        """Whether a part has ended."""
        cdef Part part
        for part in self._parts:
            if part.agent._is_closed:
                return True
        return False

    def lose(self, int index):
        """The part of that index dies alone: it has no turns any more. False if it has died before."""
        cdef Part part = <Part> self._parts[index]
        if part.is_lost:
            return False
        part.is_lost = True
        return True

    def close(self, int index):
        """Close a part that lives in order, one that may wait at its next turn."""
        cdef Part part = <Part> self._parts[index]
        if part.strand is not None:
            part.is_closing = True
        elif not part.is_lost:
            part.owner.close()

    @property
    def has_lost(self):
        """Whether a part has died alone (bool)."""
        cdef Part part
        for part in self._parts:
            if part.is_lost:
                return True
        return False

    def wait(self, int service):
        """Let others run; called inside the turn of a service. Raise :class:`Killed` once it was killed."""
        self._clock.begin_turn()
        (<Part> self._parts[2 + service]).strand.wait()

    def kill(self):
        """Unwind the strands of all parts."""
        cdef Part part
        for part in self._parts:
            if part.strand is not None:
                part.strand.kill()


cdef class NodeSchedule:
    """When a node takes its turns: soon again where it has worked, after a while where not, and when it is woken.

    Args:
        node: has ``on_turn(work_count, has_news)``, which calls :meth:`go_on`. It is called after each turn after which
            there is something to look at. Has ``errors`` (list), ``turns_left``, ``disk_ns`` (int) and ``cluster``.
        scheduler: of the world.
        draws: of the world.
        order_stream: of the draws of orders of parts (int).
        cost_stream: of the draws of how long turns take (int).
        least_ns: of a turn that does something (int).
        mean_ns: the same in the mean (int).

    ``paused_until_ns`` (int) is until when it has no turns, and ``busy_until_ns`` (int) until when its disk keeps it.
    ``turns`` (int) counts those of all lives.
    """
    cdef object _node
    cdef Scheduler _scheduler
    cdef Draws _draws
    cdef uint64_t _order_stream
    cdef uint64_t _cost_stream
    cdef int64_t _least_ns
    cdef int64_t _mean_ns
    cdef NodeTurns _parts                   # of this life, None while the node is down
    cdef uint64_t _number                   # of the turn that is due: no other one is taken
    cdef int64_t _due_ns
    cdef int64_t _streak                    # turns without a pause
    cdef public int64_t paused_until_ns
    cdef readonly int64_t busy_until_ns
    cdef readonly uint64_t turns

    def __init__(self, node not None, Scheduler scheduler not None, Draws draws not None, *, uint64_t order_stream,
                 uint64_t cost_stream, int64_t least_ns, int64_t mean_ns):
        self._node, self._scheduler, self._draws = node, scheduler, draws
        self._order_stream, self._cost_stream = order_stream, cost_stream
        self._least_ns, self._mean_ns = least_ns, mean_ns

    def begin(self, NodeTurns parts not None):
        """A life begins, with these parts: they have their first turn at once."""
        self._parts = parts
        self._due(self._scheduler.time.now_ns)

    def end(self):
        """The life has ended."""
        self._parts = None

    def wake(self):
        """Something has come for one of its parts."""
        cdef int64_t due_ns = max(self._scheduler.time.now_ns + WAKE_NS, self.busy_until_ns)
        if self._parts is not None and self._due_ns > due_ns:
            self._due(due_ns)

    def go_on(self, bint has_worked, int64_t busy_ns):
        """Its turn has ended; its disk keeps it for so long."""
        cdef int64_t cost_ns, least_ns
        self.busy_until_ns = self._scheduler.time.now_ns + busy_ns
        if not has_worked:
            self._rest()
            return
        cost_ns = self._draws.delay_ns(self._cost_stream, self.turns, self._least_ns, self._mean_ns)
        self._streak += 1
        # A member that asks for votes sends, and so works, in each turn until all are there to hear it.
        least_ns = min(
            <int64_t> STREAK_NS << min(self._streak // STREAK_TURNS, STREAK_DOUBLINGS_MAX), <int64_t> STREAK_NS_MAX)
        self._due(self.busy_until_ns + max(cost_ns, least_ns))

    cdef int _rest(self) except -1:
        self._streak = 0
        return self._due(self.busy_until_ns + PARK_NS)

    cdef int _due(self, int64_t time_ns) except -1:
        self._number += 1
        self._due_ns = max(time_ns, self.paused_until_ns)
        return self._scheduler.add(self._due_ns, self._on_turn, (self._number,))

    def _on_turn(self, uint64_t number):
        cdef NodeTurns parts = self._parts
        cdef int64_t now_ns = self._scheduler.time.now_ns
        cdef int work_count
        cdef bint is_dead, has_news
        if number != self._number or parts is None:
            return
        if now_ns < self.paused_until_ns:
            self._due(self.paused_until_ns)
            return
        self.turns += 1
        node = self._node
        node.disk_ns = 0
        work_count = parts.take(self._draws._draw(self._order_stream, self.turns))
        is_dead = parts._storage.is_dead
        has_news = not is_dead and parts.has_news()
        if (is_dead or work_count > 0 or has_news or parts.has_ended() or node.errors or node.turns_left > 0
                or node.disk_ns > 0 or node.cluster.history.has_states):
            node.on_turn(work_count, has_news)
        else:
            self.busy_until_ns = now_ns
            self._rest()


hide((Part,))
seal((Strand, NodeTurns, NodeSchedule))
