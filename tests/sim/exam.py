"""The exam of the simulator, ``./run sim exam``: faults of faults.toml, planted one by one into a copy of the core.

Each must be found within 1,000 seeds, in three disjoint ranges. A table says at which seed it was, and by which oracle.
Seeds hardly meet those of "directed". Each of them names a test, which must fail with the fault and pass without.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sim.cluster_oracle import History

ROOT = Path(__file__).parent.parent.parent
COPY = ROOT / "build" / "exam"
FAULTS = Path(__file__).with_name("faults.toml")
ARCHIVE_FAULTS = Path(__file__).with_name("archive_faults.toml")
NODE_FAULTS = Path(__file__).with_name("node_faults.toml")
CLUSTER_FAULTS = Path(__file__).with_name("cluster_faults.toml")
FILES = {"": FAULTS, "archive": ARCHIVE_FAULTS, "node": NODE_FAULTS, "cluster": CLUSTER_FAULTS}
SEEDS = 1_000
FIRSTS = (1, 100_001, 200_001)
LIMIT_S = 300.0
"""What a seed may take."""
_TREES = ("src", "schema", "scripts", "tests", "examples")


@dataclass(frozen=True)
class Edit:
    """What is replaced in a file."""

    file: str
    original: str
    mutated: str

    def applied(self, text: str) -> str:
        """The text with the fault."""
        original = self.original.removeprefix("\n")
        if text.count(original) != 1:
            raise SystemExit(
                f"the exam's faults: this is {text.count(original)} times in {self.file}, not once:\n{original}"
            )
        return text.replace(original, self.mutated.removeprefix("\n"))


@dataclass(frozen=True)
class Fault:
    """A fault that is planted."""

    name: str
    oracles: tuple[str, ...]
    edits: tuple[Edit, ...]
    seeds: int = SEEDS
    """Within how many it must be found."""
    test: str = ""
    """The test that finds it in place of seeds, as pytest names it."""


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """The faults of a file that seeds must find."""
    return _read(path, "fault")


def read_directed_faults(path: Path = FAULTS) -> list[Fault]:
    """The faults of a file that directed tests find."""
    return _read(path, "directed")


def _read(path: Path, table: str) -> list[Fault]:
    return [
        Fault(
            entry["name"],
            tuple(entry.get("oracles", ())),
            tuple(Edit(**edit) for edit in entry["edit"]),
            entry.get("seeds", SEEDS),
            entry.get("test", ""),
        )
        for entry in tomllib.loads(path.read_text()).get(table, [])
    ]


def prepare_copy() -> None:
    """Copy what is built, so that only what a fault touches has to be compiled."""
    shutil.rmtree(COPY, ignore_errors=True)
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for tree in _TREES:
        shutil.copytree(ROOT / tree, COPY / tree, ignore=unwanted)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, COPY / name)
    for pattern in ("cython", "temp.*", "lib.*"):
        for built in (ROOT / "build").glob(pattern):
            shutil.copytree(built, COPY / "build" / built.name)


def build() -> None:
    """Compile what has changed in the copy."""
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=COPY, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"exam: the copy does not build:\n{done.stdout}{done.stderr}")


def find(first: int, seeds: int, *, world: str = "", by_states: bool = False) -> tuple[int, str, str]:
    """The first seed of a range with a finding, its oracle and text; a crash or a hang is a finding, too."""
    command = [sys.executable, "-m", "tests.sim.exam", "--find", str(first), "--seeds", str(seeds)]
    command += [f"--{world}"] if world else []
    command += ["--states"] if by_states else []
    process = subprocess.Popen(
        command, cwd=COPY, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(COPY / "src")}
    )
    assert process.stdout is not None
    last, is_late = "0", False

    def stop() -> None:
        nonlocal is_late
        is_late = True
        process.kill()

    # Of each seed: how many there are, and how busy the machine is, makes no hang.
    watch = threading.Timer(LIMIT_S, stop)
    watch.start()
    for line in process.stdout:
        watch.cancel()
        last = line
        watch = threading.Timer(LIMIT_S, stop)
        watch.start()
    watch.cancel()
    code = process.wait()
    if is_late:
        return int(last), "hang", f"no end within {LIMIT_S:g} s"
    if last.startswith("["):
        seed, oracle, text = json.loads(last)
        return seed, oracle, text
    if code != 0:
        return int(last), "crash", f"the process ended with {code}"
    return 0, "", ""


def find_here(first: int, seeds: int, *, world: str = "") -> int:
    """Run seeds until one has a finding, and print it."""
    if world:
        return find_in_world(world, first, seeds)
    from tests.sim.__main__ import run_seed

    for seed in range(first, first + seeds):
        print(seed, flush=True)
        result = run_seed(seed)
        if result.finding is not None:
            print(json.dumps([seed, result.finding.oracle, result.finding.text[:300]]), flush=True)
            return 0
    return 0


def find_in_world(world: str, first: int, seeds: int) -> int:
    """Run seeds of a world with disks until one has a finding, and print it."""
    from tests.sim.__main__ import WORLDS

    run_seed = WORLDS[world].run_seed
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + seeds):
        print(seed, flush=True)
        violation = run_seed(seed).violation
        if violation is not None:
            print(json.dumps([seed, violation.oracle, str(violation)[:300]]), flush=True)
            return 0
    return 0


@contextlib.contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Plant a fault in the copy meanwhile."""
    originals = {edit.file: (COPY / edit.file).read_text() for edit in fault.edits}
    try:
        for edit in fault.edits:
            path = COPY / edit.file
            path.write_text(edit.applied(path.read_text()))
        build()
        yield
    finally:
        for file, text in originals.items():
            (COPY / file).write_text(text)


