"""The members of a cluster as one of them knows them, and what a quorum of them is. Upstream: ClusterMember.java.

A position alone says nothing about what a member has: a leader that was cut off may have recorded what no majority ever
did. So a member counts for the commit position only as far as its log is known to be the leader's (upstream counts the
position whatever term the log is of).
"""
from itertools import zip_longest

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from container.common.sealed cimport seal
from container.common.values import shown
from container.errors import ConfigurationError
from container.transport.frames cimport NULL_VALUE

cdef enum:
    NULL_POSITION = -1
    MIN_ATTRIBUTES = 6                  # the id and five endpoints
    MAX_ATTRIBUTES = 8
    NATIVE_PATCH = 78

#: The protocol version of CanvassPosition, RequestVote and NewLeadershipTerm by which native members know each other:
#: 1.0.78. Upstream's send 1.0.0 in the first two, have no such field in the third, and check nothing.
NATIVE_PROTOCOL_VERSION = 1 << 16 | NATIVE_PATCH

_EXAMPLE = "0,host:9010,host:9020,host:9030,host:9040,host:8010"
_ATTRIBUTES = "id,ingress,consensus,log,catchup,archive[,archive response[,egress response]]"
_ENDPOINTS = ("ingress", "consensus", "log", "catchup", "archive", "archive response", "egress response")
_MAX_DIFFERENCES = 8


cdef int compare_log(
        int64_t leadership_term_id, int64_t log_position, int64_t other_leadership_term_id, int64_t other_log_position
) noexcept:
    """1 when the first log is the better one, by its last term and then by its length; -1 when the other is; 0."""
    if leadership_term_id != other_leadership_term_id:
        return 1 if leadership_term_id > other_leadership_term_id else -1
    if log_position != other_log_position:
        return 1 if log_position > other_log_position else -1
    return 0


def is_better_log(
        int64_t leadership_term_id, int64_t log_position, int64_t other_leadership_term_id, int64_t other_log_position):
    """Whether a log is better than another, which a native member that has it does not vote for then (bool).

    A log that has nothing is better than none, whatever term its member has followed: there is nothing to lose. In all
    else native members compare as upstream's do. Were a log that one of them calls the better one the worse one for
    another, both would be candidates, and neither would get the votes of a quorum.
    """
    return log_position > 0 and compare_log(
        leadership_term_id, log_position, other_leadership_term_id, other_log_position) > 0


