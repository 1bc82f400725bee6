"""Service messages that are not in the log yet: ids, appending, what is dropped when, and snapshots.

The first part stands for upstream's PendingServiceMessageTrackerTest.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from container.consensus.pending_service_messages import (
    PendingServiceMessageTracker,
    service_id_from_log_message,
    service_id_from_service_message,
    service_session_id,
)
from container.errors import Category, ClusterError, ConfigurationError
from tests.cython_module import compile_module
from tests.resources import used_mib

LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)
LIMIT = 20
HEADER = struct.Struct("<HHHHqqq")  # block length, template id, schema id, version; term, session id, timestamp

SOURCE = """
from libc.stdint cimport int64_t, uint8_t

from container.consensus.pending_service_messages cimport (
    MessageAppender, PendingMessageSnapshot, PendingServiceMessageTracker,
)


cdef class Log(MessageAppender):
    '''A log that takes messages until `room` of them are in it.'''

    cdef public list messages       # (session id, payload)
    cdef public object room
    cdef public int64_t refusal
    cdef public object action       # called with the session id before a message is taken

    def __init__(self):
        self.messages = []
        self.room = float("inf")
        self.refusal = -2
        self.action = None

    cdef int64_t append_message(self, int64_t cluster_session_id, const uint8_t* payload, size_t length) except? -6:
        if self.action is not None:
            self.action(cluster_session_id)
        if len(self.messages) >= self.room:
            return self.refusal
        self.messages.append((cluster_session_id, payload[:length]))
        return 64 * len(self.messages)


cdef class Taken(PendingMessageSnapshot):
    cdef public list messages
    cdef public object action

    def __init__(self, action=None):
        self.messages = []
        self.action = action

    cdef int on_message(self, const uint8_t* message, size_t length) except -1:
        if self.action is not None:
            self.action()
        self.messages.append(message[:length])
        return 0


def enqueue(PendingServiceMessageTracker tracker, bytes payload):
    return tracker.enqueue(payload, len(payload))


def enqueue_many(PendingServiceMessageTracker tracker, bytes payload, int count):
    for _ in range(count):
        tracker.enqueue(payload, len(payload))


def poll(PendingServiceMessageTracker tracker, MessageAppender log):
    return tracker.poll(log)


def load_message(PendingServiceMessageTracker tracker, bytes message):
    tracker.load_message(message, len(message))


def messages(PendingServiceMessageTracker tracker, action=None):
    taken = Taken(action)
    tracker.for_each(taken)
    return taken.messages


def append_to_nothing(PendingServiceMessageTracker tracker):
    tracker.poll(MessageAppender())


def snapshot_to_nothing(PendingServiceMessageTracker tracker):
    tracker.for_each(PendingMessageSnapshot())
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compile_module("pending_messages_user", SOURCE, tmp_path_factory.mktemp("pending_messages_user"))


@pytest.fixture
def tracker() -> PendingServiceMessageTracker:
    return PendingServiceMessageTracker(0)


def first_id(service_id: int = 0) -> int:
    return service_session_id(service_id, LONG_MIN) + 1


def fields(message: bytes) -> tuple[int, int, bytes]:
    """Session id, timestamp and payload of a stored message; its header must be a SessionMessageHeader."""
    block_length, template_id, schema_id, version, term, session_id, timestamp = HEADER.unpack_from(message)
    assert (block_length, template_id, schema_id, term) == (24, 1, 111, -1)
    assert version > 0
    return session_id, timestamp, message[HEADER.size :]


def copy_of(native: Any, tracker: PendingServiceMessageTracker) -> PendingServiceMessageTracker:
    """What another member has after it has loaded a snapshot of the tracker."""
    loaded = PendingServiceMessageTracker(tracker.service_id)
    loaded.load_state(tracker.next_service_session_id_for_snapshot(), tracker.log_service_session_id, tracker.size())
    for message in native.messages(tracker):
        native.load_message(loaded, message)
    loaded.verify()
    assert native.messages(loaded) == native.messages(tracker)
    assert loaded.size() == tracker.size()
    loaded.reset()
    return loaded


