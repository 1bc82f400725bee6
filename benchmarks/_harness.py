"""Tools that the benchmarks share: rounds in a shuffled order, a table, one line of JSON with ratios, history and
plots."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._verdicts import Goal, Result, Verdict, Word, judge

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
HISTORY = CACHE / "history.jsonl"


class RoundFailed(Exception):
    """A peer died, or answered wrongly, in a round: it counts as a failure of that peer, and the run continues."""


def run_rounds[T](
    peers: Mapping[str, Callable[[], T]], rounds: int, seed: int = 1
) -> tuple[dict[str, list[T]], dict[str, list[str]]]:
    """Run each peer once in each round, in an order shuffled by the seed; the results and the failures of each."""
    results: dict[str, list[T]] = {name: [] for name in peers}
    failures: dict[str, list[str]] = {name: [] for name in peers}
    order = random.Random(seed)
    for number in range(rounds):
        for name in order.sample(sorted(peers), len(peers)):
            say(f"round {number + 1} of {rounds}: {name}")
            try:
                results[name].append(peers[name]())
            except RoundFailed as failure:
                say(f"{name} failed: {failure}")
                failures[name].append(str(failure))
    return results, failures


def median_of(results: Sequence[Result]) -> Result:
    """The median of each metric."""
    return {metric: statistics.median(result[metric] for result in results) for metric in results[0]}


def medians_of(results: Mapping[str, Sequence[Result]]) -> dict[str, Result]:
    """The median of each metric of each peer that has results."""
    return {name: median_of(of_peer) for name, of_peer in results.items() if of_peer}


@dataclass(frozen=True)
class Interpreter:
    """Which Python measures and runs our services; a build without these optimisations is slower."""

    version: str
    has_pgo: bool
    """Whether it was built with ``--enable-optimizations``."""
    has_lto: bool
    """Whether it was built with ``--with-lto``."""

    def __str__(self) -> str:
        missing = [
            option
            for option, has in (("--enable-optimizations", self.has_pgo), ("--with-lto", self.has_lto))
            if not has
        ]
        if not missing:
            return f"CPython {self.version}, built with --enable-optimizations and --with-lto"
        return f"CPython {self.version}, built without {' and '.join(missing)}: a build with both is quicker"


def interpreter(variables: Mapping[str, Any] | None = None) -> Interpreter:
    """The interpreter that runs, by its build's variables, which are those of ``sysconfig`` unless given."""
    found = sysconfig.get_config_vars() if variables is None else variables
    flags = " ".join(str(found.get(name) or "") for name in ("PY_CFLAGS", "PY_CFLAGS_NODIST"))
    options = str(found.get("CONFIG_ARGS") or "")
    return Interpreter(
        platform.python_version(),
        has_pgo="--enable-optimizations" in options or "-fprofile-use" in flags,
        has_lto="--with-lto" in options or "-flto" in flags,
    )


