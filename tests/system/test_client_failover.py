"""Three members whose leader is killed twice under 100,000 transfers: each is answered, and applied exactly once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator

import pytest

from container.testing.processes.local_cluster import LocalCluster, LocalMember, Service
from examples.ledger_client import LedgerClient
from examples.ledger_service import WINDOW
from tests.limits import LIMIT_S
from tests.system.harness import ROOT, Parts

TRANSFERS_OF_A_PHASE = 50_000
KILL_AFTER = 20_000


@pytest.fixture
def cluster(parts: Parts) -> Iterator[LocalCluster]:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with LocalCluster([Service([sys.executable, "-m", "examples.ledger_service"], environment)], **parts) as cluster:
        cluster.start_client_driver()
        cluster.start().await_ready()
        yield cluster


async def transfer_all(ledger: LedgerClient, count: int) -> list[int]:
    """Have as many transfers under way as the window allows until all are answered; return the balances."""
    balances: list[int] = []

    async def work(share: range) -> None:
        for _ in share:
            balances.append(await ledger.transfer(1, 1))

    await asyncio.gather(*(work(range(index, count, WINDOW)) for index in range(WINDOW)))
    return balances


async def kill_leader_after(
    cluster: LocalCluster, ledger: LedgerClient, answered: int, on_kill: Callable[[], None]
) -> LocalMember:
    while ledger.answered < answered:
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(lambda: None))])
    leader = cluster.leader
    assert leader is not None
    on_kill()
    await asyncio.to_thread(leader.kill)
    return leader


@pytest.mark.slow
def test_100_000_transfers_are_applied_exactly_once_though_the_leader_is_killed_twice(cluster: LocalCluster) -> None:
    under_way: list[int] = []

    async def scenario() -> list[int]:
        balances: list[int] = []
        async with LedgerClient(**cluster.client_settings(), message_timeout=20.0, new_leader_timeout=30.0) as ledger:
            for phase in range(2):
                kill_at = phase * TRANSFERS_OF_A_PHASE + KILL_AFTER
                killing = asyncio.create_task(
                    kill_leader_after(cluster, ledger, kill_at, lambda: under_way.append(ledger.sent - ledger.answered))
                )
                async with asyncio.timeout(LIMIT_S):
                    balances += await transfer_all(ledger, TRANSFERS_OF_A_PHASE)
                killed = await killing
                await asyncio.to_thread(killed.restart)
                await asyncio.to_thread(cluster.await_ready)
            print(
                f"{ledger.answered} answered, {ledger.resent} sent again, {ledger.sessions} sessions, "
                f"{under_way} under way when the leader was killed"
            )
            balances.append(await ledger.transfer(1, 0))
        return balances

    *balances, last = asyncio.run(scenario())
    assert last == 2 * TRANSFERS_OF_A_PHASE
    assert sorted(balances) == list(range(1, last + 1))
    assert len(under_way) == 2
    assert min(under_way) > WINDOW // 2, "the leader was killed when little was under way"
