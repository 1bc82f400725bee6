"""The part of a simulated cluster that all members share: the agreed log, replication, elections, clients, timers.

It is legal by construction: what is committed is on a majority, and whoever leads has all of it. So what a member's
service does beyond that is the service's fault, or the container's.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from container.api import CloseReason, TimeUnit
from container.common.aeron_defaults import EGRESS_STREAM_ID
from container.common.differences import shown_apart
from container.common.values import counted, shown
from container.settings.callback_errors import HALT
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_member import Service
from container.testing.memory.scripted_consensus_module import CancelTimer, ScheduleTimer, SessionMessage
from container.testing.memory.scripted_messages import ClusterAction, encode, service_session_id
from container.testing.simulation import plan as plans
from container.testing.simulation.compared_states import ComparedStates
from container.testing.simulation.observed_service import ObservedService
from container.testing.simulation.plan import LEADER, OPERATIONS, Plan
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.simulated_member import EGRESS_CHANNEL, INITIAL_TERM_ID, SimulatedMember
from container.testing.simulation.virtual_time import Draws, Trace, VirtualTime

MESSAGE, TIMER, OPEN, CLOSE, TERM, SNAPSHOT = range(1, 7)
_FRAME_HEADER_LENGTH = 32
_SESSION_MESSAGE, _NO_SESSION = "SessionMessageHeader", -1
_BEGIN_NS = 1_000_000_000
_HORIZON_MS = 3_600_000
_LATE_TIMERS_NS = 1_000_000_000
"""How long timers come after the last event of a plan: a service may schedule the next one for ever."""
# Purposes of draws.
_LATENCY, _CUT, _CUT_AT, _ELECTION, _WINNER, _DETECTION = range(10, 16)
_TICKS_PER_MS = {TimeUnit.MILLIS: 1, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1_000_000}


type Expected = tuple[int, int, int, int, bytes]
"""A callback that members get: log position, kind, id, timestamp, payload."""


type Answer = tuple[bytes, int]
"""An answer to a client: payload, and the cluster time of the event that it is sent in."""


class Entry(NamedTuple):
    """A message of the agreed log."""

    begin: int
    """Where its first frame begins, or the padding before it."""
    position: int
    kind: int
    number: int
    """The number of a client that opened, or of a service's own message from 1 on; 0 for others."""
    event_id: int
    timestamp: int
    term_id: int


class Finding(NamedTuple):
    """Forbidden behaviour in a run."""

    oracle: str
    """The comparison that failed: ``delivery``, ``state``, ``snapshot``, ``requests``, ``acks``, ``answers``,
    ``errors``, ``end``, ``resources`` or ``progress``."""
    text: str
    """The difference, in words."""
    member: int | None
    """The id of the member; ``None`` if it concerns no single one."""
    log_position: int
    """The log position of the callback or message."""
    time_ms: float
    """The time of the finding, in milliseconds of virtual time."""


class SimulationStop(Exception):
    """Ends a run at its first finding."""


class Reign:
    """A leadership term: who leads, from where in the log, and what clients received from that leader."""

    def __init__(self, term_id: int, leader: SimulatedMember, base: int, *, is_startup: bool) -> None:
        self.term_id = term_id
        self.leader = leader
        self.base = base
        self.is_startup = is_startup
        """It follows on an outage of all members: clients have to connect again."""
        self.is_open = False
        self.has_begun = False
        self.snapshot_position = 0
        self.matched: dict[int, int] = {}
        self.leader_life = leader.life
        self.egress: list[tuple[int, Answer]] = []


