# The recording of the log in the member's archive.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.steps cimport Deadline
from container.transport.counters cimport Counters
from container.transport.transport_seam cimport ClientListener


cdef class RecordingListener(ClientListener):   # flags that the client's conductor sets, maybe on another thread
    cdef int64_t registration_id                # of the counter of the log's recording; NULL_VALUE: none
    cdef bint is_lost


cdef class LogRecording:
    cdef AsyncArchive _archive
    cdef object _recording_log
    cdef int _service_count
    cdef Counters _counters
    cdef Deadline _deadline
    cdef RecordingListener _listener
    cdef readonly int64_t recording_id          # NULL_VALUE: there is none yet
    cdef int64_t _request_id                    # an error of the archive with this one is a failed write
    cdef int32_t _counter_id                    # NULL_COUNTER_ID: it is not recorded
    cdef int64_t seen_position                  # how far the last recording was seen; NULL_POSITION: there was none
    cdef readonly object plan                   # RecoveryPlan; None: none was made
    cdef int set_recording_id(self, int64_t recording_id) except -1
    cdef int64_t position(self) noexcept        # NULL_POSITION: it is not recorded
    cdef bint is_lost(self) noexcept
    cdef bint is_plan_stale(self) except -1
    cdef bint has_failed(self, object error) except -1
    cdef int forget(self) except -1
    cdef int reset(self) except -1
