"""Control sessions: statements 1 to 13 of the conformance checklist, and what they leave open."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.archive.authentication import Authenticator, DenyAll, SessionProxy
from container.archive.client.aeron_archive import AeronArchive
from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.error_codes import AUTHENTICATION_REJECTED, GENERIC, UNAUTHORISED_ACTION, UNKNOWN_RECORDING
from container.archive.server.sessions.control_handler import ControlRequest
from container.archive.server.sessions.control_session import STATES, ControlSession
from container.codecs import messages as codecs
from container.errors import AgentTermination, ArchiveError, ArchiveEvent, RegistrationError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from container.transport.streams import Image
from tests.control_world import (
    CONNECT_TIMEOUT_MS,
    ERROR,
    FIRST_SESSION_ID,
    OK,
    RECORDING_UNKNOWN,
    SUBSCRIPTION_UNKNOWN,
    VERSION,
    ControlWorld,
    RawClient,
)
from tests.test_control_adapter import CALLS, GOLDEN, damaged

RESPONSE = "aeron:ipc?mtu=1408|term-length=64k|session-id=5000|sparse=true"
TEMPORARILY_UNAVAILABLE, OTHER = 10, 11
SMALL_WINDOW = 2048


@pytest.fixture
def world() -> ControlWorld:
    return ControlWorld()


class Scripted(Authenticator):
    """Does with each session what a test says, and notes when it is asked."""

    def __init__(self, on_connected: Callable[[SessionProxy], object] = lambda session: None) -> None:
        self.on_connected = on_connected
        self.on_challenged: Callable[[SessionProxy], object] = lambda session: None
        self.calls: list[tuple[Any, ...]] = []
        self.kept: list[SessionProxy] = []

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.calls.append(("connect", session_id, encoded_credentials, now_ms))

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        self.calls.append(("connected", session.session_id, now_ms))
        self.kept.append(session)
        self.on_connected(session)

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.calls.append(("response", session_id, encoded_credentials, now_ms))

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        self.calls.append(("challenged", session.session_id, now_ms))
        self.on_challenged(session)

    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


def only(world: ControlWorld) -> ControlSession:
    """The only session."""
    [session] = world.sessions.values()
    return session


def arrivals(world: ControlWorld, client: RawClient, duration_ms: int) -> list[tuple[int, str, dict[str, Any]]]:
    """What comes within some time: after how many milliseconds, and what."""
    arrived = []
    for elapsed in range(10, duration_ms + 10, 10):
        world.wait(10)
        arrived += [(elapsed, name, fields) for name, fields in client.received()]
    return arrived


def fill(world: ControlWorld, client: RawClient) -> None:
    """Send requests until there is no room for the replies, and one more."""
    publication = publication_to(world, client)
    while seam.available_window(publication) > 0:
        client.send("ArchiveIdRequest")
        world.work()
    client.send("ArchiveIdRequest")
    world.work()


def publication_to(world: ControlWorld, client: RawClient) -> Any:
    """The archive's publication to a client."""
    session_id = client.response_channel.partition("session-id=")[2].partition("|")[0]
    [found] = [
        each
        for each in world.client.open_resources
        if getattr(each, "session_id", None) == int(session_id) and hasattr(each, "log")
    ]
    return found


# 1: connect


@pytest.mark.parametrize("channel", ["aeron:ipc?term-length=64k", "aeron:udp?endpoint=localhost:8010"])
def test_conformance_1_our_client_connects_and_becomes_active(channel: str) -> None:
    world = ControlWorld()
    control = "aeron:ipc?term-length=64k"
    context = ArchiveClientContext(
        control_channel=control, response_channel=channel, control_stream_id=10, client_name="test"
    )
    client = world.driver.connect("client")
    idle = SteppingIdleStrategy(world.work)
    archive = AeronArchive.connect(context, client=client, idle_strategy=idle)
    assert archive.control_session_id == FIRST_SESSION_ID
    assert archive.archive_id == 42
    world.work()
    assert only(world).state == "ACTIVE"
    assert [name for name, _ in world.calls] == ["on_connect", "on_archive_id", "on_keep_alive"]
    [(value, label)] = world.counters()
    assert value == FIRST_SESSION_ID
    assert label.startswith("control-session: name=test ")
    assert label.endswith(" - archiveId=42")
    world.answers["on_get_stop_position"] = lambda session, request, recording_id: session.send_ok(
        request.correlation_id, 4096
    )
    assert archive.get_stop_position(3) == 4096
    text = "unknown recording id: 4" + "!" * 20_000
    world.answers["on_get_stop_position"] = lambda session, request, recording_id: session.send_error(
        request.correlation_id, text, UNKNOWN_RECORDING
    )
    with pytest.raises(ArchiveError, match="unknown recording id: 4!!!!") as raised:
        archive.get_stop_position(4)
    assert raised.value.code == UNKNOWN_RECORDING
    archive.close()
    world.work(2)
    assert world.sessions == {}
    assert world.errors == []
    assert world.counters() == []


def test_conformance_1_the_answer_to_a_connect(world: ControlWorld) -> None:
    client = world.connect()
    correlation_id = client.request_session()
    world.work(4)
    assert client.received() == [
        (
            "ControlResponse",
            {
                "control_session_id": FIRST_SESSION_ID,
                "correlation_id": correlation_id,
                "relevant_id": FIRST_SESSION_ID,
                "code": OK,
                "version": 68_608,
                "error_message": b"",
            },
        )
    ]
    assert only(world).state == "AUTHENTICATED"
    client.control_session_id = FIRST_SESSION_ID
    correlation_id = client.send("ArchiveIdRequest")
    world.work()
    [(_, response)] = client.received()
    assert (response["correlation_id"], response["relevant_id"]) == (correlation_id, 42)
    assert only(world).state == "ACTIVE"


def test_the_states_of_a_connect(world: ControlWorld) -> None:
    client = world.connect()
    world.driver.delay_next_add("exclusive_publication", 3)
    world.driver.delay_next_add("counter", 5)
    client.request_session()
    states = []
    for _ in range(9):
        world.work()
        states.append(only(world).state)
    assert states == ["INIT"] * 5 + ["CONNECTING", "CONNECTED", "AUTHENTICATED", "AUTHENTICATED"]
    assert set(states) <= set(STATES)


