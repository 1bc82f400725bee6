"""What a user of the client controls: claims, actions, state polls, settings; and a slow driver and bad frames."""

from __future__ import annotations

import contextlib
import gc
import random
import re
import struct
from typing import Any

import pytest

from container.api import BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.client import (
    SESSION_HEADER_LENGTH,
    Action,
    AeronCluster,
    AsyncAeronCluster,
    AsyncConnect,
    ClientContext,
    ClientState,
    ConnectStep,
    ControlledEgressListener,
    EventCode,
    SessionPool,
)
from container.codecs import messages as codecs
from container.common.values import shown
from container.errors import (
    ClosedError,
    ClusterError,
    ConfigurationError,
    ContainerError,
    DriverTimeoutError,
    MessageTooLongError,
    RegistrationError,
    SessionError,
    TimedOutError,
)
from container.testing.memory.memory_transport import MemoryClient, SteppingIdleStrategy
from container.transport.message_buffer import BufferClaim
from tests import ingress_member
from tests.client_world import ENDPOINTS, MEMBER_0, MEMBER_1, MS, Collecting, S, World, elect, state_of
from tests.ingress_member import ERROR, IngressMember

MAX_PAYLOAD_LENGTH = 1408 - 32 - SESSION_HEADER_LENGTH


@pytest.fixture
def member(world: World) -> IngressMember:
    return IngressMember(world.driver, 0, MEMBER_0)


@pytest.fixture
def client(world: World, member: IngressMember) -> AeronCluster:
    connected = world.connect()
    world.poll(connected, 1)
    return connected


# Claims


def test_a_claim_has_the_session_header_in_place(client: AeronCluster, member: IngressMember) -> None:
    claim = BufferClaim()
    assert client.try_claim(5, claim) > 0
    assert claim.length == 5
    claim.buffer[:] = b"hello"
    claim.commit()
    with BufferClaim() as claimed:
        assert client.try_claim(0, claimed) > 0
    client.poll_egress()
    assert member.payloads() == [b"hello", b""]
    for request in member.received("SessionMessageHeader"):
        assert (request["leadership_term_id"], request["cluster_session_id"], request["timestamp"]) == (3, 8, 0)


def test_a_claim_of_the_longest_payload_succeeds_and_one_byte_more_does_not(
    client: AeronCluster, member: IngressMember
) -> None:
    assert client.max_payload_length == MAX_PAYLOAD_LENGTH == 1344
    claim = BufferClaim()
    with pytest.raises(MessageTooLongError, match="max_payload_length"):
        client.try_claim(MAX_PAYLOAD_LENGTH + 1, claim)
    assert client.try_claim(MAX_PAYLOAD_LENGTH, claim) > 0
    claim.buffer[:] = bytes(range(256)) * 5 + bytes(64)
    claim.commit()
    client.poll_egress()
    assert member.payloads() == [bytes(range(256)) * 5 + bytes(64)]


def test_an_aborted_claim_sends_nothing(client: AeronCluster, member: IngressMember) -> None:
    claim = BufferClaim()
    assert client.try_claim(5, claim) > 0
    claim.abort()
    client.offer(b"after")
    client.poll_egress()
    assert member.payloads() == [b"after"]


class Holder:
    """Refers to itself and to a claim: a cycle that only the garbage collector ends."""

    def __init__(self, claim: BufferClaim) -> None:
        self.claim = claim
        self.itself = self


def test_a_claim_in_a_cycle_of_garbage_holds_up_nothing_once_it_is_collected(
    client: AeronCluster, member: IngressMember
) -> None:
    holder: Holder | None = Holder(BufferClaim())
    assert holder is not None
    assert client.try_claim(5, holder.claim) > 0
    client.offer(b"after")
    client.poll_egress()
    assert member.payloads() == []
    del holder
    gc.collect()
    client.poll_egress()
    assert member.payloads() == [b"after"]


def test_a_claim_that_is_itself_in_a_cycle_of_garbage_holds_up_nothing(
    client: AeronCluster, member: IngressMember
) -> None:
    class OwnClaim(BufferClaim):
        itself: OwnClaim

    claim = OwnClaim()
    claim.itself = claim
    assert client.try_claim(5, claim) > 0
    client.offer(b"after")
    del claim
    gc.collect()
    client.poll_egress()
    assert member.payloads() == [b"after"]


