"""A whole cluster without Java, from one seed: each member is a whole node, with a disk, a clock and a life of its own.

Archive, consensus module, service container and client are the production's. Network, disks and time are simulated. A
member's parts take their turns when it is due; what waits inside a turn, a service, does so on a stack of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from container.common.error_texts import message_of
from container.consensus.election_host import ElectionState
from container.errors import AgentTermination, ContainerError, MarkFileError
from container.storage.storage_seam import READ_ONLY
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import (
    MemoryClient,
    MemoryCounter,
    MemoryPublication,
    MemorySubscription,
)
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from container.testing.simulation.fabric import Fabric
from container.testing.simulation.nodes.disk_world import (
    CAPACITY,
    MS,
    PROGRAMMING_ERRORS,
    Result,
    Step,
    operations,
    swarm,
)
from container.testing.simulation.nodes.history import (
    ARCHIVE_STREAM_ID,
    CONSENSUS_STREAM_ID,
    SERVICE_STREAM_ID,
    Acks,
    History,
    check_recorded,
)
from container.testing.simulation.nodes.node import (
    ABORT,
    APP_VERSION,
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
from container.testing.simulation.nodes.recorded import (
    ARCHIVE_DIR,
    CLUSTER_DIR,
    LOG_STREAM_ID,
    TERM_LENGTH,
    Violation,
    check_retention,
    frames_of,
    messages_of,
    read_catalog,
    read_file,
    read_recording_log,
    voted_term_of,
)
from container.testing.simulation.nodes.shorter import shorter
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.taps import Taps
from container.testing.simulation.turns import NodeSchedule, NodeTurns, Strand
from container.testing.simulation.virtual_time import Draws, NodeClock, ParkingIdleStrategy, Trace, VirtualTime
from container.transport.idle_strategy import IdleStrategy

CLIENT_HOST = "clients"
LIVENESS_MS = 1_000
"""How long images, connections and clients of a driver live without a sign."""
MARK_FILE_LIVENESS_MS = 10_001
MARK_FILE_VERSION = 8
"""Where version and time are in a mark file; a start that was killed may have left nothing but zeros there."""
SESSION_TIMEOUT_MS = 5_000
KEEP_ALIVE_MS = 500
LEADER_LIMIT_MS = 40_000
"""The longest time, once all is healed, until all members have one leader."""
SETTLE_LIMIT_MS = 20_000
"""The longest time from then on until nothing is left to do."""
LEADER = 2
"""The role, as a counter shows it."""
CRASH_STATES = (ElectionState.FOLLOWER_LOG_REPLICATION, ElectionState.FOLLOWER_CATCHUP)
"""States of an election: a follower copies the log, or catches up with it."""
ACTIVE, SUSPENDED = 1, 2
"""States of a consensus module."""
TAPPED = (CONSENSUS_STREAM_ID, ARCHIVE_STREAM_ID, SERVICE_STREAM_ID)
"""Streams that are read along."""
EGRESS_STREAM_ID = 102
ALLOCATED, RECORDING_POSITION = 1, 100
"""A state of a counter, and the type of those of recordings."""
LOOK_TURNS = 64
"""Counters of recordings are looked for again once in as many turns."""
CLIENTS_PARK_NS = 30 * MS
"""The mean time until clients look again for whom nothing has come."""
CLIENTS_WAKE_NS = 20_000
"""The time from what comes for a client to the turn of all of them."""
MOST_CLIENTS = 4
FEWEST_MEMBERS, MOST_MEMBERS = 3, 7
SHRINK_RUNS = 100
"""How many plans are run at most to make one short: one of a cluster takes far longer than one of a single disk."""
CLOCKS = 0xC10C
"""The name of the draw of a plan's clocks among the others."""
SLOW_CALLS = ("write", "extend", "force", "force_directory")
"""Calls of a disk that take their time while it is slow."""
_ORDER, _COST, _CLIENTS, _DISK = 100, 200, 300, 400
"""The purposes of draws of turns."""
KINDS = {
    "send": 40.0,
    "work": 20.0,
    "connect": 8.0,
    "close": 2.0,
    "vanish": 2.0,
    "stall": 2.0,
    "snapshot": 4.0,
    "suspend": 1.0,
    "resume": 2.0,
    "shutdown": 0.7,
    "abort": 0.5,
    "restart": 1.0,
    "roll": 0.3,
    "kill": 3.0,
    "cut": 3.0,
    "kill_all": 0.5,
    "lose": 0.6,
    "wipe": 0.6,
    "fault": 0.8,
    "fill_disk": 0.4,
    "pause": 2.0,
    "part": 2.0,
    "isolate": 2.0,
    "deafen": 2.0,
    "clog": 1.5,
    "lossy": 1.0,
    "heal": 4.0,
    "step_clock": 1.0,
    "behead": 2.0,
    "compete": 2.0,
    "mute": 1.0,
    "ahead": 1.0,
}
MORE_KINDS = {
    "upgrade": 1.0,
    "replace": 1.0,
    "reconnect": 3.0,
    "snapshot": 3.0,
    "shutdown": 1.0,
    "abort": 1.0,
    "wipe": 1.0,
    "roll": 0.5,
    "suspend": 1.0,
    "fill_disk": 1.0,
    "fault": 1.0,
    "step_clock": 1.0,
    "slow_disk": 2.0,
}
"""Rare and new kinds: a plan may have some of these beside all others."""
FIRST_OF_MORE = 1_000
"""The number of the first one; all others have lower ones."""
CORE = 0xC03E
"""The name, among the draws of a seed, of the one for the member that stays away at the end."""
MORE = 0x30E5
"""The name, among the draws of a seed, of the one for those."""
ALWAYS = ("send", "work", "connect", "heal")
PROFILES: tuple[dict[str, float], ...] = (
    KINDS,
    {"compete": 8.0, "behead": 3.0, "kill": 3.0, "cut": 3.0, "pause": 2.0, "isolate": 2.0, "deafen": 2.0, "clog": 2.0},
    {
        "behead": 8.0,
        "mute": 6.0,
        "ahead": 2.0,
        "kill": 1.0,
        "cut": 2.0,
        "kill_all": 1.0,
        "deafen": 1.0,
        "part": 1.0,
        "snapshot": 1.0,
    },
    {
        "behead": 8.0,
        "ahead": 3.0,
        "suspend": 3.0,
        "resume": 4.0,
        "snapshot": 2.0,
        "close": 4.0,
        "vanish": 2.0,
        "pause": 2.0,
    },
)
"""All that may happen; much of few kinds: elections, logs that differ, and what is taken back."""
CALM = {"send": 10.0, "work": 6.0, "connect": 4.0, "heal": 3.0}
"""How the profiles of few kinds weigh those that are always there."""
PLAIN_SHARE = 0.1
"""The share of seeds without any fault: a failure there is a plain bug."""
PLAIN_KINDS = 6
"""Number of kinds, from the first, that are not faults."""


@dataclass(frozen=True, kw_only=True)
class NativePlan(NodePlan):
    """All that a run depends on."""

    window: int = 0
    step_ms: int = 1
    members: int
    latency_us: tuple[int, int]
    """The least of a message from host to host, and the mean."""
    turn_us: tuple[int, int]
    """How long a turn takes that does something."""
    clock_offsets_ms: tuple[int, ...]
    """How far the members' times of day are off."""
    drifts_ppm: tuple[int, ...]
    crash_share: float
    """How often a member dies that begins to copy or to catch up."""