def test_the_counter_names_the_client_and_refers_to_its_publication(world: ControlWorld) -> None:
    client = world.connect()
    client.open(client_info="name=cm\t1")
    record = next(
        (counter_id, each)
        for counter_id, each in ((id_, seam.counter_record(world.driver.counters, id_)) for id_ in range(50))
        if each["type_id"] == 113
    )
    counter_id, counter = record
    assert counter["value"] == FIRST_SESSION_ID
    assert counter["label"] == (
        f"control-session: name=cm?1 sourceIdentity=aeron:ipc sessionId={client.publication.session_id} - archiveId=42"
    )
    assert counter["key"] is not None
    assert counter["key"][:16] == (42).to_bytes(8, "little") + FIRST_SESSION_ID.to_bytes(8, "little")
    registration_id = publication_to(world, client).registration_id
    assert seam.reference_id(world.driver.counters, counter_id) == registration_id


@pytest.mark.parametrize(("length", "shown"), [(0, 0), (1, 1), (5000, 380)])
def test_a_label_has_at_most_380_characters_and_the_archives_id(world: ControlWorld, length: int, shown: int) -> None:
    world.connect().open(client_info="c" * length)
    [(_, label)] = world.counters()
    assert len(label) <= 380
    assert label.endswith("sourceIdentity=aeron:ipc sessionId=-1000 - archiveId=42")
    assert label.startswith("control-session: c" if length else "control-session: sourceIdentity")
    assert (len(label) == 380) == (shown == 380)


def test_a_connect_that_the_conductor_refuses_leaves_nothing(world: ControlWorld) -> None:
    client = world.connect()
    client.request_session(response_channel="no channel")
    world.work(3)
    assert world.sessions == {}
    assert len(world.errors) == 1
    assert len(world.client.open_resources) == 1
    client.open()


# 2: the answer is repeated


def test_conformance_2_the_answer_repeats_every_200_ms_until_the_first_request(world: ControlWorld) -> None:
    client = world.connect()
    correlation_id = client.request_session()
    world.work(4)
    client.received()
    arrived = arrivals(world, client, 1000)
    assert [elapsed for elapsed, _, _ in arrived] == [210, 420, 630, 840]
    assert {(fields["correlation_id"], fields["relevant_id"], fields["code"]) for _, _, fields in arrived} == {
        (correlation_id, FIRST_SESSION_ID, OK)
    }
    client.control_session_id = FIRST_SESSION_ID
    client.send("KeepAliveRequest")
    assert {name for _, name, _ in arrivals(world, client, 900)} == {"Ping"}


def test_a_client_that_is_authenticated_has_time_for_its_first_request(world: ControlWorld) -> None:
    client = world.connect()
    client.request_session()
    world.work(4)
    for _ in range(60):
        world.wait(1000)
        client.received()
    assert only(world).state == "AUTHENTICATED"


# 3: versions


def test_conformance_3_a_wrong_major_version_gets_an_error_every_200_ms_and_is_gone_after_5_s(
    world: ControlWorld,
) -> None:
    client = world.connect()
    correlation_id = client.request_session(version=2 << 16)
    arrived = arrivals(world, client, 4990)
    assert len(arrived) == 24
    assert {later - former for (former, _, _), (later, _, _) in itertools.pairwise(arrived)} == {210}
    for _, name, fields in arrived:
        assert (name, fields["code"], fields["correlation_id"]) == ("ControlResponse", ERROR, correlation_id)
        assert fields["relevant_id"] == fields["control_session_id"] == FIRST_SESSION_ID
        assert fields["error_message"] == b"invalid client version 2.0.0, archive is 1.12.0"
    client.control_session_id = FIRST_SESSION_ID
    client.send("ArchiveIdRequest")
    world.work()
    assert client.received() == []
    assert only(world).state == "CONNECTED"
    assert not client.is_rejected()
    world.wait(100)
    assert world.sessions == {}
    assert client.is_rejected()
    [text] = world.texts()
    assert text == (
        f"controlSessionId={FIRST_SESSION_ID} (controlResponseStreamId=20 controlResponseChannel={RESPONSE}) "
        "terminated: failed to establish initial connection: state=CONNECTED"
    )


@pytest.mark.parametrize("version", [1 << 16, 1 << 16 | 1 << 8, 1 << 16 | 12 << 8, 1 << 16 | 255 << 8 | 255])
def test_conformance_3_versions_of_the_same_major_are_accepted(world: ControlWorld, version: int) -> None:
    world.connect().open(version=version)


@pytest.mark.parametrize(("version", "text"), [(0, "0.0.0"), (None, "0.0.0"), (-1, "255.255.255"), (12, "0.0.12")])
def test_conformance_3_other_versions_are_not(world: ControlWorld, version: int | None, text: str) -> None:
    client = world.connect()
    client.request_session(version=version)
    world.work(4)
    assert client.errors() == [
        (1000, FIRST_SESSION_ID, f"invalid client version {text}, archive is 1.12.0"),
    ]


# 4: the older connect


def test_conformance_4_the_older_connect_request_is_as_the_newer_one(world: ControlWorld) -> None:
    client = world.connect()
    assert client.open(name="ConnectRequest").state == "ACTIVE"
    [(_, label)] = world.counters()
    assert label == "control-session: sourceIdentity=aeron:ipc sessionId=-1000 - archiveId=42"


# 5: response channels


def test_conformance_5_the_response_channel_is_the_clients_with_the_archives_values(world: ControlWorld) -> None:
    client = world.connect(response_query="|alias=me|term-length=128k|mtu=4k|sparse=false")
    session = client.open()
    expected = "aeron:ipc?mtu=4k|term-length=128k|session-id=5000|alias=me|sparse=false"
    assert session.response_channel == publication_to(world, client).channel == expected
    assert session.response_stream_id == 20


def test_conformance_5_a_response_channel_of_control_mode_response_refers_to_the_request_image(
    world: ControlWorld,
) -> None:
    client = world.connect()
    client.request_session(response_channel="aeron:udp?control-mode=response|control=localhost:8010")
    world.work()
    session = only(world)
    assert f"|response-correlation-id={session.image.correlation_id}" in session.response_channel


# 6: authentication