@pytest.mark.parametrize("result", [BACK_PRESSURED, NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED])
def test_a_claim_returns_aerons_results_and_they_are_tracked(world: World, client: AeronCluster, result: int) -> None:
    world.driver.publication_results(MEMBER_0, 101, [result])
    claim = BufferClaim()
    assert client.try_claim(5, claim) == result
    assert claim.length == 0
    expected = {CLOSED: ClientState.AWAIT_NEW_LEADER, MAX_POSITION_EXCEEDED: ClientState.PENDING_CLOSE}
    assert state_of(client) == expected.get(result, ClientState.CONNECTED)


def test_bad_claims_are_refused(client: AeronCluster) -> None:
    claim = BufferClaim()
    with pytest.raises(ValueError, match="length must not be negative: -1"):
        client.try_claim(-1, claim)
    assert client.try_claim(1, claim) > 0
    with pytest.raises(ClusterError, match="holds a claim already"):
        client.try_claim(1, claim)
    claim.abort()


def test_without_a_leader_nothing_can_be_claimed(world: World, client: AeronCluster, member: IngressMember) -> None:
    member.stop()
    world.poll(client)
    assert client.try_claim(1, BufferClaim()) == NOT_CONNECTED
    assert client.max_payload_length == 0
    client.close()
    assert client.try_claim(1, BufferClaim()) == CLOSED


