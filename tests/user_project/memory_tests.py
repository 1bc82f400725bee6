"""A user's tests of a service in memory; mypy --strict finds nothing here."""

from __future__ import annotations

from typing import assert_type

from container import ClientSession, ClusteredService, Header, MessageBuffer
from container.testing import MemoryMember, MemorySession


class EchoService(ClusteredService):
    """Sends each message back."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(buffer)


def make() -> EchoService:
    """Any function that makes a service will do in place of its class."""
    return EchoService()


def life(member: MemoryMember) -> None:
    """What clients do, whatever the service is."""
    member.open_session().send(b"hello")


def main() -> None:
    """A member has the type of its service."""
    with MemoryMember(EchoService) as member, MemoryMember(make) as other:
        assert_type(member.service, EchoService)
        assert_type(other, MemoryMember[EchoService])
        assert_type(member.open_session(), MemorySession)
        life(member)