def test_conformance_6_a_challenge_its_response_and_the_answer_with_its_correlation_id() -> None:
    authenticator = Scripted(lambda session: session.challenge(b"word?"))
    world = ControlWorld(authenticator=authenticator)
    client = world.connect()
    now_ms = world.clock.now_ms
    correlation_id = client.request_session(encoded_credentials=b"user")
    world.work(4)
    assert authenticator.calls[0] == ("connect", FIRST_SESSION_ID, b"user", now_ms)
    [(name, challenge)] = client.received()
    assert (name, challenge["control_session_id"], challenge["correlation_id"]) == (
        "Challenge",
        FIRST_SESSION_ID,
        correlation_id,
    )
    assert (challenge["encoded_challenge"], challenge["version"]) == (b"word?", None)
    session = only(world)
    assert session.state == "CHALLENGED"
    authenticator.calls.clear()
    world.work(3)
    assert authenticator.names() == ["challenged"] * 3, "asked every cycle"
    authenticator.on_challenged = lambda session: (
        session.authenticate(b"someone") if "response" in authenticator.names() else None
    )
    client.control_session_id = FIRST_SESSION_ID
    correlation_id = client.send("ChallengeResponse", encoded_credentials=b"sesame")
    world.work()
    assert ("response", FIRST_SESSION_ID, b"sesame", world.clock.now_ms) in authenticator.calls
    [(name, response)] = client.received()
    assert (response["correlation_id"], response["relevant_id"], response["code"]) == (
        correlation_id,
        FIRST_SESSION_ID,
        OK,
    )
    assert (session.state, session.encoded_principal, session.correlation_id) == (
        "AUTHENTICATED",
        b"someone",
        correlation_id,
    )
    arrived = arrivals(world, client, 400)
    assert [(elapsed, fields["correlation_id"]) for elapsed, _, fields in arrived] == [(210, correlation_id)]


def test_conformance_6_our_client_answers_a_challenge() -> None:
    authenticator = Scripted(lambda session: session.challenge(b"word?"))
    authenticator.on_challenged = lambda session: (
        session.authenticate(b"me") if "response" in authenticator.names() else None
    )
    world = ControlWorld(authenticator=authenticator)

    class Supplier:
        def encoded_credentials(self) -> bytes:
            return b"user"

        def on_challenge(self, encoded_challenge: bytes, /) -> bytes:
            return encoded_challenge + b"!"

    context = ArchiveClientContext(credentials_supplier=Supplier(), client_name="test")
    archive = AeronArchive.connect(
        context, client=world.driver.connect("client"), idle_strategy=SteppingIdleStrategy(world.work)
    )
    assert archive.archive_id == 42
    assert [call[2] for call in authenticator.calls if call[0] in ("connect", "response")] == [b"user", b"word?!"]


@pytest.mark.parametrize("is_challenged", [False, True])
def test_conformance_6_a_rejected_client_gets_error_10_until_it_is_closed(is_challenged: bool) -> None:
    authenticator = Scripted(lambda session: session.challenge(b"?") if is_challenged else session.reject())
    authenticator.on_challenged = lambda session: session.reject()
    world = ControlWorld(authenticator=authenticator)
    client = world.connect()
    correlation_id = client.request_session()
    arrived = [each for each in arrivals(world, client, 5200) if each[1] == "ControlResponse"]
    assert 22 <= len(arrived) <= 25
    assert {later - former for (former, _, _), (later, _, _) in itertools.pairwise(arrived)} == {210}
    for _, _, fields in arrived:
        assert (fields["code"], fields["relevant_id"]) == (ERROR, AUTHENTICATION_REJECTED)
        assert (fields["correlation_id"], fields["error_message"]) == (correlation_id, b"authentication rejected")
    assert world.sessions == {}
    assert client.is_rejected()
    assert world.texts()[0].endswith("terminated: failed to establish initial connection: state=REJECTED")


def test_an_authenticator_that_does_not_decide_is_asked_every_200_ms_and_the_client_given_up() -> None:
    authenticator = Scripted()
    world = ControlWorld(authenticator=authenticator)
    client = world.connect()
    client.request_session()
    world.wait(5200)
    assert authenticator.names() == ["connect"] + ["connected"] * 24
    assert world.ended[0].abort_reason == "failed to establish initial connection: state=CONNECTED"


def test_a_decision_that_could_not_be_sent_is_no_decision() -> None:
    results: list[bool] = []
    authenticator = Scripted(lambda session: results.append(session.authenticate(b"me")))
    world = ControlWorld(authenticator=authenticator)
    client = world.connect()
    client.request_session()
    world.driver.publication_results(RESPONSE, 20, [BACK_PRESSURED] * 3)
    world.work(4)
    assert (results, only(world).state, only(world).encoded_principal) == ([False], "CONNECTED", None)
    world.wait(210)
    assert (results, only(world).state) == ([False, True], "AUTHENTICATED")


def test_a_challenge_that_could_not_be_sent_is_no_challenge() -> None:
    authenticator = Scripted(lambda session: session.challenge(b"?"))
    world = ControlWorld(authenticator=authenticator)
    world.connect().request_session()
    world.driver.publication_results(RESPONSE, 20, [ADMIN_ACTION] * 3)
    world.work(4)
    assert only(world).state == "CONNECTED"
    world.wait(210)
    assert only(world).state == "CHALLENGED"


def test_the_answer_to_a_late_response_is_repeated_200_ms_later() -> None:
    authenticator = Scripted(lambda session: session.challenge(b"?"))
    world = ControlWorld(authenticator=authenticator)
    client = world.connect()
    client.request_session()
    world.wait(1000)
    authenticator.on_challenged = lambda session: session.authenticate(b"")
    client.received()
    arrived = arrivals(world, client, 500)
    assert [elapsed for elapsed, _, _ in arrived] == [10, 220, 430]


def test_a_client_hears_of_its_rejection_in_the_next_cycle() -> None:
    world = ControlWorld(authenticator=Scripted(lambda session: session.reject()))
    client = world.connect()
    client.request_session()
    world.work(4)
    assert client.errors() == [(1000, AUTHENTICATION_REJECTED, "authentication rejected")]


