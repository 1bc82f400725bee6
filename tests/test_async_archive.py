"""An archive's client that never waits: the steps of its connect, its requests, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from container.archive.client.archive_connection import STEPS
from container.archive.client.async_archive import AsyncArchive
from container.errors import ArchiveError, CodecError, ConfigurationError, RegistrationError, TimedOutError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import ManualClock, MemoryClient, MemoryDriver
from tests.scripted_archive import Request, ScriptedArchive, Session

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

    def until_answered(self) -> None:
        for _ in range(20):
            if self.poll():
                return
        raise AssertionError(self.source)

    def scripted(self) -> ScriptedArchive:
        assert self.archive is not None
        return self.archive

    def answer(self, name: str, answer: Callable[[ScriptedArchive, Session, Request], object]) -> None:
        def hook(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
            answer(archive, archive.open_session(request) if session is None else session, request)

        self.scripted().hooks[name] = hook


def connected(**settings: Any) -> World:
    world = World(**settings)
    world.until_answered()
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
    world.until_answered()
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
        world.until_answered()
    world.source.close()
    assert world.client.open_resources == []


@pytest.mark.parametrize("name", ["control_channel", "response_channel"])
def test_what_is_no_channel_is_refused(name: str) -> None:
    settings: dict[str, Any] = {name: "aeron:ipc?alias=\ufffd"}
    with pytest.raises(ConfigurationError):
        World(**settings)


def test_requests_are_answered_one_by_one() -> None:
    world = connected()
    archive = world.scripted()
    world.answer("RecordingPositionRequest", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 4096))  # fmt: skip
    world.source.recording_position(5)
    world.until_answered()
    assert world.source.relevant_id == 4096
    world.answer("ReplayTokenRequest", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 17))  # fmt: skip
    world.source.replay_token(5)
    assert world.source.relevant_id == -1
    world.until_answered()
    assert world.source.relevant_id == 17
    world.answer("ListRecordingRequest", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 5, code=2))  # fmt: skip
    world.source.list_recording(5)
    world.until_answered()
    assert world.source.descriptor is None
    world.archive = archive
    archive.ignore("StopReplayRequest")
    world.source.stop_replay(99)
    seam.invoke(world.client)
    assert archive.request("StopReplayRequest")["replay_session_id"] == 99
    assert world.poll(), "nobody waits for its answer"


def test_a_request_that_is_not_answered_is_forgotten() -> None:
    world = connected()
    world.scripted().ignore("RecordingPositionRequest")
    world.source.recording_position(5)
    assert not world.poll()
    world.clock.advance(TIMEOUT_NS)
    with pytest.raises(TimedOutError, match=r"^waited 0\.1 s for .* to the position of recording 5, "):
        world.poll()
    first = world.scripted().request("RecordingPositionRequest")["correlation_id"]
    session = world.scripted().sessions[700]
    world.source.recording_position(5)
    world.scripted().respond(session, first, 1)
    assert not world.poll()
    assert not world.poll(), "the late answer is to another request"
    last = world.scripted().requests[-1][1]["correlation_id"]
    world.scripted().respond(session, last, 2)
    world.until_answered()
    assert world.source.relevant_id == 2


def test_a_code_that_does_not_belong_to_an_answer() -> None:
    world = connected()
    world.answer("ReplayRequest", lambda archive, session, request: archive.respond(
        session, request["correlation_id"], 1, code=3))  # fmt: skip
    world.source.replay(1, 0, -1, "aeron:ipc", 5, -1)
    with pytest.raises(ArchiveError, match="unexpected response code 3 while waiting for the replay of recording 1 to"):
        world.until_answered()


def test_errors_count_whatever_they_are_about() -> None:
    world = connected()
    world.scripted().respond(world.scripted().sessions[700], 5, 11, code=1, error_message="the disk is full")
    with pytest.raises(ArchiveError, match="the disk is full") as caught:
        world.poll()
    assert (caught.value.code, caught.value.correlation_id) == (11, 5)


def test_an_archive_that_is_lost() -> None:
    world = connected()
    assert world.poll()
    world.scripted().client.close()
    with pytest.raises(ArchiveError, match="connection to the archive is lost: response channel"):
        world.poll()
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
