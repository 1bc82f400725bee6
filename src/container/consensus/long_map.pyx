"""A hash map from any int64 to an int64 that is not negative, in C memory: no object for a key or a value.

Open addressing with linear probing; a removal moves later entries up, so that no marks of removed ones pile up. It
grows, and gives memory back only when it goes itself. One thread at a time uses a map.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from container.common.sealed cimport seal

cdef enum:
    FIRST_SLOTS = 16


cdef inline uint64_t _mixed(int64_t key) noexcept:
    """Each bit of the key in the lowest bits: keys are often consecutive, or differ in their highest bits alone."""
    cdef uint64_t bits = <uint64_t> key
    bits = (bits ^ (bits >> 32)) * <uint64_t> 0x9E3779B97F4A7C15
    return bits ^ (bits >> 32)


cdef MapSlot* _new_slots(size_t number) noexcept:
    cdef MapSlot* slots = NULL
    cdef size_t index
    if number <= <size_t> -1 // sizeof(MapSlot):
        slots = <MapSlot*> malloc(number * sizeof(MapSlot))
    if slots != NULL:
        for index in range(number):
            slots[index].value = NOT_IN_MAP
    return slots


cdef class LongMap:
    """``get`` and ``remove`` return -1 for a key that is not there."""

    def __cinit__(self):
        self._count = 0
        self._mask = FIRST_SLOTS - 1
        self._slots = _new_slots(FIRST_SLOTS)
        if self._slots == NULL:
            raise MemoryError("no memory for a map")

    def __dealloc__(self):
        free(self._slots)

    def __len__(self):
        return self._count

    cdef size_t _slot_of(self, int64_t key) noexcept:
        """The slot with the key, or the free one where it would be."""
        cdef size_t index = <size_t> _mixed(key) & self._mask
        while self._slots[index].value != NOT_IN_MAP and self._slots[index].key != key:
            index = (index + 1) & self._mask
        return index

    cpdef int64_t get(self, int64_t key) noexcept:
        return self._slots[self._slot_of(key)].value

    cpdef int put(self, int64_t key, int64_t value) except -1:
        """Set the value; MemoryError, with nothing changed, when a new key does not fit."""
        cdef size_t index = self._slot_of(key)
        if value < 0:
            raise ValueError(f"value {value} is negative: that means a key that is not there")
        if self._slots[index].value == NOT_IN_MAP:
            if (self._count + 1) * 3 > (self._mask + 1) * 2:
                self._grow()
                index = self._slot_of(key)
            self._count += 1
        self._slots[index].key = key
        self._slots[index].value = value
        return 0

    cpdef int64_t remove(self, int64_t key) noexcept:
        cdef size_t hole = self._slot_of(key)
        cdef size_t index = hole
        cdef size_t home
        cdef int64_t value = self._slots[hole].value
        if value == NOT_IN_MAP:
            return NOT_IN_MAP
        while True:
            index = (index + 1) & self._mask
            if self._slots[index].value == NOT_IN_MAP:
                break
            # An entry moves into the hole unless its own place lies behind the hole, as a search would miss it there.
            home = <size_t> _mixed(self._slots[index].key) & self._mask
            if ((index - home) & self._mask) >= ((index - hole) & self._mask):
                self._slots[hole] = self._slots[index]
                hole = index
        self._slots[hole].value = NOT_IN_MAP
        self._count -= 1
        return value

    cdef int _grow(self) except -1:
        cdef size_t number = self._mask + 1
        cdef MapSlot* old = self._slots
        cdef MapSlot* new = _new_slots(number * 2)
        cdef size_t index
        if new == NULL:
            raise MemoryError(f"no memory for a map of {self._count + 1} keys")
        self._slots = new
        self._mask = number * 2 - 1
        for index in range(number):
            if old[index].value != NOT_IN_MAP:
                new[self._slot_of(old[index].key)] = old[index]
        free(old)
        return 0


seal((LongMap,))
