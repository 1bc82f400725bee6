"""An archive's client that never waits: the steps of its connect, its requests, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from container.archive.client.archive_connection import STEPS, ArchiveRequest
from container.archive.client.async_archive import AsyncArchive
from container.consensus.log_recording import LogRecording
from container.consensus.steps import answer
from container.errors import ArchiveError, CodecError, ConfigurationError, RegistrationError, TimedOutError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver
from tests.scripted_archive import RECORDING_POSITION_TYPE_ID, Request, ScriptedArchive, Session

MS = 1_000_000
TIMEOUT_NS = 100 * MS
CONTROL_CHANNEL = "aeron:ipc?alias=control"


class World:
    """An archive, and a client of it."""

    def __init__(self, *, has_archive: bool = True, **settings: Any) -> None:
        self.clock = ManualClock()
        self.driver = MemoryDriver(self.clock)
        self.client: MemoryClient = self.driver.connect("archive archiveId=1")
        values: dict[str, Any] = {
            "control_channel": CONTROL_CHANNEL,
            "control_stream_id": 10,
            "response_channel": "aeron:ipc",
            "response_stream_id": 20,
            "term_buffer_length": 128 * 1024,
            "mtu_length": 8192,
            "is_sparse": True,
            "client_name": "test",
            "encoded_credentials": b"secret",
            "message_timeout_ns": TIMEOUT_NS,
        }
        self.source = AsyncArchive(self.client, **(values | settings))
        self.archive = ScriptedArchive(self.driver, control_channel="aeron:ipc") if has_archive else None

    def poll(self) -> bool:
        seam.invoke(self.client)
        return self.source.poll()

    def until_connected(self) -> None:
        for _ in range(20):
            if self.poll():
                return
        raise AssertionError(self.source)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(20):
            self.poll()
            if condition():
                return
        raise AssertionError(self.source)

    def value_of[T](self, waits: Generator[None, None, T]) -> T:
        """What a generator returns."""
        for _ in range(20):
            seam.invoke(self.client)
            try:
                next(waits)
            except StopIteration as stopped:
                return stopped.value  # type: ignore[no-any-return]
        raise AssertionError(self.source)

    def has_asked(self, name: str) -> bool:
        return name in self.scripted().request_names()

    @property
    def session(self) -> Session:
        return self.scripted().sessions[700]

    def scripted(self) -> ScriptedArchive:
        assert self.archive is not None
        return self.archive

    def answer(self, name: str, answer: Callable[[ScriptedArchive, Session, Request], object]) -> None:
        def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
            answer(archive, archive.open_session(request) if session is None else session, request)

        self.scripted().hooks[name] = hook


def connected(**settings: Any) -> World:
    world = World(**settings)
    world.until_connected()
    return world


def test_it_connects_step_by_step() -> None:
    world = World()
    steps = [world.source.step]
    while not world.poll():
        steps += [world.source.step] if steps[-1] != world.source.step else []
    assert steps == [step for step in STEPS if step in steps]
    assert (world.source.step, world.source.control_session_id, world.source.archive_id) == ("CONNECTED", 700, 42)
    assert repr(world.source) == (
        "<AsyncArchive CONNECTED on aeron:ipc?alias=control|term-length=131072|mtu=8192|sparse=true stream 10>"
    )
    connect = world.scripted().request("AuthConnectRequest")
    assert (connect["encoded_credentials"], connect["response_stream_id"]) == (b"secret", 20)
    assert connect["client_info"].startswith(b"name=test version=")
    [publication] = [each for each in world.client.open_resources if each.registration_id and "control" in repr(each)]
    session_id = str(getattr(publication, "session_id", ""))
    assert connect["response_channel"].decode() == (
        f"aeron:ipc?term-length=131072|mtu=8192|sparse=true|session-id={session_id}"
    )
    assert world.poll()
    assert world.scripted().request("KeepAliveRequest")["control_session_id"] == 700


def test_what_the_channels_say_counts() -> None:
    world = connected(
        control_channel="aeron:ipc?mtu=1408", response_channel="aeron:ipc?sparse=false|term-length=64k|session-id=8"
    )
    assert world.source.control_channel == "aeron:ipc?mtu=1408|term-length=131072|sparse=true"
    response = world.scripted().request("AuthConnectRequest")["response_channel"].decode()
    assert response.startswith("aeron:ipc?sparse=false|term-length=64k|session-id=")
    assert response.endswith("|mtu=8192")


def test_the_session_id_of_a_channel_that_another_client_gave_away_is_not_taken() -> None:
    """ClusterBackup asks for replications from the very channel that it is connected by."""
    channel = f"{CONTROL_CHANNEL}|session-id=77"
    world = World(control_channel=channel)
    other = seam.add_publication(world.driver.connect("other"), channel, 10, exclusive=True)
    world.until_connected()
    assert other.session_id == 77
    assert "session-id" not in world.source.control_channel
    assert b"session-id=77" not in world.scripted().request("AuthConnectRequest")["response_channel"]


def test_close_ends_the_session_and_its_streams() -> None:
    world = connected()
    world.source.close()
    world.source.close()
    seam.invoke(world.client)
    assert world.scripted().request("CloseSessionRequest")["control_session_id"] == 700
    assert world.client.open_resources == []
    assert world.source.step == "CLOSED"
    with pytest.raises(ArchiveError, match="client is closed"):
        world.source.poll()
    with pytest.raises(ArchiveError, match="client is closed"):
        world.source.list_recording(1)


@pytest.mark.parametrize("polls", range(6))
def test_close_gives_up_what_was_begun(polls: int) -> None:
    world = World()
    for _ in range(polls):
        world.poll()
    world.source.close()
    assert world.client.open_resources == []


def test_nobody_listens() -> None:
    world = World(has_archive=False)
    for _ in range(5):
        assert not world.poll()
    world.clock.advance(TIMEOUT_NS)
    with pytest.raises(TimedOutError, match=r"^waited 0\.1 s for an archive to listen on control channel .* stream 10 "
                       r"\(archive connect, step AWAIT_PUBLICATION_CONNECTED\)$"):  # fmt: skip
        world.poll()


def test_the_driver_refuses_a_stream() -> None:
    world = World(control_channel="aeron:ipc?init-term-id=1")
    with pytest.raises(RegistrationError):
        world.until_connected()
    world.source.close()
    assert world.client.open_resources == []


@pytest.mark.parametrize("name", ["control_channel", "response_channel"])
def test_what_is_no_channel_is_refused(name: str) -> None:
    settings: dict[str, Any] = {name: "aeron:ipc?alias=\ufffd"}
    with pytest.raises(ConfigurationError):
        World(**settings)


def test_each_answer_comes_to_its_request() -> None:
    world = connected()
    archive, session = world.scripted(), world.session
    for name in ("RecordingPositionRequest", "ReplayTokenRequest", "ListRecordingRequest"):
        archive.ignore(name)
    position, token = world.source.recording_position(5), world.source.replay_token(5)
    descriptor = world.source.list_recording(5)
    world.until(lambda: world.has_asked("ListRecordingRequest"))
    archive.respond(session, descriptor.correlation_id, 5, code=2)
    archive.respond(session, token.correlation_id, 17)
    world.until(lambda: token.is_done)
    assert (token.relevant_id, token.error) == (17, None)
    assert (descriptor.is_done, descriptor.items, descriptor.error) == (True, [], None)
    assert not position.is_done
    archive.respond(session, position.correlation_id, 4096)
    world.until(lambda: position.is_done)
    assert position.relevant_id == 4096


def test_the_end_of_a_replay_is_not_waited_for() -> None:
    world = connected()
    world.scripted().ignore("StopReplayRequest")
    world.source.stop_replay(99)
    seam.invoke(world.client)
    assert world.scripted().request("StopReplayRequest")["replay_session_id"] == 99
    assert world.source.waiting == 0


def test_an_error_is_that_of_its_request_alone() -> None:
    world = connected()
    archive = world.scripted()
    archive.ignore("RecordingPositionRequest")
    archive.ignore("TruncateRecordingRequest")
    position, cut = world.source.recording_position(5), world.source.truncate_recording(5, 64)
    world.until(lambda: world.has_asked("TruncateRecordingRequest"))
    archive.respond(world.session, cut.correlation_id, 4, code=1, error_message="it is replayed")
    world.until(lambda: cut.is_done)
    assert isinstance(cut.error, ArchiveError)
    assert (str(cut.error), cut.error.code, cut.error.correlation_id) == ("it is replayed", 4, cut.correlation_id)
    assert (position.is_done, position.error, world.source.take_error()) == (False, None, None)


def test_each_request_has_a_limit_of_its_own() -> None:
    world = connected()
    archive = world.scripted()
    archive.ignore("RecordingPositionRequest")
    archive.ignore("ReplayTokenRequest")
    position = world.source.recording_position(5)
    world.poll()
    world.clock.advance(TIMEOUT_NS // 2)
    token = world.source.replay_token(5)
    world.poll()
    world.clock.advance(TIMEOUT_NS // 2)
    world.poll()
    with pytest.raises(TimedOutError, match=r"^waited 0\.1 s for .* to the position of recording 5, "):
        raise position.error or AssertionError(position)
    assert not token.is_done
    archive.respond(world.session, position.correlation_id, 1)
    archive.respond(world.session, token.correlation_id, 2)
    world.until(lambda: token.is_done)
    assert (token.relevant_id, position.relevant_id) == (2, -1), "the late answer is nobody's"
    assert world.source.take_error() is None


def test_a_request_that_is_forgotten_is_answered_in_silence() -> None:
    world = connected()
    archive = world.scripted()
    archive.ignore("ReplayTokenRequest")
    token = world.source.replay_token(5)
    waits = answer(world.source, token)
    next(waits)
    world.until(lambda: world.has_asked("ReplayTokenRequest"))
    waits.close()
    assert (token.is_done, token.error, world.source.waiting) == (True, None, 0)
    archive.respond(world.session, token.correlation_id, 4, code=1, error_message="no such recording")
    for _ in range(3):
        world.poll()
    assert (token.error, world.source.take_error()) == (None, None)


def test_an_answer_is_waited_for() -> None:
    world = connected()
    world.answer("ReplayTokenRequest", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 17))  # fmt: skip
    assert world.value_of(answer(world.source, world.source.replay_token(5))) == 17
    world.scripted().refuse("ReplayTokenRequest", 4, "no such recording")
    with pytest.raises(ArchiveError, match="^no such recording$"):
        world.value_of(answer(world.source, world.source.replay_token(5)))


def test_a_code_that_does_not_belong_to_an_answer() -> None:
    world = connected()
    world.answer("ReplayRequest", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 1, code=3))  # fmt: skip
    replay = world.source.replay(1, 0, -1, "aeron:ipc", 5, -1)
    world.until(lambda: replay.is_done)
    assert str(replay.error).startswith("unexpected response code 3 while waiting for the replay of recording 1 to")


def test_an_error_of_nobody_is_kept() -> None:
    world = connected()
    world.scripted().respond(world.session, 5, 11, code=1, error_message="the disk is full")
    assert world.poll()
    error = world.source.take_error()
    assert error is not None
    assert (str(error), error.code, error.correlation_id) == ("the disk is full", 11, 5)
    assert world.source.take_error() is None


@pytest.mark.parametrize("is_replication", [False, True])
def test_an_error_after_the_answer_is_that_of_a_request_that_is_followed(is_replication: bool) -> None:
    """What the archive says of a replication has its id, of all else the request's."""
    world = connected()
    archive = world.scripted()
    for name in ("ReplayRequest", "ReplicateRequest2"):
        world.answer(name, lambda archive, session, request: archive.respond(session, request["correlation_id"], 901))

    def begun() -> ArchiveRequest:
        if is_replication:
            return world.source.replicate(1, 2, "aeron:udp?endpoint=other:8010", 10, -1, "aeron:ipc", 7)
        return world.source.replay(1, 0, -1, "aeron:ipc", 5, -1)

    def fail(request: ArchiveRequest) -> None:
        of = 901 if is_replication else request.correlation_id
        archive.respond(world.session, of, 13, code=1, error_message="the disk is full")
        for _ in range(3):
            world.poll()

    followed, other = begun(), begun()
    world.source.follow(followed)
    world.until(lambda: followed.is_done and other.is_done)
    fail(followed)
    assert str(followed.error) == "the disk is full"
    assert (other.error, world.source.take_error()) == (None, None)
    fail(other)
    assert other.error is None
    assert str(world.source.take_error()) == "the disk is full"
    forgotten = begun()
    world.source.follow(forgotten)
    world.until(lambda: forgotten.is_done)
    world.source.forget(forgotten)
    fail(forgotten)
    assert (forgotten.error, str(world.source.take_error())) == (None, "the disk is full")


