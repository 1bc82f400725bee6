"""A service under the real agent over memory, where a test decides each step: below :class:`MemoryMember`.

A test says what the consensus module sends (``cm``), when the agent has a duty cycle (``work``), and looks at what both
did. Nothing is raised or played for it, so it also tests the agent itself::

    member = ScriptedMember().lead()
    member.cm.open_session(1)
    member.deliver(b"hello")
    assert member.service.messages == [b"hello"]
    assert member.errors == []
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from container.api import ClientSession, ClusteredService
from container.common.aeron_defaults import CONSENSUS_MODULE_STREAM_ID, CONTROL_CHANNEL, CounterType
from container.common.error_texts import remark_on
from container.errors import AgentTermination
from container.service.agent_context import AgentContext
from container.service.service_agent import ServiceAgent
from container.service.service_handler import PythonServiceHandler, ServiceHandler
from container.settings.callback_errors import SKIP
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import ManualClock, SteppingIdleStrategy
from container.testing.memory.memory_stores import MemoryMarkFile, MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_consensus_module import ScriptedConsensusModule, ScriptError
from container.transport.clocks import Clock
from container.transport.duration_tracker import DurationTracker
from container.transport.idle_strategy import IdleStrategy

# One slow tick of the agent: the driver's conductor, the mark file and the control stream have their turn in it.
TICK_NS = 1_100_000


class ScriptedMember:
    """The agent of one service, its consensus module, and everything that either of them did.

    With ``cm`` it is another service of that consensus module's node. ``script`` goes to a consensus module of its own.
    ``clock`` is the agent's, and the driver's unless one is given; a clock other than ManualClock moves by itself.
    Callbacks idle with ``idle_strategy``; the default calls what :meth:`after_idles` was given. ``on_error`` is called
    with each error that does not end the agent, in place of noting it in :attr:`errors`.
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
        clock: Clock | None = None,
        idle_strategy: IdleStrategy | None = None,
        on_error: Callable[[BaseException], object] | None = None,
        is_invoker: bool = True,
        callback_error_policy: str = SKIP,
        log_position: int = 0,
        **script: Any,
    ) -> None:
        driver = cm.driver if cm is not None else driver or MemoryDriver(clock or ManualClock())
        name = f"clustered-service-{cluster_id}-{service_id}"
        self.driver = driver
        self.clock: Any = clock or driver.clock
        """A ManualClock, unless another was given."""
        self.service: Any = RecordingService() if service is None else service
        self.cm = cm or ScriptedConsensusModule(driver, cluster_id=cluster_id, log_position=log_position, **script)
        self.client = driver.connect(name, is_invoker=is_invoker)
        self.store = MemorySnapshotStore(self.client)
        self.mark_file = MemoryMarkFile()
        self.errors: list[BaseException] = []
        """Exceptions of callbacks that the agent counted, oldest first."""
        self.remarks: list[str] = []
        """The container's remark on each of these."""
        self.events: list[BaseException] = []
        """Events in the error log that are not counted."""
        self.hooks = 0
        """How often the termination hook was called."""
        self.is_context_closed = False
        self.during_idle: list[Callable[[], object]] = []
        self.idle_ns = TICK_NS
        """How long idling once takes."""
        self.idle_strategy: Any = idle_strategy or SteppingIdleStrategy(self._on_idle)
        """A SteppingIdleStrategy, unless another was given."""
        self.context = AgentContext(
            client=self.client,
            clock=self.clock,
            service_handler=self.service
            if isinstance(self.service, ServiceHandler)
            else PythonServiceHandler(self.service),
            idle_strategy=self.idle_strategy,
            mark_file=self.mark_file,
            snapshot_store=self.store,
            on_error=on_error or self._on_error,
            record_event=self.events.append,
            callback_error_policy=callback_error_policy,
            cluster_id=cluster_id,
            service_id=service_id,
            service_name=name,
            is_responding_service=is_responding_service,
            log_fragment_limit=log_fragment_limit,
            app_version=app_version,
            termination_hook=self._on_hook,
            duty_cycle_tracker=self._tracker(CounterType.SERVICE_MAX_CYCLE_TIME),
            snapshot_duration_tracker=self._tracker(CounterType.SERVICE_MAX_SNAPSHOT_DURATION),
            close=self._on_close,
        )
        self.agent = ServiceAgent(self.context)

    def __repr__(self) -> str:
        return f"<ScriptedMember service={type(self.service).__name__} client_id={self.client_id}>"

    @property
    def client_id(self) -> int:
        """The Aeron client id of the agent."""
        return seam.client_id(self.client)

    def _tracker(self, type_id: int) -> DurationTracker:
        largest, count = (seam.add_counter(self.client, each) for each in (type_id, type_id + 1))
        return DurationTracker(largest, count, 1_000_000_000)

    def after_idles(self, count: int, action: Callable[[], object]) -> None:
        """Have ``action`` called when the agent has idled ``count`` more times, after what was asked for before."""
        self.during_idle += [_nothing] * count
        self.during_idle.append(action)

    def _advance(self, duration_ns: int) -> None:
        if isinstance(self.clock, ManualClock):
            self.clock.advance(duration_ns)

    def _on_idle(self) -> None:
        self._advance(self.idle_ns)
        if self.during_idle:
            self.during_idle.pop(0)()

    def _on_error(self, error: BaseException) -> None:
        self.errors.append(error)
        self.remarks.append(remark_on(error))

    def _on_hook(self) -> None:
        self.hooks += 1

    def _on_close(self) -> None:
        self.is_context_closed = True

    def start(self, snapshot: Iterable[bytes | tuple[bytes, int]] | None = None, **recovery: Any) -> Self:
        """Create the counters and start the agent, which acknowledges.

        ``snapshot`` has the messages of one, of leadership term 1 unless ``recovery`` says otherwise.
        """
        if snapshot is not None:
            recovery = {"recording_ids": [self.store.add_recording(snapshot)], "leadership_term_id": 1} | recovery
        self.cm.start(**recovery)
        self.agent.on_start()
        return self

    def lead(self, **join_log: Any) -> Self:
        """Start if needed, join a log as leader, and log the beginning of a term."""
        return self._join(self.cm.join_as_leader, join_log)

    def follow(self, **join_log: Any) -> Self:
        """Start if needed, join a log as follower, and log the beginning of a term."""
        return self._join(self.cm.join_as_follower, join_log)

    def _join(self, join: Callable[..., object], join_log: dict[str, Any]) -> Self:
        if not self.cm.acks:
            self.start()
        join(**join_log)
        self.work()
        self.cm.new_leadership_term()
        self.commit()
        return self

    def cycle(self) -> int:
        """Run a duty cycle with a slow tick in it, and return how much was done; raise what the agent raises.

        The poll that reads over the padding at the end of a log term counts nothing, and ends there, as upstream's
        does. So an agent that did nothing while committed events are left has a second cycle.
        """
        self._advance(TICK_NS)
        return self.agent.do_work() or (self.is_behind and self.agent.do_work())

    @property
    def is_behind(self) -> bool:
        """True while the log is committed behind the event that the agent delivered last."""
        return self.agent.cluster.log_position < self.cm.commit_position

    def work(self, cycles: int = 3) -> int:
        """Run duty cycles with a slow tick in each, counting errors as the runner does; return how much was done."""
        done = 0
        for _ in range(cycles):
            self._advance(TICK_NS)
            try:
                done += self.agent.do_work()
            except Exception as error:
                self.context.on_error(error)
                done += 1
        return done

    def commit(self, log_position: int | None = None) -> None:
        """Commit the log and run duty cycles until the agent has nothing to do."""
        self.cm.commit(log_position)
        while self.work(1) or (self.is_behind and self.work(1)):  # see cycle()
            pass

    def terminated(self, cycles: int = 10) -> AgentTermination:
        """Run duty cycles until the agent terminates, and return what it raised; ScriptError when it lives on."""
        for _ in range(cycles):
            try:
                self.work(1)
            except AgentTermination as termination:
                return termination
        raise ScriptError(f"the agent did not terminate within {cycles} duty cycles")

    def open_session(self, session_id: int = 1, **fields: Any) -> ClientSession:
        """Log and commit the opening of a session, and return the service's object for it.

        ``fields`` are those of the consensus module's ``open_session``.
        """
        self.cm.open_session(session_id, **fields)
        self.commit()
        session = self.agent.cluster.get_client_session(session_id)
        if session is None:
            raise ScriptError(f"the agent has not opened session {session_id}")
        return session

    def deliver(self, *payloads: bytes, session_id: int = 1) -> None:
        """Log and commit messages of a client, and let the agent have them."""
        for payload in payloads:
            self.cm.session_message(session_id, payload)
        self.commit()

    def take_snapshot(self) -> list[bytes]:
        """Log and commit a request for a snapshot, and return the messages of the one recorded last."""
        self.cm.snapshot()
        self.commit()
        return self.store.messages(self.store.recording_ids[-1])

    def answers(self, session_id: int = 1) -> list[bytes]:
        """The payloads that a client received, oldest first."""
        return [message.payload for message in self.cm.egress(session_id)]

    def in_callback(self, action: Callable[..., Any], name: str = "on_session_message") -> list[Any]:
        """Run ``action`` once, inside a RecordingService's next callback of that name.

        The list that is returned then holds what it returned.
        """
        results: list[Any] = []

        def once(*args: Any) -> Any:
            del self.service.actions[name]
            results.append(action(*args))

        self.service.actions[name] = once
        return results

    def results(self, *steps: int | None) -> None:
        """Script the results of the next offers and claims to the consensus module; None accepts."""
        self.driver.publication_results(CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID, list(steps))


def _nothing() -> None:
    """Nothing happens while the agent idles once."""
