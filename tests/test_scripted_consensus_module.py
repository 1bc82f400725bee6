"""The scripted consensus module by itself: what it puts on the wire, and what it makes of a service's messages."""

from __future__ import annotations

from typing import Any

import pytest

from container.api import CloseReason, Role, TimeUnit
from container.codecs import messages as codecs
from container.common.channel_uri import replace_alias
from container.testing.memory import transport_probe as seam
from container.testing.memory.memory_transport import MemoryClient, MemoryDriver
from container.testing.memory.scripted_consensus_module import (
    CancelTimer,
    CloseSession,
    ClusterAction,
    ClusterMembersQuery,
    ScheduleTimer,
    ScriptedConsensusModule,
    ScriptError,
    ServiceAck,
    SessionMessage,
    UnknownMessage,
)
from container.testing.memory.scripted_messages import at_version, encode, raw_message, service_session_id
from container.transport.fragment_assembler import SessionFragmentAssembler
from container.transport.streams import Publication, Subscription

CONTROL = "aeron:ipc?term-length=128k"
MAX_POSITION = 2**63 - 1


@pytest.fixture
def cm(driver: MemoryDriver) -> ScriptedConsensusModule:
    return ScriptedConsensusModule(driver)


@pytest.fixture
def control(client: MemoryClient, cm: ScriptedConsensusModule) -> Subscription:
    """Stream 104, as a service subscribes to it."""
    return seam.add_subscription(client, CONTROL, 104)


@pytest.fixture
def to_cm(client: MemoryClient, cm: ScriptedConsensusModule) -> Publication:
    """Stream 105, as a service publishes on it."""
    return seam.add_publication(client, CONTROL, 105)


def messages(source: Subscription) -> list[bytes]:
    collector = seam.CollectingHandler()
    assembler = SessionFragmentAssembler(collector)
    for _ in range(20):
        seam.poll_with(source, assembler, 1_000)
    return [data for data, _ in collector.messages]


def decoded(source: Subscription) -> list[tuple[str, dict[str, Any]]]:
    return [codecs.decode("cluster", data) for data in messages(source)]


def join(client: MemoryClient, control: Subscription) -> tuple[dict[str, Any], Subscription]:
    """What a service does with a JoinLog: its fields, and a subscription to the log."""
    [(name, fields)] = decoded(control)
    assert name == "JoinLog"
    channel = replace_alias(fields["log_channel"].decode(), "log-sc-0")
    return fields, seam.add_subscription(client, channel, fields["log_stream_id"])


# Counters


def test_the_counters_of_a_start_without_a_snapshot(client: MemoryClient, cm: ScriptedConsensusModule) -> None:
    cm.start()
    assert cm.commit_counter is not None
    assert cm.recovery_counter is not None
    counters = seam.counters(client)
    commit = seam.counter_record(counters, cm.commit_counter.counter_id)
    assert (commit["type_id"], commit["key"], commit["value"]) == (203, bytes(112), 0)
    assert commit["label"] == "Cluster commit-pos: - clusterId=0"
    recovery = seam.counter_record(counters, cm.recovery_counter.counter_id)
    assert recovery["type_id"] == 204
    assert recovery["key"] == b"\xff" * 8 + bytes(104)
    assert recovery["label"] == "Cluster recovery: leadershipTermId=-1 logPosition=0 clusterId=0"


def test_the_counters_of_a_start_from_snapshots(driver: MemoryDriver, client: MemoryClient) -> None:
    cm = ScriptedConsensusModule(driver, cluster_id=3, log_position=4096)
    cm.start(recording_ids=[7, 9], leadership_term_id=2, timestamp=1_000)
    assert cm.commit_position == 4096
    assert cm.recovery_counter is not None
    key = seam.counter_record(seam.counters(client), cm.recovery_counter.counter_id)["key"]
    assert key is not None
    fields = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8, 16, 32, 40, 48)]
    assert fields == [2, 4096, 1_000, 7, 9, 0]
    assert [int.from_bytes(key[at : at + 4], "little") for at in (24, 28)] == [3, 2]


