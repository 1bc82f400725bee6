"""Pooled sessions, against scripted members over the memory transport."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from container.api import BACK_PRESSURED, CLOSED, NOT_CONNECTED
from container.client import ClientState, PooledSession, PooledSessionState, SessionPool
from container.errors import AuthenticationError, ClosedError, ClusterError, ContainerError, SessionError, TimedOutError
from tests import scripted_member
from tests.client_world import ENDPOINTS, MEMBER_0, MEMBER_1, MS, Collecting, S, World
from tests.scripted_member import ERROR, OK, Request, ScriptedMember


class Gateway(ScriptedMember):
    """Gives each session an id of its own, from 100, and publishes to all on one stream."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cluster_session_id = 99

    def on_SessionConnectRequest(self, request: Request) -> None:  # noqa: N802
        if self.egress is None:
            self.connect_egress(request)
        self.cluster_session_id += 1
        self.session_event(request["correlation_id"], OK, leader=self.member_id)

    def sessions_of(self, name: str) -> list[int]:
        return [request["cluster_session_id"] for request in self.received(name)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def member(world: World) -> Gateway:
    return Gateway(world.driver, 0, MEMBER_0)


@pytest.fixture
def pool(world: World, member: Gateway) -> SessionPool:
    return SessionPool.connect(world.context())


def poll(pool: SessionPool, polls: int = 6) -> None:
    for _ in range(polls):
        pool.poll()


def test_sessions_share_one_publication_and_one_subscription(world: World, pool: SessionPool, member: Gateway) -> None:
    sessions = pool.open_all(300)
    assert [session.cluster_session_id for session in sessions] == list(range(101, 401))
    assert {session.state for session in sessions} == {PooledSessionState.CONNECTED}
    assert len(pool) == 300
    assert len(world.client.open_resources) == 2
    requests = member.received("SessionConnectRequest")
    assert len({request["correlation_id"] for request in requests}) == 301
    assert len({request["response_channel"] for request in requests}) == 1
    assert pool.session(150) is sessions[49]
    assert pool.session(7) is None
    assert repr(sessions[0]) == "<PooledSession 101 CONNECTED>"
    assert "of 300 over <AeronCluster session 100" in repr(pool)


def test_each_session_sends_with_its_own_id(pool: SessionPool, member: Gateway) -> None:
    first, second = pool.open_all(2)
    assert first.offer(b"from ", b"first") > 0
    assert second.offer(b"from second") > 0
    assert pool.cluster.offer(b"from the pool's own") > 0
    poll(pool)
    assert member.sessions_of("SessionMessageHeader") == [101, 102, 100]
    assert member.payloads() == [b"from first", b"from second", b"from the pool's own"]


def test_messages_go_to_the_session_that_they_are_for(world: World, pool: SessionPool, member: Gateway) -> None:
    listener = Collecting()
    session = pool.open(listener)
    poll(pool)
    member.message(b"own listener", session_id=session.cluster_session_id)
    (other,) = pool.open_all(1)
    member.message(b"pool's listener", session_id=other.cluster_session_id)
    member.message(b"first session", session_id=100)
    member.message(b"nobody's", session_id=5)
    member.message(bytes(5000), session_id=other.cluster_session_id)
    poll(pool)
    assert listener.messages == [b"own listener"]
    assert world.listener.messages == [b"pool's listener", b"first session", bytes(5000)]


def test_silent_sessions_are_kept_alive_and_others_are_not(world: World, pool: SessionPool, member: Gateway) -> None:
    busy, *silent = pool.open_all(200)
    silent[5].close()
    for _ in range(30):
        world.advance(100 * MS)
        assert busy.offer(b"x") > 0
        poll(pool, 5)
    kept = member.sessions_of("SessionKeepAlive")
    assert busy.cluster_session_id not in kept
    assert silent[5].cluster_session_id not in kept
    counts = {session.cluster_session_id: kept.count(session.cluster_session_id) for session in silent}
    del counts[silent[5].cluster_session_id]
    assert set(counts.values()) <= {2, 3}


def test_without_an_interval_there_are_no_keep_alives(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context(keep_alive_interval=0))
    pool.open_all(3)
    world.advance(60 * S)
    poll(pool)
    assert member.sessions_of("SessionKeepAlive") == []


def test_the_cluster_closes_one_session(world: World, pool: SessionPool, member: Gateway) -> None:
    first, second = pool.open_all(2)
    member.session_event(0, scripted_member.CLOSED, "TIMEOUT", session_id=first.cluster_session_id)
    poll(pool)
    assert first.is_closed
    assert first.close_reason == "closed by the cluster: TIMEOUT"
    assert first.offer(b"x") == CLOSED
    assert second.offer(b"x") > 0
    assert len(pool) == 1
    assert world.listener.events[-1][:3] == ("session", 0, first.cluster_session_id)


@pytest.mark.parametrize(
    ("code", "kind"), [(ERROR, SessionError), (scripted_member.AUTHENTICATION_REJECTED, AuthenticationError)]
)
def test_a_refused_session_has_its_error(
    pool: SessionPool, member: Gateway, code: int, kind: type[SessionError]
) -> None:
    member.refuse(code, "no room")
    session = pool.open()
    poll(pool)
    assert session.is_closed
    assert isinstance(session.error, kind)
    assert session.error.detail == "no room"
    with pytest.raises(kind, match="no room"):
        pool.open_all(3)
    poll(pool)
    assert len(pool) == 0


def test_a_session_without_an_answer_times_out(world: World, pool: SessionPool, member: Gateway) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    sessions = [pool.open() for _ in range(pool.max_connecting + 1)]
    poll(pool)
    assert sessions[0].state == PooledSessionState.CONNECTING
    assert sessions[0].offer(b"x") == NOT_CONNECTED
    world.advance(5 * S)
    poll(pool)
    for session in sessions:
        assert isinstance(session.error, TimedOutError)
        assert "no answer to its connect request within 5 s from member 0" in str(session.close_reason)
    assert len(pool) == 0


def test_challenges_are_answered_for_each_session(pool: SessionPool, member: Gateway) -> None:
    class Credentials:
        def __init__(self, name: bytes) -> None:
            self.name = name

        def encoded_credentials(self) -> bytes:
            return self.name

        def on_challenge(self, encoded_challenge: bytes) -> bytes:
            return self.name + encoded_challenge

    def challenge(request: Request) -> None:
        member.send(
            "Challenge", correlation_id=request["correlation_id"], cluster_session_id=900, encoded_challenge=b"?"
        )

    def answer(request: Request) -> None:
        assert request["cluster_session_id"] == 900
        member.on_SessionConnectRequest(request)

    member.hooks |= {"SessionConnectRequest": challenge, "ChallengeResponse": answer}
    sessions = [pool.open(credentials_supplier=Credentials(name)) for name in (b"a", b"b")]
    poll(pool)
    assert {session.state for session in sessions} == {PooledSessionState.CONNECTED}
    answers = [request["encoded_credentials"] for request in member.received("ChallengeResponse")]
    assert sorted(answers) == [b"a?", b"b?"]


def test_a_new_leader_is_followed_by_all(world: World, pool: SessionPool, member: Gateway) -> None:
    sessions = pool.open_all(3)
    leader = Gateway(world.driver, 1, MEMBER_1)
    leader.cluster_session_id = 200
    leader.leadership_term_id = 4
    assert member.egress is not None
    leader.open_egress(member.egress.channel)
    member.stop()
    poll(pool)
    assert sessions[0].offer(b"x") == NOT_CONNECTED
    connecting = pool.open()
    for session_id in (100, 101, 102, 103):
        leader.new_leader(ENDPOINTS, session_id=session_id)
    poll(pool, 10)
    assert pool.cluster.state == ClientState.CONNECTED
    assert sessions[0].offer(b"x") > 0
    poll(pool)
    (request,) = leader.received("SessionMessageHeader")
    assert (request["leadership_term_id"], request["cluster_session_id"]) == (4, 101)
    assert [event[1] for event in world.listener.events if event[0] == "new_leader"] == [100, 101, 102, 103]
    assert connecting.cluster_session_id == 201


def test_requests_that_the_old_leader_did_not_answer_are_sent_to_the_new_one(
    world: World, pool: SessionPool, member: Gateway
) -> None:
    def challenge(request: Request) -> None:
        member.send(
            "Challenge", correlation_id=request["correlation_id"], cluster_session_id=900, encoded_challenge=b"?"
        )

    member.hooks |= {"SessionConnectRequest": lambda request: None}
    unanswered, closed = pool.open(), pool.open()
    poll(pool)
    member.hooks |= {"SessionConnectRequest": challenge, "ChallengeResponse": lambda request: None}
    challenged = pool.open()
    poll(pool)
    assert len(member.received("ChallengeResponse")) == 1
    closed.close()
    leader = Gateway(world.driver, 1, MEMBER_1)
    leader.cluster_session_id = 200
    leader.leadership_term_id = 4
    assert member.egress is not None
    leader.open_egress(member.egress.channel)
    member.stop()
    poll(pool)
    leader.new_leader(ENDPOINTS, session_id=100)
    poll(pool, 10)
    assert (unanswered.cluster_session_id, challenged.cluster_session_id) == (201, 202)
    assert len(leader.received("SessionConnectRequest")) == 2
    assert leader.received("ChallengeResponse") == []
    assert len(pool) == 2


@pytest.mark.parametrize("is_first_answer_late", [False, True])
def test_a_new_leader_that_knows_of_the_first_request_opens_one_session(
    world: World, pool: SessionPool, member: Gateway, is_first_answer_late: bool
) -> None:
    member.hooks |= {"SessionConnectRequest": lambda request: None}
    session = pool.open()
    poll(pool)
    asked = member.received("SessionConnectRequest")[-1]["correlation_id"]
    leader = Gateway(world.driver, 1, MEMBER_1)
    leader.cluster_session_id = 200
    leader.leadership_term_id = 4
    assert member.egress is not None
    leader.open_egress(member.egress.channel)
    member.stop()
    poll(pool)

    def answer_the_first() -> None:
        leader.session_event(asked, OK, session_id=150, leader=1)

    leader.new_leader(ENDPOINTS, session_id=100)
    if not is_first_answer_late:
        answer_the_first()
    poll(pool, 10)
    if is_first_answer_late:
        answer_the_first()
        poll(pool)
    kept, given_up = (201, 150) if is_first_answer_late else (150, 201)
    assert session.cluster_session_id == kept
    assert session.state == PooledSessionState.CONNECTED
    assert set(leader.sessions_of("SessionCloseRequest")) <= {given_up}
    assert len(leader.sessions_of("SessionCloseRequest")) == len(leader.received("SessionConnectRequest"))
    assert len(pool) == 1


def test_a_redirected_session_is_sent_again(pool: SessionPool, member: Gateway) -> None:
    def redirect_once(request: Request) -> None:
        member.hooks.clear()
        member.session_event(request["correlation_id"], scripted_member.REDIRECT, ENDPOINTS, session_id=-1, leader=0)

    member.hooks["SessionConnectRequest"] = redirect_once
    (session,) = pool.open_all(1)
    assert session.state == PooledSessionState.CONNECTED


def test_back_pressure_delays_requests_and_keep_alives(world: World, pool: SessionPool, member: Gateway) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 5)
    (session,) = pool.open_all(1)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED])
    assert session.offer(b"x") == BACK_PRESSURED
    world.advance(2 * S)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 4)
    poll(pool, 10)
    assert session.cluster_session_id in member.sessions_of("SessionKeepAlive")


