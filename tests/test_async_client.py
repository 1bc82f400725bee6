"""The asyncio client, against scripted members over a media driver in this process, with asyncio's loop and uvloop."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from container.aeron import AeronClient
from container.api import BACK_PRESSURED
from container.client import (
    AdminResponseCode,
    AsyncAeronCluster,
    AsyncReconnectingClient,
    ClientContext,
    ClientState,
    ControlledEgressListener,
    EgressListener,
    EgressMessage,
    EventCode,
    RequestCounts,
)
from container.client.async_client import Inbox
from container.errors import (
    ClosedError,
    ClusterError,
    ConfigurationError,
    DriverTimeoutError,
    LeaderChangedError,
    Outcome,
    TimedOutError,
)
from tests import ingress_member
from tests.client_kinds import TwoMembers, await_threads
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
    await_threads()


async def test_messages_are_sent_and_received_in_order(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with AsyncAeronCluster.connect(**members.settings()) as client:
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


async def test_a_reply_that_came_before_the_end_counts_as_answered_and_nothing_else(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with AsyncAeronCluster.connect(**members.settings(), correlate=key_of) as client:
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
    member.be_silent()
    async with AsyncAeronCluster.connect(**members.settings(), correlate=key_of) as client:
        asking = asyncio.create_task(client.request(b"7:", key=7, timeout=0.2))
        await until(lambda: client.request_counts.sent == 1, "it to be sent")
        client._table.answer(client.cluster_session_id, 7, b"7:just in time")
        due = time.monotonic() + 0.3
        while time.monotonic() < due:  # the loop does not run until the time-out is due as well
            members.do(lambda: None)
        assert await asking == b"7:just in time"
        assert client.request_counts[:4] == (1, 1, 0, 0)


async def test_send_waits_out_back_pressure_in_order(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with AsyncAeronCluster.connect(**members.settings()) as client:
        members.do(lambda: members.remove_task(member.work))  # the member reads nothing any more
        message = bytes(60_000)
        while client.offer(message) > 0:
            pass
        assert client.offer(message) == BACK_PRESSURED
        with pytest.raises(TimedOutError, match="message was not accepted within 0.05 s: last result BACK_PRESSURED"):
            await client.send(message, timeout=0.05)
        waiting = [asyncio.create_task(client.send(b"%d" % n, bytes(50_000))) for n in range(10)]
        cancelled = asyncio.create_task(client.send(b"never"))
        await asyncio.wait([*waiting, cancelled], timeout=0.02)
        cancelled.cancel()
        member.be_silent()
        members.do(lambda: members.add_task(member.work))
        positions = await asyncio.gather(*waiting)
        assert positions == sorted(positions)
        await client.send(b"last")
        await until(lambda: member.sent()[-1:] == [b"last"], "the last message")
        payloads = [payload[:1] for payload in member.sent() if len(payload) == 50_001]
        assert payloads == [b"%d" % n for n in range(10)]
        assert b"never" not in member.sent()
        assert not client._sending.locked()


async def test_nothing_more_is_read_while_nobody_takes_messages(
    members: ThreadedMembers, member: PatientMember, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncAeronCluster.connect(**members.settings(), max_waiting=100) as client:
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

    async with AsyncAeronCluster.connect(**members.settings()) as client:
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


async def test_the_cluster_closes_the_client(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    events: list[tuple[Any, ...]] = []

    class Listening(EgressListener):
        def on_session_event(self, *event: Any) -> None:
            events.append(event)
            raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with AsyncAeronCluster.connect(**members.settings(), listener=Listening()) as client:
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
    async with AsyncAeronCluster.connect(**members.settings()) as client:
        response = await client.request_snapshot()
        assert (response.response_code, response.message) == (AdminResponseCode.UNAUTHORISED_ACCESS, "not you")
        members.do(lambda: member.hooks.update(AdminRequest=lambda request: None))
        with pytest.raises(TimedOutError, match="no answer to the request for a snapshot within 0.05 s"):
            await client.request_snapshot(timeout=0.05)
        assert client._admin_requests == {}
        waiting = asyncio.create_task(client.request_snapshot())
        await until(lambda: client._admin_requests, "the request")
        await client.aclose()
        for call in (waiting, client.request_snapshot()):
            with pytest.raises(ClosedError, match="the client is closed: closed by this client"):
                await call


async def test_an_idle_client_does_not_wake_the_loop(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with AsyncAeronCluster.connect(**members.settings(), keep_alive_interval=0.02) as client:
        await until(lambda: len(member.received("SessionKeepAlive")) >= 3, "some keep alives")
        assert client._poller.wake_count == 0
        polls = client._poller.poll_count
        begin = time.monotonic()
        await asyncio.wait([asyncio.create_task(client.receive())], timeout=0.2)
        parked = (client._poller.poll_count - polls) / (time.monotonic() - begin)
        assert parked < 5000, "an idle poller waits about a millisecond between polls"


async def test_a_new_leader_is_followed(members: ThreadedMembers, run: Run) -> None:
    two = TwoMembers(members)
    led: list[int] = []

    class Listening(EgressListener):
        def on_new_leader(self, cluster_session_id: int, leadership_term_id: int, *rest: Any) -> None:
            led.append(leadership_term_id)

    members.do(two.old.echo)
    async with AsyncAeronCluster.connect(**members.settings(**two.settings), listener=Listening()) as client:
        await client.send(b"before")
        assert (await client.receive()).payload == b"before"
        snapshot = asyncio.create_task(client.request_snapshot())
        await until(lambda: client.request_counts.in_flight == 1, "the request to be in flight")
        await two.elect()
        await until(lambda: client.leader_member_id == 1, "the new leader")
        with pytest.raises(LeaderChangedError) as lost:
            await snapshot
        assert lost.value.outcome == Outcome.UNKNOWN
        await client.send(b"after")
        while (await client.receive()).payload != b"after":
            pass
        assert led == [4]


async def test_without_a_driver_the_loop_goes_on_and_the_connect_fails(tmp_path: Path, run: Run) -> None:
    turns: list[float] = []

    def turn() -> None:
        turns.append(time.monotonic())
        asyncio.get_running_loop().call_later(0.001, turn)

    turn()
    with pytest.raises(DriverTimeoutError):
        await AsyncAeronCluster.connect(
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
        async with AsyncAeronCluster.connect(context) as client:
            await asyncio.to_thread(shared.close)
            with pytest.raises(ClosedError):
                async for _ in client:
                    pass
            assert client.is_closed


async def test_another_thread_is_refused(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with AsyncAeronCluster.connect(**members.settings()) as client:
        with pytest.raises(ClusterError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(client.offer, b"x")
        with pytest.raises(ClusterError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(lambda: asyncio.run(client.send(b"x")))
        loop = asyncio.get_running_loop()
        position = await asyncio.to_thread(
            lambda: asyncio.run_coroutine_threadsafe(client.send(b"x"), loop).result(LIMIT_S)
        )
        assert position > 0


def test_a_loop_that_ends_first_ends_the_client(members: ThreadedMembers, member: PatientMember) -> None:
    runner = asyncio.Runner()
    client = runner.run(_connect(members))
    runner.close()
    members.do(lambda: member.message(b"to nobody"))
    assert client._poller.join(LIMIT_S)
    assert client._cluster.is_closed


async def _connect(members: ThreadedMembers) -> AsyncAeronCluster:
    return await AsyncAeronCluster.connect(**members.settings())


def test_bad_settings_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="max_waiting must be a whole number from 1 to 2147483647, not 0"):
        AsyncAeronCluster.connect(max_waiting=0)
    with pytest.raises(ConfigurationError, match="ingress_channel is not set"):
        AsyncAeronCluster.connect(ingress_channel="")


@pytest.mark.parametrize("name", ["send", "request", "receive", "aclose", "offer"])
async def test_a_connect_that_is_not_awaited_says_so(name: str, recwarn: pytest.WarningsRecorder) -> None:
    connecting: Any = AsyncAeronCluster.connect(ingress_channel="aeron:ipc", egress_channel="aeron:ipc")
    with pytest.raises(
        (AttributeError, TypeError), match="^AsyncAeronCluster is not connected yet: .* 'client = await"
    ):
        getattr(connecting, name)(b"a message")
    with pytest.raises(AttributeError, match="^'_Connecting' object has no attribute 'other'$"):
        _ = connecting.other
    assert not recwarn.list


async def test_a_connect_is_a_coroutine_for_tasks_and_groups(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async with asyncio.TaskGroup() as tasks:
        grouped = tasks.create_task(AsyncAeronCluster.connect(**members.settings()))
    async with grouped.result():
        pass
    client = await asyncio.create_task(AsyncAeronCluster.connect(**members.settings()), name="connect")
    await client.aclose()
    connecting = AsyncAeronCluster.connect(**members.settings())
    async with connecting as client:
        assert not client.is_closed
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await connecting
    AsyncAeronCluster.connect(**members.settings()).close()


async def test_unread_messages_do_not_stop_replies_and_those_without_room_are_dropped_and_counted(
    members: ThreadedMembers, member: PatientMember, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncAeronCluster.connect(**members.settings(), max_waiting=100, correlate=key_of) as client:
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
    async with AsyncAeronCluster.connect(
        **members.settings(**two.settings), new_leader_timeout=LIMIT_S, correlate=key_of, max_waiting=10
    ) as client:

        def flood() -> None:
            for number in range(200):
                two.old.message(b"%d" % number)

        members.do(flood)
        await until(lambda: client._poller.is_held_back, "the poller to be held back")
        await two.elect()
        await until(lambda: client.leader_member_id == 1, "the new leader")
        assert await client.request(b"7:", key=7) == b"7:"


async def test_bytes_that_wait_are_limited(members: ThreadedMembers, member: PatientMember, run: Run) -> None:
    async with AsyncAeronCluster.connect(**members.settings(), max_waiting_bytes=100_000, correlate=key_of) as client:

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


@pytest.mark.parametrize("kind", [AsyncAeronCluster, AsyncReconnectingClient])
@pytest.mark.parametrize("listener", [Unused(), ControlledEgressListener()], ids=["egress", "controlled"])
def test_a_listener_whose_messages_nobody_would_give_it_is_refused(kind: Any, listener: EgressListener) -> None:
    channels: dict[str, Any] = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc"}
    refusal = f"{kind.__name__}.connect.. never calls on_message of {type(listener).__name__}: take messages with"
    if isinstance(listener, ControlledEgressListener):
        refusal = f"{kind.__name__}.connect.. takes an EgressListener in Python, not "
    with pytest.raises(ConfigurationError, match=refusal):
        kind.connect(**channels, listener=listener)
    with pytest.raises(ConfigurationError, match=refusal):
        kind.connect(ClientContext(**channels, listener=listener))
    one = EgressListener()
    one.on_message = lambda *message: None  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="never calls on_message of EgressListener"):
        kind.connect(**channels, listener=one)


async def test_an_idle_client_costs_next_to_nothing_and_rests_no_longer_than_it_may(
    members: ThreadedMembers, member: PatientMember, run: Run
) -> None:
    async def polled(client: AsyncAeronCluster, seconds: float) -> float:
        begin, before = time.monotonic(), client._poller.poll_count
        await pause(seconds)
        return (client._poller.poll_count - before) / (time.monotonic() - begin)

    async with AsyncAeronCluster.connect(**members.settings(), correlate=key_of) as client:
        await pause(1.2)
        assert await polled(client, 0.5) <= 45, "polls of a second: a fiftieth of the quiet time between two"
        member.be_silent()
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
    async with AsyncAeronCluster.connect(**members.settings(agent_invoker=agent.invoke)) as client:
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
    async with AsyncAeronCluster.connect(**members.settings(agent_invoker=agent.invoke)) as client:
        agent.is_failing = True
        with pytest.raises(ClosedError, match=r"its thread ended: SystemExit\('agent'\)"):
            await client.receive()
        assert client.is_closed
        with pytest.raises(ClosedError, match="its thread ended"):
            await client.send(b"x")
    await until(lambda: members.do(lambda: member.received("SessionCloseRequest")), "the session's close request")
