"""The common part of simulations over a disk: plans, crashes, calls of the disk that fail, and the run of a plan."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import itertools
import logging
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

from container.testing.memory.manual_time import ManualClock
from container.testing.simulation.disk import SimulatedDisk, SimulatedStorage
from container.testing.simulation.nodes.recorded import Violation
from container.testing.simulation.virtual_time import Draws

MS = 1_000_000
SECTOR, PAGE = 512, 4096
CAPACITY = 1 << 40
"""Bytes of the disk while it is not full."""
ARCHIVE_ID = 42
PROGRAMMING_ERRORS = (TypeError, AttributeError, NameError, IndexError, KeyError, AssertionError)
"""Errors that no failure of a disk excuses."""


@dataclass(frozen=True)
class Step:
    """One step of a plan."""

    number: int
    kind: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class DiskPlan:
    """All that a run depends on."""

    seed: int
    level: int
    window: int
    """The window of a publication, in bytes."""
    segment_length: int
    operations: tuple[Step, ...]

    def numbers(self, last: int) -> list[int]:
        """Those of the operations up to the one with the number ``last``, in the order in which they are done."""
        numbers = [each.number for each in self.operations]
        return numbers[: numbers.index(last) + 1] if last in numbers else []

    def only(self, numbers: Sequence[int]) -> Self:
        """The plan without the other operations."""
        wanted = set(numbers)
        kept = tuple(each for each in self.operations if each.number in wanted)
        return replace(self, operations=kept)


def swarm(draw: random.Random, kinds: Mapping[str, float], always: Sequence[str]) -> dict[str, float]:
    """Weights of a plan's kinds of operations: it has some often, and others not at all."""
    return {
        kind: weight if kind in always else weight * draw.choice([0.0, 1.0, 1.0, 3.0]) for kind, weight in kinds.items()
    }


def operations(draw: random.Random, weights: Mapping[str, float], first: str, count: int) -> Iterator[Step]:
    """So many operations by their weights, behind the first; each has its seed drawn when it is taken."""
    kinds = draw.choices(list(weights), list(weights.values()), k=count)
    return (Step(number, kind, draw.getrandbits(48)) for number, kind in enumerate([first, *kinds]))


@dataclass
class Result[P: DiskPlan]:
    """The result of a plan."""

    plan: P
    stats: Counter[str]
    log: list[str]
    violation: Violation | None = None
    last: int = -1
    """The operation that it ended with."""
    digest: int = 0


