"""The asyncio client, against scripted members over a media driver in this process, with asyncio's loop and uvloop."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from container.aeron import AeronClient
from container.api import BACK_PRESSURED
from container.client import (
    AdminResponseCode,
    AsyncAeronCluster,
    ClientContext,
    ClientState,
    ControlledEgressListener,
    EgressListener,
    EgressMessage,
    EventCode,
    RequestCounts,
    aconnect,
    areconnecting,
)
from container.client.async_client import Inbox
from container.common.values import shown
from container.errors import (
    AuthenticationError,
    ClosedError,
    ClusterError,
    ConfigurationError,
    DriverTimeoutError,
    LeaderChangedError,
    MessageTooLongError,
    Outcome,
    RequestTimedOutError,
    TimedOutError,
)
from tests import ingress_member
from tests.ingress_member import Request
from tests.limits import LIMIT_S
from tests.pauses import pause, until
from tests.threaded_members import PatientMember, ThreadedMembers, key_of

type Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a scenario to its end, in a loop that may not report anything that we did not expect."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:

        def run_limited(scenario: Coroutine[Any, Any, Any]) -> Any:
            async def limited() -> Any:
                async with asyncio.timeout(LIMIT_S):
                    return await scenario

            return runner.run(limited())

        yield run_limited


@pytest.fixture
def member(members: ThreadedMembers) -> PatientMember:
    return members.member(0, "aeron:ipc", PatientMember.echo)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + LIMIT_S
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("cluster-client-")]:
        assert time.monotonic() < deadline, left
        os.sched_yield()


def settings(members: ThreadedMembers, **more: Any) -> dict[str, Any]:
    channels = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc?alias=egress"}
    return channels | {"aeron_dir": members.aeron_dir, "message_timeout": LIMIT_S} | more


async def test_messages_are_sent_and_received_in_order(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with aconnect(**settings(members)) as client:
        assert client.cluster_session_id == 8
        assert (client.leader_member_id, client.leadership_term_id) == (0, 3)
        assert client.state == ClientState.CONNECTED
        assert client.max_message_length > 5000
        sent = [b"%d" % number * (number % 700) for number in range(2000)]

        async def send_all() -> None:
            for message in sent:
                assert await client.send(message[:3], message[3:]) > 0

        sending = asyncio.create_task(send_all())
        received = []
        async for message in client:
            assert message.timestamp == 1000
            received.append(message.payload)
            if len(received) == len(sent):
                break
        await sending
        assert received == sent
    assert client.is_closed
    assert client.close_reason == "closed by this client"
    await until(lambda: members.do(lambda: member.received("SessionCloseRequest")), "the close request")


async def test_requests_get_their_own_replies(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with aconnect(**settings(members), correlate=key_of) as client:
        replies = await asyncio.gather(*(client.request(b"%d:" % n, b"hello", key=n) for n in range(500)))
        assert replies == [b"%d:hello" % n for n in range(500)]
        await client.send(b"no reply")
        assert (await client.receive()).payload == b"no reply"
        assert client.unmatched_replies == 0


async def test_a_request_without_a_reply_times_out_and_a_late_reply_is_dropped(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    async with aconnect(**settings(members), correlate=key_of) as client:
        with pytest.raises(TimedOutError, match="no reply with key 7 within 0.05 s"):
            await client.request(b"7:x", key=7, timeout=0.05)
        members.do(lambda: member.message(b"7:late"))
        await until(lambda: client.unmatched_replies == 1, "the late reply")
        assert client._requests == {}
        assert not client._inbox


async def test_a_cancelled_request_leaves_nothing(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    async with aconnect(**settings(members), correlate=key_of) as client:
        requests = [asyncio.create_task(client.request(b"%d:" % n, key=n)) for n in range(50)]
        await until(lambda: len(client._requests) == 50, "the requests to be sent")
        for request in requests:
            request.cancel()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert client._requests == {}


async def test_a_late_reply_never_answers_the_next_request_with_its_key(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    async with aconnect(**settings(members), correlate=key_of) as client:
        with pytest.raises(RequestTimedOutError):
            await client.request(b"7:", key=7, timeout=0.05)
        asking = asyncio.create_task(client.request(b"8:", key=8))
        await until(lambda: len(members.do(member.payloads)) == 2, "the second to be in flight")
        asking.cancel()
        await asyncio.wait([asking])
        members.do(member.echo)
        for key in (7, 8):
            with pytest.raises(ClusterError, match=f"key {key} was that of a request whose reply may still come"):
                await client.request(b"%d:again" % key, key=key)
        for late in (b"7:late", b"8:late"):
            members.do(partial(member.message, late))
        await until(lambda: client.unmatched_replies == 2, "the late replies")
        assert [await client.request(b"%d:again" % key, key=key) for key in (7, 8)] == [b"7:again", b"8:again"]


async def test_a_reply_that_came_before_the_end_counts_as_answered_and_nothing_else(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with aconnect(**settings(members), correlate=key_of) as client:
        asking = [asyncio.create_task(client.request(b"%d:" % key, key=key)) for key in range(200)]
        await until(lambda: client.request_counts.sent == 200, "all to be sent")
        members.do(lambda: None)  # the member has answered all, and then it ends the session
        members.do(lambda: member.session_event(5, ingress_member.CLOSED, "TIMEOUT"))
        deadline = time.monotonic() + LIMIT_S
        while not client._poller.is_ended:  # the loop does not run, and hears of replies and end together
            assert time.monotonic() < deadline, "the end did not come"
            members.do(lambda: None)
        assert await asyncio.gather(*asking) == [b"%d:" % key for key in range(200)]
        assert client.request_counts == RequestCounts(
            sent=200, answered=200, resent=0, unknown=0, unmatched=0, in_flight=0
        )


async def test_a_reply_that_comes_as_its_time_ends_is_returned(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    async with aconnect(**settings(members), correlate=key_of) as client:
        asking = asyncio.create_task(client.request(b"7:", key=7, timeout=0.2))
        await until(lambda: client.request_counts.sent == 1, "it to be sent")
        client._table.answer(client.cluster_session_id, 7, b"7:just in time")
        due = time.monotonic() + 0.3
        while time.monotonic() < due:  # the loop does not run until the time-out is due as well
            members.do(lambda: None)
        assert await asking == b"7:just in time"
        assert client.request_counts[:4] == (1, 1, 0, 0)


async def test_requests_need_correlate_and_keys_of_their_own(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with aconnect(**settings(members)) as client:
        with pytest.raises(ConfigurationError, match="correlate="):
            await client.request(b"x", key=1)
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    async with aconnect(**settings(members), correlate=key_of) as client:
        first = asyncio.create_task(client.request(b"1:", key=1))
        await until(lambda: client._requests, "the request")
        with pytest.raises(ClusterError, match="a request with key 1 is already waiting for its reply"):
            await client.request(b"1:", key=1)
        members.do(lambda: member.message(b"1:done"))
        assert await first == b"1:done"


async def test_a_correlate_that_fails_is_reported(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    def fail(payload: bytes) -> None:
        raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with aconnect(**settings(members), correlate=fail) as client:
        await client.send(b"x")
        assert (await client.receive()).payload == b"x"
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def test_send_waits_out_back_pressure_in_order(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with aconnect(**settings(members, ingress_channel="aeron:ipc")) as client:
        members.do(lambda: members.remove_task(member.work))  # the member reads nothing any more
        message = bytes(60_000)
        while client.offer(message) > 0:
            pass
        assert client.offer(message) == BACK_PRESSURED
        with pytest.raises(TimedOutError, match="message was not accepted within 0.05 s: last result -2"):
            await client.send(message, timeout=0.05)
        waiting = [asyncio.create_task(client.send(b"%d" % n, bytes(50_000))) for n in range(10)]
        cancelled = asyncio.create_task(client.send(b"never"))
        await asyncio.wait([*waiting, cancelled], timeout=0.02)
        cancelled.cancel()
        members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
        members.do(lambda: members.add_task(member.work))
        positions = await asyncio.gather(*waiting)
        assert positions == sorted(positions)
        await client.send(b"last")
        await until(lambda: members.do(member.payloads)[-1:] == [b"last"], "the last message")
        payloads = [payload[:1] for payload in members.do(member.payloads) if len(payload) == 50_001]
        assert payloads == [b"%d" % n for n in range(10)]
        assert b"never" not in members.do(member.payloads)
        assert not client._sending.locked()


async def test_too_long_a_message_is_refused(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with aconnect(**settings(members)) as client:
        with pytest.raises(MessageTooLongError, match="max_message_length"):
            await client.send(bytes(client.max_message_length + 1))


async def test_nothing_more_is_read_while_nobody_takes_messages(
    members: ThreadedMembers, member: PatientMember, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with aconnect(**settings(members), max_waiting=100) as client:
        for number in range(1000):
            await client.send(b"%d" % number)
        await until(lambda: client._poller.is_held_back, "the poller to be held back")
        await until(lambda: client._poller.waiting >= 100, "the loop to have taken what was read")
        assert client._poller.waiting < 400
        received = [(await client.receive()).payload for _ in range(1000)]
        assert received == [b"%d" % number for number in range(1000)]
    assert re.search(r"1\d\d messages of \d+ bytes wait to be taken from session 8", caplog.text)


async def test_several_tasks_share_the_messages(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    taken: list[bytes] = []

    async def take(client: AsyncAeronCluster) -> None:
        async for message in client:
            taken.append(message.payload)

    async with aconnect(**settings(members)) as client:
        takers = [asyncio.create_task(take(client)) for _ in range(4)]
        impatient = asyncio.create_task(client.receive())
        await asyncio.wait([impatient], timeout=0.01)
        impatient.cancel()
        for number in range(200):
            await client.send(b"%d" % number)
        await until(lambda: len(taken) == 200, "all messages")
    await asyncio.gather(*takers)
    assert sorted(taken) == sorted(b"%d" % number for number in range(200))
    assert client._receivers == set()


async def test_a_close_ends_what_waits(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    client = await aconnect(**settings(members), correlate=key_of)
    request = asyncio.create_task(client.request(b"1:", key=1))
    receive = asyncio.create_task(client.receive())
    admin = asyncio.create_task(client.request_snapshot())
    await until(lambda: client._requests and client._receivers and client._admin_requests, "all to wait")
    await client.aclose()
    await client.aclose()
    for task in (request, receive, admin):
        with pytest.raises(ClosedError, match="the client is closed: closed by this client"):
            await task
    for call in (client.send(b"x"), client.request(b"x", key=1), client.receive(), client.request_snapshot()):
        with pytest.raises(ClosedError):
            await call
    assert [message async for message in client] == []


async def test_the_cluster_closes_the_client(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    events: list[tuple[Any, ...]] = []

    class Listening(EgressListener):
        def on_session_event(self, *event: Any) -> None:
            events.append(event)
            raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with aconnect(**settings(members), listener=Listening()) as client:
        members.do(lambda: member.message(b"last words"))
        members.do(lambda: member.session_event(5, ingress_member.CLOSED, "SERVICE_ACTION"))
        assert (await client.receive()).payload == b"last words"
        with pytest.raises(ClosedError, match="closed by the cluster: SERVICE_ACTION"):
            await anext(client.__aiter__())
        assert client.is_closed
        assert client.close_reason == "closed by the cluster: SERVICE_ACTION"
    assert events == [(5, 8, 3, 0, EventCode.CLOSED, "SERVICE_ACTION")]
    assert reported[0]["message"] == "on_session_event() of the listener failed"


async def test_a_snapshot_is_requested_and_answered(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    def answer(request: Request) -> None:
        member.send(
            "AdminResponse",
            cluster_session_id=8,
            correlation_id=request["correlation_id"],
            request_type=0,
            response_code=2,
            message="not you",
        )

    members.do(lambda: member.hooks.update(AdminRequest=answer))
    async with aconnect(**settings(members)) as client:
        response = await client.request_snapshot()
        assert (response.response_code, response.message) == (AdminResponseCode.UNAUTHORISED_ACCESS, "not you")
        members.do(lambda: member.hooks.update(AdminRequest=lambda request: None))
        with pytest.raises(TimedOutError, match="no answer to the request for a snapshot within 0.05 s"):
            await client.request_snapshot(timeout=0.05)
        assert client._admin_requests == {}


async def test_an_idle_session_is_kept_alive_while_the_loop_is_busy(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with aconnect(**settings(members), keep_alive_interval=0.02):
        # The loop's thread waits here, in C, for keep alives that only the poller can send.
        deadline = time.monotonic() + LIMIT_S
        while len(members.do(lambda: member.received("SessionKeepAlive"))) < 5:
            assert time.monotonic() < deadline


async def test_an_idle_client_does_not_wake_the_loop(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with aconnect(**settings(members), keep_alive_interval=0.02) as client:
        await until(lambda: len(member.received("SessionKeepAlive")) >= 3, "some keep alives")
        assert client._poller.wake_count == 0
        polls = client._poller.poll_count
        begin = time.monotonic()
        await asyncio.wait([asyncio.create_task(client.receive())], timeout=0.2)
        parked = (client._poller.poll_count - polls) / (time.monotonic() - begin)
        assert parked < 5000, "an idle poller waits about a millisecond between polls"


async def test_a_new_leader_is_followed(members: ThreadedMembers, run: Run) -> None:
    endpoints = [members.take_endpoint(), members.take_endpoint()]
    ingress_endpoints = ",".join(f"{number}={endpoint}" for number, endpoint in enumerate(endpoints))
    old = members.member(0, f"aeron:udp?endpoint={endpoints[0]}", PatientMember.echo)
    led: list[int] = []

    class Listening(EgressListener):
        def on_new_leader(self, cluster_session_id: int, leadership_term_id: int, *rest: Any) -> None:
            led.append(leadership_term_id)

    def take_over(leader: PatientMember) -> None:
        assert old.egress is not None
        leader.leadership_term_id = 4
        leader.echo()
        leader.open_egress(old.egress.channel)
        old.stop()
        leader.new_leader(ingress_endpoints)

    async with aconnect(
        **settings(members, ingress_channel="aeron:udp", egress_channel="aeron:udp?endpoint=localhost:0"),
        ingress_endpoints=ingress_endpoints,
        listener=Listening(),
    ) as client:
        await client.send(b"before")
        assert (await client.receive()).payload == b"before"
        await asyncio.to_thread(members.member, 1, f"aeron:udp?endpoint={endpoints[1]}", take_over)
        await until(lambda: client.leader_member_id == 1, "the new leader")
        await client.send(b"after")
        while (await client.receive()).payload != b"after":
            pass
        assert led == [4]


class TwoMembers:
    """Member 0, which answers nothing, and member 1, which may take over and echoes."""

    def __init__(self, members: ThreadedMembers) -> None:
        self.members = members
        self.endpoints = [members.take_endpoint(), members.take_endpoint()]
        self.old = members.member(0, f"aeron:udp?endpoint={self.endpoints[0]}")

    def settings(self, **more: Any) -> dict[str, Any]:
        channels = {"ingress_channel": "aeron:udp", "egress_channel": "aeron:udp?endpoint=localhost:0"}
        endpoints = ",".join(f"{number}={endpoint}" for number, endpoint in enumerate(self.endpoints))
        return settings(self.members, **channels, ingress_endpoints=endpoints, correlate=key_of) | more

    async def elect(self) -> PatientMember:
        def take_over(leader: PatientMember) -> None:
            assert self.old.egress is not None
            leader.leadership_term_id = 4
            leader.echo()
            leader.open_egress(self.old.egress.channel)
            self.old.stop()
            leader.new_leader(self.settings()["ingress_endpoints"])

        return await asyncio.to_thread(self.members.member, 1, f"aeron:udp?endpoint={self.endpoints[1]}", take_over)


async def test_requests_in_flight_end_or_are_sent_again_when_the_leader_changes(
    members: ThreadedMembers, run: Run
) -> None:
    two = TwoMembers(members)
    async with aconnect(**two.settings()) as client:
        once = [asyncio.create_task(client.request(b"%d:" % n, key=n)) for n in range(500)]
        again = [asyncio.create_task(client.request(b"%d:" % n, key=n, idempotent=True)) for n in range(500, 1000)]
        snapshot = asyncio.create_task(client.request_snapshot())
        await until(lambda: client.request_counts.in_flight == 1001, "all to be in flight")
        leader = await two.elect()
        assert await asyncio.gather(*again) == [b"%d:" % n for n in range(500, 1000)]
        begin = time.monotonic()
        ended = await asyncio.gather(*once, snapshot, return_exceptions=True)
        assert time.monotonic() - begin < LIMIT_S / 2
        for error in ended:
            assert isinstance(error, LeaderChangedError)
            assert error.outcome == Outcome.UNKNOWN
        assert members.do(leader.payloads) == [b"%d:" % n for n in range(500, 1000)]
        assert client.request_counts == RequestCounts(
            sent=1001, answered=500, resent=500, unknown=501, unmatched=0, in_flight=0
        )
        with pytest.raises(ClusterError, match="key 7 was that of a request whose reply may still come"):
            await client.request(b"7:", key=7)
        assert await client.request(b"1001:", key=1001) == b"1001:"


async def test_requests_end_when_the_leader_is_given_up_and_those_that_may_be_sent_again_wait(
    members: ThreadedMembers, run: Run
) -> None:
    two = TwoMembers(members)
    async with aconnect(**two.settings(resend=True)) as client:
        once = asyncio.create_task(client.request(b"1:", key=1, idempotent=False))
        again = asyncio.create_task(client.request(b"2:", key=2))
        cancelled = asyncio.create_task(client.request(b"3:", key=3))
        await until(lambda: client.request_counts.in_flight == 3, "all to be in flight")
        members.do(lambda: two.old.egress and two.old.egress.close())
        with pytest.raises(LeaderChangedError, match="the leader, member 0, is lost"):
            await once
        assert client.state == ClientState.AWAIT_NEW_LEADER
        assert not again.done()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        leader = await two.elect()
        assert await again == b"2:"
        assert members.do(leader.payloads) == [b"2:"]


async def test_without_a_cluster_the_connect_ends_and_leaves_nothing(members: ThreadedMembers, run: Run) -> None:
    with pytest.raises(TimedOutError, match="for (a member that listens on ingress|the driver to add)"):
        async with aconnect(**settings(members, message_timeout=0.1)):
            pass


async def test_a_refusal_is_raised(members: ThreadedMembers, run: Run) -> None:
    members.member(0, "aeron:ipc", lambda made: made.refuse(ingress_member.AUTHENTICATION_REJECTED, "no"))
    with pytest.raises(AuthenticationError, match="AUTHENTICATION_REJECTED: no"):
        await aconnect(**settings(members))


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.02, 0.05])
def test_a_cancelled_connect_leaves_nothing(members: ThreadedMembers, run: Run, seconds: float) -> None:
    async def scenario() -> None:
        connecting = asyncio.ensure_future(_await(aconnect(**settings(members))))
        await asyncio.wait([connecting], timeout=seconds)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    async def _await(connecting: Any) -> None:
        await connecting

    run(scenario())


async def test_without_a_driver_the_loop_goes_on_and_the_connect_fails(tmp_path: Path, run: Run) -> None:
    turns: list[float] = []

    def turn() -> None:
        turns.append(time.monotonic())
        asyncio.get_running_loop().call_later(0.001, turn)

    turn()
    with pytest.raises(DriverTimeoutError):
        await aconnect(
            aeron_dir=str(tmp_path / "none"),
            driver_timeout=0.5,
            ingress_channel="aeron:ipc",
            egress_channel="aeron:ipc",
        )
    assert len(turns) > 10


async def test_a_driver_that_dies_ends_the_client(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    with AeronClient(members.aeron_dir) as shared:
        context = ClientContext(
            ingress_channel="aeron:ipc",
            egress_channel="aeron:ipc?alias=egress",
            client=shared,
            message_timeout=LIMIT_S,
        )
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with aconnect(context) as client:
            await asyncio.to_thread(shared.close)
            with pytest.raises(ClosedError):
                async for _ in client:
                    pass
            assert client.is_closed


async def test_another_thread_is_refused(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with aconnect(**settings(members)) as client:
        with pytest.raises(ClusterError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(client.offer, b"x")
        with pytest.raises(ClusterError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(lambda: asyncio.run(client.send(b"x")))
        loop = asyncio.get_running_loop()
        position = await asyncio.to_thread(
            lambda: asyncio.run_coroutine_threadsafe(client.send(b"x"), loop).result(LIMIT_S)
        )
        assert position > 0


async def test_a_client_that_is_forgotten_is_closed_with_a_warning(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    clients = [await aconnect(**settings(members))]
    with pytest.warns(ResourceWarning, match="unclosed <AsyncAeronCluster"):
        clients.clear()


def test_a_loop_that_ends_first_ends_the_client(members: ThreadedMembers, member: PatientMember) -> None:
    runner = asyncio.Runner()
    client = runner.run(_connect(members))
    runner.close()
    members.do(lambda: member.message(b"to nobody"))
    assert client._poller.join(LIMIT_S)
    assert client._cluster.is_closed


async def _connect(members: ThreadedMembers) -> AsyncAeronCluster:
    return await aconnect(**settings(members))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, True, "5", 10**400], ids=shown)
async def test_what_is_no_timeout_is_refused_before_anything_is_sent(
    members: ThreadedMembers, member: PatientMember, run: Run, value: Any
) -> None:
    async with aconnect(**settings(members), correlate=key_of) as client:
        for call in (
            lambda: client.send(b"x", timeout=value),
            lambda: client.request(b"7:x", key=7, timeout=value),
            lambda: client.request_snapshot(timeout=value),
        ):
            with pytest.raises(ConfigurationError, match="^timeout must be None or a number of seconds from 0 to"):
                await call()
        assert members.do(member.payloads) == []


def test_bad_settings_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="max_waiting must be a whole number from 1 to 2147483647, not 0"):
        aconnect(max_waiting=0)
    with pytest.raises(ConfigurationError, match="ingress_channel must be set"):
        aconnect(ingress_channel="")


@pytest.mark.parametrize("name", ["send", "request", "receive", "aclose", "offer"])
async def test_a_connect_that_is_not_awaited_says_so(name: str, recwarn: pytest.WarningsRecorder) -> None:
    connecting: Any = aconnect(ingress_channel="aeron:ipc", egress_channel="aeron:ipc")
    with pytest.raises((AttributeError, TypeError), match=rf"^{name} is the client's, .* 'client = await aconnect"):
        getattr(connecting, name)(b"a message")
    with pytest.raises(AttributeError, match="^'_Connecting' object has no attribute 'other'$"):
        _ = connecting.other
    assert not recwarn.list


async def test_a_connect_is_a_coroutine_for_tasks_and_groups(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with asyncio.TaskGroup() as tasks:
        grouped = tasks.create_task(aconnect(**settings(members)))
    async with grouped.result():
        pass
    client = await asyncio.create_task(aconnect(**settings(members)), name="connect")
    await client.aclose()
    connecting = aconnect(**settings(members))
    async with connecting as client:
        assert not client.is_closed
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await connecting
    aconnect(**settings(members)).close()


class Unhashable:
    """A key that cannot be one."""

    __hash__ = None  # type: ignore[assignment]


class Incomparable:
    """A key that others cannot be compared with."""

    def __hash__(self) -> int:
        return hash(1)

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


@pytest.mark.parametrize("key", [Unhashable(), Incomparable()], ids=lambda key: type(key).__name__)
async def test_a_key_that_cannot_be_one_costs_its_message_only(
    members: ThreadedMembers, member: PatientMember, run: Run, key: Any
) -> None:
    def correlate(payload: bytes) -> Any:
        return key if payload == b"odd" else key_of(payload)

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
    async with aconnect(**settings(members), correlate=correlate) as client:
        requests = [asyncio.create_task(client.request(b"%d:" % n, key=n)) for n in range(190)]
        await until(lambda: client.request_counts.in_flight == 190, "all to be in flight")

        def answer() -> None:
            for payload in (b"first", b"odd", *(b"%d:" % n for n in range(190)), b"last"):
                member.message(payload)

        members.do(answer)
        assert await asyncio.gather(*requests) == [b"%d:" % n for n in range(190)]
        assert [(await client.receive()).payload for _ in range(3)] == [b"first", b"odd", b"last"]
    assert len(reported) == 1
    assert "correlate() failed" in reported[0]["message"]


async def test_unread_messages_do_not_stop_replies_and_those_without_room_are_dropped_and_counted(
    members: ThreadedMembers, member: PatientMember, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with aconnect(**settings(members), max_waiting=100, correlate=key_of) as client:
        for number in range(1000):
            await client.send(b"%d" % number)
        await until(lambda: client._poller.is_held_back, "the poller to be held back")
        assert client.dropped_messages == 0
        assert await client.request(b"7:", key=7) == b"7:"
        assert 0 < client.dropped_messages <= 900
        taken = [await client.receive() for _ in range(1000 - client.dropped_messages)]
        assert [message.payload for message in taken] == [b"%d" % number for number in range(len(taken))]
        assert {message.missed for message in taken} == {0}
        await client.send(b"after")
        after = await client.receive()
        assert (after.payload, after.missed) == (b"after", client.dropped_messages)
        await client.send(b"and after")
        assert (await client.receive()).missed == 0
    assert caplog.text.count("wait to be taken from session 8") == 1


async def test_unread_messages_do_not_hide_a_new_leader(members: ThreadedMembers, run: Run) -> None:
    two = TwoMembers(members)
    async with aconnect(**two.settings(new_leader_timeout=LIMIT_S), max_waiting=10) as client:

        def flood() -> None:
            for number in range(200):
                two.old.message(b"%d" % number)

        members.do(flood)
        await until(lambda: client._poller.is_held_back, "the poller to be held back")
        await two.elect()
        await until(lambda: client.leader_member_id == 1, "the new leader")
        assert await client.request(b"7:", key=7) == b"7:"


async def test_bytes_that_wait_are_limited(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with aconnect(**settings(members), max_waiting_bytes=100_000, correlate=key_of) as client:

        async def send_all() -> None:
            for number in range(64):
                await client.send(b"%d" % number, bytes(50_000))

        sending = asyncio.create_task(send_all())
        await until(lambda: client._poller.is_held_back, "the poller to be held back")
        await until(lambda: len(client._inbox) == client._poller.waiting, "the loop to have looked at them")
        assert 100_000 <= client._poller.waiting_bytes < 300_000
        for number in range(64):
            assert (await client.receive()).payload.startswith(b"%d\0" % number)
        await sending
        assert client._poller.waiting_bytes == client._inbox._bytes == 0
        assert client.dropped_messages == 0


def test_an_inbox_keeps_the_newest_of_earlier_sessions() -> None:
    left, session = Inbox(3, 100), Inbox(10, 1000)
    for payload in (b"a", b"b", b"c", b"d"):
        assert session.put(EgressMessage(payload))
    left.put_all(session)
    assert (len(session), len(left), left.dropped) == (0, 3, 1)
    session.put(EgressMessage(bytes(100)))
    left.put_all(session)
    assert (len(left), left.dropped) == (1, 4)
    assert left.take().missed == 4


class Unused(EgressListener):
    def on_message(self, *message: Any) -> None:
        """Never called."""


@pytest.mark.parametrize("connect", [aconnect, areconnecting])
@pytest.mark.parametrize("listener", [Unused(), ControlledEgressListener()], ids=["egress", "controlled"])
def test_a_listener_whose_messages_nobody_would_give_it_is_refused(connect: Any, listener: EgressListener) -> None:
    channels: dict[str, Any] = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc"}
    refusal = f"{connect.__name__}.. never calls on_message of {type(listener).__name__}: take messages with"
    if isinstance(listener, ControlledEgressListener):
        refusal = f"{connect.__name__}.. takes an EgressListener in Python, not "
    with pytest.raises(ConfigurationError, match=refusal):
        connect(**channels, listener=listener)
    with pytest.raises(ConfigurationError, match=refusal):
        connect(ClientContext(**channels, listener=listener))
    one = EgressListener()
    one.on_message = lambda *message: None  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="never calls on_message of EgressListener"):
        connect(**channels, listener=one)


async def test_an_idle_client_costs_next_to_nothing_and_rests_no_longer_than_it_may(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async def polled(client: AsyncAeronCluster, seconds: float) -> float:
        begin, before = time.monotonic(), client._poller.poll_count
        await pause(seconds)
        return (client._poller.poll_count - before) / (time.monotonic() - begin)

    async with aconnect(**settings(members), correlate=key_of) as client:
        await pause(1.2)
        assert await polled(client, 0.5) <= 45, "polls of a second: a fiftieth of the quiet time between two"
        members.do(lambda: member.hooks.update(SessionMessageHeader=lambda request: None))
        request = asyncio.create_task(client.request(b"7:", key=7))
        await pause(1.2)
        busy = await polled(client, 0.5)
        members.do(lambda: member.message(b"7:done"))
        assert await request == b"7:done"
        assert busy > 100, "a reply is awaited: a millisecond between two polls"


def test_a_message_shows_itself() -> None:
    message = EgressMessage(b"x", 5)
    assert repr(message) == "EgressMessage(b'x', timestamp=5)"


class Agent:
    """Invoked by the client's polls; fails when it is told to."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.is_failing = False
        self.invocations = 0

    def invoke(self) -> int:
        if self.is_failing:
            self.invocations += 1
            raise self.error
        return 0


