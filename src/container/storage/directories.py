"""The directories that settings name, on whatever storage they are."""

from __future__ import annotations

from container.common.directories import created_directory
from container.common.values import shown_path
from container.errors import ConfigurationError
from container.storage.file_storage import FileStorage
from container.storage.seam import Storage


def concluded_directory(storage: Storage, setting: str, path: str) -> str:
    """The path by which files of the directory are opened; it is made if it is not there, and canonical among files.

    Raises ConfigurationError, which names the setting, when it cannot be.
    """
    if isinstance(storage, FileStorage):
        return created_directory(setting, path)
    try:
        if not storage.exists(path):
            storage.make_directory(path)
    except OSError as error:
        raise ConfigurationError(f"{setting}={shown_path(path)}: cannot be created: {error.strerror}") from error
    return path
