"""Mixed clusters by the thousand, ``./run elections``: how often a rule is broken, and whose it is.

Each seed of a mixture with native members runs a second time with members of upstream's alone: is there a leader as
soon with ours among them? ``./run elections exam`` takes rules out of election.py one at a time, which the seeds must
notice.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.elections import exam
from tests.elections.oracle import OURS, UPSTREAMS, Violation
from tests.elections.world import Cluster

MIXTURES = ("JJJ", "NJJ", "NNJ", "NNN", "JJJJJ", "NJJJJ", "NNNJJ", "NNNNN", "NNNNNNN", "NNNNJJJ", "JJJJJJJ")
CHUNK = 50
#: By default, for how long members may be without a leader that all follow, once all is healed.
BOUND_S = 20.0
type Outcome = tuple[int, str, str, str, float | None, float]


@dataclass
class Row:
    """The result of the seeds of a mixture."""

    seeds: int = 0
    broken: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: By seed: how long it took (ms) until all followed one leader, infinite for never. A seed is missing where that is
    #: not known: its run ended before, or a power cut had taken what was announced and nobody could lead.
    healing_ms: dict[int, float] = field(default_factory=dict)
    examples: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    cpu_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a seed."""
        seed, oracle, blame, text, healing_ms, cpu_s = outcome
        self.seeds += 1
        self.cpu_s += cpu_s
        if healing_ms is not None:
            self.healing_ms[seed] = healing_ms
        if not oracle:
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

    def late_beside(self, alone: Row, bound_ms: float) -> tuple[list[int], list[int]]:
        """The seeds that took longer than a bound here and not with upstream's alone, and the other way round."""
        both = self.healing_ms.keys() & alone.healing_ms.keys()
        late = {seed for seed in both if self.healing_ms[seed] > bound_ms}
        late_alone = {seed for seed in both if alone.healing_ms[seed] > bound_ms}
        return sorted(late - late_alone), sorted(late_alone - late)


def is_worse(late: int, late_alone: int) -> bool:
    """Whether so many seeds that are late in one of two runs alone are more than chance gives.

    A seed draws other faults with other members, so that single seeds differ in both directions. With equal chances the
    difference has a standard deviation of the root of their number; three of these are allowed.
    """
    return late - late_alone > 3 * math.sqrt(late + late_alone)


def run_seed(kinds: str, seed: int) -> Outcome:
    """Run a seed of a mixture; what oracle was broken, whose rule, and how long healing took (ms; None: not known)."""
    begin = time.process_time()
    cluster = Cluster(kinds, seed)
    oracle = blame = text = ""
    try:
        cluster.run(exam.TICKS)
    except Violation as violation:
        oracle, blame, text = violation.oracle, violation.blame, str(violation)
    healing_ms = None if cluster.healing_ns is None else cluster.healing_ns / 1_000_000
    return seed, oracle, blame, text, math.inf if oracle == "liveness" else healing_ms, time.process_time() - begin


def run_chunk(work: tuple[str, int, int]) -> tuple[str, list[Outcome]]:
    """Run some seeds of a mixture."""
    kinds, first, end = work
    return kinds, [run_seed(kinds, seed) for seed in range(first, end)]


def show(kinds: str, row: Row, alone: Row | None, bound_ms: float) -> None:
    """Print a mixture's row."""
    times = sorted(each for each in row.healing_ms.values() if each < math.inf) or [0]
    late = "" if alone is None else "{:10} {:6}".format(*map(len, row.late_beside(alone, bound_ms)))
    print(
        f"{kinds:8} {row.seeds:7} {row.count(OURS, is_liveness=False):6} {row.count(UPSTREAMS, is_liveness=False):10} "
        f"{row.count(OURS, is_liveness=True):8} {row.count(UPSTREAMS, is_liveness=True):10} "
        f"{times[len(times) // 2] / 1000:8.1f} {times[int(len(times) * 0.99)] / 1000:8.1f} "
        f"{late:17} {row.cpu_s * 1000 / max(row.seeds, 1):8.1f}",
        flush=True,
    )


