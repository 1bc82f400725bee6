"""A session that opens when nobody waits for it any more is closed: with every kind of client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from container.client import (
    AeronCluster,
    AsyncAeronCluster,
    AsyncReconnectingClient,
    AsyncSessionPool,
    ReconnectingClient,
    SessionPool,
)
from container.client.connect_steps import ConnectStep
from container.client.reconnecting_base import ConnectionListener
from container.client.reconnection import Outbox, OutboxPolicy, ReconnectPolicy
from container.common.doors import make
from container.errors import ClosedError, SessionLimitError, TimedOutError
from tests import client_kinds
from tests.client_world import MEMBER_0, MS, Collecting, S, World
from tests.ingress_member import ERROR, OK, IngressMember, Request
from tests.pauses import pause, until
from tests.test_session_pool import Gateway, poll
from tests.threaded_members import PatientMember, ThreadedMembers, key_of

LIMIT = "concurrent session limit"


class Slow:
    """Lets a member of the memory transport answer each request to connect after a while."""

    def __init__(self, world: World, member: IngressMember, delay_ns: int, step_ns: int = 0) -> None:
        self.step_ns = step_ns  # from one answer to the next
        self.world = world
        self.member = member
        self.delay_ns = delay_ns
        self.asked: list[tuple[int, Request]] = []
        self.answer: Callable[[Request], None] = member.on_SessionConnectRequest
        member.hooks["SessionConnectRequest"] = self.hear
        world.driver.add_task(self.work)

    def hear(self, request: Request) -> None:
        """A request came."""
        self.asked.append((self.world.clock.now_ns + self.delay_ns, request))
        self.delay_ns += self.step_ns

    def work(self) -> None:
        """Answer what is due."""
        while self.asked and self.asked[0][0] <= self.world.clock.now_ns:
            self.answer(self.asked.pop(0)[1])


def closed(member: IngressMember) -> list[int]:
    """Sessions that the member was asked to close."""
    return [request["cluster_session_id"] for request in member.received("SessionCloseRequest")]


@pytest.fixture
def member(world: World) -> Gateway:
    return Gateway(world.driver, 0, MEMBER_0)


# Pools


def test_the_end_of_a_block_closes_what_opens_after_a_refusal(world: World, member: Gateway) -> None:
    with SessionPool.connect(world.context()) as pool:
        slow = Slow(world, member, 20 * MS, step_ns=10 * MS)

        def answer(request: Request) -> None:
            if member.cluster_session_id == 102:
                member.session_event(request["correlation_id"], ERROR, LIMIT, session_id=-1)
                slow.answer = member.on_SessionConnectRequest
            else:
                member.on_SessionConnectRequest(request)

        slow.answer = answer
        with pytest.raises(SessionLimitError):
            pool.open_all(10)
        world.driver.conduct()
        assert closed(member) == list(range(101, member.cluster_session_id + 1))  # before the error is raised
        assert member.cluster_session_id == 109
    world.driver.conduct()
    assert sorted(closed(member)) == list(range(100, member.cluster_session_id + 1))


@pytest.mark.parametrize("end", ["close", "session", "interrupt"])
def test_a_pool_that_closes_ends_sessions_that_are_being_opened(world: World, member: Gateway, end: str) -> None:
    pool = SessionPool.connect(world.context())
    Slow(world, member, 30 * MS)
    session = pool.open()
    pool.poll()
    begin_ns = world.clock.now_ns
    if end == "session":
        session.close()
    if end == "interrupt":
        with pytest.raises(KeyboardInterrupt), pool:
            raise KeyboardInterrupt
    pool.close()
    world.driver.conduct()
    assert sorted(closed(member)) == [100, 101]
    assert world.clock.now_ns - begin_ns < S
    assert session.is_closed
    assert pool.is_closed
    assert world.client.open_resources == []


def test_a_pool_whose_cluster_does_not_answer_closes_soon(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context())
    member.hooks["SessionConnectRequest"] = lambda request: None
    pool.open()
    pool.poll()
    begin_ns = world.clock.now_ns
    pool.close()
    assert S <= world.clock.now_ns - begin_ns <= 1_100 * MS
    assert world.client.open_resources == []


def test_a_pool_waits_as_long_as_late_answers_come(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context())
    Slow(world, member, 900 * MS, step_ns=900 * MS)
    for _ in range(3):
        pool.open()
    pool.poll()
    pool.close()
    world.driver.conduct()
    assert sorted(closed(member)) == [100, 101, 102, 103]


def test_a_pool_whose_leader_is_gone_does_not_wait_for_its_answer(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context())
    member.hooks["SessionConnectRequest"] = lambda request: None
    pool.open()
    pool.poll()
    member.stop()
    begin_ns = world.clock.now_ns
    pool.close()
    assert world.clock.now_ns - begin_ns < S


def test_a_closing_pool_calls_no_listener_and_opens_nothing(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context())
    (session,) = pool.open_all(1)
    refusals: list[ClosedError] = []

    def answer(request: Request) -> None:
        member.message(b"late", session_id=101)
        with pytest.raises(ClosedError) as refused:
            pool.open()
        refusals.append(refused.value)
        assert session.offer(b"x") < 0
        member.on_SessionConnectRequest(request)

    Slow(world, member, 30 * MS).answer = answer
    pool.open()
    pool.poll()
    pool.close()
    assert world.listener.messages == []
    assert len(refusals) == 1
    world.driver.conduct()
    assert sorted(closed(member)) == [100, 101, 102]


def test_an_answer_after_the_message_timeout_closes_its_session(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context())
    Slow(world, member, 6 * S)
    session = pool.open()
    poll(pool)
    world.advance(5 * S)
    poll(pool)
    assert isinstance(session.error, TimedOutError)
    world.advance(S)
    poll(pool)
    assert closed(member) == [101]


async def test_an_asyncio_pool_ends_what_was_being_opened(members: ThreadedMembers) -> None:
    gateway = members.member(0, "aeron:ipc", PatientMember.echo, client_kinds.Gateway)
    asked: list[Request] = []
    async with AsyncSessionPool.connect(**members.settings(correlate=key_of)) as pool:
        members.do(lambda: gateway.hooks.update(SessionConnectRequest=asked.append))
        opening = [asyncio.create_task(pool.open()) for _ in range(5)]
        await until(lambda: len(asked) == 5, "five requests to be under way")
        for task in opening:
            task.cancel()
        await asyncio.wait(opening)
        closing = asyncio.create_task(pool.aclose())
        await pause(0.05)

        def answer() -> None:
            for request in asked:
                gateway.on_SessionConnectRequest(request)

        members.do(answer)
        await closing
    await until(lambda: len(members.do(lambda: closed(gateway))) == 6, "six sessions to be closed")


# Connects


@pytest.mark.parametrize("delay_ns", [30 * MS, 700 * MS])
def test_a_connect_that_is_given_up_closes_a_session_that_opens_late(
    world: World, member: Gateway, delay_ns: int
) -> None:
    Slow(world, member, delay_ns)
    with AeronCluster.async_connect(world.context()) as connecting:
        while connecting.step is not ConnectStep.POLL_RESPONSE:
            assert connecting.poll() is None
    world.driver.conduct()
    assert closed(member) == [100]
    assert world.client.open_resources == []
    with pytest.raises(ClosedError, match="given up"):
        connecting.poll()


def test_a_connect_that_is_given_up_between_the_answer_and_the_end_closes_its_session(
    world: World, member: Gateway
) -> None:
    with AeronCluster.async_connect(world.context()) as connecting:
        while connecting.step is not ConnectStep.CONCLUDE_CONNECT:
            assert connecting.poll() is None
    world.driver.conduct()
    assert closed(member) == [100]


def test_a_connect_that_times_out_closes_a_session_that_opens_late(world: World, member: Gateway) -> None:
    Slow(world, member, 5_200 * MS)
    begin_ns = world.clock.now_ns
    with pytest.raises(TimedOutError, match="waited 5 s for an answer"):
        world.connect()
    assert world.clock.now_ns - begin_ns < 5_500 * MS
    world.driver.conduct()
    assert closed(member) == [100]
    assert world.client.open_resources == []


def test_a_connect_without_an_answer_waits_for_a_late_one_no_longer_than_its_own_timeout(
    world: World, member: Gateway
) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    for timeout, limit_ns in ((5.0, 6_100 * MS), (0.05, 150 * MS)):
        begin_ns = world.clock.now_ns
        with pytest.raises(TimedOutError):
            world.connect(message_timeout=timeout)
        assert world.clock.now_ns - begin_ns <= limit_ns
    assert world.client.open_resources == []


def test_no_poll_waits_for_a_late_answer(world: World, member: Gateway) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    connecting = AeronCluster.async_connect(world.context())
    while connecting.step is not ConnectStep.POLL_RESPONSE:
        connecting.poll()
    world.advance(5 * S)
    now_ns = world.clock.now_ns
    assert connecting.poll() is None
    assert world.clock.now_ns == now_ns
    world.advance(S)
    with pytest.raises(TimedOutError):
        connecting.poll()


def test_an_interrupted_connect_closes_a_session_that_opens_late(world: World, member: Gateway) -> None:
    Slow(world, member, 40 * MS)

    interrupts = [KeyboardInterrupt()]

    def interrupt() -> int:
        if interrupts and member.received("SessionConnectRequest"):
            raise interrupts.pop()
        return 0

    with pytest.raises(KeyboardInterrupt):
        world.connect(agent_invoker=interrupt)
    world.driver.conduct()
    assert closed(member) == [100]
    assert world.client.open_resources == []


def test_a_second_interrupt_ends_the_wait_for_a_late_answer(world: World, member: Gateway) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    connecting = AeronCluster.async_connect(world.context())
    while connecting.step is not ConnectStep.POLL_RESPONSE:
        connecting.poll()

    def interrupt() -> None:
        raise KeyboardInterrupt

    world.driver.add_task(interrupt)
    with pytest.raises(KeyboardInterrupt):
        connecting.close()
    with pytest.raises(ClosedError, match="given up"):
        connecting.poll()


async def test_a_cancelled_connect_closes_a_session_that_opens_late(members: ThreadedMembers) -> None:
    member = members.member(0, "aeron:ipc", PatientMember.echo)
    asked: list[Request] = []
    members.do(lambda: member.hooks.update(SessionConnectRequest=asked.append))
    connecting = asyncio.create_task(AsyncAeronCluster.connect(**members.settings()))
    await until(lambda: len(asked) == 1, "the request to be under way")
    connecting.cancel()
    await pause(0.02)
    members.do(lambda: member.on_SessionConnectRequest(asked[0]))
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: members.do(lambda: closed(member)) == [8], "the session to be closed")


def test_a_client_that_connects_again_closes_a_session_that_opens_late(world: World, member: Gateway) -> None:
    Slow(world, member, 30 * MS)
    client = reconnecting(world)
    while not member.received("SessionConnectRequest"):
        client.poll()
    client.close()
    world.driver.conduct()
    assert closed(member) == [100]


def reconnecting(world: World, **policy: Any) -> ReconnectingClient:
    context = world.context()
    return make(
        ReconnectingClient,
        lambda: AeronCluster.async_connect(context),
        context,
        key_of,
        ReconnectPolicy(**policy),
        Outbox(max_messages=10, max_bytes=1_000, policy=OutboxPolicy.BLOCK),
        ConnectionListener(),
        resend=False,
        now_ns=lambda: world.clock.now_ns,
    )


def test_no_poll_waits_for_a_probe_that_was_given_up(world: World, member: Gateway) -> None:
    client = reconnecting(world, probe_after=0.1)

    def poll_until(predicate: Callable[[], object], what: str) -> None:
        for _ in range(200):
            begin_ns = world.clock.now_ns
            client.poll()
            assert world.clock.now_ns == begin_ns, f"a poll waited until {what}"
            if predicate():
                return
            world.driver.conduct()
            world.advance(10 * MS)
        pytest.fail(f"not within 2 s: {what}")

    def probe(*, before: int) -> None:
        client.begin_request(b"%d:" % before, key=before)
        poll_until(lambda: len(asked) > before, "a probe asked for a session")

    def accept(request: Request) -> None:
        member.connect_egress(request)  # each probe has its own
        member.on_SessionConnectRequest(request)

    poll_until(lambda: client.cluster, "there is a session")
    asked: list[Request] = []
    member.hooks.update(SessionConnectRequest=asked.append, SessionMessageHeader=lambda request: None)
    probe(before=0)
    member.message(b"0:", session_id=100)  # a word: nobody needs that probe
    poll_until(lambda: client.request_counts.in_flight == 0, "the reply came")
    probe(before=1)
    accept(asked[1])
    poll_until(lambda: closed(member), "the session of the second probe was closed")
    accept(asked[0])
    poll_until(lambda: len(closed(member)) == 2, "that of the first was closed, which opened late")
    assert closed(member) == [101, 102]
    assert client.sessions == 1
    client.close()


async def test_a_client_that_is_closed_while_it_gives_up_a_probe_closes_its_session(members: ThreadedMembers) -> None:
    member = members.member(0, "aeron:ipc", PatientMember.echo)
    policy = client_kinds.probe_soon()
    settings = members.settings(correlate=key_of, policy=policy)
    async with AsyncReconnectingClient.connect(**settings) as client:
        asked: list[Request] = []
        member.be_silent()
        members.do(lambda: member.hooks.update(SessionConnectRequest=asked.append))
        request = asyncio.create_task(client.request(b"1:", key=1))
        await until(lambda: asked, "a probe")
        members.do(lambda: member.message(b"1:"))
        assert await request == b"1:"
        await until(lambda: client._probe is not None and client._probe.cancelling(), "the end of the probe")
        closing = asyncio.create_task(client.aclose())
        await pause(0.05)
        assert not closing.done()

        def answer() -> None:
            member.cluster_session_id = 9
            member.on_SessionConnectRequest(asked[0])

        members.do(answer)
        await closing
    await until(lambda: 9 in members.do(lambda: closed(member)), "the session of the probe to be closed")
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("kind", ["client", "pool"])
def test_a_session_that_opens_after_another_of_the_same_connect_is_closed(
    world: World, member: Gateway, kind: str
) -> None:
    asked: list[Request] = []
    member.hooks["SessionConnectRequest"] = asked.append
    connecting = AeronCluster.async_connect(world.context())
    while not asked:
        assert connecting.poll() is None
    member.ingress.close()  # gone, as its client sees it
    while connecting.step is ConnectStep.POLL_RESPONSE:
        connecting.poll()
    again = Gateway(world.driver, 0, MEMBER_0)
    again.cluster_session_id = 299
    while (client := connecting.poll()) is None:
        world.driver.conduct()
    assert client.cluster_session_id == 300
    pool = SessionPool._over(client, None, 10, None, None, lambda: None) if kind == "pool" else None
    for _ in range(2):  # a leader may say it twice
        again.session_event(asked[0]["correlation_id"], OK, session_id=77)
        again.session_event(asked[0]["correlation_id"] + 1_000, OK, session_id=78)  # of another client
    for _ in range(5):
        client.poll_egress() if pool is None else pool.poll()
        world.driver.conduct()
    assert closed(again) == [77]
    assert (world.listener.events, client.is_closed) == ([], False)
    again.message(b"to it", session_id=300)
    client.poll_egress() if pool is None else pool.poll()
    assert world.listener.messages == [b"to it"]


def test_the_answer_to_an_earlier_request_of_a_connect_is_closed(world: World, member: Gateway) -> None:
    asked: list[Request] = []
    member.hooks["SessionConnectRequest"] = asked.append
    connecting = AeronCluster.async_connect(world.context())
    while not asked:
        assert connecting.poll() is None
    member.ingress.close()  # gone, as its client sees it
    while connecting.step is ConnectStep.POLL_RESPONSE:
        connecting.poll()
    again = Gateway(world.driver, 0, MEMBER_0)
    again.cluster_session_id = 299

    def answer_both(request: Request) -> None:
        again.connect_egress(request)
        again.session_event(asked[0]["correlation_id"], OK, session_id=77)
        again.on_SessionConnectRequest(request)

    again.hooks["SessionConnectRequest"] = answer_both
    while (client := connecting.poll()) is None:
        world.driver.conduct()
    world.driver.conduct()
    assert client.cluster_session_id == 300
    assert closed(again) == [77]


def test_no_poll_waits_where_another_member_refuses(world: World, member: Gateway) -> None:
    asked: list[Request] = []
    member.hooks["SessionConnectRequest"] = asked.append
    connecting = AeronCluster.async_connect(world.context())
    while not asked:
        assert connecting.poll() is None
    member.ingress.close()
    while connecting.step is ConnectStep.POLL_RESPONSE:
        connecting.poll()
    again = Gateway(world.driver, 0, MEMBER_0)

    def refuse(request: Request) -> None:
        again.connect_egress(request)
        again.session_event(request["correlation_id"], ERROR, LIMIT, session_id=-1)

    again.hooks["SessionConnectRequest"] = refuse
    while not again.received("SessionConnectRequest"):
        assert connecting.poll() is None
        world.driver.conduct()
    now_ns = world.clock.now_ns
    for _ in range(5):
        assert connecting.poll() is None
        world.driver.conduct()
    assert world.clock.now_ns == now_ns
    world.advance(S)
    with pytest.raises(SessionLimitError):
        connecting.poll()
    assert world.client.open_resources == []


def test_a_late_answer_may_need_the_users_invoker(world: World, member: Gateway) -> None:
    asked: list[Request] = []
    member.hooks["SessionConnectRequest"] = asked.append

    def invoke() -> None:
        if connecting.step is ConnectStep.POLL_RESPONSE and ends:
            while asked:
                member.on_SessionConnectRequest(asked.pop())

    ends: list[bool] = []
    connecting = AeronCluster.async_connect(world.context(agent_invoker=invoke))
    while not asked:
        connecting.poll()
    ends.append(True)
    connecting.close()
    world.driver.conduct()
    assert closed(member) == [100]


def test_a_closing_pool_hands_no_foreign_message_to_a_listener(world: World, member: Gateway) -> None:
    heard: list[bytes] = []

    class Listening(Collecting):
        def on_extension_message(self, *message: Any) -> None:
            heard.append(message[-1])

    pool = SessionPool.connect(world.context(listener=Listening()))

    def answer(request: Request) -> None:
        member.send_bytes(bytes([8, 0, 1, 0, 9, 3, 1, 0]) + bytes(8))
        member.on_SessionConnectRequest(request)

    Slow(world, member, 30 * MS).answer = answer
    pool.open()
    pool.poll()
    pool.close()
    world.driver.conduct()
    assert sorted(closed(member)) == [100, 101]
    assert heard == []
