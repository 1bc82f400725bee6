"""Native members of a cluster on a simulated network: each has an archive, a consensus module and scripted services.

Time passes when a test says so. Members are named m0, m1, …, and clients are on a host of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.simulation.disk import SimulatedDisk
from container.testing.simulation.fabric import Fabric
from container.testing.simulation.scheduler import Scheduler
from container.testing.simulation.virtual_time import Draws, NodeClock, Trace, VirtualTime
from tests.consensus_world import LEADER, TERM_LENGTH, Client, ConsensusWorld
from tests.control_world import MS

STEP_MS = 2
LIMIT_MS = 120_000
CLIENT_HOST = "clients"
HEARTBEAT_TIMEOUT_MS = 1_000
CLIENT_LIVENESS_MS = 1_000
MARK_FILE_LIVENESS_MS = 10_000


class MemberWorld(ConsensusWorld):
    """One member; the time is its cluster's."""

    def __init__(
        self,
        cluster: MembersWorld,
        member_id: int,
        services: int,
        archive: dict[str, Any],
        settings: dict[str, Any],
    ) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.host = f"m{member_id}"
        self.is_up = True
        self.is_stalled = False
        self.random_seed = member_id + 1  # of the delay before a nomination
        super().__init__(
            services=services,
            archive={
                "driver": cluster.drivers[member_id],
                "control_channel": f"aeron:udp?endpoint={self.host}:8010",
                "replication_channel": f"aeron:udp?endpoint={self.host}:0",
                **archive,
            },
            cluster_members=cluster.members_text,
            cluster_member_id=member_id,
            replication_channel=f"aeron:udp?endpoint={self.host}:0",
            **settings,
        )

    @property
    def role(self) -> int:
        """The role in counter 201."""
        return self.counter_value(201)

    def on_read(self, position: int, data: bytes) -> None:
        """Check that services of all members, in all lives, read the same at a position."""
        known = self.cluster.read.setdefault(position, data)
        assert known == data, f"{self.host} read {data[:80]!r} up to {position}, where another one read {known[:80]!r}"

    @property
    def is_leading_now(self) -> bool:
        """Whether it leads, and no election is in progress."""
        return self.is_leading and self.role == LEADER

    @property
    def published_position(self) -> int:
        """The end of the log that it publishes."""
        return seam.position(self.publication)

    def until(self, predicate: Callable[[], object]) -> None:
        """Let the whole cluster work until it is true."""
        self.cluster.until(predicate)

    def describe(self) -> str:
        """Its state, and its reports."""
        shown = "down"
        if self.is_up and self.failure is None:
            shown = f"{self.state} role={self.role} election={self.counter_value(207)} commit={self.commit_position}"
        return f"{self.host}: {shown} failure={self.failure!r} reported={list(dict.fromkeys(self.texts()))[-8:]}"

    def die(self) -> None:
        """Kill archive, consensus module and services."""
        self.is_up = False
        self.failure = None
        for client in (self.client, self.member, *(each.client for each in self.services)):
            self.cluster.fabric.sever(client)

    def leave(self) -> None:
        """Close archive, consensus module and services in order."""
        self.is_up = False
        self.agent.close()
        for service in self.services:
            service.client.close()
        self.member.close()
        self.close()

    def wipe(self) -> None:
        """Give it empty disks."""
        self.disk, self.cluster_disk = SimulatedDisk(), SimulatedDisk()
        self.owner = None

    def come_back(self) -> None:
        """Start it again, with what is on its disks, once nobody takes what died for alive."""
        self.cluster.run(MARK_FILE_LIVENESS_MS + CLIENT_LIVENESS_MS)
        self.start_again()

    def start_again(self) -> None:
        """The same, where that has passed."""
        self.is_up = True
        self.open()
        self.begin()


