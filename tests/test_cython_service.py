"""A service written in Cython outside of the package: built against the shipped .pxd files, run by the real agent."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from container.api import CloseReason
from container.errors import AgentTermination, ArchiveError, ClusterError
from container.testing.memory.scripted_member import ScriptedMember
from tests import hostile
from tests.cython_module import compile_cython, compile_module, load_module
from tests.replay_world import Tally, egress, of_kind, replayed

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''
"""Adds up what clients send, in C; uses all that a service in Cython is promised."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from container cimport (
    ACTION_CONTINUE, BufferVector, Cluster, ContainerClientSession, FragmentHandler, FrameHeader, ServiceHandler,
    SnapshotImage, SnapshotPublication,
)


cdef class StateReader(FragmentHandler):
    cdef int64_t total
    cdef readonly int count

    cdef int on_fragment(self, const uint8_t* buffer, size_t length, const FrameHeader* header) except? -1:
        memcpy(&self.total, buffer, sizeof(self.total))
        self.count += 1
        return ACTION_CONTINUE


cdef class AddingService(ServiceHandler):
    cdef readonly int64_t total
    cdef readonly Cluster cluster
    cdef readonly list events
    cdef readonly list results
    cdef readonly int messages_read
    cdef public int polls

    def __init__(self):
        self.events = []
        self.results = []

    cdef int on_start(self, Cluster cluster, SnapshotImage snapshot_image) except? -1:
        cdef StateReader reader = StateReader()
        self.cluster = cluster
        if snapshot_image is not None:
            for _poll in range(self.polls):
                snapshot_image.poll(self.events.append, 1)
            snapshot_image.read_all(reader)
            self.total = reader.total
            self.messages_read = reader.count
        return 0

    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1:
        self.events.append(("open", session.id, timestamp))
        return 0

    cdef int on_session_close(
            self, ContainerClientSession session, int64_t timestamp, int32_t close_reason) except? -1:
        self.events.append(("close", session.id, timestamp, close_reason))
        return 0

    cdef int on_timer_event(self, int64_t correlation_id, int64_t timestamp) except? -1:
        self.total += correlation_id
        self.cluster.send_cancel_timer(correlation_id + 1)
        self.events.append(("timer", correlation_id, timestamp))
        return 0

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except? -1:
        cdef int64_t value
        cdef BufferVector vectors[3]
        if length != sizeof(value):
            raise ValueError(f"{length} bytes")
        memcpy(&value, data, sizeof(value))
        self.total += value
        if value == 1000:
            self.cluster.send_schedule_timer(7, timestamp + 5)
            self.results.append(self.cluster.send_bytes(data, length))
            self.results.append(self.cluster.offer_bytes(data, 4))
        if session is not None and value == 2000:
            vectors[1].data = vectors[2].data = <uint8_t*> data
            vectors[1].length = vectors[2].length = length
            self.results.append(session.send_vectors(vectors, 3))
        elif session is not None and value == 3000:
            self.results.append(session.offer_bytes(data, length))
        elif session is not None:
            self.results.append(session.send_bytes(<const uint8_t*> &self.total, sizeof(self.total)))
            self.results.append(session.offer_bytes(data, 0))
        return 0

    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1:
        cdef int part
        for part in range(30):
            self.results.append(
                snapshot_publication.send_bytes(<const uint8_t*> &self.total, sizeof(self.total)))
        return 0
