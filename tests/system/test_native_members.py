"""Real members of ours alone and with upstream's: leaders of both kinds, deaths, pauses, restarts, changes of kind.

What holds after each test is what holds after a fault: see ``test_cluster_faults.py``.
"""

from __future__ import annotations

import random

import pytest

from container.testing.processes.local_archive import ArchiveKind
from container.testing.processes.local_cluster import CounterType, LocalMember
from tests.soak.checks import compare_snapshots, snapshots_of
from tests.soak.faults import FAULTS
from tests.soak.scenario import RECOVERY_LIMIT_S, Scenario, started_at
from tests.system.harness import Scenarios
from tests.system.test_cluster_catch_up import take_snapshot

MIXTURES = ("NNJ", "NJJ", "NNNJJ")
# How often a leader is killed at most until one of the kind that is wanted leads.
MOST_DEATHS = 12


for_each_leader = pytest.mark.parametrize(
    ("scenarios", "leader_kind"),
    [
        pytest.param("NNN", "native", id="NNN"),
        *(
            pytest.param(kinds, leader_kind, id=f"{kinds}-{leader_kind}", marks=pytest.mark.slow)
            for kinds in MIXTURES
            for leader_kind in ("native", "java")
        ),
    ],
    indirect=["scenarios"],
    scope="module",
)


def await_leader_of(scenario: Scenario, kind: ArchiveKind) -> LocalMember:
    """The leader, once one of this kind leads: another is killed and comes back."""
    for _death in range(MOST_DEATHS):
        leader = scenario.leader()
        if leader.node.consensus_module_kind == kind:
            return leader
        leader.kill()
        scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
        scenario.recover(leader)
    raise AssertionError(f"no {kind} member leads after {MOST_DEATHS} deaths of leaders")


def inject(scenario: Scenario, fault: str) -> None:
    """Let a fault of the soak happen, and check everything."""
    scenario.inject(FAULTS[fault], random.Random(fault))
    scenario.finish()


@for_each_leader
def test_a_leader_that_was_killed_comes_back_and_follows(scenarios: Scenarios, leader_kind: ArchiveKind) -> None:
    with scenarios() as scenario:
        leader = await_leader_of(scenario, leader_kind)
        term_id = leader.node.counter_value(CounterType.LEADERSHIP_TERM_ID) or 0
        leader.kill()
        successor = scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
        scenario.await_progress()
        assert (successor.node.counter_value(CounterType.LEADERSHIP_TERM_ID) or 0) > term_id
        scenario.recover(leader)
        assert started_at(leader) == max(snapshots_of(leader), default=0)
        scenario.finish()


@for_each_leader
def test_a_follower_that_was_killed_reads_what_it_has_missed(scenarios: Scenarios, leader_kind: ArchiveKind) -> None:
    with scenarios() as scenario:
        leader = await_leader_of(scenario, leader_kind)
        for follower in [member for member in scenario.cluster.members if member is not leader]:
            follower.kill()
            position = take_snapshot(scenario)
            scenario.await_progress()
            scenario.recover(follower)
            assert started_at(follower) < position
            compare_snapshots(scenario.cluster.members, position)
        scenario.finish()


@for_each_leader
def test_a_leader_that_stood_still_follows_the_next(scenarios: Scenarios, leader_kind: ArchiveKind) -> None:
    with scenarios() as scenario:
        leader = await_leader_of(scenario, leader_kind)
        term_id = leader.node.counter_value(CounterType.LEADERSHIP_TERM_ID) or 0
        inject(scenario, "pause_leader_node")
        assert (scenario.leader().node.counter_value(CounterType.LEADERSHIP_TERM_ID) or 0) > term_id


@for_each_leader
def test_all_members_that_were_killed_start_from_their_snapshot(scenarios: Scenarios, leader_kind: ArchiveKind) -> None:
    with scenarios() as scenario:
        await_leader_of(scenario, leader_kind)
        position = take_snapshot(scenario)
        inject(scenario, "kill_all")
        assert [started_at(member) for member in scenario.cluster.members] == [position] * len(scenario.cluster.members)


@for_each_leader
@pytest.mark.parametrize("end", ["shut_down", "abort"])
def test_members_end_in_step_and_start_again(scenarios: Scenarios, leader_kind: ArchiveKind, end: str) -> None:
    with scenarios() as scenario:
        await_leader_of(scenario, leader_kind)
        inject(scenario, end)
        assert {member.service.return_code for member in scenario.cluster.members} == {None}
        assert len({started_at(member) for member in scenario.cluster.members}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scenarios", ["NNN", *MIXTURES], indirect=True, scope="module")
def test_each_member_changes_its_kind_and_back(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        for _change in range(2):
            for member in scenario.cluster.members:
                other: ArchiveKind = "java" if member.node.consensus_module_kind == "native" else "native"
                member.kill()
                scenario.await_progress()
                member.node.become(driver=other, archive=other, consensus_module=other)
                scenario.recover(member)
            scenario.finish()