def test_the_first_decision_counts() -> None:
    results: list[object] = []

    def decide(session: SessionProxy) -> None:
        results.append(session.authenticate(b"me"))
        session.reject()
        results.append(session.authenticate(b"somebody else"))
        results.append(session.challenge(b"?"))

    world = ControlWorld(authenticator=Scripted(decide))
    client = world.connect()
    client.request_session()
    world.work(4)
    assert results == [True, False, False]
    assert (only(world).state, only(world).encoded_principal) == ("AUTHENTICATED", b"me")
    assert len(client.received()) == 1


def test_a_decision_after_the_call_is_an_error() -> None:
    authenticator = Scripted()
    world = ControlWorld(authenticator=authenticator)
    world.connect().request_session()
    world.work(4)
    [kept] = authenticator.kept
    for decide in (
        lambda: kept.session_id,
        lambda: kept.authenticate(b""),
        lambda: kept.challenge(b""),
        lambda: kept.reject(),
    ):
        with pytest.raises(ArchiveError, match="which is over"):
            decide()
    assert only(world).state == "CONNECTED"


@pytest.mark.parametrize("principal", [None, "text", 5, bytearray(b"x")])
def test_a_principal_and_a_challenge_are_bytes(principal: Any) -> None:
    for decide in (
        lambda session: session.authenticate(principal),
        lambda session: session.challenge(principal),
    ):
        world = ControlWorld(authenticator=Scripted(decide))
        world.connect().request_session()
        world.work(5)
        assert world.sessions == {}
        assert [type(error) for error in world.errors] == [TypeError, ArchiveEvent]


def test_an_authenticator_that_fails_ends_its_session_and_no_other() -> None:
    authenticator = Scripted(lambda session: session.authenticate(b""))
    world = ControlWorld(authenticator=authenticator)
    other = world.connect()
    other.open()

    def fail(session: SessionProxy) -> None:
        raise ValueError("no such user: " + "x" * 10_000)

    authenticator.on_connected = fail
    client = world.connect()
    client.request_session()
    world.work(5)
    assert list(world.sessions) == [FIRST_SESSION_ID]
    assert len(world.ended[0].abort_reason or "") < 600
    failure, event = world.errors
    assert str(failure).startswith("no such user: ")
    assert "terminated: failed with exception: no such user: xxx" in str(event)
    assert client.is_rejected()
    assert other.send("ArchiveIdRequest")
    world.work()
    assert len(other.received()) == 1


