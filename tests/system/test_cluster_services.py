"""Three members with two and three services each, which talk to each other by messages to the cluster, under load.

After each test: every service of every member has applied the same events in the same order, messages of clients and
services and timers each once; all snapshots are equal, over members and over services; and the consensus modules of all
members have counted the same messages of each service.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from container.errors import ContainerError
from container.testing.processes.local_cluster import LocalMember, ModuleState
from container.testing.processes.process import wait_until
from container.testing.processes.recordings import SnapshotEntry, read_snapshot_entries
from tests.limits import LIMIT_S
from tests.soak import checks, services
from tests.soak.faults import FAULTS
from tests.soak.ledger import Kind, Ledger, Op, of_service, service_id_of, suffix
from tests.soak.load_client import LoadClient
from tests.soak.scenario import END_LIMIT_S, RECOVERY_LIMIT_S, Scenario
from tests.system.harness import Scenarios, start_tool

FIRST_SESSION_ID = -(2**63)
# Few enough for a follower's receiver window: a service that is further behind than that holds up its own member.
FEW = 20
# More than a term of the log, so that a follower which has not received it does not get it from the leader's buffers.
LONG_BACKLOG = 2 * 1024 * 1024
FAILED_SNAPSHOT = r"^__main__\.ArmedError: on_snapshot"
FAILED_START = r"AgentTermination: ERROR - failed to start service=\S+-1 .*: ArmedError: on_start"

CHOICE = random.Random(1)

_keys = count(1 << 48)


def finish(scenario: Scenario) -> Ledger:
    """Everything must agree, and nothing unexpected be in an error log; the clients go on after that."""
    _findings, ledger = scenario.check()
    assert not scenario.unexpected_errors()
    scenario.resume()
    return ledger


def drain(scenario: Scenario) -> None:
    """Let the clients send nothing but what they are asked to."""
    for client in scenario.clients:
        client.drain(RECOVERY_LIMIT_S)


def request_relays(scenario: Scenario, number: int) -> None:
    """Let each client ask for relays, and wait for nothing."""
    for client in scenario.clients:
        for _request in range(number):
            client.request(Op.RELAY, next(_keys), 1)


def relay(scenario: Scenario, number: int) -> None:
    """Let each client ask for relays, and wait until the ledger has sent them."""
    goals = [client.sent + number for client in scenario.clients]
    request_relays(scenario, number)
    for client, goal in zip(scenario.clients, goals, strict=True):
        wait_until(partial(_has_acknowledged, client, goal), RECOVERY_LIMIT_S, f"{client} to be answered")


def _has_acknowledged(client: LoadClient, goal: int) -> bool:
    return client.acknowledged >= goal


def await_journaled(member: LocalMember, position: int, service_ids: Iterable[int]) -> None:
    """Wait until services of a member have come to a position of the log."""
    for service_id in service_ids:
        what = f"service {service_id} of member {member.member_id} to come to {position}"
        wait_until(partial(_has_come_to, position, member, service_id), RECOVERY_LIMIT_S, what)


def _has_come_to(position: int, member: LocalMember, service_id: int) -> bool:
    return services.log_position(member, service_id) >= position


def start_positions(member: LocalMember) -> list[int]:
    """Where in the log the services of a member were when they started last."""
    runs = checks.read_runs(member.node.base_dir)
    latest = {run.name.rpartition(" start ")[0]: run for run in runs}
    return [run.records[0].position for run in latest.values()]


def snapshots_of(member: LocalMember) -> set[SnapshotEntry]:
    """The snapshots that a member could start from."""
    return set(read_snapshot_entries(member.node.cluster_dir))


def latest_position(snapshots: Iterable[SnapshotEntry]) -> int:
    """Where the latest of these snapshots is in the log."""
    return max((entry.log_position for entry in snapshots), default=0)


@pytest.mark.parametrize(
    ("java_members", "service_count"), [((0,), 2), pytest.param((), 3, marks=pytest.mark.slow)], ids=["mixed", "ours"]
)
def test_services_that_talk_to_each_other_agree_on_all_members(
    java_members: tuple[int, ...], service_count: int, scenarios: Scenarios
) -> None:
    with scenarios(java_members=java_members, service_count=service_count) as scenario:
        ledger = finish(scenario)
        runs = [run for member in scenario.cluster.members for run in checks.read_runs(member.node.base_dir)]
        assert len(runs) == 3 * service_count
        relayed = [(record.first, record.second) for record in runs[0].records if record.kind == Kind.RELAYED]
        of_each = [
            sorted((first, of_service(second, 0)) for first, second in relayed if service_id_of(second) == service_id)
            for service_id in range(service_count)
        ]
        assert of_each[0]
        assert of_each == of_each[:1] * service_count
        sent = ledger.totals.relays_back // service_count
        assert services.check_pending(scenario.cluster) == {
            service_id: services.Pending(first + sent + 1, first + sent, [])
            for service_id in range(service_count)
            for first in [FIRST_SESSION_ID + (service_id << 56)]
        }


@pytest.mark.slow
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_slow_service_holds_up_nobody_else(role: str, scenarios: Scenarios) -> None:
    with scenarios(java_members=(), service_count=2) as scenario:
        followers = scenario.followers(CHOICE, 2)
        slow, other = (scenario.leader(), followers[0]) if role == "leader" else followers
        drain(scenario)
        hold = slow.node.base_dir / "hold-1"
        hold.touch()
        scenario.command(Op.HOLD, 0)
        relay(scenario, FEW)
        position = scenario.clients[0].read().position
        for member in scenario.cluster.members:
            await_journaled(member, position, [0] if member is slow else [0, 1])
        assert services.log_position(slow, 1) < position

        # A member that starts again meanwhile gets what it needs.
        other.kill()
        scenario.revive(other)
        relay(scenario, FEW)
        position = scenario.clients[0].read().position
        await_journaled(other, position, [0, 1])
        assert services.log_position(slow, 1) < position

        if role == "follower":
            scenario.resume()
            goal = position + LONG_BACKLOG
            wait_until(
                lambda: (scenario.leader().node.commit_position or 0) >= goal,
                RECOVERY_LIMIT_S,
                f"the others to come to {goal}",
            )
            assert services.log_position(slow, 1) < position
        hold.unlink()
        scenario.resume()
        scenario.recover(slow)
        finish(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("failing_services", [[1], [0, 1]], ids=["one", "both"])
def test_a_restart_after_a_failed_snapshot_replays_the_log(failing_services: list[int], scenarios: Scenarios) -> None:
    with scenarios(java_members=(), service_count=2) as scenario:
        scenario.expect_errors(FAILED_SNAPSHOT)
        leader = scenario.leader()
        members = scenario.cluster.members
        before = {member: snapshots_of(member) for member in members}
        switches = [
            member.node.base_dir / f"fail-on-snapshot{suffix(service_id)}"
            for member in members
            for service_id in failing_services
        ]
        for path in switches:
            path.touch()
        leader.node.cluster_tool("snapshot")
        wait_until(lambda: not any(path.exists() for path in switches), RECOVERY_LIMIT_S, "all snapshots to fail")
        for member in members:
            member.node.await_state(ModuleState.ACTIVE, RECOVERY_LIMIT_S)
        scenario.await_progress()
        for member in members:
            assert snapshots_of(member) == before[member]
            member.kill()
        scenario.recover(*members)
        for member in members:
            assert start_positions(member) == [latest_position(before[member])] * 2
        finish(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("failing_members", [1, 3], ids=["one", "all"])
def test_a_shutdown_goes_on_when_a_snapshot_fails(failing_members: int, scenarios: Scenarios) -> None:
    """One of two services fails its snapshot, on one member or on all: what has none replays more of the log."""
    with scenarios(java_members=(), service_count=2) as scenario:
        scenario.expect_errors(FAILED_SNAPSHOT)
        scenario.leader()
        members = scenario.cluster.members
        failing = members[:failing_members]
        before = {member: snapshots_of(member) for member in members}
        for member in failing:
            (member.node.base_dir / "fail-on-snapshot-1").touch()
        with suppress(ContainerError):  # our own word for it says that the leader has taken none
            scenario.cluster.shut_down()
        for member in members:
            scenario.await_end(member)
            assert [service.return_code for service in member.services] == [0, 0], member.node.report()
            assert scenario.has_error(member, "ArmedError: on_snapshot") == (member in failing)
            assert (snapshots_of(member) == before[member]) == (member in failing)
        latest = {member: latest_position(snapshots_of(member)) for member in members}
        scenario.recover(*members)
        for member in members:
            assert start_positions(member) == [latest[member]] * 2
        finish(scenario)


@pytest.mark.slow
def test_one_service_that_fails_to_start_ends_the_whole_member(scenarios: Scenarios) -> None:
    with scenarios(java_members=(), service_count=2) as scenario:
        scenario.expect_errors(FAILED_START)
        follower = scenario.follower(CHOICE)
        scenario.cluster.take_snapshot()
        follower.kill()
        (follower.node.base_dir / "fail-on-start-1").touch()
        scenario.revive(follower)
        healthy, failing = follower.services
        assert failing.wait(RECOVERY_LIMIT_S) == 1
        healthy.wait(END_LIMIT_S)
        for text in ("failed to start service=clustered-service-0-1 ", "failed to start clustered service"):
            assert scenario.has_error(follower, text), follower.node.report()
        scenario.await_progress()
        follower.kill()  # Java's process stays, without an agent in it.
        scenario.recover(follower)
        finish(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("action", ["snapshot", "shutdown"])
def test_services_start_again_from_a_snapshot_with_messages_pending(action: str, scenarios: Scenarios) -> None:
    """Service 1 of every member is behind when the snapshot is asked for, so that all that it sends until then comes
    while nothing is added to the log: those messages are in no log, but in the snapshot of each consensus module."""
    with scenarios(java_members=(), service_count=2) as scenario:
        members = scenario.cluster.members
        drain(scenario)
        holds = [member.node.base_dir / "hold-1" for member in members]
        for hold in holds:
            hold.touch()
        scenario.command(Op.HOLD, 0)
        relay(scenario, FEW)
        pending = FEW * len(scenario.clients)
        client = scenario.clients[0]
        wait_until(lambda: client.read().open_count == pending, RECOVERY_LIMIT_S, "only service 1 to be behind")
        before = {member: snapshots_of(member) for member in members}
        tool = start_tool(scenario.leader().node, action)
        for member in members:
            member.node.await_state(ModuleState.SNAPSHOT, LIMIT_S)
        for hold in holds:
            hold.unlink()
        if action == "shutdown":
            for member in members:
                scenario.await_end(member)
        else:
            what = "all members to take their snapshots"
            wait_until(lambda: all(snapshots_of(m) > before[m] for m in members), RECOVERY_LIMIT_S, what)
        tool.wait(LIMIT_S)
        for member in members:
            member.kill()
        found = services.check_pending(scenario.cluster)
        assert [len(found[service_id].messages) for service_id in (0, 1)] == [0, pending]
        latest = {latest_position(snapshots_of(member)) for member in members}
        assert len(latest) == 1
        scenario.resume()
        scenario.recover(*members)
        for member in members:
            assert start_positions(member) == [*latest] * 2
        finish(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("dying", ["node", "containers"])
def test_messages_of_services_survive_the_leader(dying: str, scenarios: Scenarios) -> None:
    with scenarios(java_members=(0,), service_count=3) as scenario:
        scenario.expect_errors(*FAULTS["kill_leader_node"].errors)
        for _round in range(3):
            leader = scenario.leader()
            request_relays(scenario, FEW)
            scenario.clients[0].await_acknowledged(FEW // 2, RECOVERY_LIMIT_S)
            if dying == "node":
                leader.node.kill()
            else:
                for service in leader.services:
                    service.kill()
            scenario.await_end(leader)
            scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
            scenario.await_progress()
            scenario.recover(leader)
        finish(scenario)
