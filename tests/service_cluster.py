"""Three nodes with several services each, over memory: real agents, and consensus modules that number what they send.

A consensus module keeps what a service sends to the cluster until it is in the log, by number: the first message of a
service is 1 on each member, and what the log already has is dropped (upstream's PendingServiceMessageTracker). So
nothing is lost or doubled as long as the services of all members send the same messages in the same order. This plays
that rule; elections, replication and commits are a list of entries and how many of them each node has.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from container.api import ClientSession, Cluster, Header, MessageBuffer, Role, SnapshotImage, SnapshotPublication
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_consensus_module import ScriptedConsensusModule
from container.testing.memory.scripted_member import ScriptedMember
from container.testing.memory.scripted_messages import ServiceAck, SessionMessage

CLIENT_SESSION_ID = 1
NODES = 3
REPLIES = 2


class ChattyService(RecordingService):
    """Sends two messages to the cluster for each of a client's, and one on for each that the service before it sent.

    ``received`` is all that came from services, in order: the replicated state, which snapshots hold.
    """

    def __init__(self, service_id: int, service_count: int) -> None:
        super().__init__()
        self.service_id = service_id
        self.service_count = service_count
        self.requests: list[str] = []
        self.received: list[str] = []

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.requests, self.received = json.loads(b"".join(snapshot_image))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        text = bytes(buffer).decode()
        if not text.startswith("service"):
            self.requests.append(text)
            for number in range(REPLIES):
                self.tell(f"service {self.service_id}: {text}.{number}")
            return
        self.received.append(text)
        if text.startswith(f"service {(self.service_id - 1) % self.service_count}: ") and " via " not in text:
            self.tell(f"{text} via {self.service_id}")

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        state = json.dumps([self.requests, self.received]).encode()
        for begin in range(0, len(state), 1_000):
            snapshot_publication.send(state[begin : begin + 1_000])

    def tell(self, text: str) -> None:
        """Sends a message to all services of the cluster."""
        self.cluster.send(text.encode())


def expected_messages(requests: list[str], service_count: int) -> list[str]:
    """All that services tell each other for these requests, each once, sorted."""
    told = [
        f"service {service_id}: {request}.{number}"
        for request in requests
        for service_id in range(service_count)
        for number in range(REPLIES)
    ]
    forwarded = [f"{text} via {(int(text[8 : text.index(':')]) + 1) % service_count}" for text in told]
    return sorted(told + forwarded)


class Diverged(AssertionError):
    """A snapshot's numbers do not fit: upstream ends a member for that, when it loads the snapshot."""


@dataclass
class Tracker:
    """Messages of one service of one member that the log does not have yet, by number."""

    service_id: int
    next_number: int = 1
    logged_number: int = 0
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    appended_number: int = 0
    """The last that was appended to the log as leader, committed or not."""

    def enqueue(self, payload: bytes) -> None:
        """The service sent a message."""
        number, self.next_number = self.next_number, self.next_number + 1
        if number > self.logged_number:
            self.pending.append((number, payload))

    def on_logged(self, number: int) -> None:
        """A message of this service, by whichever member, is in the committed log."""
        self.logged_number = number
        self.pending = [each for each in self.pending if each[0] > number]

    def take_unappended(self) -> list[tuple[int, bytes]]:
        """Append to the log as a leader does now."""
        news = [each for each in self.pending if each[0] > self.appended_number]
        self.appended_number = max([self.appended_number, *(number for number, _payload in news)])
        return news

    def stop_leading(self) -> None:
        """The next leader has to append uncommitted entries again."""
        self.appended_number = self.logged_number

    def snapshot(self) -> Tracker:
        """The state as a snapshot has it; what the service has not sent, though it is in the log, is made up for.

        As upstream's ConsensusModuleSnapshotTaker: only when nothing is pending.
        """
        next_number = self.next_number if self.pending else self.logged_number + 1
        return Tracker(self.service_id, next_number, self.logged_number, list(self.pending), self.logged_number)

    def verify(self) -> None:
        """Raises Diverged unless the pending messages are just those between the log and the next number."""
        numbers = [number for number, _payload in self.pending]
        first = self.logged_number + 1
        if numbers != list(range(first, first + len(numbers))) or self.next_number != first + len(numbers):
            raise Diverged(
                f"snapshot has incorrect pending message state: serviceId={self.service_id} "
                f"next={self.next_number} logged={self.logged_number} pending={numbers}"
            )


