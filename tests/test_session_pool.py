"""Pooled sessions, against scripted members over the memory transport."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from container.api import BACK_PRESSURED, CLOSED, NOT_CONNECTED
from container.client import (
    ClientState,
    PooledSession,
    PooledSessionState,
    PoolListener,
    ReconnectPolicy,
    SessionPool,
)
from container.errors import (
    AuthenticationError,
    ClosedError,
    ClusterError,
    ClusterUnavailableError,
    ConfigurationError,
    ContainerError,
    MessageTooLongError,
    Outcome,
    RequestClosedError,
    SendTimedOutError,
    SessionError,
    SessionLimitError,
    TimedOutError,
)
from container.transport.message_buffer import BufferClaim
from tests import ingress_member
from tests.client_world import ENDPOINTS, MEMBER_0, MEMBER_1, MS, Collecting, S, World
from tests.ingress_member import ERROR, OK, IngressMember, Request
from tests.limits import LIMIT_S


class Gateway(IngressMember):
    """Gives each session an id of its own, from 100, and publishes to all on one stream."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cluster_session_id = 99

    def on_SessionConnectRequest(self, request: Request) -> None:  # noqa: N802
        if self.egress is None:
            self.connect_egress(request)
        self.cluster_session_id += 1
        self.session_event(request["correlation_id"], OK, leader=self.member_id)

    def challenge(self, request: Request) -> None:
        self.send("Challenge", correlation_id=request["correlation_id"], cluster_session_id=900, encoded_challenge=b"?")

    def sessions_of(self, name: str) -> list[int]:
        return [request["cluster_session_id"] for request in self.received(name)]


@pytest.fixture
def member(world: World) -> Gateway:
    return Gateway(world.driver, 0, MEMBER_0)


@pytest.fixture
def pool(world: World, member: Gateway) -> SessionPool:
    return SessionPool.connect(world.context())


def a_new_leader(world: World, old: Gateway, session_ids: Iterable[int] = ()) -> Gateway:
    """Member 1 leads, and sends its event to these sessions."""
    leader = Gateway(world.driver, 1, MEMBER_1)
    leader.cluster_session_id = 200
    leader.leadership_term_id = 4
    assert old.egress is not None
    leader.open_egress(old.egress.channel)
    for session_id in session_ids:
        leader.new_leader(ENDPOINTS, session_id=session_id)
    return leader


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
    member.session_event(0, ingress_member.CLOSED, "TIMEOUT", session_id=first.cluster_session_id)
    poll(pool)
    assert first.state == PooledSessionState.WAITING
    assert first.close_reason == "closed by the cluster: TIMEOUT"
    assert isinstance(first.error, ClosedError)
    assert first.cluster_session_id == -1
    assert first.offer(b"x") == NOT_CONNECTED
    assert second.offer(b"x") > 0
    assert (len(pool), pool.lost) == (2, 1)
    assert world.listener.events[-1][:3] == ("session", 0, 101)


