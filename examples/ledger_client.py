"""An asyncio gateway to the ledger that loses no transfer and repeats none, whatever happens to leaders and sessions.

A message that the cluster accepted may be lost when the leader changes. So each transfer has a number, is kept until it
is answered, and is sent again, with all that follow it, when a new leader takes over, when a new session had to be
opened, or when nothing was answered for a while: at least once. The service applies each number once: exactly once.

Sends transfers and checks the balance that they must sum up to::

    python -m examples.ledger_client --ingress 0=localhost:9010 --transfers 100000
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from container.client import AsyncAeronCluster, EgressListener, aconnect
from container.client.command import Progress
from container.errors import ClosedError, TimedOutError
from examples.ledger_service import ANSWER, TRANSFER, WINDOW, Status

RESEND_S = 1.0
RECONNECT_PAUSE_S = 0.2


class TransferRefused(Exception):
    """The service did not apply a transfer; ``status`` says why."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"the transfer was refused: {status.name}")
        self.status = status


class _NewLeader(EgressListener):
    """Tells that messages may have been lost."""

    def __init__(self, on_lost: Callable[[], object]) -> None:
        self._on_lost = on_lost

    def on_new_leader(self, *event: Any) -> None:
        self._on_lost()


class LedgerClient:
    """Transfers with answers: ``async with LedgerClient(...) as ledger: balance = await ledger.transfer(1, 5)``.

    ``settings`` are those of :class:`container.client.ClientContext`. ``client_id`` names this client to the service,
    over all its sessions: no other may use it, and after a restart a new one begins at number 1.
    """

    def __init__(self, *, client_id: int | None = None, resend_s: float = RESEND_S, **settings: Any) -> None:
        self.client_id = client_id if client_id is not None else secrets.randbits(62)
        self.sent = 0
        self.resent = 0
        self.answered = 0
        self.sessions = 0
        self._settings = settings
        self._resend_s = resend_s
        self._number = 0
        self._is_refused = False  # the service has no room for this client
        self._pending: dict[int, tuple[bytes, asyncio.Future[int]]] = {}  # by number, in ascending order
        self._room = asyncio.Semaphore(WINDOW)
        self._wire = asyncio.Lock()  # what is sent again is not mixed with what is new
        self._client: AsyncAeronCluster | None = None
        self._resend_due = asyncio.Event()
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep_connected())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def transfer(self, account: int, amount: int) -> int:
        """Adds ``amount`` to the account, exactly once, and returns its balance right after that.

        It waits for as long as it takes. A caller that is cancelled does not take the transfer back. Raises
        TransferRefused when the service does not apply it.
        """
        async with self._room:
            if self._is_refused:
                raise TransferRefused(Status.TOO_MANY_CLIENTS)
            self._number += 1
            number = self._number
            message = TRANSFER.pack(self.client_id, number, account, amount)
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._pending[number] = message, answer
            self.sent += 1
            await self._send_new(message)
            return await asyncio.shield(answer)

    async def _send_new(self, message: bytes) -> None:
        async with self._wire:
            if self._client is None or self._resend_due.is_set():
                return  # it is pending, so it goes with what is sent again
            try:
                await self._client.send(message)
            except (ClosedError, TimedOutError):
                self._resend_due.set()

    async def _keep_connected(self) -> None:
        """One session after the other, for as long as this client lives."""
        while True:
            try:
                async with aconnect(listener=_NewLeader(self._resend_due.set), **self._settings) as client:
                    self.sessions += 1
                    self._client = client
                    self._resend_due.set()
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._receive(client))
                        tasks.create_task(self._resend(client))
            except* (ClosedError, TimedOutError):
                pass  # no leader in time, or the session is lost
            self._client = None
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _receive(self, client: AsyncAeronCluster) -> None:
        async for message in client:
            client_id, number, balance, status = ANSWER.unpack(message.payload)
            if client_id != self.client_id or number not in self._pending or status == Status.OUT_OF_TURN:
                continue  # what came ahead of its turn is sent again with what was lost
            if status == Status.TOO_MANY_CLIENTS:
                self._is_refused = True
            for answered in list(self._pending) if self._is_refused else [number]:
                self.answered += 1
                _, answer = self._pending.pop(answered)
                if answer.done():
                    continue
                if status == Status.APPLIED:
                    answer.set_result(balance)
                else:
                    answer.set_exception(TransferRefused(Status(status)))
        raise ClosedError(f"the session ended: {client.close_reason}")

    async def _resend(self, client: AsyncAeronCluster) -> None:
        """Sends all that is pending again, in order, when something may be lost or nothing is answered any more."""
        while True:
            answered = self.answered
            try:
                async with asyncio.timeout(self._resend_s):
                    await self._resend_due.wait()
            except TimeoutError:
                if not self._pending or self.answered != answered:
                    continue
            async with self._wire:
                self._resend_due.clear()
                for number in list(self._pending):
                    if number in self._pending and not self._resend_due.is_set():
                        await client.send(self._pending[number][0])
                        self.resent += 1


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