def test_counters_can_be_removed_and_others_added(
    driver: MemoryDriver, client: MemoryClient, cm: ScriptedConsensusModule
) -> None:
    listener = seam.RecordingListener()
    seam.add_listener(client, listener)
    other = cm.add_commit_counter(cluster_id=5, value=64)
    with pytest.raises(ScriptError, match=r"start\(\)"):
        cm.commit()
    cm.start()
    cm.remove_recovery_counter()
    cm.remove_recovery_counter()
    assert cm.commit_counter is not None
    gone = cm.commit_counter.counter_id
    cm.remove_commit_counter()
    cm.remove_commit_counter()
    assert cm.commit_position == -1
    seam.invoke(client)
    assert [counter_id for _, counter_id in listener.unavailable][1:] == [gone]
    assert [value for _, type_id, _, value in driver.counters.read() if type_id == 203] == [64]
    assert other.value == 64


# Control stream


@pytest.mark.parametrize(
    ("how", "role", "stream_id", "prefix"),
    [
        ("leader", Role.LEADER, 100, "aeron-spy:aeron:udp?tags=1|session-id="),
        ("ipc", Role.LEADER, 100, "aeron:ipc?tags=1|session-id="),
        ("follower", Role.FOLLOWER, 100, "aeron:udp?tags=1,2|control-mode=manual|session-id="),
        ("replay", Role.FOLLOWER, 103, "aeron:ipc?session-id="),
    ],
)
def test_each_kind_of_log_can_be_joined(
    client: MemoryClient,
    cm: ScriptedConsensusModule,
    control: Subscription,
    how: str,
    role: int,
    stream_id: int,
    prefix: str,
) -> None:
    cm.member_id = 2
    if how == "replay":
        cm.begin_replay()
        end = cm.session_message(1, b"x")
        cm.join_replay()
    else:
        end = MAX_POSITION
        {"leader": cm.join_as_leader, "ipc": lambda: cm.join_as_leader(ipc=True), "follower": cm.join_as_follower}[
            how
        ]()
        cm.session_message(1, b"x")
    fields, log = join(client, control)
    assert (fields["role"], fields["log_stream_id"], fields["member_id"]) == (role, stream_id, 2)
    assert (fields["log_position"], fields["max_log_position"]) == (0, end)
    assert (fields["is_startup"], fields["is_standby"]) == (int(how == "replay"), 0)
    assert fields["log_channel"].decode().startswith(prefix)
    image = seam.image(log, fields["log_session_id"])
    assert image is not None
    assert image.join_position == 0
    assert [data[32:] for data in messages(log)] == [b"x"]


@pytest.mark.parametrize("version", [12, 13, 14, 15, 16])
def test_join_log_has_the_block_of_its_version(
    cm: ScriptedConsensusModule, control: Subscription, version: int
) -> None:
    cm.join_as_leader(version=version, is_standby=True)
    [data] = messages(control)
    assert int.from_bytes(data[:2], "little") == (40 if version == 16 else 36)
    assert int.from_bytes(data[6:8], "little") == version
    name, fields = codecs.decode("cluster", data)
    assert (name, fields["is_standby"]) == ("JoinLog", 1 if version == 16 else None)
    assert fields["log_channel"].startswith(b"aeron-spy:")


def test_join_log_can_say_what_is_wrong(cm: ScriptedConsensusModule, control: Subscription) -> None:
    cm.join_as_follower(log_position=64, max_log_position=128, log_channel="aeron:ipc", log_session_id=1)
    cm.join_log(role=7, log_stream_id=5, is_standby=None)
    first, second = (fields for _, fields in decoded(control))
    assert (first["log_position"], first["max_log_position"], first["log_channel"]) == (64, 128, b"aeron:ipc")
    assert first["log_session_id"] == 1
    assert (second["role"], second["log_stream_id"], second["is_standby"]) == (7, 5, None)


