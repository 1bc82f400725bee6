"""The ``cluster.context`` of a service in memory: the names of a container's context, without a container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from container.common.error_texts import error_text, message_of
from container.errors import ConcurrentConcludeError
from container.service.agent_context import AgentContext
from container.settings.container_table import Settings
from container.settings.sources import load_settings
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.transport.idle_strategy import IdleStrategy


class MemberContext:
    """A :class:`container.context.Context` that is concluded, as far as a service can tell.

    ``place`` is the host that the member runs on: the directories are named by it, and nothing is there. So a service
    whose state depends on them differs between members.
    """

    kind = "container"
    is_concluded = True
    is_closed = False
    is_starting = False
    owns_aeron_client = True
    is_invoker = use_agent_invoker = False

    def __init__(self, service: Any, agent_context: AgentContext, place: str) -> None:
        self.service = service
        self.agent_context = agent_context
        self.settings: Settings = load_settings(
            {
                "aeron_dir": f"/dev/shm/aeron-{place}",
                "cluster_dir": f"/var/lib/{place}/cluster",
                "mark_file_dir": f"/var/lib/{place}/marks",
                "cluster_id": agent_context.cluster_id,
                "service_id": agent_context.service_id,
                "callback_error_policy": agent_context.callback_error_policy,
                "is_responding_service": agent_context.is_responding_service,
                "log_fragment_limit": agent_context.log_fragment_limit,
            },
            environ={},
        )
        self.name = self.service_name = agent_context.service_name
        self.clock = agent_context.clock
        self.client = agent_context.client
        self.mark_file = agent_context.mark_file
        self.aeron_dir = self.settings.aeron_dir
        self.cluster_dir = Path(f"/var/lib/{place}/cluster")
        self.mark_file_dir = Path(f"/var/lib/{place}/marks")
        self.error_handler = self.counted_error_handler = agent_context.on_error
        self.error_log = _ErrorLog(agent_context)
        self.runner_idle_strategy = self.new_idle_strategy()

    def summary(self) -> str:
        """Which service of which cluster this is, and where."""
        return (
            f"{self.service_name}: cluster_id={self.settings.cluster_id} service_id={self.settings.service_id} "
            f"aeron_dir={self.aeron_dir} cluster_dir={self.cluster_dir}"
        )

    def __str__(self) -> str:
        return f"MemberContext {self.summary()}"

    def started_text(self) -> str:
        """The line logged once a member runs."""
        return f"{self.summary()}: running"

    def message_of(self, error: BaseException) -> str:
        """The message of an error, for the log."""
        return message_of(error)

    def bounded_text(self, error: BaseException) -> str:
        """The part of an exception's text that may be logged."""
        return error_text(error)

    def new_idle_strategy(self) -> IdleStrategy:
        """A strategy that waits for nothing."""
        return SteppingIdleStrategy()

    def wrap_idle_strategy(self, wrap: Any) -> None:
        """Change nothing: strategies were made."""

    def create_service(self) -> Any:
        """The service."""
        return self.service

    def conclude(self) -> None:
        """Raise ConcurrentConcludeError, as a context that was concluded does."""
        raise ConcurrentConcludeError("a context can be concluded once; make a new one for each container")

    def check_directory(self) -> None:
        """Wait for nothing: no directory is there."""

    def close(self) -> None:
        """Close nothing: the member has what the context names."""

    abandon = close


class _ErrorLog:
    """Takes errors that are not counted."""

    is_closed = False
    refusal = None

    def __init__(self, agent_context: AgentContext) -> None:
        self.record = agent_context.record_event

    def close(self) -> None:
        """Close nothing."""


def place(number: int) -> str:
    """The name of a host: another one for each number, and of another length."""
    return f"host-{7 ** (1 + number % 40)}"


def boot_time_ns(number: int) -> int:
    """The start of a host's monotonic clock: another number for each, by days and by nanoseconds."""
    return 1_000_000_000 + number * (3 * 86_400_000_000_000 + 7_654_321_987)
