"""Timers whose events a leader has appended, until the log is committed that far."""
from collections import OrderedDict

from libc.stdint cimport int64_t

from container.common.sealed cimport seal


cdef class UncommittedTimers:
    """Timers that come back where the log is lost that their events are in.

    One that a service has scheduled again or cancelled since then does not: other members have what that said last.
    """

    def __cinit__(self):
        self._events = OrderedDict()

    def __len__(self):
        return len(self._events)

    cpdef int push(self, int64_t log_position, int64_t correlation_id, int64_t deadline) except -1:
        """Note that the event of a timer was appended, which ends there, behind all that are noted."""
        self._events[correlation_id] = log_position, deadline
        self._events.move_to_end(correlation_id)
        return 0

    cpdef int forget(self, int64_t correlation_id) except -1:
        """A service has scheduled this timer, or cancelled it."""
        if self._events:
            self._events.pop(correlation_id, None)
        return 0

    cpdef int sweep(self, int64_t commit_position) except -1:
        """Forget what is committed."""
        while self._events and next(iter(self._events.values()))[0] <= commit_position:
            self._events.popitem(last=False)
        return 0

    cpdef list take(self, int64_t commit_position):
        """Correlation id and deadline of each whose event is not committed, in the order of the log, and forget all."""
        cdef list timers
        self.sweep(commit_position)
        timers = [(correlation_id, deadline) for correlation_id, (_, deadline) in self._events.items()]
        self._events.clear()
        return timers


seal((UncommittedTimers,))
