"""Clients that do not read: how long all sends together wait for them, what others notice, and what still arrives.

Time is simulated: it goes by while the member idles, and between messages.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from container.api import (
    ClientSession,
    Cluster,
    ClusteredService,
    Header,
    MessageBuffer,
    SessionMessages,
    SnapshotImage,
)
from container.testing.memory.manual_time import ManualClock
from container.testing.memory.memory_transport import MemoryDriver
from container.testing.memory.scripted_member import ScriptedMember

NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED = -1, -2, -3, -4
MOCKED = 1
MS = 1_000_000
SECOND = 1_000 * MS
SHARED_NS = 30 * MS
INNOCENT = 1
NEVER = 10_000


class AnsweringService(ClusteredService):
    """Answers each message, and notes how long the send took, its result, and where the cluster was around it."""

    def __init__(self, clock: ManualClock, answer: bytes = b"x" * 8_000) -> None:
        self.clock = clock
        self.answer = answer
        self.cluster: Cluster
        self.waits: dict[int, list[int]] = {}
        self.results: dict[int, list[int]] = {}
        self.places: list[tuple[int, int]] = []
        self.background: Callable[[], object] = lambda: None
        self.timer: Callable[[], object] = lambda: None

    def on_start(self, cluster: Cluster, snapshot_image: SnapshotImage | None) -> None:
        self.cluster = cluster

    def on_session_message(
        self, session: ClientSession | None, timestamp: int, buffer: MessageBuffer, header: Header
    ) -> None:
        assert session is not None
        self.handle(session)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.timer()

    def handle(self, session: ClientSession) -> None:
        """Answers."""
        place = (self.cluster.log_position, self.cluster.time)
        begin_ns = self.clock.now_ns
        result = session.send(self.answer)
        self.waits.setdefault(session.id, []).append(self.clock.now_ns - begin_ns)
        self.results.setdefault(session.id, []).append(result)
        assert (self.cluster.log_position, self.cluster.time) == place
        self.places.append(place)

    def do_background_work(self, now_ns: int) -> int:
        self.background()
        return 0

    def waited_ns(self) -> int:
        """What all sends took."""
        return sum(sum(waits) for waits in self.waits.values())


class BatchService(AnsweringService):
    """The same, many messages at a time."""

    def on_session_messages(self, messages: SessionMessages) -> None:
        for index in messages:
            session = messages.session(index)
            assert session is not None
            self.handle(session)


def answering(kind: type[AnsweringService] = AnsweringService, *, window: int = 64 * 1024) -> ScriptedMember:
    """A leader whose egress streams hold ``window`` bytes that nobody has read."""
    clock = ManualClock()
    member = ScriptedMember(kind(clock), driver=MemoryDriver(clock, publication_window=window)).lead()
    member.idle_ns = MS
    return member


def open_sessions(member: ScriptedMember, *session_ids: int) -> None:
    """Opens sessions, all at once."""
    for session_id in session_ids:
        member.cm.open_session(session_id)
    member.commit()


def stick(member: ScriptedMember, *session_ids: int, results: int = NEVER) -> None:
    """The next sends to these sessions meet back pressure, for good if not told otherwise."""
    for session_id in session_ids:
        channel = member.service.cluster.get_client_session(session_id).response_channel
        member.driver.publication_results(channel, 102, [BACK_PRESSURED] * results)


def answer_a_hundred_times(member: ScriptedMember) -> None:
    """In one callback; all answers must come to session 1."""
    service = member.service

    def burst() -> None:
        for _message in range(100):
            service.handle(service.cluster.get_client_session(1))

    service.timer = burst
    member.cm.timer_event(1)
    member.commit()
    assert min(service.results[1]) > 0
    assert len(member.cm.egress(1)) == 100


@pytest.mark.parametrize("kind", [AnsweringService, BatchService])
def test_a_hundred_clients_that_never_read_stall_an_innocent_one_by_30_ms_and_a_tenth_of_the_time(
    kind: type[AnsweringService],
) -> None:
    member = answering(kind)
    stuck = range(2, 102)
    open_sessions(member, INNOCENT, *stuck)
    begin_ns = member.clock.now_ns
    stalls = []
    for _ in range(30):
        before = member.service.waited_ns()
        for session_id in stuck:
            member.cm.session_message(session_id, b"go")
        member.deliver(b"go", session_id=INNOCENT)
        assert len(member.cm.egress(INNOCENT)) == len(member.service.results[INNOCENT])
        stalls.append(member.service.waited_ns() - before)
        member.clock.advance(50 * MS)
    elapsed_ns = member.clock.now_ns - begin_ns
    # Some answers fit the window of each stuck client; each send overshoots by one idling at most.
    assert 0 < member.service.waited_ns() <= SHARED_NS + elapsed_ns / 10 + MS
    assert max(stalls) <= SHARED_NS + 2 * MS
    assert min(member.service.results[INNOCENT]) > 0
    for session_id in stuck:
        assert member.service.results[session_id][-1] == BACK_PRESSURED
    assert member.errors == []


def test_a_client_that_reads_50_ms_in_every_900_stalls_an_innocent_one_for_a_tenth_of_the_time() -> None:
    member = answering()
    slow = 2
    open_sessions(member, INNOCENT, slow)
    begin_ns = member.clock.now_ns

    def read_sometimes() -> None:
        if (member.clock.now_ns - begin_ns) % (900 * MS) < 50 * MS:
            member.cm.egress(slow)

    member.service.background = read_sometimes
    while member.clock.now_ns - begin_ns < 25 * SECOND:
        for session_id in (slow, INNOCENT):
            member.cm.session_message(session_id, b"go")
        member.commit()
        member.cm.egress(INNOCENT)
        member.clock.advance(10 * MS)
    elapsed_ns = member.clock.now_ns - begin_ns
    assert member.service.waited_ns() <= SHARED_NS + elapsed_ns / 10 + MS
    assert max(member.service.waits[slow]) <= SHARED_NS + MS
    assert min(member.service.results[INNOCENT]) > 0
    assert max(member.service.results[slow]) > 0


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_first_broadcast_to_clients_that_do_not_read_takes_no_longer_than_to_one(*, is_connected: bool) -> None:
    member = answering()
    for session_id in range(1, 101):
        member.cm.open_session(session_id, connect_egress=is_connected)
    member.commit()
    service = member.service
    if is_connected:
        stick(member, *range(1, 101))

    def broadcast() -> None:
        for session in service.cluster.client_sessions:
            service.handle(session)

    service.timer = broadcast
    member.cm.timer_event(1)
    member.commit()
    assert 0 < service.waited_ns() <= SHARED_NS + MS
    assert {results[0] for results in service.results.values()} == {BACK_PRESSURED if is_connected else NOT_CONNECTED}
    assert len(service.results) == 100


def test_the_only_client_gets_more_answers_at_once_than_its_window_holds() -> None:
    member = answering()
    member.open_session()
    service = member.service
    service.background = lambda: member.clock.now_ns % (20 * MS) < MS and member.cm.egress(1)

    answer_a_hundred_times(member)
    assert service.waited_ns() > SHARED_NS, "more than would be waited beside others"


def test_a_client_that_is_briefly_slow_among_others_gets_its_answers() -> None:
    member = answering()
    open_sessions(member, 1, 2)
    service = member.service
    service.background = lambda: member.cm.egress(1)

    answer_a_hundred_times(member)


def test_the_only_client_is_waited_for_a_second_and_then_not_for_a_while() -> None:
    member = answering()
    member.open_session()
    stick(member, 1)
    member.deliver(b"1", b"2", b"3")
    first, *others = member.service.waits[1]
    assert SECOND <= first <= SECOND + MS
    assert others == [0, 0]
    for back_off in (1, 2, 4, 8, 16, 32, 32):
        member.clock.advance(back_off * SECOND - 50 * MS)
        member.deliver(b"again")
        assert member.service.waits[1][-1] == 0, f"not for {back_off} s"
        member.clock.advance(100 * MS)
        member.deliver(b"again")
        assert member.service.waits[1][-1] > 0, f"but after {back_off} s"
    member.clock.advance(70 * SECOND)
    member.deliver(b"again")
    member.clock.advance(SECOND)
    member.deliver(b"again")
    assert member.service.waits[1][-1] > 0, "forgotten after a while without a wait that failed"


def test_back_offs_end_to_the_nanosecond() -> None:
    member = answering()
    member.open_session()
    stick(member, 1)
    service = member.service
    ends: list[bool] = []

    def steps() -> None:
        session = service.cluster.get_client_session(1)
        service.handle(session)
        for back_off in (1, 2, 4, 8, 16, 32, 32):
            for advance_ns in (back_off * SECOND - 1, 1):
                member.clock.advance(advance_ns)
                service.handle(session)
                ends.append(service.waits[1][-1] > 0)

    service.timer = steps
    member.cm.timer_event(1)
    member.commit()
    assert ends == [False, True] * 7


@pytest.mark.parametrize(("since_ns", "back_off"), [(SECOND - 1, 2), (SECOND, 1)])
def test_a_back_off_that_lies_as_far_back_as_it_lasted_is_forgotten(since_ns: int, back_off: int) -> None:
    member = answering()
    member.open_session()
    stick(member, 1)
    service = member.service
    waits: list[bool] = []

    def steps() -> None:
        session = service.cluster.get_client_session(1)
        service.handle(session)
        for advance_ns in (SECOND + since_ns, back_off * SECOND - 1, 1):
            member.clock.advance(advance_ns)
            service.handle(session)
            waits.append(service.waits[1][-1] > 0)

    service.timer = steps
    member.cm.timer_event(1)
    member.commit()
    assert waits == [True, False, True]


def test_one_accepted_message_does_not_clear_the_back_off_and_time_does() -> None:
    member = answering()
    member.open_session()
    stick(member, 1, results=1_001)
    member.deliver(b"stuck")
    assert member.service.results[1] == [BACK_PRESSURED]
    member.deliver(b"accepted")
    assert member.service.results[1][-1] > 0
    stick(member, 1, results=1)
    member.deliver(b"not waited for")
    assert (member.service.results[1][-1], member.service.waits[1][-1]) == (BACK_PRESSURED, 0)
    member.clock.advance(SECOND)
    stick(member, 1, results=1)
    member.deliver(b"waited for")
    assert member.service.results[1][-1] > 0
    assert member.service.waits[1][-1] > 0


def test_the_rotation_of_a_term_is_no_slow_client() -> None:
    member = answering()
    open_sessions(member, 1, 2)
    stick(member, 1)
    member.deliver(*[b"go"] * 3)
    channel = member.service.cluster.get_client_session(2).response_channel
    member.driver.publication_results(channel, 102, [ADMIN_ACTION])
    member.deliver(b"go", session_id=2)
    assert member.service.results[2][0] > 0
    assert member.service.waits[2] == [0]


@pytest.mark.parametrize("result", [CLOSED, -5])
def test_what_waiting_cannot_change_is_not_waited_for(result: int) -> None:
    member = answering()
    member.open_session()
    channel = member.service.cluster.get_client_session(1).response_channel
    member.driver.publication_results(channel, 102, [result])
    member.deliver(b"go")
    assert (member.service.results[1], member.service.waits[1]) == ([result], [0])


@pytest.mark.parametrize("kind", [AnsweringService, BatchService])
def test_a_leader_that_waits_is_where_a_follower_is(kind: type[AnsweringService]) -> None:
    places = []
    for is_leader in (True, False):
        clock = ManualClock()
        member = ScriptedMember(kind(clock), driver=MemoryDriver(clock))
        if is_leader:
            member.lead()
        else:
            member.follow()
        open_sessions(member, 1, 2)
        if is_leader:
            stick(member, 2)
        for _ in range(3):
            for session_id in (2, 1, 2, 2):
                member.cm.session_message(session_id, b"go")
        member.commit()
        places.append(member.service.places)
        assert (member.service.waited_ns() > 0) == is_leader
        if not is_leader:
            assert {result for results in member.service.results.values() for result in results} == {MOCKED}
    assert places[0] == places[1]
    assert len(places[0]) == 12


def test_a_new_publication_forgets_how_slow_the_client_was() -> None:
    member = answering()
    member.open_session()
    stick(member, 1, results=1_001)
    member.deliver(b"stuck")
    member.cm.end_log()
    member.work()
    member.cm.join_as_leader()
    member.work()
    stick(member, 1, results=1)
    member.deliver(b"go")
    assert member.service.results[1][-1] > 0


def test_background_work_inside_a_wait_does_not_use_up_the_budget_of_later_ones() -> None:
    member = answering()
    open_sessions(member, 1, 2)
    stick(member, 1, results=3)

    def busy() -> None:
        member.service.background = lambda: None
        member.clock.advance(5_000 * MS)

    member.service.timer = lambda: None
    member.service.background = busy
    member.deliver(b"q", session_id=1)
    member.clock.advance(1_000 * MS)
    stick(member, 2, results=1)
    member.deliver(b"q", session_id=2)
    assert member.service.results[2][-1] > 0
