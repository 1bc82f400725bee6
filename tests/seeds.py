"""Seeds of simulations: a few that are always the same, and some that each commit, or each day, draws again."""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

DAY = "RUN_DAY"
"""The variable of the environment with the day whose seeds are drawn again, such as 2026-11-30."""


@cache
def day() -> str:
    """The day whose seeds are drawn: today, or that of :data:`DAY`."""
    named = os.environ.get(DAY, "")
    return date.fromisoformat(named).isoformat() if named else datetime.now(UTC).date().isoformat()


@cache
def commit() -> str:
    """The commit that is checked out; empty outside of a repository."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def drawn(purpose: str, count: int) -> list[int]:
    """As many seeds as that: the same for a commit and a purpose, on each machine and in each run."""
    return _from(f"{commit()} {purpose}", count)


def of_day(purpose: str, count: int) -> list[int]:
    """As many seeds as that: the same for a day and a purpose, on each machine and for each commit."""
    return _from(f"{day()} {purpose}", count)


def _from(text: str, count: int) -> list[int]:
    digest = hashlib.sha256(text.encode()).digest()
    first = 1_000_000 + int.from_bytes(digest[:6]) % 1_000_000_000
    return list(range(first, first + count))
