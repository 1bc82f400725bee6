"""The client of the cluster, against scripted members over the memory transport."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.client import (
    AdminRequestType,
    AdminResponseCode,
    AeronCluster,
    AsyncConnect,
    ClientContext,
    ClientState,
    ConnectStep,
    EgressListener,
    EventCode,
)
from container.client.client_context import parse_ingress_endpoints
from container.client.egress_poller import EgressPoller
from container.codecs import messages as codecs
from container.errors import (
    AeronError,
    AuthenticationError,
    ClosedError,
    ClusterError,
    CodecError,
    ConfigurationError,
    Outcome,
    RegistrationError,
    SessionError,
    SessionLimitError,
    TimedOutError,
)
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from tests import ingress_member
from tests.client_world import EGRESS, ENDPOINTS, MEMBER_0, MEMBER_1, MS, Collecting, S, World, elect
from tests.ingress_member import ERROR, OK, IngressMember, Request
from tests.limits import LIMIT_S

ABORT, BREAK = 1, 2


@pytest.fixture
def member(world: World) -> IngressMember:
    return IngressMember(world.driver, 0, MEMBER_0)


@pytest.fixture
def client(world: World, member: IngressMember) -> AeronCluster:
    connected = world.connect()
    world.poll(connected, 1)
    return connected


# Settings


def test_defaults_are_upstreams() -> None:
    context = ClientContext(ingress_channel="aeron:ipc", egress_channel="aeron:ipc")
    assert (context.ingress_stream_id, context.egress_stream_id) == (101, 102)
    assert context.message_timeout == 5.0
    assert context.message_timeout_ns == 5 * S
    assert context.new_leader_timeout is None
    assert context.is_ingress_exclusive
    assert repr(context.idle_strategy) == "backoff(1,10,1000ns,1000ns)"
    assert context.credentials_supplier.encoded_credentials() == b""
    assert context.credentials_supplier.on_challenge(b"x") == b""


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ingress_channel": ""}, r"ingress_channel is not set: .* \(or set AERON_CLUSTER_INGRESS_CHANNEL\)"),
        ({"egress_channel": ""}, r"egress_channel is not set: .* \(or set AERON_CLUSTER_EGRESS_CHANNEL\)"),
        ({"ingress_channel": "udp"}, "begin with 'aeron:'.*'udp'"),
        (
            {"ingress_endpoints": "0=localhost:9010"},
            "ingress_endpoints must be None for an IPC ingress_channel",
        ),
        (
            {"ingress_channel": "aeron:udp", "ingress_endpoints": "localhost:9010"},
            "ingress_endpoints: 'localhost:9010' is not id=host:port: .* such as 0=host0:9010",
        ),
        ({"client_name": "x" * 101}, "client_name must be a string of at most 100 characters"),
        ({"message_timeout": 0}, "message_timeout must be a number of seconds from 0.001 to 10{9}, not 0"),
        (
            {"new_leader_timeout": -1.0},
            "new_leader_timeout must be None, or a number of seconds from 0.001 to 10{9}, not -1.0",
        ),
        (
            {"keep_alive_interval": -1.0},
            "keep_alive_interval must be 0, or a number of seconds from 0.001 to 10{9}, not -1.0",
        ),
        (
            {"listener": print},
            "listener must be an EgressListener or a ControlledEgressListener, or an EgressHandler in Cython, not <",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ClientContext(**({"ingress_channel": "aeron:ipc", "egress_channel": "aeron:ipc"} | settings))


def test_ingress_endpoints_are_parsed_by_member_id() -> None:
    assert parse_ingress_endpoints("0=a:1, 2=[::1]:3") == {0: "a:1", 2: "[::1]:3"}


@pytest.mark.parametrize("text", ["", "0", "0=", "=a:1", "x=a:1", "0=a:1,", "0=a:1;1"])
def test_bad_ingress_endpoints_are_refused_by_name(text: str) -> None:
    if text == "0=a:1;1":
        assert parse_ingress_endpoints(text) == {0: "a:1;1"}  # the driver refuses it as an endpoint
        return
    with pytest.raises(ConfigurationError, match="id=host:port"):
        parse_ingress_endpoints(text)


def test_a_member_named_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'0=a:1,0=b:2' names member 0 twice: give each member once"):
        parse_ingress_endpoints("0=a:1,0=b:2")


def test_ingress_that_names_no_address_is_refused(world: World) -> None:
    with pytest.raises(ConfigurationError, match="^ingress_endpoints must be set, such as .*'aeron:udp' names no"):
        AeronCluster.connect(ingress_channel="aeron:udp", egress_channel="aeron:udp?endpoint=localhost:0")
    with pytest.raises(ConfigurationError, match=r"^ingress_endpoints: .* must be a string, such as .*, not \['a:1'\]"):
        world.context(ingress_channel="aeron:udp", ingress_endpoints=["a:1"])


def test_settings_given_to_connect_replace_those_of_a_context(world: World, member: IngressMember) -> None:
    with AeronCluster.connect(world.context(), client_name="other") as client:
        assert client.context.client_name == "other"
    with pytest.raises(ConfigurationError, match="egress_channel is not set"):
        AeronCluster.connect(ingress_channel="aeron:ipc")


# Connect


def test_connect_says_what_upstream_says(world: World, member: IngressMember) -> None:
    client = world.connect(client_name="tester")
    (request,) = member.received("SessionConnectRequest")
    assert request["response_stream_id"] == 102
    assert request["version"] == 768
    assert request["response_channel"] == b"aeron:udp?endpoint=localhost:40000|rejoin=false"
    assert request["encoded_credentials"] == b""
    assert request["client_info"].startswith(b"name=tester version=")
    assert (client.cluster_session_id, client.leadership_term_id, client.leader_member_id) == (8, 3, 0)
    assert client.state == ClientState.CONNECTED
    assert not client.is_closed
    assert client.close_reason is None
    assert "session 8 leader 0 term 3 CONNECTED" in repr(client)


def test_connect_over_ipc_needs_no_endpoints(world: World) -> None:
    member = IngressMember(world.driver, 0, "aeron:ipc")
    with world.connect(ingress_channel="aeron:ipc", ingress_endpoints=None, egress_channel="aeron:ipc") as client:
        assert client.offer(b"x") > 0
        assert member.received("SessionConnectRequest")[0]["response_channel"] == b"aeron:ipc"
    assert world.client.open_resources == []


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_ingress_is_exclusive_unless_told_otherwise(world: World, member: IngressMember, is_exclusive: bool) -> None:
    world.connect(is_ingress_exclusive=is_exclusive)
    assert {info.is_exclusive for info in world.driver.publications() if info.stream_id == 101} == {is_exclusive}


def test_the_first_member_that_listens_is_taken_and_the_others_are_closed(world: World) -> None:
    member = IngressMember(world.driver, 1, MEMBER_1)
    client = world.connect()
    assert client.leader_member_id == 1
    assert len(member.received("SessionConnectRequest")) == 1
    assert world.ingress_channels() == [MEMBER_1]


def test_a_redirect_is_followed_to_the_leader(world: World, member: IngressMember) -> None:
    leader = IngressMember(world.driver, 1, MEMBER_1)
    member.redirect_to(1, ENDPOINTS)
    credentials = Credentials()
    client = world.connect(credentials_supplier=credentials)
    (first,), (second,) = (m.received("SessionConnectRequest") for m in (member, leader))
    assert first["correlation_id"] != second["correlation_id"]
    assert credentials.asked == 2
    assert client.leader_member_id == 1
    assert world.ingress_channels() == [MEMBER_1]


def test_a_redirect_reuses_the_leaders_publication(world: World, member: IngressMember) -> None:
    def ingress_ids() -> dict[str, int]:
        return {info.channel: info.registration_id for info in world.driver.publications()}

    def hook(request: Request) -> None:
        before.update(ingress_ids())
        IngressMember(world.driver, 1, MEMBER_1)  # listens only now, so that member 0 was taken
        redirect(request)

    before: dict[str, int] = {}
    member.redirect_to(1, ENDPOINTS)
    redirect, member.hooks["SessionConnectRequest"] = member.hooks["SessionConnectRequest"], hook
    client = world.connect(ingress_endpoints="1=node1:9110,0=node0:9010")
    assert client.leader_member_id == 1
    assert before[MEMBER_1] == ingress_ids()[MEMBER_1]
    assert world.ingress_channels() == [MEMBER_1]


def test_a_redirect_to_a_leader_that_moved_uses_the_new_endpoint(world: World, member: IngressMember) -> None:
    IngressMember(world.driver, 1, "aeron:udp?endpoint=node1:9999")
    member.redirect_to(1, "0=node0:9010,1=node1:9999")
    world.connect()
    assert world.ingress_channels() == ["aeron:udp?endpoint=node1:9999"]


def test_after_a_redirect_only_the_leader_is_tried_and_after_a_second_all_again(
    world: World, member: IngressMember
) -> None:
    member.redirect_to(1, ENDPOINTS)  # and the leader does not listen
    begin_ns = world.clock.now_ns
    asked_ns = []
    redirect = member.hooks["SessionConnectRequest"]

    def hook(request: Request) -> None:
        asked_ns.append(world.clock.now_ns - begin_ns)
        redirect(request)

    member.hooks["SessionConnectRequest"] = hook
    with pytest.raises(TimedOutError, match="step=AWAIT_PUBLICATION_CONNECTED"):
        world.connect()
    # Its patience doubles, so that a leader far away has the time to listen.
    assert [asked // S for asked in asked_ns] == [0, 1, 3]
    assert world.client.open_resources == []


def test_a_redirect_to_a_leader_that_is_gone_leads_to_the_next_one(world: World, member: IngressMember) -> None:
    """The cluster has not noticed yet that its leader was killed."""
    third = "aeron:udp?endpoint=node2:9210"
    member.redirect_to(1, ENDPOINTS)
    redirect = member.hooks["SessionConnectRequest"]

    def hook(request: Request) -> None:
        if len(member.received("SessionConnectRequest")) == 2:
            IngressMember(world.driver, 2, third)
            member.redirect_to(2, "0=node0:9010,1=node1:9110,2=node2:9210")
            member.hooks["SessionConnectRequest"](request)
        else:
            redirect(request)

    member.hooks["SessionConnectRequest"] = hook
    assert world.connect().leader_member_id == 2
    assert world.ingress_channels() == [third]


def test_a_member_that_goes_when_it_was_asked_leads_to_another(world: World, member: IngressMember) -> None:
    def hook(_request: Request) -> None:
        member.stop()
        IngressMember(world.driver, 1, MEMBER_1)

    member.hooks["SessionConnectRequest"] = hook
    assert world.connect().leader_member_id == 1
    assert world.ingress_channels() == [MEMBER_1]


def test_a_member_that_goes_before_it_is_asked_is_tried_again(world: World, member: IngressMember) -> None:
    world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED])
    assert world.connect().leader_member_id == 0


@pytest.mark.parametrize("endpoints", ["0=node0:9010", "", "nonsense"])
def test_a_redirect_that_does_not_tell_where_the_leader_is_fails(
    world: World, member: IngressMember, endpoints: str
) -> None:
    member.redirect_to(7, endpoints)
    with pytest.raises(ClusterError, match="member 7 leads and that ingress endpoints are"):
        world.connect()
    assert world.client.open_resources == []


def test_a_redirect_from_an_ipc_ingress_says_where_to_connect(world: World) -> None:
    IngressMember(world.driver, 0, "aeron:ipc").redirect_to(1, ENDPOINTS)
    with pytest.raises(ClusterError, match=f"not the leader, member 1 is; connect there: {ENDPOINTS}"):
        world.connect(ingress_channel="aeron:ipc", ingress_endpoints=None, egress_channel="aeron:ipc")
    assert world.client.open_resources == []


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [
        (ERROR, "invalid client version", SessionError),
        (ERROR, "concurrent session limit", SessionLimitError),
        (ingress_member.AUTHENTICATION_REJECTED, "concurrent session limit", AuthenticationError),
    ],
)
def test_a_refusal_carries_code_and_detail(
    world: World, member: IngressMember, code: int, detail: str, kind: type[SessionError]
) -> None:
    member.refuse(code, detail)
    with pytest.raises(SessionError, match=detail) as refused:
        world.connect()
    assert type(refused.value) is kind
    assert refused.value.code == EventCode(code)
    assert refused.value.detail == detail
    assert isinstance(refused.value, ClusterError)
    assert world.client.open_resources == []


class Credentials:
    """A supplier that counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.challenges: list[bytes] = []

    def encoded_credentials(self) -> bytes:
        self.asked += 1
        return b"me"

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        self.challenges.append(encoded_challenge)
        return b"answer to " + encoded_challenge


