"""An archive: a native one, what it is made of, and the client of one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from container.archive.archive_context import ArchiveContext
    from container.archive.native_archive import Archive

__all__ = ["Archive", "ArchiveContext"]

_LAZY = {"Archive": "container.archive.native_archive", "ArchiveContext": "container.archive.archive_context"}


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
