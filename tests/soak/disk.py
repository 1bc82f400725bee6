"""A disk of a few MiB that can be full: a tmpfs, mounted over a directory. Linux, as root."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

_COMMAND_LIMIT_S = 30
_BALLAST = "ballast"
_BLOCK = bytes(64 * 1024)


def unavailable_reason() -> str | None:
    """Why no such disk can be made on this machine, in one sentence; None when it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("mount") is None:
        return "a small disk needs Linux, root and the program mount"
    return None


class SmallDisk:
    """A file system of its own at ``path``, until :meth:`close`."""

    def __init__(self, path: Path, size_mib: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "aeron-test", str(path))

    def fill(self, leaving: int = 0) -> None:
        """Uses up all space but for ``leaving`` bytes."""
        free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
        count = max(0, free - leaving)
        with (self.path / _BALLAST).open("ab", buffering=0) as file:
            while count > 0:
                try:
                    count -= file.write(_BLOCK[:count])
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def free(self) -> None:
        """Gives the space back that :meth:`fill` took."""
        (self.path / _BALLAST).unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes all files, and keeps the file system."""
        for path in self.path.iterdir():
            path.unlink()

    def close(self) -> None:
        """Unmounts it, with all that is in it."""
        _run("umount", "--lazy", str(self.path))


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False)
    if result.returncode != 0:
        raise OSError(f"{' '.join(command)}: {result.stderr.strip()}")
