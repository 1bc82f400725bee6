# A replication: a recording of another archive is copied into one of this archive.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveRequest
from container.archive.client.async_archive cimport AsyncArchive
from container.archive.server.sessions.control_session cimport ControlSession
from container.archive.server.sessions.recording_session cimport RecordingSession
from container.archive.server.sessions.recording_subscription cimport RecordingSubscription
from container.transport.clocks cimport Clock
from container.transport.transport_seam cimport Client
from container.transport.streams cimport PendingAdd, Publication


cdef enum State:                            # the order of their names in replication_session.pyx
    CONNECT
    REPLICATE_DESCRIPTOR
    SRC_RECORDING_POSITION
    EXTEND
    AWAIT_SUBSCRIPTION
    AWAIT_DESTINATION
    REPLAY_TOKEN
    GET_ARCHIVE_PROXY
    REPLAY
    AWAIT_IMAGE
    REPLICATE
    CATCHUP
    ATTEMPT_LIVE_JOIN
    REMOVE_REPLAY
    DONE


cdef class ReplicationSession:
    cdef readonly int64_t replication_id
    cdef readonly object request                # ReplicationRequest
    cdef readonly ControlSession control_session    # of the request; signals and errors go there
    cdef readonly int64_t destination_recording_id  # NULL_VALUE until there is one
    cdef readonly object error                  # ArchiveError that ended it, which was sent; None without one
    cdef readonly AsyncArchive source           # None before the connect, and at the end
    cdef object _host                           # ReplicationHost
    cdef object _store
    cdef object _settings
    cdef Client _client
    cdef Clock _clock
    cdef State _state
    cdef bint _is_stopped
    cdef bint _is_finished                      # closed, with REPLICATE_END sent
    cdef int64_t _deadline_ns                   # of what the state waits for
    cdef str _replication_channel
    cdef bint _is_response_mode
    cdef bint _is_tagged
    cdef bint _has_destinations
    cdef ArchiveRequest _asked                  # of the state, at the source; None: it has not asked
    cdef int64_t _replay_position
    cdef int64_t _source_stop_position          # NULL_VALUE while the source is recording
    cdef int64_t _source_position               # how far the source has recorded
    cdef int32_t _replay_stream_id
    cdef int32_t _replay_session_id
    cdef int64_t _source_replay_id              # of the replay to be stopped at the source; NULL_VALUE
    cdef int64_t _replay_token
    cdef int _attempts_left
    cdef bint _is_live_added
    cdef str _replay_destination
    cdef RecordingSubscription _subscription    # None before EXTEND, and after a merge
    cdef PendingAdd _pending
    cdef Publication _response_publication

    cpdef int do_work(self) except -1
    cpdef int stop(self) except -1
    cpdef int close(self) except -1
    cdef int _work(self) except -1
    cdef bint _poll_source(self) except -1
    cdef bint _is_answered(self) except -1
    cdef int _enter(self, State state) except -1
    cdef str _awaited(self)
    cdef int _connect(self) except -1
    cdef AsyncArchive _new_source(self)
    cdef int _replicate_descriptor(self) except -1
    cdef int _on_descriptor(self, object source) except -1
    cdef int _prepare_destination(self, object source) except -1
    cdef bint _is_position_answered(self) except -1
    cdef int _ask_source_position(self) except -1
    cdef int _extend(self) except -1
    cdef int64_t _tag(self, int64_t tag_id) noexcept
    cdef int _await_subscription(self) except -1
    cdef bint _is_pending_done(self) except -1
    cdef int _await_destination(self) except -1
    cdef int _ask_replay_token(self) except -1
    cdef int _get_archive_proxy(self) except -1
    cdef int _replay(self) except -1
    cdef bint _begin_replay(self) except -1
    cdef RecordingSession _recording(self)
    cdef int _await_image(self) except -1
    cdef bint _is_synced(self, RecordingSession recording) noexcept
    cdef int _replicate(self) except -1
    cdef int _on_recording_ended(self) except -1
    cdef RecordingSession _live_recording(self)
    cdef int _catch_up(self) except -1
    cdef int _attempt_live_join(self) except -1
    cdef int _remove_replay(self) except -1
    cdef int _signal(self, int64_t subscription_id, int64_t position, int signal) except -1
    cdef int _fail(self, object error) except -1
    cdef int _finish(self) except -1
