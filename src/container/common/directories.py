"""Makes the directories that settings name."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from container.common.log_events import WaitLog
from container.common.values import shown_path
from container.errors import ClusterError, ConfigurationError, ContainerError

_POLL_S = 0.01
_PASSING = (
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EROFS,
    errno.ESTALE,
)
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
    """Raise ClusterError unless the directory of a setting is there; ConfigurationError if none is given.

    For main programs: a mistyped path, or a disk that is not mounted, must not begin an empty member.
    """
    given = given_directory(setting, directory)
    if not os.path.isdir(given):  # noqa: PTH112 - a text that may be no path
        _refuse_a_file_in_the_way(setting, given)
        raise ClusterError(
            f"{setting}={shown_path(directory)}: there is no such directory: correct the path, mount its disk, or make "
            "it with mkdir for a first start"
        )


def await_directory(setting: str, directory: str | None, timeout_ms: int) -> None:
    """The same for a directory that another process makes, which may start in the same moment: wait for it.

    Args:
        setting: its name.
        directory: what it says.
        timeout_ms: how long to wait at most, in milliseconds.

    Raises:
        ConfigurationError: no directory is given.
        ClusterError: it is not there in time.
    """
    end, wait_log = time.monotonic() + timeout_ms / 1000, WaitLog(setting)
    given = given_directory(setting, directory)
    while not os.path.isdir(given):  # noqa: PTH112 - a text that may be no path
        _refuse_a_file_in_the_way(setting, given)
        if time.monotonic() >= end:
            raise ClusterError(
                f"{setting}={shown_path(directory)}: there is no such directory after {timeout_ms} ms: correct the "
                "path, or start the node that makes it"
            )
        wait_log.tick(f"the node to make {shown_path(directory)}", time.monotonic_ns())
        time.sleep(_POLL_S)


def _refuse_a_file_in_the_way(setting: str, directory: str) -> None:
    """Raise ConfigurationError where there can never be such a directory, as a file has its name or a parent's."""
    for path in (Path(directory), *Path(directory).parents):
        if os.path.exists(path):  # noqa: PTH110 - raises nothing, whatever the text
            if not os.path.isdir(path):  # noqa: PTH112
                raise ConfigurationError(
                    f"{setting}={shown_path(directory)}: {shown_path(str(path))} is a file and no directory: correct "
                    "the path"
                )
            return


def removed_text(path: str) -> str:
    """Return why a part ends whose files were removed or moved while it used them: ``path`` leads to none any more."""
    return (
        f"{path} was removed or moved while it was in use, or the directory that it is in: what is written now would "
        "not be there for the next start; put the directory back, then start again"
    )


def created_directory(setting: str, directory: str) -> str:
    """The canonical path of the directory, which is made if it is not there.

    Raises what :func:`not_created` makes when it cannot be.
    """
    try:
        _make_directory(Path(directory))
        return os.path.realpath(directory, strict=True)
    except OSError as error:
        raise not_created(setting, directory, error) from error


def not_created(setting: str, directory: str, error: OSError) -> ContainerError:
    """Return the error that says why a directory cannot be made.

    Where another start may be able to, as the disk has no space now, it is a ClusterError, else a ConfigurationError.
    """
    what = f"{setting}={shown_path(directory)}: cannot be created: {error.strerror}"
    if error.errno in _PASSING:
        return ClusterError(f"{what}: repair its disk, then start again")
    return ConfigurationError(f"{what}: give a path where this user may make a directory")


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
