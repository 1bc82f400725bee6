"""Members whose files a test writes in the true format: small histories in which all is known."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from container.codecs.messages import encode
from container.files.recording_log import read_recording_log
from container.recordings.remote import StorageOptions
from container.testing.processes.recordings import write_recording_log
from tests.recordings_world import CHANNEL, World, marker, new_term, session_message

BEGIN_MS = 1_700_000_000_000
"""The cluster time of the first message; a date in November 2023."""
TRANSFER = struct.Struct("<qq")
"""Number and its square: how each payload of :func:`write_history` begins."""
CLOSE_REASONS = ("CLIENT_ACTION", "SERVICE_ACTION", "TIMEOUT")


@dataclass
class WrittenMember:
    """A member's directories, and what was written: a dict for each message, in the order of the log."""

    base_dir: Path
    messages: list[dict[str, Any]] = field(default_factory=list)
    terms: list[tuple[int, int]] = field(default_factory=list)
    """Leadership term ids and where they begin."""
    url: str | None = None
    """Where it was copied to and is read; at its directory when it is None."""
    storage: StorageOptions | None = None
    called: str | None = None
    """Its key where that is not its archive's directory: in a shipped place it is the manifest's id, or the URL."""

    @property
    def key(self) -> str:
        """What the member is called in the offsets of streams."""
        if self.called is not None:
            return self.called
        return str(self.archive_dir) if self.url is None else f"{self.url}/archive"

    @property
    def path(self) -> str:
        """What the source is given."""
        return self.url or str(self.base_dir)

    @property
    def options(self) -> dict[str, str]:
        """The options of the source beside the path, as texts."""
        return {} if self.storage is None else {"storage_options": self.storage.text}

    @property
    def archive_dir(self) -> Path:
        return self.base_dir / "archive"

    @property
    def end_position(self) -> int:
        return int(self.messages[-1]["log_position"])

    def of_template(self, *template_ids: int) -> list[dict[str, Any]]:
        """The messages of some templates."""
        return [message for message in self.messages if message["template_id"] in template_ids]


