"""The turns of a simulated node's parts: archive, consensus module and services, on one thread and in any order.

A service may wait inside its turn: it runs on a stack of its own, a :class:`Strand`.
"""
from libc.stdint cimport int32_t, int64_t

from container.agent.agent cimport Agent
from container.common.sealed cimport hide, seal
from container.testing.simulation.virtual_time cimport NodeClock
from container.transport.counters cimport Counters

import greenlet

cdef enum:
    UNWINDINGS_MAX = 100

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

    def take(self, int order):
        """Give each part a turn, in the order of that number; return how much was done (int).

        Raise what a part raises while the storage lives.
        """
        cdef int work_count = 0, index
        cdef Part part
        for index in <tuple> self._orders[order]:
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

    def has_news(self):
        """Whether a counter, or whether the consensus module has a leader, has changed since the last call (bool)."""
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

    def has_ended(self):
        """Whether a part has ended (bool)."""
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


hide((Part,))
seal((Strand, NodeTurns))
