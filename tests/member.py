"""A member for tests of the agent: the real agent over memory, a scripted consensus module, a service that records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    Role,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)
from container.common.error_texts import remark_on
from container.errors import AgentTermination
from container.service.agent_context import AgentContext
from container.service.agent_runner import AgentRunner
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.settings.callback_errors import SKIP
from container.testing import transport_probe as seam
from container.testing.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory_stores import MemoryMarkFile, MemorySnapshotStore
from container.testing.memory_transport import MemoryDriver
from container.testing.scripted_consensus_module import ScriptedConsensusModule
from container.transport.duration_tracker import DurationTracker

CHANNEL = "aeron:ipc?term-length=128k"
TICK_NS = 1_100_000


class RecordingService(ClusteredService):
    """Notes each callback, and does in it what a test asks for in ``actions``, by the callback's name."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.actions: dict[str, Callable[..., Any]] = {}
        self.cluster: Cluster
        self.snapshot: list[bytes] | None = None

    def names(self) -> list[str]:
        """Names of the callbacks so far, but for background work."""
        return [call[0] for call in self.calls]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of all calls of one callback."""
        return [call[1:] for call in self.calls if call[0] == name]

    @property
    def messages(self) -> list[bytes]:
        """Payloads of all session messages."""
        return [payload for _id, _timestamp, payload, _position in self.of("on_session_message")]

    def _note(self, name: str, *noted: Any, args: tuple[Any, ...] = ()) -> Any:
        self.calls.append((name, *noted))
        action = self.actions.get(name)
        return action(*args) if action is not None else None

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None and "on_start" not in self.actions:
            self.snapshot = list(snapshot_image)
        self._note("on_start", snapshot_image is not None, args=(cluster, snapshot_image))

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._note("on_session_open", session.id, timestamp, args=(session, timestamp))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._note("on_session_close", session.id, timestamp, close_reason, args=(session, timestamp, close_reason))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        session_id = None if session is None else session.id
        self._note(
            "on_session_message",
            session_id,
            timestamp,
            bytes(buffer),
            header.position,
            args=(session, timestamp, buffer, header),
        )

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._note("on_timer_event", correlation_id, timestamp, args=(correlation_id, timestamp))

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        self._note("on_take_snapshot", args=(snapshot_publication,))

    def on_role_change(self, new_role: Role) -> None:
        self._note("on_role_change", new_role, args=(new_role,))

    def on_new_leadership_term_event(
        self,
        leadership_term_id: int,
        log_position: int,
        timestamp: int,
        term_base_log_position: int,
        leader_member_id: int,
        log_session_id: int,
        time_unit: TimeUnit,
        app_version: int,
    ) -> None:
        args = (
            leadership_term_id,
            log_position,
            timestamp,
            term_base_log_position,
            leader_member_id,
            log_session_id,
            time_unit,
            app_version,
        )
        self._note("on_new_leadership_term_event", *args, args=args)

    def on_terminate(self, cluster: Cluster) -> None:
        self._note("on_terminate", args=(cluster,))

    def do_background_work(self, now_ns: int) -> int:
        action = self.actions.get("do_background_work")
        return 0 if action is None else action(now_ns)


class Member:
    """The agent of one service, its consensus module, and everything that either of them did.

    With ``cm`` it is another service of that consensus module's node.
    """

    def __init__(
        self,
        service: ClusteredService | ServiceHandler | None = None,
        *,
        service_id: int = 0,
        cluster_id: int = 0,
        is_responding_service: bool = True,
        app_version: int = 1,
        log_fragment_limit: int = 50,
        driver: MemoryDriver | None = None,
        cm: ScriptedConsensusModule | None = None,
        is_invoker: bool = True,
        callback_error_policy: str = SKIP,
        log_position: int = 0,
        **script: Any,
    ) -> None:
        driver = cm.driver if cm is not None else driver
        self.clock = ManualClock() if driver is None else cast("ManualClock", driver.clock)
        self.driver = MemoryDriver(self.clock) if driver is None else driver
        self.service: Any = RecordingService() if service is None else service
        self.cm = cm or ScriptedConsensusModule(self.driver, cluster_id=cluster_id, log_position=log_position, **script)
        self.client = self.driver.connect(f"clustered-service-{cluster_id}-{service_id}", is_invoker=is_invoker)
        self.store = MemorySnapshotStore(self.client)
        self.mark_file = MemoryMarkFile()
        self.errors: list[BaseException] = []
        self.remarks: list[str] = []
        self.events: list[BaseException] = []
        self.hooks = 0
        self.is_context_closed = False
        self.during_idle: list[Callable[[], object]] = []
        self.idle_ns = TICK_NS
        self.idle_strategy = SteppingIdleStrategy(self._on_idle)
        self.context = AgentContext(
            client=self.client,
            clock=self.clock,
            service_handler=self.service
            if isinstance(self.service, ServiceHandler)
            else PythonServiceHandler(self.service),
            idle_strategy=self.idle_strategy,
            mark_file=self.mark_file,
            snapshot_store=self.store,
            on_error=self._on_error,
            record_event=self.events.append,
            callback_error_policy=callback_error_policy,
            cluster_id=cluster_id,
            service_id=service_id,
            service_name=f"clustered-service-{cluster_id}-{service_id}",
            control_channel=CHANNEL,
            is_responding_service=is_responding_service,
            log_fragment_limit=log_fragment_limit,
            app_version=app_version,
            termination_hook=self._on_hook,
            duty_cycle_tracker=self._tracker(218),
            snapshot_duration_tracker=self._tracker(236),
            close=self._on_close,
        )
        self.agent = AgentRunner(self.context)

    @property
    def client_id(self) -> int:
        """The Aeron client id of the agent."""
        return seam.client_id(self.client)

    def _tracker(self, type_id: int) -> DurationTracker:
        return DurationTracker(
            seam.add_counter(self.client, type_id), seam.add_counter(self.client, type_id + 1), 1_000_000_000
        )

    def after_idles(self, count: int, action: Callable[[], object]) -> None:
        """Has ``action`` called when the agent has idled ``count`` more times, after what was asked for before."""
        self.during_idle += [_nothing] * count
        self.during_idle.append(action)

    def _on_idle(self) -> None:
        self.clock.advance(self.idle_ns)
        if self.during_idle:
            self.during_idle.pop(0)()

    def _on_error(self, error: BaseException) -> None:
        self.errors.append(error)
        self.remarks.append(remark_on(error))

    def _on_hook(self) -> None:
        self.hooks += 1

    def _on_close(self) -> None:
        self.is_context_closed = True

    def start(self, **recovery: Any) -> Member:
        """Creates the counters and starts the agent, which acknowledges."""
        self.cm.start(**recovery)
        self.agent.on_start()
        return self

    def lead(self, **join_log: Any) -> Member:
        """Starts if needed, joins a log as leader, and logs the begin of a term."""
        if not self.cm.acks:
            self.start()
        self.cm.join_as_leader(**join_log)
        self.work()
        self.cm.new_leadership_term()
        self.commit()
        return self

    def follow(self, **join_log: Any) -> Member:
        """Starts if needed, joins a log as follower, and logs the begin of a term."""
        if not self.cm.acks:
            self.start()
        self.cm.join_as_follower(**join_log)
        self.work()
        self.cm.new_leadership_term()
        self.commit()
        return self

    def work(self, cycles: int = 3) -> int:
        """Runs duty cycles with a slow tick in each, counting errors as the runner does; how much was done."""
        done = 0
        for _ in range(cycles):
            self.clock.advance(TICK_NS)
            try:
                done += self.agent.do_work()
            except Exception as error:
                self.errors.append(error)
                done += 1
        return done

    def commit(self, log_position: int | None = None) -> None:
        """Commits the log and runs duty cycles until the agent has nothing to do."""
        self.cm.commit(log_position)
        while self.work(1):
            pass

    def terminated(self, cycles: int = 10) -> AgentTermination:
        """Runs duty cycles until the agent terminates; what it raised."""
        for _ in range(cycles):
            try:
                self.work(1)
            except AgentTermination as termination:
                return termination
        raise AssertionError(f"the agent did not terminate within {cycles} duty cycles")

    def deliver(self, *payloads: bytes, session_id: int = 1) -> None:
        """Logs and commits messages of a client, and lets the agent have them."""
        for payload in payloads:
            self.cm.session_message(session_id, payload)
        self.commit()

    def in_callback(self, action: Callable[..., Any], name: str = "on_session_message") -> list[Any]:
        """Runs ``action`` once, inside the next callback of that name; a list that then holds what it returned."""
        results: list[Any] = []

        def once(*args: Any) -> Any:
            del self.service.actions[name]
            results.append(action(*args))

        self.service.actions[name] = once
        return results

    def results(self, *steps: int | None) -> None:
        """Scripts the results of the next offers and claims to the consensus module; None accepts."""
        self.driver.publication_results(CHANNEL, 105, list(steps))


def _nothing() -> None:
    """Nothing happens while the agent idles once."""


def log_positions(lengths: Sequence[int], begin: int = 0) -> list[int]:
    """Positions after unfragmented messages of these payload lengths (with a session header)."""
    return list(itertools.accumulate((-(-(32 + 32 + length) // 32) * 32 for length in lengths), initial=begin))[1:]