class History:
    """Writes a log message by message; cluster time goes on by a millisecond for each."""

    def __init__(self, base_dir: Path, **layout: Any) -> None:
        self.world = World(base_dir, **layout)
        self.member = WrittenMember(base_dir)
        self.now_ms = BEGIN_MS

    @property
    def position(self) -> int:
        """Where the log ends."""
        return self.world.log.position

    def begin_term(self, leader_member_id: int = 0) -> None:
        """A new leader's first message."""
        term_id, base = len(self.world.bases), self.position
        self.world.bases.append(base)
        self.member.terms.append((term_id, base))
        self.now_ms += 1
        self._record(24, new_term(term_id, base, timestamp=self.now_ms, leader_member_id=leader_member_id))

    def open_session(self, session_id: int) -> None:
        self._append(
            21,
            "SessionOpenEvent",
            correlation_id=1000 + session_id,
            cluster_session_id=session_id,
            response_stream_id=102,
            response_channel=CHANNEL,
            encoded_principal=b"client %d" % session_id,
        )

    def close_session(self, session_id: int, reason: str = "CLIENT_ACTION") -> None:
        self._append(22, "SessionCloseEvent", cluster_session_id=session_id, close_reason=CLOSE_REASONS.index(reason))

    def message(self, session_id: int, payload: bytes) -> None:
        self.now_ms += 1
        message = session_message(session_id, payload, term=len(self.world.bases) - 1, timestamp=self.now_ms)
        self._record(1, message, cluster_session_id=session_id, payload=payload)

    def timer(self, correlation_id: int) -> None:
        self._append(20, "TimerEvent", correlation_id=correlation_id)

    def take_snapshot(
        self,
        sessions: Sequence[int] = (),
        timers: Sequence[tuple[int, int]] = (),
        data: bytes = b"",
        **pending: int,
    ) -> None:
        """A request in the log, and the snapshots of the consensus module and of service 0 that follow it.

        Args:
            sessions: ids of those that are open.
            timers: id and deadline of each.
            data: the service's own.
            pending: fields of the tracker of service 0's pending messages, which is left out without them.
        """
        length = 8 + 32 + 32
        self._append(
            23, "ClusterActionRequest", log_position=self.position + (length + 31) // 32 * 32, action=2, flags=0
        )
        common: dict[str, Any] = {"leadership_term_id": len(self.world.bases) - 1}
        opened = {m["cluster_session_id"]: m["log_position"] for m in self.member.of_template(21)}
        module = [
            encode(
                "cluster",
                "ClusterSession",
                cluster_session_id=session_id,
                correlation_id=1000 + session_id,
                opened_log_position=opened.get(session_id, 0),
                time_of_last_activity=-1,
                close_reason=None,
                response_stream_id=102,
                response_channel=CHANNEL,
            )
            for session_id in sessions
        ]
        module += [encode("cluster", "Timer", correlation_id=number, deadline=deadline) for number, deadline in timers]
        if pending:
            module.insert(0, encode("cluster", "ConsensusModule", next_session_id=1, **pending))
            module.append(encode("cluster", "PendingMessageTracker", service_id=0, **pending))
        for service_id, type_id, items in ((-1, 1, module), (0, 2, [])):
            begin, end = (marker(mark, type_id=type_id, position=self.position, **common) for mark in (0, 2))
            rest = [data] if service_id == 0 else []
            self.world.add_snapshot(service_id, [begin, *items, end, *rest], self.position, **common)

    def _append(self, template_id: int, name: str, **fields: Any) -> None:
        self.now_ms += 1
        term_id = len(self.world.bases) - 1
        message = encode("cluster", name, leadership_term_id=term_id, timestamp=self.now_ms, **fields)
        shown = ("cluster_session_id", "correlation_id")
        self._record(template_id, message, **{name: fields[name] for name in shown if name in fields})

    def _record(self, template_id: int, message: bytes, **fields: Any) -> None:
        self.member.messages.append(
            {
                "log_position": self.world.log.append(message),
                "leadership_term_id": len(self.world.bases) - 1,
                "template_id": template_id,
                "timestamp": self.now_ms,
                **fields,
            }
        )

    def finish(self, *, is_closed: bool = True) -> WrittenMember:
        """Write all that is still missing; the last term is closed, or as a crash leaves it."""
        self.world.close(stop=is_closed)
        if is_closed:
            entries = list(read_recording_log(self.world.cluster_dir))
            last = len(self.world.bases) - 1
            entries[last] = replace(entries[last], log_position=self.position)
            write_recording_log(self.world.cluster_dir, entries)
        return self.member


def write_history(base_dir: Path, message_count: int = 1500) -> WrittenMember:
    """Two terms, three sessions, messages of 16 to 5,016 bytes, a timer now and then, and two snapshots."""
    history = History(base_dir)
    history.begin_term(leader_member_id=0)
    for session_id in (1, 2, 3):
        history.open_session(session_id)
    for number in range(message_count):
        if number == message_count // 2:
            history.close_session(2, "TIMEOUT")
            history.begin_term(leader_member_id=1)
        if number in (message_count // 4, 3 * message_count // 4):
            is_first = number < message_count // 2
            due = number + 20 - (number - 10) % 20
            history.take_snapshot((1, 2, 3) if is_first else (1, 3), [(due, history.now_ms + 3)], b"state %d" % number)
        session_id = 1 if number % 3 == 1 and number >= message_count // 2 else 1 + number % 3
        filler = bytes([number % 251]) * (5000 if number % 50 == 0 else number % 97)
        history.message(session_id, TRANSFER.pack(number, number * number) + filler)
        if number % 20 == 10:
            history.timer(number)
    history.close_session(1)
    return history.finish()
