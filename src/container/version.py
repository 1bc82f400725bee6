"""The version of this package, as it is shown to the driver, the archive and the cluster."""

from __future__ import annotations

from functools import cache
from pathlib import Path

# The build reads it from here.
VERSION = "0.1.0"

AERON_VERSION = "1.51.0"
"""The release of Aeron whose files and messages are read and written."""


def client_info(name: str) -> str:
    """The text that a client sends about itself when it connects: ``name=<name> version=<version>``."""
    return f"name={name} version={VERSION}"


def version_info() -> str:
    """The part of a counter's label about its owner, as upstream: ``version=<version> commit=<hash>``."""
    return f"version={VERSION} commit={_source_commit()}"


@cache
def _source_commit() -> str:
    """Hash of the commit that was checked out where this file lies; ``unknown`` outside of a clone."""
    git = Path(__file__).resolve().parents[2] / ".git"
    try:
        head = _read_line(git, "HEAD")
        name = head.removeprefix("ref: ")
        return _read_line(git, name) if name != head else head
    except (OSError, ValueError):
        return "unknown"


def _read_line(directory: Path, name: str) -> str:
    return (directory / name).read_text(encoding="ascii").strip()