def ids(native: Any, tracker: PendingServiceMessageTracker) -> list[int]:
    return [fields(message)[0] - first_id(tracker.service_id) for message in native.messages(tracker)]


# Upstream's tests.


@pytest.mark.parametrize(
    "calls", ["", "enqueue", "enqueue poll", "enqueue poll sweep_leader", "enqueue poll sweep_follower"]
)
def test_a_snapshot_is_whole_in_each_state_of_a_message(
    native: Any, tracker: PendingServiceMessageTracker, calls: str
) -> None:
    log = native.Log()
    steps: dict[str, Callable[[], object]] = {
        "enqueue": lambda: native.enqueue(tracker, bytes(32)),
        "poll": lambda: native.poll(tracker, log),
        "sweep_leader": lambda: tracker.sweep_leader(64),
        "sweep_follower": lambda: tracker.sweep_follower(first_id()),
    }
    for name in calls.split():
        steps[name]()
    loaded = copy_of(native, tracker)
    assert loaded.next_service_session_id == tracker.next_service_session_id
    assert loaded.log_service_session_id == tracker.log_service_session_id
    swept = "sweep" in calls
    assert tracker.size() == (72 if calls and not swept else 0)
    assert tracker.log_service_session_id == first_id() - (0 if swept else 1)


def test_a_loaded_state_must_fit_together(tracker: PendingServiceMessageTracker) -> None:
    tracker.load_state(-9223372036854774166, -9223372036854774166, 0)
    with pytest.raises(ClusterError) as raised:
        tracker.verify()
    assert str(raised.value) == (
        "snapshot has incorrect pending message state: serviceId=0 nextServiceSessionId=-9223372036854774166 "
        "logServiceSessionId=-9223372036854774166 pendingMessageCount=0"
    )
    assert raised.value.category is Category.FATAL
    tracker.load_state(-9223372036854774165, -9223372036854774166, 0)
    tracker.verify()


# Ids.


@pytest.mark.parametrize("service_id", [0, 1, 2, 127])
def test_a_session_id_tells_its_service(service_id: int) -> None:
    tracker = PendingServiceMessageTracker(service_id)
    assert tracker.service_id == service_id
    assert tracker.next_service_session_id == tracker.log_service_session_id + 1 == first_id(service_id)
    assert tracker.log_service_session_id == service_session_id(service_id, LONG_MIN) < 0
    assert service_id_from_log_message(tracker.next_service_session_id) == service_id
    assert service_id_from_log_message(tracker.next_service_session_id + 2**40) == service_id
    assert service_id_from_service_message(service_id) == service_id


def test_the_ids_of_services_as_upstream_makes_them() -> None:
    assert service_session_id(0, LONG_MIN) == -9223372036854775808
    assert service_session_id(1, LONG_MIN) == -9151314442816847872
    assert service_session_id(3, 5) == 3 * 2**56 + 5
    assert service_id_from_service_message(-1) == -1


@pytest.mark.parametrize("service_id", [-1, 128, LONG_MAX])
def test_a_service_id_has_seven_bits(service_id: int) -> None:
    with pytest.raises(ConfigurationError, match=f"service id {service_id}: give one of 0 to 127"):
        PendingServiceMessageTracker(service_id)


@pytest.mark.parametrize("capacity", [0, -1, 2**30 + 1])
def test_a_capacity_has_bounds(capacity: int) -> None:
    with pytest.raises(ConfigurationError, match=f"capacity {capacity} for pending service messages: give 1 to"):
        PendingServiceMessageTracker(0, capacity)


# The life of a message.


def test_messages_are_appended_in_order_20_in_a_poll(native: Any, tracker: PendingServiceMessageTracker) -> None:
    log = native.Log()
    payloads = [bytes([number]) * number for number in range(50)]
    assert all(native.enqueue(tracker, payload) for payload in payloads)
    assert [native.poll(tracker, log) for _ in range(4)] == [LIMIT, LIMIT, 10, 0]
    assert log.messages == [(first_id() + number, payload) for number, payload in enumerate(payloads)]