def test_positions_continue_from_one_log_to_the_next(
    client: MemoryClient, cm: ScriptedConsensusModule, control: Subscription
) -> None:
    cm.begin_replay()
    replayed = cm.session_message(1, b"old")
    cm.join_replay()
    _, replay = join(client, control)
    cm.join_as_leader()
    fields, log = join(client, control)
    assert fields["log_position"] == replayed == cm.log_position
    image = seam.image(log)
    assert image is not None
    assert image.join_position == replayed
    old = seam.image(replay)
    assert old is not None
    assert seam.end_of_stream_position(old) == replayed
    cm.session_message(1, b"new")
    cm.end_log()
    assert cm.log_position > replayed
    with pytest.raises(ScriptError, match="join_as_leader"):
        cm.session_message(1, b"x")


@pytest.mark.parametrize(
    ("arguments", "block", "version"),
    [
        ({}, "c000000000000000", 16),
        ({"ack_required": None, "version": 17}, "c00000000000000000000080", 17),
        ({"ack_required": True, "version": 17}, "c00000000000000001000000", 17),
        ({"ack_required": False, "version": 17}, "c00000000000000000000000", 17),
    ],
)
def test_termination_positions_of_both_versions(
    cm: ScriptedConsensusModule, control: Subscription, arguments: dict[str, Any], block: str, version: int
) -> None:
    cm.termination_position(192, **arguments)
    [data] = messages(control)
    assert data.hex() == f"{len(block) // 2:02x}002a006f00{version:02x}00{block}"
    assert codecs.decode("cluster", data)[1]["log_position"] == 192


def test_requests_for_an_ack_and_any_other_bytes(cm: ScriptedConsensusModule, control: Subscription) -> None:
    cm.request_service_ack(96)
    cm.control_message(raw_message(43, b"abc"))
    cm.control_message(b"")
    assert [data.hex() for data in messages(control)] == [
        "08006c006f0010006000000000000000",
        "03002b006f001000616263",
        "",
    ]


def test_many_control_messages_cross_terms(cm: ScriptedConsensusModule, control: Subscription) -> None:
    received = 0
    for _ in range(50):
        for _ in range(10):
            cm.control_message(bytes(1_000))
        received += len(messages(control))
    assert received == 500


def test_a_control_message_that_nobody_takes_is_an_error(cm: ScriptedConsensusModule) -> None:
    with pytest.raises(ScriptError, match="NOT_CONNECTED; does the service subscribe"):
        cm.termination_position(0)


# Log


def test_events_of_the_log(client: MemoryClient, cm: ScriptedConsensusModule, control: Subscription) -> None:
    cm.join_as_leader()
    _, log = join(client, control)
    cm.timestamp = 5_000
    ends = [
        cm.new_leadership_term(time_unit=TimeUnit.NANOS, app_version=0x10101, leader_member_id=2),
        cm.open_session(4, encoded_principal=b"me", response_stream_id=103),
        cm.session_message(4, b"hello", timestamp=5_001),
        cm.timer_event(77),
        cm.snapshot(flags=1),
        cm.cluster_action(ClusterAction.SUSPEND, flags=None),
        cm.membership_change(),
        cm.service_message(1, 9, b"own"),
        cm.close_session(4, CloseReason.TIMEOUT),
    ]
    events = decoded(log)
    assert [name for name, _ in events] == [
        "NewLeadershipTermEvent",
        "SessionOpenEvent",
        "SessionMessageHeader",
        "TimerEvent",
        "ClusterActionRequest",
        "ClusterActionRequest",
        "MembershipChangeEvent",
        "SessionMessageHeader",
        "SessionCloseEvent",
    ]
    term, opened, message, timer, snapshot, suspend, change, own, closed = (fields for _, fields in events)
    assert {fields["leadership_term_id"] for _, fields in events} == {1}
    assert {fields["timestamp"] for _, fields in events} == {5_000, 5_001}
    assert (term["log_position"], term["term_base_log_position"]) == (ends[0], 0)
    assert (term["time_unit"], term["app_version"], term["leader_member_id"]) == (2, 0x10101, 2)
    assert (opened["cluster_session_id"], opened["response_stream_id"]) == (4, 103)
    assert (opened["response_channel"], opened["encoded_principal"]) == (b"aeron:udp?endpoint=localhost:20004", b"me")
    assert (message["cluster_session_id"], message["timestamp"], message["payload"]) == (4, 5_001, b"hello")
    assert timer["correlation_id"] == 77
    assert (snapshot["action"], snapshot["flags"], snapshot["log_position"]) == (2, 1, ends[4])
    assert (suspend["action"], suspend["flags"], suspend["log_position"]) == (0, None, ends[5])
    assert change["log_position"] == ends[6]
    assert (own["cluster_session_id"], own["payload"]) == (service_session_id(1, 9), b"own")
    assert closed["close_reason"] == 2
    assert ends == sorted(ends)
    assert cm.log_position == ends[-1]


