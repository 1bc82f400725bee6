"""A user's service and how it is run; mypy --strict finds nothing here."""

from __future__ import annotations

from pathlib import Path

import container
from container import ClientSession, Cluster, ClusteredService, Header, MessageBuffer
from container.api import SnapshotImage


class EchoService(ClusteredService):
    """Sends each message back."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(buffer)
        self.cluster.schedule_timer(1, timestamp + 1_000)


SETTINGS: container.ContainerSettings = {
    "service_id": 0,
    "cluster_dir": Path("/var/lib/echo"),
    "cycle_threshold_ns": "50ms",
}


def main() -> None:
    """The whole of a main program."""
    container.run(EchoService(), **SETTINGS, error_handler=print)


def embedded() -> bool:
    """Beside other things."""
    with container.ClusteredServiceContainer.launch(EchoService(), cluster_dir="echo", use_agent_invoker=True) as it:
        return it.invoke() > 0
