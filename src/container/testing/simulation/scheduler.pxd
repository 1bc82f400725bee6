# Scheduled work of a simulated world, in the order of virtual time.
from libc.stdint cimport int64_t, uint64_t

from container.testing.simulation.virtual_time cimport Draws, VirtualTime


cdef class Event:
    cdef int64_t time_ns
    cdef uint64_t tie                       # decides among those of one time
    cdef uint64_t number                    # in the order in which they were added
    cdef object action
    cdef tuple arguments


cdef class Scheduler:
    cdef readonly VirtualTime time
    cdef readonly list fibers               # those that run, in the order in which they were started
    cdef readonly object hub                # the greenlet that runs the world
    cdef Draws _draws
    cdef list _heap                         # of Event: none is due before the one at half of its index
    cdef uint64_t _count                    # of all that were ever added
    cdef int add(self, int64_t time_ns, object action, tuple arguments) except -1
    cdef Event _take(self)
