"""The agent and the log over memory: joining, polling to the commit position, dispatch, roles."""

from __future__ import annotations

from typing import Any

import pytest

from container.api import CloseReason, Role, TimeUnit
from container.errors import (
    AeronError,
    AgentTermination,
    ClusterError,
    ClusterEvent,
    CodecError,
    ConfigurationError,
)
from container.testing.memory import transport_probe as seam
from container.testing.memory.scripted_member import TICK_NS, ScriptedMember
from container.testing.memory.scripted_messages import encode
from container.transport.streams import Subscription

NULL_VALUE = -1


def test_s18_nothing_beyond_the_commit_position_is_delivered() -> None:
    member = ScriptedMember().lead()
    first = member.cm.session_message(1, b"one")
    second = member.cm.session_message(1, b"two")
    member.work(5)
    assert member.service.messages == []
    member.commit(first)
    assert member.service.messages == [b"one"]
    assert member.service.cluster.log_position == first
    member.commit(second)
    assert member.service.messages == [b"one", b"two"]


def test_s18_a_message_that_spans_the_limit_is_delivered_once_later() -> None:
    member = ScriptedMember().lead()
    begin = member.cm.log_position
    end = member.cm.session_message(1, b"x" * 3000)
    for limit in range(begin, end, 32):
        member.commit(limit)
        complete = limit > end - 1408 and member.service.messages != []
        assert member.service.messages in ([], [b"x" * 3000])
        assert complete or member.service.messages == []
    member.commit(end)
    assert member.service.messages == [b"x" * 3000]


def test_s18_the_max_log_position_is_no_limit_of_a_poll() -> None:
    member = ScriptedMember().start()
    member.cm.join_as_leader(max_log_position=0)
    member.cm.session_message(1, b"x")
    member.cm.commit()
    member.work()
    assert member.service.messages == [b"x"]


@pytest.mark.parametrize("version", [12, 13, 14, 15, 16, 17])
def test_s19_join_log_of_every_version_is_understood(version: int) -> None:
    member = ScriptedMember().start()
    member.cm.join_as_follower(version=version)
    member.work()
    member.cm.new_leadership_term()
    member.commit()
    member.cm.snapshot(flags=1)
    member.commit()
    assert member.service.names() == ["on_start", "on_new_leadership_term_event"], "an absent isStandby is false"
    assert len(member.cm.acks) == 2


def test_s20_the_alias_of_the_log_channel_is_replaced_and_the_rest_kept() -> None:
    member = ScriptedMember(service_id=3).start()
    channels: list[str] = []
    member.in_callback(lambda *_: channels.extend(_subscribed(member)), "on_role_change")
    member.cm.join_as_leader()
    member.work()
    (channel,) = [channel for channel in channels if "log-sc-3" in channel]
    assert channel.startswith("aeron-spy:aeron:udp?")
    sent = member.cm._log_channel
    assert sorted(channel.partition("?")[2].split("|")) == sorted(
        sent.partition("?")[2].replace("alias=log", "alias=log-sc-3").split("|")
    )


def _subscribed(member: ScriptedMember) -> list[str]:
    return [resource.channel for resource in member.client.open_resources if isinstance(resource, Subscription)]


def test_s21_join_acks_carry_the_position_and_minus_one_and_ids_have_no_gaps() -> None:
    member = ScriptedMember(log_position=640).start()
    for _ in range(3):
        member.cm.join_as_follower()
        member.work()
        member.deliver(b"x" * 100)
    positions = [640 + index * 192 for index in range(3)]
    assert [ack.log_position for ack in member.cm.acks] == [640, *positions]
    assert [ack.ack_id for ack in member.cm.acks] == [0, 1, 2, 3]
    assert [ack.relevant_id for ack in member.cm.acks[1:]] == [NULL_VALUE] * 3


