"""Upstream's election, said again rule by rule (1.51.0, Election.java), as a peer for election.py in the model.

It is our own statement of what upstream does, its faults among it, over the same host as ours. Where upstream waits in
a step, the member is blocked: it takes no turn and reads no message until what it waits for is there.

The rules have marks, which the tables and findings name:

J1   Nothing is heard in INIT. An error of a step or a handler leads there, and at once out of it again.
J2   A preparation, a new log publication, and a join of the services block the member.
J3   CANVASS: says its position on an interval; nominates itself with all members' positions and no better log, or after
     the deadline with those of a quorum. Entering it forgets what members said.
J4   NOMINATE: a random delay, then the next candidate term, persisted.
J5   CANDIDATE_BALLOT: leads with all votes, or at the time-out with a quorum of them and no refusal.
J6   A vote is yes for a newer candidate term and a log that is not worse; it counts whatever was persisted.
J7   LEADER_LOG_REPLICATION: until a quorum position is at its own end. Members count by position and activity alone,
     whatever term their log is of, and whatever they said it in. There is no time-out.
J8   NewLeadershipTerm and CommitPosition carry that position from the first one on.
J9   The leader's term comes into its recording log in LEADER_INIT, and a follower's when it has joined the log.
J10  LEADER_READY: until a quorum has spoken in the term. There is no time-out.
J11  In CANVASS a member follows any leader whose log has its own log's term, also of an older term than its vote; in a
     ballot only one of its candidate term.
J12  Where the next term begins before its own end it truncates, also for the term that it has.
J13  What lies between its end and the term is copied, term by term, and then counts once it is committed.
J14  FOLLOWER_REPLAY: with commit position 0 it says its position and waits, for ever. Else it replays up to that
     position, whatever part of its log that is; less than its log leads back to CANVASS.
J15  CommitPosition of the leader raises the commit position, whatever its term. One of a newer term ends LEADER_READY,
     and nothing else does; a CanvassPosition of a newer log term ends LEADER_LOG_REPLICATION as well.
J16  A replayed term event makes the log's term that event's, also where it is older.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from container.api import Role
from container.consensus.cluster_member import ClusterMember, ClusterMembers
from container.consensus.election_host import ElectionState, LogReplay, LogReplication, NewLeadershipTerm
from container.errors import ClusterError, ClusterEvent, TimedOutError

if TYPE_CHECKING:
    from tests.elections.world import Member

_S = ElectionState
_BALLOTS = (_S.FOLLOWER_BALLOT, _S.CANDIDATE_BALLOT)
_VOTING = (_S.CANVASS, _S.NOMINATE, *_BALLOTS)
_NEVER_NS = -(1 << 60)
JAVA_PROTOCOL_VERSION = 1 << 16


def has_active_quorum(members: ClusterMembers, now_ns: int, timeout_ns: int) -> bool:
    """Whether a leader of upstream's continues: a canvass has made it forget what members said, and not when."""
    spoken = [now_ns < member.time_of_last_append_position_ns + timeout_ns for member in members.members]
    return sum(spoken) >= members.threshold


