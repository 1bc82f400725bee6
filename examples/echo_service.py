"""The smallest service: answers each message with the same bytes. Its place in a cluster comes from the environment.

Run it beside a consensus module, for example with ``AERON_DIR`` and ``AERON_CLUSTER_DIR`` set::

    python examples/echo_service.py
"""

from __future__ import annotations

import container
from container.api import ClientSession, ClusteredService, Header, MessageBuffer, SnapshotPublication

TOO_LONG = b"too long for your egress channel"


class EchoService(ClusteredService):
    """Sends every message of a client back to it."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Answers the client; a message of another service (no session) is ignored."""
        if session is None:
            return
        try:
            session.send(buffer)
        except ValueError:  # longer than the client's own egress channel can carry
            session.send(TOO_LONG)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Writes nothing: there is no state."""


if __name__ == "__main__":
    container.run(EchoService())