def test_a_claim_that_outlives_its_leader_is_refused_at_the_commit(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    claim = BufferClaim()
    assert client.try_claim(1, claim) > 0
    elect(world, member)
    world.poll(client)
    with pytest.raises(ClosedError, match="closed before the claim was committed"):
        claim.commit()


def test_a_claim_keeps_the_session_alive(world: World, client: AeronCluster, member: IngressMember) -> None:
    for _ in range(5):
        world.advance(900 * MS)
        with BufferClaim() as claim:
            assert client.try_claim(1, claim) > 0
        client.poll_egress()
    assert member.received("SessionKeepAlive") == []


# What becomes of messages


class Controlled(ControlledEgressListener):
    """Does with each message what it is told to."""

    def __init__(self, *actions: Any) -> None:
        self.actions = list(actions)
        self.messages: list[bytes] = []

    def on_message(self, cluster_session_id: int, timestamp: int, buffer: Any, header: Any) -> Any:
        self.messages.append(bytes(buffer))
        return self.actions.pop(0) if self.actions else None


def controlled(world: World, member: IngressMember, *actions: Any) -> tuple[AeronCluster, Controlled]:
    listener = Controlled(*actions)
    client = world.connect(listener=listener)
    for message in (b"one", b"two", b"three"):
        member.message(message)
    return client, listener


def test_abort_delivers_the_message_again(world: World, member: IngressMember) -> None:
    client, listener = controlled(world, member, Action.CONTINUE, Action.ABORT)
    client.poll_egress()
    assert listener.messages == [b"one", b"two"]
    client.poll_egress()
    assert listener.messages == [b"one", b"two", b"two", b"three"]


def test_abort_delivers_a_message_of_many_frames_again(world: World, member: IngressMember) -> None:
    listener = Controlled(Action.ABORT, Action.ABORT)
    client = world.connect(listener=listener)
    long = bytes(range(256)) * 20
    member.message(long)
    world.poll(client)
    assert listener.messages == [long] * 3


def test_break_ends_the_poll(world: World, member: IngressMember) -> None:
    client, listener = controlled(world, member, Action.BREAK)
    client.poll_egress()
    assert listener.messages == [b"one"]
    client.poll_egress()
    assert listener.messages == [b"one", b"two", b"three"]


@pytest.mark.parametrize("action", [Action.COMMIT, Action.CONTINUE, None])
def test_commit_continue_and_none_go_on(world: World, member: IngressMember, action: Action | None) -> None:
    client, listener = controlled(world, member, action)
    client.poll_egress()
    assert listener.messages == [b"one", b"two", b"three"]


@pytest.mark.parametrize("action", [0, 5, "ABORT"])
def test_what_is_no_action_is_refused_and_the_message_consumed(
    world: World, member: IngressMember, action: Any
) -> None:
    client, listener = controlled(world, member, action)
    with pytest.raises(TypeError, match="must return an Action or None, not"):
        client.poll_egress()
    client.poll_egress()
    assert listener.messages == [b"one", b"two", b"three"]


def test_what_a_plain_listener_returns_does_not_count(world: World, member: IngressMember) -> None:
    class Returning(Collecting):
        def on_message(self, *arguments: Any) -> Any:
            super().on_message(*arguments)
            return Action.ABORT

    listener = Returning()
    client = world.connect(listener=listener)
    member.message(b"one")
    world.poll(client)
    assert listener.messages == [b"one"]


def test_a_controlled_listener_must_have_on_message(world: World, member: IngressMember) -> None:
    client = world.connect(listener=ControlledEgressListener())
    member.message(b"one")
    with pytest.raises(ConfigurationError, match="no egress listener with on_message"):
        client.poll_egress()


def test_a_controlled_listener_says_what_becomes_of_foreign_messages(world: World, member: IngressMember) -> None:
    class Extended(Controlled):
        def on_extension_message(
            self, block_length: int, template_id: int, schema_id: int, version: int, body: bytes
        ) -> Any:
            return self.on_message(0, 0, body, None)

    listener = Extended(Action.ABORT, Action.BREAK, "ABORT")
    client = world.connect(listener=listener)
    for body in (b"one", b"two"):
        member.send_bytes(bytes.fromhex("0000 0100 0700 0100") + body)
    for messages in ([b"one"], [b"one", b"one"]):
        client.poll_egress()
        assert listener.messages == messages
    with pytest.raises(TypeError, match="on_extension_message of a ControlledEgressListener must return an Action"):
        client.poll_egress()
    plain = world.connect(listener=Controlled())
    member.send_bytes(bytes.fromhex("0000 0100 0700 0100"))
    with pytest.raises(ClusterError, match="expected cluster egress schemaId=111 actual=7"):
        plain.poll_egress()


# State polls, results of others


def test_a_state_poll_reads_nothing_and_keeps_the_session_alive(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.message(b"unread")
    world.advance(2 * S)
    client.poll_state_changes()
    client.poll_state_changes()
    assert world.listener.messages == []
    assert len(member.received("SessionKeepAlive")) == 1


def test_a_state_poll_ends_a_wait_that_lasts_too_long(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.stop()
    client.poll_state_changes()
    assert state_of(client) == ClientState.AWAIT_NEW_LEADER
    world.advance(client.new_leader_timeout_ns)
    assert client.poll_state_changes() > 0
    assert client.is_closed


def test_a_state_poll_from_a_callback_is_refused(world: World, client: AeronCluster, member: IngressMember) -> None:
    world.listener.on_any = lambda: client.poll_state_changes()
    member.message(b"x")
    with pytest.raises(ClusterError, match=r"poll_state_changes\(\) must not be called from a listener's callback"):
        client.poll_egress()


def test_results_of_others_are_tracked(client: AeronCluster) -> None:
    assert client.ingress_publication is not None
    assert client.egress_subscription.stream_id == 102
    for result in (BACK_PRESSURED, NOT_CONNECTED):  # the leader is heard still
        client.track_ingress_publication_result(result)
        assert state_of(client) == ClientState.CONNECTED
    client.track_ingress_publication_result(CLOSED)
    assert state_of(client) == ClientState.AWAIT_NEW_LEADER
    assert client.ingress_publication is None


@pytest.mark.parametrize("result", [1, 64])
def test_a_result_of_others_ends_the_wait_for_a_new_leaders_connection(
    world: World, client: AeronCluster, member: IngressMember, result: int
) -> None:
    elect(world, member).ingress.close()
    client.poll_egress()
    assert state_of(client) == ClientState.AWAIT_NEW_LEADER_CONNECTION
    client.track_ingress_publication_result(result)
    assert state_of(client) == ClientState.CONNECTED


def test_a_new_leader_that_other_code_heard_of_is_followed(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    assert member.egress is not None
    leader = IngressMember(world.driver, 1, MEMBER_1)
    leader.leadership_term_id = 4
    leader.open_egress(member.egress.channel)
    assert leader.egress is not None
    member.stop()
    with pytest.raises(ClusterError, match="a new leader's event for session 9 does not concern this one, 8"):
        client.on_new_leader(9, 4, 1, ENDPOINTS, leader.egress.session_id)
    client.on_new_leader(8, 4, 1, ENDPOINTS, leader.egress.session_id)
    for _ in range(5):
        client.poll_state_changes()
    assert state_of(client) == ClientState.CONNECTED
    assert (client.leadership_term_id, client.leader_member_id) == (4, 1)
    assert world.listener.events == [("new_leader", 8, 4, 1, ENDPOINTS)]
    assert client.offer(b"x") > 0
    client.close()
    with pytest.raises(ClosedError):
        client.on_new_leader(8, 5, 0, ENDPOINTS, leader.egress.session_id)


def test_partial_messages_of_the_old_leader_are_dropped(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.message(bytes(5000))
    client.poll_egress(2)  # two of its four frames
    elect(world, member)
    world.poll(client)
    assert world.listener.messages == []
    assert state_of(client) == ClientState.CONNECTED


# Settings


def test_the_environment_gives_settings_by_aerons_names() -> None:
    context = ClientContext.from_environment(
        {
            "AERON_CLUSTER_INGRESS_CHANNEL": "aeron:udp",
            "AERON_CLUSTER_INGRESS_STREAM_ID": "201",
            "AERON_CLUSTER_INGRESS_ENDPOINTS": "0=a:1",
            "AERON_CLUSTER_EGRESS_CHANNEL": "aeron:udp?endpoint=b:0",
            "AERON_CLUSTER_EGRESS_STREAM_ID": "202",
            "AERON_CLUSTER_MESSAGE_TIMEOUT": "1500ms",
            "AERON_CLUSTER_CLIENT_NAME": "me",
            "AERON_CLUSTER_IDLE_STRATEGY": "yield",
            "AERON_DRIVER_TIMEOUT": "2500",
            "AERON_DIR": "driver",
        },
        egress_stream_id=302,
    )
    assert (context.ingress_channel, context.ingress_stream_id, context.ingress_endpoints) == (
        "aeron:udp",
        201,
        "0=a:1",
    )
    assert (context.egress_channel, context.egress_stream_id) == ("aeron:udp?endpoint=b:0", 302)
    assert (context.message_timeout, context.client_name, context.aeron_dir) == (1.5, "me", "driver")
    assert repr(context.idle_strategy) == "yield"
    assert context.driver_timeout == 2.5


def test_an_explicit_none_counts_before_the_environment() -> None:
    environ = {"AERON_CLUSTER_INGRESS_ENDPOINTS": "0=a:1", "AERON_CLUSTER_CLIENT_NAME": ""}
    context = ClientContext.from_environment(
        environ, ingress_channel="aeron:ipc", egress_channel="aeron:ipc", ingress_endpoints=None
    )
    assert context.ingress_endpoints is None
    assert context.client_name == ""


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("AERON_CLUSTER_INGRESS_STREAM_ID", "many", "AERON_CLUSTER_INGRESS_STREAM_ID='many'"),
        ("AERON_CLUSTER_MESSAGE_TIMEOUT", "soon", "AERON_CLUSTER_MESSAGE_TIMEOUT='soon': not a duration"),
        ("AERON_CLUSTER_IDLE_STRATEGY", "rest", "AERON_CLUSTER_IDLE_STRATEGY='rest'"),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ClientContext.from_environment({variable: value}, ingress_channel="aeron:ipc", egress_channel="aeron:ipc")


@pytest.mark.parametrize("text", ["5", " 5 ", "0", "999999", "5ns", "5us", "999us"])
def test_a_timeout_of_the_environment_that_lost_its_unit_is_refused(text: str) -> None:
    environ = {"AERON_CLUSTER_MESSAGE_TIMEOUT": text}
    with pytest.raises(ConfigurationError, match=r"^AERON_CLUSTER_MESSAGE_TIMEOUT=.* ns is less than") as refused:
        ClientContext.from_environment(environ, ingress_channel="aeron:ipc", egress_channel="aeron:ipc")
    assert (f"write {text.strip()}s" in str(refused.value)) == text.strip().isdigit()


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("1MS", 0.001), ("5000000000", 5.0)])
def test_a_timeout_of_the_environment_is_as_for_aeron(text: str, seconds: float) -> None:
    context = ClientContext.from_environment(
        {"AERON_CLUSTER_MESSAGE_TIMEOUT": text}, ingress_channel="aeron:ipc", egress_channel="aeron:ipc"
    )
    assert context.message_timeout == seconds


NO_TIMES: list[Any] = [
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    -0.5,
    True,
    "5",
    "5s",
    b"5",
    [5],
    1e10,
    10**400,
    5j,
]


@pytest.mark.parametrize("value", [*NO_TIMES, 5e-9, 0.0009], ids=shown)
@pytest.mark.parametrize("name", ["message_timeout", "new_leader_timeout", "keep_alive_interval", "driver_timeout"])
def test_what_is_no_time_is_refused_with_the_setting_the_value_and_what_it_may_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ClientContext(ingress_channel="aeron:ipc", egress_channel="aeron:ipc", **{name: value})
    text = str(refused.value)
    assert text.startswith(f"{name} must be ")
    assert "a number of seconds from 0.001 to " in text
    assert text.endswith(f", not {shown(value)}")


@pytest.mark.parametrize("value", NO_TIMES, ids=shown)
def test_what_is_no_timeout_of_a_send_is_refused_before_anything_is_sent(
    client: AeronCluster, member: IngressMember, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match="^timeout must be None or a number of seconds from 0 to 10{9}, not "):
        client.send(b"x", timeout=value)
    assert member.payloads() == []


@pytest.mark.parametrize("value", [0, -1, True, 1.5, float("nan"), "64", 2**40, None], ids=shown)
def test_a_count_that_is_none_is_refused(world: World, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="^max_connecting must be a whole number from 1 to 2147483647, not "):
        SessionPool.connect(world.context(), max_connecting=value)
    with pytest.raises(ConfigurationError, match="^max_waiting must be a whole number from 1 to 2147483647, not "):
        AsyncAeronCluster.connect(max_waiting=value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"credentials_supplier": object()}, r"credentials_supplier must have encoded_credentials\(\)"),
        ({"agent_invoker": 5}, "agent_invoker must be callable or None, not 5"),
        ({"error_handler": "log"}, "error_handler must be callable or None, not 'log'"),
    ],
)
def test_bad_objects_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ClientContext(ingress_channel="aeron:ipc", egress_channel="aeron:ipc", **settings)


