"""Clients of a whole member in memory: who is refused, and what those who misbehave can do to the others."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from container.api import CloseReason
from container.archive.authentication import Authenticator, SessionProxy
from container.codecs import messages as codecs
from container.common.aeron_defaults import (
    CONSENSUS_MODULE_STREAM_ID,
    CONSENSUS_STREAM_ID,
    CONTROL_CHANNEL,
    INGRESS_STREAM_ID,
)
from container.consensus import channels
from container.errors import AgentTermination
from container.testing.memory import transport_probe as seam
from container.transport.streams import Publication
from tests.member_world import IPC, VERSION, MemberWorld, WorldClient, session_message

ERROR, AUTHENTICATION_REJECTED, CLOSED = 1, 3, 4
TURNS = 40
"""In which a client is answered, whatever others do."""
FLOOD = 500
TOO_LONG = 9_000
WINDOW = 32 * 1024
SECRET = b"Xyzzy-7-Plugh"


def connected(world: MemberWorld, stream_id: int = 30_001, *, is_ipc: bool = True) -> WorldClient:
    """A client with a session."""
    client = WorldClient(world, stream_id, is_ipc=is_ipc)
    client.connect()
    return client


def refusal(client: WorldClient, request: bytes) -> tuple[int, str]:
    """Code and text of the event that answers a connect request."""
    client.send(request)
    found: list[dict[str, Any]] = []

    def is_answered() -> bool:
        found.extend(fields for name, fields in client.received() if name == "SessionEvent")
        return bool(found)

    client.world.until(is_answered)
    return found[0]["code"], found[0]["detail"].decode()


def assert_is_answered(client: WorldClient, payload: bytes, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Send a message; its echo comes within so many turns, whatever is done before each."""
    client.message(payload)
    for _ in range(TURNS):
        meanwhile()
        client.world.work()
        answers = [fields["payload"] for name, fields in client.received() if name == "SessionMessageHeader"]
        if answers:
            assert answers == [payload]
            return
    raise AssertionError(f"no answer in {TURNS} turns; reported: {client.world.errors[:3]}")


def texts(world: MemberWorld) -> list[str]:
    """What was reported, which is forgotten."""
    found = [str(error) for error in world.errors]
    world.errors.clear()
    return found


