"""A native consensus module over the memory transport and a simulated disk, beside a real archive, with services and
clients that send raw messages; time passes when a test says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Self

from container.api import ADMIN_ACTION
from container.codecs import messages as codecs
from container.common.aeron_defaults import (
    CONSENSUS_MODULE_STREAM_ID,
    CONTROL_CHANNEL,
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    MODULE_STATES,
    SERVICE_STREAM_ID,
)
from container.consensus.consensus_module_agent import ConsensusModuleAgent
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.errors import AgentTermination
from container.files.cluster_mark_file import MARK_FILE_NAME
from container.files.recording_log import RecordingLogEntry
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient, MemoryPublication
from container.testing.simulation.disk import SimulatedDisk
from container.transport.fragment_assembler import FragmentAssembler
from container.transport.streams import Image, Publication, Subscription
from tests.archive_world import ArchiveWorld
from tests.control_world import MS

OK, ERROR, REDIRECT, AUTHENTICATION_REJECTED, CLOSED = range(5)
CLIENT_ACTION, SERVICE_ACTION, TIMEOUT = range(3)
INACTIVE, NEUTRAL, SUSPEND, RESUME, SNAPSHOT, SHUTDOWN, ABORT, STANDBY_SNAPSHOT = range(8)
ACTION_SUSPEND, ACTION_RESUME, ACTION_SNAPSHOT = range(3)
FOLLOWER, CANDIDATE, LEADER = range(3)
TERM_LENGTH = 64 * 1024
DATA_FRAME = 1
SESSION_HEADER_LENGTH = 32
STEP_MS = 5
VERSION = 3 << 8
CLUSTER_DIR = "/cluster"
INGRESS_CHANNEL = "aeron:udp?endpoint=localhost:9010"
MEMBERS = "0,localhost:9010,localhost:9020,localhost:9030,localhost:9040,localhost:8010"
ENDPOINTS = "0=localhost:9010"
RECORDING_IDS = 9000
"""Ids that services give to their snapshots, and their service id."""

# Types of counters.
COMMIT_POSITION, RECOVERY_STATE, LOG_RECORDING, SESSION = 203, 204, 100, 241

type Message = tuple[str, dict[str, Any]]


def decoded(data: bytes) -> Message:
    """Name and fields of a cluster message; what is behind a session message's header is its ``payload``."""
    name, fields = codecs.decode("cluster", data)
    if name == "SessionMessageHeader":
        fields["payload"] = data[SESSION_HEADER_LENGTH:]
    return name, fields


