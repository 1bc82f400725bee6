"""Mutation testing, ``./run mutate [MODULE ...]``: small faults in the core, each of which a test must notice.

One build of a copy holds all mutants, and shared memory says which one is active. Each mutant gets a run of pytest, in
a process of its own, over the tests that come to it, until one fails. A crash counts, and so does a test that does not
end in time. The exit code is 1 when a mutant survives that ``equivalent.toml`` does not explain.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.mutation.build import COPY, HERE, NUMBERS_OF_A_MODULE, ROOT, WORK, digest, prepare
from tests.mutation.modules import MODULES
from tests.mutation.mutants import Mutant

RESULTS = WORK / "results.json"
FIRST_TESTS = 25
"""How many tests a mutant gets first: those that come to the fewest mutants, which are most to the point."""
TESTS_FAILED, USAGE_ERROR, NO_TESTS = 1, 4, 5
REACH_LIMIT_S = 3_000


@dataclass(frozen=True)
class Test:
    """A test, how long it takes and which mutants it comes to."""

    name: str
    seconds: float
    reached: frozenset[int]


@dataclass(frozen=True)
class Explanation:
    """An entry of equivalent.toml: why no test can tell these mutants from the original."""

    file: str
    function: str
    mutation: str
    original: str
    reason: str
    occurrence: int = 0
    """Which one of several that are the same on one line; 0 for all of them."""

    def explained(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Its mutants among these."""
        own = (self.file, self.function, self.mutation, self.original)
        found = [each for each in mutants if (each.file, each.function, each.mutation, each.original) == own]
        found.sort(key=lambda mutant: (mutant.line, mutant.column))
        return found[self.occurrence - 1 : self.occurrence] if self.occurrence else found


def explained_mutants(mutants: Sequence[Mutant]) -> set[Mutant]:
    """Those that equivalent.toml explains; ends the program when one of its entries explains nothing."""
    files = {mutant.file for mutant in mutants}
    entries = [
        Explanation(**entry) for entry in tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutant", [])
    ]
    found = {entry: entry.explained(mutants) for entry in entries if entry.file in files}
    unmatched = [entry for entry, explained in found.items() if not explained]
    if unmatched:
        raise SystemExit("\n".join(["mutate: these entries of equivalent.toml match no mutant:", *map(str, unmatched)]))
    return {mutant for explained in found.values() for mutant in explained}


