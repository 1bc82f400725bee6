"""Clusters of whole native members: each is the command ``aeron-cluster node`` in one process, without Java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from container.testing.processes.endpoints import HOST
from container.testing.processes.local_cluster import LocalCluster, LocalMember
from container.testing.processes.native_node import NativeNode, require_free
from container.testing.processes.network import Network

_MS = 1_000_000

QUICK_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "driver": {},
    "archive": {},
    "consensus_module": {
        "leader_heartbeat_timeout_ns": 2_000 * _MS,
        "startup_canvass_timeout_ns": 4_000 * _MS,
        "termination_timeout_ns": 5_000 * _MS,
    },
    "container": {},
}
"""Settings of every member of a :class:`NativeCluster`, by part: a new leader is there some 3 s after the old one died.

A member is one process, whose parts end together: the timeouts by which they notice each other's ends need not be
short, and a machine that stands still for seconds costs no part.
"""


def member_directory(base_dir: Path, member_id: int) -> Path:
    """Return the directory of a member of the cluster whose directory is ``base_dir``."""
    return base_dir / f"member-{member_id}"


class NativeCluster(LocalCluster):
    """Members that are a process each; all else is as for a :class:`~container.testing.cluster.LocalCluster`."""

    def __init__(
        self,
        *services: str,
        member_count: int = 3,
        base_dir: Path | None = None,
        network: Network | None = None,
        host: str = HOST,
        port: int | None = None,
        threading_mode: str | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
    ) -> None:
        """Choose directories and addresses, and write each member's file of settings; nothing is started.

        Args:
            services: where each service is, as ``package.module:Class``.
            member_count, base_dir, network: as for :class:`~container.testing.cluster.LocalCluster`.
            host: of all members, where a port is given.
            port: of the first member's clients on this machine; each next one is 10 higher, and the four ports after
                each are used as well. When not given, free ones.
            threading_mode: of the nodes; their default when not given.
            settings: by part, ``driver``, ``archive``, ``consensus_module`` and ``container``: settings by name, on top
                of :data:`QUICK_SETTINGS`.
            environment: variables of the processes, such as PYTHONPATH for the services.
            class_path: of Java's clients.

        Raises:
            ContainerError: a value is refused, or there are no free ports.
            MarkFileError: another process runs one of the members in its directory; nothing there is touched.
        """
        if base_dir is not None:
            for member_id in range(member_count):  # all of them before one is touched
                require_free(member_directory(base_dir, member_id))
        self._take_places(member_count, base_dir, network, None if port is None else (host, port))
        given = settings or {}
        for endpoints in self.endpoints:
            node = NativeNode(
                *services,
                member_id=endpoints.member_id,
                members=self.endpoints,
                network_namespace=self._namespace_of(endpoints.member_id),
                base_dir=member_directory(self.base_dir, endpoints.member_id),
                threading_mode=threading_mode,
                settings={part: {**quick, **given.get(part, {})} for part, quick in QUICK_SETTINGS.items()},
                environment=environment,
                class_path=class_path,
            )
            self.members.append(LocalMember(node, ()))