def test_an_error_that_came_before_the_counter_of_the_log_was_seen_is_not_lost() -> None:
    """It is that of the request, which is followed: nobody else hears of it."""
    world = connected()
    archive = world.scripted()
    world.answer("StartRecordingRequest2", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 17))  # fmt: skip
    settings = SimpleNamespace(leader_heartbeat_timeout_ns=TIMEOUT_NS, service_count=1)
    context: Any = SimpleNamespace(client=world.client, settings=settings, recording_log=None)
    recording = LogRecording(context, world.source)
    waits = recording.start(channel="aeron:ipc", stream_id=5, session_id=9, is_local=True)
    for _ in range(5):  # it has the answer, and looks for the counter
        next(waits)
        seam.invoke(world.client)
    correlation_id = archive.request("StartRecordingRequest2")["correlation_id"]
    archive.respond(world.session, correlation_id, 13, code=1, error_message="the disk is full")
    for _ in range(3):
        world.poll()
    key = archive.recording_position_key(3, 9, archive.archive_id)
    seam.add_counter(archive.client, RECORDING_POSITION_TYPE_ID, key, "rec-pos")
    with pytest.raises(ArchiveError, match="^the disk is full$"):
        world.value_of(waits)
    assert recording.recording_id == 3, "the next start continues it"


