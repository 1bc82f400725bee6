"""A cluster simulated in one thread, from one seed: real agents, virtual time, faults; see ``docs/testing.md``.

:func:`simulate` runs one. A :class:`Plan` is all that a run depends on: :func:`expand` draws one from a seed, a test
may write one by hand, and a failure comes with a short one. It needs greenlet (the extra ``testing``).
"""

from container.testing.simulation.nodes.cluster import NativePlan
from container.testing.simulation.nodes.disk_world import Step
from container.testing.simulation.plan import (
    LEADER,
    AskForAck,
    CloseSession,
    Crash,
    CutMessage,
    CutOff,
    Elect,
    FailOffers,
    FailRequests,
    FailSnapshot,
    Fault,
    LoseImages,
    OpenSession,
    Operation,
    Pause,
    Plan,
    Send,
    SendFromService,
    SlowModule,
    SnapshotFault,
    Start,
    Stop,
    TakeSnapshot,
)
from container.testing.simulation.run import Checks, Simulation, SimulationFailure, simulate
from container.testing.simulation.simulated_cluster import Finding
from container.testing.simulation.swarm import expand

__all__ = [
    "LEADER",
    "AskForAck",
    "Checks",
    "CloseSession",
    "Crash",
    "CutMessage",
    "CutOff",
    "Elect",
    "FailOffers",
    "FailRequests",
    "FailSnapshot",
    "Fault",
    "Finding",
    "LoseImages",
    "NativePlan",
    "OpenSession",
    "Operation",
    "Pause",
    "Plan",
    "Send",
    "SendFromService",
    "Simulation",
    "SimulationFailure",
    "SlowModule",
    "SnapshotFault",
    "Start",
    "Step",
    "Stop",
    "TakeSnapshot",
    "expand",
    "simulate",
]
