"""Services that are simulated: one that uses all that a service can, the examples, and how their clients talk."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SessionMessages,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)
from container.common.error_texts import remark_on
from container.settings.callback_errors import HALT, SKIP
from container.snapshots import read_snapshot, write_snapshot
from container.testing.memory.memory_member import ServiceFactory
from container.testing.simulation import Checks
from examples.auction_service import AuctionService, OpenAuction, PlaceBid
from examples.ledger_service import TRANSFER, LedgerService

_TICKS_PER_MS = {TimeUnit.MILLIS: 1, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1_000_000}


class BackgroundError(Exception):
    """What the workload's background work raises."""


class RefusedError(Exception):
    """What the workload raises at a message that it does not like."""


class WorkloadState(msgspec.Struct):
    """All that the workload knows."""

    events: int = 0
    digest: int = 0
    sessions: dict[int, int] = {}
    timers: dict[int, int] = {}


class Workload(ClusteredService):
    """Folds all that it is delivered into a digest, and does what messages say: timers, messages, closes, waits."""

    raises_at = b""

    def __init__(self) -> None:
        self.state = WorkloadState()
        self.cluster: Cluster
        self.works = 0

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            self.state = read_snapshot(snapshot_image, WorkloadState)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        write_snapshot(snapshot_publication, self.state)

    def _fold(self, *what: object) -> None:
        self.state.events += 1
        self.state.digest = zlib.crc32(repr(what).encode(), self.state.digest)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._fold("open", session.id, timestamp, session.encoded_principal)
        self.state.sessions[session.id] = 0

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._fold("close", session.id, timestamp, int(close_reason))
        del self.state.sessions[session.id]

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self._handle(session, timestamp, bytes(buffer))

    def _handle(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
        if self.raises_at and payload[:1] == self.raises_at:
            raise RefusedError(payload[:20])
        self._fold("message", None if session is None else session.id, timestamp, payload)
        rest = payload[1:]
        match payload[:1]:
            case b"t":
                self._schedule(timestamp, rest)
            case b"c" if rest:
                while not self.cluster.cancel_timer(rest[0] % 8):
                    self.cluster.idle()
                self.state.timers.pop(rest[0] % 8, None)
            case b"s" if session is not None:
                self.cluster.send(b"from " + payload)
            case b"i":
                self.cluster.idle()
            case b"x" if session is not None:
                while not self.cluster.close_client_session(session.id):
                    self.cluster.idle()
        if session is not None:
            self.state.sessions[session.id] += 1
            answer = b"%d %08x" % (self.state.events, self.state.digest)
            session.send(answer * (200 if payload[:1] == b"l" else 1))

    def _schedule(self, timestamp: int, rest: bytes) -> None:
        number = rest[0] % 8 if rest else 0
        ticks = _TICKS_PER_MS[self.cluster.time_unit or TimeUnit.MILLIS]
        deadline = timestamp + (len(rest) * 7 - 7) * ticks
        while not self.cluster.schedule_timer(number, deadline):
            self.cluster.idle()
        self.state.timers[number] = deadline

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._fold("timer", correlation_id, timestamp, self.state.timers.pop(correlation_id, None))

    def on_new_leadership_term_event(self, *values: object) -> None:
        self._fold("term", *values[:5])  # up to the leader's id: the others may differ from member to member

    def do_background_work(self, now_ns: int) -> int:
        self.works += 1
        if self.works % 50 == 0:
            raise BackgroundError(f"work {self.works}")
        return 0


class BatchWorkload(Workload):
    """The same, with many messages at a time, some of which it refuses."""

    raises_at = b"!"

    def on_session_messages(self, messages: SessionMessages) -> None:
        for index in messages:
            self._handle(messages.session(index), messages.timestamps[index], messages.payload(index))


class FramesWorkload(Workload):
    """The same, with a snapshot in messages of its own, in which it would not miss one."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        for message in snapshot_image or ():
            kind, key, value = msgspec.msgpack.decode(message, type=tuple[str, int, int])
            if kind == "digest":
                self.state.events, self.state.digest = key, value
            else:
                getattr(self.state, kind)[key] = value

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(msgspec.msgpack.encode(("digest", self.state.events, self.state.digest)))
        for kind in ("sessions", "timers"):
            for key, value in getattr(self.state, kind).items():
                snapshot_publication.send(msgspec.msgpack.encode((kind, key, value)))


def workload_payload(draws: random.Random) -> bytes:
    """A message of the workload's clients."""
    kind = draws.choice((b"a", b"a", b"a", b"t", b"t", b"c", b"s", b"i", b"x", b"l", b"!"))
    if kind == b"a" and draws.random() < 0.1:
        return kind + draws.randbytes(draws.choice((1_300, 1_400, 5_000)))
    return kind + draws.randbytes(draws.choice((0, 1, 2, 3, 9)))


def auction_payload(draws: random.Random) -> bytes:
    """A message of an auction's clients."""
    if draws.random() < 0.3:
        return msgspec.json.encode(
            OpenAuction(
                draws.randrange(100), f"lot {draws.randrange(5)}", draws.choice((0, 50)), draws.choice((1, 50, 900))
            )
        )
    return msgspec.json.encode(
        PlaceBid(draws.randrange(100), draws.randrange(1, 8), f"bidder {draws.randrange(3)}", draws.randrange(1, 200))
    )


def ledger_payload(draws: random.Random) -> bytes:
    """A message of a ledger's clients."""
    return TRANSFER.pack(draws.randrange(1, 3), draws.randrange(1, 12), draws.randrange(4), draws.randrange(-50, 100))


def tolerates(error: BaseException) -> bool:
    """Is this what a workload raises on purpose?"""
    return isinstance(error, BackgroundError) and remark_on(error).startswith("do_background_work raised")


class Subject(NamedTuple):
    """A service and what its clients send."""

    service: ServiceFactory
    payload: Callable[[random.Random], bytes]
    state: Callable[[Any], Any] | None = None
    callback_error_policy: str = HALT

    def checks(self) -> Checks:
        """How its runs are looked at."""
        return Checks(
            service=self.service,
            state=self.state,
            tolerates=tolerates,
            callback_error_policy=self.callback_error_policy,
        )


def _workload_state(service: Workload) -> bytes:
    return msgspec.msgpack.encode(service.state)


SUBJECTS: dict[str, Subject] = {
    "workload": Subject(Workload, workload_payload, _workload_state),
    "batches": Subject(BatchWorkload, workload_payload, _workload_state, SKIP),
    "frames": Subject(FramesWorkload, workload_payload),
    "auction": Subject(AuctionService, auction_payload),
    "ledger": Subject(LedgerService, ledger_payload),
}
