"""What all kinds of clients do alike, against scripted members over a media driver in this process."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

import container.aeron
from container.aeron import MediaDriver
from container.client import ClientState, EgressListener, OutboxPolicy, ReconnectPolicy, RequestCounts
from container.errors import (
    AuthenticationError,
    ClosedError,
    ClusterError,
    ConfigurationError,
    LeaderChangedError,
    MessageTooLongError,
    OutboxFullError,
    Outcome,
    OutcomeUnknownError,
    RequestClosedError,
    RequestTimedOutError,
    SendTimedOutError,
    TimedOutError,
)
from tests import ingress_member
from tests.client_kinds import (
    AWAITED,
    AWAITED_ONCE,
    CONNECTING_ONCE,
    KINDS,
    RECONNECTING,
    AnyClient,
    Gateway,
    Kind,
    Told,
    TwoMembers,
    await_threads,
    probe_soon,
)
from tests.limits import LIMIT_S
from tests.pauses import pause, until
from tests.threaded_members import PatientMember, ThreadedMembers, key_of

every_kind, awaited_kinds, kinds_that_are_awaited_once, kinds_that_connect_once, reconnecting_kinds = (
    pytest.mark.parametrize("kind", kinds, ids=str)
    for kinds in (KINDS, AWAITED, AWAITED_ONCE, CONNECTING_ONCE, RECONNECTING)
)
REJECTED = (ingress_member.AUTHENTICATION_REJECTED, "no")


@pytest.fixture
def run(kind: Kind) -> Callable[[Coroutine[Any, Any, None]], None]:
    return kind.run


@pytest.fixture(autouse=True)
def _runs_in_the_loop_of_its_kind_and_leaves_no_thread(run: object) -> Iterator[None]:
    yield
    await_threads()


@pytest.fixture
def member(kind: Kind, members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo, kind.member)


# Requests


@every_kind
async def test_each_request_gets_its_own_reply_in_any_order_and_other_messages_are_received(
    kind: Kind, member: PatientMember
) -> None:
    member.be_silent()
    async with kind.connecting(member.members) as client:
        requests = [client.ask(b"%d:" % key, b"hello", key=key) for key in range(500)]
        await client.in_flight(member, 500)
        assert client.counts.in_flight == 500

        def answer() -> None:
            for payload in reversed(member.payloads()):
                member.message(payload)
            for payload in (b"no reply", b"999:nobody's"):
                member.message(payload)
            member.echo()

        member.members.do(answer)
        assert await asyncio.gather(*requests) == [b"%d:hello" % key for key in range(500)]
        assert await client.receive() == b"no reply"
        await client.until(lambda: client.counts.unmatched == 1, "the reply to nobody")
        assert await client.request(b"7:", b"how much?", key=7) == b"7:how much?"
        assert client.counts == RequestCounts(sent=501, answered=501, resent=0, unknown=0, unmatched=1, in_flight=0)


@every_kind
async def test_a_late_reply_never_answers_the_next_request_with_its_key(kind: Kind, member: PatientMember) -> None:
    member.be_silent()
    async with kind.connecting(member.members) as client:
        with pytest.raises(RequestTimedOutError, match="no reply with key 7 within 0.05 s") as late:
            await client.request(b"7:", key=7, timeout=0.05)
        assert late.value.outcome == Outcome.UNKNOWN
        assert isinstance(late.value, TimeoutError)
        assert isinstance(late.value, OutcomeUnknownError)
        for call in (client.request, client.ask):
            with pytest.raises(ClusterError, match="key 7 was that of a request whose reply may still come") as refused:
                await call(b"7:again", key=7)
            assert refused.value.outcome == Outcome.NOT_DONE
        await client.until(lambda: member.sent() == [b"7:"], "the first request, and no other, at the member")
        member.members.do(lambda: member.message(b"7:late"))
        await client.until(lambda: client.counts.unmatched == 1, "the late reply")
        member.members.do(member.echo)
        assert await client.request(b"7:again", key=7) == b"7:again"
        assert client.counts == RequestCounts(sent=2, answered=1, resent=0, unknown=1, unmatched=1, in_flight=0)
        await client.send(b"x")
        assert await client.receive() == b"x"  # and not the late reply


@awaited_kinds
async def test_a_cancelled_request_leaves_nothing_but_its_key_to_be_refused(kind: Kind, member: PatientMember) -> None:
    member.be_silent()
    async with kind.connecting(member.members) as client:
        requests = await client.ask_all(range(50))
        await client.in_flight(member, 50)
        for request in requests:
            request.cancel()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert client.counts == RequestCounts(sent=50, answered=0, resent=0, unknown=50, unmatched=0, in_flight=0)
        for key in range(50):
            with pytest.raises(ClusterError, match=f"key {key} was that of a request whose reply may still come"):
                await client.request(b"%d:again" % key, key=key)
        for key in range(50):
            member.members.do(partial(member.message, b"%d:late" % key))
        await client.until(lambda: client.counts.unmatched == 50, "the late replies")
        member.members.do(member.echo)
        again = await asyncio.gather(*(client.request(b"%d:again" % key, key=key) for key in range(50)))
        assert again == [b"%d:again" % key for key in range(50)]


@every_kind
async def test_requests_need_correlate_and_keys_of_their_own(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members, correlate=None) as client:
        with pytest.raises(ConfigurationError, match=r"connect(ing)?\(correlate=...\)"):
            await client.request(b"7:", key=7)
        always_counts = kind.name not in ("blocking", "pool", "asyncio-pool")
        assert client.counts == (RequestCounts(0, 0, 0, 0, 0, 0) if always_counts else None)
        await client.send(b"7:")
        assert await client.receive() == b"7:"
    member.be_silent()
    async with kind.connecting(member.members) as client:
        first = client.ask(b"7:", key=7)
        await client.until(lambda: client.counts.in_flight == 1, "the request")
        with pytest.raises(ClusterError, match="a request with key 7 is already waiting for its reply"):
            await client.request(b"7:", key=7)
        member.members.do(lambda: member.message(b"7:done"))
        assert await first == b"7:done"


def fail() -> object:
    raise ZeroDivisionError


class Unhashable:
    """A key that cannot be one."""

    __hash__ = None  # type: ignore[assignment]


class Incomparable:
    """A key that others cannot be compared with."""

    def __hash__(self) -> int:
        return hash(1)

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


@awaited_kinds
@pytest.mark.parametrize("odd", [fail, Unhashable, Incomparable])
async def test_a_correlate_that_fails_costs_that_message_alone_and_is_reported(
    kind: Kind, member: PatientMember, odd: Callable[[], object]
) -> None:
    def correlate(payload: bytes) -> Any:
        return odd() if payload == b"odd" else key_of(payload)

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    member.be_silent()
    async with kind.connecting(member.members, correlate=correlate) as client:
        requests = await client.ask_all(range(190))
        await client.in_flight(member, 190)

        def answer() -> None:
            for payload in (b"first", b"odd", *(b"%d:" % key for key in range(190)), b"last"):
                member.message(payload)

        member.members.do(answer)
        assert await asyncio.gather(*requests) == [b"%d:" % key for key in range(190)]
        assert [await client.receive() for _ in range(3)] == [b"first", b"odd", b"last"]
    kinds = TypeError if odd is Unhashable else ZeroDivisionError
    assert [type(context["exception"]) for context in reported] == [kinds]
    if "pool" not in kind.name:
        assert "correlate() failed" in reported[0]["message"]


@every_kind
async def test_a_timeout_names_the_key_that_came_instead(kind: Kind, member: PatientMember) -> None:
    member.echo()
    async with kind.connecting(member.members) as client:
        with pytest.raises(RequestTimedOutError, match=r"no reply with key '7' within 0.5 s; .* returned 7 for"):
            await client.request(b"7:", key="7", timeout=0.5)


@every_kind
async def test_a_timeout_accuses_no_key_that_another_request_may_have(kind: Kind, member: PatientMember) -> None:
    member.echo()
    async with kind.connecting(member.members) as client:
        with pytest.raises(RequestTimedOutError, match="no reply with key 8 within 0.5 s") as late:
            await client.request(b"7:", key=8, timeout=0.5)
    assert "correlate" not in str(late.value)


@every_kind
async def test_too_long_a_message_is_refused(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members) as client:
        with pytest.raises(MessageTooLongError, match="max_message_length"):
            await client.send(bytes(client.connection.max_message_length + 1))


@every_kind
async def test_what_is_no_timeout_is_refused_before_anything_is_sent(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members) as client:
        for value in (float("nan"), float("inf"), -1, True, "5", 10**400):
            for call in (client.send(b"x", timeout=value), client.request(b"7:x", key=7, timeout=value)):
                with pytest.raises(ConfigurationError, match="^timeout must be None or a number of seconds from 0 to"):
                    await call
        assert member.sent() == []


# Ends


@every_kind
async def test_the_cluster_s_end_of_a_session_ends_its_requests(kind: Kind, member: PatientMember) -> None:
    member.be_silent()
    async with kind.connecting(member.members) as client:
        requests = await client.ask_all(range(3))
        await client.in_flight(member, 3)
        member.end_session()
        for request in requests:
            with pytest.raises(RequestClosedError, match="closed by the cluster: TIMEOUT") as ended:
                await request
            assert ended.value.outcome == Outcome.UNKNOWN
        assert client.counts == RequestCounts(sent=3, answered=0, resent=0, unknown=3, unmatched=0, in_flight=0)


@every_kind
async def test_a_close_ends_all_that_waits(kind: Kind, member: PatientMember) -> None:
    member.be_silent()
    async with kind.connecting(member.members) as client:
        request = client.ask(b"7:", key=7, idempotent=True)
        waiting = [asyncio.create_task(client.receive())] if kind.is_awaited else []
        await client.in_flight(member, 1)
        await client.close()
        await client.close()
        with pytest.raises(RequestClosedError, match="closed by this client") as ended:
            await request
        assert isinstance(ended.value, ClosedError)
        assert ended.value.outcome == Outcome.UNKNOWN
        for call in (*waiting, client.send(b"x"), client.request(b"8:", key=8)):
            with pytest.raises(ClosedError, match="closed by this client") as closed:
                await call
            assert closed.value.outcome == Outcome.NOT_DONE
        assert client.owner.is_closed
        if kind.is_awaited:
            with pytest.raises(ClosedError):
                await client.receive()
            assert [message async for message in client.session] == []


# Connecting


@every_kind
async def test_a_refusal_is_raised(kind: Kind, member: PatientMember) -> None:
    member.members.do(lambda: member.refuse(*REJECTED))
    with pytest.raises(AuthenticationError, match="AUTHENTICATION_REJECTED: no"):
        async with kind.connecting(member.members):
            pass


@kinds_that_connect_once
async def test_without_a_cluster_the_connect_ends_and_leaves_nothing(kind: Kind, members: ThreadedMembers) -> None:
    with pytest.raises(
        TimedOutError,
        match="cluster connect: waited 0.1 s for (a member that listens on ingress|the driver to add)",
    ):
        async with kind.connecting(members, message_timeout=0.1):
            pass


@awaited_kinds
@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.02, 0.05])
async def test_a_connect_that_is_cancelled_leaves_nothing(kind: Kind, members: ThreadedMembers, seconds: float) -> None:
    async def connect() -> None:
        async with kind.connecting(members):
            raise AssertionError("there is no member")

    connecting = asyncio.create_task(connect())
    await asyncio.wait([connecting], timeout=seconds)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert asyncio.all_tasks() == {asyncio.current_task()}


# Threads


@awaited_kinds
async def test_a_session_is_kept_alive_while_the_loop_is_busy(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members, keep_alive_interval=0.02) as client:
        session_id = client.connection.cluster_session_id
        deadline = time.monotonic() + LIMIT_S
        # The loop's thread waits here, in C, for keep alives that only the client's thread can send.
        while [each["cluster_session_id"] for each in keep_alives(member)].count(session_id) < 5:
            assert time.monotonic() < deadline


def keep_alives(member: PatientMember) -> list[dict[str, Any]]:
    return member.members.do(lambda: member.received("SessionKeepAlive"))


@kinds_that_are_awaited_once
async def test_a_client_that_is_forgotten_ends_its_thread_with_a_warning(kind: Kind, member: PatientMember) -> None:
    clients = [await kind.connect(**member.members.settings()).__aenter__()]
    await pause(0.01)  # the loop lets go of the tasks that it ran

    def forget() -> None:
        clients.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match=f"unclosed <{type(clients[0]).__name__}"):
        forget()


# Leaders


@every_kind
async def test_with_a_new_leader_requests_end_or_are_sent_again(kind: Kind, members: ThreadedMembers) -> None:
    two = TwoMembers(members, kind.member)
    async with kind.connecting(members, **two.settings) as client:
        once = await client.ask_all(range(500))
        again = await client.ask_all(range(500, 1000), idempotent=True)
        await client.until(lambda: client.counts.in_flight == 1000, "all to be in flight")
        leader = await two.elect()
        assert await asyncio.gather(*again) == [b"%d:" % key for key in range(500, 1000)]
        for request in once:
            with pytest.raises(LeaderChangedError, match=r"member 1 leads since term 4.* in term 3") as lost:
                await request
            assert (lost.value.outcome, lost.value.is_retryable) == (Outcome.UNKNOWN, True)
            assert isinstance(lost.value, ConnectionError)
        assert leader.sent() == [b"%d:" % key for key in range(500, 1000)]
        assert client.counts == RequestCounts(
            sent=1000, answered=500, resent=500, unknown=500, unmatched=0, in_flight=0
        )
        assert client.is_connected
        with pytest.raises(ClusterError, match="key 7 was that of a request whose reply may still come"):
            await client.request(b"7:", key=7)
        assert await client.request(b"1001:", key=1001) == b"1001:"


@every_kind
async def test_requests_end_when_the_leader_is_given_up_and_those_that_may_be_sent_again_wait(
    kind: Kind, members: ThreadedMembers
) -> None:
    two = TwoMembers(members, kind.member)
    async with kind.connecting(members, resend=True, **two.settings) as client:
        once = client.ask(b"1:", key=1, idempotent=False)
        again = client.ask(b"2:", key=2)
        cancelled = [client.ask(b"3:", key=3)] if kind.is_awaited else []
        await client.until(lambda: client.counts.in_flight == 2 + len(cancelled), "all to be in flight")
        members.do(lambda: two.old.egress and two.old.egress.close())
        with pytest.raises(LeaderChangedError, match="the leader, member 0, is lost"):
            await once
        assert kind.member is Gateway or client.connection.state == ClientState.AWAIT_NEW_LEADER
        assert not again.done()
        for request in cancelled:
            request.cancel()
            await asyncio.wait([request])
        leader = await two.elect()
        assert await again == b"2:"
        assert leader.sent() == [b"2:"]


# Reconnecting clients


def has_sessions(client: AnyClient, count: int) -> bool:
    return bool(client.session.sessions == count)


@reconnecting_kinds
async def test_it_sends_and_receives_over_sessions_that_end(kind: Kind, member: PatientMember) -> None:
    told = Told()
    async with kind.connecting(member.members, callbacks=told) as client:
        assert (client.is_connected, client.session.sessions) == (True, 1)
        for session in range(1, 4):
            await client.send(b"of session %d" % session)
            assert await client.receive() == b"of session %d" % session
            member.end_session()
            await client.until(partial(has_sessions, client, session + 1), "the next session")
        assert await client.request(b"7:", key=7) == b"7:"
    assert client.owner.is_closed
    lost = ("disconnected", "the session ended: closed by the cluster: TIMEOUT")
    assert told.calls == [*[lost, ("reconnected", 1)] * 3, ("closed", "closed by this client")]


@reconnecting_kinds
async def test_requests_in_flight_are_sent_again_in_the_next_session_or_end(kind: Kind, member: PatientMember) -> None:
    member.be_silent()
    async with kind.connecting(member.members, resend=True) as client:
        again = await client.ask_all(range(100))
        once = client.ask(b"100:", key=100, idempotent=False)
        await client.in_flight(member, 101)
        member.members.do(member.echo)
        member.end_session()
        await client.send(b"later")
        with pytest.raises(RequestClosedError, match="closed by the cluster: TIMEOUT") as ended:
            await once
        assert ended.value.outcome == Outcome.UNKNOWN
        assert await asyncio.gather(*again) == [b"%d:" % key for key in range(100)]
        resent = [payload for payload in member.sent()[101:] if payload != b"later"]
        assert resent == [b"%d:" % key for key in range(100)]
        assert client.counts == RequestCounts(sent=101, answered=100, resent=100, unknown=1, unmatched=0, in_flight=0)


@reconnecting_kinds
async def test_requests_wait_for_a_session_in_their_order(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members) as client:
        await client.lose_session(member)
        requests = await client.ask_all(range(50))
        assert client.session.waiting == 50
        member.accept_again()
        assert await asyncio.gather(*requests) == [b"%d:" % key for key in range(50)]
        assert member.sent() == [b"%d:" % key for key in range(50)]
        assert client.session.waiting == 0


@reconnecting_kinds
async def test_a_password_that_is_no_longer_taken_ends_it_and_all_that_waits(kind: Kind, member: PatientMember) -> None:
    told = Told()
    member.be_silent()
    async with kind.connecting(member.members, callbacks=told) as client:
        request = client.ask(b"7:", key=7, idempotent=True)
        waiting = [asyncio.create_task(client.receive())] if kind.is_awaited else []
        await client.in_flight(member, 1)
        member.end_session(refuse=REJECTED)
        with pytest.raises(RequestClosedError, match="AUTHENTICATION_REJECTED: no"):
            await request
        for call in (*waiting, client.send(b"x"), client.request(b"8:", key=8)):
            with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no") as closed:
                await call
            assert closed.value.outcome == Outcome.NOT_DONE
        with pytest.raises(ClosedError, match="AUTHENTICATION_REJECTED: no") as closed:
            await client.receive() if kind.is_awaited else client.session.poll()
        assert closed.value.outcome == Outcome.NOT_DONE
        assert isinstance(client.session.error, AuthenticationError)
    assert [call[0] for call in told.calls] == ["disconnected", "closed"]


@reconnecting_kinds
async def test_attempts_have_a_limit(kind: Kind, members: ThreadedMembers) -> None:
    policy = ReconnectPolicy(first_delay=0.01, max_delay=0.02, max_attempts=3)
    with pytest.raises(ClosedError, match="no session after 3 attempts: cluster connect: waited 0.1 s for"):
        async with kind.connecting(members, message_timeout=0.1, policy=policy):
            pass


@reconnecting_kinds
async def test_time_is_up_whether_there_is_a_session_or_not(kind: Kind, member: PatientMember) -> None:
    member.be_silent()
    async with kind.connecting(member.members) as client:
        with pytest.raises(RequestTimedOutError, match="no reply with key 7 within 0.05 s"):
            await client.request(b"7:", key=7, timeout=0.05)
        patient = client.ask(b"8:", key=8, timeout=1.0, idempotent=True)
        await client.in_flight(member, 2)
        await client.lose_session(member)
        with pytest.raises(SendTimedOutError, match="not accepted within 0.05 s"):
            await client.send(b"x", timeout=0.05)
        for key in (7, 9):
            with pytest.raises(SendTimedOutError):
                await client.request(b"%d:" % key, key=key, timeout=0.05)
        with pytest.raises(RequestTimedOutError, match="no reply with key 8 within 1 s"):
            await patient
        assert client.session.waiting == 0
        assert client.counts == RequestCounts(sent=2, answered=0, resent=0, unknown=2, unmatched=0, in_flight=0)


@reconnecting_kinds
async def test_a_request_that_waits_in_the_outbox_until_its_time_is_up_was_not_sent(
    kind: Kind, member: PatientMember
) -> None:
    async with kind.connecting(member.members) as client:
        await client.lose_session(member)
        with pytest.raises(SendTimedOutError, match=r"accepted within 0\.05 s: (connecting|waiting), .*") as late:
            await client.request(b"1:", key=1, timeout=0.05)
        assert late.value.outcome is Outcome.NOT_DONE
        member.accept_again()
        await client.until(partial(has_sessions, client, 2), "the next session")
        assert await client.request(b"2:", key=2) == b"2:"
        assert b"1:" not in member.sent()


@reconnecting_kinds
@pytest.mark.parametrize("policy", list(OutboxPolicy))
async def test_a_full_outbox_does_what_its_policy_says(kind: Kind, member: PatientMember, policy: OutboxPolicy) -> None:
    is_blocking, is_dropping = policy is OutboxPolicy.BLOCK, policy is OutboxPolicy.DROP_OLDEST
    async with kind.connecting(member.members, outbox_policy=policy, outbox_messages=2) as client:
        await client.lose_session(member)
        requests = await client.ask_all(range(2))
        requests += await client.ask_all(range(2, 5), **{"timeout": 0.05} if is_blocking else {})
        kept, refused = (requests[3:], requests[:3]) if is_dropping else (requests[:2], requests[2:])
        text = "gave its room" if is_dropping else "2 messages of 4 bytes to send"
        if is_blocking and kind.is_awaited:
            text = "not accepted within 0.05 s"
        for request in refused:
            with pytest.raises(SendTimedOutError if is_blocking else OutboxFullError, match=text):
                await request
        assert client.session.waiting == 2
        member.accept_again()
        assert await asyncio.gather(*kept) == ([b"3:", b"4:"] if is_dropping else [b"0:", b"1:"])
        assert member.sent() == [request.result() for request in kept]


@reconnecting_kinds
async def test_names_are_resolved_anew_for_each_attempt(kind: Kind, members: ThreadedMembers) -> None:
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

    async with kind.connecting(
        members,
        ingress_channel="aeron:udp",
        egress_channel="aeron:udp?endpoint=localhost:0",
        ingress_endpoints="0=no.such.host.invalid:9010",
        resolve=resolve,
    ) as client:
        assert await client.request(b"7:", key=7) == b"7:"


@reconnecting_kinds
async def test_a_close_ends_what_waits_for_a_session(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members) as client:
        await client.lose_session(member)
        waiting = await client.ask_all(range(2))
        await client.close()
        for request in waiting:
            with pytest.raises(ClosedError, match="closed by this client") as closed:
                await request
            assert closed.value.outcome == Outcome.NOT_DONE
        assert repr(client.session).startswith(f"<{type(client.session).__name__} closed outbox=0")


@reconnecting_kinds
async def test_a_new_leader_is_told(kind: Kind, member: PatientMember) -> None:
    told = Told()
    heard: list[int] = []

    class Listening(EgressListener):
        def on_new_leader(self, cluster_session_id: int, leadership_term_id: int, *rest: Any) -> None:
            heard.append(leadership_term_id)

    async with kind.connecting(member.members, callbacks=told, listener=Listening()) as client:

        def elect() -> None:
            member.leadership_term_id = 9
            member.new_leader("")

        member.members.do(elect)
        await client.until(lambda: heard, "the new leader")
        assert await client.request(b"7:", key=7) == b"7:"
    assert told.calls[0] == ("leader", 0, 9)
    assert heard == [9]


# Leaders that are silent


@reconnecting_kinds
async def test_a_leader_that_began_anew_in_silence_gets_a_new_session(kind: Kind, member: PatientMember) -> None:
    told = Told()
    async with kind.connecting(member.members, callbacks=told, policy=probe_soon()) as client:
        assert await client.request(b"1:", key=1) == b"1:"
        member.begin_anew()
        again = client.ask(b"2:", key=2, idempotent=True)
        once = client.ask(b"3:", key=3)
        assert await again == b"2:"
        with pytest.raises(RequestClosedError, match="member 0 leads in term 4, and has sent nothing") as ended:
            await once
        assert ended.value.outcome == Outcome.UNKNOWN
        assert (client.session.sessions, client.is_connected) == (2, True)
        assert client.connection.cluster_session_id == 9
    assert [call[0] for call in told.calls] == ["disconnected", "reconnected", "closed"]
    await until(lambda: 9 in closed_sessions(member), "the close request of the new session")


def closed_sessions(member: PatientMember) -> list[int]:
    """The sessions that clients have asked the member to close."""
    return [each["cluster_session_id"] for each in member.members.do(lambda: member.received("SessionCloseRequest"))]


@reconnecting_kinds
async def test_a_slow_leader_keeps_its_session(kind: Kind, member: PatientMember) -> None:
    told = Told()
    async with kind.connecting(member.members, callbacks=told, policy=probe_soon()) as client:
        member.begin_anew(term_id=3)
        request = client.ask(b"1:", key=1)
        await client.until(lambda: closed_sessions(member), "the end of a probe")
        member.members.do(lambda: member.message(b"1:", session_id=8))
        assert await request == b"1:"
        assert client.session.sessions == 1
        assert 8 not in closed_sessions(member)
    assert told.calls == [("closed", "closed by this client")]


def keep_connect_requests(member: PatientMember) -> list[dict[str, Any]]:
    """The member answers nothing; what asks for sessions comes into the list."""
    asked: list[dict[str, Any]] = []
    member.be_silent()
    member.members.do(lambda: member.hooks.update(SessionConnectRequest=asked.append))
    return asked


@reconnecting_kinds
async def test_a_probe_is_the_next_attempt_when_the_session_ends_meanwhile(kind: Kind, member: PatientMember) -> None:
    policy = probe_soon(first_delay=LIMIT_S, max_delay=LIMIT_S)
    async with kind.connecting(member.members, policy=policy) as client:
        asked = keep_connect_requests(member)
        request = client.ask(b"1:", key=1, idempotent=True)
        await client.until(lambda: member.members.do(lambda: list(asked)), "a probe")
        member.end_session()
        await client.until(lambda: not client.is_connected, "the end of the session")
        member.accept(asked[-1])
        assert await request == b"1:"
        assert client.session.sessions == 2


@reconnecting_kinds
async def test_a_client_that_is_closed_beside_a_probe_leaves_nothing(kind: Kind, member: PatientMember) -> None:
    async with kind.connecting(member.members, policy=probe_soon()) as client:
        asked = keep_connect_requests(member)
        request = client.ask(b"1:", key=1)
        await client.until(lambda: member.members.do(lambda: list(asked)), "a probe")
    with pytest.raises(RequestClosedError):
        await request
    assert client.owner.is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


def fail_first_attempt(monkeypatch: pytest.MonkeyPatch, kind: Kind, error: OSError) -> list[int]:
    """The first attempt to connect raises an error; returns a list that grows with each attempt."""
    attempts: list[int] = []
    assert kind.attempt is not None
    module, name = kind.attempt
    begin = getattr(module, name)

    def attempt(*arguments: Any, **settings: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise error
        return begin(*arguments, **settings)

    monkeypatch.setattr(module, name, attempt)
    return attempts


@reconnecting_kinds
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.ENOMEM, errno.EAGAIN])
@pytest.mark.usefixtures("member")
async def test_an_os_error_that_may_pass_is_tried_again(
    kind: Kind, members: ThreadedMembers, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    attempts = fail_first_attempt(monkeypatch, kind, OSError(number, os.strerror(number)))
    async with kind.connecting(members) as client:
        assert (client.session.sessions, len(attempts)) == (1, 2)


@reconnecting_kinds
@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), NotADirectoryError(errno.ENOTDIR, "file")])
@pytest.mark.usefixtures("member")
async def test_an_os_error_that_needs_a_hand_ends_the_client_at_once(
    kind: Kind, members: ThreadedMembers, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    attempts = fail_first_attempt(monkeypatch, kind, error)
    with pytest.raises(ClusterError, match=type(error).__name__) as ended:
        async with kind.connecting(members):
            pass
    assert ended.value.__cause__ is error
    assert not ended.value.is_retryable
    assert len(attempts) == 1


@reconnecting_kinds
async def test_the_embedded_driver_is_one_for_all_attempts(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers: list[MediaDriver] = []
    launch = MediaDriver.launch_embedded

    class Counting:
        @staticmethod
        def launch_embedded(**settings: Any) -> MediaDriver:
            drivers.append(launch(**settings))
            return drivers[-1]

    monkeypatch.setattr(container.aeron, "MediaDriver", Counting)
    with pytest.raises(ClosedError, match="no session after 3 attempts"):
        async with kind.connecting(
            None,
            ingress_channel="aeron:udp",
            ingress_endpoints="0=localhost:1",
            egress_channel="aeron:udp?endpoint=localhost:0",
            embedded_driver=True,
            message_timeout=0.2,
            policy=ReconnectPolicy(first_delay=0.01, max_delay=0.01, max_attempts=3),
        ):
            pass
    assert [driver.is_closed for driver in drivers] == [True]
