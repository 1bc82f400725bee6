"""How replications end: what is refused, what fails, and that REPLICATE_END comes once, whenever the end comes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from container.archive.authentication import Authenticator, SessionProxy
from container.archive.error_codes import (
    ACTIVE_RECORDING,
    ACTIVE_SUBSCRIPTION,
    GENERIC,
    INVALID_EXTENSION,
    REPLICATION_CONNECTION_FAILURE,
    STORAGE_SPACE,
    UNKNOWN_RECORDING,
)
from container.archive.server.sessions.replication_request import ReplicationRequest, check_replication_request
from container.archive.server.sessions.replication_session import STATES, ReplicationSession
from container.errors import ArchiveError
from container.settings.archive_table import ArchiveSettings
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient
from container.transport.counters import Counter
from tests.control_world import ControlWorld, RawClient
from tests.replication_world import (
    MS,
    Archive,
    MemoryWorld,
    NetworkWorld,
    Requests,
    Stream,
    recorded,
    recording,
    replicate_fields,
)
from tests.scripted_archive import Request, ScriptedArchive, Session

SOURCE_CHANNEL = "aeron:udp?endpoint=localhost:9999"
END = ("REPLICATE_END", -1, -1, False)


def archives(**settings: Any) -> tuple[MemoryWorld, Archive, Archive]:
    world = MemoryWorld()
    return world, world.archive(0), world.archive(1, **settings)


def resources(archive: Archive) -> list[object]:
    """What the archive's client has open."""
    assert isinstance(archive.client, MemoryClient)
    return list(archive.client.open_resources)


# What is refused before anything begins


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"dst_recording_id": 7}, UNKNOWN_RECORDING, "unknown destination recording id 7"),
        ({"dst_recording_id": 0}, ACTIVE_RECORDING, "cannot replicate to active recording 0"),
        (
            {"replication_channel": "aeron:udp?control-mode=response|control=a:1", "live_destination": "aeron:ipc"},
            GENERIC,
            "response channels can't be used with live destinations",
        ),
        (
            {"replication_channel": "aeron:udp?control-mode=response|control=a:1", "subscription_tag_id": 3},
            GENERIC,
            "response channels can't be used with tagged replication",
        ),
        (
            {"replication_channel": "aeron:tcp", "dst_recording_id": 7},
            GENERIC,
            "invalid replication channel: a channel's media must be one of udp, ipc, not 'tcp': 'aeron:tcp'",
        ),
    ],
)
def test_a_request_is_refused(fields: dict[str, Any], code: int, text: str) -> None:
    _, source, target = archives()
    recording(target)
    requests = target.requests()
    encoded = {name: value.encode() if isinstance(value, str) else value for name, value in fields.items()}
    request = replicate_fields(source.control_channel(), 0, **encoded)
    assert requests.error("ReplicateRequest2", **request) == (code, text)
    with pytest.raises(ArchiveError) as caught:
        check_replication_request(ReplicationRequest(0, **fields), target.store)
    assert (caught.value.code, str(caught.value)) == (code, text)


def test_the_default_channel_is_checked_as_well() -> None:
    _, _, target = archives()
    request = ReplicationRequest(0, channel_tag_id=4)
    check_replication_request(request, target.store, "aeron:udp?endpoint=a:0")
    with pytest.raises(ArchiveError, match="can't be used with tagged"):
        check_replication_request(request, target.store, "aeron:udp?control-mode=response|control=a:1")


def test_older_requests_ask_for_the_same() -> None:
    _, source, target = archives()
    source_id = recorded(source)
    requests = target.requests()
    fields = {
        "src_recording_id": source_id,
        "dst_recording_id": -1,
        "src_control_stream_id": 10,
        "src_control_channel": source.control_channel().encode(),
        "live_destination": b"",
    }
    requests.ok("ReplicateRequest", **fields)
    target.world.until(lambda: target.store.catalog.has(0) and target.range(0) == source.range(source_id))
    assert target.content(0) == source.content(source_id)


# What fails on the way


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"src_control_channel": b"no channel"}, GENERIC, "failed=a channel"),
        ({"src_response_channel": b"aeron:tcp"}, GENERIC, "failed=a channel"),
        ({"file_io_max_length": 1000}, GENERIC, "Replication fileIoMaxLength (1000) is less than"),
        ({"live_destination": b"aeron:udp?endpoint=b:1"}, GENERIC, "cannot live merge without active sou"),
        ({"replication_channel": b"aeron:ipc", "channel_tag_id": 1}, GENERIC, "replication with tags or a live desti"),
        ({"channel_tag_id": 1}, GENERIC, "RegistrationError: destinations need"),
    ],
)
def test_what_is_wrong_with_a_request_ends_the_replication(fields: dict[str, Any], code: int, text: str) -> None:
    _, source, target = archives()
    source_id = recorded(source)
    requests = target.requests()
    before = resources(target)
    replication = requests.replicate(source, **({"recording_id": source_id} | fields))
    events = replication.finish(stops=False)
    [error] = [event for event in events if event[0] == "ERROR"]
    assert error[1] == code
    assert text in error[2]
    assert resources(target) == before


