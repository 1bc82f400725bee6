"""Archives, nodes and clusters on simulated disks: seeds, and how ``./run sim`` runs them and shows a finding."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from container.archive.server.store.recording_store import RecordingStore
from container.files.recording_log import RecordingLog
from container.testing.simulation.nodes import cluster
from container.testing.simulation.nodes.disk_world import Result
from container.testing.simulation.nodes.recorded import Violation
from container.testing.simulation.nodes.shorter import shorter
from tests.seeds import DAY, drawn, of_day
from tests.sim import __main__ as command
from tests.sim import archive_run, archive_world, cluster_run, node_run, node_world
from tests.sim.exam import (
    ARCHIVE_FAULTS,
    CLUSTER_FAULTS,
    FAULTS,
    NODE_FAULTS,
    ROOT,
    read_directed_faults,
    read_faults,
)


class Subject(NamedTuple):
    """What is simulated."""

    word: str
    runs: Any
    world: ModuleType
    seeds: int
    drawn: int
    """Seeds that each commit draws."""
    of_day: int
    """Seeds that each day draws."""
    chunk: int
    slow_seeds: int
    reached: dict[str, int]
    """What all fixed seeds together do, at least so often."""
    repeated: int
    """A seed that is run twice."""
    planted: tuple[type, str]
    """A method whose absence is found, and the finding is shrunk."""
    shrunk: int
    """A shrunk plan has fewer operations than the whole one has by this."""
    command: str
    shown: str
    """What the command has counted."""

    def __str__(self) -> str:
        return self.word


ARCHIVE = Subject(
    "archive",
    archive_run,
    archive_world,
    seeds=200,
    drawn=50,
    of_day=0,
    chunk=50,
    slow_seeds=1_000,
    reached=dict.fromkeys(
        (
            *("power cuts", "kills", "crashes of a recovery", "early starts refused", "restarts", "faults"),
            *("truncations", "purges", "purges of segments", "extensions", "replays read to the end", "bytes lost"),
        ),
        5,
    ),
    repeated=12,
    planted=(RecordingStore, "_cut"),
    shrunk=2,
    command="--seeds 20 --first 5",
    shown="bytes lost",
)
NODE = Subject(
    "node",
    node_run,
    node_world,
    seeds=60,
    drawn=20,
    of_day=0,
    chunk=20,
    slow_seeds=2_000,
    reached={
        **dict.fromkeys(("power cuts", "kills", "snapshots", "snapshots loaded", "shutdowns", "aborts"), 4),
        **dict.fromkeys(("suspended and resumed", "crashes of a start", "parts lost", "ends in order"), 3),
        **dict.fromkeys(("faults", "session events"), 1),
        "answers": 400,
        "settled": 30,
    },
    repeated=20,
    planted=(RecordingLog, "commit_log_position"),
    shrunk=1,
    command="--seeds 2 --first 19",
    shown="answers",
)
CLUSTER = Subject(
    "cluster",
    cluster_run,
    cluster,
    seeds=200,
    drawn=0,
    of_day=200,
    chunk=10,
    slow_seeds=1_000,
    reached={
        **dict.fromkeys(("power cuts", "kills", "partitions", "members isolated", "one-way cuts", "pauses"), 10),
        **dict.fromkeys(("snapshots", "snapshots loaded", "ends in order", "kills of all", "clogs"), 5),
        **dict.fromkeys(("members wiped", "rolling upgrades", "clients that come back", "snapshots read"), 5),
        # Rare in so few seeds; tests/test_cluster_simulation.py has one of each: shutdowns, aborts.
        **dict.fromkeys(("suspensions", "parts lost", "faults", "clock steps", "logs without their begin"), 2),
        **dict.fromkeys(("slow disks", "leaders whose clock is ahead", "images lost", "gaps closed late"), 2),
        "answers": 2_000,
        "settled": 200,
    },
    repeated=20,
    planted=(RecordingLog, "commit_log_position"),
    shrunk=1,
    command="--seeds 2 --first 19",
    shown="answers",
)
SUBJECTS = (ARCHIVE, NODE, CLUSTER)
of_each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


@pytest.fixture(scope="module")
def reached() -> Iterator[dict[str, Counter[str]]]:
    """What all fixed seeds together have done, by subject."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    yield counts
    for subject in SUBJECTS:
        count = counts[subject.word]
        if count["seeds"] == subject.seeds:
            assert {name: count[name] for name, least in subject.reached.items() if count[name] < least} == {}


def run_seed(subject: Subject, seed: int) -> Any:
    """The result of a seed that finds nothing."""
    result = subject.runs.run_seed(seed)
    assert result.violation is None, subject.runs.report(subject.runs.shrink(result), seed)
    return result


@pytest.mark.parametrize(
    ("subject", "first"),
    [
        pytest.param(subject, first, id=f"{subject}-{first}")
        for subject in SUBJECTS
        for first in range(1, subject.seeds + 1, subject.chunk)
    ],
)
def test_seeds_find_nothing(subject: Subject, first: int, reached: dict[str, Counter[str]]) -> None:
    for seed in range(first, first + subject.chunk):
        reached[subject.word].update({"seeds": 1, **run_seed(subject, seed).stats})