def test_stored_messages_are_those_of_a_snapshot(native: Any) -> None:
    tracker, log = PendingServiceMessageTracker(3), native.Log()
    for payload in (b"", b"a", b"12345678"):
        native.enqueue(tracker, payload)
    log.room = 1
    assert native.poll(tracker, log) == 1
    first = first_id(3)
    assert [fields(message) for message in native.messages(tracker)] == [
        (first, 64, b""),
        (first + 1, LONG_MAX, b"a"),
        (first + 2, LONG_MAX, b"12345678"),
    ]
    assert tracker.size() == 40 + 48 + 48


@pytest.mark.parametrize("refusal", [0, -1, -2, -3, -4, -5, -100])
def test_what_cannot_be_appended_stays_first(native: Any, tracker: PendingServiceMessageTracker, refusal: int) -> None:
    log = native.Log()
    log.room, log.refusal = 2, refusal
    native.enqueue_many(tracker, b"x", 5)
    assert native.poll(tracker, log) == 2
    assert native.poll(tracker, log) == 0
    log.room = 10
    assert native.poll(tracker, log) == 3
    assert [session_id - first_id() for session_id, _ in log.messages] == [0, 1, 2, 3, 4]


def test_an_appender_that_raises_has_appended_what_came_before(
    native: Any, tracker: PendingServiceMessageTracker
) -> None:
    def action(session_id: int) -> None:
        if session_id == first_id() + 2:
            raise ValueError("no")

    log = native.Log()
    log.action = action
    native.enqueue_many(tracker, b"x", 5)
    with pytest.raises(ValueError, match="no"):
        native.poll(tracker, log)
    log.action = None
    assert native.poll(tracker, log) == 3
    assert len(log.messages) == 5


def test_a_leader_drops_what_is_committed(native: Any, tracker: PendingServiceMessageTracker) -> None:
    log = native.Log()
    log.room = 4
    native.enqueue_many(tracker, b"x", 6)
    native.poll(tracker, log)
    for commit, left in [(63, range(6)), (64, range(1, 6)), (64, range(1, 6)), (200, range(3, 6)), (255, range(3, 6))]:
        tracker.sweep_leader(commit)
        assert ids(native, tracker) == list(left)
        assert tracker.log_service_session_id == first_id() + left[0] - 1
    tracker.sweep_leader(LONG_MAX)
    assert ids(native, tracker) == [4, 5], "what is not appended is not committed"
    log.room = 6
    assert native.poll(tracker, log) == 2
    assert len(set(log.messages)) == 6


def test_a_follower_drops_what_it_reads_from_the_log(native: Any, tracker: PendingServiceMessageTracker) -> None:
    native.enqueue_many(tracker, b"x", 4)
    tracker.sweep_follower(first_id() + 1)
    assert ids(native, tracker) == [2, 3]
    tracker.sweep_follower(first_id() + 3)
    assert tracker.size() == 0
    assert tracker.next_service_session_id == first_id() + 4


def test_an_id_that_comes_twice_changes_nothing(native: Any, tracker: PendingServiceMessageTracker) -> None:
    native.enqueue_many(tracker, b"x", 3)
    tracker.sweep_follower(first_id() + 1)
    tracker.sweep_follower(first_id())
    assert tracker.log_service_session_id == first_id() + 1
    assert ids(native, tracker) == [2]
    copy_of(native, tracker)


def test_what_is_in_the_log_already_is_not_kept(native: Any, tracker: PendingServiceMessageTracker) -> None:
    """The log is replayed before the service has offered the messages again, or the service is slower than the log."""
    tracker.sweep_follower(first_id() + 1)
    assert [native.enqueue(tracker, bytes([number])) for number in range(4)] == [False, False, True, True]
    assert ids(native, tracker) == [2, 3]
    assert tracker.next_service_session_id == first_id() + 4