@dataclass
class Row:
    """One line of a benchmark: the same work for all peers."""

    name: str
    results: dict[str, list[Result]]
    goals: Sequence[Goal] = ()

    @property
    def medians(self) -> dict[str, Result]:
        """The median of each metric by peer."""
        return medians_of(self.results)

    def verdicts(self) -> list[Verdict]:
        """The verdict on each goal whose peers ran."""
        return [verdict for goal in self.goals if (verdict := judge(goal, self.results)) is not None]


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many goals have which verdict."""
    counts = [sum(verdict.word is word for verdict in verdicts) for word in Word]
    return f"{len(verdicts)} goals: " + ", ".join(f"{count} {word}" for count, word in zip(counts, Word, strict=True))


@dataclass
class Report:
    """The rows of one run of a benchmark."""

    benchmark: str
    metrics: Mapping[str, str]
    """Metric and how it is shown in the table, such as ``{"p50_us": "12,.1f"}``."""
    rows: list[Row] = field(default_factory=list)
    failures: dict[str, list[str]] = field(default_factory=dict)
    histograms: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    """The series of rows, by peer: pairs of a duration in microseconds and how many began there."""
    began: float = field(default_factory=time.time)

    def add(self, name: str, results: dict[str, list[Result]], goals: Sequence[Goal] = ()) -> None:
        """Add a row and print it."""
        row = Row(name, results, goals)
        self.rows.append(row)
        print(f"{row.name}:")
        width = max((len(peer) for peer in row.medians), default=0) + 2
        for peer, medians in row.medians.items():
            values = "  ".join(
                f"{metric} {medians[metric]:{shown}}" for metric, shown in self.metrics.items() if metric in medians
            )
            print(f"{peer:>{width}}: {values}")
        for verdict in row.verdicts():
            print(f"    {verdict}")
        sys.stdout.flush()

    def as_json(self) -> dict[str, Any]:
        """The lines that :meth:`finish` prints: medians of each peer, and the verdicts on the goals."""
        return {
            "benchmark": self.benchmark,
            "rows": {row.name: row.medians for row in self.rows},
            "goals": {
                f"{row.name}: {verdict.goal}": {
                    "ratio": round(verdict.ratio, 4),
                    "interval": [round(verdict.low, 4), round(verdict.high, 4)] if verdict.high < math.inf else None,
                    "verdict": verdict.word.value,
                }
                for row in self.rows
                for verdict in row.verdicts()
            },
            "failures": {peer: len(texts) for peer, texts in self.failures.items()},
        }

    def finish(self) -> Report:
        """Print how many goals are met and the line of JSON, and keep it with the machine's data in the history."""
        found = self.as_json()
        for peer, texts in self.failures.items():
            if texts:
                print(f"{peer} failed {len(texts)} times, for example: {texts[0].splitlines()[0]}")
        if judged := [verdict for row in self.rows for verdict in row.verdicts()]:
            print(tally(judged))
        print(f"interpreter: {interpreter()}")
        if self.histograms:
            print(f"histograms: {plot(self.benchmark, self.histograms, self.began)}")
        print(json.dumps(found), flush=True)
        rounds = {row.name: row.results for row in self.rows}
        CACHE.mkdir(parents=True, exist_ok=True)
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps({**machine(), "began": self.began, **found, "rounds": rounds}) + "\n")
        return self


def machine() -> dict[str, Any]:
    """The facts needed to compare two runs."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    revision = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "revision": revision,
        "python": platform.python_version(),
        "interpreter": asdict(interpreter()),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def plot(name: str, histograms: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], began: float) -> Path:
    """Draw the histograms of each row, one line per peer, into a PNG file; return where it is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(histograms), 1, figsize=(9, 2.6 * len(histograms)), squeeze=False)
    for axis, (row, peers) in zip(axes[:, 0], histograms.items(), strict=True):
        for peer, buckets in sorted(peers.items()):
            total = sum(count for _, count in buckets)
            axis.step([at for at, _ in buckets], [count / total for _, count in buckets], where="post", label=peer)
        axis.set_xscale("log")
        axis.set_title(row, fontsize=9)
        axis.set_xlabel("round trip (us)", fontsize=8)
        axis.set_ylabel("share", fontsize=8)
        axis.legend(fontsize=8)
    figure.tight_layout()
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(began))}.png"
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return path


def cpu_seconds(pid: int) -> float:
    """Time that the threads of a process have run so far, from Linux's /proc; those that have ended are left out."""
    spent = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            spent += int(path.read_text(encoding="ascii").split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return spent / 1e9


def busy_seconds() -> tuple[float, float]:
    """How long all cores of the machine have been busy so far, and how long they have been there at all.

    Where the machine is a virtual one the time that its host took away counts as busy.
    """
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:9]]
    idle, waiting = ticks[3:5]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle - waiting) / hertz, sum(ticks) / hertz


def resident_mib(pid: int) -> float:
    """Resident memory of a process now without what it shares with the driver: log buffers and counters."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    kib = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("RssAnon", "RssFile")))
    return sum(int(text.split()[0]) for text in kib.values()) / 1024


def peak_mib(pid: int) -> float:
    """The greatest resident memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def say(text: str) -> None:
    """Show progress; not part of the result."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
