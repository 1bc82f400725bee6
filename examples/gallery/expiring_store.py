"""A key-value store with expiry and compare-and-set.

Each change of a key gets the next version number. A client that gives ``if_version`` changes a key only if nobody else
did in between; version 0 stands for a key that is not there. A timer removes what has expired.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from container import ClusteredService, read_snapshot, write_snapshot
from container.api import ClientSession, Cluster, Header, MessageBuffer, SnapshotImage, SnapshotPublication
from container.api import TimeUnit as Unit

MAX_VALUE_LENGTH, MAX_KEYS, MAX_BYTES = 4_096, 100_000, 64 * 1024 * 1024
MAX_REQUEST_LENGTH = MAX_VALUE_LENGTH + 512
_PER_MS = {Unit.MILLIS: 1, Unit.MICROS: 1_000, Unit.NANOS: 1_000_000}
type Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Request(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Sent by clients, in MessagePack."""

    request_id: Id
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Get(Request):
    """Reads a key."""


class Put(Request):
    """Writes a key, and forgets it after ``expires_ms`` unless that is 0."""

    value: Annotated[bytes, msgspec.Meta(max_length=MAX_VALUE_LENGTH)]
    expires_ms: Annotated[int, msgspec.Meta(ge=0, le=366 * 24 * 3_600_000)] = 0
    if_version: Id | None = None


class Delete(Request):
    """Removes a key."""

    if_version: Id | None = None


class Reply(msgspec.Struct, tag=True, frozen=True):
    """The version after the request, 0 if the key is not there; with the value that was read, or what is wrong."""

    request_id: int
    version: int
    value: bytes = b""
    error: str = ""


class Entry(msgspec.Struct):
    """The value of a key."""

    value: bytes
    version: int
    expires_at: int = 0  # cluster time; 0: never


class State(msgspec.Struct):
    """Everything that a snapshot holds."""

    last_version: int = 0
    size: int = 0  # bytes of all values
    entries: dict[str, Entry] = {}
    expiring: dict[int, str] = {}  # keys by version: that is also the timer's correlation id


class ExpiringStore(ClusteredService):
    """The keys on every member of the cluster."""

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

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        key = self.state.expiring.get(correlation_id)
        if key is not None:
            self._remove(key)

    def _reply(self, payload: bytes, now: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(payload, type=Get | Put | Delete)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Reply(0, 0, error=f"not understood: {error}")
        entry = self.state.entries.get(request.key)
        if entry is not None and 0 < entry.expires_at <= now:  # its timer has not fired yet
            self._remove(request.key)
            entry = None
        version = 0 if entry is None else entry.version
        if isinstance(request, Get):
            return Reply(request.request_id, version, b"" if entry is None else entry.value)
        if request.if_version not in (None, version):
            return Reply(request.request_id, version, error=f"the version is {version}")
        if isinstance(request, Put):
            return self._put(request, entry, now)
        if entry is not None:
            self._remove(request.key)
        return Reply(request.request_id, 0)

    def _put(self, request: Put, entry: Entry | None, now: int) -> Reply:
        state = self.state
        if entry is None and len(state.entries) >= MAX_KEYS:
            return Reply(request.request_id, 0, error="too many keys")
        version, replaced = (0, 0) if entry is None else (entry.version, len(entry.value))
        if len(request.value) > replaced and state.size - replaced + len(request.value) > MAX_BYTES:
            return Reply(request.request_id, version, error="too many bytes")
        if entry is not None:
            self._remove(request.key)
        state.last_version += 1
        entry = state.entries[request.key] = Entry(request.value, state.last_version)
        state.size += len(request.value)
        if request.expires_ms:
            entry.expires_at = now + request.expires_ms * _PER_MS[self.cluster.time_unit or Unit.MILLIS]
            state.expiring[entry.version] = request.key
            while not self.cluster.schedule_timer(entry.version, entry.expires_at):
                self.cluster.idle()
        return Reply(request.request_id, entry.version)

    def _remove(self, key: str) -> None:
        entry = self.state.entries.pop(key)
        self.state.size -= len(entry.value)
        if entry.expires_at:
            del self.state.expiring[entry.version]
            while not self.cluster.cancel_timer(entry.version):
                self.cluster.idle()
