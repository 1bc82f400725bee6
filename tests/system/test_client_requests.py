"""Three members whose leader is killed again and again under 1,000 requests in flight: each has one outcome, soon."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from container.client import AsyncAeronCluster, EgressListener
from container.errors import LeaderChangedError
from container.testing.processes.local_cluster import LocalCluster, Service
from tests.limits import LIMIT_S
from tests.pauses import pause
from tests.system.harness import ECHO_SERVICE, ROOT, Parts
from tests.threaded_members import key_of

IN_FLIGHT = 1000
KILLS = 5
OUTCOME_S = 1.0
PAUSE_S = 0.1


@pytest.fixture
def cluster(parts: Parts) -> Iterator[LocalCluster]:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with LocalCluster([Service(ECHO_SERVICE, environment)], **parts) as cluster:
        cluster.start_client_driver()
        cluster.start().await_ready()
        yield cluster


class Leaders(EgressListener):
    """When each new leader was heard of."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_new_leader(self, *event: Any) -> None:
        self.times.append(time.monotonic())

    def on_extension_message(self, *message: Any) -> None:
        """Passed over."""


@dataclass
class Outcomes:
    answered: int = 0
    unknown: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)

    def late(self, new_leader_s: float) -> list[tuple[float, float]]:
        """Requests that a leader was there for, and that had no outcome for too long."""
        return [span for span in self.spans if span[0] < new_leader_s < span[1] - OUTCOME_S]


async def keep_asking(client: AsyncAeronCluster, number: int, outcomes: Outcomes, end: asyncio.Event) -> None:
    """One request after the other, each with a key of its own; those with odd numbers are sent again."""
    sequence = 0
    while not end.is_set():
        key = number + sequence * IN_FLIGHT
        sequence += 1
        begin = time.monotonic()
        try:
            reply = await client.request(b"%d:" % key, key=key, idempotent=bool(number % 2))
            assert reply == b"%d:" % key
            outcomes.answered += 1
        except LeaderChangedError:
            assert not number % 2
            outcomes.unknown += 1
        outcomes.spans.append((begin, time.monotonic()))
        await pause(PAUSE_S)


@pytest.mark.slow
def test_each_request_has_one_outcome_soon_after_each_new_leader(cluster: LocalCluster) -> None:
    outcomes = Outcomes()
    leaders = Leaders()

    async def scenario() -> None:
        settings = cluster.client_settings() | {"message_timeout": LIMIT_S, "new_leader_timeout": LIMIT_S}
        async with AsyncAeronCluster.connect(**settings, correlate=key_of, listener=leaders) as client:
            end = asyncio.Event()
            async with asyncio.timeout(LIMIT_S * KILLS), asyncio.TaskGroup() as tasks:
                for number in range(IN_FLIGHT):
                    tasks.create_task(keep_asking(client, number, outcomes, end))
                for kill in range(1, KILLS + 1):
                    while outcomes.answered < kill * 5 * IN_FLIGHT:
                        await pause(0.05)
                    leader = cluster.leader
                    assert leader is not None
                    await asyncio.to_thread(leader.kill)
                    while len(leaders.times) < kill:
                        await pause(0.05)
                    await pause(2 * OUTCOME_S)
                    await asyncio.to_thread(leader.restart)
                    await asyncio.to_thread(cluster.await_ready)
                end.set()
            counts = client.request_counts
            print(counts, [len(outcomes.late(new_leader_s)) for new_leader_s in leaders.times])
            assert counts.sent == counts.answered + counts.unknown
            assert counts.in_flight == 0
            assert (counts.answered, counts.unknown) == (outcomes.answered, outcomes.unknown)
            assert counts.resent >= KILLS
            assert counts.unknown >= KILLS

    asyncio.run(scenario())
    for new_leader_s in leaders.times:
        assert outcomes.late(new_leader_s) == []
