"""A whole member without Java, as one real process: driver, archive, consensus module and services of this package."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from container.errors import ContainerError
from container.files.directory_lock import DirectoryLock
from container.testing.processes.endpoints import HOST, MemberEndpoints, PortReservation
from container.testing.processes.java_tools import as_environment
from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.node import Node
from container.testing.processes.process import Process

_MIB = 1024 * 1024


class NativeNode(Node):
    """A member: the command ``aeron-cluster node`` in a process of its own, with its services.

    It is started, killed, waited for and looked into as any :class:`~container.testing.node.Node`, and needs Java only
    for Java's clients and tools.
    """

    def __init__(
        self,
        *services: str,
        member_id: int = 0,
        members: Sequence[MemberEndpoints] | None = None,
        network_namespace: str | None = None,
        base_dir: Path | None = None,
        threading_mode: str | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
    ) -> None:
        """Choose directories and ports, and write the file of settings; nothing is started.

        Args:
            services: where each service is, as ``package.module:Class``.
            member_id, members, network_namespace: as for :class:`~container.testing.node.Node`; a cluster of one by
                default.
            base_dir: as for :class:`~container.testing.node.Node`.
            threading_mode: of the node; its default when not given.
            settings: by part, ``driver``, ``archive``, ``consensus_module`` and ``container``: settings by name.
            environment: variables of the process, such as PYTHONPATH for the services.
            class_path: of Java's clients.

        Raises:
            ContainerError: ``member_id`` is not one of ``members``, or there are no free ports.
            MarkFileError: another process runs a node in ``base_dir``; nothing there is touched.
        """
        if base_dir is not None:
            require_free(base_dir)
        self._services, self._threading_mode = services, threading_mode
        self._settings, self._environment = settings or {}, environment or {}
        self._row = PortReservation()
        super().__init__(
            member_id=member_id,
            members=members or [MemberEndpoints.row(member_id, HOST, self._row.take_row(5))],
            network_namespace=network_namespace,
            service_count=len(services),
            base_dir=base_dir,
            class_path=class_path,
            driver="native",
            archive="native",
            consensus_module="native",
        )

    def start(self) -> Self:
        """Start the process, unless another one runs a node in the directory.

        Raises:
            ContainerError: it still runs.
            MarkFileError: another process runs a node there; nothing there is touched.
        """
        if not self.is_running:
            require_free(self.base_dir)
        return super().start()

    def become(self, **kinds: ArchiveKind | None) -> Self:
        """Refuse: all parts are one process.

        Raises:
            ContainerError: always.
        """
        raise ContainerError("a whole native node is one process: give a Node parts of other kinds")

    def await_mark_files_stale(self, limit_s: float = 15.0, say: Callable[[str], None] | None = None) -> None:
        """Return immediately: the locks of a native node go with its process, so it can start again.

        Args:
            limit_s, say: as for :class:`~container.testing.node.Node`.

        Raises:
            ContainerError: the node still runs, and so keeps its files alive.
        """
        self._require_end()

    def _make_parts(self, separate_processes: bool) -> list[Process]:
        config = self.base_dir / "node.toml"
        config.write_text(self._config(), encoding="utf-8")
        sockets = {name: value for name, value in self.properties.items() if name.startswith("aeron.socket.")}
        environment = {**as_environment(sockets), **self._environment}
        return [
            self._process("node", [sys.executable, "-m", "container", "node", "--config", str(config)], environment)
        ]

    def _config(self) -> str:
        node: dict[str, Any] = {
            "services": list(self._services),
            "directory": os.fspath(self.base_dir),
            "aeron_dir": os.fspath(self.aeron_dir),
            "member_id": self.member_id,
        }
        if self._threading_mode is not None:
            node["threading_mode"] = self._threading_mode
        driver = {"term_buffer_length": _MIB, "ipc_term_buffer_length": _MIB}
        parts = {
            "driver": driver | dict(self._settings.get("driver", {})),
            "archive": self._settings.get("archive", {}),
            "consensus_module": {
                "log_channel": "aeron:udp?term-length=1m",
                "authorisation_service": "ALLOW_ALL",  # so that a client may ask for a snapshot
                **self._settings.get("consensus_module", {}),
            },
            "container": self._settings.get("container", {}),
        }
        # A value in JSON is one in TOML.
        encode = json.JSONEncoder(default=str, ensure_ascii=False).encode
        lines = [f"{name} = {encode(value)}" for name, value in node.items()]
        for member in self.members:
            endpoints = {name: getattr(member, name) for name in ("ingress", "consensus", "log", "catchup", "archive")}
            lines += ["[[members]]", f"id = {member.member_id}"]
            lines += [f"{name} = {encode(value)}" for name, value in endpoints.items()]
        for part, values in parts.items():
            lines += [f"[{part}]", *(f"{name} = {encode(value)}" for name, value in values.items())]
        return "\n".join(lines)

    def close(self) -> None:
        """End the process, remove the directories that are the node's own, and give the ports back."""
        super().close()
        self._row.close()


def require_free(directory: Path) -> None:
    """Raise MarkFileError if a process runs a node in the directory: its driver's files must not be removed.

    It takes the node's own lock, and leaves the node's note in the directory.
    """
    if directory.is_dir():
        DirectoryLock(directory).disown()
