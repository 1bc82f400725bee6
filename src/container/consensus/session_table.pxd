# The sessions that are in the log, by their ids, without an object for an id.
from libc.stdint cimport int64_t

from container.consensus.cluster_session cimport ClusterSession
from container.consensus.long_map cimport LongMap


cdef class SessionTable:
    cdef LongMap _places                    # session id -> place in the list
    cdef list sessions                      # of ClusterSession, in no order; not to be changed from outside
    cpdef ClusterSession find(self, int64_t cluster_session_id)
    cpdef int add(self, ClusterSession session) except -1
    cpdef int remove(self, int64_t cluster_session_id) except -1
    cpdef list in_order(self)