def test_a_recording_that_is_being_copied_is_not_copied_twice() -> None:
    world, source, target = archives()
    source_id, stream = recording(source)
    requests = target.requests()
    first = requests.replicate(source, source_id)
    first.until("EXTEND")
    assert requests.error("ReplicateRequest2", **replicate_fields(source.control_channel(), source_id,
                          dst_recording_id=0))[0] == ACTIVE_RECORDING  # fmt: skip
    second = target.requests().replicate(source, source_id)
    [replicate, error, end] = second.finish(stops=False)
    assert (replicate[:2], error[:2], end[:2]) == (
        ("REPLICATE", 1), ("ERROR", ACTIVE_SUBSCRIPTION), ("REPLICATE_END", 1)
    )  # fmt: skip
    stream.close()
    first.finish()
    assert target.content(0) == source.content(source_id)
    [reported] = world.texts()
    assert reported == error[2]


def test_a_full_disk_is_reported_as_such() -> None:
    _, source, target = archives(low_storage_space_threshold=1 << 60)
    source_id = recorded(source)
    [_, error, end] = target.requests().replicate(source, source_id).finish(stops=False)
    assert error[:2] == ("ERROR", STORAGE_SPACE)
    assert end == ("REPLICATE_END", 0, -1, False)


def test_a_write_that_fails_ends_the_replication_without_a_sync() -> None:
    _, source, target = archives()
    source_id = recorded(source, 400_000)
    replication = target.requests().replicate(source, source_id)
    replication.until("EXTEND")
    target.disk.fail("write", errno.ENOSPC, after=3)
    events = replication.finish()
    names = [event[0] for event in events]
    assert "SYNC" not in names
    [error] = [event for event in events if event[0] == "ERROR"]
    assert error[1] == STORAGE_SPACE
    start, stop = target.range(0)
    assert source.content(source_id).startswith(target.content(0))
    assert start < stop < source.range(source_id)[1]


def test_a_recording_of_another_kind_is_not_continued() -> None:
    _, source, target = archives()
    source_id = recorded(source, 50_000, channel="aeron:ipc?term-length=128k|mtu=1408")
    recorded(target, 10_000)
    before, content = target.range(0), target.content(0)
    replication = target.requests().replicate(source, source_id, dst_recording_id=0)
    [ok, error, end] = replication.finish(stops=False)
    assert (ok, error[:2], end) == (("OK",), ("ERROR", INVALID_EXTENSION), ("REPLICATE_END", 0, -1, False))
    assert (target.range(0), target.content(0)) == (before, content)


def test_a_recording_that_is_ahead_of_the_source_is_left_as_it_is() -> None:
    _, source, target = archives()
    source_id = recorded(source, 10_000)
    recorded(target, 20_000)
    before = target.range(0)
    events = target.requests().replicate(source, source_id, dst_recording_id=0).finish(stops=False)
    assert [event[0] for event in events] == ["OK", "ERROR", "REPLICATE_END"]
    assert events[1][1] == GENERIC
    assert "must be less than the limit position" in events[1][2]
    assert target.range(0) == before


class Password(Authenticator):
    """Accepts who has the password, and challenges who says nothing."""

    def __init__(self) -> None:
        self.credentials: dict[int, bytes] = {}

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.credentials[session_id] = encoded_credentials

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        credentials = self.credentials[session.session_id]
        if credentials == b"secret":
            session.authenticate(b"archive")
        elif credentials:
            session.reject()
        else:
            session.challenge(b"who are you?")


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (b"secret", None),
        (b"wrong", "authentication rejected"),
        (b"", "replication does not support challenge/response authentication"),
    ],
)
def test_credentials_are_for_the_source(credentials: bytes, text: str | None) -> None:
    world = MemoryWorld()
    source, target = world.archive(0, authenticator=Password()), world.archive(1)
    requests = source.requests(encoded_credentials=b"secret")
    requests.start_recording()
    stream = Stream(source)
    stream.fill(1000)
    stream.close()
    world.until(lambda: source.store.catalog.has(0) and not source.store.is_active(0))
    replication = target.requests().replicate(source, 0, encoded_credentials=credentials)
    events = replication.finish(stops=text is None)
    errors = [event for event in events if event[0] == "ERROR"]
    if text is None:
        assert errors == []
        assert target.content(0) == source.content(0)
    else:
        assert errors == [("ERROR", REPLICATION_CONNECTION_FAILURE, f"Replication connection failed={text}")]


