"""A service that always has timers pending and messages to the cluster under way, and notes what is lost or doubled.

Chains begin with a client's ``begin``: each event of one asks for its next, a message to the cluster or a timer, until
a client says ``finish``. A client that asks for ``state`` is answered with what there is of it; each service prints it
as well. Its place in a cluster comes from the environment.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import container
from container.api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SnapshotImage,
    SnapshotPublication,
)

LINK = struct.Struct("<qq")
TIMER_INTERVAL_MS = 20
CHAINS_OF_A_SERVICE = 1_000
LINKS_OF_A_TIMER = 1_000_000


class RestlessService(ClusteredService):
    """Its chains have numbers: those of service 1 are from 1,000 on."""

    def __init__(self) -> None:
        self.digest = ""
        self.questions = 0
        """How often a client asked for the state."""
        self.asked: dict[str, int] = {}
        """How many links of each chain were asked for."""
        self.came: dict[str, int] = {}
        """How many links of each chain came, of those of other services as well."""
        self.faults: list[str] = []
        self.is_finished = False
        self.cluster: Cluster
        self.first_chain = 0

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        """Load all of it."""
        self.cluster = cluster
        self.first_chain = cluster.context.settings.service_id * CHAINS_OF_A_SERVICE
        for message in snapshot_image or ():
            vars(self).update(json.loads(bytes(message)))

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Write all of it."""
        snapshot_publication.send(json.dumps(self._state()).encode())

    def _state(self) -> dict[str, Any]:
        names = ("digest", "questions", "asked", "came", "faults", "is_finished")
        return {name: getattr(self, name) for name in names}

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Note it."""
        self._note("open", session.id, timestamp)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Note it."""
        self._note("close", session.id, timestamp, close_reason.name)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Carry out a command, or go on with a chain of messages to the cluster."""
        if session is None:
            chain, number = LINK.unpack(buffer)
            self._on_link("message", chain, number, timestamp)
            return
        command = json.loads(bytes(buffer))
        if command["do"] == "begin":
            for chain in range(command["first"], command["first"] + command["count"]):
                self._ask("message", self.first_chain + chain)
                self._ask("timer", self.first_chain + chain)
        elif command["do"] == "finish":
            self.is_finished = True
        else:
            self.questions += 1
            print(json.dumps(self._state()), flush=True)
            session.send(json.dumps({"result": self._state()}).encode())

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Go on with a chain of timers."""
        chain, number = divmod(correlation_id, LINKS_OF_A_TIMER)
        self._on_link("timer", chain, number, timestamp)

    def _on_link(self, kind: str, chain: int, number: int, timestamp: int) -> None:
        name = f"{kind} {chain}"
        self._note(kind, chain, number, timestamp)
        if number != self.came.get(name, 0) + 1:
            self.faults.append(f"{name}: {number} came after {self.came.get(name, 0)}")
        self.came[name] = number
        is_mine = self.first_chain <= chain < self.first_chain + CHAINS_OF_A_SERVICE
        if is_mine and not self.is_finished:
            self._ask(kind, chain)

    def _ask(self, kind: str, chain: int) -> None:
        name = f"{kind} {chain}"
        number = self.asked[name] = self.asked.get(name, 0) + 1
        if kind == "message":
            self.cluster.send(LINK.pack(chain, number))
            return
        while not self.cluster.schedule_timer(chain * LINKS_OF_A_TIMER + number, self.cluster.time + TIMER_INTERVAL_MS):
            self.cluster.idle()

    def _note(self, *event: object) -> None:
        self.digest = hashlib.sha256(f"{self.digest} {event}".encode()).hexdigest()


if __name__ == "__main__":
    container.run(RestlessService())