def explain(kinds: str, row: Row, alone: Row | None) -> None:
    """Print what of ours was found, and whether members of upstream's alone do no better with those seeds."""
    for (oracle, blame), seeds in row.examples.items():
        if blame == OURS:
            print(f"  {kinds} {oracle}: seeds {', '.join(map(str, seeds[:10]))}: {row.texts[oracle, blame][:400]}")
            if alone is not None:
                broken = {seed: name for (name, _), those in alone.examples.items() for seed in those}
                with_these = ", ".join(broken.get(seed, "holds") for seed in seeds[:10])
                print(f"  {'J' * len(kinds)} with these: {with_these}")


def baseline_of(kinds: str) -> str:
    """Members of upstream's alone, as many."""
    return "J" * len(kinds)


def print_history(kinds: str, seed: int) -> int:
    """Print what happens in a seed, and what rule it breaks; the exit status is 1 where that is one of ours."""
    cluster = Cluster(kinds, seed)
    status = 0
    try:
        cluster.run(exam.TICKS)
    except Violation as violation:
        cluster.history.append(f"{violation.oracle}, {violation.blame}: {violation}")
        status = int(violation.blame == OURS)
    print("\n".join(cluster.history))
    return status


def main() -> int:
    """Run seeds, or take the exam; the exit status is 1 where a rule of ours was broken, or a mixture heals later."""
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
    parser.add_argument(
        "--bound",
        type=float,
        default=BOUND_S,
        metavar="SECONDS",
        help="of virtual time: how long after healing a leader that all follow may take (%(default)g)",
    )
    parser.add_argument("--history", action="store_true", help="print what happens in the first seed, and run no other")
    options = parser.parse_args()
    if options.words[:1] == ["exam"]:
        return exam.main(options.words[1:], options.seeds or exam.SEEDS, exam.FIRSTS, options.jobs)
    if wrong := [word for word in options.words if not re.fullmatch(r"[NJ]{3,}", word)]:
        parser.error(f"not three or more letters N and J: {wrong[0]}")
    mixtures = options.words or list(MIXTURES)
    if options.history:
        return print_history(mixtures[0], options.first)
    mixtures = list(dict.fromkeys([*map(baseline_of, mixtures), *mixtures]))
    bound_ms = options.bound * 1000
    end = options.first + (options.seeds or 1_000)
    rows = {kinds: Row() for kinds in mixtures}
    alone = {kinds: rows[baseline_of(kinds)] if "N" in kinds else None for kinds in mixtures}
    work = [(kinds, first, min(first + CHUNK, end)) for kinds in mixtures for first in range(options.first, end, CHUNK)]
    bound = f"later than {options.bound:g} s"
    print(f"               safety broken        never healed        healed after (s) {bound:>17}")
    print("members    seeds   ours upstream's     ours upstream's   median     99 %  here alone J alone  ms each")
    left = Counter(kinds for kinds, _, _ in work)
    with multiprocessing.Pool(options.jobs) as pool:
        for kinds, outcomes in pool.imap(run_chunk, work):
            for outcome in outcomes:
                rows[kinds].add(outcome)
            left[kinds] -= 1
            if not left[kinds]:
                show(kinds, rows[kinds], alone[kinds], bound_ms)
    is_any_worse = False
    for kinds, row in rows.items():
        beside = alone[kinds]
        explain(kinds, row, beside)
        late, late_alone = ([], []) if beside is None else row.late_beside(beside, bound_ms)
        if is_worse(len(late), len(late_alone)):
            is_any_worse = True
            print(f"  {kinds} heals later than {baseline_of(kinds)}: seeds {', '.join(map(str, late[:10]))}")
    return 1 if is_any_worse or any(blame == OURS for row in rows.values() for _, blame in row.broken) else 0


if __name__ == "__main__":
    sys.exit(main())