def take(
    fault: Fault, firsts: Sequence[int], seeds: int, *, world: str = "", by_states: bool = False
) -> list[tuple[int, str, str]]:
    """Plant a fault, and look for it in each range."""
    with planted(fault):
        return [find(first, seeds, world=world, by_states=by_states) for first in firsts]


def passes(test: str) -> bool:
    """Run a test of the copy; return whether it passes. Raise SystemExit where it does not run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command, cwd=COPY, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(COPY / "src")}
    )
    if done.returncode > 1:
        raise SystemExit(f"exam: {test} does not run:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main(arguments: Sequence[str]) -> int:
    """Take the exam; the exit status is 1 when a fault was not found, or the core without one had a finding."""
    parser = argparse.ArgumentParser(prog="./run sim exam", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only faults whose name has one of these words")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each range at most (%(default)s)")
    parser.add_argument("--ranges", type=int, default=len(FIRSTS), help="how many ranges (%(default)s)")
    for world in list(FILES)[1:]:
        text = f"faults of the {world}, and simulations of {world}s"
        parser.add_argument(f"--{world}", action="store_const", const=world, dest="world", default="", help=text)
    parser.add_argument(
        "--states", action="store_true", help="of clusters: without what members send each other, as votes"
    )
    parser.add_argument("--find", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.find is not None:
        History.reads_along = not options.states
        return find_here(options.find, options.seeds, world=options.world)
    known = read_faults(FILES[options.world])
    faults, directed = (
        [fault for fault in each if not options.words or any(word in fault.name for word in options.words)]
        for each in (known, read_directed_faults(FILES[options.world]))
    )
    firsts = FIRSTS[: options.ranges]
    prepare_copy()
    missed = 0
    for fault in faults:
        begin = time.monotonic()
        seeds = options.seeds if options.states else min(fault.seeds, options.seeds)
        found = take(fault, firsts, seeds, world=options.world, by_states=options.states)
        needed = [seed - first + 1 if oracle else 0 for first, (seed, oracle, _) in zip(firsts, found, strict=True)]
        others = sorted({oracle for _, oracle, _ in found if oracle} - set(fault.oracles))
        missed += not all(needed)
        print(
            f"{'found ' if all(needed) else 'MISSED'} after {', '.join(map(str, needed)):>14} seeds  {fault.name}: "
            f"{found[0][1]}: {found[0][2][:160]}{'; also by ' + ', '.join(others) if others else ''} "
            f"({time.monotonic() - begin:.0f} s)",
            flush=True,
        )
    for fault in directed:
        with planted(fault):
            is_found = not passes(fault.test)
        missed += not is_found
        print(f"{'found ' if is_found else 'MISSED'} by a directed test  {fault.name}: {fault.test}", flush=True)
    build()
    for fault in directed:
        if not passes(fault.test):
            missed += 1
            print(f"fails without a fault: {fault.test}")
    clean = find(FIRSTS[0], 200, world=options.world)
    print(f"without a fault: {'a finding: ' + clean[2] if clean[1] else 'nothing in 200 seeds'}")
    count = len(faults) + len(directed)
    print(f"{count - missed} of {count} faults found")
    return 1 if missed or clean[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
