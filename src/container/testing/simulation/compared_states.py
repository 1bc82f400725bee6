"""States, or snapshots, of one log position: all that are seen there must be the same."""

from __future__ import annotations

from typing import Any

from container.common.differences import shown_apart
from container.service.state_difference import state_difference


class ComparedStates:
    """Keeps the first state that was seen at each log position, and whose it was.

    Args:
        what: ``state`` or ``snapshot``.
        is_messages: each is the messages of a snapshot (tuple of bytes), and not what the test's function has returned.
    """

    def __init__(self, what: str, *, is_messages: bool) -> None:
        self._what = what
        self._is_messages = is_messages
        self._known: dict[int, tuple[str, Any]] = {}

    def difference(self, whose: str, position: int, state: Any) -> str:
        """In what a state differs from that of another one there; nothing when they are the same."""
        first, expected = self._known.setdefault(position, (whose, state))
        if expected == state:
            return ""
        if self._is_messages:
            found = state_difference(expected, state, run=f"in {first}", now=f"in {whose}")
        else:
            left, right = shown_apart(expected, state)
            found = f"{left} in {first}, {right} in {whose}."
        return f"the {self._what} of {whose} at log position {position} differs from that of {first}. {found}"
