"""Lives for the checks: traffic that is drawn from a seed, and traffic that a cluster recorded."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec

from container.api import CloseReason, Role
from container.recordings import read
from container.testing.memory.checks import hostile_payload
from container.testing.memory.memory_member import MemoryMember, MemorySession

_MOST_SESSIONS = 5


class GeneratedLife(msgspec.Struct, frozen=True):
    """Clients that come and go, messages, time, elections and terms, all drawn from ``seed``.

    Messages are ``payloads`` as they are, every tenth of them damaged; without ``payloads`` they are random bytes.
    """

    seed: int = 1
    events: int = 300
    payloads: tuple[bytes, ...] = ()

    def __call__(self, member: MemoryMember) -> None:
        """Do it all to a member, and close all sessions at the end."""
        draws = random.Random(self.seed)
        member.open_session(b"first")
        for number in range(self.events):
            sessions = member.sessions
            roll = draws.random()
            if (roll < 0.05 and len(sessions) < _MOST_SESSIONS) or not sessions:
                member.open_session(b"client %d" % number)
            elif roll < 0.09:
                draws.choice(sessions).close(draws.choice((CloseReason.CLIENT_ACTION, CloseReason.TIMEOUT)))
            elif roll < 0.24:
                member.advance(draws.choice((1, 10, 1_000, 60_000)))
            elif roll < 0.26:
                member.change_role(Role.FOLLOWER if member.role is Role.LEADER else Role.LEADER)
            elif roll < 0.27:
                member.new_term()
            else:
                draws.choice(sessions).send(self._payload(draws))
        while member.sessions:  # the service may close others meanwhile
            member.sessions[0].close()

    def _payload(self, draws: random.Random) -> bytes:
        if self.payloads and draws.random() < 0.9:
            return draws.choice(self.payloads)
        return hostile_payload(draws, self.payloads)


class RecordedLife(msgspec.Struct, frozen=True):
    """The clients' activity in a recorded log; ``path`` is a member's, as :func:`container.recordings.read` takes it.

    Sessions get new ids, and cluster time begins at the member's own. Timers fire at the deadlines that the service
    sets now. Messages of the service with ``service_id`` are those that it sends now; those of other services are
    logged as they were.
    """

    path: str
    most_messages: int = 100_000
    service_id: int = 0

    def __call__(self, member: MemoryMember) -> None:
        """Do it all to a member, up to ``most_messages``; sessions that were open at the end stay open."""
        sessions: dict[int, MemorySession] = {}
        before = None
        for _, row in self._rows():
            now = row["timestamp"]
            member.advance(0 if before is None else max(now - before, 0))
            before = now
            session_id = row["cluster_session_id"]
            if "payload" not in row:
                self._change(member, sessions, row)
            elif row["service_id"] is not None:
                if row["service_id"] != self.service_id:
                    member.inject_service_message(row["payload"], service_id=row["service_id"])
            else:
                if session_id not in sessions:  # opened before the recording begins
                    sessions[session_id] = member.open_session()
                if sessions[session_id].is_open:  # else the service of today has closed it
                    sessions[session_id].send(row["payload"])

    def _change(self, member: MemoryMember, sessions: dict[int, MemorySession], row: dict[str, Any]) -> None:
        session_id = row["cluster_session_id"]
        if row["event"] == "OPEN":
            sessions[session_id] = member.open_session(row["encoded_principal"] or b"")
        elif (session := sessions.get(session_id)) is not None and session.is_open:
            session.close(CloseReason.__members__.get(row["close_reason"], CloseReason.CLIENT_ACTION))

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        views = (self._rows_of(view) for view in ("sessions", "session_messages"))
        for number, row in enumerate(heapq.merge(*views, key=itemgetter(0))):
            if number == self.most_messages:
                return
            yield row

    def _rows_of(self, view: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for batch in read(self.path, view):
            for row in batch.to_pylist():
                yield row["log_position"], row