@pytest.mark.parametrize("is_given", [True, False])
def test_endpoints_of_the_environment_beside_ipc_name_the_variables(*, is_given: bool) -> None:
    environ = {"AERON_CLUSTER_INGRESS_ENDPOINTS": "0=a:1", "AERON_CLUSTER_EGRESS_CHANNEL": "aeron:ipc"}
    settings: dict[str, Any] = {"ingress_channel": "aeron:ipc"} if is_given else {}
    source = "ingress_channel" if is_given else "AERON_CLUSTER_INGRESS_CHANNEL"
    if not is_given:
        environ["AERON_CLUSTER_INGRESS_CHANNEL"] = "aeron:ipc"
    text = f"AERON_CLUSTER_INGRESS_ENDPOINTS='0=a:1': must not be set with the IPC {source}='aeron:ipc'; unset it"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}, or give ingress_endpoints=None$"):
        ClientContext.from_environment(environ, **settings)
    context = ClientContext.from_environment(environ, ingress_endpoints=None, **settings)
    assert (context.ingress_channel, context.ingress_endpoints) == ("aeron:ipc", None)
    with pytest.raises(
        ConfigurationError, match="^ingress_endpoints must be None for an IPC ingress_channel: '0=b:1'$"
    ):
        ClientContext.from_environment(environ, ingress_endpoints="0=b:1", **settings)