class JavaElection:
    """One election of a member of upstream's; the arguments are those of :class:`Election`."""

    def __init__(
        self,
        host: Member,
        *,
        is_node_startup: bool,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        append_position: int,
    ) -> None:
        self._host, self._settings, self._members = host, host.cluster.settings, host.members
        self._me = self._members.this_member
        self._is_node_startup = self._is_extended_canvass = is_node_startup
        self._initial = (leadership_term_id, term_base_log_position)
        self.leader: ClusterMember | None = None
        self.log_session_id: int | None = None
        self.leadership_term_id = self.log_leadership_term_id = self.candidate_term_id = leadership_term_id
        self.log_position, self.append_position = log_position, append_position
        self.notified_commit_position = 0
        self.is_leader_startup = False
        self.state = _S.INIT
        self._is_first_init = True
        self._catchup_join_position = -1
        self._leader_recording_id = -1
        self._replication = (-1, -1, -1)  # term, base, stop
        self._replication_deadline_ns = _NEVER_NS
        self._replay: LogReplay | None = None
        self._copy: LogReplication | None = None
        self._has_subscription = self._is_join_begun = self._has_live_destination = False
        self._last_append_said, self._last_commit_said = 0, 0
        self._nomination_deadline_ns = 0
        self._state_since_ns = host.now_ns()
        self._said_ns = self._commit_said_ns = _NEVER_NS
        self._blocked: Callable[[], bool] | None = None
        self._then: Callable[[int], None] | None = None
        host.set_election_state(self.state, "")

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.state is _S.CLOSED

    @property
    def is_blocked(self) -> bool:
        """Whether the member waits within a step."""
        return self._blocked is not None

    def do_work(self, now_ns: int) -> int:
        """Take the next step."""
        if self._blocked is not None:
            if self._blocked():
                then, self._blocked, self._then = self._then, None, None
                assert then is not None
                then(now_ns)
            return 1
        _STEPS[self.state](self, now_ns)
        return 1

    def handle_error(self, now_ns: int, error: BaseException) -> None:
        """J1."""
        self._host.report(error)
        self._blocked = self._then = None
        self.log_position = self._host.commit_position()
        self._enter(_S.INIT, now_ns, str(error))

    def _block(self, is_done: Callable[[], bool], then: Callable[[int], None]) -> None:
        self._blocked, self._then = is_done, then

    # What the others say

    def on_canvass_position(
        self, log_term: int, position: int, _term: int, member_id: int, _protocol_version: int
    ) -> None:
        """J15; and a leader in its election answers who is behind."""
        member = self._members.find(member_id)
        if self.state is _S.INIT or member is None or member is self._me:
            return
        member.set_log(log_term, position, self._host.now_ns())
        if log_term < self.leadership_term_id:
            if self._host.role == Role.LEADER:
                self._say_new_term_to(member, log_term, self._quorum_position(self._host.now_ns()))
        elif log_term > self.leadership_term_id and self.state in (_S.LEADER_LOG_REPLICATION, _S.LEADER_READY):
            raise ClusterEvent("the log of another member is of a newer term")

    def on_request_vote(
        self, log_term: int, position: int, candidate_term: int, candidate_id: int, _protocol_version: int
    ) -> None:
        """J6."""
        candidate = self._members.find(candidate_id)
        if self.state is _S.INIT or candidate is None or candidate is self._me:
            return
        if candidate_term <= self.candidate_term_id:
            self._vote(candidate, candidate_term, False)
        elif (self.log_leadership_term_id, self.append_position) > (log_term, position):
            self.candidate_term_id = self._host.propose_max_candidate_term_id(candidate_term, position)
            self._vote(candidate, candidate_term, False)
            if self._host.role == Role.LEADER:
                self._say_new_term_to(candidate, log_term, self._quorum_position(self._host.now_ns()))
        elif self.state in _VOTING:
            self.candidate_term_id = self._host.propose_max_candidate_term_id(candidate_term, position)
            self._vote(candidate, candidate_term, True)
            self._enter(_S.FOLLOWER_BALLOT, self._host.now_ns(), f"voted for member {candidate_id}")

    def on_vote(
        self, candidate_term: int, log_term: int, position: int, candidate_id: int, voter_id: int, vote: bool
    ) -> None:
        """A member has voted."""
        voter = self._members.find(voter_id)
        if (
            self.state is _S.CANDIDATE_BALLOT
            and voter is not None
            and (candidate_term, candidate_id) == (self.candidate_term_id, self._me.id)
        ):
            voter.candidate_term_id, voter.vote = candidate_term, int(vote)
            voter.set_log(log_term, position, self._host.now_ns())

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        """J11, J12, J13."""
        leader = self._members.find(message.leader_member_id)
        if self.state is _S.INIT or leader is None:
            return
        if leader is self._me and message.leadership_term_id == self.leadership_term_id:
            return
        is_of_ballot = self.state in _BALLOTS and message.leadership_term_id == self.candidate_term_id
        if is_of_ballot or self.state is _S.CANVASS:
            if message.log_leadership_term_id == self.log_leadership_term_id:
                self._follow(leader, message)
            else:
                self._enter(_S.CANVASS, self._host.now_ns(), "another term than that of its log")
        if (
            self.state is _S.FOLLOWER_LOG_REPLICATION
            and message.log_leadership_term_id == self.log_leadership_term_id
            and self.leader is leader
        ):
            self._replication_deadline_ns = self._host.now_ns() + self._settings.leader_heartbeat_timeout_ns

    def _follow(self, leader: ClusterMember, message: NewLeadershipTerm) -> None:
        now_ns = self._host.now_ns()
        next_base = message.next_term_base_log_position
        if next_base != -1 and next_base < self.append_position:
            self._host.begin_truncation(self.log_leadership_term_id, next_base)
            self.append_position = next_base
            self._block(self._host.poll_truncation, self._truncated)
            return
        self.leader, self.is_leader_startup = leader, message.is_startup
        self.leadership_term_id = message.leadership_term_id
        self.candidate_term_id = max(message.leadership_term_id, self.candidate_term_id)
        self.log_session_id, self._leader_recording_id = message.log_session_id, message.leader_recording_id
        self._catchup_join_position = message.log_position if self.append_position < message.log_position else -1
        self.notified_commit_position = max(self.notified_commit_position, message.commit_position)
        if self.append_position >= message.term_base_log_position:
            self._enter(_S.FOLLOWER_REPLAY, now_ns, "")
        elif message.next_leadership_term_id == -1:
            raise ClusterError(f"nothing says what comes before the term: {message}")
        elif self.append_position < next_base:
            self._replication = (message.log_leadership_term_id, -1, next_base)
            self._enter(_S.FOLLOWER_LOG_REPLICATION, now_ns, "")
        elif self.append_position == next_base and message.next_log_position != -1:
            self._replication = (message.next_leadership_term_id, next_base, message.next_log_position)
            self._enter(_S.FOLLOWER_LOG_REPLICATION, now_ns, "")

    def _truncated(self, _now_ns: int) -> None:
        raise ClusterEvent(f"truncated to {self.append_position}")

    def on_append_position(self, term: int, position: int, member_id: int, flags: int) -> None:
        """Members count by what they last said, also of an older term."""
        member = self._members.find(member_id)
        if self.state is not _S.INIT and term <= self.leadership_term_id and member is not None:
            member.set_log(term, position, self._host.now_ns())
            self._host.track_catchup_completion(member, term, flags)

    def on_commit_position(self, term: int, position: int, leader_id: int) -> None:
        """J15."""
        if self.state is _S.INIT:
            return
        if self.leader is not None and self.leader.id == leader_id:
            self.notified_commit_position = max(self.notified_commit_position, position)
            if self.state is _S.FOLLOWER_LOG_REPLICATION:
                self._replication_deadline_ns = self._host.now_ns() + self._settings.leader_heartbeat_timeout_ns
        elif term > self.leadership_term_id and self.state is _S.LEADER_READY:
            raise ClusterEvent("a new leader commits")

    def on_replay_new_leadership_term_event(self, term: int, position: int, base: int) -> None:
        """J16."""
        if self.state in (_S.FOLLOWER_CATCHUP, _S.FOLLOWER_REPLAY):
            self._ensure_term(term, base, -1)
            self.log_position, self.log_leadership_term_id = position, term

    # The steps

    def _init(self, now_ns: int) -> None:
        is_first, self._is_first_init = self._is_first_init, False
        if not is_first:
            self._stop_copy()
            self._stop_replay()
            self._catchup_join_position = -1
            self.log_session_id = None
            self._has_subscription = self._is_join_begun = self._has_live_destination = False
        if is_first and self._is_node_startup:
            self._begin_canvass(now_ns)
        else:
            self._host.begin_preparation(self.log_position)
            self._block(self._is_prepared, self._begin_canvass)

    def _is_prepared(self) -> bool:
        position = self._host.poll_preparation()
        if position is not None and position != -1:
            self.append_position = position
        return position is not None

    def _begin_canvass(self, now_ns: int) -> None:
        self.notified_commit_position = 0
        self.candidate_term_id = max(self._host.candidate_term_id(), self.leadership_term_id)
        self._enter(_S.CANVASS, now_ns, "")

    def _canvass(self, now_ns: int) -> None:  # J3
        settings, members = self._settings, self._members
        if self._is_extended_canvass:
            deadline_ns = self._state_since_ns + settings.startup_canvass_timeout_ns
        else:
            deadline_ns = self._host.time_of_last_leader_update_ns + settings.leader_heartbeat_timeout_ns
        self._say_canvass_position(now_ns)
        if settings.appointed_leader_id not in (-1, self._me.id):
            return
        voters = sum(self.would_vote(member) for member in members.members)
        if voters == members.count() or (now_ns >= deadline_ns and voters >= members.threshold):
            delay_ns = int(self._host.random() * (settings.election_timeout_ns >> 1))
            self._nomination_deadline_ns = now_ns + delay_ns
            self._enter(_S.NOMINATE, now_ns, "")

    def would_vote(self, member: ClusterMember) -> bool:
        """J3: whether a member's log is not better than this one's. One that is empty is of its term as any other."""
        ours = (self._me.leadership_term_id, self._me.log_position)
        return member.log_position != -1 and (member.leadership_term_id, member.log_position) <= ours

    def _nominate(self, now_ns: int) -> None:  # J4
        if now_ns < self._nomination_deadline_ns:
            self._say_canvass_position(now_ns)
            return
        self.candidate_term_id = self._host.propose_max_candidate_term_id(self.candidate_term_id + 1, self.log_position)
        self._members.become_candidate(self.candidate_term_id)
        self._enter(_S.CANDIDATE_BALLOT, now_ns, "")

    def _candidate_ballot(self, now_ns: int) -> None:  # J5
        if self._members.is_unanimous_leader(self.candidate_term_id, -1):
            self._lead(now_ns)
        elif now_ns >= self._state_since_ns + self._settings.election_timeout_ns:
            if self._members.is_quorum_leader(self.candidate_term_id):
                self._lead(now_ns)
            else:
                self._enter(_S.CANVASS, now_ns, "not elected")
        else:
            for member in self._members.members:
                if not member.is_ballot_sent:
                    member.is_ballot_sent = self._host.request_vote(
                        member, self.log_leadership_term_id, self.append_position, self.candidate_term_id
                    )

    def _follower_ballot(self, now_ns: int) -> None:
        if now_ns >= self._state_since_ns + self._settings.election_timeout_ns:
            self._enter(_S.CANVASS, now_ns, "no leader after the ballot")

    def _lead(self, now_ns: int) -> None:
        self.leader = self._me
        self.leadership_term_id = self.candidate_term_id
        self._enter(_S.LEADER_LOG_REPLICATION, now_ns, "elected")
        self._host.begin_log_publication(self.append_position)
        self._block(self._is_published, lambda _now_ns: None)

    def _is_published(self) -> bool:
        self.log_session_id = self._host.poll_log_publication()
        return self.log_session_id is not None

    def _leader_log_replication(self, now_ns: int) -> None:  # J7, J8
        self._me.set_log(self._me.leadership_term_id, self.append_position, now_ns)
        position = self._quorum_position(now_ns)
        self._say_as_leader(position, now_ns)
        if position >= self.append_position:
            self._enter(_S.LEADER_REPLAY, now_ns, "")

    def _leader_replay(self, now_ns: int) -> None:
        if self._replay is None:
            self.is_leader_startup = self._is_node_startup
            self._me.set_log(self.leadership_term_id, self.append_position, now_ns)
            if self.log_position < self.append_position:
                self._replay = self._host.new_log_replay(self.log_position, self.append_position)
            else:
                self._enter(_S.LEADER_INIT, now_ns, "")
        else:
            self._replay.do_work()
            if self._replay.is_done():
                self._stop_replay()
                self.log_position = self.append_position
                self._enter(_S.LEADER_INIT, now_ns, "")
        self._say_as_leader(self._quorum_position(now_ns), now_ns)

    def _leader_init(self, _now_ns: int) -> None:  # J2, J9
        assert self.log_session_id is not None
        self._host.begin_join_as_leader(
            self.leadership_term_id, self.log_position, self.log_session_id, self.is_leader_startup
        )
        self._block(self._host.poll_join_as_leader, self._joined_as_leader)

    def _joined_as_leader(self, now_ns: int) -> None:
        self._record_own_term()
        self._enter(_S.LEADER_READY, now_ns, "")

    def _leader_ready(self, now_ns: int) -> None:  # J10
        position = self._quorum_position(now_ns)
        self._me.set_log(self._me.leadership_term_id, self.append_position, now_ns)
        self._host.update_leader_position(now_ns, position)
        self._say_new_term(position, now_ns)
        if self._members.has_quorum_at_position(
            self.leadership_term_id, self.log_position, now_ns, self._settings.leader_heartbeat_timeout_ns
        ) and self._host.append_new_leadership_term_event(self.leadership_term_id, self.log_position):
            self._complete(now_ns)

    def _quorum_position(self, now_ns: int) -> int:  # J7
        timeout_ns = self._settings.leader_heartbeat_timeout_ns
        return min(self._host.plain_quorum_position(now_ns, timeout_ns), self.append_position)

    def _follower_log_replication(self, now_ns: int) -> None:  # J13
        assert self.leader is not None
        term, base, stop = self._replication
        if self._copy is None:
            if self.append_position < stop:
                self._copy = self._host.new_log_replication(self.leader, self._leader_recording_id, stop, now_ns)
                self._replication_deadline_ns = now_ns + self._settings.leader_heartbeat_timeout_ns
            else:
                self._record_term(term, base, stop)
                self._enter(_S.CANVASS, now_ns, "an empty term")
            return
        self._copy.do_work(now_ns)
        is_done = self._copy.is_done
        position = self._copy.position
        if position > self.append_position or (
            position == self.append_position and self._is_due(now_ns, self._settings.leader_heartbeat_interval_ns)
        ):
            self._host.send_append_position(self.leader, self.leadership_term_id, position, 0)
            self.append_position, self._said_ns = position, now_ns
        if is_done and self.notified_commit_position >= self.append_position:
            self.append_position = position
            self._stop_copy()
            self._record_term(term, base, stop)
            self._enter(_S.CANVASS, now_ns, "log replication done")
        elif is_done and now_ns >= self._replication_deadline_ns:
            raise TimedOutError("no commit position for what was replicated")

    def _follower_replay(self, now_ns: int) -> None:  # J14
        assert self.leader is not None
        if self._replay is not None:
            self._replay.do_work()
            if self._replay.is_done():
                self.log_position = self._replay.position()
                self._stop_replay()
                if self.log_position == self.append_position:
                    self._join_log(now_ns)
                else:
                    self._enter(_S.CANVASS, now_ns, "incomplete replay")
        elif self.log_position >= self.append_position:
            self._join_log(now_ns)
        elif self.notified_commit_position == 0:
            if self._last_append_said != self.append_position or self._is_due(
                now_ns, self._settings.leader_heartbeat_interval_ns
            ):
                self._host.send_append_position(self.leader, self.leadership_term_id, self.append_position, 0)
                self._last_append_said, self._said_ns = self.append_position, now_ns
        elif self.log_position >= self.notified_commit_position:
            self._enter(_S.CANVASS, now_ns, "nothing committed to replay")
        else:
            stop = min(self.append_position, self.notified_commit_position)
            self._replay = self._host.new_log_replay(self.log_position, stop)

    def _join_log(self, now_ns: int) -> None:
        is_behind = self._catchup_join_position != -1
        self._enter(_S.FOLLOWER_CATCHUP_INIT if is_behind else _S.FOLLOWER_LOG_INIT, now_ns, "")

    def _follower_catchup_init(self, now_ns: int) -> None:
        assert self.leader is not None
        assert self.log_session_id is not None
        if not self._has_subscription:
            self._host.add_log_subscription(self.log_session_id, True)
            self._has_subscription = True
        self._host.send_catchup_position(self.leader, self.leadership_term_id, self.log_position)
        self._enter(_S.FOLLOWER_CATCHUP_AWAIT, now_ns, "")

    def _follower_catchup_await(self, now_ns: int) -> None:
        self._await_join(now_ns, lambda after_ns: self._enter(_S.FOLLOWER_CATCHUP, after_ns, ""))

    def _await_join(self, now_ns: int, then: Callable[[int], None]) -> None:
        position = self._host.log_join_position()
        if position is None:
            if now_ns >= self._state_since_ns + self._settings.leader_heartbeat_timeout_ns:
                raise TimedOutError("no image of the log")
        elif position != self.log_position:
            raise ClusterEvent(f"joined at {position} and not at {self.log_position}")
        else:
            self._host.begin_join_as_follower(self.is_leader_startup)
            self._block(self._host.poll_join_as_follower, then)

    def _follower_catchup(self, now_ns: int) -> None:
        host = self._host
        assert self.leader is not None
        host.poll_catchup(self.leader, self.leadership_term_id, self.notified_commit_position)
        if not self._has_live_destination and host.is_catchup_near_live(
            max(self._catchup_join_position, self.notified_commit_position)
        ):
            host.add_live_log_destination()
            self._has_live_destination = True
        position = host.commit_position()
        if (
            position >= self._catchup_join_position
            and position >= self.notified_commit_position
            and not host.is_catching_up()
        ):
            self.append_position = self.log_position = position
            self._enter(_S.FOLLOWER_LOG_INIT, now_ns, "")

    def _follower_log_init(self, now_ns: int) -> None:
        assert self.log_session_id is not None
        if self._has_subscription:
            self._enter(_S.FOLLOWER_READY, now_ns, "")
        else:
            self._host.add_log_subscription(self.log_session_id, False)
            self._has_subscription = True
            self._enter(_S.FOLLOWER_LOG_AWAIT, now_ns, "")

    def _follower_log_await(self, now_ns: int) -> None:
        self._await_join(now_ns, self._joined_as_follower)

    def _joined_as_follower(self, now_ns: int) -> None:  # J9
        self._record_own_term()
        self._enter(_S.FOLLOWER_READY, now_ns, "")

    def _follower_ready(self, now_ns: int) -> None:
        assert self.leader is not None
        self._host.send_append_position(self.leader, self.leadership_term_id, self.log_position, 0)
        self._complete(now_ns)

    # What the steps share

    def _say_as_leader(self, position: int, now_ns: int) -> None:
        self._say_new_term(position, now_ns)
        last = self._last_commit_said
        if last < position or (
            last == position and now_ns - self._commit_said_ns >= self._settings.leader_heartbeat_interval_ns
        ):
            self._commit_said_ns, self._last_commit_said = now_ns, position
            self._host.publish_commit_position(position, self.leadership_term_id)

    def _say_new_term(self, position: int, now_ns: int) -> None:
        if self._is_due(now_ns, self._settings.leader_heartbeat_interval_ns):
            self._said_ns = now_ns
            for member in self._members.others():
                self._say_new_term_to(member, self.log_leadership_term_id, position)

    def _say_new_term_to(self, member: ClusterMember, log_term: int, position: int) -> None:
        if self.log_session_id is not None:
            self._host.publish_new_leadership_term(
                member,
                log_term,
                self.leadership_term_id,
                self.append_position,
                position,
                self.log_session_id,
                self.is_leader_startup,
            )

    def _say_canvass_position(self, now_ns: int) -> None:
        if self._is_due(now_ns, self._settings.election_status_interval_ns):
            self._said_ns = now_ns
            self._host.publish_canvass_position(
                self.log_leadership_term_id, self.append_position, self.leadership_term_id
            )

    def _is_due(self, now_ns: int, interval_ns: int) -> bool:
        return now_ns - self._said_ns >= interval_ns

    def _vote(self, candidate: ClusterMember, candidate_term: int, vote: bool) -> None:
        self._host.place_vote(candidate, candidate_term, self.log_leadership_term_id, self.append_position, vote)

    def _record_own_term(self) -> None:
        self._record_term(self.leadership_term_id, self.log_position, -1)

    def _record_term(self, term: int, base: int, end: int) -> None:
        self._ensure_term(term, base, end)
        self.log_leadership_term_id = term

    def _ensure_term(self, term: int, base: int, end: int) -> None:
        initial_term, initial_base = self._initial
        self._host.ensure_term(initial_term, initial_base, term, initial_base if base == -1 else base, end)

    def _complete(self, now_ns: int) -> None:
        self._host.election_complete(now_ns)
        self._enter(_S.CLOSED, now_ns, "")

    def _stop_replay(self) -> None:
        if self._replay is not None:
            self._replay.close()
            self._replay = None
        self._last_append_said = 0

    def _stop_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        self._replication_deadline_ns, self._last_commit_said = _NEVER_NS, 0

    def _enter(self, state: ElectionState, now_ns: int, reason: str) -> None:
        if state is self.state:
            return
        if self.state is _S.CANVASS:
            self._is_extended_canvass = False
        if state is _S.CANVASS:
            self._members.reset()
            self._me.set_log(self.leadership_term_id, self.append_position, now_ns)
            self.leader = None
            self._host.set_role(Role.FOLLOWER)
        elif state is _S.CANDIDATE_BALLOT:
            self._host.set_role(Role.CANDIDATE)
        elif state is _S.LEADER_LOG_REPLICATION:
            self._host.set_role(Role.LEADER)
        elif state in (_S.FOLLOWER_LOG_REPLICATION, _S.FOLLOWER_REPLAY):
            self._host.set_role(Role.FOLLOWER)
        self.state = state
        self._host.set_election_state(state, reason)
        self._state_since_ns = now_ns
        self._said_ns = self._commit_said_ns = _NEVER_NS

    def __repr__(self) -> str:
        return (
            f"<JavaElection of member {self._me.id} {self.state.name} leader={self.leader and self.leader.id} "
            f"leadership_term_id={self.leadership_term_id} candidate_term_id={self.candidate_term_id} "
            f"log_leadership_term_id={self.log_leadership_term_id} log_position={self.log_position} "
            f"append_position={self.append_position} notified_commit_position={self.notified_commit_position}>"
        )


_STEPS: tuple[Callable[[JavaElection, int], None], ...] = (
    JavaElection._init,
    JavaElection._canvass,
    JavaElection._nominate,
    JavaElection._candidate_ballot,
    JavaElection._follower_ballot,
    JavaElection._leader_log_replication,
    JavaElection._leader_replay,
    JavaElection._leader_init,
    JavaElection._leader_ready,
    JavaElection._follower_log_replication,
    JavaElection._follower_replay,
    JavaElection._follower_catchup_init,
    JavaElection._follower_catchup_await,
    JavaElection._follower_catchup,
    JavaElection._follower_log_init,
    JavaElection._follower_log_await,
    JavaElection._follower_ready,
    lambda _election, _now_ns: None,
)
