"""One election with a host that notes what it is asked for, and does what a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from container.api import Role
from container.consensus.cluster_member import (
    NATIVE_PROTOCOL_VERSION,
    ClusterMember,
    ClusterMembers,
    parse_cluster_members,
)
from container.consensus.election import Election
from container.consensus.election_host import ElectionState, NewLeadershipTerm

MS = 1_000_000
SESSION_ID = 777
RECORDING_ID = 600
type Call = tuple[Any, ...]


@dataclass(slots=True)
class WorldSettings:
    """Upstream's defaults."""

    startup_canvass_timeout_ns: int = 60_000 * MS
    election_timeout_ns: int = 1_000 * MS
    election_status_interval_ns: int = 100 * MS
    leader_heartbeat_interval_ns: int = 200 * MS
    leader_heartbeat_timeout_ns: int = 10_000 * MS
    appointed_leader_id: int = -1


@dataclass(slots=True)
class ScriptedReplay:
    """A replay that is where the test puts it."""

    host: ScriptedHost
    at: int
    done: bool = False
    work: int = 1

    def do_work(self) -> int:
        return self.work

    def is_done(self) -> bool:
        return self.done

    def position(self) -> int:
        return self.at

    def close(self) -> None:
        self.host.calls.append(("close_replay",))


@dataclass(slots=True)
class ScriptedReplication:
    """A replication that is where the test puts it."""

    host: ScriptedHost
    position: int = -1
    is_done: bool = False
    recording_id: int = -1

    def do_work(self, now_ns: int) -> int:
        del now_ns
        return 0

    def on_signal(self, correlation_id: int, recording_id: int, position: int, signal: int) -> None:
        del correlation_id, signal
        self.recording_id, self.position = recording_id, position

    def close(self) -> None:
        self.host.calls.append(("close_replication",))


