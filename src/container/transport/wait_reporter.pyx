"""Logs what a long wait waits for, on the clock of whoever waits."""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.transport.clocks cimport Clock

from container.common.log_events import WaitLog


cdef class WaitReporter:
    """Reports a wait for ``what`` (str) of ``source`` (str) that lasts long, on the clock that the waiter uses."""

    def __init__(self, Clock clock not None, str source not None, str what not None):
        self._clock = clock
        self._what = what
        self._log = WaitLog(source)
        self._next_report_ns = self._log.tick(what, clock.nano_time())

    cdef int tick(self) except -1:
        cdef int64_t now_ns = self._clock.nano_time()
        if now_ns >= self._next_report_ns:
            self._next_report_ns = self._log.tick(self._what, now_ns)
        return 0


seal((WaitReporter,))
