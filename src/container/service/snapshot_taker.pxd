# Snapshot out: the container's frames around the user's own state.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.service.container_client_session cimport ClientSessions
from container.service.event_handler cimport EventHandler
from container.transport.frames cimport BufferVector
from container.transport.transport_seam cimport SnapshotWriter
from container.transport.streams cimport Publication
from container.transport.wait_reporter cimport WaitReporter


cdef class RecordingWait:                   # for the archive to record: keeps the member going, and has an end
    cdef SnapshotWriter _writer
    cdef EventHandler _cluster
    cdef str _what
    cdef WaitReporter _reporter
    cdef int64_t _recorded_position
    cdef int64_t _deadline_ns
    cdef bint _is_late                      # nothing came in time; it looks once more
    # Idle once. Raise ArchiveError, TimedOutError when nothing was recorded for 60 seconds, ClusterError when the
    # recording has stopped.
    cdef int turn(self) except -1


cdef class SnapshotTaker:
    cdef SnapshotWriter _writer
    cdef EventHandler _cluster
    cdef int _send(self, const uint8_t* data, size_t length) except -1
    cdef int mark(self, int32_t mark, int64_t log_position, int64_t leadership_term_id, int32_t time_unit,
                  int32_t app_version) except -1
    cdef int write_sessions(self, ClientSessions sessions) except -1


cdef class SnapshotPublication:             # what on_take_snapshot is given
    cdef SnapshotWriter _writer             # None once the callback has returned, and in a forked child
    cdef long _parent_id                    # of the process of which this one is a fork; 0 where it was made
    cdef object __weakref__
    cdef EventHandler _cluster
    cdef void _end(self) noexcept
    cdef Publication publication(self)      # raises once the callback has returned
    cdef int64_t offer_vectors(self, const BufferVector* vectors, size_t count) except? -6
    cdef int64_t send_vectors(self, const BufferVector* vectors, size_t count) except? -6
    cdef int64_t send_bytes(self, const uint8_t* data, size_t length) except? -6    # for services in Cython
