# The work of an archive in each turn and for each request.
from libc.stdint cimport int32_t, int64_t

from container.archive.server.archive_counters cimport ArchiveCounters
from container.archive.server.recorder cimport Recorder
from container.archive.server.recording_events cimport RecordingEvents
from container.archive.server.replayer cimport Replayer
from container.archive.server.sessions.control_adapter cimport ControlAdapter
from container.archive.server.sessions.control_session cimport ControlSession
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport Client


cdef class Conductor:
    cpdef int do_work(self) except -1
    cpdef int record(self) except -1


cdef class ArchiveConductor(Conductor):
    cdef readonly Client client
    cdef readonly object store                  # container.archive.server.store.recording_store.RecordingStore
    cdef readonly object settings               # container.settings.archive_table.ArchiveSettings
    cdef readonly Recorder recorder
    cdef readonly Replayer replayer
    cdef Clock _clock
    cdef ArchiveCounters _counters
    cdef RecordingEvents _events
    cdef object _authenticator
    cdef object _authorisation_service
    cdef object _on_error
    cdef int64_t _archive_id
    cdef int64_t _next_session_id               # of control sessions and replications
    cdef int64_t _replay_linger_ns
    cdef object _next_token
    cdef object _cluster_stream_ids             # frozenset of int; empty: not a cluster's archive
    cdef ControlAdapter _network_adapter        # None where no network is served
    cdef ControlAdapter _local_adapter
    cdef dict _control_sessions                 # by id, of ControlSession
    cdef list _sessions                         # listings and deletions
    cdef dict _replications                     # by id, of ReplicationSession
    cdef dict _replay_tokens                    # of (ControlSession, recording id, deadline in ns)

    cpdef int do_work(self) except -1
    cpdef int record(self) except -1
    cdef int _work_of_control_sessions(self) except -1
    cdef int _work_of_sessions(self) except -1
    cdef int _work_of_replications(self) except -1
    cdef int _drop_tokens(self) except -1
    cdef int64_t _take_session_id(self) noexcept
    cdef bint _is_stranger(self, ControlSession session) noexcept
    cdef ControlSession _accept(self, object request)
    cdef int _end_control_session(self, ControlSession session) except -1
