"""Verdicts: whether a peer is ahead of its goal, level with it or behind, by the interval of its ratio over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, inf, log, sqrt
from statistics import fmean, median, stdev

type Result = dict[str, float]
"""The values that one round of one peer measured, by metric."""

# Student's t for a two-sided interval of 95 %, by degrees of freedom from 1 on.
_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL = 1.960


class Word(StrEnum):
    """Where a peer stands beside its goal."""

    AHEAD = "ahead"
    LEVEL = "level"
    BEHIND = "behind"


@dataclass(frozen=True)
class Goal:
    """That a metric of one of our peers, as a ratio to another peer or absolute, is at least or at most a number.

    With several peers in ``versus`` the better one counts: the greater median for ``at_least``, else the smaller.
    Exactly one of ``at_least`` and ``at_most`` is given.
    """

    peer: str
    metric: str
    versus: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        sign, limit = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        other = f" / {' or '.join(self.versus)}" if self.versus else ""
        return f"{self.metric} {self.peer}{other} {sign} {limit:g}"


@dataclass(frozen=True)
class Verdict:
    """A goal, the ratio with the bounds of its 95 % interval, and the word that follows from them."""

    goal: Goal
    ratio: float
    low: float
    high: float
    word: Word

    def __str__(self) -> str:
        spread = f" ({self.low:,.3f} to {self.high:,.3f})" if self.high < inf else " (one round)"
        return f"{self.word:6} {self.goal}: {self.ratio:,.3f}{spread}"


def judge(goal: Goal, results: Mapping[str, Sequence[Result]]) -> Verdict | None:
    """The verdict on a goal by the rounds of each peer; None where its peers did not run.

    Each round gives a ratio. The word compares the interval of their mean with the goal: ahead where all of it is on
    the good side, behind where all of it is on the bad side, else level. A single round is always level.
    """
    if not (ratios := _ratios(goal, results)):
        return None
    ratio, low, high = interval(ratios)
    limit, sign = (goal.at_least, 1) if goal.at_least is not None else (goal.at_most, -1)
    assert limit is not None
    worst, best = sorted((sign * low, sign * high))
    word = Word.AHEAD if worst > sign * limit else Word.BEHIND if best < sign * limit else Word.LEVEL
    return Verdict(goal, ratio, low, high, word)


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of positive ratios and the bounds of its 95 % interval: Student's t of the logarithms."""
    logarithms = [log(ratio) for ratio in ratios]
    mean, degrees = fmean(logarithms), len(ratios) - 1
    if degrees == 0:
        return exp(mean), 0.0, inf
    t = _STUDENT_T[degrees - 1] if degrees <= len(_STUDENT_T) else _NORMAL
    width = t * stdev(logarithms) / sqrt(len(ratios))
    return exp(mean), exp(mean - width), exp(mean + width)


def _ratios(goal: Goal, results: Mapping[str, Sequence[Result]]) -> list[float]:
    """One ratio for each round, or the metric itself where the goal is absolute.

    Rounds are paired, as the peers of a round run one after the other. When one failed in some, the others' median
    stands for its rounds.
    """

    def of(name: str) -> list[float]:
        return [result[goal.metric] for result in results.get(name, ()) if goal.metric in result]

    ours = of(goal.peer)
    if not goal.versus:
        return ours
    pick = max if goal.at_least is not None else min
    ran = [values for name in goal.versus if (values := of(name))]
    if not ours or not ran:
        return []
    theirs = pick(ran, key=median)
    if len(theirs) != len(ours):
        theirs = [median(theirs)] * len(ours)
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]
