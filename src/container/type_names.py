"""The names of ``typing`` that modules use which every start imports, without ``typing``.

Importing that takes a start some milliseconds and half a MiB. Type checkers see the real ones; at run time the
interfaces of :mod:`container.api` are plain classes.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Protocol, Self, TextIO
else:
    Any = Protocol = Self = TextIO = object

__all__ = ["TYPE_CHECKING", "Any", "Protocol", "Self", "TextIO"]