@dataclass(frozen=True)
class Entry:
    """An entry of the log: a request of a client, a message of a service, a new term, or a snapshot action."""

    kind: str
    payload: bytes = b""
    service_id: int = 0
    number: int = 0


@dataclass
class Snapshot:
    """A node's snapshot: how many entries it covers, where it is in the log, and what everybody kept."""

    applied: int
    log_position: int
    trackers: list[Tracker]
    recordings: list[list[bytes]]


class Node:
    """One member: its services' agents, and the part of a consensus module that matters to them."""

    def __init__(self, services: list[ChattyService], log_position: int = 0, *, is_one_queue: bool = False) -> None:
        self.driver = MemoryDriver()
        self.cm = ScriptedConsensusModule(self.driver, log_position=log_position)
        self.members = [ScriptedMember(each, service_id=number, cm=self.cm) for number, each in enumerate(services)]
        self.trackers = [Tracker(number) for number in range(len(services))]
        self.appended = 0
        self.applied = 0
        self.leads = False
        self.snapshots: list[Snapshot] = []
        self._is_one_queue = is_one_queue

    @property
    def services(self) -> list[ChattyService]:
        """The services, by id."""
        return [member.service for member in self.members]

    def start(self, snapshot: Snapshot | None = None) -> None:
        """Starts all services, from a snapshot or from nothing."""
        recovery: dict[str, Any] = {}
        if snapshot is not None:
            for tracker in snapshot.trackers:
                tracker.verify()
            self.trackers = [tracker.snapshot() for tracker in snapshot.trackers]
            self.applied = snapshot.applied
            recordings = zip(self.members, snapshot.recordings, strict=True)
            ids = [member.store.add_recording(messages) for member, messages in recordings]
            recovery = {"recording_ids": ids, "leadership_term_id": 1, "log_position": snapshot.log_position}
        self.cm.start(**recovery)
        for member in self.members:
            member.agent.on_start()
        self.join(leads=False)

    def join(self, *, leads: bool) -> None:
        """All services follow a new log, in that role."""
        for tracker in self.trackers:
            tracker.stop_leading()
        self.leads = leads
        self.cm.begin_log("ipc")
        self.work()
        self.cm.join_log(role=Role.LEADER if leads else Role.FOLLOWER)
        self.work()

    def apply(self, entries: list[Entry], until: int) -> None:
        """Logs and commits entries up to there; the services read them when they next work."""
        for entry in entries[self.applied : until]:
            self.applied += 1
            match entry.kind:
                case "request":
                    self.cm.session_message(CLIENT_SESSION_ID, entry.payload)
                case "service":
                    self.cm.service_message(entry.service_id, entry.number, entry.payload)
                    self._tracker(entry.service_id).on_logged(entry.number)
                case "term":
                    self.cm.new_leadership_term()
                case "snapshot":
                    self._take_snapshot()
        self.cm.commit()

    def work(self) -> None:
        """The services read what is committed, and what they send is numbered."""
        for _ in range(2):
            for member in self.members:
                while member.work(1):
                    pass
        for message in self.cm.poll():
            if isinstance(message, SessionMessage):
                self._tracker(message.cluster_session_id).enqueue(message.payload)

    def close(self) -> None:
        """The node is killed."""
        for member in self.members:
            member.agent.close()
        self.cm.close()

    def _tracker(self, service_id: int) -> Tracker:
        return self.trackers[0 if self._is_one_queue else service_id]

    def _take_snapshot(self) -> None:
        position = self.cm.snapshot()
        self.cm.commit()
        acks = len(self.cm.acks)
        self.work()
        taken = self.cm.acks[acks:]
        assert {(ack.service_id, ack.log_position) for ack in taken} == {
            (number, position) for number in range(len(self.members))
        }
        recordings = [self._recorded(ack) for ack in sorted(taken, key=lambda ack: ack.service_id)]
        trackers = [tracker.snapshot() for tracker in self.trackers]
        self.snapshots.append(Snapshot(self.applied, position, trackers, recordings))

    def _recorded(self, ack: ServiceAck) -> list[bytes]:
        return self.members[ack.service_id].store.messages(ack.relevant_id)


