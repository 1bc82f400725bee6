# A follower's reading of the leader's log, and its reports about it.
from libc.stdint cimport int64_t

from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.follower_log cimport FollowerLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination


cdef class LogFollowing:
    cdef ConsensusModuleCounters _counters
    cdef ConsensusPublisher _publisher
    cdef MemberStatus _status
    cdef LogAdapter _log_adapter
    cdef LogRecording _recording
    cdef FollowerLog _follower_log
    cdef MemberTermination _termination
    cdef int64_t _heartbeat_interval_ns
    cdef int64_t _heartbeat_timeout_ns
    cdef int64_t _commit_position               # that the leader said
    cdef int64_t _append_position               # recorded
    cdef int64_t _leader_heard_ns               # of the monotonic clock, as the next
    cdef int64_t _recorded_ns                   # when the recording grew last
    cdef int64_t _said_ns                       # when AppendPosition was sent last
    cdef readonly str end                       # why this member does not follow any more; None: it does
    cdef int begin(self, int64_t now_ns, int64_t log_position, int64_t commit_position) except -1
    cdef int on_leader(self, int64_t commit_position, int64_t now_ns) except -1
    cdef int hear_leader(self, int64_t now_ns) except -1
    cdef bint is_leader_silent(self, int64_t now_ns) noexcept
    cdef int poll(self, int64_t now_ns) except -1
    cdef int poll_catchup(
        self, ClusterMember leader, int64_t leadership_term_id, int64_t limit_position, int64_t now_ns) except -1
    cdef int _read(self, int64_t limit_position) except -1
    cdef int _note_recorded(self, int64_t now_ns) except -1
    cdef int _say(self, ClusterMember leader, int64_t leadership_term_id, int flags, int64_t now_ns) except -1
