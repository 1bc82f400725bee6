# A replay that is followed by the live stream.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.archive_connection cimport ArchiveConnection, ArchiveRequest
from container.archive.client.archive_streams cimport Messages
from container.transport.streams cimport Image, PendingAdd, Subscription


cdef enum MergeState:                       # the order of their names in replay_merge.pyx
    ADD_SUBSCRIPTION
    RESOLVE_REPLAY_PORT
    GET_RECORDING_POSITION
    REPLAY
    CATCHUP
    ATTEMPT_LIVE_JOIN
    MERGED
    FAILED
    CLOSED


cdef class ReplayMerge:
    cdef readonly int64_t recording_id
    cdef readonly int64_t start_position
    cdef readonly bint is_live_added
    cdef ArchiveConnection _connection
    cdef object _replay_uri                 # ChannelUri
    cdef str _replay_destination
    cdef str _live_destination
    cdef MergeState _state
    cdef PendingAdd _adding                 # the subscription
    cdef object _destinations               # deque of PendingAdd, in order: adds and removals
    cdef Subscription _subscription
    cdef Image _image
    cdef Messages _messages
    cdef ArchiveRequest _request            # None: none waits
    cdef int64_t _replay_session_id
    cdef int64_t _target_position
    cdef int64_t _progress_position
    cdef int64_t _progress_timeout_ns
    cdef int64_t _progress_ns
    cdef int64_t _next_ask_ns
    cdef int64_t _backoff_ns
    cpdef int do_work(self) except -1
    cdef int _work(self, int64_t now_ns) except -1
    cdef int _enter(self, MergeState state, int64_t now_ns) except -1
    cdef bint _poll_destinations(self) except -1
    cdef int _add(self) except -1
    cdef int _resolve(self, int64_t now_ns) except -1
    cdef bint _ask_position(self, int64_t now_ns) except -1
    cdef int _replay(self, int64_t now_ns) except -1
    cdef int _catch_up(self, int64_t now_ns) except -1
    cdef int _join_live(self, int64_t now_ns) except -1
    cdef int _answered(self) except -1
    cdef int _check(self, int64_t now_ns) except -1
    cdef int _stop_replay(self) except -1
