"""The world around one container over memory, for tests: driver, consensus module, mark file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from container.clustered_service_container import ClusteredServiceContainer
from container.codecs.messages import decode
from container.context import Context
from container.files.error_log import read_error_log
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_stores import MemorySnapshotStore
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_consensus_module import ScriptedConsensusModule
from container.transport.idle_strategy import NoOpIdleStrategy

TICK_NS = 1_100_000
TERMINATED = -1


class Node:
    """The memory world around one container: driver, consensus module, mark file, and the context's arguments."""

    def __init__(self, directory: Path, *, auto_advance_ns: int = 0) -> None:
        self.clock = ManualClock(auto_advance_ns=auto_advance_ns)
        self.driver = MemoryDriver(self.clock)
        self.cm = ScriptedConsensusModule(self.driver)
        self.client = self.driver.connect("given")
        self.service = RecordingService()
        self.mark_path = directory / "cluster-mark-service-0.dat"
        self.hooks = 0
        self.settings: dict[str, Any] = {
            "client": self.client,
            "snapshot_store": MemorySnapshotStore(self.client),
            "cluster_dir": directory,
            "termination_hook": self._on_hook,
            "environ": {},
        }

    def _on_hook(self) -> None:
        self.hooks += 1

    def context(self, **settings: Any) -> Context:
        return Context(self.service, **self.settings | settings)

    def launch(self, **settings: Any) -> ClusteredServiceContainer:
        return ClusteredServiceContainer.launch(self.context(**settings))

    def header(self) -> dict[str, Any]:
        _name, fields = decode("mark", self.mark_path.read_bytes())
        return fields

    def recorded(self) -> list[str]:
        """The texts in the mark file's error log."""
        return [record.text for record in read_error_log(self.mark_path.read_bytes()[8192:])]


class SecondCall:
    """Makes an idle strategy when it is first called; then does something else."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self._is_called = False

    def __call__(self) -> Any:
        if self._is_called:
            return self._action()
        self._is_called = True
        return NoOpIdleStrategy()
