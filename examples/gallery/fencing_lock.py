"""Locks with fencing tokens: a client that has a lock shows its token to the storage that it writes to.

Tokens ascend. A storage that refuses a token below the highest it has seen is safe from a client that was paused, lost
its lock and did not notice. A lock ends with a release, its lease or its session; the next client in turn gets it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from container import ClusteredService, read_snapshot, write_snapshot
from container.api import ClientSession, CloseReason, Cluster, Header, MessageBuffer, SnapshotImage, SnapshotPublication
from container.api import TimeUnit as Unit

MAX_REQUEST_LENGTH, MAX_LOCKS_OF_SESSION, MAX_CLAIMS = 256, 100, 10_000
_PER_MS = {Unit.MILLIS: 1, Unit.MICROS: 1_000, Unit.NANOS: 1_000_000}


class Request(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Sent by clients, in MessagePack."""

    request_id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    lock: Annotated[str, msgspec.Meta(min_length=1, max_length=32)]


class Acquire(Request):
    """Asks for a lock, or starts its lease again. The reply has token 0 while others have it; ``Granted`` follows."""

    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]


class Release(Request):
    """Gives a lock back, or stops waiting for it."""


class Reply(msgspec.Struct, tag=True, frozen=True):
    """The token, or what is wrong."""

    request_id: int
    token: int = 0
    error: str = ""


class Granted(msgspec.Struct, tag=True, frozen=True):
    """A client that waited has the lock now."""

    lock: str
    token: int


class Claim(msgspec.Struct):
    """A client that has a lock, or waits for it."""

    lease_ms: int = 0
    token: int = 0  # 0 while it waits
    ends_at: int = 0  # cluster time


class State(msgspec.Struct):
    """Everything that a snapshot holds."""

    last_token: int = 0
    count: int = 0  # of all claims
    claims: dict[str, dict[int, Claim]] = {}  # by lock and session: the first one has the lock
    locks: dict[int, str] = {}  # by the tokens that are valid
    by_session: dict[int, dict[str, None]] = {}  # the locks that each session claims


class FencingLock(ClusteredService):
    """The locks on every member of the cluster."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        self.state = State() if snapshot_image is None else read_snapshot(snapshot_image, State)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is not None:
            session.send(msgspec.msgpack.encode(self._reply(bytes(buffer[:MAX_REQUEST_LENGTH]), session.id)))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        for lock in list(self.state.by_session.get(session.id, ())):
            self._drop(lock, session.id)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        lock = self.state.locks.get(correlation_id)
        if lock is not None:
            session_id, claim = next(iter(self.state.claims[lock].items()))
            if claim.ends_at <= timestamp:  # it was not renewed while the timer fired
                self._drop(lock, session_id)

    def _reply(self, payload: bytes, session_id: int) -> Reply:
        try:
            request = msgspec.msgpack.decode(payload, type=Acquire | Release)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Reply(0, error=f"not understood: {error}")
        own = self.state.by_session.get(session_id, {})
        claim = self.state.claims[request.lock][session_id] if request.lock in own else None
        if isinstance(request, Acquire):
            if claim is None and (self.state.count >= MAX_CLAIMS or len(own) >= MAX_LOCKS_OF_SESSION):
                return Reply(request.request_id, error="too many locks")
            if claim is None:
                claim = self.state.claims.setdefault(request.lock, {})[session_id] = Claim()
                self.state.by_session.setdefault(session_id, {})[request.lock] = None
                self.state.count += 1
            claim.lease_ms = request.lease_ms
            if next(iter(self.state.claims[request.lock])) == session_id:
                self._hold(request.lock, claim)
        elif claim is None:
            return Reply(request.request_id, error="you do not have this lock")
        else:
            self._drop(request.lock, session_id)
        return Reply(request.request_id, claim.token)

    def _hold(self, lock: str, claim: Claim) -> None:
        """Give a claim a token unless it has one, and start its lease."""
        if not claim.token:
            self.state.last_token += 1
            claim.token = self.state.last_token
            self.state.locks[claim.token] = lock
        claim.ends_at = self.cluster.time + claim.lease_ms * _PER_MS[self.cluster.time_unit or Unit.MILLIS]
        while not self.cluster.schedule_timer(claim.token, claim.ends_at):
            self.cluster.idle()

    def _drop(self, lock: str, session_id: int) -> None:
        """End a claim, and grant the lock to the next client if this one had it."""
        claims = self.state.claims[lock]
        claim = claims.pop(session_id)
        self.state.count -= 1
        del self.state.by_session[session_id][lock]
        if not self.state.by_session[session_id]:
            del self.state.by_session[session_id]
        if claim.token:
            del self.state.locks[claim.token]
            while not self.cluster.cancel_timer(claim.token):
                self.cluster.idle()
        if not claims:
            del self.state.claims[lock]
        elif claim.token:
            heir, following = next(iter(claims.items()))
            self._hold(lock, following)
            if session := self.cluster.get_client_session(heir):
                session.send(msgspec.msgpack.encode(Granted(lock, following.token)))
