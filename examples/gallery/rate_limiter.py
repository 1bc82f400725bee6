"""A rate limiter for many servers: each key, such as a user or an address, has a bucket of permits that fills evenly.

The state of a bucket is one whole number: the cluster time at which it is full again. A request is granted if that time
stays within a full bucket of now. No timer is needed, and no float.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from container import ClusteredService, read_snapshot, write_snapshot
from container.api import ClientSession, Cluster, Header, MessageBuffer, SnapshotImage, SnapshotPublication, TimeUnit

MAX_REQUEST_LENGTH = 256
MAX_KEYS = 100_000
BUCKET = 10
"""Permits of a full bucket: what a key may take at once."""
PERMIT_MS = 100
"""A permit comes back after this time."""

_PER_MS = {TimeUnit.MILLIS: 1, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1_000_000}


class Take(msgspec.Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Asks for permits of a key, in MessagePack."""

    request_id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
    permits: Annotated[int, msgspec.Meta(ge=1, le=BUCKET)] = 1


class Reply(msgspec.Struct, tag=True, frozen=True):
    """Whether the permits were taken; if not, when to ask again, or what is wrong."""

    request_id: int
    is_granted: bool
    retry_after_ms: int = 0
    error: str = ""


class State(msgspec.Struct):
    """Everything that a snapshot holds."""

    full_at: dict[str, int] = {}
    """When each bucket is full again, in cluster time; the one that was taken from last is the last."""


class RateLimiter(ClusteredService):
    """The buckets on every member of the cluster."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        self.state = State() if snapshot_image is None else read_snapshot(snapshot_image, State)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(msgspec.msgpack.encode(self._reply(bytes(buffer[:MAX_REQUEST_LENGTH]), timestamp)))

    def _reply(self, payload: bytes, now: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(payload, type=Take)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Reply(0, False, error=f"not understood: {error}")
        per_ms = _PER_MS[self.cluster.time_unit or TimeUnit.MILLIS]
        full_at = self.state.full_at
        self._forget_full_ones(now)
        if request.key not in full_at and len(full_at) >= MAX_KEYS:
            return Reply(request.request_id, False, PERMIT_MS * BUCKET, error="too many keys")
        then = max(full_at.get(request.key, now), now) + request.permits * PERMIT_MS * per_ms
        missing = then - now - BUCKET * PERMIT_MS * per_ms
        if missing > 0:
            return Reply(request.request_id, False, -(-missing // per_ms))
        full_at.pop(request.key, None)
        full_at[request.key] = then
        return Reply(request.request_id, True)

    def _forget_full_ones(self, now: int) -> None:
        """Forget up to two buckets that are full again: more than a request can add, and the first was used least."""
        for _ in range(2):
            key = next(iter(self.state.full_at), None)
            if key is None or self.state.full_at[key] > now:
                return
            del self.state.full_at[key]
