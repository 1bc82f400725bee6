"""One thread for parts of a node, all of them or its services alone: how they get onto it, and its end."""

from __future__ import annotations

from container.aeron.media_driver import MediaDriver
from container.agent.agent_owner import AgentOwner
from container.agent.composite_agent import CompositeAgent
from container.archive.server.native_archive import Archive
from container.clustered_service_container import ClusteredServiceContainer
from container.common.error_texts import message_of
from container.common.loggers import report
from container.consensus.consensus_module import ConsensusModule
from container.consensus.consensus_module_context import ConsensusModuleContext
from container.context import Context
from container.transport.idle_strategy import IdleStrategy, NoOpIdleStrategy

type Part = Archive | ConsensusModule | ClusteredServiceContainer


class SharedContext:
    """The parts that run on one thread, in invoker mode; what an :class:`AgentOwner` wants to know of them.

    ``name`` is the thread's. ``driver`` is one in invoker mode, or None where it has threads or another one invokes it.
    ``module`` is the consensus module, on this thread or on another one.
    """

    is_invoker = False
    is_starting = False
    has_parts = False

    def __init__(self, name: str, driver: MediaDriver | None) -> None:
        """A thread without parts yet."""
        self.name = name
        self.agent = CompositeAgent(driver, self.counted_error_handler, self._prepare_thread, self._before_end)
        self.runner_idle_strategy: IdleStrategy = NoOpIdleStrategy()
        self._containers: list[ClusteredServiceContainer] = []
        self.module: ConsensusModule | None = None

    def prepare(self, context: Context) -> None:
        """Have a service that idles run the other parts; before its container is made."""
        if not self._containers:
            self.runner_idle_strategy = context.new_idle_strategy()
        context.wrap_idle_strategy(self.agent.new_idle_strategy)

    def idle_as(self, context: ConsensusModuleContext) -> None:
        """Idle as the settings of the consensus module say, where no service is on the thread."""
        self.runner_idle_strategy = context.new_idle_strategy()

    def add(self, part: Part) -> None:
        """Run a part on the thread."""
        self.has_parts = True
        if isinstance(part, ClusteredServiceContainer):
            self._containers.append(part)
            self.agent.add_service(part, part.agent)
            return
        if isinstance(part, ConsensusModule):
            self.module = part
        self.agent.add(part, part.agent)

    def _prepare_thread(self) -> None:
        for each in self._containers[:1]:
            each.prepare_thread()

    def _before_end(self) -> None:
        if self.module is not None:
            self.module.expect_services_to_end()

    def conclude(self) -> None:
        """Do nothing: the parts conclude their own."""

    def abandon(self) -> None:
        """Do nothing: the parts close what they have."""

    def bounded_text(self, error: BaseException) -> str:
        """The text of an error."""
        return message_of(error)

    def counted_error_handler(self, error: BaseException) -> None:
        """Report an error that ends nothing."""
        report("error", "the node: %s", self.bounded_text(error))


class SharedThread(AgentOwner[CompositeAgent, SharedContext]):
    """Runs the parts of a :class:`SharedContext`."""

    kind = "node"

    def _begin_agent(self, context: SharedContext) -> CompositeAgent:
        return context.agent