def test_what_a_leader_appended_in_vain_is_appended_again(native: Any, tracker: PendingServiceMessageTracker) -> None:
    log = native.Log()
    native.enqueue_many(tracker, b"x", 5)
    log.room = 4
    native.poll(tracker, log)
    tracker.restore_uncommitted(130)
    assert ids(native, tracker) == [2, 3, 4]
    assert {fields(message)[1] for message in native.messages(tracker)} == {LONG_MAX}
    again = native.Log()
    assert native.poll(tracker, again) == 3
    assert [session_id - first_id() for session_id, _ in again.messages] == [2, 3, 4]


def test_a_new_leader_goes_on_where_the_log_of_the_old_one_ends(native: Any) -> None:
    old, new = PendingServiceMessageTracker(1), PendingServiceMessageTracker(1)
    log = native.Log()
    for number in range(8):
        native.enqueue(old, bytes([number]))
        native.enqueue(new, bytes([number]))
    log.room = 5
    native.poll(old, log)
    committed = log.messages[:3]
    new.sweep_follower(committed[-1][0])
    old.restore_uncommitted(3 * 64)
    next_log = native.Log()
    native.poll(new, next_log)
    assert [payload for _, payload in committed + next_log.messages] == [bytes([number]) for number in range(8)]
    old.sweep_follower(next_log.messages[-1][0])
    new.sweep_leader(5 * 64)
    assert old.size() == new.size() == 0
    assert old.log_service_session_id == new.log_service_session_id


def test_a_follower_sweep_takes_what_this_member_appended_as_well(
    native: Any, tracker: PendingServiceMessageTracker
) -> None:
    log = native.Log()
    native.enqueue_many(tracker, b"x", 3)
    log.room = 2
    native.poll(tracker, log)
    tracker.sweep_follower(first_id())
    tracker.sweep_leader(64)
    assert ids(native, tracker) == [1, 2]
    tracker.sweep_follower(first_id() + 1)
    log.room = 9
    assert native.poll(tracker, log) == 1
    assert log.messages[-1][0] == first_id() + 2


# Snapshots.


def test_positions_in_a_snapshot_are_forgotten(native: Any, tracker: PendingServiceMessageTracker) -> None:
    log = native.Log()
    native.enqueue_many(tracker, b"x", 3)
    log.room = 2
    native.poll(tracker, log)
    loaded = copy_of(native, tracker)
    loaded.sweep_leader(LONG_MAX)
    assert ids(native, loaded) == [0, 1, 2]
    assert {fields(message)[1] for message in native.messages(loaded)} == {LONG_MAX}
    again = native.Log()
    assert native.poll(loaded, again) == 3


def test_a_load_replaces_what_was_there(native: Any, tracker: PendingServiceMessageTracker) -> None:
    native.enqueue_many(tracker, b"x", 3)
    native.poll(tracker, native.Log())
    tracker.load_state(first_id() + 10, first_id() + 9, 0)
    tracker.verify()
    assert tracker.size() == 0
    assert native.enqueue(tracker, b"y")
    assert ids(native, tracker) == [10]


def test_a_gap_between_loaded_messages_is_found(native: Any, tracker: PendingServiceMessageTracker) -> None:
    native.enqueue_many(tracker, b"x", 3)
    stored = native.messages(tracker)
    loaded = PendingServiceMessageTracker(0)
    loaded.load_state(first_id() + 3, first_id() - 1, 0)
    native.load_message(loaded, stored[0])
    native.load_message(loaded, stored[2])
    with pytest.raises(ClusterError) as raised:
        loaded.verify()
    assert str(raised.value) == (
        f"snapshot has incorrect pending message: serviceId=0 nextServiceSessionId={first_id() + 3} "
        f"logServiceSessionId={first_id() - 1} clusterSessionId={first_id() + 2} pendingMessageIndex=2"
    )
    assert raised.value.category is Category.FATAL


