"""Three members, native ones or Java's with both containers, under load: who was away gets all that it missed.

What holds after each test is what holds after a fault: see ``test_cluster_faults.py``.
"""

from __future__ import annotations

import pytest

from container.testing.processes.local_cluster import CounterType, LocalMember
from container.testing.processes.process import wait_until
from tests.soak import checks
from tests.soak.checks import compare_snapshots, snapshots_of
from tests.soak.scenario import RECOVERY_LIMIT_S, Scenario, started_at
from tests.system.harness import Scenarios

# Of many fragments, up to the longest that a term of 1 MiB takes.
LONG_MESSAGES = range(10_000, 60_000)
# How long a member misses long messages.
LONG_S = 3.0
# Members that wait longer for each other than a busy machine lets them stand still: no election but those of the test.
PATIENT = {
    "aeron.cluster.leader.heartbeat.timeout": "10s",
    "aeron.cluster.startup.canvass.timeout": "20s",
    "aeron.cluster.election.timeout": "4s",
}
# What is appended and cannot be committed, by the clients' window.
TAIL_LENGTH = 4_096


def take_snapshot(scenario: Scenario) -> int:
    """Let all running members take a snapshot under load, and return its log position."""
    scenario.await_progress()
    checks.take_snapshot(scenario.cluster)
    return max(snapshots_of(scenario.leader()))


def elections_of(member: LocalMember) -> int | None:
    """How many elections there were since a member's start."""
    return member.node.counter_value(CounterType.ELECTION_COUNT)


