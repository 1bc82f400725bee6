# A member of the cluster as this member knows it, and what a quorum of members is.
from libc.stdint cimport int32_t, int64_t

from container.transport.streams cimport Publication


cdef enum Vote:
    VOTE_NONE = -1
    VOTE_NO = 0
    VOTE_YES = 1


cdef class ClusterMember:
    cdef readonly int32_t id
    cdef readonly str ingress_endpoint
    cdef readonly str consensus_endpoint
    cdef readonly str log_endpoint
    cdef readonly str catchup_endpoint
    cdef readonly str archive_endpoint
    cdef readonly str archive_response_endpoint     # None: not given
    cdef readonly str egress_response_endpoint      # None: not given
    cdef readonly str endpoints                     # as they were given
    cdef public bint is_leader
    cdef public bint is_ballot_sent
    cdef public bint has_terminated
    cdef public int vote                            # Vote
    cdef public int64_t candidate_term_id
    cdef readonly int32_t protocol_version          # as it said in this election; NULL_VALUE until it did
    cdef readonly bint was_upstream                 # whether it last said that it is not native, in any election
    cdef readonly int64_t leadership_term_id        # of its log, where it last said so; these three: set_log()
    cdef readonly int64_t log_position              # up to where it has recorded; NULL_POSITION until it said so
    cdef readonly int64_t time_of_last_append_position_ns
    cdef int64_t _far_term_id                       # the last term that it named and that is out of reach
    cdef int64_t _answered_term_id                  # the log with which it was last answered, and for how long once
    cdef int64_t _answered_position
    cdef int64_t _answered_until_ns
    cdef public str consensus_channel               # None until it is known
    cdef public Publication publication             # None: there is none
    cpdef int reset(self) except -1
    cpdef int set_log(self, int64_t leadership_term_id, int64_t log_position, int64_t now_ns) except -1
    cpdef int set_protocol_version(self, int32_t protocol_version) except -1
    cpdef int note_protocol_version(self, int32_t protocol_version) except -1
    cpdef bint is_active(self, int64_t now_ns, int64_t timeout_ns) noexcept
    cpdef bint will_vote_for(self, ClusterMember candidate) noexcept
    cpdef bint is_upstream(self) noexcept
    cpdef bint names_far_term_again(self, int64_t term_id) noexcept


cdef int compare_log(
    int64_t leadership_term_id, int64_t log_position, int64_t other_leadership_term_id, int64_t other_log_position
) noexcept
cdef int quorum_threshold(Py_ssize_t member_count) noexcept


cdef class ClusterMembers:
    cdef readonly list members                      # of ClusterMember, in the order in which they are configured
    cdef readonly ClusterMember this_member
    cdef readonly int threshold                     # how many make a quorum
    cdef public int64_t voted_term_id               # the last one in which this member may have voted for another
    cdef dict _by_id
    cdef int64_t* _ranked
    cpdef ClusterMember find(self, int32_t member_id)
    cpdef Py_ssize_t count(self) noexcept
    cpdef int64_t quorum_position(
        self, int64_t leadership_term_id, object end_of_term, int64_t now_ns, int64_t timeout_ns,
        bint is_strict=*) except -1
    cpdef bint has_active_quorum(self, int64_t now_ns, int64_t timeout_ns) except -1
    cpdef bint has_quorum_at_position(
        self, int64_t leadership_term_id, int64_t position, int64_t now_ns, int64_t timeout_ns) except -1
