"""Arrow, imported when it is first used, as only readers of rows need it: its types, and timestamps as times."""

from __future__ import annotations

from types import ModuleType
from typing import Any

TICKS_PER_SECOND = {"MILLIS": 1_000, "MICROS": 1_000_000, "NANOS": 1_000_000_000}
"""How many units of cluster time a second has."""

_MICROS_PER_SECOND = 1_000_000
# Seconds of 0001-01-01 and of 10000-01-01: Spark and Python have no other dates.
_FIRST_S, _END_S = -62_135_596_800, 253_402_300_800


def import_pyarrow() -> ModuleType:
    """Return the module ``pyarrow``.

    Raises:
        ImportError: it is not installed; the text says how to get it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            'reading recordings needs pyarrow: pip install "aeron-cluster-container[recordings]"'
        ) from error
    module: ModuleType = pyarrow
    return module


def arrow_type(name: str) -> Any:
    """Return Arrow's type by the name that the views have for it; ``timestamp`` has microseconds and UTC."""
    arrow = import_pyarrow()
    return arrow.timestamp("us", tz="UTC") if name == "timestamp" else arrow.type_for_alias(name)


def as_times(timestamps: Any, unit: str) -> Any:
    """Return timestamps (int64) as times in UTC with microseconds; those outside the years 1 to 9999 are null.

    Nanoseconds are rounded down. A service with a clock of its own, or damage, may have any timestamp.
    """
    arrow = import_pyarrow()
    import pyarrow.compute as pc

    kind = arrow.timestamp("us", tz="UTC")
    ticks = TICKS_PER_SECOND[unit]
    if len(timestamps) == 0:
        return arrow.nulls(0, kind)
    first, last = max(_FIRST_S * ticks, -(2**63)), min(_END_S * ticks - 1, 2**63 - 1)
    extremes = pc.min_max(timestamps).as_py()
    if extremes["min"] is not None and not (first <= extremes["min"] and extremes["max"] <= last):
        is_inside = pc.and_(pc.greater_equal(timestamps, first), pc.less_equal(timestamps, last))
        timestamps = pc.if_else(is_inside, timestamps, None)
    if ticks < _MICROS_PER_SECOND:
        timestamps = pc.multiply(timestamps, _MICROS_PER_SECOND // ticks)
    elif ticks > _MICROS_PER_SECOND:
        timestamps = _floor_divided(timestamps, ticks // _MICROS_PER_SECOND)
    return timestamps.view(kind)


def _floor_divided(values: Any, divisor: int) -> Any:
    import pyarrow.compute as pc

    quotients = pc.divide(values, divisor)  # towards zero
    is_above = pc.greater(pc.multiply(quotients, divisor), values)
    return pc.subtract(quotients, is_above.cast(values.type))
