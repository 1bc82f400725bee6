"""A day of a reconnecting client: a pause, a fork, kills of driver and members, bad names, a session limit."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from container.client import AsyncReconnectingClient, ConnectionListener, ReconnectPolicy
from container.errors import ClosedError, ContainerError, LeaderChangedError, RequestClosedError
from container.testing.processes.local_cluster import LocalCluster, Service
from tests.forking import Child, not_refused
from tests.limits import LIMIT_S
from tests.pauses import pause
from tests.system.harness import ECHO_SERVICE, ROOT
from tests.threaded_members import key_of

WORKERS = 100
PAUSE_S = 0.02
PAUSE_OF_LEADER_S = 3.0
PROPERTIES = {"aeron.cluster.max.sessions": "1", "aeron.cluster.session.timeout": "4s"}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with LocalCluster([Service(ECHO_SERVICE, environment)], properties=PROPERTIES) as cluster:
        cluster.start().await_ready()
        yield cluster


class Day:
    """Workers that ask one thing after the other, and what became of each."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.outcomes: Counter[str] = Counter()
        self.resendable_lost = 0
        self.is_over = False
        self._endpoints: str = cluster.client_settings()["ingress_endpoints"]
        self._failures = 0

    def fail_names(self, attempts: int) -> None:
        """The names do not resolve in so many attempts."""
        self._failures = attempts

    def resolve(self) -> str:
        if self._failures == 0:
            return self._endpoints
        self._failures -= 1
        return "0=no.such.host.invalid:9010"

    async def work(self, client: AsyncReconnectingClient, number: int) -> None:
        sequence = 0
        while not self.is_over:
            key = number + sequence * WORKERS
            sequence += 1
            try:
                reply = await client.request(b"%d:" % key, key=key, idempotent=bool(number % 2), timeout=LIMIT_S)
                assert reply == b"%d:" % key
                self.outcomes["answered"] += 1
            except (LeaderChangedError, RequestClosedError) as error:
                self.outcomes[type(error).__name__] += 1
                self.resendable_lost += number % 2
            await pause(PAUSE_S)

    async def until_work_goes_on(self, client: AsyncReconnectingClient) -> None:
        """Answers come again, and nobody waits for one of before."""
        before = self.outcomes["answered"]
        async with asyncio.timeout(LIMIT_S):
            while self.outcomes["answered"] < before + 3 * WORKERS:
                await pause(PAUSE_S)


class Told(ConnectionListener):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.errors: list[str] = []
        self.attempts: list[int] = []

    def on_disconnected(self, error: ContainerError) -> None:
        self.calls["disconnected"] += 1
        self.errors.append(str(error))

    def on_reconnected(self, attempts: int) -> None:
        self.calls["reconnected"] += 1
        self.attempts.append(attempts)

    def on_leader_changed(self, *leader: Any) -> None:
        self.calls["leader"] += 1

    def on_closed(self, error: ContainerError) -> None:
        self.calls["closed"] += 1


def kill_driver(cluster: LocalCluster, driver: Any) -> None:
    driver.kill()
    shutil.rmtree(cluster.client_aeron_dir())  # a new driver need not wait until it is sure that the old one is dead
    cluster.start_client_driver()


def pause_leader(cluster: LocalCluster) -> None:
    """Longer than the others wait for it, and shorter than a session may be silent."""
    leader = cluster.leader
    assert leader is not None
    leader.pause()
    threading.Event().wait(PAUSE_OF_LEADER_S)
    leader.resume()
    cluster.await_ready()


def fork_a_child(client: AsyncReconnectingClient) -> None:
    """The child may do nothing with the client, and its end is nothing to it."""
    owner_id = os.getpid()
    with Child() as child:
        if child.fork():
            child.end(*not_refused({"send": lambda: asyncio.run(client.send(b"from the child"))}, owner_id))
        assert child.outcome() == (0, [])


def restart_leader(cluster: LocalCluster) -> None:
    leader = cluster.leader
    assert leader is not None
    leader.kill()
    leader.restart()
    cluster.await_ready()


def restart_all(cluster: LocalCluster) -> None:
    for member in cluster.members:
        member.kill()
    for member in cluster.members:
        member.restart()
    cluster.await_ready()


@pytest.mark.slow
def test_a_day_in_the_life(cluster: LocalCluster) -> None:
    driver = cluster.start_client_driver()
    day = Day(cluster)
    told = Told()
    steps: list[tuple[str, Callable[[AsyncReconnectingClient], None]]] = [
        ("the leader is paused", lambda _: pause_leader(cluster)),
        ("a child is forked", fork_a_child),
        ("the driver is killed", lambda _: kill_driver(cluster, driver)),
        ("the leader is killed", lambda _: restart_leader(cluster)),
        ("all members are killed", lambda _: restart_all(cluster)),
    ]

    async def scenario() -> None:
        settings = cluster.client_settings() | {"message_timeout": 5.0, "new_leader_timeout": 10.0}
        async with (
            AsyncReconnectingClient.connect(
                **settings,
                driver_timeout=3.0,
                correlate=key_of,
                callbacks=told,
                resolve=day.resolve,
                policy=ReconnectPolicy(max_delay=1.0, max_seconds=LIMIT_S),
            ) as client,
            asyncio.TaskGroup() as tasks,
        ):
            workers = [tasks.create_task(day.work(client, number)) for number in range(WORKERS)]
            await day.until_work_goes_on(client)
            for name, step in steps:
                day.fail_names(2)
                await asyncio.to_thread(step, client)
                await day.until_work_goes_on(client)
                print(f"{name}: {client.sessions} sessions, {dict(day.outcomes)}, {client.request_counts}")
            day.is_over = True
            await asyncio.gather(*workers)
            counts = client.request_counts
            assert counts.in_flight == 0
            assert counts.sent == counts.answered + counts.unknown
            assert counts.answered == day.outcomes["answered"]
            assert counts.unknown == day.outcomes.total() - day.outcomes["answered"]
            assert counts.resent > 0
            assert day.resendable_lost == 0
            await client.aclose()
            with pytest.raises(ClosedError):
                await client.send(b"x")

    asyncio.run(scenario())
    print(told.calls, told.attempts, told.errors)
    assert told.calls["disconnected"] == told.calls["reconnected"] >= 2
    assert told.calls["closed"] == 1
    assert any("MediaDriver" in error for error in told.errors)
    # Names failed twice, and the only session that the cluster allows was still that of before.
    assert max(told.attempts) > 3
