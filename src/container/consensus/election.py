"""The election of a leader, with upstream's states and messages, for any number of members.

Upstream: Election.java, ElectionState.java. It decides; what it decides is done by its host, the agent of the consensus
module: publications, recordings, replays. No step waits: what upstream's waits for is begun in one step and looked
after in the next ones, so that a member that waits for its services or its archive still answers the others. And each
wait has an end: a member that waits for a leader, a driver or a follower that is gone says so and begins again.

Better than upstream's:

* What a member says of its log in a term counts for that term's leader only once the term is in the member's recording
  log, and a leader opens its term only for members that have said so in its term. Else two leaders that were cut off in
  turn can each commit what the other takes back (figure 8 of the paper on Raft).
* A leader records its term before it says it, and a member drops a recorded term that its leader never opened.
* A member compares its log with a leader's by the last term that it has recorded something of. It may have entered a
  term unheard, as an empty one.
* A member follows no leader of a term older than its vote for another: that vote may have made another leader. It says
  so, and a native leader begins a new election beyond that vote.
* A leader that hears of a newer term stands back in every state, and one that gets no log publication or no followers.
* A member whose elections fail again and again for the same reason pauses, longer each time, also where they come to
  an end in between, and does not fill logs and disturb the others at full speed. It still votes.
* A leader that is appointed needs a quorum of votes, whoever votes against it: nobody else may lead.
* Where ballots are lost, the delay before a nomination grows. A member waits for the leader that it voted for an
  interval longer than that waits for votes, and still follows it while it waits to nominate itself.
* Where all members are native, none truncates what it knows to be committed: it reports who asked for that.

Members of upstream's keep their own rules, and with them the guarantee is upstream's. They are counted as their own
leaders count them, and hear of no commit position for which they would wait for ever.
"""

from __future__ import annotations

import enum
import re

from container.api import Role
from container.consensus.cluster_member import ClusterMember, ClusterMembers, is_better_log
from container.consensus.election_host import (
    APPEND_POSITION_FLAG_NONE,
    NULL_POSITION,
    NULL_VALUE,
    ElectionHost,
    ElectionState,
    LogReplay,
    LogReplication,
    NewLeadershipTerm,
    Settings,
)
from container.consensus.terms import MOST_TERMS_AHEAD, unreachable
from container.errors import AgentTermination, Category, ClusterError, ClusterEvent, TimedOutError

_FIRST_PAUSE_NS = 100 * 1_000_000
_MOST_KINDS = 16
_MOST_DELAYS = 6
_LONG_AGO_NS = 24 * 3600 * 1_000_000_000
_LAST_TERM_ID = (1 << 63) - 1
_VOTE_NO = 0
_VOTE_YES = 1


_S = ElectionState
_VOTING_STATES = (_S.CANVASS, _S.NOMINATE, _S.CANDIDATE_BALLOT, _S.FOLLOWER_BALLOT)
_LEADER_STATES = (_S.LEADER_LOG_REPLICATION, _S.LEADER_REPLAY, _S.LEADER_INIT, _S.LEADER_READY)


class _Preparation(enum.Enum):
    """How far INIT has come."""

    TO_BEGIN = enum.auto()
    BEGUN = enum.auto()
    DONE = enum.auto()


class Failures:
    """The failures of a member's elections since it last was well: those of a kind pause longer each time.

    A member is well once it has led or followed for as long as the longest pause.

    Args:
        longest_ns: of the longest pause.
    """

    def __init__(self, longest_ns: int) -> None:
        self._longest_ns = longest_ns
        self._pauses: dict[str, int] = {}  # ns, by kind: the text without its numbers
        self._ended_ns: int | None = None
        #: When the first one was, on the monotonic clock; None where there was none.
        self.since_ns: int | None = None

    def end(self, now_ns: int) -> None:
        """Note that an election has come to its end."""
        self._ended_ns = now_ns

    def add(self, now_ns: int, error: BaseException) -> int:
        """Note one; how long the member is to pause now (ns), 0 for the first of a kind."""
        if self._ended_ns is not None and now_ns - self._ended_ns >= self._longest_ns:
            self.forget()
        self._ended_ns = None
        if self.since_ns is None:
            self.since_ns = now_ns
        kind = f"{type(error).__name__}: {re.sub(r'[0-9]+', '#', str(error))}"
        last_ns = self._pauses.pop(kind, None)
        pause_ns = 0 if last_ns is None else min(max(2 * last_ns, _FIRST_PAUSE_NS), self._longest_ns)
        self._pauses[kind] = pause_ns
        if len(self._pauses) > _MOST_KINDS:
            del self._pauses[next(iter(self._pauses))]
        return pause_ns

    def forget(self) -> None:
        """The member is well: the next failure is the first."""
        self._pauses.clear()
        self.since_ns = None


