"""The archive client and the snapshot store made of it, against a scripted archive over the memory
transport."""

from __future__ import annotations

import logging
import signal
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from container.api import ADMIN_ACTION, BACK_PRESSURED, CLOSED, MAX_POSITION_EXCEEDED, NOT_CONNECTED
from container.archive.client.aeron_archive import AeronArchive
from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_snapshot_store import (
    ArchiveSnapshotReader,
    ArchiveSnapshotStore,
    ArchiveSnapshotWriter,
)
from container.archive.client.async_aeron_archive import AsyncAeronArchive
from container.codecs import messages as codecs
from container.errors import (
    AgentTermination,
    ArchiveError,
    ClusterError,
    CodecError,
    ConfigurationError,
    RegistrationError,
    SnapshotError,
    TimedOutError,
)
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver, SteppingIdleStrategy
from container.transport.idle_strategy import YieldingIdleStrategy
from container.transport.streams import Subscription
from tests.scripted_archive import ERROR, RECORDING_UNKNOWN, Request, ScriptedArchive, Session

MS = 1_000_000
ABORT, BREAK = 1, 2
FRAME_BEGIN = 0x80
CONTEXT = ArchiveClientContext.for_service(0, 0, client_name="test-service")
SNAPSHOT_CHANNEL = "aeron:ipc?alias=snapshot"


