# Messages of the other members while no election is in progress.
from libc.stdint cimport int32_t, int64_t

from container.consensus.cluster_member cimport ClusterMembers
from container.consensus.consensus_counters cimport ConsensusModuleCounters
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_following cimport LogFollowing
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_election_host cimport MemberElectionHost
from container.consensus.member_status cimport MemberStatus
from container.consensus.term_announcer cimport TermAnnouncer
from container.transport.clocks cimport Clock


cdef class PeerMessages:
    cdef Clock _clock
    cdef object _recording_log
    cdef ConsensusModuleCounters _counters
    cdef ClusterMembers _members
    cdef ConsensusPublisher _publisher
    cdef MemberStatus _status
    cdef LogPublisher _log_publisher
    cdef LogRecording _recording
    cdef LogCommit _commit
    cdef FollowerCatchups _catchups
    cdef LogFollowing _following
    cdef TermAnnouncer _announcer
    cdef MemberElectionHost _elections
    cdef int on_canvass_position(
        self, int64_t log_leadership_term_id, int64_t log_position, int64_t leadership_term_id,
        int32_t follower_member_id, int32_t protocol_version) except -1
    cdef int on_request_vote(self, int64_t candidate_term_id, int32_t candidate_member_id) except -1
    cdef int on_new_leadership_term(
        self, int64_t leadership_term_id, int64_t commit_position, int32_t leader_member_id) except -1
    cdef int on_append_position(
        self, int64_t leadership_term_id, int64_t log_position, int32_t follower_member_id, int flags) except -1
    cdef int on_commit_position(
        self, int64_t leadership_term_id, int64_t log_position, int32_t leader_member_id) except -1
    cdef int _enter(self, str message, int64_t term_id, int32_t member_id, str reason) except -1
    cdef bint _is_of_leader(self, int64_t leadership_term_id, int32_t member_id) except -1
