"""Makes the plan of a failed run short: operations are left out as long as the same oracle finds something."""

from __future__ import annotations

from collections.abc import Callable

from container.testing.simulation.nodes.disk_world import DiskPlan, Result

SHRINK_RUNS = 400


def shorter[P: DiskPlan](
    result: Result[P], *, run: Callable[[P], Result[P]], most_runs: int = SHRINK_RUNS
) -> Result[P]:
    """The result of the shortest plan that was found with which the same oracle finds something.

    No clock limits it: a slow machine finds the same plan.

    Args:
        result: of a run that found something.
        run: runs a plan.
        most_runs: how many plans are run at most.
    """
    assert result.violation is not None
    best, oracle = result, result.violation.oracle
    runs = 0
    numbers = result.plan.numbers(result.last)
    size = len(numbers)
    while size >= 1:
        begin = 0
        while begin < len(numbers) and runs < most_runs:
            fewer = numbers[:begin] + numbers[begin + size :]
            runs += 1
            other = _try(run, result.plan.only(fewer))
            if other is not None and other.violation is not None and other.violation.oracle == oracle:
                best = other
                numbers = other.plan.numbers(other.last)
            else:
                begin += size
        size //= 2
    return best


def _try[P: DiskPlan](run: Callable[[P], Result[P]], plan: P) -> Result[P] | None:
    try:
        return run(plan)
    except Exception:  # without its beginnings an operation may be one that nobody thought of
        return None