@pytest.mark.parametrize(
    ("code", "kind"), [(ERROR, SessionError), (ingress_member.AUTHENTICATION_REJECTED, AuthenticationError)]
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
    class Named:
        def __init__(self, name: bytes) -> None:
            self.name = name

        def encoded_credentials(self) -> bytes:
            return self.name

        def on_challenge(self, encoded_challenge: bytes) -> bytes:
            return self.name + encoded_challenge

    def answer(request: Request) -> None:
        assert request["cluster_session_id"] == 900
        member.on_SessionConnectRequest(request)

    member.hooks |= {"SessionConnectRequest": member.challenge, "ChallengeResponse": answer}
    sessions = [pool.open(credentials_supplier=Named(name)) for name in (b"a", b"b")]
    poll(pool)
    assert {session.state for session in sessions} == {PooledSessionState.CONNECTED}
    answers = [request["encoded_credentials"] for request in member.received("ChallengeResponse")]
    assert sorted(answers) == [b"a?", b"b?"]


class Credentials:
    """Those that cannot be had while there is an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.failures = 0

    def encoded_credentials(self) -> bytes:
        if self.error is not None:
            self.failures += 1
            raise self.error
        return b"ok"

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return self.encoded_credentials()


def test_credentials_that_fail_cost_their_session_alone(world: World, pool: SessionPool, member: Gateway) -> None:
    bad, good = pool.open(credentials_supplier=Credentials(ZeroDivisionError("of the supplier"))), pool.open()
    poll(pool)
    assert good.state is PooledSessionState.CONNECTED
    assert bad.is_closed
    assert isinstance(bad.error, ClosedError)
    assert str(bad.error) == "pooled session: its credentials supplier failed: ZeroDivisionError: of the supplier"
    assert isinstance(bad.error.__cause__, ZeroDivisionError)
    with pytest.raises(ConfigurationError, match="credentials_supplier must have encoded_credentials"):
        pool.open(credentials_supplier=print)  # type: ignore[arg-type]


def test_a_new_leader_is_followed_by_all(world: World, pool: SessionPool, member: Gateway) -> None:
    sessions = pool.open_all(3)
    member.stop()
    poll(pool)
    assert sessions[0].offer(b"x") == NOT_CONNECTED
    connecting = pool.open()
    leader = a_new_leader(world, member, range(100, 104))
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
    member.hooks |= {"SessionConnectRequest": lambda request: None}
    unanswered, closed = pool.open(), pool.open()
    poll(pool)
    member.hooks |= {"SessionConnectRequest": member.challenge, "ChallengeResponse": lambda request: None}
    challenged = pool.open()
    poll(pool)
    assert len(member.received("ChallengeResponse")) == 1
    closed.close()
    member.stop()
    poll(pool)
    leader = a_new_leader(world, member, [100])
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
    member.stop()
    poll(pool)

    def answer_the_first() -> None:
        leader.session_event(asked, OK, session_id=150, leader=1)

    leader = a_new_leader(world, member, [100])
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
        member.session_event(request["correlation_id"], ingress_member.REDIRECT, ENDPOINTS, session_id=-1, leader=0)

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


def test_closing_the_pool_waits_while_the_stream_is_full(world: World, pool: SessionPool, member: Gateway) -> None:
    pool.open_all(5)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 50)
    pool.close()
    world.driver.conduct()
    assert member.sessions_of("SessionCloseRequest") == [101, 102, 103, 104, 105, 100]


def test_closing_the_pool_gives_up_after_the_message_timeout(world: World, pool: SessionPool, member: Gateway) -> None:
    pool.open_all(2)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 100_000)
    begin_ns = world.clock.now_ns
    pool.close()
    assert world.clock.now_ns - begin_ns >= 5 * S
    assert pool.is_closed
    assert world.client.open_resources == []


def test_sessions_that_close_while_the_stream_is_full_are_ended_by_later_polls(
    world: World, pool: SessionPool, member: Gateway
) -> None:
    sessions = pool.open_all(10_000)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 9)
    for session in sessions:
        session.close()
    world.driver.conduct()
    assert member.sessions_of("SessionCloseRequest") == []
    for _ in range(10_000 // 64 + 10):  # so many requests are sent in each
        pool.poll()
        world.driver.conduct()
    assert member.sessions_of("SessionCloseRequest") == list(range(101, 10_101))


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
    thread.join(LIMIT_S)
    assert len(errors) == 4


def test_nothing_is_made_by_hand() -> None:
    for kind in (SessionPool, PooledSession):
        with pytest.raises(TypeError, match="use SessionPool"):
            kind()


# Sessions that are lost


FULL = "concurrent session limit"
NO_JITTER = ReconnectPolicy(first_delay=0.1, max_delay=0.4, jitter=0.0)


class Told(PoolListener):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_session_opened(self, session: object) -> None:
        self.calls.append(("opened", session))

    def on_session_lost(self, session: object, error: ContainerError) -> None:
        self.calls.append(("lost", session, str(error)))

    def on_session_replaced(self, session: object, attempts: int) -> None:
        self.calls.append(("replaced", session, attempts))

    def on_session_closed(self, session: object, error: ContainerError) -> None:
        self.calls.append(("closed", session, str(error)))

    def on_leader_changed(self, leader_member_id: int, leadership_term_id: int) -> None:
        self.calls.append(("leader", leader_member_id, leadership_term_id))

    def on_closed(self, error: ContainerError) -> None:
        self.calls.append(("pool", str(error)))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def lasting(world: World, member: Gateway, told: Told) -> SessionPool:
    return SessionPool.connect(
        world.context(), policy=NO_JITTER, callbacks=told, correlate=lambda payload: payload[:1] or None
    )


def state_of(session: PooledSession) -> PooledSessionState:
    """Its state now; a type checker takes the attribute's for what it last was."""
    return session.state


def lose(pool: SessionPool, member: Gateway, session_id: int, detail: str = "TIMEOUT") -> None:
    member.session_event(0, ingress_member.CLOSED, detail, session_id=session_id)
    poll(pool)


def pass_time(world: World, pool: SessionPool, duration_ns: int) -> None:
    """In steps: each lets what was sent be answered."""
    for _ in range(duration_ns // (20 * MS)):
        world.advance(20 * MS)
        poll(pool, 3)


def test_a_lost_session_is_connected_again_and_the_rest_goes_on(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    first, second = lasting.open_all(2)
    told.calls.clear()
    lose(lasting, member, 101)
    assert told.calls == [("lost", first, "the session ended: closed by the cluster: TIMEOUT")]
    assert second.offer(b"goes on") > 0
    pass_time(world, lasting, 200 * MS)
    assert (first.state, first.cluster_session_id, first.sessions) == (PooledSessionState.CONNECTED, 103, 2)
    assert (first.error, first.close_reason, lasting.lost) == (None, None, 0)
    assert told.calls[1:] == [("replaced", first, 1)]
    assert first.offer(b"again") > 0
    poll(lasting)
    assert member.sessions_of("SessionMessageHeader") == [102, 103]
    assert lasting.session(103) is first
    assert lasting.session(101) is None


def test_it_waits_longer_after_each_refusal(world: World, lasting: SessionPool, member: Gateway, told: Told) -> None:
    (session,) = lasting.open_all(1)
    member.refuse(ERROR, FULL)
    lose(lasting, member, 101)
    asked = len(member.received("SessionConnectRequest"))
    pass_time(world, lasting, 1200 * MS)
    attempts = len(member.received("SessionConnectRequest")) - asked
    assert 3 <= attempts <= 4  # after 0.1, 0.2, 0.4 and 0.4 s
    assert isinstance(session.error, SessionLimitError)
    assert state_of(session) == PooledSessionState.WAITING
    member.hooks.clear()
    pass_time(world, lasting, 600 * MS)
    assert state_of(session) == PooledSessionState.CONNECTED
    assert told.calls[-1] == ("replaced", session, attempts + 1)


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [(ingress_member.AUTHENTICATION_REJECTED, "no", AuthenticationError), (ERROR, "bad version", SessionError)],
)
def test_what_no_retry_can_help_ends_that_session_alone(
    world: World, lasting: SessionPool, member: Gateway, told: Told, code: int, detail: str, kind: type[Exception]
) -> None:
    lost, other = lasting.open_all(2)
    member.refuse(code, detail)
    lose(lasting, member, 101)
    pass_time(world, lasting, 200 * MS)
    assert lost.is_closed
    assert isinstance(lost.error, kind)
    assert told.calls[-1] == ("closed", lost, str(lost.error))
    assert (len(lasting), lasting.lost) == (1, 0)
    assert other.offer(b"x") > 0
    with pytest.raises(ClosedError, match=detail):
        lost.send(b"x")


def test_the_policy_gives_a_session_up(world: World, member: Gateway, told: Told) -> None:
    pool = SessionPool.connect(
        world.context(), callbacks=told, policy=ReconnectPolicy(first_delay=0.1, jitter=0.0, max_attempts=3)
    )
    (session,) = pool.open_all(1)
    member.refuse(ERROR, FULL)
    lose(pool, member, 101)
    pass_time(world, pool, 2 * S)
    assert session.is_closed
    assert str(session.error) == f"no session after 3 attempts: {told.calls[-1][2].partition(': ')[2]}"
    assert FULL in str(session.error)
    assert not pool.is_closed


def test_an_attempt_that_is_not_answered_is_followed_by_another(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    (session,) = lasting.open_all(1)
    member.hooks["SessionConnectRequest"] = lambda request: None
    lose(lasting, member, 101)
    pass_time(world, lasting, 200 * MS)
    assert state_of(session) == PooledSessionState.CONNECTING
    pass_time(world, lasting, 5 * S)
    assert isinstance(session.error, TimedOutError)
    member.hooks.clear()  # the second attempt began at the end of the first, as that was longer than the delay
    pass_time(world, lasting, 5_500 * MS)
    assert state_of(session) == PooledSessionState.CONNECTED
    assert told.calls[-1] == ("replaced", session, 3)


def test_a_first_connect_that_fails_is_not_tried_again(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    member.refuse(ERROR, FULL)
    session = lasting.open()
    pass_time(world, lasting, 1 * S)
    assert session.is_closed
    assert isinstance(session.error, SessionLimitError)
    assert told.calls == [("closed", session, str(session.error))]


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_what_a_lost_session_was_asked_ends_with_an_unknown_outcome(
    world: World, lasting: SessionPool, member: Gateway, is_idempotent: bool
) -> None:
    lost, other = lasting.open_all(2)
    asked = [session.begin_request(b"7", key=b"7", idempotent=is_idempotent) for session in (lost, other)]
    lose(lasting, member, 101)
    with pytest.raises(RequestClosedError, match="session 101 ended: closed by the cluster: TIMEOUT") as ended:
        asked[0].wait()
    assert ended.value.outcome == Outcome.UNKNOWN
    assert not asked[1].is_done
    pass_time(world, lasting, 200 * MS)
    again = lost.begin_request(b"7", key=b"7")
    member.message(b"7 late", session_id=101)
    member.message(b"7 now", session_id=lost.cluster_session_id)
    member.message(b"7 other", session_id=102)
    poll(lasting)
    assert (again.payload, asked[1].payload) == (b"7 now", b"7 other")
    counts = lasting.request_counts
    assert counts is not None
    assert (counts.sent, counts.answered, counts.unknown, counts.in_flight) == (3, 2, 1, 0)


def test_a_send_waits_for_the_session_to_be_back(world: World, lasting: SessionPool, member: Gateway) -> None:
    (session,) = lasting.open_all(1)
    lose(lasting, member, 101)
    assert session.send(b"when it is back") > 0
    assert session.sessions == 2
    member.refuse(ERROR, FULL)
    lose(lasting, member, session.cluster_session_id)
    with pytest.raises(SendTimedOutError, match="NOT_CONNECTED"):
        session.send(b"x", timeout=0.5)
    world.driver.conduct()
    assert member.payloads() == [b"when it is back"]


def test_a_session_that_is_lost_and_closed_stays_closed(world: World, lasting: SessionPool, member: Gateway) -> None:
    (session,) = lasting.open_all(1)
    lose(lasting, member, 101)
    session.close()
    pass_time(world, lasting, 1 * S)
    assert (session.is_closed, session.sessions, len(lasting), lasting.lost) == (True, 1, 0, 0)
    assert member.received("SessionCloseRequest") == []


def test_a_session_that_came_back_is_kept_alive_once(world: World, lasting: SessionPool, member: Gateway) -> None:
    (session,) = lasting.open_all(1)
    lose(lasting, member, 101)
    pass_time(world, lasting, 200 * MS)
    pass_time(world, lasting, 4 * S)
    assert 3 <= member.sessions_of("SessionKeepAlive").count(session.cluster_session_id) <= 4
    assert 101 not in member.sessions_of("SessionKeepAlive")


def test_the_pools_own_session_is_replaced_like_any_other(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    sessions = lasting.open_all(2)
    told.calls.clear()
    asked = lasting.cluster.begin_request(b"7", key=b"7")
    lose(lasting, member, 100)
    with pytest.raises(RequestClosedError, match="session 100 ended"):
        asked.wait()
    assert lasting.cluster.offer(b"of nobody") == NOT_CONNECTED
    assert lasting.cluster.try_claim(1, BufferClaim()) == NOT_CONNECTED
    assert sessions[0].offer(b"goes on") > 0
    pass_time(world, lasting, 200 * MS)
    assert lasting.cluster.cluster_session_id == 103
    assert lasting.cluster.offer(b"of the pool") > 0
    poll(lasting)
    assert member.sessions_of("SessionMessageHeader")[1:] == [101, 103]
    assert (told.calls, len(lasting), lasting.lost) == ([], 2, 0)
    pass_time(world, lasting, 2 * S)
    assert 103 in member.sessions_of("SessionKeepAlive")


def test_without_its_own_session_the_pool_follows_the_leader_and_goes_on(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    sessions = lasting.open_all(2)
    member.refuse(ingress_member.AUTHENTICATION_REJECTED, "no")
    lose(lasting, member, 100)
    pass_time(world, lasting, 1 * S)
    assert (lasting.cluster.cluster_session_id, lasting.is_closed) == (-1, False)
    member.stop()
    leader = a_new_leader(world, member, [101, 102])
    poll(lasting, 10)
    assert told.calls[-1] == ("leader", 1, 4)
    assert sessions[1].send(b"x") > 0
    world.driver.conduct()
    assert leader.sessions_of("SessionMessageHeader") == [102]
    assert -1 not in [event[1] for event in world.listener.events if event[0] == "new_leader"]
    assert [event[1] for event in world.listener.events if event[0] == "new_leader"] == [101, 102]
    lasting.close()
    assert sessions[0].is_closed


def test_the_first_event_of_a_new_leader_is_followed_whosever_it_is(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    sessions = lasting.open_all(2)
    told.calls.clear()
    member.stop()
    poll(lasting)
    leader = a_new_leader(world, member, [102])
    poll(lasting, 10)
    assert sessions[0].offer(b"x") > 0
    ingress = world.ingress_channels()
    leader.new_leader(ENDPOINTS, session_id=100)
    leader.new_leader(ENDPOINTS, session_id=101)
    poll(lasting)
    assert world.ingress_channels() == ingress
    assert lasting.cluster.state == ClientState.CONNECTED
    assert told.calls == [("leader", 1, 4)]


def test_sessions_that_a_new_leader_does_not_speak_of_are_lost(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    sessions = lasting.open_all(3)
    asked = [session.begin_request(b"7", key=b"7", idempotent=True, timeout=60) for session in sessions]
    told.calls.clear()
    member.stop()
    leader = a_new_leader(world, member, [100, 102])
    pass_time(world, lasting, 9 * S)
    assert {session.state for session in sessions} == {PooledSessionState.CONNECTED}
    pass_time(world, lasting, 2 * S)
    lost = [call[1] for call in told.calls if call[0] == "lost"]
    assert lost == [sessions[0], sessions[2]]
    for index in (0, 2):
        with pytest.raises(RequestClosedError, match="the new leader, member 1, did not send its event"):
            asked[index].wait()
    assert not asked[1].is_done
    assert sessions[1].sessions == 1
    assert [session.sessions for session in lost] == [2, 2]
    assert leader.sessions_of("SessionKeepAlive").count(101) > 0


def test_the_pools_own_session_may_be_unknown_to_a_new_leader(
    world: World, lasting: SessionPool, member: Gateway
) -> None:
    (session,) = lasting.open_all(1)
    member.stop()
    a_new_leader(world, member, [101])
    pass_time(world, lasting, 11 * S)
    assert session.sessions == 1
    assert lasting.cluster.cluster_session_id == 201


def test_all_are_connected_again_when_there_was_no_leader_for_long(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    sessions = lasting.open_all(5)
    closed = sessions.pop()
    closed.close()
    asked = sessions[0].begin_request(b"7", key=b"7", idempotent=True, timeout=60)
    told.calls.clear()
    member.stop()
    pass_time(world, lasting, 11 * S)
    with pytest.raises(RequestClosedError, match="no new leader within 10 s"):
        asked.wait()
    assert not lasting.is_closed
    assert {session.state for session in sessions} == {PooledSessionState.CONNECTING}
    assert sessions[0].offer(b"x") == NOT_CONNECTED
    assert lasting.lost == 4
    connecting = lasting.open()
    again = Gateway(world.driver, 0, MEMBER_0)
    pass_time(world, lasting, 2 * S)
    assert {session.state for session in [*sessions, connecting]} == {PooledSessionState.CONNECTED}
    assert [session.sessions for session in sessions] == [2] * 4
    assert lasting.cluster.state == ClientState.CONNECTED
    assert sessions[2].send(b"x") > 0
    world.driver.conduct()
    assert again.sessions_of("SessionMessageHeader") == [sessions[2].cluster_session_id]
    assert [call[0] for call in told.calls if call[0] != "opened"] == [*["lost"] * 4, "leader", *["replaced"] * 4]
    assert len(world.client.open_resources) == 2
    assert lasting.request_counts is not None
    assert lasting.request_counts.unknown == 1


def test_connects_under_way_go_on_when_the_streams_are_lost(
    world: World, lasting: SessionPool, member: Gateway
) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    session = lasting.open()
    poll(lasting)
    lasting.cluster.track_ingress_publication_result(-5)  # the stream is at its end
    poll(lasting)
    assert lasting.cluster.is_closed
    assert state_of(session) == PooledSessionState.CONNECTING
    member.hooks.clear()
    member.egress = None
    pass_time(world, lasting, 1 * S)
    assert state_of(session) == PooledSessionState.CONNECTED
    assert (session.sessions, len(lasting)) == (1, 1)


def test_the_policy_gives_the_pool_up(world: World, member: Gateway, told: Told) -> None:
    pool = SessionPool.connect(world.context(), callbacks=told, policy=ReconnectPolicy(max_seconds=7.0))
    sessions = pool.open_all(2)
    member.stop()
    for _ in range(2000):
        world.advance(20 * MS)
        pool.poll()
        if pool.is_closed:
            break
    assert pool.is_closed
    assert "no session within 7 s" in str(pool.close_reason)
    assert all(session.is_closed for session in sessions)
    assert told.calls[-1] == ("pool", pool.close_reason)
    assert world.client.open_resources == []
    for call in (pool.poll, pool.open):
        with pytest.raises(ClosedError, match="no session within 7 s"):
            call()
    with pytest.raises(ClosedError, match="no session within 7 s"):
        sessions[0].send(b"x")


def test_the_end_is_reported_though_a_callback_raises(world: World, member: Gateway) -> None:
    class Raising(Told):
        def on_session_lost(self, session: object, error: ContainerError) -> None:
            super().on_session_lost(session, error)
            raise ZeroDivisionError("of a callback")

    told = Raising()
    pool = SessionPool.connect(world.context(), callbacks=told)
    pool.open_all(2)
    member.stop()

    def poll_until_lost() -> None:
        for _ in range(2000):
            world.advance(20 * MS)
            pool.poll()

    with pytest.raises(ZeroDivisionError, match="of a callback"):
        poll_until_lost()
    assert [call[0] for call in told.calls] == ["opened", "opened", "lost"]
    with pytest.raises(ZeroDivisionError, match="of a callback"):
        pool.close()  # the second session's loss is not reported yet
    assert [call[0] for call in told.calls] == ["opened", "opened", "lost", "lost", "pool"]


def test_a_pool_over_a_client_of_the_callers_ends_with_it(
    world: World, lasting: SessionPool, member: Gateway, told: Told
) -> None:
    (session,) = lasting.open_all(1)
    world.client.close()
    lasting.poll()
    assert lasting.is_closed
    assert "its Aeron client is closed" in str(lasting.close_reason)
    assert session.is_closed
    assert told.calls[-1][0] == "pool"


def test_closing_what_waits_to_be_connected_again(world: World, lasting: SessionPool, member: Gateway) -> None:
    (session,) = lasting.open_all(1)
    member.stop()
    pass_time(world, lasting, 11 * S)
    lasting.close()
    assert session.is_closed
    assert session.close_reason == "closed by this client"
    assert world.client.open_resources == []
    with pytest.raises(ClosedError):
        lasting.poll()


def test_what_a_callback_raises_comes_out_of_the_poll_and_costs_no_other(world: World, member: Gateway) -> None:
    class Failing(Told):
        def on_session_lost(self, session: object, error: ContainerError) -> None:
            super().on_session_lost(session, error)
            raise ZeroDivisionError

    told = Failing()
    pool = SessionPool.connect(world.context(), callbacks=told, policy=NO_JITTER)
    first, second = pool.open_all(2)
    for session_id in (101, 102):
        member.session_event(0, ingress_member.CLOSED, "TIMEOUT", session_id=session_id)
    failures = 0
    for _ in range(60):
        world.advance(10 * MS)
        try:
            pool.poll()
        except ZeroDivisionError:
            failures += 1
    assert failures == 2
    assert [call[0] for call in told.calls if call[0] != "opened"] == ["lost", "lost", "replaced", "replaced"]
    assert {first.state, second.state} == {PooledSessionState.CONNECTED}


def test_a_bad_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_attempts"):
        SessionPool.connect(policy=ReconnectPolicy(max_attempts=0))


@pytest.mark.parametrize("name", ["policy", "callbacks"])
def test_arguments_of_wrong_types_are_refused_before_they_are_needed(world: World, member: Gateway, name: str) -> None:
    wrong: dict[str, Any] = {name: "quick"}
    with pytest.raises(ConfigurationError, match=f"{name} must be a .* or None, not 'quick'"):
        SessionPool.connect(world.context(), **wrong)
    pool = SessionPool.connect(world.context())
    with pytest.raises(ConfigurationError, match="credentials_supplier must have encoded_credentials"):
        pool.open(credentials_supplier=b"password")  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [OSError("no token"), ClusterUnavailableError("the token service is down")])
def test_a_credentials_supplier_that_fails_for_a_lost_session_costs_it_alone_and_is_asked_again(
    world: World, lasting: SessionPool, member: Gateway, error: Exception
) -> None:
    supplier = Credentials()
    lost = lasting.open(credentials_supplier=supplier)
    (other,) = lasting.open_all(1)
    supplier.error = error
    before = len(member.sessions_of("SessionKeepAlive"))
    lose(lasting, member, 101)
    pass_time(world, lasting, 3 * S)
    assert other.cluster_session_id in member.sessions_of("SessionKeepAlive")[before:]
    assert lasting.open_all(1)[0].state == PooledSessionState.CONNECTED
    assert state_of(lost) is PooledSessionState.WAITING
    if isinstance(error, ClusterUnavailableError):
        assert lost.error is error
    else:
        assert isinstance(lost.error, ClosedError)
        assert "its credentials supplier failed: OSError: no token" in str(lost.error)
        assert lost.error.__cause__ is error
    assert 1 < supplier.failures < 12  # with the policy's delays, and not in each poll
    supplier.error = None
    pass_time(world, lasting, 1 * S)
    assert state_of(lost) is PooledSessionState.CONNECTED


def test_a_request_whose_turn_comes_late_is_sent_once(world: World, member: Gateway) -> None:
    """It times out behind others, after a redirect, and is due again before its turn comes."""
    pool = SessionPool.connect(world.context(), max_connecting=2, policy=NO_JITTER)
    (session,) = pool.open_all(1)
    member.hooks["SessionConnectRequest"] = lambda request: None
    lose(pool, member, 101)
    pass_time(world, pool, 200 * MS)
    correlation_id = member.received("SessionConnectRequest")[-1]["correlation_id"]
    world.advance(1 * S)
    others = [pool.open() for _ in range(2)]
    pool.poll()
    member.session_event(correlation_id, ingress_member.REDIRECT, ENDPOINTS, session_id=-1, leader=0)
    pass_time(world, pool, 4500 * MS)
    assert [other.state for other in others] == [PooledSessionState.CONNECTING] * 2
    assert isinstance(session.error, TimedOutError)
    assert session.state == PooledSessionState.CONNECTING
    asked = len(member.received("SessionConnectRequest"))
    member.hooks.clear()
    pass_time(world, pool, 1 * S)
    assert [other.is_closed for other in others] == [True] * 2
    assert state_of(session) == PooledSessionState.CONNECTED
    assert len(member.received("SessionConnectRequest")) == asked + 1


# Deadlines


def test_a_challenged_session_times_out_as_soon_as_any_other(world: World, pool: SessionPool, member: Gateway) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    challenged = pool.open()
    pool.poll()
    world.driver.conduct()
    _, request = member.received("SessionConnectRequest")
    world.advance(4 * S)
    later = [pool.open() for _ in range(3)]
    poll(pool)
    member.hooks["ChallengeResponse"] = lambda request: None
    member.challenge(request)
    poll(pool)
    assert len(member.received("ChallengeResponse")) == 1
    world.advance(1 * S)
    poll(pool)
    assert isinstance(challenged.error, TimedOutError)
    assert {session.state for session in later} == {PooledSessionState.CONNECTING}
    world.advance(4 * S)
    poll(pool)
    assert all(isinstance(session.error, TimedOutError) for session in later)


def test_a_session_that_is_redirected_times_out_in_its_time(world: World, pool: SessionPool, member: Gateway) -> None:
    def redirect(request: Request) -> None:
        member.hooks["SessionConnectRequest"] = lambda request: None
        member.session_event(request["correlation_id"], ingress_member.REDIRECT, ENDPOINTS, session_id=-1, leader=0)

    member.hooks["SessionConnectRequest"] = redirect
    session = pool.open()
    poll(pool)
    world.advance(4 * S)
    later = pool.open()
    poll(pool)
    world.advance(1 * S)
    poll(pool)
    assert isinstance(session.error, TimedOutError)
    assert later.state == PooledSessionState.CONNECTING


def test_a_session_whose_turn_does_not_come_times_out(world: World, member: Gateway) -> None:
    pool = SessionPool.connect(world.context(), max_connecting=1)
    member.hooks["SessionConnectRequest"] = lambda request: None
    first, second = pool.open(), pool.open()
    poll(pool)
    world.advance(5 * S)
    poll(pool)
    assert isinstance(first.error, TimedOutError)
    assert isinstance(second.error, TimedOutError)
    assert len(member.received("SessionConnectRequest")) == 2
    member.hooks.clear()
    assert pool.open_all(2)[0].state == PooledSessionState.CONNECTED


# Sending


def test_a_claim_is_written_in_place_with_the_sessions_own_id(world: World, pool: SessionPool, member: Gateway) -> None:
    first, second = pool.open_all(2)
    claim = BufferClaim()
    for session, text in ((first, b"first"), (second, b"second")):
        assert session.try_claim(len(text), claim) > 0
        claim.buffer[:] = text
        claim.commit()
    assert second.try_claim(3, claim) > 0
    claim.abort()
    poll(pool)
    assert member.sessions_of("SessionMessageHeader") == [101, 102]
    assert member.payloads() == [b"first", b"second"]


def test_a_claim_has_the_limits_of_a_clients(world: World, pool: SessionPool, member: Gateway) -> None:
    (session,) = pool.open_all(1)
    claim = BufferClaim()
    assert session.max_payload_length == pool.cluster.max_payload_length > 0
    assert session.max_message_length == pool.cluster.max_message_length
    assert session.try_claim(session.max_payload_length, claim) > 0
    with pytest.raises(ClusterError):
        session.try_claim(1, claim)
    claim.abort()
    with pytest.raises(MessageTooLongError, match="longer than the max_payload_length"):
        session.try_claim(session.max_payload_length + 1, claim)
    with pytest.raises(ValueError, match="must not be negative: -1"):
        session.try_claim(-1, claim)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED])
    assert session.try_claim(1, claim) == BACK_PRESSURED
    connecting = pool.open()
    assert connecting.try_claim(1, claim) == NOT_CONNECTED
    connecting.close()
    assert connecting.try_claim(1, claim) == CLOSED
    member.stop()
    poll(pool)
    assert session.try_claim(1, claim) == NOT_CONNECTED


def test_a_claim_counts_as_a_sign_of_life_of_its_session_alone(
    world: World, pool: SessionPool, member: Gateway
) -> None:
    busy, silent = pool.open_all(2)
    claim = BufferClaim()
    for _ in range(30):
        world.advance(100 * MS)
        assert busy.try_claim(1, claim) > 0
        claim.commit()
        poll(pool, 2)
    kept = member.sessions_of("SessionKeepAlive")
    assert 101 not in kept
    assert {session_id: kept.count(session_id) > 1 for session_id in (100, silent.cluster_session_id)} == {
        100: True,
        102: True,
    }


def test_a_send_from_a_callback_does_not_poll(world: World, pool: SessionPool, member: Gateway) -> None:
    (session,) = pool.open_all(1)
    results: list[object] = []

    def send() -> None:
        try:
            results.append(session.send(b"from the callback") > 0)
            member.egress.close()  # type: ignore[union-attr]
            world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED])
            session.send(b"x")
        except ContainerError as error:
            results.append(error)

    world.listener.on_any = send
    member.message(b"x", session_id=session.cluster_session_id)
    poll(pool)
    assert results[0] is True
    assert isinstance(results[1], ClusterUnavailableError)
    assert "from a listener's callback" in str(results[1])


def test_a_send_tries_once_within_no_time(world: World, pool: SessionPool, member: Gateway) -> None:
    (session,) = pool.open_all(1)
    assert session.send(b"x", timeout=0) > 0
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 3)
    with pytest.raises(SendTimedOutError, match="within 0 s: last result BACK_PRESSURED"):
        session.send(b"x", timeout=0)


@pytest.mark.parametrize(
    "send",
    [lambda session: session.send(b"x"), lambda session: session.request(b"7", key=b"7")],
    ids=["send", "request"],
)
def test_a_closed_session_sends_nothing(lasting: SessionPool, send: Callable[[PooledSession], object]) -> None:
    (session,) = lasting.open_all(1)
    session.close()
    with pytest.raises(ClosedError, match="closed by this client"):
        send(session)
