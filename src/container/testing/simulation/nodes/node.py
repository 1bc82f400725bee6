"""A whole node that is simulated, without Java: archive, consensus module, services, and its clients.

All four are the production's; driver, disk, time and numbers are simulated.
"""

from __future__ import annotations

import errno
import itertools
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from container.api import Header, MessageBuffer
from container.archive.server.archive_context import ArchiveContext
from container.archive.server.native_archive import Archive
from container.client import AeronCluster, ClientContext
from container.client.aeron_cluster import AsyncConnect
from container.client.egress_listener import EgressListener
from container.clustered_service_container import ClusteredServiceContainer
from container.consensus.consensus_module import ConsensusModule
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.context import Context
from container.errors import ContainerError
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.simulation.disk import SimulatedStorage
from container.testing.simulation.nodes.disk_world import DiskPlan, Machine
from container.testing.simulation.nodes.recorded import ARCHIVE_DIR, CLUSTER_DIR
from container.transport.idle_strategy import IdleStrategy

APP_VERSION = 0x010000
NEVER_REPORTED = "ack out of sequence"
"""The beginning of a report that no loss of a disk excuses."""
SUSPEND, RESUME, SNAPSHOT, SHUTDOWN, ABORT = 2, 3, 4, 5, 6
NEUTRAL = 1
FAULTS = (
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("force", errno.EIO),
    ("extend", errno.ENOSPC),
    ("force_directory", errno.EIO),
    ("rename", errno.EIO),
    ("open", errno.EMFILE),
    ("read", errno.EIO),
)


@dataclass(frozen=True, kw_only=True)
class NodePlan(DiskPlan):
    """All that a run depends on."""

    services: int
    timer_service: str
    longest: int
    """Bytes of the longest message."""
    step_ms: int
    """The longest step of the clock between two turns."""
    retained: int
    """How many snapshots the node keeps; 0 for all."""


class ClientWorld(Protocol):
    """The world that a client is in."""

    driver: MemoryDriver
    stats: Counter[str]
    log: list[str]

    def on_egress(self, client: SimulatedClient, session_id: int, timestamp: int, payload: bytes) -> None:
        """A client has an answer."""


class SimulatedClient(EgressListener):
    """A client of the cluster."""

    ENDPOINTS: str
    """The members' endpoints, for clients."""
    HOST: str
    """Its own."""

    def __init__(self, world: ClientWorld, number: int) -> None:
        self.world, self.number = world, number
        self.transport: MemoryClient = world.driver.connect(f"client {number}")
        self.cluster: AeronCluster | None = None
        self.stalled_until_ns = 0
        self.is_done = False
        self.connecting: AsyncConnect | None = AeronCluster.async_connect(
            ClientContext(
                client=self.transport,
                ingress_channel="aeron:udp",
                ingress_endpoints=self.ENDPOINTS,
                egress_channel=f"aeron:udp?endpoint={self.HOST}:{20_000 + number}",
                listener=self,
                idle_strategy=self._idle(),
                message_timeout=3.0,
            )
        )

    @abstractmethod
    def _idle(self) -> IdleStrategy:
        """How it waits inside of a call."""

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        """Hand an answer to the world."""
        self.world.on_egress(self, cluster_session_id, timestamp, bytes(buffer))

    def on_session_event(self, *event: Any) -> None:
        """Count it."""
        self.world.stats["session events"] += 1

    def poll(self) -> None:
        """Take a turn."""
        try:
            seam.invoke(self.transport)
            if self.connecting is not None:
                self.cluster = self.connecting.poll()
                if self.cluster is not None:
                    self.connecting = None
                    self.world.stats["connected"] += 1
            elif self.cluster is not None:
                self.cluster.poll_egress()
                self.is_done = self.is_done or self.cluster.is_closed
        except ContainerError as error:
            self.world.log.append(f"  client: {type(error).__name__}: {error}")
            self.is_done = True

    @property
    def is_connected(self) -> bool:
        """Whether its session is open."""
        return self.cluster is not None and not self.is_done

    def send(self, payload: bytes) -> bool:
        """Send a message if that is possible now: whether it was."""
        assert self.cluster is not None
        try:
            return self.cluster.offer(payload) > 0
        except ContainerError:
            self.is_done = True
            return False

    def end(self) -> None:
        """End its process; the cluster does not hear of it."""
        self.is_done = True
        self.transport.sever()
        self.transport.expire()