def test_connect_reads_the_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    member = IngressMember(world.driver, 0, "aeron:ipc")
    monkeypatch.setenv("AERON_CLUSTER_INGRESS_CHANNEL", "aeron:ipc")
    monkeypatch.setenv("AERON_CLUSTER_EGRESS_CHANNEL", "aeron:ipc?term-length=64k")
    with AeronCluster.connect(client=world.client, listener=world.listener, idle_strategy=world.idle):
        assert member.received("SessionConnectRequest")[0]["response_channel"] == b"aeron:ipc?term-length=64k"


def test_an_agent_invoker_works_while_the_client_waits_and_polls(world: World, member: IngressMember) -> None:
    calls: list[ClientState | ConnectStep] = []

    def invoke() -> int:
        calls.append(client.state if connected else connecting.step)
        return 1

    connected = False
    connecting = AsyncConnect(world.context(agent_invoker=invoke))
    while (result := connecting.poll()) is None:
        pass
    client, connected = result, True
    assert ConnectStep.POLL_RESPONSE in calls
    assert client.poll_egress() >= 1
    assert calls[-1] == ClientState.CONNECTED


@pytest.mark.parametrize("work", [None, 0, 3])
def test_the_work_of_an_agent_invoker_counts(world: World, member: IngressMember, work: int | None) -> None:
    client = world.connect(agent_invoker=lambda: work)
    world.poll(client)
    assert client.poll_egress() == (work or 0)