class Election:
    """One election, from the loss of a leader, or the start of the node, to the next term.

    Any error of a step or a handler goes to :meth:`handle_error`, and the election begins again.

    Args:
        host: does what the election decides.
        settings: intervals and time-outs.
        members: all members, and which of them this one is.
        is_node_startup: whether the node starts; else a term has ended.
        graceful_closed_leader_id: the leader whose log ended in order, -1 for none.
        leadership_term_id: the term of the end of this member's log, -1 for none.
        term_base_log_position: where that term begins.
        log_position: what is committed and applied.
        append_position: what is recorded.
        failures: those of the member, which its elections share; None: this one has its own.
        pause_ns: how long it pauses before its first step, the preparation apart.
    """

    def __init__(
        self,
        host: ElectionHost,
        settings: Settings,
        members: ClusterMembers,
        *,
        is_node_startup: bool,
        graceful_closed_leader_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        append_position: int,
        failures: Failures | None = None,
        pause_ns: int = 0,
    ) -> None:
        self._host = host
        self._settings = settings
        self._failures = Failures(settings.leader_heartbeat_timeout_ns) if failures is None else failures
        self._members = members
        self._this_member = members.this_member
        self._is_node_startup = is_node_startup
        self._graceful_closed_leader_id = graceful_closed_leader_id
        self._initial_leadership_term_id = leadership_term_id
        self._initial_term_base_log_position = term_base_log_position
        #: The leader, if known.
        self.leader: ClusterMember | None = None
        #: The session id of the leader's log publication, None while it is not known.
        self.log_session_id: int | None = None
        #: The term that is being formed or followed, and the term of the end of this member's log.
        self.leadership_term_id = leadership_term_id
        self.log_leadership_term_id = leadership_term_id
        #: The highest term that this member has asked or voted for.
        self.candidate_term_id = max(leadership_term_id, host.candidate_term_id())
        self.log_position = log_position
        self.append_position = append_position
        self.notified_commit_position = 0
        self.is_leader_startup = False
        self.state = _S.INIT
        self._is_first_init = True
        # Whether append_position is the end of the log: not once it follows a log, until that recording has stopped.
        self._is_end_known = True
        #: The highest term that a member has said that it voted or asked for.
        self._highest_term_id = NULL_VALUE
        self._announced_log_term_id = leadership_term_id
        self._upstream_commit_position = 0
        self._is_leader_upstream = False
        self._is_extended_canvass = is_node_startup
        self._preparation = _Preparation.TO_BEGIN
        self._truncation: tuple[int, str] | None = None
        self._term_base_log_position = NULL_POSITION
        self._catchup_join_position = NULL_POSITION
        self._leader_recording_id = NULL_VALUE
        self._replication_leadership_term_id = NULL_VALUE
        self._replication_term_base_log_position = NULL_POSITION
        self._replication_stop_position = NULL_POSITION
        self._log_replay: LogReplay | None = None
        self._log_replication: LogReplication | None = None
        self._has_log_subscription = False
        self._has_live_destination = False
        self._is_join_begun = self._has_recorded_live_log = False
        self._last_published_append_position = NULL_POSITION
        self._last_published_commit_position = 0
        now_ns = host.now_ns()
        self._pause_until_ns = now_ns + pause_ns
        self._prepare_from_ns = now_ns
        self._nomination_deadline_ns = now_ns
        # Until when something must have come: a leader's message, followers, the end of what was begun.
        self._deadline_ns = now_ns
        self._lost_ballots = 0
        self._refused_leader_since_ns: int | None = None
        # The term of a leader that was refused until a ballot was over, and that of the vote for which it was.
        self._refused_terms = (NULL_VALUE, NULL_VALUE)
        self._time_of_last_leader_ns = now_ns
        if is_node_startup:
            # The file says no more than that it voted, or asked for votes.
            members.voted_term_id = self.candidate_term_id
        self._time_of_last_state_change_ns = now_ns
        self._time_of_last_update_ns = now_ns
        self._time_of_last_commit_position_ns = now_ns
        self._enter_time(now_ns)
        host.set_election_state(self.state, "")

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.state is _S.CLOSED

    @property
    def is_term_open(self) -> bool:
        """Whether this member has applied the beginning of the leader's term: no more of that may come for long."""
        return self.log_position > self._term_base_log_position

    def close(self) -> None:
        """End replay and replication, where the member ends during an election."""
        if self._log_replay is not None:
            self._log_replay.close()
            self._log_replay = None
        if self._log_replication is not None:
            self._log_replication.close()
            self._log_replication = None

    def do_work(self, now_ns: int) -> int:
        """Take the next step; how much was done."""
        if self._truncation is not None:
            return self._truncate(now_ns)
        return _STEPS[self.state](self, now_ns)

    def handle_error(self, now_ns: int, error: BaseException) -> None:
        """Begin again after an error in a step or a handler; after equal ones, only after a pause that grows."""
        self._pause_until_ns = now_ns + self._failures.add(now_ns, error)
        # The clean-up itself pauses only where it has failed before.
        self._prepare_from_ns = self._pause_until_ns if self._preparation is _Preparation.BEGUN else now_ns
        self._host.report(error)
        self.log_position = self._host.commit_position()
        self._preparation = _Preparation.TO_BEGIN
        self._is_first_init = False
        self._truncation = None
        self._enter(_S.INIT, now_ns, str(error))
        if isinstance(error, AgentTermination):
            raise error

    # Messages of the others

    def on_canvass_position(
        self,
        log_leadership_term_id: int,
        log_position: int,
        leadership_term_id: int,
        follower_member_id: int,
        protocol_version: int,
    ) -> None:
        """A member has no leader, and says how far its log goes."""
        term_id = max(leadership_term_id, log_leadership_term_id)
        if self._is_deaf() or not self._is_term(term_id, "CanvassPosition", follower_member_id):
            return
        self._hear_of(follower_member_id)
        follower = self._members.find(follower_member_id)
        if follower is None or follower is self._this_member:
            return
        now_ns = self._host.now_ns()
        follower.set_log(log_leadership_term_id, log_position, now_ns)
        follower.set_protocol_version(protocol_version)
        if not follower.is_upstream():
            self._highest_term_id = max(self._highest_term_id, leadership_term_id)
            if leadership_term_id > self.leadership_term_id and self.state in _LEADER_STATES:
                raise ClusterEvent(
                    f"a newer term than {self.leadership_term_id}, which this member leads: member "
                    f"{follower_member_id} follows nobody of a term before {leadership_term_id}, in which it voted"
                )
        if log_leadership_term_id < self.leadership_term_id:
            if self._host.role == Role.LEADER:
                self._publish_new_leadership_term(
                    follower, log_leadership_term_id, self._quorum_position(now_ns), is_answer=True
                )
        elif log_leadership_term_id > self.leadership_term_id and self.state in _LEADER_STATES:
            raise ClusterEvent(
                f"a newer term than {self.leadership_term_id}, which this member leads: the log of member "
                f"{follower_member_id} is of term {log_leadership_term_id}"
            )

    def on_request_vote(
        self,
        log_leadership_term_id: int,
        log_position: int,
        candidate_term_id: int,
        candidate_id: int,
        protocol_version: int,
    ) -> None:
        """A member wants to lead."""
        candidate = self._members.find(candidate_id)
        if self._is_deaf() or candidate is None or candidate is self._this_member:
            return
        if not self._is_term(max(candidate_term_id, log_leadership_term_id), "RequestVote", candidate_id):
            return
        if self.state is _S.INIT and not self._is_end_known:
            return
        candidate.set_protocol_version(protocol_version)
        is_ours_better = is_better_log(
            self.log_leadership_term_id, self.append_position, log_leadership_term_id, log_position
        )
        is_newer = candidate_term_id > self.candidate_term_id
        if not is_newer:
            self._place_vote(candidate, candidate_term_id, False)
        elif is_ours_better:
            self.candidate_term_id = self._host.propose_max_candidate_term_id(candidate_term_id, log_position)
            self._place_vote(candidate, candidate_term_id, False)
            if self._host.role == Role.LEADER:
                self._publish_new_leadership_term(
                    candidate, log_leadership_term_id, self._quorum_position(self._host.now_ns()), is_answer=True
                )
        elif self.state in _VOTING_STATES or self.state is _S.INIT:
            self.candidate_term_id = self._host.propose_max_candidate_term_id(candidate_term_id, log_position)
            is_persisted = self.candidate_term_id == candidate_term_id
            if is_persisted:
                self._members.voted_term_id = candidate_term_id
            self._place_vote(candidate, candidate_term_id, is_persisted)
            if is_persisted and self.state is not _S.INIT:
                self._enter(_S.FOLLOWER_BALLOT, self._host.now_ns(), f"voted for member {candidate_id}")
        if is_newer and self.state in _LEADER_STATES:
            # As outside an election. The candidate follows no leader of a term before its own.
            raise ClusterEvent(
                f"a newer term than {self.leadership_term_id}, which this member leads: member {candidate_id} asks for "
                f"votes for term {candidate_term_id}"
            )

    def on_vote(
        self,
        candidate_term_id: int,
        log_leadership_term_id: int,
        log_position: int,
        candidate_id: int,
        voter_id: int,
        vote: bool,
    ) -> None:
        """A member has voted."""
        if (
            self.state is _S.CANDIDATE_BALLOT
            and candidate_term_id == self.candidate_term_id
            and candidate_id == self._this_member.id
        ):
            voter = self._members.find(voter_id)
            if voter is not None:
                voter.candidate_term_id = candidate_term_id
                voter.vote = _VOTE_YES if vote else _VOTE_NO
                voter.set_log(log_leadership_term_id, log_position, self._host.now_ns())

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """A member leads."""
        if (
            self.state is _S.INIT
            or not self._is_term(message.leadership_term_id, "NewLeadershipTerm", message.leader_member_id)
            or not self._is_consistent(message)
        ):
            return
        leader = self._members.find(message.leader_member_id)
        if leader is None or (leader is self._this_member and message.leadership_term_id == self.leadership_term_id):
            return
        self._hear_of(leader.id)
        leader.note_protocol_version(message.protocol_version)
        now_ns = self._host.now_ns()
        self._time_of_last_leader_ns = now_ns
        state = self.state
        if self._truncation is not None or (state in _VOTING_STATES and now_ns < self._pause_until_ns):
            return
        if state is _S.CANVASS:
            if message.leadership_term_id < self._members.voted_term_id and not self._has_refused(message):
                self._refuse_leader(leader, message)
            else:
                self._follow(leader, message)
        elif state is _S.FOLLOWER_BALLOT or state is _S.CANDIDATE_BALLOT:
            if message.leadership_term_id == self.candidate_term_id:
                self._follow(leader, message)
        elif state is _S.NOMINATE:
            # The one it voted for, whose ballot took longer than this member waited.
            if message.leadership_term_id == self.candidate_term_id and message.log_leadership_term_id in (
                self.log_leadership_term_id,
                self._last_filled_term(),
            ):
                self._follow(leader, message)
        else:
            if message.leadership_term_id < self.log_leadership_term_id:
                # Upstream's leader waits for its followers for ever, unless it hears of a newer log.
                self._host.send_canvass_position(
                    leader, self.log_leadership_term_id, self.append_position, self.leadership_term_id
                )
            self._hear_leader(leader, message.leadership_term_id, "NewLeadershipTerm")

    def on_append_position(
        self, leadership_term_id: int, log_position: int, follower_member_id: int, flags: int
    ) -> None:
        """A member that follows says how far its log goes."""
        if self.state is _S.INIT or leadership_term_id > self.leadership_term_id:
            return
        follower = self._members.find(follower_member_id)
        if follower is not None:
            follower.set_log(leadership_term_id, log_position, self._host.now_ns())
            self._host.track_catchup_completion(follower, leadership_term_id, flags)

    def on_commit_position(self, leadership_term_id: int, log_position: int, leader_member_id: int) -> None:
        """A leader says up to where its log is committed."""
        if self.state is _S.INIT or not self._is_term(leadership_term_id, "CommitPosition", leader_member_id):
            return
        if self.leader is not None and self.leader.id == leader_member_id:
            # Its term does not matter: leaders before 1.50 sent that of the term before.
            self.notified_commit_position = max(self.notified_commit_position, log_position)
        leader = self._members.find(leader_member_id)
        if leader is not None and self.state not in _VOTING_STATES:
            self._hear_leader(leader, leadership_term_id, "CommitPosition")

    def on_replay_new_leadership_term_event(
        self, leadership_term_id: int, log_position: int, term_base_log_position: int
    ) -> None:
        """A term begins in the log that is being replayed; ``log_position`` is after that event."""
        if self.state is _S.FOLLOWER_CATCHUP or self.state is _S.FOLLOWER_REPLAY:
            self._ensure_term(leadership_term_id, term_base_log_position, NULL_POSITION)
            self.log_position = log_position
            # Where the log's end is already known to be of a later term, it stays so.
            self.log_leadership_term_id = max(self.log_leadership_term_id, leadership_term_id)

    def on_recording_signal(self, correlation_id: int, recording_id: int, position: int, signal: int) -> None:
        """The archive says something of a recording."""
        if self.state is not _S.INIT and self._log_replication is not None:
            self._log_replication.on_signal(correlation_id, recording_id, position, signal)
            if self._log_replication.recording_id != NULL_VALUE:
                self._host.set_log_recording_id(self._log_replication.recording_id)

    # Before there is a leader

    def _init(self, now_ns: int) -> int:
        if self._preparation is _Preparation.TO_BEGIN:
            if now_ns < self._prepare_from_ns:
                return 0
            self.close()
            self._forget_leader()
            if self._is_first_init and self._is_node_startup:
                self._preparation = _Preparation.DONE
            else:
                self._host.set_role(Role.FOLLOWER)
                self._host.begin_preparation(self.log_position)
                self._preparation = _Preparation.BEGUN
                self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
            self._is_first_init = False
        if self._preparation is _Preparation.BEGUN:
            append_position = self._host.poll_preparation()
            if append_position is None:
                self._check_deadline(now_ns, "the recording of the log to end and its sockets to close")
                return 0
            if append_position != NULL_POSITION:
                self.append_position = append_position
                term_id = self.log_leadership_term_id
                if term_id > self._initial_leadership_term_id and self._host.base_of_term(term_id) == NULL_POSITION:
                    # A new log had no recording when this member entered that term. All that it has now is of it.
                    self._ensure_term(term_id, NULL_POSITION, NULL_POSITION)
            self._preparation = _Preparation.DONE
        self._is_end_known = True
        self.candidate_term_id = max(self._host.candidate_term_id(), self.leadership_term_id, self.candidate_term_id)
        if self._members.count() == 1:
            # Nobody to ask: nominated, and elected.
            if now_ns < self._pause_until_ns:
                return 0
            self.candidate_term_id += 1
            self._host.update_candidate_term_id(self.candidate_term_id, self.log_position)
            self._lead(now_ns, "single-node cluster leader")
        else:
            self._enter(_S.CANVASS, now_ns, "")
        return 1

    def _canvass(self, now_ns: int) -> int:
        settings = self._settings
        work_count = self._publish_canvass_position_on_interval(now_ns)
        if not self._may_lead() or now_ns < self._pause_until_ns:
            return work_count
        if self._is_extended_canvass:
            deadline_ns = self._time_of_last_state_change_ns + settings.startup_canvass_timeout_ns
        else:
            deadline_ns = self._host.time_of_last_leader_update_ns + settings.leader_heartbeat_timeout_ns
        if self._members.is_unanimous_candidate(self._graceful_closed_leader_id):
            self._nominate_self(now_ns, "unanimous candidate")
            work_count += 1
        elif now_ns >= deadline_ns and self._members.is_quorum_candidate():
            self._nominate_self(now_ns, "quorum candidate")
            work_count += 1
        return work_count

    def _nominate(self, now_ns: int) -> int:
        if now_ns < self._nomination_deadline_ns:
            return self._publish_canvass_position_on_interval(now_ns)
        proposed = max(self.candidate_term_id, self._highest_term_id) + 1
        if proposed > _LAST_TERM_ID:
            raise ClusterError(f"no term is left to ask for votes in: the node state has candidate term {proposed - 1}")
        self.candidate_term_id = self._host.propose_max_candidate_term_id(proposed, self.log_position)
        if self.candidate_term_id == proposed:
            self._members.become_candidate(proposed)
            self._enter(_S.CANDIDATE_BALLOT, now_ns, "")
        return 1

    def _candidate_ballot(self, now_ns: int) -> int:
        work_count = 0
        if self._members.is_unanimous_leader(self.candidate_term_id, self._graceful_closed_leader_id):
            self._lead(now_ns, "unanimous leader")
            work_count += 1
        elif now_ns >= self._time_of_last_state_change_ns + self._settings.election_timeout_ns:
            if self._members.is_quorum_leader(self.candidate_term_id, self._is_vetoed()):
                self._lead(now_ns, "quorum leader")
            else:
                self._lost_ballots += 1
                self._enter(_S.CANVASS, now_ns, "not elected")
            work_count += 1
        else:
            for member in self._members.members:
                if not member.is_ballot_sent:
                    work_count += 1
                    member.is_ballot_sent = self._host.request_vote(
                        member, self.log_leadership_term_id, self.append_position, self.candidate_term_id
                    )
        return work_count

    def _follower_ballot(self, now_ns: int) -> int:
        # Where not all vote, its candidate waits as long for the votes, and then for a log publication.
        limit_ns = self._settings.election_timeout_ns + self._settings.leader_heartbeat_interval_ns
        if now_ns < self._time_of_last_state_change_ns + limit_ns:
            return 0
        self._lost_ballots += 1
        self._enter(_S.CANVASS, now_ns, "no leader after the ballot")
        return 1

    def _may_lead(self) -> bool:
        appointed_leader_id = self._settings.appointed_leader_id
        return appointed_leader_id in (NULL_VALUE, self._this_member.id)

    def _is_vetoed(self) -> bool:
        """Whether one vote against a candidate counts more than a quorum of votes for it, as upstream's rule is.

        Nobody else may lead in the place of one that is appointed, and a member with a log of a newer term, which no
        quorum has, would refuse it for ever. Not beside members of upstream's: their count does not prove a quorum.
        """
        return self._settings.appointed_leader_id == NULL_VALUE or any(
            member.was_upstream for member in self._members.members
        )

    def _nominate_self(self, now_ns: int, reason: str) -> None:
        # Upstream's delay does not grow, and many candidates split the votes again and again.
        width_ns = (self._settings.election_timeout_ns >> 1) * min(1 + self._lost_ballots, _MOST_DELAYS)
        delay_ns = int(self._host.random() * width_ns)
        self._nomination_deadline_ns = now_ns + delay_ns
        self._enter(_S.NOMINATE, now_ns, reason)

    def _refuse_leader(self, leader: ClusterMember, message: NewLeadershipTerm) -> None:
        """Do not follow a leader of a term before this member's vote: the vote may have made another leader.

        A native leader begins a new election, once this member's CanvassPosition says so. Upstream's leader hears
        nothing of that, and its own members would follow it: so does this one, when that ballot must be over.
        """
        now_ns = self._host.now_ns()
        if self._refused_leader_since_ns is None:
            self._refused_leader_since_ns = now_ns
            self._host.set_election_state(
                self.state,
                f"member {leader.id} leads term {message.leadership_term_id}, before term "
                f"{self._members.voted_term_id} in which this member may have voted for another",
            )
        elif message.protocol_version == NULL_VALUE and self._is_refusing(now_ns):
            self._refused_terms = message.leadership_term_id, self._members.voted_term_id
            self._follow(leader, message)

    def _has_refused(self, message: NewLeadershipTerm) -> bool:
        """Whether it has refused a leader of upstream's for that vote: once is enough, however far the way."""
        return message.protocol_version == NULL_VALUE and self._refused_terms == (
            message.leadership_term_id,
            self._members.voted_term_id,
        )

    def _is_refusing(self, now_ns: int) -> bool:
        since_ns = self._refused_leader_since_ns
        return since_ns is not None and now_ns - since_ns >= self._settings.election_timeout_ns

    def _lead(self, now_ns: int, reason: str) -> None:
        self.leader = self._this_member
        self.log_session_id = None
        self.is_leader_startup = False
        self.leadership_term_id = self.candidate_term_id
        self._term_base_log_position = self.append_position
        self._announced_log_term_id = self.log_leadership_term_id
        # Counted for this log: since this member last led, it may have lost what was counted then.
        self._upstream_commit_position = 0
        self._enter(_S.LEADER_LOG_REPLICATION, now_ns, reason)
        self._host.begin_log_publication(self.append_position)

    # As leader

    def _leader_log_replication(self, now_ns: int) -> int:
        if self.log_session_id is None:
            self.log_session_id = self._host.poll_log_publication()
            if self.log_session_id is None:
                self._check_deadline(
                    now_ns, f"the driver to add the log publication, from {self._this_member.log_endpoint}"
                )
                return 0
            self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
            # Before anybody hears of it: a follower's log is of this term as soon as it is in its recording log, and
            # then it votes for none of a term before, which this member's would be after a crash.
            self._record_own_term()
        quorum_position = self._quorum_position(now_ns)
        work_count = self._publish_as_leader(quorum_position, now_ns)
        if quorum_position >= self.append_position:
            self._enter(_S.LEADER_REPLAY, now_ns, "")
            work_count += 1
        else:
            self._check_followers(now_ns)
        return work_count

    def _leader_replay(self, now_ns: int) -> int:
        work_count = 0
        if self._log_replay is None:
            self.is_leader_startup = self._is_node_startup
            if self.log_position < self.append_position:
                self._log_replay = self._host.new_log_replay(self.log_position, self.append_position)
            else:
                self._enter(_S.LEADER_INIT, now_ns, "nothing to replay")
            work_count += 1
        else:
            progress = self._log_replay.do_work()
            work_count += progress
            if progress or self._host.is_taking_snapshot():
                self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
            if self._log_replay.is_done():
                self._stop_replay()
                self.log_position = self.append_position
                self._enter(_S.LEADER_INIT, now_ns, "log replay done")
            elif self._members.count() > 1:
                # The others wait for this member, which says that it leads: other members' services may continue. A
                # snapshot that is in the log may take long, on all of them.
                self._check_deadline(now_ns, "services and archive to continue the replay of the log")
        return work_count + self._publish_as_leader(self._quorum_position(now_ns), now_ns)

    def _leader_init(self, now_ns: int) -> int:
        work_count = self._publish_as_leader(self._quorum_position(now_ns), now_ns)
        if not self._is_join_begun:
            assert self.log_session_id is not None
            self._host.begin_join_as_leader(
                self.leadership_term_id, self.log_position, self.log_session_id, self.is_leader_startup
            )
            self._is_join_begun = True
            self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
            work_count += 1
        if self._host.poll_join_as_leader():
            # Again: a new log has no recording before this.
            self._record_own_term()
            self._enter(_S.LEADER_READY, now_ns, "")
            work_count += 1
        elif self._members.count() > 1:
            self._check_deadline(now_ns, "the recording of the log to begin and the services to join it as leader")
        return work_count

    def _leader_ready(self, now_ns: int) -> int:
        quorum_position = self._quorum_position(now_ns)
        work_count = self._host.update_leader_position(now_ns, quorum_position)
        work_count += self._publish_new_leadership_term_on_interval(quorum_position, now_ns)
        self._check_followers(now_ns)
        is_ready = self._members.has_quorum_at_position(
            self.leadership_term_id, self.log_position, now_ns, self._settings.leader_heartbeat_timeout_ns
        )
        if is_ready and self._host.append_new_leadership_term_event(self.leadership_term_id, self.log_position):
            self._complete(now_ns)
            work_count += 1
        return work_count

    def _quorum_position(self, now_ns: int) -> int:
        """Up to where a quorum of members has this leader's log, and this member too.

        Positions that native members reported before this leader's term count only once a quorum reports in this term.
        """
        return self._count_position(now_ns, is_strict=self.state is _S.LEADER_LOG_REPLICATION)

    def _count_position(self, now_ns: int, *, is_strict: bool) -> int:
        self._this_member.set_log(self.leadership_term_id, self.append_position, now_ns)
        position = self._members.quorum_position(
            self.leadership_term_id,
            self._host.end_of_term,
            now_ns,
            self._settings.leader_heartbeat_timeout_ns,
            is_strict,
        )
        return min(position, self.append_position)

    def _check_followers(self, now_ns: int) -> None:
        """Stand back after a heartbeat timeout with no quorum of members that say anything in this term.

        Upstream's say nothing while they replay, however long that takes, and a leader of upstream's waits for them.
        """
        timeout_ns = self._settings.leader_heartbeat_timeout_ns
        term_id = self.leadership_term_id
        following = [
            member
            for member in self._members.members
            if member.is_upstream() or (member.leadership_term_id == term_id and member.is_active(now_ns, timeout_ns))
        ]
        if len(following) >= self._members.threshold:
            self._deadline_ns = now_ns + timeout_ns
        elif self._members.count() > 1:
            self._check_deadline(now_ns, f"a quorum of members to follow in term {self.leadership_term_id}")

    def _publish_as_leader(self, quorum_position: int, now_ns: int) -> int:
        work_count = self._publish_new_leadership_term_on_interval(quorum_position, now_ns)
        # Where the quorum position falls, NewLeadershipTerm alone is the heartbeat.
        last = self._last_published_commit_position
        if last < quorum_position or (
            last == quorum_position
            and now_ns - self._time_of_last_commit_position_ns >= self._settings.leader_heartbeat_interval_ns
        ):
            self._time_of_last_commit_position_ns = now_ns
            self._last_published_commit_position = quorum_position
            self._host.publish_commit_position(quorum_position, self.leadership_term_id)
            work_count += 1
        return work_count

    def _publish_new_leadership_term_on_interval(self, quorum_position: int, now_ns: int) -> int:
        if now_ns - self._time_of_last_update_ns < self._settings.leader_heartbeat_interval_ns:
            return 0
        self._time_of_last_update_ns = now_ns
        is_replicating = self.state is _S.LEADER_LOG_REPLICATION
        log_term_id = self._announced_log_term_id if is_replicating else self.log_leadership_term_id
        for member in self._members.members:
            # A member of unknown version announces it in its next canvass.
            if member is not self._this_member and member.protocol_version != NULL_VALUE:
                self._publish_new_leadership_term(member, log_term_id, quorum_position, is_answer=False)
        return 1

    def _publish_new_leadership_term(
        self, member: ClusterMember, log_leadership_term_id: int, quorum_position: int, *, is_answer: bool
    ) -> None:
        if self.log_session_id is not None:
            if member.is_upstream():
                # Its own leaders count as here: what members said in another term as well. With 0 it would wait for
                # this member for ever, unless it asks and has something to copy or to take back first. Only in an
                # answer: what comes at intervals may wait for it until it has done that.
                self._upstream_commit_position = max(
                    self._upstream_commit_position,
                    self.log_position,
                    self._count_position(self._host.now_ns(), is_strict=False),
                )
                quorum_position = max(quorum_position, self._upstream_commit_position)
                if (
                    quorum_position == 0
                    and self.append_position > 0
                    and not (
                        is_answer
                        and self._is_different(member, log_leadership_term_id)
                        # A second answer may find it with another log.
                        and member.is_first_answer(self._host.now_ns(), self._settings.leader_heartbeat_timeout_ns)
                    )
                ):
                    return
            self._host.publish_new_leadership_term(
                member,
                log_leadership_term_id,
                self.leadership_term_id,
                self.append_position,
                quorum_position,
                self.log_session_id,
                self.is_leader_startup,
            )

    def _is_different(self, member: ClusterMember, log_leadership_term_id: int) -> bool:
        """Whether a member whose log is of that term has to copy or to take back something before it follows."""
        next_base = self._host.base_after_term(log_leadership_term_id)
        return member.log_position > NULL_POSITION and (
            member.log_position != self.append_position or NULL_POSITION < next_base < self.append_position
        )

    # As follower

    def _follow(self, leader: ClusterMember, message: NewLeadershipTerm) -> None:
        """Go after a leader's log, from where this member's differs."""
        now_ns = self._host.now_ns()
        next_base = message.next_term_base_log_position
        last_term = self.log_leadership_term_id
        is_of_own_term = message.log_leadership_term_id == last_term
        if (
            message.protocol_version != NULL_VALUE
            and message.leadership_term_id >= last_term
            and self._is_last_term_empty()
        ):
            if not self._is_log_up_to_empty_terms_known(leader, message, now_ns):
                return
        elif not is_of_own_term and not self._is_answer_before_own_term(message):
            self._enter(_S.CANVASS, now_ns, "the leader does not know the term of this member's log yet")
            return
        if (
            message.protocol_version == NULL_VALUE
            and next_base > self.append_position
            and message.leadership_term_id > self.log_leadership_term_id
            and self._is_last_term_empty()
            and not self._is_left_out()
        ):
            # Nothing of this member's last term is here, and upstream's leader does not say whether that is in its log,
            # or is one of those that its recording log leaves out. It says where it begins there when asked before it.
            # Several such terms are dropped at once where it says so of the first of them.
            if is_of_own_term:
                for term_id in dict.fromkeys((self._first_empty_term(), last_term)):
                    self._host.send_canvass_position(leader, term_id - 1, self.append_position, self.leadership_term_id)
            else:
                self._drop_empty_terms(message.next_leadership_term_id, now_ns)
            return
        if (
            message.protocol_version == NULL_VALUE
            and not is_of_own_term
            and message.next_leadership_term_id != last_term
        ):
            # The first empty term is in its log: those behind it are not, where it goes further than this member's log.
            if message.next_log_position > self.append_position:
                self._drop_empty_terms(message.next_leadership_term_id + 1, now_ns)
            return
        is_dropped = is_of_own_term and message.next_leadership_term_id == last_term < message.leadership_term_id
        if is_dropped and next_base != NULL_POSITION:
            # The leader of this member's last term was cut off, and another continued the log before that term.
            base = self._host.base_of_term(last_term)
            if NULL_POSITION < base < self.append_position:
                self._begin_truncation(leader, message, base, now_ns)
            else:
                self._drop_empty_terms(last_term, now_ns)
            return
        # A leader in its election names its own term as the next one even where it is the addressee's. A member that
        # has recorded something of that term then hears of it late, and must not lose it.
        is_next = message.next_leadership_term_id > message.log_leadership_term_id
        if is_next and next_base != NULL_POSITION and next_base < self.append_position:
            self._begin_truncation(leader, message, next_base, now_ns)
            return
        self.leader = leader
        self._is_leader_upstream = message.protocol_version == NULL_VALUE
        self.is_leader_startup = message.is_startup
        self.leadership_term_id = message.leadership_term_id
        self.candidate_term_id = max(message.leadership_term_id, self.candidate_term_id)
        self.log_session_id = message.log_session_id
        self._term_base_log_position = message.term_base_log_position
        self._leader_recording_id = message.leader_recording_id
        self._catchup_join_position = (
            message.log_position if self.append_position < message.log_position else NULL_POSITION
        )
        self.notified_commit_position = max(self.notified_commit_position, message.commit_position)
        if self.append_position >= message.term_base_log_position:
            self._enter(_S.FOLLOWER_REPLAY, now_ns, "")
        elif message.next_leadership_term_id == NULL_VALUE and message.leadership_term_id == last_term:
            # A backup's copy names this term, and ends before it. It may also have been cut short here.
            self._replicate(last_term, NULL_POSITION, message.term_base_log_position, now_ns)
        elif message.next_leadership_term_id == NULL_VALUE:
            raise ClusterError(
                f"invalid NewLeadershipTerm: this member has recorded up to {self.append_position}, before the base of "
                f"the term, and nothing says what comes between: {message}"
            )
        elif self.append_position < next_base:
            # The term is open and its base is known.
            self._replicate(message.log_leadership_term_id, NULL_POSITION, next_base, now_ns)
        elif message.next_log_position != NULL_POSITION:
            self._replicate(message.next_leadership_term_id, next_base, message.next_log_position, now_ns)

    def _is_answer_before_own_term(self, message: NewLeadershipTerm) -> bool:
        """Whether one of upstream's says where the first or last term begins that nothing is recorded of."""
        return (
            message.protocol_version == NULL_VALUE
            and message.log_leadership_term_id + 1 == message.next_leadership_term_id
            and self._is_last_term_empty()
            and not self._is_left_out()
            and message.next_leadership_term_id in (self.log_leadership_term_id, self._first_empty_term())
        )

    def _is_last_term_empty(self) -> bool:
        """Whether nothing is recorded of the last term in the recording log."""
        return self._host.base_of_term(self.log_leadership_term_id) == self.append_position

    def _is_left_out(self) -> bool:
        """Whether nothing says of which term the end of the log is: a backup leaves terms out, before its last ones.

        That copies only what is committed, and its last term's leader had all of it.
        """
        return self._host.is_left_out(self.log_leadership_term_id)

    def _last_filled_term(self) -> int:
        """The last term that something is recorded of, -1 where none says what is recorded."""
        return (
            self._host.last_filled_term(self.log_leadership_term_id)
            if self._is_last_term_empty()
            else self.log_leadership_term_id
        )

    def _is_log_up_to_empty_terms_known(self, leader: ClusterMember, message: NewLeadershipTerm, now_ns: int) -> bool:
        """Whether a native leader has said that its log has all of this member's, which ends with empty terms.

        This member may have entered those unheard, or their leader's log may have another begin. So the last term that
        something is recorded of says where the logs differ: where the message is of another one, this asks for it.

        An empty term is dropped only where the leader's log does not have it there. Then it has committed nothing.

        Where a backup left out the terms before, a leader that has something of the last one has all of this log. One
        that has not may have it, and is asked as ever; but nothing is taken back at its word.
        """
        term_id, last_term = self._last_filled_term(), self.log_leadership_term_id
        next_term_id, next_base = message.next_leadership_term_id, message.next_term_base_log_position
        if self._is_left_out():
            if message.log_leadership_term_id == last_term and (
                next_term_id != last_term or message.leadership_term_id == last_term
            ):
                return True
            if message.log_leadership_term_id not in (last_term, term_id):
                term_id = last_term
            elif message.log_leadership_term_id == term_id and (
                next_term_id == term_id or next_base < self.append_position
            ):
                term_id = NULL_VALUE
        if term_id == NULL_VALUE and self.append_position > 0:
            raise ClusterError(
                f"the recording log has no term for the log before {self.append_position}, where term "
                f"{self.log_leadership_term_id} begins: empty this member's directory, or restore a backup"
            )
        if message.log_leadership_term_id != term_id:
            self._host.send_canvass_position(leader, term_id, self.append_position, self.leadership_term_id)
            return False
        if next_term_id == term_id > NULL_VALUE:
            self._begin_truncation(leader, message, self._host.base_of_term(term_id), now_ns)
        elif next_base > self.append_position:
            self._drop_empty_terms(term_id + 1, now_ns)
        elif next_base == self.append_position and next_term_id < self.log_leadership_term_id:
            self._drop_empty_terms(next_term_id + 1, now_ns)
        else:
            return True
        return False

    def _first_empty_term(self) -> int:
        """The first of the terms at the end of the recording log that begin where this member's log ends."""
        return self._host.first_empty_term(self.log_leadership_term_id)

    def _drop_empty_terms(self, first: int, now_ns: int) -> None:
        if self.log_leadership_term_id >= first:
            self.log_leadership_term_id = self._host.drop_empty_terms(first)
        self._this_member.set_log(self.log_leadership_term_id, self.append_position, now_ns)

    def _replicate(self, leadership_term_id: int, base_position: int, stop_position: int, now_ns: int) -> None:
        self._replication_leadership_term_id = leadership_term_id
        self._replication_term_base_log_position = base_position
        self._replication_stop_position = stop_position
        self._enter(_S.FOLLOWER_LOG_REPLICATION, now_ns, "")

    def _begin_truncation(self, leader: ClusterMember, message: NewLeadershipTerm, position: int, now_ns: int) -> None:
        commit_position = self._host.commit_position()
        difference = (
            f"this member has recorded up to {self.append_position}, and term {self.log_leadership_term_id} ends at "
            f"{position} in the log of member {leader.id}, which leads term {message.leadership_term_id}; committed is "
            f"{commit_position}"
        )
        if position < commit_position and not any(member.was_upstream for member in self._members.members):
            raise ClusterError(
                f"the log is not truncated: {difference}. No native members take back what was committed, unless most "
                "of them have lost their disks, or somebody else speaks in their name: stop all, and start from the "
                "member with the longest log, or from a backup"
            )
        text = f"truncating the log: {difference}"
        self._truncation = (position, text)
        self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
        self._host.begin_truncation(self.log_leadership_term_id, position)
        # Nobody may count on what goes.
        self.append_position = position

    def _truncate(self, now_ns: int) -> int:
        assert self._truncation is not None
        position, text = self._truncation
        if not self._host.poll_truncation():
            self._check_deadline(now_ns, "services to join a replay, or the archive to truncate the log")
            return 0
        self._truncation = None
        if position < self.log_position:
            raise AgentTermination(
                f"{text}, and {self.log_position} applied: the services' state has what the log has lost, so they have "
                "to start again",
                category=Category.FATAL,
            )
        raise ClusterEvent(text)

    def _follower_log_replication(self, now_ns: int) -> int:
        assert self.leader is not None
        replication = self._log_replication
        if replication is None:
            if self.append_position < self._replication_stop_position:
                if self._replication_term_base_log_position != NULL_POSITION:
                    # Before anything of it is copied: after a crash that would be of the term before.
                    self._record_replicated_term(NULL_POSITION)
                self._log_replication = self._host.new_log_replication(
                    self.leader, self._leader_recording_id, self._replication_stop_position, now_ns
                )
                self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
            else:
                self._record_replicated_term(self._replication_stop_position)
                self._enter(_S.CANVASS, now_ns, "an empty term")
            return 1
        work_count = replication.do_work(now_ns)
        is_done = replication.is_done
        # Where the leader's term begins is said only once this member has recorded that it does.
        position = replication.position
        if not is_done and position >= self._term_base_log_position:
            position = self.append_position
        if not is_done:
            return work_count + self._say_append_position(max(position, self.append_position), now_ns)
        if position < self._replication_stop_position:
            raise ClusterError(
                f"the replication of the log from member {self.leader.id} has ended at {position}, before "
                f"{self._replication_stop_position}"
            )
        self.append_position = position
        self._record_replicated_term(self._replication_stop_position)
        self._stop_replication()
        self._enter(_S.CANVASS, now_ns, "log replication done")
        return work_count + 1

    def _follower_replay(self, now_ns: int) -> int:
        if self._log_replay is not None:
            work_count = self._log_replay.do_work()
            # It may take long, and the leader waits for a sign.
            work_count += self._say_append_position(self.append_position, now_ns)
            if self._log_replay.is_done():
                self.log_position = self._log_replay.position()
                self._stop_replay()
                if self.log_position == self.append_position:
                    self._join_log(now_ns, "log replay done")
                else:
                    self._enter(_S.CANVASS, now_ns, f"replayed up to {self.log_position} of {self.append_position}")
            return work_count
        commit_position = self.notified_commit_position
        if self.log_position >= self.append_position:
            self._join_log(now_ns, "nothing to replay")
        elif commit_position == 0 or commit_position < min(self.append_position, self._term_base_log_position):
            # Until a quorum has what is before the leader's term, that may still be taken back.
            self._check_deadline(now_ns, "the leader to commit the log before its term")
            return self._say_append_position(self.append_position, now_ns)
        elif self.log_position >= commit_position:
            self._enter(_S.CANVASS, now_ns, f"nothing committed to replay from {self.log_position}: {commit_position}")
        else:
            self._log_replay = self._host.new_log_replay(self.log_position, min(self.append_position, commit_position))
        return 1

    def _join_log(self, now_ns: int, reason: str) -> None:
        is_behind = self._catchup_join_position != NULL_POSITION
        self._enter(_S.FOLLOWER_CATCHUP_INIT if is_behind else _S.FOLLOWER_LOG_INIT, now_ns, reason)

    def _follower_catchup_init(self, now_ns: int) -> int:
        assert self.leader is not None
        if not self._has_log_subscription:
            self._add_log_subscription(is_catchup=True)
        if self._host.send_catchup_position(self.leader, self.leadership_term_id, self.log_position):
            self._enter(_S.FOLLOWER_CATCHUP_AWAIT, now_ns, "")
        else:
            self._check_since_state_change(now_ns, "CatchupPosition to be sent")
        return 1

    def _follower_catchup_await(self, now_ns: int) -> int:
        assert self.leader is not None
        if not self._poll_join_as_follower(now_ns, f"the log to catch up with, from member {self.leader.id}"):
            # The leader counts who has spoken lately, however long the services take.
            return self._say_append_position(self.append_position, now_ns) if self._is_join_begun else 0
        self._enter(_S.FOLLOWER_CATCHUP, now_ns, "")
        return 1

    def _follower_catchup(self, now_ns: int) -> int:
        assert self.leader is not None
        host = self._host
        work_count = host.poll_catchup(self.leader, self.leadership_term_id, self.notified_commit_position)
        if not self._has_live_destination and host.is_catchup_near_live(
            max(self._catchup_join_position, self.notified_commit_position)
        ):
            host.add_live_log_destination()
            self._has_live_destination = True
            work_count += 1
        position = host.commit_position()
        if (
            position >= self._catchup_join_position
            and position >= self.notified_commit_position
            and not host.is_catching_up()
            and not host.is_taking_snapshot()
        ):
            self.append_position = position
            self.log_position = position
            self._enter(_S.FOLLOWER_LOG_INIT, now_ns, "caught up")
            work_count += 1
        return work_count

    def _follower_log_init(self, now_ns: int) -> int:
        if self._has_log_subscription:
            self._enter(_S.FOLLOWER_READY, now_ns, "")
        else:
            self._add_log_subscription(is_catchup=False)
            self._enter(_S.FOLLOWER_LOG_AWAIT, now_ns, "")
        return 1

    def _follower_log_await(self, now_ns: int) -> int:
        if self._poll_join_as_follower(now_ns, "the live log"):
            self._enter(_S.FOLLOWER_READY, now_ns, "")
            return 1
        if not self._is_join_begun:
            return 0
        # The leader waits for what is recorded here and not for the services: without that it may have no quorum for as
        # long as they take.
        position = self.append_position
        if self._records_early() and self._host.recorded_position() > position:
            position = self._host.recorded_position()
            if not self._has_recorded_live_log:
                self._record_own_term()  # again: a new log had no recording before
                self._has_recorded_live_log = True
        return self._say_append_position(position, now_ns)

    def _follower_ready(self, now_ns: int) -> int:
        assert self.leader is not None
        if self._host.send_append_position(
            self.leader, self.leadership_term_id, self.append_position, APPEND_POSITION_FLAG_NONE
        ):
            self._complete(now_ns)
        else:
            self._check_since_state_change(now_ns, f"AppendPosition to be sent to member {self.leader.id}")
        return 1

    def _add_log_subscription(self, *, is_catchup: bool) -> None:
        assert self.log_session_id is not None
        self._host.add_log_subscription(self.log_session_id, is_catchup)
        self._has_log_subscription = True
        self._has_live_destination = not is_catchup

    def _poll_join_as_follower(self, now_ns: int, what: str) -> bool:
        """Whether image, recording and services have joined the log at this member's position."""
        if not self._is_join_begun:
            join_position = self._host.log_join_position()
            if join_position is None:
                self._check_since_state_change(now_ns, f"an image of {what}")
                return False
            if join_position != self.log_position:
                raise ClusterEvent(
                    f"the image of {what} joined at {join_position}, and this member's log continues at "
                    f"{self.log_position}"
                )
            if self._records_early():
                # Else, after a crash, what is recorded of this term would count as the continuation of the one before.
                self._record_own_term()
            self._host.begin_join_as_follower(self.is_leader_startup)
            self._is_join_begun = True
            self._is_end_known = False
            self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
        if self._host.poll_join_as_follower():
            # Before anything of the term counts that is recorded now. A new log has no recording before this.
            self._record_own_term()
            return True
        # A service may take its time, but only while there is a leader.
        self._check_deadline(now_ns, f"a sign of the leader, or recording and services to join {what}")
        return False

    def _say_append_position(self, position: int, now_ns: int) -> int:
        """Send AppendPosition where it has grown, or is due."""
        assert self.leader is not None
        if (
            position == self._last_published_append_position
            and now_ns - self._time_of_last_update_ns < self._settings.leader_heartbeat_interval_ns
        ):
            return 0
        is_of_term = position >= self._term_base_log_position
        if is_of_term and self.log_leadership_term_id != self.leadership_term_id and self._records_early():
            self._record_own_term()
        if not self._host.send_append_position(
            self.leader, self.leadership_term_id, position, APPEND_POSITION_FLAG_NONE
        ):
            return 0
        self.append_position = position
        self._last_published_append_position = position
        self._time_of_last_update_ns = now_ns
        return 1

    def _records_early(self) -> bool:
        """Whether it records the leader's term before it says its log in it.

        Not that of an appointed leader of upstream's: that records it later, nobody else may lead, and after a crash it
        would get no vote of this member for a log of the term before.
        """
        return not self._is_leader_upstream or self._settings.appointed_leader_id == NULL_VALUE

    # Shared by all states

    def _is_deaf(self) -> bool:
        """Whether it has not begun: what a member hears while it prepares or pauses, it answers."""
        return self._preparation is _Preparation.TO_BEGIN

    def _is_term(self, term_id: int, message: str, member_id: int) -> bool:
        """Whether a term is within reach; one that is not is reported.

        This member goes towards one that another names again: that one's disk may say that it voted in it.
        """
        error = unreachable(term_id, self.candidate_term_id, message, member_id)
        if error is None:
            return True
        self._host.report(error)
        member = self._members.find(member_id)
        if member is not None and member is not self._this_member and member.names_far_term_again(term_id):
            self.candidate_term_id = self._host.propose_max_candidate_term_id(
                self.candidate_term_id + MOST_TERMS_AHEAD, self.log_position
            )
        return False

    def _is_consistent(self, message: NewLeadershipTerm) -> bool:
        """Whether no term in a leader's log is beyond its own; a message that says so is reported.

        A member that copied that term would record it, and each one before it.
        """
        is_consistent = message.next_leadership_term_id <= message.leadership_term_id
        if not is_consistent:
            self._host.report(
                ClusterError(
                    f"NewLeadershipTerm of member {message.leader_member_id} is ignored: it leads term "
                    f"{message.leadership_term_id}, and has term {message.next_leadership_term_id} in its log"
                )
            )
        return is_consistent

    def _hear_of(self, member_id: int) -> None:
        if member_id == self._graceful_closed_leader_id:
            self._graceful_closed_leader_id = NULL_VALUE

    def _hear_leader(self, leader: ClusterMember, leadership_term_id: int, message: str) -> None:
        """Stay with the leader that is followed, and begin again where there is one of a newer term."""
        if leadership_term_id > self.leadership_term_id and leader is not self._this_member:
            if self.state is not _S.CLOSED:
                raise ClusterEvent(
                    f"a newer term than {self.leadership_term_id}, in which this member is in {self.state.name}: "
                    f"{message} of member {leader.id} for term {leadership_term_id}"
                )
        elif leader is self.leader and leader is not self._this_member:
            self._deadline_ns = self._host.now_ns() + self._settings.leader_heartbeat_timeout_ns

    def _record_own_term(self) -> None:
        """Record the term that is formed or followed. This member's log is the leader's up to where it begins."""
        self._ensure_term(self.leadership_term_id, self._term_base_log_position, NULL_POSITION)
        self.log_leadership_term_id = self.leadership_term_id

    def _record_replicated_term(self, end_position: int) -> None:
        if self._replication_leadership_term_id == self.leadership_term_id:
            end_position = NULL_POSITION  # the leader still leads it
        self._ensure_term(self._replication_leadership_term_id, self._replication_term_base_log_position, end_position)
        self.log_leadership_term_id = self._replication_leadership_term_id

    def _ensure_term(self, leadership_term_id: int, base_position: int, log_position: int) -> None:
        if leadership_term_id == NULL_VALUE:
            return  # what was copied before the first term; the next one takes it
        self._host.ensure_term(
            self._initial_leadership_term_id,
            self._initial_term_base_log_position,
            leadership_term_id,
            self._initial_term_base_log_position if base_position == NULL_POSITION else base_position,
            log_position,
        )

    def _place_vote(self, candidate: ClusterMember, candidate_term_id: int, vote: bool) -> None:
        self._host.place_vote(candidate, candidate_term_id, self.log_leadership_term_id, self.append_position, vote)

    def _publish_canvass_position_on_interval(self, now_ns: int) -> int:
        if now_ns - self._time_of_last_update_ns < self._settings.election_status_interval_ns:
            return 0
        self._time_of_last_update_ns = now_ns
        # Where others have no leader either, or it must be refused, they have to get beyond this member's votes.
        is_lost = now_ns - self._time_of_last_leader_ns >= self._settings.election_timeout_ns and any(
            member.protocol_version != NULL_VALUE for member in self._members.members
        )
        term_id = self.candidate_term_id if is_lost or self._is_refusing(now_ns) else self.leadership_term_id
        self._host.publish_canvass_position(self.log_leadership_term_id, self.append_position, term_id)
        return 1

    def _check_deadline(self, now_ns: int, awaited: str) -> None:
        if now_ns >= self._deadline_ns:
            raise TimedOutError(f"{self.state.name}: waited too long for {awaited}", category=Category.WARN)

    def _check_since_state_change(self, now_ns: int, awaited: str) -> None:
        if now_ns >= self._time_of_last_state_change_ns + self._settings.leader_heartbeat_timeout_ns:
            raise TimedOutError(f"{self.state.name}: waited too long for {awaited}", category=Category.WARN)

    def _complete(self, now_ns: int) -> None:
        self._host.election_complete(now_ns)
        self._failures.end(now_ns)
        self._enter(_S.CLOSED, now_ns, "")

    def _stop_replay(self) -> None:
        if self._log_replay is not None:
            self._log_replay.close()
            self._log_replay = None

    def _stop_replication(self) -> None:
        if self._log_replication is not None:
            self._log_replication.close()
            self._log_replication = None

    def _forget_leader(self) -> None:
        """Forget what an attempt has come to; the host undoes its side in the preparation."""
        self.leader = None
        self.log_session_id = None
        self._catchup_join_position = NULL_POSITION
        self._has_log_subscription = self._has_live_destination = False
        self._is_join_begun = self._has_recorded_live_log = False
        self._last_published_append_position = NULL_POSITION
        self._last_published_commit_position = 0

    def _enter(self, state: ElectionState, now_ns: int, reason: str) -> None:
        if state is self.state:
            if reason and state is _S.INIT:
                self._host.set_election_state(state, reason)
            return
        if self.state is _S.CANVASS:
            self._is_extended_canvass = False
        if state is _S.CANVASS:
            self._members.reset()
            self._this_member.set_log(self.log_leadership_term_id, self.append_position, now_ns)
            self.leader = None
            # It was for that leader's log: another log's entries there may not be committed.
            self.notified_commit_position = 0
            self._host.set_role(Role.FOLLOWER)
        elif state is _S.CANDIDATE_BALLOT:
            self._host.set_role(Role.CANDIDATE)
        elif state is _S.LEADER_LOG_REPLICATION:
            self._host.set_role(Role.LEADER)
        elif state is _S.FOLLOWER_LOG_REPLICATION or state is _S.FOLLOWER_REPLAY:
            self._host.set_role(Role.FOLLOWER)
        self.state = state
        self._host.set_election_state(state, reason)
        self._enter_time(now_ns)

    def _enter_time(self, now_ns: int) -> None:
        self._time_of_last_state_change_ns = now_ns
        # Periodic messages are sent immediately.
        self._time_of_last_update_ns = now_ns - _LONG_AGO_NS
        self._time_of_last_commit_position_ns = now_ns - _LONG_AGO_NS
        self._deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
        self._refused_leader_since_ns = None

    def __repr__(self) -> str:
        leader_id = None if self.leader is None else self.leader.id
        return (
            f"<Election of member {self._this_member.id} {self.state.name} leader={leader_id} "
            f"leadership_term_id={self.leadership_term_id} candidate_term_id={self.candidate_term_id} "
            f"log_leadership_term_id={self.log_leadership_term_id} log_position={self.log_position} "
            f"append_position={self.append_position} notified_commit_position={self.notified_commit_position}>"
        )


_STEPS = (
    Election._init,
    Election._canvass,
    Election._nominate,
    Election._candidate_ballot,
    Election._follower_ballot,
    Election._leader_log_replication,
    Election._leader_replay,
    Election._leader_init,
    Election._leader_ready,
    Election._follower_log_replication,
    Election._follower_replay,
    Election._follower_catchup_init,
    Election._follower_catchup_await,
    Election._follower_catchup,
    Election._follower_log_init,
    Election._follower_log_await,
    Election._follower_ready,
    lambda _election, _now_ns: 0,
)
