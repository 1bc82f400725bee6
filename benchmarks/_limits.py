"""Verdicts: whether a goal is met and, where it is missed, whether measurements of the same run show what limits it.

A limit is shown only by numbers of this run; a goal that is missed without one is just missed, and says how far the
measurements go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from math import sqrt

from benchmarks._harness import Goal, Result, Row

PYTHON_ALONE = "python alone"
"""The peer of a row that is the interpreter without a container."""
BARE = "bare"
"""The peer of a row whose echoes go from Aeron's C library straight back to it, past the container's code."""
LISTS = "lists in a chain"
"""What stands beside a count of sessions: as many lists, each found in a slot of the one before."""
CONTAINER = "container"
"""The part of a profile that is our own code, the service's module in Cython included."""
KERNEL = "kernel"
"""The part of a profile that is the operating system."""

ALL_CORES_BUSY = 0.9
FEW_OTHERS = 0.1
HALF_A_CORE = 0.5
ENOUGH_ROUNDS = 5
"""So many rounds of each can tell two peers apart: where one wins all, chance would do that once in 252 times."""
BY_CHANCE = 0.05
_WALL_CLOCK = {"per_second", "p50_us", "p99_us", "taken_mb_s", "loaded_mb_s", "stall_s"}


class Word(StrEnum):
    """What becomes of a goal."""

    MET = "met"
    LIMIT_SHOWN = "limit shown"
    MISSED = "MISSED"


@dataclass(frozen=True)
class Verdict:
    """A goal, its ratio, and what became of it."""

    goal: Goal
    ratio: float
    word: Word
    text: str = ""
    """What was measured about the limit, or all that is known where none is shown; empty where the goal is met."""


@dataclass(frozen=True)
class Finding:
    """What measurements say about a goal that is missed."""

    is_limit: bool
    text: str


@dataclass(frozen=True)
class Evidence:
    """What the run measured beside the goals' own rows."""

    cores: int
    interpreter_mib: float | None = None
    """Resident memory of the bare interpreter."""
    interpreter_ns: float | None = None
    """What a message takes longer, with the agent alone and over memory, when a service in Python counts, not one in
    Cython."""
    profiles: Mapping[str, Mapping[str, Result]] = field(default_factory=dict)
    """By row and peer, processor seconds per million messages: ``cpu_s_per_million`` and that of each part, which is
    known from so many ``samples``."""


def judge(goal: Goal, row: Row, evidence: Evidence) -> Verdict | None:
    """The verdict on a goal of a row; None where its peers did not run."""
    ratio = goal.ratio(row.medians)
    if ratio is None:
        return None
    if goal.is_met(ratio):
        return Verdict(goal, ratio, Word.MET)
    found = [finding for finding in _findings(goal, ratio, row, evidence) if finding is not None]
    limits = [finding for finding in found if finding.is_limit]
    word = Word.LIMIT_SHOWN if limits else Word.MISSED
    return Verdict(goal, ratio, word, "; ".join(finding.text for finding in limits or found))


def needs_rounds(verdict: Verdict) -> bool:
    """Whether more rounds could tell that it was by chance: one of many peers that are level falls behind in five."""
    return verdict.word is Word.MISSED and verdict.goal.metric in _WALL_CLOCK and bool(verdict.goal.versus)


def needs_profile(verdict: Verdict) -> bool:
    """Whether the row's load is to be profiled: for processor time always, else where the row itself shows no limit."""
    if verdict.goal.metric == "cpu_s_per_million":
        return verdict.word is not Word.MET
    return verdict.word is Word.MISSED and verdict.goal.metric in ("per_second", "p50_us")


def _findings(goal: Goal, ratio: float, row: Row, evidence: Evidence) -> list[Finding | None]:
    profile = evidence.profiles.get(row.name, {})
    return [
        rounds_overlap(goal, row),
        cores_are_busy(goal, row, profile, evidence.cores),
        bare_echo_misses_it_too(goal, row),
        rest_takes_too_long(goal, ratio, profile),
        rest_is_too_slow(goal, row, profile),
        interpreter_is_too_large(goal, row, evidence.interpreter_mib),
        python_takes_too_long(goal, row),
        memory_takes_too_long(goal, row),
        interpreter_recovers_too_slowly(goal, row, evidence.interpreter_ns),
    ]


