"""Services for tests of replay and diff; their state is a sum, and how often it grew."""

from __future__ import annotations

import random
import struct

from container import BufferClaim
from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SessionMessages,
    SnapshotImage,
    SnapshotPublication,
)

STATE = struct.Struct("<qq")
NUMBER = struct.Struct("<q")
FAILING, CLOSING, CLAIMING, OFFERING, TIMING, CANCELLING = -1, -2, -3, -4, -5, -6
"""Numbers that make the service do something else besides adding them up."""


class TallyService(ClusteredService):
    """Adds up the numbers of clients, answers each with the sum, and does what some numbers ask for."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            (state,) = snapshot_image
            self.count, self.sum = STATE.unpack(state)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(STATE.pack(self.count, self.sum))

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        assert header.position == self.cluster.log_position
        self.on_number(session, timestamp, bytes(buffer))

    def on_number(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
        """One message, whichever way it came."""
        (number,) = NUMBER.unpack_from(payload)
        self.count += 1
        self.sum += number
        if number == FAILING:
            raise ValueError(f"no number {number}")
        if number == OFFERING:
            self.cluster.offer(b"to ", b"ourselves")
            claim = BufferClaim()
            self.cluster.try_claim(7, claim)
            claim.buffer[:] = b"claimed"
            claim.commit()
        if number == TIMING:
            self.cluster.schedule_timer(self.count, timestamp + 100)
        if number == CANCELLING:
            self.cluster.cancel_timer(self.count)
        if session is not None:
            self.answer(session, number)

    def answer(self, session: ClientSession, number: int) -> None:
        """Sends a client the sum."""
        session.send(self.text())
        if number == CLAIMING:
            claim = BufferClaim()
            session.try_claim(7, claim)
            claim.buffer[:] = b"claimed"
            claim.commit()
        if number == CLOSING:
            session.close()

    def text(self) -> bytes:
        """An answer."""
        return b"%d after %d" % (self.sum, self.count)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        for session in self.cluster.client_sessions:
            session.send(b"timer %d at %d" % (correlation_id, timestamp))


class BatchTallyService(TallyService):
    """The same, with many messages at a time."""

    def on_session_messages(self, messages: SessionMessages) -> None:
        for index in messages:
            self.on_number(messages.session(index), messages.timestamps[index], messages.payload(index))


class ColumnTallyService(TallyService):
    """The same, without an iteration that tells the container where it is."""

    def on_session_messages(self, messages: SessionMessages) -> None:
        for index in range(len(messages)):
            self.on_number(messages.session(index), messages.timestamps[index], messages.payload(index))


class GenerousTallyService(TallyService):
    """Another version of the service, which answers differently from the tenth message on."""

    def text(self) -> bytes:
        return super().text() if self.count < 10 else b"%d!" % self.sum


class MoodyTallyService(TallyService):
    """Answers as the other does, or otherwise, twice or not at all, and nobody knows when."""

    def answer(self, session: ClientSession, number: int) -> None:
        mood = random.Random(self.count).randrange(8)
        if mood != 0:
            super().answer(session, number)
        if mood in (1, 2):
            session.send(b"what else?")
        if mood == 2:
            self.sum += 1


class ForgetfulTallyService(TallyService):
    """A version that answers the same and counts every number twice, as only a snapshot shows."""

    def text(self) -> bytes:
        return b"%d after %d" % (self.sum, self.count)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(STATE.pack(2 * self.count, self.sum))


class UpgradedTallyService(TallyService):
    """A release whose state has another form; it loads the old one."""

    MARK = b"second form"

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot_image is not None:
            (state,) = snapshot_image
            self.count, self.sum = STATE.unpack(self.load(state))

    def load(self, state: bytes) -> bytes:
        """The numbers of a state in one of both forms."""
        return state.removeprefix(self.MARK)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(self.MARK, STATE.pack(self.count, self.sum))


class MiscountingTallyService(UpgradedTallyService):
    """One that counts otherwise, which no answer shows."""

    def on_number(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
        super().on_number(session, timestamp, payload)
        self.extra = getattr(self, "extra", 0) + 1

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        snapshot_publication.send(self.MARK, STATE.pack(self.count, self.sum + getattr(self, "extra", 0)))


class ForeignTallyService(UpgradedTallyService):
    """One that does not load the old form."""

    def load(self, state: bytes) -> bytes:
        """The numbers of a state in the new form."""
        if not state.startswith(self.MARK):
            raise ValueError("this snapshot is of the old release")
        return super().load(state)


class ForeignGenerousTallyService(ForeignTallyService):
    """One that also answers otherwise, from a message late in the log on."""

    def text(self) -> bytes:
        return super().text() if self.count < 200 else b"%d!" % self.sum


class BrokenTallyService(TallyService):
    """Cannot start from a snapshot."""

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        super().on_start(cluster, snapshot_image)
        if snapshot_image is not None:
            raise ValueError("this snapshot is of another version")


class RestlessTallyService(TallyService):
    """Closes itself at a number."""

    def on_number(self, session: ClientSession | None, timestamp: int, payload: bytes) -> None:
        super().on_number(session, timestamp, payload)
        if self.sum > 40:
            from container.errors import AgentTermination

            raise AgentTermination("enough")
