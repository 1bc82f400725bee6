# The waits of a consensus module, as steps that never wait themselves.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveRequest
from container.transport.clocks cimport Clock
from container.transport.streams cimport Image, Subscription


cdef class Deadline:
    cdef Clock _clock
    cdef int64_t _limit_ns
    cdef int64_t _deadline_ns
    cdef str _what
    cpdef int begin(self, str what) except -1
    cpdef int check(self) except -1


cdef class ActiveRecording:                 # a recording in progress, and the counter that shows how far it is
    cdef readonly ArchiveRequest request    # has the error that ends it
    cdef readonly int64_t subscription_id
    cdef readonly int64_t recording_id
    cdef readonly int32_t counter_id
    cdef readonly int64_t registration_id


cdef class ReplayImage:                     # a replay in progress, from its start position on
    cdef readonly ArchiveRequest request    # has the error that ends it
    cdef readonly int64_t replay_session_id
    cdef readonly Image image
    cdef readonly Subscription subscription


cdef int check(ArchiveRequest request) except -1
cdef bint is_done(object step, object on_failure) except -1