@pytest.mark.parametrize("owns_client", [False, True])
def test_a_shared_client_is_closed_only_when_owned(world: World, member: IngressMember, owns_client: bool) -> None:
    client = world.connect(owns_client=owns_client)
    client.close()
    assert bool(world.client.is_closed()) is owns_client
    assert client.ingress_publication is None


# Errors and progress


def test_a_refusal_names_the_members_that_were_tried(world: World, member: IngressMember) -> None:
    leader = IngressMember(world.driver, 1, MEMBER_1)
    member.redirect_to(1, ENDPOINTS)
    leader.refuse(ERROR, "concurrent session limit")
    with pytest.raises(SessionError) as refused:
        world.connect()
    assert (refused.value.code, refused.value.detail) == (EventCode.ERROR, "concurrent session limit")
    assert str(refused.value) == (
        "cluster connect: ERROR: concurrent session limit; members tried: "
        "0=node0:9010: redirected to member 1; 1=node1:9110: connected; "
        "its members take no more clients than their max_concurrent_sessions: close sessions, or start the "
        "members with more, such as by AERON_CLUSTER_MAX_SESSIONS=100 in their environment, also for "
        "`aeron-cluster dev` (Java's members: aeron.cluster.max.sessions)"
    )


@pytest.mark.parametrize("channel", ["aeron:udp?endpoint=localhost", "aeron:udp?endpoint=192.0.2.1:0", "aeron:udp"])
def test_an_egress_channel_that_cannot_be_opened_is_named_with_its_fix(channel: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        AeronCluster.connect(
            ingress_channel="aeron:udp",
            ingress_endpoints="0=localhost:1",
            egress_channel=channel,
            embedded_driver=True,
        )
    assert str(refused.value).startswith(
        f"cannot open egress_channel='{channel}': it must have an address of this host and a port, such as "
        "'aeron:udp?endpoint=localhost:0', where 0 takes a free one: cannot add subscription"
    )
    assert refused.value.code != 0


def test_a_timeout_names_the_members_that_were_tried(world: World, member: IngressMember) -> None:
    member.redirect_to(1, ENDPOINTS)
    with pytest.raises(TimedOutError) as late:
        world.connect()
    assert str(late.value).endswith(
        "members tried: 0=node0:9010: redirected to member 1; 1=node1:9110: nobody listens there"
    )


def test_a_redirect_does_not_extend_the_deadline(world: World, member: IngressMember) -> None:
    begin_ns = world.clock.now_ns
    IngressMember(world.driver, 1, MEMBER_1).redirect_to(0, ENDPOINTS)
    member.redirect_to(1, ENDPOINTS)  # and so on, forever
    redirect = member.hooks["SessionConnectRequest"]

    def hook(request: Any) -> None:
        world.advance(100 * MS)
        redirect(request)

    member.hooks["SessionConnectRequest"] = hook
    with pytest.raises(TimedOutError):
        world.connect()
    assert 5 * S <= world.clock.now_ns - begin_ns < 5.1 * S


def test_a_blocking_connect_logs_what_it_waits_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "container.client"), pytest.raises(TimedOutError):
        world.connect(message_timeout=3.5)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(" after ")[2] for text in texts] == ["1 s", "2 s", "3 s"]
    assert texts[0].startswith("cluster connect: still waiting for a member that listens on ingress")
    assert "0=node0:9010: nobody listens there" in texts[0]


# A driver that takes its time


def test_a_blocking_connect_logs_each_second_to_the_nanosecond(world: World, caplog: pytest.LogCaptureFixture) -> None:
    idle = SteppingIdleStrategy(lambda: world.clock.advance(1 * S))
    with caplog.at_level("INFO", "container.client"), pytest.raises(TimedOutError):
        world.connect(message_timeout=3.5, idle_strategy=idle)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(" after ")[2] for text in texts] == ["1 s", "2 s", "3 s"]


@pytest.mark.parametrize("kind", ["subscription", "exclusive_publication"])
def test_a_connect_does_not_wait_for_the_driver(world: World, kind: Any) -> None:
    IngressMember(world.driver, 0, "aeron:ipc")
    world.driver.delay_next_add(kind, 7)
    connecting = AsyncConnect(
        world.context(ingress_channel="aeron:ipc", ingress_endpoints=None, egress_channel="aeron:ipc")
    )
    expected = (
        ConnectStep.CREATE_EGRESS_SUBSCRIPTION if kind == "subscription" else ConnectStep.CREATE_INGRESS_PUBLICATIONS
    )
    steps = []
    while (client := connecting.poll()) is None:
        steps.append(connecting.step)
    assert steps.count(expected) >= 7
    client.close()
    assert world.client.open_resources == []


