"""Whether the process that a file names still runs, or another one has its number now."""

from __future__ import annotations

import os
from pathlib import Path

_PID_MAX = 2**31 - 1
_MS_PER_S = 1000
# A clock that was set, and the time between a start and what is written about it.
_SLACK_MS = 2000


def process_state(pid: int, known_since_ms: int) -> str:
    """Return ``alive``, ``gone``, ``reused`` or ``unknown``.

    Args:
        pid: of the process.
        known_since_ms: when it was running for certain (epoch milliseconds): one that began later is another one.
    """
    if not 0 < pid <= _PID_MAX:
        return "unknown"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass  # it runs, as another user
    began_ms = _began_ms(pid)
    if began_ms is None:
        return "alive" if _has_no_proc() else "gone"
    return "reused" if began_ms > known_since_ms + _SLACK_MS else "alive"


def _has_no_proc() -> bool:
    return not Path("/proc/self/stat").exists()


def _began_ms(pid: int) -> int | None:
    """When a process began; None where the system does not say, and for one that has ended and was not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        system = Path("/proc/stat").read_text(encoding="ascii", errors="replace")
        boot_s = int(system.partition("\nbtime ")[2].split()[0])
        if fields[0] == "Z":
            return None
        return boot_s * _MS_PER_S + int(fields[19]) * _MS_PER_S // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
