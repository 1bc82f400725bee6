"""The reconnecting client for asyncio, against scripted members over a media driver in this process."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from container.client import (
    AsyncReconnectingClient,
    ConnectionState,
    OutboxPolicy,
    ReconnectPolicy,
)
from container.client.egress_handler import EgressHandler
from container.errors import (
    ClosedError,
    ConfigurationError,
    ContainerError,
    MessageTooLongError,
    RequestClosedError,
    TimedOutError,
)
from tests.client_kinds import FULL, QUICK, Told
from tests.limits import LIMIT_S
from tests.pauses import pause, until
from tests.threaded_members import PatientMember, ThreadedMembers, key_of


@pytest.fixture
def member(members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo)


def connecting(members: ThreadedMembers, **more: Any) -> AsyncReconnectingClient:
    return AsyncReconnectingClient.connect(**members.settings(**{"correlate": key_of, "policy": QUICK} | more))


async def lose_session(client: AsyncReconnectingClient, member: PatientMember) -> None:
    """The session ends, and the cluster has no room for another."""
    member.end_session(refuse=FULL)
    await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")


async def test_what_is_sent_without_a_session_waits_in_its_order(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members) as client:
        await lose_session(client, member)
        sending = [asyncio.create_task(client.send(b"%d" % number)) for number in range(300)]
        await until(lambda: client.waiting == 300, "all to wait")
        member.accept_again()
        await asyncio.gather(*sending)
        assert [(await client.receive()).payload for _ in sending] == [b"%d" % number for number in range(300)]
        assert client.waiting == 0


async def test_a_full_cluster_is_tried_again_until_there_is_room(
    members: ThreadedMembers, member: PatientMember
) -> None:
    members.do(lambda: member.refuse(*FULL))
    opening = asyncio.create_task(connecting(members).__aenter__())
    await until(lambda: len(members.do(lambda: member.received("SessionConnectRequest"))) >= 3, "some attempts")
    assert not opening.done()
    member.accept_again()
    client = await opening
    await client.send(b"x")
    await client.aclose()


async def test_a_cancelled_send_leaves_nothing(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members) as client:
        await lose_session(client, member)
        sending = [asyncio.create_task(client.send(b"%d" % number)) for number in range(20)]
        await until(lambda: client.waiting == 20, "all to wait")
        for task in sending[::2]:
            task.cancel()
        member.accept_again()
        await asyncio.wait(sending)
        assert [(await client.receive()).payload for _ in sending[1::2]] == [b"%d" % n for n in range(1, 20, 2)]


async def test_senders_that_wait_for_room_keep_their_order(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members, outbox_messages=1, outbox_policy=OutboxPolicy.BLOCK) as client:
        await lose_session(client, member)
        tasks = []
        for number in range(8):
            tasks.append(asyncio.create_task(client.send(b"%d" % number)))
            await pause(0.001)
        tasks[0].cancel()  # it has the only room
        tasks[3].cancel()  # it waits
        await pause(0.001)
        tasks.append(asyncio.create_task(client.send(b"8")))
        member.accept_again()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [n in (0, 3) for n in range(9)]
        received = [bytes((await client.receive()).payload) for _ in range(7)]
        assert received == [b"1", b"2", b"4", b"5", b"6", b"7", b"8"]


async def test_what_a_closed_session_had_sent_can_still_be_received(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members) as client:
        for number in range(50):
            members.do(partial(member.message, b"%d" % number))
        member.end_session()
        await until(lambda: client.sessions == 2, "the next session")
        await client.send(b"of the next")
        received = [(await client.receive()).payload for _ in range(51)]
        assert received == [*(b"%d" % number for number in range(50)), b"of the next"]


async def test_a_close_ends_all_that_waits(members: ThreadedMembers, member: PatientMember) -> None:
    member.be_silent()
    client = await connecting(members, outbox_messages=1).__aenter__()
    request = asyncio.create_task(client.request(b"7:", key=7))
    await until(member.sent, "the request to be in flight")
    await lose_session(client, member)
    waiting = [asyncio.create_task(call) for call in (client.send(b"x"), client.send(b"y"), client.receive())]
    await pause(0.01)
    await client.aclose()
    await client.aclose()
    with pytest.raises(RequestClosedError):
        await request
    for task in waiting:
        with pytest.raises(ClosedError, match="closed by this client"):
            await task
    assert repr(client).startswith("<AsyncReconnectingClient closed outbox=0")


async def test_callers_errors_are_theirs(members: ThreadedMembers, member: PatientMember) -> None:
    client = connecting(members)
    with pytest.raises(ClosedError, match="not connected yet"):
        await client.send(b"x")
    async with client:
        with pytest.raises(MessageTooLongError, match="the outbox takes 16777216 bytes in all"):
            await client.send(bytes(17 * 1024 * 1024))
    with pytest.raises(ConfigurationError, match="outbox|max_messages"):
        connecting(members, outbox_messages=0)
    with pytest.raises(ConfigurationError, match="takes an EgressListener in Python"):
        connecting(members, listener=EgressHandler())


async def test_what_nobody_has_foreseen_ends_it_and_is_reported(
    members: ThreadedMembers, member: PatientMember
) -> None:
    def fail() -> str:
        raise ZeroDivisionError("of resolve")

    class Refusing(Told):
        def on_closed(self, error: ContainerError) -> None:
            raise KeyError

    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.append(type(context["exception"]).__name__)
    )
    with pytest.raises(ClosedError, match="the attempt to connect failed: ZeroDivisionError: of resolve"):
        async with connecting(members, resolve=fail, callbacks=Refusing()):
            pass
    assert reported == ["ZeroDivisionError", "KeyError"]


async def test_timed_out_attempts_are_tried_again(members: ThreadedMembers) -> None:
    opening = asyncio.create_task(connecting(members, message_timeout=0.1).__aenter__())
    await asyncio.wait([opening], timeout=0.4)
    assert not opening.done()
    await asyncio.to_thread(members.member, 0, "aeron:ipc", PatientMember.echo)
    client = await opening
    assert isinstance(client.error, TimedOutError | None)
    assert await client.request(b"7:", key=7, timeout=LIMIT_S) == b"7:"
    await client.aclose()


async def test_a_resolve_that_waits_holds_up_no_loop(members: ThreadedMembers) -> None:
    waits, may_go = threading.Event(), threading.Event()

    def resolve() -> str:
        waits.set()
        assert may_go.wait(LIMIT_S), "the loop has not gone on meanwhile"
        raise OSError("no such name")

    client = connecting(members, resolve=resolve, policy=ReconnectPolicy(max_attempts=1))
    opening = asyncio.create_task(client.__aenter__())
    await until(waits.is_set, "the attempt")
    may_go.set()
    with pytest.raises(ClosedError, match="no such name"):
        await opening


async def test_a_client_whose_task_is_cancelled_is_closed_and_leaves_nobody_waiting(
    members: ThreadedMembers, member: PatientMember
) -> None:
    member.be_silent()
    told = Told()
    async with connecting(members, callbacks=told) as client:
        waiting = [asyncio.create_task(client.receive()), asyncio.create_task(client.request(b"1:", key=1))]
        await until(member.sent, "the request")
        assert client._supervisor is not None
        client._supervisor.cancel()  # as asyncio.run() does with all tasks at its end
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in ended] == [ClosedError, RequestClosedError]
        assert (client.is_closed, str(client.error)) == (True, "the client's task was cancelled")
        with pytest.raises(ClosedError, match="the client's task was cancelled"):
            await client.send(b"late")
    assert told.calls == [("closed", "the client's task was cancelled")]
