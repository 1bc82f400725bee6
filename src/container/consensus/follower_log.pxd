# The log of a term that another member leads, as this member receives it.
from libc.stdint cimport int32_t, int64_t

from container.consensus.cluster_member cimport ClusterMember
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.transport.streams cimport PendingAdd, Subscription
from container.transport.transport_seam cimport Client


cdef class FollowerLog:
    cdef object _settings
    cdef object _on_error
    cdef Client _client
    cdef ClusterMember _this_member
    cdef LogAdapter _log_adapter
    cdef LogRecording _recording
    cdef ServiceJoins _joins
    cdef MemberTermination _termination
    cdef int32_t _session_id                    # of the leader's log
    cdef PendingAdd _pending_subscription       # None: the driver is not asked for one
    cdef Subscription _subscription             # None: there is none
    cdef list _changes                          # PendingAdd of destinations that come or go
    cdef str _catchup_destination               # None: there is none
    cdef str _live_destination
    cdef int64_t _left_registration_id          # of a subscription that was left; NULL_VALUE: its sockets are closed
    cdef object _join                           # generator; None: none is in progress
    cdef int begin_subscription(self, int32_t session_id, bint is_catchup) except -1
    cdef int poll(self) except -1
    cdef object join_position(self)
    cdef str catchup_endpoint(self)
    cdef int begin_join(self, bint is_startup, bint is_term_open) except -1
    cdef bint poll_join(self) except -1
    cpdef int close_join(self) except -1
    cdef int add_live_destination(self) except -1
    cdef int stop_catchup(self) except -1
    cdef bint is_catching_up(self) noexcept
    cdef bint is_near_live(self, int64_t position) noexcept
    cpdef int close(self) except -1
    cdef int _add_destination(self, str destination) except -1
