"""A whole node without Java on a simulated disk: archive, consensus module, services, clients, from crash to crash.

All four are the production's, each driven by the world's turns; driver, disk, time and numbers are simulated. A plan is
a list of operations, each with random numbers of its own, so that a part of a plan does the same as before.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)
from container.consensus.consensus_module import ConsensusModule
from container.errors import (
    AgentTermination,
    ArchiveError,
    ContainerError,
    Event,
    MarkFileError,
    PublicationUnavailableError,
    RecordingError,
)
from container.snapshots import read_snapshot, write_snapshot
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.simulation.nodes.disk_world import (
    CAPACITY,
    MS,
    PROGRAMMING_ERRORS,
    DiskWorld,
    Result,
    Step,
    operations,
    swarm,
)
from container.testing.simulation.nodes.node import (
    ABORT,
    NEUTRAL,
    NEVER_REPORTED,
    RESUME,
    SHUTDOWN,
    SNAPSHOT,
    SUSPEND,
    Life,
    NodePlan,
    SimulatedClient,
    SimulatedNode,
)
from container.testing.simulation.nodes.recorded import TERM_LENGTH, Violation
from container.testing.simulation.turns import Killed
from container.transport.idle_strategy import IdleStrategy
from tests.sim.node_oracle import Log, State, apply, check_disk, take_in

LIVENESS_MS = 10_001
"""After which the mark files of a dead node are free, and the driver has given its clients up."""
LEADER_LIMIT_MS = 20_000
"""What a start without faults may take until it leads."""
LOSS_LIMIT_MS = 2_000
"""What a consensus module may take to end that has lost its archive or a service."""
SESSION_TIMEOUT_MS = 2_000
MEMBERS = "0,localhost:9010,localhost:9020,localhost:9030,localhost:9040,localhost:8010"
INIT = 0
ADVICE = re.compile(
    "invalidate-latest-snapshot|ClusterTool|ArchiveTool|backup|empty directories|archive directory|repair the service"
)
"""What a node that cannot start after a loss has named, one of them."""
RELEASABLE = re.compile("a start is in progress, or was killed|mark file too short: .* has 0 bytes")
"""Why a start refuses a mark file that an operator is to free."""
KINDS = {
    "send": 40.0,
    "work": 20.0,
    "connect": 6.0,
    "close": 2.0,
    "vanish": 1.0,
    "stall": 2.0,
    "snapshot": 4.0,
    "suspend": 1.0,
    "shutdown": 1.0,
    "abort": 1.0,
    "restart": 1.0,
    "kill": 3.0,
    "cut": 3.0,
    "lose": 0.6,
    "fault": 0.6,
    "fill_disk": 0.3,
}
MOST_CLIENTS = 4
RETENTION = 0x5EED
"""What the draw of a plan's retention is told from the others by, which are as they were before it."""


def expand(seed: int) -> NodePlan:
    """The plan of a seed."""
    draw = random.Random(seed)
    level = draw.choice([0, 1, 1, 1, 2])
    weights = swarm(draw, KINDS, ("send", "work", "connect", "kill", "cut"))
    if level == 0:
        weights["cut"] /= 6
    retained = random.Random(seed ^ RETENTION).choice([0, 0, 1, 2])
    if retained > 0:
        weights["snapshot"] *= 3
    drawn = operations(draw, weights, "connect", draw.randint(10, 60))
    return NodePlan(
        seed=seed,
        level=level,
        services=draw.choice([1, 1, 2]),
        window=draw.choice([0, 0, 8192, 32768]),
        segment_length=TERM_LENGTH * draw.choice([1, 2]),
        timer_service=draw.choice(["wheel", "priority_heap"]),
        longest=max(draw.choice([30, 30, 500, 3000, 9000]), 9000 if retained > 0 else 0),
        step_ms=draw.choice([1, 5, 20]),
        retained=retained,
        operations=tuple(drawn),
    )


def _same(state: State) -> State:
    """A newer version of the service takes an older one's state as it is."""
    return state