@pytest.mark.parametrize("log_id", [LONG_MAX, LONG_MAX - 1])
def test_ids_at_the_end_of_the_numbers_are_compared_without_an_overflow(
    tracker: PendingServiceMessageTracker, log_id: int
) -> None:
    tracker.load_state(LONG_MIN + 5, log_id, 0)
    with pytest.raises(ClusterError, match="incorrect pending message state"):
        tracker.verify()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "message is truncated"),
        (bytes(31), "message is of another schema"),
        (HEADER.pack(24, 1, 111, 16, 0, 1, 2)[:31], "block length reaches beyond the message"),
        (HEADER.pack(24, 1, 112, 16, 0, 1, 2), "message is of another schema"),
        (HEADER.pack(24, 2, 111, 16, 0, 1, 2), "message has another template id"),
        (HEADER.pack(8, 1, 111, 16, 0, 1, 2), "block is shorter than in any version"),
    ],
)
def test_a_loaded_message_must_be_one(
    native: Any, tracker: PendingServiceMessageTracker, message: bytes, problem: str
) -> None:
    with pytest.raises(ClusterError, match=f"incorrect pending message: serviceId=0: ({problem})") as raised:
        native.load_message(tracker, message)
    assert raised.value.category is Category.FATAL
    assert tracker.size() == 0


def test_a_snapshot_has_no_negative_capacity(tracker: PendingServiceMessageTracker) -> None:
    with pytest.raises(ClusterError, match="incorrect pending message capacity -1 for serviceId=0: it is damaged"):
        tracker.load_state(1, 0, -1)
    assert tracker.next_service_session_id == first_id()


def test_a_snapshot_counts_messages_that_the_service_did_not_offer(
    native: Any, tracker: PendingServiceMessageTracker
) -> None:
    native.enqueue(tracker, b"x")
    assert tracker.missed_messages() is None
    assert tracker.next_service_session_id_for_snapshot() == first_id() + 1
    tracker.sweep_follower(first_id() + 3)
    assert tracker.next_service_session_id == first_id() + 1
    assert tracker.next_service_session_id_for_snapshot() == first_id() + 4
    assert str(tracker.missed_messages()).startswith(
        "follower has missed 3 service message(s): service 0 did not offer"
    )
    copy_of(native, tracker)


def test_a_snapshot_that_fails_leaves_the_tracker_as_it_was(native: Any, tracker: PendingServiceMessageTracker) -> None:
    def fail() -> None:
        raise ValueError("no")

    native.enqueue_many(tracker, b"x", 3)
    with pytest.raises(ValueError, match="no"):
        native.messages(tracker, fail)
    assert ids(native, tracker) == [0, 1, 2]


# Memory.


def test_more_than_the_capacity_is_refused_and_changes_nothing(native: Any) -> None:
    tracker = PendingServiceMessageTracker(2, 100)
    log = native.Log()
    assert native.enqueue(tracker, b"12345678")
    assert native.enqueue(tracker, b"")
    with pytest.raises(ClusterError, match="at capacity=100 for serviceId=2: a message of 32 bytes has no room beside"):
        native.enqueue(tracker, b"")
    assert tracker.next_service_session_id == first_id(2) + 2
    assert native.poll(tracker, log) == 2
    tracker.sweep_leader(64)
    assert native.enqueue(tracker, b"now")
    assert native.poll(tracker, log) == 1
    assert [payload for _, payload in log.messages] == [b"12345678", b"", b"now"]


def test_what_is_in_the_log_needs_no_room(native: Any) -> None:
    tracker = PendingServiceMessageTracker(0, 40)
    tracker.sweep_follower(first_id())
    assert not native.enqueue(tracker, bytes(1000))
    assert native.enqueue(tracker, b"")


def test_a_message_longer_than_the_capacity_is_refused(native: Any) -> None:
    with pytest.raises(ClusterError, match="a message of 1032 bytes has no room beside 0 bytes"):
        native.enqueue(PendingServiceMessageTracker(0, 1000), bytes(1000))


