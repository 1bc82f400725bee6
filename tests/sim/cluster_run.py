"""``./run sim --cluster``: plans of clusters by the thousand, and the shortest part of one that finds the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from container.testing.simulation.nodes.cluster import NativePlan, expand, smallest
from container.testing.simulation.nodes.disk_world import Result
from tests.sim import archive_run
from tests.sim.cluster_world import run


def run_seed(seed: int, keep: Sequence[int] | None = None, *, members: int = 0) -> Result[NativePlan]:
    """Run a seed, or those of its operations alone; with so many members, or as many as it draws."""
    plan = expand(seed, members)
    return run(plan if keep is None else plan.only(keep))


def shrink(result: Result[NativePlan]) -> Result[NativePlan]:
    """The result of the smallest plan that was found with which the same oracle finds something."""
    return smallest(result, run=run)


def report(result: Result[NativePlan], seed: int) -> str:
    """What was found, how to see it again, and what had happened."""
    plan = result.plan
    settings = (
        f"{plan.members} members, {plan.services} services, {plan.timer_service}, "
        f"latency {plan.latency_us[0]} to {plan.latency_us[1]} µs, turns {plan.turn_us[0]} to {plan.turn_us[1]} µs"
    )
    word = "--cluster" if plan.members == expand(seed).members else f"--cluster --members {plan.members}"
    return archive_run.report_of(result, seed, word=word, settings=settings)


def work(first: int, end: int, step: int, *, members: int = 0) -> None:
    """Run seeds and print a line for each, before and after it."""
    archive_run.work(first, end, step, run_seed=partial(run_seed, members=members), shrink=shrink, report=report)
