# The end of the log that another leader's log does not have is cut off.
from libc.stdint cimport int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.steps cimport Deadline


cdef class LogTruncation:
    cdef AsyncArchive _archive
    cdef object _recording_log
    cdef object _await_replay_joined
    cdef Deadline _deadline
    cdef object _work                           # generator; None: none is in progress
    cpdef int begin(self, int64_t recording_id, int64_t leadership_term_id, int64_t log_position) except -1
    cpdef bint poll(self) except -1
    cpdef int close(self) except -1
