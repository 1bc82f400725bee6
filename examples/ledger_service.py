"""A ledger that applies each transfer exactly once, however often it is sent: the service of ``ledger_client.py``.

A client numbers its transfers 1, 2, 3, … under an id of its own, which outlives its sessions. The service applies the
next number and nothing else: a lower one is a repetition, whose answer it still knows, and a higher one came ahead of
one that was lost, so that the client will send both again. Run it beside a consensus module::

    aeron-cluster run examples.ledger_service:LedgerService

****Treat clients' messages as hostile until you have checked them.** An exception that leaves a callback ends the
member, and the log holds the same message for every other member. So a balance that would not fit 64 bits is refused
before it is stored, and clients and accounts have limits, by session and in total. A transfer that is refused for its
content has used its number, so that the ones behind it still apply.
"""

from __future__ import annotations

import enum
import struct

import msgspec

import container
from container import read_snapshot, write_snapshot
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

TRANSFER = struct.Struct("<qqqq")
"""Client id, number, account, amount."""
ANSWER = struct.Struct("<qqqq")
"""Client id, number, the account's balance right after the transfer, and a :class:`Status`."""

WINDOW = 1024
"""How many transfers a client may have under way: so many answers are kept for repetitions."""
MAX_CLIENTS = 500
MAX_CLIENTS_BY_SESSION = 10
MAX_ACCOUNTS = 100_000
MAX_ACCOUNTS_BY_SESSION = 1_000
MAX_BALANCE = 2**63 - 1


class Status(enum.IntEnum):
    """The outcome of a transfer."""

    APPLIED = 0
    OUT_OF_TURN = 1
    """One before it is missing, or it is too old."""
    MALFORMED = 2
    """The message is not a transfer; client id and number of the answer are 0."""
    TOO_MANY_CLIENTS = 3
    """The first transfer of a client for whom there is no room."""
    TOO_MANY_ACCOUNTS = 4
    OUT_OF_RANGE = 5
    """The balance would be above ``MAX_BALANCE`` or below ``-MAX_BALANCE``."""


class Answer(msgspec.Struct, array_like=True):
    """The answer to a transfer."""

    status: Status
    balance: int


class ClientState(msgspec.Struct):
    """The state of one client."""

    applied: int = 0
    """Number of the transfer that was applied, or refused for its content, last."""
    answers: list[Answer] = []
    """The answers to the last ``WINDOW`` transfers, the newest at ``(applied - 1) % WINDOW``."""


class SessionState(msgspec.Struct):
    """State that an open session has made the ledger keep."""

    clients: int = 0
    accounts: int = 0


class Books(msgspec.Struct):
    """The whole state; everything that a snapshot must hold."""

    accounts: dict[int, int] = {}
    clients: dict[int, ClientState] = {}
    sessions: dict[int, SessionState] = {}
    """The open sessions that have added a client or an account."""

    def transfer(self, session_id: int, client_id: int, number: int, account: int, amount: int) -> Answer:
        """Applies a transfer, or finds what it was answered."""
        client = self.clients.get(client_id)
        if client is None:
            if number != 1:
                return Answer(Status.OUT_OF_TURN, 0)
            session = self.sessions.get(session_id, SessionState())
            if len(self.clients) >= MAX_CLIENTS or session.clients >= MAX_CLIENTS_BY_SESSION:
                return Answer(Status.TOO_MANY_CLIENTS, 0)
            session.clients += 1
            self.sessions[session_id] = session
            client = self.clients[client_id] = ClientState()
        if number == client.applied + 1:
            answer = self._apply(session_id, account, amount)
            client.applied = number
            if len(client.answers) < WINDOW:
                client.answers.append(answer)
            else:
                client.answers[(number - 1) % WINDOW] = answer
            return answer
        if max(0, client.applied - WINDOW) < number <= client.applied:
            return client.answers[(number - 1) % WINDOW]
        return Answer(Status.OUT_OF_TURN, 0)

    def _apply(self, session_id: int, account: int, amount: int) -> Answer:
        before = self.accounts.get(account, 0)
        balance = before + amount
        if not -MAX_BALANCE <= balance <= MAX_BALANCE:
            return Answer(Status.OUT_OF_RANGE, before)
        if account not in self.accounts:
            session = self.sessions.get(session_id, SessionState())
            if len(self.accounts) >= MAX_ACCOUNTS or session.accounts >= MAX_ACCOUNTS_BY_SESSION:
                return Answer(Status.TOO_MANY_ACCOUNTS, 0)
            session.accounts += 1
            self.sessions[session_id] = session
        self.accounts[account] = balance
        return Answer(Status.APPLIED, balance)

    def forget_session(self, session_id: int) -> None:
        """The session is closed. Its clients and accounts outlive it, and count in the total alone."""
        self.sessions.pop(session_id, None)


class LedgerService(ClusteredService):
    """The books on every member of the cluster."""

    def __init__(self) -> None:
        self.books = Books()

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        """Takes up the state of the newest snapshot."""
        if snapshot_image is not None:
            self.books = read_snapshot(snapshot_image, Books)

    def on_take_snapshot(self, snapshot_publication: SnapshotPublication) -> None:
        """Writes the state."""
        write_snapshot(snapshot_publication, self.books)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        """Applies one transfer and answers it, whatever it is."""
        if session is None:
            return
        if len(buffer) != TRANSFER.size:
            session.send(ANSWER.pack(0, 0, 0, Status.MALFORMED))
            return
        client_id, number, account, amount = TRANSFER.unpack(buffer)
        answer = self.books.transfer(session.id, client_id, number, account, amount)
        session.send(ANSWER.pack(client_id, number, answer.balance, answer.status))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Forgets what is kept for the session."""
        self.books.forget_session(session.id)


if __name__ == "__main__":
    container.run(LedgerService())