def expand(seed: int, members: int = 0, *, steps: int | None = None, has_more: bool = True) -> NativePlan:
    """The plan of a seed; of so many members and steps, where that is given, and without what is rare, if asked for."""
    draw = random.Random(seed)
    level = draw.choice([0, 1, 1, 1, 2])
    is_plain = draw.random() < PLAIN_SHARE
    profile = draw.choice(PROFILES)
    kinds = dict(itertools.islice(KINDS.items(), PLAIN_KINDS)) if is_plain else {**CALM, **profile}
    weights = swarm(draw, kinds, ALWAYS)
    if level == 0:
        weights.pop("cut", None)  # it may take what is acknowledged
    count = draw.randint(10, 60)  # drawn in any case: the rest does not depend on it
    drawn = operations(draw, weights, "connect", count if steps is None else steps)
    clocks = random.Random(seed ^ CLOCKS)
    has_clocks = clocks.random() < 0.3
    plan = NativePlan(
        seed=seed,
        level=level,
        members=(draw.choice([3, 3, 5]), members)[members > 0],  # drawn in any case: the rest does not depend on it
        services=draw.choice([1, 1, 1, 2]),
        segment_length=TERM_LENGTH * draw.choice([1, 2]),
        timer_service=draw.choice(["wheel", "priority_heap"]),
        longest=draw.choice([30, 30, 500, 3000, 9000]),
        retained=0,
        latency_us=draw.choice([(20, 50), (50, 200), (200, 2_000), (1_000, 20_000), (60_000, 70_000)]),
        turn_us=draw.choice([(2, 20), (20, 100), (100, 1_000)]),
        clock_offsets_ms=tuple(clocks.randint(-5_000, 5_000) if has_clocks else 0 for _ in range(MOST_MEMBERS)),
        crash_share=0.0 if is_plain else clocks.choice([0.0, 0.0, 0.3]),
        drifts_ppm=tuple(clocks.randint(-200, 200) if has_clocks else 0 for _ in range(MOST_MEMBERS)),
        operations=tuple(drawn),
    )
    return _with_more(plan) if has_more and not is_plain else plan


def _with_more(plan: NativePlan) -> NativePlan:
    """A plan with what is rare in it: operations of their own numbers, a third service, a log that is cut."""
    draw = random.Random(plan.seed ^ MORE)
    if draw.random() < 0.1:
        plan = replace(plan, services=3)
    kinds = MORE_KINDS
    if draw.random() < 0.2:
        plan = replace(plan, retained=draw.choice([1, 2]), longest=9_000, segment_length=TERM_LENGTH)
        kinds = {**MORE_KINDS, "snapshot": 30.0, "send": 30.0}
    found = list(plan.operations)
    count = draw.choice([0, 1, 3, 6]) if plan.retained == 0 else draw.randint(15, 30)
    for number, kind in enumerate(draw.choices(list(kinds), list(kinds.values()), k=count), FIRST_OF_MORE):
        operation = Step(number, kind, draw.getrandbits(48))
        found.insert(draw.randint(1, len(found)), operation)
    return replace(plan, operations=tuple(found))


def smallest(result: Result[NativePlan], *, run: Callable[[NativePlan], Result[NativePlan]]) -> Result[NativePlan]:
    """The result of the smallest plan that was found with which the same oracle finds something.

    It has three members if they do, and as few operations, faults among them, as were found.
    """
    violation = result.violation
    assert violation is not None
    if result.plan.members > FEWEST_MEMBERS:
        fewer = run(replace(result.plan, members=FEWEST_MEMBERS))
        if fewer.violation is not None and fewer.violation.oracle == violation.oracle:
            result = fewer
    return shorter(result, run=run, most_runs=SHRINK_RUNS)


