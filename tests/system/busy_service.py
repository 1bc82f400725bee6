"""Counters that keep their members busy: by a callback, with the GIL or with turns of it, and by a long snapshot."""

from __future__ import annotations

import ctypes
import time

from container.api import ClientSession, Cluster, Header, MessageBuffer, SnapshotImage, SnapshotPublication
from tests.services import Counter

_C = ctypes.PyDLL(None)  # whose functions keep the GIL while they run


class Busy(Counter):
    """Counts; ``python SECONDS MEMBER`` and ``c SECONDS MEMBER`` are busy on that member, and count nothing."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self._cluster = cluster
        super().on_start(cluster, snapshot_image)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        words = bytes(buffer).decode().split()
        if len(words) == 1:
            super().on_session_message(session, timestamp, buffer, header)
        elif int(words[2]) == self._cluster.member_id:
            if words[0] == "c":
                _C.sleep(int(words[1]))
                return
            end = time.monotonic() + int(words[1])
            while time.monotonic() < end:
                pass


PART = bytes(100 * 1024)


class Large(Counter):
    """Counts, and has a state of 1 GiB beside its total."""

    size = 1024**3

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        if snapshot_image is not None:
            last = b""
            for message in snapshot_image:
                last = bytes(message)
            self.total = int(last)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        for _ in range(self.size // len(PART)):
            snapshot_publication.send(PART)
        snapshot_publication.send(b"%d" % self.total)