class MembersWorld:
    """A cluster of native members, all of them started.

    Args:
        count: how many.
        services: of each member.
        seed: of the network.
        archive: arguments of all archives' worlds (ArchiveWorld).
        settings: of all consensus modules.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        services: int = 1,
        seed: int = 1,
        archive: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.time = VirtualTime()
        self.scheduler = Scheduler(self.time, Draws(seed))
        self.fabric = Fabric(
            self.scheduler,
            Draws(seed + 1),
            trace=Trace(),
            image_liveness_ns=1_000 * MS,
            connection_timeout_ns=1_000 * MS,
            linger_ns=500 * MS,
            client_liveness_ns=CLIENT_LIVENESS_MS * MS,
        )
        self.drivers: list[MemoryDriver] = [self.fabric.host(f"m{each}") for each in range(count)]
        self.driver = self.fabric.host(CLIENT_HOST)
        self.egress_port = 20_000
        self.read: dict[int, bytes] = {}
        self.on_step: list[Callable[[], object]] = []
        ports = ((9010, 9020, 9030, 9040, 8010) for _ in range(count))
        self.members_text = "|".join(
            ",".join([str(each), *(f"m{each}:{port}" for port in of_member)]) for each, of_member in enumerate(ports)
        )
        given: dict[str, Any] = {
            "log_channel": f"aeron:udp?term-length={TERM_LENGTH}",
            "leader_heartbeat_timeout_ns": HEARTBEAT_TIMEOUT_MS * MS,
            "leader_heartbeat_interval_ns": 100 * MS,
            "election_timeout_ns": 500 * MS,
            "election_status_interval_ns": 50 * MS,
            "startup_canvass_timeout_ns": 2_000 * MS,
            "session_timeout_ns": 60_000 * MS,
            "max_concurrent_sessions": 1_000,
        }
        self.members = [MemberWorld(self, each, services, archive or {}, given | settings) for each in range(count)]

    @property
    def failure(self) -> None:
        """Clients ask for it; the cluster as a whole does not fail."""
        return

    def step(self) -> None:
        """Some time passes, and each member that is up takes some turns."""
        over: list[bool] = []
        self.scheduler.after(STEP_MS * MS, over.append, True)
        while not over:
            self.scheduler.step()
        for driver in (*self.drivers, self.driver):
            clock = driver.clock
            assert isinstance(clock, NodeClock)
            clock.begin_turn()
        for member in self.members:
            if member.is_up and not member.is_stalled:
                member.work(2)
        for each in self.on_step:
            each()

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        for _ in range(duration_ms // STEP_MS):
            self.step()

    def until(self, predicate: Callable[[], object], limit_ms: int = LIMIT_MS) -> int:
        """Let time pass until it is true; how long that took (ms). AssertionError when it does not get so."""
        for step in range(limit_ms // STEP_MS):
            if predicate():
                return step * STEP_MS
            self.step()
        raise AssertionError(f"did not happen in {limit_ms} ms: {self.describe()}")

    def describe(self) -> str:
        """The states of its members, and their reports."""
        return "\n".join(member.describe() for member in self.members)

    @property
    def leaders(self) -> list[MemberWorld]:
        """Those that are up and lead."""
        return [each for each in self.members if each.is_up and each.failure is None and each.is_leading_now]

    def await_leader(self) -> MemberWorld:
        """Let time pass until one member leads, and no election is in progress at any that is up."""

        def is_led() -> bool:
            return len(self.leaders) == 1 and all(each.agent.has_leader for each in self.up())

        self.until(is_led)
        return self.leaders[0]

    def up(self) -> list[MemberWorld]:
        """Those that are up."""
        return [each for each in self.members if each.is_up and each.failure is None]

    def settle(self, members: Iterable[MemberWorld] | None = None) -> None:
        """Let time pass until all these have committed and read what the leader has published."""
        leader = self.await_leader()
        wanted = list(self.up() if members is None else members)

        def are_even() -> bool:
            position = leader.published_position
            return all(
                each.commit_position == position and all(service.position == position for service in each.services)
                for each in wanted
            )

        self.until(are_even)

    def await_read(self, payload: bytes, members: Iterable[MemberWorld] | None = None) -> None:
        """Let time pass until the services of all these have read a client's message, and then as :meth:`settle`."""
        wanted = list(self.up() if members is None else members)
        self.until(lambda: all(payload in payloads(each) for each in wanted))
        self.settle(wanted)

    def client(self, member: MemberWorld, **fields: Any) -> Client:
        """A client that is connected to a member."""
        client = Client(self, f"aeron:udp?endpoint={member.host}:9010", CLIENT_HOST)  # type: ignore[arg-type]
        client.open(**fields)
        return client


def payloads(member: MemberWorld) -> list[bytes]:
    """Clients' messages that the first service of a member has read."""
    return [fields["payload"] for name, fields in member.services[0].messages if name == "SessionMessageHeader"]