def test_challenges_are_answered_each_with_a_new_correlation_id(world: World, member: IngressMember) -> None:
    challenges = [b"first", b""]

    def challenge(request: Request) -> None:
        if member.egress is None:
            member.connect_egress(request)
        if not challenges:
            member.session_event(request["correlation_id"], OK)
            return
        member.send(
            "Challenge",
            correlation_id=request["correlation_id"],
            cluster_session_id=8,
            encoded_challenge=challenges.pop(0),
        )

    member.hooks["SessionConnectRequest"] = member.hooks["ChallengeResponse"] = challenge
    credentials = Credentials()
    world.connect(credentials_supplier=credentials)
    assert credentials.challenges == [b"first", b""]
    responses = member.received("ChallengeResponse")
    assert [r["encoded_credentials"] for r in responses] == [b"answer to first", b"answer to "]
    assert [r["cluster_session_id"] for r in responses] == [8, 8]
    ids = [r["correlation_id"] for _, r in member.requests]
    assert len(set(ids)) == 3


def test_what_is_no_answer_is_passed_over_while_connecting(world: World, member: IngressMember) -> None:
    def hook(request: Request) -> None:
        member.connect_egress(request)
        member.message(b"of another session", session_id=5)
        member.session_event(request["correlation_id"] - 1, ERROR, "of another request")
        member.session_event(request["correlation_id"], ingress_member.CLOSED, "ignored")
        member.new_leader(ENDPOINTS, session_id=5)
        member.send_bytes(codecs.encode("archive", "Ping", control_session_id=1))
        member.send_bytes(b"tiny")
        member.session_event(request["correlation_id"], OK)
        member.message(b"first of the session")

    member.hooks["SessionConnectRequest"] = hook
    client = world.connect()
    assert world.listener.messages == []
    world.poll(client, 1)
    assert world.listener.messages == [b"first of the session"]


