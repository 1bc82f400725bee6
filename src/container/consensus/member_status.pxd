# Current state, role, term and leader of a member.
from libc.stdint cimport int64_t

from container.consensus.cluster_member cimport ClusterMember
from container.consensus.consensus_counters cimport ConsensusModuleCounters

cdef enum ModuleState:                          # what counter 200 shows
    STATE_INIT
    STATE_ACTIVE
    STATE_SUSPENDED
    STATE_SNAPSHOT
    STATE_QUITTING
    STATE_TERMINATING
    STATE_CLOSED

cdef enum MemberRole:                           # what counter 201 shows; cheaper than members of the enum
    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


cdef class MemberStatus:
    cdef str _name                              # of the consensus module, in events of the log
    cdef ConsensusModuleCounters _counters
    cdef readonly ModuleState state
    cdef readonly int role                      # MemberRole
    cdef readonly int64_t leadership_term_id    # NULL_VALUE: none yet
    cdef public ClusterMember leader            # of that term; this member until there was one
    cdef int set_state(self, ModuleState state, str reason) except -1
    cdef int set_role(self, int role) except -1
    cdef int set_leadership_term(self, int64_t leadership_term_id) except -1
