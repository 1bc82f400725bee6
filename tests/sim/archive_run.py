"""``./run sim --archive``: plans of archives by the thousand, and the shortest part of one that finds the same."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.sim import disk_world
from tests.sim.archive_world import Plan, expand, run
from tests.sim.disk_world import Result

SHRINK_RUNS = 400
SHRINK_S = 40.0


def run_seed(seed: int, keep: Sequence[int] | None = None) -> Result[Plan]:
    """Run a seed, or those of its operations alone."""
    plan = expand(seed)
    return run(plan if keep is None else plan.only(keep))


def shrink(
    result: Any, *, run: Callable[[Any], Any] = run, most_runs: int = SHRINK_RUNS, limit_s: float = SHRINK_S
) -> Any:
    """The result of the shortest plan that was found with which the same oracle finds something.

    ``run`` runs a plan: of archives, or of what else has plans and results like theirs.
    """
    assert result.violation is not None
    best, oracle = result, result.violation.oracle
    runs, deadline = 0, time.monotonic() + limit_s
    numbers = [each.number for each in result.plan.operations if each.number <= result.last]
    size = len(numbers)
    while size >= 1:
        begin = 0
        while begin < len(numbers) and runs < most_runs and time.monotonic() < deadline:
            fewer = numbers[:begin] + numbers[begin + size :]
            runs += 1
            shorter = _try(run, result.plan.only(fewer))
            if shorter is not None and shorter.violation is not None and shorter.violation.oracle == oracle:
                best = shorter
                numbers = [each for each in fewer if each <= shorter.last]
            else:
                begin += size
        size //= 2
    return best


def _try(run: Callable[[Any], Any], plan: Any) -> Any:
    try:
        return run(plan)
    except Exception:  # without its beginnings an operation may be one that nobody thought of
        return None


def report(result: Result[Plan], seed: int) -> str:
    """What was found, how to see it again, and what had happened."""
    plan = result.plan
    settings = f"segments of {plan.segment_length}, checksum {plan.checksum}, window {plan.window}"
    return disk_world.report(result, seed, word="--archive", settings=settings)


def work(
    first: int,
    end: int,
    step: int,
    *,
    run_seed: Callable[[int], Any] = run_seed,
    shrink: Callable[[Any], Any] = shrink,
    report: Callable[[Any, int], str] = report,
) -> None:
    """Run seeds and print a line for each, before and after it."""
    logging.disable(logging.CRITICAL)
    for seed in range(first, end, step):
        print(seed, flush=True)
        result = run_seed(seed)
        failure = ""
        if result.violation is not None:
            print(json.dumps({"found": result.violation.oracle}), flush=True)
            failure = report(shrink(result), seed)
        outcome = {
            "digest": result.digest,
            "delivered": result.stats["messages"],
            "virtual_ms": 0.0,
            "reached": {"seeds with power cuts": int(result.stats["power cuts"] > 0), **result.stats},
            "failure": failure,
        }
        print(json.dumps(outcome), flush=True)
