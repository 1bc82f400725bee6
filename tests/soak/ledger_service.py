"""The sequenced ledger as a clustered service, with a journal of all that it applied; Java's twin does the same.

Its place in a cluster comes from the environment. It journals to ``journal/<start>.bin`` beside the cluster directory,
and writes what its process holds, when it is asked, to ``holdings/<pid>.jsonl``. A file there changes what comes next,
once: with ``fail-on-start`` or ``fail-on-snapshot`` a start or a snapshot fails, with ``slow-on-start`` or
``slow-on-snapshot`` it takes its time, with ``terminate`` a TERMINATE ends the service. Where a member has several
services (``TEST_SERVICE_COUNT``), those after the first are its replicas: see ``services.py``. They answer nobody, and
the names of their journals and switches end with ``-<service id>``.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import container
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
)
from container.errors import ClusterTermination, ForkedError
from tests.resources import append_holdings
from tests.soak.ledger import (
    ACCOUNTS_OF_RELAYS,
    ANSWER,
    COMMAND,
    JOURNAL_RECORD,
    RELAY,
    SLOW_CALLBACK_MS,
    Anomaly,
    Armed,
    Kind,
    Ledger,
    Op,
    Status,
    Times,
    of_service,
    service_id_of,
    suffix,
)

# How a forked child ends, after all that it tried was refused: by the key of the command, modulo their number.
_CHILD_CODES = (5, 6, 1)
_CHILD_NOT_REFUSED = 9


class ArmedError(Exception):
    """The exception that a command asked for."""


class Journal:
    """Appends records to a file; what was written survives the death of the process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / f"{time.time_ns()}.bin", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: int, position: int, first: int, second: int, value: int) -> None:
        os.write(self._file, JOURNAL_RECORD.pack(kind, position, first, second, value))


