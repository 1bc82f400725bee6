"""A log that ends before a service has read what is committed: the rest comes from the member's own archive."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from container.api import Role
from container.errors import ArchiveError
from container.testing.memory.memory_log import MemoryLog
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember

JOIN_KINDS: dict[str, Callable[[ScriptedMember], None]] = {
    "follower": lambda member: member.cm.join_as_follower(),
    "leader": lambda member: member.cm.join_as_leader(),
    "replay": lambda member: _join_replay(member),
}


def _join_replay(member: ScriptedMember) -> None:
    member.cm.begin_replay()
    member.store.record_log(log_of(member))
    member.cm.join_replay(max_log_position=member.cm.log_position + 32)


def log_of(member: ScriptedMember) -> MemoryLog:
    """The log that the consensus module began last."""
    assert member.cm.log is not None
    return member.cm.log


def following(**settings: Any) -> ScriptedMember:
    """A follower that takes one fragment of its log in a duty cycle, and whose archive records the log."""
    member = ScriptedMember(log_fragment_limit=1, **settings).start()
    member.cm.begin_log("follower")
    member.store.record_log(log_of(member))
    member.cm.join_log(role=Role.FOLLOWER)
    member.work()
    member.cm.new_leadership_term()
    member.commit()
    return member


def log_messages(member: ScriptedMember, *payloads: bytes) -> list[int]:
    """Logs messages of a client, each at a time of its own, and returns the positions behind them."""
    return [member.cm.session_message(1, payload, timestamp=2_000 + number) for number, payload in enumerate(payloads)]


def lag(member: ScriptedMember, *payloads: bytes, cycles: int) -> int:
    """Commits messages of which the service has only what ``cycles`` polls give it when the log is gone; their end."""
    end = log_messages(member, *payloads)[-1]
    member.cm.commit()
    for _cycle in range(cycles):
        member.work(1)
    member.cm.lose_log()
    return end


def settle(member: ScriptedMember) -> None:
    """Runs duty cycles until the agent has nothing more to do."""
    for _cycle in range(2_000):
        if not member.work(1) and not member.work(2):
            return
    raise AssertionError("the agent does not settle")


PAYLOADS = tuple(b"message %d" % number for number in range(8))


@pytest.mark.parametrize("kind", JOIN_KINDS)
@pytest.mark.parametrize("read", [0, 1, 5, 8])
def test_what_a_service_has_missed_is_delivered_before_the_next_log_is_joined(kind: str, read: int) -> None:
    member = following()
    before = len(member.cm.acks)
    end = lag(member, *PAYLOADS, cycles=read)
    member.work()
    assert member.service.messages == list(PAYLOADS[:read])
    JOIN_KINDS[kind](member)
    settle(member)
    assert member.service.messages == list(PAYLOADS)
    (ack,) = member.cm.acks[before:]
    assert (ack.log_position, ack.relevant_id) == (end, -1)
    assert member.errors == []
    assert member.service.cluster.role is (Role.LEADER if kind == "leader" else Role.FOLLOWER)


@pytest.mark.parametrize("kind", ["follower", "leader"])
def test_its_callbacks_are_those_of_a_member_that_did_not_lag(kind: str) -> None:
    calls = []
    for read in (2, 100):
        member = following()
        member.cm.open_session(1)
        member.cm.timer_event(5, timestamp=1_500)
        member.cm.new_leadership_term()
        member.cm.open_session(3)
        member.cm.close_session(3)
        lag(member, *PAYLOADS, b"x" * 5_000, b"last", cycles=read)
        JOIN_KINDS[kind](member)
        settle(member)
        member.cm.new_leadership_term()
        member.deliver(b"in the next log")
        settle(member)
        assert member.errors == []
        assert [session.id for session in member.service.cluster.client_sessions] == [1]
        calls.append((member.service.calls, [ack.log_position for ack in member.cm.acks]))
    assert calls[0] == calls[1]


def test_the_role_changes_and_the_join_is_acknowledged_only_behind_the_gap() -> None:
    member = following()
    seen: list[tuple[Role, int]] = []
    member.service.actions["on_session_message"] = lambda *_: seen.append(
        (member.service.cluster.role, len(member.cm.acks))
    )
    lag(member, *PAYLOADS, cycles=1)
    member.cm.join_as_leader()
    settle(member)
    assert seen == [(Role.FOLLOWER, 2)] * len(PAYLOADS)
    names = member.service.names()
    assert names[-1] == "on_role_change"
    assert member.service.of("on_role_change") == [(Role.LEADER,)]


def test_what_was_not_committed_is_not_delivered() -> None:
    member = following()
    committed = log_messages(member, *PAYLOADS)[-1]
    log_messages(member, b"never committed", b"this neither")
    member.cm.commit(committed)
    member.work(3)
    member.cm.lose_log(committed)
    member.cm.join_as_follower()
    settle(member)
    member.deliver(b"another")
    settle(member)
    assert member.service.messages == [*PAYLOADS, b"another"]
    assert member.errors == []


def test_the_commit_position_bounds_the_gap_as_it_bounds_a_log() -> None:
    member = following()
    positions = log_messages(member, *PAYLOADS)
    member.cm.commit(positions[2])
    member.work(1)
    member.cm.lose_log(positions[-1])
    member.cm.join_as_follower()
    settle(member)
    assert member.service.messages == list(PAYLOADS[:3])
    assert len(member.cm.acks) == 2
    member.commit(positions[-1])
    settle(member)
    assert member.service.messages == list(PAYLOADS)
    assert len(member.cm.acks) == 3


@pytest.mark.parametrize("read", range(5))
def test_a_message_of_many_fragments_that_the_end_of_the_log_cuts_is_delivered_once(read: int) -> None:
    member = following()
    long = bytes(number % 251 for number in range(5_000))  # of four fragments
    end = lag(member, long, b"behind it", cycles=read)
    member.cm.join_as_follower()
    settle(member)
    assert member.service.messages == [long, b"behind it"]
    assert member.service.of("on_session_message")[1][3] == end


@pytest.mark.parametrize("read", range(4))
def test_a_message_that_begins_in_the_gap_and_ends_in_the_next_log_is_delivered_once(read: int) -> None:
    member = following()
    first = member.cm.log_position
    long = bytes(number % 251 for number in range(5_000))
    end = log_messages(member, long)[-1]
    cut = first + 2 * 1408
    frames = [frame for frame in log_of(member).frames() if frame.position >= cut]
    member.cm.commit(cut)
    if read:
        member.work(read)
    member.cm.lose_log(cut)
    member.cm.join_as_follower()
    settle(member)
    assert member.service.messages == []
    for frame in frames:
        log_of(member).append_frame(frame.payload, flags=frame.flags)
    member.commit()
    settle(member)
    assert member.service.messages == [long]
    assert member.service.of("on_session_message")[0][3] == end


def test_a_callback_that_raises_in_the_gap_is_counted_and_the_rest_delivered() -> None:
    member = following()
    lag(member, *PAYLOADS, cycles=2)
    member.work()
    member.in_callback(lambda *_: 1 // 0)
    member.cm.join_as_follower()
    settle(member)
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert member.service.messages == list(PAYLOADS)
    assert len(member.cm.acks) == 3


def test_a_snapshot_in_the_gap_is_taken_at_its_position() -> None:
    member = following()
    log_messages(member, *PAYLOADS)
    position = member.cm.snapshot()
    end = member.cm.session_message(1, b"behind")
    member.cm.commit()
    member.work(2)
    member.cm.lose_log()
    member.cm.join_as_follower()
    settle(member)
    assert [ack.log_position for ack in member.cm.acks[2:]] == [position, end]
    assert member.service.messages == [*PAYLOADS, b"behind"]
    assert len(member.service.of("on_take_snapshot")) == 1


def test_a_new_log_that_is_to_be_joined_meanwhile_is_joined_behind_a_gap_of_its_own() -> None:
    member = following()
    first = lag(member, *PAYLOADS, cycles=2)
    member.cm.join_as_follower()
    member.store.record_log(log_of(member))
    member.work(3)
    assert len(member.service.messages) < len(PAYLOADS)
    end = log_messages(member, b"one more", b"and one")[-1]
    member.cm.commit()
    member.cm.lose_log()
    member.cm.join_as_leader()
    settle(member)
    assert member.service.messages == [*PAYLOADS, b"one more", b"and one"]
    assert [ack.log_position for ack in member.cm.acks[2:]] == [end], f"the join at {first} was taken back"
    assert member.service.cluster.role is Role.LEADER
    assert member.errors == []


def test_the_next_log_may_be_gone_when_the_gap_is_closed() -> None:
    member = following()
    lag(member, *PAYLOADS, cycles=2)
    member.cm.join_as_leader()
    member.work(3)
    assert len(member.service.messages) < len(PAYLOADS)
    end = member.cm.log_position
    member.cm.lose_log()
    settle(member)
    assert member.service.messages == list(PAYLOADS)
    assert member.cm.acks[-1].log_position == end
    assert member.service.of("on_role_change") == [(Role.LEADER,), (Role.FOLLOWER,)]


@pytest.mark.parametrize("kind", ["follower", "leader"])
@pytest.mark.parametrize("read", [2, 8])
def test_a_log_that_is_gone_before_it_is_joined_is_acknowledged_and_the_next_one_is_read(kind: str, read: int) -> None:
    """As when an election fails while a callback runs: the consensus module awaits the ack before the next join."""
    member = following()
    before = len(member.cm.acks)
    end = lag(member, *PAYLOADS, cycles=read)
    JOIN_KINDS[kind](member)
    member.cm.lose_log()
    member.idle_ns = 50_000_000
    settle(member)
    (ack,) = member.cm.acks[before:]
    assert (ack.log_position, ack.relevant_id) == (end, -1)
    assert member.service.cluster.role is Role.FOLLOWER
    assert member.service.messages == list(PAYLOADS[:read])
    assert not any("log-sc" in getattr(resource, "channel", "") for resource in member.driver.open_resources())
    member.cm.join_as_leader()
    settle(member)
    assert member.service.messages == list(PAYLOADS)
    member.cm.new_leadership_term()
    member.deliver(b"in the next log")
    settle(member)
    assert member.service.messages == [*PAYLOADS, b"in the next log"]
    assert member.service.cluster.role is Role.LEADER
    assert [ack.log_position for ack in member.cm.acks[before:]] == [end, end]
    assert member.errors == []


@pytest.mark.parametrize("message", ["termination_position", "request_service_ack"])
def test_a_position_to_end_or_to_acknowledge_in_the_gap_is_reached_there(message: str) -> None:
    member = following()
    end = lag(member, *PAYLOADS, cycles=2)
    member.cm.join_as_follower()
    member.work(2)
    getattr(member.cm, message)(end)
    if message == "termination_position":
        assert "expected termination" in str(member.terminated(30))
        assert member.service.names()[-1] == "on_terminate"
    else:
        settle(member)
        assert [ack.log_position for ack in member.cm.acks[2:]] == [end, end]
    assert member.service.messages == list(PAYLOADS)


def test_a_gap_that_the_archive_does_not_have_ends_the_agent_and_says_what_was_missing() -> None:
    member = following()
    position = member.service.cluster.log_position
    member.store.script("open_log", [ArchiveError("requested position is less than recording start", code=16)])
    end = lag(member, *PAYLOADS, cycles=0)
    member.cm.join_as_follower()
    termination = member.terminated(30)
    assert str(termination) == (
        f"cannot get the log from position {position} to {end}, which the service has missed: ArchiveError: "
        "requested position is less than recording start"
    )
    assert len(member.cm.acks) == 2
    assert member.hooks == 1
    close_leaves_nothing(member)


def test_an_archive_that_goes_away_during_the_gap_ends_the_agent() -> None:
    member = following()
    member.store.script("check", [None, ArchiveError("connection to the archive is lost")])
    lag(member, *PAYLOADS, cycles=0)
    member.cm.join_as_follower()
    assert "which the service has missed: ArchiveError: connection to the archive is lost" in str(member.terminated(30))
    close_leaves_nothing(member)


def test_a_replay_that_ends_too_early_ends_the_agent() -> None:
    member = following()
    lag(member, *PAYLOADS, cycles=0)
    member.cm.join_as_follower()
    member.work(3)
    assert 0 < len(member.service.messages) < len(PAYLOADS)
    replay = next(info for info in member.driver.publications() if info.stream_id == 103)
    position = member.service.cluster.log_position
    member.driver.give_up_images(replay.session_id)
    assert f"cannot get the log from position {position} to " in str(termination := member.terminated(30))
    assert str(termination).endswith("its replay ended there")
    close_leaves_nothing(member)


def test_a_gap_that_does_not_go_on_ends_the_agent_after_30_s() -> None:
    member = following()
    positions = log_messages(member, *PAYLOADS)
    member.cm.commit(positions[2])
    member.cm.lose_log(positions[-1])
    member.cm.join_as_follower()
    settle(member)
    begin = member.clock.now_ns
    assert str(member.terminated(40_000)) == (
        f"cannot get the log from position {positions[2]} to {positions[-1]}, which the service has missed: nothing "
        f"came for 30 s; the commit position is {positions[2]}"
    )
    assert abs(member.clock.now_ns - begin - 30_000_000_000) < 100 * TICK_NS
    close_leaves_nothing(member)


def test_a_gap_of_which_nothing_ever_comes_ends_the_agent_after_30_s() -> None:
    member = following()
    positions = log_messages(member, *PAYLOADS)
    member.cm.lose_log(positions[-1])
    member.cm.join_as_follower()
    begin = member.clock.now_ns
    assert str(member.terminated(40_000)).endswith(f"the commit position is {member.service.cluster.log_position}")
    # It is asked for in the second duty cycle. One more than the wait takes is for what came while the agent was busy.
    assert (member.clock.now_ns - begin) // TICK_NS == 2 - (-30_000_000_000 // TICK_NS) + 1
    close_leaves_nothing(member)


def test_an_agent_that_is_closed_in_the_gap_leaves_nothing() -> None:
    member = following()
    lag(member, *PAYLOADS, cycles=0)
    member.cm.join_as_follower()
    member.work(3)
    assert len(member.cm.acks) == 2
    close_leaves_nothing(member)


def close_leaves_nothing(member: ScriptedMember) -> None:
    """Closes the agent, after which its client has nothing open."""
    member.agent.close()
    left = [resource for resource in member.client.open_resources if "Counter" not in type(resource).__name__]
    assert left == []
    assert member.errors == []


def state_hash(member: ScriptedMember) -> str:
    """Of all that the log has given to a service: what its replicated state is made of."""
    told = [call for call in member.service.calls if call[0] not in ("on_role_change", "on_terminate")]
    return hashlib.sha256(repr(told).encode()).hexdigest()


@pytest.mark.parametrize("seed", range(20))
def test_members_that_lag_at_each_election_have_the_state_of_one_that_never_does(seed: int) -> None:
    members = [following(), following(), following()]
    for term in range(8):
        choice = random.Random(f"{seed} {term}")
        committed_share, tail = choice.random(), choice.randrange(4)
        leader = choice.randrange(3)
        for index, member in enumerate(members):
            events = random.Random(f"{seed} {term} events")
            own = random.Random(f"{seed} {term} {index}")
            positions = [append_any(member, events, term * 100 + number) for number in range(events.randrange(1, 20))]
            committed = positions[int(committed_share * (len(positions) - 1))]
            for number in range(tail):
                append_any(member, own, term * 100 + 50 + number)
            member.cm.commit(committed)
            if index == 0:
                settle(member)
            else:
                for _cycle in range(own.randrange(25)):
                    member.work(1)
            member.cm.lose_log(committed)
            if own.random() < 0.5:
                member.work()
            member.cm.begin_log("leader" if index == leader else "follower")
            member.store.record_log(log_of(member))
            member.cm.join_log(role=Role.LEADER if index == leader else Role.FOLLOWER)
            settle(member)
            member.cm.new_leadership_term(log_session_id=term, leader_member_id=leader)
            member.commit()
            settle(member)
    assert len({state_hash(member) for member in members}) == 1
    assert len({tuple(ack.log_position for ack in member.cm.acks) for member in members}) == 1
    assert [error for member in members for error in member.errors] == []


def append_any(member: ScriptedMember, choice: random.Random, number: int) -> int:
    """Logs one of the events that there are; the position behind it."""
    match choice.randrange(6):
        case 0:
            return member.cm.timer_event(number, timestamp=3_000 + number)
        case 1:
            return member.cm.open_session(number, connect_egress=False)
        case 2:
            return member.cm.session_message(number, choice.randbytes(choice.randrange(6_000)))
        case _:
            return member.cm.session_message(number, b"message %d" % number, timestamp=3_000 + number)


def test_a_gap_that_came_while_the_agent_was_busy_is_read_before_it_counts_as_late() -> None:
    member = following()
    positions = log_messages(member, *PAYLOADS)
    member.cm.commit(positions[2])
    member.cm.lose_log(positions[-1])
    member.cm.join_as_follower()
    settle(member)

    def busy(_now: int) -> int:
        del member.service.actions["do_background_work"]
        member.clock.advance(35_000_000_000)
        member.cm.commit(positions[-1])
        return 0

    member.service.actions["do_background_work"] = busy
    settle(member)
    assert member.service.messages[-len(PAYLOADS) :] == list(PAYLOADS)


def test_each_delay_of_a_gap_counts_by_itself() -> None:
    member = following()
    positions = log_messages(member, *PAYLOADS)
    member.cm.commit(positions[0])
    member.cm.lose_log(positions[-1])
    member.cm.join_as_follower()
    settle(member)
    for position in positions[1:]:

        def busy(_now: int, position: int = position) -> int:
            del member.service.actions["do_background_work"]
            member.clock.advance(35_000_000_000)
            member.cm.commit(position)
            return 0

        member.service.actions["do_background_work"] = busy
        settle(member)
    assert member.service.messages[-len(PAYLOADS) :] == list(PAYLOADS)


def test_a_logging_handler_that_raises_does_not_keep_a_gap_from_being_read() -> None:
    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no log today")

    handler = Raises()
    logging.getLogger("container").addHandler(handler)
    try:
        member = following()
        lag(member, *PAYLOADS, cycles=2)
        member.work()
        member.cm.join_as_follower()
        settle(member)
    finally:
        logging.getLogger("container").removeHandler(handler)
    assert member.service.messages[-len(PAYLOADS) :] == list(PAYLOADS)


def test_a_gap_has_the_standby_flags_of_its_own_log() -> None:
    member = following()
    log_messages(member, *PAYLOADS)
    member.cm.snapshot(flags=1)
    member.cm.session_message(1, b"x")
    member.cm.commit()
    member.work(1)
    member.cm.lose_log()
    member.work(2)
    member.cm.begin_log("follower")
    member.store.record_log(log_of(member))
    member.cm.join_log(role=Role.FOLLOWER, is_standby=True)
    settle(member)
    assert member.service.of("on_take_snapshot") == []


def test_an_end_while_the_archive_is_asked_for_what_is_missing_is_no_fault_of_the_archive() -> None:
    member = following()
    member.store.script("open_log", [5])
    lag(member, *PAYLOADS, cycles=0)
    member.after_idles(2, member.driver.kill)
    member.cm.join_as_follower()
    termination = member.terminated()
    assert "unexpected Aeron close" in str(termination)
    assert "cannot get" not in str(termination)
    assert member.service.messages == []


def test_the_replay_of_a_gap_is_closed_when_it_was_read() -> None:
    member = following()
    lag(member, *PAYLOADS, cycles=0)
    member.cm.join_as_follower()
    settle(member)
    assert member.service.messages == list(PAYLOADS)
    assert [each for each in member.client.open_resources if getattr(each, "stream_id", 0) == 103] == []


def test_a_replay_of_a_gap_that_fails_to_close_is_an_error_and_the_member_goes_on() -> None:
    member = following()
    error = ArchiveError("the session is gone")
    member.store.script("close", [error])
    lag(member, *PAYLOADS, cycles=0)
    member.cm.join_as_follower()
    settle(member)
    assert member.errors == [error]
    member.deliver(b"behind")
    assert member.service.messages == [*PAYLOADS, b"behind"]