def test_an_action_at_the_end_of_a_term_names_its_true_position(
    client: MemoryClient, cm: ScriptedConsensusModule, control: Subscription
) -> None:
    cm.join_as_leader()
    _, log = join(client, control)
    while cm.log_position < 65_536 - 96:
        cm.timer_event(1)
    end = cm.snapshot()
    assert end == 65_536 + 96
    assert decoded(log)[-1][1]["log_position"] == end


@pytest.mark.parametrize(("version", "block_length"), [(3, 40), (4, 48), (16, 48)])
def test_new_leadership_terms_of_older_versions(
    client: MemoryClient, cm: ScriptedConsensusModule, control: Subscription, version: int, block_length: int
) -> None:
    cm.join_as_leader()
    _, log = join(client, control)
    cm.new_leadership_term(5, version=version)
    [data] = messages(log)
    assert int.from_bytes(data[:2], "little") == block_length
    assert codecs.decode("cluster", data)[1]["time_unit"] == (None if version == 3 else 0)
    assert cm.leadership_term_id == 5


def test_actions_of_older_versions_have_no_flags(
    client: MemoryClient, cm: ScriptedConsensusModule, control: Subscription
) -> None:
    cm.join_as_leader()
    _, log = join(client, control)
    cm.cluster_action(ClusterAction.SNAPSHOT, version=10)
    [data] = messages(log)
    assert len(data) == 8 + 28
    assert codecs.decode("cluster", data)[1]["flags"] is None


def test_the_commit_position_moves_as_told(cm: ScriptedConsensusModule) -> None:
    cm.start()
    cm.begin_log("ipc")
    first = cm.timer_event(1)
    second = cm.timer_event(2)
    assert cm.commit_position == 0
    assert cm.commit(first) == cm.commit_position == first
    assert cm.commit() == cm.commit_position == second
    assert repr(cm) == f"<ScriptedConsensusModule log_position={second} commit_position={second} received=0>"


def test_a_log_can_begin_anywhere_and_be_shaped(driver: MemoryDriver, client: MemoryClient) -> None:
    cm = ScriptedConsensusModule(
        driver, log_position=3 * 131_072 + 64, log_term_length=131_072, log_initial_term_id=2**31 - 2, log_mtu_length=64
    )
    control = seam.add_subscription(client, CONTROL, 104)
    cm.join_as_leader()
    fields, log = join(client, control)
    cm.session_message(1, bytes(100))
    headers = [header for _, header in seam.poll(log, 100)]
    assert fields["log_position"] == 3 * 131_072 + 64
    assert len(headers) == 5
    assert (headers[0]["term_id"], headers[0]["term_offset"]) == (-(2**31) + 1, 64)


def test_an_unknown_kind_of_log_is_refused(cm: ScriptedConsensusModule) -> None:
    with pytest.raises(ScriptError, match="'canonical'.*leader, ipc, follower and replay"):
        cm.begin_log("canonical")


# What a service sends


