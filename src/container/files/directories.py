"""Remote directories of a member's files: their names pass through the calls that open files."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from container.common.regular_files import open_regular

type Directory = str | os.PathLike[str] | RemoteDirectory


class RemoteDirectory(ABC):
    """Files that lie elsewhere. As text it is the URL of the directory."""

    @abstractmethod
    def content(self, name: str) -> bytes:
        """Return all bytes of a small file as it is now.

        Raises:
            FileNotFoundError: there is none.
            RecordingUnavailableError: it cannot be fetched.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the files that are there now, in no order.

        Raises:
            RecordingUnavailableError: the directory cannot be listed.
        """

    @abstractmethod
    def segment_reader(self, recording_id: int) -> SegmentReader:
        """Return what reads the segment files of a recording; one reader is for one thread."""


class SegmentReader(ABC):
    """Bytes of a recording's segment files, which are never local files: what was not fetched cannot be read."""

    @abstractmethod
    def has(self, segment_position: int) -> bool:
        """Whether there is a segment file that begins at a log position.

        Raises:
            RecordingUnavailableError: the directory cannot be listed.
        """

    @abstractmethod
    def read(self, segment_position: int, offset: int, length: int) -> bytes:
        """Return bytes of a segment file from an offset on, one at least and ``length`` at most; none at its end.

        Raises:
            RecordingUnavailableError: they cannot be fetched.
        """


def path_in(directory: Directory, name: str) -> str:
    """Return the path or URL of a file, for errors."""
    return f"{directory}/{name}" if isinstance(directory, RemoteDirectory) else str(Path(directory, name))


def open_in(directory: Directory, name: str) -> int:
    """Open a small regular file for reading and return its descriptor, as :func:`open_regular` does.

    That of a remote directory is a copy without a name, which is gone when it is closed.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
        RecordingUnavailableError: it cannot be fetched.
    """
    if not isinstance(directory, RemoteDirectory):
        return open_regular(Path(directory, name))
    content = directory.content(name)
    with tempfile.TemporaryFile() as copy:
        copy.write(content)
        copy.flush()
        return os.dup(copy.fileno())
