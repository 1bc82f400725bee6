"""The result of an audit: checks, their findings, and the overall verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

type State = Literal["pass", "warn", "fail"]

_ORDER: tuple[State, ...] = ("pass", "warn", "fail")
FINDING_LIMIT = 200
"""How many findings a check lists; ``finding_count`` has them all."""


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is not as it should be (fail), or that somebody should know (warn)."""

    state: State
    text: str
    member_id: int | None = None
    log_position: int | None = None


class Check(msgspec.Struct):
    """One question that the audit has asked, and what it found."""

    name: str
    summary: str
    findings: list[Finding] = []
    finding_count: int = 0
    state: State = "pass"


def check(name: str, summary: str, findings: Iterable[Finding], count: int | None = None) -> Check:
    """A check, whose state is the worst of its findings; ``count`` is how many there are, if these are not all."""
    ordered = sorted(findings, key=_place)
    total = len(ordered) if count is None else count
    return Check(name, summary, ordered[:FINDING_LIMIT], total, worst(finding.state for finding in ordered))


def worst(states: Iterable[State]) -> State:
    """The worst of some states; pass when there are none."""
    return max(states, key=_ORDER.index, default="pass")


def _place(finding: Finding) -> tuple[int, int, int]:
    """Worst first, then in the order of the log."""
    position = 2**63 if finding.log_position is None else finding.log_position
    return -_ORDER.index(finding.state), position, -1 if finding.member_id is None else finding.member_id