class World:
    """A driver with a client under test; time passes while that one idles."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock, term_length=1 << 20)
        self.client: MemoryClient = self.driver.connect("test-service")
        self.idle = SteppingIdleStrategy(lambda: self.clock.advance(5 * MS))

    def archive(self, **settings: Any) -> ScriptedArchive:
        return ScriptedArchive(self.driver, **settings)

    def connect(self, context: ArchiveClientContext = CONTEXT) -> AeronArchive:
        return AeronArchive.connect(context, client=self.client, idle_strategy=self.idle)

    def store(self, context: ArchiveClientContext = CONTEXT) -> ArchiveSnapshotStore:
        return ArchiveSnapshotStore(self.client, context)

    def run(self, turns: int = 10) -> None:
        """Let the archive work."""
        for _ in range(turns):
            seam.invoke(self.client)

    def terminate_after(self, idles: int) -> None:
        """From that many idles on, the idle strategy ends the agent."""
        count = 0

        def step() -> None:
            nonlocal count
            count += 1
            if count > idles:
                raise AgentTermination("interrupted")

        self.idle = SteppingIdleStrategy(step)


@pytest.fixture
def world() -> World:
    return World()


def respond_on_next_request(archive: ScriptedArchive, name: str, **response: Any) -> None:
    """Send a response of our own choice when the named request comes, then answer it as usual."""

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, **response)
        del archive.hooks[name]
        getattr(archive, f"on_{name}")(session, request)

    archive.hooks[name] = hook


# Context


def test_a_service_gets_the_streams_and_aliases_that_upstream_gives_it() -> None:
    context = ArchiveClientContext.for_service(2, 3)
    assert context.control_channel == "aeron:ipc?term-length=64k|alias=sc-3-archive-ctrl-req-cluster-2"
    assert context.response_channel == "aeron:ipc?term-length=64k|alias=sc-3-archive-ctrl-resp-cluster-2"
    assert context.control_stream_id == 10
    assert context.response_stream_id == 324
    assert CONTEXT.response_stream_id == 121


def test_the_client_name_is_kept() -> None:
    assert ArchiveClientContext(client_name="me").client_name == "me"
    assert ArchiveClientContext.for_service(0, 0, client_name="me").client_name == "me"


def test_settings_of_a_service_are_kept() -> None:
    context = ArchiveClientContext.for_service(
        0, 1, control_channel="aeron:ipc?alias=mine", response_stream_id=30, message_timeout_ns=1
    )
    assert context.control_channel == context.response_channel == "aeron:ipc?alias=mine"
    assert context.response_stream_id == 132
    assert context.message_timeout_ns == 1


@pytest.mark.parametrize("name", ["control_channel", "response_channel"])
def test_a_service_talks_to_a_local_archive_only(name: str) -> None:
    settings: dict[str, Any] = {name: "aeron:udp?endpoint=localhost:8010"}
    with pytest.raises(ConfigurationError, match="local archive control must be IPC.*aeron:udp"):
        ArchiveClientContext.for_service(0, 0, **settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"control_channel": "ipc"}, "begin with 'aeron:'"),
        ({"response_channel": "aeron:tcp"}, "media"),
        ({"message_timeout_ns": 0}, "message_timeout_ns must be at least 1, not 0"),
        ({"message_retry_attempts": 0}, "message_retry_attempts must be at least 1, not 0"),
        (
            {"control_channel": "aeron:udp?endpoint=localhost:8010"},
            "response_channel must be set with control_channel='aeron:udp.*such as response_channel='aeron:udp",
        ),
        ({"controll_channel": "aeron:ipc"}, "unknown setting 'controll_channel': did you mean 'control_channel'?"),
        ({"zzz": 1}, "unknown setting 'zzz': see the settings of ArchiveClientContext"),
        (
            {"message_timeout_ns": "1s"},
            "archive message_timeout_ns must be an int of nanoseconds, such as .*, not '1s'",
        ),
        ({"message_timeout_ns": 1.5}, "archive message_timeout_ns must be an int of nanoseconds, such as .*, not 1.5"),
        ({"message_timeout_ns": 1 << 63}, "archive message_timeout_ns must be an int"),
        ({"control_stream_id": "10"}, "archive control_stream_id must be an int, not '10'"),
        ({"response_stream_id": None}, "archive response_stream_id must be an int, not None"),
        ({"mtu_length": 1 << 31}, "archive mtu_length must be an int of bytes, not 2147483648"),
        ({"term_buffer_length": True}, "archive term_buffer_length must be an int of bytes, not True"),
        ({"message_retry_attempts": 1.0}, "archive message_retry_attempts must be an int, not 1.0"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ArchiveClientContext(**settings)


@pytest.mark.parametrize("client", [AeronArchive, AsyncAeronArchive])
def test_the_doors_of_an_archive_name_a_near_setting_of_their_own(client: Any) -> None:
    for wrong, near in (("cleint", "client"), ("aerondir", "aeron_dir"), ("response_chanel", "response_channel")):
        settings: dict[str, Any] = {wrong: None}
        with pytest.raises(ConfigurationError, match=f"unknown setting '{wrong}': did you mean '{near}'"):
            client.connect(**settings)


def test_an_archive_of_the_network_may_answer_through_this_driver_where_that_is_said() -> None:
    context = ArchiveClientContext(control_channel="aeron:udp?endpoint=localhost:8010", response_channel="aeron:ipc")
    assert context.response_channel == "aeron:ipc"


def test_term_length_mtu_and_sparse_are_added_where_the_channel_does_not_say(world: World) -> None:
    archive = world.archive()
    world.connect(ArchiveClientContext(control_channel="aeron:ipc?mtu=4096|sparse=true", term_buffer_length=128 * 1024))
    [control] = [each for each in world.driver.publications() if each.stream_id == 10]
    assert control.channel == "aeron:ipc?mtu=4096|sparse=true|term-length=131072"
    assert archive.request("AuthConnectRequest")["response_channel"].decode() == (
        f"aeron:ipc?term-length=64k|mtu=1408|sparse=false|session-id={control.session_id}"
    )


# Connect


def test_connect_says_what_upstream_says(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    world.run()
    assert client.archive_id == 42
    assert client.control_session_id == 700
    assert [name for name, _ in archive.requests] == [
        "AuthConnectRequest",
        "ArchiveIdRequest",
        "KeepAliveRequest",
    ]
    connect = archive.request("AuthConnectRequest")
    assert connect["version"] == 68_608
    assert connect["response_stream_id"] == 121
    assert connect["encoded_credentials"] == b""
    assert connect["client_info"].startswith(b"name=test-service version=")
    assert connect["response_channel"] == (
        b"aeron:ipc?term-length=64k|alias=sc-0-archive-ctrl-resp-cluster-0|mtu=1408|sparse=false|session-id=-1000"
    )
    assert archive.request("ArchiveIdRequest")["control_session_id"] == 700
    assert archive.request("KeepAliveRequest") == {"control_session_id": 700, "correlation_id": -1}


def test_request_and_response_stream_have_the_same_session_id(world: World) -> None:
    world.archive()
    world.connect()
    streams = {info.stream_id: info for info in world.driver.publications()}
    assert streams[10].session_id == streams[121].session_id == -1000
    assert streams[10].is_exclusive


def test_an_archive_before_1_11_is_not_asked_for_its_id(world: World) -> None:
    archive = world.archive(version=1 << 16 | 10 << 8)
    assert world.connect().archive_id == -1
    assert archive.request_names() == ["AuthConnectRequest"]


def test_an_archive_of_1_11_is_asked_for_its_id(world: World) -> None:
    world.archive(version=1 << 16 | 11 << 8)
    assert world.connect().archive_id == 42


def test_what_is_no_answer_is_passed_over_while_connecting(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        opened = archive.open_session(request)
        archive.send(opened, "Ping", control_session_id=opened.id)
        archive.respond(opened, -5, code=ERROR, error_message="of another request")
        archive.respond(opened, request["correlation_id"], opened.id)
        archive.respond(opened, request["correlation_id"], opened.id)  # repeated until the first request

    archive.hooks["AuthConnectRequest"] = hook
    assert world.connect().archive_id == 42


def test_a_refused_connect_raises_with_code_and_correlation_id(world: World) -> None:
    archive = world.archive()
    archive.refuse("AuthConnectRequest", 10, "session failed authentication")
    with pytest.raises(ArchiveError, match="session failed authentication") as refused:
        world.connect()
    assert refused.value.code == 10
    assert refused.value.correlation_id == archive.request("AuthConnectRequest")["correlation_id"]
    assert world.client.open_resources == []
    world.run()
    assert archive.request_names()[-1] == "CloseSessionRequest"


def test_an_unexpected_code_refuses_the_connect(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        archive.respond(archive.open_session(request), request["correlation_id"], code=RECORDING_UNKNOWN)

    archive.hooks["AuthConnectRequest"] = hook
    with pytest.raises(ArchiveError, match="unexpected response code 2"):
        world.connect()
    assert world.client.open_resources == []


class Credentials:
    def __init__(self) -> None:
        self.challenges: list[bytes] = []

    def encoded_credentials(self) -> bytes:
        return b"me"

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        self.challenges.append(encoded_challenge)
        return b"answer to " + encoded_challenge


def challenging(challenge: bytes) -> Callable[[ScriptedArchive, Session | None, Request], None]:
    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        opened = archive.open_session(request)
        archive.send(
            opened,
            "Challenge",
            control_session_id=opened.id,
            correlation_id=request["correlation_id"],
            version=archive.version,
            encoded_challenge=challenge,
        )

    return hook


def answer_challenge(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
    assert session is not None
    archive.respond(session, request["correlation_id"], session.id)


@pytest.mark.parametrize("challenge", [b"who?", b"?", b""])
def test_a_challenge_is_answered_with_a_new_correlation_id(world: World, challenge: bytes) -> None:
    archive = world.archive()
    archive.hooks["AuthConnectRequest"] = challenging(challenge)
    archive.hooks["ChallengeResponse"] = answer_challenge
    credentials = Credentials()
    client = world.connect(ArchiveClientContext(credentials_supplier=credentials))
    assert client.archive_id == 42
    assert credentials.challenges == [challenge]
    connect, response = archive.request("AuthConnectRequest"), archive.request("ChallengeResponse")
    assert connect["encoded_credentials"] == b"me"
    assert response["encoded_credentials"] == b"answer to " + challenge
    assert response["correlation_id"] != connect["correlation_id"]


def test_without_a_supplier_a_challenge_gets_empty_credentials(world: World) -> None:
    archive = world.archive()
    archive.hooks["AuthConnectRequest"] = challenging(b"who?")
    archive.hooks["ChallengeResponse"] = answer_challenge
    world.connect()
    assert archive.request("ChallengeResponse")["encoded_credentials"] == b""


def test_without_an_archive_the_error_tells_step_and_channel(world: World) -> None:
    with pytest.raises(TimedOutError) as late:
        world.connect()
    text = str(late.value)
    assert text.startswith("waited 10 s for an archive to listen on control channel aeron:ipc?")
    assert "stream 10" in text
    assert "step AWAIT_PUBLICATION_CONNECTED" in text
    assert world.client.open_resources == []


@pytest.mark.parametrize(
    ("silent", "step", "awaited"),
    [
        ("AuthConnectRequest", "AWAIT_SUBSCRIPTION_CONNECTED", "connect to response channel aeron:ipc?"),
        ("ArchiveIdRequest", "AWAIT_ARCHIVE_ID_RESPONSE", "the archive's id on response channel"),
    ],
)
def test_a_silent_archive_times_out_at_its_step(world: World, silent: str, step: str, awaited: str) -> None:
    world.archive().ignore(silent)
    begin_ns = world.clock.now_ns
    with pytest.raises(TimedOutError, match=rf"{awaited}.*step {step}"):
        world.connect()
    assert 10_000 * MS <= world.clock.now_ns - begin_ns < 10_100 * MS
    assert world.client.open_resources == []


def test_an_archive_that_connects_and_says_nothing_times_out(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        archive.open_session(request)

    archive.hooks["AuthConnectRequest"] = hook
    with pytest.raises(TimedOutError, match="answer to the connect request.*step AWAIT_CONNECT_RESPONSE"):
        world.connect()


def test_back_pressure_on_the_connect_request_is_waited_out(world: World) -> None:
    world.archive()
    world.driver.publication_results(
        CONTEXT.control_channel, 10, [BACK_PRESSURED, ADMIN_ACTION, BACK_PRESSURED, BACK_PRESSURED]
    )
    assert world.connect().archive_id == 42


def test_lasting_back_pressure_times_the_connect_out(world: World) -> None:
    world.archive()
    world.driver.publication_results(CONTEXT.control_channel, 10, [BACK_PRESSURED] * 5000)
    with pytest.raises(TimedOutError, match="room on control channel.*step SEND_CONNECT_REQUEST"):
        world.connect()


def test_an_archive_that_goes_away_while_connecting_is_noticed(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        session.publication.close()

    archive.hooks["ArchiveIdRequest"] = hook
    with pytest.raises(ArchiveError, match=r"connection to the archive is lost: response channel.*not connected"):
        world.connect()
    assert world.client.open_resources == []


def test_a_refused_stream_closes_the_other(world: World) -> None:
    world.archive()
    world.driver.fail_next_add("exclusive_publication", text="no more")
    with pytest.raises(RegistrationError, match="no more"):
        world.connect()
    assert world.client.open_resources == []


@pytest.mark.parametrize("idles", [0, 1, 2])
def test_the_end_of_the_agent_ends_a_connect_and_closes_its_streams(world: World, idles: int) -> None:
    archive = world.archive()
    archive.ignore("ArchiveIdRequest")
    world.terminate_after(idles)
    with pytest.raises(AgentTermination):
        world.connect()
    assert world.client.open_resources == []


def test_clients_writers_and_readers_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match=r"use AeronArchive.connect\(...\)"):
        AeronArchive(None, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"made by ArchiveSnapshotStore.create\(\)"):
        ArchiveSnapshotWriter()
    with pytest.raises(TypeError, match=r"made by ArchiveSnapshotStore.open\(\)"):
        ArchiveSnapshotReader()


def test_a_signal_ends_a_wait(world: World) -> None:
    class Signalled(Exception):
        pass

    def on_signal(*_: object) -> None:
        raise Signalled

    # Nothing in this wait is Python's, which would look for signals by itself.
    world.idle = YieldingIdleStrategy()  # type: ignore[assignment]
    before = signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Signalled):
            world.connect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert world.client.open_resources == []


# Requests


def test_recording_and_replay_requests_have_upstreams_fields(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    assert client.start_recording("aeron:ipc?session-id=-3", 106, auto_stop=True) == 9000
    recording = archive.request("StartRecordingRequest2")
    assert (recording["stream_id"], recording["source_location"], recording["auto_stop"]) == (106, 0, 1)
    assert recording["channel"] == b"aeron:ipc?session-id=-3"
    session_id = client.start_replay(0, 0, -1, "aeron:ipc", 103)
    assert session_id >> 32 == 3
    replay = archive.request("ReplayRequest")
    assert (replay["recording_id"], replay["position"], replay["length"]) == (0, 0, -1)
    assert (replay["replay_stream_id"], replay["replay_channel"]) == (103, b"aeron:ipc")
    assert (replay["file_io_max_length"], replay["replay_token"]) == (-1, -1)


def test_an_error_for_the_request_raises_with_its_code(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    with pytest.raises(ArchiveError, match="replay of recording 17 to aeron:ipc.*unknown recording id: 17") as refused:
        client.start_replay(17, 0, -1, "aeron:ipc", 103)
    assert refused.value.code == 5
    assert refused.value.correlation_id == archive.request("ReplayRequest")["correlation_id"]


def test_an_error_for_another_request_is_logged_and_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    archive = world.archive()
    client = world.connect()
    respond_on_next_request(
        archive, "StartRecordingRequest2", correlation_id=-99, relevant_id=4, code=ERROR, error_message="late"
    )
    assert client.start_recording("aeron:ipc", 106, auto_stop=True) == 9000
    (text,) = [record.getMessage() for record in caplog.records]
    assert text == (
        "archive error, code 4 correlation id -99, while waiting for the answer to start recording of aeron:ipc "
        "stream 106: late"
    )


def test_a_challenge_in_the_place_of_an_answer_is_none(world: World) -> None:
    archive = world.archive()
    client = world.connect()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, -99, 4, code=ERROR, error_message="of another")
        archive.send(
            session,
            "Challenge",
            control_session_id=session.id,
            correlation_id=request["correlation_id"],
            version=archive.version,
            encoded_challenge=b"who?",
        )

    archive.hooks["StartRecordingRequest2"] = hook
    with pytest.raises(TimedOutError, match="start recording of aeron:ipc stream 106"):
        client.start_recording("aeron:ipc", 106, auto_stop=True)


def test_a_response_to_another_control_session_is_passed_over(world: World) -> None:
    archive = world.archive()
    client = world.connect()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 1, code=ERROR, control_session_id=session.id + 1)
        archive.respond(session, request["correlation_id"], 2)

    archive.hooks["StartRecordingRequest2"] = hook
    assert client.start_recording("aeron:ipc", 106, auto_stop=True) == 2


def test_pings_and_signals_are_passed_over_while_waiting(world: World) -> None:
    archive = world.archive()
    client = world.connect()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        for _ in range(30):
            archive.send(session, "Ping", control_session_id=session.id)
        archive.send(
            session,
            "RecordingSignalEvent",
            control_session_id=session.id,
            correlation_id=request["correlation_id"],
            recording_id=1,
            subscription_id=2,
            position=0,
            signal=0,
        )
        archive.respond(session, request["correlation_id"], 7)

    archive.hooks["StartRecordingRequest2"] = hook
    assert client.start_recording("aeron:ipc", 106, auto_stop=True) == 7


def test_a_long_error_message_is_reassembled(world: World) -> None:
    archive = world.archive()
    archive.refuse("StartRecordingRequest2", 8, "x" * 5000)
    with pytest.raises(ArchiveError) as refused:
        world.connect().start_recording("aeron:ipc", 106, auto_stop=True)
    assert str(refused.value).endswith(": " + "x" * 5000)


def test_an_unanswered_request_times_out_and_names_itself(world: World) -> None:
    world.archive().ignore("StartRecordingRequest2")
    client = world.connect()
    with pytest.raises(TimedOutError, match="waited 10 s for the archive's answer to start recording of "):
        client.start_recording("aeron:ipc", 106, auto_stop=True)


@pytest.mark.parametrize("retries", [1, 2])
def test_a_request_is_tried_three_times(world: World, retries: int) -> None:
    world.archive()
    client = world.connect()
    world.driver.publication_results(CONTEXT.control_channel, 10, [BACK_PRESSURED] * retries)
    assert client.start_recording("aeron:ipc", 106, auto_stop=True) == 9000


def test_a_request_that_finds_no_room_three_times_fails(world: World) -> None:
    world.archive()
    client = world.connect()
    world.driver.publication_results(CONTEXT.control_channel, 10, [BACK_PRESSURED, ADMIN_ACTION, BACK_PRESSURED])
    before = world.client.invoke_count
    with pytest.raises(ArchiveError, match="failed to send start recording of .*: no room after 3 attempts"):
        client.start_recording("aeron:ipc", 106, auto_stop=True)
    assert world.client.invoke_count - before == 2, "between the attempts"


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (NOT_CONNECTED, "NOT_CONNECTED"),
        (CLOSED, "CLOSED"),
        (MAX_POSITION_EXCEEDED, "MAX_POSITION_EXCEEDED"),
    ],
)
def test_a_request_on_a_lost_connection_fails_at_once(world: World, result: int, name: str) -> None:
    world.archive()
    client = world.connect()
    world.driver.publication_results(CONTEXT.control_channel, 10, [result])
    with pytest.raises(ArchiveError, match=f"connection to the archive is lost: {name}"):
        client.start_recording("aeron:ipc", 106, auto_stop=True)


def test_a_lost_response_stream_is_noticed_while_waiting(world: World) -> None:
    archive = world.archive()
    client = world.connect()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        session.publication.close()

    archive.hooks["StartRecordingRequest2"] = hook
    with pytest.raises(ArchiveError, match="connection to the archive is lost"):
        client.start_recording("aeron:ipc", 106, auto_stop=True)


def test_the_last_answer_of_an_archive_that_goes_away_counts(world: World) -> None:
    archive = world.archive()
    client = world.connect()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 11, code=ERROR, error_message="disk full")
        session.publication.close()

    archive.hooks["StartRecordingRequest2"] = hook
    with pytest.raises(ArchiveError, match="disk full") as refused:
        client.start_recording("aeron:ipc", 106, auto_stop=True)
    assert refused.value.code == ArchiveError.STORAGE_SPACE


def test_a_foreign_schema_on_the_response_stream_is_an_error(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    (session,) = archive.sessions.values()
    assert seam.offer(session.publication, codecs.encode("cluster", "CloseSession", cluster_session_id=1)) > 0
    with pytest.raises(ArchiveError, match="expected schemaId=101, actual=111"):
        client.check_for_error_response()


@pytest.mark.parametrize("length", [0, 7, 8, 20, 43])
def test_a_truncated_response_is_an_error(world: World, length: int) -> None:
    archive = world.archive()
    client = world.connect()
    (session,) = archive.sessions.values()
    whole = codecs.encode(
        "archive",
        "ControlResponse",
        control_session_id=session.id,
        correlation_id=1,
        relevant_id=1,
        code=0,
        version=1,
        error_message="",
    )
    assert seam.offer(session.publication, whole[:length]) > 0
    with pytest.raises(CodecError):
        client.check_for_error_response()
    client.check_for_error_response()


# Check and close


def test_check_passes_over_everything_but_errors(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    (session,) = archive.sessions.values()
    client.check_for_error_response()
    archive.respond(session, -1, 5)
    archive.respond(session, -1, 5, code=ERROR, control_session_id=session.id + 1)
    archive.send(session, "Ping", control_session_id=session.id)
    archive.respond(session, -1, 11, code=ERROR, error_message="behind all these")
    with pytest.raises(ArchiveError, match="behind all these"):
        client.check_for_error_response()


def test_check_raises_an_error_of_this_session(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    (session,) = archive.sessions.values()
    archive.respond(session, -1, 11, code=ERROR, error_message="low storage space")
    with pytest.raises(ArchiveError, match="archive error: low storage space") as failed:
        client.check_for_error_response()
    assert (failed.value.code, failed.value.correlation_id) == (11, -1)
    client.check_for_error_response()


def test_check_raises_when_the_archive_is_gone(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    (session,) = archive.sessions.values()
    session.publication.close()
    world.run()
    for _ in range(2):
        with pytest.raises(ArchiveError, match="connection to the archive is lost"):
            client.check_for_error_response()


def test_close_ends_the_session_once(world: World) -> None:
    archive = world.archive()
    client = world.connect()
    client.close()
    client.close()
    world.run()
    assert archive.request_names() == ["AuthConnectRequest", "ArchiveIdRequest", "CloseSessionRequest"]
    assert archive.sessions == {}
    assert world.client.open_resources == []
    assert not world.client.is_closed()
    for call in (client.check_for_error_response, lambda: client.start_recording("aeron:ipc", 1, auto_stop=True)):
        with pytest.raises(ArchiveError, match="client is closed"):
            call()


@pytest.mark.parametrize(("result", "text"), [(BACK_PRESSURED, "failed to send close session"), (CLOSED, "CLOSED")])
def test_close_does_not_mind_that_its_request_can_not_be_sent(
    world: World, caplog: pytest.LogCaptureFixture, result: int, text: str
) -> None:
    world.archive()
    client = world.connect()
    world.driver.publication_results(CONTEXT.control_channel, 10, [result] * 3)
    with caplog.at_level("INFO", "container"):
        client.close()
    assert world.client.open_resources == []
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("archive session was not closed, the archive will time it out: ")
    assert text in told


def test_a_dead_driver_leaves_nothing_to_close(world: World) -> None:
    world.archive()
    client = world.connect()
    world.driver.kill()
    with pytest.raises(ArchiveError, match="lost"):
        client.check_for_error_response()
    client.close()


# Snapshots


def test_a_snapshot_is_recorded_and_replayed(world: World) -> None:
    archive = world.archive()
    store = world.store()
    messages = [b"begin", b"x" * 100_000, b"", b"end"]
    writer = store.create(world.idle)
    for message in messages:
        while seam.offer(writer.publication, message) == ADMIN_ACTION:
            pass
    assert not writer.is_complete()
    world.run()
    writer.check()
    assert writer.is_complete()
    recording_id = writer.recording_id
    writer.close()
    writer.close()
    world.run()
    assert archive.request_names()[-1] == "CloseSessionRequest"
    assert archive.recordings[recording_id].counter is None

    reader = store.open(recording_id, world.idle)
    received = []
    for _ in range(1000):
        received += [data for data, _ in seam.poll(reader.image, 10)]
        reader.check()
        if seam.is_end_of_stream(reader.image):
            break
        world.run(1)
    assert b"".join(received) == b"".join(messages)
    reader.close()
    reader.close()
    world.run()
    assert world.client.open_resources == []
    assert archive.sessions == {}


def test_a_snapshot_is_requested_as_upstream_does(world: World) -> None:
    archive = world.archive()
    writer = world.store().create(world.idle)
    request = archive.request("StartRecordingRequest2")
    session_id = writer.publication.session_id
    assert request["channel"].decode() == f"{SNAPSHOT_CHANNEL}|session-id={session_id}"
    assert request["stream_id"] == 106
    assert writer.publication.channel == SNAPSHOT_CHANNEL
    assert [info.is_exclusive for info in world.driver.publications() if info.stream_id == 106] == [True]
    assert "StopRecordingRequest" not in archive.request_names()


def test_each_operation_has_a_connection_of_its_own(world: World) -> None:
    archive = world.archive()
    store = world.store()
    first, second = store.create(world.idle), store.create(world.idle)
    assert archive.request_names().count("AuthConnectRequest") == 2
    assert first.recording_id != second.recording_id
    first.close()
    second.check()


def test_only_the_counter_of_this_session_and_archive_is_taken(world: World) -> None:
    archive = world.archive()
    store = world.store()
    other = world.driver.connect("another archive")

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        session_id = int(request["channel"].decode().rpartition("=")[2])
        for recording_id, wanted, archive_id in ((70, session_id, 41), (71, session_id + 1, 42)):
            key = archive.recording_position_key(recording_id, wanted, archive_id)
            seam.add_counter(other, 100, key)
        seam.add_counter(other, 101, archive.recording_position_key(72, session_id, 42))
        seam.add_counter(other, 100, struct.pack("<qii", 73, session_id, 2**31 - 1))
        seam.add_counter(other, 100, struct.pack("<qii", 74, session_id, -1))
        archive.on_StartRecordingRequest2(session, request)

    archive.hooks["StartRecordingRequest2"] = hook
    writer = store.create(world.idle)
    assert writer.recording_id == 0


def test_any_archives_counter_will_do_when_the_id_is_not_known(world: World) -> None:
    archive = world.archive(version=1 << 16)
    archive.archive_id = 12345
    assert world.store().create(world.idle).recording_id == 0


def test_a_recording_that_stops_before_all_is_recorded_is_an_error(world: World) -> None:
    archive = world.archive()
    writer = world.store().create(world.idle)
    assert seam.offer(writer.publication, b"state") > 0
    archive.stop(archive.recordings[0])
    with pytest.raises(ClusterError, match="recording stopped unexpectedly: 0"):
        writer.is_complete()


def test_a_counter_that_is_reused_does_not_stand_for_the_snapshot(world: World) -> None:
    archive = world.archive()
    writer = world.store().create(world.idle)
    assert seam.offer(writer.publication, b"state") > 0
    recording = archive.recordings[0]
    archive.stop(recording)
    world.clock.advance(60_000 * MS)
    key = archive.recording_position_key(55, writer.publication.session_id, 42)
    reused = seam.add_counter(archive.client, 100, key)
    assert reused.counter_id == writer.counter_id
    with pytest.raises(ClusterError, match="recording stopped unexpectedly: 0"):
        writer.is_complete()


def test_a_closed_publication_is_not_complete(world: World) -> None:
    archive = world.archive()
    writer = world.store().create(world.idle)
    assert writer.is_complete()
    writer.publication.close()
    assert not writer.is_complete()
    archive.stop(archive.recordings[0])
    with pytest.raises(ClusterError, match="recording stopped unexpectedly: 0"):
        writer.is_complete()


def test_a_full_disk_is_told_by_its_code_when_recording_starts(world: World) -> None:
    world.archive().refuse("StartRecordingRequest2", ArchiveError.STORAGE_SPACE, "insufficient storage")
    with pytest.raises(ArchiveError, match="insufficient storage") as refused:
        world.store().create(world.idle)
    assert refused.value.code == ArchiveError.STORAGE_SPACE
    assert world.client.open_resources == []


def test_a_full_disk_is_told_by_its_code_while_recording(world: World) -> None:
    archive = world.archive()
    writer = world.store().create(world.idle)
    (session,) = archive.sessions.values()
    archive.respond(session, -1, ArchiveError.STORAGE_SPACE, code=ERROR, error_message="disk is full")
    with pytest.raises(ArchiveError, match="disk is full") as failed:
        writer.check()
    assert failed.value.code == ArchiveError.STORAGE_SPACE
    writer.close()
    assert world.client.open_resources == []


def test_an_error_while_waiting_for_the_recording_raises(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 1)
        archive.respond(session, request["correlation_id"], 8, code=ERROR, error_message="max recordings")

    archive.hooks["StartRecordingRequest2"] = hook
    with pytest.raises(ArchiveError, match="max recordings"):
        world.store().create(world.idle)
    assert world.client.open_resources == []


def test_a_recording_that_never_begins_times_out(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 1)

    archive.hooks["StartRecordingRequest2"] = hook
    with pytest.raises(TimedOutError, match="recording position counter of session id -?[0-9]+, archive id 42"):
        world.store().create(world.idle)
    assert world.client.open_resources == []


def test_a_snapshot_publication_that_is_refused_closes_the_connection(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        world.driver.fail_next_add("exclusive_publication", text="no snapshot today")
        archive.on_ArchiveIdRequest(session, request)

    archive.hooks["ArchiveIdRequest"] = hook
    with pytest.raises(RegistrationError, match="no snapshot today"):
        world.store().create(world.idle)
    assert world.client.open_resources == []


def test_a_replay_is_subscribed_to_by_its_session_id_alone(world: World) -> None:
    archive = world.archive()
    store = world.store()
    store.create(world.idle).close()
    world.run()
    reader = store.open(0, world.idle)
    assert archive.request("ReplayRequest")["replay_channel"] == b"aeron:ipc"
    (subscription,) = [r for r in world.client.open_resources if getattr(r, "stream_id", 0) == 103]
    assert isinstance(subscription, Subscription)
    assert subscription.channel == f"aeron:ipc?session-id={reader.image.session_id}"
    assert reader.image.join_position == 0


def test_an_unknown_recording_is_told_by_its_code(world: World) -> None:
    world.archive()
    with pytest.raises(ArchiveError, match="unknown recording id: 99") as refused:
        world.store().open(99, world.idle)
    assert refused.value.code == 5
    assert world.client.open_resources == []


def replay_without_a_publication(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
    assert session is not None
    archive.respond(session, request["correlation_id"], 3 << 32 | 77)


def test_a_replay_that_the_archive_gives_up_raises_its_error(world: World) -> None:
    archive = world.archive()

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        replay_without_a_publication(archive, session, request)
        text = "failed to establish replay: replaySessionId=77"
        archive.respond(session, request["correlation_id"], 0, code=ERROR, error_message=text)

    archive.hooks["ReplayRequest"] = hook
    archive.stop_positions[0] = 96
    with pytest.raises(ArchiveError, match="failed to establish replay"):
        world.store().open(0, world.idle)
    assert world.client.open_resources == []


def test_a_replay_that_never_arrives_is_reported_and_times_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    archive = world.archive()
    archive.hooks["ReplayRequest"] = replay_without_a_publication
    archive.stop_positions[4] = 96
    with (
        caplog.at_level(logging.INFO, logger="container"),
        pytest.raises(TimedOutError, match="waited 10 s for the replay of recording 4 on aeron:ipc.*stream 103"),
    ):
        world.store().open(4, world.idle)
    assert "still waiting for the replay of recording 4 on aeron:ipc?session-id=77 stream 103" in caplog.text
    assert world.client.open_resources == []


def test_a_replay_that_arrives_late_is_waited_for(world: World) -> None:
    world.archive()
    writer = world.store().create(world.idle)
    assert seam.offer(writer.publication, b"state") > 0
    writer.close()
    world.run()
    slow: MemoryClient = world.driver.connect("slow", image_delay=20)
    reader = ArchiveSnapshotStore(slow, CONTEXT).open(0, world.idle)
    assert reader.image.join_position == 0
    reader.close()


@pytest.mark.parametrize("idles", range(4))
@pytest.mark.parametrize("operation", ["create", "open"])
def test_the_end_of_the_agent_closes_everything(world: World, operation: str, idles: int) -> None:
    archive = world.archive()
    archive.hooks["StartRecordingRequest2"] = replay_without_a_publication
    archive.hooks["ReplayRequest"] = replay_without_a_publication
    archive.stop_positions[0] = 96
    world.terminate_after(idles)
    store = world.store()
    call = partial(store.create, world.idle) if operation == "create" else partial(store.open, 0, world.idle)
    with pytest.raises(AgentTermination):
        call()
    assert world.client.open_resources == []


def recorded(world: World, messages: list[bytes]) -> int:
    """The recording of these messages, which has stopped."""
    writer = world.store().create(world.idle)
    for message in messages:
        while seam.offer(writer.publication, message) == ADMIN_ACTION:
            pass
    world.run()
    writer.close()
    world.run()
    return writer.recording_id


MESSAGES = [b"%d" % number * (number % 50) for number in range(100)]


def test_the_end_of_a_snapshot_is_where_the_archive_says_that_the_recording_ends(world: World) -> None:
    archive = world.archive()
    recording_id = recorded(world, MESSAGES)
    reader = world.store().open(recording_id, world.idle)
    assert archive.request("StopPositionRequest")["recording_id"] == recording_id
    assert archive.request("ReplayRequest")["length"] == -1
    assert reader.stop_position == archive.recordings[recording_id].position > 0
    image = seam.snapshot_image(reader, world.client, world.idle)
    assert image.position == 0
    assert list(image) == MESSAGES
    assert image.is_end_of_stream
    assert image.position == reader.stop_position


def test_a_recording_that_is_about_to_stop_is_waited_for(world: World) -> None:
    archive = world.archive()
    writer = world.store().create(world.idle)
    assert seam.offer(writer.publication, b"state") > 0
    asked: list[Request] = []

    def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        asked.append(request)
        archive.on_StopPositionRequest(session, request)
        if len(asked) == 3:
            writer.publication.close()

    archive.hooks["StopPositionRequest"] = hook
    reader = world.store().open(writer.recording_id, world.idle)
    assert len(asked) > 3
    assert reader.stop_position == 64
    assert list(seam.snapshot_image(reader, world.client, world.idle)) == [b"state"]


def test_a_recording_that_does_not_stop_cannot_be_loaded(world: World) -> None:
    world.archive()
    writer = world.store().create(world.idle)
    assert seam.offer(writer.publication, b"state") > 0
    with pytest.raises(TimedOutError, match=f"recording {writer.recording_id} to stop: the archive is still recording"):
        world.store().open(writer.recording_id, world.idle)


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("damaged_at", range(len(MESSAGES)))
def test_a_replay_that_is_cut_short_never_ends_normally(world: World, damaged_at: int, is_fast: bool) -> None:
    archive = world.archive()
    recording_id = recorded(world, MESSAGES)
    archive.damaged_at = damaged_at
    reader = world.store().open(recording_id, world.idle)
    image = seam.snapshot_image(reader, world.client, world.idle)
    received: list[bytes] = []
    begin_ns = world.clock.now_ns

    def read() -> None:
        for message in image:
            received.append(message)
            if not is_fast:
                world.run(3)

    with pytest.raises((SnapshotError, ArchiveError), match="ended unexpectedly|unexpected end of recording"):
        read()
    assert world.clock.now_ns - begin_ns < 100 * MS, "it fails without a wait"
    assert received == MESSAGES[:damaged_at]
    assert not image.is_end_of_stream
    with pytest.raises((SnapshotError, ArchiveError)):
        next(iter(image))
    with pytest.raises((SnapshotError, ArchiveError)):
        image.poll(received.append)


def test_a_replay_that_stalls_is_an_error_after_a_minute(world: World) -> None:
    archive = world.archive()
    recording_id = recorded(world, MESSAGES)
    archive.damaged_at, archive.stalls = 50, True
    world.idle = SteppingIdleStrategy(lambda: world.clock.advance(20 * MS))
    image = seam.snapshot_image(world.store().open(recording_id, world.idle), world.client, world.idle)
    messages = iter(image)
    received = [next(messages) for _ in range(50)]
    begin_ns = world.clock.now_ns
    with pytest.raises(SnapshotError, match=r"stopped at position \d+: no frame came for 60 s"):
        next(messages)
    assert 60_000 * MS <= world.clock.now_ns - begin_ns < 60_100 * MS
    assert received == MESSAGES[:50]


def test_a_recording_that_ends_inside_a_message_is_an_error_at_once(world: World) -> None:
    class HalfMessage(ScriptedArchive):
        def _replay(self) -> None:
            for replay in list(self._pending_replays):
                publication: Any = replay[0]
                if seam.is_connected(publication):
                    self._pending_replays.remove(replay)
                    publication.log.append_frame(b"half", flags=FRAME_BEGIN)  # and the stream stays open

    archive = HalfMessage(world.driver)
    recording_id = recorded(world, [b"one"])
    archive.stop_positions[recording_id] = 64
    image = seam.snapshot_image(world.store().open(recording_id, world.idle), world.client, world.idle)
    begin_ns = world.clock.now_ns
    with pytest.raises(SnapshotError, match="ended unexpectedly at position 64: its recording ends at 64"):
        next(iter(image))
    assert world.clock.now_ns - begin_ns < 100 * MS


def test_an_image_that_is_closed_before_all_was_read_never_ends_normally(world: World) -> None:
    world.archive()
    reader = world.store().open(recorded(world, MESSAGES), world.idle)
    image = seam.snapshot_image(reader, world.client, world.idle)
    (subscription,) = [r for r in world.client.open_resources if getattr(r, "stream_id", 0) == 103]
    messages = iter(image)
    assert [next(messages) for _ in range(40)] == MESSAGES[:40]
    subscription.close()
    with pytest.raises(SnapshotError, match=r"ended unexpectedly at position \d+: its recording ends at \d+"):
        list(messages)
    with pytest.raises(SnapshotError, match="ended unexpectedly"):
        image.poll(print)
    assert not image.is_end_of_stream


def test_waits_idle_with_the_callers_strategy_and_keep_the_conductor_going(world: World) -> None:
    world.archive().ignore("StartRecordingRequest2")
    with pytest.raises(TimedOutError):
        world.store().create(world.idle)
    assert world.idle.idle_count >= 10_000 // 5
    assert world.client.invoke_count >= 10_000 // 5


@pytest.mark.parametrize("busy_turns", [0, 5])
def test_a_turn_that_finds_work_for_the_conductor_does_not_idle(world: World, busy_turns: int) -> None:
    other = world.driver.connect("other")
    left = [None] * busy_turns

    def work() -> None:
        if left:
            left.pop()
            seam.add_counter(other, 1101).close()  # of which the conductor has to tell

    world.driver.add_task(work)
    with pytest.raises(TimedOutError):
        world.connect()
    assert world.client.invoke_count - world.idle.idle_count == max(1, busy_turns), "the first adds the streams"