# Whenever the end comes


def ended_after(turns: int, end: Callable[[Requests, Archive, Archive, int], object], is_active: bool) -> list[str]:
    """The names of what came of a replication that ended after some turns."""
    world, source, target = archives(message_timeout_ns=100 * MS)
    source_id = recording(source, 150_000)[0] if is_active else recorded(source, 150_000)
    requests = target.requests()
    before = resources(target)
    replication = requests.replicate(source, source_id)
    for _ in range(turns):
        world.turn()
    end(requests, source, target, replication.replication_id)
    replication.until("REPLICATE_END")
    for _ in range(300):
        world.turn()
    names = replication.names()
    assert names.count("REPLICATE_END") == 1
    assert names.count("EXTEND") == names.count("STOP")
    assert resources(target) == before
    for recording_id in target.store.catalog.recording_ids():
        assert source.content(source_id).startswith(target.content(recording_id))
    return names


def stop(requests: Requests, source: Archive, target: Archive, replication_id: int) -> None:
    requests.send("StopReplicationRequest", replication_id=replication_id)


def vanish(requests: Requests, source: Archive, target: Archive, replication_id: int) -> None:
    source.vanish()


@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("end", [stop, vanish])
def test_the_end_is_announced_once_whenever_it_comes(
    end: Callable[[Requests, Archive, Archive, int], object], is_active: bool
) -> None:
    kinds = {tuple(sorted(set(ended_after(turns, end, is_active)))) for turns in range(45)}
    assert len(kinds) > 2, "some ended before anything was recorded, and some after that"


@pytest.mark.parametrize("turns", range(0, 45, 4))
def test_an_archive_that_is_closed_leaves_nothing_open(turns: int) -> None:
    world, source, target = archives()
    source_id = recording(source, 150_000)[0]
    target.requests().replicate(source, source_id)
    for _ in range(turns):
        world.turn()
    target.conductor.close()
    target.is_working = False
    assert [each for each in resources(target) if not isinstance(each, Counter)] == []
    for recording_id in target.store.catalog.recording_ids():
        start, stop_position = target.range(recording_id)
        assert stop_position >= start
        assert source.content(source_id).startswith(target.content(recording_id))
    assert world.texts() == []


class Host:
    """An archive of which replications need nothing but its client and its settings."""

    def __init__(self, world: ControlWorld) -> None:
        self.client = world.client
        self.settings = ArchiveSettings(replication_channel="aeron:udp?endpoint=localhost:1", message_timeout_ns=MS)
        self.store: Any = SimpleNamespace(catalog=None)

    def extend_for_replication(self, *arguments: object) -> Any:
        raise AssertionError(arguments)

    def stop_recording(self, subscription: object) -> None:
        raise AssertionError(subscription)


def replication_alone() -> tuple[ControlWorld, RawClient, ReplicationSession]:
    world = ControlWorld()
    client = world.connect()
    control_session = client.open()
    request = ReplicationRequest(3, src_control_channel="aeron:ipc", dst_recording_id=9)
    return world, client, ReplicationSession(Host(world), control_session, replication_id=88, request=request)


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("calls", [("close", "close"), ("close", "stop", "do_work"), ("stop", "do_work", "close")])
def test_the_end_comes_once_however_it_is_asked_for(turns: int, calls: tuple[str, ...]) -> None:
    _, client, session = replication_alone()
    for _ in range(turns):
        session.do_work()
    for call in calls:
        getattr(session, call)()
    assert (session.is_done, session.state, session.error, session.source) == (True, "DONE", None, None)
    assert session.do_work() == 0
    [(name, signal)] = client.received()
    del signal["control_session_id"]
    assert (name, signal) == (
        "RecordingSignalEvent",
        {"correlation_id": 88, "recording_id": 9, "subscription_id": -1, "position": -1, "signal": 7},
    )


def test_what_failed_is_kept_for_the_archive() -> None:
    world, client, session = replication_alone()
    session.do_work()
    assert (session.state, session.is_done, session.error) == ("CONNECT", False, None)
    assert session.source is not None
    world.clock.advance(MS)
    assert session.do_work() == 2
    assert session.is_done
    assert session.error is not None
    assert (session.error.code, session.error.correlation_id) == (REPLICATION_CONNECTION_FAILURE, 88)
    assert str(session.error).startswith("Replication connection failed=waited 0.001 s for the driver to add")
    assert [name for name, _ in client.received()] == ["ControlResponse", "RecordingSignalEvent"]
    assert repr(session) == "<ReplicationSession 88 DONE recording 3 to 9>"
    assert STATES[0] == "CONNECT"