class SimulatedCluster:
    """Members, the log that they agree on, and the clients; driven by a plan."""

    def __init__(
        self,
        plan: Plan,
        make_service: Callable[[], Service],
        *,
        state: Callable[[Any], Any] | None = None,
        tolerates: Callable[[BaseException], bool] | None = None,
        callback_error_policy: str = HALT,
        probe_every: int = 8,
        narrate: Callable[[str], object] | None = None,
    ) -> None:
        self.plan = plan
        self.make_service = make_service
        self.state_of = state
        self.tolerates = tolerates
        self.callback_error_policy = callback_error_policy
        self.probe_every = probe_every
        self.time = VirtualTime()
        self.time.now_ns = _BEGIN_NS
        self.draws = Draws(plan.seed)
        self.trace = Trace()
        self.scheduler = Scheduler(self.time, self.draws)
        self.log = self._new_log()
        self.channels = (EGRESS_CHANNEL,)
        self.entries: list[Entry] = []
        self.expected: list[Expected] = []
        self.commit_position = 0
        self.sessions: dict[int, bytes] = {}
        self.clients: dict[int, int] = {}
        self.requests: list[Any] = []
        self.senders: list[str] = []
        self.service_messages: list[bytes] = []
        self.timers: dict[int, int] = {}
        self.states = ComparedStates("state", is_messages=state is None)
        self.snapshots = ComparedStates("snapshot", is_messages=True)
        self.reigns: list[Reign] = []
        self.reign: Reign | None = None
        self.waiting: deque[Any] = deque()
        self.findings: list[Finding] = []
        self.reached: dict[str, int] = {}
        self.delivered = 0
        self._next_session_id = 1
        self._logged_service_messages = 0
        self._other_service_messages = 0
        self._last_timestamp = 0
        self._frame_ends: list[int] = []
        self._sends = 0
        self._next_cut: plans.CutMessage | None = None
        self._is_election_due = False
        self._is_outage = True
        self._timer_due_ns = 0
        self._last_timer_ns = 0
        self._narrate = narrate
        self.members = [SimulatedMember(self, number) for number in range(plan.members)]
        self.majority = plan.members // 2 + 1

    # --- the run

    def run(self, limit_ms: int = 120_000) -> None:
        """Do what the plan says, then wait until all members have all of the log; stop at the first finding."""
        last_ms = 0
        for member in self.members:
            self.scheduler.at(_BEGIN_NS, member.start, plans.Start.SNAPSHOT)
        for event in self.plan.events:
            last_ms = max(last_ms, event.at, event.at + getattr(event, "down", getattr(event, "duration", 0)))
            self.scheduler.at(_BEGIN_NS + (1 + event.at) * 1_000_000, self._happen, event)
        try:
            end_ns = _BEGIN_NS + (last_ms + 2) * 1_000_000
            self._last_timer_ns = end_ns + _LATE_TIMERS_NS
            self._run_until(lambda: self.time.now_ns > end_ns and self._is_quiet(), end_ns, limit_ms)
            self.waiting.append(plans.TakeSnapshot(at=last_ms))
            self._lead()
            self._run_until(self._is_quiet, self.time.now_ns, limit_ms)
            for member in self.members:
                member.check_end()
        except SimulationStop:
            pass
        finally:
            for member in self.members:
                member.switch_off()
            self.scheduler.close()

    def _run_until(self, is_done: Callable[[], bool], since_ns: int, limit_ms: int) -> None:
        limit_ns = limit_ms * 1_000_000
        end_ns = since_ns + limit_ns
        step, scheduler = 0, self.scheduler
        seen: list[int] = []
        while scheduler.step():
            if self.findings:
                raise SimulationStop
            step += 1
            if step & 63 == 0 or self.time.now_ns > end_ns:
                if is_done():
                    return
                indexes = [member.service_index for member in self.members]
                if indexes != seen:  # something was delivered
                    seen = indexes
                    end_ns = max(since_ns, self.time.now_ns) + limit_ns
                elif self.time.now_ns > end_ns:
                    break
        if not is_done():
            self.find("progress", f"no progress within {limit_ms} ms of virtual time: {self.describe()}")
            raise SimulationStop

    def _is_quiet(self) -> bool:
        reign = self.reign
        if reign is None or not reign.is_open or not reign.has_begun or self.waiting or not self.is_leading():
            return False
        return all(member.is_quiet() for member in self.members)

    def describe(self) -> str:
        """Where each member is, in a line."""
        leader = "none" if self.reign is None else self.reign.leader.id
        return (
            f"leader {leader}, log to {self.log.tail_position}, committed to {self.commit_position}, "
            f"{counted(len(self.waiting), 'operation')} waiting; "
            + "; ".join(member.describe() for member in self.members)
        )

    def find(self, oracle: str, text: str, member: SimulatedMember | None = None, log_position: int = -1) -> None:
        """Note a finding; the run stops at the next event."""
        position = member.position if member is not None and log_position < 0 else log_position
        self.findings.append(Finding(oracle, text, None if member is None else member.id, position, self.elapsed_ms))
        self.say(member, f"FINDING {oracle}: {text}")

    def reach(self, name: str) -> None:
        """Count something that a run sometimes comes to."""
        self.reached[name] = self.reached.get(name, 0) + 1

    def say(self, member: SimulatedMember | None, text: str) -> None:
        """Add a line to the story of the run, if somebody reads it."""
        if self._narrate is not None:
            who = "cluster " if member is None else f"member {member.id}"
            self._narrate(f"{self.elapsed_ms:10.3f} ms  {who}  {text}")

    @property
    def elapsed_ms(self) -> float:
        """Virtual time since the run began."""
        return (self.time.now_ns - _BEGIN_NS) / 1e6

    # --- what the plan says

    def _happen(self, event: Any) -> None:
        if isinstance(event, OPERATIONS):
            self.waiting.append(event)
            self._lead()
        elif isinstance(event, plans.Elect):
            self.reach("Elect")
            self._elect(others_first=True)
        elif isinstance(event, plans.CutMessage):
            self._next_cut = event
        else:
            member = self._member(event.member)
            if member is not None:
                self.trace.note(self.time.now_ns, 1, member.id, event.at)
                if member.is_up:
                    self.reach(type(event).__name__)
                member.suffer(event)

    def _member(self, number: int) -> SimulatedMember | None:
        if number == LEADER:
            return None if self.reign is None else self.reign.leader
        return self.members[number] if number < len(self.members) else None

    # --- the log

    def _new_log(self) -> MemoryLog:
        return MemoryLog(
            session_id=1,
            term_length=self.plan.term_length,
            mtu_length=self.plan.mtu_length,
            initial_term_id=INITIAL_TERM_ID,
        )

    def is_leading(self) -> bool:
        """Can the leader append now? It cannot while it joins its log, or waits for a snapshot that it logged."""
        reign = self.reign
        return (
            reign is not None
            and reign.is_open
            and reign.leader.is_joined_to(reign)
            and reign.leader.waiting_for is None
            and reign.leader.position >= reign.snapshot_position
        )

    def timestamp(self) -> int:
        """Cluster time: what the leader's clock says, and never less than before."""
        assert self.reign is not None
        clock = self.reign.leader.clock
        if self.plan.time_unit is TimeUnit.MILLIS:
            now = clock.now_ms
        else:
            now_ns = clock.epoch_ms_at_zero * 1_000_000 + self.time.now_ns
            now = now_ns // 1_000 if self.plan.time_unit is TimeUnit.MICROS else now_ns
        self._last_timestamp = max(now, self._last_timestamp)
        return self._last_timestamp

    def _append(
        self,
        kind: int,
        name: str,
        *,
        number: int = 0,
        event_id: int,
        payload: bytes = b"",
        body: bytes = b"",
        **fields: Any,
    ) -> None:
        reign = self.reign
        assert reign is not None
        timestamp = self.timestamp()
        fields |= {"leadership_term_id": reign.term_id, "timestamp": timestamp}
        if kind in (TERM, SNAPSHOT):  # they name their own end
            length = len(encode(name, **fields, log_position=0))
            fields["log_position"] = self.log.position_after(length)
        message = encode(name, **fields) + body
        begin = self.log.tail_position
        position = self.log.append(message)
        self._note_frames(len(message), position)
        self.entries.append(Entry(begin, position, kind, number, event_id, timestamp, reign.term_id))
        if kind != SNAPSHOT:
            self.expected.append((position, kind, event_id, timestamp, payload))
        self.trace.note(self.time.now_ns, 2, kind, position)
        if self._narrate is not None:
            self.say(reign.leader, f"logs {name} {event_id} to {position} {payload[:40]!r}")

    def _note_frames(self, length: int, position: int) -> None:
        most = self.plan.mtu_length - _FRAME_HEADER_LENGTH
        while length > most:
            rest = length - most
            whole, last = divmod(rest, most)
            framed = whole * self.plan.mtu_length + (-(-(last + _FRAME_HEADER_LENGTH) // 32) * 32 if last else 0)
            self._frame_ends.append(position - framed)
            length = rest
        self._frame_ends.append(position)

    def _replicate(self) -> None:
        """Give the new end of the log to all members that follow it."""
        reign = self.reign
        assert reign is not None
        tail = self.log.tail_position
        reign.leader.receive(tail)
        if self._next_cut is not None and self._cut_message(reign, self._next_cut):
            return
        for member in self.members:
            if member is not reign.leader and member.is_joined_to(reign) and member.sent_position < tail:
                self.send(member)
        self._update_commit(reign)

    def _cut_message(self, reign: Reign, event: plans.CutMessage) -> bool:
        """Send the first frames of the last message and let the leader die, if the message has several."""
        last = self.entries[-1]
        first = bisect_right(self._frame_ends, max(last.begin, reign.base))
        inside = self._frame_ends[first:-1]
        if not inside:
            return False
        self._next_cut = None
        self.reach("CutMessage")
        for member in self.members:
            if member is not reign.leader and member.is_joined_to(reign) and member.sent_position <= last.begin:
                self._sends += 1
                end = inside[self.draws.below(_CUT_AT, self._sends, len(inside))]
                self._send_to(member, reign, end)
        crash = plans.Crash(at=event.at, member=reign.leader.id, down=event.down)
        self.scheduler.after(20 * self.latency_ns(), self._kill_leader, reign, crash)
        return True

    def _kill_leader(self, reign: Reign, crash: plans.Crash) -> None:
        if reign is self.reign:
            reign.leader.suffer(crash)

    def index_after(self, position: int) -> int:
        """The first entry behind a log position."""
        return bisect_right(self.entries, position, key=lambda entry: entry.position)

    def expected_after(self, position: int) -> int:
        """The first callback behind a log position."""
        return bisect_right(self.expected, position, key=lambda entry: entry[0])

    # --- replication

    def latency_ns(self) -> int:
        """How long something takes to another member."""
        least, mean = self.plan.latency_us
        self._sends += 1
        return self.draws.delay_ns(_LATENCY, self._sends, least * 1_000, mean * 1_000)

    def send(self, member: SimulatedMember) -> None:
        """Send a member what it lacks of the log; it arrives later, and maybe not all of it."""
        reign = self.reign
        tail = self.log.tail_position
        if reign is None or member.is_cut_off or reign.leader.is_cut_off or not reign.leader.is_up:
            return
        end = tail
        if self.plan.cut_rate and self.draws.happens(_CUT, self._sends, self.plan.cut_rate):
            first = bisect_right(self._frame_ends, member.sent_position)
            last = len(self._frame_ends)
            if last - first > 1:
                end = self._frame_ends[first + self.draws.below(_CUT_AT, self._sends, last - first)]
        self._send_to(member, reign, end)
        if end < tail:
            self.scheduler.after(5 * self.latency_ns(), self._send_rest, member, member.life, reign)

    def _send_to(self, member: SimulatedMember, reign: Reign, end: int) -> None:
        member.sent_position = max(member.sent_position, end)
        member.arrival_ns = max(member.arrival_ns, self.time.now_ns + self.latency_ns())
        self.scheduler.at(member.arrival_ns, self._arrive, member, member.life, reign, end)

    def _send_rest(self, member: SimulatedMember, life: int, reign: Reign) -> None:
        if reign is self.reign and member.life == life and member.sent_position < self.log.tail_position:
            self.send(member)

    def _arrive(self, member: SimulatedMember, life: int, reign: Reign, end: int) -> None:
        if reign is not self.reign or member.life != life or member.is_cut_off or not member.is_joined_to(reign):
            return
        member.receive(end)
        self.trace.note(self.time.now_ns, 3, member.id, end)
        self.scheduler.after(self.latency_ns(), self._match, member, life, reign, end)

    def _match(self, member: SimulatedMember, life: int, reign: Reign, end: int) -> None:
        if reign is self.reign and member.life == life:
            reign.matched[member.id] = max(reign.matched.get(member.id, 0), end)
            self._update_commit(reign)

    def _update_commit(self, reign: Reign) -> None:
        leader = reign.leader
        if reign is not self.reign or not reign.is_open or not leader.is_up or leader.is_cut_off:
            return
        positions = sorted(
            leader.appended_position if member is leader else reign.matched.get(member.id, 0) for member in self.members
        )
        commit = positions[-self.majority]
        if commit > self.commit_position:
            self.commit_position = commit
            leader.learn_commit(commit)
            for member in self.members:
                if member is not leader and member.is_joined_to(reign) and not member.is_cut_off:
                    self.scheduler.after(self.latency_ns(), self._announce, member, member.life, reign, commit)

    def _announce(self, member: SimulatedMember, life: int, reign: Reign, commit: int) -> None:
        if member.life == life and member.is_joined_to(reign) and not member.is_cut_off:
            member.learn_commit(commit)

    # --- elections

    def on_member_lost(self, member: SimulatedMember) -> None:
        """A member ended or lost its network: if it led, the others notice after a while."""
        if not any(each.is_up for each in self.members):
            self._is_outage = True
        if self.reign is not None and self.reign.leader is member:
            self._sends += 1
            delay_ns = self.draws.delay_ns(_DETECTION, self._sends, 1_000_000, 30_000_000)
            self.scheduler.after(delay_ns, self._elect_after, self.reign)

    def _elect_after(self, reign: Reign) -> None:
        leader = reign.leader
        if reign is self.reign and (leader.life != reign.leader_life or leader.is_cut_off):
            self._elect()

    def on_member_back(self, member: SimulatedMember) -> None:
        """A member is ready, or has its network again."""
        reign = self.reign
        member.ask_module()
        if reign is None:
            if not self._is_election_due:
                self._is_election_due = True
                self._sends += 1
                self.scheduler.after(
                    self.draws.delay_ns(_ELECTION, self._sends, 1_000_000, 10_000_000), self._elect_if_nobody_leads
                )
        elif reign.leader is member:
            for other in self.members:
                if other is not member and other.is_joined_to(reign):
                    other.sent_position = other.appended_position
                    self.send(other)
            self._update_commit(reign)
        elif member.is_joined_to(reign):
            member.sent_position = member.appended_position
            self.send(member)
            if self.commit_position > member.known_commit:
                self.scheduler.after(
                    self.latency_ns(), self._announce, member, member.life, reign, self.commit_position
                )

    def _elect_if_nobody_leads(self) -> None:
        self._is_election_due = False
        if self.reign is None:
            self._elect()

    def _elect(self, *, others_first: bool = False) -> None:
        candidates = [member for member in self.members if member.is_up and member.is_ready and not member.is_cut_off]
        former = self.reign
        self.reign = None
        if len(candidates) < self.majority:
            self.say(None, f"no leader: {len(candidates)} members are there, and {self.majority} are needed")
            return
        longest = max(member.appended_position for member in candidates)
        best = [member for member in candidates if member.appended_position == longest]
        if others_first and former is not None and len(best) > 1:
            best = [member for member in best if member is not former.leader]
        elif others_first and former is not None and best == [former.leader] and len(candidates) > self.majority:
            # The former leader is alone with the end of its log, which the others never got: it loses its vote.
            candidates.remove(former.leader)
            longest = max(member.appended_position for member in candidates)
            best = [member for member in candidates if member.appended_position == longest]
        self._sends += 1
        winner = best[self.draws.below(_WINNER, self._sends, len(best))]
        self._truncate(longest)
        term_id = self.reigns[-1].term_id + 1 if self.reigns else 0
        self.reign = reign = Reign(term_id, winner, longest, is_startup=self._is_outage)
        self._is_outage = False
        self.reigns.append(reign)
        self.reach("election")
        self.trace.note(self.time.now_ns, 4, winner.id, longest)
        self.say(None, f"member {winner.id} is elected for term {term_id}, which begins at {longest}")
        self.scheduler.after(self.draws.delay_ns(_ELECTION, self._sends, 500_000, 5_000_000), self._open_reign, reign)

    def _open_reign(self, reign: Reign) -> None:
        """Enough members have the leader's log: it is committed, and they join."""
        if reign is not self.reign:
            return
        taking_part = [member for member in self.members if member.is_up and member.is_ready and not member.is_cut_off]
        if reign.leader not in taking_part or len(taking_part) < self.majority:
            self._elect()
            return
        self.commit_position = max(self.commit_position, reign.base)
        reign.is_open = True
        for member in taking_part:
            member.appended_position = member.sent_position = reign.base
            reign.matched[member.id] = reign.base
            member.known_commit = max(member.known_commit, reign.base)
            member.ask_module()

    def _truncate(self, position: int) -> None:
        """Forget what was not committed and no elector has."""
        for member in self.members:
            member.appended_position = min(member.appended_position, position)
            member.sent_position = member.appended_position
            if member.is_up:
                member.cut_log(position)
        if self.log.tail_position <= position:
            return
        if position < self.commit_position:
            raise AssertionError(f"the simulator lost committed messages: {position} < {self.commit_position}")
        self.say(None, f"the log from {position} to {self.log.tail_position} was not committed and is gone")
        following = self.entries[self.index_after(position) :]
        # Without an entry behind the position, only a part of a message is there, which an earlier cut has left.
        is_inside = not following or following[0].begin < position < following[0].position
        self.reach("log cut inside a message" if is_inside else "log cut")
        self.log = self.log.copy(session_id=1, stream_id=0, end_position=position)
        del self.entries[self.index_after(position) :]
        del self.expected[self.expected_after(position) :]
        del self._frame_ends[bisect_right(self._frame_ends, position) :]
        self.sessions.clear()
        self.clients.clear()
        self._logged_service_messages = 0
        fired: dict[int, int] = {}
        for entry in self.entries:
            if entry.kind == OPEN:
                self.sessions[entry.event_id] = b""
                self.clients[entry.number] = entry.event_id
            elif entry.kind == CLOSE:
                self.sessions.pop(entry.event_id, None)
            elif entry.kind == MESSAGE and entry.number > 0:
                self._logged_service_messages = entry.number
            elif entry.kind == TIMER:
                fired[entry.event_id] = entry.number
        self._restore_timers(fired)

    def _restore_timers(self, fired: dict[int, int]) -> None:
        """A timer whose event is gone from the log fires again."""
        self.timers = {}
        for number, request in enumerate(self.requests, 1):
            if isinstance(request, ScheduleTimer):
                self.timers.pop(request.correlation_id, None)
                if fired.get(request.correlation_id, 0) < number:
                    self.timers[request.correlation_id] = request.deadline
            elif isinstance(request, CancelTimer):
                self.timers.pop(request.correlation_id, None)

    # --- the leader

    def on_leader_joined(self, reign: Reign) -> None:
        """The leader's service follows its own log: the term begins."""
        if reign.has_begun or reign is not self.reign:
            return
        reign.has_begun = True
        self._append(
            TERM,
            "NewLeadershipTermEvent",
            event_id=reign.term_id,
            term_base_log_position=reign.base,
            leader_member_id=reign.leader.id,
            log_session_id=reign.leader.log_session_id,
            time_unit=self.plan.time_unit,
            app_version=1,
        )
        if reign.is_startup:
            for session_id in sorted(self.sessions):
                self.reach("session closed after an outage")
                self._close(session_id, CloseReason.TIMEOUT)
        self._replicate()
        self._lead()

    def lead_if(self, member: SimulatedMember) -> None:
        """The leader's module had a turn: log what waits."""
        if self.reign is not None and self.reign.leader is member:
            self._lead()

    def _lead(self) -> None:
        reign = self.reign
        if reign is None or not reign.has_begun or not self.is_leading():
            return
        before = len(self.entries)
        leader = reign.leader
        for number in range(self._logged_service_messages, leader.service_message_count):
            self._logged_service_messages = number + 1
            self.reach("message of the service")
            self._append(
                MESSAGE,
                _SESSION_MESSAGE,
                number=number + 1,
                event_id=_NO_SESSION,
                payload=self.service_messages[number],
                body=self.service_messages[number],
                cluster_session_id=service_session_id(0, number + 1),
            )
        for session_id in sorted(leader.close_requests):
            self._close(session_id, CloseReason.SERVICE_ACTION)
        leader.close_requests.clear()
        self._fire_timers()
        while self.waiting and reign.snapshot_position <= leader.position:
            self._operate(self.waiting.popleft())
        if len(self.entries) > before:
            self._replicate()

    def _operate(self, operation: Any) -> None:
        if isinstance(operation, plans.Send):
            session_id = self.clients.get(operation.client, 0)
            if session_id in self.sessions:
                payload = operation.payload
                self._append(
                    MESSAGE,
                    _SESSION_MESSAGE,
                    event_id=session_id,
                    payload=payload,
                    body=payload,
                    cluster_session_id=session_id,
                )
        elif isinstance(operation, plans.OpenSession):
            if self.clients.get(operation.client, 0) not in self.sessions:
                self._open(operation.client)
        elif isinstance(operation, plans.CloseSession):
            reason = CloseReason.TIMEOUT if operation.times_out else CloseReason.CLIENT_ACTION
            self._close(self.clients.get(operation.client, 0), reason)
        elif isinstance(operation, plans.SendFromService):
            self._other_service_messages += 1
            self._append(
                MESSAGE,
                _SESSION_MESSAGE,
                event_id=_NO_SESSION,
                payload=operation.payload,
                body=operation.payload,
                cluster_session_id=service_session_id(1, self._other_service_messages),
            )
        else:
            assert self.reign is not None
            self._append(SNAPSHOT, "ClusterActionRequest", event_id=0, action=ClusterAction.SNAPSHOT, flags=0)
            self.reign.snapshot_position = self.log.tail_position

    def _open(self, client: int) -> None:
        session_id = self._next_session_id
        self._next_session_id += 1
        principal = b"client %d" % client
        self.sessions[session_id] = principal
        self.clients[client] = session_id
        self._append(
            OPEN,
            "SessionOpenEvent",
            number=client,
            event_id=session_id,
            payload=principal,
            correlation_id=1_000 + session_id,
            cluster_session_id=session_id,
            response_stream_id=EGRESS_STREAM_ID,
            response_channel=EGRESS_CHANNEL,
            encoded_principal=principal,
        )

    def _close(self, session_id: int, reason: CloseReason) -> None:
        if self.sessions.pop(session_id, None) is not None:
            self.reach(f"session closed: {reason.name.lower()}")
            self._append(
                CLOSE,
                "SessionCloseEvent",
                event_id=session_id,
                payload=bytes((reason,)),
                cluster_session_id=session_id,
                close_reason=reason,
            )

    # --- what services ask for

    def on_request(self, member: SimulatedMember, request: ScheduleTimer | CancelTimer | SessionMessage) -> None:
        """A member's service sent something: all members must send the same, in the same order."""
        if isinstance(request, SessionMessage):
            request = request._replace(leadership_term_id=0, timestamp=0)
        number = member.request_count
        member.request_count += 1
        if isinstance(request, SessionMessage):
            member.service_message_count += 1
        if number < len(self.requests):
            if self.requests[number] != request:
                left, right = _requests_apart(request, self.requests[number])
                self.find(
                    "requests",
                    f"request {number} of the service to the cluster is {left} from {member.whose}, and {right} from "
                    f"{self.senders[number]}",
                    member,
                )
            return
        self.requests.append(request)
        self.senders.append(member.whose)
        if isinstance(request, SessionMessage):
            self.service_messages.append(request.payload)
        else:
            self.timers.pop(request.correlation_id, None)
            if isinstance(request, ScheduleTimer):
                self.timers[request.correlation_id] = request.deadline

    def _fire_timers(self) -> None:
        if not self.timers or self.time.now_ns > self._last_timer_ns:
            return
        now = self.timestamp()
        due = [(deadline, name) for name, deadline in self.timers.items() if deadline <= now]
        for _, correlation_id in sorted(due, key=itemgetter(0)):  # of equal ones the first scheduled
            self.reach("timer")
            del self.timers[correlation_id]
            self._append(
                TIMER,
                "TimerEvent",
                number=len(self.requests),
                event_id=correlation_id,
                correlation_id=correlation_id,
            )
        if self.timers:
            ticks = _TICKS_PER_MS[self.plan.time_unit]
            wait_ms = -(-(min(self.timers.values()) - now) // ticks)
            due_ns = self.time.now_ns + max(wait_ms, 1) * 1_000_000
            is_next = due_ns < self._timer_due_ns or self._timer_due_ns <= self.time.now_ns
            if is_next and wait_ms < _HORIZON_MS:
                self._timer_due_ns = due_ns
                self.scheduler.at(due_ns, self._lead)

    def missing_request(self, number: int) -> str:
        """A request that a member did not send, and who did."""
        return f"{_shown(self.requests[number])}, as {self.senders[number]} did"

    # --- what is compared

    def state(self, service: Any, observed: ObservedService) -> Any:
        """The state of a service, as the test wants it, or as it would write it to a snapshot."""
        return observed.state() if self.state_of is None else copy.deepcopy(self.state_of(service))

    def on_state(self, member: SimulatedMember | None, position: int, state: Any) -> None:
        """The state of a member's service at a log position must be that of all others there."""
        self._compare("state", self.states, member, position, state)

    def on_snapshot(self, member: SimulatedMember, position: int, messages: list[bytes]) -> None:
        """Snapshots of one log position must be equal, message by message."""
        self._compare("snapshot", self.snapshots, member, position, tuple(messages))

    def _compare(
        self, what: str, known: ComparedStates, member: SimulatedMember | None, position: int, state: Any
    ) -> None:
        whose = "the reference" if member is None else member.whose
        if difference := known.difference(whose, position, state):
            self.find(what, difference, member, position)


def _requests_apart(one: Any, other: Any) -> tuple[str, str]:
    if isinstance(one, SessionMessage) and isinstance(other, SessionMessage) and one.payload != other.payload:
        left, right = shown_apart(one.payload, other.payload)
        return f"a message {left}", f"a message {right}"
    return _shown(one), _shown(other)


def _shown(request: Any) -> str:
    return f"a message {shown(request.payload)}" if isinstance(request, SessionMessage) else str(request)
