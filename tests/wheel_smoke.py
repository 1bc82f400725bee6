"""Run with a wheel's Python: one member with a service, a client that is answered, and the release of the library."""

from __future__ import annotations

import sys
import tempfile

import container
from container.aeron import library_path, library_version
from container.api import ClientSession, ClusteredService, Header, MessageBuffer, SnapshotPublication
from container.client import AeronCluster

SMALL = {"log_channel": "aeron:udp?term-length=4m"}
"""A log for which /dev/shm of a container has room: it is 64 MiB where wheels are built."""


class Echo(ClusteredService):
    """Answers each message with the same bytes."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(buffer)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """It has no state."""


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        container.launch_node(Echo(), directory=directory, consensus_module=SMALL) as node,
        AeronCluster.connect(
            aeron_dir=node.aeron_dir, ingress_channel="aeron:ipc", egress_channel="aeron:ipc", correlate=bytes
        ) as client,
    ):
        assert bytes(client.request(b"hello", key=b"hello", timeout=10.0)) == b"hello"
    if "pyaeron" in library_path():
        sys.exit(f"this wheel does not carry Aeron's library: {library_path()} was loaded")
    print("served a client with Aeron", ".".join(map(str, library_version())))


if __name__ == "__main__":
    main()
