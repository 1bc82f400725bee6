"""Semantic versions packed into an int32, as the log and the mark file carry them: major << 16 | minor << 8 | patch."""

from __future__ import annotations

from container.common.values import shown
from container.errors import ConfigurationError

_PART_MAX = 255


def compose_version(major: int, minor: int, patch: int) -> int:
    """The version as one number. Raises ConfigurationError unless each part is from 0 to 255 and one is not 0."""
    parts = [int.__int__(part) if isinstance(part, int) else -1 for part in (major, minor, patch)]
    if not all(0 <= part <= _PART_MAX for part in parts) or not any(parts):
        raise ConfigurationError(
            f"version {shown(major)}.{shown(minor)}.{shown(patch)}: each part must be from 0 to {_PART_MAX}, "
            "and not all of them 0"
        )
    return parts[0] << 16 | parts[1] << 8 | parts[2]


def parse_version(text: str) -> int:
    """The number of a version such as ``1.2.3``. Raises ConfigurationError for any other text."""
    parts = text.strip().split(".") if isinstance(text, str) and text.isascii() else []
    if len(parts) != 3 or not all(part.isdigit() and len(part) <= 3 for part in parts):
        raise ConfigurationError(f"not a version: {shown(text)}; write major.minor.patch, such as 1.2.3")
    return compose_version(*map(int, parts))


def major_version(version: int) -> int:
    """The first part of a packed version."""
    return version >> 16 & 0xFF


def format_version(version: int) -> str:
    """A packed version as text, such as ``1.2.3``."""
    return f"{major_version(version)}.{version >> 8 & 0xFF}.{version & 0xFF}"


def is_version_compatible(context_version: int, other_version: int) -> bool:
    """The default ``app_version_validator``: versions are compatible when their majors are equal.

    Args:
        context_version: the packed version of this service.
        other_version: that of the snapshot or the leadership term.
    """
    return major_version(context_version) == major_version(other_version)
