"""How a leader connects the egress of its sessions: all at once, and without a service that waits for the dead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container import BufferClaim
from container.api import ClientSession, Role
from container.common.aeron_defaults import EGRESS_STREAM_ID
from container.errors import AgentTermination
from container.testing.memory.recording_service import RecordingService
from container.testing.memory.scripted_member import ScriptedMember
from tests.limits import LIMIT_S
from tests.real_member import RealMember

COUNT = 300
NOT_CONNECTED = -1
NEVER = 10**9
IPC = "aeron:ipc?term-length=64k"


def new_leader(session_count: int = COUNT, delay: int = NEVER, channel: str | None = None) -> ScriptedMember:
    """A member that follows with so many sessions, and whose driver will answer for egress after so many invokes.

    With a channel each session has a stream of it, else an endpoint of its own.
    """
    member = ScriptedMember().start()
    member.cm.join_as_follower()
    member.work()
    for session_id in range(1, session_count + 1):
        member.cm.open_session(
            session_id,
            connect_egress=False,
            response_channel=channel,
            response_stream_id=EGRESS_STREAM_ID if channel is None else 1_000 + session_id,
        )
    member.commit()
    member.cm.end_log()
    member.work()
    for _ in range(session_count):
        member.driver.delay_next_add("publication", delay)
    member.cm.join_as_leader()
    return member


def listen(member: ScriptedMember, *session_ids: int) -> None:
    """Those clients are there."""
    for session_id in session_ids:
        member.cm.connect_egress(session_id, f"aeron:udp?endpoint=localhost:{20_000 + session_id}")


def test_a_driver_that_does_not_answer_for_egress_holds_up_a_new_leader_for_a_second_and_no_longer() -> None:
    member = new_leader()
    begin_ns = member.clock.now_ns
    member.work(1)
    assert member.service.of("on_role_change")[-1] == (Role.LEADER,)
    assert 900_000_000 <= member.clock.now_ns - begin_ns <= 1_100_000_000
    begin_ns = member.clock.now_ns
    member.deliver(b"x")
    assert member.service.messages == [b"x"]
    assert member.clock.now_ns - begin_ns <= 20_000_000
    assert member.errors == []


def test_what_is_answered_at_once_is_connected_before_the_role_changes() -> None:
    member = new_leader(delay=0)
    connected: list[int] = []

    def count(_role: Role) -> None:
        connected.append(sum(session.is_connected for session in member.service.cluster.client_sessions))

    listen(member, *range(1, COUNT + 1))
    member.in_callback(count, "on_role_change")
    member.work(1)
    assert connected == [COUNT]


def test_what_is_answered_late_is_connected_by_a_later_tick() -> None:
    member = new_leader(delay=100)
    listen(member, COUNT)
    member.work(1)
    session = member.service.cluster.get_client_session(COUNT)
    assert session is not None
    assert not session.is_connected
    member.work(12_000)
    assert session.is_connected
    assert len(member.driver.publications()) >= COUNT


@pytest.mark.parametrize(
    ("channel", "count", "delay"),
    [
        (IPC, 1_000, 10),
        ("aeron:udp?endpoint=192.0.2.1:20000", 1_000, 10),
        ("aeron:udp?control=[::1]:20000|control-mode=dynamic", 1_000, 10),
        pytest.param(IPC, 10_000, 3, marks=pytest.mark.slow),
    ],
)
def test_thousands_are_connected_within_the_second_that_a_new_leader_waits(
    channel: str, count: int, delay: int
) -> None:
    member = new_leader(count, delay, channel)
    member.work(1)
    assert member.service.of("on_role_change")[-1] == (Role.LEADER,)
    assert len(member.driver.publications()) >= count


@pytest.mark.parametrize(
    "name", ["endpoint=nobody.invalid:20000", "endpoint=[::1]:20000|control=nobody.invalid:20000|control-mode=dynamic"]
)
def test_clients_whose_names_are_not_resolved_hold_up_no_others(name: str) -> None:
    """The driver says nothing of the names."""
    member = new_leader(session_count=4, channel=f"aeron:udp?{name}")
    member.work(1)
    others = list(range(100, 120))
    for session_id in others:
        member.driver.delay_next_add("publication", 3)
        member.cm.open_session(session_id, response_channel=IPC, response_stream_id=1_000 + session_id)
    member.commit()
    member.work(10)
    assert [session.id for session in member.service.cluster.client_sessions if session.is_connected] == others


def test_a_driver_that_is_slow_with_each_answer_does_not_hold_up_the_log_for_each() -> None:
    member = new_leader(session_count=0)
    member.work(1)
    connected: list[bool] = []
    member.service.actions["on_session_open"] = lambda session, _timestamp: connected.append(session.is_connected)

    def open_sessions(*session_ids: int) -> None:
        for session_id in session_ids:
            member.driver.delay_next_add("publication", 1_600)  # 0.9 s
            member.cm.open_session(session_id, response_channel=IPC, response_stream_id=1_000 + session_id)
        member.commit()

    begin_ns = member.clock.now_ns
    open_sessions(*range(100, 120))
    assert member.clock.now_ns - begin_ns <= 1_100_000_000
    assert connected == [True] + [False] * 19
    member.work(1_700)
    assert all(session.is_connected for session in member.service.cluster.client_sessions)
    # Now the log has gone on for a while, so another session is waited for.
    open_sessions(120)
    assert connected[20:] == [True]


def test_sessions_open_without_a_wait_for_the_driver() -> None:
    member = new_leader(session_count=0)
    member.work(1)
    for session_id in range(100, 200):
        member.driver.delay_next_add("publication", 1_000)
        member.cm.open_session(session_id, response_channel=IPC, response_stream_id=1_000 + session_id)
    begin_ns = member.clock.now_ns
    member.commit()
    assert len(member.service.of("on_session_open")) == 100
    assert member.clock.now_ns - begin_ns <= 20_000_000
    member.work(2_500)
    assert all(session.is_connected for session in member.service.cluster.client_sessions)
    assert member.errors == []


def claim(session: ClientSession) -> int:
    with BufferClaim() as claim:
        result = session.try_claim(4, claim)
        claim.buffer[:] = b"sent"
    return result


@pytest.mark.parametrize(
    "use",
    [lambda session: session.offer(b"sent"), lambda session: session.send(b"sent"), claim],
    ids=["offer", "send", "claim"],
)
@pytest.mark.parametrize("others", [0, 1])
def test_the_first_use_of_an_egress_waits_for_the_driver(use: Callable[[ClientSession], int], others: int) -> None:
    """In place of the open: a service that answers at once finds what upstream's finds. Nobody else's callback runs."""
    member = new_leader(session_count=0)
    member.work(1)
    for session_id in range(1, 1 + others):
        member.driver.delay_next_add("publication", NEVER)
        member.open_session(session_id)
    member.driver.delay_next_add("publication", 100)
    worked: list[int] = []

    def count(now_ns: int) -> int:
        worked.append(now_ns)
        return 0

    def answer(session: ClientSession, _timestamp: int) -> tuple[int, int]:
        member.service.actions["do_background_work"] = count
        try:
            return use(session), len(worked)
        finally:
            del member.service.actions["do_background_work"]

    results = member.in_callback(answer, "on_session_open")
    begin_ns = member.clock.now_ns
    member.open_session(7)
    assert results[0][0] > 0
    assert results[0][1] == 0
    assert 50_000_000 <= member.clock.now_ns - begin_ns <= 500_000_000
    assert member.answers(7) == [b"sent"]
    assert member.errors == []


def test_a_look_at_whether_a_session_is_connected_waits_in_a_callback_that_may_send_and_nowhere_else() -> None:
    member = new_leader(session_count=0)
    member.work(1)
    member.driver.delay_next_add("publication", 400)
    member.open_session(7)
    session = member.service.cluster.get_client_session(7)
    assert session is not None
    begin_ns = member.clock.now_ns
    elsewhere: list[bool] = []

    def look(*_: object) -> int:
        elsewhere.append(session.is_connected)
        return 0

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(LIMIT_S)
    assert elsewhere == [False]
    member.in_callback(look, "do_background_work")
    member.work(1)
    assert elsewhere == [False, False]
    assert member.clock.now_ns - begin_ns <= 20_000_000
    results = member.in_callback(lambda *_: session.is_connected)
    member.deliver(b"x")
    assert results == [True]


def test_many_answers_at_once_wait_together_for_a_driver_that_is_silent() -> None:
    member = new_leader(session_count=0)
    member.work(1)
    results: list[int] = []
    member.service.actions["on_session_open"] = lambda session, _timestamp: results.append(session.offer(b"x"))
    begin_ns = member.clock.now_ns
    for session_id in range(100, 200):
        member.driver.delay_next_add("publication", NEVER)
        member.cm.open_session(session_id, connect_egress=False)
    member.commit()
    assert results == [NOT_CONNECTED] * 100
    assert 900_000_000 <= member.clock.now_ns - begin_ns <= 1_100_000_000
    assert member.errors == []


def test_a_driver_that_answers_for_nobody_is_waited_for_once() -> None:
    member = new_leader(session_count=1)
    member.work(1)
    begin_ns = member.clock.now_ns
    for session_id in range(100, 200):
        member.driver.delay_next_add("publication", NEVER)
        member.cm.open_session(session_id, connect_egress=False)
    member.commit()
    assert len(member.service.of("on_session_open")) == 101
    assert member.clock.now_ns - begin_ns <= 50_000_000


@pytest.mark.parametrize("delay", [2, NEVER])
def test_a_member_that_ends_while_it_connects_a_new_session_leaves_no_egress(delay: int) -> None:
    """The driver is about to answer, or never does."""
    member = new_leader(session_count=0)
    member.work(1)
    before = len(member.driver.publications())
    member.driver.delay_next_add("publication", delay)
    member.in_callback(lambda session, _: session.offer(b"x"), "on_session_open")
    member.after_idles(0, member.agent.interrupt)
    member.cm.open_session(7, connect_egress=False)
    with pytest.raises(AgentTermination, match="interrupted"):
        member.commit()
    member.agent.close()
    for _ in range(20):
        member.clock.advance(1_100_000)
    assert len(member.driver.publications()) <= before


def test_an_offer_to_a_session_without_egress_yet_is_not_connected_and_a_send_waits_for_it() -> None:
    member = new_leader(session_count=1)
    member.work(1)
    member.driver.delay_next_add("publication", 20)
    results = member.in_callback(lambda session, _: (session.offer(b"tried"), session.send(b"sent")), "on_session_open")
    member.open_session(2)
    assert results[0][0] == NOT_CONNECTED
    assert results[0][1] > 0
    assert member.answers(2) == [b"sent"]
    assert member.errors == []


def test_egress_that_the_driver_refuses_is_reported_for_each_and_no_other_is_concerned() -> None:
    member = new_leader(delay=0)
    listen(member, *range(1, COUNT + 1))
    for _ in range(5):
        member.driver.fail_next_add("publication", text="no such host")
    member.work(1)
    assert [str(error) for error in member.errors] == [
        "failed to connect session response publication: no such host"
    ] * 5
    connected = [session.is_connected for session in member.service.cluster.client_sessions]
    assert connected == [False] * 5 + [True] * (COUNT - 5)


def test_an_error_handler_that_idles_leaves_no_session_out() -> None:
    member = new_leader(delay=0)
    listen(member, *range(1, COUNT + 1))
    member.driver.fail_next_add("publication")
    count_error = member.errors.append

    class Idling(list[BaseException]):
        def append(self, error: BaseException) -> None:
            count_error(error)
            member.service.cluster.idle()

    member.errors = Idling()
    member.work(100)
    connected = [session.is_connected for session in member.service.cluster.client_sessions]
    assert connected == [False] + [True] * (COUNT - 1)


@pytest.mark.parametrize("end", ["close", "log", "agent"])
def test_an_end_gives_up_what_is_still_waited_for(end: str) -> None:
    member = new_leader(session_count=2, delay=1_500)
    member.work(1)
    publications = len(member.driver.publications())
    if end == "close":
        member.cm.close_session(1)
        member.cm.close_session(2)
        member.commit()
    elif end == "log":
        member.cm.end_log()
        member.work()
    else:
        member.agent.close()
    for _ in range(2_000):
        member.clock.advance(1_100_000)
        if end != "agent":
            member.agent.do_work()
    assert len(member.driver.publications()) <= publications
    assert member.errors == []


# over a media driver


@pytest.fixture
def real_member(tmp_path: Path) -> Iterator[RealMember]:
    with RealMember(RecordingService(), tmp_path) as member:
        yield member


HALF_A_SECOND_EACH_S = 50.0
"""For a hundred sessions, each of which would hold the log up for a second."""


def open_dead_sessions(member: RealMember, endpoint: str) -> None:
    """A hundred clients that are gone open sessions while the member follows."""
    member.join("follower")
    for session_id in range(1, 101):
        channel = f"aeron:udp?endpoint={endpoint.format(session_id)}|term-length=64k"
        member.cm.open_session(session_id, response_channel=channel, connect_egress=False)
    member.deliver()


def test_many_clients_that_cannot_be_reached_do_not_hold_up_a_live_one(real_member: RealMember) -> None:
    member = real_member
    open_dead_sessions(member, "192.0.2.{}:20000")
    begin = time.monotonic()
    member.join("leader")
    member.cm.open_session(1_000, response_channel="aeron:ipc?term-length=64k")
    member.deliver()
    live = member.service.cluster.get_client_session(1_000)
    member.until(lambda: live.is_connected, "the egress of the live client")
    assert time.monotonic() - begin < HALF_A_SECOND_EACH_S
    assert member.errors == []


def test_many_clients_whose_names_are_gone_do_not_hold_up_the_log(real_member: RealMember) -> None:
    member = real_member
    open_dead_sessions(member, "no-such-host-{}.invalid:20000")
    begin = time.monotonic()
    member.join("leader")
    member.cm.session_message(1, b"x")
    member.deliver()
    assert member.service.messages == [b"x"]
    assert time.monotonic() - begin < HALF_A_SECOND_EACH_S
    assert all("failed to connect session response publication" in str(error) for error in member.errors)
