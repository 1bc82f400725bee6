"""Three members, native ones or Java's with both containers, under load: leaders that change, and clusters that end.

What holds after each test is what holds after a fault: see ``test_cluster_faults.py``.
"""

from __future__ import annotations

import pytest

from container.api import Role
from container.testing.processes.local_cluster import CounterType, LocalMember
from container.testing.processes.process import wait_until
from tests.soak import checks
from tests.soak.ledger import Op
from tests.soak.scenario import RECOVERY_LIMIT_S, Scenario, roles
from tests.system.harness import Scenarios

# Enough that a member that comes back replays for a while.
MANY_MESSAGES = 2_000


def await_roles(member: LocalMember, expected: list[Role]) -> None:
    """Wait until these are the last roles that a member's service was told."""
    wait_until(
        lambda: roles(member)[-len(expected) :] == expected,
        RECOVERY_LIMIT_S,
        f"the service of member {member.member_id} to be told {expected}, after {roles(member)}",
    )


def leadership_term_id(member: LocalMember) -> int:
    """The term in which a member is."""
    value = member.node.counter_value(CounterType.LEADERSHIP_TERM_ID)
    assert value is not None
    return value


def await_successor(scenario: Scenario, leader: LocalMember) -> LocalMember:
    """Wait until another member leads and clients go on."""
    successor = scenario.cluster.await_leader(RECOVERY_LIMIT_S, other_than=leader)
    scenario.await_progress()
    return successor


def await_return(scenario: Scenario, leader: LocalMember, other: LocalMember) -> None:
    """Wait until a member that had lost its leadership leads again, and all are whole."""
    assert scenario.cluster.await_leader(RECOVERY_LIMIT_S) is leader
    await_roles(leader, [Role.LEADER, Role.FOLLOWER, Role.LEADER])
    scenario.await_progress()
    scenario.recover(other)


@pytest.mark.slow  # 22 s, most of them a timeout of the consensus module
def test_a_service_that_terminates_ends_every_member(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        scenario.expect_errors(r"ClusterTermination: ERROR - unexpected termination")
        for member in scenario.cluster.members:
            (member.node.base_dir / "terminate").touch()
        for client in scenario.clients:
            client.drain()  # All members know all of the log, so that none has to be told by one that has ended.
        scenario.clients[0].request(Op.TERMINATE, 0)
        for member in scenario.cluster.members:
            scenario.await_end(member)
            assert not (member.node.base_dir / "terminate").exists()
            assert not scenario.is_ours(member) or member.service.return_code == 1
        scenario.resume()
        scenario.recover(*scenario.cluster.members)
        scenario.finish()


@pytest.mark.slow
def test_an_abort_with_a_member_missing_ends_the_others(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        scenario.let_ours_lead()
        others = (member for member in scenario.cluster.members if not scenario.is_ours(member))
        missing = next(others, scenario.cluster.followers[-1])
        missing.kill()
        scenario.await_progress()
        scenario.cluster.abort()
        codes = [member.service.return_code for member in scenario.cluster.members if member is not missing]
        assert codes == [0, 0], scenario.cluster.report()
        scenario.recover(*scenario.cluster.members)
        scenario.finish()


@pytest.mark.slow
def test_a_leader_without_followers_follows_and_leads_again(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        leader = scenario.let_ours_lead()
        pid = leader.service.pid
        one, other = scenario.cluster.followers
        one.kill()
        scenario.await_progress()  # What is acknowledged from here on, this one does not have: it cannot lead.
        checks.drain(scenario.clients)
        other.kill()
        await_roles(leader, [Role.LEADER, Role.FOLLOWER])
        scenario.resume()
        scenario.revive(one)
        await_return(scenario, leader, other)

        # What a leader appends alone is not committed: its service does not come to the end of the log, and does not
        # follow, as in Java's container, before another member is back; that one has lost what it had this time.
        one.kill()
        scenario.await_progress()  # What is acknowledged from here on, this one does not have: it cannot lead.
        other.kill()
        wait_until(lambda: not leader.is_leader, RECOVERY_LIMIT_S, f"{leader} to lose its leadership")
        scenario.revive(one, wiped=True)
        await_return(scenario, leader, other)
        assert leader.service.pid == pid
        scenario.finish()


@pytest.mark.slow
def test_leaders_that_die_one_after_the_other(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        first_term = leadership_term_id(scenario.let_ours_lead())
        for is_orderly in (False, True, False):
            leader = scenario.leader()
            if is_orderly:
                leader.service.stop(scenario.end_limit_s(leader))
                scenario.await_end(leader)
            else:
                leader.kill()
            successor = await_successor(scenario, leader)
            await_roles(successor, [Role.LEADER])
            scenario.recover(leader)
        assert leadership_term_id(scenario.leader()) >= first_term + 3
        scenario.finish()


@pytest.mark.slow
def test_two_leaders_that_died_come_back_together(scenarios: Scenarios) -> None:
    with scenarios() as scenario:
        scenario.await_progress(MANY_MESSAGES)
        first = scenario.let_ours_lead()
        first.kill()
        second = await_successor(scenario, first)
        second.kill()
        (third,) = (member for member in scenario.cluster.members if member.is_running)
        for member in (first, second):
            scenario.revive(member)
        scenario.recover()
        assert third.is_running
        scenario.finish()
