"""``./run sim --archive``: plans of archives by the thousand, and the shortest part of one that finds the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from container.testing.simulation.nodes.disk_world import Result
from container.testing.simulation.nodes.recorded import Violation
from container.testing.simulation.nodes.shorter import shorter
from tests.sim.archive_world import Plan, expand, run


def run_seed(seed: int, keep: Sequence[int] | None = None) -> Result[Plan]:
    """Run a seed, or those of its operations alone."""
    plan = expand(seed)
    return run(plan if keep is None else plan.only(keep))


def shrink(result: Result[Plan]) -> Result[Plan]:
    """The result of the shortest plan that was found with which the same oracle finds something."""
    return shorter(result, run=run)


def report_of(result: Result[Any], seed: int, *, word: str, settings: str) -> str:
    """What was found, how to see it again, and what had happened; ``word`` is that of ``./run sim``."""
    violation = result.violation
    assert isinstance(violation, Violation)
    plan = result.plan
    keep = ",".join(map(str, plan.numbers(result.last)))
    lines = [
        str(violation),
        f"level {plan.level}, {settings}",
        f"run it again: ./run sim {word} --first {seed} --seeds 1 --keep {keep}",
        *(f"  {line}" for line in result.log[-60:]),
    ]
    return "\n".join(lines)


def report(result: Result[Plan], seed: int) -> str:
    """What was found, how to see it again, and what had happened."""
    plan = result.plan
    settings = f"segments of {plan.segment_length}, checksum {plan.checksum}, window {plan.window}"
    return report_of(result, seed, word="--archive", settings=settings)


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
