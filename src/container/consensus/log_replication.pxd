# A copy of what the leader has recorded of the log.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.steps cimport Deadline
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counters


cdef class MemberLogReplication:
    cdef object _settings
    cdef object _on_error
    cdef object _orphans                        # LogOrphans
    cdef Clock _clock
    cdef Counters _counters
    cdef AsyncArchive _archive
    cdef Deadline _deadline                     # of the next progress
    cdef int32_t _leader_id
    cdef int64_t _stop_position
    cdef readonly int64_t recording_id          # NULL_VALUE until it is known
    cdef readonly int64_t position              # NULL_POSITION until it is known
    cdef readonly bint is_done
    cdef bint _has_ended                        # the archive has said so
    cdef int32_t _counter_id                    # of the recording's position; NULL_COUNTER_ID: not found
    cdef ArchiveRequest _request                # None: not asked yet, or closed
    cdef object _work                           # generator
    cdef int64_t _begin_progress(self) except -1
    cdef int _look(self) except -1
