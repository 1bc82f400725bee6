# NewLeadershipTerm: that this member leads a term, and what follows a member's last term in its log.
from libc.stdint cimport int32_t, int64_t

from container.consensus.cluster_clock cimport ClusterClock
from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.log_recording cimport LogRecording


cdef class TermAnnouncer:
    cdef object _recording_log
    cdef ClusterClock _cluster_clock
    cdef ConsensusPublisher _publisher
    cdef LogRecording _recording
    cdef int32_t _app_version
    cdef bint announce(
        self, ClusterMember member, int64_t log_leadership_term_id, int64_t leadership_term_id,
        int64_t term_base_log_position, int64_t log_position, int64_t commit_position, int32_t log_session_id,
        bint is_startup, bint is_in_election) except -1
    cdef object _following_term(self, int64_t log_leadership_term_id, int64_t log_position)
