"""Plans for clusters of whole nodes with a user's service: drawn from a seed, or given as data."""

from __future__ import annotations

from dataclasses import replace

from container.common.values import shown
from container.errors import ConfigurationError
from container.testing.simulation.nodes.cluster import KINDS, MORE_KINDS, NativePlan, expand
from container.testing.simulation.nodes.disk_world import Step
from container.testing.simulation.plan import check_number, check_size

SIZES = (3, 5, 7)
"""How many members such a cluster may have."""
_MOST_STEPS = 100_000


def expand_native(seed: int, *, members: int | None = None, steps: int | None = None) -> NativePlan:
    """Draw a plan from a seed; of so many members and steps, or as the seed draws.

    Raises:
        ConfigurationError: an argument is wrong.
    """
    check_size(seed, 1)
    if members is not None:
        _check_members(members)
    if steps is not None:
        check_number("operations", steps, 0, _MOST_STEPS)
    return replace(expand(seed, members or 0, steps=steps), services=1)


def check_native(plan: object) -> None:
    """Refuse a plan that cannot be run; raise ConfigurationError."""
    if not isinstance(plan, NativePlan):
        raise ConfigurationError(f"plan={shown(plan)}: must be a NativePlan with consensus='native'")
    check_size(plan.seed, 1)
    _check_members(plan.members)
    check_number("services", plan.services, 1, 1)
    check_number("level", plan.level, 0, 2)
    for index, step in enumerate(plan.operations):
        if not isinstance(step, Step) or step.kind not in {*KINDS, *MORE_KINDS}:
            kinds = ", ".join(sorted({*KINDS, *MORE_KINDS}))
            raise ConfigurationError(f"operations[{index}]={shown(step)}: must be a Step of one of the kinds {kinds}")
        check_number(f"operations[{index}].seed", step.seed, 0, 2**64 - 1)


def _check_members(members: object) -> None:
    if type(members) is not int or members not in SIZES:
        allowed = ", ".join(map(str, SIZES[:-1]))
        raise ConfigurationError(f"members={shown(members)}: must be {allowed} or {SIZES[-1]} with consensus='native'")
