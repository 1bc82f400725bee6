"""A backup of a cluster: a copy of its log and of its latest snapshot, away from it. Upstream: ClusterBackup.java."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.backup.backup_context import ClusterBackupContext
    from container.backup.cluster_backup import ClusterBackup

__all__ = ["ClusterBackup", "ClusterBackupContext"]

_LAZY = {
    "ClusterBackup": "container.backup.cluster_backup",
    "ClusterBackupContext": "container.backup.backup_context",
}


def __getattr__(name: str) -> Any:
    """Load the module of a public name when the name is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names for completion, with those that are not loaded yet."""
    return sorted({*globals(), *__all__})
