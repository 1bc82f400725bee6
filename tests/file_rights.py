"""Access rights of the files that a start creates."""

from __future__ import annotations

import stat
from pathlib import Path


def mode(path: Path) -> int:
    """The permissions of a file or directory."""
    return stat.S_IMODE(path.stat().st_mode)


def for_others(*places: Path) -> list[str]:
    """Everything in these places that another user can reach and read or write, or look into."""
    found = []
    for place in places:
        for path in (place, *place.rglob("*")):
            above = [each for each in path.parents if each.is_relative_to(place)]
            if mode(path) & 0o007 and all(mode(each) & 0o001 for each in above):
                found.append(f"{path} {mode(path):o}")
    return found
