# A publication as a driver in memory knows it.
from libc.stdint cimport int64_t

from container.testing.memory.memory_log cimport MemoryLog, ReaderListener


cdef class StreamSender:                                    # sends a UDP stream to other hosts
    cdef readonly int64_t position                          # all before it has been sent
    cdef bint is_connected(self) noexcept
    cdef int64_t limit(self) noexcept                       # where offers are back pressured
    cdef int64_t release_position(self) noexcept            # what is before it is not sent again
    cdef int on_append(self) except -1


cdef class MemoryStream(ReaderListener):                    # a publication as the driver knows it
    cdef readonly MemoryLog log
    cdef readonly object channel                            # MemoryChannel
    cdef readonly int64_t registration_id
    cdef readonly bint is_exclusive
    cdef str source_identity                                # of its images
    cdef bint is_revoked                                    # its images go, whatever they have not read
    cdef bint _is_rejected                                  # a subscriber wants them to go
    cdef int64_t _barred_until_ms                           # they have: nobody joins before; 0: they have not
    cdef int _ref_count                                     # publications that share it
    cdef int64_t _window_length                             # 0: no limit
    cdef int64_t _consumer_position                         # furthest that any subscriber has been
    cdef list _images                                       # one for each of
    cdef list _subscriptions
    cdef list _script                                       # results of the next offers
    cdef StreamSender sender                                # None: subscribers read the log itself
    cdef bint is_connected(self) noexcept
    cdef int64_t admit(self, size_t length) except? -6      # 0, or the result that the offer gets
    cdef int64_t join_position(self) noexcept
    cdef int64_t _limit(self) noexcept
    cdef int release_terms(self) except -1
    cdef bint is_drained(self) noexcept