class Machine[P: DiskPlan](ABC):
    """A machine with a simulated disk, whose calls crash and fail as the plan says."""

    FAULTS: ClassVar[Sequence[tuple[str, int]]]
    """Calls of the disk, and how they may fail."""
    MOST_CALLS: ClassVar[int]
    """Fewer than so many calls of a kind come before the one that fails."""

    def __init__(self, plan: P, directory: str) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.draws = Draws(plan.seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk(on_latency=self._on_latency, capacity=CAPACITY, stream=plan.seed)
        self.log: list[str] = []
        self.stats: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.is_over = False
        self.calls_left = self.turns_left = -1
        self.is_power_cut = False
        self.is_faulty = False
        self.is_uncertain = False
        self.fault: tuple[str, int, int, int] | None = None
        self.processes = 0
        self.failed_force_of: int | None = None
        self.tokens = itertools.count(1)
        self.storage: SimulatedStorage = self.disk.process()
        """The storage of the process that runs, or ran last."""
        self.storage.make_directory(directory)
        self.storage.force_directory("/")
        self.storage.kill(self.draws)

    @abstractmethod
    def _crash(self) -> None:
        """The process ends here, whatever it is about to do; what it does yet has no effect."""

    @abstractmethod
    def _recover(self) -> None:
        """The life ends that a crash has ended, and the next one begins."""

    @abstractmethod
    def _arm_crash(self, draw: random.Random) -> None:
        """Let a crash come soon."""

    @contextlib.contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Keep calls of the disk out of the run: none of them crashes or fails."""
        on_latency, self.disk.on_latency = self.disk.on_latency, None
        yield
        self.disk.on_latency = on_latency

    def _archive_settings(self) -> dict[str, Any]:
        """Settings that an archive has in each world."""
        return {
            "process_id": 42,
            "first_session_id": self.random.randrange(1 << 31),
            "next_token": lambda: next(self.tokens),
            "environ": {},
            "archive_id": ARCHIVE_ID,
            "control_channel": "aeron:udp?endpoint=localhost:8010",
            "replication_channel": "aeron:udp?endpoint=localhost:0",
            "threading_mode": "INVOKER",
            "segment_file_length": self.plan.segment_length,
            "file_sync_level": self.plan.level,
            "catalog_file_sync_level": self.plan.level,
            "catalog_capacity": 1 << 14,
            "file_io_max_length": 1 << 16,
            "torn_frame": "cut" if self.is_uncertain else "refuse",
        }

    def _error_handler(self, storage: SimulatedStorage) -> Callable[[BaseException], None]:
        """Make the error handler of the process whose storage it is."""

        def on_error(error: BaseException) -> None:
            if not storage.is_dead:  # what a process that is gone would report, nobody reads
                self.errors.append(error)

        return on_error

    def _release(self, storage: SimulatedStorage, mark_file: str) -> None:
        """Free a mark file as an operator does, after a start was killed between its claim and its first sign of life.

        Such a start looks like one that is alive.
        """
        file = storage.open_file(mark_file, 0)
        file.write(bytes(8), 16)
        file.force(with_metadata=True)

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
            # The next process takes pages that a failed force has left in the system's memory for the disk's contents.
            is_cache_wrong = self.failed_force_of not in (None, self.processes)
            self.is_uncertain = self.is_uncertain or self.plan.level == 0 or is_cache_wrong
            self.failed_force_of = None
        else:
            storage.kill(self.draws)

    def _arm_fault(self, draw: random.Random) -> None:
        kind, error = draw.choice(self.FAULTS)
        # A system writes whole sectors of what it does not write whole.
        self.fault = (kind, error, draw.randrange(self.MOST_CALLS), draw.randrange(7) * SECTOR)

    def _crashes_of_a_start(self, chance: float, calls: Sequence[int]) -> list[tuple[int, bool]]:
        """Crashes in the middle of starts: calls of the disk before each, and whether power is cut."""
        draw = self.random
        crashes = []
        while draw.random() < chance:
            is_cut = draw.random() < (0.5 if self.plan.level else 0.1)
            crashes.append((draw.randint(1, draw.choice(calls)), is_cut))
        return crashes

    def _do_crash(self, draw: random.Random, *, is_power_cut: bool) -> None:
        """Let a crash come soon, or at once if there was an earlier one to come."""
        if self.calls_left > 0 or self.turns_left > 0:
            self._crash()
            self._recover()
            return
        self.is_power_cut = is_power_cut
        self._arm_crash(draw)
        self.disk.longest_write = draw.choice([0, 0, 0, 512, 5000])

    def _do_fill_disk(self, draw: random.Random) -> None:
        with self._uncounted():
            used = self.disk.capacity - self.storage.usable_space("/")
        self.disk.capacity, self.is_faulty = used + draw.randrange(8) * PAGE, True

    def _do_fault(self, draw: random.Random) -> None:
        if self.fault is None:
            self._arm_fault(draw)

    def _do_kill(self, draw: random.Random) -> None:
        self._do_crash(draw, is_power_cut=False)

    def _do_cut(self, draw: random.Random) -> None:
        self._do_crash(draw, is_power_cut=True)


class DiskWorld[P: DiskPlan](Machine[P]):
    """One plan's run over a simulated disk."""

    @abstractmethod
    def boot(self) -> None:
        """The first start."""

    @abstractmethod
    def do(self, operation: Step) -> None:
        """Do one step of the plan."""

    @abstractmethod
    def finish(self) -> None:
        """Let all be well again, and look at what is left."""

    @property
    @abstractmethod
    def digest(self) -> int:
        """A number for all that was seen: equal for runs that did the same."""

    def run(self) -> Result[P]:
        """Run the plan; an error of the simulation itself is raised."""
        return run_world(self)


class PlannedWorld[P: DiskPlan](Protocol):
    """Runs a plan."""

    plan: P
    stats: Counter[str]
    log: list[str]
    is_over: bool

    def boot(self) -> None:
        """The first start."""

    def do(self, operation: Step) -> None:
        """Do one step of the plan."""

    def finish(self) -> None:
        """Let all be well again, and look at what is left."""

    @property
    def digest(self) -> int:
        """A number for all that was seen: equal for runs that did the same."""


def run_world[P: DiskPlan](world: PlannedWorld[P]) -> Result[P]:
    """Run a world's plan; an error of the simulation itself is raised."""
    disabled, collects = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()  # nothing is finalized at a moment that depends on what ran before
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where parts report what their error logs cannot take
            return _run(world)
    finally:
        logging.disable(disabled)
        if collects:
            gc.enable()


def _run[P: DiskPlan](world: PlannedWorld[P]) -> Result[P]:
    last = -1
    try:
        world.boot()
        for operation in world.plan.operations:
            last = operation.number
            world.do(operation)
            if world.is_over:
                break
        world.finish()
    except Violation as violation:
        return Result(world.plan, world.stats, world.log, violation, last)
    return Result(world.plan, world.stats, world.log, last=last, digest=world.digest)
