"""A member over a media driver in this process: the whole container, a scripted consensus module and archive."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

from container.aeron import AeronClient, MediaDriver
from container.api import ClusteredService
from container.clustered_service_container import ClusteredServiceContainer
from container.common.aeron_defaults import LOG_STREAM_ID
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.scripted_consensus_module import ScriptedConsensusModule
from container.testing.processes.endpoints import PortReservation
from container.transport.streams import Publication
from tests.limits import LIMIT_S
from tests.scripted_archive import ScriptedArchive

TERM_LENGTH = 64 * 1024
MAX_PAYLOAD = 1376


class DriverOfClients:
    """The driver of scripted parts: it connects clients, which :meth:`step` keeps going."""

    def __init__(self, aeron_dir: str) -> None:
        self._aeron_dir = aeron_dir
        self.clients: list[AeronClient] = []
        self._tasks: list[Callable[[], object]] = []

    def connect(self, client_name: str, **_mode: bool) -> AeronClient:
        """A client whose conductor runs in :meth:`step`."""
        self.clients.append(AeronClient(self._aeron_dir, client_name))
        return self.clients[-1]

    def add_task(self, task: Callable[[], object]) -> None:
        """Have ``task`` called in each step."""
        self._tasks.append(task)

    def step(self) -> None:
        """One turn of everybody but the container."""
        for client in self.clients:
            seam.invoke(client)
        for task in self._tasks:
            task()
        os.sched_yield()


class PublishedLog:
    """A log behind a publication, with the positions of a memory log."""

    def __init__(self, publication: Publication, start_position: int, step: Callable[[], object]) -> None:
        self._publication = publication
        self._step = step
        self.session_id = publication.session_id
        self.stream_id = publication.stream_id
        self.start_position = start_position

    @property
    def tail_position(self) -> int:
        """Where the next message will begin, if it fits the term."""
        return seam.position(self._publication)

    def position_after(self, length: int) -> int:
        """The position after a message of that length, if it is appended next."""
        framed = length // MAX_PAYLOAD * (MAX_PAYLOAD + 32)
        if rest := length % MAX_PAYLOAD:
            framed += -(-(32 + rest) // 32) * 32
        offset = self.tail_position % TERM_LENGTH
        return self.tail_position + framed + (TERM_LENGTH - offset if offset + framed > TERM_LENGTH else 0)

    def append(self, message: bytes) -> int:
        """Offers until the message is taken; the position after it."""
        return _until(lambda: max(0, seam.offer(self._publication, message)), self._step, "the log to take a message")


class RealConsensusModule(ScriptedConsensusModule):
    """A scripted consensus module whose logs are publications of a media driver."""

    def __init__(self, driver: DriverOfClients, log_port: int, **script: Any) -> None:
        super().__init__(cast("MemoryDriver", driver), **script)
        self._step = driver.step
        self._log_port = log_port
        self._session_ids = itertools.count(1)

    def begin_log(self, kind: str) -> MemoryLog:
        """A new log where the one before ends, over UDP: leaders read it through a spy, followers from the net."""
        position = self.log_position
        self.end_log()
        session_id = next(self._session_ids)
        channel = f"aeron:udp?endpoint=localhost:{self._log_port}|session-id={session_id}"
        begin = f"init-term-id=0|term-id={position // TERM_LENGTH}|term-offset={position % TERM_LENGTH}"
        published = f"{channel}|term-length={TERM_LENGTH}|{begin}|ssc=true|linger=0"
        self._log_channel = f"{'aeron-spy:' if kind == 'leader' else ''}{channel}|alias=log"
        self.log_publication = seam.add_publication(self.client, published, LOG_STREAM_ID, exclusive=True)
        self.log = cast("MemoryLog", PublishedLog(self.log_publication, position, self._step))
        return self.log


class RealMember:
    """The container of one service over a driver of its own, driven by :meth:`work`; ``with`` awaits its first ack."""

    def __init__(self, service: ClusteredService, directory: Path) -> None:
        self.service: Any = service
        self.ports = PortReservation()
        self.egress_port = self.ports.take()
        """Where sessions may get their answers over the network."""
        self.media_driver = MediaDriver.launch_embedded(
            term_buffer_length=TERM_LENGTH,
            ipc_term_buffer_length=TERM_LENGTH,
            publication_linger_timeout_ns=20_000_000,
            image_liveness_timeout_ns=50_000_000,
            timer_interval_ns=5_000_000,
        )
        self.driver = DriverOfClients(self.media_driver.aeron_dir)
        self.archive = ScriptedArchive(cast("MemoryDriver", self.driver))
        self.cm = RealConsensusModule(self.driver, self.ports.take())
        self.cm.start()
        self.errors: list[BaseException] = []
        self.container = ClusteredServiceContainer.launch(
            service,
            aeron_dir=self.media_driver.aeron_dir,
            cluster_dir=directory,
            use_agent_invoker=True,
            idle_strategy=lambda: SteppingIdleStrategy(self.driver.step, max_idles=100_000_000),
            error_handler=self.errors.append,
            environ={},
        )

    @property
    def client(self) -> AeronClient:
        """The container's client."""
        return cast("AeronClient", self.container.context.client)

    def work(self) -> int:
        """A duty cycle of the container and a turn of the others."""
        done = self.container.invoke()
        self.driver.step()
        return done

    def until[T](self, predicate: Callable[[], T], what: str) -> T:
        """Work until ``predicate`` is true, and return its value."""
        return _until(predicate, self.work, what)

    def join(self, kind: str) -> None:
        """The member follows a new log, in that role."""
        acks = len(self.cm.acks)
        if kind == "leader":
            self.cm.join_as_leader()
        else:
            self.cm.join_as_follower()
        self.until(lambda: len(self.cm.acks) > acks, f"the ack of a join as {kind}")
        self.cm.new_leadership_term()
        self.deliver()

    def deliver(self) -> None:
        """Commits the log, and works until the service has had all of it."""
        position = self.cm.commit()
        cluster = self.container._agent.cluster
        self.until(lambda: cluster.log_position >= position, f"the service to reach position {position}")

    def __enter__(self) -> Self:
        try:
            self.until(lambda: self.cm.acks, "the first ack")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the container, the scripted parts and the driver."""
        self.container.close()
        for client in self.driver.clients:
            client.close()
        self.media_driver.close()
        self.ports.close()


def _until[T](predicate: Callable[[], T], step: Callable[[], object], what: str) -> T:
    deadline = time.monotonic() + LIMIT_S
    while not (result := predicate()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LIMIT_S:g} s for {what}")
        step()
    return result
