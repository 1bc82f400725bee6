"""Batches of session messages: the same result as one message at a time, columns that may be kept, and failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from container.api import ClientSession, CloseReason, Cluster, Header, MessageBuffer, SessionMessages, SnapshotImage
from container.api import ClusteredService as ApiService
from container.errors import AgentTermination, ClusterEvent, ConfigurationError
from container.service.service_handler import PythonServiceHandler
from container.service.session_messages import Int64Column
from container.service.session_messages import SessionMessages as Batch
from container.testing.memory.scripted_member import ScriptedMember

SESSIONS = (1, 2, 3)


class Journal(ApiService):
    """Writes down all that happens, where the cluster then is, and answers; some messages make it raise."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self.cluster: Cluster

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster

    def note(self, *entry: Any) -> None:
        self.entries.append((*entry, self.cluster.time, self.cluster.log_position))

    def handle(self, session: ClientSession | None, timestamp: int, payload: bytes, position: int) -> None:
        self.note("message", None if session is None else session.id, timestamp, payload, position)
        if payload.startswith(b"raise before"):
            raise ValueError(payload)
        if session is not None:
            session.send(b"echo ", payload)
        if payload.startswith(b"timer"):
            self.cluster.schedule_timer(len(payload), timestamp + 5)
        if payload.startswith(b"relay"):
            self.cluster.send(payload)
        if payload.startswith(b"raise after"):
            raise KeyError(payload)

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        self.handle(session, timestamp, bytes(buffer), header.position)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.note("open", session.id, timestamp)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.note("close", session.id, timestamp, close_reason)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.note("timer", correlation_id, timestamp)

    def on_new_leadership_term_event(self, leadership_term_id: int, log_position: int, *rest: Any) -> None:
        self.note("term", leadership_term_id, log_position)