def test_an_answer_on_another_stream_of_the_same_poll_is_not_lost(world: World, member: IngressMember) -> None:
    other = IngressMember(world.driver, 1, MEMBER_1)

    def hook(request: Request) -> None:
        member.connect_egress(request)
        other.connect_egress(request)
        member.session_event(request["correlation_id"] - 1, ERROR, "of another request")
        other.session_event(request["correlation_id"], OK, leader=1)

    member.hooks["SessionConnectRequest"] = hook
    assert world.connect().leader_member_id == 1


def test_a_poller_holds_an_answer_until_the_next_poll(world: World) -> None:
    poller = EgressPoller(seam.add_subscription(world.client, EGRESS, 102))
    event = codecs.encode(
        "cluster",
        "SessionEvent",
        cluster_session_id=8,
        correlation_id=1,
        leadership_term_id=3,
        leader_member_id=0,
        code=OK,
        version=768,
        leader_heartbeat_timeout_ns=0,
        detail="",
    )
    assert [seam.on_fragment(poller, event, session_id=number) for number in (1, 2)] == [BREAK, ABORT]


def test_without_a_cluster_the_error_tells_what_was_awaited(world: World) -> None:
    begin_ns = world.clock.now_ns
    with pytest.raises(TimedOutError) as late:
        world.connect()
    text = str(late.value)
    assert text.startswith("cluster connect: waited 5 s for a member that listens on ingress")
    for fact in (
        "step=AWAIT_PUBLICATION_CONNECTED",
        "ingress_channel=aeron:udp",
        ENDPOINTS,
        "egress_connected=False",
    ):
        assert fact in text
    assert 5 * S <= world.clock.now_ns - begin_ns < 5.1 * S
    assert world.client.open_resources == []


def test_a_silent_cluster_is_told_from_an_absent_one(world: World, member: IngressMember) -> None:
    member.hooks["SessionConnectRequest"] = lambda request: None
    with pytest.raises(TimedOutError, match="s for an answer on egress .*step=POLL_RESPONSE"):
        world.connect(message_timeout=0.5)
    assert world.client.open_resources == []


def test_lasting_back_pressure_times_the_connect_out(world: World, member: IngressMember) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 5000)
    with pytest.raises(TimedOutError, match="room for the request on ingress.*step=SEND_MESSAGE"):
        world.connect()


def test_back_pressure_on_the_connect_request_is_waited_out(world: World, member: IngressMember) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED, ADMIN_ACTION, BACK_PRESSURED])
    assert world.connect().cluster_session_id == 8


