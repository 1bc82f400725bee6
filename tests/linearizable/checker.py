"""Builds the checker, a program of Go around Porcupine, and runs it on histories.

It is built once for each version of its sources, into ``build/linearizable``. Go fetches Porcupine from its proxy, by
``GOPROXY`` of the environment; ``go.sum`` has its hash.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "porcupine"
BUILD = ROOT / "build" / "linearizable"
LIMIT_S = 60.0
"""For a verdict; then it is unknown."""
_BUILD_LIMIT_S = 600.0
_OUTCOMES: dict[int, Outcome] = {0: "ok", 1: "illegal", 3: "unknown"}

type Outcome = Literal["ok", "illegal", "unknown"]


class NoCheckerError(Exception):
    """This machine cannot build the checker; the text says why."""


class Verdict(NamedTuple):
    """The checker's verdict on a history."""

    outcome: Outcome
    text: str
    """As it is printed: counts, and the history of the smallest key that is illegal."""


def build() -> Path:
    """Build the checker unless it is there, and return its path.

    Raises:
        NoCheckerError: there is no Go, or no Porcupine to be had.
        RuntimeError: the sources do not compile.
    """
    sources = [SOURCES / name for name in ("go.mod", "go.sum", "main.go")]
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources)).hexdigest()
    target = BUILD / digest[:16] / "checker"
    if target.exists():
        return target
    if shutil.which("go") is None:
        raise NoCheckerError("go is not on PATH: install Go 1.21 or later (apt install golang)")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _go("mod", "download")
    except RuntimeError as error:
        raise NoCheckerError(f"Porcupine cannot be fetched: {error}") from None
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        made = Path(directory, "checker")
        _go("build", "-buildvcs=false", "-trimpath", "-o", str(made), ".")
        made.replace(target)  # whole, also for others that build it now
    return target


def _go(*arguments: str) -> None:
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    found = subprocess.run(
        ["go", *arguments], cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=_BUILD_LIMIT_S
    )
    if found.returncode:
        raise RuntimeError(f"go {' '.join(arguments)}: {found.stderr.strip()}")


def check(path: Path, *, limit_s: float = LIMIT_S, lines: int = 40) -> Verdict:
    """Check the history of a file.

    Args:
        path: of the file.
        limit_s: seconds for the verdict, and again for the part of an illegal history that is shown.
        lines: most operations to show of an illegal history.

    Raises:
        NoCheckerError: as :func:`build`.
        ValueError: it is not a history; the text names the line.
    """
    command = [str(build()), "-seconds", str(limit_s), "-lines", str(lines), str(path)]
    found = subprocess.run(command, capture_output=True, text=True)
    outcome = _OUTCOMES.get(found.returncode)
    if outcome is None:
        raise ValueError(f"{path}: {found.stderr.strip()}")
    return Verdict(outcome, found.stdout.strip())
