"""The asyncio client that connects again, against scripted members over a media driver in this process."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import container.aeron
from container.aeron import MediaDriver
from container.client import (
    AsyncReconnectingClient,
    ConnectionListener,
    ConnectionState,
    EgressListener,
    OutboxPolicy,
    ReconnectPolicy,
    RequestCounts,
    aconnect,
    areconnecting,
    async_reconnecting,
)
from container.client.egress_handler import EgressHandler
from container.errors import (
    AuthenticationError,
    ClosedError,
    ClusterError,
    ConfigurationError,
    ContainerError,
    MessageTooLongError,
    OutboxFullError,
    Outcome,
    RequestClosedError,
    RequestTimedOutError,
    SendTimedOutError,
    TimedOutError,
)
from tests import ingress_member
from tests.limits import LIMIT_S
from tests.pauses import pause, until
from tests.threaded_members import PatientMember, ThreadedMembers, key_of

QUICK = ReconnectPolicy(first_delay=0.02, max_delay=0.1)


@pytest.fixture
def member(members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo)


class Told(ConnectionListener):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_disconnected(self, error: ContainerError) -> None:
        self.calls.append(("disconnected", str(error)))

    def on_reconnected(self, attempts: int) -> None:
        self.calls.append(("reconnected", attempts))

    def on_leader_changed(self, leader_member_id: int, leadership_term_id: int) -> None:
        self.calls.append(("leader", leader_member_id, leadership_term_id))

    def on_closed(self, error: ContainerError) -> None:
        self.calls.append(("closed", str(error)))


def connecting(members: ThreadedMembers, **more: Any) -> AsyncReconnectingClient:
    return areconnecting(**members.settings(**{"correlate": key_of, "policy": QUICK} | more))


def has_sessions(client: AsyncReconnectingClient, count: int) -> bool:
    return client.sessions == count


def end_session(members: ThreadedMembers, member: PatientMember, *, refuse: tuple[int, str] | None = None) -> None:
    """The cluster closes the session; it takes a new one, or answers each request with a refusal."""

    def end() -> None:
        if refuse is not None:
            member.refuse(*refuse)
        member.session_event(5, ingress_member.CLOSED, "TIMEOUT")

    members.do(end)


def be_silent(members: ThreadedMembers, member: PatientMember) -> None:
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))


def accept_again(members: ThreadedMembers, member: PatientMember) -> None:
    members.do(lambda: member.hooks.pop("SessionConnectRequest", None))


FULL = (ingress_member.ERROR, "concurrent session limit")

WITHOUT_MEMBERS: dict[str, Any] = {
    "ingress_channel": "aeron:udp",
    "ingress_endpoints": "0=localhost:1",
    "egress_channel": "aeron:udp?endpoint=localhost:0",
    "embedded_driver": True,
    "message_timeout": 0.2,
    "policy": ReconnectPolicy(first_delay=0.01, max_delay=0.01, max_attempts=3),
}
"""Settings of a client that never has a session."""


def count_drivers(monkeypatch: pytest.MonkeyPatch) -> list[MediaDriver]:
    """The embedded drivers that are launched from now on."""
    drivers: list[MediaDriver] = []
    launch = MediaDriver.launch_embedded

    class Counting:
        @staticmethod
        def launch_embedded(**settings: Any) -> MediaDriver:
            drivers.append(launch(**settings))
            return drivers[-1]

    monkeypatch.setattr(container.aeron, "MediaDriver", Counting)
    return drivers


async def test_it_sends_and_receives_over_sessions_that_end(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    async with connecting(members, callbacks=told) as client:
        assert (client.state, client.sessions) == (ConnectionState.CONNECTED, 1)
        for session in range(1, 4):
            await client.send(b"of session %d" % session)
            assert (await client.receive()).payload == b"of session %d" % session
            end_session(members, member)
            await until(partial(has_sessions, client, session + 1), "the next session")
        assert await client.request(b"7:", key=7) == b"7:"
    assert client.is_closed
    assert [message async for message in client] == []
    lost = ("disconnected", "the session ended: closed by the cluster: TIMEOUT")
    assert told.calls == [*[lost, ("reconnected", 1)] * 3, ("closed", "closed by this client")]


async def test_what_is_sent_without_a_session_waits_in_its_order(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members) as client:
        end_session(members, member, refuse=FULL)
        await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")
        sending = [asyncio.create_task(client.send(b"%d" % number)) for number in range(300)]
        await until(lambda: client.waiting == 300, "all to wait")
        accept_again(members, member)
        await asyncio.gather(*sending)
        assert [(await client.receive()).payload for _ in sending] == [b"%d" % number for number in range(300)]
        assert client.waiting == 0


async def test_requests_in_flight_are_sent_again_in_the_next_session_or_end(
    members: ThreadedMembers, member: PatientMember
) -> None:
    be_silent(members, member)
    async with connecting(members, resend=True) as client:
        again = [asyncio.create_task(client.request(b"%d:" % number, key=number)) for number in range(100)]
        once = asyncio.create_task(client.request(b"100:", key=100, idempotent=False))
        await until(lambda: len(members.do(member.payloads)) == 101, "all to be in flight")
        later = asyncio.create_task(client.send(b"later"))
        members.do(member.echo)
        end_session(members, member)
        with pytest.raises(RequestClosedError, match="closed by the cluster: TIMEOUT") as ended:
            await once
        assert ended.value.outcome == Outcome.UNKNOWN
        assert await asyncio.gather(*again) == [b"%d:" % number for number in range(100)]
        await later
        resent = [payload for payload in members.do(member.payloads)[101:] if payload != b"later"]
        assert resent == [b"%d:" % number for number in range(100)]
        assert client.request_counts == RequestCounts(
            sent=101, answered=100, resent=100, unknown=1, unmatched=0, in_flight=0
        )


async def test_a_password_that_is_no_longer_taken_ends_it_and_all_that_waits(
    members: ThreadedMembers, member: PatientMember
) -> None:
    told = Told()
    be_silent(members, member)
    async with connecting(members, callbacks=told) as client:
        request = asyncio.create_task(client.request(b"7:", key=7, idempotent=True))
        await until(lambda: members.do(member.payloads), "the request to be in flight")
        receive = asyncio.create_task(client.receive())
        await pause()
        end_session(members, member, refuse=(ingress_member.AUTHENTICATION_REJECTED, "no"))
        with pytest.raises(RequestClosedError, match="AUTHENTICATION_REJECTED: no"):
            await request
        for call in (receive, client.send(b"x"), client.request(b"8:", key=8), client.receive()):
            with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no") as closed:
                await call
            assert closed.value.outcome == Outcome.NOT_DONE
        assert isinstance(client.error, AuthenticationError)
    assert [call[0] for call in told.calls] == ["disconnected", "closed"]


async def test_the_first_connect_raises_what_no_retry_can_help(members: ThreadedMembers, member: PatientMember) -> None:
    members.do(lambda: member.refuse(ingress_member.AUTHENTICATION_REJECTED, "no"))
    with pytest.raises(AuthenticationError):
        async with connecting(members):
            pass


async def test_a_full_cluster_is_tried_again_until_there_is_room(
    members: ThreadedMembers, member: PatientMember
) -> None:
    members.do(lambda: member.refuse(*FULL))
    opening = asyncio.create_task(connecting(members).__aenter__())
    await until(lambda: len(members.do(lambda: member.received("SessionConnectRequest"))) >= 3, "some attempts")
    assert not opening.done()
    accept_again(members, member)
    client = await opening
    await client.send(b"x")
    await client.aclose()


async def test_attempts_have_a_limit(members: ThreadedMembers) -> None:
    begin = time.monotonic()
    policy = ReconnectPolicy(first_delay=0.01, max_delay=0.02, max_attempts=3)
    with pytest.raises(ClosedError, match="no session after 3 attempts: cluster connect: waited 0.1 s for"):
        async with connecting(members, message_timeout=0.1, policy=policy):
            pass
    assert time.monotonic() - begin < LIMIT_S / 2


async def test_names_are_resolved_anew_for_each_attempt(members: ThreadedMembers) -> None:
    endpoint = members.take_endpoint()
    members.member(0, f"aeron:udp?endpoint={endpoint}", PatientMember.echo)
    endpoints: Iterator[str | OSError] = iter(
        ["0=no.such.host.invalid:9010", socket.gaierror("try again"), f"0={endpoint}"]
    )

    def resolve() -> str:
        found = next(endpoints)
        if isinstance(found, OSError):
            raise found
        return found

    async with connecting(
        members,
        ingress_channel="aeron:udp",
        egress_channel="aeron:udp?endpoint=localhost:0",
        ingress_endpoints="0=no.such.host.invalid:9010",
        resolve=resolve,
    ) as client:
        assert await client.request(b"7:", key=7) == b"7:"


async def test_time_is_up_whether_there_is_a_session_or_not(members: ThreadedMembers, member: PatientMember) -> None:
    be_silent(members, member)
    async with connecting(members) as client:
        with pytest.raises(RequestTimedOutError, match="no reply with key 7 within 0.05 s"):
            await client.request(b"7:", key=7, timeout=0.05)
        end_session(members, member, refuse=FULL)
        await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")
        with pytest.raises(SendTimedOutError, match="not accepted within 0.05 s"):
            await client.send(b"x", timeout=0.05)
        with pytest.raises(SendTimedOutError):
            await client.request(b"7:", key=7, timeout=0.05)
        assert client.waiting == 0
        assert client.request_counts[:4] == (1, 0, 0, 1)


async def test_a_cancelled_send_leaves_nothing(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members) as client:
        end_session(members, member, refuse=FULL)
        await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")
        sending = [asyncio.create_task(client.send(b"%d" % number)) for number in range(20)]
        await until(lambda: client.waiting == 20, "all to wait")
        for task in sending[::2]:
            task.cancel()
        accept_again(members, member)
        await asyncio.wait(sending)
        assert [(await client.receive()).payload for _ in sending[1::2]] == [b"%d" % n for n in range(1, 20, 2)]


@pytest.mark.parametrize("policy", list(OutboxPolicy))
async def test_a_full_outbox_does_what_its_policy_says(
    members: ThreadedMembers, member: PatientMember, policy: OutboxPolicy
) -> None:
    async with connecting(members, outbox_policy=policy, outbox_messages=2) as client:
        end_session(members, member, refuse=FULL)
        await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")
        sending = [asyncio.create_task(client.send(b"%d" % number)) for number in range(5)]
        for _ in range(5):
            await pause()
        assert client.waiting == 2
        accept_again(members, member)
        results = await asyncio.gather(*sending, return_exceptions=True)
        sent = [number for number, result in enumerate(results) if result is None]
        assert (
            sent
            == {
                OutboxPolicy.REFUSE: [0, 1],
                OutboxPolicy.BLOCK: [0, 1, 2, 3, 4],
                OutboxPolicy.DROP_OLDEST: [3, 4],
            }[policy]
        )
        assert all(isinstance(result, OutboxFullError) for result in results if result is not None)
        assert [(await client.receive()).payload for _ in sent] == [b"%d" % number for number in sent]


async def test_senders_that_wait_for_room_keep_their_order(members: ThreadedMembers, member: PatientMember) -> None:
    async with connecting(members, outbox_messages=1, outbox_policy=OutboxPolicy.BLOCK) as client:
        end_session(members, member, refuse=FULL)
        await until(lambda: client.state is not ConnectionState.CONNECTED, "the session's end")
        tasks = []
        for number in range(8):
            tasks.append(asyncio.create_task(client.send(b"%d" % number)))
            await pause(0.001)
        tasks[0].cancel()  # it has the only room
        tasks[3].cancel()  # it waits
        await pause(0.001)
        tasks.append(asyncio.create_task(client.send(b"8")))
        accept_again(members, member)
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
        end_session(members, member)
        await until(lambda: client.sessions == 2, "the next session")
        await client.send(b"of the next")
        received = [(await client.receive()).payload for _ in range(51)]
        assert received == [*(b"%d" % number for number in range(50)), b"of the next"]


async def test_a_close_ends_all_that_waits(members: ThreadedMembers, member: PatientMember) -> None:
    be_silent(members, member)
    client = await connecting(members, outbox_messages=1).__aenter__()
    request = asyncio.create_task(client.request(b"7:", key=7))
    await until(lambda: members.do(member.payloads), "the request to be in flight")
    end_session(members, member, refuse=FULL)
    await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")
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
    be_silent(members, member)
    client = connecting(members)
    with pytest.raises(ClosedError, match="not connected yet"):
        await client.send(b"x")
    async with client:
        assert client.client is not None
        with pytest.raises(MessageTooLongError):
            await client.send(bytes(client.client.max_message_length + 1))
        first = asyncio.create_task(client.request(b"7:", key=7))
        await until(lambda: client.request_counts.in_flight and members.do(member.payloads), "the request")
        with pytest.raises(ClusterError, match="a request with key 7 is already waiting"):
            await client.request(b"7:", key=7)
        with pytest.raises(MessageTooLongError, match="the outbox takes 16777216 bytes in all"):
            await client.send(bytes(17 * 1024 * 1024))
        members.do(lambda: member.message(b"7:done"))
        assert await first == b"7:done"
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


async def test_a_connect_that_is_given_up_leaves_nothing(members: ThreadedMembers) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), connecting(members):
            pass
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_new_leader_is_told(members: ThreadedMembers, member: PatientMember) -> None:
    told = Told()
    heard: list[int] = []

    class Listening(EgressListener):
        def on_new_leader(self, cluster_session_id: int, leadership_term_id: int, *rest: Any) -> None:
            heard.append(leadership_term_id)

    async with connecting(members, callbacks=told, listener=Listening()) as client:

        def elect() -> None:
            member.leadership_term_id = 9
            member.new_leader("")

        members.do(elect)
        await until(lambda: heard, "the new leader")
        assert await client.request(b"7:", key=7) == b"7:"
    assert ("leader", 0, 9) in told.calls
    assert heard == [9]


async def test_timed_out_attempts_are_tried_again(members: ThreadedMembers) -> None:
    opening = asyncio.create_task(connecting(members, message_timeout=0.1).__aenter__())
    await asyncio.wait([opening], timeout=0.4)
    assert not opening.done()
    await asyncio.to_thread(members.member, 0, "aeron:ipc", PatientMember.echo)
    client = await opening
    assert isinstance(client.error, TimedOutError | None)
    assert await client.request(b"7:", key=7, timeout=LIMIT_S) == b"7:"
    await client.aclose()


# attempts


def fail_first_attempt(monkeypatch: pytest.MonkeyPatch, error: OSError) -> list[int]:
    """The first attempt to connect raises an error; returns a list that grows with each attempt."""
    attempts: list[int] = []
    begin = aconnect

    def attempt(*arguments: Any, **settings: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise error
        return begin(*arguments, **settings)

    monkeypatch.setattr(async_reconnecting, "aconnect", attempt)
    return attempts


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.ENOMEM, errno.EAGAIN])
@pytest.mark.usefixtures("member")
async def test_an_os_error_that_may_pass_is_tried_again(
    members: ThreadedMembers, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    attempts = fail_first_attempt(monkeypatch, OSError(number, os.strerror(number)))
    async with connecting(members) as client:
        assert (client.sessions, len(attempts)) == (1, 2)


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), NotADirectoryError(errno.ENOTDIR, "file")])
@pytest.mark.usefixtures("member")
async def test_an_os_error_that_needs_a_hand_ends_the_client_at_once(
    members: ThreadedMembers, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    attempts = fail_first_attempt(monkeypatch, error)
    with pytest.raises(ClusterError, match=type(error).__name__) as ended:
        async with connecting(members):
            pass
    assert ended.value.__cause__ is error
    assert not ended.value.is_retryable
    assert len(attempts) == 1


async def test_the_embedded_driver_is_one_for_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = count_drivers(monkeypatch)
    with pytest.raises(ClosedError, match="no session after 3 attempts"):
        async with areconnecting(**WITHOUT_MEMBERS):
            pass
    assert [driver.is_closed for driver in drivers] == [True]


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
    be_silent(members, member)
    told = Told()
    async with connecting(members, callbacks=told) as client:
        waiting = [asyncio.create_task(client.receive()), asyncio.create_task(client.request(b"1:", key=1))]
        await until(lambda: members.do(member.payloads), "the request")
        assert client._supervisor is not None
        client._supervisor.cancel()  # as asyncio.run() does with all tasks at its end
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in ended] == [ClosedError, RequestClosedError]
        assert (client.is_closed, str(client.error)) == (True, "the client's task was cancelled")
        with pytest.raises(ClosedError, match="the client's task was cancelled"):
            await client.send(b"late")
    assert told.calls == [("closed", "the client's task was cancelled")]


async def test_a_request_that_waits_in_the_outbox_until_its_time_is_up_was_not_sent(
    members: ThreadedMembers, member: PatientMember
) -> None:
    async with connecting(members) as client:
        end_session(members, member, refuse=FULL)
        await until(lambda: client.state is not ConnectionState.CONNECTED, "the end of the session")
        with pytest.raises(
            SendTimedOutError, match=r"was not accepted within 0\.05 s: (connecting|waiting), .*"
        ) as late:
            await client.request(b"1:", key=1, timeout=0.05)
        assert late.value.outcome is Outcome.NOT_DONE
        accept_again(members, member)
        await until(partial(has_sessions, client, 2), "the next session")
        assert await client.request(b"2:", key=2) == b"2:"
        assert b"1:" not in members.do(member.payloads)
