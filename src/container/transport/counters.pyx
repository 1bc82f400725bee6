"""The seam, counters: reads and sets them in memory that any transport can provide."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.transport.abstract cimport abstract
from container.transport.counters_layout cimport (
    KEY_OFFSET, LABEL_LENGTH_OFFSET, LABEL_OFFSET, MAX_KEY_LENGTH, MAX_LABEL_LENGTH, METADATA_LENGTH, OWNER_ID_OFFSET,
    REFERENCE_ID_OFFSET, REGISTRATION_ID_OFFSET, TYPE_ID_OFFSET, VALUE_LENGTH,
)
from container.transport.frames cimport NULL_VALUE

cdef enum:
    # Counters of a stream, which the driver has as long as the publication or the image (upstream: AeronCounters.java),
    # and what their keys hold (upstream: StreamCounter.java).
    PUBLISHER_LIMIT_TYPE_ID = 1
    RECEIVER_HWM_TYPE_ID = 3
    STREAM_SESSION_ID_OFFSET = 8
    STREAM_STREAM_ID_OFFSET = 12

cdef extern from *:
    """
    #include <stdint.h>
    static inline int64_t container_get_acquire(const int64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline int32_t container_get32_acquire(const int32_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void container_set_release(int64_t* p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline void container_increment(int64_t* p) { __atomic_add_fetch(p, 1, __ATOMIC_ACQ_REL); }
    """
    int64_t container_get_acquire(const int64_t* p) noexcept nogil
    int32_t container_get32_acquire(const int32_t* p) noexcept nogil
    void container_set_release(int64_t* p, int64_t value) noexcept nogil
    void container_increment(int64_t* p) noexcept nogil


# For readers in Python of a file of counters.
COUNTER_METADATA_LENGTH = <int> METADATA_LENGTH
COUNTER_KEY = slice(<int> KEY_OFFSET, <int> KEY_OFFSET + <int> MAX_KEY_LENGTH)
COUNTER_LABEL_LENGTH_OFFSET = <int> LABEL_LENGTH_OFFSET
COUNTER_LABEL_OFFSET = <int> LABEL_OFFSET
COUNTER_MAX_LABEL_LENGTH = <int> MAX_LABEL_LENGTH
COUNTER_VALUE_LENGTH = <int> VALUE_LENGTH


cdef class Counter:
    """A counter that this client allocated in the driver; its value can be read by any process."""

    cdef int64_t get(self) noexcept nogil:
        cdef int64_t* address = self._value
        return container_get_acquire(address) if address != NULL else NULL_VALUE

    cdef void set(self, int64_t value) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL:
            container_set_release(address, value)

    cdef void increment(self) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL:
            container_increment(address)

    cdef void propose_max(self, int64_t value) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL and address[0] < value:
            container_set_release(address, value)

    cdef void set_reference_id(self, int64_t reference_id) noexcept nogil:
        cdef int64_t* address = self._value
        if address != NULL:
            container_set_release(address + REFERENCE_ID_OFFSET // sizeof(int64_t), reference_id)

    cpdef int close(self) except -1:
        raise abstract(self, "close")

    @property
    def value(self):
        """The value now (int); -1 once closed."""
        return self.get()

    def __repr__(self):
        return f"<{type(self).__name__} {self.counter_id} {self.label!r} value={self.get()}>"


cdef class Counters:
    """Reads the counters of a driver: metadata records of 512 bytes and value records of 128 bytes.

    A counter id out of range, or any id once the client is closed, reads as an unused record.
    """

    cdef void wrap(self, const uint8_t* metadata, size_t metadata_length,
                   const uint8_t* values, size_t values_length) noexcept nogil:
        self._metadata = metadata
        self._values = values
        self._capacity = 0
        if metadata != NULL and values != NULL:
            self._capacity = <int32_t> min(metadata_length // METADATA_LENGTH, values_length // VALUE_LENGTH)

    cdef int32_t capacity(self) noexcept nogil:
        return self._capacity

    cdef int32_t state(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return COUNTER_UNUSED
        return container_get32_acquire(<const int32_t*> (self._metadata + <size_t> counter_id * METADATA_LENGTH))

    cdef int32_t type_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return (<const int32_t*> (
            self._metadata + <size_t> counter_id * METADATA_LENGTH + TYPE_ID_OFFSET))[0]

    cdef const uint8_t* key(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL
        return self._metadata + <size_t> counter_id * METADATA_LENGTH + KEY_OFFSET

    cdef int64_t value(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return container_get_acquire(<const int64_t*> (self._values + <size_t> counter_id * VALUE_LENGTH))

    cdef int64_t registration_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return container_get_acquire(<const int64_t*> (
            self._values + <size_t> counter_id * VALUE_LENGTH + REGISTRATION_ID_OFFSET))

    cdef int64_t owner_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return (<const int64_t*> (self._values + <size_t> counter_id * VALUE_LENGTH + OWNER_ID_OFFSET))[0]

    cdef int64_t reference_id(self, int32_t counter_id) noexcept nogil:
        if not 0 <= counter_id < self._capacity:
            return NULL_VALUE
        return container_get_acquire(<const int64_t*> (
            self._values + <size_t> counter_id * VALUE_LENGTH + REFERENCE_ID_OFFSET))

    cdef str label(self, int32_t counter_id):
        cdef const uint8_t* record
        cdef int32_t length
        if not 0 <= counter_id < self._capacity:
            return ""
        record = self._metadata + <size_t> counter_id * METADATA_LENGTH
        length = container_get32_acquire(<const int32_t*> (record + LABEL_LENGTH_OFFSET))
        length = max(0, min(length, MAX_LABEL_LENGTH))
        return (<const char*> record + LABEL_OFFSET)[:length].decode("ascii", "replace")

    cdef bint has_stream(self, int32_t stream_id, int32_t session_id) noexcept nogil:
        cdef int32_t counter_id, state, type_id
        cdef const uint8_t* key
        for counter_id in range(self._capacity):
            state = self.state(counter_id)
            if state == COUNTER_UNUSED:
                break
            type_id = self.type_id(counter_id)
            if state != COUNTER_ALLOCATED or type_id not in (PUBLISHER_LIMIT_TYPE_ID, RECEIVER_HWM_TYPE_ID):
                continue
            key = self.key(counter_id)
            if ((<const int32_t*> (key + STREAM_SESSION_ID_OFFSET))[0] == session_id
                    and (<const int32_t*> (key + STREAM_STREAM_ID_OFFSET))[0] == stream_id):
                return True
        return False

    def read(self):
        """All allocated counters as a list of ``(counter_id, type_id, label, value)``, in the order of their ids."""
        cdef int32_t counter_id
        cdef int32_t state
        cdef list result = []
        for counter_id in range(self._capacity):
            state = self.state(counter_id)
            if state == COUNTER_UNUSED:
                break
            if state == COUNTER_ALLOCATED:
                result.append((counter_id, self.type_id(counter_id), self.label(counter_id), self.value(counter_id)))
        return result
