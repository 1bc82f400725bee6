# The seam, counters: those that a client allocated, and the records of all counters of a driver.
from libc.stdint cimport int32_t, int64_t, uint8_t


# State of a counter's record.
cdef enum:
    COUNTER_UNUSED = 0
    COUNTER_ALLOCATED = 1
    COUNTER_RECLAIMED = -1


cdef class Counter:                                         # a counter that we allocated
    cdef readonly int32_t counter_id
    cdef readonly int64_t registration_id
    cdef readonly str label
    cdef int64_t* _value                                    # NULL once closed
    cdef int64_t get(self) noexcept nogil
    cdef void set(self, int64_t value) noexcept nogil
    cdef void increment(self) noexcept nogil                # atomic
    cdef void propose_max(self, int64_t value) noexcept nogil
    cdef void set_reference_id(self, int64_t reference_id) noexcept nogil    # of what the counter belongs to
    cpdef int close(self) except -1


cdef class Counters:                                        # reads the records of all counters of a driver
    cdef const uint8_t* _metadata                           # NULL once the client is closed
    cdef const uint8_t* _values
    cdef int32_t _capacity                                  # records that fit
    cdef void wrap(self, const uint8_t* metadata, size_t metadata_length,
                   const uint8_t* values, size_t values_length) noexcept nogil
    cdef int32_t capacity(self) noexcept nogil              # 0 once the client is closed
    cdef int32_t state(self, int32_t counter_id) noexcept nogil
    cdef int32_t type_id(self, int32_t counter_id) noexcept nogil
    cdef const uint8_t* key(self, int32_t counter_id) noexcept nogil     # 112 bytes; NULL when out of range
    cdef int64_t value(self, int32_t counter_id) noexcept nogil          # acquire; NULL_VALUE when out of range
    cdef int64_t registration_id(self, int32_t counter_id) noexcept nogil
    cdef int64_t owner_id(self, int32_t counter_id) noexcept nogil
    cdef int64_t reference_id(self, int32_t counter_id) noexcept nogil
    cdef str label(self, int32_t counter_id)
    # Whether a driver that writes counters of its streams shows a publication or an image of that stream and session.
    cdef bint has_stream(self, int32_t stream_id, int32_t session_id) noexcept nogil