@pytest.mark.parametrize("result", [CLOSED, MAX_POSITION_EXCEEDED])
def test_a_connection_lost_while_connecting_is_an_error(world: World, member: IngressMember, result: int) -> None:
    world.driver.publication_results(MEMBER_0, 101, [result])
    with pytest.raises(ClusterError, match="unexpected loss of connection to the cluster"):
        world.connect()
    assert world.client.open_resources == []


def test_a_member_whose_address_is_refused_is_passed_over(world: World) -> None:
    IngressMember(world.driver, 1, MEMBER_1)
    world.driver.fail_next_add("exclusive_publication", text="unknown host node0")
    assert world.connect().leader_member_id == 1


def test_members_that_were_refused_are_told_with_the_timeout(world: World) -> None:
    world.driver.fail_next_add("exclusive_publication", text="unknown host node0")
    with pytest.raises(TimedOutError) as late:
        world.connect()
    assert str(late.value).endswith(
        "; members tried: 0=node0:9010: refused by the driver: unknown host node0; 1=node1:9110: nobody listens there"
    )


def test_when_all_members_are_refused_the_connect_fails_at_once(world: World) -> None:
    for node in (0, 1):
        world.driver.fail_next_add("exclusive_publication", text=f"unknown host node{node}")
    with pytest.raises(ClusterError, match="0=node0:9010: refused by the driver: unknown host node0; 1=node1"):
        world.connect()
    assert world.client.open_resources == []


@pytest.mark.parametrize("kind", ["subscription", "exclusive_publication"])
def test_a_refused_stream_ends_the_connect(
    world: World, kind: Literal["subscription", "exclusive_publication"]
) -> None:
    world.driver.fail_next_add(kind, text="not here")
    with pytest.raises(RegistrationError, match="not here"):
        world.connect(ingress_channel="aeron:ipc", ingress_endpoints=None)
    assert world.client.open_resources == []


def test_an_async_connect_goes_through_its_steps(world: World, member: IngressMember) -> None:
    connecting = AeronCluster.async_connect(world.context(), client_name="stepwise")
    assert connecting.context.client_name == "stepwise"
    steps = [connecting.step]
    while (client := connecting.poll()) is None:
        if connecting.step != steps[-1]:
            steps.append(connecting.step)
    assert steps == list(ConnectStep)[1:-1]  # but for the first, as the client is there
    assert connecting.step == ConnectStep.DONE
    assert connecting.poll() is client
    connecting.close()
    assert not client.is_closed
    client.close()


@pytest.mark.parametrize("polls", range(6))
def test_an_async_connect_can_be_given_up_at_any_step(world: World, member: IngressMember, polls: int) -> None:
    with AsyncConnect(world.context()) as connecting:
        for _ in range(polls):
            assert connecting.poll() is None
    connecting.close()
    assert world.client.open_resources == []
    with pytest.raises(ClosedError, match="given up"):
        connecting.poll()


def test_an_interrupt_while_connecting_closes_what_was_opened(world: World) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.connect(idle_strategy=SteppingIdleStrategy(interrupt))
    assert world.client.open_resources == []


@pytest.mark.parametrize(
    ("heartbeat_timeout_ns", "setting", "expected_ns"),
    [(5 * S, None, 10 * S), (None, None, 20 * S), (5 * S, 1.5, 1500 * MS)],
)
def test_the_new_leader_timeout_is_twice_the_heartbeat_timeout(
    world: World,
    member: IngressMember,
    heartbeat_timeout_ns: int | None,
    setting: float | None,
    expected_ns: int,
) -> None:
    member.heartbeat_timeout_ns = heartbeat_timeout_ns
    assert world.connect(new_leader_timeout=setting).new_leader_timeout_ns == expected_ns


# Sending


def test_an_offer_sends_the_session_header_and_the_buffers(client: AeronCluster, member: IngressMember) -> None:
    assert client.offer(b"hello") > 0
    assert client.offer(bytearray(b"in "), memoryview(b"three"), b" parts") > 0
    assert client.offer() > 0
    client.poll_egress()
    assert member.payloads() == [b"hello", b"in three parts", b""]
    for request in member.received("SessionMessageHeader"):
        assert (request["leadership_term_id"], request["cluster_session_id"], request["timestamp"]) == (
            3,
            8,
            0,
        )


def test_a_long_message_is_sent_in_frames(client: AeronCluster, member: IngressMember) -> None:
    message = bytes(range(256)) * 31
    assert len(message) <= client.max_message_length == 8192 - 32
    assert client.offer(message) > 0
    client.poll_egress()
    assert member.payloads() == [message]
    with pytest.raises(AeronError, match="max_message_length"):
        client.offer(bytes(client.max_message_length + 1))


def test_what_is_no_buffer_is_refused(client: AeronCluster) -> None:
    for wrong in ("text", 5, memoryview(b"abcd")[::2]):
        with pytest.raises((TypeError, BufferError)):
            client.offer(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="buffers"):
        client.offer(*[b"x"] * 16)


@pytest.mark.parametrize("result", [BACK_PRESSURED, ADMIN_ACTION, NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED])
def test_an_offer_returns_aerons_results(world: World, client: AeronCluster, result: int) -> None:
    world.driver.publication_results(MEMBER_0, 101, [result])
    assert client.offer(b"x") == result


def test_send_waits_out_back_pressure(world: World, client: AeronCluster, member: IngressMember) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED, ADMIN_ACTION] * 20)
    assert client.send(b"he", b"llo") > 0
    client.poll_egress()
    assert member.payloads() == [b"hello"]