def test_a_session_closes_alone(pool: SessionPool, member: Gateway) -> None:
    first, second = pool.open_all(2)
    unsent = pool.open()
    for session in (first, unsent):
        session.close()
        session.close()
        assert session.close_reason == "closed by this client"
    poll(pool)
    assert member.sessions_of("SessionCloseRequest") == [101]
    assert len(member.received("SessionConnectRequest")) == 3
    assert second.offer(b"x") > 0


def test_a_session_that_was_closed_while_connecting_is_closed_at_the_cluster(
    pool: SessionPool, member: Gateway
) -> None:
    session = pool.open()
    pool.poll()  # sends
    session.close()
    poll(pool)
    assert session.cluster_session_id == -1
    assert len(pool) == 0
    assert member.sessions_of("SessionCloseRequest") == [101]


@pytest.mark.parametrize("code", [ERROR, None], ids=["refused", "unanswered"])
def test_what_becomes_of_the_connect_of_a_closed_session_does_not_matter(
    world: World, pool: SessionPool, member: Gateway, code: int | None
) -> None:
    if code is None:
        member.hooks["SessionConnectRequest"] = lambda request: None
    else:
        member.refuse(code, "no room")
    session = pool.open()
    pool.poll()
    session.close()
    poll(pool)
    world.advance(6 * S)
    poll(pool)
    assert (session.close_reason, session.error) == ("closed by this client", None)
    assert len(pool) == 0
    assert member.received("SessionCloseRequest") == []


