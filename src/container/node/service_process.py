"""A service of a node in a process of its own: its callbacks cannot stop the node's threads, whatever they hold."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from container.common.loggers import report
from container.errors import ClusterError
from container.testing.processes.process import Process

_STOP_LIMIT_S = 30.0
_LOOK_S = 0.05


class ServiceProcess:
    """Stand-in for a service of a node: ``package.module:Class``, which ``aeron-cluster run`` makes.

    The process ends with the node's at the latest, and the node ends when it ends.
    """

    is_on_this_thread = False

    def __init__(self, path: str) -> None:
        """Name the service; the node starts it."""
        self.path = path
        self.failure: BaseException | None = None
        self._process: Process | None = None
        self._is_closing = threading.Event()

    def start(
        self, directory: Path, service_id: int, settings: Mapping[str, Any], on_end: Callable[[], object]
    ) -> None:
        """Write the settings of its container into a directory, start it, and call ``on_end`` when it has ended."""
        file = directory / f"service-{service_id}.toml"
        # A value in JSON is one in TOML.
        encode = json.JSONEncoder(default=str, ensure_ascii=False).encode
        lines = [f"{name} = {encode(value)}\n" for name, value in {**settings, "service_id": service_id}.items()]
        file.write_text("".join(lines), encoding="utf-8")
        self._service_id, self._on_end = service_id, on_end
        command = [sys.executable, "-m", "container", "run", self.path, "--config", str(file)]
        self._process = Process(f"service-{service_id}", command, directory=directory, shares_output=True).start()
        threading.Thread(target=self._watch, name=f"service-process-{service_id}", daemon=True).start()

    def _watch(self) -> None:
        process = self._process
        assert process is not None
        while not process.has_ended:
            if self._is_closing.wait(_LOOK_S):
                return
        code = process.return_code
        if code:
            self.failure = ClusterError(
                f"the process of service {self._service_id}, {self.path}, ended with {code}: the log says why"
            )
        self._on_end()

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_running

    def close(self) -> None:
        """End it in order, and wait for that; kill it after 30 seconds. May be called again."""
        self._is_closing.set()
        if self._process is None:
            return
        try:
            self._process.stop(_STOP_LIMIT_S)
        except TimeoutError:
            report("warning", "service %d has not ended after %d s: it is killed", self._service_id, _STOP_LIMIT_S)
        finally:
            self._process.close()
