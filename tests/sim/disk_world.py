"""What simulations over a disk have in common: plans, crashes, calls of the disk that fail, and the run of a plan."""

from __future__ import annotations

import errno
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from container.testing.memory.manual_time import ManualClock
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from container.testing.simulation.virtual_time import Draws
from tests.sim.archive_oracle import Violation

SECTOR = 512


@dataclass(frozen=True)
class Operation:
    """One step of a plan."""

    number: int
    kind: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class DiskPlan:
    """All that a run depends on."""

    seed: int
    level: int
    operations: tuple[Operation, ...]

    def only(self, numbers: Sequence[int]) -> Self:
        """The plan without the other operations."""
        wanted = set(numbers)
        kept = tuple(each for each in self.operations if each.number in wanted)
        return replace(self, operations=kept)


@dataclass
class Result[P: DiskPlan]:
    """What came of a plan."""

    plan: P
    stats: Counter[str]
    log: list[str]
    violation: Violation | None = None
    last: int = -1
    """The operation that it ended with."""
    digest: int = 0


class DiskWorld[P: DiskPlan](ABC):
    """One plan's run over a simulated disk, whose calls crash and fail as the plan says."""

    CAPACITY: ClassVar[int]
    """Bytes of the disk."""
    FAULTS: ClassVar[Sequence[tuple[str, int]]]
    """Calls of the disk, and how they may fail."""
    MOST_CALLS: ClassVar[int]
    """Before the one that fails there are fewer than so many of its kind."""

    def __init__(self, plan: P) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.draws = Draws(plan.seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk(on_latency=self._on_latency, capacity=self.CAPACITY, stream=plan.seed)
        self.log: list[str] = []
        self.stats: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.is_over = False
        self.calls_left = -1
        self.is_power_cut = False
        self.is_faulty = False
        self.is_uncertain = False
        self.fault: tuple[str, int, int, int] | None = None
        self.processes = 0
        self.failed_force_of: int | None = None

    @abstractmethod
    def boot(self) -> None:
        """The first start."""

    @abstractmethod
    def do(self, operation: Operation) -> None:
        """Do one step of the plan."""

    @abstractmethod
    def finish(self) -> None:
        """Let all be well again, and look at what is left."""

    @property
    @abstractmethod
    def digest(self) -> int:
        """Of all that was seen: equal for runs that did the same."""

    @abstractmethod
    def _crash(self) -> None:
        """The process ends here, whatever it is about to do; what it does yet has no effect."""

    @abstractmethod
    def _do_crash(self, draw: random.Random, *, is_power_cut: bool) -> None:
        """Kill the process or cut the power, now or at one of the next calls of the disk."""

    def _on_latency(self, kind: str, length: int) -> None:
        if self.calls_left > 0:
            self.calls_left -= 1
            if self.calls_left == 0:
                self._crash()
                return
        if self.fault is not None and self.fault[0] == kind:
            name, error, before, written = self.fault
            self.fault = (name, error, before - 1, written)
            if before == 0:
                self.log.append(f"  {kind} fails: {errno.errorcode[error]}")
                self.disk.fail(kind, error, written=written, whole_sectors=True)
                self.fault, self.is_faulty = None, True
                if "force" in kind:
                    self.failed_force_of = self.processes
                self.stats["faults"] += 1

    def _end_process(self, storage: SimulatedStorage) -> None:
        """The power is cut, or the process whose storage it is was killed."""
        self.log.append("cut power" if self.is_power_cut else "kill")
        self.stats["power cuts" if self.is_power_cut else "kills"] += 1
        if self.is_power_cut:
            self.disk.cut_power(self.draws)
            # What a force that failed has left in the system's memory, the next process takes for what is on the disk.
            is_cache_wrong = self.failed_force_of not in (None, self.processes)
            self.is_uncertain = self.is_uncertain or self.plan.level == 0 or is_cache_wrong
            self.failed_force_of = None
        else:
            storage.kill(self.draws)

    def _arm_fault(self, draw: random.Random) -> None:
        kind, error = draw.choice(self.FAULTS)
        # A system writes whole sectors of what it does not write whole.
        self.fault = (kind, error, draw.randrange(self.MOST_CALLS), draw.randrange(7) * SECTOR)

    def _do_fault(self, draw: random.Random) -> None:
        if self.fault is None:
            self._arm_fault(draw)

    def _do_kill(self, draw: random.Random) -> None:
        self._do_crash(draw, is_power_cut=False)

    def _do_cut(self, draw: random.Random) -> None:
        self._do_crash(draw, is_power_cut=True)

    def run(self) -> Result[P]:
        """Run the plan; an error of the simulation itself is raised."""
        last = -1
        try:
            self.boot()
            for operation in self.plan.operations:
                last = operation.number
                self.do(operation)
                if self.is_over:
                    break
            self.finish()
        except Violation as violation:
            return Result(self.plan, self.stats, self.log, violation, last)
        return Result(self.plan, self.stats, self.log, last=last, digest=self.digest)


def report(result: Result[Any], seed: int, *, word: str, settings: str) -> str:
    """What was found, how to see it again, and what had happened; ``word`` is that of ``./run sim``."""
    violation = result.violation
    assert isinstance(violation, Violation)
    plan = result.plan
    keep = ",".join(str(each.number) for each in plan.operations if each.number <= result.last)
    lines = [
        str(violation),
        f"level {plan.level}, {settings}",
        f"run it again: ./run sim {word} --first {seed} --seeds 1 --keep {keep}",
        *(f"  {line}" for line in result.log[-60:]),
    ]
    return "\n".join(lines)
