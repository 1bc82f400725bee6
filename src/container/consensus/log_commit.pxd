# The committed part of the log, and this member's actions beyond it.
from libc.stdint cimport int64_t

from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.position_queue cimport PositionQueue
from container.consensus.session_manager cimport SessionManager
from container.consensus.timer_service cimport TimerService
from container.consensus.uncommitted_timers cimport UncommittedTimers


cdef class LogCommit:
    cdef ConsensusModuleCounters _counters
    cdef object _on_error
    cdef ClusterMembers _members
    cdef ConsensusPublisher _publisher
    cdef list _others                           # ClusterMember of all but this one
    cdef MemberStatus _status
    cdef MemberTermination _termination
    cdef LogRecording _recording
    cdef LogPublisher _log_publisher
    cdef SessionManager _sessions
    cdef TimerService _timers
    cdef list _trackers                         # PendingServiceMessageTracker of each service
    cdef UncommittedTimers _uncommitted_timers
    cdef PositionQueue _uncommitted_states      # the state before each (ModuleState)
    cdef object _end_of_term                    # of a term in the recording log (callable)
    cdef int64_t _heartbeat_interval_ns
    cdef int64_t _heartbeat_timeout_ns
    cdef int64_t said_position                  # up to where others know the log committed
    cdef int64_t _updated_ns
    cdef int64_t _backward_position             # committed when a quorum was said to have less; NULL_POSITION: never
    cdef int begin_term(self, int64_t updated_ns) except -1
    cdef int note_state(self, int64_t log_position) except -1
    cdef bint has_uncommitted_state(self) except -1
    cdef int update_as_leader(self, int64_t now_ns) except -1
    cdef int update(self, int64_t now_ns, int64_t quorum_position) except -1
    cdef int forget_timer(self, int64_t correlation_id) except -1
    cdef int publish(self, int64_t leadership_term_id, int64_t commit_position) except -1
    cdef int restore(self, int64_t commit_position) except -1
    cdef int _sweep(self, int64_t commit_position) except -1
