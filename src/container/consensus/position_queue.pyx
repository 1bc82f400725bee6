"""Appended entries with their log positions, in order, until the log is committed that far; in C memory.

Memory grows, and is given back only when the queue goes. One thread at a time uses a queue.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from container.common.sealed cimport seal

cdef enum:
    FIRST_SLOTS = 16


cdef class PositionQueue:
    """Values (int) by ascending log positions."""

    def __cinit__(self):
        self._mask = FIRST_SLOTS - 1
        self._ring = <Appended*> malloc(FIRST_SLOTS * sizeof(Appended))
        if self._ring == NULL:
            raise MemoryError("no memory for a queue")

    def __dealloc__(self):
        free(self._ring)

    def __len__(self):
        return self._tail - self._head

    cpdef int push(self, int64_t log_position, int64_t value) except -1:
        """Note what was appended, behind all that is there; MemoryError, with nothing changed, when it does not fit."""
        cdef Appended* slot
        if self._tail - self._head > self._mask:
            self._grow()
        slot = &self._ring[self._tail & self._mask]
        slot.log_position = log_position
        slot.value = value
        self._tail += 1
        return 0

    cpdef int sweep(self, int64_t commit_position) except -1:
        """Forget what is committed."""
        while self._head != self._tail and self._ring[self._head & self._mask].log_position <= commit_position:
            self._head += 1
        return 0

    cdef int64_t first(self, int64_t commit_position) except? -1:
        """The first value of what is not committed; -1 where all is."""
        self.sweep(commit_position)
        return -1 if self._head == self._tail else self._ring[self._head & self._mask].value

    cpdef list after(self, int64_t commit_position):
        """The values of what is not committed, in order."""
        self.sweep(commit_position)
        return [self._ring[index & self._mask].value for index in range(self._head, self._tail)]

    cpdef int clear(self) except -1:
        """Forget everything."""
        self._head = self._tail
        return 0

    cdef int _grow(self) except -1:
        cdef size_t number = self._mask + 1
        cdef Appended* grown = <Appended*> malloc(2 * number * sizeof(Appended))
        cdef size_t index
        if grown == NULL:
            raise MemoryError(f"no memory for a queue of {number + 1}")
        for index in range(self._head, self._tail):
            grown[index & (2 * number - 1)] = self._ring[index & self._mask]
        free(self._ring)
        self._ring = grown
        self._mask = 2 * number - 1
        return 0


seal((PositionQueue,))
