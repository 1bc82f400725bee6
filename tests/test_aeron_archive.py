"""The public client of an archive, against the native archive in memory: every request, and every error code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from container.archive import (
    REPLAY_ALL_AND_STOP,
    AeronArchive,
    ArchiveClientContext,
    RecordingSignal,
    RecordingSignalEvent,
    error_codes,
)
from container.archive.authentication import Authenticator, DenyAll, SessionProxy
from container.archive.client.archive_connection import ArchiveConnection, ArchiveRequest
from container.errors import ArchiveError, ConfigurationError, TimedOutError
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import SteppingIdleStrategy
from tests.archive_tour import CHANNEL, REPLAY_CHANNEL, REPLAY_STREAM_ID, SEGMENT_LENGTH, TOURS, Tour
from tests.archive_world import DIRECTORY, ArchiveWorld
from tests.control_world import CONTROL_CHANNEL

MS = 1_000_000
RECORDING_POSITION = 100
CONTEXT = ArchiveClientContext(control_channel=CONTROL_CHANNEL, client_name="program")


class Program:
    """A session with an archive in memory, which works while the session waits."""

    def __init__(self, world: ArchiveWorld, **settings: Any) -> None:
        self.world = world
        self.client = world.driver.connect("program")
        self.signals: list[RecordingSignalEvent] = []
        self.archive = AeronArchive.connect(
            settings.pop("context", CONTEXT),
            client=self.client,
            idle_strategy=SteppingIdleStrategy(self.step, max_idles=1_000_000),
            on_signal=self.signals.append,
            **settings,
        )

    def step(self) -> None:
        self.world.clock.advance(MS)
        self.world.work()

    def check(self) -> bool:
        self.archive.check_for_error_response()
        return False

    def until(self, predicate: Callable[[], object]) -> None:
        def is_true() -> object:
            self.world.clock.advance(MS)
            seam.invoke(self.client)
            return predicate()

        self.world.until(is_true)

    def counter_of(self, recording_id: int) -> int:
        counters = seam.counters(self.client)
        for counter_id in range(seam.counter_capacity(counters)):
            record = seam.counter_record(counters, counter_id)
            if (record["state"], record["type_id"]) == (1, RECORDING_POSITION) and record["label"].startswith(
                f"rec-pos: {recording_id} "
            ):
                return counter_id
        raise AssertionError(f"recording {recording_id} has no counter")

    def tour(self) -> Tour:
        return Tour(self.archive, self.until, self.counter_of, self.signals, CONTROL_CHANNEL)


@pytest.fixture
def program() -> Program:
    return Program(ArchiveWorld())


@pytest.mark.parametrize("tour", TOURS, ids=lambda tour: tour.__name__)
def test_every_request_is_done_or_refused(program: Program, tour: Callable[[Tour], None]) -> None:
    tour(program.tour())
    program.archive.close()
    assert program.client.open_resources == []


def test_more_recordings_than_there_may_be_are_refused(program: Program) -> None:
    publications = [program.archive.add_recorded_publication(CHANNEL, 100 + number) for number in range(20)]
    program.until(lambda: program.archive.poll_for_recording_signals() < 0 or len(program.signals) == 20)
    with pytest.raises(ArchiveError, match="max concurrent recordings reached 20") as refused:
        program.archive.add_recorded_publication(CHANNEL, 120)
    assert refused.value.code == error_codes.MAX_RECORDINGS
    for publication in publications:
        publication.close()


def test_a_full_disk_is_told_by_its_code() -> None:
    program = Program(ArchiveWorld(low_storage_space_threshold=1 << 62))
    with pytest.raises(ArchiveError, match="^start recording of ") as refused:
        program.archive.start_recording(CHANNEL, 1)
    assert refused.value.code == error_codes.STORAGE_SPACE == ArchiveError.STORAGE_SPACE


def test_what_is_not_allowed_is_told_by_its_code() -> None:
    with pytest.raises(ArchiveError) as refused:
        Program(ArchiveWorld(authorisation_service=DenyAll()))
    assert refused.value.code == error_codes.UNAUTHORISED_ACTION


def test_a_second_list_at_the_same_time_is_refused(program: Program) -> None:
    tour = program.tour()
    for number in range(3):
        tour.recording(1, number + 1)
    connection = connected(program)
    first, second = listed(connection), listed(connection)
    settle(program, connection)
    assert ([each.recording_id for each in first.items], first.error) == ([0], None)
    assert isinstance(second.error, ArchiveError)
    assert second.error.code == error_codes.ACTIVE_LISTING


class Gate(Authenticator):
    """Lets a client in that knows the answer."""

    def __init__(self) -> None:
        self.answer = b""

    def on_connected_session(self, session: SessionProxy, now_ms: int) -> None:
        self.answer = b""
        session.challenge(b"the word?")

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.answer = encoded_credentials

    def on_challenged_session(self, session: SessionProxy, now_ms: int) -> None:
        if self.answer == b"the word? is right":
            session.authenticate(b"")
        elif self.answer:
            session.reject()


class Credentials:
    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def encoded_credentials(self) -> bytes:
        return b"me"

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        return encoded_challenge + self.answer


def test_a_client_answers_the_archives_challenge() -> None:
    world = ArchiveWorld(authenticator=Gate())
    context = ArchiveClientContext(control_channel=CONTROL_CHANNEL, credentials_supplier=Credentials(b" is right"))
    program = Program(world, context=context)
    assert program.archive.list_recordings(0, 1) == []
    program.archive.reconnect()
    assert program.archive.list_recordings(0, 1) == []


def test_a_client_that_is_rejected_is_told_by_its_code() -> None:
    context = ArchiveClientContext(control_channel=CONTROL_CHANNEL, credentials_supplier=Credentials(b" is wrong"))
    with pytest.raises(ArchiveError, match="authentication rejected") as refused:
        Program(ArchiveWorld(authenticator=Gate()), context=context)
    assert refused.value.code == error_codes.AUTHENTICATION_REJECTED


# Several in flight


def connected(program: Program, **settings: Any) -> ArchiveConnection:
    connection = ArchiveConnection(
        program.client, ArchiveClientContext(control_channel=CONTROL_CHANNEL, response_stream_id=21, **settings)
    )
    connection.connect(SteppingIdleStrategy(program.step))
    return connection


def listed(connection: ArchiveConnection) -> ArchiveRequest:
    return connection.ask("ListRecordingsRequest", "a list", {"from_recording_id": 0, "record_count": 1}, 1)


def positioned(connection: ArchiveConnection, recording_id: int, timeout_ns: int = -1) -> ArchiveRequest:
    return connection.ask("StopPositionRequest", "an end", {"recording_id": recording_id}, timeout_ns=timeout_ns)


def settle(program: Program, connection: ArchiveConnection) -> None:
    def is_settled() -> bool:
        connection.turn()
        return connection.waiting == 0

    program.until(is_settled)


def test_each_answer_and_each_error_goes_to_its_owner(program: Program) -> None:
    tour = program.tour()
    ends = {}
    for number in range(3):
        recording_id, ends[number] = tour.recording(number + 1, 100 + number)
        assert recording_id == number
    connection = connected(program)
    done: list[int] = []
    requests = [positioned(connection, number % 4) for number in range(40)]
    for request in requests:
        request.on_done = lambda request: done.append(request.correlation_id)
    assert connection.waiting == 40
    settle(program, connection)
    assert done == [request.correlation_id for request in requests]
    for number, request in enumerate(requests):
        if number % 4 == 3:
            assert isinstance(request.error, ArchiveError)
            assert request.error.code == error_codes.UNKNOWN_RECORDING
            assert request.error.correlation_id == request.correlation_id
        else:
            assert (request.error, request.relevant_id) == (None, ends[number % 4])
    assert connection.take_error() is None


def test_each_request_has_its_own_deadline(program: Program) -> None:
    connection = connected(program)  # the archive has no turn from now on
    late, early = (positioned(connection, 0, timeout_ns=limit * MS) for limit in (50, 20))
    ended: list[ArchiveRequest] = []
    late.on_done = early.on_done = ended.append
    for _ in range(19):
        program.world.clock.advance(MS)
        connection.turn()
    assert ended == []
    program.world.clock.advance(MS)
    connection.turn()
    assert ended == [early]
    assert isinstance(early.error, TimedOutError)
    program.world.clock.advance(30 * MS)
    connection.turn()
    assert ended == [early, late]


def test_a_forgotten_request_is_not_told_of_its_answer(program: Program) -> None:
    connection = connected(program)
    request = positioned(connection, 0)
    told: list[ArchiveRequest] = []
    request.on_done = told.append
    connection.forget(request)
    connection.forget(request)
    for _ in range(10):
        program.step()
        connection.turn()
    assert (told, request.is_done, request.error, connection.waiting) == ([], True, None, 0)


def test_there_is_a_limit_to_the_requests_in_flight(program: Program) -> None:
    connection = connected(program)
    requests = [positioned(connection, 0) for _ in range(4096)]
    with pytest.raises(ArchiveError, match="4096 requests wait for their answers already, no room for an end"):
        positioned(connection, 0)
    settle(program, connection)
    assert {type(each.error) for each in requests} == {ArchiveError}
    assert positioned(connection, 0).correlation_id > 0


def test_an_error_of_a_recording_is_told_to_whoever_checks(program: Program) -> None:
    tour = program.tour()
    recording_id, _ = tour.recording(3)
    other = program.client
    program.archive.extend_recording(recording_id, CHANNEL, 1001)
    publication = seam.add_publication(other, CHANNEL, 1001, exclusive=True)  # which begins elsewhere
    with pytest.raises(ArchiveError, match="archive error: ") as refused:
        program.until(program.check)
    assert refused.value.code == error_codes.INVALID_EXTENSION
    publication.close()


# Sessions


def test_a_session_is_opened_anew(program: Program) -> None:
    first = program.archive.control_session_id
    recording_id, end = program.tour().recording(1)
    program.world.reopen()
    program.until(lambda: not program.archive.is_connected)
    with pytest.raises(ArchiveError, match="connection to the archive is lost"):
        program.archive.get_stop_position(recording_id)
    program.archive.reconnect()
    assert program.archive.is_connected
    assert program.archive.get_stop_position(recording_id) == end
    program.archive.reconnect()
    assert program.archive.control_session_id != first
    assert program.archive.get_stop_position(recording_id) == end
    program.archive.close()
    with pytest.raises(ArchiveError, match="client is closed"):
        program.archive.reconnect()
    assert program.client.open_resources == []


def test_requests_in_flight_end_with_their_session(program: Program) -> None:
    connection = connected(program)
    request = positioned(connection, 0)
    connection.reconnect()
    assert request.is_done
    assert "given up for a new one" in str(request.error)
    connection.close()
    assert connection.step == "CLOSED"


def test_a_signal_says_what_has_happened_to_a_recording(program: Program) -> None:
    recording_id, end = program.tour().recording(1)
    program.until(lambda: program.archive.poll_for_recording_signals() < 0 or program.signals)
    [stop] = program.signals
    assert (stop.signal, stop.recording_id, stop.position) == (RecordingSignal.STOP, recording_id, end)


def test_a_session_is_closed_at_the_end_of_its_block(program: Program) -> None:
    with program.archive as archive:
        assert repr(archive) == (
            "<AeronArchive <ArchiveConnection CONNECTED on aeron:ipc?term-length=64k|mtu=1408|sparse=false stream 10> "
            "archive_id=42>"
        )
        assert (archive.archive_id, archive.context) == (42, CONTEXT)
    with pytest.raises(ArchiveError, match="client is closed"):
        archive.list_recordings(0, 1)


@pytest.mark.parametrize("count", [0, -1])
def test_nothing_is_listed_only_by_mistake(program: Program, count: int) -> None:
    for ask in (
        lambda: program.archive.list_recordings(0, count),
        lambda: program.archive.list_recordings_for_uri(0, count, "", 1),
        lambda: program.archive.list_recording_subscriptions(0, count, "", 1, apply_stream_id=False),
    ):
        with pytest.raises(ConfigurationError, match=f"at least 1 must be listed, not {count}"):
            ask()


def test_what_cannot_be_sent_is_refused(program: Program) -> None:
    with pytest.raises(ConfigurationError, match="channel must be ASCII"):
        program.archive.start_recording("aeron:ipc?alias=\N{SNOWMAN}", 1)
    with pytest.raises(ConfigurationError, match="replay_channel must be a str, not 5"):
        program.archive.start_replay(0, 0, -1, 5, 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="give a context or settings, not both: control_stream_id"):
        AeronArchive.connect(CONTEXT, client=program.client, control_stream_id=4)


# What a session is not disturbed by


def test_what_on_signal_asks_is_refused(program: Program) -> None:
    """Upstream: AeronArchive.ensureNotReentrant(); the signal would be read again, and call it again."""
    texts: list[str] = []

    def on_signal(event: RecordingSignalEvent) -> None:
        for ask in (lambda: program.archive.get_start_position(event.recording_id), program.archive.reconnect):
            with pytest.raises(
                ArchiveError, match="the archive's messages are being read: on_signal may not"
            ) as refused:
                ask()
            texts.append(str(refused.value))

    archive = AeronArchive.connect(
        CONTEXT,
        client=program.client,
        idle_strategy=SteppingIdleStrategy(program.step, max_idles=1_000_000),
        on_signal=on_signal,
    )
    program.archive.close()
    program.archive = archive
    publication = archive.add_recorded_publication(CHANNEL, 1)
    program.until(lambda: archive.poll_for_recording_signals() < 0 or texts)
    assert len(texts) == 2
    assert archive.get_start_position(0) == 0
    publication.close()


def test_a_session_may_be_closed_by_on_signal(program: Program) -> None:
    program.archive.close()
    program.archive = AeronArchive.connect(
        CONTEXT,
        client=program.client,
        idle_strategy=SteppingIdleStrategy(program.step, max_idles=1_000_000),
        on_signal=lambda _event: program.archive.close(),
    )
    publication = program.archive.add_recorded_publication(CHANNEL, 1)
    with pytest.raises(ArchiveError, match="client is closed"):
        program.until(lambda: program.archive.poll_for_recording_signals() < 0)
    publication.close()
    assert program.client.open_resources == []


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_the_error_of_a_request_that_was_given_up_is_passed_over(program: Program, is_forgotten: bool) -> None:
    connection = connected(program)
    request = positioned(connection, 99, timeout_ns=MS)
    connection.turn()
    if is_forgotten:
        connection.forget(request)
    else:
        program.world.clock.advance(MS)
        connection.turn()
    assert request.is_done
    settle(program, connection)
    other = positioned(connection, 98)
    settle(program, connection)
    assert isinstance(other.error, ArchiveError)
    assert connection.take_error() is None


@pytest.mark.parametrize("timeout_ns", [1 << 62, (1 << 63) - 1])
def test_a_limit_may_be_as_good_as_none(timeout_ns: int) -> None:
    world = ArchiveWorld()
    world.clock.advance((1 << 62) + 1)
    context = ArchiveClientContext(control_channel=CONTROL_CHANNEL, message_timeout_ns=timeout_ns)
    program = Program(world, context=context)
    recording_id, end = program.tour().recording(2)
    assert [each.stop_position for each in program.archive.list_recordings(recording_id, 5)] == [end]


# Replays that are cut short


def test_a_replay_that_fails_is_not_taken_for_whole(program: Program) -> None:
    recording_id, _ = program.tour().recording(300)
    program.world.storage.unlink(f"{DIRECTORY}/{recording_id}-{SEGMENT_LENGTH}.rec")
    read: list[bytes] = []
    with pytest.raises(ArchiveError, match="archive error: "):  # noqa: PT012
        for message, _ in program.archive.read(
            program.archive.replay(recording_id, 0, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, REPLAY_STREAM_ID)
        ):
            read.append(message)
    assert len(read) == 128
    assert program.archive.list_recording(recording_id) is not None


def test_a_replay_whose_archive_ends_is_not_taken_for_whole(program: Program) -> None:
    recording_id, _ = program.tour().recording(300)
    replay = program.archive.replay(recording_id, 0, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, REPLAY_STREAM_ID)
    messages = program.archive.read(replay)
    next(messages)
    program.world.reopen()
    with pytest.raises(ArchiveError, match=r"replay \d+ has ended at \d+, before its end|archive is lost"):
        list(messages)


def test_a_replay_that_nobody_takes_in_time_does_not_wait_for_ever(program: Program) -> None:
    recording_id, _ = program.tour().recording(3)
    replay = program.archive.replay(recording_id, 0, REPLAY_ALL_AND_STOP, REPLAY_CHANNEL, REPLAY_STREAM_ID)
    program.archive.stop_all_replays()
    for _ in range(10):
        program.step()
        seam.invoke(program.client)
    with pytest.raises(TimedOutError, match=r"waited 10 s for the image of replay \d+ on "):
        list(program.archive.read(replay))
