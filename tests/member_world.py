"""A whole member in memory: archive, consensus module and the container's agent over one driver and a simulated disk.

Clients in it send raw bytes, and hear what comes back. Time passes when a test says so.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from typing import Any

from container.api import ClientSession, CloseReason, Cluster, ClusteredService, Header, MessageBuffer, SnapshotImage
from container.codecs import messages as codecs
from container.common.aeron_defaults import INGRESS_STREAM_ID
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.errors import AgentTermination
from container.service.agent_context import AgentContext
from container.service.service_agent import ServiceAgent
from container.service.service_handler import PythonServiceHandler
from container.settings.callback_errors import SKIP
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_stores import MemoryMarkFile, MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryClient
from container.transport.duration_tracker import DurationTracker
from container.transport.fragment_assembler import SessionFragmentAssembler
from container.transport.streams import Publication, Subscription
from tests.archive_world import ArchiveWorld
from tests.control_world import CONTROL_CHANNEL as ARCHIVE_CONTROL_CHANNEL
from tests.control_world import MS

MEMBERS = "0,localhost:9010,localhost:9020,localhost:9030,localhost:9040,localhost:8010"
INGRESS = "aeron:udp?endpoint=localhost:9010"
IPC = "aeron:ipc"
VERSION = 3 << 8
SEGMENT_LENGTH = 512 * 1024
TURNS_MAX = 20_000
NO_SESSION = -1
HEADER_LENGTH = 32
"""Length of a session message's header."""


class Echo(ClusteredService):
    """Answers each message with itself, and notes what it is called with."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self.events: list[tuple[Any, ...]] = []

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.events.append(("open", session.id, session.response_stream_id, session.response_channel))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.events.append(("close", session.id, close_reason))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        message = bytes(buffer)
        self.events.append(("message", None if session is None else session.id, message))
        if session is not None:
            session.send(message)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.events.append(("timer", correlation_id))

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        self.events.append(("snapshot",))


class WorldClient:
    """A client that sends whatever a test says, on an ingress stream of its own, and keeps what comes back."""

    def __init__(self, world: MemberWorld, response_stream_id: int, *, is_ipc: bool) -> None:
        self.world = world
        self.response_channel = IPC if is_ipc else f"aeron:udp?endpoint=localhost:{response_stream_id}"
        self.response_stream_id = response_stream_id
        self.client: MemoryClient = world.driver.connect("client")
        self.egress: Subscription = seam.add_subscription(self.client, self.response_channel, response_stream_id)
        self.ingress: Publication = seam.add_publication(
            self.client, IPC if is_ipc else INGRESS, INGRESS_STREAM_ID, exclusive=True
        )
        self.session_id = NO_SESSION
        self.leadership_term_id = 0
        self._handler = seam.CollectingHandler()
        self._assembler = SessionFragmentAssembler(self._handler)

    def connect_request(self, correlation_id: int = 1, **fields: Any) -> bytes:
        """An encoded request for a session."""
        return codecs.encode(
            "cluster",
            "SessionConnectRequest",
            **{
                "correlation_id": correlation_id,
                "response_stream_id": self.response_stream_id,
                "version": VERSION,
                "response_channel": self.response_channel.encode(),
                "encoded_credentials": b"",
                "client_info": b"name=test",
                **fields,
            },
        )

    def connect(self) -> None:
        """Open a session."""
        self.send(self.connect_request())
        events: list[dict[str, Any]] = []

        def is_answered() -> bool:
            events.extend(fields for name, fields in self.received() if name == "SessionEvent")
            return bool(events)

        self.world.until(is_answered)
        assert events[0]["code"] == 0, events
        self.session_id, self.leadership_term_id = (
            events[0][name] for name in ("cluster_session_id", "leadership_term_id")
        )

    def send(self, message: bytes) -> None:
        """Offer a message until it is taken."""
        self.world.until(lambda: seam.offer(self.ingress, message) > 0)

    def message(self, payload: bytes) -> None:
        """Send a message of the session."""
        self.send(session_message(self.session_id, payload, self.leadership_term_id))

    def received(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and fields of what has come; a session message has its payload as well."""
        for _term in range(2):  # a poll ends with the term, also where only its padding was left
            while seam.poll_with(self.egress, self._assembler, 10_000):
                pass
        messages, self._handler.messages[:] = list(self._handler.messages), []
        found = []
        for data, _header in messages:
            name, fields = codecs.decode("cluster", data)
            if name == "SessionMessageHeader":
                fields["payload"] = data[HEADER_LENGTH:]
            found.append((name, fields))
        return found

    def close(self) -> None:
        """Be gone."""
        self.client.close()


