# Timers whose events a leader has appended, until the log is committed so far.
from libc.stdint cimport int64_t


cdef class UncommittedTimers:
    cdef object _events                 # OrderedDict: correlation id -> (log position, deadline), by position
    cpdef int push(self, int64_t log_position, int64_t correlation_id, int64_t deadline) except -1
    cpdef int forget(self, int64_t correlation_id) except -1
    cpdef int sweep(self, int64_t commit_position) except -1
    cpdef list take(self, int64_t commit_position)
