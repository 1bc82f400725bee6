"""The world around one client of the cluster over memory, for tests: driver, clock, scripted members, listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.api import Header, MessageBuffer
from container.client import AeronCluster, ClientContext, ClientState, EgressListener
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver, SteppingIdleStrategy
from container.transport.streams import Publication
from tests.ingress_member import IngressMember

MS = 1_000_000
S = 1_000 * MS
EGRESS = "aeron:udp?endpoint=localhost:0"
MEMBER_0 = "aeron:udp?endpoint=node0:9010"
MEMBER_1 = "aeron:udp?endpoint=node1:9110"
ENDPOINTS = "0=node0:9010,1=node1:9110"


class Collecting(EgressListener):
    """Keeps the events that it receives."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.buffers: list[Any] = []
        self.headers: list[Any] = []
        self.timestamps: list[int] = []
        self.events: list[tuple[Any, ...]] = []
        self.on_any: Callable[[], object] = lambda: None

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: Any, header: Any) -> None:
        self.messages.append(bytes(buffer))
        self.timestamps.append(timestamp)
        self.on_any()

    def on_session_event(self, *event: Any) -> None:
        self.events.append(("session", *event))
        self.on_any()

    def on_new_leader(self, *event: Any) -> None:
        self.events.append(("new_leader", *event))
        self.on_any()

    def on_admin_response(self, *event: Any) -> None:
        self.events.append(("admin", *event))
        self.on_any()


class Counting(EgressListener):
    """Counts messages."""

    def __init__(self) -> None:
        self.count = 0

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.count += 1


class World:
    """A driver, a client of it to be used by the client under test; time passes while that one idles."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock)
        self.client: MemoryClient = self.driver.connect("test-client")
        self.listener = Collecting()
        self.idle = SteppingIdleStrategy(lambda: self.clock.advance(5 * MS))

    def context(self, **settings: Any) -> ClientContext:
        defaults: dict[str, Any] = {
            "ingress_channel": "aeron:udp",
            "ingress_endpoints": ENDPOINTS,
            "egress_channel": EGRESS,
            "client": self.client,
            "listener": self.listener,
            "idle_strategy": self.idle,
        }
        return ClientContext(**(defaults | settings))

    def connect(self, **settings: Any) -> AeronCluster:
        return AeronCluster.connect(self.context(**settings))

    def poll(self, client: AeronCluster, polls: int = 5) -> ClientState:
        for _ in range(polls):
            client.poll_egress()
        return client.state

    def advance(self, duration_ns: int) -> None:
        self.clock.advance(duration_ns)

    def ingress_channels(self) -> list[str]:
        added = [r for r in self.client.open_resources if isinstance(r, Publication)]
        return [publication.channel for publication in added if publication.stream_id == 101]


def elect(world: World, old: IngressMember) -> IngressMember:
    """Member 1 leads now and has told the client, whose egress channel the old leader knows."""
    assert old.egress is not None
    leader = IngressMember(world.driver, 1, MEMBER_1)
    leader.leadership_term_id = old.leadership_term_id + 1
    leader.open_egress(old.egress.channel)
    leader.new_leader(ENDPOINTS)
    return leader


def state_of(client: AeronCluster) -> ClientState:
    """The client's state now; a type checker takes the attribute's for what it last was."""
    return client.state
