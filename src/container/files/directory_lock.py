"""The lock of the directory of a node or a backup, and what it proves: that who held it before is dead.

A mark file and a media driver's CnC file are free once their owner has shown no life for 10 seconds, as nobody knows
whether it lives. The kernel does: it gives the lock back when the last thread of the process is gone, and no sooner. So
the holder notes which files it owns. The next holder of the lock frees them, if they are still as the last holder left
them.

The note counts only where the lock was one of this kernel on this directory: it has the kernel's boot id, and device
and inode of the directory. So it proves nothing about another machine that has the same network file system, about a
copy of the directory, or behind another mount. Process ids prove nothing: containers may share a volume, but no ids.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from container.common import forks
from container.common.loggers import report
from container.common.regular_files import open_regular, read_regular
from container.errors import MarkFileError
from container.files.cnc_file import MARK_FILE_ACTIVATING, CncFile, FileFormatError, read_mark_file
from container.files.mark_file import LIVENESS_TIMEOUT_MS, release_mark_file
from container.files.names import CNC_FILE_NAME
from container.storage.file_storage import FileStorage

NOTE_NAME = "node-owner.json"
_NOTE_LENGTH_MAX = 64 * 1024
_NOTE_MODE = 0o640
_POLL_S = 0.1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Owner(NamedTuple):
    """The owner of a file, as the file names it."""

    start_timestamp_ms: int
    pid: int


class DirectoryLock:
    """Keeps others out of a directory, also while a long callback keeps the mark files from being refreshed.

    Args:
        directory: of a node, or of the files of a backup's cluster.
        kind: of what holds it, as errors name it.

    Raises OSError when it cannot be made, and MarkFileError when another holder has it. On a file system without locks,
    mark files alone keep others out.
    """

    def __init__(self, directory: Path, kind: str = "node") -> None:
        self._note = directory / NOTE_NAME
        self._owners: dict[str, Owner] = {}
        self._place: list[object] | None = None
        """The values that the note must have to count; None: this lock proves nothing."""
        self._file: int | None = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        forks.own(self)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.disown()
            raise MarkFileError(
                f"another {kind} runs on {directory}, or a process that it has forked: end it first, or give this one "
                "another directory"
            ) from None
        except OSError:
            return
        with suppress(OSError):
            status = os.fstat(self._file)
            self._place = [_BOOT_ID.read_text(encoding="ascii").strip(), status.st_dev, status.st_ino]

    def free_files_of_the_dead(self) -> None:
        """Free what the last holder of the lock has noted, if all of it is as it has left it.

        Take up to 10 seconds longer where it was killed while it took a file over.
        """
        found: dict[Path, int] = {}
        owners = self._read()
        for name, noted in owners.items():
            try:
                owner, timestamp = _owner_of(Path(name))
            except FileNotFoundError:
                continue
            except (OSError, FileFormatError):
                return
            if owner != noted:  # somebody was here since, who knows nothing of this lock
                return
            found[Path(name)] = timestamp
        # Noted until this process has them, in case it is killed before.
        self._owners = {name: owner for name, owner in owners.items() if Path(name).name != CNC_FILE_NAME}
        for path, timestamp in found.items():
            if path.name == CNC_FILE_NAME:
                path.unlink(missing_ok=True)
            elif timestamp == MARK_FILE_ACTIVATING:
                _free_claim(path)
            elif timestamp > 0:
                release_mark_file(FileStorage(), path, timestamp)

    def note(self, path: str | os.PathLike[str]) -> None:
        """Note that this process owns a mark file, or the CnC file of a driver that it runs."""
        if self._place is None:
            return
        with suppress(OSError, FileFormatError):  # without a note, the next start waits
            owner = _owner_of(Path(path))[0]
            if owner.pid == os.getpid():  # else another process has taken it meanwhile
                self._owners[os.fspath(path)] = owner
                self._write()

    def sign(self) -> None:
        """Note that this process has held the lock, if the lock proves something."""
        if self._place is not None:
            with suppress(OSError):
                self._write()

    def is_of_the_dead(self) -> bool:
        """Whether a holder before has noted something, and so is dead."""
        return self._noted() is not None

    def _read(self) -> dict[str, Owner]:
        """The notes; none where they prove nothing."""
        return self._noted() or {}

    def _noted(self) -> dict[str, Owner] | None:
        """The notes; None where there are none, or where they prove nothing."""
        try:
            found = json.loads(read_regular(self._note, _NOTE_LENGTH_MAX))
            owners = {str(name): Owner(*map(int, owner)) for name, owner in found["owners"].items()}
            return owners if self._place is not None and found["place"] == self._place else None
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None

    def _write(self) -> None:
        content = json.dumps({"place": self._place, "owners": self._owners}).encode()
        file = open_regular(self._note, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _NOTE_MODE)
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, content, 0)
        finally:
            os.close(file)

    def close(self) -> None:
        """Give the lock back, and leave no note: all that this process owned was closed, or may be in use yet."""
        if self._file is not None and self._place is not None:
            with suppress(OSError):
                self._note.unlink()
        self.disown()

    def _disown(self, _process_id: int) -> None:
        """In a forked child: the parent keeps the lock."""
        self.disown()

    def disown(self) -> None:
        """Let go of the lock, and leave the note."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _free_claim(path: Path) -> None:
    """Free a mark file that somebody has claimed and not written a name into, once it has been so for 10 seconds.

    A holder of the lock that was killed right then leaves it so for good. A process that still lives continues.
    """
    report("warning", "mark file %s is claimed by a start in progress, or by one that was killed: waiting 10 s", path)
    with suppress(OSError, FileFormatError):  # who starts on it says what is wrong with it
        claimed = _owner_of(path)
        end = time.monotonic() + LIVENESS_TIMEOUT_MS / 1000
        while _owner_of(path) == claimed:
            if time.monotonic() > end:
                release_mark_file(FileStorage(), path, MARK_FILE_ACTIVATING)
                return
            time.sleep(_POLL_S)


def _owner_of(path: Path) -> tuple[Owner, int]:
    """Owner and activity timestamp; 0 where there is none."""
    if path.name == CNC_FILE_NAME:
        file = CncFile(path)
        file.close()
        return Owner(file.start_timestamp_ms, file.pid), 0
    status = read_mark_file(path)
    return Owner(status.start_timestamp_ms, status.pid), status.activity_timestamp_ms
