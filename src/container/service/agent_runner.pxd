# Runs the agent of one service: on a thread of its own, or driven by a caller.
cimport cython

from container.service.clustered_service_agent cimport ClusteredServiceAgent


@cython.final
cdef class AgentRunner:
    cdef ClusteredServiceAgent _agent
    cdef object _termination                    # what ended the agent; None while it runs
    cdef bint _is_running
    cdef bint _is_busy                          # a duty cycle or the start is in progress
    cdef object __weakref__
    cdef int _ended(self, object error) except -1
    cdef int _start(self) except -1
    cdef int _work(self) except? -1