def long_ingress(client: WorldClient) -> Publication:
    """A publication that takes longer messages than the log does."""
    return seam.add_publication(client.client, f"{IPC}?term-length=1m", INGRESS_STREAM_ID, exclusive=True)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of reports are made here."""
    caplog.set_level(logging.CRITICAL + 1, "container")


# Who is refused


@pytest.mark.parametrize(
    ("version", "shown"), [(1 << 16, "1.0.0"), (0xFF_FF_FF, "255.255.255"), (2 << 16 | 3 << 8, "2.3.0")]
)
def test_a_client_of_another_major_version_is_told_so(version: int, shown: str) -> None:
    world = MemberWorld()
    client = WorldClient(world, 30_001, is_ipc=True)
    text = f"invalid client version {shown}, cluster is 0.3.0"
    assert refusal(client, client.connect_request(version=version)) == (ERROR, text)
    assert texts(world) == [f"ERROR {text}, clusterMemberId=0, id=1"]
    client.connect()
    world.work(10)
    assert client.session_id == 2, "the id of a client that is refused is used up"
    assert [event[:2] for event in world.service.events] == [("open", 2)]


@pytest.mark.parametrize("version", [0, 1, VERSION, 0x00_FF_FF])
def test_clients_of_the_same_major_version_are_served(version: int) -> None:
    world = MemberWorld()
    client = WorldClient(world, 30_001, is_ipc=True)
    assert refusal(client, client.connect_request(version=version)) == (0, "")


def test_clients_that_do_not_listen_take_the_places_of_others_until_they_time_out() -> None:
    world = MemberWorld(max_concurrent_sessions=3)
    good = connected(world)
    bad = WorldClient(world, 30_002, is_ipc=True)
    before = len(world.client.open_resources)
    for _ in range(20):
        bad.send(bad.connect_request(response_stream_id=666))
    late = WorldClient(world, 30_003, is_ipc=True)
    assert refusal(late, late.connect_request()) == (ERROR, "concurrent session limit")
    assert_is_answered(good, b"still there")
    assert [event[:2] for event in world.service.events if event[0] != "message"] == [("open", good.session_id)]
    for _ in range(11):
        world.wait(1000, step_ms=100)
        assert_is_answered(good, b"and now")
    late.connect()
    assert_is_answered(late, b"in time")
    assert len(world.client.open_resources) == before + 2, "its egress and its counter"


@pytest.mark.parametrize("kind", ["session", "backup"])
@pytest.mark.parametrize(
    ("channel", "stream_id"),
    [
        ("aeron:udp?endpoint=localhost:9010", INGRESS_STREAM_ID),
        ("aeron:udp?endpoint=localhost:9020", CONSENSUS_STREAM_ID),
        ("aeron:udp?endpoint=localhost:8010", 10),
        ("aeron:udp?endpoint=127.0.0.1:9010", INGRESS_STREAM_ID),
        (IPC, INGRESS_STREAM_ID),
        (CONTROL_CHANNEL, CONSENSUS_MODULE_STREAM_ID),
    ],
)
def test_a_client_cannot_have_the_cluster_answer_itself(channel: str, stream_id: int, kind: str) -> None:
    world = MemberWorld()
    good, bad = connected(world), WorldClient(world, 30_002, is_ipc=True)
    position = log_position(world)
    before = len(world.client.open_resources)
    if kind == "session":
        bad.send(bad.connect_request(response_channel=channel.encode(), response_stream_id=stream_id))
    else:
        backup = seam.add_publication(bad.client, "aeron:udp?endpoint=localhost:9020", CONSENSUS_STREAM_ID)
        query: dict[str, Any] = {
            "response_channel": channel.encode(),
            "response_stream_id": stream_id,
            "version": VERSION,
        }
        request = codecs.encode(
            "cluster", "BackupQuery", correlation_id=1, log_position=0, encoded_credentials=b"", **query
        )
        world.until(lambda: seam.offer(backup, request) > 0)
    world.wait(100)
    assert len(world.client.open_resources) == before
    assert log_position(world) == position
    (text,) = texts(world)
    assert text.startswith("request not answered: correlationId=1: ")
    assert "the cluster's own: use another" in text
    assert_is_answered(good, b"still there")


def log_position(world: MemberWorld) -> int:
    """Where the log ends."""
    log = world.agent.log_publisher.publication
    assert log is not None
    return seam.position(log)


def egresses(world: MemberWorld) -> list[Publication]:
    """The publications to clients, of which each has its alias."""
    found = [each for each in world.client.open_resources if isinstance(each, Publication)]
    return [each for each in found if "alias=egress" in each.channel]


def test_a_client_chooses_no_more_memory_than_a_session_needs() -> None:
    world = MemberWorld(max_concurrent_sessions=1)
    asked = b"aeron:ipc?alias=egress|term-length=512m|linger=1h|sparse=false"
    client = WorldClient(world, 30_001, is_ipc=True)
    assert refusal(client, client.connect_request(response_channel=asked)) == (0, "")
    taken = "aeron:ipc?alias=egress|term-length=1m"
    assert [each.channel for each in egresses(world)] == [taken]
    world.work(10)
    assert world.service.events == [("open", 1, 30_001, taken)]  # its member sends on the same publication
    silent = WorldClient(world, 30_002, is_ipc=True)
    silent.send(silent.connect_request(response_channel=asked, response_stream_id=666))
    world.until(lambda: len(egresses(world)) > 1)
    assert [each.channel for each in egresses(world)] == [taken, "aeron:ipc?alias=egress|term-length=64k"]


def test_a_burst_of_clients_has_few_publications_made_at_a_time_and_all_are_answered_in_order() -> None:
    count, turns = 200, 30
    world = MemberWorld(max_concurrent_sessions=150)
    client = WorldClient(world, 30_001, is_ipc=True)
    for _ in range(count):
        world.driver.delay_next_add("publication", turns)
        world.driver.delay_next_add("exclusive_publication", turns)
    asked = b"aeron:ipc?alias=egress"
    for number in range(count):
        client.send(client.connect_request(number, response_channel=asked, response_stream_id=30_001))
    answered: list[tuple[int, int]] = []
    most = before = 0
    while len(answered) < count:
        world.work()
        made = len(egresses(world))
        most, before = max(most, made - before), made
        events = [fields for name, fields in client.received() if name == "SessionEvent"]
        answered += [(each["correlation_id"], each["code"]) for each in events]
    assert 0 < most <= 32
    assert sorted(answered) == [(number, 0 if number < 150 else ERROR) for number in range(count)]


def test_a_principal_and_a_channel_that_the_log_does_not_take_are_refused() -> None:
    class Lengthy(Authenticator):
        def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
            session.authenticate(b"p" * 4096 if session.session_id == 1 else b"")

    world = MemberWorld(authenticator=Lengthy())
    bad, good = (WorldClient(world, 30_001 + number, is_ipc=True) for number in range(2))
    channel = IPC + "?alias=" + "x" * 4060
    text = "response channel and principal do not fit a message of the log"
    assert refusal(bad, bad.connect_request(response_channel=channel.encode())) == (ERROR, text)
    good.connect()
    assert_is_answered(good, b"hello")


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_member_of_another_major_version_does_not_go_on_with_a_log_and_leaves_it_as_it_is(
    *, has_snapshot: bool
) -> None:
    world = MemberWorld()
    good = connected(world)
    assert_is_answered(good, b"hello")
    if has_snapshot:
        take_snapshot(world)
    world.close()
    before = {path: content for path, content in world.disk.contents().items() if path.endswith(".rec")}
    world.settings = {"app_version": 2 << 16}
    with pytest.raises(AgentTermination):
        world.open()
    what = "snapshot" if has_snapshot else "log"
    assert f"incompatible version: 2.0.0 {what}=0.0.1" in "\n".join(texts(world))
    world.close()
    assert {path: world.disk.contents()[path] for path in before} == before
    world.settings = {}
    world.open()
    late = connected(world, 30_002)
    assert_is_answered(late, b"still there")


class Guard(Authenticator):
    """Asks each client for a secret, first in the request and then in answer to a challenge."""

    def __init__(self) -> None:
        self.answers: dict[int, bytes] = {}

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        if encoded_credentials == SECRET + b"raise":
            raise ValueError("as asked")
        self.answers[session_id] = encoded_credentials

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        answer = self.answers.pop(session.session_id)
        if answer == SECRET:
            session.challenge(b"more")
        elif answer == SECRET + b"fail":
            raise RuntimeError("as asked")
        else:
            session.reject()

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.answers[session_id] = encoded_credentials

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        answer = self.answers.pop(session.session_id, None)
        if answer is not None:
            if answer == SECRET + b"more":
                session.authenticate(b"principal")
            else:
                session.reject()


def challenged(world: MemberWorld, stream_id: int, answer: bytes) -> tuple[int, str]:
    """How a client ends that knows the first secret, and answers with this one."""
    client = WorldClient(world, stream_id, is_ipc=True)
    client.send(client.connect_request(encoded_credentials=SECRET))
    found: list[dict[str, Any]] = []

    def is_challenged() -> bool:
        found.extend(fields for name, fields in client.received() if name == "Challenge")
        return bool(found)

    world.until(is_challenged)
    assert found[0]["encoded_challenge"] == b"more"
    session = {"cluster_session_id": found[0]["cluster_session_id"], "correlation_id": 9}
    return refusal(client, codecs.encode("cluster", "ChallengeResponse", encoded_credentials=answer, **session))


def test_credentials_are_nowhere_but_with_the_authenticator(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "container")
    world = MemberWorld(authenticator=Guard(), authorisation_service=_Curious())
    rejected = (AUTHENTICATION_REJECTED, "session failed authentication")
    for number, credentials in enumerate((b"", SECRET + b"?", SECRET + b"raise", SECRET + b"fail")):
        client = WorldClient(world, 31_000 + number, is_ipc=True)
        assert refusal(client, client.connect_request(encoded_credentials=credentials)) == rejected
    assert challenged(world, 32_001, SECRET + b"wrong") == rejected
    assert challenged(world, 32_002, SECRET + b"more") == (0, "")
    # What is cut off is reported, and so is what the client says too late or of another.
    client = WorldClient(world, 32_003, is_ipc=True)
    request = client.connect_request(encoded_credentials=SECRET)
    for length in range(len(request)):
        client.send(request[:length])
    response: dict[str, Any] = {"cluster_session_id": 1, "correlation_id": 9, "encoded_credentials": SECRET}
    client.send(codecs.encode("cluster", "ChallengeResponse", **response))
    world.work(50)
    assert world.agent.request_snapshot()
    world.until(lambda: world.agent.snapshot_count == 1)
    said = [*map(repr, world.errors), caplog.text, *capfd.readouterr(), repr(vars(world.context)), repr(world.agent)]
    said += [repr(world.service.events), *(record["label"] for record in _counters(world))]
    assert world.errors, "nothing was reported"
    for text in said:
        assert SECRET.decode() not in text
    for path, content in world.disk.contents().items():
        assert content is None or SECRET not in content, path


class _Curious:
    """Allows nothing, and would show what it is given."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        assert SECRET not in encoded_principal
        return False


