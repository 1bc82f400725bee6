"""A member whose log was written for the services of :mod:`tests.replay_services`, with what these make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from container.codecs.messages import encode
from container.files.recording_log import read_recording_log
from container.replay.execution import replay
from container.testing.processes.recordings import write_recording_log
from tests.recordings_world import CHANNEL, World, marker, session_message
from tests.replay_services import NUMBER, OFFERING, STATE, TIMING

BEGIN_MS = 1_700_000_000_000
SERVICE_SESSION = -(2**63) + 1
TALLY = "tests.replay_services:TallyService"
GENEROUS = "tests.replay_services:GenerousTallyService"


class Tally:
    """Writes a member's log, and keeps the sum of its numbers; cluster time advances by a millisecond per message."""

    def __init__(self, base_dir: Path, **layout: Any) -> None:
        self.base_dir = base_dir
        self.world = World(base_dir, **layout)
        self.now_ms = BEGIN_MS
        self.count = 0
        self.sum = 0
        self.sessions: list[int] = []
        self.answers: list[tuple[int, int, int, bytes]] = []
        """Log position, cluster time, session and payload of what a client must have got."""
        self.snapshots: list[int] = []
        self.world.begin_term()

    @property
    def position(self) -> int:
        return self.world.log.position

    def open_session(self, session_id: int) -> int:
        self.sessions.append(session_id)
        return self._log(
            "SessionOpenEvent",
            correlation_id=1000 + session_id,
            cluster_session_id=session_id,
            response_stream_id=102,
            response_channel=CHANNEL,
            encoded_principal=b"somebody",
        )

    def number(self, number: int, session_id: int = 1, filler: bytes = b"") -> int:
        """A client's message, or one of a service with a negative session id; the log position after it."""
        self.now_ms += 1
        self.count += 1
        self.sum += number
        payload = NUMBER.pack(number) + filler
        position = self.world.log.append(session_message(session_id, payload, timestamp=self.now_ms))
        if session_id in self.sessions:
            self.answers.append((position, self.now_ms, session_id, b"%d after %d" % (self.sum, self.count)))
        return position

    def timer(self, correlation_id: int) -> int:
        position = self._log("TimerEvent", correlation_id=correlation_id)
        text = b"timer %d at %d" % (correlation_id, self.now_ms)
        self.answers += [(position, self.now_ms, session_id, text) for session_id in self.sessions]
        return position

    def close_session(self, session_id: int) -> int:
        self.sessions.remove(session_id)
        return self._log("SessionCloseEvent", cluster_session_id=session_id, close_reason=0)

    def take_snapshot(self, state: bytes | None = None) -> int:
        """A request in the log, and the service's recorded snapshot with its sessions; its log position."""
        length = 8 + 32 + 32
        position = self.position + (length + 31) // 32 * 32
        assert self._log("ClusterActionRequest", log_position=position, action=2, flags=0) == position
        sessions = [
            encode(
                "cluster",
                "ClientSession",
                cluster_session_id=session_id,
                response_stream_id=102,
                response_channel=CHANNEL,
                encoded_principal=b"somebody",
            )
            for session_id in self.sessions
        ]
        begin, end = (marker(mark, position=position) for mark in (0, 2))
        data = STATE.pack(self.count, self.sum) if state is None else state
        self.world.add_snapshot(0, [begin, *sessions, end, data], position, timestamp=self.now_ms)
        self.snapshots.append(position)
        return position

    def _log(self, name: str, **fields: Any) -> int:
        self.now_ms += 1
        message = encode("cluster", name, leadership_term_id=0, timestamp=self.now_ms, **fields)
        return self.world.log.append(message)

    def finish(self, *, is_closed: bool = True) -> Path:
        """Write all that is still missing; the term is closed, or as a crash leaves it. Returns the member's path."""
        self.world.close(stop=is_closed)
        if is_closed:
            entries = list(read_recording_log(self.world.cluster_dir))
            entries[0] = replace(entries[0], log_position=self.position)
            write_recording_log(self.world.cluster_dir, entries)
        return self.base_dir


def write_tally(base_dir: Path, message_count: int = 300) -> Tally:
    """Two sessions and a service's own messages, in several frames now and then, timers, and two snapshots."""
    tally = Tally(base_dir)
    tally.open_session(1)
    tally.open_session(2)
    for number in range(message_count):
        if number in (message_count // 3, 2 * message_count // 3):
            tally.take_snapshot()
        session_id = SERVICE_SESSION if number % 5 == 4 else 1 + number % 2
        tally.number(number, session_id, bytes(3000 if number % 20 == 0 else number % 50))
        if number % 30 == 10:
            tally.timer(number)
        if number % 50 == 20:
            tally.number(TIMING)
            tally.number(OFFERING, 2)
    tally.close_session(2)
    tally.number(7)
    tally.finish()
    return tally


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows as dicts without their nulls, after a check of every batch."""
    found: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        found += batch.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def replayed(path: Path, service: Any = TALLY, **options: Any) -> list[dict[str, Any]]:
    """The rows of a replay."""
    return rows(replay(path, service, **options))


def of_kind(found: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The rows of some kinds."""
    return [row for row in found if row["kind"] in kinds]


def egress(found: Sequence[dict[str, Any]]) -> list[tuple[int, int, int, bytes]]:
    """The answers to clients, in the form of :attr:`Tally.answers`."""
    names = ("log_position", "timestamp", "cluster_session_id", "payload")
    return [tuple(row[name] for name in names) for row in of_kind(found, "EGRESS")]
