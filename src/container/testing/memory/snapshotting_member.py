"""A member that takes snapshots all along its log, and compares states that come again in a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.common.values import shown
from container.service.state_difference import state_difference
from container.testing.memory.check_findings import DivergenceError, Life
from container.testing.memory.memory_member import (
    MemoryMember,
    MemorySession,
    MemorySnapshot,
    Service,
    ServiceFactory,
    state_in,
)
from container.testing.memory.scripted_consensus_module import ServiceAck

_NULL_VALUE = -1
_FIELDS_LENGTH = 200
# Events that a report shows.
_MOST_EVENTS = 20


class SnapshottingMember(MemoryMember):
    """Takes a snapshot after every so many messages of the log, and compares states that come again in a replay."""

    def __init__(
        self,
        service: Service | ServiceFactory,
        every: int,
        after_event: Callable[[], object] | None = None,
        **options: Any,
    ) -> None:
        self._every = every
        self._after_event = after_event
        self._since = 0
        self._begin = "the whole log"
        self.snapshots: list[MemorySnapshot] = []
        self.states: dict[int, tuple[bytes, ...]] = {}
        self.compared = 0
        super().__init__(service, **options)

    def restart(
        self, snapshot: MemorySnapshot | None = None, *, service: Service | ServiceFactory | None = None
    ) -> None:
        self._begin = "the whole log" if snapshot is None else f"the log from the snapshot at {snapshot.log_position}"
        super().restart(snapshot, service=service)

    def take_snapshot(self) -> MemorySnapshot:
        self._since = 0
        self.snapshots.append(snapshot := super().take_snapshot())
        return snapshot

    def _log(self, log: Callable[[Any], object]) -> None:
        super()._log(log)
        if self._after_event is not None:
            self._after_event()
        self._since += 1
        if self._since > self._every:
            self.take_snapshot()

    def _take(self, message: object) -> None:
        super()._take(message)
        # The first ack of a start is for the start; later ones without a recording are for the end of a log.
        if isinstance(message, ServiceAck) and message.ack_id > 0 and message.relevant_id != _NULL_VALUE:
            self._compare(message.log_position, state_in(self._scripted.store.messages(message.relevant_id)))

    def _compare(self, position: int, state: tuple[bytes, ...]) -> None:
        if position not in self.states:
            self.states[position] = state
            return
        self.compared += 1
        if state != self.states[position]:
            raise DivergenceError(
                f"replaying {self._begin}, the state at log position {position} is not that of another run.\n"
                f"{_events_before(self, position, min(self._every, _MOST_EVENTS))}\n"
                f"{state_difference(self.states[position], state)}",
                position,
            )


def states_of(
    service: ServiceFactory, life: Life, after_event: Callable[[], object] | None = None
) -> dict[int, tuple[bytes, ...]]:
    """The state after each event, by log position; ``after_event`` is called after each message of the log."""
    with SnapshottingMember(service, 1, after_event) as member:
        life(member)
        member.take_snapshot()
        return member.states


class _AnswersMember(SnapshottingMember):
    """Also keeps what clients receive."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.answers: list[tuple[int, int, bytes]] = []
        super().__init__(*args, **options)

    def _receive(self, session: MemorySession, payload: bytes) -> None:
        super()._receive(session, payload)
        self.answers.append((self.log_position, session.id, payload))


def behaviour_of(
    service: ServiceFactory, life: Life, after_event: Callable[[], object] | None = None
) -> dict[int, tuple[bytes, ...]]:
    """The state after each event with what was logged and answered, by log position; timers at the last one."""
    with _AnswersMember(service, 1, after_event) as member:
        life(member)
        member.take_snapshot()
        found = dict(member.states)
        for entry in member.log:
            found[entry.position] = (*found.get(entry.position, ()), entry.message)
        for position, session_id, payload in member.answers:
            found[position] = (*found.get(position, ()), b"%d" % session_id, payload)
        found[member.log_position] = (*found.get(member.log_position, ()), repr(member.timers).encode())
        return found


def _events_before(member: MemoryMember, position: int, count: int) -> str:
    entries = [entry for entry in member.log if entry.position <= position][-count - 1 :]
    lines = []
    for entry in entries:
        name, fields = entry.decode()
        payload = f" {shown(fields.pop('payload'))}" if "payload" in fields else ""
        lines.append(f"  {entry.position}: {name}{payload} {shown(fields, _FIELDS_LENGTH)}")
    return "The last events before it:\n" + "\n".join(lines)
