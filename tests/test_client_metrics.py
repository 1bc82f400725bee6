"""What a client or a pool counts: each number moves by what happened, and by nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys
import threading
from typing import Any

import pytest

from container.api import BACK_PRESSURED, Header, MessageBuffer
from container.client import (
    Action,
    AeronCluster,
    AsyncAeronCluster,
    ClientMetrics,
    ControlledEgressListener,
    RoundTripTimes,
    SessionPool,
)
from container.client.round_trip_recorder import RoundTripRecorder
from container.errors import ClosedError, ConfigurationError, LeaderChangedError, RequestTimedOutError
from container.testing.memory.memory_transport import ManualClock
from container.transport.message_buffer import BufferClaim
from tests import ingress_member, test_async_reconnecting, test_reconnecting
from tests.client_world import MEMBER_0, MEMBER_1, MS, S, World, elect
from tests.ingress_member import IngressMember
from tests.limits import LIMIT_S
from tests.pauses import until
from tests.test_session_pool import Gateway
from tests.threaded_members import PatientMember, ThreadedMembers, key_of

MAX_NS = 2**42 - 1


@pytest.fixture
def member(world: World) -> IngressMember:
    return IngressMember(world.driver, 0, MEMBER_0)


@pytest.fixture
def client(world: World, member: IngressMember) -> AeronCluster:
    return AeronCluster.connect(world.context(), correlate=key_of)


class Moves:
    """How far the numbers of a client or a pool have moved since it was made or looked at last; 0 is left out."""

    def __init__(self, of: Any) -> None:
        self._of = of
        self._last: ClientMetrics = of.metrics()

    def __call__(self) -> dict[str, int]:
        now: ClientMetrics = self._of.metrics()
        moved = {
            name: getattr(now, name) - getattr(self._last, name)
            for name in (field.name for field in dataclasses.fields(ClientMetrics))
            if name != "round_trips" and getattr(now, name) != getattr(self._last, name)
        }
        times = now.round_trips.count - self._last.round_trips.count
        self._last = now
        return moved | ({"round_trips": times} if times else {})


# A client


def test_a_client_begins_at_nothing(client: AeronCluster) -> None:
    assert client.metrics() == ClientMetrics(sessions=1)


def test_what_is_sent_counts_and_what_keeps_alive_does_not(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    moves = Moves(client)
    client.offer(b"one")
    client.send(b"two", b" parts")
    claim = BufferClaim()
    assert client.try_claim(3, claim) > 0
    claim.commit()
    assert moves() == {"sent": 3}
    client.send_keep_alive()
    world.advance(2 * S)
    world.poll(client, 20)
    assert len(member.received("SessionKeepAlive")) >= 2
    assert client.send_admin_request_to_take_a_snapshot(5)
    assert moves() == {}
    client.track_ingress_publication_result(640)
    assert moves() == {"sent": 1}


def test_back_pressure_counts_each_time(world: World, client: AeronCluster, member: IngressMember) -> None:
    moves = Moves(client)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 3)
    assert client.offer(b"refused") == BACK_PRESSURED
    assert moves() == {"back_pressured": 1}
    client.send(b"taken")
    assert moves() == {"back_pressured": 2, "sent": 1}


class Reluctant(ControlledEgressListener):
    """Takes each message when it comes for the third time."""

    def __init__(self) -> None:
        self.seen = 0

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: MessageBuffer, header: Header) -> Action:
        self.seen += 1
        return Action.CONTINUE if self.seen % 3 == 0 else Action.ABORT


def test_a_message_that_comes_again_has_come_once(world: World, member: IngressMember) -> None:
    listener = Reluctant()
    client = world.connect(listener=listener)
    moves = Moves(client)
    for _ in range(4):
        member.message(b"an event")
    member.message(b"of another session", session_id=77)
    world.poll(client, 20)
    assert listener.seen == 12
    assert moves() == {"received": 4}


def test_a_request_and_its_reply(world: World, client: AeronCluster, member: IngressMember) -> None:
    moves = Moves(client)
    request = client.begin_request(b"7:", key=7)
    assert moves() == {"sent": 1, "requests": 1, "in_flight": 1}
    world.advance(30 * MS)
    member.message(b"7:reply")
    world.poll(client, 1)
    assert request.is_done
    assert moves() == {"received": 1, "answered": 1, "in_flight": -1, "round_trips": 1}
    times = client.metrics().round_trips
    assert 30 * MS <= times.min_ns == times.max_ns == times.total_ns == times.percentile_ns(50) < 31 * MS
    member.message(b"7:late")
    world.poll(client, 1)
    assert moves() == {"received": 1, "unmatched": 1}


def test_a_request_that_gets_no_reply(world: World, client: AeronCluster) -> None:
    moves = Moves(client)
    with pytest.raises(RequestTimedOutError):
        client.request(b"7:", key=7, timeout=0.1)
    assert moves() == {"sent": 1, "requests": 1, "unknown": 1}


def test_a_change_of_leader(world: World, client: AeronCluster, member: IngressMember) -> None:
    once = client.begin_request(b"1:", key=1)
    twice = client.begin_request(b"2:", key=2, idempotent=True)
    moves = Moves(client)
    leader = elect(world, member)
    world.poll(client, 10)
    assert moves() == {"leader_changes": 1, "unknown": 1, "resent": 1, "sent": 1, "in_flight": -1}
    with pytest.raises(LeaderChangedError):
        once.wait()
    begun_ns = client.metrics().round_trips.total_ns
    world.advance(S)
    leader.message(b"2:reply")
    assert twice.wait() == b"2:reply"
    assert moves() == {"received": 1, "answered": 1, "in_flight": -1, "round_trips": 1}
    assert client.metrics().round_trips.total_ns - begun_ns >= S  # from when it was sent first
    elect(world, leader)
    world.poll(client, 10)
    assert moves() == {"leader_changes": 1}


def test_the_same_leader_in_the_same_term_is_no_change(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    moves = Moves(client)
    member.new_leader("0=node0:9010,1=node1:9110")
    world.poll(client, 10)
    assert moves() == {}


def test_the_numbers_stay_when_the_client_is_closed(client: AeronCluster) -> None:
    client.offer(b"one")
    client.begin_request(b"1:", key=1)
    moves = Moves(client)
    client.close()
    assert moves() == {"sessions": -1, "in_flight": -1, "unknown": 1}
    assert client.metrics().sent == 2


def test_counts_go_on_with_another_function_for_replies(client: AeronCluster, member: IngressMember) -> None:
    member.hooks["SessionMessageHeader"] = lambda request: member.message(request["payload"])
    client.request(b"1:", key=1)
    client.enable_requests(lambda payload: payload, resend=True)
    with pytest.raises(ConfigurationError, match="resend must be True or False, not 'no'"):
        client.enable_requests(key_of, resend="no")  # type: ignore[arg-type]
    assert client.request(b"2:", key=b"2:") == b"2:"
    assert (client.metrics().requests, client.metrics().round_trips.count) == (2, 2)


def test_any_thread_may_ask(client: AeronCluster) -> None:
    client.offer(b"one")
    seen: list[ClientMetrics] = []
    asking = threading.Thread(target=lambda: seen.append(client.metrics()))
    asking.start()
    asking.join(LIMIT_S)
    assert seen == [ClientMetrics(sent=1, sessions=1)]


def test_a_snapshot_is_frozen(client: AeronCluster) -> None:
    metrics: Any = client.metrics()
    for target, name in ((metrics, "sent"), (metrics.round_trips, "count")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(target, name, 5)


# A pool


def test_a_pool_counts_for_all_its_sessions(world: World) -> None:
    member = Gateway(world.driver, 0, MEMBER_0)
    pool = SessionPool.connect(world.context(), correlate=key_of)
    moves = Moves(pool)
    assert pool.metrics() == ClientMetrics()
    sessions = [pool.open() for _ in range(3)]
    assert moves() == {"connecting": 3}
    for _ in range(6):
        pool.poll()
    assert moves() == {"connecting": -3, "sessions": 3}

    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED])
    assert sessions[0].offer(b"refused") == BACK_PRESSURED
    assert sessions[0].offer(b"taken") > 0
    member.message(b"an event", session_id=sessions[1].cluster_session_id)
    request = sessions[2].begin_request(b"5:", key=5)
    assert moves() == {"back_pressured": 1, "sent": 2, "requests": 1, "in_flight": 1}
    member.message(b"5:reply", session_id=sessions[2].cluster_session_id)
    assert request.wait() == b"5:reply"
    assert moves() == {"received": 2, "answered": 1, "in_flight": -1, "round_trips": 1}

    sessions[0].close()
    assert moves() == {"sessions": -1}
    leader = Gateway(world.driver, 1, MEMBER_1)
    assert member.egress is not None
    leader.leadership_term_id = member.leadership_term_id + 1
    leader.open_egress(member.egress.channel)
    for session_id in (100, sessions[1].cluster_session_id, sessions[2].cluster_session_id):
        leader.new_leader("0=node0:9010,1=node1:9110", session_id=session_id)
    for _ in range(20):
        pool.poll()
    assert moves() == {"leader_changes": 1}
    pool.close()
    assert moves() == {"sessions": -2}


def test_a_message_that_comes_again_to_a_pooled_session_has_come_once(world: World) -> None:
    member = Gateway(world.driver, 0, MEMBER_0)
    listener = Reluctant()
    pool = SessionPool.connect(world.context())
    session = pool.open(listener)
    for _ in range(6):
        pool.poll()
    moves = Moves(pool)
    member.message(b"an event", session_id=session.cluster_session_id)
    for _ in range(6):
        pool.poll()
    assert listener.seen == 3
    assert moves() == {"received": 1}


# asyncio, and reconnecting clients: with threads and real drivers


def test_an_asyncio_client_counts() -> None:
    async def scenario(members: ThreadedMembers) -> None:
        members.member(0, "aeron:ipc", PatientMember.echo)
        settings: Any = {"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc?alias=egress"}
        connecting = AsyncAeronCluster.connect(
            **settings, aeron_dir=members.aeron_dir, message_timeout=LIMIT_S, correlate=key_of, max_waiting=100
        )
        async with connecting as client:
            moves = Moves(client)
            for number in range(5):
                await client.request(b"%d:" % number, key=number)
            assert moves() == {"sent": 5, "requests": 5, "answered": 5, "received": 5, "round_trips": 5}
            await client.send(b"one")
            await client.send(b"two")
            assert (await client.receive()).payload == b"one"
            async with asyncio.timeout(LIMIT_S):
                while client.metrics().unread == 0:
                    await client.request(b"9:", key=9)
            moved = moves()
            assert (moved["unread"], moved["received"]) == (1, moved.get("answered", 0) + 2)
        assert moves()["sessions"] == -1
        assert 0 < client.metrics().round_trips.min_ns <= client.metrics().round_trips.max_ns < LIMIT_S * S

    with ThreadedMembers() as members:
        asyncio.run(scenario(members))


def test_a_client_that_connects_again_counts_over_all_its_sessions() -> None:
    with ThreadedMembers() as members:
        member = members.member(0, "aeron:ipc", PatientMember.echo)
        member.be_silent()
        with test_reconnecting.connecting(members, resend=True) as client:
            moves = Moves(client)
            again = [client.begin_request(b"%d:" % key, key=key) for key in range(10)]
            client.begin_request(b"100:", key=100, idempotent=False)
            test_reconnecting.until(client, lambda: len(member.sent()) == 11, "all to be in flight")
            assert moves() == {"sent": 11, "requests": 11, "in_flight": 11}
            test_reconnecting.lose_session(client, members, member)
            assert moves() == {"unknown": 1, "in_flight": -1, "waiting": 10, "sessions": -1} | connecting_now(client)
            members.do(member.echo)
            member.accept_again()
            assert [request.wait() for request in again] == [b"%d:" % key for key in range(10)]
            moved = moves()
            moved.pop("connecting", None)
            assert moved == {
                "reconnects": 1,
                "sessions": 1,
                "waiting": -10,
                "sent": 10,
                "resent": 10,
                "received": 10,
                "answered": 10,
                "in_flight": -10,
                "round_trips": 10,
            }
        assert moves() == {"sessions": -1}


def connecting_now(client: Any) -> dict[str, int]:
    """Whether an attempt is under way is up to the moment."""
    return {"connecting": 1} if client.metrics().connecting else {}


def test_an_asyncio_client_that_connects_again_counts_over_all_its_sessions() -> None:
    async def scenario(members: ThreadedMembers) -> None:
        member = members.member(0, "aeron:ipc", PatientMember.echo)
        async with test_async_reconnecting.connecting(members) as client:
            moves = Moves(client)
            assert await client.request(b"1:", key=1) == b"1:"
            assert moves() == {"sent": 1, "requests": 1, "answered": 1, "received": 1, "round_trips": 1}
            member.be_silent()
            asking = asyncio.create_task(client.request(b"2:", key=2, idempotent=True))
            await until(lambda: len(member.sent()) == 2, "it to be in flight")
            members.do(member.echo)
            assert moves() == {"sent": 1, "requests": 1, "in_flight": 1}
            members.do(lambda: member.session_event(5, ingress_member.CLOSED, "TIMEOUT"))
            assert await asking == b"2:"
            await client.send(b"an event")
            await until(lambda: client.metrics().unread == 1, "the echo")
            metrics = client.metrics()
            assert (metrics.sent, metrics.received, metrics.requests, metrics.answered) == (4, 3, 2, 2)
            assert (metrics.resent, metrics.reconnects, metrics.sessions, metrics.unknown) == (1, 1, 1, 0)
            assert metrics.round_trips.count == 2
        assert client.metrics() == dataclasses.replace(metrics, sessions=0)

    with ThreadedMembers() as members:
        asyncio.run(scenario(members))


def test_messages_in_the_outbox_wait() -> None:
    with ThreadedMembers() as members:
        member = members.member(0, "aeron:ipc", PatientMember.echo)
        with test_reconnecting.connecting(members) as client:
            test_reconnecting.lose_session(client, members, member)
            waiting = [client.begin_request(b"%d:" % key, key=key) for key in range(7)]
            assert (client.metrics().waiting, client.metrics().requests) == (7, 0)
        for request in waiting:
            with pytest.raises(ClosedError):
                request.wait()
        assert client.metrics().waiting == 0


# Round trips


def recorded(*durations_ns: int) -> RoundTripTimes:
    recorder = RoundTripRecorder(ManualClock())
    for duration_ns in durations_ns:
        recorder.record(duration_ns)
    return recorder.snapshot()


def test_no_round_trip() -> None:
    times = recorded()
    assert times == RoundTripTimes(count=0, min_ns=0, max_ns=0, total_ns=0, buckets=())
    assert (times.mean_ns, times.percentile_ns(50)) == (0.0, 0)


@pytest.mark.parametrize("ns", [0, 1, 127, 128, 255, 256, 257, 511, 512, 30_000, S, 10**12, MAX_NS - 1, MAX_NS])
def test_a_duration_is_as_exact_as_its_bucket(ns: int) -> None:
    times = recorded(ns, ns, ns)
    assert (times.count, times.min_ns, times.max_ns, times.total_ns) == (3, ns, ns, 3 * ns)
    ((bound_ns, count),) = times.buckets
    assert count == 3
    assert ns <= bound_ns <= ns * 129 / 128
    assert times.percentile_ns(0) == times.percentile_ns(50) == times.percentile_ns(100) == ns


@pytest.mark.parametrize(("given", "counted"), [(-1, 0), (-(2**63), 0), (MAX_NS + 1, MAX_NS), (2**63 - 1, MAX_NS)])
def test_a_duration_out_of_range_counts_as_the_nearest(given: int, counted: int) -> None:
    assert recorded(given) == recorded(counted)


def test_percentiles_are_those_of_the_durations() -> None:
    chance = random.Random(7)
    durations = sorted(int(chance.lognormvariate(11, 2)) for _ in range(5_000))
    times = recorded(*chance.sample(durations, len(durations)))
    assert (times.min_ns, times.max_ns, times.total_ns) == (durations[0], durations[-1], sum(durations))
    assert sum(count for _, count in times.buckets) == times.count == len(durations)
    assert times.mean_ns == sum(durations) / len(durations)
    for percent in (0.1, 1, 25, 50, 75, 90, 99, 99.9, 99.99, 100):
        exact = durations[min(len(durations) - 1, -(-len(durations) * percent // 100).__int__() - 1)]
        assert exact <= times.percentile_ns(percent) <= exact * 129 / 128 + 1


@pytest.mark.parametrize("percent", [-1, 100.1, float("nan"), True, "50", None])
def test_a_percentage_is_a_number_from_0_to_100(percent: Any) -> None:
    with pytest.raises(ConfigurationError, match="percent must be a number from 0 to 100, not "):
        recorded(5).percentile_ns(percent)


def test_an_hdr_histogram_has_the_same_counts() -> None:
    chance = random.Random(11)
    times = recorded(*(int(chance.lognormvariate(12, 3)) for _ in range(1_999)), MAX_NS)
    histogram = times.to_hdr_histogram()
    assert histogram.get_total_count() == times.count
    seen = [(each.value_iterated_to, each.count_added_in_this_iter_step) for each in histogram.get_recorded_iterator()]
    assert seen == list(times.buckets)
    for percent in (1, 50, 99, 99.9):
        assert histogram.get_value_at_percentile(percent) == times.percentile_ns(percent)


def test_without_the_package_an_hdr_histogram_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    with pytest.raises(
        ConfigurationError, match=r"needs hdrhistogram: pip install 'aeron-cluster-container\[metrics\]'"
    ):
        recorded(5).to_hdr_histogram()


def test_round_trips_are_measured_by_the_clock() -> None:
    clock = ManualClock()
    recorder = RoundTripRecorder(clock)
    begin_ns = recorder.now_ns()
    clock.advance(250)
    recorder.record_since(begin_ns)
    assert recorder.snapshot().buckets == ((250, 1),)