def test_a_slow_add_does_not_hold_up_the_other_members(world: World, member: IngressMember) -> None:
    IngressMember(world.driver, 1, MEMBER_1)
    world.driver.delay_next_add("exclusive_publication", 1000)
    assert world.connect().leader_member_id == 1
    assert world.ingress_channels() == [MEMBER_1]


def test_a_driver_that_never_answers_ends_the_connect(world: World) -> None:
    world.driver.delay_next_add("subscription", 1_000_000)
    with pytest.raises(TimedOutError, match="s for the driver to add the egress subscription"):
        world.connect()
    assert world.client.open_resources == []


def test_a_driver_that_dies_ends_the_connect(world: World) -> None:
    def kill() -> None:
        world.driver.kill()

    world.driver.delay_next_add("subscription", 100)
    with pytest.raises((ClosedError, DriverTimeoutError)):
        world.connect(idle_strategy=SteppingIdleStrategy(kill))


def test_a_new_leaders_publication_is_added_without_a_wait(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    world.driver.delay_next_add("exclusive_publication", 6)
    leader.message(b"of the new term")
    client.poll_egress()
    assert state_of(client) == ClientState.AWAIT_NEW_LEADER_CONNECTION
    assert client.offer(b"x") == NOT_CONNECTED
    assert world.listener.events == []
    assert world.listener.messages == []
    world.poll(client, 10)
    assert [event[0] for event in world.listener.events] == ["new_leader"]
    assert world.listener.messages == [b"of the new term"]
    assert state_of(client) == ClientState.CONNECTED


def test_a_new_leaders_publication_that_is_refused_is_an_error(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    leader.driver.fail_next_add("exclusive_publication", text="no room")
    with pytest.raises(RegistrationError, match="no room"):
        client.poll_egress()
    assert state_of(client) == ClientState.AWAIT_NEW_LEADER_CONNECTION
    world.advance(5 * S)
    world.poll(client, 1)
    assert client.is_closed
    assert client.close_reason == (
        "nothing could be sent to the new leader, member 1, within 5 s: its ingress publication could not be added: "
        "no room"
    )


def test_a_leader_that_goes_while_its_publication_is_added_is_awaited_anew(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    leader = elect(world, member)
    world.driver.delay_next_add("exclusive_publication", 1_000_000)
    client.poll_egress()
    leader.stop()
    world.poll(client)
    assert state_of(client) == ClientState.AWAIT_NEW_LEADER
    client.close()
    assert world.client.open_resources == []


def test_a_new_leaders_driver_that_never_answers_closes_the_client(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    elect(world, member)
    world.driver.delay_next_add("exclusive_publication", 1_000_000)
    client.poll_egress()
    world.advance(5 * S)
    world.poll(client, 1)
    assert str(client.close_reason).endswith("within 5 s: waited for the driver to add its ingress publication")


# Older and newer clusters


@pytest.mark.parametrize("version", [12, 13, 16, 17])
def test_session_events_of_every_schema_version_are_understood(
    world: World, member: IngressMember, version: int
) -> None:
    def hook(request: Any) -> None:
        member.connect_egress(request)
        fixed = struct.pack("<qqqiii", 8, request["correlation_id"], 3, 0, 0, 768)
        if version >= 13:
            fixed += struct.pack("<q", 3 * S)
        if version >= 17:
            fixed += bytes(16)  # what a later schema may add
        member.send_bytes(struct.pack("<HHHH", len(fixed), 2, 111, version) + fixed + struct.pack("<I", 0))

    member.hooks["SessionConnectRequest"] = hook
    client = world.connect()
    assert client.new_leader_timeout_ns == (20 * S if version < 13 else 6 * S)


def test_an_admin_response_of_a_longer_block_is_understood(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    fixed = struct.pack("<qqii", 8, 5, 0, 0) + bytes(8)
    body = fixed + struct.pack("<I", 2) + b"ok" + struct.pack("<I", 3) + b"why"
    member.send_bytes(struct.pack("<HHHH", len(fixed), 27, 111, 18) + body)
    world.poll(client)
    assert world.listener.events == [("admin", 8, 5, 0, 0, "ok", b"why")]


# Malformed frames


def mutated(random_source: random.Random, frame: bytes) -> bytes:
    """The frame with some bytes changed, its end cut off or more behind it."""
    data = bytearray(frame)
    for _ in range(random_source.randint(1, 6)):
        data[random_source.randrange(len(data))] = random_source.choice(
            [0, 1, 0x7F, 0x80, 0xFF, random_source.randrange(256)]
        )
    if random_source.random() < 0.4:
        del data[random_source.randrange(len(data)) :]
    elif random_source.random() < 0.2:
        data += random_source.randbytes(random_source.randint(1, 40))
    return bytes(data)


def valid_frames() -> list[bytes]:
    """One of each message that the cluster sends to a client."""
    return [
        codecs.encode("cluster", "SessionMessageHeader", leadership_term_id=3, cluster_session_id=8, timestamp=1)
        + b"x" * 40,
        codecs.encode(
            "cluster",
            "SessionEvent",
            cluster_session_id=8,
            correlation_id=1,
            leadership_term_id=3,
            leader_member_id=0,
            code=0,
            version=768,
            leader_heartbeat_timeout_ns=1,
            detail="a detail",
        ),
        codecs.encode(
            "cluster",
            "NewLeaderEvent",
            leadership_term_id=4,
            cluster_session_id=8,
            leader_member_id=0,
            ingress_endpoints=ENDPOINTS,
        ),
        codecs.encode(
            "cluster",
            "AdminResponse",
            cluster_session_id=8,
            correlation_id=1,
            request_type=0,
            response_code=0,
            message="m",
            payload=b"p",
        ),
        codecs.encode("cluster", "Challenge", correlation_id=1, cluster_session_id=8, encoded_challenge=b"who"),
        codecs.encode("archive", "Ping", control_session_id=1),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_malformed_egress_raises_our_errors_and_nothing_else(seed: int) -> None:
    random_source = random.Random(seed)
    frames = valid_frames()
    world = World()
    member = IngressMember(world.driver, 0, MEMBER_0)
    client = world.connect()
    for _ in range(60):
        if client.is_closed or client.state != ClientState.CONNECTED:
            client.close()
            world.client = world.driver.connect("again")
            client = world.connect()
        member.send_bytes(mutated(random_source, random_source.choice(frames)) or b"\0")
        for _ in range(3):
            try:
                client.poll_egress()
            except ContainerError:
                if client.is_closed:
                    break
    client.close()
    assert world.client.open_resources == []


@pytest.mark.parametrize("seed", range(40))
def test_malformed_answers_to_a_connect_raise_our_errors_and_nothing_else(seed: int) -> None:
    random_source = random.Random(seed)
    world = World()
    member = IngressMember(world.driver, 0, MEMBER_0)

    def hook(request: Any) -> None:
        member.connect_egress(request)
        for frame in valid_frames():
            member.send_bytes(mutated(random_source, frame) or b"\0")
        event = codecs.encode(
            "cluster",
            "SessionEvent",
            cluster_session_id=8,
            correlation_id=request["correlation_id"],
            leadership_term_id=3,
            leader_member_id=0,
            code=random_source.randrange(-1, 6),
            version=768,
            leader_heartbeat_timeout_ns=random_source.choice([-(2**63), -1, 0, 1, 2**63 - 1]),
            detail=random_source.choice(["", ENDPOINTS, "0=", "\x7f"]),
        )
        member.send_bytes(random_source.choice([event, mutated(random_source, event) or b"\0"]))

    member.hooks["SessionConnectRequest"] = hook
    with contextlib.suppress(ContainerError):
        world.connect(message_timeout=0.2).close()
    assert world.client.open_resources == []


def test_a_client_name_that_is_not_ascii_is_sent_readably(world: World, member: IngressMember) -> None:
    world.connect(client_name="früh")
    assert member.received("SessionConnectRequest")[0]["client_info"].startswith(b"name=fr?h ")


def test_a_closed_transport_is_told(world: World) -> None:
    client: MemoryClient = world.client
    client.close()
    with pytest.raises(ClosedError):
        world.connect()


def test_a_session_closed_by_the_cluster_sends_no_close_request(
    world: World, client: AeronCluster, member: IngressMember
) -> None:
    member.session_event(1, ingress_member.CLOSED, "TIMEOUT")
    client.poll_egress()
    client.close()
    world.driver.conduct()
    assert member.received("SessionCloseRequest") == []
