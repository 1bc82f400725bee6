"""One thread that runs a simulated world: events in virtual time. Fibers are what waits inside its calls."""
cimport cython
from libc.stdint cimport int64_t

from container.common.sealed cimport hide, seal
from container.testing.simulation.virtual_time cimport Draws, VirtualTime

import greenlet

cdef enum:
    TIES = 1                                # what the draws are for


@cython.final
@cython.freelist(1024)
cdef class Event:
    """A call that is due at a time."""


cdef inline bint _is_before(Event one, Event other) noexcept:
    if one.time_ns != other.time_ns:
        return one.time_ns < other.time_ns
    if one.tie != other.tie:
        return one.tie < other.tie
    return one.number < other.number


cdef class Scheduler:
    """Runs what is due, in the order of ``time``; a draw decides among things that are due at the same time.

    ``fibers`` (list of Fiber) are those that run, and ``hub`` is the greenlet that they let run.
    """

    def __init__(self, VirtualTime time not None, Draws draws not None):
        self.time, self._draws, self._heap = time, draws, []
        self.fibers = []
        self.hub = greenlet.getcurrent()

    def at(self, int64_t time_ns, action not None, *arguments):
        """Call ``action(*arguments)`` at that time (nanoseconds); immediately after what is due now if it has
        passed."""
        self.add(time_ns, action, arguments)

    def after(self, int64_t delay_ns, action not None, *arguments):
        """Call ``action(*arguments)`` in so many nanoseconds."""
        self.add(self.time.now_ns + delay_ns, action, arguments)

    def step(self):
        """Move to the next event and run it; False when there is none. Raise what it raises."""
        cdef Event event
        if not self._heap:
            return False
        event = self._take()
        self.time.now_ns = event.time_ns
        event.action(*event.arguments)
        return True

    def close(self):
        """End all fibers, in the order in which they were started, and forget what was due."""
        for fiber in self.fibers[:]:
            fiber.kill()
        self._heap.clear()

    cdef int add(self, int64_t time_ns, object action, tuple arguments) except -1:
        cdef Event event = Event.__new__(Event), above
        cdef list heap = self._heap
        cdef Py_ssize_t index = len(heap), parent
        self._count += 1
        event.time_ns = max(time_ns, self.time.now_ns)
        event.tie = self._draws._draw(TIES, self._count)
        event.number = self._count
        event.action, event.arguments = action, arguments
        heap.append(event)
        while index > 0:
            parent = (index - 1) >> 1
            above = <Event> heap[parent]
            if not _is_before(event, above):
                break
            heap[index] = above
            index = parent
        heap[index] = event
        return 0

    cdef Event _take(self):
        # The first one; the last one of the heap sinks from its place.
        cdef list heap = self._heap
        cdef Event last = <Event> heap.pop(), first, below
        cdef Py_ssize_t count = len(heap), index = 0, child
        if count == 0:
            return last
        first = <Event> heap[0]
        while True:
            child = 2 * index + 1
            if child >= count:
                break
            below = <Event> heap[child]
            if child + 1 < count and _is_before(<Event> heap[child + 1], below):
                child += 1
                below = <Event> heap[child]
            if not _is_before(below, last):
                break
            heap[index] = below
            index = child
        heap[index] = last
        return first


hide((Event,))
seal((Scheduler,))