class ServiceCluster:
    """Three nodes and the entries of their log; a seed decides who is how far behind at each moment."""

    def __init__(
        self,
        service_count: int,
        seed: int = 0,
        *,
        make_service: Callable[[int, int], ChattyService] = ChattyService,
        is_one_queue: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.service_count = service_count
        self.entries: list[Entry] = []
        self.nodes: dict[int, Node] = {}
        self.old_snapshots: dict[int, list[Snapshot]] = {}
        self._make_service = make_service
        self._is_one_queue = is_one_queue
        for index in range(NODES):
            self.start(index)
        self.elect(0)

    @property
    def leader(self) -> Node:
        """The node that leads."""
        (leader,) = [node for node in self.nodes.values() if node.leads]
        return leader

    @property
    def leader_index(self) -> int:
        """Which node leads."""
        return next(index for index, node in self.nodes.items() if node.leads)

    @property
    def committed(self) -> int:
        """How many entries a majority has."""
        appended = sorted(node.appended for node in self.nodes.values())
        return appended[-2] if len(appended) > 1 else 0

    def start(self, index: int, snapshot: Snapshot | None = None) -> Node:
        """Starts a node with services that know nothing, or what a snapshot has."""
        services = [self._make_service(number, self.service_count) for number in range(self.service_count)]
        node = Node(services, 0 if snapshot is None else snapshot.log_position, is_one_queue=self._is_one_queue)
        node.start(snapshot)
        self.nodes[index] = node
        return node

    def kill(self, index: int) -> None:
        """A node is gone with all it has not told anybody; its snapshots stay on its disk."""
        node = self.nodes.pop(index)
        self.old_snapshots.setdefault(index, []).extend(node.snapshots)
        node.close()

    def restart(self, index: int) -> None:
        """The node comes back as a follower, from its last snapshot and the log."""
        snapshots = self.old_snapshots.get(index, [])
        node = self.start(index, snapshots[-1] if snapshots else None)
        node.snapshots = list(snapshots)
        node.appended = self.committed

    def restart_missing(self) -> None:
        """All nodes that are gone come back."""
        for index in range(NODES):
            if index not in self.nodes:
                self.restart(index)

    def elect(self, index: int | None = None) -> None:
        """A new leader, one of those that have most; what it does not have is lost, the rest becomes committed."""
        most = max(node.appended for node in self.nodes.values())
        candidates = [each for each, node in self.nodes.items() if node.appended == most]
        chosen = self.rng.choice(candidates) if index is None else index
        del self.entries[most:]
        for each, node in self.nodes.items():
            node.appended = most
            node.apply(self.entries, most)
            node.work()
            node.join(leads=each == chosen)
        self.entries.append(Entry("term"))
        self.step()

    def request(self, text: str) -> None:
        """A client asks something; it counts as accepted when it is committed."""
        self.entries.append(Entry("request", text.encode()))

    def snapshot(self) -> None:
        """The leader has all take a snapshot."""
        self.entries.append(Entry("snapshot"))

    def step(self, *, is_in_step: bool = False) -> None:
        """Messages of services are appended, entries replicated and applied, some of it, or with all in step all."""
        leader = self.leader
        leader.appended = len(self.entries)
        for node in self.nodes.values():
            behind = leader.appended - node.appended
            node.appended += behind if is_in_step else self.rng.randint(0, behind)
        for node in self.nodes.values():
            node.apply(self.entries, min(node.appended, self.committed))
            if is_in_step or self.rng.random() < 0.7:
                node.work()
        for tracker in leader.trackers:
            for number, payload in tracker.take_unappended():
                self.entries.append(Entry("service", payload, tracker.service_id, number))

    def settle(self) -> None:
        """Steps until nothing is left to say."""
        while True:
            before = len(self.entries)
            for _ in range(3):
                self.step(is_in_step=True)
            if len(self.entries) == before:
                return

    def check(self) -> None:
        """Every service of every member has seen the same, and each message of the committed requests once."""
        self.settle()
        states = [(service.requests, service.received) for node in self.nodes.values() for service in node.services]
        requests, received = states[0]
        assert all(state == states[0] for state in states), "members diverged"
        assert sorted(received) == expected_messages(requests, self.service_count), "lost or doubled"
        assert [error for node in self.nodes.values() for member in node.members for error in member.errors] == []
