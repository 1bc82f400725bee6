"""The present state of a member, its role, its term and its leader, as counters and the log's events show them.

One thread changes it; any may read it.
"""
from libc.stdint cimport int64_t

from container.common import aeron_defaults
from container.common.log_events import log_event
from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember
from container.transport.frames cimport NULL_VALUE


cdef class MemberStatus:
    """State, role, leadership term and leader of this member.

    Args:
        context: concluded (ConsensusModuleContext): its counters and its name.
        leader: until there is one (ClusterMember): this member.
    """

    def __init__(self, context, ClusterMember leader not None):
        self._name, self._counters = context.name, context.counters
        self.leadership_term_id = NULL_VALUE
        self.leader = leader

    cdef int set_state(self, ModuleState state, str reason) except -1:
        if state != self.state:
            log_event(
                self._name, "state_changed", state=aeron_defaults.MODULE_STATES[<int> state],
                former_state=aeron_defaults.MODULE_STATES[<int> self.state], reason=reason,
                log_position=self._counters.commit_position.get())
        self.state = state
        self._counters.module_state.set(<int64_t> state)
        return 0

    cdef int set_role(self, int role) except -1:
        if role != self.role:
            log_event(
                self._name, "role_changed", role=aeron_defaults.ROLES[role],
                former_role=aeron_defaults.ROLES[self.role], leadership_term_id=self.leadership_term_id,
                log_position=self._counters.commit_position.get())
        self.role = role
        self._counters.node_role.set(role)
        return 0

    cdef int set_leadership_term(self, int64_t leadership_term_id) except -1:
        self.leadership_term_id = leadership_term_id
        self._counters.leadership_term_id.set(leadership_term_id)
        return 0


seal((MemberStatus,))
