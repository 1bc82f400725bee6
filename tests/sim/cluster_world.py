"""A whole cluster without Java, from one seed, whose services are those of node_world.py: their states are known."""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

from container.testing.simulation.nodes import cluster
from container.testing.simulation.nodes.cluster import NativePlan, expand
from container.testing.simulation.nodes.disk_world import Result, Step, run_world
from container.testing.simulation.nodes.node import SimulatedClient
from tests.sim.cluster_oracle import History, check_resources
from tests.sim.node_world import NumberedMessages, Recorder

REST_LIMIT_MS, REST_LOOK_MS = 20_000, 100
"""The longest time until members hold no more than they need at rest, and how often they are looked at."""
CALM_SEED, CALM_MS = 3, 5_000
"""A run without faults, and how long it rests until members are looked at."""


class Member(cluster.Member):
    """A node of the cluster."""

    cluster: World

    def _make_service(self, number: int) -> Recorder:
        return Recorder(self, number)

    def applied(self) -> list[int]:
        return [each.state.events for each in self.life.made]

    def check_state(self, recorder: Recorder) -> None:
        """A service has another state: it must be that of all services, members and lives after as many events."""
        if not self.life.storage.is_dead:
            who = f"service {recorder.number} of m{self.member_id}"
            self.cluster.history.check_state(who, recorder.state.events, recorder.state.digest)


class World(NumberedMessages, cluster.ClusterWorld):
    """One plan's run."""

    plan: NativePlan
    history: History
    members: list[Member]

    def _new_history(self) -> History:
        return History(self.plan.members, self.plan.services)

    def _new_member(self, member_id: int) -> Member:
        return Member(self, member_id)

    def on_answer(self, number: int, index: int) -> None:
        """A client was told which place its message has."""
        self.history.on_answer(number, index)
        self.stats["answers"] += 1

    def _send_text(self, client: SimulatedClient, kind: str, number: int, argument: int, filler: bytes = b"") -> None:
        self.history.on_sent(number)
        super()._send_text(client, kind, number, argument, filler)

    def _send_timer(self, client: SimulatedClient, draw: random.Random) -> None:
        self._send_text(client, "t", next(self.numbers), 5_000)

    def _serve(self, probe: SimulatedClient) -> None:
        number = next(self.numbers)
        self._send_text(probe, "p", number, 0)
        self.await_(lambda: number in self.history.answers, 5_000, "an answer")

    def _is_settled(self) -> bool:
        for member in self.members:
            if not member.is_up or member.value("commit_position") != self.history.end:
                return False
            if member.value("module_state") != cluster.ACTIVE:
                return False
            for recorder in member.life.made:
                state = recorder.state
                if (
                    state.events != len(self.history.log.digests) - 1
                    or state.timers
                    or len(state.sessions) != 1
                    or state.received != [state.offered] * self.plan.services
                ):
                    return False
        return True

    def _check_end(self) -> None:
        self.history.check_sent()
        self._check_rest()

    def _check_rest(self) -> None:
        """Members hold no more than those that had no faults."""
        expected = at_rest(self.plan.members, self.plan.services, self.plan.retained > 0)

        def differing() -> list[Member]:
            return [each for each in self.members if not each.is_up or each.resources() != expected[each.is_leading]]

        if not self.until(lambda: not differing(), REST_LIMIT_MS, REST_LOOK_MS):
            for member in differing():
                who = f"m{member.member_id}, which {'leads' if member.is_leading else 'follows'},"
                check_resources(who, member.resources(), expected[member.is_leading])


class CalmWorld(World):
    """A run whose members are looked at when they are at rest."""

    def _check_rest(self) -> None:
        self.run_for(CALM_MS)
        self.found = {each.is_leading: each.resources() for each in self.members}


@functools.cache
def at_rest(members: int, services: int, is_log_cut: bool) -> dict[bool, Counter[Any]]:
    """The resources that a follower and a leader without faults hold at rest, by whether they lead."""
    plan = expand(CALM_SEED, members)
    plan = replace(plan, services=services, retained=int(is_log_cut), operations=(Step(0, "connect", 0),))
    world = CalmWorld(plan)
    try:
        result = run_world(world)
    finally:
        world.close()
    if result.violation is not None:
        raise result.violation
    return world.found


def run(plan: NativePlan) -> Result[NativePlan]:
    """Run a plan; an error of the simulation itself is raised."""
    world = World(plan)
    try:
        return run_world(world)
    finally:
        world.close()
