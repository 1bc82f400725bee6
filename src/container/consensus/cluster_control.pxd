# Control requests of tools and clients to a cluster.
from libc.stdint cimport int32_t, int64_t

from container.consensus.archive_upkeep cimport ArchiveUpkeep
from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_session cimport ClusterSession
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.member_snapshots cimport MemberSnapshots
from container.consensus.member_status cimport MemberStatus
from container.consensus.member_termination cimport MemberTermination
from container.consensus.session_manager cimport SessionManager


cdef class ClusterControl:
    cdef object _on_error
    cdef ConsensusModuleCounters _counters
    cdef ClusterClock _cluster_clock
    cdef MemberStatus _status
    cdef SessionManager _sessions
    cdef LogPublisher _log_publisher
    cdef LogCommit _commit
    cdef MemberTermination _termination
    cdef MemberSnapshots _snapshots
    cdef ArchiveUpkeep _upkeep
    cdef int poll(self, int64_t now_ns) except -1
    cdef int poll_node(self) except -1
    cdef bint request_snapshot(self) except -1
    cdef int on_admin_request(self, ClusterSession session, int64_t correlation_id, int32_t request_type) except -1
    cdef int _poll_active(self, int64_t toggle, int64_t now_ns) except -1
    cdef int64_t _append(self, int32_t action) except -1
    cdef bint _begin_snapshot(self, int64_t now_ns, str reason) except -1
    cdef int _begin_shutdown(self, int64_t now_ns) except -1
    cdef int _begin_abort(self, int64_t now_ns) except -1
