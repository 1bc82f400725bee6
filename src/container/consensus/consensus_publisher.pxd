# Messages of a member to the others. Each call returns whether the message was sent now.
from libc.stdint cimport int32_t, int64_t, uint8_t

from container.consensus.cluster_member cimport ClusterMember
from container.transport.transport_seam cimport Client


cdef class ConsensusPublisher:
    cdef Client _client
    cdef object _on_error
    cdef list _others                           # of ClusterMember
    cdef list _pending                          # of PendingAdd: what was asked for, for each of these, or None
    cdef bytearray _canvass                     # a CanvassPosition, and the list of members behind it
    cdef int32_t _member_id
    cdef int32_t _stream_id
    cdef int _missing_count                     # how many of the others have no publication
    cdef list _add_due_ns                       # when the driver may be asked again, for each of these
    cpdef int poll_adds(self, int64_t now_ns) except -1
    cpdef int close(self) except -1
    cpdef bint canvass_position(
        self, ClusterMember member, int64_t log_leadership_term_id, int64_t log_position, int64_t leadership_term_id
    ) except -1
    cpdef bint request_vote(
        self, ClusterMember member, int64_t log_leadership_term_id, int64_t log_position, int64_t candidate_term_id
    ) except -1
    cpdef bint place_vote(
        self, ClusterMember candidate, int64_t candidate_term_id, int64_t log_leadership_term_id, int64_t log_position,
        bint vote) except -1
    cpdef bint new_leadership_term(
        self, ClusterMember member, int64_t log_leadership_term_id, int64_t next_leadership_term_id,
        int64_t next_term_base_log_position, int64_t next_log_position, int64_t leadership_term_id,
        int64_t term_base_log_position, int64_t log_position, int64_t commit_position, int64_t leader_recording_id,
        int64_t timestamp, int32_t log_session_id, int32_t app_version, bint is_startup) except -1
    cpdef bint append_position(
        self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position, int flags) except -1
    cpdef bint commit_position(
        self, ClusterMember member, int64_t leadership_term_id, int64_t log_position) except -1
    cpdef bint catchup_position(
        self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position, str catchup_endpoint) except -1
    cpdef bint stop_catchup(self, ClusterMember follower, int64_t leadership_term_id) except -1
    cpdef bint termination_position(
        self, ClusterMember member, int64_t leadership_term_id, int64_t log_position) except -1
    cpdef bint termination_ack(
        self, ClusterMember leader, int64_t leadership_term_id, int64_t log_position) except -1
    cdef int _poll_add(self, int index, int64_t now_ns) except -1
    cdef bint _send(self, ClusterMember member, const uint8_t* message, size_t length) except -1