class Host(Protocol):
    """What a service is in."""

    plan: Any
    stats: Counter[str]

    @property
    def service_version(self) -> int:
        """The version of its state."""

    def check_state(self, recorder: Recorder) -> None:
        """Its state is another one."""


class Recorder(ClusteredService):
    """Takes the log into its state, and does what that asks for."""

    def __init__(self, world: Host, number: int) -> None:
        self.world, self.number = world, number
        self.state = State(received=[0] * world.plan.services)
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            version = self.world.service_version
            earlier = dict.fromkeys(range(1, version), (State, _same))
            self.state = read_snapshot(snapshot_image, State, version=version, upgrades=earlier)
            self.world.stats["snapshots loaded"] += 1

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state, version=self.world.service_version)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._apply(("open", session.id, timestamp))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._apply(("close", session.id, timestamp, int(close_reason)))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._apply(("timer", correlation_id, timestamp))

    def on_new_leadership_term_event(
        self, leadership_term_id: int, log_position: int, timestamp: int, term_base_log_position: int, *_: object
    ) -> None:
        self._apply(("term", leadership_term_id, timestamp, term_base_log_position))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self._apply(("message", None if session is None else session.id, timestamp, bytes(buffer)), session)
        if session is not None:
            applied = self.state.applied
            session.offer(b"%d %d" % (applied[-1], len(applied) - 1))

    def _apply(self, event: tuple[object, ...], session: ClientSession | None = None) -> None:
        for what, number, argument in apply(self.state, event, self.world.plan.services):
            self._do(what, number, argument, session)
        self.world.check_state(self)

    def _do(self, what: str, number: int, argument: int, session: ClientSession | None) -> None:
        cluster = self.cluster
        match what:
            case "timer":
                while not cluster.schedule_timer(number + self.number, argument):
                    cluster.idle()
            case "cancel":
                while not cluster.cancel_timer(number + self.number):
                    cluster.idle()
            case "offer":
                # The longer ones are of two frames.
                cluster.send(b"S%d %d " % (self.number, number) + bytes(2000 * (argument == 3)))
            case "close" if session is not None and self.number == 0:
                while not cluster.close_client_session(session.id):
                    cluster.idle()


class NumberedMessages(ABC):
    """A world whose clients send what a :class:`Recorder` understands, each message with a number of its own."""

    plan: Any
    stats: Counter[str]

    @cached_property
    def numbers(self) -> Iterator[int]:
        """Those of messages."""
        return itertools.count(1)

    @cached_property
    def senders(self) -> dict[int, SimulatedClient]:
        """Who has sent which message."""
        return {}

    def _send(self, client: SimulatedClient, draw: random.Random) -> None:
        number = next(self.numbers)
        kind = draw.choices("ptcsx", [10, 4, 1, 3, 0.2])[0]
        argument = 0
        if kind == "t":
            argument = draw.choice([-5, 0, 3, 50, 500, 3000])
        elif kind == "c":
            argument = draw.randint(1, number)
        elif kind == "s":
            argument = draw.randint(1, 3)
        is_filled = draw.random() < (0.8 if self.plan.retained > 0 else 0.3)
        filler = bytes(draw.randrange(self.plan.longest)) if is_filled else b""
        self._send_text(client, kind, number, argument, filler)

    def _send_text(self, client: SimulatedClient, kind: str, number: int, argument: int, filler: bytes = b"") -> None:
        self.senders[number] = client
        if client.send(b"%s %d %d " % (kind.encode(), number, argument) + filler):
            self.on_sent(client, number)

    def on_egress(self, client: SimulatedClient, session_id: int, timestamp: int, payload: bytes) -> None:
        """A client was told which place a message has."""
        number, index = map(int, payload.split(b" "))
        if self.senders.get(number) is not client:
            raise Violation("answer", f"to message {number}, which another client has sent")
        self.on_answer(number, index)

    def on_sent(self, client: SimulatedClient, number: int) -> None:
        """A client has sent a message."""
        self.stats["sent"] += 1

    @abstractmethod
    def on_answer(self, number: int, index: int) -> None:
        """A client was told which place its message has."""


