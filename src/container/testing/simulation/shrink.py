"""Makes a failing plan short: each step is kept if a run of it still fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from container.testing.simulation.plan import FAULTS, LEADER, OPERATIONS, Plan

_PLAIN = Plan()
# Tried instead of the plan's values: a world in which little depends on chance.
_SIMPLER_WORLDS: tuple[dict[str, Any], ...] = (
    {"cut_rate": 0.0},
    {"latency_us": (50, 50), "turn_us": (2, 2), "module_us": (5, 5)},
    {"clock_offsets_ms": ()},
    {"time_unit": _PLAIN.time_unit},
    {"term_length": _PLAIN.term_length, "mtu_length": _PLAIN.mtu_length},
    {"log_fragment_limit": _PLAIN.log_fragment_limit},
)


def shrink(
    plan: Plan, fails: Callable[[Plan], bool], *, runs: int = 300, limit_s: float = 60.0, last_ms: float | None = None
) -> Plan:
    """Return a shorter plan for which ``fails(plan)`` is true still.

    It stops after so many ``runs`` of a plan, or after ``limit_s`` seconds. ``last_ms`` is when the run failed: what is
    due later is tried without first.
    """
    return _Shrinking(plan, fails, runs, limit_s).run(last_ms)


class _Shrinking:
    def __init__(self, plan: Plan, fails: Callable[[Plan], bool], runs: int, limit_s: float) -> None:
        self._plan = plan
        self._fails = fails
        self._runs_left = runs
        self._end_s = time.monotonic() + limit_s

    def run(self, last_ms: float | None) -> Plan:
        if last_ms is not None:
            self._try_events([event for event in self._plan.events if event.at <= last_ms])
        before = None
        while before != self._plan and self._may_go_on():
            before = self._plan
            for kind in (*FAULTS, *OPERATIONS):
                self._try_events([event for event in self._plan.events if not isinstance(event, kind)])
            self._drop_events()
            for members in (1, 3):
                if members < self._plan.members:
                    self._try(members=members, events=tuple(_with_members(self._plan.events, members)))
            for world in _SIMPLER_WORLDS:
                self._try(**world)
            self._simplify_events()
        return self._plan

    def _may_go_on(self) -> bool:
        return self._runs_left > 0 and time.monotonic() < self._end_s

    def _try(self, **changes: Any) -> bool:
        shorter = msgspec.structs.replace(self._plan, **changes)
        if shorter == self._plan or not self._may_go_on():
            return False
        self._runs_left -= 1
        if not self._fails(shorter):
            return False
        self._plan = shorter
        return True

    def _try_events(self, events: Sequence[Any]) -> bool:
        return len(events) < len(self._plan.events) and self._try(events=tuple(events))

    def _drop_events(self) -> None:
        """Leave out runs of events, from half of all down to one (delta debugging)."""
        size = max(len(self._plan.events) // 2, 1)
        while size > 0 and self._may_go_on():
            at = 0
            while at < len(self._plan.events):
                events = self._plan.events
                if not self._try_events(events[:at] + events[at + size :]):
                    at += size
            size //= 2

    def _simplify_events(self) -> None:
        for index in range(len(self._plan.events)):
            for changes in _simpler(self._plan.events[index]):
                events = self._plan.events
                event = msgspec.structs.replace(events[index], **changes)
                if self._try(events=(*events[:index], event, *events[index + 1 :])):
                    break


def _simpler(event: Any) -> Iterator[dict[str, Any]]:
    for name in ("duration", "down"):
        value = getattr(event, name, 0)
        if value > 1:
            yield {name: 1}
            yield {name: value // 2}
    results = getattr(event, "results", ())
    if len(results) > 1:
        yield {"results": results[: len(results) // 2]}
    payload = getattr(event, "payload", b"")
    if len(payload) > 8:
        yield {"payload": payload[:8]}
        yield {"payload": payload[: len(payload) // 2]}


def _with_members(events: Sequence[Any], members: int) -> Iterator[Any]:
    for event in events:
        member = getattr(event, "member", LEADER)
        yield msgspec.structs.replace(event, member=member % members) if member != LEADER else event
