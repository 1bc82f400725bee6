"""Processor and wall time of the tests, by file: each run notes them, and ``python -m tests.times`` prints the table.

A run of pytest under ``RUN_TIMES=DIRECTORY`` writes one file there. Processor time is that of the run's own process and
of each process that a test waited for; what a fixture of the whole run starts counts where it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "RUN_TIMES"
DEFAULT_DIRECTORY = Path("build", "times")
COLLECTION = "(start and collection)"


@dataclass
class Times:
    """Seconds, and how many tests they are of."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    tests: int = 0

    def add(self, other: Times) -> None:
        """Adds up."""
        self.cpu_s += other.cpu_s
        self.wall_s += other.wall_s
        self.tests += other.tests


def processor_time() -> float:
    """Seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class TimesPlugin:
    """Notes the times of one run of pytest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tests: dict[str, Times] = {}
        self._begin = time.monotonic()

    def pytest_collection_finish(self) -> None:
        """Note all that has come before the first test."""
        self._tests[COLLECTION] = Times(processor_time(), time.monotonic() - self._begin)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note one test with its fixtures."""
        cpu, wall = processor_time(), time.monotonic()
        result = yield
        self._tests[item.nodeid] = Times(processor_time() - cpu, time.monotonic() - wall, 1)
        return result

    def pytest_sessionfinish(self) -> None:
        """Write them down."""
        self._directory.mkdir(parents=True, exist_ok=True)
        rows = {name: vars(times) for name, times in self._tests.items()}
        (self._directory / f"{os.getpid()}.json").write_text(json.dumps(rows))


def read(directory: Path) -> dict[str, Times]:
    """The times of all runs that wrote into the directory, by test."""
    tests: dict[str, Times] = defaultdict(Times)
    for path in sorted(directory.glob("*.json")):
        for name, row in json.loads(path.read_text()).items():
            tests[name].add(Times(**row))
    return tests


def summed(tests: dict[str, Times], group: Callable[[str], str]) -> dict[str, Times]:
    """Sums by what a test belongs to, those that take most first."""
    sums: dict[str, Times] = defaultdict(Times)
    for name, times in tests.items():
        sums[group(name)].add(times)
    return dict(sorted(sums.items(), key=lambda entry: -entry[1].cpu_s))


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def directory_of(test: str) -> str:
    """The directory of a test."""
    return test if test == COLLECTION else str(Path(file_of(test)).parent)


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run times", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--tests", type=int, default=0, metavar="N", help="list the N most expensive tests as well")
    parser.add_argument("--files", type=int, metavar="N", help="only the N most expensive files, and the sum")
    options = parser.parse_args()
    tests = read(options.directory)
    if not tests:
        parser.error(f"no run has left its times in {options.directory}: ./run test does")
    costly = dict(list(summed(tests, str).items())[: options.tests])
    files, directories = summed(tests, file_of), summed(tests, directory_of)
    if options.files is not None:
        files, directories = dict(list(files.items())[: options.files]), {}
    print(f"{'processor s':>11} {'wall s':>8} {'tests':>6}  of")
    for sums in (costly, files, directories, summed(tests, lambda _: "all")):
        for name, times in sums.items():
            print(f"{times.cpu_s:11.1f} {times.wall_s:8.1f} {times.tests:6}  {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