def _counters(world: MemberWorld) -> list[Any]:
    counters = seam.counters(world.client)
    return [seam.counter_record(counters, each) for each in range(seam.counter_capacity(counters))]


# What others can do


def test_a_client_that_floods_holds_up_nobody() -> None:
    world = MemberWorld(window=WINDOW)
    good, bad = connected(world), connected(world, 30_002, is_ipc=False)
    sent = 0

    def flood() -> None:
        nonlocal sent
        while seam.offer(bad.ingress, session_message(bad.session_id, b"x" * 100)) > 0:
            sent += 1
        bad.received()

    for number in range(30):
        assert_is_answered(good, b"%d" % number, flood)
    assert sent > 1000
    assert texts(world) == []
    world.until(lambda: [event[0] for event in world.service.events].count("message") == sent + 30)


def _too_long(world: MemberWorld, bad: WorldClient) -> Callable[[], int]:
    publication, message = long_ingress(bad), session_message(bad.session_id, bytes(TOO_LONG))
    return lambda: seam.offer(publication, message)


def _bad_channels(world: MemberWorld, bad: WorldClient) -> Callable[[], int]:
    request = bad.connect_request(response_channel=b"aeron:udp?endpoint")
    return lambda: seam.offer(bad.ingress, request)


def _admin_requests(world: MemberWorld, bad: WorldClient) -> Callable[[], int]:
    fields = {"leadership_term_id": 0, "cluster_session_id": bad.session_id, "correlation_id": 1, "request_type": 0}
    request = codecs.encode("cluster", "AdminRequest", payload=b"", **fields)
    return lambda: seam.offer(bad.ingress, request)