@pytest.mark.parametrize(("name", "ask", "fields"), [
    ("BoundedReplayRequest", lambda archive: archive.bounded_replay(1, 64, 128, 9, "aeron:ipc", 5),
     {"recording_id": 1, "position": 64, "length": 128, "limit_counter_id": 9, "replay_stream_id": 5,
      "file_io_max_length": -1, "replay_token": -1, "replay_channel": b"aeron:ipc"}),
    ("FindLastMatchingRecordingRequest", lambda archive: archive.find_last_matching_recording(3, "aeron:", 5, 7),
     {"min_recording_id": 3, "session_id": 7, "stream_id": 5, "channel": b"aeron:"}),
    ("TruncateRecordingRequest", lambda archive: archive.truncate_recording(1, 64),
     {"recording_id": 1, "position": 64}),
    ("StopAllReplaysRequest", lambda archive: archive.stop_all_replays(1), {"recording_id": 1}),
    ("StopReplicationRequest", lambda archive: archive.stop_replication(901), {"replication_id": 901}),
    ("ReplicateRequest2",
     lambda archive: archive.replicate(
         1, 2, "aeron:udp?endpoint=a:1", 10, 640, "aeron:udp?endpoint=b:0", 7, "aeron:ipc", b"secret"),
     {"src_recording_id": 1, "dst_recording_id": 2, "stop_position": 640, "channel_tag_id": -1,
      "subscription_tag_id": -1, "src_control_stream_id": 10, "file_io_max_length": -1, "replication_session_id": 7,
      "src_control_channel": b"aeron:udp?endpoint=a:1", "live_destination": b"",
      "replication_channel": b"aeron:udp?endpoint=b:0", "encoded_credentials": b"secret",
      "src_response_channel": b"aeron:ipc"}),
])  # fmt: skip
def test_what_a_request_says(
    name: str, ask: Callable[[AsyncArchive], ArchiveRequest], fields: dict[str, object]
) -> None:
    world = connected()
    world.scripted().ignore(name)
    request = ask(world.source)
    world.until(lambda: world.has_asked(name))
    assert world.scripted().request(name) == fields | {
        "control_session_id": 700, "correlation_id": request.correlation_id}  # fmt: skip


def test_an_archive_that_is_lost() -> None:
    world = connected()
    assert world.poll()
    world.scripted().client.close()
    world.scripted().ignore("RecordingPositionRequest")
    followed, waiting = world.source.replay(1, 0, -1, "aeron:ipc", 5, -1), world.source.recording_position(5)
    world.source.follow(followed)
    with pytest.raises(ArchiveError, match="connection to the archive is lost: "):
        world.poll()
    assert "is lost" in str(followed.error)
    assert "is lost" in str(waiting.error)
    with pytest.raises(ArchiveError, match="connection to the archive is lost: NOT_CONNECTED on control channel"):
        world.source.stop_replay(1)
    world.source.close()
    assert world.client.open_resources == []


@pytest.mark.parametrize("template_id", [1, 22, 59])
def test_messages_that_are_cut_short_are_refused(template_id: int) -> None:
    world = connected()
    header = b"".join(value.to_bytes(2, "little") for value in (8, template_id, 101, 13))
    seam.offer(world.scripted().sessions[700].publication, header + bytes(8))
    with pytest.raises(CodecError):
        world.poll()
