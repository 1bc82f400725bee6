"""Requests in flight while leaders change: blocking clients and pools, over memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from container.api import BACK_PRESSURED, NOT_CONNECTED
from container.client import AeronCluster, ClientState, Request, RequestCounts, SessionPool
from container.client import requests as requests_module
from container.client.requests import RequestTable, reply_key
from container.errors import (
    ClusterError,
    ConfigurationError,
    LeaderChangedError,
    Outcome,
    RequestClosedError,
    RequestTimedOutError,
    SendTimedOutError,
)
from tests import ingress_member
from tests.client_world import ENDPOINTS, MEMBER_0, MEMBER_1, MS, S, World, elect
from tests.ingress_member import IngressMember
from tests.test_session_pool import Gateway, a_new_leader
from tests.threaded_members import key_of


@pytest.fixture
def member(world: World) -> IngressMember:
    return IngressMember(world.driver, 0, MEMBER_0)


@pytest.fixture
def client(world: World, member: IngressMember) -> AeronCluster:
    return AeronCluster.connect(world.context(), correlate=key_of)


def echo(member: IngressMember) -> None:
    member.hooks["SessionMessageHeader"] = lambda request: member.message(request["payload"])


def begin(client: AeronCluster, keys: range, *, idempotent: bool | None = None) -> list[Request]:
    return [client.begin_request(b"%d:" % key, key=key, idempotent=idempotent) for key in keys]


def counts(client: AeronCluster | SessionPool) -> RequestCounts:
    assert client.request_counts is not None
    return client.request_counts


# One leader


def test_each_request_has_its_own_deadline(world: World, client: AeronCluster) -> None:
    long = client.begin_request(b"1:", key=1, timeout=3.0)
    short = client.begin_request(b"2:", key=2, timeout=1.0)
    world.advance(1 * S)
    client.poll_egress()
    assert (long.is_done, short.is_done) == (False, True)
    world.advance(2 * S)
    client.poll_egress()
    assert isinstance(long.error, RequestTimedOutError)


def test_a_request_that_cannot_be_sent_says_so(world: World, client: AeronCluster) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 1000)
    with pytest.raises(SendTimedOutError) as late:
        client.request(b"7:", key=7, timeout=0.5)
    assert late.value.outcome == Outcome.NOT_DONE
    assert counts(client).sent == 0


def test_requests_can_be_enabled_later(world: World, member: IngressMember) -> None:
    plain = world.connect()
    with pytest.raises(ConfigurationError, match="correlate must be a function that returns a reply's key, not 5"):
        AeronCluster.connect(world.context(), correlate=5)  # type: ignore[arg-type]
    plain.enable_requests(key_of)
    request = plain.begin_request(b"7:", key=7)
    with pytest.raises(ClusterError, match="1 requests wait for their replies already"):
        plain.enable_requests(key_of)
    member.message(b"7:done")
    assert request.wait() == b"7:done"


def test_a_request_can_not_be_awaited_in_a_callback(world: World, client: AeronCluster, member: IngressMember) -> None:
    world.listener.on_any = lambda: client.request(b"7:", key=7)
    member.message(b"x")
    with pytest.raises(ClusterError, match="must not be called from a listener's callback"):
        client.poll_egress()


# Replies that come late


REFUSED = "key 7 was that of a request whose reply may still come, and would answer this one: use keys that are never"


def test_a_key_is_refused_until_all_leaders_that_were_asked_have_answered(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    request = client.begin_request(b"7:", key=7, idempotent=True)
    once = client.begin_request(b"8:", key=8)
    leader = elect(world, member)
    world.poll(client)
    assert leader.payloads() == [b"7:"]
    leader.message(b"7:first")
    leader.message(b"8:of the log")
    assert request.wait() == b"7:first"
    assert isinstance(once.error, LeaderChangedError)
    world.poll(client)
    assert client.begin_request(b"8:again", key=8).is_sent
    for call in (client.request, client.begin_request, client.try_request):
        with pytest.raises(ClusterError, match=REFUSED) as refused:
            call(b"7:again", key=7)
        assert refused.value.outcome == Outcome.NOT_DONE
    leader.message(b"7:second")
    client.poll_egress()
    assert client.begin_request(b"7:again", key=7).is_sent


def test_a_callback_cannot_take_the_key_of_a_request_that_waits_to_be_sent(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    inner: list[Request | None] = []

    def ask() -> None:
        world.listener.on_any = lambda: None
        inner.append(client.try_request(b"7:of the callback", key=7))

    world.listener.on_any = ask
    member.message(b"an event")
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED])
    with pytest.raises(ClusterError, match="a request with key 7 is already waiting"):
        client.request(b"7:", key=7)
    member.message(b"7:done")
    assert inner[0] is not None
    assert inner[0].wait() == b"7:done"
    assert member.payloads() == [b"7:of the callback"]


def test_keys_that_are_refused_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "MAX_OWED", 3)
    table = RequestTable(key_of)
    for key in range(5):
        request = Request(key)
        table.add(1, request, 3)
        table.forget(1, request)
    for key in (0, 1):
        table.check_key(1, key)
    for key in (2, 3, 4):
        with pytest.raises(ClusterError, match="may still come"):
            table.check_key(1, key)
        table.check_key(2, key)
    table.on_session_closed(1, "TIMEOUT")
    for key in range(5):
        table.check_key(1, key)
    assert table._keys == {}


# Leaders that change


@pytest.mark.parametrize("resend", [True, False], ids=["resend=", "idempotent="])
def test_idempotent_requests_are_sent_again_in_their_order_and_once_to_each_leader(
    world: World, member: IngressMember, resend: bool
) -> None:
    client = AeronCluster.connect(world.context(), correlate=key_of, resend=resend)
    once = client.begin_request(b"99:", key=99, idempotent=False)
    requests = begin(client, range(20), idempotent=None if resend else True)
    client.poll_egress()
    assert len(member.payloads()) == 21
    leader = elect(world, member)
    world.poll(client, 20)
    assert leader.payloads() == [b"%d:" % key for key in range(20)]
    assert isinstance(once.error, LeaderChangedError)
    for key in (3, 1):
        leader.message(b"%d:done" % key)
    world.poll(client, 3)
    assert len(leader.payloads()) == 20
    third = elect(world, leader)
    world.poll(client, 20)
    assert third.payloads() == [b"%d:" % key for key in range(20) if key not in (1, 3)]
    for key in range(20):
        third.message(b"%d:done" % key)
    assert [request.wait() for request in requests] == [b"%d:done" % key for key in range(20)]
    assert {request.key: request.resent for request in requests} == {key: 2 - (key in (1, 3)) for key in range(20)}
    assert counts(client) == RequestCounts(sent=21, answered=20, resent=38, unknown=1, unmatched=2, in_flight=0)


def test_what_is_sent_after_the_change_comes_behind_what_is_sent_again(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    begin(client, range(10), idempotent=True)
    leader = elect(world, member)
    while client.leader_member_id == 0:
        client.poll_egress()
    world.driver.publication_results(MEMBER_1, 101, [None, BACK_PRESSURED, None, None, BACK_PRESSURED])
    assert client.offer(b"too early") == NOT_CONNECTED
    client.send(b"next")
    world.poll(client)
    assert leader.payloads() == [*(b"%d:" % key for key in range(10)), b"next"]


def test_a_reply_that_waits_to_be_read_counts_though_a_new_leader_is_there(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    once, twice = begin(client, range(1)) + begin(client, range(1, 2), idempotent=True)
    leader = elect(world, member)
    for _ in range(30):
        member.message(b"an event")  # more than a poll reads
    member.message(b"0:in time")
    member.message(b"1:in time")
    world.poll(client, 20)
    assert (once.payload, twice.payload) == (b"0:in time", b"1:in time")
    assert leader.payloads() == []
    assert counts(client)[:5] == (2, 2, 0, 0, 0)


def test_an_egress_that_is_never_all_read_does_not_hold_up_what_is_sent_again(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    (request,) = begin(client, range(1), idempotent=True)
    leader = elect(world, member)
    echo(leader)
    for _ in range(50):
        for _ in range(20):
            leader.message(b"an event")
        client.poll_egress(5)
        world.advance(10 * MS)
    assert leader.payloads() == [b"0:"]
    assert request.wait() == b"0:"


def test_a_leader_that_is_lost_before_all_is_sent_again_leaves_it_to_the_next(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    requests = begin(client, range(10), idempotent=True)
    leader = elect(world, member)
    world.driver.publication_results(MEMBER_1, 101, [None, None, None] + [BACK_PRESSURED] * 100)
    world.poll(client, 5)
    assert len(leader.payloads()) < 10
    last = IngressMember(world.driver, 0, MEMBER_0)
    last.leadership_term_id = 5
    assert member.egress is not None
    last.open_egress(member.egress.channel)
    last.new_leader(ENDPOINTS)
    echo(last)
    assert [request.wait() for request in requests] == [b"%d:" % key for key in range(10)]
    assert last.payloads() == [b"%d:" % key for key in range(10)]


def test_requests_to_the_new_leader_are_not_those_to_the_old_one(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    world.poll(client)
    (request,) = begin(client, range(1))
    echo(leader)
    world.poll(client)
    assert request.is_done
    assert counts(client)[:4] == (1, 1, 0, 0)


def test_a_deadline_holds_while_there_is_no_leader(world: World, client: AeronCluster, member: IngressMember) -> None:
    (request,) = begin(client, range(1), idempotent=True)
    member.stop()
    with pytest.raises(RequestTimedOutError, match="within 5 s"):
        request.wait()
    assert client.state == ClientState.AWAIT_NEW_LEADER


def test_no_new_leader_in_time_ends_requests_with_the_reason(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    request = client.begin_request(b"1:", key=1, idempotent=True, timeout=60)
    member.stop()
    with pytest.raises(RequestClosedError, match="no new leader within 10 s"):
        request.wait()


def test_a_leader_that_stands_still_does_not_end_requests(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    (request,) = begin(client, range(1))
    world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED] * 5)
    world.advance(S)
    world.poll(client)
    assert not request.is_done
    member.message(b"0:back")
    assert request.wait() == b"0:back"


# Pools


@pytest.fixture
def gateway(world: World) -> Gateway:
    return Gateway(world.driver, 0, MEMBER_0)


@pytest.fixture
def pool(world: World, gateway: Gateway) -> SessionPool:
    return SessionPool.connect(world.context(), correlate=key_of)


def answer(member: Gateway) -> None:
    member.hooks["SessionMessageHeader"] = lambda request: member.message(
        request["payload"], session_id=request["cluster_session_id"]
    )


def test_keys_of_a_pool_are_of_each_session(world: World, pool: SessionPool, gateway: Gateway) -> None:
    answer(gateway)
    sessions = pool.open_all(3)
    requests = [session.begin_request(b"7:%d" % number, key=7) for number, session in enumerate(sessions)]
    assert [request.wait() for request in requests] == [b"7:0", b"7:1", b"7:2"]
    assert sessions[0].send(b"no request") > 0
    assert sessions[0].request(b"8:", key=8) == b"8:"
    assert world.listener.messages == [b"no request"]
    assert counts(pool)[:2] == (4, 4)


def test_a_key_of_a_pooled_session_is_free_again_in_its_next_session(
    world: World, pool: SessionPool, gateway: Gateway
) -> None:
    first, second = pool.open_all(2)
    with pytest.raises(RequestTimedOutError):
        first.request(b"7:", key=7, timeout=0.5)
    with pytest.raises(ClusterError, match=REFUSED):
        first.request(b"7:", key=7)
    assert second.begin_request(b"7:", key=7).is_sent
    gateway.session_event(5, ingress_member.CLOSED, "TIMEOUT", session_id=first.cluster_session_id)
    answer(gateway)
    pool.poll()
    assert first.request(b"7:next", key=7) == b"7:next"


def test_requests_of_a_pool_are_sent_again_for_their_sessions_or_end(
    world: World, pool: SessionPool, gateway: Gateway
) -> None:
    sessions = pool.open_all(3)
    again = [session.begin_request(b"7:", key=7, idempotent=True) for session in sessions]
    once = [session.begin_request(b"8:", key=8) for session in sessions]
    leader = a_new_leader(world, gateway, range(100, 104))
    for request in once:
        with pytest.raises(LeaderChangedError):
            request.wait()
    answer(leader)
    assert [request.wait() for request in again] == [b"7:"] * 3
    sent = [(request["cluster_session_id"], request["payload"]) for request in leader.received("SessionMessageHeader")]
    assert sent == [(101, b"7:"), (102, b"7:"), (103, b"7:")]
    assert counts(pool) == RequestCounts(sent=6, answered=3, resent=3, unknown=3, unmatched=0, in_flight=0)


def test_a_send_of_a_pooled_session_waits_for_room_and_ends(world: World, pool: SessionPool, gateway: Gateway) -> None:
    (session,) = pool.open_all(1)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 5)
    assert session.send(b"x") > 0
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 10_000)
    with pytest.raises(SendTimedOutError, match="BACK_PRESSURED"):
        session.send(b"x", timeout=0.5)


# The table alone


def test_a_correlate_that_fails_is_the_polls_error(world: World, member: IngressMember) -> None:
    def fail(payload: bytes) -> Hashable:
        raise ZeroDivisionError

    client = AeronCluster.connect(world.context(), correlate=fail)
    member.message(b"x")
    with pytest.raises(ZeroDivisionError) as failed:
        client.poll_egress()
    assert failed.traceback[-1].name == "fail"
    assert failed.value.__notes__ == [
        "correlate test_a_correlate_that_fails_is_the_polls_error.<locals>.fail() (File "
        f"\"{__file__}\", line {fail.__code__.co_firstlineno}) failed for the message b'x' (1 byte): it is called with "
        "every message of the service; return None for one that is not a reply"
    ]


def test_a_correlate_that_reads_an_empty_message_is_named(world: World, member: IngressMember) -> None:
    client = AeronCluster.connect(world.context(), correlate=bytes.decode)
    member.message(b"\xff")
    with pytest.raises(UnicodeDecodeError) as failed:
        client.poll_egress()
    assert "correlate bytes.decode() failed for the message b'\\xff' (1 byte)" in failed.value.__notes__[0]
    client.enable_requests(lambda payload: payload[0])
    member.message(b"")
    with pytest.raises(IndexError) as empty:
        client.poll_egress()
    assert "<lambda>() (File" in empty.value.__notes__[0]
    assert "failed for the message b'' (0 bytes)" in empty.value.__notes__[0]


def test_the_note_on_an_error_that_is_raised_again_is_there_once() -> None:
    error = ValueError("the same")

    def fail(payload: bytes) -> Hashable:
        raise error

    for _ in range(3):
        with pytest.raises(ValueError, match="the same"):
            reply_key(fail, b"x")
    assert len(error.__notes__) == 1


def test_a_key_of_a_reply_that_cannot_be_hashed_is_named(world: World, member: IngressMember) -> None:
    correlate: Any = lambda payload: [payload]  # noqa: E731
    client = AeronCluster.connect(world.context(), correlate=correlate)
    member.message(b"7:x")
    with pytest.raises(TypeError, match=r"<lambda>\(\) .*returned \[b'7:x'\] for the message b'7:x'"):
        client.poll_egress()


def test_a_timeout_names_the_key_that_came_instead(world: World, member: IngressMember) -> None:
    client = AeronCluster.connect(world.context(), correlate=key_of)
    echo(member)
    with pytest.raises(RequestTimedOutError, match=r"no reply with key '7' within 1 s; .* returned 7 for"):
        client.request(b"7:", key="7", timeout=1.0)
    member.hooks.clear()
    with pytest.raises(RequestTimedOutError, match=r"within 1 s$"):  # what came before says nothing about this one
        client.request(b"8:", key=8, timeout=1.0)


def test_counts_add_up_whatever_ends_a_request() -> None:
    table = RequestTable(key_of)
    ended: list[Request] = []
    requests = [Request(key, on_end=ended.append, deadline_ns=key) for key in range(6)]
    for request in requests:
        table.add(1, request, 3)
    assert table.take(1, b"0:x")
    assert (requests[0].is_done, requests[0].payload, requests[0].error) == (True, b"0:x", None)
    assert repr(requests[0]) == "<Request 0 answered>"
    assert not table.take(1, b"no reply")
    table.forget(1, requests[1])
    table.forget(1, requests[1])
    table.expire(2)
    table.on_session_closed(2, "another")
    assert [request.key for request in ended] == [0, 2]
    table.on_new_leader(3, 0)
    assert table.counts == RequestCounts(sent=6, answered=1, resent=0, unknown=2, unmatched=0, in_flight=3)
    table.on_new_leader(4, 1)
    assert [request.key for request in ended] == [0, 2, 3, 4, 5]
    assert table.counts == RequestCounts(sent=6, answered=1, resent=0, unknown=5, unmatched=0, in_flight=0)