class Worker:
    """A process that has loaded the tests, in the copy, and runs some of them on request; see worker.py."""

    def __init__(self, files: Sequence[str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="mutants-")
        Path(self._directory.name).chmod(0o755)  # some tests give up root's rights
        switch = Path(self._directory.name, "switch")
        switch.write_bytes(bytes(4 + NUMBERS_OF_A_MODULE * (len(MODULES) + 1)))
        own = {"PYTHONPATH": str(COPY / "src"), "PYTHONDONTWRITEBYTECODE": "1", "MUTANTS_SWITCH": str(switch)}
        own["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads should not be forked
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.worker", str(switch), *files],
            cwd=COPY,
            env={**os.environ, **own, "TMPDIR": self._directory.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, tests: Sequence[str], number: int, limit_s: float, *, is_reach: bool = False) -> dict[str, Any]:
        """Runs tests with a mutant active (0: none); what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"tests": tests, "number": number, "limit_s": limit_s, "notes_reached": is_reach, "is_quiet": True}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("mutate: the process that runs the tests has ended: its message above says why")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._directory.cleanup()


def find_tests(worker: Worker, files: Sequence[str]) -> list[Test]:
    """Runs the tests without a mutant; they must pass."""
    answer = worker.ask(files, 0, REACH_LIMIT_S, is_reach=True)
    if answer.get("code") != 0:
        raise SystemExit(f"mutate: the tests fail without a mutant: {answer.get('failed') or answer}")
    return [Test(name, seconds, frozenset(numbers)) for name, (seconds, numbers) in answer["tests"].items()]


def judge(worker: Worker, mutant: Mutant, tests: Sequence[Test]) -> str:
    """The fate of a mutant: "" when it survived, else the test that noticed it."""
    ordered = sorted(tests, key=lambda test: (len(test.reached) * max(test.seconds, 0.01), test.name))
    for part in (ordered[:FIRST_TESTS], ordered[FIRST_TESTS:]):
        verdict = _judge(worker, mutant, part) if part else ""
        if verdict:
            return verdict
    return ""


def _judge(worker: Worker, mutant: Mutant, tests: Sequence[Test]) -> str:
    limit_s = 8.0 + 3 * sum(test.seconds for test in tests)
    answer = worker.ask([test.name for test in tests], mutant.number, limit_s)
    if "ended" in answer:
        return str(answer["ended"])
    if answer["code"] in (USAGE_ERROR, NO_TESTS):
        raise SystemExit(f"mutate: pytest ran no test for {mutant}")
    return str(answer["failed"] or answer["code"]) if answer["code"] else ""


class Results:
    """The mutants that were killed so far, so that a run that ended early continues where it was."""

    def __init__(self, modules: Sequence[str], is_fresh: bool) -> None:
        self._digests = {MODULES[name].path: digest([ROOT / MODULES[name].path]) for name in modules}
        self._all: dict[str, dict[str, str]] = {}
        if RESULTS.exists() and not is_fresh:
            self._all = json.loads(RESULTS.read_text())

    def _of(self, mutant: Mutant) -> dict[str, str]:
        return self._all.setdefault(f"{mutant.file} {self._digests[mutant.file]}", {})

    def killed(self, mutant: Mutant) -> str:
        """The test that noticed this mutant in an earlier run, or ""."""
        return self._of(mutant).get(mutant.key, "")

    def add(self, mutant: Mutant, verdict: str) -> None:
        """Notes that a mutant was killed."""
        self._of(mutant)[mutant.key] = verdict
        RESULTS.with_suffix(".new").write_text(json.dumps(self._all, indent=0))
        RESULTS.with_suffix(".new").rename(RESULTS)


def main() -> int:
    """Prints each survivor as it is found and a table at the end; the exit status."""
    parser = argparse.ArgumentParser(prog="./run mutate", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"which modules (all): {', '.join(MODULES)}")
    parser.add_argument("--sample", type=int, help="how many mutants, drawn from all of the modules")
    parser.add_argument("--seed", type=int, default=1, help="what the sample is drawn from (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants at the same time (%(default)s)")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--fresh", action="store_true", help="test again what was killed in a run before")
    options = parser.parse_args()
    unknown = [name for name in options.modules if name not in MODULES]
    if unknown:
        parser.error(f"unknown module {unknown[0]!r}: known are {', '.join(MODULES)}")
    modules = options.modules or list(MODULES)
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another run is at work in {WORK}")
        return _mutate(options, modules)


def _mutate(options: argparse.Namespace, modules: Sequence[str]) -> int:
    mutants = prepare(modules)
    all_explained = explained_mutants(mutants)
    if options.sample is not None:
        mutants = sorted(drawn(mutants, options.seed)[: options.sample], key=lambda mutant: mutant.number)
    if options.list:
        print(*mutants, sep="\n")
        return 0
    explained = [mutant for mutant in mutants if mutant in all_explained]
    return report(mutants, explained, run(modules, mutants, explained, options.jobs, options.fresh))


def drawn(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    """The mutants in an order of chance, in which each keeps its place when other lines, and mutants, come and go."""
    seen: Counter[tuple[str, ...]] = Counter()
    places: dict[Mutant, bytes] = {}
    for mutant in sorted(mutants, key=lambda mutant: (mutant.file, mutant.line, mutant.column)):
        name = (mutant.file, mutant.function, mutant.mutation, mutant.original)
        seen[name] += 1
        places[mutant] = hashlib.sha256(f"{seed} {seen[name]} {name}".encode()).digest()
    return sorted(mutants, key=places.__getitem__)


def run(
    modules: Sequence[str], mutants: Sequence[Mutant], explained: Sequence[Mutant], jobs: int, is_fresh: bool
) -> list[Mutant]:
    """Tests each mutant that is not explained; those that survived."""
    results = Results(modules, is_fresh)
    files = {MODULES[name].path: set(MODULES[name].tests) for name in modules}
    left = [mutant for mutant in mutants if mutant not in set(explained) and not results.killed(mutant)]
    print(f"mutate: {len(mutants)} mutants, {len(explained)} explained, {len(left)} to test", flush=True)
    if not left:
        return []
    test_files = list(dict.fromkeys(test for name in modules for test in MODULES[name].tests))
    workers: SimpleQueue[Worker] = SimpleQueue()
    for _ in range(jobs):
        workers.put(Worker(test_files))
    worker = workers.get()
    tests = find_tests(worker, test_files)
    workers.put(worker)
    print(f"mutate: {len(tests)} tests pass without a mutant", flush=True)
    survivors: list[Mutant] = []

    def test(mutant: Mutant) -> str:
        own = [test for test in tests if mutant.number in test.reached and _file(test) in files[mutant.file]]
        worker = workers.get()
        try:
            verdict = judge(worker, mutant, own)
        finally:
            workers.put(worker)
        if not verdict:
            print(f"SURVIVED {mutant}" + ("" if own else " (no test comes here)"), flush=True)
        return verdict

    pool = ThreadPoolExecutor(jobs)
    try:
        for mutant, verdict in zip(left, pool.map(test, left), strict=True):
            if verdict:
                results.add(mutant, verdict)
            else:
                survivors.append(mutant)
    finally:
        pool.shutdown(cancel_futures=True)
    for _ in range(jobs):
        workers.get().close()
    return survivors


def _file(test: Test) -> str:
    return test.name.partition("::")[0]


def report(mutants: Sequence[Mutant], explained: Sequence[Mutant], survivors: Sequence[Mutant]) -> int:
    """Prints the table and the survivors; the exit status."""
    columns = [Counter(mutant.file for mutant in each) for each in (mutants, explained, survivors)]
    print(f"{'module':<50} {'mutants':>8} {'killed':>8} {'explained':>10} {'survived':>9}")
    for file in [*columns[0], "all"]:
        if file == "all":
            whole, told, alive = (sum(column.values()) for column in columns)
        else:
            whole, told, alive = (column[file] for column in columns)
        print(f"{file.removeprefix('src/container/'):<50} {whole:>8} {whole - told - alive:>8} {told:>10} {alive:>9}")
    for mutant in survivors:
        print(f"SURVIVED {mutant}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