def rounds_overlap(goal: Goal, row: Row) -> Finding | None:
    """That the rounds do not tell us from the better peer: the same program differs by as much from itself.

    With enough rounds of both that is so when chance alone would place ours as far behind at least once in twenty times
    (Wilcoxon's rank sum, one-sided, exact); with fewer, when our median is within its rounds. Not where other programs
    took so much of the machine that the difference may be theirs.
    """
    if goal.metric not in _WALL_CLOCK or not goal.versus or 1.0 not in (goal.at_least, goal.at_most):
        return None
    better = _better(goal, row)
    rounds, ours = ([result[goal.metric] for result in row.results[name]] for name in (better, goal.peer))
    if len(rounds) < 2:
        return None
    low, high, median = min(rounds), max(rounds), row.medians[goal.peer][goal.metric]
    text = f"the rounds of {better} are from {_shown(low)} to {_shown(high)}, ours is {_shown(median)}"
    if min(len(rounds), len(ours)) >= ENOUGH_ROUNDS:
        sign = 1 if goal.at_least is not None else -1
        chance = chance_of([sign * value for value in ours], [sign * value for value in rounds])
        within = chance >= BY_CHANCE
        text += f"; chance alone would place ours as far behind in {chance:.1%} of all cases"
    else:
        within = median >= low if goal.at_least is not None else median <= high
    if within:
        text = f"not told apart by the rounds: {text}"
    if within and (others := max(row.medians[name].get("others", 0.0) for name in (better, goal.peer))) > FEW_OTHERS:
        return Finding(False, f"{text}, but other programs take up to {others:.0%} of the cores")
    return Finding(within, text)


def _better(goal: Goal, row: Row) -> str:
    """Which of the peers that the goal compares with, and that ran, is the better one."""
    pick = max if goal.at_least is not None else min
    names = [name for name in goal.versus if goal.metric in row.medians.get(name, {})]
    return pick(names, key=lambda name: row.medians[name][goal.metric])


def chance_of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How likely our values, all of one kind with theirs, would have so small a sum of ranks, or a smaller one."""
    ordered = sorted([*ours, *theirs])
    # Equal values share the mean of their ranks.
    ranks = [(ordered.index(value) + len(ordered) - 1 - ordered[::-1].index(value)) / 2 for value in [*ours, *theirs]]
    sums = [sum(chosen) for chosen in combinations(ranks, len(ours))]
    return sum(of <= sum(ranks[: len(ours)]) for of in sums) / len(sums)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def _has_all_cores_busy(goal: Goal, row: Row) -> bool:
    # Agents that never park keep the cores busy whether they have work or not, and other programs would do it, too.
    ours = row.medians[goal.peer]
    is_busy = ours.get("machine", 0.0) >= ALL_CORES_BUSY and ours.get("others", 1.0) <= FEW_OTHERS
    return is_busy and "yield" not in row.name


def cores_are_busy(goal: Goal, row: Row, profile: Mapping[str, Result], cores: int) -> Finding | None:
    """That node and load use the cores up while the service has time to spare: its work takes less than half a core."""
    ours = row.medians[goal.peer]
    if goal.metric != "per_second" or "machine" not in ours:
        return None
    share = ours["busy"] / (cores * ours["machine"]) if ours["machine"] else 0.0
    text = f"the {cores} cores are {ours['machine']:.0%} busy, {share:.0%} of that is the service's"
    if ours["others"] > FEW_OTHERS:
        text += f", other programs take {ours['others']:.0%} of the cores"
    if not _has_all_cores_busy(goal, row) or goal.peer not in profile:
        return Finding(False, text)
    used = ours["busy"] * (1 - _share(profile[goal.peer], KERNEL))
    text += f"; outside of the kernel it takes {used:.2f} of a core"
    return Finding(used < HALF_A_CORE, text)


def bare_echo_misses_it_too(goal: Goal, row: Row) -> Finding | None:
    """That echoes which go past the container's code, in the same process, miss the goal, too."""
    floor = replace(goal, peer=BARE).ratio(row.medians) if goal.versus else None
    if floor is None or goal.metric == "resident_mib":
        return None
    others = max(result.get("others", 0.0) for result in row.medians.values())
    text = f"echoes that go past the container's code have {floor:.2f}"
    return Finding(not goal.is_met(floor) and others <= FEW_OTHERS, text)


def rest_takes_too_long(goal: Goal, ratio: float, profile: Mapping[str, Result]) -> Finding | None:
    """That what is not the container's own code takes more processor time than the goal allows for all.

    The profile gives the share of that code in our processor time, the rounds of the row the ratio. It must be more by
    two standard errors of a share that is known from so many samples.
    """
    if goal.metric != "cpu_s_per_million" or goal.at_most is None or goal.peer not in profile:
        return None
    own = _share(profile[goal.peer], CONTAINER)
    rest = ratio * (1 - own)
    error = 2 * ratio * sqrt(own * (1 - own) / profile[goal.peer]["samples"])
    kernel = ", ".join(
        f"{_share(profile[name], KERNEL):.0%} of {name}'s" for name in (goal.peer, *goal.versus) if name in profile
    )
    text = (
        f"without one instruction of the container it would be {rest:.2f} +- {error:.2f}, as its code takes {own:.0%} "
        f"of the processor time; the kernel takes {kernel}"
    )
    return Finding(rest - error > goal.at_most, text)


