"""The native consensus module: what it decides, and what it is made of."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.consensus.consensus_module import ConsensusModule
    from container.consensus.consensus_module_context import ConsensusModuleContext

__all__ = ["ConsensusModule", "ConsensusModuleContext"]

_LAZY = {
    "ConsensusModule": "container.consensus.consensus_module",
    "ConsensusModuleContext": "container.consensus.consensus_module_context",
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