def test_a_session_that_is_gone_is_sent_nothing() -> None:
    world, client, session = replication_alone()
    client.send("CloseSessionRequest")
    world.work(3)
    world.clock.advance(MS)
    session.do_work()
    session.close()
    assert session.is_done


def test_a_cut_network_ends_it() -> None:
    world = NetworkWorld()
    source, target = world.archive(0), world.archive(1, message_timeout_ns=1000 * MS)
    source_id, stream = recording(source)
    replication = target.requests().replicate(source, source_id)
    world.until(lambda: target.store.catalog.has(0) and target.store.recorded_position(0) == stream.position)
    world.network.fabric.cut("a", "b")
    world.network.run(12_000 * MS)
    events = replication.finish()
    assert [event for event in events if event[0] == "SYNC"] == []
    assert target.range(0) == (0, stream.position)


# A source that is not as it should be


class ScriptedSource(ScriptedArchive):
    """A source with one recording, of which nothing is known but its descriptor."""

    def __init__(self, world: MemoryWorld, **descriptor: Any) -> None:
        super().__init__(world.driver, control_channel=SOURCE_CHANNEL)
        self.descriptor = {
            "recording_id": 5,
            "start_timestamp": 1,
            "stop_timestamp": -1,
            "start_position": 0,
            "stop_position": 1024,
            "initial_term_id": 3,
            "segment_file_length": 128 * 1024,
            "term_buffer_length": 64 * 1024,
            "mtu_length": 1408,
            "session_id": 4711,
            "stream_id": 12,
            "stripped_channel": b"aeron:ipc",
            "original_channel": b"aeron:ipc?alias=x",
            "source_identity": b"aeron:ipc",
        } | descriptor

    def on_ListRecordingRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        self.send(
            session,
            "RecordingDescriptor",
            control_session_id=session.id,
            correlation_id=request["correlation_id"],
            **self.descriptor,
        )

    def on_RecordingPositionRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        self.respond(session, request["correlation_id"], 2048)

    def on_StopReplayRequest(self, session: Session, request: Request) -> None:  # noqa: N802
        """Nobody waits for the answer."""


def scripted(**descriptor: Any) -> tuple[MemoryWorld, ScriptedSource, Archive, Requests]:
    world = MemoryWorld()
    source = ScriptedSource(world, **descriptor)
    target = world.archive(1, message_timeout_ns=200 * MS)
    return world, source, target, target.requests()


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("recording_id", 6, "recordingId=6"),
        ("term_buffer_length", 0, "termBufferLength=0"),
        ("term_buffer_length", 96 * 1024, "termBufferLength=98304"),
        ("segment_file_length", -1, "segmentFileLength=-1"),
        ("segment_file_length", 32 * 1024, "segmentFileLength=32768"),
        ("mtu_length", 33, "mtuLength=33"),
        ("mtu_length", 0, "mtuLength=0"),
        ("start_position", -32, "startPosition=-32"),
        ("start_position", 33, "startPosition=33"),
        ("start_position", 2**61 + 32, "startPosition=2305843009213693984, stopPosition=1024"),
        ("stop_position", -32, "stopPosition=-32"),
        ("stop_position", 1025, "stopPosition=1025"),
        ("start_position", 2048, "stopPosition=1024"),
    ],
)
def test_nothing_that_cannot_be_goes_into_the_catalog(field: str, value: int, shown: str) -> None:
    _, _, target, requests = scripted(**{field: value})
    [error, end] = requests.replicate(SOURCE_CHANNEL, 5).finish(stops=False)
    assert error == ("ERROR", GENERIC, f"the source cannot have recording 5 with {shown}")
    assert end == END
    assert target.store.catalog.recording_ids() == []


STEPS = {
    "AuthConnectRequest": REPLICATION_CONNECTION_FAILURE,
    "ArchiveIdRequest": REPLICATION_CONNECTION_FAILURE,
    "ListRecordingRequest": GENERIC,
    "ReplayRequest": GENERIC,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["silent", "refused", "garbage", "foreign", "gone"])
