"""Types of the command line's arguments: each refuses what it cannot be, before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from container.common.values import is_path, shown, whole_number

_MAX_S = 1_000_000_000


def number(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """A whole number in this range."""

    def parse(text: str) -> int:
        value = whole_number(text.strip())
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{shown(text)}: must be a whole number from {least} to {most}")
        return value

    return parse


def seconds(text: str) -> float:
    """A time in seconds, more than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MAX_S:  # nor is NaN
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a number of seconds, more than 0 and up to {_MAX_S}")
    return value


def path(text: str) -> Path:
    """The path of a file or directory."""
    if not is_path(text):
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be a path in UTF-8, without NUL")
    return Path(text)
