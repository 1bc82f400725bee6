"""Where the files of a node are, from the directory that an operator names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from container.common.regular_files import read_regular
from container.common.values import is_path, shown
from container.errors import ConfigurationError
from container.files.names import CATALOG_NAME, NODE_STATE_NAME, RECORDING_LOG_NAME
from container.operate.answers import NoFactsError

MARK_FILE = "cluster-mark.dat"
_LINK_FILE = "cluster-mark.lnk"
_ARCHIVE_MARK_FILE, _ARCHIVE_LINK_FILE = "archive-mark.dat", "archive-mark.lnk"
_CLUSTER_FILES = (MARK_FILE, _LINK_FILE, RECORDING_LOG_NAME, NODE_STATE_NAME)
_SERVICE_PREFIX, _DATA_SUFFIX, _LINK_SUFFIX = "cluster-mark-service-", ".dat", ".lnk"
_LINK_LENGTH_MAX = 16 * 1024


def directory_of_environment(variables: Sequence[str]) -> Path:
    """Return the directory that the first of some environment variables names.

    Raises:
        ConfigurationError: none is set, or it has what is not a path.
    """
    for variable in variables:
        text = os.environ.get(variable)
        if text:
            if not is_path(text):
                raise ConfigurationError(f"{variable}={shown(text)}: must be a path in UTF-8, without NUL")
            return Path(text)
    raise ConfigurationError(f"name a directory, or set {' or '.join(variables)}")


def find_cluster_dir(path: Path) -> Path:
    """Return the cluster directory that is at a path, or the only one right below it.

    Raises:
        NoFactsError: there is none, there are several, or it cannot be looked into.
    """
    return _find(path, _CLUSTER_FILES, "the directory of a cluster")


def find_archive_dir(path: Path) -> Path:
    """Return the archive's directory at a path, or the only one right below it.

    Raises:
        NoFactsError: as :func:`find_cluster_dir`.
    """
    return _find(path, (CATALOG_NAME,), "the directory of an archive")


def archive_dir_beside(cluster_dir: Path) -> Path:
    """Return the archive's directory that is at a cluster's or beside it, or the only one right below one of these.

    Raises:
        NoFactsError: there is none.
    """
    for place in (cluster_dir, cluster_dir.parent):
        with suppress(NoFactsError):
            return find_archive_dir(place)
    raise NoFactsError(f"{cluster_dir} has no directory of an archive in it or beside it")


def _find(path: Path, names: tuple[str, ...], what: str) -> Path:
    try:
        if not path.is_dir():
            reason = "is not a directory" if path.exists() else "does not exist"
            raise NoFactsError(f"{path} {reason}")
        if _has_one(path, names):
            return path
        found = [each for each in sorted(path.iterdir()) if each.is_dir() and _has_one(each, names)]
    except OSError as error:
        raise unreadable(path, error) from error
    if len(found) > 1:
        raise NoFactsError(f"{path} contains several: name one of {', '.join(each.name for each in found)}")
    if not found:
        missing = f"none of {', '.join(names)}" if len(names) > 1 else f"no {names[0]}"
        raise NoFactsError(f"{path} is not {what}: it has {missing}, nor has a directory right below it")
    return found[0]


def _has_one(directory: Path, names: tuple[str, ...]) -> bool:
    for name in names:
        try:
            (directory / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        return True
    return False


def unreadable(path: Path, error: OSError) -> NoFactsError:
    """Return the error for what the system does not let us read."""
    reason = error.strerror or str(error)
    name = error.filename if isinstance(error.filename, str) else path
    return NoFactsError(f"{name} cannot be read: {reason[0].lower()}{reason[1:]}")


def mark_file_of(cluster_dir: Path) -> Path:
    """Return the path of the mark file of a consensus module or a backup, which may lie elsewhere.

    Raises:
        NoFactsError: the link to it cannot be read.
    """
    return _linked(cluster_dir / _LINK_FILE, MARK_FILE) or cluster_dir / MARK_FILE


def archive_mark_file_of(archive_dir: Path) -> Path:
    """Return the path of the mark file of an archive, which may lie elsewhere.

    Raises:
        NoFactsError: the link to it cannot be read.
    """
    return _linked(archive_dir / _ARCHIVE_LINK_FILE, _ARCHIVE_MARK_FILE) or archive_dir / _ARCHIVE_MARK_FILE


def service_mark_files(directory: Path) -> Iterator[Path]:
    """Yield the mark files of services that are in a directory or linked from it, by service.

    Raises:
        NoFactsError: the directory or a link cannot be read.
    """
    try:
        names = [each.name for each in directory.iterdir() if each.name.startswith(_SERVICE_PREFIX)]
    except OSError as error:
        raise unreadable(directory, error) from error
    stems = {Path(name).stem for name in names if name.endswith((_DATA_SUFFIX, _LINK_SUFFIX))}
    for stem in sorted(stems, key=lambda each: (len(each), each)):
        file = stem + _DATA_SUFFIX
        yield _linked(directory / (stem + _LINK_SUFFIX), file) or directory / file


def _linked(link: Path, name: str) -> Path | None:
    """The file that a link file names by its directory; None without a link."""
    try:
        text = read_regular(link, _LINK_LENGTH_MAX).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(link, error) from error
    except ValueError as error:
        raise NoFactsError(f"{link} has no path of a directory in ASCII") from error
    if not text or "\0" in text:
        raise NoFactsError(f"{link} names no directory")
    return Path(text, name)
