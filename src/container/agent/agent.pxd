# An agent: work in turns, on one thread at a time.
from libc.stdint cimport int64_t


cdef class Agent:
    cdef object _on_error               # called with each error that ends nothing, and with the one that ends it
    cdef object _ended_by               # what ended it (BaseException); None: it runs, or its end was asked for
    cdef bint _is_stopping
    cdef bint _is_busy                  # a duty cycle or the start is in progress
    cdef bint _is_started
    cdef bint _is_end_asked             # by its owner, from inside a turn that another one runs
    cdef bint _is_closed
    cdef long _parent_id                # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__
    cdef int _begin(self) except -1
    cdef int _work(self) except? -1
    cdef int _work_again(self) except? -1
    cdef int64_t _tick(self) noexcept
    cdef int _report_end(self, object error) except -1
    cdef int _end(self) except -1
    cdef str _kind(self)
    cdef int _check_process(self) except -1
    cdef int _cycle(self) except? -1
    cdef int _cycle_again(self) except? -1
    cdef bint _begin_cycle(self) except -1