@pytest.mark.parametrize(("timeout", "limit"), [(None, "5"), (0.25, "0.25")])
def test_send_ends_at_its_limit_and_says_why(
    world: World, client: AeronCluster, timeout: float | None, limit: str
) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 5000)
    begin_ns = world.clock.now_ns
    with pytest.raises(TimedOutError, match=f"within {limit} s: last result BACK_PRESSURED, state CONNECTED"):
        client.send(b"x", timeout=timeout)
    assert world.clock.now_ns - begin_ns == float(limit) * S


def test_send_polls_egress_meanwhile(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.message(b"meanwhile")
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED])
    client.send(b"x")
    assert world.listener.messages == [b"meanwhile"]


def test_send_ends_when_the_cluster_closes_the_session(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.session_event(1, ingress_member.CLOSED, "TIMEOUT")
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 50)
    with pytest.raises(ClosedError, match="the client is closed: closed by the cluster: TIMEOUT"):
        client.send(b"x")


def test_a_correlation_id_is_new_each_time(client: AeronCluster) -> None:
    assert client.next_correlation_id() != client.next_correlation_id()


# Receiving


def test_a_message_is_delivered_with_time_and_header(world: World, client: AeronCluster, member: IngressMember) -> None:
    kept: list[Any] = []

    class Keeping(Collecting):
        def on_message(self, cluster_session_id: int, timestamp: int, buffer: Any, header: Any) -> None:
            kept.append((cluster_session_id, timestamp, buffer, header))

    client.close()
    client = world.connect(listener=Keeping())
    member.message(b"one", timestamp=11)
    member.message(b"two", timestamp=12)
    world.poll(client)
    assert [(session, time, bytes(buffer)) for session, time, buffer, _ in kept] == [
        (8, 11, b"one"),
        (8, 12, b"two"),
    ]
    first, second = (header for *_, header in kept)
    assert first.stream_id == second.stream_id == 102
    assert second.position == first.position + 96


def test_a_long_message_is_reassembled(world: World, client: AeronCluster, member: IngressMember) -> None:
    message = bytes(range(256)) * 20
    member.message(message)
    world.poll(client)
    assert world.listener.messages == [message]


def test_idle_waits_only_when_there_was_no_work(world: World, client: AeronCluster) -> None:
    before = world.idle.idle_count
    client.idle(1)
    assert world.idle.idle_count == before
    client.idle()
    assert world.idle.idle_count == before + 1


