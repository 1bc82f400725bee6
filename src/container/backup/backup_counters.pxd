# The counters by which a backup shows what it does.
from libc.stdint cimport int32_t

from container.transport.counters cimport Counter
from container.transport.transport_seam cimport Client


cdef class BackupCounters:
    cdef Client _client
    cdef bytes _key
    cdef str _suffix
    cdef list _added
    cdef readonly Counter error_counter
    cdef readonly Counter state
    cdef readonly Counter live_log_position
    cdef readonly Counter next_query_deadline
    cdef readonly Counter snapshots
    cdef Counter _add(self, int32_t type_id, str name, str end=*)
    cpdef int close(self) except -1
