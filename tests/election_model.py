"""A cluster of elections over a network that loses and reorders, with crashes, cuts and restarts drawn from a seed.

Each member has a disk that survives its crashes, an election or, after it, as much of an agent as it takes to append,
record, commit and apply. A position is a number of entries. What must never happen is checked as it happens:

* two leaders of a term, two votes of a member in a term, or a candidate term of the node-state file that goes back;
* an applied entry that another member applied differently, or a leader that lacks one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from container.api import Role
from container.consensus.cluster_member import ClusterMember, ClusterMembers, parse_cluster_members
from container.consensus.election import Election
from container.consensus.election_host import ElectionState, NewLeadershipTerm
from container.errors import ClusterEvent

MS = 1_000_000
TICK_NS = 20 * MS
APPEND_FLAG_CATCHUP = 1
type Entry = tuple[int, int]


class Violation(AssertionError):
    """What must never happen has."""


@dataclass(slots=True)
class ModelSettings:
    """Shorter than the defaults, and in about their proportions."""

    startup_canvass_timeout_ns: int = 3000 * MS
    election_timeout_ns: int = 400 * MS
    election_status_interval_ns: int = 60 * MS
    leader_heartbeat_interval_ns: int = 100 * MS
    leader_heartbeat_timeout_ns: int = 1500 * MS
    appointed_leader_id: int = -1


@dataclass(slots=True)
class Term:
    """An entry of a recording log; ``end`` is -1 while it is open."""

    id: int
    base: int
    end: int


@dataclass(slots=True)
class Disk:
    """What survives a crash."""

    candidate_term_id: int = -1
    has_recording: bool = False
    entries: list[Entry] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)


class Member:
    """A member: the host of its election, and what comes after it."""

    def __init__(self, cluster: Cluster, member_id: int) -> None:
        self.cluster, self.id, self.disk = cluster, member_id, Disk()
        self.election: Election | None = None
        self.is_up = False

    # A start, a crash

    def start(self) -> None:
        """Recover from the disk: nothing is applied yet."""
        disk = self.disk
        self.is_up = True
        self.members = ClusterMembers(parse_cluster_members(self.cluster.text), self.id)
        self.role = int(Role.FOLLOWER)
        self.time_of_last_leader_update_ns = 0
        self.commit = self.notified = 0
        self.session_id: int | None = None
        self.image_session_id: int | None = None
        self.join_position: int | None = None
        self.catching_up = False
        self.leader: ClusterMember | None = None
        self.last_append_position_ns = self.last_commit_position_ns = self.last_log_ns = self.last_progress_ns = 0
        self.begun_ns = 0
        last = disk.terms[-1] if disk.terms else Term(-1, 0, -1)
        self.leadership_term_id = last.id
        self._enter_election(True, last.id, last.base)

    def crash(self) -> None:
        """Lose what is not on the disk."""
        self.is_up = False
        self.election = None
        self.session_id = None

    def _enter_election(self, is_startup: bool, term_id: int, base: int) -> None:
        self.role = int(Role.FOLLOWER)
        self.election = Election(
            self,
            self.cluster.settings,
            self.members,
            is_node_startup=is_startup,
            graceful_closed_leader_id=-1,
            leadership_term_id=term_id,
            term_base_log_position=base,
            log_position=self.commit,
            append_position=len(self.disk.entries),
        )

    def enter_election(self, reason: str) -> None:
        """End a term."""
        self.cluster.note(self.id, f"enters an election: {reason}")
        base = next((term.base for term in self.disk.terms if term.id == self.leadership_term_id), 0)
        self._enter_election(False, self.leadership_term_id, base)

    def turn(self) -> None:
        """Take a turn."""
        now_ns = self.now_ns()
        if self.election is None:
            self._lead(now_ns) if self.role == Role.LEADER else self._follow(now_ns)
            return
        try:
            self.election.do_work(now_ns)
        except Violation:
            raise
        except Exception as error:
            self.election.handle_error(now_ns, error)
        if self.election is not None and self.election.is_closed:
            self.election = None

    def hear(self, name: str, arguments: tuple[object, ...]) -> None:
        """Take a message."""
        try:
            getattr(self, "on_" + name)(*arguments)
        except Violation:
            raise
        except Exception as error:
            if self.election is None:
                raise
            self.election.handle_error(self.now_ns(), error)

    def apply(self, position: int) -> None:
        """Raise the commit counter, and tell the election of terms in a replay."""
        for index in range(self.commit, position):
            self.cluster.check_applied(self, index, self.disk.entries[index])
            self.commit = index + 1
            term_id, kind = self.disk.entries[index]
            if kind == 0 and self.election is not None:
                self.election.on_replay_new_leadership_term_event(term_id, index + 1, index)

    # After an election

    def _lead(self, now_ns: int) -> None:
        settings, random_ = self.cluster.settings, self.cluster.random
        if random_.random() < self.cluster.append_chance and len(self.disk.entries) - self.commit < 20:
            self.disk.entries.append((self.leadership_term_id, self.cluster.next_entry()))
        position = len(self.disk.entries)
        self.members.this_member.set_log(self.leadership_term_id, position, now_ns)
        timeout_ns = settings.leader_heartbeat_timeout_ns
        quorum = self.members.quorum_position(self.leadership_term_id, self.end_of_term, now_ns, timeout_ns)
        self.update_leader_position(now_ns, position, min(quorum, position))
        if not self.members.has_active_quorum(now_ns, timeout_ns):
            self.enter_election("no quorum of active followers")

    def _follow(self, now_ns: int) -> None:
        assert self.leader is not None
        is_image_there = self._record_image()
        self._say_append_position(now_ns, 0)
        limit = min(self.notified, len(self.disk.entries))
        if limit > self.commit:
            self.apply(limit)
        if not is_image_there:
            self.enter_election("log disconnected from leader")
        elif now_ns - self.last_log_ns > self.cluster.settings.leader_heartbeat_timeout_ns:
            self.enter_election("leader heartbeat timeout")

    def _record_image(self) -> bool:
        """Record some of what the leader has sent; whether there still is an image of it."""
        source = self.cluster.find_publication(self.image_session_id)
        if source is None:
            return False
        if self.cluster.is_linked(self.id, source.id):
            ours, theirs = self.disk.entries, source.disk.entries
            more = theirs[len(ours) : len(ours) + self.cluster.random.randrange(4)]
            if more:
                ours.extend(more)
                self.last_progress_ns = self.now_ns()
        return True

    def _say_append_position(self, now_ns: int, flags: int) -> None:
        assert self.leader is not None
        if now_ns - self.last_append_position_ns >= self.cluster.settings.leader_heartbeat_interval_ns:
            self.last_append_position_ns = now_ns
            self.send(
                self.leader.id, "append_position", self.leadership_term_id, len(self.disk.entries), self.id, flags
            )

    # Messages, as the agent takes them

    def send(self, member_id: int, name: str, *arguments: object) -> bool:
        """Give a message to the network."""
        self.cluster.send(self.id, member_id, name, arguments)
        return True

    def on_canvass_position(self, log_term: int, position: int, term: int, member_id: int) -> None:
        if self.election is not None:
            self.election.on_canvass_position(log_term, position, term, member_id)
        elif self.role == Role.LEADER and log_term <= self.leadership_term_id:
            member = self.members.find(member_id)
            assert member is not None
            assert self.session_id is not None
            member.set_log(log_term, position, self.now_ns())
            member.catchup_replay_session_id = -1
            ours = self.leadership_term_id
            base = next(entry.base for entry in self.disk.terms if entry.id == ours)
            following = (-1, -1, -1)
            if log_term < ours:
                entry = next((entry for entry in self.disk.terms if entry.id > log_term), None)
                following = (ours, base, -1) if entry is None else (entry.id, entry.base, entry.end)
            message = NewLeadershipTerm(
                log_term,
                *following,
                ours,
                base,
                len(self.disk.entries),
                self.commit,
                1,
                self.id,
                self.session_id,
                False,
            )
            self.send(member_id, "new_leadership_term", message)

    def on_request_vote(self, log_term: int, position: int, candidate_term: int, candidate_id: int) -> None:
        if self.election is not None:
            self.election.on_request_vote(log_term, position, candidate_term, candidate_id)
        elif candidate_term > self.leadership_term_id:
            self.enter_election("unexpected vote request")

    def on_vote(self, *arguments: int) -> None:
        if self.election is not None:
            self.election.on_vote(*arguments)  # type: ignore[arg-type]

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> None:
        if message.leadership_term_id >= self.leadership_term_id:
            self.time_of_last_leader_update_ns = self.now_ns()
        if self.election is not None:
            self.election.on_new_leadership_term(message)
        elif message.leadership_term_id > self.leadership_term_id:
            self.enter_election("unexpected new leadership term")
        elif self._is_of_leader(message.leadership_term_id, message.leader_member_id):
            self._notice(message.commit_position)

    def on_commit_position(self, term: int, position: int, leader_id: int) -> None:
        if term >= self.leadership_term_id:
            self.time_of_last_leader_update_ns = self.now_ns()
        if self.election is not None:
            self.election.on_commit_position(term, position, leader_id)
        elif term > self.leadership_term_id:
            self.enter_election("unexpected commit position")
        elif self._is_of_leader(term, leader_id):
            self._notice(position)

    def _is_of_leader(self, term: int, leader_id: int) -> bool:
        return (
            self.role == Role.FOLLOWER
            and term == self.leadership_term_id
            and self.leader is not None
            and self.leader.id == leader_id
        )

    def _notice(self, position: int) -> None:
        self.notified = max(self.notified, position)
        self.last_log_ns = self.now_ns()

    def on_append_position(self, term: int, position: int, member_id: int, flags: int) -> None:
        if self.election is not None:
            self.election.on_append_position(term, position, member_id, flags)
        elif term <= self.leadership_term_id and self.role == Role.LEADER:
            member = self.members.find(member_id)
            assert member is not None
            member.set_log(term, position, self.now_ns())
            self.track_catchup_completion(member, term, flags)

    def on_catchup_position(self, term: int, _position: int, _member_id: int, session_id: int) -> None:
        if term <= self.leadership_term_id and session_id == self.session_id:
            self.send(_member_id, "catchup_begins", session_id)

    def on_catchup_begins(self, session_id: int) -> None:
        if session_id == self.image_session_id and self.join_position is None:
            self.join_position = len(self.disk.entries)

    def on_stop_catchup(self, _term: int) -> None:
        self.catching_up = False

    # The host of an election

    def set_role(self, role: int) -> None:
        self.role = int(role)

    def set_election_state(self, state: int, reason: str) -> None:
        self.cluster.note(self.id, f"{ElectionState(state).name} {reason}")
        self.cluster.states[ElectionState(state)] = self.cluster.states.get(ElectionState(state), 0) + 1
        if state == ElectionState.LEADER_LOG_REPLICATION:
            assert self.election is not None
            self.cluster.check_leader(self, self.election.leadership_term_id)

    def now_ns(self) -> int:
        return self.cluster.now_ns

    def random(self) -> float:
        return self.cluster.random.random()

    def report(self, error: BaseException) -> None:
        self.cluster.note(self.id, f"{type(error).__name__}: {error}")

    def commit_position(self) -> int:
        return self.commit

    def is_taking_snapshot(self) -> bool:
        return False

    def candidate_term_id(self) -> int:
        return self.disk.candidate_term_id

    def update_candidate_term_id(self, candidate_term_id: int, _log_position: int) -> None:
        if candidate_term_id < self.disk.candidate_term_id:
            raise Violation(f"candidate term of member {self.id} goes back to {candidate_term_id}")
        self.disk.candidate_term_id = candidate_term_id

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int) -> int:
        if candidate_term_id > self.disk.candidate_term_id:
            self.update_candidate_term_id(candidate_term_id, log_position)
        return self.disk.candidate_term_id

    def end_of_term(self, leadership_term_id: int) -> int:
        terms = self.disk.terms
        if not terms or leadership_term_id < terms[0].id:
            return 0
        return next((term.base for term in terms if term.id > leadership_term_id), 0)

    def ensure_term(self, _initial_term: int, _initial_base: int, term_id: int, base: int, end: int) -> None:
        if not self.disk.has_recording:
            return
        terms = self.disk.terms
        if not terms or terms[-1].id < term_id:
            first = terms[-1].id + 1 if terms else 0
            if terms and terms[-1].end == -1:
                terms[-1].end = base
            terms += [Term(missing, base, base) for missing in range(first, term_id)]
            terms.append(Term(term_id, base, end))
        elif end != -1:
            next(term for term in terms if term.id == term_id).end = end

    def set_log_recording_id(self, _recording_id: int) -> None:
        self.disk.has_recording = True

    def begin_preparation(self, log_position: int) -> None:
        self.role = int(Role.FOLLOWER)
        self.session_id = self.image_session_id = self.join_position = None
        self.catching_up = False
        assert self.commit == log_position
        self._begin()

    def _begin(self) -> None:
        self.begun_ns = self.now_ns() + self.cluster.random.randrange(4) * TICK_NS

    def _is_done(self) -> bool:
        return self.now_ns() >= self.begun_ns

    def poll_preparation(self) -> int | None:
        return len(self.disk.entries) if self._is_done() else None

    def begin_log_publication(self, append_position: int) -> None:
        assert append_position == len(self.disk.entries)
        self._begin()

    def poll_log_publication(self) -> int | None:
        if self._is_done():
            self.session_id = self.cluster.next_entry()
        return self.session_id

    def begin_join_as_leader(self, term: int, position: int, _session_id: int, _is_startup: bool) -> None:
        assert position == len(self.disk.entries) == self.commit
        self.leadership_term_id = term
        self.disk.has_recording = True
        self._begin()

    def poll_join_as_leader(self) -> bool:
        return self._is_done()

    def append_new_leadership_term_event(self, term: int, position: int) -> bool:
        assert position == len(self.disk.entries)
        self.disk.entries.append((term, 0))
        return True

    def update_leader_position(self, now_ns: int, _append_position: int, quorum_position: int) -> int:
        is_due = now_ns - self.last_commit_position_ns >= self.cluster.settings.leader_heartbeat_interval_ns
        if quorum_position > self.commit or is_due:
            self.publish_commit_position(quorum_position, self.leadership_term_id)
            self.last_commit_position_ns = now_ns
            if quorum_position > self.commit:
                self.apply(quorum_position)
        return 0

    def add_log_subscription(self, session_id: int, is_catchup: bool) -> None:
        self.image_session_id = session_id
        self.join_position = None
        self.catching_up = is_catchup

    def log_join_position(self) -> int | None:
        source = self.cluster.find_publication(self.image_session_id)
        if source is None or not self.cluster.is_linked(self.id, source.id):
            return None
        if not self.catching_up and self.join_position is None:
            self.join_position = len(source.disk.entries)
        return self.join_position

    def begin_join_as_follower(self, _is_startup: bool) -> None:
        self.disk.has_recording = True
        self._begin()

    def poll_join_as_follower(self) -> bool:
        self._record_image()
        return self._is_done()

    def send_catchup_position(self, leader: ClusterMember, term: int, position: int) -> bool:
        self.last_progress_ns = self.now_ns()
        assert self.image_session_id is not None
        return self.send(leader.id, "catchup_position", term, position, self.id, self.image_session_id)

    def poll_catchup(self, leader: ClusterMember, term: int, limit: int, _log_position: int) -> int:
        now_ns = self.now_ns()
        if not self._record_image():
            raise ClusterEvent("unexpected image close during catch-up")
        limit = min(limit, len(self.disk.entries), self.commit + 2)
        if limit > self.commit:
            self.apply(limit)
        self.leader, self.leadership_term_id = leader, term
        self._say_append_position(now_ns, APPEND_FLAG_CATCHUP)
        if now_ns - self.last_progress_ns > self.cluster.settings.leader_heartbeat_timeout_ns:
            raise ClusterEvent("no catch-up progress")
        return 0

    def is_catchup_near_live(self, position: int) -> bool:
        return self.commit >= position - 5

    def add_live_log_destination(self) -> None:
        pass

    def is_catching_up(self) -> bool:
        return self.catching_up

    def track_catchup_completion(self, member: ClusterMember, term: int, flags: int) -> None:
        if flags == APPEND_FLAG_CATCHUP and member.log_position >= len(self.disk.entries):
            self.send(member.id, "stop_catchup", term)

    def begin_truncation(self, term_id: int, position: int) -> None:
        del self.disk.entries[position:]
        for term in self.disk.terms:
            term.base = min(term.base, position)
            if term.id == term_id or term.end > position:
                term.end = position
        self._begin()

    def poll_truncation(self) -> bool:
        return self._is_done()

    def new_log_replay(self, position: int, stop: int) -> ModelReplay:
        assert position == self.commit
        return ModelReplay(self, stop)

    def new_log_replication(self, leader: ClusterMember, _id: int, stop: int, now_ns: int) -> ModelReplication:
        self.disk.has_recording = True
        return ModelReplication(self, leader.id, stop, now_ns)

    def publish_canvass_position(self, log_term: int, position: int, term: int) -> None:
        for member in self.members.others():
            self.send(member.id, "canvass_position", log_term, position, term, self.id)

    def request_vote(self, member: ClusterMember, log_term: int, position: int, candidate_term: int) -> bool:
        self.cluster.check_vote(self, candidate_term, self.id)
        return self.send(member.id, "request_vote", log_term, position, candidate_term, self.id)

    def place_vote(self, member: ClusterMember, candidate_term: int, log_term: int, position: int, vote: bool) -> None:
        if vote:
            self.cluster.check_vote(self, candidate_term, member.id)
        self.send(member.id, "vote", candidate_term, log_term, position, member.id, self.id, vote)

    def publish_new_leadership_term(
        self,
        member: ClusterMember,
        log_term: int,
        term: int,
        position: int,
        commit: int,
        session_id: int,
        is_startup: bool,
    ) -> None:
        entry = next((entry for entry in self.disk.terms if entry.id > log_term), None)
        following = (term, position, -1)
        if entry is not None:
            following = (entry.id, entry.base, position if entry.end == -1 else entry.end)
        message = NewLeadershipTerm(
            log_term, *following, term, position, position, commit, 1, self.id, session_id, is_startup
        )
        self.send(member.id, "new_leadership_term", message)

    def publish_commit_position(self, position: int, term: int) -> None:
        for member in self.members.others():
            self.send(member.id, "commit_position", term, position, self.id)

    def send_append_position(self, leader: ClusterMember, term: int, position: int, flags: int) -> bool:
        return self.send(leader.id, "append_position", term, position, self.id, flags)

    def election_complete(self, now_ns: int) -> None:
        election = self.election
        assert election is not None
        self.leadership_term_id = election.leadership_term_id
        self.leader = election.leader
        self.last_log_ns = self.last_append_position_ns = now_ns
        self.notified = max(self.notified, election.log_position)
        assert self.commit == election.log_position
        self.cluster.completions += 1


class ModelReplay:
    """A few entries of a member's own recording at each turn."""

    def __init__(self, member: Member, stop: int) -> None:
        self._member, self._stop = member, stop

    def do_work(self) -> int:
        self._member.apply(min(self._stop, self._member.commit + self._member.cluster.random.randrange(4)))
        return 1

    def is_done(self) -> bool:
        return self._member.commit >= self._stop

    def position(self) -> int:
        return self._member.commit

    def close(self) -> None:
        pass


