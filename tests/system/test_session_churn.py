"""Many sessions, of which some come and go all the time, hold up neither each other nor a snapshot."""

from __future__ import annotations

import os
from typing import Any

import pytest

from benchmarks.churn import Churn
from benchmarks.node import COUNTERS_LENGTH, LIMITS
from container.testing.processes.native_node import NativeNode
from tests.limits import LIMIT_S
from tests.system.harness import ROOT


@pytest.mark.parametrize(
    ("sessions", "connects"),
    [(200, 200), pytest.param(3_000, 1_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
def test_a_snapshot_does_not_wait_for_sessions_that_come_and_go(sessions: int, connects: int) -> None:
    """On a node of one thread, all of whose parts have the driver's events about every session."""
    settings: dict[str, dict[str, Any]] = {
        "driver": {"counters_buffer_length": COUNTERS_LENGTH},
        "consensus_module": LIMITS,
    }
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with NativeNode("examples.echo_service:EchoService", settings=settings, environment=environment) as node:
        node.start().await_leader(LIMIT_S)
        with Churn(node) as churn:
            churn.open(sessions)
            found = churn.run(connects, rate=200.0)
        # Not a time, as the machine may be busy: sessions connect meanwhile as quickly as it lets them.
        assert found["snapshot_connects"] <= 32
        assert node.errors() == {}
