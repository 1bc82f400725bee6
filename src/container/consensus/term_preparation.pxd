# Undoes before an election what the last term has left open.
from libc.stdint cimport int64_t

from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.follower_log cimport FollowerLog
from container.consensus.ingress_adapter cimport IngressAdapter
from container.consensus.leader_log cimport LeaderLog
from container.consensus.log_adapter cimport LogAdapter
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport MemberStatus
from container.consensus.session_manager cimport SessionManager


cdef class TermPreparation:
    cdef ConsensusModuleCounters _counters
    cdef MemberStatus _status
    cdef SessionManager _sessions
    cdef IngressAdapter _ingress
    cdef LogAdapter _log_adapter
    cdef LogRecording _recording
    cdef LogCommit _commit
    cdef LeaderLog _leader_log
    cdef FollowerLog _follower_log
    cdef FollowerCatchups _catchups
    cdef MemberSnapshots _snapshots
    cdef ArchiveUpkeep _upkeep
    cdef object _work                           # generator; None: none is in progress
    cdef int begin(self, int64_t log_position) except -1
    cdef object poll(self)
    cpdef int close(self) except -1
