"""Turns a context into a running consensus module: on a thread of its own, or driven by the caller; closes in order."""

from __future__ import annotations

from typing import ClassVar, Self, Unpack

from container.agent.agent_owner import AgentOwner
from container.consensus.consensus_module_agent import ConsensusModuleAgent
from container.consensus.consensus_module_arguments import ConsensusModuleArguments
from container.consensus.consensus_module_context import ConsensusModuleContext


class ConsensusModule(AgentOwner[ConsensusModuleAgent, ConsensusModuleContext]):
    """A consensus module: it keeps the sessions and the log of a member (upstream's class of this name).

    :meth:`launch` makes one beside a media driver and an archive. It serves until a tool ends the cluster, a service
    or the driver goes away, or :meth:`close`. It is a context manager that closes at the end.
    """

    Context: ClassVar = ConsensusModuleContext
    kind = "consensus module"

    @classmethod
    def launch(
        cls, context: ConsensusModuleContext | None = None, **settings: Unpack[ConsensusModuleArguments]
    ) -> Self:
        """Start a consensus module, and return it immediately: it then waits for its archive and its services.

        Args:
            context: a :class:`~container.consensus.consensus_module_context.ConsensusModuleContext`, or None.
            settings: what such a context takes: settings and objects. With ``use_agent_invoker=True`` there is no
                thread: call :meth:`invoke` again and again.

        Raises:
            ConfigurationError: a bad setting.
            MarkFileError: the mark file is held by a live owner, or cannot be written.
            DriverTimeoutError: there is no media driver.
            ClusterError: another consensus module of the driver has the same cluster id.
            AeronError: the driver refuses a counter or a stream.
            RecordingError: the recording log or the node state is damaged.
            OSError: the disk fails.
            ContainerError: the system has no thread for it.
        """
        return cls._launch(context, settings)

    def _begin_agent(self, context: ConsensusModuleContext) -> ConsensusModuleAgent:
        context.agent.start()
        return context.agent

    def expect_services_to_end(self) -> None:
        """A node that closes ends its services first: from now on it is in order that one goes away. For any thread."""
        self._agent.expect_services_to_end()
