"""The asyncio pool of sessions, against scripted members over a media driver in this process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from container.client import (
    AsyncPooledSession,
    AsyncSessionPool,
    ClientContext,
    EgressListener,
    PooledSessionState,
    PoolListener,
    ReconnectPolicy,
)
from container.errors import (
    ClosedError,
    ClusterError,
    ConfigurationError,
    ContainerError,
    Outcome,
    RequestClosedError,
    SendTimedOutError,
    SessionLimitError,
)
from tests import ingress_member
from tests.client_kinds import FULL, QUICK, Gateway
from tests.limits import LIMIT_S
from tests.pauses import pause, run, until
from tests.test_session_pool import Told
from tests.threaded_members import PatientMember, ThreadedMembers, key_of


@pytest.fixture
def member(members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo, Gateway)


def connecting(members: ThreadedMembers, **more: Any) -> AsyncSessionPool:
    return AsyncSessionPool.connect(**members.settings(**{"correlate": key_of, "policy": QUICK} | more))


def is_back(session: AsyncPooledSession, sessions: int = 2) -> Callable[[], bool]:
    return lambda: session.sessions == sessions and session.state is PooledSessionState.CONNECTED


async def test_sessions_send_ask_and_receive(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    async with connecting(members, callbacks=told) as pool:
        sessions = await pool.open_all(100)
        assert sorted(session.cluster_session_id for session in sessions) == list(range(101, 201))
        assert {call[0] for call in told.calls} == {"opened"}
        assert len(pool) == 100
        for session in sessions:
            await session.send(b"to %d" % session.cluster_session_id)
        for session in sessions:
            assert (await session.receive()).payload == b"to %d" % session.cluster_session_id
        # The keys are of each session.
        replies = await asyncio.gather(*(session.request(b"7:%d" % n, key=7) for n, session in enumerate(sessions)))
        assert replies == [b"7:%d" % n for n in range(100)]
        counts = pool.request_counts
        assert counts is not None
        assert (counts.sent, counts.answered, counts.in_flight) == (100, 100, 0)
        assert sessions[0].offer(b"x") > 0
    assert pool.is_closed
    assert pool.close_reason == "closed by this client"
    assert all(session.is_closed for session in sessions)
    assert [message.payload async for message in sessions[1]] == []
    assert told.calls[-1] == ("pool", "closed by this client")


async def test_one_lost_session_is_replaced_and_the_rest_goes_on(
    members: ThreadedMembers, member: PatientMember
) -> None:
    told = Told()
    async with connecting(members, callbacks=told) as pool:
        sessions = await pool.open_all(10)
        lost, *rest = sorted(sessions, key=lambda session: session.cluster_session_id)
        told.calls.clear()
        for round_ in range(3):
            member.end_session(lost.cluster_session_id)
            await until(is_back(lost, round_ + 2), "the session to be back")
            replies = await asyncio.gather(*(session.request(b"7:", key=7) for session in sessions))
            assert replies == [b"7:"] * 10
        assert [session.sessions for session in rest] == [1] * 9
        assert (pool.lost, lost.error, lost.close_reason) == (0, None, None)
        text = "the session ended: closed by the cluster: TIMEOUT"
        assert told.calls == [("lost", lost, text), ("replaced", lost, 1)] * 3


async def test_requests_of_a_lost_session_end_with_an_unknown_outcome(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members, resend=True) as pool:
        lost, other = await pool.open_all(2)
        member.be_silent()
        asking = [asyncio.create_task(session.request(b"7:", key=7)) for session in (lost, other)]
        await until(lambda: len(member.sent()) == 2, "both to be in flight")
        member.end_session(lost.cluster_session_id)
        with pytest.raises(RequestClosedError, match="closed by the cluster: TIMEOUT") as ended:
            await asking[0]
        assert ended.value.outcome == Outcome.UNKNOWN
        members.do(lambda: member.message(b"7:there", session_id=other.cluster_session_id))
        assert await asking[1] == b"7:there"
        counts = pool.request_counts
        assert counts is not None
        assert (counts.answered, counts.unknown, counts.in_flight) == (1, 1, 0)


async def test_what_is_sent_meanwhile_waits_for_the_session(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members) as pool:
        lost, other = await pool.open_all(2)
        member.end_session(lost.cluster_session_id, refuse=FULL)
        await until(lambda: isinstance(lost.error, SessionLimitError), "the refusal")
        assert pool.lost == 1
        waiting = [asyncio.create_task(lost.send(b"%d" % number)) for number in range(20)]
        asking = asyncio.create_task(lost.request(b"7:", key=7))
        with pytest.raises(SendTimedOutError):
            await lost.send(b"too late", timeout=0.05)
        with pytest.raises(SendTimedOutError):
            await lost.request(b"8:", key=8, timeout=0.05)
        assert await other.request(b"7:", key=7) == b"7:"
        member.accept_again()
        await asyncio.gather(*waiting)
        assert await asking == b"7:"
        assert [(await lost.receive()).payload for _ in range(20)] == [b"%d" % number for number in range(20)]


async def test_a_session_that_is_given_up_ends_what_waits(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    async with connecting(members, callbacks=told) as pool:
        lost, other = await pool.open_all(2)
        receiving = asyncio.create_task(lost.receive())
        await pause()
        rejected = (ingress_member.AUTHENTICATION_REJECTED, "no")
        member.end_session(lost.cluster_session_id, refuse=rejected)
        await until(lambda: lost.state is not PooledSessionState.CONNECTED, "the end of the session")
        with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no"):
            await lost.send(b"x")
        with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no"):
            await receiving
        with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no"):
            lost.offer(b"x")
        assert lost.is_closed
        assert await other.request(b"7:", key=7) == b"7:"
        assert len(pool) == 1
        assert told.calls[-1] == ("closed", lost, str(lost.error))


async def test_a_first_connect_that_fails_raises(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members) as pool:
        (session,) = await pool.open_all(1)
        member.end_session(-5, refuse=FULL)
        with pytest.raises(SessionLimitError):
            await pool.open()
        with pytest.raises(SessionLimitError):
            await pool.open_all(5)
        assert len(pool) == 1
        assert await session.request(b"7:", key=7) == b"7:"


async def test_a_cancelled_open_leaves_nothing(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members, max_connecting=2) as pool:
        members.do(lambda: member.hooks.update(SessionConnectRequest=lambda request: None))
        opening = [asyncio.create_task(pool.open()) for _ in range(5)]
        await until(lambda: len(pool) == 2, "two to be under way")
        for task in opening:
            task.cancel()
        await asyncio.wait(opening)
        assert all(task.cancelled() for task in opening)
        assert len(pool) == 0
        member.accept_again()


async def test_a_session_closes_alone(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members) as pool:
        one, other = await pool.open_all(2)
        member.be_silent()
        asking = asyncio.create_task(one.request(b"7:", key=7))
        await until(member.sent, "the request to be in flight")
        session_id = one.cluster_session_id
        one.close()
        one.close()
        with pytest.raises(RequestClosedError, match="closed by this client"):
            await asking
        with pytest.raises(ClosedError, match="closed by this client"):
            await one.send(b"x")
        assert [message async for message in one] == []
        assert (len(pool), other.is_closed) == (1, False)

        def closed() -> list[int]:
            return [request["cluster_session_id"] for request in member.received("SessionCloseRequest")]

        await until(lambda: members.do(closed) == [session_id], "the close request")


async def test_all_are_connected_again_when_their_streams_are_lost(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members, new_leader_timeout=0.2) as pool:
        sessions = await pool.open_all(20)
        members.do(member.stop)
        await until(lambda: pool.lost == 20, "the end of all sessions")
        waiting = [asyncio.create_task(session.request(b"7:", key=7)) for session in sessions]
        members.member(0, "aeron:ipc", PatientMember.echo, Gateway)
        assert await asyncio.gather(*waiting) == [b"7:"] * 20
        assert [session.sessions for session in sessions] == [2] * 20
        assert pool.lost == 0


async def test_a_pool_that_is_given_up_ends_all_that_waits(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    policy = ReconnectPolicy(first_delay=0.01, max_delay=0.02, max_seconds=0.3)
    async with connecting(members, callbacks=told, new_leader_timeout=0.1, policy=policy) as pool:
        (session,) = await pool.open_all(1)
        thread = pool._thread
        thread._context = replace(thread._context, message_timeout=0.2)  # of attempts from now on, which all fail
        members.do(member.stop)
        await until(lambda: session.state is not PooledSessionState.CONNECTED, "the end of the session")
        receiving = asyncio.create_task(session.receive())
        sending = asyncio.create_task(session.send(b"x", timeout=LIMIT_S))
        for waiting in (receiving, sending):
            with pytest.raises(ClosedError, match="no session within 0.3 s"):
                await waiting
        await until(lambda: pool.is_closed, "the end of the pool")
        assert "no session within 0.3 s" in str(pool.close_reason)
        with pytest.raises(ClosedError, match="no session within 0.3 s"):
            await pool.open()
    assert told.calls[-1][0] == "pool"


def test_messages_that_nobody_takes_are_dropped_and_stop_no_other(
    members: ThreadedMembers, member: PatientMember, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with connecting(members, max_waiting=10) as pool:
            slow, other = await pool.open_all(2)
            for number in range(30):
                await slow.send(b"%d" % number)
            await until(lambda: slow.dropped == 20, "the rest to be dropped")
            assert await slow.request(b"7:", key=7) == b"7:"
            await other.send(b"x")
            assert (await other.receive()).payload == b"x"
            assert other.dropped == 0
            assert [(await slow.receive()).payload for _ in range(10)] == [b"%d" % number for number in range(10)]
            await slow.send(b"now")
            assert (await slow.receive()).payload == b"now"

    with caplog.at_level(logging.WARNING, "container.client"):
        run(scenario())
    assert sum("wait to be taken from session" in record.message for record in caplog.records) == 1


async def test_waiting_messages_are_limited_by_bytes_too(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members, max_waiting_bytes=1000) as pool:
        (session,) = await pool.open_all(1)
        for _ in range(5):
            await session.send(bytes(300))
        await until(lambda: session.dropped == 2, "two to be dropped")


async def test_what_a_callback_raises_goes_to_the_loops_handler(
    members: ThreadedMembers, member: PatientMember
) -> None:
    class Failing(PoolListener):
        def on_session_opened(self, session: object) -> None:
            raise ZeroDivisionError

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with connecting(members, callbacks=Failing()) as pool:
        (session,) = await pool.open_all(1)
        assert await session.request(b"7:", key=7) == b"7:"
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]
    assert "on_session_opened() of the pool's listener failed" in reported[0]["message"]


async def test_a_reply_that_the_loop_has_not_heard_of_when_time_is_up_is_returned(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members) as pool:
        (session,) = await pool.open_all(1)
        member.be_silent()
        asking = asyncio.create_task(session.request(b"7:", key=7, timeout=0.2))
        await until(lambda: len(member.sent()) == 1, "the request to be in flight")
        members.do(lambda: member.message(b"7:just in time", session_id=session.cluster_session_id))
        deadline = time.monotonic() + LIMIT_S
        while pool._thread.table.counts.answered == 0:  # the loop does not run
            assert time.monotonic() < deadline, "the reply did not come"
            members.do(lambda: None)
        due = time.monotonic() + 0.3
        while time.monotonic() < due:
            members.do(lambda: None)
        assert await asking == b"7:just in time"
        counts = pool.request_counts
        assert counts is not None
        assert counts[:4] == (1, 1, 0, 0)


def test_wrong_settings_are_refused_at_once(members: ThreadedMembers) -> None:
    class Listening(EgressListener):
        pass

    for wrong, text in (
        ({"listener": Listening()}, "uses no listener"),
        ({"max_waiting": 0}, "max_waiting"),
        ({"max_connecting": "5"}, "max_connecting"),
        ({"max_waiting_bytes": -1}, "max_waiting_bytes"),
        ({"correlate": 5}, "correlate must be a function"),
        ({"policy": "quick"}, "policy must be a ReconnectPolicy or None"),
        ({"callbacks": 5}, "callbacks must be a PoolListener or None"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            connecting(members, **wrong)
    with pytest.raises(ConfigurationError, match="context must be None or a ClientContext"):
        AsyncSessionPool.connect("aeron:ipc")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="uses no listener"):
        AsyncSessionPool.connect(
            ClientContext(ingress_channel="aeron:ipc", egress_channel="aeron:ipc", listener=Listening())
        )


async def test_another_thread_and_an_unconnected_pool_are_refused(
    members: ThreadedMembers, member: PatientMember
) -> None:
    unused = connecting(members)
    with pytest.raises(ClusterError, match="not connected"):
        await unused.open()
    async with connecting(members) as pool:
        (session,) = await pool.open_all(1)

        def offer() -> str:
            with pytest.raises(ClusterError) as refused:
                session.offer(b"x")
            return str(refused.value)

        assert "belongs to the event loop of another thread" in await asyncio.to_thread(offer)


@pytest.mark.parametrize("limit", ["_MAX_ARRIVED", "_MAX_ARRIVED_BYTES"])
async def test_a_loop_that_is_behind_keeps_its_sessions(
    members: ThreadedMembers, member: PatientMember, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """It has not looked at so much that nothing more is read."""
    monkeypatch.setattr(f"container.client.async_pool.{limit}", 10)
    async with connecting(members, keep_alive_interval=0.05) as pool:
        (session,) = await pool.open_all(1)
        session_id = session.cluster_session_id

        def send_all() -> None:
            for number in range(100):
                member.message(b"%d" % number, session_id=session_id)

        members.do(send_all)
        threading.Event().wait(0.2)
        before = len(members.do(lambda: member.received("SessionKeepAlive")))
        threading.Event().wait(0.6)  # the loop's thread, and not the pool's
        kept = members.do(lambda: member.received("SessionKeepAlive"))[before:]
        assert session_id in {request["cluster_session_id"] for request in kept}
        assert pool._thread.arrived.is_full
        assert [(await session.receive()).payload for _ in range(100)] == [b"%d" % i for i in range(100)]


async def test_a_callback_that_closes_a_session_keeps_the_order_of_messages(
    members: ThreadedMembers, member: PatientMember
) -> None:
    class Closing(PoolListener):
        def on_session_lost(self, session: object, error: ContainerError) -> None:
            members.do(lambda: member.message(b"1", session_id=102))
            threading.Event().wait(0.2)  # it comes meanwhile
            sessions[2].close()

    sessions: list[AsyncPooledSession] = []
    async with connecting(members, callbacks=Closing()) as pool:
        sessions.extend(sorted(await pool.open_all(3), key=lambda session: session.cluster_session_id))
        kept = sessions[1]
        assert kept.cluster_session_id == 102

        members.do(lambda: member.session_event(0, ingress_member.CLOSED, "TIMEOUT", session_id=101))
        threading.Event().wait(0.2)  # the loop's thread: both have come when it looks
        members.do(lambda: member.message(b"0", session_id=102))
        threading.Event().wait(0.2)
        assert [(await kept.receive()).payload for _ in range(2)] == [b"0", b"1"]


async def test_the_end_of_the_thread_ends_all_that_waits(
    members: ThreadedMembers, member: PatientMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Exception):
        pass

    def fail(*arguments: object) -> None:
        raise Broken

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    member.be_silent()
    async with connecting(members) as pool:
        (session,) = await pool.open_all(1)
        receiving = asyncio.create_task(session.receive())
        asking = asyncio.create_task(session.request(b"7:", key=7))
        await until(member.sent, "the request to be in flight")
        monkeypatch.setattr(pool._thread, "_poll", fail)
        await asyncio.wait([receiving, asking], timeout=5)
        assert isinstance(receiving.exception(), ClosedError)
        assert isinstance(asking.exception(), RequestClosedError)
        assert pool.is_closed
        assert "Broken" in str(pool.close_reason)
        with pytest.raises(ClosedError):
            await session.send(b"x")
    assert [type(error) for error in reported] == [Broken]
    await until(lambda: members.do(lambda: member.received("SessionCloseRequest")), "the end of the session")
