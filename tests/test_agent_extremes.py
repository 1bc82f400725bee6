"""The agent at its extremes: ten thousand sessions, sends of every kind from every callback, clocks that jump."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from container.api import ClusteredService
from container.errors import ClusterError
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from container.transport.message_buffer import BufferClaim

MANY = 10_000
HOUR_NS = 3_600 * 10**9
NULL_VALUE = -1
NOT_CONNECTED = -1
MOCKED = 1


# many sessions


def deliver_all(member: ScriptedMember, log: Callable[[int], object], ids: range) -> None:
    """Logs one message for each of ``ids``, and lets the member have them in parts."""
    for begin in range(0, len(ids), 200):
        for session_id in ids[begin : begin + 200]:
            log(session_id)
        member.commit()


def test_ten_thousand_sessions_open_send_are_in_a_snapshot_come_back_and_close() -> None:
    ids = range(1, MANY + 1)
    channel = "aeron:udp?endpoint=localhost:20001"
    member = ScriptedMember().follow()

    def opens(session_id: int) -> None:
        principal = b"%d" % session_id
        member.cm.open_session(session_id, response_channel=channel, encoded_principal=principal, connect_egress=False)

    deliver_all(member, opens, ids)
    deliver_all(member, lambda session_id: member.cm.session_message(session_id, b"to %d" % session_id), ids)
    assert member.service.messages == [b"to %d" % session_id for session_id in ids]
    snapshot = member.take_snapshot()
    assert member.errors == []
    assert member.cm.acks[-1].relevant_id != NULL_VALUE
    assert len(snapshot) == MANY + 2

    restored = ScriptedMember(log_position=member.service.cluster.log_position)
    restored.start(
        [(message, 0xC0) for message in snapshot],
        log_position=member.service.cluster.log_position,
    )
    sessions = restored.service.cluster.client_sessions
    assert [session.id for session in sessions] == list(ids)
    assert [session.encoded_principal for session in sessions] == [b"%d" % session_id for session_id in ids]
    assert {session.response_channel for session in sessions} == {channel}
    restored.follow()
    backwards = range(MANY, 0, -1)
    for each in (member, restored):
        deliver_all(each, each.cm.close_session, backwards)
        assert [call[0] for call in each.service.of("on_session_close")] == list(backwards)
        assert each.service.cluster.client_sessions == []
        assert each.errors == []


# sends from every callback

SENDS: dict[str, Callable[[Any, Any], Any]] = {
    "offer": lambda cluster, _: cluster.offer(b"x"),
    "send": lambda cluster, _: cluster.send(b"x"),
    "try_claim": lambda cluster, _: claimed(cluster),
    "session.offer": lambda _, session: session.offer(b"x"),
    "session.send": lambda _, session: session.send(b"x"),
    "session.try_claim": lambda _, session: claimed(session),
    "schedule_timer": lambda cluster, _: cluster.schedule_timer(1, 1),
    "cancel_timer": lambda cluster, _: cluster.cancel_timer(1),
    "close_client_session": lambda cluster, session: cluster.close_client_session(session.id),
    "session.close": lambda cluster, session: session.close(),
}

EVENTS: dict[str, Callable[[ScriptedMember], object]] = {
    "on_session_open": lambda member: member.cm.open_session(1),
    "on_session_message": lambda member: member.cm.session_message(2, b"go"),
    "on_timer_event": lambda member: member.cm.timer_event(5),
    "on_session_close": lambda member: member.cm.close_session(3),
    "on_new_leadership_term_event": lambda member: member.cm.new_leadership_term(),
}

REFUSING: dict[str, Callable[[ScriptedMember], object]] = {
    "on_start": lambda member: restarted(member),
    "on_role_change": lambda member: member.cm.end_log(),
    "on_terminate": lambda member: member.cm.termination_position(),
    "do_background_work": lambda member: None,
    "on_take_snapshot": lambda member: member.cm.snapshot(),
}


def restarted(member: ScriptedMember) -> None:
    """Starts another member, with the same service, from a snapshot with session 2."""
    messages = member.take_snapshot()
    position = member.service.cluster.log_position
    again = ScriptedMember(member.service, log_position=position)
    again.start(
        [(message, 0xC0) for message in messages],
        log_position=position,
    )
    (session,) = again.service.cluster.client_sessions
    again.cm.connect_egress(session.id, session.response_channel)
    assert set(sent(again).values()) == {0}
    assert again.errors == []


def test_the_table_of_the_manual_says_which_callbacks_may_send() -> None:
    rows = re.findall(r"^ *``(\w+)`` .* (yes|no)$", ClusteredService.__doc__ or "", re.MULTILINE)
    assert {name for name, may_send in rows if may_send == "yes"} == set(EVENTS)
    assert {name for name, may_send in rows if may_send == "no"} == set(REFUSING)
    assert {name for name in vars(ClusteredService) if not name.startswith("_")} == {name for name, _ in rows}


def claimed(target: Any) -> int:
    """Claims and commits a message of one byte; the result of the claim."""
    claim = BufferClaim()
    result = int(target.try_claim(1, claim))
    if result > 0:
        claim.buffer[:] = b"x"
        claim.commit()
    return result


def sent(member: ScriptedMember) -> dict[str, int]:
    """How much of each kind has left the member."""
    cm = member.cm
    return {
        "messages": len(cm.service_messages),
        "egress": len(cm.egress(2)),
        "timers": len(cm.scheduled_timers),
        "cancelled": len(cm.cancelled_timers),
        "closes": len(cm.close_requests),
    }


KINDS = {
    "offer": "messages",
    "send": "messages",
    "try_claim": "messages",
    "session.offer": "egress",
    "session.send": "egress",
    "session.try_claim": "egress",
    "schedule_timer": "timers",
    "cancel_timer": "cancelled",
    "close_client_session": "closes",
    "session.close": "closes",
}


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("send", list(SENDS))
@pytest.mark.parametrize("name", list(EVENTS))
def test_each_callback_of_the_log_may_send_everything_once(name: str, send: str, *, is_leader: bool) -> None:
    member = ScriptedMember().lead() if is_leader else ScriptedMember().follow()
    member.cm.open_session(2)
    member.open_session(3)
    cluster = member.service.cluster
    before = sent(member)
    results = member.in_callback(lambda *_: SENDS[send](cluster, cluster.get_client_session(2)), name)
    EVENTS[name](member)
    member.commit()
    assert member.errors == []
    (result,) = results
    kind = KINDS[send]
    is_mocked = kind == "egress" and not is_leader
    if is_mocked:
        assert result == MOCKED
    elif send != "session.close":
        assert result > 0
    assert sent(member) == {**before, kind: before[kind] + (not is_mocked)}


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("send", list(SENDS))
@pytest.mark.parametrize("name", list(REFUSING))
def test_a_refused_send_leaves_nothing_behind(name: str, send: str, *, is_leader: bool) -> None:
    member = ScriptedMember().lead() if is_leader else ScriptedMember().follow()
    member.open_session(2)
    before = sent(member)

    def attempt(*_: Any) -> int:
        cluster = member.service.cluster
        with pytest.raises(ClusterError, match=f"not allowed from {name}"):
            SENDS[send](cluster, cluster.get_client_session(2))
        return 1

    results = member.in_callback(attempt, name)
    REFUSING[name](member)
    if name == "on_terminate":
        member.terminated()
    elif name == "on_role_change" and not is_leader:
        member.work()
        member.cm.join_as_leader()
        member.work()
    else:
        member.commit()
    assert results == [1]
    assert member.errors == []
    assert sent(member) == before


# clocks that jump


@pytest.mark.parametrize("jump_ns", [HOUR_NS, 24 * HOUR_NS, 100 * 365 * 24 * HOUR_NS])
def test_a_monotonic_clock_that_jumps_forward_neither_ends_nor_holds_up_a_member(jump_ns: int) -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(1)
    member.deliver(b"before")
    ticks = len(member.mark_file.activity_timestamps)
    member.clock.advance(jump_ns)
    member.deliver(b"after")
    member.cm.request_service_ack(member.service.cluster.log_position)
    member.work()
    assert member.service.messages == [b"before", b"after"]
    assert len(member.cm.acks) == 3
    assert len(member.mark_file.activity_timestamps) == ticks + 1
    assert member.errors == []


def test_a_send_during_which_the_clock_jumps_forward_ends_with_that_try() -> None:
    member = ScriptedMember().lead()
    session = member.open_session()
    member.driver.publication_results(session.response_channel, 102, [-2] * 100)
    member.after_idles(1, lambda: member.clock.advance(HOUR_NS))
    before = member.idle_strategy.idle_count
    results = member.in_callback(lambda *_: session.send(b"x"))
    member.deliver(b"go")
    assert results == [-2]
    assert member.idle_strategy.idle_count - before <= 3
    assert member.errors == []


def test_a_monotonic_clock_that_jumped_back_holds_up_the_log_not_at_all_and_control_until_it_caught_up() -> None:
    member = ScriptedMember().lead()
    member.clock.advance(HOUR_NS)
    member.work()
    member.clock.advance(-HOUR_NS)
    member.cm.request_service_ack(member.service.cluster.log_position)
    member.deliver(b"x")
    assert member.service.messages == [b"x"]
    member.clock.advance(HOUR_NS + TICK_NS)
    member.work()
    assert len(member.cm.acks) == 3
    assert member.service.messages == [b"x"]


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000, 10**12])
def test_the_time_of_day_may_jump_while_a_member_works(jump_ms: int) -> None:
    member = ScriptedMember().lead()
    member.deliver(b"before")
    cluster_time = member.service.cluster.time
    member.clock.set_epoch_ms(member.clock.now_ms + jump_ms)
    member.deliver(b"after")
    assert member.service.messages == [b"before", b"after"]
    assert member.service.cluster.time == cluster_time
    member.cm.request_service_ack(member.service.cluster.log_position)
    member.work()
    assert len(member.cm.acks) == 3
    member.clock.advance(1_000_000_000)
    member.work(1)
    assert member.mark_file.activity_timestamps[-1] == member.clock.now_ms
    assert member.errors == []
