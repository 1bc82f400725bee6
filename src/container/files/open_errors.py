"""Errors of opening a member's files: each names the path and the fix."""

from __future__ import annotations

import errno
from pathlib import Path

from container.errors import RecordingUnavailableError

PERMISSION_ADVICE = "run as a user who may read it, or change its permissions"
PERMISSION_ERRORS = frozenset([errno.EACCES, errno.EPERM])


def unreadable(what: str, path: str | Path, error: OSError) -> RecordingUnavailableError:
    """Return the error for a file or directory that the system does not let us read."""
    advice = f"; {PERMISSION_ADVICE}" if error.errno in PERMISSION_ERRORS else ""
    return RecordingUnavailableError(f"{what} cannot be read: {error.strerror}{advice}", file=str(path))


def is_there(path: Path) -> bool:
    """Whether something has this path.

    Raises:
        OSError: unknown, because a directory on the way cannot be searched.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
