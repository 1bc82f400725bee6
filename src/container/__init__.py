"""Clustered services for Aeron Cluster: an embeddable, compiled service container.

Subclass :class:`ClusteredService`, and :func:`run` it, or :meth:`ClusteredServiceContainer.launch` it beside a
consensus module; :func:`launch_node` brings up a whole cluster of one member for it, :func:`launch_cluster` one of
three on this machine. The interface of a service is in
:mod:`container.api`, all settings are in docs/settings.md.

Importing this package is quick: what is compiled is loaded when it is first used, and the Aeron C library when the
first client or driver is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from container.api import (
    ADMIN_ACTION,
    BACK_PRESSURED,
    CLOSED,
    MAX_POSITION_EXCEEDED,
    MOCKED_OFFER,
    NOT_CONNECTED,
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    Role,
    SessionMessages,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)

if TYPE_CHECKING:
    from container.aeron import MediaDriver
    from container.clustered_service_container import ClusteredServiceContainer
    from container.context import Context
    from container.node.cluster_node import ClusterNode, launch_node
    from container.node.launched_cluster import LaunchedCluster, launch_cluster
    from container.run_service import run
    from container.setting_types import ContainerArguments, ContainerSettings
    from container.snapshots import read_snapshot, snapshot_version, write_snapshot
    from container.transport.message_buffer import BufferClaim

__all__ = [
    "ADMIN_ACTION",
    "BACK_PRESSURED",
    "CLOSED",
    "MAX_POSITION_EXCEEDED",
    "MOCKED_OFFER",
    "NOT_CONNECTED",
    "BufferClaim",
    "ClientSession",
    "CloseReason",
    "Cluster",
    "ClusterNode",
    "ClusteredService",
    "ClusteredServiceContainer",
    "ContainerArguments",
    "ContainerSettings",
    "Context",
    "Header",
    "LaunchedCluster",
    "MediaDriver",
    "MessageBuffer",
    "Role",
    "SessionMessages",
    "SnapshotImage",
    "SnapshotPublication",
    "TimeUnit",
    "launch_cluster",
    "launch_node",
    "read_snapshot",
    "run",
    "snapshot_version",
    "write_snapshot",
]

# Public names that need more than the interface, and the modules that have them.
_LAZY = {
    "BufferClaim": "container.transport.message_buffer",
    "ClusterNode": "container.node.cluster_node",
    "ClusteredServiceContainer": "container.clustered_service_container",
    "ContainerArguments": "container.setting_types",
    "ContainerSettings": "container.setting_types",
    "Context": "container.context",
    "LaunchedCluster": "container.node.launched_cluster",
    "MediaDriver": "container.aeron",
    "launch_cluster": "container.node.launched_cluster",
    "launch_node": "container.node.cluster_node",
    "read_snapshot": "container.snapshots",
    "run": "container.run_service",
    "snapshot_version": "container.snapshots",
    "write_snapshot": "container.snapshots",
}


def __getattr__(name: str) -> Any:
    """Load the module of a public name when the name is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        not_built = not_built_error(error)
        if not_built is None:
            raise
        raise not_built from error
    globals()[name] = value
    return value


def not_built_error(error: ModuleNotFoundError) -> ImportError | None:
    """An error that says what to do, if ``error`` is about a module of this package that is not compiled."""
    if not (error.name or "").startswith(f"{__name__}."):
        return None
    return ImportError(f"{error.name} is not built: run './run build' in the source tree, or install the package")


def __dir__() -> list[str]:
    """Names for completion, with those that are not loaded yet."""
    return sorted({*globals(), *__all__})
