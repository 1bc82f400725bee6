"""A ledger that applies each transfer exactly once, however often it is sent: the service of ``ledger_client.py``.

A client numbers its transfers 1, 2, 3, … under an id of its own, which outlives its sessions. The service applies the
next number and nothing else: a lower one is a repetition, whose answer it still knows, and a higher one came ahead of
one that was lost, so that the client will send both again. Run it beside a consensus module::

    aeron-cluster run examples.ledger_service:LedgerService
"""

from __future__ import annotations

import struct

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
from container.snapshots import read_snapshot, write_snapshot

TRANSFER = struct.Struct("<qqqq")
"""Client id, number, account, amount."""
ANSWER = struct.Struct("<qqq")
"""Client id, number, the account's balance right after the transfer."""

WINDOW = 1024
"""How many transfers a client may have under way: so many answers are kept for repetitions."""


class ClientState(msgspec.Struct):
    """What is known of one client."""

    applied: int = 0
    """Number of the transfer that was applied last."""
    balances: list[int] = []
    """The answers to the last ``WINDOW`` transfers, the newest at ``(applied - 1) % WINDOW``."""


class Books(msgspec.Struct):
    """The whole state; everything that a snapshot must hold."""

    accounts: dict[int, int] = {}
    clients: dict[int, ClientState] = {}

    def transfer(self, client_id: int, number: int, account: int, amount: int) -> int | None:
        """Applies a transfer, or finds what it was answered; None when one before it is missing, or it is too old."""
        client = self.clients.setdefault(client_id, ClientState())
        if number == client.applied + 1:
            balance = self.accounts.get(account, 0) + amount
            self.accounts[account] = balance
            client.applied = number
            if len(client.balances) < WINDOW:
                client.balances.append(balance)
            else:
                client.balances[(number - 1) % WINDOW] = balance
            return balance
        if max(0, client.applied - WINDOW) < number <= client.applied:
            return client.balances[(number - 1) % WINDOW]
        return None


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
        """Applies one transfer and answers it, if it is not ahead of its turn."""
        if session is None or len(buffer) != TRANSFER.size:
            return
        client_id, number, account, amount = TRANSFER.unpack(buffer)
        balance = self.books.transfer(client_id, number, account, amount)
        if balance is not None:
            session.send(ANSWER.pack(client_id, number, balance))


if __name__ == "__main__":
    container.run(LedgerService())
