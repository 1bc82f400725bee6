"""A counter in two releases: the second loads the first one's snapshots, and changes what messages do at one place.

Run the first release with ``aeron-cluster run examples.upgraded_counter:CounterV1``, and replace it, member by member,
by ``examples.upgraded_counter:Counter``; docs/upgrading.md explains.

Messages are ``name+number``. The first release answers with the total of all names, the second with the total of the
name, as soon as the log has the message ``use rules 2``.
"""

from __future__ import annotations

import msgspec

import container
from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)

NAME = "Counter"
"""The name of the state in snapshots, whatever its classes are called."""
MOST_NAMES = 1_000
MOST_OF_A_MESSAGE = 1_000_000_000
MOST = 2**63 - 1
"""A total never grows beyond what a snapshot takes."""
ACTIVATION = b"use rules 2"


class StateV1(msgspec.Struct):
    """The state of the first release."""

    total: int = 0


class State(msgspec.Struct):
    """The state of the second release."""

    total: int = 0
    rules: int = 1
    totals: dict[str, int] = {}
    """By name, from the activation of rules 2 on."""


def from_1_to_2(old: StateV1) -> State:
    """Make the second release's state of the first one's."""
    return State(total=old.total)


def parse(buffer: MessageBuffer) -> tuple[str, int] | None:
    """The name and the number of a message; None for any other bytes."""
    name, plus, digits = bytes(buffer[:80]).partition(b"+")
    if not plus or not name.isalnum() or not digits.isdigit() or len(buffer) > 40:
        return None
    number = int(digits)
    return (name.decode(), number) if number <= MOST_OF_A_MESSAGE else None


def refusal(name: str) -> bytes:
    """The answer to a message that would exceed a limit: with its name, by which its sender finds it."""
    return b"%s=error" % name.encode()


class CounterV1(ClusteredService):
    """The first release."""

    def __init__(self) -> None:
        self.state = StateV1()

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        if snapshot_image is not None:
            self.state = container.read_snapshot(snapshot_image, StateV1, version=1, name=NAME)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, self.state, version=1, name=NAME)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        answer = b"error"
        message = parse(buffer)
        if message:
            name, number = message
            if self.state.total + number > MOST:
                answer = refusal(name)
            else:
                self.state.total += number
                answer = b"%s=%d" % (name.encode(), self.state.total)
        if session is not None:
            session.send(answer)


class Counter(ClusteredService):
    """The second release."""

    def __init__(self) -> None:
        self.state = State()

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        if snapshot_image is not None:
            self.state = container.read_snapshot(
                snapshot_image, State, version=2, name=NAME, upgrades={1: (StateV1, from_1_to_2)}
            )

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        container.write_snapshot(snapshot_publication, self.state, version=2, name=NAME)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        answer = b"error"
        if buffer == ACTIVATION:
            self.state.rules = 2
            answer = b"rules 2"
        elif message := parse(buffer):
            answer = self.add(*message)
        if session is not None:
            session.send(answer)

    def add(self, name: str, number: int) -> bytes:
        """Count, by the rules of the log's position, and return the answer."""
        state = self.state
        if state.total + number > MOST:
            return refusal(name)
        if state.rules == 1:  # exactly what the first release does, and nothing else is kept
            state.total += number
            return b"%s=%d" % (name.encode(), state.total)
        if name not in state.totals and len(state.totals) == MOST_NAMES:
            return refusal(name)
        state.total += number
        state.totals[name] = state.totals.get(name, 0) + number
        return b"%s=%d" % (name.encode(), state.totals[name])
