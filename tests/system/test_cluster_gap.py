"""Three members under load whose services are seconds behind when their leader is killed, again and again.

What holds after each test is what holds after a fault: see ``test_cluster_faults.py``.
"""

from __future__ import annotations

import pytest

from container.testing.processes.local_cluster import LocalMember
from container.testing.processes.process import wait_until
from tests.soak.scenario import RECOVERY_LIMIT_S, Scenario
from tests.system.harness import Scenarios

ROUNDS = 3
PADDING = range(4_000, 8_000)
# How far services are behind, in bytes: as a receiver's window lets them, or further than a driver waits for a reader.
IN_THE_WINDOW, BEYOND_THE_WINDOW = 48 * 1024, 1024 * 1024
# A driver that takes a log away from a service that does not keep up, whatever is still to be read.
IMPATIENT_DRIVER = {
    "aeron.tether.subscriptions": "false",
    "aeron.untethered.window.limit.timeout": "1s",
    "aeron.untethered.linger.timeout": "1s",
}
REPLAYED = "the archive replays the log from position"


def replays(member: LocalMember) -> int:
    """How often a member's service got from its archive what it had missed of the log."""
    return member.service.err_path.read_text().count(REPLAYED)


def kill_leader_while_followers_are(scenario: Scenario, behind: int) -> list[LocalMember]:
    """One round: followers fall behind, the leader dies, the others elect and catch up. Returns the followers."""
    leader = scenario.leader()
    followers = [member for member in scenario.cluster.members if member is not leader]
    scenario.hold(behind, *followers)
    scenario.pass_time(2.5)  # Longer than the driver's patience with a slow reader.
    leader.kill()

    def elect() -> bool:
        return not any(member.node.election_is_closed for member in followers)

    wait_until(elect, RECOVERY_LIMIT_S, "the others to hold an election")
    scenario.release(*followers)
    scenario.recover(leader)
    return followers


@pytest.mark.parametrize(
    ("properties", "behind"),
    [
        pytest.param({}, IN_THE_WINDOW, marks=pytest.mark.slow, id="patient driver"),
        pytest.param(IMPATIENT_DRIVER, BEYOND_THE_WINDOW, marks=pytest.mark.slow, id="impatient driver"),
    ],
)
def test_services_that_are_behind_when_their_leader_is_killed_lose_nothing(
    scenarios: Scenarios, properties: dict[str, str], behind: int
) -> None:
    with scenarios(java_members=(), properties=properties) as scenario:
        replayed = 0
        for client in scenario.clients:
            client.padding = PADDING
        for _round in range(ROUNDS):
            before = {member: replays(member) for member in scenario.cluster.members}
            followers = kill_leader_while_followers_are(scenario, behind)
            replayed += sum(replays(member) - before[member] for member in followers)
        for client in scenario.clients:
            client.padding = None
        if properties:
            assert replayed > 0, "no log was gone before it was read"
        scenario.finish()
