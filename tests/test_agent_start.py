"""The agent's start over memory: counters, recovery, snapshot load, the first ack."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import pytest

from container.api import Role, TimeUnit
from container.codecs import messages as codecs
from container.errors import (
    AgentTermination,
    ArchiveError,
    ClusterError,
    CodecError,
    RegistrationError,
    SnapshotError,
    TimedOutError,
)
from container.testing.memory.scripted_member import ScriptedMember

NULL_VALUE = -1
TYPE_ID = 2


def marker(mark: int, *, type_id: int = TYPE_ID, app_version: int = 1, time_unit: int = 0, **fields: int) -> bytes:
    """SnapshotMarker (100): 0 begin, 1 section, 2 end."""
    return codecs.encode(
        "cluster",
        "SnapshotMarker",
        type_id=type_id,
        log_position=fields.get("log_position", 4096),
        leadership_term_id=3,
        index=0,
        mark=mark,
        time_unit=time_unit,
        app_version=app_version,
    )


def client_session(
    cluster_session_id: int, channel: str = "aeron:udp?endpoint=localhost:1", principal: bytes = b""
) -> bytes:
    """ClientSession (102)."""
    return codecs.encode(
        "cluster",
        "ClientSession",
        cluster_session_id=cluster_session_id,
        response_stream_id=102,
        response_channel=channel,
        encoded_principal=principal,
    )


def recovering(*messages: bytes, **options: object) -> ScriptedMember:
    """A member that finds a snapshot of these messages, at position 4096 of term 3."""
    member = ScriptedMember(log_position=4096, **options)  # type: ignore[arg-type]
    recording_id = member.store.add_recording(list(messages))
    member.cm.start(recording_ids=[recording_id], leadership_term_id=3, log_position=4096, timestamp=77)
    return member


BEGIN, END = marker(0), marker(2)


def test_s12_a_container_started_before_the_consensus_module_waits_then_proceeds() -> None:
    member = ScriptedMember()
    idles = 20
    member.after_idles(idles, member.cm.start)
    member.agent.on_start()
    assert member.idle_strategy.idle_count > idles
    assert member.service.names() == ["on_start"]


def test_s12_it_waits_for_the_recovery_counter_as_well() -> None:
    member = ScriptedMember()
    member.cm.add_commit_counter()
    member.after_idles(7, member.cm.add_recovery_counter)
    member.agent.on_start()
    assert len(member.cm.acks) == 1


@pytest.mark.parametrize("counter", ["commit position", "recovery state"])
def test_a_long_wait_says_what_it_waits_for(counter: str, caplog: pytest.LogCaptureFixture) -> None:
    member = ScriptedMember(cluster_id=4)
    if counter == "recovery state":
        member.cm.add_commit_counter()
    member.idle_ns = 1_000_000_000
    member.after_idles(70, _give_up)
    with caplog.at_level(logging.WARNING, "container"), pytest.raises(AgentTermination, match="enough"):
        member.agent.on_start()
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3, "after 5, 35 and 65 seconds"
    assert all(f"the {counter} counter of cluster 4" in text for text in texts)


def _give_up() -> None:
    raise TimedOutError("enough")


def test_s13_without_a_snapshot_on_start_has_no_image_and_ack_0_is_at_position_0_with_the_client_id() -> None:
    member = ScriptedMember().start()
    assert member.service.calls == [("on_start", False)]
    (ack,) = member.cm.acks
    assert ack == (0, 0, 0, member.client_id, 0)


def test_during_on_start_the_role_is_follower_and_the_rest_is_unknown() -> None:
    member = ScriptedMember()
    seen = member.in_callback(
        lambda cluster, _image: (
            cluster.role,
            cluster.member_id,
            cluster.time_unit,
            cluster.log_position,
            cluster.time,
        ),
        "on_start",
    )
    member.start()
    assert seen == [(Role.FOLLOWER, NULL_VALUE, None, 0, 0)]


def test_the_recovery_position_and_time_are_the_clusters() -> None:
    member = recovering(BEGIN, END)
    member.agent.on_start()
    assert (member.service.cluster.log_position, member.service.cluster.time) == (4096, 77)


def test_s14_a_snapshot_gives_sessions_in_upstreams_order_and_the_users_messages() -> None:
    member = recovering(
        BEGIN, client_session(9), client_session(3, principal=b"who"), client_session(5), END, b"one", b"two"
    )
    member.agent.on_start()
    assert member.service.snapshot == [b"one", b"two"]
    sessions = member.service.cluster.client_sessions
    assert [session.id for session in sessions] == [9, 3, 5]
    assert sessions[1].encoded_principal == b"who"
    assert member.service.names() == ["on_start"], "sessions of a snapshot are told by no callback"
    assert member.cm.acks == [(4096, 77, 0, member.client_id, 0)]


def test_s14_the_image_is_just_behind_the_end_marker() -> None:
    member = recovering(BEGIN, END, b"x" * 100, b"y")
    seen: list[object] = []

    def on_start(_cluster: Any, image: Any) -> None:
        seen.append(image.position)
        while not image.is_end_of_stream:
            image.poll(lambda message: seen.append(len(message)), 1)
        seen.append(image.position)

    member.service.actions["on_start"] = on_start
    member.agent.on_start()
    begin = 2 * 96  # a marker has 48 bytes, a frame header 32
    assert seen == [begin, 100, 1, begin + 160 + 64]


def test_s14_what_the_user_does_not_read_is_left() -> None:
    member = recovering(BEGIN, END, b"one", b"two")
    member.service.actions["on_start"] = lambda _cluster, _image: None
    member.agent.on_start()
    assert len(member.cm.acks) == 1


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_the_time_unit_comes_from_the_snapshot(unit: TimeUnit) -> None:
    member = recovering(marker(0, time_unit=unit), marker(2, time_unit=unit))
    member.agent.on_start()
    assert member.service.cluster.time_unit is unit


def test_s15_user_data_of_many_fragments_and_a_session_longer_than_a_frame_load() -> None:
    principal = bytes(range(256)) * 16
    data = bytes(range(256)) * 25
    member = recovering(BEGIN, client_session(1, principal=principal), END, data, b"", data[::-1])
    member.agent.on_start()
    assert member.service.snapshot == [data, b"", data[::-1]]
    assert member.service.cluster.client_sessions[0].encoded_principal == principal


def test_a_session_of_a_snapshot_gets_its_egress_when_the_member_leads() -> None:
    member = recovering(BEGIN, client_session(1, "aeron:udp?endpoint=localhost:9"), END)
    member.agent.on_start()
    session = member.service.cluster.client_sessions[0]
    assert not session.is_connected
    member.cm.connect_egress(1, "aeron:udp?endpoint=localhost:9")
    member.lead()
    assert session.is_connected


def failing(member: ScriptedMember) -> AgentTermination:
    """Starts a member that cannot start; what the agent raised."""
    with pytest.raises(AgentTermination) as raised:
        member.agent.on_start()
    return raised.value


def test_s16_an_exception_in_on_start_is_acked_with_minus_one_and_ends_the_agent() -> None:
    member = ScriptedMember()
    member.service.actions["on_start"] = lambda *_: 1 // 0
    member.cm.start()
    termination = failing(member)
    assert isinstance(termination.__cause__, ZeroDivisionError)
    assert "failed to start service=clustered-service-0-0 leadershipTermId=-1 logPosition=0" in str(termination)
    assert "ClusterTool" not in str(termination)
    assert member.cm.acks == [(0, 0, 0, NULL_VALUE, 0)]
    member.agent.close()
    assert member.hooks == 0
    assert member.service.names() == ["on_start"], "on_terminate is not called"
    assert member.mark_file.is_terminated
    assert member.is_context_closed


@pytest.mark.parametrize(
    ("messages", "kind", "text"),
    [
        ([END], ClusterError, "missing begin snapshot"),
        ([BEGIN, BEGIN], ClusterError, "already in snapshot"),
        ([marker(0, type_id=1)], ClusterError, "unexpected snapshot type: 1"),
        ([BEGIN], ClusterError, "snapshot ended unexpectedly"),
        ([], ArchiveError, "cannot replay empty recording"),
        ([BEGIN, client_session(1), client_session(1)], ClusterError, "clusterSessionId=1 is twice"),
        ([BEGIN[:4] + b"\x01\x00" + BEGIN[6:]], ClusterError, "expected schemaId=111, actual=1"),
        ([BEGIN[:30]], CodecError, "SnapshotMarker"),
        ([b"abc"], CodecError, "message header"),
        ([marker(0, time_unit=3)], CodecError, "unknown ClusterTimeUnit: 3"),
        ([BEGIN, marker(7)], ClusterError, "unknown SnapshotMark: 7"),
        ([marker(0, app_version=2 << 16), END], ClusterError, "incompatible app version: 0.0.1 snapshot=2.0.0"),
        ([BEGIN, client_session(1)[:-5]], CodecError, "ClientSession"),
    ],
)
def test_s16_a_bad_snapshot_is_acked_with_minus_one(messages: list[bytes], kind: type, text: str) -> None:
    member = recovering(*messages)
    termination = failing(member)
    assert isinstance(termination.__cause__, kind)
    assert text in str(termination.__cause__)
    assert member.cm.acks == [(4096, 77, 0, NULL_VALUE, 0)]
    assert "snapshotRecordingId=7" in str(termination)
    assert "; if the recording is damaged, `aeron-cluster invalidate-latest-snapshot` has the node" in str(termination)


@pytest.mark.parametrize("mark", [1, None])
def test_sections_null_marks_and_unknown_templates_are_passed_over(mark: int | None) -> None:
    unknown = codecs.encode("cluster", "CancelTimer", correlation_id=1)
    member = recovering(BEGIN, marker(mark), unknown, END, b"state")  # type: ignore[arg-type]
    member.agent.on_start()
    assert member.service.snapshot == [b"state"]


def test_a_compatible_app_version_may_differ_in_minor_and_patch() -> None:
    member = recovering(marker(0, app_version=0x000205), marker(2, app_version=0x000205))
    member.agent.on_start()
    assert len(member.cm.acks) == 1


@pytest.mark.parametrize(("service_count", "service_id"), [(1, 1), (2, 5), (0, 0)])
def test_a_service_that_the_node_does_not_count_is_refused(service_count: int, service_id: int) -> None:
    member = ScriptedMember(service_id=service_id)
    member.cm.start(recording_ids=[7] * service_count, leadership_term_id=1)
    termination = failing(member)
    assert f"invalid serviceId {service_id} for serviceCount {service_count}" in str(termination)


def test_each_service_loads_its_own_snapshot() -> None:
    member = ScriptedMember(service_id=1)
    other = member.store.add_recording([BEGIN, END, b"of service 0"])
    own = member.store.add_recording([BEGIN, END, b"of service 1"])
    member.cm.start(recording_ids=[other, own], leadership_term_id=1)
    member.agent.on_start()
    assert member.service.snapshot == [b"of service 1"]


@pytest.mark.parametrize("operation", ["open", "check"])
def test_an_archive_error_while_loading_fails_the_start(
    operation: Literal["open", "check"],
) -> None:
    member = recovering(BEGIN, END)
    log = member.store.recording(member.store.recording_ids[0]).log
    log.overwrite(log.frames()[1].position, bytes(4))
    member.store.script(operation, [ArchiveError("unknown recording", code=5)])
    termination = failing(member)
    assert isinstance(termination.__cause__, ArchiveError)
    assert member.cm.acks[0].relevant_id == NULL_VALUE


def test_s60_counters_of_another_cluster_are_ignored() -> None:
    member = ScriptedMember(cluster_id=2)
    member.cm.add_commit_counter(cluster_id=1)
    member.cm.add_recovery_counter(cluster_id=3)
    member.after_idles(5, member.cm.add_commit_counter)
    member.after_idles(5, member.cm.add_recovery_counter)
    member.agent.on_start()
    assert member.idle_strategy.idle_count == 12
    assert len(member.cm.acks) == 1


@pytest.mark.parametrize("mark", ["interrupt", "driver", "consensus module"])
def test_an_end_while_waiting_is_not_acknowledged_as_a_failed_start(mark: str) -> None:
    member = ScriptedMember()
    member.cm.add_commit_counter()
    ending = {
        "interrupt": member.agent.interrupt,
        "driver": member.driver.kill,
        "consensus module": member.cm.remove_commit_counter,
    }[mark]
    member.after_idles(1, ending)
    failing(member)
    member.agent.close()
    assert mark == "driver" or member.cm.acks == []
    assert member.mark_file.is_terminated


def test_nothing_may_be_sent_from_on_start() -> None:
    member = ScriptedMember()
    tried = member.in_callback(_sends_refused, "on_start")
    member.start()
    assert tried == [5]


def _sends_refused(cluster: Any, _image: Any) -> int:
    calls: list[Callable[[], Any]] = [
        lambda: cluster.offer(b"x"),
        lambda: cluster.send(b"x"),
        lambda: cluster.schedule_timer(1, 2),
        lambda: cluster.cancel_timer(1),
        lambda: cluster.close_client_session(1),
    ]
    for call in calls:
        with pytest.raises(ClusterError, match="not allowed from on_start"):
            call()
    return len(calls)


def test_a_snapshot_image_is_of_no_use_after_on_start() -> None:
    member = recovering(BEGIN, END, b"x")
    kept = member.in_callback(lambda _cluster, image: image, "on_start")
    member.agent.on_start()
    for use in (lambda: kept[0].poll(print), lambda: list(kept[0]), lambda: kept[0].position):
        with pytest.raises(ClusterError, match="only inside on_start"):
            use()


@pytest.mark.parametrize("way", ["poll", "iterate"])
def test_an_image_that_closes_early_is_an_error_for_the_reader(way: str) -> None:
    member = recovering(BEGIN, END, b"one", b"two")
    received: list[bytes] = []

    def on_start(_cluster: Any, image: Any) -> None:
        assert image.poll(received.append, 1) == 1
        (replay,) = [each for each in member.client.open_resources if getattr(each, "stream_id", 0) == 103]
        replay.close()
        if way == "poll":
            image.poll(received.append)
        else:
            received.extend(image)

    member.service.actions["on_start"] = on_start
    error = failing(member).__cause__
    assert isinstance(error, SnapshotError)
    assert str(error).startswith("snapshot ended unexpectedly at position 256: ")
    assert received == [b"one"]
    assert member.cm.acks[0].relevant_id == NULL_VALUE


def test_a_poll_of_a_snapshot_for_no_fragments_is_refused() -> None:
    member = recovering(BEGIN, END, b"one")

    def on_start(_cluster: Any, image: Any) -> None:
        for limit in (0, -1):
            with pytest.raises(ValueError, match=f"fragment_limit must be at least 1, not {limit}"):
                image.poll(print, limit)
        received: list[bytes] = []
        assert image.poll(received.append, 1) == 1
        assert received == [b"one"]

    checked = member.in_callback(on_start, "on_start")
    member.agent.on_start()
    assert checked == [None]


def test_the_first_ack_is_tried_until_sent() -> None:
    member = ScriptedMember()
    member.cm.start()
    member.results(*[-2, -3] * 10)
    member.agent.on_start()
    assert [ack.ack_id for ack in member.cm.acks] == [0]
    assert member.idle_strategy.idle_count >= 20


def test_a_failed_add_of_the_control_subscription_closes_the_publication() -> None:
    member = ScriptedMember()
    before = member.client.open_resources
    member.driver.fail_next_add("subscription", 1, "mismatched term length")
    with pytest.raises(RegistrationError, match="mismatched term length"):
        type(member.agent)(member.context)
    assert member.client.open_resources == before


@pytest.mark.parametrize("is_invoker", [True, False])
def test_the_agent_conducts_the_client_only_in_invoker_mode(is_invoker: bool) -> None:
    member = ScriptedMember(is_invoker=is_invoker).start()
    before = member.client.invoke_count
    member.work(5)
    assert member.client.invoke_count - before == (5 if is_invoker else 0)


def test_a_flag_of_a_frame_that_is_not_known_ends_no_message() -> None:
    member = recovering((BEGIN[:8], 0x81), (BEGIN[8:], 0x41), END)  # type: ignore[arg-type]
    member.agent.on_start()
    assert member.cm.acks[0].relevant_id == member.client_id
