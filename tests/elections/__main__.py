"""Mixed clusters by the thousand, ``./run elections``: how often a rule is broken, and whose it is.

``./run elections exam`` takes rules out of election.py one at a time, which the seeds must notice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.elections import exam
from tests.elections.oracle import OURS, UPSTREAMS, Violation
from tests.elections.world import Cluster

MIXTURES = ("JJJ", "NJJ", "NNJ", "NNN", "JJJJJ", "NJJJJ", "NNNJJ", "NNNNN", "NNNNNNN", "NNNNJJJ", "JJJJJJJ")
CHUNK = 50
type Outcome = tuple[int, str, str, str, int, float]


@dataclass
class Row:
    """The result of the seeds of a mixture."""

    seeds: int = 0
    broken: Counter[tuple[str, str]] = field(default_factory=Counter)
    healing_ms: list[int] = field(default_factory=list)
    examples: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    cpu_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a seed."""
        seed, oracle, blame, text, healing_ms, cpu_s = outcome
        self.seeds += 1
        self.cpu_s += cpu_s
        if not oracle:
            self.healing_ms.append(healing_ms)
            return
        self.broken[oracle, blame] += 1
        self.examples.setdefault((oracle, blame), []).append(seed)
        self.texts.setdefault((oracle, blame), text)

    def count(self, blame: str, *, is_liveness: bool) -> int:
        """How many seeds broke a rule of that kind."""
        return sum(
            count
            for (oracle, whose), count in self.broken.items()
            if whose == blame and (oracle == "liveness") == is_liveness
        )


def run_seed(kinds: str, seed: int) -> Outcome:
    """Run a seed of a mixture; what oracle was broken, whose rule, and else how long healing took (ms)."""
    begin = time.process_time()
    cluster = Cluster(kinds, seed)
    oracle = blame = text = ""
    try:
        cluster.run(exam.TICKS)
    except Violation as violation:
        oracle, blame, text = violation.oracle, violation.blame, str(violation)
    return seed, oracle, blame, text, cluster.healing_ns // 1_000_000, time.process_time() - begin


def run_chunk(work: tuple[str, int, int]) -> tuple[str, list[Outcome]]:
    """Run some seeds of a mixture."""
    kinds, first, end = work
    return kinds, [run_seed(kinds, seed) for seed in range(first, end)]


def show(kinds: str, row: Row) -> None:
    """Print a mixture's row, and what was found in it."""
    times = sorted(row.healing_ms) or [0]
    print(
        f"{kinds:8} {row.seeds:7} {row.count(OURS, is_liveness=False):6} {row.count(UPSTREAMS, is_liveness=False):10} "
        f"{row.count(OURS, is_liveness=True):8} {row.count(UPSTREAMS, is_liveness=True):10} "
        f"{times[len(times) // 2] / 1000:8.1f} {times[int(len(times) * 0.99)] / 1000:8.1f} "
        f"{row.cpu_s * 1000 / max(row.seeds, 1):8.1f}",
        flush=True,
    )


def explain(kinds: str, row: Row) -> None:
    """Print what of ours was found, and whether members of upstream's alone do no better with those seeds."""
    for (oracle, blame), seeds in row.examples.items():
        if blame == OURS:
            alone = [run_seed("J" * len(kinds), seed)[1] for seed in seeds[:10]] if "J" in kinds else []
            print(f"  {kinds} {oracle}: seeds {', '.join(map(str, seeds[:10]))}: {row.texts[oracle, blame][:400]}")
            if alone:
                print(f"  {'J' * len(kinds)} with these: {', '.join(each or 'holds' for each in alone)}")


def main() -> int:
    """Run seeds, or take the exam; the exit status is 1 where a rule of ours was broken."""
    parser = argparse.ArgumentParser(prog="./run elections", description=__doc__)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="MIXTURE",
        help=f"such as {', '.join(MIXTURES)} (all of these); or exam, and words of rules' names",
    )
    parser.add_argument("--seeds", type=int, help="of each mixture (1,000), or of each range of the exam (2,000)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument("--history", action="store_true", help="print what happened in the first seed")
    options = parser.parse_args()
    if options.words[:1] == ["exam"]:
        return exam.main(options.words[1:], options.seeds or exam.SEEDS, exam.FIRSTS, options.jobs)
    mixtures = options.words or list(MIXTURES)
    if options.history:
        cluster = Cluster(mixtures[0], options.first)
        try:
            cluster.run(exam.TICKS)
        finally:
            print("\n".join(cluster.history))
        return 0
    end = options.first + (options.seeds or 1_000)
    rows = {kinds: Row() for kinds in mixtures}
    work = [(kinds, first, min(first + CHUNK, end)) for kinds in mixtures for first in range(options.first, end, CHUNK)]
    print("               safety broken        never healed        healed after (s)")
    print("members    seeds   ours upstream's     ours upstream's   median     99 %    ms each")
    left = Counter(kinds for kinds, _, _ in work)
    with multiprocessing.Pool(options.jobs) as pool:
        for kinds, outcomes in pool.imap(run_chunk, work):
            for outcome in outcomes:
                rows[kinds].add(outcome)
            left[kinds] -= 1
            if not left[kinds]:
                show(kinds, rows[kinds])
    for kinds, row in rows.items():
        explain(kinds, row)
    return 1 if any(blame == OURS for row in rows.values() for _, blame in row.broken) else 0


if __name__ == "__main__":
    sys.exit(main())