@pytest.mark.parametrize("subject", [subject for subject in SUBJECTS if subject.drawn], ids=str)
def test_seeds_of_this_commit_find_nothing(subject: Subject) -> None:
    for seed in drawn(f"{subject}s", subject.drawn):
        run_seed(subject, seed)


@pytest.mark.parametrize(
    ("subject", "first"),
    [
        pytest.param(subject, first, id=f"{subject}-{first}")
        for subject in SUBJECTS
        for first in range(0, subject.of_day, subject.chunk)
    ],
)
def test_seeds_of_the_day_find_nothing(subject: Subject, first: int) -> None:
    for seed in of_day(f"{subject}s", subject.of_day)[first : first + subject.chunk]:
        run_seed(subject, seed)


def test_the_seeds_of_a_day_are_drawn_again_with_its_name() -> None:
    def seeds(day: str) -> list[int]:
        found = "import tests.seeds as seeds; print(*seeds.of_day('clusters', 3))"
        done = subprocess.run(
            [sys.executable, "-c", found], env={**os.environ, DAY: day}, cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [int(each) for each in done.stdout.split()]

    known = seeds("2026-11-30")
    assert known == seeds("2026-11-30")
    assert known == list(range(known[0], known[0] + 3))
    assert not {*known} & {*seeds("2026-12-01")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "first"),
    [
        pytest.param(subject, first, id=f"{subject}-{first}")
        for subject in SUBJECTS
        for first in range(subject.seeds + 1, subject.slow_seeds + 1, subject.chunk)
    ],
)
def test_more_seeds_find_nothing(subject: Subject, first: int) -> None:
    for seed in range(first, first + subject.chunk):
        run_seed(subject, seed)


@of_each
def test_a_seed_does_the_same_again(subject: Subject) -> None:
    first, second = (run_seed(subject, subject.repeated) for _ in range(2))
    assert first.log == second.log
    assert first.stats == second.stats
    assert first.digest == second.digest


@of_each
def test_plans_have_all_kinds_of_operations(subject: Subject) -> None:
    plans = [subject.world.expand(seed) for seed in range(200)]
    kinds = {*subject.world.KINDS, *getattr(subject.world, "MORE_KINDS", ())}
    assert {each.kind for plan in plans for each in plan.operations} == kinds
    assert {plan.level for plan in plans} == {0, 1, 2}
    part = plans[0].only([3, 1, 999])
    assert [each.number for each in part.operations] == [1, 3]
    assert part.operations[0] in plans[0].operations


@of_each
def test_a_finding_is_shrunk_and_shown_with_the_line_that_repeats_it(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(*subject.planted, lambda *_: None)
    runs = subject.runs
    seed, result = next((each, found) for each in range(1, 300) if (found := runs.run_seed(each)).violation is not None)
    smaller = runs.shrink(result)
    assert smaller.violation is not None
    assert smaller.violation.oracle == result.violation.oracle
    assert len(smaller.plan.operations) < len(result.plan.operations) // subject.shrunk
    text = runs.report(smaller, seed)
    [line] = [each for each in text.splitlines() if "run it again" in each]
    arguments = line.split("./run sim ")[1].split()
    monkeypatch.setattr(sys, "argv", ["sim", *arguments])
    assert command.main() == 1
    assert f"run it again: ./run sim {' '.join(arguments)}" in capsys.readouterr().out


def test_a_machine_that_is_slow_makes_a_plan_as_short(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = archive_world.expand(1)
    wanted = {plan.operations[2].number, plan.operations[-2].number}
    runs = 0

    def run(plan: archive_world.Plan) -> Result[archive_world.Plan]:
        nonlocal runs
        runs += 1
        numbers = [each.number for each in plan.operations]
        violation = Violation("planted", "it is found") if wanted <= {*numbers} else None
        return Result(plan, Counter(), [], violation, numbers[-1] if numbers else -1)

    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0 * next(clock))
    smallest = shorter(run(plan), run=run)
    assert {each.number for each in smallest.plan.operations} == wanted
    needed, runs = runs, 0
    assert len(shorter(run(plan), run=run, most_runs=needed // 2).plan.operations) > len(wanted)
    assert runs == 1 + needed // 2


@of_each
def test_the_command_runs_seeds_in_processes(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", f"--{subject}", *subject.command.split(), "--jobs", "1"])
    assert command.main() == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{subject.command.split()[1]} seeds, 0 findings; 1 of them run twice; ")
    assert all(each in last for each in ("power cuts", "kills", subject.shown, "seeds/s"))


@pytest.mark.parametrize(
    ("path", "least"), [(FAULTS, 16), (ARCHIVE_FAULTS, 20), (NODE_FAULTS, 8), (CLUSTER_FAULTS, 10)]
)
def test_all_faults_of_the_exam_can_be_planted(path: Path, least: int) -> None:
    faults = [*read_faults(path), *read_directed_faults(path)]
    assert len({fault.name for fault in faults}) == len(faults) >= least
    for fault in faults:
        texts: dict[str, str] = {}
        for edit in fault.edits:
            text = texts.get(edit.file) or (ROOT / edit.file).read_text()
            texts[edit.file] = edit.applied(text)
            assert texts[edit.file] != text
        if fault.test:
            file, _, name = fault.test.partition("::")
            assert f"\ndef {name}(" in (ROOT / file).read_text()