def messages_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The messages of recorded frames, each with the offset of its end; padding is left out."""
    message, offset = b"", 0
    while offset < len(content):
        length, flags = int.from_bytes(content[offset : offset + 4], "little"), content[offset + 5]
        kind = int.from_bytes(content[offset + 6 : offset + 8], "little")
        payload = content[offset + 32 : offset + length]
        offset += -(-length // 32) * 32
        if kind != DATA_FRAME:
            continue
        message = payload if flags & 0x80 else message + payload
        if flags & 0x40:
            yield offset, message


class ConsensusWorld(ArchiveWorld):
    """A consensus module, its archive and its services; which can be closed, killed and started again.

    ``errors`` has what the archive and the consensus module report. ``settings`` are those of the consensus module, and
    what its context takes.
    """

    random_seed = 1

    def __init__(self, *, services: int = 1, archive: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__(**(archive or {}))
        self.cluster_disk = SimulatedDisk()
        self.cluster_settings: dict[str, Any] = settings
        self.service_count = services
        self.services: list[Service] = []
        self.egress_port = 20_000
        self.failure: BaseException | None = None
        self.begin()

    def begin(self, **settings: Any) -> None:
        """Start the consensus module and its services."""
        self.member: MemoryClient = self.driver.connect("consensus-module")
        given: dict[str, Any] = {
            "cluster_members": MEMBERS,
            "cluster_dir": CLUSTER_DIR,
            "ingress_channel": "aeron:udp",
            "log_channel": f"aeron:udp?term-length={TERM_LENGTH}",
            "replication_channel": "aeron:udp?endpoint=localhost:0",
            "service_count": self.service_count,
        }
        self.context = ConsensusModuleContext(
            client=self.member,
            storage=self.cluster_disk.process(),
            random_source=random.Random(self.random_seed),
            error_handler=self._on_error,
            environ={},
            **(given | self.cluster_settings | settings),
        )
        self.context.conclude()
        self.agent: ConsensusModuleAgent = self.context.agent
        self.agent.start()
        self._counter_ids: dict[int, int] = {}
        self.services = [Service(self, each) for each in range(self.service_count)]

    def _on_error(self, error: BaseException) -> None:
        assert isinstance(error, Exception)
        self.errors.append(error)

    def on_read(self, position: int, data: bytes) -> None:
        """A service has read a message of the log, which ends at a position."""

    def lead(self) -> Self:
        """Work until it leads, clients can connect, and its services have read the beginning of the term."""
        self.until(lambda: self.is_leading)
        self.settle()
        self.tick()
        return self

    @property
    def is_leading(self) -> bool:
        return self.agent.has_leader and self.agent.log_publisher.publication is not None

    @property
    def state(self) -> str:
        """The name of what counter 200 shows."""
        return MODULE_STATES[self.counter_value(200)]

    @property
    def commit_position(self) -> int:
        return self.counter_value(COMMIT_POSITION)

    @property
    def toggle(self) -> int:
        return self.counter_value(202)

    def counter_value(self, type_id: int) -> int:
        """The value of the consensus module's counter of a type; its last one after the end."""
        counters = seam.counters(self.client)
        if type_id not in self._counter_ids:
            capacity = range(seam.counter_capacity(counters))
            [self._counter_ids[type_id]] = [
                each
                for each in capacity
                if (record := seam.counter_record(counters, each))["state"] == 1 and record["type_id"] == type_id
            ]
        return int(seam.counter_record(counters, self._counter_ids[type_id])["value"])

    def set_toggle(self, value: int) -> None:
        """Say what the cluster is to do, as a tool does."""
        seam.set_counter(self.context.counters.control_toggle, value)

    # The log

    @property
    def publication(self) -> MemoryPublication:
        publication = self.agent.log_publisher.publication
        assert isinstance(publication, MemoryPublication)
        return publication

    @property
    def log(self) -> list[Message]:
        """The messages of the log that is published."""
        return [decoded(each) for each in self.publication.log.messages()]

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The fields of the messages of that name in the log."""
        return [fields for known, fields in self.log if known == name]

    def refuse_appends(self, count: int) -> None:
        """Have the next tries of an append be back pressured."""
        self.driver.publication_results(self.log_channel(), 100, [-2] * count)

    def log_channel(self) -> str:
        [found] = [each.channel for each in self.driver.publications() if each.stream_id == 100]
        return found

    def snapshot(self) -> list[Message]:
        """The messages of the consensus module's last snapshot."""
        entry = self.context.recording_log.get_latest_snapshot(-1)
        assert entry is not None
        return [decoded(data) for _, data in messages_of(self.recorded(entry.recording_id))]

    def recorded_log(self, begin: int) -> Iterator[tuple[int, bytes]]:
        """The messages of the recording of the log behind a position, each with the position of its end."""
        recording_id = self.context.recording_log.find_last_term_recording_id()
        if recording_id == -1:
            return  # of the first log a member has no entry until its services have joined it
        descriptor = self.store.catalog.descriptor(recording_id)
        assert descriptor is not None
        for position, data in messages_of(self.recorded(recording_id)):
            if position + descriptor.start_position > begin:
                yield position + descriptor.start_position, data

    # Time

    def work(self, turns: int = 1) -> None:
        """Turns of all: archive, consensus module and services."""
        for _ in range(turns):
            super().work()
            if self.failure is None:
                self._turn()
            for service in self.services:
                service.work()

    def _turn(self) -> None:
        try:
            self.agent.do_work()
        except AgentTermination as ended:
            self.failure = ended
            self.agent.terminate(ended)
            self.agent.close()
        except Exception as error:  # as the agent's run() does
            self.errors.append(error)

    def until(self, predicate: Callable[[], object]) -> None:
        """Work until it is true, some milliseconds a turn; AssertionError when it does not get so in half a minute."""
        for _ in range(30_000 // STEP_MS):
            if predicate():
                return
            self.clock.advance(STEP_MS * MS)
            self.work()
        raise AssertionError(f"did not happen in 30 s; ended by {self.failure!r}; reported: {self.texts()}")

    def settle(self) -> None:
        """Work until all that was appended is committed, and services have read it."""
        self.until(lambda: self.commit_position == seam.position(self.publication))
        self.until(lambda: all(each.position == self.commit_position for each in self.services))

    def tick(self, ticks: int = 1) -> None:
        """Let slow ticks happen."""
        self.wait(ticks * 10)
        self.work(3)

    # Ends

    def stop(self) -> None:
        """End the consensus module in order, and its services with it."""
        self.agent.close()
        for service in self.services:
            service.client.close()
        self.services = []
        self.member.close()
        self.wait(3_000, 500)

    def kill(self) -> None:
        """Kill archive, consensus module and services, and start them again once nobody takes them for alive."""
        for client in (self.client, self.member, *(each.client for each in self.services)):
            client.sever()
            client.expire()
        self.clock.advance(11_000 * MS)
        self.open()
        self.begin()

    def entries(self) -> list[RecordingLogEntry]:
        """The entries of the recording log."""
        return list(self.context.recording_log.entries)

    def activity_timestamp(self) -> int:
        """The time that the mark file shows (ms)."""
        content = self.cluster_disk.contents()[f"{CLUSTER_DIR}/{MARK_FILE_NAME}"]
        assert content is not None
        return int(codecs.decode("mark", content)[1]["activity_timestamp"])

    def restart(self, **settings: Any) -> Self:
        """Stop it and start it again, with more settings."""
        self.stop()
        self.failure = None
        self.begin(**settings)
        return self

    def client_of(self, **fields: Any) -> Client:
        """A client that is connected."""
        client = Client(self)
        client.open(**fields)
        return client

    def report_of(self, text: str) -> bool:
        """Whether an error with that text was reported."""
        return any(text in str(each) for each in self.errors)

    def stop_log_recording(self) -> None:
        """Have the archive stop the recording of the log, as an operator can."""
        operator = self.connect()
        assert operator.ok("StopRecordingByIdentityRequest", recording_id=self.log_recording_id) == 1

    @property
    def log_recording_id(self) -> int:
        recording_id = self.context.recording_log.find_last_term_recording_id()
        assert recording_id != -1
        return recording_id


class Service:
    """A service that joins logs, reads what is committed, and acks what it is asked for."""

    def __init__(self, world: ConsensusWorld, service_id: int) -> None:
        self.world = world
        self.service_id = service_id
        self.client: MemoryClient = world.driver.connect(f"service-{service_id}")
        self.publication: Publication = seam.add_publication(self.client, CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID)
        self.control = seam.add_subscription(self.client, CONTROL_CHANNEL, SERVICE_STREAM_ID)
        self.is_quiet = False
        """Whether it acks nothing for now."""
        self.fails_snapshots = False
        self.stops_at_snapshots = False
        """Whether it is quiet from the next snapshot on."""
        self.busy_until_ns = 0
        """Until when it is in a callback, and does nothing else."""
        self.ack_id = 0
        self.acks: list[tuple[int, int]] = []
        """Log positions and relevant ids that it has acked."""
        self.joins: list[dict[str, Any]] = []
        self.answers: list[Message] = []
        """Other messages on its control stream: terminations, and answers to tools."""
        self.terminations: list[bytes] = []
        self.messages: list[Message] = []
        """The part of the log that it has read."""
        self.position = -1
        self.recovery_key = b""
        self._waiting_joins: list[dict[str, Any]] = []
        self._log: Subscription | None = None
        self._gap_end = 0
        self._image: Image | None = None
        self._to_ack: list[tuple[int, int]] = []
        self._read = seam.CollectingHandler()
        self._assembler = FragmentAssembler(self._read)

    def work(self) -> None:
        """A turn."""
        seam.invoke(self.client)
        if seam.nano_time(self.client) < self.busy_until_ns:
            return
        if not self.recovery_key:
            self._start()
        for data, _ in seam.poll(self.control, 100):
            self._on_control(data)
        if self._waiting_joins and self.position in (-1, self._waiting_joins[0]["log_position"]):
            self._join(self._waiting_joins[0])
        if self._image is not None:
            self._read_log(self._image)
        while self._to_ack and not self.is_quiet:
            self.ack(*self._to_ack.pop(0))

    def send(self, name: str, payload: bytes = b"", **fields: Any) -> None:
        """Ask the consensus module for something, unless it has ended."""
        result = seam.offer(self.publication, codecs.encode("cluster", name, **fields) + payload)
        assert result > 0 or self.world.failure is not None

    def ack(self, log_position: int, relevant_id: int, ack_id: int | None = None) -> None:
        """Send an ack: with the next id unless another one is given."""
        if ack_id is None:
            ack_id = self.ack_id
            self.ack_id += 1
        self.send(
            "ServiceAck",
            log_position=log_position,
            timestamp=seam.epoch_ms(self.client),
            ack_id=ack_id,
            relevant_id=relevant_id,
            service_id=self.service_id,
        )
        self.acks.append((log_position, relevant_id))

    def offer(self, payload: bytes) -> None:
        """Send a message to the cluster."""
        self.send(
            "SessionMessageHeader",
            payload,
            leadership_term_id=-1,
            cluster_session_id=self.service_id,
            timestamp=0,
        )

    def schedule(self, correlation_id: int, deadline: int) -> None:
        self.send("ScheduleTimer", correlation_id=correlation_id, deadline=deadline)

    def cancel(self, correlation_id: int) -> None:
        self.send("CancelTimer", correlation_id=correlation_id)

    def names(self) -> list[str]:
        """The names of the messages of the log that it has read."""
        return [name for name, _ in self.messages]

    def _start(self) -> None:
        for record in self.world.counter(RECOVERY_STATE):
            self.recovery_key = record["key"] or b""
            self._to_ack.append((int.from_bytes(self.recovery_key[8:16], "little"), seam.client_id(self.client)))

    def _on_control(self, data: bytes) -> None:
        name, fields = codecs.decode("cluster", data)
        if name == "JoinLog":
            self.joins.append(fields)
            self._waiting_joins.append(fields)
            return
        self.answers.append((name, fields))
        self.terminations += [data] if name == "ServiceTerminationPosition" else []
        if name == "ServiceTerminationPosition":
            self._to_ack.append((fields["log_position"], -1))

    def _join(self, join: dict[str, Any]) -> None:
        if self._log is None or self._image is not None:
            self._leave()
            self._log = seam.add_subscription(self.client, join["log_channel"].decode(), join["log_stream_id"])
        self._image = seam.image(self._log, join["log_session_id"])
        if self._image is not None:
            # It joins late where the leader went on meanwhile: the member's recording has what is before that.
            self._gap_end = self._image.join_position
            assert self._gap_end >= join["log_position"]
            del self._waiting_joins[0]
            self.position = join["log_position"]
            self._to_ack.append((join["log_position"], -1))

    def _leave(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._image = None

    def _read_log(self, image: Image) -> None:
        if self.position < self._gap_end:
            for position, data in self.world.recorded_log(self.position):
                if position <= min(self._gap_end, self.world.commit_position):
                    self._take(data, position)
                    self.position = position
            return
        seam.poll_with(image, self._assembler, 100, self.world.commit_position)
        for data, header in self._read.messages:
            self._take(data, header["position"])
        self._read.messages.clear()
        self.position = seam.position(image)

    def _take(self, data: bytes, position: int) -> None:
        name, fields = decoded(data)
        self.messages.append((name, fields))
        self.world.on_read(position, data)
        if name == "ClusterActionRequest" and (fields["action"], fields["flags"]) == (ACTION_SNAPSHOT, 0):
            recording_id = -1 if self.fails_snapshots else RECORDING_IDS + self.service_id
            self._to_ack.append((position, recording_id))
            self.is_quiet = self.is_quiet or self.stops_at_snapshots


class Client:
    """A client of the cluster: a publication, a subscription, and no logic."""

    def __init__(self, world: ConsensusWorld, ingress_channel: str = INGRESS_CHANNEL, host: str = "localhost") -> None:
        self.world = world
        self.client: MemoryClient = world.driver.connect("client")
        self.publication: Publication = seam.add_publication(
            self.client, ingress_channel, INGRESS_STREAM_ID, exclusive=True
        )
        world.egress_port += 1
        self.egress_channel = f"aeron:udp?endpoint={host}:{world.egress_port}"
        self.egress: Subscription = seam.add_subscription(self.client, self.egress_channel, EGRESS_STREAM_ID)
        self.session_id = -1
        self.leadership_term_id = -1
        self.next_correlation_id = 100
        self.events: list[Message] = []
        """Received messages that were not taken yet."""

    def follow(self, ingress_channel: str, leadership_term_id: int) -> None:
        """Continue the session at another leader."""
        self.publication.close()
        self.publication = seam.add_publication(self.client, ingress_channel, INGRESS_STREAM_ID, exclusive=True)
        self.leadership_term_id = leadership_term_id
        self.world.until(lambda: seam.is_connected(self.publication))

    def send(self, name: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a message of the session: its ids are added where the message has them."""
        own: dict[str, Any] = {"leadership_term_id": self.leadership_term_id, "cluster_session_id": self.session_id}
        own = own if name not in ("SessionConnectRequest", "ChallengeResponse") else {}
        message = codecs.encode("cluster", name, **(own | fields)) + payload
        while (result := seam.offer(self.publication, message)) == ADMIN_ACTION:
            pass
        assert result > 0

    def connect(self, **fields: Any) -> int:
        """Ask for a session; the correlation id."""
        self.next_correlation_id += 1
        self.world.until(lambda: seam.is_connected(self.publication))
        given: dict[str, Any] = {
            "correlation_id": self.next_correlation_id,
            "response_stream_id": EGRESS_STREAM_ID,
            "version": VERSION,
            "response_channel": self.egress_channel,
            "encoded_credentials": b"",
            "client_info": "",
        }
        self.send("SessionConnectRequest", **(given | fields))
        return self.next_correlation_id

    def open(self, **fields: Any) -> dict[str, Any]:
        """Connect, and wait for the answer; the event."""
        correlation_id = self.connect(**fields)
        event = self.event()
        assert (event["code"], event["correlation_id"]) == (OK, correlation_id), event
        self.session_id, self.leadership_term_id = event["cluster_session_id"], event["leadership_term_id"]
        return event

    def message(self, payload: bytes, **fields: Any) -> None:
        self.send("SessionMessageHeader", payload, **({"timestamp": 0} | fields))

    def keep_alive(self) -> None:
        self.send("SessionKeepAlive")

    def close(self) -> None:
        self.send("SessionCloseRequest")

    def received(self) -> list[Message]:
        """Take the received messages."""
        seam.invoke(self.client)
        taken = [*self.events, *(decoded(data) for data, _ in seam.poll(self.egress, 1000))]
        self.events = []
        return taken

    def wait_for(self, name: str) -> dict[str, Any]:
        """Wait for the next message of that name; its fields. Messages received before it are dropped."""
        found: list[Message] = []

        def came() -> bool:
            found.extend(self.received())
            return any(each[0] == name for each in found)

        self.world.until(came)
        index = [each[0] for each in found].index(name)
        self.events = found[index + 1 :]
        return found[index][1]

    def event(self) -> dict[str, Any]:
        """Wait for the next SessionEvent."""
        return self.wait_for("SessionEvent")

    def vanish(self) -> None:
        """Die, as the driver sees it."""
        self.client.close()
