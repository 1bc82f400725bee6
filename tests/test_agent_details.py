"""Details of the agent over memory, one by one: what a small mistake in it would change."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest

from container.api import CloseReason, Role, SessionMessages, TimeUnit
from container.archive.client.archive_client_context import ArchiveClientContext
from container.archive.client.archive_snapshot_store import ArchiveSnapshotStore
from container.errors import AgentTermination, ArchiveError, ConfigurationError, ContainerError
from container.service.agent_events import AgentListener
from container.service.service_agent import ServiceAgent
from container.testing.memory import transport_probe as seam
from container.testing.memory.manual_time import SteppingIdleStrategy
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_consensus_module import ScriptedConsensusModule
from container.testing.memory.scripted_member import ScriptedMember
from container.transport.message_buffer import BufferClaim
from container.transport.streams import Publication, Subscription
from tests.scripted_archive import ERROR, Recording, ScriptedArchive

BACK_PRESSURED = -2
NULL_VALUE = -1


def frame_length(message: bytes) -> int:
    """Bytes of a message in a stream, with its frame's header and padding."""
    return (32 + len(message) + 31) & -32


class Batches(RecordingService):
    """Takes many messages at once, and sends each of them to the cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[bytes]] = []

    def on_session_messages(self, messages: SessionMessages) -> None:
        self.batches.append([messages.payload(index) for index in range(len(messages))])
        for index in messages:
            self.cluster.offer(messages.payload(index))


class SlowArchive(ScriptedArchive):
    """Replays one message each time that it is asked to with ``release``, and closes the replay with the last."""

    def __init__(self, member: ScriptedMember) -> None:
        super().__init__(member.driver)
        self.replays: list[tuple[Publication, list[bytes]]] = []
        member.context.snapshot_store = ArchiveSnapshotStore(member.client, ArchiveClientContext.for_service(0, 0))
        member.agent = type(member.agent)(member.context)

    def add(self, messages: list[bytes]) -> int:
        """The id of a recording of these messages."""
        subscription = seam.add_subscription(self.client, "aeron:ipc?alias=unused", 9999)
        position = sum(frame_length(message) for message in messages)
        self.recordings[len(self.recordings)] = Recording(
            len(self.recordings), 106, subscription, position=position, messages=list(messages)
        )
        return len(self.recordings) - 1

    def _replay(self) -> None:
        for replay in list(self._pending_replays):
            publication, recording, _, _ = replay
            if seam.is_connected(publication):
                self._pending_replays.remove(replay)
                self.replays.append((publication, list(recording.messages)))

    def release(self) -> None:
        """Sends the next message of the replay, if there is one."""
        for publication, messages in self.replays:
            if messages:
                assert seam.offer(publication, messages.pop(0)) > 0
                if not messages:
                    publication.close()

    def fail(self, text: str) -> None:
        """Reports an error to the session that is open."""
        (session,) = self.sessions.values()
        self.respond(session, -1, ArchiveError.STORAGE_SPACE, code=ERROR, error_message=text)


def open_streams(member: ScriptedMember, stream_id: int) -> int:
    """How many streams with this id the agent has open."""
    return sum(getattr(each, "stream_id", 0) == stream_id for each in member.client.open_resources)


def snapshot_messages(*state: bytes) -> list[bytes]:
    """What a member writes when it has no sessions."""
    member = ScriptedMember().lead()

    def write(publication: Any) -> None:
        for message in state:
            publication.send(message)

    member.in_callback(write, "on_take_snapshot")
    return member.take_snapshot()


def with_slow_archive(*state: bytes) -> tuple[ScriptedMember, SlowArchive]:
    """A member that finds a snapshot whose replay is slow."""
    member = ScriptedMember()
    archive = SlowArchive(member)
    member.cm.start(recording_ids=[archive.add(snapshot_messages(*state))], leadership_term_id=1)
    return member, archive


# a snapshot that comes slowly


def test_a_snapshot_whose_messages_come_one_by_one_is_waited_for() -> None:
    member, archive = with_slow_archive(b"one", b"two", b"three")
    member.during_idle = [archive.release] * 1_000
    before = member.idle_strategy.idle_count
    member.agent.on_start()
    assert member.service.snapshot == [b"one", b"two", b"three"]
    assert member.idle_strategy.idle_count - before >= 5
    assert member.cm.acks[0].relevant_id == member.client_id


def test_a_snapshot_that_is_slow_keeps_the_mark_file_alive_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    member, archive = with_slow_archive(b"one")
    member.idle_ns = 500_000_000
    later: list[Any] = [lambda: None] * 16
    member.during_idle = [*later, archive.release, archive.release, *later, archive.release]
    with caplog.at_level("INFO", "container"):
        member.agent.on_start()
    assert member.service.snapshot == [b"one"]
    assert len(member.mark_file.activity_timestamps) >= 12
    texts = [record.getMessage() for record in caplog.records]
    assert any("still waiting for the replay of snapshot recording 0" in text for text in texts)
    assert any("still waiting for the next message of the snapshot" in text for text in texts)
    waits = [record.__dict__["fields"] for record in caplog.records if record.__dict__.get("event") == "waiting"]
    assert {wait["source"] for wait in waits} == {"clustered-service-0-0"}
    assert "clustered-service-0-0: still waiting for the replay of snapshot recording 0 after 5 s" in texts


@pytest.mark.parametrize("released", [0, 1, 2, 3])
def test_an_archive_error_while_a_slow_snapshot_is_loaded_fails_the_start(released: int) -> None:
    member, archive = with_slow_archive(b"one", b"two")
    releases = [archive.release] * released

    def step() -> None:
        if archive.replays:
            if releases:
                releases.pop()()
            elif member.cm.acks == []:
                archive.fail("the disk is gone")
                archive.replays.clear()

    member.during_idle = [step] * 1_000
    with pytest.raises(AgentTermination, match="the disk is gone") as raised:
        member.agent.on_start()
    assert isinstance(raised.value.__cause__, ArchiveError)
    assert member.cm.acks[0].relevant_id == NULL_VALUE


@pytest.mark.parametrize("is_restored", [False, True])
def test_an_ack_of_a_start_that_can_not_be_sent_fails_the_start(*, is_restored: bool) -> None:
    member = ScriptedMember()
    if is_restored:  # from a snapshot that is not there: then that is the reason
        member.cm.start(recording_ids=[99], leadership_term_id=1)
    else:
        member.cm.start()
    member.results(-1)
    with pytest.raises(
        (AgentTermination, ContainerError), match="unknown recording" if is_restored else "is not connected"
    ):
        member.agent.on_start()
    assert ["is not connected" in str(error) for error in member.errors] == [True] * is_restored
    assert member.cm.acks == []


def test_a_start_that_reads_nothing_of_the_snapshot_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    member = ScriptedMember()
    member.service.actions["on_start"] = lambda *_: None
    with caplog.at_level("WARNING", "container"):
        member.start(snapshot_messages(b"one", b"two"))
    assert [each.getMessage() for each in caplog.records] == [
        "RecordingService.on_start read no state of the snapshot: this member begins without it, and differs from the "
        "others. Call container.read_snapshot(snapshot_image, ...)"
    ]


def test_a_start_that_leaves_a_part_of_the_snapshot_unread_says_where(caplog: pytest.LogCaptureFixture) -> None:
    member = ScriptedMember()
    member.service.actions["on_start"] = lambda _cluster, image: next(iter(image))
    recording = member.store.add_recording(snapshot_messages(b"one", b"two"))
    with caplog.at_level("WARNING", "container"):
        member.start(recording_ids=[recording], leadership_term_id=1)
    (text,) = [each.getMessage() for each in caplog.records]
    end = member.store.recording(recording).recorded_position
    assert text == (
        f"on_start returned at position {end - 64} of the snapshot, which ends at {end}: the rest was not read"
    )


def test_the_replay_of_a_snapshot_is_closed_when_it_was_read() -> None:
    member = ScriptedMember()
    replays = member.in_callback(lambda *_: open_streams(member, 103), "on_start")
    member.start(snapshot_messages(b"one"))
    assert (replays, open_streams(member, 103)) == ([1], 0)


def test_a_snapshot_that_is_all_there_is_read_before_the_archive_is_asked_about_it() -> None:
    member = ScriptedMember()
    member.store.script("check", [ArchiveError("the disk is gone")])
    member.start(snapshot_messages(b"one", b"two"))
    assert member.service.snapshot == [b"one", b"two"]


@pytest.mark.parametrize("version", [3, 9])
def test_the_version_validator_is_asked_for_the_containers_version_and_then_for_the_other(version: int) -> None:
    asked: list[tuple[int, ...]] = []

    def validator(*versions: int) -> bool:
        asked.append(versions)
        return True

    messages = ScriptedMember(app_version=version).lead().take_snapshot()
    member = ScriptedMember(app_version=5)
    member.context.app_version_validator = validator
    member.start(messages)
    member.cm.join_as_leader()
    member.cm.new_leadership_term(app_version=version + 1)
    member.commit()
    assert asked == [(5, version), (5, version + 1)]


# life and end


def test_the_first_duty_cycle_updates_the_mark_file_at_once() -> None:
    member = ScriptedMember()
    member.cm.start()
    begin_ns = member.clock.now_ns
    member.agent.on_start()
    member.agent.do_work()
    assert member.clock.now_ns == begin_ns
    assert len(member.mark_file.activity_timestamps) == 1


@pytest.mark.parametrize("kind", ["offer", "try_claim"])
def test_a_message_before_the_first_term_carries_the_term_of_the_snapshot(kind: str) -> None:
    member = ScriptedMember()
    member.start(snapshot_messages(b"one"), leadership_term_id=6)
    member.cm.join_as_leader()

    def send(*_: Any) -> None:
        if kind == "offer":
            member.service.cluster.offer(b"x")
        else:
            with BufferClaim() as claim:
                member.service.cluster.try_claim(1, claim)
                claim.buffer[:] = b"x"

    member.in_callback(send, "on_timer_event")
    member.cm.timer_event(1)
    member.commit()
    assert [message[0] for message in member.cm.service_messages] == [6]


def test_the_first_message_to_the_cluster_has_no_timestamp() -> None:
    member = ScriptedMember(service_id=2).follow()
    results = member.in_callback(lambda *_: member.service.cluster.offer(b"x"), "on_timer_event")
    member.cm.timer_event(1)
    member.commit()
    assert results[0] > 0
    assert member.cm.service_messages == [(1, 2, 0, b"x")]


def test_a_stop_ends_the_wait_for_the_consensus_module() -> None:
    member = ScriptedMember()
    member.after_idles(3, member.agent.stop)
    with pytest.raises(AgentTermination, match="interrupted"):
        member.agent.on_start()
    assert member.idle_strategy.idle_count == 4


def test_a_stop_does_not_end_an_idle_loop_of_a_callback() -> None:
    member = ScriptedMember().start()

    def idles(_role: Role) -> int:
        member.agent.stop()
        for _ in range(5):
            member.service.cluster.idle()
        return int(member.service.cluster.log_position)

    positions = member.in_callback(idles, "on_role_change")
    member.cm.join_as_leader()
    member.work()
    assert positions == [0]
    assert member.errors == []


def listens(member: ScriptedMember) -> bool:
    """Whether the client tells the agent what happens."""
    return any(
        isinstance(each, AgentListener)
        for known in gc.get_referents(member.client)
        if isinstance(known, list)
        for each in known
    )


def test_the_agent_listens_to_its_client_from_its_start_to_its_end() -> None:
    member = ScriptedMember()
    assert not listens(member)
    member.start()
    assert listens(member)
    member.agent.close()
    assert not listens(member)


def test_no_background_work_is_done_from_the_end_on() -> None:
    member = ScriptedMember().lead()
    background: list[int] = []

    def idles(_cluster: Any) -> int:
        member.service.actions["do_background_work"] = background.append
        member.clock.advance(10_000_000)
        member.service.cluster.idle()
        return len(background)

    counted = member.in_callback(idles, "on_terminate")
    member.agent.close()
    assert counted == [0]


@pytest.mark.parametrize("owns_client", [False, True])
def test_streams_are_left_to_a_client_that_is_the_agents_own(owns_client: bool) -> None:
    member = ScriptedMember().lead()
    member.open_session()
    member.context.owns_client = owns_client
    member.agent.close()
    left = {each.stream_id for each in member.client.open_resources if hasattr(each, "stream_id")}
    assert left == ({102, 104, 105} if owns_client else set())


def test_the_end_of_the_log_is_told_when_its_image_is_closed_before_its_end() -> None:
    member = ScriptedMember().lead()
    member.cm.session_message(1, b"never committed")
    (log,) = [each for each in member.client.open_resources if getattr(each, "stream_id", 0) == 100]
    assert isinstance(log, Subscription)
    log.close()
    member.work()
    assert member.service.of("on_role_change") == [(Role.LEADER,), (Role.FOLLOWER,)]
    assert member.errors == []


def test_a_member_is_closed_once() -> None:
    member = ScriptedMember().lead()
    closed: list[bool] = []
    member.context.close = lambda: closed.append(True)
    member.agent.close()
    member.agent.close()
    assert closed == [True]
    assert member.service.of("on_terminate") == [()]


# acks


def test_an_ack_that_waits_long_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    member = ScriptedMember().lead()
    member.idle_ns = 1_000_000_000
    member.results(*[BACK_PRESSURED] * 8)
    member.cm.request_service_ack(member.service.cluster.log_position)
    with caplog.at_level("INFO", "container"):
        member.work()
    assert len(member.cm.acks) == 3
    texts = [record.getMessage() for record in caplog.records]
    wanted = "clustered-service-0-0: still waiting for the consensus module to take ack 2 at logPosition="
    assert [text.startswith(wanted) for text in texts] == [True]


def test_an_ack_that_can_not_be_sent_uses_up_its_id() -> None:
    member = ScriptedMember().start()
    member.results(-1)
    member.cm.join_as_follower()
    assert "ack 1 at logPosition=0 cannot be sent: publication is not connected" in str(member.terminated())
    member.cm.request_service_ack(0)
    member.work()
    assert [ack.ack_id for ack in member.cm.acks] == [0, 2]


def test_a_requested_ack_at_the_position_is_no_event() -> None:
    member = ScriptedMember().lead()
    member.cm.request_service_ack(member.service.cluster.log_position)
    member.work()
    assert len(member.cm.acks) == 3
    assert member.errors == []


# snapshots


def test_the_snapshot_store_idles_with_the_cluster() -> None:
    member = ScriptedMember().lead()
    background: list[int] = []
    member.service.actions["do_background_work"] = background.append
    member.store.script("create", [7])
    member.cm.snapshot()
    member.cm.commit()
    before = member.idle_strategy.idle_count
    member.agent.do_work()
    assert member.cm.acks[-1].relevant_id != NULL_VALUE
    assert member.idle_strategy.idle_count - before >= 7
    assert len(background) >= 7


@pytest.mark.parametrize(("result", "text"), [(-1, "is not connected"), (-4, "is closed"), (-5, "at max position")])
def test_a_send_to_a_snapshot_that_can_not_succeed_raises_and_is_not_tried_again(result: int, text: str) -> None:
    member = ScriptedMember().lead()

    def write(publication: Any) -> None:
        member.driver.publication_results("aeron:ipc?alias=snapshot", 106, [result])
        publication.send(b"state")

    member.in_callback(write, "on_take_snapshot")
    member.take_snapshot()
    assert [text in str(error) for error in member.errors] == [True]
    assert member.cm.acks[-1].relevant_id == NULL_VALUE
    assert b"state" not in member.store.messages(member.store.recording_ids[-1])


def test_the_first_frames_of_a_snapshot_wait_with_the_whole_agent_idling() -> None:
    member = ScriptedMember().lead()
    background: list[int] = []
    member.service.actions["do_background_work"] = background.append
    member.driver.publication_results("aeron:ipc?alias=snapshot", 106, [BACK_PRESSURED] * 4)
    member.cm.snapshot()
    member.cm.commit()
    before = member.idle_strategy.idle_count
    member.agent.do_work()
    assert member.cm.acks[-1].relevant_id != NULL_VALUE
    assert (member.idle_strategy.idle_count - before, len(background)) == (4, 5)


@pytest.mark.parametrize("name", ["send", "offer"])
def test_what_was_written_to_a_snapshot_is_the_services_own_again(name: str) -> None:
    member = ScriptedMember().lead()
    buffer = bytearray(b"state")

    def write(publication: Any) -> None:
        getattr(publication, name)(buffer)
        buffer.append(1)  # raises BufferError while somebody holds it

    member.in_callback(write, "on_take_snapshot")
    member.take_snapshot()
    assert (member.errors, len(buffer)) == ([], 6)


def test_a_snapshot_whose_streams_fail_to_close_is_given_up() -> None:
    member = ScriptedMember().lead()
    error = ArchiveError("the session is gone")
    member.store.script("close", [error])
    member.take_snapshot()
    assert member.errors == [error]
    assert member.cm.acks[-1].relevant_id == NULL_VALUE


# sessions


@pytest.mark.parametrize(("waited_ns", "expected"), [(0, 10), (899_999_999, 2), (999_999_999, 1), (1_000_000_000, 0)])
def test_a_new_client_has_one_second_to_connect(waited_ns: int, expected: int) -> None:
    member = ScriptedMember().lead()
    member.idle_ns = 100_000_000
    idles: list[int] = []

    def send(session: Any, _timestamp: int) -> int:
        member.clock.advance(waited_ns)
        before = member.idle_strategy.idle_count
        result = session.send(b"x")
        idles.append(member.idle_strategy.idle_count - before)
        return int(result)

    results = member.in_callback(send, "on_session_open")
    member.open_session(1, connect_egress=False)
    assert results == [-1]
    assert idles == [expected]


def test_a_send_under_back_pressure_lasts_one_second() -> None:
    member = ScriptedMember().lead()
    member.open_session()
    member.idle_ns = 100_000_000
    session = member.service.cluster.get_client_session(1)
    member.driver.publication_results(session.response_channel, 102, [BACK_PRESSURED] * 100)
    idles: list[int] = []

    def send(*_: Any) -> int:
        before = member.idle_strategy.idle_count
        result = session.send(b"x")
        idles.append(member.idle_strategy.idle_count - before)
        return int(result)

    results = member.in_callback(send)
    member.deliver(b"go")
    assert results == [BACK_PRESSURED]
    assert idles == [10]


@pytest.mark.parametrize(("excess", "results"), [(0, [True, True]), (1, [False, False])])
def test_the_longest_message_and_claim_are_what_the_egress_carries(excess: int, results: list[bool]) -> None:
    member = ScriptedMember().lead()
    session = member.open_session()

    def send(*_: Any) -> list[bool]:
        with BufferClaim() as claim:
            claimed = session.try_claim(1_344 + excess, claim)
        return [session.offer(bytes(8_160 + excess)) > 0, claimed > 0]

    sent = member.in_callback(send)
    member.deliver(b"go")
    assert sent == [results]
    assert len(member.errors) == 2 * excess


class Waits:
    """Sends inside a callback to clients that are slow, and counts for how many idles each send waits."""

    def __init__(self, sessions: int, idle_ns: int) -> None:
        self.member = ScriptedMember().lead()
        for number in range(1, sessions + 1):
            self.member.cm.open_session(number)
        self.member.commit()
        self.member.clock.advance(100_000_000_000)
        self.member.idle_ns = idle_ns

    def send(self, session_id: int, refusals: int) -> tuple[int, bool]:
        """A send that is refused so often: how many idles it took, and whether it was sent."""
        session = self.member.service.cluster.get_client_session(session_id)
        self.member.driver.publication_results(session.response_channel, 102, [BACK_PRESSURED] * refusals)
        before = self.member.idle_strategy.idle_count
        result = session.send(b"x")
        self.member.driver.publication_results(session.response_channel, 102, [])
        return self.member.idle_strategy.idle_count - before, result > 0

    def run(self, steps: Callable[[], object]) -> None:
        """Has ``steps`` done inside a callback."""
        results = self.member.in_callback(lambda *_: steps())
        self.member.deliver(b"go")
        assert len(results) == 1
        assert self.member.errors == []


@pytest.mark.parametrize("count", [64, 65, 1_000])
def test_sessions_close_in_any_order(count: int) -> None:
    member = ScriptedMember().lead()
    ids = list(range(1, count + 1))
    for number in ids:
        member.cm.open_session(number, connect_egress=False)
    member.commit()
    cluster = member.service.cluster
    while ids:
        number = ids.pop(-1 if len(ids) % 3 else 0)
        member.cm.close_session(number)
        member.commit()
        member.work(1)  # the end of a term takes a poll of its own
        assert cluster.get_client_session(number) is None
        assert [session.id for session in cluster.client_sessions] == ids
    assert member.errors == []


def test_each_wait_of_a_send_begins_with_the_shortest_idling() -> None:
    member = ScriptedMember()
    member.context.idle_strategy = SteppingIdleStrategy(max_idles=5)  # more in a row end the agent
    member.agent = type(member.agent)(member.context)
    member.lead()
    member.open_session()

    def steps(session: Any, *_: Any) -> list[bool]:
        sent = []
        for _send in range(3):
            member.driver.publication_results(session.response_channel, 102, [BACK_PRESSURED] * 5)
            sent.append(session.send(b"x") > 0)
        return sent

    sent = member.in_callback(steps)
    member.deliver(b"go")
    assert sent == [[True] * 3]


def test_all_sends_to_a_lone_session_wait_two_seconds_together() -> None:
    waits = Waits(1, 500_000_000)

    def steps() -> None:
        assert [waits.send(1, 1) for _ in range(3)] == [(1, True)] * 3
        assert waits.send(1, 100) == (1, False)

    waits.run(steps)


def test_the_time_that_passes_without_waits_may_all_be_waited_for_a_lone_session() -> None:
    waits = Waits(1, 250_000_000)

    def steps() -> None:
        assert [waits.send(1, 2) for _ in range(3)] == [(2, True)] * 3
        waits.member.clock.advance(500_000_000)
        assert waits.send(1, 100) == (4, False)

    waits.run(steps)


def test_all_sends_to_several_sessions_wait_thirty_milliseconds_together_and_a_tenth_of_the_time_after() -> None:
    waits = Waits(3, 1_000_000)

    def steps() -> None:
        assert waits.send(1, 12) == (12, True)
        assert waits.send(2, 11) == (11, True)
        assert waits.send(1, 100) == (7, False)
        assert waits.send(2, 1) == (0, False)
        waits.member.clock.advance(110_000_000)
        assert waits.send(3, 100) == (11, False)

    waits.run(steps)


@pytest.mark.parametrize(("waited_ns", "expected"), [(1_000_000, (0, False)), (999_999, (1, True))])
def test_a_client_that_was_waited_for_a_millisecond_is_backed_off(waited_ns: int, expected: tuple[int, bool]) -> None:
    waits = Waits(3, 30_000_000 - waited_ns)

    def steps() -> None:
        assert waits.send(1, 1) == (1, True)
        waits.member.idle_ns = waited_ns
        assert waits.send(2, 2) == (1, False), "all that was left"
        waits.member.clock.advance(100_000_000)
        assert waits.send(2, 1) == expected

    waits.run(steps)


@pytest.mark.parametrize("more", [(), (b"y",)])
@pytest.mark.parametrize("name", ["session.offer", "session.send", "cluster.offer", "cluster.send"])
def test_what_was_sent_is_the_services_own_again(name: str, more: tuple[bytes, ...]) -> None:
    member = ScriptedMember().lead()
    member.open_session()
    buffer = bytearray(b"message")
    target, _, method = name.partition(".")

    def send(session: Any, *_: Any) -> int:
        sender = session if target == "session" else member.service.cluster
        result = int(getattr(sender, method)(buffer, *more))
        buffer.append(1)  # raises BufferError while somebody holds it
        return result

    results = member.in_callback(send)
    member.deliver(b"go")
    assert results[0] > 0
    assert len(buffer) == 8


@pytest.mark.parametrize("role", ["lead", "follow"])
def test_a_claim_for_a_client_may_be_empty_and_not_less(role: str) -> None:
    member: ScriptedMember = getattr(ScriptedMember(), role)()
    member.open_session()

    def claim(session: Any, *_: Any) -> tuple[int, int]:
        with BufferClaim() as claim:
            result = int(session.try_claim(0, claim))
            length = len(claim.buffer)
        with pytest.raises(ValueError, match="a claim of -1 bytes"):
            session.try_claim(-1, claim)
        return result, length

    results = member.in_callback(claim)
    member.deliver(b"go")
    ((result, length),) = results
    assert result > 0
    assert length == 0
    assert member.answers() == [b""] * (role == "lead")


def test_an_offer_never_waits() -> None:
    waits = Waits(1, 1_000_000)
    session = waits.member.service.cluster.get_client_session(1)
    waits.member.driver.publication_results(session.response_channel, 102, [BACK_PRESSURED] * 2)
    before = waits.member.idle_strategy.idle_count
    results: list[int] = []
    waits.run(lambda: results.extend([session.offer(b"x"), session.offer(b"x", b"y"), session.offer(b"x", b"y")]))
    assert waits.member.idle_strategy.idle_count == before
    assert [result == BACK_PRESSURED for result in results] == [True, True, False]


# the log


def test_an_incompatible_term_leaves_the_position_where_it_was() -> None:
    member = ScriptedMember(app_version=0x010000).start()
    member.cm.join_as_leader()
    member.work()
    member.cm.new_leadership_term(app_version=0x020000)
    member.cm.commit()
    member.terminated()
    assert (member.agent.cluster.log_position, member.agent.cluster.time) == (0, 0)


def test_a_poll_ends_with_the_message_after_which_it_has_lasted_just_100_ms() -> None:
    member = ScriptedMember().lead()
    member.service.actions["on_session_message"] = lambda *_: member.clock.advance(50_000_000)
    for _ in range(4):
        member.cm.session_message(1, b"x")
    member.cm.commit()
    member.agent.do_work()
    assert len(member.service.messages) == 2


def test_the_first_claim_to_the_cluster_carries_the_service_id() -> None:
    member = ScriptedMember(service_id=3).lead()

    def claims(*_: Any) -> None:
        with BufferClaim() as claim:
            member.service.cluster.try_claim(1, claim)
            claim.buffer[:] = b"x"

    member.in_callback(claims)
    member.deliver(b"go")
    (message,) = member.cm.service_messages
    assert (message.cluster_session_id, message.payload) == (3, b"x")


def test_a_claim_to_the_cluster_may_be_empty() -> None:
    member = ScriptedMember().lead()

    def claim(*_: Any) -> int:
        with BufferClaim() as claim:
            return int(member.service.cluster.try_claim(0, claim))

    results = member.in_callback(claim)
    member.deliver(b"go")
    assert results[0] > 0
    assert [message[3] for message in member.cm.service_messages] == [b""]


def test_each_callback_gets_the_fields_of_its_event() -> None:
    member = ScriptedMember().lead()
    member.cm.timer_event(7, timestamp=5_001)
    end = member.cm.new_leadership_term(
        11,
        leader_member_id=2,
        term_base_log_position=64,
        log_session_id=-9,
        time_unit=TimeUnit.NANOS,
        app_version=3,
        timestamp=5_002,
    )
    member.cm.open_session(4, timestamp=5_003)
    member.cm.close_session(4, CloseReason.TIMEOUT, timestamp=5_004)
    member.commit()
    service = member.service
    assert service.of("on_timer_event") == [(7, 5_001)]
    assert service.of("on_new_leadership_term_event")[1:] == [(11, end, 5_002, 64, 2, -9, TimeUnit.NANOS, 3)]
    assert service.of("on_session_open") == [(4, 5_003)]
    assert service.of("on_session_close") == [(4, 5_004, CloseReason.TIMEOUT)]


def test_a_session_that_closes_has_no_egress_any_more() -> None:
    member = ScriptedMember().lead()
    member.open_session()
    results = member.in_callback(lambda session, *_: (session.is_connected, session.offer(b"x")), "on_session_close")
    member.cm.close_session(1)
    member.commit()
    assert results == [(False, -1)]


def test_a_batch_is_delivered_before_a_term_that_ends_the_member() -> None:
    service = Batches()
    member = ScriptedMember(service).lead()
    member.cm.session_message(1, b"before")
    member.cm.new_leadership_term(app_version=0x020000)
    member.cm.commit()
    member.terminated()
    assert service.batches == [[b"before"]]


def test_what_a_batch_sends_belongs_to_the_term_before_the_next() -> None:
    service = Batches()
    member = ScriptedMember(service).lead()
    member.cm.session_message(1, b"before")
    member.cm.new_leadership_term(7)
    member.deliver(b"after")
    assert [message.payload for message in member.cm.service_messages] == [b"before", b"after"]
    assert [message.leadership_term_id for message in member.cm.service_messages] == [1, 7]


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("on_session_open", lambda cm: cm.open_session(1)),
        ("on_session_close", lambda cm: cm.close_session(2)),
        ("on_timer_event", lambda cm: cm.timer_event(1)),
        ("on_new_leadership_term_event", lambda cm: cm.new_leadership_term()),
        ("on_session_message", lambda cm: cm.session_message(2, b"x")),
        ("on_take_snapshot", lambda cm: cm.snapshot()),
    ],
)
def test_an_offer_that_was_lost_is_reported_with_the_event_that_lost_it(
    name: str, event: Callable[[ScriptedConsensusModule], int]
) -> None:
    member = ScriptedMember().lead()
    member.open_session(2)

    def loses(*_: Any) -> int:
        member.results(BACK_PRESSURED)
        member.service.cluster.offer(b"lost")
        return 0

    member.in_callback(loses, name)
    counted: list[int] = []
    event(member.cm)
    member.cm.session_message(2, b"next")
    if name != "on_session_message":
        member.in_callback(lambda *_: counted.append(len(member.errors)))
    member.commit()
    assert len(member.errors) == 1
    assert counted == ([] if name == "on_session_message" else [1])


# the gap


def test_a_replay_of_a_gap_that_begins_elsewhere_ends_the_agent() -> None:
    member = ScriptedMember(log_fragment_limit=1)
    archive = SlowArchive(member)
    member.start()
    member.cm.begin_log("follower")
    member.cm.join_log(role=Role.FOLLOWER)
    member.work()
    member.cm.new_leadership_term()
    member.commit()
    begin = member.service.cluster.log_position
    end = member.cm.session_message(1, b"missed")
    member.cm.commit()
    member.cm.lose_log()
    member.work()
    archive.add([b"another part of the log"])
    member.cm.begin_log("follower")
    log = member.cm.log
    assert log is not None
    seam.add_counter(archive.client, 100, archive.recording_position_key(0, log.session_id, archive.archive_id))
    member.cm.join_log(role=Role.FOLLOWER)
    text = f"cannot get the log from position {begin} to {end}, .*: its replay begins at 0"
    assert re.match(text, str(member.terminated()))
    assert member.service.messages == []


def test_a_join_that_takes_the_place_of_one_behind_a_gap_closes_its_log() -> None:
    member = ScriptedMember(log_fragment_limit=1).start()
    member.cm.begin_log("follower")
    assert member.cm.log is not None
    member.store.record_log(member.cm.log)
    member.cm.join_log(role=Role.FOLLOWER)
    member.work()
    member.cm.new_leadership_term()
    member.commit()
    for number in range(9):
        member.cm.session_message(1, b"%d" % number)
    member.cm.commit()
    member.cm.lose_log()
    for _ in range(3):
        member.cm.join_as_follower()
        member.work(2)
    assert len(member.service.messages) < 9
    assert open_streams(member, 100) == 0, "the next one is added when the gap is closed"
    member.work(20)
    assert len(member.service.messages) == 9
    assert open_streams(member, 100) == 1


# the end


def test_the_end_at_a_termination_position_comes_once() -> None:
    member = ScriptedMember().lead()
    member.cm.termination_position()
    member.terminated()
    member.work(5)
    assert member.service.of("on_terminate") == [()]
    assert len(member.cm.acks) == 3


def test_a_termination_ack_that_can_not_be_sent_is_an_error_and_the_end_goes_on() -> None:
    member = ScriptedMember().lead()
    member.results(-1)
    member.cm.termination_position()
    assert isinstance(member.terminated(), AgentTermination)
    assert ["is not connected" in str(error) for error in member.errors] == [True]
    assert len(member.cm.acks) == 2


# --- the context


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        *((name, None, f"{name} must be of type ") for name in ("service_handler", "client", "clock", "idle_strategy")),
        *((name, None, f"{name} must be of type ") for name in ("mark_file", "snapshot_store", "duty_cycle_tracker")),
        (
            "snapshot_duration_tracker",
            object(),
            "snapshot_duration_tracker must be of type DurationTracker, not <object",
        ),
        ("callback_error_policy", "hlt", "callback_error_policy='hlt': must be halt or skip"),
    ],
)
def test_a_context_with_a_wrong_attribute_makes_no_agent(name: str, value: object, text: str) -> None:
    context = ScriptedMember().context
    setattr(context, name, value)
    with pytest.raises(ConfigurationError, match=text):
        ServiceAgent(context)
    with pytest.raises(AttributeError):
        context.clokc = value  # type: ignore[attr-defined]
