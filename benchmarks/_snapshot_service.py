"""A service whose state is that many messages of that length: writes them as a snapshot, checks them when it starts.

Set up by the environment variables SNAPSHOT_LENGTH and SNAPSHOT_COUNT; prints ``taken SECONDS`` and ``loaded SECONDS``.
Each message has its number in its first 8 bytes.
"""

from __future__ import annotations

import os
import time

from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)

LENGTH = int(os.environ.get("SNAPSHOT_LENGTH", "1024"))
COUNT = int(os.environ.get("SNAPSHOT_COUNT", "0"))


class SnapshotService(ClusteredService):
    """In Python; benchmarks/cython_snapshot.pyx and java/SnapshotService.java are the others."""

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        pass

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        if snapshot_image is None:
            return
        begin = time.perf_counter()
        loaded = 0
        for message in snapshot_image:
            if len(message) != LENGTH or int.from_bytes(message[:8], "little") != loaded:
                raise ValueError(f"message {loaded} of the snapshot is not what was written")
            loaded += 1
        if loaded != COUNT:
            raise ValueError(f"{loaded} of {COUNT} messages")
        print("loaded", time.perf_counter() - begin, flush=True)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        begin = time.perf_counter()
        rest = bytes(LENGTH - 8)
        for number in range(COUNT):
            snapshot_publication.send(number.to_bytes(8, "little"), rest)
        print("taken", time.perf_counter() - begin, flush=True)
