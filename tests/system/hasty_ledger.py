"""The example's ledger with a planted fault: of two transfers to account 7 in a row the second is booked twice."""

from __future__ import annotations

import container
from container.api import ClientSession, Header, MessageBuffer
from examples.ledger_service import TRANSFER, LedgerService

HASTY_ACCOUNT = 7


class HastyLedger(LedgerService):
    """Keeps in memory, and in no snapshot, which account was used last."""

    last_account = -1

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        super().on_session_message(session, timestamp, buffer, header)
        _, _, account, amount = TRANSFER.unpack(buffer)
        if account == self.last_account == HASTY_ACCOUNT:
            self.books.accounts[account] += amount
        self.last_account = account


if __name__ == "__main__":
    container.run(HastyLedger())
