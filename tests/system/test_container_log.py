"""The log of a real consensus module in a Python service: timers, sessions, terms, messages to the cluster, replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import CounterType
from tests.limits import LIMIT_S
from tests.system.harness import (
    ECHO_CLIENT,
    JAVA_LEDGER_SERVICE,
    LEDGER_CLIENT,
    LEDGER_SERVICE,
    REPORTING_SERVICE,
    CommandClient,
    NodeFactory,
    await_report,
    callback_names,
    error_texts,
    module_errors,
    release,
    reports,
    run_ledger_client,
    start,
)

pytestmark = pytest.mark.nodes("native", "java")

CLOSED_BY_SERVICE = "SERVICE_ACTION"


def test_timers_fire_in_order_of_their_deadlines_and_can_be_cancelled(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        deadlines = {
            correlation_id: client.do("schedule", correlation_id=correlation_id, delay_ms=delay_ms)
            for correlation_id, delay_ms in ((1, 1500), (2, 200), (3, 1000), (-4, 250))
        }
        assert client.do("cancel", correlation_id=3) is True
        await_report(service, "on_timer_event", count=3)
        # Scheduled anew under the same id, a timer replaces the earlier one.
        client.do("schedule", correlation_id=9, delay_ms=60_000)
        deadlines[9] = client.do("schedule", correlation_id=9, delay_ms=1)
        await_report(service, "on_timer_event", count=4)
        assert client.do("state") == [8, 4, 0]
    fired = reports(service, "on_timer_event")
    assert [timer["correlation_id"] for timer in fired] == [*sorted((2, -4, 1), key=lambda timer: deadlines[timer]), 9]
    assert all(timer["timestamp"] >= deadlines[timer["correlation_id"]] for timer in fired)


def test_s37_a_session_closed_by_the_service_ends_at_the_client(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client, CommandClient(member) as victim:
        assert client.do("sessions") == sorted([client.session_id, victim.session_id])
        assert client.do("close", session_id=victim.session_id) is True
        closed = await_report(service, "on_session_close")
        assert (closed["session_id"], closed["reason"]) == (victim.session_id, CLOSED_BY_SERVICE)
        victim.poll_until(lambda: victim.cluster.is_closed, "the close of the session")
        with pytest.raises(RuntimeError, match=r"ClusterError: unknown clusterSessionId: 99"):
            client.do("close", session_id=99)
        assert client.do("sessions") == [client.session_id]


def test_a_java_client_hears_that_the_service_closed_its_session(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    java = member.start_java_client(LEDGER_CLIENT)
    session_id = int(java.read_line(LIMIT_S).split()[1])
    with CommandClient(member) as client:
        assert client.do("close", session_id=session_id) is True
    assert java.wait(LIMIT_S) == 1
    assert f"session {session_id} got event CLOSED" in java.errors()
    assert await_report(service, "on_session_close", session_id=session_id)["reason"] == CLOSED_BY_SERVICE


def test_a_silent_client_times_out(node: NodeFactory) -> None:
    member = node(properties={"aeron.cluster.session.timeout": "1s"})
    service = start(member, REPORTING_SERVICE)
    # Nobody polls it, so it does not tell that it is alive.
    with CommandClient(member) as silent:
        closed = await_report(service, "on_session_close")
        assert (closed["session_id"], closed["reason"]) == (silent.session_id, "TIMEOUT")
    assert member.counter_value(CounterType.CLIENT_TIMEOUT_COUNT) == 1


def test_a_java_client_that_ends_closes_its_session(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    client = member.start_java_client(ECHO_CLIENT, ["messages=0"])
    assert client.wait(LIMIT_S) == 0, client.tail()
    closed = await_report(service, "on_session_close")
    assert (closed["session_id"], closed["reason"]) == (1, "CLIENT_ACTION")


def test_s13_s23_a_new_cluster_begins_without_a_snapshot_and_its_callbacks_are_in_upstreams_order(
    node: NodeFactory,
) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    await_report(service, "on_new_leadership_term_event")
    on_start, role, term = reports(service)
    assert (on_start["callback"], on_start["has_snapshot"], on_start["role"]) == ("on_start", False, "FOLLOWER")
    assert (on_start["log_position"], on_start["member_id"]) == (0, -1)
    assert (role["callback"], role["new_role"]) == ("on_role_change", "LEADER")
    assert term["callback"] == "on_new_leadership_term_event"
    assert (term["leadership_term_id"], term["leader_member_id"], term["time_unit"]) == (0, 0, "MILLIS")
    assert term["log_position"] > 0


def test_s20_the_log_is_subscribed_to_with_the_services_alias_and_all_else_kept(node: NodeFactory) -> None:
    member = node()
    start(member, REPORTING_SERVICE)
    labels = [counter.label for counter in member.counters() if counter.label.startswith("sub-pos: ")]
    (by_service,) = [label for label in labels if "alias=log-sc-0" in label]
    (by_archive,) = [label for label in labels if "alias=log " in label]
    # Whoever spies on the log has this channel from the consensus module; only the alias is the service's own.
    channel = by_service.split()[4]
    assert set(channel.replace("log-sc-0", "log").split("|")) == set(by_archive.split()[4].split("|"))
    assert channel.startswith("aeron-spy:aeron:udp?tags=")


@pytest.mark.nodes("java")
@pytest.mark.parametrize(
    ("consensus_module", "clock", "name"),
    [
        (None, "io.aeron.cluster.MillisecondClusterClock", "MILLIS"),
        (None, "io.aeron.cluster.NanosecondClusterClock", "NANOS"),
        pytest.param("native", "io.aeron.cluster.MillisecondClusterClock", "MILLIS", marks=pytest.mark.slow),
        pytest.param("native", "io.aeron.cluster.NanosecondClusterClock", "NANOS", marks=pytest.mark.slow),
        pytest.param("native", "micros", "MICROS", marks=pytest.mark.slow),
    ],
)
def test_s29_the_time_unit_is_the_clusters(
    node: NodeFactory, consensus_module: ArchiveKind | None, clock: str, name: str
) -> None:
    member = node(consensus_module=consensus_module, properties={"aeron.cluster.clock": clock})
    service = start(member, REPORTING_SERVICE)
    assert await_report(service, "on_new_leadership_term_event")["time_unit"] == name


def replayable(report: dict[str, object]) -> dict[str, object]:
    """What a replay must repeat: all but the role."""
    return {name: value for name, value in report.items() if name not in ("role", "member_id")}


def test_s23_the_log_is_replayed_as_follower_before_the_member_leads_again(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        for number in range(20):
            client.do("length", text="x" * (number * 700))
        client.do("schedule", correlation_id=5, delay_ms=1)
        await_report(service, "on_timer_event")
        assert client.do("send", length=50, count=3) == 3
        await_report(service, "on_session_message", count=25)
        release(member, service)
    before = [replayable(report) for report in reports(service) if report["callback"] != "on_role_change"]

    service = start(member, REPORTING_SERVICE)
    await_report(service, "on_new_leadership_term_event", count=2)
    after = reports(service)
    leading = callback_names(service).index("on_role_change")
    assert [replayable(report) for report in after[:leading]] == before
    assert {report["role"] for report in after[:leading]} == {"FOLLOWER"}
    assert (after[leading]["new_role"], after[leading + 1]["callback"]) == ("LEADER", "on_new_leadership_term_event")
    assert after[leading + 1]["leadership_term_id"] == 1
    assert after[leading]["state"] == [25, 1, 0]
    assert error_texts(member) == []
    assert module_errors(member) == []


def test_a_session_of_a_client_that_is_gone_is_closed_after_the_restart(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as gone:
        gone.do("echo", text="x")
        release(member, service)
    service = start(member, REPORTING_SERVICE)
    closed = await_report(service, "on_session_close")
    assert (closed["session_id"], closed["reason"]) == (gone.session_id, "TIMEOUT")
    with CommandClient(member) as client:
        assert client.do("sessions") == [client.session_id]
    assert error_texts(member) == []


def test_s39_s40_messages_to_the_cluster_of_all_allowed_lengths_come_back(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        for length in (0, 1, 1_344, 1_345, 16_352):
            assert client.do("offer", length=length) > 0
        with pytest.raises(RuntimeError, match=r"MessageTooLongError: .* max_message_length of 16352 bytes"):
            client.do("offer", length=16_353)
        assert client.do("claim", length=1_344) > 0
        with pytest.raises(RuntimeError, match=r"MessageTooLongError: .* max_payload_length of 1344 bytes"):
            client.do("claim", length=1_345)
        await_report(service, "on_session_message", count=14)
    own = [report["length"] for report in reports(service, "on_session_message") if report["session_id"] is None]
    assert own == [0, 1, 1_344, 1_345, 16_352, 1_344]


def test_send_to_the_cluster_waits_out_the_back_pressure_of_the_consensus_module(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        # Far more than the control stream holds: 64 KiB may be under way.
        assert client.do("send", length=8_000, count=200) == 200
        await_report(service, "on_session_message", count=201)
        # The consensus module counts service messages, and complains in the next snapshot when one is missing.
        assert member.cluster_tool("snapshot").return_code == 0
        assert member.snapshot_count == 1
    assert module_errors(member) == []


def test_s28_s59_an_exception_skips_one_message_and_the_service_lives_on(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        for _ in range(2):
            client.send("raise", text="skip me")
        assert client.do("echo", text="alive") == "alive"
        assert client.do("state") == [4, 0, 0]
    assert member.counter_value(CounterType.CLUSTERED_SERVICE_ERROR_COUNT, service_id=0) == 2
    # The same error is one record, observed twice.
    records = member.errors()[member.cluster_dir / "cluster-mark-service-0.dat"]
    assert [record.observation_count for record in records] == [2]
    assert "RuntimeError: skip me" in records[0].text
    assert callback_names(service).count("on_session_message") == 4


def test_an_exception_ends_the_container_where_the_policy_is_halt(node: NodeFactory) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE, {"AERON_CLUSTER_SERVICE_CALLBACK_ERROR_POLICY": "halt"})
    with CommandClient(member) as client:
        client.send("raise", text="a bug")
        assert service.wait(LIMIT_S) == 1
    assert "on_session_message raised RuntimeError in the event at logPosition=" in service.errors()
    assert "RuntimeError: a bug" in service.errors(), "the cause is there as well"
    assert callback_names(service)[-1] == "on_terminate"


def test_what_one_machine_alone_meets_ends_the_container_and_the_restart_replays_the_event(
    node: NodeFactory, tmp_path: Path
) -> None:
    member = node()
    service = start(member, REPORTING_SERVICE)
    file = tmp_path / "of-this-machine"
    with CommandClient(member) as client:
        assert client.do("echo", text="before") == "before"
        client.send("read_file", path=str(file))
        assert service.wait(LIMIT_S) == 1
    assert "on_session_message raised FileNotFoundError in the event at logPosition=" in service.errors()
    file.write_text("now it is there")
    release(member, service)
    service = start(member, REPORTING_SERVICE)
    with CommandClient(member) as client:
        assert client.do("state") == [3, 0, 0], "no event is missing"


def test_the_ledger_answers_alike_in_both_languages(node: NodeFactory) -> None:
    commands = ["hash", "put 3 30", "add 3 -31", "get 3", "get 4", "hash"]
    commands += [f"add 5 {2**63 - 1}", "add 5 1", f"put {-(2**63)} -1", "hash"]
    answers = []
    for is_java in (True, False):
        member = node()
        member.start()
        if is_java:
            member.start_java_service(JAVA_LEDGER_SERVICE)
        else:
            member.start_service(LEDGER_SERVICE)
        member.await_leader()
        answers.append(run_ledger_client(member, *commands))
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(commands)
