"""Seeds of simulations: a few that are always the same, and some that each commit draws again."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path


@cache
def commit() -> str:
    """The commit that is checked out; empty outside of a repository."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def drawn(purpose: str, count: int) -> list[int]:
    """As many seeds as that: the same for a commit and a purpose, on each machine and in each run."""
    digest = hashlib.sha256(f"{commit()} {purpose}".encode()).digest()
    first = 1_000_000 + int.from_bytes(digest[:6]) % 1_000_000_000
    return list(range(first, first + count))