class Member(SimulatedNode[NativePlan]):
    """A node of the cluster; it is due at times of its own."""

    slow_until_ns = 0
    """Until then its disk is slow."""

    def __init__(self, cluster: ClusterWorld, member_id: int) -> None:
        plan = cluster.plan
        super().__init__(replace(plan, seed=plan.seed * 16 + member_id + 1))
        self.cluster = cluster
        self.member_id = member_id
        self.host = f"m{member_id}"
        self.log, self.stats = cluster.log, cluster.stats
        self.is_up = False
        self._parts: NodeTurns | None = None
        """The parts of this life, while it is up."""
        self.slow_mean_ns, self.slow_calls, self.disk_ns = 0, 0, 0
        """A slow disk: the time of a call, how many there were, and the time of those of this turn."""
        least_us, mean_us = plan.turn_us
        self.schedule = NodeSchedule(
            self,
            cluster.scheduler,
            cluster.draws,
            order_stream=_ORDER + member_id,
            cost_stream=_COST + member_id,
            least_ns=least_us * 1_000,
            mean_ns=mean_us * 1_000,
        )
        self.committed = 0
        self.committed_in_life = 0
        """Up to where its consensus module has committed in this life; :attr:`committed` is of all lives."""
        self._counter_ids: dict[str, int] = {}
        self._election_state = 0
        self._taps: Taps | None = None
        """Reads along: messages to other members, and requests to its archive."""
        self._acks: dict[int, Acks] = {}
        """The acks of each of its services in this life."""
        self._recorded: dict[tuple[int, int], list[int]] = {}
        """By id and registration of a counter: which recording it is of, and up to where its files were looked at."""
        self._checked_snapshots: set[tuple[int, int, int]] = set()
        """Position, service and recording of those that were looked at."""
        self._reader: SimulatedStorage | None = None
        self._recording_id = -1
        self._clock_step_ms = 0
        self.starts_soon = False
        """After its next end, if its driver ends as well."""
        self.is_to_be_wiped = False
        self.waits_for_wipe = 0
        """How many seconds more it may wait until that is safe."""
        self.terms_at_end = 0
        """The last term that any member had voted in when this one ended."""
        self._severed: list[MemoryClient] = []
        """The clients of parts that were lost."""
        self._ending_life: Life | None = None

    # Its life.

    def boot(self) -> None:
        """Its machine starts, and the node on it."""
        self._boot()
        self.start()

    def _boot(self) -> None:
        cluster = self.cluster
        plan, number = cluster.plan, self.member_id
        self.node_clock = NodeClock(
            cluster.time,
            epoch_ms=1_700_000_000_000 + plan.clock_offsets_ms[number] + self._clock_step_ms,
            boot_ns=self.random.randrange(1, 1 << 40),
            drift_ppm=plan.drifts_ppm[number],
        )
        wake = self.schedule.wake
        self.driver = cluster.fabric.host(self.host, clock=self.node_clock, wake=wake, counters_capacity=1024)

    def _archive_settings(self) -> dict[str, Any]:
        return {
            **super()._archive_settings(),
            "control_channel": f"aeron:udp?endpoint={self.host}:8010",
            "replication_channel": f"aeron:udp?endpoint={self.host}:0",
        }

    def _module_settings(self) -> dict[str, Any]:
        return {
            "cluster_members": self.cluster.members_text,
            "cluster_member_id": self.member_id,
            "ingress_channel": "aeron:udp",
            "replication_channel": f"aeron:udp?endpoint={self.host}:0",
            "log_channel": "aeron:udp?term-length=64k",
            "session_timeout_ns": SESSION_TIMEOUT_MS * MS,
            "termination_timeout_ns": 2_000 * MS,
            "leader_heartbeat_timeout_ns": 1_000 * MS,
            "leader_heartbeat_interval_ns": 100 * MS,
            "election_timeout_ns": 500 * MS,
            "election_status_interval_ns": 50 * MS,
            "startup_canvass_timeout_ns": 2_000 * MS,
        }

    def _idle_of_service(self, number: int) -> Callable[[], IdleStrategy]:
        def wait() -> None:
            assert self._parts is not None
            self._parts.wait(number)

        return lambda: ParkingIdleStrategy(wait)

    def _wait(self) -> None:
        raise Violation("waits", f"archive or consensus module of m{self.member_id} waits inside a turn")

    def start(self) -> None:
        """Start the node on its machine."""
        self.is_faulty = False
        self._severed.clear()
        self.errors.clear()
        self.committed_in_life = 0
        self._taps = None
        self._recorded.clear()
        self._acks = {number: Acks() for number in range(self.plan.services)}
        self.storage = self.disk.process()
        self.life = life = Life(self.storage)
        self.processes += 1
        self.node_clock.begin_turn()
        try:
            self._make(life)
        except Exception as error:
            if not life.storage.is_dead:
                self._on_failed_start(error)
            self.bury()
            return
        if life.storage.is_dead:
            self.bury()
            return
        assert life.module is not None
        counters = life.module.context.counters
        names = (
            "commit_position",
            "node_role",
            "leadership_term_id",
            "module_state",
            "control_toggle",
            "election_state",
        )
        self._counter_ids = {name: getattr(counters, name).counter_id for name in names}
        self._taps = Taps(life.clients[1:], TAPPED)
        orders = itertools.permutations(range(len(life.parts)))
        ids = list(self._counter_ids.values())
        self._parts = NodeTurns(life.parts, orders, self.node_clock, life.storage, self.driver.counters, ids)
        self._recording_id = -1
        self.is_up = True
        self.stats["starts"] += 1
        self.cluster.check_member(self)
        self.schedule.begin(self._parts)

    def _on_failed_start(self, error: Exception) -> None:
        if not (self.is_faulty or isinstance(error, MarkFileError)):
            raise Violation("start", f"m{self.member_id}: {type(error).__name__}: {error}") from error
        self.log.append(f"  m{self.member_id}: the start failed: {type(error).__name__}: {error}")
        self.stats["starts that failed"] += 1
        self._crash()

    def _crash(self) -> None:
        self.calls_left = self.turns_left = -1
        life = self.life
        if life.storage.is_dead:
            return
        self.observe()
        self.log.append(f"  m{self.member_id} at {self.cluster.now_ms}:")
        self._end_process(life.storage)
        for client in life.clients:
            if self.is_power_cut:
                client.sever()
            elif client not in self._severed and not seam.is_closed(client):
                self.cluster.fabric.sever(client)

    def bury(self, *, is_in_order: bool = False) -> None:
        """Clear away an ended node; an operator starts it again in a while."""
        self.is_up = False
        self.schedule.end()
        self.calls_left = self.turns_left = -1
        if self._parts is not None:
            self._parts.kill()
        self.fault, self.disk.capacity = None, CAPACITY
        # A cut that was planned for a later call of the disk has not come.
        is_machine_down, self.is_power_cut = self.is_power_cut and not is_in_order, False
        if is_machine_down:
            self.driver.kill()
        self.cluster.on_down(self, is_machine_down, is_in_order=is_in_order)

    def release_mark_files(self) -> None:
        """Do as an operator who knows that the node is dead."""
        with self._uncounted():
            storage = self.disk.process()
            services = (f"{CLUSTER_DIR}/cluster-mark-service-{number}.dat" for number in range(self.plan.services))
            for path in (f"{ARCHIVE_DIR}/archive-mark.dat", f"{CLUSTER_DIR}/cluster-mark.dat", *services):
                if not storage.exists(path):
                    continue
                file = storage.open_file(path, READ_ONLY)
                has_owner = any(file.read(16, MARK_FILE_VERSION))
                file.close()
                if has_owner:
                    self._release(storage, path)
                else:
                    storage.unlink(path)
            storage.kill(self.draws)

    # Turns.

    def wake(self) -> None:
        """Something has come for one of its parts."""
        self.schedule.wake()

    def on_turn(self, work_count: int, has_news: bool) -> None:
        """Look at what a turn has done."""
        life, parts = self.life, self._parts
        assert parts is not None
        if not life.storage.is_dead and self.turns_left > 0:
            self.turns_left -= 1
            if self.turns_left == 0:
                self._crash()
        if life.storage.is_dead:
            self.bury()
            return
        # A service that waits has done something, and has not ended its turn.
        if has_news or work_count > 0 or self.cluster.history.has_states:
            self.observe(has_sent=work_count > 0)
            self._crash_soon_in_election()
        if self.errors:
            self._check_errors()
        if parts.has_ended():
            self._check_parts()
        self.schedule.go_on(work_count > 0, self.disk_ns)

    def _on_latency(self, kind: str, length: int) -> None:
        if self.slow_until_ns > 0 and self.slow_until_ns > self.cluster.time.now_ns and kind in SLOW_CALLS:
            # The node's next turn comes that much later; time stands still during a turn.
            self.slow_calls += 1
            self.disk_ns += self.cluster.draws.delay_ns(_DISK + self.member_id, self.slow_calls, 0, self.slow_mean_ns)
        super()._on_latency(kind, length)

    def step(self) -> None:
        """Nobody waits by letting the others take turns here."""
        self._wait()

    def value(self, name: str) -> int:
        """Read a counter of its consensus module."""
        return seam.counter_value(self.driver.counters, self._counter_ids[name])

    @property
    def may_lose_power(self) -> bool:
        """Whether what it has acknowledged outlasts that."""
        return self.plan.level > 0 and self.failed_force_of is None

    @property
    def is_incomplete(self) -> bool:
        """A part has died alone or has ended, and the others are about to follow."""
        return self._has_lost or self._ending_life is self.life

    @property
    def _has_lost(self) -> bool:
        return self._parts is not None and self._parts.has_lost

    @property
    def is_leading(self) -> bool:
        """It leads, and no election is in progress."""
        module = self.life.module
        return (
            self.is_up
            and module is not None
            and module.is_running
            and module.context.agent.has_leader
            and self.value("node_role") == LEADER
        )

    def set_toggle(self, value: int) -> bool:
        """Do as ClusterTool."""
        assert self.life.module is not None
        if self.value("control_toggle") != NEUTRAL and value != RESUME:
            return False
        seam.set_counter(self.life.module.context.counters.control_toggle, value)
        return True

    # Observation.

    def observe(self, *, has_sent: bool = True) -> None:
        """Look at its counters, and at what it has sent: whoever has sent something has worked."""
        module = self.life.module
        if not self.is_up or module is None or not module.is_running:
            return
        history = self.cluster.history
        has_leader = module.context.agent.has_leader
        if has_sent:
            self._read_along()
            self._look_at_recordings()
        position = self.value("commit_position")
        if position != self.committed_in_life:
            if position < self.committed_in_life:
                raise Violation("commit", f"m{self.member_id} goes back from {self.committed_in_life} to {position}")
            self.committed_in_life = position
            if position > history.end:
                history.commit(self, position, self.cluster.members)
            self.committed = max(self.committed, position)
        history.check_applied()
        if has_leader and self.value("node_role") == LEADER:
            history.check_leader(self, self.value("leadership_term_id"))

    def _crash_soon_in_election(self) -> None:
        """Now and then it dies in the middle of what it copies from a leader, or has to catch up with."""
        module = self.life.module
        if module is None or not module.is_running:
            return
        state, known = self.value("election_state"), self._election_state
        if state == known:
            return
        self._election_state = state
        name = ElectionState(state).name.lower()
        self.stats[f"election: {name}"] += 1
        if state == ElectionState.INIT and known not in (ElectionState.INIT, ElectionState.CLOSED):
            self.stats[f"election: begun anew in {ElectionState(known).name.lower()}"] += 1
        if state not in CRASH_STATES or self.cluster.is_healing:
            return
        if self.calls_left < 0 and self.random.random() < self.cluster.plan.crash_share:
            self.calls_left = self.random.randint(1, self.random.choice([5, 30]))
            self.is_power_cut = self.may_lose_power and self.random.random() < 0.5

    def _read_along(self) -> None:
        """Read what its consensus module and its services have sent."""
        assert self._taps is not None
        history = self.cluster.history
        for stream_id, message in self._taps.read():
            if stream_id == CONSENSUS_STREAM_ID:
                history.on_consensus_message(self, message)
            elif stream_id == SERVICE_STREAM_ID:
                self._on_service_message(message)
            elif self.value("election_state") == ElectionState.FOLLOWER_REPLAY:
                with self._uncounted():
                    self._find_recording()
                history.on_archive_request(self, self._recording_id, message, self.cluster.members)

    def _on_service_message(self, message: bytes) -> None:
        number = int.from_bytes(message[40:44], "little")
        if number in self._acks:
            self.cluster.history.on_ack(f"service {number} of m{self.member_id}", self._acks[number], message)

    def _look_at_recordings(self) -> None:
        """Its archive has in its files all that its counters count, and has forced it where that is promised."""
        counters = self.driver.counters
        state = self.value("election_state")
        if self.schedule.turns % LOOK_TURNS == 0 or state != self._election_state:
            for counter_id in range(seam.counter_capacity(counters)):
                record = seam.counter_record(counters, counter_id)
                if record["state"] == 0:
                    break
                if record["state"] == ALLOCATED and record["type_id"] == RECORDING_POSITION and record["key"]:
                    recording_id = int.from_bytes(record["key"][:8], "little")
                    name = counter_id, record["registration_id"]
                    self._recorded.setdefault(name, [recording_id, record["value"]])
        for (counter_id, registration_id), known in list(self._recorded.items()):
            position = seam.counter_value(counters, counter_id)
            if position == known[1]:
                continue
            if seam.counter_record(counters, counter_id)["registration_id"] != registration_id:
                del self._recorded[counter_id, registration_id]
            elif position > known[1]:
                self._check_recorded(known[0], known[1], position)
                known[1] = position

    def _check_recorded(self, recording_id: int, begin: int, end: int) -> None:
        with self._uncounted():
            written = self._bytes_of(begin, end, recording_id)
        forced = None
        if self.may_lose_power:
            forced, length = b"", self.plan.segment_length
            for base in range(begin - begin % length, end, length):
                first, last = max(begin, base), min(end, base + length)
                forced += self.disk.forced(f"{ARCHIVE_DIR}/{recording_id}-{base}.rec", first - base, last - first)
        check_recorded(f"recording {recording_id} of m{self.member_id}", end, end - begin, written, forced)

    def check_snapshots(self) -> None:
        """All snapshots that its recording log names say what the log says."""
        if self.is_uncertain:
            return
        entries = [each for each in self.recording_log() if each.is_snapshot]
        begin = self.log_begin()
        self.stats["logs without their begin"] += begin > 0
        kept_from = check_retention(entries, begin, self.plan.services, self.plan.retained)
        for each in entries:
            name = each.position, each.service_id, each.recording_id
            if name in self._checked_snapshots or not kept_from <= each.position <= self.cluster.history.end:
                continue
            self._checked_snapshots.add(name)
            with self._uncounted():
                content = read_file(self._read(), f"{ARCHIVE_DIR}/{each.recording_id}-0.rec")
            messages = [message for _, message in messages_of(content, 0) if message]
            self.cluster.history.check_snapshot(f"m{self.member_id}", each.position, each.service_id, messages)
            self.stats["snapshots read"] += 1

    def check_egress(self) -> None:
        """No service of a follower speaks to clients: it joined the log behind the end of what it led."""
        module = self.life.module
        if not self.is_up or module is None or not module.is_running or not module.context.agent.has_leader:
            return
        if self.value("node_role") != LEADER and not self.is_incomplete:
            archive, _, *services = self.life.clients
            held = itertools.chain.from_iterable(each.open_resources for each in (archive, *services))
            publications = [each for each in held if isinstance(each, MemoryPublication)]
            if any(each.log.stream_id == EGRESS_STREAM_ID for each in publications):
                names = [name for name in self.resources() if name[1:] == ("publication", EGRESS_STREAM_ID)]
                raise Violation("resources", f"m{self.member_id} follows, and its services hold {names}")

    def resources(self) -> Counter[Any]:
        """The resources that its parts hold of their driver: part, kind, and stream or type of counter."""
        names = ("archive", "module", *(f"service {each}" for each in range(self.plan.services)))
        found: Counter[Any] = Counter()
        for name, client in zip(names, self.life.clients, strict=True):
            for each in client.open_resources:
                if isinstance(each, MemoryPublication):
                    found[name, "publication", each.log.stream_id] += 1
                elif isinstance(each, MemorySubscription):
                    found[name, "subscription", each.stream_id] += 1
                elif isinstance(each, MemoryCounter):
                    type_id = seam.counter_record(self.driver.counters, each.counter_id)["type_id"]
                    found[name, "counter", type_id] += 1
        return found

    @abstractmethod
    def applied(self) -> list[int]:
        """How many events each of its services has been told."""

    def _check_errors(self) -> None:
        for error in self.errors:
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, Violation):
                raise error
            is_known = isinstance(error, (ContainerError, AgentTermination))
            is_programming = isinstance(error, PROGRAMMING_ERRORS) or not is_known
            if (is_programming and not self.is_faulty) or str(error).startswith(NEVER_REPORTED):
                raise Violation("reported", f"m{self.member_id}: {text}") from error
            self.cluster.note_error(self, text)
        self.errors.clear()

    def _check_parts(self) -> None:
        """A part has ended."""
        life = self.life
        if not (self.is_faulty or life.is_ending):
            ended = [_ended(each) for each in life.parts if not each.is_running]
            self.cluster.on_unexpected_end(self, "; ".join(ended))
        if not any(each.is_running for each in life.parts):
            self._leave(life)
        elif self._ending_life is not life:
            self._ending_life = life
            self.cluster.scheduler.after(3_000 * MS, self._end_rest, life)

    def _leave(self, life: Life) -> None:
        """All parts have ended: so do their processes."""
        self.stats["ends in order"] += 1
        self.observe()
        self.log.append(f"  m{self.member_id} has ended at {self.cluster.now_ms}")
        with self._uncounted():
            life.storage.kill(self.draws)
        for client in life.clients:
            client.close()
        self.bury(is_in_order=not self.is_faulty and not self._has_lost)

    def _end_rest(self, life: Life) -> None:
        if life is self.life and not life.storage.is_dead:
            self.stats["ends of a part alone"] += 1
            self._crash()
            self.bury()

    def close(self) -> None:
        """Its owner ends it in order."""
        self.life.is_ending = True
        parts = self._parts
        assert parts is not None
        for part in self.random.choice(self.life.orders):
            parts.close(self.life.parts.index(part))
        self.wake()

    def lose(self, draw: random.Random) -> None:
        """A part of it dies alone."""
        life = self.life
        lost = draw.randrange(len(life.parts))
        life.is_ending = True
        assert self._parts is not None
        if not self._parts.lose(lost):
            return
        client = life.clients[lost]
        self._severed.append(client)
        self.cluster.fabric.sever(client)
        self.cluster.scheduler.after(15_000 * MS, self._end_rest, life)

    def step_clock(self, duration_ms: int) -> None:
        """Its time of day is set."""
        self._clock_step_ms += duration_ms
        self.node_clock.step_epoch(duration_ms)

    def _recover(self) -> None:
        self.bury()

    def voted_term(self) -> int:
        """The last term that it has voted in."""
        with self._uncounted():
            storage = self._read()
            if not storage.exists(path := f"{CLUSTER_DIR}/node-state.dat"):
                return -1
            file = storage.open_file(path, READ_ONLY)
            content = file.read(512, 0)
            file.close()
        return voted_term_of(content)

    def switch_off(self) -> None:
        """The run is over."""
        self.is_up = False
        self.schedule.end()
        if not self.life.storage.is_dead:
            self.life.storage.kill(self.draws)
        for client in self.life.clients:
            client.sever()
        if self._parts is not None:
            self._parts.kill()

    def kill(self, *, is_power_cut: bool = False) -> None:
        """It dies now."""
        self.is_power_cut = is_power_cut
        self._crash()
        self.bury()

    # Its disk.

    def _read(self) -> SimulatedStorage:
        if self._reader is None or self._reader.is_dead:
            self._reader = self.disk.process()
        return self._reader

    def recording_log(self) -> list[Any]:
        """The entries of its recording log."""
        with self._uncounted():
            return read_recording_log(read_file(self._read(), f"{CLUSTER_DIR}/recording.log"))

    def log_begin(self) -> int:
        """Where the log on its disk begins; 0 while it has none."""
        with self._uncounted():
            self._find_recording()
            prefix = f"{self._recording_id}-"
            names = self._read().list_directory(ARCHIVE_DIR) if self._read().exists(ARCHIVE_DIR) else []
        bases = [int(each[len(prefix) : -4]) for each in names if each.startswith(prefix) and each.endswith(".rec")]
        return min(bases, default=0) if self.plan.retained > 0 else 0

    def _find_recording(self) -> None:
        """Find the recording of its log: that of the last term, or the last one of a log that has no term yet."""
        storage = self._read()
        content = read_file(storage, f"{ARCHIVE_DIR}/archive.catalog")
        found = []
        with contextlib.suppress(Violation):  # a catalog that a cut of the power has left, and that no start has mended
            catalog = read_catalog(content)[1] if content else []
            found = [each.recording_id for each in catalog if each.stream_id == LOG_STREAM_ID]
        terms = [(each.term_id, each.recording_id) for each in self.recording_log() if not each.is_snapshot]
        self._recording_id = max(terms)[1] if terms else max(found, default=-1)

    def log_bytes(self, begin: int, end: int, *, again: bool = False) -> bytes:
        """Read the log from its disk, from one position to another; fewer bytes where its files end."""
        with self._uncounted():
            content = b"" if again else self._bytes_of(begin, end)
            if len(content) < end - begin or not any(content[:4]):
                self._find_recording()
                content = self._bytes_of(begin, end)
        return content

    def _bytes_of(self, begin: int, end: int, recording_id: int | None = None) -> bytes:
        storage, content, length = self._read(), b"", self.plan.segment_length
        number = self._recording_id if recording_id is None else recording_id
        while begin < end:
            base = begin - begin % length
            path = f"{ARCHIVE_DIR}/{number}-{base}.rec"
            if not storage.exists(path):
                break
            file = storage.open_file(path, READ_ONLY)
            part = file.read(min(end, base + length) - begin, begin - base)
            file.close()
            content += part
            if len(part) < min(end, base + length) - begin:
                break
            begin = base + length
        return content

    def wipe(self) -> None:
        """Its disk is replaced by an empty one."""
        self.disk = SimulatedDisk(on_latency=self._on_latency, capacity=CAPACITY, stream=self.random.getrandbits(40))
        storage = self.disk.process()
        storage.make_directory("/node")
        storage.force_directory("/")
        storage.kill(self.draws)
        self.committed, self._reader, self._recording_id = 0, None, -1
        self._checked_snapshots.clear()
        self.cluster.history.votes.pop(self.member_id, None)  # none of its votes counts any more
        self.is_to_be_wiped = False
        self.stats["members wiped"] += 1
        self.failed_force_of = None