def test_other_sessions_messages_are_passed_over(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.message(b"not ours", session_id=9)
    member.session_event(1, ingress_member.CLOSED, session_id=9)
    member.new_leader(ENDPOINTS, session_id=9)
    member.send("AdminResponse", cluster_session_id=9, correlation_id=1, request_type=0, response_code=0)
    member.send("Challenge", correlation_id=1, cluster_session_id=8, encoded_challenge=b"")
    member.message(b"ours")
    world.poll(client)
    assert world.listener.messages == [b"ours"]
    assert world.listener.events == []
    assert client.state == ClientState.CONNECTED


def test_a_poll_takes_no_more_frames_than_its_limit(world: World, client: AeronCluster, member: IngressMember) -> None:
    for number in range(12):
        member.message(bytes([number]))
    client.poll_egress(3)
    assert len(world.listener.messages) == 3
    client.poll_egress()
    assert len(world.listener.messages) == 12
    assert client.poll_egress() == 0


def test_without_a_listener_a_message_is_an_error(world: World, member: IngressMember) -> None:
    client = world.connect(listener=EgressListener())
    member.message(b"x")
    with pytest.raises(ConfigurationError, match="no egress listener with on_message") as refused:
        world.poll(client)
    assert refused.value.outcome is Outcome.UNKNOWN  # of a request for whose reply the poll was


def test_an_exception_of_the_listener_ends_the_poll_and_skips_the_message(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    def fail() -> None:
        world.listener.on_any = lambda: None
        raise ZeroDivisionError

    world.listener.on_any = fail
    member.message(b"one")
    member.message(b"two")
    with pytest.raises(ZeroDivisionError):
        client.poll_egress()
    world.poll(client)
    assert world.listener.messages == [b"one", b"two"]


def test_a_foreign_schema_is_an_error_unless_the_listener_takes_it(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    foreign = codecs.encode("archive", "Ping", control_session_id=4)
    member.send_bytes(foreign)
    with pytest.raises(ClusterError, match="expected cluster egress schemaId=111 actual=101"):
        world.poll(client)

    class Extended(Collecting):
        def on_extension_message(self, *message: Any) -> None:
            self.events.append(message)

    client.close()
    listener = Extended()
    client = world.connect(listener=listener)
    member.send_bytes(foreign)
    member.send_bytes(b"\x18\x00\x01\x00\x07\x00\x01\x00" + bytes(24))  # template 1 of schema 7
    world.poll(client)
    assert listener.events == [(8, 106, 101, 13, (4).to_bytes(8, "little")), (24, 1, 7, 1, bytes(24))]
    assert listener.messages == []


@pytest.mark.parametrize("name", ["SessionMessageHeader", "SessionEvent", "NewLeaderEvent", "AdminResponse"])
@pytest.mark.parametrize("length", [8, 15, 31])
def test_a_truncated_message_is_an_error(
    world: World, client: AeronCluster, member: IngressMember, name: str, length: int
) -> None:
    template_id = {"SessionMessageHeader": 1, "SessionEvent": 2, "NewLeaderEvent": 6, "AdminResponse": 27}[name]
    header = struct.pack("<HHHH", 24, template_id, 111, 16)
    member.send_bytes(header + bytes(length - len(header)))
    with pytest.raises(CodecError, match=name):
        world.poll(client)
    world.poll(client)
    assert client.state == ClientState.CONNECTED


def test_a_frame_shorter_than_a_header_is_an_error(client: AeronCluster, member: IngressMember) -> None:
    member.send_bytes(b"tiny")
    with pytest.raises(CodecError, match="message of 4 bytes on egress"):
        client.poll_egress()


def test_session_events_are_delivered(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.session_event(77, OK, "fine", leader=1)
    member.session_event(78, 99, "of the future", leader=1)
    world.poll(client)
    assert world.listener.events == [
        ("session", 77, 8, 3, 1, EventCode.OK, "fine"),
        ("session", 78, 8, 3, 1, 99, "of the future"),
    ]


def test_the_cluster_closes_the_client(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.session_event(5, ingress_member.CLOSED, "SERVICE_ACTION")
    member.message(b"last words")
    world.listener.on_any = lambda: states.append(client.state)
    states: list[ClientState] = []
    assert client.poll_egress() > 0
    assert client.is_closed
    assert client.close_reason == "closed by the cluster: SERVICE_ACTION"
    assert world.listener.events == [("session", 5, 8, 3, 0, EventCode.CLOSED, "SERVICE_ACTION")]
    assert states == [ClientState.PENDING_CLOSE] * 2
    assert world.listener.messages == [b"last words"]
    assert member.received("SessionCloseRequest") == []
    assert world.client.open_resources == []
    assert client.offer(b"x") == CLOSED
    for call in (
        client.poll_egress,
        client.send_keep_alive,
        client.next_correlation_id,
        lambda: client.send(b"x"),
    ):
        with pytest.raises(ClosedError, match="the client is closed: closed by the cluster: SERVICE_ACTION"):
            call()


def test_a_closed_client_asks_for_nothing(world: World, client: AeronCluster) -> None:
    client.close()
    with pytest.raises(ClosedError, match="the client is closed: closed by this client"):
        client.send_admin_request_to_take_a_snapshot(55)
    with pytest.raises(ClosedError, match="the client is closed: closed by this client"):
        client.send_keep_alive()


def test_a_snapshot_is_asked_for_and_the_answer_delivered(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    assert client.send_admin_request_to_take_a_snapshot(55)
    world.poll(client)
    (request,) = member.received("AdminRequest")
    assert request == {
        "leadership_term_id": 3,
        "cluster_session_id": 8,
        "correlation_id": 55,
        "request_type": 0,
        "payload": b"",
    }
    answers = [(0, 0, "", b""), (0, 2, "not you", b"why"), (9, 9, "new", b"")]
    for request_type, response_code, message, payload in answers:
        member.send(
            "AdminResponse",
            cluster_session_id=8,
            correlation_id=55,
            request_type=request_type,
            response_code=response_code,
            message=message,
            payload=payload,
        )
    world.poll(client)
    snapshot = AdminRequestType.SNAPSHOT
    assert world.listener.events == [
        ("admin", 8, 55, snapshot, AdminResponseCode.OK, "", b""),
        ("admin", 8, 55, snapshot, AdminResponseCode.UNAUTHORISED_ACCESS, "not you", b"why"),
        ("admin", 8, 55, 9, 9, "new", b""),
    ]


# Keep alive


def test_a_keep_alive_is_sent_on_demand(world: World, client: AeronCluster, member: IngressMember) -> None:
    assert client.send_keep_alive()
    world.poll(client)
    assert member.received("SessionKeepAlive") == [{"leadership_term_id": 3, "cluster_session_id": 8}]


@pytest.mark.parametrize(("failures", "sent"), [(2, True), (3, False)])
def test_a_keep_alive_is_tried_three_times(world: World, client: AeronCluster, failures: int, sent: bool) -> None:
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * failures)
    before = world.idle.idle_count
    assert client.send_keep_alive() is sent
    assert world.idle.idle_count - before == 2, "between the attempts"


def test_polls_keep_an_idle_session_alive(world: World, client: AeronCluster, member: IngressMember) -> None:
    for _ in range(40):
        world.advance(100 * MS)
        client.poll_egress()
    client.poll_egress()
    assert member.received("SessionKeepAlive") == [{"leadership_term_id": 3, "cluster_session_id": 8}] * 4


def test_a_busy_session_needs_no_keep_alive(world: World, client: AeronCluster, member: IngressMember) -> None:
    for _ in range(10):
        world.advance(900 * MS)
        assert client.offer(b"x") > 0
        client.poll_egress()
    assert member.received("SessionKeepAlive") == []


def test_an_admin_request_is_no_sign_of_life(world: World, client: AeronCluster, member: IngressMember) -> None:
    for _ in range(3):
        world.advance(400 * MS)
        client.send_admin_request_to_take_a_snapshot(1)
        client.poll_egress()
    world.poll(client)
    assert len(member.received("SessionKeepAlive")) == 1


def test_keep_alives_can_be_left_to_the_application(world: World, member: IngressMember) -> None:
    client = world.connect(keep_alive_interval=0)
    world.advance(60 * S)
    world.poll(client)
    assert member.received("SessionKeepAlive") == []


def test_a_keep_alive_that_meets_back_pressure_is_tried_by_the_next_poll(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    world.advance(2 * S)
    world.driver.publication_results(MEMBER_0, 101, [BACK_PRESSURED] * 2)
    world.poll(client)
    assert len(member.received("SessionKeepAlive")) == 1


# A new leader


def test_a_new_leader_is_followed(world: World, client: AeronCluster, member: IngressMember) -> None:
    leader = elect(world, member)
    assert client.poll_egress() == 2, "its message was read, and it was followed"
    assert (client.leadership_term_id, client.leader_member_id) == (4, 1)
    assert world.listener.events == [("new_leader", 8, 4, 1, ENDPOINTS)]
    assert world.ingress_channels() == [MEMBER_1]
    assert client.state == ClientState.CONNECTED  # by the keep alive that this poll sent
    world.poll(client)
    assert [name for name, _ in leader.requests] == ["SessionKeepAlive"]
    assert client.offer(b"x") > 0
    world.poll(client)
    assert leader.received("SessionMessageHeader")[0]["leadership_term_id"] == 4
    member.stop()
    world.poll(client)
    assert client.state == ClientState.CONNECTED  # the old leader's stream does not matter any more


def test_a_new_leader_over_ipc_is_reached_on_the_same_channel(world: World) -> None:
    member = IngressMember(world.driver, 0, "aeron:ipc")
    client = world.connect(ingress_channel="aeron:ipc", ingress_endpoints=None, egress_channel="aeron:ipc")
    member.leadership_term_id = 9
    member.new_leader("")
    world.poll(client)
    assert client.state == ClientState.CONNECTED
    assert client.leadership_term_id == 9


def test_while_there_is_no_leader_offers_are_not_connected(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.stop()
    assert world.poll(client) == ClientState.AWAIT_NEW_LEADER
    assert client.offer(b"x") == NOT_CONNECTED
    assert not client.send_keep_alive()
    assert client.max_message_length == 0
    elect(world, member)
    assert world.poll(client) == ClientState.CONNECTED
    assert client.offer(b"x") > 0


def test_a_failing_offer_finds_that_the_leader_is_gone(world: World, client: AeronCluster) -> None:
    world.driver.publication_results(MEMBER_0, 101, [CLOSED])
    assert client.offer(b"x") == CLOSED
    assert client.state == ClientState.AWAIT_NEW_LEADER
    assert world.ingress_channels() == []


def test_an_offer_to_a_leader_that_is_neither_connected_nor_heard_finds_that_it_is_gone(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.stop()
    seam.invoke(world.client)  # the image is gone, and no poll has looked
    assert client.offer(b"x") == NOT_CONNECTED
    assert client.state == ClientState.AWAIT_NEW_LEADER


def test_a_leader_that_stands_still_is_not_lost_while_it_is_heard(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    """Its publication is not connected for a while: neither keep alives nor messages make it a lost leader."""
    world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED] * 9)
    world.advance(S)
    world.poll(client, 5)  # each offers a keep alive
    assert client.state == ClientState.CONNECTED
    assert client.offer(b"x") == NOT_CONNECTED
    assert not client.send_keep_alive()  # of three attempts
    assert client.state == ClientState.CONNECTED
    world.advance(client.new_leader_timeout_ns)
    assert client.send(b"goes on") > 0
    world.poll(client)
    assert member.payloads() == [b"goes on"]
    assert client.cluster_session_id == 8
    assert world.listener.events == []


def test_a_leader_that_stands_still_and_is_not_heard_any_more_is_lost(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED] * 5)
    world.advance(S)
    assert world.poll(client) == ClientState.CONNECTED
    member.stop()
    assert world.poll(client) == ClientState.AWAIT_NEW_LEADER


def test_send_waits_for_the_new_leader(world: World, member: IngressMember) -> None:
    def step() -> None:
        world.advance(5 * MS)
        if member.client.is_closed() and world.clock.now_ns >= election_ns and not leaders:
            leaders.append(elect(world, member))

    leaders: list[IngressMember] = []
    client = world.connect(idle_strategy=SteppingIdleStrategy(step))
    election_ns = world.clock.now_ns + S
    member.stop()
    assert client.send(b"after the election") > 0
    world.poll(client)
    assert leaders[0].payloads() == [b"after the election"]


def test_no_new_leader_in_time_closes_the_client(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.stop()
    world.poll(client)
    world.advance(client.new_leader_timeout_ns - 1)
    world.poll(client)
    assert client.state == ClientState.AWAIT_NEW_LEADER
    world.advance(1)
    assert client.poll_egress() > 0
    assert client.close_reason == "no new leader within 10 s after the connection to member 0 was lost"
    assert world.client.open_resources == []


def test_a_new_leader_that_can_not_be_reached_in_time_closes_the_client(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    leader.ingress.close()
    client.poll_egress()
    assert client.state == ClientState.AWAIT_NEW_LEADER_CONNECTION
    world.advance(5 * S)
    client.poll_egress()
    assert str(client.close_reason).startswith(
        "nothing could be sent to the new leader, member 1, within 5 s: waited for a connection on "
    )
    assert world.client.open_resources == []


def test_a_new_leader_that_goes_away_before_it_is_reached_is_awaited_anew(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    leader.ingress.close()
    client.poll_egress()
    leader.stop()
    world.poll(client)
    assert client.state == ClientState.AWAIT_NEW_LEADER


def test_a_new_leader_that_is_not_among_the_endpoints_is_an_error(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.member_id = 5
    member.new_leader(ENDPOINTS)
    with pytest.raises(ClusterError, match="member 5 leads"):
        world.poll(client)
    assert client.state == ClientState.AWAIT_NEW_LEADER_CONNECTION
    assert client.offer(b"x") == NOT_CONNECTED
    world.advance(5 * S)
    world.poll(client, 1)
    assert client.is_closed


def test_what_comes_behind_the_new_leaders_event_is_heard_after_it(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    heard: list[str] = []
    world.listener.on_any = lambda: heard.append("message" if world.listener.messages else "new leader")
    leader = elect(world, member)
    leader.message(b"of the new term")
    world.poll(client)
    assert heard == ["new leader", "message"]


def test_no_message_is_lost_when_the_new_leaders_event_ends_a_poll(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    for number in range(3):
        member.message(b"old %d" % number)
        leader.message(b"new %d" % number)
    world.poll(client)
    assert [m for m in world.listener.messages if m.startswith(b"old")] == [b"old 0", b"old 1", b"old 2"]
    assert [m for m in world.listener.messages if m.startswith(b"new")] == [b"new 0", b"new 1", b"new 2"]


def test_the_greatest_position_closes_the_client(world: World, client: AeronCluster) -> None:
    world.driver.publication_results(MEMBER_0, 101, [MAX_POSITION_EXCEEDED])
    assert client.offer(b"x") == MAX_POSITION_EXCEEDED
    assert client.state == ClientState.PENDING_CLOSE
    client.poll_egress()
    assert client.is_closed
    assert "greatest position" in str(client.close_reason)


def test_a_keep_alive_at_the_greatest_position_raises(world: World, client: AeronCluster) -> None:
    world.driver.publication_results(MEMBER_0, 101, [MAX_POSITION_EXCEEDED])
    with pytest.raises(ClusterError, match="greatest position"):
        client.send_keep_alive()


# From a listener's callback


def test_a_callback_can_offer_and_send(world: World, client: AeronCluster, member: IngressMember) -> None:
    world.driver.publication_results(MEMBER_0, 101, [None, BACK_PRESSURED])
    world.listener.on_any = lambda: results.extend([client.offer(b"offered"), client.send(b"sent")])
    results: list[int] = []
    member.message(b"x")
    world.poll(client)
    assert len(results) == 2
    assert min(results) > 0
    assert member.payloads() == [b"offered", b"sent"]


def test_a_callback_can_not_poll(world: World, client: AeronCluster, member: IngressMember) -> None:
    world.listener.on_any = lambda: client.poll_egress()
    member.message(b"x")
    with pytest.raises(ClusterError, match="must not be called from a listener's callback"):
        world.poll(client)
    world.listener.on_any = lambda: None
    world.poll(client)


def test_a_send_from_a_callback_does_not_wait_for_a_leader(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    world.driver.publication_results(MEMBER_0, 101, [NOT_CONNECTED])
    world.listener.on_any = lambda: client.send(b"y")
    member.message(b"x")
    with pytest.raises(ClusterError, match="none can be heard of before the callback has returned"):
        world.poll(client)


def test_a_send_from_on_new_leader_reaches_the_new_leader(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    world.listener.on_any = lambda: client.send(b"again")
    leader = elect(world, member)
    world.poll(client)
    assert leader.payloads() == [b"again"]


@pytest.mark.parametrize("event", ["message", "session", "new_leader"])
def test_a_close_from_a_callback_takes_effect_when_the_poll_ends(
    world: World, client: AeronCluster, member: IngressMember, event: str
) -> None:
    world.listener.on_any = client.close
    if event == "message":
        member.message(b"x")
    elif event == "session":
        member.session_event(1, OK)
    else:
        elect(world, member)
    client.poll_egress()
    assert client.is_closed
    assert client.close_reason == "closed by this client"
    assert world.client.open_resources == []


# Closing


def test_close_ends_the_session_once(world: World, client: AeronCluster, member: IngressMember) -> None:
    client.close()
    client.close()
    seam.invoke(world.client)
    assert member.received("SessionCloseRequest") == [{"leadership_term_id": 3, "cluster_session_id": 8}]
    assert client.is_closed
    assert client.close_reason == "closed by this client"
    assert world.client.open_resources == []
    assert not world.client.is_closed()


def test_a_with_block_closes_the_client(world: World, member: IngressMember) -> None:
    with pytest.raises(ZeroDivisionError), world.connect() as client:
        raise ZeroDivisionError
    assert client.is_closed
    seam.invoke(world.client)
    assert len(member.received("SessionCloseRequest")) == 1


def test_without_a_leader_close_asks_nobody(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.stop()
    world.poll(client)
    client.close()
    assert client.is_closed
    assert world.client.open_resources == []


@pytest.mark.parametrize("result", [BACK_PRESSURED, MAX_POSITION_EXCEEDED, CLOSED])
def test_close_does_not_mind_that_its_request_can_not_be_sent(world: World, client: AeronCluster, result: int) -> None:
    world.driver.publication_results(MEMBER_0, 101, [result] * 3)
    client.close()
    assert client.is_closed
    assert world.client.open_resources == []


def test_a_dead_driver_closes_the_client(world: World, client: AeronCluster) -> None:
    world.driver.kill()
    assert client.offer(b"x") == CLOSED
    assert client.poll_egress() > 0
    assert client.is_closed
    assert client.close_reason == "its Aeron client is closed: the memory driver has been killed"
    client.close()


# Threads


def run_in_thread(action: Callable[[], object]) -> list[object]:
    result: list[object] = []

    def run() -> None:
        try:
            result.append(action())
        except ClusterError as error:
            result.append(error)

    thread = threading.Thread(target=run, name="second")
    thread.start()
    thread.join(LIMIT_S)
    return result


def test_a_second_thread_is_refused_while_the_first_is_alive(client: AeronCluster) -> None:
    calls: list[Callable[[], object]] = [
        client.poll_egress,
        lambda: client.offer(b"x"),
        lambda: client.send(b"x"),
        client.send_keep_alive,
        client.close,
    ]
    for call in calls:
        (error,) = run_in_thread(call)
        assert isinstance(error, ClusterError)
        assert "is used by thread 'MainThread' and cannot be used by 'second'" in str(error)
    assert not client.is_closed


def test_a_client_can_be_handed_to_a_thread_and_taken_back_when_that_has_ended(
    world: World, member: IngressMember
) -> None:
    client = world.connect()  # the connect does not count as a use
    (position,) = run_in_thread(lambda: client.offer(b"x"))
    assert isinstance(position, int)
    assert position > 0
    client.close()
    assert client.is_closed


def test_a_client_is_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="connect"):
        AeronCluster()
