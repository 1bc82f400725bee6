"""The ledger service of ``tests/java`` in Python: the same messages, answers and snapshot, byte for byte.

The format is described in ``tests/java/README.md``. Its place in a cluster comes from the environment.
"""

from __future__ import annotations

import logging
import struct

import container
from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)

PUT, GET, ADD, SCHEDULE, HASH, INVALID = 1, 2, 3, 4, 5, 255
COMMAND = struct.Struct("<Bqq")
ANSWER = struct.Struct("<BqqQ")
SNAPSHOT_FRAME = struct.Struct("<qq")
SNAPSHOT_MAGIC = int.from_bytes(b"LEDGER01", "little")

_FNV_OFFSET_BASIS = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MASK = 2**64 - 1


def ledger_hash(entries: dict[int, int]) -> int:
    """FNV-1a with 64 bits over keys and values as int64, in ascending order of the keys."""
    value = _FNV_OFFSET_BASIS
    for entry in sorted(entries.items()):
        for byte in SNAPSHOT_FRAME.pack(*entry):
            value = (value ^ byte) * _FNV_PRIME & _MASK
    return value


def wrapped(number: int) -> int:
    """A sum as a signed number of 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


class LedgerService(ClusteredService):
    """Keeps int64 values under int64 keys; every answer has the hash of the whole state after the command."""

    def __init__(self) -> None:
        self.entries: dict[int, int] = {}
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        """Reads a snapshot's first frame, then one for each entry."""
        self.cluster = cluster
        if snapshot_image is None:
            return
        frames = [SNAPSHOT_FRAME.unpack(message) for message in snapshot_image]
        if not frames or frames[0] != (SNAPSHOT_MAGIC, len(frames) - 1):
            raise ValueError(f"not a ledger snapshot: {len(frames)} frames, the first is {frames[:1]}")
        self.entries = dict(frames[1:])

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Writes the same frames."""
        snapshot_publication.send(SNAPSHOT_FRAME.pack(SNAPSHOT_MAGIC, len(self.entries)))
        for entry in sorted(self.entries.items()):
            snapshot_publication.send(SNAPSHOT_FRAME.pack(*entry))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Carries out one command and answers it."""
        if session is None:
            return
        if len(buffer) == COMMAND.size:
            answer = self._carry_out(timestamp, *COMMAND.unpack(buffer))
        else:
            answer = INVALID, 0, len(buffer)
        session.send(ANSWER.pack(*answer, ledger_hash(self.entries)))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Counts the timer's events under its correlation id."""
        self._add(correlation_id, 1)

    def _carry_out(self, timestamp: int, op: int, key: int, value: int) -> tuple[int, int, int]:
        if op == PUT:
            self.entries[key] = value
            return op, key, value
        if op == GET:
            return op, key, self.entries.get(key, 0)
        if op == ADD:
            return op, key, self._add(key, value)
        if op == SCHEDULE:
            deadline = wrapped(timestamp + value)
            while not self.cluster.schedule_timer(key, deadline):
                self.cluster.idle()
            return op, key, deadline
        if op == HASH:
            return op, key, len(self.entries)
        return INVALID, key, op

    def _add(self, key: int, value: int) -> int:
        self.entries[key] = wrapped(self.entries.get(key, 0) + value)
        return self.entries[key]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    container.run(LedgerService())