def test_a_source_fails_at_each_step(step: str, kind: str) -> None:
    world, source, target, requests = scripted()
    before = resources(target)

    def misbehave(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        answering = archive.open_session(request) if session is None else session
        if kind == "garbage":
            seam.offer(answering.publication, b"xyz")
        elif kind == "foreign":
            seam.offer(answering.publication, bytes(64))
        elif kind == "gone":
            archive.client.close()

    if kind == "refused":
        source.refuse(step, 6, "no, not now")
    else:
        source.hooks[step] = misbehave
    events = requests.replicate(SOURCE_CHANNEL, 5).finish(stops=False)
    [error] = [event for event in events if event[0] == "ERROR"]
    assert error[1] == STEPS[step]
    expected = {
        "silent": "waited 0.2 s for",
        "refused": "no, not now",
        "garbage": "too short for a message header",
        "foreign": "expected schemaId=101, actual=0",
        "gone": "",
    }
    assert expected[kind] in error[2]
    assert len(error[2]) < 600
    assert resources(target) == before
    [reported] = world.texts()
    assert reported == error[2]


def test_a_replay_that_does_not_come_is_given_up_and_stopped() -> None:
    _, source, target, requests = scripted()

    def replay(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 3 << 32 | 4711)

    source.hooks["ReplayRequest"] = replay
    events = requests.replicate(SOURCE_CHANNEL, 5).finish(stops=False)
    assert [event[0] for event in events] == ["REPLICATE", "OK", "ERROR", "REPLICATE_END"]
    assert events[2][2].startswith(f"waited 0.2 s for the image of replay {3 << 32 | 4711} on aeron:udp?endpoint=loc")
    assert source.request_names()[-2:] == ["StopReplayRequest", "CloseSessionRequest"]
    assert source.request("StopReplayRequest")["replay_session_id"] == 3 << 32 | 4711
    assert target.range(0) == (0, 0)


def test_what_the_source_is_asked_for() -> None:
    _, source, _, requests = scripted(start_position=64, stop_position=-1)
    fields = {"file_io_max_length": 4096, "replication_session_id": -77, "stop_position": 1024}
    requests.replicate(
        SOURCE_CHANNEL, 5, replication_channel=b"aeron:udp?endpoint=localhost:7|alias=r", **fields
    ).finish(stops=False)  # the source has no frames to replay
    assert source.request_names() == [
        "AuthConnectRequest", "ArchiveIdRequest", "ListRecordingRequest", "ReplayRequest", "CloseSessionRequest"
    ]  # fmt: skip
    connect = source.request("AuthConnectRequest")
    assert connect["client_info"].startswith(b"name=host 1 replicationSessionId=")
    assert connect["response_channel"].startswith(b"aeron:udp?endpoint=localhost:")
    replay = source.request("ReplayRequest")
    del replay["control_session_id"], replay["correlation_id"]
    assert replay == {
        "recording_id": 5,
        "position": 64,
        "length": 960,
        "replay_stream_id": 12,
        "file_io_max_length": 4096,
        "replay_token": -1,
        "replay_channel": b"aeron:udp?endpoint=localhost:7|alias=r|session-id=-77",
    }


def test_an_error_of_the_source_ends_a_replication_that_waits() -> None:
    _, source, _, requests = scripted()

    def replay(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 3 << 32 | 4711)
        archive.respond(session, 1, 16, code=1, error_message="the disk is gone")

    source.hooks["ReplayRequest"] = replay
    events = requests.replicate(SOURCE_CHANNEL, 5).finish(stops=False)
    assert events[-2:] == [("ERROR", GENERIC, "the disk is gone"), ("REPLICATE_END", 0, -1, False)]


def test_an_archive_without_an_id_is_not_asked_for_it() -> None:
    _, source, _, requests = scripted()
    source.version = 1 << 16 | 10 << 8
    source.ignore("ListRecordingRequest")
    requests.replicate(SOURCE_CHANNEL, 5).finish(stops=False)
    assert source.request_names() == ["AuthConnectRequest", "ListRecordingRequest", "CloseSessionRequest"]


def test_messages_of_others_are_passed_over() -> None:
    _, source, _, requests = scripted(stop_position=0)

    def describe(archive: ScriptedArchive, session: Session | None, request: Request) -> None:
        assert session is not None
        archive.respond(session, request["correlation_id"], 9, control_session_id=session.id + 1)
        archive.respond(session, request["correlation_id"] - 1, 9)
        archive.respond(session, 5, 9, code=1, error_message="not yours", control_session_id=session.id + 1)
        archive.send(session, "Ping", control_session_id=session.id)
        source.on_ListRecordingRequest(session, request)

    source.hooks["ListRecordingRequest"] = describe
    events = requests.replicate(SOURCE_CHANNEL, 5).finish(stops=False)
    assert [event[0] for event in events] == ["REPLICATE", "SYNC", "REPLICATE_END"]