def test_messages_of_a_service_are_sorted_by_kind(cm: ScriptedConsensusModule, to_cm: Publication) -> None:
    header = {"leadership_term_id": 1, "cluster_session_id": 0, "timestamp": 0}
    sent = [
        encode("ServiceAck", log_position=96, timestamp=1_000, ack_id=2, relevant_id=-1, service_id=0),
        encode("ScheduleTimer", correlation_id=77, deadline=1_000),
        encode("CancelTimer", correlation_id=77),
        encode("CloseSession", cluster_session_id=9),
        encode("ClusterMembersQuery", correlation_id=5, extended=1),
        encode("SessionMessageHeader", **header) + b"x" * 5_000,
        encode("TimerEvent", leadership_term_id=0, correlation_id=0, timestamp=0),
        b"\1\2\3",
    ]
    for message in sent:
        assert seam.offer(to_cm, message) > 0
    assert cm.acks == [ServiceAck(96, 1_000, 2, -1, 0)]
    assert cm.scheduled_timers == [ScheduleTimer(77, 1_000)]
    assert cm.cancelled_timers == [CancelTimer(77)]
    assert cm.close_requests == [CloseSession(9)]
    assert cm.service_messages == [SessionMessage(1, 0, 0, b"x" * 5_000)]
    assert cm.received[4] == ClusterMembersQuery(5, 1)
    assert cm.received[6:] == [UnknownMessage(sent[6]), UnknownMessage(sent[7])]
    assert cm.poll() == []
    seam.offer(to_cm, sent[3])
    assert cm.poll() == [CloseSession(9)]
    assert len(cm.received) == 9


def test_egress_is_told_apart_by_session(client: MemoryClient, cm: ScriptedConsensusModule) -> None:
    cm.begin_log("ipc")
    for session_id in (1, 2):
        cm.open_session(session_id, response_channel="aeron:ipc", response_stream_id=102)
    cm.open_session(3)
    cm.open_session(4, connect_egress=False)
    shared = seam.add_publication(client, "aeron:ipc", 102)
    own = seam.add_publication(client, "aeron:udp?endpoint=localhost:20003", 102)

    def send(publication: Publication, session_id: int, payload: bytes) -> int:
        header = encode("SessionMessageHeader", leadership_term_id=0, cluster_session_id=session_id, timestamp=5)
        return seam.offer(publication, header + payload)

    send(shared, 1, b"one")
    send(shared, 2, b"two" * 1_000)
    seam.offer(shared, b"not for a session")
    send(own, 3, b"three")
    send(shared, 1, b"uno")
    assert [message.payload for message in cm.egress(1)] == [b"one", b"uno"]
    assert cm.egress(2) == [SessionMessage(0, 2, 5, b"two" * 1_000)]
    assert [message.payload for message in cm.egress(3)] == [b"three"]
    with pytest.raises(ScriptError, match="session 4"):
        cm.egress(4)
    cm.disconnect_egress(3)
    assert not seam.is_connected(own)
    assert seam.is_connected(shared)
    cm.disconnect_egress(1)
    assert [message.payload for message in cm.egress(2)] == [b"two" * 1_000]


def test_running_ends_when_it_is_true_or_gives_up(cm: ScriptedConsensusModule) -> None:
    work: list[int] = []
    assert cm.run(lambda: work.append(1), until=lambda: len(work) == 3) == 3
    assert cm.run(lambda: work.append(1), until=lambda: True) == 0
    assert cm.run(lambda: work.append(1), until=lambda: len(work) == 5, cycles=2) == 2
    with pytest.raises(ScriptError, match="within 4 duty cycles: the second coming"):
        cm.run(lambda: None, until=lambda: False, what="the second coming", cycles=4)


def test_a_consensus_module_that_goes_takes_its_side_along(
    driver: MemoryDriver, client: MemoryClient, cm: ScriptedConsensusModule, control: Subscription, to_cm: Publication
) -> None:
    cm.start()
    cm.join_as_leader()
    _, log = join(client, control)
    image = seam.image(log)
    assert image is not None
    cm.close()
    cm.close()
    assert seam.is_end_of_stream(image)
    assert not seam.is_connected(to_cm)
    seam.invoke(client)
    assert [label for _, _, label, _ in driver.counters.read()] == ["client-heartbeat: id=1 name=test"]
    assert [resource for resource in driver.open_resources() if resource not in client.open_resources] == []


def test_another_version_moves_the_var_data_and_keeps_it() -> None:
    message = encode("ServiceAck", log_position=1, timestamp=2, ack_id=3, relevant_id=4, service_id=5)
    longer = at_version(message + b"var", 99, 40, b"new!")
    assert longer == bytes([40, 0]) + message[2:6] + bytes([99, 0]) + message[8:] + b"new!" + b"var"
    assert at_version(longer, 16, 36) == message + b"var"