cdef int quorum_threshold(Py_ssize_t member_count) noexcept:
    return <int> (member_count // 2 + 1)


def _plain(text):
    """A peer's text, as it is where it is short and printable, else as an error shows a value."""
    return text if text.isprintable() and len(text) <= 80 else shown(text)


cdef class ClusterMember:
    """One member: where it is reached, and what it last said of its log and of its vote.

    Args:
        member_id: its id (int, 32 bits).
        endpoints: five to seven texts ``host:port``: ingress, consensus, log, catch-up, archive, and where they are
            given the archive's and the egress' response endpoints (sequence of str).
    """

    def __init__(self, int32_t member_id, endpoints):
        self.id = member_id
        self.endpoints = ",".join(endpoints)
        self.ingress_endpoint, self.consensus_endpoint, self.log_endpoint = endpoints[:3]
        self.catchup_endpoint, self.archive_endpoint = endpoints[3:5]
        self.archive_response_endpoint = endpoints[5] if len(endpoints) > 5 else None
        self.egress_response_endpoint = endpoints[6] if len(endpoints) > 6 else None
        self.time_of_last_append_position_ns = NULL_VALUE
        self.reset()

    cpdef int reset(self) except -1:
        """Forget what it said of its log and of its vote."""
        self.is_leader = self.is_ballot_sent = self.has_terminated = False
        self.vote = VOTE_NONE
        self.candidate_term_id = self.leadership_term_id = NULL_VALUE
        self.log_position = NULL_POSITION
        self.protocol_version = NULL_VALUE
        self._far_term_id = self._answered_term_id = NULL_VALUE
        self._answered_position = NULL_POSITION
        return 0

    cpdef int set_log(self, int64_t leadership_term_id, int64_t log_position, int64_t now_ns) except -1:
        """Note what it says of its log: term, position and time belong together."""
        self.leadership_term_id = leadership_term_id
        self.log_position = log_position
        self.time_of_last_append_position_ns = now_ns
        return 0

    cpdef int set_protocol_version(self, int32_t protocol_version) except -1:
        """Note what it says that it is, without a leader: that it speaks, and whether it is native."""
        self.protocol_version = protocol_version
        return self.note_protocol_version(protocol_version)

    cpdef int note_protocol_version(self, int32_t protocol_version) except -1:
        """Note whether it is native: ``was_upstream`` stays through all elections. As a leader, upstream's says -1."""
        self.was_upstream = (protocol_version & 0xFF) != NATIVE_PATCH
        return 0

    cpdef bint is_active(self, int64_t now_ns, int64_t timeout_ns) noexcept:
        """Whether it said something of its log less than ``timeout_ns`` ago, and nothing made it forgotten since."""
        return self.log_position != NULL_POSITION and now_ns - self.time_of_last_append_position_ns < timeout_ns

    cpdef bint will_vote_for(self, ClusterMember candidate) noexcept:
        """Whether its log, as it is known, is not better than the candidate's. It may have been silent for long.

        A member of upstream's that has nothing does not vote for one of an older term.
        """
        if self.log_position == 0 and not self.was_upstream:
            return True
        return self.log_position != NULL_POSITION and compare_log(
            self.leadership_term_id, self.log_position, candidate.leadership_term_id, candidate.log_position) <= 0

    cpdef bint is_upstream(self) noexcept:
        """Whether it said in this election that it is not native: it says its log in a term it has not recorded."""
        return self.protocol_version != NULL_VALUE and self.was_upstream

    cpdef bint names_far_term_again(self, int64_t term_id) noexcept:
        """Note a term out of reach; return whether it named one before that was no newer: then it is not damage."""
        cdef bint is_again = NULL_VALUE < self._far_term_id <= term_id
        self._far_term_id = term_id
        return is_again

    def is_first_answer(self, int64_t now_ns, int64_t timeout_ns):
        """Whether it has not been answered with its present log for a while (bool); it is answered now."""
        if (self.leadership_term_id == self._answered_term_id and self.log_position == self._answered_position
                and now_ns < self._answered_until_ns):
            return False
        self._answered_term_id, self._answered_position = self.leadership_term_id, self.log_position
        self._answered_until_ns = now_ns + timeout_ns
        return True

    def __repr__(self):
        return (f"<ClusterMember {self.id} {self.endpoints} leadership_term_id={self.leadership_term_id} "
                f"log_position={self.log_position}>")


cdef class ClusterMembers:
    """All members of a cluster, and which of them this one is.

    Args:
        members: all, this one among them (sequence of ClusterMember).
        member_id: which one this is (int).

    Raises ConfigurationError when it is not among them.
    """

    def __cinit__(self):
        self._ranked = NULL

    def __init__(self, members, int32_t member_id):
        self.members = list(members)
        self._by_id = {member.id: member for member in self.members}
        self.this_member = self._by_id.get(member_id)
        if self.this_member is None:
            known = ", ".join([str(member.id) for member in self.members])
            raise ConfigurationError(
                f"cluster_member_id={member_id} is not in cluster_members: the members are {known or 'none'}")
        self.threshold = quorum_threshold(len(self.members))
        self.voted_term_id = NULL_VALUE
        self._ranked = <int64_t*> PyMem_Calloc(self.threshold, sizeof(int64_t))
        if self._ranked == NULL:
            raise MemoryError("no memory for the positions of a quorum")

    def __dealloc__(self):
        PyMem_Free(self._ranked)

    cpdef ClusterMember find(self, int32_t member_id):
        """The member with an id, or None."""
        return self._by_id.get(member_id)

    cpdef Py_ssize_t count(self) noexcept:
        """How many members there are."""
        return len(self.members)

    def others(self):
        """All but this one (list of ClusterMember)."""
        return [member for member in self.members if member is not self.this_member]

    def reset(self):
        """Forget what every member said of its log and of its vote."""
        cdef ClusterMember member
        for member in self.members:
            member.reset()

    cpdef int64_t quorum_position(
            self, int64_t leadership_term_id, object end_of_term, int64_t now_ns, int64_t timeout_ns,
            bint is_strict=False) except -1:
        """Up to which position a quorum of active members has the log of the leader; 0 where there is no quorum.

        Args:
            leadership_term_id: the leader's term: a member of that term has all that it says.
            end_of_term: where an older term ends in the leader's log; called with a term id (int), returns a position
                (int), 0 for a term that the leader does not know. A member whose log is of that term has what the
                leader has up to there, whatever follows in it.
            now_ns, timeout_ns: a member that was silent for that long does not count.
            is_strict: whether members count only by what they said in the term. Upstream's count as ever: what they say
                in a term is worth no more than what they said before it, and some say nothing in it.
        """
        cdef ClusterMember member
        cdef int64_t position, ranked
        cdef int index
        memset(self._ranked, 0, self.threshold * sizeof(int64_t))
        for member in self.members:
            if not member.is_active(now_ns, timeout_ns):
                continue
            position = member.log_position
            if member.leadership_term_id != leadership_term_id:
                if is_strict and not member.is_upstream():
                    continue
                position = min(position, <int64_t> end_of_term(member.leadership_term_id))
            for index in range(self.threshold):
                ranked = self._ranked[index]
                if position > ranked:
                    self._ranked[index] = position
                    position = ranked
        return self._ranked[self.threshold - 1]

    cpdef bint has_active_quorum(self, int64_t now_ns, int64_t timeout_ns) except -1:
        """Whether a quorum of members has been heard of less than ``timeout_ns`` ago."""
        cdef ClusterMember member
        cdef int count = 0
        for member in self.members:
            count += member.is_active(now_ns, timeout_ns)
        return count >= self.threshold

    cpdef bint has_quorum_at_position(
            self, int64_t leadership_term_id, int64_t position, int64_t now_ns, int64_t timeout_ns) except -1:
        """Whether a quorum of active members is in that term and has recorded the log up to that position."""
        cdef ClusterMember member
        cdef int count = 0
        for member in self.members:
            count += (member.leadership_term_id == leadership_term_id and member.log_position >= position
                      and member.is_active(now_ns, timeout_ns))
        return count >= self.threshold

    def become_candidate(self, int64_t candidate_term_id):
        """Forget all votes except this member's own, for its new candidacy."""
        cdef ClusterMember member
        for member in self.members:
            member.is_ballot_sent = member is self.this_member
            member.vote = VOTE_YES if member is self.this_member else VOTE_NONE
            member.candidate_term_id = candidate_term_id if member is self.this_member else NULL_VALUE

    def is_unanimous_candidate(self, int32_t graceful_closed_leader_id):
        """Whether each member, except a leader that closed in order, would vote for this one, and they are enough."""
        cdef ClusterMember member
        cdef int count = 0
        for member in self.members:
            if member.id == graceful_closed_leader_id:
                continue
            if not member.will_vote_for(self.this_member):
                return False
            count += 1
        return count >= self.threshold

    def is_quorum_candidate(self):
        """Whether a quorum of members would vote for this one."""
        cdef ClusterMember member
        cdef int count = 0
        for member in self.members:
            count += member.will_vote_for(self.this_member)
        return count >= self.threshold

    def is_unanimous_leader(self, int64_t candidate_term_id, int32_t graceful_closed_leader_id):
        """Whether each member, except a leader that closed in order, voted for this one, and they are enough."""
        cdef ClusterMember member
        cdef int count = 0
        for member in self.members:
            if member.id == graceful_closed_leader_id:
                continue
            if member.candidate_term_id != candidate_term_id or member.vote != VOTE_YES:
                return False
            count += 1
        return count >= self.threshold

    def is_quorum_leader(self, int64_t candidate_term_id, bint is_vetoed=True):
        """Whether a quorum of members voted for this one, and with ``is_vetoed`` nobody against it (bool)."""
        cdef ClusterMember member
        cdef int count = 0
        for member in self.members:
            if member.candidate_term_id == candidate_term_id:
                if is_vetoed and member.vote == VOTE_NO:
                    return False
                count += member.vote == VOTE_YES
        return count >= self.threshold

    def set_leader(self, int32_t leader_member_id):
        """Mark who leads."""
        cdef ClusterMember member
        for member in self.members:
            member.is_leader = member.id == leader_member_id

    def differences(self, str text not None):
        """Where another list of members, as in ``cluster_members``, differs from this one (list of str).

        Nothing for an invalid list: later versions may send something else there.
        """
        cdef ClusterMember member, other
        cdef dict others = None
        cdef list found = []
        try:
            others = {other.id: other for other in parse_cluster_members(text)}
        except ConfigurationError:
            pass
        if others is None:
            return found
        for member_id in sorted(self._by_id.keys() | others.keys()):
            member, other = self._by_id.get(member_id), others.get(member_id)
            if member is None or other is None:
                found.append(f"member {member_id} is in {'its' if member is None else 'this'} list alone")
                continue
            for name, ours, theirs in zip_longest(_ENDPOINTS, member.endpoints.split(","), other.endpoints.split(",")):
                if ours != theirs:
                    found.append(f"{name} of member {member_id} is {_plain(theirs) or 'not given'} there and "
                                 f"{ours or 'not given'} here")
        if len(found) > _MAX_DIFFERENCES:
            found[_MAX_DIFFERENCES:] = [f"{len(found) - _MAX_DIFFERENCES} more"]
        return found

    def encode(self):
        """The members as in the setting ``cluster_members`` (str)."""
        return "|".join([f"{member.id},{member.endpoints}" for member in self.members])

    def ingress_endpoints(self):
        """Where clients reach the members (str): ``0=host:port,1=host:port``."""
        return ",".join([f"{member.id}={member.ingress_endpoint}" for member in self.members])

    def __repr__(self):
        return f"<ClusterMembers {self.encode()} this={self.this_member.id}>"


def parse_cluster_members(str text not None):
    """The members that the setting ``cluster_members`` names (list of ClusterMember).

    ``id,ingress,consensus,log,catchup,archive[,archive response[,egress response]]`` for each, with ``|`` between them.

    Raises ConfigurationError for a malformed text, and where two have the same id.
    """
    cdef list members = []
    for item in text.split("|"):
        attributes = item.split(",")
        if not MIN_ATTRIBUTES <= len(attributes) <= MAX_ATTRIBUTES or "" in attributes:
            raise ConfigurationError(
                f"cluster_members: {shown(item)} is not a member: it takes {_ATTRIBUTES}, such as {_EXAMPLE}")
        try:
            member_id = int(attributes[0])
        except ValueError:
            member_id = -1
        if not 0 <= member_id <= 0x7FFF_FFFF:
            raise ConfigurationError(
                f"cluster_members: the id {shown(attributes[0])} of {shown(item)} is not a number from 0 to 2147483647")
        if any([member.id == member_id for member in members]):
            raise ConfigurationError(f"cluster_members: the id {member_id} is given to two members in {shown(text)}")
        members.append(ClusterMember(member_id, attributes[1:]))
    return members


seal((ClusterMember, ClusterMembers))
