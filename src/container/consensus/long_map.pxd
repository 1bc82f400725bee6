# A hash map from any int64 to an int64 that is not negative, in C memory: no object for a key or a value.
from libc.stdint cimport int64_t

cdef enum:
    NOT_IN_MAP = -1


cdef struct MapSlot:
    int64_t key
    int64_t value                       # NOT_IN_MAP: the slot is free


cdef class LongMap:
    cdef MapSlot* _slots
    cdef size_t _mask                   # number of slots - 1, which is a power of two
    cdef size_t _count
    cpdef int64_t get(self, int64_t key) noexcept       # NOT_IN_MAP when it is not there
    cpdef int put(self, int64_t key, int64_t value) except -1
    cpdef int64_t remove(self, int64_t key) noexcept    # what it was; NOT_IN_MAP when it was not there
    cdef size_t _slot_of(self, int64_t key) noexcept
    cdef int _grow(self) except -1
