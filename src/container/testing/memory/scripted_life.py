"""A life as a list of events, which prints as the Python that makes it again: paste it into a regression test.

::

    life = ScriptedLife(
        (
            Send(b"one+40"),
            Advance(1_000),
            Send(b"two+2", session=1),
        )
    )
    check_replays(Counter, life)
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from container.api import CloseReason, Role
from container.testing.memory.memory_member import MemoryMember, MemorySession

__all__ = [
    "Advance",
    "ChangeRole",
    "CloseSession",
    "FireNextTimer",
    "InjectServiceMessage",
    "NewTerm",
    "OpenSession",
    "ScriptedLife",
    "Send",
]


class _Event(msgspec.Struct, frozen=True):
    """Something that happens to a member when it is called with it."""

    def __repr__(self) -> str:
        given = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            text = f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)
            given.append(text if field.required else f"{field.name}={text}")
        return f"{type(self).__name__}({', '.join(given)})"


class OpenSession(_Event, frozen=True):
    """A client opens a session."""

    principal: bytes = b""

    def __call__(self, member: MemoryMember) -> None:
        """Open it."""
        member.open_session(self.principal)


class Send(_Event, frozen=True):
    """A client sends a message.

    ``session`` is an index in the open sessions, counted round; when none is open, a session is opened.
    """

    payload: bytes
    session: int = 0

    def __call__(self, member: MemoryMember) -> None:
        """Send it."""
        (_chosen(member, self.session) or member.open_session()).send(self.payload)


class CloseSession(_Event, frozen=True):
    """A session ends; ``session`` is an index as in :class:`Send`."""

    session: int = 0
    reason: CloseReason = CloseReason.CLIENT_ACTION

    def __call__(self, member: MemoryMember) -> None:
        """Close it, if any is open."""
        if (session := _chosen(member, self.session)) is not None:
            session.close(self.reason)


class Advance(_Event, frozen=True):
    """Cluster time passes, in the member's time unit."""

    duration: int

    def __call__(self, member: MemoryMember) -> None:
        """Let it pass."""
        member.advance(self.duration)


class FireNextTimer(_Event, frozen=True):
    """Cluster time passes until the next timer is due."""

    def __call__(self, member: MemoryMember) -> None:
        """Let it pass, if the service has a timer."""
        for deadline in list(member.timers.values())[:1]:
            member.advance(max(deadline - member.cluster_time, 0))


class InjectServiceMessage(_Event, frozen=True):
    """Another service of the cluster sends a message."""

    payload: bytes
    service_id: int = 1

    def __call__(self, member: MemoryMember) -> None:
        """Log it."""
        member.inject_service_message(self.payload, service_id=self.service_id)


class NewTerm(_Event, frozen=True):
    """A new leadership term begins."""

    def __call__(self, member: MemoryMember) -> None:
        """Log its beginning."""
        member.new_term()


class ChangeRole(_Event, frozen=True):
    """An election ends with this role of the member."""

    role: Role

    def __call__(self, member: MemoryMember) -> None:
        """Change the role."""
        member.change_role(self.role)


class ScriptedLife(msgspec.Struct, frozen=True):
    """Events, one after the other; at the end all sessions are closed."""

    events: tuple[Callable[[MemoryMember], object], ...] = ()

    def __call__(self, member: MemoryMember) -> None:
        """Let all of it happen to a member."""
        for event in self.events:
            event(member)
        while member.sessions:  # the service may close others meanwhile
            member.sessions[0].close()

    def __repr__(self) -> str:
        lines = "".join(f"\n        {event!r}," for event in self.events)
        return f"ScriptedLife(\n    ({lines}\n    )\n)" if lines else "ScriptedLife()"


def _chosen(member: MemoryMember, index: int) -> MemorySession | None:
    sessions = member.sessions
    return sessions[index % len(sessions)] if sessions else None
