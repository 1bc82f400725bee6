"""A user's listener that says what becomes of each message; mypy --strict finds nothing here."""

from __future__ import annotations

from container.api import Header, MessageBuffer
from container.client import Action, AeronCluster, ControlledEgressListener, EventCode


class Throttled(ControlledEgressListener):
    """Takes ten messages, and lets the others wait in the stream."""

    def __init__(self) -> None:
        self.room = 10

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> Action:
        if self.room == 0:
            return Action.ABORT
        self.room -= 1
        return Action.CONTINUE

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> Action | None:
        return None if body else Action.BREAK

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode | int,
        detail: str,
    ) -> None:
        print(code, detail)


class Tolerant(Throttled):
    """Callbacks may be annotated with None alone, too."""

    def on_extension_message(
        self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
    ) -> None:
        """Passed over."""


def connect() -> AeronCluster:
    """A client in steps."""
    with AeronCluster.async_connect(ingress_channel="aeron:ipc", egress_channel="aeron:ipc", listener=Throttled()) as c:
        while (client := c.poll()) is None:
            print(c.step.name, c.awaited)
        return client
