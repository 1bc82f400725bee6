"""``./run sim --node``: plans of nodes by the thousand, and the shortest part of one that finds the same."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim import archive_run
from tests.sim.node_oracle import Violation
from tests.sim.node_world import Result, expand, run


def run_seed(seed: int, keep: Sequence[int] | None = None) -> Result:
    """Run a seed, or those of its operations alone."""
    plan = expand(seed)
    return run(plan if keep is None else plan.only(keep))


def shrink(result: Result) -> Result:
    """The result of the shortest plan that was found with which the same oracle finds something."""
    shorter: Result = archive_run.shrink(result, run=run)
    return shorter


def report(result: Result, seed: int) -> str:
    """What was found, how to see it again, and what had happened."""
    violation = result.violation
    assert isinstance(violation, Violation)
    plan = result.plan
    keep = ",".join(str(each.number) for each in plan.operations if each.number <= result.last)
    lines = [
        str(violation),
        f"level {plan.level}, {plan.services} services, window {plan.window}, {plan.timer_service}",
        f"run it again: ./run sim --node --first {seed} --seeds 1 --keep {keep}",
        *(f"  {line}" for line in result.log[-60:]),
    ]
    return "\n".join(lines)


def work(first: int, end: int, step: int) -> None:
    """Run seeds and print a line for each, before and after it."""
    archive_run.work(first, end, step, run_seed=run_seed, shrink=shrink, report=report)
