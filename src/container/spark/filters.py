"""Spark's filters as filters of recordings: what they allow of positions, times, templates and terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from container.recordings import LOG_VIEWS, Filters

_MIN, _MAX = -(2**63), 2**63 - 1


class _Range:
    """The integers that a column may have: from ``first`` to ``last``, and only those of ``values`` if there are."""

    def __init__(self) -> None:
        self.first = _MIN
        self.last = _MAX
        self.values: frozenset[int] | None = None

    def allow(self, first: int, last: int) -> None:
        self.first = max(self.first, first)
        self.last = min(self.last, last)

    def allow_only(self, values: Iterable[int]) -> None:
        chosen = frozenset(values)
        self.values = chosen if self.values is None else self.values & chosen
        # An empty set lets nothing through, and so does a range without numbers.
        self.allow(min(chosen, default=_MAX), max(chosen, default=_MIN))

    @property
    def is_empty(self) -> bool:
        return self.first > self.last or self.allowed_values() == frozenset()

    def allowed_values(self) -> frozenset[int] | None:
        """The single values that are left, or None when these are not listed."""
        if self.values is None:
            return None
        return frozenset(value for value in self.values if self.first <= value <= self.last)


def narrow(view: str, filters: Sequence[Filter]) -> Filters | None:
    """The part of a view that may pass all the filters; None when nothing can.

    Filters on other columns than ``log_position``, ``timestamp``, ``template_id`` and ``leadership_term_id``, and of
    other kinds than comparisons with integers, do not narrow it, nor do those on times of frames: Spark evaluates all
    filters again.
    """
    if view not in LOG_VIEWS:
        return Filters()
    names = ("log_position", "timestamp", "template_id", "leadership_term_id")
    ranges = {name: _Range() for name in names}
    known = ("log_position", "leadership_term_id") if view == "frames" else names
    for one in filters:
        name = _column(one)
        if name in known:
            _apply(ranges[name], one)
    if any(column.is_empty for column in ranges.values()):
        return None
    position, time = ranges["log_position"], ranges["timestamp"]
    return Filters(
        begin_position=None if position.first == _MIN else position.first - 1,
        # One more than the last: what is damaged at the last position begins there, and lies before the end.
        end_position=None if position.last == _MAX else position.last + 1,
        begin_timestamp=None if time.first == _MIN else time.first,
        end_timestamp=None if time.last == _MAX else time.last + 1,
        template_ids=_templates(ranges["template_id"]),
        leadership_term_ids=ranges["leadership_term_id"].allowed_values(),
    )


def _templates(column: _Range) -> frozenset[int] | None:
    values = column.allowed_values()
    return None if values is None else frozenset(value for value in values if 0 <= value <= 0xFFFF)


def _column(one: Filter) -> str:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _apply(column: _Range, one: Filter) -> None:
    value: Any = getattr(one, "value", None)
    if isinstance(one, In):
        if all(_is_integer(item) for item in one.value):
            column.allow_only(one.value)
    elif not _is_integer(value):
        return
    elif isinstance(one, EqualTo | EqualNullSafe):
        column.allow_only([value])
    elif isinstance(one, GreaterThan):
        column.allow(value + 1, _MAX)
    elif isinstance(one, GreaterThanOrEqual):
        column.allow(value, _MAX)
    elif isinstance(one, LessThan):
        column.allow(_MIN, value - 1)
    elif isinstance(one, LessThanOrEqual):
        column.allow(_MIN, value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
