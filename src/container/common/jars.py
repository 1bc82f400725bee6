"""Fetch a jar by its Maven name, with its checksum verified, into a cache of our own."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from container.common.java import INSTALL_HINT, JavaError

_log = logging.getLogger(__name__)


class Jar(NamedTuple):
    """A jar that Maven repositories have, and what its bytes are."""

    group_id: str
    artifact_id: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """Its name as Maven writes it."""
        return f"{self.group_id}:{self.artifact_id}:{self.version}"

    @property
    def path(self) -> Path:
        """Where the cache has it."""
        return cache_directory() / "jars" / f"{self.artifact_id}-{self.version}.jar"


def cache_directory() -> Path:
    """Return where fetched jars are kept, below ``XDG_CACHE_HOME`` or ``~/.cache``; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aeron-cluster-container"


def resolve(jar: Jar) -> Path:
    """Return the path of a jar in our cache, fetched at first use.

    The checksum is verified on every call; a file that fails it is deleted and fetched once more. Several processes may
    call this at once: a jar appears under its name only when it is complete.

    Raises:
        JavaError: the package jgo is not installed; the jar cannot be fetched, or fails its checksum twice.
    """
    path = jar.path
    if path.is_file():
        if _sha256(path) == jar.sha256:
            return path
        _log.warning("%s fails its checksum; fetching it again", path)
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    actual = ""
    for _attempt in range(2):
        # Fetched beside its place and renamed: another process sees the whole jar or none.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as directory:
            fetched = _fetch(jar, Path(directory))
            actual = _sha256(fetched)
            if actual == jar.sha256:
                return fetched.replace(path)
        _log.warning("what was fetched as %s fails its checksum", jar.coordinates)
    raise JavaError(
        f"{jar.coordinates} was fetched twice and has SHA-256 {actual} instead of {jar.sha256}; "
        f"check what serves Maven artifacts here, or put the right jar at {path}"
    )


def _fetch(jar: Jar, directory: Path) -> Path:
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise JavaError(f"fetching {jar.coordinates} needs the package jgo; run: {INSTALL_HINT}") from error
    try:
        project = MavenContext(repo_cache=directory).project(jar.group_id, jar.artifact_id)
        return Path(project.at_version(jar.version).artifact().resolve())
    except Exception as error:
        raise JavaError(
            f"cannot fetch {jar.coordinates}: {error}. Check the network, or put the jar at {jar.path}"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
