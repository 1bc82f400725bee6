"""Makes the directories that settings name."""

from __future__ import annotations

import os
from pathlib import Path

from container.common.values import shown_path
from container.errors import ConfigurationError

_DIRECTORY_MODE = 0o750  # others may not write: who can remove a mark file decides who may start


def given_directory(setting: str, directory: str | None) -> str:
    """The directory of a setting that must be given; raises ConfigurationError where it is not."""
    if not directory:
        raise ConfigurationError(
            f"{setting} must be given: by keyword, option --{setting.replace('_', '-')}, variable "
            f"AERON_{setting.upper()} or config file"
        )
    return directory


def check_is_there(setting: str, directory: str | None) -> None:
    """Raise ConfigurationError unless the directory of a setting is there.

    For main programs: a mistyped path, or a disk that is not mounted, must not begin an empty member.
    """
    if not os.path.isdir(given_directory(setting, directory)):  # noqa: PTH112 - a text that may be no path
        raise ConfigurationError(
            f"{setting}={shown_path(directory)}: there is no such directory: correct the path, mount its disk, or make "
            "it with mkdir for a first start"
        )


def created_directory(setting: str, directory: str) -> str:
    """The canonical path of the directory, which is made if it is not there.

    Raises ConfigurationError, which names the setting, when it cannot be.
    """
    try:
        _make_directory(Path(directory))
        return os.path.realpath(directory, strict=True)
    except OSError as error:
        raise ConfigurationError(
            f"{setting}={shown_path(directory)}: cannot be created: {error.strerror}: give a path where this user may "
            "make a directory"
        ) from error


def _make_directory(path: Path) -> None:
    """Make the directory and what it lies in; os.makedirs would make parents that everybody may write."""
    missing = [path]
    while not (parent := missing[-1].parent).exists():
        missing.append(parent)
    for each in reversed(missing):
        try:
            each.mkdir(_DIRECTORY_MODE)
        except FileExistsError:
            if not each.is_dir():
                raise
        else:
            _force_names(each.parent)


def _force_names(directory: Path) -> None:
    """Wait until what was made in a directory is on the disk; whoever may write there and not read does without."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
