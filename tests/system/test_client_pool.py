"""A pool of sessions against real members: all of its sessions send, stay, and follow a new leader while more open."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from container.api import Header, MessageBuffer
from container.client import (
    AsyncPooledSession,
    AsyncSessionPool,
    EgressListener,
    EventCode,
    PooledSession,
    PooledSessionState,
    SessionPool,
)
from container.errors import OutcomeUnknownError
from container.testing.processes.local_cluster import JavaService, LocalCluster, LocalMember, Service
from tests.pauses import pause
from tests.system.harness import ECHO_SERVICE, JAVA_ECHO_SERVICE, ROOT, NodeFactory, Parts
from tests.system.test_client import settings, start_echo
from tests.threaded_members import key_of

pytestmark = pytest.mark.nodes("native", "java")

SESSIONS = 300
LATECOMERS = 100
ASYNC_SESSIONS = 50
ROUNDS = 10
KILL_IN_ROUND = 5
RESEND_S = 2.0
POLL_LIMIT_S = 120.0

type Report = Callable[[], str]


class Caller:
    """One pooled session that sends its numbers one after the other, each until it is answered."""

    def __init__(self, session: PooledSession) -> None:
        self.session = session
        self.answered = 0
        self._sent_s = 0.0

    def send(self, rounds: int) -> None:
        """Sends the number that is due, again if there was no answer for a while."""
        now_s = time.monotonic()
        is_due = self.answered < rounds and now_s - self._sent_s >= RESEND_S
        if is_due and self.session.offer(self.answered.to_bytes(8, "little")) > 0:
            self._sent_s = now_s

    def on_answer(self, number: int) -> None:
        """Takes an answer; one that comes twice, because the number was sent again, does not count."""
        if number == self.answered:
            self.answered += 1
            self._sent_s = 0.0


class Gateway(EgressListener):
    """Hands answers to callers, and keeps what else the sessions are told."""

    def __init__(self) -> None:
        self.callers: dict[int, Caller] = {}
        self.followed: set[int] = set()
        self.ended: list[str] = []

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> None:
        self.callers[cluster_session_id].on_answer(int.from_bytes(bytes(buffer), "little"))

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, ingress_endpoints: str
    ) -> None:
        self.followed.add(cluster_session_id)

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode | int,
        detail: str,
    ) -> None:
        if code != EventCode.OK:  # which a new leader says again
            self.ended.append(f"session {cluster_session_id}: {code!r} {detail}")

    def call_all(self, pool: SessionPool, sessions: list[PooledSession], rounds: int, report: Report) -> None:
        """Lets all sessions send until each has its answers, one round after the other."""
        self.callers |= {s.cluster_session_id: Caller(s) for s in sessions if s.cluster_session_id not in self.callers}

        def all_answered() -> bool:
            for caller in self.callers.values():
                caller.send(rounds)
            return all(caller.answered == rounds for caller in self.callers.values())

        poll_until(pool, all_answered, f"{rounds} answers for each of {len(self.callers)} sessions", report)


def poll_until(pool: SessionPool, predicate: Callable[[], bool], what: str, report: Report) -> None:
    """Polls without a pause, unlike ``wait_until``: for a pool that has much to do."""
    deadline = time.monotonic() + POLL_LIMIT_S
    while not predicate():
        assert not pool.is_closed, f"{pool.cluster.close_reason}\n{report()}"
        assert time.monotonic() < deadline, f"waited {POLL_LIMIT_S} s for {what}: {pool!r}\n{report()}"
        pool.idle(pool.poll())


def test_pooled_sessions_are_the_clusters_sessions(node: NodeFactory) -> None:
    echo = start_echo(node(properties={"aeron.cluster.max.sessions": "50"}))
    gateway = Gateway()
    with SessionPool.connect(**settings(echo, gateway)) as pool:
        sessions = pool.open_all(49)
        gateway.call_all(pool, sessions, 3, echo.report)
        refused = pool.open()
        poll_until(pool, lambda: refused.is_closed, "the cluster to refuse one session more", echo.report)
        assert "concurrent session limit" in str(refused.error)
        closed = sessions.pop()
        closed_id = closed.cluster_session_id
        closed.close()
        del gateway.callers[closed_id]
        attempts = [pool.open()]

        def connected() -> bool:
            if attempts[-1].is_closed:
                attempts.append(pool.open())
            return attempts[-1].state == PooledSessionState.CONNECTED

        poll_until(pool, connected, "the place of the session that was closed", echo.report)
        gateway.call_all(pool, [*sessions, attempts[-1]], 4, echo.report)
        assert gateway.ended == []


@pytest.mark.slow
def test_all_sessions_of_a_pool_go_on_when_the_leader_is_killed(java_classes: Path, parts: Parts) -> None:
    gateway = Gateway()
    with LocalCluster(
        [JavaService(JAVA_ECHO_SERVICE)],
        class_path=[java_classes],
        properties={"aeron.cluster.max.sessions": str(SESSIONS + LATECOMERS + 1)},
        **parts,
    ) as cluster:
        cluster.start_client_driver()
        cluster.start().await_ready()
        options = cluster.client_settings() | {
            "listener": gateway,
            "message_timeout": POLL_LIMIT_S,
            "new_leader_timeout": POLL_LIMIT_S,
        }
        with SessionPool.connect(**options) as pool:
            sessions = pool.open_all(SESSIONS)
            ids = [session.cluster_session_id for session in sessions]
            gateway.call_all(pool, sessions, KILL_IN_ROUND, cluster.report)
            for caller in gateway.callers.values():
                caller.send(KILL_IN_ROUND + 1)
            killed = pool.cluster.leader_member_id
            cluster.members[killed].kill()
            # Some ask the leader that is gone, some while there is none.
            latecomers = [pool.open() for _ in range(LATECOMERS)]
            gateway.call_all(pool, sessions, ROUNDS, cluster.report)
            assert pool.cluster.leader_member_id != killed
            assert [session.cluster_session_id for session in sessions] == ids
            assert {session.state for session in sessions} == {PooledSessionState.CONNECTED}

            poll_until(
                pool,
                lambda: all(session.state != PooledSessionState.CONNECTING for session in latecomers),
                "the sessions that were opened without a leader",
                cluster.report,
            )
            assert [session.error for session in latecomers] == [None] * LATECOMERS
            gateway.call_all(pool, latecomers, ROUNDS, cluster.report)
            assert set(ids) <= gateway.followed
            assert gateway.ended == []
            assert len(pool) == SESSIONS + LATECOMERS


@pytest.mark.slow
def test_an_asyncio_pool_outlives_a_leader_that_is_killed_and_all_members(parts: Parts) -> None:
    """Each request is answered, or fails with an error that says that its outcome is unknown; no session is gone."""
    outcomes: Counter[str] = Counter()
    properties = {"aeron.cluster.max.sessions": str(2 * ASYNC_SESSIONS)}
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with LocalCluster([Service(ECHO_SERVICE, environment)], properties=properties, **parts) as cluster:
        cluster.start_client_driver()
        cluster.start().await_ready()

        def kill_and_restart(members: list[LocalMember]) -> None:
            for member in members:
                member.kill()
            for member in members:
                member.restart()
            cluster.await_ready()

        async def work(session: AsyncPooledSession, number: int, is_over: asyncio.Event) -> None:
            key = 0
            while not is_over.is_set():
                key += 1
                try:
                    payload = b"%d:" % key
                    assert await session.request(payload, key=key, idempotent=bool(number % 2)) == payload
                    outcomes["answered"] += 1
                except OutcomeUnknownError as error:
                    outcomes[type(error).__name__] += 1
                await pause(0.02)

        async def go_on() -> None:
            before = outcomes["answered"]
            async with asyncio.timeout(POLL_LIMIT_S):
                while outcomes["answered"] < before + 3 * ASYNC_SESSIONS:
                    await pause(0.02)

        async def scenario() -> None:
            settings = cluster.client_settings() | {"message_timeout": POLL_LIMIT_S, "new_leader_timeout": 10.0}
            is_over = asyncio.Event()
            async with (
                AsyncSessionPool.connect(**settings, correlate=key_of) as pool,
                asyncio.TaskGroup() as tasks,
            ):
                sessions = await pool.open_all(ASYNC_SESSIONS)
                for number, session in enumerate(sessions):
                    tasks.create_task(work(session, number, is_over))
                await go_on()
                leader = cluster.leader
                assert leader is not None
                await asyncio.to_thread(kill_and_restart, [leader])
                await go_on()
                after_the_leader = [session.sessions for session in sessions]
                await asyncio.to_thread(kill_and_restart, list(cluster.members))
                await go_on()
                async with asyncio.timeout(POLL_LIMIT_S):
                    while pool.lost > 0:
                        await pause(0.02)
                is_over.set()
                print(f"{outcomes}, {pool.request_counts}, {Counter(after_the_leader)}")
                assert [session.sessions for session in sessions] > after_the_leader
                assert not any(session.is_closed for session in sessions)

        asyncio.run(scenario())
    assert outcomes["RequestTimedOutError"] == 0
    assert outcomes.total() > outcomes["answered"] > 0
