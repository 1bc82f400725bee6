# Appended entries and their log positions, in order, until the log is committed so far.
from libc.stdint cimport int64_t


cdef struct Appended:
    int64_t log_position
    int64_t value


cdef class PositionQueue:
    cdef Appended* _ring
    cdef size_t _mask                   # number of slots - 1, which is a power of two
    cdef size_t _head                   # both count on and on
    cdef size_t _tail
    cpdef int push(self, int64_t log_position, int64_t value) except -1
    cpdef int sweep(self, int64_t commit_position) except -1
    cdef int64_t first(self, int64_t commit_position) except? -1
    cpdef list after(self, int64_t commit_position)
    cpdef int clear(self) except -1
    cdef int _grow(self) except -1
