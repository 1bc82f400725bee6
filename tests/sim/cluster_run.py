"""``./run sim --cluster``: plans of clusters by the thousand, and the shortest part of one that finds the same."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim import archive_run, disk_world
from tests.sim.cluster_world import Plan, expand, run
from tests.sim.disk_world import Result


def run_seed(seed: int, keep: Sequence[int] | None = None) -> Result[Plan]:
    """Run a seed, or those of its operations alone."""
    plan = expand(seed)
    return run(plan if keep is None else plan.only(keep))


def shrink(result: Result[Plan]) -> Result[Plan]:
    """The result of the shortest plan that was found with which the same oracle finds something."""
    shorter: Result[Plan] = archive_run.shrink(result, run=run)
    return shorter


def report(result: Result[Plan], seed: int) -> str:
    """What was found, how to see it again, and what had happened."""
    plan = result.plan
    settings = (
        f"{plan.members} members, {plan.services} services, {plan.timer_service}, "
        f"latency {plan.latency_us[0]} to {plan.latency_us[1]} µs, turns {plan.turn_us[0]} to {plan.turn_us[1]} µs"
    )
    return disk_world.report(result, seed, word="--cluster", settings=settings)


def work(first: int, end: int, step: int) -> None:
    """Run seeds and print a line for each, before and after it."""
    archive_run.work(first, end, step, run_seed=run_seed, shrink=shrink, report=report)
