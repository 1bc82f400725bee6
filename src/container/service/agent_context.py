"""The parts of an agent: a container's context, a replay and tests all build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from container.common import aeron_defaults
from container.common.semantic_version import is_version_compatible
from container.common.values import shown
from container.errors import ConfigurationError
from container.service.service_handler import ServiceHandler
from container.settings.callback_errors import HALT, SKIP
from container.transport.clocks import Clock
from container.transport.duration_tracker import DurationTracker
from container.transport.idle_strategy import IdleStrategy
from container.transport.transport_seam import Client, MarkFile, SnapshotStore

_KINDS = {
    "service_handler": ServiceHandler,
    "client": Client,
    "clock": Clock,
    "idle_strategy": IdleStrategy,
    "mark_file": MarkFile,
    "snapshot_store": SnapshotStore,
    "duty_cycle_tracker": DurationTracker,
    "snapshot_duration_tracker": DurationTracker,
}
"""Objects that the agent calls in C, where a None or another type would end the process."""


def _do_nothing() -> None:
    pass


@dataclass(kw_only=True, slots=True)
class AgentContext:
    """The objects and settings of one agent. The agent reads them when it is made, and ``service_name``, the validator,
    the hook and ``close`` whenever it needs them; it closes the context at its end."""

    service_handler: ServiceHandler
    client: Client
    clock: Clock
    idle_strategy: IdleStrategy
    """The idle strategy of callbacks; the agent's thread has another instance."""
    mark_file: MarkFile
    snapshot_store: SnapshotStore
    duty_cycle_tracker: DurationTracker
    snapshot_duration_tracker: DurationTracker
    on_error: Callable[[BaseException], object]
    """Called with each error that does not end the agent; counts and records it."""
    record_event: Callable[[BaseException], object]
    """Records what upstream writes to the error log without counting it."""
    service_name: str
    log_fragment_limit: int
    """Fragments of the log in one poll."""
    callback_error_policy: str
    cluster_id: int = 0
    service_id: int = 0
    control_channel: str = aeron_defaults.CONTROL_CHANNEL
    service_stream_id: int = aeron_defaults.SERVICE_STREAM_ID
    consensus_module_stream_id: int = aeron_defaults.CONSENSUS_MODULE_STREAM_ID
    is_responding_service: bool = True
    app_version: int = 0
    app_version_validator: Callable[[int, int], bool] = is_version_compatible
    """``validator(own_version, other_version)``."""
    termination_hook: Callable[[], object] = _do_nothing
    """Called on the agent's thread when the agent terminates."""
    owns_client: bool = False
    """Is ``client`` closed with the context, so that the agent may leave its streams to that?"""
    close: Callable[[], object] = _do_nothing
    """Called last, on the agent's thread."""
    service_context: Any = None
    """The object that a service reads as ``cluster.context``; None means this context."""

    def check(self) -> None:
        """Raise ConfigurationError for an object of another type, and for a policy that does not exist."""
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigurationError(f"{name} must be of type {kind.__name__}, not {shown(getattr(self, name))}")
        if self.callback_error_policy not in (HALT, SKIP):
            raise ConfigurationError(
                f"callback_error_policy={shown(self.callback_error_policy)}: must be {HALT} or {SKIP}"
            )