def _ended(part: Any) -> str:
    """Name a part that has ended, and why."""
    cause = None if part.failure is None else part.failure.__cause__
    return repr(part) if cause is None else f"{part!r}, by {type(cause).__name__}: {message_of(cause)}"


class Client(SimulatedClient):
    """A client of the cluster."""

    HOST = CLIENT_HOST
    world: ClusterWorld

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self.ENDPOINTS = world.endpoints
        self.last_sent_ns = 0
        self.is_closing = False
        self.strand = Strand(self._turn)
        super().__init__(world, number)

    def _idle(self) -> IdleStrategy:
        return ParkingIdleStrategy(self._wait)

    def _wait(self) -> None:
        self.strand.wait()
        seam.invoke(self.transport)

    def _turn(self) -> int:
        self.poll()
        return 0

    def poll(self) -> None:
        """Take a turn."""
        super().poll()
        if self.is_closing and self.is_connected:
            assert self.cluster is not None
            self.cluster.close()
            self.is_done = True
        now_ns = self.world.time.now_ns
        if self.is_connected and now_ns - self.last_sent_ns > KEEP_ALIVE_MS * MS:
            self.last_sent_ns = now_ns
            try:
                assert self.cluster is not None
                self.cluster.send_keep_alive()
            except ContainerError:
                self.is_done = True

    def end(self) -> None:
        """End its process; the cluster does not hear of it."""
        self.is_done = True
        self.world.fabric.sever(self.transport)
        self.strand.kill()


