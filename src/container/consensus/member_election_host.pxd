# The elections of a member, and what they ask of it.
from libc.stdint cimport int32_t, int64_t

from container.archive.client.async_archive cimport AsyncArchive
from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.follower_log cimport FollowerLog
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.leader_log cimport LeaderLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_following cimport LogFollowing
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.log_truncation cimport LogTruncation
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.service_joins cimport ServiceJoins
from container.consensus.session_manager cimport SessionManager
from container.consensus.term_announcer cimport TermAnnouncer
from container.consensus.term_preparation cimport TermPreparation
from container.consensus.timer_service cimport TimerService
from container.transport.clocks cimport Clock


cdef class MemberElectionHost:
    cdef object _context                        # ConsensusModuleContext, concluded
    cdef object _settings
    cdef object _on_error
    cdef object _recording_log
    cdef object _node_state
    cdef Clock _clock
    cdef ClusterClock _cluster_clock
    cdef ConsensusModuleCounters _counters
    cdef AsyncArchive _archive
    cdef ClusterMembers _members
    cdef ConsensusPublisher _publisher
    cdef TermAnnouncer _announcer
    cdef MemberStatus _status
    cdef SessionManager _sessions
    cdef TimerService _timers
    cdef IngressAdapter _ingress
    cdef LogAdapter _log_adapter
    cdef LogPublisher _log_publisher
    cdef LogRecording _recording
    cdef LogCommit _commit
    cdef LeaderLog _leader_log
    cdef FollowerLog _follower_log
    cdef LogFollowing _following
    cdef FollowerCatchups _catchups
    cdef ServiceJoins _joins
    cdef MemberSnapshots _snapshots
    cdef MemberTermination _termination
    cdef ArchiveUpkeep _upkeep
    cdef TermPreparation _preparation
    cdef LogTruncation _truncation
    cdef object election                        # Election; None: there is a leader, or the member has not started
    cdef str awaits                             # what the election waits for
    cdef object _failures                       # container.consensus.election.Failures, of all elections
    cdef int64_t _failure_limit_ns              # how long a member without others may fail to lead
    cdef int64_t _heartbeat_interval_ns
    cdef int64_t _heartbeat_timeout_ns
    cdef int64_t _in_term_since_ns
    cdef readonly int64_t time_of_last_leader_update_ns
    cdef bint can_enter(self) except -1
    cdef int enter(self, bint is_log_end_of_stream, str reason) except -1
    cdef int begin_at_start(self) except -1
    cdef int do_work(self, int64_t now_ns) except -1
    cdef int note_leader(self, int64_t leadership_term_id) except -1
    cdef int forget_failures(self, int64_t now_ns) except -1
    cpdef int close(self) except -1
    cdef int _check_failures(self, int64_t now_ns, str reason) except -1
    cdef int _begin(
        self, bint is_node_startup, int32_t graceful_closed_leader_id, int64_t leadership_term_id,
        int64_t term_base_log_position, int64_t append_position, int64_t pause_ns) except -1
