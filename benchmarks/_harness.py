"""What the benchmarks share: rounds in a shuffled order, a table, one line of JSON with ratios, history and plots."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
HISTORY = CACHE / "history.jsonl"

type Result = dict[str, float]
"""What one round of one peer measured, by metric."""


class RoundFailed(Exception):
    """A peer died, or answered wrongly, in a round: it counts as a failure of that peer, and the run goes on."""


@dataclass(frozen=True)
class Goal:
    """That a metric of one of our peers, as a ratio to another peer or absolute, is at least or at most a number.

    With several peers in ``versus`` the better one counts: the greater value for ``at_least``, else the smaller.
    """

    peer: str
    metric: str
    versus: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None

    def ratio(self, medians: Mapping[str, Result]) -> float | None:
        """The number that is compared; None where the peer, or all that it is compared with, did not run."""
        ours = medians.get(self.peer, {}).get(self.metric)
        theirs = [medians[name][self.metric] for name in self.versus if self.metric in medians.get(name, {})]
        if ours is None or (self.versus and not theirs):
            return None
        if not theirs:
            return ours
        best = max(theirs) if self.at_least is not None else min(theirs)
        return ours / best if best else None

    def is_met(self, ratio: float) -> bool:
        """Whether the goal is reached."""
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)

    def __str__(self) -> str:
        sign, limit = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        other = f" / {' or '.join(self.versus)}" if self.versus else ""
        return f"{self.metric} {self.peer}{other} {sign} {limit:g}"


def run_rounds(
    peers: Mapping[str, Callable[[], Result]], rounds: int, seed: int = 1
) -> tuple[dict[str, list[Result]], dict[str, list[str]]]:
    """Run each peer once in each round, in an order shuffled by the seed; the results and the failures of each."""
    results: dict[str, list[Result]] = {name: [] for name in peers}
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


def medians_of(results: Mapping[str, Sequence[Result]]) -> dict[str, Result]:
    """The median of each metric of each peer that has results."""
    return {
        name: {metric: statistics.median(result[metric] for result in of_peer) for metric in of_peer[0]}
        for name, of_peer in results.items()
        if of_peer
    }


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


@dataclass
class Report:
    """The rows of one run of a benchmark."""

    benchmark: str
    metrics: Mapping[str, str]
    """Metric and how it is shown in the table, such as ``{"p50_us": "12,.1f"}``."""
    rows: list[Row] = field(default_factory=list)
    failures: dict[str, list[str]] = field(default_factory=dict)
    histograms: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    """Of rows, by peer: pairs of a duration in microseconds and how many began there."""
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
        for goal, ratio in self._goals(row):
            print(f"    {'met   ' if goal.is_met(ratio) else 'MISSED'} {goal}: {ratio:.3f}")
        sys.stdout.flush()

    @staticmethod
    def _goals(row: Row) -> list[tuple[Goal, float]]:
        found = [(goal, goal.ratio(row.medians)) for goal in row.goals]
        return [(goal, ratio) for goal, ratio in found if ratio is not None]

    def as_json(self) -> dict[str, Any]:
        """What :meth:`finish` prints: medians of each peer, and the goals' ratios."""
        return {
            "benchmark": self.benchmark,
            "rows": {row.name: row.medians for row in self.rows},
            "goals": {
                f"{row.name}: {goal}": {"ratio": round(ratio, 4), "met": goal.is_met(ratio)}
                for row in self.rows
                for goal, ratio in self._goals(row)
            },
            "failures": {peer: len(texts) for peer, texts in self.failures.items()},
        }

    def finish(self) -> dict[str, Any]:
        """Print how many goals are met and the line of JSON, and keep it with the machine's data in the history."""
        found = self.as_json()
        for peer, texts in self.failures.items():
            if texts:
                print(f"{peer} failed {len(texts)} times, for example: {texts[0].splitlines()[0]}")
        met = sum(goal["met"] for goal in found["goals"].values())
        if found["goals"]:
            print(f"{met} of {len(found['goals'])} goals met")
        if self.histograms:
            print(f"histograms: {plot(self.benchmark, self.histograms, self.began)}")
        print(json.dumps(found), flush=True)
        rounds = {row.name: row.results for row in self.rows}
        CACHE.mkdir(parents=True, exist_ok=True)
        with HISTORY.open("a", encoding="utf-8") as history:
            history.write(json.dumps({**machine(), "began": self.began, **found, "rounds": rounds}) + "\n")
        return found


def machine() -> dict[str, Any]:
    """What one must know to compare two runs."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    revision = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "revision": revision,
        "python": platform.python_version(),
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
    """What goes on, for who waits; not part of the result."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