def session_message(session_id: int, payload: bytes, term_id: int = 0) -> bytes:
    """A message of a session, or of a service."""
    fields = {"leadership_term_id": term_id, "cluster_session_id": session_id, "timestamp": 0}
    return codecs.encode("cluster", "SessionMessageHeader", **fields) + payload


class MemberWorld:
    """A member that leads, once :meth:`await_leader` has returned."""

    def __init__(self, service: ClusteredService | None = None, *, window: int = 0, **settings: Any) -> None:
        self.archive = ArchiveWorld(segment_file_length=SEGMENT_LENGTH, window=window)
        self.clock, self.driver, self.disk = self.archive.clock, self.archive.driver, self.archive.disk
        self.errors: list[BaseException] = []
        """Errors that the consensus module has reported."""
        self.container_errors: list[BaseException] = []
        self.service: Any = Echo() if service is None else service
        self.settings = settings
        self._snapshots: MemorySnapshotStore | None = None
        self._open()

    def _open(self) -> None:
        self.client: MemoryClient = self.driver.connect("consensus-module")
        self.context = ConsensusModuleContext(
            client=self.client,
            clock=self.clock,
            storage=self.disk.process(),
            error_handler=self.errors.append,
            random_source=random.Random(1),
            environ={},
            **{
                "cluster_dir": "/cluster",
                "cluster_members": MEMBERS,
                "ingress_channel": "aeron:udp",
                "replication_channel": "aeron:udp?endpoint=localhost:0",
                "log_channel": "aeron:udp?term-length=64k",
                "archive_control_channel": ARCHIVE_CONTROL_CHANNEL,
                "is_ipc_ingress_allowed": True,
                "use_agent_invoker": True,
                **self.settings,
            },
        )
        self.context.conclude()
        self.agent = self.context.agent
        self.container = self._container()
        self.container.on_start()
        self.until(lambda: self.agent.has_leader)

    @property
    def commit_position(self) -> int:
        return self.context.counters.commit_position.value

    def restart(self) -> None:
        """Close everything but the driver in order, and start it on the same files, with a fresh service."""
        self.close()
        self.open()

    def close(self) -> None:
        """End everything but the driver in order."""
        self.container.close()
        self.service_client.close()
        self.agent.close()
        self.client.close()
        self.archive.close()

    def open(self) -> None:
        """Start it on the same files, with a fresh service."""
        self.archive.open()
        self.service = type(self.service)()
        with contextlib.redirect_stderr(io.StringIO()):  # a mark file says where it has saved its errors
            self._open()

    def _container(self) -> ServiceAgent:
        client = self.service_client = self.driver.connect("service")
        trackers = [DurationTracker(seam.add_counter(client, 1), seam.add_counter(client, 2), 10**9) for _ in range(2)]
        return ServiceAgent(
            AgentContext(
                client=client,
                clock=self.clock,
                service_handler=PythonServiceHandler(self.service),
                idle_strategy=SteppingIdleStrategy(self._work_of_others),
                mark_file=MemoryMarkFile(),
                snapshot_store=self._snapshot_store(client),
                on_error=self.container_errors.append,
                record_event=self.container_errors.append,
                callback_error_policy=SKIP,
                cluster_id=0,
                service_id=0,
                service_name="service",
                is_responding_service=True,
                log_fragment_limit=50,
                app_version=1,
                termination_hook=lambda: None,
                duty_cycle_tracker=trackers[0],
                snapshot_duration_tracker=trackers[1],
                close=lambda: None,
            )
        )

    def _snapshot_store(self, client: MemoryClient) -> MemorySnapshotStore:
        """A store with the snapshots that the one before has, as memory does not outlive its client."""
        store = MemorySnapshotStore(client)
        if self._snapshots is not None:
            for recording_id in self._snapshots.recording_ids:
                assert store.add_recording(self._snapshots.messages(recording_id)) == recording_id
        self._snapshots = store
        return store

    def _work_of_others(self) -> None:
        """Work done while the service waits."""
        self.clock.advance(MS)
        self.archive.work()
        try:
            self.agent.do_work()
        except AgentTermination:
            raise
        except Exception as error:
            self.context.counted_error_handler(error)

    def work(self, turns: int = 1) -> None:
        """Turns of the duty cycles, a millisecond each."""
        for _ in range(turns):
            self._work_of_others()
            self.container.do_work()

    def wait(self, duration_ms: int, step_ms: int = 10) -> None:
        """Let time pass, with a turn each step."""
        for _ in range(duration_ms // step_ms):
            self.clock.advance((step_ms - 1) * MS)
            self.work()

    def until(self, predicate: Callable[[], object]) -> None:
        for _ in range(TURNS_MAX):
            if predicate():
                return
            self.work()
        reports = [*self.errors, *self.container_errors, *self.archive.texts()]
        raise AssertionError(f"did not happen in {TURNS_MAX} turns; reported: {reports}")