def _standby_s_bad_channels(world: MemberWorld, bad: WorldClient) -> Callable[[], int]:
    fields: dict[str, Any] = {"correlation_id": 1, "response_stream_id": 1, "encoded_credentials": b""}
    request = codecs.encode("cluster", "HeartbeatRequest", response_channel="aeron:udp?endpoint", **fields)
    publication = seam.add_publication(bad.client, "aeron:udp?endpoint=localhost:9020", CONSENSUS_STREAM_ID)
    return lambda: seam.offer(publication, request)


class Failing:
    """Raises whatever it is asked."""

    def is_authorised(self, protocol_id: int, action_id: int, action_type: object, encoded_principal: bytes) -> bool:
        raise RuntimeError("as asked")


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (_too_long, "message of 9000 bytes from clusterSessionId=2: the log takes 8160 at most"),
        (_bad_channels, "channel"),
        (_admin_requests, "as asked"),
        (_standby_s_bad_channels, "channel"),
    ],
)
def test_messages_that_fail_hold_up_nobody(
    messages: Callable[[MemberWorld, WorldClient], Callable[[], int]], text: str
) -> None:
    """What one raises neither ends the turn of the others nor keeps the log from being committed."""
    world = MemberWorld(authorisation_service=Failing(), egress_channel="aeron:udp?term-length=64k")
    good, bad = connected(world), connected(world, 30_002, is_ipc=False)
    send = messages(world, bad)
    for _ in range(FLOOD):
        world.until(lambda: send() > 0)
    assert_is_answered(good, b"hello", send)
    world.until(lambda: len(world.errors) >= FLOOD)
    assert text in texts(world)[0]


