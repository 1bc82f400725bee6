"""The counters of a driver in memory, in the layout of a counters file, so that `Counters` reads them.

Ids are given out in sequence. The id of a counter that is gone is used again after one second, as upstream's
``CountersManager`` does; until then its record says "reclaimed" and has an empty key.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from container.common.sealed cimport hide, seal
from container.errors import RegistrationError
from container.transport.counters_layout cimport (
    FREE_FOR_REUSE_DEADLINE_OFFSET, KEY_OFFSET, LABEL_LENGTH_OFFSET, LABEL_OFFSET, MAX_KEY_LENGTH, MAX_LABEL_LENGTH,
    METADATA_LENGTH, OWNER_ID_OFFSET, REFERENCE_ID_OFFSET, REGISTRATION_ID_OFFSET, TYPE_ID_OFFSET, VALUE_LENGTH,
)
from container.transport.clocks cimport Clock
from container.transport.counters cimport COUNTER_ALLOCATED, COUNTER_RECLAIMED, Counters

cdef enum:
    REUSE_TIMEOUT_MS = 1000


cdef class CounterBuffers:
    """Metadata records of 512 bytes and value records of 128 bytes for ``capacity`` counters."""

    def __cinit__(self, Clock clock not None, int32_t capacity):
        self.metadata = <uint8_t*> calloc(capacity, METADATA_LENGTH)
        self.values = <uint8_t*> calloc(capacity, VALUE_LENGTH)
        if self.metadata == NULL or self.values == NULL:
            raise MemoryError(f"no memory for {capacity} counters")
        self.capacity = capacity
        self._clock = clock
        self._free = []

    def __dealloc__(self):
        free(self.metadata)
        free(self.values)

    cdef int32_t allocate(
            self, int32_t type_id, bytes key, str label, int64_t registration_id, int64_t owner_id) except -1:
        cdef bytes text = label.encode("ascii", "replace")[:MAX_LABEL_LENGTH]
        cdef int32_t counter_id
        cdef uint8_t* record
        cdef uint8_t* value
        if len(key) > MAX_KEY_LENGTH:
            raise RegistrationError(f"a counter's key may have {<int> MAX_KEY_LENGTH} bytes, not {len(key)}")
        counter_id = self._take_id()
        record = self.metadata + <size_t> counter_id * METADATA_LENGTH
        value = self.values + <size_t> counter_id * VALUE_LENGTH
        memset(record, 0, METADATA_LENGTH)
        memset(value, 0, VALUE_LENGTH)
        (<int64_t*> (value + REGISTRATION_ID_OFFSET))[0] = registration_id
        (<int64_t*> (value + OWNER_ID_OFFSET))[0] = owner_id
        (<int64_t*> (value + REFERENCE_ID_OFFSET))[0] = 0
        (<int32_t*> (record + TYPE_ID_OFFSET))[0] = type_id
        (<int64_t*> (record + FREE_FOR_REUSE_DEADLINE_OFFSET))[0] = INT64_MAX
        memcpy(record + KEY_OFFSET, <const char*> key, len(key))
        memcpy(record + LABEL_OFFSET, <const char*> text, len(text))
        (<int32_t*> (record + LABEL_LENGTH_OFFSET))[0] = <int32_t> len(text)
        (<int32_t*> record)[0] = COUNTER_ALLOCATED
        return counter_id

    cdef int release(self, int32_t counter_id) except -1:
        cdef uint8_t* record = self.metadata + <size_t> counter_id * METADATA_LENGTH
        if (<int32_t*> record)[0] == COUNTER_ALLOCATED:
            (<int32_t*> record)[0] = COUNTER_RECLAIMED
            memset(record + KEY_OFFSET, 0, MAX_KEY_LENGTH)
            (<int64_t*> (record + FREE_FOR_REUSE_DEADLINE_OFFSET))[0] = (
                self._clock.epoch_ms() + REUSE_TIMEOUT_MS)
            self._free.append(counter_id)
        return 0

    cdef int64_t* value(self, int32_t counter_id) noexcept nogil:
        return <int64_t*> (self.values + <size_t> counter_id * VALUE_LENGTH)

    cdef int32_t _take_id(self) except -1:
        cdef int32_t counter_id
        if self._free:
            counter_id = self._free[0]
            if self._clock.epoch_ms() >= (<int64_t*> (
                    self.metadata + <size_t> counter_id * METADATA_LENGTH +
                    FREE_FOR_REUSE_DEADLINE_OFFSET))[0]:
                del self._free[0]
                return counter_id
        if self._allocated_count == self.capacity:
            raise RegistrationError(
                f"all {self.capacity} counters are in use: give MemoryDriver a greater counters_capacity")
        counter_id = self._allocated_count
        self._allocated_count += 1
        return counter_id


cdef class MemoryCounters(Counters):
    """The counters of a :class:`MemoryDriver`, until the client that they belong to is closed."""

    cdef void open(self, CounterBuffers buffers) noexcept:
        self._buffers = buffers
        self.wrap(buffers.metadata, <size_t> buffers.capacity * METADATA_LENGTH,
                  buffers.values, <size_t> buffers.capacity * VALUE_LENGTH)

    cdef void close(self) noexcept:
        self.wrap(NULL, 0, NULL, 0)


hide((MemoryCounters,))
seal((CounterBuffers,))
