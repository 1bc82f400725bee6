"""Logs what a long wait waits for: first after 5 seconds, then every 30 seconds."""
from libc.stdint cimport int64_t

from container.common.sealed cimport seal
from container.transport.seam cimport Clock

from container.common.loggers import report

cdef enum:
    FIRST_REPORT_S = 5
    REPORT_INTERVAL_S = 30
    NS_PER_S = 1_000_000_000


cdef class WaitReporter:
    """Reports a wait for ``what`` (str) of ``source`` (str) that lasts long, on the clock that the waiter uses."""

    def __init__(self, Clock clock not None, str source not None, str what not None):
        self._clock = clock
        self._source = source
        self._what = what
        self._begin_ns = clock.nano_time()
        self._next_report_ns = self._begin_ns + FIRST_REPORT_S * <int64_t> NS_PER_S

    cdef int tick(self) except -1:
        cdef int64_t now_ns = self._clock.nano_time()
        if now_ns >= self._next_report_ns:
            self._next_report_ns = now_ns + REPORT_INTERVAL_S * <int64_t> NS_PER_S
            waited_s = (now_ns - self._begin_ns) // NS_PER_S
            report("warning", "%s: still waiting for %s after %d s", self._source, self._what, waited_s,
                   event="waiting", fields={"source": self._source, "what": self._what, "waited_s": waited_s})
        return 0


seal((WaitReporter,))
