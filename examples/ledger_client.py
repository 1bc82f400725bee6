"""An asyncio gateway to the ledger that loses no transfer and repeats none, whatever happens to leaders and sessions.

A message that the cluster accepted may be lost when the leader changes. So each transfer is a request with a number,
which :class:`container.client.AsyncReconnectingClient` sends again to a new leader and in a new session, and this
client when no reply came for a while: at least once. The service applies each number once, in its turn: exactly once.

Sends transfers and checks the balance that they must sum up to::

    python -m examples.ledger_client --ingress 0=localhost:9010 --transfers 100000
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import secrets
import sys
import time
from types import TracebackType
from typing import Any, Self

from container.client import AsyncReconnectingClient, ReconnectPolicy
from container.client.client_command import Progress
from container.errors import TimedOutError
from examples.ledger_service import ANSWER, TRANSFER, WINDOW, Status

RESEND_S = 5.0
PAUSE_S = 0.05
NO_REPLY = 0  # a key that no request has: the answer that it comes with is dropped


class TransferRefused(Exception):
    """The service did not apply a transfer; ``status`` says why."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"the transfer was refused: {status.name}")
        self.status = status


class LedgerClient:
    """Transfers with answers: ``async with LedgerClient(...) as ledger: balance = await ledger.transfer(1, 5)``.

    ``settings`` are those of :class:`container.client.ClientContext`. ``client_id`` names this client to the service,
    over all its sessions: no other may use it, and after a restart a new one begins at number 1.
    """

    def __init__(self, *, client_id: int | None = None, resend_s: float = RESEND_S, **settings: Any) -> None:
        self.client_id = client_id if client_id is not None else secrets.randbits(62)
        self.sent = 0
        self.answered = 0
        self._repeated = 0  # so often one was asked for again
        self._is_refused = False  # the service has no room for this client
        self._pending: dict[int, asyncio.Event] = {}  # by number, in ascending order; set when it is answered
        self._requests = itertools.count(NO_REPLY + 1)  # keys, each for one request
        self._asked: dict[int, int] = {}  # the key of the last request, by the number of its transfer
        self._resend_s = resend_s
        self._room = asyncio.Semaphore(WINDOW)
        self._client = AsyncReconnectingClient.connect(
            **settings,
            correlate=self._key_of,
            resend=True,
            policy=ReconnectPolicy(max_seconds=None),
            outbox_messages=WINDOW,
        )

    def _key_of(self, payload: bytes) -> int:
        # A transfer may be asked for again, and any answer to its number will do.
        client_id, number, _, _ = ANSWER.unpack(payload)
        return self._asked.get(number, NO_REPLY) if client_id == self.client_id else NO_REPLY

    async def transfer(self, account: int, amount: int) -> int:
        """Adds ``amount`` to the account, exactly once, and returns its balance right after that.

        It waits for as long as it takes. A caller that is cancelled does not take the transfer back. Raises
        TransferRefused when the service does not apply it, and ClosedError when the client is or gets closed.
        """
        transfer = asyncio.create_task(self._transfer(account, amount))
        transfer.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may be gone
        return await asyncio.shield(transfer)

    async def _transfer(self, account: int, amount: int) -> int:
        async with self._room:
            self.sent += 1
            number = self.sent
            message = TRANSFER.pack(self.client_id, number, account, amount)
            is_answered = self._pending[number] = asyncio.Event()
            try:
                balance, status = await self._ask(number, message)
                self.answered += 1
            finally:
                del self._pending[number]
                self._asked.pop(number, None)
                is_answered.set()
        if status != Status.APPLIED:
            raise TransferRefused(Status(status))
        return balance

    async def _ask(self, number: int, message: bytes) -> tuple[int, int]:
        """Asks until the transfer had its turn."""
        while not self._is_refused:
            try:
                self._asked[number] = key = next(self._requests)
                reply = await self._client.request(message, key=key, timeout=self._resend_s)
            except TimedOutError:
                self._repeated += 1
                continue
            _, _, balance, status = ANSWER.unpack(reply)
            first = next(iter(self._pending))
            self._is_refused |= status == Status.TOO_MANY_CLIENTS
            if status != Status.OUT_OF_TURN:
                return balance, status
            if first < number:
                await self._pending[first].wait()  # it was lost, and is sent again first
            else:
                await asyncio.sleep(PAUSE_S)
            self._repeated += 1
        return 0, Status.TOO_MANY_CLIENTS

    @property
    def resent(self) -> int:
        """How often a transfer was sent again."""
        return self._client.request_counts.resent + self._repeated

    @property
    def sessions(self) -> int:
        """Sessions that were had so far."""
        return self._client.sessions

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()


async def _run(options: argparse.Namespace) -> None:
    settings = {
        "ingress_channel": "aeron:udp",
        "ingress_endpoints": options.ingress,
        "egress_channel": options.egress,
        "aeron_dir": options.aeron_dir,
    }
    progress = Progress(sys.stderr)
    begin = time.monotonic()
    async with LedgerClient(**{name: value for name, value in settings.items() if value}) as ledger:

        def text() -> str:
            rate = ledger.answered / (time.monotonic() - begin)
            return (
                f"{ledger.answered}/{options.transfers} answered, {rate:,.0f}/s, {ledger.resent} sent again, "
                f"{ledger.sessions} sessions"
            )

        balances: list[int] = []

        async def work(numbers: range) -> None:
            for _ in numbers:
                balances.append(await ledger.transfer(options.account, 1))
                progress.show(text)

        first = await ledger.transfer(options.account, 0)
        share = range(WINDOW)
        await asyncio.gather(*(work(range(index, options.transfers, len(share))) for index in share))
        last = await ledger.transfer(options.account, 0)
        progress.finish(text())
    exactly_once = sorted(balances) == list(range(first + 1, last + 1)) and last - first == options.transfers
    print(f"balance {first} + {options.transfers} transfers of 1 = {last}: {'correct' if exactly_once else 'WRONG'}")
    if not exactly_once:
        raise SystemExit(1)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ingress", required=True, metavar="ENDPOINTS", help="0=host:port,1=host:port,...")
    parser.add_argument("--egress", default="aeron:udp?endpoint=localhost:0", metavar="CHANNEL")
    parser.add_argument("--aeron-dir", metavar="DIR", help="directory of the media driver [AERON_DIR]")
    parser.add_argument("--transfers", type=int, default=100_000, metavar="N")
    parser.add_argument("--account", type=int, default=1)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
