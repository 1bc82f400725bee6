"""Messages of the other members while no election is in progress, and this member's reactions.

Upstream: ConsensusModuleAgent.java (onCanvassPosition to onCommitPosition). Different from it, as in an election
(container.consensus.election): a leader stands back for a native member that voted in a newer term, and for any whose
log is of one, which upstream's ignores for ever; a leader of an older term is answered, so that it hears of a newer
one; and a leader does not answer a member of upstream's that has some of its term with a commit position of 0, for
which that would wait for ever. A term that is out of reach is reported, and ignored until the member names it again.
"""
from libc.stdint cimport int32_t, int64_t

from container.common.sealed cimport seal
from container.consensus.cluster_member cimport ClusterMember, ClusterMembers
from container.consensus.consensus_publisher cimport ConsensusPublisher
from container.consensus.follower_catchups cimport FollowerCatchups
from container.consensus.log_commit cimport LogCommit
from container.consensus.log_following cimport LogFollowing
from container.consensus.log_publisher cimport LogPublisher
from container.consensus.log_recording cimport LogRecording
from container.consensus.member_election_host cimport MemberElectionHost
from container.consensus.member_status cimport FOLLOWER, LEADER, MemberStatus
from container.consensus.term_announcer cimport TermAnnouncer
from container.transport.transport_seam cimport Client

from container.consensus.terms import unreachable


cdef class PeerMessages:
    """Takes what other members say in a term.

    Args:
        context: concluded (ConsensusModuleContext).
        members: of the cluster (ClusterMembers).
        publisher, announcer: answer them (ConsensusPublisher, TermAnnouncer).
        status, log_publisher, recording, commit, catchups, following, elections: of this member.
    """

    def __init__(self, context, ClusterMembers members not None, ConsensusPublisher publisher not None,
                 TermAnnouncer announcer not None, MemberStatus status not None, LogPublisher log_publisher not None,
                 LogRecording recording not None, LogCommit commit not None, FollowerCatchups catchups not None,
                 LogFollowing following not None, MemberElectionHost elections not None):
        self._clock, self._recording_log = (<Client?> context.client).clock, context.recording_log
        self._counters = context.counters
        self._members, self._publisher, self._announcer, self._status = members, publisher, announcer, status
        self._log_publisher, self._recording, self._catchups = log_publisher, recording, catchups
        self._commit, self._following, self._elections = commit, following, elections

    cdef int on_canvass_position(
            self, int64_t log_leadership_term_id, int64_t log_position, int64_t leadership_term_id,
            int32_t follower_member_id, int32_t protocol_version) except -1:
        """A member has no leader, and says how far its log goes."""
        cdef ClusterMember follower = self._members.find(follower_member_id)
        cdef int64_t term_id = self._status.leadership_term_id
        if self._status.role != LEADER:
            return 0
        if log_leadership_term_id > term_id:
            return self._enter(
                "CanvassPosition", log_leadership_term_id, follower_member_id,
                f"a newer term than {term_id}, which this member leads: the log of member {follower_member_id} is of "
                f"term {log_leadership_term_id}")
        follower.set_protocol_version(protocol_version)
        if leadership_term_id > term_id and not follower.is_upstream():
            return self._enter(
                "CanvassPosition", leadership_term_id, follower_member_id,
                f"a newer term than {term_id}, which this member leads: member {follower_member_id} follows nobody of "
                f"a term before {leadership_term_id}, in which it voted")
        follower.set_log(log_leadership_term_id, log_position, self._clock.nano_time())
        # A log of an older term it has to take back first: nothing is before this one.
        if (follower.is_upstream() and log_leadership_term_id == term_id and log_position > 0
                and self._counters.commit_position.get() == 0):
            return 0
        self._announcer.announce(
            follower, log_leadership_term_id, term_id,
            self._recording_log.get_term_entry(term_id).term_base_log_position, self._log_publisher.position(),
            max(self._counters.commit_position.get(), self._commit.said_position), self._log_publisher.session_id(),
            False, False)
        return 0

    cdef int on_request_vote(self, int64_t candidate_term_id, int32_t candidate_member_id) except -1:
        """A member wants to lead."""
        if candidate_term_id > self._status.leadership_term_id:
            return self._enter(
                "RequestVote", candidate_term_id, candidate_member_id,
                f"unexpected vote request: member {candidate_member_id} for term {candidate_term_id}, and this one is "
                f"in {self._status.leadership_term_id}")
        return 0

    cdef int on_new_leadership_term(
            self, int64_t leadership_term_id, int64_t commit_position, int32_t leader_member_id) except -1:
        """A member leads."""
        cdef int64_t term_id = self._status.leadership_term_id
        if leadership_term_id > term_id:
            return self._enter(
                "NewLeadershipTerm", leadership_term_id, leader_member_id,
                f"unexpected new leadership term {leadership_term_id} of member {leader_member_id}, and this one is in "
                f"{term_id}")
        if leadership_term_id < term_id:
            self._publisher.canvass_position(
                self._members.find(leader_member_id), term_id, self._append_position(), term_id)
        elif self._is_of_leader(leadership_term_id, leader_member_id):
            self._following.on_leader(commit_position, self._clock.nano_time())
        return 0

    def _append_position(self):
        return max(<int64_t> self._recording.position(), <int64_t> self._counters.commit_position.get())

    cdef int on_append_position(
            self, int64_t leadership_term_id, int64_t log_position, int32_t follower_member_id, int flags) except -1:
        """A follower says how far its log is recorded."""
        cdef ClusterMember follower
        cdef bint is_of_this_log
        if self._status.role == LEADER and leadership_term_id <= self._status.leadership_term_id:
            follower = self._members.find(follower_member_id)
            # As one of upstream's leaders counts it: else there may be no quorum for what that member waits for first.
            is_of_this_log = self._catchups.is_of_this_log(follower, flags)
            follower.set_log(
                self._status.leadership_term_id if is_of_this_log else leadership_term_id, log_position,
                self._clock.nano_time())
            self._catchups.complete(follower, leadership_term_id, flags)
        return 0

    cdef int on_commit_position(
            self, int64_t leadership_term_id, int64_t log_position, int32_t leader_member_id) except -1:
        """A leader says up to where the log is committed."""
        if leadership_term_id > self._status.leadership_term_id:
            return self._enter(
                "CommitPosition", leadership_term_id, leader_member_id,
                f"unexpected commit position {log_position} of member {leader_member_id} in term {leadership_term_id}, "
                f"and this one is in {self._status.leadership_term_id}")
        if self._is_of_leader(leadership_term_id, leader_member_id):
            self._following.on_leader(log_position, self._clock.nano_time())
        return 0

    cdef bint _is_of_leader(self, int64_t leadership_term_id, int32_t member_id) except -1:
        return (self._status.role == FOLLOWER and leadership_term_id == self._status.leadership_term_id
                and self._status.leader.id == member_id)

    cdef int _enter(self, str message, int64_t term_id, int32_t member_id, str reason) except -1:
        cdef ClusterMember member
        error = unreachable(term_id, self._status.leadership_term_id, message, member_id)
        if error is not None:
            self._elections.report(error)
            member = self._members.find(member_id)
            if member is None or not member.names_far_term_again(term_id):
                return 0
        # A snapshot that is committed is taken to its end, and a member that terminates does so.
        if self._elections.can_enter():
            self._elections.enter(False, reason)
        return 0


seal((PeerMessages,))