class BatchJournal(Journal):
    """The same, many messages at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def on_session_messages(self, messages: SessionMessages) -> None:
        self.lengths.append(len(messages))
        for index in messages:
            self.handle(
                messages.session(index), messages.timestamps[index], messages.payload(index), messages.positions[index]
            )


PAYLOADS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"raise before", b"raise after", b"timer", b"timer 2", b"relay"]),
    st.integers(1, 5_000).map(bytes),
)
STEPS = st.one_of(
    st.tuples(st.just("message"), st.sampled_from(SESSIONS), PAYLOADS),
    st.tuples(st.just("message"), st.sampled_from(SESSIONS), PAYLOADS),
    st.tuples(st.just("service"), st.integers(1, 9), PAYLOADS),
    st.tuples(st.sampled_from(["open", "close"]), st.sampled_from(SESSIONS)),
    st.tuples(st.just("timer"), st.integers(0, 9)),
    st.tuples(st.just("advance"), st.integers(1, 3)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("term")),
)


def play(service: Journal, steps: list[tuple[Any, ...]], fragment_limit: int, commit_often: bool) -> ScriptedMember:
    """A member that leads and gets these steps in its log."""
    member = ScriptedMember(service, log_fragment_limit=fragment_limit).lead()
    cm = member.cm
    is_open: set[int] = set()
    now = 1_000
    for name, *arguments in steps:
        match name:
            case "message":
                cm.session_message(*arguments, timestamp=now)
            case "service":
                cm.service_message(0, *arguments)
            case "open" if arguments[0] not in is_open:
                is_open.add(arguments[0])
                cm.open_session(arguments[0], timestamp=now)
            case "close" if arguments[0] in is_open:
                is_open.remove(arguments[0])
                cm.close_session(arguments[0], timestamp=now)
            case "timer":
                cm.timer_event(arguments[0], timestamp=now)
            case "advance":
                now += arguments[0]
            case "snapshot":
                cm.snapshot(timestamp=now)
            case "term":
                cm.new_leadership_term()
        if name == "commit" or commit_often:
            member.commit()
    member.commit()
    return member


def result(member: ScriptedMember) -> dict[str, Any]:
    """All that a member did that others can see, and its own book."""
    egress: dict[int, Any] = {}
    for session_id in SESSIONS:
        try:
            egress[session_id] = member.cm.egress(session_id)
        except Exception:
            egress[session_id] = None  # it was never open
    return {
        "entries": member.service.entries,
        "egress": egress,
        "timers": member.cm.scheduled_timers,
        "relays": [(message.payload, message.cluster_session_id) for message in member.cm.service_messages],
        "errors": sorted(repr(error) for error in member.errors if not isinstance(error, ClusterEvent)),
        "snapshots": [member.store.messages(recording) for recording in member.store.recording_ids],
        "position": member.agent.cluster.log_position,
        "time": member.agent.cluster.time,
        "sessions": [session.id for session in member.agent.cluster.client_sessions],
    }


@settings(max_examples=120)
@given(st.lists(STEPS, max_size=40), st.sampled_from([1, 2, 7, 50]), st.sampled_from([2, 3, 50]), st.booleans())
def test_batches_lead_to_the_same_as_single_messages(
    steps: list[tuple[Any, ...]], single_limit: int, batch_limit: int, commit_often: bool
) -> None:
    single = play(Journal(), steps, single_limit, commit_often)
    batched = play(BatchJournal(), steps, batch_limit, commit_often=False)
    assert result(batched) == result(single)
    assert sum(batched.service.lengths) >= sum(1 for entry in batched.service.entries if entry[0] == "message")


def batches(action: Callable[[SessionMessages], object]) -> ScriptedMember:
    """A member that leads, with one session, and whose service does ``action`` with each batch."""

    class Service(Journal):
        def on_session_messages(self, messages: SessionMessages) -> None:
            action(messages)

    member = ScriptedMember(Service()).lead()
    member.open_session()
    return member


def test_without_an_iteration_the_cluster_is_at_the_last_message() -> None:
    places: list[tuple[int, int]] = []
    member = batches(lambda _messages: places.append((member.agent.cluster.log_position, member.agent.cluster.time)))
    for timestamp in (2_001, 2_002, 2_003):
        position = member.cm.session_message(1, b"x", timestamp=timestamp)
    member.commit()
    assert places == [(position, 2_003)]
    assert (member.agent.cluster.log_position, member.agent.cluster.time) == (position, 2_003)


def test_an_iteration_that_has_ended_stays_at_its_end() -> None:
    ends: list[object] = []

    def action(messages: SessionMessages) -> None:
        indexes = iter(messages)
        assert list(indexes) == [0, 1]
        ends.extend(next(indexes, None) for _ in range(3))

    member = batches(action)
    member.cm.session_message(1, b"x")
    member.deliver(b"y")
    assert ends == [None] * 3


def test_messages_of_one_poll_come_in_one_call() -> None:
    lengths: list[int] = []
    member = batches(lambda messages: lengths.append(len(messages)))
    member.deliver(*[b"x"] * 120)
    assert lengths == [50, 50, 20]


def test_columns_are_what_numpy_takes() -> None:
    seen: list[Any] = []

    def look(messages: SessionMessages) -> None:
        timestamps = numpy.asarray(messages.timestamps)
        offsets = numpy.asarray(messages.offsets)
        values = numpy.frombuffer(messages.payloads, dtype="<i8")
        seen.append((timestamps.dtype, timestamps.tolist(), offsets.tolist(), values.tolist()))
        seen.append((numpy.asarray(messages.positions) % 32).tolist())
        seen.append(list(map(messages.session_ids.__getitem__, range(len(messages)))))
        with pytest.raises(ValueError, match="read-only"):
            timestamps[0] = 0

    member = batches(look)
    for number in (7, -8, 9):
        member.cm.session_message(1, number.to_bytes(8, "little", signed=True), timestamp=1_000 + number)
    member.commit()
    assert seen == [
        (numpy.dtype("int64"), [1_007, 992, 1_009], [0, 8, 16, 24], [7, -8, 9]),
        [0, 0, 0],
        [1, 1, 1],
    ]
    assert member.errors == []


def test_what_a_service_keeps_stays_as_it_is() -> None:
    kept: list[tuple[Any, ...]] = []

    def keep(messages: SessionMessages) -> None:
        kept.append((messages, messages.positions, memoryview(messages.payloads), numpy.asarray(messages.timestamps)))

    member = batches(keep)
    for round_number in range(3):
        member.cm.session_message(1, bytes([round_number]) * 10, timestamp=round_number)
        member.commit()
    for round_number, (messages, positions, payloads, timestamps) in enumerate(kept):
        assert len(messages) == len(positions) == 1
        assert bytes(payloads) == messages.payload(0) == bytes([round_number]) * 10
        assert timestamps.tolist() == [round_number]
    assert len({positions[0] for _, positions, _, _ in kept}) == 3


@pytest.mark.parametrize("what", ["positions", "timestamps", "offsets", "session_ids", "payloads"])
def test_a_column_alone_may_be_kept(what: str) -> None:
    kept: list[Any] = []
    member = batches(lambda messages: kept.append(getattr(messages, what)))
    member.cm.session_message(1, b"one", timestamp=1)
    member.commit()
    before = bytes(kept[0])
    member.cm.session_message(2, b"two, longer", timestamp=2)
    member.commit()
    assert bytes(kept[0]) == before
    assert bytes(kept[1]) != before


def test_what_nobody_keeps_is_used_again() -> None:
    seen: list[tuple[int, ...]] = []
    names = ("positions", "timestamps", "offsets", "session_ids", "payloads")
    member = batches(lambda messages: seen.append((id(messages), *(id(getattr(messages, name)) for name in names))))
    for _ in range(3):
        member.deliver(b"x")
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_an_exception_outside_of_an_iteration_ends_the_container() -> None:
    def fail(messages: SessionMessages) -> None:
        raise ValueError("no idea which")

    member = batches(fail)
    member.cm.session_message(1, b"x")
    member.cm.commit()
    termination = member.terminated()
    assert "outside of an iteration" in str(termination)
    assert isinstance(termination.__cause__, ValueError)


def test_an_exception_behind_an_iteration_ends_the_container() -> None:
    def fail(messages: SessionMessages) -> None:
        for _index in messages:
            pass
        raise ValueError("too late")

    member = batches(fail)
    member.cm.session_message(1, b"x")
    member.cm.commit()
    termination = member.terminated()
    assert "members would diverge" in str(termination)
    assert str(termination.__cause__) == "too late"


def test_a_termination_passes_through() -> None:
    def end(messages: SessionMessages) -> None:
        for _index in messages:
            raise AgentTermination("enough")

    member = batches(end)
    member.cm.session_message(1, b"x")
    member.cm.commit()
    assert str(member.terminated()) == "enough"


def test_an_index_outside_is_refused() -> None:
    def look(messages: SessionMessages) -> None:
        for read in (messages.session, messages.payload, messages.positions.__getitem__):
            for index in (1, -2):
                with pytest.raises(IndexError, match=f"index {index} is outside 1 messages"):
                    read(index)
        for index in messages:
            with pytest.raises(IndexError):
                messages.payload(index + 1)

    member = batches(look)
    member.deliver(b"x")
    assert member.errors == []


def test_a_long_replay_makes_batches_of_a_mebibyte_at_most() -> None:
    lengths: list[int] = []
    member = ScriptedMember(BatchJournal(), log_fragment_limit=100_000, log_term_length=16 * 1024 * 1024).lead()
    member.service.handle = lambda session, timestamp, payload, position: lengths.append(len(payload))
    member.deliver(*[bytes(1000)] * 3_000)
    assert sum(lengths) == 3_000_000
    assert max(member.service.lengths) == -(-1024 * 1024 // 1000)


def test_a_batch_callback_must_be_one() -> None:
    class Wrong(Journal):
        on_session_messages = 5

    class Coroutine(Journal):
        async def on_session_messages(self, messages: SessionMessages) -> None:
            pass

    with pytest.raises(ConfigurationError, match="on_session_messages"):
        PythonServiceHandler(Wrong())
    with pytest.raises(ConfigurationError, match="on_session_messages is a coroutine function"):
        PythonServiceHandler(Coroutine())


def test_nobody_else_makes_them() -> None:
    for kind in (Int64Column, Batch):
        with pytest.raises(TypeError, match="made by the container"):
            kind()