def test_messages_stay_whole_while_memory_grows_and_moves(native: Any) -> None:
    tracker, log = PendingServiceMessageTracker(0, 1 << 20), native.Log()
    sent: list[bytes] = []
    numbers = itertools.count()
    committed = 0
    for turn in range(400):
        while tracker.size() < (turn % 7) * 100_000:
            sent.append(struct.pack("<q", next(numbers)) * (1 + (len(sent) * 37) % 600))
            native.enqueue(tracker, sent[-1])
        native.poll(tracker, log)
        committed = max(committed, 64 * (len(log.messages) - turn % 50))
        tracker.sweep_leader(committed)
    while native.poll(tracker, log):
        pass
    assert [payload for _, payload in log.messages] == sent
    tracker.sweep_leader(LONG_MAX)
    assert tracker.size() == 0


def test_a_flood_ends_with_an_error_and_the_memory_is_given_back(native: Any) -> None:
    tracker = PendingServiceMessageTracker(0, 1 << 22)
    with pytest.raises(ClusterError, match="at capacity=4194304"):
        native.enqueue_many(tracker, bytes(1000), 10_000)
    assert tracker.size() <= 1 << 22
    tracker.sweep_follower(tracker.next_service_session_id - 1)
    assert tracker.size() == 0
    assert native.enqueue(tracker, b"x")
    assert len(ids(native, tracker)) == 1


def test_an_empty_tracker_keeps_little_memory(native: Any, tracker: PendingServiceMessageTracker) -> None:
    before = used_mib()
    for _ in range(3):
        native.enqueue_many(tracker, bytes(10_000), 6_000)
        assert used_mib() > before + 50
        tracker.sweep_follower(tracker.next_service_session_id - 1)
        assert used_mib() < before + 20


def test_a_tracker_that_goes_gives_its_memory_back(native: Any) -> None:
    def live() -> None:
        native.enqueue_many(PendingServiceMessageTracker(0), bytes(1000), 1000)

    for _ in range(3):
        live()
    before = used_mib()
    for _ in range(100):
        live()
    assert used_mib() < before + 20


# Whoever is given messages must not change them.


def test_an_appender_must_not_change_the_tracker(native: Any, tracker: PendingServiceMessageTracker) -> None:
    log = native.Log()
    native.enqueue_many(tracker, b"x", 2)
    changes: list[Callable[[], object]] = [
        lambda: native.enqueue(tracker, b"y"),
        lambda: native.poll(tracker, log),
        lambda: tracker.sweep_leader(1),
        lambda: tracker.sweep_follower(first_id()),
        lambda: tracker.restore_uncommitted(1),
        lambda: tracker.load_state(1, 0, 0),
        lambda: tracker.reset(),
        lambda: native.messages(tracker),
        lambda: native.load_message(tracker, HEADER.pack(24, 1, 111, 16, 0, 1, 2)),
    ]
    for change in changes:
        log.action = lambda _, change=change: change()
        with pytest.raises(ClusterError, match="pending messages of service 0 are being handed out"):
            native.poll(tracker, log)
        with pytest.raises(ClusterError, match="pending messages of service 0 are being handed out"):
            native.messages(tracker, change)
    assert ids(native, tracker) == [0, 1]
    log.action = None
    assert native.poll(tracker, log) == 2


def test_an_abstract_class_names_the_method_that_is_missing(native: Any, tracker: PendingServiceMessageTracker) -> None:
    native.enqueue(tracker, b"x")
    with pytest.raises(TypeError, match="MessageAppender does not implement append_message"):
        native.append_to_nothing(tracker)
    with pytest.raises(TypeError, match="PendingMessageSnapshot does not implement on_message"):
        native.snapshot_to_nothing(tracker)
    assert ids(native, tracker) == [0]


# Against a list.


