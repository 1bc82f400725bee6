"""Durations and sizes as texts in the largest unit in which they are whole numbers, as Aeron writes them."""

from __future__ import annotations

SIZE_FACTORS = {"g": 1024**3, "m": 1024**2, "k": 1024, "": 1}
"""Units of sizes as texts have them, in bytes; no unit, which every text ends with, is the last."""


def format_duration(duration_ns: int) -> str:
    """A duration, such as ``100ms``."""
    return _in_largest_unit(duration_ns, {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1})


def format_size(size: int) -> str:
    """A size in bytes, such as ``1m``."""
    return _in_largest_unit(size, SIZE_FACTORS)


def _in_largest_unit(value: int, units: dict[str, int]) -> str:
    unit, factor = next(item for item in units.items() if item[1] == 1 or (value and value % item[1] == 0))
    return f"{value // factor}{unit}"