def test_a_client_that_never_reads_holds_up_nobody_and_loses_only_what_does_not_fit() -> None:
    world = MemberWorld(window=WINDOW)
    good, bad = connected(world), connected(world, 30_002, is_ipc=False)
    for number in range(60):
        bad.message(b"%d" % number + bytes(1000))
        assert_is_answered(good, b"%d" % number)
    kept = [fields["payload"] for _name, fields in bad.received()]
    assert 10 < len(kept) < 40
    assert [int(payload[:-1000]) for payload in kept] == list(range(len(kept)))
    assert_is_answered(bad, b"it reads again")
    assert ("close", bad.session_id, CloseReason.TIMEOUT) not in world.service.events
    assert texts(world) == []


def test_clients_that_listen_on_the_same_stream_of_shared_memory_wait_for_the_slowest() -> None:
    """Upstream's rule: over IPC a stream id is one stream. With ids of their own they do not: see the test before."""
    world = MemberWorld(window=WINDOW)
    good, bad = connected(world), connected(world)
    for _ in range(60):
        bad.message(bytes(1000))
        world.work(3)
    good.message(b"hello")
    world.work(TURNS)
    assert b"hello" not in [fields["payload"] for name, fields in good.received() if name == "SessionMessageHeader"]
    bad.received()
    world.work(TURNS)
    assert_is_answered(good, b"again")


def test_a_client_that_is_silent_times_out_and_one_that_keeps_alive_does_not() -> None:
    world = MemberWorld()
    good, silent = connected(world), connected(world, 30_002, is_ipc=False)
    keep_alive = codecs.encode("cluster", "SessionKeepAlive", leadership_term_id=0, cluster_session_id=good.session_id)
    for _ in range(10):
        world.wait(990)
        good.send(keep_alive)
    assert [name for name, _fields in silent.received()] == []
    world.wait(200)
    [(name, fields)] = silent.received()
    assert (name, fields["code"], fields["detail"]) == ("SessionEvent", CLOSED, b"TIMEOUT")
    assert_is_answered(good, b"still there")
    closed = [event for event in world.service.events if event[0] == "close"]
    assert closed == [("close", silent.session_id, CloseReason.TIMEOUT)]


def test_a_client_whose_process_is_gone_is_closed_at_once() -> None:
    world = MemberWorld()
    good, gone = connected(world), connected(world, 30_002, is_ipc=False)
    before = len(world.client.open_resources)
    gone.close()
    world.wait(100)
    assert ("close", gone.session_id, CloseReason.TIMEOUT) in world.service.events
    assert len(world.client.open_resources) == before - 2, "its egress and its counter"
    assert_is_answered(good, b"still there")


def test_an_ingress_that_cannot_be_had_is_asked_for_again() -> None:
    world = MemberWorld()
    world.close()
    world.errors.clear()
    subscribe = channels.ingress_subscription_channels

    def subscribe_in_vain(*arguments: Any, **keywords: Any) -> list[str]:
        world.driver.fail_next_add("subscription", text="the port is in use")
        return subscribe(*arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "ingress_subscription_channels", subscribe_in_vain)
        world.open()
    world.wait(100)
    client = WorldClient(world, 30_001, is_ipc=False)
    world.wait(400)
    assert not seam.is_connected(client.ingress)
    assert_is_answered(connected(world, 30_002), b"in shared memory")
    world.wait(1000)
    client.connect()
    assert_is_answered(client, b"over the network")
    assert texts(world) == ["the port is in use"]


def test_what_clients_say_for_each_other_and_out_of_turn_is_passed_over() -> None:
    """Upstream's rule: whoever knows a session's id may use it, and nothing else is needed."""
    world = MemberWorld()
    good, bad = connected(world), connected(world, 30_002, is_ipc=False)
    for term_id, session_id in ((1, good.session_id), (-1, good.session_id), (0, 99), (0, -1), (0, 0)):
        bad.send(session_message(session_id, b"forged", term_id))
    bad.send(session_message(good.session_id, b"known"))
    world.work(10)
    assert [event for event in world.service.events if event[0] == "message"] == [
        ("message", good.session_id, b"known")
    ]
    assert [fields["payload"] for _name, fields in good.received()] == [b"known"]
    assert texts(world) == []