class SequencedLedgerService(ClusteredService):
    """Carries out the commands of clients, each once."""

    def __init__(self, member_dir: Path, service_id: int = 0, service_count: int = 1) -> None:
        self._member_dir = member_dir
        self._service_id = service_id
        self._service_count = service_count
        self._journal = Journal(member_dir / f"journal{suffix(service_id)}")
        self._armed: set[int] = set()
        self._failing: set[int] = set()
        self._failures = 0
        self.ledger = Ledger()
        self.cluster: Cluster

    # Life

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster
        self._raise_if_switched("start")
        self._wait_if_switched("start")
        if snapshot_image is not None:
            self.ledger = Ledger.from_frames(list(snapshot_image))
        self._note(Kind.START, 0, 0)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        self._check_sessions()
        self._wait_if_switched("snapshot")
        for frame in self.ledger.frames():
            snapshot_publication.send(frame)
        self._journal.write(Kind.SNAPSHOT, self.cluster.log_position, 0, 0, self.ledger.digest())
        self._raise_if_armed(Armed.SNAPSHOT)
        self._raise_if_switched("snapshot")

    def on_role_change(self, new_role: Role) -> None:
        self._note(Kind.ROLE, new_role, 0)
        self._raise_if_armed(Armed.ROLE_CHANGE)

    def on_new_leadership_term_event(self, *_: object) -> None:
        self._raise_if_armed(Armed.NEW_TERM)

    def on_terminate(self, cluster: Cluster) -> None:
        self._raise_if_armed(Armed.TERMINATE)

    def do_background_work(self, now_ns: int) -> int:
        self._raise_if_armed(Armed.BACKGROUND_WORK)
        return 0

    # The log

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.ledger.sessions[session.id] = 0
        self._event(Kind.SESSION_OPEN, timestamp, session.id, 0)
        self._raise_if_armed(Armed.SESSION_OPEN)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.ledger.sessions.pop(session.id, None)
        self._event(Kind.SESSION_CLOSE, timestamp, session.id, close_reason)
        self._raise_if_armed(Armed.SESSION_CLOSE)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        if not self.ledger.timer_fired(correlation_id):
            self._anomaly(Anomaly.TIMER_NOT_SCHEDULED, correlation_id)
        self._event(Kind.TIMER, timestamp, correlation_id, 0)
        self._raise_if_armed(Armed.TIMER)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        if session is None:
            self._on_relayed(timestamp, buffer)
        elif len(buffer) < COMMAND.size:
            self._answer(session, Status.INVALID, 0)
        else:
            self._on_command(session, timestamp, buffer)

    def _on_relayed(self, timestamp: int, buffer: MessageBuffer) -> None:
        client_id, sequence, key, value = RELAY.unpack(buffer)
        if not self.ledger.relay_back(key):
            self._anomaly(Anomaly.RELAY_NOT_SENT, key)
        if self._service_id and service_id_of(key) == self._service_id - 1:
            self._relay(client_id, sequence, key, value)
        self.ledger.add(key % ACCOUNTS_OF_RELAYS, value)
        self._event(Kind.RELAYED, timestamp, client_id, sequence)

    def _on_command(self, session: ClientSession, timestamp: int, buffer: MessageBuffer) -> None:
        number, client_id, sequence, key, value = COMMAND.unpack_from(buffer)
        if number == Op.READ:
            self._read(session, client_id)
            return
        last = self.ledger.clients.get(client_id, 0)
        if sequence != last + 1:
            self._answer(session, Status.DUPLICATE if sequence <= last else Status.GAP, client_id)
            return
        self.ledger.clients[client_id] = sequence
        self.ledger.totals.messages += 1
        self._carry_out(number, timestamp, client_id, sequence, key, value)
        if number == Op.FORK:
            self._fork(session, key)
        self._event(Kind.MESSAGE, timestamp, client_id, sequence, crc32(buffer))
        if number == Op.RAISE:
            raise ArmedError("on_session_message")
        if number == Op.TERMINATE and self._is_switched(f"terminate{suffix(self._service_id)}"):
            raise ClusterTermination(is_expected=False)
        if number == Op.GET:
            self._offer(session, Status.VALUE, client_id, sequence, self.ledger.accounts.get(key, 0) % 2**64)
        self._answer(session, Status.OK, client_id)

    def _carry_out(self, number: int, timestamp: int, client_id: int, sequence: int, key: int, value: int) -> None:
        if number == Op.ADD:
            self.ledger.add(key, value)
        elif number == Op.TIMER:
            self.ledger.timers[key] = timestamp + value
            while self._service_id == 0 and not self.cluster.schedule_timer(key, timestamp + value):
                self.cluster.idle()
        elif number == Op.RELAY:
            for service_id in range(self._service_count):
                self.ledger.relays[of_service(key, service_id)] = sequence
            if self._service_id == 0:
                self._relay(client_id, sequence, key, value)
        elif number == Op.ARM:
            self._arm(key, value)
        elif number == Op.COUNT:
            append_holdings(self._member_dir, key, self.cluster)
        elif number == Op.SESSIONS:
            self.ledger.told(session.id for session in self.cluster.client_sessions)
        elif number in (Op.BLOCK, Op.IDLE) and key in (-1, self._place):
            self._wait(number, value)
        elif number == Op.HOLD:
            hold = self._member_dir / f"hold{suffix(self._service_id)}"
            while hold.exists():
                self.cluster.idle()

    def _relay(self, client_id: int, sequence: int, key: int, value: int) -> None:
        own = [of_service(number, self._service_id) for number in (sequence, key)]
        self.cluster.send(RELAY.pack(client_id, *own, value))

    @property
    def _place(self) -> int:
        return self.cluster.member_id + 100 * self._service_id

    def _wait(self, number: int, milliseconds: int) -> None:
        if number == Op.BLOCK and milliseconds < 0:
            ctypes.PyDLL(None).usleep(-1000 * milliseconds)  # a long call of C that keeps the GIL
            return
        if number == Op.BLOCK:
            threading.Event().wait(milliseconds / 1000)  # a service that does not care for its container
            return
        deadline = time.monotonic() + milliseconds / 1000
        while time.monotonic() < deadline:
            self.cluster.idle()

    def _fork(self, session: ClientSession, key: int) -> None:
        way = key % len(_CHILD_CODES)
        child = os.fork()
        if child == 0:
            self._end_as_child(session, way)
        _pid, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != _CHILD_CODES[way]:
            self._anomaly(Anomaly.FORK_NOT_REFUSED, code)

    def _end_as_child(self, session: ClientSession, way: int) -> None:
        attempts: tuple[Callable[[], object], ...] = (
            lambda: self.cluster.send(b"of a child"),
            lambda: session.send(b"of a child"),
            lambda: self.cluster.schedule_timer(1, 1),
        )
        for attempt in attempts:
            try:
                attempt()
            except ForkedError:
                continue
            os._exit(_CHILD_NOT_REFUSED)
        if way == 0:
            os._exit(_CHILD_CODES[0])
        if way == 1:
            sys.exit(_CHILD_CODES[1])
        raise ArmedError("forked")

    def _read(self, session: ClientSession, client_id: int) -> None:
        self._check_sessions()
        digest = self.ledger.digest()
        self._journal.write(Kind.READ, self.cluster.log_position, client_id, 0, digest)
        self._offer(session, Status.STATE, client_id, len(self.ledger.timers) + len(self.ledger.relays), digest)

    def _answer(self, session: ClientSession, status: Status, client_id: int) -> None:
        self._offer(session, status, client_id, self.ledger.clients.get(client_id, 0), self.ledger.chain)

    def _offer(self, session: ClientSession, status: Status, client_id: int, number: int, value: int) -> None:
        if self._service_id:
            return
        answer = ANSWER.pack(status, client_id, number, self.cluster.log_position, value)
        session.send(answer)  # A client that does not get its answer sends its command again.

    # Journal

    def _event(self, kind: Kind, timestamp: int, first: int, second: int, payload: int = 0) -> None:
        self.ledger.happened(kind, self.cluster.log_position, timestamp, first, second, payload)
        self._note(kind, first, second)

    def _note(self, kind: Kind, first: int, second: int) -> None:
        self._journal.write(kind, self.cluster.log_position, first, second, self.ledger.chain)

    def _anomaly(self, what: Anomaly, detail: int) -> None:
        self._journal.write(Kind.ANOMALY, self.cluster.log_position, what, detail, self.ledger.chain)

    def _check_sessions(self) -> None:
        if sorted(session.id for session in self.cluster.client_sessions) != sorted(self.ledger.sessions):
            self._anomaly(Anomaly.SESSIONS_DIFFER, len(self.ledger.sessions))

    def _is_switched(self, name: str) -> bool:
        """Whether there is a file of that name beside the cluster directory, which is removed."""
        switch = self._member_dir / name
        is_there = switch.exists()
        switch.unlink(missing_ok=True)
        return is_there

    def _arm(self, callback: int, times: int) -> None:
        self._armed.discard(callback)
        self._failing.discard(callback)
        if times >= Times.ONCE:
            (self._failing if times >= Times.ALWAYS else self._armed).add(callback)

    def _raise_if_armed(self, callback: Armed) -> None:
        if callback in self._failing:
            self._failures += 1
            raise ArmedError(f"{callback.name} {self._failures}")
        if callback in self._armed:
            self._armed.discard(callback)
            raise ArmedError(callback.name)

    def _raise_if_switched(self, name: str) -> None:
        if self._is_switched(f"fail-on-{name}{suffix(self._service_id)}"):
            raise ArmedError(f"on_{name}")

    def _wait_if_switched(self, name: str) -> None:
        if self._is_switched(f"slow-on-{name}{suffix(self._service_id)}"):
            self._wait(Op.BLOCK, SLOW_CALLBACK_MS)


def of_member() -> SequencedLedgerService:
    """The service of a node whose directories are below ``TEST_MEMBER_DIR``."""
    return SequencedLedgerService(Path(os.environ["TEST_MEMBER_DIR"]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    container.run(
        SequencedLedgerService(
            Path(os.environ["AERON_CLUSTER_DIR"]).parent,
            int(os.environ["AERON_CLUSTER_SERVICE_ID"]),
            int(os.environ.get("TEST_SERVICE_COUNT", "1")),
        ),
        callback_error_policy="skip",
    )
