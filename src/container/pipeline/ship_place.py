"""Where shipping writes: a directory, or any store that fsspec reaches. Objects are created whole, and never grow."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from container.common.regular_files import open_regular, read_at, write_at
from container.common.values import shown
from container.errors import ConfigurationError
from container.recordings.shipped import MANIFEST_DIRECTORY, OBJECT_DIRECTORIES

BLOCK_LENGTH = 16 * 1024 * 1024
_TEMPORARY = ".part-"
_TEMPORARY_NAME = re.compile(r"\.part-[0-9a-f]{32}", re.ASCII)
_FINAL_ERRNOS = frozenset(
    getattr(errno, name)
    for name in [
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
        "EROFS",
        "EACCES",
        "EPERM",
        "ENAMETOOLONG",
        "ENOTDIR",
        "EISDIR",
        "ENOTEMPTY",
    ]
)
_PASSING_CLASSES = frozenset(["HTTPClientError", "ConnectionError", "ClientConnectionError", "IncompleteReadError"])


class Place(ABC):
    """A directory or a prefix of a store. Paths are relative to it, with slashes.

    Every method raises OSError, or an error of the store's own library, when the store does not do what is asked for.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """For messages: what the user wrote."""

    @abstractmethod
    def lengths(self) -> dict[str, int]:
        """Return the length in bytes of each object in the place, by path; without temporary ones."""

    @abstractmethod
    def length(self, path: str) -> int | None:
        """Return the length of an object in bytes; None when it is not there."""

    @abstractmethod
    def blocks(self, path: str, length: int) -> Iterator[bytes]:
        """Yield the bytes of an object of this length."""

    @abstractmethod
    def put(self, path: str, content: bytes, *, create: bool) -> None:
        """Write an object, whole or not at all.

        Raises:
            FileExistsError: ``create`` is set, and it is there already.
        """

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects; missing ones are skipped."""

    def digest(self, path: str, length: int) -> str | None:
        """Return the SHA-256 of an object, read from the store; None when it is missing or has another length."""
        if self.length(path) != length:
            return None
        digest = hashlib.sha256()
        for block in self.blocks(path, length):
            digest.update(block)
        return digest.hexdigest()

    def content(self, path: str, length_max: int) -> bytes | None:
        """Return the bytes of an object; None when it is not there, or longer."""
        length = self.length(path)
        return None if length is None or length > length_max else b"".join(self.blocks(path, length))


class Directory(Place):
    """A directory of this machine. Objects appear by a link to a file that is on the disk already."""

    def __init__(self, name: str, root: Path) -> None:
        super().__init__(name)
        self._root = root
        if not os.path.lexists(root):
            root.mkdir(exist_ok=True)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove the files that killed processes were writing: nobody holds their lock any more.

        Only by names that shipping gives, and where it writes: the directory may be one that was named by mistake.
        """
        directories = (MANIFEST_DIRECTORY, *OBJECT_DIRECTORIES)
        for path in (path for name in directories for path in self._root.glob(f"{name}/**/{_TEMPORARY}*")):
            if _TEMPORARY_NAME.fullmatch(path.name) is None:
                continue
            with contextlib.suppress(OSError):
                file = open_regular(path)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(file)

    def lengths(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for directory, _, names in os.walk(self._root, onerror=self._on_listing_error):
            for name in names:
                if not name.startswith(_TEMPORARY):
                    path = Path(directory, name)
                    with contextlib.suppress(FileNotFoundError):  # removed since
                        found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return found

    def _on_listing_error(self, error: OSError) -> None:
        """Raise it, unless another shipper has removed a directory since the one above it was listed."""
        if not isinstance(error, FileNotFoundError) or not self._root.is_dir():
            raise error

    def length(self, path: str) -> int | None:
        try:
            return (self._root / path).stat().st_size
        except FileNotFoundError:
            return None

    def blocks(self, path: str, length: int) -> Iterator[bytes]:
        file = open_regular(self._root / path)
        try:
            for offset in range(0, length, BLOCK_LENGTH):
                yield read_at(file, offset, min(BLOCK_LENGTH, length - offset))
        finally:
            os.close(file)

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        target = self._root / path
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            for directory in target.parent.parents:
                if self._root in (directory, *directory.parents):
                    _force(directory)
        temporary = target.parent / f"{_TEMPORARY}{uuid4().hex}"
        file = open_regular(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # While it is held no other shipper takes it for a leftover.
            write_at(file, 0, content)
            os.fsync(file)
            if create:
                os.link(temporary, target)
            else:
                temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(file)
        _force(target.parent)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = self._root / path
            target.unlink(missing_ok=True)
            if target.parent.parent.parent == self._root:  # that of one manifest's metadata
                with contextlib.suppress(OSError):
                    target.parent.rmdir()


def _force(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Store(Place):
    """A prefix of an object store or another file system, by fsspec."""

    def __init__(self, name: str, filesystem: Any, root: str) -> None:
        super().__init__(name)
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"

    def lengths(self) -> dict[str, int]:
        self._filesystem.invalidate_cache()
        found = self._filesystem.find(self._root, detail=True)
        prefix = f"{self._root}/"
        return {
            path.removeprefix(prefix): entry["size"]
            for path, entry in found.items()
            if entry["type"] == "file" and path.startswith(prefix)
        }

    def length(self, path: str) -> int | None:
        try:
            found: int = self._filesystem.info(self._full(path))["size"]
        except FileNotFoundError:
            return None
        return found

    def blocks(self, path: str, length: int) -> Iterator[bytes]:
        for offset in range(0, length, BLOCK_LENGTH):
            yield self._filesystem.cat_file(self._full(path), start=offset, end=min(offset + BLOCK_LENGTH, length))

    def put(self, path: str, content: bytes, *, create: bool) -> None:
        self._filesystem.pipe_file(self._full(path), content, mode="create" if create else "overwrite")

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.rm_file(self._full(path))


def open_place(url: str, storage_options: Mapping[str, Any], *, make: bool = True) -> Place:
    """Return a place by its URL or path.

    Args:
        url: or path.
        storage_options: what fsspec passes to the file system of a URL.
        make: whether a directory is made that is not there; the one above it must be.

    Raises:
        ConfigurationError: the URL's protocol is not known, its package is not installed, or an option is wrong.
        OSError: the directory cannot be made or looked into.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        if storage_options:
            raise ConfigurationError(f"{shown(url)} is a directory of this machine, which takes no storage options")
        root = Path(rest if separator else url).absolute()
        if not root.parent.is_dir():
            raise ConfigurationError(
                f"there is no directory {root.parent} for {shown(url)}: make it, or mount its disk"
            )
        if not make and not root.exists():
            raise ConfigurationError(f"there is no {shown(url)}: nothing was shipped there")
        return Directory(url, root)
    try:
        # The package is there with the extra only.
        filesystem, root_name = importlib.import_module("fsspec.core").url_to_fs(
            url, **{"use_listings_cache": False, "skip_instance_cache": True, **storage_options}
        )
    except ImportError as error:
        raise ConfigurationError(
            f'{shown(url)} needs a package that is not installed ({error}): pip install "aeron-cluster-container'
            '[storage]" brings fsspec and s3fs; other protocols need their own package'
        ) from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{shown(url)} cannot be opened: {error}") from error
    return Store(url.rstrip("/"), filesystem, str(root_name))


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later: the network or the store is in trouble, nothing is wrong."""
    if any(kind.__name__ in _PASSING_CLASSES for kind in type(error).__mro__):
        return True
    if isinstance(error, FileExistsError | FileNotFoundError | PermissionError):
        return False
    return isinstance(error, OSError) and error.errno not in _FINAL_ERRNOS


def store_error_text(error: BaseException) -> str:
    """Return the text for an error of a store, in one line and with advice."""
    text = " ".join(str(error).split()) or type(error).__name__
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{text}: make room there, and run this again; what was copied is taken over"
    if isinstance(error, PermissionError) or number == errno.EROFS:
        return f"{text}: let this user list, read, write and remove objects there"
    if isinstance(error, FileNotFoundError):
        return f"{text}: is the bucket there, and its name right?"
    return text
