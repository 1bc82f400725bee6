"""A service that notes each of its callbacks: what a test of everything around a service needs.

::

    with MemoryMember(RecordingService) as member:
        member.open_session().send(b"hello")
        assert member.service.messages == [b"hello"]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    Role,
    SnapshotImage,
    SnapshotPublication,
    TimeUnit,
)


class RecordingService(ClusteredService):
    """Notes each callback but background work, and does in it what a test asks for.

    ``actions`` has functions by the name of a callback; each is called with the callback's arguments.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        """The name of each callback and what it was called with, oldest first."""
        self.actions: dict[str, Callable[..., Any]] = {}
        self.cluster: Cluster
        self.snapshot: list[bytes] | None = None
        """The messages of the snapshot that it started from; None without one, or with an action of its own."""

    def __repr__(self) -> str:
        return f"<RecordingService calls={len(self.calls)}>"

    def names(self) -> list[str]:
        """Names of the callbacks so far."""
        return [call[0] for call in self.calls]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of all calls of one callback."""
        return [call[1:] for call in self.calls if call[0] == name]

    @property
    def messages(self) -> list[bytes]:
        """Payloads of all session messages."""
        return [payload for _id, _timestamp, payload, _position in self.of("on_session_message")]

    def _note(self, name: str, *noted: Any, args: tuple[Any, ...] = ()) -> Any:
        self.calls.append((name, *noted))
        action = self.actions.get(name)
        return action(*args) if action is not None else None

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None and "on_start" not in self.actions:
            self.snapshot = list(snapshot_image)
        self._note("on_start", snapshot_image is not None, args=(cluster, snapshot_image))

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._note("on_session_open", session.id, timestamp, args=(session, timestamp))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._note("on_session_close", session.id, timestamp, close_reason, args=(session, timestamp, close_reason))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        session_id = None if session is None else session.id
        self._note(
            "on_session_message",
            session_id,
            timestamp,
            bytes(buffer),
            header.position,
            args=(session, timestamp, buffer, header),
        )

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._note("on_timer_event", correlation_id, timestamp, args=(correlation_id, timestamp))

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        self._note("on_take_snapshot", args=(snapshot_publication,))

    def on_role_change(self, new_role: Role) -> None:
        self._note("on_role_change", new_role, args=(new_role,))

    def on_new_leadership_term_event(
        self,
        leadership_term_id: int,
        log_position: int,
        timestamp: int,
        term_base_log_position: int,
        leader_member_id: int,
        log_session_id: int,
        time_unit: TimeUnit,
        app_version: int,
    ) -> None:
        args = (
            leadership_term_id,
            log_position,
            timestamp,
            term_base_log_position,
            leader_member_id,
            log_session_id,
            time_unit,
            app_version,
        )
        self._note("on_new_leadership_term_event", *args, args=args)

    def on_terminate(self, cluster: Cluster) -> None:
        self._note("on_terminate", args=(cluster,))

    def do_background_work(self, now_ns: int) -> int:
        action = self.actions.get("do_background_work")
        return 0 if action is None else action(now_ns)
