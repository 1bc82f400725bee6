"""Histories of simulated clients: those of a node, from crash to crash, or of a cluster, in virtual time.

Each message of a client adds 1 to the length of the service's list of messages, and is answered with its place there:
that length is the register.
"""

from __future__ import annotations

from container.testing.simulation.nodes import cluster
from container.testing.simulation.nodes.cluster import NativePlan
from container.testing.simulation.nodes.disk_world import run_world
from container.testing.simulation.nodes.node import NodePlan, SimulatedClient
from tests.linearizable.history import History, Operation
from tests.sim import cluster_world
from tests.sim.node_world import World, expand


class RecordedWorld(World):
    """A simulated node whose clients' messages are recorded."""

    def __init__(self, plan: NodePlan) -> None:
        super().__init__(plan)
        self.history = History(lambda: self.clock.now_ns)
        self._asked: dict[int, Operation] = {}

    def on_sent(self, client: SimulatedClient, number: int) -> None:
        """Record the call."""
        super().on_sent(client, number)
        self._asked[number] = self.history.begin(client.number, f"node {self.plan.seed}", "add", 1)

    def on_answer(self, number: int, index: int) -> None:
        """Record the answer, once."""
        super().on_answer(number, index)
        if self._asked[number].return_ns is None:
            self.history.end(self._asked[number], index + 1)


def record(seed: int) -> History | None:
    """Run a seed of ``./run sim --node``, and return the history of its clients.

    None where a power cut may have taken what was answered, as at sync level 0, or after a disk has failed.

    Raises:
        AssertionError: an oracle of the simulation has found something.
    """
    world = RecordedWorld(expand(seed))
    result = world.run()
    assert result.violation is None, f"seed {seed}: {result.violation}"
    return None if world.is_uncertain else world.history


class RecordedCluster(cluster_world.World):
    """A simulated cluster whose clients' messages are recorded."""

    def __init__(self, plan: NativePlan) -> None:
        super().__init__(plan)
        self.recorded = History(lambda: self.time.now_ns)
        self._asked: dict[int, Operation] = {}

    def on_sent(self, client: SimulatedClient, number: int) -> None:
        """Record the call."""
        super().on_sent(client, number)
        self._asked[number] = self.recorded.begin(client.number, f"cluster {self.plan.seed}", "add", 1)

    def on_answer(self, number: int, index: int) -> None:
        """Record the answer, once."""
        super().on_answer(number, index)
        if self._asked[number].return_ns is None:
            self.recorded.end(self._asked[number], index + 1)


def record_cluster(seed: int) -> History:
    """Run a seed of ``./run sim --cluster``, and return the history of its clients.

    Raises:
        AssertionError: an oracle of the simulation has found something.
    """
    world = RecordedCluster(cluster.expand(seed))
    try:
        result = run_world(world)
    finally:
        world.close()
    assert result.violation is None, f"seed {seed}: {result.violation}"
    return world.recorded