class Cluster(RuleBasedStateMachine):
    """Two members with one service: each leads in turn, and what is committed reaches the other.

    The model: all payloads that the service has offered so far, and the log, which must be a prefix of these.
    """

    native: Any

    @initialize(service_id=st.integers(0, 127))
    def begin(self, service_id: int) -> None:
        self.service_id = service_id
        self.trackers = [PendingServiceMessageTracker(service_id) for _ in range(2)]
        self.offered: list[bytes] = []
        self.heard = [0, 0]  # how many of the offered messages reached each member's tracker
        self.log: list[tuple[int, bytes]] = []  # committed and not yet committed ones
        self.committed = 0
        self.read = 0  # how many of the committed ones the follower has read
        self.leader = 0
        self.appender = self.native.Log()
        self.appender.messages = self.log

    @rule(payloads=st.lists(st.binary(max_size=90), min_size=1, max_size=30))
    def offer(self, payloads: list[bytes]) -> None:
        self.offered += payloads

    @rule(member=st.integers(0, 1), count=st.integers(1, 40))
    def hear(self, member: int, count: int) -> None:
        for payload in self.offered[self.heard[member] : self.heard[member] + count]:
            in_log = self.committed if member == self.leader else self.read
            pending = self.native.enqueue(self.trackers[member], payload)
            assert pending == (self.heard[member] >= in_log)
            self.heard[member] += 1

    @rule(room=st.integers(0, 30))
    def poll(self, room: int) -> None:
        before = len(self.log)
        self.appender.room = before + room
        appended = self.native.poll(self.trackers[self.leader], self.appender)
        assert appended == len(self.log) - before
        assert appended == max(0, min(room, LIMIT, self.heard[self.leader] - before))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed, len(self.log)))
        self.trackers[self.leader].sweep_leader(64 * self.committed + data.draw(st.integers(0, 63)))

    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.read, self.committed))
        for session_id, _ in self.log[self.read : end]:
            assert service_id_from_log_message(session_id) == self.service_id
            self.trackers[1 - self.leader].sweep_follower(session_id)
        self.read = end

    @rule()
    def change_leader(self) -> None:
        self.trackers[self.leader].restore_uncommitted(64 * self.committed)
        del self.log[self.committed :]
        for session_id, _ in self.log[self.read :]:
            self.trackers[1 - self.leader].sweep_follower(session_id)
        self.read = self.committed
        self.leader = 1 - self.leader

    @rule(member=st.integers(0, 1))
    def restart_from_snapshot(self, member: int) -> None:
        """All is committed and read when a snapshot is taken; the leader has appended nothing since."""
        if self.read == self.committed == len(self.log):
            missed = self.trackers[member].missed_messages()
            assert (missed is not None) == (self.heard[member] < self.committed)
            self.trackers[member] = copy_of(self.native, self.trackers[member])
            self.heard[member] = max(self.heard[member], self.committed)  # the snapshot says so

    @invariant()
    def the_log_is_what_was_offered(self) -> None:
        assert [payload for _, payload in self.log] == self.offered[: len(self.log)]
        assert [session_id for session_id, _ in self.log] == [
            first_id(self.service_id) + number for number in range(len(self.log))
        ]

    @invariant()
    def pending_is_what_is_not_in_the_log(self) -> None:
        for member, tracker in enumerate(self.trackers):
            end = self.committed if member == self.leader else self.read
            stored = [fields(message) for message in self.native.messages(tracker)]
            assert [payload for _, _, payload in stored] == self.offered[end : max(end, self.heard[member])]
            appended = len(self.log) if member == self.leader else end
            assert [timestamp for _, timestamp, _ in stored] == [
                64 * (number + 1) if number < appended else LONG_MAX for number in range(end, end + len(stored))
            ]
            assert tracker.next_service_session_id == first_id(self.service_id) + self.heard[member]
            assert tracker.log_service_session_id == first_id(self.service_id) + end - 1
            assert tracker.size() == sum((8 + len(message) + 7) // 8 * 8 for message in self.native.messages(tracker))


def test_no_message_is_lost_or_in_the_log_twice(native: Any) -> None:
    machine = type("ClusterOfTwo", (Cluster,), {"native": native})
    run_state_machine_as_test(machine, settings=settings(max_examples=150, stateful_step_count=40))
