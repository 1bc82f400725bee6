"""What must be so of a whole cluster whose services are those of node_world.py, beside what must be of each cluster.

Their states, timers and answers are functions of the log that is committed.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from container.testing.simulation.nodes import history
from container.testing.simulation.nodes.history import Member, Snapshot
from container.testing.simulation.nodes.recorded import Violation
from tests.sim.node_oracle import Log, State

_STATE_HEADER = struct.Struct("<8sHHIQIIQ")
"""A state's header: magic, format, length of its name, version, length of the state, two checksums, chunk."""


class History(history.History):
    """All that was committed and answered, whoever said so.

    Args:
        members: how many are needed for a quorum is more than half of these.
        services: of each member.
    """

    log: Log

    def __init__(self, members: int, services: int) -> None:
        super().__init__(members, Log(services=services))
        self.sent: set[int] = set()
        self.answers: dict[int, int] = {}
        """The place of messages among the applied, as clients were told."""
        self._least: dict[int, int] = {}
        """What the place of a message must be at least: behind all that were answered before it was sent."""
        self._last_answer = -1
        self._states: dict[int, int] = {}
        """Digests of states that services had, and that the log has not come to yet."""

    def commit(self, member: Member, position: int, members: Sequence[Member]) -> None:
        """The same, and states that services had are those of the log."""
        super().commit(member, position, members)
        digests = self.log.digests
        for events in [each for each in self._states if each < len(digests)]:
            if self._states.pop(events) != digests[events]:
                raise Violation("state", f"after {events} events a service has another state than the log")

    def check_state(self, who: str, events: int, digest: int) -> None:
        """A service has a state: all services have that after as many events, in all lives."""
        digests = self.log.digests
        known = digests[events] if events < len(digests) else self._states.setdefault(events, digest)
        if known != digest:
            raise Violation("state", f"{who} has another state after {events} events")

    @property
    def has_states(self) -> bool:
        """Whether services had states that the log has not come to yet."""
        return bool(self._states)

    def check_applied(self) -> None:
        """After a turn no service is ahead of what is committed."""
        if self._states:
            raise Violation(
                "ahead", f"services have applied {max(self._states)} events, {len(self.log.digests) - 1} are committed"
            )

    def _check_content_of(self, found: Snapshot, who: str, service_id: int) -> None:
        position = found.position
        events, digest, timers = self.log.at_snapshot[position]
        if service_id >= 0:
            state = state_in(found.state)
            if state is None:
                raise Violation("snapshots", f"{who} has no whole snapshot of service {service_id} at {position}")
            if (state.events, state.digest) != (events, digest):
                raise Violation(
                    "snapshots", f"{who} has the state of {state.events} events at {position}, not of {events}"
                )
        elif found.timers != timers:
            raise Violation("snapshots", f"{who} has timers {found.timers} at {position}, not {timers}")

    def on_sent(self, number: int) -> None:
        """A client begins to send a message."""
        self.sent.add(number)
        self._least[number] = self._last_answer + 1

    def on_answer(self, number: int, index: int) -> None:
        """A client is told which place its message has: it is committed there, behind all that were answered before."""
        if self.answers.setdefault(number, index) != index:
            raise Violation("answer", f"message {number} is applied at {self.answers[number]}, and at {index}")
        if self.log.index.get(number) != index:
            raise Violation("answer", f"message {number} is at {self.log.index.get(number)} of the log, not {index}")
        if index < self._least[number]:
            raise Violation("linearizable", f"message {number} is at {index}: {self._least[number]} were answered")
        self._last_answer = max(self._last_answer, index)

    def check_sent(self) -> None:
        """Nothing is in the log that nobody sent."""
        if not self.log.index.keys() <= self.sent:
            raise Violation("log", f"nobody sent {sorted(self.log.index.keys() - self.sent)}")


def state_in(messages: Sequence[bytes]) -> State | None:
    """The state in a service's part of a snapshot, None if it is not whole."""
    if not messages:
        return None
    length = _STATE_HEADER.unpack_from(messages[0])[4]
    content = b"".join(messages[1:])
    return msgspec.msgpack.decode(content, type=State) if len(content) == length else None


def check_resources(who: str, found: Counter[Any], expected: Counter[Any]) -> None:
    """At rest a member holds what one holds that had no faults, in the same role."""
    more, fewer = found - expected, expected - found
    if more or fewer:
        raise Violation("resources", f"{who} has {sorted(more.items())} more, and {sorted(fewer.items())} fewer")
