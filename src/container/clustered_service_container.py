"""Turns a context into a running service: on a thread of its own, or driven by the caller; closes in order."""

from __future__ import annotations

from typing import Self, Unpack

from container.agent.agent_owner import AgentOwner
from container.agent.agent_thread import pin_to_cpu, set_timer_slack
from container.api import ClusteredService
from container.context import Context as _Context
from container.errors import AgentTermination, ConfigurationError
from container.service.service_agent import ServiceAgent
from container.service.service_handler import ServiceHandler
from container.setting_types import ContainerArguments


class ClusteredServiceContainer(AgentOwner[ServiceAgent, _Context]):
    """Runs a service of a cluster's member, beside its consensus module (upstream's class of this name).

    :meth:`launch` makes one. It runs until the consensus module terminates it, the driver goes away, or :meth:`close`.
    It is a context manager that closes at the end. A container restart is a restart of the whole node: the consensus
    module ends when one of its services goes away.
    """

    Context = _Context
    kind = "container"

    @classmethod
    def launch(
        cls,
        service: ClusteredService | ServiceHandler | _Context | None = None,
        **settings: Unpack[ContainerArguments],
    ) -> Self:
        """Start a container and return it immediately; it then waits for the consensus module on its own thread.

        Args:
            service: the service, or a :class:`Context` with everything.
            settings: what :class:`Context` takes: settings (docs/settings.md) and objects. With
                ``use_agent_invoker=True`` there is no thread: call :meth:`invoke` again and again.

        Raises:
            ConfigurationError: a bad setting or service.
            MarkFileError: the mark file is held by a live owner, or cannot be written.
            DriverTimeoutError: there is no media driver.
            AeronError: the driver refuses a counter or one of the control streams.
            ContainerError: the system has no thread for the agent.
        """
        if isinstance(service, _Context):
            return cls._launch(service, settings)
        return cls._launch(_Context(service, **settings), {})

    def _begin_agent(self, context: _Context) -> ServiceAgent:
        return ServiceAgent(context.agent_context)

    def is_orderly(self, failure: BaseException, *, was_asked_for: bool) -> bool:
        """Whether an end by that failure is one in order: the consensus module's, and any that was asked for."""
        return isinstance(failure, AgentTermination) and (was_asked_for or getattr(failure, "is_expected", False))

    def prepare_thread(self) -> None:
        """Set processor and timer slack of the caller's thread, which is to run the agent, as the settings say.

        This concerns only how fast the agent is: an error goes to the error handler, and the service runs anyway.
        """
        settings = self._context.settings
        for value, prepare in ((settings.cpu_affinity, pin_to_cpu), (settings.timer_slack_ns, set_timer_slack)):
            if value is not None:
                try:
                    prepare(value)
                except (ConfigurationError, OSError) as error:
                    self._context.counted_error_handler(error)
