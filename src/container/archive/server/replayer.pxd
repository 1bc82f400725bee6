# The replays of an archive: those that wait for their publication, and those that run.
from libc.stdint cimport int32_t, int64_t

from container.archive.server.archive_counters cimport ArchiveCounters
from container.archive.server.recorder cimport Recorder
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.replay_session cimport ReplaySession
from container.transport.clocks cimport Clock
from container.transport.counters cimport Counters
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication


cdef class PendingReplay:                           # its publication has been asked for
    cdef ControlSession control_session
    cdef int64_t correlation_id
    cdef int64_t recording_id
    cdef object replay_range                        # container.archive.server.sessions.replay_request.ReplayRange
    cdef int64_t read_length
    cdef int32_t counter_id                         # NULL_VALUE: no counter bounds the replay
    cdef int64_t counter_registration_id
    cdef int64_t deadline_ns
    cdef PendingAdd adding
    cdef Publication publication                    # None until the driver has added it


cdef class Replayer:
    cdef Client _client
    cdef Clock _clock
    cdef object _store
    cdef Recorder _recorder
    cdef ArchiveCounters _counters
    cdef Counters _counters_reader
    cdef object _on_error
    cdef int _max_concurrent_replays
    cdef int64_t _buffer_length
    cdef int64_t _linger_ns
    cdef int64_t _connect_timeout_ns
    cdef int32_t _replay_count                      # of all that there ever were; the high half of a session's id
    cdef list _pending                              # of PendingReplay
    cdef dict _sessions                             # by id, of ReplaySession, as they began

    cdef int do_work(self) except -1
    cpdef int start(
        self, ControlSession control_session, int64_t correlation_id, object request, int32_t stream_id, str channel,
        object image_correlation_id=*, object limit_counter_id=*) except -1
    cpdef int stop(self, int64_t replay_session_id) except -1
    cpdef object session_of(self, int64_t replay_session_id)
    cpdef int stop_all(self, int64_t recording_id) except -1
    cpdef object lowest_position(self, int64_t recording_id)
    cpdef int close(self) except -1
    cdef int64_t _limit_position(self, int64_t recording_id, PendingReplay pending) except? -2
    cdef bint _begin(self, PendingReplay pending) except -1
    cdef int _begin_session(self, PendingReplay pending) except -1
    cdef int _give_up(self, PendingReplay pending, object error) except -1
    cdef int _answer(self, ReplaySession session) except -1
    cdef int _end(self, ReplaySession session) except -1