class Client(SimulatedClient):
    """A client of the node."""

    ENDPOINTS, HOST = "0=localhost:9010", "localhost"
    world: World

    def _idle(self) -> IdleStrategy:
        return SteppingIdleStrategy(self.world.step)


class World(NumberedMessages, SimulatedNode[NodePlan], DiskWorld[NodePlan]):
    """One plan's run."""

    def __init__(self, plan: NodePlan) -> None:
        super().__init__(plan)
        self.final = Log(services=plan.services)
        self.clients: list[Client] = []
        self.former: list[MemoryClient] = []
        self.answers: dict[int, int] = {}
        self.sent: set[int] = set()
        self.states: dict[int, int] = {}
        """The services' digests by number of events, which must be those of the log."""
        self.committed = 0
        self.client_numbers = itertools.count(1)
        self.reports: list[str] = []

    def boot(self) -> None:
        """The first start."""
        self._boot()
        self._start()

    # The life of a node.

    def _boot(self) -> None:
        self.driver = MemoryDriver(
            self.clock,
            publication_window=self.plan.window,
            first_session_id=self.random.randrange(-(1 << 30), 1 << 30),
            counters_capacity=1024,
        )
        self.former = []

    def _crash(self) -> None:
        """The node ends here, whatever it is about to do; what it does yet has no effect."""
        self.calls_left = self.turns_left = -1
        life = self.life
        if life.storage.is_dead:
            return
        self._observe()
        self._end_process(life.storage)
        for client in life.clients:
            client.sever()

    def _make_service(self, number: int) -> Recorder:
        return Recorder(self, number)

    def _module_settings(self) -> dict[str, Any]:
        return {
            "cluster_members": MEMBERS,
            "ingress_channel": "aeron:udp",
            "replication_channel": "aeron:udp?endpoint=localhost:0",
            "log_channel": "aeron:udp?term-length=64k",
            "session_timeout_ns": SESSION_TIMEOUT_MS * MS,
            "termination_timeout_ns": 2_000 * MS,
        }

    def _idle_of_service(self, number: int) -> Callable[[], IdleStrategy]:
        return lambda: SteppingIdleStrategy(self.step, max_idles=1_000_000)

    def _wait(self) -> None:
        self.clock.advance(10 * MS)

    def _start(self, crashes: Sequence[tuple[int, bool]] = ()) -> None:
        """Start the node, with crashes in the middle of it (calls before it, and whether power is cut); check."""
        left = list(crashes)
        while not self.is_over:
            self.is_faulty = False
            self.errors.clear()
            self.reports.clear()
            self.storage = self.disk.process()
            self.life = life = Life(self.storage)
            self.processes += 1
            self.calls_left, self.is_power_cut = left.pop(0) if left else (-1, False)
            try:
                self._make(life)
            except Exception as error:
                if life.storage.is_dead:
                    self.stats["crashes of a start"] += 1
                    self._end_life()
                elif self.is_faulty:
                    self.log.append(f"  the start failed: {type(error).__name__}: {error}")
                    self._abandon()
                elif isinstance(error, MarkFileError) and RELEASABLE.search(str(error)):
                    self._abandon()
                    self._free_mark_file(str(error))
                elif self.is_uncertain and isinstance(error, RecordingError):
                    self._refuse(error)
                else:
                    raise Violation("start", f"{type(error).__name__}: {error}") from error
                continue
            if not self.is_uncertain:
                self._check_disk()
            self.stats["starts"] += 1
            return

    def _refuse(self, error: BaseException) -> None:
        self.log.append(f"  refused: {error}")
        self._check_advice(str(error))
        self.stats["starts that damage refused"] += 1
        self.is_over = True

    def _check_advice(self, text: str) -> None:
        """A node that cannot start has named what to do."""
        found = "; ".join([text, *self.reports])
        if not ADVICE.search(found):
            raise Violation("advice", f"no way out is named: {found}")

    def _free_mark_file(self, text: str) -> None:
        """What an operator does, also where a start left an empty file."""
        storage = self.disk.process()
        names = ("archive/archive-mark", "cluster/cluster-mark", "cluster/cluster-mark-service-0")
        for name in (*names, "cluster/cluster-mark-service-1"):
            if f"{name}.dat has 0 bytes" in text:
                storage.unlink(f"/node/{name}.dat")
            elif f"{name}.dat" in text:
                self._release(storage, f"/node/{name}.dat")
        storage.kill(self.draws)
        self.stats["claims that an operator released"] += 1

    def _abandon(self) -> None:
        """An operator ends what is left of a node."""
        if not self.life.storage.is_dead:
            self.life.storage.kill(self.draws)
        self.fault, self.disk.capacity = None, CAPACITY
        for client in self.life.clients:
            client.sever()
        self._end_life()

    def _end_life(self) -> None:
        """After a crash: all of the machine is gone, or the process alone, which the driver gives up in time."""
        self.fault, self.disk.capacity = None, CAPACITY
        for client in self.clients:  # what the node has sent arrives
            client.poll()
        if self.is_power_cut:
            for client in self.clients:
                client.end()
            self.clients.clear()
            self._boot()
        else:
            self.former += self.life.clients
        self.is_power_cut = False
        self.clock.advance((LIVENESS_MS + self.random.randrange(2000)) * MS)
        for former in self.former:
            former.expire()
        self.former.clear()

    # Turns.

    def turn(self) -> None:
        """One duty cycle of everybody; a crash in it ends the life, and the next one begins."""
        if self.is_over:
            return
        with contextlib.suppress(Killed):
            self.step()
        for client in list(self.clients):
            if self.clock.now_ns >= client.stalled_until_ns:
                client.poll()
            if client.is_done:
                client.end()
                self.clients.remove(client)
        life = self.life
        if not life.storage.is_dead and self.turns_left > 0:
            self.turns_left -= 1
            if self.turns_left == 0:
                self._crash()
        if life.storage.is_dead:
            self._recover()
            return
        self._observe()
        self._check_errors()
        self._check_parts()

    def step(self) -> None:
        """Let time pass, and let each part take a turn that is not in one: also while a service waits in its own."""
        life = self.life
        self.clock.advance((1 + int(self.random.random() * self.plan.step_ms)) * MS)
        for part in self.random.choice(life.orders):
            if life.storage.is_dead:
                break
            if id(part) not in life.busy:
                life.busy.add(id(part))
                try:
                    part.invoke()
                finally:
                    life.busy.discard(id(part))
                if part is life.module and self.plan.retained > 0:
                    self._keep_log(life)
        if life.storage.is_dead and life.busy:
            raise Killed

    def _keep_log(self, life: Life) -> None:
        """Take in the log up to a snapshot that was taken just now: the node may delete it before the next start."""
        assert life.module is not None
        context = life.module.context
        if life.storage.is_dead or context.recording_log.next_entry_index == self.known_entries:
            return
        self.known_entries = context.recording_log.next_entry_index
        taken = context.recording_log.get_latest_snapshot(-1)
        if taken is None or taken.log_position <= self.final.end or self.is_uncertain:
            return
        with self._uncounted():
            take_in(life.storage, self.final, taken.log_position)
        self.stats["logs kept for a retention"] += 1

    def _check_parts(self) -> None:
        life = self.life
        if all(each.is_running for each in life.parts):
            return
        failures = [f"{each!r}: {each.failure}" for each in life.parts if not each.is_running]
        if self.is_faulty or life.is_ending:
            self._finish_life()
        elif self.is_uncertain:
            self._refuse(RuntimeError("; ".join(failures)))
        else:
            raise Violation("end", "; ".join(failures))

    def _finish_life(self) -> None:
        """A part has ended, and the others are to end as well; then an operator starts the node again."""
        life = self.life
        life.is_ending = True
        self.calls_left = self.turns_left = -1
        assert life.archive is not None
        others = [each for each in life.parts if each is not life.archive]
        if not life.archive.is_running and not self.is_faulty:
            self._await(lambda: not any(each.is_running for each in others[:1]), 30_000, "the end of the module")
        elif not self.is_faulty:
            self._await(lambda: not any(each.is_running for each in others), 30_000, "the end of all parts")
        self._close()

    def _close(self) -> None:
        """End what runs, in any order, and start again."""
        for part in self.random.choice(self.life.orders):
            with contextlib.suppress(Killed):
                part.close()
        self._observe()
        self._check_errors()
        self.stats["ends in order"] += 1
        self.fault, self.disk.capacity = None, CAPACITY
        self.life.storage.kill(self.draws)
        for client in self.life.clients:
            if seam.is_closed(client):  # of a part that was lost
                client.expire()
            client.close()
        self.life.clients.clear()
        # A disk that failed may have refused to take the sign-off.
        self.clock.advance((LIVENESS_MS if self.is_faulty else self.random.randrange(100)) * MS)
        self.is_power_cut = False
        self._start()

    def _await(self, is_done: Callable[[], bool], limit_ms: int, what: str) -> None:
        """Take turns of the node and its clients until something is so, which must be within a limit of virtual time,
        or the node is dead."""
        deadline = self.clock.now_ns + limit_ms * MS
        while not (is_done() or self.life.storage.is_dead):
            if self.clock.now_ns > deadline:
                raise Violation("liveness", f"{what} did not come within {limit_ms} ms")
            with contextlib.suppress(Killed):
                self.step()
            for client in self.clients:
                client.poll()

    def _recover(self) -> None:
        self._end_life()
        crashes = self._crashes_of_a_start(0.2, [10, 60, 200])
        if self.random.random() < 0.05:
            self._arm_fault(self.random)
        self._start(crashes)

    # What is seen.

    def on_sent(self, client: SimulatedClient, number: int) -> None:
        """A client has sent a message."""
        super().on_sent(client, number)
        self.sent.add(number)

    def on_answer(self, number: int, index: int) -> None:
        """A service has answered a message: it says which place the message has."""
        if self.answers.setdefault(number, index) != index:
            raise Violation("answer", f"message {number} is applied at {self.answers[number]}, and at {index}")
        self.stats["answers"] += 1

    def check_state(self, recorder: Recorder) -> None:
        """A service has another state: it must be that of all services and lives after as many events."""
        if self.is_uncertain:
            return
        state = recorder.state
        if self.states.setdefault(state.events, state.digest) != state.digest:
            raise Violation("state", f"service {recorder.number} has another state after {state.events} events")

    def _observe(self) -> None:
        """Note how far the log is committed: from there it never goes back."""
        module = self.life.module
        if module is not None and module.is_running:
            counters = self.driver.counters
            position = seam.counter_record(counters, module.context.counters.commit_position.counter_id)["value"]
            self.committed = max(self.committed, position)

    def _check_errors(self) -> None:
        for error in self.errors:
            if isinstance(error, Violation):
                raise error
            self.reports.append(str(error))
            is_expected = isinstance(error, (Event, ArchiveError, AgentTermination, PublicationUnavailableError))
            if self.is_uncertain and isinstance(error, ContainerError):
                is_expected = not str(error).startswith(NEVER_REPORTED)
            if isinstance(error, PROGRAMMING_ERRORS) or not (is_expected or self.is_faulty or self.life.is_ending):
                raise Violation("reported", f"{type(error).__name__}: {error}") from error
        self.errors.clear()

    def _check_disk(self) -> None:
        """What the disk has is all that was committed and answered, and what makes the states that were seen."""
        with self._uncounted():
            storage = self.disk.process()
            begin = check_disk(storage, self.final, services=self.plan.services, retained=self.plan.retained)
            self.stats["checks of a log without its begin"] += begin > 0
            storage.kill(self.draws)
        final = self.final
        if final.end < self.committed:
            raise Violation("committed", f"the log ends at {final.end}, {self.committed} was committed")
        for number, index in self.answers.items():
            if final.index.get(number) != index:
                raise Violation("acknowledged", f"message {number} is at {final.index.get(number)}, was at {index}")
        if not final.index.keys() <= self.sent:
            raise Violation("log", f"nobody sent {sorted(final.index.keys() - self.sent)}")
        for events, digest in self.states.items():
            if events >= len(final.digests) or final.digests[events] != digest:
                raise Violation("state", f"after {events} events it is not that of the log ({len(final.digests)})")
        # The log is what states are compared with from now on.
        self.answers.clear()
        self.states = dict(enumerate(final.digests))
        self.stats["checks"] += 1

    # Operations.

    def do(self, operation: Step) -> None:
        """Do one step of the plan."""
        draw = random.Random(operation.seed)
        self.log.append(f"{operation.number} {operation.kind} at {self.clock.now_ms}")
        method: Callable[[random.Random], None] = getattr(self, f"_do_{operation.kind}")
        method(draw)
        for _ in range(draw.choice([1, 2, 4])):
            self.turn()

    def _do_work(self, draw: random.Random) -> None:
        for _ in range(draw.choice([5, 10, 30])):
            self.turn()

    def _connected(self) -> list[Client]:
        return [each for each in self.clients if each.is_connected and self.clock.now_ns >= each.stalled_until_ns]

    def _do_connect(self, draw: random.Random) -> None:
        if len(self.clients) < MOST_CLIENTS:
            self.clients.append(Client(self, next(self.client_numbers)))
            for _ in range(10):
                self.turn()

    def _do_send(self, draw: random.Random) -> None:
        for _ in range(draw.choice([1, 3, 10])):
            clients = self._connected()
            if not clients:
                return
            self._send(draw.choice(clients), draw)
            if draw.random() < 0.3:
                self.turn()

    def _do_close(self, draw: random.Random) -> None:
        clients = self._connected()
        if clients:
            client = draw.choice(clients)
            assert client.cluster is not None
            client.cluster.close()
            client.is_done = True

    def _do_vanish(self, draw: random.Random) -> None:
        if self.clients:
            client = self.clients.pop(draw.randrange(len(self.clients)))
            client.end()

    def _do_stall(self, draw: random.Random) -> None:
        clients = self._connected()
        if clients:
            draw.choice(clients).stalled_until_ns = self.clock.now_ns + draw.choice([100, 1000, 5000]) * MS

    def _set_toggle(self, value: int) -> bool:
        """What ClusterTool does."""
        module = self.life.module
        if self.is_over or module is None or not module.is_running or not module.context.agent.has_leader:
            return False
        toggle = module.context.counters.control_toggle
        if seam.counter_record(self.driver.counters, toggle.counter_id)["value"] != NEUTRAL and value != RESUME:
            return False
        seam.set_counter(toggle, value)
        return True

    def _do_snapshot(self, draw: random.Random) -> None:
        if self._set_toggle(SNAPSHOT):
            self.stats["snapshots"] += 1
            for _ in range(draw.choice([0, 5, 30])):
                self.turn()

    def _do_suspend(self, draw: random.Random) -> None:
        if self._set_toggle(SUSPEND):
            life = self.life
            for _ in range(draw.choice([3, 10])):
                self.turn()
            if life is self.life and not self.is_over and self._set_toggle(RESUME):
                self.stats["suspended and resumed"] += 1
                for _ in range(10):
                    self.turn()

    def _do_shutdown(self, draw: random.Random) -> None:
        self._end_by_tool(SHUTDOWN, "shutdowns")

    def _do_abort(self, draw: random.Random) -> None:
        self._end_by_tool(ABORT, "aborts")

    def _end_by_tool(self, toggle: int, name: str) -> None:
        if self._set_toggle(toggle):
            life = self.life
            life.is_ending = True
            for _ in range(200):
                self.turn()
                if self.life is not life or self.is_over:
                    break
            self.stats[name] += self.life is not life

    def _do_restart(self, draw: random.Random) -> None:
        """An end in order, by the node's owner."""
        if not self.is_over:
            self.life.is_ending = True
            self.calls_left = self.turns_left = -1
            self._close()

    def _do_lose(self, draw: random.Random) -> None:
        """A part of the node dies alone; the others are to see it."""
        life = self.life
        assert life.archive is not None
        assert life.module is not None
        # For a service that is not there yet, the consensus module waits.
        lost = draw.choice([life.archive, *(life.services if life.module.context.agent.has_leader else ())])
        place = life.parts.index(lost)
        life.is_ending = True
        life.busy.add(id(lost))
        life.clients[place].sever()
        for _ in range(draw.randrange(20)):
            self.turn()
        if self.life is life and not self.is_over:
            life.clients.pop(place).expire()
            self.await_end_after_loss(life.module)
            self.stats["parts lost"] += 1
            self._crash()
            self._recover()

    def await_end_after_loss(self, module: ConsensusModule) -> None:
        """A consensus module ends at once that has lost its archive or a service; one that starts may wait for it."""
        state = seam.counter_record(self.driver.counters, module.context.counters.module_state.counter_id)["value"]
        limit_ms = LOSS_LIMIT_MS if state != INIT else 6 * LOSS_LIMIT_MS
        self._await(lambda: not module.is_running, limit_ms, "the consensus module's end")

    # The end.

    def finish(self) -> None:
        """Faults stop: the node leads and serves, and nothing is left to be done; then the last crash."""
        self.calls_left = self.turns_left = -1
        self.fault, self.disk.capacity = None, CAPACITY
        if not self.is_over and (self.is_faulty or self.life.is_ending):
            self._crash()
            self._recover_quietly()
        if not self.is_over:
            self._settle()
        if not self.is_over:
            self.is_power_cut = self.plan.level > 0 and self.random.random() < 0.5
            self._crash()
            self._recover_quietly()

    def _recover_quietly(self) -> None:
        self._end_life()
        self._start()

    def _settle(self) -> None:
        module = self.life.module
        assert module is not None
        agent = module.context.agent
        if self.is_uncertain:
            self._settle_after_loss(module)
            return
        self._await(lambda: agent.has_leader or not self._is_whole(), LEADER_LIMIT_MS, "a leader")
        self._set_toggle(RESUME)
        for client in self.clients:
            client.end()
        self.clients.clear()
        probe = Client(self, next(self.client_numbers))
        self.clients.append(probe)
        self._await(lambda: probe.is_connected, 8_000, "a session")
        number = next(self.numbers)
        self._send_text(probe, "p", number, 0)
        self._await(lambda: number in self.answers, 2_000, "an answer")
        states = [each.state for each in self.life.made]
        self._await(
            lambda: all(
                not each.timers and len(each.sessions) == 1 and each.received == [each.offered] * self.plan.services
                for each in states
            ),
            SESSION_TIMEOUT_MS + 3_000 + 2_000,
            "the last timer, service message or end of a session",
        )
        self._check_errors()
        self._check_parts()
        self.stats["settled"] += 1

    def _settle_after_loss(self, module: ConsensusModule) -> None:
        """Whatever was lost, it starts or says why not, and what to do."""
        agent = module.context.agent
        try:
            self._await(lambda: agent.has_leader or not self._is_whole(), LEADER_LIMIT_MS, "a leader")
        except Violation:
            self._check_errors()
            self._check_advice("no leader")
        self._check_errors()
        self._check_parts()
        self.stats["starts after a loss"] += not self.is_over
        self.is_over = True

    def _is_whole(self) -> bool:
        return all(each.is_running for each in self.life.parts)

    @property
    def digest(self) -> int:
        """A number for all that happened, and for the log."""
        text = repr((self.log, sorted(self.stats.items()), self.clock.now_ns, self.final.state))
        return zlib.crc32(text.encode(), zlib.crc32(self.final.content))


def run(plan: NodePlan) -> Result[NodePlan]:
    """Run a plan; an error of the simulation itself is raised."""
    return World(plan).run()
