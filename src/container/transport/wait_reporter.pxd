# Says in the log what a long wait waits for.
from libc.stdint cimport int64_t

from container.transport.clocks cimport Clock


cdef class WaitReporter:
    cdef Clock _clock
    cdef str _what
    cdef object _log                        # WaitLog
    cdef int64_t _next_report_ns
    cdef int tick(self) except -1           # call it each turn of the wait