class ClusterWorld(ABC):
    """One plan's run: a cluster of nodes, their network, and clients."""

    def __init__(self, plan: NativePlan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.time = VirtualTime()
        self.draws = Draws(plan.seed)
        self.trace = Trace()
        self.scheduler = Scheduler(self.time, self.draws)
        self.fabric = Fabric(
            self.scheduler,
            Draws(plan.seed + 1),
            trace=self.trace,
            latency_ns=plan.latency_us[0] * 1_000,
            mean_latency_ns=plan.latency_us[1] * 1_000,
            image_liveness_ns=LIVENESS_MS * MS,
            connection_timeout_ns=LIVENESS_MS * MS,
            linger_ns=500 * MS,
            client_liveness_ns=LIVENESS_MS * MS,
        )
        self.log: list[str] = []
        self.violations: list[Violation] = []
        """Findings inside of a callback: the first ends the run."""
        self.stats: Counter[str] = Counter()
        self.is_over = False
        self.history = self._new_history()
        # The time of a log continues from the clock of the leader.
        self.history.log.is_time_checked = not any(plan.clock_offsets_ms)
        self.members_text = "|".join(
            ",".join([str(each), *(f"m{each}:{port}" for port in (9010, 9020, 9030, 9040, 8010))])
            for each in range(plan.members)
        )
        self.endpoints = ",".join(f"{each}=m{each}:9010" for each in range(plan.members))
        self.members: Sequence[Member] = [self._new_member(each) for each in range(plan.members)]
        self.clients: list[Client] = []
        self.client_numbers = itertools.count(1)
        self.reports: Counter[str] = Counter()
        self.is_healing = False
        self.ending_until_ns = 0
        """Until then members end because a tool has asked for it."""
        self.clock_steps_ms = 0
        """By how much clocks were set, together."""
        self._client_turns = 0
        self._clients_due = 0
        self._clients_due_ns = 0

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self.time.now_ns // MS

    # Parts that depend on the service.

    @abstractmethod
    def _new_history(self) -> History:
        """Make the record of the log, and of all that was seen."""

    @abstractmethod
    def _new_member(self, member_id: int) -> Member:
        """A member with its services."""

    @abstractmethod
    def _serve(self, probe: SimulatedClient) -> None:
        """At the end a client that is connected is served."""

    @abstractmethod
    def _is_settled(self) -> bool:
        """Whether all members have the same state, with nothing left to do."""

    @abstractmethod
    def _check_end(self) -> None:
        """All has settled: look at what else must be so."""

    def boot(self) -> None:
        """The first start."""
        self.driver = self.fabric.host(CLIENT_HOST, wake=self._wake_clients, counters_capacity=256)
        for member in self.members:
            member.boot()
        self._clients_are_due(self.time.now_ns)

    # Time.

    def run_for(self, duration_ms: int) -> None:
        """Let time pass."""
        self.until(None, duration_ms)

    def until(self, is_done: Callable[[], bool] | None, limit_ms: int, look_ms: int = 1) -> bool:
        """Let time pass until something is so, or the limit is over: False then. It is looked at so often."""
        end_ns = self.time.now_ns + limit_ms * MS
        over: list[bool] = []
        self.scheduler.at(end_ns, over.append, True)
        step, next_ns = self.scheduler.step, 0
        while not over:
            step()
            if self.violations:
                self.check_found()
            if is_done is not None and self.time.now_ns >= next_ns:
                if is_done():
                    return True
                next_ns = self.time.now_ns + look_ms * MS
        return is_done is not None and is_done()

    def check_found(self) -> None:
        """Raise the first of what was found inside of callbacks, if anything was."""
        if self.violations:
            raise self.violations[0]

    def await_(self, is_done: Callable[[], bool], limit_ms: int, what: str) -> None:
        """Let time pass until something is so, which must be within a limit of virtual time."""
        if not self.until(is_done, limit_ms):
            raise Violation("liveness", f"{what} did not come within {limit_ms} ms: {self.describe()}")

    def describe(self) -> str:
        """Describe the members in a line."""
        return "; ".join(map(self._describe, self.members)) + f"; reports: {dict(self.reports.most_common(8))}"

    def _describe(self, member: Member) -> str:
        if not member.is_up:
            return f"m{member.member_id} is down"
        module = member.life.module
        assert module is not None
        state = "elects" if not module.context.agent.has_leader else "leads" if member.is_leading else "follows"
        names = ("leadership_term_id", "commit_position", "module_state", "control_toggle")
        events = member.applied()
        return f"m{member.member_id} {state} " + " ".join(str(member.value(name)) for name in names) + f" {events}"

    def _wake_clients(self) -> None:
        if self._clients_due_ns > self.time.now_ns + CLIENTS_WAKE_NS:
            self._clients_are_due(self.time.now_ns + CLIENTS_WAKE_NS)

    def _clients_are_due(self, time_ns: int) -> None:
        self._clients_due += 1
        self._clients_due_ns = time_ns
        self.scheduler.at(time_ns, self._on_clients_turn, self._clients_due)

    def _on_clients_turn(self, number: int) -> None:
        if number != self._clients_due:
            return
        now_ns = self.time.now_ns
        clock = self.driver.clock
        assert isinstance(clock, NodeClock)
        for client in list(self.clients):
            clock.begin_turn()
            if now_ns >= client.stalled_until_ns:
                client.strand.turn()
            if client.is_done:
                client.end()
                self.clients.remove(client)
        self._client_turns += 1
        self._clients_are_due(now_ns + self.draws.delay_ns(_CLIENTS, self._client_turns, MS, CLIENTS_PARK_NS))

    # Reports of members.

    def on_down(self, member: Member, is_machine_down: bool, *, is_in_order: bool) -> None:
        """A member is down; an operator starts it again."""
        draw = member.random
        self.stats["ends"] += 1
        if is_in_order:
            self.scheduler.after(draw.choice([0, 100, 2_000]) * MS, self._restart, member, False, False)
            return
        if member.is_to_be_wiped:
            member.terms_at_end = max(each.voted_term() for each in self.members)
        releases = draw.random() < 0.9
        delay_ms = draw.choice([0, 100, 1_000, 5_000]) if releases else MARK_FILE_LIVENESS_MS
        if member.starts_soon:
            releases, delay_ms, member.starts_soon = True, 0, False
        if not is_machine_down:
            delay_ms = max(delay_ms, LIVENESS_MS + 1)
        if member.is_to_be_wiped:
            delay_ms += 6_000
        if self.is_healing:
            releases, delay_ms = True, LIVENESS_MS + 1
        self.scheduler.after((delay_ms + draw.randrange(300)) * MS, self._restart, member, is_machine_down, releases)

    def _restart(self, member: Member, is_machine_down: bool, releases: bool) -> None:
        if member.is_up:
            return
        if releases:
            member.release_mark_files()
        if member.is_to_be_wiped:
            if self._may_be_wiped(member):
                member.wipe()
            elif member.waits_for_wipe > 0:
                member.waits_for_wipe -= 1
                self.scheduler.after(1_000 * MS, self._restart, member, is_machine_down, releases)
                return
        if not self.is_healing and member.random.random() < 0.15:
            member.calls_left = member.random.randint(1, member.random.choice([10, 60, 200]))
            member.is_power_cut = member.may_lose_power and member.random.random() < 0.5
        self.log.append(f"  m{member.member_id} starts at {self.now_ms}")
        if is_machine_down:
            member.boot()
        else:
            member.start()

    def _may_be_wiped(self, member: Member) -> bool:
        """All that is committed is on a quorum of others, and no vote of this member counts any more."""
        end = self.history.end
        others = [each for each in self.members if each is not member and not each.is_to_be_wiped]
        have = [each for each in others if self._has_all(each, end)]
        return (
            len(have) >= self.history.quorum
            and max(self.history.leaders, default=-1) > member.terms_at_end
            and self._leader() is not None
        )

    def _has_all(self, member: Member, end: int) -> bool:
        """A member has all of the log, from its beginning on: an empty one can copy that."""
        return frames_of(member.log_bytes(0, end)) == self.history.frames

    def note_error(self, member: Member, text: str) -> None:
        """A member has reported an error."""
        self.reports[text] += 1

    def on_unexpected_end(self, member: Member, text: str) -> None:
        """A part has ended, and the world knows no cause."""
        if self.time.now_ns < self.ending_until_ns:
            return
        raise Violation("end", f"m{member.member_id}: {text}")

    def check_member(self, member: Member) -> None:
        """A member starts: its disk has what it has committed in earlier lives, and the terms of all."""
        self.history.check_content(member, min(member.committed, self.history.end), "starts")
        self.history.check_vote(member, "starts")
        member.check_snapshots()
        terms = {each.term_id: each.base for each in member.recording_log() if not each.is_snapshot}
        self.history.check_terms(f"m{member.member_id}", terms)

    @abstractmethod
    def on_egress(self, client: SimulatedClient, session_id: int, timestamp: int, payload: bytes) -> None:
        """A client has an answer."""

    def step(self) -> None:
        """No client waits by letting the others take turns."""
        raise Violation("waits", "a client waits inside a turn that is not its own")

    # Operations.

    def do(self, operation: Step) -> None:
        """Do one step of the plan."""
        draw = random.Random(operation.seed)
        self.log.append(f"{operation.number} {operation.kind} at {self.now_ms}")
        method: Callable[[random.Random], None] = getattr(self, f"_do_{operation.kind}")
        method(draw)
        self.run_for(draw.choice([1, 5, 20]))
        for member in self.members:
            member.check_egress()

    def _do_work(self, draw: random.Random) -> None:
        self.run_for(draw.choice([20, 200, 1_000]))

    def _do_connect(self, draw: random.Random) -> None:
        if len(self.clients) < MOST_CLIENTS:
            self.clients.append(Client(self, next(self.client_numbers)))
            self.until(lambda: any(each.is_connected for each in self.clients), draw.choice([10, 3_000]))

    def _ensure_client(self) -> None:
        """Without one a fault has nothing to take back."""
        if not self._connected():
            if len(self.clients) < MOST_CLIENTS:
                self.clients.append(Client(self, next(self.client_numbers)))
            self.until(lambda: bool(self._connected()), 1_000)

    def _connected(self) -> list[Client]:
        return [each for each in self.clients if each.is_connected and self.time.now_ns >= each.stalled_until_ns]

    def _do_send(self, draw: random.Random) -> None:
        for _ in range(draw.choice([1, 3, 10])):
            clients = self._connected()
            if not clients:
                return
            self._send(draw.choice(clients), draw)
            if draw.random() < 0.3:
                self.run_for(draw.choice([1, 3]))

    @abstractmethod
    def _send(self, client: SimulatedClient, draw: random.Random) -> None:
        """Let a client send a message."""

    @abstractmethod
    def _send_timer(self, client: SimulatedClient, draw: random.Random) -> None:
        """Let a client send a message with which services schedule a timer that is due in a while, if there is one."""

    def _do_close(self, draw: random.Random) -> None:
        clients = self._connected()
        if clients:
            draw.choice(clients).is_closing = True
            self.stats["clients that close"] += 1

    def _do_vanish(self, draw: random.Random) -> None:
        if self.clients:
            client = self.clients.pop(draw.randrange(len(self.clients)))
            client.end()
            self.stats["clients that vanish"] += 1

    def _do_stall(self, draw: random.Random) -> None:
        clients = self._connected()
        if clients:
            draw.choice(clients).stalled_until_ns = self.time.now_ns + draw.choice([100, 1000, 5000]) * MS
            self.stats["clients that stall"] += 1

    # Faults.

    def _up(self) -> list[Member]:
        return [each for each in self.members if each.is_up]

    def _pick(self, draw: random.Random) -> Member | None:
        """The leader, or any member that is up."""
        leader = self._leader() if draw.random() < 0.4 else None
        up = self._up()
        return leader or (draw.choice(up) if up else None)

    def _do_kill(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member._do_kill(draw)

    def _do_cut(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            if member.may_lose_power:
                member._do_cut(draw)
            else:
                member._do_kill(draw)

    def _do_kill_all(self, draw: random.Random) -> None:
        is_power_cut = draw.random() < 0.5
        for member in self._up():
            member.kill(is_power_cut=is_power_cut and member.may_lose_power)
        self.stats["kills of all"] += 1

    def _do_lose(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member.lose(draw)
            self.stats["parts lost"] += 1

    def _do_wipe(self, draw: random.Random) -> None:
        self._wipe(self._pick(draw))

    def _wipe(self, member: Member | None, *, is_replaced: bool = False) -> None:
        # Nobody has the beginning of a log that is cut: an empty member could not copy it.
        if member is None or self.plan.retained > 0 or any(each.is_to_be_wiped for each in self.members):
            return
        member.is_to_be_wiped, member.waits_for_wipe = True, 10
        leader = self._leader()
        member.kill(is_power_cut=is_replaced and member.may_lose_power)
        if leader is not None and leader.is_up:
            leader.kill()  # only in a later term none of the member's votes counts any more
        self.stats["members to be replaced"] += is_replaced

    def _do_replace(self, draw: random.Random) -> None:
        """Another machine takes a member's place: its disk is empty, and its driver new."""
        self._wipe(self._pick(draw), is_replaced=True)

    def _do_upgrade(self, draw: random.Random) -> None:
        """All members get a newer version of the services, one after the other."""
        version = self.members[0].service_version + draw.randint(1, 3)
        for member in self.members:
            member.app_version = APP_VERSION + (version << 8)
        self._do_roll(draw)
        self.stats["rolling upgrades"] += 1

    def _do_reconnect(self, draw: random.Random) -> None:
        """A client dies, and another process with its channel takes its place at once."""
        if self.clients:
            client = self.clients.pop(draw.randrange(len(self.clients)))
            client.end()
            self.clients.append(Client(self, client.number))
            self.stats["clients that come back"] += 1
            self.run_for(draw.choice([10, 1_000]))

    def _do_fault(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member._do_fault(draw)

    def _do_fill_disk(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member._do_fill_disk(draw)
            self.stats["full disks"] += 1

    def _do_slow_disk(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member.slow_until_ns = self.time.now_ns + draw.choice([500, 3_000, 10_000]) * MS
            member.slow_mean_ns = draw.choice([2, 20, 200]) * MS
            self.stats["slow disks"] += 1
            self._do_send(draw)

    def _do_pause(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member.schedule.paused_until_ns = self.time.now_ns + draw.choice([50, 300, 900, 3_000]) * MS
            self.stats["pauses"] += 1

    def _do_part(self, draw: random.Random) -> None:
        hosts = [each.host for each in self.members]
        draw.shuffle(hosts)
        at = draw.randrange(1, len(hosts))
        self.fabric.partition([[*hosts[:at], CLIENT_HOST], hosts[at:]])
        self.stats["partitions"] += 1
        self.run_for(draw.choice([100, 1_000, 3_000]))

    def _do_isolate(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            rest = [each.host for each in self.members if each is not member]
            # Clients may reach it still.
            self.fabric.partition([[member.host], [*rest, *([CLIENT_HOST] if draw.random() < 0.5 else [])]])
            self.stats["members isolated"] += 1
            self.run_for(draw.choice([100, 1_500, 3_000]))

    def _do_deafen(self, draw: random.Random) -> None:
        """One way alone: to a member or from it, of one other or of all."""
        if member := self._pick(draw):
            others = [each.host for each in self.members if each is not member]
            for other in others if draw.random() < 0.5 else [draw.choice(others)]:
                ways = (member.host, other) if draw.random() < 0.5 else (other, member.host)
                self.fabric.cut(*ways, False)
            self.stats["one-way cuts"] += 1
            self.run_for(draw.choice([100, 1_500, 3_000]))

    def _do_clog(self, draw: random.Random) -> None:
        hosts = [CLIENT_HOST, *(each.host for each in self.members)]
        one, other = draw.sample(hosts, 2)
        until_ns = self.time.now_ns + draw.choice([50, 500, 2_000]) * MS
        self.fabric.clog(one, other, until_ns, draw.random() < 0.5)
        self.stats["clogs"] += 1

    def _do_lossy(self, draw: random.Random) -> None:
        one, other = draw.sample([each.host for each in self.members], 2)
        least_us, mean_us = self.plan.latency_us
        loss = draw.choice([0.05, 0.3])
        self.fabric.link(one, other, latency_ns=least_us * 1_000, mean_latency_ns=mean_us * 1_000, loss=loss)
        self.stats["lossy links"] += 1

    def _do_heal(self, draw: random.Random) -> None:
        self._heal_network()
        self.run_for(draw.choice([10, 1_000, 4_000]))

    def _heal_network(self) -> None:
        hosts = [CLIENT_HOST, *(each.host for each in self.members)]
        self.fabric.partition([hosts])
        least_us, mean_us = self.plan.latency_us
        for one, other in itertools.combinations(hosts, 2):
            self.fabric.link(one, other, latency_ns=least_us * 1_000, mean_latency_ns=mean_us * 1_000)

    def _do_behead(self, draw: random.Random) -> None:
        """The leader gets work that it cannot pass on to a quorum, and then dies, stays alone, or is heard again."""
        self._ensure_client()
        leader = self._leader()
        if leader is None:
            return
        others = [each for each in self.members if each is not leader]
        draw.shuffle(others)
        for other in others[draw.choice([0, 0, self.plan.members - self.history.quorum - 1]) :]:
            self.fabric.cut(leader.host, other.host, False)
        self.stats["leaders cut off"] += 1
        if draw.random() < 0.3:
            leader.set_toggle(draw.choice([SNAPSHOT, SUSPEND, RESUME]))
        if draw.random() < 0.3:
            self._do_close(draw)
        self._do_send(draw)
        latency_ms = self.plan.latency_us[1] // 1_000
        self.run_for(draw.choice([20, 60, 200]) + 2 * latency_ms)
        fate = draw.choice(["dies", "dies", "loses power", "loses power", "stays alone", "is heard"])
        if fate in ("dies", "loses power"):
            if leader.is_up:
                leader.kill(is_power_cut=fate == "loses power" and leader.may_lose_power)
        elif fate == "stays alone":
            self.run_for(draw.choice([1_200, 2_000, 3_000]))
        self._heal_network()
        self.run_for(draw.choice([20, 1_500, 4_000]))
        if draw.random() < 0.4:
            # A member's rollback shows in its snapshot, unless a later entry of the log hides it.
            self.until(self._is_led, 1_500)
            self._do_snapshot(draw)
        follower = self._leader()
        if fate == "stays alone" and follower is not None and follower is not leader:
            # So it may lead again, with what it has taken back.
            follower.schedule.paused_until_ns = self.time.now_ns + 3_000 * MS
            self.run_for(4_000)

    def _do_mute(self, draw: random.Random) -> None:
        """The leader hears no follower, so what they record is not committed; one of them starts again with that."""
        self._ensure_client()
        leader = self._leader()
        if leader is None:
            return
        followers = [each for each in self._up() if each is not leader]
        follower = draw.choice(followers) if followers else leader
        # Two of five members are not a quorum: entries that only the leader and one more have may still be rolled back.
        reaches_one = draw.random() < 0.5
        for each in followers:
            self.fabric.cut(each.host, leader.host, reaches_one and each is not follower)
        self.stats["leaders that hear nobody"] += 1
        self._do_send(draw)
        self.run_for(draw.choice([20, 60]) + 2 * self.plan.latency_us[1] // 1_000)
        if follower.is_up:
            # It is back before the leader gives up, and what it says of its log is on its way for long.
            self.fabric.heal(follower.host, leader.host, False)
            late_ns = 30 * MS
            self.fabric.link(follower.host, leader.host, latency_ns=late_ns, mean_latency_ns=late_ns, both_ways=False)
            follower.starts_soon = True
            follower.kill(is_power_cut=follower.may_lose_power)
        self.run_for(draw.choice([700, 1_500]))
        self._heal_network()
        self.run_for(draw.choice([20, 1_500]))

    def _do_ahead(self, draw: random.Random) -> None:
        """The leader's clock is set while it is cut off: timers fire whose events are taken back."""
        self._ensure_client()
        leader = self._leader()
        clients = self._connected()
        if leader is None or not clients:
            return
        for _ in range(3):
            self._send_timer(draw.choice(clients), draw)
        latency_ms = self.plan.latency_us[1] // 1_000
        self.run_for(50 + 4 * latency_ms)
        for other in self.members:
            if other is not leader:
                self.fabric.cut(leader.host, other.host, draw.random() < 0.5)
        self._step_clock(leader, 6_000)
        self.run_for(draw.choice([1_100, 1_300]))
        self._heal_network()
        self.stats["leaders whose clock is ahead"] += 1
        self.until(self._is_led, 1_500)
        self._do_snapshot(draw)

    def _do_compete(self, draw: random.Random) -> None:
        """The leader falls silent, and the others do not hear in time who of them asks for votes."""
        leader = self._leader()
        if leader is None:
            return
        if draw.random() < 0.5:
            leader.schedule.paused_until_ns = self.time.now_ns + draw.choice([1_500, 3_000]) * MS
        else:
            leader.kill(is_power_cut=draw.random() < 0.5 and leader.may_lose_power)
        self.run_for(1_000 + draw.randrange(150))
        until_ns = self.time.now_ns + draw.choice([100, 300, 600]) * MS
        for one, other in itertools.combinations([each for each in self.members if each is not leader], 2):
            self.fabric.clog(one.host, other.host, until_ns, True)
        self.stats["competitions"] += 1
        self.run_for(draw.choice([700, 2_000]))

    def _do_step_clock(self, draw: random.Random) -> None:
        self._step_clock(draw.choice(self.members), draw.choice([-30_000, -1_000, 1_000, 30_000]))

    def _step_clock(self, member: Member, step_ms: int) -> None:
        self.history.log.is_time_checked = False
        member.step_clock(step_ms)
        self.clock_steps_ms += abs(step_ms)
        self.stats["clock steps"] += 1

    def _do_restart(self, draw: random.Random) -> None:
        if member := self._pick(draw):
            member.close()

    def _do_roll(self, draw: random.Random) -> None:
        """All members are started again, one after the other."""
        for member in self.members:
            if member.is_up:
                processes = member.processes
                member.close()
                self.until(partial(self._is_back, member, processes), 10_000)
        self.stats["rolling restarts"] += 1

    def _is_back(self, member: Member, processes: int) -> bool:
        return member.is_up and member.processes > processes and self._is_led()

    # Tools.

    def _do_snapshot(self, draw: random.Random) -> None:
        if (leader := self._leader()) and leader.set_toggle(SNAPSHOT):
            self.stats["snapshots"] += 1
            self.run_for(draw.choice([0, 5, 300]))

    def _do_suspend(self, draw: random.Random) -> None:
        if (leader := self._leader()) and leader.set_toggle(SUSPEND):
            self.stats["suspensions"] += 1
            self.run_for(draw.choice([1, 50, 1_000]))

    def _do_resume(self, draw: random.Random) -> None:
        if (leader := self._leader()) and leader.value("module_state") == SUSPENDED:
            self.stats["resumptions"] += leader.set_toggle(RESUME)

    def _do_shutdown(self, draw: random.Random) -> None:
        self._end_by_tool(SHUTDOWN, "shutdowns")

    def _do_abort(self, draw: random.Random) -> None:
        self._end_by_tool(ABORT, "aborts")

    def _end_by_tool(self, toggle: int, name: str) -> None:
        if (leader := self._leader()) and leader.set_toggle(toggle):
            self.ending_until_ns = self.time.now_ns + 20_000 * MS
            self.stats[name] += 1
            self.run_for(3_000)

    def _leader(self) -> Member | None:
        leaders = [each for each in self.members if each.is_leading]
        return max(leaders, key=lambda each: each.value("leadership_term_id"), default=None)

    # The end.

    def finish(self) -> None:
        """Faults stop: within a while there is a leader that serves, all members catch up, nothing is left to do."""
        self._heal()
        self._check_core(random.Random(self.plan.seed ^ CORE))
        self.await_(self._is_led, LEADER_LIMIT_MS, "a leader of all")
        for member in self.members:
            member.check_egress()
        for client in self.clients:
            client.end()
        self.clients.clear()
        leader = self._leader()
        assert leader is not None
        # A tool's pending request is done first.
        self.until(lambda: leader.value("control_toggle") == NEUTRAL, 300)
        limit_ms = 8_000
        is_resumed = leader.value("module_state") == SUSPENDED
        if is_resumed:
            leader.set_toggle(RESUME)
            self.run_for(100)
            # The leader reads now what clients asked for meanwhile: as many sessions as it takes, of clients long gone.
            limit_ms += SESSION_TIMEOUT_MS + self.clock_steps_ms
        self._open_session()

        def has_session() -> bool:
            if is_resumed and not self.clients:
                self._open_session()
            return bool(self.clients) and self.clients[-1].is_connected

        self.await_(has_session, limit_ms, "a session")
        self._serve(self.clients[-1])
        # A timer that was set while the clock of the leader was ahead is due that much later with another one's.
        limit_ms = SETTLE_LIMIT_MS + self.clock_steps_ms
        self.await_(self._is_settled, limit_ms, "the same state of all, with nothing left to do")
        self._check_end()
        for member in self.members:
            member.check_snapshots()
            member.kill(is_power_cut=member.may_lose_power)
            self.history.check_content(member, min(member.committed, self.history.end), "has ended")
            terms = {each.term_id: each.base for each in member.recording_log() if not each.is_snapshot}
            self.history.check_terms(f"m{member.member_id}", terms)
        self._count()

    def _open_session(self) -> None:
        self.clients.append(Client(self, next(self.client_numbers)))

    def _count(self) -> None:
        """How often rare situations came, beside those that are counted where they come."""
        plan, stats = self.plan, self.stats
        stats["settled"] += 1
        stats[f"seeds of {plan.members} members"] += 1
        stats[f"seeds of {plan.services} services"] += 1
        stats[f"seeds of sync level {plan.level}"] += 1
        stats["seeds with clocks that drift"] += any(plan.drifts_ppm)
        stats["terms"] += len(self.history.leaders)
        stats["ballots"] += len({term_id for term_id, _ in self.history.requests})
        stats["candidates of a term beside the first"] += self.history.contested
        stats["ballots of better logs"] += self.history.refusals
        stats["slow calls of disks"] += sum(each.slow_calls for each in self.members)
        stats["images lost"] += self.fabric.lost_images
        stats["images that come again"] += self.fabric.rejoined_images
        stats["gaps closed late"] += self.fabric.repaired_gaps

    def _check_core(self, draw: random.Random) -> None:
        """In half of the seeds one member, mostly the leader, stays away: the others have a leader without it."""
        if draw.random() < 0.5:
            return
        outside = self._leader() if draw.random() < 0.7 else None
        outside = outside or draw.choice(self.members)
        core = [each for each in self.members if each is not outside]
        module = outside.life.module
        # One that starts gives up after ten seconds, so it is only cut off.
        is_begun = outside.is_up and module is not None and module.is_running and module.context.agent.has_leader
        if draw.random() < 0.5 and is_begun:
            outside.schedule.paused_until_ns = self.time.now_ns + 10 * LEADER_LIMIT_MS * MS
        else:
            self.fabric.partition([[outside.host], [CLIENT_HOST, *(each.host for each in core)]])

        def is_led() -> bool:
            leading = [each for each in core if each.is_leading]
            return len(leading) == 1 and all(
                each.is_up and each.life.module is not None and each.life.module.context.agent.has_leader
                for each in core
            )

        self.await_(is_led, LEADER_LIMIT_MS, f"a leader without m{outside.member_id}")
        self.stats["leaders without one member"] += 1
        outside.schedule.paused_until_ns = 0
        outside.wake()
        self._heal_network()

    def _heal(self) -> None:
        self.is_healing = True
        for member in self.members:
            member.calls_left = member.turns_left = -1
            member.schedule.paused_until_ns = member.slow_until_ns = 0
            member.fault, member.disk.capacity = None, CAPACITY
            if member.is_up and (member.is_faulty or member.is_incomplete):
                member.kill()
        self._heal_network()

    def _is_led(self) -> bool:
        return (
            all(
                each.is_up and each.life.module is not None and each.life.module.context.agent.has_leader
                for each in self.members
            )
            and sum(each.is_leading for each in self.members) == 1
        )

    def close(self) -> None:
        """End all that runs yet, without effect."""
        for client in self.clients:
            client.transport.sever()
            client.strand.kill()
        for member in self.members:
            member.switch_off()

    @property
    def digest(self) -> int:
        """A number for all that happened, and for the log."""
        text = repr((self.log, sorted(self.stats.items()), self.time.now_ns, self.trace.digest, self.trace.count))
        return zlib.crc32(text.encode(), zlib.crc32(self.history.content))
