"""Three members, native ones or Java's with both containers, under load: each fault alone, and what must hold after it.

After each: every acknowledged command is in every member's state exactly once and in the same order, timers fired once,
sessions agree, all members report the same hash at the same log position, their snapshots are equal message by message,
and the error logs of our containers hold what the fault may cause and nothing else.
"""

from __future__ import annotations

import random

import pytest

from container.testing.processes import network
from tests.soak import disk, warp
from tests.soak.faults import FAULTS
from tests.soak.scenario import LIMITED_MEMBER_ID, Fault
from tests.system.harness import Scenarios

REASONS = {
    "network": network.unavailable_reason(),
    "disk": disk.unavailable_reason(),
    "warp": warp.unavailable_reason(),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_nothing_is_lost_and_nothing_diverges(fault: Fault, scenarios: Scenarios) -> None:
    if reason := REASONS.get(fault.needs or ""):
        pytest.skip(f"this machine cannot make the fault: {reason}")
    with scenarios(
        has_network=REASONS["network"] is None,
        has_small_disk=REASONS["disk"] is None,
        has_warps=REASONS["warp"] is None,
        separate_processes={LIMITED_MEMBER_ID},
    ) as scenario:
        scenario.inject(fault, random.Random(fault.name))
        scenario.check()
        assert not scenario.unexpected_errors()
        scenario.resume()
