"""``./run sim --node``: plans of nodes by the thousand, and the shortest part of one that finds the same."""

from __future__ import annotations

from collections.abc import Sequence

from container.testing.simulation.nodes.disk_world import Result
from container.testing.simulation.nodes.node import NodePlan
from container.testing.simulation.nodes.shorter import shorter
from tests.sim import archive_run
from tests.sim.node_world import expand, run


def run_seed(seed: int, keep: Sequence[int] | None = None) -> Result[NodePlan]:
    """Run a seed, or those of its operations alone."""
    plan = expand(seed)
    return run(plan if keep is None else plan.only(keep))


def shrink(result: Result[NodePlan]) -> Result[NodePlan]:
    """The result of the shortest plan that was found with which the same oracle finds something."""
    return shorter(result, run=run)


def report(result: Result[NodePlan], seed: int) -> str:
    """What was found, how to see it again, and what had happened."""
    plan = result.plan
    settings = (
        f"{plan.services} services, window {plan.window}, {plan.timer_service}, {plan.retained} snapshots retained"
    )
    return archive_run.report_of(result, seed, word="--node", settings=settings)


def work(first: int, end: int, step: int) -> None:
    """Run seeds and print a line for each, before and after it."""
    archive_run.work(first, end, step, run_seed=run_seed, shrink=shrink, report=report)