@dataclass
class Life:
    """The parts of a node between two starts."""

    storage: SimulatedStorage
    clients: list[MemoryClient] = field(default_factory=list)
    archive: Archive | None = None
    module: ConsensusModule | None = None
    services: list[ClusteredServiceContainer] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    """The services that the containers were given."""
    busy: set[int] = field(default_factory=set)
    """Services inside a turn of their own."""
    is_ending: bool = False
    """Somebody has asked for its end, or a part of it was lost."""
    orders: list[tuple[Any, ...]] = field(default_factory=lambda: [()])
    """All orders in which parts may take turns; the first is that of :attr:`clients`."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """Archive, consensus module and containers."""
        return self.orders[0]


class SimulatedNode[P: NodePlan](Machine[P]):
    """A machine with a disk, and the node on it."""

    FAULTS, MOST_CALLS = FAULTS, 6
    app_version = APP_VERSION
    """The version of the services that are started from now on."""
    driver: MemoryDriver

    def __init__(self, plan: P) -> None:
        super().__init__(plan, "/node")
        self.known_entries = 0
        """The entries of the recording log that were seen."""
        self.life = Life(self.storage)

    @property
    def service_version(self) -> int:
        """The same, as a number from 1 on."""
        return max(1, (self.app_version - APP_VERSION) >> 8)

    @abstractmethod
    def _make_service(self, number: int) -> Any:
        """Make the service of a container."""

    def _service_settings(self) -> dict[str, Any]:
        """Settings of the containers, beside those of all."""
        return {}

    @abstractmethod
    def _module_settings(self) -> dict[str, Any]:
        """Settings of the consensus module: where it and the others are, and how long it waits."""

    @abstractmethod
    def _idle_of_service(self, number: int) -> Callable[[], IdleStrategy]:
        """How a service idles that waits inside a turn."""

    @abstractmethod
    def _wait(self) -> None:
        """The archive or the consensus module waits inside a turn."""

    def _connect(self, name: str) -> MemoryClient:
        client = self.driver.connect(name)
        self.life.clients.append(client)
        return client

    def _make(self, life: Life) -> None:
        """Make all parts of a node, the archive first, as its recovery comes before anything else."""
        settings: dict[str, Any] = {
            "storage": life.storage,
            "error_handler": self._error_handler(life.storage),
        }
        life.archive = Archive(
            ArchiveContext(
                client=self._connect("archive"),
                idle_strategy=lambda: SteppingIdleStrategy(self._wait),
                archive_dir=ARCHIVE_DIR,
                low_storage_space_threshold=0,
                **self._archive_settings(),
                **settings,
            )
        )
        life.module = ConsensusModule(
            ConsensusModuleContext(
                client=self._connect("consensus module"),
                idle_strategy=lambda: SteppingIdleStrategy(self._wait),
                random_source=self.random,
                environ={},
                cluster_dir=CLUSTER_DIR,
                use_agent_invoker=True,
                file_sync_level=self.plan.level,
                service_count=self.plan.services,
                timer_service=self.plan.timer_service,
                snapshots_retained=self.plan.retained,
                app_version=self.app_version,
                **self._module_settings(),
                **settings,
            )
        )
        self.known_entries = life.module.context.recording_log.next_entry_index
        for number in range(self.plan.services):
            made = self._make_service(number)
            life.made.append(made)
            life.services.append(
                ClusteredServiceContainer(
                    Context(
                        made,
                        client=self._connect(f"service {number}"),
                        idle_strategy=self._idle_of_service(number),
                        use_agent_invoker=True,
                        cluster_dir=CLUSTER_DIR,
                        service_id=number,
                        app_version=self.app_version,
                        environ={},
                        **self._service_settings(),
                        **settings,
                    )
                )
            )
        life.orders = list(itertools.permutations((life.archive, life.module, *life.services)))

    def _arm_crash(self, draw: random.Random) -> None:
        if draw.random() < 0.7:
            self.calls_left = draw.randint(1, draw.choice([3, 10, 30]))
        else:
            self.turns_left = draw.randint(1, 20)