def test_closing_the_pool_ends_all_sessions(world: World, pool: SessionPool, member: Gateway) -> None:
    sessions = pool.open_all(5)
    with pool:
        pass
    pool.close()
    world.driver.conduct()
    assert member.sessions_of("SessionCloseRequest") == [101, 102, 103, 104, 105, 100]
    assert all(session.is_closed for session in sessions)
    assert pool.is_closed
    assert world.client.open_resources == []
    with pytest.raises(ClosedError):
        pool.open()
    with pytest.raises(ClosedError):
        pool.poll()


def test_all_sessions_end_with_the_pools_first(pool: SessionPool, member: Gateway) -> None:
    sessions = pool.open_all(2)
    member.session_event(0, scripted_member.CLOSED, "TIMEOUT", session_id=100)
    pool.poll()
    assert [session.close_reason for session in sessions] == ["closed by the cluster: TIMEOUT"] * 2
    assert sessions[0].offer(b"x") == CLOSED


def test_a_callback_can_offer_but_not_poll_or_close(world: World, pool: SessionPool, member: Gateway) -> None:
    (session,) = pool.open_all(1)
    errors: list[ContainerError] = []

    def call() -> None:
        assert session.offer(b"from the callback") > 0
        for action in (pool.poll, pool.close):
            try:
                action()
            except ClusterError as error:
                errors.append(error)

    world.listener.on_any = call
    member.message(b"x", session_id=session.cluster_session_id)
    poll(pool)
    assert len(errors) == 2
    assert member.payloads() == [b"from the callback"]


def test_another_thread_is_refused(pool: SessionPool) -> None:
    (session,) = pool.open_all(1)
    errors: list[BaseException] = []

    def run() -> None:
        for call in (pool.poll, lambda: session.offer(b"x"), session.close, pool.open):
            try:
                call()
            except ClusterError as error:
                errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert len(errors) == 4


def test_nothing_is_made_by_hand() -> None:
    for kind in (SessionPool, PooledSession):
        with pytest.raises(TypeError, match="use SessionPool"):
            kind()