# What services and tools can do


def tool(world: MemberWorld, channel: str = CONTROL_CHANNEL) -> Callable[..., None]:
    """Sends messages on the control stream, by name and fields."""
    client = world.driver.connect("tool")
    publication = seam.add_publication(client, channel, CONSENSUS_MODULE_STREAM_ID, exclusive=True)

    def send(name: str, payload: bytes = b"", **fields: Any) -> None:
        message = codecs.encode("cluster", name, **fields) + payload
        world.until(lambda: seam.offer(publication, message) > 0)

    return send


def take_snapshot(world: MemberWorld) -> None:
    """Have a snapshot taken."""
    count = world.agent.snapshot_count
    assert world.agent.request_snapshot()
    world.until(lambda: world.agent.snapshot_count == count + 1)


def test_acks_that_nobody_waits_for_keep_no_snapshot_from_being_taken() -> None:
    world = MemberWorld()
    good, send = connected(world), tool(world)
    chance = random.Random(1)
    for number in range(3):
        for _ in range(30):
            ack = {"ack_id": chance.randrange(1, 9), "log_position": 32 * chance.randrange(99), "timestamp": 0}
            send("ServiceAck", service_id=0, relevant_id=chance.choice([-1, 5]), **ack)
        world.work(40)
        assert_is_answered(good, b"%d" % number)
        take_snapshot(world)
        found = texts(world)
        assert len(found) == 30, found
        assert all(text.startswith(f"ack out of sequence: expected [ackId={number + 2}, ") for text in found), found
        world.errors.clear()
    assert world.context.recording_log.entries[-1].log_position <= world.commit_position
    world.restart()
    assert [event[0] for event in world.service.events] == [], "all is in the last snapshot"


def test_an_ack_for_another_position_does_not_take_the_snapshot() -> None:
    world = MemberWorld()
    connected(world)
    send = tool(world)
    assert world.agent.request_snapshot()
    send("ServiceAck", ack_id=2, log_position=32, timestamp=0, relevant_id=5, service_id=0)
    world.until(lambda: world.agent.snapshot_count == 1)
    [text] = texts(world)
    assert "[ackId=2, logPosition=32, relevantId=5, serviceId=0]" in text
    [service, module] = [each for each in world.context.recording_log.entries if each.is_snapshot]
    assert service.log_position == module.log_position > 32
    assert service.recording_id != 5


def test_a_service_message_that_the_log_does_not_take_is_dropped_and_the_next_ones_come() -> None:
    world = MemberWorld()
    good, send = connected(world), tool(world, "aeron:ipc?term-length=1m")
    for payload in (b"first", bytes(TOO_LONG), b"second"):
        send("SessionMessageHeader", payload, leadership_term_id=0, cluster_session_id=0, timestamp=0)
    assert_is_answered(good, b"hello")
    world.work(10)
    messages = [event[2] for event in world.service.events if event[:2] == ("message", None)]
    assert messages == [b"first", b"second"]
    [text] = texts(world)
    assert text.startswith(f"message of {TOO_LONG} bytes from serviceId=0: the log takes 8160 at most; it is not in ")
    before = list(world.service.events)
    world.restart()
    world.until(lambda: len(world.service.events) > len(before))
    assert world.service.events == [*before, ("close", good.session_id, CloseReason.TIMEOUT)]


def test_a_turn_reads_something_of_each_client_however_many_there_are() -> None:
    """Of more clients than the limit has frames: each has one, and none waits for other turns."""
    world = MemberWorld(ingress_fragment_limit=2, max_concurrent_sessions=40)
    clients = [connected(world, 30_001 + index) for index in range(40)]
    for client in clients:
        message = session_message(client.session_id, b"x", client.leadership_term_id)
        assert seam.offer(client.ingress, message) > 0
    world.work(3)
    answered = {event[1] for event in world.service.events if event[0] == "message"}
    assert answered == {client.session_id for client in clients}
    world.close()