class ModelReplication:
    """A few entries of another member's recording at each turn."""

    recording_id = 1

    def __init__(self, member: Member, source_id: int, stop: int, now_ns: int) -> None:
        self._member, self._source, self._stop = member, member.cluster.nodes[source_id], stop
        self._progress_ns = now_ns

    @property
    def position(self) -> int:
        return len(self._member.disk.entries)

    @property
    def is_done(self) -> bool:
        return self.position >= self._stop

    def do_work(self, now_ns: int) -> int:
        member, source = self._member, self._source
        position = self.position
        if source.is_up and member.cluster.is_linked(member.id, source.id):
            end = min(self._stop, position + member.cluster.random.randrange(4))
            member.disk.entries.extend(source.disk.entries[position:end])
        if self.position > position:
            self._progress_ns = now_ns
        elif not self.is_done and now_ns - self._progress_ns > member.cluster.settings.leader_heartbeat_timeout_ns:
            raise ClusterEvent("log replication has not progressed")
        return 1

    def on_signal(self, correlation_id: int, recording_id: int, position: int, signal: int) -> None:
        pass

    def close(self) -> None:
        pass


class Cluster:
    """All members, the network between them, and what has been seen of both."""

    def __init__(self, count: int, seed: int) -> None:
        self.seed, self.random, self.settings = seed, random.Random(seed), ModelSettings()
        self.text = "|".join(f"{each},a:1,a:2,a:3,a:4,a:5" for each in range(count))
        self.now_ns = 10_000 * MS
        self.loss = 0.1
        self.cuts: set[int] = set()
        self.broken: set[tuple[int, int]] = set()
        self.append_chance = 0.3
        self.nodes = [Member(self, member_id) for member_id in range(count)]
        self.queue: list[tuple[int, int, int, int, str, tuple[object, ...]]] = []
        self.committed: list[Entry] = []
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.states: dict[ElectionState, int] = {}
        self.history: list[str] = []
        self.completions = self._entry = 0

    def next_entry(self) -> int:
        """Give out a number that was not there before."""
        self._entry += 1
        return self._entry

    def note(self, member_id: int, text: str) -> None:
        """Keep what happened for a report."""
        self.history.append(f"{self.now_ns // MS:7} {member_id}: {text}")

    def is_linked(self, first: int, second: int) -> bool:
        """Whether two members reach each other."""
        pair = (min(first, second), max(first, second))
        return (first in self.cuts) == (second in self.cuts) and pair not in self.broken

    def send(self, source: int, target: int, name: str, arguments: tuple[object, ...]) -> None:
        """Lose a message, or deliver it some time later."""
        if self.random.random() >= self.loss and self.is_linked(source, target):
            late = self.random.randrange(4) if self.random.random() < 0.9 else self.random.randrange(60)
            self.queue.append((self.now_ns + late * TICK_NS, self.next_entry(), source, target, name, arguments))

    def find_publication(self, session_id: int | None) -> Member | None:
        """Which member publishes a log."""
        for node in self.nodes:
            if node.is_up and session_id is not None and node.session_id == session_id:
                return node
        return None

    def check_applied(self, member: Member, index: int, entry: Entry) -> None:
        """All members apply the same."""
        if index == len(self.committed):
            self.committed.append(entry)
        elif self.committed[index] != entry:
            raise Violation(f"member {member.id} applies {entry} at {index}, others {self.committed[index]}")

    def check_leader(self, member: Member, term_id: int) -> None:
        """A term has one leader, and that has all that was applied."""
        if self.leaders.setdefault(term_id, member.id) != member.id:
            raise Violation(f"members {self.leaders[term_id]} and {member.id} lead term {term_id}")
        if member.disk.entries[: len(self.committed)] != self.committed:
            raise Violation(f"member {member.id} leads term {term_id} without all that was committed")

    def check_vote(self, member: Member, term_id: int, candidate_id: int) -> None:
        """A member votes once in a term, for what its disk has."""
        if self.votes.setdefault((member.id, term_id), candidate_id) != candidate_id:
            raise Violation(f"member {member.id} votes twice in term {term_id}")
        if member.disk.candidate_term_id < term_id:
            raise Violation(f"member {member.id} votes in term {term_id}, and has not persisted it")

    def tick(self) -> None:
        """Deliver what is due, and give each member a turn."""
        self.now_ns += TICK_NS
        due = sorted((each for each in self.queue if each[0] <= self.now_ns), key=lambda each: each[:2])
        self.queue = [message for message in self.queue if message[0] > self.now_ns]
        for _, _, source, target, name, arguments in due:
            if self.nodes[target].is_up and self.is_linked(source, target):
                self.nodes[target].hear(name, arguments)
        for node in self.nodes:
            if node.is_up:
                node.turn()

    def disturb(self) -> None:
        """Crash, start, cut off or heal, as the seed says."""
        what = self.random.random()
        node = self.random.choice(self.nodes)
        if node.election is not None and node.role == Role.LEADER:
            # In the middle of a change it hurts most.
            what /= 4
        if what < 0.004 and node.is_up:
            self.note(node.id, "crashes")
            node.crash()
        elif what < 0.02 and not node.is_up:
            self.note(node.id, "starts")
            node.start()
        elif what < 0.022:
            self.cuts = set(self.random.sample(range(len(self.nodes)), self.random.randrange(len(self.nodes))))
        elif what < 0.027:
            self.cuts, self.broken = set(), set()
        elif what < 0.032:
            first, second = sorted(self.random.sample(range(len(self.nodes)), 2))
            self.broken ^= {(first, second)}
        elif what < 0.034:
            self.loss = self.random.choice((0.0, 0.1, 0.4))

    def is_agreed(self) -> bool:
        """Whether one leads, all others follow it, and all have applied the same."""
        leaders = [node for node in self.nodes if node.is_up and node.election is None and node.role == Role.LEADER]
        return (
            len(leaders) == 1
            and all(node.is_up and node.election is None for node in self.nodes)
            and all(node.leadership_term_id == leaders[0].leadership_term_id for node in self.nodes)
            and min(node.commit for node in self.nodes) > 0
        )

    def run(self, ticks: int, on_tick: Callable[[], None] | None = None) -> None:
        """Disturb the cluster for a while; then heal all, and it must agree."""
        for node in self.nodes:
            node.start()
        for _ in range(ticks):
            self.disturb()
            self.tick()
            if on_tick is not None:
                on_tick()
        self.cuts, self.broken, self.loss = set(), set(), 0.0
        for node in self.nodes:
            if not node.is_up:
                node.start()
        for _ in range(4000):
            self.tick()
            if self.is_agreed():
                return
        raise Violation("no leader that all follow, with all healed for 80 s")
