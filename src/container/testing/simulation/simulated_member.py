"""One member of a simulated cluster: a host with its own driver, a scripted consensus module, and the real agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from container.api import Role
from container.common.aeron_defaults import CONSENSUS_MODULE_STREAM_ID, CONTROL_CHANNEL, EGRESS_STREAM_ID
from container.common.error_texts import message_of, remark_on
from container.errors import AgentTermination, ArchiveError, ClusterTermination
from container.service.service_agent import ServiceAgent
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.settings.callback_errors import SKIP
from container.testing.memory.member_context import MemberContext, boot_time_ns, place
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.scripted_consensus_module import (
    CloseSession,
    ScriptedConsensusModule,
    ServiceAck,
)
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.simulation import plan as plans
from container.testing.simulation.fibers import Fiber, SimulatedCrash
from container.testing.simulation.observed_service import ObservedService
from container.testing.simulation.plan import SnapshotFault, Start
from container.testing.simulation.virtual_time import NodeClock, ParkingIdleStrategy

if TYPE_CHECKING:
    from container.testing.simulation.simulated_cluster import Reign, SimulatedCluster

_NULL_VALUE = -1
_SNAPSHOT = 6
EGRESS_CHANNEL = "aeron:udp?endpoint=localhost:20000|term-length=1m"
"""Where all clients receive answers of up to 128 KiB; each host has a place of its own."""
INITIAL_TERM_ID = 5
_NO_END = 2**63 - 1
_COUNTERS = 64
_MOST_MEMBERS = 32  # fewer than these have an id
_SUBSCRIPTIONS = 2  # of a container that follows a log: that, and the control stream
_MOST_IDLE_TURNS = 16
"""In a row: a service that always has background work must not keep virtual time from passing."""
_TURN, _MODULE, _WAY = range(20, 23)
_START, _JOIN, _SNAP, _ASKED, _STOP = "start", "join", "snapshot", "ack", "stop"


class MemberSnapshot(NamedTuple):
    """A snapshot that a member keeps."""

    log_position: int
    term_id: int
    timestamp: int
    messages: list[bytes]
    request_count: int
    service_message_count: int


class Tolerant(Protocol):
    """Says which errors a test expects."""

    callback_error_policy: str
    tolerates: Callable[[BaseException], bool] | None


def is_expected(error: BaseException, cluster: Tolerant) -> bool:
    """Is this an error that the test said it expects, or one of an event that all members skip?"""
    if cluster.tolerates is not None and cluster.tolerates(error):
        return True
    return cluster.callback_error_policy == SKIP and remark_on(error).endswith("which this member skips")


class SimulatedMember:
    """A member's lives. Its log, its snapshots and its id survive a crash."""

    def __init__(self, cluster: SimulatedCluster, member_id: int) -> None:
        self.cluster = cluster
        self.id = member_id
        self.lives = 0
        self.clock = self._new_clock()
        self.appended_position = 0
        self.sent_position = 0
        self.arrival_ns = 0
        self.snapshots: list[MemberSnapshot] = []
        self.life = 0
        self.is_up = False
        self.is_ready = False
        self.is_cut_off = False
        self.fails_offers = False
        """Did an offer to a client fail in this life, or is one to?"""
        self.known_commit = 0
        self.position = 0
        self.request_count = 0
        self.service_message_count = 0
        self.close_requests: set[int] = set()
        self.waiting_for: tuple[str, int] | None = None
        self._turns = 0
        self._asks = 0
        self._loses_images = False
        self._module: ScriptedConsensusModule
        self._service: ObservedService
        self._runner: ServiceAgent
        self._fiber: Fiber
        self._store: MemorySnapshotStore

    # --- lives

    def _new_clock(self) -> NodeClock:
        offsets = self.cluster.plan.clock_offsets_ms
        offset = offsets[self.id] if self.id < len(offsets) else 0
        # Each start may be a reboot of the host, which restarts its monotonic clock.
        boot_ns = boot_time_ns(1 + self.id + _MOST_MEMBERS * self.lives)
        return NodeClock(self.cluster.time, epoch_ms=1_700_000_000_000 + offset, boot_ns=boot_ns)

    def start(self, start: Start) -> None:
        """Start the node: driver, consensus module and container."""
        cluster = self.cluster
        self.clock = self._new_clock()
        self.life += 1
        self.lives += 1
        self.is_ready = False
        self._reign: Reign | None = None
        self._joining: Reign | None = None
        self._led: Reign | None = None
        self._is_module_due = False
        self._slow_until_ns = 0
        self._stops_at: plans.Stop | None = None
        self._asks_for_ack = False
        self._replay_end = 0
        self._log_end = _NO_END
        self._has_replayed = False
        self._next_ack_id = 0
        self._starts_cut = False
        self._failures_due = 0
        self.fails_offers = False
        snapshot = self._snapshot_to_start_from(start)
        begin = 0 if snapshot is None else snapshot.log_position
        self.position = self.known_commit = begin
        self.request_count = 0 if snapshot is None else snapshot.request_count
        self.service_message_count = 0 if snapshot is None else snapshot.service_message_count
        self.close_requests.clear()
        self._entry_index = cluster.index_after(begin)
        self.waiting_for = (_START, begin)
        self._service = self._observed(begin)
        life = self.life
        member = ScriptedMember(
            self._service,
            driver=MemoryDriver(self.clock, counters_capacity=_COUNTERS),
            clock=self.clock,
            idle_strategy=ParkingIdleStrategy(self._idle),
            on_error=lambda error: self._on_error(error, life),
            callback_error_policy=cluster.callback_error_policy,
            log_fragment_limit=cluster.plan.log_fragment_limit,
            log_position=begin,
            member_id=self.id,
            log_term_length=cluster.plan.term_length,
            log_mtu_length=cluster.plan.mtu_length,
            log_initial_term_id=INITIAL_TERM_ID,
        )
        self._driver, self._module, self._runner, self._store = member.driver, member.cm, member.agent, member.store
        self._client = member.client
        member.context.service_context = MemberContext(self.service, member.context, place(self.id))
        self._module.connect_egress(0, EGRESS_CHANNEL)
        self._requests = self._driver.log(CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID)
        self._requests_seen = 0
        if snapshot is not None:
            cluster.reach(
                "start from an older snapshot" if snapshot is not self.snapshots[-1] else "start from a snapshot"
            )
        cluster.say(self, f"starts from {start if snapshot else 'nothing'}, log position {begin}")
        cluster.trace.note(cluster.time.now_ns, 5, self.id, begin)
        self._fiber = Fiber(cluster.scheduler, self._live, lambda error: self._on_end(error, life))
        self.is_up = True
        cluster.scheduler.after(self._module_delay_ns(), self._start_module, self.life, snapshot)

    @property
    def whose(self) -> str:
        """The name of its present life in a finding."""
        return f"life {self.lives} of member {self.id}" if self.lives > 1 else f"member {self.id}"

    def _snapshot_to_start_from(self, start: Start) -> MemberSnapshot | None:
        usable = [snapshot for snapshot in self.snapshots if snapshot.log_position <= self.appended_position]
        if start is Start.LOG or not usable:
            return None
        if start is Start.OLDER_SNAPSHOT:
            return usable[-2] if len(usable) > 1 else None
        if start is Start.CUT_SNAPSHOT:
            self._starts_cut = True
        return usable[-1]

    def _observed(self, begin: int) -> ObservedService:
        cluster = self.cluster
        made = cluster.make_service()
        inner = made if isinstance(made, ServiceHandler) else PythonServiceHandler(made)
        life = self.life
        self.service = made

        def on_state(position: int) -> None:
            if self.life == life:
                self._compare_state(position)

        def on_finding(text: str) -> None:
            if self.life == life:
                cluster.find("delivery", text, self)

        return ObservedService(
            inner,
            cluster.expected,
            on_finding=on_finding,
            on_state=on_state,
            index=cluster.expected_after(begin),
            position=begin,
            probe_every=cluster.probe_every,
        )

    def _start_module(self, life: int, snapshot: MemberSnapshot | None) -> None:
        if life != self.life or not self.is_up:
            return
        if snapshot is None:
            self._module.start()
            return
        store = self._store
        recording_id = store.add_recording(snapshot.messages)
        if self._starts_cut:
            end, recording_id = (
                store.recording(recording_id).recorded_position,
                store.add_recording(snapshot.messages[:-1]),
            )
            store.recording(recording_id).recorded_position = end
        self._module.start(
            recording_ids=[recording_id],
            leadership_term_id=snapshot.term_id,
            log_position=snapshot.log_position,
            timestamp=snapshot.timestamp,
        )

    def _live(self) -> None:
        cluster, runner, clock, fiber = self.cluster, self._runner, self.clock, self._fiber
        time, draws = cluster.time, cluster.draws
        least_ns, mean_ns = (1_000 * part for part in cluster.plan.turn_us)
        try:
            clock.begin_turn()
            runner.on_start()
            self.ask_module()
            idle_turns = 0
            while True:
                clock.begin_turn()
                before = self._service.index
                try:
                    work = runner.do_work()
                except AgentTermination:
                    raise
                except Exception as error:
                    work = 1
                    self._on_error(error, self.life)
                if clock.is_spinning:
                    cluster.find("progress", "a callback reads the clock 100,000 times and never idles", self)
                is_idle = self._service.index == before and self._requests.tail_position <= self._requests_seen
                idle_turns = idle_turns + 1 if is_idle else 0
                if work and idle_turns <= _MOST_IDLE_TURNS:
                    cluster.delivered += self._service.index - before
                    cluster.trace.note(time.now_ns, 6, self.id, self._service.position)
                    self.ask_module()
                    self._turns += 1
                    fiber.park(time.now_ns + draws.delay_ns(_TURN + 10 * self.id, self._turns, least_ns, mean_ns))
                else:
                    if self._requests.tail_position > self._requests_seen:
                        self.ask_module()
                    fiber.park()
        except SimulatedCrash:
            raise
        except BaseException:
            if not fiber.is_killed:  # the agent names it otherwise when it was killed while it idled
                runner.close()
            raise

    def _idle(self) -> None:
        # Something waits inside a callback or inside the agent.
        self.clock.begin_turn()
        self.ask_module()
        self._fiber.park()

    def _on_end(self, error: BaseException | None, life: int) -> None:
        cluster = self.cluster
        if life != self.life or not self.is_up:
            return
        self.ask_module()
        waited_for = self.waiting_for
        if isinstance(error, ClusterTermination) and waited_for is not None and waited_for[0] == _STOP:
            cluster.reach("stopped in order")
            if not self._service.has_terminated:
                cluster.find("end", f"member {self.id} has ended in order, and its service was not terminated", self)
            cluster.say(self, "has ended in order")
            assert self._stops_at is not None
            self._end(self._stops_at.down, self._stops_at.start)
        elif self._starts_cut and waited_for is not None and waited_for[0] == _START:
            cluster.reach("cut snapshot refused")
            cluster.say(self, f"refuses a snapshot that is cut short: {message_of(error) if error else ''}")
            self._end(1, Start.OLDER_SNAPSHOT)
        else:
            cause = error.__cause__ if isinstance(error, AgentTermination) and error.__cause__ is not None else error
            if isinstance(cause, KeyboardInterrupt):  # of the user, and no fault of the service
                raise cause
            text = "nothing was raised" if cause is None else f"{type(cause).__name__}: {message_of(cause)}"
            where = f" ({message_of(error)})" if error is not None and cause is not error else ""
            cluster.find("end", f"member {self.id} ended: {text}{where}", self)

    def _end(self, down_ms: int, start: Start) -> None:
        """The node is gone: nothing that its processes still do has any effect."""
        cluster = self.cluster
        self._take_egress()
        self.is_up = self.is_ready = False
        self.life += 1
        self._service.switch_off()
        self._driver.kill()
        self._fiber.kill()
        cluster.on_member_lost(self)
        cluster.scheduler.after(down_ms * 1_000_000, self._start_again, self.life, start)

    def _start_again(self, life: int, start: Start) -> None:
        if life == self.life and not self.is_up:
            self.start(start)

    def switch_off(self) -> None:
        """The run is over."""
        if self.is_up:
            self._service.switch_off()
            self.life += 1

    @property
    def service_index(self) -> int:
        """The next callback that its service gets."""
        return self._service.index

    # --- faults

    def suffer(self, event: Any) -> None:
        """Let a fault of the plan happen; nothing happens to a member that is down."""
        cluster = self.cluster
        if not self.is_up:
            return
        cluster.say(self, f"suffers {event}")
        if isinstance(event, plans.Crash):
            self._end(event.down, event.start)
        elif isinstance(event, plans.Stop):
            self._stops_at = event
            self.ask_module()
        elif isinstance(event, plans.CutOff):
            if not self.is_cut_off:
                self.is_cut_off = True
                cluster.on_member_lost(self)
                cluster.scheduler.after(event.duration * 1_000_000, self._reconnect)
        elif isinstance(event, plans.Pause):
            until_ns = cluster.time.now_ns + event.duration * 1_000_000
            self._fiber.paused_until_ns = max(self._fiber.paused_until_ns, until_ns)
        elif isinstance(event, plans.SlowModule):
            self._slow_until_ns = cluster.time.now_ns + event.duration * 1_000_000
        elif isinstance(event, plans.AskForAck):
            self._asks_for_ack = True
            self.ask_module()
        elif isinstance(event, plans.FailOffers):
            self.fails_offers = True
            self._driver.publication_results(EGRESS_CHANNEL, EGRESS_STREAM_ID, list(event.results))
        elif isinstance(event, plans.FailRequests):
            self._driver.publication_results(CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID, list(event.results))
        elif isinstance(event, plans.FailSnapshot):
            self._fail_snapshot(event.fault)
        elif isinstance(event, plans.LoseImages):
            self._loses_images = True

    def _reconnect(self) -> None:
        self.is_cut_off = False
        self.cluster.say(self, "has its network again")
        if self.is_up and self.is_ready:
            self.cluster.on_member_back(self)

    def _fail_snapshot(self, fault: SnapshotFault) -> None:
        self._failures_due += fault is not SnapshotFault.SLOW
        if fault is SnapshotFault.REFUSED:
            self._store.script("create", [ArchiveError("max concurrent recordings reached", code=0)])
        elif fault is SnapshotFault.FAILED:
            self._store.script("complete", [ArchiveError("recording stopped", code=0)])
        else:
            self._store.script("complete", [1] * 50)

    # --- the log

    def is_joined_to(self, reign: Reign) -> bool:
        """Does it follow the log of this reign, or is it about to?"""
        return self.is_up and (self._reign is reign or self._joining is reign)

    @property
    def log_session_id(self) -> int:
        """The session id of the log that it follows."""
        return 0 if self._module.log is None else self._module.log.session_id

    def receive(self, end: int) -> None:
        """Bytes of the log arrived."""
        self.appended_position = max(self.appended_position, end)
        log = self._module.log
        if log is not None and self._module.log_publication is not None:
            log.extend(self.cluster.log, end)
        if self.known_commit > self.position:
            self.ask_module()

    def cut_log(self, position: int) -> None:
        """Cut the log that it follows: the part behind this position was never committed, and is another log's by
        now."""
        self._log_end = min(self._log_end, position)

    def learn_commit(self, commit: int) -> None:
        """The leader's commit position is known here."""
        if commit > self.known_commit:
            self.known_commit = commit
            self.ask_module()

    # --- the consensus module

    def _module_delay_ns(self) -> int:
        least, mean = self.cluster.plan.module_us
        self._asks += 1
        delay_ns = self.cluster.draws.delay_ns(_MODULE + 10 * self.id, self._asks, least * 1_000, mean * 1_000)
        return max(delay_ns, getattr(self, "_slow_until_ns", 0) - self.cluster.time.now_ns)

    def ask_module(self) -> None:
        """Let the consensus module have a turn, soon."""
        if not self._is_module_due and self.is_up:
            self._is_module_due = True
            self.cluster.scheduler.after(self._module_delay_ns(), self._have_turn, self.life)

    def _have_turn(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        self._is_module_due = False
        if self.cluster.time.now_ns < self._slow_until_ns:
            self.ask_module()
            return
        self._take_egress()
        self._requests_seen = self._requests.tail_position
        for message in self._module.poll():
            if isinstance(message, ServiceAck):
                self._on_ack(message)
            elif isinstance(message, CloseSession):
                self.close_requests.add(message.cluster_session_id)
            else:
                self.cluster.on_request(self, message)  # type: ignore[arg-type]
        self._module.forget_received()
        if self.waiting_for is None:
            self._ask_service()
        if self.waiting_for is None:
            self._join_next()
        if self.waiting_for is None:
            self._consume()
        self.cluster.lead_if(self)

    def _take_egress(self) -> None:
        for answer in self._module.take_egress():
            if self._led is None:
                self.cluster.find("answers", f"member {self.id} answers, and it never led: {answer.payload!r}", self)
            else:
                self.cluster.reach("answer")
                self._led.egress.append((answer.cluster_session_id, (answer.payload, answer.timestamp)))

    def _on_ack(self, ack: ServiceAck) -> None:
        waited_for = self.waiting_for
        if ack.ack_id != self._next_ack_id or waited_for is None or ack.log_position != waited_for[1]:
            self.cluster.find(
                "acks",
                f"member {self.id} sends {ack}; ack {self._next_ack_id} is next, and the consensus module waits for "
                f"{'nothing' if waited_for is None else f'that of {waited_for[0]} at log position {waited_for[1]}'}",
                self,
            )
        self._next_ack_id = ack.ack_id + 1
        if waited_for is None:
            return
        kind, position = waited_for
        if kind not in (_START, _SNAP) and ack.relevant_id != _NULL_VALUE:
            self.cluster.find("acks", f"member {self.id} sends {ack}, whose relevant id must be {_NULL_VALUE}", self)
        self.waiting_for = None
        if kind == _START:
            self._on_started(ack)
        elif kind == _JOIN:
            self._on_joined(position)
        elif kind == _SNAP:
            self._on_snapshot(ack)
        elif kind == _STOP:
            self.waiting_for = waited_for

    def _on_started(self, ack: ServiceAck) -> None:
        if ack.relevant_id == _NULL_VALUE:
            self.waiting_for = (_START, self.position)  # the agent ends
        elif self._starts_cut:
            self.cluster.find("snapshot", f"member {self.id} starts from a snapshot that is cut short", self)

    def _on_joined(self, position: int) -> None:
        self._reign, self._joining = self._joining, None
        self.cluster.say(self, f"has joined at {position}")
        if self._reign is not None and self._reign.leader is self:
            self.cluster.on_leader_joined(self._reign)

    def _on_snapshot(self, ack: ServiceAck) -> None:
        if ack.relevant_id == _NULL_VALUE:
            self.cluster.reach("snapshot failed")
            if self._failures_due == 0:
                self.cluster.find("snapshot", f"member {self.id} took no snapshot at {ack.log_position}", self)
            self._failures_due -= 1
            return
        entry = self.cluster.entries[self._entry_index - 1]
        messages = self._store.messages(ack.relevant_id)
        self.cluster.reach("snapshot taken")
        self.cluster.say(self, f"has a snapshot of {ack.log_position}")
        self.cluster.on_snapshot(self, ack.log_position, messages)
        self.snapshots = [known for known in self.snapshots if known.log_position < ack.log_position]
        self.snapshots.append(
            MemberSnapshot(
                ack.log_position,
                entry.term_id,
                entry.timestamp,
                messages,
                self.request_count,
                self.service_message_count,
            )
        )

    def _ask_service(self) -> None:
        entries, index = self.cluster.entries, self._entry_index
        if not self.is_ready or (index > 0 and self.position != entries[index - 1].position):
            return  # a service knows of no position inside a message, and a leader names none
        if self._stops_at is not None:
            self.waiting_for = (_STOP, self.position)
            self._module.termination_position(self.position)
            self._fiber.wake()
        elif self._asks_for_ack:
            self._asks_for_ack = False
            self.cluster.reach("ack asked for again")
            self.waiting_for = (_ASKED, self.position)
            self._module.request_service_ack(self.position)
            self._fiber.wake()

    def _join_next(self) -> None:
        """Join the next log: the one to replay, then that of the leader."""
        cluster = self.cluster
        if self.position < self._replay_end:
            return
        if not self._has_replayed:
            self._has_replayed = True
            end = min(self.appended_position, cluster.commit_position)
            if end > self.position:
                cluster.reach("replay at a start")
                self._join_replay(end, is_startup=True)
                return
        if not self.is_ready:
            self.is_ready = True
            cluster.on_member_back(self)
        reign = cluster.reign
        if reign is None or not reign.is_open or self._reign is reign or self.is_cut_off:
            return
        if reign.leader is self and reign.leader_life != self.life:
            return  # it leads no more, which the others have not seen yet
        if self.position < reign.base and (
            reign.leader is self or cluster.draws.happens(_WAY, (reign.term_id << 8) + self.id, 0.5)
        ):
            cluster.reach("replay before a term")
            self._join_replay(reign.base, is_startup=False)
            return
        self._join_live(reign)

    def _join_replay(self, end: int, *, is_startup: bool) -> None:
        self._begin_log("replay", end)
        self._replay_end = end
        self.known_commit = max(self.known_commit, end)
        self.appended_position = max(self.appended_position, end)
        self._reign = self._joining = None
        self._module.join_replay(is_startup=is_startup)

    def _join_live(self, reign: Reign) -> None:
        is_leader = reign.leader is self
        if self.position < reign.base:
            self.cluster.reach("live log joined from behind")
        self.appended_position = max(self.appended_position, self.position)
        self._begin_log("leader" if is_leader else "follower", self.appended_position)
        self.sent_position = self.appended_position
        self._reign, self._joining = None, reign
        if is_leader:
            self._led = reign
        if is_leader:
            self._module.join_log(role=Role.LEADER, is_startup=reign.is_startup)
        else:
            self._module.join_log(role=Role.FOLLOWER)
        if not is_leader:
            reign.matched[self.id] = max(reign.matched.get(self.id, 0), self.appended_position)
            self.cluster.on_member_back(self)

    def _begin_log(self, kind: str, end: int) -> None:
        module, cluster = self._module, self.cluster
        cluster.say(self, f"is to join the {kind} log at {self.position}")
        if self._loses_images and module.log_publication is not None:
            self._loses_images = False
            cluster.reach("image lost" if self._service.position >= self.position else "image lost before it was read")
            module.lose_log(self.position)
            recorded = cluster.log.copy(session_id=2, stream_id=0, end_position=self.position)
            self._store.record_log(recorded)
        else:
            module.end_log(self.position)
        module.begin_log(kind).extend(cluster.log, end)
        self._log_end = _NO_END
        self.waiting_for = (_JOIN, self.position)
        self._fiber.wake()

    def _consume(self) -> None:
        """Read on in the log as far as it is committed and here; a snapshot is waited for."""
        module = self._module
        if module.log_publication is None:
            return
        limit = min(self.known_commit, module.log_position, self._log_end)
        entries, index = self.cluster.entries, self._entry_index
        while index < len(entries) and entries[index].position <= limit:
            index += 1
            if entries[index - 1].kind == _SNAPSHOT:
                limit = entries[index - 1].position
                self.waiting_for = (_SNAP, limit)
                break
        self._entry_index = index
        if limit > self.position:
            if index < len(entries) and entries[index].begin < limit < entries[index].position:
                self.cluster.reach("commit inside a message")
            self.position = self._service.limit = limit
            module.commit(limit)
            self._fiber.wake()
            if limit >= self._replay_end:
                self.ask_module()

    # --- what is compared

    def _compare_state(self, position: int) -> None:
        cluster = self.cluster
        try:
            state = cluster.state(self.service, self._service)
        except SimulatedCrash:
            raise
        except Exception as error:
            text = f"the state cannot be looked at: {type(error).__name__}: {message_of(error)}"
            cluster.find("state", text, self, position)
            return
        cluster.on_state(self, position, state)

    def _on_error(self, error: BaseException, life: int) -> None:
        cluster = self.cluster
        if life != self.life or not self.is_up:
            return
        if self._failures_due > 0 and isinstance(error, ArchiveError):
            cluster.say(self, f"reports {type(error).__name__}: {message_of(error)}")
            return
        remark = remark_on(error)
        if is_expected(error, cluster):
            cluster.say(self, f"reports {type(error).__name__}: {message_of(error)}; {remark}")
            return
        cluster.find(
            "errors",
            f"member {self.id} reports {type(error).__name__}: {message_of(error)}{'; ' if remark else ''}{remark}",
            self,
            self._service.position,
        )

    def is_quiet(self) -> bool:
        """Has it all of the log, and nothing to do?"""
        return (
            self.is_up
            and self.is_ready
            and not self.is_cut_off
            and self.waiting_for is None
            and self._stops_at is None
            and self._reign is self.cluster.reign
            and self.position == self.cluster.log.tail_position
            and self._service.index == len(self.cluster.expected)
            and not self._is_module_due
        )

    def check_end(self) -> None:
        """At the end nothing is left of what the member does not need."""
        reign = self.cluster.reign
        role = Role.LEADER if reign is not None and reign.leader is self else Role.FOLLOWER
        if self._service.role != role:
            self.cluster.find(
                "delivery", f"the service of member {self.id} has role {self._service.role}, and not {role:d}", self
            )
        if role is not Role.LEADER:
            answering = [one for one in self._driver.publications() if one.channel == EGRESS_CHANNEL]
            if answering:
                self.cluster.find(
                    "resources", f"member {self.id} follows, and keeps {len(answering)} publications to clients", self
                )
        held = [one for one in self._client.open_resources if type(one).__name__ == "MemorySubscription"]
        if len(held) > _SUBSCRIPTIONS:
            self.cluster.find(
                "resources", f"the container of member {self.id} keeps {len(held)} subscriptions: {held}", self
            )
        if self.request_count < len(self.cluster.requests):
            self.cluster.find(
                "requests",
                f"{self.whose} did not send request {self.request_count} to the cluster, "
                f"{self.cluster.missing_request(self.request_count)}",
                self,
            )

    def describe(self) -> str:
        """Where it is, in a line."""
        if not self.is_up:
            return f"member {self.id} is down"
        waits = "nothing" if self.waiting_for is None else f"the ack of {self.waiting_for[0]} at {self.waiting_for[1]}"
        return (
            f"member {self.id} is at {self.position}, its service at {self._service.position}, waits for {waits}"
            f"{', is cut off' if self.is_cut_off else ''}"
        )
