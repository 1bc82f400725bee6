"""The exam of the mixtures, ``./run elections exam``: rules of election.py are taken out one at a time.

Each must be found within 2,000 seeds, in three disjoint ranges. The rules are in rules.toml: those of ours that differ
from upstream's, upstream's own, and some that seeds hardly meet, which directed tests hold.
"""

from __future__ import annotations

import multiprocessing
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from container.consensus import election
from tests.elections.oracle import OURS, Violation
from tests.elections.world import Cluster

RULES = Path(__file__).with_name("rules.toml")
SEEDS = 2_000
FIRSTS = (1, 100_001, 200_001)
TICKS = 500


@dataclass(frozen=True)
class Rule:
    """A rule that is taken out: text of election.py that is replaced, and the mixtures in which a seed looks for it."""

    name: str
    is_upstreams: bool
    mixtures: tuple[str, ...]
    edits: tuple[tuple[str, str], ...]
    #: The test of tests/test_election.py that holds it in place of seeds, and its arguments.
    test: str = ""
    arguments: tuple[tuple[str, object], ...] = ()

    def election_class(self) -> type[election.Election]:
        """The election without the rule."""
        assert election.__file__ is not None
        text = Path(election.__file__).read_text()
        for original, mutated in self.edits:
            if text.count(original) != 1:
                raise ValueError(
                    f"rules.toml: this is {text.count(original)} times in election.py, not once:\n{original}"
                )
            text = text.replace(original, mutated)
        module = ModuleType("election_without_a_rule")
        exec(compile(text, f"election.py without: {self.name}", "exec"), module.__dict__)
        found: type[election.Election] = module.__dict__["Election"]
        return found


def _read(table: str) -> list[Rule]:
    return [
        Rule(
            entry["name"],
            entry.get("upstreams", False),
            tuple(entry.get("mixtures", ("NNN", "NNNNN"))),
            tuple((edit["original"], edit["mutated"]) for edit in entry["edit"]),
            entry.get("test", ""),
            tuple(entry.get("arguments", {}).items()),
        )
        for entry in tomllib.loads(RULES.read_text())[table]
    ]


def read_rules() -> list[Rule]:
    """The rules of rules.toml that the seeds must find missing."""
    return _read("rule")


def read_directed_rules() -> list[Rule]:
    """The rules of rules.toml that directed tests hold."""
    return _read("directed")


def find(rule: Rule, first: int, seeds: int) -> tuple[int, str]:
    """The first seed of a range that shows the rule's absence, with what was seen; 0 for none."""
    election_class = rule.election_class()
    for seed in range(first, first + seeds):
        for kinds in rule.mixtures:
            try:
                Cluster(kinds, seed, election_class=election_class).run(TICKS)
            except Violation as violation:
                if violation.blame == OURS:
                    return seed, f"{kinds}, {violation.oracle}: {str(violation)[:120]}"
            except AssertionError as error:  # of the world, which takes no nonsense from its elections
                return seed, f"{kinds}, world: {error!r}"
    return 0, ""


def main(words: Sequence[str], seeds: int, firsts: Sequence[int], jobs: int) -> int:
    """Take the exam; the exit status is 1 when a rule's absence was not found."""
    rules = [rule for rule in read_rules() if not words or any(word in rule.name for word in words)]
    missed = 0
    for rule in rules:
        begin = time.monotonic()
        with multiprocessing.Pool(jobs) as pool:
            found = pool.starmap(find, [(rule, first, seeds) for first in firsts])
        needed = [seed - first + 1 if seed else 0 for first, (seed, _) in zip(firsts, found, strict=True)]
        missed += not all(needed)
        print(
            f"{'found ' if all(needed) else 'MISSED'} after {', '.join(map(str, needed)):>16} seeds  "
            f"{'upstream' if rule.is_upstreams else 'ours':8}  without: {rule.name}: {found[0][1]} "
            f"({time.monotonic() - begin:.0f} s)",
            flush=True,
        )
    print(f"{len(rules) - missed} of {len(rules)} rules found missing")
    for rule in read_directed_rules():
        if not words or any(word in rule.name for word in words):
            print(f"not of this exam: {rule.name}: tests/test_election.py::{rule.test}")
    return 1 if missed else 0
