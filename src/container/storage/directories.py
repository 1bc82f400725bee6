"""The directories that settings name, on whatever storage they are."""

from __future__ import annotations

from contextlib import suppress

from container.common.directories import created_directory, given_directory, not_created
from container.storage.file_storage import FileStorage
from container.storage.storage_seam import Storage


def concluded_directory(storage: Storage, setting: str, path: str | None) -> str:
    """The path by which files of the directory are opened; it is made if it is not there, and canonical among files.

    Its name is on the disk then, without which none of its files is there after a cut of the power; also that of one
    that is there, as a process that was killed may have made it. Where its parent may not be read, its owner has made
    it long ago.

    Raises ConfigurationError, which names the setting, when it is not given, and what
    :func:`container.common.directories.not_created` makes when it cannot be made or forced.
    """
    path = given_directory(setting, path)
    if isinstance(storage, FileStorage):
        path = created_directory(setting, path)
    try:
        if not storage.exists(path):
            storage.make_directory(path)
        with suppress(PermissionError):
            storage.force_directory(path.rpartition("/")[0] or "/")
    except OSError as error:
        raise not_created(setting, path, error) from error
    return path