def rest_is_too_slow(goal: Goal, row: Row, profile: Mapping[str, Result]) -> Finding | None:
    """That a message takes longer than the better peer's also without the processor time of the container's own code.

    Of the time that a message takes, or that a round trip takes in the middle, no more than that can go with the code:
    the service does one after the other.
    """
    is_rate = goal.metric == "per_second" and goal.at_least is not None
    is_trip = goal.metric == "p50_us" and goal.at_most is not None
    if not (is_rate or is_trip) or not goal.versus or goal.peer not in profile:
        return None

    def micros(name: str) -> float:
        value = row.medians[name][goal.metric]
        return 1e6 / value if is_rate else value

    ours, theirs = micros(goal.peer), micros(_better(goal, row))
    own, samples = _share(profile[goal.peer], CONTAINER), profile[goal.peer]["samples"]
    # Seconds per million messages are microseconds per message.
    most = (own + 2 * sqrt(own * (1 - own) / samples)) * row.medians[goal.peer]["cpu_s_per_million"]
    if most >= ours:
        return None
    best = theirs / (ours - most) if is_rate else (ours - most) / theirs
    text = (
        f"without one instruction of the container, which takes at most {_shown(most)} of the {_shown(ours)} us of a "
        f"message, it would be {best:.2f}"
    )
    return Finding(not goal.is_met(best), text)


def _share(parts: Result, part: str) -> float:
    return parts[part] / parts["cpu_s_per_million"]


def interpreter_is_too_large(goal: Goal, row: Row, interpreter_mib: float | None) -> Finding | None:
    """That the bare interpreter alone has more resident memory than the goal allows for all."""
    if goal.metric != "resident_mib" or goal.at_most is None or interpreter_mib is None:
        return None
    ours = row.medians[goal.peer][goal.metric]
    allowed = goal.at_most * row.medians[_better(goal, row)][goal.metric]
    text = (
        f"{ours:.1f} MiB, of which the bare interpreter {interpreter_mib:.1f} and all else "
        f"{ours - interpreter_mib:.1f}; the goal leaves {allowed - interpreter_mib:.1f} for all else"
    )
    return Finding(interpreter_mib > allowed, text)


def python_takes_too_long(goal: Goal, row: Row) -> Finding | None:
    """That the interpreter's own time and the time of the container with a service in Cython exceed the peer's.

    Where that container alone is slower than the peer in each of its rounds the sum says nothing about the interpreter.
    """
    medians, metric = row.medians, goal.metric
    if goal.peer != "python" or not {PYTHON_ALONE, "cython", *goal.versus} <= medians.keys():
        return None

    def seconds(value: float) -> float:
        return 1 / value if goal.at_least is not None else value

    theirs = min(seconds(medians[name][metric]) for name in goal.versus)
    slowest = max(seconds(result[metric]) for name in goal.versus for result in row.results[name])
    container, python = seconds(medians["cython"][metric]), seconds(medians[PYTHON_ALONE][metric])
    text = (
        f"of {' or '.join(goal.versus)}'s time Python alone takes {python / theirs:.2f}, the container with a service "
        f"in Cython {container / theirs:.2f}, together {(python + container) / theirs:.2f}"
    )
    return Finding(python + container > theirs and container <= slowest, text)


def memory_takes_too_long(goal: Goal, row: Row) -> Finding | None:
    """That as many lists in a chain become slower to find by so much that the rest of ours is flat."""
    counts = [name.partition(" ")[0] for name in (goal.peer, *goal.versus)]
    chains = [row.medians.get(f"{count} {LISTS}", {}).get(goal.metric) for count in counts]
    if len(chains) != 2 or None in chains or goal.at_most is None:
        return None
    most, fewest = (row.medians[name][goal.metric] for name in (goal.peer, *goal.versus))
    grown = (chains[0] or 0.0) - (chains[1] or 0.0)
    text = (
        f"from {fewest:.0f} to {most:.0f} ns, while the next of as many lists in a chain takes {grown:.0f} ns more: "
        f"without that {(most - grown) / fewest:.2f}"
    )
    return Finding((most - grown) / fewest <= goal.at_most, text)


def interpreter_recovers_too_slowly(goal: Goal, row: Row, interpreter_ns: float | None) -> Finding | None:
    """That the interpreter's own time and the recovery with a service in Cython exceed the peer's recovery.

    Where that recovery is slower than the peer's in each of its rounds the sum says nothing about the interpreter.
    """
    if interpreter_ns is None or goal.peer != "python" or "archive" not in row.name or "cython" not in row.medians:
        return None
    rates = [result[goal.metric] for name in goal.versus for result in row.results.get(name, [])]
    theirs = 1e9 / row.medians[_better(goal, row)][goal.metric]
    container = 1e9 / row.medians["cython"][goal.metric]
    text = (
        f"a callback in Python that counts takes {interpreter_ns:.0f} ns more than one in Cython, over memory, and the "
        f"recovery of a service in Cython {container:.0f} ns a message, together {interpreter_ns + container:.0f}; the "
        f"recovery of {' or '.join(goal.versus)} takes {theirs:.0f}"
    )
    return Finding(interpreter_ns + container > theirs and container <= 1e9 / min(rates), text)
