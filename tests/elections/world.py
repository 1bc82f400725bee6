"""A cluster of elections over a network that loses and reorders, with crashes, cuts and restarts drawn from a seed.

A member is native, with election.py, or upstream's, with the statement of upstream's rules in java.py. Each has a disk
that survives its crashes, an election or, after it, as much of an agent as it takes to append, record, commit and
apply. A position is a number of entries. oracle.py has the forbidden events; faults.py draws the faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest

from container.api import Role
from container.consensus.cluster_member import (
    NATIVE_PROTOCOL_VERSION,
    ClusterMember,
    ClusterMembers,
    parse_cluster_members,
)
from container.consensus.election import Election
from container.consensus.election_host import NULL_POSITION, ElectionState, NewLeadershipTerm
from container.errors import AgentTermination, ClusterEvent
from container.files.recording_log import missing_terms
from tests.elections.faults import Faults
from tests.elections.java import JAVA_PROTOCOL_VERSION, JavaElection, has_active_quorum
from tests.elections.oracle import OURS, UPSTREAMS, Oracle, Violation, last_of, would_vote

MS = 1_000_000
TICK_NS = 20 * MS
APPEND_FLAG_CATCHUP = 1
_ANY_POSITION = 1 << 60
_BEFORE_A_LEADER = (ElectionState.CANVASS, ElectionState.NOMINATE, ElectionState.CANDIDATE_BALLOT)
_AFTER_A_LEADER = (ElectionState.FOLLOWER_REPLAY, ElectionState.FOLLOWER_CATCHUP)
type Entry = tuple[int, int]


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
    """The state that survives a crash."""

    candidate_term_id: int = -1
    has_recording: bool = False
    entries: list[Entry] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)


class Member:
    """A member: the host of its election, and what comes after it."""

    def __init__(self, cluster: Cluster, member_id: int, *, is_java: bool) -> None:
        self.cluster, self.id, self.is_java, self.disk = cluster, member_id, is_java, Disk()
        self.protocol_version = JAVA_PROTOCOL_VERSION if is_java else NATIVE_PROTOCOL_VERSION
        self.election: Election | JavaElection | None = None
        self.is_up = False
        #: Whether its services join no log.
        self.is_joining_slowly = False
        self.life = 0
        self.clock_offset_ns = 0
        self.stalled_until_ns = 0
        self.inbox: list[tuple[str, tuple[object, ...]]] = []

    @property
    def followed_term_id(self) -> int:
        """The term that it forms or follows."""
        return self.leadership_term_id if self.election is None else self.election.leadership_term_id

    # A start, a crash

    def start(self) -> None:
        """Recover from the disk: nothing is applied yet."""
        disk = self.disk
        if not self.is_java:
            self._mend_terms()
        self.is_up = True
        self.life += 1
        self.stalled_until_ns = 0
        self.cluster.note(self.id, "starts")
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
        self.begun_ns = self.truncated_term_id = 0
        last = disk.terms[-1] if disk.terms else Term(-1, 0, -1)
        self.leadership_term_id = last.id
        self._enter_election(True, last.id, last.base)

    def _mend_terms(self) -> None:
        """As a native member's start: its recording log says what is recorded, and each term has its end but the last.

        A crash may have come between a truncation of the recording and that of the recording log.
        """
        position = len(self.disk.entries)
        for term, following in zip_longest(self.disk.terms, self.disk.terms[1:]):
            term.base, term.end = min(term.base, position), min(term.end, position)
            if following is not None and term.end == -1:
                term.end = min(following.base, position)

    def crash(self, *, is_power_cut: bool = False) -> None:
        """Lose what is not on the disk. A copy that no term was recorded of is found by nobody."""
        self.cluster.note(self.id, "loses its power" if is_power_cut else "crashes")
        self.is_up = False
        self.election = None
        self.session_id = None
        self.inbox.clear()
        disk = self.disk
        if is_power_cut and self.cluster.sync_level == 0:
            lost = self.cluster.random.randrange(4)
            if lost and len(disk.entries) > lost:
                del disk.entries[-lost:]
                disk.terms = [term for term in disk.terms if term.base <= len(disk.entries)]
                if disk.terms and disk.terms[-1].end > len(disk.entries):
                    disk.terms[-1].end = -1
                self.cluster.oracle.is_lossy = True
        if not disk.terms:
            self.cluster.oracle.note_lost(self, disk.entries)
            disk.entries, disk.has_recording = [], False

    def wipe(self) -> None:
        """Lose the disk."""
        self.cluster.note(self.id, "is wiped")
        self.disk = Disk()

    def stall(self, duration_ns: int) -> None:
        """Take no turn for a while; messages wait."""
        self.cluster.note(self.id, f"stalls for {duration_ns // MS} ms")
        self.stalled_until_ns = self.cluster.now_ns + duration_ns

    @property
    def is_stopped(self) -> bool:
        """Whether messages wait for it."""
        election = self.election
        return self.cluster.now_ns < self.stalled_until_ns or (
            isinstance(election, JavaElection) and election.is_blocked
        )

    def _enter_election(self, is_startup: bool, term_id: int, base: int) -> None:
        self.role = int(Role.FOLLOWER)
        if self.is_java:
            self.election = JavaElection(
                self,
                is_node_startup=is_startup,
                leadership_term_id=term_id,
                term_base_log_position=base,
                log_position=self.commit,
                append_position=len(self.disk.entries),
            )
            return
        self.election = self.cluster.election_class(
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
        while self.inbox and not self.is_stopped:
            self._hear(*self.inbox.pop(0))
        if self.election is None:
            self._lead(now_ns) if self.role == Role.LEADER else self._follow(now_ns)
            return
        try:
            self.election.do_work(now_ns)
        except AssertionError:  # also a Violation: none of them is an error that the election may have
            raise
        except AgentTermination as error:
            if self.cluster.oracle.is_lossy:
                self.crash()
                return
            raise Violation(f"member {self.id} ends: {error}", "ends", self.cluster.oracle.blame_all()) from error
        except Exception as error:
            self.election.handle_error(now_ns, error)
        if self.election is not None and self.election.is_closed:
            self.election = None

    def hear(self, name: str, arguments: tuple[object, ...]) -> None:
        """Take a message, now or once it can."""
        if self.inbox or self.is_stopped:
            self.inbox.append((name, arguments))
        else:
            self._hear(name, arguments)

    def _hear(self, name: str, arguments: tuple[object, ...]) -> None:
        try:
            getattr(self, "on_" + name)(*arguments)
        except AssertionError:  # also a Violation: none of them is an error that the election may have
            raise
        except Exception as error:
            if self.election is None:
                raise
            self.election.handle_error(self.now_ns(), error)

    def apply(self, position: int) -> None:
        """Raise the commit counter, and report terms of a replay to the election."""
        for index in range(self.commit, position):
            self.cluster.oracle.check_applied(self, index, self.disk.entries[index])
            self.commit = index + 1
            term_id, kind = self.disk.entries[index]
            if kind == 0:
                self.leadership_term_id = term_id
                if self.election is not None:
                    self.election.on_replay_new_leadership_term_event(term_id, index + 1, index)

    # After an election

    def _lead(self, now_ns: int) -> None:
        settings, random_ = self.cluster.settings, self.cluster.random
        if random_.random() < self.cluster.append_chance and len(self.disk.entries) - self.commit < 20:
            self.disk.entries.append((self.leadership_term_id, self.cluster.next_entry()))
        position = len(self.disk.entries)
        self.members.this_member.set_log(self.leadership_term_id, position, now_ns)
        timeout_ns = settings.leader_heartbeat_timeout_ns
        if self.is_java:
            quorum = self.plain_quorum_position(now_ns, timeout_ns)
        else:
            quorum = self.members.quorum_position(self.leadership_term_id, self.end_of_term, now_ns, timeout_ns)
        self.update_leader_position(now_ns, min(quorum, position))
        has_quorum = has_active_quorum if self.is_java else ClusterMembers.has_active_quorum
        if not has_quorum(self.members, now_ns, timeout_ns):
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
        if self.cluster.is_heard(source.id, self.id):
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

    def on_canvass_position(
        self, log_term: int, position: int, term: int, member_id: int, protocol_version: int
    ) -> None:
        if self.election is not None:
            self.election.on_canvass_position(log_term, position, term, member_id, protocol_version)
        elif self.role == Role.LEADER and log_term > self.leadership_term_id and not self.is_java:
            self.enter_election("a member has a log of a newer term")
        elif self.role == Role.LEADER and log_term <= self.leadership_term_id:
            member = self.members.find(member_id)
            assert member is not None
            assert self.session_id is not None
            is_native = protocol_version == NATIVE_PROTOCOL_VERSION
            if is_native and not self.is_java and term > self.leadership_term_id:
                # It cannot follow in this term: it voted in a newer one.
                self.enter_election("a member has voted in a newer term")
                return
            member.set_log(log_term, position, self.now_ns())
            is_told = self.is_java or is_native or log_term < self.leadership_term_id
            if not is_told and self.commit == 0 < position:
                return  # with commit position 0 it would wait for this member for ever
            ours = self.leadership_term_id
            base = next(entry.base for entry in self.disk.terms if entry.id == ours)
            for term_id in self._terms_to_say(log_term, is_native=is_native) if log_term < ours else (log_term,):
                following = (-1, -1, -1)
                if log_term < ours:
                    entry = self._next_term(term_id, NULL_POSITION if is_native else position)
                    following = (ours, base, -1) if entry is None else (entry.id, entry.base, entry.end)
                message = NewLeadershipTerm(
                    term_id,
                    *following,
                    ours,
                    base,
                    len(self.disk.entries),
                    self.commit,
                    1,
                    self.id,
                    self.session_id,
                    False,
                    -1 if self.is_java else NATIVE_PROTOCOL_VERSION,
                )
                self.send(member_id, "new_leadership_term", message)

    def on_request_vote(
        self, log_term: int, position: int, candidate_term: int, candidate_id: int, protocol_version: int
    ) -> None:
        if self.election is not None:
            self.election.on_request_vote(log_term, position, candidate_term, candidate_id, protocol_version)
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
        elif message.leadership_term_id < self.leadership_term_id and not self.is_java:
            term = self.leadership_term_id
            self._send_canvass_position(message.leader_member_id, term, len(self.disk.entries), term)
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

    def on_catchup_position(self, term: int, position: int, member_id: int, session_id: int) -> None:
        if term <= self.leadership_term_id and self.role == Role.LEADER and session_id == self.session_id:
            self.send(member_id, "catchup_begins", session_id, position)

    def on_catchup_begins(self, session_id: int, position: int) -> None:
        if session_id == self.image_session_id and self.join_position is None:
            self.join_position = position

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
            self.cluster.oracle.check_leader(self, self.election.leadership_term_id)
        self.cluster.on_state(self, ElectionState(state))

    def now_ns(self) -> int:
        return self.cluster.now_ns + self.clock_offset_ns

    def plain_quorum_position(self, now_ns: int, timeout_ns: int) -> int:
        """As upstream counts: by position and activity alone."""
        return self.members.quorum_position(self.followed_term_id, lambda _term: _ANY_POSITION, now_ns, timeout_ns)

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
            raise Violation(f"candidate term of member {self.id} goes back to {candidate_term_id}", "votes")
        self.disk.candidate_term_id = candidate_term_id

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int) -> int:
        if candidate_term_id > self.disk.candidate_term_id:
            self.update_candidate_term_id(candidate_term_id, log_position)
        return self.disk.candidate_term_id

    def end_of_term(self, leadership_term_id: int) -> int:
        entry = next((term for term in self.disk.terms if term.id == leadership_term_id), None)
        return 0 if entry is None else max(0, entry.end)

    def ensure_term(self, initial_term: int, initial_base: int, term_id: int, base: int, end: int) -> None:
        if self.disk.has_recording:
            before = [(term.id, term.base, term.end) for term in self.disk.terms]
            self.record(initial_term, term_id, base, end, initial_base=initial_base)
            changed = [term for term in self.disk.terms if (term.id, term.base, term.end) not in before]
            self.cluster.oracle.check_terms(self, term_id, changed)

    def record(self, initial_term: int, term_id: int, base: int, end: int = -1, *, initial_base: int = 0) -> None:
        """As RecordingLog.ensureCoherent."""
        terms = self.disk.terms
        if not terms:
            gap = self._missing_terms(max(0, initial_term), term_id)
            terms += [Term(missing, initial_base, initial_base) for missing in gap]
            if terms:
                terms[-1].end = base
            terms.append(Term(term_id, base, end))
        elif terms[-1].id < term_id:
            terms[-1].end = base = max(base, terms[-1].end)
            terms += [Term(missing, base, base) for missing in self._missing_terms(terms[-1].id + 1, term_id)]
            terms.append(Term(term_id, base, end))
        elif end != -1:
            next(term for term in terms if term.id == term_id).end = end

    def _missing_terms(self, first: int, term_id: int) -> Iterable[int]:
        return range(first, term_id) if self.is_java else missing_terms(first, term_id)

    def base_after_term(self, leadership_term_id: int) -> int:
        return next((term.base for term in self.disk.terms if term.id > leadership_term_id), -1)

    def first_empty_term(self, leadership_term_id: int) -> int:
        base = self.base_of_term(leadership_term_id)
        before = [term for term in self.disk.terms if term.id <= leadership_term_id]
        return list(takewhile(lambda term: term.base == base, reversed(before)))[-1].id

    def last_filled_term(self, leadership_term_id: int) -> int:
        return self._last_filled_term(leadership_term_id, self.base_of_term(leadership_term_id))

    def _last_filled_term(self, leadership_term_id: int, position: int) -> int:
        """As RecordingLog.find_last_filled_term."""
        before = [term for term in self.disk.terms if term.id < leadership_term_id and term.base < position]
        return before[-1].id if before and before[-1].end == position else -1

    def is_left_out(self, leadership_term_id: int) -> bool:
        base = self.base_of_term(leadership_term_id)
        before = [term for term in self.disk.terms if term.id < leadership_term_id and term.base < base]
        following = next((term.id for term in self.disk.terms if term.base >= base), leadership_term_id)
        return before[-1].id + 1 != following if before else base > 0

    def base_of_term(self, leadership_term_id: int) -> int:
        return next((term.base for term in self.disk.terms if term.id == leadership_term_id), -1)

    def drop_empty_terms(self, first_term_id: int) -> int:
        terms = self.disk.terms
        while terms and terms[-1].id >= first_term_id:
            last = terms.pop()
            # Open, or ended where it begins: a truncation to its base has done so.
            assert last.end in (-1, last.base)
            assert last.base == len(self.disk.entries)
        if terms:
            terms[-1].end = -1
        return terms[-1].id if terms else -1

    def set_log_recording_id(self, _recording_id: int) -> None:
        self.disk.has_recording = True

    def begin_preparation(self, log_position: int) -> None:
        self.role = int(Role.FOLLOWER)
        self.session_id = self.image_session_id = self.join_position = None
        self.catching_up = False
        self.commit = log_position
        self._begin()

    def _begin(self, most_ticks: int = 4) -> None:
        self.begun_ns = self.now_ns() + self.cluster.random.randrange(most_ticks) * TICK_NS

    def _is_done(self) -> bool:
        return self.now_ns() >= self.begun_ns

    def poll_preparation(self) -> int | None:
        return len(self.disk.entries) if self._is_done() else None

    def begin_log_publication(self, append_position: int) -> None:
        assert append_position == len(self.disk.entries)
        self._begin(self.cluster.publication_ticks)

    def poll_log_publication(self) -> int | None:
        if self._is_done():
            self.session_id = self.cluster.next_entry()
        return self.session_id

    def begin_join_as_leader(self, term: int, position: int, _session_id: int, _is_startup: bool) -> None:
        assert position == len(self.disk.entries)
        self.leadership_term_id = term
        self.disk.has_recording = True
        self._begin()

    def poll_join_as_leader(self) -> bool:
        return self._is_done()

    def append_new_leadership_term_event(self, term: int, position: int) -> bool:
        assert position == len(self.disk.entries)
        self.disk.entries.append((term, 0))
        return True

    def update_leader_position(self, now_ns: int, quorum_position: int) -> int:
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
        if source is None or not self.cluster.is_heard(source.id, self.id):
            return None
        if not self.catching_up and self.join_position is None:
            self.join_position = len(source.disk.entries)
        return self.join_position

    def begin_join_as_follower(self, _is_startup: bool) -> None:
        # The image has nothing from before it joined; the archive extends a recording from its end alone.
        is_end = self.join_position == len(self.disk.entries) == self.commit
        if self.is_java and not is_end:
            raise ClusterEvent(f"the recording ends at {len(self.disk.entries)}, not at {self.join_position}")
        assert is_end, f"{self.join_position}, {len(self.disk.entries)}, {self.commit}"
        self.disk.has_recording = True
        self._begin()

    def poll_join_as_follower(self) -> bool:
        self._record_image()
        return self._is_done() and not self.is_joining_slowly

    def recorded_position(self) -> int:
        return len(self.disk.entries) if self.disk.has_recording else -1

    def send_catchup_position(self, leader: ClusterMember, term: int, position: int) -> bool:
        self.last_progress_ns = self.now_ns()
        assert self.image_session_id is not None
        return self.send(leader.id, "catchup_position", term, position, self.id, self.image_session_id)

    def poll_catchup(self, leader: ClusterMember, term: int, limit: int) -> int:
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
        self.cluster.oracle.check_truncation(self, position)
        del self.disk.entries[position:]
        self.truncated_term_id = term_id
        self.cluster.on_truncation(self)
        self._begin()

    def poll_truncation(self) -> bool:
        if not self._is_done():
            return False
        position = len(self.disk.entries)
        for term in self.disk.terms:
            if term.id == self.truncated_term_id or (term.end > position and not self.is_java):
                term.end = position
            if not self.is_java:
                term.base = min(term.base, position)
        return True

    def new_log_replay(self, position: int, stop: int) -> ModelReplay:
        assert position == self.commit
        return ModelReplay(self, stop)

    def new_log_replication(self, leader: ClusterMember, _id: int, stop: int, now_ns: int) -> ModelReplication:
        self.disk.has_recording = True
        return ModelReplication(self, leader.id, stop, now_ns)

    def publish_canvass_position(self, log_term: int, position: int, term: int) -> None:
        for member in self.members.others():
            self._send_canvass_position(member.id, log_term, position, term)

    def send_canvass_position(self, member: ClusterMember, log_term: int, position: int, term: int) -> None:
        self._send_canvass_position(member.id, log_term, position, term)

    def _send_canvass_position(self, member_id: int, log_term: int, position: int, term: int) -> None:
        self.send(member_id, "canvass_position", log_term, position, term, self.id, self.protocol_version)

    def request_vote(self, member: ClusterMember, log_term: int, position: int, candidate_term: int) -> bool:
        self.cluster.oracle.check_vote(self, candidate_term, self.id)
        return self.send(member.id, "request_vote", log_term, position, candidate_term, self.id, self.protocol_version)

    def place_vote(self, member: ClusterMember, candidate_term: int, log_term: int, position: int, vote: bool) -> None:
        if vote:
            self.cluster.oracle.check_vote(self, candidate_term, member.id)
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
        for term_id in self._terms_to_say(log_term, is_native=not member.is_upstream()):
            entry = self._next_term(term_id, member.log_position if member.is_upstream() else NULL_POSITION)
            following = (term, position, -1)
            if entry is not None:
                following = (entry.id, entry.base, position if entry.end == -1 else entry.end)
            message = NewLeadershipTerm(
                term_id,
                *following,
                term,
                position,
                position,
                commit,
                1,
                self.id,
                session_id,
                is_startup,
                -1 if self.is_java else NATIVE_PROTOCOL_VERSION,
            )
            self.send(member.id, "new_leadership_term", message)

    def _terms_to_say(self, log_term: int, *, is_native: bool) -> list[int]:
        """The terms of which a leader says what follows them: also the last one before that it has something of."""
        own = self._empty_term(log_term) if is_native and not self.is_java else None
        filled = -1 if own is None else self._last_filled_term(own.id, own.base)
        return [log_term] if filled == -1 else [filled, log_term]

    def _next_term(self, log_term: int, position: int) -> Term | None:
        own = self._empty_term(log_term)
        if own is not None and own.base > position and not self.is_java:
            return own
        if self.is_java:
            return next((entry for entry in self.disk.terms if entry.id == log_term + 1), None)
        later = [entry for entry in self.disk.terms if entry.id > log_term]
        return next((entry for entry in later if entry.base != entry.end), later[-1] if later else None)

    def _empty_term(self, term_id: int) -> Term | None:
        """As RecordingLog.find_empty_term."""
        terms = self.disk.terms
        entry = next((each for each in terms if each.id == term_id), None)
        if entry is None:
            before = next((each for each in reversed(terms) if each.id < term_id), None)
            after = next((each for each in terms if each.id > term_id), None)
            if before is not None and after is not None and after.base == before.end:
                entry = Term(term_id, before.base, before.end)
        return None if entry is None or entry.base != entry.end else entry

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
        assert self.is_java or self.commit == election.log_position
        self.commit = election.log_position
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
            end = min(self._stop, position + member.cluster.random.randrange(member.cluster.copy_entries))
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

    def __init__(self, members: int | str, seed: int, *, election_class: type[Election] = Election) -> None:
        kinds = "N" * members if isinstance(members, int) else members
        self.seed, self.random, self.settings = seed, random.Random(seed), ModelSettings()
        self.election_class = election_class
        self.text = "|".join(f"{each},a:1,a:2,a:3,a:4,a:5" for each in range(len(kinds)))
        self.now_ns = 10_000 * MS
        self.loss = 0.1
        #: Whether what one member sends to another comes in order, as by one publication.
        self.is_ordered = False
        self.sync_level = 1
        #: How much a copy gets in a turn: fewer than that.
        self.copy_entries = 4
        #: How long a driver takes to add a log publication: fewer than that.
        self.publication_ticks = 4
        self.cuts: set[int] = set()
        #: Who does not hear whom: (sender, receiver).
        self.broken: set[tuple[int, int]] = set()
        self.append_chance = 0.3
        self.nodes = [Member(self, member_id, is_java=kind == "J") for member_id, kind in enumerate(kinds)]
        self.queue: list[tuple[int, int, int, int, str, tuple[object, ...]]] = []
        self._last_due_ns: dict[tuple[int, int, int], int] = {}
        self._resent: dict[tuple[int, int], tuple[str, tuple[object, ...]]] = {}
        self.oracle = Oracle(len(kinds) // 2 + 1)
        self.faults: Faults | None = None
        self.states: dict[ElectionState, int] = {}
        self.history: list[str] = []
        self.completions = self._entry = 0
        #: How long it took until all followed one leader once all was healed; None: they never did.
        self.healing_ns: int | None = None
        #: For how long nobody led since the faults ended.
        self.leaderless_ns = 0

    @property
    def committed(self) -> list[Entry]:
        """Entries applied, or acknowledged before the run."""
        return self.oracle.committed

    def next_entry(self) -> int:
        """Give out a number that was not there before."""
        self._entry += 1
        return self._entry

    def note(self, member_id: int, text: str) -> None:
        """Keep what happened for a report."""
        self.history.append(f"{self.now_ns // MS:7} {member_id}: {text}")

    def is_heard(self, source: int, target: int) -> bool:
        """Whether what one member sends reaches another."""
        return (source in self.cuts) == (target in self.cuts) and (source, target) not in self.broken

    def is_linked(self, first: int, second: int) -> bool:
        """Whether two members reach each other."""
        return self.is_heard(first, second) and self.is_heard(second, first)

    def heal(self, has_duplicates: bool) -> None:
        """Connect all. A stream that is connected again may give once more what was sent last."""
        if has_duplicates:
            for (source, target), (name, arguments) in self._resent.items():
                if not self.is_heard(source, target):
                    self.queue.append((self.now_ns, self.next_entry(), source, target, name, arguments))
        self.cuts, self.broken = set(), set()

    def on_state(self, member: Member, state: ElectionState) -> None:
        """A member has entered a state."""
        if self.faults is not None:
            self.faults.on_state(member, state)

    def on_truncation(self, member: Member) -> None:
        """A member's recording is truncated, and its recording log does not say so yet."""
        if self.faults is not None:
            self.faults.on_truncation(member)

    def send(self, source: int, target: int, name: str, arguments: tuple[object, ...]) -> None:
        """Lose a message, or deliver it some time later."""
        if self.random.random() >= self.loss and self.is_heard(source, target):
            late = self.random.randrange(4) if self.random.random() < 0.9 else self.random.randrange(60)
            due_ns = self.now_ns + late * TICK_NS
            if self.is_ordered:
                stream = (source, self.nodes[source].life, target)
                due_ns = self._last_due_ns[stream] = max(due_ns, self._last_due_ns.get(stream, 0))
            self.queue.append((due_ns, self.next_entry(), source, target, name, arguments))
            self._resent[source, target] = (name, arguments)

    def find_publication(self, session_id: int | None) -> Member | None:
        """Which member publishes a log."""
        for node in self.nodes:
            if node.is_up and session_id is not None and node.session_id == session_id:
                return node
        return None

    def tick(self) -> None:
        """Deliver what is due, and give each member a turn."""
        self.now_ns += TICK_NS
        due = sorted((each for each in self.queue if each[0] <= self.now_ns), key=lambda each: each[:2])
        self.queue = [message for message in self.queue if message[0] > self.now_ns]
        for _, _, source, target, name, arguments in due:
            if self.nodes[target].is_up and self.is_heard(source, target):
                self.nodes[target].hear(name, arguments)
        for node in self.nodes:
            if node.is_up and self.now_ns >= node.stalled_until_ns:
                node.turn()
        if self.leader() is None:
            self.leaderless_ns += TICK_NS

    def leader(self) -> Member | None:
        """The leader of the newest term outside an election; None: nobody."""
        leaders = [node for node in self.nodes if node.is_up and node.election is None and node.role == Role.LEADER]
        return max(leaders, key=lambda node: node.leadership_term_id, default=None)

    def is_agreed(self) -> bool:
        """Whether one leads, all others follow it, and all have applied something."""
        leader = self.leader()
        return (
            leader is not None
            and all(node.is_up and node.election is None for node in self.nodes)
            and all(node.leadership_term_id == leader.leadership_term_id for node in self.nodes)
            and min(node.commit for node in self.nodes) > 0
        )

    def run(self, ticks: int, on_tick: Callable[[], None] | None = None, *, bound_ns: int = 80_000 * MS) -> None:
        """Disturb the cluster for a while; then heal all, and it must agree within a bound."""
        faults = self.faults = Faults(self)
        faults.begin()
        for _ in range(ticks):
            faults.disturb()
            self.tick()
            if on_tick is not None:
                on_tick()
        self.heal(False)
        self.loss, self.faults, self.leaderless_ns = 0.0, None, 0
        for node in self.nodes:
            node.stalled_until_ns = 0
            if not node.is_up:
                node.start()
        if faults.is_one_deaf:
            self._lead_without_one(bound_ns)
        healed_ns = self.now_ns
        vetoed_ns = 0
        while self.now_ns < healed_ns + bound_ns + min(vetoed_ns, bound_ns):
            self.tick()
            vetoed_ns += TICK_NS if self._is_vetoed_by_upstream_s_rule() else 0
            if self.is_agreed():
                self.healing_ns = self.now_ns - healed_ns
                self.oracle.check_end(self.nodes)
                return
        if self.oracle.is_lossy:
            return
        is_upstreams = vetoed_ns > bound_ns or all(self._is_stuck_by_upstream(node) for node in self.nodes)
        states = ", ".join(
            f"{node.id}{'J' if node.is_java else 'N'} {node.election or 'in term ' + str(node.leadership_term_id)}"
            for node in self.nodes
        )
        raise Violation(
            f"no leader that all follow, with all healed for {bound_ns // (1000 * MS)} s: {states}",
            "liveness",
            UPSTREAMS if is_upstreams else OURS,
        )

    def _lead_without_one(self, bound_ns: int) -> None:
        """The next elected member hears nobody any more, but is heard: the others must still get a leader."""
        begun_ns, deaf = self.now_ns, self.nodes[0]
        while self.now_ns < begun_ns + bound_ns:
            leading = [node for node in self.nodes if node.role == Role.LEADER]
            if not self.broken and (leading or self.now_ns > begun_ns + 5_000 * MS):
                deaf = next(iter(leading), deaf)
                self.broken = {(node.id, deaf.id) for node in self.nodes if node is not deaf}
            self.tick()
            leader = self.leader()
            if leader is not None and leader is not deaf and self.broken:
                followers = [node for node in self.nodes if node.election is None]
                if (
                    sum(node.leadership_term_id == leader.leadership_term_id for node in followers)
                    >= self.oracle.threshold
                ):
                    self.heal(False)
                    return
        if not self.oracle.is_lossy:
            raise Violation(
                f"no leader while member {deaf.id} hears nobody: {[node.election for node in self.nodes]}", "liveness"
            )
        self.heal(False)

    def _is_stuck_by_upstream(self, node: Member) -> bool:
        """Whether a member follows, or waits where one of upstream's alone holds another for ever."""
        if self._has_forgotten_its_term():
            return True
        election, leader = node.election, self.leader()
        if election is None and leader is not None:
            return node.leadership_term_id == leader.leadership_term_id
        if self._waits_for_one_of_upstreams(node):
            return True
        if isinstance(election, JavaElection) and election.state is ElectionState.LEADER_LOG_REPLICATION:
            # A native member of a newer term would have freed it.
            newest = max((each.leadership_term_id for each in self.nodes if not each.is_java), default=-1)
            return newest <= election.leadership_term_id
        return all(each.is_java for each in self.nodes)

    def _is_vetoed_by_upstream_s_rule(self) -> bool:
        """Whether a member with a newer log refuses the appointed leader, which wins only where that comes too late.

        Beside members of upstream's one refusal outweighs a quorum, as among them.
        """
        appointed_id = self.settings.appointed_leader_id
        if appointed_id == -1 or not any(node.is_java for node in self.nodes):
            return False
        appointed = self.nodes[appointed_id]
        election = appointed.election
        return (
            election is not None
            and election.state in _BEFORE_A_LEADER
            and (
                any(node.is_up and not would_vote(node, appointed) for node in self.nodes)
                or (isinstance(election, JavaElection) and not self._can_nominate_itself(election, appointed))
            )
        )

    def _can_nominate_itself(self, election: JavaElection, appointed: Member) -> bool:
        """Whether an appointed leader of upstream's has a quorum to ask for votes, or had it if all of ours spoke.

        It has none where one of upstream's waits for ever, and one of ours has nothing and has entered a newer term.
        That one would vote; but its log is the better one by upstream's rule, as that of one of theirs would be.
        """
        able = 0
        for node in self.nodes:
            member = appointed.members.find(node.id)
            assert member is not None
            if member.log_position == NULL_POSITION:
                able += not self._waits_for_one_of_upstreams(node)
            else:
                able += election.would_vote(member) or last_of(node) <= last_of(appointed)
        return election.state is not ElectionState.CANVASS or able >= self.oracle.threshold

    def _waits_for_one_of_upstreams(self, node: Member) -> bool:
        """Whether it waits for a leader of upstream's as upstream's members do, for ever."""
        election = node.election
        return (
            isinstance(election, JavaElection)
            and election.leader is not None
            and election.state in _AFTER_A_LEADER
            and self.nodes[election.leader.id].is_java
        )

    def _has_forgotten_its_term(self) -> bool:
        """Whether the appointed leader is one of upstream's, and died before it recorded a term that a follower has.

        Nobody else may lead, and its log is worse than the follower's then.
        """
        appointed_id = self.settings.appointed_leader_id
        if appointed_id == -1 or not self.nodes[appointed_id].is_java:
            return False
        appointed = self.nodes[appointed_id]
        recorded = [term.id for node in self.nodes for term in node.disk.terms]
        led = [term_id for term_id, leader in self.oracle.leaders.items() if leader is appointed]
        return any(term_id in recorded and term_id > last_of(appointed)[0] for term_id in led)