@pytest.mark.slow
def test_a_member_that_was_down_takes_the_snapshots_that_it_missed(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        follower = scenario.our_follower()
        follower.kill()
        missed = [take_snapshot(scenario) for _snapshot in range(2)]
        scenario.recover(follower)
        assert started_at(follower) < missed[0]
        assert follower.node.snapshot_count == len(missed)
        for position in missed:
            compare_snapshots(scenario.cluster.members, position)
        scenario.finish()


@pytest.mark.slow
def test_two_wiped_members_get_everything_from_the_third(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        leader = scenario.leader()
        followers = scenario.cluster.followers
        for member in followers:
            member.kill()
        for member in followers:
            scenario.revive(member, wiped=True)
        assert scenario.cluster.await_leader(RECOVERY_LIMIT_S) is leader
        scenario.recover()
        assert [started_at(member) for member in followers] == [0, 0]

        scenario.cluster.abort()
        scenario.revive(leader)
        leader.node.await_started()  # Without it, two members without a log would be the majority.
        for member in followers:
            scenario.revive(member, wiped=True)
        assert scenario.cluster.await_leader(RECOVERY_LIMIT_S) is leader
        scenario.recover()
        assert [started_at(member) for member in followers] == [0, 0]
        scenario.finish()


@pytest.mark.slow
def test_a_wiped_member_takes_the_snapshots_of_the_log_that_it_replays(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        take_snapshot(scenario)
        scenario.await_progress()
        scenario.leader()
        scenario.cluster.shut_down()
        wiped = scenario.cluster.members[-1]
        others = scenario.cluster.members[:-1]
        taken = sorted(snapshots_of(others[0]))
        for member in others:
            scenario.revive(member)
        for member in others:
            member.node.await_started()
        scenario.revive(wiped, wiped=True)
        scenario.recover()
        assert [started_at(member) for member in others] == [taken[-1]] * len(others)
        assert started_at(wiped) == 0
        assert wiped.node.snapshot_count == len(taken)
        for position in taken[-2:]:
            compare_snapshots(scenario.cluster.members, position)
        scenario.finish()


@pytest.mark.slow
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
def test_a_member_that_missed_several_terms_catches_up(scenarios: Scenarios, wiped: bool) -> None:
    with scenarios() as scenario:
        late = scenario.let_ours_lead()
        late.kill()
        second = scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=late)
        scenario.await_progress()
        second.kill()
        scenario.revive(second)
        scenario.cluster.await_leader(RECOVERY_LIMIT_S)
        scenario.await_progress()
        scenario.revive(late, wiped=wiped)
        scenario.recover()
        assert (started_at(late) == 0) is wiped
        scenario.finish()


@pytest.mark.slow
def test_a_member_that_missed_an_election_arrives_in_mid_term(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        late = scenario.our_follower()
        others = [member for member in scenario.cluster.members if member is not late]
        late.kill()
        scenario.await_progress()
        for member in others:
            member.kill()
        for member in others:
            scenario.revive(member)
        scenario.cluster.await_leader(RECOVERY_LIMIT_S)
        scenario.await_progress()
        scenario.revive(late)
        scenario.recover()
        scenario.finish()


def restart_without_latest_snapshots(scenario: Scenario, count: int) -> None:
    """Invalidate the latest snapshots of all members, which have ended, and start them again."""
    for member in scenario.cluster.members:
        for _snapshot in range(count):
            result = member.node.cluster_tool("invalidate-latest-snapshot")
            assert result.return_code == 0, result.output
    for member in scenario.cluster.members:
        scenario.revive(member)
    scenario.recover()


@pytest.mark.slow
def test_an_invalid_snapshot_is_passed_over_for_the_one_before(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        members = scenario.cluster.members
        taken = [take_snapshot(scenario)]
        leader = scenario.leader()
        leader.kill()
        scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
        scenario.recover(leader)
        taken += [take_snapshot(scenario) for _snapshot in range(2)]
        written = {position: compare_snapshots(members, position) for position in taken}
        scenario.await_progress()
        for member in members:
            member.kill()
        restart_without_latest_snapshots(scenario, 2)
        assert [started_at(member) for member in members] == [taken[0]] * len(members)

        # Who replays a log takes its snapshots again.
        for position in taken:
            assert compare_snapshots(members, position) == written[position]
        scenario.cluster.shut_down()
        *_, before, at_the_end = sorted(snapshots_of(members[0]))
        last = compare_snapshots(members, at_the_end)
        restart_without_latest_snapshots(scenario, 1)
        assert [started_at(member) for member in members] == [before] * len(members)
        assert compare_snapshots(members, at_the_end) == last
        scenario.finish()


@pytest.mark.slow
def test_a_member_catches_up_while_long_messages_are_sent(scenarios: Scenarios) -> None:
    with scenarios(properties=PATIENT) as scenario:
        leader = scenario.leader()
        follower = scenario.our_follower()
        for client in scenario.clients:
            client.padding = LONG_MESSAGES
        scenario.await_progress()
        before = {member: elections_of(member) for member in scenario.cluster.members if member is not follower}
        follower.kill()
        scenario.pass_time(LONG_S)
        scenario.await_progress()
        scenario.recover(follower)
        for client in scenario.clients:
            client.padding = None
        assert scenario.leader() is leader
        assert {member: elections_of(member) for member in before} == before
        assert elections_of(follower) == 1
        scenario.finish()


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "resumed"])
def test_a_majority_that_is_behind_catches_up_with_one_member(scenarios: Scenarios, restarted: bool) -> None:
    with scenarios(properties=PATIENT) as scenario:
        leader = scenario.leader()
        followers = scenario.cluster.followers
        take_snapshot(scenario)
        for member in followers:
            member.node.pause()
        behind = max(member.node.append_position or 0 for member in followers)
        appended = wait_until(
            lambda: at if (at := leader.node.append_position or 0) > behind + TAIL_LENGTH else None,
            RECOVERY_LIMIT_S,
            f"the leader to append {TAIL_LENGTH} bytes after {behind}, which its followers do not get",
        )
        committed = leader.node.commit_position
        assert committed is not None
        assert committed < appended
        if restarted:
            for member in scenario.cluster.members:
                member.kill()
            for member in scenario.cluster.members:
                scenario.revive(member)
            assert scenario.cluster.await_leader(RECOVERY_LIMIT_S) is leader
        else:
            for member in followers:
                member.node.resume()
        scenario.recover(*followers)
        assert (leader.node.commit_position or 0) > appended
        scenario.finish()