@dataclass(slots=True)
class ScriptedHost:
    """Notes every call, with ids for members; what it answers are fields."""

    calls: list[Call] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    now: int = 0
    role: int = int(Role.FOLLOWER)
    time_of_last_leader_update_ns: int = 0
    draw: float = 0.5
    commit: int = 0
    snapshot: bool = False
    persisted: int = -1
    ends: dict[int, int] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    left_out: bool = False
    prepared: int | Exception | None = -1
    publication: int | Exception | None = SESSION_ID
    joined_as_leader: bool = True
    event_goes: bool = True
    join_position: int | None = None
    joined_as_follower: bool = True
    recorded: int = -1
    sends: bool = True
    near_live: bool = False
    catching_up: bool = True
    truncated: bool = True
    replay: ScriptedReplay | None = None
    replication: ScriptedReplication | None = None

    def note(self, *call: Any) -> None:
        self.calls.append(tuple(each.id if isinstance(each, ClusterMember) else each for each in call))

    def set_role(self, role: int) -> None:
        self.role = int(role)

    def set_election_state(self, state: int, reason: str) -> None:
        self.states.append(ElectionState(state).name)
        self.reasons.append(reason)

    def now_ns(self) -> int:
        return self.now

    def random(self) -> float:
        return self.draw

    def report(self, error: BaseException) -> None:
        self.errors.append(error)

    def commit_position(self) -> int:
        return self.commit

    def is_taking_snapshot(self) -> bool:
        return self.snapshot

    def candidate_term_id(self) -> int:
        return self.persisted

    def update_candidate_term_id(self, candidate_term_id: int, log_position: int) -> None:
        self.note("persist", candidate_term_id, log_position)
        self.persisted = candidate_term_id

    def propose_max_candidate_term_id(self, candidate_term_id: int, log_position: int) -> int:
        self.note("persist", candidate_term_id, log_position)
        self.persisted = max(self.persisted, candidate_term_id)
        return self.persisted

    def end_of_term(self, leadership_term_id: int) -> int:
        return self.ends.get(leadership_term_id, 0)

    def ensure_term(self, initial_term: int, initial_base: int, term: int, base: int, end: int) -> None:
        self.note("ensure_term", initial_term, initial_base, term, base, end)

    def set_log_recording_id(self, recording_id: int) -> None:
        self.note("set_log_recording_id", recording_id)

    def begin_preparation(self, log_position: int) -> None:
        self.note("begin_preparation", log_position)

    def poll_preparation(self) -> int | None:
        if isinstance(self.prepared, Exception):
            raise self.prepared
        return self.prepared

    def begin_log_publication(self, append_position: int) -> None:
        self.note("begin_log_publication", append_position)

    def poll_log_publication(self) -> int | None:
        if isinstance(self.publication, Exception):
            raise self.publication
        return self.publication

    def begin_join_as_leader(self, term: int, log_position: int, session_id: int, is_startup: bool) -> None:
        self.note("begin_join_as_leader", term, log_position, session_id, is_startup)

    def poll_join_as_leader(self) -> bool:
        return self.joined_as_leader

    def append_new_leadership_term_event(self, term: int, log_position: int) -> bool:
        self.note("append_new_leadership_term_event", term, log_position)
        return self.event_goes

    def update_leader_position(self, now_ns: int, quorum_position: int) -> int:
        self.note("update_leader_position", now_ns, quorum_position)
        return 0

    def add_log_subscription(self, session_id: int, is_catchup: bool) -> None:
        self.note("add_log_subscription", session_id, is_catchup)

    def log_join_position(self) -> int | None:
        return self.join_position

    def begin_join_as_follower(self, is_startup: bool) -> None:
        self.note("begin_join_as_follower", is_startup)

    def poll_join_as_follower(self) -> bool:
        return self.joined_as_follower

    def recorded_position(self) -> int:
        return self.recorded

    def send_catchup_position(self, leader: ClusterMember, term: int, log_position: int) -> bool:
        self.note("send_catchup_position", leader, term, log_position)
        return self.sends

    def poll_catchup(self, leader: ClusterMember, term: int, limit: int) -> int:
        self.note("poll_catchup", leader, term, limit)
        return 0

    def is_catchup_near_live(self, position: int) -> bool:
        self.note("is_catchup_near_live", position)
        return self.near_live

    def add_live_log_destination(self) -> None:
        self.note("add_live_log_destination")

    def is_catching_up(self) -> bool:
        return self.catching_up

    def track_catchup_completion(self, member: ClusterMember, term: int, flags: int) -> None:
        self.note("track_catchup_completion", member, term, flags)

    def begin_truncation(self, term: int, position: int) -> None:
        self.note("begin_truncation", term, position)

    def poll_truncation(self) -> bool:
        return self.truncated

    def new_log_replay(self, position: int, stop: int) -> ScriptedReplay:
        self.note("new_log_replay", position, stop)
        self.replay = ScriptedReplay(self, position)
        return self.replay

    def new_log_replication(
        self, leader: ClusterMember, recording_id: int, stop: int, now_ns: int
    ) -> ScriptedReplication:
        del now_ns
        self.note("new_log_replication", leader, recording_id, stop)
        self.replication = ScriptedReplication(self)
        return self.replication

    def publish_canvass_position(self, log_term: int, append_position: int, term: int) -> None:
        self.note("canvass", log_term, append_position, term)

    def request_vote(self, member: ClusterMember, log_term: int, append_position: int, candidate_term: int) -> bool:
        self.note("request_vote", member, log_term, append_position, candidate_term)
        return self.sends

    def place_vote(
        self, candidate: ClusterMember, candidate_term: int, log_term: int, append_position: int, vote: bool
    ) -> None:
        self.note("vote", candidate, candidate_term, log_term, append_position, vote)

    def publish_new_leadership_term(
        self,
        member: ClusterMember,
        log_term: int,
        term: int,
        append_position: int,
        commit_position: int,
        session_id: int,
        is_startup: bool,
    ) -> None:
        self.note("new_term", member, log_term, term, append_position, commit_position, session_id, is_startup)

    def send_canvass_position(self, member: ClusterMember, log_term: int, append_position: int, term: int) -> None:
        self.note("canvass_to", member, log_term, append_position, term)

    def base_of_term(self, term: int) -> int:
        return self.bases.get(term, -1)

    def base_after_term(self, term: int) -> int:
        return self.bases.get(min((each for each in self.bases if each > term), default=-1), -1)

    def first_empty_term(self, term: int) -> int:
        while (before := max((each for each in self.bases if each < term), default=-1)) != -1:
            if self.bases[before] != self.bases[term]:
                break
            term = before
        return term

    def last_filled_term(self, term: int) -> int:
        return max((each for each in self.bases if self.bases[each] < self.bases[term]), default=-1)

    def is_left_out(self, term: int) -> bool:
        del term
        return self.left_out

    def drop_empty_terms(self, first_term: int) -> int:
        self.note("drop_empty_terms", first_term)
        return first_term - 1

    def publish_commit_position(self, commit_position: int, term: int) -> None:
        self.note("commit", commit_position, term)

    def send_append_position(self, leader: ClusterMember, term: int, append_position: int, flags: int) -> bool:
        self.note("append", leader, term, append_position, flags)
        return self.sends

    def election_complete(self, now_ns: int) -> None:
        self.note("election_complete", now_ns)