def test_s22_a_join_log_in_mid_image_waits_until_the_image_is_drained() -> None:
    member = ScriptedMember().start()
    member.cm.begin_replay()
    for index in range(10):
        member.cm.session_message(1, b"%d" % index)
    end = member.cm.log_position
    member.cm.join_replay()
    member.work()
    member.cm.commit(end // 2)
    member.work()
    replayed = len(member.service.messages)
    assert 0 < replayed < 10
    member.cm.join_as_leader()
    member.work(5)
    assert len(member.cm.acks) == 2, "not joined: the first image is not drained"
    member.cm.commit(end)
    member.work()
    assert member.service.messages == [b"%d" % index for index in range(10)]
    assert member.cm.acks[2].log_position == end


def test_s22_an_image_at_another_position_is_refused() -> None:
    member = ScriptedMember(log_position=320).start()
    member.cm.begin_replay()
    member.cm.session_message(1, b"x")
    start = member.cm.log_position
    member.cm.begin_log("follower")
    member.cm.join_log(role=0, log_position=320)
    assert str(member.terminated().__cause__) == (
        f"Cluster log must be contiguous for joining image: expectedPosition=320 joinPosition={start}"
    )
    assert len(member.cm.acks) == 1
    assert not any("log-sc" in channel for channel in _subscribed(member)), "the subscription is closed"


CONTROL_MESSAGES: dict[str, dict[str, Any]] = {
    "JoinLog": {
        "log_position": 0,
        "max_log_position": 2**63 - 1,
        "member_id": 0,
        "log_session_id": 1,
        "log_stream_id": 100,
        "is_startup": 0,
        "role": 0,
        "is_standby": 0,
        "log_channel": "aeron:ipc",
    },
    "ServiceTerminationPosition": {"log_position": 0},
    "RequestServiceAck": {"log_position": 0},
}


@pytest.mark.parametrize("name", CONTROL_MESSAGES)
@pytest.mark.parametrize("block_length", [0, 4, 7])
def test_a_control_message_without_its_block_is_counted_and_changes_nothing(name: str, block_length: int) -> None:
    member = ScriptedMember().lead()
    acks = len(member.cm.acks)
    message = encode(name, **CONTROL_MESSAGES[name])
    member.cm.control_message(block_length.to_bytes(2, "little") + message[2:])
    member.work(5)
    (error,) = member.errors
    assert isinstance(error, CodecError)
    assert f"{name}: block is shorter than in any version" in str(error)
    assert len(member.cm.acks) == acks
    member.deliver(b"x")
    assert member.service.messages == [b"x"]


LOG_MESSAGES: dict[str, dict[str, Any]] = {
    "SessionMessageHeader": {"leadership_term_id": 1, "cluster_session_id": 1, "timestamp": 1},
    "TimerEvent": {"leadership_term_id": 1, "correlation_id": 1, "timestamp": 1},
    "SessionOpenEvent": {
        "leadership_term_id": 1,
        "correlation_id": 1,
        "cluster_session_id": 1,
        "timestamp": 1,
        "response_stream_id": 1,
        "response_channel": "aeron:ipc",
        "encoded_principal": b"",
    },
    "SessionCloseEvent": {"leadership_term_id": 1, "cluster_session_id": 1, "timestamp": 1, "close_reason": 0},
    "ClusterActionRequest": {"leadership_term_id": 1, "log_position": 1, "timestamp": 1, "action": 2, "flags": 0},
    "NewLeadershipTermEvent": {
        "leadership_term_id": 1,
        "log_position": 1,
        "timestamp": 1,
        "term_base_log_position": 1,
        "leader_member_id": 1,
        "log_session_id": 1,
        "time_unit": 0,
        "app_version": 1,
    },
}


@pytest.mark.parametrize("name", LOG_MESSAGES)
@pytest.mark.parametrize("block_length", [0, 8, 20])
def test_a_message_of_the_log_without_its_block_is_counted_and_skipped(name: str, block_length: int) -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    before = (member.service.names(), cluster.log_position, cluster.time, len(member.cm.acks))
    member.cm.log_message(block_length.to_bytes(2, "little") + encode(name, **LOG_MESSAGES[name])[2:])
    member.commit()
    (error,) = member.errors
    assert isinstance(error, CodecError)
    assert f"{name}: block is shorter than in any version" in str(error)
    assert (member.service.names(), cluster.log_position, cluster.time, len(member.cm.acks)) == before
    member.deliver(b"x")
    assert member.service.messages == [b"x"]


def test_s22_an_event_at_another_position_is_refused() -> None:
    member = ScriptedMember(log_position=320).start()
    member.cm.join_as_follower(log_position=288)
    assert str(member.terminated().__cause__) == (
        "Cluster log must be contiguous for active log event: expectedPosition=320 eventPosition=288"
    )
    assert len(member.cm.acks) == 1


def test_a_log_image_that_never_comes_ends_the_agent_after_30_s() -> None:
    """The driver has that log, and the consensus module waits for our ack: only our end gets the member out of this."""
    member = ScriptedMember().start()
    member.cm.begin_log("follower")
    seam.add_publication(member.cm.client, "aeron:udp?endpoint=localhost:1|session-id=99", 100)
    member.cm.join_log(role=0, log_session_id=99)
    member.idle_ns = 100_000_000
    begin_ns = member.clock.now_ns
    termination = member.terminated()
    assert 30_000 <= (member.clock.now_ns - begin_ns) / 1e6 < 30_200
    assert str(termination).startswith("the log image session-id=99 of ")
    assert str(termination).endswith(" did not appear within 30 s: start the node and this container again")
    assert member.hooks == 1
    assert len(member.cm.acks) == 1
    assert not any("log-sc" in channel for channel in _subscribed(member)), "the subscription is closed"
    member.agent.close()
    assert member.service.names()[-1] == "on_terminate"


def test_s23_replay_then_leader_gives_callbacks_in_upstreams_order() -> None:
    member = ScriptedMember().start()
    member.cm.begin_replay()
    member.cm.new_leadership_term()
    member.cm.open_session(1)
    member.cm.session_message(1, b"replayed")
    member.cm.join_replay()
    member.commit()
    roles = member.in_callback(lambda *_: member.service.cluster.role, "on_session_close")
    member.cm.join_as_leader()
    member.work()
    member.cm.new_leadership_term()
    member.cm.close_session(1)
    member.commit()
    assert member.service.names() == [
        "on_start",
        "on_new_leadership_term_event",
        "on_session_open",
        "on_session_message",
        "on_role_change",
        "on_new_leadership_term_event",
        "on_session_close",
    ]
    assert member.service.of("on_role_change") == [(Role.LEADER,)]
    assert roles == [Role.LEADER]


def test_s24_log_positions_come_from_the_header_or_from_the_message() -> None:
    member = ScriptedMember().lead()
    cluster = member.service.cluster
    seen: list[tuple[str, int]] = []
    for name in ("on_session_open", "on_session_message", "on_timer_event", "on_session_close"):
        member.service.actions[name] = lambda *_, name=name: seen.append((name, cluster.log_position))
    expected = [
        ("on_session_open", member.cm.open_session(1)),
        ("on_session_message", member.cm.session_message(1, b"x")),
        ("on_timer_event", member.cm.timer_event(7)),
        ("on_session_close", member.cm.close_session(1)),
    ]
    member.commit()
    assert seen == expected

    member.cm.cluster_action(1, log_position=5)
    member.commit()
    assert cluster.log_position == 5, "an action's position is its field"
    member.cm.new_leadership_term(9, log_position=6)
    member.commit()
    assert cluster.log_position == 6, "a term's position is its field"


def test_s24_membership_changes_and_unknown_templates_leave_the_position() -> None:
    member = ScriptedMember().lead()
    before = member.service.cluster.log_position
    member.cm.membership_change()
    member.cm.log_message(encode("CancelTimer", correlation_id=1))
    member.commit()
    assert member.service.cluster.log_position == before
    assert member.errors == []


@pytest.mark.parametrize("length", [0, 1, 1344, 1345, 5000, 8000])
def test_s25_a_message_of_any_length_is_one_callback_with_the_end_of_its_last_fragment(length: int) -> None:
    member = ScriptedMember().lead()
    payload = bytes(index % 251 for index in range(length))
    end = member.cm.session_message(1, payload)
    lengths = member.in_callback(lambda _s, _t, _b, header: (header.frame_length, header.flags))
    member.commit()
    assert member.service.of("on_session_message") == [(None, 1_000, payload, end)]
    assert lengths == [(32 + 32 + length, 0xC0)]


@pytest.mark.parametrize("session_id", [2, -5, 0, 1 - 2**63, 2**63 - 1])
def test_s26_a_message_of_an_unknown_or_negative_session_has_no_session(session_id: int) -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(1)
    member.deliver(b"x", session_id=session_id)
    assert member.service.of("on_session_message")[0][0] is None


def test_s26_the_session_of_a_message_is_the_one_that_was_opened() -> None:
    member = ScriptedMember().lead()
    opened: list[object] = []
    member.service.actions["on_session_open"] = lambda session, _timestamp: opened.append(session)
    for session_id in (5, 3, 4, 2**62, 1):
        member.cm.open_session(session_id)
    member.commit()
    for session in opened:
        same = member.in_callback(lambda found, *_, session=session: found is session)
        member.deliver(b"x", session_id=session.id)  # type: ignore[attr-defined]
        assert same == [True]
    assert [session.id for session in member.service.cluster.client_sessions] == [5, 3, 4, 2**62, 1]


def test_s27_a_second_open_of_a_session_is_counted_and_the_next_message_processed() -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(1)
    member.cm.open_session(1)
    member.deliver(b"x")
    (error,) = member.errors
    assert isinstance(error, ClusterError)
    assert "clashing open clusterSessionId=1 leadershipTermId=1 logPosition=" in str(error)
    assert len(member.service.of("on_session_open")) == 1
    assert member.service.messages == [b"x"]


def test_s27_the_close_of_an_unknown_session_is_an_event_and_no_exception() -> None:
    member = ScriptedMember().lead()
    member.cm.close_session(4)
    member.deliver(b"x")
    (event,) = member.errors
    assert isinstance(event, ClusterEvent)
    assert "unknown session close: clusterSessionId=4 closeReason=0" in str(event)
    assert member.service.of("on_session_close") == []
    assert member.service.messages == [b"x"]


@pytest.mark.parametrize("reason", list(CloseReason))
def test_a_close_tells_its_reason(reason: CloseReason) -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(1)
    member.cm.close_session(1, reason, timestamp=1_234)
    member.commit()
    assert member.service.of("on_session_close") == [(1, 1_234, reason)]
    assert member.service.cluster.client_sessions == []
    assert member.service.cluster.get_client_session(1) is None


def test_s28_an_exception_in_on_session_message_is_counted_once_and_that_message_skipped() -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda *_: 1 // 0)
    member.deliver(b"one", b"two", b"three")
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert member.service.messages == [b"one", b"two", b"three"], "each is delivered once"


@pytest.mark.parametrize("length", [10, 4000])
def test_s28_an_exception_in_the_last_fragment_does_not_spoil_the_next_message(length: int) -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda *_: 1 // 0)
    member.deliver(b"a" * length, b"b" * length)
    assert member.service.messages == [b"a" * length, b"b" * length]
    assert len(member.errors) == 1


@pytest.mark.parametrize(
    "name", ["on_session_open", "on_session_close", "on_timer_event", "on_new_leadership_term_event"]
)
def test_an_exception_in_any_callback_of_the_log_is_counted_and_the_service_lives_on(name: str) -> None:
    member = ScriptedMember().lead()
    member.in_callback(lambda *_: 1 // 0, name)
    member.cm.open_session(1)
    member.cm.timer_event(1)
    member.cm.new_leadership_term()
    member.cm.close_session(1)
    member.deliver(b"x")
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert member.service.names()[3:] == [
        "on_session_open",
        "on_timer_event",
        "on_new_leadership_term_event",
        "on_session_close",
        "on_session_message",
    ]


def test_an_exception_in_background_work_is_counted() -> None:
    member = ScriptedMember().lead()
    member.service.actions["do_background_work"] = lambda _now: 1 // 0
    member.work(2)
    assert [type(error) for error in member.errors] == [ZeroDivisionError] * 2


def test_s29_a_new_term_sets_the_egress_term_and_the_time_unit() -> None:
    member = ScriptedMember().lead()
    member.cm.open_session(1)
    member.cm.new_leadership_term(42, time_unit=TimeUnit.NANOS, timestamp=5)
    member.commit()
    assert member.service.cluster.time_unit is TimeUnit.NANOS
    member.in_callback(lambda session, *_: session.offer(b"answer"))
    member.deliver(b"x")
    (message,) = member.cm.egress(1)
    assert message.leadership_term_id == 42
    args = member.service.of("on_new_leadership_term_event")[-1]
    assert (args[0], args[2], args[6], args[7]) == (42, 5, TimeUnit.NANOS, 1)


@pytest.mark.parametrize("version", [3, 12])
def test_s29_an_older_term_event_means_milliseconds(version: int) -> None:
    member = ScriptedMember(app_version=1).lead()
    if version < 4:
        member.context.app_version_validator = lambda _own, _other: True
    member.cm.new_leadership_term(version=version)
    member.commit()
    assert member.service.of("on_new_leadership_term_event")[-1][6] is TimeUnit.MILLIS


def test_s29_an_incompatible_app_version_is_logged_and_ends_the_agent_with_the_hook() -> None:
    member = ScriptedMember(app_version=0x010000).start()
    member.cm.join_as_leader()
    member.work()
    member.cm.new_leadership_term(app_version=0x020304)
    member.cm.commit()
    termination = member.terminated()
    assert type(termination) is AgentTermination
    assert [str(error) for error in member.errors] == ["incompatible version: 1.0.0 log=2.3.4"]
    assert member.hooks == 1
    assert member.service.of("on_new_leadership_term_event") == []


def test_s30_the_end_of_a_log_closes_the_egress_and_makes_a_follower() -> None:
    member = ScriptedMember().lead()
    member.open_session()
    session = member.service.cluster.client_sessions[0]
    assert session.is_connected
    member.cm.end_log()
    member.work()
    assert not session.is_connected
    assert member.service.of("on_role_change") == [(Role.LEADER,), (Role.FOLLOWER,)]
    assert member.service.cluster.client_sessions == [session]


def test_s30_a_follower_whose_log_ends_is_told_nothing() -> None:
    member = ScriptedMember().follow()
    member.cm.end_log()
    member.work()
    assert member.service.of("on_role_change") == []


def test_s30_the_log_position_after_the_end_is_the_images() -> None:
    member = ScriptedMember().follow()
    end = member.cm.log_message(encode("CancelTimer", correlation_id=1))
    member.commit()
    assert member.service.cluster.log_position < end
    member.cm.end_log()
    member.work()
    assert member.service.cluster.log_position == end


def test_during_on_role_change_the_role_is_the_new_one() -> None:
    member = ScriptedMember().start()
    seen: list[tuple[Role, Role]] = []
    member.service.actions["on_role_change"] = lambda role: seen.append((role, member.service.cluster.role))
    member.cm.join_as_leader()
    member.work()
    member.cm.end_log()
    member.work()
    assert seen == [(Role.LEADER, Role.LEADER), (Role.FOLLOWER, Role.FOLLOWER)]


def test_an_exception_in_on_role_change_leaves_the_role_changed() -> None:
    member = ScriptedMember().start()
    member.in_callback(lambda *_: 1 // 0, "on_role_change")
    member.cm.join_as_leader()
    member.work()
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert member.service.cluster.role is Role.LEADER
    assert len(member.cm.acks) == 2


def test_the_member_id_is_set_by_the_join_and_written_to_the_mark_file() -> None:
    member = ScriptedMember(member_id=4)
    member.start()
    assert member.mark_file.member_id == NULL_VALUE
    member.cm.join_as_follower()
    member.work()
    assert member.mark_file.member_ids == [4]
    assert member.service.cluster.member_id == 4


def test_a_later_join_log_replaces_one_that_waits() -> None:
    member = ScriptedMember().follow()
    end = member.cm.session_message(1, b"x")
    member.cm.begin_log("follower")
    member.cm.join_log(role=0, log_channel="aeron:ipc?alias=never")
    member.cm.join_log(role=0)
    member.work(5)
    assert len(member.cm.acks) == 2, "not joined: the first image is not drained"
    member.commit(end)
    member.work(5)
    assert member.service.messages == [b"x"]
    assert member.cm.acks[2].log_position == end


@pytest.mark.parametrize("role", [-1, 3, 2**31 - 1])
def test_an_unknown_role_in_join_log_is_counted(role: int) -> None:
    member = ScriptedMember().start()
    member.cm.begin_log("follower")
    member.cm.join_log(role=role)
    member.work()
    assert f"unknown role in JoinLog: {role}" in str(member.errors[0])
    member.cm.join_log(role=0)
    member.work()
    assert len(member.cm.acks) == 2


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("SessionCloseEvent", {"cluster_session_id": 1, "close_reason": 9}, "unknown CloseReason: 9"),
        ("ClusterActionRequest", {"log_position": 1, "action": 5, "flags": 0}, "unknown ClusterAction: 5"),
    ],
)
def test_unknown_values_of_enums_are_counted_and_skipped(name: str, fields: dict[str, int], text: str) -> None:
    member = ScriptedMember().lead()
    member.cm.log_message(encode(name, leadership_term_id=1, timestamp=1, **fields))
    member.deliver(b"x")
    assert [str(error) for error in member.errors] == [text]
    assert member.service.messages == [b"x"]


@pytest.mark.parametrize(
    "frame", [b"", b"\1\2\3", b"\0" * 7, b"\x18\0\1\0\x65\0\x10\0" + bytes(24), b"\x18\0\1\0\x6f\0\x10\0" + bytes(23)]
)
def test_frames_that_are_no_cluster_messages_are_counted_and_skipped(frame: bytes) -> None:
    member = ScriptedMember().lead()
    member.cm.log_message(frame)
    member.deliver(b"x")
    (error,) = member.errors
    assert isinstance(error, CodecError | ClusterError)
    assert member.service.messages == [b"x"]


def test_a_foreign_schema_in_the_log_is_named() -> None:
    member = ScriptedMember().lead()
    member.cm.log_message(b"\x18\0\1\0\x65\0\x10\0" + bytes(24))
    member.commit()
    assert [str(error) for error in member.errors] == ["expected schemaId=111, actual=101"]


def test_s56_unknown_messages_on_the_control_stream_are_passed_over() -> None:
    member = ScriptedMember().lead()
    for message in (
        encode("ClusterMembersQuery", correlation_id=1, extended=1),
        encode("ClusterMembersResponse", correlation_id=1, leader_member_id=0, active_members="", passive_followers=""),
        encode("CancelTimer", correlation_id=1),
    ):
        member.cm.control_message(message)
    member.work(5)
    assert member.errors == []


def test_a_foreign_schema_on_the_control_stream_is_counted() -> None:
    member = ScriptedMember().lead()
    member.cm.control_message(b"\x08\0\x28\0\x01\0\0\0" + bytes(40))
    member.work()
    assert [str(error) for error in member.errors] == ["expected schemaId=111, actual=1"]


def test_one_control_message_is_taken_per_slow_tick() -> None:
    member = ScriptedMember().lead()
    for _ in range(3):
        member.cm.control_message(encode("CancelTimer", correlation_id=1))
    member.clock.advance(TICK_NS)
    assert member.agent.do_work() == 1
    assert member.agent.do_work() == 0, "no tick, no look at the control stream"
    assert member.work(2) == 2


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_the_fragment_limit_bounds_a_duty_cycle(limit: int) -> None:
    member = ScriptedMember(log_fragment_limit=limit).lead()
    for index in range(100):
        member.cm.session_message(1, b"%d" % index)
    member.cm.commit()
    assert member.agent.do_work() == limit


def test_a_duty_cycle_takes_no_more_messages_when_they_have_lasted_100_ms() -> None:
    """Else callbacks that are slow one by one keep the agent from its driver, fifty in a row for too long."""
    member = ScriptedMember().lead()
    member.service.actions["on_session_message"] = lambda *_: member.clock.advance(40_000_000)
    payloads = [b"%d" % index for index in range(10)]
    for payload in payloads:
        member.cm.session_message(1, payload)
    member.cm.commit()
    taken = []
    while len(member.service.messages) < len(payloads):
        before = len(member.service.messages)
        member.agent.do_work()
        taken.append(len(member.service.messages) - before)
    assert taken == [3, 3, 3, 1]
    assert member.service.messages == payloads


@pytest.mark.parametrize(("duration_ms", "reported"), [(40, 0), (150, 3)])
def test_a_callback_is_reported_slow_by_its_own_duration(
    caplog: pytest.LogCaptureFixture, duration_ms: int, reported: int
) -> None:
    """Not by that of those before it in the same duty cycle."""
    member = ScriptedMember().lead()
    member.service.actions["on_session_message"] = lambda *_: member.clock.advance(duration_ms * 1_000_000)
    member.deliver(b"1", b"2", b"3")
    member.work()
    assert len(member.service.messages) == 3
    found = [record.getMessage() for record in caplog.records if "a callback was slow" in record.getMessage()]
    assert len(found) == reported
    assert all(f"durationMs={duration_ms}" in text for text in found)


def test_the_wait_for_an_egress_is_not_reported_as_a_slow_callback(caplog: pytest.LogCaptureFixture) -> None:
    member = ScriptedMember().lead()
    member.driver.delay_next_add("publication", 200)
    before_ns = member.clock.now_ns
    member.in_callback(lambda session, _: session.offer(b"x"), "on_session_open")
    member.open_session()
    assert member.clock.now_ns - before_ns > 100_000_000
    assert "a callback was slow" not in caplog.text


def test_messages_across_term_ends_are_delivered_in_order() -> None:
    member = ScriptedMember(log_term_length=64 * 1024, log_initial_term_id=2**31 - 1).lead()
    payloads = [b"%d" % index * (index % 700) for index in range(600)]
    member.deliver(*payloads)
    assert member.service.messages == payloads


def test_join_as_leader_connects_sessions_unless_it_is_startup_and_resets_closing() -> None:
    member = ScriptedMember().lead()
    member.open_session()
    session = member.service.cluster.client_sessions[0]
    member.in_callback(lambda session, *_: session.close())
    member.deliver(b"x")
    assert session.is_closing
    member.cm.join_as_follower()
    member.work()
    assert not session.is_connected
    assert session.is_closing
    member.cm.join_as_leader(is_startup=True)
    member.work()
    assert not session.is_connected
    assert not session.is_closing
    member.cm.join_as_follower()
    member.work()
    member.cm.join_as_leader()
    member.work()
    assert session.is_connected


@pytest.mark.parametrize("code", [3, 11])
def test_a_failed_egress_is_counted_and_the_session_is_open_all_the_same(code: int) -> None:
    member = ScriptedMember().lead()
    member.driver.fail_next_add("publication", code, "invalid channel")
    member.cm.open_session(1)
    results = member.in_callback(lambda session, *_: session.offer(b"answer"))
    member.deliver(b"x")
    assert len(member.errors) == 1
    assert "failed to connect session response publication" in str(member.errors[0])
    assert not isinstance(member.errors[0], AeronError)
    assert [session.id for session in member.service.cluster.client_sessions] == [1]
    assert results == [-1]


def test_a_channel_that_the_client_library_refuses_by_itself_does_not_keep_the_session_from_opening() -> None:
    member = ScriptedMember().lead()
    refusal = ConfigurationError("channel 'aeron:ipc?alias=a\0b' has a NUL character in it")
    member.driver.fail_next_add("publication", error=refusal)
    member.cm.open_session(1, response_channel="aeron:ipc?alias=a\0b", connect_egress=False)
    member.deliver(b"x")
    assert [str(error) for error in member.errors] == [f"failed to connect session response publication: {refusal}"]
    assert member.service.of("on_session_open") == [(1, 1_000)]
    assert member.service.messages == [b"x"]