async def test_an_agent_that_always_fails_is_reported_and_takes_no_core(
    run: Run, members: ThreadedMembers, member: PatientMember
) -> None:
    agent = Agent(ZeroDivisionError("agent"))
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    async with aconnect(**settings(members, agent_invoker=agent.invoke)) as client:
        agent.is_failing = True
        threading.Event().wait(0.5)  # the loop's thread: what it does not look at is not collected without limit
        assert 0 < agent.invocations < 2_000
        agent.is_failing = False
        await client.send(b"goes on")
        assert (await client.receive()).payload == b"goes on"
    assert {type(error) for error in reported} == {ZeroDivisionError}


async def test_a_thread_that_is_ended_from_within_closes_its_client_and_says_why(
    run: Run, members: ThreadedMembers, member: PatientMember
) -> None:
    agent = Agent(SystemExit("agent"))
    async with aconnect(**settings(members, agent_invoker=agent.invoke)) as client:
        agent.is_failing = True
        with pytest.raises(ClosedError, match=r"its thread ended: SystemExit\('agent'\)"):
            await client.receive()
        assert client.is_closed
        with pytest.raises(ClosedError, match="its thread ended"):
            await client.send(b"x")
    await until(lambda: members.do(lambda: member.received("SessionCloseRequest")), "the session's close request")