'''


# Every callback returns what Cython takes for an error of a C function that says `except -1`. An override may still say
# that, as services written for an older release do.
NUMBERS = """
from libc.stdint cimport int32_t, int64_t, uint8_t

from container cimport Cluster, ContainerClientSession, FrameHeader, ServiceHandler, SnapshotPublication


cdef class ReturnsNumbers(ServiceHandler):
    cdef public int returned
    cdef readonly int messages

    cdef int on_session_open(self, ContainerClientSession session, int64_t timestamp) except? -1:
        return self.returned

    cdef int on_session_message(
            self, ContainerClientSession session, int64_t timestamp, const uint8_t* data, size_t length,
            const FrameHeader* header) except -1:
        self.messages += 1
        return self.returned

    cdef int on_timer_event(self, int64_t correlation_id, int64_t timestamp) except? -1:
        return self.returned

    cdef int on_take_snapshot(self, SnapshotPublication snapshot_publication) except? -1:
        return self.returned

    cdef int on_role_change(self, int32_t new_role) except? -1:
        return self.returned

    cdef int on_terminate(self, Cluster cluster) except? -1:
        return self.returned

    cdef int do_background_work(self, int64_t now_ns) except -1:
        return self.returned
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled service."""
    return compile_module("adding_service", SOURCE, tmp_path_factory.mktemp("adding_service"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A service whose callbacks return what a test asks for."""
    return compile_module("returns_numbers", NUMBERS, tmp_path_factory.mktemp("returns_numbers"))


@pytest.mark.parametrize("returned", [-1, -(2**31), 2**31 - 1, 7])
def test_any_number_that_a_callback_returns_is_safe(numbers: ModuleType, returned: int) -> None:
    service = numbers.ReturnsNumbers()
    member = ScriptedMember(service).lead()
    service.returned = returned
    member.cm.open_session(1)
    member.cm.session_message(1, b"x")
    member.cm.timer_event(1)
    member.cm.snapshot()
    member.cm.commit()
    member.work(5)
    assert service.messages == 1
    assert member.errors == []
    assert member.cm.acks[-1].relevant_id >= 0, "the snapshot was taken"
    member.agent.close()
    assert member.errors == []


def number(value: int) -> bytes:
    """A number as clients send it."""
    return value.to_bytes(8, "little", signed=True)


def test_a_service_in_cython_is_called_answers_and_is_snapshotted(module: ModuleType) -> None:
    service = module.AddingService()
    member = ScriptedMember(service).lead()
    member.cm.open_session(1)
    member.deliver(number(40), number(2))
    assert service.total == 42
    assert member.answers() == [number(40), b"", number(42), b""]
    messages = member.take_snapshot()
    assert messages[-30:] == [number(42)] * 30
    end = member.store.recording(member.store.recording_ids[-1]).recorded_position
    assert service.results[-30:] == list(range(end - 29 * 64, end + 1, 64))

    second = ScriptedMember(module.AddingService(), log_position=member.cm.log_position).start(messages)
    assert (second.service.total, second.service.messages_read) == (42, 30)


def test_a_service_in_cython_offers_bytes_to_a_session(module: ModuleType) -> None:
    member = ScriptedMember(module.AddingService()).lead()
    member.cm.open_session(1)
    member.deliver(number(3_000))
    assert member.answers() == [number(3_000)]
    assert member.service.results == [96]


def test_a_snapshot_that_is_all_there_is_read_before_the_archive_is_asked_about_it(module: ModuleType) -> None:
    messages = ScriptedMember(module.AddingService()).lead().take_snapshot()
    member = ScriptedMember(module.AddingService())
    member.store.script("check", [ArchiveError("the disk is gone")])
    member.start(messages)
    assert member.service.messages_read == 30


@pytest.mark.parametrize("polls", [0, 1, 2, 3])
def test_what_is_read_at_once_begins_with_a_whole_message(module: ModuleType, polls: int) -> None:
    messages = ScriptedMember(module.AddingService()).lead().take_snapshot()[:2]
    member = ScriptedMember(module.AddingService())
    member.service.polls = polls
    recording_id = member.store.add_recording([*messages, bytes(3_000), number(1)])  # of three frames, and one
    member.cm.start(recording_ids=[recording_id], leadership_term_id=1)
    if polls in (1, 2):
        with pytest.raises(AgentTermination, match=r"poll\(\) has read a part of a message: call poll\(\) until"):
            member.agent.on_start()
    else:
        member.agent.on_start()
        assert (member.service.events, member.service.messages_read) == ([bytes(3_000)] * (polls == 3), 2 - polls // 3)


def test_a_service_in_cython_never_reads_a_damaged_snapshot_to_a_normal_end(module: ModuleType) -> None:
    member = ScriptedMember(module.AddingService()).lead()
    member.cm.open_session(1)
    member.deliver(number(42))
    messages = member.take_snapshot()
    frames = member.store.frames(member.store.recording_ids[-1])
    for index in range(len(frames)):
        for at, damage in [(0, bytes(4)), (0, bytes(32)), (5, b"\0"), (6, b"\0")]:
            second = ScriptedMember(module.AddingService(), log_position=member.cm.log_position)
            recording_id = second.store.add_recording(messages)
            log = second.store.recording(recording_id).log
            log.overwrite(log.frames()[index].position + at, damage)
            with pytest.raises(AgentTermination, match="ended unexpectedly|a part of the snapshot is missing"):
                second.start(recording_ids=[recording_id], leadership_term_id=1)
            assert second.idle_strategy.idle_count < 100


def test_a_service_in_cython_has_timers_sessions_and_messages_to_the_cluster(module: ModuleType) -> None:
    member = ScriptedMember(module.AddingService()).lead()
    member.cm.open_session(5, timestamp=1_000)
    member.cm.session_message(5, number(1_000), timestamp=1_001)
    member.cm.session_message(5, number(2_000), timestamp=1_002)
    member.cm.timer_event(7, timestamp=1_006)
    member.cm.close_session(5, timestamp=1_007)
    member.commit()
    assert member.errors == []
    assert member.service.total == 3_007
    assert member.service.events == [
        ("open", 5, 1_000),
        ("timer", 7, 1_006),
        ("close", 5, 1_007, CloseReason.CLIENT_ACTION),
    ]
    assert [(timer.correlation_id, timer.deadline) for timer in member.cm.scheduled_timers] == [(7, 1_006)]
    assert [timer.correlation_id for timer in member.cm.cancelled_timers] == [8]
    assert [message.payload for message in member.cm.service_messages] == [number(1_000), number(1_000)[:4]]
    assert [message.payload for message in member.cm.egress(5)] == [number(1_000), b"", number(2_000) * 2]
    # Positions: of the stream to the consensus module, which has had an ack of each start and join, and of the egress.
    begin = 2 * 96 + 64
    assert member.service.results == [begin + 96, begin + 192, 96, 160, 256]


def test_a_service_in_cython_is_replayed(module: ModuleType, tmp_path: Path) -> None:
    tally = Tally(tmp_path / "member")
    tally.open_session(5)
    first = tally.number(1_000, 5)
    tally.number(2_000, 5)
    timer = tally.timer(7)
    found = replayed(tally.finish(), module.AddingService)
    sent = [(position, payload) for position, _, _, payload in egress(found)]
    assert [payload for _, payload in sent] == [number(1_000), b"", number(2_000) * 2]
    assert sent[0][0] == first
    assert [row["deadline"] for row in of_kind(found, "SCHEDULE_TIMER")] == [tally.answers[0][1] + 5]
    assert [row["log_position"] for row in of_kind(found, "CANCEL_TIMER")] == [timer]
    assert [row["payload"] for row in of_kind(found, "SERVICE_MESSAGE")] == [number(1_000), number(1_000)[:4]]
    assert of_kind(found, "ERROR") == []
    parts = [len(number(0)).to_bytes(8, "little") + number(3_007)] * 30
    assert found[-1]["state_hash"] == hashlib.sha256(b"".join(parts)).hexdigest()


def test_an_exception_of_a_service_in_cython_is_counted(module: ModuleType) -> None:
    member = ScriptedMember(module.AddingService()).lead()
    member.deliver(b"short", number(5))
    assert [str(error) for error in member.errors] == ["5 bytes"]
    assert member.service.total == 5


def test_a_service_in_cython_has_the_whole_cluster(module: ModuleType) -> None:
    member = ScriptedMember(module.AddingService()).start()
    assert member.service.cluster.log_position == 0
    with pytest.raises(ClusterError, match="unknown clusterSessionId: 3"):
        member.service.cluster.close_client_session(3)


def test_a_service_in_cython_sees_of_a_cluster_what_the_document_names() -> None:
    declarations = (ROOT / "src" / "container" / "service" / "cluster.pxd").read_text()
    found = re.search(r"^cdef class Cluster:\n(.*?)^cdef class", declarations, re.DOTALL | re.MULTILINE)
    assert found is not None, "a base of Cluster would give its methods to services"
    methods = set(re.findall(r"^    cdef [^\n(]*?\b([a-z]\w+)\(", found[1], re.MULTILINE))
    row = re.search(r"^\| `Cluster` \| (.*)", (ROOT / "docs" / "cython.md").read_text(), re.MULTILINE)
    assert row is not None
    assert methods == set(re.findall(r"`(\w+)", row[1]))


def test_the_service_of_the_document_works(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "cython.md").read_text()
    found = re.search(r"```cython\n(.*?)```", document, re.DOTALL)
    assert found is not None
    adder = compile_module("adder", found[1], tmp_path).Adder
    member = ScriptedMember(adder()).lead()
    member.cm.open_session(1)
    member.deliver(number(4), b"short", number(5))
    assert member.answers() == [number(4), b"error: send 8 bytes", number(9)]
    hostile.run(adder, [lambda chance: chance.randbytes(8)], seed=7)


def test_the_echo_service_of_the_examples_works(tmp_path: Path) -> None:
    module = load_module(compile_cython(ROOT / "examples" / "cython_echo.pyx", tmp_path, "-O0"))
    member = ScriptedMember(module.EchoHandler()).lead()
    member.cm.open_session(1)
    sent = [b"", b"one", b"x" * 5_000]
    member.deliver(*sent)
    member.deliver(b"not of a session that is open", session_id=2)
    assert member.answers() == sent
    assert member.errors == []
    hostile.run(module.EchoHandler, [lambda chance: chance.randbytes(chance.randrange(100))], seed=8)