class Scene:
    """An election of one of several members; a step takes a millisecond unless a test says more."""

    def __init__(
        self,
        *,
        me: int = 1,
        count: int = 3,
        term: int = -1,
        base: int = 0,
        position: int = 0,
        append: int | None = None,
        is_startup: bool = True,
        graceful_leader: int = -1,
        appointed_leader: int = -1,
        persisted: int = -1,
    ) -> None:
        self.settings = WorldSettings(appointed_leader_id=appointed_leader)
        self.host = ScriptedHost(now=1_000_000 * MS, commit=position, persisted=persisted)
        self.host.time_of_last_leader_update_ns = self.host.now
        append = position if append is None else append
        self.host.prepared = append
        text = "|".join(f"{each},in:1,con:2,log:3,catch:4,arch:5" for each in range(count))
        self.members = ClusterMembers(parse_cluster_members(text), me)
        self.election = Election(
            self.host,
            self.settings,
            self.members,
            is_node_startup=is_startup,
            graceful_closed_leader_id=graceful_leader,
            leadership_term_id=term,
            term_base_log_position=base,
            log_position=position,
            append_position=append,
        )

    @property
    def state(self) -> str:
        return self.election.state.name

    def wait(self, duration_ns: int) -> None:
        self.host.now += duration_ns

    def step(self, duration_ns: int = MS, *, times: int = 1) -> None:
        """Let time pass, and take a turn as the agent does."""
        for _ in range(times):
            self.wait(duration_ns)
            try:
                self.election.do_work(self.host.now)
            except Exception as error:
                self.election.handle_error(self.host.now, error)

    def hear(self, name: str, *arguments: Any) -> None:
        """Take a message as the agent does; a member that does not say its version is native."""
        if len(arguments) == 4 and name in ("canvass_position", "request_vote"):
            arguments += (NATIVE_PROTOCOL_VERSION,)
        try:
            getattr(self.election, "on_" + name)(*arguments)
        except Exception as error:
            self.election.handle_error(self.host.now, error)

    def hear_new_term(
        self,
        leader: int = 0,
        *,
        log_term: int,
        term: int,
        base: int,
        position: int | None = None,
        following: tuple[int, int, int] = (-1, -1, -1),
        commit: int = 0,
        is_startup: bool = False,
        version: int = NATIVE_PROTOCOL_VERSION,
    ) -> None:
        """A leader's NewLeadershipTerm."""
        self.hear(
            "new_leadership_term",
            NewLeadershipTerm(
                log_term,
                *following,
                term,
                base,
                base if position is None else position,
                commit,
                RECORDING_ID,
                leader,
                SESSION_ID,
                is_startup,
                version,
            ),
        )

    def sent(self, name: str) -> list[Call]:
        """Take the host's requests under a name."""
        found = [call[1:] for call in self.host.calls if call[0] == name]
        self.host.calls = [call for call in self.host.calls if call[0] != name]
        return found

    def canvassed(self, *others: tuple[int, int, int], version: int = NATIVE_PROTOCOL_VERSION) -> None:
        """Bring it to CANVASS, and let others say their ids, terms and positions."""
        self.step()
        assert self.state == "CANVASS"
        for member_id, term, position in others:
            self.hear("canvass_position", term, position, term, member_id, version)

    def pause_ms(self) -> int:
        """For how long it does not nominate itself, though it has heard all others."""
        began, term, position = self.host.now, self.election.log_leadership_term_id, self.election.append_position
        while self.state != "NOMINATE":
            for member in self.members.others():
                self.hear("canvass_position", term, position, term, member.id)
            self.step()
        return (self.host.now - began) // MS

    def elected(self, *others: tuple[int, int, int], version: int = NATIVE_PROTOCOL_VERSION) -> None:
        """Bring it to LEADER_LOG_REPLICATION, with the votes of all others."""
        self.canvassed(*others, version=version)
        self.step()
        self.step(self.settings.election_timeout_ns >> 1)
        self.step()
        assert self.state == "CANDIDATE_BALLOT"
        me, candidate_term = self.members.this_member.id, self.election.candidate_term_id
        for member_id, term, position in others:
            self.hear("vote", candidate_term, term, position, me, member_id, True)
        self.step()
        assert self.state == "LEADER_LOG_REPLICATION"
