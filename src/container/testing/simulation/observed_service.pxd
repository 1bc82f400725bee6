# A service between the agent and the service under test: compares what the agent delivers with what was logged.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.service.cluster cimport Cluster
from container.service.service_handler cimport ServiceHandler
from container.transport.transport_seam cimport SnapshotWriter
from container.transport.streams cimport Publication


cdef class ObservedService(ServiceHandler):
    cdef readonly ServiceHandler inner
    cdef readonly list expected             # of tuples: position, kind, id, timestamp, payload
    cdef readonly Py_ssize_t index          # of the next one
    cdef readonly int64_t position          # of the last event that was delivered
    cdef public int64_t limit               # the commit position
    cdef public int64_t probe_every         # events between two looks at the state; 0 for none
    cdef readonly int32_t role              # of the last on_role_change
    cdef readonly bint has_terminated       # on_terminate was called
    cdef object _on_finding
    cdef object _on_state
    cdef object _on_behind              # more was logged or committed, if anything: it is called to look
    cdef Cluster _cluster
    cdef bint _is_off                       # its process has ended: what is still called counts no more
    cdef int _find(self, str text) except -1
    cdef tuple _next(self, int64_t position, str what)
    cdef int _begin(self, int64_t position, int kind, int64_t event_id, int64_t timestamp, const uint8_t* data,
                    size_t length) except -1
    cdef int _check_cluster(self, int64_t position, int64_t timestamp) except -1
    cdef int _end(self) except -1


cdef class StatePublication(Publication):
    cdef list messages
    cdef int64_t _position


cdef class StateWriter(SnapshotWriter):
    pass