@pytest.mark.parametrize("method", ["on_challenge_response", "on_challenged_session"])
def test_an_authenticator_that_fails_about_a_challenge_ends_the_session(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("broken")

    authenticator = Scripted(lambda session: session.challenge(b"?"))
    world = ControlWorld(authenticator=authenticator)
    client = world.connect()
    client.request_session()
    world.work(4)
    monkeypatch.setattr(authenticator, method, fail)
    client.control_session_id = FIRST_SESSION_ID
    client.send("ChallengeResponse", encoded_credentials=b"x")
    world.work()
    assert world.ended[0].abort_reason == "failed with exception: broken"


def test_an_authenticator_that_fails_at_the_connect_request_makes_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator = Scripted()
    world = ControlWorld(authenticator=authenticator)

    def fail(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(authenticator, "on_connect_request", fail)
    world.connect().request_session()
    world.work()
    assert world.sessions == {}
    assert world.texts() == ["broken"]
    assert len(world.client.open_resources) == 1


def test_the_end_of_the_agent_passes_through() -> None:
    def end(session: SessionProxy) -> None:
        raise AgentTermination("interrupted")

    world = ControlWorld(authenticator=Scripted(end))
    world.connect().request_session()
    with pytest.raises(AgentTermination):
        world.work(4)
    assert only(world).state == "CONNECTED"


def test_an_answer_to_a_challenge_that_there_was_not_is_ignored(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    correlation_id = session.correlation_id
    client.send("ChallengeResponse", encoded_credentials=b"x")
    world.work()
    assert (session.state, session.correlation_id) == ("ACTIVE", correlation_id)


# 7: requests that are not served


def test_conformance_7_an_unknown_session_gets_no_reply_and_others_are_served(world: ControlWorld) -> None:
    client = world.connect()
    client.open()
    client.send("ArchiveIdRequest", control_session_id=99)
    correlation_id = client.send("ArchiveIdRequest")
    world.work(2)
    assert [fields["correlation_id"] for _, fields in client.received()] == [correlation_id]
    assert world.texts() == ["control request for unknown session: 99"]


@pytest.mark.parametrize("name", ["ArchiveIdRequest", "ChallengeResponse"])
def test_a_session_is_served_on_its_own_image_only(name: str) -> None:
    authenticator = Scripted(lambda session: session.authenticate(b""))
    world = ControlWorld(authenticator=authenticator)
    owner, thief = world.connect(), world.connect(response_stream_id=21)
    session = owner.open()
    if name == "ChallengeResponse":
        authenticator.on_connected = lambda session: session.challenge(b"?")
        world.connect(shares=owner, response_stream_id=22).request_session()
        world.work(4)
        session = world.sessions[FIRST_SESSION_ID + 1]
        assert session.state == "CHALLENGED"
    owner.received()
    correlation_id = session.correlation_id
    fields = {"encoded_credentials": b"x"} if name == "ChallengeResponse" else {}
    thief.send(name, control_session_id=session.session_id, **fields)
    world.work()
    assert owner.received() == thief.received() == []
    assert session.correlation_id == correlation_id
    template_id = 60 if fields else 68
    [text] = world.texts()
    assert text.startswith(f"unauthorised archive action={template_id} controlSessionId={session.session_id}: it came")


@pytest.mark.parametrize("template_id", [4, 6, 10, 61, 66, 68, 104, 105, 107])
@pytest.mark.parametrize("state", ["CONNECTED", "CHALLENGED", "REJECTED", "AUTHENTICATED", "ACTIVE", "DONE"])
def test_requests_before_and_after_the_session_is_active(state: str, template_id: int) -> None:
    decisions: dict[str, Callable[[SessionProxy], object]] = {
        "CONNECTED": lambda session: None,
        "CHALLENGED": lambda session: session.challenge(b"?"),
        "REJECTED": lambda session: session.reject(),
    }
    world = ControlWorld(authenticator=Scripted(decisions.get(state, lambda session: session.authenticate(b""))))
    world.connect().request_session()
    world.work(4)
    session = only(world)
    if state == "ACTIVE":
        assert session.activate()
    elif state == "DONE":
        session.abort("over")
    assert session.state == state
    request = ControlRequest(template_id, session.session_id, 5, session.image.correlation_id)
    accepted = state in ("AUTHENTICATED", "ACTIVE")
    assert session.accept_request(request) is accepted
    assert session.state == ("ACTIVE" if accepted and template_id not in (105, 107) else state)
    assert world.errors == []


# 8: authorisation


def test_conformance_8_an_unauthorised_request_gets_error_13_and_the_session_lives() -> None:
    asked: list[tuple[object, ...]] = []

    class NoTruncation:
        def is_authorised(self, *arguments: object) -> bool:
            asked.append(arguments)
            return arguments[1] != 13

    world = ControlWorld(authorisation_service=NoTruncation())
    client = world.connect()
    session = client.open()
    correlation_id = client.send("TruncateRecordingRequest", recording_id=1, position=0)
    world.work()
    assert client.errors() == [(correlation_id, UNAUTHORISED_ACTION, "unauthorised action")]
    assert asked == [(101, 61, None, b""), (101, 13, None, b"")]
    assert world.texts() == [
        f"unauthorised archive action=13 controlSessionId={FIRST_SESSION_ID} source=aeron:ipc",
    ]
    correlation_id = client.send("ArchiveIdRequest")
    world.work()
    assert [fields["correlation_id"] for _, fields in client.received()] == [correlation_id]
    assert session.state == "ACTIVE"


def test_conformance_8_nothing_is_allowed_and_clients_can_connect() -> None:
    world = ControlWorld(authorisation_service=DenyAll())
    client = world.connect()
    client.request_session()
    world.work(4)
    assert len(client.received()) == 1
    client.control_session_id = FIRST_SESSION_ID
    client.send("KeepAliveRequest", correlation_id=-1)
    world.work()
    assert client.errors() == [(-1, UNAUTHORISED_ACTION, "unauthorised action")]
    assert only(world).state == "AUTHENTICATED"


def test_a_client_that_may_do_nothing_and_reads_again_is_not_given_up() -> None:
    world = ControlWorld(authorisation_service=DenyAll())
    client = world.connect()
    client.request_session()
    world.work(4)
    client.control_session_id = FIRST_SESSION_ID
    world.driver.publication_results(RESPONSE, 20, [BACK_PRESSURED] * 3)
    client.send("ArchiveIdRequest")
    for _ in range(10):
        world.wait(1000)
        assert client.received()
    assert only(world).state == "AUTHENTICATED"
    world.driver.publication_results(RESPONSE, 20, [BACK_PRESSURED] * 1000)
    client.send("ArchiveIdRequest")
    world.wait(5100)
    assert world.sessions == {}, "its replies wait, and the answer to its connect cannot be repeated"
    assert world.ended[0].abort_reason == "failed to establish initial connection: state=AUTHENTICATED"


@pytest.mark.parametrize("answer", [None, 1, "yes", ValueError("broken")])
def test_what_is_not_true_denies(answer: object) -> None:
    class Service:
        def is_authorised(self, *_: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    world = ControlWorld(authorisation_service=Service())
    client = world.connect()
    client.request_session()
    world.work(4)
    client.received()
    client.control_session_id = FIRST_SESSION_ID
    correlation_id = client.send("ArchiveIdRequest")
    world.work()
    assert client.errors() == [(correlation_id, UNAUTHORISED_ACTION, "unauthorised action")]
    assert world.texts()[0].startswith("broken" if isinstance(answer, Exception) else "unauthorised archive action=68")


# 9: pings


def test_conformance_9_a_ping_about_each_second_while_active_and_none_before(world: ControlWorld) -> None:
    client = world.connect()
    client.request_session()
    assert {name for _, name, _ in arrivals(world, client, 3000)} == {"ControlResponse"}
    client.control_session_id = FIRST_SESSION_ID
    client.send("KeepAliveRequest")
    arrived = arrivals(world, client, 5200)
    assert {(name, fields["control_session_id"]) for _, name, fields in arrived} == {("Ping", FIRST_SESSION_ID)}
    assert [elapsed for elapsed, _, _ in arrived] == [10, 1020, 2030, 3040, 4050, 5060]


# 10: clients that do not read


def test_conformance_10_a_client_that_stops_reading_is_closed_after_5_s_and_others_are_not_delayed() -> None:
    world = ControlWorld(window=SMALL_WINDOW)
    stuck, other = world.connect(), world.connect(response_stream_id=21)
    stuck.open()
    other.open()
    fill(world, stuck)
    for _ in range(CONNECT_TIMEOUT_MS // 100):
        correlation_id = other.send("ArchiveIdRequest")
        world.work()
        replies = [fields for name, fields in other.received() if name == "ControlResponse"]
        assert [fields["correlation_id"] for fields in replies] == [correlation_id], "in the same cycle"
        assert len(world.sessions) == 2
        world.wait(100)
    world.wait(100)
    assert [session.session_id for session in world.ended] == [FIRST_SESSION_ID]
    assert world.ended[0].abort_reason == "failed to send response for more than connectTimeoutMs=5000"
    assert stuck.is_rejected()
    assert not other.is_rejected()
    [text] = world.texts()
    assert text.endswith("terminated: failed to send response for more than connectTimeoutMs=5000")
    assert len(world.counters()) == 1


def test_conformance_10_a_session_without_requests_is_closed_for_want_of_a_ping() -> None:
    world = ControlWorld(window=SMALL_WINDOW)
    client = world.connect()
    client.open()
    world.wait(60_000)
    assert world.ended[0].abort_reason == "failed to send response for more than connectTimeoutMs=5000"


def test_the_limit_ends_with_any_success() -> None:
    world = ControlWorld(window=SMALL_WINDOW)
    client = world.connect()
    session = client.open()
    fill(world, client)
    for _ in range(5):
        world.wait(4900)
        client.received(limit=1)
        world.wait(50)
        assert session.state == "ACTIVE"
        fill(world, client)


def test_a_connect_has_5_s_from_the_publication_on(world: ControlWorld) -> None:
    client = world.connect()
    client.responses.close()
    world.driver.delay_next_add("exclusive_publication", 400)
    client.request_session()
    world.wait(4000)
    assert only(world).state == "INIT"
    world.wait(4900)
    assert only(world).state == "CONNECTING"
    world.wait(300)
    assert world.ended[0].abort_reason == "failed to establish initial connection: state=CONNECTING"
    assert client.is_rejected()


def test_a_publication_that_never_comes(world: ControlWorld) -> None:
    client = world.connect()
    world.driver.delay_next_add("exclusive_publication", 1_000_000)
    client.request_session()
    world.wait(5100)
    assert world.ended[0].abort_reason == "failed to establish initial connection: state=INIT"
    assert client.is_rejected()
    assert world.counters() == []
    assert len(world.client.open_resources) == 1


def test_a_counter_that_never_comes(world: ControlWorld) -> None:
    world.driver.delay_next_add("counter", 1_000_000)
    client = world.connect()
    client.request_session()
    world.wait(5100)
    assert world.ended[0].abort_reason == "failed to establish initial connection: state=INIT"
    assert len(world.client.open_resources) == 1


def test_what_waits_for_a_client_is_bounded() -> None:
    world = ControlWorld(window=SMALL_WINDOW)
    client = world.connect()
    session = client.open()
    for _ in range(66_000):
        session.send_ok(1)
    assert session.abort_reason == "failed to send responses: more than 65536 wait"
    world.work()
    assert client.is_rejected()


# 11: clients that are gone


def test_conformance_11_a_client_that_vanishes_is_closed_and_its_counter_gone(world: ControlWorld) -> None:
    client = world.connect()
    client.open()
    assert len(world.counters()) == 1
    client.vanish()
    world.work(3)
    assert world.sessions == {}
    assert world.counters() == []
    assert world.errors == []
    assert len(world.client.open_resources) == 1


def test_conformance_11_without_a_response_subscriber_a_session_ends_quietly(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    client.responses.close()
    world.work()
    assert session.abort_reason == "control response publication is not connected"
    assert world.errors == []
    assert not client.is_rejected()


def test_conformance_11_all_sessions_of_an_image_end_with_it(world: ControlWorld) -> None:
    client = world.connect()
    other = world.connect(shares=client, response_stream_id=21)
    client.open()
    other.open()
    client.publication.close()
    world.work(2)
    assert world.sessions == {}
    assert world.errors == []
    for session in world.ended:
        assert session.abort_reason is not None
        assert session.abort_reason.startswith(
            "control request publication image unavailable: controlSessionId="
            f"{session.session_id} image.correlationId={session.image.correlation_id} sessionId=-1000 "
        )


@pytest.mark.parametrize("state", ["INIT", "CONNECTING", "CONNECTED", "CHALLENGED", "REJECTED", "AUTHENTICATED"])
def test_a_client_that_vanishes_while_it_connects(state: str) -> None:
    decisions: dict[str, Callable[[SessionProxy], object]] = {
        "CHALLENGED": lambda session: session.challenge(b"?"),
        "REJECTED": lambda session: session.reject(),
        "AUTHENTICATED": lambda session: session.authenticate(b""),
    }
    world = ControlWorld(authenticator=Scripted(decisions.get(state, lambda session: None)))
    client = world.connect()
    if state == "INIT":
        world.driver.delay_next_add("counter", 100)
    if state == "CONNECTING":
        client.responses.close()
    client.request_session()
    world.work(4)
    assert only(world).state == state
    client.vanish()
    world.work(3)
    assert world.sessions == {}
    assert world.errors == []
    assert world.counters() == []
    assert len(world.client.open_resources) == 1


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (NOT_CONNECTED, "control response publication is not connected"),
        (CLOSED, "control response publication is closed"),
        (MAX_POSITION_EXCEEDED, "control response publication is at max position"),
    ],
)
def test_a_response_that_can_never_be_sent_ends_the_session(world: ControlWorld, result: int, reason: str) -> None:
    client = world.connect()
    session = client.open()
    world.driver.publication_results(RESPONSE, 20, [result])
    session.send_ok(1)
    assert (session.is_done, session.abort_reason) == (True, reason)
    session.send_ok(2)
    session.send_signal(3, 1, 1, 0, 0)
    assert not session.send_descriptor(5, bytes(80))
    assert not session.send_subscription_descriptor(6, 1, 1, "aeron:ipc")
    world.work()
    assert client.received() == []
    assert client.is_rejected() == (result != NOT_CONNECTED)
    assert len(world.errors) == (result != NOT_CONNECTED)


@pytest.mark.parametrize("result", [NOT_CONNECTED, CLOSED, MAX_POSITION_EXCEEDED])
def test_signals_and_pings_do_not_end_a_session(world: ControlWorld, result: int) -> None:
    client = world.connect()
    session = client.open()
    world.driver.publication_results(RESPONSE, 20, [result, result])
    session.send_signal(1, 2, 3, 4, 5)
    world.wait(10)
    assert session.state == "ACTIVE"
    world.wait(10)
    assert [name for name, _ in client.received()] == ["RecordingSignalEvent"]


def test_the_driver_refuses_the_response_channel(world: ControlWorld) -> None:
    client = world.connect()
    world.driver.fail_next_add("exclusive_publication", OTHER, "no such interface")
    client.request_session()
    world.work(2)
    assert world.ended[0].abort_reason == "failed with exception: no such interface"
    failure, event = world.errors
    assert isinstance(failure, RegistrationError)
    assert isinstance(event, ArchiveEvent)
    assert client.is_rejected()
    assert len(world.client.open_resources) == 1


def test_the_driver_cannot_add_the_publication_now(world: ControlWorld) -> None:
    client = world.connect()
    for _ in range(3):
        world.driver.fail_next_add("exclusive_publication", TEMPORARILY_UNAVAILABLE)
    client.request_session()
    world.work(3)
    assert only(world).state == "INIT"
    world.work(4)
    assert only(world).state == "AUTHENTICATED"
    assert world.errors == []


def test_the_driver_refuses_the_counter(world: ControlWorld) -> None:
    client = world.connect()
    world.driver.fail_next_add("counter", OTHER, "no more counters")
    client.request_session()
    world.work(2)
    assert world.ended[0].abort_reason == "failed with exception: no more counters"
    assert len(world.client.open_resources) == 1


def test_a_driver_that_dies_ends_sessions_and_nothing_is_raised(world: ControlWorld) -> None:
    active, connecting = world.connect(), world.connect(response_stream_id=21)
    active.open()
    connecting.request_session()
    world.work()
    world.driver.kill()
    for session in list(world.sessions.values()):
        session.do_work()
        assert session.is_done
        session.close()
    assert world.errors == []


# 12: the end


def test_conformance_12_a_session_that_is_closed_revokes_its_response_image_at_once(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    client.send("ArchiveIdRequest")
    world.work()
    image = seam.image(client.responses)
    assert image is not None
    client.send("CloseSessionRequest")
    world.work(2)
    assert seam.is_closed(image), "with a response that was not read"
    assert session.abort_reason == "session closed"
    assert world.errors == []
    assert world.counters() == []
    assert not client.is_rejected()
    client.open()


def test_closing_counts_more_than_what_came_before(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    session.abort("failed")
    session.abort("failed again")
    assert session.abort_reason == "failed"
    client.send("CloseSessionRequest")
    world.work()
    assert session.abort_reason == "session closed"
    assert world.errors == []
    assert not client.is_rejected()


def test_an_owner_may_close_a_session_that_has_not_ended(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    image = seam.image(client.responses)
    assert image is not None
    session.close()
    session.close()
    assert session.is_done
    assert session.abort_reason is None
    assert session.do_work() == 0
    seam.invoke(client.client)
    assert seam.is_closed(image)
    assert world.counters() == []
    assert world.errors == []
    assert not client.is_rejected()


def test_a_rejected_image_takes_all_sessions_that_share_it(world: ControlWorld) -> None:
    client = world.connect()
    other = world.connect(shares=client, response_stream_id=21)
    session = client.open()
    other.open()
    session.abort("failed")
    world.work(3)
    assert world.sessions == {}
    [text] = world.texts()
    assert text.endswith("terminated: failed")


def test_a_listing_is_aborted_with_its_session(world: ControlWorld) -> None:
    reasons: list[str] = []

    class Listing:
        def abort(self, reason: str) -> None:
            reasons.append(reason)
            raise ValueError("listing")

    client = world.connect()
    session = client.open()
    assert session.active_listing is None
    session.active_listing = Listing()
    client.send("CloseSessionRequest")
    world.work()
    assert reasons == ["session closed"]
    assert world.ended[0].active_listing is None
    assert world.texts() == ["listing"]


def made(world: ControlWorld, image: Image, **changes: Any) -> ControlSession:
    """A session of an image, with a publication of its own."""
    settings: dict[str, Any] = {
        "session_id": 9,
        "archive_id": -1,
        "correlation_id": 1,
        "version": 1 << 16,
        "response_channel": "aeron:ipc",
        "response_stream_id": 99,
        "encoded_credentials": b"",
        "client_info": "",
        "connect_timeout_ns": 5_000_000_000,
        "liveness_check_interval_ns": 1_000_000_000,
    }
    return ControlSession(
        world.client,
        image,
        world.authenticator,
        world.authorisation_service,
        world.errors.append,
        **(settings | changes),
    )


class StubbornImage(Image):
    """An image that cannot be rejected."""

    def reject(self, reason: str) -> int:
        raise ValueError(f"cannot reject: {reason}")


def test_an_end_that_fails_in_part_is_an_end(world: ControlWorld) -> None:
    session = made(world, StubbornImage())
    session.abort("failed")
    session.close()
    assert session.is_done
    failure, event = world.errors
    assert str(failure) == "cannot reject: failed"
    assert isinstance(event, ArchiveEvent)


# 13: back pressure


def test_conformance_13_replies_and_signals_arrive_later_in_order_none_lost_or_doubled() -> None:
    world = ControlWorld(window=SMALL_WINDOW)
    client = world.connect()
    session = client.open()
    expected: list[tuple[str, int]] = []
    for number in range(300):
        if number % 3 == 0:
            session.send_signal(number, 1, 2, 64, number % 8)
        elif number % 3 == 1:
            session.send_error(number, "e" * (number % 40))
        else:
            session.send_recording_unknown(number, 9)
        expected.append(("RecordingSignalEvent" if number % 3 == 0 else "ControlResponse", number))
    arrived: list[tuple[str, int]] = []
    for _ in range(2000):
        world.wait(10)
        arrived += [(name, fields["correlation_id"]) for name, fields in client.received(3) if name != "Ping"]
        if len(arrived) == len(expected):
            break
    assert arrived == expected
    world.work(10)
    assert [name for name, _ in client.received() if name != "Ping"] == []
    session.send_ok(1000)
    assert [fields["correlation_id"] for _, fields in client.received()] == [1000], "sent at once again"


def test_one_response_that_waits_is_sent_each_cycle(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    world.driver.publication_results(RESPONSE, 20, [BACK_PRESSURED] * 3)
    for correlation_id in range(4):
        session.send_ok(correlation_id)
    assert client.received() == []
    for correlation_id in range(4):
        world.work()
        assert [fields["correlation_id"] for _, fields in client.received()] == [correlation_id]


def test_descriptors_are_sent_now_or_tried_again_by_the_caller(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    world.driver.publication_results(RESPONSE, 20, [BACK_PRESSURED] * 6)
    assert not session.send_descriptor(1, bytes(92))
    assert not session.send_subscription_descriptor(2, 3, 4, "aeron:ipc")
    assert session.send_descriptor(1, bytes(92))
    assert session.send_subscription_descriptor(2, 3, 4, "aeron:ipc")
    assert [(name, fields["control_session_id"], fields["correlation_id"]) for name, fields in client.received()] == [
        ("RecordingDescriptor", FIRST_SESSION_ID, 1),
        ("RecordingSubscriptionDescriptor", FIRST_SESSION_ID, 2),
    ]
    with pytest.raises(ArchiveError, match="is longer than"):
        session.send_descriptor(1, bytes(10_000))


def test_a_client_that_does_not_read_descriptors_is_closed_too() -> None:
    world = ControlWorld(window=SMALL_WINDOW)
    client = world.connect()
    session = client.open()
    while session.send_descriptor(1, bytes(200)):
        pass
    world.wait(4900)
    assert session.state == "ACTIVE"
    world.wait(200)
    assert session.abort_reason == "failed to send response for more than connectTimeoutMs=5000"


@pytest.mark.parametrize(
    ("send", "code", "relevant_id", "text"),
    [
        (lambda session: session.send_ok(5), OK, 0, b""),
        (lambda session: session.send_ok(5, -1), OK, -1, b""),
        (lambda session: session.send_error(5, "why"), ERROR, GENERIC, b"why"),
        (lambda session: session.send_error(5, "why", UNKNOWN_RECORDING), ERROR, UNKNOWN_RECORDING, b"why"),
        (lambda session: session.send_recording_unknown(5, 2**63 - 1), RECORDING_UNKNOWN, 2**63 - 1, b""),
        (lambda session: session.send_subscription_unknown(5), SUBSCRIPTION_UNKNOWN, 0, b""),
    ],
)
def test_responses(
    world: ControlWorld, send: Callable[[ControlSession], object], code: int, relevant_id: int, text: bytes
) -> None:
    client = world.connect()
    send(client.open())
    [(name, fields)] = client.received()
    assert name == "ControlResponse"
    assert (fields["control_session_id"], fields["correlation_id"]) == (FIRST_SESSION_ID, 5)
    assert (fields["code"], fields["relevant_id"], fields["error_message"]) == (code, relevant_id, text)


def test_a_signal_has_all_that_it_says(world: ControlWorld) -> None:
    client = world.connect()
    client.open().send_signal(1, 2, 3, 4096, 7)
    assert client.received() == [
        (
            "RecordingSignalEvent",
            {
                "control_session_id": FIRST_SESSION_ID,
                "correlation_id": 1,
                "recording_id": 2,
                "subscription_id": 3,
                "position": 4096,
                "signal": 7,
            },
        )
    ]


def test_a_session_without_a_publication_sends_nothing(world: ControlWorld) -> None:
    client = world.connect()
    world.driver.delay_next_add("exclusive_publication", 3)
    client.request_session()
    world.work()
    session = only(world)
    session.send_ok(1)
    session.send_signal(1, 2, 3, 4, 5)
    assert not session.send_descriptor(1, bytes(80))
    assert not session.send_subscription_descriptor(1, 2, 3, "")
    world.work()
    assert repr(session) == f"<ControlSession {FIRST_SESSION_ID} INIT on {RESPONSE} stream 20>"


def test_what_two_clients_do_is_kept_apart(world: ControlWorld) -> None:
    clients = [world.connect(response_stream_id=20 + number) for number in range(5)]
    for client in clients:
        client.open()
    sent: dict[int, list[int]] = {}
    for _ in range(20):
        for client in clients:
            sent.setdefault(client.control_session_id, []).append(client.send("ArchiveIdRequest"))
        world.work(2)
    world.work(10)
    for client in clients:
        replies = [fields for _, fields in client.received()]
        assert [fields["correlation_id"] for fields in replies] == sent[client.control_session_id]
        assert {fields["control_session_id"] for fields in replies} == {client.control_session_id}


def test_times_far_in_the_future_are_no_times() -> None:
    world = ControlWorld()
    client = world.connect()
    client.request_session()
    world.work()
    [(_, image)] = world.calls
    session = made(world, image, connect_timeout_ns=2**63 - 1, liveness_check_interval_ns=2**63 - 1)
    world.clock.advance(10**18)
    session.do_work()
    assert session.state == "CONNECTING"
    session.close()
    assert world.errors == []


def test_the_wall_clock_has_no_say_in_what_a_session_waits_for(world: ControlWorld) -> None:
    client = world.connect()
    session = client.open()
    world.clock.set_epoch_ms(0)
    world.wait(3000)
    world.clock.set_epoch_ms(4_000_000_000_000)
    world.wait(3000)
    assert session.state == "ACTIVE"
    assert [name for name, _ in client.received()] == ["Ping"] * 5


# Hostile clients


@pytest.mark.parametrize("seed", range(12))
def test_hostile_clients_leave_nothing_and_hurt_nobody(seed: int) -> None:
    chance = random.Random(seed)

    def decide(session: SessionProxy) -> None:
        kind = chance.randrange(8)
        if kind == 0:
            session.reject()
        elif kind == 1:
            session.challenge(b"?")
        elif kind == 2:
            raise ValueError("broken")
        elif kind > 3:
            session.authenticate(b"me")

    authenticator = Scripted(decide)
    authenticator.on_challenged = decide
    world = ControlWorld(authenticator=authenticator, window=SMALL_WINDOW)
    requests = [vector.encoded for vector in GOLDEN.vectors if vector.message in CALLS]
    clients: list[RawClient] = []
    for turn in range(400):
        if len(clients) < 8 and chance.random() < 0.2:
            clients.append(world.connect(response_stream_id=20 + turn))
        client = chance.choice(clients) if clients else world.connect(response_stream_id=20 + turn)
        kind = chance.randrange(8)
        if kind == 0:
            channel = chance.choice((client.response_channel, client.response_channel, "", "aeron:x", "\xff" * 3000))
            client.offer(
                codecs.encode(
                    "archive",
                    "AuthConnectRequest",
                    correlation_id=turn,
                    response_stream_id=client.response_stream_id,
                    version=chance.choice((VERSION, VERSION, 1 << 16, 0, -1, 2 << 16)),
                    response_channel=channel.encode("latin-1"),
                    encoded_credentials=chance.randbytes(chance.choice((0, 10, 1000))),
                    client_info=chance.randbytes(chance.choice((0, 10, 1000))),
                )
            )
        elif kind in (1, 2, 3):
            data = bytearray(damaged(chance, chance.choice(requests)))
            if len(data) >= 16 and world.sessions:
                data[8:16] = chance.choice(list(world.sessions)).to_bytes(8, "little")
            client.offer(bytes(data))
        elif kind == 4:
            client.raw(chance.randrange(20))
        elif kind == 5 and chance.random() < 0.2 and client in clients:
            clients.remove(client)
            client.vanish()
        elif kind == 6 and world.sessions:
            session = chance.choice(list(world.sessions.values()))
            session.send_error(turn, "e" * chance.randrange(3000))
            session.send_signal(turn, 1, 2, 3, chance.randrange(8))
        world.wait(chance.choice((10, 50, 500)), 10)
    for client in clients:
        client.vanish()
    world.wait(6000, 50)
    assert world.sessions == {}
    assert world.counters() == []
    assert len(world.client.open_resources) == 1
    assert len(world.ended) > 10
    assert all(len(str(error)) < 6000 for error in world.errors)
